"""Range minima as in T07, chapter 5: figures 5.6 and 5.7, tables 5.2 and 5.3, beside published values.

    python bench/rank_t07.py                        a tenth of the chapter's subscriptions
    python bench/rank_t07.py --scale 1 --events 20000

Contents are compared with brute force in every run. Messages of S-UN are proportional to the number of
subscriptions; the table has the measured and the published numbers, unscaled. The chapter does not define how
objects move (`tocsin.lab.bench.rank_workloads`), so compare only the order of magnitude of messages. The
times of the chapter are in figures that its text has lost; it says that S-UN takes 2.5 to 3.5 times as long
as S-CN.
"""

from __future__ import annotations

import argparse

import numpy as np
from claims import say
from common import Rows, as_markdown, figure_command, plot, write_csv, write_page

from tocsin.lab.bench.rank import run_method, space_of, task_of, us_of
from tocsin.lab.bench.rank_methods import MINIMA
from tocsin.lab.bench.rank_workloads import WalkSetting, draw_walk

TABLE_52 = {"s-cn": (2.10, 2.15, 2.18, 2.20, 2.22), "s-un": (726, 671, 678, 655, 654)}
TABLE_53 = {"s-cn": (2.08, 2.08, 2.08, 2.08, 2.08), "s-un": (303, 616, 909, 1218, 1441)}
OBJECTS = (20_000, 40_000, 60_000, 80_000, 100_000)
SUBSCRIPTIONS = (200_000, 400_000, 600_000, 800_000, 1_000_000)


def measured(parameter: str, walks: dict[int, WalkSetting], repeat: int) -> Rows:
    """Microseconds (the best of each part) and messages per event of S-CN and S-UN, in turns."""
    rows: Rows = []
    for value, walk in walks.items():
        work = draw_walk(walk)
        space, sent = space_of(work), {}
        parts: dict[str, list[list[float]]] = {"s-cn": [], "s-un": []}
        for _ in range(repeat):
            for name, taken in parts.items():
                method = MINIMA[name](task_of(work, space, 1))
                taken.append(run_method(method))
                sent[name] = method.counted.messages / walk.events
        best = {name: us_of(np.min(taken, axis=0).tolist(), walk.events) for name, taken in parts.items()}
        for name, us in best.items():
            rows.append({parameter: value, "index": name, "us_per_event": us, "messages": sent[name]})
        say(f"  {parameter} {value:,}: {', '.join(f'{name} {us:.2f} µs' for name, us in best.items())}")
    return rows


def draw(options: argparse.Namespace) -> None:
    half, ten = round(500_000 * options.scale), 10_000
    common = {"events": options.events, "seed": options.seed}
    by_objects = {n: WalkSetting(n, half, **common) for n in OBJECTS}
    by_ranges = {m: WalkSetting(ten, round(m * options.scale), **common) for m in SUBSCRIPTIONS}
    how = f"{options.scale:g} of the chapter's subscriptions, {options.events:,} events, seed {options.seed}."
    parts = [f"# T07, chapter 5: minima\n\n{how}\n"]
    for figure, table, parameter, walks, published in (
        ("5.6", "5.2", "objects", by_objects, TABLE_52),
        ("5.7", "5.3", "subscriptions", by_ranges, TABLE_53),
    ):
        say(f"figure {figure} and table {table}")
        rows = measured(parameter, walks, options.repeat)
        write_csv(options.out / f"t07-5-{figure}.csv", rows)
        plot(options.out / f"t07-5-{figure}.png", rows, parameter, "us_per_event", f"Time over {parameter}")
        beside = [{**row, "index": f"{row['index']}"} for row in rows]
        for name, values in published.items():
            for value, one in zip(walks, values, strict=True):
                beside.append({parameter: value, "index": f"{name}, published", "messages": one})
        times = as_markdown(rows, parameter, "us_per_event")
        sent = as_markdown(beside, parameter, "messages")
        parts.append(
            f"## {figure}: time over {parameter}\n\nµs per event\n\n{times}\n\n![](t07-5-{figure}.png)\n\n"
            f"## {table}: messages per event\n\n{sent}\n"
        )
    write_page(options.out / "t07-5.md", parts)


if __name__ == "__main__":
    figure_command(
        __doc__,
        draw,
        scale=(0.1, "of the chapter's sizes"),
        events=(5000, "the chapter has 200,000"),
        repeat=(3, "runs; the fastest counts"),
        seed=(0, "of what is drawn"),
    )
