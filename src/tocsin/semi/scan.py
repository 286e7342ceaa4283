"""The plain way: for each subscription, all pairs of rows and partners; and contents, and explanations.

A row is in the answer while it lives and each of its conditions holds. Within a step all of that changes at
positions, so a row that joins an answer and leaves it again in one batch is seen. O(rows x partners) for each
subscription and step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tocsin.join.scan import JoinKeyOrder, all_pairs, band_holds
from tocsin.language.algebra import Band, Column
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Mask, Rows, Vector
from tocsin.model.delta import NO_DELTAS, Deltas
from tocsin.room import ScanRoom
from tocsin.semi.conditions import Partnership, partnerships
from tocsin.semi.sweep import crossings, lifetimes
from tocsin.store.step import Step
from tocsin.store.tables import FOREVER

__all__ = ["SemiScan", "explain_semi", "projected", "semi_content", "semi_deltas"]


class SemiScan(ScanRoom):
    """Evaluates each plan by itself."""

    name = "semi"
    shapes = (Shape.SEMIJOIN,)

    def deltas(self, step: Step) -> Deltas:
        parts = [semi_deltas(slot, plan, step) for slot, plan in self._plans.items()]
        return Deltas.concat(parts).consolidate()

    def content(self, slot: int, step: Step) -> Rows:
        return semi_content(self._plans[slot], step)

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        return explain_semi(plan, place, slot, step)


def semi_deltas(slot: int, plan: Plan, step: Step) -> Deltas:
    """How one answer changes in a step."""
    if not any(table.name in step.changed for table in plan.query.tables):
        return NO_DELTAS
    store = step.tables[plan.query.tables[0].name]
    rows = np.flatnonzero(store.present() & step.selected(plan.query.tables[0].name, plan.filters[0]))
    every = np.arange(len(rows))
    start, owner, at, change = lifetimes(every, store.born[rows], store.died[rows], len(rows))
    owners, ats, changes, needed = [owner], [at], [change], 1
    for one in partnerships(plan):
        needed += 1
        before, who, when, sign = _partner_times(plan, one, rows, step)
        start = start + (before != one.negated)
        owners.append(who)
        ats.append(when)
        changes.append(-sign if one.negated else sign)
    found = crossings(start, needed, *map(np.concatenate, (owners, ats, changes)))
    shown = projected(plan, rows[found.owner], step)
    return Deltas.of(step.seq[found.at], slot, found.sign, shown, np.arange(len(found.at)))


def _partner_times(plan: Plan, one: Partnership, rows: Index, step: Step) -> tuple[Mask, Index, Index, Index]:
    """Which rows have a partner before the step; and when that changes: (row, position, sign)."""
    inner = step.tables[plan.query.tables[one.place].name]
    row, partner = _pairs(plan, one, rows, step)
    times = lifetimes(row, inner.born[partner], inner.died[partner], len(rows))
    found = crossings(times[0], 1, *times[1:])
    return times[0] > 0, found.owner, found.at, found.sign.astype(np.int64)


def _pairs(plan: Plan, one: Partnership, rows: Index, step: Step) -> tuple[Index, Index]:
    """Every (number of a row, slot of a partner), of all that live at some time of the step."""
    outer, inner = plan.query.tables[0].name, plan.query.tables[one.place].name
    store, table = step.tables[inner], step.tables[outer]
    mine = step.selected(inner, one.filter) & store.present()
    some = np.flatnonzero(step.selected(outer, one.own)[rows])
    taken = rows[some]

    def outside(name: str) -> Vector:
        return table.rows.vectors(name)[0].take(taken)

    chunks: Any
    if one.outer:
        order = JoinKeyOrder.of([store.rows.vectors(c.name)[0] for c in one.inner], store.present())
        chunks = [order.probe([outside(c.name) for c in one.outer])]
    else:
        chunks = all_pairs(len(some), np.flatnonzero(mine))
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for number, slot in chunks:
        keep = mine[slot]
        number, slot = number[keep], slot[keep]
        for band in one.bands:
            holds = _band(band, plan, outside, store.rows, number, slot)
            number, slot = number[holds], slot[holds]
        found.append((some[number], slot))
    return np.concatenate([n for n, _ in found]), np.concatenate([s for _, s in found])


def _band(band: Band, plan: Plan, outside: Any, inner: Rows, number: Index, slot: Index) -> Mask:
    first = plan.query.tables[0].alias

    def values(column: Column) -> Vector:
        if column.relation == first:
            vector: Vector = outside(column.name)
            return vector.take(number)
        return inner.vectors(column.name)[0].take(slot)

    return band_holds(band, values(band.left), values(band.right))


def projected(plan: Plan, rows: Index, step: Step) -> Rows:
    """The answer's columns of rows of the first table; those of other tables are NULL."""
    store, alias = step.tables[plan.query.tables[0].name], plan.query.tables[0].alias
    columns = []
    for item in plan.query.items:
        column = item.expression
        assert isinstance(column, Column)
        if column.relation in ("", alias):
            columns.append((item.name, store.rows.vectors(column.name)[0].take(rows)))
        else:
            assert column.type is not None
            columns.append((item.name, Vector.blank(column.type, len(rows))))
    return Rows(columns, len(rows))


# -- contents and explanations ---------------------------------------------------------------------


def semi_content(plan: Plan, step: Step) -> Rows:
    """The whole answer of a plan."""
    table = plan.query.tables[0].name
    alive = step.tables[table].alive()
    return projected(plan, alive[_in_answer(plan, alive, step)], step)


def _in_answer(plan: Plan, rows: Index, step: Step) -> Mask:
    holds = step.selected(plan.query.tables[0].name, plan.filters[0])[rows]
    for one in partnerships(plan):
        holds &= (_partners(plan, one, rows, step) > 0) != one.negated
    return holds


def _partners(plan: Plan, one: Partnership, rows: Index, step: Step) -> Index:
    """How many partners rows have after the step."""
    store = step.tables[plan.query.tables[one.place].name]
    row, partner = _pairs(plan, one, rows, step)
    lives = (store.born[partner] <= FOREVER) & (store.died[partner] > FOREVER)
    return np.bincount(row[lives], minlength=len(rows))


def explain_semi(plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
    """Whether the row in `slot` at `place` is in the answer, or is a partner; notes count partners."""
    if place == 0:
        row = np.array([slot])
        return bool(_in_answer(plan, row, step)[0]), tuple(_notes(plan, row, step))
    alive = step.tables[plan.query.tables[0].name].alive()
    alive = alive[step.selected(plan.query.tables[0].name, plan.filters[0])[alive]]
    found = 0
    for one in partnerships(plan):
        if one.place == place and step.selected(plan.query.tables[place].name, one.filter)[slot]:
            row, partner = _pairs(plan, one, alive, step)
            found += len(np.unique(row[partner == slot]))
    alias = plan.query.tables[0].alias
    note = f"it is a partner of {found} row{'s' if found != 1 else ''} of {alias}"
    return False, (note, f"rows of {alias} are in the answer, not it; explain one of those")


def _notes(plan: Plan, row: Index, step: Step) -> Iterator[str]:
    for one in partnerships(plan):
        count = int(_partners(plan, one, row, step)[0])
        alias, wanted = plan.query.tables[one.place].alias, "none" if one.negated else "one"
        given = "" if one.filter.always else f" with {one.filter}"
        rows = "1 row" if count == 1 else f"{count} rows"
        yield f"{alias}: {rows} joined by {one}{given}; it takes {wanted}"
