"""Both directions of time: a new subscription receives the events that are still valid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.clocks import Clock
from tocsin.engine import Engine
from tocsin.errors import SubscriptionError

START = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> Clock:
    return Clock(START)


@pytest.fixture
def engine(clock: Clock) -> Engine:
    engine = Engine(clock=clock)
    engine.execute(
        "CREATE STREAM hits (page STRING, ms BIGINT) RETAIN '10 minutes'; CREATE STREAM plain (ms BIGINT);"
        "CREATE STREAM loose RETAIN '1 minute'; CREATE TABLE t (k BIGINT PRIMARY KEY)"
    )
    for i in range(5):
        engine.publish("hits", {"page": f"/{i}", "ms": i})
        clock.now += timedelta(minutes=1)
    return engine


def emitted(deltas: Any) -> list[tuple[int, int, int, dict[str, Any]]]:
    return [(d.seq, d.subscription, d.sign, d.row) for d in deltas]


def test_a_new_subscription_receives_past_events(engine: Engine, clock: Clock) -> None:
    clock.now = START + timedelta(minutes=11, seconds=30)  # events 0 and 1 are too old
    received: list[Any] = []
    engine.on_delta(lambda deltas: received.extend(emitted(deltas)))
    s = engine.subscribe("SELECT page FROM hits WHERE ms <= 3", backfill=True)
    expected = [(3, s.id, 1, {"page": "/2"}), (4, s.id, 1, {"page": "/3"})]
    assert emitted(engine.tick()) == expected == received
    assert emitted(engine.tick()) == []
    assert emitted(engine.publish("hits", {"page": "/x", "ms": 0})) == [(6, s.id, 1, {"page": "/x"})]


def test_bulk_forms_too(engine: Engine) -> None:
    params = pa.table({"id": [10, 11], "most": [0, 3]})
    engine.subscribe_many("SELECT ms FROM hits WHERE ms >= :most", params, backfill=True)
    predicates = [[{"attribute": "ms", "op": "=", "number": 4.0}]]
    engine.subscribe_predicates("hits", pa.table({"id": [20], "predicates": predicates}), backfill=True)
    texts = [f"SELECT ms FROM hits WHERE ms = {i}" for i in range(9)]
    engine.subscribe_texts(texts, ids=range(30, 39), backfill=True)
    counts = np.unique(engine.tick().subscription, return_counts=True)
    assert dict(zip(*(a.tolist() for a in counts), strict=True)) == {
        10: 5, 11: 2, 20: 1, 30: 1, 31: 1, 32: 1, 33: 1, 34: 1,
    }  # fmt: skip


def test_neither_removed_subscriptions_nor_expired_events_are_delivered(engine: Engine, clock: Clock) -> None:
    s = engine.subscribe("SELECT page FROM hits", backfill=True)
    engine.unsubscribe(s)
    assert emitted(engine.tick()) == []
    clock.now += timedelta(hours=1)
    engine.tick()
    assert engine._database._retained["hits"].count == 0
    engine.subscribe("SELECT page FROM hits", backfill=True)
    assert emitted(engine.tick()) == []


@pytest.mark.parametrize(
    ("sql", "options", "fact"),
    [
        ("SELECT ms FROM plain", {}, "plain retains no events"),
        ("SELECT k FROM t", {}, "t retains no events"),
        ("SELECT ms FROM hits", {"valid_from": START + timedelta(days=1)}, "begins now"),
    ],
)
def test_refused(engine: Engine, sql: str, options: Any, fact: str) -> None:
    with pytest.raises(SubscriptionError, match=fact):
        engine.subscribe(sql, backfill=True, **options)
    assert not engine.subscriptions()
    engine._check()


def test_an_engine_that_retains_nothing(clock: Clock) -> None:
    engine = Engine(clock=clock, retain=False)
    engine.execute("CREATE STREAM hits (ms BIGINT) RETAIN '1 hour'")
    engine.publish("hits", {"ms": 1})
    engine.subscribe("SELECT ms FROM hits", backfill=True)
    assert emitted(engine.tick()) == []
