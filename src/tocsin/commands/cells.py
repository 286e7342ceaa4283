"""Cells of a CSV file: text, read as the type of their column.

A whole column is cast at once; only where that fails is it read cell by cell, each distinct text
once, so that one bad cell costs its own row and no other. A column without a declared type has
the first type that all its cells have: BIGINT, DOUBLE, BOOLEAN, DATE, TIMESTAMP; or that most of them
have, nine of ten at least; or else STRING.

>>> column = pa.array(["3", "2.5", "", "x"])
>>> fit(column, Type.DOUBLE)[0].to_pylist(), fit(column, Type.DOUBLE)[1]
([3.0, 2.5, None, None], [3])
>>> infer(pa.array(["3", "", "4"])), infer(pa.array(["2013-01-31", "2013-02-01 05:00"])), infer(column)
(<Type.BIGINT: 'BIGINT'>, <Type.TIMESTAMP: 'TIMESTAMP'>, <Type.STRING: 'STRING'>)
>>> infer(pa.array(["warming up"] * 100 + ["5"] * 900))
<Type.BIGINT: 'BIGINT'>
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.model.schema import Type
from tocsin.model.values import read

__all__ = ["fit", "guess", "infer"]

NULLS = ("", "NA", "N/A", "NULL", "null")  # in columns that are not text; in those only an empty cell
_TRIED = (Type.BIGINT, Type.DOUBLE, Type.BOOLEAN, Type.DATE, Type.TIMESTAMP)
_TRIED_FIRST = 256  # cells from all over, that rule out most types
_FEW = 0.1  # of a column's cells, that may be of another type
_TRUTHS = {"true": True, "false": False, "1": True, "0": False}


def fit(column: Any, type: Type) -> tuple[Any, list[int]]:
    """A column of text as a type, and which cells are none of it (they are null then)."""
    if type is Type.STRING:
        return column, []
    column = _plain(column)
    whole = _cast(column, type)
    if whole is not None:
        return whole, []
    encoded = column.dictionary_encode()
    values: list[Any] = []
    wrong: list[int] = []
    for n, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            values.append(_value(text, type))
        except (ValueError, OverflowError):
            values.append(None)
            wrong.append(n)
    which = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(np.isin(which, wrong)).tolist()
    return pa.array(values, type.arrow).take(encoded.indices), bad


def infer(column: Any) -> Type | None:
    """The type that all cells have, or nearly all; None if there are no cells."""
    column = _plain(column)
    count = len(column) - column.null_count
    if not count:
        return None
    for type in _TRIED:
        if _cast(column, type) is not None:
            return type
    some = column.drop_null().take(pa.array(np.linspace(0, count - 1, min(count, _TRIED_FIRST)).astype(int)))
    likely = [type for type in _TRIED if len(fit(some, type)[1]) <= 3 * _FEW * len(some)]
    misfits = {type: len(fit(column, type)[1]) for type in likely}
    best = min(likely, key=lambda type: misfits[type], default=Type.STRING)
    return best if misfits.get(best, count) <= _FEW * count else Type.STRING


def guess(text: str) -> int | float | str:
    """One cell that is not of its column's type: a number, or the text itself.

    >>> guess("2.5"), guess("n/a")
    (2.5, 'n/a')
    """
    for type in (Type.BIGINT, Type.DOUBLE):
        try:
            number: int | float = _value(text.strip(), type)
        except (ValueError, OverflowError):
            continue
        return number
    return text


def _plain(column: Any) -> Any:
    trimmed = pc.utf8_trim_whitespace(column)
    nothing = pc.is_in(trimmed, value_set=pa.array(NULLS))
    return pc.if_else(nothing, pa.scalar(None, pa.string()), trimmed)


def _cast(column: Any, type: Type) -> Any:
    """The whole column, or None if Arrow cannot read some cell."""
    ways = (pa.timestamp("us"), type.arrow) if type is Type.TIMESTAMP else (type.arrow,)  # without zone, with
    for way in ways:
        try:
            return pc.cast(column, way)
        except pa.ArrowInvalid:
            continue
    return None


def _value(text: str, type: Type) -> Any:
    if type in (Type.DATE, Type.TIMESTAMP):
        return read(type, text)
    if type is Type.BOOLEAN:
        if text.lower() not in _TRUTHS:
            raise ValueError(text)
        return _TRUTHS[text.lower()]
    if "_" in text:  # Python would take 1_000
        raise ValueError(text)
    number = float(text)
    if type is Type.DOUBLE:
        return number
    if text.lstrip("+-").isdigit():
        return read(type, int(text))
    return read(type, int(number) if number.is_integer() else number)  # 5.0, as some programs write 5
