"""How often each subscription has fired, when last, and what it cost: three numbers a subscription.

The measured time of a command is divided among the deltas that it gave rise to: what a subscription has cost
is the sum of its deltas' parts.

>>> activity = Activity()
>>> activity.count(np.array([7, 7, 9]), at=100, nanoseconds=900)
>>> activity.of(7), activity.of(8)
((2, 100, 600), (0, 0, 0))
>>> Activity.decode(activity.encode()).of(9)
(1, 100, 300)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
import numpy as np

from tocsin.model.columns import Index, longer
from tocsin.store.ids import IdMap

__all__ = ["Activity"]

_FEW = 16


class Activity:
    """Counts of deltas, the time of the last one (microseconds since 1970), and nanoseconds spent, by id."""

    def __init__(self) -> None:
        self._places = IdMap()
        self._ids: Index = np.zeros(64, np.int64)
        self._counts: Index = np.zeros(64, np.int64)
        self._last: Index = np.zeros(64, np.int64)
        self._spent: Index = np.zeros(64, np.int64)
        self._used = 0

    def count(self, ids: Index, at: int, nanoseconds: int = 0) -> None:
        """These have fired, once for each time they occur, by a command that took so long."""
        each = nanoseconds // max(1, len(ids))
        if len(ids) <= _FEW:
            for id in ids.tolist():
                place = self._places.find_one(id)
                if place < 0:
                    place = int(self._new(np.array([id], np.int64))[0])
                self._counts[place] += 1
                self._last[place] = at
                self._spent[place] += each
            return
        unique, counts = np.unique(ids, return_counts=True)
        places = self._places.find(unique)
        if len(fresh := np.flatnonzero(places < 0)):
            places[fresh] = self._new(unique[fresh])
        self._counts[places] += counts
        self._last[places] = at
        self._spent[places] += each * counts

    def of(self, id: int) -> tuple[int, int, int]:
        """The count, the last time and the cost of one."""
        place = self._places.find_one(id)
        if place < 0:
            return 0, 0, 0
        return int(self._counts[place]), int(self._last[place]), int(self._spent[place])

    def top(self, by: Literal["deltas", "last_fired", "cost"], known: Callable[[int], bool]) -> Iterator[int]:
        """Ids that are known and have fired, the greatest first; they are looked up as they are read."""
        column = {"deltas": self._counts, "last_fired": self._last, "cost": self._spent}[by][: self._used]
        order = np.argsort(column, kind="stable")[::-1]
        return filter(known, map(int, self._ids[order]))

    def encode(self) -> bytes:
        """As a snapshot stores it."""
        columns = (self._ids, self._counts, self._last, self._spent)
        return msgspec.msgpack.encode([column[: self._used].tobytes() for column in columns])

    @classmethod
    def decode(cls, data: bytes) -> Activity:
        """What a snapshot stored."""
        made = cls()
        ids, counts, last, spent = (
            np.frombuffer(c, np.int64) for c in msgspec.msgpack.decode(data, type=list[bytes])
        )
        if len(ids):
            places = made._new(ids)
            made._counts[places], made._last[places], made._spent[places] = counts, last, spent
        return made

    def _new(self, ids: Index) -> Index:
        """Places of ids that are not known yet."""
        places = np.arange(self._used, self._used + len(ids))
        self._used += len(ids)
        if self._used > len(self._ids):
            for name in ("_ids", "_counts", "_last", "_spent"):
                setattr(self, name, longer(getattr(self, name), 2 * self._used))
        self._ids[places] = ids
        self._places.put(ids, places)
        return places

    def _check(self) -> None:
        self._places._check()
        assert np.array_equal(self._places.find(self._ids[: self._used]), np.arange(self._used))
