"""Building a segment: on which access path does each conjunction cost least?

A way to find a conjunction costs, per event, the chance that an event makes it a candidate times the cost of
a check; bits cost a little for each test, whether it holds or not. The chances come from a sample of recent
events: how often a dimension is there, and how often its value lies in the interval. Where the sample says
little, the subscriptions themselves do: a dimension that many test is taken to be frequent, and values to be
spread evenly over the cuts.

Dimension pairs, value pairs and bits have a fixed cost for every event as well. They are used only if all
conjunctions together gain more than that.

*Value pairs* are the hash tables of F01 (section 4.2). Each is looked up for every event that has both
dimensions, so few of them should serve many conjunctions; and many conjunctions require values in several
dimensions. Which pairs to have is F01's problem of static clustering, solved greedily as there: next comes
the pair that saves most, beside what the chosen ones save, as long as it saves more than looking it up costs.
The savings are estimated on a sample of the conjunctions.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.assemble import (
    bucket_ends,
    cut_ends,
    fill_hash,
    fill_rest,
    look_over,
    merge_tests,
    rank_ends,
    sort_ends,
)
from tocsin.match._kernels.cost import (
    AccessTests,
    Prices,
    RankTests,
    ValueChances,
    Way,
    WayCosts,
    place,
    place_values,
)
from tocsin.match._kernels.value_pairs import BLOCK, PASS, choose_value_pairs, offers
from tocsin.match.build.assemble import (
    MOST_BOUNDS,
    AccessChoice,
    ByRanges,
    SegmentFrame,
    ValuePairChoice,
    assemble,
    in_two_threads,
    no_value_pairs,
)
from tocsin.match.segments.base import group_events
from tocsin.match.segments.immutable import ImmutableSegment
from tocsin.model.columns import Index, distinct, sliced
from tocsin.model.texts import TextNumbers
from tocsin.predicate.conjunctions import Conjunctions
from tocsin.predicate.events import Events

__all__ = ["CostModel", "EventSample", "RecentEvents", "build", "evened"]

DEAR = 1e9  # nanoseconds: the most that a conjunction counts
SMALL = 512  # ends of a dimension that compiled code sorts; NumPy is faster beyond
MOST_PAIRS = 4096  # value pairs
MOST_KEYS = 1 << 40  # of a value pair: keys of all pairs together must fit
LEAST_SAMPLE, MOST_SAMPLE = 1 << 13, 1 << 16  # conjunctions by which value pairs are chosen; of many, 1/16
_BATCHES = 64  # batches that the sample of events comes from, at most


@dataclass(frozen=True)
class CostModel:
    """What things cost, in nanoseconds; fitted on one machine, and only their ratios matter."""

    check: float = 5.0
    test: float = 1.0
    hit: float = 8.0  # a conjunction of a pair that is found in the hash table
    sieve: float = 3.0  # a conjunction that is found by two values, if another required value is not there
    turn: float = 0.2  # a value pair, if an event has the first dimension
    look_up: float = 4.0  # the event's values there, if it has both
    bit: float = 0.06  # a test of the bit-sliced path, per event
    probe: float = 0.9  # a pair of an event's dimensions
    bit_entry: float = 10.0  # an event's dimension entered into the table of bits
    bit_row: float = 0.05  # a row of the table of bits, per event
    compare: float = 3.0  # a value and an entry of a mutable segment's list
    follow: float = 20.0  # the other tests of such an entry
    encode: float = 700.0  # an event encoded for a segment
    migrate: float = 300.0  # a conjunction that moves from an immutable into a mutable segment
    build: float = 1000.0  # a conjunction of an immutable segment that is built
    build_start: float = 1e6  # an immutable segment that is built, however small
    event_size: int = 20  # attributes of an event, until one is seen

    def probe_cost(self, size: float) -> float:
        """The cost of probing all pairs of an event with `size` dimensions."""
        return self.probe * size * (size - 1) / 2

    def build_cost(self, size: int) -> float:
        """Building a segment of so many conjunctions."""
        return self.build_start + self.build * size


# -- recent events ---------------------------------------------------------------------------------


class EventSample(NamedTuple):
    """Recent events, and the index's numbers of their names."""

    events: Events
    numbers: Index


class RecentEvents:
    """A sample of about `most` recent events, some of each batch; `attributes` numbers an index's names."""

    def __init__(self, most: int, attributes: TextNumbers) -> None:
        self._most, self._attributes = most, attributes
        self._batches: deque[EventSample] = deque()
        self._count = 0
        self._turn = -1

    def __len__(self) -> int:
        return self._count

    def add(self, events: Events, numbers: Index) -> None:
        """Keep some of the events."""
        self._turn += 1
        if not events.count or (events.count < 8 and self._turn % 16):  # of small batches, every 16th
            return
        most = max(1, self._most // 8)
        chosen = distinct(np.linspace(0, events.count - 1, min(most, events.count)).astype(np.int64))
        self._batches.append(EventSample(events.take(chosen), numbers))
        self._count += len(chosen)
        while len(self._batches) > 1 and (
            len(self._batches) > _BATCHES or self._count - self._batches[0].events.count >= self._most
        ):
            self._count -= self._batches.popleft().events.count

    def samples(self) -> list[EventSample]:
        """The sample, with numbers of attributes that filters have named since."""
        for i, sample in enumerate(self._batches):
            unknown = np.flatnonzero(sample.numbers < 0)
            if len(unknown):
                numbers = sample.numbers.copy()  # another thread may be reading the old ones
                numbers[unknown] = self._attributes.find([sample.events.names[k] for k in unknown.tolist()])
                self._batches[i] = sample._replace(numbers=numbers)
        return list(self._batches)


# -- building --------------------------------------------------------------------------------------


def build(
    conjunctions: Conjunctions,
    patterns: tuple[tuple[str, str], ...],
    samples: list[EventSample],
    costs: CostModel | None = None,
    by_ranges: ByRanges = in_two_threads,
    weight: float = 1.0,
) -> ImmutableSegment:
    """A segment of these conjunctions; in a trial, each stands for `weight` of them."""
    costs, conjunctions = costs or CostModel(), conjunctions.by_key()
    start, dim, low, high, flags, possible = _merged(conjunctions, by_ranges)
    sizes = np.diff(start)
    unconditional = distinct(conjunctions.slot[sizes == 0])
    kept = possible & (sizes > 0)
    if len(unconditional):
        kept &= ~np.isin(conjunctions.slot, unconditional)
    cuts, cut_start, low32, high32 = _ranked((dim, low, high, flags), len(conjunctions.key), by_ranges)
    frame = SegmentFrame(conjunctions.key, cuts, cut_start, conjunctions, patterns)
    chances = _chances(frame, dim, samples, costs)
    tests = RankTests(start, dim, low32, high32, flags)
    choice, pairs = _place(tests, chances, np.diff(cut_start), costs, weight, by_ranges)
    segment = assemble(frame, tests, choice, pairs, kept, unconditional, by_ranges)
    fixed = {"pairs": costs.probe_cost(chances.size), "values": pairs.cost + costs.turn * chances.size}
    for path, cost in fixed.items():
        if segment.paths[path]:
            segment.expected[path] += cost
            segment.fixed[path] = cost
    return segment


def _merged(conjunctions: Conjunctions, by_ranges: ByRanges) -> Any:
    """The tests, those of one dimension and conjunction intersected; and which conjunctions can hold."""
    given = conjunctions.start, conjunctions.dim, conjunctions.low, conjunctions.high, conjunctions.flags
    possible = np.empty(conjunctions.size, np.bool_)
    if any(by_ranges(conjunctions.size, lambda i, j: look_over(*given, i, j, possible))):
        return merge_tests(*given)
    return *given, possible


def _ranked(
    tests: Any, width: int, by_ranges: ByRanges
) -> tuple[Index, Index, NDArray[np.int32], NDArray[np.int32]]:
    """The cuts of all dimensions, where each one's begin, and all intervals as ranks among them."""
    start, code = bucket_ends(tests[0], tests[1], tests[2], width)
    by_ranges(width, lambda i, j: sort_ends(start, code, i, j, SMALL))
    for d in np.flatnonzero(np.diff(start) > SMALL).tolist():
        code[start[d] : start[d + 1]].sort()
    cut_start = cut_ends(start, code)
    cuts = code[: cut_start[-1]].copy()
    count = len(tests[0])
    out = np.empty(count, np.int32), np.empty(count, np.int32)
    by_ranges(count, lambda i, j: rank_ends(tests, cuts, cut_start, i, j, out))
    return cuts, cut_start, *out


def _chances(
    frame: SegmentFrame, dim: NDArray[np.int32], samples: list[EventSample], costs: CostModel
) -> ValueChances:
    """The chances of every dimension by the sample, mixed with what the subscriptions suggest."""
    width = len(frame.key)
    tested = np.bincount(dim, minlength=width).astype(np.float64)
    prior = np.minimum(1.0, costs.event_size * tested / max(1.0, tested.sum()))
    dims, ranks, count, size = [], [], 0, 0
    if samples:
        bare = frame.segment(arrays=None, bits=None, unconditional=None, expected={}, costly=[])
        for sample in samples:
            attributes = int(sample.numbers.max(initial=-1)) + 1
            some = group_events(*sample, attributes, 0, sample.events.count)
            runs, own = bare.rank(bare.encode(*sample, patterns=False), some)
            dims.append(np.repeat(runs.dim, np.diff(runs.start)))
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
    return ValueChances(np.minimum(presence, 1.0), values[order], start, *even, mean)


def evened(
    dim: NDArray[np.int32], rank: NDArray[np.int32], cuts: Index
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much sampled values, by dimension and rank, say of the share that each cut has: `more` and `unit`.

    If the counts of cuts differ no more than by chance, all cuts get the same share; the more they differ,
    the more the sample counts. (Shares are drawn from a symmetric Dirichlet distribution, whose weight is
    estimated by moments.)
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
    tests: RankTests,
    chances: ValueChances,
    cut_count: Index,
    costs: CostModel,
    weight: float,
    by_ranges: ByRanges,
) -> tuple[AccessChoice, ValuePairChoice]:
    """The cheapest way for each conjunction; value pairs, dimension pairs and bits only if they pay off."""
    n = len(tests.start) - 1
    prices = Prices(*(float(getattr(costs, name)) for name in Prices._fields))
    where = AccessTests(*(np.empty(n, np.int32) for _ in range(6)))
    ways = WayCosts(*(np.empty(n, np.float32) for _ in range(4)))
    by_ranges(n, lambda i, j: place(tests, chances, cut_count, prices, i, j, (where, ways)))
    pairs = _value_pairs(tests, chances, cut_count, prices, ways, weight)
    if len(pairs.other):
        known = pairs.table, pairs.place
        by_ranges(n, lambda i, j: place_values(tests, chances, cut_count, prices, known, i, j, (where, ways)))
    sums = [weight * float(_least(ways, used).sum(dtype=np.float64)) for used in range(8)]
    bits = costs.bit_entry * chances.size + costs.bit_row * min(int(cut_count.sum()), MOST_BOUNDS)
    fixed = costs.probe_cost(chances.size), pairs.cost + costs.turn * chances.size, bits
    sums = [own + sum(f for k, f in enumerate(fixed) if used >> k & 1) for used, own in enumerate(sums)]
    way, cost = _cheapest(ways, int(np.argmin(sums)), prices.check)
    return AccessChoice(way, *where, cost), pairs


def _by_set(costs: WayCosts, used: int) -> list[tuple[Way, NDArray[np.float32]]]:
    """The ways of a set beside lists, and what conjunctions cost by each.

    Sets are numbered by bits: 1 dimension pairs, 2 value pairs, 4 bits.
    """
    beside = (Way.PAIR, costs.by_pair), (Way.VALUES, costs.by_value), (Way.BITS, costs.by_bits)
    return [own for bit, own in enumerate(beside) if used >> bit & 1]


def _least(costs: WayCosts, used: int) -> NDArray[np.float32]:
    """What each conjunction costs by lists and a set of other ways, at most DEAR."""
    least = np.minimum(costs.by_list, np.float32(DEAR))
    for _, cost in _by_set(costs, used):
        np.minimum(least, cost, out=least)
    return least


def _cheapest(costs: WayCosts, used: int, dear: float) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """The cheapest way of each conjunction, among lists and a set of other ways, and its cost."""
    way, cost = np.full(len(costs.by_list), Way.LIST, np.uint8), costs.by_list.copy()
    for other, own in _by_set(costs, used):
        better = own < cost
        way[better], cost[better] = other, own[better]
    nowhere = np.isinf(cost)
    way[nowhere], cost[nowhere] = Way.UNINDEXED, dear
    return way, cost


# -- value pairs -----------------------------------------------------------------------------------


def _value_pairs(
    tests: RankTests, chances: ValueChances, cut_count: Index, prices: Prices, ways: WayCosts, weight: float
) -> ValuePairChoice:
    """The value pairs worth having, by a sample of the conjunctions; `ways` have no value pairs yet."""
    n = len(tests.start) - 1
    wanted = min(n, max(LEAST_SAMPLE, min(MOST_SAMPLE, n // 16)))
    if wanted < n:
        chosen = np.linspace(0, n - 1, wanted).astype(np.int64)
        start, at = sliced(tests.start[chosen], tests.start[chosen + 1] - tests.start[chosen])
        tests = RankTests(start, *(array[at] for array in tests[1:]))
        ways = WayCosts(*(costs[chosen] for costs in ways))
    scale = weight * n / max(1, wanted)
    return _best_pairs(tests, chances, cut_count, prices, _least(ways, 7), scale)


def _best_pairs(
    some: RankTests,
    chances: ValueChances,
    cut_count: Index,
    prices: Prices,
    least: NDArray[np.float32],
    scale: float,
) -> ValuePairChoice:
    """The value pairs worth having; `some` are tests of a sample, which stand for `scale` times as many.

    `least` is what a conjunction of the sample costs without value pairs.
    """
    width, presence = len(cut_count), chances.presence
    pair, whose, price = offers(some, chances, cut_count, prices, least)
    if not len(pair):
        return no_value_pairs(width)
    order = np.argsort(pair, kind="stable")
    known, begin = np.unique(pair[order], return_index=True)
    begin = np.append(begin, len(order))
    first, second = np.divmod(known, width)
    fixed = presence[first] * (prices.turn + presence[second] * prices.look_up)
    both = np.minimum(1.0, BLOCK * presence[first]) * np.minimum(1.0, BLOCK * presence[second])
    fixed += prices.look_up * PASS / BLOCK * both
    keys = cut_count[first].astype(np.float64) * cut_count[second]
    fixed[keys > MOST_KEYS] = np.inf
    chosen = choose_value_pairs(begin, whose[order], price[order], least, fixed, scale, MOST_PAIRS)
    if not len(chosen):
        return no_value_pairs(width)
    return _numbered(np.sort(known[chosen]), cut_count, float(fixed[chosen].sum()))


def _numbered(known: Index, cut_count: Index, cost: float) -> ValuePairChoice:
    """Chosen pairs with their keys, and a hash table of them."""
    width = len(cut_count)
    first, second = np.divmod(known, width)
    begin = np.searchsorted(first, np.arange(width + 1)).astype(np.int32)
    ends = np.cumsum(cut_count[first] * cut_count[second])
    base = np.concatenate([[0], ends])[: len(known)].astype(np.int64)
    table = np.full(1 << max(4, (2 * len(known)).bit_length()), -1, np.int64)
    place = np.zeros(len(table), np.int32)
    fill_rest(known, table, place, fill_hash(known, table, place, 0, len(table)))
    stride = cut_count[second].astype(np.int64)
    return ValuePairChoice(begin, second.astype(np.int32), base, stride, int(ends[-1]), table, place, cost)
