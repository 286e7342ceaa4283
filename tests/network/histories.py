"""Random queries of all shapes over two tables, a third and a stream, and random steps that change them."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import settings

from tocsin.engine import Engine

EXAMPLES = settings().max_examples if settings().max_examples >= 500 else 2
"""Histories of each shape: a history takes about a second."""
TABLES = """CREATE TABLE r (id BIGINT, k BIGINT, a DOUBLE, n STRING, PRIMARY KEY (id));
    CREATE TABLE s (name STRING, k BIGINT, c BIGINT, d DATE, PRIMARY KEY (name));
    CREATE TABLE t (id BIGINT, c BIGINT, k BIGINT, v DOUBLE, PRIMARY KEY (id));
    CREATE STREAM e (a DOUBLE, n STRING, k BIGINT)"""


def bag(rows) -> Counter:
    return Counter(repr(sorted(row.items())) for row in rows)


def equal(engine: Engine, subscriptions) -> None:
    """Wait for the last seq; the answers are those of the engine."""
    for subscription in subscriptions:
        subscription.wait(engine.last_seq)
        wanted = engine.subscribe(subscription.sql)
        assert bag(subscription.content()) == bag(engine.content(wanted)), subscription.sql
        engine.unsubscribe(wanted)


def mine(rng: random.Random) -> str:
    """A condition on r."""
    low = rng.randint(0, 6)
    return rng.choice(
        [
            f"a BETWEEN {low} AND {low + rng.randint(0, 4)}",
            f"a >= {low}",
            "n = 'x'",
            f"a > {low} AND n <> 'y'",
            "n LIKE 'x%'",
            f"a = {low}",
            "TRUE",
            f"a > {low} AND a < {low - 1}",
            f"a <= {low} AND r.k = {rng.randint(1, 2)}",
            f"(a > {low} OR n = 'y')",
        ]
    )


def other(rng: random.Random) -> str:
    """A condition on s."""
    low = rng.randint(0, 6)
    return rng.choice([f"c < {low}", f"c BETWEEN 2 AND {low}", "d > DATE '2020-01-03'", "c IS NULL", "TRUE"])


def joins(rng: random.Random) -> str:
    low = rng.randint(0, 6)
    both = rng.choice(["", "", " AND a > c"])
    return rng.choice(
        [
            f"SELECT * FROM r JOIN s ON r.k = s.k WHERE {mine(rng)} AND {other(rng)}{both}",
            f"SELECT n, c FROM r JOIN s ON s.k = r.k WHERE {mine(rng)} AND {other(rng)}{both}",
            f"SELECT x.id, y.n FROM r x JOIN r y ON x.k = y.k WHERE x.a > {low} AND y.a < {low + 2}",
        ]
    )


def multiway(rng: random.Random) -> str:
    low = rng.randint(0, 6)
    last = rng.choice([f"v > {low}", "TRUE", f"v BETWEEN {low} AND {low + 3}"])
    return rng.choice(
        [
            f"SELECT r.id, v FROM r JOIN s ON r.k = s.k JOIN t ON t.c = s.c WHERE {mine(rng)} AND {last}",
            "SELECT r.id, name, v FROM s JOIN r ON r.k = s.k JOIN t ON t.k = r.k "
            f"WHERE {other(rng).replace('c ', 's.c ')}",
            "SELECT x.id, y.id, v FROM r x JOIN r y ON x.k = y.k JOIN t ON t.k = y.k "
            f"WHERE x.a > {low} AND {last}",
            "SELECT r.n, name, t.id, u.id FROM r JOIN s ON r.k = s.k JOIN t ON t.c = s.c "
            f"JOIN t u ON u.k = r.k WHERE {mine(rng)} AND u.v < {low}",
        ]
    )


def filters(rng: random.Random) -> str:
    return rng.choice([f"SELECT * FROM r WHERE {mine(rng)}", f"SELECT id, n FROM r WHERE {mine(rng)}"])


def firsts(rng: random.Random) -> str:
    low, k = rng.randint(0, 6), rng.choice([1, 1, 2, 3])
    order = rng.choice(["a", "a DESC", "n, a DESC", "n DESC NULLS LAST", "k, n"])
    three = f"a BETWEEN 1 AND {low} AND id > 1 AND k < 2"
    where = rng.choice([mine(rng), mine(rng), f"a > {low} AND k >= 1", three])
    return f"SELECT {rng.choice(['*', 'id', 'n, a'])} FROM r WHERE {where} ORDER BY {order} LIMIT {k}"


def extremes(rng: random.Random) -> str:
    low = rng.randint(0, 6)
    where = rng.choice([mine(rng), f"id > {low}", f"id BETWEEN {low - 2} AND {low}", f"a > {low} AND k >= 1"])
    what = rng.choice(["MIN(a)", "MAX(a)", "MIN(id), MAX(a) AS most", "MAX(n)", "MIN(k)"])
    return rng.choice(
        [f"SELECT {what} FROM r WHERE {where}", f"SELECT MAX(d), MIN(c) FROM s WHERE {other(rng)}"]
    )


def distinct(rng: random.Random) -> str:
    what = rng.choice(["n", "k", "n, k AS key", "a"])
    return rng.choice(
        [f"SELECT DISTINCT {what} FROM r WHERE {mine(rng)}", f"SELECT DISTINCT d FROM s WHERE {other(rng)}"]
    )


SHAPES = {
    "joins": joins,
    "multiway": multiway,
    "filters": filters,
    "firsts": firsts,
    "extremes": extremes,
    "distinct": distinct,
}


def any_query(rng: random.Random) -> str:
    return rng.choice(list(SHAPES.values()))(rng)


def change(rng: random.Random, engine: Engine) -> None:
    """One step: a row, or several, perhaps of several tables and of one row twice."""
    batches: dict[str, list[dict]] = {}
    for _ in range(rng.choice([1, 1, 1, 4])):
        gone = rng.random() < 0.25
        op = "delete" if gone else "upsert"
        table = rng.choice("rrsst")
        key = "name" if table == "s" else "id"
        row: dict = {key: rng.choice("abcde") if table == "s" else rng.randrange(6)}
        if not gone:
            row |= {"k": rng.choice([1, 2, None])}
            if table == "r":
                row |= {"a": rng.choice([None, 1.5, float("nan"), *range(8)])}
                row |= {"n": rng.choice(["x", "y", "xyz", None])}
            elif table == "s":
                row |= {"c": rng.choice([None, *range(8)])}
                row |= {"d": rng.choice([None, "2020-01-02", "2020-01-05"])}
            else:
                row |= {"c": rng.choice([None, *range(8)]), "v": rng.choice([None, *range(8)])}
        known = set(engine.rows(table)[key].to_pylist())
        pending = [r for r in batches.get(table, ()) if r[key] == row[key]]
        there = pending[-1]["_op"] != "delete" if pending else row[key] in known
        if gone and not there:
            continue
        batches.setdefault(table, []).append(row | {"_op": op})
    if batches:
        engine.apply_all(batches)
