"""An immutable segment: each conjunction on the one access path that is expected to cost least.

Every interval of codes becomes an interval of *ranks* among the cuts of its dimension (the ends of all its
intervals), in 32 bits: a value equal to cut i has rank 2i + 1, one between cuts i - 1 and i has rank 2i. An
event becomes a table of ranks; MISSING is below all of them, so that the tests of an absent attribute fail
without a special case.

    path       found by                                             then
    direct     its only test: a slice of a sorted list              nothing
    checked    one test, its *access predicate*: a slice            the other tests
    shared     any test of a clause (IN, CNF)                       all tests; found repeatedly
    pairs      its two rarest dimensions, hashed                    all tests
    values     two values it requires, in a table                   the other tests
    bits       all its tests at once, for 512 events at a time      tests that bits do not decide
    unindexed  nothing: it tests only absence                       all tests

Conjunctions are stored in the order of their paths, so a slice of a list is a slice of them. The lists of a
dimension are four: equal to a cut, up to a cut, from a cut on, and between two; the first three are found by
the place of the value among the cuts, in one step. Those between two cuts stand by their low ends; a value
that is at or after the low end of an entry is in no interval that ends before it (`AccessLists.since`), so
that of short intervals, as of prefixes, few are compared. Most candidates of a list fail another test; the
first one of each stands in the list itself (`AccessLists.sieve`), so that they need not be looked at.

This is F01's clustering (section 4) with more than one kind of table; dimension pairs and bits are new.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.bits import match_bits
from tocsin.match._kernels.candidates import match_each
from tocsin.match._kernels.ordering import CodeRuns, by_event, rank_entries
from tocsin.match._kernels.primitives import MISSING, MOST
from tocsin.match._kernels.single import SingleEvent, SingleFound, match_one
from tocsin.match._kernels.verify import COMPLEX, MAY_REPEAT, SLOT, Counter, EventRanks, Owners, RankRuns
from tocsin.match.segments.base import (
    BatchCodes,
    Dimensions,
    EventGroup,
    SegmentMatches,
    unconditional_matches,
)
from tocsin.model.columns import Index, Mask, distinct, sliced
from tocsin.predicate.conjunctions import Conjunctions
from tocsin.predicate.flat import ABSENT

__all__ = [
    "PATHS", "AccessLists", "BitTable", "ConjunctionTests", "DimensionPairs", "ImmutableSegment",
    "SegmentArrays", "ValuePairs", "block_maxima", "compacted", "is_hollow",
]  # fmt: skip

MOST_MATCHES = 1 << 24  # the largest buffer that is allocated in advance
PATHS = ("direct", "checked", "pairs", "bits", "shared", "unindexed", "values")


class ConjunctionTests(NamedTuple):
    """The tests of all conjunctions, by path; `slot` carries COMPLEX and MAY_REPEAT in its upper bits."""

    slot: NDArray[np.uint32]
    start: Index
    dim: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    flags: NDArray[np.uint8]  # empty if no conjunction needs them


class AccessLists(NamedTuple):
    """Conjunctions by one test; entries stand by dimension, and within it by list and place.

    `at` has, for each place among the cuts, where the entries begin that are equal to a cut from here
    on, up to a cut from here on, from a cut from here on; `ends`, for each dimension, where its entries up
    to a cut end, those from a cut on, and where those with two ends begin and end.
    """

    at: NDArray[np.int32]
    ends: NDArray[np.int32]
    base: int  # the first entry with two ends
    low: NDArray[np.int32]  # of entries with two ends, by low end
    high: NDArray[np.int32]
    top: NDArray[np.int32]  # the greatest high end of every 32 of them
    since: NDArray[np.int32]  # by entry with two ends: the first of its dimension that reaches its low end
    target: NDArray[np.int32]  # the conjunction of each entry; empty if it is the entry itself
    sieve: NDArray[np.int32]  # by entry: dimension and ends of another test of it; empty if there is none
    first: int  # the first entry


class DimensionPairs(NamedTuple):
    """Conjunctions by two dimensions: a hash table, and a filter in front of it."""

    bloom: NDArray[np.uint64]  # a bit per pair; empty if there are partners
    partners: NDArray[np.uint64]  # by dimension: bits for the dimensions it makes pairs with
    key: Index
    value: NDArray[np.int32]
    start: NDArray[np.int32]


class ValuePairs(NamedTuple):
    """Conjunctions by the values they require in two dimensions.

    The key of two values is `base` + (number of the first dimension's cut) * `stride` + (that of the other).
    """

    begin: NDArray[np.int32]  # by dimension: its pairs with later ones
    other: NDArray[np.int32]  # by pair: the other dimension
    base: Index
    stride: Index
    bloom: NDArray[np.uint64]  # a bit per key; empty, as are `key` and `place`, if keys are places in `start`
    key: Index
    place: NDArray[np.int32]
    start: NDArray[np.int32]
    sieve: Index  # by conjunction: column and rank of another value it requires
    first: int  # its first conjunction
    column: NDArray[np.int32]  # by dimension: its number among those of pairs and sieve, or -1
    columns: int


class BitTable(NamedTuple):
    """Conjunctions by rows of a table of bits: `upto` and not `below`, of each test."""

    number: NDArray[np.int32]  # of every dimension, or -1
    bounds: NDArray[np.int32]
    bound_start: NDArray[np.int32]
    start: NDArray[np.int32]
    below: NDArray[np.int32]
    upto: NDArray[np.int32]
    sure: NDArray[np.uint8]  # `BitAnswer`
    first: int  # its first conjunction


class SegmentArrays(NamedTuple):
    """What the kernels read."""

    tests: ConjunctionTests
    direct: AccessLists
    checked: AccessLists
    shared: AccessLists
    pairs: DimensionPairs
    values: ValuePairs
    unindexed: Index  # from conjunction .. to
    width: int  # dimensions


@dataclass(frozen=True)
class ImmutableSegment(Dimensions):
    """Conjunctions, their access paths, and what they were expected to cost."""

    key: Index  # of every dimension, ascending
    cuts: Index
    cut_start: Index  # by dimension
    texts: Any
    backwards: Any
    patterns: tuple[tuple[str, str], ...]  # all that the index knew; dimensions name them by number
    arrays: SegmentArrays
    bits: BitTable
    unconditional: NDArray[np.int32]  # slots that match every event
    expected: dict[str, float]  # cost per event by path, nanoseconds
    costly: list[tuple[int, float]]  # slots that are expected to cost most
    fixed: dict[str, float] = field(default_factory=dict)  # cost of a path however few are on it

    @property
    def size(self) -> int:
        """How many conjunctions there are."""
        return len(self.arrays.tests.slot)

    @property
    def conjunction_slots(self) -> NDArray[np.int32]:
        """The slot of each conjunction."""
        return (self.arrays.tests.slot & SLOT).astype(np.int32)

    @property
    def dimensions(self) -> Dimensions:
        return self

    @property
    def may_repeat(self) -> bool:
        """Whether a slot may have more than one conjunction."""
        return bool(np.any(self.arrays.tests.slot & MAY_REPEAT))

    @property
    def expected_cost(self) -> float:
        """Nanoseconds per event."""
        return sum(self.expected.values())

    @property
    def fixed_cost(self) -> float:
        """Nanoseconds per event that dimension pairs cost however few there are."""
        return self.fixed.get("pairs", 0.0)

    @cached_property
    def slots(self) -> NDArray[np.int32]:
        """All slots, each once."""
        return distinct(np.concatenate([self.conjunction_slots, self.unconditional]))

    @property
    def paths(self) -> dict[str, int]:
        """Conjunctions by path."""
        a = self.arrays
        total = len(a.tests.slot)
        bits = len(self.bits.start) - 1
        unindexed = int(a.unindexed[1] - a.unindexed[0])
        pairs = int(a.pairs.start[-1] - a.pairs.start[0]) if len(a.pairs.start) else 0
        values = len(a.values.sieve)
        shared = len(distinct(a.shared.target))
        direct = a.direct.base + len(a.direct.low) if len(a.direct.at) else 0
        checked = total - direct - pairs - bits - shared - unindexed - values
        return dict(zip(PATHS, (direct, checked, pairs, bits, shared, unindexed, values), strict=True))

    @property
    def nbytes(self) -> int:
        """The size of all arrays."""
        return sum(array.nbytes for array in self._own_arrays()) + self.texts.nbytes + self.backwards.nbytes

    def buffer_size(self, events: int) -> int:
        """Matches to expect of so many events, and some more; kernels enlarge a buffer that is too small."""
        return min(self._last_match.get("per_event", 8) * events, MOST_MATCHES) + 1024

    def match(self, codes: BatchCodes, some: EventGroup, owners: Owners, buffer: Index) -> SegmentMatches:
        """Find candidates path by path, and verify them."""
        entries, ranks = self.rank(codes, some)
        dims, own = np.empty_like(ranks), np.empty_like(ranks)
        start, present = by_event(entries, ranks, some.events, dims, own)
        runs = RankRuns(entries.dim, entries.start, entries.event, ranks)
        events = EventRanks(start, dims, own, present, some.first)
        found, counters = match_each(self.arrays, self.cut_start, runs, events, owners, buffer)
        if len(self.bits.start) > 1:
            tests, width = self.arrays.tests, self.arrays.width
            found, counters[Counter.BITS] = match_bits(tests, self.bits, width, events, owners, found)
        n = found.unique_count
        self._last_match["per_event"] = 9 * n // (8 * max(1, some.events)) + 1
        unique = [found.unique[:n], *unconditional_matches(self.unconditional, some, owners)]
        return SegmentMatches(unique, found.repeated[: found.repeated_count], counters)

    def single_call(
        self, event: SingleEvent, found: SingleFound, counters: Index
    ) -> tuple[Any, tuple[Any, ...]]:
        first, count = self.bits.first, len(self.bits.start) - 1
        bits, table = (
            np.array((first, first + count), np.int64),
            self.single_table(self.arrays.values.columns + 1),
        )
        return match_one, (self.arrays, self.cuts, self.cut_start, bits, table, event, found, counters)

    def candidates(self, counters: NDArray[np.float64]) -> dict[str, float]:
        """Counters of `match` by access path."""
        return {
            counter.name.lower(): float(counters[counter]) for counter in Counter if counter < Counter.LOOKUPS
        }

    def rank(self, codes: BatchCodes, some: EventGroup) -> tuple[CodeRuns, NDArray[np.int32]]:
        """Some events in this segment's dimensions, and their ranks there."""
        runs = self.runs(codes, some)
        ranks = np.empty(len(runs.event), np.int32)
        rank_entries(runs, self.cuts, self.cut_start, ranks)
        return runs, ranks

    def owned(self, owners: Owners) -> tuple[Index, NDArray[np.int32]]:
        """The conjunctions whose slots the segment owns, and such unconditional slots."""
        chosen = np.flatnonzero(owners.of[self.conjunction_slots] == owners.number)
        return chosen, self.unconditional[owners.of[self.unconditional] == owners.number]

    def extract(self, chosen: Index) -> Conjunctions:
        """Some of the conjunctions, by number, in codes that do not depend on the segment."""
        tests = self.arrays.tests
        slot, start = self.conjunction_slots, tests.start
        at: Any = slice(None)
        if len(chosen) < len(slot):
            slot = slot[chosen]
            start, at = sliced(start[chosen], start[chosen + 1] - start[chosen])
        dim, lows, highs = tests.dim[at], tests.low[at], tests.high[at]
        where = self.cut_start[dim]
        flags = tests.flags[at] if len(tests.flags) else np.zeros(len(dim), np.uint8)
        absent = highs == MISSING
        flags = np.where(absent, flags | ABSENT, flags & ~np.uint8(ABSENT)).astype(np.uint8)
        low, high = np.full(len(where), -(2**63)), np.full(len(where), 2**63 - 1)
        inner = ~absent & (lows > 0)
        low[inner] = self.cuts[where[inner] + (lows[inner] >> 1)]
        inner = ~absent & (highs < MOST)
        high[inner] = self.cuts[where[inner] + (highs[inner] >> 1)]
        return Conjunctions(slot, start, dim, low, high, flags, self.key, self.texts, self.backwards)

    @cached_property
    def _last_match(self) -> dict[str, int]:
        """Matches per event, to size the next buffer: NumPy allocates large pages, a kernel small ones."""
        return {}

    def _own_arrays(self) -> list[Any]:
        groups = [group for group in self.arrays if isinstance(group, tuple)]
        fields = [value for group in (*groups, self.bits) for value in group]
        plain = [self.key, self.cuts, self.cut_start, self.arrays.unindexed, self.unconditional]
        return [value for value in (*plain, *fields) if isinstance(value, np.ndarray)]

    def _check(self) -> None:
        tests, width = self.arrays.tests, self.arrays.width
        assert np.all(np.diff(self.key) > 0) and len(self.key) == width == len(self.cut_start) - 1
        assert np.all((tests.dim >= 0) & (tests.dim < width))
        if len(tests.flags):
            assert np.array_equal((tests.flags & ABSENT) != 0, tests.high == MISSING)
        assert sum(self.paths.values()) == len(tests.slot) == len(tests.start) - 1
        for d in range(width):
            own = self.cuts[self.cut_start[d] : self.cut_start[d + 1]]
            assert np.all(own[1:] > own[:-1])
        if len(self.arrays.values.sieve):
            _check_values(self.arrays.values, tests)
        for lists in (self.arrays.direct, self.arrays.checked, self.arrays.shared):
            if len(lists.at):
                assert np.all(np.diff(lists.at[:, 0]) >= 0) and np.all(np.diff(lists.ends[:, 2]) >= 0)
                assert np.all(lists.low < lists.high)
                _check_since(lists)
                _check_sieve(lists, tests)


def _check_since(lists: AccessLists) -> None:
    """No entry with two ends before `since` reaches the low end; nor is it of another dimension."""
    number = lists.base + np.arange(len(lists.low))
    assert np.all(lists.since <= number)
    for two, end in lists.ends[:, 2:].tolist():
        for k in range(two - lists.base, end - lists.base):
            assert lists.since[k] >= two
            assert np.all(lists.high[two - lists.base : lists.since[k] - lists.base] < lists.low[k])


def _check_sieve(lists: AccessLists, tests: ConjunctionTests) -> None:
    """The sieve has the first test of each plain conjunction, and lets the others pass."""
    entry = lists.first + np.arange(len(lists.sieve))
    at, plain = tests.start[entry], (tests.slot[entry] & COMPLEX) == 0
    first = np.stack([tests.dim[at], tests.low[at], tests.high[at]], axis=1)
    assert np.array_equal(lists.sieve[plain], first[plain])
    assert np.all(lists.sieve[~plain] == [0, MISSING, MOST])


def _check_values(values: ValuePairs, tests: ConjunctionTests) -> None:
    """The last two tests of a plain conjunction, which are not verified, are those of its key."""
    last = values.first + len(values.sieve)
    assert np.all(np.diff(values.start) >= 0) and values.start[0] == values.first and values.start[-1] == last
    assert np.all((values.sieve >> 32) <= values.columns)
    pair = np.repeat(np.arange(len(values.start) - 1), np.diff(values.start))
    key = pair
    if len(values.key):
        at = np.flatnonzero(values.key >= 0)
        key = np.empty(len(values.start) - 1, np.int64)
        key[values.place[at]] = values.key[at]
        key = key[pair]
    plain = (tests.slot[values.first : last] & COMPLEX) == 0
    one, two = (tests.start[values.first + 1 : last + 1][plain] - back for back in (2, 1))
    assert np.all(tests.low[one] == tests.high[one]) and np.all(tests.low[two] == tests.high[two])
    first, second = tests.dim[one], tests.dim[two]
    turned = first > second
    first, second = np.where(turned, second, first), np.where(turned, first, second)
    low = np.where(turned, tests.low[two], tests.low[one]).astype(np.int64)
    high = np.where(turned, tests.low[one], tests.low[two])
    owner = np.searchsorted(values.base, key[plain], "right") - 1
    assert np.array_equal(values.other[owner], second)
    assert np.all((values.begin[first] <= owner) & (owner < values.begin[first + 1]))
    assert np.array_equal(key[plain], values.base[owner] + (low >> 1) * values.stride[owner] + (high >> 1))


# -- compaction ------------------------------------------------------------------------------------


def is_hollow(segment: ImmutableSegment, kept: Index) -> bool:
    """Would fewer than half of the cuts be ends of the kept conjunctions? Then it is better rebuilt."""
    start = segment.arrays.tests.start
    return 2 * int((start[kept + 1] - start[kept]).sum()) < len(segment.cuts)


def compacted(segment: ImmutableSegment, kept: Index, unconditional: NDArray[np.int32]) -> ImmutableSegment:
    """The segment of some of its conjunctions, in ascending order, and of these unconditional slots.

    Building a segment sorts, ranks and places; leaving conjunctions out needs none of it. They keep their
    order, so every place in a list becomes the number of conjunctions kept before it:

        conjunctions    a b c d e      kept  a . c . e        before  0 1 1 2 2 3
        a list          from 1 to 4    is now from 1 to 2

    Cuts, dimensions and pairs that no conjunction uses any more stay.
    """
    count = segment.size
    stays = np.zeros(count, np.bool_)
    stays[kept] = True
    before = np.concatenate([[0], np.cumsum(stays)])
    a = segment.arrays
    last = a.values.first + len(a.values.sieve)
    values = a.values._replace(
        start=before[a.values.start].astype(np.int32),
        sieve=a.values.sieve[stays[a.values.first : last]],
        first=int(before[a.values.first]),
    )
    target = a.shared.target
    listed = stays[target]
    shared = _compacted_lists(a.shared, listed, np.concatenate([[0], np.cumsum(listed)]))
    arrays = SegmentArrays(
        _compacted_tests(a.tests, kept),
        _compacted_lists(a.direct, stays, before),
        _compacted_lists(a.checked, stays, before),
        shared._replace(target=before[target[listed]].astype(np.int32)),
        a.pairs._replace(start=before[a.pairs.start].astype(np.int32)),
        values,
        before[a.unindexed],
        a.width,
    )
    share = len(kept) / max(1, count)
    expected = {path: cost * share for path, cost in segment.expected.items()}
    for path, fixed in segment.fixed.items():
        expected[path] += (1.0 - share) * fixed
    bits = _compacted_bits(segment.bits, stays, before)
    return replace(segment, arrays=arrays, bits=bits, unconditional=unconditional, expected=expected)


def _compacted_tests(tests: ConjunctionTests, kept: Index) -> ConjunctionTests:
    start, at = sliced(tests.start[kept], tests.start[kept + 1] - tests.start[kept])
    flags = tests.flags[at] if len(tests.flags) else tests.flags
    return ConjunctionTests(tests.slot[kept], start, tests.dim[at], tests.low[at], tests.high[at], flags)


def _compacted_lists(lists: AccessLists, stays: Mask, before: Index) -> AccessLists:
    if not len(lists.at):
        return lists
    two = stays[lists.base : lists.base + len(lists.low)]
    low, high, since = lists.low[two], lists.high[two], before[lists.since[two]].astype(np.int32)
    at, ends = before[lists.at].astype(np.int32), before[lists.ends].astype(np.int32)
    base = int(before[lists.base])
    sieve = lists.sieve[stays[lists.first : lists.first + len(lists.sieve)]]
    own = low, high, block_maxima(high), since, lists.target
    return AccessLists(at, ends, base, *own, sieve, int(before[lists.first]))


def _compacted_bits(bits: BitTable, stays: Mask, before: Index) -> BitTable:
    count = len(bits.start) - 1
    kept = np.flatnonzero(stays[bits.first : bits.first + count])
    start, test = sliced(bits.start[:-1][kept].astype(np.int64), np.diff(bits.start)[kept].astype(np.int64))
    return bits._replace(
        start=start.astype(np.int32),
        below=bits.below[test],
        upto=bits.upto[test],
        sure=bits.sure[kept],
        first=int(before[bits.first]),
    )


def block_maxima(high: NDArray[np.int32]) -> NDArray[np.int32]:
    """The greatest of every 32."""
    padded = np.full((len(high) + 31) // 32 * 32, MISSING, np.int32)
    padded[: len(high)] = high
    return padded.reshape(-1, 32).max(axis=1) if len(padded) else padded
