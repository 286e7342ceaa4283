"""The stabbing-set index: groups of ranges that share a point, and a structure for each group.

All ranges of a group hold its point p. So a range that holds any value at all of a set holds the nearest
one on the left of p, q1, or the nearest on the right, q2: two numbers suffice to query a group.

        |-------p--|              low <= q1: holds it
           |----p-------|         high >= q2: holds it
              |-p--|              neither
         q1            q2

Each member has a second range over its own attribute (together: a rectangle), which must hold a given value.
A group stores its members three times: by low end and by high end, for the case that few reach q1 or q2 (both
prefixes are scanned), and in slabs by own range, for the case that most do (few hold the own value). Two
binary searches give the lengths of the prefixes, which decide. Small groups are scanned.

Cost per group: O(log) + the shorter of both scans; adding or removing: O(1) amortised times the log of a
sort, since a group is sorted again when its tail exceeds an eighth or its gaps a quarter.

>>> index = GroupIndex()
>>> ranges = Ranges(*np.array([[1, 3, 4], [6, 7, 5], [0, 0, 50], [9, 99, 60]]))  # low, high; own low, high
>>> index.load(np.array([0, 1, 2]), ranges, np.zeros(3, np.int32), np.array([5]))
>>> index.find(0, 55, 3, 7).tolist()  # members that reach 3 or 7 and hold 55 in their own range
[1]

`StabbingSets` and `HotSets` move members whenever a dynamic partition changes their group:

    insert ─► partition ─ moves ─► out of the groups before, into the groups after
                                   (rebuilt, if most members moved)

T07, sections 4.2.1 to 4.3. There a group of rectangles is an R-tree, a group of bands two sorted lists.
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
    CAPACITY,
    COUNT,
    END,
    GAPS,
    PACKED,
    SLAB,
    UNIT,
    GroupArrays,
    GroupMembers,
    add_members,
    find_in_group,
    lay_out,
    remove_members,
)
from tocsin.stab.dynamic import DynamicPartition, GroupMoves, RefinedPartition
from tocsin.stab.hotspots import HotspotConfig, Hotspots
from tocsin.stab.intervals import ascends
from tocsin.stab.partition import Codes

__all__ = ["GroupIndex", "HotSets", "Ranges", "Scattered", "StabbingSets"]


class Ranges(NamedTuple):
    """Closed ranges of some queries; the extreme int64 are open ends."""

    low: Codes
    high: Codes
    own_low: Codes
    own_high: Codes

    def take(self, which: NDArray[Any]) -> Ranges:
        return Ranges(*(part[which] for part in self))


class GroupIndex:
    """Members in groups. Kernels read `arrays`, renewed by each change."""

    def __init__(self, *, own: bool = True) -> None:
        self._own = own
        self.arrays = _arrays(0, 8, 0, own)

    # -- groups --

    def place(self, groups: ArrayLike, points: ArrayLike) -> None:
        """Set the points of groups; their members must hold the new point."""
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
        """Groups with members."""
        return self.arrays.active[: self.arrays.meta[ACTIVE]]

    def sizes(self) -> Codes:
        """Members of each active group."""
        of = self.arrays.of[self.active]
        return of[:, COUNT] - of[:, GAPS]

    def group_of(self, slots: Codes) -> NDArray[np.int32]:
        return self.arrays.where[slots, 0]

    def slots(self) -> Codes:
        """Slots of all members, ascending."""
        return np.flatnonzero(self.arrays.where[:, 0] >= 0)

    def ranges_in(self, group: int) -> Ranges:
        """Ranges of the members of an active group."""
        at, count = (int(self.arrays.of[group, field]) for field in (AT, COUNT))
        there = self.arrays.by_low.slot[at : at + count] >= 0
        return Ranges(*(part[at : at + count][there] for part in self.arrays.by_low[:4]))

    def __len__(self) -> int:
        return int(self.sizes().sum())

    # -- members --

    def load(self, slots: Codes, ranges: Ranges, group: NDArray[np.int32], points: Codes) -> None:
        """Replace all members: the n-th joins group `group[n]`, whose point is `points[group[n]]`."""
        sizes = np.bincount(group, minlength=len(points))
        capacity = ((sizes + sizes // 4) // UNIT + 1) * UNIT
        self.arrays = _arrays(int(capacity.sum()), len(points), 0, self._own)
        self.arrays.point[:] = points
        self._reserve_slots(slots)
        lay_out(self.arrays, group, _members(slots, ranges), np.argsort(group, kind="stable"), sizes)

    def add(self, slots: Codes, ranges: Ranges, group: NDArray[np.int32]) -> None:
        """Add members, the n-th to group `group[n]`, which has a point."""
        self._reserve_slots(slots)
        members, done = _members(slots, ranges), 0
        while (done := add_members(self.arrays, group, members, done)) < len(slots):
            self._grow_pools(int(group[done]))

    def remove(self, slots: Codes) -> None:
        """Remove members; a group without members closes."""
        remove_members(self.arrays, np.asarray(slots, np.int64))

    def find(self, group: int, own: int, q1: int | None, q2: int | None) -> Codes:
        """Members that reach q1 or q2 and hold `own` in their own range."""
        out = np.empty(len(self) + 1, np.int64)
        near = (q1 is not None, np.int64(q1 or 0), q2 is not None, np.int64(q2 or 0))
        return out[: find_in_group(self.arrays, group, own, near, out, 0)]

    def _reserve_slots(self, slots: Codes) -> None:
        """Lengthen the arrays by slot."""
        top = int(slots.max()) + 1 if len(slots) else 0
        if top > len(self.arrays.where):
            where = np.full((max(top, len(self.arrays.where) * 3 // 2), 4), -1, np.int32)
            where[: len(self.arrays.where)] = self.arrays.where
            self.arrays = self.arrays._replace(where=where)

    def _grow_pools(self, group: int) -> None:
        """Double the pools, or compact them if most of them is unused."""
        old = self.arrays
        wanted = 2 * (int(old.of[group, CAPACITY]) + UNIT)
        used = int(old.of[self.active, CAPACITY].sum())
        if used * 2 < old.meta[END]:
            fresh = _arrays(2 * used + wanted, 0, 0, self._own)
            end = 0
            for g in self.active.tolist():
                at, capacity = int(old.of[g, AT]), int(old.of[g, CAPACITY])
                for target, source in zip(_pools(fresh), _pools(old), strict=True):
                    unit = UNIT if source is old.slab_first or source is old.slab_last else 1
                    if len(source):
                        target[end // unit : (end + capacity) // unit] = source[
                            at // unit : (at + capacity) // unit
                        ]
                mine = old.where[:, 0] == g
                old.where[mine, 1:] += end - at
                old.of[g, AT] = end
                end += capacity
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
            at, packed, count, capacity, gaps = (int(a.of[g, f]) for f in (AT, PACKED, COUNT, CAPACITY, GAPS))
            taken.append((at, at + capacity))
            assert packed <= count <= capacity and at + capacity <= a.meta[END]
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
        assert all(one[1] <= other[0] for one, other in pairwise(taken)), "groups overlap in the pools"


def _members(slots: Codes, ranges: Ranges) -> GroupMembers:
    ends = [np.ascontiguousarray(part, np.int64) for part in ranges]
    return GroupMembers._make([*ends, np.asarray(slots, np.int32)])


def _pools(groups: GroupArrays) -> list[NDArray[np.int64]]:
    return [*groups.by_low, *groups.by_high, *groups.by_own, groups.slab_first, groups.slab_last]  # type: ignore[list-item]


def _arrays(pool: int, groups: int, slots: int, own: bool) -> GroupArrays:
    def members(length: int) -> GroupMembers:
        return GroupMembers._make(
            [*(np.empty(length, np.int64) for _ in range(4)), np.empty(length, np.int32)]
        )

    of, where = np.zeros((groups, 6), np.int64), np.full((slots, 4), -1, np.int32)
    by_group = [np.full(groups, fill, np.int64) for fill in (0, 0, -1)]
    slabs = [np.zeros(pool // UNIT + 1 if own else 0, np.int64) for _ in range(2)]
    lists = [members(pool), members(pool), members(pool if own else 0)]
    return GroupArrays._make([*lists, *slabs, of, *by_group, where, np.zeros(2, np.int64)])


_MIN, _MAX = -(2**63), 2**63 - 1


class Scattered(NamedTuple):
    """Slots that stopped being scattered, and slots that became scattered."""

    gone: Codes
    fresh: Codes


class _GroupFollower:
    """Ranges by slot, and a group index that follows a partition.

    Every member must hold its group's point, no more. So a point stays while it can; `_adjust_points` chooses
    another one when a new member does not hold it.
    """

    def __init__(self, partition: DynamicPartition, own: bool) -> None:
        self.partition = partition
        self.index = GroupIndex(own=own)
        self._ranges = Ranges(*(np.empty(0, np.int64) for _ in range(4)))

    def _store_ranges(self, slots: Codes, ranges: Ranges) -> None:
        top = int(slots.max(initial=-1)) + 1
        if top > (length := len(self._ranges.low)):
            self._ranges = Ranges(*(longer(part, max(top, 2 * length)) for part in self._ranges))
        for target, source in zip(self._ranges, ranges, strict=True):
            target[slots] = source

    def _move_members(self, old: Codes, new: Codes, group: NDArray[np.int32]) -> None:
        """Remove `old` and add `new` members (a slot in both changes its group)."""
        if 2 * len(new) > len(self.index):
            kept = self.index.slots()
            kept = kept[~np.isin(kept, old)] if len(old) else kept
            group = np.concatenate([self.index.group_of(kept), group])
            slots = np.concatenate([kept, new])
            ranges = self._ranges.take(slots)
            self.index.load(slots, ranges, group, _points(ranges, group))
            return
        self.index.remove(old)
        if len(new):
            ranges = self._ranges.take(new)
            _adjust_points(self.index, ranges, group)
            self.index.add(new, ranges, group)

    @property
    def bytes(self) -> int:
        """Without the partition itself."""
        return self.index.bytes + sum(part.nbytes for part in self._ranges)


class StabbingSets(_GroupFollower):
    """Ranges under slots in groups that share a point; kernels read `index.arrays`.

    >>> sets = StabbingSets()
    >>> sets.add(np.array([0, 1, 2]), Ranges(*np.array([[1, 3, 9], [6, 7, 11], [0, 0, 0], [9, 9, 9]])))
    >>> sets.index.sizes().tolist()
    [2, 1]
    """

    def __init__(self, partition: DynamicPartition | None = None, *, own: bool = True) -> None:
        super().__init__(partition or RefinedPartition(), own)

    def add(self, slots: Codes, ranges: Ranges) -> None:
        """Add members; a slot must be free."""
        self._store_ranges(slots, ranges)
        self._move(self.partition.insert(slots, ranges.low, ranges.high))

    def remove(self, slots: Codes) -> None:
        """Remove members; a slot must be in use."""
        self._move(self.partition.remove(slots))

    def _move(self, moves: GroupMoves) -> None:
        stays = moves.after >= 0
        old = moves.id[moves.before >= 0].astype(np.int64)
        self._move_members(old, moves.id[stays].astype(np.int64), moves.after[stays])

    def _check(self) -> None:
        """The groups are those of the partition."""
        self.index._check()
        there = self.index.slots()
        assert np.array_equal(self.index.group_of(there), self.partition.group_of(there))


class HotSets(_GroupFollower):
    """The hot groups; `add` and `remove` return which members became scattered and which no longer are.

    >>> hot = HotSets(HotspotConfig(alpha=0.5))
    >>> hot.add(np.array([0, 1, 2]), Ranges(*np.array([[1, 3, 9], [6, 7, 11], [0, 0, 0], [9, 9, 9]])))
    Scattered(gone=array([], dtype=int64), fresh=array([2]))
    >>> hot.index.sizes().tolist()
    [2]
    """

    partition: Hotspots

    def __init__(self, config: HotspotConfig | None = None, *, own: bool = True) -> None:
        super().__init__(Hotspots(config), own)

    def add(self, slots: Codes, ranges: Ranges) -> Scattered:
        """Add members; a slot must be free."""
        self._store_ranges(slots, ranges)
        return self._move(self.partition.insert(slots, ranges.low, ranges.high))

    def remove(self, slots: Codes) -> Scattered:
        """Remove members; a slot must be in use."""
        return self._move(self.partition.remove(slots))

    def ranges_of(self, slots: Codes) -> Ranges:
        return self._ranges.take(slots)

    def _move(self, moves: GroupMoves) -> Scattered:
        was, is_hot = (moves.before >= 0) & moves.was_hot, (moves.after >= 0) & moves.is_hot
        was_cold, is_cold = (moves.before >= 0) & ~moves.was_hot, (moves.after >= 0) & ~moves.is_hot
        ids = moves.id.astype(np.int64)
        moved = is_hot & ~(was & (moves.before == moves.after))
        self._move_members(ids[was & (moved | ~is_hot)], ids[moved], moves.after[moved])
        return Scattered(ids[was_cold & ~is_cold], ids[is_cold & ~was_cold])

    def _check(self) -> None:
        """The groups are the hot ones of the partition."""
        self.index._check()
        there = self.index.slots()
        assert np.array_equal(self.index.group_of(there), self.partition.group_of(there))
        assert np.all(self.partition.is_hot(there))
        assert len(there) == int(self.partition.hot_sizes().sum())


def _points(ranges: Ranges, group: NDArray[np.int32]) -> Codes:
    """By group, a value that all of its ranges hold."""
    count = int(group.max()) + 1 if len(group) else 0
    left, right = np.full(count, _MIN, np.int64), np.full(count, _MAX, np.int64)
    np.maximum.at(left, group, ranges.low)
    np.minimum.at(right, group, ranges.high)
    return _middle(left, right)


def _middle(left: Codes, right: Codes) -> Codes:
    """A value of each left..right that is no open end, so that callers may add to it."""
    both = left // 2 + right // 2
    out = np.where(right == _MAX, left, np.where(left == _MIN, right, both))
    out = np.where((left == _MIN) & (right == _MAX), 0, out)
    return np.clip(out, left, right)


def _adjust_points(index: GroupIndex, ranges: Ranges, group: NDArray[np.int32]) -> None:
    """Choose points for groups that are new, or whose point a new member does not hold."""
    if (last := int(group.max())) >= len(index.arrays.point):
        index.place(last, 0)
    point, seat = index.arrays.point, index.arrays.seat
    wrong = (seat[group] < 0) | (point[group] < ranges.low) | (point[group] > ranges.high)
    for g in set(group[wrong].tolist()):
        mine = np.flatnonzero(group == g)
        left, right = int(ranges.low[mine].max()), int(ranges.high[mine].min())
        if seat[g] >= 0:
            there = index.ranges_in(g)
            left = max(left, int(there.low.max(initial=_MIN)))
            right = min(right, int(there.high.min(initial=_MAX)))
        index.place(g, _middle(np.array([left]), np.array([right])))
