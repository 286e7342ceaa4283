"""Which subscriptions match each event of a DataFrame, batch or streaming alike.

A filter over a stream has no state, so each partition is matched where it is: its Python worker matches one
Arrow batch after the other with an index (`mapInArrow`). The index of a directory of versions is mapped from
files (`matcher.py`); that of a set that was passed in is built once per worker.

    output="rows"    the event's columns and `subscription bigint`, one row per match
    output="lists"   the event's columns and `subscriptions array<bigint>`, one row per event
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.model.decimals import MOST_DIGITS
from tocsin.model.schema import Field, Stream, Type, decimal_type
from tocsin.spark.matcher import COLUMN, MAPS, Matcher
from tocsin.spark.sharded_match import MAX_SHARDS, match_sharded
from tocsin.spark.stages.wire import pack
from tocsin.spark.versions.blocks import as_table, definitions
from tocsin.spark.versions.store import Versions

__all__ = ["match"]

BYTES_PER_FILTER = 80  # in an index, about


def match(
    events: DataFrame,
    subscriptions: Any,
    *,
    stream: str,
    ddl: str | None = None,
    output: str = "rows",
    json: str | None = None,
    reason: str | None = None,
    keep: Sequence[str] | None = None,
    shards: int | None = None,
    budget: int | None = None,
) -> DataFrame:
    """Match events of one stream with the filters over it.

    `subscriptions` is an `Engine`, a directory of versions (`Versions` or its path; all workers map its
    index, and a streaming query uses each new version from its next batch on), or a set of (id, sql).
    Subscriptions of an engine or a directory to other streams and tables are ignored. `ddl` defines the
    stream; without it the stream has the DataFrame's columns, or is open if there are columns `attributes`
    (map<string,double>) or `texts` (map<string,string>), or if events are objects in the text column `json`.
    Columns that the stream does not have pass through. An invalid event (an attribute in both maps) matches
    nothing; the column `reason`, if named, says why.

    The result has all columns of the events, or only those in `keep`: sending wide events back to the JVM and
    writing them costs more than matching them.

    Every machine maps the whole index of a directory of versions. If it is expected to be larger than
    `budget` bytes (by default half of this machine's memory), it is cut into shards by attribute, and each
    event is sent to the shards that own one of its attributes (`sharded_match.py`); `shards` sets their
    number, 1 for none. The plan that `explain` prints then has an exchange by `_shard`.
    """
    if output not in COLUMN:
        raise TocsinError(f"there is no output {output!r}", hint="rows or lists")
    fresh = [COLUMN[output], *([reason] if reason else [])]
    for column in events.columns:
        if column.lower() in (name.lower() for name in fresh):
            raise TocsinError(f"the events have a column {column} already", hint="rename it")
    if json is not None and not isinstance(dict(_types_of(events)).get(json), T.StringType):
        raise TocsinError(f"the events have no text column {json}", hint="json= names a column of JSON texts")
    kept = tuple(events.columns if keep is None else keep)
    for column in kept:
        if column not in events.columns:
            raise TocsinError(f"the events have no column {column}", hint=f"keep some of {events.columns}")
    matcher = replace(_matcher(events, subscriptions, stream, ddl, output, json), reason=reason, keep=kept)
    matcher = replace(matcher, shards=_shards(matcher, shards, budget))
    _probe(matcher, events)
    kind = T.LongType() if output == "rows" else T.ArrayType(T.LongType(), containsNull=False)
    fields = [
        *(events.schema[column] for column in kept),
        T.StructField(COLUMN[output], kind, nullable=output == "rows"),
    ]
    if reason:
        fields.append(T.StructField(reason, T.StringType()))
    if matcher.shards > 1:
        return match_sharded(events, matcher, T.StructType(fields))
    return events.mapInArrow(matcher.match_batches, T.StructType(fields))


def _shards(matcher: Matcher, shards: int | None, budget: int | None) -> int:
    """The number of shards of the index."""
    if shards is not None and not 1 <= shards <= MAX_SHARDS:
        raise TocsinError(f"there cannot be {shards} shards", hint=f"from 1 to {MAX_SHARDS}")
    if not matcher.versions:
        if shards is not None and shards > 1:
            raise TocsinError("only a directory of versions can be sharded", hint="publish the subscriptions")
        return 1
    if shards is None:
        most = budget or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        newest = Versions(matcher.versions).newest()
        shards = min(MAX_SHARDS, -(-BYTES_PER_FILTER * len(newest.subscriptions) // most))
    return max(1, shards)


def _matcher(
    events: DataFrame,
    subscriptions: Any,
    stream: str,
    ddl: str | None,
    output: str,
    json: str | None,
) -> Matcher:
    if isinstance(subscriptions, str | Path | Versions):
        versions = subscriptions if isinstance(subscriptions, Versions) else Versions(subscriptions)
        newest = versions.latest()
        if newest is None:
            raise TocsinError("there is no version of the subscriptions", hint=f"looked in {versions.store}")
        number = 0 if events.isStreaming else newest
        return Matcher(
            stream, output, strict=False, versions=versions.store.address, number=number, json=json
        )
    engine = isinstance(subscriptions, Engine)
    if ddl is None:
        ddl = definitions(subscriptions) if engine else str(_stream_of(events, stream, json))
    packed = pack(as_table(subscriptions), ddl=ddl)
    key = blake2b(packed, digest_size=16).hexdigest()
    return Matcher(stream, output, strict=not engine, packed=packed, key=key, json=json)


_TYPES = {
    T.ByteType: Type.BIGINT,
    T.ShortType: Type.BIGINT,
    T.IntegerType: Type.BIGINT,
    T.LongType: Type.BIGINT,
    T.FloatType: Type.DOUBLE,
    T.DoubleType: Type.DOUBLE,
    T.StringType: Type.STRING,
    T.BooleanType: Type.BOOLEAN,
    T.DateType: Type.DATE,
    T.TimestampType: Type.TIMESTAMP,
    T.TimestampNTZType: Type.TIMESTAMP,
}


def _type_of(kind: T.DataType) -> Type | None:
    """The type of a column of a DataFrame; a DECIMAL of more than 18 digits is a DOUBLE here."""
    if isinstance(kind, T.DecimalType):
        return decimal_type(kind.precision, kind.scale) if kind.precision <= MOST_DIGITS else Type.DOUBLE
    return _TYPES.get(type(kind))


def _types_of(events: DataFrame) -> list[tuple[str, Any]]:
    return [(f.name, f.dataType) for f in events.schema.fields]


def _stream_of(events: DataFrame, name: str, json: str | None) -> Stream:
    """The stream that has the DataFrame's columns."""
    if json is not None or any(
        f.name in MAPS and isinstance(f.dataType, T.MapType) for f in events.schema.fields
    ):
        return Stream(name)
    known = [(f.name, _type_of(f.dataType)) for f in events.schema.fields]
    return Stream(name, tuple(Field(column, kind) for column, kind in known if kind is not None))


def _probe(matcher: Matcher, events: DataFrame) -> None:
    """Match no events, here: reports errors in subscriptions or columns before a job runs."""
    number = matcher.number or (Versions(matcher.versions).latest() if matcher.versions else 0) or 0
    columns = {f.name: _arrow(f.dataType) for f in events.schema.fields}
    schema = pa.schema([(name, kind) for name, kind in columns.items() if kind is not None])
    replace(matcher, number=number).match(pa.RecordBatch.from_pylist([], schema=schema))


def _arrow(kind: T.DataType) -> Any:
    """The Arrow type of a column that a stream may have; None for any other."""
    if isinstance(kind, T.MapType):
        value = _type_of(kind.valueType)
        return None if value is None else pa.map_(pa.string(), value.arrow)
    known = _type_of(kind)
    return None if known is None else known.arrow
