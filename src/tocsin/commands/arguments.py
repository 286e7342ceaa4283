"""Positional arguments of commands: files in order, or by their options.

>>> files_of(["-"], Path("alerts.sql"), None, "")
(PosixPath('alerts.sql'), PosixPath('-'))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from tocsin.errors import UsageError

__all__ = ["check_file", "check_path", "file_and_row", "files_of", "subscription_and_events"]


def files_of(
    given: Sequence[str], subscriptions: Path | None, events: Path | None, example: str
) -> tuple[Path, Path]:
    """The files of subscriptions and events; what no option names is taken from `given`, in this order."""
    rest = list(given)
    if subscriptions is None and rest:
        subscriptions = existing(rest.pop(0))
    if events is None and rest:
        events = existing(rest.pop(0))
    _refuse_more(rest, example)
    if subscriptions is None or events is None:
        raise UsageError(
            f"no {'subscriptions are' if subscriptions is None else 'events are'} given", hint=example
        )
    return subscriptions, events


def subscription_and_events(
    given: Sequence[str], subscription: str | None, subscriptions: Path | None, events: Path | None
) -> tuple[str | Path, Path]:
    """A SELECT or a file of them, and events."""
    example = "tocsin backtest 'SELECT * FROM hits WHERE ms > 900' hits.csv"
    rest = list(given)
    if subscription is not None and subscriptions is not None:
        raise UsageError("give --subscription or --subscriptions, one of the two", hint=example)
    source: str | Path | None = subscription if subscription is not None else subscriptions
    if source is None and rest:
        first = rest.pop(0)
        source = first if first.strip().upper().startswith(("SELECT ", "SELECT\n")) else existing(first)
    if events is None and rest:
        events = existing(rest.pop(0))
    _refuse_more(rest, example)
    if source is None or events is None:
        raise UsageError(f"no {'subscription is' if source is None else 'events are'} given", hint=example)
    return source, events


def file_and_row(given: Sequence[str], file: Path | None, row: str | None) -> tuple[Path | None, str]:
    """A file of statements, if there is one, and a row: what looks like a file is the file."""
    example = """tocsin explain alerts.sql '{"symbol": "GOOG", "per": 52.1}'"""
    rest = list(given)
    if file is None and rest and (len(rest) > 1 or row is not None):
        file = existing(rest.pop(0))
    if row is None and rest:
        row = rest.pop(0)
    _refuse_more(rest, example)
    if row is None:
        raise UsageError("no row is given", hint=example)
    return file, row


def existing(name: str) -> Path:
    """The file with this name, or `-`."""
    path = Path(name)
    if name != "-" and not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise UsageError(f"{name} {what}", hint="name a file, or - for stdin")
    return path


def _refuse_more(rest: Sequence[str], example: str) -> None:
    if rest:
        raise UsageError(f"there is one argument too many: {rest[0]!r}", hint=example)


def check_file(value: Any) -> Any:
    """For an option or argument with files: each exists, or is `-`. (Typer's own check knows no `-`.)"""
    return _check(value, "file", Path.is_file)


def check_path(value: Any) -> Any:
    """The same for files and folders."""
    return _check(value, "path", Path.exists)


def _check(value: Any, what: str, exists: Callable[[Path], bool]) -> Any:
    for path in value if isinstance(value, list | tuple) else [value]:
        if path is not None and str(path) != "-" and not exists(path):
            raise typer.BadParameter(
                f"{what} '{path}' {'is a folder' if path.is_dir() else 'does not exist'}."
            )
    return value
