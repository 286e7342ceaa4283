"""Putting a segment together: tests, cuts and ranks; conjunctions in order; lists and hash tables."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.compiled.instructions import prefetch
from tocsin.match._kernels.cost import Way
from tocsin.match._kernels.primitives import MISSING, MOST, hash64, lower
from tocsin.match._kernels.verify import COMPLEX, MAY_REPEAT
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = [
    "LIST_BETWEEN", "LOW", "NewOrder", "Section", "bucket_ends", "cut_ends", "fill_bloom",
    "fill_hash", "fill_rest", "find_several", "gather_tests", "lay_out", "list_keys", "list_table",
    "look_over", "merge_tests", "path_keys", "rank_ends", "sort_ends",
]  # fmt: skip

LOW = np.int32(-(2**31) + 1)  # an open low end: below every rank, but above MISSING
LIST_EQUAL, LIST_UP_TO, LIST_FROM, LIST_BETWEEN = range(4)  # the lists of a dimension


class Section(IntEnum):
    """Conjunctions of a segment stand in this order; those on lists by their test, with two ends apart."""

    DIRECT = 0
    DIRECT_BETWEEN = 1
    CHECKED = 2
    CHECKED_BETWEEN = 3
    PAIRS = 4
    BITS = 5
    SHARED = 6
    UNINDEXED = 7
    VALUES = 8


class NewOrder(NamedTuple):
    """Conjunctions in the order of their sections."""

    order: Any  # the old number of each
    start: Any  # where its tests begin
    mixed: Any  # by old number: it is more than intervals; empty if none is
    listed: int  # so many, the first ones, are found by their access test


# -- tests, cuts and ranks -------------------------------------------------------------------------


@kernel(allocates=False)
def look_over(start, dim, low, high, flags, begin, end, possible):
    """Whether any of conjunctions begin..end-1 has two plain tests of one dimension (`merge_tests`).

    `possible`: which of them can hold.
    """
    twice = False
    for c in range(begin, end):
        possible[c] = True
        for i in range(start[c], start[c + 1]):
            if flags[i] != 0 or (i > start[c] and flags[i - 1] & OR_NEXT):
                continue
            if low[i] > high[i]:
                possible[c] = False
            for j in range(start[c], i):
                twice |= dim[j] == dim[i] and flags[j] == 0
    return twice


@kernel
def merge_tests(start, dim, low, high, flags):
    """Intersect intervals of one dimension in a conjunction; returns the arrays, and which ones can hold.

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


@kernel
def bucket_ends(dim, low, high, width):
    """The ends of all intervals by dimension: where each dimension's begin, and their codes.

    An open end has no entry; two equal ends of an interval have one.
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


@kernel
def sort_ends(start, code, first, last, most):
    """Sort the ends of each of the dimensions first..last-1 that has at most `most`."""
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


@kernel
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


@kernel(allocates=False)
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
        low32[i], high32[i] = LOW, MOST
        if low[i] != LEAST:
            low32[i] = 2 * (lower(cuts, a, z, low[i]) - a) + 1
        if high[i] == low[i] != LEAST:
            high32[i] = low32[i]
        elif high[i] != GREATEST:
            high32[i] = 2 * (lower(cuts, a, z, high[i]) - a) + 1


# -- conjunctions in order -------------------------------------------------------------------------


@kernel(allocates=False)
def list_key(d, low, high, flags, cut_start):
    """The list of a test, and its key: by dimension, list and place.

    The places of a dimension are its cuts and one more, beyond them; a dimension has three keys for each.
    With two ends, the low one counts, and one key for each place is enough.
    """
    first, places = cut_start[d] + d, cut_start[d + 1] - cut_start[d] + 1
    if flags & NEGATED or (low == LOW and high == MOST):
        kind, at = LIST_UP_TO, places - 1  # any value will do
    elif low == LOW:
        kind, at = LIST_UP_TO, np.int64(high >> 1)
    elif high == MOST:
        kind, at = LIST_FROM, np.int64(low >> 1)
    elif low == high:
        kind, at = LIST_EQUAL, np.int64(low >> 1)
    else:
        return LIST_BETWEEN, first + np.int64(low >> 1)
    return kind, 3 * first + kind * places + at


@kernel
def list_keys(dim, low, high, flags, cut_start):
    """`list_key` of many tests."""
    kind, key = np.empty(len(dim), np.int64), np.empty(len(dim), np.int64)
    for i in range(len(dim)):
        kind[i], key[i] = list_key(dim[i], low[i], high[i], flags[i], cut_start)
    return kind, key


@kernel(allocates=False)
def path_keys(tests, choice, pairs, several, cut_start, begin, end, out):
    """Section, key within it, and whether there is more than intervals, of conjunctions begin..end-1.

    `choice` is `AccessChoice`; `pairs`: base and stride of the keys of each value pair.
    """
    start, dim, low, high, flags = tests
    way, access, first, second, third, fourth, pair, _ = choice
    base, stride = pairs
    section, key, mixed = out
    width = np.int64(len(cut_start) - 1)
    for c in range(begin, end):
        a, z = start[c], start[c + 1]
        key[c], mixed[c] = 0, False
        for i in range(a, z):
            if flags[i] & (NEGATED | OR_NEXT):
                mixed[c] = True
                break
        if way[c] == Way.LIST:
            i = a + access[c]
            if flags[i] & OR_NEXT:
                section[c] = Section.SHARED
                continue
            kind, key[c] = list_key(dim[i], low[i], high[i], flags[i], cut_start)
            plain = z - a == 1 and not mixed[c] and not several[c]
            section[c] = (0 if plain else 2) + (1 if kind == LIST_BETWEEN else 0)  # DIRECT .. CHECKED_BETWEEN
        elif way[c] == Way.UNINDEXED:
            section[c] = Section.UNINDEXED
        elif way[c] == Way.VALUES:
            section[c] = Section.VALUES
            i, j = a + third[c], a + fourth[c]
            key[c] = base[pair[c]] + np.int64(low[i] >> 1) * stride[pair[c]] + (low[j] >> 1)
        else:
            section[c] = Section.PAIRS if way[c] == Way.PAIR else Section.BITS
            if first[c] >= 0:
                p = np.int64(dim[a + first[c]])
                q = np.int64(dim[a + second[c]]) if second[c] >= 0 else p
                key[c] = min(p, q) * width + max(p, q)


@kernel(allocates=False)
def lay_out(order, start, slot, mixed, several, shared, out):
    """The tags of conjunctions in a new order, and where the tests of each begin.

    `mixed` and `several` are empty if no conjunction is. Conjunctions from shared[0] to before shared[1] may
    be found repeatedly, as may those whose slot has several.
    """
    tag, new_start = out
    n, at = len(order), np.int64(0)
    for i in range(n):
        ahead = np.int64(order[min(i + 16, n - 1)])
        prefetch(start, ahead)
        prefetch(slot, ahead)
        c = order[i]
        t = np.uint32(slot[c])
        if len(mixed) and mixed[c]:
            t |= COMPLEX
        if (len(several) and several[c]) or shared[0] <= i < shared[1]:
            t |= MAY_REPEAT
        tag[i], new_start[i] = t, at
        at += start[c + 1] - start[c]
    new_start[n] = at


@kernel(allocates=False)
def gather_tests(new, tests, choice, cut_count, begin, end, out):
    """The tests of conjunctions begin..end-1 of a new order.

    Within a conjunction of intervals alone, tests that hold least often come first, and its access tests
    last: they hold for every candidate. If no conjunction is mixed, flags are not written.
    """
    order, new_start, mixed, listed = new
    way, access, third, fourth = choice.way, choice.access, choice.third, choice.fourth
    start, dim, low, high, flags = tests
    dims, lows, highs, new_flags = out
    flagged = len(mixed) > 0
    for i in range(begin, end):
        q = start[order[min(i + 12, end - 1)]]
        prefetch(dim, q)
        prefetch(low, q)
        prefetch(high, q)
        prefetch(start, np.int64(order[min(i + 24, end - 1)]))
        c = order[i]
        a, z = new_start[i], new_start[i + 1]
        at = a
        for j in range(start[c], start[c + 1]):
            dims[at], lows[at], highs[at] = dim[j], low[j], high[j]
            at += 1
        if flagged:
            for j in range(z - a):
                new_flags[a + j] = flags[start[c] + j]
            if mixed[c]:
                continue
        if way[c] == Way.VALUES:
            _swap(dims, lows, highs, new_flags, a + max(third[c], fourth[c]), z - 1)
            _swap(dims, lows, highs, new_flags, a + min(third[c], fourth[c]), z - 2)
            z -= 2
        elif i < listed and z - a > 1:
            _swap(dims, lows, highs, new_flags, a + access[c], z - 1)
            z -= 1
        for j in range(a + 1, z):
            d, x, y, f = dims[j], lows[j], highs[j], new_flags[j] if flagged else np.uint8(0)
            width = _span(x, y, cut_count[d])
            k = j
            while k > a and _span(lows[k - 1], highs[k - 1], cut_count[dims[k - 1]]) > width:
                dims[k], lows[k], highs[k] = dims[k - 1], lows[k - 1], highs[k - 1]
                if flagged:
                    new_flags[k] = new_flags[k - 1]
                k -= 1
            dims[k], lows[k], highs[k] = d, x, y
            if flagged:
                new_flags[k] = f


@kernel(inline=True, allocates=False)
def _swap(dims, lows, highs, flags, i, j):
    dims[i], dims[j] = dims[j], dims[i]
    lows[i], lows[j] = lows[j], lows[i]
    highs[i], highs[j] = highs[j], highs[i]
    if len(flags):
        flags[i], flags[j] = flags[j], flags[i]


@kernel(inline=True, allocates=False)
def _span(low, high, cuts):
    """The share of a dimension's cuts that an interval covers."""
    top = min(np.int64(high), np.int64(2 * cuts))
    return (top - max(np.int64(low), np.int64(0)) + 1.0) / (2.0 * cuts + 1.0)


@kernel
def list_table(key, cut_start, base):
    """The arrays `at` and `ends` of `Lists` for entries sorted by key (`list_key`)."""
    width = len(cut_start) - 1
    at = np.empty((cut_start[width] + width + 1, 3), np.int32)
    ends = np.empty((width, 4), np.int32)
    t = 0
    for d in range(width):
        first, last = cut_start[d] + d, cut_start[d + 1] + d
        for kind in range(3):
            p = first
            zero = 3 * first + kind * (last - first + 1) - first  # key of place p: zero + p
            while t < len(key) and key[t] <= zero + last:
                while p <= key[t] - zero:
                    at[p, kind] = base + t
                    p += 1
                t += 1
            while p <= last:
                at[p, kind] = base + t
                p += 1
            if kind > 0:
                ends[d, kind - 1] = base + t
    for kind in range(3):
        at[cut_start[width] + width, kind] = base + t
    return at, ends


@kernel
def find_several(slot, most):
    """Whether the slot of each conjunction occurs more than once; slots are below `most`."""
    seen, out = np.zeros(most, np.uint8), np.empty(len(slot), np.bool_)
    for s in slot:
        seen[s] = min(seen[s] + 1, 2)
    for i in range(len(slot)):
        out[i] = seen[slot[i]] > 1
    return out


# -- hash tables -----------------------------------------------------------------------------------


@kernel
def fill_hash(keys, table, value, first, last):
    """Enter distinct keys that belong to places first..last-1; returns those that do not fit."""
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
            for k in range(count):
                wider[k] = left[k]
            left = wider
        left[count] = i
        count += 1
    return left[:count]


@kernel(allocates=False)
def fill_rest(keys, table, value, chosen):
    """Enter some keys at the first free places from their own on."""
    mask = np.uint64(len(table) - 1)
    for i in chosen:
        h = hash64(keys[i]) & mask
        while table[h] >= 0:
            h = (h + np.uint64(1)) & mask
        table[h], value[h] = keys[i], i


@kernel(allocates=False)
def fill_bloom(keys, bloom, first, last):
    """Set a bit per key, in words first..last-1."""
    bits = np.uint64(64 * len(bloom) - 1)
    for i in range(len(keys)):
        ahead = np.int64(((hash64(keys[min(i + 16, len(keys) - 1)]) >> np.uint64(7)) & bits) >> np.uint64(6))
        if first <= ahead < last:
            prefetch(bloom, ahead)
        b = (hash64(keys[i]) >> np.uint64(7)) & bits
        word = np.int64(b >> np.uint64(6))
        if first <= word < last:
            bloom[word] |= np.uint64(1) << (b & np.uint64(63))
