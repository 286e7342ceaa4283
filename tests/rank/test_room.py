"""The engine's rank room: families, the fallback to the scan, and steps that a family misses. The law itself
is tested with all rooms in tests/contract."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from tocsin.engine import Engine, Rooms
from tocsin.errors import TocsinError
from tocsin.rank import room as ranged
from tocsin.rank.room import RankRoom
from tocsin.rank.scan import RankScan

QUERIES = (
    "SELECT * FROM t WHERE x BETWEEN {a} AND {b} ORDER BY y LIMIT 3",
    "SELECT k, s FROM t WHERE x >= {a} ORDER BY y DESC, s LIMIT 2",
    "SELECT s FROM t WHERE x BETWEEN {a} AND {b} AND s != 'b' ORDER BY s LIMIT 2",
    "SELECT k FROM t WHERE x BETWEEN {a} AND {b} AND s = 'a' ORDER BY y LIMIT 1",
    "SELECT MIN(y) FROM t WHERE x BETWEEN {a} AND {b}",
    "SELECT MAX(s) AS m FROM t WHERE x < {b}",
    "SELECT MIN(y), MAX(y) FROM t WHERE x > {a}",
    "SELECT COUNT(*), SUM(y), AVG(x) FROM t WHERE x BETWEEN {a} AND {b}",
    "SELECT COUNT(*), MAX(s), SUM(x), MIN(y) AS m FROM t WHERE x BETWEEN {a} AND {b} AND s != 'c'",
    "SELECT DISTINCT s FROM t WHERE x BETWEEN {a} AND {b}",
    "SELECT k FROM t ORDER BY y LIMIT 2",
)


class Pair:
    """The same subscriptions and changes in an engine with families and one that scans."""

    def __init__(self, seed: int = 0) -> None:
        self.engines = [Engine(rooms=Rooms(rank=room)) for room in (RankRoom, RankScan)]
        self.random = random.Random(seed)
        for engine in self.engines:
            engine.execute("CREATE TABLE t (k BIGINT, x BIGINT, y DOUBLE, s STRING, PRIMARY KEY (k))")

    def subscribe(self, sql: str) -> None:
        for engine in self.engines:
            engine.subscribe(sql)

    def subscribe_some(self, count: int = 1) -> None:
        for query in QUERIES * count:
            a, b = sorted(self.random.randint(0, 12) for _ in range(2))
            self.subscribe(query.format(a=a, b=b))

    def row(self) -> dict[str, Any]:
        pick = self.random.choice
        return {
            "k": pick(range(15)),
            "x": pick([None, *range(12)]),
            "y": pick([None, 0.5, 1.0, 2.0, 7.5, float("nan")]),
            "s": pick([None, "a", "b", "c"]),
        }

    def apply(self, rows: list[dict[str, Any]], **more: Any) -> None:
        table = pa.Table.from_pylist([{"_op": "upsert", **row} for row in rows])
        deltas = [Counter(map(repr, engine.apply("t", table, **more))) for engine in self.engines]
        assert deltas[0] == deltas[1]
        self.engines[0]._check()

    def compare_contents(self) -> None:
        mine, plain = (Counter(map(repr, engine.contents())) for engine in self.engines)
        assert mine == plain


@pytest.mark.parametrize("seed", range(3))
def test_deltas_equal_those_of_the_scan(seed: int) -> None:
    pair = Pair(seed)
    pair.subscribe_some()
    for n in range(8):
        pair.apply([pair.row() for _ in range(pair.random.randint(1, 12))])
        if n == 3:
            pair.subscribe_some()
            for engine in pair.engines:
                engine.unsubscribe_many([s.id for s in engine.subscriptions()[::3]])
    pair.compare_contents()
    families = pair.engines[0].stats()["rank"]["families"]
    assert {family["family"] for family in families} == {
        *("topk", "extremes", "aggregates", "combined", "distinct")
    }


def test_contents_of_many_are_those_of_each() -> None:
    pair = Pair()
    for n in range(3):
        pair.subscribe_some(2)
        pair.subscribe(f"SELECT k FROM t WHERE x BETWEEN 2 AND 9 AND s = 'a' ORDER BY y LIMIT {n + 1}")
        pair.apply([pair.row() for _ in range(15)])
    engine = pair.engines[0]
    ids = [s.id for s in engine.subscriptions()]
    ids = [*ids[::-1], *ids[:3]]
    deltas = iter(engine.contents(ids))
    for id in ids:
        wanted = engine.content(id)
        found = [next(deltas) for _ in wanted]
        assert {d.subscription for d in found} <= {id} and {d.sign for d in found} <= {1}
        rows = [d.row for d in found]
        assert rows == wanted or Counter(map(repr, rows)) == Counter(map(repr, wanted))
        assert rows == wanted or not engine.query(id).order or "nan" in repr(rows)
    assert next(deltas, None) is None


@pytest.mark.parametrize("limit", [65, 128])
def test_deep_top_k(limit: int) -> None:
    pair = Pair()
    for a in range(6):
        pair.subscribe(f"SELECT * FROM t WHERE x BETWEEN {a} AND {12 - a} ORDER BY y, s LIMIT {limit}")
    pair.apply([{**pair.row(), "k": k} for k in range(300)])
    for _ in range(3):
        pair.apply([{**pair.row(), "k": pair.random.randrange(320)} for _ in range(40)])
    pair.compare_contents()
    assert pair.engines[0].stats()["rank"]["scanned"] == 0


def test_a_step_that_is_rolled_back_leaves_no_trace() -> None:
    pair = Pair()
    pair.subscribe_some()
    pair.apply([{"k": k, "x": k, "y": 1.0 * k, "s": "a"} for k in range(8)])
    for engine in pair.engines:
        with pytest.raises(TocsinError):
            engine.apply("t", pa.table({"k": [1, 99], "x": [3, 3], "_op": ["update", "update"]}))
    pair.subscribe("SELECT SUM(x) FROM t WHERE y > 100")
    rows = pa.table({"k": [50, 51], "x": [2**62, 2**62], "y": [200.0, 200.0], "s": ["a", "a"]})
    for engine in pair.engines:  # all rooms emit deltas, then the step is rejected: the sum exceeds BIGINT
        with pytest.raises(TocsinError, match="overflow"):
            engine.apply("t", rows)
    pair.apply([pair.row() for _ in range(10)])
    pair.compare_contents()


def test_rows_at_codes_of_open_ends_are_left_to_the_scan_for_a_step() -> None:
    pair = Pair()
    pair.subscribe_some()
    pair.subscribe(f"SELECT k FROM t WHERE x <= {2**63 - 1} ORDER BY y LIMIT 1")
    pair.apply([pair.row() for _ in range(5)])
    pair.apply([{"k": 3, "x": 2**63 - 1, "y": -1.0, "s": "a"}, pair.row()])
    assert pair.engines[0].stats()["rank"]["scanned"] > 5
    pair.subscribe_some()
    pair.apply([pair.row() for _ in range(5)])
    assert pair.engines[0].stats()["rank"]["scanned"] == 0
    pair.apply([{"k": 3, "x": -(2**63), "y": -1.0, "s": "a"}, pair.row()])
    pair.compare_contents()


def test_too_many_families_are_left_to_the_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranged, "_MAX_CONDITIONAL", 2)
    pair = Pair()
    for n in range(5):
        pair.subscribe(f"SELECT MIN(y) FROM t WHERE x > 3 AND s != '{n}'")
    pair.apply([pair.row() for _ in range(9)])
    stats = pair.engines[0].stats()["rank"]
    assert (len(stats["families"]), stats["scanned"]) == (2, 3)
    for engine in pair.engines:
        engine.unsubscribe_many([s.id for s in engine.subscriptions()])
    assert pair.engines[0].stats()["rank"]["families"] == []
    pair.engines[0]._check()


def test_templates_are_placed_by_column() -> None:
    pair = Pair()
    pair.apply([pair.row() for _ in range(12)])
    ranges = pa.table({"id": range(40), "a": [n % 7 for n in range(40)], "b": [5 + n % 6 for n in range(40)]})
    for number, query in enumerate(QUERIES[:5]):
        text = query.format(a=":a", b=":b")
        for engine in pair.engines:
            engine.subscribe_many(
                text, ranges.set_column(0, "id", pa.array(range(40 * number, 40 * number + 40)))
            )
    for _ in range(4):
        pair.apply([pair.row() for _ in range(6)])
    pair.compare_contents()


def test_templates_with_further_conditions_share_families() -> None:
    pair = Pair()
    pair.apply([pair.row() for _ in range(12)])
    rows = {
        "a": [n % 7 for n in range(40)],
        "b": [7 + n % 5 for n in range(40)],
        "s": ["abc"[n % 3] for n in range(40)],
    }
    queries = (
        "SELECT k FROM t WHERE x BETWEEN :a AND :b AND s = :s AND y > 0 ORDER BY y LIMIT 2",
        "SELECT MAX(y) FROM t WHERE x >= :a AND s != :s AND x <= :b AND s LIKE '%a%'",
        "SELECT SUM(x) FROM t WHERE x BETWEEN :a AND :b AND x != 5",
    )
    for number, query in enumerate(queries):
        for engine in pair.engines:
            engine.subscribe_many(query, pa.table({"id": range(40 * number, 40 * number + 40), **rows}))
    for _ in range(4):
        pair.apply([pair.row() for _ in range(6)])
    pair.compare_contents()
    stats = pair.engines[0].stats()["rank"]
    kinds = Counter(family["family"] for family in stats["families"])
    assert (kinds["topk"], kinds["extremes"], stats["scanned"]) == (1, 3, 0)  # values of s lie side by side


def test_a_slot_is_reused_before_a_step() -> None:
    engine = Pair().engines[0]
    engine.unsubscribe(engine.subscribe("SELECT MIN(y) FROM t WHERE x BETWEEN 0 AND 10"))
    engine.subscribe("SELECT k FROM t WHERE x BETWEEN 100 AND 200 ORDER BY y LIMIT 2")
    assert list(engine.insert("t", {"k": 1, "x": 5, "y": 3})) == []
    assert [d.row for d in engine.insert("t", {"k": 2, "x": 150, "y": 3})] == [{"k": 2}]


@pytest.mark.parametrize("limit", [129, 5_000_000_000, 2**64])
def test_a_limit_beyond_all_rows(limit: int) -> None:
    pair = Pair()
    pair.subscribe(f"SELECT k FROM t WHERE x BETWEEN 1 AND 20 ORDER BY y LIMIT {limit}")
    pair.apply([pair.row() for _ in range(9)])
    assert pair.engines[0].stats()["rank"]["scanned"] == 1


def test_rejected_subscriptions_get_a_family_once_there_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranged, "_MAX_CONDITIONAL", 2)
    pair = Pair()
    for n in range(5):
        pair.subscribe(f"SELECT MIN(y) FROM t WHERE x > 3 AND s != '{n}'")
    pair.apply([pair.row() for _ in range(9)])
    for engine in pair.engines:
        engine.unsubscribe_many([1, 2])
    pair.apply([pair.row() for _ in range(9)])
    stats = pair.engines[0].stats()["rank"]
    assert (len(stats["families"]), stats["scanned"]) == (2, 1)
