"""Watches a streaming query: its batches as they end, and a progress line on stderr.

On a terminal the line is a bar with rates; it appears after a second and disappears at the end. Elsewhere (a
log, a pipe) a plain line is printed every few seconds. The query is Spark's (`spark/progress.py` reads its
reports), but this module works without Spark.

>>> percentile([0.4, 0.1, 0.2, 0.3], 50), percentile([0.4, 0.1], 99), percentile([], 50)
(0.2, 0.4, None)
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from tocsin.compiled import on_compiling
from tocsin.errors import TocsinError
from tocsin.spark.progress import BatchProgress, new_batches

__all__ = ["BatchProgress", "Display", "Interrupted", "facts", "gist", "percentile", "stop_quietly", "watch"]

PLAIN_EVERY = 10.0  # seconds between lines without a terminal
BAR_AFTER = 1.0  # seconds until there is a bar: what is done by then needs none


class Interrupted:
    """Ctrl-C as a flag, so that a query can be stopped in order; a second Ctrl-C raises KeyboardInterrupt.

    Spark's own handler would call the JVM in the middle of another call to it.
    """

    def __init__(self) -> None:
        self._noted = False

    def __bool__(self) -> bool:
        return self._noted

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note) if _in_main_thread() else None
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, *_: object) -> None:
        if self._noted:
            raise KeyboardInterrupt
        self._noted = True


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def stop_quietly(query: Any) -> None:
    """Stop a query without the log messages of the interrupted batch."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        query.stop()
    finally:
        logging.disable(level)


def watch(query: Any, interrupted: Interrupted, every: float = 0.25) -> Iterator[list[BatchProgress]]:
    """Yield the batches that ended since the last time, until the query ends or Ctrl-C.

    If the query fails, its error is raised here. A caller that leaves the loop early must stop the query.
    """
    seen = -1
    running = True
    while running and not interrupted:
        try:
            running = not query.awaitTermination(every)
        except Exception as error:  # Spark's types are not imported here
            raise TocsinError(f"the pipeline failed: {gist(str(error))}") from error
        fresh = new_batches(query, seen)
        seen = max([seen, *(batch.number for batch in fresh)])
        yield fresh


def gist(text: str) -> str:
    """The first line of a long error, and the last that names a Python error.

    >>> gist("[FAILED] the stream\\n  File x\\nValueError: no seq\\n\\tat java.lang.Thread")
    '[FAILED] the stream\\nValueError: no seq'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines[1:] if re.match(r"[\w.]+(Error|Exception|BadRow): ", line)]
    return "\n".join([*lines[:1], *named[-1:]])


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that at least `percent` of all values do not exceed; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(percent * 100) // 10000) - 1)]


def facts(batches: Sequence[BatchProgress]) -> list[str]:
    """Facts for the progress line: deltas, lag, version, state, and the time of the last batch.

    >>> counts = {"deltas": 5, "version": 3, "lag": 7, "state_bytes": 2_500_000}
    >>> last = BatchProgress(0, 10, 2.0, stages={"addBatch": 1.8}, **counts)
    >>> facts([last])
    ['5 deltas, 2/s', '7 behind', 'version 3', 'state 2.5 MB', 'last batch 2.0 s (addBatch 1.8)']
    """
    last = batches[-1]
    found = [f"{sum(b.deltas for b in batches):,} deltas, {last.deltas / max(last.seconds, 0.001):,.0f}/s"]
    rejected = sum(b.dead_letters for b in batches)
    if rejected:
        found.append(f"{rejected:,} rejected")
    if last.lag is not None:
        found.append(f"{last.lag:,} behind")
    if last.version is not None:
        found.append(f"version {last.version}")
    size = last.state_bytes + last.state_disk
    if size:
        found.append(f"state {size / 1e6:,.1f} MB")
    slowest = f" ({last.slowest[0]} {last.slowest[1]:.1f})" if last.slowest is not None else ""
    return [*found, f"last batch {last.seconds:.1f} s{slowest}"]


class Display:
    """The progress line; `total` is the final count, if that is known; `rate`: show the count per second."""

    def __init__(
        self, what: str, total: int | None = None, unit: str = "changes", *, rate: bool = True
    ) -> None:
        self.what, self.total, self.unit, self.rate = what, total, unit, rate
        self._bar: Any = None
        self._task: Any = None
        self._size: float | None = total  # of the bar
        self._text, self._done = what, 0  # shown when the bar appears
        self._terminal = sys.stderr.isatty() or bool(os.environ.get("FORCE_COLOR"))
        self._timer = threading.Timer(BAR_AFTER, self._show_bar)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._started = self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        on_compiling.append(self.say)
        if self._terminal and BAR_AFTER:
            self._timer.start()
        elif self._terminal:
            self._show_bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        on_compiling.remove(self.say)
        self._timer.cancel()
        with self._lock:
            self._terminal = False
            if self._bar is not None:
                self._bar.stop()

    def _show_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if not self._terminal:  # the work was done meanwhile
                return
            columns = [
                SpinnerColumn() if self._size is None else BarColumn(bar_width=24),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
            ]
            bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = bar.add_task(self._text, total=self._size, completed=self._done)
            bar.start()
            self._bar = bar

    def _update(self, text: str, done: int | None = None) -> None:
        with self._lock:
            self._text, self._done = text, self._done if done is None else done
            if self._bar is not None:
                self._bar.update(self._task, description=text, completed=self._done, total=self._size)

    def show(self, done: int, *facts: str) -> None:
        """Show a count and other facts."""
        now = time.monotonic()
        count = f"{done:,}" if self.total is None else f"{done:,} of {self.total:,}"
        rate = [f"{done / max(now - self._started, 0.001):,.0f} {self.unit}/s"] if self.rate else []
        text = ", ".join([f"{self.what}: {count} {self.unit}", *rate, *facts])
        if self._terminal:
            self._update(text, done)
        elif now - self._last_line >= PLAIN_EVERY:
            self._last_line = now
            print(text, file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Show a step that has no count."""
        if self._terminal:
            self._update(text)
        else:
            print(text, file=sys.stderr, flush=True)
