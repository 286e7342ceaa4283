"""Shards against the embedded engine: every shape, random histories, without Spark."""

import json
import random
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tests.spark.simulated import Simulated, clear_live_shards
from tests.spark.workload import DDL, SHAPES, Embedded, World, contents, subscriptions
from tocsin.engine import Engine
from tocsin.spark.versions.batch import Layout, placement_of
from tocsin.spark.versions.blocks import predicate_block, template_block
from tocsin.spark.versions.store import Versions, draft

LAYOUT = Layout(tables=2, joins=3, subscriptions=2)


def compare(run: Simulated, embedded: Embedded) -> None:
    for number in sorted({key[1] for key in run.emitted | embedded.emitted}):
        mine = Counter({k: n for k, n in run.emitted.items() if k[1] == number})
        theirs = Counter({k: n for k, n in embedded.emitted.items() if k[1] == number})
        assert mine == theirs, f"subscription {number}: {mine - theirs} for {theirs - mine}"


@pytest.mark.parametrize("seed", range(5))
def test_every_shape_like_the_embedded_engine_whatever_workers_do(tmp_path, seed):
    draw, world = random.Random(seed), World(seed)
    run, embedded = Simulated(tmp_path, DDL, subscriptions(), LAYOUT), Embedded(subscriptions())
    for _ in range(10):
        changes = world.changes(draw.choice([0, 1, 5, 30]))
        embedded.apply(changes)
        draw.shuffle(changes)
        run.batch(changes, partitions=draw.choice([1, 3]), crash=draw.random() < 0.3)
        if draw.random() < 0.3:
            clear_live_shards()
    compare(run, embedded)
    assert run.dead == []
    for number, rows in contents(run.emitted).items():
        if number // 100 != 2:  # a filter over a stream has no content
            assert rows == embedded.answer(number)


@pytest.mark.parametrize("seed", range(5))
def test_new_versions_begin_with_their_content_and_lost_ones_just_stop(tmp_path, seed):
    draw, world, every = random.Random(seed), World(seed), subscriptions()
    present = draw.sample(every, 6)
    run, embedded = Simulated(tmp_path, DDL, present, LAYOUT), Embedded(present)
    unused = [s for s in every if s not in present]
    first = world.changes(3)  # an answer that leaves before any batch was never emitted
    embedded.apply(first)
    run.batch(first)
    for _ in range(8):
        last = world.seq
        if draw.random() < 0.7 and unused:
            gone = draw.sample(present, 2)
            added = draw.sample(unused, min(3, len(unused)))
            present = [s for s in present if s not in gone] + added
            unused = [s for s in unused if s not in added]
            embedded.engine.unsubscribe_many([number for number, _, _ in gone])
            for subscription in added:
                embedded.subscribe(*subscription, seq=last)
            run.publish(present)
        changes = world.changes(draw.choice([0, 20]))
        embedded.apply(changes)
        run.batch(changes, crash=draw.random() < 0.3)
        if draw.random() < 0.5:
            clear_live_shards()
    compare(run, embedded)


def test_every_shape_is_where_it_should_be():
    placement = placement_of(draft(DDL, subscriptions()), LAYOUT)
    engine = Engine()
    engine.execute(DDL)
    expected = ["filter" if name == "stream" else name for name, texts in SHAPES.items() for _ in texts]
    assert [engine.subscribe(sql).shape for _, sql, _ in subscriptions()] == expected
    assert set(placement.filters.ids.tolist()) == {*range(100, 104), *range(200, 205)}
    lower = "\x1f(lower(symbol))\x1fSTRING"  # a computed column of both tables
    joins = {
        group.shards[0].split("|")[1]: (tuple(group.subscriptions.ids.tolist()), dict(group.tables))
        for group in placement.groups
        if group.shards[0][0] == "j"
    }
    assert joins == {
        "reviews(symbol)=stocks(symbol)": ((300, 301), {"reviews": ("symbol",), "stocks": ("symbol",)}),
        f"reviews({lower})=stocks({lower})": ((302,), {"reviews": (lower,), "stocks": (lower,)}),
        "sectors(code)=stocks(sector)": ((303,), {"sectors": ("code",), "stocks": ("sector",)}),
        "stocks(sector)": ((304,), {"stocks": ("sector",)}),
        "reviews(rating,symbol)=sectors(code,chief)": (
            (305,),
            {"reviews": ("rating", "symbol"), "sectors": ("code", "chief")},
        ),
        "reviews(symbol)=sectors(chief)=stocks(symbol)": (
            (501,),
            {"reviews": ("symbol",), "sectors": ("chief",), "stocks": ("symbol",)},
        ),
    }
    others = {
        number
        for group in placement.groups
        if group.shards[0][0] == "s"
        for number in group.subscriptions.ids.tolist()
    }
    assert others == {s[0] for s in subscriptions()} - {501} - {
        i for ids, _ in joins.values() for i in ids
    } - set(placement.filters.ids.tolist())


def change(table, op, row, seq):
    return {
        "table": table,
        "op": op,
        "row": row if row is None or isinstance(row, str) else json.dumps(row),
        "seq": seq,
    }


def test_bad_rows_become_dead_letters_with_a_reason_and_the_rest_goes_on(tmp_path):
    run = Simulated(tmp_path, DDL, [(1, "SELECT symbol FROM stocks", "ann")], LAYOUT)
    run.batch([change("stocks", "insert", {"symbol": "A", "per": 1}, 10)])
    run.batch(
        [
            change("stocks", "insert", '{"symbol": "B"', 11),
            change("stocks", "insert", "[1]", 12),
            change("nothing", "insert", {"symbol": "B"}, 13),
            change("stocks", "insert", {"symbol": "B", "colour": 1}, 14),
            change("stocks", "insert", {"symbol": "B", "per": "x"}, 15),
            change("stocks", "insert", {"per": 1}, 16),
            change("stocks", "insert", {"symbol": "A"}, 17),
            change("stocks", "update", {"symbol": "Z"}, 18),
            change("stocks", "delete", {"symbol": "Z"}, 19),
            change("stocks", "replace", {"symbol": "Z"}, 20),
            change("stocks", "insert", {"symbol": "C"}, None),
            change("stocks", "update", {"symbol": "A", "per": 2}, 9),
            change("stocks", "delete", {"symbol": "A"}, 10),
            change(None, "insert", {"symbol": "C"}, 21),
            change("stocks", None, {"symbol": "C"}, 22),
            change("stocks", "insert", None, 23),
            change("listings", "delete", {"model": "x"}, 24),
            change("STOCKS", "insert", {"symbol": "D"}, 25),
        ]
    )
    assert run.emitted == Counter({(10, 1, 1, '{"symbol":"A"}'): 1, (25, 1, 1, '{"symbol":"D"}'): 1})
    reasons = {(row["seq"], row["reason"]) for row in run.dead}
    starts = {
        11: "malformed row",
        12: "malformed row: not a JSON object but list",
        13: "there is no table or stream 'nothing'",
        14: "stocks has no column 'colour'",
        15: "column per: 'x' is not a DOUBLE",
        16: "key column symbol is missing or NULL",
        17: "stocks has a row with key 'A' already",
        18: "stocks has no row with key 'Z'",
        19: "stocks has no row with key 'Z'",
        20: "unknown operation 'replace'",
        None: "seq is missing",
        9: "seq 9 is not above 10, the last applied to this key",
        10: "seq 10 is not above 10, the last applied to this key",
        21: "table is missing",
        22: "unknown operation None",
        23: "malformed row",
        24: "listings is a stream",
    }
    assert len(run.dead) == len(starts)
    for seq, start in starts.items():
        assert any(s == seq and reason.startswith(start) for s, reason in reasons), (seq, start, reasons)
    letter = next(row for row in run.dead if row["seq"] == 18)
    assert (letter["table"], letter["op"], letter["row"]) == ("stocks", "update", '{"symbol": "Z"}')


def test_a_seq_counts_per_key(tmp_path):
    """Changes of other keys may have the same seq; of one key only the first is applied."""
    run = Simulated(tmp_path, DDL, subscriptions(), LAYOUT)
    rows = [{"symbol": s, "per": 50, "risk": 5, "sector": 1} for s in "ABCDEFGH"]
    run.batch([change("stocks", "insert", row, 5) for row in rows])
    assert len([key for key in run.emitted if key[1] == 100]) == 8
    run.batch([change("stocks", "update", {"symbol": "A", "per": n}, 6) for n in (51, 52)])
    assert [row["reason"] for row in run.dead] == ["seq 6 is not above 6, the last applied to this key"]


def test_an_update_that_changes_the_join_key_and_null_keys(tmp_path):
    joined = [(1, "SELECT s.symbol, d.name FROM stocks s JOIN sectors d ON s.sector = d.code", "ann")]
    run, embedded = Simulated(tmp_path, DDL, joined, Layout(2, 8, 2)), Embedded(joined)
    batches = [
        [
            change("sectors", "insert", {"code": c, "name": n}, i)
            for i, (c, n) in enumerate([(1, "a"), (2, "b"), (3, "b")], 1)
        ],
        [change("stocks", "insert", {"symbol": "A", "sector": None}, 10)],
        [change("stocks", "update", {"symbol": "A", "sector": 1}, 11)],
        [change("stocks", "update", {"symbol": "A", "sector": 2}, 12)],
        [change("stocks", "update", {"symbol": "A", "sector": 3}, 13)],  # both show b: no delta
        [change("stocks", "update", {"symbol": "A", "sector": None}, 14)],
    ]
    for batch in batches:
        embedded.apply(batch)
        run.batch(batch)
    compare(run, embedded)
    assert sorted(run.emitted) == [
        (11, 1, 1, '{"symbol":"A","name":"a"}'),
        (12, 1, -1, '{"symbol":"A","name":"a"}'),
        (12, 1, 1, '{"symbol":"A","name":"b"}'),
        (14, 1, -1, '{"symbol":"A","name":"b"}'),
    ]


def test_subscriptions_begin_and_end_at_the_time_of_the_batch(tmp_path):
    start = datetime(2013, 1, 31, tzinfo=UTC)
    window = (start + timedelta(hours=1), start + timedelta(hours=2))
    timed = [
        (1, "SELECT symbol FROM stocks", None, *window),
        (2, "SELECT COUNT(*) AS n FROM stocks", None, *window),
        (3, "SELECT s.symbol FROM stocks s JOIN sectors d ON s.sector = d.code", None, *window),
    ]
    run = Simulated(tmp_path, DDL, timed, LAYOUT)
    run.batch(
        [
            change("stocks", "insert", {"symbol": "A", "sector": 1}, 1),
            change("sectors", "insert", {"code": 1}, 2),
        ]
    )
    assert not run.emitted
    for hours in (1, 1.5, 2, 3):
        run.now = start + timedelta(hours=hours)
        clear_live_shards()
        run.batch([], crash=True)
    rows = {1: '{"symbol":"A"}', 2: '{"n":1}', 3: '{"symbol":"A"}'}
    assert run.emitted == Counter((2, number, sign, row) for number, row in rows.items() for sign in (1, -1))
    assert {pin.time for pin in map(run.pins.get, range(5)) if pin} == {
        start + timedelta(hours=h) for h in (0, 1, 1.5, 2, 3)
    }


def test_a_new_definition_comes_with_a_version_and_a_dropped_table_is_unknown(tmp_path):
    run = Simulated(
        tmp_path,
        "CREATE TABLE t (a BIGINT, PRIMARY KEY (a))",
        [(1, "SELECT * FROM t"), (2, "SELECT COUNT(*) AS n FROM t")],
        LAYOUT,
    )
    run.batch([change("t", "insert", {"a": 1}, 1), change("u", "insert", {"b": 1}, 2)])
    run.ddl += "; CREATE TABLE u (b BIGINT, PRIMARY KEY (b))"
    run.publish(
        [
            (1, "SELECT * FROM t"),
            (2, "SELECT COUNT(*) AS n FROM t"),
            (3, "SELECT t.a FROM t JOIN u ON t.a = u.b"),
        ]
    )
    run.batch([change("u", "insert", {"b": 1}, 3), change("t", "insert", {"a": 2}, 4)])
    run.ddl = "CREATE TABLE u (b BIGINT, PRIMARY KEY (b))"
    run.publish([(4, "SELECT * FROM u")])
    run.batch([change("t", "insert", {"a": 3}, 5)])
    assert sorted(run.emitted) == [
        (0, 2, 1, '{"n":0}'),
        (1, 1, 1, '{"a":1}'),
        (1, 2, -1, '{"n":0}'),
        (1, 2, 1, '{"n":1}'),
        (3, 3, 1, '{"a":1}'),
        (4, 1, 1, '{"a":2}'),
        (4, 2, -1, '{"n":1}'),
        (4, 2, 1, '{"n":2}'),
        (4, 4, 1, '{"b":1}'),
    ]
    assert [row["reason"] for row in run.dead] == [
        "there is no table or stream 'u'",
        "there is no table or stream 't'",
    ]
    assert not [
        key for key in run.states[1].values if "subscriptions" in key[0] or "join" in key[0]
    ]  # all dropped


def test_an_id_used_again_two_versions_later_is_a_new_subscription(tmp_path):
    """A shard that slept through the version between must not take one for the other.

    The deltas emitted under the id are retracted, as when a subscription is replaced.
    """
    ddl = "CREATE TABLE t (a BIGINT, n BIGINT, PRIMARY KEY (a))"
    low = [
        (1, "SELECT a FROM t WHERE n < 10"),
        (2, "SELECT COUNT(*) AS c FROM t WHERE n < 10"),
        (3, "SELECT * FROM t"),
    ]
    high = [(1, "SELECT a FROM t WHERE n >= 10"), (2, "SELECT SUM(n) AS s FROM t"), (3, "SELECT * FROM t")]
    run = Simulated(tmp_path, ddl, low, LAYOUT)
    run.batch([change("t", "insert", {"a": 1, "n": 5}, 1), change("t", "insert", {"a": 2, "n": 15}, 2)])
    run.publish([])
    run.publish(high)
    run.emitted.clear()
    run.batch([change("t", "insert", {"a": 3, "n": 6}, 3)], crash=True)
    assert sorted(run.emitted) == [
        (2, 1, -1, '{"a":1}'),
        (2, 1, 1, '{"a":2}'),
        (2, 2, -1, '{"c":1}'),
        (2, 2, 1, '{"s":20}'),
        (3, 2, -1, '{"s":20}'),
        (3, 2, 1, '{"s":26}'),
        (3, 3, 1, '{"a":3,"n":6}'),
    ]


@pytest.mark.parametrize("restart", [False, True])
def test_a_table_that_gets_a_column_keeps_its_rows(tmp_path, restart):
    queries = [
        (1, "SELECT * FROM t"),
        (2, "SELECT SUM(n) AS s FROM t"),
        (3, "SELECT a.n, b.n FROM t a JOIN t b USING (a)"),
    ]
    run = Simulated(tmp_path, "CREATE TABLE t (a BIGINT, n BIGINT, PRIMARY KEY (a))", queries, LAYOUT)
    run.batch([change("t", "insert", {"a": 1, "n": 5}, 1), change("t", "insert", {"a": 2, "n": 6}, 2)])
    run.ddl = "CREATE TABLE t (a BIGINT, n BIGINT, c STRING, PRIMARY KEY (a))"
    run.publish([*queries, (4, "SELECT a FROM t WHERE c IS NULL")])
    run.emitted.clear()
    if restart:
        clear_live_shards()
    run.batch([change("t", "update", {"a": 1, "c": "x"}, 3)], crash=True)
    held = [key for key in sorted(run.emitted) if key[1] in (1, 4)]
    assert held == [
        (2, 1, -1, '{"a":1,"n":5}'),
        (2, 1, -1, '{"a":2,"n":6}'),
        (2, 1, 1, '{"a":1,"n":5,"c":null}'),
        (2, 1, 1, '{"a":2,"n":6,"c":null}'),
        (2, 4, 1, '{"a":1}'),
        (2, 4, 1, '{"a":2}'),
        (3, 1, -1, '{"a":1,"n":5,"c":null}'),
        (3, 1, 1, '{"a":1,"n":5,"c":"x"}'),
        (3, 4, -1, '{"a":1}'),
    ]
    assert not [key for key in run.emitted if key[1] in (2, 3)]
    assert run.dead == []


def test_blocks_come_go_and_are_replaced_from_shard_to_shard(tmp_path):
    """Templates and predicates beside texts; contents kept from deltas are those of a fresh engine."""
    run = Simulated(tmp_path, DDL, subscriptions(), LAYOUT)
    world, versions = World(5), Versions(run.paths.versions)
    many = pa.table({"id": range(1000, 1020), "low": [float(n) for n in range(20)], "k": [1, 2, 3, 4] * 5})
    top = template_block("SELECT * FROM stocks WHERE risk >= :low ORDER BY per LIMIT :k", many)
    joins = template_block(
        "SELECT s.symbol, r.id FROM stocks s JOIN reviews r USING (symbol) WHERE rating > :low",
        many.drop_columns(["k"]).set_column(0, "id", pa.array(range(2000, 2020))),
    )
    one = {"attribute": "per", "op": "<=", "number": 50.0}
    rows = pa.table(
        {"id": range(3000, 3010), "predicates": [[{**one, "number": 5.0 * n}] for n in range(10)]}
    )
    run.batch(world.changes(40))
    versions.change(add=[top, joins, predicate_block("stocks", rows)])
    run.batch(world.changes(40), crash=True)
    clear_live_shards()
    versions.change(
        remove=[1000, 2001, 3005, 100], replace=[(2002, SHAPES["topk"][0]), (1003, SHAPES["join"][1])]
    )
    run.batch(world.changes(40))
    versions.compact()
    clear_live_shards()
    run.batch(world.changes(20), crash=True)
    version = versions.newest()
    assert len(version.subscriptions.files) <= 4
    held = contents(run.emitted)
    fresh = Embedded([])
    for entry in version.rows():
        fresh.engine.subscribe(entry.sql, id=entry.id)
    fresh.apply(World(5).changes(140))
    for number in version.subscriptions.ids.tolist():
        if number // 100 != 2:
            assert held.get(number, Counter()) == fresh.answer(number), number


@pytest.mark.parametrize("restart", [False, True])
def test_a_table_dropped_and_defined_again_begins_empty(tmp_path, restart):
    queries = [(1, "SELECT * FROM t"), (2, "SELECT COUNT(*) AS c FROM t"), (3, "SELECT COUNT(*) AS c FROM u")]
    other = "CREATE TABLE u (a BIGINT, PRIMARY KEY (a))"
    run = Simulated(
        tmp_path, f"CREATE TABLE t (a BIGINT, n BIGINT, PRIMARY KEY (a)); {other}", queries, LAYOUT
    )
    run.batch([change("t", "insert", {"a": 1, "n": 5}, 1), change("u", "insert", {"a": 1}, 2)])
    run.ddl = other
    run.publish(queries[2:])
    run.ddl = f"CREATE TABLE t (b STRING, PRIMARY KEY (b)); {other}"
    run.publish(queries)
    run.emitted.clear()
    for seq, key in ((3, "x"), (4, "y")):
        if restart:
            clear_live_shards()
        run.batch([change("t", "insert", {"b": key}, seq)], crash=True)
    assert sorted(run.emitted) == [
        (2, 1, -1, '{"a":1,"n":5}'),
        (2, 2, -1, '{"c":1}'),
        (2, 2, 1, '{"c":0}'),
        (3, 1, 1, '{"b":"x"}'),
        (3, 2, -1, '{"c":0}'),
        (3, 2, 1, '{"c":1}'),
        (4, 1, 1, '{"b":"y"}'),
        (4, 2, -1, '{"c":1}'),
        (4, 2, 1, '{"c":2}'),
    ]
    assert run.dead == []


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("newest", [1, 2])
def test_versions_recreated_replace_the_old_ones_and_rows_stay(tmp_path, restart, newest):
    ddl = "CREATE TABLE t (a BIGINT, PRIMARY KEY (a))"
    run = Simulated(tmp_path, ddl, [(1, "SELECT * FROM t")], LAYOUT)
    if newest == 2:
        run.publish([(1, "SELECT * FROM t"), (2, "SELECT COUNT(*) AS c FROM t")])
    run.batch([change("t", "insert", {"a": 1}, 1)])
    shutil.rmtree(run.paths.versions)
    run.publish([(5, "SELECT * FROM t"), (2, "SELECT COUNT(*) AS c FROM t"), (1, "SELECT a AS b FROM t")])
    run.emitted.clear()
    for seq in (2, 3):
        if restart:
            clear_live_shards()
        run.batch([change("t", "insert", {"a": seq}, seq)], crash=True)
    contents = [(1, 1, 1, '{"b":1}'), (1, 2, 1, '{"c":1}'), (1, 5, 1, '{"a":1}')]
    assert sorted(run.emitted)[:3] == contents
    assert sorted(run.emitted)[3:] == [
        key
        for n in (2, 3)
        for key in (
            (n, 1, 1, f'{{"b":{n}}}'),
            (n, 2, -1, f'{{"c":{n - 1}}}'),
            (n, 2, 1, f'{{"c":{n}}}'),
            (n, 5, 1, f'{{"a":{n}}}'),
        )
    ]


def test_seq_may_begin_at_0_and_is_never_below(tmp_path):
    run = Simulated(
        tmp_path,
        "CREATE TABLE t (a BIGINT, PRIMARY KEY (a))",
        [(1, "SELECT * FROM t"), (2, "SELECT COUNT(*) AS c FROM t")],
        LAYOUT,
    )
    run.batch([])
    run.batch([change("t", "insert", {"a": n}, n) for n in (-1, 0, 1)])
    run.batch([change("t", "upsert", {"a": 1}, 0)])
    assert {key for key in run.emitted if key[1] == 1} == {(0, 1, 1, '{"a":0}'), (1, 1, 1, '{"a":1}')}
    assert {row["reason"] for row in run.dead} == {
        "seq -1 is below 0",
        "seq 0 is not above 1, the last applied to this key",
    }


@pytest.mark.parametrize("restart", [False, True])
def test_a_sum_that_overflows_is_left_out_and_reported_once(tmp_path, restart):
    big = 2**63 - 1
    queries = [(77, "SELECT SUM(n) AS s FROM t"), (78, "SELECT COUNT(*) AS c FROM t")]
    ddl = "CREATE TABLE t (a BIGINT, n BIGINT, PRIMARY KEY (a))"
    run = Simulated(tmp_path, ddl, queries, Layout(2, 2, 1))
    for seq, n in ((1, big), (2, 1), (3, -5)):
        if restart:
            clear_live_shards()
        run.batch([change("t", "insert", {"a": seq, "n": n}, seq)], crash=True)
    assert [(r["seq"], r["table"], r["op"]) for r in run.dead] == [(1, None, None)]
    assert run.dead[0]["reason"].startswith("subscription 77: BIGINT overflow")
    assert [key for key in sorted(run.emitted) if key[1] == 77 and key[0] > 0] == [
        (1, 77, -1, '{"s":null}'),
        (1, 77, 1, f'{{"s":{big}}}'),
    ]
    assert run.emitted[3, 78, 1, '{"c":3}'] == 1
    run.batch([change("t", "insert", {"a": 4, "n": 6}, 4)])  # again too much for a new one
    run.publish([*queries, (79, "SELECT SUM(n) AS s FROM t")])
    run.batch([change("t", "insert", {"a": 5, "n": 0}, 5)], crash=True)
    run.batch([])
    assert [r["reason"].split(":")[0] for r in run.dead] == ["subscription 77", "subscription 79"]
    assert run.emitted[5, 78, 1, '{"c":5}'] == 1
