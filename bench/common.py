"""Shared by the scripts of this folder: options, sweeps, tables, plots.

A *sweep* measures indexes at several values of one parameter and stores all measures; a *figure* shows one
measure of one sweep, as a table and as a plot.

    results/<paper>-<sweep>.csv        all measures
    results/<paper>-<figure>.png       the plot of a figure
    results/<paper>.md                 the tables of all figures that were drawn
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claims import say

from tocsin.errors import TocsinError
from tocsin.lab.bench.draws import FilterWorkload
from tocsin.lab.bench.match import (
    MatchSetting,
    PreparedWorkload,
    UnsupportedFilters,
    check_equal,
    choose_indexes,
    find_indexes,
    measure_index,
    prepare,
)

RESULTS = Path(__file__).parent / "results"
MEASURES = {
    "us_per_event": "µs per event",
    "build_s": "seconds to insert all",
    "bytes_per_subscription": "bytes per subscription",
    "megabytes": "MB of the index",
    "events_per_second": "events per second",
    "matches_per_event": "matches per event",
    "maintenance_s": "seconds of removing and inserting",
}
_MARKS = "osD^vP*Xhd<>"


@dataclass(frozen=True)
class Sweep:
    """Values of one parameter, each with a function that draws its workload.

    `ready` prepares a drawn workload for measuring (by default `tocsin.lab.bench.match.prepare`);
    `expanded` estimates the entries of an index that writes ranges out value by value.
    """

    name: str
    parameter: str
    points: dict[Any, Callable[[], FilterWorkload]]
    indexes: tuple[str, ...]
    ready: Callable[[Any, FilterWorkload, MatchSetting], PreparedWorkload] = lambda _, work, setting: prepare(
        work, setting
    )
    expanded: dict[Any, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """One measure of one sweep."""

    name: str
    title: str
    sweep: str
    measure: str
    indexes: tuple[str, ...] = ()  # all of the sweep's, if none


Rows = list[dict[str, Any]]


# -- options -----------------------------------------------------------------------------------------


def parser(description: str, figures: Iterable[str], scale: float) -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(description=description)
    known = ", ".join(figures)
    out.add_argument("--scale", type=float, default=scale, help=f"of the paper's N (default {scale})")
    out.add_argument("--events", type=int, default=1000, help="events per measurement (default 1000)")
    out.add_argument("--figure", default="", help=f"only these, by commas: {known}")
    out.add_argument("--index", default="", help="only these indexes, by commas")
    out.add_argument("--batch", type=int, default=500, help="events per call (default 500)")
    out.add_argument("--repeat", type=int, default=3, help="measurements; the best counts (default 3)")
    out.add_argument("--threads", type=int, default=1)
    out.add_argument("--seed", type=int, default=0)
    out.add_argument("--memory", type=float, default=4.0, help="GB that an expanding index may take")
    out.add_argument("--points", type=int, default=0, help="only the first so many values of a parameter")
    out.add_argument("--out", type=Path, default=RESULTS)
    return out


def listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def chosen_figures(figures: Iterable[Figure], wanted: str) -> list[Figure]:
    known = list(figures)
    names = listed(wanted)
    for name in names:
        if name not in {figure.name for figure in known}:
            sys.exit(f"there is no figure {name!r}: one of {', '.join(figure.name for figure in known)}")
    return [figure for figure in known if not names or figure.name in names]


def existing(wanted: Iterable[str], given: str = "") -> tuple[str, ...]:
    """The wanted indexes that exist, restricted to the given ones if any."""
    known = find_indexes()
    names = [name for name in wanted if not given or name in listed(given)]
    names += [name for name in listed(given) if name not in names]
    return tuple(name for name in names if name in known)


# -- sweeps ------------------------------------------------------------------------------------------


def run_sweep(sweep: Sweep, options: argparse.Namespace) -> Rows:
    """Every index at every point; at a point all must find the same matches."""
    setting = MatchSetting(options.threads, options.batch, options.repeat, seed=options.seed)
    rows: Rows = []
    points = list(sweep.points.items())[: options.points or None]
    for value, draw in points:
        work = draw()
        say(f"{sweep.name}: {sweep.parameter} {value}, {work.n:,} subscriptions")
        prepared = sweep.ready(value, work, setting)
        results = []
        for name, make in choose_indexes(sweep.indexes, setting.threads).items():
            if name == "kindex" and sweep.expanded.get(value, 0) * 16 > options.memory * 1e9:
                say(f"  {name}: left out, ranges written out value by value would not fit --memory")
                continue
            try:
                result = measure_index(name, make, prepared, setting)
            except UnsupportedFilters as error:
                say(f"  {name}: left out, {error.fact}")
                continue
            results.append(result)
            say(f"  {name}: {result.us_per_event:,.2f} µs per event, built in {result.build_s:.2f} s")
            rows.append(
                {
                    sweep.parameter: value,
                    **result.to_dict(),
                    "subscriptions": prepared.filters.count,
                    "events": work.events.num_rows,
                    "megabytes": result.bytes_per_subscription * prepared.filters.count / 1e6,
                    "events_per_second": 1e6 / result.us_per_event,
                    "matches_per_event": result.matches / work.events.num_rows,
                }
            )
        check_equal(results)
    return rows


# -- tables and plots --------------------------------------------------------------------------------


def write_csv(path: Path, rows: Rows) -> None:
    if not rows:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def as_markdown(rows: Rows, parameter: str, measure: str) -> str:
    """Values of the parameter down, indexes across."""
    names = list(dict.fromkeys(row["index"] for row in rows))
    cells = {(row[parameter], row["index"]): row[measure] for row in rows}
    lines = [f"| {parameter} | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
    for value in dict.fromkeys(row[parameter] for row in rows):
        found = [cells.get((value, name)) for name in names]
        shown = ("" if cell is None else f"{cell:,.2f}" if cell < 1000 else f"{cell:,.0f}" for cell in found)
        lines.append(f"| {_text(value)} | {' | '.join(shown)} |")
    return "\n".join(lines)


def plot(path: Path, rows: Rows, parameter: str, measure: str, title: str) -> None:
    """A line per index; logarithmic if they are far apart."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    values = list(dict.fromkeys(row[parameter] for row in rows))
    for number, name in enumerate(dict.fromkeys(row["index"] for row in rows)):
        mine = [row for row in rows if row["index"] == name]
        places = [values.index(row[parameter]) for row in mine]
        heights = [row[measure] for row in mine]
        axes.plot(places, heights, marker=_MARKS[number % len(_MARKS)], markersize=5, label=name)
    heights = [row[measure] for row in rows if row[measure] > 0]
    if heights and max(heights) > 20 * min(heights):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks(range(len(values)), [_text(value) for value in values])
    axes.set_xlabel(parameter)
    axes.set_ylabel(MEASURES.get(measure, measure))
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def draw_figures(
    paper: str, figures: list[Figure], sweeps: dict[str, tuple[str, Rows]], options: argparse.Namespace
) -> None:
    """Write tables and plots; `sweeps` has the parameter and the rows of each sweep."""
    out: Path = options.out
    parts = [f"# {paper}\n\n{where_and_how(options)}\n"]
    for figure in figures:
        parameter, rows = sweeps[figure.sweep]
        rows = [row for row in rows if not figure.indexes or row["index"] in figure.indexes]
        if not rows:
            say(f"figure {figure.name}: nothing was measured")
            continue
        table = as_markdown(rows, parameter, figure.measure)
        what = MEASURES.get(figure.measure, figure.measure)
        picture = out / f"{paper.lower()}-{figure.name}.png"
        plot(picture, rows, parameter, figure.measure, figure.title)
        parts.append(f"## {figure.name}: {figure.title}\n\n{what}\n\n{table}\n\n![]({picture.name})\n")
    write_page(out / f"{paper.lower()}.md", parts)


def write_page(path: Path, parts: Iterable[str], *, whole: bool = True) -> None:
    """Write a page of tables; a page of only some figures does not replace the whole one."""
    path = path if whole else path.with_stem(f"{path.stem}-some")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts), encoding="utf-8")
    say(f"written to {path}")


def where_and_how(options: argparse.Namespace) -> str:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    how = f"scale {options.scale}, {options.events} events in batches of {options.batch}"
    return f"{machine}; {how}, best of {options.repeat}, {options.threads} thread(s), seed {options.seed}."


def figure_command(
    text: str | None, draw: Callable[[argparse.Namespace], None], **options: tuple[Any, str]
) -> None:
    """The command line of a script that draws figures: `--out`, and options with a default and a help.

    A default of False makes a flag; one that is a type is of this type, and absent.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (default, about) in {**options, "out": (RESULTS, "folder of tables and pictures")}.items():
        option = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(option, action="store_true", help=about)
        elif isinstance(default, type):
            parser.add_argument(option, type=default, help=about)
        else:
            shown = f"{about} (default {default})" if default not in ("", RESULTS) else about
            parser.add_argument(option, type=type(default), default=default, help=shown)
    chosen = parser.parse_args()
    main_of(lambda: draw(chosen))


def main_of(run: Callable[[], None]) -> None:
    """Run a script; an error ends it with its message."""
    try:
        run()
    except TocsinError as error:
        sys.exit(f"error: {error}")
