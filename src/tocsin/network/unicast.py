"""Unicast: the server sends a message to each subscription, or once to each gateway.

It is the meaning of the other networks: the server itself looks up who is in a region. A message to a gateway
has the list of its subscriptions, so the gateway need not know any ranges.

>>> network = Unicast(brokers=2, planes=1)
>>> network.subscribe(np.arange(3), [[(0, 9)], [(2, 5)], [(7, 8)]]).tolist()
[0, 1, 0]

T07, section 5.4 (aggregation by gateway).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index
from tocsin.model.message import Recipients, Regions
from tocsin.network._kernels.receivers import mark_meeting
from tocsin.network.base import Bits, Delivery, Links, OverlayNetwork, bits_of, boxes_of, words_for

__all__ = ["Unicast", "UnicastToGateways"]

SLOT_BYTES = 8  # of a subscription in the list of a message to a gateway


class Unicast(OverlayNetwork):
    """One hop per message and subscription."""

    name: ClassVar[str] = "unicast"

    @property
    def server(self) -> int:
        return int(self.brokers[0])

    def _joined(self, broker: int) -> None:
        pass

    def _left(self, broker: int) -> None:
        slots = self.placement.of(broker)
        for slot, place in zip(slots, np.resize(self.brokers, len(slots)), strict=True):
            self.placement.move(slot, int(place))

    def _enter(self, slots: Index, points: NDArray[np.int64], at: Index | None) -> None:
        place = self.brokers[slots % len(self.brokers)] if at is None else at
        self.placement.add(slots, points, place)

    def _deliver(self, regions: Regions, sizes: Index) -> Delivery:
        return self._send(self._receivers(regions, self._candidates(regions)), sizes)

    def _candidates(self, regions: Regions) -> Bits:
        """Gateways whose subscriptions, taken together as a box, meet a region."""
        members = self.placement.members(len(self._live))
        bits = np.zeros((len(regions), words_for(len(self._live))), np.uint64)
        some = np.flatnonzero(np.diff(members.start))
        if len(some):
            low = np.minimum.reduceat(members.point, members.start[some])
            high = np.maximum.reduceat(members.point, members.start[some])
            mark_meeting(boxes_of(regions), regions.start, np.stack([low, high], 2), some, bits)
        return bits


class UnicastToGateways(Unicast):
    """One hop per message and gateway, with the subscriptions it is for."""

    name: ClassVar[str] = "unicast-gateways"

    def _send(self, recipients: Recipients, sizes: Index) -> Delivery:
        message, gateway = recipients.message, self.placement.broker[recipients.slot]
        pairs, count = np.unique(message * len(self._live) + gateway, return_counts=True)
        message, gateway = np.divmod(pairs, len(self._live))
        hops = np.bincount(message, minlength=len(sizes))
        sent = np.zeros(len(self._live), np.int64)
        np.add.at(sent, gateway, sizes[message] + SLOT_BYTES * count)
        receiver = np.flatnonzero(sent)
        links = Links(np.full(len(receiver), self.server), receiver, sent[receiver])
        return Delivery(
            hops, hops.copy(), hops.copy(), bits_of(message, gateway, (len(sizes), len(self._live))), links
        )
