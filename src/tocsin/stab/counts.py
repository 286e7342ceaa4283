"""Stabbing counts that follow insertion and deletion: a histogram for a router that asks all the time.

Between rebuilds the edges stay, and an interval that comes or goes changes every bucket by the share of it
that it covers. When a fifth of the intervals has changed, the histogram is built anew.

>>> counts = StabbingCounts()
>>> counts.insert(np.arange(100), np.arange(100), np.arange(100) + 50)
>>> counts.estimate([75]).round().tolist()
[50.0]
>>> counts.remove(np.arange(0, 100, 2))
>>> counts.estimate([75]).round().tolist()
[25.0]

A change costs O(buckets); a rebuild what `build` costs (`histograms.py`), once in drift * n changes.
T07, sections 4.5 and 4.6.7, where the histogram is of equal width and kept up in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.stab._kernels.histograms import spread
from tocsin.stab.histograms import Histogram, HistogramConfig, Numbers, ssi
from tocsin.stab.partition import Codes, as_intervals

__all__ = ["CountsConfig", "StabbingCounts"]

_FEW = 256  # changes that are never worth a rebuild
_SAMPLE = 4096  # events that are remembered


@dataclass(frozen=True)
class CountsConfig:
    """`drift`: the share of intervals that may change before the histogram is built anew by `build`."""

    histogram: HistogramConfig = field(default_factory=HistogramConfig)
    drift: float = 0.2
    build: Callable[[Codes, Codes, HistogramConfig, ArrayLike | None], Histogram] = ssi


class StabbingCounts:
    """About how many intervals contain a value, while intervals come and go."""

    def __init__(self, config: CountsConfig | None = None) -> None:
        self.config = config or CountsConfig()
        self.rebuilds = 0
        self._low, self._high = np.zeros(64, np.int64), np.zeros(64, np.int64)
        self._here = np.zeros(64, np.bool_)
        self._count = self._changes = 0
        self._events: NDArray[np.int64] | None = None
        self._histogram = Histogram(np.array([0, 1], np.int64), np.zeros(1))

    def __len__(self) -> int:
        return self._count

    def insert(self, ids: ArrayLike, low: ArrayLike, high: ArrayLike) -> None:
        """Intervals low..high come; `ids` are small numbers that are not in use."""
        which = np.atleast_1d(np.asarray(ids, np.int64))
        lows, highs = as_intervals(np.atleast_1d(low), np.atleast_1d(high))
        if len(which) != len(lows):
            raise ValueError(f"there are {len(which)} ids for {len(lows)} intervals")
        if which.min(initial=0) < 0:
            raise ValueError(f"ids are slots, from 0: {which.min()} is not")
        self._make_room(int(which.max(initial=0)) + 1)
        if self._here[which].any() or len(np.unique(which)) < len(which):
            raise ValueError("an id is in use")
        self._low[which], self._high[which], self._here[which] = lows, highs, True
        self._count += len(which)
        self._follow(lows, highs, 1.0)

    def remove(self, ids: ArrayLike) -> None:
        """Intervals go."""
        which = np.atleast_1d(np.asarray(ids, np.int64))
        known = which[(which >= 0) & (which < len(self._here))]
        if len(np.unique(known)) < len(which) or not self._here[known].all():
            raise ValueError("an id is not in use")
        self._here[which] = False
        self._count -= len(which)
        self._follow(self._low[which], self._high[which], -1.0)

    def estimate(self, values: ArrayLike) -> Numbers:
        """About how many intervals contain each value. O(log buckets) each."""
        return np.maximum(self._histogram.estimate(values), 0.0)

    def observe(self, values: ArrayLike) -> None:
        """Values as they come: the next rebuild makes the error small where they are."""
        seen = np.asarray(values, np.int64)[-_SAMPLE:]
        self._events = seen if self._events is None else np.concatenate([self._events, seen])[-_SAMPLE:]

    def rebuild(self) -> None:
        here = np.flatnonzero(self._here)
        self._histogram = self.config.build(
            self._low[here], self._high[here], self.config.histogram, self._events
        )
        self._changes = 0
        self.rebuilds += 1

    def _follow(self, low: Codes, high: Codes, sign: float) -> None:
        self._changes += len(low)
        if self.rebuilds == 0 or self._changes > max(_FEW, self.config.drift * self._count):
            self.rebuild()
        else:
            spread(self._histogram.start, self._histogram.value, low, high, sign)

    def _make_room(self, ids: int) -> None:
        if ids > len(self._here):
            more = np.zeros(max(ids, 2 * len(self._here)) - len(self._here), np.int64)
            self._low, self._high = np.append(self._low, more), np.append(self._high, more)
            self._here = np.append(self._here, more.astype(np.bool_))

    def _check(self) -> None:
        assert self._count == np.count_nonzero(self._here)
        assert np.all(self._low[self._here] <= self._high[self._here])
        start, value = self._histogram
        assert len(start) == len(value) + 1 and np.all(start[:-1] < start[1:])
        assert self._changes <= max(_FEW, self.config.drift * self._count)
