"""Matching a block of events against a segment. The arrays are those of `segment.py`.

*Candidates*: for each value of each event, slices of lists (`_slices`), dimension by dimension; by two
values, couple by couple (`values.py`); by two dimensions, some pairs at a time (`hashed.py`). *Verification*:
the tests of a conjunction, in the order of the lists.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.build import MISSING, upper
from tocsin.match._kernels.dimension_pairs import match_always, match_pairs
from tocsin.match._kernels.intrinsics import prefetch
from tocsin.match._kernels.value_pairs import match_values
from tocsin.match._kernels.verify import COMPLEX, SEEN, SLOT, clauses_hold, inside, tell, wider

__all__ = ["match_each"]

_AHEAD = 8  # runs of entries that memory is asked for in advance


@njit(cache=True, nogil=True)
def match_each(arrays, cut_start, runs, ranked, coded, owner, number, out):
    """All paths but the bit-sliced one.

    The events come twice: `runs` and `ranked`, dimension by dimension; `coded`, event by event, with the
    number of the first. Returns packed matches and how many there are, packed matches that may occur
    twice, and how many candidates were checked: on the lists, by pairs, always, (by bits, elsewhere), by
    values; and how many keys of two values were looked up. The first are written to `out`; if it is too
    small, a larger one is made.
    """
    checks, direct, checked, shared, pairs, values, always, width = arrays
    n = 0
    twice, m = np.empty(64, np.int64), 0
    seen = np.zeros(SEEN, np.int64)
    if len(direct.at):
        slices, count, total = _slices(direct, cut_start, runs, ranked)
        if n + total > len(out):
            out = wider(out, n + total)
        n = _tell(checks.slot, direct, slices, count, coded[4], owner, number, out, n)
    if len(checked.at):
        out, n, twice, m, seen[0] = _match_lists(
            checks, checked, cut_start, runs, ranked, coded, owner, number, out, n, twice, m
        )
    if len(shared.at):
        out, n, twice, m, more = _match_lists(
            checks, shared, cut_start, runs, ranked, coded, owner, number, out, n, twice, m
        )
        seen[0] += more
    if len(values.sieve):
        out, n, twice, m = match_values(
            values, checks, runs, ranked, coded, owner, number, out, n, twice, m, seen
        )
    if len(pairs.key):
        out, n, twice, m, seen[1] = match_pairs(width, checks, pairs, coded, owner, number, out, n, twice, m)
    if always[0] < always[1]:
        out, n, twice, m = match_always(width, checks, always, coded, owner, number, out, n, twice, m)
        seen[2] = (always[1] - always[0]) * (len(coded[0]) - 1)
    return out, n, twice[:m], seen


@njit(cache=True, nogil=True)
def _match_lists(checks, lists, cut_start, runs, ranked, coded, owner, number, out, n, twice, m):
    """Conjunctions that hang on one test, or on a clause: candidates, then verification."""
    slices, count, total = _slices(lists, cut_start, runs, ranked)
    if n + total > len(out):
        out = wider(out, n + total)
    if m + total > len(twice):
        twice = wider(twice, m + total)
    n, m = _verify(checks, lists, slices, count, coded, owner, number, out, n, twice, m)
    return out, n, twice, m, total


@njit(cache=True, nogil=True)
def _slices(lists, cut_start, runs, ranked):
    """The slices of lists that hold the values: event, begin, end; the rank where two ends are to be checked.

    Returns them, how many there are, and how many entries they have.
    """
    run_dim, run_start = runs
    event, rank = ranked
    at, ends, low, base = lists.at, lists.ends, lists.low, lists.base
    out, n, total = np.empty((1024, 4), np.int32), 0, 0
    count = len(run_dim)
    for r in range(min(_AHEAD, count)):
        _fetch_places(at, cut_start, run_dim[r], rank, run_start[r], run_start[r + 1])
    for r in range(count):
        if r + _AHEAD < count:
            s = r + _AHEAD
            _fetch_places(at, cut_start, run_dim[s], rank, run_start[s], run_start[s + 1])
        d = run_dim[r]
        begin = ends[d - 1, 1] if d else at[0, 0]
        if begin == ends[d, 1] and ends[d, 2] == ends[d, 3]:
            continue
        i, z = run_start[r], run_start[r + 1]
        if n + 4 * (z - i) > len(out):
            wider = np.empty((max(2 * len(out), n + 4 * (z - i)), 4), np.int32)
            wider[:n] = out[:n]
            out = wider
        first = cut_start[d] + d
        own = ends[d, 0], ends[d, 2], ends[d, 3]
        n, total = _run_slices(at, own, low, base, first, (event, rank), i, z, out, n, total)
    return out, n, total


@njit(cache=True, nogil=True, inline="always")
def _fetch_places(at, cut_start, d, rank, i, z):
    """Ask for the places of the entries i..z-1 of a dimension; of many, for the first ones."""
    first = cut_start[d] + d
    for j in range(i, min(z, i + _AHEAD)):
        prefetch(at, 3 * (first + (rank[j] >> 1)))


@njit(cache=True, nogil=True)
def _run_slices(at, ends, low, base, first, ranked, i, z, out, n, total):
    """Of the entries i..z-1, all of one dimension; the places of its cuts begin at `first`."""
    event, rank = ranked
    up, two, two_end = ends
    for j in range(i, z):
        p = first + (rank[j] >> 1)
        q = p + (rank[j] & 1)
        a, b = at[p, 0], at[q, 0]  # equal: exactly this cut
        out[n, 0], out[n, 1], out[n, 2], out[n, 3] = event[j], a, b, MISSING
        n, total = n + (a < b), total + b - a
        a = at[p, 1]  # up to a cut: this one or a later one
        out[n, 0], out[n, 1], out[n, 2], out[n, 3] = event[j], a, up, MISSING
        n, total = n + (a < up), total + up - a
        b = at[q, 2]  # from a cut on, which stand behind them: an earlier one, or this
        out[n, 0], out[n, 1], out[n, 2], out[n, 3] = event[j], up, b, MISSING
        n, total = n + (up < b), total + b - up
        if two < two_end:
            b = base + upper(low, two - base, two_end - base, rank[j])
            out[n, 0], out[n, 1], out[n, 2], out[n, 3] = event[j], two, b, rank[j]
            n, total = n + (two < b), total + b - two
    return n, total


@njit(cache=True, nogil=True)
def _tell(slots, lists, slices, count, e0, owner, number, out, n):
    """Conjunctions of one test: every entry of a slice matches, if its other end holds too. There is room."""
    high, top, base = lists.high, lists.top, lists.base
    all_alive = len(owner) == 0
    for s in range(count):
        row, rank = np.int64(e0 + slices[s, 0]), slices[s, 3]
        a, z = slices[s, 1], slices[s, 2]
        prefetch(slots, np.int64(slices[min(s + 8, count - 1), 1]))
        if rank == MISSING and all_alive:
            for t in range(a, z):
                out[n] = (np.int64(slots[t] & SLOT) << 32) | row
                n += 1
        elif rank == MISSING:
            for t in range(a, z):
                slot = np.int64(slots[t] & SLOT)
                out[n] = (slot << 32) | row
                n += owner[slot] == number
        else:
            t = np.int64(a)
            while t < z:
                k = t - base
                if not k & 31 and top[k >> 5] < rank:
                    t += 32
                    continue
                slot = np.int64(slots[t] & SLOT)
                out[n] = (slot << 32) | row
                n += high[k] >= rank and (all_alive or owner[slot] == number)
                t += 1
    return n


@njit(cache=True, nogil=True)
def _verify(checks, lists, slices, count, coded, owner, number, out, n, twice, m):
    """Conjunctions that hang on one test: slices of lists, then all their tests. There is room.

    In order of the lists, so that the tests are read one after the other; events are small and at hand.
    """
    slots, first, dim, tests_low, tests_high, flags = checks
    high, top, base, target = lists.high, lists.top, lists.base, lists.target
    start, dims, ranks, bits, e0 = coded
    indirect = len(target) > 0
    for s in range(count):
        e, t, z, rank = slices[s, 0], np.int64(slices[s, 1]), slices[s, 2], slices[s, 3]
        row = np.int64(e0 + e)
        if not indirect:
            ahead = np.int64(slices[min(s + 12, count - 1), 1])
            prefetch(slots, ahead)
            prefetch(first, ahead)
            q = first[slices[min(s + 4, count - 1), 1]]
            prefetch(dim, q)
            prefetch(tests_low, q)
            prefetch(tests_high, q)
        while t < z:
            if rank != MISSING:  # two ends: the low one holds, does the high one?
                k = t - base
                if not k & 31 and top[k >> 5] < rank:
                    t += 32
                    continue
                if high[k] < rank:
                    t += 1
                    continue
            c = np.int64(target[t]) if indirect else t
            t += 1
            tag = slots[c]
            passed, a, b = True, first[c], first[c + 1]
            if tag & COMPLEX:
                passed = clauses_hold(start, dims, ranks, bits, e, a, b, dim, tests_low, tests_high, flags)
            else:
                for q in range(a, b):
                    if not inside(start, dims, ranks, bits, e, dim[q], tests_low[q], tests_high[q], False):
                        passed = False
                        break
            if passed:
                n, m = tell(tag, row, owner, number, out, n, twice, m)
    return n, m
