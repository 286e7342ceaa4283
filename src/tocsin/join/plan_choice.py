"""The cheapest plan for each row, by estimates from histograms (DYNAMIC in the thesis).

No strategy is always the best: few joining rows call for JoinFirst-E, few selected queries for SelectFirst,
many of both for Hotspot. Both numbers are estimated for each row, and the plan with the least predicted cost
is taken:

    row (key, value) ─► joining rows      cells of the other table's keys             ─┐
                     ─► selected queries  cells of stabbing counts, of all queries ... ├─► costs ─► plan
                     ─►                   ... and of scattered ones                   ─┘

Measured costs of similar rows correct predictions (`_kernels/equality.py`), so that constants which do not
fit a workload do no lasting harm.

Cost: two lookups and four linear forms, some 20 ns. All four strategies index all queries.

>>> storage = JoinStorage()
>>> storage.load(1, keys=[5, 5, 7], values=[10, 30, 20])
>>> strategy = CheapestPlan(storage)
>>> strategy.add(np.arange(2), Ranges(*np.array([[8, 25], [12, 35], [0, 0], [9, 9]])))
>>> sorted(strategy.affected(0, key=5, value=4).tolist())
[0, 1]
>>> sum(strategy.stats()["chosen"].values())
1

T07, section 4.5. Rows per key are estimated per existing key, not per possible key; cells stay until a
hundredth of the queries, or an eighth of the rows, has changed. Corrections are ours.
"""

from __future__ import annotations

from functools import cache
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import is_compiling
from tocsin.join._kernels import equality as kernels
from tocsin.join._kernels.equality import KIND_OF_KEY, KIND_OF_OWN, KINDS, PLANS, ChoicePlan
from tocsin.join._kernels.orders import CAPACITY, LENGTH, Order
from tocsin.join.costs import Numbers, PlanCosts, PlanSizes, machine_costs, measure_plans
from tocsin.join.strategies.base import JoinStorage, Ranges
from tocsin.join.strategies.equality import EqualityStrategy, Hotspot, JoinFirstE, JoinFirstS, SelectFirst
from tocsin.model.columns import Index, distinct
from tocsin.stab.histograms import HistogramConfig, equal_width

__all__ = ["CheapestPlan", "CostTables", "cost_tables"]

_CELLS, _SAMPLE = 512, 20_000
_WORTH = 10_000  # queries from which on fitting constants to this machine is worth some seconds


class EqualCells(NamedTuple):
    """A histogram with cells of equal width: a value is in cell (value - origin) * scale, or the nearest."""

    origin: float
    scale: float
    height: NDArray[np.float64]


class SelectedQueries(NamedTuple):
    """Queries by cell of own values."""

    cells: EqualCells
    scattered: Numbers  # scattered queries, by the same cells
    chance: float  # that a row of the other table lies in a query's other range


class CostTables(NamedTuple):
    """By cell of keys and of own values, terms of all plans' costs; row 0: origin, scale and last cell."""

    by_key: NDArray[np.float64]
    by_own: NDArray[np.float64]


def cost_tables(joining: EqualCells, selected: SelectedQueries, forms: Numbers) -> CostTables:
    """For every cell `costs.basis` times the forms, by key and by own value.

    `joining` are rows of the other table per key.
    """
    each, several, chance = joining.height, selected.cells.height, selected.chance
    steps, reach = np.log1p(each), -np.expm1(-chance * each)
    by_key = _with_header(joining, KIND_OF_KEY + 1)
    for p, f in enumerate(forms):
        alone = f[0] + f[1] * each + f[2] * steps + f[8] * reach + f[9] * np.minimum(1.0, 4 * reach)
        per_selected = f[3] + f[4] * steps + f[7] * chance * each + f[10] * reach
        per_scattered = f[5] + f[6] * steps - f[10] * reach
        by_key[1:, 4 * p : 4 * p + 4] = np.stack([alone, per_selected, per_scattered, f[11] * each], axis=1)
    by_key[1:, KIND_OF_KEY] = KINDS * np.minimum(KINDS - 1, np.floor(steps / np.log(2)))
    by_own = _with_header(selected.cells, KIND_OF_OWN + 1)
    magnitude = np.minimum(KINDS - 1, np.floor(np.log2(1 + several) / 2))
    by_own[1:] = np.stack(
        [several, np.minimum(selected.scattered, several), np.sqrt(several), magnitude], axis=1
    )
    return CostTables(by_key, by_own)


def _with_header(cells: EqualCells, columns: int) -> Numbers:
    out = np.zeros((1 + len(cells.height), columns))
    out[0, :3] = cells.origin, cells.scale, len(cells.height) - 1
    return out


class _SideState(NamedTuple):
    """What the plan for changes on one side was made from."""

    version: int  # of the queries
    rows: int  # of the other table
    order: Order
    plan: ChoicePlan


class CheapestPlan(EqualityStrategy):
    """Four strategies over the same queries; each row takes the one with the least predicted cost."""

    name: ClassVar[str] = "dynamic"
    kernel: ClassVar[Any] = staticmethod(kernels.affected_cheapest)
    batch: ClassVar[Any] = staticmethod(kernels.each_cheapest)

    def __init__(self, storage: JoinStorage, costs: PlanCosts | None = None) -> None:
        super().__init__(storage)
        self.costs = costs
        self.plans = (JoinFirstE(storage), JoinFirstS(storage), SelectFirst(storage), Hotspot(storage))
        self.chosen = np.zeros((2, len(PLANS)), np.int64)  # by side and plan
        self.learned = np.ones((2, len(PLANS), KINDS * KINDS))  # by side, plan and kind: measured / predicted
        self._version = 0  # of the queries
        self._changed = [1, 1]  # by side: queries added or removed since the cells were built
        self._cells: list[SelectedQueries | None] = [None, None]
        self._sampled = [np.empty(0, np.int64), np.empty(0, np.int64)]  # sorted values of the other table
        self._keys: list[tuple[int, EqualCells] | None] = [None, None]  # for so many rows
        self._tables: list[tuple[EqualCells, SelectedQueries, Numbers, CostTables] | None] = [None, None]
        self._known: list[_SideState | None] = [None, None]

    def plan(self, side: int) -> ChoicePlan:
        """The cached plan, if neither the queries nor the other table changed; else a new one."""
        other, known = self.storage.tables[1 - side], self._known[side]
        rows, order = len(other), other.arrays
        speed = cycles_per_microsecond() if is_compiling() else 0.0
        now = (self._version, rows, speed)
        if known and (known.version, known.rows, known.plan.speed) == now and known.order is order:
            return known.plan
        with np.errstate(invalid="ignore"):  # estimates may exceed int64
            tables = self._cost_tables(side)
        plans = [plan.plan(side) for plan in self.plans]
        corrections = [self.chosen[side], self.learned[side], speed]
        plan = ChoicePlan._make([*plans, *tables, *corrections])
        self._known[side] = _SideState(self._version, rows, order, plan)
        return plan

    def choices(self, side: int, keys: Index, values: Index) -> Index:
        """The plan that each row would take, by number in `PLANS`."""
        out = np.empty(len(keys), np.int64)
        kernels.each_choice(self.plan(side), keys, values, out)
        return out

    def _index(self, slots: Index, ranges: Ranges) -> None:
        for plan in self.plans:
            plan.add(slots, ranges)
        self._note_change(len(slots))

    def _unindex(self, slots: Index) -> None:
        for plan in self.plans:
            plan.remove(slots)
        self._note_change(len(slots))

    def _note_change(self, queries: int) -> None:
        self._version += 1
        self._changed = [count + queries for count in self._changed]

    # -- estimates --

    def _joining(self, side: int) -> EqualCells:
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
            per_key = _count(cells, keys) / np.maximum(_count(cells, distinct(keys)), 1.0)
            known = self._keys[side] = len(table), cells._replace(height=per_key)
        return known[1]

    def _selected(self, side: int) -> SelectedQueries:
        """Queries, and scattered queries, by cell of own values."""
        known = self._cells[side]
        if known is None or self._changed[side] * 100 > len(self):
            ranges = self.storage.seen_from(side)
            queries, cold = np.flatnonzero(self._live), self._live.copy()
            cold[self._hotspot.hot.sets[side].index.slots()] = False
            low, high = ranges.own_low, ranges.own_high
            cells = _cells(low[queries], high[queries])
            chance = _chance(self._sampled[side], ranges.low[queries], ranges.high[queries])
            known = SelectedQueries(
                cells._replace(height=_stabbed(cells, low[queries], high[queries])),
                _stabbed(cells, low[cold.nonzero()], high[cold.nonzero()]),
                chance,
            )
            self._cells[side] = known
            self._changed[side] = 0
        return known

    def _cost_tables(self, side: int) -> CostTables:
        """Built again only if an estimate or a form has changed."""
        joining, selected = self._joining(side), self._selected(side)
        forms, known = self._forms(side), self._tables[side]
        if (
            known is None
            or known[0] is not joining
            or known[1] is not selected
            or not np.array_equal(known[2], forms)
        ):
            known = self._tables[side] = joining, selected, forms, cost_tables(joining, selected, forms)
        return known[3]

    @property
    def _hotspot(self) -> Hotspot:
        return self.plans[3]

    # -- costs --

    def _forms(self, side: int) -> Numbers:
        """By plan, its cost as a linear form of the row's estimates."""
        sizes = self._hotspot.hot.sets[side].index.sizes()
        rows, queries = len(self.storage.tables[1 - side]), len(self)
        known = PlanSizes(rows, queries, sizes.tolist(), queries - int(sizes.sum()))
        return np.stack([self._costs().form(plan, known) for plan in PLANS])

    def _costs(self) -> PlanCosts:
        if self.costs is None and len(self) >= _WORTH:
            self.costs = machine_costs(measure_plans)
        return self.costs or PlanCosts()

    # -- inspection --

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
    """How fast the cycle counter runs: measured for two milliseconds, once."""
    read_cycles = kernels.read_cycles.compiled()
    read_cycles()  # compiles
    begun, first = perf_counter(), read_cycles()
    while (passed := perf_counter() - begun) < 0.002:
        pass
    return max(1.0, (read_cycles() - first) / (1e6 * passed))


def _cells(low: Index, high: Index) -> EqualCells:
    """Empty cells from the least to the greatest end that is not open."""
    ends = np.concatenate([low, high])
    ends = ends[(ends > -(2**63)) & (ends < 2**63 - 1)]
    first, last = (float(ends.min()), float(ends.max())) if len(ends) else (0.0, 0.0)
    count = int(min(_CELLS, last - first + 1))
    return EqualCells(first, count / (last - first + 1), np.zeros(count))


def _chance(values: Index, low: Index, high: Index) -> float:
    """The probability that a value lies in a range, over all pairs of sorted values and ranges."""
    if not len(values) or not len(low):
        return 0.0
    inside = np.searchsorted(values, high, side="right") - np.searchsorted(values, low, side="left")
    return float(inside.mean()) / len(values)


def _count(cells: EqualCells, keys: Index) -> Numbers:
    at = ((keys - cells.origin) * cells.scale).astype(np.int64)
    count = len(cells.height)
    return np.bincount(np.clip(at, 0, count - 1), minlength=count).astype(np.float64)


def _stabbed(cells: EqualCells, low: Index, high: Index) -> Numbers:
    """Mean stabbing counts by cell."""
    if not len(low):
        return np.zeros(len(cells.height))
    middle = cells.origin + (np.arange(len(cells.height)) + 0.5) / cells.scale
    counts = equal_width(low, high, HistogramConfig(len(cells.height)))
    return counts.estimate(middle.astype(np.int64))
