"""Numbers of forms, rows and keys as functions of the data: the same in every shard, whenever it is built."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np

from tocsin.join.signature import Numbering
from tocsin.model.columns import Index, Rows, column_codes, longer
from tocsin.model.schema import Table, Type
from tocsin.model.texts import TextNumbers
from tocsin.network.described import Numbers
from tocsin.network.form_choice import FormKey
from tocsin.network.rows import RowIds
from tocsin.predicate.codes import text_hashes
from tocsin.store.tables import TableStore

__all__ = ["KeyIds", "StableNumbers"]


class StableNumbers(Numbers):
    """A form's number is a hash of what its subscriptions share, a row's is its primary key."""

    def form(self, key: FormKey) -> int:
        return _stable_hash(repr(key).encode())

    def rows(self, store: TableStore) -> RowIds:
        return KeyIds(store)

    def keys(self) -> dict[Numbering, TextNumbers]:
        return _KeyHashes()


def _stable_hash(data: bytes) -> int:
    """A number for some bytes, the same in every process."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little", signed=True)


def _keys_as_ids(table: Table, rows: Rows) -> Index:
    """A number for each row, by its primary key: the value itself, or a hash of a text or several columns.

    Two of a million rows of a table share a hash with a probability of 1 in 30 million.
    """
    if not len(rows):
        return np.empty(0, np.int64)
    vectors = [rows.vectors(name)[0] for name in table.key]
    if len(vectors) == 1 and vectors[0].type is not Type.STRING:
        return column_codes(vectors[0])
    columns: list[list[Any]] = [
        list(vector.values) if vector.type is Type.STRING else column_codes(vector).tolist()
        for vector in vectors
    ]
    return np.array([_stable_hash(repr(key).encode()) for key in zip(*columns, strict=True)], np.int64)


class KeyIds(RowIds):
    """The number of each row of a table by slot, from its primary key."""

    def __init__(self, store: TableStore) -> None:
        super().__init__(store)
        self._store = store
        present = np.flatnonzero(store.present())
        self._id[present] = _keys_as_ids(store.schema, store.rows.take(present))
        self._slot = dict(zip(self._id[present].tolist(), present.tolist(), strict=True))

    def advance(self, old: Index, new: Index) -> Index:
        size = int(new.max(initial=-1)) + 1
        if size > len(self._id):
            self._id = longer(self._id, max(size, 2 * len(self._id)))
        there = new >= 0
        ids = _keys_as_ids(self.schema, self._store.rows.take(np.where(there, new, old)))
        self._id[new[there]] = ids[there]
        self._slot.update(zip(ids[there].tolist(), new[there].tolist(), strict=True))
        return ids


class _TextHashes(TextNumbers):
    """Texts under hashes instead of numbers: keys that share one are candidates, which clients verify."""

    def number(self, start: Index, data: Any) -> Index:
        return text_hashes(start, data)


class _KeyHashes(dict[Numbering, TextNumbers]):
    """Numberings of keys, each by hashes."""

    def __missing__(self, key: Numbering) -> TextNumbers:
        self[key] = _TextHashes()
        return self[key]

    def __contains__(self, key: object) -> bool:
        return True
