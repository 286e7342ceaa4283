"""T07, chapter 2: refresh within a response time.

The published curves are lost; `stated` is what the text says. Costs of figures 2.6 and 2.7 are assumed, in
the shape of figure 2.4: Supplier .35 k + .5, PartSupp .01 k + 5.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tocsin.lab.bench.claim import Claim
from tocsin.lab.bench.limits.figures import (
    FigureRow,
    LimitsFigure,
    LimitsResult,
    LimitsSetting,
)
from tocsin.lab.bench.refresh import (
    RefreshSetting,
    measured_costs,
    measured_setups,
    run_refresh,
    simulated,
)
from tocsin.limits.costs import Costs, Counts, Linear
from tocsin.limits.plans import best_plan
from tocsin.limits.policies import Adapt, EmptyAll, Online, PolicyBase, Simulate, rehearse

__all__ = ["FIGURES", "arrivals_of"]

Say = Callable[[str], None]
_COSTS = Costs((Linear(0.35, 0.5), Linear(0.01, 5.0)))
_ASSUMED = 500  # T0 of SIMULATE and ADAPT
_BEST = "OPT-LGM"


def _motivating(setting: LimitsSetting, say: Say) -> LimitsResult:
    """2.1: c_S(k) = .25 k, c_R(180) = 305, c_R(600) = 350, limit 350 ms; one change of each per step."""
    slope = (350 - 305) / (600 - 180)
    costs, limit, steps = Costs((Linear(slope, 305 - 180 * slope), Linear(0.25, 0.0))), 350.0, 30_000
    arrivals: list[Counts] = [(1, 1)] * steps
    plan = steps * 0.25 + steps / 600 * costs.each[0](600)
    found = {
        "NAIVE": rehearse(EmptyAll(), costs, arrivals, limit).cost,
        "S at once, R every 600": plan,
        "ONLINE": rehearse(Online(), costs, arrivals, limit).cost,
        "ADAPT": rehearse(Adapt(_ASSUMED * 6), costs, arrivals, limit).cost,
        _BEST: best_plan(costs, arrivals[: steps // 10], limit).cost * 10,
    }
    stated = {"NAIVE": 0.97, "S at once, R every 600": 0.42}
    each = {name: cost / (2 * steps) for name, cost in found.items()}
    rows = [FigureRow("R and S", name, "all", value, stated.get(name)) for name, value in each.items()]
    claims = [
        Claim("NAIVE, ms per modification, at least .965", each["NAIVE"], at_least=0.965),
        Claim("NAIVE, at most .975", each["NAIVE"], at_most=0.975),
        Claim("ONLINE, at least .415", each["ONLINE"], at_least=0.415),
        Claim("ONLINE, at most .425", each["ONLINE"], at_most=0.425),
        Claim(f"{_BEST} over 3000 steps, at most .425", each[_BEST], at_most=0.425),
    ]
    return LimitsResult(rows, claims, "By the cost functions; 30,000 steps.")


# -- on the engine --------------------------------------------------------------------------------------

_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 400)
_ROOMS = {"join.routed": False, "join.scan": True}


def _costs(setting: LimitsSetting, say: Say) -> LimitsResult:
    """2.4: the time of a refresh after so many changes of one table, in both join rooms; medians."""
    repeats = 9 if setting.runs is None else setting.runs
    rows, slopes = [], []
    for room, is_scan in _ROOMS.items():
        say(room)
        found = measured_costs(RefreshSetting(scan=is_scan, cpu=True, seed=setting.seed), _COUNTS, repeats)
        rows += [FigureRow(room, table, count, took) for (table, count), took in found.items()]
        rise = {table: found[table, _COUNTS[-1]] - found[table, 1] for table, _ in found}
        slopes.append(rise["supplier"] / max(rise["partsupp"], 1e-3))
    claims = [Claim("slope of Supplier over slope of PartSupp, the lesser room", min(slopes), at_least=2.0)]
    note = f"80,000 and 1,000 rows; medians of {repeats} refreshes, processor time."
    return LimitsResult(rows, claims, note)


_RUNS = {  # steps, pulls, changes of PartSupp by step
    "join.routed": RefreshSetting(steps=2000, pulls=16, cpu=True),
    "join.scan": RefreshSetting(steps=600, pulls=4, rate=80, scan=True, cpu=True),
}


def _real_and_simulated(setting: LimitsSetting, say: Say) -> LimitsResult:
    """2.5: seconds on the engine, and by the cost functions as fitted in the end."""
    rows, shares, ratios = [], [], []
    for room, own in _RUNS.items():
        own = replace(own, seed=setting.seed)
        within = 2.0 * sum(measured_setups(own).values())
        for name in ("naive", "online", "adapt"):
            say(f"{room}: {name}")
            run = run_refresh(own, name, within)
            predicted = simulated(own, run, name, within)
            rows.append(FigureRow(room, name.upper(), "real", run.spent / 1e3))
            rows.append(FigureRow(room, name.upper(), "simulated", predicted / 1e3))
            ratios.append(run.spent / predicted)
            shares.append(run.report.planning / run.spent)
        best = simulated(own, run, None, within)
        rows.append(FigureRow(room, "OPT-LGM", "simulated", best / 1e3))
    claims = [
        Claim("real over simulated, the least", min(ratios), at_least=0.7),
        Claim("real over simulated, the most", max(ratios), at_most=1.3),
        Claim("planning over propagating, the most", max(shares), at_most=0.05),
    ]
    note = "80,000 and 1,000 rows; limit: twice a small batch of each table; refreshes at random steps."
    note += " Cost functions are upper ones: nine in ten batches are below."
    return LimitsResult(rows, claims, f"{note} Processor time.")


# -- figures by the cost functions ----------------------------------------------------------------------


def arrivals_of(present: float, sigma: float, steps: int, seed: int) -> list[Counts]:
    """Changes of two tables by step: with probability `present`, a rounded normal of mean 1 above 0."""
    draw = random.Random(seed)

    def one() -> int:
        if draw.random() >= present:
            return 0
        while (count := round(draw.gauss(1, sigma)) if sigma else 1) <= 0:
            pass
        return count

    return [(0, 0), *((one(), one()) for _ in range(steps))]


def _compare(arrivals: list[Counts], limit: float) -> dict[str, float]:
    """The cost of each policy over these arrivals, and of the best plan."""
    assumed: list[Counts] = [(0, 0), *[(1, 1)] * _ASSUMED]
    policies: dict[str, PolicyBase] = {
        "NAIVE": EmptyAll(),
        "ONLINE": Online(),
        "SIMULATE": Simulate(float(_ASSUMED), assumed),
        "ADAPT": Adapt(float(_ASSUMED)),
    }
    found = {name: rehearse(policy, _COSTS, arrivals, limit).cost for name, policy in policies.items()}
    return {**found, _BEST: best_plan(_COSTS, arrivals, limit).cost}


_BARS = (("ADAPT", None, 1.02), ("SIMULATE", None, 1.05), ("ONLINE", None, 1.20), ("NAIVE", 1.25, None))


def _claims(ratios: dict[str, list[float]]) -> list[Claim]:
    return [
        Claim(f"{name} over {_BEST}, the worst", max(ratios[name]), at_most=most)
        if most is not None
        else Claim(f"{name} over {_BEST}, the best", min(ratios[name]), at_least=least)
        for name, least, most in _BARS
    ]


def _by_refresh_time(setting: LimitsSetting, say: Say) -> LimitsResult:
    """2.6: total cost by the time of the refresh; SIMULATE and ADAPT expect it at 500."""
    rows, ratios = [], dict[str, list[float]]()
    for steps in range(100, 1001, 100):
        costs = _compare(arrivals_of(1.0, 0.0, steps, 0), 12.0)
        for name, cost in costs.items():
            rows.append(FigureRow("limit 12", name, steps, cost))
            ratios.setdefault(name, []).append(cost / costs[_BEST])
    return LimitsResult(rows, _claims(ratios), "Costs .35 k + .5 and .01 k + 5; one change of each per step.")


_PATTERNS = {"slow, stable": (0.5, 1), "slow, unstable": (0.5, 5), "fast, stable": (0.9, 1),
             "fast, unstable": (0.9, 5)}  # fmt: skip


def _by_arrivals(setting: LimitsSetting, say: Say) -> LimitsResult:
    """2.7: total cost by pattern of arrivals; refresh at 1000, expected at 500 by SIMULATE and ADAPT."""
    runs = 3 if setting.runs is None else setting.runs
    rows, ratios = [], dict[str, list[float]]()
    for pattern, (present, sigma) in _PATTERNS.items():
        say(pattern)
        several = [
            _compare(arrivals_of(present, sigma, 1000, 1000 * (setting.seed + run) + sigma), 20.0)
            for run in range(runs)
        ]
        for name in several[0]:
            mean = float(np.mean([costs[name] for costs in several]))
            rows.append(FigureRow("limit 20", name, pattern, mean))
            ratios.setdefault(name, []).extend(costs[name] / costs[_BEST] for costs in several)
    return LimitsResult(rows, _claims(ratios), f"Means of {runs} draws; bars hold for each of them.")


FIGURES = (
    LimitsFigure(
        *("2.1", "The motivating example", "modifications", "ms per modification", 1, _motivating),
        "NAIVE .97 ms per modification; S at once and R every 600: .42",
    ),
    LimitsFigure(
        *("2.4", "Costs of propagating, on the engine", "changes in a batch", "ms", 9, _costs),
        "Supplier linear, PartSupp fairly stable (MIN over a join of four tables, DB2)",
    ),
    LimitsFigure(
        *("2.5", "Seconds of propagating, real and simulated", "measured", "s", 1, _real_and_simulated),
        "the difference is negligible",
    ),
    LimitsFigure(
        *("2.6", "Total cost by the time of the refresh", "time of the refresh", "cost", 1, _by_refresh_time),
        "all far below NAIVE; ONLINE and SIMULATE very close to OPT-LGM",
    ),
    LimitsFigure(
        *("2.7", "Total cost by pattern of arrivals", "arrivals", "cost", 3, _by_arrivals),
        "both beat NAIVE; SIMULATE is robust, ONLINE worse on unstable arrivals",
    ),
)
