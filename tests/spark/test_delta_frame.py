"""`deltas`: DataFrames of changes in and of deltas out, by sinks of Spark; answers as the engine has them."""

import json
from collections import Counter

import pytest

from tests.spark.test_pipeline import NOW, SCHEMA, source, write
from tests.spark.workload import DDL, Embedded, World, emitted, subscriptions
from tocsin.errors import TocsinError
from tocsin.spark import Versions, deltas
from tocsin.spark.spark_hash import key_of, spark_hash
from tocsin.spark.versions.batch import Layout

pytestmark = pytest.mark.spark
LAYOUT = Layout(tables=2, joins=2, subscriptions=2)


def run(frame, folder, **options):
    """Write what there is as Parquet files, as any streaming query does."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.option("path", str(folder / "out")).trigger(**NOW).start()
    query.awaitTermination()
    return query


def test_every_shape_to_files_of_spark_over_restarts_and_new_versions(spark, tmp_path):
    world, embedded = World(1), Embedded(subscriptions())
    versions = Versions(tmp_path / "state" / "subscriptions", 2)
    versions.publish(DDL, subscriptions())
    bad = [{"table": "stocks", "op": "delete", "row": '{"symbol": "Z"}', "seq": 9_999}]
    for number in range(2):
        changes = [world.changes(30) for _ in range(2)]
        for n, some in enumerate(changes):
            write(tmp_path / "in", 2 * number + n, [*some, *(bad if n else [])])
            embedded.apply(some)
        frame = deltas(source(spark, tmp_path / "in"), versions, layout=LAYOUT)
        query = run(frame, tmp_path)
        if not number:
            versions.change(add=[(7, "SELECT symbol FROM stocks", "late")])
            embedded.subscribe(7, "SELECT symbol FROM stocks", "late", seq=world.seq)
    rows = [row.asDict() for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert emitted(rows) == embedded.emitted
    assert {row["subscriber"] for row in rows if row["subscription"] == 7} == {"late"}
    letters = spark.read.parquet(str(tmp_path / "state" / "dead_letters" / str(query.id))).collect()
    assert [(row.seq, row.reason) for row in letters] == 2 * [(9_999, "stocks has no row with key 'Z'")]


def test_rows_are_structs_if_all_answers_have_the_same_columns(spark, tmp_path):
    """A fixed set without a folder of its own; written to a table, found again after a restart."""
    ddl = "CREATE TABLE t (a BIGINT, b DOUBLE, c STRING, d TIMESTAMP, PRIMARY KEY (a))"
    some = [
        (1, "SELECT a, b AS low, d FROM t WHERE b < 5"),
        (2, "SELECT a, b AS low, d FROM t ORDER BY b LIMIT 1"),
    ]
    rows = [{"a": 1, "b": 2.5, "d": "2024-05-01T10:00:00Z"}, {"a": 2, "b": "NaN"}, {"a": 3, "b": 0.5}]
    for n, row in enumerate(rows):
        write(tmp_path / "in", n, [{"table": "t", "op": "insert", "row": json.dumps(row), "seq": n}])
        frame = deltas(source(spark, tmp_path / "in"), some, ddl=ddl, layout=LAYOUT)
        assert frame.schema["row"].dataType.simpleString() == "struct<a:bigint,low:double,d:timestamp>"
        run(frame, tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).selectExpr(
        "seq", "subscription", "sign", "row.a", "row.low"
    )
    assert Counter(map(tuple, found.collect())) == Counter(
        [(0, 1, 1, 1, 2.5), (0, 2, 1, 1, 2.5), (2, 1, 1, 3, 0.5), (2, 2, -1, 1, 2.5), (2, 2, 1, 3, 0.5)]
    )
    mixed = [*some, (3, "SELECT a FROM t")]
    assert (
        deltas(source(spark, tmp_path / "in"), mixed, ddl=ddl).schema["row"].dataType.simpleString()
        == "string"
    )
    with pytest.raises(TocsinError, match="rows cannot be structs"):
        deltas(source(spark, tmp_path / "in"), mixed, ddl=ddl, rows="struct")


def test_errors(spark, tmp_path):
    changes = spark.readStream.schema(SCHEMA).json(str(tmp_path))
    with pytest.raises(TocsinError, match="have no definitions\nhint: give ddl="):
        deltas(changes, [(1, "SELECT * FROM t")])
    with pytest.raises(TocsinError, match="there is no version"):
        deltas(changes, tmp_path / "none")
    with pytest.raises(TocsinError, match="there are no rows 'text'"):
        deltas(changes, [], ddl="CREATE STREAM s", rows="text")


def test_keys_of_shards_are_spread_by_the_hash_of_spark(spark):
    names = ["", "a", "é", "join|a(k)=b(k)|3", *(key_of(str(n)) for n in range(16))]
    found = (
        spark.createDataFrame([(name,) for name in names], "name string").selectExpr("hash(name)").collect()
    )
    assert [row[0] for row in found] == [spark_hash(name) for name in names]
    for partitions in (2, 4, 8, 16):
        spread = Counter(spark_hash(key_of(f"out|{n}")) % partitions for n in range(16))
        assert set(spread.values()) == {16 // partitions}


def test_filters_alone_run_no_stage_that_they_do_not_need(spark, tmp_path):
    """Over streams nothing is kept; over tables only the first stage; and what a checkpoint has stays."""

    def plan(frame):
        return frame._jdf.queryExecution().analyzed().toString().count("TransformWithState")

    ddl = "CREATE STREAM s (a BIGINT)"
    events = [{"table": "s", "op": "insert", "row": json.dumps({"a": n}), "seq": n} for n in range(20)]
    bad = [{"table": "s", "op": "delete", "row": '{"a": 1}', "seq": 30}]
    write(tmp_path / "in", 0, events)
    write(tmp_path / "in", 1, bad)
    some, place = [(1, "SELECT a FROM s WHERE a > 15"), (2, "SELECT a FROM s WHERE a = 3")], tmp_path / "one"
    frame = deltas(source(spark, tmp_path / "in"), some, ddl=ddl, state_dir=place)
    assert plan(frame) == 0
    query = run(frame, tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).select("seq", "subscription", "sign", "row.a").collect()
    assert sorted(map(tuple, found)) == [(3, 2, 1, 3), *((n, 1, 1, n) for n in range(16, 20))]
    letters = spark.read.parquet(str(place / "dead_letters" / str(query.id))).collect()
    assert [row.seq for row in letters] == [30]
    tables = [(1, "SELECT a FROM t WHERE a > 15")]
    table = "CREATE TABLE t (a BIGINT, PRIMARY KEY (a))"
    changes = source(spark, tmp_path / "in")
    assert plan(deltas(changes, tables, ddl=table, state_dir=tmp_path / "two")) == 1
    ranked = [(1, "SELECT a FROM t ORDER BY a LIMIT 1")]
    assert plan(deltas(changes, ranked, ddl=table, state_dir=tmp_path / "three")) == 2
    with pytest.raises(TocsinError, match="was started for filters alone"):
        deltas(changes, [*tables, (2, ranked[0][1])], ddl=table, state_dir=tmp_path / "two")
