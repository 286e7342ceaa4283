"""Which ranges does an update of a tuple affect, and what is their minimum then? Rectangles for each message.

The range l..r is the point (l, r). A message is a row of `out`:

    UPDATE  VALUE  EMPTY  l_low  l_high  r_low  r_high      for l in l_low..l_high and r in r_low..r_high
                                                            (and as many for a second attribute)

The updated tuple is not in the tree while the tree is queried. `out` may be too short: rows are counted but
not written then, the update is undone, and the caller retries with a longer one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.rank._kernels.augmented import (
    LEAST,
    MOST,
    ZERO,
    beside,
    delete,
    has_space,
    holds,
    insert,
    left_of,
    lowest,
    right_of,
)

__all__ = [
    *("BOUNDS", "COUNTERS", "EMPTY", "UPDATE", "VALUE"),
    *("BoxObjects", "BoxScratch", "BoxUpdates", "Objects", "Updates"),
    *("emit_boxes", "emit_distinct", "emit_extremes", "lowest_each"),
]

UPDATE, VALUE, EMPTY, BOUNDS = 0, 1, 2, 3  # columns of `out`
COUNTERS = ("ignorable", "easy", "difficult", "messages", "mar", "hull")
IGNORABLE, EASY, DIFFICULT, MESSAGES, MAR, HULL = (np.int64(i) for i in range(6))  # of `counters`
NO = np.bool_(False)
NONE = (NO, ZERO)


class Objects(NamedTuple):
    """By number: whether the object is present, and where."""

    has: NDArray[np.bool_]
    x: NDArray[np.int64]
    y: NDArray[np.int64]


class Updates(NamedTuple):
    """In order: an object's number, whether it is present afterwards, and where."""

    number: NDArray[np.int32]
    has: NDArray[np.bool_]
    x: NDArray[np.int64]
    y: NDArray[np.int64]


@kernel(allocates=False)
def _append(out, n, value, empty, bounds):
    if n < len(out):
        out[n, VALUE], out[n, EMPTY] = value, empty
        out[n, BOUNDS], out[n, BOUNDS + 1], out[n, BOUNDS + 2], out[n, BOUNDS + 3] = bounds
    return n + 1


@kernel(allocates=False)
def _step_left(tree, x, limit, value, empty):
    """The next stair before x, at or after `limit`, strictly below `value`: (exists, x, y, its end)."""
    if empty or value > LEAST:
        there, x1 = left_of(tree, x, MOST if empty else value - 1)
        if there and x1 >= limit:
            return True, x1, lowest(tree, x1, x1)[1], x1 + 1
    return False, limit, LEAST, limit


@kernel(allocates=False)
def _step_right(tree, x, limit, value, empty):
    if empty or value > LEAST:
        there, x1, y1 = right_of(tree, x, MOST if empty else value - 1)
        if there and x1 <= limit:
            return True, x1, y1, x1 - 1
    return False, limit, LEAST, limit


@kernel(allocates=False)
def _emit_staircase(tree, core, mar, peak, out, n):
    """One message for the peak and one for each stair on both sides, from the highest down.

    A range that reaches over a stair has that stair's value, if it ends before the next lower one on either
    side. Of two equally low stairs, the left one serves the ranges that contain both.
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
        n = _append(out, n, value, empty, (end1, inner1, inner2, end2))
        if not left and not right:
            return n
        go_right = right and (not left or y2 >= y1)
        go_left, empty = not go_right, NO
        value, inner1, inner2 = (y2, low, x2) if go_right else (y1, x1, high)


@kernel
def _emit_change(tree, core, limits, old, new, state, out):
    """Messages to the ranges within `limits` that contain `core`, where (present, y) goes from old to new.

    `state` is (messages so far, kind, calls of Mar, of hull); the new state is returned.
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
    if not falls:  # it may expose tuples that it was below
        mars += 1
        hidden, hidden_least = lowest(tree, begin, end)
        if hidden and (not new[0] or hidden_least <= new[1]):
            empty = not there and not new[0]
            peak = least if there and (not new[0] or least < new[1]) else new[1]
            n = _emit_staircase(tree, core, (begin, end), (peak, empty), out, n)
            return n, DIFFICULT, mars, hulls + 1
    n = _append(out, n, new[1], not new[0], (begin, low, high, end))
    return n, max(kind, EASY), mars, hulls


@kernel
def emit_extremes(tree, objects, updates, start, out, counters):
    """Apply updates from `start` on: (the first one not applied, messages); it was not for want of rows.

    A move affects ranges that contain only the old place, only the new one, or both: one message each at
    most.
    """
    n = ZERO
    for k in range(start, len(updates.number)):
        i = updates.number[k]
        xo, xn = objects.x[i], updates.x[k]
        old, new = (objects.has[i], objects.y[i]), (updates.has[k], updates.y[k])
        if not has_space(tree):
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
            state = _emit_change(tree, (low, high), (begin, end), before, after, state, out)
        end_row, kind, mars, hulls = state
        full = end_row > len(out)
        if full:
            xn, new = xo, old
        if new[0]:
            insert(tree, xn, new[1])
        if full:
            return k, n
        objects.has[i], objects.x[i], objects.y[i] = new[0], xn, new[1]
        for j in range(n, end_row):
            out[j, UPDATE] = k
        counters[kind] += 1
        counters[MESSAGES] += end_row - n
        counters[MAR] += mars
        counters[HULL] += hulls
        n = end_row
    return len(updates.number), n


@kernel
def _emit_value(tree, value, x, limits, empty, out, n):
    """The message to ranges within `limits` that contain x and no other tuple of the value."""
    if holds(tree, value, x):
        return n
    left, x1, right, x2 = beside(tree, value, x)
    begin = max(limits[0], x1 + 1) if left else limits[0]
    end = min(limits[1], x2 - 1) if right else limits[1]
    return _append(out, n, value, empty, (begin, x, x, end))


@kernel
def emit_distinct(tree, objects, updates, start, out, counters):
    """As `emit_extremes`, for values that ranges gain or (EMPTY) lose; the tree is of (value, x)."""
    n = ZERO
    for k in range(start, len(updates.number)):
        i = updates.number[k]
        had, xo, yo = objects.has[i], objects.x[i], objects.y[i]
        has, xn, yn = updates.has[k], updates.x[k], updates.y[k]
        if not has_space(tree) or n + 2 > len(out):
            return k, n
        first = n
        if had:
            delete(tree, yo, xo)
        if not (had and has and xo == xn and yo == yn):
            moves = had and has and yo == yn
            if had:
                begin = xn + 1 if moves and xn < xo else LEAST
                end = xn - 1 if moves and xn > xo else MOST
                n = _emit_value(tree, yo, xo, (begin, end), had, out, n)
            if has:
                begin = xo + 1 if moves and xo < xn else LEAST
                end = xo - 1 if moves and xo > xn else MOST
                n = _emit_value(tree, yn, xn, (begin, end), not has, out, n)
        if has:
            insert(tree, yn, xn)
        objects.has[i], objects.x[i], objects.y[i] = has, xn, yn
        for j in range(first, n):
            out[j, UPDATE] = k
        counters[IGNORABLE if n == first else EASY] += 1
        counters[MESSAGES] += n - first
        counters[MAR] += np.int64(had) + np.int64(has)
    return len(updates.number), n


@kernel(allocates=False)
def lowest_each(tree, low, high, value, empty):
    """`lowest` of many ranges."""
    for i in range(len(low)):
        there, least = lowest(tree, low[i], high[i])
        value[i], empty[i] = least if there else 0, not there


# -- boxes -------------------------------------------------------------------------------------------
# A range is a box a..b by c..d. A box that contains the core (a point, or the box of two) and no blocker may
# reach further to the left the lower it is. Steps say how far: from `at` on outwards, c must be in low.. and
# d in ..high. The right side is the same under ~x, which reverses the order of all int64.
#
#               . . . . . . high of step 0
#         p     .                              p limits the boxes that reach it: step 1 begins there
#     . . +-----+  core  . . .                 and is narrower; a blocker beside the core ends the whole side
#         q     .

LEFT, RIGHT = np.int64(0), np.int64(1)
NOWHERE = (NO, ZERO, ZERO)


class BoxObjects(NamedTuple):
    """By number: whether the object is present, and where."""

    has: NDArray[np.bool_]
    x1: NDArray[np.int64]
    x2: NDArray[np.int64]
    y: NDArray[np.int64]


class BoxUpdates(NamedTuple):
    """In order: an object's number, whether it is present afterwards, and where."""

    number: NDArray[np.int32]
    has: NDArray[np.bool_]
    x1: NDArray[np.int64]
    x2: NDArray[np.int64]
    y: NDArray[np.int64]


class BoxScratch(NamedTuple):
    """Steps of both sides, and candidates."""

    at: NDArray[np.int64]  # the steps: by side and step, falling
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    size: NDArray[np.int64]  # by side: steps
    limit: NDArray[np.int64]  # by side: where it ends
    found: NDArray[np.int64]  # numbers of candidates


@kernel(allocates=False)
def _side(core, x1):
    """The side of a point, and its position, counted from that side; inside is the left side's first step."""
    if x1 > core[1]:
        return RIGHT, ~x1
    return LEFT, min(x1, core[0])


@kernel(allocates=False)
def _fits(steps, core, x1, x2):
    """Is there a box without blockers that contains the core and this point?"""
    s, u = _side(core, x1)
    if u < steps.limit[s]:
        return False
    i = 0
    while i + 1 < steps.size[s] and steps.at[s, i + 1] >= u:
        i += 1
    return steps.low[s, i] <= x2 <= steps.high[s, i]


@kernel
def _block_side(steps, core, s, u, x2):
    """From now on no box may contain (u, x2), which is outside of the core."""
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


@kernel
def _block(steps, core, x1, x2):
    s, u = _side(core, x1)
    _block_side(steps, core, s, u, x2)
    if core[0] <= x1 <= core[1]:
        _block_side(steps, core, RIGHT, ~core[1], x2)


@kernel
def _emit_region(steps, core, point, new, out, n):
    """One message per pair of steps, to all boxes without blockers that contain the core and the point."""
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


@kernel
def _emit_box_change(points, core, avoid, old, new, state, steps, out):
    """Messages to the boxes that contain `core` and not `avoid`, where (present, y) goes from old to new.

    Exposed points are handled from the lowest up; each blocks for the next, so that no box gets two messages.
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
        x1, x2, content = core[0], core[2], new  # last, if nothing more is exposed
        if count:
            i = found[0]
            for k in range(1, count):
                i = found[k] if points.y[found[k]] < points.y[i] else i
            x1, x2, content = points.x1[i], points.x2[i], (points.has[i], points.y[i])
        n = _emit_region(steps, core, (x1, x2), content, out, n)
        if core[0] <= x1 <= core[1] and core[2] <= x2 <= core[3]:
            return n, max(kind, EASY), mars, hulls
        _block(steps, core, x1, x2)
        kept = 0
        for k in range(count):
            j = found[k]
            found[kept] = j
            kept += _fits(steps, core, points.x1[j], points.x2[j])
        count = kept


@kernel
def emit_boxes(points, updates, start, steps, out, counters):
    """Apply updates from `start` on: (the first one not applied, messages); it was not for want of rows."""
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
            if part == 0:  # boxes with only the old place; then with only the new one; last, with both
                core, avoid, after = (u1, u1, u2, u2), (old[0], a1, a2), NONE
            elif part == 1:
                core, avoid, before = (a1, a1, a2, a2), (old[0], u1, u2), NONE
            state = _emit_box_change(points, core, avoid, before, after, state, steps, out)
        end_row, kind, mars, hulls = state
        if end_row > len(out):
            points.has[i] = old[0]
            return k, n
        points.has[i], points.x1[i], points.x2[i], points.y[i] = new[0], v1, v2, new[1]
        for j in range(n, end_row):
            out[j, UPDATE] = k
        counters[kind] += 1
        counters[MESSAGES] += end_row - n
        counters[MAR] += mars
        counters[HULL] += hulls
        n = end_row
    return len(updates.number), n
