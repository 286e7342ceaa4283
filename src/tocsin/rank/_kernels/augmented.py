"""A B-tree of points by (x, y) whose every entry knows the least y below it.

A node is one row of `nodes`: FAN entries of each column, then how many are used.

            X: x of the first point   Y: its y   LOW: the least y    AT
    upper   (of the child)            (...)      below the child     the child, a row of `nodes`
    lowest  (of the point itself)     (...)      its y               how many points are equal to it

All points of one x lie together, lowest first. `meta` ends with the path of the last `_seek`, from the root:
node and entry of each level. An unused node has the next unused one in AT.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel

__all__ = [
    *("AT", "DEPTH", "ENTRIES", "FAN", "FREE", "LEAST", "LEVELS", "LOW", "META", "MOST", "POINTS", "ROOT"),
    *("SIZE", "SPARE", "USED", "WIDTH", "X", "Y", "ZERO"),
    *("TreeArrays", "beside", "delete", "has_space", "holds", "insert", "left_of", "lowest", "right_of"),
]

FAN = 32
X, Y, LOW, AT, SIZE = 0, FAN, 2 * FAN, 3 * FAN, 4 * FAN  # columns of a node
WIDTH = 4 * FAN + 8  # whole cache lines
ROOT, LEVELS, USED, FREE, SPARE, ENTRIES, POINTS, PATH = 0, 1, 2, 3, 4, 5, 6, 8  # of `meta`
# USED: rows ever used; FREE: the first unused one of them, SPARE: their number; ENTRIES: distinct points
DEPTH = 24
META = PATH + 2 * DEPTH
LEAST, MOST = np.int64(-(2**63)), np.int64(2**63 - 1)
ZERO, HALF = (
    np.int64(0),
    np.int64(FAN // 2),
)  # typed: as Python integers they would be literal types, compiled for separately


class TreeArrays(NamedTuple):
    """Rows of nodes, and counts with the path of the last search."""

    nodes: NDArray[np.int64]
    meta: NDArray[np.int64]


# -- finding -----------------------------------------------------------------------------------------


@kernel(allocates=False)
def _child(nodes, v, x, y):
    """The last entry that begins at or before (x, y); 0 if there is none."""
    low, count = ZERO, nodes[v, SIZE]
    while count > 1:
        half = count >> 1
        first = nodes[v, X + low + half]
        fits = (first < x) | ((first == x) & (nodes[v, Y + low + half] <= y))
        low = low + half if fits else low
        count -= half
    return low


@kernel(allocates=False)
def _place(nodes, v, x, y):
    """How many entries of a lowest node are before (x, y)."""
    low, count = ZERO, nodes[v, SIZE]
    while count > 0:
        half = count >> 1
        mine = nodes[v, X + low + half]
        below = (mine < x) | ((mine == x) & (nodes[v, Y + low + half] < y))
        low = low + half + 1 if below else low
        count = count - half - 1 if below else half
    return low


@kernel(allocates=False)
def _seek(tree, x, y):
    """The lowest node where (x, y) belongs and its place there; `meta` has the path."""
    nodes, meta = tree
    v = meta[ROOT]
    for level in range(meta[LEVELS] - 1):
        j = _child(nodes, v, x, y)
        meta[PATH + 2 * level], meta[PATH + 2 * level + 1] = v, j
        v = nodes[v, AT + j]
    return v, _place(nodes, v, x, y)


@kernel(allocates=False)
def left_of(tree, x, y):
    """The nearest point before x with a y of at most `y`: (exists, x)."""
    nodes, meta = tree
    v, j = _seek(tree, x, LEAST)
    j -= 1
    level = last = meta[LEVELS] - 1
    while True:  # up, till an entry on the left has such a point
        while j >= 0 and nodes[v, LOW + j] > y:
            j -= 1
        if j >= 0:
            break
        level -= 1
        if level < 0:
            return False, LEAST
        v, j = meta[PATH + 2 * level], meta[PATH + 2 * level + 1] - 1
    for _ in range(level, last):  # and down to its last one
        v = nodes[v, AT + j]
        j = nodes[v, SIZE] - 1
        while nodes[v, LOW + j] > y:
            j -= 1
    return True, nodes[v, X + j]


@kernel(allocates=False)
def right_of(tree, x, y):
    """The nearest point after x with a y of at most `y`: (exists, x, the least y there)."""
    nodes, meta = tree
    if x == MOST:
        return False, MOST, MOST
    v, j = _seek(tree, x + 1, LEAST)
    level = last = meta[LEVELS] - 1
    while True:
        while j < nodes[v, SIZE] and nodes[v, LOW + j] > y:
            j += 1
        if j < nodes[v, SIZE]:
            break
        level -= 1
        if level < 0:
            return False, MOST, MOST
        v, j = meta[PATH + 2 * level], meta[PATH + 2 * level + 1] + 1
    for _ in range(level, last):
        v = nodes[v, AT + j]
        j = ZERO
        while nodes[v, LOW + j] > y:
            j += 1
    return True, nodes[v, X + j], nodes[v, Y + j]


@kernel(allocates=False)
def lowest(tree, low, high):
    """The least y of points with x in low..high: (exists, y)."""
    nodes, meta = tree
    v, level, last = meta[ROOT], ZERO, meta[LEVELS] - 1
    least, count, i, j = MOST, ZERO, ZERO, ZERO
    while level < last:  # as long as both ends are below one entry
        i, j = _child(nodes, v, low, LEAST), _child(nodes, v, high, MOST)
        if i != j:
            break
        v = nodes[v, AT + i]
        level += 1
    w = v
    if level < last:
        for k in range(i + 1, j):
            least = min(least, nodes[v, LOW + k])
            count += 1
        v, w = nodes[v, AT + i], nodes[v, AT + j]
        for _ in range(level + 1, last):
            i, j = _child(nodes, v, low, LEAST), _child(nodes, w, high, MOST)
            for k in range(i + 1, nodes[v, SIZE]):
                least = min(least, nodes[v, LOW + k])
                count += 1
            for k in range(j):
                least = min(least, nodes[w, LOW + k])
                count += 1
            v, w = nodes[v, AT + i], nodes[w, AT + j]
        for k in range(_place(nodes, v, low, LEAST), nodes[v, SIZE]):
            least = min(least, nodes[v, Y + k])
            count += 1
    k = _place(nodes, w, low, LEAST)
    while k < nodes[w, SIZE] and nodes[w, X + k] <= high:
        least = min(least, nodes[w, Y + k])
        count += 1
        k += 1
    return count > 0, least


@kernel(allocates=False)
def holds(tree, x, y):
    """Whether (x, y) is in the tree."""
    v, j = _seek(tree, x, y)
    nodes = tree.nodes
    return j < nodes[v, SIZE] and nodes[v, X + j] == x and nodes[v, Y + j] == y


@kernel(allocates=False)
def beside(tree, x, y):
    """The y of the nearest points of the same x below and above y, none at y: (exists, y) twice."""
    nodes, meta = tree
    v, j = _seek(tree, x, y)
    before, after, y1, y2 = False, False, LEAST, MOST
    if j > 0 and nodes[v, X + j - 1] == x:  # at j = 0 there is nothing before
        before, y1 = True, nodes[v, Y + j - 1]
    level = meta[LEVELS] - 1
    while j == nodes[v, SIZE] and level > 0:  # entries know where their nodes begin
        level -= 1
        v, j = meta[PATH + 2 * level], meta[PATH + 2 * level + 1] + 1
    if j < nodes[v, SIZE] and nodes[v, X + j] == x:
        after, y2 = True, nodes[v, Y + j]
    return before, y1, after, y2


# -- changing ----------------------------------------------------------------------------------------


@kernel(allocates=False)
def has_space(tree):
    """Are there enough rows for one more point, even if every node on its path is split?"""
    nodes, meta = tree
    return meta[SPARE] + len(nodes) - meta[USED] > meta[LEVELS]


@kernel(allocates=False)
def _new_node(tree):
    nodes, meta = tree
    v = meta[FREE]
    if meta[SPARE] > 0:
        meta[FREE] = nodes[v, AT]
        meta[SPARE] -= 1
    else:
        v = meta[USED]
        meta[USED] += 1
    return v


@kernel(allocates=False)
def _open(nodes, v, j):
    """Shift entries to free the one at j."""
    for column in (X, Y, LOW, AT):
        for k in range(column + nodes[v, SIZE], column + j, -1):
            nodes[v, k] = nodes[v, k - 1]
    nodes[v, SIZE] += 1


@kernel(allocates=False)
def _close(nodes, v, j):
    """Remove the entry at j."""
    nodes[v, SIZE] -= 1
    for column in (X, Y, LOW, AT):
        for k in range(column + j, column + nodes[v, SIZE]):
            nodes[v, k] = nodes[v, k + 1]


@kernel(allocates=False)
def _describe(nodes, v, j):
    """Update entry j of v: where its child begins, and the least y there."""
    child = nodes[v, AT + j]
    least = nodes[child, LOW]
    for k in range(LOW + 1, LOW + nodes[child, SIZE]):
        least = min(least, nodes[child, k])
    nodes[v, X + j], nodes[v, Y + j], nodes[v, LOW + j] = nodes[child, X], nodes[child, Y], least


@kernel(allocates=False)
def _shift(nodes, source, begin, target):
    """Move the entries of a node from `begin` on to the end of another."""
    at, count = nodes[target, SIZE], nodes[source, SIZE] - begin
    for column in (X, Y, LOW, AT):
        for k in range(count):
            nodes[target, column + at + k] = nodes[source, column + begin + k]
    nodes[source, SIZE] = begin
    nodes[target, SIZE] = at + count


@kernel(allocates=False)
def _split(tree, v, j):
    """Split a full child: its upper half becomes entry j + 1."""
    nodes = tree.nodes
    fresh, child = _new_node(tree), nodes[v, AT + j]
    nodes[fresh, SIZE] = 0
    _shift(nodes, child, HALF, fresh)
    _open(nodes, v, j + 1)
    nodes[v, AT + j + 1] = fresh
    _describe(nodes, v, j)
    _describe(nodes, v, j + 1)


@kernel(allocates=False)
def insert(tree, x, y):
    """Insert a point; `has_space` must hold. Full nodes are split on the way down."""
    nodes, meta = tree
    meta[POINTS] += 1
    v = meta[ROOT]
    if nodes[v, SIZE] == FAN:
        v = _new_node(tree)
        nodes[v, SIZE], nodes[v, AT] = 1, meta[ROOT]
        meta[ROOT] = v
        meta[LEVELS] += 1  # its one child is full, and split next
    for _ in range(meta[LEVELS] - 1):
        j = _child(nodes, v, x, y)
        if nodes[nodes[v, AT + j], SIZE] == FAN:
            _split(tree, v, j)
            j = _child(nodes, v, x, y)
        nodes[v, LOW + j] = min(nodes[v, LOW + j], y)
        first = nodes[v, X + j]
        if x < first or (x == first and y < nodes[v, Y + j]):
            nodes[v, X + j], nodes[v, Y + j] = x, y
        v = nodes[v, AT + j]
    j = _place(nodes, v, x, y)
    if j < nodes[v, SIZE] and nodes[v, X + j] == x and nodes[v, Y + j] == y:
        nodes[v, AT + j] += 1
        return
    _open(nodes, v, j)
    nodes[v, X + j], nodes[v, Y + j], nodes[v, LOW + j], nodes[v, AT + j] = x, y, y, 1
    meta[ENTRIES] += 1


@kernel(allocates=False)
def _release(tree, v):
    nodes, meta = tree
    nodes[v, AT] = meta[FREE]
    meta[FREE] = v
    meta[SPARE] += 1


@kernel(allocates=False)
def delete(tree, x, y):
    """Delete a point; False if there is none. A node of less than a quarter is joined to a neighbour."""
    nodes, meta = tree
    v, j = _seek(tree, x, y)
    if j == nodes[v, SIZE] or nodes[v, X + j] != x or nodes[v, Y + j] != y:
        return False
    meta[POINTS] -= 1
    if nodes[v, AT + j] > 1:
        nodes[v, AT + j] -= 1
        return True
    meta[ENTRIES] -= 1
    _close(nodes, v, j)
    for level in range(meta[LEVELS] - 2, -1, -1):
        v, j = meta[PATH + 2 * level], meta[PATH + 2 * level + 1]
        size = nodes[nodes[v, AT + j], SIZE]
        if size < FAN // 4:
            left = j - 1 if j > 0 and nodes[nodes[v, AT + j - 1], SIZE] + size <= FAN else j
            if left < j or (j + 1 < nodes[v, SIZE] and nodes[nodes[v, AT + j + 1], SIZE] + size <= FAN):
                j, goes = left, nodes[v, AT + left + 1]
                _shift(nodes, goes, ZERO, nodes[v, AT + j])
                _release(tree, goes)
                _close(nodes, v, j + 1)
        _describe(nodes, v, j)
    while meta[LEVELS] > 1 and nodes[meta[ROOT], SIZE] == 1:
        root = meta[ROOT]
        meta[ROOT] = nodes[root, AT]
        meta[LEVELS] -= 1
        _release(tree, root)
    return True
