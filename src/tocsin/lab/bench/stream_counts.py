"""Random joins of streams under a budget, counted: are emitted and missed pairs all pairs there are?

A case is drawn from its seed: key, conditions, clock, budget, policy, batches. Its pairs are found by loops.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tocsin.engine import Engine
from tocsin.limits.scores import JOIN_POLICIES

__all__ = ["CLOCKS", "CountedCase", "run_counted"]

CLOCKS = ("seq", "arrival", "event", "bytes")
"""What bounds a case beside its budget of rows; `bytes`: as `seq`, with a budget of bytes."""

_START = datetime(2024, 1, 1, tzinfo=UTC)
_DDL = "; ".join(f"CREATE STREAM {n} (k BIGINT, s STRING, i BIGINT, f BIGINT, at TIMESTAMP)" for n in "ab")
_FIELDS = {
    "k": pa.int64(),
    "s": pa.string(),
    "i": pa.int64(),
    "f": pa.int64(),
    "at": pa.timestamp("us", "UTC"),
}
_DISORDER = 20  # seconds by which event times differ from arrival
_LATE = (1, 5, 2 * _DISORDER)  # of event time; only with the last no event is too late for its partners


class _Event(NamedTuple):
    side: int
    key: int
    flag: int
    arrival: int  # seconds
    time: int  # seconds


class _Draw(NamedTuple):
    """What a case is."""

    clock: str
    text_key: bool
    window: int
    late: int
    bounds: tuple[int, int]  # each side's rows have a flag below it
    memory: str
    policy: str
    events: list[_Event]
    batches: list[tuple[int, int]]

    @property
    def sql(self) -> str:
        key = "a.k = b.k AND a.s = b.s" if self.text_key else "a.k = b.k"
        flags = " AND ".join(f"{n}.f < {bound}" for n, bound in zip("ab", self.bounds, strict=True))
        options = f"memory = {self.memory}, policy = '{self.policy}'"
        if self.clock == "arrival":
            options += f", window = '{self.window} seconds'"
        if self.clock == "event":
            options += f", window = '{self.window} seconds', time = 'at', late = '{self.late} seconds'"
        return f"SELECT a.i AS i, b.i AS j FROM a JOIN b ON {key} WHERE {flags} WITH ({options})"


@dataclass(frozen=True)
class CountedCase:
    """What one case gave; `false`: pairs emitted that are none, or twice."""

    clock: str
    policy: str
    pairs: int
    emitted: int
    missed: int
    is_exact: bool
    false: int
    sql: str

    @property
    def holds(self) -> bool:
        """Whether emitted and missed are all pairs, where that is claimed, and all emitted are pairs."""
        return not self.false and (not self.is_exact or self.emitted + self.missed == self.pairs)


def run_counted(seed: int, clock: str) -> CountedCase:
    """Run the case of a seed; one in five is saved and loaded on its way."""
    rng = random.Random(f"{seed} {clock}")
    case = _drawn(rng, clock)
    now = [_START]
    engine = Engine(clock=lambda: now[0])
    engine.execute(_DDL)
    id = engine.subscribe(case.sql).id
    reload_at = rng.randrange(len(case.batches)) if rng.random() < 0.2 else -1
    found: list[tuple[int, int]] = []
    for number, (low, high) in enumerate(case.batches):
        now[0] = _START + timedelta(seconds=case.events[low].arrival)
        deltas = engine.apply_all({name: _table(case, side, low, high) for side, name in enumerate("ab")})
        found += [(delta.row["i"], delta.row["j"]) for delta in deltas]
        if number == reload_at:
            with tempfile.TemporaryDirectory() as folder:
                engine.save(Path(folder) / "saved")
                engine = Engine.load(Path(folder) / "saved", clock=lambda: now[0])
    pairs = _pairs(case)
    report = engine.limits(id)
    false = len(found) - len(set(found) & pairs)
    return CountedCase(
        clock, case.policy, len(pairs), len(found), report.missed, report.exact, false, case.sql
    )


def _drawn(rng: random.Random, clock: str) -> _Draw:
    large = clock == "bytes"
    policy = rng.choice([name for name in JOIN_POLICIES if name != "heeb" or not large])  # it needs more
    count = 4000 if large else rng.randint(20, 400)
    memory = f"'{rng.randint(64, 100)} KB'" if large else str(rng.randint(1, max(2, count // 4)))
    keys, skew = rng.randint(2, max(3, count // 6)), rng.choice((1.0, 2.0))
    events, batches, arrival, low = [], [], 0, 0
    while low < count:
        arrival += rng.choice((0, 1, 2, 9))
        high = min(count, low + rng.randint(1, max(2, count // 8)))
        for _ in range(low, high):
            key = int(keys * rng.random() ** skew)
            time = arrival + rng.randint(-_DISORDER, 0)
            events.append(_Event(rng.randint(0, 1), key, rng.randint(0, 3), arrival, time))
        batches.append((low, high))
        low = high
    window = rng.randint(1, max(2, arrival))
    bounds = rng.choice(((4, 4), (4, 2), (3, 3)))
    late = rng.choice(_LATE)
    return _Draw(clock, rng.random() < 0.3, window, late, bounds, memory, policy, events, batches)


def _table(case: _Draw, side: int, low: int, high: int) -> pa.Table:
    rows = [
        {
            "k": event.key % 7 if case.text_key else event.key,
            "s": f"key {event.key // 7}",
            "i": number,
            "f": event.flag,
            "at": _START + timedelta(seconds=event.time),
        }
        for number, event in enumerate(case.events[low:high], low)
        if event.side == side
    ]
    return pa.Table.from_pylist(rows, pa.schema(list(_FIELDS.items())))


def _pairs(case: _Draw) -> set[tuple[int, int]]:
    """By loops: numbers of events of the two streams."""
    clocks = _clocks(case)
    by_key: Any = defaultdict(lambda: ([], []))
    for number, event in enumerate(case.events):
        if event.flag < case.bounds[event.side]:
            by_key[event.key][event.side].append((number, event))
    return {
        (i, j)
        for first, second in by_key.values()
        for i, a in first
        for j, b in second
        if _is_near(case, clocks, (i, a), (j, b))
    }


def _clocks(case: _Draw) -> list[tuple[int, float]]:
    """By event: the number of its batch, and the clock of event time when that begins."""
    found: list[tuple[int, float]] = []
    for number, (low, high) in enumerate(case.batches):
        latest = max((event.time for event in case.events[:low]), default=-math.inf)
        found += [(number, latest - case.late)] * (high - low)
    return found


def _is_near(
    case: _Draw, clocks: list[tuple[int, float]], a: tuple[int, _Event], b: tuple[int, _Event]
) -> bool:
    if case.clock in ("seq", "bytes"):
        return True
    if case.clock == "arrival":
        return abs(a[1].arrival - b[1].arrival) <= case.window
    if abs(a[1].time - b[1].time) > case.window:
        return False
    (first, older), (second, _) = sorted((a, b))
    batch, clock = clocks[second]
    return clocks[first][0] == batch or older.time + case.window >= clock
