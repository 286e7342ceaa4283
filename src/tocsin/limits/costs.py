"""What it costs to propagate waiting changes: one function per table, and the time of a refresh of all.

f(k) is the time of propagating k changes of one table as one batch: f(0) = 0, monotone, and subadditive:
one batch costs no more than two. All times are in one unit (the engine's are milliseconds).

    Linear   a k + b, a batch of any size above 0 pays b
    Tabled   measured points, made monotone and subadditive
    Capped   no more than a constant: computing the answer anew is a plan too

The time of a refresh is not quite the sum of the tables' costs: `Costs.refresh` adds what several tables
cost together, and a reserve. Policies choose by the sum and keep the limit by `refresh`.

>>> costs = Costs((Linear(0.35, 0.5), Linear(0.01, 5.0)), joint=1.0)
>>> found = costs.action((1,), (10, 20)), costs.refresh((10, 20)), costs.refresh((10, 0))
>>> [round(cost, 3) for cost in found]
[5.2, 10.2, 4.0]

Costs are learned from what propagating took: `CostFit` is a k + b for one table. Observations are sorted
into bins of similar k. Each bin keeps its last 32, so that a policy that always acts at the same k does not
make the slope unknown; observations lose half their weight each 200.

    fit     medians of bins, least squares of the relative error, a and b >= 0
            A bin that costs less than an eighth of the middle is left out: a few changes often concern no
            row of an answer, and would make the slope of those that do look steep
    lift    times the 0.9 quantile of observed over fitted: what is promised is not the middle
    shift   five observations in a row above the lifted fit, or below the middle: the machine got slower, or
            faster again. What was seen before is scaled by the factor, which keeps its shape, also at counts
            that have become rare; and the next prediction is right.

`RefreshCosts` has a fit per table, and learns from refreshes of several tables at once what the sum of the
fits lacks: a constant, and a slow reserve, the 0.9 quantile of measured over predicted, between 0.75 and 2.
Short refreshes do not count for it. Never scale by the last ratio alone: when the scaled set-ups exceed the
limit, a policy acts at each step on tiny batches, whose ratio is worst of all, and the scale never comes down
again.

>>> fit = CostFit()
>>> for k in (1, 10, 100, 1000):
...     fit.observe(k, 2.0 + 0.5 * k)
>>> round(fit.cost(100), 6)
52.0

T07, section 2.2. The thesis has the sum alone, and takes costs measured once as exact (section 2.5).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.errors import UsageError

__all__ = [
    "MOST",
    "Capped",
    "Cost",
    "CostFit",
    "Costs",
    "Counts",
    "FitSettings",
    "Linear",
    "RefreshCosts",
    "Tabled",
    "fits",
    "subadditive_closure",
]

Counts = tuple[int, ...]
"""Waiting changes by table."""

MOST = 1 << 53
"""More changes than ever wait: `most` of a cost that never exceeds the limit."""

_SLACK = 1e-9
_LONGEST = 1 << 14  # counts that `Tabled.most` looks at
_NOTHING = 0.125  # of the middle cost: below it, the changes of a batch concerned nothing
_LONG = 0.25  # of the longest refresh, from which on one counts for the reserve


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


Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FitSettings:
    """How observations become an upper function."""

    share: float = 0.9  # of what was observed lies below the function
    half_life: int = 200  # observations after which one counts half
    per_bin: int = 32
    per_doubling: int = 2  # bins
    row: int = 5  # observations above the function, or below it, that are a shift
    shift: float = 1.25  # times above the lifted fit, or below the middle, from which a shift is seen
    least_reserve: float = 0.75
    most_reserve: float = 2.0


class _Seen(NamedTuple):
    changes: int
    cost: float
    at: int  # its number


@dataclass(slots=True)
class CostFit:
    """The upper function of one table's costs, a k + b."""

    settings: FitSettings = field(default_factory=FitSettings)
    _bins: dict[int, deque[_Seen]] = field(default_factory=dict)
    _number: int = 0
    _apart: list[float] = field(default_factory=list)  # ratios of the latest in a row
    _side: int = 0  # ... that are above (1) or below (-1)
    _fitted: tuple[Linear, float] | None = None  # of medians, and the lift
    _is_stale: bool = True  # whether more was observed since
    _least: float = 0.0  # what costs less says nothing of larger batches

    def __len__(self) -> int:
        """How many observations it has had."""
        return self._number

    def observe(self, count: int, cost: float) -> None:
        """Propagating so many changes took so long."""
        if count < 1 or not math.isfinite(cost) or cost <= 0.0:
            return
        self._watch(count, cost)
        number = int(self.settings.per_doubling * math.log2(count) + 0.5)
        bins = self._bins.setdefault(number, deque(maxlen=self.settings.per_bin))
        bins.append(_Seen(count, cost, self._number))
        self._number += 1
        self._is_stale = True

    @property
    def cost(self) -> Linear:
        """The upper function; free as long as nothing was observed."""
        middle, lift = self._fit()
        return Linear(middle.slope * lift, middle.setup * lift)

    @property
    def middle(self) -> Linear:
        """The fit without the lift: about half of what was observed lies above."""
        return self._fit()[0]

    def _fit(self) -> tuple[Linear, float]:
        if self._fitted is None or self._is_stale:
            if not self._bins:
                return Linear(0.0, 0.0), 1.0
            self._is_stale = False
            seen = np.array([one for some in self._bins.values() for one in some])
            sizes = [len(some) for some in self._bins.values()]
            counts, costs, weights = seen[:, 0], seen[:, 1], self._weights(seen[:, 2])
            bins = np.repeat(np.arange(len(sizes)), sizes)
            middles = _middles(counts, costs, weights, bins)
            self._least = _NOTHING * _quantile(costs, weights, 0.5)
            tells = middles[1] >= self._least
            middle = _least_relative(*(values[tells] for values in middles))
            counts, costs, weights = (values[tells[bins]] for values in (counts, costs, weights))
            ratios = costs / (middle.slope * counts + middle.setup)
            self._fitted = middle, max(1.0, _quantile(ratios, weights, self.settings.share))
        return self._fitted

    def _weights(self, at: Numbers) -> Numbers:
        weights: Numbers = np.exp2((at - self._number) / self.settings.half_life)
        return weights

    def _watch(self, count: int, cost: float) -> None:
        """Scale what was seen when the latest in a row were all far above the fit, or below its middle."""
        if not self._bins:
            return
        middle, lift = self._fitted or self._fit()  # the last one will do
        ratio, shift = cost / middle(count), self.settings.shift
        side = 1 if ratio > shift * lift else -1 if ratio * shift < 1.0 and cost >= self._least else 0
        if side != self._side:
            self._side = side
            self._apart.clear()
        if not side:
            return
        self._apart.append(ratio)
        if len(self._apart) < self.settings.row:
            return
        factor = float(np.median(self._apart))
        self._apart.clear()
        recent = self._number - self.settings.row  # these have the new scale already
        for some in self._bins.values():
            for place, seen in enumerate(some):
                if seen.at <= recent:
                    some[place] = seen._replace(cost=seen.cost * factor)
        self._fitted = None

    def _check(self) -> None:
        cost = self.cost
        assert cost.slope >= 0 and cost.setup >= 0
        for number, some in self._bins.items():
            assert 0 < len(some) <= self.settings.per_bin
            for seen in some:
                assert int(self.settings.per_doubling * math.log2(seen.changes) + 0.5) == number
                assert seen.at < self._number


class RefreshCosts:
    """The costs of a refresh group's tables, and of refreshing several at once.

    >>> costs = RefreshCosts(2)
    >>> for k in (1, 10, 100) * 8:
    ...     costs.observe(0, k, 1.0 + k)
    ...     costs.observe(1, k, 2.0)
    ...     costs.observe_refresh((k, k), 4.5 + k)  # 1.5 more than the sum
    >>> round(costs.costs().refresh((10, 10)), 3), round(costs.costs().refresh((10, 0)), 3)
    (14.5, 11.0)
    """

    _KEEP = 24  # refreshes

    def __init__(self, tables: int, settings: FitSettings | None = None) -> None:
        self.settings = settings or FitSettings()
        self.fits = [CostFit(self.settings) for _ in range(tables)]
        self._refreshes: deque[tuple[Sequence[int], float]] = deque(maxlen=self._KEEP)
        self.recompute = math.inf

    def observe(self, table: int, count: int, cost: float) -> None:
        """Propagating so many changes of one table, by itself, took so long."""
        self.fits[table].observe(count, cost)

    def observe_refresh(self, counts: Sequence[int], cost: float) -> None:
        """Refreshing all that waited took so long."""
        if any(counts) and math.isfinite(cost) and cost > 0.0:
            self._refreshes.append((tuple(counts), cost))

    def costs(self) -> Costs:
        """The costs as known by now."""
        each = tuple(fit.cost for fit in self.fits)
        joint = self._joint(each)
        return Costs(each, joint, self._reserve(Costs(each, joint)), self.recompute)

    def _joint(self, each: Sequence[Linear]) -> float:
        """What several tables together cost beyond the sum: the median over refreshes."""
        over = [
            cost - sum(f(k) for f, k in zip(each, counts, strict=True))
            for counts, cost in self._refreshes
            if sum(1 for k in counts if k) > 1
        ]
        return max(0.0, float(np.median(over))) if over else 0.0

    def _reserve(self, costs: Costs) -> float:
        """The quantile of measured over predicted, bounded; it moves with the last 24 refreshes.

        Of those that took long alone: what a short one takes beside propagating is much of it, and would be
        nothing of one near the limit.
        """
        longest = max((cost for _, cost in self._refreshes), default=0.0)
        known = [(counts, cost) for counts, cost in self._refreshes if cost >= _LONG * longest]
        if len(known) < 8:
            return 1.0
        ratios = [cost / max(costs.refresh(counts), 1e-9) for counts, cost in known]
        found = float(np.quantile(ratios, self.settings.share))
        return min(self.settings.most_reserve, max(self.settings.least_reserve, found))

    def _check(self) -> None:
        for fit in self.fits:
            fit._check()
        known = self.costs()
        least, most = self.settings.least_reserve, self.settings.most_reserve
        assert known.joint >= 0.0 and least <= known.reserve <= most


def _middles(
    counts: Numbers, costs: Numbers, weights: Numbers, bins: NDArray[np.int64]
) -> tuple[Numbers, Numbers, Numbers]:
    """Count and cost in the middle of each bin, and its weight; bins are numbered from 0 on, in order."""
    each: Numbers = np.bincount(bins, weights).astype(np.float64)
    middle: Numbers = np.exp(np.bincount(bins, weights * np.log(counts)) / each)
    order = np.lexsort((costs, bins))
    reached, until = np.cumsum(weights[order]), np.cumsum(each)
    place = np.searchsorted(reached, until - each / 2.0 - 1e-12)
    return middle, costs[order][place], each


def _least_relative(counts: Numbers, costs: Numbers, weights: Numbers) -> Linear:
    """a k + b, a and b >= 0, with the least sum of weighted squares of relative errors."""
    scale = weights / costs**2
    sums = [float(np.sum(scale * counts**power)) for power in range(3)]
    first, second = float(np.sum(scale * counts * costs)), float(np.sum(scale * costs))
    determinant = sums[2] * sums[0] - sums[1] ** 2
    if len(counts) == 1 or determinant <= 1e-12 * sums[2] * sums[0]:
        half = float(np.average(costs, weights=weights)) / 2.0  # one size of batch: half is set-up
        return Linear(half / float(np.average(counts, weights=weights)), half)
    slope = (first * sums[0] - second * sums[1]) / determinant
    setup = (second * sums[2] - first * sums[1]) / determinant
    if slope < 0.0:
        return Linear(0.0, second / sums[0])
    return Linear(first / sums[2], 0.0) if setup < 0.0 else Linear(slope, setup)


def _quantile(values: Numbers, weights: Numbers, share: float) -> float:
    """The least value such that values up to it have this share of the weight."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    place = int(np.searchsorted(reached, share * reached[-1] - 1e-12))
    return float(values[order[min(place, len(order) - 1)]])
