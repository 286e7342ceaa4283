"""Which pairs of an event's dimensions may be in a table of pairs: most are not, and end here.

*Partners*: every dimension has 512 bits, one of them set for each dimension that it makes a pair with. A pair
can be there if each is among the partners of the other. An event has a line of memory to read for each of its
dimensions, not for each pair of them. Where dimensions have very many partners, nearly all bits would be set:

*Bloom*: a bit per pair.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.building import hash64

__all__ = ["WORDS", "by_bloom", "by_partners", "fill_partners", "gather_partners", "mark_partners"]

WORDS = 8  # of partners


@njit(cache=True, nogil=True, inline="always")
def _bit_of(d):
    """The word and the bit of a dimension among the partners of another."""
    h = hash64(d)
    return (h >> np.uint64(40)) & np.uint64(7), (h >> np.uint64(34)) & np.uint64(63)


@njit(cache=True, nogil=True)
def mark_partners(partners, x, y):
    """Two dimensions are a pair."""
    word, bit = _bit_of(y)
    partners[x, word] |= np.uint64(1) << bit
    word, bit = _bit_of(x)
    partners[y, word] |= np.uint64(1) << bit


@njit(cache=True, nogil=True)
def fill_partners(keys, width, partners):
    """Of all pairs; a key is a dimension times `width`, and the other."""
    for key in keys:
        mark_partners(partners, key // width, key % width)


@njit(cache=True, nogil=True)
def gather_partners(partners, ids, size, words, bits, rows):
    """What is to be known of an event's dimensions: the bits they have, and their partners, side by side."""
    flat = partners.reshape(-1)
    for i in range(np.uint64(size)):  # without a sign, places need not be looked at for one
        words[i], bits[i] = _bit_of(ids[i])
        base = np.uint64(ids[i]) * np.uint64(WORDS)
        for k in range(np.uint64(WORDS)):
            rows[i * np.uint64(WORDS) + k] = flat[base + k]


@njit(cache=True, nogil=True)
def by_partners(words, bits, rows, size, first, found):
    """Pairs of dimensions i < j of an event that may be there, as i * size + j, for i from `first` on.

    Returns how many, and the i that is next: as far as there is room, which is for `size` at least.
    """
    one, three, count = np.uint64(1), np.uint64(3), np.uint64(size)
    hits, i, last = np.uint64(0), np.uint64(first), np.uint64(len(found))
    while i < count and hits + count <= last:
        own, word, bit = i << three, words[i], bits[i]
        for j in range(i + one, count):  # without a branch to be guessed
            found[hits] = i * count + j
            there = (rows[own + words[j]] >> bits[j]) & (rows[(j << three) + word] >> bit)
            hits += there & one
        i += one
    return np.int64(hits), np.int64(i)


@njit(cache=True, nogil=True)
def by_bloom(bloom, width, ids, size, first, found):
    """As `by_partners`; dimensions ascend."""
    bits, hits, i = np.uint64(64 * len(bloom) - 1), 0, first
    one, six, seven, word = np.uint64(1), np.uint64(6), np.uint64(7), np.uint64(63)
    while i < size and hits + size <= len(found):
        own = ids[i] * width
        for j in range(i + 1, size):  # without a branch, so that many loads are under way at once
            h = (hash64(own + ids[j]) >> seven) & bits
            found[hits] = i * size + j
            hits += np.int64((bloom[h >> six] >> (h & word)) & one)
        i += 1
    return hits, i
