"""The mutable front: conjunctions in unsorted lists, by one dimension each."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.building import lower
from tocsin.match._kernels.matching import SEVERAL, SLOT, _wider
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = ["hang", "lay_lists", "match_front"]

_ROOM = 1 << 16  # matches that room is made for at a time


@njit(cache=True, nogil=True)
def hang(start, dim, low, high, flags, presence):
    """The test to hang each conjunction on, by its place: of the rarest dimension, best an equality; or -1.

    A test that is negated will do (the dimension must be there), one of a clause or of absence will not.
    """
    n = len(start) - 1
    out = np.empty(n, np.int32)
    for c in range(n):
        best, out[c] = np.inf, -1
        for i in range(start[c], start[c + 1]):
            if flags[i] & (ABSENT | OR_NEXT) or (i > start[c] and flags[i - 1] & OR_NEXT):
                continue
            equal = low[i] == high[i] and not flags[i] & NEGATED
            price = presence[dim[i]] * (1.0 if equal else 4.0)  # of a range every second check goes on
            if price < best:
                best, out[c] = price, i - start[c]
    return out


@njit(cache=True, nogil=True)
def lay_lists(start, tests, slot, several, access, width, out):
    """Conjunctions by the dimension they hang on: where each list begins; those that hang on none are last.

    Written to `out`: tags, where tests begin, tests; the one that a conjunction hangs on comes first.
    """
    dim, low, high, flags = tests
    tags, new_start, dims, lows, highs, new_flags = out
    n = len(slot)
    lists = np.zeros(width + 3, np.int64)
    for c in range(n):
        lists[(dim[start[c] + access[c]] if access[c] >= 0 else width) + 2] += 1
    for d in range(width + 2):
        lists[d + 1] += lists[d]
    order = np.empty(n, np.int64)
    for c in range(n):
        d = dim[start[c] + access[c]] if access[c] >= 0 else width
        order[lists[d + 1]] = c
        lists[d + 1] += 1
    at = 0
    for k in range(n):
        c = order[k]
        tags[k] = np.uint32(slot[c]) | (SEVERAL if several[c] else np.uint32(0))
        new_start[k] = at
        first = start[c] + access[c] if access[c] >= 0 else np.int64(-1)
        if first >= 0:
            dims[at], lows[at], highs[at], new_flags[at] = dim[first], low[first], high[first], flags[first]
            at += 1
        for i in range(start[c], start[c + 1]):
            if i != first:
                dims[at], lows[at], highs[at], new_flags[at] = dim[i], low[i], high[i], flags[i]
                at += 1
    new_start[n] = at
    return lists[: width + 2]


@njit(cache=True, nogil=True, inline="always")
def _holds(start, dims, codes, above, bits, e, d, low, high, flags):
    """Does a test hold for event e? Its dimensions ascend."""
    there = False
    at = start[e]
    if (bits[e] >> np.uint64(d & 63)) & np.uint64(1):
        at = lower(dims, start[e], start[e + 1], d)
        there = at < start[e + 1] and dims[at] == d
    if flags & ABSENT:
        return not there
    if not there:
        return False
    inside = low <= codes[at] and codes[at] + above[at] <= high
    return inside != (flags & NEGATED != 0)


@njit(cache=True, nogil=True)
def _passes(coded, e, first, last, tests):
    """Do all clauses of tests first..last-1 hold for event e?"""
    start, dims, codes, above, bits = coded
    dim, low, high, flags = tests
    i = first
    while i < last:
        passed = _holds(start, dims, codes, above, bits, e, dim[i], low[i], high[i], flags[i])
        while flags[i] & OR_NEXT:
            i += 1
            passed = passed or _holds(start, dims, codes, above, bits, e, dim[i], low[i], high[i], flags[i])
        if not passed:
            return False
        i += 1
    return True


@njit(cache=True, nogil=True)
def _match_runs(runs, r0, r1, lists, spread, checks, ends, coded, owner, number, e0, room):
    """Entries of runs r0..r1-1 against the conjunctions that hang on their dimensions. There is room."""
    run_dim, run_start = runs
    event, code, beyond = spread
    slots, first, dim, low, high, flags = checks
    start, dims, codes, above, bits = coded
    least, greatest = ends
    out, n, twice, m = room
    for r in range(r0, r1):
        d = run_dim[r]
        for c in range(lists[d], lists[d + 1]):
            a, b = least[c], greatest[c]
            for j in range(run_start[r], run_start[r + 1]):
                if not ((a <= code[j]) & (code[j] + beyond[j] <= b)):
                    continue
                e, t, z = event[j], first[c] + 1, first[c + 1]
                if t < z:
                    if not (flags[t] & (ABSENT | OR_NEXT)) and not _holds(
                        start, dims, codes, above, bits, e, dim[t], low[t], high[t], flags[t]
                    ):
                        continue  # most end here, without a call
                if flags[t - 1] or t + 1 < z or (t < z and flags[t]):
                    if not _passes(coded, e, t - 1, z, (dim, low, high, flags)):
                        continue
                slot = np.int64(slots[c] & SLOT)
                if len(owner) and owner[slot] != number:
                    continue
                if slots[c] & SEVERAL:
                    twice[m] = (slot << 32) | (e0 + e)
                    m += 1
                else:
                    out[n] = (slot << 32) | (e0 + e)
                    n += 1
    return n, m


@njit(cache=True, nogil=True)
def match_front(checks, ends, lists, runs, spread, coded, e0, owner, number, out):
    """Packed matches and how many; packed matches that may occur twice; how many candidates there were.

    `ends` are those of the test that each conjunction hangs on: open, if it is negated.
    """
    slots, first, dim, low, high, flags = checks
    run_dim, run_start = runs
    n, seen = 0, 0
    twice, m = np.empty(64, np.int64), 0
    several = False
    for tag in slots:
        several |= tag & SEVERAL != 0
    r = 0
    while r < len(run_dim):
        most, r1 = 0, r
        while r1 < len(run_dim) and most < _ROOM:  # room is made for many runs at a time
            d = run_dim[r1]
            most += (lists[d + 1] - lists[d]) * (run_start[r1 + 1] - run_start[r1])
            r1 += 1
        seen += most
        if most <= 2 * _ROOM:
            if n + most > len(out):
                out = _wider(out, n + most)
            if several and m + most > len(twice):
                twice = _wider(twice, m + most)
            room = out, n, twice, m
            n, m = _match_runs(runs, r, r1, lists, spread, checks, ends, coded, owner, number, e0, room)
            r = r1
            continue
        for q in range(r, r1):  # a long list and many events: some events at a time
            d = run_dim[q]
            long = lists[d + 1] - lists[d]
            step = max(1, _ROOM // max(1, long))
            for i in range(run_start[q], run_start[q + 1], step):
                z = min(i + step, run_start[q + 1])
                if n + long * (z - i) > len(out):
                    out = _wider(out, n + long * (z - i))
                if several and m + long * (z - i) > len(twice):
                    twice = _wider(twice, m + long * (z - i))
                room = out, n, twice, m
                part = run_dim[q : q + 1], np.array([i, z])
                n, m = _match_runs(part, 0, 1, lists, spread, checks, ends, coded, owner, number, e0, room)
        r = r1
    events = len(coded[0]) - 1
    for c in range(lists[len(lists) - 2], len(slots)):  # those that hang on nothing are always asked
        slot = np.int64(slots[c] & SLOT)
        if len(owner) and owner[slot] != number:
            continue
        if m + events > len(twice):
            twice = _wider(twice, m + events)
        for e in range(events):
            if _passes(coded, e, first[c], first[c + 1], (dim, low, high, flags)):
                twice[m] = (slot << 32) | (e0 + e)
                m += 1
    return out, n, twice[:m], seen
