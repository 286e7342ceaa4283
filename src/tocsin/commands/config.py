"""A pipeline in TOML: what is read, what is asked, where the answers go.

Every key is known here; a wrong one is refused with its place and the nearest right one. Paths
are relative to the file.

>>> read_config("[source]\\nformat = 'json'\\npath = 'in'\\n[sink]\\nfromat = 'json'", Path("."))
Traceback (most recent call last):
...
tocsin.commands.config.ConfigError: unknown key 'fromat' in [sink]
hint: did you mean 'format'?
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tocsin.commands.numbering import HIGHEST, LOWEST, number
from tocsin.commands.output import read_text
from tocsin.commands.validate import is_definition
from tocsin.errors import UsageError
from tocsin.language.statements import split_statements

__all__ = ["EXAMPLE", "Config", "ConfigError", "Sink", "Source", "load_config", "read_config"]

EXAMPLE = """\
# A pipeline: changes in, deltas out. Run it with: tocsin run pipeline.toml
# Paths are relative to this file.

name = "stocks"
state = "out/state"           # tables, subscriptions, checkpoint: keep it, and a restart goes on
trigger = "available-now"     # all there is, then stop; or an interval, as "5 seconds"
# batches = 10                # stop after so many micro-batches

# Definitions and subscriptions, here or in files (definitions and SELECTs separated by semicolons).
ddl = \"\"\"
CREATE TABLE stocks (symbol STRING, per DOUBLE, risk DOUBLE, PRIMARY KEY (symbol));
CREATE STREAM listings
\"\"\"
# sql_file = "alerts.sql"     # edit it freely: a text keeps its id, a new one gets a new id;
#                             # or give an id with a comment before the SELECT: -- id: 7

[[subscription]]
id = 1
subscriber = "ann"
sql = "SELECT * FROM stocks WHERE per BETWEEN 45 AND 70"

[[subscription]]
id = 2
sql = "SELECT symbol, per FROM stocks ORDER BY per DESC LIMIT 10"

# Changes: columns table, op (insert, update, upsert, delete), row (JSON) and seq, which only goes up.
[source]
format = "json"               # json | parquet | rate
path = "changes"              # a folder; files are taken in order of their time
files_per_batch = 1
# For a test without files: numbers 0, 1, 2, ... as `value`, made into rows by a Spark expression.
# format = "rate"
# rows_per_batch = 100
# table = "stocks"
# row = "named_struct('symbol', string(value), 'per', value % 100)"

[sink]
format = "parquet"            # parquet | json | console
path = "out/deltas"           # one folder per batch

# [dead_letters]              # changes that were refused, and why; by default in the state
# format = "json"
# path = "out/refused"
"""


class ConfigError(UsageError):
    """A config that says something wrong, or not enough."""


@dataclass(frozen=True)
class Source:
    """Where changes come from."""

    format: str
    path: Path | None = None
    files_per_batch: int = 1
    rows_per_batch: int = 100
    table: str = ""
    row: str = ""


@dataclass(frozen=True)
class Sink:
    """Where deltas or dead letters go."""

    format: str
    path: Path | None = None

    def __str__(self) -> str:
        return self.format if self.path is None else f"{self.format}:{self.path}"


@dataclass(frozen=True)
class Config:
    """One pipeline."""

    ddl: str
    subscriptions: tuple[tuple[int, str, str | None], ...]  # id, sql, subscriber
    source: Source
    sink: Sink
    state: Path
    checkpoint: Path | None = None
    dead_letters: Sink | None = None
    trigger: Mapping[str, Any] = field(default_factory=lambda: {"availableNow": True})
    batches: int | None = None
    name: str | None = None


_TOP = ("name", "state", "checkpoint", "trigger", "batches", "ddl", "ddl_file", "sql_file", "subscription")
_SOURCE = {
    "json": ("path", "files_per_batch"),
    "parquet": ("path", "files_per_batch"),
    "rate": ("rows_per_batch", "table", "row"),
}
_SINK = {"parquet": ("path",), "json": ("path",), "console": ()}
_SUBSCRIPTION = ("id", "sql", "subscriber")


def load_config(path: Path) -> Config:
    """The pipeline a file describes."""
    return read_config(_file(path, ""), path.parent)


def read_config(text: str, folder: Path) -> Config:
    """The pipeline a text describes; its paths are relative to `folder`."""
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}", hint="see: tocsin run --example") from None
    _known(said, (*_TOP, "source", "sink", "dead_letters"), "")
    sink = _sink(_section(said, "sink"), "sink", folder)
    trigger = _trigger(_text(said, "trigger", "", "available-now"))
    source = _source(_section(said, "source"), folder)
    state = folder / _text(said, "state", "")
    ddl, subscriptions = _statements(said, folder, state)
    batches = _number(said, "batches", "", None)
    if source.format == "rate" and batches is None and "availableNow" in trigger:
        raise ConfigError("source 'rate' never ends", hint='set batches = 10, or trigger = "1 second"')
    if source.format == "rate":  # it cannot say what is available now
        trigger = {"processingTime": "0 seconds"} if "availableNow" in trigger else trigger
    return Config(
        ddl=ddl,
        subscriptions=subscriptions,
        source=source,
        sink=sink,
        state=state,
        checkpoint=folder / _text(said, "checkpoint", "") if "checkpoint" in said else None,
        dead_letters=_sink(_section(said, "dead_letters"), "dead_letters", folder)
        if "dead_letters" in said
        else None,
        trigger=trigger,
        batches=batches,
        name=_text(said, "name", "") if "name" in said else None,
    )


# -- parts -----------------------------------------------------------------------------------------


def _statements(
    said: Mapping[str, Any], folder: Path, state: Path
) -> tuple[str, tuple[tuple[int, str, str | None], ...]]:
    """Definitions, and subscriptions: first those of files, numbered, then those written here."""
    texts = [_text(said, "ddl", "", "")]
    texts += [
        _file(folder / _text(said, key, ""), f"{key}: ") for key in ("ddl_file", "sql_file") if key in said
    ]
    statements = [s for text in texts for s in split_statements(text)]
    written = _written(said.get("subscription", []))
    queries = [s for s in statements if not is_definition(s.text)]
    try:
        found = number(queries, {id for id, _, _ in written}, state)
    except UsageError as error:
        raise ConfigError(error.fact, hint=error.hint) from None
    ddl = ";\n".join(s.text for s in statements if is_definition(s.text))
    if not ddl:
        raise ConfigError("there are no definitions", hint="give ddl = 'CREATE TABLE ...', or sql_file")
    return ddl, (*((id, text, None) for id, text in found), *written)


def _written(entries: Any) -> list[tuple[int, str, str | None]]:
    """The subscriptions of the config itself."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError("subscription is not a list of sections", hint="write [[subscription]]")
    written: list[tuple[int, str, str | None]] = []
    for place, entry in enumerate(entries, start=1):
        where = f"subscription {place}"
        _known(entry, _SUBSCRIPTION, where)
        id = _number(entry, "id", where)
        if not LOWEST <= id <= HIGHEST:
            raise ConfigError(f"id in [{where}] is {id}", hint="ids go from -2^62 to 2^63 - 1")
        if any(id == other for other, _, _ in written):
            raise ConfigError(f"id in [{where}] is {id}, as before", hint="give each its own id")
        subscriber = _text(entry, "subscriber", where) if "subscriber" in entry else None
        written.append((id, _text(entry, "sql", where), subscriber))
    return written


def _file(path: Path, what: str) -> str:
    try:
        return read_text(path)
    except UsageError as error:
        raise ConfigError(f"{what}{error.fact}", hint=error.hint or "see: tocsin run --example") from None


def _source(said: Mapping[str, Any], folder: Path) -> Source:
    form = _format(said, "source", _SOURCE)
    if form == "rate":
        rows = _number(said, "rows_per_batch", "source", 100)
        return Source(form, None, 1, rows, _text(said, "table", "source"), _text(said, "row", "source"))
    return Source(form, folder / _text(said, "path", "source"), _number(said, "files_per_batch", "source", 1))


def _sink(said: Mapping[str, Any], where: str, folder: Path) -> Sink:
    form = _format(said, where, _SINK)
    return Sink(form) if form == "console" else Sink(form, folder / _text(said, "path", where))


def _trigger(text: str) -> dict[str, Any]:
    if text == "available-now":
        return {"availableNow": True}
    if re.fullmatch(r"\d+ (millisecond|second|minute|hour)s?", text):
        return {"processingTime": text}
    raise ConfigError(f"trigger is {text!r}", hint='"available-now", or an interval such as "5 seconds"')


def _section(said: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = said.get(name)
    if isinstance(section, list):
        raise ConfigError(f"there are several sections [{name}]", hint=f"write one, as [{name}]")
    if not isinstance(section, dict):
        raise ConfigError(f"there is no section [{name}]", hint="see: tocsin run --example")
    return section


def _format(said: Mapping[str, Any], where: str, formats: Mapping[str, tuple[str, ...]]) -> str:
    everything = {"format", *(key for keys in formats.values() for key in keys)}
    _known(said, everything, where)
    form = _text(said, "format", where)
    if form not in formats:
        raise ConfigError(f"there is no format {form!r} for [{where}]", hint=_nearest(form, formats))
    for key in said:
        if key != "format" and key not in formats[form]:
            allowed = ", ".join(formats[form]) or "nothing else"
            raise ConfigError(f"format {form!r} in [{where}] takes no {key!r}", hint=f"it takes {allowed}")
    return form


def _known(said: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    for key in said:
        if key not in keys:
            place = f" in [{where}]" if where else ""
            raise ConfigError(f"unknown key {key!r}{place}", hint=_nearest(key, keys))


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else f"one of {', '.join(sorted(known))}"


_MISSING = object()
_LARGEST = 2**31 - 1  # what Spark's options take


def _text(said: Mapping[str, Any], key: str, where: str, default: Any = _MISSING) -> str:
    value = _value(said, key, where, default)
    if not isinstance(value, str):
        raise ConfigError(f"{key}{_in(where)} is a text, not {value!r}", hint=f'write {key} = "..."')
    return value


def _number(said: Mapping[str, Any], key: str, where: str, default: Any = _MISSING) -> Any:
    value = _value(said, key, where, default)
    if value is default:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or (value < 1 and key != "id"):
        above = "" if key == "id" else " above 0"
        raise ConfigError(f"{key}{_in(where)} is a whole number{above}, not {value!r}")
    if key != "id" and value > _LARGEST:
        raise ConfigError(f"{key}{_in(where)} is {value}", hint=f"at most {_LARGEST}")
    return value


def _value(said: Mapping[str, Any], key: str, where: str, default: Any) -> Any:
    if key not in said and default is _MISSING:
        raise ConfigError(f"{key}{_in(where)} is missing", hint="see: tocsin run --example")
    return said.get(key, default)


def _in(where: str) -> str:
    return f" in [{where}]" if where else ""
