"""Random subscriptions, regions and changes of networks."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from tocsin.model.message import GREATEST, LEAST, Messages, Recipients, Regions
from tocsin.network.base import Network

__all__ = ["NetworkWorld", "expected", "messages_of"]


class NetworkWorld:
    """Points with ties and open ends; regions of one box, of boxes with a common corner, and of any boxes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.planes = self.random.choice([1, 2, 2, 3])
        self.values = self.random.choice([5, 50, 10**6])
        self.points: dict[int, list[tuple[int, int]]] = {}

    def _range(self) -> tuple[int, int]:
        low, high = sorted(self.random.randint(0, self.values) for _ in range(2))
        return self.random.choices([(LEAST, high), (low, GREATEST), (low, high)], weights=[7, 7, 86])[0]

    def subscribe(self, network: Network, most: int = 60) -> None:
        """Some subscriptions come; those who choose a broker choose any."""
        count = self.random.randint(0, most)
        free = [slot for slot in range(300) if slot not in self.points]
        slots = self.random.sample(free, min(count, len(free)))
        points = {slot: [self._range() for _ in range(self.planes)] for slot in slots}
        at = [self.random.choice(network.brokers.tolist()) for _ in slots]
        chooses = self.random.random() < 0.5
        array = np.array(list(points.values()), np.int64).reshape(len(slots), self.planes, 2)
        gateways = network.subscribe(np.array(slots, np.int64), array, np.array(at) if chooses else None)
        assert np.all(np.isin(gateways, network.brokers))
        self.points |= points

    def unsubscribe(self, network: Network) -> None:
        gone = self.random.sample(sorted(self.points), self.random.randint(0, len(self.points)))
        network.unsubscribe(np.array(gone, np.int64))
        for slot in gone:
            del self.points[slot]

    def change_brokers(self, network: Network) -> None:
        for _ in range(self.random.randint(1, 5)):
            if len(network.brokers) > 1 and self.random.random() < 0.6:
                network.remove_broker(self.random.choice(network.brokers.tolist()))
            else:
                before = network.brokers.tolist()
                broker = network.add_broker()
                assert sorted([*before, broker]) == network.brokers.tolist()

    def messages(self, count: int) -> Messages:
        return messages_of(Regions.of([self._region() for _ in range(count)], self.planes))

    def _region(self) -> list[list[tuple[int, int, int, int]]]:
        kind = self.random.random()
        planes = [[self._rectangle()] for _ in range(self.planes)]
        if kind < 0.4:
            points = sorted(self.random.randint(0, self.values) for _ in range(self.random.randint(0, 4)))
            planes[-1] = [(LEAST, value, value, GREATEST) for value in points]
        elif kind < 0.6:
            planes[0] = [self._rectangle() for _ in range(self.random.randint(1, 3))]
        return planes

    def _rectangle(self) -> tuple[int, int, int, int]:
        value = self.random.randint(0, self.values)
        a, b = sorted(self.random.randint(0, self.values) for _ in range(2))
        c, d = sorted(self.random.randint(0, self.values) for _ in range(2))
        shapes = [(LEAST, value, value, GREATEST), (a, b, c, d), (LEAST, GREATEST, LEAST, GREATEST)]
        return self.random.choices(
            [*shapes, (min(a, value), value, value, GREATEST)], weights=[50, 25, 5, 20]
        )[0]


def messages_of(regions: Regions, recipients: Recipients | None = None) -> Messages:
    """Messages with nothing but regions."""
    count = len(regions)
    zeros = np.zeros(count, np.int64)
    kind = np.zeros(count, np.int8)
    return Messages(np.arange(count), zeros, kind, kind, zeros, zeros, zeros - 1, regions, recipients)


def expected(world: NetworkWorld, messages: Messages) -> list[tuple[int, int]]:
    """Pairs of a message and a slot, by brute force."""
    received: list[tuple[int, int]] = []
    for slot, point in world.points.items():
        held: NDArray[np.bool_] = messages.regions.contain(point)
        received += [(int(message), slot) for message in np.flatnonzero(held)]
    return sorted(received)
