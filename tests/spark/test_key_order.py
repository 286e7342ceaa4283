"""Order per key: sources of different speed, late changes, restarts; answers as the engine has them."""

import json
import random
from collections import Counter

import numpy as np
import pytest

from tests.spark.simulated import Simulated, clear_live_shards
from tests.spark.workload import DDL, Embedded, World, subscriptions
from tocsin.spark.stages.table_shard import FEW, KeyOrder
from tocsin.spark.versions.batch import Layout

LAYOUT = Layout(tables=2, joins=3, subscriptions=2)
DDL_T = "CREATE TABLE t (a BIGINT, b BIGINT, PRIMARY KEY (a)); CREATE STREAM s (x BIGINT)"


def change(op, seq, table="t", **row):
    return {"table": table, "op": op, "row": json.dumps(row), "seq": seq}


@pytest.mark.parametrize("seed", range(3))
def test_two_sources_of_different_speed_lose_nothing(tmp_path, seed):
    """Keys are split among two sources with seqs of their own; one is always far behind."""
    draw, world = random.Random(seed), World(seed)
    run, embedded = Simulated(tmp_path, DDL, subscriptions(), LAYOUT), Embedded(subscriptions())
    fast, slow = [], []
    for made in world.changes(200):
        (slow if made["table"] in ("reviews", "units") else fast).append(made)
    fast = [{**made, "seq": made["seq"] + 10_000} for made in fast]
    while fast or slow:
        some = [fast.pop(0) for _ in range(min(len(fast), 40))]
        some += [slow.pop(0) for _ in range(min(len(slow), 7))]
        embedded.engine.last_seq = -1
        embedded.apply(sorted(some, key=lambda made: made["seq"]))
        draw.shuffle(some)
        run.batch(some, partitions=2, crash=draw.random() < 0.3)
        if draw.random() < 0.3:
            clear_live_shards()
    assert run.dead == []
    assert run.emitted == embedded.emitted


def test_a_late_change_of_a_key_is_a_dead_letter_also_after_a_restart_and_a_delete(tmp_path):
    run = Simulated(tmp_path, DDL_T, [(1, "SELECT * FROM t")], LAYOUT)
    run.batch([change("insert", 10, a=1, b=1), change("insert", 11, a=2, b=1)])
    run.batch([change("update", 20, a=1, b=1), change("delete", 21, a=2)])  # the update changes nothing
    clear_live_shards()
    late = [change("update", 19, a=1, b=9), change("insert", 12, a=2, b=9)]
    run.batch([*late, change("insert", 5, a=3, b=3)], crash=True)
    assert sorted(run.emitted) == [
        (5, 1, 1, '{"a":3,"b":3}'),
        (10, 1, 1, '{"a":1,"b":1}'),
        (11, 1, 1, '{"a":2,"b":1}'),
        (21, 1, -1, '{"a":2,"b":1}'),
    ]
    assert {row["reason"] for row in run.dead} == {
        "seq 19 is not above 20, the last applied to this key",
        "seq 12 is not above 21, the last applied to this key",
    }


def test_a_rejected_change_does_not_count(tmp_path):
    run = Simulated(tmp_path, DDL_T, [(1, "SELECT * FROM t")], LAYOUT)
    run.batch([change("insert", 1, a=1, b=1), change("insert", 9, a=1, b=2)])  # there already: rejected
    run.batch([change("update", 5, a=1, b=5)])
    assert run.emitted[5, 1, 1, '{"a":1,"b":5}'] == 1
    assert [row["seq"] for row in run.dead] == [9]


def test_events_need_no_seq(tmp_path):
    run = Simulated(tmp_path, DDL_T, [(1, "SELECT x FROM s WHERE x > 2")], LAYOUT)
    run.batch([change("insert", 7, a=1, b=1)])
    run.batch([change("insert", None, "s", x=n) for n in range(5)] + [change("insert", 3, "s", x=9)])
    assert run.emitted == Counter({(7, 1, 1, '{"x":3}'): 1, (7, 1, 1, '{"x":4}'): 1, (3, 1, 1, '{"x":9}'): 1})
    assert run.dead == []


def test_deleted_keys_are_kept_up_to_a_bound():
    order, many = KeyOrder(), FEW + 1000
    keys = np.arange(many)
    order.record(keys, keys)
    order.record(np.array([5, 5]), np.array([many, many + 1]))
    order._check()
    assert order.without_excess(keys) is order
    some = order.without_excess(keys[:100])
    some._check()
    assert len(some) == 100 + FEW
    assert some.late(np.array([5, 150, many - 1]), np.array([many + 1, 1, 1])).tolist() == [
        many + 1,
        -1,
        many - 1,
    ]
