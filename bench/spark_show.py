"""Tocsin's claims about pipelines on Spark, measured.

    restart   two tables with a million rows together, and 30,000 filters, joins and top-k over them: the
              process that runs the pipeline is killed, another resumes from the checkpoint; the claim is the
              time until its first batch is done. The peak memory of its processes is reported too
    batches   what a micro-batch costs that has only 20 changes, with 1,000 filters and with 1,000
              subscriptions of each of seven shapes: the median of 40, after 20 to warm up

    python bench/spark_show.py restart
    python bench/spark_show.py restart --rows 100000 --no-bar
    python bench/spark_show.py restart --rows 300000 --wide 9000       2.7 GB of rows; the bar is 90 s then
    python bench/spark_show.py batches --hosts auto

Before a time is printed, the contents of a sample, accumulated from the deltas (of both processes), are
compared with the answers of an engine in this process. The other claims about Spark have their own commands:
`tocsin bench spark`, `tocsin chaos` (`--kills 0 --files 101 --updates 100` for the versions of batches).
Standard output has one JSON object per claim, standard error a readable line; the exit code is 1 if an
answer is wrong or a claim does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from base64 import b85encode
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as dataset
from claims import machine, say

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.lab.bench.spark_scale import SHAPES, ScaleSetting, workload
from tocsin.model.json_rows import row_json
from tocsin.spark import Layout, Pipeline, session
from tocsin.spark.versions.blocks import SubscriptionBlock, template_block

BAR, WIDE_BAR = 60.0, 90.0  # seconds
LAYOUT = Layout(tables=2, joins=2, subscriptions=2)
EACH = 10_000  # subscriptions of each shape
SAMPLE = 50  # compared contents per shape
FILE = 100_000  # changes in a file, and so in a batch
LATER = 1000  # changes after the restart
SMALL, TIMED, WARM = 20, 40, 20  # changes in a small batch; batches that are timed, and those before them
SMALL_BARS = {"filters": 0.6, "every shape": 1.0}  # seconds
COLUMNS = "table string, op string, row string, seq bigint"
DDL = """
CREATE TABLE r (id BIGINT, k BIGINT, a DOUBLE, note STRING, PRIMARY KEY (id));
CREATE TABLE s (id BIGINT, k BIGINT, c DOUBLE, note STRING, PRIMARY KEY (id))
"""
TEXTS = {
    "filter": "SELECT id, a FROM r WHERE a BETWEEN :low AND :high",
    "join": "SELECT r.id AS i, s.id AS j FROM r JOIN s USING (k) "
    "WHERE a BETWEEN :low AND :high AND c BETWEEN :least AND :most",
    "topk": "SELECT id, c FROM s WHERE k BETWEEN :low AND :high ORDER BY c LIMIT 10",
}


class Rows(NamedTuple):
    """How many rows there are, and the length of a text in each that nobody selects."""

    count: int
    wide: int


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


def write(folder: Path, number: int, op: str, tables: Any, ids: Any, first: int, setting: Rows) -> None:
    """One file of changes, in order of seq from `first` on."""
    rows, wide = setting
    draw = np.random.default_rng(number)
    keys, values = draw.integers(rows // 2, size=len(ids)).tolist(), draw.random(len(ids)).tolist()
    lines = []
    for n, (table, i, k, v) in enumerate(zip(tables, ids, keys, values, strict=True)):
        note = {"note": b85encode(draw.bytes(wide * 4 // 5)).decode()} if wide else {}
        row = json.dumps({"id": i, "k": k, "ac"[table]: v, **note})
        lines.append(json.dumps({"table": "rs"[table], "op": op, "row": row, "seq": first + n}))
    aside = folder.with_name(f"{number:05}.json")
    aside.write_text("\n".join(lines))
    os.utime(aside, (1_000_000_000 + number,) * 2)  # Spark reads files in order of their times
    aside.rename(folder / aside.name)


def load(folder: Path, setting: Rows) -> None:
    """Files that insert all rows, half of them into each table."""
    folder.mkdir()
    half, size = setting.count // 2, FILE // (1 + setting.wide // 1000)
    for number, start in enumerate(range(0, setting.count, size)):
        chosen = range(start, min(start + size, setting.count))
        tables, ids = [n // half for n in chosen], [n % half for n in chosen]
        write(folder, number, "insert", tables, ids, start + 1, setting)


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


def restart(setting: Rows, bar: bool) -> bool:
    rows, most = setting.count, WIDE_BAR if setting.wide else BAR
    with tempfile.TemporaryDirectory(prefix="tocsin-restart-") as name:
        root = Path(name)
        say(f"writing {rows:,} rows")
        load(root / "in", setting)
        subscribed = blocks(rows)
        say("publishing the subscriptions")
        Pipeline(
            session("restart"), ddl=DDL, subscriptions=subscribed, state_dir=root / "state", layout=LAYOUT
        ).spark.stop()
        files = len(os.listdir(root / "in"))
        say("the first process loads all rows")
        loading, first = run(root, files)
        ids = np.random.default_rng(0).integers(rows // 2, size=LATER).tolist()
        write(root / "in", files, "update", [n % 2 for n in range(LATER)], ids, rows + 1, setting)
        say("it was killed; the second resumes")
        again, second = run(root, files + 1)
        state = sum(file.stat().st_size for file in (root / "state").rglob("*") if file.is_file())
        say("comparing")
        compare(root, subscribed)
    met = again < most or not bar
    measured = {
        "claim": "restart",
        "rows": rows,
        "wide": setting.wide,
        "subscriptions": 3 * EACH,
        "restart_s": round(again, 1),
        "load_s": round(loading, 1),
        "state_mb": state >> 20,
        "peak_mb_loading": first,
        "peak_mb_restarted": second,
        "bar_s": most,
        "met": again < most,
        "machine": machine(),
    }
    print(json.dumps(measured), flush=True)
    say(f"restart with {rows:,} rows: {again:.1f} s to the end of the first batch (bar {most:.0f})")
    return met


def batches(bar: bool, hosts: int | str | None) -> bool:
    """Small batches, one after the other."""
    met = True
    for name, shapes in (("filters", ["filter"]), ("every shape", list(SHAPES))):
        with tempfile.TemporaryDirectory(prefix="tocsin-batches-") as folder:
            seconds = small_batches(Path(folder), shapes, hosts)
        median, most = float(np.median(seconds)), SMALL_BARS[name]
        measured = {
            "claim": f"batches, {name}",
            "hosts": hosts,
            "changes": SMALL,
            "median_s": round(median, 3),
            "p90_s": round(float(np.percentile(seconds, 90)), 3),
            "bar_s": most,
            "met": median <= most,
            "machine": machine(),
        }
        print(json.dumps(measured), flush=True)
        say(f"{SMALL} changes, {name}: {median:.2f} s (bar {most})")
        met &= median <= most
    return met or not bar


def small_batches(root: Path, shapes: list[str], hosts: int | str | None) -> list[float]:
    """The seconds of the timed batches."""
    setting = ScaleSetting(subscriptions=1000, changes=SMALL * (TIMED + WARM), batch=SMALL)
    subscribed, works = [], {}
    for n, shape in enumerate(shapes):
        work = workload(setting, shape)
        works[work.ddl] = work.batches
        table = work.subscriptions.table.drop_columns(["id", "subscriber"])
        subscribed.append(
            template_block(SHAPES[shape], table.append_column("id", pa.array(np.arange(1000) + 1000 * n)))
        )
    (root / "in").mkdir()
    seq = 0
    for number, parts in enumerate(zip(*works.values(), strict=True)):
        changes = [one for part in parts for one in (part[: SMALL // len(parts)] if number else part)]
        lines = []
        for table, op, row in changes:
            seq += 1
            lines.append(json.dumps({"table": table, "op": op, "row": json.dumps(row), "seq": seq}))
        file = root / "in" / f"{number:05}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (1_000_000_000 + number,) * 2)
    ddl = ";".join(works)
    spark = session("batches", log=root / "spark.log")
    try:
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", TIMED + WARM + 10)
        pipeline = Pipeline(spark, ddl=ddl, subscriptions=subscribed, state_dir=root / "state", layout=LAYOUT)
        changes = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(root / "in"))
        out = f"parquet:{root / 'out'}"
        query = pipeline.start(changes, sink=out, hosts=hosts, trigger={"availableNow": True})
        query.awaitTermination()
        found = [
            one["durationMs"]["triggerExecution"] / 1000
            for one in query.recentProgress
            if one["numInputRows"]
        ]
    finally:
        spark.stop()
    compare(root, subscribed, ddl)
    return found[-TIMED:]


def compare(root: Path, subscribed: list[SubscriptionBlock], ddl: str = DDL) -> None:
    """Compare the contents of a sample, accumulated from the deltas, with an engine."""
    engine = Engine()
    engine.execute(ddl)
    for file in sorted((root / "in").glob("*.json")):
        by_table: dict[str, list[dict[str, Any]]] = {}
        for line in file.read_text().splitlines():
            change = json.loads(line)
            row = json.loads(change["row"]) | {"_op": change["op"]}
            row.pop("note", None)
            by_table.setdefault(change["table"], []).append(row)
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
    shown.add_argument("--wide", type=int, default=0, help="length of a text in each row")
    shown.add_argument("--no-bar", action="store_true", help="measure only")
    small = which.add_parser("batches", help="micro-batches of 20 changes")
    small.add_argument("--hosts", type=lambda text: text if text == "auto" else int(text))
    small.add_argument("--no-bar", action="store_true", help="measure only")
    hidden = which.add_parser("drive")
    hidden.add_argument("root", type=Path)
    hidden.add_argument("--until", type=int, required=True)
    given = parser.parse_args()
    if given.what == "drive":
        drive(given.root, given.until)
        return 0
    try:
        bar = not given.no_bar
        large = given.what == "restart"
        met = restart(Rows(given.rows, given.wide), bar) if large else batches(bar, given.hosts)
        return 0 if met else 1
    except TocsinError as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
