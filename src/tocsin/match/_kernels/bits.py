"""The bit-sliced path: 512 events at a time, eight words a test.

For each bound of each dimension a row of 512 bits says which events lie below it; a test is the row of its
high end and not the row of its low end, a conjunction the intersection of its tests. `BitAnswer`
says whether the bits give matches, matches except at borders, or candidates.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel
from tocsin.compiled.instructions import (
    and_words,
    between,
    but_not,
    count_ones,
    ones,
    put_words,
    trailing_zeros,
)
from tocsin.match._kernels.primitives import MISSING, upper
from tocsin.match._kernels.verify import SLOT, Found, enlarged, holds_in_table, new_table

__all__ = ["BitAnswer", "match_bits"]

U1, U8, U9, U32 = (np.uint64(n) for n in (1, 8, 9, 32))  # unsigned: no check for negative indexes
LOW32 = np.uint64(0xFFFFFFFF)
RUN = 32  # conjunctions that buffers are enlarged for at a time: enlarging is slow
FEW = 8  # events of a conjunction: so few are verified, more are separated by further bits


class BitAnswer(IntEnum):
    """What the bits of a conjunction give: matches; matches but for border cells; only candidates."""

    EXACT = 0
    BORDER = 1
    CANDIDATE = 2


class BitBuffers(NamedTuple):
    """For a block of 512 events: bits by bound, ranks by dimension and event, one mask, and border cases."""

    rows: Any
    ranks: Any
    mask: Any
    border: Any


@kernel(allocates=False)
def _fill(buffers, bits, events, first, last):
    """Set the bits of events below each bound of each dimension; and write their ranks."""
    rows, ranks_of = buffers.rows, buffers.ranks
    number, bounds, bound_start = bits.number, bits.bounds, bits.bound_start
    start, dims, ranks, _, _ = events
    rows[:] = np.uint64(0)
    ranks_of[:] = MISSING
    for e in range(first, last):
        word, bit = (e - first) >> 6, np.uint64(1) << np.uint64((e - first) & 63)
        for i in range(start[e], start[e + 1]):
            d = number[dims[i]]
            if d >= 0:
                a, z = bound_start[d], bound_start[d + 1]
                c = upper(bounds, a, z, ranks[i]) - a
                rows[(a + 2 * d + c + 1) * 8 + word] |= bit
                ranks_of[d * 512 + e - first] = ranks[i]
    for d in range(len(bound_start) - 1):
        base = (bound_start[d] + 2 * d) * 8
        count = bound_start[d + 1] - bound_start[d]
        for c in range(8, (count + 2) * 8):
            rows[base + c] |= rows[base + c - 8]


@kernel(allocates=False)
def _mask(rows, below, upto, first, last):
    """The events of tests first..last-1 as bits: up to their high ends and not below their low ends."""
    words = between(rows, np.uint64(upto[first] >> 1) * U8, np.uint64(below[first] >> 1) * U8)
    for j in range(first + 1, last):
        p, q = np.uint64(below[j] >> 1) * U8, np.uint64(upto[j] >> 1) * U8
        words = and_words(words, between(rows, q, p))
    return words


@kernel(allocates=False)
def _inner(rows, below, upto, first, last, words):
    """Of the events, those that do not lie in cells that an interval covers only in part.

    `below` and `upto` are twice the number of a row, and one more if its cell is covered in part.
    """
    for j in range(first, last):
        p = np.uint64((below[j] >> 1) + (below[j] & 1)) * U8
        q = np.uint64((upto[j] >> 1) - (upto[j] & 1)) * U8
        words = and_words(words, between(rows, q, p))
    return words


@kernel(allocates=False)
def _emit(mask, words, packed, out, n):
    """Write packed + event for each event of the mask; there is space. Returns how many there are now."""
    at = np.uint64(n)
    for w in range(words):
        m = mask[w]
        base = packed + w * 64
        while m:
            out[at] = base + trailing_zeros(m)
            at += U1
            m &= m - U1
    return np.int64(at)


@kernel(allocates=False)
def _emit_few(mask, packed, out, n):
    """The same for words that seldom have more than one event: two are always written, without a branch.

    There is space for two more.
    """
    at = np.uint64(n)
    for w in range(8):
        m, base = mask[w], packed + w * 64
        after = at + np.uint64(ones(m))
        for _ in range(2):
            out[at] = base + trailing_zeros(m)
            at += U1
            m &= m - U1
        while m:
            out[at] = base + trailing_zeros(m)
            at += U1
            m &= m - U1
        at = after
    return np.int64(at)


@kernel(allocates=False)
def _verify_border(tests, numbers, buffers, count, row0, out, n):
    """Of the first `count` border cases those whose tests hold; there is space. No branch to mispredict.

    A kernel of its own because ranks lie by dimension and event here. Verifying border cases together, and
    words in vector registers, took `interval` with 100,000 subscriptions from 44 to 23 us
    (`bench/filters_show.py match`).
    """
    slots, first, dim, low, high, _ = tests
    ranks, border = buffers.ranks, buffers.border
    at = np.uint64(n)
    for j in range(np.uint64(count)):
        c, e = np.uint64(border[j]) >> U32, np.uint64(border[j]) & LOW32
        passed = U1
        for i in range(np.uint64(first[c]), np.uint64(first[c + U1])):
            x = ranks[(np.uint64(numbers[np.uint64(dim[i])]) << U9) | e]
            passed &= np.uint64((low[i] <= x) & (x <= high[i]))
        out[at] = (np.int64(slots[c] & SLOT) << 32) | (row0 + np.int64(e))
        at += passed
    return np.int64(at)


@kernel
def match_bits(tests, bits, width, events, owners, found):
    """Conjunctions of the bit-sliced path; returns what was found, and how many candidates were verified."""
    used, total = len(bits.bound_start) - 1, len(events.start) - 1
    rows, ranks = np.zeros((len(bits.bounds) + 2 * used) * 8, np.uint64), np.empty(used * 512, np.int32)
    buffers = BitBuffers(rows, ranks, np.zeros(8, np.uint64), np.empty(RUN * 512 + 2, np.int64))
    table, candidates = new_table(width), np.empty(RUN * 512 + 2, np.int64)
    verified = 0
    for block in range(0, total, 512):
        last = min(block + 512, total)
        _fill(buffers, bits, events, block, last)
        span = events.first + block, block, (last - block + 63) >> 6
        found, candidates, count, border = _match_block(tests, bits, buffers, candidates, owners, span, found)
        if count:
            found = _verify_candidates(tests, table, np.sort(candidates[:count]), events, found)
        verified += border + count
    return found, verified


@kernel
def _match_block(tests, bits, buffers, candidates, owners, span, found):
    """All conjunctions against a block of events. `span`: row and number of its first event, words.

    Returns what was found; candidates (event << 32 | conjunction) and how many; how many border cases were
    verified.
    """
    slots = tests.slot
    numbers, _, _, starts, below, upto, sure, begin = bits
    rows, _, mask, border = buffers
    owner, number = owners
    row0, block, words = span
    out, n = found.unique, found.unique_count
    k, cases, all_owned = np.int64(0), np.int64(0), len(owner) == 0
    for run in range(0, len(starts) - 1, RUN):
        if n + RUN * 512 + 2 > len(out):
            out = enlarged(out, n + RUN * 512 + 2)
        if k + RUN * 512 > len(candidates):
            candidates = enlarged(candidates, k + RUN * 512)
        doubts = np.int64(0)
        for s in range(run, min(run + RUN, len(starts) - 1)):
            outer = _mask(rows, below, upto, starts[s], starts[s + 1])
            count = count_ones(outer)
            if not count:
                continue
            c = begin + s
            slot = np.int64(slots[c] & SLOT)
            if not (all_owned or owner[slot] == number):
                continue
            packed, numbered = (slot << 32) | row0, np.int64(c) << 32
            put_words(outer, mask)
            if sure[s] == BitAnswer.EXACT:
                n = _emit(mask, words, packed, out, n)
            elif sure[s] == BitAnswer.CANDIDATE:
                k = _emit(mask, words, numbered | block, candidates, k)
            elif count <= FEW:
                doubts = _emit_few(mask, numbered, border, doubts)
            else:
                certain = _inner(rows, below, upto, starts[s], starts[s + 1], outer)
                put_words(certain, mask)
                n = _emit(mask, words, packed, out, n)
                put_words(but_not(outer, certain), mask)
                doubts = _emit_few(mask, numbered, border, doubts)
        if doubts:
            n = _verify_border(tests, numbers, buffers, doubts, row0, out, n)
            cases += doubts
    for j in range(k):
        candidates[j] = ((candidates[j] & 0xFFFFFFFF) << 32) | (candidates[j] >> 32)
    return Found(out, n, found.repeated, found.repeated_count), candidates, k, cases


@kernel
def _verify_candidates(tests, table, candidates, events, found):
    """Emit the candidates that hold; they come by event, and each event fills the table once."""
    slots, first, dim, low, high, flags = tests
    start, dims, ranks, _, row0 = events
    repeated, m = found.repeated, found.repeated_count
    event = np.int64(-1)
    for candidate in candidates:
        e, c = candidate >> 32, candidate & 0xFFFFFFFF
        if e != event:
            if event >= 0:
                for i in range(start[event], start[event + 1]):
                    table[dims[i]] = MISSING
            for i in range(start[e], start[e + 1]):
                table[dims[i]] = ranks[i]
            event = e
        tag = slots[c]
        if holds_in_table(table, tag, first[c], first[c + 1], dim, low, high, flags):
            if m == len(repeated):
                repeated = enlarged(repeated, m)
            repeated[m] = (np.int64(tag & SLOT) << 32) | (row0 + e)
            m += 1
    for i in range(start[event], start[event + 1]):
        table[dims[i]] = MISSING
    return Found(found.unique, found.unique_count, repeated, m)
