"""Which equality joins does a row affect? One function per strategy, one row at a time.

    affected_x(plan, order, key, own, out) -> how many slots were written to `out`

`order` is the index of the other table, `key` and `own` the new (or old) row's join key and selection
attribute. `out` has one place more than there are queries. A query is a range of the other table's values
(low..high) and one of its own (own_low..own_high).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tocsin.join._kernels.orders import CAPACITY, beside, find_run, gather_values, within
from tocsin.stab._kernels.groups import ACTIVE, find_in_group
from tocsin.stab._kernels.intervals import hold, stab

__all__ = [
    *("HotspotPlan", "JoinFirstPlan", "ScanPlan", "SelectFirstPlan", "SsiPlan"),
    *("affected_hotspot", "affected_join_e", "affected_join_s", "affected_naive", "affected_select"),
    *("affected_ssi", "each_hotspot", "each_join_e", "each_join_s", "each_naive", "each_select", "each_ssi"),
]

FEW = 32  # values that are counted rather than searched


class ScanPlan(NamedTuple):
    """All queries, one after the other."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    own_low: NDArray[np.int64]
    own_high: NDArray[np.int64]
    slot: NDArray[np.int64]
    size: NDArray[np.int64]
    values: NDArray[np.int64]  # scratch, as long as the other table


class JoinFirstPlan(NamedTuple):
    rectangles: Any  # x: the second table's range, y: the first's
    first: bool  # is the change in the first table?
    seen: NDArray[np.int64]  # by slot: the last change that found it
    clock: NDArray[np.int64]
    found: NDArray[np.int64]  # scratch, as long as `out`


class SelectFirstPlan(NamedTuple):
    intervals: Any  # own ranges
    low: NDArray[np.int64]  # by slot
    high: NDArray[np.int64]
    found: NDArray[np.int64]  # scratch, as long as `out`
    values: NDArray[np.int64]  # scratch, as long as the other table


class SsiPlan(NamedTuple):
    groups: Any


class HotspotPlan(NamedTuple):
    hot: SsiPlan
    cold: SelectFirstPlan


@njit(cache=True, nogil=True)
def _first_from(values, count, low):
    """The place of the first of some sorted values from `low` on. Few are counted, without a branch."""
    at = np.int64(0)
    if count <= FEW:
        for i in range(count):
            at += values[i] < low
        return at
    while count > FEW:
        half = count >> 1
        at += half & -np.int64(values[at + half - 1] < low)
        count -= half
    more = np.int64(0)
    for i in range(count):
        more += values[at + i] < low
    return at + more


@njit(cache=True, nogil=True)
def affected_naive(plan, order, key, own, out):
    """Every query: first its range over the joining values, sorted in a list; then its own."""
    run = find_run(order, key)
    if run.length == 0:
        return 0
    values, n = plan.values, 0
    count = gather_values(order, run, values)
    last = values[count - 1]
    for i in range(plan.size[0]):
        low = plan.low[i]
        at = _first_from(values, count, low)
        holds = (low <= last) & (values[min(at, count - 1)] <= plan.high[i])
        out[n] = plan.slot[i]
        n += holds & (plan.own_low[i] <= own) & (own <= plan.own_high[i])
    return n


@njit(cache=True, nogil=True)
def affected_join_s(plan, order, key, own, out):
    """Every query: first its own range, then a search among the joining values, sorted in a list."""
    run = find_run(order, key)
    if run.length == 0:
        return 0
    values, n = plan.values, 0
    count = gather_values(order, run, values)
    last = values[count - 1]
    for i in range(plan.size[0]):
        if (plan.own_low[i] <= own) & (own <= plan.own_high[i]):
            low = plan.low[i]
            at = _first_from(values, count, low)
            out[n] = plan.slot[i]
            n += (low <= last) & (values[min(at, count - 1)] <= plan.high[i])
    return n


@njit(cache=True, nogil=True)
def affected_join_e(plan, order, key, own, out):
    """Every joining value: the rectangles that hold it; each query once."""
    run, n = find_run(order, key), 0
    if run.length == 0:
        return 0
    plan.clock[0] += 1
    now, first = plan.clock[0], True
    last = np.int64(0)
    for d in range(run.d0, run.d1 + 1):
        block = order.block[d]
        begin = run.i0 if d == run.d0 else np.int64(0)
        end = run.i1 if d == run.d1 else order.size[block]
        for i in range(begin, end):
            value = order.value[block * CAPACITY + i]
            if value == last and not first:
                continue
            last, first = value, False
            x, y = (value, own) if plan.first else (own, value)
            for j in range(hold(plan.rectangles, x, y, plan.found, 0)):
                slot = plan.found[j]
                out[n] = slot
                n += plan.seen[slot] != now
                plan.seen[slot] = now
    return n


@njit(cache=True, nogil=True)
def _select_in_run(plan, order, run, own, out, n):
    """Queries whose own range holds `own`; of these, those whose other range holds a value of the run."""
    found = stab(plan.intervals, own, plan.found, 0)
    if found == 0:
        return n
    if run.length > 8 * found:
        for j in range(found):
            slot = plan.found[j]
            out[n] = slot
            n += within(order, run, plan.low[slot], plan.high[slot])
        return n
    values = plan.values
    count = gather_values(order, run, values)
    last = values[count - 1]
    for j in range(found):
        slot = plan.found[j]
        low = plan.low[slot]
        at = _first_from(values, count, low)
        out[n] = slot
        n += (low <= last) & (values[min(at, count - 1)] <= plan.high[slot])
    return n


@njit(cache=True, nogil=True, inline="always")
def affected_select(plan, order, key, own, out):
    run = find_run(order, key)
    if run.length == 0:
        return 0
    return _select_in_run(plan, order, run, own, out, 0)


@njit(cache=True, nogil=True)
def _groups_in_run(groups, order, run, own, out, n):
    """Every group: the values of the run on both sides of its point, and who reaches them."""
    for k in range(groups.meta[ACTIVE]):
        g = groups.active[k]
        n = find_in_group(groups, g, own, beside(order, run, groups.point[g]), out, n)
    return n


@njit(cache=True, nogil=True)
def affected_ssi(plan, order, key, own, out):
    run = find_run(order, key)
    if run.length == 0:
        return 0
    return _groups_in_run(plan.groups, order, run, own, out, 0)


@njit(cache=True, nogil=True)
def affected_hotspot(plan, order, key, own, out):
    run = find_run(order, key)
    if run.length == 0:
        return 0
    n = _groups_in_run(plan.hot.groups, order, run, own, out, 0)
    return _select_in_run(plan.cold, order, run, own, out, n)


# -- many rows against tables that stand still -------------------------------------------------------


@njit(cache=True, nogil=True)
def each_naive(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_naive(plan, order, keys[i], owns[i], out)


@njit(cache=True, nogil=True)
def each_join_s(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_join_s(plan, order, keys[i], owns[i], out)


@njit(cache=True, nogil=True)
def each_join_e(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_join_e(plan, order, keys[i], owns[i], out)


@njit(cache=True, nogil=True)
def each_select(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_select(plan, order, keys[i], owns[i], out)


@njit(cache=True, nogil=True)
def each_ssi(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_ssi(plan, order, keys[i], owns[i], out)


@njit(cache=True, nogil=True)
def each_hotspot(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_hotspot(plan, order, keys[i], owns[i], out)
