"""The protocol of rooms: subscriptions of some shapes under dense slots, answered together.

    engine ─► roster ─► Room: match   filters                                match/room.py
                              join    equality, band, multi-way              join/room.py
                              rank    extremes, aggregates, distinct, top-k  rank/room.py
                              group   groups; first rows of groups and joins group/room.py
                              semi    EXISTS, NOT EXISTS, IN, NOT IN         semi/room.py
                              outer   outer joins, UNION ALL                 outer/room.py
                              sequence events of one key in order            sequence/room.py
                              enrich  a stream with rows of tables           enrich/room.py
                              streams two streams in bounded memory          limits/streams.py
                              refresh all of these over tables, on demand    limits/groups.py

A room knows slots and plans; it knows neither the users' ids nor validity. `ScanRoom` is the base of
the rooms that evaluate each plan by itself: slow, simple, and what the others are compared with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Query
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Rows
from tocsin.model.delta import NO_DELTAS, Deltas
from tocsin.model.schema import Type
from tocsin.predicate.plain import PlainFilter
from tocsin.store.plans import FlatPlans, PlanTable
from tocsin.store.step import Step

__all__ = ["FilterRoom", "Room", "ScanRoom", "overriding"]


class Room(ABC):
    """Subscriptions of some shapes, by slot."""

    name: ClassVar[str]
    shapes: ClassVar[tuple[Shape, ...]]
    row_decides: ClassVar[bool] = False  # a row is in an answer whenever its own conditions hold

    @abstractmethod
    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        """Register plans, single ones or the columns of a template, under free slots; all or none."""

    @abstractmethod
    def remove(self, slots: Index) -> None:
        """Unregister slots that are in use."""

    def add_plain(self, slot: int, filter: PlainFilter) -> bool:
        """Register one plain filter under a free slot; False if it must come as a plan."""
        return False

    @abstractmethod
    def deltas(self, step: Step) -> Deltas:
        """How answers change in a step, consolidated; `subscription` holds slots."""

    def deltas_of_one(
        self,
        stream: str,
        seq: int,
        event: dict[str, Any],
        types: Mapping[str, Type] | None,
        ids: Index,
        subscribers: NDArray[np.object_] | None,
    ) -> Deltas | None:
        """The deltas of one event, `named` by ids and subscribers; None if it must come as a step.

        `types`: of columns; None if the stream is open.
        """
        return None

    def commit(self) -> None:  # noqa: B027
        """The step of the last `deltas` is final."""

    def rollback(self) -> None:  # noqa: B027
        """The step of the last `deltas` is not made."""

    @abstractmethod
    def content(self, slot: int, step: Step) -> Rows:
        """The whole answer over the database as it is."""

    def delivered(self, slot: int, step: Step) -> Rows:
        """The answer as the deltas so far have said it: a deferred one lags behind the database."""
        return self.content(slot, step)

    def contents(self, slots: Index, step: Step) -> Deltas:
        """The answers of several slots as +1; `subscription` is the position in `slots`, ascending."""
        parts = []
        for number, slot in enumerate(slots.tolist()):
            rows = self.content(slot, step)
            parts.append(Deltas.of(np.zeros(len(rows), np.int64), number, 1, rows, np.arange(len(rows))))
        return Deltas.concat(parts)

    def check_options(self, query: Query) -> None:  # noqa: B027
        """Raise a SubscriptionError for an option of a query of these shapes that cannot be answered."""

    def check_answers(self, slots: Index, plans: Sequence[Plan] | FlatPlans, step: Step) -> None:  # noqa: B027
        """Raise a SumOverflow if a registered answer cannot be represented over the database as it is."""

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        """Whether the row in `slot` of the plan's table at `place` is in the answer, and notes why.

        The row satisfies the plan's conditions on its own table.
        """
        return True, ()

    def explain_event(self, plan: Plan, place: int, event: Rows, step: Step) -> tuple[bool, tuple[str, ...]]:
        """The same for an event of the plan's stream at `place`, the only one of `event`."""
        return True, ()

    def reads(self, stream: str) -> bool:
        """Whether events of a stream concern a subscription here, so that each must come as a step."""
        return False

    def share(self, tables: Any) -> None:  # noqa: B027
        """Read rows by join key from `tables` (`tocsin.join.tables`), which other rooms read too.

        Before anything is registered.
        """

    def settle(self, step: Step) -> None:  # noqa: B027
        """Do now what the next step would have to do because of the last one; `step` has no changes."""

    def act(self) -> Deltas:
        """What is to be emitted after a change or a tick, at the last seq; `subscription` holds slots."""
        return NO_DELTAS

    def refresh(self, slots: Index) -> Deltas:
        """The deltas that deferred answers have not delivered yet, at seq 0."""
        return NO_DELTAS

    def restoring(self) -> AbstractContextManager[None]:
        """Around registering the subscriptions of a saved engine, before `restore`."""
        return nullcontext()

    def drop_relations(self, catalog: Collection[str]) -> None:  # noqa: B027
        """Drop structures of streams and tables that are not in the catalog any more."""

    def report(self, slot: int) -> Any:
        """What the limits of a subscription cost it; None if it has none."""
        return None

    def saved(self, ids: Index) -> dict[str, Any]:
        """What the room knows that tables and subscriptions do not say, as pyarrow tables by name.

        `ids`: of subscriptions by slot.
        """
        return {}

    def restore(  # noqa: B027
        self, tables: Mapping[str, Any], find: Callable[[Index], NDArray[np.int32]], last_seq: int
    ) -> None:
        """Go on with what was saved, after the same subscriptions were registered.

        `find`: the slots of ids; -1 of those that are not registered.
        """

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Counters by name. A `slot` in it is replaced by the subscription's id before users see it."""

    @abstractmethod
    def _check(self) -> None:
        """Assert the invariants."""


def overriding(method: str, rooms: Sequence[Room]) -> list[Room]:
    """The rooms that define an optional method; calling it of the others would change nothing."""
    return [room for room in rooms if getattr(type(room), method) is not getattr(Room, method)]


class FilterRoom(Room):
    """A room of filters, which select among past events as among new ones."""

    @abstractmethod
    def backfill(
        self, slots: Index, plans: Sequence[Plan] | FlatPlans, past: Sequence[tuple[Index, Rows]]
    ) -> Deltas:
        """The past events, (seq, rows) by batch, that plans registered under these slots select, as +1."""


class ScanRoom(Room):
    """Plans by slot, each evaluated by itself; a plan of a template is made at first use and kept."""

    def __init__(self) -> None:
        self._plans = PlanTable(keep=True)

    def __len__(self) -> int:
        return len(self._plans)

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        self._plans.add(slots, plans)

    def remove(self, slots: Index) -> None:
        self._plans.remove(slots)

    def stats(self) -> dict[str, Any]:
        return {"index": "scan", "subscriptions": len(self._plans)}

    def _check(self) -> None:
        self._plans._check()
        assert all(plan.shape in self.shapes for plan in self._plans.values())
