"""Top-k, MIN and MAX in the engine against the scan room (`rank_show.py engine` and `boxes`).

    engine   half of the subscriptions are top-k, a quarter MIN, a quarter MAX, over ranges of a column
    boxes    top-k over ranges of two columns; the same changes as messages, too

Deltas of a sample are compared with the scan's, and contents at the end with the reference. The scan would
take hours for all subscriptions: it is measured with the sample and with a tenth of it, and extrapolated
linearly. Messages are delivered to clients of a sample, whose contents are compared with brute force.
"""

from __future__ import annotations

import argparse
import re
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
from tocsin.reformulate.boxes import BoxTopk
from tocsin.room import Room

TABLE = "CREATE TABLE stocks (id BIGINT, risk DOUBLE, price DOUBLE, per DOUBLE, PRIMARY KEY (id))"
WHERE = "FROM stocks WHERE risk BETWEEN :low AND :high"
TEMPLATES = {
    f"SELECT * {WHERE} ORDER BY per LIMIT 10": 0.5,
    f"SELECT MIN(per) {WHERE}": 0.25,
    f"SELECT MAX(per) {WHERE}": 0.25,
}
BOXES = {f"SELECT * {WHERE} AND price BETWEEN :least AND :most ORDER BY per LIMIT 10": 1.0}
K = 10  # of both
Parts = dict[str, Any]  # by template: a table of `id` and its parameters


def subscriptions(rng: np.random.Generator, count: int, templates: dict[str, float]) -> Parts:
    """Subscriptions by template; ids are consecutive over all templates."""
    out, first = {}, 1
    for template, share in templates.items():
        n, names = round(count * share), re.findall(r":(\w+)", template)
        ends = np.concatenate([np.sort(rng.random((n, 2)), axis=1) for _ in names[::2]], axis=1).T
        out[template] = pa.table({"id": np.arange(first, first + n), **dict(zip(names, ends, strict=True))})
        first += n
    return out


def sampled(rng: np.random.Generator, parts: Parts, share: float) -> Parts:
    """A share of each template's subscriptions."""
    return {
        template: rows.take(pa.array(np.sort(rng.choice(len(rows), max(1, round(len(rows) * share)), False))))
        for template, rows in parts.items()
    }


def stocks(rng: np.random.Generator, ids: Any) -> Any:
    columns = {name: rng.random(len(ids)) for name in ("risk", "price", "per")}
    return pa.table({"id": ids, **columns})


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
    yield _against_scan(options, "engine", TEMPLATES, at_least=50)


def show_boxes(options: argparse.Namespace) -> Claims:
    """`Engine.apply` with 100,000 top-k over two ranges, 20 times the scan room; then as messages."""
    yield _against_scan(options, "boxes", BOXES, at_least=20)
    yield _described(options)


def _against_scan(
    options: argparse.Namespace, name: str, templates: dict[str, float], *, at_least: float
) -> Claim:
    """The room of ranks with all subscriptions, and the scan room with a sample."""
    from tocsin.rank.room import RankRoom

    rng = np.random.default_rng(options.seed)
    rows, parts = stocks(rng, np.arange(options.rows)), subscriptions(rng, options.subscriptions, templates)
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
        for room, engine in engines.items():
            began = time.perf_counter()
            emitted[room] = engine.apply("stocks", batch)
            seconds[room] = time.perf_counter() - began
        measured.append({**seconds, "changes": len(batch), "deltas": len(emitted["rank"])})
        mine = emitted["rank"].take(np.isin(emitted["rank"].subscription, ids))
        if sorted(map(str, mine)) != sorted(map(str, emitted["scan"])):
            raise TocsinError(f"deltas of batch {number} differ from the scan's")
    _check_contents(engines["rank"], ids[:: max(1, len(ids) // 20)].tolist())
    counted = {room: sum(one[room] for one in measured[1:]) for room in engines}
    many, less = len(ids), sum(len(table) for table in few.values())
    slope = (counted["scan"] - counted["few"]) / (many - less)
    scan_s = counted["scan"] + slope * (options.subscriptions - many)
    return Claim(name, scan_s / counted["rank"], "times the scan room", at_least=at_least).show(
        options,
        subscriptions=options.subscriptions,
        sample=many,
        load_s=load_s,
        counted_s=counted["rank"],
        scan_s_extrapolated=scan_s,
        batches=measured,
        stats=engines["rank"].stats(),
    )


def _described(options: argparse.Namespace) -> Claim:
    """The changes as messages: boxes sent where enumeration sends to each subscription."""
    rng, domain = np.random.default_rng(options.seed), 1_000_000
    ends = np.sort(rng.integers(0, domain, (options.subscriptions, 2, 2)), axis=2)
    points = rng.integers(0, domain, (options.rows, 2))
    servers = {"described": BoxTopk(K), "unicast": BoxTopk(K, unicast=True)}
    y = rng.permutation(options.rows) * domain
    for server in servers.values():
        server.load(np.arange(options.rows), points, y)
        server.subscribe(np.arange(options.subscriptions), ends[:, :, 0], ends[:, :, 1])
    ids = rng.integers(0, options.rows, (options.repeat + 1, options.changes))
    new_y = rng.permutation(ids.size).reshape(ids.shape) * (options.rows * domain // ids.size) + 1
    sample = rng.choice(options.subscriptions, 20, replace=False).tolist()
    clients = {slot: servers["described"].contents(slot) for slot in sample}
    counts, seconds = dict.fromkeys(("messages", "boxes", "recipients"), 0), dict.fromkeys(servers, 0.0)
    for number in range(options.repeat + 1):
        for name, server in servers.items():
            began = time.perf_counter()
            sent = server.publish(ids[number], points[ids[number]], new_y[number])
            seconds[name] += (time.perf_counter() - began) * (number > 0)
            if sent.recipients is not None:
                counts["recipients"] += len(sent.recipients.slot)
                continue
            counts["messages"] += len(sent)
            counts["boxes"] += len(sent.regions.boxes)
            for slot, client in clients.items():
                client.apply(sent.take(sent.received_by(slot, server.point(slot))))
        y[ids[number]] = new_y[number]  # of an object that changes twice the last one stays
        for slot, client in clients.items():
            inside = np.flatnonzero(((points >= ends[slot, :, 0]) & (points <= ends[slot, :, 1])).all(axis=1))
            first = inside[np.argsort(y[inside])][:K]
            if client.content() != list(zip(y[first].tolist(), first.tolist(), strict=True)):
                raise TocsinError(f"the content of subscription {slot} differs from brute force")
    less = counts["recipients"] / max(1, counts["boxes"])
    us = {name: 1e6 * taken / (options.repeat * options.changes) for name, taken in seconds.items()}
    return Claim("boxes described", less, "recipients per box", at_least=1).show(
        options, **counts, us_per_change=us, k=K
    )


def _check_contents(engine: Engine, ids: list[int]) -> None:
    """Raise unless contents are those of the reference."""
    database = {"stocks": engine.rows("stocks").to_pylist()}
    for id in ids:
        right = [row_key(row) for row in evaluate(engine.query(id), database, {"stocks": ("id",)})]
        if [row_key(row) for row in engine.content(id)] != right:
            raise TocsinError(f"the content of subscription {id} differs from the reference")
