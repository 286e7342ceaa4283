"""The plain way to rank: every subscription looks at all rows it selects, at every moment.

Top-k: sort the selected rows once; at each moment the members are the first k of those alive.
Distinct: sort by value; at each moment a value is there if one of its rows is alive. Both are
a matrix of moments x rows, and the deltas are its changes from one moment to the next.
Aggregates: one value per moment (`aggregates.py`), and a delta where it differs from the last.

O(moments x selected rows) per subscription whose selected rows change; others cost one look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tocsin.language.algebra import Column, Query
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Mask, Rows
from tocsin.model.delta import Deltas
from tocsin.model.schema import Type
from tocsin.rank.history import History, ranking
from tocsin.rank.scan_aggregates import answers
from tocsin.rank.sums import overflow_in
from tocsin.room import Room, ScanRoom
from tocsin.store.plans import FlatPlans
from tocsin.store.step import Step

__all__ = ["RankScan", "check_sums", "content_of", "explain_row"]


class RankScan(ScanRoom):
    """Evaluates each plan by itself."""

    name = "rank"
    shapes = (Shape.EXTREME, Shape.AGGREGATE, Shape.DISTINCT, Shape.TOPK)

    def deltas(self, step: Step) -> Deltas:
        parts = []
        for slot, plan in self._plans.items():
            if plan.query.tables[0].name in step.changed:
                history = History.of(plan, step)
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
    """The answer of a plan over the database as it is; `slot` is for a sum that is no BIGINT."""
    history = History.of(plan, step)
    if plan.query.aggregates:
        with overflow_in(slot):
            return answers(plan, history, step).take(np.array([-1]))
    history, members = _members(plan, history, step)
    last = None
    for _, matrix in members:
        last = matrix[-1]
    assert last is not None
    return _projected(plan, history.rows.take(history.slot[last]))


def _value_deltas(slot: int, plan: Plan, history: History, step: Step) -> Deltas:
    """Aggregates: the old row goes and the new one comes wherever they differ."""
    rows = answers(plan, history, step)
    code = rows.codes()
    at = np.flatnonzero(code[1:] != code[:-1]) + 1
    seq = step.seq[history.moments[at]]
    signs = np.repeat(np.array([-1, 1], np.int8), len(at))
    return Deltas.of(np.tile(seq, 2), slot, signs, rows, np.concatenate([at - 1, at]))


def _member_deltas(slot: int, plan: Plan, history: History, step: Step) -> Deltas:
    """Top-k and distinct: members that come and go between moments."""
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


def _members(plan: Plan, history: History, step: Step) -> tuple[History, Iterator[tuple[int, Mask]]]:
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


def _first(history: History, k: int) -> Iterator[tuple[int, Mask]]:
    for start, alive in history.alive():
        yield start, alive & (np.cumsum(alive, axis=1) <= k)


def _one_per_value(history: History, code: Index) -> Iterator[tuple[int, Mask]]:
    """The first row of each value stands for it as long as any row of the value is alive."""
    first = np.flatnonzero(np.diff(code, prepend=-1))
    for start, alive in history.alive():
        members = np.zeros_like(alive)
        if len(first):
            members[:, first] = np.logical_or.reduceat(alive, first, axis=1)
        yield start, members


def _projected(plan: Plan, rows: Rows) -> Rows:
    names = {i.name: i.expression.name for i in plan.query.items if isinstance(i.expression, Column)}
    return rows.project(names)


# -- sums ------------------------------------------------------------------------------------------


def check_sums(room: Room, slots: Index, plans: Sequence[Plan] | FlatPlans, step: Step) -> None:
    """Raise a SumOverflow if a SUM over the rows of now is no BIGINT; looks at answers only if one may be."""
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
        if aggregate.function == "SUM" and column is not None and column.type is Type.BIGINT:
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
    history = History.of(plan, step)
    alive = history.take(np.isin(history.slot, store.alive()))
    return alive.slot[ranking(alive, plan.query.order, store.schema.key)]
