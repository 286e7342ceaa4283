"""The front: conjunctions in chains, by one dimension or by a pair. The arrays are those of `front.py`.

    link[c] = least, greatest, next, number << 32 | tag

`least` and `greatest` are the ends of the test that conjunction c hangs on (open if it is negated, or c
hangs on a pair), `next` the conjunction that hung there before it, or -1. MORE in a tag: there is more to
be asked than whether a value lies between the two ends.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.building import hash64, lower
from tocsin.match._kernels.matching import SEVERAL, SLOT, _wider
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT

__all__ = ["append", "fill_pairs", "hang", "match_front"]

_ROOM = 1 << 16  # matches that room is made for at a time
_MORE = np.uint32(1 << 31)
_LOW, _HIGH, _NEXT, _TAG = range(4)  # of a link


# -- taking in ---------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def hang(start, tests, presence):
    """Where each conjunction can hang: the test of its rarest dimension, best an equality, or -1; a test of
    its rarest other dimension, or -1; and how often the first and both are there.

    A test that is negated will do (the dimension must be there), one of a clause or of absence will not.
    """
    dim, low, high, flags = tests
    n = len(start) - 1
    access, other = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    often = np.zeros((n, 2))
    for c in range(n):
        best, least = np.inf, np.inf
        for i in range(start[c], start[c + 1]):
            if flags[i] & (ABSENT | OR_NEXT) or (i > start[c] and flags[i - 1] & OR_NEXT):
                continue
            equal = low[i] == high[i] and not flags[i] & NEGATED
            price = presence[dim[i]] * (1.0 if equal else 4.0)  # of a range every second check goes on
            if price < best:
                best, access[c] = price, i - start[c]
        if access[c] < 0:
            continue
        first = dim[start[c] + access[c]]
        often[c, 0] = presence[first]
        for i in range(start[c], start[c + 1]):
            if flags[i] & (ABSENT | OR_NEXT) or (i > start[c] and flags[i - 1] & OR_NEXT):
                continue
            if dim[i] != first and presence[dim[i]] < least:
                least, other[c] = presence[dim[i]], i - start[c]
                often[c, 1] = presence[first] * presence[dim[i]]
    return access, other, often


@njit(cache=True, nogil=True)
def append(begin, tests, slot, several, hung, number, n, arrays, lists, pairs):
    """Conjunctions of `tests` as the n-th and following ones, each in its chain; returns how many pairs are
    new.

    There is room in the arrays. `hung`: the test that each hangs on, and that of a pair's other dimension
    or -1; the one that it hangs on is written first.
    """
    dim, low, high, flags = tests
    start, dims, lows, highs, new_flags, link = arrays
    head, length = lists
    keys, chains, bloom = pairs
    access, other = hung
    width = np.int64(len(head) - 1)
    at, fresh = start[n], 0
    for c in range(len(slot)):
        a, z = begin[c], begin[c + 1]
        first = a + access[c] if access[c] >= 0 else np.int64(-1)
        tag = np.uint32(slot[c]) | (SEVERAL if several[c] else np.uint32(0))
        link[n, _LOW], link[n, _HIGH] = LEAST, GREATEST
        if first >= 0:
            dims[at], lows[at], highs[at], new_flags[at] = dim[first], low[first], high[first], flags[first]
            at += 1
            if not flags[first] & NEGATED:
                link[n, _LOW], link[n, _HIGH] = low[first], high[first]
        if z - a > 1 or first < 0 or flags[first]:
            tag |= _MORE
        for i in range(a, z):
            if i != first:
                dims[at], lows[at], highs[at], new_flags[at] = dim[i], low[i], high[i], flags[i]
                at += 1
        link[n, _TAG] = (np.int64(number) << 32) | np.int64(tag)
        if first >= 0 and other[c] >= 0:
            x, y = np.int64(dim[first]), np.int64(dim[a + other[c]])
            h, is_new = _enter(min(x, y) * width + max(x, y), width, keys, bloom)
            link[n, _NEXT] = -1 if is_new else chains[h]
            chains[h] = n
            fresh += is_new
        else:
            d = np.int64(dim[first]) if first >= 0 else width
            link[n, _NEXT] = head[d]
            head[d] = n
            length[d] += 1
        n += 1
        start[n] = at
    return fresh


@njit(cache=True, nogil=True, inline="always")
def _hash_pair(x, y):
    """Of two dimensions, the lesser first: a sum of two hashes, which can be made once for an event."""
    return hash64(x) + _second_hash(y)


@njit(cache=True, nogil=True, inline="always")
def _second_hash(y):
    return hash64(np.uint64(y) ^ np.uint64(0xD6E8FEB86659FD93))


@njit(cache=True, nogil=True, inline="always")
def _bits_of(h):
    """Two bits of one word of the filter in front of the pairs."""
    one, six, word = np.uint64(1), np.uint64(6), np.uint64(63)
    return (one << (h & word)) | (one << ((h >> six) & word))


@njit(cache=True, nogil=True, inline="always")
def _enter(key, width, keys, bloom):
    """The place of a pair in the table, and whether it is new there."""
    h = _hash_pair(key // width, key % width)
    bloom[(h >> np.uint64(12)) & np.uint64(len(bloom) - 1)] |= _bits_of(h)
    mask = np.uint64(len(keys) - 1)
    at = (h >> np.uint64(8)) & mask
    while keys[at] >= 0 and keys[at] != key:
        at = (at + np.uint64(1)) & mask
    is_new = keys[at] < 0
    keys[at] = key
    return at, is_new


@njit(cache=True, nogil=True)
def fill_pairs(old_keys, old_chains, width, keys, chains, bloom):
    """Pairs of one table in another, which is empty and larger."""
    for i in range(len(old_keys)):
        if old_keys[i] >= 0:
            at, _ = _enter(old_keys[i], width, keys, bloom)
            chains[at] = old_chains[i]


# -- matching ----------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, inline="always")
def _holds(start, dims, codes, above, bits, e, d, low, high, flags):
    """Does a test hold for event e? Its dimensions ascend."""
    there = False
    at = start[e]
    if (bits[e] >> np.uint64(d & 63)) & np.uint64(1):
        at = lower(dims, start[e], start[e + 1], d)
        there = at < start[e + 1] and dims[at] == d
    if flags & ABSENT:
        return not there
    if not there:
        return False
    inside = low <= codes[at] and codes[at] + above[at] <= high
    return inside != (flags & NEGATED != 0)


@njit(cache=True, nogil=True)
def _passes(coded, e, first, last, tests):
    """Do all clauses of tests first..last-1 hold for event e?"""
    start, dims, codes, above, bits = coded
    dim, low, high, flags = tests
    i = first
    while i < last:
        passed = _holds(start, dims, codes, above, bits, e, dim[i], low[i], high[i], flags[i])
        while flags[i] & OR_NEXT:
            i += 1
            passed = passed or _holds(start, dims, codes, above, bits, e, dim[i], low[i], high[i], flags[i])
        if not passed:
            return False
        i += 1
    return True


@njit(cache=True, nogil=True)
def _match_runs(runs, r0, r1, head, spread, arrays, coded, owner, e0, room):
    """Entries of runs r0..r1-1 against the conjunctions that hang on their dimensions. There is room."""
    run_dim, run_start = runs
    event, code, beyond = spread
    first, dim, low, high, flags, link = arrays
    start, dims, codes, above, bits = coded
    out, n, twice, m = room
    for r in range(r0, r1):
        c = head[run_dim[r]]
        while c >= 0:
            a, b, tag = link[c, _LOW], link[c, _HIGH], np.uint32(link[c, _TAG] & 0xFFFFFFFF)
            slot, number = np.int64(tag & SLOT), link[c, _TAG] >> 32
            this, c = c, link[c, _NEXT]
            if len(owner) and owner[slot] != number:
                continue
            if not tag & (_MORE | SEVERAL):  # without a branch to be guessed
                for j in range(run_start[r], run_start[r + 1]):
                    out[n] = (slot << 32) | (e0 + event[j])
                    n += (a <= code[j]) & (code[j] + beyond[j] <= b)
                continue
            for j in range(run_start[r], run_start[r + 1]):
                if not ((a <= code[j]) & (code[j] + beyond[j] <= b)):
                    continue
                e = event[j]
                if tag & _MORE:
                    t, z = first[this] + 1, first[this + 1]
                    if t < z:
                        if not (flags[t] & (ABSENT | OR_NEXT)) and not _holds(
                            start, dims, codes, above, bits, e, dim[t], low[t], high[t], flags[t]
                        ):
                            continue  # most end here, without a call
                    if flags[t - 1] or t + 1 < z or (t < z and flags[t]):
                        if not _passes(coded, e, t - 1, z, (dim, low, high, flags)):
                            continue
                if tag & SEVERAL:
                    twice[m] = (slot << 32) | (e0 + e)
                    m += 1
                else:
                    out[n] = (slot << 32) | (e0 + e)
                    n += 1
    return n, m


@njit(cache=True, nogil=True)
def _match_lists(arrays, lists, runs, spread, coded, e0, owner, several, out, n, twice, m):
    """Conjunctions that hang on one dimension."""
    head, length = lists
    run_dim, run_start = runs
    r, seen = 0, 0
    while r < len(run_dim):
        most, r1 = 0, r
        while r1 < len(run_dim) and most < _ROOM:  # room is made for many runs at a time
            most += length[run_dim[r1]] * (run_start[r1 + 1] - run_start[r1])
            r1 += 1
        seen += most
        if most <= 2 * _ROOM:
            if n + most > len(out):
                out = _wider(out, n + most)
            if several and m + most > len(twice):
                twice = _wider(twice, m + most)
            room = out, n, twice, m
            n, m = _match_runs(runs, r, r1, head, spread, arrays, coded, owner, e0, room)
            r = r1
            continue
        for q in range(r, r1):  # a long list and many events: some events at a time
            long = length[run_dim[q]]
            step = max(1, _ROOM // max(1, long))
            for i in range(run_start[q], run_start[q + 1], step):
                z = min(i + step, run_start[q + 1])
                if n + long * (z - i) > len(out):
                    out = _wider(out, n + long * (z - i))
                if several and m + long * (z - i) > len(twice):
                    twice = _wider(twice, m + long * (z - i))
                room = out, n, twice, m
                part = run_dim[q : q + 1], np.array([i, z])
                n, m = _match_runs(part, 0, 1, head, spread, arrays, coded, owner, e0, room)
        r = r1
    return out, n, twice, m, seen


@njit(cache=True, nogil=True)
def _match_pairs(arrays, pairs, width, coded, e0, owner, out, n, twice, m):
    """Conjunctions that hang on two dimensions of an event."""
    start, dims, _, _, _ = coded
    first, dim, low, high, flags, link = arrays
    keys, chains, bloom = pairs
    one, eight, twelve = np.uint64(1), np.uint64(8), np.uint64(12)
    words, mask = np.uint64(len(bloom) - 1), np.uint64(len(keys) - 1)
    most = 1
    for e in range(len(start) - 1):
        most = max(most, start[e + 1] - start[e])
    found, hashes = np.empty(most * most, np.int32), np.empty(most, np.uint64)
    seen = 0
    for e in range(len(start) - 1):
        s0, size = start[e], start[e + 1] - start[e]
        for i in range(size):
            hashes[i] = _second_hash(dims[s0 + i])
        hits = 0
        for i in range(size):  # without a branch, so that many loads are under way at once
            own = hash64(dims[s0 + i])
            for j in range(i + 1, size):
                h = own + hashes[j]
                wanted = _bits_of(h)
                found[hits] = i * size + j
                hits += np.int64((bloom[(h >> twelve) & words] & wanted) == wanted)
        for k in range(hits):
            x, y = np.int64(dims[s0 + found[k] // size]), np.int64(dims[s0 + found[k] % size])
            at, key = (_hash_pair(x, y) >> eight) & mask, x * width + y
            while keys[at] >= 0 and keys[at] != key:
                at = (at + one) & mask
            c = np.int64(chains[at]) if keys[at] >= 0 else np.int64(-1)
            while c >= 0:
                seen += 1
                tag = np.uint32(link[c, _TAG] & 0xFFFFFFFF)
                slot, number = np.int64(tag & SLOT), link[c, _TAG] >> 32
                this, c = c, link[c, _NEXT]
                if len(owner) and owner[slot] != number:
                    continue
                if not _passes(coded, e, first[this], first[this + 1], (dim, low, high, flags)):
                    continue
                if tag & SEVERAL:
                    if m == len(twice):
                        twice = _wider(twice, m)
                    twice[m] = (slot << 32) | (e0 + e)
                    m += 1
                else:
                    if n == len(out):
                        out = _wider(out, n)
                    out[n] = (slot << 32) | (e0 + e)
                    n += 1
    return out, n, twice, m, seen


@njit(cache=True, nogil=True)
def match_front(arrays, lists, pairs, several, runs, spread, coded, e0, owner, out):
    """Packed matches and how many; packed matches that may occur twice; candidates on lists and on pairs.

    If `owner` is not empty, it has the numbers of the conjunctions that are alive, by slot.
    """
    first, dim, low, high, flags, link = arrays
    n, pair_seen = 0, 0
    twice, m = np.empty(64, np.int64), 0
    out, n, twice, m, seen = _match_lists(
        arrays, lists, runs, spread, coded, e0, owner, several, out, n, twice, m
    )
    width = np.int64(len(lists[0]) - 1)
    if len(pairs[0]) > 1:
        out, n, twice, m, pair_seen = _match_pairs(arrays, pairs, width, coded, e0, owner, out, n, twice, m)
    events = len(coded[0]) - 1
    c = np.int64(lists[0][width])
    while c >= 0:  # those that hang on nothing are always asked
        tag = np.uint32(link[c, _TAG] & 0xFFFFFFFF)
        slot, number = np.int64(tag & SLOT), link[c, _TAG] >> 32
        this, c = c, link[c, _NEXT]
        if len(owner) and owner[slot] != number:
            continue
        if m + events > len(twice):
            twice = _wider(twice, m + events)
        for e in range(events):
            if _passes(coded, e, first[this], first[this + 1], (dim, low, high, flags)):
                twice[m] = (slot << 32) | (e0 + e)
                m += 1
    return out, n, twice[:m], seen, pair_seen
