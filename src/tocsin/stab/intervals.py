"""Which intervals hold a value? An interval tree without pointers.

Some values, in order, are the nodes of a balanced tree: their ranks, counted from 1. An interval stands at
the highest node whose value it holds, once in a list by low end and once in one by high end; those that
hold none stand in the cell between two values:

    rank       1   2   3   4   5   6   7          4
    value     10  20  30  40  50  60  70        2   6         [12, 45] stands at 4: holds 20, 30 and 40
                                               1 3 5 7        [21, 29] stands in the cell after 2

The node is found by bits, not by descending: the rank of the most trailing zeros. A value x looks at one
node per level: left of x those with high end >= x, right of it those with low end <= x, in both cases the
front of a sorted list.

Cost: O(log n + found); O(n log n) to build. Late comers stand in a tail, see `packed.py`.

>>> index = IntervalIndex()
>>> index.add(np.array([7, 8, 9]), np.array([1, 3, 9]), np.array([6, 7, 11]))
>>> sorted(index.stab(5).tolist())
[7, 8]
>>> index.remove(np.array([7]))
>>> index.stab(5).tolist()
[8]

T07 (section 4.3) names priority search trees and interval trees for this; neither is described there.
"""

from __future__ import annotations

import numpy as np

from tocsin.stab._kernels.intervals import IntervalArrays, node_of, stab
from tocsin.stab.packed import Codes, Packed, ascends

__all__ = ["IntervalIndex"]

_PER_NODE = 8  # intervals for each value of the grid


class IntervalIndex(Packed):
    """Intervals under slots; `arrays` is what kernels see, another tuple after each change."""

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
        by_high = np.lexsort((~high, node))  # ~ turns the order round and never overflows
        size = int(slot.max()) + 1 if len(slot) else 0
        self._at_low, self._at_high = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
        self._at_low[slot[by_low]] = self._at_high[slot[by_high]] = np.arange(len(slot))
        lists = (low[by_low], high[by_low], slot[by_low], high[by_high], slot[by_high])
        self.arrays = IntervalArrays(grid, start, *lists, self._tail, np.array([levels, 0]))

    def _members(self) -> Codes:
        a = self.arrays
        there = a.low_slot >= 0
        return np.stack([a.low_slot[there], a.low[there], a.low_high[there]])

    def _forget(self, slots: Codes) -> None:
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
        """Both lists have the same members, in order within a node, and every node's hold its value."""
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
