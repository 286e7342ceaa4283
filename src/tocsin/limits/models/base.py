"""What models and scores see: arrivals of a stream, rows that are kept; the protocol of models.

A model describes one stream's join key: how likely each value is to arrive, one step at a time. A *step*
is one arrival of that stream. Its `score` of a kept row of the partner is HEEB's

    H = sum over d >= 1 of (B(d) - B(d-1)) q^d

where B(d) is the expected number of matches within d steps (joining), or the probability of at least one
(caching). `left` cuts the sum: a row that expires after n steps has no match later.

Models remember the last values of a stream (`History`), how well they predicted the last 200 of them
(`RecentMean`), and what concerns a few keys by code (`followed`).
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index

__all__ = [
    "FEWEST",
    "HISTORY",
    "RECENT",
    "Arrivals",
    "Doubles",
    "History",
    "KeptRows",
    "Model",
    "ModelBase",
    "RecentMean",
    "Steps",
    "alpha_of_life",
    "followed",
    "grid_of",
]

Doubles = NDArray[np.float64]


class Arrivals(NamedTuple):
    """Rows that arrive on one side, in order.

    `keys`: dense codes of the join key, the same on both sides. `values`: the key as numbers, for keys of one
    numeric or time column. `at`: times of arrival in any unit, never decreasing.
    """

    keys: Index
    values: Doubles | None
    at: Doubles


class KeptRows(NamedTuple):
    """Rows of one side that are kept; `left` is the time until they expire (infinity: never)."""

    keys: Index
    values: Doubles | None
    at: Doubles
    left: Doubles


class Steps(NamedTuple):
    """Kept rows as their partner's model sees them: ages and remaining life in its own steps."""

    keys: Index
    values: Doubles | None
    age: Doubles
    left: Doubles


class Model(Protocol):
    """A model of one stream's join key."""

    def observe(self, arrivals: Arrivals) -> None: ...

    def observe_rows(self, arrivals: Arrivals) -> None:
        """Rows of the partner, which this model may have to score, arrive."""
        ...

    def likelihood(self) -> float:
        """The mean log-likelihood of recent values, each predicted from those before it; -inf: too few."""
        ...

    def score(self, rows: Steps, q: float, caching: bool) -> Doubles:
        """H of the partner's rows from now on, not negative. `q` in (0, 1]; q = 1 needs a finite `left`."""
        ...

    def discard(self, keys: Index) -> None:
        """These codes will be given to other keys."""
        ...

    def renumber(self, before: Index) -> None:
        """Code i is from now on that of the key which had `before[i]`."""
        ...

    @property
    def nbytes(self) -> int: ...

    def _check(self) -> None: ...


class ModelBase:
    """What models need not define: they learn nothing from the partner's rows, nor from codes of keys."""

    by_age: ClassVar[bool] = False
    """Whether rows of equal key, value and remaining life may differ in their scores."""

    by_value: ClassVar[bool] = True
    """Whether scores may depend on the values of keys."""

    def observe_rows(self, arrivals: Arrivals) -> None:
        pass

    def discard(self, keys: Index) -> None:
        pass

    def renumber(self, before: Index) -> None:
        pass

    def release(self) -> None:
        """Drop what was computed for scores; another model scores from now on."""


def alpha_of_life(life: float) -> float:
    """The α of L(d) = e^(-d/α) whose sum over d >= 0 is a mean lifetime above 1.

    >>> round(alpha_of_life(2.0), 4)
    1.4427
    """
    return float(-1.0 / np.log1p(-1.0 / life))


def grid_of(values: Doubles) -> float:
    """The distance of the grid that values lie on: the width of the cells whose probabilities models state.

    >>> grid_of(np.array([20.5, 21.1, 19.0])), grid_of(np.array([4.0, 10.0, 6.0]))
    (0.1, 1.0)
    """
    found = values[np.isfinite(values)]
    for digits in range(7):
        scaled = found * 10.0**digits
        if np.all(np.abs(scaled - np.rint(scaled)) < 1e-6 * np.maximum(1.0, np.abs(scaled) * 1e-3)):
            return float(10.0**-digits)
    steps = np.diff(np.unique(found))
    return float(steps.min()) if len(steps) else 1.0


RECENT = 200  # values whose likelihood decides between models
FEWEST = 20  # likelihoods before a model is judged at all
HISTORY = 2048  # values that models are fitted on, at most
_LOW, _EVERY = 4096, 64  # followed: codes below the first, and every so many above
_FIRST = 512  # values that there is room for at first
_MORE = 512  # values that may come until models are fitted again


class RecentMean:
    """The mean of the last 200 numbers.

    >>> mean = RecentMean()
    >>> mean.add(np.arange(1000.0))
    >>> mean.mean()
    899.5
    """

    def __init__(self) -> None:
        self._ring = np.zeros(RECENT, np.float32)
        self._count = 0

    def add(self, numbers: Doubles) -> None:
        self._count += max(0, len(numbers) - RECENT)
        last = numbers[-RECENT:]
        self._ring[(self._count + np.arange(len(last))) % RECENT] = last
        self._count += len(last)

    def mean(self) -> float:
        """-inf before there are 20 of them."""
        if self._count < FEWEST:
            return -math.inf
        return float(self._ring[: min(RECENT, self._count)].mean(dtype=np.float64))

    @property
    def nbytes(self) -> int:
        return self._ring.nbytes


class History:
    """The last values of a stream by their number, counted from 0.

    >>> history = History(limit=4)
    >>> history.extend(np.arange(100.0))
    >>> history.count, history.between(96, 100).tolist()
    (100, [96.0, 97.0, 98.0, 99.0])
    """

    def __init__(self, limit: int = HISTORY + _MORE) -> None:
        self._limit, self._most = limit, limit + limit // 4
        self._values = np.zeros(min(_FIRST, self._most))
        self._size = 0
        self.count = 0

    def extend(self, values: Doubles) -> None:
        self.count += len(values)
        values = values[-self._limit :]
        needed = self._size + len(values)
        if needed > len(self._values) and len(self._values) < self._most:
            size = min(self._most, max(2 * len(self._values), needed))
            self._values = np.concatenate([self._values, np.zeros(size - len(self._values))])
        if needed > len(self._values):
            keep = min(self._size, self._limit - len(values))
            self._values[:keep] = self._values[self._size - keep : self._size].copy()
            self._size = keep
        self._values[self._size : self._size + len(values)] = values
        self._size += len(values)

    def between(self, first: int, last: int) -> Doubles:
        """Values number `first` .. `last` - 1, of those that are still there."""
        begin = self.count - self._size
        return self._values[max(0, first - begin) : max(0, last - begin)]

    @property
    def oldest(self) -> int:
        return self.count - min(self._size, self._limit)

    @property
    def last(self) -> float:
        return float(self._values[self._size - 1]) if self._size else math.nan

    @property
    def nbytes(self) -> int:
        return self._values.nbytes


def followed(keys: Index) -> Index:
    """Where followed keys are noted; -1: not followed.

    >>> followed(np.array([5, 4095, 4096, 4097, 4160]))
    array([   5, 4095, 4096,   -1, 4097])
    """
    above = keys - _LOW
    return np.where(keys < _LOW, keys, np.where(above % _EVERY == 0, _LOW + above // _EVERY, -1))
