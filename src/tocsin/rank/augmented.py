"""The augmented two-tier tree: how far around x is there no point as low as y?

Points are ordered by x, those of one x by y, in a B-tree whose every entry carries the least y below it.
So a walk to the left that looks for a point of at most y passes over whole subtrees:

    least y     2         5     3                  nearest of at most 4 to the left of x:
              +---+     +---+ +---+                not below the 5, not among 9 7; down under the 3
              |   |     |   | | 3 9 7 . x
    points    ...       ...   ...

Cost: O(log n) for each question and each change, however many points share an x; equal points are one
entry with a count.

>>> tree = AugmentedTree([10, 20, 30, 40], [1, 5, 3, 2])
>>> tree.affected_range(20, 20, 4), tree.affected_range(20, 20, 2), tree.affected_range(20, 20, 5)
((11, 29), (11, 39), None)
>>> tree.insert(25, 1)
>>> tree.lowest(15, 35), tree.staircase(20, 20, 0)
(1, [(10, 1), (20, 5), (25, 1)])

T07, section 5.3.1. Both tiers are one tree there too, of x and below it of y; here the second is not a tree
of its own but the order of points of equal x, so that many points of one x cost no more than others. Nodes
are joined at a quarter, not at a half.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.rank._kernels import augmented as kernels
from tocsin.rank._kernels.augmented import AT, LOW, META, SIZE, WIDTH, Tree, X, Y

__all__ = ["AugmentedTree", "as_codes"]

Codes = NDArray[np.int64]
_FILL = 24  # entries of a node that is built from sorted points: room for some more


def as_codes(*columns: ArrayLike) -> list[Codes]:
    """Columns of int64 of one length.

    >>> as_codes([1, 2], [3])
    Traceback (most recent call last):
    ...
    ValueError: columns differ in length: [2, 1]
    """
    arrays = [np.ascontiguousarray(column) for column in columns]
    for array in arrays:
        if array.ndim != 1 or (array.dtype.kind not in "iu" and len(array)):
            raise ValueError(
                f"codes are one column of whole numbers, not {array.dtype} of shape {array.shape}"
            )
    if len({len(array) for array in arrays}) > 1:
        raise ValueError(f"columns differ in length: {[len(array) for array in arrays]}")
    return [array.astype(np.int64, copy=False) for array in arrays]


class AugmentedTree:
    """A bag of points (x, y), any int64 each. `arrays` is what kernels see; another tuple after `reserve`."""

    arrays: Tree

    def __init__(self, x: ArrayLike = (), y: ArrayLike = ()) -> None:
        xs, ys = as_codes(x, y)
        order = np.lexsort((ys, xs))
        xs, ys = xs[order], ys[order]
        fresh = np.ones(len(xs), np.bool_)
        fresh[1:] = (xs[1:] != xs[:-1]) | (ys[1:] != ys[:-1])
        first = np.flatnonzero(fresh)
        self._build(xs[first], ys[first], np.diff(first, append=len(xs)))

    def _build(self, x: Codes, y: Codes, count: Codes) -> None:
        """All levels from below, each of full rows but the last; the rows of a level follow each other."""
        level, rows, low = (x, y, y, count), 0, y
        parts: list[Codes] = []
        while True:
            need = max(1, -(-len(low) // _FILL))
            part = np.zeros((need, WIDTH), np.int64)
            entry = np.arange(len(low))
            for column, values in zip((X, Y, LOW, AT), level, strict=True):
                part[entry // _FILL, column + entry % _FILL] = values
            part[:, SIZE] = np.clip(len(low) - _FILL * np.arange(need), 0, _FILL)
            parts.append(part)
            if need == 1:
                break
            begin = entry[::_FILL]
            low = np.minimum.reduceat(low, begin)
            level = (part[:, X], part[:, Y], low, rows + np.arange(need))
            rows += need
        nodes = np.concatenate([*parts, np.zeros((8 + rows // 8, WIDTH), np.int64)])
        meta = np.zeros(META, np.int64)
        meta[kernels.ROOT], meta[kernels.LEVELS], meta[kernels.USED] = rows, len(parts), rows + 1
        meta[kernels.ENTRIES], meta[kernels.POINTS], meta[kernels.FREE] = len(x), count.sum(), -1
        self.arrays = Tree(nodes, meta)

    def __len__(self) -> int:
        return int(self.arrays.meta[kernels.POINTS])

    @property
    def bytes(self) -> int:
        return self.arrays.nodes.nbytes + self.arrays.meta.nbytes

    def reserve(self) -> None:
        """Make room for another point, and for as many rows again as there are if there was none."""
        while not kernels.has_room(self.arrays):
            nodes = self.arrays.nodes
            self.arrays = self.arrays._replace(nodes=np.concatenate([nodes, np.zeros_like(nodes)]))

    def insert(self, x: int, y: int) -> None:
        """One point more. O(log n)."""
        self.reserve()
        kernels.insert(self.arrays, x, y)

    def delete(self, x: int, y: int) -> None:
        """One of the points equal to (x, y) less. O(log n)."""
        if not kernels.delete(self.arrays, x, y):
            raise KeyError(f"there is no point ({x}, {y})")

    def lowest(self, low: int, high: int) -> int | None:
        """The least y of points with x in low..high. O(log n)."""
        there, least = kernels.lowest(self.arrays, low, high)
        return int(least) if there else None

    def affected_range(self, low: int, high: int, y: int) -> tuple[int, int] | None:
        """The widest range around low..high without a point of at most y; None if low..high has one.

        Where nothing ends it, it goes to the end of int64. O(log n).
        """
        least = self.lowest(low, high)
        if least is not None and least <= y:
            return None
        left, x1 = kernels.left_of(self.arrays, low, y)
        right, x2, _ = kernels.right_of(self.arrays, high, y)
        return int(x1) + 1 if left else int(kernels.LEAST), int(x2) - 1 if right else int(kernels.MOST)

    def staircase(self, low: int, high: int, y: int) -> list[tuple[int, int]]:
        """Points above y that no point nearer to low..high undercuts, by x; of those inside, the lowest.

        On each side a point is strictly below all that are nearer, and the stairs end where the affected
        range of y does. O(log n) for each.
        """
        peak = self.lowest(low, high)
        stairs = [] if peak is None or peak <= y else [(low, peak)]
        for left in (True, False):
            x, below = (low if left else high), peak
            while below is None or below > max(y, int(kernels.LEAST)):
                limit = int(kernels.MOST) if below is None else below - 1
                there, x = (kernels.left_of if left else kernels.right_of)(self.arrays, x, limit)[:2]
                if there:
                    below = self.lowest(x, x)
                if not there or below is None or below <= y:
                    break
                stairs.append((int(x), below))
        return sorted(stairs)

    def points(self) -> list[tuple[int, int]]:
        """All points in order."""
        nodes, meta = self.arrays
        out: list[tuple[int, int]] = []

        def visit(v: int, level: int) -> None:
            for j in range(int(nodes[v, SIZE])):
                if level > 1:
                    visit(int(nodes[v, AT + j]), level - 1)
                else:
                    out.extend([(int(nodes[v, X + j]), int(nodes[v, Y + j]))] * int(nodes[v, AT + j]))

        visit(int(meta[kernels.ROOT]), int(meta[kernels.LEVELS]))
        return out

    def _check(self) -> None:
        """Points ascend; entries tell the first and the least below; every row is used once or spare."""
        nodes, meta = self.arrays
        seen: list[int] = []

        def visit(v: int, level: int) -> int:
            """The least y below."""
            seen.append(v)
            size = int(nodes[v, SIZE])
            assert (size or len(seen) == 1) and (size > 1 or level == 1 or len(seen) > 1), "a needless node"
            if level == 1:
                assert np.array_equal(nodes[v, LOW : LOW + size], nodes[v, Y : Y + size])
                assert np.all(nodes[v, AT : AT + size] > 0)
            else:
                for j in range(size):
                    child = int(nodes[v, AT + j])
                    assert (nodes[child, X], nodes[child, Y]) == (nodes[v, X + j], nodes[v, Y + j])
                    assert visit(child, level - 1) == nodes[v, LOW + j]
            return int(nodes[v, LOW : LOW + size].min()) if size else 0

        visit(int(meta[kernels.ROOT]), int(meta[kernels.LEVELS]))
        points = self.points()
        assert points == sorted(points) and len(points) == len(self)
        assert len(set(points)) == meta[kernels.ENTRIES]
        v = int(meta[kernels.FREE])
        for _ in range(int(meta[kernels.SPARE])):
            seen.append(v)
            v = int(nodes[v, AT])
        assert sorted(seen) == list(range(int(meta[kernels.USED]))), "a row is lost or used twice"
