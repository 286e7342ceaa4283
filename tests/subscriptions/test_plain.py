"""Texts that differ in literals, subscribed to one by one: they are like others, before and after a build."""

from __future__ import annotations

import gc
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.engine import Engine
from tocsin.errors import SqlError, SubscriptionError
from tocsin.model.change import ChangeBatch
from tocsin.reference import holds
from tocsin.subscriptions.bulk import collector_paused

NUMBERS = [0, 1, 2, -1, 1.0, 1.5, -0.0, 2**53 - 1, 2**53, 2**53 + 1, 1e308, 10**25]
TEXTS = ["a", "b", "", "ab", "2013-01-01", "ä", "1", "true"]
DEFINITIONS = ["CREATE STREAM s", "CREATE STREAM s (n BIGINT, d DOUBLE, t STRING, u STRING)"]


def literal(draw: Random, text: bool) -> str:
    return f"'{draw.choice(TEXTS)}'" if text else repr(draw.choice(NUMBERS))


def query(draw: Random) -> str:
    names = draw.sample(["n", "d", "t", "u"], draw.randrange(1, 4))
    parts = []
    for name in names:
        is_text = (name in "tu") != (draw.random() < 0.05)
        one, two = literal(draw, is_text), literal(draw, is_text)
        op = draw.choice(["=", "=", "!=", "<", ">=", "BETWEEN"])
        parts.append(f"{name} BETWEEN {one} AND {two}" if op == "BETWEEN" else f"{name} {op} {one}")
    shown = draw.choice(["*", "n, t", "t AS n"])
    return f"SELECT {shown} FROM s WHERE {' AND '.join(parts)}"


def event(draw: Random, is_open: bool) -> dict[str, Any]:
    whole = [value for value in NUMBERS if type(value) is int and abs(value) < 2**63]
    pools: dict[str, list[Any]] = {"n": whole, "d": NUMBERS[:-1], "t": TEXTS, "u": TEXTS}
    if is_open:
        pools = {name: [*NUMBERS, *TEXTS, True, False, None] for name in pools}
    return {name: draw.choice(pool) for name, pool in pools.items() if draw.random() < 0.9}


@given(st.integers(0, 10**6), st.sampled_from(DEFINITIONS))
def test_plain_filters_are_like_others(seed: int, definition: str) -> None:
    draw, engine = Random(seed), Engine()
    engine.execute(definition)
    alive = {}
    for _ in range(60):
        try:
            made = engine.subscribe(query(draw))
        except SqlError:
            continue
        alive[made.id] = made
        if len(alive) > 3 and draw.random() < 0.2:
            engine.unsubscribe(alive.pop(draw.choice(list(alive))))
        one = event(draw, definition == DEFINITIONS[0])
        batch, bad = ChangeBatch.from_dicts(engine.schema("s"), [one])
        (row,) = batch.or_raise(bad).rows.to_dicts()  # integers beyond BIGINT are doubles
        found = engine.publish("s", one) if draw.random() < 0.8 else engine.apply("s", batch)
        expected = [id for id in sorted(alive) if holds(engine.query(id).where, row) is True]
        assert sorted(found.subscription.tolist()) == expected
    engine._check()


def plain(engine: Engine) -> int:
    return int(engine._roster.rooms["match"]._indexes["s"]._segments.plain.count)  # type: ignore[attr-defined]


def test_known_texts_are_neither_parsed_nor_built() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s")
    made = [
        engine.subscribe(f"SELECT a FROM s WHERE a > {n} AND b = 'x{n % 3}'", subscriber="me")
        for n in range(50)
    ]
    assert engine._parser.parsed == 1 and plain(engine) == 49
    found = engine.publish("s", {"a": 10, "b": "x1"})
    assert found.subscription.tolist() == [m.id for m in made if m.id - 1 < 10 and (m.id - 1) % 3 == 1]
    assert {d.subscriber for d in found} == {"me"} and next(iter(found)).row == {"a": 10}
    assert plain(engine) == 49 or plain(engine) == 0
    assert made[7].sql.endswith("'x1'") and str(engine.query(made[7])) == str(
        engine._parser.parse(made[7].sql)
    )
    assert engine.stats()["match"]["s"]["subscriptions"] == 50 and plain(engine) == 0
    assert engine.publish("s", {"a": 10, "b": "x1"}).subscription.tolist() == found.subscription.tolist()


def test_errors_are_those_of_other_texts() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s (a BIGINT, day DATE)")
    engine.subscribe("SELECT * FROM s WHERE a = 1", id=7)
    with pytest.raises(SubscriptionError, match="already"):
        engine.subscribe("SELECT * FROM s WHERE a = 2", id=7)
    with pytest.raises(SubscriptionError, match="named by text"):
        engine.subscribe("SELECT * FROM s WHERE a = 2", subscriber=5)  # type: ignore[arg-type]
    engine.subscribe("SELECT * FROM s WHERE day = '2013-01-01'")
    with pytest.raises(SqlError):
        engine.subscribe("SELECT * FROM s WHERE day = 'soon'")
    warned = [engine.subscribe(f"SELECT * FROM s WHERE a BETWEEN {a} AND 3").warnings for a in (1, 2, 5)]
    assert [bool(warnings) for warnings in warned] == [False, False, True]
    assert len(engine.subscriptions()) == 5
    engine._check()


def test_many_are_built_and_saved(tmp_path: Any) -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s")
    for n in range(1500):
        engine.subscribe(f"SELECT * FROM s WHERE a = {n}")
    assert engine.publish("s", {"a": 1499}).subscription.tolist() == [1500]
    assert engine.publish("s", {"a": 3}).subscription.tolist() == [4]
    engine.save(tmp_path / "saved")
    loaded = Engine.load(tmp_path / "saved")
    assert loaded.publish("s", {"a": 1499}).subscription.tolist() == [1500]
    engine.execute("CREATE STREAM other")
    engine.subscribe("SELECT * FROM s WHERE a = 5000")
    assert engine.publish("s", {"a": 5000}).subscription.tolist() == [1501]


def test_they_wait_until_looking_them_up_has_cost_much() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s")
    for n in range(70):
        engine.subscribe(f"SELECT * FROM s WHERE a = {n}")
        if n == 65:  # there is space for more now
            engine.publish("s", {"a": 0})
    waiting = plain(engine)
    for n in range(300):  # maintenance takes place meanwhile
        assert len(engine.publish("s", {"a": n})) == (n < 70)
    assert plain(engine) == waiting > 0
    for n in range(4000):
        engine.publish("s", {"b": n})
    assert plain(engine) == 0
    assert engine.publish("s", {"a": 69}).subscription.tolist() == [70]
    engine._check()


def test_very_many_are_built() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s")
    for n in range(9000):
        engine.subscribe(f"SELECT * FROM s WHERE a = {n}")
    assert plain(engine) < 1000
    assert engine.publish("s", {"a": 8999}).subscription.tolist() == [9000]
    assert engine.publish("s", {"a": 1}).subscription.tolist() == [2]


def test_what_is_made_while_the_collector_pauses_is_old_at_once() -> None:
    assert gc.isenabled()
    with collector_paused():
        assert not gc.isenabled()
        made = [[n] for n in range(100_000)]
    assert gc.isenabled() and not gc.get_freeze_count()
    young = {id(one) for one in gc.get_objects(generation=0)}
    assert not young & {id(one) for one in made}
    gc.freeze()  # as a program does before it forks
    try:
        with collector_paused():
            pass
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()
