"""When to propagate which tables, so that a refresh takes no longer than the limit.

Whoever owns the waiting changes reports arrivals, and asks the policy when the limit breaks:

    policy.begin(waiting, costs, limit)                 after each refresh
    policy.arrived(counts, now)                         changes wait
    if policy.breaks(waiting):                          a refresh would take too long
        tables = policy.choose(waiting, spent, now)     empty these; the rest is within the limit again

    AtOnce     `at once`: empties what changed, always: what the engine does without a limit
    EmptyAll   `naive`: empties all tables when the limit breaks
    Online     `online`: the set that makes the cost per time least, one step ahead, at measured rates
    Simulate   `simulate`: follows a plan for the time until the next refresh, made once
    Adapt      `adapt`: follows such a plan from what waits now, and makes the next one when it is used up
    Oracle     follows the best plan for the arrivals to come, which only a comparison knows

    base.py       the protocol; the limit, the time, rates of arrival
    unplanned.py  AtOnce, EmptyAll, Online
    planned.py    Simulate, Adapt, Oracle

`now` is a time in any unit; decisions depend on arrivals, times and costs alone.

>>> from tocsin.limits.costs import Costs, Linear
>>> policy = refresh_policy("online")
>>> policy.begin((0, 0), Costs((Linear(0.35, 0.5), Linear(0.01, 5.0))), limit=12.0)
>>> for step in range(1, 20):
...     policy.arrived((1, 1), float(step))
...     if policy.breaks((step, step)):
...         print(step, policy.choose((step, step), 0.0, float(step)))
...         break
19 (0,)

T07, sections 2.3 and 2.4. There costs are known and exact, and ONLINE is given the rates.
"""

from __future__ import annotations

from tocsin.errors import UsageError
from tocsin.limits.policies.base import Policy, PolicyBase, Rates
from tocsin.limits.policies.planned import Adapt, Oracle, Planned, Simulate
from tocsin.limits.policies.unplanned import AtOnce, EmptyAll, Online

__all__ = [
    "REFRESH_POLICIES",
    "Adapt",
    "AtOnce",
    "EmptyAll",
    "Online",
    "Oracle",
    "Planned",
    "Policy",
    "PolicyBase",
    "Rates",
    "Simulate",
    "refresh_policy",
]

_BY_NAME: tuple[type[PolicyBase], ...] = (Adapt, AtOnce, EmptyAll, Online, Simulate)
REFRESH_POLICIES: dict[str, type[PolicyBase]] = {kind.name: kind for kind in _BY_NAME}
"""Policies of refresh groups by name; the first is the default."""


def refresh_policy(name: str = Adapt.name) -> Policy:
    """The policy of a name, as in `WITH (policy = 'online')`.

    >>> refresh_policy("naive").name, refresh_policy().name
    ('naive', 'adapt')
    >>> refresh_policy("oracle")
    Traceback (most recent call last):
    ...
    tocsin.errors.UsageError: policy 'oracle' needs to know all changes to come: it is for comparison
    hint: one of adapt, at once, naive, online, simulate
    """
    hint = f"one of {', '.join(REFRESH_POLICIES)}"
    if name == Oracle.name:
        fact = "policy 'oracle' needs to know all changes to come: it is for comparison"
        raise UsageError(fact, hint=hint)
    if name not in REFRESH_POLICIES:
        raise UsageError(f"there is no policy {name!r} of refreshing", hint=hint)
    return REFRESH_POLICIES[name]()
