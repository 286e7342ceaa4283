"""The members of a family: subscriptions in dense places, each with its slot and its range.

Slots are those of the whole room, so a family that has few of them numbers its own: arrays by place stay
short. Who is concerned by something is told in the order of deltas, packed into one integer each:

    number of the change | rank of the member, by slot | kind of the change

Cost: O(1) to find a member by slot; ranks are worked out again when some came since, O(n) if they came in
order.

>>> members = Members()
>>> members.add(np.array([70, 30]), np.array([0, 5]), np.array([9, 20])).tolist()
[0, 1]
>>> packed = members.concerned([(LEAST, 6, 6, GREATEST)], np.array([4]), np.array([1]))
>>> change, rank, kind = unpack(packed)
>>> change.tolist(), members.slot[members.by_rank()[rank]].tolist(), kind.tolist()
([4, 4], [30, 70], [1, 1])
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.model.columns import Index, longer
from tocsin.rank._kernels.aggregates import KIND_BITS, RANK_BITS
from tocsin.rank._kernels.space import GREATEST, LEAST
from tocsin.rank.space import Space
from tocsin.store.ids import IdMap

__all__ = ["GREATEST", "LEAST", "Members", "unpack"]

_PAIRS = 1 << 25  # that may be found at once


def unpack(packed: Index) -> tuple[Index, Index, Index]:
    """Number of the change, rank of the member, kind."""
    rank = (packed >> KIND_BITS) & ((1 << RANK_BITS) - 1)
    return packed >> (RANK_BITS + KIND_BITS), rank, packed & ((1 << KIND_BITS) - 1)


class Members:
    """Slots and ranges by place; a place that is free has slot -1."""

    def __init__(self) -> None:
        self.slot: Index = np.full(16, -1, np.int64)
        self.low: Index = np.zeros(16, np.int64)
        self.high: Index = np.zeros(16, np.int64)
        self._ids = IdMap()  # slot -> place
        self._space = Space()
        self._free: Index = np.empty(0, np.int64)
        self._used = 0  # places ever taken
        self._ranks: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, slots: Index, low: Index, high: Index) -> Index:
        """Take members in; their places."""
        again = min(len(slots), len(self._free))
        fresh = len(slots) - again
        places = np.concatenate([self._free[:again], np.arange(self._used, self._used + fresh)])
        self._space.add(places, low, high)  # refuses ranges that are empty
        self._free, self._used = self._free[again:], self._used + fresh
        if self._used > len(self.slot):
            room = max(self._used, 2 * len(self.slot))
            self.slot = longer(self.slot, room, -1)
            self.low, self.high = longer(self.low, room), longer(self.high, room)
        self.slot[places], self.low[places], self.high[places] = slots, low, high
        self._ids.put(np.asarray(slots, np.int64), places)
        self._ranks = None
        return places

    def remove(self, slots: Index) -> Index:
        """Let members go; their places, which are free now."""
        places = self._ids.find(slots).astype(np.int64)
        assert np.all(places >= 0), "a slot is not in use"
        self._ids.remove(slots)
        self._space.remove(places)
        self.slot[places] = -1
        self._free = np.concatenate([self._free, places])
        self._ranks = None
        return places

    def rank(self, slots: Index) -> Index:
        """The ranks of members, in the order of their slots."""
        return self._ranked()[1][self._ids.find(slots)].astype(np.int64)

    def ranges(self, slots: Index) -> tuple[Index, Index]:
        """The ends of members' ranges."""
        places = self._ids.find(slots)
        return self.low[places], self.high[places]

    @property
    def places(self) -> Index:
        """Those taken."""
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
    def at_once(self) -> int:
        """How many rectangles to ask for at once, so that memory is bounded if all hold everybody."""
        return max(16, _PAIRS // max(1, len(self)))

    def concerned(self, rectangles: ArrayLike, change: Index, kind: Index) -> Index:
        """Who is in some rectangles, each of a change and a kind: packed, in order."""
        number, place = self._space.find(rectangles)
        packed = ((change << (RANK_BITS + KIND_BITS)) | kind)[number]
        packed |= self._ranked()[1][place].astype(np.int64) << KIND_BITS
        packed.sort()
        return packed

    @property
    def bytes(self) -> int:
        return self._space.bytes + 3 * self.slot.nbytes

    def _check(self) -> None:
        places = self.places
        assert len(places) == len(self) == len(self._space) and len(places) + len(self._free) == self._used
        assert np.array_equal(self._ids.find(self.slot[places]), places)
        assert np.all(self.slot[self._free] == -1) and np.all(self.slot[self._used :] == -1)
        self._ids._check()
        self._space._check()
