"""Stabbing partitions: group intervals so that each group shares a point.

Users' ranges overlap: a hundred thousand conditions "price between .. and .." crowd around a few popular
values. If all ranges of a group contain one common point, a query to the whole group ("which ranges
contain one of these values?") needs only the two values nearest to that point. So the fewer groups, the
less work per event:

    a  |-----------|
    b      |---------|             one point, p, stabs a, b and c;
    c        |--|                  d needs its own, q
    d                   |----|
                p            q

Sweeping by left end and closing a group when the next interval misses the common intersection gives the
least number of groups, tau, in O(n log n) for n intervals.

T07, section 4.2.1. Ends are int64 codes; the least and the greatest int64 are open ends, and no point is
one of them, so that consumers may add to a point what a band join adds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.stab._kernels.partition import first_empty, sweep

__all__ = ["Codes", "Groups", "Partition", "as_intervals", "canonical"]

Codes = NDArray[np.int64]
Groups = NDArray[np.int32]


class Partition(NamedTuple):
    """The group of each interval, and the points of the groups, ascending."""

    group: Groups
    point: Codes

    @property
    def tau(self) -> int:
        """The number of groups, the least there can be."""
        return len(self.point)

    def _check(self, low: Codes, high: Codes) -> None:
        """Every interval holds its group's point; no two points could be one."""
        assert np.all(low <= self.point[self.group]) and np.all(self.point[self.group] <= high)
        assert np.all(self.point[:-1] < self.point[1:]), "points ascend"
        left, right = np.full(self.tau, -(2**63), np.int64), np.full(self.tau, 2**63 - 1, np.int64)
        np.maximum.at(left, self.group, low)
        np.minimum.at(right, self.group, high)
        assert np.all(right[:-1] < left[1:]), "two groups have a point in common"


def canonical(low: ArrayLike, high: ArrayLike) -> Partition:
    """The smallest partition of the closed intervals low..high into groups with a common point.

    O(n log n), or O(n) more than sorting if `low` ascends already.

    >>> canonical([1, 3, 4, 9], [6, 7, 5, 11])
    Partition(group=array([0, 0, 0, 1], dtype=int32), point=array([ 5, 11]))
    """
    low, high = as_intervals(low, high)
    return Partition(*sweep(low, high, np.argsort(low, kind="stable")))


def as_intervals(low: ArrayLike, high: ArrayLike) -> tuple[Codes, Codes]:
    """Ends as arrays of equal length; ValueError names the first empty interval.

    >>> as_intervals([1, 5], [2, 4])
    Traceback (most recent call last):
    ...
    ValueError: interval 1 is empty: 5..4
    """
    lows, highs = np.ascontiguousarray(low, np.int64), np.ascontiguousarray(high, np.int64)
    if lows.ndim != 1 or lows.shape != highs.shape:
        raise ValueError(f"left and right ends differ in shape: {lows.shape} and {highs.shape}")
    bad = first_empty(lows, highs)
    if bad >= 0:
        raise ValueError(f"interval {bad} is empty: {lows[bad]}..{highs[bad]}")
    return lows, highs
