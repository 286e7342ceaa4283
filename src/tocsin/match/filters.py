"""Filter subscriptions as deltas: one matching index per stream or table.

A change of a table is a row that goes and a row that comes; both are matched like events, and
what matches before and after with an equal projection cancels. An event of a stream is a row
that comes.

Candidates and verification are the index's business; this class adds signs, sequence numbers
and projections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocsin.language.algebra import Column, Query
from tocsin.language.shape import Plan, Shape
from tocsin.match.base import MatchIndex, unpack
from tocsin.match.scan import Scan
from tocsin.model.columns import Index, Rows
from tocsin.model.delta import Deltas
from tocsin.predicate.compile import flatten
from tocsin.predicate.evaluate import Facts
from tocsin.store.step import Step

__all__ = ["Filters"]

Projection = tuple[tuple[str, str], ...]  # (name in the answer, column); empty: the whole event


class Filters:
    """All filter subscriptions; `make_index` chooses the matching index."""

    shapes = (Shape.FILTER,)

    def __init__(self, make_index: Callable[[], MatchIndex] = Scan) -> None:
        self._make_index = make_index
        self._indexes: dict[str, MatchIndex] = {}
        self._plans: dict[int, Plan] = {}
        self._projections: list[Projection] = []
        self._projection_of: Index = np.empty(0, np.int64)  # by slot

    def add(self, slots: Sequence[int], plans: Sequence[Plan]) -> None:
        by_relation: dict[str, list[tuple[int, Plan]]] = {}
        for slot, plan in zip(slots, plans, strict=True):
            by_relation.setdefault(plan.query.tables[0].name, []).append((slot, plan))
        for relation, members in by_relation.items():
            index = self._indexes.setdefault(relation, self._make_index())
            filters = flatten(plan.filters[0] for _, plan in members)
            index.add(np.array([slot for slot, _ in members]), filters)
            for slot, plan in members:
                self._plans[slot] = plan
                self._project(slot, plan.query)

    def remove(self, slots: Sequence[int]) -> None:
        for slot in slots:
            plan = self._plans.pop(slot)
            self._indexes[plan.query.tables[0].name].remove(np.array([slot]))

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
                slot, row = unpack(self._indexes[name].match(events.rows))
                seq = step.seq[events.position[row]]
                parts.append(self._deltas(seq, slot, np.ones(len(row), np.int8), events.rows, row))
        return Deltas.concat(parts)

    def content(self, slot: int, step: Step) -> Rows:
        """The rows of a table that match now; a stream has no content."""
        plan = self._plans[slot]
        store = step.tables.get(plan.query.tables[0].name)
        if store is None:
            return Rows((), 0)
        alive = store.alive()
        found = alive[Facts(store.rows.take(alive)).matches(plan.filters[0])]
        return _projected(store.rows.take(found), self._projections[self._projection_of[slot]])

    def stats(self) -> dict[str, Any]:
        return {name: index.stats() for name, index in self._indexes.items()}

    def _project(self, slot: int, query: Query) -> None:
        projection = tuple(
            (i.name, i.expression.name) for i in query.items if isinstance(i.expression, Column)
        )
        if projection not in self._projections:
            self._projections.append(projection)
        if slot >= len(self._projection_of):
            grown = np.zeros(max(64, 2 * slot + 1), np.int64)
            grown[: len(self._projection_of)] = self._projection_of
            self._projection_of = grown
        self._projection_of[slot] = self._projections.index(projection)

    def _deltas(self, seq: Index, slot: Index, sign: Any, rows: Rows, row: Index) -> Deltas:
        used, source = np.unique(self._projection_of[slot], return_inverse=True)
        sources = tuple(_projected(rows, self._projections[p]) for p in used.tolist())
        return Deltas(seq, slot, sign, source.astype(np.int32), row, sources)

    def _check(self) -> None:
        for index in self._indexes.values():
            index._check()
        assert sum(i.stats()["subscriptions"] for i in self._indexes.values()) == len(self._plans)


def _projected(rows: Rows, projection: Projection) -> Rows:
    return rows.project(dict(projection)) if projection else rows
