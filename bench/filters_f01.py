"""The experiments of F01 (filtering, 2001), section 6, at a scale that fits the machine.

    throughput   events per second over N: counting, propagation, propagation with prefetch, dynamic
    matching     the same as time per event
    memory       bytes over N
    loading      seconds to insert all, over N
    operators    time per event over the share of equality among the free predicates
    schema       drift of the attributes that subscriptions use: events per second over time
    skew         drift of values: the same
    maintenance-schema, maintenance-skew   seconds of removing and inserting, over time

    python bench/filters_f01.py --scale 0.01
    python bench/filters_f01.py --figure schema,skew

`frozen` is the paper's no-change strategy: the dynamic index with its tables from before the drift. (The
paper's numbers are lost from its text: N goes to 6 million, five predicates over 32 attributes, values
1..35, two of the predicates on fixed attributes.)
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from claims import say
from common import (
    Figure,
    Rows,
    Sweep,
    chosen_figures,
    draw_figures,
    existing,
    main_of,
    parser,
    run_sweep,
    write_csv,
)

from tocsin.errors import TocsinError
from tocsin.lab.bench.brute_force import brute_answers, check_answers
from tocsin.lab.bench.filter_workloads import Drift, Phase, drift, make_workload
from tocsin.lab.bench.match import PRIME, STREAM, build_filters, checksum, choose_indexes, event_rows
from tocsin.match.base import MatchIndex, pack, unpack
from tocsin.match.published.clustering import Dynamic

MILLION = 1_000_000
INDEXES = ("counting", "propagation", "propagationprefetch", "static", "dynamic", "auto")
DRIFTING = ("propagation", "dynamic", "auto")
SETTING = {"attributes": 32, "smallest": 5, "largest": 5, "event_size": 32, "domain": 35, "fixed": 2}
CHECKED = 20  # events per phase compared with brute force

FIGURES = [
    Figure("throughput", "Events per second over N", "n", "events_per_second"),
    Figure("matching", "Matching time over N", "n", "us_per_event"),
    Figure("memory", "Memory over N", "n", "megabytes"),
    Figure("loading", "Loading time over N", "n", "build_s"),
    Figure("operators", "Matching time over the share of = (free predicates)", "operators", "us_per_event"),
    Figure("schema", "Schema drift: events per second over time", "schema", "events_per_second"),
    Figure("skew", "Skew drift: events per second over time", "skew", "events_per_second"),
    Figure("maintenance-schema", "Schema drift: cost of updates", "schema", "maintenance_s"),
    Figure("maintenance-skew", "Skew drift: cost of updates", "skew", "maintenance_s"),
]


def sweeps(options: argparse.Namespace) -> dict[str, Sweep]:
    draw = partial(make_workload, "sparse", events=options.events, seed=options.seed, **SETTING)
    indexes = existing(INDEXES, options.index) or ("scan",)
    counts = [scaled(m * MILLION, options) for m in (1, 2, 3, 4, 5, 6)]
    by_n = {n: partial(draw, n, equality=1.0) for n in counts}
    shares = {share: partial(draw, counts[2], equality=share) for share in (1.0, 0.75, 0.5, 0.25, 0.0)}
    return {
        "n": Sweep("n", "N", by_n, indexes),
        "operators": Sweep("operators", "share of =", shares, indexes),
    }


def scaled(n: int, options: argparse.Namespace) -> int:
    return max(100, round(n * options.scale))


# -- drift -------------------------------------------------------------------------------------------


class Watched:
    """An index through the phases; ids are slots modulo the size of the population."""

    def __init__(self, name: str, index: MatchIndex, frozen: bool, n: int) -> None:
        self.name, self.index, self.frozen, self.n = name, index, frozen, n

    def update(self, phase: Phase, filters, ids, few) -> float:
        """Seconds of removing and inserting, with the work that an index defers to the next match."""
        if self.frozen and phase.share > 0:
            freeze(self.index)
        began = time.perf_counter()
        if len(phase.removed):
            self.index.remove(phase.removed % self.n)
        self.index.add(ids % self.n, filters)
        self.index.match(few)
        return time.perf_counter() - began

    def match(self, batches, repeat: int) -> tuple[float, int]:
        """Seconds of the best run over all batches, and the checksum."""
        times, total, first = [], 0, 0
        for rows in batches:
            slot, event = unpack(self.index.match(rows))
            total += checksum(slot, event + first)
            first += len(rows)
        for _ in range(repeat):
            began = time.perf_counter()
            for rows in batches:
                self.index.match(rows)
            times.append(time.perf_counter() - began)
        return min(times), total % PRIME


def freeze(index: Dynamic) -> None:
    """Freeze the tables; subscriptions are still placed in the best existing one."""
    index.config = replace(index.config, margin=math.inf, power=math.inf, least=0.0)


def run_drift(kind: str, options: argparse.Namespace) -> Rows:
    """Run all indexes through all phases."""
    n = scaled(3 * MILLION, options)
    watched = list(watch(options, n))
    rows: Rows = []
    population = None
    for phase in drift(kind, n, options.events, options.seed, Drift()):
        work = phase.workload
        population = work.subscriptions if population is None else pa.concat_tables(
            [population.slice(len(phase.removed)), work.subscriptions]
        )  # fmt: skip
        filters = build_filters(STREAM, work.subscriptions)
        ids = work.subscriptions["id"].to_numpy()
        batches = [
            event_rows(work.events.slice(at, options.batch))
            for at in range(0, work.events.num_rows, options.batch)
        ]
        some, few = work.events.slice(0, CHECKED), event_rows(work.events.slice(0, 1))
        expected = right(population, some, n)
        say(f"{kind}: phase {phase.number}, {phase.share:.0%} of the subscriptions are of the new kind")
        sums = {}
        for one in watched:
            took = one.update(phase, filters, ids, few)
            check_answers(f"{one.name} in phase {phase.number}", one.index.match(event_rows(some)), expected)
            seconds, sums[one.name] = one.match(batches, options.repeat)
            rate = work.events.num_rows / seconds
            say(f"  {one.name}: {rate:,.0f} events per second, updates took {took:.2f} s")
            rows.append(
                {
                    "phase": phase.number,
                    "index": one.name,
                    "share": phase.share,
                    "subscriptions": n,
                    "renewed": len(phase.removed),
                    "events": work.events.num_rows,
                    "events_per_second": rate,
                    "us_per_event": 1e6 / rate,
                    "maintenance_s": took if phase.number else 0.0,  # phase 0 is loading
                    "megabytes": one.index.stats()["bytes"] / 1e6,
                    "checksum": sums[one.name],
                }
            )
        if len(set(sums.values())) > 1:
            raise TocsinError(f"in phase {phase.number} the indexes find different matches: {sums}")
        if options.points and phase.number + 1 >= options.points:
            break
    return rows


def right(population, events, n: int):
    """The matches that brute force finds in the population, by slot."""
    place, event = unpack(brute_answers(population, events))
    return np.sort(pack(population["id"].to_numpy()[place] % n, event))


def watch(options: argparse.Namespace, n: int):
    """The indexes to run; the dynamic one also frozen."""
    names = existing(DRIFTING, options.index) or ("scan",)
    for name, make in choose_indexes(names, options.threads).items():
        yield Watched(name, make(), False, n)
        if name == "dynamic":
            yield Watched("dynamic, frozen", make(), True, n)


def main() -> None:
    names = [figure.name for figure in FIGURES]
    options = parser(__doc__.splitlines()[0], names, scale=0.1).parse_args()
    figures = chosen_figures(FIGURES, options.figure)
    known = sweeps(options)
    measured: dict[str, tuple[str, Rows]] = {}
    for name in dict.fromkeys(figure.sweep for figure in figures):
        if name in known:
            measured[name] = known[name].parameter, run_sweep(known[name], options)
        else:
            measured[name] = "phase", run_drift(name, options)
        write_csv(options.out / f"f01-{name}.csv", measured[name][1])
    draw_figures("F01", figures, measured, options)


if __name__ == "__main__":
    main_of(main)
