"""Combine conditions on one column: intersect ranges under AND, unite them under OR.

>>> x = Column("x", Type.BIGINT)
>>> print(*intersect([Compare(x, ">", 2.5), Compare(x, "<", 9), Compare(x, "!=", 3)]))
x BETWEEN 4 AND 8
>>> intersect([Compare(x, "=", 2.5)]) is None
True
>>> print(*unite([Compare(x, "=", 7), Compare(x, "<", 3), Between(x, 2, 5)]))
x <= 5 x = 7

A range begins and ends at a *cut*. Each value lies between two cuts, one just below and one just above it:

         (3,0) 3 (3,1)        (5,0) 5 (5,1)
    ───────┼───┼────────────────┼───┼───────
           └── x >= 3           │   └── x > 5
                        x < 5 ──┘

so an open or closed end is one cut, ranges compare by comparing cuts, and a range is empty when
its lower cut is not below its upper one. Numbers compare exactly whatever their type, NaN above
all; dates and timestamps by their microseconds. BIGINT, DECIMAL, BOOLEAN and DATE are discrete, so
`x > 2.5` begins at 3, and ends outside the type are dropped.

>>> Domain(Type.DOUBLE).cuts(2.5), Domain(Type.BIGINT).cuts(2), Domain(Type.BIGINT).cuts(2.5)
((((False, 2.5), 0), ((False, 2.5), 1)), ((2, 0), (3, 0)), ((3, 0), (3, 0)))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import lt
from typing import Any

from tocsin.language.algebra import (
    Atom,
    Between,
    Column,
    Compare,
    Ilike,
    In,
    IsNull,
    IsTrue,
    Like,
    Not,
    Rlike,
    Value,
)
from tocsin.model.decimals import floor_units, value_of_units
from tocsin.model.schema import Type

__all__ = [
    "DISCRETE",
    "Cut",
    "CutRange",
    "Domain",
    "Literal",
    "intersect",
    "is_point",
    "kind_of",
    "kind_of_literal",
    "points_literal",
    "range_literals",
    "unite",
]

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

CutRange = tuple[Cut | None, Cut | None]


def kind_of(value: Value) -> str | None:
    """`number`, `text`, `boolean`, `time`, or None for NULL."""
    if value is None or isinstance(value, bool):
        return None if value is None else "boolean"
    if isinstance(value, int | float | Decimal):
        return "number"
    return "text" if isinstance(value, str) else "time"


@dataclass(frozen=True, slots=True)
class Domain:
    """The ordered values of a column's type."""

    type: Type | None

    @property
    def is_discrete(self) -> bool:
        return self.type in DISCRETE or (self.type is not None and self.type.is_decimal)

    @property
    def low(self) -> Cut | None:
        return self._ends[0]

    @property
    def high(self) -> Cut | None:
        return self._ends[1]

    @property
    def _ends(self) -> tuple[Cut | None, Cut | None]:
        if self.type is not None and self.type.is_decimal:
            most = min(10**self.type.precision, 2**63) - 1
            return (-most, 0), (most, 1)
        return _DOMAINS.get(self.type, (None, None))

    def cuts(self, value: Value) -> tuple[Cut, Cut]:
        """The cuts just below and just above a value; equal if the type has no such value."""
        if not self.is_discrete:
            key = _key(value)
            return (key, 0), (key, 1)
        floor, exact = _floor(value, self.type)
        return ((floor, 0), (floor + 1, 0)) if exact else ((floor + 1, 0), (floor + 1, 0))

    def end(self, cut: Cut) -> Cut:
        """An upper cut; for a discrete type, the one just above the lower neighbour."""
        return (cut[0] - 1, 1) if self.is_discrete and cut[1] == 0 else cut

    def value(self, key: Any, values: dict[Any, Value]) -> Value:
        """The value of a key: as it was written, or in the column's type if that is discrete."""
        if self.type is Type.BIGINT:
            return int(key)
        if self.type is not None and self.type.is_decimal:
            return value_of_units(key, self.type.scale)
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
    if isinstance(value, int | float | Decimal):
        return (True, 0) if value != value else (False, value)
    return _micros(value) if isinstance(value, date) else value


def _micros(value: date) -> int:
    if isinstance(value, datetime):
        past = value - _EPOCH
        return (past.days * 86400 + past.seconds) * 10**6 + past.microseconds
    return (value.toordinal() - _EPOCH_DAY) * _DAY


def _floor(value: Value, type_: Type | None) -> tuple[int, bool]:
    """The last value of a discrete type that is not above a value, and whether the two are equal."""
    if isinstance(value, date):
        return _micros(value) // _DAY, _micros(value) % _DAY == 0
    assert isinstance(value, int | float | Decimal)
    if isinstance(value, float) and not math.isfinite(value):
        return (-(2**64) if value < 0 else 2**64), False
    return floor_units(value, 0 if type_ is None else type_.scale)


# -- ranges as conditions --------------------------------------------------------------------------


def is_point(range_: CutRange) -> bool:
    low, high = range_
    return low is not None and high is not None and (low[0], low[1], high[1]) == (high[0], 0, 1)


def points_literal(column: Column, values: list[Value]) -> Compare | In:
    return Compare(column, "=", values[0]) if len(values) == 1 else In(column, tuple(values))


def range_literals(
    column: Column, domain: Domain, low: Cut | None, high: Cut | None, values: dict[Any, Value]
) -> list[Compare | Between]:
    """The range between two cuts as one or two literals; none if it is the whole domain."""
    if low is not None and is_point((low, high)):
        return [Compare(column, "=", domain.value(low[0], values))]
    low, high = None if low == domain.low else low, None if high == domain.high else high
    if low is not None and high is not None and (low[1], high[1]) == (0, 1):
        return [Between(column, domain.value(low[0], values), domain.value(high[0], values))]
    found: list[Compare | Between] = []
    if low is not None:
        found.append(Compare(column, ">=" if low[1] == 0 else ">", domain.value(low[0], values)))
    if high is not None:
        found.append(Compare(column, "<=" if high[1] == 1 else "<", domain.value(high[0], values)))
    return found


# -- conditions on one column ----------------------------------------------------------------------


Literal = Atom | Not
_PATTERNS = Like, Ilike, Rlike, IsNull


def intersect(literals: Iterable[Literal]) -> tuple[Literal, ...] | None:
    """The conjunction of the literals, simplified per column; None if it can never hold."""
    literals, found = _without_is_true(literals)
    for column, group in _by_column(literals).items():
        merged = group if _is_simple(group) else _intersect_column(column, group)
        if merged is None:
            return None
        found += merged
    return tuple(found)


def unite(literals: Iterable[Literal]) -> tuple[Literal, ...] | None:
    """The disjunction of the literals, simplified per column; None if it always holds."""
    literals, found = _without_is_true(literals)
    for column, group in _by_column(literals).items():
        merged = group if _is_simple(group) else _unite_column(column, group)
        if merged is None:
            return None
        found += merged
    return tuple(found)


def _without_is_true(literals: Iterable[Literal]) -> tuple[list[Literal], list[Literal]]:
    """The literals to combine, and those that say what is not true, which stay as they are."""
    plain: list[Literal] = []
    others: list[Literal] = []
    for literal in literals:
        (others if isinstance(_atom(literal), IsTrue) else plain).append(literal)
    return plain, list(dict.fromkeys(others)) if len(others) > 1 else others


def _by_column(literals: Iterable[Literal]) -> dict[Column, list[Literal]]:
    groups: dict[Column, list[Literal]] = {}
    for literal in literals:
        groups.setdefault(_atom(literal).column, []).append(literal)
    return groups


def _atom(literal: Literal) -> Atom:
    if isinstance(literal, Not):
        assert not isinstance(literal.arg, Not), "NOT is pushed down first"
        return literal.arg  # type: ignore[return-value]
    return literal


def _is_simple(literals: list[Literal]) -> bool:
    """Whether these are one condition without a range, which nothing can be merged with."""
    return len(literals) == 1 and isinstance(_atom(literals[0]), _PATTERNS)


def kind_of_literal(literal: Literal) -> str | None:
    """The kind of value for which a literal can hold; None for IS NULL and IS TRUE."""
    atom = _atom(literal)
    if isinstance(atom, IsNull | IsTrue):
        return None
    if isinstance(atom, Like | Ilike | Rlike):
        return "text"
    return kind_of(
        atom.values[0] if isinstance(atom, In) else atom.low if isinstance(atom, Between) else atom.value
    )


# -- AND -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Range:
    """The values between two cuts (None: unbounded); only `points` if given; no `excluded`, no `holes`."""

    domain: Domain
    low: Cut | None
    high: Cut | None
    points: set[Any] | None = None
    excluded: set[Any] = field(default_factory=set)
    holes: list[tuple[Cut, Cut]] = field(default_factory=list)
    values: dict[Any, Value] = field(default_factory=dict)

    def raise_low(self, cut: Cut) -> None:
        if self.low is None or cut > self.low:
            self.low = cut

    def lower_high(self, cut: Cut) -> None:
        cut = self.domain.end(cut)
        if self.high is None or cut < self.high:
            self.high = cut

    def cuts(self, value: Value) -> tuple[Cut, Cut]:
        below, above = self.domain.cuts(value)
        if below != above:
            self.values.setdefault(below[0], value)
        return below, above

    def add(self, literal: Literal) -> None:
        if isinstance(literal, Not):
            atom = _atom(literal)
            if isinstance(atom, In):
                for value in atom.values:
                    self._without(value)
            elif isinstance(atom, Between):
                self.holes.append((self.cuts(atom.low)[0], self.cuts(atom.high)[1]))
        elif isinstance(literal, In):
            self._only(literal.values)
        elif isinstance(literal, Between):
            self.raise_low(self.cuts(literal.low)[0])
            self.lower_high(self.cuts(literal.high)[1])
        elif isinstance(literal, Compare):
            self._compare(literal)

    def _compare(self, literal: Compare) -> None:
        below, above = self.cuts(literal.value)
        if literal.op == "=":
            self._only((literal.value,))
        elif literal.op == "!=":
            self._without(literal.value)
        elif literal.op in (">", ">="):
            self.raise_low(below if literal.op == ">=" else above)
        else:
            self.lower_high(below if literal.op == "<" else above)

    def _only(self, values: Sequence[Value]) -> None:
        if not self.domain.is_discrete:
            keys = list(values) if set(map(type, values)) == {str} else [_key(value) for value in values]
            for key, value in zip(keys, values, strict=True):
                self.values.setdefault(key, value)
            self.points = set(keys) if self.points is None else self.points.intersection(keys)
            return
        points = {below[0] for below, above in map(self.cuts, values) if below != above}
        self.points = points if self.points is None else self.points & points

    def _without(self, value: Value) -> None:
        below, above = self.cuts(value)
        if below != above:
            self.excluded.add(below[0])

    def settle(self) -> bool:
        """Trim ends, points and holes against each other until stable; False if the range is empty."""
        before = None
        while before != (before := (self.low, self.high, len(self.holes), len(self.excluded))):
            self._trim_ends()
            self._trim_holes()
            if self.low is not None and self.high is not None and self.low >= self.high:
                return False
        if self.points:
            whole = not self.excluded and not self.holes
            if not (whole and self._inside(min(self.points)) and self._inside(max(self.points))):
                self.points = {key for key in self.points if self._has(key)}
        return self.points is None or bool(self.points)

    def _trim_ends(self) -> None:
        if self.low is not None and self.low[1] == 0 and self.low[0] in self.excluded:
            self.low = (self.low[0] + 1, 0) if self.domain.is_discrete else (self.low[0], 1)
        if self.high is not None and self.high[1] == 1 and self.high[0] in self.excluded:
            self.high = self.domain.end((self.high[0], 0))
        self.excluded = {key for key in self.excluded if self._inside(key)}

    def _trim_holes(self) -> None:
        kept = []
        for start, stop in self.holes:
            if (
                start >= stop
                or (self.low is not None and stop <= self.low)
                or (self.high is not None and start >= self.high)
            ):
                continue
            if self.low is not None and start <= self.low:
                self.low = stop
            elif self.high is not None and stop >= self.high:
                self.high = self.domain.end(start)
            elif self.domain.end(stop) == (start[0], 1) and start[1] == 0:
                self.excluded.add(start[0])
            else:
                kept.append((start, stop))
        self.holes = kept

    def _inside(self, key: Any) -> bool:
        return (self.low is None or (key, 0) >= self.low) and (self.high is None or (key, 1) <= self.high)

    def _has(self, key: Any) -> bool:
        holed = any(start <= (key, 0) and (key, 1) <= self.domain.end(stop) for start, stop in self.holes)
        return self._inside(key) and key not in self.excluded and not holed

    def _at(self, key: Any) -> Value:
        return self.domain.value(key, self.values)

    def literals(self, column: Column) -> list[Literal]:
        if self.points is not None:
            at = self.values.__getitem__ if self.domain.type in (None, Type.STRING) else self._at
            return [points_literal(column, [at(key) for key in sorted(self.points)])]
        found: list[Literal] = list(range_literals(column, self.domain, self.low, self.high, self.values))
        if self.excluded:
            values = [self._at(key) for key in sorted(self.excluded)]
            found.append(
                Compare(column, "!=", values[0]) if len(values) == 1 else Not(In(column, tuple(values)))
            )
        for start, stop in self.holes:
            found.append(Not(Between(column, self._at(start[0]), self._at(self.domain.end(stop)[0]))))
        return found


def _intersect_column(column: Column, literals: list[Literal]) -> list[Literal] | None:
    if len(literals) == 1 and isinstance(literals[0], In) and _is_sorted(literals[0]):
        return literals
    literals = list(dict.fromkeys(literals))
    if any(isinstance(literal, IsNull) for literal in literals):
        return literals if len(literals) == 1 else None  # NULL fails every other literal
    kinds = {kind_of_literal(literal) for literal in literals} - {None}
    if kinds == {"text", "time"}:  # a text of an open stream may hold a time
        parts = [
            _intersect_column(column, [literal for literal in literals if kind_of_literal(literal) in some])
            for some in (("text", None), ("time",))
        ]
        return None if None in parts else [literal for part in parts for literal in part or ()]
    if len(kinds) > 1:
        return None  # an attribute of an open stream has one kind of value
    texts = [literal for literal in literals if isinstance(_atom(literal), Like | Ilike | Rlike)]
    if not {Not(literal) for literal in texts}.isdisjoint(texts):
        return None
    domain = Domain(column.type)
    covered = _Range(domain, domain.low, domain.high)
    ranged = [
        literal for literal in literals if not isinstance(_atom(literal), IsNull | Like | Ilike | Rlike)
    ]
    for literal in ranged:
        covered.add(literal)
    if ranged and not covered.settle():
        return None
    found = (covered.literals(column) if ranged else []) + texts
    if not found and column.type is None and ranged:
        return ranged[:1]  # holds for every value of its kind, so keep one literal
    return found or [Not(IsNull(column))]


def _is_sorted(literal: In) -> bool:
    """Whether an IN is as `_Range.literals` would write it: long lists need not be merged again and again."""
    values: Any = literal.values
    types, kind = set(map(type, values)), literal.column.type
    if types == {str}:
        fits = kind in (None, Type.STRING)
    elif kind is Type.BIGINT:
        fits = types == {int} and min(values) >= -(2**63) and max(values) < 2**63
    else:
        fits = types <= {int, float} and kind in (None, Type.DOUBLE)
    return fits and len(values) > 1 and all(map(lt, values, values[1:]))


# -- OR --------------------------------------------------------------------------------------------


def _unite_column(column: Column, literals: list[Literal]) -> list[Literal] | None:
    literals = list(dict.fromkeys(literals))
    null, some = IsNull(column), Not(IsNull(column))
    if some in literals:
        return None if null in literals else [some]
    kinds = {kind_of_literal(literal) for literal in literals} - {None}
    ranged: list[Literal] = []
    rest: list[Literal] = []
    for literal in literals:
        separate = isinstance(_atom(literal), IsNull | Like | Ilike | Rlike) or _is_not_in(literal)
        (rest if separate else ranged).append(literal)
    if len(kinds) > 1 or len(ranged) < 2:
        return literals
    domain = Domain(column.type)
    values: dict[Any, Value] = {}
    ranges = [range_ for literal in ranged for range_ in _ranges_of(literal, domain, values)]
    united = _merge_ranges(ranges, domain)
    if united == [(domain.low, domain.high)]:
        if column.type is None:
            return literals
        return None if null in rest else [some]
    return _as_literals(column, domain, united, values) + rest


def _is_not_in(literal: Literal) -> bool:
    return isinstance(literal, Not) and isinstance(literal.arg, In)


def _ranges_of(literal: Literal, domain: Domain, values: dict[Any, Value]) -> list[CutRange]:
    """The ranges where one literal holds."""
    if isinstance(literal, In):
        return [
            range_
            for value in literal.values
            for range_ in _ranges_of(Compare(literal.column, "=", value), domain, values)
        ]
    if (isinstance(literal, Compare) and literal.op == "!=") or isinstance(literal, Not):
        atom = _atom(literal)
        low, high = (atom.low, atom.high) if isinstance(atom, Between) else (atom.value, atom.value)  # type: ignore[union-attr]
        covered = _Range(domain, domain.low, domain.high, values=values)
        start, stop = covered.cuts(low)[0], covered.cuts(high)[1]
        return (
            [(domain.low, domain.high)]
            if start >= stop
            else [(domain.low, domain.end(start)), (stop, domain.high)]
        )
    covered = _Range(domain, domain.low, domain.high, values=values)
    covered.add(literal)
    if covered.points is not None:
        return [((key, 0), (key, 1)) for key in covered.points if covered._inside(key)]
    return [(covered.low, covered.high)] if covered.settle() else []


def _merge_ranges(ranges: list[CutRange], domain: Domain) -> list[CutRange]:
    """The ranges in order, with touching ones merged."""
    ranges = [p for p in ranges if p[0] is None or p[1] is None or p[0] < p[1]]
    ranges.sort(key=lambda range_: (0, ()) if range_[0] is None else (1, range_[0]))
    united: list[CutRange] = []
    for low, high in ranges:
        if united and (united[-1][1] is None or low is None or low <= _after(united[-1][1], domain)):
            last = united[-1][1]
            united[-1] = (united[-1][0], None if last is None or high is None else max(last, high))
        else:
            united.append((low, high))
    return united


def _after(cut: Cut, domain: Domain) -> Cut:
    return (cut[0] + 1, 0) if domain.is_discrete and cut[1] == 1 else cut


def _as_literals(
    column: Column, domain: Domain, ranges: list[CutRange], values: dict[Any, Value]
) -> list[Literal]:
    """The ranges as literals: NOT BETWEEN, ranges, and one list of points."""

    def at(key: Any) -> Value:
        return domain.value(key, values)

    if len(ranges) == 2 and ranges[0][0] == domain.low and ranges[1][1] == domain.high:
        stop, start = ranges[1][0], ranges[0][1]
        if start is not None and stop is not None:
            first, last = _after(start, domain), domain.end(stop)
            if (first[1], last[1]) == (0, 1):
                same = first[0] == last[0]
                return [
                    Compare(column, "!=", at(first[0]))
                    if same
                    else Not(Between(column, at(first[0]), at(last[0])))
                ]
    points = [range_[0][0] for range_ in ranges if range_[0] is not None and is_point(range_)]
    found: list[Literal] = []
    for range_ in ranges:
        if not is_point(range_):
            found += range_literals(
                column, domain, *range_, values
            )  # one literal, since a range_ with two ends is closed
    return found + ([points_literal(column, [at(key) for key in points])] if points else [])
