"""Exact sums in fixed-width arrays: the cells of a subscription's state.

Every finite double is a whole number of 2^-1074, so a sum of doubles is an integer, though one of up to 2100
bits. It is cut into limbs of 32 bits, each in a cell of 64, which leaves room for carries; a row adds to at
most three limbs, and takes out exactly what it brought in. Only the limbs between the lowest and the highest
bit that occur in the column have cells:

    2^-1088 ..                 2^-32         1            2^32                         .. 2^1024
    |  no cells     |    limb 0     |    limb 1   |    limb 2: the sign   |     no cells      |

Three or four limbs do for prices. When a row comes with bits beyond, cells are laid out anew. Sums of BIGINTs
are the same with limbs of their own. Counts, and numbers of NaNs and infinities, stand beside.

Cost: O(limbs) for each change of a sum, O(1) memory moves in the order of the limbs.

>>> exact_sum([1e308, 1.0, -1e308, 0.1]), exact_sum([1e308, 1e308]), exact_sum([5e-324] * 3) == 1.5e-323
(1.1, inf, True)

Not in the papers, which leave rounding open. `sums.py` says the same with Python's integers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.language.algebra import Aggregate, Column, Item, Query, TableRef
from tocsin.model.columns import Index, Mask, Rows, Vector
from tocsin.model.schema import Type
from tocsin.rank._kernels import aggregates as kernels
from tocsin.rank._kernels.aggregates import (
    BIGINT,
    COUNTED,
    DOUBLE,
    KIND_BITS,
    KINDS,
    ONE,
    SHOW,
    Layout,
    Told,
    Totals,
    Weighed,
)

__all__ = ["Cells", "exact_sum"]

_FUNCTIONS = {"COUNT": kernels.COUNT_OF, "SUM": kernels.SUM, "AVG": kernels.AVG}
_TYPES = {Type.BIGINT: BIGINT, Type.DOUBLE: DOUBLE}
_NONE = (ONE, ONE - 1)  # limbs of a column without bits: none but that of the sign


class Cells:
    """Which cells the aggregates of a query need; `layout` is what kernels see, another one when it grows."""

    layout: Layout

    def __init__(self, query: Query) -> None:
        aggregates = query.aggregates
        assert aggregates and len(aggregates) == len(query.items)
        self._columns = tuple(dict.fromkeys(a.column for a in aggregates))  # None: every row counts
        summed = {a.column for a in aggregates if a.function != "COUNT"}
        self._type = [
            _TYPES[c.type] if c is not None and c in summed and c.type is not None else COUNTED
            for c in self._columns
        ]
        items = [(_FUNCTIONS[a.function], self._columns.index(a.column)) for a in aggregates]
        self._items = np.array(items, np.int64)
        self.begin()

    def begin(self) -> None:
        """Forget which bits have occurred."""
        self._lay([(ONE, ONE + 1) if type == BIGINT else _NONE for type in self._type])

    def _lay(self, windows: list[tuple[int, int]]) -> None:
        """One column after the other; a window is its lowest and highest limb."""
        self._windows, self.width, rows = windows, 0, []
        for type, (low, high) in zip(self._type, windows, strict=True):
            first = self.width + 1 + 3 * (type == DOUBLE)
            limbs = 0 if type == COUNTED else high - low + 2
            rows.append((type, self.width, first, limbs, low))
            self.width = first + limbs
        self.layout = Layout(np.array(rows, np.int64), self._items)

    def read(self, rows: Rows, at: Index) -> Weighed:
        """What some rows add, those at -1 nothing."""
        bits = np.zeros((len(self._columns), len(at)), np.int64)
        valid = np.empty((len(self._columns), len(at)), np.bool_)
        valid[:] = at >= 0
        for i, (column, type) in enumerate(zip(self._columns, self._type, strict=True)):
            if column is not None and len(rows):
                vector = rows.vectors(column.name)[0]
                valid[i] &= vector.valid[at]
                if type != COUNTED:
                    bits[i] = vector.values.view(np.int64)[at]
        return Weighed(bits, valid)

    def grow(self, values: Weighed, totals: Totals) -> Totals:
        """Make room for the bits of some rows; the totals so far, laid out as they are then to be."""
        windows = list(self._windows)
        for i, type in enumerate(self._type):
            if type == DOUBLE:
                low, high = kernels.span(values.bits[i], values.valid[i])
                if high >= 0:
                    old_low, old_high = windows[i]
                    none = windows[i] == _NONE
                    windows[i] = (low, high) if none else (min(low, old_low), max(high, old_high))
        if windows == self._windows:
            return totals
        before = self.layout.columns
        self._lay(windows)
        cells = np.zeros((len(totals.cells), self.width), np.int64)
        for (_, count, first, limbs, base), (_, to, to_first, _, to_base) in zip(
            before.tolist(), self.layout.columns.tolist(), strict=True
        ):
            cells[:, to : to + first - count] = totals.cells[:, count:first]
            to_first += base - to_base if limbs > 1 else 0
            cells[:, to_first : to_first + limbs] = totals.cells[:, first : first + limbs]
        return totals._replace(cells=cells)

    def answers(self, query: Query, values: NDArray[np.int64], valid: Mask) -> Rows:
        """Answers of kernels, by item, as rows."""
        columns = []
        for item, bits, there in zip(query.items, values, valid, strict=True):
            assert isinstance(item.expression, Aggregate)
            function, column = item.expression.function, item.expression.column
            whole = function == "COUNT" or (function == "SUM" and column and column.type is Type.BIGINT)
            type = Type.BIGINT if whole else Type.DOUBLE
            columns.append((item.name, Vector(type, bits if whole else bits.view(np.float64), there)))
        return Rows(columns, valid.shape[1])

    def _check(self) -> None:
        """Cells of columns follow each other, and each window holds its limbs."""
        end = 0
        for (type, count, first, limbs, base), (low, high) in zip(
            self.layout.columns.tolist(), self._windows, strict=True
        ):
            assert count == end and first == count + (4 if type == DOUBLE else 1)
            assert limbs == (0 if type == COUNTED else high - low + 2) and base == low
            end = first + limbs
        assert end == self.width

    def told(self, room: int) -> Told:
        """A place for so many deltas."""
        values = np.empty((len(self._items), room), np.int64)
        seq, slot = np.empty((2, room), np.int64)
        return Told(seq, slot, values, np.empty(values.shape, np.bool_), np.full(5, -1, np.int64))

    def show(self, totals: Totals, places: Index) -> bool:
        """Work out the answers of some from their cells; is a sum of BIGINTs none itself?"""
        packed = (np.arange(len(places)) << KIND_BITS) | SHOW
        none, told = np.zeros((1, KINDS, self.width), np.int64), self.told(2)
        at = places.astype(np.int32)
        kernels.tell(self.layout, totals, at, packed, none, np.zeros(1, np.int64), told)
        return bool(told.over[0] >= 0)

    def empty(self, count: int) -> Totals:
        """The totals of so many who have no rows yet."""
        shown = np.zeros((count, len(self._items)), np.int64)
        return Totals(np.zeros((count, self.width), np.int64), shown, np.full(count, -1, np.int64))


def exact_sum(values: ArrayLike) -> float:
    """The sum of doubles, rounded once; what is not a number or infinite counts as usual."""
    plain = np.atleast_1d(np.asarray(values, np.float64))
    rows = Rows.of(x=Vector(Type.DOUBLE, plain, np.ones(len(plain), np.bool_)))
    total = Item(Aggregate("SUM", Column("x", Type.DOUBLE)), "sum")
    cells, order = Cells(Query((total,), (TableRef("t", "t"),))), np.arange(len(plain))
    read = cells.read(rows, order)
    totals = cells.grow(read, cells.empty(1))
    kernels.sweep(cells.layout, read, order, np.array([[len(plain)], [0], [1]]), totals.cells)
    cells.show(totals, np.zeros(1, np.int64))
    return float(totals.shown.view(np.float64)[0, 0])
