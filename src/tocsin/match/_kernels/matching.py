"""Matching a block of events against a segment. The arrays are those of `segment.py`.

*Candidates*: for each value of each event, slices of lists (`_slices`), dimension by dimension; or pairs of
dimensions. *Verification*: the tests of a conjunction, event by event, over a table of the event's ranks.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.building import MISSING, hash64, lower, upper
from tocsin.match._kernels.intrinsics import prefetch
from tocsin.match._kernels.partners import WORDS, by_bloom, by_partners, gather_partners
from tocsin.predicate.flat import NEGATED, OR_NEXT

__all__ = ["COMPLEX", "SEVERAL", "SLOT", "match_each"]

_AHEAD = 8  # runs of entries that memory is asked for in advance
COMPLEX, SEVERAL, SLOT = np.uint32(1 << 31), np.uint32(1 << 30), np.uint32((1 << 30) - 1)


@njit(cache=True, nogil=True, inline="always")
def _passes(table, tag, first, last, dim, low, high, flags):
    """Do all tests first..last-1 of a conjunction hold?"""
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


@njit(cache=True, nogil=True)
def _wider(out, n):
    wider = np.empty(max(2 * len(out), n + 1024), out.dtype)
    wider[: min(n, len(out))] = out[: min(n, len(out))]
    return wider


@njit(cache=True, nogil=True)
def match_each(arrays, cut_start, runs, ranked, coded, owner, number, out):
    """All paths but the bit-sliced one.

    The events come twice: `runs` and `ranked`, dimension by dimension; `coded`, event by event, with the
    number of the first. Returns packed matches and how many there are, packed matches that may occur
    twice, and how many candidates were checked on the lists, on the pairs and always. The first are
    written to `out`; if it is too small, a larger one is made.
    """
    checks, direct, checked, shared, pairs, values, deep, deepens, always, width = arrays
    n = 0
    twice, m = np.empty(64, np.int64), 0
    seen = np.zeros(4, np.int64)
    if len(direct.at):
        slices, count, total = _slices(direct, cut_start, runs, ranked)
        if n + total > len(out):
            out = _wider(out, n + total)
        n = _tell(checks.slot, direct, slices, count, coded[4], owner, number, out, n)
    if len(checked.at):
        out, n, twice, m, seen[0] = _match_lists(
            checks, checked, cut_start, runs, ranked, coded, owner, number, out, n, twice, m
        )
    if len(shared.at):
        out, n, twice, m, more = _match_lists(
            checks, shared, cut_start, runs, ranked, coded, owner, number, out, n, twice, m
        )
        seen[0] += more
    if len(pairs.key) or len(values.key) or always[1] > always[0]:
        out, n, twice, m, seen[1], seen[2] = _match_events(
            width,
            checks,
            (pairs, values, deep, deepens),
            cut_start,
            always,
            coded,
            owner,
            number,
            out,
            n,
            twice,
            m,
        )
    return out, n, twice[:m], seen


@njit(cache=True, nogil=True)
def _match_lists(checks, lists, cut_start, runs, ranked, coded, owner, number, out, n, twice, m):
    """Conjunctions that hang on one test, or on a clause: candidates, then verification."""
    slices, count, total = _slices(lists, cut_start, runs, ranked)
    if n + total > len(out):
        out = _wider(out, n + total)
    if m + total > len(twice):
        twice = _wider(twice, m + total)
    n, m = _verify(checks, lists, slices, count, coded, owner, number, out, n, twice, m)
    return out, n, twice, m, total


@njit(cache=True, nogil=True)
def _slices(lists, cut_start, runs, ranked):
    """The slices of lists that hold the values: event, begin, end; the rank where two ends are to be checked.

    Returns them, how many there are, and how many entries they have.
    """
    run_dim, run_start = runs
    event, rank = ranked
    at, ends, low, base = lists.at, lists.ends, lists.low, lists.base
    out, n, total = np.empty((1024, 4), np.int32), 0, 0
    count = len(run_dim)
    for r in range(min(_AHEAD, count)):
        _fetch_places(at, cut_start, run_dim[r], rank, run_start[r], run_start[r + 1])
    for r in range(count):
        if r + _AHEAD < count:
            s = r + _AHEAD
            _fetch_places(at, cut_start, run_dim[s], rank, run_start[s], run_start[s + 1])
        d = run_dim[r]
        begin = ends[d - 1, 1] if d else at[0, 0]
        if begin == ends[d, 1] and ends[d, 2] == ends[d, 3]:
            continue
        i, z = run_start[r], run_start[r + 1]
        if n + 4 * (z - i) > len(out):
            wider = np.empty((max(2 * len(out), n + 4 * (z - i)), 4), np.int32)
            wider[:n] = out[:n]
            out = wider
        first = cut_start[d] + d
        own = ends[d, 0], ends[d, 2], ends[d, 3]
        n, total = _run_slices(at, own, low, base, first, (event, rank), i, z, out, n, total)
    return out, n, total


@njit(cache=True, nogil=True, inline="always")
def _fetch_places(at, cut_start, d, rank, i, z):
    """Ask for the places of the entries i..z-1 of a dimension; of many, for the first ones."""
    first = cut_start[d] + d
    for j in range(i, min(z, i + _AHEAD)):
        prefetch(at, 3 * (first + (rank[j] >> 1)))


@njit(cache=True, nogil=True)
def _run_slices(at, ends, low, base, first, ranked, i, z, out, n, total):
    """Of the entries i..z-1, all of one dimension; the places of its cuts begin at `first`."""
    event, rank = ranked
    up, two, two_end = ends
    for j in range(i, z):
        p = first + (rank[j] >> 1)
        q = p + (rank[j] & 1)
        a, b = at[p, 0], at[q, 0]  # equal: exactly this cut
        out[n, 0], out[n, 1], out[n, 2], out[n, 3] = event[j], a, b, MISSING
        n, total = n + (a < b), total + b - a
        a = at[p, 1]  # up to a cut: this one or a later one
        out[n, 0], out[n, 1], out[n, 2], out[n, 3] = event[j], a, up, MISSING
        n, total = n + (a < up), total + up - a
        b = at[q, 2]  # from a cut on, which stand behind them: an earlier one, or this
        out[n, 0], out[n, 1], out[n, 2], out[n, 3] = event[j], up, b, MISSING
        n, total = n + (up < b), total + b - up
        if two < two_end:
            b = base + upper(low, two - base, two_end - base, rank[j])
            out[n, 0], out[n, 1], out[n, 2], out[n, 3] = event[j], two, b, rank[j]
            n, total = n + (two < b), total + b - two
    return n, total


@njit(cache=True, nogil=True)
def _tell(slots, lists, slices, count, e0, owner, number, out, n):
    """Conjunctions of one test: every entry of a slice matches, if its other end holds too. There is room."""
    high, top, base = lists.high, lists.top, lists.base
    all_alive = len(owner) == 0
    for s in range(count):
        row, rank = np.int64(e0 + slices[s, 0]), slices[s, 3]
        a, z = slices[s, 1], slices[s, 2]
        prefetch(slots, np.int64(slices[min(s + 8, count - 1), 1]))
        if rank == MISSING and all_alive:
            for t in range(a, z):
                out[n] = (np.int64(slots[t] & SLOT) << 32) | row
                n += 1
        elif rank == MISSING:
            for t in range(a, z):
                slot = np.int64(slots[t] & SLOT)
                out[n] = (slot << 32) | row
                n += owner[slot] == number
        else:
            t = np.int64(a)
            while t < z:
                k = t - base
                if not k & 31 and top[k >> 5] < rank:
                    t += 32
                    continue
                slot = np.int64(slots[t] & SLOT)
                out[n] = (slot << 32) | row
                n += high[k] >= rank and (all_alive or owner[slot] == number)
                t += 1
    return n


@njit(cache=True, nogil=True, inline="always")
def _inside(start, dims, ranks, bits, e, d, low, high, negated):
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
def _passes_clauses(coded, e, tests, dim, low, high, flags):
    """Do all clauses hold that the tests from tests[0] to before tests[1] make up?"""
    start, dims, ranks, bits, _ = coded
    i = tests[0]
    while i < tests[1]:
        passed = _inside(start, dims, ranks, bits, e, dim[i], low[i], high[i], flags[i] & NEGATED != 0)
        while flags[i] & OR_NEXT:
            i += 1
            passed = passed or _inside(
                start, dims, ranks, bits, e, dim[i], low[i], high[i], flags[i] & NEGATED != 0
            )
        if not passed:
            return False
        i += 1
    return True


@njit(cache=True, nogil=True)
def _verify(checks, lists, slices, count, coded, owner, number, out, n, twice, m):
    """Conjunctions that hang on one test: slices of lists, then all their tests. There is room.

    In order of the lists, so that the tests are read one after the other; events are small and at hand.
    """
    slots, first, dim, tests_low, tests_high, flags = checks
    high, top, base, target = lists.high, lists.top, lists.base, lists.target
    start, dims, ranks, bits, e0 = coded
    all_alive, indirect = len(owner) == 0, len(target) > 0
    for s in range(count):
        e, t, z, rank = slices[s, 0], np.int64(slices[s, 1]), slices[s, 2], slices[s, 3]
        row = np.int64(e0 + e)
        if not indirect:
            ahead = np.int64(slices[min(s + 12, count - 1), 1])
            prefetch(slots, ahead)
            prefetch(first, ahead)
            q = first[slices[min(s + 4, count - 1), 1]]
            prefetch(dim, q)
            prefetch(tests_low, q)
            prefetch(tests_high, q)
        while t < z:
            if rank != MISSING:  # two ends: the low one holds, does the high one?
                k = t - base
                if not k & 31 and top[k >> 5] < rank:
                    t += 32
                    continue
                if high[k] < rank:
                    t += 1
                    continue
            c = np.int64(target[t]) if indirect else t
            t += 1
            tag = slots[c]
            passed = True
            if tag & COMPLEX:
                tests = first[c], first[c + 1]
                passed = _passes_clauses(coded, e, tests, dim, tests_low, tests_high, flags)
            else:
                for q in range(first[c], first[c + 1]):
                    if not _inside(start, dims, ranks, bits, e, dim[q], tests_low[q], tests_high[q], False):
                        passed = False
                        break
            if not passed:
                continue
            slot = np.int64(tag & SLOT)
            if all_alive or owner[slot] == number:
                if tag & SEVERAL:
                    twice[m] = (slot << 32) | row
                    m += 1
                else:
                    out[n] = (slot << 32) | row
                    n += 1
    return n, m


@njit(cache=True, nogil=True)
def _match_events(width, checks, pairs, cut_start, always, coded, owner, number, out, n, twice, m):
    """Event by event: conjunctions by two of its dimensions, by two of its values, and those always asked."""
    start, dims, ranks, _, e0 = coded
    by_dim, by_value, deep, deepens = pairs
    nowhere = np.zeros(0, np.bool_)
    table = np.full(width, MISSING, np.int32)
    most = 1
    for e in range(len(start) - 1):
        most = max(most, start[e + 1] - start[e])
    room = (
        np.empty(2 * most + 1024, np.int64),
        np.empty((2, most), np.uint64),
        np.empty(most * WORDS, np.uint64),
    )
    ids = np.empty(most, np.int64)
    seen = 0
    for e in range(len(start) - 1):
        s0, size = start[e], start[e + 1] - start[e]
        alive = owner, number, np.int64(e0 + e)
        for i in range(s0, s0 + size):
            table[dims[i]] = ranks[i]
        if len(by_dim.key):
            if len(by_dim.partners):  # those of the next event
                for i in range(start[e + 1], start[min(e + 2, len(start) - 1)]):
                    prefetch(by_dim.partners, WORDS * np.int64(dims[i]))
            for i in range(size):
                ids[i] = dims[s0 + i]
            out, n, twice, m, seen = _match_pairs(
                by_dim,
                by_dim,
                nowhere,
                np.int64(width),
                ids,
                size,
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
        if len(by_value.key):
            known = 0
            for i in range(s0, s0 + size):  # values that are equal to a cut
                ids[known] = cut_start[dims[i]] + (ranks[i] >> 1)
                known += ranks[i] & 1
            out, n, twice, m, seen = _match_pairs(
                by_value,
                deep,
                deepens,
                cut_start[width],
                ids,
                known,
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
            out, n, twice, m = _check_all(table, checks, always[0], always[1], alive, out, n, twice, m)
        for i in range(s0, s0 + size):
            table[dims[i]] = MISSING
    return out, n, twice, m, seen, (always[1] - always[0]) * (len(start) - 1)


@njit(cache=True, nogil=True, inline="always")
def _find_key(keys, key):
    """Where a key is in a hash table, or where it would be."""
    mask = np.uint64(len(keys) - 1)
    h = hash64(key) & mask
    while keys[h] >= 0 and keys[h] != key:
        h = (h + np.uint64(1)) & mask
    return h


@njit(cache=True, nogil=True)
def _match_pairs(pairs, deep, deepens, width, ids, size, room, table, checks, alive, out, n, twice, m, seen):
    """Conjunctions by two of an event's `ids`, ascending and below `width`; if that `deepens`, by three."""
    bloom, partners, keys, values, begins = pairs
    found, own, rows = room
    mask = np.uint64(len(keys) - 1)
    if len(partners):
        gather_partners(partners, ids, size, own[0], own[1], rows)
    i = np.int64(0)
    while i < size:
        if len(partners):
            hits, i = by_partners(own[0], own[1], rows, size, i, found)
        else:
            hits, i = by_bloom(bloom, width, ids, size, i, found)
        for k in range(hits):
            found[k] = ids[found[k] // size] * width + ids[found[k] % size]
            prefetch(keys, np.int64(hash64(found[k]) & mask))
        for k in range(hits):
            key = found[k]
            h = _find_key(keys, key)
            if keys[h] == key:
                begin, end = np.int64(begins[values[h]]), np.int64(begins[values[h] + 1])
                seen += end - begin
                out, n, twice, m = _check_all(table, checks, begin, end, alive, out, n, twice, m)
                if len(deepens) and deepens[values[h]]:
                    base = np.int64(values[h]) * width
                    out, n, twice, m, seen = _match_deep(
                        deep, base, ids, size, rows, table, checks, alive, out, n, twice, m, seen
                    )
    return out, n, twice, m, seen


@njit(cache=True, nogil=True)
def _match_deep(deep, base, ids, size, places, table, checks, alive, out, n, twice, m, seen):
    """Conjunctions by two of an event's values, whose keys begin at `base`, and another one."""
    one = np.uint64(1)
    bits, six, seven, word = np.uint64(64 * len(deep.bloom) - 1), np.uint64(6), np.uint64(7), np.uint64(63)
    hits = 0
    for i in range(size):
        h = hash64(base + ids[i])
        places[hits] = np.uint64(base + ids[i])
        b = (h >> seven) & bits
        hits += np.int64((deep.bloom[b >> six] >> (b & word)) & one)
    for k in range(hits):
        key = np.int64(places[k])
        h = _find_key(deep.key, key)
        if deep.key[h] == key:
            begin, end = np.int64(deep.start[deep.value[h]]), np.int64(deep.start[deep.value[h] + 1])
            seen += end - begin
            out, n, twice, m = _check_all(table, checks, begin, end, alive, out, n, twice, m)
    return out, n, twice, m, seen


@njit(cache=True, nogil=True)
def _check_all(table, checks, begin, end, alive, out, n, twice, m):
    """Which of the conjunctions begin..end-1 pass an event?"""
    slots, first, dim, low, high, flags = checks
    owner, number, row = alive
    if n + end - begin > len(out):
        out = _wider(out, n + end - begin)
    if m + end - begin > len(twice):
        twice = _wider(twice, m + end - begin)
    for c in range(begin, end):
        tag = slots[c]
        if not _passes(table, tag, first[c], first[c + 1], dim, low, high, flags):
            continue
        slot = np.int64(tag & SLOT)
        if len(owner) == 0 or owner[slot] == number:
            if tag & SEVERAL:
                twice[m] = (slot << 32) | row
                m += 1
            else:
                out[n] = (slot << 32) | row
                n += 1
    return out, n, twice, m
