"""Expressions over streams: joins, windows, absence and sequences give what columns of these values give."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tocsin
from tocsin.errors import SqlError

DDL = """
CREATE STREAM hits (page STRING, ms BIGINT, w DOUBLE, up STRING, twice BIGINT, cost DOUBLE);
CREATE STREAM clicks (page STRING, n BIGINT, up STRING, twice BIGINT);
CREATE TABLE pages (page STRING PRIMARY KEY, name STRING, w BIGINT, v BIGINT, up STRING, big BOOLEAN)
"""
QUERIES = [  # with {expression|column}
    "SELECT {h.ms * 2|h.twice} AS m FROM hits h JOIN pages p ON h.page = p.page WHERE {p.w < p.v|p.big}",
    "SELECT h.ms, p.name FROM hits h JOIN pages p ON {upper(h.page)|h.up} = {upper(p.page)|p.up}",
    "SELECT {h.ms * 2|h.twice} AS m, c.n FROM hits h JOIN clicks c ON h.page = c.page "
    "WHERE {h.ms * 2|h.twice} > 5 WITH (memory = '1 MB')",
    "SELECT h.ms, c.n FROM hits h JOIN clicks c ON {upper(h.page)|h.up} = {upper(c.page)|c.up} "
    "WITH (memory = '1 MB')",
    "SELECT MAX({ms * w|cost}) AS m FROM hits WHERE {ms * 2|twice} > 4 WITH (window = '10 minutes')",
    "SELECT {upper(page)|up} AS p, COUNT(*) AS n FROM hits GROUP BY {upper(page)|up} "
    "WITH (window = '9 minutes')",
    "SELECT page, ms FROM hits ORDER BY {ms * w|cost} DESC LIMIT 2 WITH (window = '10 minutes')",
    "SELECT h.ms, c.n FROM hits h JOIN clicks c ON {upper(h.page)|h.up} = {upper(c.page)|c.up} "
    "WITH (window = '10 minutes')",
    "SELECT {upper(page)|up} AS p FROM hits a WHERE NOT EXISTS (SELECT 1 FROM clicks b WHERE b.page = a.page "
    "AND {b.n * 2|b.twice} > 4) WITH (window = '5 minutes')",
    "SELECT DISTINCT page FROM hits WHERE {ms * 2|twice} > 4 WITH (window = '3 minutes', absent = '1 day')",
    "SELECT a.ms AS x, b.n AS y FROM hits a FOLLOWED BY clicks b ON {upper(a.page)|a.up} = "
    "{upper(b.page)|b.up} AND {a.ms * 2|a.twice} > 5 WITHIN '5 minutes'",
]


def _form(text: str, which: int) -> str:
    parts = text.split("{")
    pairs = [part.partition("}") for part in parts[1:]]
    return parts[0] + "".join(inner.split("|")[which] + rest for inner, _, rest in pairs)


def _event(draw: random.Random, stream: str) -> dict[str, Any]:
    page, number = draw.choice(["a", "A", "b", "c", "C"]), draw.randrange(6)
    if stream == "clicks":
        return {"page": page, "n": number, "up": page.upper(), "twice": number * 2}
    weight = draw.choice([0.5, 1.0, 2.0])
    return {
        "page": page, "ms": number, "w": weight, "up": page.upper(), "twice": number * 2,
        "cost": number * weight,
    }  # fmt: skip


@pytest.mark.parametrize("text", QUERIES)
def test_expressions_are_as_columns_of_their_values(text: str) -> None:
    now, draw = datetime(2024, 5, 1, tzinfo=UTC), random.Random(len(text))
    clock = [now]
    engine = tocsin.Engine(clock=lambda: clock[0])
    engine.execute(DDL)
    for page in ("a", "B", "C"):
        w, v = draw.randrange(3), draw.randrange(3)
        row = {"page": page, "name": page * 2, "w": w, "v": v, "up": page.upper(), "big": w < v}
        engine.insert("pages", row)
    one, other = (engine.subscribe(_form(text, which)).id for which in (0, 1))
    emitted: dict[int, list[Any]] = {one: [], other: []}
    engine.on_delta(lambda d: [emitted[x.subscription].append((x.seq, x.sign, x.row)) for x in d] and None)
    for _ in range(25):
        stream = draw.choice(["hits", "clicks"])
        events = [_event(draw, stream) for _ in range(draw.choice([1, 1, 4]))]
        engine.apply(stream, events) if len(events) > 1 else engine.publish(stream, events[0])
        clock[0] += timedelta(seconds=draw.choice([1, 30, 90]))
        engine.tick()
    assert emitted[one], "the query says something"
    assert sorted(map(repr, emitted[one])) == sorted(map(repr, emitted[other]))
    engine._check()


def test_keys_that_are_absent_are_columns() -> None:
    engine = tocsin.Engine()
    engine.execute(DDL)
    with pytest.raises(SqlError, match="is no column, and absent needs columns"):
        engine.subscribe(
            "SELECT DISTINCT upper(page) AS p FROM hits WITH (window = '3 minutes', absent = '1 day')"
        )
