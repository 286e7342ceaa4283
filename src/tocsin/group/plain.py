"""The answer of a query over groups, from all rows that it reads: sorted, cut into groups, one by one.

`GroupedRows` has one row for each group that passes HAVING; without keys all rows are one group, which is
there even if it is empty. `first_rows` are the first rows in order: `limit` of each group, or those after
`offset`.

Sums are exact: integers, or doubles in units of 2^-1074 (`rank/sums.py`), rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tocsin.group.needs import Needs
from tocsin.language.algebra import Aggregate, Column, Measure, OrderKey, Query, atoms
from tocsin.language.rewrite import normalise
from tocsin.model.columns import Index, Rows, Vector, combine_codes
from tocsin.model.schema import Type
from tocsin.predicate.evaluate import Facts
from tocsin.rank.sums import average, averaged_exactly, exact_units, to_units, with_specials

__all__ = ["GroupedRows", "answer_of", "first_rows", "group_numbers", "in_order"]


def answer_of(query: Query, needs: Needs, rows: Rows) -> Rows:
    """The answer over the rows of the inner query."""
    if needs.order:
        chosen = rows.take(first_rows(query, needs, rows))
        names = {i.name: needs.name[i.expression] for i in query.items if isinstance(i.expression, Column)}
        return chosen.project(names)
    return GroupedRows(query, needs, rows).answer()


def group_numbers(needs: Needs, rows: Rows) -> Index:
    """By row a number of its group, from 0 on."""
    codes = [rows.vectors(needs.name[key])[0].codes() for key in needs.keys]
    return combine_codes(codes, len(rows)) if codes else np.zeros(len(rows), np.int64)


class GroupedRows:
    """Rows cut into groups, with the aggregates of each."""

    def __init__(self, query: Query, needs: Needs, rows: Rows) -> None:
        self.query, self.needs, self.rows = query, needs, rows
        number = group_numbers(needs, rows)
        order = np.argsort(number, kind="stable")
        cuts = np.flatnonzero(np.diff(number[order])) + 1
        self.groups: list[Index] = np.split(order, cuts) if needs.keys and len(order) else []
        if not needs.keys:
            self.groups = [np.arange(len(rows))]
        self._facts = Facts(rows, lambda column: needs.name[column])

    def answer(self) -> Rows:
        """One row for each group that passes HAVING."""
        found = Rows(
            [(item.name, self.values(item.expression)) for item in self.query.items], len(self.groups)
        )
        return found.take(np.flatnonzero(self.passes()))

    def passes(self) -> Any:
        """By group: does it pass HAVING?"""
        form = normalise(self.query.having)
        wanted = dict.fromkeys(atom.column for atom in atoms(form.predicate))
        names = {column: f"h{n}" for n, column in enumerate(wanted)}
        columns = [
            (name, self.values(column.aggregate if isinstance(column, Measure) else column))
            for column, name in names.items()
        ]
        return Facts(Rows(columns, len(self.groups)), lambda column: names[column]).matches(form)

    def values(self, expression: Column | Aggregate) -> Vector:
        """By group: the value of a key, or of an aggregate."""
        if isinstance(expression, Column):
            first = np.array([group[0] for group in self.groups], np.int64)
            return self.rows.vectors(self.needs.name[expression])[0].take(first)
        return self.aggregated(expression)

    def aggregated(self, aggregate: Aggregate) -> Vector:
        """The values of an aggregate, by group."""
        there = np.ones(len(self.rows), np.bool_)
        if aggregate.where is not None:
            there &= self._facts.holds(aggregate.where)
        vector = None
        if aggregate.column is not None:
            vector = self.rows.vectors(self.needs.name[aggregate.column])[0]
            there &= vector.valid
        groups = [group[there[group]] for group in self.groups]
        if aggregate.function == "COUNT":
            codes = vector.codes() if vector is not None and aggregate.distinct else None
            counts = [len(group if codes is None else np.unique(codes[group])) for group in groups]
            return Vector.of(Type.BIGINT, counts)
        assert vector is not None
        if aggregate.function in ("MIN", "MAX"):
            return _extremes(vector, groups, aggregate.function == "MIN")
        return _sums(aggregate, vector, groups)


def _extremes(vector: Vector, groups: Sequence[Index], least: bool) -> Vector:
    codes = vector.order_codes()
    best = np.ndarray.argmin if least else np.ndarray.argmax
    at = np.array([group[best(codes[group])] if len(group) else -1 for group in groups], np.int64)
    found = np.flatnonzero(at >= 0)
    out = Vector.blank(vector.type, len(groups))
    out.values[found], out.valid[found] = vector.values[at[found]], True
    return out


def _sums(aggregate: Aggregate, vector: Vector, groups: Sequence[Index]) -> Vector:
    """The sum of each group's values, or their average; NULL of none."""
    out = Vector.blank(aggregate.type, len(groups))
    for at, group in enumerate(groups):
        if len(group):
            out.values[at], out.valid[at] = _sum(aggregate, vector.take(group)), True
    return out


def _sum(aggregate: Aggregate, vector: Vector) -> Any:
    """The sum of some values, or their average, as vectors store it."""
    count, averaged = len(vector), aggregate.function == "AVG"
    if vector.type.is_exact:
        total: Any = sum(vector.values.tolist())
        return averaged_exactly(aggregate, total, count) if averaged else to_units(total, aggregate.type)
    values = vector.values
    units = int(exact_units(values).sum())
    total = with_specials(
        units, int(np.isnan(values).sum()), int((values == np.inf).sum()), int((values == -np.inf).sum())
    )
    return average(total, count) if averaged else total


# -- rows in order ---------------------------------------------------------------------------------


def in_order(rows: Rows, keys: Sequence[tuple[OrderKey, str]]) -> Index:
    """The order of rows by keys, each with the name of its column."""
    columns: list[Any] = []
    for key, name in reversed(keys):
        vector = rows.vectors(name)[0]
        codes = np.where(vector.valid, vector.order_codes(), 0)
        columns += [~codes if key.descending else codes, vector.valid if key.nulls_first else ~vector.valid]
    return np.lexsort(columns)


def first_rows(query: Query, needs: Needs, rows: Rows) -> Index:
    """The rows of the answer, in order; with a partition, group by group."""
    assert query.limit is not None
    order = in_order(rows, [(key, needs.name[key.column]) for key in needs.order])
    if not query.partition:
        return order[query.offset : query.offset + query.limit]
    number = group_numbers(needs, rows)[order]
    by_group = np.argsort(number, kind="stable")
    number = number[by_group]
    first = np.flatnonzero(np.diff(number, prepend=-1))
    place = np.arange(len(number)) - np.repeat(first, np.diff(np.append(first, len(number))))
    return order[by_group[place < query.limit]]
