"""Tocsin's claim about state on Spark, measured: a pipeline with a million rows is killed and restarted.

    restart   two tables with a million rows together, and 30,000 filters, joins and top-k over them: the
              process that runs the pipeline is killed, another resumes from the checkpoint; the claim is the
              time until its first batch is done. The peak memory of its processes is reported too

    python bench/spark_show.py restart
    python bench/spark_show.py restart --rows 100000 --no-bar

Before a time is printed, the contents of a sample, accumulated from the deltas of both processes, are
compared with the answers of an engine in this process. The other claims about Spark have their own commands:
`tocsin bench spark`, `tocsin chaos` (`--kills 0 --files 101 --updates 100` for the versions of batches).
Standard output has one JSON object per claim, standard error a readable line; the exit code is 1 if an
answer is wrong or a claim does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as dataset
from claims import say

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.model.json_rows import row_json
from tocsin.spark import Layout, Pipeline, session
from tocsin.spark.versions.blocks import SubscriptionBlock, template_block

BAR = 60.0  # seconds
LAYOUT = Layout(tables=2, joins=2, subscriptions=2)
EACH = 10_000  # subscriptions of each shape
SAMPLE = 50  # compared contents per shape
FILE = 100_000  # changes in a file, and so in a batch
LATER = 1000  # changes after the restart
COLUMNS = "table string, op string, row string, seq bigint"
DDL = """
CREATE TABLE r (id BIGINT, k BIGINT, a DOUBLE, PRIMARY KEY (id));
CREATE TABLE s (id BIGINT, k BIGINT, c DOUBLE, PRIMARY KEY (id))
"""
TEXTS = {
    "filter": "SELECT id, a FROM r WHERE a BETWEEN :low AND :high",
    "join": "SELECT r.id AS i, s.id AS j FROM r JOIN s USING (k) "
    "WHERE a BETWEEN :low AND :high AND c BETWEEN :least AND :most",
    "topk": "SELECT id, c FROM s WHERE k BETWEEN :low AND :high ORDER BY c LIMIT 10",
}


# -- subscriptions and changes ---------------------------------------------------------------------------


def blocks(rows: int) -> list[SubscriptionBlock]:
    """10,000 subscriptions of each shape, each with a handful of answers."""
    draw = np.random.default_rng(1)
    low, least = draw.random(EACH), draw.random(EACH)
    first = draw.integers(rows, size=EACH)
    values = {
        "filter": {"low": low, "high": low + 10 / rows},
        "join": {"low": low, "high": low + 0.003, "least": least, "most": least + 0.003},
        "topk": {"low": first, "high": first + 20},
    }
    return [
        template_block(TEXTS[shape], pa.table({"id": np.arange(EACH) + n * EACH, **columns}))
        for n, (shape, columns) in enumerate(values.items())
    ]


def write(folder: Path, number: int, op: str, tables: Any, ids: Any, first: int, rows: int) -> None:
    """One file of changes, in order of seq from `first` on."""
    draw = np.random.default_rng(number)
    keys, values = draw.integers(rows // 2, size=len(ids)).tolist(), draw.random(len(ids)).tolist()
    lines = []
    for n, (table, i, k, v) in enumerate(zip(tables, ids, keys, values, strict=True)):
        row = json.dumps({"id": i, "k": k, "ac"[table]: v})
        lines.append(json.dumps({"table": "rs"[table], "op": op, "row": row, "seq": first + n}))
    aside = folder.with_name(f"{number:05}.json")
    aside.write_text("\n".join(lines))
    os.utime(aside, (1_000_000_000 + number,) * 2)  # Spark reads files in order of their times
    aside.rename(folder / aside.name)


def load(folder: Path, rows: int) -> None:
    """Files that insert all rows, half of them into each table."""
    folder.mkdir()
    half = rows // 2
    for number, start in enumerate(range(0, rows, FILE)):
        chosen = range(start, min(start + FILE, rows))
        write(
            folder, number, "insert", [n // half for n in chosen], [n % half for n in chosen], start + 1, rows
        )


# -- the processes ---------------------------------------------------------------------------------------


def drive(root: Path, until: int) -> None:
    """Run the pipeline until so many batches are done; then wait to be killed."""
    spark = session("restart", log=root / "spark.log")
    pipeline = Pipeline(spark, state_dir=root / "state")
    changes = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(root / "in"))
    query = pipeline.start(changes, sink=f"parquet:{root / 'out'}")
    while done(root) < until:
        if not query.isActive:
            query.awaitTermination()  # raises what ended it
        time.sleep(0.05)
    time.sleep(600)


def done(root: Path) -> int:
    commits = root / "state" / "checkpoint" / "commits"
    return sum(name.isdigit() for name in os.listdir(commits)) if commits.exists() else 0


def run(root: Path, until: int) -> tuple[float, dict[str, int]]:
    """Run the pipeline in a process up to a batch, then kill it; return seconds and peak memory by kind."""
    began = time.monotonic()
    command = [sys.executable, __file__, "drive", str(root), "--until", str(until)]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        batches = done(root)
        while done(root) < until:
            if process.poll() is not None:
                raise TocsinError("the pipeline ended", hint=f"see {root / 'spark.log'}")
            time.sleep(0.02)
            if done(root) != batches:
                batches = done(root)
                say(f"batch {batches} of {until}, {time.monotonic() - began:.0f} s")
        seconds = time.monotonic() - began
        return seconds, memory(process.pid)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def memory(pid: int) -> dict[str, int]:
    """The peak memory in MB of a process's descendants and of its hosts, summed by kind."""
    found: Counter[str] = Counter()
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            command = Path("/proc", name, "cmdline").read_bytes().decode(errors="replace")
            status = Path("/proc", name, "status").read_text()
        except OSError:
            continue
        parents[int(name)] = int(stat[1]), command, status
    for number, (_, command, status) in parents.items():
        host = "tocsin.spark.hosting.process" in command
        above = int(command.split("\0")[-4]) if host else number  # a host has its owner as an argument
        while above in parents and above != pid:
            above = parents[above][0]
        if above != pid:
            continue
        kind = (
            "hosts"
            if host
            else "workers"
            if "daemon" in command and "java" not in command
            else "driver and JVM"
        )
        peak = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
        found[kind] += int(peak[0]) // 1024 if peak else 0
    return dict(found)


# -- the claim -------------------------------------------------------------------------------------------


def restart(rows: int, bar: bool) -> bool:
    with tempfile.TemporaryDirectory(prefix="tocsin-restart-") as name:
        root = Path(name)
        say(f"writing {rows:,} rows")
        load(root / "in", rows)
        subscribed = blocks(rows)
        say("publishing the subscriptions")
        Pipeline(
            session("restart"), ddl=DDL, subscriptions=subscribed, state_dir=root / "state", layout=LAYOUT
        ).spark.stop()
        files = len(os.listdir(root / "in"))
        say("the first process loads all rows")
        loading, first = run(root, files)
        ids = np.random.default_rng(0).integers(rows // 2, size=LATER).tolist()
        write(root / "in", files, "update", [n % 2 for n in range(LATER)], ids, rows + 1, rows)
        say("it was killed; the second resumes")
        again, second = run(root, files + 1)
        state = sum(file.stat().st_size for file in (root / "state").rglob("*") if file.is_file())
        say("comparing")
        compare(root, subscribed)
    met = again < BAR or not bar
    measured = {
        "claim": "restart",
        "rows": rows,
        "subscriptions": 3 * EACH,
        "restart_s": round(again, 1),
        "load_s": round(loading, 1),
        "state_mb": state >> 20,
        "peak_mb_loading": first,
        "peak_mb_restarted": second,
        "bar_s": BAR,
        "met": again < BAR,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    print(json.dumps(measured), flush=True)
    say(f"restart with {rows:,} rows: {again:.1f} s to the end of the first batch (bar {BAR:.0f})")
    return met


def compare(root: Path, subscribed: list[SubscriptionBlock]) -> None:
    """Compare the contents of a sample, accumulated from the deltas, with an engine."""
    engine = Engine()
    engine.execute(DDL)
    for file in sorted((root / "in").glob("*.json")):
        by_table: dict[str, list[dict[str, Any]]] = {}
        for line in file.read_text().splitlines():
            change = json.loads(line)
            by_table.setdefault(change["table"], []).append(json.loads(change["row"]) | {"_op": change["op"]})
        engine.apply_all({table: pa.Table.from_pylist(found) for table, found in by_table.items()})
    chosen = []
    for block in subscribed:
        some = block.table.slice(0, SAMPLE).drop_columns(["subscriber"])
        engine.subscribe_many(block.subject, some)
        chosen += some["id"].to_pylist()
    contents: dict[int, Counter[str]] = {number: Counter() for number in chosen}
    files = dataset.dataset(root / "out", format="parquet", partitioning="hive")
    wanted = dataset.field("subscription").isin(chosen)
    for row in files.to_table(columns=["subscription", "sign", "row"], filter=wanted).to_pylist():
        contents[row["subscription"]][row["row"]] += row["sign"]
    for number, rows in contents.items():
        should = Counter(row_json(row) for row in engine.content(number))
        if +rows != should or any(count < 0 for count in rows.values()):
            raise TocsinError(f"subscription {number} has {dict(+rows)}, and should have {dict(should)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    which = parser.add_subparsers(dest="what", required=True)
    shown = which.add_parser("restart", help="stop and start a pipeline with a million rows")
    shown.add_argument("--rows", type=int, default=1_000_000)
    shown.add_argument("--no-bar", action="store_true", help="measure only")
    hidden = which.add_parser("drive")
    hidden.add_argument("root", type=Path)
    hidden.add_argument("--until", type=int, required=True)
    given = parser.parse_args()
    if given.what == "drive":
        drive(given.root, given.until)
        return 0
    try:
        return 0 if restart(given.rows, not given.no_bar) else 1
    except TocsinError as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
