"""Time per event of join strategies: how long it takes to find the queries that a row affects.

    workload ─ add ─► strategy                    build_s
    events ─ each ─► affected queries             us_per_event: the best of some runs
    affected queries ─ rows ─► joined rows        timed separately: the same for all strategies

Throughput is measured as in T07 (section 4.6): finding the affected queries, without writing result rows.
Before anything is timed, the answers for the first events are compared with those of NAIVE: for equality
joins, every query against the joining rows; for band joins, every query against the table (QOuter).

The workload is T07's (table 4.1). The thesis tunes means and deviations of ranges until an event selects and
affects a given number of queries. Here these numbers are parameters, and the lengths of ranges follow:

    selected   queries whose own range holds the event's value: mean length = selected * DOMAIN
    joining    rows of the other table with the event's key: as many keys as rows / joining
    affected   queries with a joining row in their other range too: 1 - exp(-joining * length / DOMAIN)
               of the selected ones
    groups     points, evenly spaced, one of which lies in each other range

As there, midpoints of own ranges and lengths are normal, values uniform. A band join has only the other
range, of differences; the distance between rows makes the ranges affect the given number of queries.

>>> work = draw_equality(JoinSetting(queries=2000, rows=1000, groups=7, joining=10, events=50))
>>> work.groups, len(work.ranges.low), len(work.keys), len(work.event_keys)
(7, 2000, 1000, 50)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from tocsin.errors import TocsinError, UsageError
from tocsin.join.strategies.base import JoinKind, JoinStorage, JoinStrategy, Ranges
from tocsin.lab.discover import implementations
from tocsin.model.columns import Index
from tocsin.stab.partition import canonical

__all__ = [
    "CHECKED",
    "DOMAIN",
    "JoinReport",
    "JoinResult",
    "JoinSetting",
    "JoinWorkload",
    "Timing",
    "build_strategy",
    "choose_strategies",
    "draw_band",
    "draw_equality",
    "draw_joins",
    "find_strategies",
    "load",
    "measure_joins",
    "measure_strategy",
    "show_results",
    "timed",
]

DOMAIN = 10**9  # values and, for bands, keys are 0 to this
_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class JoinSetting:
    """Parameters of the workload; shares are of all queries."""

    queries: int = 100_000
    rows: int = 100_000
    groups: int = 30
    joining: float = 1000.0  # equality: rows that join an event, on average
    selected: float = 0.1  # equality: queries whose own range holds the event's value
    affected: float = 0.05
    scattered: float = 0.0  # queries whose other range is anywhere, not around the point of a group
    own_deviation: float = 0.25  # of the midpoints of own ranges, as a share of the domain
    key_deviation: float = 0.0  # equality: of the keys, around the middle one; 0: uniform
    events: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.affected <= 1 or not 0 < self.selected <= 1:
            raise UsageError("--affected and --selected are shares above 0 and at most 1")


class JoinWorkload(NamedTuple):
    """Events of one table, rows of the other, and queries."""

    kind: JoinKind
    ranges: Ranges
    keys: Index
    values: Index
    event_keys: Index
    event_values: Index
    groups: int  # the least number of stabbing groups


def draw_joins(kind: JoinKind, setting: JoinSetting) -> JoinWorkload:
    return draw_equality(setting) if kind is JoinKind.EQUALITY else draw_band(setting)


def draw_equality(setting: JoinSetting) -> JoinWorkload:
    """Equality joins with local selections on both tables."""
    if setting.affected >= setting.selected:
        raise UsageError(
            f"{setting.affected} of the queries cannot be affected where {setting.selected} are selected",
            hint="--affected must be below --selected",
        )
    rng, n = np.random.default_rng(setting.seed), setting.queries
    middle = rng.normal(0.5, setting.own_deviation, n) * DOMAIN
    length = _lengths(rng, setting.selected * DOMAIN, n)
    own_low, own_high = (middle - length / 2).astype(np.int64), (middle + length / 2).astype(np.int64)
    hit = -np.log1p(-setting.affected / setting.selected)  # joining rows in a range of the mean length
    low, high = _other_ranges(rng, setting, hit / max(setting.joining, 1e-9) * DOMAIN)
    count = max(1, round(setting.rows / max(setting.joining, 1e-9)))
    keys = _keys(rng, setting, count)
    values = rng.integers(0, DOMAIN, setting.rows)
    event_keys, event_values = rng.integers(0, count, setting.events), rng.integers(0, DOMAIN, setting.events)
    ranges = Ranges(low, high, own_low, own_high)
    tau = canonical(low, high).tau
    return JoinWorkload(JoinKind.EQUALITY, ranges, keys, values, event_keys, event_values, tau)


def draw_band(setting: JoinSetting) -> JoinWorkload:
    """Band joins without local selections."""
    rng, n = np.random.default_rng(setting.seed), setting.queries
    keys = rng.integers(0, DOMAIN, setting.rows)
    hit = -np.log1p(-min(setting.affected, 0.999999))
    low, high = _other_ranges(rng, setting, hit * DOMAIN / max(setting.rows, 1))
    low, high = low - DOMAIN // 2, high - DOMAIN // 2  # differences have either sign
    anything = np.full(n, _LEAST, np.int64), np.full(n, _MOST, np.int64)
    events = rng.integers(DOMAIN // 4, DOMAIN // 4 * 3, setting.events)
    blank, tau = np.zeros(setting.rows, np.int64), canonical(low, high).tau
    ranges = Ranges(low, high, *anything)
    return JoinWorkload(JoinKind.BAND, ranges, keys, blank, events, np.zeros(len(events), np.int64), tau)


def load(work: JoinWorkload) -> JoinStorage:
    """A storage with the rows, on side 1; events belong to side 0."""
    storage = JoinStorage()
    storage.load(1, work.keys, work.values)
    return storage


def _lengths(rng: np.random.Generator, mean: float, count: int) -> NDArray[np.float64]:
    return np.abs(rng.normal(mean, mean / 4, count))


def _other_ranges(rng: np.random.Generator, setting: JoinSetting, length: float) -> tuple[Index, Index]:
    """Ranges of about that length around the points of the groups; scattered ones around random points."""
    n = setting.queries
    points = (np.arange(setting.groups) + 0.5) / setting.groups * DOMAIN
    around = points[rng.integers(0, setting.groups, n)]
    loose = rng.random(n) < setting.scattered
    around[loose] = rng.random(int(loose.sum())) * DOMAIN
    total = _lengths(rng, length, n)
    left = total * rng.random(n)
    return (around - left).astype(np.int64), (around + total - left).astype(np.int64) + 1


def _keys(rng: np.random.Generator, setting: JoinSetting, count: int) -> Index:
    if setting.key_deviation == 0:
        return rng.integers(0, count, setting.rows)
    drawn = rng.normal(0.5, setting.key_deviation, setting.rows) * count
    return np.clip(drawn.astype(np.int64), 0, count - 1)


CHECKED = 50  # events
_NAIVE = {JoinKind.EQUALITY: "naive", JoinKind.BAND: "qouter"}
_DEFAULT = {
    JoinKind.EQUALITY: ("naive", "selectfirst", "ssi", "hotspot", "dynamic"),
    JoinKind.BAND: ("qouter", "douter", "mj", "ssi", "hotspot"),
}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Timing:
    """How to measure: the best of `repeat` runs, each over as many events as fit into `seconds`."""

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
    write_us_per_event: float  # to write the result rows, with any strategy; not in us_per_event

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class JoinReport(NamedTuple):
    """Some strategies on one workload."""

    results: list[JoinResult]
    writing_us: float  # per event, to write all result rows


class _ExpectedAnswers(NamedTuple):
    """The right answers for the first events."""

    slots: list[Index]
    results_per_event: float
    writing_us: float


# -- strategies --------------------------------------------------------------------------------------


def find_strategies(kind: JoinKind) -> dict[str, type[JoinStrategy]]:
    """Every strategy of `tocsin.join` for a kind of join, by name."""
    found: list[type[JoinStrategy]] = implementations(JoinStrategy, "tocsin.join")
    return dict(sorted((strategy.name, strategy) for strategy in found if strategy.kind is kind))


def choose_strategies(kind: JoinKind, names: Sequence[str]) -> dict[str, type[JoinStrategy]]:
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
    """Measure each named strategy on one workload."""
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
    """A strategy with all queries, and the seconds to build it, without compilation."""
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
    expected: _ExpectedAnswers,
    build_s: float,
    timing: Timing,
    say: Say = lambda _: None,
) -> JoinResult:
    """Compare with the right answers, warm up, measure."""
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
    """Microseconds per event (best run), their spread, and how many queries each event affects."""
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


def _expected(work: JoinWorkload, storage: JoinStorage) -> _ExpectedAnswers:
    naive, _ = build_strategy(find_strategies(work.kind)[_NAIVE[work.kind]], storage, work.ranges)
    slots, results, seconds = [], 0, 0.0
    for i in range(min(CHECKED, len(work.event_keys))):
        key = int(work.event_keys[i])
        slots.append(np.sort(naive.affected(0, key, int(work.event_values[i]))))
        storage.rows(work.kind, 0, key, slots[-1][:1])  # compiles the kernel
        began = time.perf_counter()
        results += len(storage.rows(work.kind, 0, key, slots[-1])[0])
        seconds += time.perf_counter() - began
    count = max(1, len(slots))
    return _ExpectedAnswers(slots, results / count, 1e6 * seconds / count)


# -- showing -----------------------------------------------------------------------------------------


def show_results(report: JoinReport, console: Console) -> None:
    """Print a table."""
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
    console.print(f"writing the result rows: {report.writing_us:,.1f} µs per event, not included")
