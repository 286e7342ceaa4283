"""Zones of the space of subscriptions: closed boxes that tile it, each owned by a broker.

    +-------+---+      A zone is split where its subscriptions halve, or near it where fewest messages go.
    |   b   | d |      The splits are a tree; if a broker leaves, its sibling takes the zone over, or of the
    +---+---+---+      deepest pair below the sibling one broker takes both zones, the other the zone left.
    | a | c | e |
    +---+---+---+      Neighbours touch in one dimension and overlap in the others.

Distances are counted in cells: each dimension is numbered between the cuts of all zones, so zones, points and
regions are boxes of small integers, and open ends need no care.

>>> zones = Zones(dimensions=2, owner=0)
>>> zones.split(0, 1, np.array([[1, 5], [2, 6], [8, 9], [9, 9]])).tolist()  # who goes to broker 1
[False, False, True, True]
>>> zones.locate(np.array([[7, 7], [8, 8]])).tolist()
[0, 1]
>>> zones.leave(0)
[(0, 1)]

Meghdoot's zones; CAN's take-over. NETWORK.md, 10.3. Splits beside the median are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index
from tocsin.model.message import GREATEST, LEAST, Regions
from tocsin.network._kernels.zones import Overlay

__all__ = ["Zones", "make_overlay", "overlay_cells"]

SHARES = (0.5, 0.4, 0.6, 0.3, 0.7)
"""Shares of a zone's subscriptions that may stay in it, by which splits by traffic are tried."""


@dataclass(slots=True, eq=False)
class _Zone:
    """A zone, or a zone that was split: `low` has values up to `cut`, `high` those above."""

    low_end: NDArray[np.int64]
    high_end: NDArray[np.int64]
    turn: int = 0  # the dimension to try first
    parent: _Zone | None = None
    dimension: int = -1
    cut: int = 0
    low: _Zone | None = None
    high: _Zone | None = None
    owner: int = -1

    def children(self) -> list[_Zone]:
        return [] if self.low is None or self.high is None else [self.low, self.high]

    def sibling(self) -> _Zone:
        assert self.parent is not None
        return next(zone for zone in self.parent.children() if zone is not self)


class Zones:
    """The tree of splits. With a sample of regions, subscriptions are in zones that few of them meet."""

    def __init__(self, dimensions: int, owner: int, sample: Regions | None = None) -> None:
        self._root = _Zone(np.full(dimensions, LEAST), np.full(dimensions, GREATEST), owner=owner)
        self._zone_of = {owner: self._root}
        self._sample: NDArray[np.int64] | None = None
        if sample is not None and len(sample.boxes):
            self._sample = sample.boxes.reshape(len(sample.boxes), dimensions, 2)
            self._sample_of = np.repeat(np.arange(len(sample)), np.diff(sample.start))

    def owners(self) -> list[int]:
        """Brokers with a zone."""
        return list(self._zone_of)

    def in_order(self) -> list[int]:
        """Brokers with a zone, those of one half of each split before those of the other."""
        pending, out = [self._root], []
        while pending:
            zone = pending.pop()
            out += [] if zone.children() else [zone.owner]
            pending += zone.children()[::-1]
        return out

    def bounds(self, owner: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The least and the greatest point of a broker's zone."""
        return self._zone_of[owner].low_end, self._zone_of[owner].high_end

    def locate(self, points: NDArray[np.int64]) -> Index:
        """The owners of the zones that hold points. O(log zones) each."""
        out = np.empty(len(points), np.int64)
        pending = [(self._root, np.arange(len(points)))]
        while pending:
            zone, mine = pending.pop()
            if not len(mine):
                continue
            if zone.low is None or zone.high is None:
                out[mine] = zone.owner
                continue
            below = points[mine, zone.dimension] <= zone.cut
            pending += [(zone.low, mine[below]), (zone.high, mine[~below])]
        return out

    # -- splits -------------------------------------------------------------------------------------

    def split(self, owner: int, newcomer: int, points: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Give the upper half of a zone to a newcomer; which points go with it. None: all are equal."""
        zone = self._zone_of[owner]
        found = (
            self._split_by_load(zone, points)
            if self._sample is None
            else self._split_by_traffic(zone, points)
        )
        if found is None:
            return None
        zone.dimension, zone.cut, turn = found
        high_end, low_end = zone.high_end.copy(), zone.low_end.copy()
        high_end[zone.dimension], low_end[zone.dimension] = zone.cut, zone.cut + 1
        zone.low = _Zone(zone.low_end, high_end, turn, zone, owner=owner)
        zone.high = _Zone(low_end, zone.high_end, turn, zone, owner=newcomer)
        zone.owner, self._zone_of[owner], self._zone_of[newcomer] = -1, zone.low, zone.high
        return np.asarray(points[:, zone.dimension] > zone.cut)

    def _split_by_load(self, zone: _Zone, points: NDArray[np.int64]) -> tuple[int, int, int] | None:
        """The dimension, the cut, and the turn after it: the next dimension in which points differ."""
        dimensions = len(zone.low_end)
        for turn in range(zone.turn, zone.turn + dimensions):
            for cut, _ in _cuts_near(points[:, turn % dimensions], SHARES[:1]):
                return turn % dimensions, cut, turn + 1
        return None

    def _split_by_traffic(self, zone: _Zone, points: NDArray[np.int64]) -> tuple[int, int, int] | None:
        """The split after which a subscription's zone meets fewest of the sampled regions, on average."""
        assert self._sample is not None
        dimensions, found, least = len(zone.low_end), None, np.inf
        meets = np.all((self._sample[:, :, 0] <= zone.high_end) & (self._sample[:, :, 1] >= zone.low_end), 1)
        boxes, of = self._sample[meets], self._sample_of[meets]
        for turn in range(zone.turn, zone.turn + dimensions):
            k = turn % dimensions
            for cut, below in _cuts_near(points[:, k], SHARES):
                met = (len(np.unique(of[boxes[:, k, 0] <= cut])), len(np.unique(of[boxes[:, k, 1] > cut])))
                cost = below * met[0] + (len(points) - below) * met[1]
                if cost < least:
                    found, least = (k, cut, turn + 1), cost
        return found

    # -- leaving ------------------------------------------------------------------------------------

    def replace(self, owner: int, newcomer: int) -> None:
        """Give a whole zone to a broker without one."""
        zone = self._zone_of.pop(owner)
        zone.owner, self._zone_of[newcomer] = newcomer, zone

    def leave(self, owner: int) -> list[tuple[int, int]]:
        """Take a broker's zone away; whose subscriptions go to whom, one after the other."""
        zone = self._zone_of[owner]
        sibling = zone.sibling()
        if not sibling.children():
            del self._zone_of[owner]
            self._merge(sibling)
            return [(owner, sibling.owner)]
        pair = _deepest_pair(sibling)
        keeper, mover = (child.owner for child in pair.children())
        del self._zone_of[mover]
        self._merge(self._zone_of[keeper])
        self.replace(owner, mover)
        return [(mover, keeper), (owner, mover)]

    def _merge(self, zone: _Zone) -> None:
        """A zone takes its sibling over."""
        parent = zone.parent
        assert parent is not None
        parent.low = parent.high = None
        parent.owner, self._zone_of[zone.owner] = zone.owner, parent

    def _check(self) -> None:
        """Zones tile the space: the two halves of each split do."""
        pending, owners = [self._root], []
        while pending:
            zone = pending.pop()
            for child in zone.children():
                other = child.sibling()
                assert child.parent is zone
                ends = np.stack([child.low_end, child.high_end, other.low_end, other.high_end])
                rest = np.delete(ends, zone.dimension, axis=1)
                assert np.array_equal(rest[:2], rest[2:])
            if zone.children():
                assert zone.low is not None and zone.high is not None
                assert zone.low.high_end[zone.dimension] + 1 == zone.high.low_end[zone.dimension]
                pending += zone.children()
            else:
                assert self._zone_of[zone.owner] is zone
                owners.append(zone.owner)
        assert sorted(owners) == sorted(self._zone_of)


def _cuts_near(values: NDArray[np.int64], shares: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Boundaries of values nearest to some shares, and how many are up to each; none: all are equal."""
    if not len(values):
        return
    places = [int(share * len(values)) for share in shares]
    for place, value in zip(places, np.partition(values, places)[places].tolist(), strict=True):
        below, upto = int((values < value).sum()), int((values <= value).sum())
        if below > 0 and (upto == len(values) or place - below <= upto - place):
            yield value - 1, below
        elif 0 < upto < len(values):
            yield value, upto


def _deepest_pair(zone: _Zone) -> _Zone:
    """The deepest split below a zone whose halves are whole."""
    level = [zone]
    while True:
        below = [child for split in level for child in split.children() if child.children()]
        if not below:
            return level[0]
        level = below


# -- what kernels read -------------------------------------------------------------------------------


def make_overlay(zones: Zones, brokers: int, server: int) -> tuple[Overlay, list[Index]]:
    """Zones as cells and bits; and the cuts of each dimension. O(zones²)."""
    owners = np.array(sorted(zones.owners()))
    low, high = (np.stack(ends) for ends in zip(*(zones.bounds(owner) for owner in owners), strict=True))
    cuts = [np.unique(column[column > LEAST]) for column in low.T]
    shape, words = (brokers, low.shape[1]), (brokers + 63) // 64
    first, last = np.ones(shape, np.int64), np.zeros(shape, np.int64)  # without a zone: empty
    for k, cut in enumerate(cuts):
        first[owners, k] = np.searchsorted(cut, low[:, k], "right")
        last[owners, k] = np.searchsorted(cut, high[:, k], "right")
    cells = max(len(cut) for cut in cuts) + 1
    upto = np.zeros((shape[1], cells, words), np.uint64)
    since = np.zeros_like(upto)
    has = np.zeros(brokers, np.bool_)
    has[owners] = True
    for k in range(shape[1]):
        cell = np.arange(cells)[:, None]
        upto[k], since[k] = _packed((first[:, k] <= cell) & has), _packed((last[:, k] >= cell) & has)
    near = _touching(first, last) & has & has[:, None]
    start = np.concatenate([[0], np.cumsum(near.sum(axis=1))])
    zone, neighbour = np.nonzero(near)
    reverse = np.lexsort((zone, neighbour))  # neighbours are symmetric
    adjacent = _packed(near)
    ranks = np.cumsum(np.bitwise_count(adjacent).astype(np.int64), axis=1)
    rank = start[:-1, None] + ranks - np.bitwise_count(adjacent)
    parent, depth = _breadth_first(near, server)
    parent_link = start[:-1] + np.array([int(near[i, : max(0, parent[i])].sum()) for i in range(brokers)])
    lines = start, neighbour, reverse, adjacent, rank, upto, since, parent, parent_link, depth
    return Overlay(first, last, *lines, server), cuts


def overlay_cells(cuts: list[Index], boxes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Boxes (box, dimension, low and high) in cells."""
    return np.stack([np.searchsorted(cut, boxes[:, k], "right") for k, cut in enumerate(cuts)], axis=1)


def _packed(rows: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Rows of truth values as bits."""
    padded = np.zeros((len(rows), (rows.shape[1] + 63) // 64 * 64), np.bool_)
    padded[:, : rows.shape[1]] = rows
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def _touching(first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.bool_]:
    faces = np.zeros((len(first), len(first)), np.int64)
    fine = np.ones(faces.shape, np.bool_)
    for k in range(first.shape[1]):
        touch = last[:, None, k] + 1 == first[None, :, k]
        touch |= touch.T
        overlap = first[:, None, k] <= last[None, :, k]
        faces += touch
        fine &= touch | (overlap & overlap.T)
    return np.asarray(fine & (faces == 1))


def _breadth_first(near: NDArray[np.bool_], server: int) -> tuple[Index, Index]:
    """A tree over neighbours: the parent and the depth of each broker."""
    parent, depth = np.full(len(near), -1), np.full(len(near), -1)
    parent[server], depth[server], level = server, 0, [server]
    while level:
        below = []
        for broker in level:
            fresh = np.flatnonzero(near[broker] & (parent < 0))
            parent[fresh], depth[fresh] = broker, depth[broker] + 1
            below += fresh.tolist()
        level = below
    return parent, depth
