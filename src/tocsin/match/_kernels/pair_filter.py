"""Which pairs of an event's dimensions may be in a table of pairs: most are not, and end here.

*Partners*: every dimension has 512 bits or more, one of them set for each dimension it makes a pair with. A
pair can be there if each is among the partners of the other. An event has a few lines of memory to read for
each of its dimensions, not one for each pair of them. Where dimensions are very many, that is too much room:

*Bloom*: a bit per pair.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.match._kernels.build import find_key, hash64, key_place
from tocsin.match._kernels.intrinsics import prefetch

__all__ = ["WORDS", "collect_pairs", "fill_partners", "find_pairs", "mark_partners", "pair_room"]

WORDS = 8  # of partners, at least
_ENOUGH = 256  # pairs that are looked up together


@njit(cache=True, nogil=True, inline="always")
def _bit_of(d, words):
    """The word and the bit of a dimension among the partners of another."""
    h = hash64(d)
    return (h >> np.uint64(40)) & np.uint64(words - 1), (h >> np.uint64(34)) & np.uint64(63)


@njit(cache=True, nogil=True)
def mark_partners(partners, x, y):
    """Two dimensions are a pair."""
    word, bit = _bit_of(y, partners.shape[1])
    partners[x, word] |= np.uint64(1) << bit
    word, bit = _bit_of(x, partners.shape[1])
    partners[y, word] |= np.uint64(1) << bit


@njit(cache=True, nogil=True)
def fill_partners(keys, width, partners):
    """Of all pairs; a key is a dimension times `width`, and the other."""
    for key in keys:
        mark_partners(partners, key // width, key % width)


@njit(cache=True, nogil=True)
def pair_room(start, words):
    """Room for `collect_pairs`, of events whose dimensions begin at `start`; keys and events come last."""
    most = 1
    for e in range(len(start) - 1):
        most = max(most, start[e + 1] - start[e])
    found, lines = np.empty(2 * most + 1024, np.int64), np.empty((words + 2) * most, np.uint64)
    return found, lines, np.empty(_ENOUGH + len(found), np.int64), np.empty(_ENOUGH + len(found), np.int64)


@njit(cache=True, nogil=True)
def collect_pairs(bloom, partners, table, width, start, ids, e, i, room):
    """Pairs of an event's dimensions that may be in `table`, from dimension i of event e on, until there are
    enough: their keys (lesser dimension * `width` + other), and their events, in `room`.

    Returns how many, and the event and the dimension to go on with. A table is larger than the caches, so it
    is read later: that memory is asked for now.
    """
    found, lines, key, event = room
    width, each = np.int64(width), partners.shape[1]
    most = len(lines) // (each + 2)
    words, bits, rows = lines[:most], lines[most : 2 * most], lines[2 * most :]
    n, count = 0, len(start) - 1
    while e < count and n < _ENOUGH:
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


@njit(cache=True, nogil=True)
def find_pairs(table, content, place, event, hits):
    """Of the keys in `place`, those that are in the table: their places there, in `place` too; how many.

    What `content` has at these places is asked for.
    """
    count = 0
    for k in range(hits):
        key, at = place[k], find_key(table, place[k])
        place[count], event[count] = at, event[k]
        prefetch(content, np.int64(at))
        count += table[at] == key
    return count


@njit(cache=True, nogil=True)
def _gather_partners(partners, ids, size, words, bits, rows):
    """What is to be known of an event's dimensions: the bits they have, and their partners, side by side."""
    flat, each = partners.reshape(-1), np.uint64(partners.shape[1])
    for i in range(np.uint64(size)):  # without a sign, places need not be looked at for one
        words[i], bits[i] = _bit_of(ids[i], each)
        base = np.uint64(ids[i]) * each
        for line in range(np.uint64(0), each, np.uint64(WORDS)):
            for k in range(np.uint64(WORDS)):
                rows[i * each + line + k] = flat[base + line + k]


@njit(cache=True, nogil=True)
def _by_partners(words, bits, rows, each, size, first, found):
    """Pairs of dimensions i < j of an event that may be there, as i << 32 | j, for i from `first` on.

    Returns how many, and the i that is next: as far as there is room, which is for `size` at least.
    """
    if each == WORDS:  # known when it is compiled
        return _find_partners(words, bits, rows, np.uint64(WORDS), size, first, found)
    return _find_partners(words, bits, rows, np.uint64(each), size, first, found)


@njit(cache=True, nogil=True, inline="always")
def _find_partners(words, bits, rows, each, size, first, found):
    one, half, count = np.uint64(1), np.uint64(32), np.uint64(size)
    hits, i, last = np.uint64(0), np.uint64(first), np.uint64(len(found))
    while i < count and hits + count <= last:
        own, place, word, bit = i * each, i << half, words[i], bits[i]
        for j in range(i + one, count):  # without a branch to be guessed
            found[hits] = place | j
            there = (rows[own + words[j]] >> bits[j]) & (rows[j * each + word] >> bit)
            hits += there & one
        i += one
    return np.int64(hits), np.int64(i)


@njit(cache=True, nogil=True)
def _by_bloom(bloom, width, ids, size, first, found):
    """As `_by_partners`; dimensions ascend."""
    bits, hits, i = np.uint64(64 * len(bloom) - 1), 0, first
    one, six, seven, word = np.uint64(1), np.uint64(6), np.uint64(7), np.uint64(63)
    while i < size and hits + size <= len(found):
        own = ids[i] * width
        for j in range(i + 1, size):  # without a branch, so that many loads are under way at once
            h = (hash64(own + ids[j]) >> seven) & bits
            found[hits] = (i << 32) | j
            hits += np.int64((bloom[h >> six] >> (h & word)) & one)
        i += 1
    return hits, i
