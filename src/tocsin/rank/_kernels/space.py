"""Points (l, r) under slots: those in a rectangle, and their number; packing and removing.

Points lie in leaves of LEAF, and a group has FAN entries, each a leaf or a group of the next lower level.
`box` has six rows per group, so that all its entries are tested in one loop without a branch:

    L_LOW L_HIGH R_LOW R_HIGH   bounds of the living points below; GREATEST, LEAST where there are none
    LIVING                      how many they are; those of a leaf come first in it
    BELOW                       the group below, or ~leaf; ~0, with none living, where there is no entry

Group 0 is the root: its entries are the trees (`rank/space.py`). Functions write `space.box` instead of a
local `box`, for which every call would count references.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.rank._kernels.points import plain

__all__ = [
    "BELOW",
    "FAN",
    "GREATEST",
    "LEAF",
    "LEAST",
    "LIVING",
    "STACK",
    "SpaceArrays",
    "SpaceLocations",
    "collect",
    "count_in",
    "find_in",
    "pack",
    "push",
    "remove",
]

LEAF, FAN = 32, 16  # points in a leaf, entries in a group
LEAST, GREATEST = -(2**63), 2**63 - 1
L_LOW, L_HIGH, R_LOW, R_HIGH, LIVING, BELOW = range(6)  # rows of `box`
NEAR, WIDE = 1536, 256  # points, or entries, of a region that `near.py` has at hand
MARKS, STACK = (
    WIDE + 256,
    WIDE + 256 + LEAF,
)  # the stack has marks behind it; eight levels of FAN need far less
_SAMPLE = 31  # keys from which a pivot is taken


class SpaceArrays(NamedTuple):
    """For queries. Each query writes `stack`: one at a time, or a stack per thread.

    `near` and `region` are of the last `focus` (`_kernels/near.py`)."""

    ends: NDArray[np.int64]  # by leaf: LEAF left ends, then the right ones
    slot: NDArray[np.int32]  # by leaf
    box: NDArray[np.int64]  # by group: six rows of FAN
    stack: NDArray[np.int64]
    near: NDArray[np.int64]
    region: NDArray[np.int64]


class SpaceLocations(NamedTuple):
    """For changes: where everything is."""

    place: NDArray[np.int32]  # by slot: leaf * LEAF + place in it; -1 if there is none
    home: NDArray[np.int64]  # by FAN leaves: their group
    above: NDArray[np.int64]  # by group: group * FAN + entry that is above it; -1 for the root


# -- queries -----------------------------------------------------------------------------------------
# Entries that meet the rectangle are put on the stack without a branch, each as group * FAN + entry.


@plain
def push(space, group, l_low, l_high, r_low, r_high, top):
    """Push entries of a group that may have points in the rectangle; the new top of the stack."""
    for c in range(FAN):
        meets = (space.box[group, L_LOW, c] <= l_high) & (space.box[group, L_HIGH, c] >= l_low)
        meets &= (space.box[group, R_LOW, c] <= r_high) & (space.box[group, R_HIGH, c] >= r_low)
        space.stack[top] = group * FAN + c
        top += meets
    return top


@plain
def find_in(space, l_low, l_high, r_low, r_high, out, at):
    """Slots of the points in a rectangle, to `out` from `at` on; where that ends.

    If `out` is too short, -1 - a length that is enough.
    """
    top = push(space, 0, l_low, l_high, r_low, r_high, 0)
    return collect(space, l_low, l_high, r_low, r_high, out, at, top)


@plain
def collect(space, l_low, l_high, r_low, r_high, out, at, top):
    """`find_in`, below the entries on the stack."""
    size, short = len(out), False
    while top > 0:
        top -= 1
        g, c = space.stack[top] // FAN, space.stack[top] % FAN
        below, living = space.box[g, BELOW, c], space.box[g, LIVING, c]
        inside = (l_low <= space.box[g, L_LOW, c]) & (space.box[g, L_HIGH, c] <= l_high)
        inside &= (r_low <= space.box[g, R_LOW, c]) & (space.box[g, R_HIGH, c] <= r_high)
        leaf, most = ~below, LEAF
        if below >= 0:
            if inside:  # without gaps all leaves below are contiguous
                leaf = below
                while leaf >= 0:
                    leaf, most = space.box[leaf, BELOW, 0], most * FAN
                leaf = ~leaf
            if not inside or living < most:
                top = push(space, below, l_low, l_high, r_low, r_high, top)
                continue
        short |= at + living > size
        if short:  # whole leaves are counted from here on
            at += living
        elif inside:
            for full in range(leaf, leaf + living // LEAF):
                for i in range(LEAF):
                    out[at + i] = space.slot[full, i]
                at += LEAF
            for i in range(living % LEAF):
                out[at + i] = space.slot[leaf + living // LEAF, i]
            at += living % LEAF
        else:
            for i in range(LEAF):  # separate and of fixed length, so that it vectorises
                x, y = space.ends[leaf, 0, i], space.ends[leaf, 1, i]
                space.stack[MARKS + i] = (l_low <= x) & (x <= l_high) & (r_low <= y) & (y <= r_high)
            for i in range(living):
                out[at] = space.slot[leaf, i]
                at += space.stack[MARKS + i]
    return -1 - at if short else at


@plain
def count_in(space, l_low, l_high, r_low, r_high):
    """How many points are in a rectangle."""
    count = 0
    top = push(space, 0, l_low, l_high, r_low, r_high, 0)
    while top > 0:
        top -= 1
        g, c = space.stack[top] // FAN, space.stack[top] % FAN
        below, living = space.box[g, BELOW, c], space.box[g, LIVING, c]
        inside = (l_low <= space.box[g, L_LOW, c]) & (space.box[g, L_HIGH, c] <= l_high)
        inside &= (r_low <= space.box[g, R_LOW, c]) & (space.box[g, R_HIGH, c] <= r_high)
        if inside:
            count += living
        elif below >= 0:
            top = push(space, below, l_low, l_high, r_low, r_high, top)
        else:
            leaf = ~below
            for i in range(living):
                x, y = space.ends[leaf, 0, i], space.ends[leaf, 1, i]
                count += (l_low <= x) & (x <= l_high) & (r_low <= y) & (y <= r_high)
    return count


# -- changes -----------------------------------------------------------------------------------------


@plain
def _cut(key, other, slot, sample, first, last, at):
    """Move points in first..last so that none before `at` has a greater key than any from there on.

    Take a pivot from a sample and move all lesser keys to the front without a branch; repeat in the part that
    contains `at`. If no key was less, move all equal keys to the front: so many equal keys do no harm.
    """
    while first < at < last:
        size = min(_SAMPLE, 1 + (last - first) // 16)
        step = (last - first) // size
        for i in range(size):
            value, j = key[first + step // 2 + i * step], i
            while j > 0 and sample[j - 1] > value:
                sample[j] = sample[j - 1]
                j -= 1
            sample[j] = value
        pivot = sample[(at - first) * size // (last - first)]
        middle = first
        for i in range(first, last):
            k, o, s = key[i], other[i], slot[i]
            key[i], other[i], slot[i] = key[middle], other[middle], slot[middle]
            key[middle], other[middle], slot[middle] = k, o, s
            middle += k < pivot
        if at <= middle:
            last = middle
        elif middle > first:
            first = middle
        else:
            for i in range(first, last):
                k, o, s = key[i], other[i], slot[i]
                key[i], other[i], slot[i] = key[middle], other[middle], slot[middle]
                key[middle], other[middle], slot[middle] = k, o, s
                middle += k == pivot
            first = middle


@kernel
def _arrange(x, y, slot):
    """Put points (x, y) in the order of a tree: cut along the wider side, first a power of two leaves."""
    todo, sample, top = np.empty((64, 2), np.int64), np.empty(_SAMPLE, np.int64), 1
    todo[0, 0], todo[0, 1] = 0, len(x)
    while top > 0:
        top -= 1
        first, last = todo[top, 0], todo[top, 1]
        if last - first <= LEAF:
            continue
        half = LEAF
        while 2 * half < last - first:
            half *= 2
        least_l, most_l, least_r, most_r = x[first], x[first], y[first], y[first]
        for i in range(first, last):
            least_l, most_l = min(least_l, x[i]), max(most_l, x[i])
            least_r, most_r = min(least_r, y[i]), max(most_r, y[i])
        at = first + half
        if np.uint64(most_l - least_l) >= np.uint64(most_r - least_r):  # correct even if int64 overflows
            _cut(x, y, slot, sample, first, last, at)
        else:
            _cut(y, x, slot, sample, first, last, at)
        todo[top, 0], todo[top, 1] = first, at
        todo[top + 1, 0], todo[top + 1, 1] = at, last
        top += 2


@plain
def _bound_leaf(space, group, c):
    """Recompute the bounds of an entry from the living points of its leaf."""
    ends, box = space.ends, space.box
    leaf = ~box[group, BELOW, c]
    least_l, most_l, least_r, most_r = GREATEST, LEAST, GREATEST, LEAST
    for i in range(box[group, LIVING, c]):
        least_l, most_l = min(least_l, ends[leaf, 0, i]), max(most_l, ends[leaf, 0, i])
        least_r, most_r = min(least_r, ends[leaf, 1, i]), max(most_r, ends[leaf, 1, i])
    box[group, L_LOW, c], box[group, L_HIGH, c] = least_l, most_l
    box[group, R_LOW, c], box[group, R_HIGH, c] = least_r, most_r


@plain
def _bound_group(box, entry, group):
    """Recompute the bounds of the entry above a group; whether they have changed."""
    g, c = entry // FAN, entry % FAN
    least_l, most_l, least_r, most_r = GREATEST, LEAST, GREATEST, LEAST
    for i in range(FAN):
        least_l, most_l = min(least_l, box[group, L_LOW, i]), max(most_l, box[group, L_HIGH, i])
        least_r, most_r = min(least_r, box[group, R_LOW, i]), max(most_r, box[group, R_HIGH, i])
    same = (box[g, L_LOW, c] == least_l) & (box[g, L_HIGH, c] == most_l)
    same &= (box[g, R_LOW, c] == least_r) & (box[g, R_HIGH, c] == most_r)
    box[g, L_LOW, c], box[g, L_HIGH, c] = least_l, most_l
    box[g, R_LOW, c], box[g, R_HIGH, c] = least_r, most_r
    return not same


@plain
def _clear(box, group):
    """Make a group empty."""
    for c in range(FAN):
        box[group, L_LOW, c], box[group, L_HIGH, c] = GREATEST, LEAST
        box[group, R_LOW, c], box[group, R_HIGH, c] = GREATEST, LEAST
        box[group, LIVING, c], box[group, BELOW, c] = 0, ~0


@kernel
def pack(space, locations, x, y, slot, tree, block, group):
    """Pack points into a tree: leaves from block * FAN on, groups from `group` on.

    The lowest groups come first, then those above them, and so on up to one, which becomes entry `tree` of
    the root. The points' arrays are reordered.
    """
    _arrange(x, y, slot)
    ends, box, leaf = space.ends, space.box, block * FAN
    for i in range(len(x)):
        here, j = leaf + i // LEAF, i % LEAF
        ends[here, 0, j], ends[here, 1, j], space.slot[here, j] = x[i], y[i], slot[i]
        locations.place[slot[i]] = here * LEAF + j
    leaves = (len(x) + LEAF - 1) // LEAF
    groups = (leaves + FAN - 1) // FAN
    for i in range(groups):
        _clear(box, group + i)
        locations.home[block + i] = group + i
    for i in range(leaves):
        g, c = group + i // FAN, i % FAN
        box[g, BELOW, c], box[g, LIVING, c] = ~(leaf + i), min(LEAF, len(x) - i * LEAF)
        _bound_leaf(space, g, c)
    while True:
        after = group + groups
        upper = (groups + FAN - 1) // FAN if groups > 1 else 0
        for i in range(upper):
            _clear(box, after + i)
        for i in range(groups):
            entry = (after + i // FAN) * FAN + i % FAN if upper else tree
            g, c = entry // FAN, entry % FAN
            box[g, BELOW, c], locations.above[group + i] = group + i, entry
            box[g, LIVING, c] = np.sum(box[group + i, LIVING])
            _bound_group(box, entry, group + i)
        if not upper:
            return
        group, groups = after, upper


@plain
def remove(space, locations, slots):
    """Remove points: the last point of the leaf takes the place, and bounds on the way up become narrower."""
    ends, box, slot = space.ends, space.box, space.slot
    for s in slots:
        leaf, i = locations.place[s] // LEAF, locations.place[s] % LEAF
        locations.place[s] = -1
        g, c = locations.home[leaf // FAN], leaf % FAN
        last = box[g, LIVING, c] - 1
        x, y = ends[leaf, 0, i], ends[leaf, 1, i]
        other = slot[leaf, last]
        ends[leaf, 0, i], ends[leaf, 1, i], slot[leaf, i] = ends[leaf, 0, last], ends[leaf, 1, last], other
        if other != s:
            locations.place[other] = leaf * LEAF + i
        box[g, LIVING, c] = last
        narrower = (x == box[g, L_LOW, c]) | (x == box[g, L_HIGH, c])
        narrower |= (y == box[g, R_LOW, c]) | (y == box[g, R_HIGH, c])
        if narrower:
            _bound_leaf(space, g, c)
        entry = locations.above[g]
        while entry >= 0:
            box[entry // FAN, LIVING, entry % FAN] -= 1
            if narrower:
                narrower = _bound_group(box, entry, g)
            g = entry // FAN
            entry = locations.above[g]
