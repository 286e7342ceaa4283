"""Point queries over rectangles: which of them hold a point?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["BLOCK", "FAN", "RectangleArrays", "hold"]

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


@njit(cache=True, nogil=True)
def hold(index, x, y, out, n):
    """Slots of all rectangles that hold (x, y), to `out` from n on; where that ends. One place to spare."""
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
