"""Rows of many keys from one order, some at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.join._kernels.orders import CAPACITY, LENGTH, seek

__all__ = ["BEGUN", "DONE", "KeyRanges", "gather_some"]

BEGUN = -1  # block of a place: nothing was read yet
DONE = -2  # ... all was read


class KeyRanges(NamedTuple):
    """Of each key, the range of values that is read; and where the next read begins: (block, entry)."""

    key: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    block: NDArray[np.int64]
    entry: NDArray[np.int64]


@kernel(allocates=False)
def gather_some(order, ranges, which, limit, owner, row):
    """Write (number of a key, row) of the keys in `which`, at most `limit` of each; how many."""
    n = np.int64(0)
    for k in which:
        d, i = ranges.block[k], ranges.entry[k]
        if d == BEGUN:
            d, i = seek(order, ranges.key[k], ranges.low[k])
        left = limit
        ended = d < 0
        while not ended and left > 0:
            if d >= order.meta[LENGTH]:
                ended = True
                break
            b = order.block[d]
            while i < order.size[b] and left > 0:
                at = b * CAPACITY + i
                if order.key[at] != ranges.key[k] or order.value[at] > ranges.high[k]:
                    ended = True
                    break
                owner[n], row[n] = k, order.row[at]
                n += 1
                i += 1
                left -= 1
            if not ended and i >= order.size[b]:
                d += 1
                i = np.int64(0)
        ranges.block[k] = DONE if ended else d
        ranges.entry[k] = i
    return n
