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
from tocsin.compiled.instructions import ones, trailing_zeros

__all__ = ["Overlay", "ZoneTraffic", "deliver_by_entry", "deliver_by_tree"]


class Overlay(NamedTuple):
    first: NDArray[np.int64]  # by zone and dimension: the first and the last cell
    last: NDArray[np.int64]
    start: NDArray[np.int64]  # by zone: where its neighbours begin
    neighbour: NDArray[np.int64]
    reverse: NDArray[np.int64]  # by zone and neighbour: where the neighbour has the zone
    adjacent: NDArray[np.uint64]  # by zone: its neighbours
    rank: NDArray[np.int64]  # by zone and word: where its neighbours of the word begin
    upto: NDArray[np.uint64]  # by dimension and cell: zones that begin at or before it
    since: NDArray[np.uint64]  # zones that end at or after it
    parent: NDArray[np.int64]  # of the fixed tree
    parent_link: NDArray[np.int64]  # where a zone has its parent among its neighbours
    depth: NDArray[np.int64]
    server: int


class ZoneTraffic(NamedTuple):
    counts: NDArray[np.int64]  # by message: hops, zones of the region, sum of their depths
    reached: NDArray[np.uint64]  # by message: zones
    links: NDArray[np.int64]  # by zone and neighbour: bytes from the neighbour
    sets: NDArray[np.uint64]  # scratch: five sets of zones


@kernel(inline=True, allocates=False)
def _has(bits, i):
    return (bits[i >> 6] >> np.uint64(i & 63)) & np.uint64(1)


@kernel(inline=True, allocates=False)
def _set(bits, i):
    bits[i >> 6] |= np.uint64(1) << np.uint64(i & 63)


@kernel(allocates=False)
def _or_box(overlay, box, part, words):
    """Add the zones that meet a box of cells; `part` is scratch."""
    for k in range(len(box)):
        upto, since = overlay.upto[k, box[k, 1]], overlay.since[k, box[k, 0]]
        if k == 0:
            for w in range(len(part)):
                part[w] = upto[w] & since[w]
        else:
            for w in range(len(part)):
                part[w] &= upto[w] & since[w]
    for w in range(len(part)):
        words[w] |= part[w]


@kernel(allocates=False)
def deliver_by_tree(overlay, cells, start, sizes, out):
    parent, depth, server = overlay.parent, overlay.depth, overlay.server
    region, links = out.sets[0], out.links
    for m in range(len(start) - 1):
        region[:] = 0
        for b in range(start[m], start[m + 1]):
            _or_box(overlay, cells[b], out.sets[1], region)
        reached, size = out.reached[m], sizes[m]
        if start[m] < start[m + 1]:
            _set(reached, server)
        hops, zones, depths = 0, 0, 0
        for w in range(len(region)):
            x = region[w]
            while x:
                z = (w << 6) + trailing_zeros(x)
                x &= x - np.uint64(1)
                zones += 1
                depths += depth[z]
                while not _has(reached, z):
                    _set(reached, z)
                    links[overlay.parent_link[z]] += size
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
        link = -1
        for i in range(overlay.start[zone], overlay.start[zone + 1]):
            near = _distance(overlay, box, overlay.neighbour[i])
            if near < far:
                far, link = near, i
        zone = overlay.neighbour[link]
        out.links[overlay.reverse[link]] += size
        _set(out.reached[m], zone)
        hops += 1
    return zone, hops


@kernel(allocates=False)
def _link_from(overlay, zone, senders):
    """Where a zone has the first neighbour that is one of the senders."""
    for w in range(len(senders)):
        x = overlay.adjacent[zone, w] & senders[w]
        if x:
            lowest = x & (~x + np.uint64(1))
            return overlay.rank[zone, w] + ones(overlay.adjacent[zone, w] & (lowest - np.uint64(1)))
    return np.int64(-1)


@kernel(allocates=False)
def _flood(overlay, zone, hops, size, out, m):
    """Breadth first from a zone through those of the region not seen yet; adds to the counts."""
    pending, level, below = out.sets[1], out.sets[2], out.sets[3]
    words = len(pending)
    level[:] = 0
    _set(level, zone)
    pending[zone >> 6] &= ~(np.uint64(1) << np.uint64(zone & 63))
    depth, zones, depths, found, left = hops, 1, hops, 1, 0
    for w in range(words):
        left += ones(pending[w])
    while found and left:
        below[:] = 0
        for w in range(words):
            x = level[w]
            while x:
                row = overlay.adjacent[(w << 6) + trailing_zeros(x)]
                x &= x - np.uint64(1)
                for v in range(words):
                    below[v] |= row[v]
        depth += 1
        found = 0
        for w in range(words):
            x = below[w] & pending[w]
            pending[w] ^= x
            below[w] = x
            while x:
                out.links[_link_from(overlay, (w << 6) + trailing_zeros(x), level)] += size
                x &= x - np.uint64(1)
                found += 1
        left -= found
        zones += found
        depths += found * depth
        for w in range(words):
            level[w] = below[w]
    out.counts[m, 0] += hops + zones - 1
    out.counts[m, 1] += zones
    out.counts[m, 2] += depths


@kernel(allocates=False)
def _any(words):
    found = np.uint64(0)
    for w in range(len(words)):
        found |= words[w]
    return found != 0


@kernel(allocates=False)
def deliver_by_entry(overlay, cells, start, sizes, out):
    """Boxes that are not connected are entered one by one."""
    region, pending, part, server = out.sets[0], out.sets[1], out.sets[4], overlay.server
    for m in range(len(start) - 1):
        region[:] = 0
        nearest, least = start[m], np.int64(2**62)
        for b in range(start[m], start[m + 1]):
            _or_box(overlay, cells[b], part, region)
            far = _distance(overlay, cells[b], server)
            if far < least:
                nearest, least = b, far
        if start[m] == start[m + 1]:
            continue
        for w in range(len(region)):
            pending[w] = region[w]
            out.reached[m, w] = region[w]
        _set(out.reached[m], server)
        zone, hops = _route(overlay, cells[nearest], sizes[m], out, m)
        _flood(overlay, zone, hops, sizes[m], out, m)
        for b in range(start[m], start[m + 1]):
            if not _any(pending):
                break
            region[:] = 0
            _or_box(overlay, cells[b], part, region)
            for w in range(len(region)):
                region[w] &= pending[w]
            if _any(region):
                zone, hops = _route(overlay, cells[b], sizes[m], out, m)
                _flood(overlay, zone, hops, sizes[m], out, m)
