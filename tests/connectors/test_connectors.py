"""Real connectors: Kafka, Delta and Iceberg as sources of changes and of subscriptions, and as sinks.

`make test-connectors` runs them. Answers are compared with plain queries of Spark over the same tables, or
with an engine in this process.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from tests.spark.workload import DDL, Embedded, World, emitted
from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.spark import Layout, Pipeline, deltas
from tocsin.spark.envelopes import change_feed, debezium
from tocsin.spark.sinks.kafka import parsed

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOW = {"availableNow": True}
LAYOUT = Layout(tables=2, joins=1, subscriptions=2)
STOCKS = "CREATE TABLE stocks (symbol STRING, per DOUBLE, sector BIGINT, PRIMARY KEY (symbol))"
ANSWERS = {
    1: "SELECT symbol, per FROM stocks WHERE per BETWEEN 20 AND 60",
    2: "SELECT symbol, per FROM stocks WHERE sector = 1 ORDER BY per, symbol LIMIT 3",
    3: "SELECT a.symbol, b.per FROM stocks a JOIN stocks b USING (sector) WHERE a.per > 30 AND b.per < 50",
}


def run(frame: Any, table: str, form: str, checkpoint: Any) -> None:
    """Write what there is to a table, as any streaming query does."""
    writer = frame.writeStream.format(form).option("checkpointLocation", str(checkpoint)).trigger(**NOW)
    writer.toTable(table).awaitTermination()


def accumulated(rows: Any) -> dict[int, Counter[tuple[Any, ...]]]:
    """Contents by subscription, from deltas whose rows are structs."""
    out: dict[int, Counter[tuple[Any, ...]]] = {}
    for row in rows:
        out.setdefault(row.subscription, Counter())[tuple(row.row)] += row.sign
    assert all(count >= 0 for found in out.values() for count in found.values())
    return {number: +found for number, found in out.items()}


def expected(spark: Any, table: str) -> dict[int, Counter[tuple[Any, ...]]]:
    """The same from plain queries over the table as it is now."""
    spark.table(table).createOrReplaceTempView("stocks")
    return {number: Counter(map(tuple, spark.sql(sql).collect())) for number, sql in ANSWERS.items()}


def no_letters(spark: Any, folder: Any) -> None:
    assert not list(folder.rglob("dead_letters/**/*.parquet"))


def send(spark: Any, kafka: str, topic: str, records: list[tuple[int, str, str | None]]) -> None:
    """Records of (partition, key, value), in order within each partition."""
    frame = spark.createDataFrame(
        [(n, *record) for n, record in enumerate(records)], "n int, partition int, key string, value string"
    )
    ordered = frame.repartition(1).sortWithinPartitions("n").drop("n")
    writer = ordered.write.format("kafka").option("kafka.bootstrap.servers", kafka)
    writer.option("topic", topic).save()


def topic(spark: Any, kafka: str, name: str, **options: str) -> Any:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka)
    return reader.option("subscribe", name).option("startingOffsets", "earliest").options(**options).load()


def test_two_partitions_one_ten_thousand_changes_behind_lose_nothing(spark, kafka, tmp_path):
    """The first batches have only changes of one partition; those of the other are 10,000 seqs older."""
    count = 10_000

    def change(number: int, key: str) -> str:
        row = {"symbol": key, "per": float(number % 97), "sector": number % 3}
        return json.dumps({"table": "stocks", "op": "upsert", "row": json.dumps(row), "seq": number})

    fast = [(0, "", change(count + n, f"F{n % 400}")) for n in range(count)]
    slow = [(1, "", change(n, f"S{n % 300}")) for n in range(count)]
    send(spark, kafka, "speeds", fast)
    state, answers = tmp_path / "state", list(ANSWERS.items())[:2]

    def step() -> None:
        changes = parsed(topic(spark, kafka, "speeds", maxOffsetsPerTrigger="6000"))
        found = deltas(changes, answers, ddl=STOCKS, state_dir=state, layout=LAYOUT)
        run(found, "speeds", "delta", tmp_path / "checkpoint")

    step()
    send(spark, kafka, "speeds", slow)
    step()
    engine = Engine()
    engine.execute(STOCKS)
    for number, sql in answers:
        engine.subscribe(sql, id=number)
    rows = [json.loads(json.loads(value)["row"]) | {"_op": "upsert"} for _, _, value in [*fast, *slow]]
    engine.apply("stocks", rows)
    found = accumulated(spark.table("speeds").collect())
    assert found == {n: Counter(tuple(row.values()) for row in engine.content(n)) for n, _ in answers}
    no_letters(spark, state)


def test_debezium_from_kafka_to_delta_and_iceberg(spark, kafka, tmp_path):
    engine = Engine()
    engine.execute(STOCKS)
    for number, sql in ANSWERS.items():
        engine.subscribe(sql, id=number)

    def record(op: str, before: Any, after: Any, wrapped: bool = False) -> tuple[int, str, str]:
        body = {"before": before, "after": after, "op": op, "source": {"table": "stocks"}, "ts_ms": 1}
        key = (after or before)["symbol"]
        return (
            ord(key[0]) % 2,
            key,
            json.dumps({"schema": {"type": "x"}, "payload": body} if wrapped else body),
        )

    rows = [{"symbol": f"{'AB'[n % 2]}{n}", "per": 3.5 * n, "sector": n % 3} for n in range(40)]
    first = [record("c" if n % 2 else "r", None, row, n % 5 == 0) for n, row in enumerate(rows)]
    second = [record("u", row, {**row, "per": 25.0}) for row in rows[:10]]
    second += [record("d", row, None, n % 2 == 0) for n, row in enumerate(rows[30:])]
    second += [(0, "A38", None), record("t", None, rows[0])]  # a tombstone; a truncation is not supported
    engine.apply("stocks", rows)
    engine.apply("stocks", [{**row, "per": 25.0, "_op": "update"} for row in rows[:10]])
    engine.apply("stocks", [{"symbol": row["symbol"], "_op": "delete"} for row in rows[30:]])
    for number, part in enumerate((first, second)):
        send(spark, kafka, "cdc", part)
        for form, table in (("delta", "cdc"), ("iceberg", "ice.db.cdc")):
            changes = debezium(topic(spark, kafka, "cdc"))
            found = deltas(
                changes,
                list(ANSWERS.items()),
                ddl=STOCKS,
                state_dir=tmp_path / form,
                layout=LAYOUT,
                rows="json",
            )
            if form == "iceberg" and not number:
                spark.sql("CREATE NAMESPACE IF NOT EXISTS ice.db")
            run(found, table, form, tmp_path / f"checkpoint-{form}")
    wanted = {n: Counter(tuple(row.values()) for row in engine.content(n)) for n in ANSWERS}
    for form, table in (("delta", "cdc"), ("iceberg", "ice.db.cdc")):
        kept: dict[int, Counter[tuple[Any, ...]]] = {}
        for row in spark.table(table).collect():
            kept.setdefault(row.subscription, Counter())[tuple(json.loads(row.row).values())] += row.sign
        assert {n: +found for n, found in kept.items()} == wanted, form
        letters = spark.read.parquet(str(tmp_path / form / "dead_letters" / "*" / "*")).collect()
        assert [(row.op, row.reason) for row in letters] == [("t", letters[0].reason)]


def test_the_change_feed_of_a_delta_table(spark, tmp_path):
    spark.sql(
        "CREATE TABLE held (symbol STRING, per DOUBLE, sector BIGINT) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    steps = [
        "INSERT INTO held SELECT concat('S', id), id * 1.5, id % 4 FROM range(50)",
        "UPDATE held SET per = per + 7 WHERE sector = 1",
        "DELETE FROM held WHERE per < 9",
        "MERGE INTO held USING (SELECT concat('S', id) AS s, id * 1.0 AS p FROM range(40, 60)) ON symbol = s "
        "WHEN MATCHED AND p > 47 THEN DELETE WHEN MATCHED THEN UPDATE SET per = p "
        "WHEN NOT MATCHED THEN INSERT (symbol, per, sector) VALUES (s, p, 1)",
        "UPDATE held SET symbol = concat('T', symbol) WHERE sector = 2",
    ]
    filters = {n: sql for n, sql in ANSWERS.items() if n < 3}
    for step in steps:
        spark.sql(step)
        if "MERGE" in step:
            continue  # two commits at once
        feed = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
        changes = change_feed(feed.table("held"), "stocks", moving_keys=True)
        found = deltas(changes, list(filters.items()), ddl=STOCKS, state_dir=tmp_path, layout=LAYOUT)
        run(found, "held_deltas", "delta", tmp_path / "checkpoint")
        wanted = {n: rows for n, rows in expected(spark, "held").items() if n in filters}
        assert accumulated(spark.table("held_deltas").collect()) == wanted, step
    no_letters(spark, tmp_path)


def test_iceberg_as_source_of_changes_and_of_subscriptions(spark, tmp_path):
    spark.sql("CREATE NAMESPACE IF NOT EXISTS ice.db")
    kind = "table STRING, op STRING, row STRING, seq BIGINT"
    spark.sql(f"CREATE TABLE ice.db.changes ({kind}) USING iceberg")
    spark.sql("CREATE TABLE ice.db.subs (op STRING, id BIGINT, sql STRING, subscriber STRING) USING iceberg")
    world = World(5)
    wanted = [
        (1, "SELECT * FROM stocks WHERE per BETWEEN 20 AND 60", "ann"),
        (2, "SELECT id, rating FROM reviews ORDER BY rating DESC LIMIT 2", "bob"),
        (3, "SELECT r.id, s.per FROM reviews r JOIN stocks s ON s.symbol = r.symbol", "eve"),
    ]
    embedded = Embedded()
    pipeline = Pipeline(spark, ddl=DDL, subscriptions=[], state_dir=tmp_path / "state", layout=LAYOUT)
    for number, one in enumerate(wanted):
        spark.createDataFrame([("add", *one)], "op string, id bigint, sql string, subscriber string").writeTo(
            "ice.db.subs"
        ).append()
        rows = spark.readStream.format("iceberg").load("ice.db.subs")
        pipeline.follow(rows, checkpoint=tmp_path / "subs", trigger=NOW).awaitTermination()
        embedded.subscribe(*one, seq=world.seq)
        changes = world.changes(40)
        embedded.apply(changes)
        columns = [tuple(change[name] for name in ("table", "op", "row", "seq")) for change in changes]
        spark.createDataFrame(columns, kind).writeTo("ice.db.changes").append()
        source = spark.readStream.format("iceberg").load("ice.db.changes")
        frame = deltas(source, tmp_path / "state" / "subscriptions", layout=LAYOUT)
        run(frame, "ice.db.deltas", "iceberg", tmp_path / "checkpoint")
        assert emitted(row.asDict() for row in spark.table("ice.db.deltas").collect()) == embedded.emitted, (
            number
        )


def test_delta_as_source_of_subscriptions(spark, tmp_path):
    spark.sql("CREATE TABLE subs (op STRING, id BIGINT, sql STRING) USING delta")
    pipeline = Pipeline(spark, ddl=STOCKS, subscriptions=[], state_dir=tmp_path / "state", layout=LAYOUT)
    for rows, ids in (
        ([("add", 1, ANSWERS[1]), ("add", 2, ANSWERS[2])], [1, 2]),
        ([("remove", 1, None)], [2]),
    ):
        spark.createDataFrame(rows, "op string, id bigint, sql string").write.insertInto("subs")
        pipeline.follow(
            spark.readStream.table("subs"), checkpoint=tmp_path / "follow", trigger=NOW
        ).awaitTermination()
        assert sorted(pipeline.versions.newest().subscriptions.ids.tolist()) == ids


def test_what_is_no_feed_is_refused(spark):
    with pytest.raises(TocsinError, match="the feed has no column _change_type"):
        change_feed(spark.range(1), "stocks")
    with pytest.raises(TocsinError, match="the records have no column value"):
        debezium(spark.range(1).withColumn("offset", F.lit(1)))
