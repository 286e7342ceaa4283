"""Continuous joins as in chapter 4 of T07: figures 4.7 to 4.11 and 4.13 to 4.21, and the project's bars.

    python bench/joins_t07.py                          all figures, at a fifth of the chapter's sizes
    python bench/joins_t07.py --figure 4.7i,4.10i --scale 1
    python bench/joins_t07.py show                     compare with the bars
    python bench/joins_t07.py show --figure routing    ... of ssi, growth, band, routing, hotspots

Strategies take turns and the best of several rounds counts, so that other load on the machine slows all of
them. If two are nearly equal, the best round says little on a shared machine. So DYNAMIC is compared with its
rival round by round, back and forth; the median of the ratios counts, and their quartiles are printed. Before
that, all answers are compared with one another. (Figures 4.9, on hotspots, and 4.11, on maintenance, are
about joins here; `stabbing.py` has the partitions alone, and figure 4.12.)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from claims import say
from common import RESULTS, Rows, as_markdown, listed, main_of, plot, write_csv, write_page

from tocsin.errors import TocsinError
from tocsin.join._kernels.equality import PLANS, each_choice
from tocsin.join.plan_choice import CheapestPlan
from tocsin.join.strategies.base import JoinKind, JoinStrategy
from tocsin.lab.bench.join import JoinSetting, JoinWorkload, build_strategy, draw_joins, find_strategies, load
from tocsin.stab.hotspots import HotspotConfig

FIXED = ("joinfirst-e", "joinfirst-s", "selectfirst", "hotspot")
ROUTED = (*FIXED, "dynamic")
MIXED = {"groups": 60, "joining": 10, "key_deviation": 0.05, "own_deviation": 0.05, "affected": 0.03}
COVERED = tuple(range(10, 101, 10))  # percentages of queries at the points of groups
HOT = 0.002  # of the queries make a group hot
_FAR = 3.0  # times the best: no more rounds
_SHORT = 0.02  # seconds that a run should take
DECISION, BEST = "share of decisions", "share of best decisions"


# -- measuring ---------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """Microseconds per event: the best round, and all of them."""

    us: float
    strategy: JoinStrategy
    rounds: np.ndarray


def measure(
    work: JoinWorkload, names: Iterable[str], rounds: int = 5, seconds: float = 0.1
) -> dict[str, Measured]:
    """Times by strategy; all take turns. Strategies far behind after three rounds get no more rounds."""
    storage, known = load(work), find_strategies(work.kind)
    built = {name: build_strategy(known[name], storage, work.ranges)[0] for name in names}
    _compare(built, work)
    slowest = max(_run_of(strategy, work, 8)() for strategy in built.values())
    events = int(min(len(work.event_keys), max(50, 1e6 * seconds / slowest)))  # the same for all
    runs = {name: _run_of(strategy, work, events) for name, strategy in built.items()}
    times: dict[str, list[float]] = {name: [] for name in built}
    for turn in range(rounds):
        best = min((min(mine) for mine in times.values() if mine), default=np.inf)
        for name in list(runs)[:: 1 if turn % 2 else -1]:  # back and forth
            if turn < max(3, min(5, rounds)) or min(times[name]) < _FAR * best:
                times[name].append(runs[name]())
    return {name: Measured(min(mine), built[name], np.array(mine)) for name, mine in times.items()}


def _compare(built: dict[str, JoinStrategy], work: JoinWorkload) -> None:
    for key, value in zip(work.event_keys[:8].tolist(), work.event_values[:8].tolist(), strict=True):
        found = {name: np.sort(strategy.affected(0, key, value)) for name, strategy in built.items()}
        first = next(iter(found))
        for name, slots in found.items():
            if not np.array_equal(slots, found[first]):
                raise TocsinError(f"{name} finds {len(slots)} queries, {first} {len(found[first])}")


def _run_of(strategy: JoinStrategy, work: JoinWorkload, events: int) -> Callable[[], float]:
    """A run over the first events: microseconds per event. The first pass finds the caches of the previous
    strategy; if it is short, it is not counted."""
    plan, order, out = strategy.plan(0), strategy.storage.other(0), strategy.buffer()
    keys, values = work.event_keys[:events], work.event_values[:events]
    counts = np.zeros(len(keys), np.int64)

    def once() -> float:
        began = time.perf_counter()
        strategy.batch(plan, order, keys, values, out, counts)
        return time.perf_counter() - began

    def run() -> float:
        first = once()
        if first > _SHORT:
            return 1e6 * first / len(keys)
        passes = max(1, int(_SHORT / first))
        return 1e6 * sum(once() for _ in range(passes)) / passes / len(keys)

    run()
    return run


def event_times(built: dict[str, JoinStrategy], work: JoinWorkload, events: int = 150) -> np.ndarray:
    """Microseconds by event and plan of DYNAMIC, each event several times in a row."""
    out = np.zeros((events, len(PLANS)))
    for j, name in enumerate(PLANS):
        strategy = built[name]
        plan, order, found = strategy.plan(0), strategy.storage.other(0), strategy.buffer()
        for i in range(events):
            key, value = np.repeat(work.event_keys[i], 16), np.repeat(work.event_values[i], 16)
            counts, best = np.zeros(16, np.int64), np.inf
            for few in (1, 1, 4, 4):
                began = time.perf_counter()
                strategy.batch(plan, order, key[:few], value[:few], found, counts)
                best = min(best, (time.perf_counter() - began) / few)
            out[i, j] = 1e6 * best
    return out


def deciding_us(dynamic: CheapestPlan, work: JoinWorkload) -> float:
    """Microseconds per event to choose a plan, without executing it."""
    keys, values = np.tile(work.event_keys, 10), np.tile(work.event_values, 10)
    plan, choices = dynamic.plan(0), np.empty(len(keys), np.int64)
    best = np.inf
    for _ in range(5):
        began = time.perf_counter()
        each_choice(plan, keys, values, choices)
        best = min(best, time.perf_counter() - began)
    return 1e6 * best / len(choices)


# -- figures -----------------------------------------------------------------------------------------


def throughput(
    parameter: str, points: dict[Any, JoinSetting], names: tuple[str, ...], kind: JoinKind = JoinKind.EQUALITY
) -> Rows:
    rows: Rows = []
    for value, setting in points.items():
        for name, (us, strategy, _) in measure(draw_joins(kind, setting), names).items():
            rows.append({parameter: value, "index": name, "events_per_second": 1e6 / us, "us_per_event": us})
            rows[-1] |= {"bytes_per_subscription": strategy.bytes / max(1, len(strategy))}
        say(f"  {parameter} {value}: {_line(rows, parameter, value)}")
    return rows


def coverage(base: JoinSetting, rounds: int = 7, events: int = 400) -> Rows:
    """Over the percentage of queries in hotspots.

    Rows, events and the queries' own ranges are the same in all workloads, and the workloads take turns: only
    the coverage differs. Groups are hot from `HOT` of the queries on: the groups around points are, those
    that scattered queries form by chance are not.
    """
    runs: dict[tuple[float, str], Callable[[], float]] = {}
    first: JoinWorkload | None = None
    for clustered in COVERED:
        work = draw_joins(JoinKind.EQUALITY, replace(base, scattered=1 - clustered / 100))
        first = first or work
        work = first._replace(ranges=work.ranges)
        storage, known = load(work), find_strategies(JoinKind.EQUALITY)
        hot = partial(known["hotspot"], config=HotspotConfig(HOT))
        kinds = {"selectfirst": known["selectfirst"], "hotspot": hot}
        built = {name: build_strategy(kind, storage, work.ranges)[0] for name, kind in kinds.items()}
        _compare(built, work)
        percent = round(100 * built["hotspot"].stats()["coverage"][0], 1)
        runs |= {(percent, name): _run_of(strategy, work, events) for name, strategy in built.items()}
        say(f"  coverage {percent}: built")
    times: dict[tuple[float, str], list[float]] = {key: [] for key in runs}
    for turn in range(rounds):
        for key in list(runs)[:: 1 if turn % 2 else -1]:
            times[key].append(runs[key]())
    return [
        {"coverage": percent, "index": name, "us_per_event": min(mine), "median": float(np.median(mine))}
        for (percent, name), mine in times.items()
    ]


def _line(rows: Rows, parameter: str, value: Any) -> str:
    mine = [row for row in rows if row[parameter] == value]
    return ", ".join(f"{row['index']} {row['us_per_event']:,.1f} µs" for row in mine)


def routing(parameter: str, points: dict[Any, JoinSetting]) -> tuple[Rows, Rows, Rows]:
    """Throughput, with OPT; decisions; the share of them within a tenth of the best."""
    times, decisions, right = [], [], []
    for value, setting in points.items():
        work = draw_joins(JoinKind.EQUALITY, setting)
        found = measure(work, ROUTED)
        dynamic = found["dynamic"].strategy
        choices = dynamic.choices(0, work.event_keys, work.event_values)
        each = event_times({name: one.strategy for name, one in found.items()}, work)
        chosen = each[np.arange(len(each)), choices[: len(each)]]
        opt = found["dynamic"].us * each.min(axis=1).sum() / chosen.sum()
        for name, us in [*((name, one.us) for name, one in found.items()), ("opt", opt)]:
            times.append({parameter: value, "index": name, "events_per_second": 1e6 / us, "us_per_event": us})
        share = np.bincount(choices, minlength=len(PLANS)) / len(choices)
        decisions += [
            {parameter: value, "index": n, DECISION: float(s)} for n, s in zip(PLANS, share, strict=True)
        ]
        good = float((chosen <= 1.1 * each.min(axis=1)).mean())
        right.append({parameter: value, "index": "dynamic", BEST: good})
        say(f"  {parameter} {value}: {_line(times, parameter, value)}")
    return times, decisions, right


def maintenance(base: JoinSetting, updates: int = 500) -> Rows:
    """Microseconds to add or remove one query."""
    rows: Rows = []
    work = draw_joins(JoinKind.BAND, base)
    n = len(work.ranges.low)
    for name in ("qouter", "douter", "mj", "ssi", "hotspot"):
        strategy, _ = build_strategy(find_strategies(JoinKind.BAND)[name], load(work), work.ranges)
        rng = np.random.default_rng(base.seed)
        slots = rng.permutation(n)[:updates]
        began = time.perf_counter()
        for slot in slots:
            strategy.remove(np.array([slot]))
            strategy.add(np.array([slot]), work.ranges.take(np.array([slot])))
        us = 1e6 * (time.perf_counter() - began) / (2 * updates)
        rows.append({"queries": n, "index": name, "us_per_update": us})
        say(f"  {name}: {us:,.1f} µs per update")
    return rows


Figures = dict[str, tuple[str, Callable[[], Any]]]  # title and sweep by name


def figures(scale: float, seed: int) -> Figures:
    """All figures; a routing sweep gives three."""
    n = max(1000, round(100_000 * scale))
    base = JoinSetting(queries=n, rows=n, events=1000, seed=seed)
    many = [max(10, round(q * scale)) for q in (100, 1000, 10_000, 100_000)]
    return {**equality_figures(base, many), **band_figures(base, many), **routing_figures(base)}


def equality_figures(base: JoinSetting, many: list[int]) -> Figures:
    plain = ("naive", "joinfirst-e", "selectfirst", "ssi")
    few = replace(base, joining=20, affected=0.003)
    return {
        "4.7i": (
            "Equality joins over the number of queries",
            lambda: throughput("queries", {q: replace(base, queries=q) for q in many}, plain),
        ),
        "4.7ii": (
            "Equality joins over the number of stabbing groups",
            lambda: throughput(
                "groups",
                {
                    g: replace(few, groups=g, selected=0.0025, affected=0.0005)
                    for g in (10, 30, 100, 300, 1000)
                },
                plain,
            ),
        ),
        "4.8iii": (
            "Over the share of queries that an event selects",
            lambda: throughput(
                "selected",
                {s: replace(base, selected=s, affected=s / 2) for s in (0.001, 0.01, 0.1, 0.3)},
                ("selectfirst", "ssi"),
            ),
        ),
        "4.8iv": (
            "Over the rows that join an event",
            lambda: throughput("joining", {j: replace(base, joining=j) for j in (1, 10, 100, 1000)}, plain),
        ),
        "4.9": (
            "Hotspots: over the percentage of queries in them",
            lambda: coverage(replace(few, queries=5 * base.queries)),
        ),
    }


def band_figures(base: JoinSetting, many: list[int]) -> Figures:
    band = replace(base, groups=60, affected=0.03)
    return {
        "4.10i": (
            "Band joins over the number of queries",
            lambda: throughput(
                "queries",
                {q: replace(band, queries=q) for q in many},
                ("qouter", "douter", "mj", "ssi"),
                JoinKind.BAND,
            ),
        ),
        "4.10ii": (
            "Band joins over the number of stabbing groups",
            lambda: throughput(
                "groups",
                {g: replace(band, groups=g) for g in (10, 60, 300, 1000, 5000)},
                ("douter", "mj", "ssi", "hotspot"),
                JoinKind.BAND,
            ),
        ),
        "4.11": ("Maintenance of band joins", lambda: maintenance(band)),
    }


def routing_figures(base: JoinSetting) -> Figures:
    few = replace(base, joining=20, affected=0.003)
    sizes = [round(base.queries * k) for k in (1, 2, 3)]
    return {
        "4.13": (
            "Routing: throughput over the size of the workload",
            lambda: routing("size", {q: replace(base, queries=q, rows=q, **MIXED) for q in sizes}),
        ),
        "4.17": (
            "Routing: throughput over joining rows",
            lambda: routing(
                "joining", {j: replace(few, joining=j, affected=0.02) for j in (1, 5, 20, 100, 500)}
            ),
        ),
        "4.19": (
            "Routing: throughput over the share of selected queries",
            lambda: routing(
                "selected",
                {s: replace(few, selected=s, affected=s / 3) for s in (0.0003, 0.003, 0.03, 0.1, 0.3)},
            ),
        ),
    }


# figures that come from the sweep of another
_ROUTING = {"4.13": ("4.14", "4.15"), "4.17": ("4.16", "4.20"), "4.19": ("4.18", "4.21")}


def draw(options: argparse.Namespace) -> None:
    """Tables and plots."""
    known = figures(options.scale, options.seed)
    sweeps = {name: first for first in known for name in (first, *_ROUTING.get(first, ()))}
    wanted = listed(options.figure) or known
    for name in wanted:
        if name not in sweeps:
            sys.exit(f"there is no figure {name!r}: one of {', '.join(sorted(sweeps))}")
    parts = [f"# T07, chapter 4: joins\n\nScale {options.scale}, seed {options.seed}; one thread.\n"]
    for name in dict.fromkeys(sweeps[name] for name in wanted):
        title, sweep = known[name]
        say(f"figure {name}: {title}")
        measured = sweep()
        if name not in _ROUTING:
            unit = (
                "us_per_update"
                if name == "4.11"
                else "us_per_event"
                if name == "4.9"
                else "events_per_second"
            )
            parts.append(_figure(options.out, name, title, measured, unit))
            continue
        times, decisions, right = measured
        second, third = _ROUTING[name]
        parts.append(_figure(options.out, name, title, times, "events_per_second"))
        parts.append(_figure(options.out, second, "Routing: decisions", decisions, DECISION))
        parts.append(
            _figure(options.out, third, "Routing: decisions within a tenth of the best", right, BEST)
        )
    write_page(options.out / "t07-joins.md", parts, whole=not options.figure)


def _figure(out: Path, name: str, title: str, rows: Rows, measure_name: str) -> str:
    parameter = next(iter(rows[0]))
    write_csv(out / f"t07-{name}.csv", rows)
    plot(out / f"t07-{name}.png", rows, parameter, measure_name, title)
    table = as_markdown(rows, parameter, measure_name)
    return f"## {name}: {title}\n\n{measure_name.replace('_', ' ')}\n\n{table}\n\n![](t07-{name}.png)\n"


# -- bars --------------------------------------------------------------------------------------------


def show(options: argparse.Namespace) -> None:
    """Measure the project's claims about joins."""
    base = JoinSetting(seed=options.seed, events=2000)
    known = {
        "ssi": _show_ssi,
        "growth": _show_growth,
        "band": _show_band,
        "routing": _show_routing,
        "hotspots": _show_hotspots,
    }
    wanted = listed(options.figure) or known
    if unknown := [name for name in wanted if name not in known]:
        sys.exit(f"there is no bar {unknown[0]!r}: one of {', '.join(known)}")
    lines = [line for name in wanted for line in known[name](base)]
    failed = [line for line in lines if not line[2]]
    for text, measured, fine in lines:
        print(f"{'ok  ' if fine else 'MISS'} {text}: {measured}")
    if failed:
        sys.exit(1)


Line = tuple[str, str, bool]


def _show_ssi(base: JoinSetting) -> list[Line]:
    out: list[Line] = []
    for joining, affected, naive, select in ((1000, 0.09, 10, 3), (20, 0.003, 50, 10)):
        setting = replace(base, joining=joining, affected=affected)
        found = {
            n: one.us
            for n, one in measure(
                draw_joins(JoinKind.EQUALITY, setting), ("naive", "selectfirst", "ssi")
            ).items()
        }
        for rival, bar in (("naive", naive), ("selectfirst", select)):
            times = found[rival] / found["ssi"]
            text = f"1. {joining} joining rows, {affected:.1%} affected: SSI to {rival}, at least {bar} times"
            measured = f"{times:.1f} times ({found['ssi']:.1f} to {found[rival]:,.1f} µs)"
            out.append((text, measured, times >= bar))
    return out


def _show_growth(base: JoinSetting) -> list[Line]:
    us = {}
    for queries in (10_000, 100_000, 500_000):
        setting = replace(base, queries=queries, joining=20, affected=300 / queries)
        us[queries] = measure(draw_joins(JoinKind.EQUALITY, setting), ("ssi",))["ssi"].us
    lost = 1 - us[10_000] / us[500_000]
    measured = f"{lost:.0%} lost ({', '.join(f'{q:,}: {t:.1f} µs' for q, t in us.items())})"
    return [
        ("1. SSI from 10,000 to 500,000 queries, 300 affected, loses less than 40 %", measured, lost < 0.4)
    ]


def _show_band(base: JoinSetting) -> list[Line]:
    out = []
    for affected in (0.01, 0.05):
        work = draw_joins(JoinKind.BAND, replace(base, groups=60, affected=affected))
        found = {n: one.us for n, one in measure(work, ("qouter", "douter", "mj", "ssi")).items()}
        rival = min((us, name) for name, us in found.items() if name != "ssi")
        times = rival[0] / found["ssi"]
        measured = f"{times:.1f} times ({found['ssi']:.1f} to {rival[0]:,.1f} µs of {rival[1]})"
        out.append(
            (
                f"2. band joins, {affected:.0%} affected: SSI to the best rival, at least 10 times",
                measured,
                times >= 10,
            )
        )
    return out


def _show_hotspots(base: JoinSetting) -> list[Line]:
    rows = coverage(replace(base, joining=20, affected=0.003))
    us = {
        name: np.array([row["us_per_event"] for row in rows if row["index"] == name])
        for name in ("selectfirst", "hotspot")
    }
    covered = np.array([row["coverage"] for row in rows if row["index"] == "hotspot"])
    fit = np.polyval(np.polyfit(covered, us["hotspot"], 1), covered)
    explained = 1 - np.sum((us["hotspot"] - fit) ** 2) / np.sum((us["hotspot"] - us["hotspot"].mean()) ** 2)
    measured = (
        f"{explained:.3f} ({', '.join(f'{t:,.0f}' for t in us['hotspot'])} µs at {covered[0]:.0f} to 100 %)"
    )
    plain = us["selectfirst"]
    flat = f"{plain.max() / plain.min():.2f} times ({plain.min():,.0f} to {plain.max():,.0f} µs)"
    return [
        (
            "4. hotspots, a line through the cost over coverage explains at least 0.95 of it",
            measured,
            explained >= 0.95,
        ),
        (
            "4. SelectFirst over coverage, from least to most, at most 1.25",
            flat,
            plain.max() <= 1.25 * plain.min(),
        ),
    ]


def sweep_of(base: JoinSetting) -> dict[str, JoinSetting]:
    """The workloads on which DYNAMIC must be as fast as the best."""
    out = {f"joining {j}": replace(base, joining=j, affected=0.02) for j in (1, 5, 20, 100, 500)}
    for s in (0.0003, 0.003, 0.03, 0.1, 0.3):
        out[f"selected {s}"] = replace(base, joining=20, selected=s, affected=s / 3)
    for s in (0.3, 0.9):
        out[f"scattered {s}"] = replace(base, joining=20, scattered=s, affected=0.01)
    return out


def _show_routing(base: JoinSetting) -> list[Line]:
    out: list[Line] = []
    for text, setting in {**sweep_of(base), "mixed": replace(base, **MIXED)}.items():
        work = draw_joins(JoinKind.EQUALITY, setting)
        rivals = [
            name for name in (*ROUTED, "ssi") if name != "joinfirst-s"
        ]  # far behind, and slow to measure
        found = measure(work, rivals, rounds=41)
        dynamic = found.pop("dynamic")
        rival = min(found, key=lambda name: np.median(found[name].rounds))
        ratios = found[rival].rounds / dynamic.rounds
        low, times, high = np.quantile(ratios, (0.25, 0.5, 0.75))
        us, fixed = np.median(dynamic.rounds), np.median(found[rival].rounds)
        bar, share = 1.2 if text == "mixed" else 0.9, deciding_us(dynamic.strategy, work) / us
        measured = f"{times:.2f} times, quarters {low:.2f}-{high:.2f} ({us:.1f} to {fixed:.1f} µs of {rival})"
        out.append((f"3. {text}: DYNAMIC to the best fixed, at least {bar}", measured, times >= bar))
        out.append((f"3. {text}: share of deciding below 5 %", f"{share:.1%}", share < 0.05))
        say(f"  {text}: {measured}, deciding {share:.1%}")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["draw", "show"], default="draw")
    parser.add_argument("--figure", default="", help="only these, by commas")
    parser.add_argument(
        "--scale", type=float, default=0.2, help="of the chapter's sizes; figures alone (default 0.2)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.scale <= 0:
        parser.error(f"--scale {options.scale} is not above 0")
    main_of(lambda: show(options) if options.what == "show" else draw(options))


if __name__ == "__main__":
    main()
