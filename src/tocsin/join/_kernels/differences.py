"""Band joins over differences as they are defined: whole numbers and times exactly, doubles as IEEE has it.

The difference of a fixed number and the keys of an ordered table rises (or falls) with the key, rounded or
not, so that the rows of a band stand together, and the row where a group's point would stand can be searched
for: all without any bound on keys, and for infinities and NaN too.

    up     the change is on the right:  key - x rises with the key
    down   the change is on the left:   x - key falls

Differences are codes: of doubles as in `double_codes`; whole numbers beyond int64 are its ends.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tocsin.join._kernels.matches import lived, note_match
from tocsin.join._kernels.orders import CAPACITY, LENGTH, MAX, MIN
from tocsin.stab._kernels.groups import ACTIVE, find_in_group
from tocsin.stab._kernels.intervals import stab

__all__ = ["BandPlan", "band_matches", "band_pairs", "difference", "differences"]

_NAN = np.int64(0x7FF8000000000000)


class BandPlan(NamedTuple):
    """Queries as a change on one side sees them."""

    groups: Any  # hot ones: ranges of differences that share a point
    scattered: Any  # the others, by own range
    low: NDArray[np.int64]  # by query: the difference
    high: NDArray[np.int64]
    found: NDArray[np.int64]  # scratch
    double: bool
    up: bool


@njit(cache=True, nogil=True)
def _value(code):
    size = np.int64(abs(code)).view(np.float64)
    return -size if code < 0 else size


@njit(cache=True, nogil=True)
def difference(double, a, b):
    """a - b, all of them codes."""
    if double:
        if a == b:
            return np.int64(0)
        if b == _NAN:
            return MIN
        if a == _NAN:
            return _NAN
        d = _value(a) - _value(b)
        bits = np.float64(abs(d)).view(np.int64)
        return -bits if d < 0 else bits
    d = a - b
    if ((a ^ b) & (a ^ d)) < 0:
        return MAX if a > b else MIN
    return d


@njit(cache=True, nogil=True)
def differences(double, a, b, out):
    for i in range(len(out)):
        out[i] = difference(double, a[i], b[i])


@njit(cache=True, nogil=True)
def _stands_before(plan, key, x, bound, equal):
    """Is the key before the first one whose difference reaches the bound (down, with `equal`: is past it)?"""
    if plan.up:
        return difference(plan.double, key, x) < bound
    d = difference(plan.double, x, key)
    return d > bound or (equal and d == bound)


@njit(cache=True, nogil=True)
def _first_place(plan, order, x, bound, equal):
    """The place of the first key that does not stand before; the order is not empty."""
    d, count = np.int64(0), order.meta[LENGTH]
    while count > 1:
        half = count >> 1
        d = d + half if _stands_before(plan, order.first_key[d + half], x, bound, equal) else d
        count -= half
    base, size = order.block[d] * CAPACITY, order.size[order.block[d]]
    i, count = np.int64(0), size
    while count > 0:
        half = count >> 1
        before = _stands_before(plan, order.key[base + i + half], x, bound, equal)
        i = i + half + 1 if before else i
        count = count - half - 1 if before else half
    if i == size and d + 1 < order.meta[LENGTH]:
        return d + 1, np.int64(0)
    return d, i


@njit(cache=True, nogil=True)
def _off(plan, key, x):
    return difference(plan.double, key, x) if plan.up else difference(plan.double, x, key)


@njit(cache=True, nogil=True)
def _beside(plan, order, x, point):
    """The greatest difference below the point and the least from it on, as `find_in_group` takes them."""
    d, i = _first_place(plan, order, x, point, True)
    has1, has2 = (d > 0) | (i > 0), i < order.size[order.block[d]]
    q1, q2 = MIN, MAX
    if has2:
        q2 = _off(plan, order.key[order.block[d] * CAPACITY + i], x)
    if i > 0:
        q1 = _off(plan, order.key[order.block[d] * CAPACITY + i - 1], x)
    elif d > 0:
        b = order.block[d - 1]
        q1 = _off(plan, order.key[b * CAPACITY + order.size[b] - 1], x)
    if plan.up:
        return has1, q1, has2, q2
    return has2, q2, has1, q1


@njit(cache=True, nogil=True)
def _affected(plan, order, x, own, out):
    """Hot groups by the rows beside their points; of the others, those whose own range holds the value."""
    n = 0
    for k in range(plan.groups.meta[ACTIVE]):
        g = plan.groups.active[k]
        n = find_in_group(plan.groups, g, own, _beside(plan, order, x, plan.groups.point[g]), out, n)
    for j in range(stab(plan.scattered, own, plan.found, 0)):
        q = plan.found[j]
        d, i = _first_place(plan, order, x, plan.low[q] if plan.up else plan.high[q], False)
        b = order.block[d]
        if i < order.size[b]:
            off = _off(plan, order.key[b * CAPACITY + i], x)
            out[n] = q
            n += off <= plan.high[q] if plan.up else off >= plan.low[q]
    return n


@njit(cache=True, nogil=True)
def band_pairs(plan, order, keys, owns, begin, n, room, query, change):
    """Who is affected by each changed row; (where to go on, pairs so far)."""
    if order.meta[LENGTH] == 0:
        return len(keys), n
    for c in range(begin, len(keys)):
        if n + room > len(query):
            return c, n
        found = _affected(plan, order, keys[c], owns[c], query[n:])
        for i in range(n, n + found):
            change[i] = c
        n += found
    return len(keys), n


@njit(cache=True, nogil=True)
def band_matches(plan, order, keys, low, high, query, change, begin, moments, lives, stamps, base, found):
    """Of each pair the rows in the band with a value in low..high (by query) that were alive.

    Where to go on: a pair that does not fit is undone.
    """
    room = len(found.query)
    for p in range(begin, len(query)):
        c, q = change[p], query[p]
        at, x = moments.position[c], keys[c]
        matches = found.size[0]
        d, i = _first_place(plan, order, x, plan.low[q] if plan.up else plan.high[q], False)
        over = False
        while d < order.meta[LENGTH] and not over:
            b = order.block[d]
            for e in range(b * CAPACITY + i, b * CAPACITY + order.size[b]):
                off = _off(plan, order.key[e], x)
                if (plan.up and off > plan.high[q]) or (not plan.up and off < plan.low[q]):
                    over = True
                    break
                row = order.row[e]
                if (
                    lived(lives, row, at, moments.after)
                    & (low[q] <= order.value[e])
                    & (order.value[e] <= high[q])
                ):
                    if found.size[0] == room:
                        found.size[0] = matches
                        return p
                    note_match(found, stamps, base, q, c, row)
            d += 1
            i = np.int64(0)
    return len(query)
