"""Subscriptions under limits on Spark itself: the same deltas after its processes were killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.spark.test_limited import DDL, START, World
from tests.spark.test_pipeline import LAYOUT, read, run, write
from tests.spark.workload import emitted
from tocsin.engine import Engine, Rooms
from tocsin.limits.groups import RefreshGroups
from tocsin.spark import Pipeline
from tocsin.spark.hosting.client import host_stats
from tocsin.spark.versions.batch import Pins

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SUBSCRIPTIONS = [
    (1, "SELECT COUNT(*) AS n, MAX(ms) AS most FROM hits WHERE page < 4 WITH (window = '4 seconds')"),
    (2, "SELECT h.ms, b.price FROM hits h JOIN buys b ON h.page = b.page WITH (window = '4 seconds')"),
    (3, "SELECT COUNT(*) AS n FROM pages WITH (refresh = 'on demand')"),
    (4, "SELECT h.ms, h.at, b.at AS sold FROM hits h JOIN buys b ON h.page = b.page WITH (memory = 24)"),
    (5, "SELECT page, COUNT(*) AS n FROM hits GROUP BY page HAVING COUNT(*) > 2 WITH (window = '4 seconds')"),
    (
        6,
        "SELECT page FROM pages p WHERE NOT EXISTS (SELECT 1 FROM hits h WHERE h.page = p.page)"
        " WITH (window = '4 seconds')",
    ),
    (7, "SELECT DISTINCT page FROM buys WITH (window = '2 seconds', absent = '1 hour')"),
    (
        8,
        "SELECT h.ms, b.price FROM hits h FOLLOWED BY buys b ON h.page = b.page WITHIN '1 minute'"
        " WHERE h.ms > 20",
    ),
    (9, "SELECT p.page, h.ms FROM pages p LEFT JOIN hits h ON h.page = p.page WITH (window = '3 seconds')"),
]


def test_windows_budgets_and_refreshes_survive_a_kill(spark, tmp_path):
    world = World(tmp_path / "simulated", [], 5)
    batches = [[world._change() for _ in range(30)] for _ in range(4)]
    folder, deltas = tmp_path / "in", tmp_path / "deltas"
    pipeline = Pipeline(
        spark, ddl=DDL, subscriptions=SUBSCRIPTIONS, state_dir=tmp_path / "state", layout=LAYOUT
    )
    for number in range(2):
        write(folder, number, batches[number])
    run(pipeline, folder, sink=f"parquet:{deltas}", hosts=2)
    pipeline.refresh([3])
    for number in range(2, 4):
        write(folder, number, batches[number])
    run(pipeline, folder, sink=f"parquet:{deltas}", hosts=2)
    before = sorted(map(str, read(spark, deltas)))

    assert _kill_hosts(spark)
    last = max(row["batch"] for row in read(spark, deltas))
    for path in (tmp_path / "state/checkpoint/commits").glob(f"*{last}*"):
        path.unlink()  # as if the driver had died before the commit
    shutil.rmtree(deltas / f"batch={last}")
    run(Pipeline(spark, state_dir=tmp_path / "state"), folder, sink=f"parquet:{deltas}", hosts=2)
    assert sorted(map(str, read(spark, deltas))) == before

    expected = _of_an_engine(tmp_path, [change for batch in batches for change in batch])
    found = emitted(read(spark, deltas))
    exact = {key: count for key, count in expected.items() if key[1] != 4}
    assert {key: count for key, count in found.items() if key[1] != 4} == exact
    pairs, all_pairs = (Counter({k: n for k, n in some.items() if k[1] == 4}) for some in (found, expected))
    assert pairs and pairs < all_pairs


def _kill_hosts(spark: Any) -> int:
    """Kill the hosts of this session, and of no other; how many they were."""
    owner, killed = str(spark._jvm.java.lang.ProcessHandle.current().pid()).encode(), 0
    for host in host_stats():
        if owner in Path(f"/proc/{host['pid']}/cmdline").read_bytes().split(b"\0"):
            os.kill(host["pid"], signal.SIGKILL)
            killed += 1
    return killed


def _of_an_engine(folder: Path, changes: list[dict[str, Any]]) -> Counter[Any]:
    """What an engine emits for the same batches at the same times, with enough memory."""
    (query,) = (path.name for path in (folder / "state/pins").iterdir())
    kept = Pins(folder / "state/pins", query)
    pins = [pin for number in range(100) if (pin := kept.get(number)) is not None]
    now, version = START, 0
    engine = Engine(clock=lambda: now, rooms=Rooms(refresh=partial(RefreshGroups, by_batch=True)))
    engine.execute(DDL)
    out: Counter[Any] = Counter()
    for pin, end in zip(pins, [*(pin.seq for pin in pins[1:]), 10**9], strict=True):
        now, steps = pin.time, []
        if not version:
            for id, sql in SUBSCRIPTIONS:
                engine.subscribe(sql.replace("memory = 24", "memory = 100000"), id=id)
            steps.append(engine.contents())
        steps.append(engine.tick())
        tables: dict[str, list[Any]] = {}
        for change in changes:
            if pin.seq < change["seq"] <= end:
                row = {**json.loads(change["row"]), "_op": change["op"], "_seq": change["seq"]}
                tables.setdefault(change["table"], []).append(row)
        steps += [engine.apply_all(tables)] if tables else []
        if pin.version > version > 0:
            last = max((row["_seq"] for row in tables.get("pages", ())), default=pin.start_seq)
            steps.append(engine.refresh(3).at(last))
        version = pin.version
        for step in steps:
            out.update(emitted(step.to_arrow(rows=True).to_pylist()))
    return out
