"""One table: rows in slots, found by key, with every version of a row within a batch.

A batch of changes is first *staged*. New versions get slots of their own and old ones stay in
place, so that rooms can read the table as it was before or after any change of the batch. A
version is alive from the change that created it until the change that replaced or deleted it:

    position of the change       0      1      2
    slot 4 (was there before)    ======|               born -1, died 1
    slot 9 (update at 1)               |======|        born  1, died 2
    alive after change p:        born <= p < died
    alive before change p:       born <  p <= died

Then the batch is *committed* (dead slots are freed) or *rolled back* (new slots are freed), so
a batch is atomic without copying the table. A free slot has died = -1.

>>> from tocsin.model.schema import Field, Type
>>> schema = Table("stocks", (Field("symbol", Type.STRING), Field("per", Type.DOUBLE)), ("symbol",))
>>> stocks = TableStore(schema)
>>> rows = [{"symbol": "A", "per": 1}, {"symbol": "A"}]
>>> batch, _ = ChangeBatch.from_dicts(schema, rows, ["insert", "delete"])
>>> changed, bad = stocks.stage(batch, np.array([0, 1]))
>>> changed.old.tolist(), changed.new.tolist()
([-1, 0], [0, -1])
>>> stocks.commit(); len(stocks)
0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import BadRow
from tocsin.model.change import DELETE, INSERT, UPDATE, ChangeBatch
from tocsin.model.columns import Index, Mask, Rows, Vector
from tocsin.model.constraints import default_of
from tocsin.model.schema import Table, Type
from tocsin.store.computed import ComputedColumns, StoredRows

__all__ = ["FEW_ROWS", "FOREVER", "Changed", "Signed", "TableStore"]

FOREVER = 2**62
FEW_ROWS = 8  # changes of which one by one is faster than all as columns


class Changed(NamedTuple):
    """Per change: its position in the step, the slot before and the slot after; -1 is none."""

    position: Index
    old: Index
    new: Index

    def signed(self) -> Signed:
        """The same as removed rows (-1) and added rows (+1), in order of position."""
        slot = np.stack([self.old, self.new], axis=1).ravel()
        sign = np.tile(np.array([-1, 1], np.int8), len(self.old))
        keep = slot >= 0
        return Signed(np.repeat(self.position, 2)[keep], sign[keep], slot[keep])


class Signed(NamedTuple):
    """Rows removed or added at a position."""

    position: Index
    sign: NDArray[np.int8]
    slot: Index


class TableStore:
    """Rows of one table by slot. O(1) per change to stage; columns are flat arrays."""

    def __init__(self, schema: Table) -> None:
        self.schema = schema
        self.born: Index = np.empty(0, np.int64)
        self.died: Index = np.empty(0, np.int64)
        self._columns: dict[str, Vector] = {f.name: Vector.blank(f.type, 0) for f in schema.fields}
        self._computed = ComputedColumns()
        self._defaults = {f.name: default_of(f) for f in schema.fields if f.default is not None}
        self._blank = {f.name: "" if f.type is Type.STRING else 0 for f in schema.fields}
        self._slots: dict[Any, int] = {}
        self._free: list[int] = []
        self._used = 0  # slots ever allocated
        self._staged: tuple[dict[Any, int], list[int], list[int]] | None = None  # overlay, killed, born
        self._rows: Rows | None = None
        self.commits = 0  # committed batches that changed the table
        self.rollbacks = 0  # batches rolled back

    @classmethod
    def of_events(cls, schema: Table, rows: Rows) -> TableStore:
        """Events as a table without keys, to be read for one step; columns that `rows` lack are NULL."""
        store, count = cls(schema), len(rows)
        for field in schema.fields:
            given = rows.vectors(field.name)
            store._columns[field.name] = given[0] if given else Vector.blank(field.type, count)
        store.born, store.died = np.full(count, -1, np.int64), np.full(count, FOREVER + 1, np.int64)
        store._used = count
        return store

    def extend(self, schema: Table) -> None:
        """Columns are added; rows that are there have their defaults."""
        assert self._staged is None, "a batch is staged"
        for field in schema.fields[len(self.schema.fields) :]:
            vector = Vector.blank(field.type, len(self.born))
            if (value := default_of(field)) is not None:
                vector.values[:], vector.valid[:] = value, True
            self._columns[field.name] = vector
            self._blank[field.name] = "" if field.type is Type.STRING else 0
        self.schema, self._rows = schema, None
        self._defaults = {f.name: default_of(f) for f in schema.fields if f.default is not None}

    def __len__(self) -> int:
        return len(self._slots)

    # -- reading -----------------------------------------------------------------------------------

    @property
    def used(self) -> int:
        """How many slots there are, alive or not."""
        return self._used

    def column(self, name: str) -> Vector:
        """The cells of a column by slot; there may be more cells than slots. Only for the current step."""
        found = self._columns.get(name)
        return self._computed.column(name, self._columns) if found is None else found

    @property
    def rows(self) -> Rows:
        """All slots, alive or not: `born` and `died` say which."""
        if self._rows is None:
            columns = [
                (n, Vector(v.type, v.values[: self._used], v.valid[: self._used]))
                for n, v in self._columns.items()
            ]
            rows = self._rows = StoredRows(columns, self._used)
            rows.computed, rows.stored = self._computed, self._columns
        return self._rows

    def present(self) -> Mask:
        """Slots that are alive at some time of the step."""
        return self.died[: self._used] >= 0

    def alive(self) -> Index:
        """Slots alive now (after the step, if one is staged)."""
        return np.flatnonzero((self.born[: self._used] <= FOREVER) & (self.died[: self._used] > FOREVER))

    def find(self, key: Any) -> int | None:
        """The slot of a key: a value, or a tuple if the key has several columns."""
        return self._slots.get(key)

    def find_rows(self, keys: Vector) -> Index:
        """The slots of values of the only key column; -1 for none. A staged step may hide a row or not."""
        return np.array([self._slots.get(key, -1) for key in keys.values.tolist()], np.int64)

    def keys(self, rows: Rows) -> list[Any]:
        """The keys of some rows, as `find` takes them."""
        if not len(rows):  # then there may be no key columns either
            return []
        columns = [rows.vectors(name)[0].values.tolist() for name in self.schema.key]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    # -- writing -----------------------------------------------------------------------------------

    def stage(self, batch: ChangeBatch, positions: Index) -> tuple[Changed, list[BadRow]]:
        """Stage a batch. Rows whose key must be absent but exists, or the reverse, are bad and left out."""
        assert self._staged is None, "a batch is staged already"
        overlay: dict[Any, int] = {}
        old = np.full(len(batch), -1, np.int64)
        makes = np.zeros(len(batch), np.bool_)  # whether the change leaves a row
        bad: list[BadRow] = []
        lacking = self._lacking(batch)
        for i, (key, op) in enumerate(zip(self.keys(batch.rows), batch.op.tolist(), strict=True)):
            here = overlay.get(key)
            if here is None:
                here = self._slots.get(key, -1)
            absent = here == -1
            if absent and op in (UPDATE, DELETE):
                bad.append(BadRow(int(batch.origin[i]), f"{self.schema.name} has no row with key {key!r}"))
                continue
            if not absent and op == INSERT:
                bad.append(
                    BadRow(int(batch.origin[i]), f"{self.schema.name} has a row with key {key!r} already")
                )
                continue
            if absent and lacking is not None and lacking[i]:
                reason = f"a new row of {self.schema.name} lacks a column that is NOT NULL"
                bad.append(BadRow(int(batch.origin[i]), reason))
                continue
            old[i] = here
            makes[i] = op != DELETE
            overlay[key] = -2 - i if makes[i] else -1  # -2 - i: the version that change i makes
        new = np.full(len(batch), -1, np.int64)
        new[makes] = self._allocate(int(makes.sum()))
        back = np.where(old < -1, -2 - old, -1)  # the change of this batch that made the old version
        old = np.where(back >= 0, new[back], old)
        self._fill(batch, makes, new, old, back)
        changed_mask = makes | (old >= 0)
        overlay = {key: (int(new[-2 - s]) if s < -1 else -1) for key, s in overlay.items()}
        self.born[new[makes]] = positions[makes]
        self.died[new[makes]] = FOREVER + 1
        killed = np.flatnonzero(old >= 0)
        self.died[old[killed]] = positions[killed]
        self._staged = (overlay, old[killed].tolist(), new[makes].tolist())
        self._rows = None
        return Changed(positions[changed_mask], old[changed_mask], new[changed_mask]), bad

    def _lacking(self, batch: ChangeBatch) -> Mask | None:
        """Rows that cannot be new ones: they lack a column that is NOT NULL and has no default."""
        needed = [f.name for f in self.schema.fields if f.required and f.default is None]
        if not needed:
            return None
        return np.logical_or.reduce([~batch.gave(name) for name in needed])

    def stage_rows(self, ops: Sequence[int], rows: Sequence[dict[str, Any]]) -> Changed | None:
        """Stage a few rows of stored values (`RowReader`), one after the other, at positions from 0 on.

        None if a row is bad: then nothing is staged. An update that changes nothing is left out.
        """
        assert self._staged is None, "a batch is staged already"
        key = self.schema.key
        keys = [row[key[0]] if len(key) == 1 else tuple(row[name] for name in key) for row in rows]
        if not self._are_valid(keys, ops):
            return None
        overlay: dict[Any, int] = {}
        changes: list[tuple[int, int, int]] = []
        killed, made = [], []
        for position, (own, op, row) in enumerate(zip(keys, ops, rows, strict=True)):
            old = overlay.get(own)
            if old is None:
                old = self._slots.get(own, -1)
            new = -1
            if op != DELETE:
                if old >= 0 and self._has(old, row):
                    continue
                new = self._put(old, row)
                self.born[new], self.died[new] = position, FOREVER + 1
                made.append(new)
            if old >= 0:
                self.died[old] = position
                killed.append(old)
            overlay[own] = new
            changes.append((position, old, new))
        if not changes:
            return Changed(*np.empty((3, 0), np.int64))
        self._staged, self._rows = (overlay, killed, made), None
        return Changed(*[np.array(part, np.int64) for part in zip(*changes, strict=True)])

    def same_cell(self, name: str, slot: int, other: int) -> bool:
        """Whether two slots have the same value in a column; NULL is NULL, NaN is NaN."""
        column = self.column(name)
        if column.valid.item(slot) != column.valid.item(other):
            return False
        one, two = column.values.item(slot), column.values.item(other)
        return bool(one == two or (one != one and two != two)) or not column.valid.item(slot)

    def _are_valid(self, keys: Sequence[Any], ops: Sequence[int]) -> bool:
        """Whether each key is there when it must be, and absent when it must be."""
        after: dict[Any, bool] = {}
        for key, op in zip(keys, ops, strict=True):
            there = after.get(key)
            if there is None:
                there = key in self._slots
            if op == INSERT if there else op in (UPDATE, DELETE):
                return False
            after[key] = op != DELETE
        return True

    def _has(self, slot: int, row: dict[str, Any]) -> bool:
        """Whether a slot has these cells already; NaN is NaN."""
        for name, value in row.items():
            column = self._columns[name]
            if column.valid.item(slot) != (value is not None):
                return False
            if value is not None:
                there = column.values.item(slot)
                if there != value and (there == there or value == value):
                    return False
        return True

    def _put(self, old: int, row: dict[str, Any]) -> int:
        """A new slot with the given cells, and others as in the slot `old`; -1: NULL."""
        new = self._free.pop() if self._free else int(self._allocate(1)[0])
        if self._computed:
            self._computed.wrote(np.array([new], np.int64))
        for name, column in self._columns.items():
            values, valid = column.values, column.valid
            if name in row:
                value = row[name]
                valid[new] = value is not None
                values[new] = self._blank[name] if value is None else value
            elif old >= 0:
                values[new], valid[new] = values[old], valid[old]
            else:
                values[new], valid[new] = self._blank[name], False
        return new

    def commit(self) -> None:
        """Apply the staged batch, if there is one."""
        if self._staged is None:
            return
        overlay, killed, made = self._staged
        for key, slot in overlay.items():
            if slot >= 0:
                self._slots[key] = slot
            else:
                self._slots.pop(key, None)
        self._release(killed)
        if len(made) <= FEW_ROWS:
            for slot in made:  # free slots are not born either
                self.born[slot] = -1
        else:
            self.born[made] = -1
        self._staged = None
        self.commits += bool(overlay)

    def rollback(self) -> None:
        """Discard the staged batch."""
        if self._staged is None:
            return
        _, killed, made = self._staged
        self.died[killed] = FOREVER + 1
        self._release(made)
        self._staged = None
        self.rollbacks += 1

    def _allocate(self, count: int) -> Index:
        reused = [self._free.pop() for _ in range(min(count, len(self._free)))]
        fresh = count - len(reused)
        if self._used + fresh > len(self.born):
            self._grow(max(64, 2 * len(self.born), self._used + fresh))
        slots = np.array(reused + list(range(self._used, self._used + fresh)), np.int64)
        self._used += fresh
        self._computed.wrote(slots)
        return slots

    def _grow(self, capacity: int) -> None:
        more = capacity - len(self.born)
        self.born = np.concatenate([self.born, np.full(more, -1, np.int64)])
        self.died = np.concatenate([self.died, np.full(more, -1, np.int64)])
        for name, vector in self._columns.items():
            tail = Vector.blank(vector.type, more)
            self._columns[name] = Vector(
                vector.type,
                np.concatenate([vector.values, tail.values]),
                np.concatenate([vector.valid, tail.valid]),
            )

    def _release(self, slots: list[int]) -> None:
        if len(slots) <= FEW_ROWS:
            for slot in slots:
                self.died[slot] = self.born[slot] = -1
        else:
            self.died[slots] = self.born[slots] = -1
        self._free.extend(slots)

    def _fill(self, batch: ChangeBatch, makes: Mask, new: Index, old: Index, back: Index) -> None:
        """Write the new versions: given cells from the batch, others from the version before."""
        for name, column in self._columns.items():
            values, valid = column.values, column.valid
            given = batch.gave(name)
            source = np.arange(len(batch))  # the change whose cell counts: the last one that gave it
            while (walk := makes & ~given[source] & (back[source] >= 0)).any():
                source[walk] = back[source[walk]]
            cell = makes & given[source]
            if cell.any():
                vector = batch.rows.vectors(name)[0]
                values[new[cell]], valid[new[cell]] = vector.values[source[cell]], vector.valid[source[cell]]
            kept = makes & ~given[source]
            before = old[source]  # a slot of the table before the batch, or -1: then the cell is NULL
            copy = kept & (before >= 0)
            values[new[copy]], valid[new[copy]] = values[before[copy]], valid[before[copy]]
            blank = new[kept & (before < 0)]
            default = self._defaults.get(name)
            values[blank] = self._blank[name] if default is None else default
            valid[blank] = default is not None

    def _check(self) -> None:
        """Keys and live slots agree one to one; free slots are dead; nothing is staged."""
        assert self._staged is None
        alive = self.alive()
        assert len(alive) == len(self._slots) and set(alive.tolist()) == set(self._slots.values())
        assert (self.born[alive] == -1).all()
        free = np.array(self._free, np.int64)
        assert len(set(self._free)) == len(self._free) and (self.died[free] == -1).all()
        assert len(free) + len(alive) == self._used
        found = self.keys(self.rows.take(alive))
        assert all(self._slots[key] == slot for key, slot in zip(found, alive.tolist(), strict=True))
