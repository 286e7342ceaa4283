"""A tree of CN+ nodes that pass payloads to each other: what the kernel of `PayloadNetwork` must do, too.

>>> nodes = PayloadNodes(parents=[0, 0, 1], server=0, limits=(10, 10), plain=set())
>>> for _ in range(2):
...     nodes.send([7], reached={0, 1, 2}, local={2})
>>> nodes.full  # crossed each link once
2
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from tocsin.errors import TocsinError
from tocsin.network.payload_node import PayloadNode, PayloadProviders

__all__ = ["PayloadNodes"]


class PayloadNodes:
    """The server has all payloads; `limits` of directory and repository; plain nodes know nothing of CN+."""

    def __init__(
        self,
        parents: Sequence[int],
        server: int,
        limits: tuple[int, int],
        plain: set[int],
        *,
        refers: bool = True,
    ) -> None:
        self.providers = PayloadProviders(limits[1]) if refers else None
        self.nodes = [PayloadNode(*limits) for _ in parents]
        self.server, self.plain = server, plain - {server}
        self.children: list[list[int]] = [[] for _ in parents]
        for broker, parent in enumerate(parents):
            if parent >= 0 and broker != server:
                self.children[parent].append(broker)
        self.full = self.brought = self.detours = 0  # payloads over links, and to gateways; refusals
        self.fetches: Counter[str] = Counter()

    def send(
        self, idents: Sequence[int], reached: set[int], local: set[int], acks: random.Random | None = None
    ) -> None:
        """A message with some payloads, to the brokers reached; those with receivers must get all of them.

        With `acks`, three of ten acknowledgements are lost.
        """
        first: dict[int, tuple[object, int]] = {ident: (("payload", ident), self.server) for ident in idents}
        pending = [(self.server, first)]
        for broker, carried in pending:
            below = [child for child in self.children[broker] if child in reached]
            arrive: dict[int, dict[int, tuple[object, int]]] = {child: {} for child in below}
            for ident, (payload, source) in carried.items():
                payload, sends = self.step(broker, ident, payload, source, below, broker in local)
                if broker in local and payload != ("payload", ident):
                    raise TocsinError(f"broker {broker} has {payload} for payload {ident}")
                self.brought += broker in local
                for peer, sent, named in sends:
                    arrive[peer][ident] = sent, named
                    self.full += sent is not None
                    is_acked = sent is not None and not {peer, broker} & self.plain
                    if is_acked and (acks is None or acks.random() < 0.7):
                        self.nodes[broker].acknowledged(ident, peer, self.nodes[peer].incarnation)
                        if broker == self.server and self.providers is not None:
                            self.providers.give(ident, peer)
            pending += [(child, arrive[child]) for child in below]

    def step(
        self, broker: int, ident: int, payload: object, source: int, below: list[int], is_local: bool
    ) -> tuple[object, list[tuple[int, object, int]]]:
        """One payload at one broker: the payload there, and what goes on."""
        node, links = self.nodes[broker], {child: self.nodes[child].incarnation for child in below}
        if broker in self.plain:
            if payload is None:
                raise TocsinError(f"broker {broker}, which knows nothing of CN+, got an id alone")
            return payload, [(peer, payload, source) for peer in links]
        if broker == self.server:
            return payload, [(s.peer, s.payload, broker) for s in node.forward(ident, payload, broker, links)]
        payload, must_fetch = node.receive(ident, payload, links, is_local)
        if must_fetch:
            payload = self._fetch(ident, broker, source)
            node.keep(ident, payload)
        sends = node.forward(ident, payload, source, links)
        return payload, [(s.peer, s.payload, broker if s.source is None else s.source) for s in sends]

    def restart(self, broker: int) -> None:
        """A node loses its soft state."""
        self.nodes[broker].restart()
        if self.providers is not None:
            self.providers.discard(broker)

    def _fetch(self, ident: int, broker: int, source: int) -> object:
        """From the source, or from the server, or from whom it refers to."""
        found = None if source == self.server else self.nodes[source].payload_of(ident)
        self.detours += source != self.server and found is None
        if found is None and self.providers is not None:
            named = self.providers.named(ident, broker)
            if named is not None and named != self.server:
                found = self.nodes[named].payload_of(ident)
                self.detours += 1 + (found is None)
            self.providers.give(ident, broker)
        self.fetches["server" if found is None else "near"] += 1
        return found or ("payload", ident)
