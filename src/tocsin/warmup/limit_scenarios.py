"""Rehearsals of windows, joins of streams in bounded memory, deferred answers, lookups and late filters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine
from tocsin.limits.cache import CACHE_POLICIES
from tocsin.limits.models import Arrivals, Chooser, Steps

__all__ = [
    "rehearse_late_filters",
    "rehearse_lookups",
    "rehearse_refresh",
    "rehearse_stream_joins",
    "rehearse_windows",
]

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


# -- joins of streams in bounded memory ----------------------------------------------------------------


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


# -- deferred subscriptions ----------------------------------------------------------------------------


_DEFINITIONS = """
CREATE TABLE items (id BIGINT, shop BIGINT, name STRING, price DOUBLE, PRIMARY KEY (id));
CREATE TABLE shops (id BIGINT, city STRING, area BIGINT, PRIMARY KEY (id));
CREATE TABLE areas (id BIGINT, name STRING, PRIMARY KEY (id));
"""
_JOIN = "items JOIN shops ON shop = shops.id"
_QUERIES = (
    f"SELECT MIN(price) AS low, MAX(name) AS last, SUM(price) AS total, AVG(items.id) AS mean FROM {_JOIN}",
    f"SELECT DISTINCT city FROM {_JOIN} WHERE price < 500",
    f"SELECT items.id, price FROM {_JOIN} WHERE city = 'c1' ORDER BY price DESC, name LIMIT 5",
    f"SELECT COUNT(*) AS n FROM {_JOIN} JOIN areas ON area = areas.id WHERE areas.name = 'a1'",
    f"SELECT items.id, city FROM {_JOIN} WHERE price BETWEEN 100 AND 300",
    "SELECT a.id AS x, b.id AS y FROM items a JOIN items b ON a.price - b.price BETWEEN 0 AND 1",
    "SELECT id FROM items WHERE price > 900 AND name LIKE 'n1%'",
    "SELECT SUM(shop) AS n FROM items WHERE price > 10",
    "SELECT COUNT(*) AS n, MAX(price) AS top FROM items WHERE price < 800",
    "SELECT DISTINCT name FROM items WHERE price < 300",
    "SELECT id FROM items WHERE price > 50 ORDER BY price LIMIT 5",
)


def rehearse_refresh() -> None:
    """Every shape over tables and joins, deferred; changes singly and in batches, refreshed."""
    rng = np.random.default_rng(0)
    engine = Engine()
    engine.execute(_DEFINITIONS)
    engine.apply("areas", pa.table({"id": np.arange(4), "name": [f"a{n}" for n in range(4)]}))
    engine.apply("shops", _shops(np.arange(20), rng, "insert"))
    engine.apply("items", _items(np.arange(400), rng, "insert"))
    made = [engine.subscribe(f"{sql} WITH (refresh = 'on demand')") for sql in _QUERIES]
    made += [engine.subscribe(f"{sql} WITH (refresh = 'on demand', within = '2 ms')") for sql in _QUERIES[:5]]
    for size in (1, 30, 200):
        engine.update("shops", {"id": 3, "city": f"c{size}"})
        engine.apply("shops", _shops(rng.choice(20, 5, replace=False), rng, "update"))
        engine.apply("items", _items(rng.choice(400, size, replace=False), rng, "update"))
        for subscription in made:
            engine.refresh(subscription)
            engine.content(subscription, stale=True)
    engine.apply("items", _items(np.arange(100), rng, "delete"))
    engine.insert("items", {"id": 1, "shop": 2, "name": "n1", "price": 2.5})
    engine.contents()


def _items(ids: Any, rng: np.random.Generator, op: str) -> pa.Table:
    count = len(ids)
    columns = {
        "id": ids,
        "shop": rng.integers(0, 20, count),
        "name": [f"n{n}" for n in rng.integers(0, 40, count)],
        "price": rng.random(count) * 1000,
    }
    return pa.table({**columns, "_op": [op] * count})


def _shops(ids: Any, rng: np.random.Generator, op: str) -> pa.Table:
    count = len(ids)
    cities = [f"c{n}" for n in rng.integers(0, 4, count)]
    return pa.table({"id": ids, "city": cities, "area": rng.integers(0, 4, count), "_op": [op] * count})


# -- lookups, and the models that caches and bounded joins learn ---------------------------------------


def rehearse_lookups() -> None:
    """Caches of texts and numbers under every policy, and a score by every model."""
    for policy in CACHE_POLICIES:
        engine = Engine()
        engine.execute(
            "CREATE STREAM s (k BIGINT, t STRING); CREATE TABLE n (k BIGINT PRIMARY KEY, x DOUBLE)"
        )
        engine.execute("CREATE TABLE u (t STRING PRIMARY KEY, y STRING)")
        engine.lookup("n", _numbers, key="k", memory=50, policy=policy)
        engine.lookup("u", _texts, key="t", memory=50, policy=policy)
        engine.subscribe("SELECT n.x FROM s JOIN n ON s.k = n.k WHERE n.x > 3")
        engine.subscribe("SELECT u.y FROM s JOIN u ON s.t = u.t")
        rng = np.random.default_rng(0)
        for _ in range(6):
            keys = rng.zipf(1.3, 100) % 300
            engine.apply("s", pa.table({"k": keys, "t": [f"text {key}" for key in keys]}))
        engine.publish("s", {"k": 5, "t": "text"})
    _models()


def _numbers(keys: list[int]) -> list[dict[str, Any]]:
    return [{"k": key, "x": float(key)} for key in keys]


def _texts(keys: list[str]) -> Any:
    return pa.table({"t": keys, "y": keys})


def _models() -> None:
    rng = np.random.default_rng(0)
    values = np.rint(np.cumsum(rng.normal(1.0, 3.0, 400)))
    keys = (values - values.min()).astype(np.int64)
    for caching in (False, True):
        chooser = Chooser(caching=caching)
        for begin in range(0, 400, 50):
            some = slice(begin, begin + 50)
            chooser.observe_rows(Arrivals(keys[some], values[some], np.zeros(50)))
            chooser.observe(Arrivals(keys[some], values[some], np.zeros(50)))
        chooser.observe(Arrivals(keys[:1], values[:1], np.zeros(1)))
        for size in (300, 2000):
            near = np.resize(values, size)
            left = np.where(np.arange(size) % 2, np.inf, 50.0)
            rows = Steps(np.resize(keys, size), near, np.arange(size, dtype=np.float64), left)
            for model in chooser.models.values():
                model.score(rows, 0.9, caching)
        chooser.discard(keys[:20])


# -- filters that come late ----------------------------------------------------------------------------


def rehearse_late_filters() -> None:
    """Single events and batches while a mutable segment grows, and events as a column of maps."""
    engine = Engine()
    engine.execute("CREATE STREAM hits")
    engine.subscribe_texts(
        [f"SELECT * FROM hits WHERE ms BETWEEN {n} AND {n + 9} AND page = 'p{n % 50}'" for n in range(5000)]
    )
    engine.apply("hits", [{"page": f"p{n % 50}", "ms": n} for n in range(3000)])
    for round in range(2):
        late = engine.subscribe_texts(
            [
                f"SELECT * FROM hits WHERE ms > {n} AND NOT page = 'p{n}' AND load > {round}"
                for n in range(100)
            ]
        )
        engine.apply("hits", [{"page": "p1", "ms": 5}, {"page": "p2", "ms": 7, "load": 0.5}])
        engine.publish("hits", {"page": "p1", "ms": 5, "load": 7})
        engine.unsubscribe(int(late[0]))
        engine.publish("hits", {"page": "p1", "ms": 5, "load": 7})
    maps = pa.array([[("ms", 5.0), ("load", 1.0)]], pa.map_(pa.string(), pa.float64()))
    engine.apply("hits", pa.table({"attributes": maps}))
