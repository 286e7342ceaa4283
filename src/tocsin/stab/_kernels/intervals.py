"""Stabbing queries: which intervals hold a value, which rectangles hold a point?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel

__all__ = ["BLOCK", "FAN", "IntervalArrays", "RectangleArrays", "containing", "node_of", "place_in", "stab"]


class IntervalArrays(NamedTuple):
    grid: NDArray[np.int64]  # some values, ascending; the nodes of the tree, counted from 1
    start: NDArray[np.int64]  # by node, then by cell between two values: where its lists begin
    low: NDArray[np.int64]  # by node, ascending
    low_high: NDArray[np.int64]  # ... the other ends
    low_slot: NDArray[np.int64]  # ... and slots; -1 for a gap
    high: NDArray[np.int64]  # by node, descending
    high_slot: NDArray[np.int64]
    tail: NDArray[np.int64]  # slot, low, high
    meta: NDArray[np.int64]  # levels of the tree, length of the tail


@kernel(allocates=False)
def place_in(grid, value, above):
    """How many values of the grid are below `value` (or, `above`, at most it)."""
    low, count = np.int64(0), np.int64(len(grid))
    while count > 0:
        half = count >> 1
        fits = (grid[low + half] < value) | (above & (grid[low + half] == value))
        low = low + half + 1 if fits else low
        count = count - half - 1 if fits else half
    return low


@kernel(allocates=False)
def node_of(grid, cells, low, high, out):
    """The highest node of the tree in each interval; of one that holds no value of the grid, its cell.

    Of the ranks l..h that an interval holds the one with most zeros at its end is h with all bits below the
    highest one in which h and l-1 differ cleared.
    """
    for i in range(len(low)):
        before, h = place_in(grid, low[i], False), place_in(grid, high[i], True)
        if before == h:
            out[i] = cells + h
            continue
        bit, rest = 0, (before ^ h) >> 1
        while rest:
            bit, rest = bit + 1, rest >> 1
        out[i] = (h >> bit) << bit


@kernel(allocates=False)
def stab(index, x, out, n):
    """Write slots of all intervals that hold x to `out` from n on; where it ends; one place to spare."""
    r = place_in(index.grid, x, True)
    levels = index.meta[0]
    for level in range(levels):
        c = ((r >> level) | 1) << level
        begin, end = index.start[c], index.start[c + 1]
        if begin == end:
            continue
        a, count = begin, end - begin
        if c <= r:  # x is right of the node's value: those that reach to it
            while count > 0:
                half = count >> 1
                fits = index.high[a + half] >= x
                a = a + half + 1 if fits else a
                count = count - half - 1 if fits else half
            for i in range(begin, a):
                out[n] = index.high_slot[i]
                n += index.high_slot[i] >= 0
        else:
            while count > 0:
                half = count >> 1
                fits = index.low[a + half] <= x
                a = a + half + 1 if fits else a
                count = count - half - 1 if fits else half
            for i in range(begin, a):
                out[n] = index.low_slot[i]
                n += index.low_slot[i] >= 0
    cell = (np.int64(1) << levels) + r
    for i in range(index.start[cell], index.start[cell + 1]):
        out[n] = index.low_slot[i]
        n += (index.low[i] <= x) & (x <= index.low_high[i]) & (index.low_slot[i] >= 0)
    for i in range(index.meta[1]):
        out[n] = index.tail[0, i]
        n += (index.tail[1, i] <= x) & (x <= index.tail[2, i])
    return n


BLOCK, FAN = 32, 16  # rectangles in a block, blocks in a box


class RectangleArrays(NamedTuple):
    low_x: NDArray[np.int64]
    high_x: NDArray[np.int64]
    low_y: NDArray[np.int64]
    high_y: NDArray[np.int64]
    slot: NDArray[np.int64]  # -1 for a gap
    blocks: NDArray[np.int64]  # bounds: low_x, high_x, low_y, high_y by block
    boxes: NDArray[np.int64]  # ... and by FAN blocks
    tail: NDArray[np.int64]  # slot and the four ends
    meta: NDArray[np.int64]  # length of the tail


@kernel(allocates=False)
def containing(index, x, y, out, n):
    """Write slots of all rectangles that hold (x, y) to `out` from n on; returns the end.

    `out` needs one extra place.
    """
    boxes, blocks, total = index.boxes, index.blocks, len(index.slot)
    for box in range(len(boxes)):
        if boxes[box, 0] > x or x > boxes[box, 1] or boxes[box, 2] > y or y > boxes[box, 3]:
            continue
        for block in range(box * FAN, min(box * FAN + FAN, len(blocks))):
            if blocks[block, 0] > x or x > blocks[block, 1] or blocks[block, 2] > y or y > blocks[block, 3]:
                continue
            for i in range(block * BLOCK, min(block * BLOCK + BLOCK, total)):
                inside = (index.low_x[i] <= x) & (x <= index.high_x[i])
                inside &= (index.low_y[i] <= y) & (y <= index.high_y[i]) & (index.slot[i] >= 0)
                out[n] = index.slot[i]
                n += inside
    for i in range(index.meta[0]):
        inside = (index.tail[1, i] <= x) & (x <= index.tail[2, i])
        inside &= (index.tail[3, i] <= y) & (y <= index.tail[4, i])
        out[n] = index.tail[0, i]
        n += inside
    return n
