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

from tocsin.commands.output import UsageError
from tocsin.commands.validate import is_definition
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
# sql_file = "alerts.sql"

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

# [dead_letters]              # rows that were refused, and why; by default in the state
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
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint="see: tocsin run --example"
        ) from None
    return read_config(text, path.parent)


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
    ddl, subscriptions = _statements(said, folder)
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
        state=folder / _text(said, "state", ""),
        checkpoint=folder / said["checkpoint"] if "checkpoint" in said else None,
        dead_letters=_sink(said["dead_letters"], "dead_letters", folder) if "dead_letters" in said else None,
        trigger=trigger,
        batches=batches,
        name=said.get("name"),
    )


# -- parts -----------------------------------------------------------------------------------------


def _statements(said: Mapping[str, Any], folder: Path) -> tuple[str, tuple[tuple[int, str, str | None], ...]]:
    """Definitions, and subscriptions: first those of a file, numbered on, then those written here."""
    texts = [_text(said, "ddl", "", "")]
    for key in ("ddl_file", "sql_file"):
        if key in said:
            path = folder / _text(said, key, "")
            try:
                texts.append(path.read_text(encoding="utf-8"))
            except OSError as error:
                raise ConfigError(f"{key}: {path} cannot be read: {error.strerror}") from None
    statements = [s.text for text in texts for s in split_statements(text)]
    written = []
    for number, entry in enumerate(said.get("subscription", ()), start=1):
        where = f"subscription {number}"
        _known(entry, _SUBSCRIPTION, where)
        written.append((_number(entry, "id", where), _text(entry, "sql", where), entry.get("subscriber")))
    taken = {id for id, _, _ in written}
    free = (n for n in range(1, 2**31) if n not in taken)
    found = [(next(free), text, None) for text in statements if not is_definition(text)]
    ddl = ";\n".join(text for text in statements if is_definition(text))
    if not ddl:
        raise ConfigError("there are no definitions", hint="give ddl = 'CREATE TABLE ...', or sql_file")
    return ddl, (*found, *written)


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
        raise ConfigError(f"{key}{_in(where)} is a whole number above 0, not {value!r}")
    return value


def _value(said: Mapping[str, Any], key: str, where: str, default: Any) -> Any:
    if key not in said and default is _MISSING:
        raise ConfigError(f"{key}{_in(where)} is missing", hint="see: tocsin run --example")
    return said.get(key, default)


def _in(where: str) -> str:
    return f" in [{where}]" if where else ""
