"""From changed rows to matches (query, joined rows): candidates first, then the rows of the other table.

    affected_pairs, band_pairs        changed row      ─► (query, change): queries that the change may affect
    equality_matches, band_matches    (query, change)  ─► (query, tuple): with every joining row then alive
    extend_rows                       tuple            ─► (tuple, row): joins of many tables, table by table
    tuple_matches                     tuple            ─► (query, tuple): queries that select all its rows

A *tuple* is a changed row with a row of each other table; many queries may match it, it is numbered once.
Kernels fill buffers and stop when the next item may not fit; `progress` says how far they came, and where to
continue.

Band joins compare differences as SQL defines them: whole numbers and times exactly, doubles as in IEEE 754.
The difference of a fixed number and the keys of an ordered table rises (or falls) with the key, rounded or
not. So the rows of a band are adjacent, and a binary search finds the row next to a group's point: without
any bound on keys, and for infinities and NaN too.

    up     the change is on the right:  key - x rises with the key
    down   the change is on the left:   x - key falls

Differences are codes: of doubles as in `double_codes`; whole numbers beyond int64 become its ends.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.join._kernels.equality import affected_cheapest
from tocsin.join._kernels.orders import CAPACITY, LENGTH, MAX, MIN, find_run, seek_run
from tocsin.stab._kernels.groups import ACTIVE, find_in_group
from tocsin.stab._kernels.intervals import stab

__all__ = [
    *(
        "COUNT",
        "DONE",
        "TUPLES",
        "BandPlan",
        "Changes",
        "Lifetimes",
        "MatchBuffer",
        "PairBuffer",
        "CandidatePairs",
    ),
    *("Probes", "Stamps", "ValueRanges", "affected_pairs", "band_matches", "band_pairs", "cheapest_place"),
    *("difference", "differences", "equality_matches", "extend_rows", "tuple_matches"),
]

DONE, COUNT, TUPLES = 0, 1, 2  # of `progress`: items of the input that are done, pairs or matches, tuples
_NAN = np.int64(0x7FF8000000000000)


class Changes(NamedTuple):
    """Changed rows of one table: key, selection attribute, position in the step."""

    key: NDArray[np.int64]
    value: NDArray[np.int64]
    position: NDArray[np.int64]
    after: bool  # do they join the other table as of after the change, or as of before it?


class CandidatePairs(NamedTuple):
    """Candidates: queries that a change may affect."""

    query: NDArray[np.int64]
    change: NDArray[np.int64]


class ValueRanges(NamedTuple):
    """By query: the range of the other table's attribute."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]


class Lifetimes(NamedTuple):
    """By row: the positions of the changes that created and ended it."""

    born: NDArray[np.int64]
    died: NDArray[np.int64]


class Stamps(NamedTuple):
    """By row of the other table: the last change that it was joined with, from `base` on, and the tuple's
    number.
    """

    seen: NDArray[np.int64]
    tuple: NDArray[np.int64]
    base: int


class PairBuffer(NamedTuple):
    """Pairs of numbers that a kernel writes."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    progress: NDArray[np.int64]  # DONE, COUNT


class MatchBuffer(NamedTuple):
    """Matches (query, tuple) and tuples (changed row, other row) that a kernel writes."""

    query: NDArray[np.int64]
    tuple: NDArray[np.int64]
    change: NDArray[np.int64]
    row: NDArray[np.int64]
    progress: NDArray[np.int64]  # DONE, COUNT, TUPLES


@kernel(inline=True, allocates=False)
def _was_alive(lifetimes, row, at, after):
    """Was a row alive after the change at a position, or before it?"""
    born, died = lifetimes.born[row], lifetimes.died[row]
    return ((born <= at) & (at < died)) if after else ((born < at) & (at <= died))


@kernel(inline=True, allocates=False)
def _add_match(found, stamps, query, change, row):
    """Append a match; and a tuple, unless this change was joined with the row before."""
    if stamps.seen[row] != stamps.base + change:
        stamps.seen[row] = stamps.base + change
        stamps.tuple[row] = found.progress[TUPLES]
        found.change[found.progress[TUPLES]] = change
        found.row[found.progress[TUPLES]] = row
        found.progress[TUPLES] += 1
    found.query[found.progress[COUNT]] = query
    found.tuple[found.progress[COUNT]] = stamps.tuple[row]
    found.progress[COUNT] += 1


# -- equality joins ----------------------------------------------------------------------------------


@kernel(allocates=False)
def affected_pairs(plan, order, changes, most, out):
    """Queries that each change affects, by the cheapest strategy; at most `most` for a change."""
    keys, values, query, change = changes.key, changes.value, out.first, out.second
    begin, n, found = out.progress[DONE], out.progress[COUNT], 0
    done = len(keys)
    for c in range(begin, len(keys)):
        if n + most > len(query):
            done = c
            break
        if c > begin and keys[c] == keys[c - 1] and values[c] == values[c - 1]:  # an update of other columns
            for i in range(n, n + found):
                query[i] = query[i - found]
        else:
            found = affected_cheapest(plan, order, keys[c], values[c], query[n:])
        for i in range(n, n + found):
            change[i] = c
        n += found
    out.progress[DONE], out.progress[COUNT] = done, n


@kernel(allocates=False)
def equality_matches(order, lifetimes, changes, ranges, pairs, stamps, found):
    """For each pair the rows with the change's key, a value in the query's range, alive at the change."""
    keys, low, high = changes.key, ranges.low, ranges.high
    query, change = pairs.query, pairs.change
    last = np.int64(-1)
    run = find_run(order, np.int64(0))
    size, done = len(found.query), len(query)
    for p in range(found.progress[DONE], len(query)):
        c, q = change[p], query[p]
        if c != last:
            run = find_run(order, keys[c])
            last = c
        if run.length == 0:
            continue
        if found.progress[COUNT] + run.length > size:
            done = p
            break
        at = changes.position[c]
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
                if _was_alive(lifetimes, row, at, changes.after):
                    _add_match(found, stamps, q, c, row)
            if over:
                break
            d += 1
            i = np.int64(0)
    found.progress[DONE] = done


# -- band joins --------------------------------------------------------------------------------------


class BandPlan(NamedTuple):
    """Queries as a change on one side sees them."""

    groups: Any  # hot groups: ranges of differences that share a point
    scattered: Any  # the others, by own range
    low: NDArray[np.int64]  # by query: the difference
    high: NDArray[np.int64]
    found: NDArray[np.int64]  # scratch
    double: bool
    up: bool


@kernel(allocates=False)
def _value(code):
    size = np.int64(abs(code)).view(np.float64)
    return -size if code < 0 else size


@kernel(allocates=False)
def difference(double, a, b):
    """a - b, all of them codes."""
    if double:
        if a == b:
            return np.int64(0)
        if b == _NAN:
            return MIN
        if a == _NAN:
            return _NAN
        d = _value(a) - _value(b)
        bits = np.float64(abs(d)).view(np.int64)
        return -bits if d < 0 else bits
    d = a - b
    if ((a ^ b) & (a ^ d)) < 0:
        return MAX if a > b else MIN
    return d


@kernel(allocates=False)
def differences(double, a, b, out):
    for i in range(len(out)):
        out[i] = difference(double, a[i], b[i])


@kernel(allocates=False)
def _is_before(plan, key, x, bound, equal):
    """Is the key before the first one whose difference reaches the bound (down, with `equal`: exceeds it)?"""
    if plan.up:
        return difference(plan.double, key, x) < bound
    d = difference(plan.double, x, key)
    return d > bound or (equal and d == bound)


@kernel(allocates=False)
def _first_place(plan, order, x, bound, equal):
    """The place of the first key that is not before the bound; the order is not empty."""
    d, count = np.int64(0), order.meta[LENGTH]
    while count > 1:
        half = count >> 1
        d = d + half if _is_before(plan, order.first_key[d + half], x, bound, equal) else d
        count -= half
    base, size = order.block[d] * CAPACITY, order.size[order.block[d]]
    i, count = np.int64(0), size
    while count > 0:
        half = count >> 1
        before = _is_before(plan, order.key[base + i + half], x, bound, equal)
        i = i + half + 1 if before else i
        count = count - half - 1 if before else half
    if i == size and d + 1 < order.meta[LENGTH]:
        return d + 1, np.int64(0)
    return d, i


@kernel(allocates=False)
def _difference_to(plan, key, x):
    return difference(plan.double, key, x) if plan.up else difference(plan.double, x, key)


@kernel(allocates=False)
def _beside(plan, order, x, point):
    """The greatest difference below the point and the least from it on, as `find_in_group` takes them."""
    d, i = _first_place(plan, order, x, point, True)
    has1, has2 = (d > 0) | (i > 0), i < order.size[order.block[d]]
    q1, q2 = MIN, MAX
    if has2:
        q2 = _difference_to(plan, order.key[order.block[d] * CAPACITY + i], x)
    if i > 0:
        q1 = _difference_to(plan, order.key[order.block[d] * CAPACITY + i - 1], x)
    elif d > 0:
        b = order.block[d - 1]
        q1 = _difference_to(plan, order.key[b * CAPACITY + order.size[b] - 1], x)
    if plan.up:
        return has1, q1, has2, q2
    return has2, q2, has1, q1


@kernel(allocates=False)
def _affected(plan, order, x, own, out):
    """Hot groups by the rows beside their points; of the others, queries whose own range holds the value."""
    n = 0
    for k in range(plan.groups.meta[ACTIVE]):
        g = plan.groups.active[k]
        n = find_in_group(plan.groups, g, own, _beside(plan, order, x, plan.groups.point[g]), out, n)
    for j in range(stab(plan.scattered, own, plan.found, 0)):
        q = plan.found[j]
        d, i = _first_place(plan, order, x, plan.low[q] if plan.up else plan.high[q], False)
        b = order.block[d]
        if i < order.size[b]:
            off = _difference_to(plan, order.key[b * CAPACITY + i], x)
            out[n] = q
            n += off <= plan.high[q] if plan.up else off >= plan.low[q]
    return n


@kernel(allocates=False)
def band_pairs(plan, order, changes, most, out):
    """Queries that each change affects; at most `most` for a change."""
    keys, values, query, change = changes.key, changes.value, out.first, out.second
    n, done = out.progress[COUNT], len(keys)
    for c in range(out.progress[DONE] if order.meta[LENGTH] else done, len(keys)):
        if n + most > len(query):
            done = c
            break
        found = _affected(plan, order, keys[c], values[c], query[n:])
        for i in range(n, n + found):
            change[i] = c
        n += found
    out.progress[DONE], out.progress[COUNT] = done, n


@kernel(allocates=False)
def band_matches(plan, order, lifetimes, changes, ranges, pairs, stamps, found):
    """For each pair the rows in the band with a value in the query's range, alive at the change.

    A pair whose matches do not fit is undone.
    """
    keys, low, high = changes.key, ranges.low, ranges.high
    query, change = pairs.query, pairs.change
    size = len(found.query)
    for p in range(found.progress[DONE], len(query)):
        c, q = change[p], query[p]
        at, x = changes.position[c], keys[c]
        matches = found.progress[COUNT]
        d, i = _first_place(plan, order, x, plan.low[q] if plan.up else plan.high[q], False)
        over = False
        while d < order.meta[LENGTH] and not over:
            b = order.block[d]
            for e in range(b * CAPACITY + i, b * CAPACITY + order.size[b]):
                off = _difference_to(plan, order.key[e], x)
                if (plan.up and off > plan.high[q]) or (not plan.up and off < plan.low[q]):
                    over = True
                    break
                row = order.row[e]
                if (
                    _was_alive(lifetimes, row, at, changes.after)
                    & (low[q] <= order.value[e])
                    & (order.value[e] <= high[q])
                ):
                    if found.progress[COUNT] == size:
                        found.progress[COUNT], found.progress[DONE] = matches, p
                        return
                    _add_match(found, stamps, q, c, row)
            d += 1
            i = np.int64(0)
    found.progress[DONE] = len(query)


# -- joins of many tables ----------------------------------------------------------------------------


class Probes(NamedTuple):
    """By tuple: the key to join by, whether there is one, and the position of the change."""

    key: NDArray[np.int64]
    valid: NDArray[np.bool_]
    position: NDArray[np.int64]
    after: bool  # as in `Changes`


@kernel(allocates=False)
def extend_rows(order, lifetimes, probes, out):
    """Every tuple with every row of its key that was alive."""
    keys, valid, out_tuple, out_row = probes.key, probes.valid, out.first, out.second
    n, size, done = out.progress[COUNT], len(out.second), len(keys)
    for t in range(out.progress[DONE], len(keys)):
        if not valid[t]:
            continue
        run = find_run(order, keys[t])
        if run.length == 0:
            continue
        if n + run.length > size:
            done = t
            break
        at = probes.position[t]
        for d in range(run.d0, run.d1 + 1):
            b = order.block[d]
            first = run.i0 if d == run.d0 else np.int64(0)
            end = run.i1 if d == run.d1 else order.size[b]
            for e in range(b * CAPACITY + first, b * CAPACITY + end):
                row = order.row[e]
                out_tuple[n], out_row[n] = t, row
                n += _was_alive(lifetimes, row, at, probes.after)
    out.progress[DONE], out.progress[COUNT] = done, n


@kernel
def cheapest_place(lows, highs, values, best):
    """By tuple, the place where the fewest ranges hold its value: the begun less the ended ones, sorted."""
    for t in range(len(best)):
        least = np.int64(2**62)
        for p in range(len(lows)):
            count = np.searchsorted(lows[p], values[p, t], side="right")
            count -= np.searchsorted(highs[p], values[p, t], side="left")
            if count < least:
                least = count
                best[t] = p


@kernel(allocates=False)
def tuple_matches(intervals, place, ranges, values, chosen, scratch, out):
    """Queries whose ranges hold all values of a chosen tuple, among those found by its value at one place."""
    low, high, query, at = ranges.low, ranges.high, out.first, out.second
    n, size, done = out.progress[COUNT], len(out.first), len(chosen)
    last, fresh, found = np.int64(0), True, 0
    places = len(values)
    for i in range(out.progress[DONE], len(chosen)):
        t = chosen[i]
        if fresh or values[place, t] != last:
            last, fresh = values[place, t], False
            found = stab(intervals, last, scratch, 0)
        if n + found > size:
            done = i
            break
        for j in range(found):
            q = scratch[j]
            holds = True
            for p in range(places):
                holds &= (low[p, q] <= values[p, t]) & (values[p, t] <= high[p, q])
            query[n], at[n] = q, t
            n += holds
    out.progress[DONE], out.progress[COUNT] = done, n
