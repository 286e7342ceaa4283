"""Families: subscriptions over the same rows of a table that differ only in their ranges.

A family's *row source* says which rows take part: the rows of a table that pass a fixed condition, each at a
coordinate x, the code of one attribute. A subscription of the family is a range of x, both ends included; its
answer depends on the rows within that range alone.

    SELECT MIN(per) FROM stocks WHERE risk BETWEEN 20 AND 60 AND name LIKE '%x%'
    row source: stocks, x = risk, condition name LIKE '%x%'          range: 20..60

A step reaches a family as *row moves*: rows of the source that are inserted, deleted or updated, in order. A
family keeps its structures in line with the table from step to step; after a rollback, or a step that it
missed, it rebuilds them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tocsin.language.algebra import Query
from tocsin.language.rewrite import NormalForm
from tocsin.model.columns import Index, Mask, Rows, Vector, cell_code, column_codes
from tocsin.model.delta import Deltas
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.evaluate import Facts
from tocsin.store.step import Step
from tocsin.store.tables import FEW_ROWS

__all__ = ["FilteredRows", "NotIndexable", "OneMove", "RangeEnds", "RangeFamily", "RowMoves", "RowSource"]

_UNKNOWN = -1, -1  # a version that no table has


class NotIndexable(Exception):
    """A family cannot represent a row or a subscription; the scan has to answer instead.

    One reason: a row lies at the least or greatest code, which stand for open ends of ranges.
    """


class RowMoves(NamedTuple):
    """Changes of a source's rows in order: position in the step, row before and after (-1: none), their x."""

    position: Index
    old: Index
    new: Index
    old_x: Index
    new_x: Index

    def __len__(self) -> int:
        return len(self.position)


class OneMove(NamedTuple):
    """One of them."""

    position: int
    old: int
    new: int
    old_x: int
    new_x: int


class RangeEnds(NamedTuple):
    """What subscriptions of a family differ in; ends of ranges as codes, by subscription (and attribute)."""

    low: Index
    high: Index
    values: Sequence[Sequence[Any]] = ()  # by column that partitions the rows, then by subscription
    texts: Mapping[str, Any] = {}  # by attribute of texts: those that codes stand for, in order


class RowSource(ABC):
    """The rows of a table that take part, each at a coordinate x."""

    table: str
    attribute: str | None
    condition: NormalForm

    @abstractmethod
    def locate(self, step: Step, rows: Index) -> tuple[Index, Mask]:
        """By row: its x, and whether it takes part."""

    def register(self, slots: Index, ends: RangeEnds, limit: int | None) -> bool:
        """Note the ranges of subscriptions. True if more rows take part now."""
        return False

    def ranges(self, slots: Index, low: Index, high: Index) -> tuple[Index, Index]:
        """The ends of subscriptions' ranges as x; given are their ends as codes."""
        return low, high

    def moves(self, step: Step) -> RowMoves:
        """What the step does to the source's rows; computed once per step."""
        return step.once(("moves", self), lambda: self._moves(step))

    def few_moves(self, step: Step) -> list[OneMove] | None:
        """The same one by one, if they are a few that are found faster so."""
        return None

    def _moves(self, step: Step) -> RowMoves:
        changed = step.changed[self.table]
        sides = []
        for rows in (changed.old, changed.new):
            there = np.flatnonzero(rows >= 0)
            codes, inside = self.locate(step, rows[there])
            found, x = np.full(len(rows), -1), np.zeros((len(rows), *codes.shape[1:]), np.int64)
            found[there[inside]], x[there[inside]] = rows[there[inside]], codes[inside]
            sides.append((found, x))
        (old, old_x), (new, new_x) = sides
        keep = (old >= 0) | (new >= 0)
        return RowMoves(changed.position[keep], old[keep], new[keep], old_x[keep], new_x[keep])

    def rows_before(self, step: Step) -> tuple[Index, Index]:
        """The source's rows as they were before the step, and their x. O(table)."""
        store = step.tables[self.table]
        alive = np.flatnonzero(store.present() & (store.born[: len(store.rows)] < 0))
        x, inside = self.locate(step, alive)
        return alive[inside], x[inside]

    def stats(self) -> dict[str, Any]:
        """Table, attribute and condition."""
        condition = None if self.condition.always else str(self.condition)
        return {"table": self.table, "attribute": self.attribute, "condition": condition}


@dataclass(frozen=True)
class FilteredRows(RowSource):
    """Rows of a table that pass a condition, by the code of an attribute (None: all rows are at 0)."""

    table: str
    attribute: str | None
    condition: NormalForm

    def locate(self, step: Step, rows: Index) -> tuple[Index, Mask]:
        some = step.tables[self.table].rows.take(rows)
        inside = (
            np.ones(len(rows), np.bool_) if self.condition.always else Facts(some).matches(self.condition)
        )
        if self.attribute is None:
            return np.zeros(len(rows), np.int64), inside
        vector = some.vectors(self.attribute)[0]
        x, inside = column_codes(vector), inside & vector.valid
        if np.any(inside & ((x == LEAST) | (x == GREATEST))):
            raise NotIndexable(f"{self.table}.{self.attribute}")
        return x, inside

    def few_moves(self, step: Step) -> list[OneMove] | None:
        changed = step.changed[self.table]
        if len(changed.position) > FEW_ROWS or not self.condition.always:
            return None
        column = None if self.attribute is None else step.tables[self.table].column(self.attribute)
        moves = []
        for position, old, new in zip(*[part.tolist() for part in changed], strict=True):
            old, old_x = self._locate_one(column, old)
            new, new_x = self._locate_one(column, new)
            if old >= 0 or new >= 0:
                moves.append(OneMove(position, old, new, old_x, new_x))
        return moves

    def _moves(self, step: Step) -> RowMoves:
        few = self.few_moves(step)
        if few is None:
            return super()._moves(step)
        return RowMoves(*np.array(few, np.int64).reshape(-1, 5).T.copy())

    def _locate_one(self, column: Vector | None, row: int) -> tuple[int, int]:
        """A row and its x; -1 and 0 if there is none or it does not take part."""
        if row < 0 or column is None:
            return row, 0
        if not column.valid.item(row):
            return -1, 0
        x = cell_code(column, row)
        if x in (LEAST, GREATEST):
            raise NotIndexable(f"{self.table}.{self.attribute}")
        return row, x


class RangeFamily(ABC):
    """Subscriptions of one row source under slots, each with a range of x, both ends included."""

    name: ClassVar[str]
    settles: ClassVar[bool] = False  # deltas are consolidated for each seq, even if several positions have it

    def __init__(self, source: RowSource, query: Query) -> None:
        self.source, self.query = source, query
        self._version = _UNKNOWN  # commits and rollbacks of the table that the structures are valid for

    @abstractmethod
    def add(self, slots: Index, low: Index, high: Index, query: Query) -> None:
        """Register subscriptions of `query`, which may differ from the family's in its limit."""

    @abstractmethod
    def remove(self, slots: Index) -> None:
        """Unregister subscriptions."""

    @abstractmethod
    def __len__(self) -> int: ...

    def deltas(self, step: Step) -> Deltas:
        """How answers change in a step that changes the table; consolidated."""
        store = step.tables[self.source.table]
        if (store.commits, store.rollbacks) != self._version:
            self._rebuild(step)
        self._version = _UNKNOWN  # if anything fails from here on, rebuild with the next step
        deltas = self._apply_step(step)
        self._version = store.commits + 1, store.rollbacks
        return deltas if self.settles else step.settled(deltas)

    def invalidate(self) -> None:
        """Rebuild the structures with the next step."""
        self._version = _UNKNOWN

    def _apply_step(self, step: Step) -> Deltas:
        return self._apply(step, self.source.moves(step))

    @abstractmethod
    def _rebuild(self, step: Step) -> None:
        """Compute all structures from the table as it was before the step."""

    @abstractmethod
    def _apply(self, step: Step, moves: RowMoves) -> Deltas:
        """Apply the moves to the structures; return the deltas they cause."""

    @abstractmethod
    def contents(self, step: Step, slots: Index) -> tuple[Index, Rows] | None:
        """Answers of some members before the step: by row the number of its member, ascending; and the rows.

        None if a sum among them exceeds BIGINT.
        """

    def stats(self) -> dict[str, Any]:
        """Counts worth looking at."""
        return {"family": self.name, **self.source.stats(), "subscriptions": len(self)}

    @abstractmethod
    def _check(self) -> None:
        """Assert the invariants."""
