"""Building a segment: tests merged, cuts, ranks, what each way costs, hash tables."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.intrinsics import prefetch
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = [
    "EQUAL", "MISSING", "MOST", "bucket_ends", "by_values", "choose", "count_dims", "cut_ends", "fill_bloom",
    "fill_hash", "fill_rest", "find_key", "hash64", "key_place", "look_over", "lower", "merge_tests", "place",
    "rank_ends", "sort_ends", "sum_ways", "upper", "value_tests",
]  # fmt: skip

EQUAL = 8  # values of a conjunction that are looked at
_AT_ONCE = 64  # sorted values that are compared one after the other
MISSING, MOST = np.int32(-(2**31)), np.int32(2**31 - 1)
LEAST, GREATEST = np.int64(-(2**63)), np.int64(2**63 - 1)
_LOW = np.int32(-(2**31) + 1)  # below every code that is there


@njit(cache=True, nogil=True, inline="always")
def hash64(x):
    y = np.uint64(x) * np.uint64(0x9E3779B97F4A7C15)
    return y ^ (y >> np.uint64(32))


@njit(cache=True, nogil=True, inline="always")
def key_place(keys, key):
    """Where a key is in a hash table, unless others are there."""
    return hash64(key) & np.uint64(len(keys) - 1)


@njit(cache=True, nogil=True, inline="always")
def find_key(keys, key):
    """Where a key is in a hash table, or where it would be."""
    mask = np.uint64(len(keys) - 1)
    h = key_place(keys, key)
    while keys[h] >= 0 and keys[h] != key:
        h = (h + np.uint64(1)) & mask
    return h


@njit(cache=True, nogil=True, inline="always")
def lower(a, low, high, x):
    """The first place in a[low:high], sorted, whose value is not below x.

    Halving is guessed wrong half the time; the last ones are compared all, several at once.
    """
    at, n, one = np.uint64(low), np.uint64(high - low), np.uint64(1)
    while n > np.uint64(_AT_ONCE):
        half = (n + one) >> one
        at = at + half if a[at + half - one] < x else at
        n -= half
    below = np.int64(0)
    for i in range(at, at + n):  # without a sign, places need not be looked at for one
        below += np.int64(a[i] < x)
    return np.int64(at) + below


@njit(cache=True, nogil=True, inline="always")
def upper(a, low, high, x):
    """The first place in a[low:high], sorted, whose value is above x."""
    at, n, one = np.uint64(low), np.uint64(high - low), np.uint64(1)
    while n > np.uint64(_AT_ONCE):
        half = (n + one) >> one
        at = at + half if a[at + half - one] <= x else at
        n -= half
    below = np.int64(0)
    for i in range(at, at + n):
        below += np.int64(a[i] <= x)
    return np.int64(at) + below


@njit(cache=True, nogil=True)
def look_over(start, dim, low, high, flags, begin, end, possible):
    """Whether any of conjunctions begin..end-1 has two tests of one dimension; `possible`: which can hold."""
    twice = False
    for c in range(begin, end):
        possible[c] = True
        for i in range(start[c], start[c + 1]):
            if flags[i] == 0 and low[i] > high[i] and (i == start[c] or not flags[i - 1] & OR_NEXT):
                possible[c] = False
            for j in range(start[c], i):
                twice |= dim[j] == dim[i]
    return twice


@njit(cache=True, nogil=True)
def merge_tests(start, dim, low, high, flags):
    """Intervals of one dimension in a conjunction become one. Returns the arrays, and whether any can hold.

    Only plain tests are merged: those without a flag that do not end a clause of several.
    """
    n = len(start) - 1
    new_start = np.zeros(n + 1, np.int64)
    possible = np.ones(n, np.bool_)
    at = 0
    dim, low, high, flags = dim.copy(), low.copy(), high.copy(), flags.copy()
    for c in range(n):
        begin = at
        for i in range(start[c], start[c + 1]):
            plain = flags[i] == 0 and (i == start[c] or not flags[i - 1] & OR_NEXT)
            if plain and low[i] > high[i]:
                possible[c] = False
            same = -1
            if plain and at - begin < 64:
                for j in range(begin, at):
                    if dim[j] == dim[i] and flags[j] == 0 and (j == begin or not flags[j - 1] & OR_NEXT):
                        same = j
                        break
            if same >= 0:
                low[same], high[same] = max(low[same], low[i]), min(high[same], high[i])
                if low[same] > high[same]:
                    possible[c] = False
            else:
                dim[at], low[at], high[at], flags[at] = dim[i], low[i], high[i], flags[i]
                at += 1
        new_start[c + 1] = at
    return new_start, dim[:at].copy(), low[:at].copy(), high[:at].copy(), flags[:at].copy(), possible


@njit(cache=True, nogil=True)
def bucket_ends(dim, low, high, width):
    """The ends of all intervals by dimension: where each dimension's begin, and their codes.

    An end that is open has no entry, and of two equal ends only the first has.
    """
    n = len(dim)
    start = np.zeros(width + 2, np.int64)
    for i in range(n):
        closed = low[i] != LEAST
        start[dim[i] + 2] += 1 if closed else 0
        start[dim[i] + 2] += 1 if high[i] != GREATEST and not (closed and high[i] == low[i]) else 0
    for d in range(width):
        start[d + 2] += start[d + 1]
    code = np.empty(start[width + 1], np.int64)
    for i in range(n):
        at = start[dim[i] + 1]
        closed = low[i] != LEAST
        if closed:
            code[at] = low[i]
            at += 1
        if high[i] != GREATEST and not (closed and high[i] == low[i]):
            code[at] = high[i]
            at += 1
        start[dim[i] + 1] = at
    return start[: width + 1], code


@njit(cache=True, nogil=True)
def count_dims(dim, width):
    """How many tests each dimension has."""
    out = np.zeros(width, np.float64)
    for d in dim:
        out[d] += 1.0
    return out


@njit(cache=True, nogil=True)
def sort_ends(start, code, first, last, most):
    """Sorts the ends of each of the dimensions first..last-1 that has at most so many."""
    for d in range(first, last):
        a, z = start[d], start[d + 1]
        if 1 < z - a <= 24:
            for i in range(a + 1, z):
                c, j = code[i], i
                while j > a and code[j - 1] > c:
                    code[j] = code[j - 1]
                    j -= 1
                code[j] = c
        elif 1 < z - a <= most:
            code[a:z].sort()


@njit(cache=True, nogil=True)
def cut_ends(start, code):
    """The distinct ends of every dimension, moved to the front of `code`; where each dimension's begin."""
    width = len(start) - 1
    cut_start = np.zeros(width + 1, np.int64)
    k = 0
    for d in range(width):
        for t in range(start[d], start[d + 1]):
            if t == start[d] or code[t] != code[k - 1]:
                code[k] = code[t]
                k += 1
        cut_start[d + 1] = k
    return cut_start


@njit(cache=True, nogil=True)
def rank_ends(tests, cuts, cut_start, first, last, out):
    """The intervals first..last-1 as ranks among the cuts of their dimensions: 2 i + 1 is cut i."""
    dim, low, high, flags = tests
    low32, high32 = out
    end = len(dim) - 1
    for i in range(first, last):
        far, near = dim[min(i + 24, end)], dim[min(i + 12, end)]
        prefetch(cut_start, np.int64(far))
        a, z = cut_start[near], cut_start[near + 1]
        prefetch(cuts, (a + z) >> 1)
        prefetch(cuts, (3 * a + z) >> 2)
        prefetch(cuts, (a + 3 * z) >> 2)
        if flags[i] & ABSENT:
            low32[i], high32[i] = MISSING, MISSING
            continue
        a, z = cut_start[dim[i]], cut_start[dim[i] + 1]
        low32[i], high32[i] = _LOW, MOST
        if low[i] != LEAST:
            low32[i] = 2 * (lower(cuts, a, z, low[i]) - a) + 1
        if high[i] == low[i] != LEAST:
            high32[i] = low32[i]
        elif high[i] != GREATEST:
            high32[i] = 2 * (lower(cuts, a, z, high[i]) - a) + 1


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def value_tests(tests, chances, cut_count, c, equal, often):
    """Tests by which conjunction c asks for a value, of a dimension each, and their chances; how many.

    Of very many values, the first ones are looked at.
    """
    start, dim, low, high, flags = tests
    presence, samples, sample_start, more, unit = chances
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


@njit(cache=True, nogil=True, inline="always")
def by_values(often, equals, x, y, cost, size):
    """What a conjunction costs that is found by its values x and y: another value is asked for first."""
    third = 1.0
    for k in range(equals):
        if k != x and k != y:
            third = min(third, often[k])
    return often[x] * often[y] * (cost[4] + third * (cost[2] + cost[1] * size))


@njit(cache=True, nogil=True)
def place(tests, chances, cut_count, cost, couples, begin, end, out):
    """For conjunctions begin..end-1: the best test to hang on, two rarest dimensions, the best two values it
    asks for (each as the place of a test) and their couple, and what each way costs.

    A way's cost is in nanoseconds per event: chance of being a candidate x cost of a check. Of a
    clause of several tests the chances add up; `access` is its first test.
    """
    start, dim, low, high, flags = tests
    presence, samples, sample_start, more, unit = chances
    access, first, second, third, fourth, couple, by_list, by_pair, by_value, by_bits = out
    for c in range(begin, end):
        access[c], first[c], second[c], third[c], fourth[c], couple[c] = -1, -1, -1, -1, -1, -1
        by_list[c], by_pair[c], by_value[c], by_bits[c] = np.inf, np.inf, np.inf, np.inf
        best = np.inf
        rare1, rare2 = np.inf, np.inf
        sliceable = 0
        i = start[c]
        while i < start[c + 1]:
            clause = i
            chance = 0.0
            hang = True
            while True:
                d = dim[i]
                if high[i] == MISSING:
                    hang = False
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
            if not hang:
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
        by_list[c] = best * (cost[0] + cost[1] * size)
        if size == 1 and access[c] >= 0 and flags[start[c]] == 0:
            continue  # a list of one test needs no check at all
        if second[c] >= 0:
            by_pair[c] = rare1 * rare2 * (cost[2] + cost[1] * size)
        if sliceable > 0:
            by_bits[c] = cost[3] * sliceable
    if len(couples[0]) > 1:
        _place_values(tests, chances, cut_count, cost, couples, begin, end, (third, fourth, couple, by_value))


@njit(cache=True, nogil=True)
def _place_values(tests, chances, cut_count, cost, couples, begin, end, out):
    """The best couple of each conjunction: a hash table of them, and the number of each."""
    start, dim, table, number = tests[0], tests[1], couples[0], couples[1]
    third, fourth, couple, by_value = out
    width = np.int64(len(cut_count))
    equal, often = np.empty(EQUAL, np.int64), np.empty(EQUAL)
    for c in range(begin, end):
        equals = value_tests(tests, chances, cut_count, c, equal, often)
        for x in range(equals):
            for y in range(x):
                p, q = np.int64(dim[equal[x]]), np.int64(dim[equal[y]])
                key = min(p, q) * width + max(p, q)
                h = find_key(table, key)
                price = by_values(often, equals, x, y, cost, start[c + 1] - start[c])
                if table[h] == key and price < by_value[c]:
                    i, j = equal[x] - start[c], equal[y] - start[c]
                    third[c], fourth[c] = (i, j) if p < q else (j, i)
                    couple[c], by_value[c] = number[h], price


@njit(cache=True, nogil=True)
def sum_ways(costs, dear, begin, end):
    """What conjunctions begin..end-1 cost by lists and some of the other ways: bit 0 of the place in the
    answer says that there are pairs, bit 1 values, bit 2 bits; `dear` is what costs most.
    """
    by_list, by_pair, by_value, by_bits = costs
    out = np.zeros(8)
    for c in range(begin, end):
        least = min(by_list[c], dear)
        for ways in range(8):
            cost = least
            if ways & 1:
                cost = min(cost, by_pair[c])
            if ways & 2:
                cost = min(cost, by_value[c])
            if ways & 4:
                cost = min(cost, by_bits[c])
            out[ways] += cost
    return out


@njit(cache=True, nogil=True)
def choose(costs, ways, dear, begin, end, out):
    """The cheapest way of conjunctions begin..end-1, and its cost, among the `ways` of `sum_ways`.

    Written as 0 list, 1 pair, 2 bits, 3 always, 4 values.
    """
    by_list, by_pair, by_value, by_bits = costs
    way, cost = out
    for c in range(begin, end):
        way[c], cost[c] = 0, by_list[c]
        if ways & 1 and by_pair[c] < cost[c]:
            way[c], cost[c] = 1, by_pair[c]
        if ways & 2 and by_value[c] < cost[c]:
            way[c], cost[c] = 4, by_value[c]
        if ways & 4 and by_bits[c] < cost[c]:
            way[c], cost[c] = 2, by_bits[c]
        if cost[c] == np.inf:
            way[c], cost[c] = 3, dear


@njit(cache=True, nogil=True)
def fill_hash(keys, table, value, first, last):
    """Open addressing over distinct keys that belong to places first..last-1; returns those without room."""
    mask = np.uint64(len(table) - 1)
    left, count = np.empty(16, np.int64), 0
    for i in range(len(keys)):
        ahead = np.int64(hash64(keys[min(i + 16, len(keys) - 1)]) & mask)
        if first <= ahead < last:
            prefetch(table, ahead)
            prefetch(value, ahead)
        h = np.int64(hash64(keys[i]) & mask)
        if not first <= h < last:
            continue
        while h < last and table[h] >= 0:
            h += 1
        if h < last:
            table[h], value[h] = keys[i], i
            continue
        if count == len(left):
            wider = np.empty(2 * count, np.int64)
            wider[:count] = left
            left = wider
        left[count] = i
        count += 1
    return left[:count]


@njit(cache=True, nogil=True)
def fill_rest(keys, table, value, chosen):
    """Enters some keys wherever there is room from their places on."""
    mask = np.uint64(len(table) - 1)
    for i in chosen:
        h = hash64(keys[i]) & mask
        while table[h] >= 0:
            h = (h + np.uint64(1)) & mask
        table[h], value[h] = keys[i], i


@njit(cache=True, nogil=True)
def fill_bloom(keys, bloom, first, last):
    """A bit per key, in words first..last-1."""
    bits = np.uint64(64 * len(bloom) - 1)
    for i in range(len(keys)):
        ahead = np.int64(((hash64(keys[min(i + 16, len(keys) - 1)]) >> np.uint64(7)) & bits) >> np.uint64(6))
        if first <= ahead < last:
            prefetch(bloom, ahead)
        b = (hash64(keys[i]) >> np.uint64(7)) & bits
        word = np.int64(b >> np.uint64(6))
        if first <= word < last:
            bloom[word] |= np.uint64(1) << (b & np.uint64(63))
