"""`tocsin run`: run the pipeline of a config until it ends or is stopped.

    config ─► Spark session ─► changes ─► Pipeline ─► sinks
                                              └─► a progress line, a summary at the end;
                                                  JSON log lines, metrics for Prometheus

Ctrl-C stops the query, also within a batch; the next start repeats the unfinished batch from the checkpoint.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from tocsin.commands.config import PipelineConfig
from tocsin.commands.connectors import SinkConfig, SourceConfig
from tocsin.commands.progress import (
    BatchProgress,
    Display,
    Interrupted,
    facts,
    gist,
    percentile,
    stop_quietly,
    watch,
)
from tocsin.commands.validate import reject_bad_subscriptions
from tocsin.errors import TocsinError, UsageError
from tocsin.spark.progress import Backlog, Exporter, log_line

__all__ = ["Monitoring", "RunSummary", "read_monitoring", "run_pipeline"]

COLUMNS = "table string, op string, row string, seq bigint"


@dataclass(frozen=True)
class RunSummary:
    """The result of a run."""

    name: str | None
    subscriptions: int
    batches: int
    changes: int
    deltas: int
    dead_letters: int
    seconds: float
    changes_per_second: float
    latency_p50: float | None
    latency_p99: float | None
    stopped: bool  # by Ctrl-C
    state: str
    sink: str
    dead_letters_path: str  # `console` if they were printed

    def to_dict(self) -> dict[str, Any]:
        return {"ok": True, **asdict(self)}

    def __str__(self) -> str:
        rate = f"{self.changes_per_second:,.0f} changes/s"
        lines = [
            f"{self.changes:,} changes in {self.batches} batches, {self.seconds:.1f} s: {rate}; "
            f"{self.deltas:,} deltas for {self.subscriptions:,} subscriptions"
        ]
        if self.latency_p50 is not None:
            lines.append(f"latency of a batch: p50 {self.latency_p50:.2f} s, p99 {self.latency_p99:.2f} s")
        if self.dead_letters:
            lines.append(f"{self.dead_letters:,} changes were rejected: see {self.dead_letters_path}")
        lines.append(f"deltas: {self.sink}; state: {self.state}")
        if self.stopped:
            lines.append("stopped; the same command resumes from here")
        return "\n".join(lines)


@dataclass(frozen=True)
class Monitoring:
    """Where each batch is reported, besides the progress line."""

    log: TextIO | None = None  # one line of JSON per batch
    metrics: tuple[str, int] | None = None  # host and port for Prometheus


def read_monitoring(log: str | None, log_file: Path | None, metrics: str | None) -> Monitoring:
    """The options of `tocsin run`: `--log json`, `--log-file`, `--metrics [host:]port`."""
    if log not in (None, "json"):
        raise UsageError(f"there is no log {log!r}", hint="--log json")
    host, _, port = (metrics or "").rpartition(":")
    if metrics is not None and not (port.isdigit() and int(port) < 2**16):
        raise UsageError(f"--metrics {metrics} is not a port", hint="--metrics 9090, or 127.0.0.1:9090")
    try:
        file = log_file.open("a", encoding="utf-8") if log_file is not None else None
    except OSError as error:
        raise UsageError(f"{log_file} cannot be written: {error.strerror or error}") from None
    to = file or (sys.stderr if log is not None else None)
    return Monitoring(to, None if metrics is None else (host or "0.0.0.0", int(port)))


def run_pipeline(
    config: PipelineConfig, console: Callable[[str], None] = print, monitoring: Monitoring | None = None
) -> RunSummary:
    """Run to the end of the input, to the given number of batches, or until Ctrl-C.

    Subscriptions and folders are checked before Spark starts. Rejected changes are not an error.
    """
    reject_bad_subscriptions(config.ddl, config.subscriptions)
    if config.source.path is not None and not config.source.path.is_dir():
        raise TocsinError(
            f"the source {config.source.path} is not a folder", hint="create it, or correct its path"
        )
    with _pipeline_errors():
        config.state.mkdir(parents=True, exist_ok=True)
        return _run(config, console, monitoring or Monitoring())


@contextmanager
def _pipeline_errors() -> Iterator[None]:
    """Turn errors of the system and of Spark into a TocsinError."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise TocsinError(
            f"the pipeline failed: {where}{error.strerror or error}", hint="see the paths of the config"
        ) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise TocsinError(f"the pipeline failed: {gist(str(error))}") from error


def _run(config: PipelineConfig, console: Callable[[str], None], monitoring: Monitoring) -> RunSummary:
    from tocsin.spark import Pipeline, session

    with Display(config.name or "run") as display, _reporting(config, monitoring) as report:
        display.say("starting Spark")
        settings: Any = config.spark
        spark = session(f"tocsin {config.name or ''}".strip(), **settings)
        batches: list[BatchProgress] = []
        dead = config.dead_letters or SinkConfig("json", config.state / "dead_letters")
        try:
            pipeline = Pipeline(
                spark,
                ddl=config.ddl,
                subscriptions=config.subscriptions,
                state_dir=config.state,
                log=config.log,
                keep_others=True,
            )
            query = pipeline.start(
                _changes(spark, config.source),
                sink=[_pipeline_sink(sink, console) for sink in config.sinks],
                checkpoint=config.checkpoint,
                dead_letters=_pipeline_sink(dead, console),
                trigger=dict(config.trigger),
                output=config.output,
            )
            backlog = _backlog(config)
            began = time.monotonic()
            display.say("the first batch registers the subscriptions")
            with Interrupted() as interrupted:
                try:
                    for ended in watch(query, interrupted):
                        fresh = [backlog.of(batch) for batch in ended] if backlog is not None else ended
                        batches += fresh
                        for batch in fresh:
                            report(batch)
                        if batches:
                            display.show(sum(b.rows for b in batches), *facts(batches))
                        if config.batches is not None and len(batches) >= config.batches:
                            break
                finally:
                    stop_quietly(query)
            seconds = time.monotonic() - began
        finally:
            spark.stop()
    count = len(pipeline.versions.newest().subscriptions)
    return _summary(config, dead, batches, count, seconds, bool(interrupted))


def _backlog(config: PipelineConfig) -> Backlog | None:
    """A counter of waiting files, if the source is a folder."""
    if config.source.path is None:
        return None
    return Backlog(config.source.path, config.checkpoint or config.state / "checkpoint")


@contextmanager
def _reporting(config: PipelineConfig, monitoring: Monitoring) -> Iterator[Callable[[BatchProgress], None]]:
    """A function that reports a batch to the log and the metrics."""
    export = (
        Exporter(monitoring.metrics[1], monitoring.metrics[0], config.name or "")
        if monitoring.metrics
        else None
    )

    def report(batch: BatchProgress) -> None:
        if monitoring.log is not None:
            print(log_line(batch, config.name), file=monitoring.log, flush=True)
        if export is not None:
            export.add(batch)

    try:
        yield report
    finally:
        if export is not None:
            export.close()


def _summary(
    config: PipelineConfig,
    dead: SinkConfig,
    batches: list[BatchProgress],
    subscriptions: int,
    seconds: float,
    stopped: bool,
) -> RunSummary:
    changes, latencies = sum(batch.rows for batch in batches), [batch.seconds for batch in batches]
    return RunSummary(
        name=config.name,
        subscriptions=subscriptions,
        batches=len(batches),
        changes=changes,
        deltas=sum(batch.deltas for batch in batches),
        dead_letters=sum(batch.dead_letters for batch in batches),
        seconds=round(seconds, 3),
        changes_per_second=round(changes / seconds, 1),
        latency_p50=percentile(latencies, 50),
        latency_p99=percentile(latencies, 99),
        stopped=stopped,
        state=str(config.state),
        sink=", ".join(map(str, config.sinks)),
        dead_letters_path=str(dead.path or dead),
    )


def _pipeline_sink(sink: SinkConfig, console: Callable[[str], None]) -> Any:
    """A sink of the config as an argument of `Pipeline.start`."""
    if sink.format == "console":
        return partial(_print, console=console)
    if sink.format == "kafka":
        from tocsin.spark.sinks.kafka import Kafka

        return Kafka(sink.topic, sink.servers, sink.options)
    if sink.format == "webhook":
        from tocsin.spark.sinks.webhooks import Webhook

        return Webhook(sink.url, **sink.options)
    return str(sink)


def _print(frame: Any, batch: int, console: Callable[[str], None]) -> None:
    for row in frame.toArrow().to_pylist():
        if row.get("data") is not None:
            console(f"{row['seq']} messages: {len(row['data']):,} bytes")
        elif "reason" in row:
            console(f"rejected: {row['seq']} {row['table']} {row['op']} {row['row']}: {row['reason']}")
        else:
            who = f" ({row['subscriber']})" if row["subscriber"] else ""
            sign = "+" if row["sign"] > 0 else "-"
            console(f"{row['seq']} {row['subscription']}{who} {sign} {row['row']}")


def _changes(spark: Any, source: SourceConfig) -> Any:
    """The changes as a streaming DataFrame."""
    if source.format == "rate":
        numbers = (
            spark.readStream.format("rate-micro-batch").option("rowsPerBatch", source.rows_per_batch).load()
        )
        table = source.table.replace("\\", "\\\\").replace("'", "\\'")
        try:
            return numbers.selectExpr(
                f"'{table}' AS table",
                "'insert' AS op",
                f"to_json({source.row}) AS row",
                "value + 1 AS seq",
            )
        except Exception as error:  # Spark cannot evaluate the expression
            raise TocsinError(
                f"row in [source] is not a row: {gist(str(error))}",
                hint="write a struct, as named_struct('n', value)",
            ) from error
    if source.format == "kafka":
        from tocsin.spark.sinks.kafka import changes_from

        most = source.max_offsets_per_trigger
        limit = {} if most is None else {"maxOffsetsPerTrigger": str(most)}
        options = {**limit, **source.options}
        return changes_from(spark, source.servers, source.topic, seq=source.seq, **options)
    reader = spark.readStream.option("maxFilesPerTrigger", source.files_per_batch)
    if source.format == "json":
        from tocsin.spark.sources import CORRUPT, TEXTS

        reader = reader.schema(f"{TEXTS}, {CORRUPT} string").option("columnNameOfCorruptRecord", CORRUPT)
        return reader.json(str(source.path))
    there = sorted(Path(str(source.path)).rglob("*.parquet"))
    schema = spark.read.parquet(str(there[0])).schema if there else COLUMNS
    return reader.schema(schema).parquet(str(source.path))
