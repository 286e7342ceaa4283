"""Making a dynamic partition least again, with as few ids changing group as is easily had.

Both ways find the new groups 0..tau-1 with their cores and witnesses, and the *pieces*: how many ids of an
old group go to a new one. A new group takes the name of the old group from which most of it comes, if no
other has more of that one. Then only ids of pieces whose name changed are touched.

T07, section 4.2.3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tocsin.stab._kernels.partition import GREATEST, LEAST
from tocsin.stab._kernels.state import (
    COUNT,
    FREE,
    FRESH,
    GROUP,
    LOST,
    MOVED,
    OLD,
    REBUILDS,
    ROOT,
    TAU,
    UNUSED,
    WITNESS,
    enter,
    leave,
    new_name,
    set_top,
)
from tocsin.stab._kernels.tree import count_to, last_to, least_after, span, with_right_end

__all__ = ["by_sorting", "by_tree"]


class Pieces(NamedTuple):
    """`size` ids of group `old` go to the new group `new`; they are at place `first` and after."""

    new: NDArray[np.int32]
    old: NDArray[np.int32]
    size: NDArray[np.int64]
    first: NDArray[np.int64]


@njit(cache=True, nogil=True)
def _pieces(n):
    return Pieces(np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64))


@njit(cache=True, nogil=True)
def _names(s, pieces, count, tau):
    """A name for each new group; names that are not used any more become free."""
    want, weight = np.full(tau, -1, np.int32), np.zeros(tau, np.int64)
    for k in range(count):
        if pieces.size[k] > weight[pieces.new[k]]:
            want[pieces.new[k]], weight[pieces.new[k]] = pieces.old[k], pieces.size[k]
    owner = np.full(len(s.groups), -1, np.int32)
    for j in range(tau):
        w = want[j]
        if w >= 0 and (owner[w] < 0 or weight[j] > weight[owner[w]]):
            owner[w] = j
    for k in range(s.numbers[COUNT]):
        g = s.order[k]
        if owner[g] < 0:
            s.groups[g].kind = UNUSED
            s.free[s.numbers[FREE]] = g
            s.numbers[FREE] += 1
    for j in range(tau):
        if want[j] < 0 or owner[want[j]] != j:
            want[j] = new_name(s)
    return want


@njit(cache=True, nogil=True)
def _forget_witnesses(s):
    for k in range(s.numbers[COUNT]):
        group = s.groups[s.order[k]]
        if group.witness >= 0:
            s.items[group.witness].signs &= ~WITNESS
            group.witness = -1


@njit(cache=True, nogil=True)
def _install(s, names, fresh_groups):
    """The new groups in order, with cores and witnesses; sizes and lists are right already."""
    for j in range(len(names)):
        group, new = s.groups[names[j]], fresh_groups[j]
        group.left, group.right, group.kind, group.witness = new.left, new.right, OLD, new.witness
        s.items[new.witness].signs |= WITNESS
        s.order[j] = names[j]
        set_top(s, names[j], group.held)
    s.numbers[COUNT] = s.numbers[TAU] = len(names)
    s.numbers[LOST] = 0
    s.numbers[REBUILDS] += 1


@njit(cache=True, nogil=True)
def _move(s, i, g):
    if s.items[i].group != g:
        leave(s, i)
        enter(s, i, g)
        s.numbers[MOVED] += 1


# -- the lazy way: sort and sweep --------------------------------------------------------------------


@njit(cache=True, nogil=True)
def by_sorting(s):
    """O(n log n): all intervals of the groups in order are sorted by left end and swept."""
    n = 0
    for k in range(s.numbers[COUNT]):
        n += s.groups[s.order[k]].held
    ids, low, at = np.empty(n, np.int32), np.empty(n, np.int64), 0
    for k in range(s.numbers[COUNT]):
        i = s.groups[s.order[k]].head
        while i >= 0:
            ids[at], low[at] = i, s.items[i].low
            at, i = at + 1, s.items[i].next
    ids = ids[np.argsort(low)]
    _forget_witnesses(s)
    new = np.zeros(s.numbers[COUNT] + 1, GROUP)
    start = np.empty(len(new) + 1, np.int64)
    tau = 0
    for at in range(n):
        item = s.items[ids[at]]
        if tau == 0 or item.low > new[tau - 1].right:
            start[tau] = at
            new[tau].right, new[tau].witness = item.high, ids[at]
            tau += 1
        elif item.high < new[tau - 1].right:
            new[tau - 1].right, new[tau - 1].witness = item.high, ids[at]
        new[tau - 1].left = item.low
    start[tau] = n
    pieces, count = _pieces(n), 0
    tally = np.zeros(len(s.groups), np.int64)
    for j in range(tau):
        first = count
        for at in range(start[j], start[j + 1]):
            g = s.items[ids[at]].group
            if tally[g] == 0:
                pieces.new[count], pieces.old[count] = j, g
                count += 1
            tally[g] += 1
        for k in range(first, count):
            pieces.size[k] = tally[pieces.old[k]]
            tally[pieces.old[k]] = 0
    names = _names(s, pieces, count, tau)
    for j in range(tau):
        for at in range(start[j], start[j + 1]):
            _move(s, ids[at], names[j])
    _install(s, names, new[:tau])


# -- the refined way: by the tree --------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _next_points(s):
    """The least partition: the next point is the least right end of those that begin after the last."""
    new = np.zeros(s.numbers[COUNT] + 1, GROUP)
    tau, rho = 0, LEAST
    while s.numbers[ROOT] >= 0:
        if tau == 0:  # a left end may be the least code: nothing is before it
            point = s.items[s.numbers[ROOT]].least
        else:
            point, found = least_after(s, rho)
            if not found:
                break
        new[tau].right, new[tau].left = point, last_to(s, point)
        new[tau].witness = with_right_end(s, rho, tau == 0, point)
        tau, rho = tau + 1, point
        if point == GREATEST:
            break
    return new[:tau]


@njit(cache=True, nogil=True)
def _group_at(new, low):
    """The first new group whose point is not before `low`."""
    first, last = 0, len(new)
    while first < last:
        middle = (first + last) >> 1
        if new[middle].right < low:
            first = middle + 1
        else:
            last = middle
    return first


@njit(cache=True, nogil=True)
def _old_pieces(s, new, pieces):
    """Old groups follow each other by left ends, as new ones do: pieces lie between the ends of both."""
    count, j, k, below = 0, 0, 0, np.int64(0)
    while j < len(new):
        while k < s.numbers[COUNT] and s.groups[s.order[k]].kind != OLD:
            k += 1
        if k == s.numbers[COUNT]:
            break
        g = s.order[k]
        end, point = s.groups[g].right, new[j].right
        upto = count_to(s, min(end, point))
        if upto > below:
            pieces.new[count], pieces.old[count] = j, g
            pieces.first[count], pieces.size[count] = below, upto - below
            count, below = count + 1, upto
        if point <= end:
            j += 1
        if end <= point:
            k += 1
    return count


@njit(cache=True, nogil=True)
def by_tree(s):
    """O(groups * log n + intervals in groups opened since + ids that move).

    A group of the last rebuild has only left ends after the core of the one before, since an interval joins
    the first core that does not end before it; so these groups are stretches of the tree, interspersed with
    members of groups opened since, whose number is at most that of the updates since.
    """
    _forget_witnesses(s)
    new = _next_points(s)
    tau = len(new)
    spare = 0
    for k in range(s.numbers[COUNT]):
        if s.groups[s.order[k]].kind == FRESH:
            spare += s.groups[s.order[k]].held
    pieces = _pieces(s.numbers[COUNT] + tau + spare)
    stretches = _old_pieces(s, new, pieces)
    count = stretches
    tally = np.zeros(tau, np.int64)
    fresh, at = np.empty(spare, np.int32), 0
    for k in range(s.numbers[COUNT]):
        g = s.order[k]
        if s.groups[g].kind != FRESH:
            continue
        first = count
        i = s.groups[g].head
        while i >= 0:
            j = _group_at(new, s.items[i].low)
            if tally[j] == 0:
                pieces.new[count], pieces.old[count] = j, g
                count += 1
            tally[j] += 1
            fresh[at] = i
            at, i = at + 1, s.items[i].next
        for c in range(first, count):
            pieces.size[c] = tally[pieces.new[c]]
            tally[pieces.new[c]] = 0
    names = _names(s, pieces, count, tau)
    for i in fresh:
        _move(s, i, names[_group_at(new, s.items[i].low)])
    for c in range(stretches):
        old, name = pieces.old[c], names[pieces.new[c]]
        if old != name:
            for i in span(s, pieces.first[c], pieces.first[c] + pieces.size[c]):
                if s.items[i].group == old:
                    _move(s, i, name)
    _install(s, names, new)
