"""Filter subscriptions as deltas: one matching index per stream or table.

A change of a table is a row that goes and a row that comes; both are matched like events, and
what matches before and after with an equal projection cancels. An event of a stream is a row
that comes.

Candidates and verification are the index's business; this class adds signs, sequence numbers
and projections.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import SubscriptionError
from tocsin.language.algebra import Column, Query
from tocsin.language.shape import Plan, Shape
from tocsin.match.base import MatchIndex, in_order, unpack
from tocsin.match.index import Auto
from tocsin.model.columns import Index, Rows, distinct, longer
from tocsin.model.delta import Deltas
from tocsin.predicate.compile import flatten
from tocsin.predicate.deferred import DeferredFilters
from tocsin.predicate.evaluate import Facts
from tocsin.predicate.flat import FlatFilters
from tocsin.store.step import Step

__all__ = ["MatchRoom", "Projection", "projection_of"]

Projection = tuple[tuple[str, str], ...]  # (name in the answer, column); empty: the whole event


def projection_of(query: Query) -> Projection:
    """What a filter's answer shows of a row."""
    return tuple((i.name, i.expression.name) for i in query.items if isinstance(i.expression, Column))


class MatchRoom:
    """All filter subscriptions; `make_index` chooses the matching index."""

    shapes = (Shape.FILTER,)

    def __init__(self, make_index: Callable[[], MatchIndex] = Auto) -> None:
        self._make_index = make_index
        self._indexes: dict[str, MatchIndex] = {}
        self._relations: list[str] = []
        self._projections: list[Projection] = []
        self._relation_of: NDArray[np.int16] = np.empty(0, np.int16)  # by slot; -1: none
        self._projection_of: NDArray[np.int32] = np.empty(0, np.int32)

    # -- filters come and go -----------------------------------------------------------------------

    def add(self, slots: Sequence[int], plans: Sequence[Plan]) -> None:
        """Take plans in, one by one or several; all or none."""
        groups: dict[tuple[str, Projection], list[tuple[int, Plan]]] = {}
        for slot, plan in zip(slots, plans, strict=True):
            key = plan.query.tables[0].name, projection_of(plan.query)
            groups.setdefault(key, []).append((slot, plan))
        ready = []
        for (relation, projection), members in groups.items():
            filters = flatten(plan.filters[0] for _, plan in members)
            self.check(relation, filters)
            ready.append((relation, np.array([slot for slot, _ in members]), filters, projection))
        for relation, own, filters, projection in ready:
            self.add_flat(relation, own, filters, projection)

    def check(self, relation: str, filters: FlatFilters | DeferredFilters) -> None:
        """Raise if the relation's index does not take one of the filters."""
        taken = self._index(relation).supports(self._ready(relation, filters))
        if not taken.all():
            index = self._index(relation)
            which = f" of filter {int(np.argmin(taken))}" if filters.count > 1 else ""
            raise SubscriptionError(
                f"the index {index.stats()['index']!r} does not support the condition{which}: it takes no "
                f"{index.refuses}",
                hint="the default index takes every condition: Rooms(match=Auto)",
            )

    def add_flat(
        self, relation: str, slots: Index, filters: FlatFilters | DeferredFilters, projection: Projection
    ) -> None:
        """Take flat filters in, under slots."""
        if relation not in self._relations:
            self._relations.append(relation)
        if projection not in self._projections:
            self._projections.append(projection)
        most = int(slots.max(initial=-1)) + 1
        if most > len(self._relation_of):
            size = max(64, most, 2 * len(self._relation_of))
            self._relation_of = longer(self._relation_of, size, -1)
            self._projection_of = longer(self._projection_of, size)
        self._index(relation).add(slots, self._ready(relation, filters))
        self._relation_of[slots] = self._relations.index(relation)
        self._projection_of[slots] = self._projections.index(projection)

    def _ready(self, relation: str, filters: FlatFilters | DeferredFilters) -> Any:
        """The filters as the relation's index takes them."""
        return filters if self._index(relation).takes_deferred else filters.flat()

    def remove(self, slots: Index | Sequence[int]) -> None:
        """Let filters go."""
        slots = np.asarray(slots, np.int64)
        which = self._relation_of[slots]
        for number in distinct(which).tolist():
            self._indexes[self._relations[number]].remove(slots[which == number])
        self._relation_of[slots] = -1

    def keep(self, relations: Collection[str]) -> None:
        """Forget the indexes of streams and tables that are no more; nobody subscribes to them."""
        for name in [name for name in self._indexes if name not in relations]:
            if not self._indexes[name].stats()["subscriptions"]:
                del self._indexes[name]

    # -- answers -----------------------------------------------------------------------------------

    def deltas(self, step: Step) -> Deltas:
        """How answers change in a step."""
        parts = []
        for name, changed in step.changed.items():
            if name in self._indexes:
                signed = changed.signed()
                rows = step.tables[name].rows.take(signed.slot)
                slot, row = unpack(self._indexes[name].match(rows))
                seq = step.seq[signed.position[row]]
                parts.append(self._deltas(seq, slot, signed.sign[row], rows, row).consolidate())
        for name, events in step.events.items():
            if name in self._indexes:
                found = self._indexes[name].match(events.rows)
                parts.append(self._told(found, step.seq[events.position], events.rows))
        return Deltas.concat(parts)

    def backfill(self, relation: str, slots: Index, filters: FlatFilters, past: Any) -> list[Deltas]:
        """Matches of filters among past events: `past` is a list of (seq, rows)."""
        index = self._make_index()
        index.add(np.arange(filters.count), filters)
        out = []
        for seq, rows in past:
            slot, row = unpack(index.match(rows))
            out.append(self._told((slots[slot] << 32) | row, seq, rows))
        return out

    def content(self, plan: Plan, step: Step) -> Rows:
        """The rows of a table that match now; a stream has no content."""
        store = step.tables.get(plan.query.tables[0].name)
        if store is None:
            return Rows((), 0)
        alive = store.alive()
        found = alive[Facts(store.rows.take(alive)).matches(plan.filters[0])]
        return _projected(store.rows.take(found), projection_of(plan.query))

    def stats(self) -> dict[str, Any]:
        return {name: index.stats() for name, index in self._indexes.items()}

    def _index(self, relation: str) -> MatchIndex:
        if relation not in self._indexes:
            self._indexes[relation] = self._make_index()
        return self._indexes[relation]

    def _told(self, packed: Index, seq: Index, rows: Rows) -> Deltas:
        """Matches as +1, in order of event and slot; `seq` by row."""
        row, slot = in_order(packed, len(rows))
        return self._deltas(seq[row], slot, np.ones(len(row), np.int8), rows, row)

    def _deltas(self, seq: Index, slot: Index, sign: Any, rows: Rows, row: Index) -> Deltas:
        if len(self._projections) == 1:
            used, source = [0], np.zeros(len(slot), np.int32)
        else:
            which = self._projection_of[slot]
            there = np.bincount(which, minlength=len(self._projections)) > 0
            used, source = np.flatnonzero(there).tolist(), (np.cumsum(there) - 1).astype(np.int32)[which]
        sources = tuple(_projected(rows, self._projections[p]) for p in used)
        return Deltas(seq, slot, sign, source, row, sources)

    def _check(self) -> None:
        for name, index in self._indexes.items():
            index._check()
            number = self._relations.index(name) if name in self._relations else -2
            assert index.stats()["subscriptions"] == (self._relation_of == number).sum()


def _projected(rows: Rows, projection: Projection) -> Rows:
    return rows.project(dict(projection)) if projection else rows
