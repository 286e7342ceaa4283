"""When to propagate which tables, so that a refresh takes no longer than the limit.

Whoever owns the waiting changes reports arrivals, and calls the policy when the limit breaks:

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

A plan's actions are taken in order, one each time the limit breaks: by count, not by clock. An action that
does not suffice grows to the cheapest valid set that contains it. Until there is anything to plan for (the
time between refreshes is not known), SIMULATE and ADAPT choose as ONLINE.

`rehearse` says what a policy costs on given arrivals, by its cost functions alone.

T07, sections 2.3 to 2.5. There costs are known and exact, and ONLINE is given the rates. The thesis follows
SIMULATE's plan and leaves open what happens when it runs out or arrivals differ. Ending there, with the
cheapest valid set from then on, costs up to 1.66 times the best plan, more than NAIVE; starting the plan
again at most 1.03; planning anew at measured rates 1.015.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import ClassVar, NamedTuple, Protocol

from tocsin.errors import UsageError
from tocsin.limits.costs import Costs, Counts, fits
from tocsin.limits.plans import TableSet, best_plan, cheapest_valid_set, minimal_valid_sets, spread

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
    "Rehearsal",
    "Simulate",
    "every",
    "refresh_policy",
    "rehearse",
]


class Policy(Protocol):
    """Decides which tables to empty when the limit breaks."""

    name: ClassVar[str]

    def begin(self, waiting: Counts, costs: Costs, limit: float) -> None:
        """A refresh has taken place, or the first change is to come."""
        ...

    def adjust(self, costs: Costs) -> None:
        """What propagating costs is known better, or has changed."""
        ...

    def arrived(self, counts: Counts, now: float) -> None:
        """So many more changes of each table wait; `now` never decreases."""
        ...

    def breaks(self, waiting: Counts) -> bool:
        """Whether to ask `choose`: as a rule, if a refresh would take longer than the limit."""
        ...

    def choose(self, waiting: Counts, spent: float, now: float) -> TableSet:
        """The tables to empty: a valid set. `spent`: the cost of propagating since the last refresh."""
        ...


class Rates:
    """Arrivals by table and unit of time, over about the last 256 calls.

    >>> rates = Rates(2)
    >>> for second in range(100):
    ...     rates.add((3, second % 2), float(second))
    >>> [round(rate, 1) for rate in rates.of()], rates.gap()
    ([3.0, 0.5], 1.0)
    """

    _KEEP = 1.0 - 1.0 / 256

    def __init__(self, tables: int) -> None:
        self._counts, self._time, self._calls = [0.0] * tables, 0.0, 0.0
        self._now: float | None = None

    def add(self, counts: Counts, now: float) -> None:
        if self._now is None:  # how long it took until the first arrivals is not known
            self._now = now
            return
        self._time = self._time * self._KEEP + max(0.0, now - self._now)
        self._calls = self._calls * self._KEEP + 1.0
        self._counts = [old * self._KEEP + new for old, new in zip(self._counts, counts, strict=True)]
        self._now = now

    def of(self) -> list[float]:
        """Changes per unit of time; zeros as long as no time has passed."""
        return [count / self._time if self._time else 0.0 for count in self._counts]

    def gap(self) -> float:
        """The mean time between calls; 1 as long as there is none."""
        return self._time / self._calls if self._time else 1.0


class PolicyBase:
    """The limit, the time, the rates of arrival.

    A limit below the time of one change of each table cannot be kept. Then all tables are emptied whenever a
    refresh would take twice the set-ups: tiny batches would only make it worse.
    """

    name: ClassVar[str] = ""

    def __init__(self) -> None:
        self._now: float | None = None
        self._began: float | None = None
        self._rates: Rates | None = None
        self._asked = math.inf  # the limit as given
        self._working = math.inf
        self.costs = Costs(())

    def begin(self, waiting: Counts, costs: Costs, limit: float) -> None:
        self._asked, self._began = limit, self._now
        self.adjust(costs)

    def adjust(self, costs: Costs) -> None:
        self.costs = costs
        self.is_feasible = costs.is_feasible(self._asked)
        ones = (1,) * len(costs)
        self._working = self._asked if self.is_feasible else max(self._asked, 2.0 * costs.refresh(ones))

    def arrived(self, counts: Counts, now: float) -> None:
        if self._rates is None:
            self._rates = Rates(len(counts))
        self._rates.add(counts, now)
        self._now = now
        if self._began is None:
            self._began = now

    def breaks(self, waiting: Counts) -> bool:
        return not fits(self.costs.refresh(waiting), self._working)

    def choose(self, waiting: Counts, spent: float, now: float) -> TableSet:
        if not self.is_feasible:
            return every(waiting)
        return self._choose(waiting, spent, now)

    def _choose(self, waiting: Counts, spent: float, now: float) -> TableSet:
        return every(waiting)

    def _since(self, now: float) -> float:
        """The time since the last refresh."""
        return now - (now if self._began is None else self._began)


def every(waiting: Counts) -> TableSet:
    """The tables with changes."""
    return tuple(i for i, count in enumerate(waiting) if count)


_LONGEST = 1 << 20  # gaps between arrivals that ONLINE looks ahead


class AtOnce(PolicyBase):
    """Propagates each change when it comes."""

    name = "at once"

    def breaks(self, waiting: Counts) -> bool:
        return any(waiting)


class EmptyAll(PolicyBase):
    """NAIVE: empties all tables when the limit breaks, so that each costs its set-up each time."""

    name = "naive"


class Online(PolicyBase):
    """ONLINE: the minimal valid set Z with the least (B + f(Z)) / (t + d).

    t and B are time and cost since the last refresh, d the time until the limit breaks again at the measured
    rates. It looks one step ahead, so it never sees that emptying a dear table now pays later: up to 1.2
    times the best on the costs of figure 2.6, and no constant bound (1.63 was found).
    """

    name = "online"

    def _choose(self, waiting: Counts, spent: float, now: float) -> TableSet:
        sets, since = minimal_valid_sets(self.costs, waiting, self._working), self._since(now)
        if len(sets) == 1:
            return sets[0]

        def score(tables: TableSet) -> tuple[float, float, TableSet]:
            cost = self.costs.action(tables, waiting)
            rest = tuple(0 if i in tables else count for i, count in enumerate(waiting))
            time = since + self._lasts(rest)
            return (spent + cost) / time if time > 0 else math.inf, cost, tables

        return min(map(score, sets))[2]

    def _lasts(self, rest: Counts) -> float:
        """The time until the limit breaks again, as a whole number of gaps between arrivals."""
        assert self._rates is not None, "a limit breaks after arrivals"
        gap = self._rates.gap()
        each = [rate * gap for rate in self._rates.of()]

        def holds(gaps: int) -> bool:
            later = [count + gaps * rate for count, rate in zip(rest, each, strict=True)]
            return fits(self.costs.refresh(later), self._working)

        high = 1
        while holds(high):
            high *= 2
            if high >= _LONGEST:
                return math.inf
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(middle) else (low, middle)
        return high * gap


_STEPS = 128  # of a plan
_PER_BREAK, _LEAST_PER_BREAK = (
    16,
    8,
)  # steps: arrivals are merged, since planning must cost less than it saves
_COVERING = 64  # steps of a plan that covers the time until the next refresh
_EXPANDED, _EXPANDED_ONCE = 1024, 1 << 14  # states of a search
_LEAST_STEPS = 8
_KEEP = 0.75  # weight of earlier times between refreshes


class Planned(Online):
    """Follows a plan; `period` is the time between refreshes, measured if it is not given."""

    def __init__(self, period: float | None = None) -> None:
        super().__init__()
        self._period, self._is_given = period, period is not None
        self._actions: list[TableSet] = []
        self._next = 0

    def begin(self, waiting: Counts, costs: Costs, limit: float) -> None:
        took = (self._now or 0.0) - (self._began or 0.0)
        if not self._is_given and self._began is not None and took > 0.0:
            known = self._period
            self._period = took if known is None else _KEEP * known + (1.0 - _KEEP) * took
        super().begin(waiting, costs, limit)
        self._next = 0

    def _choose(self, waiting: Counts, spent: float, now: float) -> TableSet:
        if self._next >= len(self._actions):
            self._actions, self._next = self._plan(waiting, now), 0
        if not self._actions:
            return super()._choose(waiting, spent, now)
        planned = tuple(i for i in self._actions[self._next] if waiting[i])
        self._next += 1
        rest = tuple(0 if i in planned else count for i, count in enumerate(waiting))
        if planned and fits(self.costs.refresh(rest), self._working):
            return planned
        return cheapest_valid_set(self.costs, waiting, self._working, planned)

    def _plan(self, waiting: Counts, now: float) -> list[TableSet]:
        """The actions before the next refresh; none if there is nothing to plan for."""
        return []

    def _arrivals(self, first: Counts, time: float, whole: bool = False) -> list[Counts] | None:
        """Arrivals at measured rates over a time; None if no rate is known.

        About 16 steps break the limit, or as few as 8 if so the plan covers the time in some 64 steps: a plan
        that ends too early leaves for its end what is dear to start. There are at most 128, since the next
        plan follows. With `whole`, steps are long enough to cover the time.
        """
        if self._rates is None or not any(self._rates.of()):
            return None
        gap = self._rates.gap()
        gaps = max(_LEAST_STEPS, math.ceil(time / gap - 1e-9))
        lasts = min(self._lasts((0,) * len(first)), time)
        if whole:
            merged = max(1, int(lasts / gap / _PER_BREAK), math.ceil(gaps / _STEPS))
        else:
            breaks = gaps / (lasts / gap)
            longer = min(_PER_BREAK, max(_LEAST_PER_BREAK, _COVERING / breaks))
            is_covered = breaks * longer <= _STEPS
            merged = max(1, int(lasts / gap / (longer if is_covered else _PER_BREAK)))
        each = [rate * gap * merged for rate in self._rates.of()]
        return spread(each, min(_STEPS, math.ceil(gaps / merged)), first)


class Simulate(Planned):
    """SIMULATE: one plan; when it is used up, its last action empties all tables, and it starts again.

    `arrivals`: those assumed between two refreshes; measured when the plan is made otherwise.
    """

    name = "simulate"

    def __init__(self, period: float | None = None, arrivals: Sequence[Counts] | None = None) -> None:
        super().__init__(period)
        self._assumed = arrivals
        self._made: list[TableSet] | None = None

    def _plan(self, waiting: Counts, now: float) -> list[TableSet]:
        if self._made is None:
            nothing = (0,) * len(waiting)
            known = self._period is not None
            assumed = self._assumed or (
                self._arrivals(nothing, self._period or 0.0, whole=True) if known else None
            )
            if assumed is None:
                return []
            plan = best_plan(self.costs, assumed, self._working, _EXPANDED_ONCE)
            self._made = [tables for _, tables in plan.actions]
        return self._made


class Adapt(Planned):
    """ADAPT: plans from what waits, at measured rates, for the time that is left until the next refresh."""

    name = "adapt"

    def _plan(self, waiting: Counts, now: float) -> list[TableSet]:
        since, period = self._since(now), self._period
        if period is not None and since < period:
            left = period - since
        else:  # nothing is known but that it has lasted so long: it will as long again
            left = since
        arrivals = self._arrivals(waiting, left) if left > 0.0 else None
        if arrivals is None:
            return []
        plan = best_plan(self.costs, arrivals, self._working, _EXPANDED)
        actions = [tables for _, tables in plan.actions]
        return actions[:-1] if plan.complete else actions  # the last one is the refresh


class Oracle(Planned):
    """Follows the best plan for the true arrivals, by the clock: `arrivals[i]` is what call i reports."""

    name = "oracle"

    def __init__(self, arrivals: Sequence[Counts]) -> None:
        super().__init__()
        self._true = arrivals
        self._step = -1
        self._at: dict[int, TableSet] = {}

    def begin(self, waiting: Counts, costs: Costs, limit: float) -> None:
        super().begin(waiting, costs, limit)
        self._at = {}

    def arrived(self, counts: Counts, now: float) -> None:
        super().arrived(counts, now)
        self._step += 1

    def _choose(self, waiting: Counts, spent: float, now: float) -> TableSet:
        if self._step not in self._at:
            plan = best_plan(self.costs, [waiting, *self._true[self._step + 1 :]], self._working)
            self._at = {self._step + time: tables for time, tables in plan.actions}
        return self._at[self._step]


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
