"""Matching events against the mutable segment. The arrays are `MutableArrays` of `segments/mutable.py`.

*Lists*, dimension by dimension: all values that events have there are compared with all entries of the list.
*Pairs*: two dimensions of an event are looked up if each is among the partners of the other.

Two kernels test a whole conjunction, one for each layout of events: `_codes_hold` for those of a batch,
sorted by event and dimension, and `codes_hold_in_table` for a single event, in a table by dimension
(`single.py`), which spares the search; `tocsin bench match` and `tocsin bench single` measure them. Both read
codes, not ranks: ranks would change with every conjunction that is added.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.compiled.instructions import prefetch
from tocsin.match._kernels.dimension_pairs import PairFilter, collect_pairs, find_pairs, pair_buffers
from tocsin.match._kernels.mutable_update import MORE, Link
from tocsin.match._kernels.ordering import CodeRuns
from tocsin.match._kernels.primitives import lower
from tocsin.match._kernels.verify import MAY_REPEAT, SLOT, Counter, Found, enlarged, new_found
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = ["EventCodes", "MutableCounter", "codes_hold_in_table", "match_mutable"]

_SPACE = 1 << 16  # matches that space is made for at a time
_COUNTERS = len(Counter)


class MutableCounter(IntEnum):
    """What matching counts, in the array that has the places of `Counter` in immutable segments."""

    COMPARED = 0
    PAIRED = 1
    FOLLOWED = 2  # entries whose other tests were verified
    UNINDEXED = 3


class EventCodes(NamedTuple):
    """Events one by one, as codes; `present` and `first` as in `EventRanks`."""

    start: Any
    place: Any  # of the dimension among the sorted keys of the frame, ascending within an event
    code: Any
    above: Any
    present: Any
    first: Any


@kernel
def match_mutable(arrays, frame, runs, events, owners, may_repeat, buffer):
    """Returns what was found, in `buffer` if it is large enough, and counts (`MutableCounter`).

    `frame`: the dimension of each place of events, and the place of each dimension. `may_repeat`: a slot may
    have several conjunctions. `runs` (`CodeRuns`) and `events` (`EventCodes`) have the same entries.
    """
    counters = np.zeros(_COUNTERS, np.int64)
    found, counters[MutableCounter.COMPARED], counters[MutableCounter.FOLLOWED] = _match_lists(
        arrays, frame, runs, events, owners, may_repeat, new_found(buffer)
    )
    if len(arrays.keys) > 1:
        found, counters[MutableCounter.PAIRED] = _match_pairs(arrays, frame, events, owners, found)
    if arrays.length[0]:
        found, counters[MutableCounter.UNINDEXED] = _match_unindexed(arrays, frame[1], events, owners, found)
    return found, counters


@kernel(inline=True, allocates=False)
def _test_holds(events, place, e, tests, i):
    start, dims, codes, above, present, _ = events
    flags, d = tests[i, 0] >> 32, place[tests[i, 0] & 0xFFFFFFFF]
    there = False
    at = start[e]
    if (present[e] >> np.uint64(d & 63)) & np.uint64(1):
        at = lower(dims, start[e], start[e + 1], d)
        there = at < start[e + 1] and dims[at] == d
    if flags & ABSENT:
        return not there
    if not there:
        return False
    inside = tests[i, 1] <= codes[at] and codes[at] + above[at] <= tests[i, 2]
    return inside != (flags & NEGATED != 0)


@kernel(allocates=False)
def _codes_hold(events, place, e, first, last, tests):
    """Do all clauses of tests first..last-1 hold for event e?"""
    i = first
    while i < last:
        passed = _test_holds(events, place, e, tests, i)
        while (tests[i, 0] >> 32) & OR_NEXT:
            i += 1
            passed = passed or _test_holds(events, place, e, tests, i)
        if not passed:
            return False
        i += 1
    return True


@kernel(inline=True, allocates=False)
def _test_holds_in_table(tests, i, codes):
    flags, d = tests[i, 0] >> 32, tests[i, 0] & 0xFFFFFFFF
    there = codes[d, 0]
    if flags & ABSENT:
        return there == 0
    inside = tests[i, 1] <= codes[d, 1] and codes[d, 1] <= tests[i, 2]
    return there != 0 and inside != (flags & NEGATED != 0)


@kernel(allocates=False)
def codes_hold_in_table(arrays, row, codes):
    """Do all clauses of a conjunction hold for the event in `codes`, a table by dimension?"""
    tests, i = arrays.tests, arrays.first[row]
    last = i + arrays.link[row, Link.TESTS]
    while i < last:
        passed = _test_holds_in_table(tests, i, codes)
        while (tests[i, 0] >> 32) & OR_NEXT:
            i += 1
            passed = passed or _test_holds_in_table(tests, i, codes)
        if not passed:
            return False
        i += 1
    return True


@kernel
def _match_lists(arrays, frame, runs, events, owners, may_repeat, found):
    """Conjunctions in lists; how many entries were compared, and how many had more to verify."""
    run_dim, run_start, event, code, above = runs
    number, length = frame[0], arrays.length
    r, compared, followed = np.int64(0), np.int64(0), np.int64(0)
    while r < len(run_dim):
        most, r1 = 0, r
        while r1 < len(run_dim) and most < _SPACE:  # space is made for many runs at a time
            most += length[number[run_dim[r1]] + 1] * (run_start[r1 + 1] - run_start[r1])
            r1 += 1
        compared += most
        if most <= 2 * _SPACE:
            found = _with_space(found, most, may_repeat)
            part = CodeRuns(run_dim[r:r1], run_start[r : r1 + 1], event, code, above)
            n, m, more = _match_runs(arrays, frame, part, events, owners, found)
            found, followed = Found(found.unique, n, found.repeated, m), followed + more
            r = r1
            continue
        for q in range(r, r1):  # a long list and many events: some events at a time
            long = length[number[run_dim[q]] + 1]
            step = max(1, _SPACE // max(1, long))
            for i in range(run_start[q], run_start[q + 1], step):
                z = min(i + step, run_start[q + 1])
                found = _with_space(found, long * (z - i), may_repeat)
                ends = np.empty(2, np.int64)
                ends[0], ends[1] = i, z
                part = CodeRuns(run_dim[q : q + 1], ends, event, code, above)
                n, m, more = _match_runs(arrays, frame, part, events, owners, found)
                found, followed = Found(found.unique, n, found.repeated, m), followed + more
        r = r1
    return found, compared, followed


@kernel
def _with_space(found, more, may_repeat):
    """The same with space for so many more matches."""
    unique, n, repeated, m = found
    if n + more > len(unique):
        unique = enlarged(unique, n + more)
    if may_repeat and m + more > len(repeated):
        repeated = enlarged(repeated, m + more)
    return Found(unique, n, repeated, m)


@kernel(allocates=False)
def _match_runs(arrays, frame, runs, events, owners, found):
    """Runs against the lists of their dimensions. There is space.

    Returns how many unique and repeated matches there are now, and how many entries had more to verify.
    """
    run_dim, run_start, event, code, above = runs
    number, place = frame
    owner, own = owners
    entries, tests, first, link = arrays.entries, arrays.tests, arrays.first, arrays.link
    begin, length, row0 = arrays.begin, arrays.length, events.first
    unique, n, repeated, m = found
    followed = np.int64(0)
    for r in range(len(run_dim)):
        at = number[run_dim[r]] + 1
        for k in range(begin[at], begin[at] + length[at]):
            a, b, last = entries[k, 0], entries[k, 1], entries[k, 2]
            tag = np.uint32(last & 0xFFFFFFFF)
            slot = np.int64(tag & SLOT)
            if len(owner) and owner[slot] != own:
                continue
            if not tag & (MORE | MAY_REPEAT):  # no branch to mispredict
                for j in range(run_start[r], run_start[r + 1]):
                    unique[n] = (slot << 32) | (row0 + event[j])
                    n += (a <= code[j]) & (code[j] + above[j] <= b)
                continue
            row = last >> 32
            t = first[row]
            z = t + link[row, Link.TESTS]
            t += not (tests[t, 0] >> 32)  # it is known to hold, unless it is negated
            for j in range(run_start[r], run_start[r + 1]):
                if not ((a <= code[j]) & (code[j] + above[j] <= b)):
                    continue
                e = np.int64(event[j])
                followed += 1
                if not _codes_hold(events, place, e, t, z, tests):
                    continue
                if tag & MAY_REPEAT:
                    repeated[m] = (slot << 32) | (row0 + e)
                    m += 1
                else:
                    unique[n] = (slot << 32) | (row0 + e)
                    n += 1
    return n, m, followed


@kernel
def _match_pairs(arrays, frame, events, owners, found):
    """Conjunctions under two dimensions of an event; how many were verified."""
    start, dims = events.start, events.place
    number, place = frame
    ids = np.empty(len(dims), np.int32)
    for i in range(len(dims)):
        ids[i] = number[dims[i]]
    buffers = pair_buffers(start, arrays.partners.shape[1])
    row, event, _, _ = buffers
    pair_filter = PairFilter(np.empty(0, np.uint64), arrays.partners, arrays.keys, np.int64(1 << 32))
    e, i, candidates = np.int64(0), np.int64(0), np.int64(0)
    while e < len(start) - 1:
        hits, e, i = collect_pairs(pair_filter, start, ids, e, i, buffers)
        for k in range(_look_up(arrays, row, event, hits)):
            found, more = _match_chain(arrays, row[k], place, events, event[k], owners, found)
            candidates += more
    return found, candidates


@kernel(allocates=False)
def _look_up(arrays, row, event, hits):
    """Of the keys in `row`, those that have conjunctions: the first conjunction, in `row` too; how many.

    Step by step for all of them, as in `dimension_pairs.py`.
    """
    chains, link = arrays.chains, arrays.link
    count = find_pairs(arrays.keys, chains, row, event, hits)
    found = 0
    for k in range(count):
        row[found], event[found] = chains[row[k]], event[k]
        found += row[found] >= 0
    for k in range(found):
        prefetch(link, 4 * row[k])
        prefetch(arrays.tag, row[k])
        prefetch(arrays.first, row[k])
    for k in range(found):
        prefetch(arrays.tests, 3 * arrays.first[row[k]])
    return found


@kernel
def _match_chain(arrays, c, place, events, e, owners, found):
    """Conjunctions of one pair, which event e has, from conjunction c on; how many there were."""
    owner, own = owners
    link, tags, first, tests = arrays.link, arrays.tag, arrays.first, arrays.tests
    unique, n, repeated, m = found
    row0, count = np.int64(events.first), 0
    while c >= 0:
        count += 1
        this, c = c, np.int64(link[c, Link.NEXT])
        tag = tags[this]
        slot, begin = np.int64(tag & SLOT), first[this]
        if len(owner) and owner[slot] != own:
            continue
        if not _codes_hold(events, place, e, begin, begin + link[this, Link.TESTS], tests):
            continue
        if tag & MAY_REPEAT:
            if m == len(repeated):
                repeated = enlarged(repeated, m)
            repeated[m] = (slot << 32) | (row0 + e)
            m += 1
        else:
            if n == len(unique):
                unique = enlarged(unique, n)
            unique[n] = (slot << 32) | (row0 + e)
            n += 1
    return Found(unique, n, repeated, m), count


@kernel
def _match_unindexed(arrays, place, events, owners, found):
    """Conjunctions without an access path: each is verified for every event; how many times that was."""
    unique, n, repeated, m = found
    owner, own = owners
    count, row0, candidates = len(events.start) - 1, events.first, 0
    for k in range(arrays.begin[0], arrays.begin[0] + arrays.length[0]):
        row, slot = arrays.entries[k, 2] >> 32, np.int64(arrays.entries[k, 2] & np.int64(SLOT))
        if len(owner) and owner[slot] != own:
            continue
        if m + count > len(repeated):
            repeated = enlarged(repeated, m + count)
        candidates += count
        first = arrays.first[row]
        for e in range(count):
            if _codes_hold(events, place, e, first, first + arrays.link[row, Link.TESTS], arrays.tests):
                repeated[m] = (slot << 32) | (row0 + e)
                m += 1
    return Found(unique, n, repeated, m), candidates
