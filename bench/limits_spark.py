"""A join of two streams in a pipeline, and Spark's own join with watermarks, over the same files.

    python bench/limits_spark.py --events 40000 --files 4

Both join events of equal keys within a band of event time, with memory enough; the pairs are compared before
a time counts. Both run on the same session, one after the other, after a small run of each to start things.
Events come in order of time, so that neither drops late ones.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tocsin.spark import Pipeline, session
from tocsin.spark.versions.batch import Layout

DDL = """CREATE STREAM hits (page BIGINT, n BIGINT, at TIMESTAMP);
CREATE STREAM buys (page BIGINT, n BIGINT, at TIMESTAMP)"""
JOIN = (
    "SELECT h.n AS hit, b.n AS buy FROM hits h JOIN buys b ON h.page = b.page "
    "AND b.at - h.at BETWEEN INTERVAL '0' SECOND AND INTERVAL '60' SECOND WITH (memory = '256 MB')"
)
SCHEMA = "table string, op string, row string, seq bigint"
ROW = "page bigint, n bigint, at timestamp"
NOW = {"availableNow": True}
START = datetime(2024, 5, 1, tzinfo=UTC)


def write_events(folder: Path, events: int, files: int, pages: int, seed: int = 1) -> None:
    """Files of changes: hits and buys in turn at random, ten a second."""
    draw = random.Random(seed)
    folder.mkdir(parents=True)
    for file in range(files):
        lines = []
        for seq in range(file * events // files, (file + 1) * events // files):
            at = (START + timedelta(milliseconds=100 * seq)).isoformat()
            row = {"page": draw.randrange(pages), "n": seq, "at": at}
            table = draw.choice(["hits", "buys"])
            lines.append(json.dumps({"table": table, "op": "insert", "row": json.dumps(row), "seq": seq}))
        (folder / f"{file:04d}.json").write_text("\n".join(lines))


def changes_of(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))


def by_pipeline(spark: SparkSession, folder: Path, work: Path) -> Counter[tuple[int, int]]:
    """The pairs that a pipeline emits."""
    pipeline = Pipeline(
        spark, ddl=DDL, subscriptions=[(1, JOIN)], state_dir=work / "state", layout=Layout(2, 2, 1)
    )
    query = pipeline.start(changes_of(spark, folder), sink=f"parquet:{work / 'deltas'}", trigger=NOW)
    query.awaitTermination()
    rows = [json.loads(one.row) for one in spark.read.parquet(str(work / "deltas")).select("row").collect()]
    return Counter((row["hit"], row["buy"]) for row in rows)


def by_spark(spark: SparkSession, folder: Path, work: Path) -> Counter[tuple[int, int]]:
    """The pairs of Spark's own join."""

    def stream(name: str, short: str) -> DataFrame:
        rows = changes_of(spark, folder).where(F.col("table") == name)
        row = rows.select(F.from_json("row", ROW).alias("row")).select("row.*")
        return row.withWatermark("at", "10 seconds").select(
            *(F.col(c).alias(f"{short}_{c}") for c in row.columns)
        )

    spark.conf.set("spark.sql.streaming.stateStore.encodingFormat", "unsaferow")  # its joins know no Avro
    near = "b_page = h_page AND b_at >= h_at AND b_at <= h_at + INTERVAL 60 SECONDS"
    joined = stream("hits", "h").join(stream("buys", "b"), F.expr(near)).select("h_n", "b_n")
    writer = joined.writeStream.format("parquet").option("path", str(work / "pairs"))
    writer.option("checkpointLocation", str(work / "checkpoint")).trigger(**NOW).start().awaitTermination()
    spark.conf.set("spark.sql.streaming.stateStore.encodingFormat", "avro")
    return Counter((one.h_n, one.b_n) for one in spark.read.parquet(str(work / "pairs")).collect())


def timed(run: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    start = perf_counter()
    return run(*args), perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=40_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--pages", type=int, default=2000)
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="limits-spark-"))
    spark = session("limits")
    try:
        write_events(work / "small", 400, 2, 20)
        write_events(work / "in", options.events, options.files, options.pages)
        runs = {"pipeline": by_pipeline, "spark": by_spark}
        for name, run in runs.items():
            run(spark, work / "small", work / f"small-{name}")
        found = {name: timed(run, spark, work / "in", work / name) for name, run in runs.items()}
        (pairs, own), (others, theirs) = found["pipeline"], found["spark"]
        same = pairs == others
        print(json.dumps({"events": options.events, "pairs": pairs.total(), "same": same,
                          "pipeline_seconds": round(own, 1), "spark_seconds": round(theirs, 1)}))  # fmt: skip
        assert same, "the pairs differ"
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
