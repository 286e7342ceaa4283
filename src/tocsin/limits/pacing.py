"""When a refresh group propagates what: its limit, its policy, and what propagating takes.

    arrived ─► choose: a table that outgrew what was measured, else what the policy says
    propagated, refreshing ─► observations ─► costs ─► policy

Costs are measured on the group's own rooms as it runs, table by table. As long as little is known of a table,
it is propagated whenever four times as many changes wait as were measured in one batch: so the fit is never
trusted far beyond what was seen, and calibrating costs a few small batches, not a burst of work.

Planning must cost less than it saves. Where actions are so cheap that plans cost more than a share of them,
some are taken without: all tables are emptied.

The first batch of a table is not an observation: rooms build what they keep of a table when it is first used.

`Promise` and `RefreshReport` say what was promised and kept: `Engine.limits`. All times are milliseconds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tocsin.limits.costs import Costs, Counts, RefreshCosts
from tocsin.limits.policies import AtOnce, Policy

__all__ = ["Pacing", "Promise", "RefreshReport"]


@dataclass(frozen=True, slots=True)
class Promise:
    """How refreshes compare with their limit.

    >>> Promise.of([90.0, 120.0, 130.0, 80.0], 100.0)
    Promise(within=100.0, refreshes=4, kept=0.5, within_quarter=0.75, p95=128.5, feasible=True)
    """

    within: float
    refreshes: int
    kept: float | None  # the share of refreshes that took no longer than `within`
    within_quarter: float | None  # ... no longer than 1.25 times `within`
    p95: float | None  # the time that 95 % of them stay below
    feasible: bool = True  # whether one change of each table can be propagated within the limit

    @classmethod
    def of(cls, taken: Sequence[float], within: float, feasible: bool = True) -> Promise:
        """From the times of the latest refreshes."""
        if not taken:
            return cls(within, 0, None, None, None, feasible)
        times = np.asarray(taken, np.float64)
        kept, quarter = (float((times <= factor * within).mean()) for factor in (1.0, 1.25))
        return cls(within, len(times), kept, quarter, float(np.quantile(times, 0.95)), feasible)


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """The refresh group of one subscription, as measured."""

    group: str
    policy: str
    waiting: Mapping[str, int]  # changed keys by table that are not propagated yet
    predicted: float  # the time of a refresh now
    refreshes: tuple[float, ...]  # the latest, in order
    spent: float  # on propagating, since the group exists
    spent_naive: float  # what emptying all tables at each break would have cost, as predicted
    planning: float  # on deciding what to propagate
    promise: Promise | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


_FIRST = 16  # changes of a table that may wait when nothing was measured
_GROWTH = 4
_PLANNING = 0.04  # of what propagating took may go into plans
_CHOICES = 4  # choices over which their cost is averaged
_KEEP = 1000  # refreshes of which the times are kept
_SHARE = 4  # costs are fitted anew when a quarter more is observed,
_MOST = 64  # ... so much more,
_ROW = 5  # ... or so many times in a row more than expected


class Pacing:
    """Decides by count and measured cost; times in milliseconds. `timer` returns seconds."""

    def __init__(self, policy: Policy, limit: float | None, timer: Callable[[], float]) -> None:
        self.policy, self.limit, self.timer = policy, limit, timer
        self._names: tuple[str, ...] = ()
        self._costs = RefreshCosts(0)
        self._largest: list[int] = []  # batch measured, by table; 0: the first is to come
        self._observed = self._fitted = 0  # observations, and how many the costs in use know
        self.known = Costs(())
        self._shadow: list[int] = []  # what would wait if the policy were NAIVE
        self._since = 0.0  # spent since the last refresh
        self._slopes: list[float] = []  # what one more change of a table adds to a refresh, at most
        self._spare: list[int] = []  # changes of a table that certainly need no action,
        self._slack = 0.0  # ... as long as they add no more than this to a refresh
        self._choice = 0.0  # milliseconds that a choice takes
        self._above = 0  # observations in a row above what was expected
        self.spent = self.spent_naive = self.planning = 0.0
        self.acts = 0
        self.taken: deque[float] = deque(maxlen=_KEEP)
        self.ratios: deque[float] = deque(maxlen=_KEEP)  # measured over predicted
        self._refreshing = False

    def tables(self, names: tuple[str, ...]) -> None:
        """The group has these tables; what was measured of those that stay is kept."""
        if names == self._names:
            return
        before = self._costs
        self._costs = RefreshCosts(len(names))
        for place, name in enumerate(names):
            if name in self._names:
                self._costs.fits[place] = before.fits[self._names.index(name)]
        old = dict(zip(self._names, self._largest, strict=True))
        self._largest = [old.get(name, 0) for name in names]
        self._names, self._shadow = names, [0] * len(names)
        self._fitted = -1
        self._begin()

    def arrived(self, fresh: Counts, now: float) -> None:
        """So many more keys wait, by table."""
        self.policy.arrived(fresh, now)
        if self.limit is not None:
            self._use_slack(fresh)
            self._shadow = [old + new for old, new in zip(self._shadow, fresh, strict=True)]
            if self.known.refresh(self._shadow) > self.limit:
                self._empty_shadow()

    def choose(self, waiting: Counts, now: float) -> tuple[int, ...]:
        """The tables to propagate now, by place."""
        if self._slack > 0.0 or (self.limit is None and self.policy.name != AtOnce.name):
            return ()
        start = self.timer()
        try:
            self._find_slack(waiting)
            if self._slack > 0.0:
                return ()
            grown = tuple(place for place, count in enumerate(waiting) if count > self._most(place))
            if grown and self.limit is not None:
                return grown
            if not self.policy.breaks(waiting):
                return ()
            self.acts += 1
            everything = tuple(place for place, count in enumerate(waiting) if count)
            if self._is_too_dear(everything, waiting):
                return everything
            began = self.timer()
            chosen = self.policy.choose(waiting, self._since, now)
            self._choice += (1e3 * (self.timer() - began) - self._choice) / _CHOICES
            return chosen
        finally:
            self.planning += 1e3 * (self.timer() - start)

    def _is_too_dear(self, tables: tuple[int, ...], waiting: Counts) -> bool:
        """Whether choosing costs more than its share of emptying these tables, and has done so before."""
        if self.limit is None or self.planning <= _PLANNING * self.spent:
            return False
        return self._choice > _PLANNING * self.known.action(tables, waiting)

    def _most(self, place: int) -> int:
        """How many changes of a table may wait, as far as batches of it were measured."""
        return max(_FIRST, _GROWTH * self._largest[place])

    def _find_slack(self, waiting: Counts) -> None:
        """How many changes leave a refresh within the limit, and let no table outgrow its fit."""
        self._slack = 0.0
        if self.limit is not None and self.policy.name != AtOnce.name:
            self._spare = [self._most(place) - count for place, count in enumerate(waiting)]
            if min(self._spare) >= 0:
                self._slack = self.limit - self.known.refresh([count or 1 for count in waiting])

    def _use_slack(self, fresh: Counts) -> None:
        """So many changes have come; what is left is 0 if a table may have outgrown its fit."""
        if self._slack <= 0.0:
            return
        for place, count in enumerate(fresh):
            if count:
                self._slack -= count * self._slopes[place]
                self._spare[place] -= count
                if self._spare[place] < 0:
                    self._slack = 0.0

    def propagated(self, place: int, count: int, took: float) -> None:
        """Propagating so many changes of a table took so long."""
        self.spent += took
        self._since += took
        self._slack = 0.0
        if self.limit is None:
            return
        if self._largest[place]:
            self._costs.observe(place, count, took)
            self._observed += 1
            self._above = self._above + 1 if took > self.known.each[place](count) else 0
        self._largest[place] = max(self._largest[place], count)
        if not self._refreshing:
            self._refit()

    @contextmanager
    def refreshing(self, waiting: Counts, now: float) -> Iterator[None]:
        """Around a refresh: its time is compared with the limit and the prediction."""
        predicted, start = self.known.refresh(waiting), self.timer()
        is_known = all(largest for largest, count in zip(self._largest, waiting, strict=True) if count)
        self._refreshing = True
        try:
            yield
        finally:
            self._refreshing = False
        took = 1e3 * (self.timer() - start)
        if any(waiting):
            self.taken.append(took)
        if any(waiting) and self.limit is not None:
            if is_known:
                self._costs.observe_refresh(waiting, took)
                if predicted > 0.0:
                    self.ratios.append(took / predicted)
            self._observed += 1
            self._refit()
        self._begin()

    def reset(self) -> None:
        """Begin to count anew; what is known of costs is kept."""
        self.spent = self.spent_naive = self.planning = 0.0
        self.acts = 0
        self.taken.clear()
        self.ratios.clear()

    def record(self) -> dict[str, Any]:
        """What a saved engine keeps: times, not costs, which are measured anew."""
        spent = {"spent": self.spent, "spent_naive": self.spent_naive, "planning": self.planning}
        return {**spent, "actions": self.acts, "taken": list(self.taken)}

    def restore(self, record: Mapping[str, Any]) -> None:
        """Go on from a record."""
        self.spent, self.spent_naive = record["spent"], record["spent_naive"]
        self.planning, self.acts = record["planning"], record["actions"]
        self.taken.extend(record["taken"])

    def predicted(self, waiting: Counts) -> float:
        """The time that a refresh would take now."""
        return self.known.refresh(waiting)

    def promise(self) -> Promise | None:
        """What is promised and kept; None without a limit."""
        if self.limit is None:
            return None
        return Promise.of(list(self.taken), self.limit, self.is_feasible)

    @property
    def is_feasible(self) -> bool:
        """Whether one change of each table can be propagated within the limit, as far as is known."""
        return self.limit is None or self.known.is_feasible(self.limit)

    def stats(self) -> dict[str, Any]:
        return {
            "policy": self.policy.name,
            "within_ms": self.limit,
            "spent_ms": round(self.spent, 3),
            "planning_ms": round(self.planning, 3),
            "actions": self.acts,
            "refreshes": len(self.taken),
        }

    def _begin(self) -> None:
        """A refresh has taken place."""
        if any(self._shadow):
            self._empty_shadow()
        self._since = self._slack = 0.0
        if self._fitted < 0:
            self._fit()
        limit = math.inf if self.limit is None else self.limit
        self.policy.begin((0,) * len(self._names), self.known, limit)

    def _empty_shadow(self) -> None:
        everything = range(len(self._shadow))
        self.spent_naive += self.known.action(everything, self._shadow)
        self._shadow = [0] * len(self._shadow)

    def _refit(self) -> None:
        """Fit costs anew: after each observation at first, later after some, or if they were exceeded."""
        if self.limit is None:
            return
        fresh = self._observed - self._fitted
        if fresh >= max(1, min(self._observed // _SHARE, _MOST)) or self._above >= _ROW:
            self._above = 0
            start = self.timer()
            self._fit()
            self.policy.adjust(self.known)
            self.planning += 1e3 * (self.timer() - start)

    def _fit(self) -> None:
        self.known, self._fitted = self._costs.costs(), self._observed
        self._slopes = [self.known.reserve * (cost(2) - cost(1)) for cost in self.known.each]
        self._slack = 0.0
