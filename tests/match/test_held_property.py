"""Conditions over the cap of normal forms: the engine and the reference agree, whatever the relation."""

from __future__ import annotations

import random

import pytest

from tocsin import Engine
from tocsin.errors import NormalFormError
from tocsin.language.shape import plan
from tocsin.reference import evaluate, holds

pytestmark = pytest.mark.property

DECLARED = "CREATE STREAM s (a0 BIGINT, a1 DOUBLE, a2 BIGINT, a3 DATE, t0 STRING, t1 STRING, `t 2` STRING)"
NAMES = ("t0", "t1", "`t 2`")


def pair(rng, open_stream):
    number = rng.choice(["a0", "a1", "a2", "(a0 + a2)", "length(t0)"])
    if open_stream and rng.random() < 0.1:
        number = "item.size"
    one = f"{number} {rng.choice(['=', '>', '<', '!='])} {rng.randrange(9)}"
    other = f"{rng.choice(NAMES)} {rng.choice(['LIKE', 'ILIKE', 'NOT LIKE'])} '{rng.choice('abc')}%'"
    if open_stream and rng.random() < 0.1:
        other = "exists(tags, t -> t ILIKE 'a%')"
    return f"({one} AND {other})"


def clauses(rng, open_stream, count):
    parts = (" OR ".join(pair(rng, open_stream) for _ in range(20)) for _ in range(count))
    return " AND ".join(f"({part})" for part in parts)


def condition(rng, open_stream):
    one = clauses(rng, open_stream, rng.randrange(3, 5))
    if rng.random() < 0.3:
        return f"NOT ({one})"
    if rng.random() < 0.3:  # parts inside parts
        return (
            f"(({one}) OR ({clauses(rng, open_stream, 3)})) AND (({clauses(rng, open_stream, 3)}) OR a1 = 5)"
        )
    return one


def row(rng, open_stream):
    found = {f"a{i}": (float if i == 1 else int)(rng.randrange(9)) for i in range(3) if rng.random() < 0.9}
    found |= {
        name.strip("`"): rng.choice("abcABC") + rng.choice(["", "x", "é"])
        for name in NAMES
        if rng.random() < 0.9
    }
    if open_stream and rng.random() < 0.5:
        found |= {"item": {"size": rng.randrange(9)}, "tags": [rng.choice(["A1", "b", 3])]}
        found["a0"] = rng.choice([3, "3", 2.5, True])
    return found


@pytest.mark.parametrize("ddl", ["CREATE STREAM s", DECLARED])
def test_streams(ddl):
    rng, engine, is_open = random.Random(5), Engine(), ddl.endswith(" s")
    engine.execute(ddl)
    wheres = [condition(rng, is_open) for _ in range(5)]
    texts = [f"SELECT * FROM s WHERE {where}" for where in [*wheres, wheres[0]]]
    ids = [*(engine.subscribe(text).id for text in texts), *engine.subscribe_texts(texts).tolist()]
    assert "held(" in str(plan(engine.query(1)))
    assert "held(" not in str(engine.query(1)), "a query prints as it was written"
    found = 0
    for turn in range(60):
        if turn == 30:
            engine.unsubscribe(ids.pop(0))
            engine.unsubscribe(ids.pop())
        one = row(rng, is_open)
        expected = [id for id in ids if holds(engine.query(id).where, one) is True]
        assert sorted(engine.publish("s", one).subscription.tolist()) == expected, one
        assert sorted(engine.apply("s", [one]).subscription.tolist()) == expected, one
        found += len(expected)
    assert found
    for id in ids:
        engine.unsubscribe(id)
    assert len(engine.publish("s", one)) == 0


def test_tables_and_their_rooms(tmp_path):
    rng, engine = random.Random(6), Engine()
    engine.execute(DECLARED.replace("STREAM s (", "TABLE s (id BIGINT PRIMARY KEY, "))
    where = clauses(rng, False, 4)
    ids = [
        engine.subscribe(f"SELECT {items} FROM s WHERE {where} {more}").id
        for items, more in (
            ("*", ""), ("id", "ORDER BY a1 LIMIT 3"), ("COUNT(*)", ""), ("MAX(a1)", ""), ("DISTINCT t0", ""),
            ("t0, SUM(a0) AS total", "GROUP BY t0"),
        )
    ]  # fmt: skip
    for turn in range(4):
        engine.apply("s", [{"id": 100 * turn + n, **row(rng, False)} for n in range(60)])
        if turn == 2:
            engine.save(tmp_path / "saved")
            engine = Engine.load(tmp_path / "saved")
        database = {"s": engine.rows("s").to_pylist()}
        for id in ids:
            content = engine.content(id)
            assert content
            assert sorted(map(str, content)) == sorted(
                map(str, evaluate(engine.query(id), database, {"s": ("id",)}))
            )


def test_conditions_over_several_tables_keep_the_cap():
    engine = Engine()
    engine.execute("CREATE STREAM s (id BIGINT, v DOUBLE); CREATE TABLE t (id BIGINT PRIMARY KEY, w DOUBLE)")
    parts = [" OR ".join(f"(s.v {op} {n} AND t.w > {n})" for n in range(20)) for op in "<>"]
    with pytest.raises(NormalFormError):
        engine.subscribe(f"SELECT t.id FROM s JOIN t ON s.id = t.id WHERE ({parts[0]}) AND ({parts[1]})")
    engine.apply("t", [{"id": 1, "w": 5.0}])
    id = engine.subscribe("SELECT t.id FROM s JOIN t ON s.id = t.id WHERE s.v < 5").id
    assert engine.publish("s", {"id": 1, "v": 2.0}).subscription.tolist() == [id]
