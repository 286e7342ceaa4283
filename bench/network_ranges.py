"""Shared by `network_k12.py` and `network_t07.py`: messages about ranges over a simulated CAN of brokers.

A range is a point of one plane, (l, r); zones of the plane belong to brokers, which are nodes of a power-law
topology. The server is the broker at the median. A message to one subscription goes from the server to its
gateway: one hop of the overlay, and as many links of IP as are between them.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from tocsin.errors import TocsinError
from tocsin.lab.bench.rank_methods import count_reached
from tocsin.lab.simulate.topology import draw_topology
from tocsin.model.columns import Index
from tocsin.model.message import GREATEST, LEAST, Messages, Regions
from tocsin.network.can import Can
from tocsin.rank.space import SubscriptionSpace

BROKERS, NODES = 1000, 20_000
REGION, SINGLE = 24, 16  # bytes of a message with a region, and of one to a single subscription
_CHECKED, _PART = 50, 50_000


class Traffic(NamedTuple):
    """Bytes of all messages."""

    overlay: float
    ip: float


class RangeOverlay:
    """Ranges at the brokers of their zones."""

    def __init__(self, low: Index, high: Index, space: SubscriptionSpace, seed: int) -> None:
        self.network, self._space = Can(BROKERS, 1), space
        self.network.subscribe(np.arange(len(low)), np.stack([low, high], axis=1)[:, None])
        self._seed = seed

    @property
    def _distance(self) -> Index:
        return _distances(self._seed)

    def send(self, rectangles: Index) -> Traffic:
        """Messages by region; the first ones must reach exactly the subscriptions in them."""
        self._compare(rectangles[:_CHECKED])
        overlay = ip = 0
        for at in range(0, len(rectangles), _PART):
            links = self.network.deliver(region_messages(rectangles[at : at + _PART]), REGION).links
            overlay += int(links.bytes.sum())
            ip += int((links.bytes * self._distance[links.sender, links.receiver]).sum())
        return Traffic(overlay, ip)

    def unicast(self, rectangles: Index) -> Traffic:
        """A message to each subscription in each rectangle."""
        far = self._distance[self.network.server][self.network.placement.broker]
        count = links = 0
        for at in range(0, len(rectangles), _PART):
            _, slots = self._space.find(rectangles[at : at + _PART])
            count, links = count + len(slots), links + int(far[slots].sum())
        return Traffic(SINGLE * count, SINGLE * links)

    def stress(self, rectangles: Index, update: Index, updates: int) -> float:
        """The most messages that one node sends for one of so many updates."""
        most = 0
        for number in np.unique(update[update < updates]):
            links = self.network.deliver(region_messages(rectangles[update == number]), 1).links
            most = max(most, int(links.sent(BROKERS).max(initial=0)))
        return most

    def _compare(self, rectangles: Index) -> None:
        messages = region_messages(rectangles)
        found = self.network.receivers(messages, self.network.deliver(messages, 1))
        reached = np.bincount(found.message, minlength=len(rectangles))
        if not np.array_equal(reached, count_reached(self._space, rectangles)):
            raise TocsinError("a message does not reach the subscriptions in its region")


@cache
def _distances(seed: int) -> Index:
    """Links of IP between brokers."""
    return draw_topology(NODES, BROKERS, seed).distance.astype(np.int64)


def holding(x: Index) -> Index:
    """The ranges that hold each x, as rectangles."""
    out = np.empty((len(x), 4), np.int64)
    out[:] = LEAST, 0, 0, GREATEST
    out[:, 1] = out[:, 2] = x
    return out


def region_messages(rectangles: Index) -> Messages:
    """One message for each rectangle."""
    count = len(rectangles)
    none, small = np.zeros(count, np.int64), np.zeros(count, np.int8)
    regions = Regions(np.arange(count + 1), np.ascontiguousarray(rectangles).reshape(count, 1, 4))
    return Messages(np.arange(count), none, small, small, none, none, none, regions)
