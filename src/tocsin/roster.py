"""Subscriptions at work: handed to their rooms when they begin, taken out when they end.

The registry knows who has subscribed; the rooms know how to answer. The roster brings them
together: it enters queries all or none, begins and ends them by the clock, asks the rooms for
deltas and contents, and puts the users' ids where the rooms have slots.

What begins or ends is told with the next deltas (`told`): until then it is *pending*, so that
nothing is lost if a batch fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from tocsin.errors import SubscriptionError, SumOverflow
from tocsin.language.algebra import Query
from tocsin.language.shape import Plan, plan
from tocsin.match.filters import Filters
from tocsin.model.columns import Rows
from tocsin.model.delta import Deltas
from tocsin.registry import Entry, Registry, Subscription, as_utc
from tocsin.store.database import Database
from tocsin.store.room import Room
from tocsin.store.step import Step

__all__ = ["Asked", "Roster"]

Asked = tuple[int | None, str | None, str, Query]  # id, subscriber, text, query


class Roster:
    """Subscriptions, their rooms, and the clock of their validity."""

    def __init__(
        self, database: Database, rooms: Sequence[Filters | Room], clock: Callable[[], datetime]
    ) -> None:
        self.registry = Registry()
        self.rooms = rooms
        self._database, self._clock = database, clock
        self._pending: list[tuple[Entry, Deltas]] = []

    def enter(
        self,
        asked: Sequence[Asked],
        valid_from: datetime | None = None,
        valid_to: datetime | None = None,
        state: str | None = None,
    ) -> list[Subscription]:
        """Register queries and hand them to their rooms, all or none; `state` is that of a saved one."""
        begins, ends = as_utc(valid_from, "valid_from"), as_utc(valid_to, "valid_to")
        if begins is not None and ends is not None and ends <= begins:
            raise SubscriptionError("valid_to is not after valid_from")
        planned = [
            (self.registry.claim(id), who, sql, plan(query, text=sql)) for id, who, sql, query in asked
        ]
        entered: list[Entry] = []
        try:
            for id, who, sql, made in planned:
                subscription = Subscription(id, sql, made.shape, made.warnings, who, begins, ends)
                entered.append(self.registry.add(subscription, made))
            now = self.now()
            valid = [e for e in entered if state == "active" or (state is None and _is_valid(e, now))]
            self._begin(valid)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            found = self._named(error)
            self.leave(entered)
            raise found from None
        for entry in entered:
            entry.state = state or entry.state
            entry.told = entry.state
        return [entry.subscription for entry in entered]

    def leave(self, entries: Iterable[Entry]) -> None:
        """Take subscriptions out."""
        for entry in entries:
            self._end(entry)
            self.registry.remove(entry)

    def now(self) -> datetime:
        """The clock's time; without a zone it is UTC."""
        told = as_utc(self._clock(), "the clock's time")
        assert told is not None
        return told

    def begin_and_end(self) -> None:
        """Subscriptions that are due get their content as +1, or lose it as -1, at the last seq."""
        now = self.now()
        for entry in self.registry.due(now):
            if _has_ended(entry, now):
                content = self.signed_content(entry, -1)
                self._end(entry)
                self._pending.append((entry, content))
            elif entry.state == "waiting" and _is_valid(entry, now):
                try:
                    self._begin([entry])
                except SumOverflow as error:  # nobody is there to be refused: it ends before it began
                    self._end(entry)
                    warning = f"it could not begin: {error.fact}"
                    said = entry.subscription
                    entry.subscription = replace(said, warnings=(*said.warnings, warning))
                self._pending.append((entry, self.signed_content(entry, +1)))

    def pending(self) -> list[Deltas]:
        """What began and ended since the last time this was asked; now it counts as told."""
        waiting, self._pending = self._pending, []
        for entry, _ in waiting:
            entry.told = entry.state
        return [content for _, content in waiting]

    def deltas(self, step: Step) -> Deltas:
        """How all answers change in a step."""
        try:
            told = Deltas.concat(room.deltas(step) for room in self.rooms)
        except SumOverflow as error:
            raise self._named(error) from None
        return told.ordered().named(self.registry.ids)

    def content(self, entry: Entry) -> Rows:
        """The whole answer now; of a subscription that is not valid, nothing."""
        if entry.state != "active":
            return Rows((), 0)
        return self._room(entry.plan).content(entry.slot, Step(self._database.tables))

    def signed_content(self, entry: Entry, sign: int) -> Deltas:
        """The answer as deltas at the last seq."""
        rows = self.content(entry)
        seq = np.full(len(rows), self._database.last_seq, np.int64)
        return Deltas.of(seq, entry.subscription.id, sign, rows, np.arange(len(rows)))

    def _begin(self, entries: list[Entry]) -> None:
        """Hand entries to their rooms."""
        for room in self.rooms:
            mine = [entry for entry in entries if entry.plan.shape in room.shapes]
            if mine:
                room.add([entry.slot for entry in mine], [entry.plan for entry in mine])
        for entry in entries:
            entry.state = "active"
        for entry in entries:
            if entry.plan.query.aggregates:
                self.content(entry)  # a sum that is no BIGINT is refused now, not at the next change

    def _end(self, entry: Entry) -> None:
        if entry.state == "active":
            self._room(entry.plan).remove([entry.slot])
        entry.state = "expired"

    def _room(self, plan: Plan) -> Filters | Room:
        return next(room for room in self.rooms if plan.shape in room.shapes)

    def _named(self, error: BaseException) -> BaseException:
        """An overflow names the subscription; any other error is left as it is."""
        if not isinstance(error, SumOverflow) or error.slot is None:
            return error
        who = self.registry.ids[error.slot]
        named = SumOverflow(f"subscription {who}: {error.fact}", hint=error.hint)
        named.id = int(who)
        return named

    def _check(self) -> None:
        self.registry._check()
        for room in self.rooms:
            room._check()


def _is_valid(entry: Entry, now: datetime) -> bool:
    begins = entry.subscription.valid_from
    return (begins is None or begins <= now) and not _has_ended(entry, now)


def _has_ended(entry: Entry, now: datetime) -> bool:
    ends = entry.subscription.valid_to
    return ends is not None and ends <= now
