"""Whose minimum does an update change, if ranges are boxes: a..b by c..d?

A box that holds the core (a point, or the box of two) and no blocker may reach, on the left, the further the
lower it is. Steps tell so: from `at` on outwards, c must be in low.. and d in ..high. The right side is the
same under ~x, which turns the order of all int64 around.

              . . . . . . high of step 0
        p     .                              p ends the window of the boxes that reach it: step 1 begins there
    . . +-----+  core  . . .                 and is narrower; a blocker beside the core ends the whole side
        q     .
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tocsin.rank._kernels.augmented import LEAST, MOST, ZERO
from tocsin.rank._kernels.extremes import (
    BOUNDS,
    DIFFICULT,
    EASY,
    EMPTY,
    HULL,
    IGNORABLE,
    MAR,
    MESSAGES,
    NO,
    NONE,
    UPDATE,
    VALUE,
)

__all__ = ["BoxUpdates", "Points", "Scratch", "tell_boxes"]

LEFT, RIGHT = np.int64(0), np.int64(1)
NOWHERE = (NO, ZERO, ZERO)


class Points(NamedTuple):
    """By number: is there one, and where."""

    has: NDArray[np.bool_]
    x1: NDArray[np.int64]
    x2: NDArray[np.int64]
    y: NDArray[np.int64]


class BoxUpdates(NamedTuple):
    """In order: an object's number, is it there afterwards, and where."""

    number: NDArray[np.int32]
    has: NDArray[np.bool_]
    x1: NDArray[np.int64]
    x2: NDArray[np.int64]
    y: NDArray[np.int64]


class Scratch(NamedTuple):
    at: NDArray[np.int64]  # the steps: by side and step, falling
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    size: NDArray[np.int64]  # by side: steps
    limit: NDArray[np.int64]  # ... and where it ends
    found: NDArray[np.int64]  # numbers of points


@njit(cache=True, nogil=True)
def _side(core, x1):
    """Which side a point is on, and where as that side counts; inside counts as the left one's first step."""
    if x1 > core[1]:
        return RIGHT, ~x1
    return LEFT, min(x1, core[0])


@njit(cache=True, nogil=True)
def _fits(steps, core, x1, x2):
    """Is there a box without blockers that holds the core and this point?"""
    s, u = _side(core, x1)
    if u < steps.limit[s]:
        return False
    i = 0
    while i + 1 < steps.size[s] and steps.at[s, i + 1] >= u:
        i += 1
    return steps.low[s, i] <= x2 <= steps.high[s, i]


@njit(cache=True, nogil=True)
def _block_side(steps, core, s, u, x2):
    """No box may hold (u, x2) any more, which is not inside of the core."""
    i, count = 0, steps.size[s]
    while i < count and steps.at[s, i] > u:
        i += 1
    if core[2] <= x2 <= core[3]:
        steps.limit[s] = max(steps.limit[s], u + 1)
        steps.size[s] = i
        return
    if i == count or steps.at[s, i] < u:  # a step begins here
        for k in range(count, i, -1):
            steps.at[s, k] = steps.at[s, k - 1]
            steps.low[s, k], steps.high[s, k] = steps.low[s, k - 1], steps.high[s, k - 1]
        steps.at[s, i], steps.low[s, i], steps.high[s, i] = u, steps.low[s, i - 1], steps.high[s, i - 1]
        count += 1
    kept = i
    for k in range(i, count):
        low, high = steps.low[s, k], steps.high[s, k]
        if x2 < core[2]:
            low = max(low, x2 + 1)
        else:
            high = min(high, x2 - 1)
        if kept == 0 or low != steps.low[s, kept - 1] or high != steps.high[s, kept - 1]:
            steps.at[s, kept], steps.low[s, kept], steps.high[s, kept] = steps.at[s, k], low, high
            kept += 1
    steps.size[s] = kept


@njit(cache=True, nogil=True)
def _block(steps, core, x1, x2):
    s, u = _side(core, x1)
    _block_side(steps, core, s, u, x2)
    if core[0] <= x1 <= core[1]:
        _block_side(steps, core, RIGHT, ~core[1], x2)


@njit(cache=True, nogil=True)
def _tell_region(steps, core, point, new, out, n):
    """One message for each pair of steps, to all boxes without blockers that hold the core and the point."""
    for i in range(steps.size[0]):
        a_low = steps.at[0, i + 1] + 1 if i + 1 < steps.size[0] else steps.limit[0]
        a_high = min(steps.at[0, i], point[0])
        last_low, last_high = MOST, LEAST
        for j in range(steps.size[1]):
            b_low = max(~steps.at[1, j], point[0])
            b_high = ~(steps.at[1, j + 1] + 1) if j + 1 < steps.size[1] else ~steps.limit[1]
            c_low, c_high = max(steps.low[0, i], steps.low[1, j]), min(core[2], point[1])
            d_low, d_high = max(core[3], point[1]), min(steps.high[0, i], steps.high[1, j])
            if a_low > a_high or b_low > b_high or c_low > c_high or d_low > d_high:
                continue
            if c_low == last_low and d_high == last_high:  # the same window: one wider box
                if n <= len(out):
                    out[n - 1, BOUNDS + 3] = b_high
                continue
            last_low, last_high = c_low, d_high
            if n < len(out):
                out[n, VALUE], out[n, EMPTY] = new[1], not new[0]
                out[n, BOUNDS], out[n, BOUNDS + 1] = a_low, a_high
                out[n, BOUNDS + 2], out[n, BOUNDS + 3] = b_low, b_high
                out[n, BOUNDS + 4], out[n, BOUNDS + 5] = c_low, c_high
                out[n, BOUNDS + 6], out[n, BOUNDS + 7] = d_low, d_high
            n += 1
    return n


@njit(cache=True, nogil=True)
def _tell(points, core, avoid, old, new, state, steps, out):
    """Messages to the boxes that hold `core` and not `avoid`, where (is there one, y) goes from old to new.

    Exposed points are told from the lowest up; each then blocks, so that no box hears of two.
    """
    n, kind, mars, hulls = state
    if old[0] == new[0] and (not old[0] or old[1] == new[1]):
        return state
    falls = new[0] and (not old[0] or new[1] < old[1])
    bar = new[1] if falls else old[1]
    for s in range(2):
        steps.at[s, 0] = ~core[1] if s else core[0]
        steps.low[s, 0], steps.high[s, 0], steps.size[s], steps.limit[s] = LEAST, MOST, 1, LEAST
    if avoid[0]:
        _block(steps, core, avoid[1], avoid[2])
    mars += 1
    found = steps.found
    for i in range(len(points.has)):
        x1, x2 = points.x1[i], points.x2[i]
        if points.has[i] and points.y[i] <= bar and _fits(steps, core, x1, x2):
            if core[0] <= x1 <= core[1] and core[2] <= x2 <= core[3]:
                return n, kind, mars, hulls
            _block(steps, core, x1, x2)
    count = 0
    if not falls:
        for i in range(len(points.has)):
            if points.has[i] and points.y[i] > bar and (not new[0] or points.y[i] < new[1]):
                found[count] = i
                count += _fits(steps, core, points.x1[i], points.x2[i])
    if count:
        kind, hulls = DIFFICULT, hulls + 1
    while True:
        x1, x2, news = core[0], core[2], new  # last, what is told if nothing is exposed
        if count:
            i = found[0]
            for k in range(1, count):
                i = found[k] if points.y[found[k]] < points.y[i] else i
            x1, x2, news = points.x1[i], points.x2[i], (points.has[i], points.y[i])
        n = _tell_region(steps, core, (x1, x2), news, out, n)
        if core[0] <= x1 <= core[1] and core[2] <= x2 <= core[3]:
            return n, max(kind, EASY), mars, hulls
        _block(steps, core, x1, x2)
        kept = 0
        for k in range(count):
            j = found[k]
            found[kept] = j
            kept += _fits(steps, core, points.x1[j], points.x2[j])
        count = kept


@njit(cache=True, nogil=True)
def tell_boxes(points, updates, start, steps, out, counters):
    """Updates from `start` on: (the first one not done, messages); it is not done for want of rows."""
    n = ZERO
    for k in range(start, len(updates.number)):
        i = updates.number[k]
        u1, u2, v1, v2 = points.x1[i], points.x2[i], updates.x1[k], updates.x2[k]
        old, new = (points.has[i], points.y[i]), (updates.has[k], updates.y[k])
        points.has[i] = False
        if not old[0]:
            u1, u2 = v1, v2
        a1, a2 = (v1, v2) if new[0] else (u1, u2)
        state = (n, IGNORABLE, ZERO, ZERO)
        for part in range(2 if u1 == a1 and u2 == a2 else 0, 3):
            core, avoid = (min(u1, a1), max(u1, a1), min(u2, a2), max(u2, a2)), NOWHERE
            before, after = old, new
            if part == 0:  # boxes that hold only the old place; then, only the new one; last, both
                core, avoid, after = (u1, u1, u2, u2), (old[0], a1, a2), NONE
            elif part == 1:
                core, avoid, before = (a1, a1, a2, a2), (old[0], u1, u2), NONE
            state = _tell(points, core, avoid, before, after, state, steps, out)
        if state[0] > len(out):
            points.has[i] = old[0]
            return k, n
        points.has[i], points.x1[i], points.x2[i], points.y[i] = new[0], v1, v2, new[1]
        for j in range(n, state[0]):
            out[j, UPDATE] = k
        counters[state[1]] += 1
        counters[MESSAGES] += state[0] - n
        counters[MAR] += state[2]
        counters[HULL] += state[3]
        n = state[0]
    return len(updates.number), n
