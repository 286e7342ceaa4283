"""Delivery over zones, as bits: the zones that meet a box are the AND of a few rows.

Zone i meets the cells low..high of a dimension if its first cell is at most high and its last at least low:
bit i of upto[dimension, high] and of since[dimension, low]. A union of boxes is the OR of theirs.

    entry tree   greedy route to the zone of the region nearest to the server, then breadth first inside
    fixed tree   the ways of one breadth-first tree from the server to the zones of the region

Each zone of a region gets the message once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.compiled.instructions import trailing_zeros

__all__ = ["Overlay", "ZoneTraffic", "deliver_by_entry", "deliver_by_tree"]


class Overlay(NamedTuple):
    first: NDArray[np.int64]  # by zone and dimension: the first and the last cell
    last: NDArray[np.int64]
    start: NDArray[np.int64]  # by zone: where its neighbours begin
    neighbour: NDArray[np.int64]
    adjacent: NDArray[np.uint64]  # by zone: its neighbours
    upto: NDArray[np.uint64]  # by dimension and cell: zones that begin at or before it
    since: NDArray[np.uint64]  # zones that end at or after it
    parent: NDArray[np.int64]  # of the fixed tree
    depth: NDArray[np.int64]
    server: int


class ZoneTraffic(NamedTuple):
    counts: NDArray[np.int64]  # by message: hops, zones of the region, sum of their depths
    reached: NDArray[np.uint64]  # by message: zones
    links: NDArray[np.int64]  # bytes from zone to zone
    queue: NDArray[np.int64]  # scratch: zones and their depths
    region: NDArray[np.uint64]  # scratch: three sets of zones


@kernel(inline=True, allocates=False)
def _has(bits, i):
    return (bits[i >> 6] >> np.uint64(i & 63)) & np.uint64(1)


@kernel(allocates=False)
def _or_box(overlay, box, words):
    """Add the zones that meet a box of cells."""
    upto, since = overlay.upto, overlay.since
    for w in range(len(words)):
        x = upto[0, box[0, 1], w] & since[0, box[0, 0], w]
        for k in range(1, len(box)):
            x &= upto[k, box[k, 1], w] & since[k, box[k, 0], w]
        words[w] |= x


@kernel(allocates=False)
def deliver_by_tree(overlay, cells, start, sizes, out):
    parent, depth, server = overlay.parent, overlay.depth, overlay.server
    region = out.region[0]
    for m in range(len(start) - 1):
        region[:] = 0
        for b in range(start[m], start[m + 1]):
            _or_box(overlay, cells[b], region)
        reached, size = out.reached[m], sizes[m]
        if start[m] < start[m + 1]:
            reached[server >> 6] |= np.uint64(1) << np.uint64(server & 63)
        hops, zones, depths = 0, 0, 0
        for w in range(len(region)):
            x = region[w]
            while x:
                z = (w << 6) + trailing_zeros(x)
                x &= x - np.uint64(1)
                zones += 1
                depths += depth[z]
                while not _has(reached, z):
                    reached[z >> 6] |= np.uint64(1) << np.uint64(z & 63)
                    out.links[parent[z], z] += size
                    hops += 1
                    z = parent[z]
        out.counts[m, 0], out.counts[m, 1], out.counts[m, 2] = hops, zones, depths


@kernel(allocates=False)
def _distance(overlay, box, zone):
    """Cells between a zone and a box."""
    total = 0
    for k in range(len(box)):
        total += max(0, box[k, 0] - overlay.last[zone, k], overlay.first[zone, k] - box[k, 1])
    return total


@kernel(allocates=False)
def _route(overlay, box, size, out, m):
    """From the server towards a box, each hop to the nearest neighbour; the zone of the box, and the hops."""
    zone, hops = overlay.server, 0
    far = _distance(overlay, box, zone)
    while far > 0:
        best = zone
        for i in range(overlay.start[zone], overlay.start[zone + 1]):
            near = _distance(overlay, box, overlay.neighbour[i])
            if near < far:
                far, best = near, overlay.neighbour[i]
        out.links[zone, best] += size
        out.reached[m, best >> 6] |= np.uint64(1) << np.uint64(best & 63)
        zone = best
        hops += 1
    return zone, hops


@kernel(allocates=False)
def _flood(overlay, zone, hops, size, out, m):
    """Breadth first from a zone through those of the region not seen yet; adds to the counts."""
    pending, queue, counts = out.region[1], out.queue, out.counts
    pending[zone >> 6] &= ~(np.uint64(1) << np.uint64(zone & 63))
    queue[0, 0], queue[1, 0] = zone, hops
    head, tail, depths = 0, 1, hops
    while head < tail:
        i, below = queue[0, head], queue[1, head] + 1
        head += 1
        for w in range(len(pending)):
            x = overlay.adjacent[i, w] & pending[w]
            pending[w] ^= x
            while x:
                z = (w << 6) + trailing_zeros(x)
                x &= x - np.uint64(1)
                queue[0, tail], queue[1, tail] = z, below
                tail += 1
                depths += below
                out.links[i, z] += size
    counts[m, 0] += hops + tail - 1
    counts[m, 1] += tail
    counts[m, 2] += depths


@kernel(allocates=False)
def deliver_by_entry(overlay, cells, start, sizes, out):
    """Boxes that are not connected are entered one by one."""
    region, pending, part = out.region[0], out.region[1], out.region[2]
    server = overlay.server
    for m in range(len(start) - 1):
        region[:] = 0
        nearest, least = start[m], np.int64(2**62)
        for b in range(start[m], start[m + 1]):
            _or_box(overlay, cells[b], region)
            far = _distance(overlay, cells[b], server)
            if far < least:
                nearest, least = b, far
        out.counts[m, 0] = out.counts[m, 1] = out.counts[m, 2] = 0
        if start[m] == start[m + 1]:
            continue
        for w in range(len(region)):
            pending[w] = region[w]
        out.reached[m, server >> 6] |= np.uint64(1) << np.uint64(server & 63)
        zone, hops = _route(overlay, cells[nearest], sizes[m], out, m)
        _flood(overlay, zone, hops, sizes[m], out, m)
        for b in range(start[m], start[m + 1]):
            rest = np.uint64(0)
            for w in range(len(pending)):
                rest |= pending[w]
            if not rest:
                break
            part[:] = 0
            _or_box(overlay, cells[b], part)
            rest = np.uint64(0)
            for w in range(len(pending)):
                rest |= pending[w] & part[w]
            if rest:
                zone, hops = _route(overlay, cells[b], sizes[m], out, m)
                _flood(overlay, zone, hops, sizes[m], out, m)
        for w in range(len(region)):
            out.reached[m, w] |= region[w]
