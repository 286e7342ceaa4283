"""One value at a time: from Python or JSON into a column's type, or a reason why not.

>>> read(Type.BIGINT, 3), read(Type.DOUBLE, 3), read(Type.DATE, "2013-01-31")
(3, 3.0, datetime.date(2013, 1, 31))
>>> read(Type.BIGINT, 2.5)
Traceback (most recent call last):
...
ValueError: 2.5 is not a BIGINT
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from numbers import Integral, Real
from typing import Any

from tocsin.model.schema import Type

__all__ = ["kind_of", "read"]

_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def read(type: Type, value: Any, *, json: bool = False) -> Any:
    """The value as the column's type; None stays None. From JSON, doubles may be "NaN" or "Infinity"."""
    if value is None:
        return None
    if json and type is Type.DOUBLE and isinstance(value, str):
        value = _SPECIAL.get(value, value)
    try:
        return _READERS[type](value)
    except (TypeError, ValueError, OverflowError):
        shown = repr(value)
        raise ValueError(f"{shown if len(shown) <= 60 else shown[:57] + '...'} is not a {type}") from None


def kind_of(value: Any) -> Type:
    """The type an open stream's attribute has by its value."""
    if isinstance(value, bool):
        return Type.BOOLEAN
    if isinstance(value, Integral):
        return Type.BIGINT if -(2**63) <= int(value) < 2**63 else Type.DOUBLE
    if isinstance(value, Real):
        return Type.DOUBLE
    if isinstance(value, str):
        return Type.STRING
    if isinstance(value, datetime):
        return Type.TIMESTAMP
    if isinstance(value, date):
        return Type.DATE
    raise ValueError(f"{value!r} is not a number, text, boolean, date or timestamp")


def _bigint(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or not -(2**63) <= int(value) < 2**63:
        raise ValueError
    return int(value)


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError
    return float(value) + 0.0  # -0.0 becomes 0.0


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    value.encode("utf-8")  # half of a surrogate pair is no text
    return str(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):
        raise ValueError
    return bool(value)


def _date(value: Any) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(value, datetime) or not isinstance(value, date):
        raise ValueError
    return value


def _timestamp(value: Any) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        raise ValueError
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return datetime.combine(
        value.astimezone(UTC).date(), value.astimezone(UTC).time(), UTC
    )  # a plain datetime


_READERS: dict[Type, Callable[[Any], Any]] = {
    Type.BIGINT: _bigint,
    Type.DOUBLE: _double,
    Type.STRING: _string,
    Type.BOOLEAN: _boolean,
    Type.DATE: _date,
    Type.TIMESTAMP: _timestamp,
}
