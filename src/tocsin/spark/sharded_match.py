"""Filters too many for one machine: the index is cut into shards by attribute, and events visit some of them.

Whatever matches a conjunction has a value for each attribute that the conjunction compares. One of these,
the rarest among the filters, is its *pivot*. A filter is in the shard of its first conjunction's pivot, and
that shard *owns* the pivots of all its conjunctions:

    shard 0   price < 5 AND color = 'red'   (color)         color: shard 0
    shard 1   size > 3                      (size)          size: shard 1
              brand = 'x' OR size = 9       (brand, size)   brand: shard 1

So an event that matches a filter has an attribute that the filter's shard owns, and no two shards report the
same match. A filter that requires no attribute (`size IS NULL`) is in shard 0, and then every event visits
shard 0.

    scatter   each event, once per shard that it visits                             exchange by _shard
    match     in each shard; the first shard that an invalid event visits reports it
    gather    for lists only: the lists of one event become one                     exchange by _event

All three steps are `mapInArrow` without state, so streaming queries run them as batches do. The number of an
event is its partition and its position there, which a retried task computes again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812

from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Rows, SparseRows
from tocsin.predicate.flat import ABSENT, OR_NEXT, FlatFilters
from tocsin.spark.sharding import shard_of_text

if TYPE_CHECKING:
    from tocsin.spark.matcher import Matcher

__all__ = ["MAX_SHARDS", "AttributeRoutes", "IndexShard", "match_sharded", "visits"]

MAX_SHARDS = 63
LISTS = "subscriptions"  # the output column of lists
SHARD, EVENT, FIRST = "_shard", "_event", "_first"  # columns that events have between the steps
_OWN = (
    T.StructField(SHARD, T.IntegerType()),
    T.StructField(EVENT, T.LongType()),
    T.StructField(FIRST, T.BooleanType()),
)
_BATCH = 10_000  # rows that are sent to the JVM at once
_PARTITION = 40  # bits of an event's number below that of its partition


# -- which shard owns what -----------------------------------------------------------------------------


class IndexShard(NamedTuple):
    """Shard `number` of so many `shards`."""

    shards: int
    number: int


@dataclass
class AttributeRoutes:
    """The shards that own each attribute, as bits; and whether every event visits shard 0."""

    count: int
    owners: dict[str, int] = field(default_factory=dict)
    unconditional: bool = False

    def place(self, filters: FlatFilters) -> Index:
        """The shard of each filter; records what the shards own."""
        pivot = _pivots(filters)
        shards = np.array([shard_of_text(name, self.count) for name in filters.names], np.int64)
        out = np.zeros(filters.count, np.int64)
        owner, first = np.unique(filters.owner, return_index=True)
        loose = np.zeros(filters.count, np.bool_)  # filters with a conjunction that has no pivot
        loose[filters.owner[pivot < 0]] = True
        bound = owner[~loose[owner]]
        out[bound] = shards[pivot[first[~loose[owner]]]]
        self.unconditional |= bool(loose.any())
        there = np.flatnonzero(~loose[filters.owner])
        pairs = np.unique(np.stack([pivot[there], out[filters.owner[there]]]), axis=1)
        for name, shard in zip(*(side.tolist() for side in pairs), strict=True):
            text = filters.names[name]
            self.owners[text] = self.owners.get(text, 0) | (1 << shard)
        return out

    def to_json(self) -> dict[str, Any]:
        return {"count": self.count, "owners": self.owners, "always": self.unconditional}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> AttributeRoutes:
        return cls(values["count"], values["owners"], values["always"])


def _pivots(filters: FlatFilters) -> NDArray[np.int64]:
    """For each conjunction, the rarest attribute that it requires; -1 if it requires none."""
    tests = len(filters.dim)
    out = np.full(len(filters.owner), -1, np.int64)
    if not tests:
        return out
    name = filters.attribute[filters.dim]
    joined = np.concatenate([[False], (filters.flags[:-1] & OR_NEXT) != 0])
    begin = np.flatnonzero(~joined)  # of clauses: alternatives count as one if they compare one attribute
    one = np.minimum.reduceat(name, begin) == np.maximum.reduceat(name, begin)
    absent = np.logical_or.reduceat((filters.flags & ABSENT) != 0, begin)
    usable = begin[one & ~absent]
    conjunction = np.searchsorted(filters.start, usable, "right") - 1
    required = name[usable].astype(np.int64)
    popularity = np.bincount(required, minlength=len(filters.names))
    order = np.lexsort((required, popularity[required], conjunction))
    found, first = np.unique(conjunction[order], return_index=True)
    out[found] = required[order][first]
    return out


def visits(
    events: ChangeBatch, count: int, routes: AttributeRoutes, all_events: bool
) -> Iterator[tuple[int, Index, NDArray[np.bool_]]]:
    """Each shard with the events (of `count`) that visit it, and whether it is the first that they visit.

    With `all_events`, every event visits at least one shard, also invalid ones.
    """
    bits = np.full(count, 1 if routes.unconditional else 0, np.uint64)
    bits[events.origin] |= _owning_shards(events.rows, routes.owners)
    if all_events:
        bits[bits == 0] = 1
    first = bits & (~bits + np.uint64(1))  # its lowest bit
    for shard in range(routes.count):
        bit = np.uint64(1 << shard)
        at = np.flatnonzero(bits & bit)
        if len(at):
            yield shard, at, first[at] == bit


def _owning_shards(rows: Rows, owners: Mapping[str, int]) -> NDArray[np.uint64]:
    """The shards that own an attribute of each event, as bits."""
    bits = np.zeros(len(rows), np.uint64)
    if isinstance(rows, SparseRows):
        known = np.array([owners.get(name, 0) for name in rows.names], np.uint64)
        for part in rows.parts:
            np.bitwise_or.at(bits, part.event, known[part.name])
        return bits
    for name in rows.names:
        if owned := owners.get(name, 0):
            for vector in rows.vectors(name):
                bits[vector.valid] |= np.uint64(owned)
    return bits


# -- scatter, match, gather -----------------------------------------------------------------------------


def match_sharded(events: DataFrame, matcher: Matcher, schema: T.StructType) -> DataFrame:
    """The events with their subscriptions, in the columns of `schema`."""
    matcher = replace(matcher, ignored=(SHARD, EVENT, FIRST))
    scattered = T.StructType([*events.schema.fields, *_OWN])
    sent = events.mapInArrow(partial(_scatter, matcher=matcher), scattered).repartition(matcher.shards, SHARD)
    if matcher.output == "rows":
        return sent.mapInArrow(partial(_match, matcher=replace(matcher, reporter=FIRST)), schema)
    inside = T.StructType([_OWN[1], *schema.fields])
    found = sent.mapInArrow(partial(_match, matcher=replace(matcher, keep=(EVENT, *matcher.keep))), inside)
    return found.repartition(EVENT).mapInArrow(_gather, schema)


def _scatter(batches: Iterable[pa.RecordBatch], matcher: Matcher) -> Iterator[pa.RecordBatch]:
    """Each event once per shard that it visits."""
    context = TaskContext.get()
    number = (context.partitionId() if context is not None else 0) << _PARTITION
    all_events = matcher.output == "lists" or matcher.reason is not None
    for batch in batches:
        filters, _ = matcher.filters()
        assert filters.routes is not None
        events, _ = filters.read(matcher.events(batch, filters.stream))
        for shard, at, first in visits(events, batch.num_rows, filters.routes, all_events):
            own = [np.full(len(at), shard, np.int32), number + at, first]
            columns = [*batch.take(pa.array(at)).columns, *map(pa.array, own)]
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, SHARD, EVENT, FIRST])
        number += batch.num_rows


def _match(batches: Iterable[pa.RecordBatch], matcher: Matcher) -> Iterator[pa.RecordBatch]:
    """Each event, matched with the filters of its shard."""
    for batch in batches:
        shards = batch[SHARD].to_numpy()
        for shard in np.unique(shards).tolist():
            part = batch.take(pa.array(np.flatnonzero(shards == shard)))
            yield from replace(matcher, shard=shard).match_batches(iter([part]))


def _gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The lists of several shards for one event as one. All rows of an event are in this partition."""
    parts = [batch for batch in batches if batch.num_rows]
    if not parts:
        return
    table = pa.Table.from_batches(parts)
    event = table[EVENT].to_numpy()
    order = np.argsort(event, kind="stable")
    first = np.flatnonzero(np.diff(event[order], prepend=-1))
    lists = table[LISTS].combine_chunks().take(pa.array(order))
    starts = lists.offsets.to_numpy()[np.append(first, len(order))]
    whole = pa.ListArray.from_arrays(pa.array(starts), lists.values)
    out = table.drop_columns([EVENT]).take(pa.array(order[first]))
    at = out.column_names.index(LISTS)
    yield from out.set_column(at, LISTS, whole).to_batches(max_chunksize=_BATCH)
