"""Matching one event against a segment, in one call: no grouping, no blocks, no allocation.

An event comes as entries (attribute, space, code). A text's code is its place among the event's texts, whose
codes in this segment stand in `texts`; a double's is its place among the event's numbers. The event is
entered into a table by dimension, candidates are found through the same access paths as in `candidates.py`
and `mutable_match.py`, verified by the table, and the table is cleared again.

    entries ─► table[dimension] ─► lists, values, pairs, unindexed, bits ─► slots in `found`

Bits answer 512 events at a time: for one event, verifying each of their conjunctions is cheaper.

`found` has slots that are found once, and slots that may be found again; `SingleState` counts them. A count
beyond the size of its buffer says that the buffer is too small: the caller enlarges it and calls again.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.compiled.instructions import prefetch
from tocsin.match._kernels.dimension_pairs import _bit_of
from tocsin.match._kernels.mutable_match import MutableCounter, codes_hold_in_table
from tocsin.match._kernels.mutable_update import MORE, Link
from tocsin.match._kernels.primitives import MISSING, find_key, hash64, lower, upper
from tocsin.match._kernels.verify import MAY_REPEAT, SLOT, Counter, holds_in_table
from tocsin.predicate.flat import CodeSpace

__all__ = [
    "FEW", "SingleEvent", "SingleFound", "SingleState", "SingleTable", "match_one", "match_one_mutable",
]  # fmt: skip

FEW = 32  # unique slots are in order if they are so many at most

_TEXT, _REVERSED, _ANY = int(CodeSpace.TEXT), int(CodeSpace.REVERSED), int(CodeSpace.ANY)
_DOUBLE = int(CodeSpace.DOUBLE)
_MOST = np.int64(2**63 - 1)
_TEXT_TIME, _TIMESTAMP = int(CodeSpace.TEXT_TIME), int(CodeSpace.TIMESTAMP)


class SingleState(IntEnum):
    """Places of the array `state`."""

    UNIQUE = 0  # slots found once, so far
    REPEATED = 1  # slots that may be found again, so far
    ENTRIES = 2  # of the event
    PATTERNS = 3  # of this segment's dimensions that match
    NUMBER = 4  # the owner of this segment's slots


class SingleEvent(NamedTuple):
    """One event, and the owner of each slot."""

    entries: Any  # rows: attributes, spaces, codes; the bits of the event's numbers
    texts: Any  # forwards and backwards: the codes of the event's texts in this segment
    patterns: Any  # dimensions whose pattern matches
    state: Any  # `SingleState`
    owner: Any


class SingleFound(NamedTuple):
    """Buffers for slots."""

    unique: Any
    repeated: Any


class SingleTable(NamedTuple):
    """The dimensions of a segment, and the event by dimension; all MISSING between two calls."""

    begin: Any  # by attribute: its first dimension
    space: Any  # by dimension
    rank: Any  # immutable: rank by dimension
    column: Any  # immutable: rank by column of value pairs
    present: Any  # the dimensions of the event


@kernel(allocates=False)
def _code_of(entries, i, space, texts):
    """The code of entry i in a dimension of a space; and whether it is there."""
    own, code = entries[1, i], entries[2, i]
    if space == _ANY:  # what has two entries is there once
        return np.int64(0), own != _TEXT_TIME
    if space == _TEXT or space == _REVERSED:
        if own != _TEXT:
            return np.int64(0), False
        return texts[0 if space == _TEXT else 1, code], True
    if own == _DOUBLE:  # as `columns.double_codes`
        bits = entries[3, code]
        return (bits if bits >= 0 else -(bits & _MOST)), space == _DOUBLE
    return code, own == space or (space == _TIMESTAMP and own == _TEXT_TIME)


@kernel(allocates=False)
def _emit(tag, event, found):
    """Write the slot of a match, if there is space; count it. `_keep_owned` looks who owns it."""
    slot, state = np.int64(tag & SLOT), event.state
    if tag & MAY_REPEAT:
        n = state[SingleState.REPEATED]
        if n < len(found.repeated):
            found.repeated[n] = slot
        state[SingleState.REPEATED] = n + 1
    else:
        n = state[SingleState.UNIQUE]
        if n < len(found.unique):
            found.unique[n] = slot
        state[SingleState.UNIQUE] = n + 1


@kernel(allocates=False)
def _keep_owned(event, found, unique, repeated):
    """Of the slots found since there were so many, keep those that the segment owns; sort a few."""
    state = event.state
    state[SingleState.UNIQUE] = _owned(found.unique, unique, state[SingleState.UNIQUE], event)
    state[SingleState.REPEATED] = _owned(found.repeated, repeated, state[SingleState.REPEATED], event)
    _sort_few(event, found)


@kernel(allocates=False)
def _owned(slots, first, last, event):
    """Move the owned ones of slots first .. last - 1 to the front; where they end."""
    if last > len(slots):
        return last  # the caller enlarges the buffer and calls again
    for i in range(first, last):
        prefetch(event.owner, slots[i])
    n = first
    for i in range(first, last):
        if event.owner[slots[i]] == event.state[SingleState.NUMBER]:
            slots[n] = slots[i]
            n += 1
    return n


# -- immutable segments ----------------------------------------------------------------------------


@kernel(allocates=False)
def match_one(arrays, cuts, cut_start, bits, table, event, found, counters):
    """Match an event against an immutable segment (`SegmentArrays`); `bits`: conjunctions from .. to.

    Adds to the counters of candidates (`Counter`).
    """
    tests, direct, checked, shared, pairs, values, unindexed, width = arrays
    unique, repeated = event.state[SingleState.UNIQUE], event.state[SingleState.REPEATED]
    n = _enter(cuts, cut_start, table, event)
    rank, present = table.rank, table.present
    if len(direct.at):
        _prefetch_list(tests, direct, cut_start, table, n)
    if len(checked.at):
        _prefetch_list(tests, checked, cut_start, table, n)
    if len(direct.at):
        _match_lists(tests, direct, cut_start, n, table, event, found, True)
    if len(checked.at):
        counters[Counter.LISTS] += _match_lists(tests, checked, cut_start, n, table, event, found, False)
    if len(shared.at):
        counters[Counter.LISTS] += _match_lists(tests, shared, cut_start, n, table, event, found, False)
    if len(values.sieve):
        _match_values(tests, values, table, n, event, found, counters)
    if len(pairs.key):
        counters[Counter.PAIRS] += _match_pairs(tests, pairs, width, table, n, event, found)
    _verify(tests, unindexed[0], unindexed[1], rank, event, found)
    counters[Counter.UNINDEXED] += unindexed[1] - unindexed[0]
    _verify(tests, bits[0], bits[1], rank, event, found)
    for i in range(n):
        rank[present[i]] = MISSING
    _keep_owned(event, found, unique, repeated)


@kernel(allocates=False)
def _sort_few(event, found):
    """Sort the unique slots, if they are few: by insertion."""
    slots, count = found.unique, event.state[SingleState.UNIQUE]
    if count > FEW:
        return
    for i in range(1, count):
        slot, j = slots[i], i
        while j > 0 and slots[j - 1] > slot:
            slots[j] = slots[j - 1]
            j -= 1
        slots[j] = slot


@kernel(allocates=False)
def _enter(cuts, cut_start, table, event):
    """Enter the ranks of an event into the table; returns how many dimensions it has."""
    entries, texts, n = event.entries, event.texts, 0
    _prefetch_cuts(cuts, cut_start, table, event)
    for i in range(event.state[SingleState.ENTRIES]):
        k = entries[0, i]
        if k < 0 or k + 1 >= len(table.begin):
            continue  # the segment does not know the attribute
        for d in range(table.begin[k], table.begin[k + 1]):
            code, is_there = _code_of(entries, i, table.space[d], texts)
            if is_there:
                table.rank[d] = _rank(cuts, cut_start, d, code)
                table.present[n] = d
                n += 1
    for i in range(event.state[SingleState.PATTERNS]):
        d = event.patterns[i]
        table.rank[d] = _rank(cuts, cut_start, d, np.int64(0))
        table.present[n] = d
        n += 1
    return n


@kernel(allocates=False)
def _prefetch_cuts(cuts, cut_start, table, event):
    """Prefetch what ranking reads, step by step for all entries: most of it is in no cache."""
    entries, count = event.entries, event.state[SingleState.ENTRIES]
    for i in range(count):
        prefetch(table.begin, min(entries[0, i], len(table.begin) - 1))
    for i in range(count):
        d = table.begin[min(entries[0, i], len(table.begin) - 1)]
        prefetch(cut_start, d)
        prefetch(table.space, d)
        prefetch(table.rank, d)
    for i in range(count):
        d = table.begin[min(entries[0, i], len(table.begin) - 1)]
        first = cut_start[min(d, len(cut_start) - 1)]
        prefetch(cuts, first)
        prefetch(cuts, first + 8)


@kernel(allocates=False)
def _prefetch_list(tests, lists, cut_start, table, n):
    """Prefetch the places of an event's values in the lists, and the entries that are read first.

    Intervals without an end on one side are on both sides of `up`: those that hold the value are next to it.
    """
    at, ends = lists.at, lists.ends
    for i in range(n):
        d = np.int64(table.present[i])
        prefetch(ends, ends.shape[1] * d)
        prefetch(at, at.shape[1] * (cut_start[d] + d + (table.rank[d] >> 1)))
    for i in range(n):
        d = np.int64(table.present[i])
        p = cut_start[d] + d + (table.rank[d] >> 1)
        equal, up = np.int64(at[p, 0]), np.int64(ends[d, 0])
        if len(lists.sieve):
            prefetch(lists.sieve, 3 * (equal - lists.first))
            prefetch(lists.sieve, 3 * (up - lists.first))
        else:
            prefetch(tests.slot, equal)
            prefetch(tests.slot, up)


@kernel(allocates=False)
def _rank(cuts, cut_start, d, code):
    """As `rank_entries`: a value equal to cut i has rank 2 i + 1, one between cuts i - 1 and i has 2 i."""
    a, z = cut_start[d], cut_start[d + 1]
    at = lower(cuts, a, z, code)
    return np.int32(2 * (at - a) + (at < z and cuts[at] == code))


@kernel(allocates=False)
def _verify(tests, begin, end, rank, event, found):
    """Emit those of the conjunctions begin..end-1 that hold."""
    slots, first, dim, low, high, flags = tests
    for c in range(begin, end):
        if holds_in_table(rank, slots[c], first[c], first[c + 1], dim, low, high, flags):
            _emit(slots[c], event, found)


@kernel(allocates=False)
def _match_lists(tests, lists, cut_start, n, table, event, found, is_direct):
    """Conjunctions in the lists of n dimensions, as `candidates.py` finds them; how many were verified.

    A conjunction of the direct lists has no other test. Most slices are empty, and a call is dear.
    """
    at, ends, base, rank, total = lists.at, lists.ends, lists.base, table.rank, 0
    for i in range(n):
        d = np.int64(table.present[i])
        x = rank[d]
        p = cut_start[d] + d + (x >> 1)
        q = p + (x & 1)
        up, two, two_end = np.int64(ends[d, 0]), np.int64(ends[d, 2]), np.int64(ends[d, 3])
        if at[p, 0] < at[q, 0]:
            t, z = np.int64(at[p, 0]), np.int64(at[q, 0])
            total += _verify_slice(tests, lists, t, z, rank, event, found, is_direct)
        above, below = min(np.int64(at[p, 1]), up), max(np.int64(at[q, 2]), up)
        if above < below:
            total += _verify_slice(tests, lists, above, below, rank, event, found, is_direct)
        if two >= two_end:
            continue
        z = base + upper(lists.low, two - base, two_end - base, x)
        t = np.int64(lists.since[z - base - 1]) if two < z else z
        while t < z:
            k = t - base
            if not k & 31 and lists.top[k >> 5] < x:
                t += 32
                continue
            if lists.high[k] >= x:
                total += _verify_slice(tests, lists, t, t + 1, rank, event, found, is_direct)
            t += 1
    return total


@kernel(inline=True, allocates=False)
def _passes_sieve(lists, t, rank):
    """Does the test in entry t of a list hold? Most candidates end here."""
    if not len(lists.sieve):
        return True
    k = t - lists.first
    x = rank[lists.sieve[k, 0]]
    return lists.sieve[k, 1] <= x <= lists.sieve[k, 2]


@kernel(allocates=False)
def _verify_slice(tests, lists, t, z, rank, event, found, is_direct):
    """Emit the conjunctions of list entries t..z-1 that hold; how many there are."""
    slots, first, dim, low, high, flags = tests
    target = lists.target
    for i in range(t, z if is_direct else t):
        _emit(slots[i], event, found)
    for i in range(t, t if is_direct else z):
        if not _passes_sieve(lists, i, rank):
            continue
        c = np.int64(target[i]) if len(target) else np.int64(i)
        if holds_in_table(rank, slots[c], first[c], first[c + 1], dim, low, high, flags):
            _emit(slots[c], event, found)
    return z - t


@kernel(allocates=False)
def _match_values(tests, values, table, n, event, found, counters):
    """Conjunctions by two values; most candidates end at the sieve."""
    slots, first, dim, low, high, flags = tests
    rank, column, present = table.rank, table.column, table.present
    for i in range(n):
        if values.column[present[i]] >= 0:
            column[values.column[present[i]]] = rank[present[i]]
    for i in range(n):
        d = present[i]
        if not rank[d] & 1:
            continue  # it is equal to no cut
        for p in range(values.begin[d], values.begin[d + 1]):
            other = rank[values.other[p]]
            if other == MISSING or not other & 1:
                continue
            counters[Counter.LOOKUPS] += 1
            key = values.base[p] + np.int64(rank[d] >> 1) * values.stride[p] + (other >> 1)
            if len(values.key):
                h = find_key(values.key, key)
                if values.key[h] != key:
                    continue
                key = np.int64(values.place[h])
            for c in range(values.start[key], values.start[key + 1]):
                counters[Counter.VALUES] += 1
                sieve = values.sieve[c - values.first]
                if column[sieve >> 32] != np.int32(sieve & 0xFFFFFFFF):
                    continue
                if holds_in_table(rank, slots[c], first[c], first[c + 1], dim, low, high, flags):
                    _emit(slots[c], event, found)
    for i in range(n):
        if values.column[present[i]] >= 0:
            column[values.column[present[i]]] = MISSING


@kernel(allocates=False)
def _match_pairs(tests, pairs, width, table, n, event, found):
    """Conjunctions by two dimensions; how many were verified."""
    present, candidates = table.present, 0
    one, word = np.uint64(1), np.uint64(63)
    for i in range(n):
        for j in range(i):
            x, y = np.int64(present[i]), np.int64(present[j])
            x, y = min(x, y), max(x, y)
            key = x * width + y
            if len(pairs.partners):
                if not _are_partners(pairs.partners, x, y):
                    continue
            else:
                h = (hash64(key) >> np.uint64(7)) & np.uint64(64 * len(pairs.bloom) - 1)
                if not (pairs.bloom[h >> np.uint64(6)] >> (h & word)) & one:
                    continue
            at = find_key(pairs.key, key)
            if pairs.key[at] == key:
                a = np.int64(pairs.start[pairs.value[at]])
                z = np.int64(pairs.start[pairs.value[at] + 1])
                candidates += z - a
                _verify(tests, a, z, table.rank, event, found)
    return candidates


@kernel(inline=True, allocates=False)
def _are_partners(partners, x, y):
    """May two dimensions be a pair?"""
    word, bit = _bit_of(y, partners.shape[1])
    if not (partners[x, word] >> bit) & np.uint64(1):
        return False
    word, bit = _bit_of(x, partners.shape[1])
    return (partners[y, word] >> bit) & np.uint64(1) != 0


# -- mutable segments ------------------------------------------------------------------------------


@kernel(allocates=False)
def match_one_mutable(arrays, number, codes, table, event, found, counters):
    """Match an event against a mutable segment (`MutableArrays`).

    `number`: the dimension of each place among the sorted keys of the frame. `codes`, by dimension: whether
    it is there (0, 1), and its code; all 0 between two calls.
    """
    unique, repeated = event.state[SingleState.UNIQUE], event.state[SingleState.REPEATED]
    n = _enter_codes(number, codes, table, event)
    present = table.present
    for i in range(n):
        at = np.int64(present[i]) + 1
        code = codes[present[i], 1]
        counters[MutableCounter.COMPARED] += arrays.length[at]
        for k in range(arrays.begin[at], arrays.begin[at] + arrays.length[at]):
            if not (arrays.entries[k, 0] <= code and code <= arrays.entries[k, 1]):
                continue
            last = arrays.entries[k, 2]
            tag, row = np.uint32(last & 0xFFFFFFFF), last >> 32
            if tag & MORE:
                counters[MutableCounter.FOLLOWED] += 1
                if not codes_hold_in_table(arrays, row, codes):
                    continue
            _emit(tag, event, found)
    if len(arrays.keys) > 1:
        counters[MutableCounter.PAIRED] += _match_chains(arrays, codes, table, n, event, found)
    for k in range(arrays.begin[0], arrays.begin[0] + arrays.length[0]):
        last = arrays.entries[k, 2]
        if codes_hold_in_table(arrays, last >> 32, codes):
            _emit(np.uint32(last & 0xFFFFFFFF), event, found)
    counters[MutableCounter.UNINDEXED] += arrays.length[0]
    for i in range(n):
        codes[present[i], 0] = 0
    _keep_owned(event, found, unique, repeated)


@kernel(allocates=False)
def _enter_codes(number, codes, table, event):
    """Enter the codes of an event; returns how many dimensions it has."""
    entries, texts, n = event.entries, event.texts, 0
    for i in range(event.state[SingleState.ENTRIES]):
        k = entries[0, i]
        if k < 0 or k + 1 >= len(table.begin):
            continue
        for place in range(table.begin[k], table.begin[k + 1]):
            code, is_there = _code_of(entries, i, table.space[place], texts)
            if is_there:
                d = number[place]
                codes[d, 0], codes[d, 1] = 1, code
                table.present[n] = d
                n += 1
    for i in range(event.state[SingleState.PATTERNS]):
        d = number[event.patterns[i]]
        codes[d, 0], codes[d, 1] = 1, 0
        table.present[n] = d
        n += 1
    return n


@kernel(allocates=False)
def _match_chains(arrays, codes, table, n, event, found):
    """Conjunctions under two dimensions; how many were verified."""
    present, candidates = table.present, 0
    for i in range(n):
        for j in range(i):
            x, y = np.int64(present[i]), np.int64(present[j])
            x, y = min(x, y), max(x, y)
            if not _are_partners(arrays.partners, x, y):
                continue
            at = find_key(arrays.keys, (x << 32) | y)
            row = np.int64(arrays.chains[at]) if arrays.keys[at] == (x << 32) | y else np.int64(-1)
            while row >= 0:
                candidates += 1
                if codes_hold_in_table(arrays, row, codes):
                    _emit(arrays.tag[row], event, found)
                row = np.int64(arrays.link[row, Link.NEXT])
    return candidates
