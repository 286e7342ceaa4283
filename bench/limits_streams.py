"""Claims about joins of streams under a budget: subcommands of `limits_show.py`."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from claims import Claim, Claims, say

from tocsin.lab.bench.stream_counts import CLOCKS, run_counted
from tocsin.lab.bench.stream_joins import (
    KeyedEvents,
    Scale,
    once,
    pairs_within,
    run_events,
    run_scale,
    zipf,
)

RESULTS = Path(__file__).parent / "results"
POLICIES = ("heeb", "prob", "lru", "rand", "fifo")


def _cases(events: int, window: int, seed: int) -> dict[str, tuple[KeyedEvents, float]]:
    """Workloads of users, and how many times FIFO's share the default policy has to keep."""
    keys = 5 * window
    return {
        "Zipf 1.1": (zipf(events, keys, 1.1, window, seed), 4.0),
        "Zipf 0.8": (zipf(events, keys, 0.8, window, seed), 7.0),
        "keys that come once": (once(events, window, window / 10, seed), 1.8),
    }


def show_streams(args: argparse.Namespace) -> Claims:
    """A bounded join of streams at scale: speed, scoring, memory."""
    small = run_scale(Scale(2_000, 500, 100, "20000", args.seed), 50)
    found = small.emitted + small.report.missed
    if not small.report.exact or small.emitted != small.report.produced or found != small.exact:
        raise SystemExit(f"wrong: {small.emitted} emitted + {small.report.missed} missed, not {small.exact}")
    say("answers are right")
    run = run_scale(Scale(args.keys, args.batch, args.batches, str(args.rows), args.seed), args.warm)
    off = abs(run.emitted + run.report.missed - run.exact) / run.exact
    if off > 0.01:
        raise SystemExit(f"wrong: {run.emitted} emitted and {run.report.missed} missed of {run.exact}")
    rate = run.events / run.seconds
    yield Claim("bounded join of streams", rate, "events/s", at_least=300_000).show(
        args, rows=run.report.rows, share=run.report.share, estimate_off=off, model=run.report.model
    )
    scoring = 1e6 * run.scoring / run.events
    yield Claim("scoring and dropping", scoring, "µs per event", at_most=1.0).show(args)
    run = run_scale(
        Scale(args.keys, args.batch, args.batches, f"'{args.megabytes} MB'", args.seed), args.warm
    )
    over = run.growth / (args.megabytes << 20)
    yield Claim("peak of memory", over, "times the budget, by RSS", at_most=1.05).show(
        args, rows=run.report.rows, events_per_second=run.events / run.seconds, bytes=run.report.bytes
    )


def show_counts(args: argparse.Namespace) -> Claims:
    """Random joins under a budget: produced + missed is the number of pairs."""
    for clock in args.clocks.split(","):
        cases = [run_counted(args.seed + n, clock) for n in range(args.cases)]
        for case in cases:
            if not case.holds:
                say(f"  wrong: {case}")
        exact = [case for case in cases if case.is_exact]
        about = sum(c.emitted + c.missed for c in cases) / max(1, sum(c.pairs for c in cases))
        name = f"produced + missed are all pairs, {clock}"
        details = {
            "claimed_exact": len(exact),
            "that_missed_some": sum(case.missed > 0 for case in cases),
            "policies": Counter(case.policy for case in cases),
            "of_all_pairs": about,
        }
        if clock != "bytes":
            right = sum(case.is_exact and case.holds for case in cases)
            yield Claim(name, right, "random cases", at_least=args.cases).show(args, **details)
            continue
        right = sum(case.holds for case in cases)  # dropped rows are sampled where their log is full
        yield Claim(f"{name}, where said to be exact", right, "random cases", at_least=args.cases).show(
            args, **details
        )
        yield Claim(f"{name}, together", abs(about - 1.0), "off", at_most=0.02).show(args)


def show_users(args: argparse.Namespace) -> Claims:
    """What a tenth of the memory of an exact join gives."""
    for name, (events, bar) in _cases(args.events, args.window, args.seed + 1).items():
        first = args.events // 3
        exact = pairs_within(events, first, args.batch)
        full, report = run_events(events, f", memory = {args.events}", args.batch, first)
        if full != exact or report.missed:
            raise SystemExit(f"wrong: {full} pairs of {exact}")
        memory = f", memory = {args.window // 10}"
        emitted = {
            policy: run_events(events, f"{memory}, policy = '{policy}'", args.batch, first)
            for policy in ("heeb", "prob", "fifo")
        }
        shares = {policy: count / exact for policy, (count, _) in emitted.items()}
        ratio = shares["heeb"] / shares["fifo"]
        reported = {policy: report.share for policy, (_, report) in emitted.items()}
        yield Claim(f"{name}: a tenth of the memory", ratio, "times FIFO's share", at_least=bar).show(
            args, shares=shares, reported_of_all=reported, model=emitted["heeb"][1].model
        )


def show_stream_budget(args: argparse.Namespace) -> Claims:
    """Share of pairs by budget and policy, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    cases = _cases(args.events, args.window, args.seed + 1)
    figure, axes = plt.subplots(1, len(cases), figsize=(12, 3.6), sharey=True)
    points: dict[str, Any] = {}
    for axis, (name, (events, _)) in zip(axes, cases.items(), strict=True):
        first = args.events // 3
        exact = pairs_within(events, first, args.batch)
        for policy in POLICIES:
            shares = []
            for percent in (2, 5, 10, 25, 50, 100):
                options = f", memory = {args.window * percent // 100}, policy = '{policy}'"
                shares.append((percent, run_events(events, options, args.batch, first)[0] / exact))
            points[f"{name}, {policy}"] = [round(share, 3) for _, share in shares]
            axis.plot(*zip(*shares, strict=True), marker="o", markersize=3, label=policy)
        axis.set_title(name)
        axis.set_xlabel("memory, % of an exact join's")
        axis.set_xscale("log")
    axes[0].set_ylabel("share of pairs emitted")
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(RESULTS / "stream-joins-budget.png", dpi=110)
    last = min(shares[-1] for shares in points.values())
    yield Claim("share with all the memory", last, "of the pairs", at_least=0.9).show(args, shares=points)


SCALE: dict[str, Any] = {
    "keys": 1_000_000, "batch": 10_000, "batches": 300, "warm": 150, "rows": 1_000_000, "megabytes": 100,
}  # fmt: skip
USERS: dict[str, Any] = {"events": 24_000, "window": 4_000, "batch": 20}


COMMANDS = {
    show_streams: SCALE,
    show_counts: {"cases": 1_000, "clocks": ",".join(CLOCKS)},
    show_users: USERS,
    show_stream_budget: {**USERS, "events": 12_000, "batch": 100},
}
