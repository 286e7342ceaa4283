"""Progress of a running query: read from Spark's reports, for people, logs and Prometheus.

Spark reports each batch (`query.recentProgress`), including what the pipeline counts itself with `observe`.
`BatchProgress.of` reads both. Nothing here needs Spark to be imported, or the query to run in this process.

    progress.exporter(query, 9090)      http://host:9090/metrics until the query ends
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

__all__ = ["Backlog", "BatchProgress", "Exporter", "exporter", "log_line", "new_batches"]

IN, OUT = "tocsin_in", "tocsin_out"  # the names of what `stages/deliver.py` observes
LAGS = ("maxOffsetsBehindLatest", "numFilesOutstanding")  # metrics of sources that report their lag


@dataclass(frozen=True)
class BatchProgress:
    """One finished micro-batch."""

    number: int
    rows: int  # changes read
    seconds: float
    deltas: int = 0
    dead_letters: int = 0
    last_seq: int | None = None
    version: int | None = None  # of the subscriptions
    produced: int | None = None  # pairs of joins of streams; None without such joins
    missed: int | None = None  # ... that a budget has cost
    lag: int | None = None  # offsets or files that are not read yet, where Spark reports them
    state_rows: int = 0
    state_bytes: int = 0  # in memory
    state_disk: int = 0  # bytes in files of the state store
    stages: Mapping[str, float] | None = None  # seconds of each, by Spark's names

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> BatchProgress:
        """From a progress report of Spark.

        >>> times = {"addBatch": 900, "triggerExecution": 1500}
        >>> BatchProgress.of({"batchId": 3, "durationMs": times, "sources": [],
        ...           "observedMetrics": {"tocsin_in": {"changes": 7}, "tocsin_out": {"deltas": 2}}}).rows
        7
        """
        seen = report.get("observedMetrics") or {}
        went_in, out = _facts(seen.get(IN)), _facts(seen.get(OUT))
        sources = [source for source in report["sources"] if not _is_log(source)]
        rows = went_in.get("changes")
        states = report.get("stateOperators") or []
        times = {name: ms / 1000 for name, ms in report["durationMs"].items()}
        return cls(
            number=report["batchId"],
            rows=sum(source["numInputRows"] for source in sources) if rows is None else rows,
            seconds=times.pop("triggerExecution", 0.0),
            deltas=out.get("deltas") or 0,
            dead_letters=out.get("dead_letters") or 0,
            last_seq=out.get("last_seq"),
            version=out.get("version"),
            produced=out.get("produced"),
            missed=out.get("missed"),
            lag=_lag(sources),
            state_rows=sum(state.get("numRowsTotal", 0) for state in states),
            state_bytes=sum(state.get("memoryUsedBytes", 0) for state in states),
            state_disk=sum(
                _facts(state.get("customMetrics")).get("rocksdbSstFileSize", 0) for state in states
            ),
            stages=times,
        )

    @property
    def share(self) -> float | None:
        """The share of the pairs of joins of streams that was produced."""
        if self.produced is None or self.missed is None:
            return None
        pairs = self.produced + self.missed
        return self.produced / pairs if pairs else 1.0

    @property
    def slowest(self) -> tuple[str, float] | None:
        """The stage that took longest, and its seconds."""
        return max(self.stages.items(), key=lambda item: item[1]) if self.stages else None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _facts(row: Any) -> Mapping[str, Any]:
    """The fields of a Spark row, or of its JSON form, by name."""
    if row is None:
        return {}
    return row if isinstance(row, Mapping) else row.asDict()


def _is_log(source: Any) -> bool:
    """Whether a source is the pipeline's own log of subscription versions, which does not count."""
    return str(source["description"]).endswith("/subscriptions/log]")


def _lag(sources: list[Any]) -> int | None:
    found = []
    for source in sources:
        metrics = _facts(source.get("metrics"))
        found += [int(float(metrics[name])) for name in LAGS if metrics.get(name) not in (None, "")]
    return sum(found) if found else None


class Backlog:
    """Counts the files of a folder that a query has not read: Spark's checkpoint shows those it has."""

    def __init__(self, folder: Path, checkpoint: Path, source: int = 0) -> None:
        self._folder, self._log = folder, checkpoint / "sources" / str(source)
        self._logs: set[str] = set()  # files of the checkpoint's log that are read
        self._consumed: set[str] = set()  # names of source files in them

    def count(self) -> int | None:
        """Files that are not read yet; None if the checkpoint cannot be read."""
        try:
            for name in {*os.listdir(self._log)} - self._logs:
                if name.removesuffix(".compact").isdigit():
                    lines = (self._log / name).read_text().splitlines()[1:]  # after the log's version
                    self._consumed.update(
                        unquote(json.loads(line)["path"]).rpartition("/")[2] for line in lines
                    )
                    self._logs.add(name)
            there = os.listdir(self._folder)
        except OSError:  # Spark may be compacting the log and removing old files
            return None
        return sum(name[0] not in "._" and name not in self._consumed for name in there)

    def of(self, batch: BatchProgress) -> BatchProgress:
        """The batch with its lag, if the source did not report it."""
        return batch if batch.lag is not None else replace(batch, lag=self.count())


def new_batches(query: Any, seen: int) -> list[BatchProgress]:
    """The batches above number `seen` that the query reports."""
    reports = [report for report in query.recentProgress if report["batchId"] > seen]
    return [BatchProgress.of(report) for report in reports if "addBatch" in report["durationMs"]]


def log_line(batch: BatchProgress, name: str | None = None, now: Callable[[], datetime] | None = None) -> str:
    """A batch as one line of JSON.

    >>> log_line(BatchProgress(3, 10, 0.5), "stocks", lambda: datetime(2013, 1, 31, tzinfo=UTC))[:80]
    '{"time": "2013-01-31T00:00:00+00:00", "event": "batch", "pipeline": "stocks", "n'
    """
    moment = now() if now is not None else datetime.now(UTC)
    slowest = batch.slowest
    line = {
        "time": moment.isoformat(),
        "event": "batch",
        "pipeline": name,
        **batch.as_dict(),
        "share": batch.share,
        "slowest_stage": slowest[0] if slowest else None,
    }
    return json.dumps(line)


class Exporter:
    """Counters and gauges of a pipeline for Prometheus, on a port of their own. Counters start at 0."""

    def __init__(self, port: int, host: str = "0.0.0.0", name: str = "") -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
        except ModuleNotFoundError as error:
            raise ImportError(
                "metrics need prometheus-client; install it: pip install 'tocsin[spark]'"
            ) from error
        registry = self.registry = CollectorRegistry()
        labels = {"pipeline": name}

        def metric_of(kind: Any, metric: str, text: str, **more: Any) -> Any:
            names = ["pipeline", *more.pop("labels", ())]
            family = kind(f"tocsin_{metric}", text, names, registry=registry, **more)
            return family if len(names) > 1 else family.labels(**labels)

        self._name = name
        self._counts = {
            "batches": metric_of(Counter, "batches", "Micro-batches finished"),
            "rows": metric_of(Counter, "changes", "Changes read"),
            "deltas": metric_of(Counter, "deltas", "Deltas emitted, before those of two shards cancel"),
            "dead_letters": metric_of(Counter, "dead_letters", "Changes rejected"),
            "produced": metric_of(Counter, "pairs_produced", "Pairs of joins of streams"),
            "missed": metric_of(Counter, "pairs_missed", "Pairs that a budget of memory has cost"),
        }
        self._gauges = {
            "last_seq": metric_of(Gauge, "last_seq", "The last seq applied"),
            "version": metric_of(Gauge, "version", "Version of the subscriptions"),
            "lag": metric_of(Gauge, "lag", "Offsets or files behind the source, where Spark reports them"),
            "state_rows": metric_of(Gauge, "state_rows", "Rows in the state store"),
            "state_bytes": metric_of(Gauge, "state_memory_bytes", "Memory of the state store"),
            "state_disk": metric_of(Gauge, "state_disk_bytes", "Files of the state store"),
        }
        self._rates = {
            "rows": metric_of(Gauge, "changes_per_second", "Changes per second of the last batch"),
            "deltas": metric_of(Gauge, "deltas_per_second", "Deltas per second of the last batch"),
        }
        self._seconds = metric_of(
            Histogram, "batch_seconds", "Time of a batch", buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300)
        )
        self._stages = metric_of(
            Gauge, "stage_seconds", "Time of a stage in the last batch", labels=("stage",)
        )
        self._running = metric_of(Gauge, "running", "1 while the query runs")
        self._running.set(1)
        self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        self.port: int = self._server.server_port

    def add(self, batch: BatchProgress) -> None:
        """Add a finished batch."""
        for name, counter in self._counts.items():
            counter.inc(1 if name == "batches" else max(0, getattr(batch, name) or 0))
        for name, gauge in self._gauges.items():
            value = getattr(batch, name)
            if value is not None:
                gauge.set(value)
        for name, gauge in self._rates.items():
            gauge.set(getattr(batch, name) / max(batch.seconds, 0.001))
        self._seconds.observe(batch.seconds)
        for stage, seconds in (batch.stages or {}).items():
            self._stages.labels(pipeline=self._name, stage=stage).set(seconds)

    def close(self) -> None:
        """Stop serving."""
        self._running.set(0)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def exporter(query: Any, port: int, host: str = "0.0.0.0", *, every: float = 1.0, name: str = "") -> Exporter:
    """Export the metrics of a streaming query from a thread, until it ends. `port` 0 takes a free one."""
    export = Exporter(port, host, name)
    threading.Thread(target=_follow, args=(query, export, every), name="tocsin-metrics", daemon=True).start()
    return export


def _follow(query: Any, export: Exporter, every: float) -> None:
    for batch in _batches_until_end(query, every):
        export.add(batch)
    with suppress(OSError):
        export.close()


def _batches_until_end(query: Any, every: float) -> Iterator[BatchProgress]:
    seen, running = -1, True
    while running:
        running = query.isActive  # read first, so that batches that ended before are not missed
        for batch in new_batches(query, seen):
            seen = batch.number
            yield batch
        if running:
            time.sleep(every)
