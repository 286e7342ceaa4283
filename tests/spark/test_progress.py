"""What is read of Spark's reports, the lines of a log, and the metrics that Prometheus would fetch."""

import json
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from urllib.request import urlopen

from tocsin.spark.progress import Backlog, BatchProgress, Exporter, exporter, log_line

REPORT = {
    "batchId": 4,
    "durationMs": {"addBatch": 900, "walCommit": 40, "triggerExecution": 1500},
    "sources": [
        {
            "description": "KafkaV2[Subscribe[changes]]",
            "numInputRows": 10,
            "metrics": {"maxOffsetsBehindLatest": "12", "avgOffsetsBehindLatest": "3.5"},
        },
        {"description": "FileStreamSource[file:/x/state/subscriptions/log]", "numInputRows": 1},
    ],
    "stateOperators": [
        {"numRowsTotal": 4, "memoryUsedBytes": 1000, "customMetrics": {"rocksdbSstFileSize": 70}},
        {"numRowsTotal": 5, "memoryUsedBytes": 500},
    ],
    "observedMetrics": {
        "tocsin_in": {"changes": 9, "highest_seq": 88},
        "tocsin_out": {"deltas": 30, "dead_letters": 2, "last_seq": 88, "version": 3},
    },
}


def test_a_report_is_read():
    batch = BatchProgress.of(REPORT)
    assert batch == BatchProgress(
        4,
        9,
        1.5,
        deltas=30,
        dead_letters=2,
        last_seq=88,
        version=3,
        lag=12,
        state_rows=9,
        state_bytes=1500,
        state_disk=70,
        stages={"addBatch": 0.9, "walCommit": 0.04},
    )
    assert batch.slowest == ("addBatch", 0.9)


def test_a_report_without_our_counts_is_read_too():
    bare = {**REPORT, "observedMetrics": {}, "stateOperators": [], "sources": REPORT["sources"][1:]}
    assert BatchProgress.of(bare) == BatchProgress(4, 0, 1.5, stages={"addBatch": 0.9, "walCommit": 0.04})


def test_a_line_of_the_log_is_json():
    line = log_line(BatchProgress.of(REPORT), "stocks", lambda: datetime(2013, 1, 31, tzinfo=UTC))
    log = json.loads(line)
    assert "\n" not in line
    assert (log["time"], log["event"], log["pipeline"]) == ("2013-01-31T00:00:00+00:00", "batch", "stocks")
    assert (log["number"], log["rows"], log["deltas"], log["slowest_stage"]) == (4, 9, 30, "addBatch")


def metrics(port):
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {
        key: float(value)
        for key, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


def test_counters_add_up_and_gauges_show_the_last():
    export = Exporter(0, "127.0.0.1", "stocks")
    export.add(BatchProgress.of(REPORT))
    export.add(BatchProgress.of({**REPORT, "batchId": 5}))
    seen = metrics(export.port)
    export.close()
    label = '{pipeline="stocks"}'
    expected = {"batches_total": 2, "changes_total": 18, "deltas_total": 60, "dead_letters_total": 4}
    expected |= {"last_seq": 88, "version": 3, "lag": 12, "state_rows": 9, "state_memory_bytes": 1500}
    expected |= {"changes_per_second": 6, "deltas_per_second": 20, "batch_seconds_sum": 3, "running": 1}
    assert {name: seen[f"tocsin_{name}{label}"] for name in expected} == expected
    assert seen['tocsin_stage_seconds{pipeline="stocks",stage="addBatch"}'] == 0.9


def test_an_exporter_follows_a_query_to_its_end():
    query = SimpleNamespace(recentProgress=[REPORT], isActive=True)
    export = exporter(query, 0, "127.0.0.1", every=0.01)
    deadline = time.monotonic() + 10
    while not metrics(export.port).get('tocsin_batches_total{pipeline=""}') and time.monotonic() < deadline:
        time.sleep(0.01)
    assert metrics(export.port)['tocsin_changes_total{pipeline=""}'] == 9
    query.recentProgress = [*query.recentProgress, {**REPORT, "batchId": 5}]
    query.isActive = False
    export._thread.join(10)
    assert not export._thread.is_alive()
    assert export.registry.get_sample_value("tocsin_changes_total", {"pipeline": ""}) == 18


def test_files_that_wait_are_counted_by_the_checkpoint(tmp_path):
    folder, log = tmp_path / "in", tmp_path / "checkpoint" / "sources" / "0"
    folder.mkdir()
    backlog = Backlog(folder, tmp_path / "checkpoint")
    assert backlog.count() is None, "there is no checkpoint yet"
    log.mkdir(parents=True)
    for name in ("a b.json", "c.json", "d.json", ".hidden", "_SUCCESS"):
        (folder / name).touch()
    (log / "0").write_text('v1\n{"path":"file:///x/a%20b.json","timestamp":1,"batchId":0}\n')
    (log / ".1.tmp").write_text("half")
    assert backlog.count() == 2
    (log / "9.compact").write_text('v1\n{"path":"file:///x/c.json","timestamp":1,"batchId":9}')
    assert backlog.of(BatchProgress(1, 10, 0.5)).lag == 1
    assert backlog.of(BatchProgress(1, 10, 0.5, lag=7)).lag == 7
