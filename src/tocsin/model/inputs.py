"""Batches in any form: Arrow, data frames, JSON lines, dicts.

    ChangeBatch                                       as it is
    pyarrow Table, RecordBatch                        columns
    anything with __arrow_c_stream__ or _array__      columns: polars, DuckDB, RecordBatchReader, pandas 2.2
    pandas DataFrame                                  columns; NaN, NaT and NA are NULL, as they are to pandas
    bytes, bytearray, memoryview                      JSON lines: one object each (`jsonlines/changes.py`)
    iterable of dicts                                 one row each; `_op` and `_seq` are keys

The same value means the same in each of them (docs/semantics.md, "Values that are accepted").

>>> from tocsin.model.schema import Stream
>>> batch, bad = read_batch(Stream("hits"), [{"ms": 5}, {"ms": "slow", "page": "/"}])
>>> batch.rows.to_dicts(), bad
([{'ms': 5}, {'ms': 'slow', 'page': '/'}], [])
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.errors import BadRow, ChangeError
from tocsin.model.change import ChangeBatch
from tocsin.model.jsonlines.changes import read_lines
from tocsin.model.schema import Stream, Table

__all__ = ["read_batch"]

_FORMS = "a pyarrow Table, a data frame, JSON lines as bytes or an iterable of dicts"


def read_batch(relation: Table | Stream, data: Any) -> tuple[ChangeBatch, list[BadRow]]:
    """The changes of a batch in any form, and its bad rows."""
    if isinstance(data, ChangeBatch):
        return data, []
    if isinstance(data, pa.Table | pa.RecordBatch):
        return ChangeBatch.from_arrow(relation, data)
    if isinstance(data, bytes | bytearray | memoryview):
        return read_lines(relation, data)
    if _is_pandas(data):
        return _from_pandas(relation, data)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return ChangeBatch.from_arrow(relation, _from_capsule(data))
    if isinstance(data, Mapping):
        hint = "pass one row to insert, update, upsert, delete or publish; many as a list of dicts"
        raise ChangeError(f"a batch is {_FORMS}, not one dict", hint=hint)
    if isinstance(data, Iterable) and not isinstance(data, str):
        return _from_dicts(relation, list(data))
    how = "collect() it first" if hasattr(data, "collect") else None
    if isinstance(data, str):
        how = "JSON lines are bytes: encode() it"
    raise ChangeError(f"a batch is {_FORMS}, not {type(data).__name__}", hint=how)


def _from_dicts(relation: Table | Stream, rows: list[Any]) -> tuple[ChangeBatch, list[BadRow]]:
    """Rows as dicts; a row that is none is bad."""
    strange = {i: row for i, row in enumerate(rows) if not isinstance(row, Mapping)}
    if len(strange) == len(rows) and rows:
        hint = f"a batch is {_FORMS}"
        raise ChangeError(f"a row is a dict, not {type(rows[0]).__name__}", 0, hint)
    good = [(i, row) for i, row in enumerate(rows) if i not in strange]
    ops: list[Any] = ["insert"] * len(good)
    seqs = [row.get("_seq") for _, row in good] if any("_seq" in row for _, row in good) else None
    plain = [row for _, row in good]
    for n, row in enumerate(plain):
        if "_op" in row or "_seq" in row:
            ops[n] = row.get("_op", "insert")
            plain[n] = {name: value for name, value in row.items() if name not in ("_op", "_seq")}
    batch, bad = ChangeBatch.from_dicts(relation, plain, ops, seqs)
    if not strange:
        return batch, bad
    number = np.array([i for i, _ in good], np.int64)
    bad = [BadRow(int(number[i]), reason) for i, reason in bad]
    bad += [BadRow(i, f"a row is a dict, not {type(row).__name__}") for i, row in strange.items()]
    return batch.renumbered(number), sorted(bad)


def _from_capsule(data: Any) -> pa.Table:
    """Columns through Arrow's C interface."""
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
        return pa.Table.from_batches([pa.record_batch(data)])
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError) as error:
        raise ChangeError(f"the batch cannot be read: {error}") from None


# -- pandas -------------------------------------------------------------------------------------------


def _is_pandas(data: Any) -> bool:
    pandas = sys.modules.get("pandas")  # without it there is no data frame either
    return pandas is not None and isinstance(data, pandas.DataFrame)


def _from_pandas(relation: Table | Stream, frame: Any) -> tuple[ChangeBatch, list[BadRow]]:
    """Columns, or rows if a column has values of several types; the index is ignored."""
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, OverflowError, TypeError):
        rows = [
            {str(name): None if _is_nan(value) else value for name, value in row.items()}
            for row in frame.astype(object).to_dict("records")
        ]
        return _from_dicts(relation, rows)
    except ValueError as error:  # a name that occurs twice
        raise ChangeError(f"the batch cannot be read: {error}") from None
    return ChangeBatch.from_arrow(relation, table)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value
