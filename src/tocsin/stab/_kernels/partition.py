"""Least stabbing partitions: one sweep over intervals in the order of their left ends."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["GREATEST", "LEAST", "first_empty", "point_of", "points_of", "sweep"]

LEAST, GREATEST = np.int64(-(2**63)), np.int64(2**63 - 1)


@njit(cache=True, nogil=True)
def first_empty(low, high):
    """The first interval without a point, or -1."""
    for i in range(len(low)):
        if low[i] > high[i]:
            return i
    return -1


@njit(cache=True, nogil=True)
def point_of(low, high):
    """A point of low..high: its right end, unless that is open; then its left end, or 0."""
    if high != GREATEST:
        return high
    return low if low != LEAST else np.int64(0)


@njit(cache=True, nogil=True)
def points_of(low, high):
    out = np.empty(len(low), np.int64)
    for k in range(len(low)):
        out[k] = point_of(low[k], high[k])
    return out


@njit(cache=True, nogil=True)
def sweep(low, high, order):
    """Groups of intervals taken by left end, closed by the first that misses; and a point of each."""
    group = np.empty(len(low), np.int32)
    point = np.empty(len(low), np.int64)
    count, left, right = 0, LEAST, LEAST  # left..right: what the open group has in common
    for i in order:
        if count == 0 or low[i] > right:
            if count > 0:
                point[count - 1] = point_of(left, right)
            count, right = count + 1, high[i]
        left, right = low[i], min(right, high[i])
        group[i] = count - 1
    if count > 0:
        point[count - 1] = point_of(left, right)
    return group, point[:count].copy()
