"""Range minima described: messages that tell for whom they are, and clients that need nothing else.

Three ways to keep subscribers' minima, with one interface, so that they can be compared:

    s-cn  `Reformulated`  an update becomes a few messages, each with a rectangle of the subscription space;
                          a subscription becomes the filter "am I in it?", for a network to route by
    s-un  `Unicast`       the same messages; the server looks up who is in the rectangles and sends to each
    cn    `Relaxed`       the update itself, to each range that holds its old or its new place; a client
                          keeps all tuples of its range, of which most never matter

Only `Unicast` knows subscriptions. Cost of an update besides the network: s-cn O(log n) for each message;
s-un the same and what `Space.find` takes, in proportion to who is affected; cn O(1).

>>> server = Reformulated(Extremes(x=[10, 20, 30], y=[5, 1, 3]))
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

T07, sections 5.2 and 5.3 (S-CN, S-UN, CN). Messages of one update may come in any order, since at most one of
them is for a range; those of different updates must not overtake each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.model.columns import longer
from tocsin.rank.augmented import as_codes
from tocsin.rank.extremes import Extremes, Messages, Objects, checked, room_for

__all__ = [
    *("AddressedClient", "DistinctClient", "Moves", "RangeFilter", "Reformulated", "Relaxed", "Spaced"),
    *("TupleClient", "Unicast", "Unicasts", "ValueClient"),
]

Codes = NDArray[np.int64]
Slots = NDArray[np.int32]


class Spaced(Protocol):
    """Who is in rectangles of the subscription space? (`rank/space.py`)"""

    def find(self, rectangles: ArrayLike, /) -> tuple[Codes, Slots]: ...


class Unicasts(NamedTuple):
    """Message `which[i]` goes to subscription `slot[i]`; which ascends."""

    messages: Messages
    which: Codes
    slot: Slots


@dataclass(frozen=True, slots=True)
class Moves:
    """Updates as they are: an object's number, was it there and where (`x_old`), is it there and where."""

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
    """A subscription as a filter without a state: are l, r (and the second ones) in the bounds?"""

    ends: tuple[int, ...]

    @property
    def predicates(self) -> tuple[tuple[str, str, int], ...]:
        """The same as comparisons with a message's bounds, as any matcher or router takes them."""
        names = ("l0", "r0", "l1", "r1")[: len(self.ends)]
        sides = (("low", "<="), ("high", ">="))
        return tuple(
            (f"{name}_{side}", operator, end)
            for name, end in zip(names, self.ends, strict=True)
            for side, operator in sides
        )

    def takes(self, messages: Messages) -> NDArray[np.intp]:
        """Which messages pass."""
        return messages.reach(*self.ends)


# -- clients -----------------------------------------------------------------------------------------


class ValueClient:
    """Keeps one number: the last message that passes its filter tells it."""

    def __init__(self, ends: tuple[int, ...], value: int | None) -> None:
        self.filter, self.value = RangeFilter(ends), value

    def receive(self, sent: Messages) -> int:
        return self._take(sent, self.filter.takes(sent))

    def _take(self, sent: Messages, mine: NDArray[np.intp] | Codes) -> int:
        if len(mine):
            last = mine[-1]
            self.value = None if sent.empty[last] else int(sent.value[last])
        return len(mine)


class AddressedClient(ValueClient):
    """Takes what is sent to its slot, and has no filter to apply."""

    def __init__(self, slot: int, ends: tuple[int, ...], value: int | None) -> None:
        super().__init__(ends, value)
        self.slot = slot

    def receive(self, sent: Unicasts) -> int:  # type: ignore[override]  # another server's words
        return self._take(sent.messages, sent.which[sent.slot == self.slot])


class TupleClient:
    """Keeps the y of all objects in its range."""

    def __init__(self, low: int, high: int, tuples: dict[int, int], largest: bool) -> None:
        self.low, self.high, self.tuples, self._largest = low, high, tuples, largest

    @property
    def value(self) -> int | None:
        return (max if self._largest else min)(self.tuples.values(), default=None)

    def receive(self, sent: Moves) -> int:
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
    >>> client.receive(ranges.update([0, 1], [3, 6], [9, 8]))  # 7 becomes 9; 8 moves, unseen
    2
    >>> sorted(client.values)
    [8, 9]
    """

    def __init__(self, ends: tuple[int, int], values: set[int]) -> None:
        self.filter, self.values = RangeFilter(ends), set(values)

    def receive(self, sent: Messages) -> int:
        mine = self.filter.takes(sent)
        for i in mine:
            (self.values.discard if sent.empty[i] else self.values.add)(int(sent.value[i]))
        return len(mine)


# -- servers -----------------------------------------------------------------------------------------


class Reformulated:
    """S-CN: messages with their rectangles; nothing is known of subscriptions."""

    name = "s-cn"

    def __init__(self, extremes: Extremes) -> None:
        self.extremes = extremes

    @property
    def counters(self) -> dict[str, int]:
        return self.extremes.counters

    def update(
        self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> Messages:
        """Updates as in `Extremes.update`; what is sent."""
        return self.extremes.update(numbers, x, y, has)

    def client(self, slot: int, low: int, high: int) -> ValueClient:
        """A subscriber with its content of now."""
        return ValueClient((low, high), _content(self.extremes, low, high))


class Unicast:
    """S-UN: the rectangles are looked up among the subscriptions, and each one found is sent its own."""

    name = "s-un"

    def __init__(self, extremes: Extremes, space: Spaced) -> None:
        self.extremes, self.space, self._sent = extremes, space, 0

    @property
    def counters(self) -> dict[str, int]:
        return {**self.extremes.counters, "messages": self._sent}

    def update(
        self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> Unicasts:
        """Updates as in `Extremes.update`; what is sent, and to whom."""
        messages = self.extremes.update(numbers, x, y, has)
        which, slot = self.space.find(messages.bounds)
        self._sent += len(slot)
        return Unicasts(messages, which, slot)

    def client(self, slot: int, low: int, high: int) -> AddressedClient:
        """A subscriber with its content of now; `space` must have it under this slot."""
        return AddressedClient(slot, (low, high), _content(self.extremes, low, high))


class Relaxed:
    """CN: a subscription is relaxed to its range, and told all that happens there."""

    name = "cn"

    def __init__(self, x: ArrayLike = (), y: ArrayLike = (), *, largest: bool = False) -> None:
        xs, ys = as_codes(x, y)
        self.objects = Objects(np.ones(len(xs), np.bool_), xs.copy(), ys.copy())
        self._largest = largest
        self._updates = self._sent = 0

    @property
    def counters(self) -> dict[str, int]:
        """No update is ignorable, and none is asked about."""
        none = dict.fromkeys(("ignorable", "difficult", "mar", "hull"), 0)
        return {**none, "easy": self._updates, "messages": self._sent}

    def update(self, numbers: ArrayLike, x: ArrayLike, y: ArrayLike, has: ArrayLike | None = None) -> Moves:
        """Updates as in `Extremes.update`; what is sent: all of them but deletes of what is not there."""
        which, there, (xs, ys) = checked(numbers, has, x, y)
        room = room_for(which, len(self.objects.has))
        self.objects = Objects._make(longer(part, room) for part in self.objects)
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
        return Moves(which[kept], had[kept], x_old[kept], there[kept], xs[kept], ys[kept])

    def client(self, slot: int, low: int, high: int) -> TupleClient:
        """A subscriber with the tuples of now."""
        has, x, y = self.objects
        mine = np.flatnonzero(has & (low <= x) & (x <= high))
        tuples = dict(zip(mine.tolist(), y[mine].tolist(), strict=True))
        return TupleClient(low, high, tuples, self._largest)


def _content(extremes: Extremes, low: int, high: int) -> int | None:
    value, empty = extremes.contents([low], [high])
    return None if empty[0] else int(value[0])
