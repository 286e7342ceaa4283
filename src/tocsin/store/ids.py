"""A hash map from int64 ids to slots in two flat arrays: 12 bytes an entry, at most half of them in use.

>>> ids = IdMap()
>>> ids.put(np.array([10, -3]), np.array([0, 1]))
>>> ids.find(np.array([-3, 10, 11])).tolist(), len(ids)
([1, 0, -1], 2)
>>> ids.remove(np.array([10]))
>>> ids.find(np.array([10])).tolist(), len(ids)
([-1], 1)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index
from tocsin.store._kernels import FREE, find_ids, put_ids, remove_ids

__all__ = ["IdMap"]


class IdMap:
    """Open addressing; a removed id leaves a mark until the table is rebuilt."""

    def __init__(self) -> None:
        self._key = np.zeros(64, np.int64)
        self._value = np.full(64, FREE, np.int32)
        self._count = 0
        self._used = 0  # entries in use, now or before

    def __len__(self) -> int:
        return self._count

    def find(self, ids: Index) -> NDArray[np.int32]:
        """The slot of each id; -1 if it is absent. O(1) each."""
        return find_ids(self._key, self._value, np.asarray(ids, np.int64))

    def put(self, ids: Index, slots: Index) -> None:
        """Add ids that are not in the map."""
        if 2 * (self._used + len(ids)) > len(self._key):
            self._rebuild(self._count + len(ids))
        self._used += put_ids(self._key, self._value, np.asarray(ids, np.int64), np.asarray(slots, np.int32))
        self._count += len(ids)

    def remove(self, ids: Index) -> None:
        """Remove ids that are in the map."""
        remove_ids(self._key, self._value, np.asarray(ids, np.int64))
        self._count -= len(ids)

    def _rebuild(self, wanted: int) -> None:
        there = self._value >= 0
        keys, values = self._key[there], self._value[there]
        size = 1 << max(6, (3 * wanted).bit_length())
        self._key, self._value = np.zeros(size, np.int64), np.full(size, FREE, np.int32)
        self._used = put_ids(self._key, self._value, keys, values)

    def _check(self) -> None:
        assert (self._value >= 0).sum() == self._count <= self._used <= len(self._key) // 2
