"""What a worker needs to match events of a DataFrame: the filters over a stream, and how to tell of them.

A `Matcher` is sent with the task. It has a packed set of subscriptions, of which each worker makes an index
once; or it says where versions of them lie, and the index is mapped from there (`mapped.py`): of the version
that the task's micro-batch is pinned to, or of the one that a batch was planned with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from pyspark import TaskContext

from tocsin.errors import BadRow, SubscriptionError, TocsinError
from tocsin.model.columns import Index
from tocsin.model.schema import Catalog, Stream
from tocsin.spark.mapped import StreamFilters, mapped_filters, micros_of, stream_filters
from tocsin.spark.sharded_match import Share
from tocsin.spark.stages.route import utc_now
from tocsin.spark.stages.wire import unpack
from tocsin.spark.versions.pins import Pin, Pins
from tocsin.spark.versions.placement import relations_of
from tocsin.spark.versions.versions import Versions, draft
from tocsin.store.database import find_relation

__all__ = ["COLUMN", "MAPS", "Matcher", "match_batches"]

COLUMN = {"rows": "subscription", "lists": "subscriptions"}  # by output
MAPS = ("attributes", "texts")  # columns of an open stream with one entry per attribute
OWN = ("_op", "_seq")  # columns with a meaning of their own in a batch for the engine
KEPT = 4  # indexes per worker

_filters: dict[str, StreamFilters] = {}  # of this worker, the last used last


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
    aside: tuple[str, ...] = ()  # columns that are not the events'
    teller: str = ""  # a column: whether this shard is the one that tells of the event if it is not valid

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
        return filters.match(self.events(batch, filters.stream), micros)

    def events(self, batch: pa.RecordBatch, stream: Stream) -> Any:
        """The events of a batch: JSON texts, or those columns that are their attributes or hold some."""
        if self.json is not None:
            return batch[self.json]
        own = [field for field in batch.schema if field.name not in self.aside]
        wanted = [f.name for f in own if (_is_attribute(f) if stream.open else stream.find(f.name))]
        for name in wanted:
            if name.lower() in OWN:
                raise TocsinError(f"an event cannot have a column {name}", hint="rename it, or leave it out")
        return pa.Table.from_batches([batch]).select(wanted)


def match_batches(batches: Iterator[pa.RecordBatch], matcher: Matcher) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`."""
    for batch in batches:
        starts, subscription, bad = matcher.match(batch)
        if bad and matcher.teller:
            tells = batch[matcher.teller].to_numpy(zero_copy_only=False)
            bad = [fault for fault in bad if tells[fault.row]]
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


def _is_attribute(field: pa.Field) -> bool:
    """Whether a column of the events can be an attribute of an open stream, or holds some."""
    return (
        (field.name in MAPS)
        if pt.is_map(field.type)
        else not pt.is_nested(field.type) and not pt.is_binary(field.type)
    )


def _pinned(versions: Versions) -> Pin:
    """The pin of this task's batch; the newest version where Spark does not say which batch it is."""
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    if query is None or batch is None:  # inside a foreachBatch of Spark Connect
        return Pin(versions.latest() or 0, -1, micros_of(utc_now()))
    return Pins(versions.path / "pins", query).pin(int(batch), versions, utc_now())
