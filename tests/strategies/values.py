"""Values that collide: few per example, among them all that is special about a type.

An example draws a small pool of values for each type. Rows and literals come from the pools, so
ties, duplicates and hits on the very end of a range are common. Numbers have a theme: small ones,
ones beyond 2^53 where doubles have gaps, or NaN, infinities and zeros. Pools of related types
overlap: the doubles hold some of the integers, and the timestamps some midnights of the dates.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.strategies.pick import Pick
from tocsin.model.schema import Type, decimal_type

__all__ = ["CENTS", "OPEN", "RELATED", "TYPES", "Values"]

CENTS, WIDE = decimal_type(9, 2), decimal_type(18, 4)
TYPES = (Type.BIGINT, Type.DOUBLE, Type.STRING, Type.BOOLEAN, Type.DATE, Type.TIMESTAMP, CENTS)
RELATED = {
    Type.BIGINT: (Type.BIGINT, Type.DOUBLE, Type.BIGINT, CENTS),
    Type.DOUBLE: (Type.DOUBLE, Type.BIGINT, Type.DOUBLE, WIDE),
    CENTS: (CENTS, WIDE, Type.BIGINT, Type.DOUBLE),
    WIDE: (WIDE, CENTS, Type.BIGINT, Type.DOUBLE),
    Type.DATE: (Type.DATE, Type.TIMESTAMP),
    Type.TIMESTAMP: (Type.TIMESTAMP, Type.DATE),
}
_SMALL = ((0, 1, 2, 3, -1, 7), (0.0, 1.5, -1.0, 2.0, 0.1, 0.3))
_BIG = ((2**53, 2**53 + 1, 2**53 - 1, -(2**53) - 1), (2.0**53, 1.0, 2.0**53 + 2, 1e308, -(2.0**53), 2.0**63))
_ODD = ((0, 1, -1), (math.nan, 0.0, -0.0, math.inf, -math.inf, 5e-324))
_EDGES = (2**63 - 1, -(2**63), 2**63 - 2)  # sums of these overflow
_NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
_TEXTS = "a|b|ab||abc|B|ä|日本|\uff5e|😀|a%b|a_b|it's|x\\y|a\nb".split("|")
_AMOUNTS = ("0.00", "1.50", "-1.00", "2.00", "0.10", "0.01", "3.00", "-0.01", "9999999.99")
_LARGE = (Decimal("0.1001"), Decimal("99999999999999.9999"), Decimal("-99999999999999.9999"))
_OTHERS: dict[Type, tuple[Any, ...]] = {
    Type.STRING: (*_TEXTS, "z" * 40),
    CENTS: tuple(map(Decimal, _AMOUNTS)),
    WIDE: (*(Decimal(f"{text}00") for text in _AMOUNTS), *_LARGE),
    Type.BOOLEAN: (False, True),
    Type.DATE: (
        date(2013, 1, 1),
        date(2013, 1, 2),
        date(2013, 1, 31),
        date(1969, 12, 31),
        date(1, 1, 1),
        date(9999, 12, 31),
    ),
    Type.TIMESTAMP: (
        _NOON,
        _NOON + timedelta(microseconds=1),
        _NOON + timedelta(hours=12),
        _NOON - timedelta(days=20000),
    ),
}
_MIXED: tuple[tuple[Any, ...], ...] = (
    (1, True, 1.0, "1"),
    (0, False, -0.0, "false"),
    (date(2013, 1, 1), datetime(2013, 1, 1, tzinfo=UTC), "2013-01-01"),
    (math.nan, "NaN", 2**53 + 1, 2.0**53),
    (_NOON, "2013-01-01T12:00:00Z", "2013-01-01 13:00+01", "2013-01-01", date(2013, 1, 1), "2013-13-01", 5),
)


OPEN = TYPES[:6]  # of values of open streams


class Values:
    """The pools of one example, of about `size` values. `edges` adds the first and the last BIGINT."""

    def __init__(self, pick: Pick, size: int = 4, *, edges: bool = False) -> None:
        self._known: dict[Type, tuple[Any, ...]]
        integers, doubles = pick.one((_SMALL, _BIG, _ODD, tuple(a + b + c for a, b, c in _ALL_NUMBERS)))
        if edges and pick.chance(30):
            integers += _EDGES
        self._known = {Type.BIGINT: integers, Type.DOUBLE: doubles, **_OTHERS}
        self.pools = {type: tuple(pick.some(self._known[type], 2, size)) for type in (*TYPES, WIDE)}
        self._mixed = pick.one(_MIXED)
        self.pools[Type.DOUBLE] += tuple(float(v) for v in self.pools[Type.BIGINT][:2])
        self.pools[WIDE] += tuple(value.quantize(Decimal("1.0000")) for value in self.pools[CENTS][:2])
        whole = tuple(n for n in self.pools[Type.BIGINT] if abs(n) < 1000)
        self.pools[CENTS] += tuple(Decimal(n).quantize(Decimal("1.00")) for n in whole[:2])
        self.pools[Type.TIMESTAMP] += tuple(
            datetime(d.year, d.month, d.day, tzinfo=UTC) for d in self.pools[Type.DATE][:2]
        )

    def known(self, pick: Pick, type: Type) -> Any:
        """A value of the type, never NULL."""
        return pick.one(self.pools[type])

    def cell(self, pick: Pick, type: Type, *, nulls: int = 15) -> Any:
        """A value of a row: NULL as often as `nulls` says, in percent."""
        return None if pick.chance(nulls) else self.known(pick, type)

    def mixed(self, pick: Pick) -> Any:
        """A value of any type, for open streams: often one that only the type tells from another."""
        return self.known(pick, pick.one(OPEN)) if pick.chance(30) else pick.one(self._mixed)

    def key(self, pick: Pick, type: Type) -> Any:
        """A value of a primary key: neither NULL nor NaN."""
        value = self.known(pick, type)
        return 0.0 if isinstance(value, float) and math.isnan(value) else value

    def literal(self, pick: Pick, type: Type) -> Any:
        """What a condition compares a column of the type with: mostly a value that rows have too.

        A double beside a DECIMAL is the decimal number that it is written as, and the other way round.
        """
        wanted = type
        type = pick.one(RELATED.get(type, (WIDE if type.is_decimal else type,)))  # of sums there are others
        if pick.chance(2):
            return None
        found = pick.one(self._known[type]) if pick.chance(20) else self.known(pick, type)
        if isinstance(found, Decimal) and not wanted.is_decimal:
            return float(found)
        exact = wanted.is_decimal and isinstance(found, float) and math.isfinite(found)
        return Decimal(repr(found)) if exact else found


_ALL_NUMBERS = tuple(zip(_SMALL, _BIG, _ODD, strict=True))
