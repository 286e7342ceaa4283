"""One value at a time: from Python or JSON into a column's type, or a reason why not.

>>> read(Type.BIGINT, 3), read(Type.DOUBLE, 3), read(Type.DATE, "2013-01-31")
(3, 3.0, datetime.date(2013, 1, 31))
>>> read(Type.BIGINT, 2.5)
Traceback (most recent call last):
...
ValueError: 2.5 is not a BIGINT

Times in text are read in one way wherever they stand, in rows and in SQL; see `read_time`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from numbers import Integral, Real
from typing import Any

from tocsin.model.schema import Type

__all__ = ["kind_of", "read", "read_time"]

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


# -- times -----------------------------------------------------------------------------------------

_DATE = r"(\d{4})-(\d{1,2})-(\d{1,2})"
_CLOCK = r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d+))?)?"
_ZONE = r"Z| UTC|[+-]\d{2}(?::[0-5]\d)?"
_TIMES = {
    Type.DATE: re.compile(_DATE, re.ASCII),
    Type.TIMESTAMP: re.compile(f"{_DATE}(?:[T ]{_CLOCK}({_ZONE})?)?", re.ASCII),
}
_FARTHEST = timedelta(hours=18)


def read_time(type: Type, text: str) -> date:
    """A DATE or TIMESTAMP from text; ValueError if it is none.

    A date is `2013-01-31`, months and days of one digit are taken too. A timestamp is a date, or a date,
    a `T` or a space, and a time of day `5:00[:00[.000000]]`, perhaps with a zone: `Z`, ` UTC`, or an
    offset such as `+01` or `-05:30` of at most 18 hours. Without a zone it is UTC; what is
    finer than a microsecond is cut off.

    >>> read_time(Type.DATE, "2013-1-31"), read_time(Type.TIMESTAMP, "2013-01-31T05:00+01:00")
    (datetime.date(2013, 1, 31), datetime.datetime(2013, 1, 31, 4, 0, tzinfo=datetime.timezone.utc))
    """
    match = _TIMES[type].fullmatch(text.strip())
    try:
        if match and type is Type.DATE:
            return date(*map(int, match.groups()))
        if match:
            year, month, day, hour, minute, second = (int(group or 0) for group in match.groups()[:6])
            micro = int((match[7] or "").ljust(6, "0")[:6])
            local = datetime(year, month, day, hour, minute, second, micro, tzinfo=UTC)
            return local - _offset(match[8] or "Z")
    except (ValueError, OverflowError):  # a month 13, a year 10000
        pass
    raise ValueError(f"{text!r} is not a {type}")


def _offset(zone: str) -> timedelta:
    """How far a zone is ahead of UTC."""
    if zone[0] not in "+-":
        return timedelta()
    hours, _, minutes = zone[1:].partition(":")
    ahead = timedelta(hours=int(hours), minutes=int(minutes or 0))
    if ahead > _FARTHEST:
        raise ValueError("no zone is that far from UTC")
    return ahead if zone[0] == "+" else -ahead


# -- the types -------------------------------------------------------------------------------------


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
        return read_time(Type.DATE, value)
    if isinstance(value, datetime) or not isinstance(value, date):
        raise ValueError
    return value


def _timestamp(value: Any) -> datetime:
    if isinstance(value, str):
        return _timestamp(read_time(Type.TIMESTAMP, value))
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
