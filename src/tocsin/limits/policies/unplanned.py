"""Policies that need no plan: all changes at once, all tables, or the best set one step ahead."""

from __future__ import annotations

import math

from tocsin.limits.costs import Counts, fits
from tocsin.limits.plans import TableSet, minimal_valid_sets
from tocsin.limits.policies.base import PolicyBase

__all__ = ["AtOnce", "EmptyAll", "Online"]

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
