"""Compiled loops over entries and texts."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["comparison_ends", "count_entries", "rank_texts", "scatter_entries"]


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


_LEAST, _GREATEST = np.int64(-(2**63)), np.int64(2**63 - 1)


@njit(cache=True, nogil=True)
def comparison_ends(op, below, exact, low, high, flags):
    """Closed intervals of codes for comparisons: op 0..5 is = != < <= > >=.

    `below` is the greatest code not above the operand, `exact` whether it is the operand's own. An
    interval of no code at all is (1, 0).
    """
    for i in range(len(op)):
        b, own, o = below[i], exact[i], op[i]
        a, z = np.int64(1), np.int64(0)
        if o <= 1:
            if own:
                a, z = b, b
        elif o == 2:
            if not own:
                a, z = _LEAST, b
            elif b > _LEAST:
                a, z = _LEAST, b - 1
        elif o == 3:
            a, z = _LEAST, b
        elif o == 5 and own:
            a, z = b, _GREATEST
        elif b < _GREATEST:
            a, z = b + 1, _GREATEST
        low[i], high[i] = a, z
        flags[i] = 1 if o == 1 else 0
