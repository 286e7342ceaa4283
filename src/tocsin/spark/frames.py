"""Which subscriptions match each event of a DataFrame, batch or streaming alike.

A filter over a stream needs no memory, so events can be matched wherever they are: every
partition is handed to an engine in its Python worker, Arrow batch by Arrow batch (`mapInArrow`).
The engine is made once per worker and set of subscriptions, not once per batch.

    output="rows"    the event's columns and `subscription bigint`, one row per match
    output="lists"   the event's columns and `subscriptions array<bigint>`, one row per event
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812

from tocsin.engine import Engine
from tocsin.errors import BadRow, SubscriptionError, TocsinError
from tocsin.model.schema import Field, Stream, Type
from tocsin.spark.lots import subscribe
from tocsin.spark.route import utc_now
from tocsin.spark.versions import Pins, Versions, as_table, definitions, draft
from tocsin.spark.wire import pack, unpack

__all__ = ["match"]

MAPS = ("attributes", "texts")  # columns of an open stream with one entry per attribute
OWN = ("_op", "_seq")  # columns with a meaning of their own in a batch for the engine
KEPT = 4  # engines per worker
COLUMN = {"rows": "subscription", "lists": "subscriptions"}

_engines: dict[str, Engine] = {}


def match(
    events: DataFrame,
    subscriptions: Any,
    *,
    stream: str,
    ddl: str | None = None,
    output: str = "rows",
) -> DataFrame:
    """Match events of one stream with the filters over it.

    `subscriptions` is an `Engine`, a directory of versions (`Versions` or its path: a streaming
    query then takes up each new version with its next batch), or a set of (id, sql). Of an engine or a
    directory, subscriptions to other streams and tables are left aside. `ddl` defines the stream;
    without it the stream has the DataFrame's columns, or is open if there are columns `attributes`
    (map<string,double>) or `texts` (map<string,string>). Columns that the stream does not have
    pass through. An event that is not valid (an attribute in both maps) matches nothing.
    """
    if output not in COLUMN:
        raise TocsinError(f"there is no output {output!r}", hint="rows or lists")
    for column in events.columns:
        if column.lower() == COLUMN[output]:
            raise TocsinError(f"the events have a column {column} already", hint="rename it")
    matcher = _matcher(events, subscriptions, stream, ddl, output)
    _probe(matcher, events)
    kind = T.LongType() if output == "rows" else T.ArrayType(T.LongType(), containsNull=False)
    schema = T.StructType([*events.schema.fields, T.StructField(COLUMN[output], kind, nullable=False)])
    return events.mapInArrow(partial(_match_batches, matcher=matcher), schema)


@dataclass(frozen=True)
class Matcher:
    """All that a worker needs: a packed set of subscriptions, or where versions of it lie."""

    stream: str
    output: str
    strict: bool  # whether a subscription to something else is an error
    packed: bytes = b""
    key: str = ""  # a digest of `packed`
    versions: str = ""
    number: int = 0  # of the version, for a batch; a streaming query pins its own

    def engine(self) -> Engine:
        """An engine with the filters over the stream, from this worker's cache if it is there."""
        number = self.number if self.versions else 0
        if self.versions and not number:
            number = _pinned(Versions(self.versions))
        uuid = Versions(self.versions).uuid(number) if self.versions else ""
        key = f"{self.key}|{self.versions}|{number}|{uuid}|{self.stream}"
        if key not in _engines:
            while len(_engines) >= KEPT:
                _engines.pop(next(iter(_engines)))
            _engines[key] = self._make(number)
        return _engines[key]

    def _make(self, number: int) -> Engine:
        if self.versions:
            version = Versions(self.versions).load(number)
        else:
            facts, table = unpack(self.packed)
            version = draft(facts["ddl"], table)
        engine = Engine(retain=False)
        engine.execute(version.ddl)
        relation = engine.schema(self.stream)
        if not isinstance(relation, Stream):
            raise TocsinError(
                f"{relation.name} is a table", hint="match() takes streams; a table needs a Pipeline"
            )
        for home, chosen in version.chosen.by_home().items():
            if home.tables == (relation.name,):
                for lot in chosen.lots():
                    subscribe(engine, lot)
            elif self.strict:
                raise SubscriptionError(
                    f"subscription {chosen.ids.min()} is not a filter over {relation.name}"
                )
        return engine

    def match(self, batch: pa.RecordBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The (event, subscription) pairs of a batch, in order of event."""
        engine = self.engine()
        relation = engine.schema(self.stream)
        wanted = [
            f.name for f in batch.schema if (_is_attribute(f) if relation.open else relation.find(f.name))
        ]
        for name in wanted:
            if name.lower() in OWN:
                raise TocsinError(f"an event cannot have a column {name}", hint="rename it, or leave it out")
        first = engine.last_seq + 1
        numbers = pa.array(np.arange(first, first + batch.num_rows))
        data = pa.Table.from_batches([batch]).select(wanted).append_column("_seq", numbers)
        bad: list[BadRow] = []
        deltas = engine.apply(relation.name, data, dead_letters=bad).ordered()
        found = deltas.sign > 0
        return deltas.seq[found] - first, deltas.subscription[found]


def _match_batches(batches: Iterator[pa.RecordBatch], matcher: Matcher) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`."""
    for batch in batches:
        event, subscription = matcher.match(batch)
        name = COLUMN[matcher.output]
        if matcher.output == "rows":
            out, column = batch.take(pa.array(event)), pa.array(subscription)
        else:
            offsets = np.searchsorted(event, np.arange(batch.num_rows + 1)).astype(np.int32)
            out, column = batch, pa.ListArray.from_arrays(pa.array(offsets), pa.array(subscription))
        yield pa.RecordBatch.from_arrays([*out.columns, column], names=[*out.schema.names, name])


def _matcher(events: DataFrame, subscriptions: Any, stream: str, ddl: str | None, output: str) -> Matcher:
    if isinstance(subscriptions, str | Path | Versions):
        versions = subscriptions if isinstance(subscriptions, Versions) else Versions(subscriptions)
        newest = versions.latest()
        if newest is None:
            raise TocsinError("there is no version of the subscriptions", hint=f"looked in {versions.path}")
        path = str(versions.path.absolute())
        return Matcher(
            stream, output, strict=False, versions=path, number=0 if events.isStreaming else newest
        )
    engine = isinstance(subscriptions, Engine)
    if ddl is None:
        ddl = definitions(subscriptions) if engine else str(_stream_of(events, stream))
    packed = pack(as_table(subscriptions), ddl=ddl)
    key = blake2b(packed, digest_size=16).hexdigest()
    return Matcher(stream, output, strict=not engine, packed=packed, key=key)


_TYPES = {
    T.ByteType: Type.BIGINT,
    T.ShortType: Type.BIGINT,
    T.IntegerType: Type.BIGINT,
    T.LongType: Type.BIGINT,
    T.FloatType: Type.DOUBLE,
    T.DoubleType: Type.DOUBLE,
    T.DecimalType: Type.DOUBLE,
    T.StringType: Type.STRING,
    T.BooleanType: Type.BOOLEAN,
    T.DateType: Type.DATE,
    T.TimestampType: Type.TIMESTAMP,
    T.TimestampNTZType: Type.TIMESTAMP,
}


def _stream_of(events: DataFrame, name: str) -> Stream:
    """The stream that has the DataFrame's columns."""
    if any(f.name in MAPS and isinstance(f.dataType, T.MapType) for f in events.schema.fields):
        return Stream(name)
    known = [(f.name, _TYPES.get(type(f.dataType))) for f in events.schema.fields]
    return Stream(name, tuple(Field(column, kind) for column, kind in known if kind is not None))


def _is_attribute(field: pa.Field) -> bool:
    """Whether a column of the events can be an attribute of an open stream, or holds some."""
    return (
        (field.name in MAPS)
        if pt.is_map(field.type)
        else not pt.is_nested(field.type) and not pt.is_binary(field.type)
    )


def _probe(matcher: Matcher, events: DataFrame) -> None:
    """Match no events, here: what is wrong with subscriptions or columns is told before a job runs."""
    number = matcher.number or (Versions(matcher.versions).latest() if matcher.versions else 0) or 0
    columns = {f.name: _arrow(f.dataType) for f in events.schema.fields}
    schema = pa.schema([(name, kind) for name, kind in columns.items() if kind is not None])
    replace(matcher, number=number).match(pa.RecordBatch.from_pylist([], schema=schema))


def _arrow(kind: T.DataType) -> Any:
    """The Arrow type of a column that a stream may have; None for any other."""
    if isinstance(kind, T.MapType):
        value = _TYPES.get(type(kind.valueType))
        return None if value is None else pa.map_(pa.string(), value.arrow)
    known = _TYPES.get(type(kind))
    return None if known is None else known.arrow


def _pinned(versions: Versions) -> int:
    """The version of this task's batch; the newest where Spark does not say which batch it is."""
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    if query is None or batch is None:  # inside a foreachBatch of Spark Connect
        return versions.latest() or 0
    return Pins(versions.path / "pins", query).pin(int(batch), versions, utc_now()).version
