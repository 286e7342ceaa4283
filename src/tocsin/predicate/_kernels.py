"""Compiled loops over entries and texts."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["count_entries", "rank_texts", "scatter_entries"]


@njit(cache=True, nogil=True)
def count_entries(event, start):
    """Adds to start[e + 1] the number of entries of event e."""
    for e in event:
        start[e + 1] += 1


@njit(cache=True, nogil=True)
def scatter_entries(event, name, space, code, cursor, out):
    """Puts entries of one kind where their events' next ones belong."""
    names, spaces, codes = out
    for i in range(len(event)):
        at = cursor[event[i]]
        names[at], spaces[at], codes[at] = name[i], space, code[i]
        cursor[event[i]] = at + 1


@njit(cache=True, nogil=True)
def _compare(a, a0, a1, b, b0, b1):
    """Byte strings a[a0:a1] and b[b0:b1]: below 0, 0 or above 0."""
    n = min(a1 - a0, b1 - b0)
    for i in range(n):
        x, y = a[a0 + i], b[b0 + i]
        if x != y:
            return 1 if x > y else -1
    return (a1 - a0) - (b1 - b0)


@njit(cache=True, nogil=True)
def rank_texts(data, offset, asked, asked_offset):
    """The code of each asked text among sorted ones: 4 x rank if it is one of them, else 4 x rank - 2."""
    out = np.empty(len(asked_offset) - 1, np.int64)
    for i in range(len(out)):
        a0, a1 = asked_offset[i], asked_offset[i + 1]
        low, high = 0, len(offset) - 1
        while low < high:
            middle = (low + high) >> 1
            if _compare(data, offset[middle], offset[middle + 1], asked, a0, a1) < 0:
                low = middle + 1
            else:
                high = middle
        same = low < len(offset) - 1 and _compare(data, offset[low], offset[low + 1], asked, a0, a1) == 0
        out[i] = 4 * low if same else 4 * low - 2
    return out
