"""The server's node: gives messages their way, answers questions, and keeps a log of messages.

    Service (subscriptions, snapshots) ─► Root ─► links below, as those of any node (`node.py`)
                                           │
                                       MessageLog: what was sent of late, for those who resume

The log is bounded by messages and bytes. Whoever is farther behind gets snapshots instead: a client one of
each of its subscriptions, a broker none, as it has no contents; it has its children resume themselves.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from tocsin.errors import TocsinError, UsageError
from tocsin.network.batches import MessageBatch
from tocsin.network.node import DIGEST_BOXES, MAX_POINTS, Node, Send
from tocsin.network.routing import NO_BOXES, are_met, digest_of
from tocsin.network.wire import (
    MAX_FRAME,
    MAX_PIECE,
    Answer,
    ClientRequest,
    FormBoxes,
    PackedBatch,
    Replay,
    Resume,
    Update,
    read_boxes,
    write_boxes,
)

__all__ = ["MessageLog", "Reply", "Root", "Service"]


_log = logging.getLogger("tocsin.network")
MAX_BODY = MAX_FRAME - (1 << 20)  # bytes of contents in one frame


class Reply(NamedTuple):
    """What a service answers: what is wanted from now on, and bytes for the asker."""

    wanted: FormBoxes
    body: bytes


class Service(Protocol):
    """Answers requests of clients; a TocsinError rejects one, and the client receives its text."""

    def frozen(self) -> AbstractContextManager[Any]:
        """Nothing changes inside."""

    def described(self) -> tuple[int, MessageBatch]:
        """The last seq, and the messages up to it that were not returned before."""

    def reply(self, body: bytes, seq: int) -> Reply:
        """Answer a request as of a seq."""

    def wanted(self, key: str, subscriptions: Sequence[int]) -> tuple[list[int], FormBoxes]:
        """Of some subscriptions those that a client with this key has made, and what they want."""

    def snapshots(self, subscriptions: Sequence[int], seq: int) -> list[bytes]:
        """The contents of subscriptions as of a seq; an unknown one is empty bytes."""

    def expire(self) -> int:
        """Remove clients that were silent for too long; returns how many subscriptions ended."""


class MessageLog:
    """The last messages, in batches.

    >>> log = MessageLog(most_bytes=1000)
    >>> log.reaches(0), log.first
    (True, 0)
    """

    def __init__(self, most_bytes: int = 256 << 20) -> None:
        if most_bytes < 0:
            raise UsageError(f"a log of {most_bytes} bytes", hint="0 keeps nothing")
        self.first = 0  # it has everything after this seq
        self.bytes = 0
        self._most = most_bytes
        self._batches: deque[tuple[int, MessageBatch, int]] = deque()  # last seq, messages, bytes

    def append(self, seq: int, batch: MessageBatch) -> None:
        """Messages up to a seq."""
        if not len(batch):
            return
        size = sum(batch.sizes) * 80 + len(batch.data)
        self._batches.append((seq, batch, size))
        self.bytes += size
        while self.bytes > self._most:
            self.first, _, gone = self._batches.popleft()
            self.bytes -= gone

    def reaches(self, seq: int) -> bool:
        """Whether it has everything after a seq."""
        return seq >= self.first

    def after(self, seq: int, wanted: FormBoxes) -> MessageBatch:
        """The messages after a seq that meet one of some boxes."""
        parts: list[MessageBatch] = []
        for last, batch, _ in reversed(self._batches):
            if last <= seq or not len(wanted[0]):
                break
            parts.append(batch.take(are_met(batch, wanted) & (batch.messages.seq > seq)))
        return MessageBatch.concat(parts[::-1])


class Root(Node):
    """The node of a server."""

    def __init__(
        self,
        server: str,
        service: Service,
        log: MessageLog | None = None,
        *,
        digest_boxes: int = DIGEST_BOXES,
    ) -> None:
        super().__init__(digest_boxes=digest_boxes)
        self.server = server
        self.log = log or MessageLog()
        self._service = service

    @property
    def is_top(self) -> bool:
        return True

    def publish(self, seq: int, batch: MessageBatch) -> list[Send]:
        """Messages of all changes up to a seq."""
        self.log.append(seq, batch)
        self.watermark = seq
        return self.send_down(batch)

    def remind(self) -> list[Send]:
        """Remove clients that left without a Bye."""
        self._service.expire()
        return super().remind()

    def flush(self) -> list[Send]:
        """Send what the service has described."""
        seq, batch = self._service.described()
        return self.publish(seq, batch) if seq > self.watermark else []

    def _client_request(self, link: int, request: ClientRequest) -> list[Send]:
        with self._service.frozen():
            sends = self.flush()  # what comes after the answer is after its snapshot
            try:
                reply, failure = self._service.reply(request.body, self.watermark), ""
            except TocsinError as error:
                reply, failure = Reply(NO_BOXES, b""), str(error)
            except Exception as error:  # noqa: BLE001  a fault of ours must not cost a link that serves others
                _log.exception("a request failed")
                reply, failure = Reply(NO_BOXES, b""), f"the server failed: {type(error).__name__}: {error}"
        if len(reply.body) > MAX_BODY:
            size = f"{len(reply.body) >> 20} MB"
            reply, failure = (
                Reply(NO_BOXES, b""),
                f"the content has {size}: at most {MAX_BODY >> 20} are sent\nhint: narrow the condition",
            )
        answer = Answer(0, 0, write_boxes(*reply.wanted), failure, reply.body)
        return sends + self.answer(link, request.request, answer)

    def _resume(self, link: int, resume: Resume) -> list[Send]:
        sends: list[Send] = []
        subscriptions: list[int] = []
        wanted = NO_BOXES
        if resume.key and resume.server == self.server:
            subscriptions, wanted = self._service.wanted(resume.key, resume.subscriptions)
            sends = self.grant(link, resume.request, write_boxes(*wanted))
        elif not resume.key and not self.children[link].is_client:
            wanted = read_boxes(resume.boxes, MAX_POINTS)
            self._enter(link, wanted)
        # who has subscriptions that are not known any more has to learn which
        is_whole = len(subscriptions) == len(resume.subscriptions)
        known = resume.server == self.server and self.log.reaches(resume.watermark) and is_whole
        snapshots, batch = [], PackedBatch()
        if known:
            few = wanted if len(wanted[0]) <= self._most else digest_of(*wanted, self._most)
            # pieces before the last go as updates, which those who resume take without their watermark
            *first, last = self.log.after(resume.watermark, few).pieces(MAX_PIECE)
            before = min(resume.watermark, self.watermark)
            sends += [Send(link, Update(before, PackedBatch.of(piece))) for piece in first]
            batch = PackedBatch.of(last)
        elif resume.subscriptions and resume.server == self.server:
            with self._service.frozen():
                sends += self.flush()
                snapshots = self._service.snapshots(subscriptions, self.watermark)
            sizes = np.cumsum([len(data) for data in snapshots])
            snapshots = [  # those that do not fit are requested one by one
                data if end <= MAX_BODY else b"" for data, end in zip(snapshots, sizes.tolist(), strict=True)
            ]
        replay = Replay(resume.request, self.watermark, self.server, snapshots, known, batch)
        return [*sends, Send(link, replay)]

    def _check(self) -> None:
        super()._check()
        assert self.log.bytes == sum(size for _, _, size in self.log._batches)
        assert np.all(np.diff([last for last, _, _ in self.log._batches]) > 0)
