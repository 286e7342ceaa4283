"""Conjunctions by the values they ask for in two dimensions, a couple; couple by couple.

For each couple the events that have both are gone through, some hundred at a time: what is read of a couple
is small and stays at hand, and so do the events.

    the key of an event's two values    leads to a slice of conjunctions
    the sieve                           another value that each of them asks for: most end here
    verification                        what is left, all tests but the two
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.build import MISSING, find_key, hash64, lower
from tocsin.match._kernels.intrinsics import prefetch
from tocsin.match._kernels.verify import COMPLEX, clauses_hold, inside, tell, wider

__all__ = ["BLOCK", "NOTHING", "PASS", "fill_sieve", "match_values", "to_columns"]

NOTHING = np.int64(-1)
BLOCK = 256  # events that are gone through at a time
PASS = 8  # keys that could be looked up while a couple is turned to, however few events have both
_APART = 24  # rows of a table whose length is a power of two would get in each other's way in the cache
_FOUND = 4096  # keys of an attribute's couples, before they are looked up
_KEPT = 1024  # conjunctions that passed the sieve, before they are verified


@njit(cache=True, nogil=True)
def match_values(values, checks, runs, ranked, coded, owner, number, out, n, twice, m, seen):
    """Returns packed matches as `match_each`; `seen` is told of candidates, and of values looked up."""
    run_dim, run_start = runs
    event, rank = ranked
    begin, base, stride, column = values.begin, values.base, values.stride, values.column
    partner, used = _partners(begin, values.other, run_dim)
    at, upto = run_start[:-1].copy(), run_start[:-1].copy()
    count = len(coded[0]) - 1
    block = max(1, min(BLOCK, count))
    grid = np.full((values.columns + 1, block + _APART), MISSING, np.int32)
    found = np.empty((3, _FOUND + block + _APART), np.int64)
    kept, left = np.empty((2, _KEPT + _APART), np.int64), 0
    alive = owner, number
    for e0 in range(0, count, block):
        _spread(column, coded, e0, min(e0 + block, count), grid, True)
        for r in used:
            at[r] = upto[r]
            upto[r] = lower(event, at[r], min(at[r] + block, run_start[r + 1]), e0 + block)
        for r in used:
            d, first, hits = run_dim[r], column[run_dim[r]], 0
            last = begin[d + 1] - 1
            for p in range(begin[d], last + 1):
                q = partner[p]
                if q >= 0 and at[q] < upto[q]:
                    for j in range(at[q], upto[q]):  # without a branch to be guessed
                        own = grid[first, event[j] - e0]
                        found[0, hits] = base[p] + np.int64(own >> 1) * stride[p] + (rank[j] >> 1)
                        found[1, hits] = event[j]
                        hits += own & rank[j] & 1  # both are equal to a cut
                    seen[5] += PASS
                if hits > (0 if p == last else _FOUND):
                    out, n, twice, m, left = _sieved(
                        values,
                        found,
                        hits,
                        grid,
                        e0,
                        coded,
                        checks,
                        alive,
                        kept,
                        left,
                        out,
                        n,
                        twice,
                        m,
                        seen,
                    )
                    hits = 0
        _spread(column, coded, e0, min(e0 + block, count), grid, False)
    return _verified(kept, left, coded, checks, alive, out, n, twice, m)


@njit(cache=True, nogil=True)
def _spread(column, coded, e0, e1, grid, there):
    """The ranks of events e0..e1-1, by column of the grid; MISSING again, if they are not to be there."""
    start, dims, ranks, _, _ = coded
    for e in range(e0, e1):
        for i in range(start[e], start[e + 1]):
            if column[dims[i]] >= 0:
                grid[column[dims[i]], e - e0] = ranks[i] if there else MISSING


@njit(cache=True, nogil=True)
def _partners(begin, other, run_dim):
    """The run of each couple's other dimension, or -1; and the runs that are part of a couple."""
    partner, is_used = np.empty(len(other), np.int64), np.zeros(len(run_dim), np.bool_)
    for r in range(len(run_dim)):
        for p in range(begin[run_dim[r]], begin[run_dim[r] + 1]):
            q = lower(run_dim, r, len(run_dim), other[p])  # a couple's other dimension is the later one
            partner[p] = q if q < len(run_dim) and run_dim[q] == other[p] else -1
            if partner[p] >= 0:
                is_used[r], is_used[q] = True, True
    return partner, np.flatnonzero(is_used)


@njit(cache=True, nogil=True)
def _slices(values, found, hits):
    """The slices of conjunctions that keys lead to, as begin, event, end; how many."""
    start = values.start
    if len(values.key):
        hits = _places(values, found, hits)
    n = 0
    for k in range(hits):
        a, b = start[found[0, k]], start[found[0, k] + 1]
        found[0, n], found[1, n], found[2, n] = a, found[1, k], b
        n += a < b
    return n


@njit(cache=True, nogil=True)
def _places(values, found, hits):
    """The places of keys among those that there are; how many are there."""
    bloom, keys, place, start = values.bloom, values.key, values.place, values.start
    one, six, seven, word = np.uint64(1), np.uint64(6), np.uint64(7), np.uint64(63)
    bits, mask = np.uint64(64 * len(bloom) - 1), np.uint64(len(keys) - 1)
    n = 0
    for k in range(hits):  # without a branch, so that many loads are under way at once
        key = found[0, k]
        b = (hash64(key) >> seven) & bits
        found[0, n], found[1, n] = key, found[1, k]
        n += np.int64((bloom[b >> six] >> (b & word)) & one)
    for k in range(n):
        h = np.int64(hash64(found[0, k]) & mask)
        prefetch(keys, h)
        prefetch(place, h)
    hits = 0
    for k in range(n):
        h = find_key(keys, found[0, k])
        if keys[h] == found[0, k]:
            found[0, hits], found[1, hits] = place[h], found[1, k]
            prefetch(start, np.int64(place[h]))
            hits += 1
    return hits


@njit(cache=True, nogil=True)
def _sieved(values, found, hits, grid, e0, coded, checks, alive, kept, left, out, n, twice, m, seen):
    """Conjunctions that keys lead to, if their sieve lets the event pass, are kept; many are verified."""
    seen[5] += hits
    count, total = _slices(values, found, hits), 0
    for k in range(count):
        total += found[2, k] - found[0, k]
    seen[4] += total
    found[0, count] = 0  # it is read, and not used
    k, c = np.uint64(0), found[0, 0]
    while total > 0:
        some = min(total, _KEPT - left)
        total -= some
        left, k, c = _sieve(values.sieve, values.first, found, grid, e0, kept, left, k, c, some)
        if left == _KEPT:
            out, n, twice, m = _verified(kept, left, coded, checks, alive, out, n, twice, m)
            left = 0
    return out, n, twice, m, left


@njit(cache=True, nogil=True)
def _sieve(sieve, first, found, grid, e0, kept, left, k, c, some):
    """The next conjunctions of slices, from conjunction c of slice k on. There is room for them."""
    left = np.uint64(left)
    for _ in range(some):  # without a branch to be guessed: slices are short
        s, e = np.uint64(sieve[np.uint64(c - first)]), found[1, k]
        kept[0, left], kept[1, left] = c, e
        left += np.uint64(grid[s >> np.uint64(32), np.uint64(e - e0)] == np.int32(s & np.uint64(0xFFFFFFFF)))
        c += 1
        ends = c == found[2, k]
        k += np.uint64(ends)
        c = found[0, k] if ends else c
    return np.int64(left), k, c


@njit(cache=True, nogil=True)
def _verified(kept, count, coded, checks, alive, out, n, twice, m):
    """Which of the kept conjunctions pass? The last two tests of a plain one hold: it was found by them."""
    slots, first, dim, low, high, flags = checks
    owner, number = alive
    start, dims, ranks, bits, e0 = coded
    if n + count > len(out):
        out = wider(out, n + count)
    if m + count > len(twice):
        twice = wider(twice, m + count)
    for k in range(count):
        ahead = kept[0, min(k + 16, count - 1)]
        prefetch(slots, ahead)
        prefetch(first, ahead)
        q = first[kept[0, min(k + 8, count - 1)]]
        prefetch(dim, q)
        prefetch(low, q)
        prefetch(high, q)
        c, e = kept[0, k], kept[1, k]
        tag = slots[c]
        passed, a, b = True, first[c], first[c + 1]
        if tag & COMPLEX:
            passed = clauses_hold(start, dims, ranks, bits, e, a, b, dim, low, high, flags)
        else:
            for q in range(a, b - 2):
                if not inside(start, dims, ranks, bits, e, dim[q], low[q], high[q], False):
                    passed = False
                    break
        if passed:
            n, m = tell(tag, np.int64(e0 + e), owner, number, out, n, twice, m)
    return out, n, twice, m


@njit(cache=True, nogil=True)
def fill_sieve(checks, first, last, sieve):
    """Of conjunctions first..last-1, found by two values: the dimension and rank of another value that each
    asks for; or NOTHING.
    """
    slots, start, dim, low, high, _ = checks
    for c in range(first, last):
        sieve[c - first] = NOTHING
        if slots[c] & COMPLEX:
            continue
        for i in range(start[c], start[c + 1] - 2):
            if low[i] == high[i] != MISSING:
                sieve[c - first] = (np.int64(dim[i]) << 32) | np.int64(low[i])
                break


@njit(cache=True, nogil=True)
def to_columns(sieve, column, columns):
    """In place of dimensions their columns; NOTHING is MISSING in the last, which no event has."""
    for i in range(len(sieve)):
        if sieve[i] == NOTHING:
            sieve[i] = (np.int64(columns) << 32) | (np.int64(MISSING) & 0xFFFFFFFF)
        else:
            sieve[i] = (np.int64(column[sieve[i] >> 32]) << 32) | (sieve[i] & 0xFFFFFFFF)
