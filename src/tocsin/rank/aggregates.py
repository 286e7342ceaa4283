"""COUNT, SUM and AVG over ranges: a state for each subscription, changed by the rows that come and go.

A row at x concerns the ranges that hold x: a rectangle of the space of ranges (`space.py`). One that moves
from x to y concerns three kinds, each of which is told once:

    l..r holds x alone       loses the old row
    l..r holds y alone       gets the new one
    l..r holds both          exchanges them

What a kind does to a state is a vector of small numbers, worked out once for the change; each range of the
rectangle adds it, and rounds its answer anew (`exact.py`: sums are exact, so the order of rows says nothing).

Cost: for each answer concerned, its lookup in the space and O(limbs). Those that come get their states
together: rows of the table in order of x are added up once, and both ends of a range read what is there.

>>> import pyarrow as pa
>>> from tocsin.language.ddl import parse_definitions
>>> from tocsin.language.shape import plan
>>> from tocsin.language.sql import parse_query
>>> from tocsin.store.database import Database
>>> database = Database()
>>> database.define(parse_definitions("CREATE TABLE t (k BIGINT, x BIGINT, v DOUBLE, PRIMARY KEY (k))"), {})
>>> query = parse_query("SELECT SUM(v) AS s FROM t", database.catalog)
>>> from tocsin.rank.family import Spot
>>> family = Running(Spot("t", "x", plan(query).filters[0]), query)
>>> family.add(np.array([7, 8]), np.array([0, 5]), np.array([9, 20]), query)
>>> step = database.stage({"t": pa.table({"k": [1, 2], "x": [3, 6], "v": [0.5, 0.25]})})
>>> [(d.seq, d.subscription, d.sign, d.row["s"]) for d in family.deltas(step)]
[(1, 7, -1, None), (1, 7, 1, 0.5), (2, 7, -1, 0.5), (2, 7, 1, 0.75), (2, 8, -1, None), (2, 8, 1, 0.25)]

T07, chapter 5, is about extremes; these are plainer, since every range that holds the row is concerned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Query
from tocsin.model.columns import Index, Mask, Rows, longer
from tocsin.model.delta import Deltas
from tocsin.rank._kernels import aggregates as kernels
from tocsin.rank._kernels.aggregates import KINDS, Totals, Weighed
from tocsin.rank.exact import Cells
from tocsin.rank.family import Family, Moves, Place
from tocsin.rank.members import GREATEST, LEAST, Members
from tocsin.rank.sums import overflow_in, to_bigint
from tocsin.store.step import Step

__all__ = ["Running"]

_LOSES, _GETS, _EXCHANGES = range(KINDS)


class Running(Family):
    """Queries of COUNT, SUM and AVG alone, in any number; totals by member."""

    name = "running"

    def __init__(self, spot: Place, query: Query) -> None:
        super().__init__(spot, query)
        self._members = Members()
        self._cells = Cells(query)
        self._totals = self._cells.empty(len(self._members.slot))
        self._fresh: Mask = np.zeros(len(self._members.slot), np.bool_)  # by place: has no state yet
        self._over = False  # may a sum that stands be no BIGINT?

    def __len__(self) -> int:
        return len(self._members)

    def add(self, slots: Index, low: Index, high: Index, query: Query) -> None:
        places = self._members.add(slots, low, high)
        room = len(self._members.slot)
        if room > len(self._fresh):
            self._totals = Totals(*(longer(part, room) for part in self._totals))
            self._fresh = longer(self._fresh, room)
        self._totals.slot[places] = slots
        self._fresh[places] = True

    def remove(self, slots: Index) -> None:
        self._fresh[self._members.remove(slots)] = False

    def begin_anew(self) -> None:
        """Not needed: a state is of the rows of one range alone, and those that come get theirs."""

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "cells": self._cells.width}

    # -- states ------------------------------------------------------------------------------------

    def _begin(self, step: Step) -> None:
        self._cells.begin()
        self._totals = self._cells.empty(len(self._fresh))._replace(slot=self._totals.slot)
        self._fresh[:] = self._members.slot >= 0
        self._over = False

    def _load(self, step: Step) -> None:
        """Work out the states of those who came, from the table as it was before the step."""
        places = np.flatnonzero(self._fresh)
        if not len(places):
            return
        low, high = self._members.low[places], self._members.high[places]
        self._totals, over = self._added_up(step, self._cells, self._totals, places, low, high)
        self._over |= over
        self._fresh[:] = False

    def contents(self, step: Step, slots: Index) -> tuple[Index, Rows] | None:
        rows, over = self.answers(step, *self._members.ranges(slots))
        return None if over else (np.arange(len(slots)), rows)

    def answers(self, step: Step, low: Index, high: Index) -> tuple[Rows, bool]:
        cells, places = Cells(self.query), np.arange(len(low))
        totals = cells.empty(len(low))._replace(slot=places)
        totals, over = self._added_up(step, cells, totals, places, low, high)
        counts = cells.layout.columns[cells.layout.items[:, 1], kernels.COUNT]
        valid = (cells.layout.items[:, 0] == kernels.COUNT_OF)[:, None] | (totals.cells[:, counts].T > 0)
        return cells.answers(self.query, np.ascontiguousarray(totals.shown.T), valid), over

    def _added_up(
        self, step: Step, cells: Cells, totals: Totals, places: Index, low: Index, high: Index
    ) -> tuple[Totals, bool]:
        """States at some places from the rows before the step; is a sum among them no BIGINT?"""
        if not len(places):
            return totals, False
        rows, x = self.spot.before(step)
        near = (x >= low.min()) & (x <= high.max())
        rows, x = rows[near], x[near]
        order = np.argsort(x, kind="stable")
        x = x[order]
        values = cells.read(step.tables[self.spot.table].rows, rows)
        totals = cells.grow(values, totals)
        totals.cells[places] = 0
        ends = np.concatenate([np.searchsorted(x, low), np.searchsorted(x, high, side="right")])
        stops = np.stack([ends, np.tile(places, 2), np.repeat([-1, 1], len(places))])
        stops = np.ascontiguousarray(stops[:, np.argsort(ends, kind="stable")])
        kernels.sweep(cells.layout, values, order, stops, totals.cells)
        return totals, cells.show(totals, places)

    # -- steps -------------------------------------------------------------------------------------

    def _told(self, step: Step, moves: Moves) -> Deltas:
        self._load(step)
        rows = step.tables[self.spot.table].rows
        old, new = self._cells.read(rows, moves.old), self._cells.read(rows, moves.new)
        for some in (old, new):  # old rows in nobody's range were not seen before
            self._totals = self._cells.grow(some, self._totals)
        over = np.full(5, -1, np.int64)
        parts = []
        for begin in range(0, len(moves), self._members.at_once):
            part = slice(begin, begin + self._members.at_once)
            seq = step.seq[moves.position[part]]
            changes = self._changes(_part(old, part), _part(new, part))
            found = self._concerned(Moves(*(column[part] for column in moves)), changes)
            parts.append(self._tell(found, changes, seq, over))
        if over[0] >= 0:
            slot, _, *limbs = over.tolist()
            with overflow_in(slot):
                to_bigint(sum(limb << (32 * i) for i, limb in enumerate(limbs)))
        return Deltas.concat(parts)

    def _changes(self, old: Weighed, new: Weighed) -> NDArray[np.int64]:
        """By change and kind: what is added to cells."""
        changes = np.zeros((old.valid.shape[1], KINDS, self._cells.width), np.int64)
        kernels.weigh(self._cells.layout, old, new, changes)
        return changes

    def _concerned(self, moves: Moves, changes: NDArray[np.int64]) -> Index:
        """Whose state is changed, packed as (change, member, kind)."""
        had, has = moves.old >= 0, moves.new >= 0
        both = had & has
        left, right = np.minimum(moves.old_x, moves.new_x), np.maximum(moves.old_x, moves.new_x)
        apart, on = both & (left < right), np.full(len(moves), GREATEST)
        rectangles = np.empty((KINDS, len(moves), 4), np.int64)
        for kind, x, other in (
            (_LOSES, moves.old_x, moves.new_x),
            (_GETS, moves.new_x, moves.old_x),
        ):
            least = np.where(apart & (other < x), other + 1, LEAST)  # without those that hold the other
            most = np.where(apart & (other > x), other - 1, on)
            rectangles[kind] = np.stack([least, x, x, most], axis=1)
        rectangles[_EXCHANGES] = np.stack([np.full(len(moves), LEAST), left, right, on], axis=1)
        wanted = np.stack([had & (apart | ~has), has & (apart | ~had), both])
        if not self._over:  # else those whose sums stand beyond BIGINT are to be found
            wanted &= changes.any(axis=2).T
        kinds, numbers = np.nonzero(wanted)
        return self._members.concerned(rectangles[kinds, numbers], numbers, kinds)

    def _tell(self, found: Index, changes: NDArray[np.int64], seq: Index, over: Index) -> Deltas:
        """Make the changes; deltas in order."""
        told = self._cells.told(2 * len(found) + 2)._replace(over=over)
        by_rank = self._members.by_rank()
        n = kernels.tell(self._cells.layout, self._totals, by_rank, found, changes, seq, told)
        signs = np.tile(np.array([-1, 1], np.int8), n // 2)
        answers = self._cells.answers(self.query, told.values[:, :n], told.valid[:, :n])
        return Deltas.of(told.seq[:n], told.slot[:n], signs, answers, np.arange(n))

    def _check(self) -> None:
        """What is shown are the answers of the cells, and nobody counts less than nothing."""
        self._members._check()
        self._cells._check()
        assert len(self._totals.cells) == len(self._totals.shown) == len(self._fresh)
        taken = self._members.places
        assert np.array_equal(self._totals.slot[taken], self._members.slot[taken])
        places = taken[~self._fresh[taken]]
        counts = self._cells.layout.columns[:, kernels.COUNT]
        assert np.all(self._totals.cells[places][:, counts] >= 0)
        again = Totals(*(part.copy() for part in self._totals))
        self._cells.show(again, places)
        assert np.array_equal(again.shown[places], self._totals.shown[places])


def _part(values: Weighed, some: slice) -> Weighed:
    return Weighed(np.ascontiguousarray(values.bits[:, some]), np.ascontiguousarray(values.valid[:, some]))
