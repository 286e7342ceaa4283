"""Select-joins over a simulated network as in J08 (2008): figures 5 to 12 and 17 to 20, tables 3 and 4.

    python bench/network_j08.py                                    all sweeps, one seed: half an hour
    python bench/network_j08.py --sweep rjor --seeds 0,1,2 --workloads w1
    python bench/network_j08.py --sweep subscriptions --full       59,000 events and ten seeds, as published
    python bench/network_j08.py --sweep none                       draw what is there

The parameters of the paper are lost, and so are its plotted values: what it says in words is printed beside.
Every sweep is measured on W1 (independent normals, zones split by load) and W2 (the rows of a key are alike,
zones split by traffic: chosen after the fact for what the paper claims). Contents of a sample of clients are
compared with brute force ten times in each run. Figures 13 and 14 are measured by `network_figures.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from claims import say
from common import Rows, figure_command, listed, write_page
from network_draw import merge_rows, page_of, read_rows
from network_pictures import PAGE, PICTURES

from tocsin.lab.bench.rank_methods import stabbed
from tocsin.lab.memory import keep_freed
from tocsin.lab.simulate.networks import SimulateSetting
from tocsin.lab.simulate.run import ATTRIBUTE, HEADER, PAPER, SchemeResult, Simulation
from tocsin.lab.simulate.stocks import draw_stocks, read_ratios
from tocsin.lab.simulate.workload import KEYS, Workload, draw_workload

ZONES = {"w1": "load", "w2": "traffic"}
PANELS = {"w1": "W1, zones by load", "w2": "W2 (chosen), zones by traffic"}
SUBSCRIPTIONS = (100_000, 250_000, 500_000, 1_000_000)
RJORS = (5, 10, 25, 51, 75, 100)
ROWS = (500, 1_000, 2_000, 4_000, 8_000, 16_000)
PAYLOADS = (1, 10, 100, 1_000, 10_000, 100_000)
OVERLAPS = (0, 1_500, 3_000, 4_500, 6_000)
REPOSITORIES = (0, 100, 400, 1_000, 2_000, 3_100)
CACHED = ("rel-sel", "ref-j+", "ref-sj-clu+")
FULL_EVENTS = 59_000


# -- one point ---------------------------------------------------------------------------------------


def run_schemes(simulation: Simulation, names: Iterable[str], **row: Any) -> Rows:
    """One row per scheme, with the bytes of the last hop, from gateways to subscriptions."""
    setting = simulation.setting
    head = {"x": None, "panel": PANELS[setting.workload], "seed": setting.seed, "events": setting.events}
    head |= {"subscriptions": setting.subscriptions, "brokers": setting.brokers, **row}
    results = {name: simulation.run(name) for name in names}
    rows = []
    for name, result in results.items():
        found = {**head, "index": name, **result.to_dict()}
        found["last_hop_bytes_per_event"] = last_hop(name, simulation, results)
        del found["scheme"]
        rows.append(found)
    return rows


def last_hop(name: str, simulation: Simulation, results: dict[str, SchemeResult]) -> float:
    """Bytes per event from gateways to subscriptions: what enumeration would send to each receiver.

    Semijoins by regions reach exactly those whom Enum-SJ names, joined rows those whom Enum-J does.
    """
    if name.startswith("enum") or not results.keys() >= {"enum-j", "enum-sj"}:
        return 0.0
    if name == "rel-sel":
        a = simulation.work.points[:, 0]
        received = stabbed(np.sort(a[:, 0]), np.sort(a[:, 1]), simulation.work.event_value).mean()
        return float(received) * (HEADER + 2 * ATTRIBUTE + simulation.setting.payload)
    return results["enum-j" if name.startswith("ref-j") else "enum-sj"].traffic_bytes_per_event


# -- sweeps ------------------------------------------------------------------------------------------

Options = argparse.Namespace


def setting_of(options: Options, workload: str, seed: int, **more: Any) -> SimulateSetting:
    sizes = {"subscriptions": options.subscriptions, "events": options.events, **more}
    return SimulateSetting(workload, zones=ZONES[workload], seed=seed, **sizes)


def chosen(options: Options, values: Iterable[int]) -> list[int]:
    wanted = [int(value) for value in listed(options.x)]
    return [value for value in values if not wanted or value in wanted]


def subscriptions(options: Options, workload: str, seed: int) -> Iterable[Rows]:
    """All schemes over subscriptions: figures 5, 6, 17, 20 and tables 3, 4."""
    for count in chosen(options, SUBSCRIPTIONS):
        setting = setting_of(options, workload, seed, subscriptions=count)
        yield run_schemes(Simulation(setting), PAPER, x=count)


def rjor(
    options: Options,
    workload: str,
    seed: int,
    values: Iterable[int] = RJORS,
    schemes: Iterable[str] = tuple(PAPER),
) -> Iterable[Rows]:
    """All schemes over the rows that an event joins, by the rows of S: figures 8 and 9."""
    for rate in chosen(options, values):
        setting = setting_of(options, workload, seed)
        sizes = setting.subscriptions, setting.events, seed, setting.rows
        work = draw_workload(workload, *sizes, s_rows=rate * KEYS)
        joined = float(np.bincount(work.s_key, minlength=KEYS)[work.event_key].mean())
        yield run_schemes(Simulation(setting, work=work), schemes, x=rate, rows_joined=round(joined, 2))


def stocks(options: Options, workload: str, seed: int) -> Iterable[Rows]:
    """Drawn stocks over subscriptions: figure 10."""
    ratios = read_ratios(options.stocks) if options.stocks else None
    for count in chosen(options, SUBSCRIPTIONS):
        setting = setting_of(options, workload, seed, subscriptions=count)
        work = draw_stocks(workload, count, setting.events, seed, setting.rows, ratios)
        panel = f"Drawn stocks, ranges of {PANELS[workload]}"
        yield run_schemes(Simulation(setting, work=work), PAPER, x=count, panel=panel)


def window(options: Options, workload: str, seed: int) -> Iterable[Rows]:
    """All schemes over the rows of R: figure 7."""
    for rows in chosen(options, ROWS):
        yield run_schemes(Simulation(setting_of(options, workload, seed, rows=rows)), PAPER, x=rows)


def payload(options: Options, workload: str, seed: int) -> Iterable[Rows]:
    """All schemes over the payload of a row: figure 18."""
    simulation = Simulation(setting_of(options, workload, seed))
    for size in chosen(options, PAYLOADS):
        simulation.setting = replace(simulation.setting, payload=size)
        yield run_schemes(simulation, PAPER, x=size)


def overlap(options: Options, workload: str, seed: int) -> Iterable[Rows]:
    """All schemes while ranges move together: figure 19."""
    for x in chosen(options, OVERLAPS):
        setting = setting_of(options, workload, seed)
        work: Workload = draw_workload(
            workload, setting.subscriptions, setting.events, seed, setting.rows, overlap=x
        )
        yield run_schemes(Simulation(setting, work=work), PAPER, x=x)


def cached(options: Options, workload: str, seed: int, rows: int) -> Iterable[Rows]:
    """CN+ over the entries of repositories, with payloads of 1000 bytes, and CN without it."""
    for entries in chosen(options, (-1, *REPOSITORIES)):
        plus = None if entries < 0 else entries
        more = {"rows": rows, "payload": 1000, "tree": "fixed", "plus": plus}
        found = run_schemes(Simulation(setting_of(options, workload, seed, **more)), CACHED, x=entries)
        yield found


def repository(options: Options, workload: str, seed: int) -> Iterable[Rows]:
    """500 rows of R: figure 11."""
    return cached(options, workload, seed, 500)


def latency(options: Options, workload: str, seed: int) -> Iterable[Rows]:
    """200 rows of R: figure 12."""
    return cached(options, workload, seed, 200)


SWEEPS: dict[str, Callable[[Options, str, int], Iterable[Rows]]] = {
    one.__name__: one for one in (subscriptions, rjor, stocks, payload, overlap, window, repository, latency)
}


def beside_plain(rows: Rows) -> Rows:
    """CN without caches (x = -1) as a line of its own beside CN+, over all sizes of repositories."""
    sizes = sorted({row["x"] for row in rows if isinstance(row["x"], int)} - {-1})
    out = []
    for row in rows:
        plain = {**row, "index": f"{row['index']}, CN"}
        out += [{**plain, "x": size} for size in sizes] if row["x"] == -1 else [row]
    return out


# -- the command -------------------------------------------------------------------------------------


def draw(options: Options) -> None:
    """Measure the chosen sweeps, then draw all figures of which there are measurements."""
    if options.full:
        options.events, options.seeds = FULL_EVENTS, ",".join(map(str, range(10)))
    wanted = [] if options.sweep == "none" else listed(options.sweep) or SWEEPS
    for name in wanted:
        path = options.out / f"j08-{name}.csv"
        for seed in map(int, listed(options.seeds)):
            for workload in listed(options.workloads):
                for rows in SWEEPS[name](options, workload, seed):
                    merge_rows(path, rows)
                    say(f"{name}, {workload}, seed {seed}, x = {rows[0]['x']:,}: contents are exact")
    if options.no_draw:
        return
    kept = [(one, beside_plain(read_rows(options.out / f"j08-{one.sweep}.csv"))) for one in PICTURES]
    parts = [PAGE, *(page_of(one, rows, options.out, "j08") for one, rows in kept if rows)]
    write_page(options.out / "j08.md", parts)


if __name__ == "__main__":
    keep_freed()
    figure_command(
        __doc__,
        draw,
        sweep=("", f"of {', '.join(SWEEPS)}, by commas; none: only draw"),
        x=("", "only these values, by commas"),
        workloads=("w1,w2", "by commas"),
        seeds=("0", "by commas"),
        events=(500, "the paper has 59,000"),
        subscriptions=(100_000, "where they are not x"),
        stocks=(Path, "CSV with price/earnings ratios to start from"),
        full=(False, "59,000 events, ten seeds: days"),
        no_draw=(False, "only measure"),
    )
