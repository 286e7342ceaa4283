"""The times of a demo: start-up, and the steady state after it.

Start-up is all that happens once: Spark and its processes start, subscriptions are registered, kernels are
loaded, and the first micro-batch fills the tables. Rates and latencies are those of the micro-batches after
it. The pipeline reads the next micro-batch when one is done, so the rate is the highest it can keep up with.

>>> batches = [BatchProgress(0, 500, 8.0), BatchProgress(1, 500, 0.5), BatchProgress(2, 500, 0.75)]
>>> times = DemoTimes.of(batches, {0: 9_000, 1: 400, 2: 600}, spark=4.0, first=9.5, subscriptions=2000)
>>> print(*times.lines(), sep="\\n")
start-up: 13.5 s (Spark 4.0 s, first micro-batch 9.5 s: registers 2,000 subscriptions)
steady state: 1,000 changes in 2 micro-batches of 500, 1.2 s
  800 changes/s, 800 deltas/s
  1,600,000 subscriptions x changes/s
  latency at 800 changes/s: p50 0.50 s, p99 0.75 s per micro-batch
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tocsin.commands.progress import BatchProgress, percentile

__all__ = ["DemoTimes"]


@dataclass(frozen=True)
class DemoTimes:
    """The times of one run, in seconds; rates and latencies are None unless two micro-batches ran."""

    subscriptions: int
    spark_start: float
    first_batch: float | None  # until it is delivered, from the start of the query
    batches: int  # after the first
    changes: int  # of these
    deltas: int
    seconds: float
    changes_per_second: float | None
    deltas_per_second: float | None
    subscription_changes_per_second: float | None
    latency_p50: float | None
    latency_p99: float | None

    @classmethod
    def of(
        cls,
        batches: Sequence[BatchProgress],
        deltas: Mapping[int, int],
        *,
        spark: float,
        first: float | None,
        subscriptions: int,
    ) -> DemoTimes:
        """From the batches of a run and the number of deltas of each."""
        later = [batch for batch in batches[1:] if batch.rows]
        changes, seconds = sum(batch.rows for batch in later), sum(batch.seconds for batch in later)
        emitted = sum(deltas.get(batch.number, 0) for batch in later)
        rate = round(changes / seconds, 1) if seconds else None
        latencies = [batch.seconds for batch in later]
        return cls(
            subscriptions=subscriptions,
            spark_start=round(spark, 3),
            first_batch=None if first is None else round(first, 3),
            batches=len(later),
            changes=changes,
            deltas=emitted,
            seconds=round(seconds, 3),
            changes_per_second=rate,
            deltas_per_second=round(emitted / seconds, 1) if seconds else None,
            subscription_changes_per_second=None if rate is None else round(rate * subscriptions, 1),
            latency_p50=percentile(latencies, 50),
            latency_p99=percentile(latencies, 99),
        )

    def lines(self) -> Iterator[str]:
        """The printed times."""
        if self.first_batch is None:
            return
        whole = self.spark_start + self.first_batch
        yield (
            f"start-up: {whole:.1f} s (Spark {self.spark_start:.1f} s, first micro-batch "
            f"{self.first_batch:.1f} s: registers {self.subscriptions:,} subscriptions)"
        )
        if self.changes_per_second is None:
            return
        size = round(self.changes / self.batches)
        yield (
            f"steady state: {self.changes:,} changes in {self.batches} micro-batches of {size:,}, "
            f"{self.seconds:.1f} s"
        )
        yield f"  {self.changes_per_second:,.0f} changes/s, {self.deltas_per_second:,.0f} deltas/s"
        yield f"  {self.subscription_changes_per_second:,.0f} subscriptions x changes/s"
        yield (
            f"  latency at {self.changes_per_second:,.0f} changes/s: p50 {self.latency_p50:.2f} s, "
            f"p99 {self.latency_p99:.2f} s per micro-batch"
        )
