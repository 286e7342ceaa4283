"""Joins by the engine's own room: decisions are shown, orders shared and dropped, removed keys dropped."""

from __future__ import annotations

import pyarrow as pa

from tocsin.engine import Engine
from tocsin.join.room import JoinRoom


def engine_with(*subscriptions: str) -> Engine:
    engine = Engine()
    engine.execute("CREATE TABLE stocks (id BIGINT, symbol STRING, per DOUBLE, PRIMARY KEY (id))")
    engine.execute("CREATE TABLE reviews (id BIGINT, symbol STRING, rating BIGINT, PRIMARY KEY (id))")
    for text in subscriptions:
        engine.subscribe(text)
    return engine


def room_of(engine: Engine) -> JoinRoom:
    room = engine._roster.rooms["join"]
    assert isinstance(room, JoinRoom)
    return room


JOIN = "SELECT * FROM stocks JOIN reviews USING (symbol)"


def test_stats_show_signatures_and_decisions() -> None:
    engine = engine_with(
        f"{JOIN} WHERE per BETWEEN 1 AND 5 AND rating >= 6",
        "SELECT r.id FROM stocks AS s JOIN reviews AS r ON r.symbol = s.symbol WHERE per < 3 AND rating > 1",
        "SELECT s.id FROM stocks s JOIN reviews r ON s.per - r.rating BETWEEN -1 AND 1",
    )
    engine.insert("reviews", {"id": 1, "symbol": "A", "rating": 7})
    deltas = engine.insert("stocks", {"id": 1, "symbol": "A", "per": 2.0})
    assert [(d.sign, d.row) for d in deltas] == [
        (1, {"symbol": "A", "stocks.id": 1, "per": 2.0, "reviews.id": 1, "rating": 7}),
        (1, {"id": 1}),
    ]
    equality, band = engine.stats()["join"]["signatures"]
    assert (equality["signature"], equality["subscriptions"]) == ("stocks, reviews: 0.symbol = 1.symbol", 2)
    assert (band["signature"], band["subscriptions"]) == ("stocks, reviews: 0.per - 1.rating", 1)
    [group] = equality["groups"]
    assert group["attributes"] == ["per", "rating"] and group["strategy"] == "dynamic"
    assert sum(group["chosen"].values()) == 2  # changed rows


def test_orders_are_shared_and_dropped() -> None:
    engine = engine_with(
        *(f"{JOIN} WHERE per BETWEEN {n} AND {n + 1} AND rating = {n}" for n in range(50)),
        *(f"{JOIN} WHERE per BETWEEN {n} AND {n + 1}" for n in range(50)),
    )
    for table in ("stocks", "reviews"):
        engine.insert(table, {"id": 1, "symbol": "A"})
    assert engine.stats()["join"]["orders"] == 3  # stocks by per; reviews by rating, and by nothing
    engine.unsubscribe_many(range(1, 51))
    engine.insert("stocks", {"id": 2, "symbol": "A"})
    assert engine.stats()["join"]["orders"] == 2
    engine.unsubscribe_many(range(51, 101))
    engine.insert("stocks", {"id": 3, "symbol": "A"})
    assert engine.stats()["join"]["orders"] == 0


def test_removed_keys_are_dropped() -> None:
    engine = engine_with(JOIN)
    for turn in range(8):
        ids = list(range(1000))
        names = pa.array([f"{turn}-{i}" for i in ids])
        engine.apply("stocks", pa.table({"id": ids, "symbol": names}))
        engine.apply("stocks", pa.table({"_op": ["delete"] * 1000, "id": ids}))
    assert all(len(numbers) <= 2100 for numbers in room_of(engine)._tables._numbers.values())
    engine.insert("reviews", {"id": 1, "symbol": "7-3"})
    assert len(engine.insert("stocks", {"id": 1, "symbol": "7-3"})) == 1


def test_a_table_dropped_and_made_again_is_another() -> None:
    engine = engine_with(JOIN)
    engine.insert("reviews", {"id": 1, "symbol": "A"})
    assert len(engine.insert("stocks", {"id": 1, "symbol": "A"})) == 1
    engine.unsubscribe(1)
    engine.execute("DROP TABLE reviews")
    engine.execute("CREATE TABLE reviews (id BIGINT, symbol STRING, rating BIGINT, PRIMARY KEY (id))")
    engine.subscribe(JOIN)
    assert len(engine.insert("stocks", {"id": 2, "symbol": "A"})) == 0
    assert len(engine.insert("reviews", {"id": 1, "symbol": "A"})) == 2


def test_explain_shows_an_or_across_tables_as_a_whole() -> None:
    engine = Engine()
    engine.execute("CREATE TABLE a (id BIGINT, k BIGINT, s STRING, PRIMARY KEY (id))")
    engine.execute("CREATE TABLE b (id BIGINT, k BIGINT, x DOUBLE, PRIMARY KEY (id))")
    engine.insert("b", {"id": 1, "k": 3, "x": 1.5})
    s = engine.subscribe("SELECT * FROM a JOIN b ON a.k = b.k WHERE (a.s = 'x' OR b.x = 2) AND a.id > 0")
    right = engine.explain(s, {"id": 1, "k": 3, "s": "x"}, table="a")
    assert right.held and [str(check).strip() for check in right.checks] == [
        "yes  a.s = 'x' OR b.x = 2",
        "yes  a.id > 0",
    ]
    open_one = engine.explain(s, {"id": 1, "k": 3, "s": "y"}, table="a")
    assert not open_one.held and [check.text for check in open_one.checks] == ["a.id > 0"]
    assert open_one.notes[0] == "depends on the rows it joins: a.s = 'x' OR b.x = 2"
