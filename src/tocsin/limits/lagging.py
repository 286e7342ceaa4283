"""A refresh group: tables as last propagated, what waits for them, and answers as last delivered.

    changes of the engine ─► WaitingChanges, one per table ─► propagate(table) ─► rooms ─► net deltas wait
                                                                                └─► Derived

The group has copies of the tables that its queries read, and rooms of its own over these. Propagating a
table stages what waits for it as one batch; the changed rows meet the rows of the other tables *as the copies
have them*: V(R', S) - V(R, S) = dR x S. Joined with the present rows of S, pairs would be lost or counted
twice once the changes of S are propagated in turn.

What a query's deltas have said so far is its content over the copies, less the net deltas that wait:

    content over the tables now = delivered + net deltas + what propagating adds

so the group holds no contents, only what was not delivered. Times are measured with `timer` and fit the costs
by which the policy decides (`policies.py`); what is emitted does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tocsin.errors import SumOverflow
from tocsin.language.shape import Plan
from tocsin.limits.derived import Derived, derive, in_order
from tocsin.limits.inner import InnerQuery
from tocsin.limits.pacing import Pacing
from tocsin.model.columns import Index, Rows
from tocsin.model.delta import Deltas
from tocsin.rank.sums import overflow_in
from tocsin.room import Room, overriding
from tocsin.store.copies import WaitingChanges
from tocsin.store.plans import FlatPlans, PlanTable
from tocsin.store.step import Step
from tocsin.store.tables import TableStore

__all__ = ["Lagging", "MakeRooms", "NetChanges"]

MakeRooms = Callable[[Callable[[int], Plan]], Sequence[Room]]
"""Makes the rooms of a group, from a function that finds the plan of a slot."""

NetChanges = Mapping[str, tuple[Index, Index]]
"""By table, `net_changes` of a step."""

_LOOSE = 4096  # deltas that wait before they are consolidated


class Lagging:
    """One refresh group, by the engine's slots."""

    def __init__(self, make_rooms: MakeRooms, pacing: Pacing) -> None:
        self.pacing = pacing
        self._plans = PlanTable()  # of the rooms
        self._rooms = list(make_rooms(self._plans.__getitem__))
        self._settling = overriding("settle", self._rooms)
        self._room_of = {shape: room for room in self._rooms for shape in room.shapes}
        self.waiting: dict[str, WaitingChanges] = {}
        self._inner: dict[int, InnerQuery] = {}
        self._derived: dict[int, Derived] = {}
        self._touched: set[int] = set()  # derived ones that changed since their delivery
        self._net: list[Deltas] = []  # not delivered; by slot, at seq 0
        self._known = 0  # how many of these are consolidated

    def __len__(self) -> int:
        return len(self._inner)

    def __contains__(self, slot: int) -> bool:
        return slot in self._inner

    @property
    def slots(self) -> Collection[int]:
        return self._inner.keys()

    @property
    def counts(self) -> tuple[int, ...]:
        """Changed keys that wait, by table."""
        return tuple(table.count for table in self.waiting.values())

    # -- subscriptions -----------------------------------------------------------------------------

    def add(
        self,
        slots: Index,
        plans: Sequence[Plan] | FlatPlans,
        outer: Sequence[Plan] | FlatPlans,
        inner: Sequence[InnerQuery],
        tables: Mapping[str, TableStore],
        lenient: bool = False,
    ) -> None:
        """Register `plans`, made of `outer` ones, all or none; their contents of now count as delivered.

        A sum that exceeds BIGINT is rejected, unless `lenient`: then nothing counts as delivered.
        """
        self.propagate_all()
        self._plans.add(slots, plans)
        done: list[tuple[Room, Index]] = []
        try:
            for room, own, some in _by_room(self._room_of, slots, plans):
                room.add(own, some)
                done.append((room, own))
            for name, store in tables.items():
                if name not in self.waiting:
                    self.waiting[name] = WaitingChanges(store)
            self.pacing.tables(tuple(self.waiting))
            for n, (slot, query) in enumerate(zip(slots.tolist(), inner, strict=True)):
                self._inner[slot] = query
                if query.derived:
                    own_plan = outer.plan(n) if isinstance(outer, FlatPlans) else outer[n]
                    made = self._derived[slot] = derive(own_plan.query, query)
                    self._begin(slot, made, lenient)
        except BaseException:
            for room, own in done:
                room.remove(own)
            self._drop(slots)
            raise

    def _begin(self, slot: int, derived: Derived, lenient: bool) -> None:
        """Begin an answer with the rows as they are."""
        rows = self._room(slot).content(slot, self.step())
        derived.add(rows, np.ones(len(rows), np.int8))
        try:
            with overflow_in(slot):
                derived.deliver()
        except SumOverflow:
            if not lenient:
                raise

    def remove(self, slots: Index) -> None:
        """Unregister slots; their net deltas are discarded."""
        for room in self._rooms:
            own = np.array([s for s in slots.tolist() if self._room(s) is room], np.int64)
            if len(own):
                room.remove(own)
        self._drop(slots)

    def _drop(self, slots: Index) -> None:
        self._plans.remove(slots)
        for slot in slots.tolist():
            self._inner.pop(slot, None)
            self._derived.pop(slot, None)
            self._touched.discard(slot)
        if self._net:
            net = self._consolidated()
            self._keep(net.take(~np.isin(net.subscription, slots)))
        used = {table.name for query in self._inner.values() for table in query.query.tables}
        if used != set(self.waiting):
            self.waiting = {name: waits for name, waits in self.waiting.items() if name in used}
            self.pacing.tables(tuple(self.waiting))

    # -- changes -----------------------------------------------------------------------------------

    def changed(self, changes: NetChanges, now: float) -> bool:
        """Net changes of a step that will be committed wait from now on; do any concern the group?"""
        if not any(name in changes for name in self.waiting):
            return False
        fresh = tuple(
            max(0, waits.add(*changes[name])) if name in changes else 0
            for name, waits in self.waiting.items()
        )
        self.pacing.arrived(fresh, now)
        return True

    def act(self, now: float) -> bool:
        """Propagate what the policy says, so that a refresh stays within the limit; was there anything?"""
        chosen = self.pacing.choose(self.counts, now)
        names = tuple(self.waiting)
        for place in chosen:
            self.propagate(names[place])
        return bool(chosen)

    def propagate(self, table: str) -> float:
        """Bring the copy of a table up to date; returns the milliseconds it took.

        What the batch leaves to do for the next one is done here and measured with it: else the next table
        would seem to cost more because of this one.
        """
        waits = self.waiting[table]
        if not waits.count:
            return 0.0
        count, start = waits.count, self.pacing.timer()
        changed = waits.stage()
        try:
            step = Step(self._copies(), np.arange(len(changed.position)), {table: changed})
            found = Deltas.concat([room.deltas(step) for room in self._rooms])
            self._take(found.at(0))
        except BaseException:
            waits.rollback()
            raise
        waits.commit()
        for room in self._settling:
            room.settle(self.step())
        took = 1e3 * (self.pacing.timer() - start)
        self.pacing.propagated(tuple(self.waiting).index(table), count, took)
        return took

    def propagate_all(self) -> None:
        for table in self.waiting:
            self.propagate(table)

    def _take(self, found: Deltas) -> None:
        """Deltas of the rooms: for derived answers now, others wait."""
        if not len(found):
            return
        if len(self._derived) == len(self._inner):
            self._derive(found)
            return
        if self._derived:
            own = np.fromiter(self._derived, np.int64, len(self._derived))
            mine = np.isin(found.subscription, own)
            if mine.any():
                self._derive(found.take(mine))
                found = found.take(~mine)
        if len(found):
            self._net.append(found)
            if sum(map(len, self._net)) > 2 * self._known + _LOOSE:
                self._consolidated()

    def _derive(self, found: Deltas) -> None:
        for slot, deltas in _by_slot(found):
            self._derived[slot].add(_rows_of(deltas), deltas.sign)
            self._touched.add(slot)

    # -- answers -----------------------------------------------------------------------------------

    def step(self) -> Step:
        """The copies as they are."""
        return Step(self._copies())

    def refresh(self, slots: Index, now: float) -> Deltas:
        """Propagate all and deliver the net deltas of some slots, at seq 0."""
        counts = self.counts
        with self.pacing.refreshing(counts, now):
            self.propagate_all()
            return self.deliver(slots)

    def deliver(self, slots: Index) -> Deltas:
        """The net deltas of some slots, which count as delivered; SumOverflow delivers none."""
        wanted = set(slots.tolist())
        parts = [self._net_derived(slot) for slot in sorted(wanted & self._touched)]
        if self._net:
            net = self._consolidated()
            mine = np.isin(net.subscription, slots)
            if mine.any():
                parts.append(self._shown(net.take(mine)))
                self._keep(net.take(~mine))
        for slot in wanted & self._touched:
            self._derived[slot].deliver()
            self._touched.discard(slot)
        return Deltas.concat(parts).ordered()

    def net(self, slot: int) -> Deltas:
        """What a delivery would contain for one slot."""
        if slot in self._derived:
            return self._net_derived(slot) if slot in self._touched else Deltas.none()
        return self._shown(self._net_of(slot))

    def content(self, slot: int) -> Rows:
        """The answer over the copies."""
        if slot in self._derived:
            with overflow_in(slot):
                return self._derived[slot].answer()
        return self._in_order(slot, self._room(slot).content(slot, self.step()))

    def delivered(self, slot: int) -> Rows:
        """The answer as delivered: that over the copies, less the net deltas that wait."""
        if slot in self._derived:
            return self._derived[slot].delivered
        rows, net = self._room(slot).content(slot, self.step()), self._net_of(slot)
        if len(net):
            now = Deltas.of(np.zeros(len(rows), np.int64), slot, 1, rows, np.arange(len(rows)))
            rows = _rows_of(Deltas.concat([now, net.negated()]).consolidate(), rows)
        return self._in_order(slot, rows)

    def undelivered(self) -> Deltas:
        """The net deltas of all slots but derived ones, as the rooms have them."""
        return self._consolidated() if self._net else Deltas.none()

    def derived(self) -> Mapping[int, Derived]:
        return self._derived

    def restore(self, net: Deltas) -> None:
        """Net deltas that a saved engine had not delivered."""
        self._net.append(net)

    def restore_derived(self, slot: int, delivered: Rows | None) -> None:
        """The answer as a saved engine had delivered it; None: without rows."""
        derived = self._derived[slot]
        if delivered is None:
            delivered = derived.delivered.take(np.empty(0, np.int64))
        derived.deliver(delivered)
        self._touched.add(slot)

    def _net_derived(self, slot: int) -> Deltas:
        with overflow_in(slot):
            rows, signs = self._derived[slot].undelivered()
        return Deltas.of(np.zeros(len(rows), np.int64), slot, signs, rows, np.arange(len(rows)))

    def _net_of(self, slot: int) -> Deltas:
        net = self._consolidated() if self._net else Deltas.none()
        return net.take(net.subscription == slot)

    def _shown(self, net: Deltas) -> Deltas:
        """As the answers show rows: without the columns that order a top-k."""
        ordered = {
            s: self._inner[s].shown for s in np.unique(net.subscription).tolist() if self._inner[s].order
        }
        if not ordered:
            return net
        which = np.isin(net.subscription, np.array(list(ordered), np.int64))
        parts, own = [net.take(~which)], net.take(which)
        for shown in dict.fromkeys(ordered.values()):
            slots = [slot for slot, names in ordered.items() if names == shown]
            mine = _compact(own.take(np.isin(own.subscription, np.array(slots, np.int64))))
            sources = tuple(rows.project(dict(shown)) for rows in mine.sources)
            parts.append(replace(mine, sources=sources).consolidate())
        return Deltas.concat(parts)

    def _in_order(self, slot: int, rows: Rows) -> Rows:
        inner = self._inner[slot]
        return in_order(rows, inner) if inner.order else rows

    def _consolidated(self) -> Deltas:
        """All net deltas as one."""
        if len(self._net) > 1 or len(self._net[0]) != self._known:
            self._keep(Deltas.concat(self._net).consolidate())
        return self._net[0] if self._net else Deltas.none()

    def _keep(self, net: Deltas) -> None:
        self._net, self._known = ([_compact(net)] if len(net) else []), len(net)

    # -- inspection --------------------------------------------------------------------------------

    def _room(self, slot: int) -> Room:
        return self._room_of[self._plans[slot].shape]

    def _copies(self) -> dict[str, TableStore]:
        return {name: waits.copy for name, waits in self.waiting.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of the copies."""
        return sum(waits.nbytes for waits in self.waiting.values())

    @property
    def rows(self) -> int:
        """Rows of the copies."""
        return sum(len(waits.copy) for waits in self.waiting.values())

    def stats(self) -> dict[str, Any]:
        return {
            "subscriptions": len(self._inner),
            "waiting": {name: waits.count for name, waits in self.waiting.items()},
            "undelivered": sum(map(len, self._net)) + len(self._touched),
            "rows": self.rows,
            "bytes": self.nbytes,
            **self.pacing.stats(),
        }

    def _check(self) -> None:
        for waits in self.waiting.values():
            waits._check()
        for room in self._rooms:
            room._check()
        for derived in self._derived.values():
            derived._check()
        assert set(self._plans) == set(self._inner)
        assert self._derived.keys() == {slot for slot, query in self._inner.items() if query.derived}
        assert self._touched <= self._derived.keys()
        for net in self._net:
            assert set(net.subscription.tolist()) <= self._inner.keys() - self._derived.keys()


def _by_room(
    rooms: Mapping[Any, Room], slots: Index, plans: Sequence[Plan] | FlatPlans
) -> list[tuple[Room, Index, Sequence[Plan] | FlatPlans]]:
    """Slots and plans by the room of their shape."""
    if isinstance(plans, FlatPlans):
        return [(rooms[plans.shape], slots, plans)]
    found: dict[int, tuple[Room, list[int]]] = {}
    for n, plan in enumerate(plans):
        room = rooms[plan.shape]
        found.setdefault(id(room), (room, []))[1].append(n)
    return [(room, slots[own], [plans[n] for n in own]) for room, own in found.values()]


def _by_slot(found: Deltas) -> Iterable[tuple[int, Deltas]]:
    """Deltas by subscription."""
    if np.all(found.subscription == found.subscription[0]):
        yield int(found.subscription[0]), found
        return
    order = np.argsort(found.subscription, kind="stable")
    own = found.subscription[order]
    cuts = np.flatnonzero(np.diff(own)) + 1
    for some in np.split(order, cuts):
        yield int(found.subscription[some[0]]), found.take(some)


def _rows_of(deltas: Deltas, like: Rows | None = None) -> Rows:
    """One row per delta; they have the same columns. Those of `like` if there is none."""
    if not len(deltas):
        assert like is not None
        return like.take(np.empty(0, np.int64))
    if len(deltas.sources) == 1:
        return deltas.sources[0].take(deltas.row)
    used = _compact(deltas)
    joined = Rows.concat(used.sources)
    first = np.cumsum([0, *map(len, used.sources[:-1])])
    return joined.take(used.row + first[used.source])


def _compact(deltas: Deltas) -> Deltas:
    """The same, with sources of the rows in use only."""
    rows, row, source = deltas.row, deltas.row.copy(), deltas.source.copy()
    sources: list[Rows] = []
    for number in np.unique(deltas.source).tolist():
        mine = deltas.source == number
        used, place = np.unique(rows[mine], return_inverse=True)
        row[mine], source[mine] = place, len(sources)
        sources.append(deltas.sources[number].take(used))
    return replace(deltas, row=row, source=source, sources=tuple(sources))
