"""Whose minimum does an update change, and to what? Rectangles of the subscription space.

The range l..r is the point (l, r). A message is a row of `out`:

    UPDATE  VALUE  EMPTY  l_low  l_high  r_low  r_high      for l in l_low..l_high and r in r_low..r_high
                                                            (and as many for a second attribute)

The updated tuple is out of the tree while the tree is asked. `out` may be too small: rows are counted but not
written then, the update is undone, and the caller comes again with more room.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tocsin.rank._kernels.augmented import (
    LEAST,
    MOST,
    ZERO,
    beside,
    delete,
    has_room,
    holds,
    insert,
    left_of,
    lowest,
    right_of,
)

__all__ = [
    *("BOUNDS", "COUNTERS", "EMPTY", "UPDATE", "VALUE", "Objects", "Updates"),
    *("DIFFICULT", "EASY", "HULL", "IGNORABLE", "MAR", "MESSAGES", "NO", "NONE"),
    *("lowest_each", "tell_distinct", "tell_extremes"),
]

UPDATE, VALUE, EMPTY, BOUNDS = 0, 1, 2, 3  # columns of `out`
COUNTERS = ("ignorable", "easy", "difficult", "messages", "mar", "hull")
IGNORABLE, EASY, DIFFICULT, MESSAGES, MAR, HULL = (np.int64(i) for i in range(6))  # of `counters`
NO = np.bool_(False)
NONE = (NO, ZERO)


class Objects(NamedTuple):
    """By number: is there one, and where."""

    has: NDArray[np.bool_]
    x: NDArray[np.int64]
    y: NDArray[np.int64]


class Updates(NamedTuple):
    """In order: an object's number, is it there afterwards, and where."""

    number: NDArray[np.int32]
    has: NDArray[np.bool_]
    x: NDArray[np.int64]
    y: NDArray[np.int64]


@njit(cache=True, nogil=True)
def _put(out, n, value, empty, bounds):
    if n < len(out):
        out[n, VALUE], out[n, EMPTY] = value, empty
        out[n, BOUNDS], out[n, BOUNDS + 1], out[n, BOUNDS + 2], out[n, BOUNDS + 3] = bounds
    return n + 1


@njit(cache=True, nogil=True)
def _step_left(tree, x, limit, value, empty):
    """The next stair before x, at or after `limit`, strictly below `value`: (is there one, x, y, its end)."""
    if empty or value > LEAST:
        there, x1 = left_of(tree, x, MOST if empty else value - 1)
        if there and x1 >= limit:
            return True, x1, lowest(tree, x1, x1)[1], x1 + 1
    return False, limit, LEAST, limit


@njit(cache=True, nogil=True)
def _step_right(tree, x, limit, value, empty):
    if empty or value > LEAST:
        there, x1, y1 = right_of(tree, x, MOST if empty else value - 1)
        if there and x1 <= limit:
            return True, x1, y1, x1 - 1
    return False, limit, LEAST, limit


@njit(cache=True, nogil=True)
def _tell_hull(tree, core, mar, peak, out, n):
    """One message for the peak and one for each stair on both sides, from the highest down.

    A range that reaches over a stair has that stair's value, if it ends before the next lower one on either
    side. Of two equally low, the left one tells the ranges that hold both.
    """
    low, high = core
    value, empty = peak
    x1, x2, y1, y2, end1, end2 = low, high, LEAST, LEAST, low, high  # the next stairs, and what ends there
    inner1, inner2, left, right, go_left, go_right = low, high, True, True, True, True
    while True:
        if go_left:
            left, x1, y1, end1 = _step_left(tree, x1, mar[0], value, empty)
        if go_right:
            right, x2, y2, end2 = _step_right(tree, x2, mar[1], value, empty)
        n = _put(out, n, value, empty, (end1, inner1, inner2, end2))
        if not left and not right:
            return n
        go_right = right and (not left or y2 >= y1)
        go_left, empty = not go_right, NO
        value, inner1, inner2 = (y2, low, x2) if go_right else (y1, x1, high)


@njit(cache=True, nogil=True)
def _tell(tree, core, limits, old, new, state, out):
    """Messages to the ranges within `limits` that hold `core`, where (is there one, y) goes from old to new.

    `state` is (messages so far, kind, calls of Mar, of hull); it is returned as it is afterwards.
    """
    low, high = core
    n, kind, mars, hulls = state
    if old[0] == new[0] and (not old[0] or old[1] == new[1]):
        return state
    falls = new[0] and (not old[0] or new[1] < old[1])
    bar = new[1] if falls else old[1]
    mars += 1
    there, least = lowest(tree, low, high)
    if there and least <= bar:
        return n, kind, mars, hulls
    begin, end = limits
    left, x1 = left_of(tree, low, bar)
    if left and x1 >= begin:
        begin = x1 + 1
    right, x2, _ = right_of(tree, high, bar)
    if right and x2 <= end:
        end = x2 - 1
    if not falls:  # whatever it has hidden and is not above it now
        mars += 1
        hidden, hidden_least = lowest(tree, begin, end)
        if hidden and (not new[0] or hidden_least <= new[1]):
            empty = not there and not new[0]
            peak = least if there and (not new[0] or least < new[1]) else new[1]
            n = _tell_hull(tree, core, (begin, end), (peak, empty), out, n)
            return n, DIFFICULT, mars, hulls + 1
    n = _put(out, n, new[1], not new[0], (begin, low, high, end))
    return n, max(kind, EASY), mars, hulls


@njit(cache=True, nogil=True)
def tell_extremes(tree, objects, updates, start, out, counters):
    """Updates from `start` on: (the first one not done, messages); it is not done for want of rows.

    A move tells ranges that hold only the old place, only the new one, or both: at most one message each.
    """
    n = ZERO
    for k in range(start, len(updates.number)):
        i = updates.number[k]
        xo, xn = objects.x[i], updates.x[k]
        old, new = (objects.has[i], objects.y[i]), (updates.has[k], updates.y[k])
        if not has_room(tree):
            return k, n
        if old[0]:
            delete(tree, xo, old[1])
        a, b = (xo if old[0] else xn), (xn if new[0] else xo)
        state = (n, IGNORABLE, ZERO, ZERO)
        for part in range(2 if a == b else 0, 3):
            low, high, begin, end, before, after = min(a, b), max(a, b), LEAST, MOST, old, new
            if part < 2:
                other = a if part else b
                low = high = b if part else a
                begin, end = (LEAST, other - 1) if low < other else (other + 1, MOST)
                before, after = (NONE, new) if part else (old, NONE)
            state = _tell(tree, (low, high), (begin, end), before, after, state, out)
        full = state[0] > len(out)
        if full:
            xn, new = xo, old
        if new[0]:
            insert(tree, xn, new[1])
        if full:
            return k, n
        objects.has[i], objects.x[i], objects.y[i] = new[0], xn, new[1]
        for j in range(n, state[0]):
            out[j, UPDATE] = k
        counters[state[1]] += 1
        counters[MESSAGES] += state[0] - n
        counters[MAR] += state[2]
        counters[HULL] += state[3]
        n = state[0]
    return len(updates.number), n


@njit(cache=True, nogil=True)
def _tell_value(tree, value, x, limits, empty, out, n):
    """Ranges within `limits` that hold x and no other tuple of the value; they gain or lose it."""
    if holds(tree, value, x):
        return n
    left, x1, right, x2 = beside(tree, value, x)
    begin = max(limits[0], x1 + 1) if left else limits[0]
    end = min(limits[1], x2 - 1) if right else limits[1]
    return _put(out, n, value, empty, (begin, x, x, end))


@njit(cache=True, nogil=True)
def tell_distinct(tree, objects, updates, start, out, counters):
    """As `tell_extremes`, for values that come into ranges or (EMPTY) go; the tree is of (value, x)."""
    n = ZERO
    for k in range(start, len(updates.number)):
        i = updates.number[k]
        had, xo, yo = objects.has[i], objects.x[i], objects.y[i]
        has, xn, yn = updates.has[k], updates.x[k], updates.y[k]
        if not has_room(tree) or n + 2 > len(out):
            return k, n
        first = n
        if had:
            delete(tree, yo, xo)
        if not (had and has and xo == xn and yo == yn):
            moves = had and has and yo == yn
            if had:
                begin = xn + 1 if moves and xn < xo else LEAST
                end = xn - 1 if moves and xn > xo else MOST
                n = _tell_value(tree, yo, xo, (begin, end), had, out, n)
            if has:
                begin = xo + 1 if moves and xo < xn else LEAST
                end = xo - 1 if moves and xo > xn else MOST
                n = _tell_value(tree, yn, xn, (begin, end), not has, out, n)
        if has:
            insert(tree, yn, xn)
        objects.has[i], objects.x[i], objects.y[i] = has, xn, yn
        for j in range(first, n):
            out[j, UPDATE] = k
        counters[IGNORABLE if n == first else EASY] += 1
        counters[MESSAGES] += n - first
        counters[MAR] += np.int64(had) + np.int64(has)
    return len(updates.number), n


@njit(cache=True, nogil=True)
def lowest_each(tree, low, high, value, empty):
    """`lowest` of many ranges."""
    for i in range(len(low)):
        there, least = lowest(tree, low[i], high[i])
        value[i], empty[i] = least if there else 0, not there
