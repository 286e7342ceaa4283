"""The demo's script on an embedded engine: what a pipeline must come to."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from tocsin.engine import Engine
from tocsin.lab.demo.flights import DDL, FlightChange
from tocsin.lab.demo.script import Script
from tocsin.language.algebra import Query
from tocsin.model.change import ChangeBatch


class Ran(NamedTuple):
    engine: Engine
    changes: list[FlightChange]
    queries: dict[int, Query]
    labels: dict[int, str]
    keys: dict[str, tuple[str, ...]]
    tables: list[pa.Table]  # deltas


def embedded(script: Script, size: int = 500) -> Ran:
    """Everything in one engine, `size` changes at a time; rows as JSON."""
    engine = Engine()
    engine.execute(DDL)
    wanted = script.draw_subscriptions()
    engine.subscribe_texts([w.sql for w in wanted], ids=[w.id for w in wanted])
    queries = {w.id: engine.query(w.id) for w in wanted}
    labels = {w.id: w.shape for w in wanted}
    emitted: list[Any] = [engine.contents()]
    changes = script.changes()
    for start in range(0, len(changes), size):
        part: dict[str, list[FlightChange]] = {}
        for change in changes[start : start + size]:
            part.setdefault(change.table, []).append(change)
        batches = {}
        for name, own in part.items():
            rows, ops, seqs = [c.row for c in own], [c.op for c in own], [c.seq for c in own]
            batch, bad = ChangeBatch.from_dicts(engine.schema(name), rows, ops, seqs)
            batches[name] = batch.or_raise(bad)
        emitted.append(engine.apply_all(batches))
    keys = {schema.name: schema.key for schema in engine.schemas()}
    return Ran(engine, changes, queries, labels, keys, [deltas.to_arrow(rows=True) for deltas in emitted])
