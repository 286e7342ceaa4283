"""Which rectangles hold a point? A packed R-tree of three levels.

Rectangles are sorted by the middle of x, cut into slabs, each slab sorted by the middle of y, and cut into
blocks of 32 that lie one after the other; sixteen blocks are a box. Blocks and boxes know their bounds:

    boxes     +-----------------+------ ...      a point outside of the bounds skips the whole box;
    blocks    | 32 | 32 | .. 16 | 32 | ...       inside, blocks; inside those, 32 checks without a branch

Cost: n/512 bounds of boxes, then what overlaps: about sqrt(n) for rectangles that are small; O(n log n)
to build. Late comers stand in a tail, see `packed.py`.

>>> index = RectangleIndex()
>>> ends = [[0, 2, 5], [4, 9, 9], [0, 1, 5], [3, 9, 6]]  # low x, high x, low y, high y
>>> index.add(np.array([7, 8, 9]), *np.array(ends))
>>> sorted(index.hold(3, 2).tolist()), index.hold(6, 6).tolist()
([7, 8], [8, 9])

T07, section 4.3.2 has an R-tree here; packing is sort-tile-recursive, which the chapter does not prescribe.
"""

from __future__ import annotations

import math

import numpy as np

from tocsin.stab._kernels.rectangles import BLOCK, FAN, RectangleArrays, hold
from tocsin.stab.packed import Codes, Packed

__all__ = ["RectangleIndex"]


class RectangleIndex(Packed):
    """Rectangles under slots; `arrays` is what kernels see, another tuple after each change."""

    arrays: RectangleArrays

    def __init__(self) -> None:
        self._at: Codes = np.empty(0, np.int64)  # by slot: its place
        super().__init__(4)

    def hold(self, x: int, y: int) -> Codes:
        """Slots of the rectangles that hold a point, in any order."""
        out = np.empty(len(self) + 1, np.int64)
        return out[: hold(self.arrays, x, y, out, 0)]

    def _pack(self, members: Codes) -> None:
        middle_x, middle_y = (members[i] // 2 + members[i + 1] // 2 for i in (1, 3))  # never overflows
        count = members.shape[1]
        slabs = max(1, math.isqrt(count // BLOCK))
        width = -(-count // slabs)
        slab = np.empty(count, np.int64)
        slab[np.argsort(middle_x, kind="stable")] = np.arange(count) // max(1, width)
        members = members[:, np.lexsort((middle_y, slab))]
        slot, *ends = (np.ascontiguousarray(part) for part in members)
        self._at = np.full(int(slot.max()) + 1 if count else 0, -1, np.int64)
        self._at[slot] = np.arange(count)
        blocks = _bounds(np.stack(ends, axis=1), BLOCK)
        boxes, meta = _bounds(blocks, FAN), np.zeros(1, np.int64)
        self.arrays = RectangleArrays._make([*ends, slot, blocks, boxes, self._tail, meta])

    def _members(self) -> Codes:
        a = self.arrays
        return np.stack([a.slot, a.low_x, a.high_x, a.low_y, a.high_y])[:, a.slot >= 0]

    def _forget(self, slots: Codes) -> None:
        self.arrays.slot[self._at[slots]] = -1

    def _refresh(self) -> None:
        self.arrays.meta[0] = self._late
        self.arrays = self.arrays._replace(tail=self._tail)

    @property
    def bytes(self) -> int:
        return self._at.nbytes + sum(array.nbytes for array in self.arrays)

    def _check(self) -> None:
        """Bounds hold what they bound; places are right."""
        a = self.arrays
        there = np.flatnonzero(a.slot >= 0)
        assert len(there) == self._packed - self._gaps
        assert np.array_equal(self._at[a.slot[there]], there)
        for bounds in (a.blocks[there // BLOCK], a.boxes[there // BLOCK // FAN]):
            assert np.all(bounds[:, 0] <= a.low_x[there]) and np.all(a.high_x[there] <= bounds[:, 1])
            assert np.all(bounds[:, 2] <= a.low_y[there]) and np.all(a.high_y[there] <= bounds[:, 3])


def _bounds(ends: Codes, size: int) -> Codes:
    """Of every `size` rows of (low x, high x, low y, high y)."""
    first = np.arange(0, len(ends), size)
    if not len(first):
        return np.empty((0, 4), np.int64)
    least, most = np.minimum.reduceat(ends, first), np.maximum.reduceat(ends, first)
    return np.ascontiguousarray(np.stack([least[:, 0], most[:, 1], least[:, 2], most[:, 3]], axis=1))
