"""What a column requires of its values besides the type: NOT NULL and a size; and its default.

>>> too_large("VARCHAR(3)", "abcd"), too_large("SMALLINT", 32768), too_large("INT", 5)
("'abcd' is longer than VARCHAR(3)", '32768 is beyond the range of SMALLINT', '')
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tocsin.errors import BadRow
from tocsin.model.change import DELETE, INSERT, ChangeBatch
from tocsin.model.columns import Mask, Rows, Vector, stored
from tocsin.model.schema import Field, Stream, Table, Type

__all__ = ["WHOLE_SIZES", "constrained", "default_of", "too_large"]

WHOLE_SIZES = {"TINYINT": 8, "SMALLINT": 16, "SHORT": 16, "INT": 32, "INTEGER": 32}


def too_large(size: str, value: Any) -> str:
    """Why a value does not fit a size; empty if it does."""
    if not size or value is None:
        return ""
    if size in WHOLE_SIZES:
        half = 1 << (WHOLE_SIZES[size] - 1)
        return "" if -half <= value < half else f"{value} is beyond the range of {size}"
    most = int(size.partition("(")[2][:-1])
    return "" if len(value) <= most else f"{value!r} is longer than {size}"


def default_of(field: Field) -> Any:
    """The default as vectors store it."""
    return None if field.default is None else stored(field.type, field.default)


def constrained(batch: ChangeBatch) -> tuple[ChangeBatch, list[BadRow]]:
    """The batch without rows that break a constraint; events with defaults. A table sets its own defaults."""
    bad: dict[int, str] = {}
    relation = batch.relation
    assert isinstance(relation, Table | Stream)
    columns = dict(batch.rows.columns)
    for field in relation.fields:
        if not field.is_constrained:
            continue
        given = batch.gave(field.name)
        vector = columns.get(field.name, Vector.blank(field.type, len(batch)))
        if isinstance(relation, Stream) and field.default is not None and not given.all():
            vector = columns[field.name] = _filled(vector, ~given, default_of(field))
            given = np.ones(len(batch), np.bool_)
        _check(field, vector, given, batch, bad)
    order = [name for name in relation.names if name in columns]
    whole = replace(batch, rows=Rows([(name, columns[name]) for name in order], len(batch)))
    if not bad:
        return whole, []
    keep = np.array([n for n in range(len(batch)) if n not in bad], np.int64)
    return whole.take(keep), [BadRow(int(batch.origin[n]), bad[n]) for n in sorted(bad)]


def _filled(vector: Vector, where: Mask, value: Any) -> Vector:
    made = Vector(vector.type, vector.values.copy(), vector.valid.copy())
    made.values[where], made.valid[where] = value, True
    return made


def _check(field: Field, vector: Vector, given: Mask, batch: ChangeBatch, bad: dict[int, str]) -> None:
    """Note the rows that break the constraints of a column."""
    changes = batch.op != DELETE
    if field.required:
        absent = ~given & (batch.op == INSERT) & (field.default is None)
        for n in np.flatnonzero(changes & ((given & ~vector.valid) | absent)).tolist():
            bad.setdefault(n, f"column {field.name} is NOT NULL")
    if field.size:
        for n in np.flatnonzero(_doubtful(field, vector) & given & changes & vector.valid).tolist():
            if reason := too_large(field.size, vector.values[n]):
                bad.setdefault(n, f"column {field.name}: {reason}")


def _doubtful(field: Field, vector: Vector) -> Mask:
    """Values that may be too large."""
    if field.type is Type.STRING:
        return np.ones(len(vector), np.bool_)
    half = 1 << (WHOLE_SIZES[field.size] - 1)
    return np.asarray((vector.values < -half) | (vector.values >= half), np.bool_)
