"""Rows of tables by the order of their columns: where to look for those that satisfy a condition.

A condition that is a range of one column (`=`, `<`, BETWEEN, ...) is satisfied by rows that stand side by
side in the order of that column. Plain lists and `bisect`; nothing of the engine, whose answers are checked.

>>> from tocsin.language.algebra import Column
>>> rows = Ordered({"t": [{"x": 5}, {"x": None}, {"x": 3}, {"x": "5"}]})
>>> rows.near("t", [Compare(Column("x"), ">=", 4)])
[{'x': 5}]
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from tocsin.language.algebra import Between, Compare, Predicate

__all__ = ["Ordered", "Rows"]

Row = Mapping[str, Any]
Rows = Mapping[str, Sequence[Row]]
Place = tuple[Any, ...]  # of a value among all: kind, then value; NaN is the last number


class Ordered:
    """Tables, and the order of each column that was asked about."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._columns: dict[tuple[str, str], tuple[list[Place], list[Row]]] = {}

    def near(self, table: str, conditions: Sequence[Predicate]) -> Sequence[Row]:
        """Rows of a table among which are all that satisfy the conditions: few, if one is a narrow range."""
        best: Sequence[Row] = self.rows[table]
        for condition in conditions:
            ends = _ends(condition)
            if ends is not None:
                places, rows = self._column(table, ends[0])
                low, high = bisect_left(places, ends[1]), bisect_right(places, ends[2])
                if high - low < len(best):
                    best = rows[low:high]
        return best

    def _column(self, table: str, name: str) -> tuple[list[Place], list[Row]]:
        """The places of a column's values in order, and their rows; NULLs satisfy no range."""
        if (table, name) not in self._columns:
            known = [(_place(row[name]), row) for row in self.rows[table] if row.get(name) is not None]
            known.sort(key=lambda one: one[0])
            self._columns[table, name] = [place for place, _ in known], [row for _, row in known]
        return self._columns[table, name]


def _ends(condition: Predicate) -> tuple[str, Place, Place] | None:
    """The column and the first and last place of a range; None for another condition."""
    match condition:
        case Between(column, low, high):
            return column.name, _place(low), _place(high)
        case Compare(column, "=", value):
            return column.name, _place(value), _place(value)
        case Compare(column, ">" | ">=", value):
            kind = _place(value)[0]
            return column.name, _place(value), (kind + 1,)
        case Compare(column, "<" | "<=", value):
            return column.name, _place(value)[:1], _place(value)
    return None


def _place(value: Any) -> Place:
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
