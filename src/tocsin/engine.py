"""The engine: subscribe, change, and receive how answers change. READ THIS FIRST.

    text ─ language ─► Plan ─► the room of its shape                   (once per subscription)
    changes ─► tables ─► every room that is used ─► Deltas             (once per batch)

The engine only delegates: `language` parses SQL, `subscriptions/roster.py` registers, starts and ends
subscriptions, `store` keeps tables, and each room (`room.py`) answers for its shapes:

    match    filters: one matching index per stream or table
    join     equality, band, multi-way; outer: outer joins, UNION ALL; semi: EXISTS, IN
    rank     extremes, aggregates, distinct, top-k; group: groups, first rows of groups and joins
    enrich   a stream with rows of tables; sequence: events of one key in order
    streams  two streams, in bounded memory; refresh: all of these over tables, on demand

The law that all of it keeps: content(after) = content(before) + deltas.

>>> e = Engine()
>>> e.execute("CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol))")
>>> s = e.subscribe("SELECT symbol FROM stocks WHERE per BETWEEN 45 AND 70")
>>> [(d.sign, d.row) for d in e.insert("stocks", {"symbol": "GOOG", "per": 52.1})]
[(1, {'symbol': 'GOOG'})]
>>> [(d.sign, d.row) for d in e.update("stocks", {"symbol": "GOOG", "per": 90})]
[(-1, {'symbol': 'GOOG'})]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from threading import RLock
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from tocsin.errors import BadRow, ChangeError, SubscriptionError, SumOverflow, TocsinError
from tocsin.explain import Explanation, explain
from tocsin.language.bulk import bad_rows
from tocsin.language.shape import Plan, Shape, plan
from tocsin.language.sql import parse_definitions
from tocsin.language.template import Parser
from tocsin.limits.options import with_options
from tocsin.match.room import MatchRoom
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, stored
from tocsin.model.delta import NO_DELTAS, Deltas
from tocsin.model.jsonlines.changes import read_object
from tocsin.model.jsonlines.parse import JsonText, parse_plain
from tocsin.model.schema import Stream, Table, Type
from tocsin.store.database import BadRows, Database
from tocsin.store.step import Step
from tocsin.subscriptions.bulk import Load, collector_paused, load_predicates, load_template, load_texts
from tocsin.subscriptions.listeners import Listeners
from tocsin.subscriptions.listing import ListingMethods
from tocsin.subscriptions.lookups import LookupMethods
from tocsin.subscriptions.parts import parts_of, restoring
from tocsin.subscriptions.plain import PlainTexts
from tocsin.subscriptions.registry import Registry, State
from tocsin.subscriptions.rooms import Rooms
from tocsin.subscriptions.roster import Request, Roster
from tocsin.subscriptions.rules import RuleMethods
from tocsin.subscriptions.saved import read_folder, saved_engine, split_records, write_folder
from tocsin.subscriptions.sources import Subscription
from tocsin.subscriptions.transfer import TransferMethods
from tocsin.subscriptions.warnings import SubscriptionWarnings

__all__ = ["Engine", "Rooms"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _locked(
    method: Callable[Concatenate[Engine, _P], _T],
) -> Callable[Concatenate[Engine, _P], _T]:
    """One thread at a time; calls from a listener, in the thread that has the lock, go on."""

    @wraps(method)
    def call(self: Engine, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self._lock:
            return method(self, *args, **kwargs)

    return call


class Engine(LookupMethods, ListingMethods, RuleMethods, TransferMethods):
    """Standing queries over streams and tables, in this process.

    Any thread may use it: calls run one after the other (a lock), and matching releases the interpreter's
    lock inside. Listeners are called in order of the changes, before the next call, and may use the engine
    (`on_delta`). For asyncio see `tocsin.aio`.

    `clock` gives the time of validity; with `retain=False` no stream retains events, whatever it declares.
    A sum that exceeds BIGINT because an event leaves its window ends its subscription; with
    `end_overflowing=False`, SumOverflow is raised and the events stay.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], datetime] | None = None,
        rooms: Rooms | None = None,
        retain: bool = True,
        end_overflowing: bool = True,
    ) -> None:
        self._lock = RLock()
        self._database = Database()
        self._retain, self._end_overflowing = retain, end_overflowing
        self._parser = Parser(self._database.catalog)
        self._plain_texts = PlainTexts(self._parser)
        self._registry = Registry()
        made = rooms or Rooms()
        clock = clock or (lambda: datetime.now(UTC))
        match_room = MatchRoom(made.match, self._room_plan)
        all_rooms = made.of_engine(match_room, self._database, clock)
        self._warnings = SubscriptionWarnings(self._registry, match_room)
        self._database.in_use = self._warnings.in_use
        self._roster = Roster(self._database, self._registry, all_rooms, clock)
        self._listeners = Listeners()
        self._watchers: list[tuple[Callable[[Step], None], Callable[[], Mapping[str, int]]]] = []

    # -- definitions -------------------------------------------------------------------------------

    @_locked
    def execute(self, text: str) -> None:
        """CREATE or DROP streams and tables; all statements of the text or none."""
        users = self._registry.users()
        for _, others in self._watchers:
            users.update(others())
        self._database.define(parse_definitions(text), users)
        self._parser = Parser(self._database.catalog)
        self._plain_texts = PlainTexts(self._parser)
        for room in self._roster.rooms.values():
            room.drop_relations({*self._database.catalog, *self._database.tables})

    def schema(self, name: str) -> Table | Stream:
        """A declared stream or table."""
        return self._database.relation(name)

    def schemas(self) -> tuple[Table | Stream, ...]:
        """All declared streams and tables."""
        return tuple(self._database.catalog.values())

    # -- subscriptions -----------------------------------------------------------------------------

    @_locked
    def plan(self, sql: str) -> Plan:
        """What a subscription of this text would be: its shape, and its conditions in normal form."""
        return plan(self._parser.parse(sql), text=sql)

    @_locked
    def subscribe(
        self,
        /,
        sql: str,
        *,
        id: int | None = None,
        subscriber: str | None = None,
        valid_from: datetime | None = None,
        valid_to: datetime | None = None,
        backfill: bool = False,
        **options: Any,
    ) -> Subscription:
        """Register a query. It has its content at once, or at `valid_from`; deltas follow.

        `options` are those of `WITH (...)`, as values or as classes of `limits/options.py`.

        With `backfill`, a filter over a stream that retains events receives those still valid: with the
        deltas of the next change or `tick`.
        """
        if options:
            sql = with_options(sql, **options)
        elif valid_from is None and valid_to is None and not backfill:
            plain = self._plain_texts.filter(sql) if isinstance(subscriber, str | None) else None
            plainly = None if plain is None else self._roster.enter_plain(id, subscriber, sql, plain)
            if plain is not None and plainly is not None:
                return self._warnings.plain_with_warnings(plainly, plain)
        query = self._parser.parse(sql)
        if subscriber is not None and not isinstance(subscriber, str):
            raise SubscriptionError(f"a subscriber is named by text, not {subscriber!r}")
        request = Request(id, subscriber, sql, query)
        entered = self._roster.enter([request], valid_from, valid_to, backfill=backfill)[0]
        return self._warnings.with_warnings(entered, query)

    @_locked
    def subscribe_many(self, template: str, params: Any, *, backfill: bool = False) -> Index:
        """One query per row of a pyarrow table: its columns are the `:name` parameters of the template.

        The columns `id` and, optionally, `subscriber` identify them. All rows or none; returns the ids.
        """
        return self._enter(load_template(template, params, self._database.catalog), backfill)

    @_locked
    def subscribe_predicates(self, relation: str, table: Any, *, backfill: bool = False) -> Index:
        """One conjunction per row of a pyarrow table with `id`, `predicates` and optional `subscriber`.

        All rows or none; returns the ids.
        """
        return self._enter(load_predicates(self._database.relation(relation), table), backfill)

    @_locked
    def subscribe_texts(
        self,
        texts: Sequence[str],
        *,
        ids: Sequence[int] | None = None,
        subscribers: Sequence[str | None] | None = None,
        backfill: bool = False,
    ) -> Index:
        """One query per SQL text, all or none; returns the ids. Fast where only literals differ."""
        first = self._registry.last_id + 1
        plain = None if backfill else self._plain_texts
        with collector_paused():
            return self._enter(load_texts(texts, ids, subscribers, self._parser, first, plain), backfill)

    @_locked
    def unsubscribe(self, subscription: Subscription | int) -> None:
        """Unregister a subscription. No deltas are emitted."""
        self._roster.leave_one(self._registry.get(subscription).slot)

    @_locked
    def unsubscribe_many(self, subscriptions: Iterable[Subscription | int] | Index) -> None:
        """Unregister several, all or none; an array of ids is fast."""
        self._roster.leave(self._registry.slots_of(subscriptions))

    # -- changes -----------------------------------------------------------------------------------

    def insert(self, table: str, row: Mapping[str, Any]) -> Deltas:
        """Insert a row; absent columns are NULL."""
        with self._lock:
            return self._apply_row(table, row, "insert")

    def update(self, table: str, row: Mapping[str, Any]) -> Deltas:
        """Set the given columns of the row with this key; an explicit None sets NULL."""
        with self._lock:
            return self._apply_row(table, row, "update")

    def delete(self, table: str, row: Mapping[str, Any]) -> Deltas:
        """Delete the row with this key; other columns are ignored."""
        with self._lock:
            return self._apply_row(table, row, "delete")

    def upsert(self, table: str, row: Mapping[str, Any]) -> Deltas:
        """Update the row with this key, or insert it."""
        with self._lock:
            return self._apply_row(table, row, "upsert")

    def publish(self, stream: str, event: Mapping[str, Any]) -> Deltas:
        """Publish one event of a stream."""
        with self._lock:
            if isinstance(relation := self._database.relation(stream), Table):
                raise TocsinError(f"{relation.name} is a table", hint="use insert, update, upsert or delete")
            deltas = self._publish_one(relation, event)
            return self._apply_row(stream, event, "insert") if deltas is None else self._emit(deltas)

    def publish_json(self, stream: str, event: JsonText) -> Deltas:
        """Publish one event of a stream, given as the text of a JSON object."""
        values = parse_plain(event)
        with self._lock:
            if isinstance(relation := self._database.relation(stream), Table):
                raise TocsinError(f"{relation.name} is a table", hint="use apply, with _op in each JSON line")
            deltas = None if values is None else self._publish_one(relation, values)
            if deltas is not None:
                return self._emit(deltas)
            batch, bad = read_object(relation, event)
            return self.apply_all({relation.name: batch.or_raise(bad)})

    @_locked
    def apply(
        self, relation: str, batch: Any, *, net: bool = False, dead_letters: list[BadRow] | None = None
    ) -> Deltas:
        """Apply a batch: Arrow, a data frame (pandas, polars, DuckDB), JSON lines as bytes, or dicts.

        `_op` and `_seq` are optional columns (`model/inputs.py` lists the forms).
        Each row is one change with its own seq; the batch is atomic: a bad row raises ChangeError and
        nothing is applied. With `dead_letters`, bad rows are appended to it and the rest is applied.
        With `net`, deltas are consolidated over the whole batch.
        """
        bad: BadRows | None = None if dead_letters is None else {}
        deltas = self.apply_all({relation: batch}, net=net, dead_letters=bad)
        for rows in (bad or {}).values():
            assert dead_letters is not None
            dead_letters.extend(sorted(rows))
        return deltas

    @_locked
    def apply_all(
        self, batches: Mapping[str, Any], *, net: bool = False, dead_letters: BadRows | None = None
    ) -> Deltas:
        """Apply batches of several streams and tables as one atomic step, in order of their `_seq`.

        Without `_seq` one batch comes after the other. `dead_letters` collects bad rows by relation.
        """
        self._listeners.check_chain()
        now = self._advance()
        with self._roster.lookups.filled(batches, now, self._apply_step) as filled:
            step = self._database.stage(filled, dead_letters)
            deltas = self._apply_staged(step, self._database.stage_again, now)
        if net and len(deltas):
            deltas = deltas.at(self.last_seq).consolidate()
        return self._emit(deltas)

    @_locked
    def tick(self) -> Deltas:
        """What is due by the clock, without any change: events leave windows, subscriptions start and end."""
        self._database.expire(self._advance())
        return self._emit(self._roster.act())

    @property
    def last_seq(self) -> int:
        """The sequence number of the last change. Set it when an engine is rebuilt from elsewhere."""
        return self._database.last_seq

    @last_seq.setter
    def last_seq(self, seq: int) -> None:
        self._database.last_seq = seq

    def on_delta(self, callback: Callable[[Deltas], None]) -> Callable[[], None]:
        """Call back with the deltas of every change that has some; returns a function that stops it.

        All listeners receive all deltas in the order of the changes, in the thread that made the change;
        other threads wait. A listener may use the engine: what it changes is applied at once, and listeners
        are called with those deltas after all of them have been called with these. If a listener fails, the
        others are still called, and then a ListenerError is raised: the change itself is applied. Coroutine
        functions are rejected: see `tocsin.aio`.
        """
        return self._listeners.add(callback)

    @_locked
    def on_step(
        self, watcher: Callable[[Step], None], users: Callable[[], Mapping[str, int]] = dict
    ) -> Callable[[], None]:
        """Call back with every step before it is committed: old and new rows, and events, for other rooms.

        Returns a function that stops it. A watcher that raises makes the step fail. `users` says how many
        subscriptions of the watcher's use each table: these cannot be dropped.
        """
        entry = watcher, users
        self._watchers = [*self._watchers, entry]

        def stop() -> None:
            with self._lock:
                self._watchers = [other for other in self._watchers if other is not entry]

        return stop

    @property
    def lock(self) -> AbstractContextManager[bool]:
        """The lock that every call takes; who has it reads several things as of one seq."""
        return self._lock

    def step(self) -> Step:
        """The tables as they are, for who has the lock."""
        return Step(self._database.tables)

    # -- answers -----------------------------------------------------------------------------------

    @_locked
    def content(self, subscription: Subscription | int, *, stale: bool = False) -> list[dict[str, Any]]:
        """The whole answer now: a bag of rows, top-k in order. A filter over a stream has none.

        A deferred subscription is refreshed first, unless `stale` asks for its answer as last delivered.
        """
        self._advance()
        entry = self._registry.get(subscription)
        if stale:
            return self._roster.delivered(entry).to_dicts()
        self._emit_some(self._roster.refresh([entry]))
        return self._roster.content(entry).to_dicts()

    @_locked
    def refresh(self, subscription: Subscription | int) -> Deltas:
        """Bring a deferred subscription up to date: its net deltas since the last refresh."""
        entry = self._registry.get(subscription)
        if entry.shape is not Shape.DEFERRED:
            hint = "its deltas come with each change; to defer them add WITH (refresh = 'on demand')"
            raise SubscriptionError(f"subscription {entry.id} is always up to date", hint=hint)
        self._listeners.check_chain()
        self._advance()
        return self._emit(self._roster.refresh([entry]))

    @_locked
    def contents(
        self, subscriptions: Iterable[Subscription | int] | None = None, *, stale: bool = False
    ) -> Deltas:
        """The answers of several subscriptions (all, if None) as +1 deltas at the last seq.

        Deferred ones are refreshed first, unless `stale` asks for their answers as last delivered.
        """
        self._advance()
        entries = (
            list(self._registry) if subscriptions is None else [self._registry.get(s) for s in subscriptions]
        )
        if stale:
            return self._roster.all_delivered(entries)
        self._emit_some(self._roster.refresh(entries))
        return self._roster.contents(entries)

    @_locked
    def rows(self, table: str, *, limit: int | None = None) -> Any:
        """The rows of a table as a pyarrow Table; the first ones if there is a limit."""
        return self._database.rows(table, limit)

    @_locked
    def explain(
        self, subscription: Subscription | int | str, row: Mapping[str, Any], *, table: str | None = None
    ) -> Explanation:
        """Why a row (of the table, or one that might come) is or is not in the answer.

        Columns not given are those of the row with this key, if there is one. `table` names the row's
        table or alias; without it every place that fits is tried. A text is a query that is not
        registered.
        """
        now = stored(Type.TIMESTAMP, self._advance())
        if isinstance(subscription, str):
            draft = self.plan(subscription)
            return explain(0, draft, self._roster.room(draft), self._database, row, table, now)
        entry = self._registry.get(subscription)
        found = explain(entry.id, entry.plan, self._roster.room(entry), self._database, row, table, now)
        active = entry.state is State.ACTIVE
        return found if active else found.but_not(f"the subscription is {entry.state!s}")

    @_locked
    def limits(self, subscription: Subscription | int) -> Any:
        """What the limits of a subscription cost it, or promised: a `StreamJoinReport` or `RefreshReport`."""
        return self._roster.report(self._registry.get(subscription))

    @_locked
    def stats(self) -> dict[str, Any]:
        """Counters, and those of each room by its name: `stats()["match"]`."""
        return {
            "subscriptions": len(self._registry),
            "by_shape": self._registry.by_shape(),
            "rows": {n: len(s) for n, s in self._database.tables.items() if n in self._database.catalog},
            "windows": self._database.windows.stats(),
            "retained": {n: {"events": r.count, "bytes": r.nbytes} for n, r in self._database.retaining()},
            "last_seq": self.last_seq,
            "warnings": self._warnings.by_stream(),
            **self._roster.stats(),
        }

    # -- on disk -----------------------------------------------------------------------------------

    @_locked
    def save(self, path: str | Path) -> None:
        """Write tables and subscriptions to a folder, atomically."""
        parts = self.parts()
        write_folder(path, *saved_engine(self._database, self._registry, parts, self._roster.lookups))

    @_locked
    def parts(self) -> dict[str, Any]:
        """What the engine keeps beside tables and subscriptions, by name: see `subscriptions/parts.py`."""
        return parts_of(self._database, self._roster)

    @contextmanager
    def restoring(self, parts: Mapping[str, Any]) -> Iterator[None]:
        """Around subscribing, with the same ids, to what there was: it goes on with these parts."""
        with self._lock, restoring(self._database, self._roster, parts):
            yield

    @classmethod
    def load(
        cls, path: str | Path, *, clock: Callable[[], datetime] | None = None, rooms: Rooms | None = None
    ) -> Engine:
        """A saved engine. Deltas of starts and ends since then follow with the next change or tick."""
        (manifest, tables), engine = read_folder(path), cls(clock=clock, rooms=rooms)
        for definition in manifest["definitions"]:
            engine.execute(definition)
        parts = {name: tables.pop(name) for name in manifest.get("parts", ())}
        for name, rows in tables.items():
            engine.apply(name, rows)
        engine.last_seq = manifest["last_seq"]
        bulk, others = split_records(manifest["subscriptions"])
        texts, ids, whose = ([s[key] for s in bulk] for key in ("sql", "id", "subscriber"))
        with engine.restoring(parts):
            engine.subscribe_texts(texts, ids=ids, subscribers=whose)
            for saved in others:
                engine._roster.enter_saved(saved, engine._parser.parse(saved["sql"]))
        engine._registry.order(np.array([s["id"] for s in manifest["subscriptions"]], np.int64))
        engine._registry.last_id = manifest["last_id"]
        return engine

    # -- inside ------------------------------------------------------------------------------------

    def _advance(self) -> datetime:
        """Advance to the clock's time: what is due becomes pending. Returns the time."""
        now = self._roster.now()
        if self._database.windows:
            stage = partial(self._database.stage_expiry, now)
            if len(deltas := self._apply_staged(stage(), stage, now)):
                self._roster.pending.append((None, deltas))
        self._roster.start_and_end(now)
        return now

    def _apply_staged(self, step: Step | None, again: Callable[[], Step | None], now: datetime) -> Deltas:
        """Apply a step; staged again, if a subscription ends because of an event that leaves its window."""
        while step is not None:
            try:
                return self._apply_step(step, now)
            except SumOverflow as error:
                if not self._end_overflowing or not self._roster.end_overflowing(error, step):
                    raise
                step = again()
        return NO_DELTAS

    def _room_plan(self, slot: int) -> Plan:
        """The plan of a slot as its room has it."""
        return self._roster.windows.plan(self._registry.plan(slot))

    def _publish_one(self, stream: Stream, event: Mapping[str, Any]) -> Deltas | None:
        """The deltas of one plain event, without the detour of a batch; None if it must be one."""
        database, seq = self._database, self._database.last_seq + 1
        if type(event) is not dict or "_seq" in event or "_op" in event or seq >= 2**63 or self._watchers:
            return None
        self._listeners.check_chain()
        needs_clock = self._registry.due_times or database.retains or database.windows
        now = self._advance() if needs_clock else None
        deltas = self._roster.deltas_of_one(stream.name, seq, event, database.types(stream))
        if deltas is not None:
            database.commit_one(stream, seq, event, now if self._retain else None)
        return deltas

    def _apply_step(self, step: Step, now: datetime) -> Deltas:
        """Compute the deltas of a staged step and make it the state; if that fails, discard it."""
        try:
            step.now = stored(Type.TIMESTAMP, now)
            deltas = self._roster.deltas(step)
            for watcher, _ in self._watchers:
                watcher(step)
        except BaseException:
            self._database.rollback()
            self._roster.rollback()
            raise
        self._database.commit(now if self._retain else None)
        self._roster.commit()
        more = self._roster.act()
        return Deltas.concat([deltas, more]).ordered() if len(more) else deltas

    def _apply_row(self, relation: str, row: Mapping[str, Any], op: str) -> Deltas:
        """One row; as a batch if it is not plain."""
        schema = self._database.relation(relation)
        self._roster.lookups.check_change(schema.name)
        if type(row) is dict and isinstance(schema, Table) and "_seq" not in row and "_op" not in row:
            self._listeners.check_chain()
            now = self._advance()
            step = self._database.stage_rows(schema, (op,), (row,))
            if step is not None:
                return self._emit(self._apply_step(step, now))
        if not isinstance(row, Mapping):
            raise TocsinError(f"a row is a dict, not {type(row).__name__}", hint="use apply for batches")
        if "_op" in row:
            raise ChangeError("_op is for batches", hint=f"this is {op}; use apply for rows with an _op each")
        body = {name: value for name, value in row.items() if name != "_seq"}
        seqs = [row["_seq"]] if "_seq" in row else None
        batch, bad = ChangeBatch.from_dicts(schema, [body], op, seqs)
        return self.apply_all({schema.name: batch.or_raise(bad)})

    def _enter(self, load: Load, backfill: bool) -> Index:
        """Register a load, all or none."""
        taken = np.flatnonzero(self._registry.find(load.ids) >= 0)
        if len(taken):
            raise bad_rows(
                [BadRow(i, f"there is a subscription {load.ids[i]} already") for i in taken.tolist()]
            )
        with self._roster.all_or_none() as entered:
            for ids, source, plans in load.batches:
                self._roster.enter_bulk(ids, source, plans, backfill)
                entered.append(ids)
            for one in load.plain:
                if self._roster.enter_plain(*one) is None:  # its index takes none
                    query = self._parser.parse(one.sql)
                    load.single.append(Request(one.id, one.subscriber, one.sql, query))
                else:
                    entered.append(np.array([one.id], np.int64))
            self._roster.enter(load.single, backfill=backfill)
        if len(load.batches) + len(load.plain) + len(load.single) > 1:  # a single one is in order
            self._registry.order(load.ids)
        return load.ids

    def _emit_some(self, deltas: Deltas) -> None:
        """Call listeners with deltas of a refresh, and with pending ones before them, if there are some."""
        if len(deltas):
            self._emit(deltas)

    def _emit(self, deltas: Deltas) -> Deltas:
        """Call listeners with pending deltas and these; return both."""
        emitted = deltas
        if self._roster.pending:
            emitted = Deltas.concat([*self._roster.emit_pending(), deltas])
        if emitted is not NO_DELTAS:
            self._listeners.deliver(emitted)
        return emitted

    def _check(self) -> None:
        self._database._check()
        self._roster._check()
