"""Skylines: who receives the message that a row has come or gone, as few points as the policy finds.

Given the values c_1 < .. < c_s of the rows that a changed row joins, and selected subscriptions (own range in
a rectangle), a skyline is a list of points (x, y). A subscription receives iff low <= x and y <= high for one
of them. It is valid if every selected subscription whose range contains a value receives, and no other
selected one does; what the others do does not matter.

    TUPLES      (c, c) for every joining value
    RANGES      affected ranges that contain no other one, as (low, high)
    CLUSTERS    (c, c) for the joining values next to a group's point
    MERGED      runs of these over gaps in which no selected range lies: (last, first)
    FEWEST      the least number of points that is valid

    x >= low  |       c1   c2        c3            points of MERGED: (c2, c1) and (c3, c3), since
              |   ----+----+---                    the range between c2 and c3 must not receive
              |             |----|

J08, section 3.2 and appendix B; FEWEST is ours (the paper leaves the least number open).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.join._kernels.orders import beside, gather_values
from tocsin.reformulate._kernels.selected import WHOLE, any_between, find_selected, reach

__all__ = [
    *("CLUSTERS", "FEWEST", "MERGED", "RANGES", "TUPLES", "SidePlan", "SkylineScratch", "is_anyone_affected"),
    "skyline",
]

TUPLES, RANGES, CLUSTERS, MERGED, FEWEST = range(5)
MIN, MAX = np.int64(-(2**63)), np.int64(2**63 - 1)


class SidePlan(NamedTuple):
    """What a change of one table reads: both tables' orders, and subscriptions by the other's range."""

    own: Any
    other: Any
    groups: Any  # of the other table's ranges
    point: NDArray[np.int64]  # of the groups, ascending
    group: NDArray[np.int64]  # their numbers


class SkylineScratch(NamedTuple):
    x: NDArray[np.int64]  # the points found
    y: NDArray[np.int64]
    values: NDArray[np.int64]  # one more than the longest table
    selected: NDArray[np.int64]  # low, high, slot by selected subscription
    quadrants: NDArray[np.int64]  # x, y, and the first quadrant needed, by quadrant


@kernel(allocates=False)
def is_anyone_affected(plan, run, rectangle):
    """Does a selected range hold a joining value?"""
    for i in range(len(plan.point)):
        has1, q1, has2, q2 = beside(plan.other, run, plan.point[i])
        low, high = reach(plan.groups, plan.group[i], rectangle)
        if (has1 and low <= q1) or (has2 and high >= q2):
            return True
    return False


@kernel(allocates=False)
def _distinct(values, count):
    """Drop repeated values of a sorted list; how many are left."""
    n = 0
    for i in range(count):
        if n == 0 or values[n - 1] != values[i]:
            values[n] = values[i]
            n += 1
    return n


@kernel(allocates=False)
def _near_points(plan, run, out):
    """The joining values next to a group's point on either side, ascending; how many."""
    n, right = 0, MIN
    for i in range(len(plan.point)):
        p = plan.point[i]
        if i and p <= right:  # in the same gap as the point before
            continue
        has1, q1, has2, q2 = beside(plan.other, run, p)
        if has1 and not (has2 and q2 == p) and (n == 0 or out[n - 1] < q1):
            out[n] = q1
            n += 1
        if not has2:
            break
        if n == 0 or out[n - 1] < q2:
            out[n] = q2
            n += 1
        right = q2
    return n


@kernel(allocates=False)
def _merge_runs(plan, rectangle, near, count, scratch):
    """Merge values over gaps in which no selected range lies; how many points."""
    n, first, a = 0, near[0], 0
    for j in range(count - 1):
        q1, q2 = near[j], near[j + 1]
        while a < len(plan.point) and plan.point[a] <= q1:
            a += 1
        disposable = True
        while disposable and a < len(plan.point) and plan.point[a] < q2:
            disposable = not any_between(plan.groups, plan.group[a], rectangle, q1, q2)
            a += 1
        if not disposable:
            scratch.x[n], scratch.y[n] = q1, first
            n += 1
            first = q2
    scratch.x[n], scratch.y[n] = near[count - 1], first
    return n + 1


@kernel(allocates=False)
def _split_affected(plan, run, rectangle, selected):
    """Write the selected: affected ones from the front, others from the back; how many of each."""
    front, back, size = 0, selected.shape[1], selected.shape[1]
    for i in range(len(plan.point)):
        has1, q1, has2, q2 = beside(plan.other, run, plan.point[i])
        end = find_selected(plan.groups, plan.group[i], (rectangle, WHOLE), selected[:, :back], front)
        at = front
        while at < end:
            low, high = selected[0, at], selected[1, at]
            if (has1 and low <= q1) or (has2 and high >= q2):
                at += 1
                front = at
            else:  # the last one takes its place
                end -= 1
                back -= 1
                selected[0, at], selected[1, at] = selected[0, end], selected[1, end]
                selected[0, back], selected[1, back] = low, high
    return front, size - back


@kernel(allocates=False)
def _add_minimal(low, high, scratch, n):
    """Enter a range in the list of those that contain no other, ascending in both ends; its new length."""
    x, y = scratch.x, scratch.y
    at = np.searchsorted(x[:n], low)  # the first that does not begin before it
    if at < n and y[at] <= high:
        return n  # it contains that one
    first = at  # those before that end as late or later contain it
    while first > 0 and y[first - 1] >= high:
        first -= 1
    last = at + 1 if at < n and x[at] == low else at
    shift = 1 - (last - first)
    if shift > 0:
        for i in range(n, last, -1):
            x[i], y[i] = x[i - 1], y[i - 1]
    elif shift < 0:
        for i in range(last, n):
            x[i + shift], y[i + shift] = x[i], y[i]
    x[first], y[first] = low, high
    return n + shift


@kernel(allocates=False)
def _minimal_ranges(plan, run, rectangle, scratch):
    """Affected ranges that contain no other, as points; how many.

    The affected of a group are those that reach the joining value before its point, or the one after it.
    """
    selected, n = scratch.selected, 0
    for i in range(len(plan.point)):
        has1, q1, has2, q2 = beside(plan.other, run, plan.point[i])
        count = 0
        if has1:
            count = find_selected(plan.groups, plan.group[i], (rectangle, (MIN, q1, MIN, MAX)), selected, 0)
        if has2:
            above = q1 + 1 if has1 else MIN
            reaching = above, MAX, q2, MAX
            count = find_selected(plan.groups, plan.group[i], (rectangle, reaching), selected, count)
        for k in range(count):
            n = _add_minimal(selected[0, k], selected[1, k], scratch, n)
    return n


@kernel
def _fewest(selected, affected, unaffected, scratch):
    """Stab the largest quadrants without unaffected ranges greedily; how many points."""
    quads, n = scratch.quadrants, 0
    others = selected[:, selected.shape[1] - unaffected :]
    order, seen, top = np.argsort(others[0]), False, MIN
    for k in order:
        low, high = others[0, k], others[1, k]
        if not seen or high > top:
            if low > MIN:
                quads[0, n], quads[1, n], quads[2, n] = low - 1, top + 1 if seen else MIN, -1
                n += 1
            seen, top = True, high
            if top == MAX:  # no range ends after it
                break
    if top < MAX or not seen:
        quads[0, n], quads[1, n], quads[2, n] = MAX, top + 1 if seen else MIN, -1
        n += 1
    for i in range(affected):
        first = np.searchsorted(quads[0, :n], selected[0, i])
        last = np.searchsorted(quads[1, :n], selected[1, i], side="right") - 1
        quads[2, last] = max(quads[2, last], first)
    count, chosen = 0, -1
    for q in range(n):
        if quads[2, q] > chosen:
            scratch.x[count], scratch.y[count], chosen = quads[0, q], quads[1, q], q
            count += 1
    return count


@kernel
def skyline(policy, plan, run, rectangle, scratch):
    """Write the points of a skyline to scratch.x and .y, ascending; how many; 0 if nobody would receive.

    The run, of the other table, is not empty.
    """
    if policy == RANGES:
        return _minimal_ranges(plan, run, rectangle, scratch)
    if policy == FEWEST:
        affected, unaffected = _split_affected(plan, run, rectangle, scratch.selected)
        return _fewest(scratch.selected, affected, unaffected, scratch) if affected else 0
    if not is_anyone_affected(plan, run, rectangle):
        return 0
    if policy == TUPLES:
        n = _distinct(scratch.values, gather_values(plan.other, run, scratch.values))
    else:
        n = _near_points(plan, run, scratch.values)
    if policy == MERGED:
        return _merge_runs(plan, rectangle, scratch.values, n, scratch)
    scratch.x[:n], scratch.y[:n] = scratch.values[:n], scratch.values[:n]
    return n
