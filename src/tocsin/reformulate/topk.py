"""Range top-k as messages: changes become messages, subscriptions become filters, clients keep contents.

    change of an object ──► PaintTopk | UnicastTopk | RelaxTopk ──► Messages ──► filter ──► TopkContents

The filter of "the first k of l <= x <= r" is the point (l, r) with its k: a message has a rectangle, and
whether the point is in it needs nothing else (`Messages.received_by`). Each k has a number, the `side` of its
messages. The client keeps objects by id. ROW sets the y of an object it keeps, or adds it; of more than k it
drops the highest. GONE removes an object.

Within one event order matters: first the object that moved, then those exposed, from the lowest. Messages
carry that order as `step`; the network may deliver those of one event in any order, or repeatedly, if the
receiving end sorts them (`Messages.in_order`). Events themselves must arrive in order.

>>> server = PaintTopk([2])
>>> server.load([0, 1, 2], x=[10, 20, 30], y=[1, 2, 3])
>>> client = server.contents(5, 35, 2)
>>> messages = server.publish([0], x=[10], y=[9])  # the lowest rises: 2 is exposed
>>> client.apply(messages.take(messages.received_by(0, [(5, 35)], side=server.group(2))))
>>> client.content()
[(2, 1), (3, 2)]

K12, sections II to VI. What differs: `step`, and UnicastTopk probes from the k-th y, since the printed one
misses objects for k > 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.model.message import MessageKind, Messages, Recipients, Regions
from tocsin.rank._kernels.paint import (
    GROUP,
    MOVE,
    SENT,
    STEP,
    SUBJECT,
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
from tocsin.reformulate.contents import TopkContents
from tocsin.reformulate.relaxed import Moves, describe_moves

__all__ = ["PaintTopk", "RelaxTopk", "TopkCounters", "TopkServer", "UnicastTopk", "ranges_in"]

Codes = NDArray[np.int64]
Ranges = tuple[ArrayLike, ArrayLike]
_ALL = -1  # as `side`: subscriptions of every k

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
        if len(ks) > 127:
            raise ValueError(f"there are {len(ks)} different k: at most 127 of one server")
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
        return replace(messages, seq=seq, step=step)

    def group(self, k: int) -> int:
        """The number of a k, which is the `side` of its messages."""
        return self.ks.tolist().index(k)

    def contents(self, low: int, high: int, k: int) -> TopkContents:
        """A client with its content as of now."""
        return TopkContents(k, self.content(low, high, k), keeps_all=self.keeps_all)

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
        return _messages(tiles.update, tiles.group, self._ids[tiles.object], tiles.y, tiles.rectangles)

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
        n = len(number)
        had, old_x, old_y = np.zeros(n, np.bool_), np.zeros(n, np.int64), np.zeros(n, np.int64)
        for at, (i, to_x, to_y) in enumerate(zip(number.tolist(), x.tolist(), y.tolist(), strict=True)):
            self.points.reserve(i + 1, 1)
            old_x[at], old_y[at] = self.points.arrays.objects[:2, i]
            had[at] = old_y[at] != ABSENT
            self.points.move(i, to_x, to_y)
        changed = np.flatnonzero((old_y != y) | (had & (old_x != x)))
        moves = Moves(had[changed], y[changed] != ABSENT, old_x[changed], x[changed])
        which, _, kind, rectangle = describe_moves(moves)
        which = changed[which]
        now = np.where(kind == MessageKind.GONE, ABSENT, y[which])
        return _messages(which, np.full(len(which), _ALL), number[which], now, rectangle)


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
            table = self._probe_group(group, space, contents, ObjectMoves(number, x, y, before))
            columns = table[:, [MOVE, SUBJECT, SUBJECT_Y, SUBSCRIPTION]].T
            parts.append(np.stack([columns[0], np.full(len(table), group), *columns[1:]]))
        table = np.concatenate(parts, axis=1)
        move, side, row, to_y, slot = table[:, np.argsort(table[0], kind="stable")]
        nowhere = Regions(np.zeros(len(slot) + 1, np.int64), np.empty((0, 1, 4), np.int64))
        messages = _messages(move, side, row, to_y, np.empty((len(slot), 4), np.int64))
        return replace(messages, regions=nowhere, recipients=Recipients(np.arange(len(slot)), slot))

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


# -- messages ----------------------------------------------------------------------------------------


def _messages(seq: Codes, side: Codes, row: Codes, y: Codes, rectangle: Codes) -> Messages:
    """Where objects are now, each for one rectangle; y = ABSENT: they are gone."""
    n = len(seq)
    kind = np.where(y == ABSENT, MessageKind.GONE, MessageKind.ROW).astype(np.int8)
    none, regions = np.full(n, -1, np.int64), Regions(np.arange(n + 1), rectangle.reshape(n, 1, 4))
    return Messages(seq, np.zeros(n, np.int64), kind, side.astype(np.int8), y, row, none, regions)
