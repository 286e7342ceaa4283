"""The protocol of policies; the limit, the time and the rates of arrival that they share."""

from __future__ import annotations

import math
from typing import ClassVar, Protocol

from tocsin.limits.costs import Costs, Counts, fits
from tocsin.limits.plans import TableSet

__all__ = ["Policy", "PolicyBase", "Rates", "every"]


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
