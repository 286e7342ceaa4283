"""The protocol of join strategies: which queries does a row affect?

A strategy holds queries under dense slots over a storage that it may share with others. It is asked with
the key and the selection attribute of a row that comes or goes, on either side; the answer is every slot
that gains or loses a joined row, each once:

    strategy.affected(side, key, value)              from Python, one row
    strategy.each(side, keys, values, out)           many rows against tables that stand still
    kernel(strategy.plan(side), order, key, value, out)   in a compiled loop that changes the tables between

`kernel` and `order` are `strategy.kernel` and `storage.other(side)`. A plan is good until queries come or
go, or a table's arrays are replaced (`Ordered.reserve`): ask for it again then.

Every subclass in this folder is found by the contract tests and by `tocsin bench join` by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from tocsin.errors import TocsinError
from tocsin.join.strategies.storage import JoinStorage, Kind, Ranges
from tocsin.model.columns import Index, longer

__all__ = ["Dense", "JoinStrategy", "better_anew"]


def better_anew(changed: int, left: int) -> bool:
    """Whether hot groups are better built anew than changed: one by one takes some ten times as long."""
    return changed >= 1000 and 8 * changed > left


class JoinStrategy(ABC):
    """Queries by slot."""

    kind: ClassVar[Kind]
    name: ClassVar[str]
    kernel: ClassVar[Any]  # (plan, order, key, own, out) -> count, compiled
    batch: ClassVar[Any]  # (plan, order, keys, owns, out, counts), compiled

    def __init__(self, storage: JoinStorage) -> None:
        self.storage = storage
        self._live = np.zeros(0, np.bool_)

    def add(self, slots: Index, ranges: Ranges) -> None:
        """Take queries in, the n-th under the n-th slot; a slot must be free, a range not empty."""
        slots = np.asarray(slots, np.int64)
        ranges = Ranges(*(np.ascontiguousarray(part, np.int64) for part in ranges))
        if np.any(ranges.low > ranges.high) or np.any(ranges.own_low > ranges.own_high):
            raise TocsinError("a range is empty", hint="a query that nothing affects needs no strategy")
        if np.any(self._live[slots[slots < len(self._live)]]):
            raise TocsinError("a slot is in use", hint="remove what it has first")
        self.storage.put(slots, ranges)
        if len(self._live) < len(self.storage.ranges.low):
            self._live = longer(self._live, len(self.storage.ranges.low))
        self._live[slots] = True
        self._enter(slots, ranges)

    def remove(self, slots: Index) -> None:
        """Let queries go; a slot must be in use."""
        slots = np.asarray(slots, np.int64)
        self._live[slots] = False
        self._leave(slots)

    def __len__(self) -> int:
        return int(self._live.sum())

    def affected(self, side: int, key: int, value: int) -> Index:
        """Slots of the queries whose result changes with such a row on a side, in any order."""
        out = self.buffer()
        return out[: self.kernel(self.plan(side), self.storage.other(side), key, value, out)]

    def each(self, side: int, keys: Index, values: Index, out: Index | None = None) -> Index:
        """How many queries each of the rows affects; nothing is kept but the last row's, in `out`."""
        counts = np.zeros(len(keys), np.int64)
        found = self.buffer() if out is None else out
        self.batch(self.plan(side), self.storage.other(side), keys, values, found, counts)
        return counts

    def buffer(self) -> Index:
        """An `out` that is always long enough, until queries are added."""
        return np.empty(len(self._live) + 1, np.int64)

    @abstractmethod
    def plan(self, side: int) -> Any:
        """What `kernel` needs for changes on a side: a tuple of arrays."""

    @abstractmethod
    def _enter(self, slots: Index, ranges: Ranges) -> None:
        """Queries come."""

    @abstractmethod
    def _leave(self, slots: Index) -> None:
        """Queries go."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Of its own structures, without the shared storage."""

    def stats(self) -> dict[str, Any]:
        """Counts worth looking at."""
        return {"strategy": self.name, "queries": len(self), "bytes": self.bytes}

    @abstractmethod
    def _check(self) -> None:
        """Assert the invariants."""


class Dense:
    """Queries one after the other, without gaps: what a scan reads.

    >>> dense = Dense()
    >>> dense.add(np.array([4, 7]), Ranges(*np.array([[1, 2], [3, 4], [5, 6], [7, 8]])))
    >>> dense.remove(np.array([4]))
    >>> dense.slot[:len(dense)].tolist(), dense.ranges.low[:len(dense)].tolist()
    ([7], [2])
    """

    def __init__(self) -> None:
        self.ranges = Ranges(*(np.empty(16, np.int64) for _ in range(4)))
        self.slot: Index = np.empty(16, np.int64)
        self.count = np.zeros(1, np.int64)
        self._at: Index = np.empty(0, np.int64)  # by slot

    def __len__(self) -> int:
        return int(self.count[0])

    def add(self, slots: Index, ranges: Ranges) -> None:
        old, new = len(self), len(self) + len(slots)
        if new > len(self.slot):
            self.slot = longer(self.slot, max(new, 2 * old))
            self.ranges = Ranges(*(longer(part, max(new, 2 * old)) for part in self.ranges))
        top = int(np.max(slots, initial=-1)) + 1
        if top > len(self._at):
            self._at = longer(self._at, max(top, 2 * len(self._at)))
        self.slot[old:new] = slots
        self._at[slots] = np.arange(old, new)
        for target, given in zip(self.ranges, ranges, strict=True):
            target[old:new] = given
        self.count[0] = new

    def remove(self, slots: Index) -> None:
        """The last ones take the places."""
        left = len(self) - len(slots)
        holes = self._at[slots]
        stays = np.ones(len(slots), np.bool_)  # of the last ones
        stays[holes[holes >= left] - left] = False
        source, target = left + np.flatnonzero(stays), holes[holes < left]
        self.slot[target] = self.slot[source]
        self._at[self.slot[source]] = target
        for part in self.ranges:
            part[target] = part[source]
        self.count[0] = left

    @property
    def bytes(self) -> int:
        return self.slot.nbytes + self._at.nbytes + sum(part.nbytes for part in self.ranges)

    def _check(self) -> None:
        mine = self.slot[: len(self)]
        assert np.array_equal(self._at[mine], np.arange(len(self)))
