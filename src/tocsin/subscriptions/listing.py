"""The engine's methods that list subscriptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import RLock

import numpy as np

from tocsin.language.algebra import Query
from tocsin.language.shape import Shape
from tocsin.model.columns import Index
from tocsin.model.schema import Stream
from tocsin.store.database import Database
from tocsin.subscriptions.registry import Registry
from tocsin.subscriptions.sources import Subscription
from tocsin.subscriptions.warnings import SubscriptionWarnings

__all__ = ["ListingMethods"]


class ListingMethods:
    """Part of `Engine`."""

    _lock: RLock
    _database: Database
    _registry: Registry
    _warnings: SubscriptionWarnings

    def subscriptions(self) -> list[Subscription]:
        """All subscriptions, expired ones too, with the warnings that events have given rise to by now."""
        with self._lock:
            return self._warnings.all_with_warnings(self._registry.subscriptions())

    def subscribers(self) -> dict[str | None, list[int]]:
        """The ids of each subscriber's subscriptions, expired ones too; under None those without one.

        >>> from tocsin import Engine
        >>> e = Engine()
        >>> e.execute("CREATE STREAM hits")
        >>> _ = e.subscribe_texts(["SELECT * FROM hits"] * 3, subscribers=["ann", None, "ann"])
        >>> e.subscribers()
        {'ann': [1, 3], None: [2]}
        """
        with self._lock:
            return self._registry.by_subscriber()

    @property
    def subscription_count(self) -> int:
        """How many subscriptions there are, expired ones too."""
        return len(self._registry)

    def __contains__(self, id: int) -> bool:
        return id in self._registry

    def subscription(self, id: int) -> Subscription:
        """The subscription of an id."""
        with self._lock:
            return self._registry.get(id).subscription

    def state(self, id: int) -> str:
        """Whether a subscription is waiting, active or expired."""
        with self._lock:
            return str(self._registry.get(id).state)

    def page(self, after: int, limit: int, subscriber: str | None = None) -> list[Subscription]:
        """Subscriptions in order of their ids, from the first one above `after`.

        >>> from tocsin import Engine
        >>> e = Engine()
        >>> e.execute("CREATE STREAM hits")
        >>> _ = e.subscribe_texts(["SELECT * FROM hits"] * 3, ids=[5, 3, 4])
        >>> [s.id for s in e.page(3, 10)]
        [4, 5]
        """
        with self._lock:
            return self._registry.page(after, limit, subscriber)

    def with_content(self, ids: Sequence[int] | Index) -> Index:
        """Those of these ids whose answers have a content: streams without windows have none."""
        with self._lock:
            return self._registry.ids_where(np.asarray(ids, np.int64), self._has_content)

    def without_content(self, ids: Index) -> Index:
        """Those of these ids that are registered and whose answers have no content."""
        with self._lock:
            known = ids[self._registry.find(ids) >= 0]
            return self._registry.ids_where(known, lambda query: not self._has_content(query))

    def _has_content(self, query: Query) -> bool:
        return query.options.window is not None or not any(
            isinstance(self._database.catalog[table.name], Stream) for table in query.tables
        )

    def query(self, subscription: Subscription | int) -> Query:
        """The query of a subscription, with names and types resolved."""
        with self._lock:
            return self._registry.get(subscription).plan.query

    def ids_of(self, slots: Index) -> Index:
        """The ids of the subscriptions in some slots, by which rooms know them."""
        with self._lock:
            return self._registry.ids[slots]

    def queries(self) -> Iterator[tuple[Shape, Query, Index]]:
        """For each source (one subscription, or a bulk): the shape, one of its queries, and all its ids.

        Queries of one source differ in constants alone.
        """
        with self._lock:
            found = list(self._registry.by_source())
        for source, row, ids in found:
            yield source.shape, source.query(row), ids
