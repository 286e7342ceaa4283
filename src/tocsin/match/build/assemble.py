"""Putting a segment together: conjunctions in order of their paths, and lists, tables and bits over them.

`placing.py` has chosen a path for each conjunction. Path and place on it make a key; sorting the keys, each
with the number of its conjunction behind it, gives the order of all.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.assemble import (
    find_several,
    gather_tests,
    lay_out,
    list_keys,
    list_table,
    path_keys,
)
from tocsin.match._kernels.bits import EXACT, LOOSE, UNSURE
from tocsin.match._kernels.build import MISSING, MOST, fill_bloom, fill_hash, fill_rest
from tocsin.match._kernels.pair_filter import WORDS, fill_partners
from tocsin.match._kernels.value_pairs import fill_sieve, to_columns
from tocsin.match._kernels.verify import SEVERAL
from tocsin.match.build.value_pairs import Couples, no_couples
from tocsin.match.segments.immutable import Arrays, Bits, Checks, Lists, Pairs, Segment, Values
from tocsin.model.columns import Index, Mask, distinct, sliced
from tocsin.predicate.conjunctions import Conjunctions
from tocsin.predicate.flat import NEGATED, OR_NEXT

__all__ = ["MOST_BOUNDS", "Frame", "Placed", "Spread", "alone", "assemble", "in_halves", "several_of", "tops"]

LOW = -(2**31) + 1  # an open low end
PARALLEL = 1 << 16  # conjunctions, or dimensions, that are worth a second thread
PARTNERS = 8  # pairs per dimension that a word of bits tells apart
MOST_WORDS = 64  # of the partners of a dimension
DIRECT = 8  # keys of two values per conjunction, at most, that are places in an array
MOST_BOUNDS = 1 << 12  # of all dimensions in the table of bits: 64 bytes each


class Placed(NamedTuple):
    """Where each conjunction is to hang."""

    way: NDArray[np.uint8]  # 0 list, 1 pair, 2 bits, 3 always, 4 values
    access: NDArray[np.int32]
    first: NDArray[np.int32]  # and second: the tests of two rare dimensions
    second: NDArray[np.int32]
    third: NDArray[np.int32]  # and fourth: those of two values
    fourth: NDArray[np.int32]
    couple: NDArray[np.int32]  # of their dimensions
    cost: NDArray[np.float32]


class Frame(NamedTuple):
    """What a segment is before its conjunctions are put in order: dimensions, cuts, texts."""

    key: Index
    cuts: Index
    cut_start: Index
    portion: Conjunctions
    patterns: tuple[tuple[str, str], ...]

    def segment(self, **parts: Any) -> Segment:
        p = self.portion
        return Segment(self.key, self.cuts, self.cut_start, p.texts, p.backwards, self.patterns, **parts)


Spread = Callable[[int, Callable[[int, int], Any]], list[Any]]
"""How to do `run(from, to)` over 0..count: by one thread or several."""


def alone(count: int, run: Callable[[int, int], Any]) -> list[Any]:
    """By this thread alone: others have work to do."""
    return [run(0, count)]


def in_halves(count: int, run: Callable[[int, int], Any]) -> list[Any]:
    """By two threads, if it is long: compiled code needs no interpreter."""
    if count < PARALLEL:
        return [run(0, count)]
    middle = count // 2
    with ThreadPoolExecutor(1) as other:
        second = other.submit(run, middle, count)
        return [run(0, middle), second.result()]


def assemble(
    frame: Frame,
    tests: Any,
    placed: Placed,
    couples: Couples,
    kept: Mask,
    every: NDArray[np.int32],
    spread: Spread,
) -> Segment:
    """The segment of the kept conjunctions; `every` are slots that match whatever comes."""
    several, slot = several_of(frame.portion.slot), frame.portion.slot
    n, width = len(slot), len(frame.key)
    path, key, mixed = np.empty(n, np.uint8), np.empty(n, np.int64), np.empty(n, np.bool_)
    spread(
        n,
        lambda i, j: path_keys(
            tests, placed[:7], couples[2:4], several, frame.cut_start, i, j, (path, key, mixed)
        ),
    )
    begin, order, sorted_key = _ordered(path, key, kept)
    total = int(np.diff(tests[0])[kept].sum()) if not kept.all() else len(tests[1])
    tag, new_start = np.empty(len(order), np.uint32), np.empty(len(order) + 1, np.int64)
    shared = int(begin[6]), int(begin[7])
    odd = mixed if mixed.any() else mixed[:0]
    lay_out(order, tests[0], slot, odd, several if several.any() else several[:0], shared, (tag, new_start))
    dim, low, high = (np.empty(total, np.int32) for _ in range(3))
    flags = np.empty(total if len(odd) else 0, np.uint8)
    out = dim, low, high, flags
    on_list, cut_count = int(begin[4]), np.diff(frame.cut_start)
    hung = placed.way, placed.access, placed.third, placed.fourth
    spread(
        len(order),
        lambda i, j: gather_tests(order, i, j, tests, odd, hung, on_list, cut_count, new_start, out),
    )
    checks = Checks(tag, new_start, dim, low, high, flags)

    def lists(first: int) -> Lists:
        two = order[begin[first + 1] : begin[first + 2]]  # those with two ends: the test that each hangs on
        at = new_start[begin[first + 1] + 1 : begin[first + 2] + 1] - 1
        plain = new_start[begin[first + 1] : begin[first + 2]] + placed.access[two]
        at = np.where(mixed[two], plain, at)
        own = checks.dim[at], checks.low[at], checks.high[at]
        return _listed(sorted_key[begin[first] : begin[first + 1]], int(begin[first]), *own, frame.cut_start)

    arrays = Arrays(
        checks,
        lists(0),
        lists(2),
        _shared(checks, placed.access[order[shared[0] : shared[1]]], *shared, frame.cut_start),
        _pairs(sorted_key, int(begin[4]), int(begin[5]), width, spread),
        _values(sorted_key[begin[8] :], couples, checks, int(begin[8]), width, spread),
        np.array([begin[7], begin[8]], np.int64),
        width,
    )
    bits = _bits(checks, int(begin[5]), int(begin[6]), width)
    cost = np.where(kept, placed.cost, 0) if len(order) < n else placed.cost
    by_path = np.bincount(path, cost, minlength=9)
    names = ("direct", "checked", "pairs", "bits", "shared", "always", "values")
    sums = (by_path[0] + by_path[1], by_path[2] + by_path[3], *by_path[4:])
    expected = {name: float(price) for name, price in zip(names, sums, strict=True)}
    worst = np.argsort(cost)[::-1][:10] if n < 10_000 else np.argpartition(cost, -10)[-10:]
    costly = [(int(slot[i]), float(cost[i])) for i in worst.tolist() if kept[i]]
    return frame.segment(arrays=arrays, bits=bits, every=every, expected=expected, costly=costly)


def _ordered(path: NDArray[np.uint8], key: Index, kept: Mask) -> tuple[Index, Any, Any]:
    """Where each path begins, the order of the kept conjunctions, and their keys in that order."""
    begin = np.concatenate([[0], np.cumsum(np.bincount(path[kept], minlength=9))])
    chosen = np.arange(len(path), dtype=np.int64) if kept.all() else np.flatnonzero(kept)
    number_bits = max(1, len(path).bit_length())
    key_bits = max(1, int(key.max(initial=0)).bit_length())
    if number_bits + key_bits + 4 > 63:
        order = np.lexsort((key[chosen], path[chosen]))
        return begin, chosen[order].astype(np.int32), key[chosen][order]
    packed = path[chosen].astype(np.int64) << key_bits
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
) -> Lists:
    """Lists over entries with sorted keys, from `base` on, and after them those with two ends."""
    nothing = np.empty(0, np.int32)
    if not len(key) and not len(dim):
        return Lists(np.empty((0, 3), np.int32), np.empty((0, 4), np.int32), 0, *[nothing] * 4)
    at, ends = list_table(key, cut_start, base)
    ranges = base + len(key) + np.searchsorted(dim, np.arange(len(cut_start)))
    ends[:, 2], ends[:, 3] = ranges[:-1], ranges[1:]
    return Lists(at, ends, base + len(key), low, high, tops(high), nothing)


def tops(high: NDArray[np.int32]) -> NDArray[np.int32]:
    """The greatest of every 32."""
    padded = np.full((len(high) + 31) // 32 * 32, MISSING, np.int32)
    padded[: len(high)] = high
    return padded.reshape(-1, 32).max(axis=1) if len(padded) else padded


def _shared(
    checks: Checks,
    access: NDArray[np.int32],
    first: int,
    last: int,
    cut_start: Index,
) -> Lists:
    """An entry for every test of the clause that each of conjunctions first..last-1 hangs on."""
    if first == last:
        none = np.empty(0, np.int32)
        return _listed(np.empty(0, np.int64), 0, none, none, none, cut_start)
    more = (checks.flags & OR_NEXT) != 0
    clause = np.cumsum(np.concatenate([[False], ~more[:-1]]))  # the number of each test's clause
    begin = checks.start[first:last] + access
    end = np.searchsorted(clause, clause[begin], "right")
    sizes = end - begin
    target = np.repeat(np.arange(first, last), sizes)
    _, test = sliced(begin, sizes)
    dim, low, high = checks.dim[test], checks.low[test], checks.high[test]
    kind, key = list_keys(dim, low, high, checks.flags[test], cut_start)
    order = np.lexsort((key, kind == 3))
    two = order[(kind != 3).sum() :]
    plain = key[order[: len(order) - len(two)]]
    lists = _listed(plain, 0, dim[two], low[two], high[two], cut_start)
    return lists._replace(target=target[order].astype(np.int32))


def _values(key: Index, couples: Couples, checks: Checks, first: int, width: int, spread: Spread) -> Values:
    """Conjunctions by two values, from `first` on, sorted by key.

    Where the keys are not many more than the conjunctions, each has its place; else they are hashed.
    """
    if not len(key):
        couples = no_couples(width)
    sieve = np.empty(len(key), np.int64)
    spread(len(key), lambda i, j: fill_sieve(checks, first + i, first + j, sieve[i:j]))
    dims = np.concatenate([np.flatnonzero(np.diff(couples.begin)), couples.other, sieve[sieve >= 0] >> 32])
    used = distinct(dims.astype(np.int64))
    column = np.full(width if len(used) else 0, -1, np.int32)
    column[used] = np.arange(len(used))
    to_columns(sieve, column, len(used))
    own, rest = couples[:4], (sieve, first, column, len(used))
    if couples.keys <= DIRECT * len(key) + 1024:
        counts = np.bincount(key, minlength=couples.keys)
        start = (first + np.concatenate([[0], np.cumsum(counts)])).astype(np.int32)
        none = np.empty(0, np.int64)
        return Values(*own, np.empty(0, np.uint64), none, np.empty(0, np.int32), start, *rest)
    pairs = _pairs(key, 0, len(key), 0, spread, first)
    return Values(*own, pairs.bloom, pairs.key, pairs.value, pairs.start, *rest)


def _pairs(key: Index, first: int, last: int, width: int, spread: Spread, base: int = 0) -> Pairs:
    """Of the keys first..last-1, which ascend; the first key of all has the conjunction `base`."""
    if first == last:
        bits, nothing = np.empty((0, WORDS), np.uint64), np.empty(0, np.int32)
        return Pairs(bits[:, 0].copy(), bits, np.empty(0, np.int64), nothing, nothing)
    own = key[first:last]
    fresh = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]]))
    starts = (base + first + np.concatenate([fresh, [len(own)]])).astype(np.int32)
    return _hashed(own[fresh], starts, width, spread)


def _hashed(keys: Index, starts: NDArray[np.int32], width: int, spread: Spread) -> Pairs:
    """A hash table over distinct keys; key u has the conjunctions starts[u] to starts[u + 1].

    Threads fill a part of the table each; a key that would leave its part is entered afterwards.
    """
    size = 1 << max(4, (2 * len(keys)).bit_length())
    table, value = np.full(size, -1, np.int64), np.zeros(size, np.int32)
    left = spread(size, lambda i, j: fill_hash(keys, table, value, i, j))
    rest = np.concatenate(left)
    fill_rest(keys, table, value, rest)
    words = WORDS
    while len(keys) > PARTNERS * words * width and words < MOST_WORDS:
        words *= 2
    if len(keys) <= PARTNERS * words * width and words * width <= 4 * size:
        partners = np.zeros((width, words), np.uint64)
        fill_partners(keys, width, partners)
        return Pairs(np.empty(0, np.uint64), partners, table, value, starts)
    bloom = np.zeros((1 << max(10, (12 * len(keys)).bit_length())) >> 6, np.uint64)
    spread(len(bloom), lambda i, j: fill_bloom(keys, bloom, i, j))
    return Pairs(bloom, np.zeros((0, WORDS), np.uint64), table, value, starts)


def _bits(checks: Checks, first: int, last: int, width: int) -> Bits:
    """Rows of the table of bits for conjunctions first..last-1."""
    number = np.full(width, -1, np.int32)
    nothing = np.empty(0, np.int32)
    if first == last:
        zero = np.zeros(1, np.int32)
        return Bits(number, nothing, zero, zero, nothing, nothing, np.empty(0, np.uint8), first)
    span = slice(checks.start[first], checks.start[last])
    dim, low, high = (a[span] for a in (checks.dim, checks.low, checks.high))
    whose = np.repeat(np.arange(last - first), np.diff(checks.start[first : last + 1]))
    plain = high != MISSING
    if len(checks.flags):
        flags = checks.flags[span]
        after = np.concatenate([[False], (flags[:-1] & OR_NEXT) != 0])
        plain &= ((flags & (NEGATED | OR_NEXT)) == 0) & ~after
    sure = np.where(checks.slot[first:last] & SEVERAL, UNSURE, EXACT).astype(np.uint8)
    sure[whose[~plain]] = UNSURE
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
    padded = np.concatenate([keys, [np.iinfo(np.int64).max]])  # place -1 and the one after all are no bound
    partly_low = ~open_low & (padded[below - 1] != low_end)
    partly_high = ~open_high & (padded[upto] != high_end)
    loose = whose[partly_low | partly_high]
    sure[loose] = np.maximum(sure[loose], LOOSE)
    base = 2 * d  # a dimension has two rows more than bounds
    start = np.concatenate([[0], np.cumsum(np.bincount(whose, minlength=last - first))])
    bounds = (keys - np.repeat(np.arange(len(used)) * shift, np.diff(bound_start))).astype(np.int32)
    return Bits(
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
    """So many bounds that the table of bits fits a cache, evenly taken from each dimension.

    With fewer bounds a cell holds values inside and outside of an interval; what lies there is checked.
    """
    if len(keys) <= 2 * MOST_BOUNDS:
        return keys, bound_start
    most = max(2, MOST_BOUNDS // (len(bound_start) - 1))
    parts = []
    for d, count in enumerate(np.diff(bound_start).tolist()):
        own = keys[bound_start[d] : bound_start[d + 1]]
        parts.append(own[np.linspace(0, count - 1, most).astype(np.int64)] if count > most else own)
    return np.concatenate(parts), np.concatenate([[0], np.cumsum([len(part) for part in parts])])
