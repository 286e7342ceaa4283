"""The protocol of schemes: changes of two joined tables become messages, and clients keep contents.

    changes ─► Scheme.describe ─► Messages ─► a network ─► Contents.apply ─► the join, exactly

Tables are R(A, B) and S(B, C), sides 0 and 1, joined on B; a subscription is a range of A and a range of C.
Values are int64 codes that keep the order, rows have ids. A row whose key or value is NULL is not there.

A scheme differs from another in what is sent to whom, and in what clients keep; the contents are the same.
The contract tests and the simulator discover every subclass in this package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tocsin.join._kernels.orders import Order
from tocsin.join.strategies.base import JoinStorage
from tocsin.join.strategies.equality import Ssi
from tocsin.model.columns import Index
from tocsin.model.message import Messages
from tocsin.reformulate._kernels.joins import RowChanges
from tocsin.reformulate._kernels.skylines import SidePlan
from tocsin.reformulate.contents import Bodies, Contents
from tocsin.stab.groups import Ranges

__all__ = ["Scheme", "row_changes"]


def row_changes(side: ArrayLike, row: ArrayLike, old: ArrayLike, new: ArrayLike) -> RowChanges:
    """Changes from (there, key, value) before and after, one row each.

    >>> row_changes([0], [7], [[0, 0, 0]], [[1, 5, 40]]).key.tolist()
    [5]
    """
    before, after = (np.asarray(part, np.int64).reshape(-1, 3) for part in (old, new))
    sides, rows = np.asarray(side, np.int64), np.asarray(row, np.int64)
    (had, old_key, old_value), (has, key, value) = (np.ascontiguousarray(part.T) for part in (before, after))
    return RowChanges(sides, rows, had != 0, old_key, old_value, has != 0, key, value)


class Scheme(ABC):
    """Two tables, subscriptions under slots, and a way to describe changes."""

    name: ClassVar[str]
    unicast: ClassVar[bool] = False  # messages have recipients instead of regions

    def __init__(self) -> None:
        self.storage = JoinStorage()
        self.index = Ssi(self.storage)
        self._plans: tuple[SidePlan, SidePlan] | None = None

    def load(self, side: int, rows: ArrayLike, keys: ArrayLike, values: ArrayLike) -> None:
        """Replace all rows of a table."""
        self.storage.load(side, keys, values, rows)

    def subscribe(self, slots: Index, ranges: Ranges) -> None:
        """Add subscriptions under free slots; no range is empty."""
        self.index.add(slots, ranges)
        self._plans = None

    def unsubscribe(self, slots: Index) -> None:
        """Remove subscriptions."""
        self.index.remove(slots)
        self._plans = None

    @abstractmethod
    def describe(self, changes: RowChanges, seq: int) -> Messages:
        """The messages of changes, which get the numbers from `seq` on; the tables then have them."""

    @abstractmethod
    def contents(self, slot: int, bodies: Bodies) -> Contents:
        """A client of a subscription, with its content as of now; `bodies` are the rows by side and id."""

    def plans(self, inserts: int) -> tuple[SidePlan, SidePlan]:
        """What kernels read, with space for so many inserted rows."""
        orders = [table.reserve(inserts) for table in self.storage.tables]
        if self._plans is None:
            self._plans = self._side_plan(0, orders), self._side_plan(1, orders)
        one, two = self._plans
        self._plans = (
            one._replace(own=orders[0], other=orders[1]),
            two._replace(own=orders[1], other=orders[0]),
        )
        return self._plans

    def _side_plan(self, side: int, orders: Sequence[Order]) -> SidePlan:
        index = self.index.sets[side].index
        groups = index.active[np.argsort(index.arrays.point[index.active], kind="stable")]
        return SidePlan(orders[side], orders[1 - side], index.arrays, index.arrays.point[groups], groups)

    def point(self, slot: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """A subscription as a point of the planes of A and C."""
        low, high, own_low, own_high = (int(part[slot]) for part in self.storage.ranges)
        return (own_low, own_high), (low, high)

    def _check(self) -> None:
        """The tables and the index hold their invariants, and plans are of the current groups."""
        for table in self.storage.tables:
            table._check()
        self.index._check()
