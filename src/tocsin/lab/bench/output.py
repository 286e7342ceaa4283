"""What the commands of `tocsin bench` share: the option --json, progress, errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from tocsin.commands.output import report_errors

__all__ = ["Count", "Json", "progress", "wants_json"]

Count = int | None
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout instead of text.")]


def wants_json(context: typer.Context, as_json: bool) -> bool:
    """`bench --json engine` means the same as `bench engine --json`."""
    return as_json or bool(context.obj)


@contextmanager
def progress(experiment: str, as_json: bool) -> Iterator[Any]:
    """A function that shows a text as progress; errors end the command."""
    from tocsin.commands.progress import Display

    with report_errors(as_json), Display(f"bench {experiment}") as display:
        yield display.say
