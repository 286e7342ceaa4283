"""Packed matches in order of row and slot.

All at once they are sorted as numbers of 64 bits. Some rows at a time, row and slot fit in 32, and that takes
half the time: they are dealt out by rows, sorted by NumPy, and made rows and slots again.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["deal_matches", "undeal_matches"]


@njit(cache=True, nogil=True)
def deal_matches(packed, slot_bits, row_bits, start):
    """Rows and slots in 32 bits, dealt out by the upper bits of the row.

    `start`, all 0 and two longer than there are parts, is told where each part begins and where it ends.
    """
    out = np.empty(len(packed), np.uint32)
    for match in packed:
        start[((match & 0xFFFFFFFF) >> row_bits) + 2] += 1
    for i in range(2, len(start)):
        start[i] += start[i - 1]
    low = (1 << row_bits) - 1
    for match in packed:
        row = match & 0xFFFFFFFF
        at = (row >> row_bits) + 1
        out[start[at]] = ((row & low) << slot_bits) | (match >> 32)
        start[at] += 1
    return out


@njit(cache=True, nogil=True)
def undeal_matches(keys, slot_bits, row_bits, start):
    """Rows and slots of what was dealt out."""
    row, slot = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    low = (np.uint32(1) << np.uint32(slot_bits)) - np.uint32(1)
    for part in range(len(start) - 2):
        first = part << row_bits
        for i in range(start[part], start[part + 1]):
            row[i], slot[i] = first + (keys[i] >> np.uint32(slot_bits)), keys[i] & low
    return row, slot
