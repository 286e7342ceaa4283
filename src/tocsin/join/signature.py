"""Signatures: subscriptions with one signature join the same tables by the same columns, whatever they
select.

A table is identified by its place in FROM, so aliases do not matter:

    FROM stocks s JOIN reviews r ON s.symbol = r.symbol      stocks, reviews; 0.symbol = 1.symbol
    FROM units u JOIN targets t ON t.pos - u.pos BETWEEN ..  units, targets; 1.pos - 0.pos

All equalities between two places are one *edge*, with a composite key. Edges form a tree (`language/joins.py`
ensures that); bands are between two tables only. The ends of a band belong to the subscription.

>>> from tocsin.language.algebra import Equal, Item, Query, TableRef
>>> x, y = Column("x", Type.BIGINT, "a"), Column("y", Type.DOUBLE, "b")
>>> query = Query((Item(x, "x"),), (TableRef("t", "a"), TableRef("u", "b")), (Equal(y, x),))
>>> print(Signature.of(query))
t, u: 0.x = 1.y
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.language.algebra import Band, Column, Query
from tocsin.model.columns import Index
from tocsin.model.schema import Type
from tocsin.predicate.codes import COMPARISONS, GREATEST, LEAST, comparisons, interval, locate_numbers
from tocsin.store.plans import BandEnds

__all__ = [
    "BandEdge",
    "Edge",
    "KeySpec",
    "Numbering",
    "Signature",
    "band_range",
    "band_ranges",
    "common_type",
    "places_of",
]


class KeySpec(NamedTuple):
    """Columns of a table, the types that their values are read as, and whether they may be rounded.

    Two rows join where the codes of their keys are equal. For that the columns of both sides are read as
    values of one type, the wider of the two: BIGINT = DOUBLE as doubles, DATE = TIMESTAMP as microseconds;
    but a DECIMAL and another number as the one with fewer digits behind the point.
    """

    columns: tuple[str, ...]
    types: tuple[Type, ...]
    rounded: bool = False


Numbering = tuple[Type, ...]


def common_type(left: Column, right: Column) -> Type:
    """The type that values of both columns are read as."""
    one, other = _typed(left), _typed(right)
    if one is other:
        return one
    if one.is_decimal or other.is_decimal:
        return _coarser(one, other)
    return Type.DOUBLE if one.numeric else Type.TIMESTAMP


def _coarser(one: Type, other: Type) -> Type:
    """Of numbers of which one is a DECIMAL, the one of the smaller scale, which equal values have."""
    exact = sorted((type for type in (one, other) if type.is_exact), key=lambda type: (type.scale, type))
    return exact[0]


class Edge(NamedTuple):
    """Rows of two places join where their keys are equal; `places[0]` is the lower."""

    places: tuple[int, int]
    keys: tuple[KeySpec, KeySpec]

    def key(self, place: int) -> KeySpec:
        return self.keys[self.places.index(place)]

    def other(self, place: int) -> int:
        return self.places[1 - self.places.index(place)]

    def __str__(self) -> str:
        (a, b), (one, two) = self.places, self.keys
        return " and ".join(f"{a}.{x} = {b}.{y}" for x, y in zip(one.columns, two.columns, strict=True))


class BandEdge(NamedTuple):
    """The difference of two columns, left - right, is in a range."""

    places: tuple[int, int]
    keys: tuple[KeySpec, KeySpec]

    @property
    def double(self) -> bool:
        return self.keys[0].types[0] is Type.DOUBLE

    def __str__(self) -> str:
        return f"{self.places[0]}.{self.keys[0].columns[0]} - {self.places[1]}.{self.keys[1].columns[0]}"


class Signature(NamedTuple):
    """What subscriptions have in common that one `JoinFamily` evaluates together."""

    tables: tuple[str, ...]
    edges: tuple[Edge, ...]
    bands: tuple[BandEdge, ...]

    @classmethod
    def of(cls, query: Query) -> Signature:
        places = places_of(query)
        pairs: dict[tuple[int, int], list[tuple[str, str, Type]]] = {}
        bands: list[BandEdge] = []
        for join in query.joins:
            a, b = places[join.left.relation], places[join.right.relation]
            if isinstance(join, Band):
                bands.append(BandEdge((a, b), _band_keys(join.left, join.right)))
                continue
            one, two = (join.left, join.right) if a < b else (join.right, join.left)
            column = (one.name, two.name, common_type(one, two))
            pairs.setdefault((min(a, b), max(a, b)), []).append(column)
        edges = []
        for pair, columns in sorted(pairs.items()):
            left, right, types = zip(*sorted(columns), strict=True)
            edges.append(Edge(pair, (KeySpec(left, types), KeySpec(right, types))))
        return cls(tuple(t.name for t in query.tables), tuple(edges), tuple(bands))

    def __str__(self) -> str:
        return f"{', '.join(self.tables)}: {'; '.join(map(str, (*self.edges, *self.bands)))}"


def places_of(query: Query) -> dict[str, int]:
    """The place of each alias."""
    return {table.alias: place for place, table in enumerate(query.tables)}


def band_range(band: Band, double: bool) -> tuple[int, int]:
    """The codes of differences that hold, closed; empty if low is above high.

    An end beyond int64 becomes the last int64; differences there are verified with unbounded integers.
    """
    type = Type.DOUBLE if double else Type.BIGINT
    low, high = LEAST, GREATEST
    ends = ((">" if band.low_open else ">=", band.low), ("<" if band.high_open else "<=", band.high))
    for op, end in ends:
        if end is None:
            continue
        first, last = interval(type, op, end)
        if first > last:
            first = last = GREATEST if op[0] == ">" else LEAST
        low, high = max(low, first), min(high, last)
    return low, high


def band_ranges(band: Band, ends: BandEnds, double: bool, count: int) -> tuple[Index, Index]:
    """The same for many subscriptions: the ends are columns, and within what int64 or DOUBLE represents."""
    type = Type.DOUBLE if double else Type.BIGINT
    low, high = np.full(count, LEAST), np.full(count, GREATEST)
    if ends.low is not None:
        op = np.full(count, COMPARISONS.index(">" if band.low_open else ">="))
        low = comparisons(op, locate_numbers(type, ends.low))[0]
    if ends.high is not None:
        op = np.full(count, COMPARISONS.index("<" if band.high_open else "<="))
        high = comparisons(op, locate_numbers(type, ends.high))[1]
    return low, high


def _band_keys(left: Column, right: Column) -> tuple[KeySpec, KeySpec]:
    """Numbers as BIGINT or DOUBLE, times as microseconds; values may be rounded, as in subtraction."""
    type = common_type(left, right)
    type = Type.TIMESTAMP if type is Type.DATE else type
    return KeySpec((left.name,), (type,), True), KeySpec((right.name,), (type,), True)


def _typed(column: Column) -> Type:
    assert column.type is not None, column
    return column.type
