"""The protocol of networks: messages enter at the server and reach the brokers of those who receive them.

    Messages ─► Network.deliver ─► Delivery: brokers reached, hops, bytes by link
                                        │
                 the broker verifies ───┴──► Network.receivers: exactly the subscriptions inside its regions

A subscription is a point (l, r of each plane) at a broker, its gateway. A network may bring a message to
brokers that have nobody for it, but must not miss one that has: every network delivers a message to the same
subscriptions, those in its region. Messages with recipients go directly from the server to their gateways.

Brokers have numbers; a number is used again after its broker has left. The contract tests and the simulator
discover every network in this package.

J08, section 5; T07, section 5.4. NETWORK.md, section 10.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.errors import UsageError
from tocsin.model.columns import Index
from tocsin.model.message import Messages, Recipients, Regions
from tocsin.network._kernels.receivers import find_receivers
from tocsin.network.placement import BrokerPlacement

__all__ = ["Bits", "Delivery", "Links", "Network", "OverlayNetwork", "bits_of", "has_bit", "words_for"]

Bits = NDArray[np.uint64]
"""By row, a set of brokers: bit b % 64 of word b // 64."""


class Links(NamedTuple):
    """Bytes from one broker to another; each pair of brokers occurs once."""

    sender: Index
    receiver: Index
    bytes: Index

    def sent(self, brokers: int) -> Index:
        """Bytes that each broker sends."""
        return np.bincount(self.sender, self.bytes, brokers).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a batch of messages went; arrays by message, in their order."""

    hops: Index  # transmissions between brokers
    gateways: Index  # brokers reached that take part in the region
    depths: Index  # the hops from the server to each of them, added up
    reached: Bits  # the brokers that got the message
    links: Links

    @property
    def hop_latency(self) -> float:
        """Mean hops from the server to a gateway."""
        return float(self.depths.sum() / max(1, self.gateways.sum()))

    def _check(self) -> None:
        assert len(self.hops) == len(self.gateways) == len(self.depths) == len(self.reached)
        assert np.all(self.gateways <= np.bitwise_count(self.reached).sum(axis=1))
        assert np.all(self.links.bytes >= 0) and np.all(self.depths >= 0)


class Network(ABC):
    """Brokers, subscriptions at them, and a way for messages."""

    name: ClassVar[str]
    planes: int
    placement: BrokerPlacement
    _live: NDArray[np.bool_]  # by broker: takes part

    # -- brokers ------------------------------------------------------------------------------------

    @property
    def brokers(self) -> Index:
        """The brokers that take part."""
        return np.flatnonzero(self._live)

    @property
    @abstractmethod
    def server(self) -> int:
        """The broker at which messages enter."""

    def parents(self) -> Index | None:
        """By broker, the one above it, if all messages take one tree: the server is its own, -1 has none."""
        return None

    @abstractmethod
    def add_broker(self) -> int:
        """A broker joins; its number."""

    @abstractmethod
    def remove_broker(self, broker: int) -> None:
        """A broker leaves or crashes; others take its subscriptions over."""

    # -- subscriptions ------------------------------------------------------------------------------

    @abstractmethod
    def subscribe(self, slots: Index, points: ArrayLike, at: ArrayLike | None = None) -> Index:
        """Add subscriptions under free slots, (l, r) by plane each; their gateways.

        `at` are the brokers that subscribers choose; a network that places by interest does not read it.
        """

    @abstractmethod
    def unsubscribe(self, slots: Index) -> None:
        """Remove subscriptions."""

    # -- messages -----------------------------------------------------------------------------------

    @abstractmethod
    def deliver(self, messages: Messages, sizes: ArrayLike) -> Delivery:
        """Bring messages of so many bytes each to the brokers that need them."""

    def receivers(self, messages: Messages, delivery: Delivery) -> Recipients:
        """The subscriptions that receive messages: those in the region, at the brokers reached."""
        if messages.recipients is not None:
            gateway = self.placement.broker[messages.recipients.slot]
            arrived = has_bit(delivery.reached, messages.recipients.message, gateway)
            return Recipients(*(part[arrived] for part in messages.recipients))
        return self._receivers(messages.regions, delivery.reached)

    def _receivers(self, regions: Regions, reached: Bits) -> Recipients:
        members, boxes = self.placement.members(len(self._live)), boxes_of(regions)
        found, size = np.empty((2, 0), np.int64), 1024
        while size > found.shape[1]:
            found = np.empty((2, 2 * size), np.int64)
            size = int(find_receivers(boxes, regions.start, reached, members, found))
        return Recipients(found[0, :size].copy(), found[1, :size].copy())

    # -- state --------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Counts."""
        return {"brokers": len(self.brokers), "subscriptions": len(self.placement)}

    def _check(self) -> None:
        self.placement._check()
        slots = self.placement.slots()
        assert np.all(self._live[self.placement.broker[slots]]), "gateways take part"
        assert self._live[self.server]


class OverlayNetwork(Network):
    """A network that places subscriptions and routes messages itself, not over another one."""

    def __init__(self, brokers: int = 1, planes: int = 2) -> None:
        if brokers < 1:
            raise UsageError(f"a network of {brokers} brokers", hint="at least 1")
        self.planes = planes
        self.placement = BrokerPlacement(2 * planes)
        self._live = np.ones(brokers, np.bool_)

    def add_broker(self) -> int:
        free = np.flatnonzero(~self._live)
        broker = int(free[0]) if len(free) else len(self._live)
        self._live = np.append(self._live, False) if not len(free) else self._live
        self._live[broker] = True
        self._joined(broker)
        return broker

    def remove_broker(self, broker: int) -> None:
        if not 0 <= broker < len(self._live) or not self._live[broker]:
            raise UsageError(f"there is no broker {broker}", hint="those of `brokers`")
        if len(self.brokers) == 1:
            raise UsageError("the last broker cannot leave", hint="add one before")
        self._live[broker] = False
        self._left(broker)

    @abstractmethod
    def _joined(self, broker: int) -> None:
        """Give a new broker its place."""

    @abstractmethod
    def _left(self, broker: int) -> None:
        """Give the subscriptions of a broker that has left to others."""

    def subscribe(self, slots: Index, points: ArrayLike, at: ArrayLike | None = None) -> Index:
        places = np.asarray(points, np.int64).reshape(len(slots), 2 * self.planes)
        wanted = None if at is None else np.asarray(at, np.int64)
        if wanted is not None and not np.all(np.isin(wanted, self.brokers)):
            raise UsageError("a subscription at a broker that does not take part", hint="those of `brokers`")
        self.placement.require_free(slots)
        self._enter(np.asarray(slots, np.int64), places, wanted)
        return self.placement.broker[slots]

    def unsubscribe(self, slots: Index) -> None:
        self.placement.require_taken(slots)
        self._leave(np.asarray(slots, np.int64))

    @abstractmethod
    def _enter(self, slots: Index, points: NDArray[np.int64], at: Index | None) -> None:
        """Place subscriptions."""

    def _leave(self, slots: Index) -> None:
        self.placement.remove(slots)

    def deliver(self, messages: Messages, sizes: ArrayLike) -> Delivery:
        bytes_ = np.broadcast_to(np.asarray(sizes, np.int64), len(messages))
        if messages.recipients is not None:
            return self._send(messages.recipients, bytes_)
        boxes = messages.regions.boxes
        if boxes.shape[1] != self.planes or np.any(boxes[:, :, 0::2] > boxes[:, :, 1::2]):
            raise UsageError(
                f"a region with an empty box, or not of {self.planes} planes",
                hint="(low, high) of each end, by plane",
            )
        return self._deliver(messages.regions, np.ascontiguousarray(bytes_))

    @abstractmethod
    def _deliver(self, regions: Regions, sizes: Index) -> Delivery: ...

    def _send(self, recipients: Recipients, sizes: Index) -> Delivery:
        """Directly from the server to the gateway of each recipient, one hop each."""
        message, gateway = recipients.message, self.placement.broker[recipients.slot]
        hops = np.bincount(message, minlength=len(sizes))
        links = np.zeros(len(self._live), np.int64)
        np.add.at(links, gateway, sizes[message])
        receiver = np.flatnonzero(links)
        reached = bits_of(message, gateway, (len(sizes), len(self._live)))
        sent = Links(np.full(len(receiver), self.server), receiver, links[receiver])
        return Delivery(hops, np.bitwise_count(reached).sum(axis=1), hops.copy(), reached, sent)


# -- sets of brokers ---------------------------------------------------------------------------------


def boxes_of(regions: Regions) -> NDArray[np.int64]:
    """By box and dimension (l and r of each plane): low, high."""
    boxes = regions.boxes
    return boxes.reshape(len(boxes), boxes.shape[1] * 2, 2)


def words_for(brokers: int) -> int:
    """Words of a set of brokers."""
    return (brokers + 63) // 64


def bits_of(row: Index, broker: Index, shape: tuple[int, int]) -> Bits:
    """Sets from pairs of a row and a broker; `shape` is rows and brokers.

    >>> bits_of(np.array([0, 0, 2]), np.array([1, 65, 0]), (3, 70)).tolist()
    [[2, 2], [0, 0], [1, 0]]
    """
    out = np.zeros((shape[0], words_for(shape[1])), np.uint64)
    np.bitwise_or.at(out, (row, broker >> 6), np.uint64(1) << (broker & 63).astype(np.uint64))
    return out


def has_bit(bits: Bits, row: Index | int, broker: Index | int) -> NDArray[np.bool_]:
    """Whether sets have a broker; arrays of rows and brokers of one length, or one broker for all."""
    at = np.asarray(broker, np.int64)
    word = bits[row, at >> 6]
    return np.asarray((word >> (at & 63).astype(np.uint64)) & np.uint64(1), np.bool_)
