"""Following over HTTP: one route that answers by long poll, SSE or NDJSON, as the client accepts; WebSocket.

    Accept: text/event-stream         id: TOKEN, event: TYPE, data: the message
    Accept: application/x-ndjson      one message per line
    else                              one answer of a long poll

A browser's EventSource resumes by itself: it sends the last id as `Last-Event-ID`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from tocsin.server.endpoints import EndpointCall
from tocsin.server.following import FollowMessage, follow_together, poll
from tocsin.server.hosted import Hosted
from tocsin.server.hub import FollowToken, Wanted
from tocsin.server.problems import Problem

__all__ = ["deltas", "serve_socket", "wanted_of"]

SSE, NDJSON = "text/event-stream", "application/x-ndjson"
Batches = AsyncGenerator[list[FollowMessage], None]
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


def wanted_of(hosted: Hosted, params: Mapping[str, Any]) -> Wanted:
    """What a request follows; subscriptions must exist."""
    text, subscriber = params["subscription"], params["subscriber"]
    if text is not None and subscriber is not None:
        raise Problem(400, "subscription and subscriber are two ways to follow", hint="give one of them")
    if text is None:
        return Wanted(None, subscriber)
    try:
        ids = tuple(dict.fromkeys(int(part) for part in text.split(",") if len(part) < 21))
    except ValueError:
        ids = ()
    if not ids or not all(-(2**63) <= id < 2**63 for id in ids):
        raise Problem(400, f"{text[:40]!r} is not a list of ids", hint="subscription=1,2,3")
    for id in ids:
        if id not in hosted.core.applier:
            raise Problem(404, f"there is no subscription {id}", hint="GET /v1/subscriptions lists them")
    return Wanted(ids)


async def deltas(call: EndpointCall) -> Response:
    """Deltas since a token, or a snapshot and what follows it."""
    hosted, params = call.hosted, call.params
    wanted = wanted_of(hosted, params)
    text = params["since"] or params["last-event-id"]
    since = None if not text else FollowToken.read(text)
    accepted = call.request.headers.get("accept", "")
    if SSE not in accepted and NDJSON not in accepted:
        body = await poll(hosted, wanted, since, wait=params["wait"], limit=params["limit"])
        return Response(body, media_type="application/json", headers=_HEADERS)
    call.visit.quota.admit_follower(len(hosted.hub))
    messages = _messages(hosted, wanted, since, params)
    if SSE in accepted:
        return StreamingResponse(_events(messages), media_type=SSE, headers=_HEADERS)
    return StreamingResponse(_lines(messages), media_type=NDJSON, headers=_HEADERS)


def _messages(
    hosted: Hosted, wanted: Wanted, since: FollowToken | None, params: Mapping[str, Any]
) -> Batches:
    return follow_together(
        hosted, wanted, since, snapshot=params["snapshot"], queue=params["queue"],
        heartbeat=params["heartbeat"],
    )  # fmt: skip


async def _events(batches: Batches) -> AsyncIterator[bytes]:
    async with aclosing(batches):
        async for messages in batches:
            yield b"".join([_event(type, token, data) for type, token, data, _ in messages])


def _event(type: str, token: str | None, data: bytes) -> bytes:
    head = b"" if token is None else b"id: %b\n" % token.encode()
    return b"%bevent: %b\ndata: %b\n\n" % (head, type.encode(), data)


async def _lines(batches: Batches) -> AsyncIterator[bytes]:
    async with aclosing(batches):
        async for messages in batches:
            yield b"".join([message.data + b"\n" for message in messages])


async def serve_socket(socket: WebSocket, hosted: Hosted, params: Mapping[str, Any]) -> None:
    """Messages as texts, until the client goes; what the client sends is ignored."""
    wanted = wanted_of(hosted, params)
    since = None if not params["since"] else FollowToken.read(params["since"])
    await socket.accept()
    gone = asyncio.create_task(_until_gone(socket))
    messages = _messages(hosted, wanted, since, params)
    sending = asyncio.create_task(_send(socket, messages))
    await asyncio.wait([gone, sending], return_when=asyncio.FIRST_COMPLETED)
    for task in (gone, sending):
        task.cancel()
    await asyncio.gather(gone, sending, return_exceptions=True)


async def _send(socket: WebSocket, batches: Batches) -> None:
    async with aclosing(batches):
        async for messages in batches:
            for message in messages:
                await socket.send_text(message.data.decode())
    await socket.close()


async def _until_gone(socket: WebSocket) -> None:
    try:
        while True:
            await socket.receive_text()
    except (WebSocketDisconnect, KeyError, RuntimeError):
        return
