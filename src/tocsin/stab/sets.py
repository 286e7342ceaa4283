"""Stabbing-set indexes that follow a dynamic partition: members move when their group changes.

    insert ─► partition ─ moves ─► out of the groups before, into the groups after
                                   (all anew, if most have moved)

`StabbingSets` keeps all members in groups. `HotSets` keeps those of hot groups, and tells which ones are
scattered, for the caller to keep in some other way.

A group's point must be held by all of its members, no more. So a point stays while it can: it is chosen
anew, from the members, when one comes that does not hold it.

>>> ranges = Ranges(*np.array([[1, 3, 9], [6, 7, 11], [0, 0, 0], [9, 9, 9]]))
>>> sets = StabbingSets()
>>> sets.add(np.array([0, 1, 2]), ranges)
>>> sets.index.sizes().tolist()
[2, 1]
>>> hot = HotSets(HotspotConfig(alpha=0.5))
>>> hot.add(np.array([0, 1, 2]), ranges)
Scattered(gone=array([], dtype=int64), fresh=array([2]))
>>> hot.index.sizes().tolist()
[2]

T07, sections 4.2.1 to 4.2.3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import longer
from tocsin.stab.base import DynamicPartition, Moves
from tocsin.stab.groups import GroupIndex, Ranges
from tocsin.stab.hotspots import HotspotConfig, Hotspots
from tocsin.stab.packed import Codes
from tocsin.stab.refined import RefinedPartition

__all__ = ["HotSets", "Scattered", "StabbingSets"]

_MIN, _MAX = -(2**63), 2**63 - 1


class Scattered(NamedTuple):
    """Slots that are no longer scattered, or gone; and slots that are from now on."""

    gone: Codes
    fresh: Codes


class _Following:
    """Ranges by slot, and those in groups."""

    def __init__(self, partition: DynamicPartition, own: bool) -> None:
        self.partition = partition
        self.index = GroupIndex(own=own)
        self._ranges = Ranges(*(np.empty(0, np.int64) for _ in range(4)))

    def _know(self, slots: Codes, ranges: Ranges) -> None:
        top = int(slots.max(initial=-1)) + 1
        if top > (length := len(self._ranges.low)):
            self._ranges = Ranges(*(longer(part, max(top, 2 * length)) for part in self._ranges))
        for target, source in zip(self._ranges, ranges, strict=True):
            target[slots] = source

    def _follow(self, old: Codes, coming: Codes, group: NDArray[np.int32]) -> None:
        """Out with the old, in with those that come (an old one may come again, to another group)."""
        if 2 * len(coming) > len(self.index):
            kept = self.index.slots()
            kept = kept[~np.isin(kept, old)] if len(old) else kept
            group = np.concatenate([self.index.group_of(kept), group])
            slots = np.concatenate([kept, coming])
            ranges = self._ranges.take(slots)
            self.index.load(slots, ranges, group, _points(ranges, group))
            return
        self.index.remove(old)
        if len(coming):
            ranges = self._ranges.take(coming)
            _keep_points(self.index, ranges, group)
            self.index.add(coming, ranges, group)

    @property
    def bytes(self) -> int:
        """Without what the partition itself takes."""
        return self.index.bytes + sum(part.nbytes for part in self._ranges)


class StabbingSets(_Following):
    """Ranges under slots in groups that share a point; `index.arrays` is what kernels see."""

    def __init__(self, partition: DynamicPartition | None = None, *, own: bool = True) -> None:
        super().__init__(partition or RefinedPartition(), own)

    def add(self, slots: Codes, ranges: Ranges) -> None:
        """Take members in; a slot must be free."""
        self._know(slots, ranges)
        self._move(self.partition.insert(slots, ranges.low, ranges.high))

    def remove(self, slots: Codes) -> None:
        """Let members go; a slot must be in use."""
        self._move(self.partition.remove(slots))

    def _move(self, moves: Moves) -> None:
        stays = moves.after >= 0
        old = moves.id[moves.before >= 0].astype(np.int64)
        self._follow(old, moves.id[stays].astype(np.int64), moves.after[stays])

    def _check(self) -> None:
        """The groups are those of the partition."""
        self.index._check()
        there = self.index.slots()
        assert np.array_equal(self.index.group_of(there), self.partition.group_of(there))


class HotSets(_Following):
    """The hot groups; `add` and `remove` tell who is scattered from now on and who is not any more."""

    partition: Hotspots

    def __init__(self, config: HotspotConfig | None = None, *, own: bool = True) -> None:
        super().__init__(Hotspots(config), own)

    def add(self, slots: Codes, ranges: Ranges) -> Scattered:
        """Take members in; a slot must be free."""
        self._know(slots, ranges)
        return self._move(self.partition.insert(slots, ranges.low, ranges.high))

    def remove(self, slots: Codes) -> Scattered:
        """Let members go; a slot must be in use."""
        return self._move(self.partition.remove(slots))

    def ranges_of(self, slots: Codes) -> Ranges:
        return self._ranges.take(slots)

    def _move(self, moves: Moves) -> Scattered:
        was, is_hot = (moves.before >= 0) & moves.was_hot, (moves.after >= 0) & moves.is_hot
        was_cold, is_cold = (moves.before >= 0) & ~moves.was_hot, (moves.after >= 0) & ~moves.is_hot
        ids = moves.id.astype(np.int64)
        moved = is_hot & ~(was & (moves.before == moves.after))
        self._follow(ids[was & (moved | ~is_hot)], ids[moved], moves.after[moved])
        return Scattered(ids[was_cold & ~is_cold], ids[is_cold & ~was_cold])

    def _check(self) -> None:
        """The groups are the hot ones of the partition."""
        self.index._check()
        there = self.index.slots()
        assert np.array_equal(self.index.group_of(there), self.partition.group_of(there))
        assert np.all(self.partition.is_hot(there))
        assert len(there) == int(self.partition.hot_sizes().sum())


def _points(ranges: Ranges, group: NDArray[np.int32]) -> Codes:
    """By group a value that all of its ranges hold."""
    count = int(group.max()) + 1 if len(group) else 0
    left, right = np.full(count, _MIN, np.int64), np.full(count, _MAX, np.int64)
    np.maximum.at(left, group, ranges.low)
    np.minimum.at(right, group, ranges.high)
    return _middle(left, right)


def _middle(left: Codes, right: Codes) -> Codes:
    """A value of each left..right, and no open end, so that one may add to it."""
    both = left // 2 + right // 2
    out = np.where(right == _MAX, left, np.where(left == _MIN, right, both))
    out = np.where((left == _MIN) & (right == _MAX), 0, out)
    return np.clip(out, left, right)


def _keep_points(index: GroupIndex, ranges: Ranges, group: NDArray[np.int32]) -> None:
    """Choose points for groups that are new or whose point is not held by a member that comes."""
    if (last := int(group.max())) >= len(index.arrays.point):
        index.place(last, 0)  # there is room for it now
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
