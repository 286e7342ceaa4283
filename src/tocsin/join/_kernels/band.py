"""Which band joins does a row affect? One function per strategy, for one row.

    affected_x(plan, order, key, own, out) -> how many slots were written to `out`

A query is a range low..high of second key - first key. `first`: the change is in the first table. The joining
rows of the other one are those from key + low to key + high, or from key - high to key - low. Keys and ends
are below 2^62 in size, except open ends. `own` is ignored: local selections are verified afterwards.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.join._kernels.orders import CAPACITY, LENGTH, MAX, MIN, gather_matches, next_key, seek
from tocsin.stab._kernels.groups import ACTIVE, find_in_group
from tocsin.stab._kernels.intervals import stab

__all__ = [
    *("BandHotspotPlan", "BandScanPlan", "BandSsiPlan", "DataOuterPlan"),
    *("affected_data_outer", "affected_hotspot", "affected_merge", "affected_query_outer", "affected_ssi"),
    *("each_data_outer", "each_hotspot", "each_merge", "each_query_outer", "each_ssi", "band_rows"),
]


class BandScanPlan(NamedTuple):
    """All queries one after the other; for merging, by low end."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    slot: NDArray[np.int64]
    size: NDArray[np.int64]
    first: bool


class DataOuterPlan(NamedTuple):
    intervals: Any
    bounds: NDArray[np.int64]  # least low end, greatest high end
    first: bool
    seen: NDArray[np.int64]  # by slot: the last change that found it
    clock: NDArray[np.int64]
    found: NDArray[np.int64]  # scratch, as long as `out`


class BandSsiPlan(NamedTuple):
    groups: Any
    first: bool


class BandHotspotPlan(NamedTuple):
    hot: BandSsiPlan
    cold: BandScanPlan


@kernel(allocates=False)
def _window(first, key, low, high):
    """The keys of the other table that join."""
    if first:
        return MIN if low == MIN else key + low, MAX if high == MAX else key + high
    return MIN if high == MAX else key - high, MAX if low == MIN else key - low


@kernel(allocates=False)
def _outer(plan, order, key, out, n):
    for i in range(plan.size[0]):
        begin, end = _window(plan.first, key, plan.low[i], plan.high[i])
        _, _, there, found = next_key(order, begin)
        out[n] = plan.slot[i]
        n += there & (found <= end)
    return n


@kernel(allocates=False)
def affected_query_outer(plan, order, key, own, out):
    """Every query: a search in the index of the other table."""
    return _outer(plan, order, key, out, 0)


@kernel(allocates=False)
def affected_data_outer(plan, order, key, own, out):
    """Every row of the other table that could join at all: the ranges that hold its difference; each query
    once.
    """
    n, first = 0, True
    if order.meta[LENGTH] == 0:
        return n
    plan.clock[0] += 1
    now, last = plan.clock[0], np.int64(0)
    begin, end = _window(plan.first, key, plan.bounds[0], plan.bounds[1])
    d, i = seek(order, begin, MIN)
    while d < order.meta[LENGTH]:
        block = order.block[d]
        while i < order.size[block]:
            other = order.key[block * CAPACITY + i]
            i += 1
            if other > end:
                return n
            if other == last and not first:
                continue
            last, first = other, False
            difference = other - key if plan.first else key - other
            for j in range(stab(plan.intervals, difference, plan.found, 0)):
                slot = plan.found[j]
                out[n] = slot
                n += plan.seen[slot] != now
                plan.seen[slot] = now
        d += 1
        i = np.int64(0)
    return n


@kernel(allocates=False)
def affected_merge(plan, order, key, own, out):
    """Queries by low end and rows by key, both once: the place in the rows only moves forward."""
    return _merge_up(plan, order, key, out) if plan.first else _merge_down(plan, order, key, out)


@kernel(allocates=False)
def _merge_up(plan, order, key, out):
    n, blocks = 0, order.meta[LENGTH]
    if plan.size[0] == 0 or blocks == 0:
        return n
    begin, _ = _window(True, key, plan.low[0], plan.high[0])
    d, i = seek(order, begin, MIN)
    at, last = order.block[d] * CAPACITY + i, order.block[d] * CAPACITY + order.size[order.block[d]]
    for q in range(plan.size[0]):
        begin, end = _window(True, key, plan.low[q], plan.high[q])
        while True:
            while at < last and order.key[at] < begin:
                at += 1
            if at < last:
                break
            d += 1
            if d >= blocks:
                return n
            at = order.block[d] * CAPACITY
            last = at + order.size[order.block[d]]
        out[n] = plan.slot[q]
        n += order.key[at] <= end
    return n


@kernel(allocates=False)
def _merge_down(plan, order, key, out):
    """As low ends rise, the greatest key that may join falls."""
    n, blocks = 0, order.meta[LENGTH]
    if plan.size[0] == 0 or blocks == 0:
        return n
    _, end = _window(False, key, plan.low[0], plan.high[0])
    d, i = seek(order, end, MAX)
    at = order.block[d] * CAPACITY + min(i, order.size[order.block[d]] - 1)
    for q in range(plan.size[0]):
        begin, end = _window(False, key, plan.low[q], plan.high[q])
        while True:
            while at >= order.block[d] * CAPACITY and order.key[at] > end:
                at -= 1
            if at >= order.block[d] * CAPACITY:
                break
            d -= 1
            if d < 0:
                return n
            at = order.block[d] * CAPACITY + order.size[order.block[d]] - 1
        out[n] = plan.slot[q]
        n += order.key[at] >= begin
    return n


@kernel(allocates=False)
def _by_groups(groups, first, order, key, out, n):
    """Every group: the keys on both sides of its point, moved by `key`, and the members that reach them."""
    if order.meta[LENGTH] == 0:
        return n
    for k in range(groups.meta[ACTIVE]):
        g = groups.active[k]
        point = groups.point[g]
        has1, r1, has2, r2 = next_key(order, key + point if first else key - point)
        if first:
            near = (has1, r1 - key, has2, r2 - key)
        else:  # the ends swap
            near = (has2, key - r2, has1, key - r1)
        n = find_in_group(groups, g, 0, near, out, n)
    return n


@kernel(allocates=False)
def affected_ssi(plan, order, key, own, out):
    return _by_groups(plan.groups, plan.first, order, key, out, 0)


@kernel(allocates=False)
def affected_hotspot(plan, order, key, own, out):
    n = _by_groups(plan.hot.groups, plan.hot.first, order, key, out, 0)
    return _outer(plan.cold, order, key, out, n)


@kernel(allocates=False)
def band_rows(order, first, key, ranges, slots, out):
    """(slot, row) for rows with a key in low..high (by slot) from `key`; how many, also if `out` is full."""
    n = 0
    if order.meta[LENGTH] == 0:
        return n
    for slot in slots:
        begin, end = _window(first, key, ranges.low[slot], ranges.high[slot])
        n = gather_matches(order, seek(order, begin, MIN), slot, (end, MAX), out, n)
    return n


# -- many rows against unchanging tables -------------------------------------------------------------


@kernel(allocates=False)
def each_query_outer(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_query_outer(plan, order, keys[i], owns[i], out)


@kernel(allocates=False)
def each_data_outer(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_data_outer(plan, order, keys[i], owns[i], out)


@kernel(allocates=False)
def each_merge(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_merge(plan, order, keys[i], owns[i], out)


@kernel(allocates=False)
def each_ssi(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_ssi(plan, order, keys[i], owns[i], out)


@kernel(allocates=False)
def each_hotspot(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_hotspot(plan, order, keys[i], owns[i], out)
