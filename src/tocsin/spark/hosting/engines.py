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

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from time import monotonic
from typing import NamedTuple
from uuid import uuid4

from tocsin.errors import TocsinError
from tocsin.spark.stages.limited_shard import LimitedShard
from tocsin.spark.stages.query_shard import QueryShard
from tocsin.spark.stages.shard_logic import Shard
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
from tocsin.spark.versions.pins import Pin
from tocsin.spark.versions.placement import LIMITED, load_placement
from tocsin.spark.versions.store import Versions

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
    """A cached shard, if there is one, and the number of the first blob that it lacks, if any."""

    shard: Shard | None
    first: int | None


class LiveShards:
    """A cache of shards with their engines. Not safe for several threads."""

    def __init__(self) -> None:
        self.counters = StepCounters()
        self._cache: dict[tuple[PipelinePaths, str], tuple[str, Shard, float]] = {}  # token, shard, last use

    def __len__(self) -> int:
        return len(self._cache)

    def step(self, step: ShardStep, blobs: Blobs) -> ShardResult:
        """Run a step; `blobs` is called only if the engine is not cached as it was before the step."""
        taken = self.take(step)
        return self.run(step, taken, () if taken.first is None else blobs(taken.first))

    def take(self, step: ShardStep) -> Taken:
        """Remove the shard of a step from the cache, and say which blobs of the state it lacks."""
        token, shard, _ = self._cache.pop((step.paths, step.name), ("", None, 0.0))
        meta = step.meta
        if meta is None:
            self.counters.made += 1
            return Taken(_new(step), None)
        if shard is None or not _has_version(step.paths, meta):
            return Taken(None, 0)
        if token == meta.token:
            return Taken(shard, None)
        first = meta.since_token(token)
        if first is not None and shard.can_catch_up(
            load_placement(step.paths.versions, meta.version, step.paths.layout)
        ):
            return Taken(shard, first)
        return Taken(None, 0)

    def run(self, step: ShardStep, taken: Taken, blobs: Iterable[bytes]) -> ShardResult:
        """Run the step with what `take` returned, and cache the shard under its new token."""
        facts, _ = unpack(step.messages[ShardMessageKind.TICK][0])
        pin = Pin(int(facts["version"]), int(facts["seq"]), int(facts["micros"]))
        counters, began = self.counters, monotonic()
        shard = taken.shard
        if taken.first is not None:
            self._cache.pop((step.paths, step.name), None)  # another task's: never two of one shard
            if shard is None:
                shard = _rebuilt(step, pin, blobs)
                counters.rebuilds += 1
            else:
                assert step.meta is not None
                placement = load_placement(step.paths.versions, step.meta.version, step.paths.layout)
                shard.catch_up(placement, Pin(step.meta.version, 0, step.meta.micros), blobs)
                counters.caught_up += 1
            counters.rebuild_seconds += monotonic() - began
            began = monotonic()
        assert shard is not None
        placement = load_placement(step.paths.versions, pin.version, step.paths.layout)
        output = shard.step(placement, pin, step.messages)
        counters.steps += 1
        counters.step_seconds += monotonic() - began
        before = step.meta or StateMeta("", 0, 0, 0, 0, 0)
        token = f"{uuid4().hex}@{placement.uuid}"
        since = before.since + sum(map(len, output.blobs))
        count = before.blobs + len(output.blobs)
        replace = (
            output.rewrite
            or (step.meta is not None and not _has_version(step.paths, step.meta))
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


def _has_version(paths: PipelinePaths, meta: StateMeta) -> bool:
    """Whether the version of a state is still the one on disk."""
    try:
        uuid = Versions(paths.versions).manifest(meta.version)["uuid"]
    except TocsinError:
        return False
    return meta.uuid in ("", uuid)


def _rebuilt(step: ShardStep, pin: Pin, blobs: Iterable[bytes]) -> Shard:
    """The shard that a state describes.

    If its version no longer exists (someone removed the directory of versions and started again), only the
    rows of its tables are kept, and all subscriptions of the batch count as new.
    """
    paths, meta = step.paths, step.meta
    assert meta is not None
    exists = _has_version(paths, meta)
    placement = load_placement(paths.versions, meta.version if exists else pin.version, paths.layout)
    if not exists:
        placement = placement.tables_alone()
    shard = _new(step)
    shard.restore(placement, Pin(meta.version, 0, meta.micros).time, blobs)
    return shard
