"""Boxes of subscriptions and points of rows: which boxes does a change concern, and what do they contain?

Both lie in forests of kd-trees (`forest.py`), nodes in preorder with the bounds of what is below:

    node     BEGIN  END   the points below it
             SKIP         the next node that is not below it: a leaf's is the next node
             PARENT       -1 for roots and leaves that are not in a tree yet

A search is one loop: it goes to the next node, or, where the bounds tell that nothing below can be found, to
SKIP. A box of d ranges is a point of 2 d numbers, d lower ends and d upper ends, so a node of boxes bounds
both: its boxes contain at most the *hull* (least lower, greatest upper ends) and at least the *core*
(greatest lower, least upper ends). A row is a point of d numbers and one more: its label in the order of a
top-k, or the number of its value.

    stab_moves       COUNT, SUM, AVG: boxes that lose, gain or exchange a row
    update_lists     top-k, MIN, MAX: the same, but only boxes whose first k rows change
    fill_lists       the first k rows of boxes
    sum_boxes        totals of the rows of boxes

Those of DISTINCT are in `box_values.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.rank._kernels.aggregates import EXCHANGES, GAINS, KIND_BITS, LOSES, RANK_BITS

__all__ = [
    *("BEGIN", "CANDIDATES", "END", "FOUND", "LEAF", "NODES", "PARENT", "POINTS", "SKIP"),
    *("AnswerLists", "BoxMoves", "ForestArrays", "ListChanges"),
    *("contains", "is_inside", "may_contain", "move_row", "overlaps"),
    *("fill_lists", "refresh_tops", "stab_moves", "sum_boxes", "update_lists"),
]

LEAF = 16
BEGIN, END, SKIP, PARENT = range(4)  # columns of `ForestArrays.node`
POINTS, NODES = range(2)  # of `ForestArrays.used`
FOUND, CANDIDATES = range(2)  # of `work`: outputs so far, boxes tested
NONE, MOST = np.int64(-(2**63)), np.int64(2**63 - 1)  # below and above all labels


class ForestArrays(NamedTuple):
    """Trees, one after the other; points without a tree follow in leaves of their own."""

    point: NDArray[np.int64]  # by place, then by coordinate
    id: NDArray[np.int64]  # by place; -1: removed
    low: NDArray[np.int64]  # by node, then by coordinate
    high: NDArray[np.int64]
    node: NDArray[np.int64]
    where: NDArray[np.int64]  # by id: its place
    used: NDArray[np.int64]  # POINTS, NODES


class BoxMoves(NamedTuple):
    """Changes in order: row before and after (-1: none), their points, and their labels or values."""

    old: NDArray[np.int64]
    new: NDArray[np.int64]
    old_point: NDArray[np.int64]
    new_point: NDArray[np.int64]
    old_label: NDArray[np.int64]
    new_label: NDArray[np.int64]


class AnswerLists(NamedTuple):
    """By member its first k rows in order, and how many there are; by row its label; by node a bound."""

    row: NDArray[np.int64]
    size: NDArray[np.int64]
    label: NDArray[np.int64]
    top: NDArray[np.int64]  # of the boxes below: the greatest label that still concerns one of them


class ListChanges(NamedTuple):
    """Output: at which change which member gains (1) or loses (-1) which row."""

    move: NDArray[np.int64]
    member: NDArray[np.int64]
    sign: NDArray[np.int8]
    row: NDArray[np.int64]


# -- tests -------------------------------------------------------------------------------------------


@kernel(allocates=False)
def contains(boxes, p, points, m):
    """Does the box at place p contain a point?"""
    d = points.shape[1]
    for j in range(d):
        if boxes.point[p, j] > points[m, j] or boxes.point[p, d + j] < points[m, j]:
            return False
    return True


@kernel(allocates=False)
def may_contain(boxes, i, points, m):
    """Does the hull of node i contain a point?"""
    d = points.shape[1]
    for j in range(d):
        if boxes.low[i, j] > points[m, j] or boxes.high[i, d + j] < points[m, j]:
            return False
    return True


@kernel(allocates=False)
def overlaps(rows, i, box, p):
    """May a row of node i be in a box?"""
    d = box.shape[1] // 2
    for j in range(d):
        if rows.low[i, j] > box[p, d + j] or rows.high[i, j] < box[p, j]:
            return False
    return True


@kernel(allocates=False)
def is_inside(point, q, box, p):
    """Is the row at place q in a box?"""
    d = box.shape[1] // 2
    for j in range(d):
        if point[q, j] > box[p, d + j] or point[q, j] < box[p, j]:
            return False
    return True


# -- changes of rows ---------------------------------------------------------------------------------


@kernel
def _append(rows, row, points, m, label):
    """Add a row to the last leaf, or to a new one."""
    n, i = rows.used[POINTS], rows.used[NODES] - 1
    width = points.shape[1]
    if i < 0 or rows.node[i, PARENT] >= 0 or n - rows.node[i, BEGIN] >= LEAF:
        i += 1
        rows.node[i, BEGIN], rows.node[i, SKIP], rows.node[i, PARENT] = n, i + 1, -1
        rows.low[i, :], rows.high[i, :] = MOST, NONE
        rows.used[NODES] = i + 1
    for j in range(width + 1):
        x = points[m, j] if j < width else label
        rows.point[n, j] = x
        rows.low[i, j], rows.high[i, j] = min(rows.low[i, j], x), max(rows.high[i, j], x)
    rows.id[n], rows.where[row] = row, n
    rows.node[i, END] = rows.used[POINTS] = n + 1


@kernel
def move_row(rows, moves, m):
    """The old row leaves the forest, the new one enters it."""
    if moves.old[m] >= 0:
        rows.id[rows.where[moves.old[m]]] = -1
    if moves.new[m] >= 0:
        _append(rows, moves.new[m], moves.new_point, m, moves.new_label[m])


# -- COUNT, SUM, AVG ---------------------------------------------------------------------------------


@kernel(allocates=False)
def stab_moves(boxes, moves, rank, wanted, begin, out, work):
    """Packed (change, rank of the member, kind) of the wanted kinds, from change `begin` on.

    Returns the change to go on with when `out` may be too short.
    """
    node, n = boxes.node, 0
    for m in range(begin, len(moves.old)):
        if n + boxes.used[POINTS] > len(out):
            work[FOUND] = n
            return m
        if not (wanted[LOSES, m] or wanted[GAINS, m] or wanted[EXCHANGES, m]):
            continue
        had, has, i = moves.old[m] >= 0, moves.new[m] >= 0, 0
        while i < boxes.used[NODES]:
            loses = had and may_contain(boxes, i, moves.old_point, m)
            gains = has and may_contain(boxes, i, moves.new_point, m)
            if not (loses or gains):
                i = node[i, SKIP]
                continue
            i += 1
            if node[i - 1, SKIP] > i:
                continue
            work[CANDIDATES] += node[i - 1, END] - node[i - 1, BEGIN]
            for p in range(node[i - 1, BEGIN], node[i - 1, END]):
                if boxes.id[p] < 0:
                    continue
                old = loses and contains(boxes, p, moves.old_point, m)
                new = gains and contains(boxes, p, moves.new_point, m)
                kind = EXCHANGES if old and new else LOSES if old else GAINS
                if (old or new) and wanted[kind, m]:
                    key = np.int64(m) << (RANK_BITS + KIND_BITS) | np.int64(kind)
                    out[n] = key | np.int64(rank[boxes.id[p]]) << KIND_BITS
                    n += 1
    work[FOUND] = n
    return len(moves.old)


@kernel(allocates=False)
def sum_boxes(rows, sums, box, places, cells):
    """Add to the cells at places[b] the rows in box b; `sums` are those of all rows before a place."""
    node, width = rows.node, cells.shape[1]
    for b in range(len(box)):
        i = 0
        while i < rows.used[NODES]:
            if not overlaps(rows, i, box, b):
                i = node[i, SKIP]
                continue
            begin, end = node[i, BEGIN], node[i, END]
            if is_inside(rows.low, i, box, b) and is_inside(rows.high, i, box, b):
                for c in range(width):
                    cells[places[b], c] += sums[end, c] - sums[begin, c]
                i = node[i, SKIP]
                continue
            i += 1
            if node[i - 1, SKIP] > i:
                continue
            for q in range(begin, end):
                if is_inside(rows.point, q, box, b):
                    for c in range(width):
                        cells[places[b], c] += sums[q + 1, c] - sums[q, c]


# -- top-k, MIN, MAX ---------------------------------------------------------------------------------


@kernel(allocates=False)
def _first_rows(rows, box, p, after, label, out, n, k):
    """Append to out[:n] the first rows in a box whose labels are above `after`, up to k in all."""
    node, last, first = rows.node, rows.point.shape[1] - 1, n
    limit, i = MOST, 0
    while i < rows.used[NODES]:
        if rows.low[i, last] >= limit or rows.high[i, last] <= after or not overlaps(rows, i, box, p):
            i = node[i, SKIP]
            continue
        i += 1
        if node[i - 1, SKIP] > i:
            continue
        for q in range(node[i - 1, BEGIN], node[i - 1, END]):
            x = rows.point[q, last]
            if rows.id[q] < 0 or x <= after or x >= limit or not is_inside(rows.point, q, box, p):
                continue
            n = min(n, k - 1)
            at = n
            while at > first and label[out[at - 1]] > x:
                out[at] = out[at - 1]
                at -= 1
            out[at] = rows.id[q]
            n += 1
            if n == k:
                limit = label[out[n - 1]]
    return n


@kernel
def fill_lists(boxes, rows, lists, members):
    """The first k rows of some members."""
    for member in members:
        lists.size[member] = _first_rows(
            rows,
            boxes.point,
            boxes.where[member],
            NONE,
            lists.label,
            lists.row[member],
            0,
            lists.row.shape[1],
        )


@kernel(allocates=False)
def _threshold(lists, member):
    """Rows of greater labels do not concern this member."""
    k = lists.row.shape[1]
    return lists.label[lists.row[member, k - 1]] if lists.size[member] == k else MOST


@kernel
def _top_of_leaf(boxes, lists, i):
    top = NONE
    for p in range(boxes.node[i, BEGIN], boxes.node[i, END]):
        if boxes.id[p] >= 0:
            top = max(top, _threshold(lists, boxes.id[p]))
    return top


@kernel
def refresh_tops(boxes, lists):
    """Compute the bounds of all nodes: children follow their parents."""
    node, top = boxes.node, lists.top
    for i in range(boxes.used[NODES] - 1, -1, -1):
        if node[i, SKIP] == i + 1:
            top[i] = _top_of_leaf(boxes, lists, i)
        else:
            top[i] = max(top[i + 1], top[node[i + 1, SKIP]])


@kernel
def _raise_tops(boxes, lists, i):
    """A leaf has changed: compute its bound and those above."""
    node, top = boxes.node, lists.top
    top[i] = _top_of_leaf(boxes, lists, i)
    i = node[i, PARENT]
    while i >= 0:
        bound = max(top[i + 1], top[node[i + 1, SKIP]])
        if bound == top[i]:
            break
        top[i] = bound
        i = node[i, PARENT]


@kernel(allocates=False)
def _note(out, n, m, member, sign, row):
    out.move[n], out.member[n], out.sign[n], out.row[n] = m, member, sign, row
    return n + 1


@kernel(allocates=False)
def _update_list(boxes, p, rows, moves, m, lists, out, n):
    """One member: take the old row out of its list, the new one in, and make it k again.

    A row that is pushed out lies behind the new one; one that comes instead of the old row, behind the list.
    """
    member = boxes.id[p]
    mine, k = lists.row[member], lists.row.shape[1]
    count, limit = lists.size[member], _threshold(lists, member)
    loses = moves.old[m] >= 0 and moves.old_label[m] <= limit and contains(boxes, p, moves.old_point, m)
    gains = moves.new[m] >= 0 and moves.new_label[m] <= limit and contains(boxes, p, moves.new_point, m)
    if loses:
        at = 0
        while mine[at] != moves.old[m]:
            at += 1
        for j in range(at, count - 1):
            mine[j] = mine[j + 1]
        count -= 1
        n = _note(out, n, m, member, -1, moves.old[m])
    if gains:
        if count == k:
            count -= 1
            n = _note(out, n, m, member, -1, mine[count])
        at = count
        while at > 0 and lists.label[mine[at - 1]] > moves.new_label[m]:
            mine[at] = mine[at - 1]
            at -= 1
        mine[at] = moves.new[m]
        count += 1
        n = _note(out, n, m, member, 1, moves.new[m])
    elif loses and limit < MOST:
        count = _first_rows(rows, boxes.point, p, limit, lists.label, mine, count, k)
        if count == k:
            n = _note(out, n, m, member, 1, mine[k - 1])
    lists.size[member] = count
    return n


@kernel
def update_lists(boxes, rows, moves, lists, begin, out, work):
    """Apply changes from `begin` on to the rows and to the lists of members; note what lists gain and lose.

    Returns the change to go on with when `out` may be too short.
    """
    node, n = boxes.node, 0
    for m in range(begin, len(moves.old)):
        if n + 2 * boxes.used[POINTS] > len(out.move):
            work[FOUND] = n
            return m
        move_row(rows, moves, m)
        had, has, i = moves.old[m] >= 0, moves.new[m] >= 0, 0
        while i < boxes.used[NODES]:
            may = had and moves.old_label[m] <= lists.top[i] and may_contain(boxes, i, moves.old_point, m)
            if not may:
                may = has and moves.new_label[m] <= lists.top[i] and may_contain(boxes, i, moves.new_point, m)
            if not may:
                i = node[i, SKIP]
                continue
            i += 1
            if node[i - 1, SKIP] > i:
                continue
            work[CANDIDATES] += node[i - 1, END] - node[i - 1, BEGIN]
            before = n
            for p in range(node[i - 1, BEGIN], node[i - 1, END]):
                if boxes.id[p] >= 0:
                    n = _update_list(boxes, p, rows, moves, m, lists, out, n)
            if n > before:
                _raise_tops(boxes, lists, i - 1)
    work[FOUND] = n
    return len(moves.old)
