"""Times of the four plans over small workloads, from which the constants of their costs are fitted.

Numbers of queries, joining rows and selected queries are varied on a grid; ranges of the other table stand
around some points, some of them scattered, so that Hotspot has both of its parts to do. It takes about two
seconds, and need not be right everywhere: the router corrects what it predicts as it goes.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from tocsin.join.costs import Numbers, Row, Sizes, basis, terms
from tocsin.join.strategies.base import JoinStrategy
from tocsin.join.strategies.equality import EqualityStrategy, Hotspot, JoinFirstE, JoinFirstS, SelectFirst
from tocsin.join.strategies.storage import JoinStorage, Ranges
from tocsin.model.columns import Index

__all__ = ["measure_plans"]

_QUERIES = {  # number: points, share of scattered, length of the other ranges as a share of the domain
    2000: (10, 0.5, 0.01),
    10_000: (60, 0.02, 0.001),
    30_000: (20, 0.2, 0.0001),
}
_JOINING, _SELECTED = (1, 30, 1000), (0.0005, 0.02, 0.4)
_DOMAIN, _ROWS, _EVENTS = 10**8, 20_000, 32
_SLOWEST = 2e-3  # seconds for an event that is not worth the wait


def measure_plans(seed: int = 0, passes: int = 1) -> Mapping[str, tuple[Numbers, Numbers]]:
    """By plan: a row of factors for each measurement, and microseconds per event.

    The best of some passes over all workloads, which are far apart: others may use the machine for a while.
    """
    rng = np.random.default_rng(seed)
    factors: dict[str, list[Numbers]] = defaultdict(list)
    work = [
        _workload(rng, queries, shape, share) for queries, shape in _QUERIES.items() for share in _SELECTED
    ]
    tables = [_table(rng, joining) for joining in _JOINING]
    best: dict[str, Numbers] = {}
    for turn in range(passes):
        micros: dict[str, list[float]] = defaultdict(list)
        for storage, plans, ranges in work:
            for joining, (keys, values, events) in zip(_JOINING, tables, strict=True):
                storage.load(1, keys, values)
                for plan in plans:
                    if not turn:
                        factors[plan.name].append(_factors(plan, plans[3], ranges, joining, events[1]))
                    micros[plan.name].append(_timed(plan, *events))
        best = {name: np.minimum(found, best.get(name, np.inf)) for name, found in micros.items()}
    return {name: (np.array(factors[name]), best[name]) for name in factors}


def _workload(
    rng: np.random.Generator, queries: int, shape: tuple[int, float, float], selected: float
) -> tuple[JoinStorage, list[EqualityStrategy], Ranges]:
    """Queries in all four plans."""
    ranges, storage = _ranges(rng, queries, shape, selected), JoinStorage()
    plans: list[EqualityStrategy] = [make(storage) for make in (JoinFirstE, JoinFirstS, SelectFirst, Hotspot)]
    for plan in plans:
        plan.add(np.arange(queries), ranges)
    return storage, plans, ranges


def _table(rng: np.random.Generator, joining: int) -> tuple[Index, Index, tuple[Index, Index]]:
    """Keys and values of a table with so many rows a key, and keys and values of events."""
    keys = rng.integers(0, _ROWS // joining, _ROWS)
    return keys, rng.integers(0, _DOMAIN, _ROWS), (keys[:_EVENTS], rng.integers(0, _DOMAIN, _EVENTS))


def _ranges(
    rng: np.random.Generator, queries: int, shape: tuple[int, float, float], selected: float
) -> Ranges:
    points, scattered, length = shape
    at_points = (rng.integers(0, points, queries) + 0.5) / points
    around = np.where(rng.random(queries) < scattered, rng.random(queries), at_points) * _DOMAIN
    left, right = rng.exponential(length * _DOMAIN / 2, (2, queries))
    middle = rng.random(queries) * _DOMAIN
    half = selected * _DOMAIN * rng.random(queries)
    ends = around - left, around + right, middle - half, middle + half
    return Ranges(*(part.astype(np.int64) for part in ends))


def _factors(
    plan: JoinStrategy, hotspot: JoinStrategy, ranges: Ranges, joining: int, values: Index
) -> Numbers:
    """The factors of a plan's constants, on average over the events."""
    assert isinstance(hotspot, Hotspot)
    index, queries = hotspot.sets[0].index, len(ranges.low)
    holds = (ranges.own_low[:, None] <= values) & (values <= ranges.own_high[:, None])
    selected = float(holds.sum(axis=0).mean())
    hot = float(holds[index.slots()].sum(axis=0).mean())
    sizes = Sizes(_ROWS, queries, index.sizes().tolist(), queries - len(index))
    chance = float((ranges.high - ranges.low).mean()) / _DOMAIN
    return basis(Row(joining, selected, selected - hot, chance)) @ terms(plan.name, sizes)


def _timed(plan: JoinStrategy, keys: Index, values: Index) -> float:
    """The best of some runs, in microseconds per event."""
    arrays, order, out = plan.plan(0), plan.storage.other(0), plan.buffer()
    counts = np.zeros(len(keys), np.int64)
    plan.batch(arrays, order, keys[:1], values[:1], out, counts)
    best = np.inf
    for _ in range(3):
        began = time.perf_counter()
        plan.batch(arrays, order, keys, values, out, counts)
        best = min(best, (time.perf_counter() - began) / len(keys))
        if best > _SLOWEST:
            break
    return 1e6 * best
