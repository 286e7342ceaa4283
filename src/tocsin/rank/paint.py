"""Range top-k by painting: a change of one object as rectangles of the subscription space.

A subscription "the first k with l <= x <= r" is the point (l, r). When an object moves, those who must hear
of it fill a few rectangles of that plane, however many they are: a staircase for the object itself, and a
chain for each object that is exposed, or pushed out (`_kernels/paint.py` has the picture). So the work
depends on the shape of the change, not on the number of subscriptions.

Two ways to paint, by one sweep. *Dense* knows no subscriptions. *Sparse* asks a `Space` of them: it leaves
out rectangles that nobody is in and objects that nobody misses, and joins neighbours where nobody else is
between; at most twice as many tiles as needed. With `eps`, ceil(eps k) steps share a box: fewer tiles, which
reach some who need not hear of it (the object is within their first (1 + eps) k), and who can ignore it.

Two uses. `describe`: tiles are messages, the object first, then those exposed in ascending y. `enumerate`:
who had the object (OLD), who has it now (NEW) or still (HELD), who takes another one for it (GAIN) or gives
one up (LOSE).

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
Counts(min_y=2, first_k=2, snap=0, spared=0)

K12, sections IV and V. What differs: objects at x itself are on the left (ties); an enumerated change is
swept from the lower to the higher y whichever way it goes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.rank._kernels.paint import (
    BOX,
    FIRST_K,
    MIN_Y,
    SIZE,
    SNAP,
    SPARED,
    TILES,
    WIDTH,
    Canvas,
    Groups,
    Moves,
    paint,
)
from tocsin.rank._kernels.points import rewind
from tocsin.rank._kernels.space import SpaceArrays
from tocsin.rank.points import Points, columns
from tocsin.rank.space import Space

__all__ = ["Counts", "Kind", "Painter", "Tile", "Tiles", "grouped"]

Codes = NDArray[np.int64]


class Kind(IntEnum):
    """What a tile says of those in it."""

    OLD = 0
    """They had the object as it was before."""
    NEW = 1
    """They have the object as it is now; described: they must hear of it."""
    HELD = 2
    """They have the object before and after: x and y stay as they are, something else may change."""
    GAIN = 3
    """They take this object for the one that moved."""
    LOSE = 4
    """They give this object up for the one that moved."""


class Counts(NamedTuple):
    """Calls to the index of objects, and looks at subscriptions."""

    min_y: int
    first_k: int
    snap: int
    spared: int
    """Sweeps that stopped since nobody was left; the paper's seem to ask `min_y` once more."""


class Tile(NamedTuple):
    """One rectangle: the change it comes from, the group of subscriptions, and an object with its x and y."""

    update: int
    group: int
    kind: Kind
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
        return cls(table[np.argsort(table[:, 0], kind="stable")])

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Tile]:
        for update, group, kind, number, x, y, *ends in self.table.tolist():
            yield Tile(update, group, Kind(kind), number, x, y, (ends[0], ends[1], ends[2], ends[3]))

    @property
    def update(self) -> Codes:
        return self.table[:, 0]

    @property
    def group(self) -> Codes:
        return self.table[:, 1]

    @property
    def kind(self) -> Codes:
        return self.table[:, 2]

    @property
    def object(self) -> Codes:
        return self.table[:, 3]

    @property
    def x(self) -> Codes:
        return self.table[:, 4]

    @property
    def y(self) -> Codes:
        return self.table[:, 5]

    @property
    def rectangles(self) -> Codes:
        return self.table[:, 6:]


def grouped(ks: ArrayLike, eps: float) -> Groups:
    """k by group, and how many steps share a box.

    >>> grouped([1, 10], 0.25)
    Groups(k=array([ 1, 10]), step=array([1, 3]))
    """
    k = np.ascontiguousarray(ks, np.int64)
    if k.ndim != 1 or np.any(k < 1):
        raise ValueError(f"every group has a k of at least 1, not {k.tolist()}")
    if not 0 <= eps <= 1:
        raise ValueError(f"eps is from 0 to 1, not {eps}")
    step = [max(1, math.ceil(eps * each - 1e-9)) for each in k.tolist()]
    return Groups(k, np.array(step, np.int64).reshape(k.shape))


class Painter:
    """Paints and makes changes of objects, for several groups of subscriptions with a k each."""

    def __init__(
        self, points: Points, ks: Sequence[int], *, eps: float = 0.0, spaces: Sequence[Space] | None = None
    ) -> None:
        self.points = points
        self.groups = grouped(ks, eps)
        if spaces is not None and len(spaces) != len(self.groups.k):
            raise ValueError(f"{len(self.groups.k)} groups, but {len(spaces)} spaces of subscriptions")
        self.spaces = spaces
        self.state = np.zeros(SIZE, np.int64)  # of the kernels: counts, and what is being painted
        self._tiles = np.empty((256, WIDTH), np.int64)

    @property
    def counts(self) -> Counts:
        """Calls so far."""
        return Counts(*self.state[[MIN_Y, FIRST_K, SNAP, SPARED]].tolist())

    def describe(self, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> Tiles:
        """Changes in order, as messages; the objects are moved. y = ABSENT deletes."""
        return self._run(columns(objects, x, y), False)

    def enumerate(self, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> Tiles:
        """Changes in order: who has, had, gains and loses what; the objects are moved."""
        return self._run(columns(objects, x, y), True)

    def _run(self, changes: list[Codes], enumerated: bool) -> Tiles:
        number, x, y = changes
        moves = Moves(number, x, y, np.empty((len(number), 2), np.int64))
        self.points.reserve(int(number.max(initial=-1)) + 1, 3 * len(number))
        if self.spaces is None:
            return self._paint(None, self.groups, moves, enumerated)
        parts: list[Tiles] = []
        for space, groups in self.views():  # one after the other, from the same beginning
            if parts:
                rewind(self.points.arrays, moves.object, moves.before)
            parts.append(self._paint(space, groups, moves, enumerated))
            parts[-1].group[:] = len(parts) - 1
        return Tiles.concat(parts)

    def _paint(self, space: SpaceArrays | None, groups: Groups, moves: Moves, enumerated: bool) -> Tiles:
        canvas = self.canvas(groups, np.empty(0, np.bool_))
        at, end = 0, len(moves.object)
        while True:
            at = paint(self.points.arrays, space, canvas, groups, moves, enumerated, at)
            if at == end:
                return self.taken(canvas)
            canvas = self.grown(canvas, 2 * len(canvas.tiles))

    # -- what other ways to paint share ------------------------------------------------------------------

    def views(self) -> Iterator[tuple[SpaceArrays | None, Groups]]:
        """The groups one by one, each with its view of the subscriptions."""
        for at in range(len(self.groups.k)):
            space = None if self.spaces is None else self.spaces[at].arrays
            yield space, Groups(self.groups.k[at : at + 1], self.groups.step[at : at + 1])

    def canvas(self, groups: Groups, muted: NDArray[np.bool_]) -> Canvas:
        """An empty one, large enough for these k."""
        self.state[TILES] = 0
        lists = np.empty((2, int(groups.k.max(initial=1)) + 1), np.int64)
        return Canvas(self._tiles, self.state, lists, np.empty((2, BOX), np.int64), muted)

    def grown(self, canvas: Canvas, room: int) -> Canvas:
        """One with the same tiles and more room."""
        self._tiles = np.concatenate([canvas.tiles, np.empty((room - len(canvas.tiles), WIDTH), np.int64)])
        return canvas._replace(tiles=self._tiles)

    def taken(self, canvas: Canvas) -> Tiles:
        """The tiles of a canvas."""
        return Tiles(canvas.tiles[: self.state[TILES]].copy())
