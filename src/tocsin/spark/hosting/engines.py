"""Live engines by shard: reused if the token in the state is theirs, otherwise rebuilt from the blobs.

    state (before the batch)        engines cached here
    token 7f3a  ───────────────────  7f3a: use it, cache it as 91bc when done
    7f3a, after 55b0  ─────────────  55b0: catch up by the blobs that were added since, then use it
    token 7f3a  ───────────────────  02de, or none: rebuild from the blobs

An engine is removed from the cache before its step, so one that fails half-way is never used again; and of
two tasks that step the same shard (one that Spark gave up but that still runs, and its retry) only one gets
it. The cache has at most one engine per shard.

When the blobs since the snapshot outweigh it, a new snapshot replaces them all, so a byte is rewritten a
bounded number of times however long the pipeline runs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from time import monotonic
from typing import NamedTuple
from uuid import uuid4

from tocsin.errors import TocsinError
from tocsin.spark.stages.limited_shard import LimitedShard
from tocsin.spark.stages.shard_logic import QueryShard, Shard
from tocsin.spark.stages.steps import (
    SHORT,
    Blobs,
    PipelinePaths,
    ShardMessageKind,
    ShardResult,
    ShardStep,
    StateMeta,
)
from tocsin.spark.stages.table_shard import TableShard
from tocsin.spark.stages.wire import unpack
from tocsin.spark.versions.batch import LIMITED, Pin, ShardPlacement, load_placement

__all__ = ["LiveShards", "StepCounters"]

SMALL = 1 << 16  # bytes of blobs that are not worth a new snapshot


@dataclass
class StepCounters:
    """What was done, and in how many seconds."""

    steps: int = 0
    made: int = 0  # new shards
    rebuilds: int = 0
    caught_up: int = 0  # by the blobs of later batches
    snapshots: int = 0
    step_seconds: float = 0.0
    rebuild_seconds: float = 0.0
    snapshot_seconds: float = 0.0

    def as_dict(self) -> dict[str, int | float]:
        return asdict(self)


class Taken(NamedTuple):
    """A cached shard, and the number of the first blob that it lacks, if any; and the placement of its state.

    None of a shard that is not cached, and of a version that is no longer on disk.
    """

    shard: Shard | None
    first: int | None
    before: ShardPlacement | None


class LiveShards:
    """A cache of shards with their engines. Not safe for several threads."""

    def __init__(self) -> None:
        self.counters = StepCounters()
        self._cache: dict[tuple[PipelinePaths, str], tuple[str, Shard, float]] = {}  # token, shard, last use

    def __len__(self) -> int:
        return len(self._cache)

    def take(self, step: ShardStep) -> Taken:
        """Remove the shard of a step from the cache, and say which blobs of the state it lacks."""
        token, shard, _ = self._cache.pop((step.paths, step.name), ("", None, 0.0))
        meta = step.meta
        if meta is None:
            self.counters.made += 1
            return Taken(_new(step), None, None)
        try:
            before = load_placement(step.paths.versions, meta.version, step.paths.layout)
        except TocsinError:
            return Taken(None, 0, None)
        if meta.uuid not in ("", before.uuid):
            return Taken(None, 0, None)
        if shard is not None and token == meta.token:
            return Taken(shard, None, before)
        first = meta.since_token(token)
        if shard is not None and first is not None and shard.can_catch_up(before):
            return Taken(shard, first, before)
        return Taken(None, 0, before)

    def run(self, step: ShardStep, taken: Taken, blobs: Blobs) -> ShardResult:
        """Run the step with what `take` returned, and cache the shard under its new token.

        `blobs` is called only if the shard lacks some.
        """
        facts, _ = unpack(step.messages[ShardMessageKind.TICK][0])
        pin = Pin(int(facts["version"]), int(facts["seq"]), int(facts["micros"]))
        counters, began = self.counters, monotonic()
        placement = load_placement(step.paths.versions, pin.version, step.paths.layout)
        shard = taken.shard
        if taken.first is not None:
            self._cache.pop((step.paths, step.name), None)  # another task's: never two of one shard
            assert step.meta is not None
            then = Pin(step.meta.version, 0, step.meta.micros)
            if shard is None:
                # Someone removed the versions and started again: keep rows, all subscriptions count as new.
                shard = _new(step)
                shard.restore(taken.before or placement.tables_alone(), then.time, blobs(0))
                counters.rebuilds += 1
            else:
                assert taken.before is not None
                shard.catch_up(taken.before, then, blobs(taken.first))
                counters.caught_up += 1
            counters.rebuild_seconds += monotonic() - began
            began = monotonic()
        assert shard is not None
        output = shard.step(placement, pin, step.messages)
        counters.steps += 1
        counters.step_seconds += monotonic() - began
        before = step.meta or StateMeta("", 0, 0, 0, 0, 0)
        token = f"{uuid4().hex}@{placement.uuid}"
        since = before.since + sum(map(len, output.blobs))
        count = before.blobs + len(output.blobs)
        replace = (
            output.rewrite
            or (step.meta is not None and taken.before is None)
            or count > shard.most_blobs
            or since > max(SMALL, before.snapshot)
            or shard.is_mostly_stale()
        )
        if replace:
            began = monotonic()
            output.blobs = shard.snapshot()
            counters.snapshots += 1
            counters.snapshot_seconds += monotonic() - began
            size = sum(map(len, output.blobs))
            first, count = before.first + before.blobs, len(output.blobs)
            line = f"{token[:SHORT]}:{count}"
            meta = StateMeta(token, pin.version, pin.micros, size, 0, count, first, line)
        else:
            line = before.line_with(token, count)
            meta = StateMeta(
                token, pin.version, pin.micros, before.snapshot, since, count, before.first, line
            )
        self._cache[step.paths, step.name] = (token, shard, monotonic())
        return ShardResult(output.messages, meta, output.blobs, replace)

    def drop(self, paths: PipelinePaths, name: str) -> None:
        """Drop a shard that no longer exists."""
        self._cache.pop((paths, name), None)

    def evict_idle(self, seconds: float) -> None:
        """Evict shards that nobody used for so long: their pipeline has ended or moved to another host."""
        before = monotonic() - seconds
        for key in [key for key, (_, _, used) in self._cache.items() if used < before]:
            del self._cache[key]

    def clear(self) -> None:
        self._cache.clear()


def _new(step: ShardStep) -> Shard:
    """A shard of its kind, without state."""
    kind: type[Shard] = TableShard
    if step.stage != "table":
        kind = LimitedShard if step.name.startswith(LIMITED) else QueryShard
    return kind(step.name, step.paths.layout, step.paths.output)
