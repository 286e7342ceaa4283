"""Order per key: the seq of the last change applied to each key of a table, also to keys that were deleted.

A change is applied if its seq is above the last one of its own key. What other keys have received does not
matter, so two partitions of a topic may be far apart: nothing of the slower one is late.

    partition 0    A@7001  B@7002          applied first
    partition 1    C@12    D@13  C@14      10,000 changes behind: applied all the same
                   C@13                    late: C has 14 already; a dead letter

A key is a 64-bit hash of its values: two of a million keys share one with a probability of 1 in 37 million,
and then a change of one is late if it comes out of order with the other. An entry takes 16 bytes in the
state. A deleted key keeps its entry, so that an older insert that arrives later does not bring the row back;
when there are more deleted keys than rows (and than `FEW`), a snapshot drops those with the lowest seqs.

>>> order = KeyOrder()
>>> keys, seqs = np.array([5, 6, 5]), np.array([10, 12, 12])
>>> order.late(keys, seqs).tolist()  # the last seq of those that are late, -1 for the others
[-1, -1, -1]
>>> order.record(keys, seqs)
>>> order.late(np.array([5, 6, 7]), np.array([12, 13, 1])).tolist()
[12, -1, -1]
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tocsin.model.columns import Index, Rows, Vector, column_codes, longer
from tocsin.model.schema import Table, Type
from tocsin.model.texts import laid_out
from tocsin.predicate.codes import text_hashes
from tocsin.spark.sharding import mix
from tocsin.store.ids import IdMap

__all__ = ["KeyOrder", "key_hashes", "keys_of"]

FEW = 1 << 16  # deleted keys that are always kept


def key_hashes(table: Table, rows: Rows) -> Index:
    """A hash of the primary key of each row, the same in every process."""
    mixed = np.zeros(len(rows), np.uint64)
    for name in table.key:
        vector = rows.vectors(name)[0]
        is_text = vector.type is Type.STRING
        codes = text_hashes(*laid_out(vector.values)) if is_text else column_codes(vector)
        mixed = mix(mixed * np.uint64(0x9E3779B97F4A7C15) + codes.view(np.uint64))
    return mixed.view(np.int64)


def keys_of(table: Table, rows: pa.Table) -> Index:
    """The same of an Arrow table with the rows as the store returns them."""
    columns = [
        (field.name, Vector.from_arrow(field.type, rows[field.name].combine_chunks()))
        for field in table.fields
        if field.name in table.key
    ]
    return key_hashes(table, Rows(columns, rows.num_rows))


class KeyOrder:
    """The last seq by key, in flat arrays: 20 bytes a key besides the free places of the hash map."""

    def __init__(self) -> None:
        self._slots = IdMap()
        self._key: Index = np.empty(0, np.int64)  # by slot
        self._seq: Index = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._slots)

    def late(self, keys: Index, seqs: Index) -> Index:
        """For changes in order of seq: the last seq of the key where it is not below theirs, else -1."""
        if not len(keys):
            return np.empty(0, np.int64)
        slot = self._slots.find(keys)
        last = np.full(len(keys), -1, np.int64)
        last[slot >= 0] = self._seq[slot[slot >= 0]]
        by_key = np.argsort(keys, kind="stable")
        same = keys[by_key[1:]] == keys[by_key[:-1]]
        before = np.where(same, seqs[by_key[:-1]], -1)  # of the change of this key before, in this batch
        last[by_key[1:]] = np.maximum(last[by_key[1:]], before)
        return np.where(seqs <= last, last, -1)

    def record(self, keys: Index, seqs: Index) -> None:
        """Changes were applied: in order of seq, as far as they have the same key."""
        slot = self._slots.find(keys).astype(np.int64)
        fresh = np.unique(keys[slot < 0])
        count = len(self._slots)
        self._reserve(count + len(fresh))
        at = np.arange(count, count + len(fresh))
        self._key[at] = fresh
        self._slots.put(fresh, at)
        if len(fresh):
            slot = self._slots.find(keys).astype(np.int64)
        self._seq[slot] = seqs  # of several for one slot, the last one stays

    def arrays(self) -> pa.Table:
        """All entries."""
        count = len(self._slots)
        return pa.table({"key": self._key[:count], "seq": self._seq[:count]})

    def without_excess(self, present: Index) -> KeyOrder:
        """The entries of the keys that are present, and of the deleted ones that are worth keeping."""
        count = len(self._slots)
        deleted = ~np.isin(self._key[:count], present)
        most = max(FEW, len(present))
        if np.count_nonzero(deleted) <= most:
            return self
        at = np.flatnonzero(deleted)
        deleted[at[np.argsort(self._seq[at])[-most:]]] = False
        kept = KeyOrder()
        kept.record(self._key[:count][~deleted], self._seq[:count][~deleted])
        return kept

    def _reserve(self, count: int) -> None:
        if count > len(self._key):
            size = max(64, count, 2 * len(self._key))
            self._key, self._seq = longer(self._key, size), longer(self._seq, size)

    def _check(self) -> None:
        count = len(self._slots)
        assert self._slots.find(self._key[:count]).tolist() == list(range(count))
        assert len(np.unique(self._key[:count])) == count
