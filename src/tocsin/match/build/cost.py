"""Building a segment: where does each conjunction cost least?

A way to find a conjunction costs, per event, the chance that an event makes it a candidate times
the cost of a check; the bits cost a little for each test, whether it holds or not. The chances come
from a sample of recent events: how often a dimension is there, and how often its value lies in
the interval. Where the sample says little, the subscriptions themselves do: what many ask for is
taken to be frequent, and values to be spread evenly over the cuts.

Pairs, couples of dimensions (`couples.py`) and bits have a fixed cost for every event as well. They are used
only if all conjunctions together gain more than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.build import (
    bucket_ends,
    choose,
    count_dims,
    cut_ends,
    look_over,
    merge_tests,
    place,
    rank_ends,
    sort_ends,
    sum_ways,
)  # fmt: skip
from tocsin.match.build.assemble import MOST_BOUNDS, Frame, Placed, Spread, assemble, in_halves
from tocsin.match.build.value_pairs import Couples, find_couples, no_couples, sampled
from tocsin.match.dimensions import grouped
from tocsin.match.segments.immutable import Segment
from tocsin.model.columns import Index, distinct
from tocsin.predicate.conjunctions import Conjunctions
from tocsin.predicate.events import Events

__all__ = ["Costs", "Sample", "build", "evened"]

DEAR = 1e9  # nanoseconds: what a conjunction without any other way costs at most
SMALL = 512  # ends of a dimension that compiled code sorts; NumPy is faster beyond


@dataclass(frozen=True)
class Costs:
    """What things cost, in nanoseconds; fitted on one machine, and only their ratios matter."""

    check: float = 5.0
    test: float = 1.0
    hit: float = 8.0  # a conjunction of a pair that is found in the hash table
    sift: float = 3.0  # a conjunction that is found by two values, if another one it asks for is not there
    look: float = 0.2  # a couple of dimensions, if an event has the first
    find: float = 4.0  # the event's values there, if it has both
    bit: float = 0.06  # a test of the bit-sliced path, per event
    probe: float = 0.9  # a pair of an event's dimensions
    spread: float = 10.0  # an event's dimension entered into the table of bits
    row: float = 0.05  # a row of the table of bits, per event
    compare: float = 3.0  # a value and an entry of a front's list
    follow: float = 20.0  # the other tests of such an entry
    coded: float = 700.0  # an event spread out for a front
    move: float = 300.0  # a conjunction of a segment that goes into a front
    build: float = 1000.0  # a conjunction of a segment that is built
    begin: float = 1e6  # a segment that is built, however small
    event_size: int = 20  # how many attributes an event has, until one is seen

    def probing(self, size: float) -> float:
        """All pairs of an event of this size."""
        return self.probe * size * (size - 1) / 2

    def building(self, size: int) -> float:
        """A segment of so many conjunctions."""
        return self.begin + self.build * size


class Sample(NamedTuple):
    """Recent events, and the index's numbers of their names."""

    events: Events
    numbers: Index


class _Chances(NamedTuple):
    presence: NDArray[np.float64]  # by dimension
    ranks: NDArray[np.int32]  # sampled values, sorted
    start: Index
    more: NDArray[np.float64]  # by dimension: a value met n times
    unit: NDArray[np.float64]  # has the share (n + more) * unit
    size: float  # dimensions of an event


def build(
    portion: Conjunctions,
    patterns: tuple[tuple[str, str], ...],
    samples: list[Sample],
    costs: Costs | None = None,
    spread: Spread = in_halves,
    weight: float = 1.0,
) -> Segment:
    """A segment of these conjunctions; each stands for `weight` of them, if this is only a trial."""
    costs, portion = costs or Costs(), portion.by_key()
    start, dim, low, high, flags, possible = _merged(portion, spread)
    sizes = np.diff(start)
    every = distinct(portion.slot[sizes == 0])
    kept = possible & (sizes > 0)
    if len(every):
        kept &= ~np.isin(portion.slot, every)
    cuts, cut_start, low32, high32 = _ranked((dim, low, high, flags), len(portion.key), spread)
    frame = Frame(portion.key, cuts, cut_start, portion, patterns)
    chances = _chances(frame, dim, samples, costs)
    tests = (start, dim, low32, high32, flags)
    placed, couples = _place(tests, chances, np.diff(cut_start), costs, weight, spread)
    segment = assemble(frame, tests, placed, couples, kept, every, spread)
    fixed = {"pairs": costs.probing(chances.size), "values": couples.cost + costs.look * chances.size}
    for path, cost in fixed.items():
        if segment.counts[path]:
            segment.expected[path] += cost
            segment.fixed[path] = cost
    return segment


def _merged(portion: Conjunctions, spread: Spread) -> Any:
    """The tests, those of one dimension and conjunction made one; and which conjunctions can hold."""
    given = portion.start, portion.dim, portion.low, portion.high, portion.flags
    possible = np.empty(portion.size, np.bool_)
    if any(spread(portion.size, lambda i, j: look_over(*given, i, j, possible))):
        return merge_tests(*given)
    return *given, possible


def _ranked(
    tests: Any, width: int, spread: Spread
) -> tuple[Index, Index, NDArray[np.int32], NDArray[np.int32]]:
    """The cuts of all dimensions, where each one's begin, and all intervals as ranks among them."""
    start, code = bucket_ends(tests[0], tests[1], tests[2], width)
    spread(width, lambda i, j: sort_ends(start, code, i, j, SMALL))
    for d in np.flatnonzero(np.diff(start) > SMALL).tolist():
        code[start[d] : start[d + 1]].sort()
    cut_start = cut_ends(start, code)
    cuts = code[: cut_start[-1]].copy()
    count = len(tests[0])
    out = np.empty(count, np.int32), np.empty(count, np.int32)
    spread(count, lambda i, j: rank_ends(tests, cuts, cut_start, i, j, out))
    return cuts, cut_start, *out


def _chances(frame: Frame, dim: NDArray[np.int32], samples: list[Sample], costs: Costs) -> _Chances:
    """What the sample says of every dimension, mixed with what the subscriptions say."""
    width = len(frame.key)
    asked = count_dims(dim, width)
    prior = np.minimum(1.0, costs.event_size * asked / max(1.0, asked.sum()))
    dims, ranks, count, size = [], [], 0, 0
    if samples:
        bare = frame.segment(arrays=None, bits=None, every=None, expected={}, costly=[])
        for sample in samples:
            some = grouped(
                sample.events, sample.numbers, int(sample.numbers.max(initial=-1)) + 1, 0, sample.events.count
            )
            spread, own = bare.rank(bare.ask(sample.events, sample.numbers, patterns=False), some)
            dims.append(np.repeat(spread.runs[0], np.diff(spread.runs[1])))
            ranks.append(own)
            count += sample.events.count
            size += len(own)
    found = np.concatenate([np.empty(0, np.int32), *dims])
    values = np.concatenate([np.empty(0, np.int32), *ranks])
    order = np.lexsort((values, found))
    start = np.concatenate([[0], np.cumsum(np.bincount(found, minlength=width))]).astype(np.int64)
    weight = max(4.0, 2.0 / max(prior.mean(), 1e-9)) if width else 4.0  # as if seen twice already
    presence = (np.diff(start) + weight * prior) / (count + weight)
    mean = (size + 4.0 * costs.event_size) / (count + 4.0)
    even = evened(found[order], values[order], np.diff(frame.cut_start))
    return _Chances(np.minimum(presence, 1.0), values[order], start, *even, mean)


def evened(
    dim: NDArray[np.int32], rank: NDArray[np.int32], cuts: Index
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much sampled values, by dimension and rank, say of the share that each cut has: `more` and `unit`.

    Where cuts were met unequally often as chance would have it, each is taken to be met as often as the
    others; where the differences are greater, the sample is believed the more. (The shares are drawn from a
    symmetric Dirichlet distribution, whose weight is estimated by moments.)
    """
    count, width = np.maximum(1, cuts).astype(np.float64), len(cuts)
    head = np.flatnonzero(np.append(True, (dim[1:] != dim[:-1]) | (rank[1:] != rank[:-1]))[: len(dim)])
    times, own = np.diff(np.append(head, len(dim))).astype(np.float64), dim[head]
    times[rank[head] & 1 == 0] = 0.0  # between two cuts
    total = np.bincount(dim, minlength=width)
    met, squares = (np.bincount(own, t, minlength=width) for t in (times, times * times))
    differ = (count * squares / np.maximum(1.0, met) - met) / np.maximum(1.0, count - 1.0)  # by chance: 1
    weight = np.clip((met - 1.0) / np.maximum(1e-9, differ - 1.0) - 1.0, 4.0, 1e6)
    share = (met + 4.0 * count / (count + 1.0)) / (total + 4.0)  # of all cuts together
    return weight / count, share / (met + weight)


def _place(
    tests: Any, chances: _Chances, cut_count: Index, costs: Costs, weight: float, spread: Spread
) -> tuple[Placed, Couples]:
    """The cheapest way for each conjunction; couples, pairs and bits only if they pay for themselves."""
    n = len(tests[0]) - 1
    seen = chances[:5]
    prices = np.array(
        [costs.check, costs.test, costs.hit, costs.bit, costs.sift, costs.look, costs.find], np.float64
    )
    couples = _couples(tests, seen, cut_count, prices, weight)
    where, ways = _empty(n)
    found = couples.table, couples.place
    spread(n, lambda i, j: place(tests, seen, cut_count, prices, found, i, j, (*where, *ways)))
    sums = weight * np.sum(spread(n, lambda i, j: sum_ways(ways, np.float32(DEAR), i, j)), axis=0)
    bits = costs.spread * chances.size + costs.row * min(int(cut_count.sum()), MOST_BOUNDS)
    fixed = costs.probing(chances.size), couples.cost + costs.look * chances.size, bits
    used = int(np.argmin(sums + [sum(f for k, f in enumerate(fixed) if ways >> k & 1) for ways in range(8)]))
    way, cost = np.empty(n, np.uint8), np.empty(n, np.float32)
    spread(n, lambda i, j: choose(ways, used, np.float32(prices[0]), i, j, (way, cost)))
    access, first, second, third, fourth, couple = where
    return Placed(way, access, first, second, third, fourth, couple, cost), couples


def _couples(tests: Any, seen: Any, cut_count: Index, prices: NDArray[np.float64], weight: float) -> Couples:
    """The couples worth having, by a sample of the conjunctions."""
    some, nothing = sampled(tests), no_couples(len(cut_count))
    n = len(some[0]) - 1
    where, ways = _empty(n)
    place(some, seen, cut_count, prices, (nothing.table, nothing.place), 0, n, (*where, *ways))
    least = np.minimum.reduce([*ways, np.full(n, DEAR, np.float32)])
    scale = weight * (len(tests[0]) - 1) / max(1, n)
    return find_couples(some, seen, cut_count, prices, least, scale)


def _empty(n: int) -> tuple[list[NDArray[np.int32]], tuple[NDArray[np.float32], ...]]:
    """Room for where conjunctions hang, and for what each way costs."""
    return [np.empty(n, np.int32) for _ in range(6)], tuple(np.empty(n, np.float32) for _ in range(4))
