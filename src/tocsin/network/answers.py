"""The answers of a client's queries: one engine over all rows that its subscriptions hold.

Messages bring rows that ranges select and that may matter; the rest of a query, further conditions,
conditions between tables, order, the SELECT list, is evaluated here. Every row that is held is one of the
server's at the watermark, and a query's own rows are among them: so its answer over all of them is exact, and
rows that several subscriptions hold are there once. Minima and distinct values come as such (`ValueAnswer`).

>>> answers = Answers()
>>> tables = {"r": "CREATE TABLE r (k BIGINT, a BIGINT, PRIMARY KEY (k))"}
>>> answers.define(tables)
>>> answers.retain("r", 0, b'{"k":1,"a":3}', 10)
>>> answers.sql[1] = "SELECT a FROM r WHERE a > 2"
>>> answers.began(1, Snapshot(1, 10, tables, []))
>>> answers.content(1)
[{'a': 3}]
>>> answers.release("r", 0)
>>> [(name, [(d.sign, d.row) for d in deltas]) for name, deltas in answers.flush(11)]
[(1, [(-1, {'a': 3})])]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import orjson

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.language.algebra import Aggregate
from tocsin.model.columns import Rows, Vector
from tocsin.model.delta import NO_DELTAS, Deltas
from tocsin.model.schema import Type, quote, read
from tocsin.network.forms import PartKind
from tocsin.network.holdings import Member, Part, Snapshot
from tocsin.network.rows import note_of

__all__ = ["Answers"]

_Row = tuple[str, int]  # of a table, by number


class _HeldText:
    """A row that somebody holds: by how many, its text, and the seq that the text is of."""

    __slots__ = ("count", "seq", "text")

    def __init__(self, text: bytes, seq: int) -> None:
        self.count, self.text, self.seq = 1, text, seq


class Answers:
    """Queries by name over rows that come and go; a `Sink` of `holdings.py`."""

    def __init__(self) -> None:
        self._engine = Engine(retain=False)
        self._definitions: dict[str, str] = {}
        self._keys: dict[str, tuple[str, ...]] = {}
        self._held: dict[_Row, _HeldText] = {}
        self._applied: dict[_Row, tuple[bytes, bytes]] = {}  # rows in the engine: key and text
        self._changed: set[_Row] = set()
        self._events: dict[tuple[str, int], bytes] = {}
        self._number: dict[int, int] = {}  # by name, the engine's
        self._name: dict[int, int] = {}
        self._values: dict[int, _ValueAnswer] = {}  # by name
        self._touched: set[int] = set()  # names of answers of values that may have changed
        self._restarted: list[tuple[int, Deltas]] = []  # how answers that began again differ
        self._before: dict[int, Deltas] = {}  # answers that will begin again, as they were
        self._streams: dict[int, str] = {}  # by name, of those that follow one
        self._starting: list[int] = []  # names of queries that the engine does not have yet
        self.sql: dict[int, str] = {}  # by name, of all that may begin
        self.failures: dict[int, str] = {}  # by name: why it cannot be evaluated
        self.notes: dict[_Row, str] = {}  # rows that could not be sent: why
        self.lost: dict[int, str] = {}  # by name: why it has missed events

    # -- definitions -------------------------------------------------------------------------------

    def define(self, definitions: Mapping[str, str]) -> None:
        """Have these tables and streams; nobody follows one of the same name and another definition."""
        for name, text in definitions.items():
            if self._definitions.get(name) == text:
                continue
            if name in self._definitions:
                self.start()
                self._drop(name)
            self._engine.execute(text)
            self._definitions[name] = text
            self._keys[name] = self._engine.schema(name).key

    def _drop(self, name: str) -> None:
        self._apply()
        kind = "TABLE" if self._definitions[name].lstrip().upper().startswith("CREATE TABLE") else "STREAM"
        self._engine.execute(f"DROP {kind} {quote(name)}")
        self._applied = {at: row for at, row in self._applied.items() if at[0] != name}
        del self._definitions[name]

    # -- a sink ------------------------------------------------------------------------------------

    def retain(self, table: str, row: int, text: bytes, seq: int) -> None:
        held = self._held.get((table, row))
        if held is None:
            self._held[table, row] = _HeldText(text, seq)
            self._changed.add((table, row))
            return
        held.count += 1
        self.change(table, row, text, seq)

    def change(self, table: str, row: int, text: bytes, seq: int) -> None:
        held = self._held[table, row]
        if seq >= held.seq:
            if held.text != text:
                self._changed.add((table, row))
            held.text, held.seq = text, seq

    def release(self, table: str, row: int) -> None:
        held = self._held[table, row]
        held.count -= 1
        if not held.count:
            del self._held[table, row]
            self._changed.add((table, row))

    def begin(self, name: int, snapshot: Snapshot) -> None:
        self.define(snapshot.definitions)
        kinds = {part.kind for part in snapshot.parts}
        if kinds and kinds <= {PartKind.VALUE, PartKind.SET}:
            self._start_values(name, self.sql[name], snapshot.parts)
        if PartKind.EVENTS in kinds:
            self._streams[name] = snapshot.parts[0].tables[0]
        if PartKind.EVENTS in kinds and (name in self._number or name in self._before):
            self.lost[name] = "the server's log does not reach back to the last event"

    def began(self, name: int, snapshot: Snapshot) -> None:
        if name not in self._values and name not in self._number:
            self._starting.append(name)

    def end(self, name: int, *, begins_again: bool) -> None:
        self._stop(name, begins_again=begins_again)

    def event(self, stream: str, seq: int, text: bytes) -> None:
        self._events[stream, seq] = text

    def value(self, member: Member, text: bytes, *, is_there: bool) -> None:
        name, part = member
        self._values[name].set(part, text, is_there=is_there)
        self._touched.add(name)

    # -- queries -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Evaluate the queries that began over the rows that are held, those of now included."""
        if not self._starting:
            return
        names, self._starting = self._starting, []
        self._restarted += self._split(self._apply())
        try:
            numbers = self._engine.subscribe_texts([self.sql[name] for name in names]).tolist()
        except TocsinError:
            numbers = [self._start_one(name) for name in names]
        for name, number in zip(names, numbers, strict=True):
            if number is None:
                continue
            self._number[name], self._name[number] = number, name
            if (before := self._before.pop(name, None)) is not None:
                both = Deltas.concat([before.negated(), self._as(name, self._engine.contents([number]))])
                self._restarted.append((name, both.at(0).consolidate()))

    def _start_one(self, name: int) -> int | None:
        try:
            return self._engine.subscribe(self.sql[name]).id
        except TocsinError as error:
            self.failures[name] = str(error)
            return None

    def _start_values(self, name: int, sql: str, parts: Iterable[Part]) -> None:
        """Have an answer of values; `value` follows for each of its parts."""
        known = self._values.get(name)
        made = self._values[name] = _ValueAnswer(self._engine, sql, [part.kind for part in parts])
        made.previous = known
        self._touched.add(name)

    def _stop(self, name: int, *, begins_again: bool = False) -> None:
        """End a query; with `begins_again`, `flush` will say how its answer differs."""
        self.start()
        self.failures.pop(name, None)
        if (number := self._number.pop(name, None)) is not None:
            if begins_again:
                self._restarted += self._split(self._apply())
                self._before[name] = self._as(name, self._engine.contents([number]))
            self._engine.unsubscribe(number)
            del self._name[number]
        if not begins_again:
            for known in (self._before, self._values, self._streams, self.sql, self.lost):
                known.pop(name, None)

    def _as(self, name: int, deltas: Deltas) -> Deltas:
        return replace(deltas, subscription=np.full(len(deltas), name, np.int64))

    def content(self, name: int) -> list[dict[str, Any]]:
        """The rows of an answer."""
        self.start()
        if name in self._values:
            return self._values[name].content()
        if name in self._before:
            return self._before[name].rows()  # as it was, until it begins again
        return self._engine.content(self._number[name])

    def missing(self, rows: Iterable[tuple[str, int]]) -> str:
        """Why one of some rows could not be sent; empty if all are there."""
        if not self.notes:
            return ""
        return next((self.notes[row] for row in rows if row in self.notes), "")

    def flush(self, seq: int) -> list[tuple[int, Deltas]]:
        """Apply the changes; how answers change, by name."""
        self.start()
        found = [*self._restarted, *self._split(self._apply())]
        self._restarted = []
        touched, self._touched = sorted(self._touched), set()
        memo: dict[Any, Deltas] = {}
        found += [
            (name, self._as(name, self._values[name].flush(memo))) for name in touched if name in self._values
        ]
        return [(name, deltas.at(seq)) for name, deltas in found if len(deltas)]

    # -- the engine --------------------------------------------------------------------------------

    def _apply(self) -> Deltas:
        """Apply the changes of rows and events to the engine."""
        if not self._changed and not self._events:
            return Deltas.none()
        lines: dict[str, list[bytes]] = {}
        comes = self._coming()
        for at in self._changed:
            if at in self._applied and self._applied[at][0] != comes.get(at, _NOTHING)[0]:
                # before others come: the key may be that of another row now
                lines.setdefault(at[0], []).append(self._applied.pop(at)[0] + b',"_op":"delete"}')
        for at, (key, text) in comes.items():
            if self._applied.get(at, _NOTHING)[1] != text:
                self._applied[at] = key, text
                lines.setdefault(at[0], []).append(text[:-1] + b',"_op":"upsert"}')
        events: dict[str, list[bytes]] = {}
        for (stream, _), text in sorted(self._events.items()):
            events.setdefault(stream, []).append(text)
        self._changed, self._events = set(), {}
        return Deltas.concat(
            self._engine.apply_all({name: b"\n".join(all) for name, all in some.items()}, net=some is lines)
            for some in (lines, events)
            if some
        )

    def _coming(self) -> dict[_Row, tuple[bytes, bytes]]:
        """Of the changed rows those that are held, with their keys; notes of those that could not be sent."""
        out: dict[_Row, tuple[bytes, bytes]] = {}
        for at in self._changed:
            self.notes.pop(at, None)
            if (held := self._held.get(at)) is None:
                continue
            if note := note_of(held.text):
                self.notes[at] = note
            else:
                row = orjson.loads(held.text)
                key = orjson.dumps({name: row[name] for name in self._keys[at[0]]})[:-1]
                out[at] = key, held.text
        for (stream, seq), text in list(self._events.items()):
            if note := note_of(text):
                del self._events[stream, seq]
                mine = [name for name in self._number if self._streams.get(name) == stream]
                self.lost |= dict.fromkeys(mine, note)
        return out

    def _split(self, deltas: Deltas) -> Iterator[tuple[int, Deltas]]:
        """Deltas by name."""
        if not len(deltas):
            return
        order = np.argsort(deltas.subscription, kind="stable")
        numbers, first = np.unique(deltas.subscription[order], return_index=True)
        for number, part in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
            if (name := self._name.get(number)) is not None:
                yield name, deltas.take(part)

    def _check(self) -> None:
        self._engine._check()
        assert all(held.count > 0 for held in self._held.values())
        if not self._changed:
            assert set(self._applied) == {at for at in self._held if at not in self.notes}


_NOTHING = b"", b""


class _ValueAnswer:
    """An answer that is one row of extremes, or a set of rows."""

    def __init__(self, engine: Engine, sql: str, kinds: list[PartKind]) -> None:
        self._types = {
            item.name: (item.expression.column if isinstance(item.expression, Aggregate) else item.expression)
            for item in engine.plan(sql).query.items
        }
        self._kinds = kinds
        self._extremes: dict[int, bytes] = {}  # by part
        self._set: set[bytes] = set()
        self.shown: list[bytes] | None = None  # as of the last flush
        self.previous: _ValueAnswer | None = None  # the same one, before it began again

    def set(self, part: int, text: bytes, *, is_there: bool) -> None:
        if self._kinds[part] is PartKind.VALUE:
            self._extremes[part] = text
        elif is_there:
            self._set.add(text)
        else:
            self._set.discard(text)

    def _now(self) -> list[bytes]:
        if self._kinds[0] is PartKind.SET:
            return sorted(self._set)
        inner = [self._extremes[part][1:-1] for part in range(len(self._kinds))]
        return [b"{" + b",".join(inner) + b"}"]

    def content(self) -> list[dict[str, Any]]:
        return self._rows(self._now()).to_dicts()

    def _rows(self, texts: list[bytes]) -> Rows:
        values = [orjson.loads(text) for text in texts]
        columns = []
        for name, column in self._types.items():
            type = column.type if column is not None and column.type is not None else Type.STRING
            cells = [read(type, row[name], json=True) for row in values]
            columns.append((name, Vector.of(type, cells)))
        return Rows(columns, len(texts))

    def flush(self, memo: dict[Any, Deltas]) -> Deltas:
        """How it differs from what was shown, nothing the first time; `memo` has differences of others."""
        now, shown = self._now(), self.shown
        source, self.previous = self.previous or self, None
        if shown is None:
            shown = source.shown
        self.shown = now
        if shown is None or shown == now:
            return NO_DELTAS
        gone, come = sorted({*shown} - {*now}), sorted({*now} - {*shown})
        key = tuple(gone), tuple(come), tuple(source._types.items()), tuple(self._types.items())
        if key not in memo:
            parts = ((-1, source._rows(gone), len(gone)), (1, self._rows(come), len(come)))
            memo[key] = Deltas.concat(
                Deltas.of(np.zeros(count, np.int64), 0, sign, rows, np.arange(count))
                for sign, rows, count in parts
            )
        return memo[key]
