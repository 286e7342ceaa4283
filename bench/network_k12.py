"""Range top-k over a simulated network as in K12 (2012): figures 7 and 10, overlay and IP traffic over k.

    python bench/network_k12.py                         the paper's 2,000,000 ranges, 1,000 events
    python bench/network_k12.py --full                  and its 50,000 events
    python bench/network_k12.py --sweep stocks --seeds 0,1,2

10,000 objects, 1,000 brokers of 20,000 nodes in a CAN of two dimensions, 24 bytes for a message with a region
and 16 for one to a single subscription, as the paper's numbers imply. The way of an event to the server is
not counted. Stocks are drawn as for tables V and VI (`rank_k12.py`): Yahoo's are not available. Contents are
compared with brute force on a part first, and who is reached with the ranges in the regions.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from claims import say
from common import Rows, figure_command, listed, write_page
from network_draw import Picture, merge_rows, page_of, read_rows
from network_ranges import BROKERS, RangeOverlay, Traffic, holding
from rank_k12 import PLAIN_EPS, drawn_stocks, setting_of
from rank_tables import KS, check_first, paint

from tocsin.lab.bench.rank import space_of
from tocsin.lab.bench.rank_workloads import RankWorkload, draw_ranks
from tocsin.rank.paint import TileKind

FULL_EVENTS = 50_000
SHOWN = ("Unicast", "CN-Relax", *PLAIN_EPS)
PAGE = """\
# K12: range top-k over a simulated network

Published are curves without numbers; what the text says is beside. Bytes per event between brokers (overlay),
and over the links below them (IP), without the way of an event to the server. The paper has 50,000 events.
"""


def over_k(work: RankWorkload, seed: int) -> Iterable[Rows]:
    """All approaches, one k after the other."""
    events, space = len(work.number), space_of(work)
    overlay = RangeOverlay(work.low, work.high, space, seed)
    relaxed = overlay.send(holding(work.x[work.number]))
    for k in KS:
        found: dict[str, Traffic] = {"CN-Relax": relaxed}
        for name, eps in PLAIN_EPS.items():
            tiles = paint(work, k, eps, space if "Sparse" in name else None)[0]
            found[name] = overlay.send(tiles.rectangles)
            if name == "Paint-Sparse":
                found["Unicast"] = overlay.unicast(tiles.rectangles[tiles.kind == TileKind.NEW])
        sizes = {"subscriptions": len(work.low), "events": events, "objects": len(work.x), "brokers": BROKERS}
        yield [
            {"panel": panel, "x": k, "index": name, "seed": seed, **sizes, "bytes": bytes_ / events}
            for name in SHOWN
            for panel, bytes_ in zip(("a: overlay", "b: IP"), found[name], strict=True)
        ]


def draw_work(sweep: str, options: argparse.Namespace, seed: int) -> RankWorkload:
    given = argparse.Namespace(**{**vars(options), "seed": seed})
    return drawn_stocks(given) if sweep == "stocks" else draw_ranks(setting_of(given))


PICTURES = [
    Picture(
        *("7", "Traffic of range top-k over k, uniform", "uniform", "k", "bytes per event"),
        lambda row: float(row["bytes"]),
        "Unicast is worst for all k, Paint-Sparse about 10 times below it, Paint-Sparse(1) lower; "
        "CN-Relax does not depend on k, and looks attractive for k > 10.",
        found="As stated, but for k = 1, where CN-Relax is worse than Unicast: Paint-Sparse is 8 to 22 times "
        "below Unicast (13 at k = 10), and above CN-Relax from k = 15 on. Overlay and IP agree.",
    ),
    Picture(
        *("10", "Traffic of range top-k over k, drawn stocks", "stocks", "k", "bytes per event"),
        lambda row: float(row["bytes"]),
        "Yahoo! Finance, 2,031 stocks, 400,000 ranges: Paint-Sparse and Paint-Sparse(1) two orders of "
        "magnitude below Unicast; CN-Relax seems attractive around k = 10.",
        found="As stated: Paint-Sparse is 74 to 118 times below Unicast; CN-Relax meets Unicast at k = 12.",
        indexes=("Unicast", "CN-Relax", "Paint-Sparse", "Paint-Sparse(1)"),
    ),
]


def draw(options: argparse.Namespace) -> None:
    if options.full:
        options.scale, options.events = 1.0, FULL_EVENTS
    if options.sweep:
        say("comparing contents with brute force")
        check_first(argparse.Namespace(objects=10_000, seed=0))
    for sweep in listed(options.sweep):
        for seed in map(int, listed(options.seeds)):
            for rows in over_k(draw_work(sweep, options, seed), seed):
                merge_rows(options.out / f"k12-network-{sweep}.csv", rows)
                say(f"{sweep}, seed {seed}, k = {rows[0]['x']}")
    kept = [(one, read_rows(options.out / f"k12-network-{one.sweep}.csv")) for one in PICTURES]
    pages = (page_of(one, rows, options.out, "k12") for one, rows in kept if rows)
    write_page(options.out / "k12-network.md", [PAGE, *pages])


if __name__ == "__main__":
    figure_command(
        __doc__,
        draw,
        sweep=("uniform,stocks", "by commas; empty: only draw"),
        scale=(1.0, "of the paper's ranges"),
        events=(1000, "the paper has 50,000"),
        seeds=("0", "by commas"),
        full=(False, "the paper's ranges and events"),
    )
