"""What all kernels of this room share: sorted search and hashing."""

from __future__ import annotations

import numpy as np

from tocsin.compiled import kernel

__all__ = ["MISSING", "MOST", "find_key", "hash64", "key_place", "lower", "upper"]

MISSING, MOST = np.int32(-(2**31)), np.int32(2**31 - 1)  # rank of an absent attribute; an open high end
_SCANNED = 64  # the last values of a sorted search are compared one after the other


@kernel(inline=True, allocates=False)
def hash64(x):
    y = np.uint64(x) * np.uint64(0x9E3779B97F4A7C15)
    return y ^ (y >> np.uint64(32))


@kernel(inline=True, allocates=False)
def key_place(keys, key):
    """The first place to look for a key in a hash table."""
    return hash64(key) & np.uint64(len(keys) - 1)


@kernel(inline=True, allocates=False)
def find_key(keys, key):
    """The place of a key in a hash table, or the free place where it belongs."""
    mask = np.uint64(len(keys) - 1)
    h = key_place(keys, key)
    while keys[h] >= 0 and keys[h] != key:
        h = (h + np.uint64(1)) & mask
    return h


@kernel(inline=True, allocates=False)
def lower(a, low, high, x):
    """The first place in a[low:high], sorted, whose value is not below x.

    The branch predictor misses every second halving, so the last values are compared all, several at once.
    """
    at, n, one = np.uint64(low), np.uint64(high - low), np.uint64(1)
    while n > np.uint64(_SCANNED):
        half = (n + one) >> one
        at = at + half if a[at + half - one] < x else at
        n -= half
    below = np.int64(0)
    for i in range(at, at + n):  # unsigned: no check for negative indexes
        below += np.int64(a[i] < x)
    return np.int64(at) + below


@kernel(inline=True, allocates=False)
def upper(a, low, high, x):
    """The first place in a[low:high], sorted, whose value is above x."""
    at, n, one = np.uint64(low), np.uint64(high - low), np.uint64(1)
    while n > np.uint64(_SCANNED):
        half = (n + one) >> one
        at = at + half if a[at + half - one] <= x else at
        n -= half
    below = np.int64(0)
    for i in range(at, at + n):
        below += np.int64(a[i] <= x)
    return np.int64(at) + below
