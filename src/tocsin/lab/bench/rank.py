"""Cost of a change of an object, method by method: messages, calls, microseconds.

    workload ─► method ─ publish 500 events ─► messages     us_per_event: of all parts but the first
                     messages ─► clients of a sample        their contents are compared with brute force

Contents are compared after the first 500 events and at the end; an exact method must also reach exactly the
subscriptions that need a message. All numbers are per event; `rank_methods.py` defines them. Redundancy is
K12's: how many more subscriptions are reached than needed, as a share of the latter (Paint-Batch: needed
with one event at a time, so it is negative).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tocsin.errors import TocsinError, UsageError
from tocsin.lab.bench.rank_methods import (
    MINIMA,
    TOPK,
    PaintDenseMethod,
    RankCounts,
    RankMethod,
    RankTask,
    brute_first,
)
from tocsin.lab.bench.rank_workloads import RankSetting, RankWorkload, draw_ranks
from tocsin.model.columns import Index
from tocsin.rank.space import SubscriptionSpace

__all__ = [
    *("KINDS", "PART", "RankResult", "choose_methods", "count_needed", "measure_method", "measure_ranks"),
    *("run_method", "show_results", "space_of", "task_of", "us_of", "warm_up"),
]

KINDS: dict[str, dict[str, type[RankMethod]]] = {"topk": TOPK, "min": MINIMA}
PART = 500  # events per call of `publish`

Say = Callable[[str], None]


@dataclass(frozen=True)
class RankResult:
    """One method, per event."""

    method: str
    messages_per_event: float
    received_per_event: float
    min_y_calls: float
    first_k_calls: float
    snap_calls: float
    bytes_out_per_event: float
    us_per_event: float
    redundancy: float
    checked: bool
    deltas_per_s: float | None = None  # of enumerate

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def choose_methods(kind: str, names: Sequence[str]) -> list[str]:
    """The named methods, or all of a kind."""
    if kind not in KINDS:
        raise UsageError(f"there is no kind {kind!r}", hint="topk or min")
    for name in names:
        if name not in KINDS[kind]:
            hint = f"one of {', '.join(KINDS[kind])}"
            raise UsageError(f"there is no method {name!r} for {kind}", hint=hint)
    return list(names) or list(KINDS[kind])


def space_of(work: RankWorkload) -> SubscriptionSpace:
    """The subscriptions' ranges by slot."""
    space = SubscriptionSpace()
    space.add(np.arange(len(work.low)), work.low, work.high)
    return space


def task_of(
    work: RankWorkload, space: SubscriptionSpace, k: int, eps: float = 0.0, sample: int = 100
) -> RankTask:
    """A task with a random sample of the subscriptions."""
    rng = np.random.default_rng(len(work.low))
    slots = rng.choice(len(work.low), min(sample, len(work.low)), replace=False)
    return RankTask(work, space, k, eps, slots.tolist())


# -- measuring ---------------------------------------------------------------------------------------


def measure_ranks(
    kind: str, names: Sequence[str], setting: RankSetting, k: int, eps: float, say: Say = lambda _: None
) -> list[RankResult]:
    """Measure the named methods on one workload."""
    chosen = choose_methods(kind, names)
    say(f"drawing {setting.objects:,} objects and {setting.subscriptions:,} ranges")
    work = draw_ranks(setting)
    space = space_of(work)
    task = task_of(work, space, k, eps)
    say("counting the messages that are needed")
    needed = count_needed(kind, task, "paint-batch" in chosen)
    results = []
    for name in chosen:
        say(f"{name}: compiling, then {setting.events:,} events")
        results.append(measure_method(KINDS[kind][name], task, needed))
    return results


def count_needed(kind: str, task: RankTask, count_received: bool) -> RankCounts:
    """What an exact method reaches, one event at a time."""
    exact = task._replace(eps=0.0, sample=[])
    method = PaintDenseMethod(exact) if kind == "topk" else MINIMA["s-cn"](exact)
    method.count_received = count_received
    for begin in range(0, len(task.work.number), PART):
        events = task.work.part(begin, begin + PART)
        method.deliver(method.publish(*events), len(events[0]))
    return method.counted


def measure_method(make: type[RankMethod], task: RankTask, needed: RankCounts) -> RankResult:
    """Compile on a small workload, run, compare contents."""
    warm_up(make, task.k, task.eps)
    method = make(task)
    us = us_of(run_method(method), len(task.work.number))
    counted = method.counted
    base = needed.received if method.at_once else needed.reached
    exact = not task.eps and method.name not in ("relax", "cn", "enumerate", "paint-batch")
    if exact and counted.reached != needed.reached:
        raise TocsinError(
            f"the method {method.name} reaches {counted.reached} subscriptions where {needed.reached} need it"
        )
    emits_deltas = method.name == "enumerate"
    events = max(1, counted.events)
    return RankResult(
        method=method.name,
        messages_per_event=counted.messages / events,
        received_per_event=counted.reached / events,
        min_y_calls=counted.min_y / events,
        first_k_calls=counted.first_k / events,
        snap_calls=counted.snap / events,
        bytes_out_per_event=counted.bytes / events,
        us_per_event=us,
        redundancy=0.0 if emits_deltas or not base else counted.reached / base - 1,
        checked=True,
        deltas_per_s=1e6 * counted.reached / events / us if emits_deltas else None,
    )


def run_method(method: RankMethod) -> list[float]:
    """Publish all events, part by part, and compare contents; return the seconds of each part."""
    work, seconds = method.task.work, list[float]()
    y, events = work.y.copy(), len(work.number)
    part = events if method.at_once else PART
    for begin in range(0, events, max(1, part)):
        number, x, new_y = work.part(begin, begin + part)
        began = time.perf_counter()
        messages = method.publish(number, x, new_y)
        seconds.append(time.perf_counter() - began)
        method.deliver(messages, len(number))
        y[number] = new_y
        if begin == 0 or begin + part >= events:
            _compare(method, y)
    return seconds


def us_of(seconds: Sequence[float], events: int) -> float:
    """Microseconds per event; with several parts, without the first, in which arrays still grow.

    >>> round(us_of([9.0, 0.001, 0.003], 3 * PART), 6), us_of([0.001], 100)
    (4.0, 10.0)
    """
    if len(seconds) == 1:
        return 1e6 * seconds[0] / max(1, events)
    return 1e6 * sum(seconds[1:]) / (events - PART)


def _compare(method: RankMethod, y: Index) -> None:
    """Raise unless the contents of the sample are those that brute force finds."""
    work, k = method.task.work, method.task.k
    for slot, content in method.contents().items():
        low, high = int(work.low[slot]), int(work.high[slot])
        if method.name in MINIMA:
            inside = y[(low <= work.x) & (work.x <= high)]
            right: Any = int(inside.min()) if len(inside) else None
        else:
            right = brute_first(work.x, y, low, high, k)
        if content != right:
            raise TocsinError(
                f"the method {method.name} gives wrong contents: of the range {low}..{high} it has {content},"
                f" right is {right}"
            )


def warm_up(make: type[RankMethod], k: int, eps: float = 0.0) -> None:
    """Compile all kernels, on a workload large enough for arrays to grow."""
    work = draw_ranks(RankSetting(objects=200, subscriptions=1000, events=300))
    run_method(make(task_of(work, space_of(work), k, eps, sample=2)))


# -- showing -----------------------------------------------------------------------------------------


def show_results(results: Sequence[RankResult], console: Console) -> None:
    """Print a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = ["method", "µs", "messages", "received", "min_y", "snap", "bytes", "redundancy"]
    for i, name in enumerate(names):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    for r in results:
        table.add_row(
            r.method,
            f"{r.us_per_event:,.2f}",
            f"{r.messages_per_event:,.2f}",
            f"{r.received_per_event:,.1f}",
            f"{r.min_y_calls:,.2f}",
            f"{r.snap_calls:,.2f}",
            f"{r.bytes_out_per_event:,.0f}",
            f"{r.redundancy:,.3f}",
        )
    console.print(table)
    console.print("per event; contents of a sample are those that brute force finds")
    for r in results:
        if r.deltas_per_s is not None:
            console.print(f"{r.method}: {r.deltas_per_s:,.0f} deltas per second")
