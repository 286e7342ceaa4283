"""Conjunctions as lists of predicates, under line numbers.

slot -> head -> next -> ...     the lines of a slot
size -> spare -> next -> ...    lines let go, with their places in the pool, for new ones of that size
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tocsin.match.published._kernels.predicates import EQUAL

__all__ = ["LineArrays", "add_lines", "drop_lines", "lines_of", "predicates_of"]


class LineArrays(NamedTuple):
    slot: NDArray[np.int32]  # -1: let go
    next: NDArray[np.int32]
    at: NDArray[np.int64]
    size: NDArray[np.uint16]
    pool: NDArray[np.int32]  # predicates, equalities first, by dimension
    head: NDArray[np.int32]  # by slot
    spare: NDArray[np.int32]  # by size


@njit(cache=True, nogil=True)
def _sorted_set(p, numbers, first, last, out):
    """Distinct predicates by kind and dimension, equalities first; how many."""
    n = 0
    for i in range(first, last):
        q = numbers[i]
        key = ((p.group[q] & 7) << 40) | (p.group[q] >> 3)
        j = n
        while j > 0:
            r = out[j - 1]
            other = ((p.group[r] & 7) << 40) | (p.group[r] >> 3)
            if other < key or (other == key and r <= q):
                break
            j -= 1
        if j > 0 and out[j - 1] == q:
            continue
        for k in range(n, j, -1):
            out[k] = out[k - 1]
        out[j] = q
        n += 1
    return n


@njit(cache=True, nogil=True)
def add_lines(lines, p, added, numbers, counts, out):
    """Lines for conjunctions (slot, start) of numbered predicates, from counts[0] on, while there is room.

    `counts`: conjunctions done, lines used, end of the pool.
    """
    slot, start = added
    longest = 1
    for c in range(len(slot)):
        longest = max(longest, start[c + 1] - start[c])
    own = np.empty(longest, np.int32)
    for c in range(counts[0], len(slot)):
        n = _sorted_set(p, numbers, start[c], start[c + 1], own)
        line = lines.spare[n]
        if line >= 0:
            lines.spare[n] = lines.next[line]
        else:
            if counts[1] == len(lines.slot) or counts[2] + n > len(lines.pool):
                return
            line = np.int32(counts[1])
            lines.at[line], lines.size[line] = counts[2], n
            counts[1] += 1
            counts[2] += n
        at = lines.at[line]
        for i in range(n):
            lines.pool[at + i] = own[i]
            p.uses[own[i]] += 1
        lines.slot[line], lines.next[line] = slot[c], lines.head[slot[c]]
        lines.head[slot[c]] = line
        out[c] = line
        counts[0] = c + 1


@njit(cache=True, nogil=True)
def lines_of(lines, slots):
    """The lines of slots."""
    n = 0
    for slot in slots:
        line = lines.head[slot] if slot < len(lines.head) else np.int32(-1)
        while line >= 0:
            n += 1
            line = lines.next[line]
    out, n = np.empty(n, np.int32), 0
    for slot in slots:
        line = lines.head[slot] if slot < len(lines.head) else np.int32(-1)
        while line >= 0:
            out[n] = line
            n += 1
            line = lines.next[line]
    return out


@njit(cache=True, nogil=True)
def drop_lines(lines, p, gone):
    """Let whole slots' lines go."""
    for line in gone:
        at, n = lines.at[line], lines.size[line]
        for i in range(at, at + n):
            p.uses[lines.pool[i]] -= 1
        lines.head[lines.slot[line]] = -1
    for line in gone:
        n = lines.size[line]
        lines.slot[line], lines.next[line] = -1, lines.spare[n]
        lines.spare[n] = line


@njit(cache=True, nogil=True)
def predicates_of(lines, p, which, equal_only):
    """Where the predicates of each line start, and the predicates."""
    total = 0
    for line in which:
        total += lines.size[line]
    start, out, n = np.zeros(len(which) + 1, np.int64), np.empty(total, np.int32), 0
    for k in range(len(which)):
        at = lines.at[which[k]]
        for i in range(at, at + lines.size[which[k]]):
            q = lines.pool[i]
            if equal_only and p.group[q] & 7 != EQUAL:
                break
            out[n] = q
            n += 1
        start[k + 1] = n
    return start, out[:n]
