"""Contents of subscriptions, kept from a snapshot and deltas, and the token that belongs to them.

Contents and token change together, so whoever stores both and follows from the token has each delta once,
whatever was cut when. A delta that removes a row which is not there is an error.

>>> from tocsin.model.delta import Delta
>>> contents = RemoteContents()
>>> contents.receive(RemoteMessage("snapshot", "a-1", "start", {7: [{"x": 1}]}))
>>> change = Delta(5, 7, -1, {"x": 1}), Delta(5, 7, 1, {"x": 2}), Delta(5, 8, 1, {"y": 0})
>>> contents.receive(RemoteMessage("deltas", "a-2", deltas=change))
>>> contents.rows(7), contents.rows(8), contents.token
([{'x': 2}], [{'y': 0}], 'a-2')
>>> RemoteContents.load(contents.dump()).rows(7)
[{'x': 2}]
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Condition
from time import monotonic
from typing import Any

import msgspec

from tocsin.client import Client
from tocsin.remote.messages import RemoteMessage

__all__ = ["RemoteContents"]


class RemoteContents:
    """Rows by subscription. Any thread may read; `token` is None before the first snapshot."""

    def __init__(self) -> None:
        self.token: str | None = None
        self.error: BaseException | None = None  # why nothing arrives any more
        self._changed = Condition()
        self._client = Client()
        self._ids: dict[int, None] = {}

    def receive(self, message: RemoteMessage) -> None:
        """Apply a message."""
        with self._changed:
            if message.type == "snapshot":
                self._client, self._ids = Client(), {}
                for id, rows in message.contents.items():
                    self._start(id, rows)
            else:
                deltas = [d for number, d in enumerate(message.deltas) if number not in message.events]
                for id in {d.subscription for d in deltas} - self._ids.keys():
                    self._start(id, [])
                self._client.receive(deltas)
            self.token = message.token
            self._changed.notify_all()

    def take(self, message: RemoteMessage | None, token: str | None) -> None:
        """Apply what a follower gives: a message, or None where its token went on without one."""
        if message is None:
            self.advance(token)
        else:
            self.receive(message)

    def ids(self) -> list[int]:
        """The subscriptions that have had rows."""
        with self._changed:
            return sorted(self._ids)

    def rows(self, id: int) -> list[dict[str, Any]]:
        """The answer of a subscription, as a bag; of one that is not known, none."""
        with self._changed:
            return self._client.content(id) if id in self._ids else []

    def advance(self, token: str | None) -> None:
        """All up to a token is known, though no message came with it."""
        with self._changed:
            if self.token is not None and token is not None:
                self.token = token
                self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Nothing arrives any more: `wait` raises the reason."""
        with self._changed:
            self.error = error
            self._changed.notify_all()

    def wait(self, token: str, timeout: float = 30.0) -> None:
        """Wait until all that a token includes has arrived; TimeoutError after so many seconds."""
        end = monotonic() + timeout
        with self._changed:
            while not _includes(self.token, token):
                if self.error is not None:
                    raise self.error
                if not self._changed.wait(end - monotonic()) and monotonic() >= end:
                    raise TimeoutError(f"at {self.token} after {timeout:g} s, not yet at {token}")

    # -- stored --------------------------------------------------------------------------------------

    def dump(self) -> bytes:
        """Contents and token as bytes."""
        with self._changed:
            rows = {id: self._client.content(id) for id in self._ids}
            return msgspec.json.encode(_Stored(self.token, rows))

    @classmethod
    def load(cls, data: bytes) -> RemoteContents:
        """What `dump` returned."""
        stored, made = msgspec.json.decode(data, type=_Stored), cls()
        for id, rows in stored.rows.items():
            made._start(id, rows)
        made.token = stored.token
        return made

    def save(self, file: Path) -> None:
        """Write contents and token to a file, at once."""
        new = file.with_name(file.name + ".new")
        with new.open("wb") as out:
            out.write(self.dump())
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, file)

    @classmethod
    def open(cls, file: Path | None) -> RemoteContents:
        """The contents of a file, or empty ones if there is none."""
        return cls.load(file.read_bytes()) if file is not None and file.exists() else cls()

    def _start(self, id: int, rows: list[dict[str, Any]]) -> None:
        self._ids[id] = None
        self._client.start(id, rows)


class _Stored(msgspec.Struct):
    token: str | None
    rows: dict[int, list[dict[str, Any]]]


def _includes(have: str | None, wanted: str) -> bool:
    """Whether a token includes another one of the same log; of another log, nothing can be said: yes."""
    if have is None:
        return False
    (epoch, *place), (other, *needed) = have.split("-"), wanted.split("-")
    return epoch != other or list(map(int, place)) >= list(map(int, needed))
