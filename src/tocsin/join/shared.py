"""What all join subscriptions share about a table: codes by row, and rows by (key, attribute).

A step's batch is staged when the room sees it, and is committed or rolled back afterwards. So the orders are
given the versions that the step bears, beside all that were there, and what is over is taken out at the
beginning of the next step:

    step n     + born in n        every version of the step is there, `born` and `died` tell when
    step n+1   - died in n        if n was committed (the table counts its commits),
               - born in n        if it was rolled back

Codes by row are written when a version is born and stay until its slot is used again, so that what was put
in is found again. Cost: O(log n) per version and order; a whole table when an order is first asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tocsin.join._kernels.matches import Lives, Stamps, put_rows, take_rows
from tocsin.join.keys import KeySpec, Numbering, key_codes, value_codes
from tocsin.join.orders import Ordered
from tocsin.model.columns import Index, Mask, Rows, longer
from tocsin.model.texts import TextNumbers
from tocsin.store.step import Step
from tocsin.store.tables import Changed, TableStore

__all__ = ["Coded", "OrderSpec", "SharedOrders", "SharedTable"]

_FEW = 1024  # numbers of keys that are not worth forgetting
_NONE = np.empty(0, np.int64)
Spec = KeySpec | str | None  # a key, an attribute, or nothing: then all codes are 0


class Coded(NamedTuple):
    """By row of a table: its code, and whether it has one."""

    code: Index
    valid: Mask


class OrderSpec(NamedTuple):
    """A table's rows by key and attribute."""

    table: str
    key: KeySpec
    attribute: str | None


class SharedTable:
    """One table as the join room sees it."""

    def __init__(self, store: TableStore, numbers: dict[Numbering, TextNumbers]) -> None:
        self.store = store
        self.orders: dict[tuple[KeySpec, str | None], Ordered] = {}
        self._numbers = numbers
        self._coded: dict[Spec, Coded] = {}
        self._born, self._killed = _NONE, _NONE
        self._commits, self._staged = store.commits, False  # ... and whether the last step had a batch of it
        self._stamps, self._clock = Stamps(_NONE, _NONE), 1

    # -- reading -----------------------------------------------------------------------------------

    def codes(self, spec: Spec) -> Coded:
        """The codes of all rows of the step."""
        if spec not in self._coded:
            rows = self.store.rows
            code, valid = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
            there = np.flatnonzero(self.store.present())
            code[there], valid[there] = self._work_out(spec, rows.take(there))
            self._coded[spec] = Coded(code, valid)
        return self._coded[spec]

    def order(self, key: KeySpec, attribute: str | None) -> Ordered:
        """Rows by key and attribute; without those where either is NULL."""
        if (key, attribute) not in self.orders:
            there = np.flatnonzero(self.store.present())
            triples = self._triples(key, attribute, there)
            self.orders[key, attribute] = Ordered.build(*triples)
        return self.orders[key, attribute]

    def lives(self) -> Lives:
        """When each row was alive."""
        return Lives(self.store.born, self.store.died)

    def stamps(self, changes: int) -> tuple[Stamps, int]:
        """Marks by row for so many changes, and the mark of the first; none of them was used before."""
        if len(self._stamps.seen) < len(self.store.born):
            length = len(self.store.born)
            self._stamps = Stamps(np.zeros(length, np.int64), np.empty(length, np.int64))
            self._clock = 1
        base, self._clock = self._clock, self._clock + changes
        return self._stamps, base

    # -- steps -------------------------------------------------------------------------------------

    def begin(self, changed: Changed | None) -> bool:
        """End the step before and take this one's versions in; False if the table has changed unseen."""
        commits = self.store.commits - self._commits
        if commits > self._staged:
            return False
        gone = self._killed if commits else self._born
        for (key, attribute), order in self.orders.items():
            take_rows(order.arrays, *self._triples(key, attribute, gone))
        self._born, self._killed, self._commits = _NONE, _NONE, self.store.commits
        self._staged = changed is not None
        if changed is not None:
            self._born = changed.new[changed.new >= 0]
            self._killed = changed.old[changed.old >= 0]
            self._write(self._born)
            for (key, attribute), order in self.orders.items():
                triples = self._triples(key, attribute, self._born)
                put_rows(order.reserve(len(triples[0])), *triples)
        return True

    def keep(self, wanted: set[tuple[KeySpec, str | None]]) -> None:
        """Drop orders that nobody wants, and codes."""
        self.orders = {spec: order for spec, order in self.orders.items() if spec in wanted}
        used: set[Spec] = {part for spec in wanted for part in spec}
        self._coded = {spec: coded for spec, coded in self._coded.items() if spec in used}

    def _write(self, rows: Index) -> None:
        born = self.store.rows.take(rows)
        for spec, coded in self._coded.items():
            if len(coded.code) < len(self.store.rows):
                coded = self._coded[spec] = _longer(coded, len(self.store.born))
            coded.code[rows], coded.valid[rows] = self._work_out(spec, born)

    def _work_out(self, spec: Spec, rows: Rows) -> tuple[Index, Mask]:
        if spec is None:
            return np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_)
        if isinstance(spec, str):
            return value_codes(spec, rows)
        return key_codes(spec, rows, self._numbers)

    def _triples(self, key: KeySpec, attribute: str | None, rows: Index) -> tuple[Index, Index, Index]:
        keys, values = self.codes(key), self.codes(attribute)
        rows = rows[keys.valid[rows] & values.valid[rows]]
        return keys.code[rows], values.code[rows], rows

    def _check(self) -> None:
        """Orders have the rows of the last step that the table still has, and those it let go."""
        for order in self.orders.values():
            order._check()


def _longer(coded: Coded, length: int) -> Coded:
    return Coded(longer(coded.code, length), longer(coded.valid, length))


class SharedOrders:
    """The tables that join subscriptions are about."""

    def __init__(self) -> None:
        self.tables: dict[str, SharedTable] = {}
        self.numbers: dict[Numbering, TextNumbers] = {}

    def begin(self, step: Step) -> None:
        """A step begins."""
        rows = sum(len(step.tables[name]) for name in self.tables if name in step.tables)
        if any(len(numbers) > _FEW + 4 * rows for numbers in self.numbers.values()):
            self.forget()
        for name, table in list(self.tables.items()):
            store = step.tables.get(name)
            if store is not table.store or not table.begin(step.changed.get(name)):
                del self.tables[name]

    def table(self, name: str, step: Step) -> SharedTable:
        """A table of the step that has begun."""
        if name not in self.tables:
            table = self.tables[name] = SharedTable(step.tables[name], self.numbers)
            table.begin(step.changed.get(name))
        return self.tables[name]

    def keep(self, wanted: Mapping[str, set[tuple[KeySpec, str | None]]]) -> None:
        """Drop what nobody wants."""
        self.tables = {name: table for name, table in self.tables.items() if name in wanted}
        for name, table in self.tables.items():
            table.keep(wanted[name])
        used = {key.types for orders in wanted.values() for key, _ in orders}
        texts = {(type,) for types in used for type in types}
        self.numbers = {types: known for types, known in self.numbers.items() if types in used | texts}
        for table in self.tables.values():
            table._numbers = self.numbers

    def forget(self) -> None:
        """All of it: it is built anew when it is asked for."""
        self.tables.clear()
        self.numbers.clear()

    def _check(self) -> None:
        for table in self.tables.values():
            table._check()
