"""`tocsin subscriptions`: list, add, remove, compact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tocsin.commands.output import errors_told, print_json, stderr, stdout

__all__ = ["app"]

app = typer.Typer(
    help="""The subscriptions of a pipeline, looked at and changed; also while it runs.

\b
  tocsin subscriptions list out/state
  tocsin subscriptions add out/state alerts.sql
  tocsin subscriptions add out/state --replace changed.jsonl
  tocsin subscriptions remove out/state 7 8
  tocsin subscriptions compact out/state

A change is a new version, whole or not at all. A running pipeline takes it up with its next batch: what is
new receives its content, what is replaced gives back what it held.""",
    no_args_is_help=True,
    rich_markup_mode=None,
)

State = Annotated[Path, typer.Argument(help="The folder that is `state` of the pipeline.", exists=True)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout instead of text.")]


@app.command("list")
def list_(
    state: State,
    limit: Annotated[int, typer.Option(help="At most so many, in order of id; 0 for all.", min=0)] = 100,
    as_json: Json = False,
) -> None:
    """Say which subscriptions there are."""
    from tocsin.commands.live import listed

    with errors_told(as_json):
        version, found = listed(state, limit or None)
    if as_json:
        rows = [one._asdict() for one in found]
        print_json({"version": version.number, "count": len(version.chosen), "subscriptions": rows})
        return
    for one in found:
        who = f" ({one.subscriber})" if one.subscriber else ""
        stdout().print(f"{one.id}  {one.shape}{who}  {one.sql}", markup=False, soft_wrap=True)
    more = len(version.chosen) - len(found)
    rest = f", {more:,} more not shown (--limit 0)" if more else ""
    stderr().print(f"version {version.number}: {len(version.chosen):,} subscriptions{rest}", markup=False)


@app.command()
def add(
    state: State,
    file: Annotated[Path, typer.Argument(help=".sql, .jsonl, .csv or .parquet", exists=True, dir_okay=False)],
    replace: Annotated[
        bool, typer.Option("--replace", help="Ids that are there already are given the new meaning.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Add the subscriptions of a file.

    \b
    .sql              SELECTs; a comment `-- id: 7` gives an id, others get new ones
    .jsonl, .csv,     columns id (needed), subscriber, and sql; or template and values;
    .parquet          or relation and predicates
    """
    from tocsin.commands.live import add as change

    with errors_told(as_json):
        version, count = change(state, file, replace=replace)
    if as_json:
        print_json({"version": version, "changed": count})
    else:
        stdout().print(f"version {version}: {count:,} subscriptions {'replaced' if replace else 'added'}")


@app.command()
def remove(
    state: State, ids: Annotated[list[int], typer.Argument(help="Their ids.")], as_json: Json = False
) -> None:
    """Remove subscriptions; nothing is sent to them any more."""
    from tocsin.commands.live import remove as change

    with errors_told(as_json):
        version, count = change(state, ids)
    if as_json:
        print_json({"version": version, "changed": count})
    else:
        stdout().print(f"version {version}: {count:,} subscriptions removed")


@app.command()
def compact(state: State, as_json: Json = False) -> None:
    """Write the newest version as few files, and remove versions that no batch can ask for any more."""
    from tocsin.commands.live import compact as change

    with errors_told(as_json):
        version, freed = change(state)
    if as_json:
        print_json({"version": version, "freed_bytes": freed})
    else:
        stdout().print(f"version {version}: {freed:,} bytes freed")
