"""Rows as JSON text, column by column.

Each column becomes one array of `"name":value` pieces, and the pieces are joined row by row.
What JSON has no number for is written as text: "NaN", "Infinity", "-Infinity"; dates and
timestamps in ISO form.

>>> from tocsin.model.columns import Rows, Vector
>>> rows = Rows.of(a=Vector.of(Type.STRING, ['say "x"', None]), b=Vector.of(Type.DOUBLE, [1, 2.5]))
>>> to_json(rows).to_pylist()
['{"a":"say \\\\"x\\\\"","b":1.0}', '{"a":null,"b":2.5}']
"""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.schema import Type

__all__ = ["row_json", "to_json"]

_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def to_json(rows: Rows, index: Index | None = None) -> Any:
    """One JSON object per row (of `index`, or all), as an Arrow array of strings."""
    if rows.sparse or len(rows.names) < len(rows.columns):  # which names occur differs by row
        return pa.array([row_json(row) for row in rows.to_dicts(index)], pa.string())
    if index is not None:
        rows = rows.take(index)
    if not rows.columns:
        return pa.array(["{}"] * len(rows), pa.string())
    pieces = [pc.binary_join_element_wise(json.dumps(n), _values(v), ":") for n, v in rows.columns]
    return pc.binary_join_element_wise("{", pc.binary_join_element_wise(*pieces, ","), "}", "")


def row_json(row: dict[str, Any]) -> str:
    """One row of Python values as JSON."""
    plain = {name: _plain(value) for name, value in row.items()}
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return _SPECIAL.get(repr(value), value)
    return value.isoformat() if isinstance(value, date) else value


def _values(vector: Vector) -> Any:
    if vector.type is Type.STRING:
        text = pa.array(vector.values, pa.string())
        if pc.any(pc.match_substring_regex(text, r'["\\\x00-\x1f]')).as_py():
            out = pa.array([json.dumps(v, ensure_ascii=False) for v in vector.values], pa.string())
        else:
            out = pc.binary_join_element_wise('"', text, '"', "")
    elif vector.type is Type.DOUBLE:
        out = pa.array([_number(v) for v in vector.values.tolist()], pa.string())
    elif vector.type is Type.BIGINT:
        out = pa.array(vector.values, pa.int64()).cast(pa.string())
    elif vector.type is Type.BOOLEAN:
        out = pa.array(np.where(vector.values, "true", "false").tolist(), pa.string())
    else:
        out = pa.array(
            [json.dumps(v.isoformat()) if v is not None else None for v in vector.to_list()], pa.string()
        )
    return pc.if_else(pa.array(vector.valid), out, "null")


def _number(value: float) -> str:
    text = repr(value)
    return f'"{_SPECIAL[text]}"' if text in _SPECIAL else text
