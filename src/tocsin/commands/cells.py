"""Cells of CSV as values: a cell means the same whatever stands beside it.

Of a declared column, a cell has the column's type or is bad. Of an open stream, it has its own:

    NULL        an empty cell, NA, N/A, NULL, null
    BIGINT      a sign and digits, within 64 bits; beyond, the nearest DOUBLE
    DOUBLE      digits with a point or an exponent; NaN, nan, Infinity, inf and their negatives
    BOOLEAN     true, false, in any case
    DATE        2024-05-01, TIMESTAMP 2024-05-01 12:00 and the other forms of ISO text (`schema.read_time`)
    STRING      anything else, 0x10 too

Spaces around a cell are ignored, except in text. Columns are converted as a whole; only unusual cells are
converted one by one, each distinct text once.

>>> [array.to_pylist() for array in own_types(pa.array(["5", "2.5", "x", "", "0x10"]))]
[[5, None, None, None, None], [None, 2.5, None, None, None], [None, None, 'x', None, '0x10']]
>>> values, wrong = fit(pa.array(["3", "2.5", "", "x"]), Type.DOUBLE)
>>> values.to_pylist(), wrong
([3.0, 2.5, None, None], [3])
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tocsin.model.buffers import to_arrow, to_numpy
from tocsin.model.columns import Mask, Vector, stored
from tocsin.model.schema import Type, read
from tocsin.model.times import read_times

__all__ = ["NULLS", "fit", "own_types"]

NULLS = ("", "NA", "N/A", "NULL", "null")  # in declared columns of text, only an empty cell is NULL
_WHOLE = r"^[+-]?[0-9]+$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_DIGIT = r"^[+-]?\.?[0-9]"  # numbers and times begin like this
_SPECIAL = ("NaN", "nan", "inf", "-inf", "Infinity", "-Infinity")
_SAFE = 18  # characters of a whole number that surely has 64 bits
_TRUTHS = ("true", "false")


def fit(column: Any, type: Type) -> tuple[Any, list[int]]:
    """A column of text as a type, and the positions of cells that are not of it (they become NULL)."""
    if type is Type.STRING:
        return column, []
    texts, there = _trimmed(column)
    values: NDArray[Any]
    if type.kind == "time":
        values, fine = read_times(type, texts)
    elif type.is_decimal:
        values, fine = _one_by_one(texts, lambda text: stored(type, read(type, text)), np.int64)
        return Vector(type, values, there & fine).arrow, np.flatnonzero(there & ~fine).tolist()
    elif type is Type.BOOLEAN:
        lower = pc.utf8_lower(texts)
        values, fine = _is_in(lower, ("true", "1")), _is_in(lower, (*_TRUTHS, "1", "0"))
    else:
        values, fine = _whole_numbers(texts, _matching(texts, _WHOLE))
        if type is Type.DOUBLE:
            values, fine = _doubles(texts, there & _matching(texts, _NUMBER))
        left = there & ~fine
        if left.any():
            convert = _exact_whole if type is Type.BIGINT else _double
            values, fine = values.copy(), fine.copy()
            values[left], fine[left] = _one_by_one(texts.filter(to_arrow(left)), convert, values.dtype)
    return _array(type, values, there & fine), np.flatnonzero(there & ~fine).tolist()


def own_types(column: Any) -> list[Any]:
    """The cells of a column by their own types: one array for each type that occurs."""
    texts, left = _trimmed(column)
    found: list[tuple[Type, Any, Mask]] = []
    values, fine = _whole_numbers(texts, left & _matching(texts, _WHOLE))
    found.append((Type.BIGINT, values, fine))
    digits = fine if np.array_equal(fine, left) else left & _matching(texts, _DIGIT)
    if digits.any() and not np.array_equal(fine, digits):
        numbers = digits & ~fine & _matching(texts, _NUMBER)
        found.append((Type.DOUBLE, *_doubles(texts, numbers)))
        for type in (Type.DATE, Type.TIMESTAMP):
            times = digits & ~fine & ~numbers & ~found[-1][2]
            if times.any():
                values, fine_times = read_times(type, texts)
                found.append((type, values, fine_times & times))
    words = left & ~digits
    if words.any():
        lower = pc.utf8_lower(texts)
        found.append((Type.BOOLEAN, _is_in(lower, ("true",)), words & _is_in(lower, _TRUTHS)))
        special = words & _is_in(texts, _SPECIAL)
        if special.any():
            doubles, are_doubles = _doubles(texts, special)
            found.append((Type.DOUBLE, doubles, are_doubles))
    for _, _, mask in found:
        left = left & ~mask
    arrays = [_array(type, values, mask) for type, values, mask in found if mask.any()]
    if left.any() or not arrays:
        arrays.append(pc.if_else(to_arrow(left), column, pa.scalar(None, column.type)))
    return arrays


def _trimmed(column: Any) -> tuple[Any, Mask]:
    """The cells without spaces around them, NULL ones empty; and which are not NULL."""
    texts = pc.utf8_trim_whitespace(column).fill_null("")
    there = ~_is_in(texts, NULLS)
    return (texts if there.all() else pc.if_else(to_arrow(there), texts, "")), there


def _matching(texts: Any, pattern: str) -> Mask:
    return np.asarray(to_numpy(pc.match_substring_regex(texts, pattern)), np.bool_)


def _is_in(texts: Any, words: tuple[str, ...]) -> Mask:
    return np.asarray(to_numpy(pc.is_in(texts, value_set=pa.array(words, texts.type))), np.bool_)


def _array(type: Type, values: NDArray[Any], valid: Mask) -> Any:
    if type is Type.DATE:
        return to_arrow(values.astype(np.int32), pa.int32(), valid).cast(pa.date32())
    return to_arrow(values, None, valid).cast(type.arrow)


# -- numbers --------------------------------------------------------------------------------------------


def _whole_numbers(texts: Any, whole: Mask) -> tuple[NDArray[np.int64], Mask]:
    """Signs and digits as integers; False where they have more than 64 bits."""
    values, fine = np.zeros(len(texts), np.int64), whole.copy()
    if not whole.any():
        return values, fine
    short = whole & (np.asarray(to_numpy(pc.binary_length(texts))) <= _SAFE)
    some = texts if short.all() else texts.filter(to_arrow(short))
    values[short] = to_numpy(pc.cast(pc.utf8_ltrim(some, "+"), pa.int64()))
    long = whole & ~short
    if long.any():
        values[long], fine[long] = _one_by_one(texts.filter(to_arrow(long)), _exact_whole, np.int64)
    return values, fine


def _doubles(texts: Any, numbers: Mask) -> tuple[NDArray[np.float64], Mask]:
    """Numbers as the nearest doubles; False for whole numbers beyond all of them."""
    values, fine = np.zeros(len(texts), np.float64), numbers.copy()
    if numbers.any():
        some = texts if numbers.all() else texts.filter(to_arrow(numbers))
        values[numbers] = to_numpy(pc.cast(some, pa.float64()))
        fine[numbers] = ~np.isinf(values[numbers]) | ~_matching(some, _WHOLE)
    return values, fine


def _one_by_one(texts: Any, convert: Callable[[str], Any], dtype: Any) -> tuple[NDArray[Any], Mask]:
    """Each distinct text converted by itself; False where that is impossible."""
    coded = texts.dictionary_encode()
    values, fine = np.zeros(len(coded.dictionary), dtype), np.zeros(len(coded.dictionary), np.bool_)
    for i, text in enumerate(coded.dictionary.to_pylist()):
        try:
            values[i], fine[i] = convert(text), True
        except (ValueError, ArithmeticError):
            continue
    which = to_numpy(coded.indices)
    return values[which], fine[which]


def _exact_whole(text: str) -> int:
    """A whole number, maybe as 5.0, which some programs write for 5."""
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return int(read(Type.BIGINT, Decimal(text)))


def _double(text: str) -> float:
    """NaN and infinity in any case; numbers were read before."""
    if text.lower().lstrip("+-") not in ("nan", "inf", "infinity"):
        raise ValueError(text)
    return float(text)
