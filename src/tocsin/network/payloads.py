"""Payloads in brokers: the body of a message crosses a link to a broker with a repository once (CN+).

    Update(.., light)    down   of some messages the id stands for the body
    Have                 up     these payloads have come: from now on their ids suffice
    Fetch, Payloads      up, down   payloads that a repository has dropped

The id of a payload is a hash of it. `PayloadNode` decides what is sent and kept; here are its frames. A
neighbour is known by its *incarnation*, a text that a broker draws when it starts: what it has acknowledged
counts again when it connects again, and not after a restart. Brokers without a repository, and clients, get
bodies.

A broker that lacks a payload that somebody below needs requests it from its parent, and that from its own,
up to the server. Until it comes, frames of the parent wait, so that their order stays. If nobody has it,
the broker resumes from the server's log, which has bodies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import count

import numpy as np
from numpy.typing import NDArray

from tocsin.network.batches import MessageBatch
from tocsin.network.payload_node import PayloadNode
from tocsin.network.routing import Routed
from tocsin.network.wire import ID_BYTES, FrameError, PackedBatch

__all__ = ["LEAST_PAYLOAD", "PayloadCache", "ids_in", "light_bits", "payload_id", "with_bodies"]

LEAST_PAYLOAD = 64  # bytes; smaller bodies are sent as they are
DIRECTORY = 100_000  # ids of which is known who has them


def payload_id(payload: bytes) -> bytes:
    """Equal payloads have equal ids, and nobody finds two payloads with one id."""
    return blake2b(payload, digest_size=ID_BYTES).digest()


def with_bodies(batch: MessageBatch, bodies: Sequence[bytes]) -> MessageBatch:
    """The messages with other bodies."""
    ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
    return MessageBatch(batch.messages, batch.form, ends, b"".join(bodies))


class PayloadCache:
    """What a node knows of payloads: its repository, and those of the brokers below it."""

    def __init__(self, repository: int) -> None:
        self.state = PayloadNode(DIRECTORY, repository, len)
        self.fetched: dict[bytes, bytes] = {}  # for the frame that waits for them
        self.missing: set[bytes] = set()  # by the frame that waits
        self._peers: dict[str, int] = {}  # by incarnation
        self._numbers = count(1)

    def number_of(self, incarnation: str) -> int:
        """The number of a neighbour in this incarnation."""
        if incarnation not in self._peers:
            self._peers[incarnation] = next(self._numbers)
            if len(self._peers) > 10_000:
                self._peers.pop(next(iter(self._peers)))
        return self._peers[incarnation]

    def acknowledged(self, incarnation: str, ids: Sequence[bytes]) -> None:
        """A broker below has payloads."""
        for ident in ids:
            self.state.acknowledged(ident, self.number_of(incarnation), 1)

    def found(self, incarnation: str, ident: bytes) -> bytes | None:
        """The payload for a broker that fetches it, if the repository has it."""
        self.state.dropped(ident, self.number_of(incarnation))
        payload: bytes | None = self.state.payload_of(ident)
        return payload

    def drop_frame(self) -> None:
        """Nothing waits any more."""
        self.fetched.clear()
        self.missing.clear()

    # -- a batch -----------------------------------------------------------------------------------

    def open(
        self, batch: MessageBatch, light: NDArray[np.bool_], routed: Routed, plus: Mapping[int, str]
    ) -> tuple[MessageBatch, list[bytes], list[bytes | None], bytes]:
        """The batch with all bodies that are at hand; by message its id, if it has one, and its payload.

        `plus` has the incarnations of links to brokers with a repository. `missing` then has the ids that
        must be fetched first. Last, the ids of payloads that came with the batch, for who has sent it.
        """
        links: list[dict[int, int]] = [{} for _ in range(len(batch))]
        is_local = np.zeros(len(batch), np.bool_)
        for i, link in enumerate(routed.links.tolist()):
            mine = routed.message[routed.start[i] : routed.start[i + 1]]
            if incarnation := plus.get(link):
                number = self.number_of(incarnation)
                for m in mine.tolist():
                    links[m][number] = 1
            else:
                is_local[mine] = True
        idents: list[bytes] = []
        payloads: list[bytes | None] = []
        bodies: list[bytes] = []
        came: list[bytes] = []
        self.missing.clear()
        for m, is_light in enumerate(light.tolist()):
            body = batch.body(m)
            if not is_light and len(body) < LEAST_PAYLOAD:
                idents.append(b"")
                payloads.append(body)
                bodies.append(body)
                continue
            ident = body if is_light else payload_id(body)
            given = self.fetched.get(ident) if is_light else body
            payload, is_missing = self.state.receive(ident, given, links[m], bool(is_local[m]))
            if is_missing:
                self.missing.add(ident)
            if not is_light:
                came.append(ident)
            idents.append(ident)
            payloads.append(payload)
            bodies.append(ident if payload is None else payload)
        opened = with_bodies(batch, bodies) if light.any() else batch
        self._links = links
        return opened, idents, payloads, b"".join(ident for ident in came if self.state.has(ident))

    def lightened(
        self, idents: Sequence[bytes], payloads: Sequence[bytes | None]
    ) -> list[dict[int, bytes | None]]:
        """After `open`, by message and number of a neighbour: the payload, None if its id suffices."""
        out: list[dict[int, bytes | None]] = []
        for ident, payload, links in zip(idents, payloads, self._links, strict=True):
            if not ident:
                out.append(dict.fromkeys(links, payload))
                continue
            out.append({s.peer: s.payload for s in self.state.forward(ident, payload, 0, links)})
        return out

    def packed(
        self,
        batch: MessageBatch,
        mine: NDArray[np.int64],
        idents: Sequence[bytes],
        sent: Sequence[Mapping[int, bytes | None]],
        number: int,
    ) -> tuple[PackedBatch, bytes]:
        """The messages of one neighbour, with ids for the payloads that it has; which ones those are."""
        at = mine.tolist()
        light = np.array([bool(idents[m]) and sent[m][number] is None for m in at], np.bool_)
        if not light.any():
            return PackedBatch.of(batch.take(mine)), b""
        bodies = [idents[m] if is_light else batch.body(m) for m, is_light in zip(at, light, strict=True)]
        return PackedBatch.of(with_bodies(batch.take(mine), bodies)), np.packbits(light).tobytes()

    def _check(self) -> None:
        self.state._check()
        assert not self.missing & set(self.fetched)


def ids_in(data: bytes) -> list[bytes]:
    """Ids one after the other; FrameError if the bytes are none."""
    if len(data) % ID_BYTES:
        raise FrameError(f"{len(data)} bytes are no ids")
    return [data[at : at + ID_BYTES] for at in range(0, len(data), ID_BYTES)]


def light_bits(light: bytes, batch: MessageBatch) -> NDArray[np.bool_]:
    """Of which messages the body is an id; FrameError if it cannot be."""
    if not light:
        return np.zeros(len(batch), np.bool_)
    if len(light) != (len(batch) + 7) // 8:
        raise FrameError(f"{len(light)} bytes of bits for {len(batch)} messages")
    found = np.unpackbits(np.frombuffer(light, np.uint8), count=len(batch)).astype(np.bool_)
    if (np.diff(batch.ends, prepend=0)[found] != ID_BYTES).any():
        raise FrameError("the id of a payload has another length")
    return found
