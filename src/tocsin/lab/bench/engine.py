"""How many changes per second the embedded engine takes, shape by shape.

A run makes an engine, loads the tables, subscribes, then applies the changes in batches; only that last
part is timed. The first run is also checked: contents kept from its deltas, for a few of the
subscriptions, against the reference over the final tables. A shape that is wrong has no time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tocsin.client import Client
from tocsin.engine import Engine
from tocsin.lab.bench.workloads import DDL, SHAPES, Change, draw_queries, stocks
from tocsin.model.change import ChangeBatch
from tocsin.model.delta import Deltas
from tocsin.model.schema import Stream
from tocsin.reference import as_bag, evaluate

__all__ = ["Result", "Setting", "measure_engine", "show_results"]

SAMPLE = 5  # subscriptions of a shape that are checked


@dataclass(frozen=True)
class Setting:
    """The size of the experiment."""

    subscriptions: int = 500
    changes: int = 1000
    batch: int = 250
    repeat: int = 3
    seed: int = 0


@dataclass(frozen=True)
class Result:
    """One shape: its best time, how far the others were off it, and what was checked."""

    shape: str
    subscriptions: int
    changes: int
    deltas: int
    checked: int
    right: int
    seconds: float | None = None  # the best run
    spread: float | None = None  # the slowest run over the best, minus 1

    @property
    def ok(self) -> bool:
        return self.right == self.checked

    @property
    def rate(self) -> float | None:
        return None if self.seconds is None else self.changes / self.seconds

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"changes_per_second": self.rate, "ok": self.ok}


def measure_engine(shapes: Sequence[str], setting: Setting) -> list[Result]:
    """Measure some shapes, or all."""
    return [_measure(shape, setting) for shape in shapes or SHAPES]


def show_results(results: Iterable[Result], console: Console) -> None:
    """As a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("shape", "subscriptions", "changes", "deltas", "changes/s", "spread", "checked"):
        table.add_column(name, justify="left" if name == "shape" else "right")
    for r in results:
        rate = "wrong" if r.rate is None else f"{r.rate:,.0f}"
        spread = "" if r.spread is None else f"+{100 * r.spread:.0f} %"
        counts = (f"{r.subscriptions:,}", f"{r.changes:,}", f"{r.deltas:,}")
        table.add_row(r.shape, *counts, rate, spread, f"{r.right} of {r.checked}")
    console.print(table)


def _measure(shape: str, setting: Setting) -> Result:
    queries = draw_queries(shape, setting.subscriptions, setting.seed)
    work = stocks(setting.changes, setting.seed)
    engine = _engine(queries, work.load)
    batches = _batches(engine, work.changes, setting.batch)
    sample = Random(setting.seed).sample(range(1, len(queries) + 1), min(SAMPLE, len(queries)))
    client = Client()
    for number in sample:
        client.start(number, engine.content(number))
    told, first = _timed(engine, batches)
    client.receive(delta for deltas in told for delta in _of(deltas, sample))
    right = sum(_is_right(engine, client, number, work.changes) for number in sample)
    deltas = sum(map(len, told))
    if right < len(sample):
        return Result(shape, len(queries), len(work.changes), deltas, len(sample), right)
    times = [first] + [_timed(_engine(queries, work.load), batches)[1] for _ in range(setting.repeat - 1)]
    best = min(times)
    spread = max(times) / best - 1
    return Result(shape, len(queries), len(work.changes), deltas, len(sample), right, best, spread)


def _engine(queries: list[str], load: list[Change]) -> Engine:
    engine = Engine()
    engine.execute(DDL)
    for batch in _batches(engine, load, len(load) or 1):
        engine.apply_all(batch)
    for query in queries:
        engine.subscribe(query)
    return engine


def _batches(engine: Engine, changes: list[Change], size: int) -> list[dict[str, ChangeBatch]]:
    """Checked batches with their sequence numbers, ready to apply: reading rows is not measured."""
    out = []
    for start in range(0, len(changes), size):
        batch: dict[str, ChangeBatch] = {}
        numbered = list(enumerate(changes[start : start + size], start=engine.last_seq + 1 + start))
        for table in dict.fromkeys(change.table for _, change in numbered):
            own = [(seq, change) for seq, change in numbered if change.table == table]
            rows, ops, seqs = [c.row for _, c in own], [c.op for _, c in own], [seq for seq, _ in own]
            made, bad = ChangeBatch.from_dicts(engine.schema(table), rows, ops, seqs)
            batch[table] = made.or_raise(bad)
        out.append(batch)
    return out


def _timed(engine: Engine, batches: list[dict[str, ChangeBatch]]) -> tuple[list[Deltas], float]:
    began = time.perf_counter()
    told = [engine.apply_all(batch) for batch in batches]
    return told, time.perf_counter() - began


def _of(deltas: Deltas, ids: list[int]) -> Deltas:
    return deltas.take(np.isin(deltas.subscription, ids))


def _is_right(engine: Engine, client: Client, number: int, changes: list[Change]) -> bool:
    """The content kept from deltas is the query over the tables; of a stream, over all its events."""
    schemas = engine.schemas()
    database = {s.name: engine.rows(s.name).to_pylist() for s in schemas if not isinstance(s, Stream)}
    database |= {
        s.name: [c.row for c in changes if c.table == s.name] for s in schemas if isinstance(s, Stream)
    }
    answer = evaluate(engine.query(number), database, {s.name: s.key for s in schemas})
    return as_bag(client.content(number)) == as_bag(answer)
