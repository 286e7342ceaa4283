"""What a client does, without I/O: it keeps what its subscriptions hold, from the messages it receives.

    Answer, Replay   a snapshot: what a subscription holds at a seq
    Update           messages and a watermark

A client takes messages as they come, early or twice, and applies those up to the watermark in order of
(seq, step), each once; so its contents are those of the server at the watermark. It verifies: brokers may
send it more than it wants. While it resumes, watermarks of its new parent do not count (`node.py`).

All subscriptions are at the same seq, the watermark: a snapshot that is ahead of it waits until it gets
there. What is held is shared by form (`holdings.py`), and evaluated by a `FollowerSink` (`answers.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Protocol

import msgspec
import numpy as np

from tocsin.errors import TocsinError
from tocsin.network.batches import MessageBatch
from tocsin.network.holdings import FormHoldings, Sink, Snapshot, made_holdings
from tocsin.network.routing import NO_BOXES, are_inside
from tocsin.network.wire import (
    Again,
    Answer,
    ClientRequest,
    FormBoxes,
    Frame,
    FrameError,
    Grant,
    Leave,
    Replay,
    Resume,
    Update,
    read_boxes,
    write_boxes,
)

__all__ = ["ClientNode", "Followed", "FollowerSink", "Snapshot"]

MAX_PARTS = 64  # forms of a subscription

_SNAPSHOTS = msgspec.msgpack.Decoder(Snapshot)


class FollowerSink(Sink, Protocol):
    """Who evaluates queries, and is called when they begin and end. A TocsinError ends what begins."""

    def begin(self, name: int, snapshot: Snapshot) -> None:
        """A subscription begins, before what it holds comes; or it begins again, after a gap."""

    def began(self, name: int, snapshot: Snapshot) -> None:
        """What it holds has come."""

    def start(self) -> None:
        """Have begun with all that began: further messages come."""

    def end(self, name: int, *, begins_again: bool) -> None:
        """A subscription ends, or will begin again."""


@dataclass
class Followed:
    """One subscription of a client."""

    body: bytes  # of the request that made it, to be repeated after a restart of the server
    number: int = -1  # the server's, once it has answered
    wanted: FormBoxes | None = None
    held: Snapshot | None = None  # without rows; None: it has not begun
    waiting: Snapshot | None = None  # ahead of the watermark
    failure: str = ""

    @property
    def is_ready(self) -> bool:
        return self.held is not None


class ClientNode:
    """The subscriptions of a client by a name of its own."""

    def __init__(self, key: str, sink: FollowerSink, clock: Callable[[], float] = monotonic) -> None:
        self.watermark = 0
        self.server = ""
        self.lease = 0.0  # seconds that the server remembers a silent client; 0: always
        self.followed: dict[int, Followed] = {}
        self.holdings: dict[int, FormHoldings] = {}  # by form
        self._key, self._sink = key, sink
        self._pending: list[MessageBatch] = []
        self._waiting: set[int] = set()  # names of subscriptions with a snapshot that waits, or had one
        self._numbers = count(1)
        self._requested: dict[
            int, int
        ] = {}  # by open request over this connection: the name of its subscription
        self._renewals: set[int] = set()
        self._resumes: set[int] = set()
        self._answers = 0  # on this connection
        self._is_connected = False
        self._clock = clock
        self._sent: dict[int, float] = {}  # by request over this connection: when
        self._last_answer = clock()  # when the last request was sent that the server has answered

    # -- connection --------------------------------------------------------------------------------

    def connected(self, server: str) -> list[Frame]:
        """There is a new connection: resume, and repeat requests without an answer."""
        self.disconnected()
        self._is_connected = True
        self.server = self.server or server
        return self._request_resume() + self._repeat_requests()

    def disconnected(self) -> None:
        """The connection is closed; requests over it will not be answered."""
        self._is_connected = False
        self._requested.clear()
        self._renewals.clear()
        self._resumes.clear()
        self._sent.clear()
        self._answers = 0
        self._drop_waiting()

    def _drop_waiting(self) -> None:
        """Snapshots that wait are worth nothing over another connection, or after a gap."""
        for followed in self.followed.values():
            followed.waiting = None

    @property
    def is_resuming(self) -> bool:
        return bool(self._resumes)

    def remind(self) -> list[Frame]:
        """Repeat requests, if answers may be lost."""
        if not self._is_connected:
            return []
        return (self._request_resume() if self.is_resuming else []) + self._repeat_requests()

    def renew(self, body: bytes) -> list[Frame]:
        """Have the server keep the subscriptions; if it has removed them, resume."""
        if not self._is_connected or not self.followed:
            return []
        request = self._question()
        self._renewals.add(request)
        return [ClientRequest(request, body)]

    def _question(self) -> int:
        """The number of a new request."""
        request = next(self._numbers)
        self._sent[request] = self._clock()
        return request

    def _is_expired(self) -> bool:
        """Whether the server may have removed this client: then messages may be missing."""
        return bool(self.lease) and self._clock() - self._last_answer > self.lease

    def _holds_any(self) -> bool:
        return any(one.is_ready or one.waiting is not None for one in self.followed.values())

    def _request_resume(self) -> list[Frame]:
        ready = [followed for followed in self.followed.values() if followed.is_ready]
        request = self._question()
        self._resumes.add(request)
        numbers = [followed.number for followed in ready]
        return [Resume(request, self.server, self.watermark, b"", self._key, numbers)]

    def _resume_after_gap(self) -> list[Frame]:
        """Messages may be missing, also those that follow snapshots that wait or are on their way."""
        self._drop_waiting()
        self._requested.clear()
        return self._request_resume() + self._repeat_requests()

    def _repeat_requests(self) -> list[Frame]:
        waiting = [
            name
            for name, followed in self.followed.items()
            if not followed.is_ready and followed.waiting is None and not followed.failure
        ]
        return [self._request(name) for name in waiting]

    # -- subscriptions -----------------------------------------------------------------------------

    def subscribe(self, name: int, body: bytes) -> list[Frame]:
        """Follow the query of a request, under a name that is not in use."""
        assert name not in self.followed
        self.followed[name] = Followed(body)
        return [self._request(name)] if self._is_connected else []

    def unsubscribe(self, name: int, body: bytes = b"") -> list[Frame]:
        """End a subscription; `body` is the request that ends it at the server, if any."""
        followed = self.followed[name]
        self._release(name)
        self._sink.end(name, begins_again=False)
        del self.followed[name]
        # answers on their way are from before the server removes it, and the name may be used again
        self._requested = {request: own for request, own in self._requested.items() if own != name}
        if not self._is_connected:
            return []
        frames: list[Frame] = [ClientRequest(next(self._numbers), body)] if body else []
        if followed.wanted is not None:
            forms, boxes = followed.wanted
            alone = ~are_inside(followed.wanted, self._all_wanted())  # others may want the same points
            if alone.any():
                frames.insert(0, Leave(self._answers, write_boxes(forms[alone], boxes[alone])))
        return frames

    def end_all(self, bodies: Iterable[bytes]) -> list[Frame]:
        """Have the server end subscriptions; this client ends, and keeps its rows."""
        return [ClientRequest(next(self._numbers), body) for body in bodies] if self._is_connected else []

    def _all_wanted(self) -> FormBoxes:
        wanted = [followed.wanted for followed in self.followed.values() if followed.wanted is not None]
        forms, boxes = zip(*(wanted or [NO_BOXES]), strict=True)
        return np.concatenate(forms), np.concatenate(boxes)

    def _release(self, name: int) -> None:
        """Hold nothing for a subscription any more."""
        held = self.followed[name].held
        for at, part in enumerate(held.parts if held is not None else ()):
            self.holdings[part.form].leave((name, at))
            if not len(self.holdings[part.form]):
                del self.holdings[part.form]

    def _request(self, name: int) -> ClientRequest:
        request = self._question()
        self._requested[request] = name
        return ClientRequest(request, self.followed[name].body)

    # -- frames ------------------------------------------------------------------------------------

    def take(self, frame: Frame) -> list[Frame]:
        """Apply a frame; what to send because of it."""
        if isinstance(frame, Update):
            self._receive(frame.batch.open())
            if self._is_expired() and not self.is_resuming:
                return self._resume_after_gap()
            if not self.is_resuming:
                self._reach(frame.watermark)
        elif isinstance(frame, Answer):
            return self._answered(frame)
        elif isinstance(frame, Grant):
            self._answers = frame.number
        elif isinstance(frame, Replay):
            return self._replayed(frame)
        elif isinstance(frame, Again):
            return self._resume_after_gap()
        else:
            raise FrameError(f"a {type(frame).__name__} has no place on this connection")
        return []

    def _receive(self, batch: MessageBatch) -> None:
        if len(batch):
            self._pending.append(batch)

    def _answered(self, answer: Answer) -> list[Frame]:
        self._answers = answer.number
        is_renewal, has_gap = answer.request in self._renewals, self._is_expired() and self._holds_any()
        self._renewals.discard(answer.request)
        if not answer.failure:
            self._last_answer = max(self._last_answer, self._sent.pop(answer.request, 0.0))
        if (has_gap or (is_renewal and answer.failure)) and not self.is_resuming:
            return self._resume_after_gap()
        if is_renewal:
            return []
        name = self._requested.pop(answer.request, -1)
        followed = self.followed.get(name)
        if followed is None or followed.is_ready or followed.waiting is not None:
            return []  # answered before, or no longer wanted
        if answer.failure:
            followed.failure = answer.failure
            return []
        snapshot = _snapshot(answer.body)
        if snapshot.seq >= self.watermark:  # else it is of another server than the watermark
            followed.wanted = read_boxes(answer.forms, MAX_PARTS)
            followed.waiting = snapshot
            self._waiting.add(name)
            if not self.is_resuming:
                self._begin_waiting()
        return []

    def _begin(self, name: int, snapshot: Snapshot) -> None:
        followed = self.followed[name]
        self._release(name)
        followed.number, followed.held, followed.waiting = snapshot.subscription, None, None
        try:
            self._sink.begin(name, snapshot)
            self._enter_parts(name, snapshot)
            followed.held, self.lease = snapshot, snapshot.lease
            self._sink.began(name, snapshot)
        except TocsinError as error:
            self._release(name)
            followed.held, followed.failure = None, str(error)

    def _enter_parts(self, name: int, snapshot: Snapshot) -> None:
        for at, part in enumerate(snapshot.parts):
            holdings = self.holdings.get(part.form)
            if holdings is None:
                holdings = self.holdings[part.form] = made_holdings(part, self._sink)
            holdings.enter((name, at), part, snapshot.seq)
            part.rows = []

    def _replayed(self, replay: Replay) -> list[Frame]:
        if replay.request not in self._resumes:
            return []
        self._last_answer = max(self._last_answer, self._sent.get(replay.request, 0.0))
        for request in self._resumes:
            self._sent.pop(request, None)
        self._resumes.clear()
        if replay.server != self.server:
            return self._start_over(replay.server, replay.upto)
        if replay.is_complete:
            self._receive(replay.batch.open())
            self._reach(replay.upto)
            self._begin_waiting()
            return []
        if replay.upto < self.watermark:
            return self._request_resume()
        snapshots = [_snapshot(data) if data else None for data in replay.snapshots]
        by_number = {
            snapshot.subscription: snapshot
            for snapshot in snapshots
            if snapshot is not None and snapshot.seq == replay.upto
        }
        self._drop_waiting()
        self.watermark = replay.upto
        self._pending = [batch.take(batch.messages.seq > replay.upto) for batch in self._pending]
        for name, followed in self.followed.items():
            if followed.is_ready and followed.number not in by_number:
                self._reset(name)  # the server does not know it any more
        for name, followed in self.followed.items():
            if followed.is_ready:
                self._begin(name, by_number[followed.number])
        return self._repeat_requests()

    def _start_over(self, server: str, upto: int) -> list[Frame]:
        """Another server: nothing that is held belongs to it."""
        self.server, self.watermark = server, upto
        self._pending = []
        for name in self.followed:
            self._reset(name)
        return self._repeat_requests()

    def _reset(self, name: int) -> None:
        if self.followed[name].is_ready:
            self._sink.end(name, begins_again=True)
            self._release(name)
        self.followed[name] = Followed(self.followed[name].body)

    # -- contents ----------------------------------------------------------------------------------

    def _reach(self, watermark: int) -> None:
        """Apply all messages up to a watermark."""
        self._begin_waiting()  # a snapshot of now that came while it resumed
        while watermark > self.watermark:
            waiting = [self.followed[name].waiting for name in self._waiting if name in self.followed]
            ahead = [snapshot.seq for snapshot in waiting if snapshot is not None]
            before = self.watermark
            self._sink.start()
            self.watermark = min([watermark, *(seq for seq in ahead if seq > before)])
            self._apply(before)
            self._begin_waiting()

    def _begin_waiting(self) -> None:
        """Begin with the snapshots that are as of the watermark."""
        for name in list(self._waiting):
            waiting = self.followed[name].waiting if name in self.followed else None
            if waiting is None:
                self._waiting.discard(name)
            elif waiting.seq == self.watermark:
                self._waiting.discard(name)
                self._begin(name, waiting)

    def _apply(self, before: int) -> None:
        """Apply the messages after a seq, up to the watermark."""
        if not self._pending:
            return
        batch = MessageBatch.concat(self._pending)
        seq, step, form = batch.messages.seq, batch.messages.step, batch.form
        later = np.flatnonzero(seq > self.watermark)
        self._pending = [batch.take(later)] if len(later) else []
        order = np.lexsort((step, seq, form))
        distinct = np.ones(len(order), np.bool_)
        for column in (seq, step, form):
            distinct[1:] &= np.diff(column[order]) == 0
        distinct[1:] = ~distinct[1:]
        order = order[distinct]
        order = order[(seq[order] <= self.watermark) & (seq[order] > before)]
        for mine in np.split(order, np.flatnonzero(np.diff(form[order])) + 1):
            if len(mine) and (holdings := self.holdings.get(int(form[mine[0]]))) is not None:
                holdings.apply(batch, mine)

    def rows_of(self, name: int) -> Iterator[tuple[str, int]]:
        """The rows that a subscription holds: table and number."""
        held = self.followed[name].held
        for at, part in enumerate(held.parts if held is not None else ()):
            yield from self.holdings[part.form].rows_of((name, at))

    def _check(self) -> None:
        members = sorted(
            (part.form, name, at)
            for name, followed in self.followed.items()
            if followed.held is not None
            for at, part in enumerate(followed.held.parts)
        )
        held = [(form, *member) for form, one in self.holdings.items() for member in one.members()]
        assert sorted(held) == members
        for one in self.holdings.values():
            one._check()


def _snapshot(data: bytes) -> Snapshot:
    try:
        return _SNAPSHOTS.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FrameError(f"a snapshot cannot be read: {error}") from None
