"""Objects of a plane in blocks by x: the nearest lower ones, the lowest one above, and moves.

    directory   fence  -inf     40       71  ...      block d holds x from its fence to the next one's, both
                 |     |        |        |            included: equal x may span several blocks
    block        x     3 7 19   40 40 66 71 ...       in order of x, with y and the object beside
                 y     8 1 5    9  2  4  ...
                 sorted 1 5 8   2  4  9  ...          the same y in order, with the object beside

There are about as many blocks as a block has places, sqrt(n). Open ends are MIN and MAX, which no x has;
y = MAX means absent. y is unique: it orders objects totally.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel

__all__ = [
    *("BLOCK", "BLOCKS", "BY", "COUNT", "FENCE", "GREATEST", "HOME", "ID", "LEAST", "LIVE", "MAX", "MIN"),
    *(
        "PLACE",
        "SORTED",
        "X",
        "Y",
        "PointArrays",
        "first_from",
        "first_k",
        "min_y",
        "move",
        "plain",
        "rewind",
    ),
]

MIN, MAX = -(2**63), 2**63 - 1
X, Y, HOME = 0, 1, 2  # rows of `objects`; of `cells`: X, Y and
ID, SORTED, BY = 2, 3, 4  # the object at a place, y in order, and whose it is
FENCE, BLOCK, COUNT, LEAST, GREATEST, PLACE = 0, 1, 2, 3, 4, 5  # rows of `directory`; PLACE is by block
BLOCKS, LIVE = 0, 1  # of `meta`: how many blocks are in use, how many objects are there

plain = kernel(allocates=False)
"""For kernels that allocate nothing and return numbers: they count no references to arrays. Otherwise every
call would count those of all its arrays, which takes longer than most queries here."""


class PointArrays(NamedTuple):
    """The objects, and the blocks that they are in."""

    objects: NDArray[np.int64]  # X, Y and HOME (block or -1) by object
    cells: NDArray[np.int64]  # five rows by block and place in it
    directory: NDArray[np.int64]  # by block in order of x
    meta: NDArray[np.int64]


@plain
def _after(row, count, value):
    """First place of an ascending row whose number is greater."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if row[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@plain
def first_from(row, count, value):
    """First place of an ascending row whose number is not less."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if row[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@plain
def _lowest(row, begin, end, floor):
    """The least number above the floor; MAX if there is none."""
    best = MAX
    for place in range(begin, end):
        value = row[place]
        best = min(best, value if value > floor else MAX)
    return best


@plain
def first_k(points, x, y, left, out):
    """x of the nearest lower objects on one side, to out[1..k], padded with the open end; how many.

    Objects at x itself are on the left. out[0] is x."""
    cells, directory = points.cells, points.directory
    blocks, k, found = points.meta[BLOCKS], len(out) - 1, 0
    d = _after(directory[FENCE], blocks, x) - 1
    place = _after(cells[X, directory[BLOCK, d]], directory[COUNT, d], x)
    out[0] = x
    if left:
        while found < k and d >= 0:
            if directory[LEAST, d] < y:
                xs, ys = cells[X, directory[BLOCK, d]], cells[Y, directory[BLOCK, d]]
                while place > 0 and found < k:
                    place -= 1
                    out[found + 1] = xs[place]
                    found += ys[place] < y
            d -= 1
            if d >= 0:
                place = directory[COUNT, d]
    else:
        while found < k and d < blocks:
            if directory[LEAST, d] < y:
                xs, ys = cells[X, directory[BLOCK, d]], cells[Y, directory[BLOCK, d]]
                count = directory[COUNT, d]
                while place < count and found < k:
                    out[found + 1] = xs[place]
                    found += ys[place] < y
                    place += 1
            d += 1
            place = 0
    for rest in range(found + 1, k + 1):
        out[rest] = MIN if left else MAX
    return found


@plain
def min_y(points, low, high, y):
    """The lowest object above y with low < x < high, or -1."""
    cells, directory, blocks = points.cells, points.directory, points.meta[BLOCKS]
    d = _after(directory[FENCE], blocks, low) - 1
    last = max(0, first_from(directory[FENCE], blocks, high) - 1)
    if d > last:
        return -1
    block = directory[BLOCK, d]
    begin = _after(cells[X, block], directory[COUNT, d], low)
    end = first_from(cells[X, directory[BLOCK, last]], directory[COUNT, last], high)
    best = _lowest(cells[Y, block], begin, end if d == last else directory[COUNT, d], y)
    if d < last:
        rest = directory[BLOCK, last]
        value = _lowest(cells[Y, rest], 0, end, y)
        if value < best:
            best, block = value, rest
        for between in range(d + 1, last):
            value = directory[LEAST, between]
            if value <= y < directory[GREATEST, between]:  # so there is one above y: find the first
                row = cells[SORTED, directory[BLOCK, between]]
                value = row[_after(row, directory[COUNT, between], y)]
            if y < value < best:
                best, block = value, directory[BLOCK, between]
    if best == MAX:
        return -1
    row = cells[SORTED, block]
    return cells[BY, block, first_from(row, points.cells.shape[2], best)]


@plain
def _bounds(points, d):
    row, count = points.cells[SORTED, points.directory[BLOCK, d]], points.directory[COUNT, d]
    points.directory[LEAST, d] = row[0] if count else MAX
    points.directory[GREATEST, d] = row[count - 1] if count else MIN


@plain
def _drop(points, i):
    cells, directory = points.cells, points.directory
    block = points.objects[HOME, i]
    d = directory[PLACE, block]
    last = directory[COUNT, d] - 1
    place = first_from(cells[X, block], last + 1, points.objects[X, i])
    while cells[ID, block, place] != i:
        place += 1
    for row in (X, Y, ID):
        for at in range(place, last):
            cells[row, block, at] = cells[row, block, at + 1]
    place = first_from(cells[SORTED, block], last + 1, points.objects[Y, i])
    for row in (SORTED, BY):
        for at in range(place, last):
            cells[row, block, at] = cells[row, block, at + 1]
    cells[SORTED, block, last] = MAX
    directory[COUNT, d] = last
    _bounds(points, d)
    points.objects[HOME, i] = -1
    points.meta[LIVE] -= 1


@plain
def _split(points, d):
    """The upper half of a full block becomes the next one."""
    cells, directory, home = points.cells, points.directory, points.objects[HOME]
    block, fresh, count = directory[BLOCK, d], points.meta[BLOCKS], directory[COUNT, d]
    half = count // 2
    for place in range(half, count):
        for row in (X, Y, ID):
            cells[row, fresh, place - half] = cells[row, block, place]
        home[cells[ID, block, place]] = fresh
    stay = go = 0
    for place in range(count):  # in order of y: each to its block
        i, y = cells[BY, block, place], cells[SORTED, block, place]
        if home[i] == fresh:
            cells[SORTED, fresh, go], cells[BY, fresh, go] = y, i
            go += 1
        else:
            cells[SORTED, block, stay], cells[BY, block, stay] = y, i
            stay += 1
    for place in range(half, count):
        cells[SORTED, block, place] = MAX
    for place in range(count - half, count):
        cells[SORTED, fresh, place] = MAX
    for at in range(fresh, d + 1, -1):
        for row in range(PLACE):
            directory[row, at] = directory[row, at - 1]
        directory[PLACE, directory[BLOCK, at]] = at
    directory[FENCE, d + 1] = cells[X, fresh, 0]
    directory[BLOCK, d + 1], directory[PLACE, fresh] = fresh, d + 1
    directory[COUNT, d], directory[COUNT, d + 1] = half, count - half
    points.meta[BLOCKS] += 1
    _bounds(points, d)
    _bounds(points, d + 1)


@plain
def _put(points, i, x, y):
    cells, directory, objects = points.cells, points.directory, points.objects
    d = _after(directory[FENCE], points.meta[BLOCKS], x) - 1
    if directory[COUNT, d] == cells.shape[2]:
        _split(points, d)
        d += directory[FENCE, d + 1] <= x
    block, count = directory[BLOCK, d], directory[COUNT, d]
    place = _after(cells[X, block], count, x)
    for row in (X, Y, ID):
        for at in range(count, place, -1):
            cells[row, block, at] = cells[row, block, at - 1]
    cells[X, block, place], cells[Y, block, place], cells[ID, block, place] = x, y, i
    place = _after(cells[SORTED, block], count, y)
    for row in (SORTED, BY):
        for at in range(count, place, -1):
            cells[row, block, at] = cells[row, block, at - 1]
    cells[SORTED, block, place], cells[BY, block, place] = y, i
    directory[COUNT, d] = count + 1
    _bounds(points, d)
    objects[X, i], objects[Y, i], objects[HOME, i] = x, y, block
    points.meta[LIVE] += 1


@plain
def _shift(points, i, y):
    """Another y at the same x."""
    cells, old = points.cells, points.objects[Y, i]
    block = points.objects[HOME, i]
    d = points.directory[PLACE, block]
    count = points.directory[COUNT, d]
    place = first_from(cells[X, block], count, points.objects[X, i])
    while cells[ID, block, place] != i:
        place += 1
    cells[Y, block, place] = y
    place, goal = first_from(cells[SORTED, block], count, old), first_from(cells[SORTED, block], count, y)
    for row in (SORTED, BY):
        for at in range(place, goal - 1):
            cells[row, block, at] = cells[row, block, at + 1]
        for at in range(place, goal, -1):
            cells[row, block, at] = cells[row, block, at - 1]
    place = goal - 1 if goal > place else goal
    cells[SORTED, block, place], cells[BY, block, place] = y, i
    _bounds(points, d)
    points.objects[Y, i] = y


@plain
def move(points, i, x, y):
    """Move an object to (x, y), or insert it; y = MAX deletes it. A spare block must be there for a split."""
    if points.objects[HOME, i] >= 0 and y != MAX and points.objects[X, i] == x:
        if points.objects[Y, i] != y:
            _shift(points, i, y)
        return
    if points.objects[HOME, i] >= 0:
        _drop(points, i)
    if y != MAX:
        _put(points, i, x, y)
    else:
        points.objects[Y, i] = MAX


@plain
def rewind(points, objects, before):
    """Take moves back, the last one first; `before` has x and y of each object before its move."""
    for at in range(len(objects) - 1, -1, -1):
        move(points, objects[at], before[at, 0], before[at, 1])
