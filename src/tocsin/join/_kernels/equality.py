"""Which equality joins does a row affect? One function per strategy, for one row; and the cheapest of four.

    affected_x(plan, order, key, own, out) -> how many slots were written to `out`

`order` is the index of the other table, `key` and `own` the new (or old) row's join key and selection
attribute. `out` has one place more than there are queries. A query is a range of the other table's values
(low..high) and one of its own (own_low..own_high).

`choose` looks up two cells and compares four sums of four products. The cost of each plan is linear in
estimates that depend on the own value, with factors that depend on the key; both are computed per cell
beforehand (`plan_choice.cost_tables`):

    by key    for each plan: cost, cost per selected query, per scattered one, per square root of the selected
    by own    selected queries, scattered ones among them, square root of the selected

Measured costs correct predicted ones by kind. A kind is a plan and the magnitudes of the joining rows and of
the selected queries; its correction slowly follows measured / predicted:

    kind      plan x log2 joining (0, 1-2, 3-6, .. ) x log2 selected (by fours)
    measured  every fourth row, every 16th cheap one: processor cycles; x86 only, elsewhere no corrections

So that a wrong prediction does not exclude a plan forever, every 64th row takes another one in turn, unless
its predicted cost is more than twice the best.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.compiled.instructions import cycles
from tocsin.join._kernels.orders import (
    CAPACITY,
    beside,
    find_run,
    gather_matches,
    gather_values,
    seek_run,
    within,
)
from tocsin.stab._kernels.groups import ACTIVE, find_in_group
from tocsin.stab._kernels.intervals import containing, stab

__all__ = [
    *("HOTSPOT", "JOIN_E", "JOIN_S", "KINDS", "KIND_OF_KEY", "KIND_OF_OWN", "PLANS", "SELECT"),
    *("ChoicePlan", "HotspotPlan", "JoinFirstPlan", "ScanPlan", "SelectFirstPlan", "SsiPlan"),
    *("affected_cheapest", "affected_hotspot", "affected_join_e", "affected_join_s", "affected_naive"),
    *("affected_select", "affected_ssi", "choose", "each_cheapest", "each_choice", "each_hotspot"),
    *("each_join_e", "each_join_s", "each_naive", "each_select", "each_ssi", "equality_rows", "read_cycles"),
]

FEW = 32  # values that are counted rather than searched
JOIN_E, JOIN_S, SELECT, HOTSPOT = 0, 1, 2, 3
PLANS = ("joinfirst-e", "joinfirst-s", "selectfirst", "hotspot")
KINDS = 8  # magnitudes of joining rows, and of selected queries
KIND_OF_KEY, KIND_OF_OWN = 16, 3  # columns of the cost tables behind the factors
_MEASURED, _RARELY, _CHEAP = 4, 16, 16.0  # measure one row in so many; cheap ones (microseconds) more rarely
_OTHER, _WORSE = 64, 2.0  # every so many rows try another plan, unless it is that many times worse
_SLOWLY, _FAR = 1 / 8, 8.0  # how fast a correction follows; how far a single row may pull it


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


@kernel(allocates=False)
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


@kernel(allocates=False)
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


@kernel(allocates=False)
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


@kernel(allocates=False)
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
            for j in range(containing(plan.rectangles, x, y, plan.found, 0)):
                slot = plan.found[j]
                out[n] = slot
                n += plan.seen[slot] != now
                plan.seen[slot] = now
    return n


@kernel(allocates=False)
def _select_in_run(plan, order, run, own, out, n):
    """Queries whose own range holds `own`; of these, queries whose other range holds a value of the run."""
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


@kernel(inline=True, allocates=False)
def affected_select(plan, order, key, own, out):
    run = find_run(order, key)
    if run.length == 0:
        return 0
    return _select_in_run(plan, order, run, own, out, 0)


@kernel(allocates=False)
def _groups_in_run(groups, order, run, own, out, n):
    """Every group: the values of the run on both sides of its point, and the members that reach them."""
    for k in range(groups.meta[ACTIVE]):
        g = groups.active[k]
        n = find_in_group(groups, g, own, beside(order, run, groups.point[g]), out, n)
    return n


@kernel(allocates=False)
def affected_ssi(plan, order, key, own, out):
    run = find_run(order, key)
    if run.length == 0:
        return 0
    return _groups_in_run(plan.groups, order, run, own, out, 0)


@kernel(allocates=False)
def affected_hotspot(plan, order, key, own, out):
    run = find_run(order, key)
    if run.length == 0:
        return 0
    n = _groups_in_run(plan.hot.groups, order, run, own, out, 0)
    return _select_in_run(plan.cold, order, run, own, out, n)


@kernel(allocates=False)
def equality_rows(order, key, ranges, slots, out):
    """(slot, row) for rows of the key with a value in the slot's range; how many, also if `out` is full."""
    run, n = find_run(order, key), 0
    if run.length == 0:
        return n
    for slot in slots:
        place = seek_run(order, run, ranges.low[slot])
        n = gather_matches(order, place, slot, (key, ranges.high[slot]), out, n)
    return n


# -- many rows against unchanging tables -------------------------------------------------------------


@kernel(allocates=False)
def each_naive(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_naive(plan, order, keys[i], owns[i], out)


@kernel(allocates=False)
def each_join_s(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_join_s(plan, order, keys[i], owns[i], out)


@kernel(allocates=False)
def each_join_e(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_join_e(plan, order, keys[i], owns[i], out)


@kernel(allocates=False)
def each_select(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_select(plan, order, keys[i], owns[i], out)


@kernel(allocates=False)
def each_ssi(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_ssi(plan, order, keys[i], owns[i], out)


@kernel(allocates=False)
def each_hotspot(plan, order, keys, owns, out, counts):
    for i in range(len(keys)):
        counts[i] = affected_hotspot(plan, order, keys[i], owns[i], out)


# -- the cheapest strategy for each row --------------------------------------------------------------


class ChoicePlan(NamedTuple):
    join_e: Any
    join_s: Any
    select: Any
    hotspot: Any
    by_key: NDArray[np.float64]  # see `plan_choice.CostTables`
    by_own: NDArray[np.float64]
    chosen: NDArray[np.int64]  # by plan: how many times
    learned: NDArray[np.float64]  # by plan and kind: measured / predicted
    speed: float  # cycles per microsecond; 0: not known, nothing is learned


@kernel(inline=True, allocates=False)
def _cell(table, value):
    """The row of a cost table for a value."""
    return 1 + np.int64(min(max((value - table[0, 0]) * table[0, 1], 0.0), table[0, 2]))


@kernel(allocates=False)
def read_cycles():
    """The processor's cycle counter, for Python."""
    return cycles()


@kernel(inline=True, allocates=False)
def choose(by_key, by_own, chosen, learned, key, own):
    """The plan for a row with this key and value; its predicted cost, 0 if not to be measured; its kind.

    The arguments are arrays, not a tuple: reading an array out of a tuple counts references, for every row.
    """
    k, v = _cell(by_key, key), _cell(by_own, own)
    selected, scattered, root = by_own[v, 0], by_own[v, 1], by_own[v, 2]
    kind = np.int64(by_key[k, KIND_OF_KEY] + by_own[v, KIND_OF_OWN])
    rows = chosen[0] + chosen[1] + chosen[2] + chosen[3]
    other = (rows // _OTHER) % len(PLANS) if rows % _OTHER == 0 else -1
    best, least, predicted = 0, np.inf, 0.0
    tried, cost_tried = np.inf, 0.0
    for p in range(len(PLANS)):
        cost = by_key[k, 4 * p] + by_key[k, 4 * p + 1] * selected
        cost += by_key[k, 4 * p + 2] * scattered + by_key[k, 4 * p + 3] * root
        corrected = cost * learned[p, kind]
        if p == other:
            tried, cost_tried = corrected, cost
        if corrected < least:
            best, least, predicted = p, corrected, cost
    if tried < _WORSE * least:
        best, predicted = other, cost_tried
    chosen[best] += 1
    if rows % _MEASURED != 0 or (least < _CHEAP and rows % _RARELY != 0):
        predicted = 0.0
    return best, predicted, kind


@kernel(inline=True, allocates=False)
def _learn(learned, speed, best, predicted, kind, begun):
    """Correct the prediction for rows of a kind by the measured cost of one."""
    if predicted > 0.0 and speed > 0.0 and begun > 0:
        spent = cycles() - begun
        old = learned[best, kind]
        seen = spent / (speed * predicted)
        if spent > 0:
            learned[best, kind] = old + _SLOWLY * (min(max(seen, old / _FAR), old * _FAR) - old)


@kernel(inline=True, allocates=False)
def affected_cheapest(plan, order, key, own, out):
    best, predicted, kind = choose(plan.by_key, plan.by_own, plan.chosen, plan.learned, key, own)
    begun = cycles() if predicted > 0.0 else 0
    if best == JOIN_E:
        count = affected_join_e(plan.join_e, order, key, own, out)
    elif best == JOIN_S:
        count = affected_join_s(plan.join_s, order, key, own, out)
    elif best == SELECT:
        count = affected_select(plan.select, order, key, own, out)
    else:
        count = affected_hotspot(plan.hotspot, order, key, own, out)
    _learn(plan.learned, plan.speed, best, predicted, kind, begun)
    return count


@kernel(allocates=False)
def each_cheapest(plan, order, keys, owns, out, counts):
    """As `affected_cheapest`, but reads plans out of the tuple once: that counts references, half a µs."""
    join_e, join_s, select, hotspot = plan.join_e, plan.join_s, plan.select, plan.hotspot
    by_key, by_own, chosen = plan.by_key, plan.by_own, plan.chosen
    learned, speed = plan.learned, plan.speed
    for i in range(len(keys)):
        best, predicted, kind = choose(by_key, by_own, chosen, learned, keys[i], owns[i])
        begun = cycles() if predicted > 0.0 else 0
        if best == SELECT:
            counts[i] = affected_select(select, order, keys[i], owns[i], out)
        elif best == HOTSPOT:
            counts[i] = affected_hotspot(hotspot, order, keys[i], owns[i], out)
        elif best == JOIN_E:
            counts[i] = affected_join_e(join_e, order, keys[i], owns[i], out)
        else:
            counts[i] = affected_join_s(join_s, order, keys[i], owns[i], out)
        _learn(learned, speed, best, predicted, kind, begun)


@kernel(allocates=False)
def each_choice(plan, keys, owns, choices):
    """Choose only, to measure what choosing costs and which plans are chosen."""
    by_key, by_own, chosen, learned = plan.by_key, plan.by_own, plan.chosen, plan.learned
    for i in range(len(keys)):
        choices[i] = choose(by_key, by_own, chosen, learned, keys[i], owns[i])[0]
        chosen[choices[i]] -= 1
