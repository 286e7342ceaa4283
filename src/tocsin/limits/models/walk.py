"""A random walk: each value is the last one plus a step of normal length, with drift.

A kept value is worth what its distance from the last value says (`tables.py`: visits).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tocsin.limits.models.base import Doubles, Steps
from tocsin.limits.models.numeric import NumericModel, Series
from tocsin.limits.models.recent import HISTORY
from tocsin.limits.models.tables import normal_steps, visits
from tocsin.model.columns import Index

__all__ = ["ENDLESS", "Walk", "WalkLaw", "at_life", "life_levels", "walk_scores"]

ENDLESS = 1e6  # steps that count as all, if later ones weigh as much
_LEAST_SIZE, _MOST_SIZE = 1 << 12, 1 << 14
_LEVELS = 24  # tables for different remaining lives, at most


class WalkLaw(NamedTuple):
    """Mean and deviation of a step, width of the values' grid; `steps`: a circular pmf instead."""

    mean: float
    sd: float
    width: float
    steps: Doubles | None = None


class Walk(NumericModel):
    """A random walk. `law`, `last`: the law and the last value, if they are known.

    >>> law = WalkLaw(1.0, 0.01, 1.0)  # always one up
    >>> model = Walk(law=law, last=10.0)
    >>> rows = Steps(np.arange(3), np.array([11.0, 12.0, 9.0]), np.zeros(3), np.full(3, np.inf))
    >>> model.score(rows, 0.5, caching=False).round(4)
    array([0.5 , 0.25, 0.  ])
    """

    def __init__(
        self,
        window: int = HISTORY,
        series: Series | None = None,
        *,
        law: WalkLaw | None = None,
        last: float = math.nan,
    ) -> None:
        super().__init__(window, series)
        self.law, self._fixed, self._given_last = law, law is not None, last
        self._tables: dict[object, tuple[Doubles, float, float]] = {}

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

    @property
    def last(self) -> float:
        return self.series.history.last if self.series.history.count else self._given_last

    def score(self, rows: Steps, q: float, caching: bool) -> Doubles:
        self.refit()
        if self.law is None or rows.values is None or math.isnan(self.last):
            return np.zeros(len(rows.keys))
        return walk_scores(self.law, rows.values - self.last, rows.left, (q, caching), self._tables)

    def release(self) -> None:
        self._tables.clear()

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(table.nbytes for table, _, _ in self._tables.values())


def walk_scores(
    law: WalkLaw,
    distance: Doubles,
    left: Doubles,
    setting: tuple[float, bool],
    tables: dict[object, tuple[Doubles, float, float]],
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
