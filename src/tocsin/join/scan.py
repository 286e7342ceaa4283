"""The plain way to join: every subscription joins the changed rows with the other tables.

The delta of a join is, table by table, the changed rows of that table joined with all the
others. Where one table stands in the query twice, the places before the changed one are
already seen after the change, those behind it still before it, so that no pair is told twice:

    d(R x R)  =  dR x R(before)  +  R(after) x dR

Since every version of a row knows when it lived (`store/tables.py`), a whole batch goes
through at once: join first, then keep the pairs that were alive at the change's position.

O(subscriptions x (changed rows + join results)) plus one sort per table and join key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.join.probe import KeyOrder, all_pairs, band_holds
from tocsin.language.algebra import Band, Column, Equal, atoms
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Mask, Rows
from tocsin.model.delta import Deltas
from tocsin.predicate.evaluate import Facts
from tocsin.room import ScanRoom
from tocsin.store.step import Step
from tocsin.store.tables import FOREVER

__all__ = ["JoinScan", "content_of", "explain_row"]


class Partial(NamedTuple):
    """Joined so far: the slot in each table (by its place in FROM), and the change it comes from."""

    slots: dict[int, Index]
    position: Index
    sign: NDArray[np.int8]

    def take(self, index: Index | Mask) -> Partial:
        return Partial({t: s[index] for t, s in self.slots.items()}, self.position[index], self.sign[index])


class JoinScan(ScanRoom):
    """Joins each plan by itself."""

    name = "join"
    shapes = (Shape.JOIN, Shape.BAND, Shape.MULTIWAY)

    def deltas(self, step: Step) -> Deltas:
        return Deltas.concat(
            self._deltas(slot, plan, step) for slot, plan in self._plans.items()
        ).consolidate()

    def content(self, slot: int, step: Step) -> Rows:
        return content_of(self._plans[slot], step)

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        return explain_row(plan, place, slot, step)

    def _deltas(self, slot: int, plan: Plan, step: Step) -> Deltas:
        parts = []
        for place, table in enumerate(plan.query.tables):
            if table.name in step.changed:
                signed = step.changed[table.name].signed()
                mine = _selected(plan, place, step)[signed.slot]
                if mine.any():
                    start = Partial({place: signed.slot[mine]}, signed.position[mine], signed.sign[mine])
                    parts.append(_joined(plan, start, place, step))
        if not any(len(part.sign) for part in parts):
            return Deltas.none()
        places = range(len(plan.query.tables))
        whole = Partial(
            {place: np.concatenate([part.slots[place] for part in parts]) for place in places},
            np.concatenate([part.position for part in parts]),
            np.concatenate([part.sign for part in parts]),
        )
        whole = whole.take(_residual(plan, whole, step))
        rows = _projected(plan, whole, step)
        return Deltas.of(step.seq[whole.position], slot, whole.sign, rows, np.arange(len(whole.sign)))


def content_of(plan: Plan, step: Step) -> Rows:
    """The whole answer of a plan."""
    alive = step.tables[plan.query.tables[0].name].alive()
    alive = alive[_selected(plan, 0, step)[alive]]
    start = Partial({0: alive}, np.full(len(alive), FOREVER), np.ones(len(alive), np.int8))
    return _answer(plan, _joined(plan, start, 0, step), step)


def _joined(plan: Plan, start: Partial, origin: int, step: Step) -> Partial:
    """Extend partial results from the changed table over the whole join tree."""
    partial, left = start, set(range(len(plan.query.tables))) - {origin}
    while left:
        place, conditions = _next_place(plan, partial, left)
        left.remove(place)
        if not len(partial.sign):  # nothing to extend: keep the shape of the result
            partial = partial._replace(slots={**partial.slots, place: np.empty(0, np.int64)})
            continue
        partial = _extended(plan, partial, place, conditions, step)
        partial = partial.take(_was_alive(plan, partial, place, origin, step))
    return partial


def _next_place(plan: Plan, partial: Partial, left: set[int]) -> tuple[int, list[Equal | Band]]:
    """A table that joins with what is joined already, and by which conditions."""
    return next((p, found) for p in sorted(left) if (found := _conditions(plan, partial.slots.keys(), p)))


def _conditions(plan: Plan, done: Any, place: int) -> list[Equal | Band]:
    """The join conditions between one table and those joined already."""
    aliases = {plan.query.tables[p].alias for p in done}
    mine = plan.query.tables[place].alias
    return [
        join
        for join in plan.query.joins
        if {join.left.relation, join.right.relation} <= aliases | {mine}
        and mine in (join.left.relation, join.right.relation)
    ]


def _extended(
    plan: Plan,
    partial: Partial,
    place: int,
    conditions: list[Equal | Band],
    step: Step,
    everything: bool = False,
) -> Partial:
    """Every partial result with every row of the next table that satisfies the join conditions.

    Rows must pass the subscription's conditions on that table too, unless `everything` is asked for.
    """
    table, mine = plan.query.tables[place].name, plan.query.tables[place].alias
    store = step.tables[table]
    selected = np.ones(len(store.rows), np.bool_) if everything else _selected(plan, place, step)
    equalities = [c for c in conditions if isinstance(c, Equal)]
    bands = [c for c in conditions if isinstance(c, Band)]
    if equalities:
        own = [e.left if e.left.relation == mine else e.right for e in equalities]
        other = [e.right if e.left.relation == mine else e.left for e in equalities]
        names = tuple(column.name for column in own)
        order = step.once(
            ("key order", table, names),
            lambda: KeyOrder.of([store.rows.vectors(name)[0] for name in names], store.present()),
        )
        chunks: Any = [order.probe([_values(plan, partial, column, step) for column in other])]
    else:
        chunks = all_pairs(len(partial.sign), np.flatnonzero(selected & store.present()))
    found = []
    for probing, slot in chunks:
        keep = selected[slot]
        grown = partial.take(probing[keep])
        grown.slots[place] = slot[keep]
        found.append(grown.take(_bands_hold(plan, grown, bands, step)) if bands else grown)
    return found[0] if len(found) == 1 else _concat(found, [*partial.slots, place])


def _concat(parts: list[Partial], places: list[int]) -> Partial:
    empty = np.empty(0, np.int64)
    return Partial(
        {p: np.concatenate([empty, *(part.slots[p] for part in parts)]) for p in places},
        np.concatenate([empty, *(part.position for part in parts)]),
        np.concatenate([empty.astype(np.int8), *(part.sign for part in parts)]),
    )


def _bands_hold(plan: Plan, partial: Partial, bands: list[Band], step: Step) -> Mask:
    def holds(band: Band) -> Mask:
        return band_holds(
            band, _values(plan, partial, band.left, step), _values(plan, partial, band.right, step)
        )

    return np.logical_and.reduce([holds(band) for band in bands])


def _was_alive(plan: Plan, partial: Partial, place: int, origin: int, step: Step) -> Mask:
    """Whether the row joined at `place` lived: after the change before the origin, before it behind."""
    store, slot, at = step.tables[plan.query.tables[place].name], partial.slots[place], partial.position
    born, died = store.born[slot], store.died[slot]
    return (born <= at) & (at < died) if place < origin else (born < at) & (at <= died)


def _selected(plan: Plan, place: int, step: Step) -> Mask:
    """Slots of a table that pass the subscription's own conditions on it."""
    return step.selected(plan.query.tables[place].name, plan.filters[place])


def _values(plan: Plan, partial: Partial, column: Column, step: Step) -> Any:
    place = next(p for p, table in enumerate(plan.query.tables) if table.alias == column.relation)
    vector = step.tables[plan.query.tables[place].name].rows.vectors(column.name)[0]
    return vector.take(partial.slots[place])


def _residual(plan: Plan, partial: Partial, step: Step) -> Mask:
    """Conditions that concern several tables at once, over the joined rows."""
    if plan.residual is None:
        return np.ones(len(partial.sign), np.bool_)
    columns = dict.fromkeys(atom.column for atom in atoms(plan.residual.predicate))
    joined = Rows(
        [(str(column), _values(plan, partial, column, step)) for column in columns], len(partial.sign)
    )
    return Facts(joined, name=str).matches(plan.residual)


def _answer(plan: Plan, partial: Partial, step: Step) -> Rows:
    return _projected(plan, partial.take(_residual(plan, partial, step)), step)


def _projected(plan: Plan, partial: Partial, step: Step) -> Rows:
    columns = [
        (item.name, _values(plan, partial, item.expression, step))
        for item in plan.query.items
        if isinstance(item.expression, Column)
    ]
    return Rows(columns, len(partial.sign))


# -- explanations ----------------------------------------------------------------------------------


def explain_row(plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
    """Whether joined rows of the answer have the row in `slot` at `place`; notes count partners by table."""
    notes = []
    for other, joined, passing in _partners(plan, place, slot, step):
        alias = plan.query.tables[other].alias
        notes.append(f"{alias}: {_count(joined, 'row')} joined, {passing} of them satisfy its conditions")
    results = len(_answer(plan, _joined(plan, _single(place, slot), place, step), step))
    notes.append(f"{_count(results, 'joined row')} in the answer because of it")
    return results > 0, tuple(notes)


def _partners(plan: Plan, place: int, slot: int, step: Step) -> Iterator[tuple[int, int, int]]:
    """From the row in `slot` through the join tree, table by table: (place, joined, passing its filter).

    A table joins with what passed so far; where nothing passes, the walk ends.
    """
    partial, left = _single(place, slot), set(range(len(plan.query.tables))) - {place}
    while left and len(partial.sign):
        other, conditions = _next_place(plan, partial, left)
        left.remove(other)
        partial = _extended(plan, partial, other, conditions, step, everything=True)
        partial = partial.take(_was_alive(plan, partial, other, place, step))
        passing = _selected(plan, other, step)[partial.slots[other]]
        yield other, len(passing), int(passing.sum())
        partial = partial.take(passing)


def _single(place: int, slot: int) -> Partial:
    return Partial({place: np.array([slot])}, np.array([FOREVER]), np.ones(1, np.int8))


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"
