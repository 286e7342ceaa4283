"""Top-k, MIN and MAX in the engine against the scan room (`rank_show.py engine`).

Half of the subscriptions are top-k, a quarter MIN, a quarter MAX, over uniform ranges of one table. Deltas of
a sample are compared with the scan's, and contents at the end with the reference. The scan would take hours
for all subscriptions: it is measured with the sample and with a tenth of it, and extrapolated linearly.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pyarrow as pa
from claims import Claim, Claims, say

from tocsin import Engine
from tocsin.engine import Rooms
from tocsin.errors import TocsinError
from tocsin.rank.scan import RankScan
from tocsin.reference import evaluate, row_key
from tocsin.room import Room

TABLE = "CREATE TABLE stocks (id BIGINT, risk DOUBLE, per DOUBLE, PRIMARY KEY (id))"
WHERE = "FROM stocks WHERE risk BETWEEN :low AND :high"
TEMPLATES = {
    f"SELECT * {WHERE} ORDER BY per LIMIT 10": 0.5,
    f"SELECT MIN(per) {WHERE}": 0.25,
    f"SELECT MAX(per) {WHERE}": 0.25,
}
Parts = dict[str, Any]  # by template: a table of `id`, `low` and `high`


def subscriptions(rng: np.random.Generator, count: int) -> Parts:
    """Subscriptions by template; ids are consecutive over all templates."""
    out, first = {}, 1
    for template, share in TEMPLATES.items():
        n = round(count * share)
        low, high = np.sort(rng.random((n, 2)), axis=1).T
        out[template] = pa.table({"id": np.arange(first, first + n), "low": low, "high": high})
        first += n
    return out


def sampled(rng: np.random.Generator, parts: Parts, share: float) -> Parts:
    """A share of each template's subscriptions."""
    return {
        template: rows.take(pa.array(np.sort(rng.choice(len(rows), max(1, round(len(rows) * share)), False))))
        for template, rows in parts.items()
    }


def stocks(rng: np.random.Generator, ids: Any) -> Any:
    return pa.table({"id": ids, "risk": rng.random(len(ids)), "per": rng.random(len(ids))})


def changes(rng: np.random.Generator, rows: int, count: int, batches: int) -> list[Any]:
    """Half are updates of `per`, a quarter deletes, a quarter inserts of new rows."""
    alive, fresh, out = np.arange(rows), rows, []
    for _ in range(batches):
        old = rng.choice(alive, count - count // 4, replace=False)
        deleted, new = old[: count // 4], np.arange(fresh, fresh + count // 4)
        fresh += len(new)
        alive = np.concatenate([np.setdiff1d(alive, deleted), new])
        ops = np.repeat(["delete", "update", "insert"], [len(deleted), len(old) - len(deleted), len(new)])
        batch = stocks(rng, np.concatenate([old, new])).append_column("_op", pa.array(ops))
        out.append(batch.take(pa.array(rng.permutation(len(batch)))))
    return out


def engine_with(room: type[Room], rows: Any, parts: Parts) -> Engine:
    engine = Engine(rooms=Rooms(rank=room))
    engine.execute(TABLE)
    engine.apply("stocks", rows)
    for template, params in parts.items():
        engine.subscribe_many(template, params)
    return engine


def show_engine(options: argparse.Namespace) -> Claims:
    """`Engine.apply` with 100,000 top-k and 100,000 MIN and MAX, 50 times the scan room."""
    from tocsin.rank.room import RankRoom

    rng = np.random.default_rng(options.seed)
    rows, parts = stocks(rng, np.arange(options.rows)), subscriptions(rng, options.subscriptions)
    batches = changes(rng, options.rows, options.changes, options.repeat + 1)
    sample = sampled(rng, parts, options.sample / options.subscriptions)
    few = sampled(rng, sample, 0.1)
    began = time.perf_counter()
    engines = {"rank": engine_with(RankRoom, rows, parts)}
    load_s = time.perf_counter() - began
    engines |= {"scan": engine_with(RankScan, rows, sample), "few": engine_with(RankScan, rows, few)}
    ids = np.concatenate([table["id"].to_numpy() for table in sample.values()])
    measured: list[dict[str, float]] = []
    for number, batch in enumerate(batches):
        say(f"batch {number} of {len(batch):,} changes" + ("" if number else ": builds, not counted"))
        emitted, seconds = {}, {}
        for name, engine in engines.items():
            began = time.perf_counter()
            emitted[name] = engine.apply("stocks", batch)
            seconds[name] = time.perf_counter() - began
        measured.append({**seconds, "changes": len(batch), "deltas": len(emitted["rank"])})
        mine = emitted["rank"].take(np.isin(emitted["rank"].subscription, ids))
        if sorted(map(str, mine)) != sorted(map(str, emitted["scan"])):
            raise TocsinError(f"deltas of batch {number} differ from the scan's")
    _check_contents(engines["rank"], ids[:: max(1, len(ids) // 20)].tolist())
    counted = {name: sum(one[name] for one in measured[1:]) for name in engines}
    many, less = len(ids), sum(len(table) for table in few.values())
    slope = (counted["scan"] - counted["few"]) / (many - less)
    scan_s = counted["scan"] + slope * (options.subscriptions - many)
    yield Claim("engine", scan_s / counted["rank"], "times the scan room", at_least=50).show(
        options,
        subscriptions=options.subscriptions,
        sample=many,
        load_s=load_s,
        counted_s=counted["rank"],
        scan_s_extrapolated=scan_s,
        batches=measured,
        stats=engines["rank"].stats(),
    )


def _check_contents(engine: Engine, ids: list[int]) -> None:
    """Raise unless contents are those of the reference."""
    database = {"stocks": engine.rows("stocks").to_pylist()}
    for id in ids:
        right = [row_key(row) for row in evaluate(engine.query(id), database, {"stocks": ("id",)})]
        if [row_key(row) for row in engine.content(id)] != right:
            raise TocsinError(f"the content of subscription {id} differs from the reference")
