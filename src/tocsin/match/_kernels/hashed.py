"""Conjunctions by two dimensions of an event, and those always asked; event by event.

An event is spread out over a table of ranks by dimension. Its pairs of dimensions that may be there are found
first, and the memory that looking them up will read is asked for.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.building import MISSING, find_key, hash64
from tocsin.match._kernels.checking import check_all
from tocsin.match._kernels.intrinsics import prefetch
from tocsin.match._kernels.partners import WORDS, by_bloom, by_partners, gather_partners

__all__ = ["match_events"]


@njit(cache=True, nogil=True)
def match_events(width, checks, pairs, always, coded, owner, number, out, n, twice, m, seen):
    """Returns packed matches as `match_each`; `seen` is told of candidates, as there."""
    start, dims, ranks, _, e0 = coded
    table = np.full(width, MISSING, np.int32)
    most = 1
    for e in range(len(start) - 1):
        most = max(most, start[e + 1] - start[e])
    room = (
        np.empty(2 * most + 1024, np.int64),
        np.empty((2, most), np.uint64),
        np.empty(most * WORDS, np.uint64),
    )
    for e in range(len(start) - 1):
        s0, size = start[e], start[e + 1] - start[e]
        alive = owner, number, np.int64(e0 + e)
        for i in range(s0, s0 + size):
            table[dims[i]] = ranks[i]
        if len(pairs.key):
            if len(pairs.partners):  # those of the next event
                for i in range(start[e + 1], start[min(e + 2, len(start) - 1)]):
                    prefetch(pairs.partners, WORDS * np.int64(dims[i]))
            out, n, twice, m = _match_pairs(
                pairs,
                np.int64(width),
                dims[s0 : s0 + size],
                room,
                table,
                checks,
                alive,
                out,
                n,
                twice,
                m,
                seen,
            )
        if always[0] < always[1]:
            out, n, twice, m = check_all(table, checks, always[0], always[1], alive, out, n, twice, m)
        for i in range(s0, s0 + size):
            table[dims[i]] = MISSING
    seen[2] = (always[1] - always[0]) * (len(start) - 1)
    return out, n, twice, m


@njit(cache=True, nogil=True)
def _match_pairs(pairs, width, dims, room, table, checks, alive, out, n, twice, m, seen):
    """Conjunctions by two of an event's dimensions, ascending and below `width`."""
    bloom, partners, keys, values, begins = pairs
    found, own, rows = room
    size, mask = len(dims), np.uint64(len(keys) - 1)
    if len(partners):
        gather_partners(partners, dims, size, own[0], own[1], rows)
    i = np.int64(0)
    while i < size:
        if len(partners):
            hits, i = by_partners(own[0], own[1], rows, size, i, found)
        else:
            hits, i = by_bloom(bloom, width, dims, size, i, found)
        for k in range(hits):
            found[k] = np.int64(dims[found[k] // size]) * width + dims[found[k] % size]
            prefetch(keys, np.int64(hash64(found[k]) & mask))
        for k in range(hits):
            h = find_key(keys, found[k])
            if keys[h] == found[k]:
                begin, end = np.int64(begins[values[h]]), np.int64(begins[values[h] + 1])
                seen[1] += end - begin
                out, n, twice, m = check_all(table, checks, begin, end, alive, out, n, twice, m)
    return out, n, twice, m
