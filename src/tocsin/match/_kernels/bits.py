"""The bit-sliced path: 512 events at a time, eight words a test."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.building import MISSING, upper
from tocsin.match._kernels.intrinsics import ones, trailing_zeros
from tocsin.match._kernels.matching import SLOT, _passes, _wider

__all__ = ["EXACT", "LOOSE", "UNSURE", "match_bits"]

U1, U2, U3, U4, U5, U6, U7, U8 = (np.uint64(n) for n in range(1, 9))  # indexes that need no look at the sign
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
def _mask(rows, below, upto, first, last, mask):
    """The events of tests first..last-1 as bits: up to their high ends and not below their low ends.

    Eight variables, so that they stay in registers. Returns how many events there are.
    """
    p, q = np.uint64(below[first] >> 1) * U8, np.uint64(upto[first] >> 1) * U8
    a0, a1 = rows[q] & ~rows[p], rows[q + U1] & ~rows[p + U1]
    a2, a3 = rows[q + U2] & ~rows[p + U2], rows[q + U3] & ~rows[p + U3]
    a4, a5 = rows[q + U4] & ~rows[p + U4], rows[q + U5] & ~rows[p + U5]
    a6, a7 = rows[q + U6] & ~rows[p + U6], rows[q + U7] & ~rows[p + U7]
    for j in range(first + 1, last):
        p, q = np.uint64(below[j] >> 1) * U8, np.uint64(upto[j] >> 1) * U8
        a0 &= rows[q] & ~rows[p]
        a1 &= rows[q + U1] & ~rows[p + U1]
        a2 &= rows[q + U2] & ~rows[p + U2]
        a3 &= rows[q + U3] & ~rows[p + U3]
        a4 &= rows[q + U4] & ~rows[p + U4]
        a5 &= rows[q + U5] & ~rows[p + U5]
        a6 &= rows[q + U6] & ~rows[p + U6]
        a7 &= rows[q + U7] & ~rows[p + U7]
    if (a0 | a1 | a2 | a3 | a4 | a5 | a6 | a7) == np.uint64(0):
        return 0
    mask[0], mask[1], mask[2], mask[3] = a0, a1, a2, a3
    mask[4], mask[5], mask[6], mask[7] = a4, a5, a6, a7
    return ones(a0) + ones(a1) + ones(a2) + ones(a3) + ones(a4) + ones(a5) + ones(a6) + ones(a7)


@njit(cache=True, nogil=True)
def _inner(rows, below, upto, first, last, mask):
    """The same without the events of cells that an interval covers only in part.

    `below` and `upto` are twice the number of a row, and one more if its cell is covered in part.
    """
    for w in range(8):
        mask[w] = ~np.uint64(0)
    for j in range(first, last):
        p = np.uint64((below[j] >> 1) + (below[j] & 1)) * U8
        q = np.uint64((upto[j] >> 1) - (upto[j] & 1)) * U8
        for w in range(U8):
            mask[w] &= rows[q + w] & ~rows[p + w]


@njit(cache=True, nogil=True)
def _emit(mask, words, packed, out, n):
    """Writes packed + event for each event of the mask; there is room. Returns how many there are now."""
    for w in range(words):
        m = mask[w]
        base = packed + w * 64
        while m:
            out[n] = base + trailing_zeros(m)
            n += 1
            m &= m - U1
    return n


@njit(cache=True, nogil=True)
def _emit_if(mask, words, packed, out, n, ranks_of, numbers, tests, dim, low, high):
    """The same, if the event passes the tests from tests[0] to before tests[1]."""
    for w in range(words):
        m = mask[w]
        while m:
            e = w * 64 + trailing_zeros(m)
            m &= m - U1
            passed = True
            for i in range(tests[0], tests[1]):
                x = ranks_of[np.int64(numbers[dim[i]]) * 512 + e]
                if x < low[i] or x > high[i]:
                    passed = False
                    break
            if passed:
                out[n] = packed + e
                n += 1
    return n


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
    masks, inner, doubt = np.zeros(8, np.uint64), np.zeros(8, np.uint64), np.zeros(8, np.uint64)
    twice, m = np.empty(64, np.int64), 0
    candidates = np.empty(RUN * 512, np.int64)
    all_alive = len(owner) == 0
    seen = 0
    total = len(start) - 1
    for block in range(0, total, 512):
        last = min(block + 512, total)
        words = (last - block + 63) >> 6
        _fill(rows, ranks_of, numbers, bounds, bound_start, coded, block, last)
        k = 0
        for run in range(0, len(starts) - 1, RUN):  # room is made for a run at a time: growing is slow
            if n + RUN * 512 > len(out):
                out = _wider(out, n + RUN * 512)
            if k + RUN * 512 > len(candidates):
                candidates = _wider(candidates, k + RUN * 512)
            for s in range(run, min(run + RUN, len(starts) - 1)):
                count = _mask(rows, below, upto, starts[s], starts[s + 1], masks)
                if not count:
                    continue
                c = begin + s
                slot = np.int64(slots[c] & SLOT)
                if not (all_alive or owner[slot] == number):
                    continue
                packed = (slot << 32) | (e0 + block)
                if sure[s] == EXACT:
                    n = _emit(masks, words, packed, out, n)
                elif sure[s] == UNSURE:
                    k = _emit(masks, words, (np.int64(c) << 32) | block, candidates, k)
                elif count <= FEW:
                    tests = first[c], first[c + 1]
                    n = _emit_if(masks, words, packed, out, n, ranks_of, numbers, tests, dim, low, high)
                    seen += count
                else:
                    _inner(rows, below, upto, starts[s], starts[s + 1], inner)
                    for w in range(8):
                        doubt[w] = masks[w] & ~inner[w]
                    n = _emit(inner, words, packed, out, n)
                    before = n
                    tests = first[c], first[c + 1]
                    n = _emit_if(doubt, words, packed, out, n, ranks_of, numbers, tests, dim, low, high)
                    seen += n - before
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
                if _passes(table, tag, first[c], first[c + 1], dim, low, high, flags):
                    if m == len(twice):
                        twice = _wider(twice, m)
                    twice[m] = (np.int64(tag & SLOT) << 32) | (e0 + e)
                    m += 1
    return out[:n], twice[:m], seen
