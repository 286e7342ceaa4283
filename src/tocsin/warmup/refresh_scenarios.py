"""The rehearsal of deferred subscriptions: the kernels of rooms, called with the copies of a group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine

__all__ = ["rehearse_refresh"]

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
