"""COUNT, SUM and AVG over ranges: a state for each subscription, changed by inserted and deleted rows.

A row at x affects the ranges that contain x: a rectangle of the subscription space (`space.py`). A row that
moves from x to y affects three kinds of ranges, each kind once:

    l..r contains x only     LOSES the old row
    l..r contains y only     GAINS the new one
    l..r contains both       EXCHANGES them

What each kind adds to a state is a vector of small numbers, computed once per change. Every range of the
rectangle adds it to its state and rounds its answer again (`sums.py`: sums are exact, so the order of rows
does not matter).

Cost: for each affected answer, its lookup in the space and O(limbs). States of new subscriptions are computed
together: the rows of the table are summed up once in the order of x, and the ends of each range read the
running sums.

>>> import pyarrow as pa
>>> from tocsin.language.ddl import parse_definitions
>>> from tocsin.language.shape import plan
>>> from tocsin.language.sql import parse_query
>>> from tocsin.store.database import Database
>>> database = Database()
>>> database.define(parse_definitions("CREATE TABLE t (k BIGINT, x BIGINT, v DOUBLE, PRIMARY KEY (k))"), {})
>>> query = parse_query("SELECT SUM(v) AS s FROM t", database.catalog)
>>> from tocsin.rank.family import FilteredRows
>>> family = AggregateFamily(FilteredRows("t", "x", plan(query).filters[0]), query)
>>> family.add(np.array([7, 8]), np.array([0, 5]), np.array([9, 20]), query)
>>> step = database.stage({"t": pa.table({"k": [1, 2], "x": [3, 6], "v": [0.5, 0.25]})})
>>> [(d.seq, d.subscription, d.sign, d.row["s"]) for d in family.deltas(step)]
[(1, 7, -1, None), (1, 7, 1, 0.5), (2, 7, -1, 0.5), (2, 7, 1, 0.75), (2, 8, -1, None), (2, 8, 1, 0.25)]

T07, chapter 5, is about extremes; sums are simpler, since every range that contains the row is affected.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Query
from tocsin.model.columns import Index, Mask, Rows, longer
from tocsin.model.delta import Deltas
from tocsin.rank._kernels import aggregates as kernels
from tocsin.rank._kernels.aggregates import (
    EXCHANGES,
    GAINS,
    KINDS,
    LOSES,
    OVERFLOW_ITEM,
    OVERFLOW_LIMBS,
    OVERFLOW_SLOT,
    AggregateTotals,
    ColumnValues,
)
from tocsin.rank.family import RangeFamily, RowMoves, RowSource
from tocsin.rank.members import GREATEST, LEAST, Members, RangeMembers, by_seq, parts_of
from tocsin.rank.sums import AggregateCells, new_overflow, overflow_in, to_units
from tocsin.store.step import Step

__all__ = ["AggregateFamily"]


class AggregateFamily(RangeFamily):
    """Queries of COUNT, SUM and AVG only; totals by member."""

    name = "aggregates"
    settles = True

    def __init__(self, source: RowSource, query: Query, members: Members | None = None) -> None:
        super().__init__(source, query)
        self._members = RangeMembers() if members is None else members
        self._cells = AggregateCells(query)
        self._totals = self._cells.empty(len(self._members.slot))
        self._fresh: Mask = np.zeros(
            len(self._members.slot), np.bool_
        )  # by place: the state is not computed yet
        self._overflow = False  # may the sum of a member exceed BIGINT now?

    def __len__(self) -> int:
        return len(self._members)

    def add(self, slots: Index, low: Index, high: Index, query: Query) -> None:
        places = self._members.add(slots, low, high)
        length = len(self._members.slot)
        if length > len(self._fresh):
            self._totals = AggregateTotals(*(longer(part, length) for part in self._totals))
            self._fresh = longer(self._fresh, length)
        self._totals.slot[places] = slots
        self._fresh[places] = True

    def remove(self, slots: Index) -> None:
        self._fresh[self._members.remove(slots)] = False

    def invalidate(self) -> None:
        """Nothing to do: a state depends on the rows of one range only, and new members compute theirs."""

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "cells": self._cells.width}

    # -- states ------------------------------------------------------------------------------------

    def _rebuild(self, step: Step) -> None:
        self._cells.reset()
        self._totals = self._cells.empty(len(self._fresh))._replace(slot=self._totals.slot)
        self._fresh[:] = self._members.slot >= 0
        self._overflow = False

    def _load(self, step: Step) -> None:
        """Compute the states of new members from the table as it was before the step."""
        places = np.flatnonzero(self._fresh)
        if not len(places):
            return
        low, high = self._members.low[places], self._members.high[places]
        self._totals, overflow = self._sum_up(step, self._cells, self._totals, places, low, high)
        self._overflow |= overflow
        self._fresh[:] = False

    def contents(self, step: Step, slots: Index) -> tuple[Index, Rows] | None:
        rows, overflow = self.answers(step, *self._members.ranges(slots))
        return None if overflow else (np.arange(len(slots)), rows)

    def answers(self, step: Step, low: Index, high: Index) -> tuple[Rows, bool]:
        """Answers of ranges before the step; whether a sum among them exceeds BIGINT."""
        cells, places = AggregateCells(self.query), np.arange(len(low))
        totals = cells.empty(len(low))._replace(slot=places)
        totals, overflow = self._sum_up(step, cells, totals, places, low, high)
        columns, items = cells.layout
        counts = totals.cells[:, columns[items[:, kernels.COLUMN], kernels.COUNT]].T
        valid = (items[:, kernels.FUNCTION] == kernels.COUNT_OF)[:, None] | (counts > 0)
        return cells.answers(self.query, np.ascontiguousarray(totals.answers.T), valid), overflow

    def _sum_up(
        self,
        step: Step,
        cells: AggregateCells,
        totals: AggregateTotals,
        places: Index,
        low: Index,
        high: Index,
    ) -> tuple[AggregateTotals, bool]:
        """Compute the states at some places from the rows before the step; does a sum exceed BIGINT?"""
        if not len(places):
            return totals, False
        rows, x = self.source.rows_before(step)
        near = (x >= low.min()) & (x <= high.max())
        rows, x = rows[near], x[near]
        order = np.argsort(x, kind="stable")
        x = x[order]
        values = cells.read(step.tables[self.source.table].rows, rows)
        totals = cells.widen(values, totals)
        totals.cells[places] = 0
        ends = np.concatenate([np.searchsorted(x, low), np.searchsorted(x, high, side="right")])
        stops = np.stack([ends, np.tile(places, 2), np.repeat([-1, 1], len(places))])
        stops = np.ascontiguousarray(stops[:, np.argsort(ends, kind="stable")])
        kernels.add_prefix_sums(cells.layout, values, order, stops, totals.cells)
        return totals, cells.refresh(totals, places)

    # -- steps -------------------------------------------------------------------------------------

    def _apply(self, step: Step, moves: RowMoves) -> Deltas:
        self._load(step)
        rows = step.tables[self.source.table].rows
        old, new = self._cells.read(rows, moves.old), self._cells.read(rows, moves.new)
        for some in (old, new):  # old rows that were in no range have not been seen before
            self._totals = self._cells.widen(some, self._totals)
        overflow = new_overflow()
        parts, cut = [], False
        seqs = step.seq[moves.position]
        for part, within in parts_of(seqs, self._members.batch_size):
            seq, cut = seqs[part], cut or within
            changes = self._changes(_part(old, part), _part(new, part))
            found = self._affected(RowMoves(*(column[part] for column in moves)), changes)
            if step.shared:
                found = found[by_seq(found, seq)]
            parts.append(self._emit(found, changes, seq, overflow))
        if overflow[OVERFLOW_SLOT] >= 0:
            with overflow_in(int(overflow[OVERFLOW_SLOT])):
                limbs = overflow[OVERFLOW_LIMBS:].tolist()
                total = sum(limb << (32 * i) for i, limb in enumerate(limbs))
                to_units(total, self._cells.types[int(overflow[OVERFLOW_ITEM])])
        deltas = Deltas.concat(parts)
        return deltas.consolidate() if cut else deltas

    def _changes(self, old: ColumnValues, new: ColumnValues) -> NDArray[np.int64]:
        """By change and kind: the vector that is added to cells."""
        changes = np.zeros((old.valid.shape[1], KINDS, self._cells.width), np.int64)
        kernels.weigh(self._cells.layout, old, new, changes)
        return changes

    def _affected(self, moves: RowMoves, changes: NDArray[np.int64]) -> Index:
        """The members whose state changes, packed as (change, member, kind)."""
        had, has = moves.old >= 0, moves.new >= 0
        both = had & has
        left, right = np.minimum(moves.old_x, moves.new_x), np.maximum(moves.old_x, moves.new_x)
        apart, open_end = both & (left < right), np.full(len(moves), GREATEST)
        rectangles = np.empty((KINDS, len(moves), 4), np.int64)
        for kind, x, other in (
            (LOSES, moves.old_x, moves.new_x),
            (GAINS, moves.new_x, moves.old_x),
        ):
            least = np.where(apart & (other < x), other + 1, LEAST)  # without ranges that contain the other
            most = np.where(apart & (other > x), other - 1, open_end)
            rectangles[kind] = np.stack([least, x, x, most], axis=1)
        rectangles[EXCHANGES] = np.stack([np.full(len(moves), LEAST), left, right, open_end], axis=1)
        wanted = np.stack([had & (apart | ~has), has & (apart | ~had), both])
        if not self._overflow:  # else members whose sums exceed BIGINT have to be found
            wanted &= changes.any(axis=2).T
        kinds, numbers = np.nonzero(wanted)
        assert isinstance(self._members, RangeMembers)
        return self._members.affected(rectangles[kinds, numbers], numbers, kinds)

    def _emit(self, found: Index, changes: NDArray[np.int64], seq: Index, overflow: Index) -> Deltas:
        """Apply the changes to the states; deltas in order."""
        out = self._cells.buffer(2 * len(found) + 2)._replace(overflow=overflow)
        by_rank = self._members.by_rank()
        n = kernels.emit(self._cells.layout, self._totals, by_rank, found, changes, seq, out)
        signs = np.tile(np.array([-1, 1], np.int8), n // 2)
        answers = self._cells.answers(self.query, out.values[:, :n], out.valid[:, :n])
        return Deltas.of(out.seq[:n], out.slot[:n], signs, answers, np.arange(n))

    def _check(self) -> None:
        """Answers are those of the cells, and no count is negative."""
        self._members._check()
        self._cells._check()
        assert len(self._totals.cells) == len(self._totals.answers) == len(self._fresh)
        used = self._members.places
        assert np.array_equal(self._totals.slot[used], self._members.slot[used])
        places = used[~self._fresh[used]]
        counts = self._cells.layout.columns[:, kernels.COUNT]
        assert np.all(self._totals.cells[places][:, counts] >= 0)
        again = AggregateTotals(*(part.copy() for part in self._totals))
        self._cells.refresh(again, places)
        assert np.array_equal(again.answers[places], self._totals.answers[places])


def _part(values: ColumnValues, some: slice) -> ColumnValues:
    return ColumnValues(
        np.ascontiguousarray(values.bits[:, some]), np.ascontiguousarray(values.valid[:, some])
    )
