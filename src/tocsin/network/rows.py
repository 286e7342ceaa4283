"""Rows of an engine's tables as messages name them: numbers that live as long as a row, and their texts.

A row has a number as long as it lives, whatever its key is; a message carries the version after its change
as JSON. Rows of which the text is longer than a frame are replaced by a note that says so (`note_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tocsin.language.algebra import OrderKey
from tocsin.model.columns import Index, Rows, Vector, column_codes, longer
from tocsin.model.json_rows import row_json, to_json
from tocsin.model.schema import Type
from tocsin.store.tables import TableStore

__all__ = ["MAX_TEXT", "RowIds", "TableChanges", "note_of", "sort_keys", "texts_of", "version_slots"]

MAX_TEXT = 14 << 20
"""Bytes of a row's text; a frame has 16 MB."""
_NOTE = b"!"
_FEW = 16  # rows that are written faster one by one


class RowIds:
    """The number of each row of a table by slot; a version of a row has the number of the one before."""

    def __init__(self, store: TableStore) -> None:
        self.schema = store.schema
        present = np.flatnonzero(store.present())
        self._id = np.full(len(store.born), -1, np.int64)
        self._id[present] = np.arange(len(present))
        self._slot = dict(enumerate(present.tolist()))
        self._next = len(present)
        self._texts: dict[int, bytes] = {}  # by slot, as of a version of the table
        self._version = -1, -1

    def texts(self, store: TableStore, slots: Index) -> list[bytes]:
        """Rows as they are now, as texts; those of many snapshots are written once."""
        version = store.commits, store.rollbacks
        if version != self._version:
            self._texts, self._version = {}, version
        known = self._texts
        fresh = np.array([slot for slot in slots.tolist() if slot not in known], np.int64)
        if len(fresh):
            known.update(zip(fresh.tolist(), texts_of(store.rows, fresh), strict=True))
        return [known[slot] for slot in slots.tolist()]

    def of(self, slots: Index) -> Index:
        return self._id[slots]

    def slots(self, ids: Index) -> Index:
        """The slots of the last versions."""
        return np.array([self._slot[id] for id in ids.tolist()], np.int64)

    def advance(self, old: Index, new: Index) -> Index:
        """The numbers of changed rows, from their slots before and after, -1 for none."""
        self._id = longer(self._id, int(max(new.max(initial=-1), len(self._id) - 1)) + 1)
        ids = np.empty(len(old), np.int64)
        for i, (before, after) in enumerate(zip(old.tolist(), new.tolist(), strict=True)):
            if before < 0:
                ids[i], self._next = self._next, self._next + 1
            else:
                ids[i] = self._id[before]
            if after >= 0:
                self._id[after] = ids[i]
                self._slot[int(ids[i])] = after
        return ids

    def discard(self, new: Index, ids: Index) -> None:
        """Drop the numbers of rows that a step has deleted."""
        last = dict(zip(ids.tolist(), new.tolist(), strict=True))
        for id, slot in last.items():
            if slot < 0:
                self._slot.pop(id, None)

    def _check(self, store: TableStore) -> None:
        present = np.flatnonzero(store.present())
        assert np.array_equal(self.slots(self.of(present)), present), "numbers and slots agree"
        assert len(self._slot) == len(present)


class TableChanges(NamedTuple):
    """Of one table in a step: by change its position, slots before and after, and row."""

    position: Index
    old: Index
    new: Index
    ids: Index


def version_slots(rows: RowIds, changes: TableChanges | None, ids: Index, position: Index) -> Index:
    """The slots of versions of rows after the change at a position."""
    if changes is None or not len(ids):
        return rows.slots(ids)
    order = np.lexsort((changes.position, changes.ids))
    known, at = changes.ids[order], changes.position[order]
    distinct, rank = np.unique(known, return_inverse=True)  # numbers may be any of int64
    width = int(max(at.max(), position.max())) + 1
    sought = np.searchsorted(distinct, ids) * width + position
    place = np.searchsorted(rank * width + at, sought, side="right")
    before, after = np.maximum(place - 1, 0), np.minimum(place, len(known) - 1)
    slots = np.where(known[before] == ids, changes.new[order][before], -1)
    slots = np.where((slots < 0) & (known[after] == ids), changes.old[order][after], slots)
    rest = slots < 0
    slots[rest] = rows.slots(ids[rest])
    return slots


def texts_of(rows: Rows, index: Index | None = None) -> list[bytes]:
    """Rows as JSON, or as notes where that is too long."""
    if (len(rows) if index is None else len(index)) <= _FEW:
        texts = [row_json(row).encode() for row in rows.to_dicts(index)]
    else:
        texts = [text.encode() for text in to_json(rows, index).to_pylist()]
    for at, text in enumerate(texts):
        if len(text) > MAX_TEXT:
            size = f"a row of {len(text) / (1 << 20):.1f} MB is too long to be sent"
            texts[at] = _NOTE + f"{size}: at most {MAX_TEXT >> 20} MB are".encode()
    return texts


def note_of(text: bytes) -> str:
    """Why a row is not there, if the text is a note; empty if it is a row.

    >>> note_of(b'{"a":1}'), note_of(b"!too long")
    ('', 'too long')
    """
    return text[len(_NOTE) :].decode() if text.startswith(_NOTE) else ""


def sort_keys(order: Sequence[OrderKey], key: Sequence[str], rows: Rows) -> list[bytes]:
    """By row, bytes in the order of ORDER BY and then of the primary key.

    >>> from tocsin.language.algebra import Column
    >>> rows = Rows.of(a=Vector.of(Type.DOUBLE, [8.0, -2.0, None]), n=Vector.of(Type.STRING, ["b", "a", ""]))
    >>> order = OrderKey(Column("a", Type.DOUBLE), descending=True, nulls_first=False)
    >>> keys = sort_keys([order], ["n"], rows)
    >>> sorted(range(3), key=keys.__getitem__)
    [0, 1, 2]
    >>> rows = Rows.of(n=Vector.of(Type.BIGINT, [-300, -1, 0, 2, 255, 256, 1000]))
    >>> keys = sort_keys([], ["n"], rows)
    >>> sorted(keys) == keys
    True
    """
    columns: list[list[bytes]] = []
    for part in order:
        vector = rows.vectors(part.column.name)[0]
        first = [b"\x00", b"\x01"] if part.nulls_first else [b"\x01", b"\x00"]
        cells = _cells(vector, descending=part.descending)
        columns.append(
            [first[1] + cell if there else first[0] for there, cell in zip(vector.valid, cells, strict=True)]
        )
    columns += [_cells(rows.vectors(name)[0], descending=False) for name in key]
    return [b"".join(cells) for cells in zip(*columns, strict=True)] if columns else [b""] * len(rows)


_FLIP = bytes(255 - byte for byte in range(256))


def _cells(vector: Vector, *, descending: bool) -> list[bytes]:
    """Cells as bytes in their order, none the beginning of another; a NULL's is arbitrary."""
    if vector.type is Type.STRING:
        cells = [str(text).encode().replace(b"\x00", b"\x00\xff") + b"\x00\x00" for text in vector.values]
    else:
        codes = column_codes(vector).astype(np.uint64) ^ np.uint64(1 << 63)
        data = codes.astype(">u8").tobytes()  # the scalars of the array would have the machine's byte order
        cells = [data[at : at + 8] for at in range(0, len(data), 8)]
    return [cell.translate(_FLIP) for cell in cells] if descending else cells
