"""Workloads of select-joins: R(A, B) and S(B, C), ranges of A and C, and rows that enter R.

| | W1: independent | W2: the rows of a key are alike |
| --- | --- | --- |
| ranges of A | centres 30,000 or 70,000, sd 13,000; width N(15,000, 5,000) | width N(40,000, 10,000) |
| ranges of C | centres 20,000 or 80,000, sd 7,500; width N(6,000, 2,000) | 25,000, 75,000; N(3,000, 1,000) |
| R.A | N(50,000, 20,000) | the same |
| S.C | N(50,000, 12,000) | N(mean of the key, 500), means uniform |

Values are 0..99,999; 100 keys, 70 of them in S by Zipf's law (0.8); 5,100 rows of S. R is a window of the
newest rows. The parameters of the paper are lost: W1 and W2 are ours, and W2 was chosen after the fact for
what J08 claims (NETWORK.md, 11.1). J08, section 6.

Figures vary them: the rows of S by the relative join output rate, the rows that an event joins on average
(100 times as many rows of S), and the spread of centres, sd 13,000 - 2x and 7,500 - x, by `overlap` x.

>>> work = draw_workload("w2", 1000, 10, seed=1)
>>> work.points.shape, len(work.event_key)
((1000, 2, 2), 10)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import UsageError
from tocsin.model.columns import Index

__all__ = [
    *("DOMAIN", "JOINED", "KEYS", "PAST", "WORKLOADS", "Workload"),
    *("as_values", "draw_points", "draw_workload"),
]

DOMAIN, KEYS, JOINED, SKEW, PAST = 100_000, 100, 0.7, 0.8, 300


class _Spread(NamedTuple):
    """Ranges: centres at two places, and widths."""

    centres: tuple[int, int]
    sd: float
    width: tuple[float, float]


class _Shape(NamedTuple):
    a: _Spread
    c: _Spread
    s_values: tuple[float, float] | None  # None: by key

    def overlapping(self, x: float) -> _Shape:
        """Centres nearer to one another."""
        return self._replace(a=self.a._replace(sd=self.a.sd - 2 * x), c=self.c._replace(sd=self.c.sd - x))


WORKLOADS = {
    "w1": _Shape(
        _Spread((30_000, 70_000), 13_000, (15_000, 5_000)),
        _Spread((20_000, 80_000), 7_500, (6_000, 2_000)),
        (50_000, 12_000),
    ),
    "w2": _Shape(
        _Spread((30_000, 70_000), 13_000, (40_000, 10_000)),
        _Spread((25_000, 75_000), 7_500, (3_000, 1_000)),
        None,
    ),
}


@dataclass(frozen=True)
class Workload:
    """Codes are values; the rows of R are those of the beginning, then those of the events."""

    name: str
    points: NDArray[np.int64]  # subscription, plane (A, C), (l, r)
    s_key: Index
    s_value: Index
    r_key: Index
    r_value: Index
    event_key: Index
    event_value: Index
    past_key: Index  # of rows that entered before, from which zones by traffic are made
    past_value: Index

    def all_rows(self) -> tuple[Index, Index]:
        """Keys and values of the rows of R by id: those of the beginning, then those of the events."""
        keys, values = (self.r_key, self.event_key), (self.r_value, self.event_value)
        return np.concatenate(keys), np.concatenate(values)


def draw_workload(
    name: str,
    subscriptions: int,
    events: int,
    seed: int,
    rows: int = 16_000,
    s_rows: int = 5_100,
    overlap: float = 0,
) -> Workload:
    """Draw everything from one seed."""
    shape, rng = _shape_of(name).overlapping(overlap), np.random.default_rng(seed)
    points = draw_points(shape, subscriptions, rng)
    share = np.arange(1, int(KEYS * JOINED) + 1) ** -SKEW
    s_key = np.repeat(np.arange(len(share)), np.maximum(1, share / share.sum() * s_rows).astype(np.int64))
    if shape.s_values is None:
        s_value = as_values(rng.uniform(0, DOMAIN, KEYS)[s_key] + rng.normal(0, 500, len(s_key)))
    else:
        s_value = as_values(rng.normal(*shape.s_values, len(s_key)))
    drawn: list[Any] = []
    for count in (rows, events, PAST):
        drawn += [rng.integers(0, KEYS, count), as_values(rng.normal(50_000, 20_000, count))]
    return Workload(name, points, s_key, s_value, *drawn)


def draw_points(shape: _Shape | str, subscriptions: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The ranges of A and C of subscriptions."""
    one = _shape_of(shape) if isinstance(shape, str) else shape
    return np.stack([_ranges(subscriptions, one.a, rng), _ranges(subscriptions, one.c, rng)], axis=1)


def _shape_of(name: str) -> _Shape:
    if name not in WORKLOADS:
        raise UsageError(f"there is no workload {name!r}", hint=f"one of {', '.join(WORKLOADS)}")
    return WORKLOADS[name]


def as_values(drawn: NDArray[np.float64]) -> NDArray[np.int64]:
    """Numbers as values of the domain."""
    return drawn.clip(0, DOMAIN - 1).astype(np.int64)


def _ranges(count: int, spread: _Spread, rng: np.random.Generator) -> NDArray[np.int64]:
    middle = rng.normal(np.where(rng.random(count) < 0.5, *spread.centres), spread.sd)
    half = np.abs(rng.normal(*spread.width, count)) / 2
    low = as_values(middle - half)
    return np.stack([low, np.maximum(low, as_values(middle + half))], axis=1)
