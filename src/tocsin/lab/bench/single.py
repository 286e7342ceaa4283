"""One event, one row, one subscription at a time: how long each call takes, and where the time goes.

    publish    one event of 20 attributes: 1 subscription (open and declared stream), 100,000 sparse ones
    json       one event as JSON text, or 1,000 in lines (microseconds per event): `json_workloads.py`
    update     one row of a table under 20,000 top-k subscriptions
    subscribe  one SQL text that differs from others in literals; unsubscribe; "add one, publish one"

Each workload makes an engine and calls to measure, and compares answers with brute force or the reference
before its calls are timed; wrong answers get no time. A second, separate pass times the parts of a call
(`PARTS`): the functions that belong to a part are replaced by ones that read the clock, which itself takes a
fraction of a microsecond per function. What no part accounts for is `rest`: locks, calls, checks.
`loop_p99_us` is the same percentile of an empty loop that takes as long as the median call: a machine that
interrupts its processes 2,000 times a second, for 20 microseconds, hits every fiftieth call of 10.

    parsing      SQL text to a filter              coding       values to the codes of an index
    registering  ids, slots, waiting filters       matching     codes to slots
    reading      JSON or dicts to values           maintaining  sampling, building, merging
    storing      tables, retained events           deltas       slots to deltas, listeners

To add a workload, write a function that returns a `SingleWorkload` and enter it in `WORKLOADS`.

>>> timed = Timings.of([3e-6, 1e-6, 2e-6])
>>> round(timed.median_us, 1), round(timed.p99_us, 1)
(2.0, 3.0)
"""

from __future__ import annotations

import gc
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import repeat
from random import Random
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import tocsin.engine
import tocsin.match.index
import tocsin.store.database
from tocsin.engine import Engine
from tocsin.errors import TocsinError, UsageError
from tocsin.lab.bench.brute_force import brute_answers, check_answers
from tocsin.lab.bench.filter_workloads import make_workload
from tocsin.lab.bench.json_workloads import holds_rule, json_workload, rules_table
from tocsin.language.template import Parser
from tocsin.match.index import Auto
from tocsin.match.room import MatchRoom
from tocsin.match.segments.base import Dimensions
from tocsin.match.segments.lifecycle import Segments
from tocsin.match.single import SingleMatcher
from tocsin.model.change import ChangeBatch
from tocsin.model.delta import Deltas
from tocsin.predicate.plain import PlainIndex
from tocsin.predicate.single import SingleCoder
from tocsin.rank.room import RankRoom
from tocsin.rank.topk import RankedFamily
from tocsin.reference import as_bag, evaluate, holds
from tocsin.store.database import Database
from tocsin.subscriptions.plain import PlainTexts
from tocsin.subscriptions.registry import Registry
from tocsin.subscriptions.roster import Roster
from tocsin.subscriptions.warnings import SubscriptionWarnings

__all__ = [
    "PARTS", "WORKLOADS", "SingleResult", "SingleSetting", "SingleWorkload", "Timings", "measure_single",
    "show_results",
]  # fmt: skip

CHECKED = 200  # calls whose answers are compared
Say = Callable[[str], None]
Parts = dict[str, list[tuple[Any, str]]]

PARTS: Parts = {
    "parsing": [(PlainTexts, "filter"), (Parser, "parse")],
    "registering": [
        (Registry, "get"),
        (Registry, "add_one"),
        (Registry, "remove_one"),
        (MatchRoom, "add_plain"),
        (MatchRoom, "remove"),
        (SubscriptionWarnings, "plain_with_warnings"),
    ],
    "reading": [
        (tocsin.engine, "parse_plain"),
        (tocsin.store.database, "read_batch"),
        (ChangeBatch, "from_dicts"),
    ],
    "storing": [
        (Database, "stage"),
        (Database, "stage_rows"),
        (Database, "commit"),
        (Database, "commit_one"),
    ],
    "coding": [(SingleCoder, "code"), (tocsin.match.index, "events_of"), (Dimensions, "encode")],
    "matching": [
        (SingleMatcher, "match"),
        (PlainIndex, "match"),
        (Auto, "match"),
        (RankedFamily, "_changes_of_one"),
    ],
    "maintaining": [(Segments, "maintain"), (Segments, "_build_waiting"), (Auto, "_sample_singles")],
    "deltas": [
        (MatchRoom, "deltas_of_one"),
        (MatchRoom, "deltas"),
        (RankRoom, "deltas"),
        (Roster, "deltas"),
        (Engine, "_emit"),
    ],
}
"""By part, the functions whose own time (without that of other parts) it counts: (owner, name)."""


@dataclass(frozen=True)
class SingleSetting:
    """The size of the experiment."""

    subscriptions: int = 100_000  # of the workloads with many
    ranked: int = 20_000  # top-k subscriptions
    calls: int = 2000  # that are timed
    warm: int = 500  # calls before that
    seed: int = 0


class SingleWorkload(NamedTuple):
    """Calls to be timed, each once and in order; answers were compared when it was made."""

    calls: Iterator[Callable[[], Any]]
    target_us: float
    checked: int  # answers that were compared
    events: int = 1  # of each call; times are per event


class Timings(NamedTuple):
    """Microseconds per call."""

    median_us: float
    p99_us: float
    mean_us: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timings:
        each = 1e6 * np.sort(np.asarray(seconds))
        return cls(float(np.median(each)), float(each[int(0.99 * len(each))]), float(each.mean()))


@dataclass(frozen=True)
class SingleResult:
    """One workload."""

    name: str
    median_us: float
    p99_us: float
    mean_us: float
    target_us: float
    checked: int
    loop_p99_us: float  # of an empty loop as long as the median
    profile_us: dict[str, float] = field(default_factory=dict)  # mean by part, measured apart

    @property
    def per_second(self) -> float:
        return 1e6 / self.mean_us

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "per_second": self.per_second,
            "p99_ratio": self.p99_us / self.median_us,
            "loop_p99_ratio": self.loop_p99_us / self.median_us,
            "within_target": self.median_us <= self.target_us,
        }


def measure_single(
    names: Sequence[str], setting: SingleSetting, say: Say = lambda _: None
) -> list[SingleResult]:
    """Measure the named workloads, or all."""
    for name in names:
        if name not in WORKLOADS:
            raise UsageError(f"there is no workload {name!r}", hint=f"one of {', '.join(WORKLOADS)}")
    results = []
    for name in names or WORKLOADS:
        say(f"{name}: preparing, comparing answers")
        work = WORKLOADS[name](setting)
        say(f"{name}: measuring")
        warm, calls = max(2, setting.warm // work.events), max(5, setting.calls // work.events)
        _timed(work.calls, warm)
        timings = Timings.of([seconds / work.events for seconds in _timed(work.calls, calls)])
        loop = _loop_p99(timings.median_us * work.events, calls) / work.events
        profile = _profiled(work.calls, max(1, calls // 4))
        profile = {part: us / work.events for part, us in profile.items()}
        results.append(SingleResult(name, *timings, work.target_us, work.checked, loop, profile))
    return results


def show_results(results: Sequence[SingleResult], console: Console) -> None:
    """Print a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    parts = [*PARTS, "rest"]
    for name in ("workload", "median us", "p99 us", "loop p99", "target us", "calls/s", *parts, "checked"):
        table.add_column(name, justify="left" if name == "workload" else "right")
    for r in results:
        slow = f"{r.p99_us:.1f}", f"{r.loop_p99_us:.1f}"
        times = f"{r.median_us:.1f}", *slow, f"{r.target_us:.0f}", f"{r.per_second:,.0f}"
        profile = (f"{r.profile_us.get(part, 0.0):.1f}" for part in parts)
        table.add_row(r.name, *times, *profile, f"{r.checked:,}")
    console.print(table)


# -- timing ------------------------------------------------------------------------------------------


def _timed(calls: Iterator[Callable[[], Any]], count: int) -> list[float]:
    """Seconds of each of the next `count` calls, without garbage collection."""
    clock, seconds = time.perf_counter, []
    gc.collect()
    gc.disable()
    try:
        for call, _ in zip(calls, range(count), strict=False):
            began = clock()
            call()
            seconds.append(clock() - began)
    finally:
        gc.enable()
    return seconds


def _loop_p99(median_us: float, calls: int) -> float:
    """The 99th percentile of an empty loop as long as a call: what the machine adds, not the call."""

    def loop(steps: int) -> Iterator[Callable[[], Any]]:
        while True:
            yield lambda: deque(repeat(None, steps), 0)

    few = 1000
    step = Timings.of(_timed(loop(few), 100)).median_us / few
    return Timings.of(_timed(loop(max(1, round(median_us / step))), calls)).p99_us


def _profiled(calls: Iterator[Callable[[], Any]], count: int) -> dict[str, float]:
    """Microseconds per call by part, and the rest."""
    spent = dict.fromkeys(PARTS, 0.0)
    with _clocked(spent):
        whole = _timed(calls, count)
    each = {part: 1e6 * seconds / max(1, len(whole)) for part, seconds in spent.items()}
    return each | {"rest": 1e6 * sum(whole) / max(1, len(whole)) - sum(each.values())}


@contextmanager
def _clocked(spent: dict[str, float]) -> Iterator[None]:
    """Inside, the functions of `PARTS` add their own time to `spent`."""
    inner = [0.0]  # by depth: seconds spent in clocked functions below
    before: list[tuple[Any, str, Any]] = []

    def clocked(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            inner.append(0.0)
            began = time.perf_counter()
            try:
                return function(*args, **named)
            finally:
                took = time.perf_counter() - began
                spent[part] += took - inner.pop()
                inner[-1] += took

        return call

    try:
        for part, functions in PARTS.items():
            for owner, name in functions:
                found = vars(owner)[name]
                before.append((owner, name, found))
                if isinstance(found, classmethod):
                    setattr(owner, name, classmethod(clocked(part, found.__func__)))
                else:
                    setattr(owner, name, clocked(part, found))
        yield
    finally:
        for owner, name, found in reversed(before):
            setattr(owner, name, found)


# -- publish -----------------------------------------------------------------------------------------

ATTRIBUTES = 20


def _published(
    engine: Engine, stream: str, events: Sequence[dict[str, Any]]
) -> Iterator[Callable[[], Deltas]]:
    """Publish the events, again and again."""
    while True:
        for event in events:
            yield lambda event=event: engine.publish(stream, event)  # type: ignore[misc]


def _check_matches(
    who: str, engine: Engine, stream: str, events: Sequence[dict[str, Any]], right: Any
) -> int:
    """Compare what each event matches with the right pairs: subscription << 32 | number of the event."""
    found = [
        (int(subscription) << 32) | number
        for number, event in enumerate(events)
        for subscription in engine.publish(stream, event).subscription
    ]
    check_answers(who, np.array(found, np.int64), np.sort(np.array(right, np.int64)))
    return len(events)


def _few_events(setting: SingleSetting) -> list[dict[str, Any]]:
    """Events of 20 attributes: numbers and texts."""
    draw = Random(setting.seed)

    def value(n: int) -> Any:
        return draw.randrange(100) if n % 2 else f"v{draw.randrange(50)}"

    return [{f"a{n}": value(n) for n in range(ATTRIBUTES)} for _ in range(max(CHECKED, 1000))]


def _publish_to_one(setting: SingleSetting, declared: bool) -> SingleWorkload:
    kinds = ", ".join(f"a{n} {'BIGINT' if n % 2 else 'STRING'}" for n in range(ATTRIBUTES))
    engine, events = Engine(), _few_events(setting)
    engine.execute(f"CREATE STREAM ev ({kinds})" if declared else "CREATE STREAM ev")
    mine = engine.subscribe("SELECT * FROM ev WHERE a1 < 50 AND a2 = 'v7'")
    where, few = engine.query(mine).where, events[:CHECKED]
    right = [(mine.id << 32) | number for number, event in enumerate(few) if holds(where, event)]
    checked = _check_matches("publish", engine, "ev", few, right)
    return SingleWorkload(_published(engine, "ev", events), 25.0, checked)


def _publish_to_many(setting: SingleSetting) -> SingleWorkload:
    drawn = make_workload("sparse", setting.subscriptions, 2000, setting.seed)
    engine = Engine()
    engine.execute("CREATE STREAM ev")
    engine.subscribe_predicates("ev", drawn.subscriptions)
    events = [dict(pairs) for pairs in drawn.events["attributes"].to_pylist()]
    right = brute_answers(drawn.subscriptions, drawn.events.slice(0, CHECKED))
    checked = _check_matches("publish", engine, "ev", events[:CHECKED], right)
    return SingleWorkload(_published(engine, "ev", events), 45.0, checked)


# -- JSON text -----------------------------------------------------------------------------------------

BATCHED = 1000  # lines
_JSON_SINGLY = {"equality": 60.0, "prefix": 60.0, "contains": 40.0}  # microseconds
_JSON_BATCHES = {"equality": 10.0, "prefix": 25.0, "contains": 15.0}  # per event


def _json_engine(setting: SingleSetting, kind: str) -> tuple[Engine, list[bytes], int]:
    """An engine with rules, events as text, and how many answers were compared."""
    rules, events = json_workload(kind, setting.subscriptions, 2 * BATCHED, setting.seed)
    engine, lines = Engine(), [json.dumps(event).encode() for event in events]
    engine.execute("CREATE STREAM ev")
    engine.subscribe_predicates("ev", rules_table(rules))
    few = CHECKED // 10
    right = [(i << 32) | n for i, rule in enumerate(rules) for n in range(few) if holds_rule(rule, events[n])]
    together = engine.apply("ev", b"\n".join(lines[:few]))
    packed = (together.subscription << 32) | (together.seq - 1)
    check_answers("apply of JSON lines", packed, np.sort(np.array(right, np.int64)))
    found = [(engine.publish_json("ev", line).subscription << 32) | n for n, line in enumerate(lines[:few])]
    check_answers("publish_json", np.concatenate(found), np.sort(np.array(right, np.int64)))
    return engine, lines, 2 * few


def _json_singly(setting: SingleSetting, kind: str, target: float) -> SingleWorkload:
    engine, lines, checked = _json_engine(setting, kind)

    def calls() -> Iterator[Callable[[], Deltas]]:
        while True:
            for line in lines:
                yield lambda line=line: engine.publish_json("ev", line)  # type: ignore[misc]

    return SingleWorkload(calls(), target, checked)


def _json_batches(setting: SingleSetting, kind: str, target: float) -> SingleWorkload:
    engine, lines, checked = _json_engine(setting, kind)
    texts = [b"\n".join(lines[first : first + BATCHED]) for first in range(0, len(lines), BATCHED)]

    def calls() -> Iterator[Callable[[], Deltas]]:
        while True:
            for text in texts:
                yield lambda text=text: engine.apply("ev", text)  # type: ignore[misc]

    return SingleWorkload(calls(), target, checked, BATCHED)


# -- rows --------------------------------------------------------------------------------------------


def _update_under_topk(setting: SingleSetting) -> SingleWorkload:
    """Rows (id, x, y) of which subscriptions want the first ten by y in a range of x; an update sets y."""
    draw, rows = Random(setting.seed), 2000
    engine = Engine()
    engine.execute("CREATE TABLE t (id BIGINT, x DOUBLE, y DOUBLE, PRIMARY KEY (id))")
    table = [{"id": n, "x": draw.random(), "y": draw.random()} for n in range(rows)]
    engine.apply("t", ChangeBatch.from_dicts(engine.schema("t"), table)[0])
    texts = []
    for _ in range(setting.ranked):
        low = draw.random()
        texts.append(
            f"SELECT id, y FROM t WHERE x BETWEEN {low:.6f} AND {low + 0.2 * draw.random():.6f} "
            "ORDER BY y LIMIT 10"
        )
    ids = engine.subscribe_texts(texts).tolist()
    emitted: dict[int, list[Any]] = {}
    sample = draw.sample(ids, min(50, len(ids)))
    contents = {id: engine.content(id) for id in sample}
    for _ in range(CHECKED):
        for delta in engine.update("t", {"id": draw.randrange(rows), "y": draw.random()}):
            if delta.subscription in contents:
                emitted.setdefault(delta.subscription, []).append((delta.sign, delta.row))
    database = {"t": engine.rows("t").to_pylist()}
    for id, content in contents.items():
        after = list(content)
        for sign, row in emitted.get(id, ()):
            after.append(row) if sign > 0 else after.remove(row)
        if as_bag(after) != as_bag(evaluate(engine.query(id), database, {"t": ("id",)})):
            raise TocsinError(
                f"update gives wrong answers: subscription {id}", hint="wrong answers get no time"
            )

    def calls() -> Iterator[Callable[[], Deltas]]:
        while True:
            row = {"id": draw.randrange(rows), "y": draw.random()}
            yield lambda row=row: engine.update("t", row)  # type: ignore[misc]

    return SingleWorkload(calls(), 150.0, len(sample))


# -- subscriptions -----------------------------------------------------------------------------------


def _text(draw: Random) -> str:
    return (
        f"SELECT * FROM ev WHERE a{draw.randrange(10)} = {draw.randrange(100)} AND a11 < {draw.random():.6f}"
    )


def _subscribed(setting: SingleSetting) -> tuple[Engine, Random]:
    """An engine with many subscriptions, to add to."""
    engine, draw = Engine(), Random(setting.seed)
    engine.execute("CREATE STREAM ev")
    engine.subscribe_texts([_text(draw) for _ in range(setting.subscriptions // 10)])
    return engine, draw


def _check_added(engine: Engine, draw: Random, count: int = CHECKED) -> int:
    """Add and remove some, and compare what all of them match with the conditions."""
    mine = [engine.subscribe(_text(draw)) for _ in range(count)]
    for number, subscription in enumerate(mine):
        if number % 3 == 0:
            engine.unsubscribe(subscription)
        event = {f"a{draw.randrange(10)}": draw.randrange(100), "a11": draw.random() / 10}
        found = set(engine.publish("ev", event).subscription.tolist())
        for other in (s for n, s in enumerate(mine) if n > number or n % 3):
            if (other.id in found) != (holds(engine.query(other).where, event) is True):
                raise TocsinError(
                    f"{other.sql} gives wrong answers for {event}", hint="wrong answers get no time"
                )
    return count


def _subscribe(setting: SingleSetting) -> SingleWorkload:
    engine, draw = _subscribed(setting)
    checked = _check_added(engine, draw)

    def calls() -> Iterator[Callable[[], Any]]:
        while True:
            text = _text(draw)
            yield lambda text=text: engine.subscribe(text)  # type: ignore[misc]

    return SingleWorkload(calls(), 50.0, checked)


def _unsubscribe(setting: SingleSetting) -> SingleWorkload:
    engine, draw = _subscribed(setting)
    checked = _check_added(engine, draw)

    def calls() -> Iterator[Callable[[], Any]]:
        while True:
            mine = engine.subscribe(_text(draw))
            yield lambda mine=mine: engine.unsubscribe(mine)  # type: ignore[misc]

    return SingleWorkload(calls(), 50.0, checked)


def _add_and_publish(setting: SingleSetting) -> SingleWorkload:
    """Subscribe to one, publish one event."""
    engine, draw = _subscribed(setting)
    checked = _check_added(engine, draw)

    def calls() -> Iterator[Callable[[], Any]]:
        while True:
            text, event = _text(draw), {f"a{n}": draw.randrange(100) for n in range(ATTRIBUTES)}
            yield lambda text=text, event=event: (engine.subscribe(text), engine.publish("ev", event))  # type: ignore[misc]

    return SingleWorkload(calls(), 150.0, checked)


WORKLOADS: dict[str, Callable[[SingleSetting], SingleWorkload]] = {
    "publish, 1 subscription": lambda setting: _publish_to_one(setting, declared=False),
    "publish, 1 subscription, declared": lambda setting: _publish_to_one(setting, declared=True),
    "publish, sparse": _publish_to_many,
    "update, top-k": _update_under_topk,
    "subscribe": _subscribe,
    "unsubscribe": _unsubscribe,
    "subscribe and publish": _add_and_publish,
    **{f"json, {kind}": partial(_json_singly, kind=kind, target=us) for kind, us in _JSON_SINGLY.items()},
    **{
        f"json, {kind}, batches": partial(_json_batches, kind=kind, target=us)
        for kind, us in _JSON_BATCHES.items()
    },
}
