"""The end of a batch: packed deltas, consolidated and in order, in every kind of sink; and run twice."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark import simulated
from tocsin.errors import TocsinError
from tocsin.spark.sinks import (
    Files,
    MemorySink,
    QueryStart,
    as_lines,
    as_sink,
    as_sinks,
    begin_sinks,
    json_lines,
)
from tocsin.spark.sinks.kafka import COORDINATES, Kafka, parsed, records
from tocsin.spark.stages import deliver as delivering
from tocsin.spark.stages.processors import label
from tocsin.spark.stages.steps import LABELLED, PipelinePaths
from tocsin.spark.stages.wire import DEAD_LETTERS, pack
from tocsin.spark.storage.store import open_store
from tocsin.spark.versions.batch import Layout, Pins
from tocsin.spark.versions.blocks import as_table
from tocsin.spark.versions.store import Versions

DELTAS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(-1, 2), st.sampled_from([1, -1]), st.sampled_from("xyz"), st.booleans()
    ),
    max_size=30,
)
SUBSCRIBED = [(n, "SELECT * FROM s WHERE a > 1", f"user-{n}" if n else None) for n in range(-1, 3)]


def message(kind, table, **facts):
    return {"shard": "", "kind": kind, "payload": pack(table, **facts)}


def deltas(rows, *, marked=True):
    seq, subscription, sign, row, split = zip(*rows, strict=True) if rows else ((),) * 5
    columns = {
        "seq": pa.array(seq, pa.int64()),
        "subscription": pa.array(subscription, pa.int64()),
        "sign": pa.array(sign, pa.int8()),
        "row": pa.array([f'"{text}"' for text in row], pa.string()),
    }
    if marked:
        columns["split"] = pa.array(split, pa.bool_())
    return message("deltas", pa.table(columns), version=1)


def paths_in(folder):
    Versions(folder / "subscriptions").publish("CREATE STREAM s (a BIGINT)", as_table(SUBSCRIBED))
    return PipelinePaths(str(folder / "subscriptions"), str(folder / "pins"), Layout(), "q")


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return paths_in(tmp_path_factory.mktemp("paths"))


def expected(rows):
    """What is left of (seq, subscription, sign, row, split): only split ones cancel. In order."""
    total = Counter()
    for seq, subscription, sign, row, split in rows:
        if split:
            total[seq, subscription, row] += sign
    left = [(seq, subscription, sign, row) for seq, subscription, sign, row, split in rows if not split]
    for (seq, subscription, row), count in total.items():
        left += [(seq, subscription, 1 if count > 0 else -1, row)] * abs(count)
    return sorted(left)


def labelled(*messages):
    return [batch for message in messages for batch in simulated.labelled([message]).to_batches()]


def opened(how, batches, paths):
    rows = [row for part in how(iter(batches), paths) for row in part.to_pylist()]
    names = {number: subscriber for number, _, subscriber in SUBSCRIBED}
    assert all(row["subscriber"] == names[row["subscription"]] for row in rows)
    return [(r["seq"], r["subscription"], r["sign"], json.loads(r["row"])) for r in rows]


@given(DELTAS, DELTAS)
def test_opened_deltas_are_consolidated_and_in_order(paths, one, two):
    batches = labelled(deltas(one), deltas(two))
    assert [(row["rows"], row["split"]) for b in batches for row in b.to_pylist()] == [
        (len(part), sum(row[4] for row in part)) for part in (one, two)
    ]
    assert opened(delivering.open_all, batches, paths) == expected(one + two)
    plain = [row for row in one + two if not row[4]]
    assert opened(delivering.open_plain, batches, paths) == expected(plain)
    split = [row for row in one + two if row[4]]
    assert Counter(opened(delivering.open_split, batches, paths)) == Counter(row[:4] for row in split)
    bare = labelled(deltas(one, marked=False))
    assert opened(delivering.open_all, bare, paths) == expected([(*row[:4], True) for row in one])
    assert opened(delivering.open_plain, bare, paths) == []


def test_far_numbers_are_sorted_too(paths):
    rows = [(2**62, 1, 1, "x", False), (0, -1, 1, "x", False), (5, 2, -1, "y", False), (5, 2, -1, "x", False)]
    assert opened(delivering.open_all, labelled(deltas(rows)), paths) == expected(rows)


def test_marks_and_dead_letters_are_labelled():
    dead = pa.Table.from_pylist(
        [{"seq": 3, "reason": "bad"}, {"seq": 1, "reason": "worse"}], schema=DEAD_LETTERS
    )
    empty = pa.table({"seq": pa.array([], pa.int64())})
    letters, mark = labelled(message("dead", dead), message("mark", empty, seq=9, version=4))
    (row,) = letters.to_pylist()
    assert (row["kind"], row["rows"], row["split"]) == ("dead", 2, 0)
    (row,) = mark.to_pylist()
    assert (row["kind"], row["rows"], row["seq"], row["version"]) == ("mark", 0, 9, 4)
    assert [part["reason"].to_pylist() for part in delivering.open_dead_letters(iter([letters]))] == [
        ["worse", "bad"]
    ]


@pytest.mark.parametrize(
    ("sink", "fact", "hint"),
    [
        ("csv:x", "unknown sink 'csv:x'", "one of parquet:<path>"),
        ("parquet:", "sink 'parquet:' has no path", "parquet:<path>"),
        ("kafka:", "sink 'kafka:' has no address", "kafka:<topic>@<host>:<port>"),
        ("kafka:topic", "sink 'kafka:topic' has no topic or no servers", "kafka:<topic>@<host>:<port>"),
        ("webhook:", "sink 'webhook:' has no address", "webhook:<address>"),
        ("webhook:host", "'host' is no address of a webhook", "https://"),
    ],
)
def test_a_wrong_sink_is_refused(sink, fact, hint):
    with pytest.raises(TocsinError) as caught:
        as_sink(sink)
    assert fact in caught.value.fact
    assert hint in caught.value.hint


def test_a_folder_belongs_to_one_query(tmp_path):
    def begun_as(query: str) -> Files:
        (sink,) = begin_sinks([Files("json", f"file:{tmp_path}")], QueryStart(None, query, tmp_path))
        return sink

    mine = begun_as("mine")
    assert not list(tmp_path.iterdir())
    mine._write_owner(open_store(tmp_path))
    (tmp_path / "batch=0").mkdir()
    (tmp_path / "batch=0" / "part-0.json").touch()
    assert begun_as("mine") == mine
    with pytest.raises(TocsinError, match="has batches of another query"):
        begun_as("other")
    shutil.rmtree(tmp_path / "batch=0")
    begun_as("other")._write_owner(open_store(tmp_path))
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("_query", "other")]
    assert Files("json", "s3a://bucket/x").begin(QueryStart(None, "q", tmp_path)) == Files(
        "json", "s3a://bucket/x"
    )


def test_sinks_from_names():
    assert as_sinks("json:/x") == [Files("json", "/x")]
    assert as_sinks([Path("/x"), "kafka:t@one:1,two:2"]) == [
        Files("parquet", "/x"),
        Kafka("t", "one:1,two:2"),
    ]
    with pytest.raises(TocsinError, match="there is no sink"):
        as_sinks([])


# -- on Spark ----------------------------------------------------------------------------------------------


def in_parquet(path):
    """All rows, and whether each file is in order."""
    rows = []
    for file in sorted(path.glob("*.parquet")):
        mine = [
            (r["seq"], r["subscription"], r["sign"], json.loads(r["row"]))
            for r in parquet.read_table(file).to_pylist()
        ]
        assert mine == sorted(mine)
        rows += mine
    return sorted(rows)


@pytest.mark.spark
@pytest.mark.slow
def test_every_sink_has_the_same_whether_deltas_are_few_or_many(spark, tmp_path, monkeypatch):
    paths = paths_in(tmp_path)
    one = [(s, n % 3, 1, "xyz"[n % 3], n % 2 == 0) for s in range(40) for n in range(4)]
    two = [(s, n % 3, -1, "xyz"[n % 3], n % 2 == 0) for s in range(20) for n in range(0, 4, 2)]
    empty = pa.table({"seq": pa.array([], pa.int64())})
    dead = pa.Table.from_pylist([{"seq": 3, "reason": "bad"}], schema=DEAD_LETTERS)
    sent = [deltas(one), deltas(two), message("mark", empty, seq=39, version=1), message("dead", dead)]
    rows = [label(m["kind"], m["payload"]) for m in sent]
    frame = delivering.count_messages(spark.createDataFrame(rows, LABELLED).repartition(3))
    memory, letters = MemorySink(), MemorySink()
    sinks = as_sinks([memory, tmp_path / "deltas", f"json:{tmp_path / 'json'}"])
    for batch, few, small in ((0, 1000, 1 << 16), (1, 1000, 0), (2, 0, 0), (2, 0, 1 << 16)):
        monkeypatch.setattr(delivering, "FEW", few)  # deltas; or there are many, and then many again
        monkeypatch.setattr(delivering, "SMALL", small)  # messages are opened here, or by tasks
        delivering.deliver(frame, batch, paths=paths, sinks=sinks, dead_letter_sinks=[letters])
        right = expected(one + two)
        written = [
            (r["seq"], r["subscription"], r["sign"], json.loads(r["row"]))
            for r in memory.batches[batch].to_pylist()
        ]
        assert (written if few else sorted(written)) == right
        assert set(memory.batches[batch]["batch"].to_pylist()) == {batch}
        assert in_parquet(tmp_path / "deltas" / f"batch={batch}") == right
        files = (tmp_path / "json" / f"batch={batch}").glob("*.json")
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        assert sorted((r["seq"], r["subscription"], r["sign"], r["row"]) for r in lines) == right
        assert all(list(line) == delivering.DELTA_SCHEMA.names for line in lines), "also those that are NULL"
        assert [r["reason"] for r in letters.batches[batch].to_pylist()] == ["bad"]
    assert Pins(paths.pins, "q").applied(2) == 39
    assert len(list((tmp_path / "deltas" / "batch=1").iterdir())) == 1
    assert sorted(p.name for p in (tmp_path / "deltas").iterdir()) == ["batch=0", "batch=1", "batch=2"]
    quiet = delivering.count_messages(spark.createDataFrame(rows[2:3], LABELLED))
    delivering.deliver(quiet, 3, paths=paths, sinks=sinks[1:2], dead_letter_sinks=[letters])
    assert parquet.read_table(tmp_path / "deltas" / "batch=3").schema.names == delivering.DELTA_SCHEMA.names
    assert 3 not in letters.batches


@pytest.mark.spark
@pytest.mark.slow
def test_json_lines_are_the_same_by_spark_and_by_tasks(spark):
    columns = "seq bigint, subscription bigint, subscriber string, sign tinyint, row string"
    rows = [(2, 7, 'a"nn}', 1, '{"n":1}'), (1, 8, None, -1, '{"b":[{}],"a":null}')]
    frame = spark.createDataFrame(rows, columns)
    lines = [row.value for row in as_lines(frame).collect()]
    batch = pa.RecordBatch.from_pylist([dict(zip(frame.columns, row, strict=True)) for row in rows])
    assert [json.loads(line) for line in lines] == [json.loads(line) for line in json_lines(batch)]
    assert json.loads(lines[1])["row"] == {"b": [{}], "a": None}


@pytest.mark.spark
@pytest.mark.slow
def test_kafka_records_have_keys_and_ids_and_values_are_read(spark, tmp_path):
    columns = "batch bigint, seq bigint, subscription bigint, subscriber string, sign tinyint, row string"
    rows = [(3, 2, 7, 'a"nn', 1, '{"n":1}'), (3, 1, 7, 'a"nn', -1, '{"n":0}'), (3, 1, 8, None, 1, '{"n":0}')]
    frame = spark.createDataFrame(rows, columns)
    made = [row.asDict(recursive=True) for row in records(frame, "q").collect()]
    assert made == [row.asDict(recursive=True) for row in records(frame.repartition(3), "q").collect()]
    ids = {row["headers"][0]["value"].decode(): row for row in made}
    assert [i for i in ids if "/7/" in i] == ["q/3/1/7/1", "q/3/2/7/2"], "in order within a subscription"
    assert json.loads(ids["q/3/2/7/2"]["value"]) == {
        "batch": 3,
        "seq": 2,
        "subscription": 7,
        "subscriber": 'a"nn',
        "sign": 1,
        "row": {"n": 1},
    }
    assert ids["q/3/1/8/1"]["key"] == "8"
    values = [
        '{"table":"t","op":"insert","row":{"a":1},"seq":5}',
        "{broken",
        '{"table":"t","seq":"x"}',
        "\udcff",
    ]
    values = [(value.encode("utf-8", "surrogateescape"), n % 2, 10 + n) for n, value in enumerate(values)]
    source = spark.createDataFrame(values, "value binary, partition int, offset bigint")
    read = [tuple(row) for row in parsed(source).collect()]
    assert read[0] == ("t", "insert", '{"a":1}', "5", None)
    assert [(row[0], row[3]) for row in read[1:]] == [(None, None), ("t", "x"), (None, None)]
    assert (read[1][2], read[1][4]) == (None, "{broken")
    assert [row.seq for row in parsed(source, "offset").collect()] == [10, None, 12, None]
    with pytest.raises(TocsinError, match="Spark has no connector for Kafka") as caught:
        begin_sinks([Kafka("t", "127.0.0.1:1")], QueryStart(spark, "q", tmp_path))
    assert COORDINATES in str(caught.value)
