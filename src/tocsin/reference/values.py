"""How the reference compares values: three-valued, across kinds, and rows as values to count by."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tocsin.model.schema import Type, read_time

__all__ = [
    "Row",
    "as_bag",
    "compare",
    "compares",
    "difference",
    "like",
    "microseconds",
    "plain",
    "rank",
    "row_key",
]

Row = Mapping[str, Any]

_OPS: dict[str, Callable[[int, int], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compares(left: Any, op: str, right: Any) -> bool | None:
    if isinstance(left, str) and isinstance(right, date):  # an attribute of an open stream
        left = _time_in(left)
    order = compare(left, right)
    return None if order is None else _OPS[op](order, 0)


def compare(left: Any, right: Any) -> int | None:
    """-1, 0 or 1 as left is below, equal to or above right; None for NULL and for different kinds.

    >>> compare(math.nan, math.inf), compare(math.nan, math.nan), compare(2**53 + 1, 2.0**53)
    (1, 0, 1)
    >>> compare(True, 1) is None, compare(date(2013, 1, 31), datetime(2013, 1, 31, tzinfo=UTC))
    (True, 0)
    """
    if left is None or right is None or _kind(left) != _kind(right):
        return None
    a, b = rank(left), rank(right)
    return (a > b) - (a < b)


def _time_in(text: str) -> date | None:
    """The timestamp, or the date, that a text holds; None if it holds none.

    >>> _time_in("2024-05-01T10:00:00Z"), _time_in("soon")
    (datetime.datetime(2024, 5, 1, 10, 0, tzinfo=datetime.timezone.utc), None)
    """
    try:
        return read_time(Type.TIMESTAMP, text)
    except ValueError:
        return None


def _kind(value: Any) -> str:
    if isinstance(value, bool):  # a bool is an int too, and a datetime a date: the order of tests matters
        return "boolean"
    if isinstance(value, int | float | Decimal):
        return "number"
    return "text" if isinstance(value, str) else "time"


def rank(value: Any) -> tuple[bool, Any]:
    """A value that Python orders as SQL does among values of one kind (but NULL, which has no place)."""
    if isinstance(value, float) and math.isnan(value):
        return True, 0
    return False, microseconds(value) if isinstance(value, date) else value


def microseconds(value: date) -> int:
    """Microseconds since 1970 in UTC; a date is its midnight."""
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    elif value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def like(text: str, pattern: str) -> bool:
    """LIKE: `ends` are the places in the text where some reading of the pattern so far can end."""
    ends, plain = {0}, False
    for p in pattern:
        if plain or p not in "%_\\":
            ends, plain = {e + 1 for e in ends if text[e : e + 1] == p}, False
        elif p == "\\":
            plain = True
        elif p == "_":
            ends = {e + 1 for e in ends if e < len(text)}
        else:
            ends = set(range(min(ends), len(text) + 1)) if ends else ends
    return len(text) in ends


def difference(left: Any, right: Any) -> tuple[int, Any]:
    """left - right for a band, as (0, number); (1, 0) is above every number and (-1, 0) below.

    Two BIGINT differ by an exact integer; with a DOUBLE, both are doubles; times differ by
    microseconds. Equal values differ by 0, infinities and NaN too; a NaN is above the rest.

    >>> difference(2**63 - 1, -1), difference(0.3, 0.1), difference(date(2013, 1, 2), date(2013, 1, 1))
    ((0, 9223372036854775808), (0, 0.19999999999999998), (0, 86400000000))
    >>> difference(math.inf, math.inf), difference(math.nan, 1.0), difference(1.0, math.nan)
    ((0, 0), (1, 0), (-1, 0))
    """
    if isinstance(left, date):
        left, right = microseconds(left), microseconds(right)
    elif isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    if compare(left, right) == 0:
        return 0, 0
    if math.isnan(left):
        return 1, 0
    return (-1, 0) if math.isnan(right) else (0, left - right)


def row_key(row: Row) -> Hashable:
    """A row as a value to compare and count by: NaN equals NaN, 0.0 equals -0.0, True is not 1.

    >>> row_key({"a": math.nan, "b": -0.0}) == row_key({"b": 0.0, "a": math.nan})
    True
    >>> row_key({"a": 1}) == row_key({"a": True})
    False
    """
    return tuple(sorted((name, type(value).__name__, plain(value)) for name, value in row.items()))


def plain(value: Any) -> Hashable:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def as_bag(rows: Iterable[Row]) -> Counter[Hashable]:
    """How often each row occurs.

    >>> as_bag([{"a": 1}, {"a": 1}]) == as_bag([{"a": 1}])
    False
    """
    return Counter(map(row_key, rows))
