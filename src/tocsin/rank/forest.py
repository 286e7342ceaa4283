"""Points in space under ids, that come and go: a forest of packed kd-trees.

A tree halves its points along the coordinate in which they differ most (by rank, so that scales do not
matter), down to leaves of at most 16, which are contiguous. Nodes lie in preorder with the bounds of their
points; `_kernels/boxes.py` has the searches:

    nodes     | root | left | leaf leaf | right | leaf leaf |    SKIP of a node leads behind all below it
    points    | leaf | leaf | leaf | leaf |

New points are appended in leaves of their own, by `add` or by kernels. `pack` makes trees of them; a tree
that is not much larger than what follows is packed with it, so that there are O(log n) trees:

    | 100,000 points | 12,000 | 700 | leaves |

A removed point only loses its id, until its tree is packed again.

Cost: packing is O(n log n), and a point is packed O(log n) times.

>>> forest = PointForest(2)
>>> forest.add(np.array([7, 8, 9]), np.array([[0, 4], [2, 9], [5, 6]]))
>>> forest.remove(np.array([8]))
>>> forest.ids().tolist(), forest.points(np.array([9])).tolist()
([7, 9], [[5, 6]])

K12 uses any 2-d index for subscriptions with one range; boxes of several ranges need more dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index, longer
from tocsin.rank._kernels.boxes import BEGIN, END, LEAF, NODES, PARENT, POINTS, SKIP, ForestArrays

__all__ = ["PointForest"]

_UNPACKED = 256  # points that may lie in leaves of their own
_RATIO = 4  # a tree of up to so many times the points after it is packed with them


class _Tree(NamedTuple):
    """Where a tree begins: its first point, its first node."""

    point: int
    node: int


class PointForest:
    """Points of `width` coordinates under ids, which are small integers; `arrays` is for kernels."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._trees: list[_Tree] = []
        self._end = _Tree(0, 0)  # of the last tree
        self._gone = 0  # points removed and not packed since
        self.arrays = ForestArrays(
            np.empty((0, width), np.int64),
            np.empty(0, np.int64),
            np.empty((0, width), np.int64),
            np.empty((0, width), np.int64),
            np.empty((0, 4), np.int64),
            np.empty(0, np.int64),
            np.zeros(2, np.int64),
        )

    def __len__(self) -> int:
        return int(self.arrays.used[POINTS]) - self._gone

    def ids(self) -> Index:
        """The ids in use, in the order of their points."""
        ids = self.arrays.id[: self.arrays.used[POINTS]]
        return ids[ids >= 0]

    def points(self, ids: Index) -> NDArray[np.int64]:
        """The points of some ids."""
        return self.arrays.point[self.arrays.where[ids]]

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    # -- changes -----------------------------------------------------------------------------------

    def reserve(self, count: int, ids: int) -> None:
        """Make arrays long enough for so many more points, and for ids below a bound."""
        a = self.arrays
        points, nodes = int(a.used[POINTS]) + count, int(a.used[NODES]) + count // LEAF + 2
        if points > len(a.point):
            length = max(points, 2 * len(a.point))
            a = a._replace(point=longer(a.point, length), id=longer(a.id, length))
        if nodes > len(a.node):
            length = max(nodes, 2 * len(a.node))
            a = a._replace(
                low=longer(a.low, length), high=longer(a.high, length), node=longer(a.node, length)
            )
        if ids > len(a.where):
            a = a._replace(where=longer(a.where, max(ids, 2 * len(a.where)), -1))
        self.arrays = a

    def add(self, ids: Index, points: NDArray[np.int64], *, pack: bool = True) -> None:
        """Add points; their ids must be free. Without `pack` they stay in leaves."""
        if not len(ids):
            return
        self.reserve(len(ids), int(ids.max()) + 1)
        a, begin, node = self.arrays, int(self.arrays.used[POINTS]), int(self.arrays.used[NODES])
        end = begin + len(ids)
        a.point[begin:end], a.id[begin:end] = points, ids
        a.where[ids] = np.arange(begin, end)
        many = pack and len(ids) > _UNPACKED
        if not many:
            first = np.arange(0, len(ids), LEAF)
            mine = node + np.arange(len(first))
            a.node[mine, BEGIN], a.node[mine, END] = begin + first, np.minimum(begin + first + LEAF, end)
            a.node[mine, SKIP], a.node[mine, PARENT] = mine + 1, -1
            a.low[mine], a.high[mine] = (f.reduceat(points, first) for f in (np.minimum, np.maximum))
            node += len(first)
        a.used[:] = end, node
        if pack:
            self.pack(force=many)

    def remove(self, ids: Index) -> None:
        """Remove points."""
        self.arrays.id[self.arrays.where[ids]] = -1
        self.pack(removed=len(ids))

    def pack(self, *, removed: int = 0, force: bool = False) -> None:
        """Make a tree of the points that have none, if they are many; and of all, if most of them are gone.

        `removed`: how many points kernels have removed since the last call."""
        used = int(self.arrays.used[POINTS])
        fresh = used - self._end.point
        self._gone += removed
        if 2 * self._gone > used + _UNPACKED:
            self._trees, self._end = [], _Tree(0, 0)
        elif force or fresh > _UNPACKED:
            while self._trees and self._end.point - self._trees[-1].point <= _RATIO * fresh:
                self._end = self._trees.pop()
                fresh = used - self._end.point
        else:
            return
        self._pack()
        self._gone = int(self.arrays.used[POINTS]) - len(self.ids())

    def _pack(self) -> None:
        """Pack all points from the end of the last tree on into one."""
        begin, node = self._end
        a, used = self.arrays, int(self.arrays.used[POINTS])
        living = np.flatnonzero(a.id[begin:used] >= 0) + begin
        points, ids = a.point[living], a.id[living]
        a.used[:] = begin, node
        if not len(living):
            return
        order, height = _halved(points)
        self.reserve(len(living), 0)
        self._reserve_nodes(node + (2 << height) - 1)
        a, end = self.arrays, begin + len(living)
        a.point[begin:end], a.id[begin:end] = points[order], ids[order]
        a.where[a.id[begin:end]] = np.arange(begin, end)
        self._write_nodes(begin, len(living), node, height)
        self._trees.append(self._end)
        self._end = _Tree(end, node + (2 << height) - 1)
        a.used[:] = self._end

    def _reserve_nodes(self, nodes: int) -> None:
        a = self.arrays
        if nodes > len(a.node):
            low, high = longer(a.low, nodes + nodes // 4), longer(a.high, nodes + nodes // 4)
            self.arrays = a._replace(low=low, high=high, node=longer(a.node, nodes + nodes // 4))

    def _write_nodes(self, begin: int, count: int, node: int, height: int) -> None:
        """The nodes of a tree, level by level from the root; then bounds from the leaves upwards."""
        a = self.arrays
        numbers, parent = [np.array([node])], np.array([-1])
        for level in range(height + 1):
            ends = begin + (count * np.arange((1 << level) + 1) >> level)
            size = (2 << (height - level)) - 1
            mine = numbers[-1]
            a.node[mine, BEGIN], a.node[mine, END] = ends[:-1], ends[1:]
            a.node[mine, SKIP], a.node[mine, PARENT] = mine + size, parent
            parent = np.repeat(mine, 2)
            numbers.append(np.stack([mine + 1, mine + 1 + size // 2], axis=1).ravel())
        points = a.point[begin : begin + count]
        starts = a.node[numbers[height], BEGIN] - begin
        low, high = (f.reduceat(points, starts, axis=0) for f in (np.minimum, np.maximum))
        for mine in reversed(numbers[: height + 1]):
            a.low[mine], a.high[mine] = low, high
            low, high = np.minimum(low[::2], low[1::2]), np.maximum(high[::2], high[1::2])

    def _check(self) -> None:
        """Places are those of ids; nodes follow each other, and bounds contain all points below."""
        a, (points, nodes) = self.arrays, self.arrays.used.tolist()
        there = np.flatnonzero(a.id[:points] >= 0)
        assert np.array_equal(a.where[a.id[there]], there) and len(there) == len(self)
        covered = 0
        for i in range(nodes):
            begin, end, after, parent = a.node[i].tolist()
            assert begin < end and i < after <= nodes and parent < i
            low, high = a.point[begin:end].min(axis=0), a.point[begin:end].max(axis=0)
            assert np.all(a.low[i] <= low) and np.all(a.high[i] >= high)
            if after == i + 1:
                assert begin == covered and end - begin <= LEAF
                covered = end
            else:
                assert a.node[i + 1, PARENT] == i == a.node[a.node[i + 1, SKIP], PARENT]
        assert covered == points


def _halved(points: NDArray[np.int64]) -> tuple[Index, int]:
    """Points in the order of a tree's leaves, and its height: the nodes of a level have equally many."""
    count, width = points.shape
    height = max(0, (count - 1) // LEAF).bit_length()
    order = np.arange(count)
    if not height:
        return order, height
    rank = np.stack([_ranks(points[:, j]) for j in range(width)])
    for level in range(height):
        ends = count * np.arange((1 << level) + 1) >> level
        ordered = rank[:, order]
        extent = np.maximum.reduceat(ordered, ends[:-1], axis=1)
        extent -= np.minimum.reduceat(ordered, ends[:-1], axis=1)
        number = np.repeat(np.arange(1 << level), np.diff(ends))
        key = ordered[extent.argmax(axis=0)[number], np.arange(count)]
        order = order[np.argsort(number * count + key)]
    return order, height


def _ranks(values: Index) -> Index:
    """By value how many are smaller: so few values that are common weigh as much as many."""
    order = np.argsort(values)
    ordered = values[order]
    first = np.arange(len(values))
    first[1:][ordered[1:] == ordered[:-1]] = 0
    rank = np.empty(len(values), np.int64)
    rank[order] = np.maximum.accumulate(first)
    return rank
