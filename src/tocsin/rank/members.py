"""The members of a family: subscriptions at dense places, each with its slot and its range or ranges.

Slots number the subscriptions of all rooms. A family with few of them keeps its own dense numbering, the
places, so that its arrays stay short. `affected` reports the members that changes affect, in the order of
deltas, each pair packed into one integer:

    number of the change | rank of the member, by slot | kind of the change

Cost: O(1) to find a member by slot; ranks are computed again after members were added or removed, O(n) if
their slots ascend.

>>> members = RangeMembers()
>>> members.add(np.array([70, 30]), np.array([0, 5]), np.array([9, 20])).tolist()
[0, 1]
>>> packed = members.affected([(LEAST, 6, 6, GREATEST)], np.array([4]), np.array([1]))
>>> change, rank, kind = unpack(packed)
>>> change.tolist(), members.slot[members.by_rank()[rank]].tolist(), kind.tolist()
([4, 4], [30, 70], [1, 1])
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.model.columns import Index, longer
from tocsin.rank._kernels.aggregates import KIND_BITS, RANK_BITS
from tocsin.rank._kernels.space import GREATEST, LEAST
from tocsin.rank.forest import PointForest
from tocsin.rank.space import SubscriptionSpace
from tocsin.store.ids import IdMap

__all__ = [
    "GREATEST", "LEAST", "BoxMembers", "Members", "RangeMembers", "by_seq", "parts_of", "unpack",
]  # fmt: skip

_MAX_PAIRS = 1 << 25  # (rectangle, member) that one lookup may find


def unpack(packed: Index) -> tuple[Index, Index, Index]:
    """Number of the change, rank of the member, kind of the change."""
    rank = (packed >> KIND_BITS) & ((1 << RANK_BITS) - 1)
    return packed >> (RANK_BITS + KIND_BITS), rank, packed & ((1 << KIND_BITS) - 1)


def by_seq(packed: Index, seq: Index) -> Index:
    """The order of packed (change, rank, kind) by the seqs of changes, then by rank; else as they are.

    >>> packed = np.array([0 << 34 | 8 << 2, 1 << 34 | 5 << 2, 1 << 34 | 8 << 2, 2 << 34 | 5 << 2])
    >>> by_seq(packed, np.array([7, 7, 9])).tolist()
    [1, 0, 2, 3]
    """
    if not len(packed):
        return packed
    change, rank, _ = unpack(packed)
    group = np.cumsum(np.diff(seq, prepend=seq[0]) > 0)
    return np.argsort(group[change] << RANK_BITS | rank, kind="stable")


def parts_of(seq: Index, size: int) -> Iterator[tuple[slice, bool]]:
    """Changes in parts of about `size`, cut where the seq changes; and whether one had to be cut elsewhere.

    >>> [(part.start, part.stop, cut) for part, cut in parts_of(np.array([1, 1, 2, 2, 2, 2, 3]), 3)]
    [(0, 2, False), (2, 5, False), (5, 7, True)]
    """
    begin = 0
    while begin < len(seq):
        end = min(begin + size, len(seq))
        if end < len(seq):
            first = int(np.searchsorted(seq, seq[end]))
            end = first if first > begin else end
        yield slice(begin, end), bool(begin and seq[begin] == seq[begin - 1])
        begin = end


class Members:
    """Slots and ends of ranges by place; a free place has slot -1. Subclasses index the ranges.

    `ranges` is empty for members with one range each, else how many they have.
    """

    def __init__(self, ranges: tuple[int, ...] = ()) -> None:
        self.slot: Index = np.full(16, -1, np.int64)
        self.low: Index = np.zeros((16, *ranges), np.int64)
        self.high: Index = np.zeros((16, *ranges), np.int64)
        self._ids = IdMap()  # slot -> place
        self._free: Index = np.empty(0, np.int64)
        self._used = 0  # places ever used
        self._ranks: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def _enter(self, places: Index, low: Index, high: Index) -> None:
        """Index the ranges of new members."""

    def _leave(self, places: Index) -> None:
        """Remove the ranges of members."""

    def add(self, slots: Index, low: Index, high: Index) -> Index:
        """Register members; return their places."""
        reused = min(len(slots), len(self._free))
        fresh = len(slots) - reused
        places = np.concatenate([self._free[:reused], np.arange(self._used, self._used + fresh)])
        self._enter(places, low, high)  # rejects empty ranges
        self._free, self._used = self._free[reused:], self._used + fresh
        if self._used > len(self.slot):
            length = max(self._used, 2 * len(self.slot))
            self.slot = longer(self.slot, length, -1)
            self.low, self.high = longer(self.low, length), longer(self.high, length)
        self.slot[places], self.low[places], self.high[places] = slots, low, high
        self._ids.put(np.asarray(slots, np.int64), places)
        self._ranks = None
        return places

    def remove(self, slots: Index) -> Index:
        """Unregister members; return their places, which are free now."""
        places = self.find(slots)
        assert np.all(places >= 0), "a slot is not in use"
        self._ids.remove(slots)
        self._leave(places)
        self.slot[places] = -1
        self._free = np.concatenate([self._free, places])
        self._ranks = None
        return places

    def find(self, slots: Index) -> Index:
        """The places of members."""
        return self._ids.find(slots).astype(np.int64)

    def rank(self, slots: Index) -> Index:
        """The ranks of members, in the order of their slots."""
        return self._ranked()[1][self._ids.find(slots)].astype(np.int64)

    def ranges(self, slots: Index) -> tuple[Index, Index]:
        """The ends of members' ranges."""
        places = self._ids.find(slots)
        return self.low[places], self.high[places]

    @property
    def places(self) -> Index:
        """The places in use."""
        return np.flatnonzero(self.slot >= 0)

    def by_rank(self) -> NDArray[np.int32]:
        """Places in the order of their slots; free ones first."""
        return self._ranked()[0]

    def _ranked(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        if self._ranks is None:
            by_rank = np.argsort(self.slot[: self._used], kind="stable").astype(np.int32)
            rank = np.empty(self._used, np.int32)
            rank[by_rank] = np.arange(self._used, dtype=np.int32)
            self._ranks = by_rank, rank
        return self._ranks

    @property
    def batch_size(self) -> int:
        """Changes to look up at a time, so that memory stays bounded even if each concerns all members."""
        return max(16, _MAX_PAIRS // max(1, len(self)))

    def _check(self) -> None:
        """Slots and places agree; every place is either in use or free."""
        places = self.places
        assert len(places) == len(self) and len(places) + len(self._free) == self._used
        assert np.array_equal(self._ids.find(self.slot[places]), places)
        assert np.all(self.slot[self._free] == -1) and np.all(self.slot[self._used :] == -1)
        self._ids._check()


class RangeMembers(Members):
    """Members with one range, in the space of subscriptions."""

    def __init__(self) -> None:
        super().__init__()
        self._space = SubscriptionSpace()

    def _enter(self, places: Index, low: Index, high: Index) -> None:
        self._space.add(places, low, high)

    def _leave(self, places: Index) -> None:
        self._space.remove(places)

    def affected(self, rectangles: ArrayLike, change: Index, kind: Index) -> Index:
        """Members in rectangles, each of a change and a kind: packed and sorted."""
        number, place = self._space.find(rectangles)
        packed = ((change << (RANK_BITS + KIND_BITS)) | kind)[number]
        packed |= self._ranked()[1][place].astype(np.int64) << KIND_BITS
        packed.sort()
        return packed

    @property
    def bytes(self) -> int:
        return self._space.bytes + 3 * self.slot.nbytes

    def _check(self) -> None:
        """The space has the ranges of all members."""
        super()._check()
        assert len(self._space) == len(self)
        self._space._check()


class BoxMembers(Members):
    """Members with several ranges, each a box: a point of all lower and all upper ends in a forest."""

    def __init__(self, ranges: int) -> None:
        super().__init__((ranges,))
        self.forest = PointForest(2 * ranges)

    def _enter(self, places: Index, low: Index, high: Index) -> None:
        assert np.all(low <= high), "a range is empty"
        self.forest.add(places, np.concatenate([low, high], axis=1))

    def _leave(self, places: Index) -> None:
        self.forest.remove(places)

    def ranks(self) -> NDArray[np.int32]:
        """By place the rank of the member."""
        return self._ranked()[1]

    @property
    def bytes(self) -> int:
        return self.forest.bytes + self.slot.nbytes + 2 * self.low.nbytes

    def _check(self) -> None:
        """The forest has the boxes of all members."""
        super()._check()
        places = self.places
        assert np.array_equal(np.sort(self.forest.ids()), places)
        boxes = np.concatenate([self.low[places], self.high[places]], axis=1)
        assert np.array_equal(self.forest.points(places), boxes)
        self.forest._check()
