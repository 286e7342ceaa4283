"""Output of commands: text or one JSON value on stdout, errors, and the exit code.

0   success
1   a problem was found: a bad statement, a wrong answer, a failed pipeline
2   the command was used wrongly: a bad option, a bad config, a missing file
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tocsin.errors import TocsinError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "PROBLEM",
    "USAGE",
    "error_dict",
    "print_json",
    "read_text",
    "report_errors",
    "stderr",
    "stdout",
]

PROBLEM, USAGE = 1, 2


def read_text(file: Path) -> str:
    """The text of a file in UTF-8, without a byte order mark; `-` is stdin."""
    try:
        if file == Path("-"):
            return sys.stdin.buffer.read().decode("utf-8-sig")
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} cannot be read: byte {error.start} is not UTF-8", hint="save it as UTF-8"
        ) from None


def stdout() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print one JSON value on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def error_dict(error: TocsinError) -> dict[str, Any]:
    """An error as JSON: its fact, position and hint."""
    place = error.position
    where = {} if place is None else {"line": place.line, "column": place.column}
    return {"message": str(error), "fact": error.fact, **where, "hint": error.hint}


@contextmanager
def report_errors(as_json: bool) -> Iterator[None]:
    """On an error, print it and exit with its code, without a traceback."""
    try:
        yield
    except TocsinError as error:
        if as_json:
            print_json({"ok": False, "error": error_dict(error)})
        else:
            stderr().print(f"error: {error}", markup=False)
        raise typer.Exit(USAGE if isinstance(error, UsageError) else PROBLEM) from None
    except ImportError as error:  # an optional dependency is missing; the message says how to install it
        if as_json:
            print_json({"ok": False, "error": {"message": str(error), "fact": str(error), "hint": None}})
        else:
            stderr().print(f"error: {error}", markup=False)
        raise typer.Exit(USAGE) from None


def _plain(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"no JSON for {type(value).__name__}")
