"""Expressions in every shape of query: after each change the engine has the answer of the reference."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest

import tocsin
from tocsin.reference import as_bag, evaluate

DDL = """
CREATE TABLE t (k BIGINT PRIMARY KEY, a DOUBLE, b BIGINT, s STRING, g STRING);
CREATE TABLE r (k BIGINT PRIMARY KEY, a DOUBLE, b BIGINT, s STRING, g STRING)
"""
KEYS = {"t": ("k",), "r": ("k",)}
QUERIES = [
    "SELECT k, a * b AS ab FROM t WHERE a * b > 3",
    "SELECT k FROM t WHERE a < b OR NOT coalesce(a, 0) * 2 > b",
    "SELECT k FROM t WHERE CASE WHEN b > 1 THEN a ELSE b END BETWEEN 1 AND 3 AND upper(s) IN ('A', 'B')",
    "SELECT k, a FROM t ORDER BY a * b DESC LIMIT 3",
    "SELECT k, a * b AS x FROM t WHERE a * b BETWEEN 1 AND 9 ORDER BY a - b LIMIT 3",
    "SELECT k, a FROM t WHERE upper(s) = 'A' ORDER BY a LIMIT 2",
    "SELECT MAX(a * b) AS m FROM t",
    "SELECT MIN(a) AS m, MAX(a - b) AS n FROM t WHERE a * b > 3",
    "SELECT COUNT(*) AS n, SUM(a * b) AS m FROM t WHERE a < b",
    "SELECT SUM(b * 2) AS m, AVG(a / b) AS n FROM t WHERE b * 2 > 3",
    "SELECT DISTINCT upper(s) AS u FROM t WHERE a * b > 2",
    "SELECT upper(s) AS u, COUNT(*) AS n, SUM(a * b) AS x FROM t GROUP BY upper(s) HAVING SUM(a * b) > 3",
    "SELECT COUNT(DISTINCT upper(s)) AS n, COUNT(*) FILTER (WHERE a * b > 3) AS m FROM t",
    "SELECT t.k, r.k AS rk, t.a * t.b AS x FROM t JOIN r ON t.s = r.s WHERE t.a * t.b > 2",
    "SELECT t.k, r.k AS rk FROM t JOIN r ON upper(t.s) = upper(r.s) WHERE r.a < r.b",
    "SELECT t.k, r.k AS rk FROM t JOIN r ON t.a * 2 - r.a BETWEEN -1 AND 1",
    "SELECT t.k, u.k AS uk FROM t JOIN r ON t.s = r.s JOIN r u ON upper(u.g) = upper(t.g) WHERE u.a < u.b",
    "SELECT t.k, r.a * r.b AS x FROM t LEFT JOIN r ON t.s = r.s AND r.a * r.b > 2",
    "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM r WHERE upper(r.s) = upper(t.s) AND r.a < r.b)",
    "SELECT k, a FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY upper(s) ORDER BY a * b DESC) <= 2",
    "SELECT k, a * b AS x FROM t ORDER BY a * b LIMIT 2 OFFSET 1",
    "SELECT t.k, r.k AS rk FROM t JOIN r ON t.s = r.s ORDER BY t.a * t.b DESC, r.k LIMIT 3",
    "SELECT t.s AS s, SUM(r.a * r.b) AS x FROM t JOIN r ON t.s = r.s GROUP BY t.s",
    "SELECT k, a * b AS x FROM t UNION ALL SELECT k, a + b FROM r WHERE a < b",
    "SELECT COUNT(*) AS n, MAX(a * b) AS m FROM t WITH (refresh = 'on demand')",
]


def _row(draw: random.Random, key: int) -> dict[str, Any]:
    numbers, whole = [None, 0.5, 1.0, 2.0, 3.5, -1.0], [None, 1, 2, 3, -2]
    texts = [None, "a", "A", "b", "B", "c"]
    return {
        "k": key, "a": draw.choice(numbers), "b": draw.choice(whole), "s": draw.choice(texts),
        "g": draw.choice("xXy"),
    }  # fmt: skip


def _change(engine: tocsin.Engine, draw: random.Random) -> None:
    table, key = draw.choice("tr"), draw.randrange(6)
    if draw.random() < 0.3:
        batch = [dict(_row(draw, other), _op="upsert") for other in range(6) if draw.random() < 0.5]
        engine.apply(table, batch)
    elif draw.random() < 0.3 and any(row["k"] == key for row in engine.rows(table).to_pylist()):
        engine.delete(table, {"k": key})
    else:
        engine.upsert(table, _row(draw, key))


@pytest.mark.parametrize("text", QUERIES)
def test_an_answer_is_that_of_the_reference_after_each_change(text: str) -> None:
    draw, engine = random.Random(zlib.crc32(text.encode())), tocsin.Engine()
    engine.execute(DDL)
    for table in "tr":
        engine.apply(table, [_row(draw, key) for key in range(4)])
    subscription = engine.subscribe(text)
    query = engine.query(subscription)
    assert str(engine.query(engine.subscribe(str(query)))) == str(query)
    for _ in range(40):
        _change(engine, draw)
        database = {table: engine.rows(table).to_pylist() for table in "tr"}
        assert as_bag(engine.content(subscription)) == as_bag(evaluate(query, database, KEYS))
    engine._check()
