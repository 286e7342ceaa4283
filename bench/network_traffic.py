"""Traffic of select-join schemes on W1 and W2: measured cell by cell, kept as JSON lines, shown as one table.

A cell is a workload, a number of subscriptions and a seed; it has four networks, all CAN with 1,000 zones:

    load            zones of equally many subscriptions
    traffic clu+    zones that few past messages cross: those of ref-sj-clu+ over the same table S. They show
                    which rows events will join, and how clu+ describes them, so this favours clu+
    traffic all     the same, by as many past messages of each scheme that describes
    traffic other   by past messages of ref-sj-clu+ over another draw of S: the distribution alone is known

W2 was chosen after the fact, together with zones by traffic, for what J08 claims (NETWORK.md, 11.1).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from claims import Claim, Claims, say
from numpy.typing import NDArray

from tocsin.errors import UsageError
from tocsin.lab.simulate.enumerate import count_affected
from tocsin.lab.simulate.networks import SimulateSetting
from tocsin.lab.simulate.run import PAPER, SCHEMES, Simulation
from tocsin.lab.simulate.workload import DOMAIN, Workload, draw_workload

__all__ = ["show_sweep", "show_traffic"]

RESULTS = Path(__file__).parent / "results"
KEPT, SWEPT = "network-traffic.jsonl", "network-sweep.jsonl"
NETWORKS = (("load", "clu+"), ("traffic", "clu+"), ("traffic", "all"), ("traffic", "other"))
WORKLOADS = ("w1", "w2")
OURS, RELAXED = "ref-sj-clu+", "rel-sel"
BARS = {"enum-sj": 10, "ref-j+": 10, "enum-j": 10}
WIDTHS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # times the widths of ranges of C
Line = dict[str, Any]


# -- cells -------------------------------------------------------------------------------------------


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def read_lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep_line(path: Path, line: Line) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as out:
        out.write(json.dumps(line, separators=(",", ":")) + "\n")


def measure_networks(settings: Sequence[SimulateSetting], work: Workload | None = None) -> Iterator[Line]:
    """All schemes over some networks of one cell; contents of a sample are compared with brute force.

    Schemes that write to each subscription send the same bytes over all of them: they are run once."""
    simulation, unicast = Simulation(settings[0], work=work), {}
    for setting in settings:
        if setting is not settings[0]:
            simulation.use(setting)
        results = []
        for name in PAPER:
            if name in unicast:
                results.append(unicast[name])
                continue
            result = simulation.run(name)
            assert result.checked
            results.append(result.to_dict())
            if SCHEMES[name].unicast:
                unicast[name] = result.to_dict()
        facts = {name: getattr(setting, name) for name in ("workload", "subscriptions", "seed", "events")}
        yield {**facts, "zones": setting.zones, "training": setting.training, "results": results}


def cell_of(line: Line) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("workload", "subscriptions", "seed", "zones", "training", "events"))


def wanted_cells(options: argparse.Namespace) -> Iterator[list[SimulateSetting]]:
    """By workload, size and seed: its networks."""
    for size in numbers(options.subscriptions):
        for workload in chosen_workloads(options):
            for seed in numbers(options.seeds):
                yield [
                    SimulateSetting(workload, size, options.events, "can", zones, seed, training=training)
                    for zones, training in NETWORKS
                ]


def show_traffic(options: argparse.Namespace) -> Claims:
    """Traffic of nine schemes on W1 and W2, five seeds, 100,000 and a million subscriptions.

    Networks that were measured before are read from the file; delete its lines to measure again."""
    path = RESULTS / KEPT
    known = {cell_of(line): line for line in read_lines(path)}
    wanted = list(wanted_cells(options))
    for settings in wanted:
        missing = [setting for setting in settings if cell_of(vars(setting)) not in known]
        if missing:
            say(f"measuring {' '.join(map(str, cell_of(vars(missing[0]))))} and {len(missing) - 1} more")
            for line in measure_networks(missing):
                known[cell_of(line)] = line
                keep_line(path, line)
    lines = [known[cell_of(vars(setting))] for settings in wanted for setting in settings]
    print_table(lines)
    yield from traffic_claims(options, lines)


def traffic(line: Line) -> dict[str, float]:
    return {result["scheme"]: result["traffic_bytes_per_event"] for result in line["results"]}


def ratios(lines: Sequence[Line], scheme: str) -> NDArray[np.float64]:
    """Traffic of a scheme over that of Clu+, by line."""
    return np.array([traffic(line)[scheme] / traffic(line)[OURS] for line in lines])


def grouped(lines: Sequence[Line]) -> dict[tuple[Any, ...], list[Line]]:
    out: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        out.setdefault((line["workload"], line["subscriptions"], line["zones"], line["training"]), []).append(
            line
        )
    return out


def zones_of(zones: str, training: str) -> str:
    return zones if zones == "load" else f"traffic {training}"


def print_table(lines: Sequence[Line]) -> None:
    """Means over seeds, as multiples of Clu+."""
    say("traffic as a multiple of ref-sj-clu+, mean over seeds (least of a seed); W2 is chosen, see above")
    head = " ".join(f"{name.removeprefix('ref-'):>14}" for name in PAPER if name != OURS)
    say(f"{'':35}{head}   clu+ kB")
    for (workload, size, zones, training), mine in grouped(lines).items():
        cells = []
        for name in PAPER:
            if name != OURS:
                found = ratios(mine, name)
                cells.append(f"{f'{found.mean():,.1f} ({found.min():,.1f})':>14}")
        kilobytes = np.mean([traffic(line)[OURS] for line in mine]) / 1e3
        label = f"{workload} {size:>9,} {zones_of(zones, training)}"
        say(f"{label:35}{' '.join(cells)}   {kilobytes:,.1f}")


def traffic_claims(options: argparse.Namespace, lines: Sequence[Line]) -> Claims:
    """A bar for each rival on the networks of NETWORK.md, 11.1, for the worst seed; the rest is printed."""
    for (workload, size, zones, training), mine in grouped(lines).items():
        where = f"{workload} {size:,} zones by {zones_of(zones, training)}"
        seeds = [line["seed"] for line in mine]
        bars: dict[str, float] = dict(BARS) if training == "clu+" else {}
        if workload == "w2" and zones == "traffic":
            bars[RELAXED] = 8
            where += " (chosen after the fact)"
        for name in (*BARS, RELAXED):
            found = ratios(mine, name)
            if name in bars:
                unit = "times, least of all seeds"
                yield Claim(f"traffic {where}: {name} over clu+", float(found.min()), unit, bars[name]).show(
                    options, seeds=seeds, mean=found.mean(), events=mine[0]["events"]
                )
            else:
                measured = f"{found.mean():,.2f} times, least {found.min():,.2f}"
                say(f"traffic {where}: {name} over clu+: {measured} (no bar)")


# -- the sweep ---------------------------------------------------------------------------------------


def with_widths(work: Workload, factor: float) -> Workload:
    """Ranges of C as many times as wide, around the same centres."""
    points = work.points.copy()
    middle, half = points[:, 1].mean(axis=1), np.diff(points[:, 1], axis=1)[:, 0] * factor / 2
    ends = np.stack([middle - half, middle + half], axis=1)
    points[:, 1] = ends.clip(0, DOMAIN - 1).astype(np.int64)
    return replace(work, points=points)


def share_affected(work: Workload) -> tuple[float, float]:
    """Affected among the selected, and affected by an event, over all events."""
    affected = count_affected(work, np.zeros(len(work.points), np.int64)).subscriptions.sum()
    low, high = np.sort(work.points[:, 0, 0]), np.sort(work.points[:, 0, 1])
    selected = np.searchsorted(low, work.event_value, "right") - np.searchsorted(high, work.event_value)
    return float(affected / selected.sum()), float(affected / len(work.event_value))


def crossings(share: NDArray[np.float64], ratio: NDArray[np.float64], level: float = 1.0) -> list[float]:
    """The shares at which a ratio crosses a level, by straight lines between logarithms.

    >>> share = np.array([0.01, 1.0])
    >>> crossings(share, np.array([0.1, 10.0])), crossings(share, np.array([2, 3]))
    ([0.1], [])
    """
    x, y = np.log(share), np.log(ratio / level)
    at = np.flatnonzero((y[:-1] < 0) != (y[1:] < 0))
    return [float(round(np.exp(x[i] - y[i] * (x[i + 1] - x[i]) / (y[i + 1] - y[i])), 6)) for i in at]


def show_sweep(options: argparse.Namespace) -> Claims:
    """Traffic over the share of affected among selected subscriptions: where schemes cross."""
    path = RESULTS / SWEPT
    known = {(*cell_of(line), line["width"]): line for line in read_lines(path)}
    for workload in chosen_workloads(options):
        for zones in ("load", "traffic"):
            lines = []
            for width in WIDTHS:
                setting = SimulateSetting(
                    workload, int(options.subscriptions), options.events, "can", zones, options.seed
                )
                cell = (*cell_of(vars(setting)), width)
                if cell not in known:
                    say(f"measuring {' '.join(map(str, cell))}")
                    sizes = setting.subscriptions, setting.events, setting.seed, setting.rows
                    work = with_widths(draw_workload(workload, *sizes), width)
                    share, affected = share_affected(work)
                    (line,) = measure_networks([setting], work)
                    known[cell] = {**line, "width": width, "share": share, "affected": affected}
                    keep_line(path, known[cell])
                lines.append(known[cell])
            print_sweep(f"{workload}, zones by {zones}", options.seed, lines)
    yield from ()


def print_sweep(where: str, seed: int, lines: Sequence[Line]) -> None:
    """Print the ratios over the share, and where each scheme crosses Clu+."""
    share = np.array([line["share"] for line in lines])
    say(f"{where}: traffic over that of clu+, by the share of affected among selected (affected per event)")
    for line in lines:
        cells = " ".join(
            f"{name.removeprefix('ref-')} {ratios([line], name)[0]:,.2f}" for name in PAPER if name != OURS
        )
        least = min(traffic(line), key=traffic(line).__getitem__)
        say(f"  {100 * line['share']:7.3f} % ({line['affected']:8,.0f}): {cells}; least: {least}")
    found = {}
    for name in PAPER:
        if name == OURS:
            continue
        ratio = ratios(lines, name)
        found[name] = {"even": crossings(share, ratio), "ten_times": crossings(share, ratio, 10)}
        even = ", ".join(f"{100 * each:.3g} %" for each in found[name]["even"])
        ten = ", ".join(f"{100 * each:.3g} %" for each in found[name]["ten_times"])
        side = "above" if ratio[0] > 1 else "below"
        where_even = f"crosses clu+ at {even}" if even else f"always {side} clu+"
        say(f"  {name}: {where_even}; 10 times clu+ at: {ten or 'none'}")
    facts = {"sweep": where, "seed": seed, "share": share.tolist(), "crossings": found}
    print(json.dumps(facts), flush=True)


def chosen_workloads(options: argparse.Namespace) -> tuple[str, ...]:
    if options.workload not in (*WORKLOADS, "all"):
        raise UsageError(f"there is no workload {options.workload!r}", hint="w1, w2 or all")
    return WORKLOADS if options.workload == "all" else (options.workload,)
