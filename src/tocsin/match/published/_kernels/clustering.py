"""Phase 2 by clusters: only those whose access predicate the event satisfies are read.

A cluster is read column by column: a subscription's second predicate is looked at only if its first one
holds, so most cache lines of the later columns are never touched.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.primitives import prefetch
from tocsin.match._kernels.scan import grown
from tocsin.match.published._kernels.clusters import find_access
from tocsin.match.published._kernels.predicates import new_bits, satisfied

__all__ = ["match_clusters"]

_LINE = 16  # numbers in a cache line
_AHEAD = 4 * _LINE  # how far ahead to fetch


@njit(cache=True, nogil=True)
def _holds(pool, first, room, rows, bits):
    """Do the predicates of the column that starts at `first` hold?"""
    for _ in range(rows):
        if not bits[pool[first]]:
            return False
        first += room
    return True


@njit(cache=True, nogil=True)
def _check(pool, block, bits, slot, e, out, n):
    """All subscriptions of a cluster, one by one."""
    at, rows, count, room = block
    for i in range(at, at + count):
        if _holds(pool, i, room, rows, bits):
            out = grown(out, n)
            out[n] = (np.int64(slot[pool[i + rows * room]]) << 32) | e
            n += 1
    return out, n


@njit(cache=True, nogil=True)
def _check_ahead(pool, block, bits, slot, e, out, n):
    """The same by whole cache lines, with those of the first two rows on their way before they are read."""
    at, rows, count, room = block
    whole = count - count % _LINE
    for first in range(at, at + whole, _LINE):
        prefetch(pool, first + _AHEAD)
        if rows > 1:
            prefetch(pool, first + room + _AHEAD)
        for k in range(_LINE):
            if _holds(pool, first + k, room, rows, bits):
                out = grown(out, n)
                out[n] = (np.int64(slot[pool[first + k + rows * room]]) << 32) | e
                n += 1
    for i in range(at + whole, at + count):
        if _holds(pool, i, room, rows, bits):
            out = grown(out, n)
            out[n] = (np.int64(slot[pool[i + rows * room]]) << 32) | e
            n += 1
    return out, n


@njit(cache=True, nogil=True)
def _tables_of(c, tables, d, equal, own, accesses, n):
    """Accesses of the tables whose first dimension is d and whose others are in the event too."""
    for j in range(tables.first[d], tables.first[d + 1]):
        t = tables.table[j]
        size = tables.start[t + 1] - tables.start[t]
        found = 0
        while found < size and equal[tables.dims[tables.start[t] + found]] >= 0:
            own[found] = equal[tables.dims[tables.start[t] + found]]
            found += 1
        if found == size:
            a = find_access(c, t, own, size)
            if a >= 0:
                accesses[n] = a
                n += 1
    return n


@njit(cache=True, nogil=True)
def _fetch_all(key, block_of, pool, accesses, n):
    """Have the first clusters of n accesses fetched, all at once instead of one after the other."""
    for j in range(n):
        b = key[accesses[j], 1]
        if b >= 0:
            prefetch(block_of, b)
    for j in range(n):
        b = key[accesses[j], 1]
        if b >= 0:
            prefetch(pool, block_of[b].at)


@njit(cache=True, nogil=True)
def match_clusters(p, index, c, blocks, tables, slot, events, seen, ahead):
    """Packed (slot, event), and the number of subscriptions checked.

    `seen`: how often each predicate was satisfied, each dimension was there; counted on.
    """
    room = new_bits(p, events)
    bits, satisfying, _ = room
    hits, present = seen
    equal = np.full(max(events.dims, len(tables.first)), -1, np.int32)  # by dimension: its equality
    own = np.empty(c.key.shape[1], np.int32)
    accesses = np.empty(1 + len(equal) + len(tables.table), np.int64)
    key, single, group, pool, block_of = c.key, c.single, p.group, blocks.pool, blocks.of
    out, n, checked = np.empty(1024, np.int64), 0, 0
    for e in range(len(events.start) - 1):
        for i in range(events.start[e], events.start[e + 1]):
            if events.dim[i] < len(present):
                present[events.dim[i]] += 1.0
        equalities, last = satisfied(p, index, events, e, room)
        for j in range(equalities):
            equal[group[satisfying[j]] >> 3] = satisfying[j]
        candidates = 1
        accesses[0] = 0
        for j in range(equalities):
            q = satisfying[j]
            hits[q] += 1.0
            if single[q] >= 0:
                accesses[candidates] = single[q]
                candidates += 1
            d = group[q] >> 3
            if d + 1 < len(tables.first) and tables.first[d + 1] > tables.first[d]:
                candidates = _tables_of(c, tables, d, equal, own, accesses, candidates)
        if ahead:
            _fetch_all(key, block_of, pool, accesses, candidates)
        for j in range(candidates):
            b = key[accesses[j], 1]
            while b >= 0:
                count = np.int64(block_of[b].count)
                block = block_of[b].at, np.int64(block_of[b].width - 1), count, np.int64(block_of[b].room)
                checked += count
                if ahead and count >= _LINE:
                    out, n = _check_ahead(pool, block, bits, slot, e, out, n)
                else:
                    out, n = _check(pool, block, bits, slot, e, out, n)
                b = block_of[b].next
        for j in range(equalities):
            equal[group[satisfying[j]] >> 3] = -1
        for j in range(last):
            bits[satisfying[j]] = 0
    return out[:n].copy(), checked
