"""The commands `tocsin subscriptions list | add | remove | compact`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tocsin.commands.arguments import check_file
from tocsin.commands.output import print_json, report_errors, stderr, stdout

__all__ = ["Json", "subscriptions_app"]

Json = Annotated[bool, typer.Option("--json", "-j", help="Print one JSON value on stdout instead of text.")]

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
    limit: Annotated[
        int, typer.Option("--limit", "-n", help="List at most so many, in order of id; 0: all.", min=0)
    ] = 100,
    as_json: Json = False,
) -> None:
    """List the subscriptions of the newest version.

    \b
      tocsin subscriptions list out/state -n 20
      tocsin subscriptions list out/state --limit 0 --json
    """
    from tocsin.commands.progress import Display
    from tocsin.commands.subscriptions import list_newest

    with report_errors(as_json), Display("reading the subscriptions"):
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
    file: Annotated[
        Path,
        typer.Argument(help=".sql, .jsonl, .csv or .parquet; - for stdin.", callback=check_file),
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the subscriptions that have these ids.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Add the subscriptions of a file; those that are there already are left alone.

    \b
      tocsin subscriptions add out/state alerts.sql
      echo "SELECT * FROM hits WHERE ms > 900" | tocsin subscriptions add out/state -

    \b
    .sql              SELECTs; a comment `-- id: 7` sets an id, the others get new ids
    .jsonl, .csv,     columns id (required), subscriber, and sql; or template and values;
    .parquet          or relation and predicates
    """
    from tocsin.commands.progress import Display
    from tocsin.commands.subscriptions import add as change

    with report_errors(as_json), Display("checking the subscriptions"):
        done = change(state, file, replace=replace)
    if as_json:
        print_json(done._asdict())
        return
    there = f"{done.unchanged:,} {'was' if done.unchanged == 1 else 'were'} there already"
    what = f"{done.changed:,} subscriptions {'replaced' if replace else 'added'}"
    what += f", {there}" if done.unchanged else ""
    stdout().print(f"version {done.version}: {what if done.changed else f'nothing changed, {there}'}")


@subscriptions_app.command("remove")
def remove_subscriptions(
    state: State, ids: Annotated[list[int], typer.Argument(help="Their ids.")], as_json: Json = False
) -> None:
    """Remove subscriptions; they receive no more deltas.

    \b
      tocsin subscriptions remove out/state 7 8
    """
    from tocsin.commands.progress import Display
    from tocsin.commands.subscriptions import remove as change

    with report_errors(as_json), Display("removing the subscriptions"):
        version, count = change(state, ids)
    if as_json:
        print_json({"version": version, "changed": count})
    else:
        stdout().print(f"version {version}: {count:,} subscriptions removed")


@subscriptions_app.command("compact")
def compact_subscriptions(state: State, as_json: Json = False) -> None:
    """Rewrite the newest version as few files, and remove the versions that no batch can need any more.

    \b
      tocsin subscriptions compact out/state
    """
    from tocsin.commands.progress import Display
    from tocsin.commands.subscriptions import compact as change

    with report_errors(as_json), Display("compacting the subscriptions"):
        version, freed = change(state)
    if as_json:
        print_json({"version": version, "freed_bytes": freed})
    else:
        stdout().print(f"version {version}: {freed:,} bytes freed")
