"""Matching a block of events against a segment. The arrays are those of `segment.py`."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.building import MISSING, hash64, lower, upper
from tocsin.match._kernels.intrinsics import prefetch
from tocsin.predicate.flat import NEGATED, OR_NEXT, Space

__all__ = ["COMPLEX", "SEVERAL", "SLOT", "STEP", "code_events", "match_each"]

COMPLEX, SEVERAL, SLOT = np.uint32(1 << 31), np.uint32(1 << 30), np.uint32((1 << 30) - 1)
_TEXT, _REVERSED, _ANY = int(Space.TEXT), int(Space.REVERSED), int(Space.ANY)
_BETWEEN = int(Space.BETWEEN)
STEP = 64


@njit(cache=True, nogil=True, inline="always")
def _find(cuts, a, z, tops, top, x):
    """The first of the cuts a..z-1 that is not below x; `tops` has every STEP-th of them, from `top` on."""
    if z - a > STEP:
        step = lower(tops, top, top + (z - a + STEP - 1) // STEP, x) - top
        a, z = a + max(0, step - 1) * STEP, min(z, a + step * STEP + 1)
    return lower(cuts, a, z, x)


@njit(cache=True, nogil=True)
def code_events(events, first, last, local, codes, patterns, cuts):
    """Events first..last-1 in a segment's dimensions: start, dimension, rank, place among the cuts.

    A value equal to cut i of its dimension has rank 2 i + 1, one between cuts i - 1 and i has rank 2 i;
    either way its place is that of cut i, and a dimension has one place more than cuts.
    """
    start, name, space, code = events
    texts, backwards = codes
    counts, extra = patterns
    cuts, cut_start, tops, top_start = cuts
    width, total = local.shape[1], start[last] - 1
    x = 0
    for i in range(start[first]):
        x += counts[i] if len(counts) else 0
    most = 3 * (start[last] - start[first]) + len(extra)
    own_start = np.zeros(last - first + 1, np.int64)
    dims, ranks, places = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int32)
    n = 0
    for e in range(first, last):
        for i in range(start[e], start[e + 1]):
            far, near = min(i + 24, total), min(i + 8, total)
            prefetch(local, np.int64(name[far]) * width)
            d = local[name[near], space[near]]
            if d >= 0:
                a, z = cut_start[d], min(cut_start[d + 1], cut_start[d] + STEP)
                prefetch(cuts, (a + z) >> 1)
                prefetch(cuts, (a + 3 * z) >> 2)
                prefetch(cuts, (3 * a + z) >> 2)
            s = space[i]
            d = local[name[i], s]
            if d >= 0:
                v = texts[code[i]] if s == _TEXT else code[i]
                a, z = cut_start[d], cut_start[d + 1]
                if s == _BETWEEN:
                    at = upper(cuts, a, z, v)
                    exact = False
                else:
                    at = _find(cuts, a, z, tops, top_start[d], v)
                    exact = at < z and cuts[at] == v
                dims[n], ranks[n], places[n] = d, 2 * (at - a) + (1 if exact else 0), at + d
                n += 1
            if s == _TEXT:
                d = local[name[i], _REVERSED]
                if d >= 0:
                    v = backwards[code[i]]
                    a, z = cut_start[d], cut_start[d + 1]
                    at = lower(cuts, a, z, v)
                    exact = at < z and cuts[at] == v
                    dims[n], ranks[n], places[n] = d, 2 * (at - a) + (1 if exact else 0), at + d
                    n += 1
            d = local[name[i], _ANY]
            if d >= 0:
                twice = False  # a number between two doubles has two entries
                if s == _BETWEEN or s == 0:
                    for j in range(own_start[e - first], n):
                        twice = twice or dims[j] == d
                if not twice:
                    dims[n], ranks[n], places[n] = d, 0, cut_start[d] + d
                    n += 1
            if len(counts):
                for _ in range(counts[i]):
                    d = extra[x]
                    dims[n], ranks[n], places[n] = d, 0, cut_start[d] + d
                    n, x = n + 1, x + 1
        own_start[e - first + 1] = n
    return own_start, dims[:n], ranks[:n], places[:n]


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
def match_each(arrays, coded, e0, owner, number, out):
    """All paths but the bit-sliced one, path by path and event by event.

    Returns packed matches and how many there are, packed matches that may occur twice, and how many
    candidates were checked on the lists, on the pairs and always. The first are written to `out`; if it
    is too small, a larger one is made.
    """
    checks, direct, checked, shared, pairs, always, width = arrays
    table = np.full(width, MISSING, np.int32)
    n = 0
    twice, m = np.empty(64, np.int64), 0
    seen = np.zeros(4, np.int64)
    if len(direct.at):
        out, n = _match_direct(checks.slot, direct, coded, e0, owner, number, out, n)
    if len(checked.at):
        out, n, twice, m, seen[0] = _match_lists(
            table, checks, checked, coded, e0, owner, number, out, n, twice, m
        )
    if len(shared.at):
        out, n, twice, m, more = _match_lists(
            table, checks, shared, coded, e0, owner, number, out, n, twice, m
        )
        seen[0] += more
    if len(pairs.key) or always[1] > always[0]:
        out, n, twice, m, seen[1], seen[2] = _match_pairs(
            table, checks, pairs, always, coded, e0, owner, number, out, n, twice, m
        )
    return out, n, twice[:m], seen


@njit(cache=True, nogil=True)
def _match_direct(slots, lists, coded, e0, owner, number, out, n):
    """Conjunctions of one test: slices of lists."""
    start, dims, ranks, places = coded
    at, ends, low, high, top, base = lists.at, lists.ends, lists.low, lists.high, lists.top, lists.base
    all_alive = len(owner) == 0
    last = len(dims) - 1
    for e in range(len(start) - 1):
        row = np.int64(e0 + e)
        for i in range(start[e], start[e + 1]):
            far, near = min(i + 16, last), min(i + 6, last)
            prefetch(at, 3 * np.int64(places[far]))
            prefetch(ends, 4 * np.int64(dims[far]))
            prefetch(slots, np.int64(at[places[near], 1]))
            prefetch(slots, np.int64(ends[dims[near], 1]))
            d, p, exact = dims[i], places[i], ranks[i] & 1
            for way in range(4):
                if way == 0:  # equal: exactly this cut
                    a, z = at[p, 0], at[p + exact, 0]
                elif way == 1:  # up to a cut: this one or a later one
                    a, z = at[p, 1], ends[d, 0]
                elif way == 2:  # from a cut on: an earlier one, or this
                    a, z = ends[d, 1], at[p + exact, 2]
                else:
                    a, z = ends[d, 2], ends[d, 3]
                    if a == z:
                        continue
                    z = base + upper(low, a - base, z - base, ranks[i])
                if n + z - a > len(out):
                    out = _wider(out, n + z - a)
                if way < 3 and all_alive:
                    for t in range(a, z):
                        out[n] = (np.int64(slots[t] & SLOT) << 32) | row
                        n += 1
                    continue
                if way < 3:
                    for t in range(a, z):
                        slot = np.int64(slots[t] & SLOT)
                        out[n] = (slot << 32) | row
                        n += owner[slot] == number
                    continue
                t = a
                while t < z:
                    k = t - base
                    if not k & 31 and top[k >> 5] < ranks[i]:
                        t += 32
                        continue
                    slot = np.int64(slots[t] & SLOT)
                    out[n] = (slot << 32) | row
                    if high[k] >= ranks[i] and (all_alive or owner[slot] == number):
                        n += 1
                    t += 1
    return out, n


@njit(cache=True, nogil=True)
def _match_lists(table, checks, lists, coded, e0, owner, number, out, n, twice, m):
    """Conjunctions that hang on one test: slices of lists, then their other tests.

    First all slices of an event are collected, then all are checked: in between there is time to fetch them,
    and the inner loop has nothing to do but check.
    """
    start, dims, ranks, places = coded
    slots, first, dim, tests_low, tests_high, flags = checks
    at, ends, low, high, top, base = lists.at, lists.ends, lists.low, lists.high, lists.top, lists.base
    target = lists.target
    all_alive, indirect = len(owner) == 0, len(target) > 0
    last, most = len(dims) - 1, len(slots) - 1
    begins, stops = np.empty(256, np.int64), np.empty(256, np.int64)
    seen = 0
    for e in range(len(start) - 1):
        row = np.int64(e0 + e)
        count, total = 0, 0
        for i in range(start[e], start[e + 1]):
            d, p, exact = dims[i], places[i], ranks[i] & 1
            table[d] = ranks[i]
            far = min(i + 20, last)
            prefetch(at, 3 * np.int64(places[far]))
            prefetch(ends, 4 * np.int64(dims[far]))
            a, z = ends[d, 2], ends[d, 3]
            if count + z - a + 3 > len(begins):
                begins, stops = _wider(begins, count + z - a + 3), _wider(stops, count + z - a + 3)
            if a < z:  # two ends: those that hold the rank, one by one
                t, z = np.int64(a), base + upper(low, a - base, z - base, ranks[i])
                seen += z - t
                while t < z:
                    k = t - base
                    if not k & 31 and top[k >> 5] < ranks[i]:
                        t += 32
                        continue
                    if high[k] >= ranks[i]:
                        begins[count], stops[count] = t, t + 1
                        count, total = count + 1, total + 1
                    t += 1
            for way in range(3):
                if way == 0:
                    a, z = at[p, 0], at[p + exact, 0]
                elif way == 1:
                    a, z = at[p, 1], ends[d, 0]
                else:
                    a, z = ends[d, 1], at[p + exact, 2]
                if a < z:
                    begins[count], stops[count] = a, z
                    count, total = count + 1, total + z - a
                    seen += z - a
                    if not indirect:
                        prefetch(slots, np.int64(a))
                        prefetch(first, np.int64(a))
        if n + total > len(out):
            out = _wider(out, n + total)
        if m + total > len(twice):
            twice = _wider(twice, m + total)
        for s in range(count):
            if not indirect:
                q = first[min(begins[min(s + 4, count - 1)], most)]
                prefetch(dim, q)
                prefetch(tests_low, q)
                prefetch(tests_high, q)
            for t in range(begins[s], stops[s]):
                c = np.int64(target[t]) if indirect else t
                tag = slots[c]
                passed = True
                if tag & COMPLEX:
                    passed = _passes_complex(table, first[c], first[c + 1], dim, tests_low, tests_high, flags)
                else:
                    for q in range(first[c], first[c + 1]):
                        x = table[dim[q]]
                        if x < tests_low[q] or x > tests_high[q]:
                            passed = False
                            break
                if passed:
                    slot = np.int64(tag & SLOT)
                    if all_alive or owner[slot] == number:
                        if tag & SEVERAL:
                            twice[m] = (slot << 32) | row
                            m += 1
                        else:
                            out[n] = (slot << 32) | row
                            n += 1
        for i in range(start[e], start[e + 1]):
            table[dims[i]] = MISSING
    return out, n, twice, m, seen


@njit(cache=True, nogil=True)
def _match_pairs(table, checks, pairs, always, coded, e0, owner, number, out, n, twice, m):
    """Conjunctions by two of an event's dimensions, and those that are always asked."""
    start, dims, ranks, _ = coded
    slots, first, dim, low, high, flags = checks
    bloom, keys, values, begins = pairs
    width = np.int64(len(table))
    bits, mask = np.uint64(64 * len(bloom) - 1), np.uint64(len(keys) - 1)
    one, six, seven, word = np.uint64(1), np.uint64(6), np.uint64(7), np.uint64(63)
    all_alive = len(owner) == 0
    found = np.empty(1024, np.int64)
    seen = 0
    for e in range(len(start) - 1):
        s0, s1 = start[e], start[e + 1]
        row = np.int64(e0 + e)
        for i in range(s0, s1):
            table[dims[i]] = ranks[i]
        hits = 0
        if len(keys):
            if (s1 - s0) * (s1 - s0) > len(found):
                found = np.empty((s1 - s0) * (s1 - s0), np.int64)
            for i in range(s0, s1):  # without a branch, so that many loads are under way at once
                a = np.int64(dims[i])
                for j in range(i + 1, s1):
                    b = np.int64(dims[j])
                    key = min(a, b) * width + max(a, b)
                    h = (hash64(key) >> seven) & bits
                    found[hits] = key
                    hits += np.int64((bloom[h >> six] >> (h & word)) & one)
        for k in range(hits + 1):
            if k == hits:
                begin, end = always[0], always[1]
            else:
                key = found[k]
                h = hash64(key) & mask
                while keys[h] >= 0 and keys[h] != key:
                    h = (h + one) & mask
                if keys[h] != key:
                    continue
                begin, end = np.int64(begins[values[h]]), np.int64(begins[values[h] + 1])
                seen += end - begin
            if n + end - begin > len(out):
                out = _wider(out, n + end - begin)
            if m + end - begin > len(twice):
                twice = _wider(twice, m + end - begin)
            for c in range(begin, end):
                tag = slots[c]
                if not _passes(table, tag, first[c], first[c + 1], dim, low, high, flags):
                    continue
                slot = np.int64(tag & SLOT)
                if all_alive or owner[slot] == number:
                    if tag & SEVERAL:
                        twice[m] = (slot << 32) | row
                        m += 1
                    else:
                        out[n] = (slot << 32) | row
                        n += 1
        for i in range(s0, s1):
            table[dims[i]] = MISSING
    return out, n, twice, m, seen, (always[1] - always[0]) * (len(start) - 1)
