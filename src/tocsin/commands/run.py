"""`tocsin run`: a pipeline from a config, watched until it ends or is stopped.

    config ─► Spark session ─► changes ─► Pipeline ─► sink
                                              └─► a line that lives, a summary at the end

Ctrl-C stops the query between two batches or in the middle of one: what was not finished is done
again at the next start, from the checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from tocsin.commands.config import Config, Sink, Source
from tocsin.commands.validate import refuse_bad
from tocsin.errors import TocsinError
from tocsin.progress import Batch, Display, Interrupted, gist, percentile, stop_quietly, watch

__all__ = ["Ran", "run_pipeline"]

COLUMNS = "table string, op string, row string, seq bigint"
CORRUPT = "_corrupt_record"


@dataclass(frozen=True)
class Ran:
    """What a run did."""

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
            lines.append(f"{self.dead_letters:,} changes were refused: see {self.dead_letters_path}")
        lines.append(f"deltas: {self.sink}; state: {self.state}")
        if self.stopped:
            lines.append("stopped; the same command goes on from here")
        return "\n".join(lines)


def run_pipeline(config: Config, console: Callable[[str], None] = print) -> Ran:
    """Run to the end of the input, to the given number of batches, or until Ctrl-C.

    Texts and folders are checked before Spark is started. Changes that are refused are no error.
    """
    refuse_bad(config.ddl, config.subscriptions)
    if config.source.path is not None and not config.source.path.is_dir():
        raise TocsinError(
            f"the source {config.source.path} is not a folder", hint="make it, or correct its path"
        )
    with _told():
        config.state.mkdir(parents=True, exist_ok=True)
        return _run(config, console)


@contextmanager
def _told() -> Iterator[None]:
    """What the system or Spark has to say, as an error of ours."""
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


def _run(config: Config, console: Callable[[str], None]) -> Ran:
    from tocsin.spark import Pipeline, session

    with Display(config.name or "run") as display:
        display.say("starting Spark")
        spark = session(f"tocsin {config.name or ''}".strip())
        batches: list[Batch] = []
        counts = _Counts(config, console)
        try:
            pipeline = Pipeline(
                spark, ddl=config.ddl, subscriptions=config.subscriptions, state_dir=config.state
            )
            query = pipeline.start(
                _changes(spark, config.source),
                sink=counts.sink,
                checkpoint=config.checkpoint,
                dead_letters=str(counts.dead),
                trigger=dict(config.trigger),
            )
            began = time.monotonic()
            display.say("the first batch takes the subscriptions in")
            with Interrupted() as interrupted:
                try:
                    for fresh in watch(query, interrupted):
                        batches += fresh
                        for batch in fresh:
                            counts.count(batch.number)
                        _show(display, batches, counts.deltas)
                        if config.batches is not None and len(batches) >= config.batches:
                            break
                finally:
                    stop_quietly(query)
            seconds = time.monotonic() - began
        finally:
            spark.stop()
    return _ran(config, batches, counts, seconds, bool(interrupted))


def _show(display: Display, batches: list[Batch], deltas: int) -> None:
    if batches:
        display.show(
            sum(b.rows for b in batches), f"{deltas:,} deltas", f"last batch {batches[-1].seconds:.1f} s"
        )


def _ran(config: Config, batches: list[Batch], counts: _Counts, seconds: float, stopped: bool) -> Ran:
    changes, latencies = sum(batch.rows for batch in batches), [batch.seconds for batch in batches]
    return Ran(
        name=config.name,
        subscriptions=len(config.subscriptions),
        batches=len(batches),
        changes=changes,
        deltas=counts.deltas,
        dead_letters=counts.refused,
        seconds=round(seconds, 3),
        changes_per_second=round(changes / seconds, 1),
        latency_p50=percentile(latencies, 50),
        latency_p99=percentile(latencies, 99),
        stopped=stopped,
        state=str(config.state),
        sink=str(config.sink),
        dead_letters_path=str(counts.dead.path or counts.dead),
    )


def _changes(spark: Any, source: Source) -> Any:
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
        except Exception as error:  # Spark's, of the expression
            raise TocsinError(
                f"row in [source] is no row: {gist(str(error))}",
                hint="write a struct, as named_struct('n', value)",
            ) from error
    reader = spark.readStream.option("maxFilesPerTrigger", source.files_per_batch)
    if source.format == "json":
        # a line that is no JSON has only NULLs: its text is kept as the row, for the dead letter
        reader = reader.schema(f"{COLUMNS}, {CORRUPT} string").option("columnNameOfCorruptRecord", CORRUPT)
        lines = reader.json(str(source.path))
        return lines.selectExpr("table", "op", f"coalesce(row, {CORRUPT}) AS row", "seq")
    there = sorted(Path(str(source.path)).rglob("*.parquet"))
    schema = spark.read.parquet(str(there[0])).schema if there else COLUMNS
    return reader.schema(schema).parquet(str(source.path))


class _Counts:
    """Writes what a sink writes, and counts it by what lies in the folder of the batch."""

    def __init__(self, config: Config, console: Callable[[str], None]) -> None:
        self._to, self._console = config.sink, console
        self.dead = config.dead_letters or Sink("json", config.state / "dead_letters")
        self.deltas = self.refused = 0

    @property
    def sink(self) -> Any:
        return self._print if self._to.path is None else str(self._to)

    def count(self, batch: int) -> None:
        """Add what a finished batch wrote."""
        self.deltas += _rows_in(self._to, batch)
        self.refused += _rows_in(self.dead, batch)

    def _print(self, frame: Any, batch: int) -> None:
        for row in frame.toArrow().to_pylist():
            self.deltas += 1
            who = f" ({row['subscriber']})" if row["subscriber"] else ""
            sign = "+" if row["sign"] > 0 else "-"
            self._console(f"{row['seq']} {row['subscription']}{who} {sign} {row['row']}")


def _rows_in(sink: Sink, batch: int) -> int:
    if sink.path is None:
        return 0
    folder = sink.path / f"batch={batch}"
    if sink.format == "parquet":
        return sum(parquet.read_metadata(file).num_rows for file in folder.glob("*.parquet"))
    return sum(len(file.read_bytes().splitlines()) for file in folder.glob("*.json"))
