"""One broker of CN+, without I/O: which payloads its neighbours have, and which it has itself.

    directory    payload id -> the neighbours that acknowledged it; those get the id alone
    repository   payload id -> payload, least recently used out first

>>> node = PayloadNode(directory=10, repository=10)
>>> node.receive("id", b"photo", links={5: 1}, is_local=True)  # a link to broker 5, in its first incarnation
(b'photo', False)
>>> node.forward("id", b"photo", source=0, links={5: 1})
[PayloadSend(peer=5, payload=b'photo', source=None)]
>>> node.acknowledged("id", peer=5, incarnation=1)
>>> node.forward("id", b"photo", source=0, links={5: 1, 6: 1})
[PayloadSend(peer=5, payload=None, source=None), PayloadSend(peer=6, payload=b'photo', source=None)]

An id stands for one payload: whoever changes a payload gives it another id. Simulated networks (`cnplus.py`)
and real brokers (`payloads.py`) use it. J08, section 5; NETWORK.md, 10.5.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

__all__ = ["DIRECTORY", "PayloadNode", "PayloadProviders", "PayloadSend"]

DIRECTORY = 16_384  # entries: 512 kB at 32 bytes each


class PayloadSend(NamedTuple):
    """To a neighbour: a payload, or None if its id suffices; the source, None for the sender itself."""

    peer: int
    payload: Any
    source: int | None


class PayloadNode:
    """The soft state of one broker."""

    def __init__(
        self, directory: int = DIRECTORY, repository: int = 400, size: Callable[[Any], int] = lambda _: 1
    ) -> None:
        """`repository` bounds the sum of the payloads' sizes: how many there are, unless `size` says more."""
        self._limits, self._size = (directory, repository), size
        self.incarnation = 0
        self.restart()

    def restart(self) -> None:
        """Everything is lost, and neighbours must not count on it: a new incarnation."""
        self._directory: OrderedDict[Hashable, dict[int, int]] = OrderedDict()
        self._repository: OrderedDict[Hashable, Any] = OrderedDict()
        self.stored = 0  # sizes in the repository
        self.incarnation += 1

    def keep(self, ident: Hashable, payload: Any) -> None:
        """A payload that came with a message, or was fetched."""
        if ident not in self._repository:
            self._repository[ident] = payload
            self.stored += self._size(payload)
        self._repository.move_to_end(ident)
        while self.stored > self._limits[1]:
            self.stored -= self._size(self._repository.popitem(last=False)[1])

    def payload_of(self, ident: Hashable) -> Any:
        """The payload if the repository has it, else None: also the answer to one who fetches."""
        if ident not in self._repository:
            return None
        self._repository.move_to_end(ident)
        return self._repository[ident]

    def has(self, ident: Hashable) -> bool:
        """Whether the repository has a payload: only then it is acknowledged."""
        return ident in self._repository

    def acknowledged(self, ident: Hashable, peer: int, incarnation: int) -> None:
        """A neighbour has got a payload; passed over if there is no entry any more."""
        if ident in self._directory:
            self._directory[ident][peer] = incarnation

    def dropped(self, ident: Hashable, peer: int) -> None:
        """A neighbour has dropped a payload, as it fetches it."""
        self._directory.get(ident, {}).pop(peer, None)

    def receive(
        self, ident: Hashable, payload: Any, links: Mapping[int, int], is_local: bool
    ) -> tuple[Any, bool]:
        """A message has come, with a payload or None: the payload at hand, and whether it must be fetched.

        It must if it is not at hand and somebody needs it: the broker's own subscribers, or a neighbour among
        the links that match (neighbour -> incarnation) that has not acknowledged it. What only passes by does
        not count as a use of the repository.
        """
        known = self._directory.get(ident, {})
        is_needed = is_local or any(known.get(peer) != born for peer, born in links.items())
        if payload is not None:
            self.keep(ident, payload)
        elif is_needed:
            payload = self.payload_of(ident)
        return payload, is_needed and payload is None

    def forward(
        self, ident: Hashable, payload: Any, source: int, links: Mapping[int, int]
    ) -> list[PayloadSend]:
        """What to send over the links that match. A payload that had to be fetched is kept before."""
        entry = self._directory.setdefault(ident, {})
        self._directory.move_to_end(ident)
        while len(self._directory) > self._limits[0]:
            self._directory.popitem(last=False)
        if ident not in self._directory:
            entry = {}
        named = None if ident in self._repository else source
        return [
            PayloadSend(peer, None if entry.get(peer) == born else payload, named)
            for peer, born in links.items()
        ]

    def _check(self) -> None:
        assert self.stored == sum(map(self._size, self._repository.values())) <= max(0, self._limits[1])
        assert len(self._directory) <= self._limits[0]


class PayloadProviders:
    """Whom the server gave each payload last: it refers others to them instead of giving it again.

    A broker that was given as many payloads since as its repository holds has probably dropped it, and is
    not named; one that is named and has dropped it refuses, and the server gives the payload.

    >>> providers = PayloadProviders(repository=400)
    >>> providers.give("id", broker=3)
    >>> providers.named("id", requester=5), providers.named("id", requester=3)
    (3, None)
    """

    def __init__(self, repository: int) -> None:
        self._limit = repository
        self._last: dict[Hashable, tuple[int, int]] = {}  # broker, and what it had been given before
        self._given: dict[int, int] = {}

    def give(self, ident: Hashable, broker: int) -> None:
        """A broker gets a payload: from the server, or from one that it was referred to."""
        count = self._given.get(broker, 0)
        self._last[ident], self._given[broker] = (broker, count), count + 1

    def named(self, ident: Hashable, requester: int) -> int | None:
        """Whom to refer a broker to."""
        broker, since = self._last.get(ident, (requester, 0))
        if broker == requester or self._given[broker] - since > self._limit:
            return None
        return broker

    def discard(self, broker: int) -> None:
        """A broker has lost all payloads."""
        self._last = {ident: last for ident, last in self._last.items() if last[0] != broker}
