"""The rank room of the engine: families of subscriptions over ranges, each with its structure.

    filter ─► range of one attribute ─► place in a family's space          risk BETWEEN 20 AND 60
          └─► what else it says ─► the family: rows that fail it do not count     sector = 'tech'

    top-k, MIN, MAX      ranked.py     rows painted into the space of ranges
    COUNT, SUM, AVG      running.py    sums kept by subscription
    DISTINCT             values.py     nearest rows of equal value

A subscription that fits no family (several extremes in one query, a top-k of more than 64), or whose family
would be the 65th with a condition, is worked out by itself, as in the scan. Subscriptions that come or go are
only noted; structures follow when the next step begins, all at once. Results are those of the scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Between, Compare, Not, Query
from tocsin.language.rewrite import NormalForm
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Rows, longer
from tocsin.model.delta import Deltas
from tocsin.model.schema import Type
from tocsin.predicate.compile import flatten
from tocsin.predicate.flat import Space
from tocsin.predicate.selections import selections
from tocsin.rank.base import RankIndex
from tocsin.rank.family import Family, Spot, Unfit
from tocsin.rank.ranked import Extremes, TopK
from tocsin.rank.running import Running
from tocsin.rank.scan import Scan, content_of
from tocsin.rank.values import Values
from tocsin.store.plans import FlatPlans, Noted
from tocsin.store.step import Step

__all__ = ["Ranged"]

_MOST = 64  # families with a condition; one more is not worth its structures
_DEEPEST = 64  # rows of a top-k; painting more takes longer than looking at all rows
_EVERY = NormalForm("dnf", ((),))
_ALONE, _NOWHERE, _AGAIN = 0, -1, -2  # numbers of no family: worked out by itself, not placed yet, or again


class _Kind(NamedTuple):
    """What subscriptions of one family have in common; ranges, and k, differ."""

    spot: Spot
    shape: Shape
    items: Any
    order: Any

    @classmethod
    def of(cls, spot: Spot, query: Query, shape: Shape) -> _Kind:
        return cls(spot, shape, query.items, query.order)


class Ranged(RankIndex):
    """Families by number; the number of each slot's family."""

    def __init__(self) -> None:
        self._plans = Noted()  # all of them; those that are not placed yet wait
        self._alone = Scan()  # those of no family
        self._families: dict[_Kind, int] = {}
        self._by_number: dict[int, Family] = {}
        self._number: NDArray[np.int32] = np.full(16, _NOWHERE, np.int32)  # by slot
        self._next = 1
        self._full = False  # have families been refused?

    def add(self, slots: Sequence[int], plans: Sequence[Plan]) -> None:
        self.add_flat(np.array(slots, np.int64), plans)

    def add_flat(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        self._plans.add(slots, plans)
        top = int(slots.max(initial=-1)) + 1
        if top > len(self._number):
            self._number = longer(self._number, max(top, 2 * len(self._number)), _NOWHERE)

    def remove(self, slots: Sequence[int]) -> None:
        gone = np.array(slots, np.int64)
        self._plans.remove(gone)
        numbers = self._number[gone]
        for number in np.unique(numbers).tolist():
            mine = gone[numbers == number]
            if number == _ALONE:
                self._alone.remove(mine.tolist())
            elif number > 0:
                self._by_number[number].remove(mine)
        self._number[gone] = _NOWHERE
        self._families = {k: n for k, n in self._families.items() if len(self._by_number[n])}
        self._by_number = {n: self._by_number[n] for n in self._families.values()}
        if self._full and self._conditional() <= _MOST // 2:
            self._full = False
            again = np.flatnonzero(self._number == _ALONE)
            self._alone.remove(again.tolist())
            self._number[again] = _AGAIN

    def supports(self, plan: Plan) -> bool:
        return plan.shape in self.shapes

    def content(self, slot: int, step: Step) -> Rows:
        return content_of(slot, self._plans[slot], step)

    def deltas(self, step: Step) -> Deltas:
        self._follow(step)
        parts = []
        for kind, number in list(self._families.items()):
            if kind.spot.table in step.changed:
                try:
                    parts.append(self._by_number[number].deltas(step))
                except Unfit:
                    self._give_up(kind, number)
        parts.append(self._alone.deltas(step))
        return Deltas.concat(parts).ordered()

    # -- subscriptions -----------------------------------------------------------------------------

    def _follow(self, step: Step) -> None:
        """Put what waits into families, and those that were too many if there is room now."""
        for slots, plans in self._plans.to_place():
            if isinstance(plans, FlatPlans):
                self._place_flat(slots, plans, step)
            else:
                self._place(slots, plans, step)
        again = np.flatnonzero(self._number == _AGAIN)
        self._place(again, [self._plans[slot] for slot in again.tolist()], step)

    def _place_flat(self, slots: Index, plans: FlatPlans, step: Step) -> None:
        """By column where a range says all; the others one by one."""
        if not len(slots):
            return
        table = plans.query.tables[0].name
        types = {f.name: f.type for f in step.tables[table].schema.fields}
        found = selections(plans.filters[0])
        plain = found.exact & ~plans.never & ~found.never & fits(plans.query, plans.shape)
        for number, name in enumerate(found.names):
            mine = np.flatnonzero(plain & (found.attribute == number))
            if len(mine) and types[name] is not Type.STRING:
                kind = _Kind.of(Spot(table, name, _EVERY), plans.query, plans.shape)
                self._enter(slots[mine], found.low[mine], found.high[mine], kind, plans.query, step)
        for part in _alike(plans, np.flatnonzero(self._number[slots] < 0)):
            kind = _Kind.of(Spot(table, part.attribute, part.rest), plans.query, plans.shape)
            self._enter(slots[part.plans], part.low, part.high, kind, plans.query, step)
        rest = np.flatnonzero(self._number[slots] < 0)
        self._place(slots[rest], [plans.plan(n) for n in rest.tolist()], step)

    def _place(self, slots: Index, plans: Sequence[Plan], step: Step) -> None:
        """One by one: a range, and what else the filter says."""
        if not len(slots):
            return
        split = [_split(plan.filters[0]) for plan in plans]
        found = selections(flatten(form for _, form, _ in split))
        by: dict[tuple[_Kind, int | None], list[int]] = {}
        for i, (plan, (name, _, rest)) in enumerate(zip(plans, split, strict=True)):
            if plan.never or found.never[i] or not fits(plan.query, plan.shape):
                self._alone.add([int(slots[i])], [plan])
                self._number[slots[i]] = _ALONE
                continue
            spot = Spot(plan.query.tables[0].name, name, rest)
            by.setdefault((_Kind.of(spot, plan.query, plan.shape), plan.query.limit), []).append(i)
        for (kind, _), mine in by.items():
            low, high = found.low[mine], found.high[mine]
            if kind.spot.attribute is None:  # all rows are at 0
                low, high = np.zeros_like(low), np.zeros_like(high)
            self._enter(slots[mine], low, high, kind, plans[mine[0]].query, step)

    def _enter(self, slots: Index, low: Index, high: Index, kind: _Kind, query: Query, step: Step) -> None:
        if kind not in self._families:
            if not kind.spot.rest.always and self._conditional() >= _MOST:
                self._full = True
                self._work_alone(slots)
                return
            self._families[kind], self._next = self._next, self._next + 1
            self._by_number[self._families[kind]] = _family(kind, query, step)
        number = self._families[kind]
        self._number[slots] = number
        self._by_number[number].add(slots, low, high, query)

    def _conditional(self) -> int:
        """Families that have a condition; of others there are as many as there are kinds of queries."""
        return sum(not kind.spot.rest.always for kind in self._families)

    def _work_alone(self, slots: Index) -> None:
        self._alone.add(slots.tolist(), [self._plans[slot] for slot in slots.tolist()])
        self._number[slots] = _ALONE

    def _give_up(self, kind: _Kind, number: int) -> None:
        """Rows have come that a family cannot hold."""
        del self._families[kind], self._by_number[number]
        self._work_alone(np.flatnonzero(self._number == number))

    # -- looking at it -----------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        return {
            "index": "ranged",
            "subscriptions": len(self._plans),
            "waiting": self._plans.waiting,
            "alone": len(self._alone._plans),
            "families": [family.stats() for family in self._by_number.values()],
        }

    def _check(self) -> None:
        self._plans._check()
        self._alone._check()
        for number, family in self._by_number.items():
            family._check()
            assert len(family) == (self._number == number).sum() > 0
        assert set(self._families.values()) == set(self._by_number)
        placed = int((self._number != _NOWHERE).sum())
        assert placed + self._plans.waiting == len(self._plans)


def fits(query: Query, shape: Shape) -> bool:
    """Is there a family for such queries?"""
    if shape is Shape.EXTREME:
        return len(query.items) == 1
    if shape is Shape.AGGREGATE:
        return all(aggregate.function in ("COUNT", "SUM", "AVG") for aggregate in query.aggregates)
    return query.limit is None or 0 < query.limit <= _DEEPEST


class _Alike(NamedTuple):
    """Plans of a template that differ in one range only."""

    plans: Index
    attribute: str
    low: Index
    high: Index
    rest: NormalForm


def _alike(plans: FlatPlans, which: Index) -> Iterator[_Alike]:
    """Plans by what they say beside a range; nothing, if that is different in too many ways."""
    if len(which) < 2 or not fits(plans.query, plans.shape):
        return
    flat = plans.filters[0]
    name = _split(plans.plan(int(which[0])).filters[0])[0]
    size = int(flat.sizes[0]) if len(flat.start) > 1 else 0
    if name is None or len(flat.owner) != flat.count or np.any(flat.sizes != size):
        return  # alternatives, or plans that can never match
    dim, low, high, flags = (
        part.reshape(-1, size)[which] for part in (flat.dim, flat.low, flat.high, flat.flags)
    )
    if np.any(dim != dim[0]) or np.any(flags != flags[0]):
        return
    mine = (flags[0] == 0) & (flat.space[dim[0]] <= Space.TIMESTAMP)
    mine &= np.array([flat.names[a] == name for a in flat.attribute[dim[0]].tolist()])
    if not mine.any():
        return
    others = np.concatenate([low[:, ~mine], high[:, ~mine]], axis=1)
    _, first, group = np.unique(others, axis=0, return_index=True, return_inverse=True)
    if len(first) > _MOST:
        return
    least, most = low[:, mine].max(axis=1), high[:, mine].min(axis=1)
    for number, one in enumerate(first.tolist()):
        form = plans.plan(int(which[one])).filters[0]
        rest = (
            tuple(x for x in form.groups[0] if not (_width(x) and _column(x) == name)) if form.groups else ()
        )
        some = np.flatnonzero((group.ravel() == number) & (least <= most))
        if form.kind == "dnf" and len(form.groups) == 1 and len(some):
            ends = least[some], most[some]
            yield _Alike(which[some], name, *ends, NormalForm("dnf", (rest,)))


def _column(literal: Any) -> str:
    return str(literal.column.name)


def _split(form: NormalForm) -> tuple[str | None, NormalForm, NormalForm]:
    """An attribute, the part of a filter that is a range of it, and the rest."""
    if form.kind == "dnf" and len(form.groups) == 1:
        ranges: list[Any] = [literal for literal in form.groups[0] if _width(literal)]
        if ranges:
            best = max(ranges, key=_width)
            others = tuple(literal for literal in form.groups[0] if literal is not best)
            return best.column.name, NormalForm("dnf", ((best,),)), NormalForm("dnf", (others,))
    return None, _EVERY, form


def _width(literal: Any) -> int:
    """How good a range it is: two ends are best, a single value is better left to tell families apart."""
    if isinstance(literal, Not) or literal.column.type is Type.STRING:
        return 0
    if isinstance(literal, Between):
        return 4
    if not isinstance(literal, Compare) or literal.op == "!=":
        return 0
    return 1 if literal.op == "=" or literal.column.type is Type.BOOLEAN else 3


def _family(kind: _Kind, query: Query, step: Step) -> Family:
    key = step.tables[kind.spot.table].schema.key
    if kind.shape is Shape.TOPK:
        return TopK(kind.spot, query, key)
    if kind.shape is Shape.EXTREME:
        return Extremes(kind.spot, query, key)
    if kind.shape is Shape.AGGREGATE:
        return Running(kind.spot, query)
    return Values(kind.spot, query)
