"""Live engines by shard: reused if the token in the state is theirs, otherwise rebuilt from the blobs.

    state (before the batch)        engines cached here
    token 7f3a  ───────────────────  7f3a: use it, cache it as 91bc when done
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
from uuid import uuid4

from tocsin.errors import TocsinError
from tocsin.spark.stages.limited_shard import LimitedShard
from tocsin.spark.stages.shard_logic import QueryShard, Shard, TableShard
from tocsin.spark.stages.steps import (
    Blobs,
    PipelinePaths,
    ShardMessageKind,
    ShardResult,
    ShardStep,
    StateMeta,
)
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
    snapshots: int = 0
    step_seconds: float = 0.0
    rebuild_seconds: float = 0.0
    snapshot_seconds: float = 0.0

    def as_dict(self) -> dict[str, int | float]:
        return asdict(self)


class LiveShards:
    """A cache of shards with their engines. Not safe for several threads."""

    def __init__(self) -> None:
        self.counters = StepCounters()
        self._cache: dict[tuple[PipelinePaths, str], tuple[str, Shard, float]] = {}  # token, shard, last use

    def __len__(self) -> int:
        return len(self._cache)

    def step(self, step: ShardStep, blobs: Blobs) -> ShardResult:
        """Run a step; `blobs` is called only if the engine is not cached."""
        shard = self.take(step)
        return self.run(step, shard, blobs() if shard is None else ())

    def take(self, step: ShardStep) -> Shard | None:
        """Remove the shard of a step from the cache; None if it must be rebuilt from the blobs."""
        token, shard, _ = self._cache.pop((step.paths, step.name), ("", None, 0.0))
        if step.meta is None:
            self.counters.made += 1
            return _new(step)
        return shard if token == step.meta.token and _has_version(step.paths, step.meta) else None

    def run(self, step: ShardStep, shard: Shard | None, blobs: Iterable[bytes]) -> ShardResult:
        """Run the step with what `take` returned, and cache the shard under its new token."""
        facts, _ = unpack(step.messages[ShardMessageKind.TICK][0])
        pin = Pin(int(facts["version"]), int(facts["seq"]), int(facts["micros"]))
        counters, began = self.counters, monotonic()
        if shard is None:
            self._cache.pop((step.paths, step.name), None)  # another task's: never two of one shard
            shard = _rebuilt(step, pin, blobs)
            counters.rebuilds += 1
            counters.rebuild_seconds += monotonic() - began
            began = monotonic()
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
            meta = StateMeta(token, pin.version, pin.micros, size, 0, len(output.blobs))
        else:
            meta = StateMeta(token, pin.version, pin.micros, before.snapshot, since, count)
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
