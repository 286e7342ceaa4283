"""Regressions of the room in an engine: hidden rows, templates with further conditions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tocsin.engine import Engine, Rooms
from tocsin.rank.room import RankRoom
from tocsin.rank.scan import RankScan

DDL = "CREATE TABLE t (k BIGINT, x BIGINT, d DOUBLE, s STRING, g STRING, PRIMARY KEY (k))"
RANGES = pa.table({"id": [1, 2, 3], "a": [7, 2, 0], "b": [9, 4, 9], "g": ["u", "u", "v"]})


def both(ddl: str = DDL) -> list[Engine]:
    engines = [Engine(rooms=Rooms(rank=room)) for room in (RankRoom, RankScan)]
    for engine in engines:
        engine.execute(ddl)
    return engines


def deltas_of(engine: Engine, op: str, row: dict) -> list[tuple]:
    found = getattr(engine, op)("t", row)
    return sorted((d.subscription, d.sign, str(sorted(d.row.items()))) for d in found)


@pytest.mark.parametrize("hidden", [1e20, -1e308, 5e-324, 1e-200, float("inf"), float("nan")])
@pytest.mark.parametrize("items", ["SUM(d) AS s", "AVG(d) AS s, MAX(d) AS m", "COUNT(*) AS c, SUM(d) AS s"])
def test_a_row_outside_of_all_ranges_enters_or_is_deleted(hidden: float, items: str) -> None:
    engines, found = both(), []
    for engine in engines:
        engine.insert("t", {"k": 1, "x": 100, "d": hidden})
        engine.insert("t", {"k": 2, "x": 3, "d": 1.0})
        engine.insert("t", {"k": 3, "x": 101, "d": hidden})
        engine.subscribe(f"SELECT {items} FROM t WHERE x BETWEEN 0 AND 5", id=1)
        steps = [("update", {"k": 2, "d": 2.0}), ("update", {"k": 1, "x": 3, "d": 1.0}), ("delete", {"k": 3})]
        found.append([deltas_of(engine, *step) for step in [*steps, ("update", {"k": 1, "d": hidden})]])
        found[-1].append(str(engine.content(1)))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "more",
    [
        "s IS NOT NULL",
        "s NOT LIKE 'b%'",
        "s NOT IN ('b', 'c')",
        "NOT (d BETWEEN 1 AND 3)",
        "g = :g AND s IS NOT NULL",
        "x != 4",
        "g = :g AND x != 4",
        "x NOT IN (3, 8)",
        "x IS NOT NULL",
        "NOT (x = 8)",
        "(x != 3 OR d > 1)",
        "x > 2",
    ],
)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*) AS c, SUM(d) AS s FROM t WHERE {}",
        "SELECT k FROM t WHERE {} ORDER BY d, k LIMIT 2",
        "SELECT MIN(k) AS m FROM t WHERE {}",
    ],
)
def test_templates_with_further_conditions(more: str, query: str) -> None:
    engines = both()
    text = query.format(f"x BETWEEN :a AND :b AND {more}")
    table = RANGES if ":g" in more else RANGES.drop_columns(["g"])
    for engine in engines:
        engine.subscribe_many(text, table)
    rows = [
        {"k": i, "x": x, "d": d, "s": s, "g": g}
        for i, (x, d, s, g) in enumerate(
            (x, d, s, g)
            for x in (3, 4, 8, None)
            for d in (0.5, 2.0)
            for s, g in (("b", "u"), (None, "u"), ("a", "v"))
        )
    ]
    steps = [("insert", row) for row in rows] + [("update", {"k": 0, "x": 8}), ("delete", {"k": 7})]
    for step in steps:
        ranged, scan = (deltas_of(engine, *step) for engine in engines)
        assert ranged == scan
    for number in (1, 2, 3):
        contents = [sorted(map(str, engine.content(number))) for engine in engines]
        assert contents[0] == contents[1]
    together = [
        sorted((d.subscription, str(d.row)) for d in engine.contents(RANGES["id"].to_numpy()))
        for engine in engines
    ]
    assert together[0] == together[1]
