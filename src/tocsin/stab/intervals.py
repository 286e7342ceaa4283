"""Which intervals hold a value, which rectangles a point? Two indexes, packed once, with a tail.

Layouts that were sorted all at once are the fastest to query. So an index is a packed part and a small
unsorted tail; removal leaves a gap (its slot becomes -1) in the packed part. When the tail or the gaps exceed
a share, everything is packed again:

    packed   3 7 - 1 0 4 - 9 2        tail   8 5        query = query packed, then check all of the tail

Cost: adding or removing k members O(k + tail), and O(n log n) once per n/32 of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from tocsin.stab._kernels.intervals import (
    BLOCK,
    FAN,
    IntervalArrays,
    RectangleArrays,
    containing,
    node_of,
    stab,
)
from tocsin.stab.partition import Codes

__all__ = ["IntervalIndex", "PackedIndex", "RectangleIndex", "ascends"]


def ascends(values: Codes) -> bool:
    """Whether values ascend; `np.diff` could overflow.

    >>> ascends(np.array([-(2**63), 0, 0, 2**63 - 1]))
    True
    """
    return bool(np.all(values[:-1] <= values[1:]))


class PackedIndex(ABC):
    """Members under slots, each a column of numbers; `_tail` has their slots in row 0."""

    _TAIL, _SHARE = 256, 32  # a tail may have so many, or that part of all
    _GAPS = 4  # gaps may be that part of the packed

    def __init__(self, width: int) -> None:
        self._tail: Codes = np.empty((1 + width, 16), np.int64)
        self._late = self._gaps = self._packed = 0
        self._pack(self._tail[:, :0])

    def __len__(self) -> int:
        return self._packed - self._gaps + self._late

    def add(self, slots: Codes, *columns: Codes) -> None:
        """Add members; a slot must be free."""
        fresh = np.stack([np.asarray(part, np.int64) for part in (slots, *columns)])
        late = self._late + fresh.shape[1]
        if late > max(self._TAIL, len(self) // self._SHARE):
            self._repack(np.concatenate([self._members(), self._tail[:, : self._late], fresh], axis=1))
            return
        if late > self._tail.shape[1]:
            wider = np.empty((len(fresh), 2 * late), np.int64)
            wider[:, : self._late] = self._tail[:, : self._late]
            self._tail = wider
        self._tail[:, self._late : late] = fresh
        self._late = late
        self._refresh()

    def remove(self, slots: Codes) -> None:
        """Remove members; a slot must be in use."""
        slots = np.asarray(slots, np.int64)
        late = np.isin(slots, self._tail[0, : self._late]) if self._late else np.zeros(len(slots), np.bool_)
        if late.any():
            kept = self._tail[:, : self._late][:, ~np.isin(self._tail[0, : self._late], slots)]
            self._late = kept.shape[1]
            self._tail[:, : self._late] = kept
        gone = slots[~late]
        self._leave_gaps(gone)
        self._gaps += len(gone)
        if self._gaps * self._GAPS > max(self._packed, self._TAIL):
            self._repack(np.concatenate([self._members(), self._tail[:, : self._late]], axis=1))
        else:
            self._refresh()

    def _repack(self, members: Codes) -> None:
        self._late = self._gaps = 0
        self._packed = members.shape[1]
        self._pack(members)

    @abstractmethod
    def _pack(self, members: Codes) -> None:
        """Lay out all members, and rebuild `arrays`."""

    @abstractmethod
    def _members(self) -> Codes:
        """The packed members without gaps, as columns."""

    @abstractmethod
    def _leave_gaps(self, slots: Codes) -> None:
        """Turn packed members into gaps."""

    @abstractmethod
    def _refresh(self) -> None:
        """The tail has changed: renew `arrays`, which kernels read."""


_PER_NODE = 8  # intervals for each value of the grid


class IntervalIndex(PackedIndex):
    """Intervals under slots, in an interval tree without pointers; kernels read `arrays`.

    Some values, in order, are the nodes of a balanced tree: their ranks, counted from 1. An interval is
    stored at the highest node whose value it holds, once in a list by low end and once in one by high end; an
    interval that holds no node's value is stored in the cell between two values:

        rank       1   2   3   4   5   6   7          4
        value     10  20  30  40  50  60  70        2   6         [12, 45] is stored at 4: it holds 20, 30, 40
                                                   1 3 5 7        [21, 29] is stored in the cell after 2

    Bit operations find the node: the rank with the most trailing zeros. A query for x reads one node per
    level: left of x the intervals with high end >= x, right of it those with low end <= x, both a prefix of a
    sorted list. Cost: O(log n + found); O(n log n) to build.

    >>> index = IntervalIndex()
    >>> index.add(np.array([7, 8, 9]), np.array([1, 3, 9]), np.array([6, 7, 11]))
    >>> sorted(index.stab(5).tolist())
    [7, 8]
    >>> index.remove(np.array([7]))
    >>> index.stab(5).tolist()
    [8]

    T07 (section 4.3) names priority search trees and interval trees for this; neither is described there.
    """

    arrays: IntervalArrays

    def __init__(self) -> None:
        self._at_low: Codes = np.empty(0, np.int64)  # by slot: place in the list by low end
        self._at_high: Codes = np.empty(0, np.int64)
        super().__init__(2)

    def stab(self, value: int) -> Codes:
        """Slots of the intervals that hold a value, in any order."""
        out = np.empty(len(self) + 1, np.int64)
        return out[: stab(self.arrays, value, out, 0)]

    def _pack(self, members: Codes) -> None:
        slot, low, high = members
        grid = _grid(low, high)
        levels = len(grid).bit_length()
        node = np.empty(len(slot), np.int64)
        node_of(grid, 1 << levels, low, high, node)
        start = np.zeros((1 << levels) + len(grid) + 2, np.int64)
        np.cumsum(np.bincount(node, minlength=len(start) - 1), out=start[1:])
        by_low = np.lexsort((low, node))
        by_high = np.lexsort((~high, node))  # ~ reverses the order and never overflows
        size = int(slot.max()) + 1 if len(slot) else 0
        self._at_low, self._at_high = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
        self._at_low[slot[by_low]] = self._at_high[slot[by_high]] = np.arange(len(slot))
        lists = (low[by_low], high[by_low], slot[by_low], high[by_high], slot[by_high])
        self.arrays = IntervalArrays(grid, start, *lists, self._tail, np.array([levels, 0]))

    def _members(self) -> Codes:
        a = self.arrays
        there = a.low_slot >= 0
        return np.stack([a.low_slot[there], a.low[there], a.low_high[there]])

    def _leave_gaps(self, slots: Codes) -> None:
        self.arrays.low_slot[self._at_low[slots]] = -1
        self.arrays.high_slot[self._at_high[slots]] = -1

    def _refresh(self) -> None:
        self.arrays.meta[1] = self._late
        self.arrays = self.arrays._replace(tail=self._tail)

    @property
    def bytes(self) -> int:
        places = self._at_low.nbytes + self._at_high.nbytes
        return places + sum(array.nbytes for array in self.arrays)

    def _check(self) -> None:
        """Both lists have the same members, in order within a node, and every node's intervals hold its
        value.
        """
        a = self.arrays
        assert np.array_equal(np.sort(a.low_slot), np.sort(a.high_slot))
        assert (a.low_slot < 0).sum() == self._gaps and len(a.low) == self._packed
        nodes = 1 << int(a.meta[0])
        for node in range(len(a.start) - 1):
            mine = slice(a.start[node], a.start[node + 1])
            assert ascends(a.low[mine]) and ascends(a.high[mine][::-1])
            if 0 < node < nodes and mine.start < mine.stop:
                assert np.all(a.low[mine] <= a.grid[node - 1]) and np.all(a.high[mine] >= a.grid[node - 1])
        assert np.all(self._tail[1, : self._late] <= self._tail[2, : self._late])


def _grid(low: Codes, high: Codes) -> Codes:
    """Some of the ends, ascending and distinct."""
    ends = np.sort(np.concatenate([low, high]))[:: 2 * _PER_NODE]
    fresh = np.ones(len(ends), np.bool_)
    fresh[1:] = ends[1:] != ends[:-1]
    return ends[fresh]


class RectangleIndex(PackedIndex):
    """Rectangles under slots, in a packed R-tree of three levels; kernels read `arrays`.

    Rectangles are sorted by the middle of x, cut into slabs, each slab sorted by the middle of y, and cut
    into blocks of 32 in sequence; sixteen blocks are a box. Blocks and boxes have bounds:

        boxes     +-----------------+------ ...      a point outside of the bounds skips the whole box;
        blocks    | 32 | 32 | .. 16 | 32 | ...       inside, blocks; inside those, 32 checks without a branch

    Cost: n/512 bounds of boxes, then the overlapping blocks: about sqrt(n) for small rectangles; O(n log n)
    to build.

    >>> index = RectangleIndex()
    >>> ends = [[0, 2, 5], [4, 9, 9], [0, 1, 5], [3, 9, 6]]  # low x, high x, low y, high y
    >>> index.add(np.array([7, 8, 9]), *np.array(ends))
    >>> sorted(index.containing(3, 2).tolist()), index.containing(6, 6).tolist()
    ([7, 8], [8, 9])

    T07, section 4.3.2 has an R-tree here; packing is sort-tile-recursive, which the chapter does not
    prescribe.
    """

    arrays: RectangleArrays

    def __init__(self) -> None:
        self._at: Codes = np.empty(0, np.int64)  # by slot: its place
        super().__init__(4)

    def containing(self, x: int, y: int) -> Codes:
        """Slots of the rectangles that hold a point, in any order."""
        out = np.empty(len(self) + 1, np.int64)
        return out[: containing(self.arrays, x, y, out, 0)]

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

    def _leave_gaps(self, slots: Codes) -> None:
        self.arrays.slot[self._at[slots]] = -1

    def _refresh(self) -> None:
        self.arrays.meta[0] = self._late
        self.arrays = self.arrays._replace(tail=self._tail)

    @property
    def bytes(self) -> int:
        return self._at.nbytes + sum(array.nbytes for array in self.arrays)

    def _check(self) -> None:
        """Bounds hold their rectangles; places are correct."""
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
