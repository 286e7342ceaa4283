"""Messages of a follower, and how they come through cuts: one snapshot or some deltas each, with a token.

    lines of a connection ─► Stream: parts of a snapshot together, heartbeats and ends left out ─► Message
    connection lost       ─► the next one begins with the token of the last message

>>> stream = MessageStream(None)
>>> stream.read(b'{"type": "snapshot", "more": true, "contents": [{"subscription": 1, "rows": []}]}')
>>> stream.read(b'{"type": "snapshot", "token": "a-1", "more": false}').contents, stream.token
({1: []}, 'a-1')
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from tocsin.model.delta import Delta

__all__ = ["MessageStream", "RemoteMessage"]

Row = dict[str, Any]


class RemoteMessage(NamedTuple):
    """A snapshot (`contents` by id replace all there was), or deltas to apply in order.

    `token` includes the message: following `since` it goes on after it. Deltas whose numbers are in `events`
    are of subscriptions without content, as filters over streams: they add to no answer.
    """

    type: str
    token: str
    reason: str | None = None  # of a snapshot
    contents: Mapping[int, list[Row]] = MappingProxyType({})
    deltas: tuple[Delta, ...] = ()
    events: frozenset[int] = frozenset()
    cause: str | None = None
    at: str | None = None


class MessageStream:
    """Lines of one connection after the other as messages; `token` is where the next one begins."""

    def __init__(self, since: str | None) -> None:
        self.token = since
        self.ended: str | None = None  # why this connection is over: `slow` or `end`
        self._contents: dict[int, list[Row]] = {}

    def connect(self) -> None:
        """A new connection: parts of a snapshot that were not all come again."""
        self.ended = None
        self._contents = {}

    def read(self, line: bytes) -> RemoteMessage | None:
        """The message that a line completes."""
        found = _DECODER.decode(line)
        self.token = found.token or self.token
        if found.type == "snapshot":
            for one in found.contents:
                self._contents.setdefault(one.subscription, []).extend(one.rows)
            if found.more:
                return None
            contents, self._contents = self._contents, {}
            return RemoteMessage("snapshot", self.token or "", found.reason, contents)
        if found.type == "deltas":
            deltas = tuple(Delta(d.seq, d.subscription, d.sign, d.row, d.subscriber) for d in found.deltas)
            events = frozenset(number for number, d in enumerate(found.deltas) if d.event)
            token, at = self.token or "", found.at
            return RemoteMessage("deltas", token, None, {}, deltas, events, found.cause, at)
        if found.type in ("slow", "end"):
            self.ended = found.type
        return None


class _Content(msgspec.Struct):
    subscription: int
    rows: list[Row]


class _Delta(msgspec.Struct):
    seq: int
    subscription: int
    sign: int
    row: Row
    event: bool = False
    subscriber: str | None = None


class _Line(msgspec.Struct):
    type: str
    token: str | None = None
    reason: str | None = None
    more: bool = False
    contents: list[_Content] = []
    deltas: list[_Delta] = []
    cause: str | None = None
    at: str | None = None


_DECODER = msgspec.json.Decoder(_Line)
