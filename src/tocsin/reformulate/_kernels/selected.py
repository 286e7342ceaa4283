"""Members of stabbing groups whose own range is in a rectangle: how far they reach, and which they are.

A change selects subscriptions by their own range: those that hold the new value, or hold the old one and not
the new, or hold the new one and no neighbour. Each of these is a rectangle (l_low, l_high, r_low, r_high) of
the plane of own ranges. All other ranges of a group hold its point, so the union of those selected is one
range, found from both ends with an early stop.

Slabs (`stab/_kernels/groups.py`) have members by low own end, each slab by high own end descending, so a
rectangle is a stretch of some slabs.
"""

from __future__ import annotations

import numpy as np

from tocsin.compiled import kernel
from tocsin.stab._kernels.groups import AT, COUNT, PACKED, SLAB, UNIT, prefix_down_to, prefix_up_to

__all__ = ["WHOLE", "any_between", "find_selected", "reach"]

MIN, MAX = np.int64(-(2**63)), np.int64(2**63 - 1)
WHOLE = MIN, MAX, MIN, MAX  # the rectangle of all ranges
TRIED = 64  # members looked at one by one before slabs are


@kernel(inline=True, allocates=False)
def _is_selected(members, i, rectangle):
    low, high = members.own_low[i], members.own_high[i]
    inside = (rectangle[0] <= low) & (low <= rectangle[1]) & (rectangle[2] <= high) & (high <= rectangle[3])
    return inside & (members.slot[i] >= 0)


@kernel(allocates=False)
def _stretch(groups, g, begin, rectangle):
    """Of the slab that starts at `begin`: where members with a high own end in the rectangle stand."""
    end = groups.of[g, AT] + groups.of[g, PACKED]
    count = min(groups.of[g, SLAB], end - begin)
    first = begin
    if rectangle[3] < MAX:
        first = begin + prefix_down_to(groups.by_own.own_high, begin, count, rectangle[3] + 1)
    return first, begin + prefix_down_to(groups.by_own.own_high, begin, count, rectangle[2])


@kernel(allocates=False)
def _reach_by_slabs(groups, g, rectangle, low, high):
    """The least low and the greatest high end of the selected in slabs, and of those given."""
    at, width = groups.of[g, AT], groups.of[g, SLAB]
    slab = at // UNIT
    for begin in range(at, at + groups.of[g, PACKED], width):
        if groups.slab_first[slab] > rectangle[1]:
            break
        if groups.slab_last[slab] >= rectangle[0]:
            first, last = _stretch(groups, g, begin, rectangle)
            for i in range(first, last):
                if _is_selected(groups.by_own, i, rectangle):
                    low, high = min(low, groups.by_own.low[i]), max(high, groups.by_own.high[i])
        slab += 1
    return low, high


@kernel(allocates=False)
def reach(groups, g, rectangle):
    """The union of the selected ranges of a group: least low end, greatest high end; MAX, MIN if none is."""
    at, packed, count = groups.of[g, AT], groups.of[g, PACKED], groups.of[g, COUNT]
    low, high = MAX, MIN
    for i in range(at + packed, at + count):
        if _is_selected(groups.by_low, i, rectangle):
            low, high = min(low, groups.by_low.low[i]), max(high, groups.by_low.high[i])
    if packed == 0:
        return low, high
    both = 0
    for i in range(at, at + min(packed, TRIED)):
        if _is_selected(groups.by_low, i, rectangle):
            low = min(low, groups.by_low.low[i])
            both += 1
            break
    for i in range(at, at + min(packed, TRIED)):
        if both == 1 and _is_selected(groups.by_high, i, rectangle):
            high = max(high, groups.by_high.high[i])
            both += 1
            break
    if both == 2 or (packed <= TRIED and both == 0):
        return low, high
    return _reach_by_slabs(groups, g, rectangle, low, high)


@kernel(allocates=False)
def any_between(groups, g, rectangle, q1, q2):
    """Is there a selected member strictly between two values: low > q1 and high < q2?"""
    at, packed, count = groups.of[g, AT], groups.of[g, PACKED], groups.of[g, COUNT]
    for i in range(at + packed, at + count):
        if groups.by_low.low[i] > q1 and groups.by_low.high[i] < q2:
            if _is_selected(groups.by_low, i, rectangle):
                return True
    if packed == 0:
        return False
    before = prefix_up_to(groups.by_low.low, at, packed, q1)
    after = prefix_down_to(groups.by_high.high, at, packed, q2)
    if before == packed or after == packed:
        return False
    tried = 0
    if before >= after:
        for i in range(at + packed - 1, at + before - 1, -1):
            if groups.by_low.high[i] < q2 and _is_selected(groups.by_low, i, rectangle):
                return True
            tried += 1
            if tried == 4 * TRIED:
                return _between_by_slabs(groups, g, rectangle, q1, q2)
    else:
        for i in range(at + packed - 1, at + after - 1, -1):
            if groups.by_high.low[i] > q1 and _is_selected(groups.by_high, i, rectangle):
                return True
            tried += 1
            if tried == 4 * TRIED:
                return _between_by_slabs(groups, g, rectangle, q1, q2)
    return False


@kernel(allocates=False)
def _between_by_slabs(groups, g, rectangle, q1, q2):
    at, width = groups.of[g, AT], groups.of[g, SLAB]
    slab = at // UNIT
    for begin in range(at, at + groups.of[g, PACKED], width):
        if groups.slab_first[slab] > rectangle[1]:
            break
        if groups.slab_last[slab] >= rectangle[0]:
            first, last = _stretch(groups, g, begin, rectangle)
            for i in range(first, last):
                if groups.by_own.low[i] > q1 and groups.by_own.high[i] < q2:
                    if _is_selected(groups.by_own, i, rectangle):
                        return True
        slab += 1
    return False


@kernel(allocates=False)
def find_selected(groups, g, box, out, n):
    """Write (low, high, slot) of a group's members in a box to `out` from n on; where it ends.

    A box is (own rectangle, other rectangle). Keeps counting when `out` is full.
    """
    at, packed, count = groups.of[g, AT], groups.of[g, PACKED], groups.of[g, COUNT]
    own, other = box
    for i in range(at + packed, at + count):
        n = _put_if(groups.by_low, i, own, other, out, n)
    if packed == 0:
        return n
    below = packed if other[1] == MAX else prefix_up_to(groups.by_low.low, at, packed, other[1])
    above = packed if other[2] == MIN else prefix_down_to(groups.by_high.high, at, packed, other[2])
    if min(below, above) * 4 <= packed:
        if below <= above:
            for i in range(at, at + below):
                n = _put_if(groups.by_low, i, own, other, out, n)
        else:
            for i in range(at, at + above):
                n = _put_if(groups.by_high, i, own, other, out, n)
        return n
    width, slab = groups.of[g, SLAB], at // UNIT
    for begin in range(at, at + packed, width):
        if groups.slab_first[slab] > own[1]:
            break
        if groups.slab_last[slab] >= own[0]:
            first, last = _stretch(groups, g, begin, own)
            for i in range(first, last):
                n = _put_if(groups.by_own, i, own, other, out, n)
        slab += 1
    return n


@kernel(inline=True, allocates=False)
def _put_if(members, i, own, other, out, n):
    """Write a member if its ranges are in both rectangles."""
    low, high = members.low[i], members.high[i]
    inside = (other[0] <= low) & (low <= other[1]) & (other[2] <= high) & (high <= other[3])
    if inside and _is_selected(members, i, own):
        if n < out.shape[1]:
            out[0, n], out[1, n], out[2, n] = low, high, members.slot[i]
        n += 1
    return n
