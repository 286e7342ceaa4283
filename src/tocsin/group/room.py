"""The group room: groups of many subscriptions share accumulators, and their thresholds are indexed.

    subscriptions ─► source (table or join, conditions on rows, keys) ─► accumulators by group    totals.py
                 └─► family (items, kinds of thresholds)              ─► sorted thresholds        families.py
    a step        ─► signed rows of each source ─► touched groups ─► members concerned ─► Deltas

Joined rows come from a join room that has an inner query for each source that joins (`needs.py`).
Accumulators begin with the rows that are there, and follow the steps; when a step was not made, they begin
again.

`add` only notes plans; the next step or content places them, all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tocsin.group.explain import explain_row
from tocsin.group.families import GroupFamily, TouchedRows
from tocsin.group.needs import inner_plan
from tocsin.group.ranked import RankedSubscriptions
from tocsin.group.scan import sums_integers
from tocsin.group.source import SignedRows, rows_of, rows_of_table, table_changes
from tocsin.group.split import FamilyKey, FamilyPlacement, SourceKey, aggregates_of, placements
from tocsin.group.totals import GroupTotals
from tocsin.join.room import JoinRoom
from tocsin.join.scan import content_of as joined_content
from tocsin.language.algebra import Aggregate, Query
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Rows, Vector, longer
from tocsin.model.delta import Deltas
from tocsin.room import Room
from tocsin.store.plans import FlatPlans, PendingPlans
from tocsin.store.step import Step

__all__ = ["GroupRoom"]

_NOWHERE, _NEVER = -1, -2  # instead of the number of a family: not placed yet; no group can pass


class GroupSource:
    """The rows of one source, their accumulators, and the families over them."""

    def __init__(self, key: SourceKey, plan: Plan, aggregates: Iterable[Aggregate], number: int) -> None:
        self.key, self.number = key, number
        self.totals = GroupTotals(key.keys, aggregates)
        self.plan = replace(plan, filters=key.filters)
        self.tables = frozenset(table.name for table in key.tables)
        self.families: dict[FamilyKey, int] = {}
        self._commits: dict[str, int] | None = None  # of tables, after which the totals are right

    @property
    def joins(self) -> bool:
        return len(self.key.tables) > 1

    @property
    def inner(self) -> Plan:
        """The query for the joined rows."""
        return inner_plan(self.plan, self.totals.name)

    def is_current(self, step: Step) -> bool:
        """Whether the totals are those before the step."""
        return self._commits == {name: step.tables[name].commits for name in self.tables}

    def load(self, step: Step, joined: Deltas | None) -> None:
        """Begin with the rows before the step: those after it, without its changes."""
        fresh = GroupTotals(self.key.keys, self.totals.aggregates)
        if self.joins:
            fresh.load(joined_content(self.inner, step))
        else:
            fresh.load(rows_of_table(self.plan, fresh.name, step))
        if step.changed.keys() & self.tables:
            changes = self.changes(step, joined)
            if len(changes):
                fresh.load(changes.rows, -np.asarray(changes.sign, np.int64))
        self.totals = fresh
        self._commits = {name: step.tables[name].commits for name in self.tables}

    def changes(self, step: Step, joined: Deltas | None) -> SignedRows:
        """How the step changes the rows of the source."""
        if not self.joins:
            return table_changes(self.plan, self.totals.name, step)
        assert joined is not None
        mine = joined.take(joined.subscription == self.number)
        return rows_of(mine) if len(mine) else SignedRows(mine.seq, mine.sign, Rows((), 0))

    def apply(self, step: Step, joined: Deltas | None) -> TouchedRows | None:
        """Follow the step; None if it changes no row of the source."""
        changes = self.changes(step, joined)
        self._commits = None  # until all is done
        touched = self.totals.apply(changes) if len(changes) else None
        self._commits = {
            name: step.tables[name].commits + bool(name in step.changed and len(step.changed[name].position))
            for name in self.tables
        }
        return None if touched is None else TouchedRows(self.totals, touched)


class GroupRoom(Room):
    """Families by number; by slot the number of its family."""

    name = "group"
    shapes = (Shape.GROUP, Shape.RANKED)

    def __init__(self, join: Callable[[], Room] = JoinRoom) -> None:
        self._plans = PendingPlans()
        self._join = join()
        self._sources: dict[SourceKey, GroupSource] = {}
        self._families: dict[int, GroupFamily] = {}
        self._family_of: Index = np.full(16, _NOWHERE, np.int64)
        self._made = 0
        self._ranked = RankedSubscriptions(join)

    # -- registering and removing ------------------------------------------------------------------

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        if isinstance(plans, FlatPlans):
            (self._ranked if plans.shape is Shape.RANKED else self._plans).add(slots, plans)
        else:
            which = np.array([plan.shape is Shape.RANKED for plan in plans], np.bool_)
            self._add_some(self._ranked, slots, plans, which)
            self._add_some(self._plans, slots, plans, ~which)
        top = int(slots.max(initial=-1)) + 1
        if top > len(self._family_of):
            self._family_of = longer(self._family_of, max(top, 2 * len(self._family_of)), _NOWHERE)

    @staticmethod
    def _add_some(to: Any, slots: Index, plans: Sequence[Plan], which: Any) -> None:
        if which.any():
            to.add(slots[which], [plan for plan, mine in zip(plans, which.tolist(), strict=True) if mine])

    def remove(self, slots: Index) -> None:
        ranked = self._ranked.has(slots)
        if ranked.any():
            self._ranked.remove(slots[ranked])
        slots = slots[~ranked]
        self._plans.remove(slots)
        numbers = self._family_of[slots]
        for number in np.unique(numbers[numbers >= 0]).tolist():
            self._families[number].remove(slots[numbers == number])
        self._family_of[slots] = _NOWHERE
        self._drop_empty()

    def _drop_empty(self) -> None:
        empty = {number for number, family in self._families.items() if not len(family)}
        if not empty:
            return
        for key, source in list(self._sources.items()):
            source.families = {k: number for k, number in source.families.items() if number not in empty}
            if not source.families:
                self._drop_source(key)
        for number in empty:
            del self._families[number]

    def _drop_source(self, key: SourceKey) -> None:
        source = self._sources.pop(key)
        if source.joins:
            self._join.remove(np.array([source.number]))

    # -- placing -----------------------------------------------------------------------------------

    def _place_waiting(self) -> None:
        """Put new subscriptions into families; sources that need more aggregates begin again."""
        members: dict[FamilyKey, list[FamilyPlacement]] = {}
        plans: dict[SourceKey, Plan] = {}
        wanted: dict[SourceKey, set[Aggregate]] = {}
        for slots, waiting in self._plans.to_place():
            for placed in placements(slots, waiting):
                if placed.keys is None:  # a key is compared with what no value equals
                    self._family_of[placed.slots] = _NEVER
                    continue
                family = placed.family
                if family not in members:
                    wanted.setdefault(family.source, set()).update(aggregates_of(family))
                    plans.setdefault(family.source, placed.plan)
                members.setdefault(family, []).append(placed)
        for key, aggregates in wanted.items():
            self._make_source(key, plans[key], aggregates)
        for family, parts in members.items():
            self._enter(family, parts)

    def _make_source(self, key: SourceKey, plan: Plan, aggregates: set[Aggregate]) -> None:
        """A source with these aggregates, among others."""
        known = self._sources.get(key)
        if known is not None and aggregates <= {Aggregate("COUNT"), *known.totals.aggregates}:
            return
        families: dict[FamilyKey, int] = {}
        if known is not None:
            families = known.families
            aggregates = aggregates | {a for k in families for a in aggregates_of(k)}
            self._drop_source(key)
        self._made += 1
        ordered = sorted(aggregates, key=str)
        source = self._sources[key] = GroupSource(key, plan, ordered, self._made)
        source.families = families
        if source.joins:
            self._join.add(np.array([self._made]), [source.inner])

    def _enter(self, key: FamilyKey, parts: Sequence[FamilyPlacement]) -> None:
        source = self._sources[key.source]
        number = source.families.get(key)
        if number is None:
            self._made += 1
            number = source.families[key] = self._made
            self._families[number] = GroupFamily(key)
        slots = np.concatenate([part.slots for part in parts])
        columns = [part.keys for part in parts if part.keys is not None]
        keys = [Vector.concat(same) for same in zip(*columns, strict=True)]
        low, high = (
            np.concatenate(ends, axis=1) for ends in zip(*(part.ends for part in parts), strict=True)
        )
        self._families[number].add(slots, keys, low, high)
        self._family_of[slots] = number

    # -- answers -----------------------------------------------------------------------------------

    def deltas(self, step: Step) -> Deltas:
        self._place_waiting()
        joined = None
        if any(source.joins for source in self._sources.values()):
            joined = self._join.deltas(step)
        parts = [self._ranked.deltas(step)]
        for source in self._sources.values():
            if not step.changed.keys() & source.tables:
                continue
            if not source.is_current(step):
                source.load(step, joined)
            source.totals.compact()
            rows = source.apply(step, joined)
            if rows is not None:
                parts += [self._families[number].deltas(rows) for number in source.families.values()]
        parts = [part for part in parts if len(part)]
        return Deltas.concat(parts) if len(parts) < 2 else Deltas.concat(parts).ordered()

    def content(self, slot: int, step: Step) -> Rows:
        if self._ranked.has(np.array([slot]))[0]:
            return self._ranked.content(slot, step)
        self._place_waiting()
        number = int(self._family_of[slot])
        if number == _NEVER:
            return _no_rows(self._plans[slot].query)
        family = self._families[number]
        return family.content(slot, self._now(family.key.source, step))

    def contents(self, slots: Index, step: Step) -> Deltas:
        """One pass over the groups for each family."""
        ranked = self._ranked.has(slots)
        self._place_waiting()
        numbers, parts = np.where(ranked, _NOWHERE, self._family_of[slots]), []
        for number in np.unique(numbers).tolist():
            mine = np.flatnonzero(numbers == number)
            if number == _NOWHERE:
                for place in mine.tolist():
                    rows = self._ranked.content(int(slots[place]), step)
                    at = np.arange(len(rows))
                    parts.append(Deltas.of(np.zeros(len(rows), np.int64), place, 1, rows, at))
            elif number != _NEVER:
                family = self._families[number]
                owner, rows = family.contents(slots[mine], self._now(family.key.source, step))
                at = np.arange(len(rows))
                parts.append(Deltas.of(np.zeros(len(rows), np.int64), mine[owner], 1, rows, at))
        contents = Deltas.concat(parts)
        return contents.take(np.argsort(contents.subscription, kind="stable"))

    def _now(self, key: SourceKey, step: Step) -> TouchedRows:
        """The groups of a source as they are after a step; there must be no changes."""
        source = self._sources[key]
        if not source.is_current(step):
            source.load(step, Deltas.none())
        totals = source.totals
        return TouchedRows(totals, totals.now(totals.groups()))

    def check_answers(self, slots: Index, plans: Sequence[Plan] | FlatPlans, step: Step) -> None:
        """Sums of new subscriptions; there is nothing to check without one."""
        queries = [plans.query] if isinstance(plans, FlatPlans) else [plan.query for plan in plans]
        if any(sums_integers(query) for query in queries):
            self.contents(slots, step)

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        return explain_row(plan, place, slot, step)

    def settle(self, step: Step) -> None:
        self._join.settle(step)

    # -- inspection --------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        return {
            "index": "shared",
            "subscriptions": len(self._plans) + len(self._ranked),
            "sources": [
                {
                    "tables": sorted(source.tables),
                    "keys": [str(key) for key in source.key.keys],
                    "families": len(source.families),
                    **source.totals.stats(),
                }
                for source in self._sources.values()
            ],
            "ranked": self._ranked.stats(),
        }

    def _check(self) -> None:
        self._place_waiting()
        self._plans._check()
        self._join._check()
        self._ranked._check()
        assert sum(map(len, self._families.values())) + int((self._family_of == _NEVER).sum()) == len(
            self._plans
        )
        for source in self._sources.values():
            source.totals._check()
            assert source.families
            for key, number in source.families.items():
                assert self._families[number].key == key
                self._families[number]._check()


def _no_rows(query: Query) -> Rows:
    """The empty answer."""
    columns = []
    for item in query.items:
        type = item.expression.type
        assert type is not None
        columns.append((item.name, Vector.blank(type, 0)))
    return Rows(columns, 0)
