"""Answers that a refresh group computes from changes of rows: aggregates, DISTINCT and top-k over joins.

    rows of the join, -1 and +1 ─► DerivedAggregates   exact totals, sorted values
                                   DerivedDistinct     how often each row is there
                                   DerivedTopK         the first rows in order, and all others in a dictionary

Each keeps the answer as it is now, and what of it was delivered. The difference is the next delivery:

>>> from tocsin.language.algebra import Aggregate, Column, Item, TableRef
>>> from tocsin.limits.inner import inner_query
>>> from tocsin.model.schema import Field, Table, Type
>>> price = Column("price", Type.DOUBLE, "p")
>>> query = Query((Item(Aggregate("MIN", price), "low"),), (TableRef("p", "p"), TableRef("s", "s")))
>>> cheapest = derive(query, inner_query(query, {}))
>>> cheapest.add(Rows.of(c0=Vector.of(Type.DOUBLE, [7.5, 3.0])), np.array([1, 1]))
>>> cheapest.deliver(); cheapest.delivered.to_dicts()
[{'low': 3.0}]
>>> cheapest.add(Rows.of(c0=Vector.of(Type.DOUBLE, [3.0])), np.array([-1]))
>>> rows, signs = cheapest.undelivered(); rows.to_dicts(), signs.tolist()
([{'low': 3.0}, {'low': 7.5}], [-1, 1])
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from functools import total_ordering
from heapq import nsmallest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Aggregate, Column, Item, Query
from tocsin.limits.inner import InnerQuery
from tocsin.limits.multiset import ExactTotal, SortedCounts
from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.delta import Deltas
from tocsin.model.schema import Type
from tocsin.rank.sums import average, averaged_exactly, to_units, with_specials

__all__ = [
    "Derived",
    "DerivedAggregates",
    "DerivedDistinct",
    "DerivedTopK",
    "derive",
    "in_order",
    "sorted_rows",
]

Signs = NDArray[np.int8]
_SIGN_BIT = np.int64(-(2**63))
_DTYPES: dict[Type, Any] = {Type.STRING: object, Type.BOOLEAN: np.bool_}


def derive(query: Query, inner: InnerQuery) -> Derived:
    """What computes the answer of a deferred query from the rows of its inner one."""
    if query.aggregates:
        return DerivedAggregates(query, inner)
    return DerivedDistinct(inner) if query.distinct else DerivedTopK(query, inner)


class Derived(ABC):
    """An answer, and what of it was delivered."""

    @abstractmethod
    def add(self, rows: Rows, signs: Signs) -> None:
        """The inner rows of a change."""

    @abstractmethod
    def answer(self) -> Rows:
        """The answer now; SumOverflow if a sum is no BIGINT."""

    @property
    @abstractmethod
    def delivered(self) -> Rows:
        """The answer as delivered."""

    @abstractmethod
    def undelivered(self) -> tuple[Rows, Signs]:
        """What makes the answer of what was delivered."""

    @abstractmethod
    def deliver(self, answer: Rows | None = None) -> None:
        """The answer as it is now, or this one, counts as delivered."""

    @abstractmethod
    def _check(self) -> None:
        """Assert the invariants."""


class _Small(Derived):
    """An answer of few rows: it is compared as a whole."""

    def __init__(self) -> None:
        self._delivered = Rows((), 0)

    @property
    def delivered(self) -> Rows:
        return self._delivered

    def undelivered(self) -> tuple[Rows, Signs]:
        old, new = self._delivered, self.answer()
        parts = [
            Deltas.of(np.zeros(len(rows), np.int64), 0, sign, rows, np.arange(len(rows)))
            for rows, sign in ((old, -1), (new, 1))
        ]
        found = Deltas.concat(parts).consolidate()
        if not len(found):
            return new.take(np.empty(0, np.int64)), np.empty(0, np.int8)
        return Rows.concat([found.sources[0]]).take(found.row), found.sign

    def deliver(self, answer: Rows | None = None) -> None:
        self._delivered = self.answer() if answer is None else answer


# -- aggregates ------------------------------------------------------------------------------------


class _ColumnTotals:
    """What aggregates need of one column: how many values, their sum, their order."""

    def __init__(self, type: Type | None, functions: set[str]) -> None:
        self.count = self.nans = self.highs = self.lows = 0
        self.is_double = type is Type.DOUBLE
        self._total = ExactTotal() if functions & {"SUM", "AVG"} else None
        self.values = None
        if functions & {"MIN", "MAX"}:
            self.values = SortedCounts(np.empty(0, object if type is Type.STRING else np.int64))

    def add(self, vector: Vector, signs: Signs) -> None:
        values, signs = vector.values[vector.valid], signs[vector.valid]
        self.count += int(signs.sum(dtype=np.int64))
        if self.values is not None:
            plain = Vector(vector.type, values, np.ones(len(values), np.bool_))
            self.values.add(values if vector.type is Type.STRING else plain.order_codes(), signs)
        if self._total is None:
            return
        if not self.is_double:
            self._total.add_integers(values, signs)
            return
        finite = np.isfinite(values)
        self._total.add_doubles(values[finite], signs[finite])
        if not finite.all():
            for name, mask in (
                ("nans", np.isnan(values)),
                ("highs", values == np.inf),
                ("lows", values == -np.inf),
            ):
                setattr(self, name, getattr(self, name) + int(signs[mask].sum(dtype=np.int64)))

    def total(self) -> Any:
        """The sum: a Python integer, or a double rounded once."""
        assert self._total is not None
        units = self._total.units
        return with_specials(units, self.nans, self.highs, self.lows) if self.is_double else units


class DerivedAggregates(_Small):
    """COUNT, SUM, AVG, MIN, MAX of the rows: one row always."""

    def __init__(self, query: Query, inner: InnerQuery) -> None:
        super().__init__()
        self._items = query.items
        self._name = {item.expression: item.name for item in inner.query.items}
        self._rows = 0
        self._columns: dict[Column, _ColumnTotals] = {}
        for column in {a.column: None for a in query.aggregates if a.column is not None}:
            functions = {a.function for a in query.aggregates if a.column == column}
            self._columns[column] = _ColumnTotals(column.type, functions)

    def add(self, rows: Rows, signs: Signs) -> None:
        self._rows += int(signs.sum(dtype=np.int64))
        for column, totals in self._columns.items():
            totals.add(rows.vectors(self._name[column])[0], signs)

    def answer(self) -> Rows:
        return Rows([(item.name, self._value(item)) for item in self._items], 1)

    def _value(self, item: Item) -> Vector:
        aggregate = item.expression
        assert isinstance(aggregate, Aggregate)
        if aggregate.column is None:
            return Vector.of(Type.BIGINT, [self._rows])
        totals, type = self._columns[aggregate.column], aggregate.column.type
        assert type is not None
        match aggregate.function:
            case "COUNT":
                return Vector.of(Type.BIGINT, [totals.count])
            case "MIN" | "MAX":
                assert totals.values is not None
                end = totals.values.least() if aggregate.function == "MIN" else totals.values.greatest()
                return _vector(type, [end])
            case "SUM":
                out = Vector.blank(aggregate.type, 1)
                if totals.count:
                    total = totals.total()
                    out.values[0] = total if totals.is_double else to_units(total, type)
                    out.valid[0] = True
                return out
        out = Vector.blank(aggregate.type, 1)
        if totals.count:
            total = totals.total()
            whole = not totals.is_double
            out.values[0] = (
                averaged_exactly(aggregate, total, totals.count) if whole else average(total, totals.count)
            )
            out.valid[0] = True
        return out

    def _check(self) -> None:
        assert self._rows >= 0
        for totals in self._columns.values():
            assert 0 <= totals.count <= self._rows
            if totals.values is not None:
                totals.values._check()
                assert (totals.values.least() is None) == (not totals.count)


# -- distinct --------------------------------------------------------------------------------------


class DerivedDistinct(Derived):
    """Each row once. O(rows) per change of rows, and per delivery what has changed since the last."""

    def __init__(self, inner: InnerQuery) -> None:
        self._fields = _fields(inner)
        self._counts: dict[tuple[Any, ...], int] = {}
        self._was: dict[tuple[Any, ...], bool] = {}  # rows that changed since the delivery: were they there?

    def add(self, rows: Rows, signs: Signs) -> None:
        counts = self._counts
        rows, signs = _consolidated(rows, signs)
        for cells, sign in zip(_cells(rows), signs.tolist(), strict=True):
            count = counts.get(cells, 0)
            self._was.setdefault(cells, count > 0)
            if count + sign:
                counts[cells] = count + sign
            else:
                del counts[cells]

    def answer(self) -> Rows:
        return self._rows([cells for cells, count in self._counts.items() if count > 0])

    @property
    def delivered(self) -> Rows:
        there = (cells for cells in self._counts if cells not in self._was)
        return self._rows([*there, *(cells for cells, was in self._was.items() if was)])

    def undelivered(self) -> tuple[Rows, Signs]:
        changed = [(cells, was) for cells, was in self._was.items() if was != (cells in self._counts)]
        signs = np.array([-1 if was else 1 for _, was in changed], np.int8)
        return self._rows([cells for cells, _ in changed]), signs

    def deliver(self, answer: Rows | None = None) -> None:
        self._was.clear()
        if answer is not None:
            given = set(_cells(answer))
            self._was.update((cells, False) for cells in self._counts if cells not in given)
            self._was.update((cells, True) for cells in given if cells not in self._counts)

    def _rows(self, cells: Sequence[tuple[Any, ...]]) -> Rows:
        return _rows(self._fields, cells)

    def _check(self) -> None:
        assert all(count > 0 for count in self._counts.values())


# -- top-k -----------------------------------------------------------------------------------------


class DerivedTopK(_Small):
    """The first k rows in order: kept sorted are some more than k, so that few deletions search all rows.

    A change of a row costs O(log k) if it is among the first, else O(1); when too few of them are left, the
    first are searched among all n rows in O(n).
    """

    def __init__(self, query: Query, inner: InnerQuery) -> None:
        super().__init__()
        assert query.limit is not None
        self._limit, self._order, self._shown = query.limit, inner.order, dict(inner.shown)
        self._fields = _fields(inner)
        self._all: dict[tuple[Any, ...], tuple[Any, ...]] = {}  # cells of each row by its sort key
        self._first: list[tuple[Any, ...]] = []  # sort keys in order
        self._last: tuple[Any, ...] | None = (
            None  # all keys up to this one are among the first; None: all are
        )

    def add(self, rows: Rows, signs: Signs) -> None:
        rows, signs = _consolidated(rows, signs)
        keys, cells = self._keys(rows), _cells(rows)
        for n in np.flatnonzero(signs < 0).tolist():
            self._remove(keys[n])
        for n in np.flatnonzero(signs > 0).tolist():
            self._insert(keys[n], cells[n])

    def _remove(self, key: tuple[Any, ...]) -> None:
        del self._all[key]
        at = bisect_left(self._first, key)
        if at < len(self._first) and self._first[at] == key:
            del self._first[at]

    def _insert(self, key: tuple[Any, ...], cells: tuple[Any, ...]) -> None:
        self._all[key] = cells
        if self._last is None or key < self._last:
            insort(self._first, key)
            if len(self._first) > 2 * self._kept:
                del self._first[self._kept :]
                self._last = self._first[-1]

    def answer(self) -> Rows:
        if self._last is not None and len(self._first) < self._limit:
            self._first = nsmallest(self._kept, self._all)
            self._last = self._first[-1] if len(self._first) < len(self._all) else None
        chosen = _rows(self._fields, [self._all[key] for key in self._first[: self._limit]])
        return chosen.project(self._shown)

    @property
    def _kept(self) -> int:
        return 2 * self._limit + 32

    def _keys(self, rows: Rows) -> list[tuple[Any, ...]]:
        """Sort keys: per column whether it is NULL, and its value."""
        columns: list[Iterable[Any]] = []
        for key in self._order:
            vector = rows.vectors(key.column.name)[0]
            columns.append((vector.valid == key.nulls_first).tolist())
            if vector.type is Type.STRING:
                texts: list[Any] = vector.values.tolist()
                columns.append([_Descending(text) for text in texts] if key.descending else texts)
            else:
                codes = np.where(vector.valid, vector.order_codes(), 0)
                columns.append((~codes if key.descending else codes).tolist())
        return list(zip(*columns, strict=True))

    def _check(self) -> None:
        ordered = sorted(self._all)
        assert self._first == ordered[: len(self._first)]
        assert self._last is not None or len(self._first) == len(ordered)


@total_ordering
class _Descending:
    """A text that sorts the other way round."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and self.text == other.text

    def __lt__(self, other: _Descending) -> bool:
        return self.text > other.text

    def __hash__(self) -> int:
        return hash(self.text)


def in_order(rows: Rows, inner: InnerQuery) -> Rows:
    """The rows of a top-k in order, and as the answer shows them."""
    return sorted_rows(rows, inner).project(dict(inner.shown))


def sorted_rows(rows: Rows, inner: InnerQuery) -> Rows:
    """The rows of an inner query in the order of a top-k."""
    columns: list[Any] = []
    for key in reversed(inner.order):
        vector = rows.vectors(key.column.name)[0]
        codes = np.where(vector.valid, vector.order_codes(), 0)
        columns += [~codes if key.descending else codes, vector.valid if key.nulls_first else ~vector.valid]
    return rows.take(np.lexsort(columns))


def _consolidated(rows: Rows, signs: Signs) -> tuple[Rows, Signs]:
    """Signed rows without those that cancel."""
    if not (signs < 0).any():
        return rows, signs
    at = np.arange(len(rows))
    found = Deltas.of(np.zeros(len(rows), np.int64), 0, signs, rows, at).consolidate()
    return rows.take(found.row), found.sign


# -- cells -----------------------------------------------------------------------------------------


def _cells(rows: Rows) -> list[tuple[Any, ...]]:
    """Rows as values that are equal where the rows are: None, a text, or the code of a number."""
    columns = []
    for _, vector in rows.columns:
        plain = vector.values if vector.type is Type.STRING else vector.order_codes()
        listed = plain.tolist()
        if not vector.valid.all():
            listed = [v if ok else None for v, ok in zip(listed, vector.valid.tolist(), strict=True)]
        columns.append(listed)
    return list(zip(*columns, strict=True))


def _fields(inner: InnerQuery) -> list[tuple[str, Type]]:
    """Names and types of the inner rows."""
    found = []
    for item in inner.query.items:
        assert isinstance(item.expression, Column) and item.expression.type is not None
        found.append((item.name, item.expression.type))
    return found


def _rows(fields: Sequence[tuple[str, Type]], cells: Sequence[tuple[Any, ...]]) -> Rows:
    columns = zip(*cells, strict=True) if cells else [()] * len(fields)
    vectors = [(name, _vector(type, column)) for (name, type), column in zip(fields, columns, strict=True)]
    return Rows(vectors, len(cells))


def _vector(type: Type, cells: Iterable[Any]) -> Vector:
    """A column of cells as `_cells` makes them."""
    listed = list(cells)
    valid = np.array([cell is not None for cell in listed], np.bool_)
    if type is Type.STRING:
        values = np.full(len(listed), "", object)
        values[valid] = [cell for cell in listed if cell is not None]
        return Vector(type, values, valid)
    codes = np.array([0 if cell is None else cell for cell in listed], np.int64)
    return Vector(type, _of_codes(type, codes), valid)


def _of_codes(type: Type, codes: Index) -> NDArray[Any]:
    """The values whose `order_codes` these are."""
    if type is not Type.DOUBLE:
        return codes.astype(_DTYPES.get(type, np.int64))
    return np.where(codes >= 0, codes, -codes | _SIGN_BIT).view(np.float64)
