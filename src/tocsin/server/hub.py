"""Followers: who receives which deltas, how far each has come, and what happens when one is slow.

    block ─► by subscription ─► queue ─► SSE, WebSocket, NDJSON or long poll
          ─► by subscriber   ─► queue
          ─► all             ─► queue

A follower receives messages; each has a token, with which it resumes after the message:

    epoch-position          all up to the position
    epoch-position-n        and of the next position the first n deltas

The queue of a follower is bounded. If it is full, the follower ends with a message `slow` that has its token.
Everything here runs in the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tocsin.model.columns import Index
from tocsin.server.blocks import Block
from tocsin.server.problems import Problem

__all__ = ["FollowToken", "FollowerQueue", "Hub", "Wanted"]

MOST_IN_MESSAGE = 1000  # deltas
_FEW = 32


class FollowToken(NamedTuple):
    """Where a follower resumes: after `position`, and after `offset` deltas of the next one."""

    epoch: str
    position: int
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.epoch}-{self.position}" + (f"-{self.offset}" if self.offset else "")

    @classmethod
    def read(cls, text: str) -> FollowToken:
        """A token as a client sends it.

        >>> FollowToken.read("a1b2c3d4-17")
        FollowToken(epoch='a1b2c3d4', position=17, offset=0)
        """
        epoch, *numbers = text.split("-")
        if (
            not 1 <= len(numbers) <= 2
            or not epoch.isalnum()
            or not all(n.isascii() and n.isdecimal() and len(n) < 19 for n in numbers)
        ):
            raise Problem(400, f"{text[:40]!r} is not a resume token", hint="use a token that a message had")
        return cls(epoch, *map(int, numbers))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a follower follows: some subscriptions, a subscriber, or all (neither)."""

    ids: tuple[int, ...] | None = None
    subscriber: str | None = None

    def of(self, block: Block) -> Sequence[int]:
        """The numbers of the block's deltas that it wants."""
        if self.ids is not None:
            return block.of_subscriptions(np.array(self.ids, np.int64))
        if self.subscriber is not None:
            return block.of_subscriber(self.subscriber)
        return range(len(block))


class FollowerQueue:
    """The queue of one follower."""

    def __init__(self, hub: Hub, wanted: Wanted, most: int) -> None:
        self.wanted, self.most, self._hub = wanted, most, hub
        self.is_full = False
        self.since = hub.position  # later blocks are in the queue
        self.place = FollowToken(hub.epoch, hub.position)  # what the follower has received
        self._size = 0
        self._queue: deque[tuple[Block, Sequence[int]]] = deque()
        self._ready = asyncio.Event()

    def put(self, block: Block, numbers: Sequence[int]) -> None:
        """Queue deltas, unless there are too many."""
        if self._size + len(numbers) > self.most and self._queue:
            self.is_full = True
        else:
            self._queue.append((block, numbers))
            self._size += len(numbers)
        self._ready.set()

    def take(self) -> tuple[Block, Sequence[int]] | None:
        """The oldest deltas, if there are any."""
        if not self._queue:
            return None
        found = self._queue.popleft()
        self._size -= len(found[1])
        return found

    def has_news(self) -> bool:
        """Whether there is something to do; if not, the follower has all up to the hub's position."""
        if self._queue or self.is_full or self.is_ended:
            return True
        self.place = max(self.place, FollowToken(self._hub.epoch, self._hub.position))
        return False

    def restart(self) -> None:
        """Drop what is queued, and queue from now on."""
        self._queue.clear()
        self._size, self.is_full, self.since = 0, False, self._hub.position

    async def wait(self, seconds: float) -> None:
        """Until something is queued, or so long."""
        if not self._queue and not self.is_full and not self._hub.is_closed:
            self._ready.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._ready.wait()
            except TimeoutError:
                pass

    def wake(self) -> None:
        self._ready.set()

    @property
    def is_ended(self) -> bool:
        return self._hub.is_closed

    def close(self) -> None:
        self._hub.remove(self)


class Hub:
    """The followers of one engine."""

    def __init__(self, epoch: str, position: int) -> None:
        self.epoch, self.position = epoch, position
        self.is_closed = False
        self._followers: set[FollowerQueue] = set()
        self._all: set[FollowerQueue] = set()
        self._by_id: dict[int, set[FollowerQueue]] = {}
        self._by_subscriber: dict[str, set[FollowerQueue]] = {}
        self._ids: Index | None = None  # the keys of `_by_id`, sorted

    def __len__(self) -> int:
        return len(self._followers)

    def add(self, wanted: Wanted, most: int) -> FollowerQueue:
        """A new follower, from now on."""
        follower = FollowerQueue(self, wanted, most)
        self._followers.add(follower)
        for group in self._groups(follower):
            group.add(follower)
        self._ids = None
        return follower

    def remove(self, follower: FollowerQueue) -> None:
        """End a follower."""
        self._followers.discard(follower)
        for group in self._groups(follower):
            group.discard(follower)
        wanted = follower.wanted
        for id in wanted.ids or ():
            if not self._by_id.get(id, True):
                del self._by_id[id]
        if wanted.subscriber is not None and not self._by_subscriber.get(wanted.subscriber, True):
            del self._by_subscriber[wanted.subscriber]
        self._ids = None

    def close(self) -> None:
        """End all followers."""
        self.is_closed = True
        for follower in self._followers:
            follower.wake()

    def deliver(self, blocks: Iterable[Block], position: int) -> None:
        """Queue committed blocks; `position` is the last one committed."""
        for block in blocks:
            self._deliver(block)
        self.position = position

    def _deliver(self, block: Block) -> None:
        for follower in self._all:
            follower.put(block, range(len(block)))
        if self._by_subscriber:
            for name in block.names:
                if followers := self._by_subscriber.get(name):
                    numbers = block.of_subscriber(name)
                    for follower in followers:
                        follower.put(block, numbers)
        if self._by_id:
            found: dict[FollowerQueue, list[int]] = {}
            for number in self._followed(block):
                for follower in self._by_id[int(block.subscription[number])]:
                    found.setdefault(follower, []).append(number)
            for follower, numbers in found.items():
                follower.put(block, numbers)

    def _followed(self, block: Block) -> list[int]:
        """The numbers of deltas whose subscription somebody follows by its id."""
        if len(block) <= _FEW:
            return [n for n, id in enumerate(block.subscription.tolist()) if id in self._by_id]
        if self._ids is None:
            self._ids = np.sort(np.array(list(self._by_id), np.int64))
        return block.of_subscriptions(self._ids)

    def _groups(self, follower: FollowerQueue) -> list[set[FollowerQueue]]:
        wanted = follower.wanted
        if wanted.ids is not None:
            return [self._by_id.setdefault(id, set()) for id in wanted.ids]
        if wanted.subscriber is not None:
            return [self._by_subscriber.setdefault(wanted.subscriber, set())]
        return [self._all]
