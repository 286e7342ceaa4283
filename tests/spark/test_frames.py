"""match(): events of a DataFrame against filters, batch and streaming."""

import json
import shutil
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tocsin.engine import Engine
from tocsin.errors import SqlError, SubscriptionError, TocsinError
from tocsin.spark import match
from tocsin.spark.frames import Matcher
from tocsin.spark.sinks import MemorySink
from tocsin.spark.versions.blocks import as_table
from tocsin.spark.versions.store import Versions

pytestmark = pytest.mark.spark

DDL = "CREATE STREAM listings (model STRING, price DOUBLE, storage BIGINT, since TIMESTAMP)"
FILTERS = [
    (1, "SELECT * FROM listings WHERE model = 'x5' AND price <= 580"),
    (2, "SELECT * FROM listings WHERE storage IS NULL OR price > 900"),
    (9, "SELECT * FROM listings WHERE since >= TIMESTAMP '2013-01-31 00:00:00'"),
]
EVENTS = [
    (1, "x5", 499.0, 64, datetime(2013, 1, 31, 12, tzinfo=UTC)),
    (2, "x5", 600.0, None, None),
    (3, "y", 950.5, 32, None),
    (4, "y", 1.0, 32, None),
]
MATCHES = {1: [1, 9], 2: [2], 3: [2], 4: []}


def events(spark):
    return spark.createDataFrame(
        EVENTS, "number int, model string, price double, storage int, since timestamp"
    )


def lists(frame):
    return {row.number: sorted(row.subscriptions) for row in frame.collect()}


def test_rows_have_the_events_columns_and_one_subscription_each(spark):
    matched = match(events(spark), FILTERS, stream="listings", ddl=DDL)
    assert matched.columns == ["number", "model", "price", "storage", "since", "subscription"]
    assert dict(matched.dtypes)["subscription"] == "bigint"
    rows = sorted((row.number, row.model, row.price, row.subscription) for row in matched.collect())
    assert rows == [(1, "x5", 499.0, 1), (1, "x5", 499.0, 9), (2, "x5", 600.0, 2), (3, "y", 950.5, 2)]


def test_lists_keep_events_that_match_nothing(spark):
    matched = match(events(spark), FILTERS, stream="listings", ddl=DDL, output="lists")
    assert dict(matched.dtypes)["subscriptions"] == "array<bigint>"
    assert lists(matched) == MATCHES


def test_an_engine_a_directory_an_arrow_table_or_no_definition_at_all(spark, tmp_path):
    engine = Engine()
    engine.execute(f"{DDL}; CREATE TABLE other (a BIGINT, PRIMARY KEY (a))")
    for number, sql in FILTERS:
        engine.subscribe(sql, id=number)
    engine.subscribe("SELECT COUNT(*) FROM other", id=77)  # left aside
    versions = Versions(tmp_path)
    versions.publish(
        f"{DDL}; CREATE STREAM more (a BIGINT)", as_table([*FILTERS, (70, "SELECT * FROM more")])
    )
    table = pa.table({"id": [n for n, _ in FILTERS], "sql": [sql for _, sql in FILTERS]})
    for subscriptions in (engine, str(tmp_path), versions, table):
        ddl = DDL if subscriptions is table else None
        assert (
            lists(match(events(spark), subscriptions, stream="LISTINGS", ddl=ddl, output="lists")) == MATCHES
        )
    assert lists(match(events(spark), FILTERS, stream="listings", output="lists")) == MATCHES


def test_shards_say_the_same_and_explain_shows_them(spark, tmp_path, capsys):
    versions = Versions(tmp_path)
    versions.publish(DDL, FILTERS)
    whole = match(events(spark), versions, stream="listings", output="lists", keep=["number"])
    cut = match(events(spark), versions, stream="listings", output="lists", keep=["number"], shards=3)
    assert cut.columns == whole.columns == ["number", "subscriptions"]
    assert lists(cut) == lists(whole) == MATCHES
    rows = match(events(spark), versions, stream="listings", shards=3)
    assert sorted((row.number, row.subscription) for row in rows.collect()) == [
        (1, 1),
        (1, 9),
        (2, 2),
        (3, 2),
    ]
    cut.explain()
    assert "_shard" in capsys.readouterr().out
    whole.explain()
    assert "_shard" not in capsys.readouterr().out
    small = match(events(spark), versions, stream="listings", budget=100)  # 3 filters of about 80 bytes
    assert "_shard" in small._jdf.queryExecution().toString()
    with pytest.raises(TocsinError, match="only a directory of versions"):
        match(events(spark), FILTERS, stream="listings", shards=2)


def test_open_streams_have_maps_of_attributes(spark):
    rows = [
        (1, {"heat": 5.0, "weight": 1.0}, {"place": "north"}),
        (2, {"heat": 5.0}, None),
        (3, {"heat": 5.0}, {"heat": "much", "place": "north"}),  # no valid event: an attribute in both maps
        (4, None, {"heat": "5", "place": "north"}),
    ]
    frame = spark.createDataFrame(rows, "number int, attributes map<string,double>, texts map<string,string>")
    filters = [
        (1, "SELECT * FROM signals WHERE heat > 3 AND place LIKE 'n%'"),
        (2, "SELECT * FROM signals WHERE weight IS NULL"),
        (3, "SELECT * FROM signals WHERE number = 2"),
    ]
    expected = {1: [1], 2: [2, 3], 3: [], 4: [2]}
    assert lists(match(frame, filters, stream="signals", output="lists")) == expected
    assert (
        lists(match(frame, filters, stream="signals", ddl="CREATE STREAM signals", output="lists"))
        == expected
    )


@pytest.mark.parametrize(("shards", "output"), [(None, "rows"), (4, "rows"), (4, "lists")])
def test_a_streaming_query_takes_up_a_new_version_and_keeps_its_pins(spark, tmp_path, shards, output):
    versions = Versions(tmp_path / "versions")
    versions.publish(DDL, as_table(FILTERS[:1]))
    source = tmp_path / "in"
    source.mkdir()
    frame = spark.readStream.schema("number int, model string, price double").json(str(source))
    sink = MemorySink()

    def run(number: int) -> None:
        (source / f"{number}.json").write_text(json.dumps({"number": number, "model": "x5", "price": 5.0}))
        matched = match(frame, versions, stream="listings", shards=shards, output=output)
        writer = matched.writeStream.foreachBatch(sink).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    run(0)
    versions.publish(DDL, as_table(FILTERS[:2]))
    run(1)
    rows = [(n, row) for n, batch in sink.batches.items() for row in batch.to_pylist()]
    if output == "lists":
        assert [(n, row["number"], sorted(row["subscriptions"])) for n, row in rows] == [
            (0, 0, [1]),
            (1, 1, [1, 2]),
        ]
    else:
        assert sorted((n, row["number"], row["subscription"]) for n, row in rows) == [
            (0, 0, 1),
            (1, 1, 1),
            (1, 1, 2),
        ]
    pins = [
        json.loads(path.read_text())["version"] for path in sorted(tmp_path.glob("versions/pins/*/*.json"))
    ]
    assert pins == [1, 2]


def test_a_directory_recreated_has_an_index_of_its_own(tmp_path):
    matcher = Matcher("listings", "rows", strict=False, versions=str(tmp_path / "v"), number=1)
    for number, sql in FILTERS[:2]:
        shutil.rmtree(tmp_path / "v", ignore_errors=True)
        Versions(tmp_path / "v").publish(DDL, as_table([(number, sql)]))
        assert matcher.filters()[0].ids.tolist() == [number]


def test_errors_are_reported_before_a_job_runs(spark):
    frame = events(spark)
    with pytest.raises(SqlError, match="there is no column 'prise'"):
        match(frame, [(1, "SELECT * FROM listings WHERE prise > 1")], stream="listings")
    with pytest.raises(SubscriptionError, match="subscription 5 is not a filter over listings"):
        match(
            frame, [(5, "SELECT * FROM more")], stream="listings", ddl=f"{DDL}; CREATE STREAM more (a BIGINT)"
        )
    with pytest.raises(TocsinError, match="t is a table"):
        match(frame, [], stream="t", ddl="CREATE TABLE t (a BIGINT, PRIMARY KEY (a))")
    with pytest.raises(TocsinError, match="no output 'sets'"):
        match(frame, FILTERS, stream="listings", output="sets")
    with pytest.raises(TocsinError, match="a column subscription already"):
        match(frame.withColumnRenamed("number", "subscription"), FILTERS, stream="listings")
    with pytest.raises(TocsinError, match="a column Subscription already"):
        match(frame.withColumnRenamed("number", "Subscription"), FILTERS, stream="listings")
    for name in ("_op", "_seq"):
        with pytest.raises(TocsinError, match=f"an event cannot have a column {name}\nhint: rename it"):
            match(
                frame.withColumnRenamed("number", name),
                FILTERS,
                stream="listings",
                ddl="CREATE STREAM listings",
            )
        named = frame.withColumnRenamed("number", name)  # the stream does not have it: it passes through
        assert name in match(named, FILTERS, stream="listings", ddl=DDL).columns
    with pytest.raises(TocsinError, match="column price has type"):
        match(frame.withColumn("price", frame.model), FILTERS, stream="listings", ddl=DDL)


def test_shards_take_json_and_report_a_bad_event_once(spark, tmp_path):
    versions = Versions(tmp_path)
    filters = [
        (1, "SELECT * FROM s WHERE a > 1"),
        (2, "SELECT * FROM s WHERE b = 'x'"),
        (3, "SELECT * FROM s WHERE c < 0 AND a > 0"),
    ]
    versions.publish("CREATE STREAM s", [*filters, (4, "SELECT * FROM s WHERE d IS NULL")])
    texts = ['{"a": 2, "b": "x", "c": -1}', "{", '{"b": "x", "d": 1}', '{"e": 5, "d": 2}', None]
    frame = spark.createDataFrame(list(enumerate(texts)), "number int, body string")
    for output in ("rows", "lists"):
        whole, cut = (
            match(
                frame,
                versions,
                stream="s",
                json="body",
                reason="why",
                output=output,
                keep=["number"],
                shards=n,
            )
            for n in (1, 5)
        )
        assert cut.schema == whole.schema
        written = [
            sorted((r[0], str(r[1] if output == "rows" else sorted(r[1])), str(r[2])) for r in f.collect())
            for f in (whole, cut)
        ]
        assert written[0] == written[1]
        assert [row[0] for row in written[1] if row[2] != "None"] == [1, 4]
