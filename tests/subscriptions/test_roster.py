"""The roster dispatches by shape: rooms by name, statistics with ids, states as words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from tocsin.engine import Engine
from tocsin.language.shape import Shape
from tocsin.match.room import MatchRoom
from tocsin.subscriptions.registry import State

TABLE = "CREATE TABLE t (id BIGINT, x DOUBLE, PRIMARY KEY (id))"
QUERIES = {
    "match": ["SELECT id FROM t WHERE x > 1"],
    "join": ["SELECT a.id FROM t a JOIN t b ON a.x = b.x"],
    "rank": ["SELECT id FROM t ORDER BY x LIMIT 3", "SELECT COUNT(*) AS n FROM t"],
}


def test_statistics_are_keyed_by_room() -> None:
    engine = Engine()
    engine.execute(TABLE)
    for text in (text for texts in QUERIES.values() for text in texts):
        engine.subscribe(text)
    engine.insert("t", {"id": 1, "x": 2.0})
    stats = engine.stats()
    own = {"subscriptions", "by_shape", "rows", "retained", "last_seq", "warnings", "windows"}
    assert stats.keys() >= own | engine._roster.rooms.keys() >= own | QUERIES.keys()
    assert stats["match"]["t"]["subscriptions"] == 1
    assert stats["join"]["subscriptions"] == 1 and stats["rank"]["subscriptions"] == 2
    assert stats["by_shape"] == {"filter": 1, "join": 1, "aggregate": 1, "topk": 1}


def test_statistics_name_subscriptions_and_not_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.execute(TABLE)
    engine.subscribe(QUERIES["match"][0], id=77)
    found: dict[str, Any] = {"t": {"slowest": [{"slot": 0, "cost": 3}], "bytes": 5}}
    monkeypatch.setattr(MatchRoom, "stats", lambda self: found)
    assert engine.stats()["match"] == {"t": {"slowest": [{"cost": 3, "subscription": 77}], "bytes": 5}}


def test_each_room_removes_its_own_subscriptions() -> None:
    engine = Engine()
    engine.execute(TABLE)
    ids = [engine.subscribe(text).id for texts in QUERIES.values() for text in texts]
    engine.unsubscribe_many(np.array(ids[1:]))
    stats = engine.stats()
    assert (stats["match"]["t"]["subscriptions"], stats["join"]["subscriptions"]) == (1, 0)
    assert stats["rank"]["subscriptions"] == 0
    assert [d.subscription for d in engine.insert("t", {"id": 1, "x": 2.0})] == ids[:1]
    engine._check()


def test_only_rooms_of_filters_have_a_backfill() -> None:
    rooms = Engine()._roster.rooms
    assert [name for name, room in rooms.items() if hasattr(room, "backfill")] == ["match"]


def test_states_and_shapes_have_codes_in_arrays_and_words_outside() -> None:
    assert [str(state) for state in State] == ["free", "waiting", "active", "expired"]
    assert [shape.code for shape in Shape] == list(range(len(Shape)))
    start = datetime(2024, 5, 1, tzinfo=UTC)
    engine = Engine(clock=lambda: start)
    engine.execute(TABLE)
    s = engine.subscribe(QUERIES["match"][0], valid_from=start + timedelta(days=1))
    why = engine.explain(s, {"id": 1, "x": 2.0})
    assert not why.held and why.notes == ("the subscription is waiting",)
