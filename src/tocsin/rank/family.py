"""Families: subscriptions that look at the same rows of a table and differ in their ranges.

A family's *spot* says which rows: those of a table that pass a fixed condition, each at the code of one
attribute. A subscription of it is a range of codes; its answer depends on the rows in that range alone.

    SELECT MIN(per) FROM stocks WHERE risk BETWEEN 20 AND 60 AND sector = 'tech'
    spot: stocks, risk, sector = 'tech'          range: 20..60

A step reaches a family as *moves*: rows of the spot that come, go or change, in order. What a family keeps
follows the table from step to step; a step that was rolled back, or passed unseen, makes it begin anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tocsin.language.algebra import Query
from tocsin.language.rewrite import NormalForm
from tocsin.model.columns import Index, Mask, Rows
from tocsin.model.delta import Deltas
from tocsin.predicate.codes import GREATEST, LEAST, column_codes
from tocsin.predicate.evaluate import Facts
from tocsin.store.step import Step

__all__ = ["Family", "Moves", "Place", "Spot", "Unfit"]


class Unfit(Exception):
    """A row lies where codes mean an open end: the family cannot take it, a scan must."""


class Moves(NamedTuple):
    """Changes of a spot's rows in order: position in the step, row before and after (-1: none), their x."""

    position: Index
    old: Index
    new: Index
    old_x: Index
    new_x: Index

    def __len__(self) -> int:
        return len(self.position)


class Place(ABC):
    """Rows of a table that count, each at a number."""

    table: str
    attribute: str | None
    rest: NormalForm

    @abstractmethod
    def place(self, step: Step, rows: Index) -> tuple[Index, Mask]:
        """The numbers of some rows, and whether they count."""

    def moves(self, step: Step) -> Moves:
        """What the step does to the spot's rows; worked out once per step."""
        return step.once(("moves", self), lambda: self._moves(step))

    def _moves(self, step: Step) -> Moves:
        changed = step.changed[self.table]
        parts = []
        for rows in (changed.old, changed.new):
            there = np.flatnonzero(rows >= 0)
            found, x = np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.int64)
            codes, of = self.place(step, rows[there])
            found[there[of]], x[there[of]] = rows[there[of]], codes[of]
            parts.append((found, x))
        (old, old_x), (new, new_x) = parts
        keep = (old >= 0) | (new >= 0)
        return Moves(changed.position[keep], old[keep], new[keep], old_x[keep], new_x[keep])

    def before(self, step: Step) -> tuple[Index, Index]:
        """The spot's rows as they were before the step, and their codes. O(table)."""
        store = step.tables[self.table]
        alive = np.flatnonzero(store.present() & (store.born[: len(store.rows)] < 0))
        x, of = self.place(step, alive)
        return alive[of], x[of]

    def stats(self) -> dict[str, Any]:
        """Which rows these are."""
        rest = None if self.rest.always else str(self.rest)
        return {"table": self.table, "attribute": self.attribute, "condition": rest}


@dataclass(frozen=True)
class Spot(Place):
    """Rows of a table that pass a condition, by the code of an attribute (None: all at 0)."""

    table: str
    attribute: str | None
    rest: NormalForm

    def place(self, step: Step, rows: Index) -> tuple[Index, Mask]:
        """The codes of some rows, and whether they are of the spot."""
        some = step.tables[self.table].rows.take(rows)
        of = np.ones(len(rows), np.bool_) if self.rest.always else Facts(some).matches(self.rest)
        if self.attribute is None:
            return np.zeros(len(rows), np.int64), of
        vector = some.vectors(self.attribute)[0]
        x, of = column_codes(vector), of & vector.valid
        if np.any(of & ((x == LEAST) | (x == GREATEST))):
            raise Unfit(f"{self.table}.{self.attribute}")
        return x, of


class Family(ABC):
    """Subscriptions of one spot under slots, each with a range of codes, both ends included."""

    name: ClassVar[str]

    def __init__(self, spot: Place, query: Query) -> None:
        self.spot, self.query = spot, query
        self._seen = -1, -1  # commits and rollbacks of the table, as they must be if no step was missed

    @abstractmethod
    def add(self, slots: Index, low: Index, high: Index, query: Query) -> None:
        """Take subscriptions in: those of `query`, which may differ from the family's in its limit."""

    @abstractmethod
    def remove(self, slots: Index) -> None:
        """Let subscriptions go."""

    @abstractmethod
    def __len__(self) -> int: ...

    def deltas(self, step: Step) -> Deltas:
        """How answers change in a step that changes the table; consolidated."""
        store = step.tables[self.spot.table]
        now = store.commits, store.rollbacks
        if now != self._seen:
            self._begin(step)
        self._seen = -1, -1  # if something goes wrong now, all is worked out anew
        told = self._told(step, self.spot.moves(step))
        self._seen = store.commits + 1, store.rollbacks
        return told

    def begin_anew(self) -> None:
        """What is kept does not hold any more; it is worked out again with the next step."""
        self._seen = -1, -1

    @abstractmethod
    def _begin(self, step: Step) -> None:
        """Work out all that is kept, from the table as it was before the step."""

    @abstractmethod
    def _told(self, step: Step, moves: Moves) -> Deltas:
        """Follow the step, and tell what it changes."""

    @abstractmethod
    def contents(self, step: Step, slots: Index) -> tuple[Index, Rows] | None:
        """The answers of some members before the step: the number of each row's member, ascending; and rows.

        None if a sum among them is no BIGINT.
        """

    def stats(self) -> dict[str, Any]:
        """Counts worth looking at."""
        return {"family": self.name, **self.spot.stats(), "subscriptions": len(self)}

    @abstractmethod
    def _check(self) -> None:
        """Assert the invariants."""
