"""Tocsin's claims about top-k and minima over ranges, measured: one subcommand per group of claims.

    tables     K12, tables I to IV: messages received, redundancy, calls, within 5 % of published values
    optimal    small cases solved exactly: Paint-Dense has the fewest messages, Paint-Sparse at most twice
    growth     describe mode from 200,000 to 5 million subscriptions
    enumerate  deltas of 2 million subscriptions, against Unicast
    minima     S-CN and S-UN from 100,000 to a million subscriptions
    batch      50,000 events at once, against coalescing alone
    engine     200,000 subscriptions in the engine, against the scan room
    boxes      100,000 top-k over two ranges in the engine, against the scan room; and as messages

    python bench/rank_show.py tables
    python bench/rank_show.py growth --most 1000000 --no-bar

Contents are compared with brute force before a time is printed. Standard output has one JSON object per
claim, standard error a readable line; the exit code is 1 if an answer is wrong or a claim does not hold.
Competitors are measured in turns, and the best of `--repeat` counts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from claims import Claim, Claims, in_turns, parser_of, say, show_claims
from rank_engine import show_boxes, show_engine
from rank_tables import PUBLISHED, measured_tables

from tocsin.errors import TocsinError
from tocsin.lab.bench.rank import (
    PART,
    count_needed,
    measure_method,
    run_method,
    space_of,
    task_of,
    us_of,
    warm_up,
)
from tocsin.lab.bench.rank_methods import (
    MINIMA,
    TOPK,
    CoalescedMethod,
    PaintDenseMethod,
    PaintSparseMethod,
    RankCounts,
)
from tocsin.lab.bench.rank_workloads import RankSetting, WalkSetting, draw_ranks, draw_walk
from tocsin.lab.memory import keep_freed
from tocsin.rank._kernels.paint import STEP, TILES, K, ObjectMoves, unicast
from tocsin.rank.paint import Painter, TileKind
from tocsin.rank.points import Points
from tocsin.rank.space import SubscriptionSpace
from tocsin.reformulate import topk

# -- tables ------------------------------------------------------------------------------------------


def show_tables(options: argparse.Namespace) -> Claims:
    """Tables I to IV: measured values beside published ones.

    For small k, received messages vary widely between runs, because a few events with the lowest objects
    reach most subscriptions. So the mean over several starts is measured; a published value is one run.
    `deviations` has how many standard deviations of a run it is off, if that is more than 5 %."""
    for name, by_k in measured_tables(options, say).items():
        published = {k: PUBLISHED[name][k] for k in by_k}
        off = {k: abs(mean / published[k] - 1) for k, (mean, _) in by_k.items()}
        deviations = {
            k: abs(mean - published[k]) / deviation
            for k, (mean, deviation) in by_k.items()
            if off[k] > 0.05 and deviation
        }
        claim = Claim(f"tables {name}", max(off.values()), "off what is published, at worst", at_most=0.05)
        yield claim.show(
            options,
            measured={k: mean for k, (mean, _) in by_k.items()},
            published=published,
            deviation_of_one_run={k: deviation for k, (_, deviation) in by_k.items() if deviation},
            deviations=deviations,
            subscriptions=options.subscriptions,
            events=options.events,
        )


# -- optimal -----------------------------------------------------------------------------------------

SIDE = 7  # x of objects are 0 .. SIDE - 1
LATTICE = [(low, high) for low in range(-1, SIDE + 1) for high in range(low, SIDE + 1)]
Points2 = list[tuple[int, int]]


def fewest(wanted: set[tuple[int, int]], others: set[tuple[int, int]]) -> int:
    """The smallest number of disjoint rectangles that hold the wanted points and no others, by trying all."""
    points = sorted(wanted)
    lows, highs = sorted({p[0] for p in points}), sorted({p[1] for p in points})
    masks: set[int] = set()
    for l_low, l_high in combinations_with_replacement(lows, 2):
        for r_low, r_high in combinations_with_replacement(highs, 2):
            if any(l_low <= a <= l_high and r_low <= b <= r_high for a, b in others):
                continue
            inside = (l_low <= a <= l_high and r_low <= b <= r_high for a, b in points)
            masks.add(sum(1 << i for i, held in enumerate(inside) if held))
    by_point = [[mask for mask in masks if mask >> i & 1] for i in range(len(points))]

    def covers(left: int, count: int) -> bool:
        if not left or not count:
            return not left
        first = (left & -left).bit_length() - 1
        return any(covers(left & ~mask, count - 1) for mask in by_point[first] if mask & ~left == 0)

    return next(count for count in range(len(points) + 1) if covers((1 << len(points)) - 1, count))


def first_k(objects: dict[int, tuple[int, int]], low: int, high: int, k: int) -> list[int]:
    return [j for _, j in sorted((y, j) for j, (x, y) in objects.items() if low <= x <= high)[:k]]


def small_case(rng: np.random.Generator) -> tuple[dict[int, tuple[int, int]], int, int, int]:
    """Objects, the one that moves, its new y, and k."""
    count = int(rng.integers(2, 9))
    y = rng.permutation(2 * count)
    objects = {i: (int(rng.integers(0, SIDE)), int(y[i])) for i in range(count)}
    return (
        objects,
        int(rng.integers(0, count)),
        int(y[count + rng.integers(0, count)]),
        int(rng.integers(1, 5)),
    )


def painted_and_fewest(case: Any, subscriptions: Points2, sparse: bool) -> tuple[int, int]:
    """The messages of painting, which must reach exactly those who need them, and the fewest possible."""
    objects, i, new, k = case
    points, space = Points(), SubscriptionSpace()
    points.load(list(objects), [x for x, _ in objects.values()], [y for _, y in objects.values()])
    space.add(range(len(subscriptions)), [s[0] for s in subscriptions], [s[1] for s in subscriptions])
    tiles = list(
        Painter(points, [k], spaces=[space] if sparse else None).describe([i], [objects[i][0]], [new])
    )
    after = objects | {i: (objects[i][0], new)}
    needs: dict[int, set[tuple[int, int]]] = {}
    for low, high in subscriptions:
        before, now = first_k(objects, low, high, k), first_k(after, low, high, k)
        changed = {j for j in now if j not in before or j == i} | ({i} & set(before))
        for j in changed if new > objects[i][1] else changed & {i}:
            needs.setdefault(j, set()).add((low, high))
    reached: dict[int, list[tuple[int, int]]] = {}
    for tile in tiles:
        a, b, c, d = tile.rectangle
        held = [s for s in subscriptions if a <= s[0] <= b and c <= s[1] <= d]
        if sparse and not held:
            raise TocsinError(f"a message reaches nobody: {tile}")
        reached.setdefault(tile.object, []).extend(held)
        if tile.kind is TileKind.NEW and tile.object != i:
            raise TocsinError(f"a message about another object: {tile}")
    if {j: sorted(who) for j, who in reached.items() if who} != {j: sorted(who) for j, who in needs.items()}:
        raise TocsinError(f"{case}: reached {reached}, needed {needs}")
    everybody = set(subscriptions)
    return len(tiles), sum(fewest(wanted, everybody - wanted) for wanted in needs.values())


def show_optimal(options: argparse.Namespace) -> Claims:
    """Every message of an object, solved exactly: dense for all ranges of a small domain, sparse for some."""
    rng = np.random.default_rng(options.seed)
    worst, total = {False: 1.0, True: 1.0}, {False: [0, 0], True: [0, 0]}
    for _ in range(options.cases):
        case = small_case(rng)
        count = int(rng.integers(1, 12))
        some = sorted({LATTICE[j] for j in rng.integers(0, len(LATTICE), count).tolist()})
        for sparse in (False, True):
            painted, least = painted_and_fewest(case, some if sparse else LATTICE, sparse)
            worst[sparse] = max(worst[sparse], painted / max(least, 1))
            total[sparse] = [total[sparse][0] + painted, total[sparse][1] + least]
    for sparse, name, bar in ((False, "dense", 1.0), (True, "sparse", 2.0)):
        painted, least = total[sparse]
        yield Claim(
            f"optimal {name}", worst[sparse], "times the fewest messages, at worst", at_most=bar
        ).show(options, cases=options.cases, messages=painted, fewest=least, redundant_messages=0)


# -- growth ------------------------------------------------------------------------------------------


def described(setting: RankSetting, options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Name, and a run over all events from the same start; contents are compared on the first events."""
    work, k = draw_ranks(setting), options.k
    space = space_of(work)
    few = work._replace(number=work.number[: options.checked], new_y=work.new_y[: options.checked])
    needed = _reached(few, space, k)
    for make, spaces in ((PaintDenseMethod, None), (PaintSparseMethod, [space])):
        measure_method(make, task_of(few, space, k), needed)

        def run(spaces=spaces) -> Painter:
            points = Points()
            points.load(np.arange(len(work.x)), work.x, work.y)
            painter = Painter(points, [k], spaces=spaces)
            painter.describe(*work.part(0, len(work.number)))
            return painter

        yield make.name, run


def _reached(work: Any, space: SubscriptionSpace, k: int) -> RankCounts:
    return count_needed("topk", task_of(work, space, k), False)


def show_growth(options: argparse.Namespace) -> Claims:
    """Time and calls of describe mode from the least to the most subscriptions.

    A run takes at most a third of a second, so there are five times as many rounds."""
    sizes = [m for m in (200_000, 1_000_000, 2_000_000, 5_000_000) if m < options.most] + [options.most]
    us: dict[str, dict[int, float]] = {"paint-dense": {}, "paint-sparse": {}}
    calls: dict[str, dict[int, float]] = {"paint-dense": {}, "paint-sparse": {}}
    runs = {}
    for m in sizes:
        say(f"{m:,} subscriptions: drawing, checking")
        setting = RankSetting(options.objects, m, options.events, seed=options.seed)
        for name, run in described(setting, options):
            runs[f"{name} {m}"], counts = run, run().counts
            calls[name][m] = (counts.min_y + counts.first_k + counts.snap) / options.events
    for key, one in in_turns(runs, 5 * options.repeat).items():
        name, m = key.split()
        us[name][int(m)] = one.us(options.events)
    first, last = sizes[0], sizes[-1]
    grown = {name: us[name][last] / us[name][first] for name in us}
    more = {"us_per_event": us, "calls_per_event": calls, "k": options.k, "events": options.events}
    yield Claim("growth dense", grown["paint-dense"], f"times from {first:,} to {last:,}", at_most=1.2).show(
        options, **more
    )
    called = calls["paint-sparse"][last] / calls["paint-sparse"][first]
    yield Claim(
        "growth sparse", grown["paint-sparse"] / called, "times the growth of its calls", at_most=1.5
    ).show(options, time=grown["paint-sparse"], calls=called)
    for name in us:
        yield Claim(f"growth {name}", 1e6 / max(us[name].values()), "events/s", at_least=20_000).show(options)


# -- enumerate, minima, batch ------------------------------------------------------------------------


class Probing:
    """Unicast's kernel alone: its rows stay in a buffer, as enumerate's deltas do."""

    def __init__(self, work: Any, k: int, buffer: int) -> None:
        self.work, self.server = work, topk.UnicastTopk([k], [(work.low, work.high)])
        self.server.load(np.arange(len(work.x)), work.x, work.y)
        self.members = self.server._contents[0].members.copy()
        painter = self.server._painter
        self.canvas = painter.canvas(painter.groups, np.empty(0, np.bool_))
        self.canvas = painter.grown(self.canvas, buffer)
        self.canvas.state[[K, STEP]] = k, 1

    def rewind(self) -> None:
        """Restore the initial state."""
        self.server.points.load(np.arange(len(self.work.x)), self.work.x, self.work.y)
        self.server._contents[0].members[:] = self.members

    def run(self, begin: int, end: int) -> tuple[float, Any]:
        """Seconds, and rows of (event, subscription, object, x, y)."""
        number, x, y = self.work.part(begin, end)
        moves = ObjectMoves(number, x, y, np.empty((len(number), 2), np.int64))
        self.server.points.reserve(0, 4 * len(number))
        self.canvas.state[TILES] = 0
        began = time.perf_counter()
        unicast(
            self.server.points.arrays,
            self.server.spaces[0].arrays,
            self.server._contents[0],
            self.canvas,
            moves,
        )
        taken = time.perf_counter() - began
        found = int(self.canvas.state[TILES])
        if found > len(self.canvas.tiles):
            raise TocsinError(f"{found:,} messages do not fit")
        return taken, self.canvas.tiles[:found]


def show_enumerate(options: argparse.Namespace) -> Claims:
    """Deltas of all subscriptions by looking up tiles, against Unicast, part by part of the same events.

    Neither writes rows: one leaves tiles with their subscriptions, the other (event, subscription, object, x,
    y). The first part compiles and is not counted; of each other part the best round counts."""
    work = draw_ranks(RankSetting(options.objects, options.subscriptions, options.events, seed=options.seed))
    space, k = space_of(work), options.k
    needed = _reached(work, space, k)
    say("comparing contents with brute force")
    result = measure_method(TOPK["enumerate"], task_of(work, space, k), needed)
    say("loading Unicast")
    probing = Probing(work, k, 20_000 * PART)
    rounds: dict[str, list[list[float]]] = {"enumerate": [], "unicast": []}
    for _ in range(options.repeat):
        ours, deltas, reached = TOPK["enumerate"](task_of(work, space, k, sample=1)), 0, 0
        probing.rewind()
        for taken in rounds.values():
            taken.append([])
        for begin in range(0, options.events, PART):
            number, x, y = work.part(begin, begin + PART)
            began = time.perf_counter()
            emitted = ours.publish(number, x, y)
            rounds["enumerate"][-1].append(time.perf_counter() - began)
            deltas += len(emitted[2]) if begin else 0
            del emitted
            probed, rows = probing.run(begin, begin + PART)
            rounds["unicast"][-1].append(probed)
            reached += int((rows[:, 2] == number[rows[:, 0]]).sum())
        if reached != needed.reached:
            raise TocsinError(f"Unicast reaches {reached} subscriptions where {needed.reached} need it")
    events = options.events - PART
    seconds = {name: float(np.min(taken, axis=0)[1:].sum()) for name, taken in rounds.items()}
    each = [
        sum(unicast[1:]) / sum(ours[1:])
        for ours, unicast in zip(rounds["enumerate"], rounds["unicast"], strict=True)
    ]
    yield Claim(
        "enumerate unicast",
        seconds["unicast"] / seconds["enumerate"],
        "times the events/s of Unicast",
        at_least=15,
    ).show(
        options,
        each_round=each,
        us_per_event={name: 1e6 * taken / events for name, taken in seconds.items()},
        subscriptions=options.subscriptions,
        events=events,
        k=k,
        enumerate=result.to_dict(),
    )
    yield Claim("enumerate deltas", deltas / seconds["enumerate"], "deltas/s", at_least=1e7).show(options)


def show_minima(options: argparse.Namespace) -> Claims:
    """T07's workload: y is a random walk, no update can be ignored, one event in 200 affects many ranges."""
    sizes = (options.subscriptions // 10, options.subscriptions // 3, options.subscriptions)
    us: dict[str, dict[int, float]] = {"s-cn": {}, "s-un": {}}
    sent: dict[str, dict[int, float]] = {"s-cn": {}, "s-un": {}}
    for name in us:
        warm_up(MINIMA[name], 1)
    works = {m: draw_walk(WalkSetting(options.objects, m, options.events, seed=options.seed)) for m in sizes}
    spaces = {m: space_of(work) for m, work in works.items()}
    parts: dict[tuple[str, int], list[list[float]]] = {(name, m): [] for name in us for m in sizes}
    for at in range(2 * options.repeat):
        say(f"round {at + 1} of {2 * options.repeat}: {', '.join(f'{m:,}' for m in sizes)} subscriptions")
        for name, m in parts:
            method = MINIMA[name](task_of(works[m], spaces[m], 1))
            parts[name, m].append(run_method(method))
            sent[name][m] = method.counted.messages / options.events
    for (name, m), seconds in parts.items():  # the best of each part
        us[name][m] = us_of(np.min(seconds, axis=0).tolist(), options.events)
    least, most = sizes[0], sizes[-1]
    grown = {name: us[name][most] / us[name][least] for name in us}
    more = {
        "us_per_event": us,
        "messages_per_event": sent,
        "objects": options.objects,
        "events": options.events,
    }
    yield Claim("minima messages", sent["s-cn"][most], "messages per event of S-CN", at_most=2.5).show(
        options, **more
    )
    yield Claim("minima s-cn", grown["s-cn"], f"times from {least:,} to {most:,}", at_most=1.2).show(options)
    yield Claim("minima s-un", grown["s-un"], f"times from {least:,} to {most:,}", at_least=1.5).show(options)


def show_batch(options: argparse.Namespace) -> Claims:
    """All events as one batch: messages that all subscriptions receive."""
    work = draw_ranks(RankSetting(options.objects, options.subscriptions, options.events, seed=options.seed))
    space, counted, seconds = space_of(work), {}, {}
    for make in (CoalescedMethod, TOPK["paint-batch"]):
        say(f"{make.name}: {options.events:,} events")
        warm_up(make, options.k)
        method = make(task_of(work, space, options.k, sample=500))
        seconds[make.name] = sum(run_method(method))
        counted[make.name] = vars(method.counted)
    share = counted["paint-batch"]["received"] / counted["coalesce"]["received"]
    yield Claim("batch", share, "of the messages received with coalescing alone", at_most=0.999).show(
        options, counted=counted, seconds=seconds, k=options.k, contents_compared=500
    )


# -- the command -------------------------------------------------------------------------------------

COMMANDS: dict[Any, dict[str, int]] = {
    show_tables: {"objects": 10_000, "subscriptions": 2_000_000, "events": 50_000, "starts": 64},
    show_optimal: {"cases": 400},
    show_growth: {"objects": 10_000, "most": 5_000_000, "events": 10_000, "checked": 1000, "k": 10},
    show_enumerate: {
        "objects": 10_000,
        "subscriptions": 2_000_000,
        "events": 3000,
        "k": 10,
    },
    show_minima: {"objects": 100_000, "subscriptions": 1_000_000, "events": 20_000},
    show_batch: {"objects": 10_000, "subscriptions": 2_000_000, "events": 50_000, "k": 10},
    show_engine: {"subscriptions": 200_000, "rows": 10_000, "changes": 1000, "sample": 500},
    show_boxes: {"subscriptions": 100_000, "rows": 10_000, "changes": 500, "sample": 200},
}


if __name__ == "__main__":
    keep_freed()
    sys.exit(show_claims(parser_of(__doc__, COMMANDS, repeat=3).parse_args()))
