"""Range top-k described: changes become messages, subscriptions become filters, clients keep contents.

    change of an object ──► Paint | Unicast | Relax ──► Messages ──► filter ──► Client ──► first k of [l, r]

The filter of "the first k of l <= x <= r" is the point (l, r) with its k: a message holds a rectangle, and
whether the point is in it needs nothing else (`Messages.meant_for`). The client keeps objects by id. A
message sets the y of an object it holds, or adds it; of more than k the highest goes. y = ABSENT drops it.

Within one event order matters: the object that moved comes first, then those exposed, from the lowest.
Messages carry that order as `step`, so that the network may deliver those of one event in any order, or
twice: a client keeps the messages of the last event apart, and its content is what was before that event and
then these, sorted. An event is over when a later one is heard of, so events themselves must be in order.

>>> paint = Paint([2])
>>> paint.load([0, 1, 2], x=[10, 20, 30], y=[1, 2, 3])
>>> client = Client(5, 35, 2, paint.content(5, 35, 2))
>>> messages = paint.publish([0], x=[10], y=[9])  # the lowest rises: 2 is exposed
>>> heard = messages.take(messages.meant_for(5, 35, 2))
>>> client.hear(heard.take([1]))  # the network is free to swap them
>>> client.hear(heard.take([0]))
>>> client.content
[(2, 1), (3, 2)]

K12, sections II to VI. What differs: `step`, and Unicast probes from the k-th y, since the printed one misses
objects for k > 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.rank._kernels.paint import GROUP, STEP, TILES, K, Moves
from tocsin.rank._kernels.paint_unicast import Contents, fill, unicast
from tocsin.rank._kernels.points import HOME, MAX, MIN, X, Y, rewind
from tocsin.rank.batch import coalesced, paint_batch
from tocsin.rank.paint import Painter, Tiles
from tocsin.rank.points import ABSENT, Points, columns
from tocsin.rank.space import Space
from tocsin.reformulate.messages import ALL, Message, Messages

__all__ = ["Client", "Counters", "Describe", "Paint", "Relax", "Unicast", "ranges_in"]

Codes = NDArray[np.int64]
Ranges = tuple[ArrayLike, ArrayLike]


class Counters(NamedTuple):
    """What a method has done so far. `looked_at`: subscriptions probed one by one."""

    events: int
    messages: int
    min_y: int
    first_k: int
    snap: int
    spared: int
    looked_at: int


def ranges_in(low: ArrayLike, high: ArrayLike) -> Space:
    """Subscriptions [low, high] under slots 0, 1, ..."""
    space, left = Space(), np.asarray(low, np.int64)
    space.add(np.arange(len(left)), left, high)
    return space


class Describe(ABC):
    """Objects under small ids and a way to tell of their changes; `ks` are the k that subscriptions have.

    No two objects have the same y at the same time: who has ties makes one order of them before (`labels.py`
    does that for the engine, by primary key).
    """

    keeps_all = False
    """Must a client keep all objects of its range?"""

    def __init__(self, ks: Sequence[int]) -> None:
        self.ks = np.array(ks, np.int64)
        self.points = Points()
        self.seq = 0
        self._events = self._messages = 0

    def load(self, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> None:
        """Objects that are there before the first event."""
        number, x, y = columns(objects, x, y)
        values, counts = np.unique(y[y != ABSENT], return_counts=True)
        if np.any(counts > 1):
            raise ValueError(f"two objects have y = {values[counts > 1][0]}: make one order of ties before")
        self.points.load(self._known(number), x, y)

    def publish(self, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> Messages:
        """Changes in order, each an event: where an object is now. y = ABSENT: it is gone."""
        number, x, y = columns(objects, x, y)
        messages = self._messages_of(number, x, y)
        return self._sent(messages, self.seq + 1 + messages.seq, len(number))

    def _sent(self, messages: Messages, seq: Codes, events: int) -> Messages:
        """Numbered, and in every event the steps."""
        self.seq += events
        self._events, self._messages = self._events + events, self._messages + len(messages)
        at = np.arange(len(seq))
        first = np.flatnonzero(np.diff(seq, prepend=-1))
        step = at - np.repeat(at[first], np.diff(first, append=len(seq)))
        return Messages(**(messages.__dict__ | {"seq": seq, "step": step}))

    def content(self, low: int, high: int, k: int) -> list[tuple[int, int]]:
        """What a new client starts with: (y, object), the first k or all."""
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
        return number

    def _known(self, ids: Codes) -> Codes:
        """The number of each object."""
        return ids

    @property
    @abstractmethod
    def counters(self) -> Counters: ...

    @abstractmethod
    def _messages_of(self, number: Codes, x: Codes, y: Codes) -> Messages:
        """Messages in order, `seq` counting changes from 0; the objects are moved."""


class Paint(Describe):
    """Paint-Dense; given the subscriptions of each k, Paint-Sparse; with eps, their approximate versions."""

    def __init__(self, ks: Sequence[int], *, eps: float = 0.0, spaces: Sequence[Space] | None = None) -> None:
        super().__init__(ks)
        self.painter = Painter(self.points, ks, eps=eps, spaces=spaces)
        self._ids: Codes = np.arange(16)  # by number; another one than the number after a change of x
        self._numbers: Codes = np.arange(16)  # by id
        self._free: list[int] = []

    def publish_batch(self, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> Messages:
        """All changes as one event: Paint-Batch. Contents are right at its end, with fewer messages."""
        ids, x, y = coalesced(objects, x, y)
        number = self._known(ids)
        table = self.points.arrays.objects
        here = number < table.shape[1]
        here[here] = table[HOME, number[here]] >= 0
        old_x, old_y = np.full((2, len(ids)), ABSENT)
        old_x[here], old_y[here] = table[X, number[here]], table[Y, number[here]]
        elsewhere = here & (y != ABSENT) & (old_x != x)
        # no two objects share a y: those whose y somebody has at the end go in a batch before
        taken = here & np.isin(old_y, y) & ((old_y != y) | elsewhere)
        first, others, gone = number[taken], number[elsewhere & ~taken], number[elsewhere]
        number[elsewhere] = self._renumbered(ids[elsewhere])
        left = ~(taken & (y == ABSENT))  # that went already
        told = [paint_batch(self.painter, first, old_x[taken], np.full(len(first), ABSENT))]
        number, x = (
            np.concatenate([others, number[left]]),
            np.concatenate([old_x[elsewhere & ~taken], x[left]]),
        )
        y = np.concatenate([np.full(len(others), ABSENT), y[left]])
        told.append(paint_batch(self.painter, number, x, y))
        tiles = Tiles(np.concatenate([part.table for part in told]))
        self._free += gone.tolist()
        return self._sent(self._told(tiles), np.full(len(tiles), self.seq + 1), 1)

    @property
    def counters(self) -> Counters:
        return Counters(self._events, self._messages, *self.painter.counts, 0)

    def _messages_of(self, number: Codes, x: Codes, y: Codes) -> Messages:
        return self._told(self.painter.describe(self._known(number), x, y))

    def _told(self, tiles: Tiles) -> Messages:
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

    def _known(self, ids: Codes) -> Codes:
        """The numbers of objects; a new id gets its own, or that of a free one."""
        if (least := int(ids.max(initial=-1)) + 1) > len(self._numbers):
            fresh = np.arange(len(self._numbers), max(least, 2 * len(self._numbers)))
            self._numbers = np.concatenate([self._numbers, len(self._ids) + fresh - fresh[0]])
            self._ids = np.concatenate([self._ids, fresh])
        return self._numbers[ids]

    def _renumbered(self, ids: Codes) -> Codes:
        """Other numbers for objects whose old ones are still in use."""
        while len(self._free) < len(ids):
            self._free.append(len(self._ids))
            self._ids = np.append(self._ids, -1)
        number = np.array([self._free.pop() for _ in ids], np.int64)
        self._numbers[ids], self._ids[number] = number, ids
        return number


class Relax(Describe):
    """CN-Relax: every change goes to all ranges that hold it; clients keep all objects of their range."""

    keeps_all = True

    @property
    def counters(self) -> Counters:
        return Counters(self._events, self._messages, 0, 0, 0, 0, 0)

    def _messages_of(self, number: Codes, x: Codes, y: Codes) -> Messages:
        told = []
        for at, (i, to_x, to_y) in enumerate(zip(number.tolist(), x.tolist(), y.tolist(), strict=True)):
            self.points.reserve(i + 1, 1)
            old_x, old = self.points.arrays.objects[:2, i].tolist()
            if old != ABSENT and (old_x != to_x or to_y == ABSENT):
                told.append((at, i, old_x, ABSENT))
            if to_y not in (ABSENT, old) or (to_y != ABSENT and old_x != to_x):
                told.append((at, i, to_x, to_y))
            self.points.move(i, to_x, to_y)
        seq, number, x, y = np.array(told, np.int64).reshape(-1, 4).T
        boxes = np.stack([np.full_like(x, MIN), x, x, np.full_like(x, MAX)], axis=1)
        return Messages.of(seq=seq, step=0, k=0, object=number, x=x, y=y, rectangles=boxes)


class Unicast(Describe):
    """The server keeps every content, probes each subscription near a change, and writes to it alone."""

    def __init__(self, ks: Sequence[int], ranges: Sequence[Ranges]) -> None:
        super().__init__(ks)
        self._ranges = [(np.asarray(low, np.int64), np.asarray(high, np.int64)) for low, high in ranges]
        self.spaces = [ranges_in(*ends) for ends in self._ranges]
        self._painter = Painter(self.points, ks)
        self._contents: list[Contents] = []

    def load(self, objects: ArrayLike, x: ArrayLike, y: ArrayLike) -> None:
        super().load(objects, x, y)
        self._contents = []
        for k, (left, right) in zip(self.ks.tolist(), self._ranges, strict=True):
            members = np.full((len(left), k), -1, np.int64)
            self._contents.append(Contents(left, right, members, np.empty(len(left) + 1, np.int32)))
            fill(self.points.arrays, self._contents[-1])

    @property
    def counters(self) -> Counters:
        calls = self._painter.counts
        return Counters(self._events, self._messages, calls.min_y, calls.first_k, 0, 0, calls.snap)

    def _messages_of(self, number: Codes, x: Codes, y: Codes) -> Messages:
        if not self._contents:
            self.load([], [], [])
        self.points.reserve(int(number.max(initial=-1)) + 1, 4 * len(number))
        before = np.empty((len(number), 2), np.int64)
        parts = []
        for group, (space, contents) in enumerate(zip(self.spaces, self._contents, strict=True)):
            if group:
                rewind(self.points.arrays, number, before)
            moves = Moves(number, x, y, before)
            table = self._one(group, space, contents, moves)
            slot = table[:, 1]
            left, right = contents.l[slot], contents.r[slot]
            boxes = np.stack([left, left, right, right], axis=1)
            names = dict(zip(("object", "x", "y"), table[:, 2:5].T, strict=True))
            parts.append(
                Messages.of(
                    seq=table[:, 0], step=0, k=int(self.ks[group]), to=slot, rectangles=boxes, **names
                )
            )
        messages = Messages.concat(parts)
        return messages.take(np.argsort(messages.seq, kind="stable"))

    def _one(self, group: int, space: Space, contents: Contents, moves: Moves) -> Codes:
        """Rows of (change, subscription, object, x, y) of one group; again with more room if need be."""
        points, members = self.points.arrays, contents.members.copy()
        state = self._painter.state
        counts = state.copy()
        canvas = self._painter.canvas(self._painter.groups, np.empty(0, np.bool_))
        while True:
            state[GROUP], state[K], state[STEP] = group, self.ks[group], 1
            unicast(points, space.arrays, contents, canvas, moves)
            if (needed := int(state[TILES])) <= len(canvas.tiles):
                return canvas.tiles[:needed].copy()
            canvas = self._painter.grown(canvas, 2 * needed)
            contents.members[:], state[:], state[TILES] = members, counts, 0
            rewind(points, moves.object, moves.before)


class Client:
    """The content of one subscription, from messages alone."""

    def __init__(
        self, low: int, high: int, k: int, content: Iterable[tuple[int, int]], *, keeps_all: bool = False
    ) -> None:
        self.low, self.high, self.k = low, high, k
        self._limit = None if keeps_all else k
        self._held = {number: y for y, number in content}
        self._seq, self._last = 0, dict[int, Message]()

    def wants(self, messages: Messages, name: int = ALL) -> Messages:
        """Those that this subscription must hear: what a network does for it."""
        return messages.take(messages.meant_for(self.low, self.high, self.k, name))

    def hear(self, messages: Messages) -> None:
        """Messages, those of one event in any order; no event before the last one heard of."""
        for message in messages:
            if message.seq < self._seq:
                raise ValueError(
                    f"event {message.seq} comes after event {self._seq}: events must be in order"
                )
            if message.seq > self._seq:
                self._held, self._seq, self._last = self._now(), message.seq, {}
            self._last[message.step] = message

    def _now(self) -> dict[int, int]:
        """What was held before the last event, and then its messages in their order."""
        held = dict(self._held)
        for _, message in sorted(self._last.items()):
            held.pop(message.object, None)
            if message.y != ABSENT:
                held[message.object] = message.y
                if self._limit is not None and len(held) > self._limit:
                    del held[max(held, key=held.__getitem__)]
        return held

    @property
    def content(self) -> list[tuple[int, int]]:
        """The first k: (y, object) in order."""
        return sorted((y, number) for number, y in self._now().items())[: self.k]
