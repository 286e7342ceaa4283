"""Many small tables that grow, in one array.

Block b is a table of `width` rows and `count` columns, with room for more of them:

    pool   ... | row 0: x x x . | row 1: x x x . | ...      width 2, count 3, room 4
               at               at + room

A full block moves to the end of the pool with twice the room; `repack` closes the gaps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["BLOCK", "Blocks", "append", "filter_blocks", "repack", "take_out"]


_FIELDS = [("at", "i8"), ("count", "i4"), ("room", "i4"), ("width", "i4"), ("next", "i4")]
BLOCK = np.dtype((np.record, _FIELDS))  # a record, so that uncompiled code may say block.at too


class Blocks(NamedTuple):
    pool: NDArray[np.int32]
    of: Any  # by block: a BLOCK, so that all about it is in one cache line; `next` is the owner's business
    end: NDArray[np.int64]  # how far the pool is used, and how much of that is gaps


@njit(cache=True, nogil=True)
def append(blocks, b):
    """A new column at the end of block b: its place, or -1 if the pool must grow first."""
    n, room, width = blocks.of[b].count, blocks.of[b].room, np.int64(blocks.of[b].width)
    if n == room:
        wider = np.int64(1) if n == 0 else 2 * np.int64(room)
        end = blocks.end[0]
        if end + wider * width > len(blocks.pool):
            return np.int64(-1)
        old = blocks.of[b].at
        for row in range(width):
            for i in range(n):
                blocks.pool[end + row * wider + i] = blocks.pool[old + row * room + i]
        blocks.of[b].at, blocks.of[b].room = end, wider
        blocks.end[0] += wider * width
        blocks.end[1] += room * width
    blocks.of[b].count = n + 1
    return np.int64(n)


@njit(cache=True, nogil=True)
def take_out(blocks, b, i):
    """Column i goes, the last takes its place."""
    last, at, room = blocks.of[b].count - 1, blocks.of[b].at, np.int64(blocks.of[b].room)
    for row in range(blocks.of[b].width):
        blocks.pool[at + row * room + i] = blocks.pool[at + row * room + last]
    blocks.of[b].count = last


@njit(cache=True, nogil=True)
def filter_blocks(blocks, which, gone):
    """Blocks of width 1 without the numbers that are gone."""
    for b in which:
        at, n = blocks.of[b].at, 0
        for i in range(at, at + blocks.of[b].count):
            if not gone[blocks.pool[i]]:
                blocks.pool[at + n] = blocks.pool[i]
                n += 1
        blocks.of[b].count = n


@njit(cache=True, nogil=True)
def repack(blocks, used):
    """Blocks 0..used-1 one after the other, each with just the room it needs: the new pool."""
    total = np.int64(0)
    for b in range(used):
        total += np.int64(blocks.of[b].width) * blocks.of[b].count
    pool, end = np.empty(total, np.int32), np.int64(0)
    for b in range(used):
        at, n, room = blocks.of[b].at, blocks.of[b].count, np.int64(blocks.of[b].room)
        blocks.of[b].at, blocks.of[b].room = end, n
        for row in range(blocks.of[b].width):
            for i in range(n):
                pool[end + i] = blocks.pool[at + row * room + i]
            end += n
    blocks.end[0], blocks.end[1] = end, 0
    return pool
