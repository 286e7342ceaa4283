"""Watching a streaming query: its batches as they end, and a line that lives while it runs.

On a terminal the line is a bar with rates, on stderr, and goes away at the end; elsewhere (a log, a
pipe) a plain line is printed now and then. What is watched is a query of Spark's, but nothing of
Spark is needed here.

>>> percentile([0.4, 0.1, 0.2, 0.3], 50), percentile([0.4, 0.1], 99), percentile([], 50)
(0.2, 0.4, None)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["Batch", "Display", "percentile", "watch"]

PLAIN_EVERY = 10.0  # seconds between lines where there is no terminal


class Batch(NamedTuple):
    """One finished micro-batch: its number, the rows it took in, the seconds it took."""

    number: int
    rows: int
    seconds: float


def watch(query: Any, every: float = 0.25) -> Iterator[list[Batch]]:
    """The batches that ended since the last look, again and again until the query ends.

    A query that fails raises its error here. Stop it from outside, or by leaving the loop.
    """
    seen = -1
    running = True
    while running:
        running = not query.awaitTermination(every)
        fresh = []
        for told in query.recentProgress:
            if told["batchId"] > seen and "addBatch" in told["durationMs"]:
                took = told["durationMs"]["triggerExecution"] / 1000
                rows = sum(source["numInputRows"] for source in told["sources"] if not _is_log(source))
                fresh.append(Batch(told["batchId"], rows, took))
        seen = max([seen, *(batch.number for batch in fresh)])
        yield fresh


def _is_log(source: Any) -> bool:
    """The pipeline's own second source, the log of subscription versions, is not counted."""
    return str(source["description"]).endswith("/subscriptions/log]")


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that `percent` of all are not above; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(percent * 100) // 10000) - 1)]


class Display:
    """The line. `total` is what `done` counts up to, if that is known."""

    def __init__(self, what: str, total: int | None = None, unit: str = "changes") -> None:
        self.what, self.total, self.unit = what, total, unit
        console = Console(stderr=True)
        self._bar = None
        if console.is_terminal:
            columns = [
                SpinnerColumn() if total is None else BarColumn(bar_width=24),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
            ]
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task(what, total=total)
        self._started = self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, *facts: str) -> None:
        """Say how far it is, and what else is worth knowing."""
        now = time.monotonic()
        count = f"{done:,}" if self.total is None else f"{done:,} of {self.total:,}"
        rate = f"{done / max(now - self._started, 0.001):,.0f} {self.unit}/s"
        text = ", ".join([f"{self.what}: {count} {self.unit}", rate, *facts])
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=text)
        elif now - self._last_line >= PLAIN_EVERY:
            self._last_line = now
            print(text, file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A step that has no count."""
        if self._bar is not None:
            self._bar.update(self._task, description=text)
        else:
            print(text, file=sys.stderr, flush=True)
