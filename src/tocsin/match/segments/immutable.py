"""A segment: an immutable set of conjunctions, each on the one path that is expected to cost least.

Every interval of codes becomes an interval of *ranks* among the cuts of its dimension (the ends of
all its intervals), in 32 bits: a value equal to cut i has rank 2i + 1, one between cuts i - 1 and
i has rank 2i. An event is spread out over a table of ranks; MISSING is below all of them, so that an
absent attribute fails without a question asked.

    path      found by                                             then
    direct    its only test: a slice of a sorted list              nothing
    checked   one test, its *access predicate*: a slice            the other tests
    shared    any test of a clause (IN, CNF)                       all tests; told once
    pairs     its two rarest dimensions, hashed                    all tests
    values    two values it asks for, in a table                   what it asks for else
    bits      all its tests at once, for 512 events at a time      tests that bits cannot tell
    always    nothing: it asks only what is absent                 all tests

Conjunctions are stored in the order of their paths, so a slice of a list is a slice of them. The
lists of a dimension are four: equal to a cut, up to a cut, from a cut on, and between two; the
first three are found by the place of the value among the cuts, in one step.

This is F01's clustering (section 4) with more than one kind of table; the pairs and the bits are new.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.bits import match_bits
from tocsin.match._kernels.build import MISSING, MOST
from tocsin.match._kernels.candidates import match_each
from tocsin.match._kernels.ranking import by_event, rank_entries
from tocsin.match._kernels.verify import COMPLEX, SEVERAL, SLOT
from tocsin.match.dimensions import Asked, Dimensions, Grouped, Spread, told_always
from tocsin.model.columns import Index, distinct, sliced
from tocsin.predicate.conjunctions import Conjunctions
from tocsin.predicate.flat import ABSENT

__all__ = ["Arrays", "Bits", "Checks", "Lists", "Pairs", "Segment", "Values"]

MOST_ROOM = 1 << 24  # matches that room is made for in advance
PATHS = ("direct", "checked", "pairs", "bits", "shared", "always", "values")


class Checks(NamedTuple):
    """The tests of all conjunctions, by path; `slot` carries two flags in its upper bits."""

    slot: NDArray[np.uint32]
    start: Index
    dim: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    flags: NDArray[np.uint8]  # empty if no conjunction needs them


class Lists(NamedTuple):
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
    target: NDArray[np.int32]  # the conjunction of each entry; empty if it is the entry itself


class Pairs(NamedTuple):
    """Conjunctions by two dimensions: a hash table, and a filter in front of it."""

    bloom: NDArray[np.uint64]  # a bit per pair; empty if every dimension has
    partners: NDArray[np.uint64]  # bits for the dimensions it makes pairs with
    key: Index
    value: NDArray[np.int32]
    start: NDArray[np.int32]


class Values(NamedTuple):
    """Conjunctions by the values they ask for in two dimensions, a couple.

    The key of two values is `base` + (number of the first dimension's cut) * `stride` + (that of the other).
    """

    begin: NDArray[np.int32]  # by dimension: its couples with later ones
    other: NDArray[np.int32]  # by couple: the other dimension
    base: Index
    stride: Index
    bloom: NDArray[np.uint64]  # a bit per key; empty, as are `key` and `place`, if keys are places in `start`
    key: Index
    place: NDArray[np.int32]
    start: NDArray[np.int32]
    sieve: Index  # by conjunction: column and rank of another value it asks for
    first: int  # its first conjunction
    column: NDArray[np.int32]  # by dimension: its number among those that couples and sieve ask for, or -1
    columns: int


class Bits(NamedTuple):
    """Conjunctions by rows of a table of bits: `upto` and not `below`, of each test."""

    number: NDArray[np.int32]  # of every dimension, or -1
    bounds: NDArray[np.int32]
    bound_start: NDArray[np.int32]
    start: NDArray[np.int32]
    below: NDArray[np.int32]
    upto: NDArray[np.int32]
    sure: NDArray[np.uint8]  # EXACT, LOOSE or UNSURE
    first: int  # its first conjunction


class Arrays(NamedTuple):
    """What the kernels read."""

    checks: Checks
    direct: Lists
    checked: Lists
    shared: Lists
    pairs: Pairs
    values: Values
    always: Index  # from conjunction .. to
    width: int  # dimensions


@dataclass(frozen=True)
class Segment(Dimensions):
    """Conjunctions, where they hang, and what that was expected to cost."""

    key: Index  # of every dimension, ascending
    cuts: Index
    cut_start: Index  # by dimension
    texts: Any
    backwards: Any
    patterns: tuple[tuple[str, str], ...]  # all that the index knew; dimensions name them by number
    arrays: Arrays
    bits: Bits
    every: NDArray[np.int32]  # slots that always match
    expected: dict[str, float]  # cost per event by path, nanoseconds
    costly: list[tuple[int, float]]  # slots that are expected to cost most
    fixed: dict[str, float] = field(default_factory=dict)  # what a path costs however few are on it

    @property
    def size(self) -> int:
        """How many conjunctions there are."""
        return len(self.arrays.checks.slot)

    @property
    def conjunction_slots(self) -> NDArray[np.int32]:
        """The slot of each conjunction."""
        return (self.arrays.checks.slot & SLOT).astype(np.int32)

    @property
    def has_several(self) -> bool:
        """Whether a slot may have more than one conjunction."""
        return bool(np.any(self.arrays.checks.slot & SEVERAL))

    @cached_property
    def slots(self) -> NDArray[np.int32]:
        """All slots, each once."""
        return distinct(np.concatenate([self.conjunction_slots, self.every]))

    @property
    def counts(self) -> dict[str, int]:
        """Conjunctions by path."""
        a = self.arrays
        total = len(a.checks.slot)
        bits = len(self.bits.start) - 1
        always = int(a.always[1] - a.always[0])
        pairs = int(a.pairs.start[-1] - a.pairs.start[0]) if len(a.pairs.start) else 0
        values = len(a.values.sieve)
        shared = len(distinct(a.shared.target))
        direct = a.direct.base + len(a.direct.low) if len(a.direct.at) else 0
        checked = total - direct - pairs - bits - shared - always - values
        return dict(zip(PATHS, (direct, checked, pairs, bits, shared, always, values), strict=True))

    @property
    def nbytes(self) -> int:
        """The size of all arrays."""
        return sum(array.nbytes for array in arrays_of(self)) + self.texts.nbytes + self.backwards.nbytes

    def room(self, events: int) -> int:
        """Matches to expect of so many events, and some more; kernels make more room if that was too few."""
        return min(self._room.get("matches", 8) * events, MOST_ROOM) + 1024

    def match(
        self, asked: Asked, some: Grouped, owner: NDArray[np.int32], number: int, room: Index
    ) -> tuple[list[Index], list[Index], Index]:
        """Matches of some events: told once each, perhaps told twice, candidates by path.

        If `owner` is not empty, only slots that it says belong to `number` are told. What is told once is
        written to `room`, as far as there is enough of it.
        """
        count, a = some.last - some.first, self.arrays
        spread, ranks = self.rank(asked, some)
        dims, own = np.empty_like(ranks), np.empty_like(ranks)
        start, bits = by_event(spread.runs, spread.event, ranks, count, dims, own)
        coded = (start, dims, own, bits, some.first)
        ranked = spread.event, ranks
        found, n, twice, seen = match_each(a, self.cut_start, spread.runs, ranked, coded, owner, number, room)
        doubtful = [twice]
        if len(self.bits.start) > 1:
            found, twice, seen[3] = match_bits(a.checks, self.bits, a.width, coded, owner, number, found, n)
            n = len(found)
            doubtful.append(twice)
        self._room["matches"] = 9 * n // (8 * max(1, count)) + 1
        out = [found[:n], *told_always(self.every, some, owner, number)]
        return out, doubtful, seen

    def rank(self, asked: Asked, some: Grouped) -> tuple[Spread, NDArray[np.int32]]:
        """Some events in this segment's dimensions, and their ranks there."""
        spread = self.spread(asked, some)
        ranks = np.empty(len(spread.event), np.int32)
        rank_entries(spread.runs, spread.code, spread.above, self.cuts, self.cut_start, ranks)
        return spread, ranks

    def owned(self, owner: NDArray[np.int32], number: int) -> tuple[Index, NDArray[np.int32]]:
        """The conjunctions whose slots belong to `number`, and such slots that always match."""
        chosen = np.flatnonzero(owner[self.conjunction_slots] == number)
        return chosen, self.every[owner[self.every] == number]

    def portion(self, chosen: Index) -> Conjunctions:
        """Some of the conjunctions, by number, in codes that do not depend on the segment."""
        checks = self.arrays.checks
        slot, start = self.conjunction_slots, checks.start
        tests: Any = slice(None)
        if len(chosen) < len(slot):
            slot = slot[chosen]
            start, tests = sliced(checks.start[chosen], checks.start[chosen + 1] - checks.start[chosen])
        dim, lows, highs = checks.dim[tests], checks.low[tests], checks.high[tests]
        where = self.cut_start[dim]
        flags = checks.flags[tests] if len(checks.flags) else np.zeros(len(dim), np.uint8)
        absent = highs == MISSING
        flags = np.where(absent, flags | ABSENT, flags & ~np.uint8(ABSENT)).astype(np.uint8)
        low, high = np.full(len(where), -(2**63)), np.full(len(where), 2**63 - 1)
        inner = ~absent & (lows > 0)
        low[inner] = self.cuts[where[inner] + (lows[inner] >> 1)]
        inner = ~absent & (highs < MOST)
        high[inner] = self.cuts[where[inner] + (highs[inner] >> 1)]
        return Conjunctions(slot, start, dim, low, high, flags, self.key, self.texts, self.backwards)

    @cached_property
    def _room(self) -> dict[str, int]:
        """Matches of an event to expect: NumPy's memory comes in large pages, a kernel's in small ones."""
        return {}

    def _check(self) -> None:
        checks, width = self.arrays.checks, self.arrays.width
        assert np.all(np.diff(self.key) > 0) and len(self.key) == width == len(self.cut_start) - 1
        assert np.all((checks.dim >= 0) & (checks.dim < width))
        if len(checks.flags):
            assert np.array_equal((checks.flags & ABSENT) != 0, checks.high == MISSING)
        assert sum(self.counts.values()) == len(checks.slot) == len(checks.start) - 1
        for d in range(width):
            own = self.cuts[self.cut_start[d] : self.cut_start[d + 1]]
            assert np.all(own[1:] > own[:-1])
        if len(self.arrays.values.sieve):
            _check_values(self.arrays.values, checks)
        for lists in (self.arrays.direct, self.arrays.checked, self.arrays.shared):
            if len(lists.at):
                assert np.all(np.diff(lists.at[:, 0]) >= 0) and np.all(np.diff(lists.ends[:, 2]) >= 0)
                assert np.all(lists.low < lists.high)


def _check_values(values: Values, checks: Checks) -> None:
    """What is not verified again must hold: a plain conjunction's last two tests are those of its key."""
    last = values.first + len(values.sieve)
    assert np.all(np.diff(values.start) >= 0) and values.start[0] == values.first and values.start[-1] == last
    assert np.all((values.sieve >> 32) <= values.columns)
    couple = np.repeat(np.arange(len(values.start) - 1), np.diff(values.start))
    key = couple
    if len(values.key):
        at = np.flatnonzero(values.key >= 0)
        key = np.empty(len(values.start) - 1, np.int64)
        key[values.place[at]] = values.key[at]
        key = key[couple]
    plain = (checks.slot[values.first : last] & COMPLEX) == 0
    one, two = (checks.start[values.first + 1 : last + 1][plain] - back for back in (2, 1))
    assert np.all(checks.low[one] == checks.high[one]) and np.all(checks.low[two] == checks.high[two])
    first, second = checks.dim[one], checks.dim[two]
    turned = first > second
    first, second = np.where(turned, second, first), np.where(turned, first, second)
    low = np.where(turned, checks.low[two], checks.low[one]).astype(np.int64)
    high = np.where(turned, checks.low[one], checks.low[two])
    owner = np.searchsorted(values.base, key[plain], "right") - 1
    assert np.array_equal(values.other[owner], second)
    assert np.all((values.begin[first] <= owner) & (owner < values.begin[first + 1]))
    assert np.array_equal(key[plain], values.base[owner] + (low >> 1) * values.stride[owner] + (high >> 1))


def arrays_of(value: Any) -> list[Any]:
    """All arrays of a segment, in order."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, Segment):
        parts: Any = (value.key, value.cuts, value.cut_start, value.arrays, value.bits, value.every)
        return arrays_of(parts)
    if isinstance(value, tuple):
        return [array for part in value for array in arrays_of(part)]
    return []
