"""First rows of groups and after others: the shared structures say what the scan says."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

from tocsin.engine import Engine, Rooms
from tocsin.group.scan import GroupScan
from tocsin.reference import row_key

TEXTS = ("a", "b", "ab", None)


def random_query(rng: Random) -> str:
    where = rng.choice(
        ["", " WHERE x > 1", f" WHERE x BETWEEN 0 AND {rng.randint(0, 5)}", " WHERE t LIKE 'a%' OR d < 1"]
    )
    shown = rng.choice(["id, x", "t, x", "k", "id, d, t"])
    order = rng.choice(["x", "x DESC", "d DESC NULLS LAST", "t, x DESC", "d, t DESC NULLS FIRST"])
    if rng.random() < 0.4:
        limit = f"LIMIT {rng.randint(1, 4)} OFFSET {rng.choice([1, 2, 3, 200])}"
        return f"SELECT {shown} FROM s{where} ORDER BY {order} {limit}"
    keys = rng.choice(["k", "t", "d", "k, t", "x"])
    number = f"ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY {order})"
    return f"SELECT {shown} FROM s{where} QUALIFY {number} <= {rng.choice([1, 1, 2, 3, 50])}"


def random_batch(rng: Random, ids: set[int]) -> list[dict[str, object]]:
    batch: list[dict[str, object]] = []
    for _ in range(rng.choice([1, 2, 5, 20])):
        id = rng.randrange(25)
        if id in ids and rng.random() < 0.3:
            ids.discard(id)
            batch.append({"_op": "delete", "id": id})
            continue
        ids.add(id)
        row = {
            "x": rng.choice([-1, 0, 1, 2, 5, None]),
            "k": rng.choice([0, 1, 2, None]),
            "d": rng.choice([0.0, -0.0, 1.5, float("nan"), None]),
            "t": rng.choice(TEXTS),
        }
        batch.append({"_op": "upsert", "id": id, **row})
    return batch


def bag(deltas):
    return Counter((d.seq, d.subscription, d.sign, row_key(d.row)) for d in deltas)


@pytest.mark.parametrize("seed", range(8))
def test_shared_structures_are_the_scan(seed: int) -> None:
    rng = Random(seed)
    engines = Engine(), Engine(rooms=Rooms(group=GroupScan))
    for engine in engines:
        engine.execute("CREATE TABLE s (id BIGINT, k BIGINT, x BIGINT, d DOUBLE, t STRING, PRIMARY KEY (id))")
    subscribed: list[int] = []
    ids: set[int] = set()
    for _ in range(25):
        for _ in range(rng.choice([0, 1, 2, 4])):
            sql = random_query(rng)
            subscribed.append(engines[0].subscribe(sql).id)
            engines[1].subscribe(sql)
        if subscribed and rng.random() < 0.4:
            gone = subscribed.pop(rng.randrange(len(subscribed)))
            for engine in engines:
                engine.unsubscribe(gone)
        batch = random_batch(rng, ids)
        if rng.random() < 0.1:
            for engine in engines:  # a step that is not made
                with pytest.raises(Exception, match="is not a"):
                    engine.apply("s", [*batch, {"_op": "upsert", "id": 3, "x": "much"}])
            ids = set(engines[0].rows("s").to_pydict()["id"])
            continue
        found, expected = (bag(engine.apply("s", batch)) for engine in engines)
        assert found == expected, (found - expected, expected - found)
        engines[0]._check()
    stats = engines[0].stats()["group"]["ranked"]
    assert stats["one_by_one"] == 0 and stats["subscriptions"] == len(subscribed)


def test_templates_of_pages_and_firsts() -> None:
    engine = Engine()
    engine.execute("CREATE TABLE s (id BIGINT, k BIGINT, x BIGINT, PRIMARY KEY (id))")
    page = "SELECT id FROM s WHERE x BETWEEN :lo AND :hi ORDER BY x LIMIT 2 OFFSET 1"
    first = "SELECT id FROM s WHERE x > :lo QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= 1"
    engine.subscribe_many(page, pa.table({"id": [1, 2], "lo": [0, 50], "hi": [50, 99]}))
    engine.subscribe_many(first, pa.table({"id": [3, 4], "lo": [5, 70]}))
    deltas = engine.apply("s", [{"id": n, "k": n % 2, "x": 10 * n} for n in range(10)])
    content = {n: sorted(row["id"] for row in engine.content(n)) for n in (1, 2, 3, 4)}
    assert content == {1: [1, 2], 2: [6, 7], 3: [1, 2], 4: [8, 9]}
    total = Counter[tuple[int, int]]()
    for delta in deltas:
        total[delta.subscription, delta.row["id"]] += delta.sign
    assert {pair for pair, n in total.items() if n} == {(s, id) for s, own in content.items() for id in own}
    engine._check()


def test_a_limit_beyond_64_bits_is_as_good_as_none() -> None:
    engine = Engine()
    engine.execute("CREATE TABLE c (id BIGINT, k BIGINT, PRIMARY KEY (id))")
    first = "SELECT id FROM c QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY id) <= "
    all_rows = engine.subscribe(first + "99999999999999999999")
    one = engine.subscribe(first + "1")
    engine.insert("c", {"id": 1, "k": 1})
    engine.insert("c", {"id": 2, "k": 1})
    assert engine.content(all_rows) == [{"id": 1}, {"id": 2}]
    assert engine.content(one) == [{"id": 1}]
    engine._check()
