"""Conjunctions by values they require in two dimensions, a *value pair*.

For each pair of dimensions the events that have both are processed in blocks of some hundred: what is read of
a pair is small and stays in the cache, and so do the events.

    the key of an event's two values    leads to a slice of conjunctions
    the sieve                           another value that each of them requires: most end here
    verification                        the rest, all tests but the two

Which pairs of dimensions to have is decided when a segment is built (`offers`, `choose_value_pairs`).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.compiled.instructions import prefetch
from tocsin.match._kernels.cost import EQUAL, value_pair_cost, value_tests
from tocsin.match._kernels.primitives import MISSING, find_key, hash64, lower
from tocsin.match._kernels.verify import (
    COMPLEX,
    Counter,
    Found,
    clauses_hold,
    emit_match,
    enlarged,
    rank_of,
    with_space,
)  # fmt: skip

__all__ = [
    "BLOCK",
    "NOTHING",
    "PASS",
    "choose_value_pairs",
    "fill_sieve",
    "match_values",
    "offers",
    "to_columns",
]

NOTHING = np.int64(-1)
BLOCK = 256  # events in a block
PASS = 8  # keys that could be looked up in the time of turning to another pair, however few events have both
_APART = 24  # a row length that is a power of two would map all rows to the same cache lines
_KEYS = 4096  # keys of a dimension's value pairs that are collected before they are looked up
_KEPT = 1024  # conjunctions that passed the sieve, before they are verified
_CLEARLY = np.float32(0.5)  # of the cost so far: a value pair must cost less than that


class SieveBuffers(NamedTuple):
    """Ranks of a block of events by column; keys and slices (begin, event, end); pairs kept."""

    grid: Any
    keys: Any
    kept: Any


class Verification(NamedTuple):
    """What verification reads."""

    tests: Any
    events: Any
    owners: Any


@kernel
def match_values(values, tests, runs, events, owners, found, counters):
    """Returns what was found; counts candidates and keys looked up."""
    run_dim, run_start, event, rank = runs
    begin, base, stride, column = values.begin, values.base, values.stride, values.column
    partner, used = _partners(begin, values.other, run_dim)
    at, upto = run_start[:-1].copy(), run_start[:-1].copy()
    count = len(events.start) - 1
    block = max(1, min(BLOCK, count))
    grid = np.empty((values.columns + 1, block + _APART), np.int32)
    grid[:] = MISSING
    keys = np.empty((3, _KEYS + block + _APART), np.int64)
    buffers = SieveBuffers(grid, keys, np.empty((2, _KEPT + _APART), np.int64))
    verification, kept_count = Verification(tests, events, owners), np.int64(0)
    for e0 in range(0, count, block):
        _fill_grid(column, events, e0, min(e0 + block, count), grid, True)
        for r in used:
            at[r] = upto[r]
            upto[r] = lower(event, at[r], min(at[r] + block, run_start[r + 1]), e0 + block)
        for r in used:
            d, first, hits = run_dim[r], column[run_dim[r]], np.int64(0)
            last = begin[d + 1] - 1
            for p in range(begin[d], last + 1):
                q = partner[p]
                if q >= 0 and at[q] < upto[q]:
                    for j in range(at[q], upto[q]):  # no branch to mispredict
                        own = grid[first, event[j] - e0]
                        keys[0, hits] = base[p] + np.int64(own >> 1) * stride[p] + (rank[j] >> 1)
                        keys[1, hits] = event[j]
                        hits += own & rank[j] & 1  # both are equal to a cut
                    counters[Counter.LOOKUPS] += PASS
                if hits > (0 if p == last else _KEYS):
                    found, kept_count = _look_up(
                        values, buffers, hits, e0, kept_count, verification, found, counters
                    )
                    hits = np.int64(0)
        _fill_grid(column, events, e0, min(e0 + block, count), grid, False)
    found = with_space(found, kept_count)
    n, m = _verify_kept(buffers.kept, kept_count, verification, found)
    return Found(found.unique, n, found.repeated, m)


@kernel(allocates=False)
def _fill_grid(column, events, e0, e1, grid, is_there):
    """Write the ranks of events e0..e1-1 by column; or MISSING, to clear them again."""
    start, dims, ranks, _, _ = events
    for e in range(e0, e1):
        for i in range(start[e], start[e + 1]):
            if column[dims[i]] >= 0:
                grid[column[dims[i]], e - e0] = ranks[i] if is_there else MISSING


@kernel
def _partners(begin, other, run_dim):
    """The run of each pair's other dimension, or -1; and the runs that are part of a pair."""
    partner, is_used = np.empty(len(other), np.int64), np.zeros(len(run_dim), np.bool_)
    for r in range(len(run_dim)):
        for p in range(begin[run_dim[r]], begin[run_dim[r] + 1]):
            q = lower(run_dim, r, len(run_dim), other[p])  # a pair's other dimension is the later one
            partner[p] = q if q < len(run_dim) and run_dim[q] == other[p] else -1
            if partner[p] >= 0:
                is_used[r], is_used[q] = True, True
    used, n = np.empty(len(run_dim), np.int64), 0
    for r in range(len(run_dim)):
        used[n] = r
        n += is_used[r]
    return partner, used[:n]


@kernel(allocates=False)
def _slices(values, keys, hits):
    """The slices of conjunctions that keys lead to, as begin, event, end; how many."""
    start = values.start
    if len(values.key):
        hits = _places(values, keys, hits)
    n = 0
    for k in range(hits):
        a, b = start[keys[0, k]], start[keys[0, k] + 1]
        keys[0, n], keys[1, n], keys[2, n] = a, keys[1, k], b
        n += a < b
    return n


@kernel(allocates=False)
def _places(values, keys, hits):
    """The places of keys among those that there are; how many are there."""
    bloom, table, place, start = values.bloom, values.key, values.place, values.start
    one, six, seven, word = np.uint64(1), np.uint64(6), np.uint64(7), np.uint64(63)
    bits, mask = np.uint64(64 * len(bloom) - 1), np.uint64(len(table) - 1)
    n = 0
    for k in range(hits):  # no branch, so that many loads are under way at once
        key = keys[0, k]
        b = (hash64(key) >> seven) & bits
        keys[0, n], keys[1, n] = key, keys[1, k]
        n += np.int64((bloom[b >> six] >> (b & word)) & one)
    for k in range(n):
        h = np.int64(hash64(keys[0, k]) & mask)
        prefetch(table, h)
        prefetch(place, h)
    hits = 0
    for k in range(n):
        h = find_key(table, keys[0, k])
        if table[h] == keys[0, k]:
            keys[0, hits], keys[1, hits] = place[h], keys[1, k]
            prefetch(start, np.int64(place[h]))
            hits += 1
    return hits


@kernel
def _look_up(values, buffers, hits, e0, kept_count, verification, found, counters):
    """Keep conjunctions that keys lead to if the event passes their sieve; verify many at once."""
    keys = buffers.keys
    counters[Counter.LOOKUPS] += hits
    count, total = _slices(values, keys, hits), 0
    for k in range(count):
        total += keys[2, k] - keys[0, k]
    counters[Counter.VALUES] += total
    keys[0, count] = 0  # read, but not used
    k, c = np.uint64(0), keys[0, 0]
    while total > 0:
        some = min(total, _KEPT - kept_count)
        total -= some
        kept_count, k, c = _sieve(values, buffers, e0, kept_count, k, c, some)
        if kept_count == _KEPT:
            found = with_space(found, kept_count)
            n, m = _verify_kept(buffers.kept, kept_count, verification, found)
            found, kept_count = Found(found.unique, n, found.repeated, m), np.int64(0)
    return found, kept_count


@kernel(allocates=False)
def _sieve(values, buffers, e0, kept_count, k, c, some):
    """Sieve the next `some` conjunctions, from conjunction c of slice k on. There is space for them."""
    sieve, first = values.sieve, values.first
    grid, keys, kept = buffers
    n = np.uint64(kept_count)
    for _ in range(some):  # no branch to mispredict: slices are short
        s, e = np.uint64(sieve[np.uint64(c - first)]), keys[1, k]
        kept[0, n], kept[1, n] = c, e
        n += np.uint64(grid[s >> np.uint64(32), np.uint64(e - e0)] == np.int32(s & np.uint64(0xFFFFFFFF)))
        c += 1
        ends = c == keys[2, k]
        k += np.uint64(ends)
        c = keys[0, k] if ends else c
    return np.int64(n), k, c


@kernel(allocates=False)
def _verify_kept(kept, count, verification, found):
    """Emit the kept conjunctions that hold. The last two tests of a plain one do: it was found by them.

    There is space. Returns how many unique and repeated matches there are now.
    """
    tests, events, owners = verification
    slots, first, dim, low, high, _ = tests
    owner, number = owners
    start, dims, ranks, present, row0 = events
    unique, n, repeated, m = found
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
            passed = clauses_hold(events, e, a, b, tests)
        else:
            for q in range(a, b - 2):
                x = rank_of(start, dims, ranks, present, e, dim[q])
                if x < low[q] or x > high[q]:
                    passed = False
                    break
        if passed:
            n, m = emit_match(tag, np.int64(row0 + e), owner, number, unique, n, repeated, m)
    return n, m


# -- building --------------------------------------------------------------------------------------


@kernel(allocates=False)
def fill_sieve(tests, first, last, sieve):
    """Dimension and rank of another value that each conjunction first..last-1 requires, or NOTHING."""
    slots, start, dim, low, high, _ = tests
    for c in range(first, last):
        sieve[c - first] = NOTHING
        if slots[c] & COMPLEX:
            continue
        for i in range(start[c], start[c + 1] - 2):
            if low[i] == high[i] != MISSING:
                sieve[c - first] = (np.int64(dim[i]) << 32) | np.int64(low[i])
                break


@kernel(allocates=False)
def to_columns(sieve, column, columns):
    """Replace dimensions by columns; NOTHING becomes MISSING in the last column, which no event has."""
    for i in range(len(sieve)):
        if sieve[i] == NOTHING:
            sieve[i] = (np.int64(columns) << 32) | (np.int64(MISSING) & 0xFFFFFFFF)
        else:
            sieve[i] = (np.int64(column[sieve[i] >> 32]) << 32) | (sieve[i] & 0xFFFFFFFF)


@kernel
def offers(tests, chances, cut_count, prices, least):
    """What each conjunction would cost on each pair of dimensions in which it requires values.

    Returns the pairs (lesser dimension * width + the other), the conjunctions, and the costs, where they are
    below `least`, the cost of the conjunction without value pairs.
    """
    start, width = tests[0], np.int64(len(cut_count))
    pair, whose, price = np.empty(1024, np.int64), np.empty(1024, np.int32), np.empty(1024, np.float32)
    equal, often = np.empty(EQUAL, np.int64), np.empty(EQUAL)
    n = np.int64(0)
    for c in range(len(start) - 1):
        equals = value_tests(tests, chances, cut_count, c, equal, often)
        if n + equals * equals > len(pair):
            pair, whose, price = enlarged(pair, n), enlarged(whose, n), enlarged(price, n)
        for x in range(equals):
            for y in range(x):
                own = value_pair_cost(often, equals, x, y, prices, start[c + 1] - start[c])
                p, q = np.int64(tests[1][equal[x]]), np.int64(tests[1][equal[y]])
                if own < least[c]:
                    pair[n], whose[n], price[n] = min(p, q) * width + max(p, q), c, own
                    n += 1
    return pair[:n].copy(), whose[:n].copy(), price[:n].copy()


@kernel
def choose_value_pairs(begin, whose, price, least, fixed, scale, most):
    """Pairs that save more than they cost, best first: greedily, by savings beside those chosen before.

    The offers of pair u are begin[u]..begin[u + 1]-1; it costs `fixed[u]` for every event. A conjunction
    counts `scale` times. Savings only fall as others are chosen, so a pair that is still first after its
    savings were computed again is the best of all.
    """
    now = least.copy()
    heap = [(0.0, np.int64(-1))]
    for u in range(len(fixed)):
        heap += [(-_saves(begin, whose, price, now, u) * scale + fixed[u], np.int64(u))]
    heapify(heap)
    chosen = np.empty(min(most, len(fixed)), np.int64)
    n = 0
    while n < len(chosen):
        _, u = heappop(heap)
        if u < 0:
            break
        loss = -_saves(begin, whose, price, now, u) * scale + fixed[u]
        if loss > heap[0][0]:
            heappush(heap, (loss, u))
            continue
        chosen[n] = u
        n += 1
        for i in range(begin[u], begin[u + 1]):
            now[whose[i]] = min(now[whose[i]], price[i])
    return chosen[:n]


@kernel(allocates=False)
def _saves(begin, whose, price, now, u):
    """What pair u would save. A small saving counts as none: chances are only estimates."""
    saved = 0.0
    for i in range(begin[u], begin[u + 1]):
        if price[i] < _CLEARLY * now[whose[i]]:
            saved += now[whose[i]] - price[i]
    return saved
