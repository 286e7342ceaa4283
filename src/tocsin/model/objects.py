"""Many JSON objects as columns, read by Arrow at once, where all of them are plain enough.

Arrow's reader is strict where `json.loads` and `values.read` are lenient (a column's name in other case,
"NaN" for a double, a key given twice), so whatever it refuses is left to them: `columns` returns None, and
the caller reads row by row, which also finds out what is wrong with which row. What it takes, it reads alike.

>>> from tocsin.model.schema import Field, Type
>>> fields = (Field("k", Type.BIGINT), Field("x", Type.DOUBLE))
>>> columns(fields, pa.array(['{"k": 1, "x": 2}', '{"k": 3}'] * 8)).to_pylist()[:2]
[{'k': 1, 'x': 2.0}, {'k': 3, 'x': None}]
>>> columns(fields, pa.array(['{"k": 1}', '{"k": 1.5}'] * 8)) is None
True
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as reader

from tocsin.model.columns import Mask
from tocsin.model.schema import Field, Type

__all__ = ["columns", "given"]

_TYPES = {
    Type.BIGINT: pa.int64(),
    Type.DOUBLE: pa.float64(),
    Type.STRING: pa.string(),
    Type.BOOLEAN: pa.bool_(),
    Type.DATE: pa.string(),  # as text: read later, in one way
    Type.TIMESTAMP: pa.string(),
}
_FEW = 16  # rows for which Arrow's reader is no gain


def columns(fields: Sequence[Field], texts: Any, *, only_these: bool = True) -> Any | None:
    """One object per text as a table, NULL where a key is absent; None if they must be read one by one.

    Without `only_these`, other keys may be there and are passed over.
    """
    if len(texts) < _FEW or texts.null_count or not _alone(texts):
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


def given(table: Any, texts: Any) -> dict[str, Mask] | None:
    """In which rows each column was given, NULL or not; None if all were in all."""
    found = {name: table[name].is_valid().to_numpy() for name in table.column_names}
    if all(mask.all() for mask in found.values()):
        return None
    spelt = np.flatnonzero(pc.match_substring(texts, "null").to_numpy(zero_copy_only=False))
    for row, text in zip(spelt.tolist(), texts.take(pa.array(spelt)).to_pylist(), strict=True):
        for name in json.loads(text):
            found[name][row] = True
    return found


def _alone(texts: Any) -> bool:
    """Whether each text begins and ends as an object: none can be part of one, or be nothing."""
    trimmed = pc.utf8_trim_whitespace(texts)
    whole = pc.and_(pc.starts_with(trimmed, "{"), pc.ends_with(trimmed, "}"))
    return bool(pc.all(whole, min_count=0).as_py())


def _has_infinite(table: Any) -> bool:
    """Too large a number is an error if it is written as an integer, which only its text tells."""
    doubles = (column for column in table.columns if pa.types.is_floating(column.type))
    return any(np.isinf(column.to_numpy()).any() for column in doubles)
