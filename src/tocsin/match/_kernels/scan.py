"""Whether a conjunction holds for an event, and the plain scan over all of them."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = ["clear_table", "fill_table", "grown", "holds", "new_table", "scan"]


@njit(cache=True, nogil=True)
def new_table(dims):
    """An event spread out by dimension: is it there, its code, is it just above the code."""
    return np.zeros(dims, np.bool_), np.zeros(dims, np.int64), np.zeros(dims, np.bool_)


@njit(cache=True, nogil=True)
def fill_table(table, events, e):
    """Spread event e out."""
    there, code, between = table
    for i in range(events.start[e], events.start[e + 1]):
        d = events.dim[i]
        there[d], code[d], between[d] = True, events.code[i], events.between[i]


@njit(cache=True, nogil=True)
def clear_table(table, events, e):
    """Take event e off again."""
    for i in range(events.start[e], events.start[e + 1]):
        table[0][events.dim[i]] = False


@njit(cache=True, nogil=True)
def _passes(table, dim, low, high, flags):
    there, code, between = table
    if flags & ABSENT:
        return not there[dim]
    if not there[dim]:
        return False
    x = code[dim]
    inside = low <= x <= high
    if inside and between[dim] and x == high and high != np.int64(9223372036854775807):
        inside = False  # it lies above the interval's last code
    return inside != ((flags & NEGATED) != 0)


@njit(cache=True, nogil=True)
def holds(table, tests, first, last):
    """Do the tests first..last-1 (of dim, low, high, flags) hold: every clause, some test of it?"""
    i = first
    while i < last:
        passed = _passes(table, tests.dim[i], tests.low[i], tests.high[i], tests.flags[i])
        while tests.flags[i] & OR_NEXT:
            i += 1
            passed = passed or _passes(table, tests.dim[i], tests.low[i], tests.high[i], tests.flags[i])
        if not passed:
            return False
        i += 1
    return True


@njit(cache=True, nogil=True)
def grown(out, n):
    """The output with twice the room, if it is full."""
    if n < len(out):
        return out
    wider = np.empty(2 * len(out), out.dtype)
    wider[:n] = out
    return wider


@njit(cache=True, nogil=True)
def scan(conjunctions, events):
    """Every conjunction asked about every event; packed (slot, event)."""
    table = new_table(events.dims)
    out, n = np.empty(1024, np.int64), 0
    for e in range(len(events.start) - 1):
        fill_table(table, events, e)
        for c in range(len(conjunctions.slot)):
            if holds(table, conjunctions, conjunctions.start[c], conjunctions.start[c + 1]):
                out = grown(out, n)
                out[n] = (np.int64(conjunctions.slot[c]) << 32) | e
                n += 1
        clear_table(table, events, e)
    return out[:n].copy()
