"""What each way to find a conjunction would cost, and the cheapest: see `build/cost.py`."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.match._kernels.primitives import MISSING, find_key, lower, upper
from tocsin.predicate.flat import NEGATED, OR_NEXT

__all__ = [
    "EQUAL", "AccessTests", "Prices", "RankTests", "ValueChances", "Way", "WayCosts", "place",
    "place_values", "value_pair_cost", "value_tests",
]  # fmt: skip

EQUAL = 8  # values required by a conjunction that are considered


class Way(IntEnum):
    """How a conjunction is found."""

    LIST = 0
    PAIR = 1
    BITS = 2
    UNINDEXED = 3
    VALUES = 4


class RankTests(NamedTuple):
    """Tests of all conjunctions, intervals of ranks: those of conjunction c are start[c]..start[c + 1]-1."""

    start: Any
    dim: Any
    low: Any
    high: Any
    flags: Any


class ValueChances(NamedTuple):
    """How often a dimension is there, and its value in an interval, by a sample of events."""

    presence: Any  # by dimension
    ranks: Any  # sampled values, sorted
    start: Any  # by dimension: where its sampled values begin
    more: Any  # by dimension: a value that was met n times
    unit: Any  # has the share (n + more) * unit
    size: float  # dimensions of an event


class Prices(NamedTuple):
    """The part of `CostModel` that depends on the candidates of a conjunction; nanoseconds."""

    check: float
    test: float
    hit: float
    bit: float
    sieve: float
    turn: float
    look_up: float


class AccessTests(NamedTuple):
    """By conjunction, as numbers of its tests, or -1: what each way would find it by."""

    access: Any  # the best test, or the first test of the best clause
    first: Any  # and second: the tests of its two rarest dimensions
    second: Any
    third: Any  # and fourth: the two values of its best value pair
    fourth: Any
    pair: Any  # the number of that value pair


class WayCosts(NamedTuple):
    """By conjunction: nanoseconds per event by each way, infinite if it is not possible."""

    by_list: Any
    by_pair: Any
    by_value: Any
    by_bits: Any


@kernel(allocates=False)
def _share(samples, begin, end, low, high, cuts, more, unit):
    """The share of a dimension's values in an interval: by a sample of them, else by its cuts.

    A value that was met n times counts as (n + more) * unit, or more than that if n is too many for chance.
    """
    met = 0
    if begin < end:
        met = upper(samples, begin, end, high) - lower(samples, begin, end, low)
    if low == high:
        return max((met + more) * unit, (met - 2.0 * np.sqrt(met)) / max(1, end - begin))
    width = 2.0 * cuts + 1.0
    bottom = max(low, 0)
    top = min(np.int64(high), np.int64(2 * cuts))
    prior = max(0.0, (top - bottom + 1.0) / width)
    return (met + 4.0 * prior) / (end - begin + 4.0)


@kernel(allocates=False)
def value_tests(tests, chances, cut_count, c, equal, often):
    """Tests by which conjunction c requires a value, at most one per dimension, and their chances; how many.

    Of very many, the first ones are considered.
    """
    start, dim, low, high, flags = tests
    presence, samples, sample_start, more, unit, _ = chances
    n = 0
    for i in range(start[c], start[c + 1]):
        if low[i] != high[i] or low[i] == MISSING or flags[i]:
            continue
        if i > start[c] and flags[i - 1] & OR_NEXT:
            continue
        is_new = n < len(equal)
        for k in range(n):  # of very many tests, some may be of one dimension
            is_new = is_new and dim[equal[k]] != dim[i]
        if is_new:
            d = dim[i]
            equal[n] = i
            a, z = sample_start[d], sample_start[d + 1]
            share = _share(samples, a, z, low[i], high[i], cut_count[d], more[d], unit[d])
            often[n] = presence[d] * share
            n += 1
    return n


@kernel(inline=True, allocates=False)
def value_pair_cost(often, equals, x, y, prices, size):
    """The cost of a conjunction found by its values x and y; the sieve tests another value first."""
    third = 1.0
    for k in range(equals):
        if k != x and k != y:
            third = min(third, often[k])
    return often[x] * often[y] * (prices.sieve + third * (prices.hit + prices.test * size))


@kernel
def place(tests, chances, cut_count, prices, begin, end, out):
    """Fill `out`, `AccessTests` and `WayCosts`, for conjunctions begin..end-1, all but value pairs.

    A cost is in nanoseconds per event: chance of being a candidate x cost of a check. The chances of a clause
    of several tests add up.
    """
    start, dim, low, high, flags = tests
    presence, samples, sample_start, more, unit, _ = chances
    where, costs = out
    access, first, second, third, fourth, pair = where
    by_list, by_pair, by_value, by_bits = costs
    for c in range(begin, end):
        access[c], first[c], second[c], third[c], fourth[c], pair[c] = -1, -1, -1, -1, -1, -1
        by_list[c], by_pair[c], by_value[c], by_bits[c] = np.inf, np.inf, np.inf, np.inf
        best, rare1, rare2 = np.inf, np.inf, np.inf
        sliceable, i = 0, start[c]
        while i < start[c + 1]:
            clause = i
            chance = 0.0
            is_indexable = True
            while True:
                d = dim[i]
                if high[i] == MISSING:
                    is_indexable = False
                elif flags[i] & NEGATED:
                    chance += presence[d]
                else:
                    a, z = sample_start[d], sample_start[d + 1]
                    share = _share(samples, a, z, low[i], high[i], cut_count[d], more[d], unit[d])
                    chance += presence[d] * share
                if not flags[i] & OR_NEXT:
                    break
                i += 1
            i += 1
            if not is_indexable:
                continue
            if chance < best:
                best = chance
                access[c] = clause - start[c]
            if i - clause == 1:
                d = dim[clause]
                sliceable += 0 if flags[clause] & NEGATED else 1
                p = presence[d]
                if p < rare1:
                    if first[c] < 0 or dim[start[c] + first[c]] != d:
                        rare2, second[c] = rare1, first[c]
                    rare1, first[c] = p, clause - start[c]
                elif p < rare2 and dim[start[c] + first[c]] != d:
                    rare2, second[c] = p, clause - start[c]
        size = start[c + 1] - start[c]
        by_list[c] = best * (prices.check + prices.test * size)
        if size == 1 and access[c] >= 0 and flags[start[c]] == 0:
            continue  # on a list of one test there is nothing to verify
        if second[c] >= 0:
            by_pair[c] = rare1 * rare2 * (prices.hit + prices.test * size)
        if sliceable > 0:
            by_bits[c] = prices.bit * sliceable


@kernel
def place_values(tests, chances, cut_count, prices, pairs, begin, end, out):
    """Fill in the best value pair of each conjunction; `pairs`: a hash table of them, and their numbers."""
    start, dim = tests.start, tests.dim
    table, number = pairs
    _, _, _, third, fourth, pair = out[0]
    by_value = out[1].by_value
    width = np.int64(len(cut_count))
    equal, often = np.empty(EQUAL, np.int64), np.empty(EQUAL)
    for c in range(begin, end):
        equals = value_tests(tests, chances, cut_count, c, equal, often)
        for x in range(equals):
            for y in range(x):
                p, q = np.int64(dim[equal[x]]), np.int64(dim[equal[y]])
                key = min(p, q) * width + max(p, q)
                h = find_key(table, key)
                price = value_pair_cost(often, equals, x, y, prices, start[c + 1] - start[c])
                if table[h] == key and price < by_value[c]:
                    i, j = equal[x] - start[c], equal[y] - start[c]
                    third[c], fourth[c] = (i, j) if p < q else (j, i)
                    pair[c], by_value[c] = number[h], price
