"""Matches as one list per event."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["scatter"]


@njit(cache=True, nogil=True)
def scatter(packed, origin, ids, count, out):
    """Where the list of each of the `count` events begins; `out` gets their ids. `origin`: event by row."""
    start = np.zeros(count + 2, np.int64)
    for i in range(len(packed)):
        start[origin[packed[i] & 0xFFFFFFFF] + 2] += 1
    for e in range(count + 1):
        start[e + 1] += start[e]
    for i in range(len(packed)):
        event = origin[packed[i] & 0xFFFFFFFF]
        out[start[event + 1]] = ids[packed[i] >> 32]
        start[event + 1] += 1
    return start[: count + 1]
