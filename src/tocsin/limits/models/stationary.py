"""A stream whose keys are drawn independently from one distribution: counts by key."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from tocsin.limits._kernels.models import ESCAPE, add_counts, stationary_scores
from tocsin.limits.models.base import Arrivals, Doubles, ModelBase, RecentMean, Steps, followed
from tocsin.model.columns import Index

__all__ = ["Stationary", "grown"]

_MOST = 2.0**23  # float32 counts exactly below twice this
_LEAST_KEYS = 64


def grown(array: Doubles, keys: Index, fill: float = 0.0) -> Doubles:
    """The array, or a larger copy of it, so that all key codes have a place."""
    most = int(keys.max()) if len(keys) else -1
    if most < len(array):
        return array
    larger = np.full(max(_LEAST_KEYS, 2 * len(array), most + 1), fill, array.dtype)
    larger[: len(array)] = array
    return larger


def renumbered(array: Doubles, before: Index, fill: float = 0.0) -> Doubles:
    """What was at `before[i]`, at i."""
    out = np.full(max(_LEAST_KEYS, len(before)), fill, array.dtype)
    known = np.flatnonzero(before < len(array))
    out[known] = array[before[known]]
    return out


class Stationary(ModelBase):
    """Probabilities of keys, from how often each was seen; e of the last arrivals were of new keys:

        p = (1 - e) (count + 1/2) / (all + (keys + 10) / 2)

        joining   p q (1 - q^n) / (1 - q)              with n steps left
        caching   p q (1 - s^n) / (1 - s), s = q (1 - p)

    `window`: a key seen so many values ago weighs 1/e; by default all weigh the same.

    >>> model = Stationary()
    >>> model.observe(Arrivals(np.array([0, 0, 1]), None, np.arange(3.0)))
    >>> rows = Steps(np.array([0, 1, 2]), None, np.zeros(3), np.full(3, np.inf))
    >>> model.score(rows, 0.5, False).round(3)
    array([0.104, 0.063, 0.021])
    """

    by_value: ClassVar[bool] = False

    def __init__(self, window: float = math.inf) -> None:
        self.window = window
        self._counts: Doubles = np.zeros(_LEAST_KEYS, np.float32)
        self._state = np.zeros(4)  # sum of counts; keys that have one; recent arrivals of new keys, of all
        self._weights = np.array([1.0, math.exp(1.0 / window)])
        self._logs, self._followed = RecentMean(), RecentMean()
        self.cells = 0.0
        """How many keys there may be, for the likelihood; 0: that is not known."""

    def observe(self, arrivals: Arrivals) -> None:
        keys = arrivals.keys
        self._counts = grown(self._counts, keys)
        limit = _MOST if self._weights[1] == 1.0 else max(1, int(16.0 / math.log(self._weights[1])))
        for begin in range(0, len(keys), int(limit)):  # one part, but for the shortest windows
            part = keys[begin : begin + int(limit)]
            logs = np.empty(len(part))
            add_counts(self._counts, part, self._state, self._weights, self.cells, logs)
            self._logs.add(logs)
            self._followed.add(logs[followed(part) >= 0])
            if self._state[0] > _MOST:
                self._shrink()

    def _shrink(self) -> None:
        """Scale all weights so that float32 still counts; a key that weighs nothing any more is not
        counted."""
        factor = 1.0 / self._weights[0] if self._weights[0] > 1.0 else 0.5
        self._counts *= np.float32(factor)
        self._counts[self._counts < 1e-6] = 0.0
        self._weights[0] = max(1.0, self._weights[0] * factor) if self._weights[1] > 1.0 else 1.0
        self._state[:2] = float(self._counts.sum(dtype=np.float64)), np.count_nonzero(self._counts)

    def likelihood(self) -> float:
        return self._logs.mean()

    def likelihood_of_followed(self) -> float:
        """The same of the keys that `Delay` follows, to compare with it."""
        return self._followed.mean()

    @property
    def keys(self) -> float:
        """How many keys there may be, as likelihoods suppose: seen or not."""
        return float(max(2.0 * self._state[1] + 1.0, self.cells))

    def probabilities(self, keys: Index) -> Doubles:
        half, total = self._half_and_total()
        known = keys < len(self._counts)
        counts = self._counts[np.where(known, keys, 0)].astype(np.float64)
        return (np.where(known, counts, 0.0) + half) / total

    def _half_and_total(self) -> tuple[float, float]:
        half, fresh = 0.5 * float(self._weights[0]), float((self._state[2] + 0.5) / (self._state[3] + 1.0))
        return half, (float(self._state[0]) + half * (float(self._state[1]) + ESCAPE)) / (1.0 - fresh)

    def score(self, rows: Steps, q: float, caching: bool) -> Doubles:
        out = np.empty(len(rows.keys))
        setting = np.array([*self._half_and_total(), q, float(caching)])
        stationary_scores(self._counts, rows.keys, rows.left, setting, out)
        return out

    def inverse(self, rows: Steps) -> Doubles:
        """Caching with L(d) = 1/d and no expiry: -p ln p / (1 - p)."""
        p = self.probabilities(rows.keys)
        return -p * np.log(p) / np.maximum(1.0 - p, 1e-300)

    def discard(self, keys: Index) -> None:
        """A key that had no row, no count: its successor begins at nothing."""
        known = np.unique(keys[keys < len(self._counts)])
        self._state[0] -= float(self._counts[known].sum(dtype=np.float64))
        self._state[1] -= np.count_nonzero(self._counts[known])
        self._counts[known] = 0.0

    def renumber(self, before: Index) -> None:
        self._counts = renumbered(self._counts, before)

    @property
    def nbytes(self) -> int:
        return self._counts.nbytes + self._logs.nbytes + self._followed.nbytes + 64

    def _check(self) -> None:
        assert np.all(self._counts >= 0.0) and self._weights[0] >= 1.0
        assert self._state[1] == np.count_nonzero(self._counts)
        assert math.isclose(self._state[0], self._counts.sum(dtype=np.float64), rel_tol=1e-3, abs_tol=1e-3)
