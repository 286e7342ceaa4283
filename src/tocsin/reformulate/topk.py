"""Range top-k as messages: changes become messages, subscriptions become filters, clients keep contents.

    change of an object ──► PaintTopk | UnicastTopk | RelaxTopk ──► Messages ──► filter ──► TopkClient

The filter of "the first k of l <= x <= r" is the point (l, r) with its k: a message has a rectangle, and
whether the point is in it needs nothing else (`Messages.addressed_to`). The client keeps objects by id. A
message sets the y of an object it keeps, or adds it; of more than k it drops the highest. y = ABSENT removes
an object.

Within one event order matters: first the object that moved, then those exposed, from the lowest. Messages
carry that order as `step`, so that the network may deliver those of one event in any order, or repeatedly: a
client keeps the messages of the last event apart, and its content is the content before that event with these
applied in order. An event is complete when a later one arrives, so events themselves must arrive in order.

>>> server = PaintTopk([2])
>>> server.load([0, 1, 2], x=[10, 20, 30], y=[1, 2, 3])
>>> client = TopkClient(5, 35, 2, server.content(5, 35, 2))
>>> messages = server.publish([0], x=[10], y=[9])  # the lowest rises: 2 is exposed
>>> own = messages.take(messages.addressed_to(5, 35, 2))
>>> client.receive(own.take([1]))  # the network may swap them
>>> client.receive(own.take([0]))
>>> client.content
[(2, 1), (3, 2)]

K12, sections II to VI. What differs: `step`, and UnicastTopk probes from the k-th y, since the printed one
misses objects for k > 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from tocsin.rank._kernels.paint import (
    GROUP,
    MOVE,
    SENT,
    STEP,
    SUBJECT,
    SUBJECT_X,
    SUBJECT_Y,
    SUBSCRIPTION,
    K,
    ObjectMoves,
    SubscriptionContents,
    fill,
    unicast,
)
from tocsin.rank._kernels.points import HOME, MAX, MIN, X, Y, rewind
from tocsin.rank.paint import Painter, Tiles, coalesced, paint_batch
from tocsin.rank.points import ABSENT, Points, columns
from tocsin.rank.space import SubscriptionSpace

__all__ = [
    *("ALL", "Message", "Messages", "PaintTopk", "RelaxTopk", "TopkClient", "TopkCounters", "TopkServer"),
    *("UnicastTopk", "ranges_in"),
]

Codes = NDArray[np.int64]
Ranges = tuple[ArrayLike, ArrayLike]
ALL = -1
"""As `to`: all subscriptions in the rectangle."""
_NAMES = ("seq", "step", "k", "object", "x", "y", "to")  # columns of `Messages` besides the rectangles


# -- messages ----------------------------------------------------------------------------------------


class Message(NamedTuple):
    """One message: `object` is at (x, y) now, for all ranges in `rectangle` that want the first k (0: any k).

    `step` is its order among the messages of the event `seq`; `to` addresses a single subscription.
    """

    seq: int
    step: int
    k: int
    object: int
    x: int
    y: int
    to: int
    rectangle: tuple[int, int, int, int]


@dataclass(frozen=True)
class Messages:
    """Many messages, columnar; `len` counts them, iterating is for convenience.

    Whether a message is for a range [l, r] depends on the message alone, l_low <= l <= l_high and
    r_low <= r <= r_high, so a network can route it like any other content.

    >>> messages = Messages.of(
    ...     seq=[1, 1], step=[0, 1], k=[2, 2], object=[7, 8], x=[3, 5], y=[12, 9],
    ...     rectangles=[(0, 3, 3, 9), (0, 3, 5, 9)],
    ... )
    >>> messages.addressed_to(2, 4, 2).tolist()
    [True, False]
    >>> len(messages.take([1])), messages.to_arrow().column_names[-4:]
    (1, ['l_low', 'l_high', 'r_low', 'r_high'])

    K12, section II-A: Msg(l_I, r_I, l_O, r_O, x, y) with l_O < l <= l_I and r_I <= r < r_O; here both ends
    belong to the rectangle, so that the ends of int64 can mean open ranges.
    """

    seq: Codes
    step: Codes
    k: Codes
    object: Codes
    x: Codes
    y: Codes
    to: Codes
    rectangles: Codes  # by message: l_low, l_high, r_low, r_high

    @classmethod
    def of(
        cls, *, seq: ArrayLike, rectangles: ArrayLike, to: ArrayLike = ALL, **columns: ArrayLike
    ) -> Messages:
        """From columns; single numbers stand for all messages."""
        boxes = np.asarray(rectangles, np.int64).reshape(-1, 4)
        given = {"seq": seq, "to": to, **columns}
        whole = {name: np.broadcast_to(np.asarray(given[name], np.int64), len(boxes)) for name in _NAMES}
        return cls(**whole, rectangles=boxes)

    @classmethod
    def concat(cls, parts: Iterable[Messages]) -> Messages:
        """Messages of all parts, one part after the other."""
        listed = list(parts) or [cls.of(seq=[], rectangles=[], step=[], k=[], object=[], x=[], y=[])]
        return cls(*(np.concatenate([getattr(part, f.name) for part in listed]) for f in fields(cls)))

    def __len__(self) -> int:
        return len(self.seq)

    def __iter__(self) -> Iterator[Message]:
        columns = (getattr(self, name).tolist() for name in _NAMES)
        return map(Message, *columns, map(tuple, self.rectangles.tolist()))

    def take(self, index: ArrayLike) -> Messages:
        """The messages at some positions."""
        at = np.asarray(index)
        return Messages(*(getattr(self, f.name)[at] for f in fields(self)))

    def addressed_to(self, low: int, high: int, k: int, name: int = ALL) -> NDArray[np.bool_]:
        """Which messages are for the subscription [low, high] with its k; `name` is its number in `to`."""
        l_low, l_high, r_low, r_high = self.rectangles.T
        inside = (l_low <= low) & (low <= l_high) & (r_low <= high) & (high <= r_high)
        return np.asarray(
            inside & ((self.k == k) | (self.k == 0)) & ((self.to == ALL) | (self.to == name)), np.bool_
        )

    def to_arrow(self) -> Any:
        """A pyarrow Table with one column per number."""
        columns = {name: pa.array(getattr(self, name)) for name in _NAMES}
        ends = zip(("l_low", "l_high", "r_low", "r_high"), self.rectangles.T, strict=True)
        return pa.table(columns | {name: pa.array(values) for name, values in ends})


# -- servers -----------------------------------------------------------------------------------------


class TopkCounters(NamedTuple):
    """What a server has done so far. `probed`: subscriptions probed one by one."""

    events: int
    messages: int
    min_y: int
    first_k: int
    snap: int
    spared: int
    probed: int


def ranges_in(low: ArrayLike, high: ArrayLike) -> SubscriptionSpace:
    """Subscriptions [low, high] under slots 0, 1, ..."""
    space, left = SubscriptionSpace(), np.asarray(low, np.int64)
    space.add(np.arange(len(left)), left, high)
    return space


class TopkServer(ABC):
    """Objects under small ids, and a way to publish their changes; `ks` are the k of subscriptions.

    No two objects have the same y at the same time: callers break ties before (`labels.py` does that for the
    engine, by primary key).
    """

    keeps_all = False
    """Whether a client has to keep all objects of its range."""

    def __init__(self, ks: Sequence[int]) -> None:
        self.ks = np.array(ks, np.int64)
        self.points = Points()
        self.seq = 0
        self._events = self._messages = 0

    def load(self, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> None:
        """Load the objects that are present before the first event."""
        number, x, y = columns(objects, x, y)
        values, counts = np.unique(y[y != ABSENT], return_counts=True)
        if np.any(counts > 1):
            raise ValueError(f"two objects have y = {values[counts > 1][0]}: break ties before")
        self.points.load(self._numbers_of(number), x, y)

    def publish(self, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> Messages:
        """Changes in order, each an event: where an object is now. y = ABSENT: it is deleted."""
        number, x, y = columns(objects, x, y)
        messages = self._messages_of(number, x, y)
        return self._sent(messages, self.seq + 1 + messages.seq, len(number))

    def _sent(self, messages: Messages, seq: Codes, events: int) -> Messages:
        """Assign seq, and within each event the steps."""
        self.seq += events
        self._events, self._messages = self._events + events, self._messages + len(messages)
        at = np.arange(len(seq))
        first = np.flatnonzero(np.diff(seq, prepend=-1))
        step = at - np.repeat(at[first], np.diff(first, append=len(seq)))
        return Messages(**(messages.__dict__ | {"seq": seq, "step": step}))

    def content(self, low: int, high: int, k: int) -> list[tuple[int, int]]:
        """The initial content of a client: (y, object), the first k or all."""
        low, high = MIN if low == MIN else low - 1, MAX if high == MAX else high + 1
        out: list[tuple[int, int]] = []
        y = MIN
        while len(out) < k or self.keeps_all:
            if (j := self.points.min_y(low, high, y)) < 0:
                break
            y = int(self.points.arrays.objects[Y, j])
            out.append((y, self._id(j)))
        return out

    def _id(self, number: int) -> int:
        """The id of an object."""
        return number

    def _numbers_of(self, ids: Codes) -> Codes:
        """The number of each object."""
        return ids

    @property
    @abstractmethod
    def counters(self) -> TopkCounters: ...

    @abstractmethod
    def _messages_of(self, number: Codes, x: Codes, y: Codes) -> Messages:
        """Messages in order, with `seq` counting changes from 0; the objects are moved."""


class PaintTopk(TopkServer):
    """Paint-Dense; given the subscriptions of each k, Paint-Sparse; with eps, their approximate versions."""

    def __init__(
        self, ks: Sequence[int], *, eps: float = 0.0, spaces: Sequence[SubscriptionSpace] | None = None
    ) -> None:
        super().__init__(ks)
        self.painter = Painter(self.points, ks, eps=eps, spaces=spaces)
        self._ids: Codes = np.arange(16)  # by number; another one than the number after a change of x
        self._numbers: Codes = np.arange(16)  # by id
        self._free: list[int] = []

    def publish_batch(self, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> Messages:
        """All changes as one event, with fewer messages: Paint-Batch. Contents are exact at its end."""
        ids, x, y = coalesced(objects, x, y)
        number = self._numbers_of(ids)
        table = self.points.arrays.objects
        here = number < table.shape[1]
        here[here] = table[HOME, number[here]] >= 0
        old_x, old_y = np.full((2, len(ids)), ABSENT)
        old_x[here], old_y[here] = table[X, number[here]], table[Y, number[here]]
        elsewhere = here & (y != ABSENT) & (old_x != x)
        # no two objects share a y: objects whose old y another one gets are deleted in a batch before
        taken = here & np.isin(old_y, y) & ((old_y != y) | elsewhere)
        first, others, gone = number[taken], number[elsewhere & ~taken], number[elsewhere]
        number[elsewhere] = self._renumbered(ids[elsewhere])
        left = ~(taken & (y == ABSENT))  # not deleted already
        batches = [paint_batch(self.painter, first, old_x[taken], np.full(len(first), ABSENT))]
        number, x = (
            np.concatenate([others, number[left]]),
            np.concatenate([old_x[elsewhere & ~taken], x[left]]),
        )
        y = np.concatenate([np.full(len(others), ABSENT), y[left]])
        batches.append(paint_batch(self.painter, number, x, y))
        tiles = Tiles(np.concatenate([part.table for part in batches]))
        self._free += gone.tolist()
        return self._sent(self._to_messages(tiles), np.full(len(tiles), self.seq + 1), 1)

    @property
    def counters(self) -> TopkCounters:
        return TopkCounters(self._events, self._messages, *self.painter.counts, 0)

    def _messages_of(self, number: Codes, x: Codes, y: Codes) -> Messages:
        return self._to_messages(self.painter.describe(self._numbers_of(number), x, y))

    def _to_messages(self, tiles: Tiles) -> Messages:
        return Messages.of(
            seq=tiles.update,
            step=0,
            k=self.ks[tiles.group],
            object=self._ids[tiles.object],
            x=tiles.x,
            y=tiles.y,
            rectangles=tiles.rectangles,
        )

    def _id(self, number: int) -> int:
        return int(self._ids[number])

    def _numbers_of(self, ids: Codes) -> Codes:
        """The numbers of objects; a new id gets a number of its own."""
        if (least := int(ids.max(initial=-1)) + 1) > len(self._numbers):
            fresh = np.arange(len(self._numbers), max(least, 2 * len(self._numbers)))
            self._numbers = np.concatenate([self._numbers, len(self._ids) + fresh - fresh[0]])
            self._ids = np.concatenate([self._ids, fresh])
        return self._numbers[ids]

    def _renumbered(self, ids: Codes) -> Codes:
        """New numbers for objects whose old ones are still in use."""
        while len(self._free) < len(ids):
            self._free.append(len(self._ids))
            self._ids = np.append(self._ids, -1)
        number = np.array([self._free.pop() for _ in ids], np.int64)
        self._numbers[ids], self._ids[number] = number, ids
        return number


class RelaxTopk(TopkServer):
    """CN-Relax: every change goes to all ranges that contain it; clients keep all objects of their range."""

    keeps_all = True

    @property
    def counters(self) -> TopkCounters:
        return TopkCounters(self._events, self._messages, 0, 0, 0, 0, 0)

    def _messages_of(self, number: Codes, x: Codes, y: Codes) -> Messages:
        rows = []
        for at, (i, to_x, to_y) in enumerate(zip(number.tolist(), x.tolist(), y.tolist(), strict=True)):
            self.points.reserve(i + 1, 1)
            old_x, old = self.points.arrays.objects[:2, i].tolist()
            if old != ABSENT and (old_x != to_x or to_y == ABSENT):
                rows.append((at, i, old_x, ABSENT))
            if to_y not in (ABSENT, old) or (to_y != ABSENT and old_x != to_x):
                rows.append((at, i, to_x, to_y))
            self.points.move(i, to_x, to_y)
        seq, number, x, y = np.array(rows, np.int64).reshape(-1, 4).T
        boxes = np.stack([np.full_like(x, MIN), x, x, np.full_like(x, MAX)], axis=1)
        return Messages.of(seq=seq, step=0, k=0, object=number, x=x, y=y, rectangles=boxes)


class UnicastTopk(TopkServer):
    """The server keeps every content, probes each subscription near a change, and sends to it alone."""

    def __init__(self, ks: Sequence[int], ranges: Sequence[Ranges]) -> None:
        super().__init__(ks)
        self._ranges = [(np.asarray(low, np.int64), np.asarray(high, np.int64)) for low, high in ranges]
        self.spaces = [ranges_in(*ends) for ends in self._ranges]
        self._painter = Painter(self.points, ks)
        self._contents: list[SubscriptionContents] = []

    def load(self, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> None:
        super().load(objects, x, y)
        self._contents = []
        for k, (left, right) in zip(self.ks.tolist(), self._ranges, strict=True):
            members = np.full((len(left), k), -1, np.int64)
            self._contents.append(
                SubscriptionContents(left, right, members, np.empty(len(left) + 1, np.int32))
            )
            fill(self.points.arrays, self._contents[-1])

    @property
    def counters(self) -> TopkCounters:
        calls = self._painter.counts
        return TopkCounters(self._events, self._messages, calls.min_y, calls.first_k, 0, 0, calls.snap)

    def _messages_of(self, number: Codes, x: Codes, y: Codes) -> Messages:
        if not self._contents:
            self.load([], [], [])
        self.points.reserve(int(number.max(initial=-1)) + 1, 4 * len(number))
        before = np.empty((len(number), 2), np.int64)
        parts = []
        for group, (space, contents) in enumerate(zip(self.spaces, self._contents, strict=True)):
            if group:
                rewind(self.points.arrays, number, before)
            moves = ObjectMoves(number, x, y, before)
            table = self._probe_group(group, space, contents, moves)
            slot = table[:, SUBSCRIPTION]
            left, right = contents.l[slot], contents.r[slot]
            part = Messages.of(
                seq=table[:, MOVE],
                step=0,
                k=int(self.ks[group]),
                object=table[:, SUBJECT],
                x=table[:, SUBJECT_X],
                y=table[:, SUBJECT_Y],
                to=slot,
                rectangles=np.stack([left, left, right, right], axis=1),
            )
            parts.append(part)
        messages = Messages.concat(parts)
        return messages.take(np.argsort(messages.seq, kind="stable"))

    def _probe_group(
        self, group: int, space: SubscriptionSpace, contents: SubscriptionContents, moves: ObjectMoves
    ) -> Codes:
        """Rows of (change, subscription, object, x, y) of one group, in a buffer that is long enough."""
        points, members = self.points.arrays, contents.members.copy()
        state = self._painter.state
        counts = state.copy()
        canvas = self._painter.canvas(self._painter.groups, np.empty(0, np.bool_))
        while True:
            state[GROUP], state[K], state[STEP] = group, self.ks[group], 1
            unicast(points, space.arrays, contents, canvas, moves)
            if (needed := int(state[SENT])) <= len(canvas.tiles):
                return canvas.tiles[:needed].copy()
            canvas = self._painter.grown(canvas, 2 * needed)
            contents.members[:], state[:], state[SENT] = members, counts, 0
            rewind(points, moves.object, moves.before)


# -- clients -----------------------------------------------------------------------------------------


class TopkClient:
    """The content of one subscription, from messages alone."""

    def __init__(
        self, low: int, high: int, k: int, content: Iterable[tuple[int, int]], *, keeps_all: bool = False
    ) -> None:
        self.low, self.high, self.k = low, high, k
        self._limit = None if keeps_all else k
        self._content = {number: y for y, number in content}
        self._seq, self._last = 0, dict[int, Message]()

    def select(self, messages: Messages, name: int = ALL) -> Messages:
        """The messages for this subscription: what a network does for it."""
        return messages.take(messages.addressed_to(self.low, self.high, self.k, name))

    def receive(self, messages: Messages) -> None:
        """Apply messages, those of one event in any order; no event before the last one received."""
        for message in messages:
            if message.seq < self._seq:
                raise ValueError(
                    f"event {message.seq} comes after event {self._seq}: events must be in order"
                )
            if message.seq > self._seq:
                self._content, self._seq, self._last = self._now(), message.seq, {}
            self._last[message.step] = message

    def _now(self) -> dict[int, int]:
        """The content before the last event, with its messages applied in order."""
        content = dict(self._content)
        for _, message in sorted(self._last.items()):
            content.pop(message.object, None)
            if message.y != ABSENT:
                content[message.object] = message.y
                if self._limit is not None and len(content) > self._limit:
                    del content[max(content, key=content.__getitem__)]
        return content

    @property
    def content(self) -> list[tuple[int, int]]:
        """The first k: (y, object) in order."""
        return sorted((y, number) for number, y in self._now().items())[: self.k]
