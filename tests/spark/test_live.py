"""Subscriptions that change while a pipeline runs on Spark: a folder of changes, a table that is a log."""

import json

import pytest

from tests.spark.test_pipeline import LAYOUT, NOW, SCHEMA, write
from tocsin.spark import Pipeline
from tocsin.spark.sinks import MemorySink

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DDL = "CREATE TABLE t (a BIGINT, n BIGINT, PRIMARY KEY (a))"


def test_changes_of_subscriptions_alone_bring_about_a_batch(spark, tmp_path):
    sink = MemorySink()
    log, table, changes = tmp_path / "log", tmp_path / "table", tmp_path / "in"
    pipeline = Pipeline(
        spark,
        ddl=DDL,
        subscriptions=[(1, "SELECT COUNT(*) AS c FROM t")],
        state_dir=tmp_path / "state",
        layout=LAYOUT,
        log=log,
    )
    rows = [{"a": n, "n": 10 * n} for n in range(3)]
    write(
        changes,
        0,
        [{"table": "t", "op": "insert", "row": json.dumps(row), "seq": row["a"]} for row in rows],
    )

    def go() -> list[tuple[int, int, str]]:
        frame = spark.readStream.schema(SCHEMA).json(str(changes))
        before = set(sink.batches)
        pipeline.start(frame, sink=sink, trigger=NOW).awaitTermination()
        fresh = [row for number in set(sink.batches) - before for row in sink.batches[number].to_pylist()]
        return sorted((row["subscription"], row["sign"], row["row"]) for row in fresh)

    go()
    added = [
        {"op": "add", "id": 2, "template": "SELECT a FROM t WHERE n > :least", "values": {"least": 5}},
        {"op": "add", "id": 3, "sql": "SELECT a FROM nowhere"},
    ]
    write(log, 1, added)
    assert go() == [(2, 1, '{"a":1}'), (2, 1, '{"a":2}')]
    refused = json.loads((tmp_path / "state/subscriptions/refused/0001.json.jsonl").read_text())
    assert refused["id"] == 3
    write(
        table,
        1,
        [{"op": "replace", "id": 2, "sql": "SELECT a FROM t WHERE n > 15"}, {"op": "remove", "id": 1}],
    )
    for _ in range(2):  # the second finds nothing new
        stream = spark.readStream.schema("op string, id bigint, sql string").json(str(table))
        pipeline.follow(stream, trigger=NOW).awaitTermination()
    assert go() == [(2, -1, '{"a":1}')]
    assert pipeline.versions.newest().subscriptions.ids.tolist() == [2]
