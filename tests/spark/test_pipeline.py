"""The pipeline on Spark against the embedded engine: every shape, stopped half-way and started again."""

import json
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

import tocsin.spark
from tests.spark.workload import DDL, SHAPES, Embedded, World, contents, emitted, subscriptions
from tocsin.errors import SqlError, TocsinError
from tocsin.spark import Pipeline
from tocsin.spark.pipeline import query_of
from tocsin.spark.sessions import ensure_state
from tocsin.spark.sinks import MemorySink
from tocsin.spark.versions.batch import Layout

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LAYOUT = Layout(tables=2, joins=2, subscriptions=2)
SCHEMA = "table string, op string, row string, seq bigint"
NOW = {"availableNow": True}
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def write(folder: Path, number: int, changes) -> None:
    """A file of changes. Spark reads files in order of their times, which two quick writes may share."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{number}"
    hidden.write_text("".join(json.dumps(change) + "\n" for change in changes))
    at = time.time() - 3600 + number
    os.utime(hidden, (at, at))
    hidden.rename(folder / f"{number:04d}.json")


def source(spark, folder: Path):
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))


def run(pipeline: Pipeline, folder: Path, **options) -> None:
    pipeline.start(source(pipeline.spark, folder), trigger=NOW, **options).awaitTermination()


def read(spark, path: Path, form: str = "parquet"):
    return [row.asDict() for row in spark.read.format(form).load(str(path)).collect()]


def same(rows, embedded: Embedded) -> None:
    mine = emitted(rows)
    for number, sql, _ in subscriptions():
        left = Counter({k: n for k, n in mine.items() if k[1] == number})
        right = Counter({k: n for k, n in embedded.emitted.items() if k[1] == number})
        assert left == right, f"{sql}: {left - right} for {right - left}"


@pytest.fixture(scope="module")
def history(spark, tmp_path_factory):
    """Four batches with every shape; stopped after two, and started again by another `Pipeline`."""
    folder = tmp_path_factory.mktemp("pipeline")
    world, embedded, files = World(7), Embedded(subscriptions()), folder / "in"
    for half in range(2):
        for number in range(2):
            changes = world.changes(70)
            embedded.apply(changes)
            write(files, 2 * half + number, reversed(changes))
        pipeline = Pipeline(
            spark, ddl=DDL, subscriptions=subscriptions(), state_dir=folder / "state", layout=LAYOUT
        )
        run(pipeline, files, sink=f"parquet:{folder / 'deltas'}", checkpoint=folder / "checkpoint")
    return folder, world, embedded


def test_every_shape_over_a_restart_like_the_embedded_engine(spark, history):
    folder, _, embedded = history
    rows = read(spark, folder / "deltas")
    same(rows, embedded)
    assert {row["subscriber"] for row in rows} == {
        f"{shape}-{i}" for shape, texts in SHAPES.items() for i in range(len(texts))
    }
    assert {row["batch"] for row in rows} == {0, 1, 2, 3}
    assert not (folder / "state" / "dead_letters").exists()


def test_contents_kept_from_the_deltas_are_what_the_reference_says(spark, history):
    folder, _, embedded = history
    kept = contents(emitted(read(spark, folder / "deltas")))
    for number, sql, _ in subscriptions():
        if number // 100 != 2:
            assert kept.get(number, Counter()) == embedded.answer(number), sql


def test_a_batch_that_is_run_again_finds_its_pin_and_writes_the_same(spark, history):
    """A version published between the two runs waits for the next batch, which it brings about itself."""
    folder, world, embedded = history
    pins = {path.name: path.read_text() for path in folder.glob("state/pins/*/*.json")}
    before = sorted(map(str, read(spark, folder / "deltas")))
    for path in folder.glob("checkpoint/commits/*3*"):
        path.unlink()  # as if the driver had died before the commit
    shutil.rmtree(folder / "deltas" / "batch=3")
    pipeline = Pipeline(spark, state_dir=folder / "state")
    pipeline.publish([*subscriptions(), (5, "SELECT symbol FROM stocks", "late")])
    run(pipeline, folder / "in", sink=f"parquet:{folder / 'deltas'}", checkpoint=folder / "checkpoint")
    rows = read(spark, folder / "deltas")
    assert sorted(map(str, (row for row in rows if row["batch"] < 4))) == before
    after = {path.name: path.read_text() for path in folder.glob("state/pins/*/*.json")}
    assert after.items() >= pins.items()
    assert set(after) - set(pins) == {"4.json"}
    late = [(row["subscription"], row["seq"], row["row"]) for row in rows if row["batch"] == 4]
    symbols = embedded.engine.rows("stocks")["symbol"].to_pylist()
    assert sorted(late) == [(5, world.seq, f'{{"symbol":"{symbol}"}}') for symbol in sorted(symbols)]


def test_dead_letters_new_versions_and_structs(spark, tmp_path):
    """One run: a first batch without any change, bad rows, a struct for a row, a version in between."""
    sink, dead = MemorySink(), MemorySink()
    options = {"sink": sink, "dead_letters": dead}
    count = (1, "SELECT COUNT(*) AS n FROM stocks", "ann")
    pipeline = Pipeline(spark, ddl=DDL, subscriptions=[count], state_dir=tmp_path / "state", layout=LAYOUT)
    schema = "table string, op string, row struct<symbol string, per double, risk double>, seq int"
    (tmp_path / "in").mkdir()

    def go():
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        pipeline.start(frame, trigger=NOW, **options).awaitTermination()

    def change(op, seq, **row):
        return {"table": "stocks", "op": op, "row": row, "seq": seq}

    go()
    assert [(r["batch"], r["seq"], r["sign"], r["row"]) for r in sink.rows()] == [(0, 0, 1, '{"n":0}')]
    write(
        tmp_path / "in", 0, [change("insert", 2, symbol="A", per=5), change("insert", 1, symbol="B", risk=1)]
    )
    go()
    joined = (2, "SELECT a.symbol, b.symbol AS other FROM stocks a JOIN stocks b ON a.per = b.risk", "bob")
    low = (3, "SELECT symbol FROM stocks WHERE risk < 9", None)
    pipeline.publish([count, joined, low])
    write(
        tmp_path / "in",
        1,
        [
            change("update", 3, symbol="A", per=1),
            change("insert", 3, symbol="A"),
            change("delete", 1, symbol="B"),
        ],
    )
    go()
    assert [(r["batch"], r["seq"], r["subscription"], r["sign"], r["row"]) for r in sink.rows()[1:]] == [
        (1, 1, 1, -1, '{"n":0}'),
        (1, 1, 1, 1, '{"n":1}'),
        (1, 2, 1, -1, '{"n":1}'),
        (1, 2, 1, 1, '{"n":2}'),
        (2, 2, 3, 1, '{"symbol":"B"}'),
        (2, 3, 2, 1, '{"symbol":"A","other":"B"}'),
    ]
    assert [(r["batch"], r["seq"], r["op"], r["row"]) for r in dead.rows()] == [
        (2, 1, "delete", '{"symbol":"B"}'),
        (2, 3, "insert", '{"symbol":"A"}'),
    ]
    assert [r["reason"] for r in dead.rows()] == [
        "seq 1 is not above 1, the last applied to this key",
        "seq 3 is not above 3, the last applied to this key",
    ]


def test_errors_are_reported_before_anything_runs(spark, tmp_path):
    with pytest.raises(TocsinError, match="the pipeline has no definitions"):
        Pipeline(spark, state_dir=tmp_path)
    with pytest.raises(SqlError, match="there is no column 'pre'"):
        Pipeline(
            spark, ddl=DDL, subscriptions=[(1, "SELECT * FROM stocks WHERE pre > 1")], state_dir=tmp_path
        )
    pipeline = Pipeline(spark, ddl=DDL, subscriptions=[], state_dir=tmp_path, layout=LAYOUT)
    with pytest.raises(TocsinError, match="the changes have no column op, row"):
        pipeline.start(spark.readStream.schema("table string, seq int").json(str(tmp_path)), sink="console")
    with pytest.raises(TocsinError, match="unknown sink 'csv:x'"):
        pipeline.start(source(spark, tmp_path), sink="csv:x")
    with pytest.raises(TocsinError, match="sink 'parquet:' has no path\nhint: write it as parquet:<path>"):
        pipeline.start(source(spark, tmp_path), sink="parquet:")
    with pytest.raises(TocsinError, match="the changes are a batch, not a stream"):
        pipeline.start(spark.createDataFrame([], SCHEMA), sink="console")
    with pytest.raises(TocsinError, match="stocks is defined differently than before"):
        Pipeline(spark, ddl="CREATE TABLE stocks (symbol STRING, PRIMARY KEY (symbol))", state_dir=tmp_path)
    with pytest.raises(TocsinError, match=r"has Layout\(tables=2"):
        Pipeline(spark, state_dir=tmp_path, layout=Layout(tables=5))
    (tmp_path / "layout.json").write_text('{"tables": 2, "joins": 2, "subscriptions": 2}')
    with pytest.raises(TocsinError, match="was written by another version of Tocsin, with another hash"):
        Pipeline(spark, state_dir=tmp_path)


def test_a_plain_session_json_and_a_state_recreated(spark, tmp_path):
    """NULLs are written, NTZ times keep their microseconds, and each checkpoint has its dead letters."""
    plain = spark.newSession()
    plain.conf.set(PROVIDER, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    plain.conf.set("spark.sql.streaming.stateStore.encodingFormat", "unsaferow")
    row = {"a": 1, "at": "2013-01-31T12:00:00.123456"}
    write(tmp_path / "in", 0, [{"table": "t", "op": "insert", "row": row, "seq": seq} for seq in (0, 1)])
    schema = "table string, op string, row struct<a bigint, at timestamp_ntz>, seq bigint"
    changes = plain.readStream.schema(schema).json(str(tmp_path / "in"))
    ddl, state, out = "CREATE TABLE t (a BIGINT, at TIMESTAMP, PRIMARY KEY (a))", tmp_path / "state", tmp_path
    places = ["dead_letters", f"dead_letters-{query_of('two')}", "dead_letters"]
    for number, (checkpoint, dead) in enumerate(zip(["one", "two", "one"], places, strict=True)):
        if number == 2:
            shutil.rmtree(state)
        subscriptions = [(9 if number < 2 else 5, "SELECT * FROM t")]
        pipeline = Pipeline(
            plain, ddl=ddl, subscriptions=subscriptions, state_dir=state, layout=Layout(1, 1, 1)
        )
        options = {"sink": f"json:{out / str(number)}", "checkpoint": state / checkpoint}
        pipeline.start(changes, trigger=NOW, **options).awaitTermination()
        (record,) = [json.loads(path.read_text()) for path in out.glob(f"{number}/batch=0/*.json")]
        assert (record["seq"], record["subscriber"], record["subscription"]) == (0, None, subscriptions[0][0])
        assert record["row"]["at"].startswith("2013-01-31T12:00:00.123456")
        assert (state / dead / "batch=0").exists()


def test_a_setting_that_a_session_refuses_is_named():
    class Stubborn:
        def get(self, key, default):
            return "hdfs" if key == PROVIDER else default

        def set(self, key, value):
            raise ValueError("fixed")

    with pytest.raises(TocsinError, match=f"needs the setting {PROVIDER}=.*refuses it: fixed\nhint: build"):
        ensure_state(SimpleNamespace(conf=Stubborn()))


def test_nothing_here_needs_the_jvm_in_this_process():
    folder = Path(tocsin.spark.__file__).parent
    texts = {str(path): path.read_text() for path in folder.rglob("*.py")}
    assert not [name for name, text in texts.items() if "sparkContext" in text or "_jvm" in text]
