"""Range minima over a simulated network as in T07, chapter 5: figures 5.8, 5.9 and 5.10.

    python bench/network_t07.py                      the chapter's 500,000 ranges, 2,000 events
    python bench/network_t07.py --full               and its events
    python bench/network_t07.py --sweep stocks

    S-CN   an update becomes a few messages with regions, and none if no range can be affected
    S-UN   the server sends to each affected subscription
    CN     the update itself, to all ranges that hold it

1,000 brokers of 20,000 nodes in a CAN of two dimensions; 24 bytes for a message with a region, 16 for one to
a subscription (the chapter gives none). How objects move is not defined there: y is drawn above or below the
old one, a spike goes to 0 and back (`tocsin.lab.bench.rank_workloads`). Contents of a sample of clients are
compared with brute force first, and who is reached with the ranges in the regions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from claims import say
from common import Rows, figure_command, listed, write_page
from network_draw import Picture, merge_rows, page_of, read_rows
from network_ranges import BROKERS, SINGLE, RangeOverlay, holding

from tocsin.lab.bench.rank import run_method, space_of, task_of
from tocsin.lab.bench.rank_methods import MINIMA
from tocsin.lab.bench.rank_workloads import SPAN, RankWorkload, WalkSetting, draw_walk
from tocsin.rank.extremes import Extremes
from tocsin.reformulate.extremes import ReformulatedMinima

Options = argparse.Namespace
SHARES = (0, 20, 40, 60, 80, 90, 98)  # % of updates that are ignorable
UNIT_X = SPAN // 10_000
SPIKES = (0.0, 0.005, 0.01, 0.02, 0.04)
RANGES = (100_000, 200_000, 300_000, 400_000, 500_000)
STOCKS, DAILY, RECOMMENDED = 3053, 0.015, (2.4, 0.5)
FULL_EVENTS = {"ignorable": 200_000, "spikes": 200_000, "stocks": 338_415}


def traffic(work: RankWorkload, seed: int, stress: int = 0) -> dict[str, Any]:
    """Bytes per event of the three approaches, what part is ignorable, how many are affected."""
    events, space = len(work.number), space_of(work)
    run_method(MINIMA["s-cn"](task_of(work, space, 1)))
    overlay = RangeOverlay(work.low, work.high, space, seed)
    server = ReformulatedMinima(Extremes(work.x, work.y))
    messages = server.update(*work.part(0, events))
    rectangles = messages.regions.boxes[:, 0]
    unicast = overlay.unicast(rectangles)
    found = {
        "s-cn": overlay.send(rectangles),
        "s-un": unicast,
        "cn": overlay.send(holding(work.x[work.number])),
    }
    out: dict[str, Any] = {name: one.overlay / events for name, one in found.items()}
    out["ignorable"] = 1 - len(np.unique(messages.seq)) / events
    out["affected"] = unicast.overlay / SINGLE / events
    if stress:
        out["stress"] = overlay.stress(rectangles, messages.seq - messages.seq[0], stress)
    return out


def rows_of(work: RankWorkload, found: dict[str, Any], **head: Any) -> Rows:
    sizes = {
        "subscriptions": len(work.low),
        "events": len(work.number),
        "objects": len(work.x),
        "brokers": BROKERS,
    }
    more = {name: found.get(name, "") for name in ("ignorable", "affected", "stress")}
    return [
        {**head, "index": name.upper(), **sizes, "bytes": found[name], **more}
        for name in ("s-un", "cn", "s-cn")
    ]


# -- sweeps ------------------------------------------------------------------------------------------


def ignorable(options: Options, seed: int) -> Iterable[Rows]:
    """10,000 rows at 10,000 places; updates that are ignorable and others in given proportions.

    Bytes of an approach add up over updates, and of an ignorable one are 0 but for CN.
    """
    count = round(500_000 * options.scale)
    plain = draw_walk(WalkSetting(10_000, count, options.events, 0.0, (5000, 10_000), (50, 10), seed))
    work = plain._replace(x=plain.x // UNIT_X * UNIT_X)
    found = traffic(work, seed)
    for share in SHARES:
        weight = (1 - share / 100) / (1 - found["ignorable"])
        given = {**found, "s-cn": weight * found["s-cn"], "s-un": weight * found["s-un"]}
        yield rows_of(work, given, panel="", x=share, seed=seed)


def spikes(options: Options, seed: int) -> Iterable[Rows]:
    """50,000 rows, more and more spikes: more are affected."""
    for share in SPIKES:
        walk = WalkSetting(50_000, round(500_000 * options.scale), options.events, share, seed=seed)
        work = draw_walk(walk)
        yield rows_of(work, traffic(work, seed), panel="", x=share, seed=seed)


def stocks(options: Options, seed: int) -> Iterable[Rows]:
    """Drawn stocks, more and more ranges."""
    for count in RANGES:
        work = draw_quotes(round(count * options.scale), options.events, seed)
        found = traffic(work, seed, stress=min(300, options.events))
        yield rows_of(work, found, panel="", x=len(work.low), seed=seed)


def draw_quotes(ranges: int, events: int, seed: int) -> RankWorkload:
    """x: mean recommendations from 1 to 5, to two digits; y: a lognormal ratio that changes by 1.5 %."""
    rng = np.random.default_rng(seed)
    x = np.rint(rng.normal(*RECOMMENDED, STOCKS).clip(1, 5) * 100).astype(np.int64)
    y = 24.2 * np.exp(rng.normal(0, 0.71, STOCKS))
    number = np.concatenate([rng.permutation(STOCKS) for _ in range(-(-events // STOCKS))])[:events]
    new, now = np.empty(events), y.copy()
    for at, i in enumerate(number.tolist()):
        now[i] = new[at] = now[i] * (1 + rng.normal(0, DAILY))
    own = np.random.default_rng([seed, 1])
    middle, half = own.normal(300, 60, ranges), np.abs(own.normal(40, 40, ranges)) / 2
    low, high = (end.clip(100, 500).astype(np.int64) for end in (middle - half, middle + half))
    return RankWorkload(x, (y * 1e6).astype(np.int64), low, high, number, (new * 1e6).astype(np.int64))


SWEEPS: dict[str, Callable[[Options, int], Iterable[Rows]]] = {
    one.__name__: one for one in (ignorable, spikes, stocks)
}

# -- pictures ----------------------------------------------------------------------------------------

UNIT = "bytes between brokers per event"
PAGE = """\
# T07, chapter 5: minima over a simulated network

Published are curves without numbers; what the text says is beside. Stocks are drawn: Yahoo's are not
available. The chapter has 200,000 events, and 338,415 of stocks.
"""
PICTURES = [
    Picture(
        *("5.8", "Traffic of minima over the share of ignorable updates", "ignorable"),
        *("% of updates that are ignorable", UNIT, lambda row: float(row["bytes"])),
        "CN does not depend on it; the others improve, S-UN is below CN at the end; S-CN is best.",
        found="As stated for S-CN and CN. S-UN is proportional to the ranges: twice as many, the chapter's "
        "500,000, would have it above CN up to 30 %. 10,000 rows, the least of the chapter; with 100,000, "
        "tried first, an update that is not ignorable affects less than one of 100,000 ranges, and S-UN "
        "is best throughout: how many are affected depends on how rows move, which is not defined.",
    ),
    Picture(
        *("5.9", "Traffic of minima over the subscriptions that an update affects", "spikes"),
        *("affected subscriptions per update", UNIT, lambda row: float(row["bytes"])),
        "None ignorable, 500,000 ranges, 50,000 rows: S-UN grows linearly, CN is flat, S-CN grows very "
        "slightly and is close to 10 times below CN.",
        found="As stated, except that S-CN is 2.4 to 3.8 times below CN here.",
    ),
    Picture(
        *("5.10", "Traffic of minima over subscriptions, drawn stocks", "stocks", "subscriptions", UNIT),
        lambda row: float(row["bytes"]),
        "3,053 stocks, 11.7 % of 338,415 events not ignorable: S-CN below 100 bytes per event, whatever "
        "the number of subscriptions, no node sends more than 10 messages; CN constant, S-UN linear; both "
        "orders of magnitude more.",
        found="As stated: S-CN 36 to 53 bytes, S-UN proportional to subscriptions (2.7 bytes per 1,000), "
        "CN flat, 100 times S-CN; 8.2 % of the events are not ignorable, at most 5 messages from a node.",
    ),
]


def placed(sweep: str, rows: Rows) -> Rows:
    """x as it was measured: for spikes the mean of the affected over all seeds."""
    if sweep != "spikes":
        return rows
    by_x: dict[Any, list[float]] = {}
    for row in rows:
        by_x.setdefault(row["x"], []).append(row["affected"])
    return [{**row, "x": round(float(np.mean(by_x[row["x"]])))} for row in rows]


def draw(options: Options) -> None:
    for sweep in listed(options.sweep):
        if options.full:
            options.scale, options.events = 1.0, FULL_EVENTS[sweep]
        for seed in map(int, listed(options.seeds)):
            for rows in SWEEPS[sweep](options, seed):
                merge_rows(options.out / f"t07-network-{sweep}.csv", rows)
                say(
                    f"{sweep}, seed {seed}: "
                    + ", ".join(f"{row['index']} {row['bytes']:,.0f}" for row in rows)
                )
    pages = [PAGE]
    for picture in PICTURES:
        if found := read_rows(options.out / f"t07-network-{picture.sweep}.csv"):
            pages += [page_of(picture, placed(picture.sweep, found), options.out, "t07"), measured(found)]
    write_page(options.out / "t07-network.md", pages)


def measured(rows: Rows) -> str:
    """What was seen beside the traffic."""
    shares = [row["ignorable"] for row in rows]
    text = f"Ignorable in the trace: {min(shares):.1%} to {max(shares):.1%} of the updates."
    stress = [int(row["stress"]) for row in rows if row["stress"] != ""]
    return (
        f"{text} Most messages that a node sends for one update (S-CN): {max(stress)}.\n"
        if stress
        else f"{text}\n"
    )


if __name__ == "__main__":
    figure_command(
        __doc__,
        draw,
        sweep=(",".join(SWEEPS), "by commas; empty: only draw"),
        scale=(1.0, "of the chapter's ranges"),
        events=(2000, "of a sweep"),
        seeds=("0", "by commas"),
        full=(False, "the chapter's ranges and events"),
    )
