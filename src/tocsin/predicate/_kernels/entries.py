"""Entries of events in an index's numbers, and filters asked about single events."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT, Space

__all__ = ["code_entries", "pairs_hold"]

_TEXT, _REVERSED, _ANY = int(Space.TEXT), int(Space.REVERSED), int(Space.ANY)
_BETWEEN = int(Space.BETWEEN)


@njit(cache=True, nogil=True)
def code_entries(events, table, texts, backwards, counts, extra):
    """Start, dimension, code and between of all entries, by dimension within an event.

    `counts` and `extra`: how many pattern dimensions each entry brings, and which.
    """
    first, name, space, code = events
    most = 3 * len(name) + len(extra)
    start = np.zeros(len(first), np.int64)
    dim, codes, between = np.empty(most, np.int32), np.empty(most, np.int64), np.empty(most, np.bool_)
    n, x = 0, 0
    for e in range(len(first) - 1):
        begin = n
        for i in range(first[e], first[e + 1]):
            own = table[name[i], space[i]]
            value = code[i]
            if space[i] == _TEXT:
                value = texts[code[i]]
            if own >= 0:
                dim[n], codes[n], between[n] = own, value, space[i] == _BETWEEN
                n += 1
            if space[i] == _TEXT and table[name[i], _REVERSED] >= 0:
                dim[n], codes[n], between[n] = table[name[i], _REVERSED], backwards[code[i]], False
                n += 1
            if table[name[i], _ANY] >= 0:
                twice = False  # a number between two doubles has two entries, but is there once
                for j in range(begin, n):
                    twice = twice or dim[j] == table[name[i], _ANY]
                if not twice:
                    dim[n], codes[n], between[n] = table[name[i], _ANY], 0, False
                    n += 1
            for _ in range(counts[i]):
                dim[n], codes[n], between[n] = extra[x], 0, False
                n, x = n + 1, x + 1
        for i in range(begin + 1, n):  # events are short: insertion sort
            d, c, b = dim[i], codes[i], between[i]
            j = i
            while j > begin and dim[j - 1] > d:
                dim[j], codes[j], between[j] = dim[j - 1], codes[j - 1], between[j - 1]
                j -= 1
            dim[j], codes[j], between[j] = d, c, b
        start[e + 1] = n
    return start, dim[:n].copy(), codes[:n].copy(), between[:n].copy()


@njit(cache=True, nogil=True)
def _in_event(events, e, d, low, high, flags):
    """Does one test hold for an event? Its dimensions ascend."""
    start, dims, codes, between = events
    a, n = start[e], start[e + 1] - start[e]
    while n > 1:
        half = n >> 1
        if dims[a + half - 1] < d:
            a += half
        n -= half
    if n == 1 and dims[a] < d:
        a += 1
    there = a < start[e + 1] and dims[a] == d
    if flags & ABSENT:
        return not there
    if not there:
        return False
    inside = low <= codes[a] and codes[a] + between[a] <= high  # or just above its code
    return inside != (flags & NEGATED != 0)


@njit(cache=True, nogil=True)
def pairs_hold(filters, first, tests, events, row, out):
    """For each pair whether one of its filter's conjunctions holds: those from first[f] to first[f + 1]."""
    start, dim, low, high, flags = tests
    for p in range(len(filters)):
        out[p] = False
        for c in range(first[filters[p]], first[filters[p] + 1]):
            i, passed = start[c], True
            while passed and i < start[c + 1]:
                passed = _in_event(events, row[p], dim[i], low[i], high[i], flags[i])
                while flags[i] & OR_NEXT:
                    i += 1
                    passed = passed or _in_event(events, row[p], dim[i], low[i], high[i], flags[i])
                i += 1
            if passed:
                out[p] = True
                break
