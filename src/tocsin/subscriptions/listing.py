"""The engine's methods that list subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from threading import RLock

from tocsin.language.algebra import Query
from tocsin.language.shape import Shape
from tocsin.model.columns import Index
from tocsin.subscriptions.registry import Registry
from tocsin.subscriptions.sources import Subscription
from tocsin.subscriptions.warnings import SubscriptionWarnings

__all__ = ["ListingMethods"]


class ListingMethods:
    """Part of `Engine`."""

    _lock: RLock
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

    def query(self, subscription: Subscription | int) -> Query:
        """The query of a subscription, with names and types resolved."""
        with self._lock:
            return self._registry.get(subscription).plan.query

    def queries(self) -> Iterator[tuple[Shape, Query, Index]]:
        """For each source (one subscription, or a bulk): the shape, one of its queries, and all its ids.

        Queries of one source differ in constants alone.
        """
        with self._lock:
            found = list(self._registry.by_source())
        for source, row, ids in found:
            yield source.shape, source.query(row), ids
