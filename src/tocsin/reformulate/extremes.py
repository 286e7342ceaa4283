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
>>> near, wide = server.client(0, 5, 15), server.client(1, 15, 40)
>>> near.value, wide.value
(5, 1)
>>> sent = server.update([1], [20], [4])  # the lowest rises above the one at 30
>>> near.receive(sent), wide.receive(sent)  # how many messages were for them
(0, 1)
>>> near.value, wide.value, server.counters["messages"]
(5, 3, 2)
>>> RangeFilter((15, 40)).predicates[:2]
(('l0_low', '<=', 15), ('l0_high', '>=', 15))

T07, sections 5.2 and 5.3 (S-CN, S-UN, CN). Messages of one update may arrive in any order, since at most one
of them is for a range; messages of different updates must arrive in order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.model.columns import longer
from tocsin.rank._kernels.extremes import BoxObjects, BoxScratch, BoxUpdates, Objects, emit_boxes
from tocsin.rank.extremes import (
    Extremes,
    MessageGenerator,
    ValueMessages,
    as_codes,
    capacity_for,
    update_columns,
)

__all__ = [
    *(
        "AddressedClient",
        "AddressedMessages",
        "BoxExtremes",
        "DistinctClient",
        "RangeFilter",
    ),
    *("ReformulatedMinima", "RelaxedMinima", "SubscriptionLookup", "TupleClient", "TupleMoves"),
    *("UnicastMinima", "ValueClient"),
]

Codes = NDArray[np.int64]
Slots = NDArray[np.int32]


class SubscriptionLookup(Protocol):
    """Finds the subscriptions in rectangles (`rank/space.py`)."""

    def find(self, rectangles: ArrayLike, /) -> tuple[Codes, Slots]: ...


class AddressedMessages(NamedTuple):
    """Message `which[i]` goes to subscription `slot[i]`; `which` ascends."""

    messages: ValueMessages
    which: Codes
    slot: Slots


@dataclass(frozen=True, slots=True)
class TupleMoves:
    """Updates as published: an object, whether and where it was (`x_old`), whether and where it is."""

    number: NDArray[np.int32]
    had: NDArray[np.bool_]
    x_old: Codes
    has: NDArray[np.bool_]
    x: Codes
    y: Codes

    def __len__(self) -> int:
        return len(self.number)

    def reach(self, low: int, high: int) -> NDArray[np.intp]:
        """The moves that begin or end in a range."""
        begin = self.had & (low <= self.x_old) & (self.x_old <= high)
        return np.flatnonzero(begin | (self.has & (low <= self.x) & (self.x <= high)))


class RangeFilter(NamedTuple):
    """A subscription as a stateless filter: are l, r (and those of a second attribute) in the bounds?"""

    ends: tuple[int, ...]

    @property
    def predicates(self) -> tuple[tuple[str, str, int], ...]:
        """The same as comparisons with a message's bounds, which any matcher or router supports."""
        names = ("l0", "r0", "l1", "r1")[: len(self.ends)]
        sides = (("low", "<="), ("high", ">="))
        return tuple(
            (f"{name}_{side}", operator, end)
            for name, end in zip(names, self.ends, strict=True)
            for side, operator in sides
        )

    def select(self, messages: ValueMessages) -> NDArray[np.intp]:
        """The messages that pass."""
        return messages.reach(*self.ends)


# -- clients -----------------------------------------------------------------------------------------


class ValueClient:
    """Keeps one number, the value of the last message that passed its filter."""

    def __init__(self, ends: tuple[int, ...], value: int | None) -> None:
        self.filter, self.value = RangeFilter(ends), value

    def receive(self, sent: ValueMessages) -> int:
        """Apply messages; return how many were for this client."""
        return self._update(sent, self.filter.select(sent))

    def _update(self, sent: ValueMessages, mine: NDArray[np.intp] | Codes) -> int:
        if len(mine):
            last = mine[-1]
            self.value = None if sent.empty[last] else int(sent.value[last])
        return len(mine)


class AddressedClient(ValueClient):
    """Receives what is sent to its slot, without a filter."""

    def __init__(self, slot: int, ends: tuple[int, ...], value: int | None) -> None:
        super().__init__(ends, value)
        self.slot = slot

    def receive(self, sent: AddressedMessages) -> int:  # type: ignore[override]  # of another server
        return self._update(sent.messages, sent.which[sent.slot == self.slot])


class TupleClient:
    """Keeps the y of all objects in its range."""

    def __init__(self, low: int, high: int, tuples: dict[int, int], largest: bool) -> None:
        self.low, self.high, self.tuples, self._largest = low, high, tuples, largest

    @property
    def value(self) -> int | None:
        return (max if self._largest else min)(self.tuples.values(), default=None)

    def receive(self, sent: TupleMoves) -> int:
        mine = sent.reach(self.low, self.high)
        for i in mine:
            if sent.has[i] and self.low <= sent.x[i] <= self.high:
                self.tuples[int(sent.number[i])] = int(sent.y[i])
            else:
                del self.tuples[int(sent.number[i])]
        return len(mine)


class DistinctClient:
    """Keeps a set of values from the messages of `DistinctRanges`.

    >>> from tocsin.rank.extremes import DistinctRanges
    >>> ranges = DistinctRanges(x=[1, 5], y=[7, 8])
    >>> client = DistinctClient((0, 9), ranges.contents(0, 9))
    >>> client.receive(ranges.update([0, 1], [3, 6], [9, 8]))  # 7 becomes 9; 8 moves within the range
    2
    >>> sorted(client.values)
    [8, 9]
    """

    def __init__(self, ends: tuple[int, int], values: set[int]) -> None:
        self.filter, self.values = RangeFilter(ends), set(values)

    def receive(self, sent: ValueMessages) -> int:
        mine = self.filter.select(sent)
        for i in mine:
            (self.values.discard if sent.empty[i] else self.values.add)(int(sent.value[i]))
        return len(mine)


# -- servers -----------------------------------------------------------------------------------------


class ReformulatedMinima:
    """S-CN: messages with their rectangles; the server does not know the subscriptions."""

    name = "s-cn"

    def __init__(self, extremes: Extremes) -> None:
        self.extremes = extremes

    @property
    def counters(self) -> dict[str, int]:
        return self.extremes.counters

    def update(
        self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> ValueMessages:
        """Apply updates as in `Extremes.update`; return what is sent."""
        return self.extremes.update(numbers, x, y, has)

    def client(self, slot: int, low: int, high: int) -> ValueClient:
        """A subscriber with its current content."""
        return ValueClient((low, high), _content(self.extremes, low, high))


class UnicastMinima:
    """S-UN: the server looks up the subscriptions in the rectangles and sends to each of them."""

    name = "s-un"

    def __init__(self, extremes: Extremes, space: SubscriptionLookup) -> None:
        self.extremes, self.space, self._sent = extremes, space, 0

    @property
    def counters(self) -> dict[str, int]:
        return {**self.extremes.counters, "messages": self._sent}

    def update(
        self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> AddressedMessages:
        """Apply updates as in `Extremes.update`; return what is sent, and to which subscriptions."""
        messages = self.extremes.update(numbers, x, y, has)
        which, slot = self.space.find(messages.bounds)
        self._sent += len(slot)
        return AddressedMessages(messages, which, slot)

    def client(self, slot: int, low: int, high: int) -> AddressedClient:
        """A subscriber with its current content; `space` must have it under this slot."""
        return AddressedClient(slot, (low, high), _content(self.extremes, low, high))


class RelaxedMinima:
    """CN: a subscription is relaxed to its range, and receives all updates there."""

    name = "cn"

    def __init__(self, x: ArrayLike = (), y: ArrayLike = (), *, largest: bool = False) -> None:
        xs, ys = as_codes(x, y)
        self.objects = Objects(np.ones(len(xs), np.bool_), xs.copy(), ys.copy())
        self._largest = largest
        self._updates = self._sent = 0

    @property
    def counters(self) -> dict[str, int]:
        """All updates are easy: each is sent as it is."""
        none = dict.fromkeys(("ignorable", "difficult", "mar", "hull"), 0)
        return {**none, "easy": self._updates, "messages": self._sent}

    def update(
        self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> TupleMoves:
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
        kept = had | there
        self._updates += len(which)
        self._sent += int(kept.sum())
        return TupleMoves(which[kept], had[kept], x_old[kept], there[kept], xs[kept], ys[kept])

    def client(self, slot: int, low: int, high: int) -> TupleClient:
        """A subscriber with the current tuples of its range."""
        has, x, y = self.objects
        mine = np.flatnonzero(has & (low <= x) & (x <= high))
        tuples = dict(zip(mine.tolist(), y[mine].tolist(), strict=True))
        return TupleClient(low, high, tuples, self._largest)


def _content(extremes: Extremes, low: int, high: int) -> int | None:
    value, empty = extremes.contents([low], [high])
    return None if empty[0] else int(value[0])


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
    >>> messages.value.tolist(), messages.bounds[0].tolist() == [3, 5, 5, 7, LEAST, 5, 5, MOST], len(messages)
    ([3, 3, 3, 3], True, 4)

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

    def __len__(self) -> int:
        return int(self.objects.has.sum())

    def update(
        self, numbers: ArrayLike, x1: ArrayLike, x2: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> ValueMessages:
        """Move or insert objects, one after the other; delete where `has` is False. O(n) each, and more."""
        which, there, (a, b, ys) = update_columns(numbers, has, x1, x2, y)
        length = capacity_for(which, len(self.objects.has))
        if length > len(self.objects.has):
            self.objects = BoxObjects._make(longer(part, length) for part in self.objects)
            self._scratch = _scratch(length)
        updates = BoxUpdates(which, there, a, b, np.where(there, ys ^ self._flip, 0))
        messages = self._run(updates)
        return replace(messages, value=np.where(messages.empty, 0, messages.value ^ self._flip))

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
