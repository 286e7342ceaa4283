"""The command `tocsin`: reads arguments, calls a command, prints. Nothing is decided here.

Spark, the demo and the benchmarks are imported by the commands that need them.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from tocsin.commands.output import (
    PROBLEM,
    errors_told,
    print_json,
    read_text,
    stderr,
    stdout,
)
from tocsin.commands.subscriptions_cli import app as subscriptions_app
from tocsin.errors import UsageError
from tocsin.lab.bench.commands.join import bench_join
from tocsin.lab.bench.commands.match import bench_match
from tocsin.lab.bench.commands.rank import bench_rank
from tocsin.lab.bench.commands.spark import bench_spark

__all__ = ["app", "main"]

app = typer.Typer(
    name="tocsin",
    help="""Standing SQL queries over streams and tables: each subscriber is told how its answer changes.

\b
  tocsin demo                        two stormy days of real flights, on Spark
  tocsin validate alerts.sql         are these subscriptions taken, and what shape are they?
  tocsin explain --file alerts.sql --row '{"symbol": "GOOG", "per": 52.1}'
  tocsin match --subscriptions alerts.sql --events hits.parquet
  tocsin backtest --subscription 'SELECT * FROM hits WHERE ms > 900' --events hits.csv
  tocsin run --example               a pipeline to start from
  tocsin subscriptions list out/state   what it is asked; it can be changed while it runs
  tocsin bench                       how fast is it here?

Exit codes: 0 all is well, 1 a problem was found, 2 the command was wrong.""",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Events = Annotated[Path, typer.Option(help="Events: .jsonl, .csv or .parquet.", exists=True, dir_okay=False)]
Schema = Annotated[
    Path | None, typer.Option(help="Definitions: CREATE STREAM ...;", exists=True, dir_okay=False)
]
Relation = Annotated[
    str | None, typer.Option(help="The stream or table of the events. Default: as the file, or the only one.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout instead of text.")]


app.add_typer(subscriptions_app, name="subscriptions")


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
    files: Annotated[list[Path], typer.Argument(help="Files of statements.", exists=True, dir_okay=False)],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only problems and the summary.")] = False,
    as_json: Json = False,
) -> None:
    """Check the statements of a file: definitions and subscriptions separated by semicolons.

    \b
      tocsin validate alerts.sql
      tocsin validate --json alerts.sql | jq '.[0].subscriptions'

    Each statement is read against the definitions before it; its shape is printed, or its error with
    line and column. A comment `-- error: ...` before a statement records the message that is
    expected (`-- shape: ...` the shape); what is as recorded is no problem.
    """
    from tocsin.commands.validate import validate as read

    with errors_told(as_json):
        reports = {file: read(read_text(file)) for file in files}
    if as_json:
        print_json([{"file": str(file), **report.to_dict()} for file, report in reports.items()])
    else:
        for file, report in reports.items():
            for line in report.lines(str(file), quiet):
                stdout().print(line, markup=False)
    if not all(report.ok for report in reports.values()):
        raise typer.Exit(PROBLEM)


@app.command()
def explain(
    row: Annotated[str, typer.Option(help="The row: JSON, @FILE, or - for stdin.")],
    file: Annotated[
        Path | None, typer.Option(help="Definitions and subscriptions.", exists=True, dir_okay=False)
    ] = None,
    ddl: Annotated[str, typer.Option(help="Definitions, as text.")] = "",
    subscription: Annotated[
        str | None, typer.Option(help="A SELECT, or its number in the file. Without it: all of the file.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Rows: a file named after its table, a folder of them, or a saved engine.", exists=True
        ),
    ] = None,
    table: Annotated[str | None, typer.Option(help="The row's table, if several have its columns.")] = None,
    as_json: Json = False,
) -> None:
    """Say why a row is, or is not, in an answer.

    \b
      tocsin explain --ddl 'CREATE STREAM hits' --row '{"n": 3}' \\
                     --subscription 'SELECT * FROM hits WHERE n > 5'
      tocsin explain --file alerts.sql --subscription 2 --data tables/ --row '{"symbol": "GOOG", "per": 52.1}'

    The row may be in the data or one that might come: it is laid over its table for the question.
    """
    from tocsin.commands.explain import explain_row, read_row

    with errors_told(as_json):
        told = explain_row(
            read_row(row),
            ddl=ddl,
            text=read_text(file) if file is not None else "",
            subscription=subscription,
            data=data,
            table=table,
        )
    if as_json:
        print_json([explanation.to_dict() for explanation in told])
    else:
        for explanation in told:
            stdout().print(str(explanation), markup=False)


@app.command()
def match(
    subscriptions: Annotated[
        Path, typer.Option(help="Subscriptions: .sql, .jsonl, .csv or .parquet.", exists=True, dir_okay=False)
    ],
    events: Events,
    schema: Schema = None,
    relation: Relation = None,
    output: Annotated[
        Path | None, typer.Option(help="Write matches to a .jsonl, .csv or .parquet file; - for none.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Print the first matches, this many.", min=0)] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say why they match (3 of them).")] = False,
    as_json: Json = False,
) -> None:
    """Match the events of a file against the subscriptions of a file.

    \b
      tocsin match --subscriptions alerts.sql --events hits.parquet
      tocsin match --subscriptions alerts.csv --events hits.jsonl --output matches.parquet
      tocsin match --subscriptions alerts.sql --events hits.csv --limit 5 --explain

    Subscriptions are statements (.sql: CREATE STREAM and SELECT, separated by semicolons), or rows with
    a column `sql`, and perhaps `id` and `subscriber`, or rows with `id` and `predicates`. Where no
    stream is declared, in the file or by --schema, events may have any attributes.

    Matches are written as rows (event, subscription); events are numbered from 0, as they stand in
    the file. Bad events are counted by reason and the rest goes on; the exit code is then 1.
    """
    from tocsin.commands.match import match_files

    with errors_told(as_json):
        matched = match_files(
            subscriptions,
            events,
            schema=schema,
            relation=relation,
            output=None if output == Path("-") else output,
            limit=limit,
            explain=explain,
        )
    _tell(matched, as_json)


@app.command()
def backtest(
    events: Events,
    subscription: Annotated[str | None, typer.Option(help="A SELECT.")] = None,
    subscriptions: Annotated[
        Path | None, typer.Option(help="Or a file of them, as for match.", exists=True, dir_okay=False)
    ] = None,
    schema: Schema = None,
    relation: Relation = None,
    time: Annotated[
        str | None, typer.Option(help="A TIMESTAMP or DATE column. Default: the only one, or event numbers.")
    ] = None,
    bins: Annotated[int, typer.Option(help="Bars in the histogram, at most.", min=1, max=200)] = 20,
    as_json: Json = False,
) -> None:
    """Say how often a subscription would have fired on past events, and when.

    \b
      tocsin backtest --subscription 'SELECT * FROM hits WHERE ms > 900' --events hits.parquet
      tocsin backtest --subscriptions alerts.sql --events hits.csv --time at --bins 12

    The histogram has bins of a round width (an hour, a day, a month) in UTC. An event fires once if it
    matches; for a table, if it changes the answer. Quiet gaps count from the first event and to the last.
    """
    from tocsin.commands.backtest import backtest as run_backtest

    with errors_told(as_json):
        asked = subscription if subscription is not None else subscriptions
        if asked is None or (subscription is not None and subscriptions is not None):
            raise UsageError("give --subscription or --subscriptions, one of the two")
        tested = run_backtest(asked, events, schema=schema, relation=relation, time=time, bins=bins)
    _tell(tested, as_json)


@app.command()
def run(
    config: Annotated[Path | None, typer.Argument(help="The pipeline, in TOML.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a commented example.")] = False,
    log: Annotated[
        str | None, typer.Option(help="json: a line for each batch, on stderr or in --log-file.")
    ] = None,
    log_file: Annotated[Path | None, typer.Option(help="Append these lines to a file.")] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Metrics for Prometheus on this port, or host:port.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a pipeline on Spark: changes from files or Kafka, deltas of every subscription to the sinks.

    \b
      tocsin run --example > pipeline.toml
      tocsin run pipeline.toml
      tocsin run pipeline.toml --log json --metrics 9090

    It goes on from its checkpoint when started again; Ctrl-C stops it. Changes that were refused are
    dead letters: the summary says how many and where they are, and the exit code stays 0.
    """
    from tocsin.commands.config import EXAMPLE, load_config

    if example:
        typer.echo(EXAMPLE, nl=False)
        return
    with errors_told(as_json):
        if config is None:
            raise UsageError(
                "no pipeline is given", hint="tocsin run pipeline.toml; or see: tocsin run --example"
            )
        pipeline = load_config(config)
        from tocsin.commands.run import run_pipeline, watched_by

        console = stderr().print if as_json else typer.echo
        ran = run_pipeline(pipeline, console, watched_by(log, log_file, metrics))
    if as_json:
        print_json(ran.to_dict())
    else:
        stdout().print(str(ran), markup=False)


@app.command()
def demo(
    context: typer.Context,
    days: Annotated[int, typer.Option(help="Days to replay, from 8 March 2013.", min=1, max=30)] = 2,
    subscriptions: Annotated[int, typer.Option(help="How many subscriptions to draw.", min=9)] = 2000,
    batches: Annotated[
        int | None, typer.Option(help="In how many micro-batches; 20, or 10 if days are many.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the subscriptions and of what is checked.")] = 0,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Where to keep changes, state and deltas.", file_okay=False)
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with a run that was stopped or killed.")] = False,
    as_json: Json = False,
) -> None:
    """Replay real flights and weather through the Spark pipeline, and check the answers.

    \b
      tocsin demo
      tocsin demo --days 1 --subscriptions 300
      tocsin demo --days 30 --subscriptions 100000     a month, in less than five minutes
      tocsin demo --resume              after Ctrl-C, kill -9 or a power cut

    Two days around a snow storm in New York become a stream of changes; subscriptions of all shapes
    watch them. At the end, contents kept from the deltas are compared with the reference, and a checksum
    over all contents is printed: a resumed run ends with that of an undisturbed one.
    """
    from tocsin.lab.demo.script import Script, default_folder, usual_batches
    from tocsin.lab.demo.show import run_demo

    with errors_told(as_json):
        script = Script(days, subscriptions, seed, batches or usual_batches(days))
        given = {name: value for name, value in asdict(script).items() if _is_given(context, name)}
        summary = run_demo(folder or default_folder(), script, resume=resume, given=given)
    if as_json:
        print_json(summary.to_dict())
    else:
        summary.show(stdout())
    if not summary.ok:
        raise typer.Exit(PROBLEM)


@app.command()
def chaos(
    runs: Annotated[int, typer.Option(help="How many runs.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Of changes, subscriptions and kills.")] = 0,
    place: Annotated[str, typer.Option(help="local, cluster, or both in turn.")] = "both",
    kills: Annotated[int, typer.Option(help="Kills in a run.", min=0)] = 3,
    files: Annotated[int, typer.Option(help="Files of changes in a run.", min=3)] = 10,
    updates: Annotated[
        int | None,
        typer.Option(help="Changes of the subscriptions in a run. Default: half as many as files.", min=0),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Where runs are kept if they went wrong.", file_okay=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Kill processes of running pipelines at random, and count what was lost, doubled or wrong.

    \b
      tocsin chaos
      tocsin chaos --runs 30 --json
      tocsin chaos --place local --seed 7 --runs 1
      tocsin chaos --runs 1 --kills 0 --files 101 --updates 100     every delta is of its batch's version

    A driver, a worker or a Python process receives SIGKILL while changes come in and subscriptions come
    and go; what died is started again. Every delta is compared with those of an engine that nobody disturbed.
    """
    from tocsin.lab.chaos.command import run_chaos

    with errors_told(as_json):
        survived = run_chaos(
            runs, seed, place=place, kills=kills, files=files, updates=updates, folder=folder,
            say=stderr().print,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(survived.to_dict()))
    else:
        _tell(survived, as_json=False)
    if not survived.ok:
        raise typer.Exit(PROBLEM)


bench_app = typer.Typer(
    help="""Measure. Answers are compared with the reference before a time is printed.

\b
  tocsin bench                                   every shape, on the embedded engine
  tocsin bench engine --shape join --shape topk --subscriptions 5000
  tocsin bench match --workload dense --n 100000 --index scan
  tocsin bench join --kind band --groups 60
  tocsin bench rank --kind topk --k 10 --subscriptions 1000000

Without the name of an experiment, `engine` is run as it stands.""",
    rich_markup_mode=None,
)
app.add_typer(bench_app, name="bench")


@bench_app.callback(invoke_without_command=True)
def _bench(context: typer.Context, as_json: Json = False) -> None:
    context.obj = as_json
    if context.invoked_subcommand is None:
        bench_engine(context, as_json=as_json)


bench_app.command("match")(bench_match)
bench_app.command("join")(bench_join)
bench_app.command("rank")(bench_rank)
bench_app.command("spark")(bench_spark)


@bench_app.command("engine")
def bench_engine(
    context: typer.Context,
    shape: Annotated[list[str] | None, typer.Option(help="A shape; may be repeated. Default: all.")] = None,
    subscriptions: Annotated[int, typer.Option(help="Subscriptions of each shape.", min=1)] = 500,
    changes: Annotated[int, typer.Option(help="Changes to apply.", min=1)] = 1000,
    batch: Annotated[int, typer.Option(help="Changes in a batch.", min=1)] = 250,
    repeat: Annotated[int, typer.Option(help="Times to measure; the best counts.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Of subscriptions and changes.")] = 0,
    as_json: Json = False,
) -> None:
    """Changes per second of the embedded engine, shape by shape, on generated stocks."""
    from tocsin.lab.bench.engine import Setting, measure_engine, show_results
    from tocsin.lab.bench.workloads import SHAPES

    as_json = as_json or bool(context.obj)  # `bench --json engine` is as good as `bench engine --json`
    with errors_told(as_json):
        for name in shape or []:
            if name not in SHAPES:
                raise UsageError(f"there is no shape {name!r}", hint=f"one of {', '.join(SHAPES)}")
        results = measure_engine(shape or [], Setting(subscriptions, changes, batch, repeat, seed))
    if as_json:
        print_json([result.to_dict() for result in results])
    else:
        show_results(results, stdout())
    if not all(result.ok for result in results):
        raise typer.Exit(PROBLEM)


def _tell(result: Any, as_json: bool) -> None:
    """Print what came of a command that has `ok`, `lines` and `to_dict`."""
    if as_json:
        print_json(result.to_dict())
    else:
        for line in result.lines():
            stdout().print(line, markup=False)
    if not result.ok:
        raise typer.Exit(PROBLEM)


def _is_given(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"
