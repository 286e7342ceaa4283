"""The stabbing-set index: groups of ranges that share a point, and a structure for each group.

All ranges of a group hold its point p. So a range that holds any value at all of a set holds the nearest
one on the left of p, q1, or the nearest on the right, q2: to ask a group, two numbers are enough.

        |-------p--|              low <= q1: holds it
           |----p-------|         high >= q2: holds it
              |-p--|              neither
         q1            q2

Each member has a second range over its own attribute (a rectangle, then), which must hold a given value.
A group keeps its members three times: by low end and by high end, for the case that few reach q1 or q2
(the two fronts are scanned), and in slabs by own range, for the case that most do (few hold the own value).
The lengths of the fronts decide, after two binary searches. Small groups are scanned.

Cost per group: O(log) + the shorter of both scans; adding or removing: O(1) amortised times the log of a
sort, since a group is sorted anew when its tail exceeds an eighth or its gaps a quarter.

>>> index = GroupIndex()
>>> ranges = Ranges(*np.array([[1, 3, 4], [6, 7, 5], [0, 0, 50], [9, 99, 60]]))  # low, high; own low, high
>>> index.load(np.array([0, 1, 2]), ranges, np.zeros(3, np.int32), np.array([5]))
>>> index.find(0, 55, 3, 7).tolist()  # who reaches 3 or 7, and holds 55 in the own range?
[1]

T07, sections 4.2.1 and 4.3. There a group of rectangles is an R-tree, a group of bands two sorted lists.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.model.columns import longer
from tocsin.stab._kernels.groups import (
    ACTIVE,
    AT,
    COUNT,
    END,
    GAPS,
    PACKED,
    ROOM,
    SLAB,
    UNIT,
    GroupArrays,
    Members,
    add_members,
    find_in_group,
    lay_out,
    remove_members,
)
from tocsin.stab.packed import Codes, ascends

__all__ = ["GroupIndex", "Ranges"]


class Ranges(NamedTuple):
    """Closed ranges of some queries; the extreme int64 are open ends."""

    low: Codes
    high: Codes
    own_low: Codes
    own_high: Codes

    def take(self, which: NDArray[Any]) -> Ranges:
        return Ranges(*(part[which] for part in self))


class GroupIndex:
    """Members in groups; `arrays` is what kernels see, another tuple after a change."""

    def __init__(self, *, own: bool = True) -> None:
        self._own = own
        self.arrays = _arrays(0, 8, 0, own)

    # -- groups --

    def place(self, groups: ArrayLike, points: ArrayLike) -> None:
        """Groups get their points; members that stand in one of them must hold its new point."""
        which = np.atleast_1d(np.asarray(groups, np.int64))
        top = int(which.max()) + 1 if len(which) else 0
        if top > len(self.arrays.point):
            length = max(top, 2 * len(self.arrays.point))
            self.arrays = self.arrays._replace(
                of=longer(self.arrays.of, length),
                point=longer(self.arrays.point, length),
                active=longer(self.arrays.active, length),
                seat=longer(self.arrays.seat, length, -1),
            )
        self.arrays.point[which] = points

    @property
    def active(self) -> Codes:
        """The groups that have members."""
        return self.arrays.active[: self.arrays.meta[ACTIVE]]

    def sizes(self) -> Codes:
        """Members of each active group."""
        of = self.arrays.of[self.active]
        return of[:, COUNT] - of[:, GAPS]

    def group_of(self, slots: Codes) -> NDArray[np.int32]:
        return self.arrays.where[slots, 0]

    def slots(self) -> Codes:
        """Of all members, ascending."""
        return np.flatnonzero(self.arrays.where[:, 0] >= 0)

    def ranges_in(self, group: int) -> Ranges:
        """Of the members of an active group."""
        at, count = (int(self.arrays.of[group, field]) for field in (AT, COUNT))
        there = self.arrays.by_low.slot[at : at + count] >= 0
        return Ranges(*(part[at : at + count][there] for part in self.arrays.by_low[:4]))

    def __len__(self) -> int:
        return int(self.sizes().sum())

    # -- members --

    def load(self, slots: Codes, ranges: Ranges, group: NDArray[np.int32], points: Codes) -> None:
        """Forget all, and take these: the n-th in group `group[n]`, whose point is `points[group[n]]`."""
        sizes = np.bincount(group, minlength=len(points))
        rooms = ((sizes + sizes // 4) // UNIT + 1) * UNIT
        self.arrays = _arrays(int(rooms.sum()), len(points), 0, self._own)
        self.arrays.point[:] = points
        self._know(slots)
        lay_out(self.arrays, group, _members(slots, ranges), np.argsort(group, kind="stable"), sizes)

    def add(self, slots: Codes, ranges: Ranges, group: NDArray[np.int32]) -> None:
        """Members more, the n-th in group `group[n]`, which has its place."""
        self._know(slots)
        members, done = _members(slots, ranges), 0
        while (done := add_members(self.arrays, group, members, done)) < len(slots):
            self._make_room(int(group[done]))

    def remove(self, slots: Codes) -> None:
        """Members less; a group without members closes."""
        remove_members(self.arrays, np.asarray(slots, np.int64))

    def find(self, group: int, own: int, q1: int | None, q2: int | None) -> Codes:
        """Members that reach q1 or q2 and hold `own` in their own range."""
        out = np.empty(len(self) + 1, np.int64)
        near = (q1 is not None, np.int64(q1 or 0), q2 is not None, np.int64(q2 or 0))
        return out[: find_in_group(self.arrays, group, own, near, out, 0)]

    def _know(self, slots: Codes) -> None:
        """By-slot arrays long enough."""
        top = int(slots.max()) + 1 if len(slots) else 0
        if top > len(self.arrays.where):
            where = np.full((max(top, len(self.arrays.where) * 3 // 2), 4), -1, np.int32)
            where[: len(self.arrays.where)] = self.arrays.where
            self.arrays = self.arrays._replace(where=where)

    def _make_room(self, group: int) -> None:
        """Pools twice as long, or the same packed, if gaps are most of them."""
        old = self.arrays
        wanted = 2 * (int(old.of[group, ROOM]) + UNIT)
        used = int(old.of[self.active, ROOM].sum())
        if used * 2 < old.meta[END]:
            fresh = _arrays(2 * used + wanted, 0, 0, self._own)
            end = 0
            for g in self.active.tolist():
                at, room = int(old.of[g, AT]), int(old.of[g, ROOM])
                for target, source in zip(_pools(fresh), _pools(old), strict=True):
                    unit = UNIT if source is old.slab_first or source is old.slab_last else 1
                    if len(source):
                        target[end // unit : (end + room) // unit] = source[at // unit : (at + room) // unit]
                mine = old.where[:, 0] == g
                old.where[mine, 1:] += end - at
                old.of[g, AT] = end
                end += room
            old.meta[END] = end
        else:
            fresh = _arrays(2 * len(old.by_low.slot) + wanted, 0, 0, self._own)
            for target, source in zip(_pools(fresh), _pools(old), strict=True):
                target[: len(source)] = source
        names = ("by_low", "by_high", "by_own", "slab_first", "slab_last")
        self.arrays = old._replace(**{name: getattr(fresh, name) for name in names})

    @property
    def bytes(self) -> int:
        a = self.arrays
        pools = sum(part.nbytes for part in _pools(a))
        return pools + a.where.nbytes + sum(part.nbytes for part in (a.of, a.point, a.active, a.seat))

    def _check(self) -> None:
        """Members hold their group's point, are where they are said to be, and stand in order."""
        a = self.arrays
        active = self.active.tolist()
        assert len(set(active)) == len(active) and [int(a.seat[g]) for g in active] == list(
            range(len(active))
        )
        assert sorted(np.flatnonzero(a.seat >= 0).tolist()) == sorted(active)
        taken = []
        for g in active:
            at, packed, count, room, gaps = (int(a.of[g, f]) for f in (AT, PACKED, COUNT, ROOM, GAPS))
            taken.append((at, at + room))
            assert packed <= count <= room and at + room <= a.meta[END]
            low, high, slot = (a.by_low[f][at : at + count] for f in (0, 1, 4))
            assert np.all(low[slot >= 0] <= a.point[g]) and np.all(a.point[g] <= high[slot >= 0])
            assert (slot < 0).sum() == gaps and np.all(slot[packed:] >= 0)
            places = (1, 2, 3) if self._own and packed else (1, 2) if packed else (1,)
            for column, layout in zip(places, (a.by_low, a.by_high, a.by_own), strict=False):
                mine = layout.slot[at : at + (count if column == 1 else packed)]
                there = np.flatnonzero(mine >= 0)
                assert np.array_equal(a.where[mine[there], column], at + there)
                assert np.all(a.where[mine[there], 0] == g)
            assert ascends(a.by_low.low[at : at + packed])
            assert ascends(a.by_high.high[at : at + packed][::-1])
            width = int(a.of[g, SLAB])
            for slab, begin in enumerate(range(at, at + packed, width) if self._own and packed else ()):
                inside = slice(begin, min(begin + width, at + packed))
                assert ascends(a.by_own.own_high[inside][::-1])
                assert np.all(a.slab_first[at // UNIT + slab] <= a.by_own.own_low[inside])
                assert np.all(a.by_own.own_low[inside] <= a.slab_last[at // UNIT + slab])
        taken.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(taken)), "rooms overlap"


def _members(slots: Codes, ranges: Ranges) -> Members:
    ends = [np.ascontiguousarray(part, np.int64) for part in ranges]
    return Members._make([*ends, np.asarray(slots, np.int32)])


def _pools(groups: GroupArrays) -> list[NDArray[np.int64]]:
    return [*groups.by_low, *groups.by_high, *groups.by_own, groups.slab_first, groups.slab_last]  # type: ignore[list-item]


def _arrays(pool: int, groups: int, slots: int, own: bool) -> GroupArrays:
    def members(length: int) -> Members:
        return Members._make([*(np.empty(length, np.int64) for _ in range(4)), np.empty(length, np.int32)])

    of, where = np.zeros((groups, 6), np.int64), np.full((slots, 4), -1, np.int32)
    by_group = [np.full(groups, fill, np.int64) for fill in (0, 0, -1)]
    slabs = [np.zeros(pool // UNIT + 1 if own else 0, np.int64) for _ in range(2)]
    lists = [members(pool), members(pool), members(pool if own else 0)]
    return GroupArrays._make([*lists, *slabs, of, *by_group, where, np.zeros(2, np.int64)])
