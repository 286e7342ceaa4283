"""Range top-k by painting: the change of one object as rectangles of the subscription space.

A subscription "the first k with l <= x <= r" is the point (l, r). When an object moves, the subscriptions
that it affects fill a few rectangles of that plane, the *tiles*, however many subscriptions there are: a
staircase for the object itself, and a chain for each object that is exposed or pushed out
(`_kernels/paint.py` has the picture). So the work depends on the shape of the change, not on the number of
subscriptions.

Two ways to paint, by one sweep. *Dense* does not know the subscriptions. *Sparse* queries a
`SubscriptionSpace`: it leaves out rectangles without subscriptions and objects that no subscription takes,
and joins neighbours where no other subscription is between; it emits at most twice as many tiles as needed.
With `eps`, ceil(eps k) steps share a box: fewer tiles, which also reach subscriptions that have the object
within their first (1 + eps) k; these can ignore it.

Three uses. `describe`: tiles are messages, the object first, then those exposed in ascending y. `enumerate`:
which subscriptions had the object (OLD), have it now (NEW) or still (KEEP), take another one for it (GAIN) or
drop one (LOSE). `paint_batch`: a batch of changes as one, see there.

Cost: two `first_k` and, when y rises or in `enumerate`, one `min_y` per object met, at most k tiles each;
about three microseconds per change at k = 10 and 10,000 objects.

>>> points = Points()
>>> points.load([0, 1, 2], x=[10, 20, 30], y=[1, 2, 3])
>>> painter = Painter(points, [1])
>>> for tile in painter.describe([0], x=[10], y=[9]):  # the lowest rises above both others
...     print(tile.kind.name, tile.object, tile.y, tile.rectangle)
NEW 0 9 (-9223372036854775808, 10, 10, 9223372036854775807)
GAIN 1 2 (-9223372036854775808, 10, 20, 9223372036854775807)
>>> painter.counts
PaintCounts(min_y=2, first_k=2, snap=0, spared=0)

K12, sections IV to VI. What differs: objects at x itself are on the left (ties); an enumerated change is
swept from the lower to the higher y in either direction; for batches see `paint_batch`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.rank._kernels import paint as kernels
from tocsin.rank._kernels.paint import (
    BOX,
    FIRST_K,
    GROUP,
    MIN_Y,
    SIZE,
    SNAP,
    SPARED,
    STEP,
    TILES,
    WIDTH,
    Canvas,
    K,
    ObjectMoves,
    PaintGroups,
)
from tocsin.rank._kernels.points import HOME, X, Y, rewind
from tocsin.rank._kernels.space import SpaceArrays
from tocsin.rank.points import ABSENT, Points, columns
from tocsin.rank.space import SubscriptionSpace

__all__ = ["PaintCounts", "Painter", "Tile", "TileKind", "Tiles", "coalesced", "grouped", "paint_batch"]

Codes = NDArray[np.int64]
_UPDATE, _GROUP, _KIND, _OBJECT, _X, _Y, _RECTANGLE = range(7)  # columns of a table of tiles


class TileKind(IntEnum):
    """What a tile says of the subscriptions in it."""

    OLD = 0
    """They had the object as it was before."""
    NEW = 1
    """They have the object as it is now; in `describe`: they must receive it."""
    KEEP = 2
    """They have the object before and after: x and y stay as they are, something else may change."""
    GAIN = 3
    """They take this object for the one that moved."""
    LOSE = 4
    """They drop this object for the one that moved."""


class PaintCounts(NamedTuple):
    """Calls to the index of objects, and to that of subscriptions."""

    min_y: int
    first_k: int
    snap: int
    spared: int
    """Sweeps that stopped since no subscription was left; the paper's seem to call `min_y` once more."""


class Tile(NamedTuple):
    """One rectangle: the change it comes from, the group of subscriptions, and an object with its x and y."""

    update: int
    group: int
    kind: TileKind
    object: int
    x: int
    y: int
    rectangle: tuple[int, int, int, int]


@dataclass(frozen=True)
class Tiles:
    """Many tiles as one table; `len` counts them, iterating is for convenience."""

    table: Codes  # update, group, kind, object, x, y, l_low, l_high, r_low, r_high

    @classmethod
    def concat(cls, parts: Sequence[Tiles]) -> Tiles:
        """All of them, by update."""
        if len(parts) == 1:
            return parts[0]
        table = np.concatenate([np.empty((0, WIDTH), np.int64), *(part.table for part in parts)])
        return cls(table[np.argsort(table[:, _UPDATE], kind="stable")])

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Tile]:
        for update, group, kind, number, x, y, *ends in self.table.tolist():
            yield Tile(update, group, TileKind(kind), number, x, y, (ends[0], ends[1], ends[2], ends[3]))

    @property
    def update(self) -> Codes:
        return self.table[:, _UPDATE]

    @property
    def group(self) -> Codes:
        return self.table[:, _GROUP]

    @property
    def kind(self) -> Codes:
        return self.table[:, _KIND]

    @property
    def object(self) -> Codes:
        return self.table[:, _OBJECT]

    @property
    def x(self) -> Codes:
        return self.table[:, _X]

    @property
    def y(self) -> Codes:
        return self.table[:, _Y]

    @property
    def rectangles(self) -> Codes:
        return self.table[:, _RECTANGLE:]


def grouped(ks: ArrayLike, eps: float) -> PaintGroups:
    """k by group, and how many steps share a box.

    >>> grouped([1, 10], 0.25)
    PaintGroups(k=array([ 1, 10]), step=array([1, 3]))
    """
    k = np.ascontiguousarray(ks, np.int64)
    if k.ndim != 1 or np.any(k < 1):
        raise ValueError(f"every group has a k of at least 1, not {k.tolist()}")
    if not 0 <= eps <= 1:
        raise ValueError(f"eps is from 0 to 1, not {eps}")
    step = [max(1, math.ceil(eps * each - 1e-9)) for each in k.tolist()]
    return PaintGroups(k, np.array(step, np.int64).reshape(k.shape))


class Painter:
    """Paints and applies changes of objects, for several groups of subscriptions with a k each."""

    def __init__(
        self,
        points: Points,
        ks: Sequence[int],
        *,
        eps: float = 0.0,
        spaces: Sequence[SubscriptionSpace] | None = None,
    ) -> None:
        self.points = points
        self.groups = grouped(ks, eps)
        if spaces is not None and len(spaces) != len(self.groups.k):
            raise ValueError(f"{len(self.groups.k)} groups, but {len(spaces)} spaces of subscriptions")
        self.spaces = spaces
        self.state = np.zeros(SIZE, np.int64)  # of the kernels: counts, and the tile being painted
        self._tiles = np.empty((256, WIDTH), np.int64)

    @property
    def counts(self) -> PaintCounts:
        """Calls so far."""
        return PaintCounts(*self.state[[MIN_Y, FIRST_K, SNAP, SPARED]].tolist())

    def describe(self, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> Tiles:
        """Changes in order, as messages; the objects are moved. y = ABSENT deletes."""
        return self._run(columns(objects, x, y), False)

    def enumerate(self, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> Tiles:
        """Changes in order: which subscriptions had, have, gain, lose which object; the objects are moved."""
        return self._run(columns(objects, x, y), True)

    def _run(self, changes: list[Codes], enumerated: bool) -> Tiles:
        number, x, y = changes
        moves = ObjectMoves(number, x, y, np.empty((len(number), 2), np.int64))
        self.points.reserve(int(number.max(initial=-1)) + 1, 3 * len(number))
        if self.spaces is None:
            return self._paint(None, self.groups, moves, enumerated)
        parts: list[Tiles] = []
        for space, groups in self.views():  # one after the other, each from the same state
            if parts:
                rewind(self.points.arrays, moves.object, moves.before)
            parts.append(self._paint(space, groups, moves, enumerated))
            parts[-1].group[:] = len(parts) - 1
        return Tiles.concat(parts)

    def _paint(
        self, space: SpaceArrays | None, groups: PaintGroups, moves: ObjectMoves, enumerated: bool
    ) -> Tiles:
        canvas = self.canvas(groups, np.empty(0, np.bool_))
        at, end = 0, len(moves.object)
        while True:
            at = kernels.paint(self.points.arrays, space, canvas, groups, moves, enumerated, at)
            if at == end:
                return self.tiles_of(canvas)
            canvas = self.grown(canvas, 2 * len(canvas.tiles))

    # -- for other ways to paint -------------------------------------------------------------------

    def views(self) -> Iterator[tuple[SpaceArrays | None, PaintGroups]]:
        """The groups one by one, each with its space of subscriptions."""
        for at in range(len(self.groups.k)):
            space = None if self.spaces is None else self.spaces[at].arrays
            yield space, PaintGroups(self.groups.k[at : at + 1], self.groups.step[at : at + 1])

    def canvas(self, groups: PaintGroups, muted: NDArray[np.bool_]) -> Canvas:
        """An empty canvas, large enough for these k."""
        self.state[TILES] = 0
        lists = np.empty((2, int(groups.k.max(initial=1)) + 1), np.int64)
        return Canvas(self._tiles, self.state, lists, np.empty((2, BOX), np.int64), muted)

    def grown(self, canvas: Canvas, size: int) -> Canvas:
        """A canvas with the same tiles and space for `size` of them."""
        self._tiles = np.concatenate([canvas.tiles, np.empty((size - len(canvas.tiles), WIDTH), np.int64)])
        return canvas._replace(tiles=self._tiles)

    def tiles_of(self, canvas: Canvas) -> Tiles:
        """The tiles of a canvas."""
        return Tiles(canvas.tiles[: self.state[TILES]].copy())


# -- batches -----------------------------------------------------------------------------------------


def coalesced(objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[Codes, Codes, Codes]:
    """The last change of each object, by object."""
    number, to_x, to_y = columns(objects, x, y)
    kept, last = np.unique(number[::-1], return_index=True)
    at = len(number) - 1 - last
    return kept, to_x[at], to_y[at]


def paint_batch(painter: Painter, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> Tiles:
    """The tiles of a batch of changes painted as one, in the order of delivery; the objects are moved.

    Published one by one, an object that rises and falls again is sent twice, and one that is exposed for a
    moment is sent in vain. When only the end of the batch counts:

    1. changes of one object become one (`coalesced`);
    2. objects that fall are moved first and sent last: then each range takes those it wants, and each is sent
       once. While others rise, a fallen object that the sweep meets is not sent as exposed;
    3. objects that rise are sent from the highest down: an object that one of them exposes is then where it
       will stay, except for those that rise later, which are sent themselves. A risen object goes to all
       ranges that had it before the batch or have it now.

    Each object changes at most once, and keeps its x: an object that changes x needs a new number. Cost: as
    for one change after the other, and two `first_k` more per object that rises.

    >>> points = Points()
    >>> points.load([0, 1, 2, 3], x=[5, 5, 5, 5], y=[1, 5, 7, 10])
    >>> changes = coalesced([3, 1, 0, 0], [5, 5, 5, 5], [3, 20, ABSENT, 15])
    >>> tiles = paint_batch(Painter(points, [2]), *changes)
    >>> [(tile.object, tile.y) for tile in tiles]  # 2 is exposed, 3 comes last
    [(1, 20), (0, 15), (2, 7), (3, 3)]

    K12, section VI. What differs: there, an object that rises is sent to the ranges that have it once the
    falling ones are in place, which leaves wrong contents: the example is one such case.
    """
    number, x, y = columns(objects, x, y)
    if len(np.unique(number)) < len(number):
        raise ValueError("an object changes twice: see coalesced")
    painter.points.reserve(int(number.max(initial=-1)) + 1, 3 * len(number))
    table = painter.points.arrays.objects
    x = np.where(y == ABSENT, table[X, number], x)
    if np.any((table[HOME, number] >= 0) & (table[X, number] != x)):
        raise ValueError("an object changes x: remove it, and give it a new number")
    old = table[Y, number]
    up, down = np.flatnonzero(y > old), np.flatnonzero(y < old)
    order = np.concatenate([up[np.lexsort((-number[up], -y[up]))], down])
    before = np.stack([table[X, number[order]], old[order]], axis=1)
    moves = ObjectMoves(number[order], x[order], y[order], before)
    parts = [_one(painter, at, moves, len(up)) for at in range(len(painter.groups.k))]
    for tiles in parts:
        tiles.update[:] = order[tiles.update]
    return Tiles(np.concatenate([tiles.table for tiles in parts]))


def _one(painter: Painter, group: int, moves: ObjectMoves, ups: int) -> Tiles:
    """Paint for one group; if the tiles do not fit, take the moves back and paint into a longer buffer."""
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
        kernels.paint_batch(points, space, canvas, moves, ups, lists)
        if (needed := int(canvas.state[TILES])) <= len(canvas.tiles):
            return painter.tiles_of(canvas)
        canvas = painter.grown(canvas, 2 * needed)
        canvas.state[:] = counts
        rewind(points, moves.object, moves.before)
