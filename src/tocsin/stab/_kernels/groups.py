"""Groups of ranges that share a point: which of a group hold the nearest value on either side of it?

The members of group g are stored in three layouts at the same places of three pools:

    by_low    packed: by low end ascending   | tail: added later, unsorted  | unused
    by_high   packed: by high end descending |
    by_own    packed: slabs by low own end, each by high own end descending |
              at                             at + packed                    at + count   at + capacity

"Own" is a second range of each member, over the attribute of the row that has changed.

The query functions name arrays in full: binding one to a local name would count references, twice per group
and event, which takes as long as the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel

__all__ = [
    *("ACTIVE", "AT", "COUNT", "END", "GAPS", "PACKED", "CAPACITY", "SLAB", "SMALL", "UNIT"),
    *(
        "GroupArrays",
        "GroupMembers",
        "add_members",
        "find_in_group",
        "lay_out",
        "prefix_down_to",
        "prefix_up_to",
    ),
    "remove_members",
]

AT, PACKED, COUNT, CAPACITY, GAPS, SLAB = 0, 1, 2, 3, 4, 5  # of a group
ACTIVE, END = 0, 1  # of `meta`: groups that have members, end of the pools
SMALL, UNIT = 64, 32  # members that are not worth sorting; capacities and slabs are multiples of UNIT


class GroupMembers(NamedTuple):
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    own_low: NDArray[np.int64]
    own_high: NDArray[np.int64]
    slot: NDArray[np.int32]  # -1 for a gap


class GroupArrays(NamedTuple):
    by_low: GroupMembers
    by_high: GroupMembers
    by_own: GroupMembers  # of length 0 if own ranges hold everything
    slab_first: NDArray[np.int64]  # by place / UNIT + slab: the least low own end ...
    slab_last: NDArray[np.int64]  # ... and the greatest
    of: NDArray[np.int64]  # by group: AT, PACKED, COUNT, CAPACITY, GAPS, SLAB
    point: NDArray[np.int64]  # by group
    active: NDArray[np.int64]  # the groups that have members, in any order
    seat: NDArray[np.int64]  # by group: its place in `active`, or -1
    where: NDArray[np.int32]  # by slot: group (-1: none) and places by_low, by_high, by_own
    meta: NDArray[np.int64]


# -- queries -----------------------------------------------------------------------------------------


@kernel(allocates=False)
def prefix_up_to(ends, begin, count, bound):
    """How many of the ascending ends are at most the bound: O(log of that), since prefixes are short."""
    step = np.int64(1)
    while step <= count and ends[begin + step - 1] <= bound:
        step *= 2
    low, count = begin + step // 2, min(count, step - 1) - step // 2
    while count > 0:
        half = count >> 1
        fits = ends[low + half] <= bound
        low = low + half + 1 if fits else low
        count = count - half - 1 if fits else half
    return low - begin


@kernel(allocates=False)
def prefix_down_to(ends, begin, count, bound):
    """How many of the descending ends are at least the bound."""
    step = np.int64(1)
    while step <= count and ends[begin + step - 1] >= bound:
        step *= 2
    low, count = begin + step // 2, min(count, step - 1) - step // 2
    while count > 0:
        half = count >> 1
        fits = ends[low + half] >= bound
        low = low + half + 1 if fits else low
        count = count - half - 1 if fits else half
    return low - begin


@kernel(inline=True, allocates=False)
def find_in_group(groups, g, own, near, out, n):
    """Members with low <= q1 or high >= q2 whose own range holds `own`, to `out` from n on; where it ends.

    `near` is (is there a q1, q1, is there a q2, q2). Each member is written once. `out` has one place to
    spare.
    """
    has1, q1, has2, q2 = near
    at, packed, count = groups.of[g, AT], groups.of[g, PACKED], groups.of[g, COUNT]
    if packed:
        before = prefix_up_to(groups.by_low.low, at, packed, q1) if has1 else np.int64(0)
        after = prefix_down_to(groups.by_high.high, at, packed, q2) if has2 else np.int64(0)
        if len(groups.by_own.slot) and (before + after) * 4 > packed + 256:
            n = _find_by_own(groups, g, own, near, out, n)
        elif len(groups.by_own.slot) == 0:
            for i in range(at, at + before):
                out[n] = groups.by_low.slot[i]
                n += groups.by_low.slot[i] >= 0
            for i in range(at, at + after):
                out[n] = groups.by_high.slot[i]
                n += (groups.by_high.slot[i] >= 0) & ((not has1) | (groups.by_high.low[i] > q1))
        else:
            for i in range(at, at + before):
                out[n] = groups.by_low.slot[i]
                mine = (groups.by_low.own_low[i] <= own) & (own <= groups.by_low.own_high[i])
                n += mine & (groups.by_low.slot[i] >= 0)
            for i in range(at, at + after):
                mine = (groups.by_high.own_low[i] <= own) & (own <= groups.by_high.own_high[i])
                out[n] = groups.by_high.slot[i]
                n += mine & (groups.by_high.slot[i] >= 0) & ((not has1) | (groups.by_high.low[i] > q1))
    for i in range(at + packed, at + count):
        holds = (groups.by_low.low[i] <= q1) & has1 | (groups.by_low.high[i] >= q2) & has2
        out[n] = groups.by_low.slot[i]
        n += holds & (groups.by_low.own_low[i] <= own) & (own <= groups.by_low.own_high[i])
    return n


@kernel(allocates=False)
def _find_by_own(groups, g, own, near, out, n):
    """The packed part by slabs: of each the prefix that reaches `own`, of it members that reach q1 or q2."""
    has1, q1, has2, q2 = near
    at, width = groups.of[g, AT], groups.of[g, SLAB]
    end, slab = at + groups.of[g, PACKED], at // UNIT
    for begin in range(at, end, width):
        if groups.slab_first[slab] > own:
            break
        all_begin_before = groups.slab_last[slab] <= own
        slab += 1
        reach = begin + prefix_down_to(groups.by_own.own_high, begin, min(width, end - begin), own)
        if all_begin_before:
            for i in range(begin, reach):
                holds = (groups.by_own.low[i] <= q1) & has1 | (groups.by_own.high[i] >= q2) & has2
                out[n] = groups.by_own.slot[i]
                n += holds & (groups.by_own.slot[i] >= 0)
        else:
            for i in range(begin, reach):
                holds = (groups.by_own.low[i] <= q1) & has1 | (groups.by_own.high[i] >= q2) & has2
                out[n] = groups.by_own.slot[i]
                n += holds & (groups.by_own.slot[i] >= 0) & (groups.by_own.own_low[i] <= own)
    return n


# -- members -----------------------------------------------------------------------------------------


@kernel(allocates=False)
def _open(groups, g):
    groups.of[g] = 0
    groups.seat[g] = groups.meta[ACTIVE]
    groups.active[groups.meta[ACTIVE]] = g
    groups.meta[ACTIVE] += 1


@kernel(allocates=False)
def _close(groups, g):
    """Close a group without members; the last active group takes its seat."""
    groups.meta[ACTIVE] -= 1
    last, seat = groups.active[groups.meta[ACTIVE]], groups.seat[g]
    groups.active[seat] = last
    groups.seat[last] = seat
    groups.seat[g] = -1
    groups.of[g] = 0


@kernel(allocates=False)
def _write(m, at, low, high, own_low, own_high, slot):
    m.low[at], m.high[at], m.own_low[at], m.own_high[at], m.slot[at] = low, high, own_low, own_high, slot


@kernel
def _repack(groups, g, at, capacity):
    """Sort the members of a group again, without gaps, at `at` (where they are, or a larger place)."""
    of, m, n = groups.of, groups.by_low, 0
    count = of[g, COUNT]
    low, high = np.empty(count, np.int64), np.empty(count, np.int64)
    own_low, own_high = np.empty(count, np.int64), np.empty(count, np.int64)
    slot = np.empty(count, np.int32)
    for i in range(of[g, AT], of[g, AT] + count):
        if m.slot[i] >= 0:
            low[n], high[n], own_low[n], own_high[n] = m.low[i], m.high[i], m.own_low[i], m.own_high[i]
            slot[n] = m.slot[i]
            n += 1
    of[g, AT], of[g, CAPACITY], of[g, COUNT], of[g, GAPS] = at, capacity, n, 0
    if n <= SMALL:
        of[g, PACKED] = 0
        for i in range(n):
            _write(m, at + i, low[i], high[i], own_low[i], own_high[i], slot[i])
            groups.where[slot[i], 1] = at + i
        return
    of[g, PACKED] = n
    by = np.argsort(low[:n])
    for i in range(n):
        j = by[i]
        _write(m, at + i, low[j], high[j], own_low[j], own_high[j], slot[j])
        groups.where[slot[j], 1] = at + i
    by = np.argsort(~high[:n])  # ~ reverses the order and never overflows
    for i in range(n):
        j = by[i]
        _write(groups.by_high, at + i, low[j], high[j], own_low[j], own_high[j], slot[j])
        groups.where[slot[j], 2] = at + i
    if len(groups.by_own.slot) == 0:
        return
    width = (np.int64(1.5 * np.sqrt(n)) // UNIT + 1) * UNIT
    of[g, SLAB] = width
    by = np.argsort(own_low[:n])
    for slab in range((n + width - 1) // width):
        mine = by[slab * width : min(n, slab * width + width)]
        groups.slab_first[at // UNIT + slab] = own_low[mine[0]]
        groups.slab_last[at // UNIT + slab] = own_low[mine[-1]]
        inner = np.argsort(~own_high[mine])
        for i in range(len(mine)):
            j, to = mine[inner[i]], at + slab * width + i
            _write(groups.by_own, to, low[j], high[j], own_low[j], own_high[j], slot[j])
            groups.where[slot[j], 3] = to


@kernel(allocates=False)
def add_members(groups, group, members, done):
    """Add members from number `done` on; how many are added: fewer than all if the pools must grow first."""
    of, meta = groups.of, groups.meta
    for i in range(done, len(group)):
        g = group[i]
        if groups.seat[g] < 0:
            _open(groups, g)
        count = of[g, COUNT]
        if count == of[g, CAPACITY]:
            capacity = max(UNIT, 2 * of[g, CAPACITY])
            if meta[END] + capacity > len(groups.by_low.slot):
                return i
            at = meta[END]
            meta[END] += capacity
            _repack(groups, g, at, capacity)
            count = of[g, COUNT]
        at, slot = of[g, AT] + count, members.slot[i]
        _write(
            groups.by_low, at, members.low[i], members.high[i], members.own_low[i], members.own_high[i], slot
        )
        groups.where[slot, 0], groups.where[slot, 1] = g, at
        of[g, COUNT] = count + 1
        if count + 1 - of[g, PACKED] > max(SMALL, of[g, PACKED] // 8):
            _repack(groups, g, of[g, AT], of[g, CAPACITY])
    return len(group)


@kernel(allocates=False)
def remove_members(groups, slots):
    """Remove members; close groups that have none left."""
    of = groups.of
    for slot in slots:
        g, at = groups.where[slot, 0], groups.where[slot, 1]
        groups.where[slot, 0] = -1
        begin, packed = of[g, AT], of[g, PACKED]
        if at >= begin + packed:  # in the tail: the last takes its place
            m, last = groups.by_low, begin + of[g, COUNT] - 1
            _write(m, at, m.low[last], m.high[last], m.own_low[last], m.own_high[last], m.slot[last])
            if last != at:
                groups.where[m.slot[at], 1] = at
            of[g, COUNT] -= 1
        else:
            groups.by_low.slot[at] = -1
            groups.by_high.slot[groups.where[slot, 2]] = -1
            if len(groups.by_own.slot):
                groups.by_own.slot[groups.where[slot, 3]] = -1
            of[g, GAPS] += 1
            if of[g, GAPS] * 4 > packed:
                _repack(groups, g, begin, of[g, CAPACITY])
        if of[g, COUNT] == of[g, GAPS]:
            _close(groups, g)


@kernel(allocates=False)
def lay_out(groups, group, members, by, sizes):
    """Add all members at once to empty groups; `by` lists them in the order of their groups."""
    first, meta, total = 0, groups.meta, np.int64(0)
    for g in range(len(sizes)):
        n = sizes[g]
        if n == 0:
            continue
        _open(groups, g)
        capacity = ((n + n // 4) // UNIT + 1) * UNIT
        groups.of[g, AT], groups.of[g, CAPACITY], groups.of[g, COUNT] = total, capacity, n
        for k in range(n):
            i = by[first + k]
            slot = members.slot[i]
            _write(
                groups.by_low,
                total + k,
                members.low[i],
                members.high[i],
                members.own_low[i],
                members.own_high[i],
                slot,
            )
            groups.where[slot, 0] = g
        first += n
        _repack(groups, g, total, capacity)
        total += capacity
    meta[END] = total
