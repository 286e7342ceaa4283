"""Filters over streams alone: an event is matched in the task that reads it, without shards or state.

    changes ─ filter_events ─► deltas and dead letters

It is a table shard that has no tables: the same checks, the same messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa

from tocsin.spark.stages.route import Clock, current_batch, current_query, utc_now
from tocsin.spark.stages.steps import PipelinePaths, ShardMessageKind
from tocsin.spark.stages.table_shard import TableShard
from tocsin.spark.stages.wire import CHANGES, MESSAGE_SCHEMA, NO_ROWS, pack
from tocsin.spark.versions.batch import Pin, Pins, load_placement
from tocsin.spark.versions.store import Versions

__all__ = ["filter_events"]


def filter_events(
    batches: Iterable[pa.RecordBatch], paths: PipelinePaths, clock: Clock = utc_now
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the messages that table shards and query shards would send on."""
    pins = Pins(paths.pins, current_query(paths))
    pin = pins.pin(current_batch(paths), Versions(paths.versions), clock())
    yield from filtered(batches, paths, pin)


def filtered(batches: Iterable[pa.RecordBatch], paths: PipelinePaths, pin: Pin) -> Iterator[pa.RecordBatch]:
    """The same of a batch whose pin is known."""
    placement, shard = load_placement(paths.versions, pin.version, paths.layout), _shard(paths, pin.version)
    tick = pack(NO_ROWS, version=pin.version, seq=pin.seq, micros=pin.micros)
    for batch in batches:
        changes = pa.Table.from_batches([batch]).select(CHANGES.names)
        messages = {ShardMessageKind.TICK.value: [tick], ShardMessageKind.CHANGES.value: [pack(changes)]}
        found = [one for one in shard.step(placement, pin, messages).messages if one.shard.startswith("out|")]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([""] * len(found)),
                pa.array([str(one.kind) for one in found]),
                pa.array([one.payload for one in found], pa.binary()),
            ],
            schema=MESSAGE_SCHEMA,
        )


@lru_cache(maxsize=2)
def _shard(paths: PipelinePaths, version: int) -> TableShard:
    """The filters of a version, once in each process."""
    shard = TableShard("0", paths.layout)
    placement = load_placement(paths.versions, version, paths.layout)
    shard.restore(placement, Pin(version, 0, 0).time, ())
    return shard
