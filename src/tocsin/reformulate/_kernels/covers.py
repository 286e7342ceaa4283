"""Few boxes that hold some subscriptions and no other ones.

Subscriptions are points of a forest (`rank/forest.py`): d lower ends, then d upper ends. Those to be covered
are given by place, ascending, so that neighbours in a tree are neighbours in the list:

    places   | 3 4 5 7 | 21 22 40 |      the bounds of a stretch that hold another subscription are halved;
             +---------+----------+      those that do not are a box, merged with one before if that is free
                 free    40 is apart     of others, too
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.rank._kernels.boxes import BEGIN, END, NODES, SKIP

__all__ = ["CoverWork", "cover"]

_TRIED = 8  # boxes before, which a new one may be merged with


class CoverWork(NamedTuple):
    """`stack`: two more rows than the logarithm of the longest list; `mark`: by place, the last list it was
    in; `bounds`: least and greatest ends of a stretch, and of a stretch merged with a box."""

    forest: Any
    mark: NDArray[np.int64]
    stack: NDArray[np.int64]
    bounds: NDArray[np.int64]


@kernel(allocates=False)
def _is_free(work, row, places, begin, end, number):
    """Are all subscriptions within the bounds of a row on the list?"""
    forest, low, high = work.forest, work.bounds[row], work.bounds[row + 1]
    node, width, i = forest.node, forest.point.shape[1], 0
    while i < forest.used[NODES]:
        apart = False
        for j in range(width):
            if forest.low[i, j] > high[j] or forest.high[i, j] < low[j]:
                apart = True
                break
        first, last = node[i, BEGIN], node[i, END]
        if not apart and last - first > 1:  # all of them on the list?
            at = np.searchsorted(places[begin:end], first) + begin
            apart = (
                at + last - first <= end and places[at] == first and places[at + last - first - 1] == last - 1
            )
        if apart:
            i = node[i, SKIP]
            continue
        i += 1
        if node[i - 1, SKIP] > i:
            continue
        for p in range(first, last):
            if forest.id[p] < 0 or work.mark[p] == number:
                continue
            inside = True
            for j in range(width):
                if forest.point[p, j] > high[j] or forest.point[p, j] < low[j]:
                    inside = False
                    break
            if inside:
                return False
    return True


@kernel(allocates=False)
def _bound(work, places, begin, end):
    """The bounds of a stretch, to rows 0 and 1."""
    point, (low, high) = work.forest.point, (work.bounds[0], work.bounds[1])
    for j in range(point.shape[1]):
        low[j] = high[j] = point[places[begin], j]
    for i in range(begin + 1, end):
        for j in range(point.shape[1]):
            x = point[places[i], j]
            low[j], high[j] = min(low[j], x), max(high[j], x)


@kernel(allocates=False)
def _put(boxes, b, work, row):
    """Write bounds as a box: by plane l_low, l_high, r_low, r_high."""
    d = boxes.shape[1]
    for j in range(d):
        for end in range(2):
            for side in range(2):
                boxes[b, j, 2 * end + side] = work.bounds[row + side, end * d + j]


@kernel(allocates=False)
def _merge(boxes, first, n, work, list_, number):
    """Write the bounds of rows 0 and 1 as a box from `first` on, merged with another if that is free."""
    places, begin, end = list_
    d, bounds = boxes.shape[1], work.bounds
    for b in range(n - 1, max(first, n - _TRIED) - 1, -1):
        for j in range(d):
            for side in range(2):
                at = side * d + j
                bounds[2, at] = min(bounds[0, at], boxes[b, j, 2 * side])
                bounds[3, at] = max(bounds[1, at], boxes[b, j, 2 * side + 1])
        if _is_free(work, 2, places, begin, end, number):
            _put(boxes, b, work, 2)
            return n
    _put(boxes, n, work, 0)
    return n + 1


@kernel(allocates=False)
def cover(work, places, start, boxes, until):
    """Boxes of each list places[start[i]:start[i + 1]]; until[i] is where those of list i end.

    There are at most as many boxes as places. Places are in the forest, ascending in each list.
    """
    n, stack = 0, work.stack
    for number in range(len(start) - 1):
        begin, end, first = start[number], start[number + 1], n
        for i in range(begin, end):
            work.mark[places[i]] = number
        stack[0, 0], stack[0, 1], depth = begin, end, 1
        while depth:
            depth -= 1
            a, b = stack[depth, 0], stack[depth, 1]
            _bound(work, places, a, b)
            if b - a == 1 or _is_free(work, 0, places, begin, end, number):
                n = _merge(boxes, first, n, work, (places, begin, end), number)
            else:
                middle = (a + b) // 2
                stack[depth, 0], stack[depth, 1] = middle, b
                stack[depth + 1, 0], stack[depth + 1, 1] = a, middle
                depth += 2
        until[number] = n
    return n
