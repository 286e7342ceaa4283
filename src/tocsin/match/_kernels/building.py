"""Building a segment: cuts, places, order, hash tables."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = [
    "MISSING", "MOST", "bucket_ends", "fill_hash", "gather_tests", "hash64", "list_key", "list_keys",
    "list_table", "lower", "merge_tests", "path_keys", "place", "rank_ends", "sort_small", "upper",
]  # fmt: skip

MISSING, MOST = np.int32(-(2**31)), np.int32(2**31 - 1)
LEAST, GREATEST = np.int64(-(2**63)), np.int64(2**63 - 1)
_LOW = np.int32(-(2**31) + 1)  # below every code that is there


@njit(cache=True, nogil=True, inline="always")
def hash64(x):
    y = np.uint64(x) * np.uint64(0x9E3779B97F4A7C15)
    return y ^ (y >> np.uint64(32))


@njit(cache=True, nogil=True, inline="always")
def lower(a, low, high, x):
    """The first place in a[low:high], sorted, whose value is not below x. Without a branch to be guessed."""
    n = high - low
    while n > 1:
        half = n >> 1
        low += half * (a[low + half - 1] < x)
        n -= half
    if n == 1:
        low += a[low] < x
    return low


@njit(cache=True, nogil=True, inline="always")
def upper(a, low, high, x):
    """The first place in a[low:high], sorted, whose value is above x."""
    n = high - low
    while n > 1:
        half = n >> 1
        low += half * (a[low + half - 1] <= x)
        n -= half
    if n == 1:
        low += a[low] <= x
    return low


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
    """The ends of all intervals by dimension: where each dimension's begin, their codes, and whose they are.

    `whose` is twice the number of the test, and one more for its high end. An end that is open has no
    entry, and of two equal ends only the first has.
    """
    n = len(dim)
    start = np.zeros(width + 1, np.int64)
    for i in range(n):
        closed = low[i] != LEAST
        start[dim[i] + 1] += closed + (high[i] != GREATEST and not (closed and high[i] == low[i]))
    for d in range(width):
        start[d + 1] += start[d]
    code, whose = np.empty(start[width], np.int64), np.empty(start[width], np.int64)
    at = start[:-1].copy()
    for i in range(n):
        d = dim[i]
        closed = low[i] != LEAST
        if closed:
            code[at[d]], whose[at[d]] = low[i], 2 * i
            at[d] += 1
        if high[i] != GREATEST and not (closed and high[i] == low[i]):
            code[at[d]], whose[at[d]] = high[i], 2 * i + 1
            at[d] += 1
    return start, code, whose


@njit(cache=True, nogil=True)
def sort_small(start, code, whose, most):
    """Sorts the ends of every dimension that has at most so many."""
    for d in range(len(start) - 1):
        a, z = start[d], start[d + 1]
        if 1 < z - a <= 24:
            for i in range(a + 1, z):
                c, w, j = code[i], whose[i], i
                while j > a and code[j - 1] > c:
                    code[j], whose[j] = code[j - 1], whose[j - 1]
                    j -= 1
                code[j], whose[j] = c, w
        elif 1 < z - a <= most:
            order = np.argsort(code[a:z])
            code[a:z] = code[a:z][order]
            whose[a:z] = whose[a:z][order]


@njit(cache=True, nogil=True)
def rank_ends(start, code, whose, low, high, flags):
    """The cuts of every dimension, where they begin, and all intervals as ranks; ends come sorted."""
    width, n = len(start) - 1, len(low)
    cuts, cut_start = np.empty(len(code), np.int64), np.zeros(width + 1, np.int64)
    low32, high32 = np.full(n, _LOW, np.int32), np.full(n, MOST, np.int32)
    k = 0
    for d in range(width):
        first = k
        for t in range(start[d], start[d + 1]):
            if t == start[d] or code[t] != code[t - 1]:
                cuts[k] = code[t]
                k += 1
            rank = np.int32(2 * (k - 1 - first) + 1)
            i = whose[t] >> 1
            if whose[t] & 1:
                high32[i] = rank
            else:
                low32[i] = rank
                if high[i] == low[i]:
                    high32[i] = rank
        cut_start[d + 1] = k
    for i in range(n):
        if flags[i] & ABSENT:
            low32[i], high32[i] = MISSING, MISSING
    return cuts[:k].copy(), cut_start, low32, high32


@njit(cache=True, nogil=True)
def _share(samples, sample_start, d, low, high, cuts):
    """The share of a dimension's values in an interval: by a sample of them, else by its cuts."""
    width = 2.0 * cuts + 1.0
    bottom = max(low, 0)
    top = min(np.int64(high), np.int64(2 * cuts))
    prior = max(0.0, (top - bottom + 1.0) / width)
    if low == high:
        prior = 1.0 / (cuts + 1.0)
    begin, end = sample_start[d], sample_start[d + 1]
    if begin == end:
        return prior
    a, z = lower(samples, begin, end, low), upper(samples, begin, end, high)
    return (z - a + 4.0 * prior) / (end - begin + 4.0)


@njit(cache=True, nogil=True)
def place(tests, presence, samples, sample_start, cut_count, cost):
    """For each conjunction: the best test to hang it on, its two rarest dimensions, what each way costs.

    A way's cost is in nanoseconds per event: chance of being a candidate x cost of a check. Of a
    clause of several tests the chances add up; `access` is its first test.
    """
    start, dim, low, high, flags = tests
    n = len(start) - 1
    access, first, second = np.full(n, -1, np.int32), np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    by_list, by_pair = np.full(n, np.inf, np.float32), np.full(n, np.inf, np.float32)
    by_bits = np.full(n, np.inf, np.float32)
    for c in range(n):
        best = np.inf
        rare1, rare2 = np.inf, np.inf
        sliceable = 0
        i = start[c]
        while i < start[c + 1]:
            begin = i
            chance = 0.0
            hang = True
            while True:
                d = dim[i]
                if high[i] == MISSING:
                    hang = False
                elif flags[i] & NEGATED:
                    chance += presence[d]
                else:
                    chance += presence[d] * _share(samples, sample_start, d, low[i], high[i], cut_count[d])
                if not flags[i] & OR_NEXT:
                    break
                i += 1
            i += 1
            if not hang:
                continue
            if chance < best:
                best = chance
                access[c] = begin - start[c]
            if i - begin == 1:
                d = dim[begin]
                sliceable += 0 if flags[begin] & NEGATED else 1
                p = presence[d]
                if p < rare1:
                    if first[c] < 0 or dim[start[c] + first[c]] != d:
                        rare2, second[c] = rare1, first[c]
                    rare1, first[c] = p, begin - start[c]
                elif p < rare2 and dim[start[c] + first[c]] != d:
                    rare2, second[c] = p, begin - start[c]
        size = start[c + 1] - start[c]
        by_list[c] = best * (cost[0] + cost[1] * size)
        if second[c] >= 0:
            by_pair[c] = rare1 * rare2 * (cost[2] + cost[1] * size)
        if sliceable > 0:
            by_bits[c] = cost[3] * sliceable
    return access, first, second, by_list, by_pair, by_bits


@njit(cache=True, nogil=True)
def list_key(d, low, high, flags, cut_start):
    """The list of a test (0 equal, 1 up to, 2 from, 3 between), and a key: dimension, list and place.

    The places of a dimension are its cuts and one more, beyond them; with two ends, the low one counts.
    """
    base, last = cut_start[d] + d, cut_start[d + 1] + d
    if flags & NEGATED or (low == _LOW and high == MOST):
        kind, at = 1, last  # it is there, that is all
    elif low == _LOW:
        kind, at = 1, base + (high >> 1)
    elif high == MOST:
        kind, at = 2, base + (low >> 1)
    elif low == high:
        kind, at = 0, base + (low >> 1)
    else:
        return 3, np.int64(base + (low >> 1))
    return kind, (np.int64(d) << 34) | (np.int64(kind) << 32) | np.int64(at)


@njit(cache=True, nogil=True)
def list_keys(dim, low, high, flags, cut_start):
    """`list_key` of many tests."""
    kind, key = np.empty(len(dim), np.int64), np.empty(len(dim), np.int64)
    for i in range(len(dim)):
        kind[i], key[i] = list_key(dim[i], low[i], high[i], flags[i], cut_start)
    return kind, key


@njit(cache=True, nogil=True)
def path_keys(tests, placed, several, cut_start):
    """Of each conjunction its path, the key that orders it there, and whether it is more than intervals.

    Paths: 0, 1 direct (1: between two ends), 2, 3 checked, 4 pairs, 5 bits, 6 shared, 7 always.
    """
    start, dim, low, high, flags = tests
    way, access, first, second = placed
    n, width = len(start) - 1, np.int64(len(cut_start) - 1)
    path, key, mixed = np.empty(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
    for c in range(n):
        a, z = start[c], start[c + 1]
        for i in range(a, z):
            if flags[i] & (NEGATED | OR_NEXT):
                mixed[c] = True
                break
        if way[c] == 0:
            i = a + access[c]
            if flags[i] & OR_NEXT:
                path[c] = 6
                continue
            kind, key[c] = list_key(dim[i], low[i], high[i], flags[i], cut_start)
            plain = z - a == 1 and not mixed[c] and not several[c]
            path[c] = (0 if plain else 2) + (1 if kind == 3 else 0)
        elif way[c] == 3:
            path[c] = 7
        else:
            path[c] = 3 + way[c]
            if first[c] >= 0:
                p = np.int64(dim[a + first[c]])
                q = np.int64(dim[a + second[c]]) if second[c] >= 0 else p
                key[c] = min(p, q) * width + max(p, q)
    return path, key, mixed


@njit(cache=True, nogil=True)
def gather_tests(order, tests, mixed, access, cut_count, new_start, out):
    """The tests of conjunctions in a new order, from new_start[0] on.

    Within a conjunction of intervals alone, those that hold least often come first, and last the one that it
    hangs on, which holds if it is asked at all.
    """
    start, dim, low, high, flags = tests
    dims, lows, highs, new_flags = out
    for i in range(len(order)):
        c = order[i]
        a, z = new_start[i], new_start[i + 1]
        at = a
        for j in range(start[c], start[c + 1]):
            dims[at], lows[at], highs[at], new_flags[at] = dim[j], low[j], high[j], flags[j]
            at += 1
        if mixed[c]:
            continue
        if access[c] >= 0:
            hung = a + access[c]
            dims[hung], dims[z - 1] = dims[z - 1], dims[hung]
            lows[hung], lows[z - 1] = lows[z - 1], lows[hung]
            highs[hung], highs[z - 1] = highs[z - 1], highs[hung]
            new_flags[hung], new_flags[z - 1] = new_flags[z - 1], new_flags[hung]
            z -= 1
        for j in range(a + 1, z):
            d, x, y, f = dims[j], lows[j], highs[j], new_flags[j]
            width = _span(x, y, cut_count[d])
            k = j
            while k > a and _span(lows[k - 1], highs[k - 1], cut_count[dims[k - 1]]) > width:
                dims[k], lows[k], highs[k] = dims[k - 1], lows[k - 1], highs[k - 1]
                new_flags[k] = new_flags[k - 1]
                k -= 1
            dims[k], lows[k], highs[k], new_flags[k] = d, x, y, f


@njit(cache=True, nogil=True, inline="always")
def _span(low, high, cuts):
    """The share of a dimension's cuts that an interval covers."""
    top = min(np.int64(high), np.int64(2 * cuts))
    return (top - max(np.int64(low), np.int64(0)) + 1.0) / (2.0 * cuts + 1.0)


@njit(cache=True, nogil=True)
def fill_hash(keys, table, value, bloom):
    """Open addressing over distinct keys, and a bit per key in front of it."""
    mask, bits = np.uint64(len(table) - 1), np.uint64(64 * len(bloom) - 1)
    for i in range(len(keys)):
        h = hash64(keys[i])
        b = (h >> np.uint64(7)) & bits
        bloom[b >> np.uint64(6)] |= np.uint64(1) << (b & np.uint64(63))
        h &= mask
        while table[h] >= 0:
            h = (h + np.uint64(1)) & mask
        table[h], value[h] = keys[i], i


@njit(cache=True, nogil=True)
def list_table(key, cut_start, base):
    """The arrays `at` and `ends` of `Lists` for entries sorted by key (dimension, list, place)."""
    width = len(cut_start) - 1
    at = np.empty((cut_start[width] + width + 1, 3), np.int32)
    ends = np.empty((width, 4), np.int32)
    t = 0
    for d in range(width):
        first, last = cut_start[d] + d, cut_start[d + 1] + d
        for kind in range(3):
            begin = t
            p = first
            while t < len(key) and key[t] >> 32 == 4 * d + kind:
                place = key[t] & 0xFFFFFFFF
                while p <= place:
                    at[p, kind] = base + t
                    p += 1
                t += 1
            while p <= last:
                at[p, kind] = base + t
                p += 1
            if kind == 1:
                ends[d, 0] = base + t
            elif kind == 2:
                ends[d, 1] = base + begin
    for kind in range(3):
        at[cut_start[width] + width, kind] = base + t
    return at, ends
