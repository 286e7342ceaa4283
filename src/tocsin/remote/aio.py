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
from typing import Any, Self

import httpx

from tocsin.remote.api import KEPT_HEARTBEAT, Api
from tocsin.remote.contents import RemoteContents
from tocsin.remote.messages import MessageStream, RemoteMessage
from tocsin.remote.requests import Follow, RemoteRequest
from tocsin.remote.tries import Exchange, Following, Tries

__all__ = ["AsyncRemote"]


class AsyncRemote(Api):
    """A server at an address, for one event loop."""

    @staticmethod
    def _make(**options: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(**options)

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
                    contents.take(message, stream.token)
        except Exception as error:  # noqa: BLE001 - whoever waits for the contents receives it
            contents.fail(error)

    async def _run(self, exchange: Exchange) -> Any:
        answer = None
        while True:
            try:
                request = exchange.send(answer)
            except StopIteration as done:
                return done.value
            answer = await self._do(request)

    async def _do(self, request: RemoteRequest[Any]) -> Any:
        tries = Tries(request, self._retry)
        while True:
            try:
                answer = await self._http.request(**tries.request)
            except httpx.TransportError as error:
                wait = tries.lost(error)
            else:
                if answer.status_code < 300:
                    return request.read(answer.content)
                wait = tries.failed(answer.status_code, answer.headers, answer.content)
            await asyncio.sleep(wait)

    async def _followed(
        self, stream: MessageStream, wanted: Follow
    ) -> AsyncGenerator[RemoteMessage | None, None]:
        """Messages, and None where the token went on without one; a lost connection is made again."""
        following = Following(stream, wanted)
        while True:
            with suppress(httpx.TransportError):
                async with self._http.stream(**following.connect()) as answer:
                    if answer.status_code != 200:
                        following.failed(answer.status_code, answer.headers, await answer.aread())
                    else:
                        async for line in answer.aiter_lines():
                            yield following.read(line)
            await asyncio.sleep(following.pause())
