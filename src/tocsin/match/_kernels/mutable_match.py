"""Matching events against the front. The arrays are `Parts` of `front.py`; see `hanging.py`.

*Lists*, dimension by dimension: all values that events have there are compared with all entries of its list.
*Pairs*: two dimensions of an event are looked up if each is among the partners of the other.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.build import lower
from tocsin.match._kernels.intrinsics import prefetch
from tocsin.match._kernels.mutable_update import MORE, NEXT, TESTS_OF
from tocsin.match._kernels.pair_filter import collect_pairs, find_pairs, pair_room
from tocsin.match._kernels.verify import SEEN, SEVERAL, SLOT, wider
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = ["match_front"]

_ROOM = 1 << 16  # matches that room is made for at a time


@njit(cache=True, nogil=True, inline="always")
def _holds(coded, place, e, tests, i):
    """Does a test hold for event e? Its dimensions ascend."""
    start, dims, codes, above, bits = coded
    flags, d = tests[i, 0] >> 32, place[tests[i, 0] & 0xFFFFFFFF]
    there = False
    at = start[e]
    if (bits[e] >> np.uint64(d & 63)) & np.uint64(1):
        at = lower(dims, start[e], start[e + 1], d)
        there = at < start[e + 1] and dims[at] == d
    if flags & ABSENT:
        return not there
    if not there:
        return False
    inside = tests[i, 1] <= codes[at] and codes[at] + above[at] <= tests[i, 2]
    return inside != (flags & NEGATED != 0)


@njit(cache=True, nogil=True)
def _passes(coded, place, e, first, last, tests):
    """Do all clauses of tests first..last-1 hold for event e?"""
    i = first
    while i < last:
        passed = _holds(coded, place, e, tests, i)
        while (tests[i, 0] >> 32) & OR_NEXT:
            i += 1
            passed = passed or _holds(coded, place, e, tests, i)
        if not passed:
            return False
        i += 1
    return True


@njit(cache=True, nogil=True)
def _match_runs(parts, frame, runs, r0, r1, spread, coded, alive, e0, room):
    """Entries of runs r0..r1-1 against the lists of their dimensions. There is room."""
    run_dim, run_start = runs
    event, code, beyond = spread
    number, place = frame
    owner, own = alive
    entries, tests = parts.entries, parts.tests
    out, n, twice, m, checked = room
    for r in range(r0, r1):
        at = number[run_dim[r]] + 1
        for k in range(parts.begin[at], parts.begin[at] + parts.length[at]):
            a, b, last = entries[k, 0], entries[k, 1], entries[k, 2]
            tag = np.uint32(last & 0xFFFFFFFF)
            slot = np.int64(tag & SLOT)
            if len(owner) and owner[slot] != own:
                continue
            if not tag & (MORE | SEVERAL):  # without a branch to be guessed
                for j in range(run_start[r], run_start[r + 1]):
                    out[n] = (slot << 32) | (e0 + event[j])
                    n += (a <= code[j]) & (code[j] + beyond[j] <= b)
                continue
            row = last >> 32
            t = parts.first[row]
            z = t + parts.link[row, TESTS_OF]
            t += not (tests[t, 0] >> 32)  # it is known to hold, unless it is negated
            for j in range(run_start[r], run_start[r + 1]):
                if not ((a <= code[j]) & (code[j] + beyond[j] <= b)):
                    continue
                e = event[j]
                checked += 1
                if not _passes(coded, place, e, t, z, tests):
                    continue
                if tag & SEVERAL:
                    twice[m] = (slot << 32) | (e0 + e)
                    m += 1
                else:
                    out[n] = (slot << 32) | (e0 + e)
                    n += 1
    return n, m, checked


@njit(cache=True, nogil=True)
def _match_lists(parts, frame, several, runs, spread, coded, alive, e0, out, n, twice, m):
    """Conjunctions that hang on one dimension."""
    run_dim, run_start = runs
    number, length = frame[0], parts.length
    r, seen, checked = 0, 0, 0
    while r < len(run_dim):
        most, r1 = 0, r
        while r1 < len(run_dim) and most < _ROOM:  # room is made for many runs at a time
            most += length[number[run_dim[r1]] + 1] * (run_start[r1 + 1] - run_start[r1])
            r1 += 1
        seen += most
        if most <= 2 * _ROOM:
            if n + most > len(out):
                out = wider(out, n + most)
            if several and m + most > len(twice):
                twice = wider(twice, m + most)
            room = out, n, twice, m, checked
            n, m, checked = _match_runs(parts, frame, runs, r, r1, spread, coded, alive, e0, room)
            r = r1
            continue
        for q in range(r, r1):  # a long list and many events: some events at a time
            long = length[number[run_dim[q]] + 1]
            step = max(1, _ROOM // max(1, long))
            for i in range(run_start[q], run_start[q + 1], step):
                z = min(i + step, run_start[q + 1])
                if n + long * (z - i) > len(out):
                    out = wider(out, n + long * (z - i))
                if several and m + long * (z - i) > len(twice):
                    twice = wider(twice, m + long * (z - i))
                room = out, n, twice, m, checked
                part = run_dim[q : q + 1], np.array([i, z])
                n, m, checked = _match_runs(parts, frame, part, 0, 1, spread, coded, alive, e0, room)
        r = r1
    return out, n, twice, m, seen, checked


@njit(cache=True, nogil=True)
def _match_pairs(parts, frame, coded, alive, e0, out, n, twice, m):
    """Conjunctions that hang on two dimensions of an event."""
    start, dims, _, _, _ = coded
    number, place = frame
    ids = np.empty(len(dims), np.int32)
    for i in range(len(dims)):
        ids[i] = number[dims[i]]
    room = pair_room(start, parts.partners.shape[1])
    row, event = room[2], room[3]
    e, i, seen, no_bloom = np.int64(0), np.int64(0), 0, np.empty(0, np.uint64)
    while e < len(start) - 1:
        hits, e, i = collect_pairs(no_bloom, parts.partners, parts.keys, 1 << 32, start, ids, e, i, room)
        for k in range(_look_up(parts, row, event, hits)):
            out, n, twice, m, seen = _match_chain(
                parts, row[k], place, coded, event[k], alive, e0 + event[k], out, n, twice, m, seen
            )
    return out, n, twice, m, seen


@njit(cache=True, nogil=True)
def _look_up(parts, row, event, hits):
    """Of the keys in `row`, those that conjunctions hang on: the first conjunction, in `row` too; how many.

    Step by step for all of them, as in `hashed.py`.
    """
    chains, link = parts.chains, parts.link
    count = find_pairs(parts.keys, chains, row, event, hits)
    found = 0
    for k in range(count):
        row[found], event[found] = chains[row[k]], event[k]
        found += row[found] >= 0
    for k in range(found):
        prefetch(link, 4 * row[k])
        prefetch(parts.tag, row[k])
        prefetch(parts.first, row[k])
    for k in range(found):
        prefetch(parts.tests, 3 * parts.first[row[k]])
    return found


@njit(cache=True, nogil=True)
def _match_chain(parts, c, place, coded, e, alive, event, out, n, twice, m, seen):
    """Conjunctions of one pair, which event e has."""
    owner, own = alive
    link = parts.link
    while c >= 0:
        seen += 1
        this, c = c, np.int64(link[c, NEXT])
        tag = parts.tag[this]
        slot, first = np.int64(tag & SLOT), parts.first[this]
        if len(owner) and owner[slot] != own:
            continue
        if not _passes(coded, place, e, first, first + link[this, TESTS_OF], parts.tests):
            continue
        if tag & SEVERAL:
            if m == len(twice):
                twice = wider(twice, m)
            twice[m] = (slot << 32) | event
            m += 1
        else:
            if n == len(out):
                out = wider(out, n)
            out[n] = (slot << 32) | event
            n += 1
    return out, n, twice, m, seen


@njit(cache=True, nogil=True)
def match_front(parts, frame, several, runs, spread, coded, e0, alive, out):
    """Packed matches and how many; packed matches that may occur twice; how much was compared in lists, was
    asked of pairs, was checked after comparing, and was asked of what hangs on nothing.

    `frame`: the dimension of each place of events, and the place of each dimension. `alive`: the owners of
    slots (empty if all are alive), and the number that is this front's.
    """
    twice, m, n = np.empty(64, np.int64), 0, 0
    seen = np.zeros(SEEN, np.int64)  # as of a segment
    out, n, twice, m, seen[0], seen[2] = _match_lists(
        parts, frame, several, runs, spread, coded, alive, e0, out, n, twice, m
    )
    if len(parts.keys) > 1:
        out, n, twice, m, seen[1] = _match_pairs(parts, frame, coded, alive, e0, out, n, twice, m)
    events = len(coded[0]) - 1
    owner, own = alive
    for k in range(parts.begin[0], parts.begin[0] + parts.length[0]):  # they are always asked
        row, slot = parts.entries[k, 2] >> 32, np.int64(parts.entries[k, 2] & np.int64(SLOT))
        if len(owner) and owner[slot] != own:
            continue
        if m + events > len(twice):
            twice = wider(twice, m + events)
        seen[3] += events
        first = parts.first[row]
        for e in range(events):
            if _passes(coded, frame[1], e, first, first + parts.link[row, TESTS_OF], parts.tests):
                twice[m] = (slot << 32) | (e0 + e)
                m += 1
    return out, n, twice[:m], seen
