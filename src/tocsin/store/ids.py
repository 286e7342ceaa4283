"""A hash map from int64 ids to slots in two flat arrays: 12 bytes an entry, at most half of them in use.

>>> ids = IdMap()
>>> ids.put(np.array([10, -3]), np.array([0, 1]))
>>> ids.find(np.array([-3, 10, 11])).tolist(), len(ids)
([1, 0, -1], 2)
>>> ids.put_one(7, 2)
>>> ids.find_one(7), ids.find(np.array([7])).tolist()
(2, [2])
>>> ids.remove(np.array([10, 7]))
>>> ids.find(np.array([10])).tolist(), len(ids)
([-1], 1)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index
from tocsin.store._kernels import FREE, find_ids, put_ids, remove_ids

__all__ = ["IdMap"]

_MOST_RECENT = 4096


class IdMap:
    """Open addressing; a removed id leaves a mark until the table is rebuilt.

    Ids that are put one at a time wait in a dict until they are many, or several are looked up.
    """

    def __init__(self) -> None:
        self._recent: dict[int, int] = {}
        self._key = np.zeros(64, np.int64)
        self._value = np.full(64, FREE, np.int32)
        self._count = 0
        self._used = 0  # entries in use, now or before

    def __len__(self) -> int:
        return self._count + len(self._recent)

    def find(self, ids: Index) -> NDArray[np.int32]:
        """The slot of each id; -1 if it is absent. O(1) each."""
        self._put_recent()
        if not self._count:
            return np.full(len(ids), -1, np.int32)
        return find_ids(self._key, self._value, np.asarray(ids, np.int64))

    def find_one(self, id: int) -> int:
        """The slot of one id; -1 if it is absent."""
        slot = self._recent.get(id)
        if slot is None:
            slot = int(find_ids(self._key, self._value, np.array([id], np.int64))[0])
        return slot

    def put_one(self, id: int, slot: int) -> None:
        """Add one id that is not in the map."""
        self._recent[id] = slot
        if len(self._recent) >= _MOST_RECENT:
            self._put_recent()

    def _put_recent(self) -> None:
        if self._recent:
            recent, self._recent = self._recent, {}
            self.put(np.array([*recent], np.int64), np.array([*recent.values()], np.int32))

    def put(self, ids: Index, slots: Index) -> None:
        """Add ids that are not in the map."""
        if 2 * (self._used + len(ids)) > len(self._key):
            self._rebuild(self._count + len(ids))
        self._used += put_ids(self._key, self._value, np.asarray(ids, np.int64), np.asarray(slots, np.int32))
        self._count += len(ids)

    def remove(self, ids: Index) -> None:
        """Remove ids that are in the map."""
        self._put_recent()
        remove_ids(self._key, self._value, np.asarray(ids, np.int64))
        self._count -= len(ids)

    def _rebuild(self, wanted: int) -> None:
        there = self._value >= 0
        keys, values = self._key[there], self._value[there]
        size = 1 << max(6, (3 * wanted).bit_length())
        self._key, self._value = np.zeros(size, np.int64), np.full(size, FREE, np.int32)
        self._used = put_ids(self._key, self._value, keys, values)

    def _check(self) -> None:
        self._put_recent()
        assert (self._value >= 0).sum() == self._count <= self._used <= len(self._key) // 2
