"""Plans by exhaustion, for small cases: the best of all, of the lazy, of the lazy, greedy and minimal ones.

At each time arrivals come first, then an action; a refresh of what is left fits the limit; at the last time
everything is propagated. `joint_actions`: an action on several tables pays `joint` too.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from functools import lru_cache

from tocsin.limits.costs import Capped, Cost, Costs, Counts, Linear, Tabled, fits

KINDS = ("linear", "concave", "step", "table")


def best_of_all(
    costs: Costs, arrivals: Sequence[Counts], limit: float, lazy: bool = False, joint_actions: bool = False
) -> float:
    """The least cost of any plan; of a lazy one, which acts only when the limit breaks."""
    last = len(arrivals) - 1
    each = [[cost(k) for k in range(sum(a[i] for a in arrivals) + 1)] for i, cost in enumerate(costs.each)]

    def paid(done: Counts) -> float:
        several = costs.joint if joint_actions and sum(map(bool, done)) > 1 else 0.0
        return sum(table[k] for table, k in zip(each, done, strict=True)) + several

    @lru_cache(None)
    def holds(waiting: Counts) -> bool:
        total = sum(table[k] for table, k in zip(each, waiting, strict=True))
        return fits(costs.together(total, sum(map(bool, waiting))), limit)

    @lru_cache(None)
    def best(time: int, waiting: Counts) -> float:
        if time == last:
            return paid(waiting)
        if lazy and holds(waiting):
            return best(time + 1, plus(waiting, arrivals[time + 1]))
        found = math.inf
        for done in itertools.product(*(range(k + 1) for k in waiting)):
            rest = tuple(k - d for k, d in zip(waiting, done, strict=True))
            if holds(rest):
                found = min(found, paid(done) + best(time + 1, plus(rest, arrivals[time + 1])))
        return found

    return best(0, tuple(arrivals[0]))


def best_greedy(
    costs: Costs, arrivals: Sequence[Counts], limit: float, joint_actions: bool = False, minimal: bool = True
) -> float:
    """The least cost of a lazy plan that empties tables whole, by default no more of them than needed."""
    last = len(arrivals) - 1

    @lru_cache(None)
    def best(time: int, waiting: Counts) -> float:
        while time < last and fits(costs.refresh(waiting), limit):
            time, waiting = time + 1, plus(waiting, arrivals[time + 1])
        tables = [i for i, k in enumerate(waiting) if k]
        if time == last:
            return costs.action(tables, waiting) + (costs.joint if joint_actions and len(tables) > 1 else 0.0)
        found = math.inf
        for chosen in valid_sets(costs, waiting, limit, minimal):
            rest = tuple(0 if i in chosen else k for i, k in enumerate(waiting))
            paid = costs.action(chosen, waiting) + (costs.joint if joint_actions and len(chosen) > 1 else 0.0)
            found = min(found, paid + best(time + 1, plus(rest, arrivals[time + 1])))
        return found

    return best(0, tuple(arrivals[0]))


def valid_sets(costs: Costs, waiting: Counts, limit: float, minimal: bool = True) -> list[tuple[int, ...]]:
    """All valid sets, or the minimal ones, by definition."""
    tables = [i for i, k in enumerate(waiting) if k]
    subsets = [set(s) for m in range(len(tables) + 1) for s in itertools.combinations(tables, m)]
    valid = [
        s for s in subsets
        if fits(costs.refresh(tuple(0 if i in s else k for i, k in enumerate(waiting))), limit)
    ]  # fmt: skip
    return [tuple(sorted(s)) for s in valid if not minimal or not any(other < s for other in valid)]


def plus(waiting: Counts, arriving: Counts) -> Counts:
    return tuple(a + b for a, b in zip(waiting, arriving, strict=True))


def random_cost(kind: str, draw: random.Random) -> Cost:
    slope, setup = draw.uniform(0.2, 2), draw.uniform(0, 4)
    if kind == "linear":
        return Linear(slope, setup)
    if kind == "concave":
        return Capped(Linear(slope, setup), draw.uniform(1.0, 8.0))
    if kind == "step":
        size = draw.randint(2, 4)
        return _tabled(lambda k: 3 * slope * math.ceil(k / size))
    values = [0.0]
    for k in range(1, 40):
        most = min((values[i] + values[k - i] for i in range(1, k // 2 + 1)), default=6 * slope)
        values.append(values[-1] + draw.random() ** 2 * (most - values[-1]))
    return _tabled(lambda k: values[k])


def _tabled(f: Callable[[int], float]) -> Tabled:
    return Tabled(range(1, 40), [f(k) for k in range(1, 40)])


def random_arrivals(draw: random.Random, tables: int, last: int, most: int = 2) -> list[Counts]:
    return [tuple(draw.randint(0, most) for _ in range(tables)) for _ in range(last + 1)]
