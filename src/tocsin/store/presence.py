"""Windows of keys: which keys have events in a window, or had some and have none now.

`EXISTS` and `NOT EXISTS` over a windowed stream read which combinations of values there are, not the events.
So their window (`WindowSpec.columns`) has one row for each combination, a *key*, however many events it has:

    event of a key alive     its time; no change of the table, so no room has work
    event of another key     a row
    the clock                keys whose last event left the window lose their row

With `absent`, rows are of the other keys: those once seen that have no event in the window now. They come
when the last event leaves, and go with the next event, or `absent` after the last one.

A timer is an entry of a heap, one for each key alive. It has a time at which the key may leave; if there were
events since, it gets a later one then. So events do not touch it, and a key costs O(log n) once per span.

>>> from tocsin.model.schema import Type
>>> beats = Stream("beats", (Field("host", Type.STRING), Field("load", Type.DOUBLE)))
>>> store = KeyWindow(WindowSpec("beats", 5, columns=("host",), absent=20), beats)
>>> def step(now, *hosts):
...     if store.stage_expiry(now):
...         _ = store.place(np.arange(len(store.staged)))
...     store.commit()
...     rows = Rows.of(host=Vector.of(Type.STRING, list(hosts)))
...     seq = store.stage_events(rows, np.arange(len(hosts)), now)
...     _ = store.place(np.arange(len(seq)))
...     store.commit()
...     return store.rows.take(store.alive()).vectors("host")[0].to_list()
>>> step(0, "a", "b"), step(4, "b", "b"), step(6), step(7, "a"), step(20), step(24)
([], [], ['a'], [], ['b', 'a'], ['a'])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tocsin.language.options import FOREVER as ALWAYS
from tocsin.language.windows import WindowSpec
from tocsin.model.columns import Index, Rows, Vector, distinct, longer
from tocsin.model.schema import Field, Stream, Table
from tocsin.predicate.evaluate import Facts
from tocsin.store._kernels import TimeHeap, push_times
from tocsin.store._kernels.presence import (
    ABSENT,
    ALIVE,
    NOWHERE,
    KeyChanges,
    KeyEvents,
    KeyTimes,
    Spans,
    follow_keys,
)
from tocsin.store.directory import GroupDirectory
from tocsin.store.tables import FOREVER, Changed, TableStore
from tocsin.store.windows import NEVER, Past, WindowState, WindowStore

__all__ = ["KeyWindow"]

_FEW = 64
_LONGEST = 2**61  # of spans: longer than the calendar
_NONE = np.empty(0, np.int64)


class _Before(NamedTuple):
    """What a rollback needs."""

    seen: Index  # keys of events
    last: Index  # their times
    changes: KeyChanges


class _Staged(NamedTuple):
    """Rows before and after each change of the table, in order, and the state after."""

    old: Index
    new: Index
    state: WindowState
    before: _Before

    def __len__(self) -> int:
        return len(self.old)


class KeyWindow(WindowStore):
    """The keys of one window that are alive, or absent, by slot."""

    _growth = 1.25

    def __init__(self, spec: WindowSpec, stream: Stream) -> None:
        fields = tuple(field for field in stream.fields if field.name in (spec.columns or ()))
        self._start(spec, Table(spec.table, fields, tuple(field.name for field in fields)))
        self._stream = stream
        kept = -1 if spec.absent in (None, ALWAYS) else min(spec.absent, _LONGEST)
        self._spans = Spans(min(spec.span, _LONGEST), kept, spec.absent is not None)
        self._late = min(spec.late, _LONGEST)
        self._keys = GroupDirectory([field.type for field in fields])
        self._times = KeyTimes(_NONE, np.empty(0, np.int32), np.empty(0, np.uint8))
        self._forgotten = TimeHeap(_NONE, np.empty(0, np.int32), np.zeros(1, np.int64))
        self._key_of: Index = np.empty(0, np.int32)  # by slot
        self.staged: _Staged | None = None
        self._stale = False  # a rollback has left the heaps

    # -- reading -----------------------------------------------------------------------------------

    @property
    def times(self) -> Index:
        """When the last event of each row's key was, by slot."""
        found: Index = self._times.last[self._key_of[: self._used]]
        return found

    @property
    def known(self) -> int:
        """How many keys are known."""
        return int(np.count_nonzero(self._times.state))

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays; texts are not in them."""
        arrays: list[Any] = [self.born, self.died, self._vacant, self._key_of]
        arrays += [*self._heap, *self._forgotten, *self._times]
        arrays += [part for v in self._columns.values() for part in (v.values, v.valid)]
        return sum(array.nbytes for array in arrays) + self._keys.nbytes

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "keys": self.known}

    def last_seen(self, event: Rows) -> int | None:
        """When the key of an event had its last one; None if it is not known."""
        key = self._key(event)
        return None if key < 0 or not self._times.state[key] else int(self._times.last[key])

    def is_alive(self, event: Rows) -> bool:
        """Whether the key of an event has one in the window."""
        key = self._key(event)
        return key >= 0 and bool(self._times.state[key] == ALIVE)

    def find_rows(self, keys: Vector) -> Index:
        number = self._keys.find([keys])
        if not len(self._times.row):
            return np.full(len(number), -1)
        return np.where(number >= 0, np.maximum(self._times.row[number], -1), -1).astype(np.int64)

    def _key(self, event: Rows) -> int:
        columns = [self._given(event, field.name) for field in self.schema.fields]
        return int(self._keys.find(columns)[0])

    # -- steps -------------------------------------------------------------------------------------

    def stage_events(self, rows: Rows, seq: Index, now: int) -> Index:
        assert self.staged is None, "a step is staged already"
        chosen, events, state = self._read(rows, np.full(len(rows), now))
        changes = self._follow(events, state)
        found: Index = seq[chosen[changes.event]]
        return found

    def stage_expiry(self, now: int) -> int:
        assert self.staged is None, "a step is staged already"
        if self.spec.time is not None or not self._is_due(now):
            return 0
        self._follow(self._clock_alone(now), self.state)
        staged = self.staged
        assert staged is not None
        if not len(staged):
            self.commit()
        return len(staged)

    def _is_due(self, now: int) -> bool:
        if self._stale:
            self._rebuild_heaps()
        heaps = (self._heap, self._forgotten)
        return any(heap.used[0] > 0 and heap.time[0] <= now for heap in heaps)

    @staticmethod
    def _clock_alone(now: int) -> KeyEvents:
        return KeyEvents(np.full(1, -1), np.zeros(1, np.int64), np.full(1, now))

    def _read(self, rows: Rows, arrived: Index) -> tuple[Index, KeyEvents, WindowState]:
        """Which events count, as keys with times; the window's state after them."""
        count, state = len(rows), self.state
        counts, moves = np.ones(count, np.bool_), np.zeros(count, np.bool_)
        times = clock = arrived
        if self.spec.time is not None:
            vector = self._given(rows, self.spec.time)
            times = np.where(vector.valid, vector.values, NEVER)
            latest = np.maximum(np.maximum.accumulate(times), state.latest)
            clock = latest - self._late
            counts = vector.valid & (times > clock - self._spans.alive)
            moves = np.diff(latest, prepend=state.latest) > 0
            untimed = count - int(vector.valid.sum())
            state = WindowState(
                int(latest[-1]) if count else state.latest,
                state.too_late + count - untimed - int(counts.sum()),
                state.untimed + untimed,
            )
        if self.spec.where is not None:
            every = Rows([(f.name, self._given_or_blank(rows, f)) for f in self._stream.fields], count)
            counts = counts & Facts(every).matches(self.spec.where)
        some = rows if counts.all() else rows.take(np.flatnonzero(counts))
        chosen = np.flatnonzero(counts | moves)
        keys = np.full(len(chosen), -1)
        keys[counts[chosen]] = self._keys.number([self._given(some, f.name) for f in self.schema.fields])
        return chosen, KeyEvents(keys, times[chosen], clock[chosen]), state

    @staticmethod
    def _given_or_blank(rows: Rows, field: Field) -> Vector:
        vectors = rows.vectors(field.name)
        return vectors[0] if vectors else Vector.blank(field.type, len(rows))

    def _follow(self, events: KeyEvents, state: WindowState) -> KeyChanges:
        """Stage what events and the clock change; returns the changes of the table."""
        if self._stale:
            self._rebuild_heaps()
        self._reserve(len(events.key))
        seen = distinct(events.key[events.key >= 0])
        last = self._times.last[seen]
        leaving = int(self._heap.used[0]) + len(events.key)  # each leaves, and is forgotten, at most once
        most = 2 * leaving + int(self._forgotten.used[0]) + len(events.key)
        kinds: Any = (np.int64, np.int64, np.int32, np.int32, np.int64, np.uint8)
        out = KeyChanges(*(np.empty(most, kind) for kind in kinds))
        count = follow_keys(self._times, self._spans, self._heap, self._forgotten, events, out)
        out = _chosen(out, np.arange(count))
        made = out.new < NOWHERE
        keys = out.key[made]
        slots = self._write(keys)
        old, new = out.old.astype(np.int64), out.new.astype(np.int64)
        new[made] = slots
        again = old < NOWHERE
        old[again] = slots[-2 - old[again]]
        row = self._times.row
        virtual = keys[row[keys] < NOWHERE]
        row[virtual] = slots[-2 - row[virtual]]
        shown = (old >= 0) | (new >= 0)
        self.staged = _Staged(old[shown], new[shown], state, _Before(seen, last, out))
        return _chosen(out, np.flatnonzero(shown))

    def _write(self, keys: Index) -> Index:
        """Free slots with the values of keys, not alive yet."""
        slots = self._allocate(len(keys))
        for field, vector in zip(self.schema.fields, self._keys.keys(keys), strict=True):
            column = self._columns[field.name]
            column.values[slots], column.valid[slots] = vector.values, vector.valid
        self._key_of[slots] = keys
        self._rows = None
        return slots

    def place(self, positions: Index) -> Changed:
        assert self.staged is not None
        return self._place(positions, self.staged.old, self.staged.new)

    def commit(self) -> None:
        if self.staged is None:
            return
        old, new, self.state, _ = self.staged
        self.staged = None
        if not len(old):
            return
        comes, goes = new[new >= 0], old[old >= 0]
        self.born[comes] = -1
        self._vacate(goes)
        self._alive += len(comes) - len(goes)
        self.commits += 1
        self._compact()

    def rollback(self) -> None:
        if self.staged is None:
            return
        old, new, _, (seen, last, changes) = self.staged
        times, back = self._times, slice(None, None, -1)
        times.state[changes.key[back]] = changes.state[back]
        times.last[changes.key[back]] = changes.last[back]
        times.last[seen] = last
        gone = old[old >= 0]
        self.died[gone] = FOREVER + 1
        self._vacate(new[new >= 0])
        times.row[changes.key] = NOWHERE
        stays = np.setdiff1d(gone, new)  # rows of before
        times.row[self._key_of[stays]] = stays
        self.staged, self._stale = None, True
        self.rollbacks += 1

    # -- as a whole --------------------------------------------------------------------------------

    def begin(self, past: Iterable[Past], now: int) -> None:
        for arrived, _, rows in past:
            _, events, state = self._read(rows, arrived)
            self._take_in(events, state)
        if self.spec.time is None:
            self._take_in(self._clock_alone(now), self.state)

    def _take_in(self, events: KeyEvents, state: WindowState) -> None:
        self._follow(events, state)
        assert self.staged is not None
        self._place(np.full(len(self.staged), -1), self.staged.old, self.staged.new)
        self.commit()

    def written(self) -> Any:
        """All keys, their times, and whether they are alive."""
        keys = np.flatnonzero(self._times.state)
        columns = zip(self.schema.fields, self._keys.keys(keys), strict=True)
        known = {field.name: vector.arrow for field, vector in columns}
        known[_TIME], known[_IS_ALIVE] = self._times.last[keys], self._times.state[keys] == ALIVE
        return pa.table(known)

    def read_back(self, table: Any, state: WindowState) -> None:
        """What `written` returned."""
        names = self.schema.fields
        vectors = [Vector.from_arrow(f.type, table[f.name].combine_chunks()) for f in names]
        keys = self._keys.number(vectors)
        self._reserve(0)
        alive = np.asarray(table[_IS_ALIVE].combine_chunks().to_numpy(zero_copy_only=False), np.bool_)
        times = self._times
        times.last[keys], times.state[keys] = np.asarray(table[_TIME]), np.where(alive, ALIVE, ABSENT)
        shown = keys[~alive if self._spans.shows_absent else alive]
        slots = self._write(shown)
        times.row[shown] = slots
        self.born[slots], self.died[slots] = -1, FOREVER + 1
        self._alive, self.state = len(slots), state
        self._rebuild_heaps()

    # -- inside ------------------------------------------------------------------------------------

    def _grow(self, capacity: int) -> None:
        TableStore._grow(self, capacity)
        self._key_of = longer(self._key_of, capacity)

    def _reserve(self, events: int) -> None:
        """Space for the keys there are, and in heaps for so many events."""
        size, times = self._keys.size, self._times
        if size > len(times.last):
            size = max(_FEW, size, 5 * len(times.last) // 4)
            row = longer(times.row, size, NOWHERE)
            self._times = KeyTimes(longer(times.last, size), row, longer(times.state, size))
        alive = int(self._heap.used[0])
        self._heap = _with_space(self._heap, alive + events)
        if self._spans.kept >= 0:
            self._forgotten = _with_space(self._forgotten, int(self._forgotten.used[0]) + alive + events)

    def _compact(self) -> None:
        """Drop keys that are not known any more, and timers that mean nothing."""
        if len(self._keys) > 2 * (self._alive + int(self._heap.used[0])) + _FEW:
            self._keys.keep(np.flatnonzero(self._times.state))
        if int(self._forgotten.used[0]) > 2 * self._alive + _FEW:
            self._rebuild_heaps()

    def _rebuild_heaps(self) -> None:
        times = self._times
        self._heap = _heap(times.last, np.flatnonzero(times.state == ALIVE), self._spans.alive)
        if self._spans.kept >= 0:
            self._forgotten = _heap(times.last, np.flatnonzero(times.state == ABSENT), self._spans.kept)
        self._stale = False

    def _check(self) -> None:
        """Each key alive has one timer, not after its time; rows are those of their keys."""
        assert self.staged is None
        if self._stale:
            self._rebuild_heaps()
        self._keys._check()
        times, rows = self._times, self.alive()
        assert len(rows) == len(self) and (self.born[rows] == -1).all()
        keys = self._key_of[rows]
        assert np.array_equal(times.row[keys], rows)
        assert (times.state[keys] == (ABSENT if self._spans.shows_absent else ALIVE)).all()
        shown = times.state == (ABSENT if self._spans.shows_absent else ALIVE)
        assert np.count_nonzero(shown) == len(rows) == np.count_nonzero(times.row >= 0)
        count = int(self._heap.used[0])
        time, slot = self._heap.time[:count], self._heap.slot[:count]
        assert np.array_equal(np.sort(slot), np.flatnonzero(times.state == ALIVE))
        assert np.all(time <= times.last[slot] + self._spans.alive)
        above = (np.arange(1, count) - 1) // 2
        assert np.all(time[above] <= time[1:])
        free = self._vacant[: self._vacancies]
        assert np.array_equal(np.sort(np.concatenate([rows, free])), np.arange(self._used))


_TIME, _IS_ALIVE = "_time", "_is_alive"
"""Columns of a saved window: of the last event, whether it is in the window."""


def _chosen(changes: KeyChanges, which: Index) -> KeyChanges:
    parts: Any = changes
    return KeyChanges(*(part[which] for part in parts))


def _with_space(heap: TimeHeap, count: int) -> TimeHeap:
    if count <= len(heap.time):
        return heap
    size = max(_FEW, count, 5 * len(heap.time) // 4)
    return TimeHeap(longer(heap.time, size), longer(heap.slot, size), heap.used)


def _heap(last: Index, keys: Index, span: int) -> TimeHeap:
    """The heap of some keys."""
    heap = _with_space(TimeHeap(_NONE, np.empty(0, np.int32), np.zeros(1, np.int64)), len(keys))
    due = last[keys] + span
    order = np.argsort(due, kind="stable")
    push_times(heap, due[order], keys[order].astype(np.int32))
    return heap
