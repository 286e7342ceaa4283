"""The room of deferred subscriptions: refresh groups, and the conditions that refresh by themselves.

    roster ─► RefreshGroups ─► Lagging, one per group ─► its own match, join and rank rooms
              refresh(slots)   changed, act
              conditions       what is due ─► refresh

Subscriptions with equal options over the same tables form a group; `group = 'name'` puts others together.
A group shares copies of its tables and their waiting changes, and is refreshed as a whole. Only the
subscriptions that were requested, or whose condition holds, receive deltas; those of the others wait.

Conditions are evaluated after each change and with each `tick`, on the engine's clock. Subscriptions of one
condition that were refreshed at the same time form a *cohort* and are evaluated together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import SubscriptionError, SumOverflow
from tocsin.language.algebra import Column, Query
from tocsin.language.options import Budget, Options
from tocsin.language.refresh_conditions import RefreshCondition, thresholds
from tocsin.language.shape import Plan, Shape, shape_of
from tocsin.limits.conditions import Waiting, condition_of, holds, needs_propagation
from tocsin.limits.derived import sorted_rows
from tocsin.limits.inner import InnerQuery, inner_plans, inner_query
from tocsin.limits.lagging import Lagging, MakeRooms
from tocsin.limits.pacing import Pacing, RefreshReport
from tocsin.limits.policies import refresh_policy
from tocsin.limits.state import SavedDeltas, read_undelivered, undelivered_tables
from tocsin.model.columns import Index, Rows
from tocsin.model.delta import NO_DELTAS, Deltas
from tocsin.model.schema import Table
from tocsin.room import Room
from tocsin.store.copies import net_changes
from tocsin.store.database import Database
from tocsin.store.plans import FlatPlans
from tocsin.store.step import Step

__all__ = ["RefreshGroups"]

_CHECK = 1_000_000  # microseconds between looks at `moved` and `rows`, unless `check` says otherwise
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RANKED = (Shape.EXTREME, Shape.AGGREGATE, Shape.DISTINCT, Shape.TOPK)


class _Terms(NamedTuple):
    """The options that a group has as a whole."""

    within: int | None
    policy: str
    memory: Budget | None

    @classmethod
    def of(cls, options: Options) -> _Terms:
        return cls(options.within, options.policy or "adapt", options.group_memory)


@dataclass(slots=True)
class _Cohort:
    """Subscriptions of one condition that were refreshed at the same time."""

    condition: RefreshCondition
    check: int
    refreshed: int
    checked: int
    slots: set[int]
    at_each_change: bool = False  # answers that a rank room keeps at little cost
    changes: int = 0  # rows that batches changed since then, each once per batch


@dataclass(slots=True)
class _Group:
    name: str
    terms: _Terms
    lagging: Lagging
    touched: bool = False  # by changes since the last act
    cohorts: list[_Cohort] = field(default_factory=list)
    overflows: dict[int, str] = field(default_factory=dict)


class RefreshGroups(Room):
    """Deferred subscriptions by slot. A change costs O(its rows) per group that reads the table."""

    name = "refresh"
    shapes = (Shape.DEFERRED,)

    def __init__(
        self,
        make_rooms: MakeRooms,
        database: Database,
        clock: Callable[[], datetime],
        timer: Callable[[], float] = perf_counter,
        *,
        by_batch: bool = False,
    ) -> None:
        """With `by_batch`, `rows` and `moved` are evaluated with every batch, not when nothing waits.

        Then conditions depend on batches alone; so batches may be replayed, and saved at any time.
        """
        self._by_batch = by_batch
        self._make_rooms, self._database, self._clock, self.timer = make_rooms, database, clock, timer
        self._groups: dict[Any, _Group] = {}
        self._group_of: dict[int, _Group] = {}
        self._made = 0
        self._is_restoring = False
        self._staged: dict[str, tuple[Index, Index]] = {}  # net changes of the last step

    def __len__(self) -> int:
        return len(self._group_of)

    # -- registering -------------------------------------------------------------------------------

    def check_options(self, query: Query) -> None:
        if query.options.policy == "oracle":
            fact = "the policy 'oracle' knows the changes to come; it is for simulations"
            raise SubscriptionError(fact, hint="use 'adapt'", option="policy")

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        done: list[Index] = []
        try:
            for own, some in _alike(slots, plans):
                self._add(own, some)
                done.append(own)
        except BaseException:
            for own in done:
                self.remove(own)
            raise

    def _add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        """Plans of equal options over the same tables."""
        first = plans.query if isinstance(plans, FlatPlans) else plans[0].query
        options = first.options
        group = self._group(options, frozenset(table.name for table in first.tables))
        inner = self._inner(plans)
        tables = {table.name: self._database.tables[table.name] for table in first.tables}
        try:
            group.lagging.add(
                slots, inner_plans(plans, self._schemas()), plans, inner, tables, self._is_restoring
            )
            self._group_of.update(dict.fromkeys(slots.tolist(), group))
            self._check_memory(group)
            self._watch(group, slots, options, inner)
        except BaseException:
            self.remove(np.array([s for s in slots.tolist() if s in group.lagging], np.int64))
            self._drop_empty()
            raise

    def _inner(self, plans: Sequence[Plan] | FlatPlans) -> list[InnerQuery]:
        schemas = self._schemas()
        if isinstance(plans, FlatPlans):
            return [inner_query(plans.query, schemas)] * len(plans)
        return [inner_query(plan.query, schemas) for plan in plans]

    def _schemas(self) -> dict[str, Table]:
        """The tables of the database, declared ones and those of windows."""
        return {name: store.schema for name, store in self._database.tables.items()}

    def _group(self, options: Options, tables: frozenset[str]) -> _Group:
        """The group of these options, which is made if there is none."""
        terms = _Terms.of(options)
        key: Any = options.group if options.group is not None else (options, tables)
        if (found := self._groups.get(key)) is not None:
            if found.terms != terms:
                raise SubscriptionError(
                    f"the group {options.group!r} has another limit, policy or memory",
                    hint="give all of a group the same within, policy and group_memory, or another name",
                    option="group",
                )
            return found
        self._made += 1
        limit = None if terms.within is None else terms.within / 1000
        pacing = Pacing(refresh_policy(terms.policy), limit, self.timer)
        made = _Group(options.group or f"#{self._made}", terms, Lagging(self._make_rooms, pacing))
        self._groups[key] = made
        return made

    def _check_memory(self, group: _Group) -> None:
        budget = group.terms.memory
        if budget is None:
            return
        used = Budget(group.lagging.rows if budget.rows else group.lagging.nbytes, budget.rows)
        if used.amount > budget.amount:
            raise SubscriptionError(
                f"the copies of the group's tables take {used}, more than its {budget}",
                hint="raise group_memory, or put subscriptions over the same tables into one group",
                option="group_memory",
            )

    def _watch(self, group: _Group, slots: Index, options: Options, inner: Sequence[InnerQuery]) -> None:
        """Subscriptions with a condition: the time since their last refresh counts from now."""
        condition = condition_of(options)
        if condition is None:
            return
        now, looks = self._now(), needs_propagation(condition)
        check = options.check or _CHECK
        for at_each_change in (False, True):
            own = {
                slot
                for slot, query in zip(slots.tolist(), inner, strict=True)
                if at_each_change == (looks and self._is_ranked(query))
            }
            if own:
                group.cohorts.append(_Cohort(condition, check, now, now, own, at_each_change=at_each_change))

    @staticmethod
    def _is_ranked(inner: InnerQuery) -> bool:
        query = inner.query
        return (
            not inner.derived
            and len(query.tables) == 1
            and bool(query.aggregates or query.distinct or query.order)
        )

    def remove(self, slots: Index) -> None:
        for group, own in self._by_group(slots):
            group.lagging.remove(own)
            self._unwatch(group, set(own.tolist()))
            for slot in own.tolist():
                del self._group_of[slot]
                group.overflows.pop(slot, None)
        self._drop_empty()

    def _drop_empty(self) -> None:
        self._groups = {key: group for key, group in self._groups.items() if len(group.lagging)}

    @staticmethod
    def _unwatch(group: _Group, slots: set[int]) -> None:
        for cohort in group.cohorts:
            cohort.slots -= slots
        group.cohorts = [cohort for cohort in group.cohorts if cohort.slots]

    # -- changes -----------------------------------------------------------------------------------

    def deltas(self, step: Step) -> Deltas:
        """None: answers change when they are refreshed."""
        self._staged = {}
        if self._groups and step.changed:
            used = {name for group in self._groups.values() for name in group.lagging.waiting}
            for name, changed in step.changed.items():
                if name in used:
                    self._staged[name] = net_changes(changed, step.tables[name])
        return NO_DELTAS

    def rollback(self) -> None:
        self._staged = {}

    def commit(self) -> None:
        """The changes of the last step wait."""
        if self._staged:
            now = self._now() / 1e6
            for group in self._groups.values():
                group.touched |= group.lagging.changed(self._staged, now)
                if group.cohorts:
                    used = (rows for name, (rows, _) in self._staged.items() if name in group.lagging.waiting)
                    count = sum(map(len, used))
                    for cohort in group.cohorts:
                        cohort.changes += count
            self._staged = {}

    def reads(self, stream: str) -> bool:
        """Every event counts as a change at which conditions are evaluated."""
        return any(group.cohorts for group in self._groups.values())

    def act(self) -> Deltas:
        if not self._groups:
            return NO_DELTAS
        now, parts = self._now(), []
        for group in self._groups.values():
            if group.touched:
                group.lagging.act(now / 1e6)
            if group.cohorts:
                parts.append(self._refresh_due(group, now))
            group.touched = False
        return Deltas.concat(parts) if parts else NO_DELTAS

    def _refresh_due(self, group: _Group, now: int) -> Deltas:
        """Refresh those whose condition holds."""
        due: set[int] = set()
        for cohort in group.cohorts:
            due |= self._due(group, cohort, now)
        if not due:
            return NO_DELTAS
        parts = []
        try:
            parts.append(self._refresh(group, np.array(sorted(due), np.int64), now))
        except SumOverflow:  # nobody requested it: the others are refreshed, one by one
            for slot in sorted(due):
                try:
                    parts.append(self._refresh(group, np.array([slot], np.int64), now))
                except SumOverflow as error:
                    group.overflows[slot] = error.fact
                    self._restart(group, {slot}, now)
        return Deltas.concat(parts)

    def _due(self, group: _Group, cohort: _Cohort, now: int) -> set[int]:
        """The slots of a cohort whose condition holds."""
        lagging = group.lagging
        waiting = Waiting(cohort.changes, now - cohort.refreshed)
        found = holds(cohort.condition, waiting)
        if found is not None:
            return set(cohort.slots) if found else set()
        looks = now - cohort.checked >= cohort.check or (cohort.at_each_change and group.touched)
        if any(lagging.counts) and not looks and not self._by_batch:
            return set()
        lagging.propagate_all()
        if looks:
            cohort.checked = now
        return {slot for slot in cohort.slots if self._holds(lagging, slot, cohort.condition, waiting)}

    @staticmethod
    def _holds(lagging: Lagging, slot: int, condition: RefreshCondition, waiting: Waiting) -> bool:
        """Whether a condition holds for one subscription of which nothing waits to be propagated."""
        try:
            net = lagging.net(slot)
            before = after = None
            if any(test.measure == "moved" for test in thresholds(condition)):
                (after,) = lagging.content(slot).to_dicts()
                before = next((delta.row for delta in net if delta.sign < 0), after)
        except SumOverflow:
            return False
        return bool(holds(condition, waiting._replace(rows=len(net), before=before, after=after)))

    # -- refreshing --------------------------------------------------------------------------------

    def refresh(self, slots: Index) -> Deltas:
        """The net deltas of some subscriptions since their last refresh, at seq 0."""
        now = self._now()
        return Deltas.concat([self._refresh(group, own, now) for group, own in self._by_group(slots)])

    def _refresh(self, group: _Group, slots: Index, now: int) -> Deltas:
        found = group.lagging.refresh(slots, now / 1e6)
        for slot in slots.tolist():
            group.overflows.pop(slot, None)
        self._restart(group, set(slots.tolist()), now)
        return found

    def _restart(self, group: _Group, slots: set[int], now: int, changes: int = 0) -> None:
        """These were refreshed at a time, and there were so many changes since."""
        fresh = [
            replace(cohort, slots=own, refreshed=now, checked=now, changes=changes)
            for cohort in group.cohorts
            if (own := cohort.slots & slots)
        ]
        if fresh:
            self._unwatch(group, slots)
            for cohort in fresh:
                self._join_cohort(group, cohort)

    @staticmethod
    def _join_cohort(group: _Group, fresh: _Cohort) -> None:
        for cohort in group.cohorts:
            if replace(cohort, slots=fresh.slots) == fresh:
                cohort.slots |= fresh.slots
                return
        group.cohorts.append(fresh)

    def content(self, slot: int, step: Step) -> Rows:
        """The whole answer over the tables as they are; what was delivered stays as it was."""
        lagging = self._group_of[slot].lagging
        lagging.propagate_all()
        return lagging.content(slot)

    def delivered(self, slot: int, step: Step) -> Rows:
        return self._group_of[slot].lagging.delivered(slot)

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        query = plan.query
        schemas = self._schemas()
        inner = inner_query(query, schemas)
        own = replace(plan, query=inner.query, shape=shape_of(inner.query))
        room = next(room for room in self._make_rooms(lambda _: own) if own.shape in room.shapes)
        held, notes = room.explain(own, place, slot, step)
        if not held or not inner.derived:
            return held, notes
        if not query.order:
            return True, (*notes, "it counts towards the answer")
        room.add(np.zeros(1, np.int64), [own])
        ordered = sorted_rows(room.content(0, step), inner)
        mine = np.ones(len(ordered), np.bool_)
        for name, key in _key_columns(query, place, inner, schemas).items():
            value = step.tables[query.tables[place].name].rows.vectors(key)[0].take(np.array([slot]))
            mine &= np.asarray(ordered.vectors(name)[0].values == value.values[0], np.bool_)
        rank = int(np.flatnonzero(mine)[0]) + 1
        note = f"rank {rank} of {len(ordered)} joined rows; the answer holds the first {query.limit}"
        return rank <= (query.limit or 0), (*notes, note)

    # -- on disk -----------------------------------------------------------------------------------

    def saved(self, ids: Index) -> dict[str, Any]:
        """What was not delivered; everything is propagated for it, nothing delivered."""
        return undelivered_tables(self._undelivered().renamed(lambda slots: ids[slots])) if len(self) else {}

    def _undelivered(self) -> SavedDeltas:
        net: list[Deltas] = []
        delivered: dict[int, Rows | None] = {}
        refreshed: dict[int, tuple[int, int]] = {}
        records = {}
        for group in self._groups.values():
            group.lagging.propagate_all()
            net.append(group.lagging.undelivered())
            records[min(group.lagging.slots)] = group.lagging.pacing.record()
            delivered.update({slot: d.delivered for slot, d in group.lagging.derived().items()})
            for cohort in group.cohorts:
                refreshed.update(dict.fromkeys(cohort.slots, (cohort.refreshed, cohort.changes)))
        return SavedDeltas(Deltas.concat(net), delivered, refreshed, records)

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Around adding saved subscriptions: their sums may exceed BIGINT until they are refreshed."""
        self._is_restoring = True
        try:
            yield
        finally:
            self._is_restoring = False

    def restore(
        self, tables: Mapping[str, Any], find: Callable[[Index], NDArray[np.int32]], last_seq: int
    ) -> None:
        saved = read_undelivered(tables).renamed(lambda ids: find(ids).astype(np.int64))
        for group, own in self._by_group(np.unique(saved.net.subscription)):
            group.lagging.restore(saved.net.take(np.isin(saved.net.subscription, own)))
        for slot, group in self._group_of.items():
            if slot in saved.delivered:
                group.lagging.restore_derived(slot, saved.delivered[slot])
            if slot in saved.refreshed:
                self._restart(group, {slot}, *saved.refreshed[slot])
            if slot in saved.records:
                group.lagging.pacing.restore(saved.records[slot])

    # -- inspection --------------------------------------------------------------------------------

    def report(self, slot: int) -> RefreshReport:
        group = self._group_of[slot]
        lagging, pacing = group.lagging, group.lagging.pacing
        return RefreshReport(
            group=group.name,
            policy=group.terms.policy,
            waiting={name: waits.count for name, waits in lagging.waiting.items()},
            predicted=pacing.predicted(lagging.counts),
            refreshes=tuple(pacing.taken)[-10:],
            spent=pacing.spent,
            spent_naive=pacing.spent_naive,
            planning=pacing.planning,
            promise=pacing.promise(),
            warnings=tuple(self._warnings(group, slot)),
        )

    @staticmethod
    def _warnings(group: _Group, slot: int) -> Iterator[str]:
        if slot in group.overflows:
            yield f"it could not be refreshed: {group.overflows[slot]}"
        pacing = group.lagging.pacing
        if not pacing.is_feasible:
            ones = [
                (cost(1), name) for cost, name in zip(pacing.known.each, group.lagging.waiting, strict=True)
            ]
            costs = " and ".join(f"{took:.3g} ms for {name}" for took, name in sorted(ones, reverse=True)[:2])
            yield f"no refresh can be within {pacing.limit:g} ms: one change takes {costs}"

    def pacing_of(self, slot: int) -> Pacing:
        """What is measured of a subscription's group."""
        return self._group_of[slot].lagging.pacing

    def stats(self) -> dict[str, Any]:
        return {
            "groups": [{"group": g.name, **g.lagging.stats()} for g in self._groups.values()],
            "overflows": [
                {"slot": slot, "reason": reason}
                for group in self._groups.values()
                for slot, reason in group.overflows.items()
            ],
        }

    def _by_group(self, slots: Index) -> list[tuple[_Group, Index]]:
        found: dict[int, tuple[_Group, list[int]]] = {}
        for slot in slots.tolist():
            if (group := self._group_of.get(slot)) is not None:
                found.setdefault(id(group), (group, []))[1].append(slot)
        return [(group, np.array(own, np.int64)) for group, own in found.values()]

    def _now(self) -> int:
        """The clock's time in microseconds; without a zone it is UTC."""
        now = self._clock()
        now = now.replace(tzinfo=UTC) if now.tzinfo is None else now
        return (now - _EPOCH) // timedelta(microseconds=1)

    def _check(self) -> None:
        assert {slot for g in self._groups.values() for slot in g.lagging.slots} == self._group_of.keys()
        for group in self._groups.values():
            group.lagging._check()
            watched = [slot for cohort in group.cohorts for slot in cohort.slots]
            assert len(set(watched)) == len(watched) and set(watched) <= set(group.lagging.slots)


def _key_columns(query: Query, place: int, inner: InnerQuery, schemas: Mapping[str, Table]) -> dict[str, str]:
    """The columns of the inner rows that hold the key of the table at a place."""
    ref = query.tables[place]
    found = {item.expression: item.name for item in inner.query.items}
    key = schemas[ref.name].key
    return {
        name: column.name
        for column, name in found.items()
        if isinstance(column, Column) and column.relation == ref.alias and column.name in key
    }


def _alike(
    slots: Index, plans: Sequence[Plan] | FlatPlans
) -> Iterator[tuple[Index, Sequence[Plan] | FlatPlans]]:
    """Plans of equal options over the same tables."""
    if isinstance(plans, FlatPlans):
        yield slots, plans
        return
    found: dict[Any, list[int]] = {}
    for n, plan in enumerate(plans):
        tables = frozenset(table.name for table in plan.query.tables)
        found.setdefault((plan.query.options, tables), []).append(n)
    for own in found.values():
        yield slots[own], [plans[n] for n in own]
