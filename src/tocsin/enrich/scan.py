"""Enrichment, each subscription by itself: events as a table of one step, joined by the scan of joins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tocsin.join.scan import explain_row, joined_rows
from tocsin.join.signature import Signature
from tocsin.language.shape import Plan, Shape
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Rows
from tocsin.model.delta import Deltas
from tocsin.model.schema import Field, Table
from tocsin.room import ScanRoom
from tocsin.store.step import Step
from tocsin.store.tables import TableStore

__all__ = ["EnrichScan", "explain_event"]


class EnrichScan(ScanRoom):
    """Joins each event with tables, plan by plan."""

    name = "enrich"
    shapes = (Shape.ENRICH,)

    def deltas(self, step: Step) -> Deltas:
        parts = []
        for slot, plan in self._plans.items():
            batch = step.events.get(plan.query.tables[_place(plan)].name)
            if batch is not None and len(batch):
                event, rows = self._rows(plan, batch, step)
                seq = np.asarray(batch.seq)[event]
                parts.append(Deltas.of(seq, slot, 1, rows, np.arange(len(rows))))
        return Deltas.concat(parts)

    def _rows(self, plan: Plan, batch: ChangeBatch, step: Step) -> tuple[Index, Rows]:
        place = _place(plan)
        position = np.searchsorted(step.seq, np.asarray(batch.seq))
        whole = _with_events(step, plan.query.tables[place].name, batch.relation.fields, batch.rows)
        return joined_rows(plan, place, position, whole)

    def reads(self, stream: str) -> bool:
        return any(plan.query.tables[_place(plan)].name == stream for plan in self._plans.values())

    def probes(self, table: str) -> set[tuple[str, str]]:
        """Streams and their columns that are joined with the key of a table."""
        found = set()
        for plan in self._plans.values():
            place, names = _place(plan), [t.name for t in plan.query.tables]
            for edge in Signature.of(plan.query).edges:
                if place in edge.places and names[edge.other(place)] == table:
                    found |= {(names[place], column) for column in edge.key(place).columns}
        return found

    def content(self, slot: int, step: Step) -> Rows:
        return Rows((), 0)

    def explain_event(self, plan: Plan, place: int, event: Rows, step: Step) -> tuple[bool, tuple[str, ...]]:
        return explain_event(plan, place, event, step)


def explain_event(plan: Plan, place: int, event: Rows, step: Step) -> tuple[bool, tuple[str, ...]]:
    """Whether an event would be emitted with rows of the tables as they are, and how many there are."""
    fields = [Field(name, vector.type) for name, vector in event.columns]
    return explain_row(plan, place, 0, _with_events(step, plan.query.tables[place].name, fields, event))


def _place(plan: Plan) -> int:
    return next(p for p, table in enumerate(plan.query.tables) if table.stream)


def _with_events(step: Step, name: str, fields: object, rows: Rows) -> Step:
    """The step with events as a table, under the stream's name."""
    store = TableStore.of_events(Table(name, tuple(fields)), rows)  # type: ignore[arg-type]
    return replace(step, tables={**step.tables, name: store}, memo={})
