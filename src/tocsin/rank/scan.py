"""The rank room without an index: every subscription reads all rows it selects, at every moment of a step.

`RowHistory` is what one subscription sees of a table: the row slots that pass its filter and are alive at
some time of the step, and the *moments* at which that set changes. Moment 0 is the state before the step,
moment i the state after the change at `moments[i]`.

    slot      born  died        alive at moment:  0 (-1)   1 (p=3)   2 (p=8)
    4         -1    3                              yes      -         -
    9          3    forever                        -        yes       yes
    2         -1    8                              yes      yes       -

Top-k: sort the selected rows once; at each moment the members are the first k of those alive.
Distinct: sort by value; at each moment a value is a member if one of its rows is alive. Both are a matrix of
moments x rows, and the deltas are its changes from one moment to the next.
Aggregates: one row per moment, and a delta where it differs from the last. COUNT, SUM and AVG are running
sums over rows that are born and die, MIN and MAX the first of the rows alive in the order of their values.
Without selected rows, COUNT is 0 and the others are NULL.

O(moments x selected rows) per subscription whose selected rows change; O(1) for others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Aggregate, Column, OrderKey, Query
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Mask, Rows, Vector
from tocsin.model.delta import Deltas
from tocsin.model.schema import Type
from tocsin.rank.sums import (
    average,
    averaged_exactly,
    exact_units,
    overflow_in,
    to_units,
    with_specials,
)
from tocsin.room import Room, ScanRoom
from tocsin.store.plans import FlatPlans
from tocsin.store.step import Step
from tocsin.store.tables import FOREVER

__all__ = ["RankScan", "RowHistory", "check_sums", "content_of", "explain_row", "ranking"]

_MAX_CELLS = 1 << 22  # of the matrix of moments x rows, at a time


class RankScan(ScanRoom):
    """Answers each plan by itself."""

    name = "rank"
    shapes = (Shape.EXTREME, Shape.AGGREGATE, Shape.DISTINCT, Shape.TOPK)

    def deltas(self, step: Step) -> Deltas:
        parts = []
        for slot, plan in self._plans.items():
            if plan.query.tables[0].name in step.changed:
                history = RowHistory.of(plan, step)
                if not history.quiet:
                    changes = _value_deltas if plan.query.aggregates else _member_deltas
                    with overflow_in(slot):
                        parts.append(changes(slot, plan, history, step))
        return Deltas.concat(parts).consolidate()

    def content(self, slot: int, step: Step) -> Rows:
        return content_of(slot, self._plans[slot], step)

    def check_answers(self, slots: Index, plans: Sequence[Plan] | FlatPlans, step: Step) -> None:
        check_sums(self, slots, plans, step)

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        return explain_row(plan, slot, step)


def content_of(slot: int, plan: Plan, step: Step) -> Rows:
    """The answer of a plan over the database as it is; `slot` names it if a sum exceeds BIGINT."""
    history = RowHistory.of(plan, step)
    if plan.query.aggregates:
        with overflow_in(slot):
            return _answers(plan, history, step).take(np.array([-1]))
    history, members = _members(plan, history, step)
    last = None
    for _, matrix in members:
        last = matrix[-1]
    assert last is not None
    return _projected(plan, history.rows.take(history.slot[last]))


# -- history -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowHistory:
    """Selected row slots, when they are alive, and the moments at which anything changes."""

    rows: Rows
    slot: Index
    born: Index
    died: Index
    moments: Index

    @classmethod
    def of(cls, plan: Plan, step: Step) -> RowHistory:
        name = plan.query.tables[0].name
        store = step.tables[name]
        slot = np.flatnonzero(step.selected(name, plan.filters[0]) & store.present())
        born, died = store.born[slot], store.died[slot]
        ends = np.concatenate([born[born >= 0], died[died < FOREVER]])
        return cls(store.rows, slot, born, died, np.concatenate([[-1], np.unique(ends)]).astype(np.int64))

    def take(self, index: Index | Mask) -> RowHistory:
        """The same moments, with fewer rows or in another order."""
        return RowHistory(self.rows, self.slot[index], self.born[index], self.died[index], self.moments)

    @property
    def quiet(self) -> bool:
        """Whether the step changes no row that this subscription selects."""
        return len(self.moments) == 1

    def alive(self) -> Iterator[tuple[int, Mask]]:
        """The matrix of moments x rows, in chunks of bounded size: (first moment, chunk)."""
        chunk = max(1, _MAX_CELLS // max(1, len(self.slot)))
        for start in range(0, len(self.moments), chunk):
            at = self.moments[start : start + chunk, None]
            yield start, (self.born <= at) & (at < self.died)


def ranking(history: RowHistory, order: tuple[OrderKey, ...], key: tuple[str, ...]) -> Index:
    """Positions in `history` in order: by the order keys, ties by primary key."""
    columns: list[NDArray[Any]] = [
        history.rows.vectors(name)[0].take(history.slot).order_codes() for name in reversed(key)
    ]
    for part in reversed(order):
        vector = history.rows.vectors(part.column.name)[0].take(history.slot)
        codes = np.where(vector.valid, vector.order_codes(), 0)
        columns.append(~codes if part.descending else codes)  # ~c = -c - 1 reverses the order
        columns.append(vector.valid if part.nulls_first else ~vector.valid)
    return np.lexsort(columns) if columns else np.arange(len(history.slot))


# -- top-k and distinct ------------------------------------------------------------------------------


def _member_deltas(slot: int, plan: Plan, history: RowHistory, step: Step) -> Deltas:
    """Rows that enter and leave the answer between moments."""
    history, members = _members(plan, history, step)
    moments, rows, signs = [], [], []
    before: Mask | None = None
    for start, matrix in members:
        stacked = matrix if before is None else np.vstack([before, matrix])
        change = np.diff(stacked.astype(np.int8), axis=0)
        moment, row = np.nonzero(change)
        moments.append(moment + start + (before is None))
        rows.append(row)
        signs.append(change[moment, row])
        before = matrix[-1:]
    at, row, sign = np.concatenate(moments), np.concatenate(rows), np.concatenate(signs)
    used, inverse = np.unique(row, return_inverse=True)
    answer = _projected(plan, history.rows.take(history.slot[used]))
    return Deltas.of(step.seq[history.moments[at]], slot, sign, answer, inverse)


def _members(plan: Plan, history: RowHistory, step: Step) -> tuple[RowHistory, Iterator[tuple[int, Mask]]]:
    """The rows in a suitable order, and which of them are in the answer at each moment."""
    if plan.shape is Shape.TOPK:
        key = step.tables[plan.query.tables[0].name].schema.key
        ordered = history.take(ranking(history, plan.query.order, key))
        assert plan.query.limit is not None
        return ordered, _first(ordered, plan.query.limit)
    code = _projected(plan, history.rows.take(history.slot)).codes()
    order = np.argsort(code, kind="stable")
    ordered = history.take(order)
    return ordered, _one_per_value(ordered, code[order])


def _first(history: RowHistory, k: int) -> Iterator[tuple[int, Mask]]:
    for start, alive in history.alive():
        yield start, alive & (np.cumsum(alive, axis=1) <= k)


def _one_per_value(history: RowHistory, code: Index) -> Iterator[tuple[int, Mask]]:
    """The first row of each value represents it as long as any row of the value is alive."""
    first = np.flatnonzero(np.diff(code, prepend=-1))
    for start, alive in history.alive():
        members = np.zeros_like(alive)
        if len(first):
            members[:, first] = np.logical_or.reduceat(alive, first, axis=1)
        yield start, members


def _projected(plan: Plan, rows: Rows) -> Rows:
    names = {i.name: i.expression.name for i in plan.query.items if isinstance(i.expression, Column)}
    return rows.project(names)


# -- aggregates --------------------------------------------------------------------------------------


def _value_deltas(slot: int, plan: Plan, history: RowHistory, step: Step) -> Deltas:
    """The old row is deleted and the new one inserted wherever they differ."""
    rows = _answers(plan, history, step)
    code = rows.codes()
    at = np.flatnonzero(code[1:] != code[:-1]) + 1
    seq = step.seq[history.moments[at]]
    signs = np.repeat(np.array([-1, 1], np.int8), len(at))
    return Deltas.of(np.tile(seq, 2), slot, signs, rows, np.concatenate([at - 1, at]))


def _answers(plan: Plan, history: RowHistory, step: Step) -> Rows:
    """The answer at every moment."""
    columns = []
    for item in plan.query.items:
        assert isinstance(item.expression, Aggregate)
        columns.append((item.name, _values(item.expression, history, step, plan.query.tables[0].name)))
    return Rows(columns, len(history.moments))


def _values(aggregate: Aggregate, history: RowHistory, step: Step, table: str) -> Vector:
    column = aggregate.column
    if column is None:
        return _bigints(_running(history, np.ones(len(history.slot), np.int64)))
    known = history.take(history.rows.vectors(column.name)[0].valid[history.slot])
    count = _running(known, np.ones(len(known.slot), np.int64))
    if aggregate.function == "COUNT":
        return _bigints(count)
    if aggregate.function in ("MIN", "MAX"):
        return _extreme(known, OrderKey(column, descending=aggregate.function == "MAX"))
    if column.type is not None and column.type.is_exact:
        return _sum_integers(known, aggregate, count)
    return _sum_doubles(known, column.name, count, aggregate.function == "AVG", step, table)


def _running(history: RowHistory, weight: NDArray[Any]) -> NDArray[Any]:
    """At each moment, the sum of the weights of the rows alive."""
    change = np.zeros(len(history.moments), weight.dtype)
    if weight.dtype == object:
        change[:] = 0
    at_birth = np.searchsorted(history.moments, history.born)
    np.add.at(change, at_birth, weight)
    dies = history.died < FOREVER
    np.subtract.at(change, np.searchsorted(history.moments, history.died[dies]), weight[dies])
    return np.cumsum(change)


def _bigints(values: Index) -> Vector:
    return Vector(Type.BIGINT, values.astype(np.int64), np.ones(len(values), np.bool_))


def _extreme(history: RowHistory, key: OrderKey) -> Vector:
    ordered = history.take(ranking(history, (key,), ()))
    vector = history.rows.vectors(key.column.name)[0].take(ordered.slot)
    first, found = [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
    if not len(ordered.slot):
        return Vector.blank(vector.type, len(history.moments))
    for _, alive in ordered.alive():
        first.append(alive.argmax(axis=1))
        found.append(np.asarray(alive.any(axis=1)))
    row, there = np.concatenate(first), np.concatenate(found)
    blank = Vector.blank(vector.type, len(row)).values
    return Vector(vector.type, np.where(there, vector.values[row], blank), there)


def _sum_integers(history: RowHistory, aggregate: Aggregate, count: Index) -> Vector:
    column, type = aggregate.column, aggregate.type
    assert column is not None
    values = history.rows.vectors(column.name)[0].values[history.slot]
    total = _running(history, values.astype(object))
    out = Vector.blank(type, len(total))
    for at in np.flatnonzero(count).tolist():
        if aggregate.function == "AVG":
            out.values[at] = averaged_exactly(aggregate, total[at], int(count[at]))
        else:
            out.values[at] = to_units(total[at], type)
    return Vector(type, out.values, np.asarray(count, np.int64) != 0)


def _sum_doubles(
    history: RowHistory, name: str, count: Index, averaged: bool, step: Step, table: str
) -> Vector:
    values = history.rows.vectors(name)[0].values
    units = step.once(("units", table, name), lambda: exact_units(values))[history.slot]
    mine = values[history.slot]
    running = [_running(history, units)]
    running += [
        _running(history, m.astype(np.int64)) for m in (np.isnan(mine), mine == np.inf, mine == -np.inf)
    ]
    sums = [with_specials(*map(int, parts)) for parts in zip(*running, strict=True)]
    if averaged:
        sums = [average(s, n) if n else s for s, n in zip(sums, count.tolist(), strict=True)]
    return Vector.of(Type.DOUBLE, [s if n else None for s, n in zip(sums, count.tolist(), strict=True)])


# -- sums ------------------------------------------------------------------------------------------


def check_sums(room: Room, slots: Index, plans: Sequence[Plan] | FlatPlans, step: Step) -> None:
    """Raise a SumOverflow if a SUM over the current rows exceeds BIGINT; computes answers only if one may."""
    if isinstance(plans, FlatPlans):
        if not _sums_fit(plans.query, step):
            room.contents(slots, step)
        return
    for slot, plan in zip(slots.tolist(), plans, strict=True):
        if not _sums_fit(plan.query, step):
            room.content(slot, step)


def _sums_fit(query: Query, step: Step) -> bool:
    """Whether every SUM of the query is a BIGINT over any subset of the rows."""
    for aggregate in query.aggregates:
        column = aggregate.column
        if aggregate.function == "SUM" and column is not None and aggregate.type.is_exact:
            store = step.tables[query.tables[0].name]
            values = store.rows.vectors(column.name)[0].values[store.alive()]
            if not float(np.abs(values.astype(np.float64)).sum()) < 2.0**62:
                return False
    return True


# -- explanations ----------------------------------------------------------------------------------


def explain_row(plan: Plan, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
    """Whether the selected row in `slot` is in the answer: its rank, the extreme instead, or what it adds."""
    if plan.shape is Shape.TOPK:
        return _explain_topk(plan, slot, step)
    if plan.shape is Shape.EXTREME:
        return _explain_extreme(plan, slot, step)
    rows = step.tables[plan.query.tables[0].name].rows
    null = [
        str(aggregate)
        for aggregate in plan.query.aggregates
        if aggregate.column is not None and not rows.vectors(aggregate.column.name)[0].valid[slot]
    ]
    return True, ("it counts towards the answer", *(f"{what}: the row has NULL there" for what in null))


def _explain_topk(plan: Plan, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
    table, limit = plan.query.tables[0].name, plan.query.limit or 0
    ordered = _alive_in_order(plan, step)
    rank = int(np.flatnonzero(ordered == slot)[0]) + 1
    notes = [f"rank {rank} of {len(ordered)} selected rows; the answer holds the first {limit}"]
    if rank > limit:
        rows = step.tables[table].rows
        last = ", ".join(
            f"{key.column} = {rows.vectors(key.column.name)[0].take(ordered[[limit - 1]]).to_list()[0]!r}"
            for key in plan.query.order
        )
        notes.append(f"the last row in it has {last}")
    return rank <= limit, tuple(notes)


def _explain_extreme(plan: Plan, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
    rows = step.tables[plan.query.tables[0].name].rows
    selected = _alive_in_order(plan, step)
    held, notes = False, []
    for aggregate in plan.query.aggregates:
        assert aggregate.column is not None
        vector = rows.vectors(aggregate.column.name)[0]
        codes, valid = vector.order_codes(), selected[vector.valid[selected]]
        if not len(valid) or not vector.valid[slot]:
            notes.append(f"{aggregate}: the row has NULL there")
            continue
        best = valid[codes[valid].argmin() if aggregate.function == "MIN" else codes[valid].argmax()]
        is_best = bool(codes[best] == codes[slot])
        held |= is_best
        extreme, own = vector.take(np.array([best, slot])).to_list()
        notes.append(f"{aggregate} = {extreme!r}" + ("" if is_best else f", the row has {own!r}"))
    return held, tuple(notes)


def _alive_in_order(plan: Plan, step: Step) -> Index:
    """Selected slots alive now, in the order of the query."""
    store = step.tables[plan.query.tables[0].name]
    history = RowHistory.of(plan, step)
    alive = history.take(np.isin(history.slot, store.alive()))
    return alive.slot[ranking(alive, plan.query.order, store.schema.key)]
