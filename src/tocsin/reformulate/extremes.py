"""Range minima as messages that say which ranges they are for, and clients that need nothing else.

Three ways to keep the minima of subscribers, with one interface, so that they can be compared:

    s-cn  `ReformulatedMinima`  an update becomes a few messages, each for a rectangle of the subscription
                                space; a subscription becomes the filter "am I in it?", by which a network
                                routes
    s-un  `UnicastMinima`       the same messages; the server looks up the subscriptions in the rectangles and
                                sends to each
    cn    `RelaxedMinima`       the update itself, to each range that contains its old or its new place; a
                                client keeps all tuples of its range, most of which never matter

Only `UnicastMinima` knows subscriptions. Cost of an update besides the network: s-cn O(log n) for each
message; s-un the same and one lookup in the `SubscriptionSpace`, in proportion to the affected subscriptions;
cn O(1). `BoxExtremes` generates messages for two range attributes.

>>> server = ReformulatedMinima(Extremes(x=[10, 20, 30], y=[5, 1, 3]))
>>> client = server.contents(15, 40)
>>> client.content()
1
>>> sent = server.update([1], [20], [4])  # the lowest rises above the one at 30
>>> [len(sent.received_by(slot, [ends])) for slot, ends in enumerate([(5, 15), (15, 40)])]
[0, 1]
>>> client.apply(sent.take(sent.received_by(1, [(15, 40)])))
>>> client.content(), server.counters["messages"]
(3, 2)

T07, sections 5.2 and 5.3 (S-CN, S-UN, CN). Messages of one update may arrive in any order, since at most one
of them is for a range; messages of different updates must arrive in order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.model.columns import longer
from tocsin.model.message import MessageKind, Messages, Recipients, Regions
from tocsin.rank._kernels.extremes import BoxObjects, BoxScratch, BoxUpdates, Objects, emit_boxes
from tocsin.rank.extremes import (
    DistinctRanges,
    Extremes,
    MessageGenerator,
    ValueMessages,
    as_codes,
    capacity_for,
    update_columns,
)
from tocsin.reformulate.contents import DistinctContents, ExtremeContents, ValueContents
from tocsin.reformulate.relaxed import Moves, describe_moves

__all__ = [
    *("BoxExtremes", "ReformulatedDistinct", "ReformulatedMinima", "RelaxedMinima", "SubscriptionLookup"),
    *("UnicastMinima", "described"),
]

Codes = NDArray[np.int64]
Slots = NDArray[np.int32]


class SubscriptionLookup(Protocol):
    """Finds the subscriptions in rectangles (`rank/space.py`)."""

    def find(self, rectangles: ArrayLike, /) -> tuple[Codes, Slots]: ...


def described(found: ValueMessages, seq: int) -> Messages:
    """Messages of values: ROW where a range has the value now, GONE where it has none, or this one no more.

    Updates get the numbers from `seq` on.
    """
    n = len(found)
    first = np.flatnonzero(np.diff(found.update, prepend=-1))
    step = np.arange(n) - np.repeat(first, np.diff(first, append=n))
    kind = np.where(found.empty, MessageKind.GONE, MessageKind.ROW).astype(np.int8)
    none, boxes = np.full(n, -1, np.int64), found.bounds.reshape(n, found.bounds.shape[1] // 4, 4)
    regions = Regions(np.arange(n + 1), boxes)
    return Messages(seq + found.update, step, kind, np.zeros(n, np.int8), found.value, none, none, regions)


# -- servers -----------------------------------------------------------------------------------------


class ReformulatedMinima:
    """S-CN: messages with their rectangles; the server does not know the subscriptions."""

    name = "s-cn"

    def __init__(self, extremes: Extremes) -> None:
        self.extremes, self.seq = extremes, 0

    @property
    def counters(self) -> dict[str, int]:
        return self.extremes.counters

    def update(
        self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> Messages:
        """Apply updates as in `Extremes.update`; return what is sent."""
        found, first = self.extremes.update(numbers, x, y, has), self.seq
        self.seq += len(np.asarray(numbers))
        return described(found, first)

    def contents(self, low: int, high: int) -> ValueContents:
        """A client with its content as of now."""
        value, empty = self.extremes.contents([low], [high])
        return ValueContents(None if empty[0] else int(value[0]))


class UnicastMinima(ReformulatedMinima):
    """S-UN: the server looks up the subscriptions in the rectangles and sends to each of them."""

    name = "s-un"

    def __init__(self, extremes: Extremes, space: SubscriptionLookup) -> None:
        super().__init__(extremes)
        self.space, self._sent = space, 0

    @property
    def counters(self) -> dict[str, int]:
        return {**self.extremes.counters, "messages": self._sent}

    def update(
        self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> Messages:
        """Apply updates as in `Extremes.update`; return what is sent, and to which subscriptions."""
        messages = super().update(numbers, x, y, has)
        which, slot = self.space.find(messages.regions.boxes[:, 0])
        self._sent += len(slot)
        nowhere = Regions(np.zeros(len(messages) + 1, np.int64), messages.regions.boxes[:0])
        return replace(messages, regions=nowhere, recipients=Recipients(which, slot.astype(np.int64)))


class ReformulatedDistinct:
    """Sets of values: a message says that a range has gained or lost one.

    >>> server = ReformulatedDistinct(DistinctRanges(x=[1, 5], y=[7, 8]))
    >>> client = server.contents(0, 9)
    >>> sent = server.update([0, 1], [3, 6], [9, 8])  # 7 becomes 9; 8 moves within the range
    >>> client.apply(sent.take(sent.received_by(0, [(0, 9)])))
    >>> sorted(client.content())
    [8, 9]
    """

    def __init__(self, ranges: DistinctRanges) -> None:
        self.ranges, self.seq = ranges, 0

    def update(
        self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> Messages:
        """Apply updates as in `DistinctRanges.update`; return what is sent."""
        found, first = self.ranges.update(numbers, x, y, has), self.seq
        self.seq += len(np.asarray(numbers))
        return described(found, first)

    def contents(self, low: int, high: int) -> DistinctContents:
        """A client with its content as of now."""
        return DistinctContents(self.ranges.contents(low, high))


class RelaxedMinima:
    """CN: a subscription is relaxed to its range, and receives all updates there."""

    name = "cn"

    def __init__(self, x: ArrayLike = (), y: ArrayLike = (), *, largest: bool = False) -> None:
        xs, ys = as_codes(x, y)
        self.objects = Objects(np.ones(len(xs), np.bool_), xs.copy(), ys.copy())
        self._largest = largest
        self.seq = self._sent = 0

    @property
    def counters(self) -> dict[str, int]:
        """All updates are easy: each is sent as it is."""
        none = dict.fromkeys(("ignorable", "difficult", "mar", "hull"), 0)
        return {**none, "easy": self.seq, "messages": self._sent}

    def update(
        self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> Messages:
        """Apply updates as in `Extremes.update`; send all but deletes of absent objects."""
        which, there, (xs, ys) = update_columns(numbers, has, x, y)
        length = capacity_for(which, len(self.objects.has))
        self.objects = Objects._make(longer(part, length) for part in self.objects)
        had, x_old = self.objects.has[which], self.objects.x[which]
        order = np.argsort(which, kind="stable")
        same = which[order][1:] == which[order][:-1]  # an object's second update begins where its first ended
        had[order[1:][same]], x_old[order[1:][same]] = there[order[:-1][same]], xs[order[:-1][same]]
        last = order[np.append(~same, True)[: len(order)]]
        for column, fresh in zip(self.objects, (there, xs, ys), strict=True):
            column[which[last]] = fresh[last]
        number, step, kind, rectangle = describe_moves(Moves(had, there, x_old, xs))
        first, self.seq, self._sent = self.seq, self.seq + len(which), self._sent + len(number)
        side, none = np.zeros(len(number), np.int8), np.full(len(number), -1, np.int64)
        regions = Regions(np.arange(len(number) + 1), rectangle[:, None])
        return Messages(
            first + number, step, kind, side, ys[number], which[number].astype(np.int64), none, regions
        )

    def contents(self, low: int, high: int) -> ExtremeContents:
        """A client with the values of all objects of its range as of now."""
        has, x, y = self.objects
        mine = np.flatnonzero(has & (low <= x) & (x <= high))
        return ExtremeContents(dict(zip(mine.tolist(), y[mine].tolist(), strict=True)), largest=self._largest)


# -- boxes -------------------------------------------------------------------------------------------


class BoxExtremes(MessageGenerator):
    """The least (`largest`: the greatest) y by box, of objects numbered from 0 in the order given.

    A subscription is a box, x1 in a..b and x2 in c..d. As in one dimension, an update can change only boxes
    that contain the updated tuple and no other one as low as it was or is. Those boxes are no longer one
    rectangle but a union of them: the further a box reaches to the left or right, the less far up and down,
    since it must not contain a lower tuple:

         |   p                  boxes around u that contain neither p nor q: those that end before p on the
         |       u              left, of any height, and those that reach it, below p; each with those that
         |           q          end before q on the right or reach it, above q: a staircase on each side

    Every pair of a left and a right step is one box of the 4-d subscription space, and no two of these
    overlap. If the tuple rises, exposed tuples are handled from the lowest up: each goes to the boxes that
    contain it and no lower one, and blocks these boxes for the next. So each affected subscription gets
    exactly one message.

    Cost: O(n) for the candidates of an update, by one pass over the objects; then the product of the steps on
    both sides, for each exposed tuple.

    >>> from tocsin.rank._kernels.augmented import LEAST, MOST
    >>> boxes = BoxExtremes(x1=[2, 8, 5], x2=[8, 2, 5], y=[1, 1, 4])  # p, q, u
    >>> messages = boxes.update([2], [5], [5], [3])
    >>> messages.regions.boxes[0].tolist() == [[3, 5, 5, 7], [LEAST, 5, 5, MOST]], messages.key.tolist()
    (True, [3, 3, 3, 3])

    T07, section 5.4 names two range attributes and leaves the method open; the staircases are ours.
    """

    def __init__(
        self, x1: ArrayLike = (), x2: ArrayLike = (), y: ArrayLike = (), *, largest: bool = False
    ) -> None:
        super().__init__(8)
        a, b, ys = as_codes(x1, x2, y)
        self._flip = np.int64(-1 if largest else 0)
        self.objects = BoxObjects(np.ones(len(a), np.bool_), a.copy(), b.copy(), ys ^ self._flip)
        self._scratch = _scratch(len(a))
        self.seq = 0

    def __len__(self) -> int:
        return int(self.objects.has.sum())

    def update(
        self, numbers: ArrayLike, x1: ArrayLike, x2: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> Messages:
        """Move or insert objects, one after the other; delete where `has` is False. O(n) each, and more."""
        which, there, (a, b, ys) = update_columns(numbers, has, x1, x2, y)
        length = capacity_for(which, len(self.objects.has))
        if length > len(self.objects.has):
            self.objects = BoxObjects._make(longer(part, length) for part in self.objects)
            self._scratch = _scratch(length)
        updates = BoxUpdates(which, there, a, b, np.where(there, ys ^ self._flip, 0))
        found = self._run(updates)
        first, self.seq = self.seq, self.seq + len(which)
        return described(replace(found, value=np.where(found.empty, 0, found.value ^ self._flip)), first)

    def _emit(self, updates: BoxUpdates, start: int) -> tuple[int, int]:
        return emit_boxes(self.objects, updates, start, self._scratch, self._out, self._counters)

    def content(self, low1: int, high1: int, low2: int, high2: int) -> int | None:
        """The extreme of one box. O(n)."""
        has, x1, x2, y = self.objects
        inside = y[has & (low1 <= x1) & (x1 <= high1) & (low2 <= x2) & (x2 <= high2)]
        return int(inside.min() ^ self._flip) if len(inside) else None

    def _check(self) -> None:
        """The scratch buffers suffice for a step and a candidate of each object."""
        objects = len(self.objects.has)
        assert all(len(part) == objects for part in self.objects)
        assert self._scratch.at.shape[1] >= objects + 3 and len(self._scratch.found) > objects


def _scratch(objects: int) -> BoxScratch:
    at, low, high = (np.zeros((2, objects + 3), np.int64) for _ in range(3))
    return BoxScratch(
        at, low, high, np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(objects + 1, np.int64)
    )
