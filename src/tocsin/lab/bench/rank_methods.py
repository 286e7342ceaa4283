"""Methods that maintain top-k and minima over ranges, behind one interface.

    publish(events)  ─►  messages       timed: all that a server does for some events
    deliver(messages)                   counts them, and sends them to the clients of a sample
    contents()                          the clients' contents
    counted                             messages, subscriptions reached, calls, bytes

A message of painting is six numbers, one to a single subscription four (its id, the object, x and y), at four
bytes each: with these sizes, the messages that K12 counts have the traffic that it prints (316,158 and 3,501
bytes per event). A minimum needs five numbers, to a single subscription two; a moved object three.

`reached` counts the subscriptions that receive an event, each once: K12's tables I and II count these (for
k = 1, its Unicast probes as many subscriptions as table I has messages, and the probed ones are the affected
ones). A subscription whose object is replaced by another also receives a message about the other; `received`
counts these messages as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tocsin.lab.bench.rank_workloads import RankWorkload
from tocsin.model.columns import Index
from tocsin.model.message import GREATEST, LEAST, Messages
from tocsin.rank.extremes import Extremes
from tocsin.rank.paint import Painter, TileKind, Tiles, coalesced
from tocsin.rank.points import Points
from tocsin.rank.space import SubscriptionSpace
from tocsin.reformulate import extremes as minima
from tocsin.reformulate import topk

__all__ = [
    *(
        "MINIMA",
        "TOPK",
        "CoalescedMethod",
        "RankCounts",
        "RankMethod",
        "PaintDenseMethod",
        "PaintSparseMethod",
        "RankTask",
    ),
    *("brute_first", "count_reached", "apply_all", "stabbed"),
]

_CHUNK = 4096  # rectangles per lookup
_PAINT_BYTES, _UNICAST_BYTES = 24, 16  # of top-k
_MIN_BYTES, _MIN_UNICAST_BYTES, _MOVE_BYTES = 20, 8, 12


class RankTask(NamedTuple):
    """The input of a method, and the subscriptions whose contents are maintained."""

    work: RankWorkload
    space: SubscriptionSpace  # the ranges by slot
    k: int
    eps: float
    sample: Sequence[int]


@dataclass
class RankCounts:
    """Totals so far."""

    events: int = 0
    messages: int = 0
    reached: int = 0
    received: int = 0
    min_y: int = 0
    first_k: int = 0
    snap: int = 0
    looked_at: int = 0  # subscriptions probed one by one
    bytes: int = 0
    most_bytes: int = 0  # of one event


def count_reached(space: SubscriptionSpace, rectangles: Index) -> Index:
    """The number of subscriptions in each rectangle."""
    out = np.zeros(len(rectangles), np.int64)
    for at in range(0, len(rectangles), _CHUNK):
        number, _ = space.find(rectangles[at : at + _CHUNK])
        out[at : at + _CHUNK] = np.bincount(number, minlength=min(_CHUNK, len(rectangles) - at))
    return out


def stabbed(low: Index, high: Index, x: Index) -> Index:
    """The number of ranges that hold each x: those that begin by then, minus those that ended before."""
    begun = np.searchsorted(np.sort(low), x, side="right")
    return np.asarray(begun - np.searchsorted(np.sort(high), x, side="left"), np.int64)


def apply_all(clients: dict[int, Any], messages: Messages, work: RankWorkload) -> None:
    """Deliver to the clients of slots what is for them."""
    for slot, client in clients.items():
        point = [(int(work.low[slot]), int(work.high[slot]))]
        client.apply(messages.take(messages.received_by(slot, point)))


def _relaxed_reach(messages: Messages, space: SubscriptionSpace, low: Index, high: Index) -> int:
    """Subscriptions that receive relaxed messages: mostly ranges that hold a value, which need no lookup."""
    boxes = messages.regions.boxes[:, 0]
    whole = (boxes[:, 0] == LEAST) & (boxes[:, 3] == GREATEST)
    stabs = int(stabbed(low, high, boxes[whole, 1]).sum())
    return stabs + int(count_reached(space, boxes[~whole]).sum())


class RankMethod(ABC):
    """One method; `at_once`: all events are one batch."""

    name: ClassVar[str]
    at_once: ClassVar[bool] = False
    sampled: ClassVar[int] = 100
    """How many subscriptions' contents it can maintain in reasonable time."""

    def __init__(self, task: RankTask) -> None:
        self.task = task
        self.counted = RankCounts()
        self.count_received = False  # fill `counted.received`, which takes longer

    @abstractmethod
    def publish(self, number: Index, x: Index, y: Index) -> Any: ...

    @abstractmethod
    def deliver(self, messages: Any, events: int) -> None: ...

    @abstractmethod
    def contents(self) -> dict[int, Any]:
        """Contents by slot: top-k as (y, object) in order, or the minimum."""

    def _count_bytes(self, update: Index, size: int) -> None:
        self.counted.bytes += size * len(update)
        most = int(np.bincount(update - update[0]).max()) if len(update) else 0
        self.counted.most_bytes = max(self.counted.most_bytes, size * most)


# -- top-k -------------------------------------------------------------------------------------------


class _TopkMethod(RankMethod):
    """A top-k server that emits messages, and its clients."""

    server: topk.TopkServer

    def _begin(self) -> None:
        work, k = self.task.work, self.task.k
        self.server.load(np.arange(len(work.x)), work.x, work.y)
        self.clients = {
            slot: self.server.contents(int(work.low[slot]), int(work.high[slot]), k)
            for slot in self.task.sample[: self.sampled]
        }

    def publish(self, number: Index, x: Index, y: Index) -> Any:
        return self.server.publish(number, x, y)

    def deliver(self, messages: Any, events: int) -> None:
        apply_all(self.clients, messages, self.task.work)
        counted, calls = self.counted, self.server.counters
        counted.events += events
        counted.messages += len(messages)
        counted.min_y, counted.first_k, counted.snap = calls.min_y, calls.first_k, calls.snap
        counted.looked_at = calls.probed
        self._reach(messages)

    @abstractmethod
    def _reach(self, messages: Any) -> None: ...

    def contents(self) -> dict[int, Any]:
        return {slot: client.content() for slot, client in self.clients.items()}


class PaintDenseMethod(_TopkMethod):
    """Paint-Dense: the server does not know the subscriptions."""

    name = "paint-dense"
    sparse = False

    def __init__(self, task: RankTask) -> None:
        super().__init__(task)
        spaces = [task.space] if self.sparse else None
        self.server = self.paint = topk.PaintTopk([task.k], eps=task.eps, spaces=spaces)
        self._begin()

    def _reach(self, messages: Any) -> None:
        moved = self.task.work.number[messages.seq - 1]
        own = messages.row == moved  # not an exposed object
        self.counted.reached += int(count_reached(self.task.space, messages.regions.boxes[own, 0]).sum())
        if self.count_received:
            self.counted.received += int(count_reached(self.task.space, messages.regions.boxes[:, 0]).sum())
        self._count_bytes(messages.seq, _PAINT_BYTES)


class PaintSparseMethod(PaintDenseMethod):
    """Paint-Sparse: no messages for rectangles without subscriptions."""

    name = "paint-sparse"
    sparse = True


class PaintBatchMethod(PaintSparseMethod):
    """Paint-Batch on Paint-Sparse; `reached` counts all messages: a batch does not separate events."""

    name = "paint-batch"
    at_once = True

    def publish(self, number: Index, x: Index, y: Index) -> Any:
        return self.paint.publish_batch(number, x, y)

    def _reach(self, messages: Any) -> None:
        self.counted.received += int(count_reached(self.task.space, messages.regions.boxes[:, 0]).sum())
        self.counted.reached = self.counted.received
        self._count_bytes(messages.seq, _PAINT_BYTES)


class CoalescedMethod(PaintBatchMethod):
    """Only coalescing: the last change of each object, one after the other (K12, figure 9)."""

    name = "coalesce"

    def publish(self, number: Index, x: Index, y: Index) -> Any:
        return self.paint.publish(*coalesced(number, x, y))


class UnicastMethod(_TopkMethod):
    """Unicast: the server probes each subscription and writes to it."""

    name = "unicast"

    def __init__(self, task: RankTask) -> None:
        super().__init__(task)
        self.server = topk.UnicastTopk([task.k], [(task.work.low, task.work.high)])
        self._begin()

    def _reach(self, messages: Any) -> None:
        reached = int((messages.row == self.task.work.number[messages.seq - 1]).sum())
        self.counted.reached += reached
        self.counted.received += len(messages)
        self._count_bytes(messages.seq, _UNICAST_BYTES)


class RelaxMethod(_TopkMethod):
    """CN-Relax: a change is sent to all ranges that hold it."""

    name = "relax"
    sampled = 3

    def __init__(self, task: RankTask) -> None:
        super().__init__(task)
        self.server = topk.RelaxTopk([task.k])
        self._low, self._high = np.sort(task.work.low), np.sort(task.work.high)
        self._begin()

    def deliver(self, messages: Any, events: int) -> None:
        if self.counted.events > 500:
            self.clients = {}  # each client stores thousands of objects; 500 events are enough of a check
        super().deliver(messages, events)

    def _reach(self, messages: Any) -> None:
        reached = _relaxed_reach(messages, self.task.space, self._low, self._high)
        self.counted.reached += reached
        self.counted.received += reached
        self._count_bytes(messages.seq, _PAINT_BYTES)


class EnumerateMethod(RankMethod):
    """The engine's method: tiles are looked up among the subscriptions; each subscription found is one delta.

    `reached` counts deltas."""

    name = "enumerate"

    def __init__(self, task: RankTask) -> None:
        super().__init__(task)
        work, points = task.work, Points()
        points.load(np.arange(len(work.x)), work.x, work.y)
        self.painter = Painter(points, [task.k])
        self._contents = {
            slot: {number: y for y, number in brute_first(work.x, work.y, low, high, task.k)}
            for slot in task.sample
            for low, high in [(int(work.low[slot]), int(work.high[slot]))]
        }

    def publish(self, number: Index, x: Index, y: Index) -> tuple[Tiles, Index, Any]:
        tiles = self.painter.enumerate(number, x, y)
        start, slot = self.task.space.runs(tiles.rectangles, tiles.update)
        return tiles, start, slot

    def deliver(self, messages: tuple[Tiles, Index, Any], events: int) -> None:
        tiles, start, slot = messages
        which = np.repeat(np.arange(len(tiles)), np.diff(start))
        mine = np.flatnonzero(np.isin(slot, np.array(list(self._contents), np.int32)))
        removed = np.isin(tiles.kind, (TileKind.OLD, TileKind.LOSE))
        at = np.lexsort((~removed[which[mine]], tiles.update[which[mine]]))  # within an event, -1 before +1
        for tile, s in zip(which[mine][at].tolist(), slot[mine][at].tolist(), strict=True):
            row, content = tiles.table[tile].tolist(), self._contents[s]
            if removed[tile]:
                del content[row[3]]
            else:
                content[row[3]] = row[5]
        counted, calls = self.counted, self.painter.counts
        counted.events += events
        counted.messages += len(tiles)
        counted.min_y, counted.first_k, counted.snap = calls.min_y, calls.first_k, calls.snap
        counted.reached += len(slot)
        counted.received += len(slot)

    def contents(self) -> dict[int, Any]:
        return {
            slot: sorted((y, number) for number, y in content.items())
            for slot, content in self._contents.items()
        }


def brute_first(x: Index, y: Index, low: int, high: int, k: int) -> list[tuple[int, int]]:
    """The first k of a range among all objects, as (y, object)."""
    inside = np.flatnonzero((low <= x) & (x <= high))
    first = inside[np.argsort(y[inside])[:k]]
    return list(zip(y[first].tolist(), first.tolist(), strict=True))


# -- minima ------------------------------------------------------------------------------------------


class _MinimumMethod(RankMethod):
    """A server of minima, and its clients."""

    server: Any

    def _begin(self) -> None:
        low, high = self.task.work.low, self.task.work.high
        self.clients: dict[int, Any] = {
            s: self.server.contents(int(low[s]), int(high[s])) for s in self.task.sample[: self.sampled]
        }

    def publish(self, number: Index, x: Index, y: Index) -> Any:
        return self.server.update(number, x, y)

    def deliver(self, messages: Any, events: int) -> None:
        apply_all(self.clients, messages, self.task.work)
        counted = self.counted
        counted.events += events
        counted.messages = self.server.counters["messages"]
        self._reach(messages)
        counted.received = counted.reached

    @abstractmethod
    def _reach(self, messages: Any) -> None: ...

    def contents(self) -> dict[int, Any]:
        return {slot: client.content() for slot, client in self.clients.items()}


class MinReformulatedMethod(_MinimumMethod):
    """S-CN: messages with rectangles."""

    name = "s-cn"

    def __init__(self, task: RankTask) -> None:
        super().__init__(task)
        self.server = minima.ReformulatedMinima(Extremes(task.work.x, task.work.y))
        self._begin()

    def _reach(self, messages: Any) -> None:
        self.counted.reached += int(count_reached(self.task.space, messages.regions.boxes[:, 0]).sum())
        self._count_bytes(messages.seq, _MIN_BYTES)


class MinUnicastMethod(_MinimumMethod):
    """S-UN: the rectangles are looked up among the subscriptions."""

    name = "s-un"

    def __init__(self, task: RankTask) -> None:
        super().__init__(task)
        self.server = minima.UnicastMinima(Extremes(task.work.x, task.work.y), task.space)
        self._begin()

    def _reach(self, messages: Any) -> None:
        self.counted.reached += len(messages.recipients.slot)
        self._count_bytes(messages.seq[messages.recipients.message], _MIN_UNICAST_BYTES)


class MinRelaxedMethod(_MinimumMethod):
    """CN: each move is sent to all ranges that hold it."""

    name = "cn"
    sampled = 10

    def __init__(self, task: RankTask) -> None:
        super().__init__(task)
        self.server = minima.RelaxedMinima(task.work.x, task.work.y)
        self._low, self._high = np.sort(task.work.low), np.sort(task.work.high)
        self._begin()

    def _reach(self, messages: Any) -> None:
        self.counted.reached += _relaxed_reach(messages, self.task.space, self._low, self._high)
        self._count_bytes(messages.seq, _MOVE_BYTES)


TOPK: dict[str, type[RankMethod]] = {
    method.name: method
    for method in (
        PaintDenseMethod,
        PaintSparseMethod,
        PaintBatchMethod,
        UnicastMethod,
        RelaxMethod,
        EnumerateMethod,
    )
}
MINIMA: dict[str, type[RankMethod]] = {
    method.name: method for method in (MinReformulatedMethod, MinUnicastMethod, MinRelaxedMethod)
}
