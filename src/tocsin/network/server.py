"""The server over TCP: an engine whose tables' changes are described and sent to brokers and clients."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection, Mapping
from uuid import uuid4

from tocsin.engine import Engine
from tocsin.network.described import LEASE, DescribedQueries, TokenScope
from tocsin.network.node import DIGEST_BOXES
from tocsin.network.payloads import PayloadCache
from tocsin.network.root import MessageLog, Root
from tocsin.network.stations import LoopThread, Station
from tocsin.reformulate.joins import SemijoinsMerged
from tocsin.store.step import Step

__all__ = ["Server", "ServerThread", "serve"]

LINGER = 0.002  # seconds that a server waits for more messages
REPOSITORY = 64 << 20  # bytes of payloads that brokers may fetch again


class Server(Station):
    """The root: what an engine's tables become is described and sent."""

    def __init__(
        self,
        engine: Engine,
        *,
        tokens: Mapping[str, TokenScope | Collection[str] | None] | None = None,
        scheme: str = SemijoinsMerged.name,
        lease: float | None = LEASE,
        log_bytes: int = 256 << 20,
        digest_boxes: int = DIGEST_BOXES,
        needs_certificates: bool = False,
    ) -> None:
        self.service = DescribedQueries(engine, tokens, scheme, lease=lease)
        self.root = Root(uuid4().hex, self.service, MessageLog(log_bytes), digest_boxes=digest_boxes)
        self.root.payloads = PayloadCache(REPOSITORY)  # for brokers below that have one
        self.root.watermark = self.root.log.first = engine.last_seq
        super().__init__(
            self.root,
            name="server",
            tokens=None if tokens is None else list(tokens),
            needs_certificates=needs_certificates,
        )
        self._engine = engine
        self._scopes = {token: TokenScope.of(given) for token, given in (tokens or {}).items()}
        self._stop: Callable[[], None] = lambda: None
        self._is_flushing = False

    async def listen(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        await super().listen(address, tls)
        loop = asyncio.get_running_loop()

        def changed(_: Step) -> None:
            loop.call_soon_threadsafe(self._flush_soon)

        self._stop = self._engine.on_step(changed)

    def _is_for_brokers(self, token: str) -> bool:
        return token in self._scopes and self._scopes[token] == TokenScope()

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_later(LINGER, self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        self.send(self.root.flush())

    async def close(self) -> None:
        self._stop()
        self.service.close()
        self.send(self.root.flush())
        await super().close()


class ServerThread:
    """A running server; `close` ends it, also at the end of a `with` block."""

    def __init__(self, server: Server, address: str, tls: ssl.SSLContext | None) -> None:
        self.server = server
        self._thread = LoopThread("tocsin-server")
        try:
            self._thread.run(server.listen(address, tls))
        except BaseException:
            server.service.close()
            self._thread.close()
            raise

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return self.server.port

    def close(self) -> None:
        """Close all connections and the port."""
        if self._thread.is_running:
            self._thread.run(self.server.close(), 30)
            self._thread.close()

    def __enter__(self) -> ServerThread:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(
    engine: Engine,
    address: str,
    *,
    tokens: Mapping[str, TokenScope | Collection[str] | None] | None = None,
    tls: ssl.SSLContext | None = None,
    scheme: str = SemijoinsMerged.name,
    log_bytes: int = 256 << 20,
    lease: float | None = LEASE,
    needs_certificates: bool = False,
) -> ServerThread:
    """Serve the queries of an engine to brokers and clients, in a thread, until it is closed.

    `tokens` maps each token to the tables and streams that it may read, None for all, or to a `TokenScope`;
    without it everybody may read everything. Brokers use a token too. `log_bytes` bounds the messages kept
    for those who connect again; a client that was silent for `lease` seconds is removed. With
    `needs_certificates`, brokers must show a certificate (mutual TLS).

    `scheme` is how changes are described. The default sends a row only to those in whose join it is; its
    messages say who that is by values of other rows, which all clients that receive them can read. With
    "rel-sel", or for a token with `TokenScope(tables, private=True)`, messages show nothing but their own
    row, and clients hold rows that do not matter.
    """
    server = Server(
        engine,
        tokens=tokens,
        scheme=scheme,
        lease=lease,
        log_bytes=log_bytes,
        needs_certificates=needs_certificates,
    )
    return ServerThread(server, address, tls)
