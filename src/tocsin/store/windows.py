"""Windows: the recent events of a stream as the rows of a table.

Every distinct window in use has one `WindowStore`. It is a table of the database that no user declared: its
columns are those of the stream and `_seq`, the event's sequence number, which is its key. So rooms answer
queries over windows as they answer those over tables: an event is an insert, and an event that leaves the
window is a delete, in the step of the change that moves the clock.

    by arrival      the clock is the engine's: events leave in a step of their own, before the next change,
                    at the last seq
    by event time   the clock is the largest time seen minus `late`: events leave at the seq of the event that
                    moves the clock

    events of a batch       at 10:00:07      at 10:00:03      at 10:00:09         window '5 seconds'
    window above            10:00:02         10:00:02         10:00:04
    changes of the table    +07              +03              -03, then +09

Each change of a step has a position of its own, so several positions can have one seq; who emits deltas
consolidates them (`Step.settled`).

Rows lie in flat columns. Slots of rows that left are used again, the last ones first, and a heap of slots by
time says what leaves next. Cost: O(1) for an event in order of time, O(log n) for one that leaves; about 40
bytes for each row besides its columns.

>>> from tocsin.model.columns import Vector
>>> from tocsin.model.schema import Field
>>> hits = Stream("hits", (Field("ms", Type.BIGINT), Field("at", Type.TIMESTAMP)))
>>> store = WindowStore(WindowSpec("hits", 5, "at"), hits)
>>> def publish(*events):
...     columns = [Vector.of(Type.BIGINT, [ms for ms, _ in events])]
...     at = np.array([at for _, at in events])
...     columns.append(Vector(Type.TIMESTAMP, at, np.ones(len(at), np.bool_)))
...     seq = store.stage_events(Rows(list(zip(hits.names, columns)), len(at)), np.arange(len(at)), 0)
...     changed = store.place(np.arange(len(seq)))
...     store.commit()
...     return seq.tolist(), changed.old.tolist(), changed.new.tolist()
>>> publish((40, 7), (70, 3), (50, 9))  # the last one moves the clock: the second leaves
([0, 1, 2, 2], [-1, -1, 1, -1], [0, 1, -1, 2])
>>> publish((20, 4)), store.too_late  # outside already
(([], [], []), 1)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.language.windows import WindowSpec
from tocsin.model.columns import Index, Mask, Rows, Vector, longer
from tocsin.model.schema import Field, Stream, Table, Type
from tocsin.store._kernels import TimeHeap, pop_times, push_times
from tocsin.store.tables import FOREVER, Changed, TableStore

__all__ = ["MAX_REACH", "NEVER", "SEQ", "Past", "WindowState", "WindowStore"]

SEQ = "_seq"
"""The column of an event's sequence number; no declared column has this name."""

NEVER = -(2**62)
"""The largest time of a window that saw none."""

MAX_REACH = 2**62
"""Of span and lateness together: longer than the calendar."""

_POPPED = 1 << 16  # events that leave, at a time
_MAX_TEXTS = 1 << 18  # distinct texts of a column that are kept once


class Past(NamedTuple):
    """Events that came before a window began: when in microseconds, their seqs, their rows."""

    arrived: Index
    seq: Index
    rows: Rows


class WindowState(NamedTuple):
    """What a window knows besides its events."""

    latest: int = NEVER  # the largest event time seen
    too_late: int = 0  # events that were outside when they came
    untimed: int = 0  # events without event time


class _WindowStep(NamedTuple):
    """Changes of a step, in order: slots before and after; what a commit or a rollback needs."""

    old: Index
    new: Index
    stay: Index  # new slots that are in the window after the step
    popped: tuple[Index, NDArray[np.int32]]  # times and slots that the heap gave
    state: WindowState


class WindowStore(TableStore):
    """The events of one window, by slot."""

    _growth = 2.0  # of arrays that are full

    def __init__(self, spec: WindowSpec, stream: Stream) -> None:
        fields = (*stream.fields, Field(SEQ, Type.BIGINT))
        self._start(spec, Table(spec.table, fields, (SEQ,)))
        self._texts.update((f.name, {}) for f in stream.fields if f.type is Type.STRING)

    def _start(self, spec: WindowSpec, table: Table) -> None:
        """An empty window with these columns."""
        super().__init__(table)
        self.spec = spec
        self.state = WindowState()
        self._reach = min(spec.span + spec.late, MAX_REACH)
        self._arrived: Index = np.empty(0, np.int64)  # by slot, if events leave by arrival
        self._heap = TimeHeap(np.empty(0, np.int64), np.empty(0, np.int32), np.zeros(1, np.int64))
        self._vacant: Index = np.empty(0, np.int64)  # a stack of free slots: the first `_vacancies`
        self._vacancies = 0
        self._alive = 0
        self._texts: dict[str, dict[str, str]] = {}  # by column, each text once
        self._waiting: _WindowStep | None = None

    def __len__(self) -> int:
        return self._alive

    # -- reading -----------------------------------------------------------------------------------

    @property
    def too_late(self) -> int:
        """How many events were outside the window when they came."""
        return self.state.too_late

    @property
    def times(self) -> Index:
        """When events count from, by slot, in microseconds: events leave in this order."""
        return self._arrived if self.spec.time is None else self._columns[self.spec.time].values

    @property
    def bound(self) -> int | None:
        """By event time: events up to this time are outside. None: there is no such time yet."""
        latest = self.state.latest
        return None if latest == NEVER or self.spec.time is None else latest - self._reach

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays; texts are not in them."""
        arrays: list[NDArray[Any]] = [self.born, self.died, self._arrived, self._vacant, *self._heap]
        arrays += [part for v in self._columns.values() for part in (v.values, v.valid)]
        return sum(array.nbytes for array in arrays)

    def find(self, key: Any) -> int | None:
        """The slot of the event with this seq. O(n)."""
        found = np.flatnonzero((self._columns[SEQ].values[: self._used] == key) & self._is_alive())
        return int(found[0]) if len(found) else None

    def _is_alive(self) -> Mask:
        return (self.born[: self._used] <= FOREVER) & (self.died[: self._used] > FOREVER)

    def stats(self) -> dict[str, Any]:
        """Counts worth looking at."""
        return {
            "rows": len(self),
            "bytes": self.nbytes,
            "too_late": self.state.too_late,
            "without_time": self.state.untimed,
        }

    # -- steps -------------------------------------------------------------------------------------

    def stage_events(self, rows: Rows, seq: Index, now: int) -> Index:
        """Stage events that come at `now`; returns the seqs of the changes that follow, which `place` places.

        Events are in order of seq.
        """
        assert self._waiting is None, "a step is staged already"
        count = len(rows)
        if self.spec.time is None:
            slots = self._append(rows, seq, np.full(count, now))
            none = np.empty(0, np.int64), np.empty(0, np.int32)
            self._waiting = _WindowStep(np.full(count, -1), slots, slots, none, self.state)
            return seq
        vector = self._given(rows, self.spec.time)
        times = np.where(vector.valid, vector.values, NEVER)
        latest = np.maximum(np.maximum.accumulate(times), self.state.latest)
        bound = latest - self._reach
        inside = vector.valid & (times > bound)
        comes = np.flatnonzero(inside)
        slots = self._append(rows if len(comes) == count else rows.take(comes), seq[comes], times[comes])
        popped = self._pop(int(bound[-1])) if count else self._pop(NEVER - MAX_REACH)
        leaves = np.searchsorted(bound, times[comes])  # the event that moves the clock so far
        short = np.flatnonzero(leaves < count)
        event = np.concatenate([np.searchsorted(bound, popped[0]), leaves[short], comes])
        gone = np.concatenate([popped[1].astype(np.int64), slots[short]])
        is_new = np.arange(len(event)) >= len(gone)
        key = 2 * event + is_new
        order = np.argsort(key, kind="stable")
        if len(short):  # rows leave in order of time, whenever they came
            order = np.lexsort((np.concatenate([popped[0], times[comes[short]], times[comes]]), key))
        slot, is_new = np.concatenate([gone, slots])[order], is_new[order]
        untimed = count - int(vector.valid.sum())
        state = WindowState(
            int(latest[-1]) if count else self.state.latest,
            self.state.too_late + count - untimed - len(comes),
            self.state.untimed + untimed,
        )
        stay = slots if not len(short) else slots[leaves >= count]
        old, new = np.where(is_new, -1, slot), np.where(is_new, slot, -1)
        self._waiting = _WindowStep(old, new, stay, popped, state)
        return seq[event[order]]

    def stage_expiry(self, now: int) -> int:
        """By arrival: stage the events that came a span before `now`, or earlier, to leave; how many."""
        assert self._waiting is None, "a step is staged already"
        if self.spec.time is not None or not self._heap.used[0] or self._heap.time[0] > now - self._reach:
            return 0
        popped = self._pop(now - self._reach)
        old = popped[1].astype(np.int64)
        self._waiting = _WindowStep(old, np.full(len(old), -1), np.empty(0, np.int64), popped, self.state)
        return len(old)

    def place(self, positions: Index) -> Changed:
        """Give the staged changes their positions in the step."""
        assert self._waiting is not None
        return self._place(positions, self._waiting.old, self._waiting.new)

    def _place(self, positions: Index, old: Index, new: Index) -> Changed:
        made, over = new >= 0, old >= 0
        self.born[new[made]], self.died[new[made]] = positions[made], FOREVER + 1
        self.died[old[over]] = positions[over]
        self._rows = None
        return Changed(positions, old, new)

    def commit(self) -> None:
        if self._waiting is None:
            return
        old, new, stay, _, self.state = self._waiting
        self._push(self.times[stay], stay)
        self.born[stay] = -1
        self._vacate(old[old >= 0])
        self._alive += int((new >= 0).sum()) - int((old >= 0).sum())
        self._waiting = None
        self.commits += bool(len(old))

    def rollback(self) -> None:
        if self._waiting is None:
            return
        _, new, _, popped, _ = self._waiting
        self.died[popped[1]] = FOREVER + 1
        self._push(popped[0], popped[1].astype(np.int64))
        self._vacate(new[new >= 0])
        self._waiting = None
        self.rollbacks += 1

    # -- as a whole --------------------------------------------------------------------------------

    def begin(self, past: Iterable[Past], now: int) -> None:
        """Take in those of past events that are in the window at `now`."""
        parts = [part for part in past if len(part.seq)]
        for arrived, seq, rows in parts:
            times = arrived
            if self.spec.time is not None:
                vector = self._given(rows, self.spec.time)
                times = np.where(vector.valid, vector.values, NEVER)
                self.state = self.state._replace(latest=max(self.state.latest, int(times.max())))
            self._keep(rows, seq, times)
        if self.spec.time is None:
            self._drop_until(now - self._reach)
        else:
            self._drop_until(self.bound if self.bound is not None else NEVER)

    def restore(self, rows: Rows, times: Index, state: WindowState) -> None:
        """Take in the events of a saved window."""
        self._keep(rows, rows.vectors(SEQ)[0].values, times)
        self.state = state

    def _keep(self, rows: Rows, seq: Index, times: Index) -> None:
        slots = self._append(rows, seq, times)
        self.born[slots], self.died[slots] = -1, FOREVER + 1
        self._push(times, slots)
        self._alive += len(slots)
        self._rows = None

    def _drop_until(self, bound: int) -> None:
        _, slots = self._pop(bound)
        self._vacate(slots.astype(np.int64))
        self._alive -= len(slots)

    # -- inside ------------------------------------------------------------------------------------

    def _append(self, rows: Rows, seq: Index, times: Index) -> Index:
        """Write events to free slots, which are not alive yet; returns the slots."""
        slots = self._allocate(len(rows))
        for name, column in self._columns.items():
            if name == SEQ:
                column.values[slots], column.valid[slots] = seq, True
                continue
            given = self._given(rows, name)
            is_text = column.type is Type.STRING
            column.values[slots] = self._once(name, given.values) if is_text else given.values
            column.valid[slots] = given.valid
        if self.spec.time is None:
            self._arrived[slots] = times
        return slots

    def _given(self, rows: Rows, name: str) -> Vector:
        """A column of events; NULL where they lack it."""
        vectors = rows.vectors(name)
        return vectors[0] if vectors else Vector.blank(self._columns[name].type, len(rows))

    def _once(self, name: str, texts: Sequence[str] | NDArray[Any]) -> NDArray[Any]:
        """The same texts, equal ones as one object, as far as few are distinct."""
        known = self._texts[name]
        if len(known) > _MAX_TEXTS:
            known.clear()
        out = np.empty(len(texts), object)
        out[:] = [known.setdefault(text, text) for text in texts]
        return out

    def _allocate(self, count: int) -> Index:
        reused = min(count, self._vacancies)
        fresh = count - reused
        if self._used + fresh > len(self.born):
            self._grow(max(64, int(self._growth * len(self.born)), self._used + fresh))
        self._vacancies -= reused
        again = self._vacant[self._vacancies : self._vacancies + reused]
        slots = np.concatenate([again[::-1], np.arange(self._used, self._used + fresh)])
        self._used += fresh
        self._computed.wrote(slots)
        return slots

    def _grow(self, capacity: int) -> None:
        super()._grow(capacity)
        if self.spec.time is None:
            self._arrived = longer(self._arrived, capacity)

    def _vacate(self, slots: Index) -> None:
        """Free slots, whose rows are over."""
        self.born[slots] = self.died[slots] = -1
        for name in self._texts:
            self._columns[name].values[slots] = ""
        most = self._vacancies + len(slots)
        if most > len(self._vacant):
            self._vacant = longer(self._vacant, max(most, 2 * len(self._vacant)))
        self._vacant[self._vacancies : most] = slots[::-1]
        self._vacancies = most

    def _push(self, times: Index, slots: Index) -> None:
        most = int(self._heap.used[0]) + len(slots)
        if most > len(self._heap.time):
            size = max(64, most, 2 * len(self._heap.time))
            self._heap = TimeHeap(
                longer(self._heap.time, size), longer(self._heap.slot, size), self._heap.used
            )
        push_times(self._heap, np.ascontiguousarray(times), slots)

    def _pop(self, bound: int) -> tuple[Index, NDArray[np.int32]]:
        """Times and slots of the rows that leave by a time, in order of time."""
        times, slots = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
        while self._heap.used[0] and self._heap.time[0] <= bound:
            size = min(int(self._heap.used[0]), _POPPED)
            time, slot = np.empty(size, np.int64), np.empty(size, np.int32)
            found = pop_times(self._heap, bound, time, slot)
            times.append(time[:found])
            slots.append(slot[:found])
        return np.concatenate(times), np.concatenate(slots)

    def _check(self) -> None:
        """The heap has the rows alive, in heap order; slots are alive or free; nothing is staged."""
        assert self._waiting is None
        alive = self.alive()
        assert len(alive) == len(self) and (self.born[alive] == -1).all()
        free = self._vacant[: self._vacancies]
        assert np.array_equal(np.sort(np.concatenate([alive, free])), np.arange(self._used))
        assert (self.died[free] == -1).all()
        count = int(self._heap.used[0])
        time, slot = self._heap.time[:count], self._heap.slot[:count]
        assert np.array_equal(np.sort(slot), alive) and np.array_equal(time, self.times[slot])
        above = (np.arange(1, count) - 1) // 2
        assert np.all(time[above] <= time[1:])
        bound = self.bound
        assert bound is None or np.all(time > bound)
