"""Putting a segment together: conjunctions in order of their paths, and lists, tables and bits over them.

`cost.py` has chosen a path for each conjunction. Section and place in it make a key; sorting the keys, each
with the number of its conjunction behind it, gives the order of all.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.assemble import (
    LIST_BETWEEN,
    LOW,
    NewOrder,
    Section,
    fill_bloom,
    fill_hash,
    fill_rest,
    find_several,
    gather_tests,
    lay_out,
    list_keys,
    list_table,
    path_keys,
)
from tocsin.match._kernels.bits import BitAnswer
from tocsin.match._kernels.cost import RankTests
from tocsin.match._kernels.dimension_pairs import WORDS, fill_partners
from tocsin.match._kernels.primitives import MISSING, MOST
from tocsin.match._kernels.value_pairs import fill_sieve, to_columns
from tocsin.match._kernels.verify import COMPLEX, MAY_REPEAT
from tocsin.match.segments.immutable import (
    PATHS,
    AccessLists,
    BitTable,
    ConjunctionTests,
    DimensionPairs,
    ImmutableSegment,
    SegmentArrays,
    ValuePairs,
    block_maxima,
)
from tocsin.model.columns import Index, Mask, distinct, sliced
from tocsin.predicate.conjunctions import Conjunctions
from tocsin.predicate.flat import NEGATED, OR_NEXT

__all__ = [
    "MOST_BOUNDS", "AccessChoice", "ByRanges", "SegmentFrame", "ValuePairChoice", "assemble",
    "in_two_threads", "no_value_pairs", "several_of", "single_threaded",
]  # fmt: skip

PARALLEL = 1 << 16  # conjunctions, or dimensions, that are worth a second thread
PARTNERS = 8  # pairs per dimension that a word of bits tells apart
MOST_WORDS = 64  # of the partners of a dimension
DIRECT = 8  # keys of two values per conjunction, at most, that are places in an array
MOST_BOUNDS = 1 << 12  # of all dimensions in the table of bits: 64 bytes each


_NO_SIEVE = np.empty((0, 3), np.int32)


class AccessChoice(NamedTuple):
    """How each conjunction is found; the tests are `AccessTests` of `_kernels/cost.py`."""

    way: NDArray[np.uint8]  # `Way`
    access: NDArray[np.int32]
    first: NDArray[np.int32]
    second: NDArray[np.int32]
    third: NDArray[np.int32]
    fourth: NDArray[np.int32]
    pair: NDArray[np.int32]
    cost: NDArray[np.float32]


class ValuePairChoice(NamedTuple):
    """Pairs of dimensions whose values conjunctions are found by; by their first dimension."""

    begin: NDArray[np.int32]  # by dimension: its pairs with later ones
    other: NDArray[np.int32]  # by pair: the other dimension
    base: Index  # the key of its first two values
    stride: Index  # of the first dimension's values
    keys: int  # of all of them
    table: Index  # a hash table: lesser dimension * width + other, and
    place: NDArray[np.int32]  # the pair
    cost: float  # nanoseconds per event that looking up all of them takes


def no_value_pairs(width: int) -> ValuePairChoice:
    """None at all."""
    none, nothing = np.empty(0, np.int64), np.empty(0, np.int32)
    table, place = np.full(1, -1, np.int64), np.zeros(1, np.int32)
    return ValuePairChoice(np.zeros(width + 1, np.int32), nothing, none, none, 0, table, place, 0.0)


class SegmentFrame(NamedTuple):
    """A segment before its conjunctions are put in order: dimensions, cuts, texts."""

    key: Index
    cuts: Index
    cut_start: Index
    conjunctions: Conjunctions
    patterns: tuple[tuple[str, str], ...]

    def segment(self, **fields: Any) -> ImmutableSegment:
        p = self.conjunctions
        frame = self.key, self.cuts, self.cut_start, p.texts, p.backwards, self.patterns
        return ImmutableSegment(*frame, **fields)


ByRanges = Callable[[int, Callable[[int, int], Any]], list[Any]]
"""Runs `run(from, to)` over ranges of 0..count: in one thread or several."""


def single_threaded(count: int, run: Callable[[int, int], Any]) -> list[Any]:
    """In this thread alone: a build in the background leaves the other cores to matching."""
    return [run(0, count)]


def in_two_threads(count: int, run: Callable[[int, int], Any]) -> list[Any]:
    """In two threads, if it is long: compiled code releases the interpreter's lock."""
    if count < PARALLEL:
        return [run(0, count)]
    middle = count // 2
    with ThreadPoolExecutor(1) as other:
        second = other.submit(run, middle, count)
        return [run(0, middle), second.result()]


def assemble(
    frame: SegmentFrame,
    tests: RankTests,
    choice: AccessChoice,
    pairs: ValuePairChoice,
    kept: Mask,
    unconditional: NDArray[np.int32],
    by_ranges: ByRanges,
) -> ImmutableSegment:
    """The segment of the kept conjunctions; `unconditional` are slots that match every event."""
    several, slot = several_of(frame.conjunctions.slot), frame.conjunctions.slot
    n, width = len(slot), len(frame.key)
    section, key, mixed = np.empty(n, np.uint8), np.empty(n, np.int64), np.empty(n, np.bool_)
    keys, out = (pairs.base, pairs.stride), (section, key, mixed)
    by_ranges(n, lambda i, j: path_keys(tests, choice, keys, several, frame.cut_start, i, j, out))
    begin, order, sorted_key = _ordered(section, key, kept)
    shared = int(begin[Section.SHARED]), int(begin[Section.UNINDEXED])
    new = NewOrder(order, np.empty(len(order) + 1, np.int64), mixed if mixed.any() else mixed[:0], 0)
    new = new._replace(listed=int(begin[Section.PAIRS]))
    tag = np.empty(len(order), np.uint32)
    some = several if several.any() else several[:0]
    lay_out(order, tests.start, slot, new.mixed, some, shared, (tag, new.start))
    laid = ConjunctionTests(tag, new.start, *_gathered(frame, tests, choice, kept, new, by_ranges))

    def lists(section: Section) -> AccessLists:
        """Conjunctions of a section of lists, and of the next one, those with two ends."""
        first, last = begin[section + 1], begin[section + 2]
        two = order[first:last]
        at = np.where(
            mixed[two], laid.start[first:last] + choice.access[two], laid.start[first + 1 : last + 1] - 1
        )
        own = laid.dim[at], laid.low[at], laid.high[at]
        return _listed(sorted_key[begin[section] : first], int(begin[section]), *own, frame.cut_start)

    checked = lists(Section.CHECKED)._replace(
        sieve=_list_sieve(laid, int(begin[Section.CHECKED]), int(begin[Section.PAIRS])),
        first=int(begin[Section.CHECKED]),
    )
    arrays = SegmentArrays(
        laid,
        lists(Section.DIRECT),
        checked,
        _shared(laid, choice.access[order[shared[0] : shared[1]]], *shared, frame.cut_start),
        _pairs(sorted_key, int(begin[Section.PAIRS]), int(begin[Section.BITS]), width, by_ranges),
        _values(
            sorted_key[begin[Section.VALUES] :], pairs, laid, int(begin[Section.VALUES]), width, by_ranges
        ),
        np.array([begin[Section.UNINDEXED], begin[Section.VALUES]], np.int64),
        width,
    )
    bits = _bits(laid, int(begin[Section.BITS]), int(begin[Section.SHARED]), width)
    expected, costly = _expected(slot, section, choice.cost, kept)
    rest = {"unconditional": unconditional, "expected": expected, "costly": costly}
    return frame.segment(arrays=arrays, bits=bits, **rest)


def _gathered(
    frame: SegmentFrame,
    tests: RankTests,
    choice: AccessChoice,
    kept: Mask,
    new: NewOrder,
    by_ranges: ByRanges,
) -> tuple[NDArray[Any], ...]:
    """Dimensions, ends and flags of all tests in a new order of conjunctions."""
    total = int(np.diff(tests.start)[kept].sum()) if not kept.all() else len(tests.dim)
    dim, low, high = (np.empty(total, np.int32) for _ in range(3))
    out = dim, low, high, np.empty(total if len(new.mixed) else 0, np.uint8)
    cut_count = np.diff(frame.cut_start)
    by_ranges(len(new.order), lambda i, j: gather_tests(new, tests, choice, cut_count, i, j, out))
    return out


def _expected(
    slot: NDArray[np.int32], section: NDArray[np.uint8], cost: NDArray[np.float32], kept: Mask
) -> tuple[dict[str, float], list[tuple[int, float]]]:
    """The expected cost per event by path, and the slots that cost most."""
    cost = np.where(kept, cost, 0) if not kept.all() else cost
    sums = np.bincount(section, cost, minlength=len(Section))
    by_path = (sums[0] + sums[1], sums[2] + sums[3], *sums[4:])  # with two ends or not
    expected = {name: float(price) for name, price in zip(PATHS, by_path, strict=True)}
    worst = np.argsort(cost)[::-1][:10] if len(slot) < 10_000 else np.argpartition(cost, -10)[-10:]
    return expected, [(int(slot[i]), float(cost[i])) for i in worst.tolist() if kept[i]]


def _ordered(section: NDArray[np.uint8], key: Index, kept: Mask) -> tuple[Index, Any, Any]:
    """Where each section begins, the order of the kept conjunctions, and their keys in that order."""
    begin = np.concatenate([[0], np.cumsum(np.bincount(section[kept], minlength=len(Section)))])
    chosen = np.arange(len(section), dtype=np.int64) if kept.all() else np.flatnonzero(kept)
    number_bits = max(1, len(section).bit_length())
    key_bits = max(1, int(key.max(initial=0)).bit_length())
    if number_bits + key_bits + 4 > 63:
        order = np.lexsort((key[chosen], section[chosen]))
        return begin, chosen[order].astype(np.int32), key[chosen][order]
    packed = section[chosen].astype(np.int64) << key_bits
    packed |= key[chosen]
    packed <<= number_bits
    packed |= chosen
    packed.sort()
    order = (packed & ((1 << number_bits) - 1)).astype(np.int32)
    packed >>= number_bits
    packed &= (1 << key_bits) - 1
    return begin, order, packed


def several_of(slot: NDArray[np.int32]) -> Mask:
    """Conjunctions whose slot has another one."""
    if np.all(slot[1:] > slot[:-1]):
        return np.zeros(len(slot), np.bool_)
    return np.asarray(find_several(slot, int(slot.max(initial=-1)) + 1))


def _listed(
    key: Index,
    base: int,
    dim: NDArray[np.int32],
    low: NDArray[np.int32],
    high: NDArray[np.int32],
    cut_start: Index,
) -> AccessLists:
    """Lists over entries with sorted keys, from `base` on, and after them those with two ends."""
    nothing = np.empty(0, np.int32)
    if not len(key) and not len(dim):
        at, ends = np.empty((0, 3), np.int32), np.empty((0, 4), np.int32)
        return AccessLists(at, ends, 0, nothing, nothing, nothing, nothing, nothing, _NO_SIEVE, 0)
    at, ends = list_table(key, cut_start, base)
    ranges = base + len(key) + np.searchsorted(dim, np.arange(len(cut_start)))
    ends[:, 2], ends[:, 3] = ranges[:-1], ranges[1:]
    since = (base + len(key) + _first_reaching(dim, low, high)).astype(np.int32)
    return AccessLists(at, ends, base + len(key), low, high, block_maxima(high), since, nothing, _NO_SIEVE, 0)


def _first_reaching(dim: NDArray[np.int32], low: NDArray[np.int32], high: NDArray[np.int32]) -> Index:
    """The first interval of the same dimension that reaches the low end of each; by dimension and low end.

    >>> _first_reaching(np.array([0, 0, 0, 1]), np.array([1, 3, 9, 5]), np.array([7, 4, 9, 9])).tolist()
    [0, 0, 2, 3]
    """
    own = dim.astype(np.int64) << 32
    farthest = np.maximum.accumulate(own + high)  # of this one and those before it; ends are not negative
    return np.searchsorted(farthest, own + low)


def _list_sieve(tests: ConjunctionTests, first: int, last: int) -> NDArray[np.int32]:
    """The first test of each plain conjunction of first..last-1; all pass what is more than intervals."""
    at = tests.start[first:last]
    sieve = np.empty((last - first, 3), np.int32)
    sieve[:, 0], sieve[:, 1], sieve[:, 2] = tests.dim[at], tests.low[at], tests.high[at]
    if len(tests.flags):
        sieve[(tests.slot[first:last] & COMPLEX) != 0] = 0, MISSING, MOST
    return sieve


def _shared(
    tests: ConjunctionTests,
    access: NDArray[np.int32],
    first: int,
    last: int,
    cut_start: Index,
) -> AccessLists:
    """An entry for every test of the access clause of each of the conjunctions first..last-1."""
    if first == last:
        none = np.empty(0, np.int32)
        return _listed(np.empty(0, np.int64), 0, none, none, none, cut_start)
    more = (tests.flags & OR_NEXT) != 0
    clause = np.cumsum(np.concatenate([[False], ~more[:-1]]))  # the number of each test's clause
    begin = tests.start[first:last] + access
    end = np.searchsorted(clause, clause[begin], "right")
    sizes = end - begin
    target = np.repeat(np.arange(first, last), sizes)
    _, test = sliced(begin, sizes)
    dim, low, high = tests.dim[test], tests.low[test], tests.high[test]
    kind, key = list_keys(dim, low, high, tests.flags[test], cut_start)
    order = np.lexsort((key, kind == LIST_BETWEEN))
    two = order[(kind != LIST_BETWEEN).sum() :]
    plain = key[order[: len(order) - len(two)]]
    lists = _listed(plain, 0, dim[two], low[two], high[two], cut_start)
    return lists._replace(target=target[order].astype(np.int32))


def _values(
    key: Index, pairs: ValuePairChoice, tests: ConjunctionTests, first: int, width: int, by_ranges: ByRanges
) -> ValuePairs:
    """Conjunctions by two values, from `first` on, sorted by key.

    Where the keys are not many more than the conjunctions, each has its place; else they are hashed.
    """
    if not len(key):
        pairs = no_value_pairs(width)
    sieve = np.empty(len(key), np.int64)
    if len(key):
        by_ranges(len(key), lambda i, j: fill_sieve(tests, first + i, first + j, sieve[i:j]))
    dims = np.concatenate([np.flatnonzero(np.diff(pairs.begin)), pairs.other, sieve[sieve >= 0] >> 32])
    used = distinct(dims.astype(np.int64))
    column = np.full(width if len(used) else 0, -1, np.int32)
    column[used] = np.arange(len(used))
    to_columns(sieve, column, len(used))
    own, rest = pairs[:4], (sieve, first, column, len(used))
    if pairs.keys <= DIRECT * len(key) + 1024:
        counts = np.bincount(key, minlength=pairs.keys)
        start = (first + np.concatenate([[0], np.cumsum(counts)])).astype(np.int32)
        none = np.empty(0, np.int64)
        return ValuePairs(*own, np.empty(0, np.uint64), none, np.empty(0, np.int32), start, *rest)
    hashed = _pairs(key, 0, len(key), 0, by_ranges, first)
    return ValuePairs(*own, hashed.bloom, hashed.key, hashed.value, hashed.start, *rest)


def _pairs(
    key: Index, first: int, last: int, width: int, by_ranges: ByRanges, base: int = 0
) -> DimensionPairs:
    """Of the keys first..last-1, which ascend; the first key of all has the conjunction `base`."""
    if first == last:
        bits, nothing = np.empty((0, WORDS), np.uint64), np.empty(0, np.int32)
        return DimensionPairs(bits[:, 0].copy(), bits, np.empty(0, np.int64), nothing, nothing)
    own = key[first:last]
    fresh = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]]))
    starts = (base + first + np.concatenate([fresh, [len(own)]])).astype(np.int32)
    return _hashed(own[fresh], starts, width, by_ranges)


def _hashed(keys: Index, starts: NDArray[np.int32], width: int, by_ranges: ByRanges) -> DimensionPairs:
    """A hash table over distinct keys; key u has the conjunctions starts[u] to starts[u + 1].

    Each thread fills a part of the table; a key that does not fit into its part is entered afterwards.
    """
    size = 1 << max(4, (2 * len(keys)).bit_length())
    table, value = np.full(size, -1, np.int64), np.zeros(size, np.int32)
    left = by_ranges(size, lambda i, j: fill_hash(keys, table, value, i, j))
    rest = np.concatenate(left)
    fill_rest(keys, table, value, rest)
    words = WORDS
    while len(keys) > PARTNERS * words * width and words < MOST_WORDS:
        words *= 2
    if len(keys) <= PARTNERS * words * width and words * width <= 4 * size:
        partners = np.zeros((width, words), np.uint64)
        fill_partners(keys, width, partners)
        return DimensionPairs(np.empty(0, np.uint64), partners, table, value, starts)
    bloom = np.zeros((1 << max(10, (12 * len(keys)).bit_length())) >> 6, np.uint64)
    by_ranges(len(bloom), lambda i, j: fill_bloom(keys, bloom, i, j))
    return DimensionPairs(bloom, np.zeros((0, WORDS), np.uint64), table, value, starts)


def _bits(tests: ConjunctionTests, first: int, last: int, width: int) -> BitTable:
    """Rows of the table of bits for conjunctions first..last-1."""
    number = np.full(width, -1, np.int32)
    nothing = np.empty(0, np.int32)
    if first == last:
        zero = np.zeros(1, np.int32)
        return BitTable(number, nothing, zero, zero, nothing, nothing, np.empty(0, np.uint8), first)
    span = slice(tests.start[first], tests.start[last])
    dim, low, high = (a[span] for a in (tests.dim, tests.low, tests.high))
    whose = np.repeat(np.arange(last - first), np.diff(tests.start[first : last + 1]))
    plain = high != MISSING
    if len(tests.flags):
        flags = tests.flags[span]
        after = np.concatenate([[False], (flags[:-1] & OR_NEXT) != 0])
        plain &= ((flags & (NEGATED | OR_NEXT)) == 0) & ~after
    sure = np.where(tests.slot[first:last] & MAY_REPEAT, BitAnswer.CANDIDATE, BitAnswer.EXACT).astype(
        np.uint8
    )
    sure[whose[~plain]] = BitAnswer.CANDIDATE
    dim, whose = dim[plain], whose[plain]
    low, high = low[plain].astype(np.int64), high[plain].astype(np.int64)
    used = distinct(dim)
    number[used] = np.arange(len(used))
    d = number[dim].astype(np.int64)
    shift = 1 << 33
    low_end, high_end = d * shift + low, d * shift + high + 1
    open_low, open_high = low == LOW, high == int(MOST)
    keys = distinct(np.concatenate([low_end[~open_low], high_end[~open_high]]))
    bound_start = np.searchsorted(keys, np.arange(len(used) + 1) * shift - (1 << 32))
    keys, bound_start = _thinned(keys, bound_start)
    below = np.searchsorted(keys, low_end, "right")
    upto = np.searchsorted(keys, high_end - 1, "right")
    padded = np.concatenate([keys, [np.iinfo(np.int64).max]])  # place -1 and the last one are no bound
    partly_low = ~open_low & (padded[below - 1] != low_end)
    partly_high = ~open_high & (padded[upto] != high_end)
    border = whose[partly_low | partly_high]
    sure[border] = np.maximum(sure[border], BitAnswer.BORDER)
    base = 2 * d  # a dimension has two rows more than bounds
    start = np.concatenate([[0], np.cumsum(np.bincount(whose, minlength=last - first))])
    bounds = (keys - np.repeat(np.arange(len(used)) * shift, np.diff(bound_start))).astype(np.int32)
    return BitTable(
        number,
        bounds,
        bound_start.astype(np.int32),
        start.astype(np.int32),
        (2 * (base + below) + partly_low).astype(np.int32),
        (2 * (base + upto + 1) + partly_high).astype(np.int32),
        sure,
        first,
    )


def _thinned(keys: Index, bound_start: Index) -> tuple[Index, Index]:
    """As many bounds as the table of bits may have to fit a cache, evenly taken from each dimension.

    With fewer bounds a cell holds values inside and outside of an interval; events there are verified.
    """
    if len(keys) <= 2 * MOST_BOUNDS:
        return keys, bound_start
    most = max(2, MOST_BOUNDS // (len(bound_start) - 1))
    parts = []
    for d, count in enumerate(np.diff(bound_start).tolist()):
        own = keys[bound_start[d] : bound_start[d + 1]]
        parts.append(own[np.linspace(0, count - 1, most).astype(np.int64)] if count > most else own)
    return np.concatenate(parts), np.concatenate([[0], np.cumsum([len(part) for part in parts])])
