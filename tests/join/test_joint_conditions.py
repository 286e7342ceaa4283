"""Conditions that compute with columns of several tables, against the reference after every change."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest

from tocsin import Engine, SqlError
from tocsin.language.sql import parse_query
from tocsin.model.expressions import derived
from tocsin.reference import as_bag, evaluate, row_key

TABLES = {
    "a": "CREATE TABLE a (id BIGINT PRIMARY KEY, k BIGINT, price DOUBLE, name STRING, m DECIMAL(9,2))",
    "b": "CREATE TABLE b (id BIGINT PRIMARY KEY, k BIGINT, qty BIGINT, lim DOUBLE, name TEXT, m DEC(7,1))",
    "c": "CREATE TABLE c (id BIGINT PRIMARY KEY, k BIGINT, z BIGINT)",
}
CELLS = {
    "a": {
        "k": (1, 2, 3), "price": (0.5, 2.0, 7.5, 40.0, float("nan")), "name": ("x", "X", "y"),
        "m": (Decimal("1.25"), Decimal("2.00"), Decimal("9.99")),
    },
    "b": {
        "k": (1, 2, 3), "qty": (1, 2, 5, 100), "lim": (0.5, 2.0, 8.0), "name": ("x", "Y", "%"),
        "m": (Decimal("1.2"), Decimal("2.0"), Decimal("10.0")),
    },
    "c": {"k": (1, 2, 3), "z": (0, 1, 3)},
}  # fmt: skip
PAIRS = "SELECT a.id, b.id AS other FROM a JOIN b ON a.k = b.k WHERE "
QUERIES = (
    "SELECT a.id, b.id AS other FROM a JOIN b USING (k) WHERE a.price * b.qty > 100",
    PAIRS + "a.price != b.lim AND a.price < 30",
    PAIRS + "lower(a.name) = lower(b.name) OR a.price + b.lim > 3",
    "SELECT a.id, b.id AS other FROM a JOIN b ON a.k = b.k AND a.m < b.m",
    PAIRS + "concat(a.name, b.name) LIKE 'x%'",
    PAIRS + "NOT (a.price <=> b.lim) AND a.name LIKE b.name",
    PAIRS + "coalesce(a.price, b.lim) BETWEEN 2 AND b.qty",
    "SELECT a.id, b.id AS other FROM a JOIN b ON a.price < b.lim WHERE a.price * b.qty > b.lim",
    "SELECT a.id, b.id AS o, c.id AS t FROM a JOIN b USING (k) JOIN c USING (k) WHERE a.price * c.z > b.qty",
    "SELECT COUNT(*) AS n, SUM(b.qty) AS s FROM a JOIN b ON a.k = b.k WHERE a.price * b.qty > 5",
    "SELECT a.k, COUNT(*) AS n FROM a JOIN b ON a.k = b.k WHERE a.price < b.qty OR a.m = b.m GROUP BY a.k",
    PAIRS + "a.price < 2 * b.qty ORDER BY a.price LIMIT 2",
    "SELECT DISTINCT a.name FROM a JOIN b ON a.k = b.k WHERE a.m * b.qty > 4",
    PAIRS + "a.price * b.qty > 3 WITH (refresh = 'on demand')",
)


def _row(draw: random.Random, table: str, id: int) -> dict[str, object]:
    return {"id": id, **{name: draw.choice([*cells, None]) for name, cells in CELLS[table].items()}}


@pytest.mark.parametrize("forgets", [False, True], ids=["known", "read from names"])
def test_engine_and_reference_agree(forgets):
    draw, e = random.Random(23), Engine()
    for text in TABLES.values():
        e.execute(text)
    catalog = {name: e.schema(name) for name in TABLES}
    parsed = [parse_query(text, catalog) for text in QUERIES]
    assert [parse_query(str(query), catalog) for query in parsed] == parsed
    if forgets:
        derived._known.clear()
    subscriptions = [e.subscribe(text) for text in QUERIES]
    database: dict[str, dict[int, dict[str, object]]] = {name: {} for name in TABLES}
    held = {s.id: as_bag(e.content(s)) for s in subscriptions}
    for step in range(120):
        table, id = draw.choice("aabbc"), draw.randrange(7)
        if id in database[table] and draw.random() < 0.3:
            deltas = e.delete(table, {"id": id})
            del database[table][id]
        else:
            database[table][id] = _row(draw, table, id)
            deltas = e.upsert(table, database[table][id])
        for delta in deltas:
            held[delta.subscription][row_key(delta.row)] += delta.sign
        if step % 4:
            continue
        rows = {name: list(own.values()) for name, own in database.items()}
        for s, query in zip(subscriptions, parsed, strict=True):
            wanted = as_bag(evaluate(query, rows, dict.fromkeys(TABLES, ("id",))))
            assert as_bag(e.content(s)) == wanted, s.sql
            if "refresh" not in s.sql:
                assert +held[s.id] == wanted, s.sql


def test_templates_saved_engines_and_explanations(tmp_path):
    e = Engine()
    for text in TABLES.values():
        e.execute(text)
    e.insert("a", {"id": 1, "k": 1, "price": 2.0})
    e.insert("b", {"id": 2, "k": 1, "qty": 5})
    params = pa.table({"id": [10, 11, 12], "least": [5, 10, 11]})
    ids = e.subscribe_many("SELECT a.id FROM a JOIN b USING (k) WHERE a.price * b.qty >= :least", params)
    assert [len(e.content(id)) for id in ids] == [1, 1, 0]
    texts = [f"SELECT a.id FROM a JOIN b USING (k) WHERE a.price * b.qty >= {n}" for n in (9.5, 10.5)]
    assert [len(e.content(id)) for id in e.subscribe_texts(texts)] == [1, 0]
    assert Counter(d.subscription for d in e.update("b", {"id": 2, "qty": 6})) == {12: 1, 14: 1}
    e.save(tmp_path / "saved")
    derived._known.clear()
    loaded = Engine.load(tmp_path / "saved")
    assert [len(loaded.content(id)) for id in ids] == [1, 1, 1]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.price * b.qty AS x FROM a JOIN b USING (k)",
        "SELECT a.id FROM a JOIN b ON a.price * b.qty > 5",
        "SELECT a.id FROM a LEFT JOIN b USING (k) WHERE a.price * b.qty > 5",
        "SELECT a.id FROM a JOIN b USING (k) WHERE a.price + b.qty > DATE '2024-01-01'",
        "SELECT a.id FROM a JOIN b USING (k) WHERE a.price + b.qty",
    ],
)
def test_what_is_not_taken_has_a_place(text):
    e = Engine()
    for table in TABLES.values():
        e.execute(table)
    with pytest.raises(SqlError) as found:
        e.subscribe(text)
    assert found.value.position is not None
