"""Computed columns of a table: expressions over its rows, kept by slot like its own columns.

A computed column begins when a room first reads it. After that only slots that were written since are
computed, all of a batch together.

>>> from tocsin.model.expressions.derived import remember
>>> from tocsin.model.expressions.tree import CallNode, Ref, name_of
>>> from tocsin.model.schema import Type
>>> double = name_of(CallNode("+", (Ref("x"), Ref("x"))), (Type.BIGINT,))
>>> _ = remember(double, CallNode("+", (Ref("x"), Ref("x"))))
>>> columns, computed = {"x": Vector.of(Type.BIGINT, [1, None])}, ComputedColumns()
>>> computed.column(double, columns).to_list()
[2, None]
>>> columns["x"].values[1], columns["x"].valid[1] = 7, True
>>> computed.wrote(np.array([1]))
>>> computed.column(double, columns).to_list()
[2, 14]
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.expressions.derived import expression_of

__all__ = ["ComputedColumns", "StoredRows"]


class ComputedColumns:
    """The computed columns of one table that rooms have read."""

    def __init__(self) -> None:
        self._columns: dict[str, Vector] = {}
        self._written: list[Index] = []

    def __bool__(self) -> bool:
        return bool(self._columns)

    def wrote(self, slots: Index) -> None:
        """Cells of these slots are written, or will be before the next column is read."""
        if self._columns:
            self._written.append(slots)

    def column(self, name: str, columns: Mapping[str, Vector]) -> Vector:
        """A computed column, up to date, of as many cells as the table's own columns have."""
        self._update(columns)
        if name not in self._columns:
            length = max((len(vector) for vector in columns.values()), default=0)
            self._columns[name] = _of(name, columns, np.arange(length))
        return self._columns[name]

    def _update(self, columns: Mapping[str, Vector]) -> None:
        if not self._columns:
            return
        length = max(len(vector) for vector in columns.values())
        for name, known in self._columns.items():
            if len(known) < length:
                more = Vector.blank(known.type, length - len(known))
                self._columns[name] = Vector.concat([known, more])
        if not self._written:
            return
        slots, self._written = np.unique(np.concatenate(self._written)), []
        for name, known in self._columns.items():
            fresh = _of(name, columns, slots)
            known.values[slots], known.valid[slots] = fresh.values, fresh.valid


def _of(name: str, columns: Mapping[str, Vector], slots: Index) -> Vector:
    used = [(own, columns[own].take(slots)) for own in expression_of(name).refs]
    found = expression_of(name).of_rows(Rows(used, len(slots)))[0]
    return Vector(found.type, found.values, found.valid)


class StoredRows(Rows):
    """All slots of a table; computed columns are those that the table keeps."""

    computed: ComputedColumns
    stored: Mapping[str, Vector]

    def _computed(self, name: str) -> list[Vector]:
        found = self.computed.column(name, self.stored)
        return [Vector(found.type, found.values[: len(self)], found.valid[: len(self)])]
