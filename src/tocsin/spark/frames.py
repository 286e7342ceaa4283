"""Which subscriptions match each event of a DataFrame, batch or streaming alike.

A filter over a stream needs no memory, so events can be matched wherever they are: every
partition is handed to an index in its Python worker, Arrow batch by Arrow batch (`mapInArrow`). The
index of a directory of versions is mapped from files (`mapped.py`); that of a set that was handed in
is made once per worker.

    output="rows"    the event's columns and `subscription bigint`, one row per match
    output="lists"   the event's columns and `subscriptions array<bigint>`, one row per event
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tocsin.engine import Engine
from tocsin.errors import BadRow, SubscriptionError, TocsinError
from tocsin.model.columns import Index
from tocsin.model.schema import Catalog, Field, Stream, Type
from tocsin.spark.mapped import StreamFilters, mapped_filters, micros_of, stream_filters
from tocsin.spark.placement import relations_of
from tocsin.spark.route import utc_now
from tocsin.spark.sharing import MOST, Share, visits
from tocsin.spark.versions import Pin, Pins, Versions, as_table, definitions, draft
from tocsin.spark.wire import pack, unpack
from tocsin.store.database import find_relation

__all__ = ["match"]

MAPS = ("attributes", "texts")  # columns of an open stream with one entry per attribute
OWN = ("_op", "_seq")  # columns with a meaning of their own in a batch for the engine
KEPT = 4  # indexes per worker
SHARD, EVENT = "_shard", "_event"  # columns of events on their way to shards
BYTES = 80  # of a filter in an index
COLUMN = {"rows": "subscription", "lists": "subscriptions"}

_filters: dict[str, StreamFilters] = {}  # of this worker, the last used last


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

    `subscriptions` is an `Engine`, a directory of versions (`Versions` or its path: its index is mapped by
    all workers, and a streaming query takes up each new version with its next batch), or a set of (id,
    sql). Of an engine or a directory, subscriptions to other streams and tables are left aside. `ddl`
    defines the stream; without it the stream has the DataFrame's columns, or is open if there are columns
    `attributes` (map<string,double>) or `texts` (map<string,string>), or if events are objects in the text
    column `json`. Columns that the stream does not have pass through. An event that is not valid (an
    attribute in both maps) matches nothing; the column `reason`, if named, says why.

    All columns of the events are kept, or only those in `keep`: sending wide events back to the JVM and
    writing them costs more than matching them.

    The index of a directory of versions is mapped whole by every host. If it is expected to be larger than
    `budget` bytes (half of this machine's memory), it is cut into shards by attribute, and each event is sent
    to the shards that own one of its attributes (`sharing.py`); `shards` says how many, 1 for none. The plan
    that `explain` prints then has an exchange by `_shard`.
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
    _probe(matcher, events)
    count = _shards(matcher, shards, budget)
    kind = T.LongType() if output == "rows" else T.ArrayType(T.LongType(), containsNull=False)
    fields = [
        *(events.schema[column] for column in kept),
        T.StructField(COLUMN[output], kind, nullable=output == "rows"),
    ]
    if reason:
        fields.append(T.StructField(reason, T.StringType()))
    if count > 1:
        return _sharded(events, replace(matcher, shards=count), T.StructType(fields))
    return events.mapInArrow(partial(_match_batches, matcher=matcher), T.StructType(fields))


def _shards(matcher: Matcher, shards: int | None, budget: int | None) -> int:
    """How many shards the index is to have."""
    if shards is not None and not 1 <= shards <= MOST:
        raise TocsinError(f"there cannot be {shards} shards", hint=f"from 1 to {MOST}")
    if not matcher.versions:
        if shards is not None and shards > 1:
            raise TocsinError("only a directory of versions can be sharded", hint="publish the subscriptions")
        return 1
    if shards is None:
        most = budget or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        newest = Versions(matcher.versions).newest()
        shards = min(MOST, -(-BYTES * len(newest.chosen) // most))
    if shards > 1 and (matcher.reason or matcher.json):
        raise TocsinError("a sharded index takes neither reason nor json", hint="filter bad events before it")
    return max(1, shards)


def _sharded(events: DataFrame, matcher: Matcher, schema: T.StructType) -> DataFrame:
    """Send events to the shards that own one of their attributes, and match them there."""
    numbered = events.withColumn(EVENT, F.monotonically_increasing_id())
    told = T.StructType([*numbered.schema.fields, T.StructField(SHARD, T.IntegerType())])
    sent = numbered.mapInArrow(partial(_send, matcher=matcher), told).repartition(matcher.shards, SHARD)
    keep = (*matcher.keep, EVENT)
    inside = T.StructType([*schema.fields[:-1], T.StructField(EVENT, T.LongType()), schema.fields[-1]])
    found = sent.mapInArrow(partial(_match_shards, matcher=replace(matcher, keep=keep)), inside)
    if matcher.output == "rows":
        return found.drop(EVENT)
    lists = F.flatten(F.collect_list(COLUMN["lists"])).alias(COLUMN["lists"])
    kept = [F.first(column).alias(column) for column in matcher.keep]
    return found.groupBy(EVENT).agg(*kept, lists).drop(EVENT)


def _send(batches: Iterator[pa.RecordBatch], matcher: Matcher) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: each event once per shard that it visits."""
    for batch in batches:
        filters, _ = replace(matcher, shard=0).filters()
        assert filters.routes is not None
        wanted = matcher.attributes(batch, filters.stream)
        for shard, at in visits(batch, filters.stream, filters.routes, wanted, matcher.output == "lists"):
            columns = [*batch.take(pa.array(at)).columns, pa.array(np.full(len(at), shard, np.int32))]
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, SHARD])


def _match_shards(batches: Iterator[pa.RecordBatch], matcher: Matcher) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: events by shard, with the column that says which."""
    for batch in batches:
        shards = batch[SHARD].to_numpy()
        for shard in np.unique(shards).tolist():
            part = batch.take(pa.array(np.flatnonzero(shards == shard)))
            yield from _match_batches(iter([part]), replace(matcher, shard=shard))


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
    json: str | None = None
    reason: str | None = None
    keep: tuple[str, ...] = ()
    shards: int = 1
    shard: int = 0  # which of them

    def filters(self) -> tuple[StreamFilters, int]:
        """The filters over the stream, from this worker's cache if they are there; and the time."""
        if not self.versions:
            return self._cached(self.key, lambda: self._draft()), micros_of(utc_now())
        versions, number, micros = Versions(self.versions), self.number, micros_of(utc_now())
        if not number:
            pin = _pinned(versions)
            number, micros = pin.version, pin.micros
        key = f"{self.versions}|{number}|{versions.uuid(number)}|{self.stream}|{self.shard}/{self.shards}"
        return self._cached(key, lambda: self._mapped(versions, number)), micros

    def _cached(self, key: str, make: Callable[[], StreamFilters]) -> StreamFilters:
        found = _filters.pop(key, None) or make()
        while len(_filters) >= KEPT:
            _filters.pop(next(iter(_filters)))
        _filters[key] = found
        return found

    def _mapped(self, versions: Versions, number: int) -> StreamFilters:
        catalog = relations_of(versions.load(number).ddl)
        share = Share(self.shards, self.shard) if self.shards > 1 else None
        return mapped_filters(versions, number, self._stream(catalog), catalog, share)

    def _draft(self) -> StreamFilters:
        facts, table = unpack(self.packed)
        catalog = relations_of(facts["ddl"])
        stream = self._stream(catalog)
        version = draft(facts["ddl"], table)
        for home, chosen in version.chosen.by_home().items():
            if self.strict and home.tables != (stream.name,):
                first = chosen.ids.min()
                raise SubscriptionError(f"subscription {first} is not a filter over {stream.name}")
        return stream_filters(version, stream, catalog)

    def _stream(self, catalog: Catalog) -> Stream:
        relation = find_relation(self.stream, catalog)
        if not isinstance(relation, Stream):
            raise TocsinError(
                f"{relation.name} is a table", hint="match() takes streams; a table needs a Pipeline"
            )
        return relation

    def match(self, batch: pa.RecordBatch) -> tuple[Index, Index, list[BadRow]]:
        """Where the subscriptions of each event begin, the subscriptions, and events that are not valid."""
        filters, micros = self.filters()
        if self.json is not None:
            return filters.match(batch[self.json].to_pylist(), micros)
        wanted = self.attributes(batch, filters.stream)
        return filters.match(pa.Table.from_batches([batch]).select(wanted), micros)

    def attributes(self, batch: pa.RecordBatch, stream: Stream) -> list[str]:
        """The columns of a batch that are attributes of the stream, or hold some."""
        own = [field for field in batch.schema if field.name not in (SHARD, EVENT)]
        wanted = [f.name for f in own if (_is_attribute(f) if stream.open else stream.find(f.name))]
        for name in wanted:
            if name.lower() in OWN:
                raise TocsinError(f"an event cannot have a column {name}", hint="rename it, or leave it out")
        return wanted


def _match_batches(batches: Iterator[pa.RecordBatch], matcher: Matcher) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`."""
    for batch in batches:
        starts, subscription, bad = matcher.match(batch)
        batch = batch.select(list(matcher.keep))
        columns, names = [*batch.columns], [*batch.schema.names, COLUMN[matcher.output]]
        reasons = _reasons(bad, batch.num_rows) if matcher.reason else None
        if matcher.output == "lists":
            offsets = pa.array(starts.astype(np.int32))
            columns.append(pa.ListArray.from_arrays(offsets, pa.array(subscription)))
        else:
            columns, reasons = _by_match(batch, starts, subscription, reasons)
        if reasons is not None:
            columns, names = [*columns, reasons], [*names, matcher.reason]
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _by_match(
    batch: pa.RecordBatch, starts: Index, subscription: Index, reasons: Any
) -> tuple[list[Any], Any]:
    """One row per match; where reasons are asked for, also one per event that has one."""
    counts = np.diff(starts)
    event = np.repeat(np.arange(batch.num_rows), counts)
    found = pa.array(subscription)
    if reasons is not None and reasons.null_count < len(reasons):
        wrong = np.flatnonzero(reasons.is_valid().to_numpy(zero_copy_only=False))
        event = np.concatenate([event, wrong])
        found = pa.concat_arrays([found, pa.nulls(len(wrong), pa.int64())])
    at = pa.array(event)
    kept = batch.take(at).columns if batch.num_columns else ()
    return [*kept, found], None if reasons is None else reasons.take(at)


def _reasons(bad: list[BadRow], count: int) -> Any:
    why = dict(bad)
    return pa.array([why.get(row) for row in range(count)] if why else [None] * count, pa.string())


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
            raise TocsinError("there is no version of the subscriptions", hint=f"looked in {versions.path}")
        path = str(versions.path.absolute())
        number = 0 if events.isStreaming else newest
        return Matcher(stream, output, strict=False, versions=path, number=number, json=json)
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
    T.DecimalType: Type.DOUBLE,
    T.StringType: Type.STRING,
    T.BooleanType: Type.BOOLEAN,
    T.DateType: Type.DATE,
    T.TimestampType: Type.TIMESTAMP,
    T.TimestampNTZType: Type.TIMESTAMP,
}


def _types_of(events: DataFrame) -> list[tuple[str, Any]]:
    return [(f.name, f.dataType) for f in events.schema.fields]


def _stream_of(events: DataFrame, name: str, json: str | None) -> Stream:
    """The stream that has the DataFrame's columns."""
    if json is not None or any(
        f.name in MAPS and isinstance(f.dataType, T.MapType) for f in events.schema.fields
    ):
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


def _pinned(versions: Versions) -> Pin:
    """The pin of this task's batch; the newest version where Spark does not say which batch it is."""
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    if query is None or batch is None:  # inside a foreachBatch of Spark Connect
        return Pin(versions.latest() or 0, -1, micros_of(utc_now()))
    return Pins(versions.path / "pins", query).pin(int(batch), versions, utc_now())
