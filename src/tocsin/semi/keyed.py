"""Rows by a join key that is the primary key of their table: found in the table's own directory.

Such a table needs no order by the key, which takes some 50 bytes a row, and no codes of its rows: a whole
number is its own code. So absence of a million keys costs what their windows keep, and little more.
"""

from __future__ import annotations

import numpy as np

from tocsin.join.signature import KeySpec
from tocsin.join.tables import JoinTable, RowCodes
from tocsin.model.columns import Index, Vector, distinct
from tocsin.model.runs import runs
from tocsin.model.schema import Type

__all__ = ["codes_by_row", "is_keyed", "keyed_rows"]

_WHOLE = (Type.BIGINT, Type.DATE, Type.TIMESTAMP)  # values are codes


def is_keyed(table: JoinTable, key: KeySpec | None) -> bool:
    """Whether rows are found so: the key is the primary key, one column of whole numbers."""
    schema = table.store.schema
    if key is None or key.rounded or key.columns != schema.key or len(key.columns) != 1:
        return False
    field = schema.find(key.columns[0])
    return field is not None and field.type in _WHOLE and key.types == (field.type,)


def codes_by_row(table: JoinTable, key: KeySpec | None) -> RowCodes:
    """The codes of the step's rows."""
    if key is None or not is_keyed(table, key):
        return table.codes(key)
    vector = table.store.rows.vectors(key.columns[0])[0]
    return RowCodes(vector.values, vector.valid)


def keyed_rows(table: JoinTable, key: KeySpec, codes: Index) -> tuple[Index, Index]:
    """All rows of the step with these codes: (number of the code, row)."""
    used, inverse = np.unique(codes, return_inverse=True)
    vector = table.store.rows.vectors(key.columns[0])[0]
    slot = table.store.find_rows(Vector(key.types[0], used, np.ones(len(used), np.bool_)))
    there = np.flatnonzero(slot >= 0)
    changed = table.signed.slot
    changed = changed[vector.valid[changed]]
    at = np.minimum(np.searchsorted(used, vector.values[changed]), max(0, len(used) - 1))
    mine = np.flatnonzero(used[at] == vector.values[changed]) if len(used) else at[:0]
    number = np.concatenate([there, at[mine]])
    row = distinct(number * len(vector) + np.concatenate([slot[there], changed[mine]]))
    number, row = np.divmod(row, max(1, len(vector)))
    size = np.bincount(number, minlength=len(used))
    owner, place = runs((np.cumsum(size) - size)[inverse], size[inverse])
    return owner, row[place]
