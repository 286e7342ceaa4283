"""A pipeline's two outputs side by side: joined rows for each subscription, or messages.

    python bench/spark_messages.py --subscriptions 20000 --changes 50 --batches 5

Joins of two tables over 100 keys; a subscription selects by a range of each table, and a change concerns
thousands of them. Both pipelines run the same batches on Spark. Before anything is printed, the contents of
sampled subscriptions, kept from the deltas and from the messages alone, are compared with an engine's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from tocsin.client import Client
from tocsin.engine import Engine
from tocsin.model.delta import Delta
from tocsin.model.json_rows import row_json
from tocsin.spark import Layout, MessageReader, Pipeline, session
from tocsin.spark.progress import BatchProgress
from tocsin.spark.versions.blocks import template_block

DDL = """CREATE TABLE r (id BIGINT, k BIGINT, a BIGINT, PRIMARY KEY (id));
CREATE TABLE s (id BIGINT, k BIGINT, c BIGINT, PRIMARY KEY (id))"""
TEMPLATE = """SELECT r.id, s.id AS other, a, c FROM r JOIN s ON r.k = s.k
WHERE a BETWEEN :a AND :b AND c BETWEEN :c AND :d"""
KEYS, DOMAIN = 100, 100_000
SCHEMA = "table string, op string, row string, seq bigint"


def drawn_subscriptions(count: int, rnd: np.random.Generator) -> pa.Table:
    """Ranges by independent normals: two clusters of centres on each axis (W1 of the simulator)."""
    columns: dict[str, Any] = {"id": np.arange(1, count + 1)}
    for (low, high), centres, spread, width in (
        ("ab", (30e3, 70e3), 13e3, 15e3),
        ("cd", (20e3, 80e3), 7500, 6e3),
    ):
        middle = rnd.choice(centres, count) + rnd.normal(0, spread, count)
        half = np.abs(rnd.normal(width, width / 3, count)) / 2
        columns[low], columns[high] = (middle - half).astype(np.int64), (middle + half).astype(np.int64)
    return pa.table(columns)


def drawn_changes(count: int, first: int, rnd: np.random.Generator) -> list[dict[str, Any]]:
    """Inserts into both tables."""
    out = []
    for seq in range(first, first + count):
        table, name, spread = (("r", "a", 20e3), ("s", "c", 12e3))[int(rnd.integers(2))]
        row = {"id": seq, "k": int(rnd.integers(KEYS)), name: int(rnd.normal(DOMAIN / 2, spread))}
        out.append({"table": table, "op": "insert", "row": json.dumps(row), "seq": seq})
    return out


def run(spark: Any, folder: Path, output: str, table: pa.Table, files: Path) -> list[BatchProgress]:
    """Run a pipeline over the files; what Spark reports of each batch."""
    block = template_block(TEMPLATE, table)
    state, sink = folder / f"state-{output}", f"parquet:{folder / output}"
    pipeline = Pipeline(spark, ddl=DDL, subscriptions=[block], state_dir=state, layout=Layout(2, 2, 2))
    changes = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(files))
    query = pipeline.start(changes, sink=sink, output=output, trigger={"availableNow": True})
    query.awaitTermination()
    return [BatchProgress.of(one) for one in query.recentProgress]


def contents_of_deltas(folder: Path, ids: list[int]) -> dict[int, Counter[str]]:
    client = Client()
    for id in ids:
        client.start(id)
    for path in sorted(folder.glob("batch=*"), key=lambda path: int(path.name[6:])):
        rows = parquet.read_table(path, partitioning=None, filters=[("subscription", "in", ids)]).to_pylist()
        client.receive(Delta(r["seq"], r["subscription"], r["sign"], json.loads(r["row"])) for r in rows)
    return {id: Counter(map(row_json, client.content(id))) for id in ids}


def measure(given: argparse.Namespace) -> None:
    rnd = np.random.default_rng(given.seed)
    table = drawn_subscriptions(given.subscriptions, rnd)
    spark = session("described")
    with TemporaryDirectory() as place:
        folder = Path(place)
        files, engine, seq = folder / "in", Engine(), 1
        engine.execute(DDL)
        files.mkdir()
        sizes = [given.rows, *[given.changes] * given.batches]
        for number, size in enumerate(sizes):
            changes = drawn_changes(size, seq, rnd)
            seq += size
            text = "".join(json.dumps(change) + "\n" for change in changes)
            (files / f"{number:03d}.json").write_text(text)
            for change in changes:
                engine.insert(change["table"], json.loads(change["row"]))
        ids = rnd.choice(given.subscriptions, given.checked, replace=False) + 1
        sample = table.take(pa.array(ids - 1))
        engine.subscribe_many(TEMPLATE, sample)
        wanted = {int(id): Counter(map(row_json, engine.content(int(id)))) for id in ids}
        reports = {output: run(spark, folder, output, table, files) for output in ("deltas", "messages")}
        reader = MessageReader()
        for row in sample.to_pylist():
            sql = TEMPLATE
            for name in "abcd":
                sql = sql.replace(f":{name}", str(row[name]))
            reader.follow(row["id"], sql)
        reader.read(folder / "messages")
        mine = {id: Counter(map(row_json, reader.content(id))) for id in wanted}
        if mine != wanted or contents_of_deltas(folder / "deltas", list(wanted)) != wanted:
            sys.exit("contents differ from the engine's")
        print(f"seed {given.seed}; contents of {len(wanted)} subscriptions equal the engine's")
        for output, batches in reports.items():
            last = [one for one in batches if one.rows == given.changes][-given.batches :]
            counts = [one.deltas for one in last]
            seconds = [one.seconds for one in last]
            numbers = [one.number for one in last]
            size = sum(f.stat().st_size for n in numbers for f in (folder / output / f"batch={n}").iterdir())
            print(
                f"{output:9} {median(counts):>10,.0f} rows out of a batch of {given.changes} changes, "
                f"{size / len(last) / 1024:>8,.0f} kB of Parquet, {median(seconds):.2f} s"
            )
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=2000, help="in the tables before")
    parser.add_argument("--changes", type=int, default=50, help="of a batch")
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--checked", type=int, default=20, help="sampled subscriptions")
    parser.add_argument("--seed", type=int, default=0)
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
