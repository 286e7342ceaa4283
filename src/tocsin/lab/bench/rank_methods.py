"""The ways to keep top-k and minima over ranges, each behind the same four methods.

    publish(events)  ─►  told           what is timed: all that a server does for some events
    take(told)                          counts it, and lets the clients of a sample hear it
    contents()                          what the clients of the sample have now
    counted                             messages, subscriptions reached, calls, bytes

A message of painting is six numbers, one to a single subscription four (its id, the object, x and y), at four
bytes each: with these sizes the traffic that K12 prints (316,158 and 3,501 bytes per event) is that of the
messages it counts. A minimum takes five numbers, to a single subscription two; a moved object three.

*Reached* are subscriptions that an event is told to, each once: K12's tables I and II count these (for k = 1
its Unicast probes just as many subscriptions as table I has messages, and those probed are those affected).
Who takes another object for the one that moved hears of that one too; `heard` counts these messages as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tocsin.lab.bench.rank_workloads import RankWorkload
from tocsin.model.columns import Index
from tocsin.rank.batch import coalesced
from tocsin.rank.extremes import Extremes
from tocsin.rank.paint import Kind, Painter, Tiles
from tocsin.rank.points import Points
from tocsin.rank.space import Space
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
    *("brute_first", "count_reached", "stabbed"),
]

_CHUNK = 4096  # rectangles that are looked up at a time
_TOLD_BYTES, _UNICAST_BYTES = 24, 16  # of top-k
_MIN_BYTES, _MIN_UNICAST_BYTES, _MOVE_BYTES = 20, 8, 12


class RankTask(NamedTuple):
    """What a method is to do, and for which subscriptions contents are kept."""

    work: RankWorkload
    space: Space  # the ranges by slot
    k: int
    eps: float
    sample: Sequence[int]


@dataclass
class RankCounts:
    """Totals so far."""

    events: int = 0
    messages: int = 0
    reached: int = 0
    heard: int = 0
    min_y: int = 0
    first_k: int = 0
    snap: int = 0
    looked_at: int = 0  # subscriptions that are probed one by one
    bytes: int = 0
    most_bytes: int = 0  # of one event


def count_reached(space: Space, rectangles: Index) -> Index:
    """How many subscriptions are in each of many rectangles."""
    out = np.zeros(len(rectangles), np.int64)
    for at in range(0, len(rectangles), _CHUNK):
        number, _ = space.find(rectangles[at : at + _CHUNK])
        out[at : at + _CHUNK] = np.bincount(number, minlength=min(_CHUNK, len(rectangles) - at))
    return out


def stabbed(low: Index, high: Index, x: Index) -> Index:
    """How many ranges hold each x: those that begin by then, but for those that have ended."""
    begun = np.searchsorted(np.sort(low), x, side="right")
    return np.asarray(begun - np.searchsorted(np.sort(high), x, side="left"), np.int64)


class RankMethod(ABC):
    """One way; `at_once`: all events are one batch."""

    name: ClassVar[str]
    at_once: ClassVar[bool] = False
    sampled: ClassVar[int] = 100
    """How many subscriptions it can keep contents for in reasonable time."""

    def __init__(self, task: RankTask) -> None:
        self.task = task
        self.counted = RankCounts()
        self.heard_too = False  # count all messages heard, which takes longer

    @abstractmethod
    def publish(self, number: Index, x: Index, y: Index) -> Any: ...

    @abstractmethod
    def take(self, told: Any, events: int) -> None: ...

    @abstractmethod
    def contents(self) -> dict[int, Any]:
        """By slot: top-k as (y, object) in order, or the minimum."""

    def _count_bytes(self, update: Index, size: int) -> None:
        self.counted.bytes += size * len(update)
        most = int(np.bincount(update - update[0]).max()) if len(update) else 0
        self.counted.most_bytes = max(self.counted.most_bytes, size * most)


# -- top-k -------------------------------------------------------------------------------------------


class _TopkMethod(RankMethod):
    """Messages, and clients that hear them."""

    server: topk.Describe

    def _begin(self) -> None:
        work, k = self.task.work, self.task.k
        self.server.load(np.arange(len(work.x)), work.x, work.y)
        self.clients = {
            slot: topk.Client(
                low, high, k, self.server.content(low, high, k), keeps_all=self.server.keeps_all
            )
            for slot in self.task.sample[: self.sampled]
            for low, high in [(int(work.low[slot]), int(work.high[slot]))]
        }

    def publish(self, number: Index, x: Index, y: Index) -> Any:
        return self.server.publish(number, x, y)

    def take(self, told: Any, events: int) -> None:
        for slot, client in self.clients.items():
            client.hear(client.wants(told, slot))
        counted, calls = self.counted, self.server.counters
        counted.events += events
        counted.messages += len(told)
        counted.min_y, counted.first_k, counted.snap = calls.min_y, calls.first_k, calls.snap
        counted.looked_at = calls.looked_at
        self._reach(told)

    @abstractmethod
    def _reach(self, told: Any) -> None: ...

    def contents(self) -> dict[int, Any]:
        return {slot: client.content for slot, client in self.clients.items()}


class PaintDenseMethod(_TopkMethod):
    """Paint-Dense: knows no subscriptions."""

    name = "paint-dense"
    sparse = False

    def __init__(self, task: RankTask) -> None:
        super().__init__(task)
        spaces = [task.space] if self.sparse else None
        self.server = self.paint = topk.Paint([task.k], eps=task.eps, spaces=spaces)
        self._begin()

    def _reach(self, told: Any) -> None:
        own = told.object == self.task.work.number[told.seq - 1]  # the object that moved, not an exposed one
        self.counted.reached += int(count_reached(self.task.space, told.rectangles[own]).sum())
        if self.heard_too:
            self.counted.heard += int(count_reached(self.task.space, told.rectangles).sum())
        self._count_bytes(told.seq, _TOLD_BYTES)


class PaintSparseMethod(PaintDenseMethod):
    """Paint-Sparse: leaves out where nobody is."""

    name = "paint-sparse"
    sparse = True


class PaintBatchMethod(PaintSparseMethod):
    """Paint-Batch on Paint-Sparse; `reached` are all messages heard, since events are not told apart."""

    name = "paint-batch"
    at_once = True

    def publish(self, number: Index, x: Index, y: Index) -> Any:
        return self.paint.publish_batch(number, x, y)

    def _reach(self, told: Any) -> None:
        self.counted.heard += int(count_reached(self.task.space, told.rectangles).sum())
        self.counted.reached = self.counted.heard
        self._count_bytes(told.seq, _TOLD_BYTES)


class CoalescedMethod(PaintBatchMethod):
    """Only coalescing: the last change of each object, one after the other (K12, figure 9)."""

    name = "coalesce"

    def publish(self, number: Index, x: Index, y: Index) -> Any:
        return self.paint.publish(*coalesced(number, x, y))


class UnicastMethod(_TopkMethod):
    """The server probes and writes to each subscription."""

    name = "unicast"

    def __init__(self, task: RankTask) -> None:
        super().__init__(task)
        self.server = topk.Unicast([task.k], [(task.work.low, task.work.high)])
        self._begin()

    def _reach(self, told: Any) -> None:
        reached = int((told.object == self.task.work.number[told.seq - 1]).sum())
        self.counted.reached += reached
        self.counted.heard += len(told)
        self._count_bytes(told.seq, _UNICAST_BYTES)


class RelaxMethod(_TopkMethod):
    """CN-Relax: a change goes to all ranges that hold it."""

    name = "relax"
    sampled = 3

    def __init__(self, task: RankTask) -> None:
        super().__init__(task)
        self.server = topk.Relax([task.k])
        self._low, self._high = np.sort(task.work.low), np.sort(task.work.high)
        self._begin()

    def take(self, told: Any, events: int) -> None:
        if self.counted.events > 500:
            self.clients = {}  # they keep thousands of objects: long enough
        super().take(told, events)

    def _reach(self, told: Any) -> None:
        reached = int(stabbed(self._low, self._high, told.x).sum())
        self.counted.reached += reached
        self.counted.heard += reached
        self._count_bytes(told.seq, _TOLD_BYTES)


class EnumerateMethod(RankMethod):
    """The engine's way: tiles are looked up among the subscriptions, and each found is one delta, told as a
    run of subscriptions per tile.

    `reached` are deltas."""

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

    def take(self, told: tuple[Tiles, Index, Any], events: int) -> None:
        tiles, start, slot = told
        which = np.repeat(np.arange(len(tiles)), np.diff(start))
        mine = np.flatnonzero(np.isin(slot, np.array(list(self._contents), np.int32)))
        gone = np.isin(tiles.kind, (Kind.OLD, Kind.LOSE))
        at = np.lexsort((~gone[which[mine]], tiles.update[which[mine]]))  # of one event, -1 before +1
        for tile, s in zip(which[mine][at].tolist(), slot[mine][at].tolist(), strict=True):
            row, content = tiles.table[tile].tolist(), self._contents[s]
            if gone[tile]:
                del content[row[3]]
            else:
                content[row[3]] = row[5]
        counted, calls = self.counted, self.painter.counts
        counted.events += events
        counted.messages += len(tiles)
        counted.min_y, counted.first_k, counted.snap = calls.min_y, calls.first_k, calls.snap
        counted.reached += len(slot)
        counted.heard += len(slot)

    def contents(self) -> dict[int, Any]:
        return {
            slot: sorted((y, number) for number, y in content.items())
            for slot, content in self._contents.items()
        }


def brute_first(x: Index, y: Index, low: int, high: int, k: int) -> list[tuple[int, int]]:
    """The first k of a range, by looking at all objects: (y, object)."""
    inside = np.flatnonzero((low <= x) & (x <= high))
    first = inside[np.argsort(y[inside])[:k]]
    return list(zip(y[first].tolist(), first.tolist(), strict=True))


# -- minima ------------------------------------------------------------------------------------------


class _MinimumMethod(RankMethod):
    server: Any

    def _begin(self) -> None:
        low, high = self.task.work.low, self.task.work.high
        self.clients: dict[int, Any] = {
            s: self.server.client(s, int(low[s]), int(high[s])) for s in self.task.sample[: self.sampled]
        }

    def publish(self, number: Index, x: Index, y: Index) -> Any:
        return self.server.update(number, x, y)

    def take(self, told: Any, events: int) -> None:
        for client in self.clients.values():
            client.receive(told)
        counted = self.counted
        counted.events += events
        counted.messages = self.server.counters["messages"]
        self._reach(told)
        counted.heard = counted.reached

    @abstractmethod
    def _reach(self, told: Any) -> None: ...

    def contents(self) -> dict[int, Any]:
        return {slot: client.value for slot, client in self.clients.items()}


class MinReformulatedMethod(_MinimumMethod):
    """S-CN: messages with rectangles."""

    name = "s-cn"

    def __init__(self, task: RankTask) -> None:
        super().__init__(task)
        self.server = minima.Reformulated(Extremes(task.work.x, task.work.y))
        self._begin()

    def _reach(self, told: Any) -> None:
        self.counted.reached += int(count_reached(self.task.space, told.bounds).sum())
        self._count_bytes(told.update, _MIN_BYTES)


class MinUnicastMethod(_MinimumMethod):
    """S-UN: the rectangles are looked up."""

    name = "s-un"

    def __init__(self, task: RankTask) -> None:
        super().__init__(task)
        self.server = minima.Unicast(Extremes(task.work.x, task.work.y), task.space)
        self._begin()

    def _reach(self, told: Any) -> None:
        self.counted.reached += len(told.slot)
        self._count_bytes(told.messages.update[told.which], _MIN_UNICAST_BYTES)


class MinRelaxedMethod(_MinimumMethod):
    """CN: all moves to all ranges that hold them."""

    name = "cn"
    sampled = 10

    def __init__(self, task: RankTask) -> None:
        super().__init__(task)
        self.server = minima.Relaxed(task.work.x, task.work.y)
        self._low, self._high = np.sort(task.work.low), np.sort(task.work.high)
        self._begin()

    def _reach(self, told: Any) -> None:
        self.counted.reached += int(stabbed(self._low, self._high, told.x).sum())
        self._count_bytes(np.arange(len(told)), _MOVE_BYTES)


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
