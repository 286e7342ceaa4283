"""Commands applied to an engine: one method for each, and the deltas that the engine itself does not emit.

An engine emits nothing when somebody subscribes: the caller reads the content. A follower of a subscriber, or
of all, is not the caller; for it contents that begin and end are deltas like others:

    subscribe, resume    + content
    remove, pause        - content
    replace              - content, + content, without rows that are in both

So the law holds across every command: content before, plus deltas, is content after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine
from tocsin.errors import BadRow, ChangeError, SubscriptionError, TocsinError
from tocsin.model.change import OPS
from tocsin.model.columns import Index
from tocsin.model.delta import Deltas
from tocsin.model.inputs import read_batch
from tocsin.model.schema import Stream
from tocsin.server.commands import (
    ApplyChanges,
    BulkSubscribe,
    Command,
    Define,
    Pause,
    Refresh,
    Remove,
    Replace,
    ResumeSubscriptions,
    Subscribe,
    Tick,
    arrow_bytes,
    arrow_table,
)
from tocsin.server.segments import FEW_LOOSE, SubscriptionSegments, load_segment

__all__ = ["Applier"]

_CAUSES: dict[type[Any], str] = {
    ApplyChanges: "change",
    Subscribe: "subscribed",
    BulkSubscribe: "subscribed",
    Replace: "replaced",
    Remove: "removed",
    Pause: "paused",
    ResumeSubscriptions: "resumed",
    Refresh: "refreshed",
    Define: "defined",
    Tick: "time",
}
_FEW = 16
_MOST_KNOWN = 100_000


class Applier:
    """Applies commands to an engine; `paused` are the subscriptions that rest, by id."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.paused: dict[int, Subscribe] = {}
        self.segments = SubscriptionSegments()
        self._own: list[Deltas] = []
        self._read: list[int] = []
        self._names: dict[str | None, list[int]] | None = None  # ids by subscriber, once somebody follows one
        self._events: dict[int, bool] = {}  # whether some subscriptions have no content
        self._methods: dict[type[Any], Callable[[Any], Any]] = {
            Define: self._define,
            Subscribe: self._subscribe,
            Replace: self._replace,
            BulkSubscribe: self._bulk,
            Remove: self._remove,
            Pause: self._pause,
            ResumeSubscriptions: self._resume,
            ApplyChanges: self._change,
            Refresh: self._refresh,
            Tick: self._tick,
        }

    def apply(self, command: Command) -> Any:
        """Apply it, all or nothing; returns the answer. Ids that it leaves open are set in it."""
        self._own.clear()
        if not isinstance(command, ApplyChanges | Tick | Refresh):
            self._events.clear()
            self._names = None
        return self._methods[type(command)](command)

    def own(self) -> list[Deltas]:
        """The deltas of the last command that the engine did not emit itself; they are handed over once."""
        own, self._own = self._own, []
        return own

    def emitted(self, emitted: Iterable[Deltas]) -> tuple[Deltas, Any]:
        """The deltas that the engine emitted and our own; which are of subscriptions without content."""
        found, own = Deltas.concat(list(emitted)), self.own()
        event = self._are_events(found.subscription) if len(found) else None
        if own:
            found = Deltas.concat([found, *own])
            event = (
                None if event is None else np.concatenate([event, np.zeros(len(found) - len(event), bool)])
            )
        return found, event

    def _are_events(self, ids: Index) -> Any:
        if len(ids) <= _FEW:
            return np.array([self._is_event(id) for id in ids.tolist()], np.bool_)
        unique, inverse = np.unique(ids, return_inverse=True)
        return np.isin(unique, self.engine.without_content(unique))[inverse]

    def _is_event(self, id: int) -> bool:
        found = self._events.get(id)
        if found is None:
            if len(self._events) > _MOST_KNOWN:
                self._events.clear()
            found = self._events[id] = bool(len(self.engine.without_content(np.array([id], np.int64))))
        return found

    def cause(self, command: Command) -> str:
        """Why the deltas of a command come, in one word."""
        return _CAUSES[type(command)]

    def content(self, id: int) -> list[dict[str, Any]]:
        """The answer of one subscription, for a reader; a deferred one is refreshed."""
        self._read.append(id)
        return [] if id in self.paused else self.engine.content(id)

    def contents(self, ids: Iterable[int]) -> Deltas:
        """The answers of several, for a reader."""
        wanted = self.engine.with_content([id for id in ids if id not in self.paused]).tolist()
        self._read += wanted
        return self.engine.contents(wanted)

    def of_subscriber(self, name: str | None) -> list[int]:
        """The ids of a subscriber; without a name, all. Read once until the next command."""
        if self._names is None:
            self._names = {name: list(ids) for name, ids in self.engine.subscribers().items()}
        if name is None:
            return [id for ids in self._names.values() for id in ids]
        return self._names.get(name, [])

    def __contains__(self, id: int) -> bool:
        return id in self.paused or id in self.engine

    def refreshed(self) -> Refresh:
        """The command that has the same effect as the last read."""
        return Refresh(self._read)

    def begin_read(self) -> None:
        """Before a read."""
        self._read = []

    # -- commands ----------------------------------------------------------------------------------

    def _define(self, command: Define) -> None:
        self.engine.execute(command.text)

    def _tick(self, command: Tick) -> None:
        self.engine.tick()

    def _refresh(self, command: Refresh) -> None:
        self.engine.contents(command.ids)

    def _subscribe(self, command: Subscribe) -> dict[str, Any]:
        if command.id in self.paused:
            raise SubscriptionError(f"there is a subscription {command.id} already", hint="it is paused")
        made = self.engine.subscribe(
            command.sql,
            id=command.id or self.engine.last_id + 1,
            subscriber=command.subscriber,
            valid_from=_time(command.valid_from),
            valid_to=_time(command.valid_to),
            backfill=command.backfill,
        )
        command.id = made.id
        self.segments.loose[made.id] = None
        self._begins([made.id])
        return {"id": made.id, "shape": str(made.shape), "warnings": list(made.warnings)}

    def _bulk(self, command: BulkSubscribe) -> dict[str, Any]:
        table = arrow_table(command.table)
        if "id" not in table.column_names:
            first = self.engine.last_id + 1
            ids = pa.array(np.arange(first, first + table.num_rows))
            table = table.append_column("id", ids)
            command.table = arrow_bytes(table)
        taken = self.paused.keys() & set(table["id"].to_pylist()) if self.paused else ()
        if taken:
            raise SubscriptionError(f"there is a subscription {min(taken)} already", hint="it is paused")
        if command.form == "texts":
            _check_texts(table)
        made = load_segment(self.engine, command.form, command.of, table, command.backfill)
        if len(made) < FEW_LOOSE:
            self.segments.loose.update(dict.fromkeys(made.tolist()))
        else:
            self.segments.add_bulk(command.form, command.of, table)
        self._begins(made)
        return {"count": len(made), "first": int(made[0]) if len(made) else None}

    def _remove(self, command: Remove) -> None:
        self._ends(command.ids)
        for id in command.ids:
            self.paused.pop(id, None)

    def _pause(self, command: Pause) -> None:
        known = {id: self.described(id) for id in command.ids if id not in self.paused}
        self._ends(list(known))
        self.paused.update(known)

    def _resume(self, command: ResumeSubscriptions) -> None:
        for id in command.ids:
            if id not in self.paused:
                self.engine.query(id)  # it exists
        for id in command.ids:
            if id in self.paused:
                self._enter(self.paused[id])
                del self.paused[id]
                self._begins([id])

    def _replace(self, command: Replace) -> dict[str, Any]:
        self.engine.plan(command.sql)
        if command.id in self.paused:
            self.paused[command.id] = _as_subscribe(command)
            return {"id": command.id, "state": "paused"}
        before = self.described(command.id)
        self._ends([command.id])
        try:
            made = self._enter(command)
        except TocsinError:
            self._enter(before)
            self._own.clear()
            raise
        self._begins([command.id])
        self._own = [Deltas.concat(self._own).at(self.engine.last_seq).consolidate()]
        return {"id": command.id, "shape": str(made.shape), "warnings": list(made.warnings)}

    def _change(self, command: ApplyChanges) -> dict[str, Any]:
        engine, relation = self.engine, self.engine.schema(command.relation)
        is_stream = isinstance(relation, Stream)
        if command.op is not None and (is_stream or b'"_op"' in command.body):
            what = f"{relation.name} is a stream" if is_stream else "rows have an _op each"
            raise ChangeError(f"{what}, so op is not for it", hint="leave out op")
        if command.form == "object" and is_stream and b'"_' not in command.body:
            engine.publish_json(relation.name, command.body)
            return {"applied": 1}
        data = arrow_table(command.body) if command.form == "arrow" else command.body
        batch, bad = read_batch(relation, data)
        if batch.seq is not None:
            raise TocsinError("the server numbers changes: rows have no _seq", hint="leave out _seq")
        if command.op is not None:
            batch = replace(batch, op=np.full(len(batch), OPS[command.op], np.uint8))
        batch = batch if command.skip else batch.or_raise(bad)
        before: list[BadRow] = list(bad)
        engine.apply(relation.name, batch, dead_letters=before if command.skip else None)
        rejected = {"rejected": [{"row": r, "reason": why} for r, why in sorted(before)]} if before else {}
        return {"applied": len(batch) - (len(before) - len(bad)), **rejected}

    # -- contents that begin and end ---------------------------------------------------------------

    def _enter(self, given: Subscribe) -> Any:
        made = self.engine.subscribe(
            given.sql,
            id=given.id,
            subscriber=given.subscriber,
            valid_from=_time(given.valid_from),
            valid_to=_time(given.valid_to),
        )
        self.segments.loose[given.id] = None
        return made

    def described(self, id: int) -> Subscribe:
        """A subscription as a command that would make it again."""
        one = self.engine.subscription(id)
        return Subscribe(one.id, one.sql, one.subscriber, _text(one.valid_from), _text(one.valid_to))

    def _begins(self, ids: Any) -> None:
        if len(deltas := self._contents(ids)):
            self._own.append(deltas)

    def _ends(self, ids: Iterable[int]) -> None:
        ids = [id for id in ids if id not in self.paused]
        if not ids:
            return
        gone = self._contents(ids, stale=True)
        self.engine.unsubscribe_many(ids)
        self.segments.remove(ids)
        if len(gone):
            self._own.append(gone.negated())

    def _contents(self, ids: Any, stale: bool = False) -> Deltas:
        """What followers have as the content of these; a filter over a stream has none."""
        with_content = self.engine.with_content(ids)
        return self.engine.contents(with_content, stale=stale) if len(with_content) else Deltas.none()


def _time(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise SubscriptionError(f"{text!r} is not a time", hint="write 2024-05-01T10:00:00Z") from None


def _check_texts(table: Any) -> None:
    """Raise unless there is a text in each row of the column sql."""
    if "sql" not in table.column_names:
        raise SubscriptionError("there is no column sql", hint="one SQL text per row")
    texts = table["sql"].to_pylist()
    bad = tuple(BadRow(n, "sql is a text") for n, text in enumerate(texts) if not isinstance(text, str))
    if bad:
        raise SubscriptionError("sql is a text in each row", rows=bad)


def _text(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat()


def _as_subscribe(command: Subscribe) -> Subscribe:
    return Subscribe(command.id, command.sql, command.subscriber, command.valid_from, command.valid_to)
