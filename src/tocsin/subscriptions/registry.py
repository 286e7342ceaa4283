"""All subscriptions in columns: id, slot, state, shape, source.

Users know a subscription by an int64 id, given or assigned (the greatest so far plus one,
never reused). Rooms know it by a dense slot, reused. A subscription with a `valid_from` in the
future waits; at `valid_to` it expires: [valid_from, valid_to).

    subscribe ──► waiting ──► active ──► expired ──► (unsubscribed)

A million subscriptions of one table stay one table: a slot knows its *source* and its row in it;
text, query and plan are made on demand (`sources.py`).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.errors import SubscriptionError
from tocsin.language.algebra import Query
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, distinct, longer
from tocsin.store.ids import IdMap
from tocsin.subscriptions.sources import SingleSource, Source, Subscription

__all__ = ["Entry", "Registry", "State", "as_utc"]

_KNOWN = "subscriptions() lists them"
_SHAPES = tuple(Shape)


class State(IntEnum):
    """Where a slot's subscription is in its life; `str` gives the word that users and files see."""

    FREE = 0
    WAITING = 1
    ACTIVE = 2
    EXPIRED = 3

    def __str__(self) -> str:
        return self.name.lower()


_STATES = tuple(State)
_ACTIVE = int(State.ACTIVE)


@dataclass(frozen=True, slots=True)
class Entry:
    """One subscription of a registry.

    `announced` is the state that listeners know: it follows `state` when the next deltas are emitted.
    """

    registry: Registry
    slot: int

    @property
    def id(self) -> int:
        return int(self.registry.ids[self.slot])

    @property
    def source(self) -> Source:
        return self.registry.source(self.slot)

    @property
    def row(self) -> int:
        return self.registry.row(self.slot)

    @property
    def subscription(self) -> Subscription:
        return self.source.subscription(self.id, self.row)

    @property
    def plan(self) -> Plan:
        return self.registry.plan(self.slot)

    @property
    def shape(self) -> Shape:
        return _SHAPES[self.registry.shapes[self.slot]]

    @property
    def state(self) -> State:
        return _STATES[self.registry.states[self.slot]]

    def become(self, state: State) -> None:
        """Change the state."""
        self.registry.states[self.slot] = state

    @property
    def announced(self) -> State:
        return _STATES[self.registry.announced[self.slot]]

    def announce(self) -> None:
        """Listeners know the state from now on."""
        self.registry.announced[self.slot] = self.registry.states[self.slot]

    def is_valid(self, now: datetime) -> bool:
        begins = self.subscription.valid_from
        return (begins is None or begins <= now) and not self.has_ended(now)

    def has_ended(self, now: datetime) -> bool:
        ends = self.subscription.valid_to
        return ends is not None and ends <= now


class Registry:
    """Subscriptions by id and by slot."""

    def __init__(self) -> None:
        self.last_id = 0
        self.ids: Index = np.zeros(64, np.int64)  # by slot, as are the next six
        self.states: NDArray[np.uint8] = np.zeros(64, np.uint8)
        self.announced: NDArray[np.uint8] = np.zeros(64, np.uint8)
        self.shapes: NDArray[np.uint8] = np.zeros(64, np.uint8)
        self._source: NDArray[np.int32] = np.zeros(64, np.int32)
        self._row: NDArray[np.int32] = np.zeros(64, np.int32)
        self._arrival: Index = np.zeros(64, np.int64)  # number in order of arrival
        self.subscribers: NDArray[np.object_] | None = None  # by slot; none as long as nobody is named
        self._slot_of = IdMap()
        self._sources: list[Source | None] = []
        self._rows: NDArray[np.int32] = np.zeros(64, np.int32)  # in use, by source
        self._idle: list[int] = []  # numbers of sources without rows
        self._free: Index = np.zeros(64, np.int64)  # a stack of free slots: the first `_free_count`
        self._free_count = 0
        self._slots = 0
        self.due_times: list[tuple[datetime, int, int]] = []  # heap: when, tie-break, id
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, id: int) -> bool:
        return self._slot_of.find_one(id) >= 0

    def __iter__(self) -> Iterator[Entry]:
        """All of them, in order of arrival."""
        for slot in self._in_order().tolist():
            yield Entry(self, slot)

    def _in_order(self) -> Index:
        """The slots in use, in order of arrival."""
        slots = np.flatnonzero(self.states[: self._slots] != State.FREE)
        return slots[np.argsort(self._arrival[slots])]

    def subscriptions(self) -> list[Subscription]:
        """All of them, in order of arrival; a bulk's texts are made when they are read."""
        slots = self._in_order()
        columns = (self.ids[slots], self._source[slots], self._row[slots])
        sources: list[Any] = self._sources
        return [
            sources[source].subscription(id, row)
            for id, source, row in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def by_subscriber(self) -> dict[str | None, list[int]]:
        """The ids of each subscriber, in order of arrival; None has those without one."""
        slots = self._in_order()
        names = repeat(None, len(slots)) if self.subscribers is None else self.subscribers[slots].tolist()
        out: dict[str | None, list[int]] = {}
        for name, id in zip(names, self.ids[slots].tolist(), strict=True):
            out.setdefault(name, []).append(id)
        return out

    # -- one subscription --------------------------------------------------------------------------

    def source(self, slot: int) -> Source:
        source = self._sources[int(self._source[slot])]
        assert source is not None
        return source

    def row(self, slot: int) -> int:
        return int(self._row[slot])

    def plan(self, slot: int) -> Plan:
        """The plan of a slot's query; of bulk rows it is made on demand."""
        return self.source(slot).plan(self.row(slot))

    def get(self, subscription: Subscription | int) -> Entry:
        key = subscription.id if isinstance(subscription, Subscription) else subscription
        if isinstance(key, bool) or not isinstance(key, int | np.integer):
            raise SubscriptionError(f"a subscription or its id is wanted, not {key!r}")
        fits = -(2**63) <= int(key) < 2**63
        slot = self._slot_of.find_one(int(key)) if fits else -1
        if slot < 0:
            raise SubscriptionError(f"there is no subscription {key}", hint=_KNOWN)
        return Entry(self, slot)

    def claim(self, wanted: int | None) -> int:
        """A free id: the wanted one, or the next."""
        if wanted is None:
            if self.last_id + 1 >= 2**63:
                raise SubscriptionError("there is no id left to assign", hint="give one: id=...")
            return self.last_id + 1
        if (
            isinstance(wanted, bool)
            or not isinstance(wanted, int | np.integer)
            or not -(2**63) <= wanted < 2**63
        ):
            raise SubscriptionError(f"an id is a 64-bit integer, not {wanted!r}")
        if int(wanted) in self:
            raise SubscriptionError(f"there is a subscription {wanted} already", hint="unsubscribe it first")
        return int(wanted)

    def warn(self, slot: int, warning: str) -> None:
        """Add a warning to a subscription; one of a bulk gets a source of its own."""
        entry = Entry(self, slot)
        given, source = entry.subscription, entry.source
        given = replace(given, warnings=(*given.warnings, warning))
        if isinstance(source, SingleSource):
            source.given = given
            return
        number, made = int(self._source[slot]), SingleSource(given, entry.plan)
        self._source[slot], self._row[slot] = self._number_of(made, 1), 0
        self._rows[number] -= 1
        if not self._rows[number]:
            self._sources[number] = None
            self._idle.append(number)

    # -- many --------------------------------------------------------------------------------------

    def find(self, ids: Index) -> NDArray[np.int32]:
        """The slot of each id, -1 if there is none."""
        return self._slot_of.find(ids)

    def slots_of(self, subscriptions: Iterable[Subscription | int] | Any) -> Index:
        """The slots of subscriptions, or of an array of ids; each once."""
        if isinstance(subscriptions, pa.Array | pa.ChunkedArray):
            subscriptions = np.asarray(subscriptions)
        if isinstance(subscriptions, np.ndarray) and subscriptions.dtype.kind in "iu":
            if subscriptions.dtype == np.uint64 and np.any(subscriptions >= 2**63):
                raise SubscriptionError(f"there is no subscription {subscriptions.max()}", hint=_KNOWN)
            slots = self.find(subscriptions.astype(np.int64))
            if len(missing := np.flatnonzero(slots < 0)):
                raise SubscriptionError(f"there is no subscription {subscriptions[missing[0]]}", hint=_KNOWN)
            return distinct(slots).astype(np.int64)
        found = dict.fromkeys(self.get(subscription).slot for subscription in subscriptions)
        return np.array(list(found), np.int64)

    def add(self, ids: Index, source: Source) -> Index:
        """Register the rows of a source under these free ids, waiting; returns their slots."""
        count = len(ids)
        kept = self._free_count - min(count, self._free_count)
        reused = self._free[kept : self._free_count][::-1]
        fresh = np.arange(self._slots, self._slots + count - len(reused))
        slots = np.concatenate([reused, fresh])
        self._free_count = kept
        self._slots += len(fresh)
        self._grow()
        number = self._number_of(source, count)
        self.ids[slots] = ids
        self.states[slots] = self.announced[slots] = State.WAITING
        self.shapes[slots] = source.shape.code
        self._source[slots], self._row[slots] = number, np.arange(count)
        self._arrival[slots] = np.arange(self._arrivals, self._arrivals + count)
        self._arrivals += count
        if (names := source.subscribers()) is not None:
            if self.subscribers is None:
                self.subscribers = np.full(len(self.ids), None)
            self.subscribers[slots] = names
        self._slot_of.put(ids, slots)
        self.last_id = max(self.last_id, int(ids.max(initial=self.last_id)))
        if isinstance(source, SingleSource):
            for when in (source.given.valid_from, source.given.valid_to):
                if when is not None:
                    heapq.heappush(
                        self.due_times, (when, self._arrivals + len(self.due_times), source.given.id)
                    )
        return slots

    def add_one(self, id: int, source: SingleSource) -> int:
        """As `add`, for a source without times of validity, which is active at once; returns its slot."""
        if self._free_count:
            self._free_count -= 1
            slot = int(self._free[self._free_count])
        else:
            slot = self._slots
            self._slots += 1
            self._grow()
        self.ids[slot] = id
        self.states[slot] = self.announced[slot] = _ACTIVE
        self.shapes[slot] = source.shape.code
        self._source[slot], self._row[slot] = self._number_of(source, 1), 0
        self._arrival[slot] = self._arrivals
        self._arrivals += 1
        name = source.given.subscriber
        if name is not None and self.subscribers is None:
            self.subscribers = np.full(len(self.ids), None)
        if self.subscribers is not None:
            self.subscribers[slot] = name
        self._slot_of.put_one(id, slot)
        if id > self.last_id:
            self.last_id = id
        return slot

    def remove(self, slots: Index) -> None:
        """Unregister slots; ids are not assigned again, slots are."""
        self._slot_of.remove(self.ids[slots])
        sources, counts = np.unique(self._source[slots], return_counts=True)
        self._rows[sources] -= counts
        for number in sources[self._rows[sources] == 0].tolist():
            self._sources[number] = None
            self._idle.append(number)
        self._free_slots(slots)

    def remove_one(self, slot: int) -> None:
        """As `remove`, for one slot."""
        number, slots = int(self._source[slot]), np.array([slot], np.int64)
        self._slot_of.remove(self.ids[slots])
        self._rows[number] -= 1
        if not self._rows[number]:
            self._sources[number] = None
            self._idle.append(number)
        self._free_slots(slots)

    def _free_slots(self, slots: Index) -> None:
        self.states[slots] = State.FREE
        if self.subscribers is not None:
            self.subscribers[slots] = None
        if len(self.due_times) > 4 * len(self) + 64:
            self.due_times = [due for due in self.due_times if due[2] in self]
            heapq.heapify(self.due_times)
        most = self._free_count + len(slots)
        if most > len(self._free):
            self._free = longer(self._free, 2 * most)
        self._free[self._free_count : most] = slots
        self._free_count = most

    def order(self, ids: Index) -> None:
        """Renumber the arrival of these ids: in this order, after all others."""
        self._arrival[self.find(ids)] = np.arange(self._arrivals, self._arrivals + len(ids))
        self._arrivals += len(ids)

    def due(self, now: datetime) -> list[Entry]:
        """Entries whose validity begins or ends by `now`, each once, in order of time."""
        out: dict[int, Entry] = {}
        while self.due_times and self.due_times[0][0] <= now:
            key = heapq.heappop(self.due_times)[2]
            if key in self:
                out[key] = self.get(key)
        return list(out.values())

    # -- some of them ------------------------------------------------------------------------------

    def page(self, after: int, limit: int, subscriber: str | None = None) -> list[Subscription]:
        """At most so many subscriptions with ids above `after`, in order of ids."""
        slots = np.flatnonzero(self.states[: self._slots] != State.FREE)
        slots = slots[self.ids[slots] > after]
        if subscriber is not None:
            slots = slots[:0] if self.subscribers is None else slots[self.subscribers[slots] == subscriber]
        if len(slots) > limit:
            slots = slots[np.argpartition(self.ids[slots], limit)[:limit]]
        slots = slots[np.argsort(self.ids[slots])]
        return [Entry(self, slot).subscription for slot in slots.tolist()]

    def ids_where(self, ids: Index, test: Callable[[Query], bool]) -> Index:
        """The ids whose queries pass a test that looks at no constants: once for each source."""
        slots = self.slots_of(ids)
        numbers = self._source[slots]
        passed = [
            number
            for number, first in zip(*np.unique(numbers, return_index=True), strict=True)
            if test(self.source(int(slots[first])).query(self.row(int(slots[first]))))
        ]
        found: Index = self.ids[slots[np.isin(numbers, passed)]]
        return found

    # -- counts ------------------------------------------------------------------------------------

    def by_shape(self) -> dict[str, int]:
        """Counts by shape."""
        used = self.shapes[: self._slots][self.states[: self._slots] != State.FREE]
        counts = np.bincount(used, minlength=len(_SHAPES)).tolist()
        return {str(shape): n for shape, n in zip(_SHAPES, counts, strict=True) if n}

    def by_source(self) -> Iterator[tuple[Source, int, Index]]:
        """Each source in use: its first row, and the ids of all its rows."""
        slots = np.flatnonzero(self.states[: self._slots] != State.FREE)
        slots = slots[np.argsort(self._source[slots], kind="stable")]
        cuts = np.flatnonzero(np.diff(self._source[slots])) + 1
        for some in np.split(slots, cuts) if len(slots) else ():
            yield self.source(int(some[0])), self.row(int(some[0])), self.ids[some]

    def users(self) -> Counter[str]:
        """How many subscriptions that are not expired use each stream or table."""
        states = self.states[: self._slots]
        numbers = self._source[: self._slots][(states != State.FREE) & (states != State.EXPIRED)]
        out: Counter[str] = Counter()
        for number, count in zip(*(a.tolist() for a in np.unique(numbers, return_counts=True)), strict=True):
            source = self._sources[number]
            for table in source.tables if source is not None else ():
                out[table] += count
        return out

    def _number_of(self, source: Source, count: int) -> int:
        """A number for a source of so many rows; a source without rows is dropped at once."""
        number = self._idle.pop() if self._idle else len(self._sources)
        if number == len(self._sources):
            self._sources.append(None)
            if number == len(self._rows):
                self._rows = longer(self._rows, 2 * number)
        self._sources[number], self._rows[number] = (source if count else None), count
        if not count:
            self._idle.append(number)
        return number

    def _grow(self) -> None:
        if self._slots > len(self.ids):
            size = max(2 * len(self.ids), self._slots)
            for name in ("ids", "states", "announced", "shapes", "_source", "_row", "_arrival"):
                old = getattr(self, name)
                new = np.zeros(size, old.dtype)
                new[: len(old)] = old
                setattr(self, name, new)
            if self.subscribers is not None:
                unnamed = np.full(size - len(self.subscribers), None)
                self.subscribers = np.concatenate([self.subscribers, unnamed])

    def _check(self) -> None:
        self._slot_of._check()
        used = np.flatnonzero(self.states[: self._slots] != State.FREE)
        free = self._free[: self._free_count]
        assert len(used) == len(self) and len(used) + len(free) == self._slots
        assert not np.isin(used, free).any() and len(distinct(free)) == len(free)
        assert np.array_equal(self.find(self.ids[used]), used)
        if self.subscribers is not None:
            assert len(self.subscribers) == len(self.ids)
            assert all(self.subscribers[s] == self.source(s).subscriber(self.row(s)) for s in used.tolist())
            assert not any(self.subscribers[free])
        rows = np.bincount(self._source[used], minlength=len(self._sources))
        assert np.array_equal(self._rows[: len(self._sources)], rows)
        idle = [number for number, source in enumerate(self._sources) if source is None]
        assert idle == np.flatnonzero(rows == 0).tolist() == sorted(self._idle)


def as_utc(when: Any, what: str) -> datetime | None:
    """A time of validity: naive ones are UTC."""
    if when is None:
        return None
    if not isinstance(when, datetime):
        raise SubscriptionError(f"{what} is a datetime, not {when!r}")
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
