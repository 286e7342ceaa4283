"""Band joins: five strategies to find the queries that a row affects.

Queries are `S.B - R.B in range`. A row of R with B = b is inserted (or deleted): a query is affected if its
range, moved by b, holds the B of a row of S. For a row of S the ends swap.

    |-----|     |---|    |--------|        QOuter    every range: a search in S
       |-----------|         |--|          DOuter    every row of S: the ranges that hold S.B - b
    ..*...........*...........*.... S.B    MJ        ranges by low end and S by B, merged
          p             q                  SSI       every group: the rows next to its point
                                           Hotspot   SSI for large groups, QOuter for the rest

Cost, for n queries in tau groups, m rows and k affected: QOuter O(n log m), DOuter O(m log n + k), MJ
O(n + m), SSI O(tau log m + k).

>>> storage = JoinStorage()
>>> storage.load(1, keys=[105, 120, 190], values=[0, 0, 0])
>>> strategy = BandSsi(storage)
>>> anything = np.full((2, 3), [[-(2**63)], [2**63 - 1]])
>>> strategy.add(np.arange(3), Ranges(np.array([0, 6, 80]), np.array([5, 19, 99]), *anything))
>>> sorted(strategy.affected(0, key=100, value=0).tolist())  # a row of R with B = 100
[0, 2]

T07, section 4.3.1. Local selections are ignored here; they are verified afterwards.

The engine does not use these strategies: keys must be below 2^62, and doubles are not supported. `BandGroup`
(`join/groups.py`) is Hotspot over exact differences, with local selections.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tocsin.errors import TocsinError
from tocsin.join._kernels import band as kernels
from tocsin.join.strategies.base import (
    DenseRanges,
    JoinKind,
    JoinStorage,
    JoinStrategy,
    Ranges,
    ScanningStrategy,
)
from tocsin.model.columns import Index
from tocsin.stab.groups import HotSets, StabbingSets
from tocsin.stab.hotspots import HotspotConfig
from tocsin.stab.intervals import IntervalIndex, ascends

__all__ = ["BandHotspot", "BandSsi", "BandStrategy", "DOuter", "MergeJoin", "QOuter"]


class BandStrategy(JoinStrategy):
    """A band join. Keys and ends are below 2^62 in size, except open ends: sums must fit."""

    kind: ClassVar[JoinKind] = JoinKind.BAND

    def add(self, slots: Index, ranges: Ranges) -> None:
        for ends, open_end in ((ranges.low, -(2**63)), (ranges.high, 2**63 - 1)):
            given = np.asarray(ends, np.int64)
            _reject_large(given[given != open_end])
        super().add(slots, ranges)

    def affected(self, side: int, key: int, value: int) -> Index:
        self._reject_large_keys(side, np.array([key]))
        return super().affected(side, key, value)

    def each(self, side: int, keys: Index, values: Index, out: Index | None = None) -> Index:
        self._reject_large_keys(side, keys)
        return super().each(side, keys, values, out)

    def _reject_large_keys(self, side: int, keys: Index) -> None:
        _reject_large(np.asarray(keys))
        _reject_large(np.array(self.storage.tables[1 - side].ends()))


def _reject_large(values: Index) -> None:
    if len(values) and (values.max() >= 2**62 or values.min() <= -(2**62)):
        raise TocsinError("a key or an end of a band is 2^62 or more in size", hint="scale the keys down")


def _without_own(ranges: Ranges) -> Ranges:
    """The same differences with unbounded own ranges, since groups check them."""
    least, most = np.full(len(ranges.low), -(2**63)), np.full(len(ranges.low), 2**63 - 1)
    return Ranges(ranges.low, ranges.high, least, most)


class QOuter(ScanningStrategy, BandStrategy):
    """Every query: a search in the other table."""

    name: ClassVar[str] = "qouter"
    kernel: ClassVar[Any] = staticmethod(kernels.affected_query_outer)
    batch: ClassVar[Any] = staticmethod(kernels.each_query_outer)

    def plan(self, side: int) -> kernels.BandScanPlan:
        return _scan_plan(self._dense, side)


def _scan_plan(dense: DenseRanges, side: int) -> kernels.BandScanPlan:
    return kernels.BandScanPlan(dense.ranges.low, dense.ranges.high, dense.slot, dense.count, side == 0)


class MergeJoin(BandStrategy):
    """Ranges by low end and rows by key, merged."""

    name: ClassVar[str] = "mj"
    kernel: ClassVar[Any] = staticmethod(kernels.affected_merge)
    batch: ClassVar[Any] = staticmethod(kernels.each_merge)

    def __init__(self, storage: JoinStorage) -> None:
        super().__init__(storage)
        self._low, self._high, self._slot = (np.empty(0, np.int64) for _ in range(3))

    def plan(self, side: int) -> kernels.BandScanPlan:
        count = np.array([len(self._slot)])
        return kernels.BandScanPlan(self._low, self._high, self._slot, count, side == 0)

    def _index(self, slots: Index, ranges: Ranges) -> None:
        by = np.argsort(ranges.low, kind="stable")
        at = np.searchsorted(self._low, ranges.low[by], side="right")
        self._low = np.insert(self._low, at, ranges.low[by])
        self._high = np.insert(self._high, at, ranges.high[by])
        self._slot = np.insert(self._slot, at, slots[by])

    def _unindex(self, slots: Index) -> None:
        stays = self._live[self._slot]
        self._low, self._high, self._slot = self._low[stays], self._high[stays], self._slot[stays]

    @property
    def bytes(self) -> int:
        return self._low.nbytes + self._high.nbytes + self._slot.nbytes

    def _check(self) -> None:
        assert ascends(self._low) and len(self._slot) == len(self)


class DOuter(BandStrategy):
    """Every row of the other table: the ranges that hold its difference."""

    name: ClassVar[str] = "douter"
    kernel: ClassVar[Any] = staticmethod(kernels.affected_data_outer)
    batch: ClassVar[Any] = staticmethod(kernels.each_data_outer)

    def __init__(self, storage: JoinStorage) -> None:
        super().__init__(storage)
        self._intervals = IntervalIndex()
        self._bounds = np.array([2**63 - 1, -(2**63)])  # removals do not narrow them
        self._seen = np.zeros(0, np.int64)
        self._clock = np.zeros(1, np.int64)

    def plan(self, side: int) -> kernels.DataOuterPlan:
        if len(self._seen) < len(self._live):
            self._seen = np.zeros(len(self._live), np.int64)
        bounds = self._bounds if len(self) else np.zeros(2, np.int64)
        return kernels.DataOuterPlan(
            self._intervals.arrays, bounds, side == 0, self._seen, self._clock, self.buffer()
        )

    def _index(self, slots: Index, ranges: Ranges) -> None:
        self._intervals.add(slots, ranges.low, ranges.high)
        self._bounds[0] = np.min(ranges.low, initial=self._bounds[0])
        self._bounds[1] = np.max(ranges.high, initial=self._bounds[1])

    def _unindex(self, slots: Index) -> None:
        self._intervals.remove(slots)

    @property
    def bytes(self) -> int:
        return self._intervals.bytes + self._seen.nbytes

    def _check(self) -> None:
        self._intervals._check()
        assert len(self._intervals) == len(self)


class BandSsi(BandStrategy):
    """Every stabbing group: the rows next to its point. One set of groups serves both sides."""

    name: ClassVar[str] = "ssi"
    kernel: ClassVar[Any] = staticmethod(kernels.affected_ssi)
    batch: ClassVar[Any] = staticmethod(kernels.each_ssi)

    def __init__(self, storage: JoinStorage) -> None:
        super().__init__(storage)
        self.sets = StabbingSets(own=False)

    def plan(self, side: int) -> kernels.BandSsiPlan:
        return kernels.BandSsiPlan(self.sets.index.arrays, side == 0)

    def _index(self, slots: Index, ranges: Ranges) -> None:
        self.sets.add(slots, _without_own(ranges))

    def _unindex(self, slots: Index) -> None:
        self.sets.remove(slots)

    @property
    def bytes(self) -> int:
        return self.sets.bytes

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "groups": len(self.sets.index.active)}

    def _check(self) -> None:
        self.sets._check()
        assert len(self.sets.index) == len(self)


class BandHotspot(BandStrategy):
    """Hot groups as `BandSsi`, scattered queries as `QOuter`."""

    name: ClassVar[str] = "hotspot"
    kernel: ClassVar[Any] = staticmethod(kernels.affected_hotspot)
    batch: ClassVar[Any] = staticmethod(kernels.each_hotspot)

    def __init__(self, storage: JoinStorage, config: HotspotConfig | None = None) -> None:
        super().__init__(storage)
        self.sets = HotSets(config, own=False)
        self.scattered = DenseRanges()

    def plan(self, side: int) -> kernels.BandHotspotPlan:
        hot = kernels.BandSsiPlan(self.sets.index.arrays, side == 0)
        return kernels.BandHotspotPlan(hot, _scan_plan(self.scattered, side))

    def _index(self, slots: Index, ranges: Ranges) -> None:
        self._scatter(*self.sets.add(slots, _without_own(ranges)))

    def _unindex(self, slots: Index) -> None:
        self._scatter(*self.sets.remove(slots))

    def _scatter(self, gone: Index, fresh: Index) -> None:
        if len(gone):
            self.scattered.remove(gone)
        if len(fresh):
            self.scattered.add(fresh, self.sets.ranges_of(fresh))

    @property
    def bytes(self) -> int:
        return self.sets.bytes + self.scattered.bytes

    def stats(self) -> dict[str, Any]:
        hot = {"hot_groups": len(self.sets.index.active), "coverage": self.sets.partition.coverage}
        return {**super().stats(), **hot}

    def _check(self) -> None:
        self.sets._check()
        self.scattered._check()
        assert len(self.sets.index) + len(self.scattered) == len(self)
