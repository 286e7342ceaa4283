"""How often each subscription has fired, and when last: two numbers a subscription.

>>> activity = Activity()
>>> activity.count(np.array([7, 7, 9]), at=100)
>>> activity.of(7), activity.of(8)
((2, 100), (0, 0))
>>> Activity.decode(activity.encode()).of(9)
(1, 100)
"""

from __future__ import annotations

import msgspec
import numpy as np

from tocsin.model.columns import Index, longer
from tocsin.store.ids import IdMap

__all__ = ["Activity"]

_FEW = 16


class Activity:
    """Counts of deltas and the time of the last one (microseconds since 1970), by id."""

    def __init__(self) -> None:
        self._places = IdMap()
        self._ids: Index = np.zeros(64, np.int64)
        self._counts: Index = np.zeros(64, np.int64)
        self._last: Index = np.zeros(64, np.int64)
        self._used = 0

    def count(self, ids: Index, at: int) -> None:
        """These have fired, once for each time they occur."""
        if len(ids) <= _FEW:
            for id in ids.tolist():
                place = self._places.find_one(id)
                if place < 0:
                    place = int(self._new(np.array([id], np.int64))[0])
                self._counts[place] += 1
                self._last[place] = at
            return
        unique, counts = np.unique(ids, return_counts=True)
        places = self._places.find(unique)
        if len(fresh := np.flatnonzero(places < 0)):
            places[fresh] = self._new(unique[fresh])
        self._counts[places] += counts
        self._last[places] = at

    def of(self, id: int) -> tuple[int, int]:
        """The count and the last time of one."""
        place = self._places.find_one(id)
        return (0, 0) if place < 0 else (int(self._counts[place]), int(self._last[place]))

    def of_many(self, ids: Index) -> tuple[Index, Index]:
        """The counts and last times of several."""
        places = self._places.find(ids)
        there = places >= 0
        return np.where(there, self._counts[places], 0), np.where(there, self._last[places], 0)

    def encode(self) -> bytes:
        """As a snapshot stores it."""
        columns = (self._ids, self._counts, self._last)
        return msgspec.msgpack.encode([column[: self._used].tobytes() for column in columns])

    @classmethod
    def decode(cls, data: bytes) -> Activity:
        """What a snapshot stored."""
        made = cls()
        ids, counts, last = (
            np.frombuffer(c, np.int64) for c in msgspec.msgpack.decode(data, type=list[bytes])
        )
        if len(ids):
            places = made._new(ids)
            made._counts[places], made._last[places] = counts, last
        return made

    def _new(self, ids: Index) -> Index:
        """Places of ids that are not known yet."""
        places = np.arange(self._used, self._used + len(ids))
        self._used += len(ids)
        if self._used > len(self._ids):
            for name in ("_ids", "_counts", "_last"):
                setattr(self, name, longer(getattr(self, name), 2 * self._used))
        self._ids[places] = ids
        self._places.put(ids, places)
        return places

    def _check(self) -> None:
        self._places._check()
        assert np.array_equal(self._places.find(self._ids[: self._used]), np.arange(self._used))
