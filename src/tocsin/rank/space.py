"""The subscription space: a range [l, r] is the point (l, r), and a message reaches a rectangle of it.

Each event queries many rectangles: which subscriptions are in it (`find`), is there any (`any`), how small
may it become (`snap`)? Points are cut in two along the wider side, recursively, down to leaves of 32, which
are contiguous. Sixteen leaves form a group, sixteen groups a group of the next level; every entry has the
bounds of its living points:

    group     +------ 16 bounds ------+      a rectangle that misses the bounds skips all below;
    leaves    | 32 | 32 | 32 | .. | 32 |     one that contains them takes all without testing

Trees are packed, so later subscriptions get a small tree of their own; a tree that is not much larger than
the trees after it is merged with them:

    root      | 2,000,000 | 90,000 | 1,000 |      trees are entries of one group, so that one query covers all

A removed subscription leaves a gap at the end of its leaf and narrower bounds above it.

Cost, for n subscriptions: a rectangle with m of them O(sqrt n + m), mostly far less; adding O(log n) times
packing, each O(log n), sequential in memory; removing O(log n). About 26 bytes each after packing.

>>> space = SubscriptionSpace()
>>> space.add([7, 8, 9], [0, 2, 5], [4, 9, 6])
>>> number, slot = space.find([(0, 3, 4, 9), (3, 5, 0, 5)])  # l from 0 to 3 and r from 4 to 9; ...
>>> sorted(zip(number.tolist(), slot.tolist()))
[(0, 7), (0, 8)]
>>> space.snap((1, 9, 1, 9)), space.any((3, 9, 7, 9)), sorted(space.stab(3).tolist())
((2, 5, 6, 9), False, [7, 8])

K12 uses any 2-d index for the subscriptions, and T07, chapter 5, one for S-UN; this is a kd-tree with bounds
like those of an R-tree, since tight bounds answer `snap` and `any` high up.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.model.columns import longer
from tocsin.rank._kernels.near import REGION, any_near, find_runs, focus, snap_near
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
    SpaceLocations,
    count_in,
    pack,
    remove,
)
from tocsin.stab.partition import Codes, as_intervals

__all__ = ["Rectangle", "Slots", "SubscriptionSpace"]

Slots = NDArray[np.int32]
Rectangle = tuple[int, int, int, int]  # l_low, l_high, r_low, r_high; ends belong to it

_MERGED = 256  # a tree of at most so many points is merged with those after it
_RATIO = 4  # ... and one of up to so many times the points after it
_GAPS = 4  # at most 1 / _GAPS of a tree may be gaps
_SPARE = 16  # arrays are longer than needed by 1 / _SPARE
_MAX_EXPECTED = 1 << 24  # slots that the buffer for results is sized for at first
_NO_ENTRY = [[GREATEST], [LEAST], [GREATEST], [LEAST], [0], [~0]]  # rows of an entry that is not used


class _PackedTree(NamedTuple):
    """Where a tree begins, and its number of points when it was packed."""

    block: int
    group: int
    points: int


class SubscriptionSpace:
    """Ranges under slots; `arrays` is for kernels, another tuple after each change."""

    arrays: SpaceArrays

    def __init__(self) -> None:
        self._expected = 0  # size of the next result, from recent ones
        self.arrays, self._locations = _empty(np.empty(0, np.int32))
        self._trees: list[_PackedTree] = []
        self._end = _PackedTree(0, 1, 0)  # where the next tree begins
        self._pack(0, np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))

    def __len__(self) -> int:
        return int(self.arrays.box[0, LIVING].sum())

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in (*self.arrays, *self._locations))

    # -- changes -------------------------------------------------------------------------------------

    def add(self, slots: ArrayLike, low: ArrayLike, high: ArrayLike) -> None:
        """Register ranges low..high; a slot must be free."""
        which = _as_slots(slots)
        lows, highs = as_intervals(low, high)
        if len(which) != len(lows):
            raise ValueError(f"there are {len(which)} slots for {len(lows)} ranges")
        if not len(which):
            return
        most = int(which.max()) + 1
        if most > len(self._locations.place):
            self._locations = self._locations._replace(
                place=longer(self._locations.place, most + most // _SPARE, -1)
            )
        bad = which[self._locations.place[which] >= 0]
        if len(bad) or len(bad := self._duplicates(which)):
            raise ValueError(f"slot {bad[0]} is in use")
        self._pack(self._due(len(which)), which, lows, highs)

    def remove(self, slots: ArrayLike) -> None:
        """Unregister ranges; a slot must be in use."""
        which = _as_slots(slots)
        place = self._locations.place
        known = which < len(place)
        known[known] = place[which[known]] >= 0
        bad = which[~known]
        if len(bad) or len(bad := self._duplicates(which)):
            raise ValueError(f"slot {bad[0]} is not in use")
        remove(self.arrays, self._locations, which)
        living = self.arrays.box[0, LIVING].tolist()
        for tree, (_, _, points) in enumerate(self._trees):
            if living[tree] * _GAPS < points * (_GAPS - 1):
                none = np.empty(0, np.int64)
                self._pack(min(tree, self._due(sum(living[tree:]))), none.astype(np.int32), none, none)
                return

    def _duplicates(self, which: Slots) -> Slots:
        """Slots that occur more than once: each writes its number, the last one stays."""
        place, number = self._locations.place, np.arange(len(which), dtype=np.int32)
        before = place[which]
        place[which] = number
        again = which[place[which] != number]
        place[which] = before
        return again

    def _due(self, fresh: int) -> int:
        """The first tree to merge when so many points are added."""
        living = self.arrays.box[0, LIVING].tolist()
        tree = len(self._trees)
        while tree and (tree >= FAN or living[tree - 1] <= max(_MERGED, _RATIO * fresh)):
            tree -= 1
            fresh += living[tree]
        return tree

    def _pack(self, tree: int, slots: Slots, low: Codes, high: Codes) -> None:
        """Pack the trees from this one on, and some more points, into one tree."""
        begin = self._trees[tree] if tree < len(self._trees) else self._end
        old_slots, old_low, old_high = self._members(begin.block)
        slots = np.concatenate([old_slots, slots])
        low, high = np.concatenate([old_low, low]), np.concatenate([old_high, high])
        blocks = -(-len(slots) // (LEAF * FAN))
        self._end = _PackedTree(begin.block + blocks, begin.group + _groups(blocks), 0)
        self._resize(tree == 0)
        self.arrays.box[0, :, tree:] = _NO_ENTRY
        del self._trees[tree:]
        if len(slots):
            self._trees.append(begin._replace(points=len(slots)))
            pack(self.arrays, self._locations, low, high, slots, tree, begin.block, begin.group)

    def _members(self, block: int) -> tuple[Slots, Codes, Codes]:
        """Slots and ends of the living points from a block on."""
        a, leaves = self.arrays, slice(block * FAN, self._end.block * FAN)
        living = a.box[self._locations.home[block : self._end.block], LIVING].reshape(-1, 1)
        there = np.arange(LEAF) < living
        return a.slot[leaves][there], a.ends[leaves, 0][there], a.ends[leaves, 1][there]

    def _resize(self, fresh: bool) -> None:
        """Make arrays long enough; if everything is packed again, not much longer either."""
        blocks, groups, _ = self._end
        locations = self._locations
        if fresh and not blocks <= len(locations.home) <= 2 * blocks + 1:
            self.arrays, locations = _empty(locations.place)
        a = self.arrays
        if blocks > len(locations.home):
            blocks += blocks // _SPARE
            a = a._replace(ends=longer(a.ends, blocks * FAN), slot=longer(a.slot, blocks * FAN))
            locations = locations._replace(home=longer(locations.home, blocks))
        if groups > len(a.box):
            groups += groups // _SPARE
            a = a._replace(box=longer(a.box, groups))
            locations = locations._replace(above=longer(locations.above, groups))
        self.arrays, self._locations = a, locations

    # -- queries -------------------------------------------------------------------------------------

    def runs(self, rectangles: ArrayLike, region: ArrayLike | None = None) -> tuple[Codes, Slots]:
        """The subscriptions in each of many rectangles: of rectangle i they are slots[start[i]:start[i + 1]].

        Consecutive rectangles with the same number in `region` lie near each other, as those of one change
        do: they are looked up together."""
        wanted = np.ascontiguousarray(rectangles, np.int64).reshape(-1, 4)
        where = np.arange(len(wanted)) if region is None else np.ascontiguousarray(region, np.int64)
        start = np.zeros(len(wanted) + 1, np.int64)
        out = np.empty(max(self._expected, 1024 + 16 * len(wanted)), np.int32)
        at = find_runs(self.arrays, wanted, where, 0, out, start)
        while at >= 0:
            out = longer(out, max(int(start[at + 1]), 2 * len(out)))
            at = find_runs(self.arrays, wanted, where, at, out, start)
        found = int(start[-1])
        self._expected = min(max(found + found // 4, self._expected - self._expected // 16), _MAX_EXPECTED)
        return start, out[:found] if 2 * found > len(out) else out[:found].copy()

    def find(self, rectangles: ArrayLike, region: ArrayLike | None = None) -> tuple[Codes, Slots]:
        """The same as pairs: (number of the rectangle, slot), by number."""
        start, slots = self.runs(rectangles, region)
        return np.repeat(np.arange(len(start) - 1), np.diff(start)), slots

    def ranges(self, slots: ArrayLike) -> tuple[Codes, Codes]:
        """The ends of registered ranges."""
        leaf, i = np.divmod(self._locations.place[_as_slots(slots)], LEAF)
        return self.arrays.ends[leaf, 0, i], self.arrays.ends[leaf, 1, i]

    def stab(self, x: int) -> Slots:
        """The slots of ranges that contain x, in any order."""
        return self.find([(LEAST, x, x, GREATEST)])[1]

    def count(self, rectangle: Rectangle) -> int:
        """How many subscriptions are in a rectangle."""
        return int(count_in(self.arrays, *rectangle))

    def any(self, rectangle: Rectangle) -> bool:
        """Whether a subscription is in a rectangle."""
        focus(self.arrays, *rectangle, False)
        return bool(any_near(self.arrays, *rectangle))

    def snap(self, rectangle: Rectangle) -> Rectangle | None:
        """The smallest rectangle around the subscriptions in a rectangle; None if there are none."""
        bounds = np.empty(4, np.int64)
        focus(self.arrays, *rectangle, False)
        if not snap_near(self.arrays, *rectangle, bounds, False):
            return None
        l_low, l_high, r_low, r_high = bounds.tolist()
        return l_low, l_high, r_low, r_high

    # -- invariants ----------------------------------------------------------------------------------

    def _check(self) -> None:
        """Locations are right; bounds and counts of every entry are those of the living points below it."""
        (ends, slot, box, *_), (place, home, above) = self.arrays, self._locations
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
    """How many groups a tree of so many lowest groups has, with them."""
    total = blocks
    while blocks > 1:
        blocks = -(-blocks // FAN)
        total += blocks
    return total


def _empty(place: Slots) -> tuple[SpaceArrays, SpaceLocations]:
    """No leaves, and a root without entries."""
    root = np.tile(np.array([_NO_ENTRY], np.int64), FAN)
    leaves = np.empty((0, 2, LEAF), np.int64), np.empty((0, LEAF), np.int32)
    locations = SpaceLocations(place, np.empty(0, np.int64), np.full(1, -1, np.int64))
    scratch = np.empty(STACK, np.int64), np.empty((6, NEAR + LEAF), np.int64), np.zeros(REGION, np.int64)
    return SpaceArrays(*leaves, root, *scratch), locations
