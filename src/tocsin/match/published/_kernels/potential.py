"""Tables that might be: which schemas occur in some lines, and what each would save."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match.published._kernels.predicates import EQUAL, mix

__all__ = ["move_to", "schemas_in", "weigh"]

_EQUALITIES = 8  # of a line, that are looked at


@njit(cache=True, nogil=True)
def _bits(mask):
    n = 0
    while mask:
        mask &= mask - 1
        n += 1
    return n


@njit(cache=True, nogil=True)
def _equalities(lines, p, line, own):
    """The equalities of a line, one per dimension, at most so many."""
    n = 0
    for i in range(lines.at[line], lines.at[line] + lines.size[line]):
        q = lines.pool[i]
        if p.group[q] & 7 != EQUAL or n == len(own):
            break
        if n == 0 or p.group[own[n - 1]] != p.group[q]:
            own[n] = q
            n += 1
    return n


@njit(cache=True, nogil=True)
def schemas_in(lines, p, chance, which, widest):
    """Every set of 2..widest equalities of every line: hash of its dimensions, line, subset, chance."""
    own = np.empty(_EQUALITIES, np.int32)
    total = 0
    for k in range(len(which)):
        m = _equalities(lines, p, which[k], own)
        for mask in range(3, 1 << m):
            total += 2 <= _bits(mask) <= widest
    key, line = np.empty(total, np.uint64), np.empty(total, np.int32)
    subset, product, n = np.empty(total, np.uint8), np.empty(total, np.float32), 0
    for k in range(len(which)):
        m = _equalities(lines, p, which[k], own)
        for mask in range(3, 1 << m):
            if 2 <= _bits(mask) <= widest:
                h, chances = np.uint64(1), 1.0
                for i in range(m):
                    if mask & (1 << i):
                        h = mix(h, p.group[own[i]])
                        chances *= chance[own[i]]
                key[n], line[n], subset[n], product[n] = h, k, mask, chances
                n += 1
    return key, line, subset, product


@njit(cache=True, nogil=True)
def weigh(start, line, product, current):
    """By schema: checks saved per event, and lines that would move."""
    n = len(start) - 1
    gain, moved = np.zeros(n), np.zeros(n, np.int64)
    for s in range(n):
        for i in range(start[s], start[s + 1]):
            saved = current[line[i]] - product[i]
            if saved > 1e-5 * current[line[i]]:  # not by rounding only
                gain[s] += saved
                moved[s] += 1
    return gain, moved


@njit(cache=True, nogil=True)
def move_to(start, line, product, current, s):
    """Let the lines that gain by schema s be checked there."""
    for i in range(start[s], start[s + 1]):
        current[line[i]] = min(current[line[i]], product[i])
