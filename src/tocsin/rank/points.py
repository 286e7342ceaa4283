"""Moving objects of a plane: the nearest lower ones on a side, the lowest one above.

Top-k over ranges needs two queries about a moving object (x, y). Which objects below y are nearest to x on
the left, on the right (`first_k`)? They bound the ranges in which it is among the first k. And when it rises:
which object of a range does it meet next (`min_y`)?

      y |        e                    first_k of d on the left:  c, a     (b is higher)
        |   b         d               on the right:              g
        | a     c         g           min_y of a < x < g above y of c:    b, the lowest of b, d, e
        +--------------------- x

Objects lie in blocks in the order of x, about sqrt(n) of them, and each block keeps its y in order too, so
that a query skips a block by its least y, or searches it by binary search.

Cost: O(sqrt n + k) for the nearest k if y is hardly correlated with x, O(k sqrt n) at worst; min_y O(sqrt n
log n) at worst, O(log n + objects in the range) for narrow ranges; a move O(sqrt n), a copy within one block.
Each is well under a microsecond at 100,000 objects.

>>> points = Points()
>>> points.load([0, 1, 2, 3, 4, 5], x=[1, 4, 8, 14, 10, 18], y=[10, 20, 11, 21, 30, 12])
>>> points.first_k(14, 21, 2, left=True), points.first_k(14, 21, 2, left=False)
([8, 4], [18])
>>> points.min_y(1, 18, 11)
1
>>> points.move(1, x=4, y=40)
>>> points.min_y(1, 18, 11), points.first_k(14, 21, 2, left=True)
(3, [8, 1])

K12, section III: the index. There a kd-tree or a range tree; blocks have the bound of the first, and most
queries here stay near x, in one block.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.rank._kernels.points import (
    BLOCK,
    BLOCKS,
    BY,
    COUNT,
    FENCE,
    GREATEST,
    HOME,
    ID,
    LEAST,
    LIVE,
    MAX,
    MIN,
    PLACE,
    SORTED,
    PointArrays,
    X,
    Y,
    first_k,
    min_y,
    move,
)

__all__ = ["ABSENT", "Points", "columns"]

Codes = NDArray[np.int64]
ABSENT = MAX
"""The y of an absent object."""


def columns(*parts: ArrayLike) -> list[Codes]:
    """Numbers of objects, x and y as int64 arrays of one length; the ends of int64 are reserved for open
    ranges.

    >>> columns([1], [2**63 - 1], [5])
    Traceback (most recent call last):
    ValueError: x of object 1 is 9223372036854775807: the ends of int64 mean open ranges
    """
    number, x, y = (np.ascontiguousarray(part, np.int64) for part in parts)
    if number.ndim != 1 or not number.shape == x.shape == y.shape:
        raise ValueError(f"objects, x and y differ in shape: {number.shape}, {x.shape} and {y.shape}")
    if bad := np.flatnonzero((number < 0) | (number >= 2**31))[:1].tolist():
        raise ValueError(f"object {number[bad[0]]} is not a number of 31 bits")
    if bad := np.flatnonzero(((x == MIN) | (x == MAX)) & (y != ABSENT))[:1].tolist():
        raise ValueError(f"x of object {number[bad[0]]} is {x[bad[0]]}: the ends of int64 mean open ranges")
    return [number, x, y]


class Points:
    """Objects under small numbers with x, and with y that no two share; `arrays` is for kernels.

    `load` and `reserve` replace `arrays`. Call `reserve` before kernels that move objects."""

    arrays: PointArrays

    def __init__(self) -> None:
        self._pack(np.full((3, 16), -1, np.int64), 0)
        self.arrays.objects[Y] = ABSENT

    def __len__(self) -> int:
        return int(self.arrays.meta[LIVE])

    def load(self, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> None:
        """Insert or move many objects at once. O(n log n)."""
        number, x, y = columns(objects, x, y)
        if len(np.unique(number)) < len(number):
            raise ValueError("an object is named twice")
        table = self._numbered(int(number.max(initial=-1)) + 1)
        table[X, number], table[Y, number] = x, y
        self._pack(table, 0)

    def reserve(self, numbers: int, moves: int) -> None:
        """Reserve space for objects below `numbers`, and for so many moves. O(n) now and then."""
        blocks, width = int(self.arrays.meta[BLOCKS]), self.arrays.cells.shape[2]
        splits = min(moves, blocks + 2 * moves // width)
        shrunk = self._packed > 4096 and 4 * len(self) < self._packed
        if blocks + splits > self.arrays.cells.shape[1] or shrunk:
            self._pack(self._numbered(numbers), moves)
        elif numbers > self.arrays.objects.shape[1]:
            self.arrays = self.arrays._replace(objects=self._numbered(numbers))

    def move(self, number: int, x: int, y: int) -> None:
        """Insert, move, or delete (y = ABSENT) an object."""
        columns([number], [x], [y])
        self.reserve(number + 1, 1)
        move(self.arrays, number, x, y)

    def first_k(self, x: int, y: int, k: int, *, left: bool) -> list[int]:
        """x of the nearest k objects below y on one side, the nearest first; those at x are on the left."""
        out = np.empty(k + 1, np.int64)
        return out[1 : first_k(self.arrays, x, y, left, out) + 1].tolist()

    def min_y(self, low: int, high: int, y: int) -> int:
        """The lowest object above y with low < x < high, or -1."""
        return int(min_y(self.arrays, low, high, y))

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def _numbered(self, numbers: int) -> Codes:
        """The table of objects, long enough."""
        table = self.arrays.objects
        if numbers <= table.shape[1]:
            return table
        longer = np.full((3, max(numbers, 2 * table.shape[1])), -1, np.int64)
        longer[Y] = ABSENT
        longer[:, : table.shape[1]] = table
        return longer

    def _pack(self, table: Codes, moves: int) -> None:
        """Pack all objects: blocks two thirds full, about as many as a block has places."""
        number = np.flatnonzero(table[Y] != ABSENT) if hasattr(self, "arrays") else np.empty(0, np.int64)
        number = number[np.lexsort((table[Y, number], table[X, number]))]
        self._packed = len(number)
        width = 1 << min(10, max(5, round(math.log2(len(number) + moves + 1) / 2)))
        fill = 2 * width // 3
        blocks = max(1, -(-len(number) // fill))
        capacity = 2 * blocks + 8 + min(moves, blocks + 2 * moves // width)
        cells = np.zeros((5, capacity, width), np.int64)
        cells[SORTED] = MAX
        directory = np.zeros((6, capacity), np.int64)
        at = np.arange(len(number))
        block, place = at // fill, at % fill
        for row, values in ((X, table[X, number]), (Y, table[Y, number]), (ID, number)):
            cells[row, block, place] = values
        by = number[np.lexsort((table[Y, number], block))]
        cells[SORTED, block, place], cells[BY, block, place] = table[Y, by], by
        directory[BLOCK] = directory[PLACE] = np.arange(capacity)
        directory[COUNT, :blocks] = np.bincount(block, minlength=blocks)
        directory[FENCE, :blocks] = cells[X, :blocks, 0]
        directory[FENCE, 0] = MIN
        directory[LEAST, :blocks] = cells[SORTED, :blocks, 0]
        directory[GREATEST, :blocks] = cells[SORTED, np.arange(blocks), directory[COUNT, :blocks] - 1]
        if not len(number):
            directory[GREATEST, 0] = MIN
        table[HOME] = -1
        table[HOME, number] = block
        self.arrays = PointArrays(table, cells, directory, np.array([blocks, len(number)], np.int64))

    def _check(self) -> None:
        """Blocks are in order of x and within their fences; orders of y and all block numbers are right."""
        objects, cells, directory, meta = self.arrays
        blocks, ids = int(meta[BLOCKS]), []
        assert sorted(directory[BLOCK, :blocks].tolist()) == list(range(blocks))
        for d in range(blocks):
            b, n = directory[BLOCK, d], directory[COUNT, d]
            x, y, i = (cells[row, b, :n] for row in (X, Y, ID))
            assert directory[PLACE, b] == d and np.all(objects[HOME, i] == b)
            assert np.all(objects[X, i] == x) and np.all(objects[Y, i] == y)
            assert np.all(x[:-1] <= x[1:]) and np.all(x >= directory[FENCE, d])
            assert d + 1 == blocks or np.all(x <= directory[FENCE, d + 1])
            assert np.array_equal(np.sort(y), cells[SORTED, b, :n]) and np.all(cells[SORTED, b, n:] == MAX)
            assert np.all(objects[Y, cells[BY, b, :n]] == cells[SORTED, b, :n])
            assert directory[LEAST, d] == y.min(initial=MAX) and directory[GREATEST, d] == y.max(initial=MIN)
            ids += i.tolist()
        assert len(ids) == len(set(ids)) == len(self) and set(ids) == set(np.flatnonzero(objects[HOME] >= 0))
        assert np.all((objects[Y] == ABSENT) == (objects[HOME] < 0))
        assert len(np.unique(objects[Y, ids])) == len(ids), "two objects share a y"
