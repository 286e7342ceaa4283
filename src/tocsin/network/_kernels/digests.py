"""Delivery down a tree whose links have digests."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.network._kernels.receivers import meets

__all__ = ["DigestTraffic", "DigestTree", "deliver_by_digests"]


class DigestTree(NamedTuple):
    start: NDArray[np.int64]  # by broker: where the brokers below it begin
    child: NDArray[np.int64]
    above_start: NDArray[np.int64]  # by broker: the digest of the link to it
    above: NDArray[np.int64]
    local_start: NDArray[np.int64]  # by broker: the digest of its own subscriptions
    local: NDArray[np.int64]
    root: int


class DigestTraffic(NamedTuple):
    counts: NDArray[np.int64]  # by message: hops, brokers with somebody for it, sum of their depths
    reached: NDArray[np.uint64]  # by message: brokers
    links: NDArray[np.int64]  # by broker: bytes from the one above
    stack: NDArray[np.int64]  # scratch: brokers and their depths


@kernel(inline=True, allocates=False)
def _is_met(digest, first, last, boxes, begin, end):
    for i in range(first, last):
        for b in range(begin, end):
            if meets(boxes[b], digest[i, :, 0], digest[i, :, 1]):
                return True
    return False


@kernel(allocates=False)
def deliver_by_digests(tree, boxes, start, sizes, out):
    stack, above, local = out.stack, tree.above_start, tree.local_start
    for m in range(len(start) - 1):
        begin, end = start[m], start[m + 1]
        hops, gateways, depths, top = 0, 0, 0, 1
        stack[0, 0], stack[1, 0] = tree.root, 0
        while top and begin < end:
            top -= 1
            broker, depth = stack[0, top], stack[1, top]
            out.reached[m, broker >> 6] |= np.uint64(1) << np.uint64(broker & 63)
            if _is_met(tree.local, local[broker], local[broker + 1], boxes, begin, end):
                gateways += 1
                depths += depth
            for i in range(tree.start[broker], tree.start[broker + 1]):
                below = tree.child[i]
                if _is_met(tree.above, above[below], above[below + 1], boxes, begin, end):
                    hops += 1
                    out.links[below] += sizes[m]
                    stack[0, top], stack[1, top] = below, depth + 1
                    top += 1
        out.counts[m, 0], out.counts[m, 1], out.counts[m, 2] = hops, gateways, depths
