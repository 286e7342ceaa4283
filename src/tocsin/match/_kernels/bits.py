"""The bit-sliced path: 512 events at a time, eight words a test."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.building import MISSING, upper
from tocsin.match._kernels.intrinsics import trailing_zeros
from tocsin.match._kernels.matching import SLOT, _passes, _wider

__all__ = ["EXACT", "LOOSE", "UNSURE", "match_bits"]

EXACT, LOOSE, UNSURE = 0, 1, 2
"""What the bits of a conjunction say: all; all but the events of a few cells; only what may be."""


@njit(cache=True, nogil=True)
def _fill(rows, ranks_of, number, bounds, bound_start, coded, first, last):
    """For each bound of each dimension the events whose value lies below it, as bits; and their ranks."""
    start, dims, ranks, _ = coded
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
def _masks(starts, below, upto, rows, masks, inner):
    """The events of each conjunction as bits; `inner`: without those of cells it covers only in part.

    `below` and `upto` are twice the number of a row, and one more if its cell is covered in part.
    """
    for s in range(len(starts) - 1):
        r = s * 8
        for w in range(8):
            masks[r + w] = ~np.uint64(0)
        if inner:
            for j in range(starts[s], starts[s + 1]):
                p = (np.int64(below[j] >> 1) + (below[j] & 1)) * 8
                q = (np.int64(upto[j] >> 1) - (upto[j] & 1)) * 8
                for w in range(8):
                    masks[r + w] &= rows[q + w] & ~rows[p + w]
        else:
            for j in range(starts[s], starts[s + 1]):
                p, q = np.int64(below[j] >> 1) * 8, np.int64(upto[j] >> 1) * 8
                for w in range(8):
                    masks[r + w] &= rows[q + w] & ~rows[p + w]


@njit(cache=True, nogil=True)
def match_bits(checks, bits, width, coded, e0, owner, number):
    """Packed matches, packed matches that may occur twice, and how many candidates were checked."""
    slots, first, dim, low, high, flags = checks
    numbers, bounds, bound_start, starts, below, upto, sure, begin, loose = bits
    start, dims, ranks, _ = coded
    used = len(bound_start) - 1
    rows = np.zeros((len(bounds) + 2 * used) * 8, np.uint64)
    ranks_of = np.empty(used * 512, np.int32)
    table = np.full(width, MISSING, np.int32)
    masks = np.zeros(8 * len(starts), np.uint64)
    inner = np.zeros(8 * len(starts) if loose else 0, np.uint64)
    out, n = np.empty(65536, np.int64), 0
    twice, m = np.empty(64, np.int64), 0
    candidates = np.empty(1024, np.int64)
    all_alive = len(owner) == 0
    seen = 0
    total = len(start) - 1
    for block in range(0, total, 512):
        last = min(block + 512, total)
        words = (last - block + 63) >> 6
        _fill(rows, ranks_of, numbers, bounds, bound_start, coded, block, last)
        _masks(starts, below, upto, rows, masks, False)
        if loose:
            _masks(starts, below, upto, rows, inner, True)
        k = 0
        for s in range(len(starts) - 1):
            c = begin + s
            tag = slots[c]
            slot = np.int64(tag & SLOT)
            if not (all_alive or owner[slot] == number):
                continue
            how = sure[s]
            for w in range(words):
                mask = masks[s * 8 + w]
                if not mask:
                    continue
                if n + 64 > len(out):
                    out = _wider(out, n + 64)
                base = block + w * 64
                packed = (slot << 32) | (e0 + base)
                doubt = np.uint64(0)
                if how == LOOSE:
                    doubt = mask & ~inner[s * 8 + w]
                    mask &= ~doubt
                elif how == UNSURE:
                    if k + 64 > len(candidates):
                        candidates = _wider(candidates, k + 64)
                    while mask:
                        candidates[k] = ((base + trailing_zeros(mask)) << 32) | c
                        k += 1
                        mask &= mask - np.uint64(1)
                while mask:
                    out[n] = packed + trailing_zeros(mask)
                    n += 1
                    mask &= mask - np.uint64(1)
                while doubt:
                    e = trailing_zeros(doubt)
                    doubt &= doubt - np.uint64(1)
                    seen += 1
                    passed = True
                    for i in range(first[c], first[c + 1]):
                        x = ranks_of[np.int64(numbers[dim[i]]) * 512 + w * 64 + e]
                        if x < low[i] or x > high[i]:
                            passed = False
                            break
                    if passed:
                        out[n] = packed + e
                        n += 1
        if k:
            seen += k
            order = np.sort(candidates[:k])  # by event, so that each is spread out once
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
