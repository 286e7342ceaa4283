"""A batch of moves painted as one: only the state at its end matters.

Moves are one per object: first those up, in descending new y, then those down (`rank/batch.py` says why).
"""

from __future__ import annotations

from tocsin.rank._kernels.paint import (
    FIRST_K,
    GAIN,
    NEW,
    SILENT,
    STEP,
    UPDATE,
    K,
    flush,
    look,
    offer,
    prepare,
    start,
    sweep,
)
from tocsin.rank._kernels.points import MAX, MIN, X, Y, first_k, inner, move, plain

__all__ = ["paint_batch"]


@inner
def _either(space, canvas, old, gone):
    """Who had the object before the batch or has it now: cut at the steps of both staircases, and take the
    higher. Both have their apex at x, so this is a staircase again."""
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
    """The tiles of a batch, all of them counted even if they do not fit; the moves are made.

    `ups`: how many moves go up. `old`: scratch, their lists from before the batch. `canvas.muted` tells the
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
            look(space, min(l_out, old[at, 0, k]), x, max(r_out, old[at, 1, k]))
            _either(space, canvas, old[at], y == MAX)
            canvas.muted[i] = False
            prepare(points, canvas, x, low)
            l_out, r_out = canvas.lists[0, k], canvas.lists[1, k]
            start(canvas, SILENT, i, x, y)
        look(space, l_out, x, r_out)
        sweep(points, space, canvas, low, y, GAIN if up else SILENT, SILENT)
    for at in range(ups, len(moves.object)):
        canvas.muted[moves.object[at]] = False
