"""Streams and tables: named, typed columns; and values read into those types.

A *table* has a primary key and keeps rows. A *stream* keeps none: each event passes once, though
it may be retained for a while, for future subscriptions. A stream declared without columns
is *open*: any attribute may occur in an event, and an attribute's type is the type of the value it
carries.

>>> stocks = Table("stocks", (Field("symbol", Type.STRING), Field("per", Type.DOUBLE)), key=("symbol",))
>>> print(stocks)
CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol))
>>> Stream("listings").open
True
>>> print(Stream("listings", retain=timedelta(minutes=90)))
CREATE STREAM listings RETAIN '1 hour 30 minutes'

`read` takes one value from Python or JSON into a type, or says why it does not fit. Times in text are read
in one way, in rows and in SQL; see `read_time`.

>>> read(Type.BIGINT, 3), read(Type.DOUBLE, 3), read(Type.DATE, "2013-01-31")
(3, 3.0, datetime.date(2013, 1, 31))
>>> read(Type.BIGINT, 2.5)
Traceback (most recent call last):
...
ValueError: 2.5 is not a BIGINT
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import partial
from numbers import Integral, Real
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tocsin.model.decimals import MOST_DIGITS, DecimalOverflow, units_of, value_of_units

__all__ = [
    "SIMPLE",
    "Catalog",
    "Field",
    "Relation",
    "Stream",
    "Table",
    "Type",
    "average_type",
    "decimal_type",
    "is_missing",
    "is_nested",
    "kind_of",
    "print_duration",
    "quote",
    "read",
    "read_time",
    "sum_type",
]


class Type(StrEnum):
    """The types of columns; `kind` says which of them compare with each other.

    A DECIMAL has a precision and a scale, so there is one member for each: they are made when they are first
    named, and are not among those that iteration gives.

    >>> Type("DECIMAL(9,2)") is decimal_type(9, 2), Type("DECIMAL(9,2)").scale, len(Type)
    (True, 2, 6)
    """

    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    BOOLEAN = "BOOLEAN"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"

    @classmethod
    def _missing_(cls, value: object) -> Type | None:
        found = _DECIMAL.fullmatch(value) if isinstance(value, str) else None
        if found is None or value != f"DECIMAL({int(found[1])},{int(found[2])})":
            return None
        precision, scale = int(found[1]), int(found[2])
        if not 1 <= precision <= WIDEST or scale > precision:
            return None
        with _MAKING:
            if value not in cls._value2member_map_:
                made = str.__new__(cls, value)
                made._name_, made._value_ = value, value
                _KINDS[made], _ARROW[made] = "number", pa.decimal128(precision, scale)
                _SIZES[made], _READERS[made] = (precision, scale), partial(read_decimal, made)
                cls._value2member_map_[value] = made
        return cls._value2member_map_[value]  # type: ignore[return-value]

    @property
    def kind(self) -> str:
        """`number`, `text`, `boolean` or `time`: types of one kind compare, others do not."""
        return _KINDS[self]

    @property
    def arrow(self) -> Any:
        return _ARROW[self]

    @property
    def numeric(self) -> bool:
        return self in (Type.BIGINT, Type.DOUBLE) or self in _SIZES

    @property
    def is_decimal(self) -> bool:
        return self in _SIZES

    @property
    def is_exact(self) -> bool:
        """Whether values are whole multiples of a unit, kept as integers: BIGINT and DECIMAL."""
        return self is Type.BIGINT or self in _SIZES

    @property
    def precision(self) -> int:
        """The most digits of a DECIMAL, or of any BIGINT."""
        return _SIZES[self][0] if self in _SIZES else 20

    @property
    def scale(self) -> int:
        """How many of them are behind the point."""
        return _SIZES[self][1] if self in _SIZES else 0


WIDEST = 38  # digits of a DECIMAL that an expression or a sum gives; values have 64 bits of its unit
_DECIMAL = re.compile(r"DECIMAL\((\d{1,2}),(\d{1,2})\)", re.ASCII)
_SIZES: dict[Type, tuple[int, int]] = {}
_MAKING = Lock()
_KINDS = {
    Type.BIGINT: "number",
    Type.DOUBLE: "number",
    Type.STRING: "text",
    Type.BOOLEAN: "boolean",
    Type.DATE: "time",
    Type.TIMESTAMP: "time",
}
_ARROW = {
    Type.BIGINT: pa.int64(),
    Type.DOUBLE: pa.float64(),
    Type.STRING: pa.string(),
    Type.BOOLEAN: pa.bool_(),
    Type.DATE: pa.date32(),
    Type.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}


def decimal_type(precision: int, scale: int) -> Type:
    """DECIMAL(precision, scale)."""
    return Type(f"DECIMAL({precision},{scale})")


def sum_type(type: Type) -> Type:
    """The type of SUM of a DECIMAL: ten digits more, as in Spark.

    >>> print(sum_type(decimal_type(9, 2)))
    DECIMAL(19,2)
    """
    return decimal_type(min(type.precision + 10, WIDEST), type.scale)


def average_type(type: Type) -> Type:
    """The type of AVG of a DECIMAL: four more digits behind the point, as in Spark, but 18 digits in all.

    >>> print(average_type(decimal_type(9, 2)), average_type(decimal_type(16, 2)))
    DECIMAL(13,6) DECIMAL(18,4)
    """
    more = max(0, min(4, MOST_DIGITS - type.precision))
    return decimal_type(type.precision + more, type.scale + more)


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_RESERVED = frozenset(
    """all alter and anti any array as asc between bigint boolean both by case cast check collate column
    connect_by_root constraint create cross current_date current_time current_timestamp current_user
    date default delete desc describe distinct double drop else end escape except exists explain false
    fetch first for foreign from full glob grant group having if ilike in index inner insert intersect
    interval into is join key last lateral leading left like limit list map merge minus natural not
    notnull null nullable nulls object offset on only or order outer overlaps partition partitioned_by
    primary qualify range references regexp replace returning revoke right rlike rollback row rows
    schema select semi serdeproperties session_user set show some stream string struct table tablesample
    then time timestamp to trailing true truncate uncache union unique unknown unpivot update use user
    using values view when where window with xor""".split()
)


def quote(name: str) -> str:
    """An identifier as SQL text: bare where that is safe, else in backticks.

    >>> quote("price"), quote("unit price"), quote("order")
    ('price', '`unit price`', '`order`')
    """
    if _PLAIN.match(name) and name.lower() not in _RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


class Field(NamedTuple):
    """One column of a stream or table.

    `size`: the declared type, if it limits values further, such as VARCHAR(20) or INT. `default`: the value
    where none is given; None is NULL, which `required` forbids.

    >>> print(Field("name", Type.STRING, "VARCHAR(20)", True, "nobody"))
    name VARCHAR(20) NOT NULL DEFAULT 'nobody'
    """

    name: str
    type: Type
    size: str = ""
    required: bool = False
    default: Any = None

    @property
    def is_constrained(self) -> bool:
        return bool(self.size or self.required) or self.default is not None

    def __str__(self) -> str:
        text = f"{quote(self.name)} {self.size or self.type}{' NOT NULL' if self.required else ''}"
        if self.default is None:
            return text
        if isinstance(self.default, Decimal):
            return f"{text} DEFAULT {self.default:f}"
        from tocsin.model.expressions.tree import print_value  # which imports this module

        return f"{text} DEFAULT {print_value(self.default)}"


@dataclass(frozen=True, slots=True)
class Relation:
    """What streams and tables share: a name and typed fields."""

    name: str
    fields: tuple[Field, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @property
    def has_decimals(self) -> bool:
        return any(field.type.is_decimal for field in self.fields)

    def find(self, name: str, *, exact: bool = False) -> Field | None:
        """The field of that name: spelled so, or (unless `exact`) the only one that differs by case."""
        for field in self.fields:
            if field.name == name:
                return field
        alike = [] if exact else [f for f in self.fields if f.name.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else None


@dataclass(frozen=True, slots=True)
class Table(Relation):
    """Rows with a primary key. `payload`: large columns, which messages carry apart from the others."""

    key: tuple[str, ...] = ()
    payload: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        return False

    def __str__(self) -> str:
        key = ", ".join(map(quote, self.key))
        columns = f"{', '.join(map(str, self.fields))}, PRIMARY KEY ({key})"
        payload = f" PAYLOAD ({', '.join(map(quote, self.payload))})" if self.payload else ""
        return f"CREATE TABLE {quote(self.name)} ({columns}){payload}"


@dataclass(frozen=True, slots=True)
class Stream(Relation):
    """Events that pass once; without fields, any attribute may occur. `retain`: how long each is kept."""

    retain: timedelta | None = None

    @property
    def open(self) -> bool:
        return not self.fields

    @property
    def key(self) -> tuple[str, ...]:
        return ()

    def __str__(self) -> str:
        columns = f" ({', '.join(map(str, self.fields))})" if self.fields else ""
        retain = "" if self.retain is None else f" RETAIN '{print_duration(self.retain)}'"
        return f"CREATE STREAM {quote(self.name)}{columns}{retain}"


def print_duration(span: timedelta) -> str:
    """A positive duration in the words of RETAIN, to the microsecond.

    >>> print_duration(timedelta(days=8, minutes=1)), print_duration(timedelta(microseconds=1_500_001))
    ('8 days 1 minute', '1.500001 seconds')
    """
    minutes, seconds = divmod(span.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{span.microseconds:06d}".rstrip("0") if span.microseconds else ""
    numbers = (f"{span.days}", f"{hours}", f"{minutes}", f"{seconds}{fraction}")
    parts = zip(numbers, ("day", "hour", "minute", "second"), strict=True)
    return " ".join(f"{n} {unit}{'' if n == '1' else 's'}" for n, unit in parts if n != "0")


Catalog = Mapping[str, Table | Stream]


# -- values ----------------------------------------------------------------------------------------

_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def read(type: Type, value: Any, *, json: bool = False) -> Any:
    """The value as the column's type; None and other missing values are None.

    A value of another type is accepted where nothing is lost: 1.0 for a BIGINT, midnight for a DATE. Only a
    DOUBLE is rounded. From JSON, doubles may be "NaN" or "Infinity".
    """
    if value is None:
        return None
    if json and type is Type.DOUBLE and isinstance(value, str):
        value = _SPECIAL.get(value, value)
    try:
        return _READERS[type](value)
    except DecimalOverflow as error:
        raise ValueError(f"{_shown(value)} {error}") from None
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        if is_missing(value):
            return None
        shown, hint = _shown(value), ""
        if type.kind == "time" and isinstance(value, Real | Decimal) and not isinstance(value, bool):
            hint = " (a number has no unit: give ISO text or a datetime)"
        raise ValueError(f"{shown} is not a {type}{hint}") from None


def _shown(value: Any) -> str:
    """A value in a message; Python writes no integers of more than 4,300 digits."""
    try:
        text = repr(value)
    except ValueError:
        is_int = isinstance(value, int)
        return "an integer of more than 4,300 digits" if is_int else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_missing(value: Any) -> bool:
    """Whether a value stands for NULL: None, NaT of NumPy and pandas, NA of pandas. NaN is a number.

    >>> is_missing(np.datetime64("NaT")), is_missing(float("nan"))
    (True, False)
    """
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def is_nested(value: Any) -> bool:
    """Whether a value has values inside. No type holds one; an open stream ignores it."""
    return type(value) not in SIMPLE and isinstance(value, list | tuple | Mapping | np.ndarray)


def kind_of(value: Any) -> Type:
    """The type an open stream's attribute has by its value (which is not missing)."""
    known = _EXACT.get(type(value))
    if known is not None:
        return known
    if isinstance(value, Integral):
        return Type.BIGINT if -(2**63) <= int(value) < 2**63 else Type.DOUBLE
    if isinstance(value, Decimal):  # 3 is whole, 3.00 is not
        digits = value.as_tuple().exponent
        whole = isinstance(digits, int) and digits >= 0 and value.adjusted() < 20
        return kind_of(int(value)) if whole else Type.DOUBLE
    if isinstance(value, np.datetime64):
        return Type.DATE if np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D") else Type.TIMESTAMP
    for kind, found in _KINDS_OF:
        if isinstance(value, kind):
            return found
    raise ValueError(f"{value!r} is not a number, text, boolean, date or timestamp")


SIMPLE = frozenset((str, int, float, bool, type(None)))  # types that are looked at often
_EXACT = {bool: Type.BOOLEAN, float: Type.DOUBLE, str: Type.STRING}
_KINDS_OF = (
    (bool, Type.BOOLEAN),
    (np.bool_, Type.BOOLEAN),
    (Real, Type.DOUBLE),
    (str, Type.STRING),
    (datetime, Type.TIMESTAMP),
    (date, Type.DATE),
)


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

    A date is `2013-01-31`; months and days may have one digit. A timestamp is a date, or a date,
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
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        raise ValueError
    if isinstance(value, Decimal) and value.adjusted() >= 20:  # perhaps of a billion digits
        raise ValueError
    number: Any = value
    whole = int(number)
    if whole != number or not -(2**63) <= whole < 2**63:
        raise ValueError
    return whole


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        raise ValueError
    near = float(value) + 0.0  # -0.0 becomes 0.0
    if isinstance(value, Decimal) and math.isinf(near) and value.is_finite():
        raise ValueError
    return near


def read_decimal(type: Type, value: Any) -> Decimal:
    """A number as a DECIMAL, rounded half up to its scale.

    >>> read_decimal(Type("DECIMAL(4,2)"), 19.905), read_decimal(Type("DECIMAL(4,2)"), "7")
    (Decimal('19.91'), Decimal('7.00'))
    """
    units = units_of(value, type.scale)
    if abs(units) >= 10**type.precision:
        raise DecimalOverflow(f"has more digits than {type}")
    return value_of_units(units, type.scale)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    value.encode("utf-8")  # half of a surrogate pair is no text
    return str(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValueError
    return bool(value)


def _date(value: Any) -> date:
    if isinstance(value, str):
        return read_time(Type.DATE, value)
    if isinstance(value, np.datetime64 | datetime):
        at = _timestamp(value)
        if at.time() != time():
            raise ValueError
        return at.date()
    if not isinstance(value, date):
        raise ValueError
    return value


def _timestamp(value: Any) -> datetime:
    if isinstance(value, np.datetime64):
        value = value.astype("M8[us]").item()
    if isinstance(value, str):
        value = read_time(Type.TIMESTAMP, value)
    elif not isinstance(value, date) or value != value:
        raise ValueError
    if not isinstance(value, datetime):
        return datetime.combine(value, time(), UTC)
    utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return datetime.combine(utc.date(), utc.time(), UTC)  # a plain datetime


_READERS: dict[Type, Callable[[Any], Any]] = {
    Type.BIGINT: _bigint,
    Type.DOUBLE: _double,
    Type.STRING: _string,
    Type.BOOLEAN: _boolean,
    Type.DATE: _date,
    Type.TIMESTAMP: _timestamp,
}
