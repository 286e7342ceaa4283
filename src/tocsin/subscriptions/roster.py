"""Subscriptions at work: the roster registers them, starts and ends them, and collects their deltas.

    Engine ─► Roster ─► Registry   ids, slots, states, sources
                    └─► Room       by shape: match, join, rank

The registry knows who has subscribed; rooms know how to answer. The roster registers queries all or
none, starts and ends them by the clock, and replaces slots by the users' ids in whatever rooms return.

Deltas of a start, an end or a backfill are *pending* until the next deltas are emitted, so that
nothing is lost if a batch fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from tocsin.errors import SubscriptionError, SumOverflow
from tocsin.language.algebra import Query
from tocsin.language.options import NO_OPTIONS
from tocsin.language.shape import Plan, Shape, plan, shape_of
from tocsin.language.statements import option_position
from tocsin.limits.lookup import Lookups
from tocsin.limits.options import check_query
from tocsin.model.columns import Index, Rows
from tocsin.model.delta import NO_DELTAS, Deltas
from tocsin.model.schema import Stream, Type, quote
from tocsin.predicate.plain import PlainFilter, PlainTemplate
from tocsin.room import FilterRoom, Room, overriding
from tocsin.store.database import Database
from tocsin.store.plans import FlatPlans
from tocsin.store.step import Step
from tocsin.subscriptions.registry import Entry, Registry, State, as_utc
from tocsin.subscriptions.sources import PlainSource, SingleSource, Source, Subscription
from tocsin.subscriptions.windows import WindowUse

__all__ = ["Request", "Roster"]


class Request(NamedTuple):
    """A query to be registered by itself."""

    id: int | None  # None: assign one
    subscriber: str | None
    sql: str
    query: Query


@contextmanager
def _pointing_into(text: Callable[[], str]) -> Iterator[None]:
    """Errors about an option get its position in a text."""
    try:
        yield
    except SubscriptionError as error:
        if error.option is None or error.position is not None:
            raise
        position = option_position(text(), error.option)
        raise SubscriptionError(
            error.fact, error.hint, error.rows, option=error.option, position=position
        ) from None


class Roster:
    """Subscriptions, their rooms by name, and the clock of their validity."""

    def __init__(
        self, database: Database, registry: Registry, rooms: Sequence[Room], clock: Callable[[], datetime]
    ) -> None:
        self.registry = registry
        self.rooms = {room.name: room for room in rooms}
        self._room_of = {shape: room for room in rooms for shape in room.shapes}  # every shape has one
        numbers = [rooms.index(self._room_of[shape]) for shape in Shape]
        self._room_numbers = np.array(numbers, np.uint8)  # by code of the shape
        self._plain_room = self._room_of[PlainTemplate.shape]  # it answers single events too
        self._in_use = [self._plain_room]  # and rooms that have had a subscription: steps concern these alone
        self._stream_rooms, self._acting = overriding("reads", rooms), overriding("act", rooms)
        self._database, self._clock = database, clock
        self.windows = WindowUse(database)
        probes = getattr(self.rooms.get("enrich"), "probes", None)
        self.lookups = Lookups(database, probes, lambda deltas: self.pending.append((None, deltas)))
        self.pending: list[tuple[Entry | None, Deltas]] = []  # backfills have no entry

    def room(self, entry: Entry | Plan) -> Room:
        """The room that answers a subscription, or would."""
        return self._room_of[entry.shape]

    def _occupy(self, room: Room) -> None:
        """Take a room into use; from now on it sees every step."""
        if room not in self._in_use:
            self._in_use = [one for one in self.rooms.values() if one is room or one in self._in_use]

    # -- registering -------------------------------------------------------------------------------

    def enter(
        self,
        requests: Sequence[Request],
        valid_from: datetime | None = None,
        valid_to: datetime | None = None,
        state: State | None = None,
        backfill: bool = False,
    ) -> list[Subscription]:
        """Register queries, all or none, and start the valid ones; a saved subscription has a `state`."""
        begins, ends = as_utc(valid_from, "valid_from"), as_utc(valid_to, "valid_to")
        if begins is not None and ends is not None and ends <= begins:
            raise SubscriptionError("valid_to is not after valid_from")
        with _pointing_into(lambda: requests[0].sql) if len(requests) == 1 else nullcontext():
            return self._enter(requests, begins, ends, state, backfill)

    def _enter(
        self,
        requests: Sequence[Request],
        begins: datetime | None,
        ends: datetime | None,
        state: State | None,
        backfill: bool,
    ) -> list[Subscription]:
        for request in requests:
            self._check_options(request.query, shape_of(request.query), partial(str, request.sql))
        planned = [(self.registry.claim(r.id), r, plan(r.query, text=r.sql)) for r in requests]
        for _, _, made in planned:
            self.lookups.check(made.query, made.shape)
        if backfill:
            if begins is not None and begins > self.now():
                raise SubscriptionError(
                    "backfill is for a subscription that begins now", hint="leave out valid_from or backfill"
                )
            for _, _, made in planned:
                self._check_backfill(made.query)
        entered: list[Entry] = []
        with self._undo(lambda: np.array([entry.slot for entry in entered], np.int64)):
            for id, request, made in planned:
                given = Subscription(
                    id, request.sql, made.shape, made.warnings, request.subscriber, begins, ends
                )
                (slot,) = self.registry.add(np.array([id], np.int64), SingleSource(given, made)).tolist()
                entered.append(Entry(self.registry, slot))
            now = self.now()
            valid = [e for e in entered if state is State.ACTIVE or (state is None and e.is_valid(now))]
            self._start(valid)
        for entry in entered:
            if state is not None:
                entry.become(state)
            entry.announce()
        for entry in valid if backfill else ():
            self._backfill(self.room(entry), entry.plan.query, np.array([entry.slot]), [entry.plan])
        return [entry.subscription for entry in entered]

    def enter_saved(self, saved: Mapping[str, Any], query: Query) -> None:
        """Register a subscription of a saved engine, in the state that it had."""
        begins, ends = (datetime.fromisoformat(t) if t else None for t in saved["valid"])
        request = Request(saved["id"], saved["subscriber"], saved["sql"], query)
        self.enter([request], begins, ends, State[saved["state"].upper()])

    def enter_plain(
        self, id: int | None, subscriber: str | None, sql: str, filter: PlainFilter
    ) -> Subscription | None:
        """Register and start one plain filter; None if its room takes it as a plan only."""
        template, id = filter.template, self.registry.claim(id)
        given = Subscription(id, sql, template.shape, (), subscriber)
        slot = self.registry.add_one(id, PlainSource(given, template.template, filter.raw, template.stream))
        try:
            taken = self._plain_room.add_plain(slot, filter)
        except BaseException:
            self.registry.remove_one(slot)
            raise
        if not taken:
            self.registry.remove_one(slot)
        return given if taken else None

    def enter_bulk(self, ids: Index, source: Source, plans: FlatPlans, backfill: bool = False) -> None:
        """Register and start the rows of a source under free ids, all or none."""
        self._check_options(plans.query, source.shape, lambda: source.sql(0))
        self.lookups.check(plans.query, source.shape)
        if backfill:
            self._check_backfill(plans.query)
        room, slots = self._room_of[source.shape], self.registry.add(ids, source)
        with self._undo(lambda: slots):
            plans = self.windows.enter_bulk(slots, plans, self.now)
            self._occupy(room)
            room.add(slots, plans)
            self.registry.states[slots] = State.ACTIVE
            room.check_answers(slots, plans, Step(self._database.tables))
        self.registry.announced[slots] = State.ACTIVE
        if backfill:
            self._backfill(room, plans.query, slots, plans)

    def leave(self, slots: Index) -> None:
        """Unregister subscriptions. Their undelivered backfill is discarded."""
        for i, (entry, past) in enumerate(self.pending):
            if entry is None:
                stays = ~np.isin(past.subscription, self.registry.ids[slots])
                self.pending[i] = (None, past.take(stays))
        active = slots[self.registry.states[slots] == State.ACTIVE]
        numbers = self._room_numbers[self.registry.shapes[active]]
        for number, room in enumerate(self.rooms.values()):
            mine = active[numbers == number]
            if len(mine):
                room.remove(mine)
        self._leave_windows(slots)
        self.registry.remove(slots)

    def leave_one(self, slot: int) -> None:
        """Unregister one subscription."""
        slots, registry = np.array([slot], np.int64), self.registry
        if self.pending:
            self.leave(slots)
            return
        entry = Entry(registry, slot)
        if entry.state is State.ACTIVE:
            self.room(entry).remove(slots)
        self._leave_windows(slots)
        registry.remove_one(slot)

    @contextmanager
    def all_or_none(self) -> Iterator[list[Index]]:
        """Unregister what was entered inside (ids are appended to the list) if the block fails."""
        entered: list[Index] = []
        pending = len(self.pending)
        try:
            yield entered
        except BaseException:
            del self.pending[pending:]
            for ids in entered:
                self.leave(self.registry.slots_of(ids))
            raise

    # -- validity ----------------------------------------------------------------------------------

    def now(self) -> datetime:
        """The clock's time; without a zone it is UTC."""
        now = as_utc(self._clock(), "the clock's time")
        assert now is not None
        return now

    def start_and_end(self, now: datetime) -> None:
        """Start and end the subscriptions that are due: their contents, +1 or -1, become pending."""
        for entry in self.registry.due(now):
            if entry.has_ended(now):
                content = self._signed_content(entry, -1, self.delivered(entry))
                self._end(entry)
                self.pending.append((entry, content))
            elif entry.state is State.WAITING and entry.is_valid(now):
                try:
                    self._start([entry])
                except SumOverflow as error:  # there is no caller to reject: it ends before it began
                    self._end(entry)
                    self.registry.warn(entry.slot, f"it could not begin: {error.fact}")
                self.pending.append((entry, self._signed_content(entry, +1, self.content(entry))))

    def end_overflowing(self, error: SumOverflow, step: Step) -> bool:
        """End the subscription whose sum overflowed in a discarded step, if events leave its window there.

        Nobody's change could be rejected instead: the clock goes on. Its content, -1, becomes pending.
        """
        entry = None if error.id is None else self.registry.get(error.id)
        if entry is None or not self.windows.lose(entry.slot, step):
            return False
        content = self._signed_content(entry, -1, self.delivered(entry))
        self._end(entry)
        self.registry.warn(entry.slot, f"it ended: {error.fact}")
        self.pending.append((entry, content))
        return True

    def emit_pending(self) -> list[Deltas]:
        """The pending deltas, which are delivered now."""
        pending, self.pending = self.pending, []
        for entry, _ in pending:
            if entry is not None:
                entry.announce()
        return [deltas for _, deltas in pending]

    # -- answers -----------------------------------------------------------------------------------

    def deltas(self, step: Step) -> Deltas:
        """How all answers change in a step, in order, with the users' ids."""
        try:
            found = [room.deltas(step) for room in self._in_use]
        except SumOverflow as error:
            raise self._with_id(error) from None
        return Deltas.concat(found).ordered().named(self.registry.ids, self.registry.subscribers)

    def commit(self) -> None:
        """The step of the last `deltas` is final."""
        for room in self._in_use:
            room.commit()

    def rollback(self) -> None:
        """The step of the last `deltas` is not made."""
        for room in self._in_use:
            room.rollback()

    def deltas_of_one(
        self, stream: str, seq: int, event: dict[str, Any], types: Mapping[str, Type] | None
    ) -> Deltas | None:
        """How answers change by one event of a stream; None if it must be applied as a batch.

        `types`: of columns; None if it is open.
        """
        if self._database.windows.reads(stream) or stream in self._database.constrained:
            return None
        if any(room.reads(stream) for room in self._stream_rooms):
            return None
        ids, subscribers = self.registry.ids, self.registry.subscribers
        return self._plain_room.deltas_of_one(stream, seq, event, types, ids, subscribers)

    def act(self) -> Deltas:
        """What is to be emitted after a change or a tick, at the last seq, in order."""
        return self._at_last_seq([room.act() for room in self._acting])

    def refresh(self, entries: Sequence[Entry]) -> Deltas:
        """Bring deferred answers up to date: their net deltas since they were refreshed last."""
        by_room: dict[str, list[int]] = {}
        for entry in entries:
            if entry.state is State.ACTIVE:
                by_room.setdefault(self.room(entry).name, []).append(entry.slot)
        try:
            found = [self.rooms[name].refresh(np.array(own, np.int64)) for name, own in by_room.items()]
            return self._at_last_seq(found)
        except SumOverflow as error:
            raise self._with_id(error) from None

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Around registering the subscriptions of a saved engine, before `restore`."""
        with ExitStack() as stack:
            for room in self.rooms.values():
                stack.enter_context(room.restoring())
            yield

    def content(self, entry: Entry) -> Rows:
        """The whole answer now; nothing if the subscription is not active."""
        if entry.state is not State.ACTIVE:
            return Rows((), 0)
        return self.room(entry).content(entry.slot, Step(self._database.tables))

    def delivered(self, entry: Entry) -> Rows:
        """The answer as the deltas so far have said it."""
        if entry.state is not State.ACTIVE:
            return Rows((), 0)
        return self.room(entry).delivered(entry.slot, Step(self._database.tables))

    def contents(self, entries: Sequence[Entry]) -> Deltas:
        """Whole answers of several as +1 at the last seq, in their order."""
        step, parts = Step(self._database.tables), []
        active = [(n, entry) for n, entry in enumerate(entries) if entry.state is State.ACTIVE]
        for room in self.rooms.values():
            mine = [(n, entry.slot) for n, entry in active if entry.shape in room.shapes]
            if mine:
                numbers, slots = np.array(mine, np.int64).T
                found = room.contents(slots, step)
                parts.append(replace(found, subscription=numbers[found.subscription]))
        found = Deltas.concat(parts).at(self._database.last_seq)
        found = found.take(np.argsort(found.subscription, kind="stable"))
        slots = np.array([entry.slot for entry in entries], np.int64)
        whose = self.registry.subscribers
        return found.named(self.registry.ids[slots], None if whose is None else whose[slots])

    def saved(self) -> dict[str, Any]:
        """What rooms keep beside tables, by room and name."""
        ids = self.registry.ids
        return {f"{n}/{part}": t for n, room in self.rooms.items() for part, t in room.saved(ids).items()}

    def restore(self, name: str, parts: Mapping[str, Any]) -> None:
        """Go on with what a room kept when the engine was saved."""
        if parts:
            self.rooms[name].restore(parts, self.registry.find, self._database.last_seq)

    def report(self, entry: Entry) -> Any:
        """What the limits of a subscription cost it."""
        active = entry.state is State.ACTIVE
        found = self.room(entry).report(entry.slot) if active else None
        if not active and entry.plan.query.options is not NO_OPTIONS:
            raise SubscriptionError(f"subscription {entry.id} is {entry.state!s}", "wait until it is active")
        if found is None:
            hint = "limits are options of a query: WITH (refresh = 'on demand', within = '200 ms')"
            raise SubscriptionError(f"subscription {entry.id} has no limits", hint)
        return found

    def stats(self) -> dict[str, Any]:
        """The statistics of each room by its name, with subscriptions where rooms have slots."""
        found = {name: self._with_ids(room.stats()) for name, room in self.rooms.items()}
        return {**found, "lookups": self.lookups.stats()}

    # -- inside ------------------------------------------------------------------------------------

    def _check_options(self, query: Query, shape: Shape, text: Callable[[], str]) -> None:
        """Raise SubscriptionError, with its place in the text, for an option that cannot be answered."""
        if query.options is not NO_OPTIONS:
            with _pointing_into(text):
                check_query(query)
                self._room_of[shape].check_options(query)

    def _at_last_seq(self, parts: Sequence[Deltas]) -> Deltas:
        """Deltas of slots, in order, with the users' ids."""
        if not any(map(len, parts)):
            return NO_DELTAS
        found = Deltas.concat(parts).at(self._database.last_seq)
        return found.ordered().named(self.registry.ids, self.registry.subscribers)

    def _start(self, entries: Sequence[Entry]) -> None:
        """Add entries to their rooms."""
        for room in self.rooms.values():
            mine = [entry for entry in entries if entry.shape in room.shapes]
            if mine:
                slots = np.array([e.slot for e in mine], np.int64)
                plans = self.windows.enter(slots, [e.plan for e in mine], self.now)
                self._occupy(room)
                room.add(slots, plans)
                self.registry.states[slots] = State.ACTIVE
                room.check_answers(slots, plans, Step(self._database.tables))

    def _end(self, entry: Entry) -> None:
        if entry.state is State.ACTIVE:
            slots = np.array([entry.slot])
            self.room(entry).remove(slots)
            self._leave_windows(slots)
        entry.become(State.EXPIRED)

    def _leave_windows(self, slots: Index) -> None:
        """Drop the windows that nobody else uses, and what rooms keep of them."""
        if self.windows.leave(slots):
            for room in self.rooms.values():
                room.drop_relations({*self._database.catalog, *self._database.tables})

    def all_delivered(self, entries: Sequence[Entry]) -> Deltas:
        """The answers of several as the deltas so far have said them, as +1 at the last seq."""
        return Deltas.concat([self._signed_content(entry, +1, self.delivered(entry)) for entry in entries])

    def _signed_content(self, entry: Entry, sign: int, rows: Rows) -> Deltas:
        """An answer as deltas at the last seq."""
        seq = np.full(len(rows), self._database.last_seq, np.int64)
        deltas = Deltas.of(seq, entry.slot, sign, rows, np.arange(len(rows)))
        return deltas.named(self.registry.ids, self.registry.subscribers)

    def _check_backfill(self, query: Query) -> None:
        """Raise unless the query is a filter over a stream that retains events."""
        if query.options.window is not None:
            hint = "leave it out: the subscription has the events of its window at once"
            raise SubscriptionError("backfill is not for windows", hint=hint)
        if any(table.stream for table in query.tables):
            raise SubscriptionError("backfill is for filters over one stream", hint="leave backfill out")
        declared = self._database.relation(query.tables[0].name)
        if isinstance(declared, Stream) and declared.retain is not None:
            return
        hint = f"declare it so: CREATE STREAM {quote(declared.name)} ... RETAIN '10 minutes'"
        if not isinstance(declared, Stream):
            hint = "leave backfill out: a subscription to a table has its content at once"
        raise SubscriptionError(f"{declared.name} retains no events to backfill from", hint=hint)

    def _backfill(self, room: Room, query: Query, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        past = self._database.retained(query.tables[0].name, self.now())
        found = cast(FilterRoom, room).backfill(slots, plans, past)  # `_check_backfill` admits filters alone
        named = found.ordered().named(self.registry.ids, self.registry.subscribers)
        self.pending.append((None, named))

    @contextmanager
    def _undo(self, entered: Callable[[], Index]) -> Iterator[None]:
        """Unregister the entered slots if the block fails."""
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - it is raised again
            found = self._with_id(error) if isinstance(error, SumOverflow) else error
            self.leave(entered())
            raise found from None

    def _with_id(self, error: SumOverflow) -> SumOverflow:
        """The error with the subscription's id for its slot."""
        if error.slot is None:
            return error
        who = int(self.registry.ids[error.slot])
        named = SumOverflow(f"subscription {who}: {error.fact}", hint=error.hint)
        named.id = who
        return named

    def _with_ids(self, stats: Any) -> Any:
        """Statistics with `subscription`, the id, for `slot`."""
        if isinstance(stats, dict):
            ids = {"subscription": int(self.registry.ids[stats["slot"]])} if "slot" in stats else {}
            return {key: self._with_ids(value) for key, value in stats.items() if key != "slot"} | ids
        return [self._with_ids(part) for part in stats] if isinstance(stats, list) else stats

    def _check(self) -> None:
        self.registry._check()
        self.windows._check()
        self.lookups._check()
        for room in self.rooms.values():
            room._check()
