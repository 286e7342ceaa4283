"""Sort keys as single numbers: int64 labels in the order of the keys, with gaps between them.

ORDER BY may name several columns of several types, and the primary key breaks ties. Structures need one
number per row, no two equal. So each key gets a label when it is first seen, between those of its neighbours.
Labels stay until there is no gap left between two (`find` returns None); then `load` assigns all of them
again.

    keys     (1.0, 'A')   (2.5, 'C')   (2.5, 'D')        labels are even: the odd one above
    labels       -2^40         0           2^40           is free for a row's next version

Cost: a binary search per key, and a copy of the sorted keys per batch with new ones; for a single row, the
keys between its old and its new one move by one place (`label_one`).

>>> labels = Labels(1)
>>> labels.load(np.array([[10], [30]]))
>>> low, high, middle = labels.find(np.array([[10], [30], [20]])).tolist()
>>> low < middle < high
True
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import OrderKey
from tocsin.model.columns import Index, Rows, cell_code, column_codes, longer
from tocsin.model.schema import Type
from tocsin.rank._kernels.topk import KEYS, LabelIndex, lower_bounds, spread
from tocsin.store.tables import TableStore

__all__ = ["Labels", "RowKeys", "TextLabels"]

_GAP = 1 << 40


class Labels:
    """Labels of keys; a key is a row of int64 numbers, compared from the left."""

    def __init__(self, width: int, *, gap: int = _GAP, limit: int = 1 << 61) -> None:
        self._gap, self._limit = gap, limit  # labels are from -limit to limit
        self._keys: NDArray[Any] = np.empty((0, width), np.int64)
        self._labels: Index = np.empty(0, np.int64)
        self._index: LabelIndex | None = None  # of which keys and labels are a part

    def __len__(self) -> int:
        return len(self._labels)

    def load(self, keys: NDArray[Any]) -> None:
        """Discard all labels and assign new ones to these keys."""
        self._index = None
        self._keys = self._distinct(keys)
        count = len(self._keys)
        step = min(self._gap, self._limit // max(1, count)) & ~1
        self._labels = (np.arange(count) - count // 2) * step

    def find(self, keys: NDArray[Any]) -> Index | None:
        """The label of each key, new keys included; None if there is no gap for one: then `load` them."""
        if not len(self):
            self.load(keys)
        at, there = self._locate(keys)
        if not there.all():
            fresh = self._distinct(keys[~there])
            place, _ = self._locate(fresh)
            labels = np.empty(len(fresh), np.int64)
            if not spread(self._labels, place, self._gap, labels) or np.any(np.abs(labels) >= self._limit):
                return None
            self._index = None
            self._keys = np.insert(self._keys, place, fresh, axis=0)
            self._labels = np.insert(self._labels, place, labels)
            at, _ = self._locate(keys)
        return self._labels[at]

    def index(self) -> LabelIndex:
        """Keys and labels with space for one more, for `label_one`; call `follow` after it."""
        count = len(self)
        if self._index is None or count == len(self._index.labels):
            size = count + count // 4 + 16
            counts = np.array([count, self._gap, self._limit], np.int64)
            self._index = LabelIndex(longer(self._keys, size), longer(self._labels, size), counts)
            self.follow()
        return self._index

    def follow(self) -> None:
        """Take over how many keys the index has now."""
        assert self._index is not None
        count = self._index.counts.item(KEYS)
        if count != len(self._labels) or self._labels.base is not self._index.labels:
            self._keys, self._labels = self._index.keys[:count], self._index.labels[:count]

    def _locate(self, keys: NDArray[Any]) -> tuple[Index, NDArray[np.bool_]]:
        at, there = np.empty(len(keys), np.int64), np.empty(len(keys), np.bool_)
        lower_bounds(self._keys, np.ascontiguousarray(keys), at, there)
        return at, there

    def _distinct(self, keys: NDArray[Any]) -> NDArray[Any]:
        order = np.lexsort(keys.T[::-1])
        keys = np.ascontiguousarray(keys[order])
        fresh = np.ones(len(keys), np.bool_)
        fresh[1:] = (keys[1:] != keys[:-1]).any(axis=1)
        return keys[fresh]

    def _check(self) -> None:
        """Keys ascend; labels ascend with them and are even."""
        assert len(self._keys) == len(self._labels)
        assert np.all(np.diff(self._labels) >= 2) and not np.any(self._labels & 1)
        assert np.array_equal(self._distinct(self._keys), self._keys)


class TextLabels(Labels):
    """Labels of texts."""

    def __init__(self) -> None:
        super().__init__(1)
        self._keys = np.empty(0, object)

    def _locate(self, keys: NDArray[Any]) -> tuple[Index, NDArray[np.bool_]]:
        at = np.searchsorted(self._keys, keys).astype(np.int64)
        there = at < len(self._keys)
        there[there] = self._keys[at[there]] == keys[there]
        return at, there

    def _distinct(self, keys: NDArray[Any]) -> NDArray[Any]:
        return np.unique(keys) if len(keys) else keys

    def texts_of(self, labels: Index) -> NDArray[Any]:
        """The texts that have these labels; any text where there is no such label."""
        if not len(self):
            return np.full(len(labels), "", object)
        return np.asarray(self._keys[np.minimum(np.searchsorted(self._labels, labels), len(self) - 1)])

    def label(self, text: str) -> int | None:
        """The label of a text; None if there is no gap for it."""
        at = bisect_left(self._keys, text)
        if at < len(self._keys) and self._keys[at] == text:
            return int(self._labels[at])
        found = self.find(np.array([text], object))
        return None if found is None else int(found[0])


class RowKeys:
    """Labels of rows in the order of ORDER BY; the primary key breaks ties."""

    def __init__(self, order: Sequence[OrderKey], key: Sequence[str]) -> None:
        self.order, self.key = tuple(order), tuple(key)
        self._parts = [(part.column.name, part.descending, part.nulls_first) for part in order]
        self._labels = Labels(2 * len(order) + len(key))
        self._texts: dict[str, TextLabels] = {}

    def __len__(self) -> int:
        """How many keys have labels, or texts among them."""
        texts = max(map(len, self._texts.values())) if self._texts else 0
        return max(len(self._labels), texts)

    @property
    def labels(self) -> Labels:
        return self._labels

    def load(self, rows: Rows) -> None:
        """Discard all labels and assign new ones to these rows."""
        self._texts = {}
        for name in {part.column.name for part in self.order} | set(self.key):
            vector = rows.vectors(name)[0]
            if vector.type is Type.STRING:
                self._texts[name] = TextLabels()
                self._texts[name].load(vector.values[vector.valid])
        keys = self._keys(rows)
        assert keys is not None
        self._labels.load(keys)

    def find(self, rows: Rows) -> Index | None:
        """The label of each row; None if there is no gap for one: then `load` these rows and all others."""
        keys = self._keys(rows)
        return None if keys is None else self._labels.find(keys)

    def _keys(self, rows: Rows) -> NDArray[np.int64] | None:
        columns: list[Index] = []
        for part in self.order:
            vector = rows.vectors(part.column.name)[0]
            codes = self._codes(part.column.name, rows)
            if codes is None:
                return None
            columns.append((vector.valid if part.nulls_first else ~vector.valid).astype(np.int64))
            columns.append(np.where(vector.valid, ~codes if part.descending else codes, 0))
        for name in self.key:
            codes = self._codes(name, rows)
            if codes is None:
                return None
            columns.append(codes)
        return np.stack(columns, axis=1) if columns else np.zeros((len(rows), 0), np.int64)

    def key_of(self, store: TableStore, row: int) -> list[int] | None:
        """The key of one row of a table; None if there is no gap for a text."""
        out: list[int] = []
        for name, descending, nulls_first in self._parts:
            there = store.column(name).valid.item(row)
            code = self._code(name, store, row) if there else 0
            if code is None:
                return None
            out.append(int(there == nulls_first))
            out.append(~code if descending and there else code)
        for name in self.key:
            code = self._code(name, store, row)
            if code is None:
                return None
            out.append(code)
        return out

    def _code(self, name: str, store: TableStore, row: int) -> int | None:
        vector = store.column(name)
        if vector.type is Type.STRING:
            return self._texts[name].label(vector.values[row])
        return cell_code(vector, row)

    def _codes(self, name: str, rows: Rows) -> Index | None:
        vector = rows.vectors(name)[0]
        if vector.type is not Type.STRING:
            return column_codes(vector)
        out = np.zeros(len(rows), np.int64)
        found = self._texts[name].find(vector.values[vector.valid])
        if found is None:
            return None
        out[vector.valid] = found
        return out

    def _check(self) -> None:
        self._labels._check()
        for texts in self._texts.values():
            texts._check()
