"""Range minima: whose answer does an update change, and to what?

Subscriptions ask for the least y of the tuples with x in l..r. Only ranges that hold the updated tuple, and
no other one as low as it was or is, can change. Where it is, or becomes, the lowest around, one rectangle of
the subscription space (l, r) tells them all; if it rises above others, these are exposed, and the staircase
around it has one rectangle for each new minimum:

    y  |   u: 2 -> 9                                     l in .. and r in ..           new minimum
    9  |         u                                       after b, u    u, before c        9
    7  |            c                                    after b, u    c .. the end       7
    5  |      b                                          after a, b    u .. the end       5
    1  |  a                                              a ends it: nobody beyond is told
       +--------------- x

Kinds of updates: *ignorable* (nobody is told), *easy* (one new minimum for all), *difficult* (the staircase).
However many subscriptions there are, none of them is looked at. Cost: O(log n) for each message and update.

>>> extremes = Extremes(x=[1, 3, 5, 4], y=[1, 5, 7, 2])  # a, b, c, u
>>> told = extremes.update([3], [4], [9])
>>> for value, bounds in zip(told.value.tolist(), told.bounds.tolist(), strict=True):
...     print(value, bounds)
9 [4, 4, 4, 4]
7 [4, 4, 5, 9223372036854775807]
5 [2, 3, 4, 9223372036854775807]
>>> extremes.counters["difficult"], extremes.contents([2, 4, 6], [9, 4, 9])[0].tolist()
(1, [5, 9, 0])

T07, sections 5.2.4 and 5.3.1 (Mar, Hull, EMar). Ends are closed here and whole numbers. The hull is not kept:
both of its sides are walked at once, from the highest stair down. Updates of x and y together are told in
three parts (ranges that hold the old place, the new one, or both), at most one message for each range.
Largest values are least ones under ~y, which turns the order of all int64 around.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.model.columns import longer
from tocsin.rank._kernels import extremes as kernels
from tocsin.rank._kernels.augmented import has_room
from tocsin.rank._kernels.extremes import BOUNDS, EMPTY, UPDATE, VALUE, Objects, Updates
from tocsin.rank.augmented import AugmentedTree, as_codes

__all__ = ["DistinctRanges", "Extremes", "Messages", "Objects", "Teller", "checked", "room_for"]

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Messages:
    """What ranges are told: the content after an update is `value`, or nothing if `empty`.

    A message is for the ranges l..r with l in bounds[0]..bounds[1] and r in bounds[2]..bounds[3] of its row
    (and so on for a second attribute). Of one update no range gets two (of `DistinctRanges`, about a value).
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


class Teller:
    """Objects under small numbers, their updates in batches, and what was done so far."""

    _ROWS = 4096  # of the output at first

    def __init__(self, width: int) -> None:
        self._out: Codes = np.zeros((self._ROWS, BOUNDS + width), np.int64)
        self._counters = np.zeros(len(kernels.COUNTERS), np.int64)

    @property
    def counters(self) -> dict[str, int]:
        """Updates that were ignorable, easy, difficult; messages; affected ranges and hulls asked for."""
        return dict(zip(kernels.COUNTERS, self._counters.tolist(), strict=True))

    def _run(self, total: int, tell: Callable[[int, Codes], tuple[int, int]]) -> Messages:
        """All updates of a batch; `tell` goes on from one of them as far as there is room."""
        start, parts = 0, []
        while True:
            roomy = self._has_room()
            start, count = tell(start, self._out)
            parts.append(self._out[:count].copy())
            if start == total:
                break
            if not count and roomy:  # not even one update's messages
                self._out = np.zeros((2 * len(self._out), self._out.shape[1]), np.int64)
        rows = np.concatenate(parts) if len(parts) > 1 else parts[0]
        return Messages(rows[:, UPDATE], rows[:, VALUE], rows[:, EMPTY] != 0, rows[:, BOUNDS:])

    def _has_room(self) -> bool:
        """For one more update; if there was none, make some."""
        return True


def checked(
    numbers: ArrayLike, has: ArrayLike | None, *codes: ArrayLike
) -> tuple[NDArray[np.int32], Flags, list[Codes]]:
    """Columns of a batch of updates; codes of what is deleted are 0."""
    first, *rest = as_codes(numbers, *codes)
    if len(first) and not 0 <= first.min() <= first.max() < 2**31:
        raise ValueError(f"objects are numbered from 0, below 2**31; not {first.min()} .. {first.max()}")
    there = np.ones(len(first), np.bool_) if has is None else np.asarray(has, np.bool_)
    if there.shape != first.shape:
        raise ValueError(f"columns differ in length: {[len(first), there.size]}")
    return first.astype(np.int32), there, [np.where(there, column, 0) for column in rest]


def room_for(numbers: NDArray[np.int32], length: int) -> int:
    """How long columns by object must be, at least doubled if these numbers go beyond."""
    need = int(numbers.max(initial=-1)) + 1
    return length if need <= length else max(need, 2 * length)


class _OnTree(Teller):
    """Objects with an x and a y, and a tree of them."""

    def __init__(self, objects: Objects, tree: AugmentedTree) -> None:
        super().__init__(4)
        self.objects, self.tree = objects, tree

    def __len__(self) -> int:
        return len(self.tree)

    @property
    def bytes(self) -> int:
        return self.tree.bytes + self._out.nbytes + sum(part.nbytes for part in self.objects)

    def _updates(self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None) -> Updates:
        which, there, (xs, ys) = checked(numbers, has, x, y)
        room = room_for(which, len(self.objects.has))
        if room > len(self.objects.has):
            self.objects = Objects._make(longer(part, room) for part in self.objects)
        return Updates(which, there, xs, ys)

    def _has_room(self) -> bool:
        roomy = bool(has_room(self.tree.arrays))
        self.tree.reserve()
        return roomy

    def _pairs(self) -> list[tuple[int, int]]:
        """Where the objects are, in order."""
        has, x, y = self.objects
        return sorted(zip(x[has].tolist(), y[has].tolist(), strict=True))


class Extremes(_OnTree):
    """The least (`largest`: the greatest) y by range of x, of objects numbered from 0 in the order given."""

    def __init__(self, x: ArrayLike = (), y: ArrayLike = (), *, largest: bool = False) -> None:
        xs, ys = as_codes(x, y)
        self._turn = np.int64(-1 if largest else 0)  # y ^ -1 is ~y
        ys = ys ^ self._turn
        super().__init__(Objects(np.ones(len(xs), np.bool_), xs.copy(), ys), AugmentedTree(xs, ys))

    def update(
        self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> Messages:
        """Objects move, one after the other, to new x and y; where `has` is False, one is deleted.

        A number that was not there is inserted. O(log n) each, and for each message.
        """
        updates = self._updates(numbers, x, y, has)
        updates = updates._replace(y=np.where(updates.has, updates.y ^ self._turn, 0))

        def tell(start: int, out: Codes) -> tuple[int, int]:
            return kernels.tell_extremes(self.tree.arrays, self.objects, updates, start, out, self._counters)

        told = self._run(len(updates.number), tell)
        return replace(told, value=np.where(told.empty, 0, told.value ^ self._turn))

    def contents(self, low: ArrayLike, high: ArrayLike) -> tuple[Codes, Flags]:
        """By range: its extreme, and whether it is empty (0 then). O(log n) each."""
        lows, highs = as_codes(low, high)
        value, empty = np.empty(len(lows), np.int64), np.empty(len(lows), np.bool_)
        kernels.lowest_each(self.tree.arrays, lows, highs, value, empty)
        return np.where(empty, 0, value ^ self._turn), empty

    def _check(self) -> None:
        """The tree is sound and has the objects."""
        self.tree._check()
        assert self.tree.points() == self._pairs()


class DistinctRanges(_OnTree):
    """Which values (y) do the tuples of a range of x have? Messages tell of one value that comes or goes.

    A range is affected by an insert or delete if it holds the tuple and no other one of the same value: one
    rectangle, up to the neighbours in the order of (value, x). O(log n) for an update.

    >>> distinct = DistinctRanges(x=[1, 5, 9], y=[7, 8, 7])
    >>> told = distinct.update([3], [4], [7])  # another 7, between those at 1 and 9
    >>> told.value.tolist(), told.empty.tolist(), told.bounds.tolist()
    ([7], [False], [[2, 4, 4, 8]])
    >>> sorted(distinct.contents(2, 6))
    [7, 8]

    T07, section 5.4. A tuple that keeps its value and moves is told to those who hold one of its places only.
    """

    def __init__(self, x: ArrayLike = (), y: ArrayLike = ()) -> None:
        xs, ys = as_codes(x, y)
        super().__init__(Objects(np.ones(len(xs), np.bool_), xs.copy(), ys.copy()), AugmentedTree(ys, xs))

    def update(
        self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> Messages:
        """As `Extremes.update`; `value` came into the ranges a message is for or, if `empty`, went."""
        updates = self._updates(numbers, x, y, has)

        def tell(start: int, out: Codes) -> tuple[int, int]:
            return kernels.tell_distinct(self.tree.arrays, self.objects, updates, start, out, self._counters)

        return self._run(len(updates.number), tell)

    def contents(self, low: int, high: int) -> set[int]:
        """The values of one range. O(n)."""
        has, x, y = self.objects
        return set(y[has & (low <= x) & (x <= high)].tolist())

    def _check(self) -> None:
        """The tree is sound and has the objects."""
        self.tree._check()
        assert sorted((x, value) for value, x in self.tree.points()) == self._pairs()
