"""The command `tocsin`: reads arguments, calls a command, prints its result.

Each command imports what it needs when it runs, so `tocsin --version` loads neither Spark nor the laboratory
(`tocsin.lab`: the demo, chaos runs, benchmarks).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tocsin.commands.output import PROBLEM, print_json, read_text, report_errors, stderr, stdout
from tocsin.errors import UsageError

__all__ = ["app", "main"]


class _LazyBench(TyperGroup):
    """The commands below and `bench`, whose options live in the laboratory and are imported on first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), "bench"]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name != "bench":
            return super().get_command(ctx, cmd_name)
        from tocsin.lab.bench.command import app as bench

        command = typer.main.get_command(bench)
        command.name = "bench"
        return command


app = typer.Typer(
    name="tocsin",
    cls=_LazyBench,
    help="""Standing SQL queries over streams and tables: each subscriber receives the changes of its answer.

\b
  tocsin demo                        replay two stormy days of real flights, on Spark
  tocsin validate alerts.sql         check subscriptions and print their shapes
  tocsin explain --file alerts.sql --row '{"symbol": "GOOG", "per": 52.1}'
  tocsin match --subscriptions alerts.sql --events hits.parquet
  tocsin backtest --subscription 'SELECT * FROM hits WHERE ms > 900' --events hits.csv
  tocsin run --example               print a pipeline to start from
  tocsin subscriptions list out/state   list or change a pipeline's subscriptions, also while it runs
  tocsin bench                       measure the speed on this machine

Exit codes: 0 success, 1 a problem was found, 2 the command was used wrongly.""",
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
    str | None, typer.Option(help="Stream or table of the events. Default: the file's name, or the only one.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout instead of text.")]


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

    Each statement is checked against the definitions before it; the command prints its shape, or its error
    with line and column. A comment `-- error: ...` or `-- shape: ...` before a statement records the
    expected outcome; a statement with that outcome is not a problem.
    """
    from tocsin.commands.validate import validate as validate_text

    with report_errors(as_json):
        reports = {file: validate_text(read_text(file)) for file in files}
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
        str | None, typer.Option(help="A SELECT, or its number in the file. Default: all of the file.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Rows: a file named after its table, a folder of them, or a saved engine.", exists=True
        ),
    ] = None,
    table: Annotated[str | None, typer.Option(help="Table of the row, if several have its columns.")] = None,
    as_json: Json = False,
) -> None:
    """Explain why a row is, or is not, in an answer.

    \b
      tocsin explain --ddl 'CREATE STREAM hits' --row '{"n": 3}' \\
                     --subscription 'SELECT * FROM hits WHERE n > 5'
      tocsin explain --file alerts.sql --subscription 2 --data tables/ --row '{"symbol": "GOOG", "per": 52.1}'

    The row need not be in the data: for the explanation it is added to its table, or replaces the row with
    the same key.
    """
    from tocsin.commands.explain import explain_row, read_row

    with report_errors(as_json):
        explanations = explain_row(
            read_row(row),
            ddl=ddl,
            text=read_text(file) if file is not None else "",
            subscription=subscription,
            data=data,
            table=table,
        )
    if as_json:
        print_json([explanation.to_dict() for explanation in explanations])
    else:
        for explanation in explanations:
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
    limit: Annotated[int | None, typer.Option(help="Print this many matches.", min=0)] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Explain the printed matches (3 without --limit).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Match the events of a file against the subscriptions of a file.

    \b
      tocsin match --subscriptions alerts.sql --events hits.parquet
      tocsin match --subscriptions alerts.csv --events hits.jsonl --output matches.parquet
      tocsin match --subscriptions alerts.sql --events hits.csv --limit 5 --explain

    A subscription file holds statements (.sql: CREATE STREAM and SELECT, separated by semicolons), or rows
    with a column `sql` and optionally `id` and `subscriber`, or rows with `id` and `predicates`. If neither
    the file nor --schema declares a stream, events may have any attributes.

    Matches are written as rows (event, subscription); events are numbered from 0 in file order. Bad events
    are skipped and counted by reason; the exit code is then 1.
    """
    from tocsin.commands.match import match_files

    with report_errors(as_json):
        matched = match_files(
            subscriptions,
            events,
            schema=schema,
            relation=relation,
            output=None if output == Path("-") else output,
            limit=limit,
            explain=explain,
        )
    _print_result(matched, as_json)


@app.command()
def backtest(
    events: Events,
    subscription: Annotated[str | None, typer.Option(help="A SELECT.")] = None,
    subscriptions: Annotated[
        Path | None, typer.Option(help="Or a file of them, as for `match`.", exists=True, dir_okay=False)
    ] = None,
    schema: Schema = None,
    relation: Relation = None,
    time: Annotated[
        str | None, typer.Option(help="A TIMESTAMP or DATE column. Default: the only one, or event numbers.")
    ] = None,
    bins: Annotated[int, typer.Option(help="At most so many bars in the histogram.", min=1, max=200)] = 20,
    as_json: Json = False,
) -> None:
    """Count how often, and when, a subscription would have fired on past events.

    \b
      tocsin backtest --subscription 'SELECT * FROM hits WHERE ms > 900' --events hits.parquet
      tocsin backtest --subscriptions alerts.sql --events hits.csv --time at --bins 12

    The histogram has bins of a round width (an hour, a day, a month) in UTC. An event of a stream fires a
    subscription if it matches, a change of a table if it changes the answer; each counts once. The longest
    quiet gap is searched from the first event of the file to the last.
    """
    from tocsin.commands.backtest import backtest as run_backtest

    with report_errors(as_json):
        source = subscription if subscription is not None else subscriptions
        if source is None or (subscription is not None and subscriptions is not None):
            raise UsageError("give --subscription or --subscriptions, one of the two")
        tested = run_backtest(source, events, schema=schema, relation=relation, time=time, bins=bins)
    _print_result(tested, as_json)


@app.command()
def run(
    config: Annotated[Path | None, typer.Argument(help="The pipeline, in TOML.")] = None,
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
def demo(
    context: typer.Context,
    days: Annotated[int, typer.Option(help="Days to replay, from 8 March 2013.", min=1, max=30)] = 2,
    subscriptions: Annotated[int, typer.Option(help="How many subscriptions to draw.", min=9)] = 2000,
    batches: Annotated[
        int | None, typer.Option(help="How many micro-batches. Default: 6; 10 above 2 days.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the subscriptions and of the checked sample.")] = 0,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Where to keep changes, state and deltas.", file_okay=False)
    ] = None,
    resume: Annotated[bool, typer.Option(help="Resume a run that was stopped or killed.")] = False,
    as_json: Json = False,
) -> None:
    """Replay real flights and weather through the Spark pipeline, and check the answers.

    \b
      tocsin demo
      tocsin demo --days 1 --subscriptions 300
      tocsin demo --days 30 --subscriptions 100000     a month, in less than five minutes
      tocsin demo --resume              after Ctrl-C, kill -9 or a power cut

    The demo replays two days around a snow storm in New York as a stream of changes to subscriptions of all
    shapes. At the end it compares the contents accumulated from the deltas with the reference evaluator and
    prints a checksum of all contents; a resumed run ends with the checksum of an uninterrupted one.
    """
    from tocsin.lab.demo.run import run_demo
    from tocsin.lab.demo.script import Script, default_batches, default_folder

    with report_errors(as_json):
        script = Script(days, subscriptions, seed, batches or default_batches(days))
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
    seed: Annotated[int, typer.Option(help="Seed of changes, subscriptions and kills.")] = 0,
    place: Annotated[str, typer.Option(help="local, cluster, or both in turn.")] = "both",
    kills: Annotated[int, typer.Option(help="Kills per run.", min=0)] = 3,
    files: Annotated[int, typer.Option(help="Files of changes per run.", min=3)] = 10,
    updates: Annotated[
        int | None,
        typer.Option(help="Changes of the subscriptions per run. Default: half as many as files.", min=0),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Where to keep failed runs.", file_okay=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Kill processes of running pipelines at random, and count lost, doubled and wrong deltas.

    \b
      tocsin chaos
      tocsin chaos --runs 30 --json
      tocsin chaos --place local --seed 7 --runs 1
      tocsin chaos --runs 1 --kills 0 --files 101 --updates 100     check that batches use one version each

    A driver, a worker or a Python process receives SIGKILL while changes arrive and subscriptions are added
    and removed; then it is restarted. Every delta is compared with those of an undisturbed engine.
    """
    from tocsin.lab.chaos.command import run_chaos

    with report_errors(as_json):
        report = run_chaos(
            runs, seed, place=place, kills=kills, files=files, updates=updates, folder=folder,
            say=stderr().print,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(report.to_dict()))
    else:
        _print_result(report, as_json=False)
    if not report.ok:
        raise typer.Exit(PROBLEM)


# -- the subscriptions of a pipeline ------------------------------------------------------------------


subscriptions_app = typer.Typer(
    help="""List or change the subscriptions of a pipeline, also while it runs.

\b
  tocsin subscriptions list out/state
  tocsin subscriptions add out/state alerts.sql
  tocsin subscriptions add out/state --replace changed.jsonl
  tocsin subscriptions remove out/state 7 8
  tocsin subscriptions compact out/state

Each change makes a new version, completely or not at all. A running pipeline uses it from its next batch on:
a new subscription receives its content, a replaced one also the removal of its old content.""",
    no_args_is_help=True,
    rich_markup_mode=None,
)

State = Annotated[Path, typer.Argument(help="The `state` folder of the pipeline.", exists=True)]


@subscriptions_app.command("list")
def list_subscriptions(
    state: State,
    limit: Annotated[int, typer.Option(help="List at most so many, in order of id; 0: all.", min=0)] = 100,
    as_json: Json = False,
) -> None:
    """List the subscriptions of the newest version."""
    from tocsin.commands.subscriptions import list_newest

    with report_errors(as_json):
        version, found = list_newest(state, limit or None)
    if as_json:
        rows = [one._asdict() for one in found]
        print_json({"version": version.number, "count": len(version.subscriptions), "subscriptions": rows})
        return
    for one in found:
        who = f" ({one.subscriber})" if one.subscriber else ""
        stdout().print(f"{one.id}  {one.shape}{who}  {one.sql}", markup=False, soft_wrap=True)
    more = len(version.subscriptions) - len(found)
    rest = f", {more:,} more not shown (--limit 0)" if more else ""
    stderr().print(
        f"version {version.number}: {len(version.subscriptions):,} subscriptions{rest}", markup=False
    )


@subscriptions_app.command("add")
def add_subscriptions(
    state: State,
    file: Annotated[Path, typer.Argument(help=".sql, .jsonl, .csv or .parquet", exists=True, dir_okay=False)],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the subscriptions that have these ids.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Add the subscriptions of a file.

    \b
    .sql              SELECTs; a comment `-- id: 7` sets an id, the others get new ids
    .jsonl, .csv,     columns id (required), subscriber, and sql; or template and values;
    .parquet          or relation and predicates
    """
    from tocsin.commands.subscriptions import add as change

    with report_errors(as_json):
        version, count = change(state, file, replace=replace)
    if as_json:
        print_json({"version": version, "changed": count})
    else:
        stdout().print(f"version {version}: {count:,} subscriptions {'replaced' if replace else 'added'}")


@subscriptions_app.command("remove")
def remove_subscriptions(
    state: State, ids: Annotated[list[int], typer.Argument(help="Their ids.")], as_json: Json = False
) -> None:
    """Remove subscriptions; they receive no more deltas."""
    from tocsin.commands.subscriptions import remove as change

    with report_errors(as_json):
        version, count = change(state, ids)
    if as_json:
        print_json({"version": version, "changed": count})
    else:
        stdout().print(f"version {version}: {count:,} subscriptions removed")


@subscriptions_app.command("compact")
def compact_subscriptions(state: State, as_json: Json = False) -> None:
    """Rewrite the newest version as few files, and remove the versions that no batch can need any more."""
    from tocsin.commands.subscriptions import compact as change

    with report_errors(as_json):
        version, freed = change(state)
    if as_json:
        print_json({"version": version, "freed_bytes": freed})
    else:
        stdout().print(f"version {version}: {freed:,} bytes freed")


app.add_typer(subscriptions_app, name="subscriptions")


def _print_result(result: Any, as_json: bool) -> None:
    """Print a result that has `ok`, `lines` and `to_dict`, and exit with 1 unless it is ok."""
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
