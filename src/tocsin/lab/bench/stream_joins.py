"""Joins of streams under a budget: speed and memory at scale, what a budget costs, Spark's own join beside.

Each workload is a list of batches by stream; its exact number of pairs is counted from its keys alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.engine import Engine

__all__ = [
    "JoinRun",
    "KeyedEvents",
    "Scale",
    "events_between",
    "once",
    "pairs_within",
    "resident_bytes",
    "run_events",
    "run_scale",
    "zipf",
]

DDL = "CREATE STREAM a (k BIGINT, x DOUBLE); CREATE STREAM b (k BIGINT, y DOUBLE)"
QUERY = "SELECT a.k, a.x, b.y FROM a JOIN b ON a.k = b.k"
_START = datetime(2024, 1, 1, tzinfo=UTC)


def resident_bytes() -> int:
    """What the process has in memory (Linux)."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


# -- scale ---------------------------------------------------------------------------------------------


class Scale(NamedTuple):
    """Batches of one stream after the other, of uniform keys."""

    keys: int
    batch: int
    batches: int
    memory: str  # as in WITH (memory = ...)
    seed: int = 0


@dataclass
class JoinRun:
    """What a run measured; `bytes_over` is the largest growth of the process over the budget."""

    events: int
    seconds: float
    scoring: float
    emitted: int
    exact: int
    report: Any
    growth: int


def run_scale(scale: Scale, warm: int) -> JoinRun:
    """Run all batches; the time is that of the batches after the first `warm`."""
    rng = np.random.default_rng(scale.seed)
    engine = Engine(clock=lambda: _START)
    engine.execute(DDL)
    key = engine.subscribe(f"{QUERY} WITH (memory = {scale.memory})")
    room: Any = engine._roster.rooms["streams"]
    counts = np.full((2, scale.keys), 0, np.int64)  # its memory is taken now
    spent = [0.0, 0.0]
    emitted, begun, peak = 0, 0, 0
    for number in range(scale.batches):
        side = number % 2
        keys = rng.integers(0, scale.keys, scale.batch)
        counts[side] += np.bincount(keys, minlength=scale.keys)
        batch = pa.table({"k": keys, "xy"[side]: rng.random(scale.batch)})
        if number == 2:  # everything is loaded
            begun = resident_bytes()
            _watch(room, spent)
        if number == warm:
            spent[:] = 0.0, 0.0
        began = time.perf_counter()
        emitted += len(engine.apply("ab"[side], batch))
        spent[0] += time.perf_counter() - began
        peak = max(peak, resident_bytes() - begun) if begun else 0
    exact = int((counts[0] * counts[1]).sum())
    events = (scale.batches - warm) * scale.batch
    return JoinRun(events, spent[0], spent[1], emitted, exact, engine.limits(key), peak)


def _watch(room: Any, spent: list[float]) -> None:
    """Measure the time of scoring and dropping."""
    (family,) = room._families.values()
    shrink = family.rows._shrink

    def timed(now: int, appended: int) -> None:
        began = time.perf_counter()
        shrink(now, appended)
        spent[1] += time.perf_counter() - began

    family.rows._shrink = timed


# -- what a budget costs -------------------------------------------------------------------------------


class KeyedEvents(NamedTuple):
    """Events one by one: which stream, which key. Event n comes at second n."""

    side: NDArray[np.int64]
    key: NDArray[np.int64]
    window: int  # seconds


def zipf(events: int, keys: int, exponent: float, window: int, seed: int = 1) -> KeyedEvents:
    """Both streams draw keys from one Zipf law: sessions, products."""
    rng = np.random.default_rng(seed)
    p = 1.0 / np.arange(1, keys + 1) ** exponent
    side = rng.integers(0, 2, events)
    return KeyedEvents(side, rng.choice(keys, events, p=p / p.sum()), window)


def once(events: int, window: int, peak: float, seed: int = 1) -> KeyedEvents:
    """Keys that come once; 30 % are answered by the other stream, a lognormal delay later."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(events):
        found.append((float(number), 0, number))
        if rng.random() < 0.3:
            found.append((number + peak * math.exp(0.4 * rng.standard_normal()), 1, number))
    found = sorted(found)[:events]
    side, key = np.array([f[1] for f in found]), np.array([f[2] for f in found])
    return KeyedEvents(side, key, window)


def pairs_within(events: KeyedEvents, first: int = 0, batch: int = 1) -> int:
    """How many pairs of equal keys are at most the window apart, and not complete before event `first`."""
    waiting: dict[tuple[int, int], list[int]] = {}
    total = 0
    for number, (side, key) in enumerate(zip(events.side.tolist(), events.key.tolist(), strict=True)):
        time = number - number % batch  # events of a batch come at one time
        if time >= first:
            partners = waiting.get((1 - side, key), ())
            total += sum(1 for at in partners if time - at <= events.window)
        waiting.setdefault((side, key), []).append(time)
    return total


def events_between(events: KeyedEvents, batch: int) -> Iterator[tuple[int, int]]:
    for first in range(0, len(events.key), batch):
        yield first, min(first + batch, len(events.key))


def run_events(events: KeyedEvents, options: str, batch: int, first: int) -> tuple[int, Any]:
    """Pairs emitted at event `first` or later, and the report. Events of a batch come at one time."""
    now = [_START]
    engine = Engine(clock=lambda: now[0])
    engine.execute("CREATE STREAM a (k BIGINT); CREATE STREAM b (k BIGINT)")
    sql = f"SELECT a.k FROM a JOIN b ON a.k = b.k WITH (window = '{events.window} seconds'{options})"
    key, emitted = engine.subscribe(sql), 0
    for low, high in events_between(events, batch):
        now[0] = _START + timedelta(seconds=low)
        part, sides = events.key[low:high], events.side[low:high]
        found = engine.apply_all({n: pa.table({"k": part[sides == s]}) for s, n in enumerate("ab")})
        emitted += len(found) if low >= first else 0
    return emitted, engine.limits(key)
