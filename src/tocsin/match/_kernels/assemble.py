"""Putting the conjunctions of a segment in order: their paths and keys, tests gathered, lists over them."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.build import MOST
from tocsin.match._kernels.intrinsics import prefetch
from tocsin.match._kernels.verify import COMPLEX, SEVERAL
from tocsin.predicate.flat import NEGATED, OR_NEXT

__all__ = ["find_several", "gather_tests", "lay_out", "list_keys", "list_table", "path_keys"]

_LOW = np.int32(-(2**31) + 1)  # below every code that is there


@njit(cache=True, nogil=True)
def list_key(d, low, high, flags, cut_start):
    """The list of a test (0 equal, 1 up to, 2 from, 3 between), and its key: by dimension, list and place.

    The places of a dimension are its cuts and one more, beyond them; a dimension has three keys for each.
    With two ends, the low one counts, and one key for each place is enough.
    """
    first, places = cut_start[d] + d, cut_start[d + 1] - cut_start[d] + 1
    if flags & NEGATED or (low == _LOW and high == MOST):
        kind, at = 1, places - 1  # it is there, that is all
    elif low == _LOW:
        kind, at = 1, np.int64(high >> 1)
    elif high == MOST:
        kind, at = 2, np.int64(low >> 1)
    elif low == high:
        kind, at = 0, np.int64(low >> 1)
    else:
        return 3, first + np.int64(low >> 1)
    return kind, 3 * first + kind * places + at


@njit(cache=True, nogil=True)
def list_keys(dim, low, high, flags, cut_start):
    """`list_key` of many tests."""
    kind, key = np.empty(len(dim), np.int64), np.empty(len(dim), np.int64)
    for i in range(len(dim)):
        kind[i], key[i] = list_key(dim[i], low[i], high[i], flags[i], cut_start)
    return kind, key


@njit(cache=True, nogil=True)
def path_keys(tests, placed, couples, several, cut_start, begin, end, out):
    """Of conjunctions begin..end-1 the path, the key that orders it there, and if it is more than intervals.

    Paths: 0, 1 direct (1: between two ends), 2, 3 checked, 4 pairs, 5 bits, 6 shared, 7 always, 8 values.
    """
    start, dim, low, high, flags = tests
    way, access, first, second, third, fourth, couple = placed
    base, stride = couples
    path, key, mixed = out
    width = np.int64(len(cut_start) - 1)
    for c in range(begin, end):
        a, z = start[c], start[c + 1]
        key[c], mixed[c] = 0, False
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
        elif way[c] == 4:
            path[c] = 8
            i, j = a + third[c], a + fourth[c]
            key[c] = base[couple[c]] + np.int64(low[i] >> 1) * stride[couple[c]] + (low[j] >> 1)
        else:
            path[c] = 3 + way[c]
            if first[c] >= 0:
                p = np.int64(dim[a + first[c]])
                q = np.int64(dim[a + second[c]]) if second[c] >= 0 else p
                key[c] = min(p, q) * width + max(p, q)


@njit(cache=True, nogil=True)
def lay_out(order, start, slot, mixed, several, shared, out):
    """The tags of conjunctions in a new order, and where the tests of each begin.

    `mixed` and `several` are empty if no conjunction is. Conjunctions from shared[0] to before shared[1]
    may be told twice, as may those whose slot has several.
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
            t |= SEVERAL
        tag[i], new_start[i] = t, at
        at += start[c + 1] - start[c]
    new_start[n] = at


@njit(cache=True, nogil=True)
def gather_tests(order, begin, end, tests, mixed, hung, on_list, cut_count, new_start, out):
    """The tests of conjunctions begin..end-1 in a new order.

    Within a conjunction of intervals alone, those that hold least often come first, and last what it hangs
    on, which holds if it is asked at all: the first `on_list` hang on `access`, those by values on two.
    `mixed` is empty if there are intervals alone; then flags are not written.
    """
    way, access, third, fourth = hung
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
            new_flags[a:z] = flags[start[c] : start[c + 1]]
            if mixed[c]:
                continue
        if way[c] == 4:
            _swap(dims, lows, highs, new_flags, a + max(third[c], fourth[c]), z - 1)
            _swap(dims, lows, highs, new_flags, a + min(third[c], fourth[c]), z - 2)
            z -= 2
        elif i < on_list and z - a > 1:
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


@njit(cache=True, nogil=True, inline="always")
def _swap(dims, lows, highs, flags, i, j):
    dims[i], dims[j] = dims[j], dims[i]
    lows[i], lows[j] = lows[j], lows[i]
    highs[i], highs[j] = highs[j], highs[i]
    if len(flags):
        flags[i], flags[j] = flags[j], flags[i]


@njit(cache=True, nogil=True, inline="always")
def _span(low, high, cuts):
    """The share of a dimension's cuts that an interval covers."""
    top = min(np.int64(high), np.int64(2 * cuts))
    return (top - max(np.int64(low), np.int64(0)) + 1.0) / (2.0 * cuts + 1.0)


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def find_several(slot, most):
    """Whether the slot of each conjunction occurs more than once; slots are below `most`."""
    seen, out = np.zeros(most, np.uint8), np.empty(len(slot), np.bool_)
    for s in slot:
        seen[s] = min(seen[s] + 1, 2)
    for i in range(len(slot)):
        out[i] = seen[slot[i]] > 1
    return out
