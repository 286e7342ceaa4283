"""The baseline: every subscription that may be affected is probed by itself.

The server keeps the content of each: `members[s]` has its first k objects in order of y, then -1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.rank._kernels.paint import MIN_Y, SNAP, K, prepare
from tocsin.rank._kernels.points import MAX, MIN, X, Y, inner, min_y, move, plain
from tocsin.rank._kernels.space import find_in

__all__ = ["CANDIDATES", "TOLD", "Contents", "fill", "unicast"]

TOLD, CANDIDATES = 0, SNAP  # of `state`: how many messages; `SNAP` counts the subscriptions looked at


class Contents(NamedTuple):
    l: NDArray[np.int64]  # noqa: E741
    r: NDArray[np.int64]
    members: NDArray[np.int64]
    found: NDArray[np.int32]  # scratch, one place per subscription and one to spare


@inner
def _probe(points, contents, s, y):
    """The lowest object above y of a subscription's range."""
    low, high = contents.l[s], contents.r[s]
    return min_y(points, MIN if low == MIN else low - 1, MAX if high == MAX else high + 1, y)


@plain
def fill(points, contents):
    """All contents from the objects."""
    for s in range(len(contents.l)):
        y = MIN
        for at in range(contents.members.shape[1]):
            j = _probe(points, contents, s, y)
            contents.members[s, at] = j
            if j < 0:
                contents.members[s, at:] = -1
                break
            y = points.objects[Y, j]


@inner
def _tell(canvas, at, s, j, x, y):
    told = canvas.state[TOLD]
    if told < len(canvas.tiles):
        tile = canvas.tiles[told]
        tile[0], tile[1], tile[2], tile[3], tile[4] = at, s, j, x, y
    canvas.state[TOLD] = told + 1


@inner
def _take(points, row, i, y):
    """Object i out of a row of members, if it is there; then in at y, if it is among the first. Both told."""
    k, was, now = len(row), False, False
    for at in range(k):
        was |= row[at] == i
        if was:
            row[at] = row[at + 1] if at + 1 < k else -1
    if y == MAX:
        return was, now
    at = k
    while at > 0 and (row[at - 1] < 0 or points.objects[Y, row[at - 1]] > y):
        at -= 1
    now = at < k
    for place in range(k - 1, at, -1):
        row[place] = row[place - 1]
    if now:
        row[at] = i
    return was, now


@inner
def _change(points, space, contents, canvas, at, i, x, old, new):
    """One change of y: all subscriptions of the influence interval, each with one probe when y rises."""
    state, k = canvas.state, canvas.state[K]
    prepare(points, canvas, x, min(old, new))
    l_out, r_out = canvas.lists[0, k], canvas.lists[1, k]
    if l_out >= x:
        return
    low, high = MIN if l_out == MIN else l_out + 1, MAX if r_out == MAX else r_out - 1
    count = find_in(space, low, x, x, high, contents.found, 0)
    state[CANDIDATES] += count
    for n in range(count):
        s = contents.found[n]
        row = contents.members[s]
        last, j = row[k - 1], -1
        if new > old and last >= 0:
            state[MIN_Y] += 1
            y = old if last == i else points.objects[Y, last]
            j = _probe(points, contents, s, y)
        was, now = _take(points, row, i, new)
        if was and j >= 0 and j != i and points.objects[Y, j] < new:  # j is exposed, i is above it
            row[k - 1] = j
            _tell(canvas, at, s, i, x, new)
            _tell(canvas, at, s, j, points.objects[X, j], points.objects[Y, j])
        elif was or now:
            _tell(canvas, at, s, i, x, new)


@plain
def unicast(points, space, contents, canvas, moves):
    """Messages (move, subscription, object, x, y), counted even if they do not fit; the moves are made."""
    for at in range(len(moves.object)):
        i, x, y = moves.object[at], moves.x[at], moves.y[at]
        old_x, old = points.objects[X, i], points.objects[Y, i]
        moves.before[at, 0], moves.before[at, 1] = old_x, old
        if old != MAX and y != MAX and old_x != x:
            move(points, i, old_x, MAX)
            _change(points, space, contents, canvas, at, i, old_x, old, MAX)
            old = MAX
        where = x if old == MAX else old_x
        move(points, i, where, MAX)
        if old != y:
            _change(points, space, contents, canvas, at, i, where, old, y)
        move(points, i, where, y)
