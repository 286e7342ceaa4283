"""A client: maintains contents from deltas alone.

It starts from a subscription's content, adds every delta since, and so has the answer at any time
without querying the engine. A delta that removes a row which is not there is an error: a delta was lost.

>>> from tocsin.model.delta import Delta
>>> client = Client()
>>> client.start(7, [{"x": 1}])
>>> client.receive([Delta(1, 7, -1, {"x": 1}), Delta(1, 7, 1, {"x": 2})])
>>> client.content(7)
[{'x': 2}]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import RLock
from typing import Any

from tocsin.errors import TocsinError
from tocsin.model.delta import Delta
from tocsin.subscriptions.sources import Subscription

__all__ = ["Client"]


class Client:
    """Contents by subscription. Any thread may use it, one call at a time (a lock)."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._contents: dict[int, dict[Any, list[dict[str, Any]]]] = {}
        self.last_seq = 0

    def start(self, subscription: Subscription | int, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        """Start with the content at the time of subscribing."""
        held: dict[Any, list[dict[str, Any]]] = {}
        for row in rows:
            held.setdefault(_row_key(row), []).append(dict(row))
        with self._lock:
            self._contents[_id(subscription)] = held

    def stop(self, subscription: Subscription | int) -> None:
        """Drop a subscription; its further deltas are ignored."""
        with self._lock:
            self._contents.pop(_id(subscription), None)

    def receive(self, deltas: Iterable[Delta]) -> None:
        """Apply deltas in order; those of unknown subscriptions are ignored."""
        with self._lock:
            for delta in deltas:
                held = self._contents.get(delta.subscription)
                if held is not None:
                    _add(held, delta)
                    self.last_seq = max(self.last_seq, delta.seq)

    def content(self, subscription: Subscription | int) -> list[dict[str, Any]]:
        """The rows held, as a bag."""
        with self._lock:
            return [dict(row) for same in self._contents[_id(subscription)].values() for row in same]


def _add(held: dict[Any, list[dict[str, Any]]], delta: Delta) -> None:
    """Add a delta to the rows of its subscription."""
    key = _row_key(delta.row)
    if delta.sign > 0:
        held.setdefault(key, []).append(dict(delta.row))
        return
    same = held.get(key)
    if not same:
        raise TocsinError(
            f"seq {delta.seq}: subscription {delta.subscription} does not hold the row to remove: "
            f"{delta.row}",
            hint="a delta was lost or delivered twice: start again from the engine's content",
        )
    same.pop()
    if not same:
        del held[key]


def _id(subscription: Subscription | int) -> int:
    return subscription.id if isinstance(subscription, Subscription) else int(subscription)


def _row_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Equal exactly for equal rows: NaN equals NaN."""
    return tuple((name, type(v).__name__, "NaN" if v != v else v) for name, v in sorted(row.items()))
