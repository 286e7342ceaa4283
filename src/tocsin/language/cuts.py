"""Cuts: places between values, where ranges begin and end.

Every value takes a place between two cuts, one just below it and one just above:

         (3,0) 3 (3,1)        (5,0) 5 (5,1)
    ───────┼───┼────────────────┼───┼───────
           └── x >= 3           │   └── x > 5
                        x < 5 ──┘

so an open or a closed end is one cut, ranges compare by comparing cuts, and a range is empty when
its lower cut is not below its upper one. Numbers compare exactly whatever their type, NaN above
all; dates and timestamps by their microseconds. BIGINT, BOOLEAN and DATE columns have
neighbouring values, so there `x > 2.5` begins at 3, and ends outside the type fall away.

>>> Line(Type.DOUBLE).cuts(2.5), Line(Type.BIGINT).cuts(2), Line(Type.BIGINT).cuts(2.5)
((((False, 2.5), 0), ((False, 2.5), 1)), ((2, 0), (3, 0)), ((3, 0), (3, 0)))
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from tocsin.language.algebra import Between, Column, Compare, In, Value
from tocsin.model.schema import Type

__all__ = ["DISCRETE", "Cut", "Line", "Piece", "is_point", "kind_of", "one_of", "span"]

Cut = tuple[Any, int]
_DAY = 86400 * 10**6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_FIRST, _LAST = date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY
DISCRETE = (Type.BIGINT, Type.BOOLEAN, Type.DATE)
_DOMAINS: dict[Type | None, tuple[Cut | None, Cut | None]] = {
    Type.BIGINT: ((-(2**63), 0), (2**63 - 1, 1)),
    Type.BOOLEAN: ((0, 0), (1, 1)),
    Type.DATE: ((_FIRST, 0), (_LAST, 1)),
    Type.DOUBLE: (((False, -math.inf), 0), ((True, 0), 1)),
    Type.STRING: (("", 0), None),
}

Piece = tuple[Cut | None, Cut | None]


def kind_of(value: Value) -> str | None:
    """`number`, `text`, `boolean`, `time`, or None for NULL."""
    if value is None or isinstance(value, bool):
        return None if value is None else "boolean"
    return "number" if isinstance(value, int | float) else "text" if isinstance(value, str) else "time"


@dataclass(frozen=True, slots=True)
class Line:
    """The line on which the values of one column lie."""

    type: Type | None

    @property
    def low(self) -> Cut | None:
        return _DOMAINS.get(self.type, (None, None))[0]

    @property
    def high(self) -> Cut | None:
        return _DOMAINS.get(self.type, (None, None))[1]

    def cuts(self, value: Value) -> tuple[Cut, Cut]:
        """The cuts just below and just above a value; equal if no value of the type is there."""
        if self.type not in DISCRETE:
            key = _key(value)
            return (key, 0), (key, 1)
        floor, exact = _floor(value, self.type)
        return ((floor, 0), (floor + 1, 0)) if exact else ((floor + 1, 0), (floor + 1, 0))

    def end(self, cut: Cut) -> Cut:
        """An upper cut: between neighbours it is written after the lower of the two."""
        return (cut[0] - 1, 1) if self.type in DISCRETE and cut[1] == 0 else cut

    def value(self, key: Any, values: dict[Any, Value]) -> Value:
        """The value at a place: as it was written, or of the column's own type if that has neighbours."""
        if self.type is Type.BIGINT:
            return int(key)
        if self.type is Type.BOOLEAN:
            return bool(key)
        if self.type is Type.DATE:
            return date.fromordinal(key + _EPOCH_DAY)
        value = values[key]
        if self.type is Type.TIMESTAMP and isinstance(value, date) and not isinstance(value, datetime):
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        return value


def _key(value: Value) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return (True, 0) if value != value else (False, value)
    return _micros(value) if isinstance(value, date) else value


def _micros(value: date) -> int:
    if isinstance(value, datetime):
        past = value - _EPOCH
        return (past.days * 86400 + past.seconds) * 10**6 + past.microseconds
    return (value.toordinal() - _EPOCH_DAY) * _DAY


def _floor(value: Value, type_: Type | None) -> tuple[int, bool]:
    """The place at or before a value on a line with neighbours, and whether the value is there."""
    if isinstance(value, date):
        return _micros(value) // _DAY, _micros(value) % _DAY == 0
    assert isinstance(value, int | float)
    if isinstance(value, float) and not math.isfinite(value):
        return (-(2**64) if value < 0 else 2**64), False
    return math.floor(value), math.floor(value) == value


# -- ranges as conditions --------------------------------------------------------------------------


def is_point(piece: Piece) -> bool:
    low, high = piece
    return low is not None and high is not None and (low[0], low[1], high[1]) == (high[0], 0, 1)


def one_of(column: Column, values: list[Value]) -> Compare | In:
    return Compare(column, "=", values[0]) if len(values) == 1 else In(column, tuple(values))


def span(
    column: Column, line: Line, low: Cut | None, high: Cut | None, values: dict[Any, Value]
) -> list[Compare | Between]:
    """The range between two cuts, in one or two literals; none if it is the whole line."""
    if low is not None and is_point((low, high)):
        return [Compare(column, "=", line.value(low[0], values))]
    low, high = None if low == line.low else low, None if high == line.high else high
    if low is not None and high is not None and (low[1], high[1]) == (0, 1):
        return [Between(column, line.value(low[0], values), line.value(high[0], values))]
    found: list[Compare | Between] = []
    if low is not None:
        found.append(Compare(column, ">=" if low[1] == 0 else ">", line.value(low[0], values)))
    if high is not None:
        found.append(Compare(column, "<=" if high[1] == 1 else "<", line.value(high[0], values)))
    return found
