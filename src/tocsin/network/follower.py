"""What a client does, without I/O: it keeps the contents of its subscriptions from the messages it hears.

    Answer, Replay   a snapshot: the rows that a subscription holds at a seq
    Update           messages and a watermark

A client takes messages as they come, early or twice, and applies those up to the watermark in order of
(seq, step), each once; so its contents are those of the server at the watermark. It verifies: brokers may
send it more than it wants. While it resumes, watermarks of its new parent do not count (`node.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import msgspec
import numpy as np

from tocsin.model.columns import Index
from tocsin.network.batches import MessageBatch
from tocsin.network.routing import RoutingTable, are_inside
from tocsin.network.wire import (
    Again,
    Answer,
    Ask,
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
from tocsin.reformulate.contents import SelectionContents, SemijoinContents

__all__ = ["ClientNode", "Followed", "Snapshot"]


class Snapshot(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The rows that a subscription holds: by side (id, key, body)."""

    subscription: int
    seq: int
    infers: bool  # whether rows without a partner are discarded without a message
    rows: tuple[list[tuple[int, int, bytes]], list[tuple[int, int, bytes]]]
    definitions: str = ""  # of the tables
    tables: tuple[str, str] = ("", "")  # by side

    @classmethod
    def of(
        cls,
        subscription: int,
        seq: int,
        contents: SelectionContents,
        definitions: str = "",
        tables: tuple[str, ...] = ("", ""),
    ) -> Snapshot:
        """What a client of the server's would hold."""
        left, right = ([(row, key, body) for row, (key, body) in held.items()] for held in contents.held)
        infers = isinstance(contents, SemijoinContents)
        return cls(subscription, seq, infers, (left, right), definitions, tables)  # type: ignore[arg-type]

    def contents(self) -> SelectionContents:
        left, right = ({row: (key, body) for row, key, body in rows} for rows in self.rows)
        return (SemijoinContents if self.infers else SelectionContents)((left, right))  # type: ignore[arg-type]


_SNAPSHOTS = msgspec.msgpack.Decoder(Snapshot)


@dataclass
class Followed:
    """One subscription of a client."""

    ask: bytes  # the request that made it, to be made again after a restart of the server
    number: int = -1  # the server's, once it has answered
    seq: int = -1  # of its content
    wanted: FormBoxes | None = None
    contents: SelectionContents | None = None
    failure: str = ""
    pending: list[MessageBatch] = field(default_factory=list)

    @property
    def is_ready(self) -> bool:
        return self.contents is not None


OnStart = Callable[[int, Followed, Snapshot], None]
"""Called with the name of a subscription whose content begins with a snapshot."""


class ClientNode:
    """The subscriptions of a client by a name of its own."""

    def __init__(self, key: str, on_start: OnStart | None = None) -> None:
        self.watermark = 0
        self.server = ""
        self.followed: dict[int, Followed] = {}
        self._key, self._on_start = key, on_start
        self._table = RoutingTable()  # by name of the subscription
        self._numbers = count(1)
        self._asked: dict[int, int] = {}  # questions over this connection: the subscription asked for
        self._resumes: set[int] = set()
        self._answers = 0  # on this connection
        self._is_connected = False

    # -- connection --------------------------------------------------------------------------------

    def connected(self, server: str) -> list[Frame]:
        """There is a new connection: resume, and ask what was not answered."""
        self.disconnected()
        self._is_connected = True
        self.server = self.server or server
        return self._ask_to_resume() + self._ask_again()

    def disconnected(self) -> None:
        """The connection is closed; what was asked over it will not be answered."""
        self._is_connected = False
        self._asked.clear()
        self._resumes.clear()
        self._answers = 0

    @property
    def is_resuming(self) -> bool:
        return bool(self._resumes)

    def remind(self) -> list[Frame]:
        """Ask again, if answers may be lost."""
        if not self._is_connected:
            return []
        return (self._ask_to_resume() if self.is_resuming else []) + self._ask_again()

    def _ask_to_resume(self) -> list[Frame]:
        ready = [followed for followed in self.followed.values() if followed.is_ready]
        request = next(self._numbers)
        self._resumes.add(request)
        numbers = [followed.number for followed in ready]
        return [Resume(request, self.server, self.watermark, b"", self._key, numbers)]

    def _ask_again(self) -> list[Frame]:
        waiting = [
            name for name, followed in self.followed.items() if not followed.is_ready and not followed.failure
        ]
        return [self._ask(name) for name in waiting]

    # -- subscriptions -----------------------------------------------------------------------------

    def subscribe(self, name: int, ask: bytes) -> list[Frame]:
        """Follow what a request asks for, under a name that is not in use."""
        assert name not in self.followed
        self.followed[name] = Followed(ask)
        return [self._ask(name)] if self._is_connected else []

    def unsubscribe(self, name: int, ask: bytes = b"") -> list[Frame]:
        """Forget a subscription; `ask` tells the server."""
        wanted = self.followed.pop(name).wanted
        self._table.remove(name)
        if not self._is_connected:
            return []
        frames: list[Frame] = [Ask(next(self._numbers), ask)] if ask else []
        if wanted is not None and not are_inside(wanted, self._table.boxes_of()).all():
            frames.insert(0, Leave(self._answers, write_boxes(*wanted)))
        return frames

    def _ask(self, name: int) -> Ask:
        request = next(self._numbers)
        self._asked[request] = name
        return Ask(request, self.followed[name].ask)

    # -- frames ------------------------------------------------------------------------------------

    def take(self, frame: Frame) -> list[Frame]:
        """Apply a frame; what to send because of it."""
        if isinstance(frame, Update):
            self._receive(frame.batch.open())
            if not self.is_resuming:
                self._reach(frame.watermark)
        elif isinstance(frame, Answer):
            self._answered(frame)
        elif isinstance(frame, Grant):
            self._answers = frame.number
        elif isinstance(frame, Replay):
            return self._replayed(frame)
        elif isinstance(frame, Again):
            return self._ask_to_resume()
        else:
            raise FrameError(f"a {type(frame).__name__} has no place on this connection")
        return []

    def _receive(self, batch: MessageBatch) -> None:
        for name, mine in self._table.route(batch) if len(batch) else ():
            self.followed[name].pending.append(batch.take(mine))

    def _answered(self, answer: Answer) -> None:
        self._answers = answer.number
        name = self._asked.pop(answer.request, -1)
        followed = self.followed.get(name)
        if followed is None or followed.is_ready:
            return  # answered before, or no longer wanted
        if answer.failure:
            followed.failure = answer.failure
            return
        followed.wanted = read_boxes(answer.forms, 1)
        self._table.enter(name, *followed.wanted)
        self._start(name, _snapshot(answer.body))

    def _start(self, name: int, snapshot: Snapshot) -> None:
        followed = self.followed[name]
        followed.number, followed.seq = snapshot.subscription, snapshot.seq
        followed.contents = snapshot.contents()
        if self._on_start is not None:
            self._on_start(name, followed, snapshot)

    def _replayed(self, replay: Replay) -> list[Frame]:
        if replay.request not in self._resumes:
            return []
        self._resumes.clear()
        if replay.server != self.server:
            return self._start_over(replay.server, replay.upto)
        if replay.is_complete:
            self._receive(replay.batch.open())
            self._reach(replay.upto)
            return []
        snapshots = [_snapshot(data) if data else None for data in replay.snapshots]
        by_number = {snapshot.subscription: snapshot for snapshot in snapshots if snapshot is not None}
        for name, followed in self.followed.items():
            if followed.is_ready and (snapshot := by_number.get(followed.number)) is not None:
                if snapshot.seq > followed.seq:
                    self._start(name, snapshot)
            elif followed.is_ready and followed.seq < replay.upto:
                self._reset(name)  # the server does not know it any more
        self.watermark = max(self.watermark, replay.upto)
        return self._ask_again()

    def _start_over(self, server: str, upto: int) -> list[Frame]:
        """Another server: nothing that is held belongs to it."""
        self.server, self.watermark = server, upto
        for name in self.followed:
            self._reset(name)
        return self._ask_again()

    def _reset(self, name: int) -> None:
        self._table.remove(name)
        self.followed[name] = Followed(self.followed[name].ask)

    # -- contents ----------------------------------------------------------------------------------

    def _reach(self, watermark: int) -> None:
        """Apply all messages up to a watermark."""
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        for followed in self.followed.values():
            if followed.contents is not None:
                if followed.pending:
                    self._apply(followed, watermark)
                followed.seq = max(followed.seq, watermark)

    def _apply(self, followed: Followed, watermark: int) -> None:
        batch = MessageBatch.concat(followed.pending)
        seq, step = batch.messages.seq, batch.messages.step
        order = np.lexsort((step, seq))
        distinct = np.ones(len(order), np.bool_)
        distinct[1:] = (np.diff(seq[order]) != 0) | (np.diff(step[order]) != 0)
        order = order[distinct]
        now = order[(seq[order] > followed.seq) & (seq[order] <= watermark)]
        later = order[seq[order] > watermark]
        followed.pending = [batch.take(later)] if len(later) else []
        for same in np.split(now, np.flatnonzero(np.diff(seq[now])) + 1):
            self._hear(followed, batch, same)

    def _hear(self, followed: Followed, batch: MessageBatch, at: Index) -> None:
        """Apply the messages of one seq."""
        assert followed.contents is not None
        bodies: dict[int, dict[int, bytes]] = {0: {}, 1: {}}
        for i in at.tolist():
            if body := batch.body(i):  # GONE has none
                bodies[int(batch.messages.side[i])][int(batch.messages.row[i])] = body
        followed.contents.hear(batch.messages.take(at), bodies)

    def _check(self) -> None:
        self._table._check()
        for followed in self.followed.values():
            assert followed.is_ready or not followed.pending or followed.wanted is not None


def _snapshot(data: bytes) -> Snapshot:
    try:
        return _SNAPSHOTS.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FrameError(f"a snapshot cannot be read: {error}") from None
