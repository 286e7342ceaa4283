"""What all join strategies share: both tables by (join key, selection attribute), and the queries' ranges.

Queries over R(A, B) and S(B, C), all values int64 codes that keep the order:

    equality   R.B = S.B, R.A in own_low..own_high, S.C in low..high
    band       S.B - R.B in low..high (own ranges are not looked at)

A side is a table: 0 for R, 1 for S. For a change in S the ranges of an equality join trade places, and a
difference changes its sign; strategies do the rest once for both sides. Rows with a NULL key are not here.

>>> storage = JoinStorage()
>>> storage.load(1, keys=[5, 5, 7], values=[10, 30, 20])
>>> storage.put(np.array([3]), Ranges(*np.array([[25], [35], [0], [9]])))
>>> storage.rows(Kind.EQUALITY, 0, 5, np.array([3]))  # slots and rows of S that join a row of R with B = 5
(array([3]), array([1]))
"""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import ArrayLike

from tocsin.join._kernels.orders import Order
from tocsin.join._kernels.results import band_rows, equality_rows
from tocsin.join.orders import Ordered
from tocsin.model.columns import Index, longer
from tocsin.stab.groups import Ranges

__all__ = ["JoinStorage", "Kind", "Ranges"]


class Kind(Enum):
    EQUALITY = "equality"
    BAND = "band"


class JoinStorage:
    """Two ordered tables, and ranges by slot as a change in R sees them."""

    def __init__(self) -> None:
        self.tables = (Ordered(), Ordered())
        self.ranges = Ranges(*(np.zeros(0, np.int64) for _ in range(4)))

    def load(self, side: int, keys: ArrayLike, values: ArrayLike, rows: ArrayLike | None = None) -> None:
        """All rows of a table at once, in place of those it had."""
        built = Ordered.build(keys, values, rows)
        self.tables = (built, self.tables[1]) if side == 0 else (self.tables[0], built)

    def other(self, side: int) -> Order:
        """The table that a change on this side is joined with, as kernels see it."""
        return self.tables[1 - side].arrays

    def put(self, slots: Index, ranges: Ranges) -> None:
        """Ranges of some queries; strategies that share this storage may say so again."""
        top = int(np.max(slots, initial=-1)) + 1
        if top > (length := len(self.ranges.low)):
            self.ranges = Ranges(*(longer(part, max(top, 2 * length)) for part in self.ranges))
        for target, given in zip(self.ranges, ranges, strict=True):
            target[slots] = given

    def seen_from(self, side: int) -> Ranges:
        """By slot, the other table's range and the own one, for a change on a side."""
        low, high, own_low, own_high = self.ranges
        return self.ranges if side == 0 else Ranges(own_low, own_high, low, high)

    def rows(self, kind: Kind, side: int, key: int, slots: Index) -> tuple[Index, Index]:
        """Every (affected query, joining row of the other table), for queries found by a strategy."""
        found = np.empty((2, 64), np.int64)
        while True:
            if kind is Kind.EQUALITY:
                mine = self.seen_from(side)
                count = equality_rows(self.other(side), key, mine.low, mine.high, slots, found)
            else:
                count = band_rows(
                    self.other(side), side == 0, key, self.ranges.low, self.ranges.high, slots, found
                )
            if count <= found.shape[1]:
                return found[0, :count], found[1, :count]
            found = np.empty((2, count), np.int64)
