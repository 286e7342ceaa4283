"""Rehearsals of rows with and without partners: outer joins, EXISTS, UNION ALL, absence and sequences."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine

__all__ = ["rehearse_partners"]

_TABLES = (
    "SELECT * FROM t LEFT JOIN u ON t.k = u.k WHERE t.a > {n}",
    "SELECT * FROM t RIGHT JOIN u ON t.s = u.s AND u.a > {n}",
    "SELECT t.id, u.id AS other FROM t FULL JOIN u ON t.k = u.k AND t.a > {n}",
    "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.a > {n})",
    "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.s = t.s AND u.a > {n}) AND a > 1",
    "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.s = t.s AND u.k = t.k AND u.a > {n})",
    "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a > t.a AND u.a > {n})",
    "SELECT * FROM t WHERE s IN (SELECT s FROM u WHERE a > {n})",
    "SELECT * FROM t WHERE k NOT IN (SELECT k FROM u WHERE a > {n})",
    "SELECT id, s FROM t WHERE a > {n} UNION ALL SELECT id, s FROM u WHERE a > {n}",
)
_STREAMS = (
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM hits h WHERE h.page = t.s) WITH (window = '5 seconds')",
    "SELECT h.page FROM hits h WHERE NOT EXISTS (SELECT 1 FROM hits g WHERE g.page = h.page AND g.ms > {n}) "
    "WITH (window = '5 seconds')",
    "SELECT DISTINCT page FROM hits WITH (window = '{n} seconds', absent = '1 day')",
    "SELECT DISTINCT page FROM hits WHERE ms > {n} WITH (window = '5 seconds', absent = 'forever')",
    "SELECT b.page, b.ms FROM hits a FOLLOWED BY hits b USING (page) WITHIN '5 seconds' "
    "WHERE a.ms < {n} AND b.ms > 3",
    "SELECT c.ms FROM hits a FOLLOWED BY hits b ON a.page = b.page FOLLOWED BY hits c ON b.page = c.page "
    "WITHIN '9 seconds' WHERE a.ms < {n} AND c.ms > 3",
)
_COLUMNS = "id BIGINT, k BIGINT, s STRING, a DOUBLE, PRIMARY KEY (id)"


def _rows(first: int, count: int, rng: np.random.Generator, op: str) -> Any:
    numbers = rng.integers(0, 20, count)
    texts = [f"s{n}" for n in numbers]
    columns = {"id": np.arange(first, first + count), "k": numbers, "s": texts, "a": rng.random(count) * 60}
    return pa.table({**columns, "_op": [op] * count})


def _changes(engine: Engine, first: int, rng: np.random.Generator) -> None:
    """Rows that come, change and go, singly and in batches, on both sides."""
    for name in ("t", "u"):
        engine.insert(name, {"id": first, "k": 3, "s": "s1", "a": 15.0})
        engine.update(name, {"id": first, "k": None, "s": "s2"})
        engine.delete(name, {"id": first})
        for op in ("insert", "update"):
            engine.apply(name, _rows(first, 60, rng, op))
        engine.apply(name, pa.table({"id": np.arange(first, first + 40), "_op": ["delete"] * 40}))


def _events(engine: Engine, now: list[datetime], rng: np.random.Generator) -> None:
    """Events of some keys, singly and in batches, while time passes."""
    for count in (1, 1, 40, 300):
        now[0] += timedelta(seconds=3)
        pages, ms = rng.integers(0, 9, count), rng.integers(0, 12, count).tolist()
        events = [{"page": f"s{page}", "ms": value} for page, value in zip(pages, ms, strict=True)]
        if count == 1:
            engine.publish("hits", events[0])
        else:
            engine.apply("hits", events)
        engine.tick()


def _phases(engine: Engine, texts: tuple[str, ...]) -> Iterator[None]:
    """A few subscriptions, then many, then some of them left; between them the caller makes changes."""
    few = [engine.subscribe(text.format(n=n)) for text in texts for n in (1, 2)]
    yield
    many = [engine.subscribe_texts([text.format(n=n) for n in range(3, 40)]) for text in texts]
    yield
    for ids in many:
        engine.unsubscribe_many(ids[:30])
    for one in few[::2]:
        engine.unsubscribe(one)
    yield
    engine.contents()
    engine.stats()


def rehearse_partners() -> None:
    """Each kind of answer, over tables and over streams with a clock."""
    rng, now = np.random.default_rng(0), [datetime(2024, 5, 1, tzinfo=UTC)]
    engine = Engine(clock=lambda: now[0])
    engine.execute(f"CREATE TABLE t ({_COLUMNS}); CREATE TABLE u ({_COLUMNS})")
    engine.execute("CREATE STREAM hits (page STRING, ms BIGINT)")
    for number, _ in enumerate(_phases(engine, _TABLES)):
        _changes(engine, 1000 * number, rng)
    for number, _ in enumerate(_phases(engine, _STREAMS)):
        _events(engine, now, rng)
        _changes(engine, 5000 + 1000 * number, rng)
    now[0] += timedelta(seconds=60)
    engine.tick()
