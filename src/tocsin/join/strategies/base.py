"""The protocol of join strategies (which queries does a row affect?), and what they share.

Queries over R(A, B) and S(B, C), all values int64 codes that keep the order:

    equality   R.B = S.B, R.A in own_low..own_high, S.C in low..high
    band       S.B - R.B in low..high (own ranges are ignored)

A side is a table: 0 for R, 1 for S. For a change in S the ranges of an equality join trade places, and a
difference changes its sign; strategies handle both sides alike. Rows with a NULL key are left out.

A strategy indexes queries under dense slots over a storage that it may share with others. Given the key and
the selection attribute of a row that is inserted or deleted on either side, it finds every slot that gains or
loses a joined row, each once:

    strategy.affected(side, key, value)                   from Python, one row
    strategy.each(side, keys, values, out)                many rows against unchanging tables
    kernel(strategy.plan(side), order, key, value, out)   in a compiled loop that changes tables in between

`kernel` and `order` are `strategy.kernel` and `storage.other(side)`. A plan is valid until queries are added
or removed, or a table's arrays are replaced (`OrderedRows.reserve`); then call `plan` again.

The contract tests and `tocsin bench join` discover every subclass in this package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tocsin.errors import TocsinError
from tocsin.join._kernels.band import band_rows
from tocsin.join._kernels.equality import equality_rows
from tocsin.join._kernels.orders import Order
from tocsin.join.tables import OrderedRows
from tocsin.model.columns import Index, longer
from tocsin.stab.groups import HotSets, Ranges
from tocsin.stab.hotspots import HotspotConfig
from tocsin.stab.intervals import IntervalIndex

__all__ = [
    "DenseRanges",
    "HotIndex",
    "JoinKind",
    "JoinStorage",
    "JoinStrategy",
    "Ranges",
    "ScanningStrategy",
    "rebuild_pays",
]


class JoinKind(Enum):
    """What joins two rows: equal keys, or a difference of keys in a range."""

    EQUALITY = "equality"
    BAND = "band"


class JoinStorage:
    """Two ordered tables, and ranges by slot as a change in R sees them.

    >>> storage = JoinStorage()
    >>> storage.load(1, keys=[5, 5, 7], values=[10, 30, 20])
    >>> storage.put(np.array([3]), Ranges(*np.array([[25], [35], [0], [9]])))
    >>> storage.rows(JoinKind.EQUALITY, 0, 5, np.array([3]))  # a row of R with B = 5: slots, rows of S
    (array([3]), array([1]))
    """

    def __init__(self) -> None:
        self.tables = (OrderedRows(), OrderedRows())
        self.ranges = Ranges(*(np.zeros(0, np.int64) for _ in range(4)))

    def load(self, side: int, keys: ArrayLike, values: ArrayLike, rows: ArrayLike | None = None) -> None:
        """Replace all rows of a table."""
        built = OrderedRows.build(keys, values, rows)
        self.tables = (built, self.tables[1]) if side == 0 else (self.tables[0], built)

    def other(self, side: int) -> Order:
        """The order that kernels join a change on this side with."""
        return self.tables[1 - side].arrays

    def put(self, slots: Index, ranges: Ranges) -> None:
        """Store ranges of queries; strategies that share this storage may do so repeatedly."""
        top = int(np.max(slots, initial=-1)) + 1
        if top > (length := len(self.ranges.low)):
            self.ranges = Ranges(*(longer(part, max(top, 2 * length)) for part in self.ranges))
        for target, given in zip(self.ranges, ranges, strict=True):
            target[slots] = given

    def seen_from(self, side: int) -> Ranges:
        """By slot, the other table's range and the own one, for a change on a side."""
        low, high, own_low, own_high = self.ranges
        return self.ranges if side == 0 else Ranges(own_low, own_high, low, high)

    def rows(self, kind: JoinKind, side: int, key: int, slots: Index) -> tuple[Index, Index]:
        """Every (affected query, joining row of the other table), for queries found by a strategy."""
        found = np.empty((2, 64), np.int64)
        while True:
            if kind is JoinKind.EQUALITY:
                count = equality_rows(self.other(side), key, self.seen_from(side), slots, found)
            else:
                count = band_rows(self.other(side), side == 0, key, self.ranges, slots, found)
            if count <= found.shape[1]:
                return found[0, :count], found[1, :count]
            found = np.empty((2, count), np.int64)


class JoinStrategy(ABC):
    """Queries by slot."""

    kind: ClassVar[JoinKind]
    name: ClassVar[str]
    kernel: ClassVar[Any]  # (plan, order, key, own, out) -> count, compiled
    batch: ClassVar[Any]  # (plan, order, keys, owns, out, counts), compiled

    def __init__(self, storage: JoinStorage) -> None:
        self.storage = storage
        self._live = np.zeros(0, np.bool_)

    def add(self, slots: Index, ranges: Ranges) -> None:
        """Add queries, the n-th under the n-th slot; a slot must be free, a range not empty."""
        slots = np.asarray(slots, np.int64)
        ranges = Ranges(*(np.ascontiguousarray(part, np.int64) for part in ranges))
        if np.any(ranges.low > ranges.high) or np.any(ranges.own_low > ranges.own_high):
            raise TocsinError("a range is empty", hint="a query that no row can affect needs no strategy")
        if np.any(self._live[slots[slots < len(self._live)]]):
            raise TocsinError("a slot is in use", hint="remove its query first")
        self.storage.put(slots, ranges)
        if len(self._live) < len(self.storage.ranges.low):
            self._live = longer(self._live, len(self.storage.ranges.low))
        self._live[slots] = True
        self._index(slots, ranges)

    def remove(self, slots: Index) -> None:
        """Remove queries; a slot must be in use."""
        slots = np.asarray(slots, np.int64)
        self._live[slots] = False
        self._unindex(slots)

    def __len__(self) -> int:
        return int(self._live.sum())

    def affected(self, side: int, key: int, value: int) -> Index:
        """Slots of the queries whose result changes with such a row on a side, in any order."""
        out = self.buffer()
        return out[: self.kernel(self.plan(side), self.storage.other(side), key, value, out)]

    def each(self, side: int, keys: Index, values: Index, out: Index | None = None) -> Index:
        """How many queries each of the rows affects; `out` keeps those of the last row."""
        counts = np.zeros(len(keys), np.int64)
        found = self.buffer() if out is None else out
        self.batch(self.plan(side), self.storage.other(side), keys, values, found, counts)
        return counts

    def buffer(self) -> Index:
        """An `out` that is long enough until queries are added."""
        return np.empty(len(self._live) + 1, np.int64)

    @abstractmethod
    def plan(self, side: int) -> Any:
        """The arrays that `kernel` reads for changes on a side."""

    @abstractmethod
    def _index(self, slots: Index, ranges: Ranges) -> None:
        """Index queries."""

    @abstractmethod
    def _unindex(self, slots: Index) -> None:
        """Remove queries from the index."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Size of its own structures, without the shared storage."""

    def stats(self) -> dict[str, Any]:
        """Name, counts and size."""
        return {"strategy": self.name, "queries": len(self), "bytes": self.bytes}

    @abstractmethod
    def _check(self) -> None:
        """Assert the invariants."""


class DenseRanges:
    """Queries in sequence without gaps, for scans.

    >>> dense = DenseRanges()
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
        """The last queries move into the gaps."""
        left = len(self) - len(slots)
        holes = self._at[slots]
        stays = np.ones(len(slots), np.bool_)  # of the last queries
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


class ScanningStrategy(JoinStrategy):
    """A strategy that scans all queries."""

    def __init__(self, storage: JoinStorage) -> None:
        super().__init__(storage)
        self._dense = DenseRanges()

    def _index(self, slots: Index, ranges: Ranges) -> None:
        self._dense.add(slots, ranges)

    def _unindex(self, slots: Index) -> None:
        self._dense.remove(slots)

    @property
    def bytes(self) -> int:
        return self._dense.bytes

    def _check(self) -> None:
        self._dense._check()
        assert np.array_equal(np.sort(self._dense.slot[: len(self._dense)]), np.flatnonzero(self._live))


class HotIndex:
    """For changes of either table: hot groups by the other table's range, scattered queries by their own."""

    def __init__(self, config: HotspotConfig | None = None) -> None:
        self.sets = (HotSets(config), HotSets(config))  # by side of the change
        self.scattered = (IntervalIndex(), IntervalIndex())

    def add(self, slots: Index, by_side: tuple[Ranges, Ranges]) -> None:
        """Add queries with the ranges that a change on each side sees."""
        for side, ranges in enumerate(by_side):
            self._scatter(side, *self.sets[side].add(slots, ranges))

    def remove(self, slots: Index) -> None:
        """Remove queries."""
        for side in (0, 1):
            self._scatter(side, *self.sets[side].remove(slots))

    def _scatter(self, side: int, gone: Index, fresh: Index) -> None:
        if len(gone):
            self.scattered[side].remove(gone)
        if len(fresh):
            ranges = self.sets[side].ranges_of(fresh)
            self.scattered[side].add(fresh, ranges.own_low, ranges.own_high)

    def hot_groups(self) -> list[int]:
        """The number of hot groups, by side."""
        return [len(sets.index.active) for sets in self.sets]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in (*self.sets, *self.scattered))

    def _check(self, queries: int) -> None:
        for sets, scattered in zip(self.sets, self.scattered, strict=True):
            sets._check()
            scattered._check()
            assert len(sets.index) + len(scattered) == queries


def rebuild_pays(changed: int, left: int) -> bool:
    """Whether to rebuild a `HotIndex` rather than update it: updating takes ten times as long per query."""
    return changed >= 1000 and 8 * changed > left
