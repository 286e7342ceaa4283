"""What a policy costs on given arrivals, by its cost functions alone: to compare policies, and for figures.

>>> from tocsin.limits.costs import Costs, Linear
>>> from tocsin.limits.policies import refresh_policy
>>> costs, arrivals = Costs((Linear(0.35, 0.5), Linear(0.01, 5.0))), [(1, 1)] * 200
>>> for name in ("at once", "naive", "online"):
...     print(name, round(rehearse(refresh_policy(name), costs, arrivals, 12.0).cost))
at once 1172
naive 133
online 84
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from tocsin.limits.costs import Costs, Counts, fits
from tocsin.limits.policies import Policy

__all__ = ["Rehearsal", "rehearse"]


class Rehearsal(NamedTuple):
    """The cost of all propagating, how many actions there were, how often the limit was broken after one."""

    cost: float
    actions: int
    broken: int


def rehearse(
    policy: Policy,
    costs: Costs,
    arrivals: Sequence[Counts],
    limit: float,
    refresh_every: int | None = None,
    refresh_at: Container[int] = (),
) -> Rehearsal:
    """Run a policy over arrivals, one step each.

    Refreshes take place at the last step, at each `refresh_every`th, and at the steps `refresh_at`.
    """
    waiting: Counts = (0,) * len(costs)
    cost, spent, actions, broken = 0.0, 0.0, 0, 0
    policy.begin(waiting, costs, limit)
    for step, counts in enumerate(arrivals):
        waiting = tuple(old + new for old, new in zip(waiting, counts, strict=True))
        policy.arrived(counts, float(step))
        is_due = step in refresh_at or (refresh_every and step and step % refresh_every == 0)
        if is_due or step == len(arrivals) - 1:
            cost, spent = cost + costs.action(range(len(costs)), waiting), 0.0
            waiting = (0,) * len(costs)
            policy.begin(waiting, costs, limit)
        elif policy.breaks(waiting):
            tables = policy.choose(waiting, spent, float(step))
            paid = costs.action(tables, waiting)
            cost, spent, actions = cost + paid, spent + paid, actions + 1
            waiting = tuple(0 if i in tables else count for i, count in enumerate(waiting))
            broken += not fits(costs.refresh(waiting), limit)
    return Rehearsal(cost, actions, broken)
