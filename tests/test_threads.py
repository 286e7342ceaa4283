"""One engine, many threads: whatever the threads do, answers equal a serial run in lock order.

Four publishers, two inserters and a subscriber use one engine at once. The lock of the engine is replaced by
one that records which thread gets it. The same calls are then made in that order by one thread on a second
engine: answers, errors, what listeners receive, and contents must be the same. A client that listens has the
contents as well.

    make test-stress    20 runs, longer ones, everything compiled
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tocsin
from tocsin.engine import Rooms
from tocsin.errors import TocsinError
from tocsin.match.index import Auto, MergePolicy

RUNS = int(os.environ.get("TOCSIN_STRESS_RUNS", "1"))
CALLS = int(os.environ.get("TOCSIN_STRESS_CALLS", "30"))  # by each thread

DEFINITIONS = """
CREATE STREAM hits;
CREATE STREAM trades (symbol STRING, price DOUBLE);
CREATE TABLE stocks (symbol STRING, per DOUBLE, risk DOUBLE, PRIMARY KEY (symbol));
CREATE TABLE reviews (id BIGINT, symbol STRING, rating DOUBLE, PRIMARY KEY (id));
"""
QUERIES = (
    "SELECT * FROM hits WHERE x = {a} AND y >= {b}",
    "SELECT x FROM hits WHERE name LIKE '%{a}%' OR x IN ({a}, {b})",
    "SELECT * FROM hits WHERE name RLIKE '^n[{a}-9]' AND y < {b}",
    "SELECT * FROM trades WHERE symbol = 's{a}' AND price < {b}",
    "SELECT symbol FROM stocks WHERE per BETWEEN {a} AND {b}",
    "SELECT * FROM stocks JOIN reviews USING (symbol) WHERE per < {b} AND rating >= {a}",
    "SELECT symbol, per FROM stocks WHERE risk <= {b} ORDER BY per DESC LIMIT 3",
    "SELECT COUNT(*), MIN(per), AVG(risk) FROM stocks WHERE per >= {a}",
    "SELECT DISTINCT symbol FROM reviews WHERE rating >= {a}",
)
Call = tuple[str, tuple[Any, ...], dict[str, Any]]
Calls = Callable[[random.Random, list[Any]], Iterator[Call]]  # of a thread: random numbers, answers so far


class RecordingLock:
    """A reentrant lock that records the thread of every outermost acquisition."""

    def __init__(self) -> None:
        self._lock, self._depth = threading.RLock(), 0
        self.order: list[int] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        taken = self._lock.acquire(blocking, timeout)
        if taken:
            self._depth += 1
            if self._depth == 1:
                self.order.append(threading.get_ident())
        return taken

    def release(self) -> None:
        self._depth -= 1
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Worker(threading.Thread):
    """Makes calls, each known when the one before has returned, and records them with their answers."""

    def __init__(self, engine: tocsin.Engine, calls: Calls) -> None:
        super().__init__()
        self.engine, self._next_calls = engine, calls
        self.calls: list[Call] = []
        self.answers: list[Any] = []
        self.failed: BaseException | None = None
        self.seed = 0

    def run(self) -> None:
        try:
            for call in self._next_calls(random.Random(self.seed), self.answers):
                self.calls.append(call)
                self.answers.append(answer(self.engine, call))
        except BaseException as error:  # noqa: BLE001 - reported by the test
            self.failed = error


def answer(engine: tocsin.Engine, call: Call) -> Any:
    """What a call returns, in plain Python, or its error."""
    name, args, kwargs = call
    try:
        found = getattr(engine, name)(*args, **kwargs)
    except TocsinError as error:
        return type(error).__name__, str(error)
    if isinstance(found, tocsin.Deltas):
        return plain(found)
    if isinstance(found, np.ndarray):
        return found.tolist()
    if isinstance(found, list):
        return sorted(map(repr, found))
    return found


def plain(deltas: tocsin.Deltas) -> list[Any]:
    """Deltas in a canonical order: within one seq and subscription it is not promised."""
    return sorted((d.seq, d.subscription, d.sign, repr(d.row), str(d.subscriber)) for d in deltas)


def publisher(random: random.Random, answers: list[Any]) -> Iterator[Call]:
    for _ in range(CALLS):
        event = {"x": random.randrange(9), "y": random.randrange(9), "name": f"n{random.randrange(99)}"}
        if random.random() < 0.7:
            yield "publish", ("hits", event), {}
        elif random.random() < 0.5:
            yield (
                "publish",
                ("trades", {"symbol": f"s{random.randrange(9)}", "price": random.random() * 9}),
                {},
            )
        else:
            size = random.randrange(1, 40)
            table = pa.table({name: pa.array([random.randrange(9) for _ in range(size)]) for name in "xyz"})
            yield "apply", ("hits", table), {}


def inserter(random: random.Random, answers: list[Any]) -> Iterator[Call]:
    for _ in range(CALLS):
        op = random.choice(["insert", "upsert", "upsert", "update", "delete"])
        if random.random() < 0.5:
            row: dict[str, Any] = {"symbol": f"s{random.randrange(12)}", "per": random.random() * 9}
            yield op, ("stocks", row if op == "delete" else {**row, "risk": random.random() * 9}), {}
        else:
            row = {"id": random.randrange(30), "symbol": f"s{random.randrange(12)}"}
            yield op, ("reviews", {**row, "rating": float(random.randrange(9))}), {}


def subscriber(random: random.Random, answers: list[Any]) -> Iterator[Call]:
    known: list[int] = []
    for _ in range(CALLS):
        action = random.random()
        if action < 0.5 or not known:
            a, b = random.randrange(9), random.randrange(9)
            yield "subscribe", (random.choice(QUERIES).format(a=a, b=b),), {"subscriber": f"u{a}"}
            known.append(answers[-1].id)
        elif action < 0.65:
            texts = [QUERIES[n % 5].format(a=random.randrange(9), b=n % 9) for n in range(30)]
            yield "subscribe_texts", (texts,), {}
            known.extend(answers[-1])
        elif action < 0.8:
            gone = random.sample(known, random.randrange(1, len(known) + 1) // 2 + 1)[: len(known)]
            known = [id for id in known if id not in gone]
            yield "unsubscribe_many", (gone,), {}
        else:
            yield random.choice(["content", "query"]), (random.choice(known),), {}


def prepared(rooms: Rooms | None = None) -> tuple[tocsin.Engine, list[Any]]:
    """An engine with some subscriptions, and what its listener receives."""
    engine = tocsin.Engine(clock=lambda: datetime(2026, 1, 1, tzinfo=UTC), rooms=rooms)
    engine.execute(DEFINITIONS)
    engine.subscribe_texts([query.format(a=a, b=a + 3) for query in QUERIES for a in range(8)])
    received: list[Any] = []
    engine.on_delta(lambda deltas: received.append(plain(deltas)))
    return engine, received


@pytest.fixture
def _switch_often() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("_switch_often")
@pytest.mark.parametrize("run", range(RUNS))
def test_answers_of_many_threads_equal_a_serial_run_in_lock_order(run: int) -> None:
    policy = MergePolicy(background_size=8, smallest_size=16, cost_factor=0.001)  # merges all the time
    engine, received = prepared(Rooms(match=lambda: Auto(policy, threads=1 + run % 2)))
    client, followed = tocsin.Client(), range(33, 73)  # those over tables
    for id in followed:
        client.start(id, engine.content(id))
    engine.on_delta(client.receive)
    lock = engine._lock = RecordingLock()  # type: ignore[assignment]
    workers = [Worker(engine, calls) for calls in [publisher] * 4 + [inserter] * 2 + [subscriber]]
    for number, worker in enumerate(workers):
        worker.seed = 100 * run + number
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.failed for worker in workers] == [None] * len(workers)

    order, by_thread = list(lock.order), {worker.ident: worker for worker in workers}
    assert len(order) == sum(len(worker.calls) for worker in workers), "a call gets the lock once"
    serial, received_serially = prepared()
    at = dict.fromkeys(by_thread, 0)
    for ident in order:
        worker, n = by_thread[ident], at[ident]
        at[ident] += 1
        assert answer(serial, worker.calls[n]) == worker.answers[n], worker.calls[n]
    assert received == received_serially
    assert plain(engine.contents()) == plain(serial.contents())
    assert engine.subscriptions() == serial.subscriptions() and engine.last_seq == serial.last_seq
    for name in ("stocks", "reviews"):
        assert engine.rows(name).sort_by(engine.schema(name).key[0]) == serial.rows(name).sort_by(  # type: ignore[union-attr]
            serial.schema(name).key[0]  # type: ignore[union-attr]
        )
    for id in followed:
        assert sorted(map(repr, client.content(id))) == sorted(map(repr, engine.content(id)))
    engine._check()
