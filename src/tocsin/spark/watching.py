"""What a running query tells of itself: read from Spark's progress, for people, logs and Prometheus.

Spark reports each batch (`query.recentProgress`). What the pipeline counts itself, by `observe`, is part of
the report; `Batch.of` reads both. Nothing here needs the query to be started in this process, or Spark to
be imported.

    watching.exporter(query, 9090)      http://host:9090/metrics until the query ends
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

__all__ = ["Backlog", "Batch", "Exporter", "exporter", "fresh_batches", "log_line"]

IN, OUT = "tocsin_in", "tocsin_out"  # what `deliver.py` observes
LAGS = ("maxOffsetsBehindLatest", "numFilesOutstanding")  # of a source that says so


@dataclass(frozen=True)
class Batch:
    """One finished micro-batch."""

    number: int
    rows: int  # changes taken in
    seconds: float
    deltas: int = 0
    dead_letters: int = 0
    last_seq: int | None = None
    version: int | None = None  # of the subscriptions
    lag: int | None = None  # offsets or files that are there and not taken in yet, where Spark says
    state_rows: int = 0
    state_bytes: int = 0  # in memory
    state_disk: int = 0  # bytes in files of the state store
    stages: Mapping[str, float] | None = None  # seconds of each, by Spark's names

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Batch:
        """From a progress report of Spark's.

        >>> Batch.of({"batchId": 3, "durationMs": {"addBatch": 900, "triggerExecution": 1500}, "sources": [],
        ...           "observedMetrics": {"tocsin_in": {"changes": 7}, "tocsin_out": {"deltas": 2}}}).rows
        7
        """
        seen = told.get("observedMetrics") or {}
        went_in, out = _facts(seen.get(IN)), _facts(seen.get(OUT))
        sources = [source for source in told["sources"] if not _is_log(source)]
        rows = went_in.get("changes")
        states = told.get("stateOperators") or []
        times = {name: ms / 1000 for name, ms in told["durationMs"].items()}
        return cls(
            number=told["batchId"],
            rows=sum(source["numInputRows"] for source in sources) if rows is None else rows,
            seconds=times.pop("triggerExecution", 0.0),
            deltas=out.get("deltas") or 0,
            dead_letters=out.get("dead_letters") or 0,
            last_seq=out.get("last_seq"),
            version=out.get("version"),
            lag=_lag(sources),
            state_rows=sum(state.get("numRowsTotal", 0) for state in states),
            state_bytes=sum(state.get("memoryUsedBytes", 0) for state in states),
            state_disk=sum(
                _facts(state.get("customMetrics")).get("rocksdbSstFileSize", 0) for state in states
            ),
            stages=times,
        )

    @property
    def slowest(self) -> tuple[str, float] | None:
        """The stage that took longest, and its seconds."""
        return max(self.stages.items(), key=lambda item: item[1]) if self.stages else None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _facts(row: Any) -> Mapping[str, Any]:
    """A row of Spark's, or what JSON made of it, by name."""
    if row is None:
        return {}
    return row if isinstance(row, Mapping) else row.asDict()


def _is_log(source: Any) -> bool:
    """The pipeline's own second source, the log of subscription versions, is not counted."""
    return str(source["description"]).endswith("/subscriptions/log]")


def _lag(sources: list[Any]) -> int | None:
    found = []
    for source in sources:
        metrics = _facts(source.get("metrics"))
        found += [int(float(metrics[name])) for name in LAGS if metrics.get(name) not in (None, "")]
    return sum(found) if found else None


class Backlog:
    """How many files of a folder a query has not taken yet. Spark does not say, but its checkpoint does."""

    def __init__(self, folder: Path, checkpoint: Path, source: int = 0) -> None:
        self._folder, self._log = folder, checkpoint / "sources" / str(source)
        self._read: set[str] = set()  # files of the log
        self._taken: set[str] = set()  # paths

    def count(self) -> int | None:
        """Files that are there and not taken; None where there is no such checkpoint to be read."""
        try:
            for name in {*os.listdir(self._log)} - self._read:
                if name.removesuffix(".compact").isdigit():
                    lines = (self._log / name).read_text().splitlines()[1:]  # after the log's version
                    self._taken.update(unquote(json.loads(line)["path"]).rpartition("/")[2] for line in lines)
                    self._read.add(name)
            there = os.listdir(self._folder)
        except OSError:  # a log may be compacted, and an old one removed, at this moment
            return None
        return sum(name[0] not in "._" and name not in self._taken for name in there)

    def of(self, batch: Batch) -> Batch:
        """The batch with its lag, if the source did not tell it."""
        return batch if batch.lag is not None else replace(batch, lag=self.count())


def fresh_batches(query: Any, seen: int) -> list[Batch]:
    """The batches above number `seen` that the query reports."""
    reports = [told for told in query.recentProgress if told["batchId"] > seen]
    return [Batch.of(told) for told in reports if "addBatch" in told["durationMs"]]


def log_line(batch: Batch, name: str | None = None, now: Callable[[], datetime] | None = None) -> str:
    """A batch as one line of JSON.

    >>> log_line(Batch(3, 10, 0.5), "stocks", lambda: datetime(2013, 1, 31, tzinfo=UTC))[:80]
    '{"time": "2013-01-31T00:00:00+00:00", "event": "batch", "pipeline": "stocks", "n'
    """
    moment = now() if now is not None else datetime.now(UTC)
    slowest = batch.slowest
    told = {
        "time": moment.isoformat(),
        "event": "batch",
        "pipeline": name,
        **batch.as_dict(),
        "slowest_stage": slowest[0] if slowest else None,
    }
    return json.dumps(told)


class Exporter:
    """Counts and gauges of a pipeline for Prometheus, on a port of their own. Counts begin with 0 here."""

    def __init__(self, port: int, host: str = "0.0.0.0", name: str = "") -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
        except ModuleNotFoundError as error:
            raise ImportError(
                "metrics need prometheus-client; install it: pip install 'tocsin[spark]'"
            ) from error
        registry = self.registry = CollectorRegistry()
        labels = {"pipeline": name}

        def made(kind: Any, metric: str, text: str, **more: Any) -> Any:
            names = ["pipeline", *more.pop("labels", ())]
            family = kind(f"tocsin_{metric}", text, names, registry=registry, **more)
            return family if len(names) > 1 else family.labels(**labels)

        self._name = name
        self._counts = {
            "batches": made(Counter, "batches", "Micro-batches finished"),
            "rows": made(Counter, "changes", "Changes taken in"),
            "deltas": made(Counter, "deltas", "Deltas told, before those of two shards cancel"),
            "dead_letters": made(Counter, "dead_letters", "Changes refused"),
        }
        self._gauges = {
            "last_seq": made(Gauge, "last_seq", "The last seq applied"),
            "version": made(Gauge, "version", "Version of the subscriptions"),
            "lag": made(Gauge, "lag", "Offsets or files behind the source, where Spark says"),
            "state_rows": made(Gauge, "state_rows", "Rows in the state store"),
            "state_bytes": made(Gauge, "state_memory_bytes", "Memory of the state store"),
            "state_disk": made(Gauge, "state_disk_bytes", "Files of the state store"),
        }
        self._rates = {
            "rows": made(Gauge, "changes_per_second", "Changes per second of the last batch"),
            "deltas": made(Gauge, "deltas_per_second", "Deltas per second of the last batch"),
        }
        self._seconds = made(
            Histogram, "batch_seconds", "Time of a batch", buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300)
        )
        self._stages = made(Gauge, "stage_seconds", "Time of a stage in the last batch", labels=("stage",))
        self._running = made(Gauge, "running", "1 while the query runs")
        self._running.set(1)
        self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        self.port: int = self._server.server_port

    def take(self, batch: Batch) -> None:
        """Add a finished batch."""
        for name, counter in self._counts.items():
            counter.inc(1 if name == "batches" else getattr(batch, name))
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
        """Stop answering."""
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
    for batch in _until_the_end(query, every):
        export.take(batch)
    with suppress(OSError):
        export.close()


def _until_the_end(query: Any, every: float) -> Iterator[Batch]:
    seen, running = -1, True
    while running:
        running = query.isActive  # asked first: what ended before is looked at once more
        for batch in fresh_batches(query, seen):
            seen = batch.number
            yield batch
        if running:
            time.sleep(every)
