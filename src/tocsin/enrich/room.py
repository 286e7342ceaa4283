"""Enrichment: each event with the rows of tables that it joins, filtered as one row.

    events ─► keys ─► orders of the tables ─► joined rows ─► matching index ─► Deltas       by signature

The orders are those of the join room (`join/tables.py`): they follow the tables step by step, so a look-up
takes O(log n), whatever the column. The joined rows are events of a virtual relation (`virtual.py`), which a
match room filters: 100,000 subscriptions of one signature cost what filters over a stream cost. A change of a
table emits nothing, and there is no content, as for filters over streams.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.enrich.scan import explain_event
from tocsin.enrich.virtual import column_of, used_columns, virtual_plan, virtual_plans
from tocsin.join._kernels.matches import COUNT, PairBuffer, Probes, extend_rows
from tocsin.join.groups import MAX_CANDIDATES, CandidateBatches
from tocsin.join.signature import KeySpec, Signature
from tocsin.join.tables import JoinTables, key_codes
from tocsin.language.algebra import Query
from tocsin.language.shape import Plan, Shape
from tocsin.match.base import MatchIndex
from tocsin.match.index import Auto
from tocsin.match.room import MatchRoom
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Rows, Vector, distinct, longer
from tocsin.model.delta import NO_DELTAS, Deltas
from tocsin.room import Room
from tocsin.store.plans import FlatPlans
from tocsin.store.step import Step

__all__ = ["EnrichRoom"]


class _Lookup(NamedTuple):
    """Rows of the table at `other` with the key that the row at `here` has."""

    here: int
    key: KeySpec
    other: int
    other_key: KeySpec


@dataclass
class _EnrichFamily:
    """Subscriptions of one signature."""

    signature: Signature
    place: int  # of the stream
    lookups: tuple[_Lookup, ...]
    columns: dict[str, tuple[int, str]] = field(default_factory=dict)  # of joined rows: place, name
    count: int = 0

    @property
    def stream(self) -> str:
        return self.signature.tables[self.place]


class EnrichRoom(Room):
    """Streams joined with tables; `make_index` makes the matching index of a signature."""

    name = "enrich"
    shapes = (Shape.ENRICH,)

    def __init__(self, make_index: Callable[[], MatchIndex] = Auto) -> None:
        self._filters = MatchRoom(make_index)
        self._families: dict[str, _EnrichFamily] = {}  # by the name of the virtual relation
        self._names: list[str] = []
        self._family_of: NDArray[np.int32] = np.empty(0, np.int32)  # by slot; -1: none
        self._tables = JoinTables()

    # -- registering -------------------------------------------------------------------------------

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        if isinstance(plans, FlatPlans):
            made = virtual_plans(plans)
            self._filters.add(slots, made)
            self._enter(plans.query, slots, made)
            return
        virtual = [virtual_plan(plan) for plan in plans]
        self._filters.add(slots, virtual)
        for slot, plan, one in zip(slots.tolist(), plans, virtual, strict=True):
            self._enter(plan.query, np.array([slot]), [one])

    def _enter(self, query: Query, slots: Index, made: Sequence[Plan] | FlatPlans) -> None:
        signature = Signature.of(query)
        name = str(signature)
        if name not in self._families:
            place = next(p for p, table in enumerate(query.tables) if table.stream)
            self._families[name] = _EnrichFamily(signature, place, _lookups(signature, place))
            self._names += [name] if name not in self._names else []
        family = self._families[name]
        for column in used_columns(made):
            place_text, _, own = column.partition(".")
            family.columns[column] = int(place_text), own
        family.count += len(slots)
        top = int(slots.max(initial=-1)) + 1
        if top > len(self._family_of):
            self._family_of = longer(self._family_of, max(64, top, 2 * len(self._family_of)), -1)
        self._family_of[slots] = self._names.index(name)

    def remove(self, slots: Index) -> None:
        self._filters.remove(slots)
        of = self._family_of[slots]
        for number in distinct(of).tolist():
            family = self._families[self._names[number]]
            family.count -= int((of == number).sum())
            if not family.count:
                del self._families[self._names[number]]
        self._family_of[slots] = -1
        if not self._families:
            self._tables.clear()
        self._filters.drop_relations(self._families)

    def drop_relations(self, catalog: Collection[str]) -> None:
        self._filters.drop_relations(self._families)

    def reads(self, stream: str) -> bool:
        return any(family.stream == stream for family in self._families.values())

    def probes(self, table: str) -> set[tuple[str, str]]:
        """Streams and their columns that are joined with the key of a table."""
        return {
            probe
            for family in self._families.values()
            for lookup in family.lookups
            if lookup.here == family.place and family.signature.tables[lookup.other] == table
            for probe in ((family.stream, column) for column in lookup.key.columns)
        }

    # -- answers -----------------------------------------------------------------------------------

    def deltas(self, step: Step) -> Deltas:
        if not self._families:
            return NO_DELTAS
        try:
            self._tables.begin(step)
            events = {}
            for name, family in self._families.items():
                batch = step.events.get(family.stream)
                if batch is not None and len(batch):
                    events[name] = self._joined(family, batch, step)
            return self._filters.deltas(Step({}, step.seq, {}, events)) if events else NO_DELTAS
        except BaseException:
            self._tables.clear()  # orders may contain half of the step
            raise
        finally:
            self._tables.end()

    def content(self, slot: int, step: Step) -> Rows:
        """Nothing: an event passes once."""
        return Rows((), 0)

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        return False, ("a row of a table emits nothing by itself: explain an event",)

    def explain_event(self, plan: Plan, place: int, event: Rows, step: Step) -> tuple[bool, tuple[str, ...]]:
        return explain_event(plan, place, event, step)

    def stats(self) -> dict[str, Any]:
        return self._filters.stats()

    # -- inside ------------------------------------------------------------------------------------

    def _joined(self, family: _EnrichFamily, batch: ChangeBatch, step: Step) -> ChangeBatch:
        """The joined rows of a batch of events, as events in the same order."""
        position = np.searchsorted(step.seq, np.asarray(batch.seq))
        rows: dict[int, Index] = {family.place: np.arange(len(batch))}
        for lookup in family.lookups:
            at, found = self._look_up(family, lookup, batch, rows, position)
            rows = {place: slots[at] for place, slots in rows.items()} | {lookup.other: found}
        event = rows[family.place]
        columns = [
            (name, self._column(family, place, own, batch, step).take(rows[place]))
            for name, (place, own) in family.columns.items()
        ]
        zeros = np.zeros(len(event), np.uint8)
        joined = Rows(columns, len(event))
        return replace(
            batch, op=zeros, seq=np.asarray(batch.seq)[event], rows=joined, given=None, origin=event
        )

    def _look_up(
        self,
        family: _EnrichFamily,
        lookup: _Lookup,
        batch: ChangeBatch,
        rows: dict[int, Index],
        position: Index,
    ) -> tuple[Index, Index]:
        """(number of the joined row so far, row of the next table), of rows alive at the event."""
        mine, names = rows[lookup.here], family.signature.tables
        if lookup.here == family.place:
            own = Rows([(c, column_of(batch, c)) for c in lookup.key.columns], len(batch))
            code, valid = key_codes(lookup.key, own, self._tables.numbers)
        else:
            code, valid = self._tables[names[lookup.here]].codes(lookup.key)
        other = self._tables[names[lookup.other]]
        order, at = other.order(lookup.other_key, None).arrays, position[rows[family.place]]
        probes = Probes(code[mine], valid[mine], at, True)
        size = 1024 + min(2 * len(mine), MAX_CANDIDATES)
        buffer = PairBuffer(np.empty(size, np.int64), np.empty(size, np.int64), np.zeros(2, np.int64))
        batches, found = CandidateBatches(buffer, len(mine)), [np.empty((2, 0), np.int64)]
        while batches.unfinished:
            extend_rows(order, other.lifetimes(), probes, batches.buffer)
            if (filled := batches.filled()) is not None:
                count = int(filled.progress[COUNT])
                found.append(np.stack([filled.first[:count], filled.second[:count]]))
        numbers, slots = np.concatenate(found, axis=1)
        return numbers, slots

    def _column(self, family: _EnrichFamily, place: int, name: str, batch: ChangeBatch, step: Step) -> Vector:
        if place == family.place:
            return column_of(batch, name)
        return step.tables[family.signature.tables[place]].column(name)

    def _check(self) -> None:
        self._filters._check()
        self._tables._check()
        for number, name in enumerate(self._names):
            count = self._families[name].count if name in self._families else 0
            assert count == (self._family_of == number).sum()


def _lookups(signature: Signature, place: int) -> tuple[_Lookup, ...]:
    """From the stream through the tree of joins, table by table."""
    done, found, left = {place}, [], list(signature.edges)
    while left:
        edge = next(e for e in left if len(done & set(e.places)) == 1)
        left.remove(edge)
        here = next(p for p in edge.places if p in done)
        other = edge.other(here)
        done.add(other)
        found.append(_Lookup(here, edge.key(here), other, edge.key(other)))
    return tuple(found)
