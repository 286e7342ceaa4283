"""Mapped indexes of filters against an engine: versions that follow one another, without Spark."""

import json
import random
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine
from tocsin.spark.matcher import mapped_filters, micros_of, stream_filters
from tocsin.spark.sharded_match import IndexShard, visits
from tocsin.spark.versions.batch import relations_of
from tocsin.spark.versions.blocks import predicate_block, template_block, text_block
from tocsin.spark.versions.store import Versions, draft

DDL = "CREATE STREAM hits; CREATE STREAM s (a BIGINT, b STRING)"
CATALOG = relations_of(DDL)


def events(draw: random.Random, count: int) -> pa.Table:
    names = ["p", "q", "r", "heat"]
    numbers = [{n: float(draw.randrange(20)) for n in draw.sample(names, 2)} for _ in range(count)]
    texts = [{"place": draw.choice(["north", "south"])} if draw.random() < 0.5 else {} for _ in range(count)]
    return pa.table(
        {
            "attributes": pa.array([list(n.items()) for n in numbers], pa.map_(pa.string(), pa.float64())),
            "texts": pa.array([list(t.items()) for t in texts], pa.map_(pa.string(), pa.string())),
        }
    )


def blocks(draw: random.Random, first: int) -> list:
    least = [draw.randrange(20) for _ in range(30)]
    values = pa.table({"id": range(first, first + 30), "least": pa.array(least, pa.float64())})
    predicates = [
        [{"attribute": draw.choice("pqr"), "op": "<=", "number": float(draw.randrange(20))}]
        for _ in range(30)
    ]
    return [
        template_block("SELECT * FROM hits WHERE p > :least AND (q < 5 OR place LIKE 'n%')", values),
        predicate_block("hits", pa.table({"id": range(first + 100, first + 130), "predicates": predicates})),
        text_block(
            [(first + 200 + n, f"SELECT * FROM hits WHERE heat = {n} OR r IS NULL") for n in range(9)]
        ),
        text_block([(first + 300, "SELECT * FROM s WHERE a > 1")]),
    ]


def expected(version, table: pa.Table) -> list[list[int]]:
    engine = Engine()
    engine.execute(version.ddl)
    for entry in version.rows():
        engine.subscribe(entry.sql, id=entry.id)
    deltas = engine.apply("hits", table)
    out: list[list[int]] = [[] for _ in range(len(table))]
    for seq, number in zip(deltas.seq.tolist(), deltas.subscription.tolist(), strict=True):
        out[seq - int(engine.last_seq - len(table) + 1)].append(number)
    return [sorted(one) for one in out]


def lists(filters, table: pa.Table, micros: int = 0) -> list[list[int]]:
    starts, found, bad = filters.match(table, micros)
    assert not bad
    return [sorted(part.tolist()) for part in np.split(found, starts[1:-1])]


def test_versions_that_follow_share_segments_and_say_what_an_engine_says(tmp_path):
    draw, versions = random.Random(1), Versions(tmp_path)
    table, stream = events(draw, 50), CATALOG["hits"]
    versions.publish(DDL, blocks(draw, 0))
    for step in range(1, 5):
        ids = versions.newest().subscriptions.ids
        gone = np.sort(np.random.default_rng(step).choice(ids, 20, replace=False))
        replaced = text_block([(int(n), f"SELECT * FROM hits WHERE q > {step}") for n in gone[:5]])
        versions.change(add=blocks(draw, 1000 * step), replace=replaced, remove=gone[5:])
        if step % 2:
            version = versions.newest()
            assert lists(mapped_filters(versions, version.number, stream, CATALOG), table) == expected(
                version, table
            )
    for number in versions.numbers():  # those between, from the nearest before
        version = versions.load(number)
        wanted = expected(version, table)
        assert lists(mapped_filters(versions, number, stream, CATALOG), table) == wanted
        assert lists(stream_filters(version, stream, CATALOG), table) == wanted


def test_an_index_of_an_earlier_format_is_built_again(tmp_path):
    draw, versions = random.Random(2), Versions(tmp_path)
    table, stream = events(draw, 20), CATALOG["hits"]
    versions.publish(DDL, blocks(draw, 0))
    mapped_filters(versions, 1, stream, CATALOG)
    folder = tmp_path / "filters" / "hits"
    for file in [*folder.glob("v*.json"), *folder.rglob("segment.json")]:
        file.write_text(json.dumps({**json.loads(file.read_text()), "format": 3}))
    versions.change(add=blocks(draw, 1000))
    for number in (2, 1):
        found = lists(mapped_filters(versions, number, stream, CATALOG), table)
        assert found == expected(versions.load(number), table)


def test_shards_have_each_filter_once_and_events_visit_all_that_they_match(tmp_path):
    draw, versions = random.Random(4), Versions(tmp_path)
    table, stream = events(draw, 60), CATALOG["hits"]
    versions.publish(DDL, blocks(draw, 0))
    versions.change(
        add=[(900, "SELECT * FROM hits WHERE p IN (1, 2) OR (q > 3 AND NOT (r < 2 OR heat = 1))")]
    )
    for number in (1, 2):
        wanted = expected(versions.load(number), table)
        parts = [mapped_filters(versions, number, stream, CATALOG, IndexShard(3, n)) for n in range(3)]
        ids = np.concatenate([part.ids for part in parts])
        of_stream = [
            some.ids
            for key, some in versions.load(number).subscriptions.by_shard_key().items()
            if "hits" in key.tables
        ]
        assert sorted(ids.tolist()) == sorted(np.concatenate(of_stream).tolist())
        found: list[list[int]] = [[] for _ in range(len(table))]
        seen, _ = parts[0].read(table)
        for shard, at, _ in visits(seen, len(table), parts[0].routes, all_events=False):
            for event, listed in zip(at.tolist(), lists(parts[shard], table.take(pa.array(at))), strict=True):
                found[event] += listed
        assert [sorted(one) for one in found] == wanted
    routes = parts[0].routes
    assert routes.unconditional  # `r IS NULL`
    assert {"p", "q", "r"} <= set(routes.owners)


def test_validity_and_bad_events():
    times = [datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)]
    rows = [(1, "SELECT * FROM s WHERE a > 1"), (2, "SELECT * FROM s", None, times[0], times[1])]
    filters = stream_filters(draft(DDL, rows), CATALOG["s"], CATALOG)
    table = pa.table({"a": [1, 2]})
    assert lists(filters, table, micros_of(times[0])) == [[2], [1, 2]]
    assert lists(filters, table, micros_of(times[1])) == [[], [1]]
    starts, found, bad = filters.match(
        ['{"a": 5}', "{", '{"c": 5}', '{"a": 0, "b": "x"}'], micros_of(times[0])
    )
    assert [part.tolist() for part in np.split(found, starts[1:-1])] == [[1, 2], [], [], [2]]
    assert [row for row, _ in bad] == [1, 2]


def _matches(path: str) -> list[list[int]]:
    versions = Versions(path)
    return lists(mapped_filters(versions, 1, CATALOG["hits"], CATALOG), events(random.Random(7), 20))


def test_processes_that_come_together_make_one_index(tmp_path):
    Versions(tmp_path).publish(DDL, blocks(random.Random(3), 0))
    with ProcessPoolExecutor(2) as pool:
        one, two = pool.map(_matches, [str(tmp_path)] * 2)
    assert one == two == expected(Versions(tmp_path).load(1), events(random.Random(7), 20))
    assert len(list(tmp_path.glob("filters/hits/index/versions/*.json"))) == 1
