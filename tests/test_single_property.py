"""One at a time is the same as a batch: events of open and declared streams, whatever is subscribed when.

Two engines run the same script. One publishes each event by itself; the other applies it as a `ChangeBatch`.
Deltas, listeners, retained events and errors must be the same.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.cases import StreamCase, stream_cases
from tocsin.engine import Engine
from tocsin.errors import ChangeError, TocsinError
from tocsin.model.change import ChangeBatch
from tocsin.model.delta import Deltas
from tocsin.reference import row_key

START = datetime(2024, 5, 1, tzinfo=UTC)


class Pair:
    """Two engines with one clock: `one` takes single events, `many` takes batches."""

    def __init__(self, definition: str) -> None:
        self.now = START
        self.one, self.many = (Engine(clock=lambda: self.now) for _ in range(2))
        self.received: tuple[list[Any], list[Any]] = [], []
        for engine, received in zip((self.one, self.many), self.received, strict=True):
            engine.execute(definition)
            engine.on_delta(lambda deltas, received=received: received.extend(plain(deltas)))

    def both(self, call: Any) -> None:
        call(self.one)
        call(self.many)

    def publish(self, stream: str, event: dict[str, Any]) -> None:
        try:
            batch, bad = ChangeBatch.from_dicts(self.many.schema(stream), [event])
            together = self.many.apply(stream, batch.or_raise(bad))
        except TocsinError as error:
            with pytest.raises(type(error)):
                self.one.publish(stream, event)
            return
        single = self.one.publish(stream, event)
        assert plain(single) == plain(together)
        assert plain(Deltas.concat([single])) == plain(single)
        assert self.received[0] == self.received[1]
        assert self.one.last_seq == self.many.last_seq

    def check(self) -> None:
        one, many = (engine.stats()["retained"] for engine in (self.one, self.many))
        assert {n: r["events"] for n, r in one.items()} == {n: r["events"] for n, r in many.items()}
        self.both(lambda engine: engine._check())


def plain(deltas: Deltas) -> list[Any]:
    return [(d.seq, d.subscription, d.sign, row_key(d.row), list(d.row)) for d in deltas]


@given(stream_cases(), st.randoms(use_true_random=False), st.booleans())
def test_single_events_are_like_batches(case: StreamCase, random: Any, retains: bool) -> None:
    pair = Pair(str(case.stream) + (" RETAIN '10 minutes'" if retains else ""))
    alive: list[int] = []
    waiting = list(case.written)
    for event in (event for batch in case.batches for event in batch):
        while waiting and random.random() < 0.6:
            sql, options = waiting.pop().sql, _options(random, retains)
            pair.both(lambda engine, sql=sql, options=options: engine.subscribe(sql, **options))
            alive.append(pair.one.subscriptions()[-1].id)
        if alive and random.random() < 0.2:
            gone = alive.pop(random.randrange(len(alive)))
            pair.both(lambda engine, gone=gone: engine.unsubscribe(gone))
        pair.now += timedelta(minutes=random.randrange(4))
        pair.publish(case.stream.name, event)
    pair.check()


def _options(random: Any, retains: bool) -> dict[str, Any]:
    if random.random() < 0.3:
        begins = START + timedelta(minutes=random.randrange(5))
        return {"valid_from": begins, "valid_to": begins + timedelta(minutes=1 + random.randrange(9))}
    return {"backfill": retains and random.random() < 0.5}


EVENTS: list[dict[Any, Any]] = [
    {"a": 1},
    {"a": 1.0, "b": "x"},
    {"a": "1", "b": True},
    {"a": None},
    {},
    {"a": 2**53 + 1},
    {"a": 10**30},
    {"a": -0.0, "b": float("inf")},
    {"a": float("nan")},
    {"a": datetime(2024, 1, 1)},
    {"a": [1]},
    {"a": {"b": 1}},
    {"a": "\ud800"},
    {5: 1},
    {"a": 10**400},
    {"B": 2, "b": 1},
]
QUERIES = [
    "SELECT * FROM s WHERE a = 1",
    "SELECT * FROM s WHERE NOT a > 0 OR b = 'x'",
    "SELECT a AS first, c FROM s WHERE a IS NOT NULL",
    "SELECT b FROM s WHERE a IS NULL",
    "SELECT * FROM s",
    "SELECT * FROM s WHERE b LIKE '%x%'",
    "SELECT * FROM s WHERE b LIKE 'x%' OR b RLIKE '^x'",
    "SELECT * FROM s WHERE a >= 9007199254740993",
    "SELECT * FROM s WHERE a NOT IN (1, 2) AND a NOT BETWEEN 5 AND 6",
    "SELECT * FROM s WHERE b = true OR a < '5'",
]


@pytest.mark.parametrize(
    "definition",
    [
        "CREATE STREAM s",
        "CREATE STREAM s (a BIGINT, b STRING, c BOOLEAN)",
        "CREATE STREAM s (a DOUBLE, b STRING)",
    ],
)
def test_unusual_events(definition: str) -> None:
    pair = Pair(definition)
    for sql in QUERIES:
        try:
            pair.one.subscribe(sql)
        except TocsinError:
            continue
        pair.many.subscribe(sql)
        for event in EVENTS:
            pair.publish("s", event)
    pair.check()


def test_the_caller_may_change_the_event_afterwards() -> None:
    engine, event = Engine(), {"a": 1}
    engine.execute("CREATE STREAM s")
    engine.subscribe("SELECT * FROM s")
    deltas = engine.publish("s", event)
    event["a"] = 2
    assert [delta.row for delta in deltas] == [{"a": 1}]


def test_a_bad_event_changes_nothing() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s (a BIGINT)")
    engine.subscribe("SELECT * FROM s")
    with pytest.raises(ChangeError, match="is not a BIGINT"):
        engine.publish("s", {"a": "x"})
    assert engine.last_seq == 0
    assert engine.publish("s", {"a": 1}).seq.tolist() == [1]
