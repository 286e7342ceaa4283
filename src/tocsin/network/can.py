"""CAN: brokers own zones of the space of subscriptions, and a message visits the zones that meet its region.

    Can(brokers=1000)                      zones of equally many subscriptions
    Can(brokers=1000, sample=regions)      zones that few of the sampled messages cross
    tree="entry"                           to the nearest zone of the region, then from neighbour to neighbour
    tree="fixed"                           along one tree from the server: longer, but always the same links

A subscription belongs to the zone of its point, wherever its subscriber is. A broker joins by taking half of
the fullest zone; it is idle while all subscriptions are equal. The server is at the median of the points.

>>> network = Can(brokers=2, planes=1)
>>> network.subscribe(np.arange(4), [[(1, 5)], [(2, 6)], [(8, 9)], [(9, 9)]]).tolist()
[0, 0, 1, 1]

Cost of a message over z zones, w = brokers / 64, b boxes: O(b w + z w) by entry, O(b w + z + hops) by the
fixed tree. Meghdoot; J08, section 5. A breadth-first tree inside the region is ours; a node that knows only
its neighbours' zones can have the same number of messages by stepping towards the entry (NETWORK.md, 10.3).
"""

from __future__ import annotations

import heapq
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import UsageError
from tocsin.model.columns import Index
from tocsin.model.message import Regions
from tocsin.network._kernels.zones import Overlay, ZoneTraffic, deliver_by_entry, deliver_by_tree
from tocsin.network.base import Delivery, Links, OverlayNetwork, boxes_of, words_for
from tocsin.network.zones import Zones, make_overlay, overlay_cells

__all__ = ["Can", "CanFixed"]


class Can(OverlayNetwork):
    """Zones; a tree per message, from the zone at which it enters its region."""

    name: ClassVar[str] = "can"
    tree: ClassVar[str] = "entry"
    _kernel: ClassVar[Any] = staticmethod(deliver_by_entry)

    def __init__(self, brokers: int = 1, planes: int = 2, sample: Regions | None = None) -> None:
        super().__init__(brokers, planes)
        if sample is not None and sample.boxes.shape[1] != planes:
            raise UsageError(
                f"a sample of {sample.boxes.shape[1]} planes for a network of {planes}",
                hint="regions of messages of this network",
            )
        self.zones = Zones(2 * planes, 0, sample)
        self._idle = list(range(1, brokers))
        self._server: int | None = None
        self._overlay: tuple[Overlay, list[Index]] | None = None

    @property
    def server(self) -> int:
        if self._server is None:
            slots = self.placement.slots()
            owners = self.zones.owners()
            self._server = owners[0]
            if len(slots):
                middle = np.partition(self.placement.point[slots], len(slots) // 2, axis=0)[len(slots) // 2]
                self._server = int(self.zones.locate(middle[None])[0])
        return self._server

    def overlay(self) -> tuple[Overlay, list[Index]]:
        """Zones as kernels read them, and the cuts that number the cells."""
        if self._overlay is None:
            self._overlay = make_overlay(self.zones, len(self._live), self.server)
        return self._overlay

    # -- brokers and subscriptions ------------------------------------------------------------------

    def _joined(self, broker: int) -> None:
        self._idle.append(broker)
        self._split()
        self._overlay = None

    def _left(self, broker: int) -> None:
        self._overlay = None
        if broker in self._idle:
            self._idle.remove(broker)
            return
        if self._idle:
            stand_in = self._idle.pop(0)
            self.zones.replace(broker, stand_in)
            moves = [(broker, stand_in)]
        else:
            moves = self.zones.leave(broker)
        for before, after in moves:
            self.placement.move(self.placement.of(before), after)
        if broker == self._server:
            self._server = None

    def _enter(self, slots: Index, points: NDArray[np.int64], at: Index | None) -> None:
        self.placement.add(slots, points, self.zones.locate(points))
        if self._idle:
            self._split()

    def _split(self) -> None:
        """Idle brokers take halves of the fullest zones."""
        members, point = self.placement.members(len(self._live)), self.placement.point
        owners = self.zones.owners()
        slots = {owner: members.slot[members.start[owner] : members.start[owner + 1]] for owner in owners}
        heap = [(-len(mine), owner) for owner, mine in slots.items()]
        heapq.heapify(heap)
        while self._idle and heap:
            _, owner = heapq.heappop(heap)
            mine = slots[owner]
            moved = self.zones.split(owner, self._idle[0], point[mine])
            if moved is None:
                continue
            newcomer = self._idle.pop(0)
            slots[owner], slots[newcomer] = mine[~moved], mine[moved]
            for part in (owner, newcomer):
                heapq.heappush(heap, (-len(slots[part]), part))
            self._overlay = None
        for owner, mine in slots.items():
            self.placement.move(mine, owner)
        if self._overlay is None:
            self._server = None

    # -- messages -----------------------------------------------------------------------------------

    def _deliver(self, regions: Regions, sizes: Index) -> Delivery:
        overlay, cuts = self.overlay()
        brokers = len(self._live)
        out = ZoneTraffic(
            np.zeros((len(regions), 3), np.int64),
            np.zeros((len(regions), words_for(brokers)), np.uint64),
            np.zeros(len(overlay.neighbour), np.int64),
            np.empty((5, words_for(brokers)), np.uint64),
        )
        self._kernel(overlay, overlay_cells(cuts, boxes_of(regions)), regions.start, sizes, out)
        hops, gateways, depths = np.ascontiguousarray(out.counts.T)
        used = np.flatnonzero(out.links)
        receiver = np.searchsorted(overlay.start, used, "right") - 1
        links = Links(overlay.neighbour[used], receiver, out.links[used])
        return Delivery(hops, gateways, depths, out.reached, links)

    def stats(self) -> dict[str, Any]:
        overlay, _ = self.overlay()
        degree = len(overlay.neighbour) / len(self.zones.owners())
        load = np.bincount(self.placement.broker[self.placement.slots()], minlength=1)
        zones = {"zones": len(self.zones.owners()), "neighbours": degree, "fullest": int(load.max())}
        return {**super().stats(), **zones, "tree": self.tree}

    def _check(self) -> None:
        super()._check()
        self.zones._check()
        assert sorted([*self.zones.owners(), *self._idle]) == self.brokers.tolist()
        slots = self.placement.slots()
        assert np.array_equal(self.zones.locate(self.placement.point[slots]), self.placement.broker[slots])
        overlay, _ = self.overlay()
        volume = np.prod((overlay.last - overlay.first + 1)[self.zones.owners()], axis=1, dtype=object).sum()
        assert volume == np.prod(overlay.last.max(axis=0) + 1, dtype=object), "zones tile the space"
        assert np.all(overlay.parent[self.zones.owners()] >= 0), "the overlay is connected"


class CanFixed(Can):
    """Zones; one tree for all messages, so that the same links are used again and again."""

    name: ClassVar[str] = "can-fixed"
    tree: ClassVar[str] = "fixed"
    _kernel: ClassVar[Any] = staticmethod(deliver_by_tree)

    def parents(self) -> Index:
        return self.overlay()[0].parent
