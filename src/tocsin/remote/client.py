"""`Remote`: a server's API from Python, with calls that wait.

>>> from tocsin.server.local import local_server
>>> with local_server() as url, Remote(url) as remote:
...     _ = remote.define("CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol))")
...     cheap = remote.subscribe("SELECT symbol FROM stocks WHERE per < 5", subscriber="ann")
...     with remote.keep(subscriber="ann") as contents:
...         done = remote.publish("stocks", [{"symbol": "A", "per": 1.5}, {"symbol": "B", "per": 9}])
...         contents.wait(done.token)
...         contents.rows(cheap.id), remote.content(cheap.id)
([{'symbol': 'A'}], [{'symbol': 'A'}])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any, Self

import httpx

from tocsin.remote.api import KEPT_HEARTBEAT, Api
from tocsin.remote.contents import RemoteContents
from tocsin.remote.messages import MessageStream, RemoteMessage
from tocsin.remote.requests import Follow, RemoteError, RemoteRequest
from tocsin.remote.tries import Exchange, Following, Tries

__all__ = ["Remote"]

_SAVE_EVERY = 10.0


class Remote(Api):
    """A server at an address. Any thread may use it.

    Requests that may be sent again are, for `retry` seconds, while the server cannot be reached.
    """

    @staticmethod
    def _make(**options: Any) -> httpx.Client:
        return httpx.Client(**options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; followers end."""
        self._closed.set()
        self._http.close()

    def follow(
        self, subscription: int | Iterable[int] | None = None, *, subscriber: str | None = None,
        since: str | None = None, queue: int = 100_000,
    ) -> Iterator[RemoteMessage]:  # fmt: skip
        """Messages of some subscriptions, a subscriber, or all: a snapshot, then deltas; without an end.

        With `since`, deltas after that token instead. A lost connection is resumed by itself.
        """
        for message in self._followed(
            MessageStream(since), Follow(subscription, subscriber, queue), self._closed
        ):
            if message is not None:
                yield message

    @contextmanager
    def keep(
        self, subscription: int | Iterable[int] | None = None, *, subscriber: str | None = None,
        file: Path | None = None,
    ) -> Iterator[RemoteContents]:  # fmt: skip
        """Contents that a thread keeps up to date while the block runs.

        With a file, they are stored there with their token, and go on from there the next time.
        """
        contents, ended = RemoteContents.open(file), Event()
        stream = MessageStream(contents.token)
        messages = self._followed(stream, Follow(subscription, subscriber, heartbeat=KEPT_HEARTBEAT), ended)
        thread = Thread(target=_keep, args=(contents, stream, messages, file), daemon=True)
        thread.start()
        try:
            yield contents
        finally:
            ended.set()
            if file is not None:
                contents.save(file)

    def _run(self, exchange: Exchange) -> Any:
        answer = None
        while True:
            try:
                answer = self._do(exchange.send(answer))
            except StopIteration as done:
                return done.value

    def _do(self, request: RemoteRequest[Any]) -> Any:
        tries = Tries(request, self._retry)
        while True:
            try:
                answer = self._http.request(**tries.request)
            except httpx.TransportError as error:
                wait = tries.lost(error)
            else:
                if answer.status_code < 300:
                    return request.read(answer.content)
                wait = tries.failed(answer.status_code, answer.headers, answer.content)
            if self._closed.wait(wait):
                raise tries.problem or RemoteError(0, "this client is closed")

    def _followed(
        self, stream: MessageStream, wanted: Follow, ended: Event
    ) -> Iterator[RemoteMessage | None]:
        """Messages, and None where the token went on without one; a lost connection is made again."""
        following = Following(stream, wanted)
        while not ended.is_set() and not self._closed.is_set():
            with suppress(httpx.TransportError), self._http.stream(**following.connect()) as answer:
                if answer.status_code != 200:
                    following.failed(answer.status_code, answer.headers, answer.read())
                else:
                    for line in answer.iter_lines():
                        if ended.is_set():
                            return
                        yield following.read(line)
            ended.wait(following.pause())


def _keep(
    contents: RemoteContents,
    stream: MessageStream,
    messages: Iterator[RemoteMessage | None],
    file: Path | None,
) -> None:
    saved = monotonic()
    try:
        for message in messages:
            contents.take(message, stream.token)
            if file is not None and monotonic() - saved > _SAVE_EVERY:
                contents.save(file)
                saved = monotonic()
    except Exception as error:  # noqa: BLE001 - whoever waits for the contents receives it
        contents.fail(error)
