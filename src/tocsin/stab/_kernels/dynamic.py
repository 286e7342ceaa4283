"""Intervals come to and go from a stabbing partition; hot groups are kept apart.

An interval joins the first group in order whose core does not end before it, if that core has a point of it;
otherwise it opens a group, whose core is then disjoint from all others. T07, sections 4.2.2 and 4.2.3.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.stab._kernels.partition import GREATEST, LEAST
from tocsin.stab._kernels.rebuild import by_sorting, by_tree
from tocsin.stab._kernels.state import (
    COUNT,
    CROSSED,
    FREE,
    FRESH,
    HOT,
    HOTS,
    LIVING,
    LOST,
    OLD,
    REBUILDS,
    SLIGHTEST,
    TAU,
    TURNED,
    UNUSED,
    UPDATES,
    USED,
    WANTED,
    WITNESS,
    enter,
    first_reaching,
    insert_in_order,
    leave,
    mark,
    new_name,
    set_top,
    shrink,
    take_from_order,
)
from tocsin.stab._kernels.tree import cut_out, plant, put_in

__all__ = ["first_wrong", "load", "update_all"]


@njit(cache=True, nogil=True)
def _free(s, g):
    s.groups[g].kind = UNUSED
    s.free[s.numbers[FREE]] = g
    s.numbers[FREE] += 1


@njit(cache=True, nogil=True)
def _open(s, place, low, high):
    g = new_name(s)
    group = s.groups[g]
    group.left, group.right, group.held, group.head = low, high, 0, -1
    group.kind, group.witness = FRESH, -1
    insert_in_order(s, place, g)
    return g


@njit(cache=True, nogil=True)
def _put(s, i):
    """Id i into a group in order."""
    item = s.items[i]
    place = first_reaching(s, item.low)
    if place < s.numbers[COUNT] and s.groups[s.order[place]].left <= item.high:
        g = s.order[place]
        shrink(s, g, item.low, item.high)
    else:
        g = _open(s, place, item.low, item.high)
    enter(s, i, g)
    if len(s.path) > 0:
        put_in(s, i)


@njit(cache=True, nogil=True)
def _lose(s, i):
    """Id i goes from the groups in order: the bound may have lost one of its reasons."""
    item = s.items[i]
    if item.signs & WITNESS:
        item.signs &= ~WITNESS
        s.groups[item.group].witness = -1
        s.numbers[LOST] += 1
    elif s.limits[2] > 0 and item.born < s.numbers[REBUILDS]:
        s.numbers[LOST] += 1
    if len(s.path) > 0:
        cut_out(s, i)


@njit(cache=True, nogil=True)
def _take(s, i):
    """Id i out of a group in order."""
    g = s.items[i].group
    _lose(s, i)
    leave(s, i)
    if s.groups[g].held == 0:
        take_from_order(s, g)
        _free(s, g)


@njit(cache=True, nogil=True)
def _mend(s):
    """Rebuild if there may be too many groups."""
    if s.numbers[COUNT] > (1.0 + s.limits[0]) * (s.numbers[TAU] - s.numbers[LOST]) and s.numbers[COUNT] > 0:
        if len(s.path) > 0:
            by_tree(s)
        else:
            by_sorting(s)


# -- hot groups --------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _promote(s, g):
    take_from_order(s, g)
    set_top(s, g, 0)
    group = s.groups[g]
    i = group.head
    while i >= 0:
        mark(s, i)
        _lose(s, i)
        i = s.items[i].next
    group.kind = HOT
    s.hot[s.numbers[HOTS]] = g
    s.numbers[HOTS] += 1
    s.numbers[CROSSED] += group.held
    s.numbers[SLIGHTEST] = min(s.numbers[SLIGHTEST], group.held)


@njit(cache=True, nogil=True)
def _demote(s, g):
    """As a whole where its core is clear of the others; else one by one."""
    group = s.groups[g]
    s.numbers[CROSSED] += group.held
    place = first_reaching(s, group.left)
    whole = place == s.numbers[COUNT] or s.groups[s.order[place]].left > group.right
    i = group.head
    while i >= 0:
        after = s.items[i].next
        mark(s, i)
        s.items[i].born = s.numbers[REBUILDS]
        if whole:
            if len(s.path) > 0:
                put_in(s, i)
        else:
            leave(s, i)
            _put(s, i)
        i = after
    if whole:
        group.kind = FRESH
        insert_in_order(s, place, g)
        set_top(s, g, group.held)
    else:
        _free(s, g)


@njit(cache=True, nogil=True)
def settle(s):
    """Demote and promote until all is as it should be; False if there must be more room first."""
    if len(s.hot) == 0:
        return True
    n, alpha = s.numbers[LIVING], s.limits[1]
    if s.numbers[SLIGHTEST] == 0 or s.numbers[SLIGHTEST] < alpha / 2 * n:
        slightest, k = n + 1, 0
        while k < s.numbers[HOTS]:
            g = s.hot[k]
            size = s.groups[g].held
            if size > 0 and size >= alpha / 2 * n:
                slightest, k = min(slightest, size), k + 1
                continue
            if len(s.groups) - s.numbers[USED] + s.numbers[FREE] < size:
                s.numbers[WANTED] = size
                return False
            s.numbers[HOTS] -= 1
            s.hot[k] = s.hot[s.numbers[HOTS]]
            if size > 0:
                _demote(s, g)
            else:
                _free(s, g)
        s.numbers[SLIGHTEST] = slightest
    _mend(s)
    half = len(s.top) // 2
    while s.top[1] > 0 and s.top[1] >= alpha * n:
        at = 1
        while at < half:
            at = 2 * at if s.top[2 * at] == s.top[at] else 2 * at + 1
        _promote(s, np.int32(at - half))
        _mend(s)
    return True


@njit(cache=True, nogil=True)
def _hot_group(s, low, high):
    """A hot group that the interval can join, or -1."""
    for k in range(s.numbers[HOTS]):
        group = s.groups[s.hot[k]]
        if group.left <= high and low <= group.right:
            return s.hot[k]
    return np.int32(-1)


# -- updates -----------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _insert(s, i, low, high):
    item = s.items[i]
    mark(s, i)
    item.low, item.high, item.born = low, high, s.numbers[REBUILDS]
    s.numbers[LIVING] += 1
    s.numbers[UPDATES] += 1
    g = _hot_group(s, low, high)
    if g >= 0:
        shrink(s, g, low, high)
        enter(s, i, g)
    else:
        _put(s, i)
        _mend(s)


@njit(cache=True, nogil=True)
def _remove(s, i):
    s.numbers[LIVING] -= 1
    s.numbers[UPDATES] += 1
    g = s.items[i].group
    if s.groups[g].kind == HOT:
        leave(s, i)
        s.numbers[SLIGHTEST] = min(s.numbers[SLIGHTEST], s.groups[g].held)
    else:
        _take(s, i)
        _mend(s)


@njit(cache=True, nogil=True)
def update_all(s, ids, low, high, comes, done):
    """Updates from the done-th on, one by one; how many are done at the end, or when room is wanted."""
    if not settle(s):
        return done
    for k in range(done, len(ids)):
        if comes[k]:
            if s.numbers[FREE] == 0 and s.numbers[USED] == len(s.groups):
                s.numbers[WANTED] = 1
                return k
            _insert(s, ids[k], low[k], high[k])
        else:
            _remove(s, ids[k])
        if not settle(s):
            return k + 1
    return len(ids)


@njit(cache=True, nogil=True)
def load(s, ids, low, high, group, order):
    """Many at once into an empty partition: the least one of them. `order` is by left end and id."""
    for j in range(group.max() + 1):
        s.groups[_open(s, j, LEAST, GREATEST)].kind = OLD
    s.numbers[TAU], s.numbers[LOST] = s.numbers[COUNT], 0
    for k in range(len(ids)):
        i = ids[k]
        g = s.order[group[k]]
        item, own = s.items[i], s.groups[g]
        mark(s, i)
        item.low, item.high, item.born = low[k], high[k], s.numbers[REBUILDS]
        if own.witness < 0 or high[k] < s.items[own.witness].high:
            own.witness = i
        shrink(s, g, low[k], high[k])
        enter(s, i, g)
    for j in range(s.numbers[COUNT]):
        s.items[s.groups[s.order[j]].witness].signs |= WITNESS
    s.numbers[REBUILDS] += 1
    s.numbers[LIVING] += len(ids)
    s.numbers[UPDATES] += len(ids)
    if len(s.path) > 0:
        plant(s, ids[order])


@njit(cache=True, nogil=True)
def first_wrong(s, ids, comes):
    """The first update that inserts an id that is there, or removes one that is not; or -1."""
    wrong, upto = -1, len(ids)
    for k in range(len(ids)):
        item = s.items[ids[k]]
        here = (item.group >= 0) != (item.signs & TURNED != 0)
        if here == comes[k]:
            wrong, upto = k, k
            break
        item.signs ^= TURNED
    for k in range(upto):
        s.items[ids[k]].signs &= ~TURNED
    return wrong
