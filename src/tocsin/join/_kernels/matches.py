"""From changed rows to (subscription, joined rows), for equality joins of two tables.

    affected_pairs   changed row        ─► (query, change): who may be affected
    equality_matches (query, change)    ─► (query, tuple): with every row of the other table that was alive

A *tuple* is a changed row with a row of the other table; many queries may have it, it is numbered once.
Functions that write go on until there may be no room, and tell where to go on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tocsin.join._kernels.orders import CAPACITY, delete_row, find_run, insert_row, seek_run
from tocsin.join._kernels.routing import affected_dynamic

__all__ = [
    *("Found", "Lives", "Moments", "Stamps", "affected_pairs", "equality_matches", "put_rows", "take_rows"),
    *("lived", "note_match"),
]


class Lives(NamedTuple):
    """By row: the changes that bore and killed it."""

    born: NDArray[np.int64]
    died: NDArray[np.int64]


class Stamps(NamedTuple):
    """By row of the other table: the last change that it was joined with, and the tuple's number."""

    seen: NDArray[np.int64]
    tuple: NDArray[np.int64]


class Moments(NamedTuple):
    """By changed row: its position in the step; are other rows seen as after it?"""

    position: NDArray[np.int64]
    after: bool


class Found(NamedTuple):
    """Matches (query, tuple) and tuples (changed row, other row), with how many there are."""

    query: NDArray[np.int64]
    tuple: NDArray[np.int64]
    change: NDArray[np.int64]
    row: NDArray[np.int64]
    size: NDArray[np.int64]  # matches, tuples


@njit(cache=True, nogil=True, inline="always")
def lived(lives, row, at, after):
    """Was a row alive after the change at a position, or before it?"""
    born, died = lives.born[row], lives.died[row]
    return ((born <= at) & (at < died)) if after else ((born < at) & (at <= died))


@njit(cache=True, nogil=True)
def put_rows(order, keys, values, rows):
    for i in range(len(rows)):
        insert_row(order, keys[i], values[i], rows[i])


@njit(cache=True, nogil=True)
def take_rows(order, keys, values, rows):
    for i in range(len(rows)):
        delete_row(order, keys[i], values[i], rows[i])


@njit(cache=True, nogil=True)
def affected_pairs(plan, order, keys, owns, begin, n, room, query, change):
    """Who is affected by each changed row; (where to go on, pairs so far)."""
    found = 0
    for c in range(begin, len(keys)):
        if n + room > len(query):
            return c, n
        if c > begin and keys[c] == keys[c - 1] and owns[c] == owns[c - 1]:  # an update of something else
            for i in range(n, n + found):
                query[i] = query[i - found]
        else:
            found = affected_dynamic(plan, order, keys[c], owns[c], query[n:])
        for i in range(n, n + found):
            change[i] = c
        n += found
    return len(keys), n


@njit(cache=True, nogil=True, inline="always")
def note_match(found, stamps, base, query, change, row):
    """A match more; a tuple more, if this change has not met the row yet."""
    if stamps.seen[row] != base + change:
        stamps.seen[row] = base + change
        stamps.tuple[row] = found.size[1]
        found.change[found.size[1]] = change
        found.row[found.size[1]] = row
        found.size[1] += 1
    found.query[found.size[0]] = query
    found.tuple[found.size[0]] = stamps.tuple[row]
    found.size[0] += 1


@njit(cache=True, nogil=True)
def equality_matches(order, keys, low, high, query, change, begin, moments, lives, stamps, base, found):
    """Of each pair the rows with the key and a value in low..high (by query), if alive; where to go on."""
    last = np.int64(-1)
    run = find_run(order, np.int64(0))
    room = len(found.query)
    for p in range(begin, len(query)):
        c, q = change[p], query[p]
        if c != last:
            run = find_run(order, keys[c])
            last = c
        if run.length == 0:
            continue
        if found.size[0] + run.length > room:
            return p
        at = moments.position[c]
        to = high[q]
        d, i = seek_run(order, run, low[q])
        while d <= run.d1:
            b = order.block[d]
            end = run.i1 if d == run.d1 else order.size[b]
            over = False
            for e in range(b * CAPACITY + i, b * CAPACITY + end):
                if order.value[e] > to:
                    over = True
                    break
                row = order.row[e]
                if lived(lives, row, at, moments.after):
                    note_match(found, stamps, base, q, c, row)
            if over:
                break
            d += 1
            i = np.int64(0)
    return len(query)
