"""A client of a server or broker: subscribe by SQL, and have the exact answer, kept fresh.

    with tocsin.connect("broker:7712") as connection:
        stocks = connection.subscribe("SELECT * FROM stocks JOIN reviews USING (symbol) WHERE per < 20")
        seq, rows = stocks.snapshot()          the whole answer
        for change in stocks.follow():         then how it changes
            change.seq, change.deltas
        stocks.content()                       the whole answer, at any time

A connection that is lost is made again, with any of the addresses given, and resumes where it was: nothing is
lost and nothing comes twice. All subscriptions of a connection share the rows that they hold and one engine
that evaluates them (`answers.py`); `subscribe_all` makes many at once. Changes wait in a queue of bounded
length; a reader that is too slow gets `ChangesLost`, and starts again from a snapshot.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from threading import Condition
from time import monotonic
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from tocsin.errors import SubscriptionError, TocsinError, UsageError
from tocsin.model.delta import Deltas
from tocsin.network.answers import Answers
from tocsin.network.described import encoded_request
from tocsin.network.follower import ClientNode
from tocsin.network.stations import (
    CONNECT,
    FEWEST_BACK_OFF,
    LONGER,
    MOST_BACK_OFF,
    REMIND,
    LoopThread,
    Peer,
    address_of,
    merged,
)
from tocsin.network.wire import VERSION, Bye, Frame, FrameError, Hello, Place, Welcome, Where, write_boxes

__all__ = ["Change", "ChangesLost", "Connection", "RemoteSubscription", "connect"]

PLACEMENTS = ("given", "interest")
MAX_CHANGES = 10_000
"""How many changes may wait to be read."""


class ChangesLost(TocsinError):
    """A reader was too slow; the content is right, and further changes follow from it."""


class Change(NamedTuple):
    """How an answer changed up to a seq of the server."""

    seq: int
    deltas: Deltas


class RemoteSubscription:
    """One query at a server; any thread may use it."""

    def __init__(self, connection: Connection, name: int, sql: str) -> None:
        self.sql = sql
        self._connection, self._name = connection, name
        self._is_ready = False
        self._changes: deque[Change] = deque()
        self._lost = ""
        self.seq = -1
        self.failure = ""

    def content(self) -> list[dict[str, Any]]:
        """The whole answer, as of `seq`; a TocsinError if a row of it could not be sent."""
        with self._connection._changed:
            if self.failure:
                raise SubscriptionError(self.failure)
            if not self._is_ready:
                raise TocsinError("the server has not answered yet", hint="subscribe waits for it")
            if self._name not in self._connection._subscriptions:
                raise TocsinError("the subscription has ended", hint="subscribe again")
            if missing := self._connection._missing(self._name):
                raise TocsinError(missing, hint="make the row shorter, or narrow the condition")
            return self._connection._answers.content(self._name)

    def snapshot(self) -> tuple[int, list[dict[str, Any]]]:
        """The seq and the whole answer as of it; what is followed from here on is what comes after."""
        with self._connection._changed:
            rows = self.content()
            self._changes.clear()
            return self.seq, rows

    def follow(self, seconds: float | None = None) -> Iterator[Change]:
        """How the answer changes, from the last change read; ends if none comes for so many seconds."""
        while (change := self.next(seconds)) is not None:
            yield change

    def next(self, seconds: float | None = None) -> Change | None:
        """The next change; None if none comes for so many seconds, or the subscription has ended."""
        changed = self._connection._changed
        until = None if seconds is None else monotonic() + seconds
        with changed:
            while not (self._changes or self._lost or self._has_ended):
                if self.failure:
                    raise SubscriptionError(self.failure)
                left = None if until is None else until - monotonic()
                if left is not None and left <= 0:
                    return None
                changed.wait(left)
            if self._lost:
                reason, self._lost = self._lost, ""
                self._changes.clear()
                raise ChangesLost(reason, hint="take a snapshot, then go on following")
            return self._changes.popleft() if self._changes else None

    def wait(self, seq: int, seconds: float = 30.0) -> None:
        """Wait until the answer is that of a seq of the server, or of a later one."""
        until = monotonic() + seconds
        with self._connection._changed:
            while self.seq < seq:
                left = until - monotonic()
                if self.failure:
                    raise SubscriptionError(self.failure)
                if self._has_ended:
                    what = "connection is closed" if self._connection._is_closed else "subscription has ended"
                    raise TocsinError(f"seq {seq} was not reached: the {what}", hint="subscribe again")
                if left <= 0:
                    raise TocsinError(
                        f"seq {seq} was not reached within {seconds:g} s: it is {self.seq}",
                        hint="see whether a broker can be reached, or wait longer",
                    )
                self._connection._changed.wait(left)

    @property
    def _has_ended(self) -> bool:
        return self._connection._is_closed or self._name not in self._connection._subscriptions

    def unsubscribe(self) -> None:
        """End it; whoever follows it ends, too."""
        self._connection._unsubscribe(self._name)

    # -- called by the connection, which has the lock ------------------------------------------------

    def _append(self, change: Change) -> None:
        if len(self._changes) >= MAX_CHANGES:
            self._lost = f"more than {MAX_CHANGES} changes of {self.sql!r} waited"
            self._changes.clear()
        self._changes.append(change)


class Connection:
    """A connection to a server or broker; any thread may use it."""

    def __init__(
        self, addresses: Sequence[str], token: str, tls: ssl.SSLContext | None, placement: str = "given"
    ) -> None:
        if not addresses:
            raise UsageError("no address to connect to", hint="HOST:PORT")
        if placement not in PLACEMENTS:
            raise UsageError(f"there is no placement {placement!r}", hint=" or ".join(PLACEMENTS))
        self._looks = placement == "interest"  # for a nearer broker, after each new subscription
        self._nearest: tuple[str, int] | None = None
        self._moving: tuple[str, int] | None = None  # to which the client connects, because it is nearer
        self._unreachable: set[tuple[str, int]] = set()  # of those that were said to be nearer
        self._placed = 0  # subscriptions of which the present broker knows
        self._addresses = [address_of(address) for address in addresses]
        self._token, self._tls = token, tls
        self._key = uuid4().hex
        self._names = count(1)
        self._answers = Answers()
        self._follower = ClientNode(self._key, self._answers)
        self._subscriptions: dict[int, RemoteSubscription] = {}
        self._changed = Condition()
        self._peer: Peer | None = None
        self._refusal = ""
        self._is_closed = False
        self._lost = asyncio.Event()
        self._thread = LoopThread("tocsin-client")
        self._tasks = [
            asyncio.run_coroutine_threadsafe(work, self._thread.loop)
            for work in (self._stay_connected(), self._repeat_questions())
        ]

    # -- for users ---------------------------------------------------------------------------------

    def subscribe(self, sql: str, seconds: float = 30.0) -> RemoteSubscription:
        """Follow a query; waits for its content."""
        return self.subscribe_all([sql], seconds)[0]

    def subscribe_all(self, texts: Sequence[str], seconds: float = 30.0) -> list[RemoteSubscription]:
        """Follow many queries, all or none; waits for their contents. Faster than one after the other."""
        if not all(sql.strip() for sql in texts):
            raise SubscriptionError("the text is empty", hint="write SELECT ... FROM ...")
        if self._is_closed:
            raise TocsinError("the connection is closed", hint="connect again")
        made: list[RemoteSubscription] = []
        requests: list[tuple[int, bytes]] = []
        with self._changed:
            for sql in texts:
                name = next(self._names)
                made.append(RemoteSubscription(self, name, sql))
                self._subscriptions[name], self._answers.sql[name] = made[-1], sql
                requests.append((name, encoded_request(self._token, f"{self._key}/{name}", sql)))
        self._call(lambda: [frame for one in requests for frame in self._follower.subscribe(*one)])
        until = monotonic() + seconds
        with self._changed:
            while not all(one._is_ready or one.failure for one in made) and not self._refusal:
                left = until - monotonic()
                if self._is_closed or left <= 0 or not self._changed.wait(left):
                    break
            failed = [one for one in made if one.failure or not one._is_ready]
        if failed:
            for one in made:
                self._unsubscribe(one._name)
            reason = failed[0].failure or self._refusal or f"no answer within {seconds:g} s"
            hint = "are address and token right?" if self._refusal else "is the server there?"
            raise SubscriptionError(reason, hint="" if failed[0].failure else hint)
        return made

    @property
    def is_connected(self) -> bool:
        return self._peer is not None

    def close(self) -> None:
        """End all subscriptions and close the connection."""
        if self._is_closed:
            return
        bodies = [encoded_request(self._token, f"{self._key}/{name}", "") for name in self._subscriptions]
        self._call(lambda: self._follower.end_all(bodies))
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.run(self._end(), 10)
        self._thread.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- in the loop -------------------------------------------------------------------------------

    def _call(self, made: Callable[[], list[Frame]]) -> None:
        """Have the loop's thread change what is followed, and send what that needs."""

        def call() -> None:
            with self._changed:
                frames = made()
            self._send(frames)

        self._thread.loop.call_soon_threadsafe(call)

    def _unsubscribe(self, name: int) -> None:
        with self._changed:
            known = self._subscriptions.pop(name, None)
            self._changed.notify_all()
        if known is not None and not self._is_closed:
            body = encoded_request(self._token, f"{self._key}/{name}", "")
            self._call(lambda: self._follower.unsubscribe(name, body))

    def _send(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if self._peer is not None:
                self._peer.send(frame)

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._peer is not None:
            self._peer.close("the client ends")
        await asyncio.sleep(0)

    async def _repeat_questions(self) -> None:
        renewal, renewed = encoded_request(self._token, f"{self._key}/", ""), monotonic()
        while True:
            await asyncio.sleep(REMIND)
            with self._changed:
                frames = self._follower.remind()
                if self._follower.lease and monotonic() - renewed > self._follower.lease / 3:
                    frames, renewed = frames + self._follower.renew(renewal), monotonic()
            self._send(frames)

    async def _stay_connected(self) -> None:
        """Connect to one of the addresses, in turn; wait longer after each failure."""
        loop, wait = asyncio.get_running_loop(), FEWEST_BACK_OFF
        for turn in count():
            host, port = self._nearest or self._addresses[turn % len(self._addresses)]
            self._moving, self._nearest = self._nearest, None  # if it cannot be reached, one of those given
            self._lost.clear()
            try:
                async with asyncio.timeout(CONNECT):
                    await loop.create_connection(
                        lambda: Peer(self, is_parent=True), host or "localhost", port, ssl=self._tls
                    )
                await self._lost.wait()
                wait = FEWEST_BACK_OFF
            except (OSError, UnicodeError):  # the second is of a name that cannot be one
                self._give_up_moving()
                wait = min(LONGER * wait, MOST_BACK_OFF)
            await asyncio.sleep(wait)

    # -- as the owner of a peer --------------------------------------------------------------------

    def opened(self, peer: Peer) -> None:
        peer.send(Hello(VERSION, self._token, self._key, True))

    def received(self, peer: Peer, frames: Sequence[Frame]) -> None:
        out: list[Frame] = []
        with self._changed:
            for frame in merged(frames):
                if isinstance(frame, Bye):
                    self._refused(peer, frame.reason)
                    return
                if isinstance(frame, Place):
                    out += self._move(peer, frame.address)
                elif peer.link is not None:
                    out += self._follower.take(frame)
                elif isinstance(frame, Welcome):
                    peer.link, self._peer, self._refusal, self._placed = 1, peer, "", 0
                    out += self._follower.connected(frame.server)
                else:
                    raise FrameError("the first frame is a Welcome")
            self._apply_answers()
            out += self._look_around()
        self._send(out)

    def _look_around(self) -> list[Frame]:
        """Request the broker that is nearest to all points, if there are more than at the last time."""
        ready = [one.wanted for one in self._follower.followed.values() if one.wanted is not None]
        if not self._looks or self._follower.is_resuming or len(ready) <= self._placed:
            return []
        self._placed = len(ready)
        forms, boxes = zip(*ready, strict=True)
        return [Where(write_boxes(np.concatenate(forms), np.concatenate(boxes)))]

    def _move(self, peer: Peer, address: str) -> list[Frame]:
        """Connect to another broker, and resume there."""
        if address and self._looks and address_of(address) not in self._unreachable:
            self._nearest = address_of(address)
            peer.close("there is a nearer broker")
        return []

    def _give_up_moving(self) -> None:
        if self._moving is not None:
            self._unreachable.add(self._moving)

    def _refused(self, peer: Peer, reason: str) -> None:
        with self._changed:
            if peer.link is None:
                self._give_up_moving()
                self._refusal = f"the connection was refused: {reason}"
            self._changed.notify_all()
        peer.abort()

    def closed(self, peer: Peer) -> None:
        with self._changed:
            if self._peer is peer:
                self._peer = None
            self._follower.disconnected()
        self._lost.set()

    def _apply_answers(self) -> None:
        """Apply what frames have changed to the answers."""
        answers, seq = self._answers, self._follower.watermark
        for name, deltas in answers.flush(seq):
            if (subscription := self._subscriptions.get(name)) is not None:
                subscription._append(Change(seq, deltas))
        for name, followed in self._follower.followed.items():
            if (subscription := self._subscriptions.get(name)) is not None:
                subscription.failure = followed.failure or answers.failures.get(name, "")
                if followed.is_ready:
                    subscription.seq, subscription._is_ready = seq, True
        for name, reason in answers.lost.items():
            if (subscription := self._subscriptions.get(name)) is not None:
                subscription._lost = f"events of {subscription.sql!r} are missing: {reason}"
        answers.lost.clear()
        self._changed.notify_all()

    def _missing(self, name: int) -> str:
        """Why a row of an answer is not there, if one is missing."""
        return self._answers.missing(self._follower.rows_of(name))


def connect(
    *addresses: str, token: str = "", tls: ssl.SSLContext | None = None, placement: str = "given"
) -> Connection:
    """Connect to a server or broker, the first of some addresses that answers.

    Returns at once; `subscribe` waits for the connection. With placement "interest", the client moves after
    each subscription to the broker whose subscriptions are nearest to its own, from the one given downwards:
    fewer links then carry the same messages. Brokers take part that say where they are (`--public`).
    """
    return Connection(addresses, token, tls, placement)
