"""Warnings about subscriptions to open streams: attributes that events lack, or have with other kinds.

What events have is known to the `AttributeWatch` of each stream (`match/watch.py`); here it is compared with
what subscriptions use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tocsin.language.algebra import Column, IsNull, Query, atoms
from tocsin.language.ranges import kind_of_literal
from tocsin.language.rewrite import split_mixed_kinds
from tocsin.match.room import MatchRoom
from tocsin.match.watch import kind_named
from tocsin.predicate.plain import PlainFilter
from tocsin.subscriptions.registry import Registry
from tocsin.subscriptions.sources import Subscription

__all__ = ["SubscriptionWarnings"]

_MOST_SEARCHED = 10_000  # subscriptions; if there are more, what they use is not searched


class SubscriptionWarnings:
    """Warnings on subscriptions, and by stream."""

    def __init__(self, registry: Registry, room: MatchRoom) -> None:
        self._registry, self._room = registry, room

    def with_warnings(self, subscription: Subscription, query: Query) -> Subscription:
        """The subscription, with warnings about its attributes as of now."""
        watch = self._room.watches.get(query.tables[0].name)
        if watch is None or not watch.events or not watch.unmet:
            return subscription
        if not any(atom.column.name in watch.unmet for atom in atoms(query.where)):
            return subscription
        found: dict[str, None] = {}
        for name, kinds in _kinds_used(query).items():
            text = watch.warning(name, kinds)
            if text is not None:
                found[text] = None
        if not found:
            return subscription
        return replace(subscription, warnings=(*subscription.warnings, *found))

    def plain_with_warnings(self, subscription: Subscription, filter: PlainFilter) -> Subscription:
        """The same for a plain filter, whose query is made only if there may be warnings."""
        watch = self._room.watches[filter.template.stream]
        if not watch.events or not watch.unmet:
            return subscription
        used = atoms(filter.template.template.query.where)
        if not any(atom.column.name in watch.unmet for atom in used):
            return subscription
        entry = self._registry.get(subscription)
        return self.with_warnings(subscription, entry.source.query(entry.row))

    def all_with_warnings(self, subscriptions: list[Subscription]) -> list[Subscription]:
        """The same for all subscriptions of the registry; if they are many, only `by_stream` has them."""
        warned = any(watch.warnings() for watch in self._room.watches.values())
        if not warned or len(subscriptions) > _MOST_SEARCHED:
            return subscriptions
        entries = (self._registry.get(one) for one in subscriptions)
        queries = (entry.source.query(entry.row) for entry in entries)
        return [self.with_warnings(*both) for both in zip(subscriptions, queries, strict=True)]

    def by_stream(self) -> dict[str, dict[str, str]]:
        """For each stream the attributes that subscriptions use that are probably mistaken, with reasons."""
        found = {name: watch.warnings() for name, watch in self._room.watches.items()}
        out = {}
        for stream, reasons in found.items():
            used = self.in_use(stream, reasons)
            if used:
                out[stream] = {name: reasons[name] for name in reasons if name in used}
        return out

    def in_use(self, stream: str, names: Iterable[str]) -> set[str]:
        """Those of the attributes that a subscription to the open stream tests or shows."""
        watch = self._room.watches.get(stream)
        if watch is None:
            return set()
        found = {name for name in names if name in watch.used or name in watch.shown}
        if not found or len(self._registry) > _MOST_SEARCHED:
            return found
        used: set[str] = set()
        for entry in self._registry:
            if stream in entry.source.tables:
                query = entry.source.query(entry.row)
                used.update(atom.column.name for atom in atoms(query.where))
                used.update(i.expression.name for i in query.items if isinstance(i.expression, Column))
                if found <= used:
                    break
        for name in found - used:
            self._room.discard_attribute(stream, name)
        return found & used


def _kinds_used(query: Query) -> dict[str, int]:
    """The attributes of a query, with the kinds of values that it compares them with."""
    found: dict[str, int] = {}
    for atom in atoms(split_mixed_kinds(query.where)):
        if not isinstance(atom, IsNull):
            kinds = kind_named(kind_of_literal(atom))
            found[atom.column.name] = found.get(atom.column.name, 0) | kinds
    return found
