"""Conjunctions by two dimensions of an event, looked up in a hash table; and those without an access path.

An event of n dimensions has n (n - 1) / 2 pairs, and most are in no table. A filter ends them early:

*Partners*: every dimension has 512 bits or more, one of them set for each dimension it makes a pair with. A
pair can be there if each is among the partners of the other. An event reads a few cache lines for each of its
dimensions, not one for each pair of them. Where dimensions are very many, partners take too much memory:

*Bloom*: a bit per pair.

The tables are larger than the caches. So pairs are looked up in blocks, each step for all of them before the
next one, and each step prefetches what the next one reads:

    pair ─► its place in the table ─► its number ─► its conjunctions ─► their tests ─► verified

For verification an event is entered into a table of ranks by dimension.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.compiled.instructions import prefetch
from tocsin.match._kernels.primitives import MISSING, find_key, hash64, key_place
from tocsin.match._kernels.verify import Found, lacks_space, new_table, verify_in_table, with_space

__all__ = [
    "WORDS", "PairFilter", "collect_pairs", "fill_partners", "find_pairs", "mark_partners", "match_pairs",
    "match_unindexed", "pair_buffers",
]  # fmt: skip

WORDS = 8  # of partners, at least
_BLOCK = 256  # pairs that are looked up together


class PairBuffers(NamedTuple):
    """CodeSpace for `collect_pairs`: `key` and `event` of pairs that may be in the table, and scratch."""

    key: Any
    event: Any
    found: Any
    lines: Any


class PairFilter(NamedTuple):
    """A Bloom filter or partners, and the hash table behind; its keys are x * `width` + y, x <= y."""

    bloom: Any
    partners: Any
    table: Any
    width: Any


@kernel(inline=True, allocates=False)
def _bit_of(d, words):
    """The word and the bit of a dimension among the partners of another."""
    h = hash64(d)
    return (h >> np.uint64(40)) & np.uint64(words - 1), (h >> np.uint64(34)) & np.uint64(63)


@kernel(allocates=False)
def mark_partners(partners, x, y):
    """Make two dimensions partners of each other."""
    word, bit = _bit_of(y, partners.shape[1])
    partners[x, word] |= np.uint64(1) << bit
    word, bit = _bit_of(x, partners.shape[1])
    partners[y, word] |= np.uint64(1) << bit


@kernel(allocates=False)
def fill_partners(keys, width, partners):
    """Mark the dimensions of all pairs; a key is a dimension times `width`, plus the other."""
    for key in keys:
        mark_partners(partners, key // width, key % width)


@kernel
def pair_buffers(start, words):
    """Buffers for events whose dimensions begin at `start`; a dimension has so many `words` of partners."""
    most = 1
    for e in range(len(start) - 1):
        most = max(most, start[e + 1] - start[e])
    found, lines = np.empty(2 * most + 1024, np.int64), np.empty((words + 2) * most, np.uint64)
    key, event = np.empty(_BLOCK + len(found), np.int64), np.empty(_BLOCK + len(found), np.int64)
    return PairBuffers(key, event, found, lines)


@kernel(allocates=False)
def collect_pairs(pair_filter, start, ids, e, i, buffers):
    """Pairs of dimensions that may be in the table, from dimension i of event e on, until a block is full.

    Keys and events are written to `buffers`. Returns how many, and the event and the dimension to go on with.
    The table is larger than the caches: its places are prefetched here and read later.
    """
    bloom, partners, table, width = pair_filter
    key, event, found, lines = buffers
    width, each = np.int64(width), partners.shape[1]
    most = len(lines) // (each + 2)
    words, bits, rows = lines[:most], lines[most : 2 * most], lines[2 * most :]
    n, count = np.int64(0), len(start) - 1
    while e < count and n < _BLOCK:
        s0, size = start[e], start[e + 1] - start[e]
        own = ids[s0 : s0 + size]
        if len(partners):
            if i == 0:
                for k in range(start[e + 1], start[min(e + 2, count)]):  # of the next event
                    for line in range(0, each, 8):
                        prefetch(partners, each * np.int64(ids[k]) + line)
                _gather_partners(partners, own, size, words, bits, rows)
            hits, i = _by_partners(words, bits, rows, each, size, i, found)
        else:
            hits, i = _by_bloom(bloom, width, own, size, i, found)
        for k in range(hits):
            x, y = np.int64(own[found[k] >> 32]), np.int64(own[found[k] & 0xFFFFFFFF])
            key[n], event[n] = min(x, y) * width + max(x, y), e
            prefetch(table, np.int64(key_place(table, key[n])))
            n += 1
        if i >= size:
            e, i = e + 1, np.int64(0)
    return n, e, i


@kernel(allocates=False)
def find_pairs(table, content, place, event, hits):
    """Of the keys in `place`, those that are in the table: their places there, in `place` too; how many.

    `content` is prefetched at these places.
    """
    count = 0
    for k in range(hits):
        key, at = place[k], find_key(table, place[k])
        place[count], event[count] = at, event[k]
        prefetch(content, np.int64(at))
        count += table[at] == key
    return count


@kernel(allocates=False)
def _gather_partners(partners, ids, size, words, bits, rows):
    """Copy the bits of an event's dimensions, and their partners, side by side."""
    each = np.uint64(partners.shape[1])
    for i in range(np.uint64(size)):  # unsigned: no check for negative indexes
        words[i], bits[i] = _bit_of(ids[i], each)
        own = np.uint64(ids[i])
        for line in range(np.uint64(0), each, np.uint64(WORDS)):
            for k in range(np.uint64(WORDS)):
                rows[i * each + line + k] = partners[own, line + k]


@kernel(allocates=False)
def _by_partners(words, bits, rows, each, size, first, found):
    """Pairs of dimensions i < j of an event that may be there, as i << 32 | j, for i from `first` on.

    Returns how many, and the i to go on with when `found` is full; it has space for `size` at least.
    """
    if each == WORDS:  # a constant when it is compiled: the common case
        return _find_partners(words, bits, rows, np.uint64(WORDS), size, first, found)
    return _find_partners(words, bits, rows, np.uint64(each), size, first, found)


@kernel(inline=True, allocates=False)
def _find_partners(words, bits, rows, each, size, first, found):
    one, half, count = np.uint64(1), np.uint64(32), np.uint64(size)
    hits, i, last = np.uint64(0), np.uint64(first), np.uint64(len(found))
    while i < count and hits + count <= last:
        own, place, word, bit = i * each, i << half, words[i], bits[i]
        for j in range(i + one, count):  # no branch to mispredict
            found[hits] = place | j
            there = (rows[own + words[j]] >> bits[j]) & (rows[j * each + word] >> bit)
            hits += there & one
        i += one
    return np.int64(hits), np.int64(i)


@kernel(allocates=False)
def _by_bloom(bloom, width, ids, size, first, found):
    """As `_by_partners`; dimensions ascend."""
    bits, hits, i = np.uint64(64 * len(bloom) - 1), np.int64(0), first
    one, six, seven, word = np.uint64(1), np.uint64(6), np.uint64(7), np.uint64(63)
    while i < size and hits + size <= len(found):
        own = ids[i] * width
        for j in range(i + 1, size):  # no branch, so that many loads are under way at once
            h = (hash64(own + ids[j]) >> seven) & bits
            found[hits] = (i << 32) | j
            hits += np.int64((bloom[h >> six] >> (h & word)) & one)
        i += 1
    return hits, i


# -- matching --------------------------------------------------------------------------------------


@kernel
def match_pairs(width, tests, pairs, events, owners, found):
    """Conjunctions by two dimensions; returns what was found, and how many were verified."""
    begins = pairs.start
    start, dims, ranks, _, row0 = events
    table, shown = new_table(width), np.int64(-1)
    pair_filter = PairFilter(pairs.bloom, pairs.partners, pairs.key, np.int64(width))
    buffers = pair_buffers(start, pairs.partners.shape[1])
    place, event, _, _ = buffers
    e, i, candidates = np.int64(0), np.int64(0), np.int64(0)
    while e < len(start) - 1:
        hits, e, i = collect_pairs(pair_filter, start, dims, e, i, buffers)
        for k in range(_look_up(pairs, tests, place, event, hits)):
            begin, end = np.int64(begins[place[k]]), np.int64(begins[place[k] + 1])
            candidates += end - begin
            if event[k] != shown:
                if shown >= 0:
                    _clear(table, start, dims, shown)
                shown = event[k]
                _fill(table, start, dims, ranks, shown)
            if lacks_space(found, end - begin):
                found = with_space(found, end - begin)
            n, m = verify_in_table(table, tests, begin, end, owners, np.int64(row0 + shown), found)
            found = Found(found.unique, n, found.repeated, m)
    return found, candidates


@kernel(allocates=False)
def _look_up(pairs, tests, place, event, hits):
    """Of the keys in `place`, those that are there: the numbers of their pairs, in `place` too; how many."""
    values, begins = pairs.value, pairs.start
    count = find_pairs(pairs.key, values, place, event, hits)
    for k in range(count):
        place[k] = values[place[k]]
        prefetch(begins, place[k])
    for k in range(count):
        begin = np.int64(begins[place[k]])
        prefetch(tests.slot, begin)
        prefetch(tests.start, begin)
    for k in range(count):
        first = tests.start[begins[place[k]]]
        prefetch(tests.dim, first)
        prefetch(tests.low, first)
        prefetch(tests.high, first)
    return count


@kernel
def match_unindexed(width, tests, unindexed, events, owners, found):
    """Conjunctions unindexed[0]..unindexed[1]-1, without an access path: verified for every event."""
    start, dims, ranks, _, row0 = events
    table = new_table(width)
    for e in range(len(start) - 1):
        _fill(table, start, dims, ranks, e)
        found, row = with_space(found, unindexed[1] - unindexed[0]), np.int64(row0 + e)
        n, m = verify_in_table(table, tests, unindexed[0], unindexed[1], owners, row, found)
        found = Found(found.unique, n, found.repeated, m)
        _clear(table, start, dims, e)
    return found


@kernel(inline=True, allocates=False)
def _fill(table, start, dims, ranks, e):
    for i in range(start[e], start[e + 1]):
        table[dims[i]] = ranks[i]


@kernel(inline=True, allocates=False)
def _clear(table, start, dims, e):
    for i in range(start[e], start[e + 1]):
        table[dims[i]] = MISSING
