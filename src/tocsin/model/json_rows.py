"""JSON, both ways: rows as JSON text, and many JSON objects as columns, read by Arrow at once.

Written: NaN and infinities as text, times in ISO form; an absent attribute of an open stream is left out.

>>> rows = Rows.of(a=Vector.of(Type.STRING, ['say "x"', None]), b=Vector.of(Type.DOUBLE, [1, 2.5]))
>>> to_json(rows).to_pylist()
['{"a":"say \\\\"x\\\\"","b":1.0}', '{"a":null,"b":2.5}']

Read: Arrow's reader is strict where `json.loads` and `read` are lenient (a column's name in other case,
"NaN" for a double, a key given twice). If it rejects anything, `json_columns` returns None and the caller
reads row by row, which also finds the reason for each bad row. What Arrow accepts, both read alike.

>>> fields = (Field("k", Type.BIGINT), Field("x", Type.DOUBLE))
>>> json_columns(fields, pa.array(['{"k": 1, "x": 2}', '{"k": 3}'] * 8)).to_pylist()[:2]
[{'k': 1, 'x': 2.0}, {'k': 3, 'x': None}]
>>> json_columns(fields, pa.array(['{"k": 1}', '{"k": 1.5}'] * 8)) is None
True
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as reader

from tocsin.model.columns import Index, Mask, Rows, Vector
from tocsin.model.decimals import text_of_units
from tocsin.model.schema import Field, Type

__all__ = ["json_columns", "json_given", "row_json", "to_json"]

_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_TYPES = {
    Type.BIGINT: pa.int64(),
    Type.DOUBLE: pa.float64(),
    Type.STRING: pa.string(),
    Type.BOOLEAN: pa.bool_(),
    Type.DATE: pa.string(),  # as text: read later, in one way
    Type.TIMESTAMP: pa.string(),
}
_MIN_ROWS = 16  # for fewer, Arrow's reader is no gain


def to_json(rows: Rows, index: Index | None = None) -> Any:
    """One JSON object per row (of `index`, or all), as an Arrow array of strings."""
    if rows.sparse or len(rows.names) < len(rows.columns):  # which names occur differs by row
        return pa.array([row_json(row) for row in rows.to_dicts(index)], pa.string())
    if not rows.columns:
        return pa.array(["{}"] * (len(rows) if index is None else len(index)), pa.string())
    vectors = ((n, v if index is None else v.take(index)) for n, v in rows.columns)
    pieces = [pc.binary_join_element_wise(json.dumps(n), _values(v), ":") for n, v in vectors]
    return pc.binary_join_element_wise("{", pc.binary_join_element_wise(*pieces, ","), "}", "")


def row_json(row: dict[str, Any]) -> str:
    """One row of Python values as JSON."""
    plain = {name: _plain(value) for name, value in row.items()}
    if any(isinstance(value, Decimal) for value in plain.values()):  # which json.dumps does not write
        pieces = [f"{json.dumps(name, ensure_ascii=False)}:{_piece(value)}" for name, value in plain.items()]
        return "{" + ",".join(pieces) + "}"
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


def _piece(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


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
        numbers = map(repr, vector.values.tolist())
        out = pa.array([f'"{_SPECIAL[n]}"' if n in _SPECIAL else n for n in numbers], pa.string())
    elif vector.type is Type.BIGINT:
        out = pa.array(vector.values, pa.int64()).cast(pa.string())
    elif vector.type.is_decimal:
        scale = vector.type.scale
        out = pa.array([text_of_units(v, scale) for v in vector.values.tolist()], pa.string())
    elif vector.type is Type.BOOLEAN:
        out = pa.array(np.where(vector.values, "true", "false").tolist(), pa.string())
    else:
        out = pa.array(
            [json.dumps(v.isoformat()) if v is not None else None for v in vector.to_list()], pa.string()
        )
    return pc.if_else(pa.array(vector.valid), out, "null")


# -- reading ---------------------------------------------------------------------------------------


def json_columns(fields: Sequence[Field], texts: Any, *, only_these: bool = True) -> Any | None:
    """One object per text as a table, NULL where a key is absent; None if they must be read one by one.

    Without `only_these`, other keys are ignored.
    """
    if len(texts) < _MIN_ROWS or texts.null_count or any(field.type not in _TYPES for field in fields):
        return None  # Arrow would round what a DECIMAL rounds
    if not _are_whole(texts):
        return None
    schema = pa.schema([(field.name, _TYPES[field.type]) for field in fields])
    other = "error" if only_these else "ignore"
    data = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")[0].as_buffer()
    try:
        table = reader.read_json(
            pa.BufferReader(data),
            read_options=reader.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=reader.ParseOptions(explicit_schema=schema, unexpected_field_behavior=other),
        )
    except pa.ArrowException:
        return None
    if table.num_rows != len(texts) or _has_infinite(table):
        return None
    return table


def json_given(table: Any, texts: Any) -> dict[str, Mask] | None:
    """In which rows each column was given, NULL or not; None if all were in all."""
    found = {name: table[name].is_valid().to_numpy() for name in table.column_names}
    if all(mask.all() for mask in found.values()):
        return None
    spelt = np.flatnonzero(pc.match_substring(texts, "null").to_numpy(zero_copy_only=False))
    for row, text in zip(spelt.tolist(), texts.take(pa.array(spelt)).to_pylist(), strict=True):
        for name in json.loads(text):
            found[name][row] = True
    return found


def _are_whole(texts: Any) -> bool:
    """Whether each text begins and ends as an object does."""
    trimmed = pc.utf8_trim_whitespace(texts)
    whole = pc.and_(pc.starts_with(trimmed, "{"), pc.ends_with(trimmed, "}"))
    return bool(pc.all(whole, min_count=0).as_py())


def _has_infinite(table: Any) -> bool:
    """An integer too large for a double is an error, which only its text shows."""
    doubles = (column for column in table.columns if pa.types.is_floating(column.type))
    return any(np.isinf(column.to_numpy()).any() for column in doubles)
