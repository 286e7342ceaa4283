"""Building a segment: cuts, places, order, hash tables."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = [
    "MISSING", "MOST", "cut_numbers", "fill_hash", "gather_tests", "hash64", "list_table",
    "merge_tests", "place", "rank_ends",
]  # fmt: skip

MISSING, MOST = np.int32(-(2**31)), np.int32(2**31 - 1)
LEAST, GREATEST = np.int64(-(2**63)), np.int64(2**63 - 1)
_LOW = np.int32(-(2**31) + 1)  # below every code that is there


@njit(cache=True, nogil=True, inline="always")
def hash64(x):
    y = np.uint64(x) * np.uint64(0x9E3779B97F4A7C15)
    return y ^ (y >> np.uint64(32))


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
def _rehash(dims, codes, count, size):
    table = np.full(size, -1, np.int32)
    mask = np.uint64(size - 1)
    for i in range(count):
        h = hash64(codes[i] + np.int64(dims[i]) * np.int64(0x2545F4914F6CDD1D)) & mask
        while table[h] >= 0:
            h = (h + np.uint64(1)) & mask
        table[h] = i
    return table


@njit(cache=True, nogil=True)
def cut_numbers(dim, low, high):
    """Numbers every distinct (dimension, end of an interval); -1 where an end is open.

    Returns the number of each low and high end, and the dimension and code of each number.
    """
    n = len(dim)
    low_cut, high_cut = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    size = 1 << 10
    table = np.full(size, -1, np.int32)
    dims, codes = np.empty(size, np.int32), np.empty(size, np.int64)
    count = 0
    for i in range(n):
        for end in range(2):
            code = low[i] if end == 0 else high[i]
            if end == 1 and code == low[i] and low_cut[i] >= 0:
                high_cut[i] = low_cut[i]
                continue
            if code == (LEAST if end == 0 else GREATEST):
                continue
            mask = np.uint64(size - 1)
            h = hash64(code + np.int64(dim[i]) * np.int64(0x2545F4914F6CDD1D)) & mask
            while table[h] >= 0 and (codes[table[h]] != code or dims[table[h]] != dim[i]):
                h = (h + np.uint64(1)) & mask
            if table[h] < 0:
                table[h] = count
                dims[count], codes[count] = dim[i], code
                count += 1
            if end == 0:
                low_cut[i] = table[h]
            else:
                high_cut[i] = table[h]
            if 2 * count > size:
                wider_dims, wider_codes = np.empty(4 * size, np.int32), np.empty(4 * size, np.int64)
                wider_dims[:count], wider_codes[:count] = dims[:count], codes[:count]
                dims, codes, size = wider_dims, wider_codes, 4 * size
                table = _rehash(dims, codes, count, size)
    return low_cut, high_cut, dims[:count].copy(), codes[:count].copy()


@njit(cache=True, nogil=True)
def rank_ends(dim, low_cut, high_cut, flags, rank, first):
    """The ends as ranks: 2 x rank + 1 of a cut within its dimension; open ends beyond all of them."""
    n = len(dim)
    low, high = np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(n):
        if flags[i] & ABSENT:
            low[i], high[i] = MISSING, MISSING
            continue
        low[i] = _LOW if low_cut[i] < 0 else 2 * (rank[low_cut[i]] - first[dim[i]]) + 1
        high[i] = MOST if high_cut[i] < 0 else 2 * (rank[high_cut[i]] - first[dim[i]]) + 1
    return low, high


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
    a = np.searchsorted(samples[begin:end], low, "left")
    z = np.searchsorted(samples[begin:end], high, "right")
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
def gather_tests(order, start, dim, low, high, flags):
    """The tests of conjunctions in a new order."""
    n = len(order)
    new_start = np.zeros(n + 1, np.int64)
    for i in range(n):
        new_start[i + 1] = new_start[i] + start[order[i] + 1] - start[order[i]]
    total = new_start[n]
    dims, lows, highs = np.empty(total, np.int32), np.empty(total, np.int32), np.empty(total, np.int32)
    new_flags = np.empty(total, np.uint8)
    for i in range(n):
        at = new_start[i]
        for j in range(start[order[i]], start[order[i] + 1]):
            dims[at], lows[at], highs[at], new_flags[at] = dim[j], low[j], high[j], flags[j]
            at += 1
    return new_start, dims, lows, highs, new_flags


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
