"""A batch of changes painted as one: fewer messages, and contents exact at its end.

Told one by one, an object that rises and falls again is heard of twice, and one that is exposed for a moment
is sent in vain. When only the end of a batch counts:

1. changes of one object become one (`coalesced`);
2. objects that fall are moved at once and told last: then each range takes those it wants, and each is sent
   once. While others rise, a fallen object that is met is known to come, so it is not sent as exposed;
3. objects that rise are told from the highest down: what one exposes is then where it will stay, but for
   those that rise later, which are told themselves. Such an object is told to all who had it before the
   batch or have it now.

Cost: as one change after the other, and two `first_k` more per object that rises.

>>> from tocsin.rank.points import ABSENT, Points
>>> points = Points()
>>> points.load([0, 1, 2, 3], x=[5, 5, 5, 5], y=[1, 5, 7, 10])
>>> changes = coalesced([3, 1, 0, 0], [5, 5, 5, 5], [3, 20, ABSENT, 15])
>>> tiles = paint_batch(Painter(points, [2]), *changes)
>>> [(tile.object, tile.y) for tile in tiles]  # 2 is exposed, 3 comes last
[(1, 20), (0, 15), (2, 7), (3, 3)]

K12, section VI. What differs: there, an object that rises is told to those who have it once the falling ones
are in place, which leaves wrong contents: the example is one such case.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.rank._kernels.paint import GROUP, STEP, TILES, K, Moves
from tocsin.rank._kernels.paint_batch import paint_batch as _paint_batch
from tocsin.rank._kernels.points import HOME, X, Y, rewind
from tocsin.rank.paint import Painter, Tiles
from tocsin.rank.points import ABSENT, columns

__all__ = ["coalesced", "paint_batch"]

Codes = NDArray[np.int64]


def coalesced(objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[Codes, Codes, Codes]:
    """The last change of each object, by object."""
    number, to_x, to_y = columns(objects, x, y)
    kept, last = np.unique(number[::-1], return_index=True)
    at = len(number) - 1 - last
    return kept, to_x[at], to_y[at]


def paint_batch(painter: Painter, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> Tiles:
    """The tiles of a whole batch, in the order in which they are to be heard; the objects are moved.

    Each object at most once, and at the x where it is, if it is there: who changes x gets a new number."""
    number, x, y = columns(objects, x, y)
    if len(np.unique(number)) < len(number):
        raise ValueError("an object changes twice: see coalesced")
    painter.points.reserve(int(number.max(initial=-1)) + 1, 3 * len(number))
    table = painter.points.arrays.objects
    x = np.where(y == ABSENT, table[X, number], x)
    if np.any((table[HOME, number] >= 0) & (table[X, number] != x)):
        raise ValueError("an object changes x: take it out, and give it a new number")
    old = table[Y, number]
    up, down = np.flatnonzero(y > old), np.flatnonzero(y < old)
    order = np.concatenate([up[np.lexsort((-number[up], -y[up]))], down])
    before = np.stack([table[X, number[order]], old[order]], axis=1)
    moves = Moves(number[order], x[order], y[order], before)
    parts = [_one(painter, at, moves, len(up)) for at in range(len(painter.groups.k))]
    for tiles in parts:
        tiles.update[:] = order[tiles.update]
    return Tiles(np.concatenate([tiles.table for tiles in parts]))


def _one(painter: Painter, group: int, moves: Moves, ups: int) -> Tiles:
    """For one group: once, or again with the room that was missing, from the same beginning."""
    space, own = list(painter.views())[group]
    points = painter.points.arrays
    muted = np.zeros(points.objects.shape[1], np.bool_)
    canvas = painter.canvas(own, muted)
    lists = np.empty((ups, 2, int(own.k[0]) + 1), np.int64)
    if group:
        rewind(points, moves.object, moves.before)
    counts = canvas.state.copy()
    while True:
        muted[moves.object] = True
        canvas.state[GROUP], canvas.state[K], canvas.state[STEP] = group, own.k[0], own.step[0]
        _paint_batch(points, space, canvas, moves, ups, lists)
        if (needed := int(canvas.state[TILES])) <= len(canvas.tiles):
            return painter.taken(canvas)
        canvas = painter.grown(canvas, 2 * needed)
        canvas.state[:] = counts
        rewind(points, moves.object, moves.before)
