"""Inserting into and removing from a stabbing partition; hot groups are kept apart.

An interval joins the first group in order whose core does not end before it, if that core has a point of it;
otherwise it opens a group, whose core is then disjoint from all others. T07, sections 4.2.2 and 4.2.3.
"""

from __future__ import annotations

import numpy as np

from tocsin.compiled import kernel
from tocsin.stab._kernels.partition import (
    CROSSINGS,
    FREE,
    GREATEST,
    GROUPS,
    HOT,
    HOT_COUNT,
    INTERVALS,
    LEAST,
    LOST,
    NEW,
    OLD,
    REBUILDS,
    REQUIRED,
    SMALLEST_HOT,
    TAU,
    TURNED,
    UNUSED,
    UPDATES,
    USED,
    WITNESS,
    first_reaching,
    insert_in_order,
    join_group,
    leave_group,
    mark,
    new_group,
    remove_from_order,
    shrink,
    update_largest,
)
from tocsin.stab._kernels.rebuild import (
    rebuild_by_sorting,
    rebuild_by_tree,
    tree_build,
    tree_insert,
    tree_remove,
)

__all__ = ["first_invalid", "load", "update_all"]


@kernel(allocates=False)
def _free(s, g):
    s.groups[g].kind = UNUSED
    s.free[s.counters[FREE]] = g
    s.counters[FREE] += 1


@kernel(allocates=False)
def _open(s, place, low, high):
    g = new_group(s)
    group = s.groups[g]
    group.left, group.right, group.members, group.head = low, high, 0, -1
    group.kind, group.witness = NEW, -1
    insert_in_order(s, place, g)
    return g


@kernel(allocates=False)
def _insert_scattered(s, i):
    """Id i into a group in order."""
    item = s.items[i]
    place = first_reaching(s, item.low)
    if place < s.counters[GROUPS] and s.groups[s.order[place]].left <= item.high:
        g = s.order[place]
        shrink(s, g, item.low, item.high)
    else:
        g = _open(s, place, item.low, item.high)
    join_group(s, i, g)
    if len(s.path) > 0:
        tree_insert(s, i)


@kernel(allocates=False)
def _drop_from_order(s, i):
    """Id i leaves the groups in order; if it was a witness, the bound on their number weakens."""
    item = s.items[i]
    if item.marks & WITNESS:
        item.marks &= ~WITNESS
        s.groups[item.group].witness = -1
        s.counters[LOST] += 1
    elif s.limits[2] > 0 and item.born < s.counters[REBUILDS]:
        s.counters[LOST] += 1
    if len(s.path) > 0:
        tree_remove(s, i)


@kernel(allocates=False)
def _remove_scattered(s, i):
    """Id i out of a group in order."""
    g = s.items[i].group
    _drop_from_order(s, i)
    leave_group(s, i)
    if s.groups[g].members == 0:
        remove_from_order(s, g)
        _free(s, g)


@kernel(allocates=False)
def _rebuild_if_needed(s):
    """Rebuild if there may be too many groups."""
    if (
        s.counters[GROUPS] > (1.0 + s.limits[0]) * (s.counters[TAU] - s.counters[LOST])
        and s.counters[GROUPS] > 0
    ):
        if len(s.path) > 0:
            rebuild_by_tree(s)
        else:
            rebuild_by_sorting(s)


# -- hot groups --------------------------------------------------------------------------------------


@kernel(allocates=False)
def _promote(s, g):
    remove_from_order(s, g)
    update_largest(s, g, 0)
    group = s.groups[g]
    i = group.head
    while i >= 0:
        mark(s, i)
        _drop_from_order(s, i)
        i = s.items[i].next
    group.kind = HOT
    s.hot[s.counters[HOT_COUNT]] = g
    s.counters[HOT_COUNT] += 1
    s.counters[CROSSINGS] += group.members
    s.counters[SMALLEST_HOT] = min(s.counters[SMALLEST_HOT], group.members)


@kernel(allocates=False)
def _demote(s, g):
    """Demote a hot group: as a whole where its core overlaps no other; else interval by interval."""
    group = s.groups[g]
    s.counters[CROSSINGS] += group.members
    place = first_reaching(s, group.left)
    whole = place == s.counters[GROUPS] or s.groups[s.order[place]].left > group.right
    i = group.head
    while i >= 0:
        after = s.items[i].next
        mark(s, i)
        s.items[i].born = s.counters[REBUILDS]
        if whole:
            if len(s.path) > 0:
                tree_insert(s, i)
        else:
            leave_group(s, i)
            _insert_scattered(s, i)
        i = after
    if whole:
        group.kind = NEW
        insert_in_order(s, place, g)
        update_largest(s, g, group.members)
    else:
        _free(s, g)


@kernel(allocates=False)
def _adjust_hot_groups(s):
    """Demote and promote until (I1) holds; False if the arrays of groups must grow first."""
    if len(s.hot) == 0:
        return True
    n, alpha = s.counters[INTERVALS], s.limits[1]
    if s.counters[SMALLEST_HOT] == 0 or s.counters[SMALLEST_HOT] < alpha / 2 * n:
        slightest, k = n + 1, 0
        while k < s.counters[HOT_COUNT]:
            g = s.hot[k]
            size = s.groups[g].members
            if size > 0 and size >= alpha / 2 * n:
                slightest, k = min(slightest, size), k + 1
                continue
            if len(s.groups) - s.counters[USED] + s.counters[FREE] < size:
                s.counters[REQUIRED] = size
                return False
            s.counters[HOT_COUNT] -= 1
            s.hot[k] = s.hot[s.counters[HOT_COUNT]]
            if size > 0:
                _demote(s, g)
            else:
                _free(s, g)
        s.counters[SMALLEST_HOT] = slightest
    _rebuild_if_needed(s)
    half = len(s.largest) // 2
    while s.largest[1] > 0 and s.largest[1] >= alpha * n:
        at = 1
        while at < half:
            at = 2 * at if s.largest[2 * at] == s.largest[at] else 2 * at + 1
        _promote(s, np.int32(at - half))
        _rebuild_if_needed(s)
    return True


@kernel(allocates=False)
def _hot_group(s, low, high):
    """A hot group that the interval can join, or -1."""
    for k in range(s.counters[HOT_COUNT]):
        group = s.groups[s.hot[k]]
        if group.left <= high and low <= group.right:
            return s.hot[k]
    return np.int32(-1)


# -- updates -----------------------------------------------------------------------------------------


@kernel(allocates=False)
def _insert(s, i, low, high):
    item = s.items[i]
    mark(s, i)
    item.low, item.high, item.born = low, high, s.counters[REBUILDS]
    s.counters[INTERVALS] += 1
    s.counters[UPDATES] += 1
    g = _hot_group(s, low, high)
    if g >= 0:
        shrink(s, g, low, high)
        join_group(s, i, g)
    else:
        _insert_scattered(s, i)
        _rebuild_if_needed(s)


@kernel(allocates=False)
def _remove(s, i):
    s.counters[INTERVALS] -= 1
    s.counters[UPDATES] += 1
    g = s.items[i].group
    if s.groups[g].kind == HOT:
        leave_group(s, i)
        s.counters[SMALLEST_HOT] = min(s.counters[SMALLEST_HOT], s.groups[g].members)
    else:
        _remove_scattered(s, i)
        _rebuild_if_needed(s)


@kernel(allocates=False)
def update_all(s, ids, low, high, inserts, done):
    """Apply updates from number `done` on; how many are done: fewer than all if groups must grow first."""
    if not _adjust_hot_groups(s):
        return done
    for k in range(done, len(ids)):
        if inserts[k]:
            if s.counters[FREE] == 0 and s.counters[USED] == len(s.groups):
                s.counters[REQUIRED] = 1
                return k
            _insert(s, ids[k], low[k], high[k])
        else:
            _remove(s, ids[k])
        if not _adjust_hot_groups(s):
            return k + 1
    return len(ids)


@kernel
def load(s, ids, low, high, group, order):
    """Load many intervals into an empty partition, as the least one. `order` is by left end and id."""
    for j in range(group.max() + 1):
        s.groups[_open(s, j, LEAST, GREATEST)].kind = OLD
    s.counters[TAU], s.counters[LOST] = s.counters[GROUPS], 0
    for k in range(len(ids)):
        i = ids[k]
        g = s.order[group[k]]
        item, own = s.items[i], s.groups[g]
        mark(s, i)
        item.low, item.high, item.born = low[k], high[k], s.counters[REBUILDS]
        if own.witness < 0 or high[k] < s.items[own.witness].high:
            own.witness = i
        shrink(s, g, low[k], high[k])
        join_group(s, i, g)
    for j in range(s.counters[GROUPS]):
        s.items[s.groups[s.order[j]].witness].marks |= WITNESS
    s.counters[REBUILDS] += 1
    s.counters[INTERVALS] += len(ids)
    s.counters[UPDATES] += len(ids)
    if len(s.path) > 0:
        tree_build(s, ids[order])


@kernel(allocates=False)
def first_invalid(s, ids, inserts):
    """The first update that inserts an id in use, or removes one that is not; or -1."""
    wrong, upto = -1, len(ids)
    for k in range(len(ids)):
        item = s.items[ids[k]]
        here = (item.group >= 0) != (item.marks & TURNED != 0)
        if here == inserts[k]:
            wrong, upto = k, k
            break
        item.marks ^= TURNED
    for k in range(upto):
        s.items[ids[k]].marks &= ~TURNED
    return wrong
