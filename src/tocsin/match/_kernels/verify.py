"""Checking conjunctions: do the tests of one hold for an event? And room for those that do."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.build import MISSING, lower
from tocsin.predicate.flat import NEGATED, OR_NEXT

__all__ = [
    "COMPLEX", "SEEN", "SEVERAL", "SLOT", "check_all", "clauses_hold", "inside", "passes", "tell", "wider",
]  # fmt: skip

SEEN = 6  # what is counted: candidates on lists, by pairs, always, by bits, by values; values looked up
COMPLEX, SEVERAL, SLOT = np.uint32(1 << 31), np.uint32(1 << 30), np.uint32((1 << 30) - 1)


@njit(cache=True, nogil=True, inline="always")
def passes(table, tag, first, last, dim, low, high, flags):
    """Do all tests first..last-1 of a conjunction hold? `table` has the ranks of an event by dimension."""
    if tag & COMPLEX:
        return _passes_complex(table, first, last, dim, low, high, flags)
    for i in range(first, last):
        x = table[dim[i]]
        if x < low[i] or x > high[i]:
            return False
    return True


@njit(cache=True, nogil=True)
def _passes_complex(table, first, last, dim, low, high, flags):
    i = first
    while i < last:
        passed = False
        while True:
            x = table[dim[i]]
            inside = low[i] <= x <= high[i]
            if flags[i] & NEGATED:
                inside = x != MISSING and not inside
            passed = passed or inside
            if not flags[i] & OR_NEXT:
                break
            i += 1
        if not passed:
            return False
        i += 1
    return True


@njit(cache=True, nogil=True, inline="always")
def inside(start, dims, ranks, bits, e, d, low, high, negated):
    """Is the rank of event e in a dimension inside, or, if negated, outside? Dimensions ascend."""
    if not (bits[e] >> np.uint64(d & 63)) & np.uint64(1):
        return low == MISSING and not negated
    at = start[e] + d  # where it is if the event has them all
    if at >= start[e + 1] or dims[at] != d:
        at = lower(dims, start[e], start[e + 1], d)
        if at == start[e + 1] or dims[at] != d:
            return low == MISSING and not negated
    return (low <= ranks[at] <= high) != negated


@njit(cache=True, nogil=True)
def clauses_hold(start, dims, ranks, bits, e, first, last, dim, low, high, flags):
    """Do all clauses of tests first..last-1 hold for event e? The first four are events, one by one."""
    i = first
    while i < last:
        passed = inside(start, dims, ranks, bits, e, dim[i], low[i], high[i], flags[i] & NEGATED != 0)
        while flags[i] & OR_NEXT:
            i += 1
            passed = passed or inside(
                start, dims, ranks, bits, e, dim[i], low[i], high[i], flags[i] & NEGATED != 0
            )
        if not passed:
            return False
        i += 1
    return True


@njit(cache=True, nogil=True)
def wider(out, n):
    """The same with room for `n` at least, and more."""
    more = np.empty(max(2 * len(out), n + 1024), out.dtype)
    more[: min(n, len(out))] = out[: min(n, len(out))]
    return more


@njit(cache=True, nogil=True, inline="always")
def tell(tag, row, owner, number, out, n, twice, m):
    """A conjunction matches a row: that is told if its slot is alive. There is room."""
    slot = np.int64(tag & SLOT)
    if len(owner) == 0 or owner[slot] == number:
        if tag & SEVERAL:
            twice[m] = (slot << 32) | row
            m += 1
        else:
            out[n] = (slot << 32) | row
            n += 1
    return n, m


@njit(cache=True, nogil=True)
def check_all(table, checks, begin, end, alive, out, n, twice, m):
    """Which of the conjunctions begin..end-1 pass an event?"""
    slots, first, dim, low, high, flags = checks
    owner, number, row = alive
    if n + end - begin > len(out):
        out = wider(out, n + end - begin)
    if m + end - begin > len(twice):
        twice = wider(twice, m + end - begin)
    for c in range(begin, end):
        tag = slots[c]
        if not passes(table, tag, first[c], first[c + 1], dim, low, high, flags):
            continue
        n, m = tell(tag, row, owner, number, out, n, twice, m)
    return out, n, twice, m
