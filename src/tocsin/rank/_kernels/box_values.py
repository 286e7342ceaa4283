"""DISTINCT over boxes: which boxes gain their first row of a value, or lose their last one?

Does a box that contains point m have another row of the value? The rows *near* m decide it. A row r hides s
if it lies in the box that m and s span: each box that contains m and s contains r. Rows that are not hidden
are near; they are few, and looked up once for all boxes that contain m:

          s        hidden
        r          near
     m

`boxes.py` describes the forests of boxes and of rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.rank._kernels.aggregates import KIND_BITS, RANK_BITS
from tocsin.rank._kernels.boxes import (
    BEGIN,
    CANDIDATES,
    END,
    FOUND,
    NODES,
    POINTS,
    SKIP,
    contains,
    is_inside,
    may_contain,
    move_row,
    overlaps,
)

__all__ = ["find_values"]

_TOGETHER = 512  # boxes for which near rows are looked up together
_NEAR, _STACK = 64, 128  # near rows that are kept; nodes on the way to a leaf, and their siblings


class _Search(NamedTuple):
    """Boxes that contain point m of `points`, no row of a value besides one, and not point m of `without`."""

    points: NDArray[np.int64]
    m: int
    value: int
    besides: int
    without: NDArray[np.int64]  # may be empty


class _Buffers(NamedTuple):
    """What all searches of a call use."""

    hull: NDArray[np.int64]  # the box around all candidates
    core: NDArray[np.int64]  # a box
    near: NDArray[np.int64]  # places of rows
    stack: NDArray[np.int64]  # nodes


@kernel(allocates=False)
def _core(boxes, i, search, core):
    """The box that all boxes of node i contain if they contain the point."""
    d = search.points.shape[1]
    for j in range(d):
        x = search.points[search.m, j]
        core[0, j], core[0, d + j] = min(boxes.high[i, j], x), max(boxes.low[i, d + j], x)


@kernel(allocates=False)
def _hides(rows, q, search, low, high, i):
    """Does the row at place q hide all rows within bounds i?"""
    points, m = search.points, search.m
    for j in range(points.shape[1]):
        x, y = points[m, j], rows.point[q, j]
        nearest = min(max(x, low[i, j]), high[i, j])
        if y < min(x, nearest) or y > max(x, nearest):
            return False
    return True


@kernel(allocates=False)
def _is_hidden(rows, near, count, search, low, high, i):
    """Does a near row hide all rows within bounds i?"""
    for n in range(count):
        if _hides(rows, near[n], search, low, high, i):
            return True
    return False


@kernel(allocates=False)
def _add_near(rows, near, count, search, q):
    """Add the row at place q to the near ones, less those that it hides."""
    kept = 0
    for n in range(count):
        if not _hides(rows, q, search, rows.point, rows.point, near[n]):
            near[kept] = near[n]
            kept += 1
    near[kept] = q
    return kept + 1


@kernel(allocates=False)
def _is_after(rows, i, search):
    """Does the point lie nearer to the second child of node i?"""
    first, second = i + 1, rows.node[i + 1, SKIP]
    for j in range(search.points.shape[1]):
        x = search.points[search.m, j]
        if rows.high[first, j] <= rows.low[second, j]:
            return x >= rows.low[second, j]
    return False


@kernel(allocates=False)
def _near_rows(rows, search, buffers):
    """Look up the near rows in the hull, the nearer child of each node first; how many, or as many as fit."""
    near, stack, node, last = buffers.near, buffers.stack, rows.node, rows.point.shape[1] - 1
    count, root = 0, 0
    while root < rows.used[NODES]:
        stack[0], depth = root, 1
        root = node[root, SKIP]
        while depth:
            depth -= 1
            i = stack[depth]
            if rows.low[i, last] > search.value or rows.high[i, last] < search.value:
                continue
            if not overlaps(rows, i, buffers.hull, 0):
                continue
            if _is_hidden(rows, near, count, search, rows.low, rows.high, i):
                continue
            if node[i, SKIP] > i + 1:
                after = _is_after(rows, i, search)
                stack[depth + (not after)], stack[depth + after] = i + 1, node[i + 1, SKIP]
                depth += 2
                continue
            for q in range(node[i, BEGIN], node[i, END]):
                if rows.point[q, last] != search.value or rows.id[q] < 0 or rows.id[q] == search.besides:
                    continue
                if not _is_hidden(rows, near, count, search, rows.point, rows.point, q):
                    count = _add_near(rows, near, count, search, q)
                    if count == len(near):
                        return count
    return count


@kernel(allocates=False)
def _has_near(rows, near, count, box, p):
    """Is a near row in a box?"""
    for n in range(count):
        if is_inside(rows.point, near[n], box, p):
            return True
    return False


@kernel(allocates=False)
def _row_of_value(rows, box, p, value, besides):
    """Has a box a row of a value, besides one row?"""
    node, last, i = rows.node, rows.point.shape[1] - 1, 0
    while i < rows.used[NODES]:
        if rows.low[i, last] > value or rows.high[i, last] < value or not overlaps(rows, i, box, p):
            i = node[i, SKIP]
            continue
        i += 1
        if node[i - 1, SKIP] > i:
            continue
        for q in range(node[i - 1, BEGIN], node[i - 1, END]):
            if rows.point[q, last] == value and rows.id[q] >= 0 and rows.id[q] != besides:
                if is_inside(rows.point, q, box, p):
                    return True
    return False


@kernel(allocates=False)
def _candidates(boxes, rows, search, buffers, count, i, out, n):
    """Append places of boxes that contain the point, but no known near row, to out[:n], from node i on.

    Returns the node to go on with once there are enough, and n."""
    points, m, without = search.points, search.m, search.without
    core, node, enough = buffers.core, boxes.node, n + _TOGETHER
    while i < boxes.used[NODES] and n < enough:
        pruned = not may_contain(boxes, i, points, m)
        if not pruned and count:
            _core(boxes, i, search, core)
            pruned = _has_near(rows, buffers.near, count, core, 0)
        if pruned:
            i = node[i, SKIP]
            continue
        i += 1
        if node[i - 1, SKIP] > i:
            continue
        for p in range(node[i - 1, BEGIN], node[i - 1, END]):
            if boxes.id[p] < 0 or not contains(boxes, p, points, m):
                continue
            if len(without) and contains(boxes, p, without, m):
                continue
            if not _has_near(rows, buffers.near, count, boxes.point, p):
                out[n] = p
                n += 1
    return i, n


@kernel(allocates=False)
def _widen(hull, boxes, found):
    """Widen the hull by the boxes at some places."""
    d = hull.shape[1] // 2
    for p in found:
        for j in range(d):
            hull[0, j] = min(hull[0, j], boxes.point[p, j])
            hull[0, d + j] = max(hull[0, d + j], boxes.point[p, d + j])


@kernel(allocates=False)
def _sole_rows(boxes, rows, search, buffers, out, n, work):
    """Append the members whose boxes are searched for to out[:n].

    Near rows are looked up for some candidates at a time, in the hull of all so far: a few narrow boxes need
    few rows, and many wide ones are decided by the near rows of the first.
    """
    d, i, count = search.points.shape[1], 0, 0
    for j in range(d):
        buffers.hull[0, j] = buffers.hull[0, d + j] = search.points[search.m, j]
    while i < boxes.used[NODES]:
        begin = n
        i, end = _candidates(boxes, rows, search, buffers, count, i, out, n)
        work[CANDIDATES] += end - begin
        _widen(buffers.hull, boxes, out[begin:end])
        count = _near_rows(rows, search, buffers)
        for at in range(begin, end):
            p = out[at]
            if _has_near(rows, buffers.near, count, boxes.point, p):
                continue
            if count == len(buffers.near):  # there may be more
                if _row_of_value(rows, boxes.point, p, search.value, search.besides):
                    continue
            out[n] = boxes.id[p]
            n += 1
    return n


@kernel
def find_values(boxes, rows, moves, rank, begin, out, work):
    """Apply changes from `begin` on to the rows; packed (change, rank of the member, 0 or 1) of members that
    lose the old row's value (0) or gain the new row's (1).

    Returns the change to go on with when `out` may be too short.
    """
    n, box = 0, (1, boxes.point.shape[1])
    buffers = _Buffers(
        np.empty(box, np.int64),
        np.empty(box, np.int64),
        np.empty(_NEAR, np.int64),
        np.empty(_STACK, np.int64),
    )
    for m in range(begin, len(moves.old)):
        if n + 2 * boxes.used[POINTS] > len(out):
            work[FOUND] = n
            return m
        move_row(rows, moves, m)
        had, has = moves.old[m] >= 0, moves.new[m] >= 0
        equal = had and has and moves.old_label[m] == moves.new_label[m]
        for kind in range(2):
            start = n
            if kind == 0 and had:
                search = _Search(moves.old_point, m, moves.old_label[m], np.int64(-1), moves.old_point[:0])
                n = _sole_rows(boxes, rows, search, buffers, out, n, work)
            elif kind == 1 and has:
                without = moves.old_point[: len(moves.old) if equal else 0]
                search = _Search(moves.new_point, m, moves.new_label[m], moves.new[m], without)
                n = _sole_rows(boxes, rows, search, buffers, out, n, work)
            for at in range(start, n):
                key = np.int64(m) << (RANK_BITS + KIND_BITS) | np.int64(kind)
                out[at] = key | np.int64(rank[out[at]]) << KIND_BITS
    work[FOUND] = n
    return len(moves.old)
