"""Matching with an index in shards: events go to the shards that own one of their attributes.

    scatter   each event, once per shard that it visits (`sharing.py`)     exchange by _shard
    match     in each shard; an event that is not valid is told of by the first shard it visits
    gather    only for lists: those of one event become one                exchange by _event

All three steps are `mapInArrow`, without state, so that a streaming query can run them as well as a batch. An
event is numbered by its partition and its place there, which a task that runs again gives it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812

from tocsin.spark.matcher import COLUMN, Matcher, match_batches
from tocsin.spark.sharded_match import visits

__all__ = ["match_scattered"]

SHARD, EVENT, FIRST = "_shard", "_event", "_first"  # columns of events on their way
_OWN = (
    T.StructField(SHARD, T.IntegerType()),
    T.StructField(EVENT, T.LongType()),
    T.StructField(FIRST, T.BooleanType()),
)
_BATCH = 10_000  # rows that are sent to the JVM at once
_PARTITION = 40  # bits of an event's number below that of its partition


def match_scattered(events: DataFrame, matcher: Matcher, schema: T.StructType) -> DataFrame:
    """The events with their subscriptions, in the columns of `schema`; the index has `matcher.shards`."""
    matcher = replace(matcher, aside=(SHARD, EVENT, FIRST))
    told = T.StructType([*events.schema.fields, *_OWN])
    sent = events.mapInArrow(partial(_scatter, matcher=matcher), told).repartition(matcher.shards, SHARD)
    if matcher.output == "rows":
        return sent.mapInArrow(partial(_match, matcher=replace(matcher, teller=FIRST)), schema)
    inside = T.StructType([_OWN[1], *schema.fields])
    found = sent.mapInArrow(partial(_match, matcher=replace(matcher, keep=(EVENT, *matcher.keep))), inside)
    return found.repartition(EVENT).mapInArrow(_gather, schema)


def _scatter(batches: Iterator[pa.RecordBatch], matcher: Matcher) -> Iterator[pa.RecordBatch]:
    """Each event once per shard that it visits."""
    context = TaskContext.get()
    number = (context.partitionId() if context is not None else 0) << _PARTITION
    every = matcher.output == "lists" or matcher.reason is not None
    for batch in batches:
        filters, _ = matcher.filters()
        assert filters.routes is not None
        events, _ = filters.read(matcher.events(batch, filters.stream))
        for shard, at, first in visits(events, batch.num_rows, filters.routes, every):
            own = [np.full(len(at), shard, np.int32), number + at, first]
            columns = [*batch.take(pa.array(at)).columns, *map(pa.array, own)]
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, SHARD, EVENT, FIRST])
        number += batch.num_rows


def _match(batches: Iterator[pa.RecordBatch], matcher: Matcher) -> Iterator[pa.RecordBatch]:
    """Events by shard, each matched with the filters there."""
    for batch in batches:
        shards = batch[SHARD].to_numpy()
        for shard in np.unique(shards).tolist():
            part = batch.take(pa.array(np.flatnonzero(shards == shard)))
            yield from match_batches(iter([part]), replace(matcher, shard=shard))


def _gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What several shards found for an event, as one list. All rows of an event are in this partition."""
    parts = [batch for batch in batches if batch.num_rows]
    if not parts:
        return
    table = pa.Table.from_batches(parts)
    event = table[EVENT].to_numpy()
    order = np.argsort(event, kind="stable")
    first = np.flatnonzero(np.diff(event[order], prepend=-1))
    lists = table[COLUMN["lists"]].combine_chunks().take(pa.array(order))
    starts = lists.offsets.to_numpy()[np.append(first, len(order))]
    whole = pa.ListArray.from_arrays(pa.array(starts), lists.values)
    out = table.drop_columns([EVENT]).take(pa.array(order[first]))
    at = out.column_names.index(COLUMN["lists"])
    yield from out.set_column(at, COLUMN["lists"], whole).to_batches(max_chunksize=_BATCH)
