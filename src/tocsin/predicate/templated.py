"""Filters from a template and columns of values, without a Python loop over subscriptions.

A template's condition is normalised once, with its slots still open. Then each literal is filled for
all rows at once: comparisons with numbers and texts are compiled by column; any other literal (a pattern, a
date in quotes, a list) is compiled once per distinct value. Rows with a NULL, or with a value that needs
Python's integers, are *slow* and left to the caller.

Queries over several tables have one filter per table, and the ends of their bands.

>>> from tocsin.language.sql import trace_query
>>> from tocsin.language.template import Template
>>> from tocsin.model.schema import Field, Stream
>>> hits = Stream("hits", (Field("ms", Type.BIGINT), Field("page", Type.STRING)))
>>> traced = trace_query("SELECT * FROM hits WHERE ms > :m OR page LIKE '/a%'", {"hits": hits}, {"m": 1})
>>> found = flat_tables(Template.of(traced), {"m": pa.array([10, 20, None])}, 3)
>>> found.filters[0].owner.tolist(), found.filters[0].low.tolist(), found.slow.tolist()
([0, 0, 1, 1], [11, 0, 21, 0], [False, False, True])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.language.algebra import (
    And,
    Atom,
    Band,
    Between,
    Column,
    Compare,
    Not,
    Predicate,
    Query,
    Truth,
)
from tocsin.language.literals import Slot, as_decimal, negative
from tocsin.language.rewrite import Literal, alternatives
from tocsin.language.shape import relations_of
from tocsin.language.template import Plus, Template, Times, filler
from tocsin.model.buffers import to_numpy
from tocsin.model.columns import Index, Mask, combine_codes
from tocsin.model.schema import Type
from tocsin.predicate.codes import COMPARISONS, CodePositions, betweens, comparisons, locate_numbers
from tocsin.predicate.compile import Assembly, Builder
from tocsin.predicate.flat import NEGATED, SPACES, CodeSpace, FlatFilters

__all__ = ["FlatTables", "flat_tables"]

MOST_CONJUNCTIONS = 16
"""A template with more is compiled row by row."""


class FlatTables(NamedTuple):
    """By row of the columns: a filter for each table, the ends of each band, and whether it is slow."""

    filters: tuple[FlatFilters, ...]
    bands: tuple[tuple[NDArray[Any] | None, NDArray[Any] | None], ...]  # int64 or float64; None: unbounded
    slow: Mask


def flat_tables(template: Template, columns: Mapping[Any, Any], count: int) -> FlatTables | None:
    """A filter for each row of the columns (Arrow arrays by the template's keys) and each table.

    None if a condition concerns several tables at once, or has too many conjunctions, or if the query is
    composed. Ignores LIMIT.

    >>> from tocsin.language.sql import trace_query
    >>> from tocsin.model.schema import Field, Table
    >>> tables = {n: Table(n, (Field(n, Type.BIGINT),), (n,)) for n in "ab"}
    >>> traced = trace_query("SELECT * FROM a JOIN b ON a = b WHERE a > :m AND b < 3", tables, {"m": 1})
    >>> found = flat_tables(Template.of(traced), {"m": pa.array([10, 20])}, 2)
    >>> [flat.low.tolist() for flat in found.filters], [flat.high.tolist() for flat in found.filters][1]
    ([[11, 21], [-9223372036854775808, -9223372036854775808]], [2, 2])
    """
    query = template.query
    single = query.is_composed or query.options.absent is not None or query.within is not None
    conditions = None if single else _by_table(query)
    if conditions is None:
        return None
    slow = _nulls(template, columns, count)
    filters = _flat(conditions, columns, slow)
    bands = [join for join in template.query.joins if isinstance(join, Band)]
    found = [_ends(band, columns, slow) for band in bands]
    ends = tuple(pair for pair in found if pair is not None)
    return None if filters is None or len(ends) < len(found) else FlatTables(tuple(filters), ends, slow)


def _nulls(template: Template, columns: Mapping[Any, Any], count: int) -> Mask:
    """Rows where a key of the template is NULL."""
    slow = np.zeros(count, np.bool_)
    for key in template.keys:
        if columns[key].null_count:
            slow |= np.asarray(to_numpy(columns[key].is_null()), np.bool_)
    return slow


def _flat(
    conditions: Sequence[Predicate], columns: Mapping[Any, Any], slow: Mask
) -> list[FlatFilters] | None:
    """Filters for each condition; marks slow rows."""
    found = []
    for condition in conditions:
        groups = alternatives(condition, MOST_CONJUNCTIONS)
        if groups is None:
            return None
        filled = _TemplateFilters(columns, slow, groups)
        for g, group in enumerate(groups):
            for k, literal in enumerate(group):
                filled.literal(g, k, literal)
        found.append(filled.filters())
    return found


def _by_table(query: Query) -> list[Predicate] | None:
    """The conditions of each table, as `shape.plan` splits them; None if one concerns several."""
    own: dict[str, list[Predicate]] = {table.alias: [] for table in query.tables}
    stack = [query.where]
    while stack:
        part = stack.pop()
        if isinstance(part, And):
            stack += reversed(part.args)
            continue
        relations = relations_of(part)
        if len(relations) > 1:
            return None
        own[next(iter(relations), "") or query.tables[0].alias].append(part)
    return [And(tuple(parts)) if parts else Truth(True) for parts in own.values()]


def _ends(
    band: Band, columns: Mapping[Any, Any], slow: Mask
) -> tuple[NDArray[Any] | None, NDArray[Any] | None] | None:
    """Both ends for all rows; None if one cannot be computed by column.

    Rows with a number that is not finite, or too large to be exact as a double, are slow.
    """
    most = 2.0**62 if band.timed else 2.0**53
    out: list[NDArray[Any] | None] = []
    for end in (band.low, band.high):
        if isinstance(end, Slot):
            given = columns[end.key]
            if not _is_number(given.type) or given.type == pa.uint64():
                return None
            kind = pa.int64() if pa.types.is_integer(given.type) else pa.float64()
            values = to_numpy(given.cast(kind).fill_null(0))
            about = values.astype(np.float64)  # without the limits of int64
            with np.errstate(all="ignore"):
                for step in end.steps:
                    if isinstance(step, Plus | Times):
                        values, about = step(values), step(about)
            slow |= ~(np.abs(about) < most)
            out.append(values)
        elif end is not None and not abs(end) < most:
            return None
        else:
            kind = np.int64 if isinstance(end, int) else np.float64
            out.append(None if end is None else np.full(len(slow), end, kind))
    return out[0], out[1]


class _TemplateFilters:
    """Fills literals for all rows; conjunction g of row r has number r * groups + g."""

    def __init__(self, columns: Mapping[Any, Any], slow: Mask, groups: list[tuple[Literal, ...]]) -> None:
        self.columns, self.slow, self.count = columns, slow, len(slow)
        self.groups, self.width = len(groups), max([1, *map(len, groups)])
        names = dict.fromkeys(_atom(literal).column.name for group in groups for literal in group)
        self.number = {name: i for i, name in enumerate(names)}
        self.assembly = Assembly(list(names))

    def filters(self) -> FlatFilters:
        conjunctions = np.arange(self.count * self.groups)
        owner = conjunctions // max(1, self.groups)
        self.assembly.never(np.flatnonzero(np.repeat(self.slow, self.groups)))
        return self.assembly.filters(owner, self.count, np.repeat(conjunctions, self.width))

    def literal(self, g: int, k: int, literal: Literal) -> None:
        """Fills one literal of a group, for all rows."""
        place = (np.arange(self.count) * self.groups + g) * self.width + k
        atom = _atom(literal)
        if isinstance(atom, Compare) and not isinstance(literal, Not):
            if self._numbers(place, atom) or self._texts(place, atom):
                return
        elif isinstance(atom, Between):
            negated = isinstance(literal, Not)
            if self._between(place, atom, negated) or (not negated and self._between_texts(place, atom)):
                return
        self._distinct(place, literal)

    # -- by column -------------------------------------------------------------------------------

    def _numbers(self, place: Index, atom: Compare) -> bool:
        own = _numeric(atom.column)
        positions = None if own is None else self._located(own, atom.column, atom.value)
        if own is None or positions is None:
            return False
        op = np.full(self.count, COMPARISONS.index(atom.op))
        self._tests(SPACES[own], place, atom.column, *comparisons(op, positions))
        return True

    def _between(self, place: Index, atom: Between, negated: bool) -> bool:
        own = _numeric(atom.column)
        if own is None:
            return False
        low, high = (self._located(own, atom.column, end) for end in (atom.low, atom.high))
        if low is None or high is None:
            return False
        flags = np.full(self.count, NEGATED if negated else 0, np.uint8)
        self._tests(SPACES[own], place, atom.column, *betweens(low, high), flags)
        return True

    def _texts(self, place: Index, atom: Compare) -> bool:
        number = self._numbered(atom.column, atom.value) if isinstance(atom.value, Slot) else None
        if number is None:
            return False
        all_true = np.ones(self.count, np.bool_)
        op = np.full(self.count, COMPARISONS.index(atom.op))
        self._tests(
            CodeSpace.TEXT, place, atom.column, *comparisons(op, CodePositions(number, all_true, all_true))
        )
        return True

    def _between_texts(self, place: Index, atom: Between) -> bool:
        low, high = (self._numbered(atom.column, end) for end in (atom.low, atom.high))
        if low is None or high is None:
            return False
        flags = np.zeros(self.count, np.uint8)
        self._tests(CodeSpace.TEXT, place, atom.column, low, high, flags)  # dropped if texts are out of order
        return True

    def _numbered(self, column: Column, value: Any) -> Index | None:
        """The numbers of a text operand in the pool, as codes; None if it is none, or computed."""
        if column.type not in (Type.STRING, None):
            return None
        if isinstance(value, str):
            return np.repeat(4 * self.assembly.texts.add(pa.array([value])), self.count)
        if not isinstance(value, Slot) or value.steps:
            return None
        given = self.columns[value.key]
        if not _is_text(given.type):
            return None
        return 4 * self.assembly.texts.add(given.fill_null("") if given.null_count else given)

    def _located(self, own: Type, column: Column, value: Any) -> CodePositions | None:
        """The positions of a numeric operand; rows whose number is not exact become slow."""
        if isinstance(value, bool) or not isinstance(value, Slot | int | float):
            return None
        if isinstance(value, Slot):
            given = self.columns[value.key]
            steps = value.steps[:-1] if own.is_decimal and value.steps[-1:] == (as_decimal,) else value.steps
            if steps not in ((), (negative,)) or not _is_number(given.type):
                return None
            whole = pa.types.is_integer(given.type)
            if given.type == pa.uint64():
                return None
            array = given.cast(pa.int64() if whole else pa.float64())
            numbers = to_numpy(array.fill_null(0))
            if steps:
                self.slow |= numbers == -(2**63) if whole else np.zeros(self.count, np.bool_)
                numbers = -numbers
            numbers = numbers if whole else numbers + 0.0
        elif abs(value) < 2**53:
            numbers = np.full(self.count, value, np.int64 if isinstance(value, int) else np.float64)
        else:
            return None
        positions = locate_numbers(own, numbers)
        self.slow |= ~positions.fine
        if column.type is None:
            self.slow |= (np.abs(numbers) >= 2.0**53) & np.isfinite(numbers)
        return positions

    def _tests(
        self, space: CodeSpace, place: Index, column: Column, low: Index, high: Index, flags: Any
    ) -> None:
        attribute = np.full(len(place), self.number[column.name])
        self.assembly.tests(space, place, attribute, low, high, flags)

    # -- by distinct value -----------------------------------------------------------------------

    def _distinct(self, place: Index, literal: Literal) -> None:
        """Compiles a literal once per distinct combination of its values."""
        keys = sorted({slot.key for slot in _slots(literal)}, key=str)
        make = filler(literal)
        code, values = self._combinations(keys)
        builder = Builder()
        wrong = np.zeros(len(values), np.bool_)
        for i, raw in enumerate(values):
            try:
                builder.add_literal(literal if make is None else make(dict(zip(keys, raw, strict=True))))
            except ValueError:
                wrong[i] = True
                builder.add_literal(None)
        self.slow |= wrong[code]
        self.assembly.adopt(builder.build(), code, place)

    def _combinations(self, keys: list[Any]) -> tuple[Index, list[tuple[Any, ...]]]:
        """For each row the number of its combination of values, and the combinations."""
        codes, dictionaries = [], []
        for key in keys:
            coded = self.columns[key].dictionary_encode()
            codes.append(to_numpy(coded.indices.fill_null(0)).astype(np.int64))
            dictionaries.append([_in_utc(value) for value in coded.dictionary.to_pylist()] or [None])
        combined = combine_codes(codes, self.count)
        _, first = np.unique(combined, return_index=True)
        rows = [tuple(d[int(c[i])] for c, d in zip(codes, dictionaries, strict=True)) for i in first.tolist()]
        return combined, rows


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _atom(literal: Literal) -> Atom:
    return literal.arg if isinstance(literal, Not) else literal  # type: ignore[return-value]


def _slots(literal: Literal) -> list[Slot]:
    atom = _atom(literal)
    parts = [getattr(atom, field.name) for field in fields(atom)]
    flat = [value for part in parts for value in (part if isinstance(part, tuple) else (part,))]
    return [value for value in flat if isinstance(value, Slot)]


def _numeric(column: Column) -> Type | None:
    """The type in which the column's values are compared with numbers, if they can be."""
    if column.type is None:
        return Type.DOUBLE
    return column.type if column.type.numeric else None


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
