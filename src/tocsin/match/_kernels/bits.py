"""The bit-sliced path: 512 events at a time, eight words a test."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.build import MISSING, upper
from tocsin.match._kernels.intrinsics import ones, trailing_zeros
from tocsin.match._kernels.vectors import and_words, between, but_not, count_ones, put_words
from tocsin.match._kernels.verify import SLOT, passes, wider

__all__ = ["EXACT", "LOOSE", "UNSURE", "match_bits"]

U1, U8, U9, U32 = (np.uint64(n) for n in (1, 8, 9, 32))  # places that need no look at the sign
LOW32 = np.uint64(0xFFFFFFFF)
RUN = 32  # conjunctions
FEW = 8  # events of a conjunction that are sooner checked than told apart by more bits
EXACT, LOOSE, UNSURE = 0, 1, 2
"""What the bits of a conjunction say: all; all but the events of a few cells; only what may be."""


@njit(cache=True, nogil=True)
def _fill(rows, ranks_of, number, bounds, bound_start, coded, first, last):
    """For each bound of each dimension the events whose value lies below it, as bits; and their ranks."""
    start, dims, ranks, _, _ = coded
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


@njit(cache=True, nogil=True)
def _mask(rows, below, upto, first, last):
    """The events of tests first..last-1 as bits: up to their high ends and not below their low ends."""
    words = between(rows, np.uint64(upto[first] >> 1) * U8, np.uint64(below[first] >> 1) * U8)
    for j in range(first + 1, last):
        p, q = np.uint64(below[j] >> 1) * U8, np.uint64(upto[j] >> 1) * U8
        words = and_words(words, between(rows, q, p))
    return words


@njit(cache=True, nogil=True)
def _inner(rows, below, upto, first, last, words):
    """Those of the events that do not lie in cells that an interval covers only in part.

    `below` and `upto` are twice the number of a row, and one more if its cell is covered in part.
    """
    for j in range(first, last):
        p = np.uint64((below[j] >> 1) + (below[j] & 1)) * U8
        q = np.uint64((upto[j] >> 1) - (upto[j] & 1)) * U8
        words = and_words(words, between(rows, q, p))
    return words


@njit(cache=True, nogil=True)
def _emit(mask, words, packed, out, n):
    """Writes packed + event for each event of the mask; there is room. Returns how many there are now."""
    at = np.uint64(n)
    for w in range(words):
        m = mask[w]
        base = packed + w * 64
        while m:
            out[at] = base + trailing_zeros(m)
            at += U1
            m &= m - U1
    return np.int64(at)


@njit(cache=True, nogil=True)
def _emit_few(mask, packed, out, n):
    """The same where words have one event or none, or seldom more: two are written anyway, and not guessed.

    There is room for two more.
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


@njit(cache=True, nogil=True)
def _verify(checks, numbers, ranks_of, doubtful, k, e0, out, n):
    """Of the first k pairs of conjunction and event those that pass; there is room. Nothing is guessed."""
    slots, first, dim, low, high, _ = checks
    at = np.uint64(n)
    for j in range(np.uint64(k)):
        c, e = np.uint64(doubtful[j]) >> U32, np.uint64(doubtful[j]) & LOW32
        passed = U1
        for i in range(np.uint64(first[c]), np.uint64(first[c + U1])):
            x = ranks_of[(np.uint64(numbers[np.uint64(dim[i])]) << U9) | e]
            passed &= np.uint64((low[i] <= x) & (x <= high[i]))
        out[at] = (np.int64(slots[c] & SLOT) << 32) | (e0 + np.int64(e))
        at += passed
    return np.int64(at)


@njit(cache=True, nogil=True)
def match_bits(checks, bits, width, coded, owner, number, out, n):
    """Packed matches, packed matches that may occur twice, and how many candidates were checked.

    `out` has n matches already; if it gets too small, a larger one is made.
    """
    slots, first, dim, low, high, flags = checks
    numbers, bounds, bound_start, starts, below, upto, sure, begin = bits
    start, dims, ranks, _, e0 = coded
    used = len(bound_start) - 1
    rows = np.zeros((len(bounds) + 2 * used) * 8, np.uint64)
    ranks_of = np.empty(used * 512, np.int32)
    table = np.full(width, MISSING, np.int32)
    masks = np.zeros(8, np.uint64)
    twice, m = np.empty(64, np.int64), 0
    candidates = np.empty(RUN * 512 + 2, np.int64)
    doubtful = np.empty(RUN * 512 + 2, np.int64)
    all_alive = len(owner) == 0
    seen = 0
    total = len(start) - 1
    for block in range(0, total, 512):
        last = min(block + 512, total)
        words = (last - block + 63) >> 6
        _fill(rows, ranks_of, numbers, bounds, bound_start, coded, block, last)
        k = 0
        for run in range(0, len(starts) - 1, RUN):  # room is made for a run at a time: growing is slow
            if n + RUN * 512 + 2 > len(out):
                out = wider(out, n + RUN * 512 + 2)
            if k + RUN * 512 > len(candidates):
                candidates = wider(candidates, k + RUN * 512)
            doubts = 0
            for s in range(run, min(run + RUN, len(starts) - 1)):
                outer = _mask(rows, below, upto, starts[s], starts[s + 1])
                count = count_ones(outer)
                if not count:
                    continue
                c = begin + s
                slot = np.int64(slots[c] & SLOT)
                if not (all_alive or owner[slot] == number):
                    continue
                packed, asked = (slot << 32) | (e0 + block), np.int64(c) << 32
                put_words(outer, masks)
                if sure[s] == EXACT:
                    n = _emit(masks, words, packed, out, n)
                elif sure[s] == UNSURE:
                    k = _emit(masks, words, asked | block, candidates, k)
                elif count <= FEW:
                    doubts = _emit_few(masks, asked, doubtful, doubts)
                else:
                    certain = _inner(rows, below, upto, starts[s], starts[s + 1], outer)
                    put_words(certain, masks)
                    n = _emit(masks, words, packed, out, n)
                    put_words(but_not(outer, certain), masks)
                    doubts = _emit_few(masks, asked, doubtful, doubts)
            n = _verify(checks, numbers, ranks_of, doubtful, doubts, e0 + block, out, n)
            seen += doubts
        if k:
            seen += k
            turned = ((candidates[:k] & 0xFFFFFFFF) << 32) | (candidates[:k] >> 32)
            order = np.sort(turned)  # by event, so that each is spread out once
            event = np.int64(-1)
            for j in range(k + 1):
                e = order[j] >> 32 if j < k else np.int64(-1)
                if e != event:
                    if event >= 0:
                        for i in range(start[event], start[event + 1]):
                            table[dims[i]] = MISSING
                    if e < 0:
                        break
                    for i in range(start[e], start[e + 1]):
                        table[dims[i]] = ranks[i]
                    event = e
                c = order[j] & 0xFFFFFFFF
                tag = slots[c]
                if passes(table, tag, first[c], first[c + 1], dim, low, high, flags):
                    if m == len(twice):
                        twice = wider(twice, m)
                    twice[m] = (np.int64(tag & SLOT) << 32) | (e0 + e)
                    m += 1
    return out[:n], twice[:m], seen
