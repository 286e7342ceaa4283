"""Does a conjunction hold for an event that is spread out by dimension? And the scan over all conjunctions.

This is the one place where conjunctions are checked on events in this layout, for the scan and for indexes
that verify candidates; `predicate/verify.py` checks them on rows with sorted entries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = ["EventTable", "clear_table", "fill_table", "grown", "holds", "new_table", "scan"]


class EventTable(NamedTuple):
    """One event, by dimension."""

    there: Any  # whether it has a value
    code: Any
    between: Any  # whether the value lies just above its code


@kernel
def new_table(dims):
    """An empty table."""
    return EventTable(np.zeros(dims, np.bool_), np.zeros(dims, np.int64), np.zeros(dims, np.bool_))


@kernel
def fill_table(table, events, e):
    """Writes event e into the table."""
    there, code, between = table
    for i in range(events.start[e], events.start[e + 1]):
        d = events.dim[i]
        there[d], code[d], between[d] = True, events.code[i], events.between[i]


@kernel
def clear_table(table, events, e):
    """Removes event e from the table."""
    for i in range(events.start[e], events.start[e + 1]):
        table.there[events.dim[i]] = False


@kernel
def _passes(table, dim, low, high, flags):
    there, code, between = table
    if flags & ABSENT:
        return not there[dim]
    if not there[dim]:
        return False
    x = code[dim]
    inside = low <= x <= high
    if inside and between[dim] and x == high and high != np.int64(9223372036854775807):
        inside = False  # the value lies above the last code of the interval
    return inside != ((flags & NEGATED) != 0)


@kernel
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


@kernel
def grown(out, n, more):
    """The output buffer, or a larger one if it has no space for that many after the first n.

    Called before an inner loop, not in it: each iteration of a loop that may replace an array counts
    references to it, atomically, which costs more than the rest of a short one.
    """
    if n + more <= len(out):
        return out
    larger = np.empty(max(2 * len(out), n + more), out.dtype)
    for i in range(n):
        larger[i] = out[i]
    return larger


@kernel
def scan(conjunctions, events):
    """Checks every conjunction on every event; packed (slot, event)."""
    table = new_table(events.dims)
    out, n = np.empty(1024, np.int64), 0
    for e in range(len(events.start) - 1):
        fill_table(table, events, e)
        out = grown(out, n, len(conjunctions.slot))
        for c in range(len(conjunctions.slot)):
            if holds(table, conjunctions, conjunctions.start[c], conjunctions.start[c + 1]):
                out[n] = (np.int64(conjunctions.slot[c]) << 32) | e
                n += 1
        clear_table(table, events, e)
    return out[:n].copy()
