"""Rebuilding a dynamic partition with the least number of groups; the tree of left ends.

The tree is a treap of intervals by (left end, id), stored in the items; a node knows its subtree's least
right end. Priorities fall from parents to children and are hashes of ids, so that the expected depth is O(log
n):

              (low, id)
      less  <-/       \\->  more

Updates walk down, record the path, and recompute the sums on the way back.

Both rebuilds find the new groups 0..tau-1 with their cores and witnesses, and the *pieces*: how many ids of
an old group go to a new one. A new group keeps the number of the old group that most of its ids come from,
unless another new group has more of them. Then only ids of pieces whose group number changed are touched.

T07, section 4.2.3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.stab._kernels.partition import (
    FREE,
    GREATEST,
    GROUP,
    GROUPS,
    LEAST,
    LOST,
    MOVED,
    NEW,
    OLD,
    REBUILDS,
    ROOT,
    TAU,
    UNUSED,
    WITNESS,
    join_group,
    leave_group,
    new_group,
    update_largest,
)

__all__ = [
    "count_until",
    "interval_ending_at",
    "last_left_end",
    "least_right_end_after",
    "rebuild_by_sorting",
    "rebuild_by_tree",
    "tree_agrees",
    "tree_build",
    "tree_insert",
    "tree_remove",
    "tree_run",
]


@kernel(allocates=False)
def _hash(i):
    x = np.uint64(i) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint32((x ^ (x >> np.uint64(31))) & np.uint64(0xFFFFFFFF))


@kernel(allocates=False)
def _sum_up(s, i):
    item = s.items[i]
    least, count = item.high, 1
    if item.less >= 0:
        child = s.items[item.less]
        least, count = min(least, child.least), count + child.count
    if item.more >= 0:
        child = s.items[item.more]
        least, count = min(least, child.least), count + child.count
    item.least, item.count = least, count


@kernel(allocates=False)
def _is_before(s, i, j):
    a, b = s.items[i].low, s.items[j].low
    return a < b or (a == b and i < j)


@kernel(allocates=False)
def _attach(s, parent, on_more, i):
    """Make i the child of a parent, or the root."""
    if parent < 0:
        s.counters[ROOT] = i
    elif on_more:
        s.items[parent].more = i
    else:
        s.items[parent].less = i


@kernel(allocates=False)
def tree_insert(s, i):
    """O(log n) expected."""
    item = s.items[i]
    item.priority = _hash(i)
    depth, parent, on_more = 0, np.int64(-1), False
    node = s.counters[ROOT]
    while node >= 0 and s.items[node].priority >= item.priority:
        s.path[depth] = node
        depth += 1
        parent, on_more = node, _is_before(s, node, i)
        node = np.int64(s.items[node].more if on_more else s.items[node].less)
    _attach(s, parent, on_more, i)
    above = depth
    # The subtree found here is split by the key: nodes before i go under less, the rest under more.
    less, more = np.int64(-1), np.int64(-1)  # the nodes whose child is open
    item.less = item.more = -1
    while node >= 0:
        s.path[depth] = node
        depth += 1
        if _is_before(s, node, i):
            if less < 0:
                item.less = node
            else:
                s.items[less].more = node
            less, node = node, np.int64(s.items[node].more)
        else:
            if more < 0:
                item.more = node
            else:
                s.items[more].less = node
            more, node = node, np.int64(s.items[node].less)
    if less >= 0:
        s.items[less].more = -1
    if more >= 0:
        s.items[more].less = -1
    for k in range(depth - 1, above - 1, -1):
        _sum_up(s, s.path[k])
    _sum_up(s, i)
    for k in range(above - 1, -1, -1):
        _sum_up(s, s.path[k])


@kernel(allocates=False)
def tree_remove(s, i):
    """O(log n) expected."""
    depth, parent, on_more = 0, np.int64(-1), False
    node = s.counters[ROOT]
    while node != i:
        s.path[depth] = node
        depth += 1
        parent, on_more = node, _is_before(s, node, i)
        node = np.int64(s.items[node].more if on_more else s.items[node].less)
    less, more = np.int64(s.items[i].less), np.int64(s.items[i].more)
    while less >= 0 and more >= 0:  # the children become one
        if s.items[less].priority >= s.items[more].priority:
            _attach(s, parent, on_more, less)
            parent, on_more, less = less, True, np.int64(s.items[less].more)
        else:
            _attach(s, parent, on_more, more)
            parent, on_more, more = more, False, np.int64(s.items[more].less)
        s.path[depth] = parent
        depth += 1
    _attach(s, parent, on_more, less if less >= 0 else more)
    for k in range(depth - 1, -1, -1):
        _sum_up(s, s.path[k])


@kernel
def tree_build(s, ids):
    """A new tree of ids that ascend by (left end, id), in O(n)."""
    spine = np.empty(len(ids), np.int32)  # from the root along `more`
    height = 0
    for i in ids:
        item = s.items[i]
        item.priority = _hash(i)
        item.less = item.more = -1
        last = np.int32(-1)
        while height > 0 and s.items[spine[height - 1]].priority < item.priority:
            height -= 1
            last = spine[height]
            _sum_up(s, last)
        item.less = last
        if height > 0:
            s.items[spine[height - 1]].more = i
        spine[height] = i
        height += 1
    s.counters[ROOT] = spine[0] if height > 0 else -1
    for k in range(height - 1, -1, -1):
        _sum_up(s, spine[k])


# -- queries -----------------------------------------------------------------------------------------


@kernel(allocates=False)
def least_right_end_after(s, low):
    """The least right end among intervals that begin after `low`; whether there is one."""
    best, found = GREATEST, False
    node = s.counters[ROOT]
    while node >= 0:
        item = s.items[node]
        if item.low > low:
            best, found = min(best, item.high), True
            if item.more >= 0:
                best = min(best, s.items[item.more].least)
            node = np.int64(item.less)
        else:
            node = np.int64(item.more)
    return best, found


@kernel(allocates=False)
def interval_ending_at(s, low, any_low, high):
    """An interval that begins after `low` (or anywhere) and ends at `high`, the least such right end."""
    node, inside = s.counters[ROOT], any_low
    while node >= 0:
        item = s.items[node]
        if not inside and item.low <= low:
            node = np.int64(item.more)
            continue
        if item.high == high:
            return node
        if item.more >= 0 and s.items[item.more].least == high:
            node, inside = np.int64(item.more), True
        else:
            node = np.int64(item.less)
    return np.int64(-1)


@kernel(allocates=False)
def last_left_end(s, low):
    """The last left end that is not after `low`; there must be one."""
    best, node = low, s.counters[ROOT]
    while node >= 0:
        item = s.items[node]
        if item.low <= low:
            best, node = item.low, np.int64(item.more)
        else:
            node = np.int64(item.less)
    return best


@kernel(allocates=False)
def count_until(s, low):
    """How many intervals do not begin after `low`."""
    count, node = np.int64(0), s.counters[ROOT]
    while node >= 0:
        item = s.items[node]
        if item.low <= low:
            count += 1
            if item.less >= 0:
                count += s.items[item.less].count
            node = np.int64(item.more)
        else:
            node = np.int64(item.less)
    return count


@kernel
def tree_run(s, first, last):
    """The ids at places first..last - 1 of the tree's order, in O(log n + their number)."""
    out = np.empty(last - first, np.int32)
    if first >= last:
        return out
    node, depth, filled = s.counters[ROOT], 0, 0
    skip = first  # how many of the subtree at `node` come before
    while True:
        item = s.items[node]
        smaller = np.int64(0 if item.less < 0 else s.items[item.less].count)
        if skip < smaller:
            s.path[depth] = node
            depth += 1
            node = np.int64(item.less)
        elif skip > smaller:
            skip -= smaller + 1
            node = np.int64(item.more)
        else:
            break
    while True:  # node is the next in order; the path has those to be visited after its subtree
        out[filled] = node
        filled += 1
        if filled == len(out):
            return out
        node = np.int64(s.items[node].more)
        while node >= 0:
            s.path[depth] = node
            depth += 1
            node = np.int64(s.items[node].less)
        depth -= 1
        node = np.int64(s.path[depth])


@kernel
def tree_agrees(s, ids):
    """Whether the tree has these ids in this order, falling priorities, and the right sums."""
    root = s.counters[ROOT]
    if root < 0:
        return len(ids) == 0
    if s.items[root].count != len(ids):
        return False
    for k, i in enumerate(tree_run(s, 0, len(ids))):
        if ids[k] != i:
            return False
        item = s.items[i]
        least, count = item.high, 1
        for child in (item.less, item.more):
            if child >= 0:
                if s.items[child].priority > item.priority:
                    return False
                least, count = min(least, s.items[child].least), count + s.items[child].count
        if item.least != least or item.count != count:
            return False
    return True


class Pieces(NamedTuple):
    """`size` ids of group `old` go to the new group `new`; they are at place `first` and after."""

    new: NDArray[np.int32]
    old: NDArray[np.int32]
    size: NDArray[np.int64]
    first: NDArray[np.int64]


@kernel
def _pieces(n):
    return Pieces(np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64))


@kernel
def _assign_names(s, pieces, count, tau):
    """A number for each new group; numbers that are no longer used become free."""
    want, weight = np.full(tau, -1, np.int32), np.zeros(tau, np.int64)
    for k in range(count):
        if pieces.size[k] > weight[pieces.new[k]]:
            want[pieces.new[k]], weight[pieces.new[k]] = pieces.old[k], pieces.size[k]
    owner = np.full(len(s.groups), -1, np.int32)
    for j in range(tau):
        w = want[j]
        if w >= 0 and (owner[w] < 0 or weight[j] > weight[owner[w]]):
            owner[w] = j
    for k in range(s.counters[GROUPS]):
        g = s.order[k]
        if owner[g] < 0:
            s.groups[g].kind = UNUSED
            s.free[s.counters[FREE]] = g
            s.counters[FREE] += 1
    for j in range(tau):
        if want[j] < 0 or owner[want[j]] != j:
            want[j] = new_group(s)
    return want


@kernel(allocates=False)
def _clear_witnesses(s):
    for k in range(s.counters[GROUPS]):
        group = s.groups[s.order[k]]
        if group.witness >= 0:
            s.items[group.witness].marks &= ~WITNESS
            group.witness = -1


@kernel(allocates=False)
def _install(s, names, fresh_groups):
    """Put the new groups in order, with cores and witnesses; sizes and lists are correct already."""
    for j in range(len(names)):
        group, new = s.groups[names[j]], fresh_groups[j]
        group.left, group.right, group.kind, group.witness = new.left, new.right, OLD, new.witness
        s.items[new.witness].marks |= WITNESS
        s.order[j] = names[j]
        update_largest(s, names[j], group.members)
    s.counters[GROUPS] = s.counters[TAU] = len(names)
    s.counters[LOST] = 0
    s.counters[REBUILDS] += 1


@kernel(allocates=False)
def _move(s, i, g):
    if s.items[i].group != g:
        leave_group(s, i)
        join_group(s, i, g)
        s.counters[MOVED] += 1


# -- the lazy way: sort and sweep --------------------------------------------------------------------


@kernel
def rebuild_by_sorting(s):
    """O(n log n): all intervals of the groups in order are sorted by left end and swept."""
    n = 0
    for k in range(s.counters[GROUPS]):
        n += s.groups[s.order[k]].members
    ids, low, at = np.empty(n, np.int32), np.empty(n, np.int64), 0
    for k in range(s.counters[GROUPS]):
        i = s.groups[s.order[k]].head
        while i >= 0:
            ids[at], low[at] = i, s.items[i].low
            at, i = at + 1, s.items[i].next
    ids = ids[np.argsort(low)]
    _clear_witnesses(s)
    new = np.zeros(s.counters[GROUPS] + 1, GROUP)
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
    names = _assign_names(s, pieces, count, tau)
    for j in range(tau):
        for at in range(start[j], start[j + 1]):
            _move(s, ids[at], names[j])
    _install(s, names, new[:tau])


# -- the refined way: by the tree --------------------------------------------------------------------


@kernel
def _next_points(s):
    """The least partition: the next point is the least right end of those that begin after the last."""
    new = np.zeros(s.counters[GROUPS] + 1, GROUP)
    tau, rho = 0, LEAST
    while s.counters[ROOT] >= 0:
        if tau == 0:  # a left end may be the least code: nothing is before it
            point = s.items[s.counters[ROOT]].least
        else:
            point, found = least_right_end_after(s, rho)
            if not found:
                break
        new[tau].right, new[tau].left = point, last_left_end(s, point)
        new[tau].witness = interval_ending_at(s, rho, tau == 0, point)
        tau, rho = tau + 1, point
        if point == GREATEST:
            break
    return new[:tau]


@kernel(allocates=False)
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


@kernel(allocates=False)
def _old_pieces(s, new, pieces):
    """Old groups follow each other by left ends, as new ones do: pieces lie between the ends of both."""
    count, j, k, below = 0, 0, 0, np.int64(0)
    while j < len(new):
        while k < s.counters[GROUPS] and s.groups[s.order[k]].kind != OLD:
            k += 1
        if k == s.counters[GROUPS]:
            break
        g = s.order[k]
        end, point = s.groups[g].right, new[j].right
        upto = count_until(s, min(end, point))
        if upto > below:
            pieces.new[count], pieces.old[count] = j, g
            pieces.first[count], pieces.size[count] = below, upto - below
            count, below = count + 1, upto
        if point <= end:
            j += 1
        if end <= point:
            k += 1
    return count


@kernel
def rebuild_by_tree(s):
    """O(groups * log n + intervals in groups opened since + ids that move).

    A group of the last rebuild has only left ends after the core of the one before, since an interval joins
    the first core that does not end before it; so these groups are stretches of the tree, interspersed with
    members of groups opened since, whose number is at most that of the updates since.
    """
    _clear_witnesses(s)
    new = _next_points(s)
    tau = len(new)
    spare = 0
    for k in range(s.counters[GROUPS]):
        if s.groups[s.order[k]].kind == NEW:
            spare += s.groups[s.order[k]].members
    pieces = _pieces(s.counters[GROUPS] + tau + spare)
    stretches = _old_pieces(s, new, pieces)
    count = stretches
    tally = np.zeros(tau, np.int64)
    fresh, at = np.empty(spare, np.int32), 0
    for k in range(s.counters[GROUPS]):
        g = s.order[k]
        if s.groups[g].kind != NEW:
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
    names = _assign_names(s, pieces, count, tau)
    for i in fresh:
        _move(s, i, names[_group_at(new, s.items[i].low)])
    for c in range(stretches):
        old, name = pieces.old[c], names[pieces.new[c]]
        if old != name:
            for i in tree_run(s, pieces.first[c], pieces.first[c] + pieces.size[c]):
                if s.items[i].group == old:
                    _move(s, i, name)
    _install(s, names, new)
