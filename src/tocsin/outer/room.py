"""The room of composed queries: each part is a subscription of a room inside, and their deltas are added up.

Where a row gets its first partner, one part loses the row beside NULLs and another one gains the joined row,
at one seq. If the answer shows only columns that are equal in both, the two cancel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tocsin.errors import SumOverflow
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Rows, longer
from tocsin.model.delta import NO_DELTAS, Deltas
from tocsin.outer.parts import QueryPart, parts_of
from tocsin.room import Room
from tocsin.store.plans import FlatPlans
from tocsin.store.step import Step

__all__ = ["OuterRoom"]


class _Member(NamedTuple):
    """A part: its slot in the room inside that answers it."""

    slot: int
    part: QueryPart
    room: Room


class OuterRoom(Room):
    """Composed queries by slot; `make` makes the rooms inside, given how to find a plan by its slot there."""

    name = "outer"
    shapes = (Shape.OUTER, Shape.UNION)

    def __init__(self, make: Callable[[Callable[[int], Plan]], Sequence[Room]]) -> None:
        self.rooms = tuple(make(lambda slot: self._plans[slot]))
        self._room_of = {shape: room for room in self.rooms for shape in room.shapes}
        self._plans: dict[int, Plan] = {}  # of parts, by slot inside
        self._members: dict[int, list[_Member]] = {}  # by slot
        self._parent: Index = np.zeros(0, np.int64)  # by slot inside
        self._free: list[int] = []
        self._next = 0
        self._streams: Counter[str] = Counter()  # that parts read event by event
        self._reads: dict[int, tuple[str, ...]] = {}  # by slot

    # -- registering -------------------------------------------------------------------------------

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        assert not isinstance(plans, FlatPlans), "templates of composed queries are filled one by one"
        by: dict[str, list[_Member]] = {}
        for slot, plan in zip(slots.tolist(), plans, strict=True):
            self._members[slot] = []
            for part in parts_of(plan):
                member = _Member(self._allocate(slot, part.plan), part, self._room_of[part.plan.shape])
                self._members[slot].append(member)
                by.setdefault(member.room.name, []).append(member)
            self._reads[slot] = tuple({table.name for table in plan.query.tables if table.stream})
            self._streams.update(self._reads[slot])
        added: list[_Member] = []
        try:
            for members in by.values():
                own = np.array([member.slot for member in members], np.int64)
                members[0].room.add(own, [member.part.plan for member in members])
                added += members
        except BaseException:
            self._drop(slots, {member.slot for member in added})
            raise

    def remove(self, slots: Index) -> None:
        self._drop(slots, None)

    def _drop(self, slots: Index, placed: set[int] | None) -> None:
        """Remove subscriptions, of whose parts only some are in rooms (None: all)."""
        by: dict[str, list[_Member]] = {}
        for slot in slots.tolist():
            for member in self._members.pop(slot, ()):
                if placed is None or member.slot in placed:
                    by.setdefault(member.room.name, []).append(member)
                del self._plans[member.slot]
                self._free.append(member.slot)
            self._streams.subtract(self._reads.pop(slot, ()))
        for members in by.values():
            members[0].room.remove(np.array([member.slot for member in members], np.int64))

    def _allocate(self, slot: int, plan: Plan) -> int:
        inside = self._free.pop() if self._free else self._next
        self._next = max(self._next, inside + 1)
        if inside >= len(self._parent):
            self._parent = longer(self._parent, max(64, 2 * len(self._parent)))
        self._plans[inside], self._parent[inside] = plan, slot
        return inside

    def drop_relations(self, catalog: Collection[str]) -> None:
        for room in self.rooms:
            room.drop_relations(catalog)

    # -- steps -------------------------------------------------------------------------------------

    def deltas(self, step: Step) -> Deltas:
        if not self._members:
            return NO_DELTAS
        with self._own_slots():
            found = Deltas.concat(room.deltas(step) for room in self.rooms)
        return self._added_up(found) if len(found) else NO_DELTAS

    def _added_up(self, found: Deltas) -> Deltas:
        """Deltas of parts as those of whole queries; a row that one part loses and another gains stays."""
        return replace(found, subscription=self._parent[found.subscription]).cancelled_between(
            found.subscription
        )

    def commit(self) -> None:
        for room in self.rooms:
            room.commit()

    def rollback(self) -> None:
        for room in self.rooms:
            room.rollback()

    def settle(self, step: Step) -> None:
        for room in self.rooms:
            room.settle(step)

    def reads(self, stream: str) -> bool:
        return self._streams[stream] > 0

    # -- answers -----------------------------------------------------------------------------------

    def content(self, slot: int, step: Step) -> Rows:
        parts = [member.room.content(member.slot, step) for member in self._members[slot]]
        parts = [part for part in parts if len(part)]
        return Rows.concat(parts) if parts else Rows((), 0)

    def check_answers(self, slots: Index, plans: Sequence[Plan] | FlatPlans, step: Step) -> None:
        members = [member for slot in slots.tolist() for member in self._members[slot]]
        for room in {member.room.name: member.room for member in members}.values():
            mine = [member for member in members if member.room is room]
            with self._own_slots():
                own = np.array([member.slot for member in mine], np.int64)
                room.check_answers(own, [member.part.plan for member in mine], step)

    @contextmanager
    def _own_slots(self) -> Iterator[None]:
        """Errors name the slot of the whole query."""
        try:
            yield
        except SumOverflow as error:
            if error.slot is not None:
                error.slot = int(self._parent[error.slot])
            raise

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        held, notes = False, list[str]()
        for number, part, own in _parts_at(plan, place):
            if not step.selected(part.query.tables[own].name, part.filters[own])[slot]:
                notes.append(f"part {number}: its conditions do not hold: {part.normal}")
                continue
            room = self._room_of[part.shape]
            mine, why = (True, ()) if room.row_decides else room.explain(part, own, slot, step)
            held |= mine
            notes += [f"part {number}: {note}" for note in why or ("the row is in its answer",)]
        return held, tuple(notes)

    def explain_event(self, plan: Plan, place: int, event: Rows, step: Step) -> tuple[bool, tuple[str, ...]]:
        held, notes = False, list[str]()
        for number, part, own in _parts_at(plan, place):
            mine, why = self._room_of[part.shape].explain_event(part, own, event, step)
            held |= mine
            notes += [f"part {number}: {note}" for note in why or ("the event is in its answer",)]
        return held, tuple(notes)

    # -- inspection --------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        rooms = Counter(member.room.name for members in self._members.values() for member in members)
        return {"index": "parts", "subscriptions": len(self._members), "parts": dict(rooms)}

    def _check(self) -> None:
        for room in self.rooms:
            room._check()
        inside = [(member.slot, slot) for slot, members in self._members.items() for member in members]
        assert {one for one, _ in inside} == set(self._plans) and len(inside) == len(self._plans)
        assert all(self._parent[one] == slot for one, slot in inside)
        assert not set(self._free) & set(self._plans)


def _parts_at(plan: Plan, place: int) -> Iterator[tuple[int, Plan, int]]:
    """The parts that read a table: their number, their plan, the place of the table in it."""
    for number, part in enumerate(parts_of(plan), 1):
        if place in part.places:
            yield number, part.plan, part.places.index(place)
