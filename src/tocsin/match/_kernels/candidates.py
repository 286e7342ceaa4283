"""Matching a block of events against an immutable segment: candidates, then verification, path by path.

*Candidates*: for each value of each event, slices of lists (`_slices`), dimension by dimension; by two values
(`value_pairs.py`); by two dimensions (`dimension_pairs.py`). *Verification*: the tests of a conjunction, in
the order of the lists. Both go in blocks, so that what a candidate needs is still in the cache when it is
verified.
"""

from __future__ import annotations

import numpy as np

from tocsin.compiled import kernel
from tocsin.compiled.instructions import prefetch
from tocsin.match._kernels.dimension_pairs import match_pairs, match_unindexed
from tocsin.match._kernels.primitives import MISSING, upper
from tocsin.match._kernels.value_pairs import match_values
from tocsin.match._kernels.verify import (
    COMPLEX,
    SLOT,
    Counter,
    Found,
    clauses_hold,
    emit_match,
    new_found,
    rank_of,
    with_space,
)  # fmt: skip

__all__ = ["match_each"]

_AHEAD = 8  # runs of entries that are prefetched
_COUNTERS = len(Counter)


@kernel
def match_each(arrays, cut_start, runs, events, owners, buffer):
    """All access paths but the bit-sliced one.

    `arrays` are `SegmentArrays`; `runs` (`RankRuns`) and `events` (`EventRanks`) have the same entries.
    Returns what was found, unique matches in `buffer` if it is large enough, and how many candidates each
    path had (`Counter`).
    """
    tests, direct, checked, shared, pairs, values, unindexed, width = arrays
    found = new_found(buffer)
    counters = np.zeros(_COUNTERS, np.int64)
    if len(direct.at):
        slices, count, total = _slices(direct, cut_start, runs)
        found = with_space(found, total)
        n = _emit_slices(tests.slot, direct, slices, count, events.first, owners, found)
        found = Found(found.unique, n, found.repeated, found.repeated_count)
    if len(checked.at):
        found, counters[Counter.LISTS] = _match_lists(tests, checked, cut_start, runs, events, owners, found)
    if len(shared.at):
        found, more = _match_lists(tests, shared, cut_start, runs, events, owners, found)
        counters[Counter.LISTS] += more
    if len(values.sieve):
        found = match_values(values, tests, runs, events, owners, found, counters)
    if len(pairs.key):
        found, counters[Counter.PAIRS] = match_pairs(width, tests, pairs, events, owners, found)
    if unindexed[0] < unindexed[1]:
        found = match_unindexed(width, tests, unindexed, events, owners, found)
        counters[Counter.UNINDEXED] = (unindexed[1] - unindexed[0]) * (len(events.start) - 1)
    return found, counters


@kernel
def _match_lists(tests, lists, cut_start, runs, events, owners, found):
    """Conjunctions by one test, or a clause: candidates, then verification; how many candidates too."""
    slices, count, total = _slices(lists, cut_start, runs)
    found = with_space(found, total)
    n, m = _verify_slices(tests, lists, slices, count, events, owners, found)
    return Found(found.unique, n, found.repeated, m), total


@kernel
def _slices(lists, cut_start, runs):
    """The slices of lists that hold the values: event, begin, end; the rank where two ends are to be checked.

    Returns them, how many there are, and how many entries they have.
    """
    run_dim, run_start, _, rank = runs
    at, ends = lists.at, lists.ends
    out, n, total = np.empty((1024, 4), np.int32), np.int64(0), np.int64(0)
    count = len(run_dim)
    for r in range(min(_AHEAD, count)):
        _prefetch_places(at, cut_start, run_dim[r], rank, run_start[r], run_start[r + 1])
    for r in range(count):
        if r + _AHEAD < count:
            s = r + _AHEAD
            _prefetch_places(at, cut_start, run_dim[s], rank, run_start[s], run_start[s + 1])
        d = run_dim[r]
        begin = ends[d - 1, 1] if d else at[0, 0]
        if begin == ends[d, 1] and ends[d, 2] == ends[d, 3]:
            continue
        i, z = run_start[r], run_start[r + 1]
        if n + 4 * (z - i) > len(out):
            more = np.empty((max(2 * len(out), n + 4 * (z - i)), 4), np.int32)
            for s in range(n):
                for column in range(4):
                    more[s, column] = out[s, column]
            out = more
        bounds = cut_start[d] + d, ends[d, 0], ends[d, 2], ends[d, 3]
        n, total = _run_slices(lists, runs, r, bounds, out, n, total)
    return out, n, total


@kernel(inline=True, allocates=False)
def _prefetch_places(at, cut_start, d, rank, i, z):
    """Prefetch the places of the entries i..z-1 of a dimension; of many, of the first ones."""
    first = cut_start[d] + d
    for j in range(i, min(z, i + _AHEAD)):
        prefetch(at, 3 * (first + (rank[j] >> 1)))


@kernel(allocates=False)
def _run_slices(lists, runs, r, bounds, out, n, total):
    """Slices for the entries of run r.

    `bounds`: where the places of the dimension's cuts begin, where its entries up to a cut end, and where its
    entries with two ends begin and end.
    """
    at, low, base = lists.at, lists.low, lists.base
    _, run_start, event, rank = runs
    first, up, two, two_end = bounds
    for j in range(run_start[r], run_start[r + 1]):
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
            a = lists.since[b - base - 1] if two < b else b
            out[n, 0], out[n, 1], out[n, 2], out[n, 3] = event[j], a, b, rank[j]
            n, total = n + (a < b), total + b - a
    return n, total


@kernel(allocates=False)
def _emit_slices(slots, lists, slices, count, row0, owners, found):
    """Conjunctions of one test: every entry of a slice matches, if its other end holds too. There is space.

    Returns how many unique matches there are now.
    """
    high, top, base = lists.high, lists.top, lists.base
    owner, number = owners
    out, n = found.unique, found.unique_count
    all_owned = len(owner) == 0
    for s in range(count):
        row, rank = np.int64(row0 + slices[s, 0]), slices[s, 3]
        a, z = slices[s, 1], slices[s, 2]
        prefetch(slots, np.int64(slices[min(s + 8, count - 1), 1]))
        if rank == MISSING and all_owned:
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
                n += high[k] >= rank and (all_owned or owner[slot] == number)
                t += 1
    return n


@kernel(allocates=False)
def _verify_slices(tests, lists, slices, count, events, owners, found):
    """Conjunctions in slices of lists whose tests all hold. There is space.

    In order of the lists, so that the tests are read one after the other; events are small and stay in the
    cache. Returns how many unique and repeated matches there are now.
    """
    slots, first, dim, tests_low, tests_high, _ = tests
    high, top, base, target = lists.high, lists.top, lists.base, lists.target
    sieve, first_entry = lists.sieve, lists.first
    start, dims, ranks, present, row0 = events
    owner, number = owners
    unique, n, repeated, m = found
    indirect, sieved = len(target) > 0, len(sieve) > 0
    for s in range(count):
        e, t, z, rank = np.int64(slices[s, 0]), np.int64(slices[s, 1]), slices[s, 2], slices[s, 3]
        row = np.int64(row0 + e)
        if sieved:
            prefetch(sieve, 3 * (np.int64(slices[min(s + 8, count - 1), 1]) - first_entry))
        while t < z:
            if rank != MISSING:  # two ends: the low one holds, does the high one?
                k = t - base
                if not k & 31 and top[k >> 5] < rank:
                    t += 32
                    continue
                if high[k] < rank:
                    t += 1
                    continue
            if sieved:
                k = t - first_entry
                x = rank_of(start, dims, ranks, present, e, sieve[k, 0])
                if x < sieve[k, 1] or x > sieve[k, 2]:
                    t += 1
                    continue
            c = np.int64(target[t]) if indirect else t
            t += 1
            tag = slots[c]
            passed, a, b = True, first[c], first[c + 1]
            if tag & COMPLEX:
                passed = clauses_hold(events, e, a, b, tests)
            else:
                for q in range(a, b):
                    x = rank_of(start, dims, ranks, present, e, dim[q])
                    if x < tests_low[q] or x > tests_high[q]:
                        passed = False
                        break
            if passed:
                n, m = emit_match(tag, row, owner, number, unique, n, repeated, m)
    return n, m
