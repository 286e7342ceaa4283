"""Time per event of matching indexes, on a generated workload.

    workload ─ flat_predicates ─► filters ─ add ─► index        build_s
    events in batches ─ match ─► (subscription, event)          us_per_event: the best of some runs

Before anything is timed, the answers of every index for the first 50 events are compared with brute force
over all subscriptions, and brute force with the reference on a sample. The checksum covers all matches of all
events, so that indexes, and runs on different machines, can be compared:

    sum of (event + 1) * (subscription + 1)  mod 2^61 - 1
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from tocsin.engine import Engine, Rooms
from tocsin.errors import TocsinError, UsageError
from tocsin.lab.bench.brute_force import brute_answers, check_answers, reference_answers
from tocsin.lab.bench.draws import FilterWorkload
from tocsin.lab.discover import implementations
from tocsin.match.base import MatchIndex, unpack
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Rows
from tocsin.model.schema import Stream
from tocsin.predicate.columnar import flat_predicates
from tocsin.predicate.flat import FlatFilters

__all__ = [
    "CHECKED",
    "PRIME",
    "STREAM",
    "EngineResult",
    "MatchReport",
    "MatchResult",
    "MatchSetting",
    "PreparedWorkload",
    "UnsupportedFilters",
    "batch_size",
    "build_filters",
    "build_index",
    "check_equal",
    "checksum",
    "choose_indexes",
    "event_rows",
    "find_indexes",
    "match_totals",
    "measure_index",
    "measure_match",
    "prepare",
    "show_results",
]

PRIME = 2**61 - 1
CHECKED, SAMPLE = 50, 300  # events compared with brute force; subscriptions compared with the reference
FEW = 8  # events matched at the end of a build, because some indexes build on the first match
BATCH, MATCHES = 10_000, 20_000_000  # at most so many events, and about so many matches, per batch
LEARNED, PATIENCE = 10_000, 1.0  # matched events before an index is timed, or so many seconds
LONG = 20.0  # seconds; a faster build runs twice, and the faster one counts
DEFAULT = ("auto", "opindex", "counting")
STREAM = Stream("events")

Make = Callable[[], MatchIndex]
Say = Callable[[str], None]


@dataclass(frozen=True)
class MatchSetting:
    """How to measure."""

    threads: int = 1
    batch: int | None = None  # events per call of `match`; by default from `batch_size`
    repeat: int = 5
    engine: bool = False  # also measure `Engine.apply`
    seed: int = 0  # of the sample for the reference


class UnsupportedFilters(TocsinError):
    """An index does not support some of the subscriptions."""


# -- indexes -----------------------------------------------------------------------------------------


def find_indexes() -> dict[str, type[MatchIndex]]:
    """Every matching index of `tocsin.match`, by the lower-case name of its class."""
    found: list[type[MatchIndex]] = implementations(MatchIndex, "tocsin.match")
    return dict(sorted((index.__name__.lower(), index) for index in found))


def choose_indexes(names: Sequence[str], threads: int = 1) -> dict[str, Make]:
    """Constructors of the named indexes, or of the default ones."""
    known = find_indexes()
    chosen = list(names) or [name for name in DEFAULT if name in known] or list(known)
    for name in chosen:
        if name not in known:
            raise UsageError(f"there is no index {name!r}", hint=f"one of {', '.join(known)}")
        if chosen.count(name) > 1:
            raise UsageError(f"the index {name!r} is named twice", hint="--repeat says how often it runs")
    if threads != 1 and not any(map(_has_threads, (known[name] for name in chosen))):
        raise UsageError(f"the index {chosen[0]} has one thread, not {threads}", hint="leave --threads out")
    return {name: _with_threads(known[name], threads) for name in chosen}


def _has_threads(index: type[MatchIndex]) -> bool:
    return "threads" in inspect.signature(index).parameters


def _with_threads(index: type[MatchIndex], threads: int) -> Make:
    """A constructor with that many threads; an index without the option keeps its one thread."""
    return (lambda: index(threads=threads)) if _has_threads(index) else index  # type: ignore[call-arg]


# -- preparing ---------------------------------------------------------------------------------------


class PreparedWorkload(NamedTuple):
    """A workload as input of indexes, and the right answers for its first events."""

    filters: FlatFilters
    flatten_s: float
    batch: int  # events
    batches: list[Rows]
    few: Rows
    checked: Rows
    expected: Index  # packed, for `checked`


def prepare(workload: FilterWorkload, setting: MatchSetting, say: Say = lambda _: None) -> PreparedWorkload:
    """Flat filters, batches of rows, and the right answers."""
    say(f"preparing {workload.n:,} subscriptions")
    with _compiled_at_once():
        build_filters(STREAM, workload.subscriptions.slice(0, 100))
    began = time.perf_counter()
    filters = build_filters(STREAM, workload.subscriptions)
    flatten_s = time.perf_counter() - began
    first = workload.events.slice(0, CHECKED)
    checked = event_rows(first)
    say(f"finding the right answers for {len(checked)} events")
    expected = brute_answers(workload.subscriptions, first)
    count = min(SAMPLE, workload.n)
    sample = np.sort(np.random.default_rng(setting.seed).choice(workload.n, count, replace=False))
    mine = expected[np.isin(expected >> 32, sample)]
    right = reference_answers(STREAM, workload.subscriptions, checked, sample)
    check_answers("the brute force of the benchmark", mine, right)
    size = setting.batch or batch_size(len(expected) / max(1, len(checked)))
    batches = [event_rows(batch) for batch in _batches(workload.events, size)]
    few = event_rows(workload.events.slice(0, FEW))
    return PreparedWorkload(filters, flatten_s, size, batches, few, checked, expected)


def batch_size(matches: float) -> int:
    """Events per batch if each has so many matches: the matches of a batch must fit into memory.

    >>> batch_size(79), batch_size(39_000)
    (10000, 512)
    """
    return min(BATCH, max(1, int(MATCHES / max(1.0, matches))))


def build_filters(stream: Stream, subscriptions: Any) -> FlatFilters:
    """The subscriptions as flat arrays; the n-th row is the n-th filter."""
    filters, bad = flat_predicates(stream, subscriptions)
    if bad:
        row, reason = next(iter(bad.items()))
        raise TocsinError(f"{len(bad)} subscriptions are bad; row {row}: {reason}")
    return filters


def event_rows(events: Any) -> Rows:
    """Arrow events as input of an index."""
    batch, bad = ChangeBatch.from_arrow(STREAM, events)
    return batch.or_raise(bad).rows


def _batches(events: Any, size: int) -> Iterator[Any]:
    for first in range(0, events.num_rows, size):
        yield events.slice(first, size)


# -- measuring ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EngineResult:
    """The same events through `Engine.apply`, from Arrow to deltas."""

    subscribe_s: float
    us_per_event: float
    us_per_event_spread: float
    ratio: float  # to the index alone


@dataclass(frozen=True)
class MatchResult:
    """One index."""

    index: str
    build_s: float
    us_per_event: float
    us_per_event_spread: float
    bytes_per_subscription: float
    matches: int
    checksum: int
    engine: EngineResult | None = None

    def to_dict(self) -> dict[str, Any]:
        out = asdict(self)
        if self.engine is None:
            del out["engine"]
        return out


class MatchReport(NamedTuple):
    """Some indexes on one workload."""

    results: list[MatchResult]
    left_out: dict[str, str]  # indexes that do not support some of the subscriptions, and why
    flatten_s: float  # from Arrow to flat filters; included in every `build_s`
    batch: int  # events per call of `match`


def measure_match(
    workload: FilterWorkload, names: Sequence[str], setting: MatchSetting, say: Say = lambda _: None
) -> MatchReport:
    """Measure each named index on one workload."""
    chosen = choose_indexes(names, setting.threads)
    prepared = prepare(workload, setting, say)
    results, left_out = [], {}
    for name, make in chosen.items():
        try:
            result = measure_index(name, make, prepared, setting, say)
        except UnsupportedFilters as error:
            left_out[name] = error.fact
            continue
        if setting.engine:
            result = _through_engine(result, make, workload, prepared.batch, setting, say)
        results.append(result)
    if not results:
        raise UnsupportedFilters(
            "; ".join(left_out.values()), hint="name another index: --index scan supports all"
        )
    check_equal(results)
    return MatchReport(results, left_out, prepared.flatten_s, prepared.batch)


def check_equal(results: Iterable[MatchResult]) -> None:
    """Raise unless all indexes found the same matches."""
    by_checksum = {result.checksum: result for result in results}
    if len(by_checksum) > 1:
        one, other = list(by_checksum.values())[:2]
        raise TocsinError(
            f"{one.index} finds {one.matches} matches (checksum {one.checksum}),"
            f" {other.index} finds {other.matches} ({other.checksum})"
        )


def measure_index(
    name: str, make: Make, prepared: PreparedWorkload, setting: MatchSetting, say: Say = lambda _: None
) -> MatchResult:
    """Build, compare with the right answers, warm up, measure."""
    count = prepared.filters.count
    index: MatchIndex | None
    say(f"{name}: building")
    _compile(make, prepared)
    index, build_s = build_index(name, make, prepared)
    if build_s < LONG:  # the first build may have included compilation
        index = None  # frees its memory
        index, again = build_index(name, make, prepared)
        build_s = min(build_s, again)
    say(f"{name}: checking")
    check_answers(f"the index {name}", index.match(prepared.checked), prepared.expected)
    matches, total = match_totals(index, prepared.batches)
    _settle(index, prepared.batches)
    say(f"{name}: measuring {setting.repeat} times")
    times = [_timed(index, prepared.batches) for _ in range(setting.repeat)]
    us, spread = _per_event(times, sum(map(len, prepared.batches)))
    size = index.stats()["bytes"] / max(count, 1)
    return MatchResult(name, prepared.flatten_s + build_s, us, spread, size, matches, total)


def _settle(index: MatchIndex, batches: Sequence[Rows]) -> None:
    """Match the events repeatedly if they are few, so that an index that adapts to events has done so."""
    seen, began = sum(map(len, batches)), time.perf_counter()
    while seen < LEARNED and time.perf_counter() - began < PATIENCE:
        for rows in batches:
            index.match(rows)
            seen += len(rows)
    index.wait()


def build_index(name: str, make: Make, prepared: PreparedWorkload) -> tuple[MatchIndex, float]:
    """An index of all filters, and the seconds it took."""
    index = make()
    supported = index.supports(prepared.filters)
    if not supported.all():
        raise UnsupportedFilters(
            f"the index {name} does not support {int((~supported).sum())} of {len(supported)} subscriptions"
        )
    began = time.perf_counter()
    index.add(np.arange(prepared.filters.count), prepared.filters)
    index.match(prepared.few)
    return index, time.perf_counter() - began


def _compile(make: Make, prepared: PreparedWorkload) -> None:
    """Compile kernels, or load them, before anything is timed."""
    index = make()
    some = np.arange(prepared.filters.count) < 100
    filters = prepared.filters.take(some)
    if index.supports(filters).all():
        with _compiled_at_once():
            index.add(np.arange(filters.count), filters)
            index.match(prepared.few)


@contextmanager
def _compiled_at_once() -> Iterator[None]:
    """Inside, kernels are not interpreted while they have little to do; those called stay compiled."""
    before = os.environ.get("TOCSIN_JIT")
    os.environ["TOCSIN_JIT"] = before or "always"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TOCSIN_JIT"]


def match_totals(index: MatchIndex, batches: Sequence[Rows]) -> tuple[int, int]:
    """The number of matches, and their checksum."""
    matches = total = first = 0
    for rows in batches:
        slot, row = unpack(index.match(rows))
        matches += len(row)
        total += checksum(slot, row + first)
        first += len(rows)
    return matches, total % PRIME


def checksum(subscription: Index, event: Index) -> int:
    """The checksum of matches in any order; sums of checksums modulo `PRIME` are checksums too.

    >>> checksum(np.array([4, 0]), np.array([1, 2]))  # 2 * 5 + 3 * 1
    13
    """
    if not len(event):
        return 0
    low = int(event.min())
    sums = np.zeros(int(event.max()) - low + 1, np.int64)  # of subscriptions by event: below 2^63
    np.add.at(sums, event - low, subscription + 1)
    return sum(total * (low + i + 1) for i, total in enumerate(sums.tolist())) % PRIME


def _timed(index: MatchIndex, batches: list[Rows]) -> float:
    began = time.perf_counter()
    for rows in batches:
        index.match(rows)
    return time.perf_counter() - began


def _per_event(times: list[float], events: int) -> tuple[float, float]:
    best = min(times)
    return 1e6 * best / max(events, 1), (max(times) - best) / best


def _through_engine(
    result: MatchResult, make: Make, workload: FilterWorkload, batch: int, setting: MatchSetting, say: Say
) -> MatchResult:
    say(f"{result.index}: subscribing in an engine")
    _subscribed(make, workload.subscriptions.slice(0, 100))  # compiles the kernels
    began = time.perf_counter()
    engine = _subscribed(make, workload.subscriptions)
    subscribe_s = time.perf_counter() - began
    batches = list(_batches(workload.events, batch))
    base, matches, total = engine.last_seq + 1, 0, 0
    for some in batches:
        deltas = engine.apply(STREAM.name, some)
        matches += len(deltas)
        total += checksum(deltas.subscription, deltas.seq - base)
    if (matches, total % PRIME) != (result.matches, result.checksum):
        raise TocsinError(
            f"with the index {result.index} the engine finds {matches} matches (checksum {total % PRIME}),"
            f" the index alone {result.matches} ({result.checksum})"
        )
    say(f"{result.index}: measuring the engine {setting.repeat} times")
    times = []
    for _ in range(setting.repeat):
        began = time.perf_counter()
        for some in batches:
            engine.apply(STREAM.name, some)
        times.append(time.perf_counter() - began)
    us, spread = _per_event(times, workload.events.num_rows)
    through = EngineResult(subscribe_s, us, spread, us / result.us_per_event)
    return MatchResult(**{**vars(result), "engine": through})


def _subscribed(make: Make, subscriptions: Any) -> Engine:
    engine = Engine(rooms=Rooms(match=make))
    engine.execute(str(STREAM))
    engine.subscribe_predicates(STREAM.name, subscriptions)
    return engine


# -- showing -----------------------------------------------------------------------------------------


def show_results(report: MatchReport, console: Console) -> None:
    """Print tables."""
    names = ["index", "build s", "µs/event", "spread", "bytes/sub.", "matches", "checksum"]
    alone = _table(names)
    through = _table(["engine with", "subscribe s", "apply µs/event", "spread", "to the index alone"])
    for r in report.results:
        times = (f"{r.build_s:.2f}", f"{r.us_per_event:,.2f}", f"+{100 * r.us_per_event_spread:.0f} %")
        alone.add_row(r.index, *times, f"{r.bytes_per_subscription:,.1f}", f"{r.matches:,}", str(r.checksum))
        if (e := r.engine) is not None:
            times = (
                f"{e.subscribe_s:.2f}",
                f"{e.us_per_event:,.2f}",
                f"+{100 * e.us_per_event_spread:.0f} %",
            )
            through.add_row(r.index, *times, f"{e.ratio:.2f} times")
    console.print(alone)
    if through.row_count:
        console.print(through)
    for reason in report.left_out.values():
        console.print(f"left out: {reason}", markup=False)


def _table(names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(names):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    return table
