"""Tocsin's claims about queries under limits, measured: one subcommand per group of claims.

    refresh    the view of T07, chapter 2, on demand: against propagating at once and NAIVE; the promise

    streams        a join of streams with a million rows kept: events per second, scoring, memory
    counts         random joins under a budget: produced + missed is the number of pairs
    users          what a tenth of the memory of an exact join gives: HEEB's share of all pairs beside FIFO's
    stream_budget  share of pairs by budget and policy, as a picture (results/stream-joins-budget.png)

    python bench/limits_show.py refresh
    python bench/limits_show.py users --no-bar
    python bench/limits_show.py refresh --cpu 1 --no-bar      processor time: other processes do not count

Answers are checked before a time is printed. Standard output has one JSON object per claim, standard error a
readable line; the exit code is 1 if an answer is wrong or a claim does not hold.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

import limits_streams
import numpy as np
from claims import Claim, Claims, parser_of, say, show_claims

from tocsin.lab.bench.refresh import RefreshRun, RefreshSetting, measured_setups, run_refresh, simulated


def show_refresh(options: argparse.Namespace) -> Claims:
    """Deferred refresh: against at once, against NAIVE, and how the promise was kept."""
    routed = RefreshSetting(
        options.parts,
        options.suppliers,
        1,
        options.steps,
        options.pulls,
        cpu=bool(options.cpu),
        seed=options.seed,
    )
    yield from _against_at_once(options, routed)
    scan = replace(routed, scan=True, rate=80, steps=options.scan_steps, pulls=options.scan_pulls)
    yield from _against_naive(options, scan)
    yield from _promise(options, replace(routed, pulls=200))


def _against_at_once(options: argparse.Namespace, setting: RefreshSetting) -> Claims:
    within = options.limit * sum(measured_setups(setting).values())
    ratios, runs = [], []
    for repeat in range(options.repeat):
        own = replace(setting, seed=setting.seed + repeat)
        once, adapt = run_refresh(own, "at once", None), run_refresh(own, "adapt", within)
        say(f"  at once {once.spent:,.0f} ms, adapt {adapt.spent:,.0f} ms in {adapt.acts} actions")
        ratios.append(once.spent / adapt.spent)
        runs.append(adapt)
    claim = Claim("at once against ADAPT, routed", float(np.median(ratios)), "times", at_least=10)
    yield claim.show(options, ratios=ratios, within=within)
    planning = float(np.median([run.report.planning / run.spent for run in runs]))
    yield Claim("planning, of propagating", planning, "share", at_most=0.05).show(options)


def _against_naive(options: argparse.Namespace, setting: RefreshSetting) -> Claims:
    within = options.limit * sum(measured_setups(setting).values())
    ratios, kept, bounds = [], [], []
    for repeat in range(options.repeat):
        own = replace(setting, seed=setting.seed + repeat)
        naive, adapt = run_refresh(own, "naive", within), run_refresh(own, "adapt", within)
        spent = f"naive {naive.spent:,.0f} ms, adapt {adapt.spent:,.0f} ms"
        say(f"  {spent}; limit {within:.1f} ms; {_times(adapt)}")
        ratios.append(naive.spent / adapt.spent)
        kept.append(float((np.array(adapt.taken) <= 1.25 * within).mean()))
        bounds.append(simulated(own, adapt, "naive", within) / simulated(own, adapt, None, within))
        say(f"  by these costs NAIVE is {bounds[-1]:.2f} times the best plan")
    claim = Claim("NAIVE against ADAPT, scan, 80:1", float(np.median(ratios)), "times", at_least=1.7)
    yield claim.show(options, ratios=ratios, within=within, kept=kept, against_best_plan=bounds)


def _promise(options: argparse.Namespace, setting: RefreshSetting) -> Claims:
    within = options.limit * sum(measured_setups(setting).values())
    run = run_refresh(setting, "adapt", within)
    taken = np.array(run.taken)
    say(f"  {len(taken)} refreshes, {_times(run)}; limit {within:.2f} ms, {run.acts} actions")
    for name, value, bar in (
        ("promise: refreshes within the limit", float((taken <= within).mean()), 0.95),
        ("promise: refreshes within 1.25 times the limit", float((taken <= 1.25 * within).mean()), 0.99),
    ):
        yield Claim(name, value, "of 200 pulls", at_least=bar).show(options, within=within)
    quantiles = [run.ratio(share) for share in (0.1, 0.5, 0.9)]
    for bar in ({"at_least": 0.7}, {"at_most": 1.3}):
        claim = Claim("measured over predicted, median", run.ratio(), "of a refresh", **bar)
        yield claim.show(options, quantiles=quantiles)
    slow = run_refresh(replace(setting, slow_from=0.5), "adapt", 3 * within)
    later = np.array(slow.recovered)
    say(f"  after a slowdown of 3 times: {len(later)} refreshes, limit {3 * within:.2f} ms")
    value = float((later <= 3 * within).mean()) if len(later) else 0.0
    yield Claim("promise, 50 actions after a slowdown", value, "of refreshes", at_least=0.95).show(options)


def _times(run: RefreshRun) -> str:
    low, middle, high = np.quantile(run.taken, (0.5, 0.95, 0.99))
    return f"refreshes median {low:.2f}, 95 % {middle:.2f}, 99 % {high:.2f} ms"


COMMANDS = {
    show_refresh: {
        "parts": 80_000, "suppliers": 1_000, "steps": 6_000, "pulls": 50, "scan_steps": 5_400,
        "scan_pulls": 4, "limit": 2.0, "cpu": 0,
    },
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(show_claims(parser_of(__doc__, COMMANDS | limits_streams.COMMANDS, repeat=3).parse_args()))
