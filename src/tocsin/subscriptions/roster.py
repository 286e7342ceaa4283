"""Subscriptions at work: handed to their rooms when they begin, taken out when they end.

The registry knows who has subscribed; the rooms know how to answer. The roster brings them
together: it enters queries all or none, begins and ends them by the clock, asks the rooms for
deltas and contents, and puts the users' ids where the rooms have slots.

What begins or ends is told with the next deltas (`told`): until then it is *pending*, so that
nothing is lost if a batch fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

import numpy as np

from tocsin.errors import SubscriptionError, SumOverflow
from tocsin.language.algebra import Query
from tocsin.language.shape import Shape, plan
from tocsin.match.room import MatchRoom, Projection
from tocsin.model.columns import Index, Rows
from tocsin.model.delta import Deltas
from tocsin.model.schema import Stream, Type, quote
from tocsin.predicate.compile import flatten
from tocsin.predicate.deferred import DeferredFilters
from tocsin.predicate.flat import FlatFilters
from tocsin.room import Room
from tocsin.store.database import Database
from tocsin.store.plans import FlatPlans
from tocsin.store.step import Step
from tocsin.subscriptions.registry import Entry, Registry, as_utc
from tocsin.subscriptions.sources import Source, Subscription, Told

__all__ = ["Asked", "Roster"]

_SHAPES = tuple(Shape)

Asked = tuple[int | None, str | None, str, Query]  # id, subscriber, text, query


class Roster:
    """Subscriptions, their rooms, and the clock of their validity."""

    def __init__(
        self, database: Database, filters: MatchRoom, others: Sequence[Room], clock: Callable[[], datetime]
    ) -> None:
        self.registry = Registry()
        self.filters, self.others = filters, others
        self._database, self._clock = database, clock
        self._pending: list[tuple[Entry | None, Deltas]] = []

    @property
    def rooms(self) -> tuple[MatchRoom | Room, ...]:
        return (self.filters, *self.others)

    # -- coming and going --------------------------------------------------------------------------

    def enter(
        self,
        asked: Sequence[Asked],
        valid_from: datetime | None = None,
        valid_to: datetime | None = None,
        state: str | None = None,
        backfill: bool = False,
    ) -> list[Subscription]:
        """Register queries and hand them to their rooms, all or none; `state` is that of a saved one."""
        begins, ends = as_utc(valid_from, "valid_from"), as_utc(valid_to, "valid_to")
        if begins is not None and ends is not None and ends <= begins:
            raise SubscriptionError("valid_to is not after valid_from")
        planned = [
            (self.registry.claim(id), who, sql, plan(query, text=sql)) for id, who, sql, query in asked
        ]
        if backfill:
            if begins is not None and begins > self.now():
                raise SubscriptionError(
                    "backfill is for a subscription that begins now", hint="leave out valid_from or backfill"
                )
            for _, _, _, made in planned:
                self._check_backfill(made.query.tables[0].name)
        entered: list[Entry] = []
        try:
            for id, who, sql, made in planned:
                kept = Subscription(id, sql, made.shape, made.warnings, who, begins, ends)
                slot = int(self.registry.add(np.array([id], np.int64), Told(kept, made))[0])
                entered.append(Entry(self.registry, slot))
            now = self.now()
            valid = [e for e in entered if state == "active" or (state is None and _is_valid(e, now))]
            self._begin(valid)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            found = self._named(error)
            self.leave(np.array([entry.slot for entry in entered], np.int64))
            raise found from None
        for entry in entered:
            if state is not None:
                entry.become(state)
            entry.tell()
        if backfill:
            for entry in valid:
                filters = flatten(entry.plan.filters)
                self._backfill(entry.plan.query.tables[0].name, np.array([entry.slot]), filters)
        return [entry.subscription for entry in entered]

    def enter_flat(
        self,
        ids: Index,
        source: Source,
        filters: FlatFilters | DeferredFilters,
        projection: Projection,
        backfill: bool = False,
    ) -> None:
        """Take filters of one stream or table in, under free ids, all or none; they are active at once."""
        relation = source.tables[0]
        if backfill:
            self._check_backfill(relation)
        self.filters.check(relation, filters)
        slots = self.registry.add(ids, source)
        self.filters.add_flat(relation, slots, filters, projection)
        self.registry.states[slots] = self.registry.told[slots] = 2  # active
        if backfill:
            self._backfill(relation, slots, filters.flat())

    def enter_plans(self, ids: Index, source: Source, plans: FlatPlans, backfill: bool = False) -> None:
        """The same for the other shapes."""
        if backfill:
            self._check_backfill(source.tables[0])
        slots = self.registry.add(ids, source)
        try:
            self._room_of(source.shape).add_flat(slots, plans)
            self.registry.states[slots] = 2
            if not self._sums_fit(plans.query):
                self._room_of(source.shape).contents(slots, Step(self._database.tables))  # refused now
        except BaseException as error:  # noqa: BLE001 - it is raised again
            found = self._named(error)
            self.leave(slots)
            raise found from None
        self.registry.told[slots] = 2

    def leave(self, slots: Index) -> None:
        """Take subscriptions out; what of the past was not told yet is not told any more."""
        for i, (entry, past) in enumerate(self._pending):
            if entry is None:
                stays = ~np.isin(past.subscription, self.registry.ids[slots])
                self._pending[i] = (None, past.take(stays))
        filtered = self._is_filter(slots)
        active = self.registry.states[slots] == 2
        self.filters.remove(slots[filtered & active])
        for room in () if filtered.all() else self.others:
            theirs = [_SHAPES.index(shape) for shape in room.shapes]
            mine = slots[active & np.isin(self.registry.shapes[slots], theirs)]
            if len(mine):
                room.remove(mine.tolist())
        self.registry.remove(slots)

    def now(self) -> datetime:
        """The clock's time; without a zone it is UTC."""
        told = as_utc(self._clock(), "the clock's time")
        assert told is not None
        return told

    def begin_and_end(self) -> datetime:
        """Subscriptions that are due get their content as +1, or lose it as -1, at the last seq.

        Returns the time by which they are.
        """
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
                    source = self.registry.source(entry.slot)
                    assert isinstance(source, Told)
                    warning = f"it could not begin: {error.fact}"
                    source.kept = replace(source.kept, warnings=(*source.kept.warnings, warning))
                self._pending.append((entry, self.signed_content(entry, +1)))
        return now

    @contextmanager
    def all_or_none(self) -> Iterator[list[Index]]:
        """What is entered inside (ids are appended to the list) is taken out again if it fails."""
        entered: list[Index] = []
        waiting = len(self._pending)
        try:
            yield entered
        except BaseException:
            del self._pending[waiting:]
            for ids in entered:
                self.leave(self.registry.slots_of(ids))
            raise

    def pending(self) -> list[Deltas]:
        """What began and ended since the last time this was asked; now it counts as told."""
        waiting, self._pending = self._pending, []
        for entry, _ in waiting:
            if entry is not None:
                entry.tell()
        return [content for _, content in waiting]

    # -- answers -----------------------------------------------------------------------------------

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
        step = Step(self._database.tables)
        if entry.shape in self.filters.shapes:
            return self.filters.content(entry.plan, step)
        return self._room(entry).content(entry.slot, step)

    def contents(self, entries: Sequence[Entry]) -> Deltas:
        """Whole answers of several as +1 at the last seq, in their order."""
        step, parts = Step(self._database.tables), []
        active = [(n, entry) for n, entry in enumerate(entries) if entry.state == "active"]
        for room in self.others:
            mine = [(n, entry.slot) for n, entry in active if entry.shape in room.shapes]
            if mine:
                numbers, slots = np.array(mine, np.int64).T
                found = room.contents(slots, step)
                parts.append(replace(found, subscription=numbers[found.subscription]))
        for n, entry in active:
            if entry.shape in self.filters.shapes:
                found = self.signed_content(entry, +1)
                parts.append(replace(found, subscription=np.full(len(found), n, np.int64)))
        told = Deltas.concat(parts).at(self._database.last_seq)
        told = told.take(np.argsort(told.subscription, kind="stable"))
        return told.named(np.array([entry.id for entry in entries], np.int64))

    def signed_content(self, entry: Entry, sign: int) -> Deltas:
        """The answer as deltas at the last seq."""
        rows = self.content(entry)
        seq = np.full(len(rows), self._database.last_seq, np.int64)
        return Deltas.of(seq, entry.id, sign, rows, np.arange(len(rows)))

    # -- inside ------------------------------------------------------------------------------------

    def _begin(self, entries: list[Entry]) -> None:
        """Hand entries to their rooms."""
        for room in self.rooms:
            mine = [entry for entry in entries if entry.shape in room.shapes]
            if mine:
                room.add([entry.slot for entry in mine], [entry.plan for entry in mine])
                for entry in mine:
                    entry.become("active")
        for entry in entries:
            if not self._sums_fit(entry.plan.query):
                self.content(entry)  # a sum that is no BIGINT is refused now, not at the next change

    def _end(self, entry: Entry) -> None:
        if entry.state == "active":
            if entry.shape in self.filters.shapes:
                self.filters.remove([entry.slot])
            else:
                self._room(entry).remove([entry.slot])
        entry.become("expired")

    def _room(self, entry: Entry) -> Room:
        return self._room_of(entry.shape)

    def _room_of(self, shape: Shape) -> Room:
        return next(room for room in self.others if shape in room.shapes)

    def _sums_fit(self, query: Query) -> bool:
        """Whether a sum of the query is a BIGINT whatever rows it is of."""
        for aggregate in query.aggregates:
            column = aggregate.column
            if aggregate.function == "SUM" and column is not None and column.type is Type.BIGINT:
                store = self._database.tables[query.tables[0].name]
                values = store.rows.vectors(column.name)[0].values[store.alive()]
                if not float(np.abs(values.astype(np.float64)).sum()) < 2.0**62:
                    return False
        return True

    def _is_filter(self, slots: Index) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.asarray(self.registry.shapes[slots] == 0)  # Shape.FILTER is the first

    def _check_backfill(self, relation: str) -> None:
        """Only filters over streams that retain events can be told of the past."""
        declared = self._database.relation(relation)
        if isinstance(declared, Stream) and declared.retain is not None:
            return
        hint = f"declare it so: CREATE STREAM {quote(declared.name)} ... RETAIN '10 minutes'"
        if not isinstance(declared, Stream):
            hint = "leave backfill out: a subscription to a table has its content at once"
        raise SubscriptionError(f"{declared.name} retains no events to backfill from", hint=hint)

    def _backfill(self, relation: str, slots: Index, filters: FlatFilters) -> None:
        past = self._database.retained(relation, self.now())
        found = Deltas.concat(self.filters.backfill(relation, slots, filters, past))
        self._pending.append((None, found.ordered().named(self.registry.ids)))

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
