"""Streams and tables: named, typed columns.

A *table* has a primary key and keeps rows. A *stream* keeps none: each event passes once, though
it may be retained for a while, for subscriptions still to come. A stream declared without columns
is *open*: any attribute may occur in an event, and an attribute's type is the type of the value it
carries.

>>> stocks = Table("stocks", (Field("symbol", Type.STRING), Field("per", Type.DOUBLE)), key=("symbol",))
>>> print(stocks)
CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol))
>>> Stream("listings").open
True
>>> print(Stream("listings", retain=timedelta(minutes=90)))
CREATE STREAM listings RETAIN '1 hour 30 minutes'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa

__all__ = ["Catalog", "Field", "Relation", "Stream", "Table", "Type", "quote"]


class Type(StrEnum):
    """The types of columns; `kind` says which of them compare with each other."""

    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    BOOLEAN = "BOOLEAN"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"

    @property
    def kind(self) -> str:
        """`number`, `text`, `boolean` or `time`: types of one kind compare, others do not."""
        return _KINDS[self]

    @property
    def arrow(self) -> Any:
        return _ARROW[self]

    @property
    def numeric(self) -> bool:
        return self in (Type.BIGINT, Type.DOUBLE)


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
    """One column of a stream or table."""

    name: str
    type: Type

    def __str__(self) -> str:
        return f"{quote(self.name)} {self.type}"


@dataclass(frozen=True, slots=True)
class Relation:
    """What streams and tables share: a name and typed fields."""

    name: str
    fields: tuple[Field, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def find(self, name: str, *, exact: bool = False) -> Field | None:
        """The field of that name: spelled so, or (unless `exact`) the only one that differs by case."""
        for field in self.fields:
            if field.name == name:
                return field
        alike = [] if exact else [f for f in self.fields if f.name.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else None


@dataclass(frozen=True, slots=True)
class Table(Relation):
    """Rows with a primary key."""

    key: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        return False

    def __str__(self) -> str:
        key = ", ".join(map(quote, self.key))
        return f"CREATE TABLE {quote(self.name)} ({', '.join(map(str, self.fields))}, PRIMARY KEY ({key}))"


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
        retain = "" if self.retain is None else f" RETAIN '{_duration(self.retain)}'"
        return f"CREATE STREAM {quote(self.name)}{columns}{retain}"


def _duration(span: timedelta) -> str:
    """A positive duration in the words of RETAIN, to the microsecond.

    >>> _duration(timedelta(days=8, minutes=1)), _duration(timedelta(microseconds=1_500_001))
    ('8 days 1 minute', '1.500001 seconds')
    """
    minutes, seconds = divmod(span.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{span.microseconds:06d}".rstrip("0") if span.microseconds else ""
    numbers = (f"{span.days}", f"{hours}", f"{minutes}", f"{seconds}{fraction}")
    parts = zip(numbers, ("day", "hour", "minute", "second"), strict=True)
    return " ".join(f"{n} {unit}{'' if n == '1' else 's'}" for n, unit in parts if n != "0")


Catalog = Mapping[str, Table | Stream]
