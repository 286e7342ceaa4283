"""The state of shards: pieces under their own keys, which a new subscription does not touch; catching up."""

import json
import os
import random

import numpy as np
import pyarrow as pa
import pytest

from tests.spark.simulated import Simulated, clear_live_shards
from tests.spark.test_shard_logic import compare
from tests.spark.workload import DDL, Embedded, World, subscriptions
from tocsin.model.schema import Field, Table, Type
from tocsin.spark.hosting.engines import LiveShards
from tocsin.spark.stages import processors
from tocsin.spark.stages.shard_logic import BLOB, row_blobs
from tocsin.spark.stages.wire import unpack
from tocsin.spark.versions.batch import Layout

LAYOUT = Layout(tables=2, joins=3, subscriptions=2)
BY_SIZE = """
CREATE TABLE a (id BIGINT, k BIGINT, x DOUBLE, PRIMARY KEY (id));
CREATE TABLE b (id BIGINT, k BIGINT, y DOUBLE, PRIMARY KEY (id))
"""


def test_large_tables_are_written_in_pieces():
    table = Table("t", (Field("a", Type.BIGINT),), key=("a",))
    rows = pa.table({"a": np.arange(5_000_000)})
    blobs = row_blobs(rows, table)
    assert len(blobs) == 5
    assert max(map(len, blobs)) < BLOB
    assert pa.concat_tables([unpack(blob)[1] for blob in blobs]).equals(rows)
    assert row_blobs(rows[:0], table) == []


def written(run: Simulated, changes=()) -> int:
    before = sum(states.written for states in run.states)
    run.batch(list(changes))
    return sum(states.written for states in run.states) - before


def test_a_new_subscription_writes_no_rows_and_begins_with_the_next_batch(tmp_path):
    """A filter, a join and a top-k, each beside one of its kind; and one top-k that is there already."""
    rows = int(os.environ.get("TOCSIN_STATE_ROWS", "20000"))  # of each table
    first = [
        (1, "SELECT * FROM a WHERE x < 10", None),
        (2, "SELECT a.id, b.y FROM a JOIN b USING (k) WHERE x < 10", None),
        (3, "SELECT * FROM a WHERE k > 5 ORDER BY x LIMIT 2", None),
        (4, "SELECT * FROM a WHERE k > 6 ORDER BY x LIMIT 2", None),
    ]
    more = [
        (11, "SELECT * FROM a WHERE x < 20", None),
        (12, "SELECT a.id, b.y FROM a JOIN b USING (k) WHERE x < 20", None),
        (13, "SELECT * FROM a WHERE k > 2 ORDER BY x LIMIT 3", None),
        (14, "SELECT * FROM a WHERE k > 2 ORDER BY x LIMIT 3", None),
    ]
    run = Simulated(tmp_path, BY_SIZE, first, LAYOUT)
    run.batch(
        [
            {"table": t, "op": "insert", "row": json.dumps({"id": n, "k": n % 5000, c: n}), "seq": n}
            for t, c in (("a", "x"), ("b", "y"))
            for n in range(rows)
        ]
    )
    for number in range(len(more)):
        run.publish([*first, *more[: number + 1]])
        assert written(run) < 1000
        assert any(row["subscription"] == more[number][0] for row in run.rows)
    for _ in range(2):  # restored from what was written then
        clear_live_shards()
        run.batch([{"table": "a", "op": "update", "row": '{"id": 3, "x": 11}', "seq": rows}], crash=True)
        rows += 1
    assert {row["subscription"] for row in run.rows} == set()
    clear_live_shards()
    run.batch([{"table": "a", "op": "update", "row": '{"id": 3, "x": 21}', "seq": rows}])
    assert {row["subscription"] for row in run.rows} == {11, 12}


@pytest.mark.parametrize("seed", range(4))
def test_several_workers_catch_up_by_what_others_have_written(tmp_path, seed, monkeypatch):
    """Each step is run by any of three workers; versions come and go."""
    draw, world, every = random.Random(seed), World(seed), subscriptions()
    workers = [LiveShards() for _ in range(3)]
    monkeypatch.setattr(processors, "_live_shards", lambda: draw.choice(workers))
    present = draw.sample(every, 10)
    run, embedded = Simulated(tmp_path, DDL, present, LAYOUT), Embedded(present)
    for number in range(12):
        if number % 4 == 3:
            last = world.seq
            gone = draw.sample(present, 3)
            added = draw.sample([s for s in every if s not in present], 3)
            present = [s for s in present if s not in gone] + added
            embedded.engine.unsubscribe_many([id for id, _, _ in gone])
            for subscription in added:
                embedded.subscribe(*subscription, seq=last)
            run.publish(present)
        changes = world.changes(draw.choice([0, 10, 30]))
        embedded.apply(changes)
        run.batch(changes, crash=draw.random() < 0.3)
    compare(run, embedded)
    counters = [worker.counters for worker in workers]
    assert sum(one.caught_up for one in counters) > 20
