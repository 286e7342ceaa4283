"""Equality joins with local selections: six strategies to find the queries that a row affects.

Queries are `R.A in range, S.C in range, R.B = S.B`. A row r(a, b) of R is inserted (or deleted). The rows
of S with B = b have some values of C; a query is affected if its range of A holds a and its range of C one of
them. As rectangles over C and A: the rectangles that hold one of the points on the line A = a.

    A                                      NAIVE         every query: its C range against the points
    |   +-------+                          JoinFirst-E   every point: rectangles that hold it
  a |..*|..*....|....*...*....*....        JoinFirst-S   every query: its A range, then the points
    |   +-------+  +---+                   SelectFirst   queries with a in their A range: the points
    +----------------------------- C       SSI           every group: the points next to its own point
                                           Hotspot       SSI for large groups, SelectFirst for the rest

Cost, for n queries in tau groups, m rows, k' joining rows, n' queries whose own range holds the value, and
k affected: NAIVE and JoinFirst-S O(log m + n log k'), JoinFirst-E O(log m + k' sqrt n + k), SelectFirst
O(log m + log n + n' log k'), SSI O(log m + tau log k' + the prefixes of the groups' lists).

>>> storage = JoinStorage()
>>> storage.load(1, keys=[5, 5, 7], values=[10, 30, 20])
>>> strategy = Ssi(storage)
>>> c_low, c_high, a_low, a_high = np.array([[8, 25, 11], [12, 35, 29], [0, 0, 0], [9, 9, 9]])
>>> strategy.add(np.arange(3), Ranges(c_low, c_high, a_low, a_high))
>>> sorted(strategy.affected(0, key=5, value=4).tolist())  # a row of R with B = 5 and A = 4
[0, 1]

T07, section 4.3.2. Groups are two sorted lists and slabs instead of an R-tree (`stab/groups.py`).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tocsin.join._kernels import equality as kernels
from tocsin.join.strategies.base import (
    HotIndex,
    JoinKind,
    JoinStorage,
    JoinStrategy,
    Ranges,
    ScanningStrategy,
    rebuild_pays,
)
from tocsin.model.columns import Index
from tocsin.stab.groups import StabbingSets
from tocsin.stab.hotspots import HotspotConfig
from tocsin.stab.intervals import IntervalIndex, RectangleIndex

__all__ = ["EqualityStrategy", "Hotspot", "JoinFirstE", "JoinFirstS", "Naive", "SelectFirst", "Ssi"]


class EqualityStrategy(JoinStrategy):
    """An equality join."""

    kind: ClassVar[JoinKind] = JoinKind.EQUALITY

    def _values(self, side: int) -> Index:
        """Scratch for the values of any run of the other table, now or after inserts that are reserved."""
        return np.empty(len(self.storage.other(side).value) + 1, np.int64)


def _trade(ranges: Ranges) -> Ranges:
    return Ranges(ranges.own_low, ranges.own_high, ranges.low, ranges.high)


class Naive(ScanningStrategy, EqualityStrategy):
    """Every query, its range over the other table first."""

    name: ClassVar[str] = "naive"
    kernel: ClassVar[Any] = staticmethod(kernels.affected_naive)
    batch: ClassVar[Any] = staticmethod(kernels.each_naive)

    def plan(self, side: int) -> kernels.ScanPlan:
        mine = self._dense.ranges if side == 0 else _trade(self._dense.ranges)
        return kernels.ScanPlan(*mine, self._dense.slot, self._dense.count, self._values(side))


class JoinFirstS(Naive):
    """Every query, its own range first."""

    name: ClassVar[str] = "joinfirst-s"
    kernel: ClassVar[Any] = staticmethod(kernels.affected_join_s)
    batch: ClassVar[Any] = staticmethod(kernels.each_join_s)


class JoinFirstE(EqualityStrategy):
    """Every joining row: the rectangles that hold it."""

    name: ClassVar[str] = "joinfirst-e"
    kernel: ClassVar[Any] = staticmethod(kernels.affected_join_e)
    batch: ClassVar[Any] = staticmethod(kernels.each_join_e)

    def __init__(self, storage: JoinStorage) -> None:
        super().__init__(storage)
        self._rectangles = RectangleIndex()
        self._seen = np.zeros(0, np.int64)
        self._clock = np.zeros(1, np.int64)

    def plan(self, side: int) -> kernels.JoinFirstPlan:
        if len(self._seen) < len(self._live):
            self._seen = np.zeros(len(self._live), np.int64)
        return kernels.JoinFirstPlan(
            self._rectangles.arrays, side == 0, self._seen, self._clock, self.buffer()
        )

    def _index(self, slots: Index, ranges: Ranges) -> None:
        self._rectangles.add(slots, *ranges)

    def _unindex(self, slots: Index) -> None:
        self._rectangles.remove(slots)

    @property
    def bytes(self) -> int:
        return self._rectangles.bytes + self._seen.nbytes

    def _check(self) -> None:
        self._rectangles._check()
        assert len(self._rectangles) == len(self)


class SelectFirst(EqualityStrategy):
    """Queries whose own range holds the value: a search among the joining rows for each."""

    name: ClassVar[str] = "selectfirst"
    kernel: ClassVar[Any] = staticmethod(kernels.affected_select)
    batch: ClassVar[Any] = staticmethod(kernels.each_select)

    def __init__(self, storage: JoinStorage) -> None:
        super().__init__(storage)
        self._own = (IntervalIndex(), IntervalIndex())

    def plan(self, side: int) -> kernels.SelectFirstPlan:
        ranges = self.storage.seen_from(side)
        scratch = self.buffer(), self._values(side)
        return kernels.SelectFirstPlan(self._own[side].arrays, ranges.low, ranges.high, *scratch)

    def _index(self, slots: Index, ranges: Ranges) -> None:
        self._own[0].add(slots, ranges.own_low, ranges.own_high)
        self._own[1].add(slots, ranges.low, ranges.high)

    def _unindex(self, slots: Index) -> None:
        for index in self._own:
            index.remove(slots)

    @property
    def bytes(self) -> int:
        return sum(index.bytes for index in self._own)

    def _check(self) -> None:
        for index in self._own:
            index._check()
            assert len(index) == len(self)


class Ssi(EqualityStrategy):
    """Every stabbing group: the joining rows next to its point."""

    name: ClassVar[str] = "ssi"
    kernel: ClassVar[Any] = staticmethod(kernels.affected_ssi)
    batch: ClassVar[Any] = staticmethod(kernels.each_ssi)

    def __init__(self, storage: JoinStorage) -> None:
        super().__init__(storage)
        self.sets = (StabbingSets(), StabbingSets())  # by the other table's range, for each side

    def plan(self, side: int) -> kernels.SsiPlan:
        return kernels.SsiPlan(self.sets[side].index.arrays)

    def _index(self, slots: Index, ranges: Ranges) -> None:
        self.sets[0].add(slots, ranges)
        self.sets[1].add(slots, _trade(ranges))

    def _unindex(self, slots: Index) -> None:
        for sets in self.sets:
            sets.remove(slots)

    @property
    def bytes(self) -> int:
        return sum(sets.bytes for sets in self.sets)

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "groups": [len(sets.index.active) for sets in self.sets]}

    def _check(self) -> None:
        for sets in self.sets:
            sets._check()
            assert len(sets.index) == len(self)


class Hotspot(EqualityStrategy):
    """Hot groups as `Ssi`, scattered queries as `SelectFirst`."""

    name: ClassVar[str] = "hotspot"
    kernel: ClassVar[Any] = staticmethod(kernels.affected_hotspot)
    batch: ClassVar[Any] = staticmethod(kernels.each_hotspot)

    def __init__(self, storage: JoinStorage, config: HotspotConfig | None = None) -> None:
        super().__init__(storage)
        self._config = config
        self.hot = HotIndex(config)

    def plan(self, side: int) -> kernels.HotspotPlan:
        ranges = self.storage.seen_from(side)
        scratch = self.buffer(), self._values(side)
        cold = kernels.SelectFirstPlan(self.hot.scattered[side].arrays, ranges.low, ranges.high, *scratch)
        return kernels.HotspotPlan(kernels.SsiPlan(self.hot.sets[side].index.arrays), cold)

    def _index(self, slots: Index, ranges: Ranges) -> None:
        if rebuild_pays(len(slots), len(self)):
            self._rebuild()
        else:
            self.hot.add(slots, (ranges, _trade(ranges)))

    def _unindex(self, slots: Index) -> None:
        if rebuild_pays(len(slots), len(self)):
            self._rebuild()
        else:
            self.hot.remove(slots)

    def _rebuild(self) -> None:
        slots = np.flatnonzero(self._live)
        ranges = self.storage.ranges.take(slots)
        self.hot = HotIndex(self._config)
        self.hot.add(slots, (ranges, _trade(ranges)))

    @property
    def bytes(self) -> int:
        return self.hot.bytes

    def stats(self) -> dict[str, Any]:
        coverage = [sets.partition.coverage for sets in self.hot.sets]
        return {**super().stats(), "hot_groups": self.hot.hot_groups(), "coverage": coverage}

    def _check(self) -> None:
        self.hot._check(len(self))
