"""Plans of many subscriptions at once, and plans by slot that are made on demand.

Subscriptions of one template differ in constants only. `FlatPlans` holds their conditions in columns: a
flat filter per table, ends of bands. The `Plan` of one subscription is made from its source on demand.

    SELECT ... FROM a JOIN b ON a.k = b.k WHERE a.x BETWEEN :lo AND :hi AND b.y > :m

    query     tables, joins, items, order, limit: common to all
    filters   a: x in 1..5, x in 2..9, ...      b: y > 7, y > 3, ...
    lazy      row -> Plan
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Band, Query
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Mask, longer
from tocsin.predicate.deferred import DeferredFilters
from tocsin.predicate.flat import FlatFilters

__all__ = ["BandEnds", "FlatPlans", "LazyPlans", "PendingPlans", "PlanTable"]


class LazyPlans(NamedTuple):
    """Plans made on demand: the n-th is `make(rows[n])`."""

    make: Callable[[int], Plan]
    rows: NDArray[np.int32]

    def plan(self, n: int) -> Plan:
        return self.make(int(self.rows[n]))


class BandEnds(NamedTuple):
    """The ends of a band by plan, int64 or float64; None where the band has no such end."""

    low: NDArray[Any] | None
    high: NDArray[Any] | None

    def take(self, plans: Mask) -> BandEnds:
        return BandEnds(*(None if end is None else end[plans] for end in self))


@dataclass(frozen=True)
class FlatPlans:
    """Plans of one template, by column. Plans with conditions between tables do not fit in here.

    `query` is the template's: its conditions and its bands' ends may hold slots instead of values.
    """

    query: Query
    shape: Shape
    filters: tuple[FlatFilters, ...]  # by table; empty if `deferred` holds them
    bands: tuple[BandEnds, ...]  # by band of the query
    lazy: LazyPlans
    deferred: DeferredFilters | None = None  # filters of one table that an index flattens at its next match

    def __len__(self) -> int:
        return len(self.lazy.rows)

    @property
    def first_filters(self) -> FlatFilters | DeferredFilters:
        """The filters of the first table, deferred or not."""
        return self.filters[0] if self.deferred is None else self.deferred

    @property
    def never(self) -> Mask:
        """Plans that can match nothing, as far as their flat filters show."""
        out = np.zeros(len(self), np.bool_)
        for flat in self.filters:
            may = np.zeros(len(self), np.bool_)
            may[flat.owner] = True
            out |= ~may
        return out

    def plan(self, n: int) -> Plan:
        """The n-th plan; takes some hundred microseconds."""
        return self.lazy.plan(n)

    def take(self, plans: Mask) -> FlatPlans:
        """Some of them."""
        return replace(
            self,
            filters=tuple(flat.take(plans) for flat in self.filters),
            bands=tuple(ends.take(plans) for ends in self.bands),
            lazy=LazyPlans(self.lazy.make, self.lazy.rows[plans]),
        )

    def _check(self) -> None:
        assert len(self.filters) == (0 if self.deferred is not None else len(self.query.tables))
        assert len(self.bands) == sum(isinstance(join, Band) for join in self.query.joins)
        assert all(flat.count == len(self) for flat in self.filters)
        for ends in self.bands:
            assert all(end is None or len(end) == len(self) for end in ends)


class PlanTable(Mapping[int, Plan]):
    """Plans by slot. A template's take 8 bytes a slot and are made at each use, or kept with `keep`."""

    def __init__(self, keep: bool = False) -> None:
        self._batch: NDArray[np.int32] = np.zeros(64, np.int32)  # by slot: number of its batch; 0 is none
        self._row: NDArray[np.int32] = np.zeros(64, np.int32)
        self._batches: dict[int, tuple[Plan, ...] | LazyPlans] = {}
        self._left: dict[int, int] = {}  # slots in use, by batch
        self._kept: dict[int, Plan] | None = {} if keep else None
        self._next, self._count = 1, 0

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> int:
        """Register plans under free slots; returns the number of the batch."""
        number, self._next = self._next, self._next + 1
        top = int(slots.max(initial=-1)) + 1
        if top > len(self._batch):
            size = max(top, 2 * len(self._batch))
            self._batch, self._row = longer(self._batch, size), longer(self._row, size)
        assert not self._batch[slots].any(), "a slot is in use"
        if len(slots):
            self._batches[number] = plans.lazy if isinstance(plans, FlatPlans) else tuple(plans)
            self._left[number] = len(slots)
        self._batch[slots], self._row[slots] = number, np.arange(len(slots))
        self._count += len(slots)
        return number

    def remove(self, slots: Index) -> None:
        """Remove plans; a slot must be in use."""
        numbers, counts = np.unique(self._batch[slots], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._left[number] -= count
            if not self._left[number]:
                del self._left[number], self._batches[number]
        self._batch[slots] = 0
        self._count -= len(slots)
        if self._kept:
            for slot in slots.tolist():
                self._kept.pop(slot, None)

    def batch_of(self, slots: Index) -> NDArray[np.int32]:
        """The number of the batch that each slot was added with; 0 if it has no plan."""
        return self._batch[slots]

    def __getitem__(self, slot: int) -> Plan:
        if self._kept is not None and slot in self._kept:
            return self._kept[slot]
        number = int(self._batch[slot]) if 0 <= slot < len(self._batch) else 0
        if not number:
            raise KeyError(slot)
        batch, row = self._batches[number], int(self._row[slot])
        if not isinstance(batch, LazyPlans):  # both are tuples
            return batch[row]
        plan = batch.plan(row)
        if self._kept is not None:
            self._kept[slot] = plan
        return plan

    def __contains__(self, slot: object) -> bool:
        return isinstance(slot, int) and 0 <= slot < len(self._batch) and bool(self._batch[slot])

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._batch).tolist())

    def __len__(self) -> int:
        return self._count

    def _check(self) -> None:
        numbers, counts = np.unique(self._batch[self._batch > 0], return_counts=True)
        assert dict(zip(numbers.tolist(), counts.tolist(), strict=True)) == self._left
        assert self._left.keys() == self._batches.keys() and sum(self._left.values()) == self._count
        assert set(self._kept or ()) <= set(self)


class PendingPlans(PlanTable):
    """Plans by slot; new ones are pending until the room places all of them at once.

    A slot may be removed and added again meanwhile, so a pending plan is identified by its batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pending: list[tuple[int, Index, Sequence[Plan] | FlatPlans]] = []  # by number of the batch
        self._placed = 0  # number of the last batch placed

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> int:
        number = super().add(slots, plans)
        self._pending.append((number, slots, plans))
        return number

    def is_placed(self, slots: Index) -> Mask:
        """Which of these slots in use have been placed."""
        return self.batch_of(slots) <= self._placed

    def to_place(self) -> Iterator[tuple[Index, Sequence[Plan] | FlatPlans]]:
        """Pending plans, batch by batch; a batch counts as placed once the iterator moves on."""
        while self._pending:
            number, slots, plans = self._pending[0]
            stays = self.batch_of(slots) == number
            if not stays.all():
                slots = slots[stays]
                if isinstance(plans, FlatPlans):
                    plans = plans.take(stays)
                else:
                    plans = [plan for plan, stay in zip(plans, stays.tolist(), strict=True) if stay]
            if len(slots):
                yield slots, plans
            self._placed = number
            del self._pending[0]

    @property
    def waiting(self) -> int:
        """How many are pending."""
        return sum(int((self.batch_of(slots) == number).sum()) for number, slots, _ in self._pending)
