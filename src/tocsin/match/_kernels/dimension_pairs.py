"""Conjunctions by two dimensions of an event, and those always asked.

The tables are larger than the caches. So some pairs are looked up at a time, each step for all of them before
the next one, and what a step will read was asked for in the one before:

    pair ─► its place in the table ─► its number ─► its conjunctions ─► their tests ─► verified

For verification an event is spread out over a table of ranks by dimension.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.build import MISSING
from tocsin.match._kernels.intrinsics import prefetch
from tocsin.match._kernels.pair_filter import collect_pairs, find_pairs, pair_room
from tocsin.match._kernels.verify import check_all

__all__ = ["match_always", "match_pairs"]


@njit(cache=True, nogil=True)
def match_pairs(width, checks, pairs, coded, owner, number, out, n, twice, m):
    """Conjunctions by two dimensions; returns packed matches as `match_each`, and how many were checked."""
    bloom, partners, keys, values, begins = pairs
    start, dims, ranks, _, e0 = coded
    table, shown = np.full(width, MISSING, np.int32), np.int64(-1)
    room = pair_room(start, partners.shape[1])
    place, event = room[2], room[3]
    e, i, seen = np.int64(0), np.int64(0), 0
    while e < len(start) - 1:
        hits, e, i = collect_pairs(bloom, partners, keys, width, start, dims, e, i, room)
        count = _look_up(keys, values, begins, checks, place, event, hits)
        for k in range(count):
            begin, end = np.int64(begins[place[k]]), np.int64(begins[place[k] + 1])
            seen += end - begin
            if event[k] != shown:
                if shown >= 0:
                    _hide(table, start, dims, shown)
                shown = event[k]
                _show(table, start, dims, ranks, shown)
            alive = owner, number, np.int64(e0 + shown)
            out, n, twice, m = check_all(table, checks, begin, end, alive, out, n, twice, m)
    return out, n, twice, m, seen


@njit(cache=True, nogil=True)
def _look_up(keys, values, begins, checks, place, event, hits):
    """Of the keys in `place`, those that are there: their numbers, in `place` too; how many."""
    count = find_pairs(keys, values, place, event, hits)
    for k in range(count):
        place[k] = values[place[k]]
        prefetch(begins, place[k])
    for k in range(count):
        begin = np.int64(begins[place[k]])
        prefetch(checks.slot, begin)
        prefetch(checks.start, begin)
    for k in range(count):
        first = checks.start[begins[place[k]]]
        prefetch(checks.dim, first)
        prefetch(checks.low, first)
        prefetch(checks.high, first)
    return count


@njit(cache=True, nogil=True)
def match_always(width, checks, always, coded, owner, number, out, n, twice, m):
    """Conjunctions that are asked of every event."""
    start, dims, ranks, _, e0 = coded
    table = np.full(width, MISSING, np.int32)
    for e in range(len(start) - 1):
        _show(table, start, dims, ranks, e)
        alive = owner, number, np.int64(e0 + e)
        out, n, twice, m = check_all(table, checks, always[0], always[1], alive, out, n, twice, m)
        _hide(table, start, dims, e)
    return out, n, twice, m


@njit(cache=True, nogil=True, inline="always")
def _show(table, start, dims, ranks, e):
    for i in range(start[e], start[e + 1]):
        table[dims[i]] = ranks[i]


@njit(cache=True, nogil=True, inline="always")
def _hide(table, start, dims, e):
    for i in range(start[e], start[e + 1]):
        table[dims[i]] = MISSING
