"""What it costs to propagate waiting changes: one function per table, and the time of a refresh of all.

f(k) is the time of propagating k changes of one table as one batch: f(0) = 0, monotone, and subadditive:
one batch costs no more than two. All times are in one unit (the engine's are milliseconds).

    Linear   a k + b, a batch of any size above 0 pays b
    Tabled   measured points, made monotone and subadditive
    Capped   no more than a constant: computing the answer anew is a plan too

The time of a refresh is not quite the sum of the tables' costs: `Costs.refresh` adds what several tables
cost together, and a reserve. Policies choose by the sum and keep the limit by `refresh` (`fitting.py` learns
both).

>>> costs = Costs((Linear(0.35, 0.5), Linear(0.01, 5.0)), joint=1.0)
>>> found = costs.action((1,), (10, 20)), costs.refresh((10, 20)), costs.refresh((10, 0))
>>> [round(cost, 3) for cost in found]
[5.2, 10.2, 4.0]

T07, section 2.2. The thesis has the sum alone, and assumes the functions known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.errors import UsageError

__all__ = ["MOST", "Capped", "Cost", "Costs", "Counts", "Linear", "Tabled", "fits", "subadditive_closure"]

Counts = tuple[int, ...]
"""Waiting changes by table."""

MOST = 1 << 53
"""More changes than ever wait: `most` of a cost that never exceeds the limit."""

_SLACK = 1e-9
_LONGEST = 1 << 14  # counts that `Tabled.most` looks at


def fits(cost: float, limit: float) -> bool:
    """Whether a cost is within a limit, up to the rounding of sums."""
    return cost <= limit + _SLACK


class Cost(Protocol):
    """The time of propagating a batch of one table."""

    @property
    def concave(self) -> bool:
        """Whether f is known to be concave, with f(0) = 0: then the fewest batches are the cheapest."""
        ...

    def __call__(self, count: float) -> float: ...

    def most(self, limit: float) -> int:
        """The largest p with f(p) <= limit."""
        ...


class Linear(NamedTuple):
    """`slope` for each change, `setup` for a batch.

    >>> f = Linear(0.5, 2.0)
    >>> f(0), f(4), f.most(4.2)
    (0.0, 4.0, 4)
    """

    slope: float
    setup: float

    @property
    def concave(self) -> bool:
        return True

    def __call__(self, count: float) -> float:
        return self.slope * count + self.setup if count > 0 else 0.0

    def most(self, limit: float) -> int:
        if not fits(self.setup + self.slope, limit):
            return 0
        if self.slope <= 0.0:
            return MOST
        return int(min(MOST, (limit + _SLACK - self.setup) / self.slope))


class Tabled:
    """Costs of some counts, ascending; interpolated between, and continued by the best split beyond.

    Subadditive whatever was measured: a batch that seemed to cost more than two takes the cost of the two.

    >>> f = Tabled([1, 2, 4], [3.0, 4.0, 9.0])
    >>> [f(k) for k in range(6)], f.most(7.0)
    ([0.0, 3.0, 4.0, 6.5, 8.0, 10.5], 3)
    """

    concave = False

    def __init__(self, counts: ArrayLike, costs: ArrayLike) -> None:
        points, values = np.asarray(counts, np.int64), np.asarray(costs, np.float64)
        if not len(points) or points.shape != values.shape or points[0] < 1 or np.any(np.diff(points) <= 0):
            raise UsageError("a table of costs has ascending counts from 1 on, and a cost for each")
        if not np.all(values >= 0):
            raise UsageError("a cost is not negative")
        dense = np.arange(points[-1] + 1)
        known = np.interp(dense, np.concatenate([[0], points]), np.concatenate([[values[0]], values]))
        known[0] = 0.0
        self._own = len(dense) - 1  # counts that the table itself covers
        self._values = subadditive_closure(known)
        self._is_free = self._values[-1] <= 0.0

    def __call__(self, count: float) -> float:
        below = int(count)
        if self._is_free:
            return 0.0
        self._extend(below + 1)
        first, second = float(self._values[below]), float(self._values[below + 1])
        return first + (count - below) * (second - first) if count > below else first

    def most(self, limit: float) -> int:
        while fits(float(self._values[-1]), limit):
            if self._is_free or len(self._values) > _LONGEST:
                return MOST
            self._extend(2 * len(self._values))
        return int(np.searchsorted(self._values, limit + _SLACK, side="right")) - 1

    def _extend(self, count: int) -> None:
        """Know the costs up to a count: the largest subadditive continuation."""
        old = len(self._values)
        if count < old:
            return
        values = np.concatenate([self._values, np.empty(max(count + 1, 2 * old) - old)])
        first = values[1 : self._own + 1]
        for k in range(old, len(values)):
            values[k] = np.min(first + values[k - self._own : k][::-1])
        self._values = values

    def _check(self) -> None:
        values = self._values
        assert values[0] == 0.0 and np.all(np.diff(values) >= -_SLACK), "monotone"
        for k in range(1, len(values)):
            assert np.all(values[: k + 1] + values[k::-1] >= values[k] - 1e-6), "subadditive"


@dataclass(frozen=True, slots=True)
class Capped:
    """A cost that is never above `cap`.

    >>> f = Capped(Linear(1.0, 1.0), 5.0)
    >>> f(3), f(100), f.most(4.0), f.most(5.0) == MOST
    (4.0, 5.0, 3, True)
    """

    inner: Cost
    cap: float

    @property
    def concave(self) -> bool:
        return self.inner.concave

    def __call__(self, count: float) -> float:
        return min(self.inner(count), self.cap)

    def most(self, limit: float) -> int:
        return MOST if fits(self.cap, limit) else self.inner.most(limit)


def subadditive_closure(values: ArrayLike) -> NDArray[np.float64]:
    """The largest monotone subadditive function below the running maximum of a table of f(0), f(1), ...

    >>> subadditive_closure([0, 3, 2, 10]).tolist()
    [0.0, 3.0, 3.0, 6.0]

    O(n²), in n steps.
    """
    found = np.maximum.accumulate(np.asarray(values, np.float64))
    for k in range(2, len(found)):
        found[k] = min(found[k], np.min(found[1:k] + found[k - 1 : 0 : -1]))
    return found


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a view's tables, and of refreshing it.

    `joint`: what propagating several tables at once costs beside the sum. `reserve`: a factor on the
    time of a refresh. `recompute`: the time of computing the answer anew, which a refresh may do instead.
    """

    each: tuple[Cost, ...]
    joint: float = 0.0
    reserve: float = 1.0
    recompute: float = math.inf

    def __len__(self) -> int:
        return len(self.each)

    def action(self, tables: Iterable[int], waiting: Sequence[float]) -> float:
        """The cost of propagating what waits for some tables."""
        return sum(self.each[i](waiting[i]) for i in tables)

    def refresh(self, waiting: Sequence[float]) -> float:
        """The time of a refresh of all that waits."""
        total, tables = 0.0, 0
        for cost, count in zip(self.each, waiting, strict=True):
            if count > 0:
                total, tables = total + cost(count), tables + 1
        return self.together(total, tables)

    def together(self, total: float, tables: int) -> float:
        """The time of a refresh of so many tables whose costs have this sum."""
        if not tables:
            return 0.0
        several = self.joint if tables > 1 else 0.0
        return min(self.recompute, self.reserve * (total + several))

    def is_feasible(self, limit: float) -> bool:
        """Whether one change of each table can be propagated within the limit."""
        return fits(self.refresh((1,) * len(self.each)), limit)
