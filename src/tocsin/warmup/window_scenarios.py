"""Rehearsals of windows: events in and out of order, by event time and by arrival."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine

__all__ = ["rehearse_windows"]

_BEGIN = datetime(2024, 5, 1, tzinfo=UTC)
_ITEMS = ("COUNT(*)", "SUM(ms), AVG(load)", "MAX(load)", "MIN(ms)", "MAX(ok)", "MAX(load), COUNT(*)")
_WHERE = ("page = :p AND ms BETWEEN :lo AND :hi", "ms BETWEEN :lo AND :hi")


def _events(count: int, second: int, rng: np.random.Generator) -> Any:
    """Events of some seconds, out of order by one."""
    at = 1_000_000 * second + np.arange(count) * 10_000 - rng.integers(0, 1_000_000, count)
    columns = {
        "page": [f"/p{n}" for n in rng.integers(0, 9, count)],
        "ms": rng.integers(0, 1000, count),
        "load": rng.random(count),
        "ok": rng.random(count) > 0.5,
        "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
    }
    return pa.table(columns)


def rehearse_windows() -> None:
    """Aggregates, extremes, filters, top-k and joins over windows of both kinds."""
    rng, now = np.random.default_rng(0), [_BEGIN]
    engine = Engine(clock=lambda: now[0])
    engine.execute("CREATE STREAM hits (page STRING, ms BIGINT, load DOUBLE, ok BOOLEAN, at TIMESTAMP)")
    first = 1
    for options in ("window = '4 seconds', late = '1 second'", "window = '4 seconds'"):
        for items in _ITEMS:
            for where in _WHERE:
                low = rng.integers(0, 1000, 60)
                values = {"p": [f"/p{n % 9}" for n in range(60)], "lo": low, "hi": low + 200}
                used = {name: value for name, value in values.items() if f":{name}" in where}
                params = pa.table({"id": np.arange(first, first + 60), **used})
                engine.subscribe_many(f"SELECT {items} FROM hits WHERE {where} WITH ({options})", params)
                first += 60
        engine.subscribe(f"SELECT * FROM hits WHERE ms > 900 WITH ({options})")
        engine.subscribe(f"SELECT page, ms FROM hits ORDER BY ms DESC LIMIT 5 WITH ({options})")
        engine.subscribe(f"SELECT DISTINCT page FROM hits WHERE ms > 500 WITH ({options})")
        first += 10  # ids of those
        join = "hits l JOIN hits r ON l.ms = r.ms WHERE l.page = '/p1'"
        engine.subscribe(f"SELECT l.ms AS a, r.ms AS b FROM {join} WITH ({options})")
    for second in range(0, 20, 2):
        now[0] += timedelta(seconds=2)
        engine.apply("hits", _events(200, second, rng))
        engine.publish("hits", {"page": "/p1", "ms": 5, "load": 0.5, "at": now[0]})
    engine.unsubscribe_many(np.arange(1, 700, 3))
    now[0] += timedelta(seconds=9)
    engine.tick()
    engine.apply("hits", _events(200, 60, rng))
    engine.contents()
