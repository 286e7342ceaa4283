"""Matching alone and through the engine: `match`, `large` and `apply` of `filters_show.py`."""

from __future__ import annotations

import argparse
import time

import numpy as np
from claims import Claim, Claims, Run, best, in_turns, say
from filters_answers import (
    FEW,
    built_from,
    matching,
    new_engine,
    pairs_of,
    require_equal,
    rows_of,
    slices,
)

from tocsin.lab.bench.brute_force import brute_answers, check_answers
from tocsin.lab.bench.filter_workloads import make_workload
from tocsin.lab.bench.match import (
    CHECKED,
    PRIME,
    STREAM,
    MatchSetting,
    build_index,
    checksum,
    choose_indexes,
    event_rows,
    match_totals,
    prepare,
)
from tocsin.match.index import Auto

RIVALS = ("opindex", "counting")
MATCH = {"sparse": ("opindex", 6.0), "dense": ("counting", 60.0), "interval": ("counting", 40.0)}


def show_match(options: argparse.Namespace) -> Claims:
    """Three workloads, three indexes; the slow ones match only the first events of the same stream."""
    sizes = {
        "sparse": (options.sparse, options.sparse_events),
        "dense": (options.dense, options.dense_events),
        "interval": (options.interval, options.interval_events),
    }
    for kind, (rival, bar) in MATCH.items():
        n, count = sizes[kind]
        work = make_workload(kind, n, count, options.seed)
        prepared = prepare(work, MatchSetting(batch=options.batch, seed=options.seed), say)
        few = work.events.slice(0, options.slow_events)
        fewer = rows_of(few, options.batch)
        indexes, builds = {}, {}
        for name, make in choose_indexes(("auto", *RIVALS)).items():
            some = np.arange(n) < FEW
            build_index(name, make, prepared._replace(filters=prepared.filters.take(some)))  # compiles
            indexes[name], builds[name] = build_index(name, make, prepared)
            check_answers(f"the index {name}", indexes[name].match(prepared.checked), prepared.expected)
        require_equal(kind, {name: match_totals(index, fewer) for name, index in indexes.items()})
        matches, total = match_totals(indexes["auto"], prepared.batches)
        indexes["auto"].wait()
        batches = {name: prepared.batches if name == "auto" else fewer for name in indexes}
        runs = {name: matching(index, batches[name]) for name, index in indexes.items()}
        found = in_turns(runs, options.repeat)
        us = {name: found[name].us(sum(map(len, batches[name]))) for name in found}
        yield Claim(f"match {kind}", us[rival] / us["auto"], f"times faster than {rival}", at_least=bar).show(
            options,
            subscriptions=n,
            events={name: sum(map(len, own)) for name, own in batches.items()},
            us_per_event=us,
            spread={name: one.spread for name, one in found.items()},
            build_s={name: prepared.flatten_s + seconds for name, seconds in builds.items()},
            bytes_per_subscription={name: i.stats()["bytes"] / n for name, i in indexes.items()},
            matches=matches,
            checksum=total,
        )


def show_large(options: argparse.Namespace) -> Claims:
    """One index of very many subscriptions, with one thread and with two."""
    n, count = options.n, options.events
    work = make_workload("sparse", n, count, options.seed)
    first = work.events.slice(0, CHECKED)
    say(f"finding the right answers for {first.num_rows} events")
    expected = brute_answers(work.subscriptions, first)
    built_from(work.subscriptions.slice(0, FEW), 2).match(event_rows(first))  # compiles
    index, times = None, []
    for _ in range(options.builds):
        index = None  # frees the last one first
        say(f"building an index of {n:,} subscriptions")
        began = time.perf_counter()
        index = built_from(work.subscriptions, 2)
        times.append(time.perf_counter() - began)
    assert index is not None
    check_answers("the index auto", index.match(event_rows(first)), expected)
    built = best(times)
    size = {"subscriptions": n}
    yield Claim("large build", n / built.seconds, "subscriptions/s", at_least=1e6).show(
        options, **size, build_s=built.seconds, first_s=times[0], spread=built.spread, repeat=len(times)
    )
    batches = rows_of(work.events, options.batch)
    totals = {}
    for threads in (1, 2):
        index.threads = threads
        totals[threads] = match_totals(index, batches)
    require_equal("one thread and two", totals)
    index.wait()
    yield Claim("large memory", index.stats()["bytes"] / n, "bytes per subscription", at_most=80).show(
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
    more = {**size, "events": count, "us_per_event": us, "spread": spread, "matches": totals[1][0]}
    yield Claim("large matching", us["1"], "µs per event", at_most=30).show(options, **more)
    yield Claim("large threads", us["1"] / us["2"], "times faster with two", at_least=1.6).show(
        options, **more
    )


def show_apply(options: argparse.Namespace) -> Claims:
    """The engine, and the same index alone."""
    work = make_workload("sparse", options.n, options.events, options.seed)
    prepared = prepare(work, MatchSetting(batch=options.batch, seed=options.seed), say)
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
    totals = {"index": match_totals(index, prepared.batches), "engine": (matches, total % PRIME)}
    require_equal("index and engine", totals)
    index.wait()

    def apply() -> None:
        for batch in batches:
            engine.apply(STREAM.name, batch)

    found = in_turns({"index": matching(index, prepared.batches), "engine": apply}, options.repeat)
    us = {name: one.us(options.events) for name, one in found.items()}
    yield Claim("apply", us["engine"] / us["index"], "times the index alone", at_most=2.0).show(
        options,
        subscriptions=options.n,
        events=options.events,
        batch=options.batch,
        us_per_event=us,
        spread={name: one.spread for name, one in found.items()},
        matches=matches,
    )
