"""Does a conjunction hold for an event? And the buffer of those that do.

An immutable segment knows events as ranks (`segments/immutable.py`). They lie in memory in two ways, and for
each there is one place that answers the question (for mutable segments, in `mutable_match.py`):

    a table     `table[dimension]` is the rank of one event, MISSING if absent    `holds_in_table`
    by event    the dimensions of each event, ascending, with their ranks         `rank_of`, `clauses_hold`

The table serves candidates that come event by event; filling it for each candidate of a list would cost more
than searching a short event. A plain conjunction (intervals that must all hold) is tested with `rank_of`
inside the loops of `candidates.py` and `value_pairs.py` themselves: an inlined function that takes their ten
arrays as tuples makes Numba count references for each candidate, and 400,000 candidates took 175 instead of
139 ms.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.match._kernels.primitives import MISSING, lower
from tocsin.predicate.flat import NEGATED, OR_NEXT

__all__ = [
    "COMPLEX", "MAY_REPEAT", "SLOT", "Counter", "EventRanks", "Found", "Owners", "RankRuns", "clauses_hold",
    "emit_match", "enlarged", "holds_in_table", "lacks_space", "new_found", "new_table", "rank_of",
    "verify_in_table", "with_space",
]  # fmt: skip

COMPLEX = np.uint32(1 << 31)  # in a tag: the conjunction has negated tests, or clauses of several
MAY_REPEAT = np.uint32(1 << 30)  # in a tag: another conjunction or list may find the same match
SLOT = np.uint32((1 << 30) - 1)


class Counter(IntEnum):
    """What the kernels count: candidates by access path, and keys of two values that were looked up."""

    LISTS = 0
    PAIRS = 1
    UNINDEXED = 2
    BITS = 3
    VALUES = 4
    LOOKUPS = 5


class EventRanks(NamedTuple):
    """Events one by one, as ranks."""

    start: Any  # by event: where its entries begin
    dim: Any  # ascending within an event
    rank: Any
    present: Any  # by event: a bit for each of its dimensions, by the last six bits of its number
    first: Any  # the row of the first event


class RankRuns(NamedTuple):
    """Entries by dimension: run r is of dimension dim[r], from start[r] to before start[r + 1]."""

    dim: Any
    start: Any
    event: Any
    rank: Any


class Owners(NamedTuple):
    """A segment owns the slots with `of[slot] == number`; if `of` is empty, all that it has."""

    of: Any
    number: Any


class Found(NamedTuple):
    """Verified matches, packed; `repeated` ones may be found again, and are deduplicated at the end."""

    unique: Any
    unique_count: Any
    repeated: Any
    repeated_count: Any


@kernel
def new_found(buffer):
    """Nothing found yet; unique matches go to `buffer`, or to a larger one if it is too small."""
    return Found(buffer, np.int64(0), np.empty(64, np.int64), np.int64(0))


@kernel
def enlarged(buffer, count):
    """The buffer with space for `count` at least, and more."""
    more = np.empty(max(2 * len(buffer), count + 1024), buffer.dtype)
    for i in range(min(count, len(buffer))):  # slices would compile the text of an error about their lengths
        more[i] = buffer[i]
    return more


@kernel(inline=True, allocates=False)
def lacks_space(found, more):
    """Whether there is no space for so many more matches of either kind."""
    return found.unique_count + more > len(found.unique) or found.repeated_count + more > len(found.repeated)


@kernel
def with_space(found, more):
    """The same with space for so many more matches of either kind."""
    unique, n, repeated, m = found
    if n + more > len(unique):
        unique = enlarged(unique, n + more)
    if m + more > len(repeated):
        repeated = enlarged(repeated, m + more)
    return Found(unique, n, repeated, m)


@kernel(inline=True, allocates=False)
def emit_match(tag, row, owner, number, unique, n, repeated, m):
    """Write the match of a conjunction and a row, if the segment owns the slot. There is space."""
    slot = np.int64(tag & SLOT)
    if len(owner) == 0 or owner[slot] == number:
        if tag & MAY_REPEAT:
            repeated[m] = (slot << 32) | row
            m += 1
        else:
            unique[n] = (slot << 32) | row
            n += 1
    return n, m


# -- one event as a table of ranks -----------------------------------------------------------------


@kernel
def new_table(width):
    """A table without an event."""
    table = np.empty(width, np.int32)
    for d in range(width):
        table[d] = MISSING
    return table


@kernel(inline=True, allocates=False)
def holds_in_table(table, tag, first, last, dim, low, high, flags):
    """Do all tests first..last-1 of a conjunction hold for the event in `table`?"""
    if tag & COMPLEX:
        return _clauses_hold_in_table(table, first, last, dim, low, high, flags)
    for i in range(first, last):
        x = table[dim[i]]
        if x < low[i] or x > high[i]:
            return False
    return True


@kernel(allocates=False)
def _clauses_hold_in_table(table, first, last, dim, low, high, flags):
    i = first
    while i < last:
        passed = _rank_passes(table[dim[i]], low[i], high[i], flags[i])
        while flags[i] & OR_NEXT:
            i += 1
            passed = passed or _rank_passes(table[dim[i]], low[i], high[i], flags[i])
        if not passed:
            return False
        i += 1
    return True


@kernel(inline=True, allocates=False)
def _rank_passes(x, low, high, flags):
    """Is a rank inside, or outside if the test is negated? A test of absence is MISSING..MISSING."""
    inside = low <= x <= high
    if flags & NEGATED:
        inside = x != MISSING and not inside
    return inside


@kernel(allocates=False)
def verify_in_table(table, tests, begin, end, owners, row, found):
    """Emit those of the conjunctions begin..end-1 that hold for the event in `table`. There is space.

    Returns how many unique and repeated matches there are now.
    """
    slots, first, dim, low, high, flags = tests
    owner, number = owners
    unique, n, repeated, m = found
    for c in range(begin, end):
        tag = slots[c]
        if holds_in_table(table, tag, first[c], first[c + 1], dim, low, high, flags):
            n, m = emit_match(tag, row, owner, number, unique, n, repeated, m)
    return n, m


# -- events one by one -----------------------------------------------------------------------------


@kernel(inline=True, allocates=False)
def rank_of(start, dims, ranks, present, e, d):
    """The rank of event e in a dimension, MISSING if it is absent. The arrays are those of `EventRanks`."""
    if not (present[e] >> np.uint64(d & 63)) & np.uint64(1):
        return MISSING
    at = start[e] + d  # where it is if the event has all dimensions
    if at >= start[e + 1] or dims[at] != d:
        at = lower(dims, start[e], start[e + 1], d)
        if at == start[e + 1] or dims[at] != d:
            return MISSING
    return ranks[at]


@kernel(allocates=False)
def clauses_hold(events, e, first, last, tests):
    """Do all clauses of tests first..last-1 hold for event e?"""
    start, dims, ranks, present, _ = events
    _, _, dim, low, high, flags = tests
    i = first
    while i < last:
        x = rank_of(start, dims, ranks, present, e, dim[i])
        passed = _rank_passes(x, low[i], high[i], flags[i])
        while flags[i] & OR_NEXT:
            i += 1
            x = MISSING if passed else rank_of(start, dims, ranks, present, e, dim[i])
            passed = passed or _rank_passes(x, low[i], high[i], flags[i])
        if not passed:
            return False
        i += 1
    return True
