"""What Tocsin does on Spark, end to end, beside the engine in this process and plain Spark SQL.

    filters   events of Parquet files, matched and written as Parquet (`spark_filters.py`)
    join      changes of two tables through a pipeline with equality joins (`spark_tables.py`)
    topk      updates of moving objects through a pipeline with range top-k (`spark_tables.py`)

Every answer is compared before a time is printed: matches by number and checksum, contents kept from the
pipeline's deltas on a sample of subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from tocsin.errors import UsageError

__all__ = ["KINDS", "Result", "Say", "SparkSetting", "measure_spark", "show_results"]

Say = Callable[[str], None]
KINDS = ("filters", "join", "topk")


@dataclass(frozen=True)
class SparkSetting:
    """How much of what."""

    kind: str = "filters"
    subscriptions: int = 100_000
    changes: int = 200_000
    batch: int = 20_000  # changes in a micro-batch
    seed: int = 0
    workload: str = "sparse"  # of filters
    smallest: int = 2  # predicates per subscription, of sparse filters
    repeat: int = 3  # of filters; the best counts
    sql: int = 100_000  # plain Spark SQL is asked up to so many subscriptions


@dataclass
class Result:
    """One method: its speed, its batches, and where the time went (as shares of it)."""

    method: str
    subscriptions: int
    changes: int
    seconds: float
    deltas: int
    latency_p50: float | None = None
    latency_p99: float | None = None
    shares: dict[str, float] = field(default_factory=dict)
    note: str = ""
    checked: bool = True

    @property
    def changes_per_s(self) -> float:
        return self.changes / self.seconds

    def to_dict(self) -> dict[str, Any]:
        told = asdict(self)
        return {**told, "changes_per_s": self.changes_per_s, "deltas_per_s": self.deltas / self.seconds}


def measure_spark(setting: SparkSetting, say: Say = lambda _: None) -> list[Result]:
    """Tocsin on Spark, the engine, and plain Spark SQL on one workload; raises if answers differ."""
    if setting.kind not in KINDS:
        raise UsageError(f"there is no kind {setting.kind!r}", hint=f"one of {', '.join(KINDS)}")
    if setting.kind == "filters":
        from tocsin.lab.bench.spark_filters import measure_filters

        return measure_filters(setting, say)
    from tocsin.lab.bench.spark_tables import measure_tables

    return measure_tables(setting, say)


def show_results(results: list[Result], console: Console) -> None:
    """A table for people."""
    table = Table("method", "subscriptions", "changes/s", "deltas/s", "batch p50", "p99", "time goes to", "")
    for result in results:
        latencies = [
            "" if value is None else f"{value:.2f} s" for value in (result.latency_p50, result.latency_p99)
        ]
        shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in result.shares.items())
        table.add_row(
            result.method,
            f"{result.subscriptions:,}",
            f"{result.changes_per_s:,.0f}",
            f"{result.deltas / result.seconds:,.0f}",
            *latencies,
            shares,
            result.note,
        )
    console.print(table)
