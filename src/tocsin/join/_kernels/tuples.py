"""Joins of many tables: rows joined on to tuples, and the subscriptions that select all rows of a tuple."""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.join._kernels.matches import lived
from tocsin.join._kernels.orders import CAPACITY, find_run
from tocsin.stab._kernels.intervals import stab

__all__ = ["cheapest_place", "extend_rows", "tuple_matches"]


@njit(cache=True, nogil=True)
def extend_rows(order, keys, valid, position, after, lives, begin, n, out_tuple, out_row):
    """Every tuple with every row of its key that was alive; (where to go on, how many)."""
    room = len(out_row)
    for t in range(begin, len(keys)):
        if not valid[t]:
            continue
        run = find_run(order, keys[t])
        if run.length == 0:
            continue
        if n + run.length > room:
            return t, n
        at = position[t]
        for d in range(run.d0, run.d1 + 1):
            b = order.block[d]
            first = run.i0 if d == run.d0 else np.int64(0)
            end = run.i1 if d == run.d1 else order.size[b]
            for e in range(b * CAPACITY + first, b * CAPACITY + end):
                row = order.row[e]
                out_tuple[n], out_row[n] = t, row
                n += lived(lives, row, at, after)
    return len(keys), n


@njit(cache=True, nogil=True)
def cheapest_place(lows, highs, values, best):
    """By tuple, the place where the fewest ranges hold its value: those begun less those ended, sorted."""
    for t in range(len(best)):
        least = np.int64(2**62)
        for p in range(len(lows)):
            count = np.searchsorted(lows[p], values[p, t], side="right")
            count -= np.searchsorted(highs[p], values[p, t], side="left")
            if count < least:
                least = count
                best[t] = p


@njit(cache=True, nogil=True)
def tuple_matches(intervals, place, low, high, values, chosen, begin, n, scratch, query, at):
    """Queries whose ranges hold all values of a tuple, of those found by one; (where to go on, how many)."""
    room, found = len(query), 0
    last, fresh = np.int64(0), True
    places = len(values)
    for i in range(begin, len(chosen)):
        t = chosen[i]
        if fresh or values[place, t] != last:
            last, fresh = values[place, t], False
            found = stab(intervals, last, scratch, 0)
        if n + found > room:
            return i, n
        for j in range(found):
            q = scratch[j]
            holds = True
            for p in range(places):
                holds &= (low[p, q] <= values[p, t]) & (values[p, t] <= high[p, q])
            query[n], at[n] = q, t
            n += holds
    return len(chosen), n
