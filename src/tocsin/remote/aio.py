"""`AsyncRemote`: a server's API from asyncio; what `Remote` returns is awaited here.

>>> import asyncio
>>> from tocsin.server.local import local_server
>>> async def main(url):
...     async with AsyncRemote(url) as remote:
...         await remote.define("CREATE STREAM hits")
...         await remote.subscribe("SELECT * FROM hits WHERE ms > 900")
...         async for message in remote.follow():
...             if message.type == "snapshot":
...                 await remote.publish("hits", {"ms": 950})
...             else:
...                 return [delta.row for delta in message.deltas]
>>> with local_server() as url:
...     asyncio.run(main(url))
[{'ms': 950}]
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Self

import httpx

from tocsin.remote.api import Api, headers_of
from tocsin.remote.client import FOLLOWING, KEPT_HEARTBEAT, SILENCE, no_answer
from tocsin.remote.contents import RemoteContents
from tocsin.remote.messages import MessageStream, RemoteMessage
from tocsin.remote.requests import Follow, RemoteRequest, follow_params, problem_of, retry_after

__all__ = ["AsyncRemote"]


class AsyncRemote(Api):
    """A server at an address, for one event loop."""

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
        self._http = httpx.AsyncClient(base_url=base, headers=headers_of(token), timeout=timeout, **options)
        self._retry = retry

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def follow(
        self, subscription: int | Iterable[int] | None = None, *, subscriber: str | None = None,
        since: str | None = None, queue: int = 100_000,
    ) -> AsyncIterator[RemoteMessage]:  # fmt: skip
        """Messages of some subscriptions, a subscriber, or all: a snapshot, then deltas; without an end.

        With `since`, deltas after that token instead. A lost connection is resumed by itself.
        """
        async with aclosing(
            self._followed(MessageStream(since), Follow(subscription, subscriber, queue))
        ) as messages:
            async for message in messages:
                if message is not None:
                    yield message

    @asynccontextmanager
    async def keep(
        self, subscription: int | Iterable[int] | None = None, *, subscriber: str | None = None,
        file: Path | None = None,
    ) -> AsyncIterator[RemoteContents]:  # fmt: skip
        """Contents that a task keeps up to date while the block runs.

        To wait for a token: `await asyncio.to_thread(contents.wait, token)`. With a file, they are stored
        there with their token, and go on from there the next time.
        """
        contents = RemoteContents.open(file)
        task = asyncio.create_task(self._keep(contents, subscription, subscriber))
        try:
            yield contents
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            if file is not None:
                contents.save(file)

    async def _keep(self, contents: RemoteContents, subscription: Any, subscriber: str | None) -> None:
        stream = MessageStream(contents.token)
        try:
            async with aclosing(
                self._followed(stream, Follow(subscription, subscriber, heartbeat=KEPT_HEARTBEAT))
            ) as messages:
                async for message in messages:
                    if message is None:
                        contents.advance(stream.token)
                    else:
                        contents.receive(message)
        except Exception as error:  # noqa: BLE001 - whoever waits for the contents receives it
            contents.fail(error)

    async def _do(self, request: RemoteRequest[Any]) -> Any:
        end, tries = monotonic() + self._retry, 0
        while True:
            try:
                answer = await self._http.request(
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
            if wait is None or monotonic() + wait > end:
                raise problem
            await asyncio.sleep(wait)
            tries += 1

    async def _followed(
        self, stream: MessageStream, wanted: Follow
    ) -> AsyncGenerator[RemoteMessage | None, None]:
        """Messages, and None where the token went on without one; a lost connection is made again."""
        tries = 0
        while True:
            stream.connect()
            params = follow_params(wanted, stream.token)
            wait: float | None = None
            with suppress(httpx.TransportError):
                async with self._http.stream(
                    "GET", "/deltas", params=params, headers=FOLLOWING, timeout=SILENCE
                ) as answer:
                    if answer.status_code != 200:
                        wait = retry_after(answer.status_code, answer.headers, tries, True)
                        if wait is None:
                            raise problem_of(answer.status_code, await answer.aread(), None)
                    else:
                        async for line in answer.aiter_lines():
                            yield stream.read(line.encode())
                            tries = 0
            await asyncio.sleep(wait or retry_after(None, {}, tries, True) or 0.0)
            tries = 0 if stream.ended == "slow" else tries + 1
