"""A treap of intervals by (left end, id), in the items; a node knows its subtree's least right end.

priority falls from parents to children and is a hash of the id, so that the depth is O(log n) as expected
            (low, id)
    less  <-/       \\->  more

Updates walk down, remember the path, and put the sums right on the way back. T07, section 4.2.3.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tocsin.stab._kernels.partition import GREATEST
from tocsin.stab._kernels.state import ROOT

__all__ = [
    "agrees",
    "count_to",
    "cut_out",
    "last_to",
    "least_after",
    "plant",
    "put_in",
    "span",
    "with_right_end",
]


@njit(cache=True, nogil=True)
def _hash(i):
    x = np.uint64(i) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint32((x ^ (x >> np.uint64(31))) & np.uint64(0xFFFFFFFF))


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _is_before(s, i, j):
    a, b = s.items[i].low, s.items[j].low
    return a < b or (a == b and i < j)


@njit(cache=True, nogil=True)
def _hang(s, parent, on_more, i):
    """Make i the child of a parent, or the root."""
    if parent < 0:
        s.numbers[ROOT] = i
    elif on_more:
        s.items[parent].more = i
    else:
        s.items[parent].less = i


@njit(cache=True, nogil=True)
def put_in(s, i):
    """O(log n) expected."""
    item = s.items[i]
    item.priority = _hash(i)
    depth, parent, on_more = 0, np.int64(-1), False
    node = s.numbers[ROOT]
    while node >= 0 and s.items[node].priority >= item.priority:
        s.path[depth] = node
        depth += 1
        parent, on_more = node, _is_before(s, node, i)
        node = np.int64(s.items[node].more if on_more else s.items[node].less)
    _hang(s, parent, on_more, i)
    above = depth
    # What hung here is parted by the key: what is before i goes under less, the rest under more.
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


@njit(cache=True, nogil=True)
def cut_out(s, i):
    """O(log n) expected."""
    depth, parent, on_more = 0, np.int64(-1), False
    node = s.numbers[ROOT]
    while node != i:
        s.path[depth] = node
        depth += 1
        parent, on_more = node, _is_before(s, node, i)
        node = np.int64(s.items[node].more if on_more else s.items[node].less)
    less, more = np.int64(s.items[i].less), np.int64(s.items[i].more)
    while less >= 0 and more >= 0:  # the children become one
        if s.items[less].priority >= s.items[more].priority:
            _hang(s, parent, on_more, less)
            parent, on_more, less = less, True, np.int64(s.items[less].more)
        else:
            _hang(s, parent, on_more, more)
            parent, on_more, more = more, False, np.int64(s.items[more].less)
        s.path[depth] = parent
        depth += 1
    _hang(s, parent, on_more, less if less >= 0 else more)
    for k in range(depth - 1, -1, -1):
        _sum_up(s, s.path[k])


@njit(cache=True, nogil=True)
def plant(s, ids):
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
    s.numbers[ROOT] = spine[0] if height > 0 else -1
    for k in range(height - 1, -1, -1):
        _sum_up(s, spine[k])


# -- questions ---------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def least_after(s, low):
    """The least right end among intervals that begin after `low`; whether there is one."""
    best, found = GREATEST, False
    node = s.numbers[ROOT]
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


@njit(cache=True, nogil=True)
def with_right_end(s, low, any_low, high):
    """An interval that begins after `low` (or anywhere) and ends at `high`, the least such right end."""
    node, inside = s.numbers[ROOT], any_low
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


@njit(cache=True, nogil=True)
def last_to(s, low):
    """The last left end that is not after `low`; there must be one."""
    best, node = low, s.numbers[ROOT]
    while node >= 0:
        item = s.items[node]
        if item.low <= low:
            best, node = item.low, np.int64(item.more)
        else:
            node = np.int64(item.less)
    return best


@njit(cache=True, nogil=True)
def count_to(s, low):
    """How many intervals do not begin after `low`."""
    count, node = np.int64(0), s.numbers[ROOT]
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


@njit(cache=True, nogil=True)
def span(s, first, last):
    """The ids at places first..last - 1 of the tree's order, in O(log n + their number)."""
    out = np.empty(last - first, np.int32)
    if first >= last:
        return out
    node, depth, filled = s.numbers[ROOT], 0, 0
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


@njit(cache=True, nogil=True)
def agrees(s, ids):
    """Whether the tree has these ids in this order, falling priorities, and the right sums."""
    root = s.numbers[ROOT]
    if root < 0:
        return len(ids) == 0
    if s.items[root].count != len(ids):
        return False
    for k, i in enumerate(span(s, 0, len(ids))):
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
