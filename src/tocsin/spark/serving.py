"""A server over a pipeline's messages: brokers and clients follow what the pipeline describes.

    pipeline ─► files or a topic ─► SinkServer ─► brokers ─► tocsin.connect(...).subscribe(sql)

    with serve_sink("messages", ":7711", state_dir="state"): ...
    with serve_sink(Topic("messages", "broker:9092"), ":7711", state_dir="state"): ...

It has no tables. A client may follow what the pipeline describes under the same text; its content is made
from the messages, from the batch on in which the subscription began. When a subscription that somebody
follows is replaced or removed in the pipeline, all connections are closed before the batch is sent, and
clients start again: they get the new content, or a refusal with the reason.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from hmac import compare_digest
from itertools import count
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import numpy as np

from tocsin.errors import SubscriptionError, TocsinError
from tocsin.network.batches import MessageBatch
from tocsin.network.described import FollowRequest
from tocsin.network.holdings import Part, Snapshot
from tocsin.network.root import MessageLog, Reply, Root
from tocsin.network.routing import NO_BOXES, points_as_boxes
from tocsin.network.server import ServerThread
from tocsin.network.stations import Station
from tocsin.network.wire import FormBoxes
from tocsin.reformulate.contents import Held, SemijoinContents
from tocsin.spark.message_sources import MessageSource, source_of
from tocsin.spark.messages import OutputPart
from tocsin.spark.storage.store import Store, open_store
from tocsin.spark.topic import Topic
from tocsin.spark.versions.store import Versions

__all__ = ["SinkServer", "SinkService", "serve_sink"]

_log = logging.getLogger("tocsin.network")
POLL = 0.5  # seconds between two looks at the source


class _Started(NamedTuple):
    """Where a subscription began."""

    batch: int
    definitions: dict[str, str]  # of its tables
    parts: list[Part]  # without rows


class SinkService:
    """Answers requests of clients from a pipeline's messages; a `Service` of `network/root.py`."""

    def __init__(self, source: MessageSource, ids: Callable[[str], int | None]) -> None:
        self._source, self._ids = source, ids
        self._lock = RLock()
        self.batch, self.seq = -1, 0  # the last one read
        self.is_outdated = False  # the next batch changes a subscription that somebody follows
        self._begun: dict[int, _Started] = {}
        self._numbers: dict[str, int] = {}  # by key of a client
        self._known: dict[int, tuple[str, int]] = {}  # by number: key, and id in the pipeline
        self._next = count()
        self._pending: list[MessageBatch] = []
        self.read()
        self._pending = []

    def close(self) -> None:
        """Leave the source."""
        self._source.close()

    def read(self) -> None:
        """Read the batches that are new, up to one that changes a subscription that somebody follows."""
        with self._lock:
            followed = {id for _, id in self._known.values()}
            for number, parts in self._source.new(self.batch):
                begins = [(begin, part) for part in parts for begin in part.begins]
                if followed.intersection(begin.subscription for begin, _ in begins):
                    self.is_outdated = True
                    return
                for begin, part in begins:
                    self._begun.pop(begin.subscription, None)
                    if not begin.ends:
                        for own in begin.parts:
                            own.rows = [[], []]
                        definitions = {table: part.definitions[table] for table in begin.tables}
                        self._begun[begin.subscription] = _Started(number, definitions, begin.parts)
                self._pending += [part.messages.open() for part in parts]
                self.batch, self.seq = number, max([self.seq, *(part.seq for part in parts)])

    def restart(self) -> None:
        """Nobody follows anything any more."""
        with self._lock:
            self._numbers.clear()
            self._known.clear()
            self.is_outdated = False

    # -- service -----------------------------------------------------------------------------------

    def frozen(self) -> AbstractContextManager[Any]:
        return self._lock

    def described(self) -> tuple[int, MessageBatch]:
        with self._lock:
            if not self.is_outdated:
                try:
                    self.read()
                except (
                    TocsinError
                ):  # as a part that is damaged: what was read is served, and it is tried again
                    _log.exception("the pipeline's messages cannot be read")
            batch, self._pending = MessageBatch.concat(self._pending), []
            return self.seq, batch

    def reply(self, body: bytes, seq: int) -> Reply:
        try:
            request = msgspec.msgpack.decode(body, type=FollowRequest)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise TocsinError(f"a request cannot be read: {error}") from None
        with self._lock:
            if not request.sql:
                self._known.pop(self._numbers.pop(request.key, -1), None)
                return Reply(NO_BOXES, b"")
            number = self._numbers.get(request.key)
            if number is None:
                id = self._id_of(request.sql)
                number = self._numbers[request.key] = next(self._next)
                self._known[number] = request.key, id
            return Reply(self._wanted_by(number), self.snapshots([number], seq)[0])

    def _id_of(self, sql: str) -> int:
        id = self._ids(sql)
        if id is None or id not in self._begun:
            raise SubscriptionError(
                "the pipeline describes no subscription with this text", hint="add it to the pipeline first"
            )
        return id

    def wanted(self, key: str, subscriptions: Sequence[int]) -> tuple[list[int], FormBoxes]:
        with self._lock:
            own = [
                number
                for number in subscriptions
                if number in self._known
                and compare_digest(self._known[number][0].rpartition("/")[0].encode(), key.encode())
            ]
            found = [self._wanted_by(number) for number in own] or [NO_BOXES]
        forms, boxes = zip(*found, strict=True)
        return own, (np.concatenate(forms), np.concatenate(boxes))

    def _wanted_by(self, number: int) -> FormBoxes:
        parts = self._begun[self._known[number][1]].parts
        if not parts:
            return NO_BOXES
        return np.array([part.form for part in parts]), points_as_boxes([part.point for part in parts])

    def snapshots(self, subscriptions: Sequence[int], seq: int) -> list[bytes]:
        with self._lock:
            return [
                msgspec.msgpack.encode(self._snapshot(number, seq)) if number in self._known else b""
                for number in subscriptions
            ]

    def expire(self) -> int:
        return 0

    # -- contents ----------------------------------------------------------------------------------

    def _snapshot(self, number: int, seq: int) -> Snapshot:
        """A subscription as of the last batch read. O(messages since it began)."""
        id = self._known[number][1]
        begun = self._begun[id]
        parts = []
        for own in begun.parts:
            held = self._held(id, own, begun.batch)
            rows = [[(row, key, text) for row, (key, text) in side.items()] for side in held]
            parts.append(Part(own.form, own.kind, own.tables, own.point, 0, rows))  # type: ignore[arg-type]
        return Snapshot(number, seq, begun.definitions, parts)

    def _held(self, id: int, own: Part, first: int) -> tuple[Held, Held]:
        contents = SemijoinContents(({}, {}))
        for batch, parts in self._source.again(first, self.batch):
            if batch == first:
                contents = _beginning(id, parts)
            for part in parts:
                messages = part.messages.open()
                mine = (messages.form == own.form) & messages.messages.regions.contain(own.point)
                _apply(contents, messages.take(np.flatnonzero(mine)))
        return contents.held


def _beginning(id: int, parts: Sequence[OutputPart]) -> SemijoinContents:
    """What a subscription holds as it begins."""
    (rows,) = [
        own.rows for part in parts for begin in part.begins if begin.subscription == id for own in begin.parts
    ]
    left, right = ({row: (key, text) for row, key, text in side} for side in rows)
    return SemijoinContents((left, right))  # type: ignore[arg-type]


def _apply(contents: SemijoinContents, batch: MessageBatch) -> None:
    """Apply messages that are in order, change by change."""
    seq = batch.messages.seq
    for at in np.split(np.arange(len(batch)), np.flatnonzero(np.diff(seq)) + 1) if len(batch) else ():
        bodies: dict[int, dict[int, bytes]] = {0: {}, 1: {}}
        for i in at.tolist():
            if text := batch.body(i):
                bodies[int(batch.messages.side[i])][int(batch.messages.row[i])] = text
        contents.apply(batch.messages.take(at), bodies)


class SinkServer(Station):
    """The root of a network over a pipeline's messages."""

    def __init__(
        self, service: SinkService, *, tokens: Collection[str] | None = None, log_bytes: int = 256 << 20
    ) -> None:
        self.service = service
        self.root = Root(uuid4().hex, service, MessageLog(log_bytes))
        self.root.watermark = self.root.log.first = service.seq
        super().__init__(self.root, name="server", tokens=tokens)

    async def listen(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        await super().listen(address, tls)
        self.start(self._repeat(POLL, self._flush))

    async def close(self) -> None:
        await super().close()
        self.service.close()

    def _flush(self) -> None:
        self.send(self.root.flush())
        if not self.service.is_outdated:
            return
        self.root.server = uuid4().hex  # whoever connects again starts again
        self.service.restart()
        for peer in list(self.peers.values()):
            peer.abort()


def serve_sink(
    place: str | Path | Topic,
    address: str,
    *,
    state_dir: str | Path,
    tokens: Collection[str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> ServerThread:
    """Serve what a pipeline describes to brokers and clients, in a thread, until it is closed.

    `place` is the folder of a file sink with `output="messages"` or a topic, which is closed with the server;
    `state_dir` is the pipeline's: there the texts of subscriptions are looked up. Whoever has one of the
    tokens may follow all of them.
    """
    service = SinkService(source_of(place), _ids_in(open_store(state_dir) / "subscriptions"))
    return ServerThread(SinkServer(service, tokens=tokens), address, tls)  # type: ignore[arg-type]


def _ids_in(store: Store) -> Callable[[str], int | None]:
    """The id of a text in the newest version."""
    versions = Versions(store)
    known: dict[int, dict[str, int]] = {}

    def found(sql: str) -> int | None:
        newest = versions.newest()
        if newest.number not in known:
            known.clear()
            known[newest.number] = {row.sql.strip(): row.id for row in newest.rows()}
        return known[newest.number].get(sql.strip())

    return found
