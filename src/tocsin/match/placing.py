"""Building a segment: where does each conjunction cost least?

A way to find a conjunction costs, per event, the chance that an event makes it a candidate times
the cost of a check; the bits cost a little for each test, whether it holds or not. The chances come
from a sample of recent events: how often a dimension is there, and how often its value lies in
the interval. Where the sample says little, the subscriptions themselves do: what many ask for is
taken to be frequent, and values to be spread evenly over the cuts.

Pairs and bits have a fixed cost for every event as well. They are used only if all conjunctions
together gain more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.bits import EXACT, LOOSE, UNSURE
from tocsin.match._kernels.building import (
    MISSING,
    MOST,
    bucket_ends,
    gather_tests,
    list_keys,
    list_table,
    merge_tests,
    path_keys,
    place,
    rank_ends,
    sort_small,
)
from tocsin.match._kernels.matching import COMPLEX, SEVERAL, SLOT
from tocsin.match.portion import Portion
from tocsin.match.segment import Arrays, Bits, Checks, Lists, Pairs, Segment, hashed
from tocsin.model.columns import Index, Mask, distinct, sliced
from tocsin.predicate.events import Events
from tocsin.predicate.flat import NEGATED, OR_NEXT

__all__ = ["Costs", "Sample", "build"]

LOW = -(2**31) + 1  # an open low end
PARALLEL = 1 << 14  # conjunctions, or dimensions, that are worth a second thread
FEW = 1 << 15  # conjunctions that need no large sample
SMALL = 4096  # ends of a dimension that compiled code sorts; NumPy is faster beyond
MOST_BOUNDS = 1 << 12  # of all dimensions in the table of bits: 64 bytes each


@dataclass(frozen=True)
class Costs:
    """What things cost, in nanoseconds; fitted on one machine, and only their ratios matter."""

    check: float = 5.0
    test: float = 1.0
    hit: float = 8.0  # a pair found in the hash table
    bit: float = 0.06  # a test of the bit-sliced path, per event
    probe: float = 0.9  # a pair of an event's dimensions
    spread: float = 10.0  # an event's dimension entered into the table of bits
    row: float = 0.05  # a row of the table of bits, per event
    event_size: int = 20  # how many attributes an event has, until one is seen

    def probing(self, size: float) -> float:
        """All pairs of an event of this size."""
        return self.probe * size * (size - 1) / 2


class Sample(NamedTuple):
    """Recent events, and the index's numbers of their names."""

    events: Events
    numbers: Index


class _Chances(NamedTuple):
    presence: NDArray[np.float64]  # by dimension
    ranks: NDArray[np.int32]  # sampled values, sorted
    start: Index
    size: float  # dimensions of an event


class _Placed(NamedTuple):
    way: NDArray[np.uint8]  # 0 list, 1 pair, 2 bits, 3 always
    access: NDArray[np.int32]
    first: NDArray[np.int32]
    second: NDArray[np.int32]
    cost: NDArray[np.float32]


def build(
    portion: Portion,
    patterns: tuple[tuple[str, str], ...],
    samples: list[Sample],
    costs: Costs | None = None,
) -> Segment:
    """A segment of these conjunctions."""
    costs = costs or Costs()
    start, dim, low, high, flags, possible = merge_tests(
        portion.start, portion.dim, portion.low, portion.high, portion.flags
    )
    sizes = np.diff(start)
    every = distinct(portion.slot[sizes == 0])
    kept = possible & (sizes > 0)
    if len(every):
        kept &= ~np.isin(portion.slot, every)
    order = np.argsort(portion.key, kind="stable")
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order))
    key = portion.key[order]
    dim = number[dim] if len(order) else dim
    cuts, cut_start, low32, high32 = _ranked(dim, low, high, flags, len(key))
    frame = _Frame(key, cuts, cut_start, portion, patterns)
    few = samples[-1:] if portion.size < FEW else samples  # a small segment is soon merged
    chances = _chances(frame, dim, few, costs)
    tests = (start, dim, low32, high32, flags)
    placed = _place(tests, chances, np.diff(cut_start), costs)
    segment = _assemble(frame, tests, placed, kept, every)
    if len(segment.arrays.pairs.key):
        fixed = costs.probing(chances.size)
        segment.expected["pairs"] += fixed
        return replace(segment, fixed=fixed)
    return segment


def _ranked(
    dim: NDArray[np.int32], low: Index, high: Index, flags: NDArray[np.uint8], width: int
) -> tuple[Index, Index, NDArray[np.int32], NDArray[np.int32]]:
    """The cuts of all dimensions, where each one's begin, and all intervals as ranks among them."""
    start, code, whose = bucket_ends(dim, low, high, width)
    _in_halves(width, lambda i, j: sort_small(start[i : j + 1], code, whose, SMALL))
    for d in np.flatnonzero(np.diff(start) > SMALL).tolist():
        own = slice(start[d], start[d + 1])
        order = np.argsort(code[own])
        code[own], whose[own] = code[own][order], whose[own][order]
    cuts, cut_start, low32, high32 = rank_ends(start, code, whose, low, high, flags)
    return cuts, cut_start, low32, high32


def _in_halves(count: int, run: Callable[[int, int], Any]) -> list[Any]:
    """`run(from, to)` over 0..count, by two threads if it is long: compiled code needs no interpreter."""
    if count < PARALLEL:
        return [run(0, count)]
    middle = count // 2
    with ThreadPoolExecutor(1) as other:
        second = other.submit(run, middle, count)
        return [run(0, middle), second.result()]


class _Frame(NamedTuple):
    key: Index
    cuts: Index
    cut_start: Index
    portion: Portion
    patterns: tuple[tuple[str, str], ...]

    def segment(self, **parts: Any) -> Segment:
        p = self.portion
        return Segment(self.key, self.cuts, self.cut_start, p.texts, p.backwards, self.patterns, **parts)


def _chances(frame: _Frame, dim: NDArray[np.int32], samples: list[Sample], costs: Costs) -> _Chances:
    """What the sample says of every dimension, mixed with what the subscriptions say."""
    width = len(frame.key)
    asked = np.bincount(dim, minlength=width).astype(np.float64)
    prior = np.minimum(1.0, costs.event_size * asked / max(1.0, asked.sum()))
    dims, ranks, count, size = [], [], 0, 0
    if samples:
        bare = frame.segment(arrays=None, bits=None, every=None, expected={}, costly=[])
        for sample in samples:
            batch = bare.ask(sample.events, sample.numbers, patterns=False)
            coded = bare.code(batch, 0, sample.events.count)
            dims.append(coded[1])
            ranks.append(coded[2])
            count += sample.events.count
            size += len(coded[1])
    found = np.concatenate([np.empty(0, np.int32), *dims])
    values = np.concatenate([np.empty(0, np.int32), *ranks])
    order = np.lexsort((values, found))
    start = np.searchsorted(found[order], np.arange(width + 1)).astype(np.int64)
    weight = max(4.0, 2.0 / max(prior.mean(), 1e-9)) if width else 4.0  # as if seen twice already
    presence = (np.diff(start) + weight * prior) / (count + weight)
    mean = (size + 4.0 * costs.event_size) / (count + 4.0)
    return _Chances(np.minimum(presence, 1.0), values[order], start, mean)


def _place(tests: Any, chances: _Chances, cut_count: Index, costs: Costs) -> _Placed:
    """The cheapest way for each conjunction; pairs and bits only if they pay for themselves."""
    prices = np.array([costs.check, costs.test, costs.hit, costs.bit])
    parts = _in_halves(
        len(tests[0]) - 1,
        lambda i, j: place(
            (tests[0][i : j + 1], *tests[1:]),
            chances.presence,
            chances.ranks,
            chances.start,
            cut_count,
            prices,
        ),
    )
    access, first, second, by_list, by_pair, by_bits = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    ways = np.stack([by_list, by_pair, by_bits])
    start = tests[0]
    single = (np.diff(start) == 1) & (access >= 0)
    if len(tests[4]):
        one = np.minimum(start[:-1], max(0, len(tests[4]) - 1))
        single &= tests[4][one] == 0
    ways[1:, single] = np.inf  # a list of one test needs no check at all
    for way, fixed in (
        (1, costs.probing(chances.size)),
        (2, costs.spread * chances.size + costs.row * min(int(cut_count.sum()), MOST_BOUNDS)),
    ):
        others = np.min(np.delete(ways, way, axis=0), axis=0)
        here = np.isfinite(ways[way])
        gain = np.minimum(others[here], 1e9) - ways[way][here]  # without another way it gains a lot
        if gain[gain > 0].sum() <= fixed:
            ways[way] = np.inf
    way = np.argmin(ways, axis=0).astype(np.uint8)
    cost = ways[way, np.arange(len(way))] if len(way) else np.empty(0, np.float32)
    way[np.isinf(cost)] = 3
    return _Placed(way, access, first, second, np.where(np.isinf(cost), prices[0], cost))


def _assemble(frame: _Frame, tests: Any, placed: _Placed, kept: Mask, every: NDArray[np.int32]) -> Segment:
    several = _several(frame.portion.slot)
    path, key, mixed = path_keys(tests, placed[:4], several, frame.cut_start)
    chosen = np.flatnonzero(kept)
    order = chosen[np.argsort((path[chosen] << 58) | key[chosen])]
    listed = (path == 2) | (path == 3)
    hanging, cut_count = np.where(listed, placed.access, -1), np.diff(frame.cut_start)
    new_start = np.concatenate([[0], np.cumsum(np.diff(tests[0])[order])]).astype(np.int64)
    total = int(new_start[-1])
    new_dim, new_low, new_high = (np.empty(total, np.int32) for _ in range(3))
    new_flags = np.empty(total, np.uint8)
    out = new_dim, new_low, new_high, new_flags
    _in_halves(
        len(order),
        lambda i, j: gather_tests(order[i:j], tests, mixed, hanging, cut_count, new_start[i : j + 1], out),
    )
    tag = frame.portion.slot.astype(np.uint32)[order]
    path, key, mixed = path[order], key[order], mixed[order]
    tag[mixed] |= COMPLEX
    tag[several[order] | (path == 6)] |= SEVERAL
    checks = Checks(tag, new_start, new_dim, new_low, new_high, new_flags if mixed.any() else new_flags[:0])
    begin = np.concatenate([[0], np.cumsum(np.bincount(path, minlength=8))])
    hung = np.where(mixed, new_start[:-1] + placed.access[order], new_start[1:] - 1)  # the test it hangs on
    arrays = Arrays(
        checks,
        _lists(begin[0:3], key, checks, hung, frame.cut_start),
        _lists(begin[2:5], key, checks, hung, frame.cut_start),
        _shared(checks, placed.access[order], int(begin[6]), int(begin[7]), frame.cut_start),
        _pairs(key, int(begin[4]), int(begin[5])),
        np.array([begin[7], begin[8]], np.int64),
        len(frame.key),
    )
    bits = _bits(checks, int(begin[5]), int(begin[6]), len(frame.key))
    cost = placed.cost[order]
    names = ("direct", "checked", "pairs", "bits", "shared", "always")
    groups = (path < 2, (path >= 2) & (path < 4), path == 4, path == 5, path == 6, path == 7)
    expected = {name: float(cost[group].sum()) for name, group in zip(names, groups, strict=True)}
    worst = np.argsort(cost)[::-1][:10] if len(cost) < 10_000 else np.argpartition(cost, -10)[-10:]
    costly = [(int(tag[i] & SLOT), float(cost[i])) for i in worst.tolist()]
    return frame.segment(arrays=arrays, bits=bits, every=every, expected=expected, costly=costly)


def _several(slot: NDArray[np.int32]) -> Mask:
    """Conjunctions whose slot has another one."""
    if np.all(slot[1:] > slot[:-1]):
        return np.zeros(len(slot), np.bool_)
    order = np.argsort(slot, kind="stable")
    same = slot[order][1:] == slot[order][:-1]
    out = np.zeros(len(slot), np.bool_)
    out[order[1:][same]] = True
    out[order[:-1][same]] = True
    return out


def _lists(begin: Index, key: Index, checks: Checks, hung: Index, cut_start: Index) -> Lists:
    """Lists over conjunctions begin[0]..begin[1], by key, and those with two ends up to begin[2]."""
    at = hung[begin[1] : begin[2]]
    own = checks.dim[at], checks.low[at], checks.high[at]
    return _listed(key[begin[0] : begin[1]], int(begin[0]), *own, cut_start)


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
    return Lists(at, ends, base + len(key), low, high, _tops(high), nothing)


def _tops(high: NDArray[np.int32]) -> NDArray[np.int32]:
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
    """An entry for every test of the access clause of conjunctions first..last-1."""
    if first == last:
        none = np.empty(0, np.int32)
        return _listed(np.empty(0, np.int64), 0, none, none, none, cut_start)
    more = (checks.flags & OR_NEXT) != 0
    clause = np.cumsum(np.concatenate([[False], ~more[:-1]]))  # the number of each test's clause
    begin = checks.start[first:last] + access[first:last]
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


def _pairs(key: Index, first: int, last: int) -> Pairs:
    if first == last:
        return Pairs(
            np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32)
        )
    own = key[first:last]
    fresh = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]]))
    starts = (first + np.concatenate([fresh, [len(own)]])).astype(np.int32)
    return hashed(own[fresh], starts)


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
