"""The demo's script on an embedded engine: what a pipeline must come to."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tocsin.demo.flights import DDL, Change
from tocsin.demo.script import Script
from tocsin.engine import Engine
from tocsin.language.algebra import Query
from tocsin.model.change import ChangeBatch
from tocsin.model.delta import Delta


class Ran(NamedTuple):
    engine: Engine
    changes: list[Change]
    queries: dict[int, Query]
    labels: dict[int, str]
    keys: dict[str, tuple[str, ...]]
    deltas: list[Delta]


def embedded(script: Script) -> Ran:
    """Everything in one engine; rows as JSON gives them back."""
    engine = Engine()
    engine.execute(DDL)
    made = [engine.subscribe(w.sql, id=w.id) for w in script.wanted()]
    queries = {s.id: engine.query(s) for s in made}
    labels = {s.id: "stream" if queries[s.id].tables[0].name == "notices" else str(s.shape) for s in made}
    told: list[Any] = [engine.contents()]
    changes = script.changes()
    for start in range(0, len(changes), 500):
        part: dict[str, list[Change]] = {}
        for change in changes[start : start + 500]:
            part.setdefault(change.table, []).append(change)
        batches = {}
        for name, own in part.items():
            rows, ops, seqs = [c.row for c in own], [c.op for c in own], [c.seq for c in own]
            batch, bad = ChangeBatch.from_dicts(engine.schema(name), rows, ops, seqs)
            batches[name] = batch.or_raise(bad)
        told.append(engine.apply_all(batches))
    tables = [deltas.to_arrow(rows=True).to_pylist() for deltas in told]
    deltas = [Delta(r["seq"], r["subscription"], r["sign"], json.loads(r["row"])) for t in tables for r in t]
    keys = {schema.name: schema.key for schema in engine.schemas()}
    return Ran(engine, changes, queries, labels, keys, deltas)
