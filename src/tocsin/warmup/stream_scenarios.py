"""Rehearsals of joins of streams in bounded memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine

__all__ = ["rehearse_stream_joins"]

_BEGIN = datetime(2024, 5, 1, tzinfo=UTC)


def rehearse_stream_joins() -> None:
    """Buffers of both sides under each kind of budget: filled, expired, cut; keys of all kinds."""
    rng = np.random.default_rng(0)
    now = [_BEGIN]
    engine = Engine(clock=lambda: now[0])
    for name in "ab":
        engine.execute(f"CREATE STREAM {name} (k BIGINT, s STRING, x DOUBLE, ok BOOLEAN, at TIMESTAMP)")
    select = "SELECT a.s, b.x, a.ok, b.at FROM a JOIN b ON a.k = b.k"
    for policy in ("heeb", "prob", "life", "rand", "lru", "lfu", "fifo"):
        engine.subscribe(f"{select} WITH (memory = 200, policy = '{policy}')")
    engine.subscribe(f"{select} WITH (memory = 200, alpha = 'adaptive')")
    engine.subscribe(f"{select} AND a.s = b.s AND a.x > 0.2 WITH (memory = '512 KB')")
    engine.subscribe(f"{select} AND a.x - b.x > 0 WITH (window = '2 minutes', memory = '512 KB')")
    near = "b.at - a.at BETWEEN INTERVAL '-5' SECOND AND INTERVAL '5' SECOND"
    engine.subscribe(f"{select} AND {near} WITH (late = '1 second')")
    engine.subscribe(f"{select} AND {near} WITH (late = '1 minute', memory = 200)")
    for n in range(40):
        now[0] += timedelta(seconds=20)
        count = 400
        rows = {
            "k": rng.zipf(1.3, count) % 5000 if n < 20 else rng.integers(0, 10**6, count),
            "s": [f"text {k}" for k in rng.integers(0, 100, count)],
            "x": rng.random(count),
            "ok": rng.random(count) > 0.5,
            "at": pa.array([now[0] + timedelta(seconds=int(s)) for s in rng.integers(0, 9, count)]),
        }
        engine.apply_all({"a": pa.table(rows), "b": pa.table(rows)})
    engine.publish("a", {"k": 7, "s": "text 7", "x": 0.5, "at": now[0]})
    engine.explain(1, {"k": 7}, table="b")
    with TemporaryDirectory() as folder:
        engine.save(Path(folder) / "saved")
        Engine.load(Path(folder) / "saved")
