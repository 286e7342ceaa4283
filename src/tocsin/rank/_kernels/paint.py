"""The sweep: which rectangles of the subscription space does a move of one object affect, and how?

A range [l, r] is the point (l, r); object i is in the ranges with l <= x <= r. It is among their first k
where fewer than k lower objects are in the range too: a staircase with its apex at (x, x), given by the x of
the nearest k lower objects on each side, l_1 >= ... >= l_k and r_1 <= ... <= r_k, here left and right:

      r |  . . . . . . .           step a = 0 .. k-1:  l_{a+1} < l <= l_a  and  x <= r < r_{k-a}
    r_2 +  . . . . +---+
        |          |   |           When i rises past object j, it loses the band of level k, the chain of
    r_1 +  +-------+   |           l_{a+1} < l <= l_a  and  r_{k-1-a} <= r < r_{k-a}, where it contains x_j:
        |  |           |           those ranges take j instead. Then x_j enters a list. Falling is the same
      x +  +-----------+           backwards: j is pushed out.
          l_2     l_1  x   l

Lists depend on the other objects only: the place of i itself does not matter. So all groups are painted, each
with its k, and then i is moved.

`space` is the view of the subscriptions. With None the sweep does not know them and paints everything; with
`SpaceArrays` the same sweep leaves out rectangles without subscriptions, and joins neighbours where no other
subscription is between (`offer`, `_tighten`). Numba compiles one version for each, without the branches of
the other.

Rectangles are closed: (l_low, l_high, r_low, r_high), with MIN and MAX for open ends. After the sweep follow
its use for a batch of moves (`paint_batch`) and the baseline that probes each subscription (`unicast`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.rank._kernels.near import ALL, EMPTY, any_near, focus, snap_near
from tocsin.rank._kernels.points import MAX, MIN, X, Y, first_k, min_y, move, plain
from tocsin.rank._kernels.space import find_in

__all__ = [
    *("BOX", "FIRST_K", "GROUP", "K", "MIN_Y", "SENT", "SIZE", "SNAP", "SPARED", "STEP", "TILES", "WIDTH"),
    *("MOVE", "SUBJECT", "SUBJECT_X", "SUBJECT_Y", "SUBSCRIPTION"),
    *("Canvas", "ObjectMoves", "PaintGroups", "SubscriptionContents"),
    *("fill", "paint", "paint_batch", "unicast"),
]

# kinds of tiles (`rank/paint.py`, TileKind): subscriptions had i, have it, have it still; take j, drop j
SILENT, OLD, NEW, KEEP, GAIN, LOSE = -1, 0, 1, 2, 3, 4  # SILENT: no tiles
WIDTH = 10  # of a tile: update, group, kind, object, x, y, and the rectangle

# places in `Canvas.state`: how many tiles, and calls so far
TILES, MIN_Y, FIRST_K, SNAP, SPARED = 0, 1, 2, 3, 4
# the first six columns of the next tile
UPDATE, GROUP, KIND, OBJECT, AT, HEIGHT = 5, 6, 7, 8, 9, 10
# is a tile pending? bounds of the subscriptions of a row, and of those left
PENDING, LEAST_L, MOST_R, LOW, HIGH = 11, 12, 13, 14, 15
# k and step of the group; counts before a move, which are restored if its tiles do not fit; length of `state`
K, STEP, SAVED, SIZE = 16, 17, 18, 23

# places in a box, after its four ends: bounds of some subscriptions in it; whether its ends are tight
SOME, TIGHT, BOX = 4, 8, 9


class PaintGroups(NamedTuple):
    """Groups of subscriptions: their k, and how many steps of a staircase share a box."""

    k: NDArray[np.int64]
    step: NDArray[np.int64]


class ObjectMoves(NamedTuple):
    """Objects, and where they are afterwards, in order."""

    object: NDArray[np.int64]
    x: NDArray[np.int64]
    y: NDArray[np.int64]
    before: NDArray[np.int64]  # output: x and y before each move


class Canvas(NamedTuple):
    """The output of a sweep. Tiles that do not fit are counted and not written."""

    tiles: NDArray[np.int64]
    state: NDArray[np.int64]
    lists: NDArray[np.int64]  # left and right, at least as long as the greatest k + 1
    box: NDArray[np.int64]  # the pending tile, and one to compare, `BOX` numbers each
    muted: NDArray[np.bool_]  # objects for which the sweep emits no chain, by number; may be shorter


@plain
def flush(canvas):
    """Write the pending tile."""
    state = canvas.state
    if state[PENDING]:
        n = state[TILES]
        if n < len(canvas.tiles):
            tile = canvas.tiles[n]
            for at in range(6):
                tile[at] = state[UPDATE + at]
            for at in range(4):
                tile[6 + at] = canvas.box[0, at]
        state[TILES] = n + 1
        state[PENDING] = 0


@plain
def _is_empty(space, canvas, l_low, l_high, r_low, r_high):
    """Is the rectangle without subscriptions?"""
    if l_low > l_high or r_low > r_high:
        return True
    canvas.state[SNAP] += 1
    return not any_near(space, l_low, l_high, r_low, r_high)


@plain
def _snap(space, canvas, box, early):
    """Shrink the box around the subscriptions in it; whether there are any. If the search may end `early`,
    only some of them may be known."""
    canvas.state[SNAP] += 1
    found = snap_near(space, box[0], box[1], box[2], box[3], box[SOME:TIGHT], early)
    box[TIGHT] = found == ALL
    if found == ALL:
        for at in range(4):
            box[at] = box[SOME + at]
    return found != EMPTY


@plain
def _joins(space, canvas, last, box):
    """Is no other subscription in the rectangle around both boxes, the second further left and not higher?

    If not all bounds are tight, a part that is surely in the rectangle may be enough to decide."""
    stands = canvas.state[KIND] < GAIN  # steps of a staircase all stand on r = x
    if not (box[TIGHT] and last[TIGHT]):
        some, others = box[SOME:TIGHT], last[SOME:TIGHT]
        if not _is_empty(space, canvas, some[0], some[1], box[3] + 1, max(others[3], some[3])):
            return False
        if not stands and not _is_empty(space, canvas, others[0], others[1], some[2], last[2] - 1):
            return False
        floor = box[2]
        if not box[TIGHT]:
            _snap(space, canvas, box, False)
        if not last[TIGHT]:
            _snap(space, canvas, last, False)
        if stands:
            box[2] = last[2] = floor
    low, high = box[2], max(last[3], box[3])
    return (
        _is_empty(space, canvas, box[0], box[1], box[3] + 1, high)
        and _is_empty(space, canvas, last[0], last[1], low, last[2] - 1)
        and _is_empty(space, canvas, box[1] + 1, last[0] - 1, low, high)
    )


@plain
def offer(space, canvas, l_out, l_in, r_in, r_out):
    """Add the next rectangle, l_out < l <= l_in and r_in <= r < r_out, of a row from right to left."""
    if l_out >= l_in or r_in >= r_out:
        return
    state, last, box = canvas.state, canvas.box[0], canvas.box[1]
    box[0], box[1] = MIN if l_out == MIN else l_out + 1, l_in
    box[2], box[3] = r_in, MAX if r_out == MAX else r_out - 1
    if space is None:
        joined = state[PENDING] and box[2] == last[2] and box[3] == last[3] and box[1] + 1 == last[0]
    else:
        l_low, r_high = max(box[0], state[LOW]), min(box[3], state[HIGH])
        if l_low > l_in or r_in > r_high:
            return
        box[0], box[3] = l_low, r_high
        if not _snap(space, canvas, box, True):
            return
        if state[KIND] < GAIN:
            box[2] = r_in
        state[LEAST_L], state[MOST_R] = min(state[LEAST_L], box[0]), max(state[MOST_R], box[3])
        joined = state[PENDING] and _joins(space, canvas, last, box)
    if joined:
        last[0] = box[0]
        last[2], last[3] = min(last[2], box[2]), max(last[3], box[3])
    else:
        flush(canvas)
        for at in range(len(last)):  # a slice takes two seconds to compile
            last[at] = box[at]
        state[PENDING] = 1


@plain
def start(canvas, kind, number, x, y):
    """Set kind and object of the next tiles."""
    state = canvas.state
    state[KIND], state[OBJECT], state[AT], state[HEIGHT] = kind, number, x, y
    state[LEAST_L], state[MOST_R] = MAX, MIN


@plain
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


@plain
def _enter(canvas, x_j):
    """Insert an object that is now lower than i into its list; the last one of that list drops out."""
    on_right = x_j > canvas.lists[0, 0]
    row, at = canvas.lists[int(on_right)], canvas.state[K]
    while at > 1 and ((row[at - 1] > x_j) if on_right else (row[at - 1] < x_j)):
        row[at] = row[at - 1]
        at -= 1
    row[at] = x_j


@plain
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
            if _snap(space, canvas, box, True):
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
            if _snap(space, canvas, box, True):
                state[HIGH] = max(state[HIGH], box[3])


@plain
def prepare(points, canvas, x, y):
    """Compute the lists of (x, y); reset the bounds."""
    state = canvas.state
    for side in range(2):
        first_k(points, x, y, side == 0, canvas.lists[side, : state[K] + 1])
    state[FIRST_K] += 2
    state[LOW], state[HIGH] = MIN, MAX


@plain
def focus_on(space, l_out, x, r_out):
    """Prepare queries of the subscriptions with l_out < l <= x <= r < r_out."""
    if space is not None:
        focus(space, MIN if l_out == MIN else l_out + 1, x, x, MAX if r_out == MAX else r_out - 1, False)


@plain
def sweep(points, space, canvas, low, high, met, last):
    """Paint the staircase of object i, as set by `start`, at y = low; then sweep up to y = high.

    Paint a chain for each object met (met: their kind, or SILENT to stop at once), and at the end the
    staircase at y = high, of kind `last`, or SILENT. Lists and bounds follow. If the kind set by `start` is
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
            # tighten once subscriptions at the bounds are done, or the bounds were not tight
            due = state[LEAST_L] <= state[LOW] or state[MOST_R] >= state[HIGH]
            due = due or left[k] >= state[LOW] or right[k] <= state[HIGH]
            if silent or (j >= 0 and due):
                _tighten(space, canvas)
            elif j < 0:
                state[LOW], state[HIGH] = state[LEAST_L], state[MOST_R]
        more = met != SILENT and left[k] < left[0]
        if more and state[LOW] > state[HIGH]:  # no subscription is left
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


@plain
def _change(points, space, canvas, x, old, new, enumerated):
    """Paint a change of y of the object in `state`, for one group.

    Described: first i, to all ranges that have it or get it; then exposed objects, ascending. Enumerated:
    ranges with i at the lower y, the objects between, ranges with i at the higher y; or those with i, if y
    stays."""
    rises, low, high, i = old < new, min(old, new), max(old, new), canvas.state[OBJECT]
    prepare(points, canvas, x, low)
    focus_on(space, canvas.lists[0, canvas.state[K]], x, canvas.lists[1, canvas.state[K]])
    first, met, last = NEW, GAIN if rises else SILENT, SILENT
    if enumerated and old == new:
        first = KEEP
    elif enumerated:
        first, met, last = (OLD, GAIN, NEW) if rises else (NEW, LOSE, OLD)
    start(canvas, first, i, x, low if enumerated else new)
    sweep(points, space, canvas, low, high, met, last)


@plain
def paint(points, space, canvas, groups, moves, enumerated, first):
    """Paint and apply moves, from `first` on; return the first one whose tiles did not fit.

    That one and those after it are not applied. A change of x is a delete and an insert."""
    state = canvas.state
    for at in range(first, len(moves.object)):
        for count in range(SPARED + 1):
            state[SAVED + count] = state[count]
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
                state[count] = state[SAVED + count]
            return at
    return len(moves.object)


# -- batches -----------------------------------------------------------------------------------------
# One move per object: first those up, in descending new y, then those down (`rank/paint.py` says why).


@plain
def _either(space, canvas, old, gone):
    """Ranges that had the object before the batch or have it now: cut at the steps of both staircases, and
    take the higher one. Both have their apex at x, so this is a staircase again."""
    lists, k, step = canvas.lists, canvas.state[K], canvas.state[STEP]
    x = l_in = old[0, 0]
    a, b = 0, k if gone else 0
    while a < k or b < k:
        one = old[0, min(a + step, k)] if a < k else MIN
        two = lists[0, min(b + step, k)] if b < k else MIN
        l_out, r_out = max(one, two), x
        if a < k:
            r_out = max(r_out, old[1, k - a])
        if b < k:
            r_out = max(r_out, lists[1, k - b])
        offer(space, canvas, l_out, l_in, x, r_out)
        l_in = l_out
        if one == l_out:
            a += step
        if two == l_out:
            b += step
    flush(canvas)


@plain
def paint_batch(points, space, canvas, moves, ups, old):
    """The tiles of a batch, all of them counted even if they do not fit; the moves are applied.

    `ups`: how many moves go up. `old`: scratch, their lists from before the batch. `canvas.muted` marks the
    moved objects, and is cleared."""
    state = canvas.state
    for at in range(ups):
        i = moves.object[at]
        for side in range(2):
            first_k(points, points.objects[X, i], points.objects[Y, i], side == 0, old[at, side])
    state[FIRST_K] += 2 * ups
    for at in range(ups, len(moves.object)):
        move(points, moves.object[at], moves.x[at], moves.y[at])
    for at in range(len(moves.object)):
        i, x, y, up = moves.object[at], moves.x[at], moves.y[at], at < ups
        low = points.objects[Y, i] if up else y
        if up:
            move(points, i, x, y)
        state[UPDATE] = at
        prepare(points, canvas, x, y)
        start(canvas, NEW, i, x, y)
        k = state[K]
        l_out, r_out = canvas.lists[0, k], canvas.lists[1, k]
        if up:
            focus_on(space, min(l_out, old[at, 0, k]), x, max(r_out, old[at, 1, k]))
            _either(space, canvas, old[at], y == MAX)
            canvas.muted[i] = False
            prepare(points, canvas, x, low)
            l_out, r_out = canvas.lists[0, k], canvas.lists[1, k]
            start(canvas, SILENT, i, x, y)
        focus_on(space, l_out, x, r_out)
        sweep(points, space, canvas, low, y, GAIN if up else SILENT, SILENT)
    for at in range(ups, len(moves.object)):
        canvas.muted[moves.object[at]] = False


# -- unicast: the baseline -----------------------------------------------------------------------------
# The server keeps the content of each subscription and probes all that a change may affect, one by one.

SENT, PROBED = TILES, SNAP  # of `state`: how many messages; how many subscriptions were probed
MOVE, SUBSCRIPTION, SUBJECT, SUBJECT_X, SUBJECT_Y = range(5)  # columns of a message


class SubscriptionContents(NamedTuple):
    """Ranges by subscription, and their first k objects in the order of y, then -1."""

    l: NDArray[np.int64]  # noqa: E741
    r: NDArray[np.int64]
    members: NDArray[np.int64]
    found: NDArray[np.int32]  # scratch, one place per subscription and one to spare


@plain
def _probe(points, contents, s, y):
    """The lowest object above y of a subscription's range."""
    low, high = contents.l[s], contents.r[s]
    return min_y(points, MIN if low == MIN else low - 1, MAX if high == MAX else high + 1, y)


@plain
def fill(points, contents):
    """Compute all contents from the objects."""
    for s in range(len(contents.l)):
        y = MIN
        for at in range(contents.members.shape[1]):
            j = _probe(points, contents, s, y)
            contents.members[s, at] = j
            if j < 0:
                contents.members[s, at:] = -1
                break
            y = points.objects[Y, j]


@plain
def _send(canvas, s, j, x, y):
    """One message to subscription s: object j is at (x, y) now."""
    state = canvas.state
    sent = state[SENT]
    if sent < len(canvas.tiles):
        message = canvas.tiles[sent]
        message[MOVE], message[SUBSCRIPTION] = state[UPDATE], s
        message[SUBJECT], message[SUBJECT_X], message[SUBJECT_Y] = j, x, y
    state[SENT] = sent + 1


@plain
def _update_members(points, row, i, y):
    """Remove object i from a row of members; insert it at y if it is among the first: (was, is) in it."""
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


@plain
def _probe_change(points, space, contents, canvas, x, old, new):
    """A change of y of the object in `state`: probe all subscriptions of the influence interval."""
    state, k, i = canvas.state, canvas.state[K], canvas.state[OBJECT]
    prepare(points, canvas, x, min(old, new))
    l_out, r_out = canvas.lists[0, k], canvas.lists[1, k]
    if l_out >= x:
        return
    low, high = MIN if l_out == MIN else l_out + 1, MAX if r_out == MAX else r_out - 1
    count = find_in(space, low, x, x, high, contents.found, 0)
    state[PROBED] += count
    for n in range(count):
        s = contents.found[n]
        row = contents.members[s]
        last, j = row[k - 1], -1
        if new > old and last >= 0:
            state[MIN_Y] += 1
            y = old if last == i else points.objects[Y, last]
            j = _probe(points, contents, s, y)
        was, now = _update_members(points, row, i, new)
        if was and j >= 0 and j != i and points.objects[Y, j] < new:  # j is exposed, i is above it
            row[k - 1] = j
            _send(canvas, s, i, x, new)
            _send(canvas, s, j, points.objects[X, j], points.objects[Y, j])
        elif was or now:
            _send(canvas, s, i, x, new)


@plain
def unicast(points, space, contents, canvas, moves):
    """Messages (move, subscription, object, x, y), counted even if they do not fit; the moves are applied."""
    for at in range(len(moves.object)):
        i, x, y = moves.object[at], moves.x[at], moves.y[at]
        old_x, old = points.objects[X, i], points.objects[Y, i]
        moves.before[at, 0], moves.before[at, 1] = old_x, old
        canvas.state[UPDATE], canvas.state[OBJECT] = at, i
        if old != MAX and y != MAX and old_x != x:
            move(points, i, old_x, MAX)
            _probe_change(points, space, contents, canvas, old_x, old, MAX)
            old = MAX
        where = x if old == MAX else old_x
        move(points, i, where, MAX)
        if old != y:
            _probe_change(points, space, contents, canvas, where, old, y)
        move(points, i, where, y)
