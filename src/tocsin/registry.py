"""Who has subscribed: ids, slots, validity.

Users know a subscription by an int64 id, given or assigned (the greatest so far plus one,
never reused). Rooms know it by a dense slot, reused. A subscription with a `valid_from` in the
future waits; at `valid_to` it expires: [valid_from, valid_to).

    subscribe ──► waiting ──► active ──► expired ──► (unsubscribed)
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tocsin.errors import SubscriptionError
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index

__all__ = ["Entry", "Registry", "Subscription", "as_utc"]


@dataclass(frozen=True, slots=True)
class Subscription:
    """What `subscribe` returns; every method of the engine takes it or its id."""

    id: int
    sql: str
    shape: Shape
    warnings: tuple[str, ...] = ()
    subscriber: str | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None


@dataclass(slots=True)
class Entry:
    """A subscription, its plan, its slot, and whether it is waiting, active or expired.

    `told` is the state that listeners know of: it lags behind until the next deltas are told.
    """

    subscription: Subscription
    plan: Plan
    slot: int
    state: str = "waiting"
    told: str = "waiting"


@dataclass
class Registry:
    """Subscriptions by id."""

    last_id: int = 0
    _entries: dict[int, Entry] = field(default_factory=dict)
    _ids: Index = field(default_factory=lambda: np.zeros(64, np.int64))  # by slot
    _free: list[int] = field(default_factory=list)
    _slots: int = 0
    _due: list[tuple[datetime, int, int]] = field(default_factory=list)  # heap: when, tie-break, id
    _ticket: int = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    @property
    def ids(self) -> Index:
        """The id of every slot."""
        return self._ids

    def get(self, subscription: Subscription | int) -> Entry:
        key = subscription.id if isinstance(subscription, Subscription) else subscription
        if isinstance(key, bool) or not isinstance(key, int | np.integer):
            raise SubscriptionError(f"a subscription or its id is wanted, not {key!r}")
        entry = self._entries.get(int(key))
        if entry is None:
            raise SubscriptionError(f"there is no subscription {key}")
        return entry

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
        if int(wanted) in self._entries:
            raise SubscriptionError(f"there is a subscription {wanted} already", hint="unsubscribe it first")
        return int(wanted)

    def add(self, subscription: Subscription, plan: Plan) -> Entry:
        """Take a subscription in, waiting."""
        slot = self._free.pop() if self._free else self._slots
        self._slots = max(self._slots, slot + 1)
        if slot >= len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros(len(self._ids), np.int64)])
        self._ids[slot] = subscription.id
        entry = self._entries[subscription.id] = Entry(subscription, plan, slot)
        self.last_id = max(self.last_id, subscription.id)
        for when in (subscription.valid_from, subscription.valid_to):
            if when is not None:
                self._ticket += 1
                heapq.heappush(self._due, (when, self._ticket, subscription.id))
        return entry

    def remove(self, entry: Entry) -> None:
        del self._entries[entry.subscription.id]
        self._free.append(entry.slot)

    def due(self, now: datetime) -> list[Entry]:
        """Entries whose validity begins or ends by `now`, each once, in order of time."""
        out: dict[int, Entry] = {}
        while self._due and self._due[0][0] <= now:
            key = heapq.heappop(self._due)[2]
            if key in self._entries:
                out[key] = self._entries[key]
        return list(out.values())

    def _check(self) -> None:
        slots = [entry.slot for entry in self]
        assert len(set(slots)) == len(slots) and not set(slots) & set(self._free)
        assert len(slots) + len(self._free) == self._slots
        assert all(self._ids[entry.slot] == entry.subscription.id for entry in self)


def as_utc(when: Any, what: str) -> datetime | None:
    """A time of validity: naive ones are UTC."""
    if when is None:
        return None
    if not isinstance(when, datetime):
        raise SubscriptionError(f"{what} is a datetime, not {when!r}")
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
