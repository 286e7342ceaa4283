"""Inserts and deletes beside matching: `live` of `filters_show.py`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from claims import Claim, Claims, say
from filters_answers import (
    new_engine,
    pairs_of,
    right_by_id,
    slices,
)

from tocsin import Engine
from tocsin.lab.bench.brute_force import check_answers
from tocsin.lab.bench.filter_workloads import Comparisons, comparison_subscriptions, make_workload
from tocsin.lab.bench.match import (
    CHECKED,
    STREAM,
)


class Population:
    """Subscriptions that are replaced: each turn removes a batch of random ones and adds as many new ones.

    Ids ascend; id n + k is row k of the pool of new ones, which starts over at its end.
    """

    def __init__(self, first: Any, pool: Any, batch: int, seed: int) -> None:
        self.first, self.pool, self.batch = first, pool, batch
        self.live = first["id"].to_numpy().copy()
        self.next_id = first.num_rows
        self._rng = np.random.default_rng(seed)
        self._parts = slices(plain(pool), batch)

    def turn(self) -> tuple[Any, Any]:
        """The ids to remove, and a table of subscriptions to add."""
        places = self._rng.choice(len(self.live), self.batch, replace=False, shuffle=False)
        removed = self.live[places]
        ids = np.arange(self.next_id, self.next_id + self.batch)
        added = self._parts[(self.next_id - self.first.num_rows) // self.batch % len(self._parts)]
        self.live[places] = ids
        self.next_id += self.batch
        return removed, added.set_column(0, "id", pa.array(ids))

    def table(self) -> Any:
        """The current subscriptions."""
        n = self.first.num_rows
        old = self.first.take(pa.array(np.sort(self.live[self.live < n])))
        ids = np.sort(self.live[self.live >= n])
        new = self.pool.take(pa.array((ids - n) % self.pool.num_rows))
        return pa.concat_tables([old, new.set_column(0, "id", pa.array(ids))])


def plain(table: Any) -> Any:
    """Plain strings, as in small batches, instead of codes of a large dictionary."""
    lists = table["predicates"].combine_chunks()
    flat = pc.list_flatten(lists)
    fields = [field.name for field in flat.type]
    parts = [pc.struct_field(flat, name) for name in fields]
    parts = [p.cast(p.type.value_type) if pa.types.is_dictionary(p.type) else p for p in parts]
    structs = pa.StructArray.from_arrays(parts, fields)
    return table.set_column(1, "predicates", pa.ListArray.from_arrays(lists.offsets, structs))


def show_live(options: argparse.Namespace) -> Claims:
    """At a fixed rate: a batch of inserts and deletes at every tick, matching in between."""
    work = make_workload("sparse", options.n, options.events, options.seed)
    steps = max(1, min(round(options.seconds * options.rate), options.pool) // options.update)
    rng = np.random.default_rng([options.seed, 1])
    pool = comparison_subscriptions(rng, steps * options.update, Comparisons())
    population = Population(work.subscriptions, pool, options.update, options.seed)
    engine = new_engine()
    engine.subscribe_predicates(STREAM.name, work.subscriptions)
    first = work.events.slice(0, CHECKED)
    expected = right_by_id(work.subscriptions, first)
    check_answers("the engine before", pairs_of(engine, STREAM.name, first), expected)
    batches = slices(work.events, options.batch)
    warm_live(work, population, batches[0], options)
    for batch in batches:
        engine.apply(STREAM.name, batch)
    say("matching alone, before")
    before = match_for(engine, batches, options.seconds / 4)
    say(f"matching beside updates for {options.seconds:g} s")
    events, seconds, pauses = match_while_updating(engine, population, batches, options)
    changed = len(pauses) * options.update / max(options.seconds, len(pauses) * options.update / options.rate)
    say(f"comparing the final state: {len(population.live):,} subscriptions")
    fresh = compare_final(engine, population, work.events.slice(0, options.compared))
    say("matching alone, afterwards, with a fresh engine of the final state")
    match_for(fresh, batches, 0)
    after = match_for(fresh, batches, options.seconds / 4)
    idle, live = (before[0] + after[0]) / (before[1] + after[1]), events / seconds
    more = {
        "subscriptions": options.n,
        "repeat": 1,  # one sustained run
        "seconds": seconds,
        "events_per_second": live,
        "idle_events_per_second": idle,  # the machine is faster at one time than at another
        "idle_before_and_after": [before[0] / before[1], after[0] / after[1]],
        "inserts_per_second": changed,
        "deletes_per_second": changed,
        "update_ms": {
            "median": 1e3 * np.median(pauses),
            "99 %": 1e3 * np.quantile(pauses, 0.99),
            "worst": 1e3 * max(pauses),
        },
    }
    rate = 0.99 * options.rate  # the time ends within a tick
    yield Claim("live inserts", changed, "inserts/s and as many deletes/s", at_least=rate).show(
        options, **more
    )
    yield Claim("live matching", live / idle, "of the events/s without updates", at_least=0.5).show(
        options, **more
    )


def warm_live(work: Any, population: Population, batch: Any, options: argparse.Namespace) -> None:
    """Compile all kernels, on a separate engine and population."""
    some = work.subscriptions.slice(0, 20 * options.update)
    own = Population(some, population.pool, min(options.update, some.num_rows), 0)
    engine = new_engine()
    engine.subscribe_predicates(STREAM.name, some)
    for _ in range(8):
        replace_batch(engine, own)
        engine.apply(STREAM.name, batch)


def replace_batch(engine: Engine, population: Population) -> float:
    removed, added = population.turn()
    began = time.perf_counter()
    engine.subscribe_predicates(STREAM.name, added)
    engine.unsubscribe_many(removed)
    return time.perf_counter() - began


def match_for(engine: Engine, batches: Sequence[Any], seconds: float) -> tuple[int, float]:
    """Match all batches at least once, and for at least `seconds`; return events and seconds."""
    began, events, turn = time.perf_counter(), 0, 0
    while time.perf_counter() - began < seconds or turn < len(batches):
        batch = batches[turn % len(batches)]
        engine.apply(STREAM.name, batch)
        events, turn = events + batch.num_rows, turn + 1
    return events, time.perf_counter() - began


def match_while_updating(
    engine: Engine, population: Population, batches: Sequence[Any], options: argparse.Namespace
) -> tuple[int, float, list[float]]:
    """Match while updating; return events, seconds, and the seconds of every update."""
    tick = options.update / options.rate
    pauses: list[float] = []
    began, events, turn = time.perf_counter(), 0, 0
    while (now := time.perf_counter() - began) < options.seconds:
        if len(pauses) * tick <= now:
            pauses.append(replace_batch(engine, population))
            continue
        batch = batches[turn % len(batches)]
        engine.apply(STREAM.name, batch)
        events, turn = events + batch.num_rows, turn + 1
    return events, time.perf_counter() - began, pauses


def compare_final(engine: Engine, population: Population, events: Any) -> Engine:
    """Compare the engine after all updates with a fresh one and brute force; return the fresh one."""
    table = population.table()
    fresh = new_engine()
    fresh.subscribe_predicates(STREAM.name, table)
    expected = np.sort(pairs_of(fresh, STREAM.name, events))
    first = events.slice(0, CHECKED)
    by_force = right_by_id(table, first)
    check_answers("a fresh engine", expected[(expected & 0xFFFFFFFF) < first.num_rows], by_force)
    check_answers("the engine after updates", pairs_of(engine, STREAM.name, events), expected)
    return fresh
