"""Joins and top-k through a pipeline on Spark: changes in JSON files, deltas in Parquet files.

    join   r(id, k, a) and s(id, k, c), 10,000 rows each; queries join on k, with a range of a and one of c
    topk   10,000 objects (id, x, y); queries select the ten lowest y of a range of x; an event changes a y

A change has about five deltas (`join`) or sixteen (`topk`), with any number of subscriptions: the width of
ranges is divided by it. Everything is drawn by the seed.

Plain Spark SQL recomputes the answers of a batch, for as many subscriptions as it can finish.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as dataset
from pyspark.sql import SparkSession

from tocsin.commands.progress import percentile
from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.lab.bench.spark import Say, SparkResult, SparkSetting
from tocsin.model.change import ChangeBatch
from tocsin.model.json_rows import row_json
from tocsin.spark import Layout, Pipeline, session
from tocsin.spark.hosting.client import host_stats
from tocsin.spark.sources import TEXTS
from tocsin.spark.versions.blocks import SubscriptionBlock, template_block

__all__ = ["measure_tables"]

ROWS, KEYS, K = 10_000, 5000, 10
SAMPLE = 200  # subscriptions whose contents are compared
SQL_SAMPLE = 1000  # subscriptions that plain Spark SQL answers

Contents = dict[int, Counter[str]]  # rows as texts, by subscription


@dataclass(frozen=True)
class TableWorkload:
    """Definitions, subscriptions, changes that load the tables, and changes by batch."""

    ddl: str
    subscriptions: SubscriptionBlock
    load: list[dict[str, Any]]
    batches: list[list[dict[str, Any]]]


def measure_tables(setting: SparkSetting, say: Say) -> list[SparkResult]:
    """The pipeline, the engine in this process, and plain Spark SQL."""
    say("drawing subscriptions and changes")
    work = _joins(setting) if setting.kind == "join" else _objects(setting)
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as name:
        root = Path(name)
        _number(work)
        spark = session("bench")
        try:
            tocsin = _tocsin(setting, spark, work, root, say)
            plain, answers = _plain(setting, spark, work, say)
        finally:
            spark.stop()
        engine, loaded, expected = _engine(setting, work, say)
        _compare(expected, root / "out")
        _check_equal("plain Spark SQL", answers, loaded)
        if tocsin.deltas != engine.deltas:
            raise TocsinError(f"the pipeline wrote {tocsin.deltas:,} deltas, the engine {engine.deltas:,}")
    return [tocsin, engine, plain]


# -- workloads ---------------------------------------------------------------------------------------


def _joins(setting: SparkSetting) -> TableWorkload:
    draw, n = np.random.default_rng(setting.seed), setting.subscriptions
    width = (5 / (4 * n)) ** 0.5  # two joining rows, before and after: 4 n width^2 deltas
    low, least = draw.random(n), draw.random(n)
    table = pa.table({"id": np.arange(n), "al": low, "ah": low + width, "cl": least, "ch": least + width})
    text = (
        "SELECT r.id AS i, s.id AS j FROM r JOIN s USING (k) "
        "WHERE a BETWEEN :al AND :ah AND c BETWEEN :cl AND :ch"
    )
    ddl = (
        "CREATE TABLE r (id BIGINT, k BIGINT, a DOUBLE, PRIMARY KEY (id)); "
        "CREATE TABLE s (id BIGINT, k BIGINT, c DOUBLE, PRIMARY KEY (id))"
    )

    def changes(op: str, tables: Any, ids: Any) -> list[dict[str, Any]]:
        keys, values = draw.integers(KEYS, size=len(ids)).tolist(), draw.random(len(ids)).tolist()
        return [
            {"table": "rs"[t], "op": op, "row": {"id": i, "k": k, "ac"[t]: v}}
            for t, i, k, v in zip(tables.tolist(), ids.tolist(), keys, values, strict=True)
        ]

    load = changes("insert", np.repeat([0, 1], ROWS), np.tile(np.arange(ROWS), 2))
    parts = [
        changes("update", draw.integers(2, size=size), draw.integers(ROWS, size=size))
        for size in _sizes(setting)
    ]
    return TableWorkload(ddl, template_block(text, table), load, parts)


def _objects(setting: SparkSetting) -> TableWorkload:
    draw, n = np.random.default_rng(setting.seed), setting.subscriptions
    width = 16 / n  # half of it on average; a change has deltas before and after: n width deltas
    low = draw.random(n)
    table = pa.table({"id": np.arange(n), "l": low, "h": low + width * draw.random(n)})
    place = draw.random(ROWS)

    def changes(op: str, ids: Any) -> list[dict[str, Any]]:
        values = draw.random(len(ids)).tolist()
        return [
            {"table": "o", "op": op, "row": {"id": i, "x": x, "y": y}}
            for i, x, y in zip(ids.tolist(), place[ids].tolist(), values, strict=True)
        ]

    text = f"SELECT id, y FROM o WHERE x BETWEEN :l AND :h ORDER BY y LIMIT {K}"
    ddl = "CREATE TABLE o (id BIGINT, x DOUBLE, y DOUBLE, PRIMARY KEY (id))"
    parts = [changes("update", draw.integers(ROWS, size=size)) for size in _sizes(setting)]
    return TableWorkload(ddl, template_block(text, table), changes("insert", np.arange(ROWS)), parts)


def _sizes(setting: SparkSetting) -> list[int]:
    whole, rest = divmod(setting.changes, setting.batch)
    return [setting.batch] * whole + ([rest] if rest else [])


def _number(work: TableWorkload) -> None:
    everything = (change for changes in [work.load, *work.batches] for change in changes)
    for seq, change in enumerate(everything, 1):
        change["seq"] = seq


def _write(folder: Path, batches: list[list[dict[str, Any]]]) -> None:
    """Write a file per batch, numbered after the existing files."""
    folder.mkdir(exist_ok=True)
    for number, changes in enumerate(batches, len(list(folder.iterdir()))):
        lines = (json.dumps({**change, "row": json.dumps(change["row"])}) for change in changes)
        (folder / f"{number:06d}.json").write_text("\n".join(lines))


# -- methods -----------------------------------------------------------------------------------------


def _tocsin(
    setting: SparkSetting, spark: SparkSession, work: TableWorkload, root: Path, say: Say
) -> SparkResult:
    say("publishing the subscriptions")
    layout = Layout(tables=2, joins=2, subscriptions=2)
    pipeline = Pipeline(
        spark, ddl=work.ddl, subscriptions=work.subscriptions, state_dir=root / "state", layout=layout
    )
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", len(work.batches) + 10)

    def run(batches: list[list[dict[str, Any]]]) -> Any:
        _write(root / "in", batches)
        changes = spark.readStream.schema(TEXTS).option("maxFilesPerTrigger", 1).json(str(root / "in"))
        query = pipeline.start(changes, sink=f"parquet:{root / 'out'}", trigger={"availableNow": True})
        while not query.awaitTermination(2):
            last = query.lastProgress
            if last is not None and last["batchId"]:
                rate = last["processedRowsPerSecond"]
                say(f"the pipeline: batch {last['batchId']} of {len(work.batches)}, {rate:,.0f} changes/s")
        return query

    say("the pipeline: tables are loaded")
    run([work.load])
    before = _stepped()
    query = run(work.batches)
    stepped = _stepped() - before
    timed = [p for p in query.recentProgress if p["numInputRows"]]
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in timed]
    total = sum(seconds)
    commits = sum(s["commitTimeMs"] for p in timed for s in p["stateOperators"]) / 1000 / 2
    work = sum(p["durationMs"].get("addBatch", 0) for p in timed) / 1000
    shares = {"kernels": min(1.0, stepped / total)} if stepped else {}  # hosts count them, workers do not
    shares |= {
        "state": commits / total,
        "scheduling": (total - work) / total,
    }
    rest = "Arrow, jobs and output" if stepped else "kernels, Arrow, jobs and output"
    shares[rest] = max(0.0, 1 - sum(shares.values()))
    return SparkResult(
        "tocsin",
        setting.subscriptions,
        setting.changes,
        total,
        _written(root / "out"),
        percentile(seconds, 50),
        percentile(seconds, 99),
        shares,
    )


def _stepped() -> float:
    """Seconds that a host has computed since it started, on average over hosts."""
    hosts = host_stats()
    return sum(float(host.get("step_seconds", 0)) for host in hosts) / max(1, len(hosts))


def _written(out: Path) -> int:
    """The number of deltas written after the tables were loaded."""
    files = dataset.dataset(out, format="parquet", partitioning="hive")
    return int(files.count_rows(filter=dataset.field("batch") > 0))


def _engine(setting: SparkSetting, work: TableWorkload, say: Say) -> tuple[SparkResult, Contents, Contents]:
    """The same changes in this process; the contents of SQL's subscriptions when the tables are loaded,
    and of a sample at the end."""
    say("the engine in this process")
    engine = Engine()
    engine.execute(work.ddl)
    engine.subscribe_many(work.subscriptions.subject, work.subscriptions.table.drop_columns(["subscriber"]))
    times, deltas = [], 0
    for number, changes in enumerate([work.load, *work.batches]):
        begun = time.perf_counter()
        emitted = engine.apply_all(dict(_by_table(engine, changes)))
        if not number:
            loaded = _contents(engine, range(min(SQL_SAMPLE, setting.subscriptions)))
        else:
            times.append(time.perf_counter() - begun)
            deltas += len(emitted)
    speed = percentile(times, 50), percentile(times, 99)
    result = SparkResult("engine", setting.subscriptions, setting.changes, sum(times), deltas, *speed)
    return result, loaded, _contents(engine, _sample(work))


def _contents(engine: Engine, ids: Iterable[int]) -> Contents:
    return {number: Counter(row_json(row) for row in engine.content(number)) for number in ids}


def _by_table(engine: Engine, changes: list[dict[str, Any]]) -> Iterator[tuple[str, ChangeBatch]]:
    for name in sorted({change["table"] for change in changes}):
        mine = [change for change in changes if change["table"] == name]
        rows, ops, seqs = zip(*((c["row"], c["op"], c["seq"]) for c in mine), strict=True)
        batch, bad = ChangeBatch.from_dicts(engine.schema(name), rows, ops, seqs)
        yield name, batch.or_raise(bad)


def _plain(
    setting: SparkSetting, spark: SparkSession, work: TableWorkload, say: Say
) -> tuple[SparkResult, Contents]:
    """Recompute the answers of some subscriptions once, on the loaded tables, as after every batch."""
    say("plain Spark SQL")
    some = min(SQL_SAMPLE, setting.subscriptions)
    spark.createDataFrame(
        work.subscriptions.table.slice(0, some).drop_columns(["subscriber"])
    ).createOrReplaceTempView("q")
    for name in sorted({change["table"] for change in work.load}):
        rows = pa.Table.from_pylist([change["row"] for change in work.load if change["table"] == name])
        spark.createDataFrame(rows).createOrReplaceTempView(name)
    text = (
        "SELECT q.id AS q, r.id AS i, s.id AS j FROM r JOIN s USING (k) "
        "JOIN q ON a BETWEEN al AND ah AND c BETWEEN cl AND ch"
        if setting.kind == "join"
        else "SELECT q, id, y FROM (SELECT q.id AS q, o.id AS id, y, "
        "ROW_NUMBER() OVER (PARTITION BY q.id ORDER BY y, o.id) "
        f"AS n FROM q JOIN o ON x BETWEEN l AND h) WHERE n <= {K}"
    )
    spark.sql(text).count()
    begun = time.perf_counter()
    found = spark.sql(text).count()
    seconds = time.perf_counter() - begun
    note = f"one recomputation of {some:,} answers per batch of {setting.batch:,}"
    answers: Contents = {number: Counter() for number in range(some)}
    for row in spark.sql(text).toArrow().to_pylist():
        answers[row.pop("q")][row_json(row)] += 1
    return SparkResult("spark-sql", some, setting.batch, seconds, found, note=note), answers


# -- checking ----------------------------------------------------------------------------------------


def _sample(work: TableWorkload) -> list[int]:
    return np.unique(np.linspace(0, len(work.subscriptions) - 1, SAMPLE).astype(int)).tolist()


def _compare(expected: Contents, out: Path) -> None:
    """Compare the contents accumulated from the written deltas with the engine's."""
    files = dataset.dataset(out, format="parquet", partitioning="hive")
    wanted = dataset.field("subscription").isin(list(expected))
    accumulated: Contents = {number: Counter() for number in expected}
    for row in files.to_table(columns=["subscription", "sign", "row"], filter=wanted).to_pylist():
        accumulated[row["subscription"]][row["row"]] += row["sign"]
    _check_equal("the pipeline", accumulated, expected)


def _check_equal(who: str, found: Contents, wanted: Contents) -> None:
    for number, rows in wanted.items():
        if +found[number] != rows or any(count < 0 for count in found[number].values()):
            contents = f"{dict(+found[number])}, and should have {dict(rows)}"
            raise TocsinError(f"{who} has for subscription {number} {contents}")
