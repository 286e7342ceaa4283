"""The plain way to rank: every subscription looks at all rows it selects, at every moment.

Top-k: sort the selected rows once; at each moment the members are the first k of those alive.
Distinct: sort by value; at each moment a value is there if one of its rows is alive. Both are
a matrix of moments x rows, and the deltas are its changes from one moment to the next.
Aggregates: one value per moment (`aggregates.py`), and a delta where it differs from the last.

O(moments x selected rows) per subscription whose selected rows change; others cost one look.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tocsin.language.algebra import Column
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Mask, Rows
from tocsin.model.delta import Deltas
from tocsin.rank.base import RankIndex
from tocsin.rank.history import History, ranking
from tocsin.rank.scan_aggregates import answers
from tocsin.rank.sums import overflow_in
from tocsin.room import Plans
from tocsin.store.step import Step

__all__ = ["Scan", "content_of"]


class Scan(Plans, RankIndex):
    """Plans in a dict; each is worked out by itself."""

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
