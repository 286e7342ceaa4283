"""Which subscriptions each broker has, as points.

>>> placement = BrokerPlacement(2)
>>> placement.add(np.array([7, 3]), np.array([[1, 4], [2, 9]]), np.array([0, 1]))
>>> placement.move(np.array([3]), 0)
>>> placement.members(2).start.tolist(), placement.members(2).slot.tolist()
([0, 2, 2], [3, 7])
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import UsageError
from tocsin.model.columns import Index, longer

__all__ = ["BrokerMembers", "BrokerPlacement"]


class BrokerMembers(NamedTuple):
    """The subscriptions of broker b: those from start[b] to start[b + 1], by slot."""

    start: Index
    slot: Index
    point: NDArray[np.int64]  # l and r of each plane


class BrokerPlacement:
    """Points and brokers by slot."""

    def __init__(self, dimensions: int) -> None:
        self.point = np.zeros((0, dimensions), np.int64)
        self.broker = np.zeros(0, np.int64)  # -1: the slot is free
        self._members: BrokerMembers | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def slots(self) -> Index:
        """The slots in use."""
        return np.flatnonzero(self.broker >= 0)

    def require_free(self, slots: Index) -> None:
        """Raise an error unless slots are different, none is negative and none is in use."""
        if len(np.unique(slots)) < len(slots) or np.any(np.asarray(slots) < 0):
            raise UsageError("slots that are negative, or named twice", hint="different numbers from 0 on")
        known = slots[slots < len(self.broker)]
        if np.any(self.broker[known] >= 0):
            slot = int(known[self.broker[known] >= 0][0])
            raise UsageError(f"slot {slot} has a subscription already", hint="unsubscribe it first")

    def require_taken(self, slots: Index) -> None:
        """Raise an error unless slots are different and all are in use."""
        bad = (slots < 0) | (slots >= len(self.broker))
        bad[~bad] = self.broker[slots[~bad]] < 0
        if np.any(bad) or len(np.unique(slots)) < len(slots):
            raise UsageError(
                "a slot without a subscription, or named twice", hint="slots that were subscribed"
            )

    def add(self, slots: Index, points: NDArray[np.int64], brokers: Index) -> None:
        """Place subscriptions under free slots."""
        most = int(slots.max(initial=-1)) + 1
        if most > len(self.broker):
            size = max(most, 2 * len(self.broker))
            self.point, self.broker = longer(self.point, size), longer(self.broker, size, -1)
        self.point[slots], self.broker[slots] = points, brokers
        self._count += len(slots)
        self._members = None

    def remove(self, slots: Index) -> None:
        """Free slots."""
        self.broker[slots] = -1
        self._count -= len(slots)
        self._members = None

    def move(self, slots: Index, broker: int) -> None:
        """Give subscriptions to another broker."""
        self.broker[slots] = broker
        self._members = None

    def of(self, broker: int) -> Index:
        """The slots of one broker. O(n)."""
        return np.flatnonzero(self.broker == broker)

    def members(self, brokers: int) -> BrokerMembers:
        """The subscriptions by broker, for brokers 0 to `brokers` - 1."""
        if self._members is None or len(self._members.start) != brokers + 1:
            slots = self.slots()
            order = slots[np.argsort(self.broker[slots], kind="stable")]
            start = np.searchsorted(self.broker[order], np.arange(brokers + 1))
            self._members = BrokerMembers(start, order, np.ascontiguousarray(self.point[order]))
        return self._members

    def _check(self) -> None:
        assert len(self.slots()) == self._count
        if self._members is not None:
            assert np.array_equal(np.sort(self._members.slot), self.slots())
