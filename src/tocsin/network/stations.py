"""Stations: a node (`node.py`) with connections over TCP.

    Broker   a node between a parent and a port of its own            `tocsin broker --up host:7711`
    Server   the root: an engine, its messages, and a port            `server.py`

Each connection begins with Hello and Welcome: the version of the wire, a token, and who is there. Whatever
is wrong with a frame costs its connection, with a reason (Bye), and nothing else. A peer that does not read
is cut when 64 MB wait for it; it connects again and resumes from the server's log. Each side sends a Ping
when it has nothing else to send, so that a cable that is cut is noticed within some seconds.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from hmac import compare_digest
from itertools import count, groupby
from threading import Thread
from typing import Any, Protocol

from tocsin.errors import TocsinError, UsageError
from tocsin.network.batches import MessageBatch
from tocsin.network.node import DIGEST_BOXES, Node, Send
from tocsin.network.wire import (
    VERSION,
    Bye,
    Frame,
    FrameError,
    Hello,
    PackedBatch,
    Ping,
    Update,
    Welcome,
    decode,
    encode,
    length_of,
)

__all__ = ["Broker", "LoopThread", "Peer", "Station", "address_of"]

MAX_WAITING = 64 << 20  # bytes that wait for a peer
MAX_HELLO = 4096  # bytes of the first frame
PATIENCE = 10.0  # seconds until Hello
PING = 0.5  # seconds after which a Ping is sent if nothing else was
SILENT = 5  # times that long, and a peer that sends nothing is taken for lost
CONNECT = 2.5  # seconds to connect
TICK = 0.05  # seconds between watermarks for links without messages
REMIND = 1.0  # seconds until a request is repeated
FEWEST_BACK_OFF, MOST_BACK_OFF = 0.05, 2.0
LONGER = 1.3  # times as long each wait is: who is away for a while is found again within a third of it

log = logging.getLogger(__name__)


def address_of(text: str) -> tuple[str, int]:
    """Host and port; all addresses of this machine without a host.

    >>> address_of(":7711"), address_of("example.org:80"), address_of("[::1]:9")
    (('', 7711), ('example.org', 80), ('::1', 9))
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{text!r} is no address", hint="HOST:PORT, or :PORT for all of this machine's")
    return host.strip("[]"), int(port)


class Owner(Protocol):
    """Who has connections."""

    def opened(self, peer: Peer) -> None:
        """A connection is there."""

    def received(self, peer: Peer, frames: Sequence[Frame]) -> None:
        """Frames of one peer, in order; FrameError closes the connection."""

    def closed(self, peer: Peer) -> None:
        """A connection is gone."""


class Peer(asyncio.Protocol):
    """One connection: bytes to frames and back."""

    def __init__(self, owner: Owner, *, is_parent: bool = False) -> None:
        self.owner, self.is_parent = owner, is_parent
        self.link: int | None = None  # after Hello, or Welcome
        self.reason = ""  # why it was closed
        self.received = 0  # bytes
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._silent = 0  # looks at the connection since the peer has sent something
        self._has_sent = False  # since the last look
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._look_later()
        self.owner.opened(self)

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PING, self._look)

    def _look(self) -> None:
        """Say that this side is here, and see whether the other one is."""
        self._silent += 1
        if self._silent > SILENT and (self.link is not None or self.is_parent):
            self.reason = f"nothing came for {PING * SILENT:g} s"
            self.abort()
            return
        if not self._has_sent and self.link is not None:
            self.send(Ping())
        self._has_sent = False
        self._look_later()

    def data_received(self, data: bytes) -> None:
        self._silent = 0
        self.received += len(data)
        self._buffer += data
        try:
            frames = self._frames()
            if frames:
                self.owner.received(self, frames)
        except FrameError as error:
            self.close(str(error))
        except Exception:  # a mistake of ours: it costs this connection, as asyncio would, but with a reason
            log.exception("a frame could not be handled")
            self.close("a frame could not be handled")

    def eof_received(self) -> None:
        if self._buffer:
            self.close("the connection ended within a frame")

    def _frames(self) -> list[Frame]:
        """The frames that are complete."""
        frames: list[Frame] = []
        at, size = 0, len(self._buffer)
        while size - at >= 4:
            length = length_of(bytes(self._buffer[at : at + 4]))
            if self.link is None and not frames and length > MAX_HELLO:
                raise FrameError(f"a first frame of {length} bytes", hint=f"at most {MAX_HELLO}")
            if size - at - 4 < length:
                break
            frame = decode(bytes(self._buffer[at + 4 : at + 4 + length]))
            at += 4 + length
            if self.link is None or not isinstance(frame, Ping):
                frames.append(frame)
        del self._buffer[:at]
        return frames

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.reason = self.reason or (str(error) if error else "the peer has closed it")
        self.owner.closed(self)

    def send(self, frame: Frame) -> None:
        """Send a frame, or cut a peer that does not read."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > MAX_WAITING:
            self.reason = f"more than {MAX_WAITING >> 20} MB wait for it"
            self._transport.abort()
            return
        try:
            data = encode(frame)
        except TocsinError as error:
            self.close(str(error))
            return
        self._has_sent = True
        self._transport.write(data)

    def close(self, reason: str) -> None:
        """Say why, and close."""
        if self._transport is None or self._transport.is_closing():
            return
        self.reason = reason
        self._transport.write(encode(Bye(reason)))
        self._transport.close()

    def abort(self) -> None:
        """Close at once, as a cable that is cut."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def waiting(self) -> int:
        """How many bytes wait for the peer."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def certificate(self) -> Any:
        """The certificate that the peer has shown over TLS, if any."""
        return self._transport.get_extra_info("peercert") if self._transport is not None else None


class Station:
    """A node with a port: accepts clients and brokers, feeds frames to the node, sends what it says."""

    def __init__(
        self, node: Node, *, name: str, tokens: Collection[str] | None, needs_certificates: bool = False
    ) -> None:
        self.node, self.name = node, name
        self.peers: dict[int, Peer] = {}
        self.refused = 0  # connections closed because of what they sent
        self._tokens, self._needs_certificates = tokens, needs_certificates
        self._links = count(1)
        self._listener: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: dict[Peer, asyncio.TimerHandle] = {}  # for Hello

    async def listen(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        """Accept connections at an address."""
        host, port = address_of(address)
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(lambda: Peer(self), host or None, port, ssl=tls)
        except OSError as error:
            raise TocsinError(
                f"cannot listen at {address}: {error.strerror or error}",
                hint="another port; 0 takes a free one",
            ) from None
        self.start(self._repeat(TICK, lambda: self.send(self.node.tick())))
        self.start(self._repeat(REMIND, lambda: self.send(self.node.remind())))

    @property
    def port(self) -> int:
        """The port that it listens at."""
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Close all connections and the port."""
        for task in self._tasks:
            task.cancel()
        for peer in list(self.peers.values()):
            peer.close(f"{self.name} ends")
        if self._listener is not None:
            self._listener.close()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something until the station closes."""
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def _repeat(self, seconds: float, call: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            call()

    # -- connections -------------------------------------------------------------------------------

    def opened(self, peer: Peer) -> None:
        """A connection is there; its peer says Hello soon."""
        loop = asyncio.get_running_loop()
        self._waiting[peer] = loop.call_later(PATIENCE, peer.close, f"no Hello within {PATIENCE:g} s")

    def received(self, peer: Peer, frames: Sequence[Frame]) -> None:
        """Frames of one peer, in order."""
        if peer.link is None:
            self._greeted(peer, frames[0])
            frames = frames[1:]
        for frame in merged(frames):
            if isinstance(frame, Bye):
                peer.reason = frame.reason
                peer.abort()
                return
            assert peer.link is not None
            self.send(self.node.take(peer.link, frame))

    def _greeted(self, peer: Peer, hello: Frame) -> None:
        if not isinstance(hello, Hello):
            raise FrameError("the first frame is a Hello")
        if hello.version != VERSION:
            raise FrameError(f"version {hello.version} of the wire: this is version {VERSION}")
        if self._tokens is not None and not is_known(hello.token, self._tokens):
            raise FrameError("the token is unknown")
        if not hello.is_client and not peer.certificate():
            if self._needs_certificates:
                raise FrameError("a broker needs a certificate")
            if self._tokens is not None and not self._is_for_brokers(hello.token):
                raise FrameError("this token is not for brokers")
        self._waiting.pop(peer).cancel()
        peer.link = next(self._links)
        self.peers[peer.link] = peer
        self.node.add_child(
            peer.link, is_client=hello.is_client, incarnation=hello.incarnation, address=hello.address
        )
        peer.send(Welcome(VERSION, self.node.server))

    def _is_for_brokers(self, token: str) -> bool:
        """Whether the owner of a token may be a broker, which receives every table it requests."""
        return token.startswith("broker:")

    def closed(self, peer: Peer) -> None:
        """A connection is gone."""
        if (timer := self._waiting.pop(peer, None)) is not None:
            timer.cancel()
        if peer.link is None:
            self.refused += 1
            log.info("%s: a connection was refused: %s", self.name, peer.reason)
            return
        del self.peers[peer.link]
        log.info("%s: connection %d is closed: %s", self.name, peer.link, peer.reason)
        self.send(self.node.drop_child(peer.link))

    def send(self, sends: Sequence[Send]) -> None:
        """Send frames to the peers of their links."""
        for link, frame in sends:
            if (peer := self.peers.get(link)) is not None:
                peer.send(frame)


def merged(frames: Sequence[Frame]) -> list[Frame]:
    """Frames with consecutive Updates as one: they are routed together."""
    out: list[Frame] = []
    for is_update, same in groupby(frames, lambda frame: isinstance(frame, Update) and not frame.light):
        found = list(same)
        if not is_update or len(found) == 1:
            out += found
            continue
        batch = MessageBatch.concat([frame.batch.open() for frame in found if isinstance(frame, Update)])
        last = found[-1]
        assert isinstance(last, Update)
        out.append(Update(last.watermark, PackedBatch.of(batch)))
    return out


def is_known(token: str, tokens: Collection[str]) -> bool:
    """Whether a token is one of some, in time that does not depend on it."""
    found = [compare_digest(token.encode(), known.encode()) for known in tokens]
    return any(found)


class Broker(Station):
    """A station with a parent, which it looks for again whenever it is lost."""

    def __init__(
        self,
        up: Sequence[str],
        *,
        name: str = "",
        token: str = "",
        tokens: Collection[str] | None = None,
        tls_up: ssl.SSLContext | None = None,
        digest_boxes: int = DIGEST_BOXES,
        needs_certificates: bool = False,
        repository: int | None = None,
        public: str = "",
    ) -> None:
        super().__init__(
            Node(digest_boxes=digest_boxes, repository=repository),
            name=name or "broker",
            tokens=tokens,
            needs_certificates=needs_certificates,
        )
        if not up:
            raise UsageError("a broker needs a server or another broker above it", hint="--up HOST:PORT")
        self._up = [address_of(address) for address in up]
        self._token, self._tls_up = token, tls_up
        if public:
            address_of(public)
        self._public = public  # the address at which clients reach it
        self._lost: asyncio.Event | None = None
        self.connections = 0  # to parents, so far
        self.parent: Peer | None = None

    async def listen(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        await super().listen(address, tls)
        self.start(self._stay_connected())

    async def _stay_connected(self) -> None:
        """Connect to one of the addresses, in turn; wait longer after each failure."""
        loop, wait, turn = asyncio.get_running_loop(), FEWEST_BACK_OFF, 0
        while True:
            host, port = self._up[turn % len(self._up)]
            self._lost = asyncio.Event()
            before = self.connections
            try:
                peer = Peer(self, is_parent=True)
                async with asyncio.timeout(CONNECT):
                    await loop.create_connection(
                        lambda peer=peer: peer, host or "localhost", port, ssl=self._tls_up
                    )
                await self._lost.wait()
            except OSError as error:  # or TimeoutError, which is one
                level = logging.WARNING if wait == FEWEST_BACK_OFF else logging.INFO  # once each time
                log.log(level, "%s: %s:%d cannot be reached: %s", self.name, host, port, error)
            wait = FEWEST_BACK_OFF if self.connections > before else min(LONGER * wait, MOST_BACK_OFF)
            turn += 1
            await asyncio.sleep(wait)

    def opened(self, peer: Peer) -> None:
        if peer.is_parent:
            peer.send(Hello(VERSION, self._token, self.name, False, self.node.incarnation, self._public))
        else:
            super().opened(peer)

    def _greeted(self, peer: Peer, hello: Frame) -> None:
        if not peer.is_parent:
            super()._greeted(peer, hello)
            return
        if isinstance(hello, Bye):
            log.error("%s: the parent refused: %s", self.name, hello.reason)
            peer.abort()
            return
        if not isinstance(hello, Welcome):
            raise FrameError("the first frame is a Welcome")
        peer.link = next(self._links)
        self.peers[peer.link] = self.parent = peer
        self.connections += 1
        self.send(self.node.set_parent(peer.link, hello.server))

    def received(self, peer: Peer, frames: Sequence[Frame]) -> None:
        if peer.is_parent and peer.link is None and isinstance(frames[0], Bye):
            self._greeted(peer, frames[0])
            return
        super().received(peer, frames)

    def closed(self, peer: Peer) -> None:
        if not peer.is_parent:
            super().closed(peer)
            return
        if peer.link is not None:
            del self.peers[peer.link]
            self.parent = None
            self.node.drop_parent()
        if self._lost is not None:
            self._lost.set()


class LoopThread:
    """An event loop in a thread of its own, for callers without one."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any], seconds: float | None = None) -> Any:
        """Run something in the loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)

    @property
    def is_running(self) -> bool:
        return not self.loop.is_closed()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()
