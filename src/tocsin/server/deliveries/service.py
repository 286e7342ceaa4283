"""The threads of deliveries: one plans, some send.

    planner   woken by commits and by what is due; stores messages, then moves the log's cursor
    senders   each takes the lane that is due first, sends its first message, and puts the lane back

A lane has one message under way; one that waits for a retry keeps its place and delays no other. The cursor
is there while there are deliveries, so the log keeps the blocks that are not planned yet.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Condition, RLock, Thread
from typing import Any

from tocsin.delivery.targets import Target, target_of
from tocsin.delivery.webhook_client import Verdict
from tocsin.errors import TocsinError
from tocsin.server.deliveries.definitions import DeliveryRule
from tocsin.server.deliveries.outbox import Outbox, WaitingMessage
from tocsin.server.deliveries.planner import Planner
from tocsin.server.log import Cursor, Log
from tocsin.server.problems import Problem
from tocsin.server.steps import reached

__all__ = ["Deliveries"]

CURSOR = "deliveries"
MOST = 1000  # deliveries
POLL = 1.0  # seconds between looks at the log, should nobody wake the planner
_LOG = logging.getLogger(__name__)


class Deliveries:
    """The deliveries of one engine. Any thread may call it; calls wait for the disk."""

    def __init__(
        self, log: Log, folder: Path, has_content: Callable[[int], bool], *, senders: int = 4
    ) -> None:
        self._log, self._outbox = log, Outbox(folder / "deliveries.sqlite")
        self._planning = RLock()
        self._planner = Planner(log, self._outbox, has_content)
        self._cursor: Cursor | None = log.cursor(CURSOR) if len(self._planner) else None
        self._definitions = {name: stored.definition for name, stored in self._outbox.stored().items()}
        self._paused = {name for name, stored in self._outbox.stored().items() if stored.is_paused}
        self._lanes = Lanes()
        for name, lane in self._outbox.lanes():
            self._put(name, lane)
        self._news, self._is_new, self._is_closed = Condition(), False, False
        self._senders, self._threads = senders, list[Thread]()
        if self._cursor is not None:
            self._start()

    def _start(self) -> None:
        """Start the threads, once there is something to deliver."""
        for number, run in enumerate([self._plan, *[self._send] * self._senders]):
            self._threads.append(Thread(target=run, name=f"tocsin-delivery-{number}", daemon=True))
            self._threads[-1].start()

    def wake(self) -> None:
        """The log has new blocks."""
        with self._news:
            self._is_new = True
            self._news.notify()

    def close(self) -> None:
        """Stop; messages that are under way end first. What is left is sent after the next start."""
        if not self._is_closed:
            self._is_closed = True
            self.wake()
            self._lanes.close()
            for thread in self._threads:
                thread.join()
            self._outbox.close()

    # -- deliveries --------------------------------------------------------------------------------

    def keep_blocks(self) -> None:
        """Keep the blocks of the log from now on: before the contents for a new delivery are read."""
        with self._planning:
            self._keep_blocks(self._log.position)

    def _keep_blocks(self, after: int) -> None:
        if self._cursor is None:
            self._planner.position = after
            self._cursor = self._log.cursor(CURSOR)
            self._cursor.advance(after)
        if not self._threads:
            self._start()

    def add(self, delivery: DeliveryRule, counts: dict[int, int], position: int) -> None:
        """Deliver what comes after a position, where answers have so many rows.

        `keep_blocks` was called before they were read.
        Another delivery of the same name is replaced; what is planned for it is sent to the new target.
        """
        delivery.timing()
        target_of(delivery.to, delivery.retries(), delivery.secret).close()
        if delivery.name not in self._definitions and len(self._definitions) >= MOST:
            raise TocsinError(f"there are {MOST} deliveries already", hint="remove one that is not needed")
        with self._planning:
            self._keep_blocks(position)  # again: the last other delivery may have been removed meanwhile
            self._planner.enter(delivery, counts, position)
            self._definitions[delivery.name] = delivery
        self._lanes.renew(delivery.name)
        self.wake()

    def remove(self, name: str) -> None:
        """End a delivery; its messages and dead letters are dropped."""
        with self._planning:
            self._known(name)
            self._planner.leave(name)
            self._outbox.remove(name)
            del self._definitions[name]
            self._paused.discard(name)
            if not self._definitions and self._cursor is not None:
                self._cursor.remove()
                self._cursor = None

    def pause(self, name: str, paused: bool) -> None:
        """Keep messages, or send them again."""
        self._known(name)
        self._outbox.pause(name, paused)
        if paused:
            self._paused.add(name)
        else:
            self._paused.discard(name)
            self._put_all(name)

    def names(self) -> list[str]:
        return sorted(self._definitions)

    def shown(self, name: str) -> dict[str, Any]:
        """A delivery and how it is doing."""
        return {**self._known(name).shown(), **self._outbox.counters(name)}

    def dead_letters(self, name: str, after: int, limit: int) -> list[dict[str, Any]]:
        """What was given up, with reasons, oldest first."""
        self._known(name)
        return self._outbox.dead_letters(name, after, limit)

    def redeliver(self, name: str, numbers: Iterable[int] | None = None) -> int:
        """Send dead letters again, with the same ids."""
        self._known(name)
        found = self._outbox.redeliver(name, numbers, time.time())
        self._put_all(name)
        return found

    def __len__(self) -> int:
        return len(self._definitions)

    def _known(self, name: str) -> DeliveryRule:
        if name not in self._definitions:
            raise Problem(404, f"there is no delivery {name!r}", hint="GET /v1/deliveries lists them")
        return self._definitions[name]

    # -- planning ----------------------------------------------------------------------------------

    def _plan(self) -> None:
        while not self._is_closed:
            try:
                self._plan_all()
                wait = POLL
            except Exception:  # noqa: BLE001 - a full disk, or a defect: nothing is lost
                _LOG.exception("deliveries could not be planned; tried again")
                wait = 5.0
            self._rest(wait)

    def _plan_all(self) -> None:
        """Plan until all blocks of the log are planned."""
        while not self._is_closed:
            with self._planning:
                if self._cursor is None:
                    return
                before = self._planner.position
                reached("plan.begin")
                for name, lane in self._planner.step(time.time()):
                    self._put(name, lane)
                if self._planner.position == before:
                    return
                reached("plan.end")
                self._cursor.advance(self._planner.position)

    def _rest(self, seconds: float) -> None:
        with self._planning:
            due = self._planner.due
        if due is not None:
            seconds = min(seconds, max(0.0, due - time.time()))
        with self._news:
            if not self._is_new:
                self._news.wait(seconds)
            self._is_new = False

    # -- sending -----------------------------------------------------------------------------------

    def _put_all(self, name: str) -> None:
        for delivery, lane in self._outbox.lanes():
            if delivery == name:
                self._put(delivery, lane)

    def _put(self, name: str, lane: str) -> None:
        first = self._outbox.first(name, lane)
        if first is not None and name not in self._paused:
            self._lanes.put(name, lane, first.due)

    def _send(self) -> None:
        targets: dict[str, tuple[int, Target]] = {}
        while (taken := self._lanes.take()) is not None:
            name, lane = taken
            try:
                waiting = self._outbox.first(name, lane)
                definition = self._definitions.get(name)
                is_wanted = definition is not None and name not in self._paused
                if waiting is not None and is_wanted and waiting.due <= time.time():
                    assert definition is not None
                    self._settle(name, waiting, self._try(definition, waiting, targets))
            except Exception:  # noqa: BLE001 - the same
                _LOG.exception("a message of %s could not be sent; tried again", name)
                time.sleep(1.0)
            finally:
                self._lanes.done(name, lane)
                self._put(name, lane)
        for _, target in targets.values():
            target.close()

    def _try(
        self, definition: DeliveryRule, waiting: WaitingMessage, targets: dict[str, tuple[int, Target]]
    ) -> Verdict:
        """Send by this thread's own target, made anew if the definition has changed."""
        name, version = definition.name, self._lanes.version(definition.name)
        known = targets.get(name)
        if known is None or known[0] != version:
            if known is not None:
                known[1].close()
            targets[name] = version, target_of(definition.to, definition.retries(), definition.secret)
        reached("send.begin")
        verdict = targets[name][1].send(waiting.message, waiting.tried + 1)
        reached("send.end")
        return verdict

    def _settle(self, name: str, waiting: WaitingMessage, verdict: Verdict) -> None:
        now = time.time()
        if verdict.delivered:
            self._outbox.delivered(name, waiting.number, now)
        elif verdict.wait is not None:
            self._outbox.retry(name, waiting.number, now + verdict.wait, verdict.reason)
        else:
            _LOG.warning("delivery %s gave up a message: %s", name, verdict.reason)
            self._outbox.give_up(name, waiting, verdict.reason, now)


class Lanes:
    """Lanes that have something to send, by when. One that is taken is not taken again until it is done."""

    def __init__(self) -> None:
        self._ready = Condition()
        self._heap: list[tuple[float, str, str]] = []
        self._due: dict[tuple[str, str], float] = {}
        self._taken: set[tuple[str, str]] = set()
        self._versions: dict[str, int] = {}
        self._is_closed = False

    def put(self, name: str, lane: str, due: float) -> None:
        """A lane has a message that is due then."""
        key = name, lane
        with self._ready:
            if key not in self._taken and due < self._due.get(key, float("inf")):
                self._due[key] = due
                heapq.heappush(self._heap, (due, name, lane))
                self._ready.notify()

    def take(self) -> tuple[str, str] | None:
        """The next lane that is due; waits for it. None when closed."""
        with self._ready:
            while not self._is_closed:
                now = time.time()
                while self._heap and self._due.get(self._heap[0][1:]) != self._heap[0][0]:
                    heapq.heappop(self._heap)  # put again with an earlier time, or taken
                if self._heap and self._heap[0][0] <= now:
                    _, name, lane = heapq.heappop(self._heap)
                    del self._due[name, lane]
                    self._taken.add((name, lane))
                    return name, lane
                self._ready.wait(self._heap[0][0] - now if self._heap else None)
            return None

    def done(self, name: str, lane: str) -> None:
        """A lane may be taken again, once it is put."""
        with self._ready:
            self._taken.discard((name, lane))

    def renew(self, name: str) -> None:
        """The delivery has another definition."""
        with self._ready:
            self._versions[name] = self._versions.get(name, 0) + 1

    def version(self, name: str) -> int:
        return self._versions.get(name, 0)

    def close(self) -> None:
        with self._ready:
            self._is_closed = True
            self._ready.notify_all()
