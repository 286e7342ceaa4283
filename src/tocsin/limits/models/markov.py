"""Streams whose next value depends on the last one: a random walk with drift, and AR(1).

    walk   X' = X + a step of normal length      what a kept value is worth depends on its distance from X
    AR(1)  X' = mean + phi (X - mean) + noise  ... on the value and on X; from phi = 0.98 on a walk

    joining   G(v | x): the expected visits to v's cell from the last value x, each weighed by q^steps
    caching   first passage: H = G(v | x) / (1 + G(v | v))

A walk's visits are looked up by distance (`tables.py`: visits). Many rows of an AR(1) stream are scored from
513 exact values at the last value x.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from tocsin.limits._kernels.models import ar1_visits
from tocsin.limits.models.base import HISTORY, Doubles, Steps
from tocsin.limits.models.numeric import NumericModel, Series
from tocsin.limits.models.tables import normal_steps, visits
from tocsin.model.columns import Index

__all__ = [
    "ENDLESS",
    "Ar1",
    "Ar1Law",
    "Walk",
    "WalkLaw",
    "ar1_scores",
    "at_life",
    "life_levels",
    "walk_scores",
]

ENDLESS = 1e6  # steps that count as all, if later ones weigh as much
_LEAST_SIZE, _MOST_SIZE = 1 << 12, 1 << 14
_LEVELS = 24  # tables for different remaining lives, at most


class WalkLaw(NamedTuple):
    """Mean and deviation of a step, width of the values' grid; `steps`: a circular pmf instead."""

    mean: float
    sd: float
    width: float
    steps: Doubles | None = None


VisitTables = dict[object, tuple[Doubles, float, float]]
"""By horizon and remaining life: visits by distance in cells, a cell's width, the grid's share of a cell."""


_Law = TypeVar("_Law", bound=tuple[object, ...])


class _FromLastValue(NumericModel, Generic[_Law]):
    """What a kept value is worth depends on the last one; `law`, `last`: the law and that value, if known."""

    def __init__(
        self,
        window: int = HISTORY,
        series: Series | None = None,
        *,
        law: _Law | None = None,
        last: float = math.nan,
    ) -> None:
        super().__init__(window, series)
        self.law, self._fixed, self._given_last = law, law is not None, last
        self._tables: VisitTables = {}

    @property
    def last(self) -> float:
        return self.series.history.last if self.series.history.count else self._given_last

    def score(self, rows: Steps, q: float, caching: bool) -> Doubles:
        self.refit()
        if self.law is None or rows.values is None or math.isnan(self.last):
            return np.zeros(len(rows.keys))
        return self._score(self.law, rows.values, rows.left, (q, caching))

    @abstractmethod
    def _score(self, law: _Law, values: Doubles, left: Doubles, setting: tuple[float, bool]) -> Doubles:
        """H of values under a law; `setting`: q, caching."""

    def release(self) -> None:
        self._tables.clear()

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(table.nbytes for table, _, _ in self._tables.values())


class Walk(_FromLastValue[WalkLaw]):
    """A random walk. `law`, `last`: the law and the last value, if they are known.

    >>> law = WalkLaw(1.0, 0.01, 1.0)  # always one up
    >>> model = Walk(law=law, last=10.0)
    >>> rows = Steps(np.arange(3), np.array([11.0, 12.0, 9.0]), np.zeros(3), np.full(3, np.inf))
    >>> model.score(rows, 0.5, caching=False).round(4)
    array([0.5 , 0.25, 0.  ])
    """

    def predict(self, values: Doubles, positions: Index) -> tuple[Doubles, Doubles]:
        steps = np.diff(values, prepend=values[:1])
        sums, n = self._moving(lambda: np.stack([steps, steps * steps]), positions, self.window)
        mean = sums[0] / n
        variance = np.maximum(sums[1] / n - mean * mean, 0.0)
        return values[positions - 1] + mean, np.sqrt(variance)

    def fit(self, values: Doubles, count: int) -> None:
        steps = np.diff(values)
        width = self.series.width
        law = WalkLaw(float(steps.mean()), max(float(steps.std()), width * math.sqrt(1.0 / 12.0)), width)
        if law != self.law:
            self.law = law
            self._tables.clear()

    def _score(self, law: WalkLaw, values: Doubles, left: Doubles, setting: tuple[float, bool]) -> Doubles:
        return walk_scores(law, values - self.last, left, setting, self._tables)


def walk_scores(
    law: WalkLaw,
    distance: Doubles,
    left: Doubles,
    setting: tuple[float, bool],
    tables: VisitTables,
) -> Doubles:
    """H by distance and remaining life, interpolated between levels of remaining life; `tables` is kept.

    With a finite life, caching divides the visits within it by those to where one is: an approximation.
    """
    q, caching = setting
    left = np.minimum(left, ENDLESS) if q == 1.0 else left
    levels, most = life_levels(left, q)
    if len(tables) > 4 * _LEVELS:
        tables.clear()
    by_level = []
    for life in levels:
        if (q, life) not in tables:
            tables[q, life] = _visit_table(law, q, life)
        g, cell, share = tables[q, life]
        place = distance / cell
        inside = np.abs(place) < len(g) // 2 - 1
        low = np.floor(np.where(inside, place, 0.0)).astype(np.int64)
        part = np.where(inside, place - low, 0.0)
        found = np.where(inside, (1.0 - part) * g[low % len(g)] + part * g[(low + 1) % len(g)], 0.0) * share
        by_level.append(found / (1.0 + g[0] * share) if caching else found)
    return at_life(by_level, levels, left, most)


def life_levels(left: Doubles, q: float) -> tuple[list[float], float]:
    """The remaining lives to score exactly, ascending, and from where on a life is as good as endless.

    >>> life_levels(np.array([3.0, np.inf, 0.5]), 0.5)
    ([0.0, 3.0, inf], 60.0)
    """
    most = 30.0 / (1.0 - q) if q < 1.0 else math.inf  # q to this power weighs nothing
    lives = np.unique(np.maximum(0.0, np.floor(left)))
    lives = np.unique(np.where(lives >= most, np.inf, lives))
    finite = lives[np.isfinite(lives)]
    if len(finite) > _LEVELS:
        finite = np.unique(np.concatenate([[0.0], np.rint(np.geomspace(1.0, finite[-1], _LEVELS - 1))]))
    return [*finite.tolist(), *([math.inf] if len(lives) and math.isinf(lives[-1]) else [])], most


def at_life(by_level: list[Doubles], levels: list[float], left: Doubles, most: float) -> Doubles:
    """Scores by remaining life, between those at the levels."""
    if len(levels) <= 1:
        return np.where(left > 0.0, by_level[0] if levels else 0.0, 0.0)
    known = np.array([life if math.isfinite(life) else min(most, 1e300) for life in levels])
    at = np.clip(np.maximum(0.0, np.floor(np.minimum(left, known[-1]))), known[0], known[-1])
    upper = np.clip(np.searchsorted(known, at), 1, len(known) - 1)
    part = (at - known[upper - 1]) / (known[upper] - known[upper - 1])
    table, column = np.array(by_level), np.arange(len(left))
    return (1.0 - part) * table[upper - 1, column] + part * table[upper, column]


def _visit_table(law: WalkLaw, q: float, life: float) -> tuple[Doubles, float, float]:
    """Visits by distance in cells, the width of a cell, and the grid's share of one."""
    if law.steps is not None:
        return visits(law.steps, q, life), law.width, 1.0
    steps = min(life, 12.0 / (1.0 - q) if q < 1.0 else math.inf)
    span = 2.0 * (abs(law.mean) * steps + 8.0 * law.sd * math.sqrt(max(1.0, steps))) / law.width
    cell = law.width * max(1.0, span / _MOST_SIZE)
    size = 2 ** math.ceil(math.log2(max(2.0, span * law.width / cell)))
    size = min(_MOST_SIZE, max(_LEAST_SIZE, size))
    return visits(normal_steps(law.mean / cell, law.sd / cell, size), q, life), cell, law.width / cell


LEAST_PHI, WALK_PHI = 0.02, 0.98
_NODES = 513


class Ar1Law(NamedTuple):
    """Mean, φ and the deviation of the noise; `width` of the values' grid."""

    mean: float
    phi: float
    sd: float
    width: float


def ar1_scores(
    law: Ar1Law, values: Doubles, starts: Doubles, left: Doubles, setting: tuple[float, bool]
) -> Doubles:
    """H of values while the stream is at `starts`; `setting`: q, caching.

    >>> law = Ar1Law(20.0, 0.72, 4.22, 1.0)
    >>> setting = (math.exp(-0.1), False)
    >>> ar1_scores(law, np.array([20.0]), np.array([25.0]), np.array([np.inf]), setting).round(4)
    array([0.6269])
    """
    q, caching = setting
    left = np.minimum(left, ENDLESS) if q == 1.0 else left
    numbers = np.array(law, np.float64)
    out = np.empty(len(values))
    ar1_visits(values, starts, left, numbers, q, out)
    if caching:
        again = np.empty(len(values))
        ar1_visits(values, values, left, numbers, q, again)
        out /= 1.0 + again
    return out


class Ar1(_FromLastValue[Ar1Law]):
    """AR(1). `law`, `last`: the law and the last value, if they are known.

    >>> model = Ar1(law=Ar1Law(20.0, 0.72, 4.22, 0.1), last=25.0)
    >>> rows = Steps(np.arange(2), np.array([24.0, 5.0]), np.zeros(2), np.full(2, np.inf))
    >>> bool(np.diff(model.score(rows, 0.9, caching=True))[0] < 0.0)
    True
    """

    def predict(self, values: Doubles, positions: Index) -> tuple[Doubles, Doubles]:
        x = values - values[0]
        y, z = x[1:], x[:-1]
        sums, n = self._moving(lambda: np.stack([z, y, z * z, z * y, y * y]), positions - 1, self.window - 1)
        mz, my, mzz, mzy, myy = sums / n
        spread = np.maximum(mzz - mz * mz, 1e-12)
        phi = np.clip((mzy - mz * my) / spread, LEAST_PHI, WALK_PHI)
        mean = 0.5 * (mz + my)
        # the mean of (y - mean - phi (z - mean))^2
        a = (1.0 - phi) * mean
        variance = myy + a * a + phi * phi * mzz - 2.0 * a * my - 2.0 * phi * mzy + 2.0 * a * phi * mz
        at = a + phi * x[positions - 1] + values[0]
        return at, np.sqrt(np.maximum(variance, 0.0) * n / np.maximum(n - 3.0, 1.0))

    def fit(self, values: Doubles, count: int) -> None:
        mean = float(values.mean())
        z, y = values[:-1] - values[:-1].mean(), values[1:] - values[1:].mean()
        phi = float((z * y).sum() / max(1e-300, float((z * z).sum())))
        phi = min(1.0, max(LEAST_PHI, phi))
        sd = max(float((y - phi * z).std()), self.series.width * math.sqrt(1.0 / 12.0))
        self.law = Ar1Law(mean, phi, sd, self.series.width)
        self._tables.clear()

    def _score(self, law: Ar1Law, values: Doubles, left: Doubles, setting: tuple[float, bool]) -> Doubles:
        x = self.last
        if law.phi >= WALK_PHI:
            return walk_scores(WalkLaw(0.0, law.sd, law.width), values - x, left, setting, self._tables)
        if len(values) <= 2 * _NODES:
            whole = np.where(left < 1e15, np.maximum(0.0, np.floor(left)), np.inf)
            return ar1_scores(law, values, np.full(len(values), x), whole, setting)
        far = 8.0 * law.sd / math.sqrt(1.0 - law.phi**2)
        low, high = min(law.mean - far, x - far), max(law.mean + far, x + far)
        nodes = np.linspace(max(low, values.min()), min(high, values.max()), _NODES)
        levels, most = life_levels(np.minimum(left, ENDLESS) if setting[0] == 1.0 else left, setting[0])
        here = np.full(_NODES, x)
        by_level = [ar1_scores(law, nodes, here, np.full(_NODES, life), setting) for life in levels]
        found = [np.interp(values, nodes, h, left=0.0, right=0.0) for h in by_level]
        return at_life(found, levels, left, most)
