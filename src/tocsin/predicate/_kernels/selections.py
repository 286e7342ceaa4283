"""One range of one attribute for each of many flat filters."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["choose_ranges"]

_MIN, _MAX = np.int64(-(2**63)), np.int64(2**63 - 1)
_OR_NEXT, _TEXT = 4, 3  # flag of a test; worth of a text


@njit(cache=True, nogil=True)
def _score(worth, low, high, share):
    if worth != _TEXT and low == _MIN and high == _MAX:
        return 0.0
    if share >= 0:  # known: how many filters a value is let through by
        return 8.0 - 7.0 * share
    if worth == _TEXT:
        return 6.0
    if worth == 1:
        return 1.0
    return 7.0 if low == high else 4.0 if low != _MIN and high != _MAX else 2.0


@njit(cache=True, nogil=True)
def choose_ranges(owner, tests, worth, rank, share, out):
    """Per filter: dimension or -1, low, high, does it say all, can it never hold.

    Scratch by dimension: the range in this conjunction and the hull so far, and how many conjunctions of the
    filter have had one.
    """
    start, dim, low, high, flags = tests
    chosen, out_low, out_high, exact, never = out
    dims = len(worth)
    here_low, here_high = np.empty(dims, np.int64), np.empty(dims, np.int64)
    all_low, all_high = np.empty(dims, np.int64), np.empty(dims, np.int64)
    here, had = np.zeros(dims, np.int64), np.zeros(dims, np.int64)
    c = 0
    for f in range(len(chosen)):
        had[:] = 0
        first = c
        plain = True  # every test so far is a range of its own
        while c < len(owner) and owner[c] == f:
            here[:] = 0
            t = start[c]
            while t < start[c + 1]:
                end = t  # of the clause
                while flags[end] & _OR_NEXT:
                    end += 1
                d = dim[t]
                usable = worth[d] > 0
                a, b = low[t], high[t]
                for u in range(t, end + 1):
                    usable &= dim[u] == d and (flags[u] & ~np.uint8(_OR_NEXT)) == 0
                    a, b = min(a, low[u]), max(b, high[u])
                if usable and worth[d] == _TEXT:
                    usable = a == b and a >= 0 and a % 4 == 0
                    plain = False
                plain &= usable and end == t
                if usable:
                    here_low[d] = max(a, here_low[d]) if here[d] else a
                    here_high[d] = min(b, here_high[d]) if here[d] else b
                    here[d] = 1
                t = end + 1
            for d in range(dims):
                if here[d]:
                    if (
                        worth[d] == _TEXT
                        and had[d]
                        and (all_low[d] != here_low[d] or all_high[d] != here_high[d])
                    ):
                        here[d] = 0
                        had[d] = -len(owner)
                        continue
                    all_low[d] = min(all_low[d], here_low[d]) if had[d] else here_low[d]
                    all_high[d] = max(all_high[d], here_high[d]) if had[d] else here_high[d]
                    had[d] += 1
            c += 1
        conjunctions = c - first
        best, most, used = -1, 0.0, 0
        for d in range(dims):
            used += had[d] != 0
            if conjunctions and had[d] == conjunctions:
                score = _score(worth[d], all_low[d], all_high[d], share[d])
                if score > most or (score == most and rank[d] < rank[best]):
                    best, most = d, score
        chosen[f] = best
        out_low[f] = out_high[f] = 0  # what rows have in place of an attribute
        never[f] = conjunctions == 0
        if best >= 0:
            out_low[f], out_high[f] = all_low[best], all_high[best]
            never[f] |= all_low[best] > all_high[best]
        exact[f] = conjunctions == 1 and plain and used == (best >= 0)
