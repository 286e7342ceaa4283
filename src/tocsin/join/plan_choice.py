"""DYNAMIC: the cheapest plan for each row, by what histograms say about it.

No way to find affected queries is always the best one: few joining rows call for JoinFirst-E, few selected
queries for SelectFirst, many of both for Hotspot. How many there will be is estimated for each row, and the
plan of the least predicted cost is taken:

    row (key, value) ─► joining rows     cells of the other table's keys       ─┐
                     ─► selected queries cells of stabbing counts, all ...      ├─► costs ─► plan
                     ─►                  ... and scattered                     ─┘

Predictions are corrected by what rows of their kind have cost so far (`_kernels/routing.py`), so that
constants which do not fit a workload do no lasting harm.

Cost: two cells are looked up and four linear forms compared, some 20 ns. All plans hold all queries.

>>> storage = JoinStorage()
>>> storage.load(1, keys=[5, 5, 7], values=[10, 30, 20])
>>> strategy = Dynamic(storage)
>>> strategy.add(np.arange(2), Ranges(*np.array([[8, 25], [12, 35], [0, 0], [9, 9]])))
>>> sorted(strategy.affected(0, key=5, value=4).tolist())
[0, 1]
>>> sum(strategy.stats()["chosen"].values())
1

T07, section 4.5. Rows per key are estimated per key that there is, not per possible key; cells of a plan
stand still until a hundredth of the queries, or an eighth of the rows, has changed. Corrections are ours.
"""

from __future__ import annotations

from functools import cache
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tocsin.join._kernels import routing as kernels
from tocsin.join._kernels.orders import CAPACITY, LENGTH
from tocsin.join._kernels.routing import KINDS, PLANS, Book, Cells, RouterPlan
from tocsin.join.calibrate import measure_plans
from tocsin.join.costs import Costs, Sizes, machine_costs
from tocsin.join.strategies.equality import EqualityStrategy, Hotspot, JoinFirstE, JoinFirstS, SelectFirst
from tocsin.join.strategies.storage import JoinStorage, Ranges
from tocsin.model.columns import Index, distinct
from tocsin.stab.histograms import HistogramConfig, equal_width

__all__ = ["Dynamic"]

_CELLS, _SAMPLE = 512, 20_000
_WORTH = 10_000  # queries for which constants of this machine are worth some seconds


class _Selected(NamedTuple):
    """Queries by cell of own values."""

    cells: Cells
    scattered: Any  # of these, by the same cells
    chance: float  # that a row of the other table lies in a query's other range


class Dynamic(EqualityStrategy):
    """Four plans over the same queries, one of which is taken for each row."""

    name: ClassVar[str] = "dynamic"
    kernel: ClassVar[Any] = staticmethod(kernels.affected_dynamic)
    batch: ClassVar[Any] = staticmethod(kernels.each_dynamic)

    def __init__(self, storage: JoinStorage, costs: Costs | None = None) -> None:
        super().__init__(storage)
        self.costs = costs
        self.plans = (JoinFirstE(storage), JoinFirstS(storage), SelectFirst(storage), Hotspot(storage))
        self.chosen = np.zeros((2, len(PLANS)), np.int64)  # by side and plan
        self.learned = np.ones((2, len(PLANS), KINDS * KINDS))  # by side, plan and kind: measured / predicted
        self._changed = [1, 1]  # by side: queries since the cells were built
        self._cells: list[_Selected | None] = [None, None]
        self._sampled = [np.empty(0, np.int64), np.empty(0, np.int64)]  # of the other table, some, sorted
        self._keys: list[tuple[int, Cells] | None] = [None, None]  # for so many rows
        self._books: list[tuple[Cells, _Selected, Any, Book] | None] = [None, None]  # and what it is made of

    def plan(self, side: int) -> RouterPlan:
        joining, selected = self._joining(side), self._selected(side)
        plans = [plan.plan(side) for plan in self.plans]
        known = [self.chosen[side], self.learned[side], cycles_per_microsecond()]
        return RouterPlan._make([*plans, *self._book(side, joining, selected), *known])

    def choices(self, side: int, keys: Index, values: Index) -> Index:
        """The plan that would be taken for each row, by number in `PLANS`."""
        out = np.empty(len(keys), np.int64)
        kernels.each_choice(self.plan(side), keys, values, out)
        return out

    def _enter(self, slots: Index, ranges: Ranges) -> None:
        for plan in self.plans:
            plan.add(slots, ranges)
        self._changed = [count + len(slots) for count in self._changed]

    def _leave(self, slots: Index) -> None:
        for plan in self.plans:
            plan.remove(slots)
        self._changed = [count + len(slots) for count in self._changed]

    # -- estimates --

    def _joining(self, side: int) -> Cells:
        """Rows of the other table per key, by cell of keys."""
        table = self.storage.tables[1 - side]
        known = self._keys[side]
        if known is None or abs(len(table) - known[0]) * 8 > known[0]:
            order = table.arrays
            blocks = order.block[: order.meta[LENGTH]]
            inside = np.arange(CAPACITY) < order.size[blocks][:, None]
            keys = order.key.reshape(-1, CAPACITY)[blocks][inside]
            values = order.value.reshape(-1, CAPACITY)[blocks][inside]
            self._sampled[side] = np.sort(values[:: max(1, len(values) // _SAMPLE)])
            cells = _cells(keys, keys)
            per_key = _counted(cells, keys) / np.maximum(_counted(cells, distinct(keys)), 1.0)
            known = self._keys[side] = len(table), cells._replace(height=per_key)
        return known[1]

    def _selected(self, side: int) -> _Selected:
        """Queries, and scattered queries, by cell of own values."""
        known = self._cells[side]
        if known is None or self._changed[side] * 100 > len(self):
            ranges = self.storage.seen_from(side)
            every, cold = np.flatnonzero(self._live), self._live.copy()
            cold[self._hotspot.sets[side].index.slots()] = False
            low, high = ranges.own_low, ranges.own_high
            cells = _cells(low[every], high[every])
            chance = _chance(self._sampled[side], ranges.low[every], ranges.high[every])
            known = _Selected(
                cells._replace(height=_stabbed(cells, low[every], high[every])),
                _stabbed(cells, low[cold.nonzero()], high[cold.nonzero()]),
                chance,
            )
            self._cells[side] = known
            self._changed[side] = 0
        return known

    def _book(self, side: int, joining: Cells, selected: _Selected) -> Book:
        """What costs are made of, as long as nothing of it changes."""
        forms, known = self._forms(side), self._books[side]
        if (
            known is None
            or known[0] is not joining
            or known[1] is not selected
            or not np.array_equal(known[2], forms)
        ):
            book = kernels.book_of(joining, *selected, forms)
            known = self._books[side] = joining, selected, forms, book
        return known[3]

    @property
    def _hotspot(self) -> Hotspot:
        return self.plans[3]

    # -- costs --

    def _forms(self, side: int) -> Any:
        """By plan, its cost as a linear form of what depends on the row."""
        sizes = self._hotspot.sets[side].index.sizes()
        rows, queries = len(self.storage.tables[1 - side]), len(self)
        known = Sizes(rows, queries, sizes.tolist(), queries - int(sizes.sum()))
        return np.stack([self._costs().form(plan, known) for plan in PLANS])

    def _costs(self) -> Costs:
        if self.costs is None and len(self) >= _WORTH:
            self.costs = machine_costs(measure_plans)
        return self.costs or Costs()

    # -- looking at it --

    @property
    def bytes(self) -> int:
        return sum(plan.bytes for plan in self.plans)

    def stats(self) -> dict[str, Any]:
        chosen = dict(zip(PLANS, self.chosen.sum(axis=0).tolist(), strict=True))
        return {**super().stats(), "chosen": chosen, "constants": dict(self._costs().constants)}

    def _check(self) -> None:
        for plan in self.plans:
            plan._check()
            assert len(plan) == len(self)


@cache
def cycles_per_microsecond() -> float:
    """How fast the processor counts: looked at for two milliseconds, once."""
    kernels.cycles()  # compiles
    begun, first = perf_counter(), kernels.cycles()
    while (passed := perf_counter() - begun) < 0.002:
        pass
    return max(1.0, (kernels.cycles() - first) / (1e6 * passed))


def _cells(low: Index, high: Index) -> Cells:
    """Empty cells from the least to the greatest end that is not open."""
    ends = np.concatenate([low, high])
    ends = ends[(ends > -(2**63)) & (ends < 2**63 - 1)]
    first, last = (float(ends.min()), float(ends.max())) if len(ends) else (0.0, 0.0)
    count = int(min(_CELLS, last - first + 1))
    return Cells(first, count / (last - first + 1), np.zeros(count))


def _chance(values: Index, low: Index, high: Index) -> float:
    """That one of some sorted values lies in a range, for any value and range."""
    if not len(values) or not len(low):
        return 0.0
    inside = np.searchsorted(values, high, side="right") - np.searchsorted(values, low, side="left")
    return float(inside.mean()) / len(values)


def _counted(cells: Cells, keys: Index) -> Any:
    at = ((keys - cells.origin) * cells.scale).astype(np.int64)
    count = len(cells.height)
    return np.bincount(np.clip(at, 0, count - 1), minlength=count).astype(np.float64)


def _stabbed(cells: Cells, low: Index, high: Index) -> Any:
    """Mean stabbing counts by cell."""
    if not len(low):
        return np.zeros(len(cells.height))
    middle = cells.origin + (np.arange(len(cells.height)) + 0.5) / cells.scale
    counts = equal_width(low, high, HistogramConfig(len(cells.height)))
    return counts.estimate(middle.astype(np.int64))
