"""Every ordered value as an integer, every comparison as a closed interval of integers.

Numbers, dates, timestamps and booleans of one column all map to int64 codes of the same
order. A literal need not be a value of the column (`n < 2.5` over BIGINT, `x = 2^53 + 1` over
DOUBLE): it lies on a code or between two of them, and that is all a comparison has to know.

    n < 2.5     ->   codes min..2          n = 2.5    ->   no code at all
    n >= 2.5    ->   codes 3..max

Comparisons are exact: no value is rounded to the other side's type.

>>> interval(Type.BIGINT, "<", 2.5) == (LEAST, 2)
True
>>> interval(Type.BIGINT, "=", 2.5)
(1, 0)
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta

import numpy as np

from tocsin.language.algebra import Value
from tocsin.model.columns import Index, Vector, double_codes
from tocsin.model.schema import Type

__all__ = ["GREATEST", "LEAST", "column_codes", "fits", "interval"]

LEAST, GREATEST = -(2**63), 2**63 - 1
EMPTY = (1, 0)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000_000  # microseconds


def fits(type: Type, value: Value) -> bool:
    """Whether a literal is of the column's kind: number, text, boolean or time.

    >>> fits(Type.BIGINT, 2.5), fits(Type.BIGINT, True), fits(Type.DATE, "x")
    (True, False, False)
    """
    if isinstance(value, bool):
        return type is Type.BOOLEAN
    if isinstance(value, int | float):
        return type.numeric
    if isinstance(value, str):
        return type is Type.STRING
    return isinstance(value, date) and type.kind == "time"


def interval(type: Type, op: str, value: Value) -> tuple[int, int]:
    """The codes for which `column op value` holds, closed; op one of = < <= > >=."""
    below, exact = _locate(type, value)
    if op == "=":
        low, high = (below, below) if exact else EMPTY
    elif op == "<":
        low, high = LEAST, below - 1 if exact else below
    elif op == "<=":
        low, high = LEAST, below
    elif op == ">":
        low, high = below + 1, GREATEST
    else:
        low, high = below if exact else below + 1, GREATEST
    low, high = max(low, LEAST), min(high, GREATEST)
    return (low, high) if low <= high else EMPTY


def column_codes(vector: Vector) -> Index:
    """The codes of a column of any type but STRING."""
    return double_codes(vector.values) if vector.type is Type.DOUBLE else vector.values.astype(np.int64)


def _locate(type: Type, value: Value) -> tuple[int, bool]:
    """The greatest code not above the literal, and whether it is the literal's own."""
    if isinstance(value, bool):
        return int(value), True
    if isinstance(value, int | float):
        return _locate_double(value) if type is Type.DOUBLE else _locate_integer(value)
    if isinstance(value, datetime):
        microseconds = (value - _EPOCH) // timedelta(microseconds=1)
        if type is Type.TIMESTAMP:
            return microseconds, True
        return microseconds // _DAY, microseconds % _DAY == 0
    assert isinstance(value, date)
    days = value.toordinal() - _EPOCH.toordinal()
    return (days, True) if type is Type.DATE else (days * _DAY, True)


def _locate_integer(value: int | float) -> tuple[int, bool]:
    if isinstance(value, int):
        return value, True  # may lie outside int64: `interval` cuts it off
    if math.isnan(value) or value == math.inf:
        return GREATEST, False
    if value == -math.inf:
        return LEAST - 1, False
    return math.floor(value), value == math.floor(value)


def _locate_double(value: int | float) -> tuple[int, bool]:
    try:
        near = float(value)
    except OverflowError:  # an integer beyond all finite doubles
        near = math.inf if value > 0 else -math.inf
    code = int(double_codes(np.array([near]))[0])
    if near == value or (math.isnan(near) and math.isnan(value)):
        return code, True
    return (code, False) if near < value else (code - 1, False)
