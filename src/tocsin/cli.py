"""The command `tocsin`: reads arguments, calls a command, prints its result.

Each command imports what it needs when it runs: `tocsin --version` loads neither Spark nor `tocsin.lab`.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tocsin.commands.arguments import (
    check_file,
    check_path,
    file_and_row,
    files_of,
    subscription_and_events,
)
from tocsin.commands.groups import add_groups
from tocsin.commands.output import PROBLEM, print_json, read_text, report_errors, stderr, stdout
from tocsin.commands.subscription_commands import Json, subscriptions_app
from tocsin.errors import UsageError

__all__ = ["app", "main"]


class _LazyLaboratory(TyperGroup):
    """The commands below, and those whose options live in the laboratory and are imported on first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), "demo", "bench", "simulate"]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name == "bench":
            from tocsin.lab.bench.command import app as found
        elif cmd_name == "demo":
            from tocsin.lab.demo.command import app as found
        elif cmd_name == "simulate":
            from tocsin.lab.simulate.command import app as found
        else:
            return super().get_command(ctx, cmd_name)
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command


app = typer.Typer(
    name="tocsin",
    cls=_LazyLaboratory,
    help="""Standing SQL queries over streams and tables: each subscriber receives the changes of its answer.

\b
  tocsin demo                        replay two stormy days of real flights, on Spark
  tocsin validate alerts.sql         check subscriptions and print their shapes
  tocsin match alerts.sql hits.jsonl           which events match which subscriptions
  tail -f hits.jsonl | tocsin match alerts.sql - -o -      the same, as events come
  tocsin backtest 'SELECT * FROM hits WHERE ms > 900' hits.csv
  tocsin explain alerts.sql '{"symbol": "GOOG", "per": 52.1}'
  tocsin stats alerts.sql            what there is, and how it is indexed
  tocsin run --example               print a pipeline to start from
  tocsin subscriptions list out/state   list or change a pipeline's subscriptions, also while it runs
  tocsin limits saved/               what deferred subscriptions were promised, and what was kept
  tocsin serve --dir data            serve subscriptions over HTTP, durably, with a page
  tocsin demo --serve                that page on the flights
  tocsin follow                      the same server's deltas, here; also publish, subscribe, content
  tocsin broker --up server:7711     pass a server's messages on to clients far away
  tocsin bench                       measure the speed on this machine
  tocsin simulate                    what schemes for select-joins cost over a wide-area network
  tocsin warmup                      compile all kernels now instead of when they are first needed

A file may be - for stdin or stdout. Short options mean the same everywhere: -s subscriptions, -e events,
-d definitions, -r relation, -o output, -f format, -n limit, -q quiet, -j JSON.

Exit codes: 0 success, 1 a problem was found, 2 the command was used wrongly.""",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Events = Annotated[
    Path | None,
    typer.Option("--events", "-e", help="Events: .jsonl, .csv, .parquet; - for stdin.", callback=check_file),
]
Schema = Annotated[
    Path | None,
    typer.Option("--schema", "-d", help="Definitions: CREATE STREAM ...;", callback=check_file),
]
Subscriptions = Annotated[
    Path | None,
    typer.Option(
        "--subscriptions", "-s", help="Subscriptions: .sql, .jsonl, .csv or .parquet; - for stdin.",
        callback=check_file
    ),
]  # fmt: skip
Relation = Annotated[
    str | None,
    typer.Option(
        "--relation", "-r", help="Stream or table of the events. Default: the file's name, or the only one."
    ),
]


def main() -> None:
    """The entry point."""
    app()


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tocsin {version('tocsin')}")
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """The options of `tocsin` itself."""


@app.command()
def validate(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files of statements; - for stdin.", callback=check_file),
    ],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only problems and the summary.")] = False,
    as_json: Json = False,
) -> None:
    """Check the statements of a file: definitions and subscriptions separated by semicolons.

    \b
      tocsin validate alerts.sql
      tocsin validate --json alerts.sql | jq '.[0].subscriptions'
      echo 'CREATE STREAM hits; SELECT * FROM hits WHERE ms > 900' | tocsin validate -

    Each statement is checked against the definitions before it; the command prints its shape, or its error
    with line and column. A comment `-- error: ...` or `-- shape: ...` before a statement records the
    expected outcome; a statement with that outcome is not a problem.
    """
    from tocsin.commands.progress import Display
    from tocsin.commands.validate import validate as validate_text

    with report_errors(as_json), Display("checking the statements"):
        reports = {file: validate_text(read_text(file)) for file in files}
    if as_json:
        print_json([{"file": str(file), **report.to_dict()} for file, report in reports.items()])
    else:
        for file, report in reports.items():
            for line in report.lines(str(file), quiet):
                typer.echo(line)
    if not all(report.ok for report in reports.values()):
        raise typer.Exit(PROBLEM)


@app.command()
def explain(
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE] [ROW]", help="Definitions and subscriptions, and the row as JSON."),
    ] = None,
    row: Annotated[str | None, typer.Option(help="The row: JSON, @FILE, or - for stdin.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Definitions and subscriptions.", callback=check_file),
    ] = None,
    ddl: Annotated[str, typer.Option("--ddl", "-d", help="Definitions, as text.")] = "",
    subscription: Annotated[
        str | None,
        typer.Option(
            "--subscription", "-s", help="A SELECT, or its number in the file. Default: all of the file."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Rows: a file named after its table, a folder of them, or a saved engine.", exists=True
        ),
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", "-r", help="Table of the row, if several have its columns.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain why a row is, or is not, in an answer.

    \b
      tocsin explain alerts.sql '{"symbol": "GOOG", "per": 52.1}'
      tocsin explain -d 'CREATE STREAM hits' -s 'SELECT * FROM hits WHERE n > 5' '{"n": 3}'
      tocsin explain alerts.sql -s 2 --data tables/ --row '{"symbol": "GOOG", "per": 52.1}'

    The row need not be in the data: for the explanation it is added to its table, or replaces the row with
    the same key.
    """
    from tocsin.commands.explain import explain_row, read_row
    from tocsin.commands.progress import Display

    with report_errors(as_json):
        file, row = file_and_row(given or [], file, row)
        wanted, text = read_row(row), read_text(file) if file is not None else ""
        with Display("reading the subscriptions and the data"):
            explanations = explain_row(
                wanted, ddl=ddl, text=text, subscription=subscription, data=data, table=table
            )
    if as_json:
        print_json([explanation.to_dict() for explanation in explanations])
    else:
        for explanation in explanations:
            typer.echo(str(explanation))


@app.command()
def match(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SUBSCRIPTIONS] [EVENTS]", help="Files, if not given by -s and -e."),
    ] = None,
    subscriptions: Subscriptions = None,
    events: Events = None,
    schema: Schema = None,
    relation: Relation = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write matches to a .jsonl, .csv or .parquet file; - for stdout."
        ),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", "-f", help="Format of the output: jsonl, csv or parquet.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", help="Print this many matches.", min=0)
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Explain the printed matches (3 without --limit).")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary.")] = False,
    as_json: Json = False,
) -> None:
    """Match the events of a file against the subscriptions of a file.

    \b
      tocsin match alerts.sql hits.parquet
      tocsin match alerts.csv hits.jsonl -o matches.parquet
      tocsin match alerts.sql hits.csv -n 5 --explain
      tail -f hits.jsonl | tocsin match alerts.sql - -o -

    A subscription file holds statements (.sql: CREATE STREAM and SELECT, separated by semicolons), or rows
    with a column `sql` and optionally `id` and `subscriber`, or rows with `id` and `predicates`. If neither
    the file nor --schema declares a stream, events may have any attributes.

    Matches are written as rows (event, subscription); events are numbered from 0 in file order. With -o -
    they go to stdout as they are found, and the summary to stderr. Bad events are skipped and counted by
    reason; the exit code is then 1.
    """
    with report_errors(as_json):
        if as_json and output == Path("-"):
            raise UsageError("--json and --output - both write to stdout", hint="choose one of them")
        chosen, read = files_of(files or [], subscriptions, events, "tocsin match alerts.sql hits.jsonl")
        from tocsin.commands.match import match_files

        matched = match_files(
            chosen,
            read,
            schema=schema,
            relation=relation,
            output=output,
            form=form,
            limit=limit,
            explain=explain,
        )
    _print_result(matched, as_json, to_stderr=output == Path("-"), quiet=quiet)


@app.command()
def backtest(
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SUBSCRIPTION] [EVENTS]", help="A SELECT or a file of them, and events."),
    ] = None,
    subscription: Annotated[str | None, typer.Option(help="A SELECT.")] = None,
    subscriptions: Subscriptions = None,
    events: Events = None,
    schema: Schema = None,
    relation: Relation = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", "-t", help="A TIMESTAMP or DATE column. Default: the only one, or event numbers."
        ),
    ] = None,
    bins: Annotated[
        int, typer.Option("--bins", "-b", help="At most so many bars in the histogram.", min=1, max=200)
    ] = 20,
    as_json: Json = False,
) -> None:
    """Count how often, and when, a subscription would have fired on past events.

    \b
      tocsin backtest 'SELECT * FROM hits WHERE ms > 900' hits.parquet
      tocsin backtest alerts.sql hits.csv --time at --bins 12
      zcat hits.jsonl.gz | tocsin backtest 'SELECT * FROM hits WHERE ms > 900' -

    The histogram has bins of a round width (an hour, a day, a month) in UTC. An event of a stream fires a
    subscription if it matches, a change of a table if it changes the answer; each counts once. The longest
    quiet gap is searched from the first event of the file to the last.
    """
    from tocsin.commands.backtest import backtest as run_backtest

    with report_errors(as_json):
        source, read = subscription_and_events(given or [], subscription, subscriptions, events)
        tested = run_backtest(source, read, schema=schema, relation=relation, time=time, bins=bins)
    _print_result(tested, as_json)


@app.command()
def stats(
    source: Annotated[
        Path,
        typer.Argument(
            help="A saved engine, the `state` folder of a pipeline, or a file of subscriptions.",
            callback=check_path,
        ),
    ],
    events: Annotated[
        Path | None,
        typer.Argument(help="Events to apply first.", callback=check_file),
    ] = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Count subscriptions by shape and by stream, and show how they are indexed.

    \b
      tocsin stats alerts.sql
      tocsin stats alerts.sql hits.jsonl       after these events, which decide how filters are indexed
      tocsin stats out/state                   the subscriptions of a pipeline
      tocsin stats saved/ --json               all counters of a saved engine
    """
    from tocsin.commands.stats import stats as read_stats

    with report_errors(as_json):
        found = read_stats(source, events, schema=schema)
    _print_result(found, as_json)


@app.command()
def run(
    config: Annotated[Path | None, typer.Argument(help="The pipeline, in TOML; - for stdin.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a commented example.")] = False,
    log: Annotated[
        str | None, typer.Option(help="json: write a line per batch, to stderr or to --log-file.")
    ] = None,
    log_file: Annotated[Path | None, typer.Option(help="Append the log lines to this file.")] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Serve metrics for Prometheus on this port, or host:port.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a pipeline on Spark: read changes from files or Kafka, write every subscription's deltas to sinks.

    \b
      tocsin run --example > pipeline.toml
      tocsin run pipeline.toml
      tocsin run pipeline.toml --log json --metrics 9090

    Ctrl-C stops the pipeline; the same command resumes it from its checkpoint. Rejected changes become dead
    letters: the summary says how many there are and where, and the exit code stays 0.
    """
    from tocsin.commands.config import EXAMPLE, load_config

    if example:
        typer.echo(EXAMPLE, nl=False)
        return
    with report_errors(as_json):
        if config is None:
            raise UsageError(
                "no pipeline file is given", hint="tocsin run pipeline.toml; or see: tocsin run --example"
            )
        pipeline = load_config(config)
        from tocsin.commands.run import read_monitoring, run_pipeline

        console = stderr().print if as_json else typer.echo
        ran = run_pipeline(pipeline, console, read_monitoring(log, log_file, metrics))
    if as_json:
        print_json(ran.to_dict())
    else:
        stdout().print(str(ran), markup=False)


@app.command()
def broker(
    up: Annotated[
        list[str], typer.Option(help="HOST:PORT of the server or broker above; more than one: in turn.")
    ],
    listen: Annotated[str, typer.Option(help="HOST:PORT for clients and brokers below.")] = ":7712",
    name: Annotated[str, typer.Option(help="The name in logs.")] = "broker",
    token: Annotated[str, typer.Option(envvar="TOCSIN_TOKEN", help="Shown to the one above.")] = "",
    tokens: Annotated[
        Path | None, typer.Option(help="A file with the tokens that may connect, one per line. Default: all.")
    ] = None,
    cert: Annotated[Path | None, typer.Option(help="The certificate of this broker (TLS).")] = None,
    key: Annotated[Path | None, typer.Option(help="Its key, if it is not in the same file.")] = None,
    ca: Annotated[
        Path | None, typer.Option(help="Authorities to trust: connect over TLS; brokers must show one.")
    ] = None,
    digest: Annotated[int, typer.Option(help="Boxes by which a broker below is described.", min=1)] = 64,
    repository: Annotated[
        str, typer.Option(help="Keep so many bytes of rows (256MB): each then comes once. Default: none.")
    ] = "",
    public: Annotated[
        str, typer.Option(help="HOST:PORT for clients who look for the broker nearest to their interest.")
    ] = "",
) -> None:
    """Pass messages on from a server, or another broker, to the clients that want them.

    \b
      tocsin broker --up server.example.org:7711
      tocsin broker --up one:7712 --up two:7712 --listen :7713 --cert me.pem --ca ours.pem
      tocsin broker --up server.example.org:7711 --repository 256MB

    The server is `tocsin.serve(engine, ":7711")` in Python, a client `tocsin.connect("HOST:7712")`. A broker
    has no tables and no contents: it may be killed, moved and started again at any time; clients below it
    connect again and resume. It runs until Ctrl-C.
    """
    with report_errors(False):
        import asyncio

        from tocsin.commands.broker import read_size, read_tokens, run_broker, tls_down, tls_up
        from tocsin.network.stations import Broker

        made = Broker(
            up,
            name=name,
            token=token,
            tokens=read_tokens(tokens),
            tls_up=tls_up(cert, key, ca),
            digest_boxes=digest,
            needs_certificates=ca is not None and cert is not None,
            repository=read_size(repository) if repository else None,
            public=public,
        )
        asyncio.run(
            run_broker(made, listen, tls_down(cert, key, ca), lambda text: stderr().print(text, markup=False))
        )


@app.command()
def warmup(
    workers: Annotated[int | None, typer.Option(help="Processes. Default: one per core.", min=1)] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Also archive Spark's classes: it then starts in half the time.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compile all kernels now, once per machine, instead of when they are first needed.

    \b
      tocsin warmup
      tocsin warmup --spark
      TOCSIN_CACHE=/opt/tocsin-cache tocsin warmup    (into an image, for instance)

    What was compiled before is not compiled again. The archive of Spark's classes takes half a minute and
    some 200 MB; sessions of `tocsin.spark.session()` on one machine use it. Another Java needs another one.
    """
    from tocsin.commands.warmup import archive_classes, warm_up

    with report_errors(as_json):
        done = warm_up(workers)
        if not as_json:
            stdout().print(
                f"{done.kernels:,} kernels compiled in {done.seconds:.0f} s, stored in {done.folder}"
            )
        archive = archive_classes() if spark else None
    if as_json:
        answer = {"kernels": done.kernels, "seconds": round(done.seconds, 1), "cache": str(done.folder)}
        print_json(answer | ({"spark_classes": archive and str(archive)} if spark else {}))
    elif spark:
        stdout().print(f"classes of Spark: {archive or 'this Java cannot archive them; Spark works without'}")


@app.command()
def chaos(
    runs: Annotated[int, typer.Option(help="How many runs.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Seed of changes, subscriptions and kills.")] = 0,
    place: Annotated[
        str, typer.Option(help="local, cluster, both in turn, or store (local, with its state in S3).")
    ] = "both",
    kills: Annotated[int, typer.Option(help="Kills per run.", min=0)] = 3,
    files: Annotated[int, typer.Option(help="Files of changes per run.", min=3)] = 10,
    updates: Annotated[
        int | None,
        typer.Option(help="Changes of the subscriptions per run. Default: half as many as files.", min=0),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir", help="Where to keep failed runs. With --server: done runs, to go on.", file_okay=False
        ),
    ] = None,
    brokers: Annotated[
        int, typer.Option(help="Disturb so many brokers in network namespaces instead (needs root).", min=0)
    ] = 0,
    seconds: Annotated[float, typer.Option(help="How long brokers are disturbed.", min=4)] = 60.0,
    repositories: Annotated[int, typer.Option(help="Brokers that keep a repository.", min=0)] = 0,
    server: Annotated[
        bool, typer.Option("--server", help="Kill `tocsin serve` under load instead, once in each run.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Kill processes of running pipelines at random, and count lost, doubled and wrong deltas.

    \b
      tocsin chaos
      tocsin chaos --runs 30 --json
      tocsin chaos --place local --seed 7 --runs 1
      tocsin chaos --runs 1 --kills 0 --files 101 --updates 100     check that batches use one version each
      tocsin chaos --brokers 8                                      kill brokers and cut links for a minute
      tocsin chaos --server --runs 300 --json                       kill a server at each step of its commits

    A driver, a worker or a Python process receives SIGKILL while changes arrive and subscriptions come and
    go; then it is restarted. Every delta is compared with those of an undisturbed engine. With --brokers, a
    broker is killed and a link cut every two seconds; answers at clients are compared with the engine's.
    """
    from tocsin.lab.chaos.command import run_broker_chaos, run_chaos, run_server_chaos

    with report_errors(as_json):
        result: Any
        if server:
            result = run_server_chaos(runs, seed, folder, say=stderr().print)
        elif brokers:
            result = run_broker_chaos(brokers, seed, seconds, repositories, say=stderr().print)
        else:
            result = run_chaos(
                runs, seed, place=place, kills=kills, files=files, updates=updates, folder=folder,
                say=stderr().print,
            )  # fmt: skip
    _print_result(result, as_json)


app.add_typer(subscriptions_app, name="subscriptions")
add_groups(app)


def _print_result(result: Any, as_json: bool, *, to_stderr: bool = False, quiet: bool = False) -> None:
    """Print a result that has `ok`, `lines` and `to_dict`, and exit with 1 unless it is ok."""
    if as_json:
        print_json(result.to_dict())
    elif not quiet:
        for line in result.lines():
            typer.echo(line, err=to_stderr)
    if not result.ok:
        raise typer.Exit(PROBLEM)
