"""Compare the contents accumulated from deltas with the reference evaluator.

`received.py` accumulates contents from the pipeline's deltas alone. The expected content is the query over
the final tables, by brute force; `final_tables` replays the changes into dicts, without the engine.

The reference evaluates the whole cross product. To keep it small, rows that fail a condition on their own
table are dropped first: most by a range of one column (`SortedTables`), the rest by the reference's `holds`.
And each row of the first table is only paired with rows that satisfy its equality joins. The answer is the
same.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from random import Random
from typing import Any, NamedTuple

from tocsin.lab.demo.flights import FlightChange
from tocsin.lab.demo.received import ReceivedContents
from tocsin.language.algebra import And, Between, Compare, Equal, Predicate, Query, TableRef, atoms
from tocsin.model.json_rows import row_json
from tocsin.model.schema import Stream, Table
from tocsin.reference import as_bag, evaluate, holds

__all__ = [
    "CheckedContents",
    "Rows",
    "SortedTables",
    "check",
    "conjuncts",
    "draw_sample",
    "expected",
    "final_tables",
]

Row = Mapping[str, Any]
Rows = Mapping[str, Sequence[Row]]
SortKey = tuple[Any, ...]  # of a value among values of all types: type, then value; NaN is the last number


class SortedTables:
    """Tables, and their rows sorted by each column that a range was looked up in.

    Rows that satisfy a range condition (`=`, `<`, BETWEEN, ...) are adjacent in the order of its column.
    Plain lists and `bisect`: nothing of the engine, whose answers are checked.

    >>> from tocsin.language.algebra import Column
    >>> rows = SortedTables({"t": [{"x": 5}, {"x": None}, {"x": 3}, {"x": "5"}]})
    >>> rows.candidates("t", [Compare(Column("x"), ">=", 4)])
    [{'x': 5}]
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._columns: dict[tuple[str, str], tuple[list[SortKey], list[Row]]] = {}

    def candidates(self, table: str, conditions: Sequence[Predicate]) -> Sequence[Row]:
        """A superset of the rows that satisfy the conditions; small if one of them is a narrow range."""
        best: Sequence[Row] = self.rows[table]
        for condition in conditions:
            ends = _ends(condition)
            if ends is not None:
                sort_keys, rows = self._column(table, ends[0])
                low, high = bisect_left(sort_keys, ends[1]), bisect_right(sort_keys, ends[2])
                if high - low < len(best):
                    best = rows[low:high]
        return best

    def _column(self, table: str, name: str) -> tuple[list[SortKey], list[Row]]:
        """The sort keys of a column in order, and their rows; without NULLs, which satisfy no range."""
        if (table, name) not in self._columns:
            known = [(_sort_key(row[name]), row) for row in self.rows[table] if row.get(name) is not None]
            known.sort(key=lambda one: one[0])
            self._columns[table, name] = [key for key, _ in known], [row for _, row in known]
        return self._columns[table, name]


def _ends(condition: Predicate) -> tuple[str, SortKey, SortKey] | None:
    """The column and the first and last sort key of a range; None for any other condition."""
    match condition:
        case Between(column, low, high):
            return column.name, _sort_key(low), _sort_key(high)
        case Compare(column, "=", value):
            return column.name, _sort_key(value), _sort_key(value)
        case Compare(column, ">" | ">=", value):
            kind = _sort_key(value)[0]
            return column.name, _sort_key(value), (kind + 1,)
        case Compare(column, "<" | "<=", value):
            return column.name, _sort_key(value)[:1], _sort_key(value)
    return None


def _sort_key(value: Any) -> SortKey:
    if isinstance(value, bool):
        return 0, value
    if isinstance(value, int | float):
        return (1, True, 0) if math.isnan(value) else (1, False, value)
    if isinstance(value, str):
        return 2, value
    if not isinstance(value, datetime):
        assert isinstance(value, date)
        value = datetime(value.year, value.month, value.day)
    return 3, value if value.tzinfo is not None else value.replace(tzinfo=UTC)


class CheckedContents(NamedTuple):
    """How many contents were right, and the subscriptions whose content was wrong."""

    right: int
    wrong: tuple[int, ...]

    @property
    def total(self) -> int:
        return self.right + len(self.wrong)


def final_tables(
    changes: Iterable[FlightChange], schemas: Iterable[Table | Stream]
) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table after all changes, by plain dicts; for a stream, all its events."""
    keys = {schema.name: schema.key for schema in schemas}
    rows: dict[str, dict[Any, dict[str, Any]]] = {name: {} for name in keys}
    for change in changes:
        table = rows[change.table]
        key = tuple(change.row[name] for name in keys[change.table]) or len(table)
        if change.op == "delete":
            del table[key]
        else:
            table[key] = table.get(key, {}) | change.row
    return {name: list(table.values()) for name, table in rows.items()}


def expected(query: Query, rows: SortedTables, keys: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    """The reference's answer, after a round trip through JSON."""
    several = len(query.tables) > 1
    parts = conjuncts(query.where)
    narrow: dict[str, list[Mapping[str, Any]]] = {}
    for table in query.tables:
        relation = table.alias if several else ""
        own = [p for p in parts if {atom.column.relation for atom in atoms(p)} == {relation}]
        scoped = (lambda row, alias=table.alias: {alias: row}) if several else (lambda row: row)
        candidates = rows.candidates(table.name, own)
        narrow[table.alias] = [row for row in candidates if all(holds(p, scoped(row)) for p in own)]
    renamed = replace(query, tables=tuple(TableRef(table.alias, table.alias) for table in query.tables))
    own_keys = {table.alias: keys[table.name] for table in query.tables}
    some = _partners(query, narrow) if several else [narrow]
    return [json.loads(row_json(row)) for part in some for row in evaluate(renamed, part, own_keys)]


def _partners(
    query: Query, rows: Mapping[str, list[Mapping[str, Any]]]
) -> Iterator[dict[str, list[Mapping[str, Any]]]]:
    """Each row of the first table with the rows of the others that equal it in the join columns."""
    first, *others = (table.alias for table in query.tables)
    sides = [{c.relation: c.name for c in (j.left, j.right)} for j in query.joins if isinstance(j, Equal)]
    found: dict[str, tuple[list[str], dict[Any, list[Mapping[str, Any]]]]] = {}
    for alias in others:
        mine = [side for side in sides if side.keys() == {first, alias}]
        index: dict[Any, list[Mapping[str, Any]]] = {}
        for row in rows[alias]:
            index.setdefault(tuple(row.get(side[alias]) for side in mine), []).append(row)
        found[alias] = [side[first] for side in mine], index
    for row in rows[first]:
        candidates = {
            alias: index.get(tuple(row.get(name) for name in names), [])
            for alias, (names, index) in found.items()
        }
        if all(candidates.values()):
            yield {first: [row], **candidates}


def draw_sample(labels: Mapping[int, str], *, each: int, seed: int) -> list[int]:
    """The ids of `each` subscriptions of every shape, drawn by the seed."""
    draw, by_label = Random(seed), dict[str, list[int]]()
    for number in sorted(labels):
        by_label.setdefault(labels[number], []).append(number)
    return [n for _, mine in sorted(by_label.items()) for n in draw.sample(mine, min(each, len(mine)))]


def check(
    contents: ReceivedContents, queries: Mapping[int, Query], rows: Rows, keys: Mapping[str, tuple[str, ...]]
) -> CheckedContents:
    """Compare the contents of some queries with the reference."""
    ordered = SortedTables(rows)
    wrong = [
        number
        for number, query in queries.items()
        if as_bag(contents.content(number)) != as_bag(expected(query, ordered, keys))
    ]
    return CheckedContents(len(queries) - len(wrong), tuple(wrong))


def conjuncts(predicate: Predicate) -> list[Predicate]:
    """The top-level conditions, connected by AND."""
    if isinstance(predicate, And):
        return [part for arg in predicate.args for part in conjuncts(arg)]
    return [predicate]
