"""Semi-joins by primary keys: rows are found in the tables' directories, as the scan finds them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from tocsin.engine import Engine, Rooms
from tocsin.reference import row_key
from tocsin.semi.scan import SemiScan

DEFINITIONS = """
CREATE TABLE a (id BIGINT, x BIGINT, PRIMARY KEY (id));
CREATE TABLE b (id BIGINT, x BIGINT, t STRING, PRIMARY KEY (id));
CREATE TABLE d (day DATE, x BIGINT, PRIMARY KEY (day));
CREATE STREAM e (id BIGINT, x BIGINT)
"""
QUERIES = [
    "SELECT a.id, a.x FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id = a.id)",
    "SELECT a.x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.id = a.id AND b.x BETWEEN 1 AND 3)",
    "SELECT a.id FROM a WHERE a.x > 0"
    " AND NOT EXISTS (SELECT 1 FROM b WHERE b.id = a.id AND b.x > 2 AND b.t = 'k')",
    "SELECT a.id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id = a.x AND b.t LIKE 'k%')",
    "SELECT b.id FROM b WHERE b.x IN (SELECT id FROM a) AND b.id NOT IN (SELECT id FROM a WHERE x = 1)",
    "SELECT a.id, b.x FROM a LEFT JOIN b ON a.id = b.id AND b.x > 1",
    "SELECT a.id, b.x FROM a FULL JOIN b ON a.id = b.id",
    "SELECT l.day FROM d l WHERE NOT EXISTS (SELECT 1 FROM d r WHERE r.day = l.day AND r.x > 1)",
    "SELECT a.id FROM a WHERE NOT EXISTS (SELECT 1 FROM e WHERE e.id = a.id) WITH (window = '3 seconds')",
    "SELECT a.id FROM a WHERE a.x IN (SELECT id FROM e) WITH (window = '3 seconds')",
]


def change(rng: Random, table: str, ids: set[object]) -> list[dict[str, object]]:
    batch: list[dict[str, object]] = []
    for _ in range(rng.randint(1, 8)):
        id: object = rng.randrange(9)
        key = "day" if table == "d" else "id"
        if table == "d":
            id = f"2024-05-0{id + 1}"  # type: ignore[operator]
        if id in ids and rng.random() < 0.4:
            ids.discard(id)
            batch.append({"_op": "delete", key: id})
            continue
        ids.add(id)
        row = {"_op": "upsert", key: id, "x": rng.choice([0, 1, 2, 3, None])}
        batch.append(row | ({"t": rng.choice(["k", "kk", "m", None])} if table == "b" else {}))
    return batch


@pytest.mark.parametrize("seed", range(4))
def test_directories_say_what_the_scan_says(seed: int) -> None:
    rng, now = Random(seed), [datetime(2024, 5, 1, tzinfo=UTC)]
    engines = [Engine(clock=lambda: now[0], rooms=rooms) for rooms in (None, Rooms(semi=SemiScan))]
    for engine in engines:
        engine.execute(DEFINITIONS)
        for query in QUERIES:
            engine.subscribe(query)
    ids: dict[str, set[object]] = {"a": set(), "b": set(), "d": set()}
    for _ in range(40):
        now[0] += timedelta(seconds=rng.choice([0, 0.5, 2, 4]))
        batches = {name: change(rng, name, own) for name, own in ids.items() if rng.random() < 0.6}
        batches["e"] = [{"id": rng.choice([0, 1, 2, 3, None]), "x": 1} for _ in range(rng.choice([0, 1, 3]))]
        found, expected = (
            Counter((d.seq, d.subscription, d.sign, row_key(d.row)) for d in engine.apply_all(batches))
            for engine in engines
        )
        assert found == expected, (found - expected, expected - found)
    engines[0]._check()
    assert engines[0].stats()["semi"]["orders"] <= 4  # a and b by x, and as a whole
