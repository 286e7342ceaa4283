"""Conditions that name single values: one family for all of them, and the answers of the scan."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from tests.rank.test_room import Pair
from tocsin.rank import partitioned

QUERIES = (
    "SELECT k FROM t WHERE y BETWEEN {a} AND {b} AND s = '{s}' ORDER BY k DESC LIMIT 2",
    "SELECT k FROM t WHERE y BETWEEN {a} AND {b} AND s = '{s}' ORDER BY k DESC LIMIT 3",
    "SELECT MIN(k) FROM t WHERE y > {a} AND s = '{s}'",
    "SELECT MAX(y), COUNT(*) FROM t WHERE y <= {b} AND s = '{s}' AND x = {a}",
    "SELECT SUM(x), AVG(y) FROM t WHERE s = '{s}'",
    "SELECT DISTINCT x FROM t WHERE y >= {a} AND s = '{s}' AND k != 3",
    "SELECT MAX(k) FROM t WHERE s = '{s}' AND x = {a}",
    "SELECT COUNT(y) FROM t WHERE x = {a} AND y BETWEEN {a} AND {b}",
)


def _draw(pair: Pair, query: str) -> str:
    a, b = sorted(pair.random.randint(0, 8) for _ in range(2))
    return query.format(a=a, b=b, s=pair.random.choice(["a", "b", "c", "nowhere"]))


def _row(pair: Pair) -> dict[str, object]:
    return {**pair.row(), "y": pair.random.choice([None, float("nan"), *(pair.random.random() * 9,) * 8])}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("gap", [2, 1 << 20])
def test_deltas_of_partitions_equal_those_of_the_scan(
    seed: int, gap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioned, "_GAP", gap)  # a gap of 2 leaves no label between two
    again = 0
    build = partitioned.PartitionedRows.relabel

    def counted(*args: object) -> None:
        nonlocal again
        again += 1
        build(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(partitioned.PartitionedRows, "relabel", counted)
    pair = Pair(seed)
    for n in range(10):
        if n != 5:
            for query in QUERIES:
                pair.subscribe(_draw(pair, query))
        pair.apply([_row(pair) for _ in range(pair.random.randint(1, 9))])
        if n % 4 == 3:
            for engine in pair.engines:
                engine.unsubscribe_many([s.id for s in engine.subscriptions()[n % 3 :: 3]])
    pair.compare_contents()
    stats = pair.engines[0].stats()["rank"]
    kinds = Counter(family["family"] for family in stats["families"])
    assert stats["scanned"] == 0 and kinds["topk"] == 1 and len(stats["families"]) <= len(QUERIES)
    assert again > (20 if gap == 2 else 0)


def test_templates_are_placed_by_column() -> None:
    pair = Pair()
    pair.apply([_row(pair) for _ in range(12)])
    count = 200
    params = {
        "a": [n % 7 for n in range(count)],
        "b": [7.5 + n % 5 for n in range(count)],
        "s": ["abc"[n % 3] + "é" * (n % 70 // 3) for n in range(count)],
    }
    queries = [
        "SELECT k FROM t WHERE y BETWEEN :a AND :b AND s = :s AND k != 5 ORDER BY y LIMIT 2",
        "SELECT MAX(y), MIN(y) FROM t WHERE x = :a AND s = :s AND y < :b",
        "SELECT SUM(x) FROM t WHERE s = :s",
    ]
    for number, query in enumerate(queries):
        for engine in pair.engines:
            engine.subscribe_many(
                query, pa.table({"id": range(count * number, count * (number + 1)), **params})
            )
    for _ in range(4):
        pair.apply([_row(pair) for _ in range(6)])
    pair.compare_contents()
    stats = pair.engines[0].stats()["rank"]
    assert (len(stats["families"]), stats["scanned"]) == (3, 0)


def test_rows_at_open_ends_and_too_many_values_are_left_to_the_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioned, "_MAX_PARTITIONS", 3)
    pair = Pair()
    for n in range(6):
        pair.subscribe(f"SELECT MAX(y) FROM t WHERE x > {n} AND s = '{'abcdef'[n]}'")
        pair.apply([_row(pair) for _ in range(3)])
    assert pair.engines[0].stats()["rank"]["scanned"] == 3
    pair.apply([{"k": 3, "x": 2**63 - 1, "y": -1.0, "s": "a"}, pair.row()])
    assert pair.engines[0].stats()["rank"]["scanned"] == 6
    pair.apply([_row(pair) for _ in range(5)])
    pair.compare_contents()
