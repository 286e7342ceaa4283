"""Extremes of recent rows: of each subscription, the rows that are, or may become, its extreme.

A row that is worse than one which stays longer never becomes the extreme. The others form a staircase:
ordered by the time at which they leave, each is worse than the one before it. The first one is the answer.

Staircases lie in a pool, each in a region of 4, 8, 16, .. entries; regions given up are linked by size.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.rank._kernels.aggregates import KIND_BITS, LOSES, RANK_BITS

__all__ = [
    *("BEGIN", "CODE", "ENTRIES", "FIRST", "HEAD", "NO_REGION", "REGION", "SIZE", "SLOT", "TIME", "USED"),
    *("AnswerCodes", "RecentRows", "Stairs", "build_stairs", "emit_recent", "release_stairs"),
]

BEGIN, HEAD, SIZE, REGION = range(4)  # columns of `places`; REGION is its size class
TIME, CODE, SLOT = range(3)  # columns of `pool`
USED, ENTRIES, FIRST = range(
    3
)  # of `meta`: used part of the pool; entries; FIRST + c: a free region of class c
NO_REGION = -1
_LEAST_SIZE = 4
_RANK = np.int64(2**RANK_BITS - 1)


class Stairs(NamedTuple):
    """Staircases by place."""

    places: NDArray[np.int64]
    pool: NDArray[np.int64]
    meta: NDArray[np.int64]


class RecentRows(NamedTuple):
    """Rows by change: slot, the time from which they count, code of the value (the least is the extreme)."""

    slot: NDArray[np.int64]
    time: NDArray[np.int64]
    code: NDArray[np.int64]


class AnswerCodes(NamedTuple):
    """Output: for each changed answer the one before, then the one after; codes are as in the rows."""

    seq: NDArray[np.int64]
    slot: NDArray[np.int64]
    code: NDArray[np.int64]
    valid: NDArray[np.bool_]


@kernel(allocates=False)
def _take_region(stairs, p, region):
    """Move a staircase to a region of a class; False if the pool has no space for it."""
    places, pool, meta = stairs
    begin = meta[FIRST + region]
    if begin >= 0:
        meta[FIRST + region] = pool[begin, TIME]
    else:
        begin = meta[USED]
        if begin + (_LEAST_SIZE << region) > len(pool):
            return False
        meta[USED] += _LEAST_SIZE << region
    old, size = places[p, BEGIN] + places[p, HEAD], places[p, SIZE]
    for i in range(size):
        for column in range(3):
            pool[begin + i, column] = pool[old + i, column]
    _give_up(stairs, p)
    places[p, BEGIN], places[p, HEAD], places[p, REGION] = begin, 0, region
    return True


@kernel(allocates=False)
def _give_up(stairs, p):
    """Link the region of a place to the free ones."""
    places, pool, meta = stairs
    region = places[p, REGION]
    if region != NO_REGION:
        begin = places[p, BEGIN]
        pool[begin, TIME] = meta[FIRST + region]
        meta[FIRST + region] = begin


@kernel(allocates=False)
def _has_space(stairs, p):
    """Make space for one more entry of a staircase; False if the pool has none."""
    places, pool, _ = stairs
    size, head, region = places[p, SIZE], places[p, HEAD], places[p, REGION]
    capacity = 0 if region == NO_REGION else _LEAST_SIZE << region
    if head + size < capacity:
        return True
    if 2 * size <= capacity and head > 0:  # back to the front of its region
        begin = places[p, BEGIN]
        for i in range(size):
            for column in range(3):
                pool[begin + i, column] = pool[begin + head + i, column]
        places[p, HEAD] = 0
        return True
    return _take_region(stairs, p, region + 1)


@kernel(allocates=False)
def _insert(stairs, p, rows, i):
    """Add a row to a staircase that has space for it."""
    places, pool, meta = stairs
    first = places[p, BEGIN] + places[p, HEAD]
    size, time, code = places[p, SIZE], rows.time[i], rows.code[i]
    longer = size  # entries from here on stay longer
    while longer > 0 and pool[first + longer - 1, TIME] > time:
        longer -= 1
    if longer < size and pool[first + longer, CODE] <= code:
        return
    if longer > 0 and pool[first + longer - 1, TIME] == time and pool[first + longer - 1, CODE] <= code:
        return
    worse = longer  # entries from here up to those are worse, and do not stay longer
    while worse > 0 and pool[first + worse - 1, CODE] >= code:
        worse -= 1
    moved = worse + 1 - longer
    if moved == 1:
        for j in range(size - 1, longer - 1, -1):
            for column in range(3):
                pool[first + j + 1, column] = pool[first + j, column]
    elif moved < 0:
        for j in range(longer, size):
            for column in range(3):
                pool[first + j + moved, column] = pool[first + j, column]
    at = first + worse
    pool[at, TIME], pool[at, CODE], pool[at, SLOT] = time, code, rows.slot[i]
    places[p, SIZE] += moved
    meta[ENTRIES] += moved


@kernel(allocates=False)
def emit_recent(stairs, by_rank, slots, packed, rows, seqs, start, out):
    """Apply changes, packed (change, rank of the member, kind), by seq and rank: LOSES a row, or gains one.

    Applies members' changes of a seq as a whole, from `start` on, as long as the pool has space: returns the
    first one not applied, and the number of deltas.
    """
    places, pool, meta = stairs
    n, at = 0, start
    while at < len(packed):
        p = by_rank[(packed[at] >> KIND_BITS) & _RANK]
        first = places[p, BEGIN] + places[p, HEAD]
        had, before = places[p, SIZE] > 0, np.int64(0)
        if had:
            before = pool[first, CODE]
        end = at
        while end < len(packed):  # of one member and one seq
            key = packed[end]
            same = ((key ^ packed[at]) >> KIND_BITS) & _RANK == 0
            if (
                not same
                or seqs[key >> (RANK_BITS + KIND_BITS)] != seqs[packed[at] >> (RANK_BITS + KIND_BITS)]
            ):
                break
            end += 1
        done = at
        while done < end:
            change = packed[done] >> (RANK_BITS + KIND_BITS)
            if packed[done] & 3 == LOSES:
                first = places[p, BEGIN] + places[p, HEAD]
                if places[p, SIZE] > 0 and pool[first, SLOT] == rows.slot[change]:
                    places[p, HEAD] += 1
                    places[p, SIZE] -= 1
                    meta[ENTRIES] -= 1
            elif _has_space(stairs, p):
                _insert(stairs, p, rows, change)
            else:
                break
            done += 1
        first = places[p, BEGIN] + places[p, HEAD]
        has, after = places[p, SIZE] > 0, np.int64(0)
        if has:
            after = pool[first, CODE]
        if had != has or before != after:
            seq = seqs[packed[at] >> (RANK_BITS + KIND_BITS)]
            out.seq[n] = out.seq[n + 1] = seq
            out.slot[n] = out.slot[n + 1] = slots[p]
            out.code[n], out.code[n + 1] = before, after
            out.valid[n], out.valid[n + 1] = had, has
            n += 2
        if done < end:
            return done, n
        at = end
    return at, n


@kernel(allocates=False)
def build_stairs(stairs, at, first, last, rows, start):
    """Build staircases of places from the rows first[i] to last[i], from the start-th on; how many are done.

    Each begins empty.
    """
    for i in range(start, len(at)):
        p = at[i]
        for row in range(first[i], last[i]):
            if not _has_space(stairs, p):
                stairs.meta[ENTRIES] -= stairs.places[p, SIZE]
                stairs.places[p, SIZE] = stairs.places[p, HEAD] = 0
                return i
            _insert(stairs, p, rows, row)
    return len(at)


@kernel(allocates=False)
def release_stairs(stairs, at):
    """Drop the staircases of places."""
    for p in at:
        stairs.meta[ENTRIES] -= stairs.places[p, SIZE]
        _give_up(stairs, p)
        stairs.places[p, SIZE] = stairs.places[p, HEAD] = 0
        stairs.places[p, REGION] = NO_REGION
