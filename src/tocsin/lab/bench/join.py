"""How long it takes to find the join queries that a row affects, strategy by strategy.

    workload ─ add ─► strategy                    build_s
    events ─ each ─► affected queries             us_per_event: the best of some runs
    affected queries ─ rows ─► joined rows        timed by itself: it is the same for all

Throughput is measured as T07 (section 4.6) does: finding the affected queries, without writing out result
rows. Before the clock runs, the answers for the first events are compared with those of NAIVE: for equality
joins, every query against the joining rows; for band joins, every query against the table (QOuter).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from tocsin.errors import TocsinError, UsageError
from tocsin.join.strategies.base import JoinStrategy
from tocsin.join.strategies.storage import JoinStorage, Kind, Ranges
from tocsin.lab.bench.join_workloads import JoinWorkload, load
from tocsin.lab.discover import implementations
from tocsin.model.columns import Index

__all__ = [
    *("CHECKED", "JoinReport", "JoinResult", "Timing", "build_strategy", "choose_strategies"),
    *("find_strategies", "measure_joins", "measure_strategy", "show_results", "timed"),
]

CHECKED = 50  # events
_NAIVE = {Kind.EQUALITY: "naive", Kind.BAND: "qouter"}
_DEFAULT = {
    Kind.EQUALITY: ("naive", "selectfirst", "ssi", "hotspot", "dynamic"),
    Kind.BAND: ("qouter", "douter", "mj", "ssi", "hotspot"),
}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Timing:
    """How it is measured: the best of `repeat` runs, each over as many events as fit `seconds`."""

    repeat: int = 3
    seconds: float = 0.5


@dataclass(frozen=True)
class JoinResult:
    """One strategy."""

    strategy: str
    events_per_s: float
    us_per_event: float
    spread: float
    affected_per_event: float
    results_per_event: float
    build_s: float
    bytes_per_query: float
    checked: bool
    write_us_per_event: float  # to write out result rows, whatever the strategy; not in us_per_event

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class JoinReport(NamedTuple):
    """Some strategies on one workload."""

    results: list[JoinResult]
    writing_us: float  # per event, to write out all result rows


class _Expected(NamedTuple):
    """The right answers for the first events."""

    slots: list[Index]
    results_per_event: float
    writing_us: float


# -- strategies --------------------------------------------------------------------------------------


def find_strategies(kind: Kind) -> dict[str, type[JoinStrategy]]:
    """Every strategy of `tocsin.join` for a kind of join, by name."""
    found: list[type[JoinStrategy]] = implementations(JoinStrategy, "tocsin.join")
    return dict(sorted((strategy.name, strategy) for strategy in found if strategy.kind is kind))


def choose_strategies(kind: Kind, names: Sequence[str]) -> dict[str, type[JoinStrategy]]:
    """The named strategies, or the default."""
    known = find_strategies(kind)
    chosen = list(names) or [name for name in _DEFAULT[kind] if name in known]
    for name in chosen:
        if name not in known:
            raise UsageError(
                f"there is no strategy {name!r} for {kind.value} joins", hint=f"one of {', '.join(known)}"
            )
    return {name: known[name] for name in chosen}


# -- measuring ---------------------------------------------------------------------------------------


def measure_joins(
    work: JoinWorkload, names: Sequence[str], timing: Timing, say: Say = lambda _: None
) -> JoinReport:
    """Every named strategy on one workload."""
    chosen = choose_strategies(work.kind, names)
    storage = load(work)
    say(f"finding the right answers for {min(CHECKED, len(work.event_keys))} events")
    expected = _expected(work, storage)
    results = []
    for name, make in chosen.items():
        say(f"{name}: building")
        strategy, build_s = build_strategy(make, storage, work.ranges)
        results.append(measure_strategy(strategy, work, expected, build_s, timing, say))
    return JoinReport(results, expected.writing_us)


def build_strategy(
    make: type[JoinStrategy], storage: JoinStorage, ranges: Ranges
) -> tuple[JoinStrategy, float]:
    """A strategy with all queries, and the seconds it took; what Numba compiles is not counted."""
    few = make(storage)
    for some in (np.arange(0, min(200, len(ranges.low))), np.arange(200, min(202, len(ranges.low)))):
        if len(some):
            few.add(some, ranges.take(some))
    few.each(0, np.zeros(1, np.int64), np.zeros(1, np.int64))
    strategy = make(storage)
    began = time.perf_counter()
    strategy.add(np.arange(len(ranges.low)), ranges)
    strategy.plan(0)
    return strategy, time.perf_counter() - began


def measure_strategy(
    strategy: JoinStrategy,
    work: JoinWorkload,
    expected: _Expected,
    build_s: float,
    timing: Timing,
    say: Say = lambda _: None,
) -> JoinResult:
    """Compare with what is right, warm up, measure."""
    say(f"{strategy.name}: checking")
    for i, right in enumerate(expected.slots):
        found = strategy.affected(0, int(work.event_keys[i]), int(work.event_values[i]))
        if not np.array_equal(np.sort(found), right):
            raise TocsinError(
                f"the strategy {strategy.name} gives wrong answers: for event {i} it finds {len(found)}"
                f" affected queries, NAIVE {len(right)}"
            )
    say(f"{strategy.name}: measuring {timing.repeat} times")
    us, spread, _ = timed(strategy, work.event_keys, work.event_values, timing)
    return JoinResult(
        strategy=strategy.name,
        events_per_s=1e6 / us,
        us_per_event=us,
        spread=spread,
        affected_per_event=float(np.mean([len(slots) for slots in expected.slots])),
        results_per_event=expected.results_per_event,
        build_s=build_s,
        bytes_per_query=strategy.bytes / max(1, len(strategy)),
        checked=True,
        write_us_per_event=expected.writing_us,
    )


def timed(strategy: JoinStrategy, keys: Index, values: Index, timing: Timing) -> tuple[float, float, Index]:
    """Microseconds per event (the best), their spread, and how many queries each event affects."""
    plan, order, out = strategy.plan(0), strategy.storage.other(0), strategy.buffer()

    def run(events: int) -> tuple[float, Index]:
        counts = np.zeros(events, np.int64)
        began = time.perf_counter()
        strategy.batch(plan, order, keys[:events], values[:events], out, counts)
        return time.perf_counter() - began, counts

    few = min(10, len(keys))
    run(few)
    each = run(few)[0] / max(few, 1)
    events = int(min(len(keys), max(few, timing.seconds / max(each, 1e-9))))
    seconds, counts = zip(*(run(events) for _ in range(timing.repeat)), strict=True)
    best = min(seconds)
    return 1e6 * best / max(events, 1), (max(seconds) - best) / best, counts[-1]


def _expected(work: JoinWorkload, storage: JoinStorage) -> _Expected:
    naive, _ = build_strategy(find_strategies(work.kind)[_NAIVE[work.kind]], storage, work.ranges)
    slots, results, seconds = [], 0, 0.0
    for i in range(min(CHECKED, len(work.event_keys))):
        key = int(work.event_keys[i])
        slots.append(np.sort(naive.affected(0, key, int(work.event_values[i]))))
        storage.rows(work.kind, 0, key, slots[-1][:1])  # compiles
        began = time.perf_counter()
        results += len(storage.rows(work.kind, 0, key, slots[-1])[0])
        seconds += time.perf_counter() - began
    count = max(1, len(slots))
    return _Expected(slots, results / count, 1e6 * seconds / count)


# -- showing -----------------------------------------------------------------------------------------


def show_results(report: JoinReport, console: Console) -> None:
    """As a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = ["strategy", "events/s", "µs/event", "spread", "affected", "results", "build s", "bytes/query"]
    for i, name in enumerate(names):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    for r in report.results:
        table.add_row(
            r.strategy,
            f"{r.events_per_s:,.0f}",
            f"{r.us_per_event:,.2f}",
            f"+{100 * r.spread:.0f} %",
            f"{r.affected_per_event:,.1f}",
            f"{r.results_per_event:,.1f}",
            f"{r.build_s:.2f}",
            f"{r.bytes_per_query:,.0f}",
        )
    console.print(table)
    console.print(f"writing out the result rows: {report.writing_us:,.1f} µs per event, not included")
