"""An autoregressive stream, AR(1): X' = mean + φ (X - mean) + normal noise.

    joining   G(v | x): the expected visits to v's cell from the last value x, each weighed by q^steps
    caching   first passage: H = G(v | x) / (1 + G(v | v))

Many rows are scored from 513 exact values at the last value x. From φ = 0.98 on it counts as a walk.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tocsin.limits._kernels.numeric import ar1_visits
from tocsin.limits.models.base import Doubles, Steps
from tocsin.limits.models.numeric import NumericModel, Series
from tocsin.limits.models.recent import HISTORY
from tocsin.limits.models.walk import ENDLESS, WalkLaw, at_life, life_levels, walk_scores
from tocsin.model.columns import Index

__all__ = ["Ar1", "Ar1Law", "ar1_scores"]

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


class Ar1(NumericModel):
    """AR(1). `law`, `last`: the law and the last value, if they are known.

    >>> model = Ar1(law=Ar1Law(20.0, 0.72, 4.22, 0.1), last=25.0)
    >>> rows = Steps(np.arange(2), np.array([24.0, 5.0]), np.zeros(2), np.full(2, np.inf))
    >>> bool(np.diff(model.score(rows, 0.9, caching=True))[0] < 0.0)
    True
    """

    def __init__(
        self,
        window: int = HISTORY,
        series: Series | None = None,
        *,
        law: Ar1Law | None = None,
        last: float = math.nan,
    ) -> None:
        super().__init__(window, series)
        self.law, self._fixed, self._given_last = law, law is not None, last
        self._tables: dict[object, tuple[Doubles, float, float]] = {}

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

    @property
    def last(self) -> float:
        return self.series.history.last if self.series.history.count else self._given_last

    def score(self, rows: Steps, q: float, caching: bool) -> Doubles:
        self.refit()
        law, x = self.law, self.last
        if law is None or rows.values is None or math.isnan(x):
            return np.zeros(len(rows.keys))
        if law.phi >= WALK_PHI:
            steps = WalkLaw(0.0, law.sd, law.width)
            return walk_scores(steps, rows.values - x, rows.left, (q, caching), self._tables)
        if len(rows.keys) <= 2 * _NODES:
            left = np.where(rows.left < 1e15, np.maximum(0.0, np.floor(rows.left)), np.inf)
            return ar1_scores(law, rows.values, np.full(len(rows.keys), x), left, (q, caching))
        far = 8.0 * law.sd / math.sqrt(1.0 - law.phi**2)
        low, high = min(law.mean - far, x - far), max(law.mean + far, x + far)
        nodes = np.linspace(max(low, rows.values.min()), min(high, rows.values.max()), _NODES)
        levels, most = life_levels(np.minimum(rows.left, ENDLESS) if q == 1.0 else rows.left, q)
        here = np.full(_NODES, x)
        by_level = [ar1_scores(law, nodes, here, np.full(_NODES, life), (q, caching)) for life in levels]
        found = [np.interp(rows.values, nodes, h, left=0.0, right=0.0) for h in by_level]
        return at_life(found, levels, rows.left, most)

    def release(self) -> None:
        self._tables.clear()

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(table.nbytes for table, _, _ in self._tables.values())
