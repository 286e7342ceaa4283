"""Range minima: whose answer does an update change, and to what?

A subscription is the least y of the tuples with x in l..r. An update can change only ranges that contain the
updated tuple and no other one as low as it was or is. Where the tuple is, or becomes, the lowest around, one
rectangle of the subscription space (l, r) covers them all; if it rises above others, these are exposed, and
the staircase around it has one rectangle for each new minimum:

    y  |   u: 2 -> 9                                     l in .. and r in ..           new minimum
    9  |         u                                       after b, u    u, before c        9
    7  |            c                                    after b, u    c .. the end       7
    5  |      b                                          after a, b    u .. the end       5
    1  |  a                                              a ends it: ranges beyond do not change
       +--------------- x

Kinds of updates: *ignorable* (no message), *easy* (one new minimum for all), *difficult* (the staircase). The
work does not depend on the number of subscriptions. Cost: O(log n) for each message and update.

>>> extremes = Extremes(x=[1, 3, 5, 4], y=[1, 5, 7, 2])  # a, b, c, u
>>> messages = extremes.update([3], [4], [9])
>>> for value, bounds in zip(messages.value.tolist(), messages.bounds.tolist(), strict=True):
...     print(value, bounds)
9 [4, 4, 4, 4]
7 [4, 4, 5, 9223372036854775807]
5 [2, 3, 4, 9223372036854775807]
>>> extremes.counters["difficult"], extremes.contents([2, 4, 6], [9, 4, 9])[0].tolist()
(1, [5, 9, 0])

T07, sections 5.2.4 and 5.3.1 (Mar, Hull, EMar). Ends are closed here and integers. The hull is not kept: both
of its sides are walked at once, from the highest stair down. An update of x and y together is sent in three
parts (to ranges that contain the old place, the new one, or both), at most one message for each range.
Largest values are least ones under ~y, which reverses the order of all int64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.model.columns import longer
from tocsin.rank._kernels import augmented as tree_kernels
from tocsin.rank._kernels import extremes as kernels
from tocsin.rank._kernels.augmented import AT, LOW, META, SIZE, WIDTH, TreeArrays, X, Y
from tocsin.rank._kernels.extremes import BOUNDS, EMPTY, UPDATE, VALUE, Objects, Updates

__all__ = [
    *("AugmentedTree", "DistinctRanges", "Extremes", "MessageGenerator", "ValueMessages"),
    *("as_codes", "capacity_for", "update_columns"),
]

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]
_FILL = 24  # entries of a node that is built from sorted points; the rest is for later inserts


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


@dataclass(frozen=True, slots=True)
class ValueMessages:
    """Messages to ranges: the content after an update is `value`, or none if `empty`.

    A message is for the ranges l..r with l in bounds[0]..bounds[1] and r in bounds[2]..bounds[3] of its row
    (and so on for a second attribute). No range gets two of one update (of `DistinctRanges`: two of one
    value).
    """

    update: Codes  # the number of the update in its batch; ascends
    value: Codes
    empty: Flags
    bounds: Codes

    def __len__(self) -> int:
        return len(self.update)

    def reach(self, *ends: int) -> NDArray[np.intp]:
        """The messages for one range: l, r (and l, r of the second attribute)."""
        inside = np.ones(len(self.update), np.bool_)
        for i, end in enumerate(ends):
            inside &= (self.bounds[:, 2 * i] <= end) & (end <= self.bounds[:, 2 * i + 1])
        return np.flatnonzero(inside)


class MessageGenerator(ABC):
    """Turns batches of updates of numbered objects into messages; counts what it does."""

    _ROWS = 4096  # of the output buffer at first

    def __init__(self, width: int) -> None:
        self._out: Codes = np.zeros((self._ROWS, BOUNDS + width), np.int64)
        self._counters = np.zeros(len(kernels.COUNTERS), np.int64)

    @property
    def counters(self) -> dict[str, int]:
        """Updates that were ignorable, easy, difficult; messages; affected ranges and hulls computed."""
        return dict(zip(kernels.COUNTERS, self._counters.tolist(), strict=True))

    @abstractmethod
    def _emit(self, updates: Any, start: int) -> tuple[int, int]:
        """Apply updates from `start` on, as far as `_out` suffices: (first one not applied, messages)."""

    def _run(self, updates: Any) -> ValueMessages:
        """Apply all updates of a batch; return their messages."""
        start, parts = 0, []
        while True:
            sufficed = self._reserve()
            start, count = self._emit(updates, start)
            parts.append(self._out[:count].copy())
            if start == len(updates.number):
                break
            if not count and sufficed:  # the buffer is too short for the messages of one update
                self._out = np.zeros((2 * len(self._out), self._out.shape[1]), np.int64)
        rows = np.concatenate(parts) if len(parts) > 1 else parts[0]
        return ValueMessages(rows[:, UPDATE], rows[:, VALUE], rows[:, EMPTY] != 0, rows[:, BOUNDS:])

    def _reserve(self) -> bool:
        """Reserve space for one more update in the index; whether there was some already."""
        return True


def update_columns(
    numbers: ArrayLike, has: ArrayLike | None, *codes: ArrayLike
) -> tuple[NDArray[np.int32], Flags, list[Codes]]:
    """Validated columns of a batch of updates; codes of deleted objects are 0."""
    first, *rest = as_codes(numbers, *codes)
    if len(first) and not 0 <= first.min() <= first.max() < 2**31:
        raise ValueError(f"objects are numbered from 0, below 2**31; not {first.min()} .. {first.max()}")
    there = np.ones(len(first), np.bool_) if has is None else np.asarray(has, np.bool_)
    if there.shape != first.shape:
        raise ValueError(f"columns differ in length: {[len(first), there.size]}")
    return first.astype(np.int32), there, [np.where(there, column, 0) for column in rest]


def capacity_for(numbers: NDArray[np.int32], length: int) -> int:
    """How long columns by object must be for these numbers; at least doubled if they have to grow."""
    need = int(numbers.max(initial=-1)) + 1
    return length if need <= length else max(need, 2 * length)


class _TreeGenerator(MessageGenerator):
    """Objects with x and y, and a tree of them."""

    def __init__(self, objects: Objects, tree: AugmentedTree) -> None:
        super().__init__(4)
        self.objects, self.tree = objects, tree

    def __len__(self) -> int:
        return len(self.tree)

    @property
    def bytes(self) -> int:
        return self.tree.bytes + self._out.nbytes + sum(part.nbytes for part in self.objects)

    def _updates(self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None) -> Updates:
        which, there, (xs, ys) = update_columns(numbers, has, x, y)
        length = capacity_for(which, len(self.objects.has))
        if length > len(self.objects.has):
            self.objects = Objects._make(longer(part, length) for part in self.objects)
        return Updates(which, there, xs, ys)

    def _reserve(self) -> bool:
        sufficed = bool(tree_kernels.has_space(self.tree.arrays))
        self.tree.reserve()
        return sufficed

    def _pairs(self) -> list[tuple[int, int]]:
        """The points of all objects, in order."""
        has, x, y = self.objects
        return sorted(zip(x[has].tolist(), y[has].tolist(), strict=True))


class Extremes(_TreeGenerator):
    """The least (`largest`: the greatest) y by range of x, of objects numbered from 0 in the order given."""

    def __init__(self, x: ArrayLike = (), y: ArrayLike = (), *, largest: bool = False) -> None:
        xs, ys = as_codes(x, y)
        self._flip = np.int64(-1 if largest else 0)  # y ^ -1 is ~y
        ys = ys ^ self._flip
        super().__init__(Objects(np.ones(len(xs), np.bool_), xs.copy(), ys), AugmentedTree(xs, ys))

    def update(
        self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> ValueMessages:
        """Move objects, one after the other, to new x and y, or insert them; delete where `has` is False.

        O(log n) for each update and each message.
        """
        updates = self._updates(numbers, x, y, has)
        messages = self._run(updates._replace(y=np.where(updates.has, updates.y ^ self._flip, 0)))
        return replace(messages, value=np.where(messages.empty, 0, messages.value ^ self._flip))

    def _emit(self, updates: Updates, start: int) -> tuple[int, int]:
        return kernels.emit_extremes(
            self.tree.arrays, self.objects, updates, start, self._out, self._counters
        )

    def contents(self, low: ArrayLike, high: ArrayLike) -> tuple[Codes, Flags]:
        """By range: its extreme (0 if it is empty), and whether it is empty. O(log n) each."""
        lows, highs = as_codes(low, high)
        value, empty = np.empty(len(lows), np.int64), np.empty(len(lows), np.bool_)
        kernels.lowest_each(self.tree.arrays, lows, highs, value, empty)
        return np.where(empty, 0, value ^ self._flip), empty

    def _check(self) -> None:
        """The tree is sound and contains the objects."""
        self.tree._check()
        assert self.tree.points() == self._pairs()


class DistinctRanges(_TreeGenerator):
    """The distinct values (y) of the tuples of a range of x; a message reports one value gained or lost.

    An insert or delete affects a range that contains the tuple and no other one of the same value: one
    rectangle, up to the neighbours in the order of (value, x). O(log n) for an update.

    >>> distinct = DistinctRanges(x=[1, 5, 9], y=[7, 8, 7])
    >>> messages = distinct.update([3], [4], [7])  # another 7, between those at 1 and 9
    >>> messages.value.tolist(), messages.empty.tolist(), messages.bounds.tolist()
    ([7], [False], [[2, 4, 4, 8]])
    >>> sorted(distinct.contents(2, 6))
    [7, 8]

    T07, section 5.4. A tuple that moves and keeps its value affects only ranges that contain one of its
    places.
    """

    def __init__(self, x: ArrayLike = (), y: ArrayLike = ()) -> None:
        xs, ys = as_codes(x, y)
        super().__init__(Objects(np.ones(len(xs), np.bool_), xs.copy(), ys.copy()), AugmentedTree(ys, xs))

    def update(
        self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> ValueMessages:
        """As `Extremes.update`; ranges of a message gained `value` or, if `empty`, lost it."""
        return self._run(self._updates(numbers, x, y, has))

    def _emit(self, updates: Updates, start: int) -> tuple[int, int]:
        return kernels.emit_distinct(
            self.tree.arrays, self.objects, updates, start, self._out, self._counters
        )

    def contents(self, low: int, high: int) -> set[int]:
        """The values of one range. O(n)."""
        has, x, y = self.objects
        return set(y[has & (low <= x) & (x <= high)].tolist())

    def _check(self) -> None:
        """The tree is sound and contains the objects."""
        self.tree._check()
        assert sorted((x, value) for value, x in self.tree.points()) == self._pairs()


# -- the tree ----------------------------------------------------------------------------------------


class AugmentedTree:
    """A bag of points (x, y), any int64 each: how far around x is there no point as low as y?

    Points are ordered by x, those of one x by y, in a B-tree whose every entry knows the least y below it. So
    a walk to the left that looks for a point of at most y skips whole subtrees:

        least y     2         5     3                  nearest of at most 4 to the left of x:
                  +---+     +---+ +---+                not below the 5, not among 9 7; down under the 3
                  |   |     |   | | 3 9 7 . x
        points    ...       ...   ...

    Cost: O(log n) for each query and each change, however many points share an x; equal points are one entry
    with a count. `arrays` is for kernels; `reserve` replaces it.

    >>> tree = AugmentedTree([10, 20, 30, 40], [1, 5, 3, 2])
    >>> tree.affected_range(20, 20, 4), tree.affected_range(20, 20, 2), tree.affected_range(20, 20, 5)
    ((11, 29), (11, 39), None)
    >>> tree.insert(25, 1)
    >>> tree.lowest(15, 35), tree.staircase(20, 20, 0)
    (1, [(10, 1), (20, 5), (25, 1)])

    T07, section 5.3.1, the augmented two-tier tree. Both tiers are one tree there too, of x and below it of
    y; here the second tier is the order of points of equal x, so that many points of one x cost no more than
    others. Nodes are joined at a quarter, not at a half.
    """

    arrays: TreeArrays

    def __init__(self, x: ArrayLike = (), y: ArrayLike = ()) -> None:
        xs, ys = as_codes(x, y)
        order = np.lexsort((ys, xs))
        xs, ys = xs[order], ys[order]
        fresh = np.ones(len(xs), np.bool_)
        fresh[1:] = (xs[1:] != xs[:-1]) | (ys[1:] != ys[:-1])
        first = np.flatnonzero(fresh)
        self._build(xs[first], ys[first], np.diff(first, append=len(xs)))

    def _build(self, x: Codes, y: Codes, count: Codes) -> None:
        """All levels from below, each of filled rows except the last; the rows of a level are contiguous."""
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
        meta[tree_kernels.ROOT], meta[tree_kernels.LEVELS], meta[tree_kernels.USED] = (
            rows,
            len(parts),
            rows + 1,
        )
        meta[tree_kernels.ENTRIES], meta[tree_kernels.POINTS], meta[tree_kernels.FREE] = (
            len(x),
            count.sum(),
            -1,
        )
        self.arrays = TreeArrays(nodes, meta)

    def __len__(self) -> int:
        return int(self.arrays.meta[tree_kernels.POINTS])

    @property
    def bytes(self) -> int:
        return self.arrays.nodes.nbytes + self.arrays.meta.nbytes

    def reserve(self) -> None:
        """Reserve rows for one more point; doubles the rows if there are none."""
        while not tree_kernels.has_space(self.arrays):
            nodes = self.arrays.nodes
            self.arrays = self.arrays._replace(nodes=np.concatenate([nodes, np.zeros_like(nodes)]))

    def insert(self, x: int, y: int) -> None:
        """Insert a point. O(log n)."""
        self.reserve()
        tree_kernels.insert(self.arrays, x, y)

    def delete(self, x: int, y: int) -> None:
        """Delete one of the points equal to (x, y). O(log n)."""
        if not tree_kernels.delete(self.arrays, x, y):
            raise KeyError(f"there is no point ({x}, {y})")

    def lowest(self, low: int, high: int) -> int | None:
        """The least y of points with x in low..high. O(log n)."""
        there, least = tree_kernels.lowest(self.arrays, low, high)
        return int(least) if there else None

    def affected_range(self, low: int, high: int, y: int) -> tuple[int, int] | None:
        """The widest range around low..high without a point of at most y; None if low..high has one.

        Without a point on a side it extends to the end of int64. O(log n).
        """
        least = self.lowest(low, high)
        if least is not None and least <= y:
            return None
        left, x1 = tree_kernels.left_of(self.arrays, low, y)
        right, x2, _ = tree_kernels.right_of(self.arrays, high, y)
        return int(x1) + 1 if left else int(tree_kernels.LEAST), int(x2) - 1 if right else int(
            tree_kernels.MOST
        )

    def staircase(self, low: int, high: int, y: int) -> list[tuple[int, int]]:
        """Points above y that no point nearer to low..high undercuts, by x; of those inside, the lowest.

        On each side a point is strictly below all that are nearer, and the stairs end where the affected
        range of y does. O(log n) for each.
        """
        peak = self.lowest(low, high)
        stairs = [] if peak is None or peak <= y else [(low, peak)]
        for left in (True, False):
            x, below = (low if left else high), peak
            while below is None or below > max(y, int(tree_kernels.LEAST)):
                limit = int(tree_kernels.MOST) if below is None else below - 1
                there, x = (tree_kernels.left_of if left else tree_kernels.right_of)(self.arrays, x, limit)[
                    :2
                ]
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

        visit(int(meta[tree_kernels.ROOT]), int(meta[tree_kernels.LEVELS]))
        return out

    def _check(self) -> None:
        """Points ascend; entries have the first and the least point below; a row is used once or spare."""
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

        visit(int(meta[tree_kernels.ROOT]), int(meta[tree_kernels.LEVELS]))
        points = self.points()
        assert points == sorted(points) and len(points) == len(self)
        assert len(set(points)) == meta[tree_kernels.ENTRIES]
        v = int(meta[tree_kernels.FREE])
        for _ in range(int(meta[tree_kernels.SPARE])):
            seen.append(v)
            v = int(nodes[v, AT])
        assert sorted(seen) == list(range(int(meta[tree_kernels.USED]))), "a row is lost or used twice"
