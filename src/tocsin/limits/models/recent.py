"""The last values of a stream, the mean of the last log-likelihoods, and which keys are followed."""

from __future__ import annotations

import math

import numpy as np

from tocsin.limits.models.base import Doubles
from tocsin.model.columns import Index

__all__ = ["FEWEST", "HISTORY", "RECENT", "History", "RecentMean", "followed"]

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
