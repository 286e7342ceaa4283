"""Which sets of points a region meets, and which points it holds.

A region is a union of boxes, here (low, high) by dimension: l and r of each plane. Sets of brokers are bits.
"""

from __future__ import annotations

import numpy as np

from tocsin.compiled import kernel

__all__ = ["find_receivers", "holds", "mark_meeting", "meets"]


@kernel(inline=True, allocates=False)
def meets(box, low, high):
    """Whether a box of a region meets another one."""
    for k in range(len(low)):
        if box[k, 0] > high[k] or box[k, 1] < low[k]:
            return False
    return True


@kernel(inline=True, allocates=False)
def holds(boxes, begin, end, point):
    """Whether one of the boxes holds a point."""
    for b in range(begin, end):
        inside = True
        for k in range(len(point)):
            if point[k] < boxes[b, k, 0] or point[k] > boxes[b, k, 1]:
                inside = False
                break
        if inside:
            return True
    return False


@kernel(allocates=False)
def mark_meeting(boxes, start, bounds, label, bits):
    """Set bit label[i] of message m if its region meets bounds[i]: by dimension, low and high."""
    one = np.uint64(1)
    for m in range(len(start) - 1):
        for i in range(len(bounds)):
            word, bit = label[i] >> 6, one << np.uint64(label[i] & 63)
            if bits[m, word] & bit:
                continue
            for b in range(start[m], start[m + 1]):
                if meets(boxes[b], bounds[i, :, 0], bounds[i, :, 1]):
                    bits[m, word] |= bit
                    break


@kernel(allocates=False)
def find_receivers(boxes, start, reached, members, out):
    """Pairs of a message and a slot: points in the region, at brokers reached; how many.

    More than `out` has: it is too short.
    """
    n = 0
    for m in range(len(start) - 1):
        for broker in range(len(members.start) - 1):
            if not (reached[m, broker >> 6] >> np.uint64(broker & 63)) & np.uint64(1):
                continue
            for i in range(members.start[broker], members.start[broker + 1]):
                if holds(boxes, start[m], start[m + 1], members.point[i]):
                    if n < out.shape[1]:
                        out[0, n], out[1, n] = m, members.slot[i]
                    n += 1
    return n
