"""The space of subscriptions: a range [l, r] is the point (l, r), and a message reaches a rectangle of it.

Many rectangles are asked for each event: who is in it, anybody at all, how tight could it be? Points are cut
in two where they spread most, again and again, down to leaves of 32, which lie one after the other. Sixteen
leaves are a group, sixteen groups one of the next level; every entry knows the bounds of its living points:

    group     +------ 16 bounds ------+      a rectangle that misses the bounds skips all below;
    leaves    | 32 | 32 | 32 | .. | 32 |     one that holds them takes all without looking

Trees are packed, so late comers make a small one of their own; a tree that is not much larger than what comes
after it is packed anew together with that:

    root      | 2,000,000 | 90,000 | 1,000 |      trees as entries of one group, so that all are one to ask

Who is removed leaves a gap at the end of his leaf and narrower bounds above it.

Cost, for n subscriptions: a rectangle with m of them O(sqrt n + m), mostly far less; adding O(log n) times
packing, each O(log n), all in memory order; removing O(log n). About 26 bytes each when all is packed.

>>> space = Space()
>>> space.add([7, 8, 9], [0, 2, 5], [4, 9, 6])
>>> number, slot = space.find([(0, 3, 4, 9), (3, 5, 0, 5)])  # l from 0 to 3 and r from 4 to 9; ...
>>> sorted(zip(number.tolist(), slot.tolist()))
[(0, 7), (0, 8)]
>>> space.snap((1, 9, 1, 9)), space.any((3, 9, 7, 9)), sorted(space.stab(3).tolist())
((2, 5, 6, 9), False, [7, 8])

K12 takes any 2-d index for the subscriptions, and T07, chapter 5, one for S-UN; this is a kd-tree with bounds
in the manner of an R-tree, since bounds that are tight answer `snap` and `any` high up.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.model.columns import longer
from tocsin.rank._kernels.near import HELD, any_near, find_runs, focus, snap_near
from tocsin.rank._kernels.space import (
    BELOW,
    FAN,
    GREATEST,
    LEAF,
    LEAST,
    LIVING,
    NEAR,
    STACK,
    SpaceArrays,
    SpaceBooks,
    count_in,
    lay,
    take_out,
)
from tocsin.stab.partition import Codes, as_intervals

__all__ = ["Rectangle", "Slots", "Space"]

Slots = NDArray[np.int32]
Rectangle = tuple[int, int, int, int]  # l_low, l_high, r_low, r_high; ends belong to it

_FEW = 256  # a tree of so few is always packed anew
_RATIO = 4  # ... and one that is up to so many times as large as what comes after it
_GAPS = 4  # gaps may be that part of a tree
_SPARE = 16  # arrays are longer than need be by that part
_KEPT = 1 << 24  # slots that there is room for at the beginning, at most
_NOTHING = [[GREATEST], [LEAST], [GREATEST], [LEAST], [0], [~0]]  # rows of an entry that is not there


class _Tree(NamedTuple):
    """Where a tree begins, and how many points it had when it was packed."""

    block: int
    group: int
    points: int


class Space:
    """Ranges under slots; `arrays` is what kernels see, another tuple after each change."""

    arrays: SpaceArrays

    def __init__(self) -> None:
        self._room = 0  # for what is found next, from what was found lately
        self.arrays, self._books = _empty(np.empty(0, np.int32))
        self._trees: list[_Tree] = []
        self._end = _Tree(0, 1, 0)  # where the next tree begins
        self._pack(0, np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))

    def __len__(self) -> int:
        return int(self.arrays.box[0, LIVING].sum())

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in (*self.arrays, *self._books))

    # -- changes -------------------------------------------------------------------------------------

    def add(self, slots: ArrayLike, low: ArrayLike, high: ArrayLike) -> None:
        """Take ranges low..high in; a slot must be free."""
        which = _as_slots(slots)
        lows, highs = as_intervals(low, high)
        if len(which) != len(lows):
            raise ValueError(f"there are {len(which)} slots for {len(lows)} ranges")
        if not len(which):
            return
        most = int(which.max()) + 1
        if most > len(self._books.place):
            self._books = self._books._replace(place=longer(self._books.place, most + most // _SPARE, -1))
        bad = which[self._books.place[which] >= 0]
        if len(bad) or len(bad := self._twice(which)):
            raise ValueError(f"slot {bad[0]} is in use")
        self._pack(self._due(len(which)), which, lows, highs)

    def remove(self, slots: ArrayLike) -> None:
        """Let ranges go; a slot must be in use."""
        which = _as_slots(slots)
        place = self._books.place
        known = which < len(place)
        known[known] = place[which[known]] >= 0
        bad = which[~known]
        if len(bad) or len(bad := self._twice(which)):
            raise ValueError(f"slot {bad[0]} is not in use")
        take_out(self.arrays, self._books, which)
        living = self.arrays.box[0, LIVING].tolist()
        for tree, (_, _, points) in enumerate(self._trees):
            if living[tree] * _GAPS < points * (_GAPS - 1):
                none = np.empty(0, np.int64)
                self._pack(min(tree, self._due(sum(living[tree:]))), none.astype(np.int32), none, none)
                return

    def _twice(self, which: Slots) -> Slots:
        """Slots that are named more than once: each writes its number, the last one stays."""
        place, number = self._books.place, np.arange(len(which), dtype=np.int32)
        before = place[which]
        place[which] = number
        again = which[place[which] != number]
        place[which] = before
        return again

    def _due(self, fresh: int) -> int:
        """The first tree that is to be packed anew when so many come."""
        living = self.arrays.box[0, LIVING].tolist()
        tree = len(self._trees)
        while tree and (tree >= FAN or living[tree - 1] <= max(_FEW, _RATIO * fresh)):
            tree -= 1
            fresh += living[tree]
        return tree

    def _pack(self, tree: int, slots: Slots, low: Codes, high: Codes) -> None:
        """Trees from this one on become one, with some more points."""
        begin = self._trees[tree] if tree < len(self._trees) else self._end
        old_slots, old_low, old_high = self._members(begin.block)
        slots = np.concatenate([old_slots, slots])
        low, high = np.concatenate([old_low, low]), np.concatenate([old_high, high])
        blocks = -(-len(slots) // (LEAF * FAN))
        self._end = _Tree(begin.block + blocks, begin.group + _groups(blocks), 0)
        self._make_room(tree == 0)
        self.arrays.box[0, :, tree:] = _NOTHING
        del self._trees[tree:]
        if len(slots):
            self._trees.append(begin._replace(points=len(slots)))
            lay(self.arrays, self._books, low, high, slots, tree, begin.block, begin.group)

    def _members(self, block: int) -> tuple[Slots, Codes, Codes]:
        """Slots and ends of the living from a block on."""
        a, leaves = self.arrays, slice(block * FAN, self._end.block * FAN)
        living = a.box[self._books.home[block : self._end.block], LIVING].reshape(-1, 1)
        there = np.arange(LEAF) < living
        return a.slot[leaves][there], a.ends[leaves, 0][there], a.ends[leaves, 1][there]

    def _make_room(self, fresh: bool) -> None:
        """Arrays that are long enough; if all is packed anew, not much longer either."""
        blocks, groups, _ = self._end
        books = self._books
        if fresh and not blocks <= len(books.home) <= 2 * blocks + 1:
            self.arrays, books = _empty(books.place)
        a = self.arrays
        if blocks > len(books.home):
            blocks += blocks // _SPARE
            a = a._replace(ends=longer(a.ends, blocks * FAN), slot=longer(a.slot, blocks * FAN))
            books = books._replace(home=longer(books.home, blocks))
        if groups > len(a.box):
            groups += groups // _SPARE
            a = a._replace(box=longer(a.box, groups))
            books = books._replace(above=longer(books.above, groups))
        self.arrays, self._books = a, books

    # -- questions -----------------------------------------------------------------------------------

    def runs(self, rectangles: ArrayLike, region: ArrayLike | None = None) -> tuple[Codes, Slots]:
        """Who is in each of many rectangles: those of rectangle i are slots[start[i]:start[i + 1]].

        Rectangles that follow each other with one number of `region` lie near each other, as those of a
        change do: they are looked up together."""
        asked = np.ascontiguousarray(rectangles, np.int64).reshape(-1, 4)
        where = np.arange(len(asked)) if region is None else np.ascontiguousarray(region, np.int64)
        start = np.zeros(len(asked) + 1, np.int64)
        out = np.empty(max(self._room, 1024 + 16 * len(asked)), np.int32)
        at = find_runs(self.arrays, asked, where, 0, out, start)
        while at >= 0:
            out = longer(out, max(int(start[at + 1]), 2 * len(out)))
            at = find_runs(self.arrays, asked, where, at, out, start)
        found = int(start[-1])
        self._room = min(max(found + found // 4, self._room - self._room // 16), _KEPT)
        return start, out[:found] if 2 * found > len(out) else out[:found].copy()

    def find(self, rectangles: ArrayLike, region: ArrayLike | None = None) -> tuple[Codes, Slots]:
        """The same as pairs: (number of the rectangle, slot), by number."""
        start, slots = self.runs(rectangles, region)
        return np.repeat(np.arange(len(start) - 1), np.diff(start)), slots

    def ranges(self, slots: ArrayLike) -> tuple[Codes, Codes]:
        """The ends of ranges that are there."""
        leaf, i = np.divmod(self._books.place[_as_slots(slots)], LEAF)
        return self.arrays.ends[leaf, 0, i], self.arrays.ends[leaf, 1, i]

    def stab(self, x: int) -> Slots:
        """Whose range holds x, in any order."""
        return self.find([(LEAST, x, x, GREATEST)])[1]

    def count(self, rectangle: Rectangle) -> int:
        """How many are in a rectangle."""
        return int(count_in(self.arrays, *rectangle))

    def any(self, rectangle: Rectangle) -> bool:
        """Whether somebody is in a rectangle."""
        focus(self.arrays, *rectangle, False)
        return bool(any_near(self.arrays, *rectangle))

    def snap(self, rectangle: Rectangle) -> Rectangle | None:
        """The smallest rectangle that holds those in a rectangle; None if there are none."""
        bounds = np.empty(4, np.int64)
        focus(self.arrays, *rectangle, False)
        if not snap_near(self.arrays, *rectangle, bounds, False):
            return None
        l_low, l_high, r_low, r_high = bounds.tolist()
        return l_low, l_high, r_low, r_high

    # -- invariants ----------------------------------------------------------------------------------

    def _check(self) -> None:
        """Places are right, and the bounds and numbers of every entry those of the living below it."""
        (ends, slot, box, *_), (place, home, above) = self.arrays, self._books
        used = np.flatnonzero(place >= 0)
        leaf, i = np.divmod(place[used], LEAF)
        assert np.array_equal(slot[leaf, i], used) and len(used) == len(self) and above[0] == -1
        assert np.all(i < box[home[leaf // FAN], LIVING, leaf % FAN])
        begins = [*self._trees, self._end]
        for number, (tree, after) in enumerate(pairwise(begins)):
            assert after.group - tree.group == _groups(after.block - tree.block) and tree.points > 0
            assert box[0, BELOW, number] == after.group - 1
        for entry, below in enumerate(box[: self._end.group, BELOW].ravel().tolist()):
            *bounds, living, _ = box[entry // FAN, :, entry % FAN].tolist()
            if below > 0:
                assert above[below] == entry
                low_l, high_l, low_r, high_r, all_living, _ = box[below]
                expected = [low_l.min(), high_l.max(), low_r.min(), high_r.max()]
                assert living == all_living.sum() and bounds == expected
            elif living:
                low, high = ends[~below, :, :living]
                assert home[~below // FAN] * FAN + ~below % FAN == entry
                assert bounds == [low.min(), low.max(), high.min(), high.max()]
            else:
                assert bounds == [GREATEST, LEAST, GREATEST, LEAST]


def _as_slots(slots: ArrayLike) -> Slots:
    which = np.atleast_1d(np.asarray(slots))
    if len(which) and not 0 <= which.min() <= which.max() < 2**31 - 1:
        raise ValueError(f"slots are numbers from 0 to 2147483646: {which.min()}..{which.max()}")
    return np.ascontiguousarray(which, np.int32)


def _groups(blocks: int) -> int:
    """How many groups are above so many of the lowest, with them."""
    total = blocks
    while blocks > 1:
        blocks = -(-blocks // FAN)
        total += blocks
    return total


def _empty(place: Slots) -> tuple[SpaceArrays, SpaceBooks]:
    """No leaves, and a root without entries."""
    root = np.tile(np.array([_NOTHING], np.int64), FAN)
    leaves = np.empty((0, 2, LEAF), np.int64), np.empty((0, LEAF), np.int32)
    books = SpaceBooks(place, np.empty(0, np.int64), np.full(1, -1, np.int64))
    scratch = np.empty(STACK, np.int64), np.empty((6, NEAR + LEAF), np.int64), np.zeros(HELD, np.int64)
    return SpaceArrays(*leaves, root, *scratch), books
