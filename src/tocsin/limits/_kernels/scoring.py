"""Scores of kept rows: which to drop, and closing the gaps in place.

The rows to drop are the lowest scores whose sizes add up to an amount. No sort is needed: scores become
unsigned integers in their order, and a histogram over 4096 buckets of their leading bits says in which bucket
the border lies; the next 12 bits of that bucket's rows are counted next, until it is small.
"""

from __future__ import annotations

import numpy as np

from tocsin.compiled import kernel

__all__ = [
    "BUCKETS", "BUCKET_BITS", "count_scores", "keep_rows", "move_items", "move_texts", "spread_scores",
    "weigh_scores",
]  # fmt: skip

BUCKET_BITS = 12
BUCKETS = 1 << BUCKET_BITS
_TOP = np.uint64(1 << 63)


@kernel(inline=True, allocates=False)
def _ordered(bits):
    """The bits of a double as an unsigned integer of the same order."""
    u = np.uint64(bits)
    return ~u if u & _TOP else u | _TOP


@kernel(allocates=False)
def spread_scores(by_code, code, out):
    """The score of each row's key."""
    for row in range(len(out)):
        out[row] = by_code[code[row]]


@kernel(allocates=False)
def weigh_scores(weight, fixed, extra, scores):
    """Benefits times how many subscriptions want the row, by byte; `extra`: bytes by row, or empty."""
    for row in range(len(scores)):
        size = fixed + (extra[row] if len(extra) else 0)
        scores[row] = scores[row] * weight[row] / size


@kernel(allocates=False)
def count_scores(bits, fixed, extra, prefix, shift, histogram):
    """Add the sizes of rows whose leading bits are `prefix` to the buckets of their next 12 bits."""
    above = shift + BUCKET_BITS
    for row in range(len(bits)):
        u = _ordered(bits[row])
        if above < 64 and (u >> np.uint64(above)) != np.uint64(prefix):
            continue
        bucket = np.int64(u >> np.uint64(shift)) & (BUCKETS - 1)
        histogram[bucket] += fixed + (extra[row] if len(extra) else 0)


@kernel(allocates=False)
def keep_rows(bits, fixed, extra, border, shift, rest, keep):
    """Clears `keep` of rows below the border, and of the first ones on it until `rest` is dropped.

    Returns what is left of it.
    """
    for row in range(len(bits)):
        u = _ordered(bits[row]) >> np.uint64(shift)
        if u > np.uint64(border):
            continue
        if u == np.uint64(border):
            if rest <= 0:
                continue
            rest -= fixed + (extra[row] if len(extra) else 0)
        keep[row] = False
    return rest


@kernel(allocates=False)
def move_items(items, keep):
    """Move kept items to the front, in order."""
    n = 0
    for row in range(len(keep)):
        if keep[row]:
            items[n] = items[row]
            n += 1


@kernel(allocates=False)
def move_texts(data, begin, size):
    """Close the gaps between texts, which lie in order; returns the bytes used."""
    end = 0
    for row in range(len(begin)):
        a = begin[row]
        begin[row] = end
        for j in range(size[row]):
            data[end + j] = data[a + j]
        end += size[row]
    return end
