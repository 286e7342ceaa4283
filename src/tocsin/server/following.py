"""Snapshot, then follow: the messages that a follower receives, whatever it resumes from.

    {"type": "snapshot", "token": ..., "reason": "start", "contents": [{"subscription": 1, "rows": [...]}]}
    {"type": "deltas",   "token": ..., "at": ..., "cause": "change", "deltas": [{"seq": ...}, ...]}
    {"type": "heartbeat", "token": ...}      nothing has happened
    {"type": "slow",     "token": ...}       the queue was full: the follower ends; resume by the token
    {"type": "end",      "token": ...}       the server stops

A snapshot in several messages has "more": true in all but the last, and a token in the last one only. Its
reason is `start`, or why there are no deltas since the token: `too old` (they are not kept any more),
`another log` (the token is of another epoch) or `ahead` (this log has not come so far: it was restored).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from tocsin.server.blocks import Block
from tocsin.server.hosted import Hosted
from tocsin.server.hub import MOST_IN_MESSAGE, FollowerQueue, FollowToken, Wanted

__all__ = ["FollowMessage", "follow", "follow_together", "poll"]

HEARTBEAT = 15.0  # seconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FollowMessage(NamedTuple):
    """One message: its type, its token if it has one, itself as JSON, and how many deltas it has."""

    type: str
    token: str | None
    data: bytes
    size: int = 0

    @classmethod
    def of(cls, type: str, token: FollowToken | None, members: bytes = b"", count: int = 0) -> FollowMessage:
        """A message with further members, as JSON with a comma before them."""
        text = None if token is None else str(token)
        place = b"" if text is None else b',"token":"%b"' % text.encode()
        return cls(type, text, b'{"type":"%b"%b%b}' % (type.encode(), place, members), count)


async def follow(
    hosted: Hosted, wanted: Wanted, since: FollowToken | None, *, snapshot: bool = True, queue: int = 10_000,
    heartbeat: float = HEARTBEAT,
) -> AsyncGenerator[FollowMessage, None]:  # fmt: skip
    """The messages of a follower, until it ends."""
    batches = follow_together(hosted, wanted, since, snapshot=snapshot, queue=queue, heartbeat=heartbeat)
    async with aclosing(batches):
        async for messages in batches:
            for message in messages:
                yield message


async def follow_together(
    hosted: Hosted, wanted: Wanted, since: FollowToken | None, *, snapshot: bool, queue: int, heartbeat: float
) -> AsyncGenerator[list[FollowMessage], None]:
    """The same messages, those together that are there at a moment."""
    follower = hosted.hub.add(wanted, queue)
    try:
        async for message in _opening(hosted, follower, since, snapshot):
            yield [message]
        if since is None and not snapshot:
            yield [FollowMessage.of("heartbeat", follower.place)]
        while True:
            if messages := _all_queued(follower):
                yield messages
            elif follower.is_full or follower.is_ended:
                yield [FollowMessage.of("slow" if follower.is_full else "end", follower.place)]
                return
            else:
                await follower.wait(heartbeat)
                if not follower.has_news():
                    yield [FollowMessage.of("heartbeat", follower.place)]
    finally:
        follower.close()


async def poll(
    hosted: Hosted, wanted: Wanted, since: FollowToken | None, *, wait: float, limit: int
) -> bytes:
    """One answer of a long poll: what there is since a token, or what comes first within `wait` seconds.

    At most about `limit` deltas: those of one command may be cut in the middle, with a token for the rest.
    """
    follower = hosted.hub.add(wanted, max(limit, MOST_IN_MESSAGE))
    found, count = list[FollowMessage](), 0
    try:
        async for message in _opening(hosted, follower, since, snapshot=True):
            found.append(message)
            count += message.size
            if count >= limit:
                break
        else:
            if not found:
                await follower.wait(wait)
            while count < limit and (messages := _queued(follower)):
                found += messages
                count += sum(message.size for message in messages)
            if not found or found[-1].token is not None:
                found.append(FollowMessage.of("heartbeat", follower.place))
    finally:
        follower.close()
    return _joined(found)


async def _opening(
    hosted: Hosted, follower: FollowerQueue, since: FollowToken | None, snapshot: bool
) -> AsyncIterator[FollowMessage]:
    """A snapshot, or the deltas since a token; `follower.place` is where the queue goes on."""
    reason = "start" if snapshot else None
    if since is not None:
        reason, follower.place = hosted.lost(since), since
    if reason is not None:
        contents, position = await hosted.contents(follower.wanted)
        follower.place = FollowToken(hosted.core.epoch, position)
        for message in _snapshot(contents, follower.place, reason):
            yield message
        return
    while follower.place.position < (until := follower.since):
        async for message in _missed(hosted, follower):
            yield message
        if follower.place.position < until:  # deltas were dropped from the log while it was read
            async for message in _opening(hosted, follower, follower.place, snapshot):
                yield message
            return
        if follower.is_full:
            follower.restart()


async def _missed(hosted: Hosted, follower: FollowerQueue) -> AsyncIterator[FollowMessage]:
    """The deltas between the follower's place and its queue, from the log, as far as they are there."""
    until = follower.since
    while follower.place.position < until:
        blocks = await asyncio.to_thread(hosted.core.log.blocks, follower.place.position)
        if hosted.lost(follower.place) is not None:
            return
        for block in blocks:
            if block.position <= until:
                for message in _deltas(follower, block, follower.wanted.of(block)):
                    yield message
        if not blocks or blocks[-1].position >= until:
            follower.place = FollowToken(follower.place.epoch, until)


def _queued(follower: FollowerQueue) -> list[FollowMessage]:
    """The messages of the oldest deltas in the queue; none if there are none."""
    while (found := follower.take()) is not None:
        if found[0].position > follower.place.position and (messages := _deltas(follower, *found)):
            return messages
    return []


def _all_queued(follower: FollowerQueue) -> list[FollowMessage]:
    """The messages of all that is queued, up to some size: they leave in one write."""
    found = _queued(follower)
    size = sum(message.size for message in found)
    while found and size < MOST_IN_MESSAGE and (more := _queued(follower)):
        found += more
        size += sum(message.size for message in more)
    return found


def _deltas(follower: FollowerQueue, block: Block, numbers: Sequence[int]) -> list[FollowMessage]:
    """The deltas of one block, in messages of limited length; the follower has got so far."""
    place = follower.place
    if place.offset and block.position == place.position + 1:
        numbers = [n for n in numbers if n >= place.offset]
    when = (_EPOCH + timedelta(microseconds=block.at)).isoformat().encode()
    out = []
    for start in range(0, len(numbers), MOST_IN_MESSAGE):
        some = numbers[start : start + MOST_IN_MESSAGE]
        is_last = start + len(some) == len(numbers)
        own = (
            FollowToken(place.epoch, block.position)
            if is_last
            else FollowToken(place.epoch, block.position - 1, some[-1] + 1)
        )
        members = b',"at":"%b","cause":"%b","deltas":%b' % (when, block.cause.encode(), block.deltas(some))
        out.append(FollowMessage.of("deltas", own, members, len(some)))
    follower.place = FollowToken(place.epoch, block.position)
    return out


def _joined(messages: Sequence[FollowMessage]) -> bytes:
    """Messages as one answer."""
    deltas, contents, reset, token = list[bytes](), list[bytes](), None, None
    for message in messages:
        found = _POLLED.decode(message.data)
        if found.reason is not None:
            deltas.clear()  # the snapshot has what they did
        deltas += map(bytes, found.deltas)
        contents += map(bytes, found.contents)
        reset = found.reason or reset
        token = message.token or token
    members = [b'"token":"%b"' % (token or "").encode()]
    if reset is not None:
        members.append(b'"reset":"%b","contents":[%b]' % (reset.encode(), b",".join(contents)))
    return b'{%b,"deltas":[%b]}' % (b",".join(members), b",".join(deltas))


class _Polled(msgspec.Struct):
    reason: str | None = None
    contents: list[msgspec.Raw] = []
    deltas: list[msgspec.Raw] = []


_POLLED = msgspec.json.Decoder(_Polled)


def _snapshot(contents: Block, place: FollowToken, reason: str) -> list[FollowMessage]:
    """A snapshot, in messages of limited length."""
    by_id: dict[int, list[int]] = {}
    for number, id in enumerate(contents.subscription.tolist()):
        by_id.setdefault(id, []).append(number)
    pieces: list[tuple[int, bytes]] = []
    for id, numbers in by_id.items():
        rows = b",".join(contents.texts[contents.row[n]] for n in numbers)
        pieces.append((len(numbers), b'{"subscription":%d,"rows":[%b]}' % (id, rows)))
    groups: list[list[bytes]] = [[]]
    size = 0
    for count, piece in pieces:
        if size and size + count > MOST_IN_MESSAGE:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += count
    out = []
    for number, group in enumerate(groups, 1):
        is_last = number == len(groups)
        members = b',"reason":"%b","more":%b,"contents":[%b]' % (
            reason.encode(), b"false" if is_last else b"true", b",".join(group)
        )  # fmt: skip
        out.append(FollowMessage.of("snapshot", place if is_last else None, members))
    return out
