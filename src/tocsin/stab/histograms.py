"""Histograms of stabbing counts: about how many intervals contain a value?

Choosing between plans needs an estimate before any index is queried. The exact count is a step function with
a step at every end; a histogram has few steps, best placed where the *relative* error is large:

    exact  __.-~~-.__        equal width  __|~~|__        by error  _.|~|._

`equal_width` averages over cells of the same width; where there are few intervals, it is wrong by many times.
`optimal` finds the best runs of exact steps by dynamic programming, O(buckets * steps^2) at worst.
`ssi` splits the intervals by a stabbing partition (the count of a group only rises left of its point and only
falls right of it), approximates each subset with weights (chance of a value)/count^2, and adds them up:
O(n log n), and O(buckets) for each of at most a million pairs of steps per subset.
`StabbingCounts` maintains a histogram while intervals are inserted and removed.

>>> low, high = np.array([0, 10, 20, 25]), np.array([99, 29, 29, 29])
>>> exact(low, high).estimate([0, 15, 27, 50]).tolist()
[1.0, 2.0, 4.0, 1.0]
>>> ssi(low, high, HistogramConfig(buckets=4)).estimate([0, 15, 27, 50]).round(1).tolist()
[1.0, 2.0, 3.4, 1.0]

T07, section 4.4. What differs:
- A weight has the count of *all* intervals at the place, not that of the group: the error is relative to the
  sum. With the group's own count, outliers of each group crowd out the rest.
- On a side of the point, the best runs are the best clusters of the thesis's k-means. Here they are exact,
  not iterated, and may extend across the point.
- Values of buckets that overlap are fitted together when all edges are known.
- With few buckets the sum of many groups is poor, since each needs its own start and end. So neighbouring
  groups are *joined*, into 1, 2, 4, ... subsets, whichever is best, and buckets go where they gain most. On
  the chapter's data one subset is best, and then `ssi` is `optimal` over thinned steps: the partition itself
  did not pay there (bench/stabbing.py). `joined=False` is the thesis's rule: all groups, buckets by size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.stab._kernels.histograms import best_cuts, cuts_of, spread
from tocsin.stab.partition import Codes, as_intervals, canonical

__all__ = [
    "CountsConfig",
    "Histogram",
    "HistogramConfig",
    "StabbingCounts",
    "by_gain",
    "by_size",
    "equal_width",
    "exact",
    "optimal",
    "relative_error",
    "ssi",
]

Numbers = NDArray[np.float64]
_THIN = 1000  # steps of a subset that are considered, at most
_OPEN = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class HistogramConfig:
    """`domain`: first and last value; by default one more on either side than ends that are not open."""

    buckets: int = 20
    domain: tuple[int, int] | None = None
    joined: bool = True  # for `ssi`

    def __post_init__(self) -> None:
        if self.buckets < 1:
            raise ValueError(f"there must be a bucket, not {self.buckets}")
        if self.domain is not None and self.domain[0] > self.domain[1]:
            raise ValueError(f"the domain is empty: {self.domain[0]}..{self.domain[1]}")


class Histogram(NamedTuple):
    """`value[k]` for start[k] .. start[k + 1] - 1; outside, that of the nearest end."""

    start: Codes
    value: Numbers

    def estimate(self, values: ArrayLike) -> Numbers:
        """About how many intervals contain each value. O(log buckets) each."""
        places = np.searchsorted(self.start, np.asarray(values, np.int64), side="right") - 1
        return self.value[np.clip(places, 0, len(self.value) - 1)]


class _Steps(NamedTuple):
    """The exact counts: height[k] for start[k] .. start[k + 1] - 1, where `mass[k]` of the values fall."""

    start: Codes
    height: Numbers
    mass: Numbers

    @property
    def weight(self) -> Numbers:
        """Of a squared error; a count of 0 counts as 1."""
        return self.mass / np.maximum(self.height, 1.0) ** 2


# -- the ways to build one ---------------------------------------------------------------------------


def exact(low: ArrayLike, high: ArrayLike, config: HistogramConfig | None = None) -> Histogram:
    """All steps, however many; `buckets` does not matter."""
    lows, highs, domain = _prepared(low, high, config or HistogramConfig())
    start = _breaks(lows, highs, domain)
    return Histogram(start, _counts(lows, highs, start[:-1]))


def equal_width(low: ArrayLike, high: ArrayLike, config: HistogramConfig | None = None) -> Histogram:
    """Cells of equal width, each with the mean of the counts in it. O(n log n)."""
    config = config or HistogramConfig()
    truth = exact(low, high, config)
    first, last = int(truth.start[0]), int(truth.start[-1])  # a float cannot tell large codes apart
    edges = [first + (last - first) * i // config.buckets for i in range(config.buckets + 1)]
    cells = np.unique(np.array(edges, np.int64))
    return Histogram(cells, _means(truth, cells))


def optimal(
    low: ArrayLike, high: ArrayLike, config: HistogramConfig | None = None, events: ArrayLike | None = None
) -> Histogram:
    """The least relative error that so many buckets can have. O(buckets * steps^2) at worst."""
    config = config or HistogramConfig()
    lows, highs, domain = _prepared(low, high, config)
    steps = _steps(lows, highs, domain, events)
    first, value = _runs(steps.height, steps.weight, config.buckets)
    return Histogram(np.append(steps.start[first], steps.start[-1]), value)


def ssi(
    low: ArrayLike, high: ArrayLike, config: HistogramConfig | None = None, events: ArrayLike | None = None
) -> Histogram:
    """The sum of the subsets of a stabbing partition; `events` is a sample of values, by default uniform."""
    config = config or HistogramConfig()
    lows, highs, domain = _prepared(low, high, config)
    steps = _steps(lows, highs, domain, events)
    group, point = canonical(lows, highs)
    if len(point) == 0:
        return Histogram(steps.start[[0, -1]], np.zeros(1))
    if not config.joined:
        sizes = np.bincount(group)
        subsets = [_SubsetCounts(steps, lows[own], highs[own]) for own in _by(group, len(point))]
        return _sum(subsets, by_size(sizes, config.buckets), steps)
    found = [
        _joined(count, group, lows, highs, steps, config) for count in _subset_counts(len(point), config)
    ]
    return min(found, key=lambda one: _error_on(one, steps))


def _joined(
    count: int, group: NDArray[np.int32], low: Codes, high: Codes, steps: _Steps, config: HistogramConfig
) -> Histogram:
    """With `count` subsets, runs of groups with about as many intervals; buckets where they gain most."""
    before = np.cumsum(np.bincount(group)) - np.bincount(group)
    subset = (before * count // len(group))[group]
    subsets = [_SubsetCounts(steps, low[own], high[own]) for own in _by(subset, count) if len(own)]
    costs = [one.costs(config.buckets) for one in subsets]
    return _sum(subsets, by_gain(costs, config.buckets), steps)


def _subset_counts(groups: int, config: HistogramConfig) -> Iterable[int]:
    """1, 2, 4, ... subsets, with at least two buckets each on average."""
    count = 1
    while count == 1 or count <= min(groups, config.buckets // 2):
        yield count
        count *= 2


class _SubsetCounts:
    """The counts of a subset of the intervals, over the steps of all, thinned out."""

    def __init__(self, steps: _Steps, low: Codes, high: Codes) -> None:
        first = int(np.searchsorted(steps.start, low.min(), side="left"))
        last = int(np.searchsorted(steps.start, high.max(), side="right"))
        start = steps.start[first:last]
        height, weight = _counts(low, high, start), steps.weight[first:last]
        change = np.abs(np.diff(height, prepend=0.0)) / np.maximum(steps.height[first:last], 1.0)
        chosen = _thinned(change, weight * height**2)
        total = np.add.reduceat(weight, chosen)
        self._start, self._end = start[chosen], steps.start[last]
        self._weight, self._height = total, np.add.reduceat(weight * height, chosen) / total

    def costs(self, most: int) -> Numbers:
        """The error with 0, 1, 2, ... buckets."""
        nothing = float(np.sum(self._weight * self._height**2))
        return np.concatenate([[nothing], best_cuts(self._height, self._weight, most)[0][:, -1]])

    def histogram(self, buckets: int) -> Histogram:
        first, value = _runs(self._height, self._weight, buckets)
        return Histogram(np.append(self._start[first], self._end), value)


def by_size(sizes: NDArray[np.int64], buckets: int) -> NDArray[np.int64]:
    """One bucket each, the largest first; the others in proportion to the sizes.

    >>> by_size(np.array([60, 30, 10]), 7).tolist(), by_size(np.array([60, 30, 10]), 2).tolist()
    ([3, 2, 2], [1, 1, 0])
    """
    given = np.zeros(len(sizes), np.int64)
    given[np.argsort(-sizes, kind="stable")[:buckets]] = 1
    due = (buckets - given.sum()) * sizes / sizes.sum()
    given += np.floor(due).astype(np.int64)
    given[np.argsort(np.floor(due) - due, kind="stable")[: buckets - given.sum()]] += 1
    return given


def by_gain(costs: list[Numbers], buckets: int) -> NDArray[np.int64]:
    """One bucket after the other to where the error falls most; costs[subset][k]: with k buckets."""
    given = np.zeros(len(costs), np.int64)
    for _ in range(buckets):
        gains = [cost[k] - cost[k + 1] for cost, k in zip(costs, given.tolist(), strict=True)]
        given[int(np.argmax(gains))] += 1
    return given


# -- error -------------------------------------------------------------------------------------------


def relative_error(
    histogram: Histogram, low: ArrayLike, high: ArrayLike, events: ArrayLike | None = None
) -> float:
    """The mean squared relative error, over the events or all values of the domain; a count of 0 is as 1."""
    if events is None:
        within = HistogramConfig(domain=(int(histogram.start[0]), int(histogram.start[-1]) - 1))
        return _error_on(histogram, _steps(*_prepared(low, high, within), None))
    lows, highs = as_intervals(low, high)
    values = np.asarray(events, np.int64)
    truth = _counts(lows, highs, values)
    return float(np.mean(((histogram.estimate(values) - truth) / np.maximum(truth, 1.0)) ** 2))


def _error_on(histogram: Histogram, steps: _Steps) -> float:
    """Over the finer of both sets of steps; the mass of a step is evenly spread."""
    start = np.union1d(histogram.start[:-1], steps.start)
    places = np.searchsorted(steps.start, start[:-1], side="right") - 1
    share = _above(start[1:], start[:-1]) / _above(steps.start[1:], steps.start[:-1])[places]
    error = (histogram.estimate(start[:-1]) - steps.height[places]) ** 2
    return float(np.sum(steps.weight[places] * share * error) / np.sum(steps.mass))


# -- steps -------------------------------------------------------------------------------------------


def _prepared(
    low: ArrayLike, high: ArrayLike, config: HistogramConfig
) -> tuple[Codes, Codes, tuple[int, int]]:
    """The intervals within the domain, and the domain."""
    lows, highs = as_intervals(low, high)
    domain = config.domain
    if domain is None:
        ends = np.concatenate([lows, highs])
        ends = ends[(ends != _OPEN[0]) & (ends != _OPEN[1])]
        domain = (int(ends.min()) - 1, min(int(ends.max()) + 1, 2**63 - 2)) if len(ends) else (0, 0)
    inside = (lows <= domain[1]) & (highs >= domain[0])
    return np.maximum(lows[inside], domain[0]), np.minimum(highs[inside], domain[1]), domain


def _breaks(low: Codes, high: Codes, domain: tuple[int, int]) -> Codes:
    """Where the count may change, from the first value to the one after the last."""
    return np.unique(np.concatenate([low, high + 1, np.array([domain[0], domain[1] + 1], np.int64)]))


def _counts(low: Codes, high: Codes, values: Codes) -> Numbers:
    """How many intervals contain each value: those that have begun, less those that have ended before."""
    begun = np.searchsorted(np.sort(low), values, side="right")
    return (begun - np.searchsorted(np.sort(high), values, side="left")).astype(np.float64)


def _steps(low: Codes, high: Codes, domain: tuple[int, int], events: ArrayLike | None) -> _Steps:
    start = _breaks(low, high, domain)
    mass = _above(start[1:], start[:-1])
    mass /= mass.sum()
    if events is not None and len(values := np.asarray(events, np.int64)):
        places = np.clip(np.searchsorted(start, values, side="right") - 1, 0, len(mass) - 1)
        seen = np.bincount(places, minlength=len(mass)) / len(values)
        mass = 0.999 * seen + 0.001 * mass  # where no event was seen yet, one may still come
    return _Steps(start, _counts(low, high, start[:-1]), mass)


def _means(truth: Histogram, edges: Codes) -> Numbers:
    """The mean of a step function between edges."""
    width = _above(truth.start[1:], truth.start[:-1])
    area = np.concatenate([[0.0], np.cumsum(truth.value * width)])
    place = np.clip(np.searchsorted(truth.start, edges, side="right") - 1, 0, len(width) - 1)
    upto = area[place] + truth.value[place] * _above(edges, truth.start[place])
    return np.maximum(0.0, np.diff(upto) / _above(edges[1:], edges[:-1]))


def _above(upper: Codes, lower: Codes) -> Numbers:
    """Differences, none below 0; they may leave int64."""
    return np.asarray((upper.view(np.uint64) - lower.view(np.uint64)).astype(np.float64))


def _thinned(change: Numbers, weight: Numbers) -> NDArray[np.intp]:
    """Where runs of steps begin, at most about _THIN, fine where much changes or much weighs."""
    if len(change) <= _THIN:
        return np.arange(len(change))
    measure = np.cumsum(change / max(change.sum(), 1e-300) + weight / max(weight.sum(), 1e-300))
    place = np.floor(measure / measure[-1] * (_THIN - 1)).astype(np.int64)
    return np.flatnonzero(np.diff(place, prepend=-1))


def _runs(height: Numbers, weight: Numbers, buckets: int) -> tuple[NDArray[np.int64], Numbers]:
    """The best runs: where they begin, and their weighted means."""
    first = cuts_of(best_cuts(height, weight, buckets)[1], buckets)
    return first, np.add.reduceat(weight * height, first) / np.add.reduceat(weight, first)


def _sum(subsets: list[_SubsetCounts], buckets: NDArray[np.int64], steps: _Steps) -> Histogram:
    """Histograms of subsets, each 0 outside of itself, as one; the values are fitted together.

    Where subsets overlap, each bucket was made for its own subset alone. With the edges as they are, the
    values that are best for the sum solve a small linear least-squares problem over the pieces between all
    edges.
    """
    own = [one.histogram(count) for one, count in zip(subsets, buckets.tolist(), strict=True) if count]
    start = np.unique(np.concatenate([steps.start[[0, -1]], *(one.start for one in own)]))
    first = np.searchsorted(start, np.concatenate([one.start[:-1] for one in own]))
    after = np.searchsorted(start, np.concatenate([one.start[1:] for one in own]))
    piece = np.arange(len(start) - 1)[:, None]
    holds = ((first <= piece) & (piece < after)).astype(np.float64)  # piece by bucket
    at = np.searchsorted(steps.start, start[:-1])
    weight = np.add.reduceat(steps.weight, at)
    target = np.add.reduceat(steps.weight * steps.height, at) / weight
    root = np.sqrt(weight)
    value = np.linalg.lstsq(holds * root[:, None], target * root, rcond=None)[0]
    return Histogram(start, np.maximum(holds @ value, 0.0))


def _by(subset: NDArray[np.integer], count: int) -> list[NDArray[np.intp]]:
    """The intervals of each subset."""
    order = np.argsort(subset, kind="stable")
    return np.split(order, np.searchsorted(subset[order], np.arange(1, count)))


_FEW = 256  # changes that are never worth a rebuild
_SAMPLE = 4096  # events that are kept


@dataclass(frozen=True)
class CountsConfig:
    """`drift`: the share of intervals that may change before `build` rebuilds the histogram."""

    histogram: HistogramConfig = field(default_factory=HistogramConfig)
    drift: float = 0.2
    build: Callable[[Codes, Codes, HistogramConfig, ArrayLike | None], Histogram] = ssi


class StabbingCounts:
    """About how many intervals contain a value, while intervals are inserted and removed.

    Between rebuilds the edges stay, and an insertion or removal changes every bucket by the share of it that
    the interval covers. When a fifth of the intervals has changed, the histogram is rebuilt. A change costs
    O(buckets); a rebuild what `build` costs, once in drift * n changes.

    >>> counts = StabbingCounts()
    >>> counts.insert(np.arange(100), np.arange(100), np.arange(100) + 50)
    >>> counts.estimate([75]).round().tolist()
    [50.0]
    >>> counts.remove(np.arange(0, 100, 2))
    >>> counts.estimate([75]).round().tolist()
    [25.0]

    T07, sections 4.5 and 4.6.7, where the histogram is of equal width and maintained in the same way.
    """

    def __init__(self, config: CountsConfig | None = None) -> None:
        self.config = config or CountsConfig()
        self.rebuilds = 0
        self._low, self._high = np.zeros(64, np.int64), np.zeros(64, np.int64)
        self._here = np.zeros(64, np.bool_)
        self._count = self._changes = 0
        self._events: NDArray[np.int64] | None = None
        self._histogram = Histogram(np.array([0, 1], np.int64), np.zeros(1))

    def __len__(self) -> int:
        return self._count

    def insert(self, ids: ArrayLike, low: ArrayLike, high: ArrayLike) -> None:
        """Insert intervals low..high; `ids` are slots that are not in use."""
        which = np.atleast_1d(np.asarray(ids, np.int64))
        lows, highs = as_intervals(np.atleast_1d(low), np.atleast_1d(high))
        if len(which) != len(lows):
            raise ValueError(f"there are {len(which)} ids for {len(lows)} intervals")
        if which.min(initial=0) < 0:
            raise ValueError(f"ids are slots, from 0: {which.min()} is not")
        self._grow(int(which.max(initial=0)) + 1)
        if self._here[which].any() or len(np.unique(which)) < len(which):
            raise ValueError("an id is in use")
        self._low[which], self._high[which], self._here[which] = lows, highs, True
        self._count += len(which)
        self._update_buckets(lows, highs, 1.0)

    def remove(self, ids: ArrayLike) -> None:
        """Remove intervals."""
        which = np.atleast_1d(np.asarray(ids, np.int64))
        known = which[(which >= 0) & (which < len(self._here))]
        if len(np.unique(known)) < len(which) or not self._here[known].all():
            raise ValueError("an id is not in use")
        self._here[which] = False
        self._count -= len(which)
        self._update_buckets(self._low[which], self._high[which], -1.0)

    def estimate(self, values: ArrayLike) -> Numbers:
        """About how many intervals contain each value. O(log buckets) each."""
        return np.maximum(self._histogram.estimate(values), 0.0)

    def observe(self, values: ArrayLike) -> None:
        """Record values of events: the next rebuild makes the error small where they are."""
        seen = np.asarray(values, np.int64)[-_SAMPLE:]
        self._events = seen if self._events is None else np.concatenate([self._events, seen])[-_SAMPLE:]

    def rebuild(self) -> None:
        here = np.flatnonzero(self._here)
        self._histogram = self.config.build(
            self._low[here], self._high[here], self.config.histogram, self._events
        )
        self._changes = 0
        self.rebuilds += 1

    def _update_buckets(self, low: Codes, high: Codes, sign: float) -> None:
        self._changes += len(low)
        if self.rebuilds == 0 or self._changes > max(_FEW, self.config.drift * self._count):
            self.rebuild()
        else:
            spread(self._histogram.start, self._histogram.value, low, high, sign)

    def _grow(self, ids: int) -> None:
        if ids > len(self._here):
            more = np.zeros(max(ids, 2 * len(self._here)) - len(self._here), np.int64)
            self._low, self._high = np.append(self._low, more), np.append(self._high, more)
            self._here = np.append(self._here, more.astype(np.bool_))

    def _check(self) -> None:
        assert self._count == np.count_nonzero(self._here)
        assert np.all(self._low[self._here] <= self._high[self._here])
        start, value = self._histogram
        assert len(start) == len(value) + 1 and np.all(start[:-1] < start[1:])
        assert self._changes <= max(_FEW, self.config.drift * self._count)
