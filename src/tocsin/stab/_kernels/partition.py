"""The arrays of a dynamic stabbing partition, its smallest operations, and the sweep of the static one.

    items[id]    ends, group, neighbours in the group's list, node in the tree of left ends, marks
    groups[g]    core, number of members, first of the list, kind, witness
    order        the scattered groups by their cores; hot groups are not in it
    free         group numbers to reuse
    changed      ids that changed since the last `drain_moves`; items[id].before is their group at that time
    largest      a tournament over the sizes of the groups in `order`: largest[1] is the greatest size
    hot          hot groups

The *core* of a group is a range that all its intervals contain, perhaps smaller than their intersection: it
shrinks when an interval joins and does not grow when one leaves. Cores of the groups in `order` are disjoint.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel

__all__ = [
    "CHANGED",
    "CROSSINGS",
    "FREE",
    "GREATEST",
    "GROUP",
    "GROUPS",
    "HOT",
    "HOT_COUNT",
    "INTERVALS",
    "ITEM",
    "LEAST",
    "LOST",
    "MARKED",
    "MOVED",
    "NEW",
    "OLD",
    "REBUILDS",
    "REQUIRED",
    "ROOT",
    "SMALLEST_HOT",
    "TAU",
    "TURNED",
    "UNUSED",
    "UPDATES",
    "USED",
    "WAS_HOT",
    "WITNESS",
    "PartitionState",
    "drain_moves",
    "fill_largest",
    "first_empty",
    "first_reaching",
    "insert_in_order",
    "join_group",
    "leave_group",
    "mark",
    "members",
    "new_group",
    "point_of",
    "points_of",
    "remove_from_order",
    "shrink",
    "sweep",
    "update_largest",
]

LEAST, GREATEST = np.int64(-(2**63)), np.int64(2**63 - 1)

_ITEM = [
    ("low", "i8"),
    ("high", "i8"),
    ("least", "i8"),  # tree: least right end of the subtree
    ("less", "i4"),  # tree: children
    ("more", "i4"),
    ("count", "i4"),  # tree: size of the subtree
    ("priority", "u4"),
    ("group", "i4"),  # or -1
    ("next", "i4"),  # in the group's list
    ("previous", "i4"),
    ("before", "i4"),  # the group that the consumer last saw, if marked
    ("born", "i4"),  # number of rebuilds when it was inserted
    ("marks", "i4"),
]
_GROUP = [
    ("left", "i8"),  # of the core
    ("right", "i8"),
    ("members", "i4"),
    ("head", "i4"),
    ("kind", "i4"),
    ("witness", "i4"),  # the member that ended first at the last rebuild, or -1 if removed
]
# Records, so that uncompiled code can write item.low too; `size` and `flags` are NumPy's own attributes.
ITEM, GROUP = np.dtype((np.record, _ITEM)), np.dtype((np.record, _GROUP))

WITNESS, MARKED, WAS_HOT, TURNED = 1, 2, 4, 8  # bits of `marks`


class GroupKind(IntEnum):
    """What a group is; `OLD` groups are from the last rebuild, `NEW` ones were opened since."""

    UNUSED = 0
    OLD = 1
    NEW = 2
    HOT = 3


UNUSED, OLD, NEW, HOT = (int(kind) for kind in GroupKind)  # kernels compare plain integers

# places in `counters`: GROUPS are in `order`, USED are numbers ever given, REQUIRED is how many to grow by
ROOT, GROUPS, USED, FREE, TAU, LOST, INTERVALS, CHANGED = 0, 1, 2, 3, 4, 5, 6, 7
REBUILDS, HOT_COUNT, CROSSINGS, MOVED, UPDATES, REQUIRED, SMALLEST_HOT = 8, 9, 10, 11, 12, 13, 14


class PartitionState(NamedTuple):
    items: NDArray[np.void]
    groups: NDArray[np.void]
    order: NDArray[np.int32]
    free: NDArray[np.int32]
    changed: NDArray[np.int32]
    largest: NDArray[np.int32]  # empty if there are no hot groups
    hot: NDArray[np.int32]
    path: NDArray[np.int32]  # scratch of the tree; empty if there is no tree
    counters: NDArray[np.int64]
    limits: NDArray[np.float64]  # eps, alpha; 1.0 if every loss counts, not only a witness's


# -- moves that the consumer has not seen ------------------------------------------------------------


@kernel(allocates=False)
def mark(s, i):
    """Record id i as changed, with the group that the consumer last saw it in."""
    item = s.items[i]
    if item.marks & MARKED == 0:
        item.marks |= MARKED
        item.before = item.group
        if item.group >= 0 and s.groups[item.group].kind == HOT:
            item.marks |= WAS_HOT
        s.changed[s.counters[CHANGED]] = i
        s.counters[CHANGED] += 1


@kernel
def drain_moves(s):
    """Ids whose group, or its heat, changed: id, before, after, was hot, is hot; clears the record."""
    n = s.counters[CHANGED]
    ids, before, after = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    was, now = np.empty(n, np.bool_), np.empty(n, np.bool_)
    count = 0
    for k in range(n):
        i = s.changed[k]
        item = s.items[i]
        ids[count], before[count], after[count] = i, item.before, item.group
        was[count] = item.marks & WAS_HOT != 0
        now[count] = item.group >= 0 and s.groups[item.group].kind == HOT
        item.marks &= ~(MARKED | WAS_HOT)
        if before[count] != after[count] or was[count] != now[count]:
            count += 1
    s.counters[CHANGED] = 0
    return ids[:count], before[:count], after[:count], was[:count], now[:count]


# -- the largest group -------------------------------------------------------------------------------


@kernel(allocates=False)
def update_largest(s, g, size):
    if len(s.largest) == 0:
        return
    at = len(s.largest) // 2 + g
    s.largest[at] = size
    at >>= 1
    while at >= 1:
        best = max(s.largest[2 * at], s.largest[2 * at + 1])
        if s.largest[at] == best:
            return
        s.largest[at] = best
        at >>= 1


@kernel(allocates=False)
def fill_largest(s):
    """Rebuild the tournament after the arrays have grown."""
    half = len(s.largest) // 2
    for g in range(s.counters[USED]):
        kind = s.groups[g].kind
        s.largest[half + g] = s.groups[g].members if kind == OLD or kind == NEW else 0
    for at in range(half - 1, 0, -1):
        s.largest[at] = max(s.largest[2 * at], s.largest[2 * at + 1])


# -- members of groups -------------------------------------------------------------------------------


@kernel(allocates=False)
def join_group(s, i, g):
    """Id i becomes a member of g."""
    mark(s, i)
    item, group = s.items[i], s.groups[g]
    item.group, item.next, item.previous = g, group.head, -1
    if group.head >= 0:
        s.items[group.head].previous = i
    group.head = i
    group.members += 1
    if group.kind != HOT:
        update_largest(s, g, group.members)


@kernel(allocates=False)
def leave_group(s, i):
    """Id i is no longer a member of its group."""
    mark(s, i)
    item = s.items[i]
    g = item.group
    group = s.groups[g]
    if item.previous >= 0:
        s.items[item.previous].next = item.next
    else:
        group.head = item.next
    if item.next >= 0:
        s.items[item.next].previous = item.previous
    item.group = -1
    group.members -= 1
    if group.kind != HOT:
        update_largest(s, g, group.members)


@kernel
def members(s, g):
    out = np.empty(s.groups[g].members, np.int32)
    i = s.groups[g].head
    for k in range(len(out)):
        out[k] = i
        i = s.items[i].next
    return out


@kernel(allocates=False)
def shrink(s, g, low, high):
    """The core of g, less what is outside low..high."""
    group = s.groups[g]
    group.left, group.right = max(group.left, low), min(group.right, high)


# -- the order of groups -----------------------------------------------------------------------------


@kernel(allocates=False)
def first_reaching(s, low):
    """The place of the first group whose core does not end before `low`."""
    first, last = 0, s.counters[GROUPS]
    while first < last:
        middle = (first + last) >> 1
        if s.groups[s.order[middle]].right < low:
            first = middle + 1
        else:
            last = middle
    return first


@kernel(allocates=False)
def new_group(s):
    """The number of a group that is not in use."""
    if s.counters[FREE] > 0:
        s.counters[FREE] -= 1
        return s.free[s.counters[FREE]]
    s.counters[USED] += 1
    return np.int32(s.counters[USED] - 1)


@kernel(allocates=False)
def insert_in_order(s, place, g):
    for k in range(s.counters[GROUPS], place, -1):
        s.order[k] = s.order[k - 1]
    s.order[place] = g
    s.counters[GROUPS] += 1


@kernel(allocates=False)
def remove_from_order(s, g):
    """Cores are disjoint: the first that reaches g's right end is g's."""
    place = first_reaching(s, s.groups[g].right)
    s.counters[GROUPS] -= 1
    for k in range(place, s.counters[GROUPS]):
        s.order[k] = s.order[k + 1]


# -- the static partition ----------------------------------------------------------------------------


@kernel(allocates=False)
def first_empty(low, high):
    """The first interval without a point, or -1."""
    for i in range(len(low)):
        if low[i] > high[i]:
            return i
    return -1


@kernel(allocates=False)
def point_of(low, high):
    """A point of low..high: its right end, unless that is open; then its left end, or 0."""
    if high != GREATEST:
        return high
    return low if low != LEAST else np.int64(0)


@kernel
def points_of(low, high):
    out = np.empty(len(low), np.int64)
    for k in range(len(low)):
        out[k] = point_of(low[k], high[k])
    return out


@kernel
def sweep(low, high, order):
    """Groups of intervals taken by left end, closed by the first that misses; and a point of each."""
    group = np.empty(len(low), np.int32)
    point = np.empty(len(low), np.int64)
    count, left, right = 0, LEAST, LEAST  # left..right: what the open group has in common
    for i in order:
        if count == 0 or low[i] > right:
            if count > 0:
                point[count - 1] = point_of(left, right)
            count, right = count + 1, high[i]
        left, right = low[i], min(right, high[i])
        group[i] = count - 1
    if count > 0:
        point[count - 1] = point_of(left, right)
    return group, point[:count].copy()
