"""Rehearsals of groups: accumulators, thresholds, distinct values, first rows; over tables and joins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine

__all__ = ["rehearse_groups"]

_ANSWERS = (
    "SELECT s, COUNT(*), SUM(d), MIN(d), AVG(d) FROM t WHERE a > {n} GROUP BY s",
    "SELECT s, k, SUM(k), MAX(s) FROM t GROUP BY s, k HAVING SUM(k) > {n}",
    "SELECT s, COUNT(*) AS n FROM t GROUP BY s HAVING COUNT(*) > {n} AND AVG(d) < 90",
    "SELECT COUNT(*) FILTER (WHERE a > {n}), SUM(d) FILTER (WHERE k = 1) FROM t",
    "SELECT COUNT(DISTINCT s), MAX(k) FROM t WHERE a > {n}",
    "SELECT k, COUNT(DISTINCT s) FROM t WHERE a > {n} GROUP BY k",
    "SELECT * FROM t WHERE a > {n} ORDER BY d LIMIT 3 OFFSET 2",
    "SELECT * FROM t WHERE a > {n} QUALIFY ROW_NUMBER() OVER (PARTITION BY s ORDER BY d) <= 2",
    "SELECT t.s, SUM(u.d) FROM t JOIN u ON t.id = u.id WHERE t.a > {n} GROUP BY t.s",
    "SELECT COUNT(*), SUM(u.d) FROM t JOIN u ON t.id = u.id WHERE t.a > {n}",
    "SELECT DISTINCT t.s FROM t JOIN u ON t.id = u.id WHERE t.a > {n}",
    "SELECT t.id, u.s FROM t JOIN u ON t.id = u.id WHERE t.a > {n} ORDER BY u.d LIMIT 3",
)
_COLUMNS = "id BIGINT, a DOUBLE, k BIGINT, d DOUBLE, s STRING, PRIMARY KEY (id)"


def _rows(first: int, count: int, rng: np.random.Generator, op: str) -> Any:
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "a": rng.random(count) * 100,
            "k": rng.integers(0, 5, count),
            "d": rng.random(count) * 100,
            "s": [f"s{n}" for n in rng.integers(0, 9, count)],
            "_op": [op] * count,
        }
    )


def _changes(engine: Engine, first: int, rng: np.random.Generator) -> None:
    """Rows that come, change and go, singly and in batches, on both sides of the join."""
    for name in ("t", "u"):
        engine.insert(name, {"id": first, "a": 50.0, "k": 3, "d": 15.0, "s": "s1"})
        engine.update(name, {"id": first, "d": None, "s": "s2"})
        engine.delete(name, {"id": first})
        for op in ("insert", "update"):
            engine.apply(name, _rows(first, 100, rng, op))
        engine.apply(name, pa.table({"id": np.arange(first, first + 60), "_op": ["delete"] * 60}))


def rehearse_groups() -> None:
    """Each kind of answer: a few subscriptions, many, late ones, and some that leave."""
    rng = np.random.default_rng(0)
    engine = Engine()
    engine.execute(f"CREATE TABLE t ({_COLUMNS}); CREATE TABLE u ({_COLUMNS})")
    few = [engine.subscribe(text.format(n=n)) for text in _ANSWERS for n in (1, 2)]
    _changes(engine, 0, rng)
    many = [engine.subscribe_texts([text.format(n=n) for n in range(3, 30)]) for text in _ANSWERS]
    _changes(engine, 1000, rng)
    for ids in many:
        engine.unsubscribe_many(ids[:20])
    for one in few[::2]:
        engine.unsubscribe(one)
    _changes(engine, 2000, rng)
    engine.contents()
    engine.explain(few[1], {"id": 1500})
    engine.stats()
