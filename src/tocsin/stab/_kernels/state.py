"""What a dynamic stabbing partition is made of, and its smallest steps.

    items[id]    ends, group, neighbours in the group's list, place in the tree of left ends, signs
    groups[g]    core, how many it holds, first of the list, kind, witness
    order        the groups by their cores; hot groups are not in it
    free         names of groups to use again
    dirty        ids that changed since the consumer was told; items[id].before is what it knows
    top          a tournament over the sizes of the groups in order: top[1] is the greatest
    hot          hot groups

The *core* of a group is a stretch that all its intervals contain, perhaps not all they have in common: it
shrinks when an interval comes and does not grow when one goes. Cores of the groups in order are disjoint.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = [
    "COUNT",
    "CROSSED",
    "DIRTY",
    "FREE",
    "FRESH",
    "GROUP",
    "HOT",
    "HOTS",
    "ITEM",
    "LIVING",
    "LOST",
    "MARKED",
    "MOVED",
    "OLD",
    "REBUILDS",
    "ROOT",
    "SLIGHTEST",
    "TAU",
    "TURNED",
    "UNUSED",
    "UPDATES",
    "USED",
    "WANTED",
    "WAS_HOT",
    "WITNESS",
    "State",
    "enter",
    "fill_top",
    "first_reaching",
    "insert_in_order",
    "leave",
    "mark",
    "members",
    "new_name",
    "set_top",
    "shrink",
    "take_from_order",
    "told",
]  # fmt: skip

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
    ("before", "i4"),  # the group that the consumer knows, if marked
    ("born", "i4"),  # number of rebuilds when it came
    ("signs", "i4"),
]
_GROUP = [
    ("left", "i8"),  # of the core
    ("right", "i8"),
    ("held", "i4"),
    ("head", "i4"),
    ("kind", "i4"),
    ("witness", "i4"),  # what ended first at the last rebuild, if it is still there, or -1
]
# Records, so that uncompiled code may say item.low too; `size` and `flags` would be NumPy's own then.
ITEM, GROUP = np.dtype((np.record, _ITEM)), np.dtype((np.record, _GROUP))

WITNESS, MARKED, WAS_HOT, TURNED = 1, 2, 4, 8  # signs
UNUSED, OLD, FRESH, HOT = 0, 1, 2, 3  # kinds: in order since the last rebuild, or opened later; hot

# numbers
ROOT, COUNT, USED, FREE, TAU, LOST, LIVING, DIRTY = 0, 1, 2, 3, 4, 5, 6, 7
REBUILDS, HOTS, CROSSED, MOVED, UPDATES, WANTED, SLIGHTEST = 8, 9, 10, 11, 12, 13, 14


class State(NamedTuple):
    items: NDArray[np.void]
    groups: NDArray[np.void]
    order: NDArray[np.int32]
    free: NDArray[np.int32]
    dirty: NDArray[np.int32]
    top: NDArray[np.int32]  # empty if nobody asks for the greatest group
    hot: NDArray[np.int32]
    path: NDArray[np.int32]  # scratch of the tree; empty if there is no tree
    numbers: NDArray[np.int64]
    limits: NDArray[np.float64]  # eps, alpha; 1.0 if every loss counts, not only that of a witness


# -- what the consumer is told -----------------------------------------------------------------------


@njit(cache=True, nogil=True)
def mark(s, i):
    """Remember where id i was when the consumer was last told."""
    item = s.items[i]
    if item.signs & MARKED == 0:
        item.signs |= MARKED
        item.before = item.group
        if item.group >= 0 and s.groups[item.group].kind == HOT:
            item.signs |= WAS_HOT
        s.dirty[s.numbers[DIRTY]] = i
        s.numbers[DIRTY] += 1


@njit(cache=True, nogil=True)
def told(s):
    """Ids whose group, or the heat of it, changed: id, before, after, was hot, is hot. Forgets them."""
    n = s.numbers[DIRTY]
    ids, before, after = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    was, now = np.empty(n, np.bool_), np.empty(n, np.bool_)
    count = 0
    for k in range(n):
        i = s.dirty[k]
        item = s.items[i]
        ids[count], before[count], after[count] = i, item.before, item.group
        was[count] = item.signs & WAS_HOT != 0
        now[count] = item.group >= 0 and s.groups[item.group].kind == HOT
        item.signs &= ~(MARKED | WAS_HOT)
        if before[count] != after[count] or was[count] != now[count]:
            count += 1
    s.numbers[DIRTY] = 0
    return ids[:count], before[:count], after[:count], was[:count], now[:count]


# -- the greatest group ------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def set_top(s, g, size):
    if len(s.top) == 0:
        return
    at = len(s.top) // 2 + g
    s.top[at] = size
    at >>= 1
    while at >= 1:
        best = max(s.top[2 * at], s.top[2 * at + 1])
        if s.top[at] == best:
            return
        s.top[at] = best
        at >>= 1


@njit(cache=True, nogil=True)
def fill_top(s):
    """The tournament anew, after there is more room."""
    half = len(s.top) // 2
    for g in range(s.numbers[USED]):
        kind = s.groups[g].kind
        s.top[half + g] = s.groups[g].held if kind == OLD or kind == FRESH else 0
    for at in range(half - 1, 0, -1):
        s.top[at] = max(s.top[2 * at], s.top[2 * at + 1])


# -- members of groups -------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def enter(s, i, g):
    """Id i becomes a member of g."""
    mark(s, i)
    item, group = s.items[i], s.groups[g]
    item.group, item.next, item.previous = g, group.head, -1
    if group.head >= 0:
        s.items[group.head].previous = i
    group.head = i
    group.held += 1
    if group.kind != HOT:
        set_top(s, g, group.held)


@njit(cache=True, nogil=True)
def leave(s, i):
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
    group.held -= 1
    if group.kind != HOT:
        set_top(s, g, group.held)


@njit(cache=True, nogil=True)
def members(s, g):
    out = np.empty(s.groups[g].held, np.int32)
    i = s.groups[g].head
    for k in range(len(out)):
        out[k] = i
        i = s.items[i].next
    return out


@njit(cache=True, nogil=True)
def shrink(s, g, low, high):
    """The core of g, less what is outside low..high."""
    group = s.groups[g]
    group.left, group.right = max(group.left, low), min(group.right, high)


# -- the order of groups -----------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def first_reaching(s, low):
    """The place of the first group whose core does not end before `low`."""
    first, last = 0, s.numbers[COUNT]
    while first < last:
        middle = (first + last) >> 1
        if s.groups[s.order[middle]].right < low:
            first = middle + 1
        else:
            last = middle
    return first


@njit(cache=True, nogil=True)
def new_name(s):
    """A group that is not in use."""
    if s.numbers[FREE] > 0:
        s.numbers[FREE] -= 1
        return s.free[s.numbers[FREE]]
    s.numbers[USED] += 1
    return np.int32(s.numbers[USED] - 1)


@njit(cache=True, nogil=True)
def insert_in_order(s, place, g):
    for k in range(s.numbers[COUNT], place, -1):
        s.order[k] = s.order[k - 1]
    s.order[place] = g
    s.numbers[COUNT] += 1


@njit(cache=True, nogil=True)
def take_from_order(s, g):
    """Cores are disjoint: the first that reaches g's right end is g's."""
    place = first_reaching(s, s.groups[g].right)
    s.numbers[COUNT] -= 1
    for k in range(place, s.numbers[COUNT]):
        s.order[k] = s.order[k + 1]
