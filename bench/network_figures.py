"""J08's claims about output rates, star schemas and decompositions over a network, each with a bar.

    rjor             figure 9: from 5 to 100 rows joined by an event, Ref-SJ-Clu+ grows little, Ref-J+ much
    star             figure 14: a fact table with three dimensions
    decompositions   figure 13: traffic of all ways to filter S, and of the greedy choice

    python bench/network_figures.py rjor --workload w2
    python bench/network_figures.py decompositions --workload normal --no-bar

The paper's distributions are lost. A claim is measured on every workload that we have, in the order they were
tried, and is printed for each, met or not, with a profile of the traffic (what grows, by form and kind) and
a line that says where a missed one comes from.
Contents of sampled clients are compared with brute force before anything is printed. The figures over other
parameters are drawn by `network_j08.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from claims import Claim, Claims, parser_of, say, show_claims
from common import RESULTS
from network_draw import merge_rows
from network_j08 import ZONES, rjor
from network_multiway import (
    GRAPH,
    JOINING,
    WORKLOADS,
    Run,
    Workload,
    all_ways,
    draw,
    relaxed_bytes,
    run_checked,
    sampled_costs,
)
from network_star import measure_star

from tocsin.lab.memory import keep_freed
from tocsin.reformulate.decompose import TableShape, greedy, parametric_costs

Options = argparse.Namespace


def chosen(given: str, known: Sequence[str]) -> Sequence[str]:
    return known if given == "all" else given.split(",")


def seeds_of(options: Options) -> range:
    return range(options.seed, options.seed + options.seeds)


# -- join output rate --------------------------------------------------------------------------------


def show_rjor(options: Options) -> Claims:
    """From 5 to 100 joined rows: Ref-SJ-Clu+ grows less than 2 times, Ref-J+ more than 5 times."""
    for workload in chosen(options.workload, tuple(ZONES)):
        growth: dict[str, list[float]] = {}
        given = Options(subscriptions=options.subscriptions, events=options.events, x="")
        for seed in seeds_of(options):
            rows = {
                (row["index"], row["x"]): row
                for part in rjor(given, workload, seed, (5, 100), ("enum-sj", "ref-j+", "ref-sj-clu+"))
                for row in part
            }
            for name in ("ref-j+", "ref-sj-clu+"):
                few, many = rows[name, 5], rows[name, 100]
                for measure in ("traffic_bytes", "hops", "description_bytes"):
                    pair = (one[f"{measure}_per_event"] for one in (many, few))
                    growth.setdefault(f"{name} {measure}", []).append(_ratio(*pair))
            affected = (rows["enum-sj", x]["hops_per_event"] for x in (100, 5))
            growth.setdefault("affected subscriptions", []).append(_ratio(*affected))
            say(f"{workload}, seed {seed}: {', '.join(f'{k} {v[-1]:.2f}' for k, v in growth.items())}")
        mean = {name: float(np.mean(values)) for name, values in growth.items()}
        more = {"growth": mean, "by_seed": growth, "zones": ZONES[workload]}
        title = f"{workload}, zones by {ZONES[workload]}, 5 to 100 rows joined"
        clu, joined = (mean[f"{name} traffic_bytes"] for name in ("ref-sj-clu+", "ref-j+"))
        yield Claim(f"{title}: Ref-SJ-Clu+ grows", clu, "times", at_most=2).show(options, **more)
        hops = mean["ref-sj-clu+ hops"]
        say(
            f"{workload}: of {clu:.2f} times, {hops:.2f} are hops and {_ratio(clu, hops):.2f} bytes per hop; "
            f"an event affects {mean['affected subscriptions']:.2f} times as many subscriptions, "
            "all of which need its row"
        )
        yield Claim(f"{title}: Ref-J+ grows", joined, "times", at_least=5).show(options)


def _ratio(one: float, two: float) -> float:
    return one / two if two else 0.0


# -- star schema -------------------------------------------------------------------------------------


def show_star(options: Options) -> Claims:
    """Facts without payload: Rel-Sel at least 2, Ref-J 4, Enum-J 40 times Ref-SJ-Clu+."""
    for zones in options.zones.split(","):
        for workload in chosen(options.workload, WORKLOADS):
            given = Options(**{**vars(options), "workload": workload, "zones": zones})
            yield from _claim_star(given)
            for name, times in _times(_measure_stars(given, 100)).items():
                say(f"star, {_named(given)}, fact payload 100: {name} {times:,.3g} times Ref-SJ-Clu+")


def _claim_star(options: Options) -> Claims:
    found = _measure_stars(options, 0)
    more = {name: _mean([one[name] for one in found]) for name in ("bytes", "profile")}
    by = [one["s_filtered_by"] for one in found]
    bars = {"rel-sel": 2, "ref-j": 4, "enum-j": 40}
    for name, times in _times(found).items():
        title = f"star, {_named(options)}, fact payload 0: {name}"
        claim = Claim(title, times, "times Ref-SJ-Clu+", at_least=bars[name])
        yield claim.show(options, **more, s_filtered_by=by)


def _measure_stars(options: Options, payload: int) -> list[dict[str, Any]]:
    """All seeds, kept for the figure."""
    found = [measure_star(options, seed, payload) for seed in seeds_of(options)]
    head = {"panel": f"fact payload {payload}", "x": _named(options), **_sizes(options)}
    rows = [
        {**head, "index": name, "seed": seed, "traffic_bytes_per_event": bytes_}
        for seed, one in zip(seeds_of(options), found, strict=True)
        for name, bytes_ in one["bytes"].items()
    ]
    merge_rows(Path(options.out) / "j08-star.csv", rows)
    return found


def _times(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    """By scheme, the mean of its bytes over those of Ref-SJ-Clu+."""
    names = ("rel-sel", "ref-j", "enum-j")
    ratios = {name: [one["bytes"][name] / one["bytes"]["ref-sj-clu+"] for one in found] for name in names}
    return {name: float(np.mean(some)) for name, some in ratios.items()}


def _named(options: Options) -> str:
    """The setting, for a figure."""
    rates = [] if options.rates == "facts" else [options.rates]
    return ", ".join([options.workload, options.zones, *rates])


def _mean(found: Sequence[dict[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for one in found:
        total.update(one)
    return {name: value / len(found) for name, value in total.items()}


def _sizes(options: Options) -> dict[str, int]:
    return {name: getattr(options, name) for name in ("subscriptions", "brokers")} | {
        "events": options.changes
    }


# -- decompositions ----------------------------------------------------------------------------------


def show_decompositions(options: Options) -> Claims:
    """Traffic of all ways to filter S: greedy is at least 10 % below the worst."""
    for workload in chosen(options.workload, WORKLOADS):
        given = Options(**{**vars(options), "workload": workload})
        compared = []
        for seed in seeds_of(options):
            say(f"{workload}, seed {seed}: costs by simulation")
            compared.append(compare(given, draw(given, seed)))
            say(f"{workload}, seed {seed}: {_limit(compared[-1])}")
            merge_rows(Path(options.out) / "j08-decompositions.csv", _rows(given, seed, compared[-1]))
        for way in ("parametric", "simulated"):
            title = f"{workload}, zones by {options.zones}, greedy by {way} cost"
            shares = [one["traffic"][one["picked"][way]] / max(one["traffic"].values()) for one in compared]
            bests = [one["traffic"][one["picked"][way]] / min(one["traffic"].values()) for one in compared]
            more = {"by_seed": shares, **compared[0]}
            yield Claim(title, float(np.mean(shares)), "of the worst", at_most=0.9).show(options, **more)
            yield Claim(title, float(np.mean(bests)), "of the best", at_most=1.05).show(options)


def _rows(options: Options, seed: int, found: dict[str, Any]) -> list[dict[str, Any]]:
    head = {"panel": f"{options.workload}, zones by {options.zones}", "seed": seed, **_sizes(options)}
    rows = [
        {**head, "x": name, "index": "ref-sj-clu+", "traffic_bytes_per_event": bytes_}
        for name, bytes_ in found["traffic"].items()
    ]
    return [*rows, {**head, "x": "Rel-Sel", "index": "rel-sel", "traffic_bytes_per_event": found["rel_sel"]}]


def _limit(found: dict[str, Any]) -> str:
    """What any choice can gain."""
    best, worst = min(found["traffic"].values()), max(found["traffic"].values())
    return (
        f"{found['common'] / worst:.0%} of the worst decomposition's traffic is sent by all of them, "
        f"so that the best of all is {best / worst:.3f} of the worst"
    )


def compare(options: Options, work: Workload) -> dict[str, Any]:
    """Traffic by decomposition, which ones are picked, and a profile of the worst and the picked."""
    shapes = {table: TableShape(joining) for table, joining in JOINING.items()}
    costs = {"parametric": parametric_costs(GRAPH, shapes), "simulated": sampled_costs(work, options)}
    ways, traffic, runs = all_ways(work.signatures), {}, {}
    changes = len(work.changes)
    for name, one in ways.items():
        runs[name] = run_checked(work, one, options.brokers)
        traffic[name] = runs[name].total() / changes
        say(f"S by {name} in RS, RST, RSTU, STU: {traffic[name]:,.0f} bytes per change")
    picked = {
        way: next(name for name, one in ways.items() if one == greedy(GRAPH, work.signatures, found))
        for way, found in costs.items()
    }
    named = {way: {GRAPH.name(form): cost for form, cost in found.items()} for way, found in costs.items()}
    shown = {"worst": max(traffic, key=lambda name: traffic[name]), **picked}
    return {
        "traffic": traffic,
        "picked": picked,
        "common": sum(min(run.bytes[key] for run in runs.values()) for key in runs[shown["worst"]].bytes)
        / changes,
        "rel_sel": relaxed_bytes(work, options.brokers) / changes,
        "costs": named,
        "profile": {way: _profile(runs[name], changes) for way, name in shown.items()},
    }


def _profile(run: Run, changes: int) -> dict[str, float]:
    return {" ".join(key): round(count / changes, 1) for key, count in run.bytes.most_common()}


COMMANDS: dict[Any, dict[str, Any]] = {
    show_rjor: {"workload": "all", "subscriptions": 100_000, "events": 500, "seeds": 3},
    show_star: {
        "workload": "all",
        "rates": "facts",
        "subscriptions": 170_000,
        "changes": 200,
        "seeds": 1,
        "facts": 25_000,
        "rows": 1000,
        "brokers": 1000,
        "sample": 0.2,
        "zones": "load,traffic",
        "out": str(RESULTS),
    },
    show_decompositions: {
        "workload": "all",
        "subscriptions": 170_000,
        "changes": 400,
        "keys": 50,
        "seeds": 1,
        "brokers": 1000,
        "sample": 0.2,
        "zones": "load",
        "out": str(RESULTS),
    },
}


if __name__ == "__main__":
    keep_freed()
    sys.exit(show_claims(parser_of(__doc__, COMMANDS, repeat=1).parse_args()))
