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
from time import monotonic, sleep
from typing import Any, Self

import httpx

from tocsin.remote.api import Api, headers_of
from tocsin.remote.contents import RemoteContents
from tocsin.remote.messages import MessageStream, RemoteMessage
from tocsin.remote.requests import Follow, RemoteError, RemoteRequest, follow_params, problem_of, retry_after

__all__ = ["Remote"]

SILENCE = 45.0  # seconds without a heartbeat: the connection is lost
_SAVE_EVERY = 10.0
KEPT_HEARTBEAT = 1.0  # seconds after which kept contents learn that a change did not concern them


class Remote(Api):
    """A server at an address. Any thread may use it.

    Requests that may be sent again are, for `retry` seconds, while the server cannot be reached.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        retry: float = 30.0,
        **options: Any,
    ) -> None:
        base = url.rstrip("/") + "/v1"
        self._http = httpx.Client(base_url=base, headers=headers_of(token), timeout=timeout, **options)
        self._retry = retry
        self._closed = Event()

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

    def _do(self, request: RemoteRequest[Any]) -> Any:
        end, tries = monotonic() + self._retry, 0
        while True:
            try:
                answer = self._http.request(
                    request.method, request.path, params=request.params, headers=request.headers,
                    content=request.body,
                )  # fmt: skip
            except httpx.TransportError as error:
                again = request.again or isinstance(error, httpx.ConnectError)
                wait, problem = retry_after(None, {}, tries, again), no_answer(error)
            else:
                if answer.status_code < 300:
                    return request.read(answer.content)
                wait = retry_after(answer.status_code, answer.headers, tries, request.again)
                problem = problem_of(answer.status_code, answer.content, request.sql)
            if wait is None or monotonic() + wait > end or self._closed.is_set():
                raise problem
            sleep(wait)
            tries += 1

    def _followed(
        self, stream: MessageStream, wanted: Follow, ended: Event
    ) -> Iterator[RemoteMessage | None]:
        """Messages, and None where the token went on without one; a lost connection is made again."""
        tries = 0
        while not ended.is_set() and not self._closed.is_set():
            stream.connect()
            params = follow_params(wanted, stream.token)
            wait: float | None = None
            with suppress(httpx.TransportError), self._http.stream(
                "GET", "/deltas", params=params, headers=FOLLOWING, timeout=SILENCE
            ) as answer:  # fmt: skip
                if answer.status_code != 200:
                    wait = retry_after(answer.status_code, answer.headers, tries, True)
                    if wait is None:
                        raise problem_of(answer.status_code, answer.read(), None)
                else:
                    for line in answer.iter_lines():
                        if ended.is_set():
                            return
                        yield stream.read(line.encode())
                        tries = 0
            ended.wait(wait or retry_after(None, {}, tries, True) or 0.0)
            tries = 0 if stream.ended == "slow" else tries + 1


FOLLOWING = {"accept": "application/x-ndjson"}


def no_answer(error: Exception) -> RemoteError:
    """A connection that was not made, or was lost."""
    fact = f"the server cannot be reached: {error or type(error).__name__}"
    return RemoteError(0, fact, hint="is `tocsin serve` running there?")


def _keep(
    contents: RemoteContents,
    stream: MessageStream,
    messages: Iterator[RemoteMessage | None],
    file: Path | None,
) -> None:
    saved = monotonic()
    try:
        for message in messages:
            if message is None:
                contents.advance(stream.token)
            else:
                contents.receive(message)
            if file is not None and monotonic() - saved > _SAVE_EVERY:
                contents.save(file)
                saved = monotonic()
    except Exception as error:  # noqa: BLE001 - whoever waits for the contents receives it
        contents.fail(error)
