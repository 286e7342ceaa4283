"""What models of numbers share: the last values, when they are fitted, how well each predicted the next.

    values ─► Series ─► judge: log Pr(each value | those before it)      every 5 values; after 16,384
                    └─► fit: the law that `score` uses                   values every 32

A model judges and fits at numbers of values that are fixed, so it does not matter how they are batched.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from tocsin.limits._kernels.models import normal_cells
from tocsin.limits.models.base import (
    HISTORY,
    RECENT,
    Arrivals,
    Doubles,
    History,
    ModelBase,
    RecentMean,
    Steps,
    grid_of,
)
from tocsin.model.columns import Index

__all__ = ["NumericModel", "Series", "cells_of", "moving_sums", "refit_interval"]

_FEWEST_VALUES = 8
_LEAST = 1e-12  # probability of a value that a model excludes


class Series:
    """The last values of a stream, and the grid that they lie on.

    >>> series = Series()
    >>> series.extend(np.arange(0.0, 6.0, 0.5))
    >>> series.width, series.due, series.history.count
    (0.1, 10, 12)
    """

    def __init__(self) -> None:
        self.history = History()
        self.width = 1.0
        self._known = False
        self._low, self._high = math.inf, -math.inf
        self._sums: dict[type, tuple[tuple[int, int], Doubles]] = {}

    def extend(self, values: Doubles) -> None:
        values = values[np.isfinite(values)]
        self.history.extend(values)
        some = values[-RECENT:]
        if len(some):
            self._low, self._high = min(self._low, float(values.min())), max(self._high, float(values.max()))
            scaled = some / self.width
            if not self._known or np.any(
                np.abs(scaled - np.rint(scaled)) > 1e-6 * np.maximum(1.0, np.abs(scaled) * 1e-3)
            ):
                found = grid_of(some)
                self.width = found if not self._known or (found > 0.0 and found < self.width) else self.width
                self._known = True

    def prefix_sums(self, kind: type, block: tuple[int, int], columns: Callable[[], Doubles]) -> Doubles:
        """Sums of columns over the values before each of a block; models of one kind share them."""
        known = self._sums.get(kind)
        if known is None or known[0] != block:
            made = columns()
            sums = np.zeros((len(made), made.shape[1] + 1))
            np.cumsum(made, axis=1, out=sums[:, 1:])
            known = self._sums[kind] = block, sums
        return known[1]

    @property
    def cells(self) -> float:
        """How many cells of the grid there are from the least value to the greatest."""
        return (self._high - self._low) / self.width + 1.0 if self._known else 0.0

    @property
    def due(self) -> int:
        """The number of values that models should have been fitted at by now."""
        count = self.history.count
        return count - count % refit_interval(count)

    @property
    def nbytes(self) -> int:
        return self.history.nbytes

    def discard_sums(self) -> None:
        """Drop what models shared while they judged."""
        self._sums.clear()


class NumericModel(ModelBase):
    """A model fitted on the last `window` values of a stream; models of one stream share a `series`."""

    numeric: ClassVar[bool] = True

    def __init__(self, window: int = HISTORY, series: Series | None = None) -> None:
        self.window = min(window, HISTORY)
        self._shared = series is not None
        self.series = series if series is not None else Series()
        self._logs = RecentMean()
        self._block = 0, 0  # the values that are being judged
        self._judged = self._fitted = 0
        self._fixed = False  # the law was given

    def observe(self, arrivals: Arrivals) -> None:
        if arrivals.values is None:
            return
        if not self._shared:
            self.series.extend(arrivals.values)
        due = self.series.due
        if due > self._judged:
            if not self._fixed:
                self._judge(max(self._judged, due - RECENT), due)
                if not self._shared:
                    self.series.discard_sums()
            self._judged = due

    def refit(self) -> None:
        """Fit the values up to the last number that is due, unless that was done."""
        if self._fitted < self._judged and not self._fixed:
            values = self.series.history.between(self._judged - self.window, self._judged)
            if len(values) >= _FEWEST_VALUES:
                self.fit(values, self._judged)
            self._fitted = self._judged

    def _judge(self, first: int, last: int) -> None:
        """Note the log-likelihood of values number `first` .. `last` - 1."""
        history = self.series.history
        begin = max(history.oldest, first - HISTORY)
        values = history.between(begin, last)
        positions = np.arange(max(first, begin + _FEWEST_VALUES), last) - begin
        if not len(positions):
            return
        self._block = begin, last
        means, deviations = self.predict(values, positions)
        deviations = np.maximum(deviations, self.series.width * math.sqrt(1.0 / 12.0))
        found = cells_of(values[positions], means, deviations, self.series.width)
        self._logs.add(np.log(np.maximum(found, _LEAST)))

    @abstractmethod
    def predict(self, values: Doubles, positions: Index) -> tuple[Doubles, Doubles]:
        """Mean and deviation of the values at these positions, each from the window before it."""

    @abstractmethod
    def fit(self, values: Doubles, count: int) -> None:
        """Take over the law of these values, the last of which is number `count` - 1 of the stream."""

    @abstractmethod
    def score(self, rows: Steps, q: float, caching: bool) -> Doubles: ...

    def _moving(
        self, columns: Callable[[], Doubles], positions: Index, window: int
    ) -> tuple[Doubles, Doubles]:
        sums = self.series.prefix_sums(type(self), self._block, columns)
        return moving_sums(sums, positions, window)

    def likelihood(self) -> float:
        return self._logs.mean()

    @property
    def nbytes(self) -> int:
        return self._logs.nbytes + 256 + (0 if self._shared else self.series.nbytes)

    def _check(self) -> None:
        assert self._fitted <= self._judged <= self.series.history.count and 1 <= self.window <= HISTORY


def refit_interval(count: int) -> int:
    """Values between two fits: few, since a window of 30 values is out of date after as many.

    >>> refit_interval(100), refit_interval(10**6)
    (5, 32)
    """
    return 5 if count < 16384 else 32


def cells_of(values: Doubles, means: Doubles, deviations: Doubles, width: float) -> Doubles:
    """Pr(a normal value in the cell of each value)."""
    out = np.empty(len(values))
    normal_cells(values, means, deviations, 0.5 * width, out)
    return out


def moving_sums(sums: Doubles, positions: Index, window: int) -> tuple[Doubles, Doubles]:
    """From prefix sums those of the window before each position, and how many values that is.

    >>> moving_sums(np.array([[0.0, 1.0, 3.0, 6.0, 10.0]]), np.array([1, 4]), 2)
    (array([[1., 7.]]), array([1., 2.]))
    """
    low = np.maximum(0, positions - window)
    return sums[:, positions] - sums[:, low], (positions - low).astype(np.float64)
