"""The rank room of the engine: families of subscriptions over ranges, each with its structure.

    filter ─► range of one attribute ─► place in a family's space          risk BETWEEN 20 AND 60
          ├─► values of columns ─► a stretch of that space (`split.py`)       sector = 'tech'
          └─► what else it says ─► the family: rows that fail it do not count    name LIKE '%x%'

    top-k, MIN, MAX      ranked.py     rows painted into the space of ranges
    COUNT, SUM, AVG      running.py    sums kept by subscription
    both in one query    together.py   a part for each, joined
    DISTINCT             values.py     nearest rows of equal value

A subscription that fits no family (a top-k of more than 128), or whose family would be the 65th with a
condition, is worked out by itself, as in the scan. Subscriptions that come or go are only noted; structures
follow when the next step begins, all at once. Results are those of the scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Query
from tocsin.language.rewrite import NormalForm
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Rows, longer
from tocsin.model.delta import Deltas
from tocsin.model.schema import Type
from tocsin.predicate.compile import flatten
from tocsin.predicate.verify import selections
from tocsin.rank.aggregates import Running
from tocsin.rank.alike import EVERY, alike, split_off
from tocsin.rank.combined import Together
from tocsin.rank.distinct import Values
from tocsin.rank.family import Family, Place, Spot, Unfit
from tocsin.rank.partitioned import Relabelled, Split, lifted
from tocsin.rank.scan import RankScan, check_sums, content_of, explain_row
from tocsin.rank.topk import Extremes, TopK
from tocsin.room import Room
from tocsin.store.plans import FlatPlans, PendingPlans
from tocsin.store.step import Step

__all__ = ["RankRoom"]

_MOST = 64  # families with a condition; one more is not worth its structures
_DEEPEST = 128  # rows of a top-k; painting grows with the square, and looking at all rows does not
_ALONE, _NOWHERE, _AGAIN = 0, -1, -2  # numbers of no family: worked out by itself, not placed yet, or again


class _Kind(NamedTuple):
    """What subscriptions of one family have in common; ranges, and k, differ."""

    spot: Place
    shape: Shape
    items: Any
    order: Any

    @classmethod
    def of(cls, spot: Place, query: Query, shape: Shape) -> _Kind:
        return cls(spot, shape, query.items, query.order)


class RankRoom(Room):
    """Families by number; the number of each slot's family."""

    name = "rank"
    shapes = (Shape.EXTREME, Shape.AGGREGATE, Shape.DISTINCT, Shape.TOPK)

    def __init__(self) -> None:
        self._plans = PendingPlans()  # all of them; those that are not placed yet wait
        self._alone = RankScan()  # those of no family
        self._families: dict[_Kind, int] = {}
        self._by_number: dict[int, Family] = {}
        self._splits: dict[tuple[str, str | None, tuple[str, ...], NormalForm], Split] = {}
        self._number: NDArray[np.int32] = np.full(16, _NOWHERE, np.int32)  # by slot
        self._next = 1
        self._full = False  # have families been refused?

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        self._plans.add(slots, plans)
        top = int(slots.max(initial=-1)) + 1
        if top > len(self._number):
            self._number = longer(self._number, max(top, 2 * len(self._number)), _NOWHERE)

    def remove(self, slots: Index) -> None:
        self._plans.remove(slots)
        numbers = self._number[slots]
        for number in np.unique(numbers).tolist():
            mine = slots[numbers == number]
            if number == _ALONE:
                self._alone.remove(mine)
            elif number > 0:
                self._by_number[number].remove(mine)
        self._number[slots] = _NOWHERE
        self._families = {k: n for k, n in self._families.items() if len(self._by_number[n])}
        self._by_number = {n: self._by_number[n] for n in self._families.values()}
        used = {kind.spot for kind in self._families}
        self._splits = {key: split for key, split in self._splits.items() if split in used}
        if self._full and self._conditional() <= _MOST // 2:
            self._full = False
            again = np.flatnonzero(self._number == _ALONE)
            self._alone.remove(again)
            self._number[again] = _AGAIN

    def check_answers(self, slots: Index, plans: Sequence[Plan] | FlatPlans, step: Step) -> None:
        check_sums(self, slots, plans, step)

    def content(self, slot: int, step: Step) -> Rows:
        return content_of(slot, self._plans[slot], step)

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        return explain_row(plan, slot, step)

    def contents(self, slots: Index, step: Step) -> Deltas:
        """One pass over the table for each family."""
        self._follow(step)
        numbers, parts = self._number[slots], []
        kinds = {number: kind for kind, number in self._families.items()}
        for number in np.unique(numbers).tolist():
            mine = np.flatnonzero(numbers == number)
            found = self._found(kinds[number], number, slots[mine], step) if number in kinds else None
            if found is None:
                alone = super().contents(slots[mine], step)
                parts.append(replace(alone, subscription=mine[alone.subscription]))
            else:
                owner, rows = found
                at = np.arange(len(rows))
                parts.append(Deltas.of(np.zeros(len(rows), np.int64), mine[owner], 1, rows, at))
        told = Deltas.concat(parts)
        return told.take(np.argsort(told.subscription, kind="stable"))

    def _found(self, kind: _Kind, number: int, slots: Index, step: Step) -> tuple[Index, Rows] | None:
        """Answers of members of a family; None if it cannot tell."""
        try:
            try:
                return self._by_number[number].contents(step, slots)
            except Relabelled:
                assert isinstance(kind.spot, Split)
                self._build_again(kind.spot, step)
                return self._by_number[number].contents(step, slots)
        except Unfit:
            return None

    def deltas(self, step: Step) -> Deltas:
        self._follow(step)
        parts = []
        for kind, number in list(self._families.items()):
            if kind.spot.table in step.changed:
                try:
                    parts.append(self._told(kind, number, step))
                except Unfit:
                    self._give_up(kind, number)
        parts.append(self._alone.deltas(step))
        return Deltas.concat(parts).ordered()

    def _told(self, kind: _Kind, number: int, step: Step) -> Deltas:
        """What a family tells; once more if the line that its rows lie on is laid anew."""
        try:
            return self._by_number[number].deltas(step)
        except Relabelled:
            assert isinstance(kind.spot, Split)
            self._build_again(kind.spot, step)
            return self._by_number[number].deltas(step)

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
                kind = _Kind.of(Spot(table, name, EVERY), plans.query, plans.shape)
                self._enter(slots[mine], found.low[mine], found.high[mine], kind, plans.query, step)
        left = np.flatnonzero(self._number[slots] < 0)
        for part in alike(plans, left, _MOST) if fits(plans.query, plans.shape) else ():
            spot = self._spot(table, part.attribute, tuple(part.values), part.rest)
            kind, values = _Kind.of(spot, plans.query, plans.shape), list(part.values.values())
            self._enter(slots[part.plans], part.low, part.high, kind, plans.query, step, values)
        rest = np.flatnonzero(self._number[slots] < 0)
        self._place(slots[rest], [plans.plan(n) for n in rest.tolist()], step)

    def _place(self, slots: Index, plans: Sequence[Plan], step: Step) -> None:
        """One by one: a range, values of columns, and what else the filter says."""
        if not len(slots):
            return
        split = [split_off(plan.filters[0]) for plan in plans]
        found = selections(flatten(form for _, form, _ in split))
        by: dict[tuple[_Kind, int | None], list[int]] = {}
        equal: dict[int, dict[str, Any]] = {}
        for i, (plan, (name, _, rest)) in enumerate(zip(plans, split, strict=True)):
            if plan.never or found.never[i] or not fits(plan.query, plan.shape):
                self._alone.add(slots[[i]], [plan])
                self._number[slots[i]] = _ALONE
                continue
            equal[i], rest = lifted(rest)
            spot = self._spot(plan.query.tables[0].name, name, tuple(equal[i]), rest)
            by.setdefault((_Kind.of(spot, plan.query, plan.shape), plan.query.limit), []).append(i)
        for (kind, _), mine in by.items():
            low, high = found.low[mine], found.high[mine]
            if kind.spot.attribute is None:  # all rows are at 0
                low, high = np.zeros_like(low), np.zeros_like(high)
            values = [[equal[i][name] for i in mine] for name in equal[mine[0]]]
            self._enter(slots[mine], low, high, kind, plans[mine[0]].query, step, values)

    def _spot(self, table: str, name: str | None, columns: tuple[str, ...], rest: NormalForm) -> Place:
        """Rows by the code of an attribute and, if there are any, by the values of some columns."""
        if not columns:
            return Spot(table, name, rest)
        key = table, name, columns, rest
        if key not in self._splits:
            self._splits[key] = Split(*key)
        return self._splits[key]

    def _enter(
        self,
        slots: Index,
        low: Index,
        high: Index,
        kind: _Kind,
        query: Query,
        step: Step,
        values: Sequence[Sequence[Any]] = (),
    ) -> None:
        """Subscriptions of a kind into its family; `values` are those of the columns that it is split by."""
        if isinstance(kind.spot, Split):
            try:
                longer_line = kind.spot.note(slots, low, high, query.limit, values)
            except Unfit:
                self._work_alone(slots)
                return
            for other in self._families_of(kind.spot).values() if longer_line else ():
                other.begin_anew()  # there are more rows
        if kind not in self._families:
            if not kind.spot.rest.always and self._conditional() >= _MOST:
                self._full = True
                self._work_alone(slots)
                return
            self._families[kind], self._next = self._next, self._next + 1
            self._by_number[self._families[kind]] = _family(kind, query, step)
        number = self._families[kind]
        self._number[slots] = number
        if isinstance(kind.spot, Split):
            try:
                low, high, _ = kind.spot.ranges(slots)
            except Relabelled:
                self._build_again(kind.spot, step)
                return
        self._by_number[number].add(slots, low, high, query)

    def _families_of(self, spot: Place) -> dict[int, Family]:
        return {n: self._by_number[n] for kind, n in self._families.items() if kind.spot is spot}

    def _build_again(self, split: Split, step: Step) -> None:
        """Lay the line of a split anew, and put all who are on it where they are now."""
        families = self._families_of(split)
        split.relabel(step, np.flatnonzero(np.isin(self._number, list(families))))
        kinds = {number: kind for kind, number in self._families.items()}
        for number, old in families.items():
            family = self._by_number[number] = _family(kinds[number], old.query, step)
            slots = np.flatnonzero(self._number == number)
            low, high, limit = split.ranges(slots)
            for k in np.unique(limit).tolist():
                some = limit == k
                family.add(slots[some], low[some], high[some], replace(old.query, limit=k or None))

    def _conditional(self) -> int:
        """Families that have a condition; of others there are as many as there are kinds of queries."""
        return sum(not kind.spot.rest.always for kind in self._families)

    def _work_alone(self, slots: Index) -> None:
        self._alone.add(slots, [self._plans[slot] for slot in slots.tolist()])
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
    return query.limit is None or 0 < query.limit <= _DEEPEST


def _family(kind: _Kind, query: Query, step: Step) -> Family:
    key = step.tables[kind.spot.table].schema.key
    if kind.shape is Shape.TOPK:
        return TopK(kind.spot, query, key)
    if query.aggregates:
        extremes = [aggregate.function in ("MIN", "MAX") for aggregate in query.aggregates]
        if not any(extremes):
            return Running(kind.spot, query)
        return (Extremes if len(extremes) == 1 else Together)(kind.spot, query, key)
    return Values(kind.spot, query)
