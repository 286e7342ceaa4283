"""The sweep: which rectangles of the subscription space does a move of one object touch, and with whom?

A range [l, r] is the point (l, r); object i is in the ranges with l <= x <= r. It is among their first k
where fewer than k lower objects are in the range too: a staircase with its apex at (x, x), given by the x of
the nearest k lower objects on each side, l_1 >= ... >= l_k and r_1 <= ... <= r_k, here left and right:

      r |  . . . . . . .           step a = 0 .. k-1:  l_{a+1} < l <= l_a  and  x <= r < r_{k-a}
    r_2 +  . . . . +---+
        |          |   |           When i rises past object j, it loses the band of level k, the chain of
    r_1 +  +-------+   |           l_{a+1} < l <= l_a  and  r_{k-1-a} <= r < r_{k-a}, where it holds x_j:
        |  |           |           those ranges take j instead. Then x_j enters a list. Falling is the same
      x +  +-----------+           backwards: j is pushed out.
          l_2     l_1  x   l

Lists depend on the other objects alone: where i itself stands at the time does not matter. So all groups are
painted, each with its k, and then i is moved.

A view of the subscriptions is `space`: None knows nothing of them and paints all; with `SpaceArrays` the same
sweep leaves out what nobody is in, and joins neighbours where nobody else is between (`offer`, `_tighten`).
Numba compiles one version for each, without the branches of the other.

Rectangles are closed: (l_low, l_high, r_low, r_high), with MIN and MAX for open ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.rank._kernels.near import ALL, EMPTY, any_near, focus, snap_near
from tocsin.rank._kernels.points import MAX, MIN, X, Y, first_k, inner, min_y, move, plain

__all__ = [
    *(
        "BOX",
        "FIRST_K",
        "GAIN",
        "GROUP",
        "HELD",
        "K",
        "LOSE",
        "MIN_Y",
        "NEW",
        "OBJECT",
        "OLD",
        "SILENT",
        "SIZE",
    ),
    *("SNAP", "SPARED", "STEP", "TILES", "UPDATE", "WIDTH", "Canvas", "Groups", "Moves"),
    *("flush", "look", "offer", "paint", "prepare", "start", "sweep"),
]

SILENT, OLD, NEW, HELD, GAIN, LOSE = -1, 0, 1, 2, 3, 4  # who has i before, after, both; takes, loses j
WIDTH = 10  # of a tile: update, group, kind, object, x, y, and the rectangle
TILES, MIN_Y, FIRST_K, SNAP, SPARED = 0, 1, 2, 3, 4  # of `state`: how many tiles; calls so far; and
UPDATE, GROUP, KIND, OBJECT, AT, HEIGHT = 5, 6, 7, 8, 9, 10  # what stands in the next tile; and
WAITS, LEAST_L, MOST_R, LOW, HIGH = 11, 12, 13, 14, 15  # is a tile held back? bounds of a row; of those left
K, STEP, KEPT, SIZE = 16, 17, 18, 23  # of the group; counts before a move; how long `state` is
SOME, TIGHT, BOX = (
    4,
    8,
    9,
)  # of a box, after its ends: bounds of some of those in it; whether its ends are tight


class Groups(NamedTuple):
    k: NDArray[np.int64]
    step: NDArray[np.int64]  # so many steps of a staircase share a box


class Moves(NamedTuple):
    object: NDArray[np.int64]
    x: NDArray[np.int64]
    y: NDArray[np.int64]
    before: NDArray[np.int64]  # written: x and y before each move


class Canvas(NamedTuple):
    """What a sweep writes. Tiles that no longer fit are counted and not written."""

    tiles: NDArray[np.int64]
    state: NDArray[np.int64]
    lists: NDArray[np.int64]  # left and right, at least as long as the greatest k + 1
    box: NDArray[np.int64]  # the tile held back, and one to compare, `BOX` numbers each
    muted: NDArray[np.bool_]  # objects that are met in silence, by number; may be shorter


@inner
def flush(canvas):
    """The tile held back is written."""
    state = canvas.state
    if state[WAITS]:
        n = state[TILES]
        if n < len(canvas.tiles):
            tile = canvas.tiles[n]
            for at in range(6):
                tile[at] = state[UPDATE + at]
            for at in range(4):
                tile[6 + at] = canvas.box[0, at]
        state[TILES] = n + 1
        state[WAITS] = 0


@inner
def _free(space, canvas, l_low, l_high, r_low, r_high):
    """Nobody there?"""
    if l_low > l_high or r_low > r_high:
        return True
    canvas.state[SNAP] += 1
    return not any_near(space, l_low, l_high, r_low, r_high)


@inner
def _held(space, canvas, box, early):
    """Is somebody in the box? It becomes as small as those in it allow; if it may end `early`, only some of
    them may be known then."""
    canvas.state[SNAP] += 1
    found = snap_near(space, box[0], box[1], box[2], box[3], box[SOME:TIGHT], early)
    box[TIGHT] = found == ALL
    if found == ALL:
        for at in range(4):
            box[at] = box[SOME + at]
    return found != EMPTY


@inner
def _joins(space, canvas, last, box):
    """Does the rectangle around both, the second further left and not higher, hold nobody else?

    If not all bounds are tight, the part of it that is surely in it may be enough to tell."""
    stands = canvas.state[KIND] < GAIN  # steps of a staircase all stand on r = x
    if not (box[TIGHT] and last[TIGHT]):
        some, others = box[SOME:TIGHT], last[SOME:TIGHT]
        if not _free(space, canvas, some[0], some[1], box[3] + 1, max(others[3], some[3])):
            return False
        if not stands and not _free(space, canvas, others[0], others[1], some[2], last[2] - 1):
            return False
        floor = box[2]
        if not box[TIGHT]:
            _held(space, canvas, box, False)
        if not last[TIGHT]:
            _held(space, canvas, last, False)
        if stands:
            box[2] = last[2] = floor
    low, high = box[2], max(last[3], box[3])
    return (
        _free(space, canvas, box[0], box[1], box[3] + 1, high)
        and _free(space, canvas, last[0], last[1], low, last[2] - 1)
        and _free(space, canvas, box[1] + 1, last[0] - 1, low, high)
    )


@inner
def offer(space, canvas, l_out, l_in, r_in, r_out):
    """One more rectangle l_out < l <= l_in, r_in <= r < r_out of a row from right to left."""
    if l_out >= l_in or r_in >= r_out:
        return
    state, last, box = canvas.state, canvas.box[0], canvas.box[1]
    box[0], box[1] = MIN if l_out == MIN else l_out + 1, l_in
    box[2], box[3] = r_in, MAX if r_out == MAX else r_out - 1
    if space is None:
        joined = state[WAITS] and box[2] == last[2] and box[3] == last[3] and box[1] + 1 == last[0]
    else:
        l_low, r_high = max(box[0], state[LOW]), min(box[3], state[HIGH])
        if l_low > l_in or r_in > r_high:
            return
        box[0], box[3] = l_low, r_high
        if not _held(space, canvas, box, True):
            return
        if state[KIND] < GAIN:
            box[2] = r_in
        state[LEAST_L], state[MOST_R] = min(state[LEAST_L], box[0]), max(state[MOST_R], box[3])
        joined = state[WAITS] and _joins(space, canvas, last, box)
    if joined:
        last[0] = box[0]
        last[2], last[3] = min(last[2], box[2]), max(last[3], box[3])
    else:
        flush(canvas)
        for at in range(len(last)):  # a slice takes two seconds to compile
            last[at] = box[at]
        state[WAITS] = 1


@inner
def start(canvas, kind, number, x, y):
    """What the tiles to come say."""
    state = canvas.state
    state[KIND], state[OBJECT], state[AT], state[HEIGHT] = kind, number, x, y
    state[LEAST_L], state[MOST_R] = MAX, MIN


@inner
def _row(space, canvas, chain, x_j):
    """The staircase of the lists; or the chain of object j: the band of level k where j is in the range."""
    left, right, k, step = canvas.lists[0], canvas.lists[1], canvas.state[K], canvas.state[STEP]
    x = left[0]
    for a in range(0, k, step):
        b = min(a + step, k)
        l_in, r_in = left[a], x
        if chain:
            l_in = min(l_in, x_j) if x_j <= x else l_in
            r_in = max(right[k - b], x_j) if x_j > x else right[k - b]
        offer(space, canvas, left[b], l_in, r_in, right[k - a])
    flush(canvas)


@inner
def _enter(canvas, x_j):
    """An object now lower than i takes its place in a list; the last of that list leaves."""
    on_right = x_j > canvas.lists[0, 0]
    row, at = canvas.lists[int(on_right)], canvas.state[K]
    while at > 1 and ((row[at - 1] > x_j) if on_right else (row[at - 1] < x_j)):
        row[at] = row[at - 1]
        at -= 1
    row[at] = x_j


@inner
def _tighten(space, canvas):
    """Bounds of the subscriptions still in the staircase: from outside, the first step that is not empty."""
    state, left, right, box = canvas.state, canvas.lists[0], canvas.lists[1], canvas.box[1]
    k, step = state[K], state[STEP]
    floor, roof = state[LOW], state[HIGH]
    state[LOW], state[HIGH] = MAX, MIN
    for a in range((k - 1) // step * step, -1, -step):
        b = min(a + step, k)
        l_low = max(floor, MIN if left[b] == MIN else left[b] + 1)
        r_high = min(roof, MAX if right[k - a] == MAX else right[k - a] - 1)
        if left[b] < left[a] and l_low <= left[a] and left[0] <= r_high:
            box[0], box[1], box[2], box[3] = l_low, left[a], left[0], r_high
            if _held(space, canvas, box, True):
                state[LOW] = box[0]
                break
    if state[LOW] == MAX:
        return
    for a in range(0, k, step):  # the same steps from the other side: r_out falls with a
        b = min(a + step, k)
        l_low = max(state[LOW], MIN if left[b] == MIN else left[b] + 1)
        r_high = min(roof, MAX if right[k - a] == MAX else right[k - a] - 1)
        if state[HIGH] >= r_high:
            return
        if left[b] < left[a] and l_low <= left[a] and left[0] <= r_high:
            box[0], box[1], box[2], box[3] = l_low, left[a], max(left[0], state[HIGH]), r_high
            if _held(space, canvas, box, True):
                state[HIGH] = max(state[HIGH], box[3])


@inner
def prepare(points, canvas, x, y):
    """The lists of (x, y); no bounds are known yet."""
    state = canvas.state
    for side in range(2):
        first_k(points, x, y, side == 0, canvas.lists[side, : state[K] + 1])
    state[FIRST_K] += 2
    state[LOW], state[HIGH] = MIN, MAX


@inner
def look(space, l_out, x, r_out):
    """The subscriptions of l_out < l <= x <= r < r_out will be asked for."""
    if space is not None:
        focus(space, MIN if l_out == MIN else l_out + 1, x, x, MAX if r_out == MAX else r_out - 1, False)


@inner
def sweep(points, space, canvas, low, high, met, last):
    """The staircase of object i, as `start` has it, at y = low; then up to y = high.

    On the way a chain for each object met (met: their kind, or SILENT to stop at once); at the end the
    staircase at y = high, of kind `last`, or SILENT. Lists and bounds go along. If the kind started with is
    SILENT, the first staircase is not painted."""
    state, left, right = canvas.state, canvas.lists[0], canvas.lists[1]
    i, k, j, x_j, z = state[OBJECT], state[K], -1, left[0], low
    more, silent = True, state[KIND] == SILENT
    while True:
        if not silent:
            _row(space, canvas, j >= 0, x_j)
        if not more:
            return
        if j >= 0:
            _enter(canvas, x_j)
        if space is not None:
            due = state[LEAST_L] <= state[LOW] or state[MOST_R] >= state[HIGH]  # those at the bounds are told
            due = due or left[k] >= state[LOW] or right[k] <= state[HIGH]  # bounds that were not tight
            if silent or (j >= 0 and due):
                _tighten(space, canvas)
            elif j < 0:
                state[LOW], state[HIGH] = state[LEAST_L], state[MOST_R]
        more = met != SILENT and left[k] < left[0]
        if more and state[LOW] > state[HIGH]:  # nobody is left
            more = False
            state[SPARED] += 1
        if more:
            l_out, r_out = left[k], right[k]
            if space is not None:
                l_out = MIN if state[LOW] == MIN else state[LOW] - 1
                r_out = MAX if state[HIGH] == MAX else state[HIGH] + 1
            state[MIN_Y] += 1
            j = min_y(points, l_out, r_out, z)
            more = j >= 0 and points.objects[Y, j] < high
        if more:
            x_j, z = points.objects[X, j], points.objects[Y, j]
            silent = j < len(canvas.muted) and canvas.muted[j]
            start(canvas, met, j, x_j, z)
        elif last == SILENT or high == MAX:
            return
        else:
            j, silent = -1, False
            start(canvas, last, i, left[0], high)


@inner
def _change(points, space, canvas, x, old, new, enumerated):
    """One change of y of the object in `state`, for one group.

    Described: i first, to all who have it or get it; then who is exposed, ascending. Enumerated: who has i at
    the lower y, the objects between, who has i at the higher y; or who has it, if y stays."""
    rises, low, high, i = old < new, min(old, new), max(old, new), canvas.state[OBJECT]
    prepare(points, canvas, x, low)
    look(space, canvas.lists[0, canvas.state[K]], x, canvas.lists[1, canvas.state[K]])
    first, met, last = NEW, GAIN if rises else SILENT, SILENT
    if enumerated and old == new:
        first = HELD
    elif enumerated:
        first, met, last = (OLD, GAIN, NEW) if rises else (NEW, LOSE, OLD)
    start(canvas, first, i, x, low if enumerated else new)
    sweep(points, space, canvas, low, high, met, last)


@plain
def paint(points, space, canvas, groups, moves, enumerated, first):
    """The tiles of one move after the other, from `first` on; the move at which they did not fit.

    That one and those after it are not made. An object that changes x goes, and comes again."""
    state = canvas.state
    for at in range(first, len(moves.object)):
        for count in range(SPARED + 1):
            state[KEPT + count] = state[count]
        i, x, y = moves.object[at], moves.x[at], moves.y[at]
        old_x, old = points.objects[X, i], points.objects[Y, i]
        moves.before[at, 0], moves.before[at, 1] = old_x, old
        state[UPDATE] = at
        twice = old != MAX and y != MAX and old_x != x
        if twice:
            move(points, i, old_x, MAX)
        for group in range(len(groups.k)):
            state[GROUP], state[K], state[STEP] = group, groups.k[group], groups.step[group]
            for part in range(1 + twice):
                where = x if old == MAX or part else old_x
                before, after = MAX if part else old, MAX if part < twice else y
                if before != after or (enumerated and before != MAX):
                    state[OBJECT] = i
                    _change(points, space, canvas, where, before, after, enumerated)
        full = state[TILES] > len(canvas.tiles)
        move(points, i, old_x if full else x, old if full else y)
        if full:
            for count in range(SPARED + 1):
                state[count] = state[KEPT + count]
            return at
    return len(moves.object)
