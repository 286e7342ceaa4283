"""Live engines by shard: the one whose token is in the state is used, any other is rebuilt from the blobs.

    state (before the batch)        engines kept here
    token 7f3a  ───────────────────  7f3a: use it, keep it as 91bc when done
    token 7f3a  ───────────────────  02de, or nothing: rebuild from the blobs

An engine is taken out before it is touched, so one that fails half-way is never met again, and of two
that step the same shard (a task that Spark has given up but that still runs, and its second try) only one
has it. There is at most one engine per shard here.

When the blobs since the snapshot outweigh it, a new snapshot replaces them all, so a byte is rewritten a
bounded number of times however long the pipeline runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from time import monotonic
from typing import cast
from uuid import uuid4

import pyarrow as pa

from tocsin.errors import TocsinError
from tocsin.spark.stages.shard_logic import Outcome, QueryShard, Shard, TableShard
from tocsin.spark.stages.state import Blobs, Done, Meta, Place, Step
from tocsin.spark.stages.wire import CHANGES, Message, unpack
from tocsin.spark.versions.placement import load_placement
from tocsin.spark.versions.versions import Pin, Versions

__all__ = ["Live", "Tally", "pin_of"]

SMALL = 1 << 16  # bytes of blobs that are not worth a new snapshot
MANY = 64  # blobs that are, whatever their size


@dataclass
class Tally:
    """What was done, and in how many seconds."""

    steps: int = 0
    made: int = 0  # shards that began
    rebuilds: int = 0
    snapshots: int = 0
    step_seconds: float = 0.0
    rebuild_seconds: float = 0.0
    snapshot_seconds: float = 0.0

    def as_dict(self) -> dict[str, int | float]:
        return asdict(self)


class Live:
    """Engines of shards. Not for several threads at once."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._kept: dict[tuple[Place, str], tuple[str, Shard, float]] = {}  # token, engine, when used

    def __len__(self) -> int:
        return len(self._kept)

    def step(self, step: Step, blobs: Blobs) -> Done:
        """The whole of it; `blobs` is asked only if the engine is not here."""
        shard = self.take(step)
        return self.run(step, shard, blobs() if shard is None else ())

    def take(self, step: Step) -> Shard | None:
        """The engine of a step, out of what is kept; None if it must be rebuilt from the blobs."""
        token, shard, _ = self._kept.pop((step.place, step.name), ("", None, 0.0))
        if step.meta is None:
            self.tally.made += 1
            return _make(step)
        return shard if token == step.meta.token and _is_there(step.place, step.meta) else None

    def run(self, step: Step, shard: Shard | None, blobs: Iterable[bytes]) -> Done:
        """Do the step with what `take` gave, and keep the engine."""
        pin = pin_of(step.messages["tick"][0])
        began = monotonic()
        if shard is None:
            self._kept.pop((step.place, step.name), None)  # someone else's: never two at once
            shard = _rebuilt(step, pin, blobs)
            self.tally.rebuilds += 1
            began = self._add("rebuild_seconds", began)
        outcome = _TAKE[step.stage](shard, step, pin)
        self.tally.steps += 1
        self._add("step_seconds", began)
        done = self._done(shard, step.meta, outcome, pin)
        self._kept[step.place, step.name] = (done.meta.token, shard, monotonic())
        return done

    def forget(self, place: Place, name: str) -> None:
        """A shard that is no more."""
        self._kept.pop((place, name), None)

    def forget_idle(self, seconds: float) -> None:
        """Let go of engines that nobody used for so long: their pipeline has ended or moved away."""
        before = monotonic() - seconds
        for key in [key for key, (_, _, used) in self._kept.items() if used < before]:
            del self._kept[key]

    def clear(self) -> None:
        self._kept.clear()

    def _done(self, shard: Shard, before: Meta | None, outcome: Outcome, pin: Pin) -> Done:
        token = f"{uuid4().hex}@{shard.placement.uuid}"
        size = sum(map(len, outcome.blobs))
        before = before or Meta("", 0, 0, 0, 0, 0)
        since, count = before.since + size, before.blobs + len(outcome.blobs)
        if outcome.rewrite or count > MANY or since > max(SMALL, before.snapshot):
            began = monotonic()
            blobs = shard.snapshot()
            self.tally.snapshots += 1
            self._add("snapshot_seconds", began)
            meta = Meta(token, pin.version, pin.micros, sum(map(len, blobs)), 0, len(blobs))
            return Done(outcome.messages, meta, blobs, whole=True)
        meta = Meta(token, pin.version, pin.micros, before.snapshot, since, count)
        return Done(outcome.messages, meta, outcome.blobs, whole=False)

    def _add(self, what: str, began: float) -> float:
        now = monotonic()
        setattr(self.tally, what, getattr(self.tally, what) + now - began)
        return now


def pin_of(tick: bytes) -> Pin:
    """The pin that a tick carries."""
    facts, _ = unpack(tick)
    return Pin(int(facts["version"]), int(facts["seq"]), int(facts["micros"]))


def _make(step: Step) -> Shard:
    kind = TableShard if step.stage == "table" else QueryShard
    return kind(step.name, step.place.layout)


def _is_there(place: Place, meta: Meta) -> bool:
    """Whether the version of a state is still the one on disk."""
    try:
        uuid = Versions(place.versions).uuid(meta.version)
    except TocsinError:
        return False
    return meta.uuid in ("", uuid)


def _rebuilt(step: Step, pin: Pin, blobs: Iterable[bytes]) -> Shard:
    """The shard as its state says.

    If the version it was at is not there any more (someone made the directory of versions anew), only
    the rows of its tables are kept, and the subscriptions of the batch are new ones.
    """
    place, meta = step.place, step.meta
    assert meta is not None
    same = _is_there(place, meta)
    placement = load_placement(place.versions, meta.version if same else pin.version, place.layout)
    if not same:
        placement = placement.tables_alone()
    shard = _make(step)
    shard.restore(placement, Pin(meta.version, 0, meta.micros).time, blobs)
    return shard


def _table_step(shard: Shard, step: Step, pin: Pin) -> Outcome:
    """Stage 1. Besides its own messages, shard 0 hands the tick on to every query shard."""
    shard = cast(TableShard, shard)
    placement = load_placement(step.place.versions, pin.version, step.place.layout)
    before = shard.placement
    parts = [unpack(payload)[1] for payload in step.messages.get("changes", ())]
    changes = pa.concat_tables(parts) if parts else CHANGES.empty_table()
    outcome = shard.step(placement, pin, changes)
    if shard.name == "0":
        tick = step.messages["tick"][0]
        outcome.messages += [Message(name, "tick", tick) for name in placement.by_shard]
        gone = [name for name in before.by_shard if name not in placement.by_shard]
        outcome.messages += [Message(name, "drop", tick) for name in gone]
    return outcome


def _query_step(shard: Shard, step: Step, pin: Pin) -> Outcome:
    """Stage 2."""
    shard = cast(QueryShard, shard)
    placement = load_placement(step.place.versions, pin.version, step.place.layout)
    return shard.step(placement, pin, step.messages.get("load", []), step.messages.get("changes", []))


_TAKE = {"table": _table_step, "query": _query_step}
