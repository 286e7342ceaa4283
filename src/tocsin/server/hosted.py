"""An engine of the server, for the event loop: its core, awaited, and its followers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tocsin.engine import Engine
from tocsin.model.delta import Deltas
from tocsin.server.answer_pages import AnswerPages
from tocsin.server.blocks import Block
from tocsin.server.commands import Command
from tocsin.server.core import Core, Done, Task
from tocsin.server.deliveries.service import Deliveries
from tocsin.server.hub import FollowToken, Hub, Wanted
from tocsin.server.steps import reached

__all__ = ["Hosted"]

_T = TypeVar("_T")


class IdempotencyKeys:
    """Idempotency keys in use: requests with one key come one after the other."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def held(self, name: str) -> AsyncIterator[None]:
        """Hold a key."""
        lock, users = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[name]
            self._locks[name] = lock, users - 1
            if users == 1:
                del self._locks[name]


class Hosted:
    """A core whose tasks are awaited in this loop; blocks go to the hub before their tasks are settled."""

    def __init__(self, name: str, folder: Path, **options: Any) -> None:
        self.name = name
        self._loop = asyncio.get_running_loop()
        self.core = Core(folder, on_group=self._on_group, **options)
        self.hub = Hub(self.core.epoch, self.core.position)
        self.keys = IdempotencyKeys()
        self.pages = AnswerPages()
        self.deliveries = Deliveries(self.core.log, folder, self._has_content)

    async def do(self, command: Command, key: tuple[str, bytes] | None = None) -> Done:
        """Apply a command; returns when it is durable."""
        task = await self._settled(command, None, key)
        done: Done = task.result
        return done

    async def read(self, function: Callable[[Engine], _T]) -> tuple[_T, int]:
        """Call a function between two commands; also returns the position that it has seen."""
        task = await self._settled(None, function)
        return task.result, task.position

    async def contents(self, wanted: Wanted) -> tuple[Block, int]:
        """The contents of what a follower wants, and their position; subscriptions without rows are in it."""
        core = self.core

        def read(engine: Engine) -> Deltas:
            if wanted.ids is not None:
                ids = [id for id in wanted.ids if id in core.applier]
            else:
                ids = core.applier.of_subscriber(wanted.subscriber)
            return core.applier.contents(ids)

        deltas, position = await self.read(read)
        return Block.of(position, 0, "content", deltas), position

    def _has_content(self, id: int) -> bool:
        """Whether a subscription has an answer to keep up with; a filter over a stream has none."""
        engine = self.core.engine
        return id not in engine or bool(len(engine.with_content([id])))

    def lost(self, token: FollowToken) -> str | None:
        """Why the deltas since a token cannot be had; None if they can."""
        log = self.core.log
        if token.epoch != log.epoch:
            return "another log"
        if token.position > self.hub.position:
            return "ahead"
        return "too old" if token.position + 1 < log.oldest else None

    async def close(self) -> None:
        """Apply what is queued, end the followers."""
        await asyncio.to_thread(self.deliveries.close)
        await asyncio.to_thread(self.core.close)
        await asyncio.sleep(0)  # the last group is settled
        self.hub.close()

    async def _settled(
        self,
        command: Command | None,
        function: Callable[[Engine], Any] | None,
        key: tuple[str, bytes] | None = None,
    ) -> Task:
        future: asyncio.Future[None] = self._loop.create_future()

        def settle(task: Task) -> None:
            if not future.done():
                future.set_result(None)

        task = Task(command, function, settle, key)
        self.core.submit(task)
        await future
        if task.error is not None:
            raise task.error
        return task

    def _on_group(self, tasks: list[Task], blocks: list[Block]) -> None:
        """In the writer thread."""
        if tasks or blocks:
            self._loop.call_soon_threadsafe(self._settle, tasks, blocks, self.core.log.position)

    def _settle(self, tasks: list[Task], blocks: list[Block], position: int) -> None:
        reached("deliver.begin")
        self.hub.deliver(blocks, position)
        reached("deliver.end")
        if blocks:
            self.deliveries.wake()
        for task in tasks:
            task.settle(task)
