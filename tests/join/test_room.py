"""The room of the engine beside the scan: case by case, over random changes, with the same deltas."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.strategies.changes import to_arrow
from tocsin.engine import Engine, Rooms
from tocsin.errors import TocsinError
from tocsin.join import groups, multiway
from tocsin.join.room import JoinRoom
from tocsin.join.scan import JoinScan
from tocsin.model.schema import Table, Type

TABLES = (
    "CREATE TABLE a (id BIGINT, k BIGINT, d DOUBLE, s STRING, t TIMESTAMP, day DATE, yes BOOLEAN, "
    "x DOUBLE, PRIMARY KEY (id))",
    "CREATE TABLE b (id BIGINT, k BIGINT, d DOUBLE, s STRING, t TIMESTAMP, day DATE, yes BOOLEAN, "
    "x DOUBLE, PRIMARY KEY (id))",
    "CREATE TABLE c (id BIGINT, k BIGINT, d DOUBLE, s STRING, t TIMESTAMP, day DATE, yes BOOLEAN, "
    "x DOUBLE, PRIMARY KEY (id))",
)
DAY = datetime(2024, 1, 1, tzinfo=UTC)
VALUES: dict[Type, list[Any]] = {
    Type.BIGINT: [0, 1, 2, 3, 3, None, 2**53 + 1, 2**63 - 1, -(2**63)],
    Type.DOUBLE: [0.0, -0.0, 1.0, 1.5, 2.0, 3.0, None, math.nan, math.inf, -math.inf, 2.0**53],
    Type.STRING: ["", "x", "xy", "yx", "z", None],
    Type.TIMESTAMP: [DAY, DAY + timedelta(hours=1), DAY + timedelta(days=1), None],
    Type.DATE: [date(2024, 1, 1), date(2024, 1, 2), None],
    Type.BOOLEAN: [True, False, None],
}

JOINS = {
    "same type": ("a.k = b.k",),
    "whole numbers with doubles": ("a.k = b.d", "a.d = b.k"),
    "doubles": ("a.d = b.d",),
    "texts": ("a.s = b.s",),
    "times": ("a.t = b.day", "a.day = b.day"),
    "composite": ("a.s = b.s AND a.k = b.d", "a.yes = b.yes AND a.day = b.t"),
    "band of whole numbers": ("a.k - b.k BETWEEN -1 AND 1", "b.k - a.k >= 2", "a.k - b.k < 9e18"),
    "band of doubles": ("a.d - b.d BETWEEN -0.5 AND 1.5", "a.d <= b.k", "b.d > a.d"),
    "band of times": ("a.t - b.day BETWEEN INTERVAL '0' HOUR AND INTERVAL '2' HOUR", "b.t >= a.t"),
    "two bands": ("a.k - b.k BETWEEN -1 AND 1 AND a.d < b.d",),
    "equality and band": ("a.s = b.s AND a.d - b.d BETWEEN -1 AND 1", "a.s = b.s AND a.k > b.k"),
}
WHERE = (
    "",
    " WHERE a.x BETWEEN 1 AND 2",
    " WHERE a.x >= 1 AND b.x < 3",
    " WHERE b.k = 3 AND a.x > 0 AND a.yes",
    " WHERE (a.x = 1 OR a.x = 3) AND b.s LIKE 'x%'",
    " WHERE a.s LIKE '%x%' AND NOT b.x = 1",
    " WHERE b.s IN ('x', 'z') AND a.s = 'x'",
    " WHERE a.x IS NULL OR b.x IS NOT NULL",
    " WHERE a.s = 'x' OR b.x = 1.5",
)
FROM_TWO = ("a JOIN b ON {}", "b JOIN a ON {}", "a JOIN a AS b ON {}")


class Beside:
    """The same in two engines."""

    def __init__(self, seed: int = 0) -> None:
        self.engines = [Engine(rooms=Rooms(join=room)) for room in (JoinRoom, JoinScan)]
        self.random = random.Random(seed)
        self.ids: dict[str, list[int]] = {}
        for engine in self.engines:
            for definition in TABLES:
                engine.execute(definition)

    def subscribe(self, *texts: str) -> list[int]:
        both = [[engine.subscribe(text).id for text in texts] for engine in self.engines]
        return both[0]

    def batch(self, table: str, size: int) -> Any:
        """Random inserts, updates and deletes, of one row again and again too."""
        schema = self.engines[0].schema(table)
        assert isinstance(schema, Table)
        known, rows, ops = self.ids.setdefault(table, []), [], []
        for _ in range(size):
            op = self.random.choice(["insert", "insert", "update", "delete"]) if known else "insert"
            row: dict[str, Any] = {"id": len(known) if op == "insert" else self.random.choice(known)}
            if op == "insert":
                row["id"] = self.random.getrandbits(40)
                known.append(row["id"])
            if op == "delete":
                known.remove(row["id"])
            for field in schema.fields[1:]:
                if op != "delete" and (op == "insert" or self.random.random() < 0.5):
                    row[field.name] = self.random.choice(VALUES[field.type])
            rows.append(row)
            ops.append(op)
        return to_arrow(schema, rows, ops)

    def apply(self, table: str, batch: Any, **how: Any) -> int:
        deltas = [
            sorted(repr(delta) for delta in engine.apply(table, batch, **how)) for engine in self.engines
        ]
        assert deltas[0] == deltas[1]
        self.engines[0]._check()
        return len(deltas[0])

    def run(self, tables: str, steps: int = 6, size: int = 12) -> int:
        count = 0
        for step in range(steps):
            for table in tables:
                count += self.apply(table, self.batch(table, size), net=step % 3 == 2)
        return count


@pytest.mark.parametrize("joins", JOINS.values(), ids=JOINS.keys())
@pytest.mark.parametrize("tables", FROM_TWO, ids=["a, b", "b, a", "self"])
def test_two_tables(joins: tuple[str, ...], tables: str) -> None:
    beside = Beside()
    beside.subscribe(*(f"SELECT * FROM {tables.format(join)}{where}" for join in joins for where in WHERE))
    assert beside.run("a" if "AS b" in tables else "ab")


@pytest.mark.parametrize(
    "tables",
    [
        "a JOIN b ON a.k = b.k JOIN c ON b.s = c.s",  # a chain
        "c JOIN a ON a.k = c.d JOIN b ON b.s = c.s",  # a star
        "a JOIN b ON a.k = b.k JOIN a AS c ON c.k = b.k AND c.s = b.s",  # a table twice, a composite key
        "a JOIN b ON a.yes = b.yes JOIN c ON c.day = b.day JOIN b AS e ON e.k = c.k",
    ],
)
def test_more_tables(tables: str) -> None:
    beside = Beside()
    more = (" WHERE c.x BETWEEN 1 AND 3 AND a.x > 0", " WHERE c.s <> 'x' AND a.x = 1")
    beside.subscribe(*(f"SELECT a.id, c.s FROM {tables}{where}" for where in (*WHERE, *more)))
    beside.subscribe(f"SELECT * FROM {tables} WHERE a.x = 1 OR c.k = 3 OR b.s = 'x'")
    assert beside.run("abc", steps=4, size=8)


def test_common_beginnings_of_paths_are_joined_once(monkeypatch) -> None:
    beside, hops = Beside(), []
    both = "FROM a JOIN b ON a.k = b.k JOIN c ON c.s = b.s"
    beside.subscribe(
        f"SELECT a.id {both} WHERE c.x > 0",
        "SELECT b.id FROM c JOIN b ON b.s = c.s JOIN a ON b.k = a.k WHERE a.x >= 1",  # the same tree
        f"SELECT a.id {both} JOIN a AS e ON e.day = c.day WHERE e.x > 0",
        f"SELECT a.id {both} JOIN a AS e ON e.yes = c.yes JOIN c AS f ON f.k = e.k WHERE b.x > 0",
    )
    beside.run("abc", steps=2, size=10)
    right = multiway._rows_of

    def counted(hop, *given):
        hops.append(hop)
        return right(hop, *given)

    monkeypatch.setattr(multiway, "_rows_of", counted)
    rows = [{"id": 7, "k": 3, "s": "x", "x": 2.0, "yes": True, "day": date(2024, 1, 1)}]
    for table in "bca":
        schema = beside.engines[0].schema(table)
        assert isinstance(schema, Table)
        hops.clear()
        beside.apply(table, to_arrow(schema, rows, ["insert"]))
        if table == "b":  # a, c, then e by day, e by yes and f: one each, not nine
            assert len(hops) <= 6 and len(set(hops)) == len(hops)
    assert beside.run("abc", steps=3, size=10)


@pytest.mark.parametrize("joins", [JOINS["same type"], JOINS["equality and band"], JOINS["band of doubles"]])
def test_portions_of_two_tables(joins: tuple[str, ...], monkeypatch) -> None:
    """Deltas do not depend on the size of batches."""
    monkeypatch.setattr(groups, "MAX_CANDIDATES", 3)
    beside = Beside()
    beside.subscribe(*(f"SELECT * FROM a JOIN b ON {join}{where}" for join in joins for where in WHERE))
    assert beside.run("ab", size=30)


def test_portions_of_more_tables(monkeypatch) -> None:
    monkeypatch.setattr(groups, "MAX_CANDIDATES", 3)
    beside = Beside()
    tables = "a JOIN b ON a.yes = b.yes JOIN c ON c.s = b.s"
    beside.subscribe(*(f"SELECT a.id, c.s FROM {tables}{where}" for where in WHERE))
    assert beside.run("abc", steps=3, size=10)


def test_a_condition_that_all_share_is_no_attribute() -> None:
    engine = Engine()
    for definition in TABLES:
        engine.execute(definition)
    rows = pa.table({"id": range(50), "k": [1] * 50, "x": [float(n) for n in range(50)], "s": ["web"] * 50})
    engine.apply("b", rows)
    low = pa.array([n / 20 for n in range(1000)])
    text = (
        "SELECT a.id, b.id AS o FROM a JOIN b ON a.k = b.k "
        "WHERE b.x BETWEEN :low AND :high AND b.k = 1 AND b.s = 'web'"
    )
    values = pa.table({"id": range(1, 1001), "low": low, "high": pc.add(low, 0.5)})
    engine.subscribe_many(text, values)
    assert len(engine.insert("a", {"id": 1, "k": 1})) == sum(
        n / 20 <= row <= n / 20 + 0.5 for n in range(1000) for row in range(50)
    )
    signature = engine.stats()["join"]["signatures"][0]
    assert [group["attributes"] for group in signature["groups"]] == [["any", "x"]]


def test_subscribe_and_unsubscribe_between_batches() -> None:
    beside, kept = Beside(), []
    for turn in range(12):
        low = turn % 3
        kept += beside.subscribe(
            f"SELECT * FROM a JOIN b ON a.k = b.k WHERE a.x BETWEEN {low} AND {low + 1} AND b.x >= {low}",
            f"SELECT * FROM a JOIN b ON a.d - b.d BETWEEN {-low} AND 1 WHERE a.x >= {low}",
            f"SELECT a.id FROM a JOIN b ON a.k = b.k JOIN c ON c.s = b.s WHERE c.x > {low}",
        )
        beside.run("abc", steps=1, size=6)
        if turn > 4:
            gone = kept[: 3 + turn % 2]
            kept = kept[len(gone) :]
            for engine in beside.engines:
                engine.unsubscribe_many(gone)
    for engine in beside.engines:
        engine.unsubscribe_many(kept)
    beside.run("abc", steps=1)
    assert beside.engines[0].stats()["join"] == {
        "index": "shared",
        "subscriptions": 0,
        "signatures": [],
        "orders": 0,
    }


def test_a_batch_that_fails_leaves_no_trace() -> None:
    beside = Beside()
    beside.subscribe(*(f"SELECT * FROM {FROM_TWO[0].format('a.s = b.s')}{where}" for where in WHERE))
    beside.subscribe("SELECT SUM(id) FROM a")
    beside.run("ab", steps=2)
    too_much = [{"id": 2**63 - 1 - i, "s": "x", "x": 1.0} for i in range(2)]
    for engine in beside.engines:
        schema = engine.schema("a")
        assert isinstance(schema, Table)
        with pytest.raises(TocsinError, match="overflow"):
            engine.apply("a", to_arrow(schema, too_much, ["insert", "insert"]))
    assert beside.run("ab", steps=3)


def test_subscriptions_that_never_match_are_no_candidates() -> None:
    beside = Beside()
    beside.subscribe(
        "SELECT * FROM a JOIN b ON a.k = b.k WHERE a.x > 2 AND a.x < 1",
        "SELECT * FROM a JOIN b ON a.k = b.k WHERE a.k = 2.5",
        "SELECT * FROM a JOIN b ON a.k - b.k BETWEEN 2 AND 1",
    )
    assert beside.run("ab", steps=2) == 0
    assert all(not family["groups"] for family in beside.engines[0].stats()["join"]["signatures"])
