"""Tocsin on Spark, end to end, beside the engine in this process and plain Spark SQL.

    filters   events of Parquet files, matched and written as Parquet (this file)
    join      changes of two tables through a pipeline with equality joins (`spark_tables.py`)
    topk      updates of moving objects through a pipeline with range top-k (`spark_tables.py`)

Answers are compared before a time is printed: matches by number and checksum; for tables, contents
accumulated from the pipeline's deltas, for a sample of subscriptions.

For filters, plain Spark SQL gets its best formulation: events and subscriptions are exploded to one row per
attribute and predicate, joined on the attribute (predicates are broadcast), and counted.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from tocsin.engine import Engine, Rooms
from tocsin.errors import TocsinError, UsageError
from tocsin.lab.bench.filter_workloads import make_workload
from tocsin.lab.bench.match import checksum
from tocsin.match.index import Auto
from tocsin.spark import match, session
from tocsin.spark.matcher import mapped_filters
from tocsin.spark.versions.batch import relations_of
from tocsin.spark.versions.blocks import predicate_block
from tocsin.spark.versions.store import Versions

__all__ = ["KINDS", "Say", "SparkResult", "SparkSetting", "measure_filters", "measure_spark", "show_results"]

Say = Callable[[str], None]
KINDS = ("filters", "join", "topk")


@dataclass(frozen=True)
class SparkSetting:
    """Parameters of an experiment."""

    kind: str = "filters"
    subscriptions: int = 100_000
    changes: int = 200_000
    batch: int = 20_000  # changes in a micro-batch
    seed: int = 0
    workload: str = "sparse"  # of filters
    smallest: int = 2  # predicates per subscription, of sparse filters
    repeat: int = 3  # of filters; the best counts
    sql: int = 100_000  # above so many subscriptions, plain Spark SQL is left out


@dataclass
class SparkResult:
    """One method: its speed, the latency of its batches, and the shares of its time."""

    method: str
    subscriptions: int
    changes: int
    seconds: float
    deltas: int
    latency_p50: float | None = None
    latency_p99: float | None = None
    shares: dict[str, float] = field(default_factory=dict)
    note: str = ""
    checked: bool = True

    @property
    def changes_per_s(self) -> float:
        return self.changes / self.seconds

    def to_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        return {**fields, "changes_per_s": self.changes_per_s, "deltas_per_s": self.deltas / self.seconds}


def measure_spark(setting: SparkSetting, say: Say = lambda _: None) -> list[SparkResult]:
    """Measure Tocsin on Spark, the engine, and plain Spark SQL on one workload; raise if answers differ."""
    if setting.kind not in KINDS:
        raise UsageError(f"there is no kind {setting.kind!r}", hint=f"one of {', '.join(KINDS)}")
    if setting.kind == "filters":
        from tocsin.lab.bench.spark import measure_filters

        return measure_filters(setting, say)
    from tocsin.lab.bench.spark_tables import measure_tables

    return measure_tables(setting, say)


def show_results(results: list[SparkResult], console: Console) -> None:
    """Print a table."""
    table = Table("method", "subscriptions", "changes/s", "deltas/s", "batch p50", "p99", "time goes to", "")
    for result in results:
        latencies = [
            "" if value is None else f"{value:.2f} s" for value in (result.latency_p50, result.latency_p99)
        ]
        shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in result.shares.items())
        table.add_row(
            result.method,
            f"{result.subscriptions:,}",
            f"{result.changes_per_s:,.0f}",
            f"{result.deltas / result.seconds:,.0f}",
            *latencies,
            shares,
            result.note,
        )
    console.print(table)


DDL = "CREATE STREAM events"
FILES = 4
SQL_EVENTS = {"sparse": 20_000, "dense": 100}  # events for plain Spark SQL: as many as it matches in seconds


def measure_filters(setting: SparkSetting, say: Say) -> list[SparkResult]:
    """`match` over a directory of versions, the engine on two threads, and an exploded counting join."""
    options = {"smallest": setting.smallest} if setting.workload == "sparse" else {}
    say("drawing subscriptions and events")
    work = make_workload(
        setting.workload, setting.subscriptions, setting.changes, seed=setting.seed, **options
    )
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as name:
        root = Path(name)
        _write(work.events, root / "in")
        versions = Versions(root / "versions")
        say("publishing the version and its index")
        versions.publish(DDL, predicate_block("events", work.subscriptions))
        catalog = relations_of(DDL)
        filters = mapped_filters(versions, 1, catalog["events"], catalog)  # type: ignore[arg-type]
        spark = session("bench", throughput=True)
        try:
            events = spark.read.parquet(str(root / "in"))
            results = [_tocsin(setting, spark, events, versions, root, say)]
            if setting.subscriptions <= setting.sql:
                results.append(_plain(setting, spark, events, work.subscriptions, root, say))
                _compare_some(root, results[-1].changes)
        finally:
            spark.stop()
        kernel = _kernel_seconds(filters, work.events)
        results[0].shares = {"kernels": kernel / 2 / results[0].seconds, **results[0].shares}
        results.insert(1, _engine(setting, work, say))
    _compare(results)
    return results


def _write(events: Any, folder: Path) -> None:
    folder.mkdir()
    table = events.append_column("event", pa.array(np.arange(len(events))))
    for n in range(FILES):
        first, last = len(table) * n // FILES, len(table) * (n + 1) // FILES
        parquet.write_table(table.slice(first, last - first), folder / f"{n}.parquet")


def _best(repeat: int, run: Callable[[], None]) -> float:
    """The time of the fastest run, after one to warm up."""
    times = []
    for _ in range(repeat + 1):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return min(times[1:])


def _tocsin(
    setting: SparkSetting, spark: SparkSession, events: DataFrame, versions: Versions, root: Path, say: Say
) -> SparkResult:
    out = str(root / "out")

    def run() -> None:
        found = match(events, versions, stream="events", output="lists", keep=["event"])
        found.write.mode("overwrite").parquet(out)

    def transfer() -> None:
        events.mapInArrow(_count, "n bigint").write.mode("overwrite").parquet(str(root / "none"))

    def nothing() -> None:
        spark.range(FILES).repartition(FILES).mapInArrow(_count, "n bigint").collect()

    say("tocsin on Spark")
    seconds = _best(setting.repeat, run)
    say("the same without matching, and jobs that do nothing")
    moved, idle = _best(2, transfer), _best(2, nothing)
    event, found = _lists(root / "out")
    shares = {"reading and Arrow": max(0.0, moved - idle) / seconds, "scheduling": idle / seconds}
    note = _sum_of(event, found)
    return SparkResult(
        "tocsin", setting.subscriptions, setting.changes, seconds, len(found), shares=shares, note=note
    )


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([batch.num_rows])], names=["n"])


def _kernel_seconds(filters: Any, events: Any) -> float:
    """The seconds of matching alone, on one core."""
    some = [events.slice(first, 10_000) for first in range(0, min(len(events), 100_000), 10_000)]
    filters.match(some[0])
    begun = time.perf_counter()
    for part in some:
        filters.match(part)
    return (time.perf_counter() - begun) * len(events) / sum(map(len, some))


def _engine(setting: SparkSetting, work: Any, say: Say) -> SparkResult:
    say("the engine in this process, two threads")
    engine = Engine(rooms=Rooms(match=lambda: Auto(threads=2)))
    engine.execute(DDL)
    engine.subscribe_predicates("events", work.subscriptions)
    parts = [work.events.slice(first, 10_000) for first in range(0, len(work.events), 10_000)]
    best = float("inf")
    event: list[Any] = []
    found: list[Any] = []
    for turn in range(setting.repeat + 1):
        event, found = [], []
        begun = time.perf_counter()
        for number, part in enumerate(parts):
            first = engine.last_seq + 1
            deltas = engine.apply("events", part)
            event.append(deltas.seq - first + 10_000 * number)
            found.append(deltas.subscription)
        if turn:
            best = min(best, time.perf_counter() - begun)
    every, ids = np.concatenate(event), np.concatenate(found)
    note = _sum_of(every, ids)
    return SparkResult("engine", setting.subscriptions, setting.changes, best, len(ids), note=note)


def _plain(
    setting: SparkSetting, spark: SparkSession, events: DataFrame, subscriptions: Any, root: Path, say: Say
) -> SparkResult:
    """Predicates and events exploded, joined and counted."""
    say("plain Spark SQL")
    rows = subscriptions.select(["id", "predicates"])
    parquet.write_table(rows, root / "subscriptions.parquet")
    some = min(setting.changes, SQL_EVENTS[setting.workload])
    out = str(root / "counted")
    subscribed = spark.read.parquet(str(root / "subscriptions.parquet"))
    subscribed.selectExpr("id", "size(predicates) AS size", "explode(predicates) AS p").selectExpr(
        "id", "size", "p.attribute AS attribute", "p.op AS op", "p.number AS number"
    ).createOrReplaceTempView("predicates")
    events.where(f"event < {some}").selectExpr(
        "event", "explode(attributes) AS (attribute, value)"
    ).createOrReplaceTempView("attributes")

    def run() -> None:
        spark.sql(
            "SELECT event, id FROM attributes JOIN predicates USING (attribute) WHERE CASE op "
            "WHEN '=' THEN value = number WHEN '<=' THEN value <= number ELSE value >= number END "
            "GROUP BY event, id, size HAVING COUNT(*) = size"
        ).write.mode("overwrite").parquet(out)

    seconds = _best(1, run)
    return SparkResult("spark-sql", setting.subscriptions, some, seconds, parquet.read_table(out).num_rows)


def _compare_some(root: Path, events: int) -> None:
    """Raise unless Tocsin and plain Spark SQL agree on the first events."""
    ours, theirs = _lists(root / "out"), parquet.read_table(root / "counted")
    first = ours[0] < events
    found = _sum_of(*(column[first] for column in ours))
    counted = _sum_of(theirs["event"].to_numpy(), theirs["id"].to_numpy())
    if found != counted:
        raise TocsinError(f"the answers differ: tocsin {found}, plain Spark SQL {counted}")


def _lists(folder: Path) -> tuple[Any, Any]:
    """The matching (event, subscription) of files with a list of subscriptions per event."""
    table = parquet.read_table(folder)
    lists = table["subscriptions"].combine_chunks()
    event = np.repeat(table["event"].to_numpy(), pc.list_value_length(lists).to_numpy())
    return event, pc.list_flatten(lists).to_numpy()


def _sum_of(event: Any, subscription: Any) -> str:
    return f"checksum {checksum(np.asarray(subscription), np.asarray(event))}"


def _compare(results: list[SparkResult]) -> None:
    checksums = {result.note for result in results if result.note}
    if len(checksums) > 1:
        raise TocsinError(f"the answers differ: {', '.join(f'{r.method} {r.note}' for r in results)}")
