"""Policies that follow a plan made by A* for the time until the next refresh is expected.

    Simulate   one plan, for arrivals that are assumed; from its beginning after each refresh
    Adapt      a plan from what waits now and the rates as measured; made anew when it is used up. The default
    Oracle     the best plan for the true arrivals, which nobody knows: for comparison

A plan's actions are taken in order, one each time the limit breaks: by count, not by clock. An action that
does not suffice grows to the cheapest valid set that contains it. Until there is anything to plan for (the
time between refreshes is not known), both choose as Online.

The thesis (T07, sections 2.4.3 and 2.5) follows SIMULATE's plan and leaves open what happens when it runs out
or arrivals differ. Ending there, with the cheapest valid set from then on, costs up to 1.66 times the best
plan, more than NAIVE; starting the plan again at most 1.03; planning anew at measured rates 1.015.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tocsin.limits.costs import Costs, Counts, fits
from tocsin.limits.plans import TableSet, best_plan, cheapest_valid_set, spread
from tocsin.limits.policies.unplanned import Online

__all__ = ["Adapt", "Oracle", "Planned", "Simulate"]

_STEPS = 128  # of a plan
_PER_BREAK = 16  # steps: arrivals are merged, since planning must cost less than it saves
_EXPANDED, _EXPANDED_ONCE = 512, 1 << 14  # states of a search
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

        About 16 steps break the limit, and there are at most 128: a plan for longer takes more time and is
        hardly better, since the next one follows it. With `whole`, steps are long enough to cover it.
        """
        if self._rates is None or not any(self._rates.of()):
            return None
        gap = self._rates.gap()
        gaps = max(_LEAST_STEPS, math.ceil(time / gap - 1e-9))
        lasts = min(self._lasts((0,) * len(first)), time)
        merged = max(1, int(lasts / gap / _PER_BREAK), math.ceil(gaps / _STEPS) if whole else 1)
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
        if self._period is None:
            return []
        arrivals = self._arrivals(waiting, self._period - self._since(now) % self._period)
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
