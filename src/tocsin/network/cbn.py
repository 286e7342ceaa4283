"""CBN: brokers in a tree, each link with a digest of the subscriptions behind it.

             0 server            A message goes down a link if its region meets the digest of the link. A
           / | \\                broker knows its own subscriptions and the digests of its links, no more:
          1  2  3                the digest it sends upwards is made of those.
         /|     |\\
        4 5     6 7              A broker that leaves gives its links and subscriptions to the one above.

Subscribers are where they chose to be: the gain of digests depends on neighbours that want the same.

>>> network = Cbn(brokers=3, planes=1)
>>> network.subscribe(np.arange(3), [[(1, 5)], [(2, 6)], [(8, 9)]], at=[1, 1, 2]).tolist()
[1, 1, 2]
>>> network.digest(1).boxes.tolist()  # of the link to broker 1
[[[1, 1], [5, 5]], [[2, 2], [6, 6]]]

Cost of a message: O(links of the brokers reached × K × boxes). NETWORK.md, 10.4.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import UsageError
from tocsin.model.columns import Index
from tocsin.model.message import Regions
from tocsin.network._kernels.digests import DigestTraffic, DigestTree, deliver_by_digests
from tocsin.network.base import Delivery, Links, OverlayNetwork, boxes_of, words_for
from tocsin.network.digests import Digest

__all__ = ["Cbn"]

FEW = 64  # so many subscriptions that come together enter digests one by one
GONE = 4  # a digest is made again once one in so many behind it has gone


class Cbn(OverlayNetwork):
    """A tree; `fan_out` links per broker, `boxes` per digest."""

    name: ClassVar[str] = "cbn"

    def __init__(self, brokers: int = 1, planes: int = 2, fan_out: int = 8, boxes: int = 16) -> None:
        super().__init__(brokers, planes)
        if fan_out < 1 or boxes < 1:
            raise UsageError(
                f"a tree with fan_out={fan_out} and boxes={boxes}",
                hint="at least one link per broker and one box per digest",
            )
        self.fan_out, self.boxes = fan_out, boxes
        self._parent = {i: _hub(i, fan_out) for i in range(1, brokers)}
        self._root = 0
        self._above = {i: Digest(2 * planes, boxes) for i in range(brokers)}  # of the link to a broker
        self._local = {i: Digest(2 * planes, boxes) for i in range(brokers)}
        self._gone = dict.fromkeys(range(brokers), 0)
        self._tree: DigestTree | None = None
        self.digests_sent = 0  # digests sent upwards

    @property
    def server(self) -> int:
        return self._root

    def digest(self, broker: int) -> Digest:
        """Of the link to a broker: of all subscriptions at it and below it."""
        return self._above[broker]

    # -- the tree -----------------------------------------------------------------------------------

    def children(self) -> dict[int, list[int]]:
        """The brokers below each broker, in order."""
        out: dict[int, list[int]] = {int(broker): [] for broker in self.brokers}
        for child, parent in sorted(self._parent.items()):
            out[parent].append(child)
        return out

    def parents(self) -> Index:
        out = np.full(len(self._live), -1)
        out[list(self._parent)] = list(self._parent.values())
        out[self._root] = self._root
        return out

    def _top_down(self) -> list[int]:
        children, order = self.children(), [self._root]
        for broker in order:
            order += children[broker]
        return order

    def _joined(self, broker: int) -> None:
        """Below the first broker, from the server down, that has a link to spare."""
        count = dict.fromkeys(self._above, 0)
        for parent in self._parent.values():
            count[parent] += 1
        children, order = self.children(), [self._root]
        for place in order:
            if count[place] < self.fan_out:
                self._parent[broker] = place
                break
            order += children[place]
        dimensions = 2 * self.planes
        self._above[broker], self._local[broker] = (Digest(dimensions, self.boxes) for _ in range(2))
        self._gone[broker], self._tree = 0, None

    def _left(self, broker: int) -> None:
        below = [child for child, parent in sorted(self._parent.items()) if parent == broker]
        if broker == self._root:
            self._root, *below = below
            place = self._root
            del self._parent[place]
        else:
            place = self._parent.pop(broker)
        for child in below:
            self._parent[child] = place
        for digests in (self._above, self._local):
            del digests[broker]
        del self._gone[broker]
        slots = self.placement.of(broker)
        self.placement.move(slots, place)
        self._tree = None
        self._make_again([place])

    # -- subscriptions ------------------------------------------------------------------------------

    def _enter(self, slots: Index, points: NDArray[np.int64], at: Index | None) -> None:
        place = self.brokers[slots % len(self.brokers)] if at is None else at
        self.placement.add(slots, points, place)
        self._tree = None
        if len(slots) > FEW:
            self._make_again(self._top_down())
            return
        for point, broker in zip(points, place.tolist(), strict=True):
            single = np.stack([point, point], axis=1)
            self._local[broker].enter(single)
            self._send_up(broker, single)

    def _send_up(self, broker: int, box: NDArray[np.int64] | None) -> None:
        """A box enters the digests of the link to a broker and of those above, as far as they change."""
        while broker != self._root and box is not None:
            box = self._above[broker].enter(box)
            self.digests_sent += box is not None
            broker = self._parent[broker]

    def _leave(self, slots: Index) -> None:
        lost = np.bincount(self.placement.broker[slots], minlength=len(self._live))
        super()._leave(slots)
        kept = np.diff(self.placement.members(len(self._live)).start)
        below = {broker: int(kept[broker]) for broker in self._gone}
        stale = []
        for broker in reversed(self._top_down()):
            self._gone[broker] += int(lost[broker])
            if broker != self._root:
                parent = self._parent[broker]
                below[parent] += below[broker]
                lost[parent] += lost[broker]
            if GONE * self._gone[broker] > below[broker] + self._gone[broker]:
                stale.append(broker)
        self._make_again(stale[::-1])

    def _make_again(self, brokers: list[int]) -> None:
        """Digests of some brokers, given from the top down, from their subscriptions and the links below."""
        members, children = self.placement.members(len(self._live)), self.children()
        for broker in reversed(brokers):
            points = members.point[members.start[broker] : members.start[broker + 1]]
            self._local[broker].make_again(np.stack([points, points], axis=2))
            below = [self._above[child].boxes for child in children[broker]]
            self._above[broker].make_again(np.concatenate([self._local[broker].boxes, *below]))
            self._gone[broker] = 0
            if broker != self._root:
                self.digests_sent += 1
                for box in self._above[broker].boxes:
                    self._send_up(self._parent[broker], box)
        if brokers:
            self._tree = None

    # -- messages -----------------------------------------------------------------------------------

    def tree(self) -> DigestTree:
        """The tree as kernels read it."""
        if self._tree is None:
            count, children = len(self._live), self.children()
            listed = [children.get(broker, []) for broker in range(count)]
            start = np.cumsum([0, *(len(below) for below in listed)])
            child = np.array([broker for below in listed for broker in below], np.int64)
            above, local = (self._arrays(digests) for digests in (self._above, self._local))
            self._tree = DigestTree(start, child, *above, *local, self._root)
        return self._tree

    def _arrays(self, digests: dict[int, Digest]) -> tuple[Index, NDArray[np.int64]]:
        empty = np.empty((0, 2 * self.planes, 2), np.int64)
        found = [digests[i].boxes if i in digests else empty for i in range(len(self._live))]
        return np.cumsum([0, *(len(boxes) for boxes in found)]), np.concatenate(found)

    def _deliver(self, regions: Regions, sizes: Index) -> Delivery:
        brokers = len(self._live)
        out = DigestTraffic(
            np.zeros((len(regions), 3), np.int64),
            np.zeros((len(regions), words_for(brokers)), np.uint64),
            np.zeros(brokers, np.int64),
            np.empty((2, brokers), np.int64),
        )
        deliver_by_digests(self.tree(), boxes_of(regions), regions.start, sizes, out)
        receiver = np.flatnonzero(out.links)
        sender = np.array([self._parent[i] for i in receiver.tolist()], np.int64)
        hops, gateways, depths = np.ascontiguousarray(out.counts.T)
        return Delivery(hops, gateways, depths, out.reached, Links(sender, receiver, out.links[receiver]))

    def stats(self) -> dict[str, Any]:
        boxes = sum(len(digest.boxes) for digest in self._above.values())
        return {**super().stats(), "digest_boxes": boxes, "digests_sent": self.digests_sent}

    def _check(self) -> None:
        super()._check()
        order = self._top_down()
        assert sorted(order) == self.brokers.tolist(), "one tree of all brokers"
        members = self.placement.members(len(self._live))
        below: dict[int, list[NDArray[np.int64]]] = {broker: [] for broker in order}
        for broker in reversed(order):
            mine = members.point[members.start[broker] : members.start[broker + 1]]
            assert len(self._above[broker].boxes) <= self.boxes
            assert np.all(self._local[broker].holds(mine))
            if broker != self._root:
                assert np.all(self._above[broker].holds(mine))
                assert all(self._above[broker].covers(box) for boxes in below[broker] for box in boxes)
                below[self._parent[broker]].append(self._above[broker].boxes)


def _hub(broker: int, fan_out: int) -> int:
    """The broker above: the first of each stretch of `fan_out` is their hub, on every level.

    >>> [_hub(i, 4) for i in range(1, 9)], _hub(20, 4), _hub(16, 4)
    ([0, 0, 0, 0, 4, 4, 4, 0], 16, 0)
    """
    if fan_out == 1:
        return broker - 1
    step = 1
    while broker % (step * fan_out) == 0:
        step *= fan_out
    return broker - broker % (step * fan_out)
