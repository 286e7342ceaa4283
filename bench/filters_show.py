"""What Tocsin claims about filters, measured: one subcommand per claim or group of claims.

    match     the default index against opindex and counting, three workloads
    large     ten million subscriptions: build, memory, matching, two threads
    apply     Engine.apply, Arrow in and deltas out, against the index alone
    load      a million predicates, a million rows of a template, 100,000 texts
    live      inserts and deletes at a fixed rate beside matching
    drift     events that change their habits, against an index built after the change
    patterns  10,000 regexes and 100,000 words; a regex that backtracking never ends

    python bench/filters_show.py match
    python bench/filters_show.py large --n 1000000 --no-bar

Answers are compared with brute force or the reference before a time is told. Standard output has one
JSON object per claim, standard error a line to read; the exit code is 1 if an answer is wrong or a
claim does not hold. Times are the best of `--repeat`, `spread` is how far above that the worst was;
what is compared is measured in turns (a b c a b c ...), so that a busy machine hits all alike.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin import Engine
from tocsin.bench.check import brute_answers, check_answers, reference_answers
from tocsin.bench.draws import (
    Popularity,
    attribute_names,
    coded,
    event_maps,
    laid_out,
    subscription_table,
)
from tocsin.bench.filters import Comparisons, comparison_subscriptions, make_workload
from tocsin.bench.match import (
    CHECKED,
    PRIME,
    STREAM,
    Setting,
    build_filters,
    build_index,
    checksum,
    choose_indexes,
    event_rows,
    prepare,
)
from tocsin.bench.patterns import regex_set, texts, word_set
from tocsin.engine import Rooms
from tocsin.errors import TocsinError
from tocsin.language.sql import parse_query
from tocsin.match.auto import Auto
from tocsin.match.base import MatchIndex, pack, unpack
from tocsin.memory import keep_freed
from tocsin.reference import holds

MILLION = 1_000_000
SAMPLE = 1000  # subscriptions that the reference checks
FEW = 100  # subscriptions that are loaded before the clock runs, so that everything is compiled

Run = Callable[[], object]


# -- claims and times --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A measured value, and the bar it has to reach."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool:
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)

    def tell(self, options: argparse.Namespace, **measured: Any) -> Claim:
        """Print it: JSON with all that was measured, and a line for people."""
        bar = {"at_least": self.at_least} if self.at_most is None else {"at_most": self.at_most}
        told = {"claim": self.name, "value": self.value, "unit": self.unit, **bar, "met": self.met}
        setting = {"repeat": options.repeat, "seed": options.seed, "machine": machine()}
        print(json.dumps({**told, **setting, **measured}, default=float), flush=True)
        limit = f"at least {self.at_least:,g}" if self.at_most is None else f"at most {self.at_most:,g}"
        verdict = "holds" if self.met else "DOES NOT HOLD"
        say(f"{self.name}: {self.value:,.4g} {self.unit} ({limit}): {verdict}")
        return self


Claims = Iterator[Claim]


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


class Best(NamedTuple):
    """The fastest of some runs."""

    seconds: float
    spread: float  # how much longer the slowest took, as a share

    def us(self, events: int) -> float:
        return 1e6 * self.seconds / events


def best(times: Sequence[float]) -> Best:
    """
    >>> best([2.0, 3.0])
    Best(seconds=2.0, spread=0.5)
    """
    return Best(min(times), max(times) / min(times) - 1)


def timed(run: Run) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def in_turns(runs: Mapping[str, Run], repeat: int) -> dict[str, Best]:
    """The best of each, measured a b c a b c ..."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            times[name].append(timed(run))
    return {name: best(taken) for name, taken in times.items()}


# -- events and answers ------------------------------------------------------------------------------


def slices(table: Any, size: int) -> list[Any]:
    return [table.slice(at, size) for at in range(0, table.num_rows, size)]


def rows_of(events: Any, size: int) -> list[Any]:
    """Events in batches as an index takes them."""
    return [event_rows(part) for part in slices(events, size)]


def matching(index: MatchIndex, batches: Sequence[Any]) -> Run:
    def run() -> None:
        for rows in batches:
            index.match(rows)

    return run


def told_by(index: MatchIndex, batches: Sequence[Any]) -> tuple[int, int]:
    """How many matches, and their checksum."""
    matches = total = first = 0
    for rows in batches:
        slot, event = unpack(index.match(rows))
        matches += len(event)
        total += checksum(slot, event + first)
        first += len(rows)
    return matches, total % PRIME


def require_equal(what: str, told: Mapping[str, Any]) -> None:
    if len(set(told.values())) > 1:
        raise TocsinError(f"{what}: different matches and checksums are told: {told}")


def pairs_of(engine: Engine, stream: str, events: Any) -> Any:
    """What an engine tells of events: (subscription, event), packed."""
    base = engine.last_seq + 1
    deltas = engine.apply(stream, events)
    return pack(deltas.subscription, deltas.seq - base)


def right_by_id(subscriptions: Any, events: Any) -> Any:
    """What brute force finds, by the ids of subscriptions."""
    place, event = unpack(brute_answers(subscriptions, events))
    return np.sort(pack(subscriptions["id"].to_numpy()[place], event))


def new_engine(definition: str = str(STREAM), index: MatchIndex | None = None) -> Engine:
    engine = Engine(rooms=None if index is None else Rooms(match=lambda: index))
    engine.execute(definition)
    return engine


# -- match -------------------------------------------------------------------------------------------

RIVALS = ("opindex", "counting")
MATCH = {"sparse": ("opindex", 6.0), "dense": ("counting", 60.0), "interval": ("counting", 40.0)}


def show_match(options: argparse.Namespace) -> Claims:
    """Three workloads, three indexes; the slow ones take the first events of the same stream."""
    sizes = {
        "sparse": (options.sparse, options.sparse_events),
        "dense": (options.dense, options.dense_events),
        "interval": (options.interval, options.interval_events),
    }
    for kind, (rival, bar) in MATCH.items():
        n, count = sizes[kind]
        work = make_workload(kind, n, count, options.seed)
        prepared = prepare(work, Setting(batch=options.batch, seed=options.seed), say)
        few = work.events.slice(0, options.slow_events)
        fewer = rows_of(few, options.batch)
        indexes, builds = {}, {}
        for name, make in choose_indexes(("auto", *RIVALS)).items():
            some = np.arange(n) < FEW
            build_index(name, make, prepared._replace(filters=prepared.filters.take(some)))  # compiles
            indexes[name], builds[name] = build_index(name, make, prepared)
            check_answers(f"the index {name}", indexes[name].match(prepared.checked), prepared.expected)
        require_equal(kind, {name: told_by(index, fewer) for name, index in indexes.items()})
        matches, told = told_by(indexes["auto"], prepared.batches)
        indexes["auto"].wait()
        batches = {name: prepared.batches if name == "auto" else fewer for name in indexes}
        runs = {name: matching(index, batches[name]) for name, index in indexes.items()}
        found = in_turns(runs, options.repeat)
        us = {name: found[name].us(sum(map(len, batches[name]))) for name in found}
        yield Claim(f"match {kind}", us[rival] / us["auto"], f"times faster than {rival}", at_least=bar).tell(
            options,
            subscriptions=n,
            events={name: sum(map(len, own)) for name, own in batches.items()},
            us_per_event=us,
            spread={name: one.spread for name, one in found.items()},
            build_s={name: prepared.flatten_s + seconds for name, seconds in builds.items()},
            bytes_per_subscription={name: i.stats()["bytes"] / n for name, i in indexes.items()},
            matches=matches,
            checksum=told,
        )


# -- large -------------------------------------------------------------------------------------------


def show_large(options: argparse.Namespace) -> Claims:
    """One index of very many subscriptions, with two threads that may be used or not."""
    n, count = options.n, options.events
    work = make_workload("sparse", n, count, options.seed)
    first = work.events.slice(0, CHECKED)
    say(f"finding the right answers for {first.num_rows} events")
    expected = brute_answers(work.subscriptions, first)
    built_from(work.subscriptions.slice(0, FEW), 2).match(event_rows(first))  # compiles
    index, times = None, []
    for _ in range(options.builds):
        index = None  # let the last one go first
        say(f"building an index of {n:,} subscriptions")
        began = time.perf_counter()
        index = built_from(work.subscriptions, 2)
        times.append(time.perf_counter() - began)
    assert index is not None
    check_answers("the index auto", index.match(event_rows(first)), expected)
    built = best(times)
    size = {"subscriptions": n}
    yield Claim("large build", n / built.seconds, "subscriptions/s", at_least=1e6).tell(
        options, **size, build_s=built.seconds, first_s=times[0], spread=built.spread, repeat=len(times)
    )
    batches = rows_of(work.events, options.batch)
    told = {}
    for threads in (1, 2):
        index.threads = threads
        told[threads] = told_by(index, batches)
    require_equal("one thread and two", told)
    index.wait()
    yield Claim("large memory", index.stats()["bytes"] / n, "bytes per subscription", at_most=80).tell(
        options, **size, segments=index.stats()["segments"]
    )

    def with_threads(threads: int) -> Run:
        def run() -> None:
            index.threads = threads
            matching(index, batches)()

        return run

    found = in_turns({str(threads): with_threads(threads) for threads in (1, 2)}, options.repeat)
    us = {threads: one.us(count) for threads, one in found.items()}
    spread = {threads: one.spread for threads, one in found.items()}
    more = {**size, "events": count, "us_per_event": us, "spread": spread, "matches": told[1][0]}
    yield Claim("large matching", us["1"], "µs per event", at_most=30).tell(options, **more)
    yield Claim("large threads", us["1"] / us["2"], "times faster with two", at_least=1.6).tell(
        options, **more
    )


def built_from(subscriptions: Any, threads: int = 1) -> Auto:
    """From Arrow to an index that has nothing left to build."""
    index = Auto(threads=threads)
    filters = build_filters(STREAM, subscriptions)
    index.add(np.arange(filters.count), filters)
    index.wait()
    return index


# -- apply -------------------------------------------------------------------------------------------


def show_apply(options: argparse.Namespace) -> Claims:
    """The engine, and the very index that is in it."""
    work = make_workload("sparse", options.n, options.events, options.seed)
    prepared = prepare(work, Setting(batch=options.batch, seed=options.seed), say)
    index = Auto()
    engine = new_engine(index=index)
    engine.subscribe_predicates(STREAM.name, work.subscriptions)
    first = work.events.slice(0, CHECKED)
    check_answers("the index auto", index.match(prepared.checked), prepared.expected)
    check_answers("the engine", pairs_of(engine, STREAM.name, first), prepared.expected)
    batches = slices(work.events, options.batch)
    base, matches, total = engine.last_seq + 1, 0, 0
    for batch in batches:
        deltas = engine.apply(STREAM.name, batch)
        matches += len(deltas)
        total += checksum(deltas.subscription, deltas.seq - base)
    told = {"index": told_by(index, prepared.batches), "engine": (matches, total % PRIME)}
    require_equal("index and engine", told)
    index.wait()

    def apply() -> None:
        for batch in batches:
            engine.apply(STREAM.name, batch)

    found = in_turns({"index": matching(index, prepared.batches), "engine": apply}, options.repeat)
    us = {name: one.us(options.events) for name, one in found.items()}
    yield Claim("apply", us["engine"] / us["index"], "times the index alone", at_most=2.0).tell(
        options,
        subscriptions=options.n,
        events=options.events,
        batch=options.batch,
        us_per_event=us,
        spread={name: one.spread for name, one in found.items()},
        matches=matches,
    )


# -- load --------------------------------------------------------------------------------------------

QUOTES = "CREATE STREAM s (a BIGINT, b DOUBLE, c DOUBLE)"
TEMPLATE = "SELECT * FROM s WHERE a = :a AND b <= :b AND c >= :c"
HITS = "CREATE STREAM hits (item STRING, shop STRING, city STRING, price DOUBLE, stars BIGINT, sold BIGINT)"
TEXTS = (
    "SELECT * FROM hits WHERE price < {price} AND stars >= {stars}",
    "SELECT * FROM hits WHERE shop = '{shop}' AND price <= {price}",
    "SELECT item FROM hits WHERE item LIKE '{item}%' AND sold > {sold}",
    "SELECT * FROM hits WHERE city IN ('{city}', '{other}') AND price BETWEEN {price} AND {price}9",
    "SELECT item, price FROM hits WHERE (shop = '{shop}' OR shop = '{seller}') AND stars = {stars}",
    "SELECT * FROM hits WHERE item LIKE '%{item}%' AND city = '{city}'",
    "SELECT * FROM hits WHERE sold BETWEEN {sold} AND {sold}0 AND city = '{city}' AND stars > {stars}",
    "SELECT * FROM hits WHERE shop = '{shop}' OR (city = '{city}' AND price < {price})",
    "SELECT item FROM hits WHERE sold = {sold} OR sold = {sold}1 OR item = '{item}'",
    "SELECT * FROM hits WHERE NOT city = '{city}' AND shop IN ('{shop}', '{seller}') AND price > {price}",
)


class Loading(NamedTuple):
    """One way to load: what to time, the events that are then matched, and queries by their ids."""

    name: str
    n: int
    bar: float
    definition: str
    stream: str
    load: Callable[[Engine, int], object]  # the first so many subscriptions
    events: Any
    query_of: Callable[[int], str]


def show_load(options: argparse.Namespace) -> Claims:
    """Each way until the first event afterwards has matched: what is built late counts too."""
    yield load_predicates(options)
    yield loaded(load_template(options), options)
    yield loaded(load_texts(options), options)


def load_predicates(options: argparse.Namespace) -> Claim:
    work = make_workload("sparse", options.predicates, CHECKED, options.seed)
    expected = brute_answers(work.subscriptions, work.events)
    sample = np.unique(np.random.default_rng(options.seed).integers(0, work.n, SAMPLE))
    by_reference = reference_answers(STREAM, work.subscriptions, event_rows(work.events), sample)
    check_answers("brute force", expected[np.isin(expected >> 32, sample)], by_reference)

    def load(engine: Engine, count: int) -> None:
        engine.subscribe_predicates(STREAM.name, work.subscriptions.slice(0, count))

    one = Loading("predicates", work.n, 3.0, str(STREAM), STREAM.name, load, work.events, str)
    return measured_load(one, options, lambda pairs: check_answers("predicates", pairs, expected))


def load_template(options: argparse.Namespace) -> Loading:
    n, rng = options.template, np.random.default_rng(options.seed)
    columns = {"a": rng.integers(0, 1000, n), "b": rng.random(n).round(3), "c": rng.random(n).round(3)}
    params = pa.table({"id": np.arange(n), **columns})
    few = {"a": rng.integers(0, 1000, CHECKED), "b": rng.random(CHECKED), "c": rng.random(CHECKED)}

    def query_of(id: int) -> str:
        values = (f"{columns[name][id]}" for name in "abc")
        return "SELECT * FROM s WHERE a = {} AND b <= {} AND c >= {}".format(*values)

    def load(engine: Engine, count: int) -> None:
        engine.subscribe_many(TEMPLATE, params.slice(0, count))

    return Loading("template", n, 3.0, QUOTES, "s", load, pa.table(few), query_of)


def load_texts(options: argparse.Namespace) -> Loading:
    n, rng = options.texts, np.random.default_rng(options.seed)
    words = word_set(5000, options.seed)

    def draw(count: int) -> dict[str, list[Any]]:
        number = {"price": (1, 500), "stars": (0, 6), "sold": (0, 10_000)}
        word = {"item": 5000, "shop": 1000, "seller": 1000, "city": 200, "other": 200}
        drawn = {name: rng.integers(*ends, count).tolist() for name, ends in number.items()}
        picked = {name: rng.integers(0, most, count).tolist() for name, most in word.items()}
        return drawn | {name: [words[i] for i in own] for name, own in picked.items()}

    values = draw(n)
    rows = (dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True))
    sql = [TEXTS[i % len(TEXTS)].format(**row) for i, row in enumerate(rows)]
    told = draw(CHECKED)
    events = {name: told[name] for name in ("item", "shop", "city", "stars", "sold")}
    events["price"] = [float(price) for price in told["price"]]

    def load(engine: Engine, count: int) -> None:
        engine.subscribe_texts(sql[:count], ids=range(min(n, count)))

    return Loading("texts", n, 5.0, HITS, "hits", load, pa.table(events), lambda id: sql[id])


def loaded(one: Loading, options: argparse.Namespace) -> Claim:
    """Measured, and a sample compared with the reference."""
    engine = new_engine(one.definition)
    catalog = {one.stream: engine.schema(one.stream)}
    events = one.events.to_pylist()

    def check(pairs: Any) -> None:
        rng = np.random.default_rng(options.seed)
        some = rng.integers(0, one.n, SAMPLE)
        told = np.unique(pairs >> 32)
        sample = np.unique(np.concatenate([some, rng.choice(told, min(SAMPLE, len(told)), replace=False)]))
        right = [
            id << 32 | event
            for id in sample.tolist()
            for where in (parse_query(one.query_of(id), catalog).where,)
            for event, row in enumerate(events)
            if holds(where, row)
        ]
        check_answers(one.name, pairs[np.isin(pairs >> 32, sample)], np.array(right, np.int64))

    return measured_load(one, options, check)


def measured_load(one: Loading, options: argparse.Namespace, check: Callable[[Any], None]) -> Claim:
    first, rest = one.events.slice(0, 1), one.events
    small = new_engine(one.definition)
    one.load(small, FEW)
    event = small_event(first)
    small.publish(one.stream, event)  # compiles
    small.apply(one.stream, rest)
    calls, totals = [], []
    for number in range(options.repeat):
        engine = new_engine(one.definition)
        began = time.perf_counter()
        one.load(engine, one.n)
        calls.append(time.perf_counter() - began)
        engine.publish(one.stream, event)
        totals.append(time.perf_counter() - began)
        if number == 0:
            check(pairs_of(engine, one.stream, rest))
        del engine
    whole = best(totals)
    return Claim(f"load {one.name}", whole.seconds, "s until an event has matched", at_most=one.bar).tell(
        options,
        subscriptions=one.n,
        call_s=min(calls),
        spread=whole.spread,
        subscriptions_per_second=one.n / whole.seconds,
    )


def small_event(table: Any) -> dict[str, Any]:
    """One event as `publish` takes it."""
    (row,) = table.to_pylist()
    return dict(row["attributes"]) if "attributes" in row else row


# -- live --------------------------------------------------------------------------------------------


class Population:
    """Subscriptions that come and go: a batch of random ones leaves, as many new ones come.

    Ids ascend; what id n + k says is row k of the pool of new ones, begun again at its end.
    """

    def __init__(self, first: Any, pool: Any, batch: int, seed: int) -> None:
        self.first, self.pool, self.batch = first, pool, batch
        self.live = first["id"].to_numpy().copy()
        self.next_id = first.num_rows
        self._rng = np.random.default_rng(seed)
        self._parts = slices(plain(pool), batch)

    def turn(self) -> tuple[Any, Any]:
        """Who leaves, and the table of who comes."""
        places = self._rng.choice(len(self.live), self.batch, replace=False, shuffle=False)
        gone = self.live[places]
        ids = np.arange(self.next_id, self.next_id + self.batch)
        come = self._parts[(self.next_id - self.first.num_rows) // self.batch % len(self._parts)]
        self.live[places] = ids
        self.next_id += self.batch
        return gone, come.set_column(0, "id", pa.array(ids))

    def table(self) -> Any:
        """All that are there now."""
        n = self.first.num_rows
        old = self.first.take(pa.array(np.sort(self.live[self.live < n])))
        ids = np.sort(self.live[self.live >= n])
        new = self.pool.take(pa.array((ids - n) % self.pool.num_rows))
        return pa.concat_tables([old, new.set_column(0, "id", pa.array(ids))])


def plain(table: Any) -> Any:
    """Names spelled out, as they come in small batches, not as codes of a large dictionary."""
    lists = table["predicates"].combine_chunks()
    flat = pc.list_flatten(lists)
    fields = [field.name for field in flat.type]
    parts = [pc.struct_field(flat, name) for name in fields]
    parts = [p.cast(p.type.value_type) if pa.types.is_dictionary(p.type) else p for p in parts]
    structs = pa.StructArray.from_arrays(parts, fields)
    return table.set_column(1, "predicates", pa.ListArray.from_arrays(lists.offsets, structs))


def show_live(options: argparse.Namespace) -> Claims:
    """By the clock: an insert and a delete batch at every beat, matching in the time between."""
    work = make_workload("sparse", options.n, options.events, options.seed)
    steps = max(1, min(round(options.seconds * options.rate), options.pool) // options.update)
    rng = np.random.default_rng([options.seed, 1])
    pool = comparison_subscriptions(rng, steps * options.update, Comparisons())
    people = Population(work.subscriptions, pool, options.update, options.seed)
    engine = new_engine()
    engine.subscribe_predicates(STREAM.name, work.subscriptions)
    first = work.events.slice(0, CHECKED)
    expected = right_by_id(work.subscriptions, first)
    check_answers("the engine before", pairs_of(engine, STREAM.name, first), expected)
    batches = slices(work.events, options.batch)
    warm_live(work, people, batches[0], options)
    for batch in batches:
        engine.apply(STREAM.name, batch)
    say("matching alone")
    idle_events, idle_s = fed(engine, batches, options.seconds / 4)
    say(f"matching beside updates for {options.seconds:g} s")
    events, seconds, pauses = updated(engine, people, batches, options)
    changed = len(pauses) * options.update / seconds
    idle, live = idle_events / idle_s, events / seconds
    say(f"comparing the final state: {len(people.live):,} subscriptions")
    compare_final(engine, people, work.events.slice(0, options.compared))
    more = {
        "subscriptions": options.n,
        "repeat": 1,  # sustained for a while instead
        "seconds": seconds,
        "events_per_second": live,
        "idle_events_per_second": idle,
        "inserts_per_second": changed,
        "deletes_per_second": changed,
        "update_ms": {
            "median": 1e3 * np.median(pauses),
            "99 %": 1e3 * np.quantile(pauses, 0.99),
            "worst": 1e3 * max(pauses),
        },
    }
    rate = 0.99 * options.rate  # the clock stops within a beat
    yield Claim("live inserts", changed, "inserts/s and as many deletes/s", at_least=rate).tell(
        options, **more
    )
    yield Claim("live matching", live / idle, "of the events/s without updates", at_least=0.5).tell(
        options, **more
    )


def warm_live(work: Any, people: Population, batch: Any, options: argparse.Namespace) -> None:
    """Everything compiled, on an engine and a population of their own."""
    some = work.subscriptions.slice(0, 20 * options.update)
    own = Population(some, people.pool, min(options.update, some.num_rows), 0)
    engine = new_engine()
    engine.subscribe_predicates(STREAM.name, some)
    for _ in range(8):
        renew(engine, own)
        engine.apply(STREAM.name, batch)


def renew(engine: Engine, people: Population) -> float:
    gone, come = people.turn()
    began = time.perf_counter()
    engine.subscribe_predicates(STREAM.name, come)
    engine.unsubscribe_many(gone)
    return time.perf_counter() - began


def fed(engine: Engine, batches: Sequence[Any], seconds: float) -> tuple[int, float]:
    """Events matched, and the time it took: once through at least."""
    began, events, turn = time.perf_counter(), 0, 0
    while time.perf_counter() - began < seconds or turn < len(batches):
        batch = batches[turn % len(batches)]
        engine.apply(STREAM.name, batch)
        events, turn = events + batch.num_rows, turn + 1
    return events, time.perf_counter() - began


def updated(
    engine: Engine, people: Population, batches: Sequence[Any], options: argparse.Namespace
) -> tuple[int, float, list[float]]:
    """Events matched, the time, and the seconds of every update."""
    beat = options.update / options.rate
    pauses: list[float] = []
    began, events, turn = time.perf_counter(), 0, 0
    while (now := time.perf_counter() - began) < options.seconds:
        if len(pauses) * beat <= now:
            pauses.append(renew(engine, people))
            continue
        batch = batches[turn % len(batches)]
        engine.apply(STREAM.name, batch)
        events, turn = events + batch.num_rows, turn + 1
    return events, time.perf_counter() - began, pauses


def compare_final(engine: Engine, people: Population, events: Any) -> None:
    """The engine after all updates, a fresh one, and brute force tell the same."""
    table = people.table()
    fresh = new_engine()
    fresh.subscribe_predicates(STREAM.name, table)
    expected = np.sort(pairs_of(fresh, STREAM.name, events))
    first = events.slice(0, CHECKED)
    by_force = right_by_id(table, first)
    check_answers("a fresh engine", expected[(expected & 0xFFFFFFFF) < first.num_rows], by_force)
    check_answers("the engine after updates", pairs_of(engine, STREAM.name, events), expected)


# -- drift -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Halves:
    """Attributes in two halves, one in nearly all entries of events, the other rare.

    A subscription has ranges on `rare` attributes of the rare half and on `frequent` of the other, so
    that only where it hangs on rare ones it costs little. At the drift the halves change their roles:
    what was the best place is then the worst, and the best is another.
    """

    attributes: int = 200
    event_size: int = 20
    strange: int = 2  # entries of an event from the rare half
    rare: int = 2
    frequent: int = 2
    domain: int = 1000

    def subscriptions(self, rng: np.random.Generator, n: int, rare_half: int) -> Any:
        half, size = self.attributes // 2, self.rare + self.frequent
        popularity = Popularity(half)
        mine = popularity.distinct(rng, n, self.rare) + np.int32(rare_half * half)
        others = popularity.distinct(rng, n, self.frequent) + np.int32((1 - rare_half) * half)
        return subscription_table(
            laid_out(np.full(n, size)),
            attribute=coded(np.hstack([mine, others]).ravel(), attribute_names(self.attributes)),
            op=coded(rng.integers(0, 2, n * size, np.int8), ["<=", ">="]),
            number=rng.integers(1, self.domain + 1, n * size).astype(np.float64),
        )

    def events(self, rng: np.random.Generator, count: int, rare_half: int) -> Any:
        half, common = self.attributes // 2, self.event_size - self.strange
        popularity = Popularity(half)
        mine = popularity.distinct(rng, count, self.strange) + np.int32(rare_half * half)
        others = popularity.distinct(rng, count, common) + np.int32((1 - rare_half) * half)
        attribute = np.sort(np.hstack([mine, others]), axis=1).ravel()
        value = rng.integers(1, self.domain + 1, len(attribute)).astype(np.float64)
        offsets = laid_out(np.full(count, self.event_size))
        names = coded(attribute, attribute_names(self.attributes))
        return pa.table({"attributes": event_maps(offsets, names, value)})


def show_drift(options: argparse.Namespace) -> Claims:
    """Events and some of the subscriptions change their habits; beside it an index that knew no others."""
    halves = replace(Halves(), attributes=options.attributes)
    turned = replace(halves, rare=halves.rare - 1, frequent=halves.frequent + 1)
    rng = np.random.default_rng(options.seed)
    n, renewed = options.n, round(options.renewed * options.n)
    before = halves.subscriptions(rng, n, rare_half=1)
    come = turned.subscriptions(rng, renewed, rare_half=0)  # more of them want what is frequent now
    now = pa.concat_tables([come, before.slice(renewed)])  # under the ids of the oldest
    old = rows_of(halves.events(rng, options.events, rare_half=1), options.batch)
    told = halves.events(rng, options.events, rare_half=0)
    new, first = rows_of(told, options.batch), told.slice(0, CHECKED)
    expected = right_by_id(now, first)

    say(f"the old habit: {options.steady} batches")
    index = grown_up(before, old)
    for at in range(options.steady):
        index.match(old[at % len(old)])
    index.wait()
    steady = best([timed(matching(index, old)) for _ in range(options.repeat)]).us(options.events)

    say("the drift")
    index.remove(np.arange(renewed))
    index.add(np.arange(renewed), build_filters(STREAM, come))
    check_answers("auto after the drift", index.match(event_rows(first)), expected)
    after = best([timed(matching(index, [rows])) for rows in islice(new, 3)]).us(len(new[0]))

    fresh = grown_up(now, new)
    check_answers("a fresh auto", fresh.match(event_rows(first)), expected)
    aim = best([timed(matching(fresh, new)) for _ in range(options.repeat)]).us(options.events)

    say(f"feeding the new habit: {after:,.1f} µs per event right after the drift, {aim:,.1f} if built anew")
    batches = feed_until(index, new, options.batches, aim / 0.95)
    check_answers("auto when it has adapted", index.match(event_rows(first)), expected)
    require_equal("adapted and fresh", {"adapted": told_by(index, new), "fresh": told_by(fresh, new)})
    found = in_turns({"adapted": matching(index, new), "fresh": matching(fresh, new)}, options.repeat)
    us = {name: one.us(options.events) for name, one in found.items()}
    yield Claim("drift", us["fresh"] / us["adapted"], "of a fresh index's events/s", at_least=0.9).tell(
        options,
        subscriptions=n,
        renewed=renewed,
        events=options.events,
        us_per_event={"before": steady, "right after": after, **us},
        right_after_of_fresh=us["fresh"] / after,
        events_fed=batches * options.batch,
        fed_all=batches == options.batches,  # it did not come near the fresh one while it was fed
        spread={name: one.spread for name, one in found.items()},
    )


def grown_up(subscriptions: Any, batches: Sequence[Any]) -> Auto:
    """An index that has seen such events before most of its subscriptions came."""
    index = Auto()
    few = 1 + subscriptions.num_rows // 100
    for part in (subscriptions.slice(0, few), subscriptions.slice(few)):
        index.add(part["id"].to_numpy(), build_filters(STREAM, part))
        matching(index, batches)()
    index.wait()
    return index


def feed_until(index: MatchIndex, batches: Sequence[Any], most: int, us: float) -> int:
    """Match until half of the last ten batches took no longer than so much per event; how many it took."""
    good: list[bool] = []
    while len(good) < most:
        rows = batches[len(good) % len(batches)]
        good.append(1e6 * timed(matching(index, [rows])) <= us * len(rows))
        if sum(good[-10:]) >= 5:
            break
    return len(good)


# -- patterns ----------------------------------------------------------------------------------------

BOMB, ORDINARY = "(a+)+$", r"[a-z]+\d$"
MATCHED = {BOMB: 0, ORDINARY: 1}  # which of "aaa" and "b1"


def show_patterns(options: argparse.Namespace) -> Claims:
    """Each kind of pattern as subscriptions of its own."""
    regexes = regex_set(options.regexes, options.seed)
    about = word_set(max(1, options.regexes // 5), options.seed)
    yield matched_patterns("regexes", "rlike", regexes, about, options)
    words = word_set(options.words, options.seed)
    yield matched_patterns("words", "contains", words, words, options)
    yield no_backtracking(options)


def pattern_table(op: str, patterns: Sequence[str]) -> Any:
    count = len(patterns)
    return subscription_table(
        laid_out(np.ones(count, np.int64)), attribute=["text"] * count, op=[op] * count, text=list(patterns)
    )


def text_events(lines: Any) -> Any:
    count = len(lines)
    return pa.table({"texts": event_maps(laid_out(np.ones(count, np.int64)), ["text"] * count, lines)})


def matched_patterns(
    name: str, op: str, patterns: Sequence[str], words: list[str], options: argparse.Namespace
) -> Claim:
    """Built, compared with the reference (words: with brute force too), and measured."""
    events = text_events(texts(options.events, options.length, options.seed, words))
    table = pattern_table(op, patterns)
    first = events.slice(0, options.checked)
    say(f"building an index of {len(patterns):,} {name}")
    began = time.perf_counter()
    index = built_from(table)
    index.match(event_rows(first))  # the matcher is made when it is first needed
    build_s = time.perf_counter() - began
    found = np.sort(index.match(event_rows(first)))
    everyone = np.arange(len(patterns))
    if op == "contains":
        check_answers(f"auto with {name}", found, brute_answers(table, first))
        everyone = everyone[:: max(1, len(everyone) // SAMPLE)]
    mine = found[np.isin(found >> 32, everyone)]
    check_answers(f"auto with {name}", mine, reference_answers(STREAM, table, event_rows(first), everyone))
    rows = event_rows(events)
    matches = len(index.match(rows))
    index.wait()
    taken = best([timed(matching(index, [rows])) for _ in range(options.repeat)])
    return Claim(f"patterns {name}", taken.seconds, "s for the batch", at_most=2.0).tell(
        options,
        patterns=len(patterns),
        events=options.events,
        characters=options.length,
        us_per_event=taken.us(options.events),
        spread=taken.spread,
        build_s=build_s,
        matches=matches,
    )


def no_backtracking(options: argparse.Namespace) -> Claim:
    """`(a+)+$` against aaa...ab beside an ordinary regex; neither matches."""
    lines = ["a" * (options.long - i) + "b" for i in range(10)]  # all different: none is passed over
    rows, short = event_rows(text_events(lines)), event_rows(text_events(["aaa", "b1"]))
    runs = {}
    for regex in (BOMB, ORDINARY):
        index = built_from(pattern_table("rlike", [regex]))
        check_answers(f"auto with {regex}", index.match(rows), np.empty(0, np.int64))
        check_answers(f"auto with {regex}", index.match(short), np.array([MATCHED[regex]]))
        runs[regex] = matching(index, [rows])
    found = in_turns(runs, options.repeat)
    ratio = found[BOMB].seconds / found[ORDINARY].seconds
    return Claim("patterns backtracking", ratio, f"times {ORDINARY}", at_most=5.0).tell(
        options,
        regex=BOMB,
        characters=options.long,
        ms_per_event={name: 1e3 * one.seconds / len(lines) for name, one in found.items()},
        spread={name: one.spread for name, one in found.items()},
    )


# -- options -----------------------------------------------------------------------------------------


COMMANDS: dict[Callable[[argparse.Namespace], Claims], dict[str, float]] = {
    show_match: {
        "sparse": MILLION,
        "dense": 100_000,
        "interval": 100_000,
        "sparse_events": 10_000,
        "dense_events": 5120,
        "interval_events": 5120,
        "slow_events": 1000,
        "batch": 10_000,
    },
    show_large: {"n": 10 * MILLION, "events": 10_000, "batch": 10_000, "builds": 5},
    show_apply: {"n": MILLION, "events": 50_000, "batch": 10_000},
    show_load: {"predicates": MILLION, "template": MILLION, "texts": 100_000},
    show_live: {
        "n": MILLION,
        "events": 50_000,
        "batch": 10_000,
        "compared": 2000,
        "seconds": 30.0,
        "rate": 100_000,
        "update": 1000,
        "pool": MILLION,
    },
    show_drift: {
        "n": MILLION,
        "attributes": Halves.attributes,
        "renewed": 0.2,
        "events": 10_000,
        "batch": 1000,
        "steady": 20,
        "batches": 400,
    },
    show_patterns: {
        "regexes": 10_000,
        "words": 100_000,
        "events": 10_000,
        "length": 200,
        "long": 100_000,
        "checked": 10,
    },
}


def parser() -> argparse.ArgumentParser:
    return parser_of(__doc__, COMMANDS, repeat=5)


def parser_of(text: str | None, commands: Mapping[Any, Mapping[str, Any]], repeat: int) -> Any:
    """A subcommand for each function that shows something, with its sizes as options."""
    out = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    known = out.add_subparsers(required=True, metavar="claim")
    for show, sizes in commands.items():
        about = (show.__doc__ or "").splitlines()[0]
        own = known.add_parser(show.__name__.removeprefix("show_"), help=about, description=about)
        for option, size in {**sizes, "repeat": repeat, "seed": 0}.items():
            told = f"(default {size:,})"
            own.add_argument(f"--{option.replace('_', '-')}", type=type(size), default=size, help=told)
        own.add_argument("--no-bar", action="store_true", help="only measure: a missed bar is no failure")
        own.set_defaults(show=show)
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Show what is asked for; 0 if all of it is right and holds."""
    return show_claims(parser().parse_args(argv))


def show_claims(options: argparse.Namespace) -> int:
    """What `parser_of` has understood; 0 if all of it is right and holds."""
    try:
        claims = list(options.show(options))
    except TocsinError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if options.no_bar or all(claim.met for claim in claims) else 1


if __name__ == "__main__":
    keep_freed()  # so that the first build alone pays for fresh pages
    sys.exit(main())
