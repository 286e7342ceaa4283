"""A pipeline in TOML: its source of changes, its subscriptions, its sinks.

An unknown key is an error that names its section and the nearest known key. Paths are relative to the file.

>>> read_config("[source]\\nformat = 'json'\\npath = 'in'\\n[sink]\\nfromat = 'json'", Path("."))
Traceback (most recent call last):
...
tocsin.commands.config_values.ConfigError: unknown key 'fromat' in [sink]
hint: did you mean 'format'?
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tocsin.commands.config_values import ConfigError, check_keys, number, section, sections, text, texts
from tocsin.commands.connectors import SinkConfig, SourceConfig, read_sink, read_source
from tocsin.commands.output import read_text
from tocsin.commands.subscription_files import HIGHEST, LOWEST, number_statements
from tocsin.commands.validate import is_definition
from tocsin.errors import UsageError
from tocsin.language.statements import split_statements

__all__ = [
    "EXAMPLE",
    "ConfigError",
    "PipelineConfig",
    "SinkConfig",
    "SourceConfig",
    "load_config",
    "read_config",
]

EXAMPLE = """\
# A pipeline: changes in, deltas out. Run it with: tocsin run pipeline.toml
# Paths are relative to this file.

name = "stocks"
state = "out/state"           # tables, subscriptions, checkpoint; keep it, and a restart resumes from it
trigger = "available-now"     # process all there is, then stop; or an interval, as "5 seconds"
# batches = 10                # stop after so many micro-batches
# output = "messages"         # describe joins instead of sending their rows to each subscription
# log = "subscribed"          # a folder: files of {"op": "add", "id": 7, "sql": "..."}, applied on arrival

# Definitions and subscriptions, here or in files (definitions and SELECTs separated by semicolons).
ddl = \"\"\"
CREATE TABLE stocks (symbol STRING, per DOUBLE, risk DOUBLE, PRIMARY KEY (symbol));
CREATE STREAM listings
\"\"\"
# sql_file = "alerts.sql"     # edit it freely: a text keeps its id, a new one gets a new id;
#                             # or set an id with a comment before the SELECT: -- id: 7

[[subscription]]
id = 1
subscriber = "ann"
sql = "SELECT * FROM stocks WHERE per BETWEEN 45 AND 70"

[[subscription]]
id = 2
sql = "SELECT symbol, per FROM stocks ORDER BY per DESC LIMIT 10"

# Changes: columns table, op (insert, update, upsert, delete), row (JSON) and seq, which must increase.
[source]
format = "json"               # json | parquet | kafka | rate
path = "changes"              # a folder; files are read in order of modification time
files_per_batch = 1           # at most, so that a backlog does not become one batch
# From Kafka: each value is JSON of table, op, row and seq. The connector is named below, in [spark].
# format = "kafka"
# servers = "localhost:9092"
# topic = "changes"
# seq = "value"               # or "offset", for a topic of one partition
# max_offsets_per_trigger = 100000
# options = { "kafka.security.protocol" = "SSL" }
# For a test without files: numbers 0, 1, 2, ... as `value`, made into rows by a Spark expression.
# format = "rate"
# rows_per_batch = 100
# table = "stocks"
# row = "named_struct('symbol', string(value), 'per', value % 100)"

[sink]                        # several sinks: write each as [[sink]]
format = "parquet"            # parquet | json | console | kafka | webhook
path = "out/deltas"           # one folder per batch
# format = "kafka"            # a record per delta; its key is the subscription
# servers = "localhost:9092"
# topic = "deltas"
# format = "webhook"          # POST; the header Idempotency-Key is the same if a batch is sent again
# url = "https://example.org/hooks/{subscriber}"
# headers = { Authorization = "Bearer ..." }
# rate = 5.0                  # requests per second and subscriber
# tries = 5                   # then the message goes to the folder `undelivered`, with the reason
# undelivered = "out/undelivered"

# [dead_letters]              # rejected changes, and why; by default in the state folder
# format = "json"
# path = "out/rejected"

# [spark]                     # settings of the session
# master = "local[2,4]"
# "spark.jars.packages" = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"
"""


@dataclass(frozen=True)
class PipelineConfig:
    """One pipeline."""

    ddl: str
    subscriptions: tuple[tuple[int, str, str | None], ...]  # id, sql, subscriber
    source: SourceConfig
    sinks: tuple[SinkConfig, ...]
    state: Path
    checkpoint: Path | None = None
    log: Path | None = None  # a folder with changes of the subscriptions
    dead_letters: SinkConfig | None = None
    trigger: Mapping[str, Any] = field(default_factory=lambda: {"availableNow": True})
    batches: int | None = None
    output: str = "deltas"  # or "messages"
    name: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)  # settings of the session, and its master


_TOP = (
    "name", "state", "checkpoint", "log", "trigger", "batches", "output", "ddl", "ddl_file", "sql_file",
    "subscription",
)  # fmt: skip
_SUBSCRIPTION = ("id", "sql", "subscriber")


def load_config(path: Path) -> PipelineConfig:
    """The pipeline that a file describes."""
    return read_config(_file(path, ""), path.parent)


def read_config(toml: str, folder: Path) -> PipelineConfig:
    """The pipeline that a text describes; its paths are relative to `folder`."""
    try:
        values = tomllib.loads(toml)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}", hint="see: tocsin run --example") from None
    check_keys(values, (*_TOP, "source", "sink", "dead_letters", "spark"), "")
    sinks = tuple(read_sink(part, where, folder) for where, part in sections(values, "sink"))
    trigger = _trigger(text(values, "trigger", "", "available-now"))
    source = read_source(section(values, "source"), folder)
    state = folder / text(values, "state", "")
    ddl, subscriptions = _statements(values, folder, state)
    batches = number(values, "batches", "", None)
    output = text(values, "output", "", "deltas")
    if output not in ("deltas", "messages"):
        raise ConfigError(f"output is {output!r}", hint='"deltas", or "messages" that describe joins')
    if source.format == "rate" and batches is None and "availableNow" in trigger:
        raise ConfigError("source 'rate' never ends", hint='set batches = 10, or trigger = "1 second"')
    if source.format == "rate":  # Spark's rate source does not support availableNow
        trigger = {"processingTime": "0 seconds"} if "availableNow" in trigger else trigger
    return PipelineConfig(
        ddl=ddl,
        subscriptions=subscriptions,
        source=source,
        sinks=sinks,
        state=state,
        checkpoint=folder / text(values, "checkpoint", "") if "checkpoint" in values else None,
        log=folder / text(values, "log", "") if "log" in values else None,
        dead_letters=read_sink(section(values, "dead_letters"), "dead_letters", folder, dead=True)
        if "dead_letters" in values
        else None,
        trigger=trigger,
        batches=batches,
        output=output,
        name=text(values, "name", "") if "name" in values else None,
        spark=texts(values, "spark"),
    )


# -- parts -----------------------------------------------------------------------------------------


def _statements(
    values: Mapping[str, Any], folder: Path, state: Path
) -> tuple[str, tuple[tuple[int, str, str | None], ...]]:
    """Definitions, and subscriptions: first those of files, with ids, then those of the config itself."""
    files = [text(values, "ddl", "", "")]
    files += [
        _file(folder / text(values, key, ""), f"{key}: ") for key in ("ddl_file", "sql_file") if key in values
    ]
    statements = [s for file in files for s in split_statements(file)]
    written = _written(values.get("subscription", []))
    queries = [s for s in statements if not is_definition(s.text)]
    try:
        found = number_statements(queries, {id for id, _, _ in written}, state)
    except UsageError as error:
        raise ConfigError(error.fact, hint=error.hint) from None
    ddl = ";\n".join(s.text for s in statements if is_definition(s.text))
    if not ddl:
        raise ConfigError("there are no definitions", hint="give ddl = 'CREATE TABLE ...', or sql_file")
    return ddl, (*((id, sql, None) for id, sql in found), *written)


def _written(entries: Any) -> list[tuple[int, str, str | None]]:
    """The subscriptions of the config itself."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError("subscription is not a list of sections", hint="write [[subscription]]")
    written: list[tuple[int, str, str | None]] = []
    for place, entry in enumerate(entries, start=1):
        where = f"subscription {place}"
        check_keys(entry, _SUBSCRIPTION, where)
        id = number(entry, "id", where)
        if not LOWEST <= id <= HIGHEST:
            raise ConfigError(f"id in [{where}] is {id}", hint="ids go from -2^62 to 2^63 - 1")
        if any(id == other for other, _, _ in written):
            raise ConfigError(f"id {id} in [{where}] is already used", hint="give each its own id")
        subscriber = text(entry, "subscriber", where) if "subscriber" in entry else None
        written.append((id, text(entry, "sql", where), subscriber))
    return written


def _file(path: Path, what: str) -> str:
    try:
        return read_text(path)
    except UsageError as error:
        raise ConfigError(f"{what}{error.fact}", hint=error.hint or "see: tocsin run --example") from None


def _trigger(when: str) -> dict[str, Any]:
    if when == "available-now":
        return {"availableNow": True}
    if re.fullmatch(r"\d+ (millisecond|second|minute|hour)s?", when):
        return {"processingTime": when}
    raise ConfigError(f"trigger is {when!r}", hint='"available-now", or an interval such as "5 seconds"')
