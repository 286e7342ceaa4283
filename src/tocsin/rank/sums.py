"""Exact sums of integers and doubles, with Python's integers and in fixed-width arrays.

Every finite double is an integer multiple of 2^-1074, the smallest one. So a sum of doubles can be kept as an
integer: no rounding, no dependence on order, and a deleted row subtracts exactly what it added. Only the
answer is rounded, once and correctly. Infinities and NaN are counted beside it.

The scan keeps such sums as Python integers:

>>> units = exact_units(np.array([1e308, 1.0, -1e308, 0.1]))
>>> rounded(int(units.sum()))
1.1

Families keep them in `AggregateCells`, the cells of a subscription's state. An integer of up to 2100 bits is
cut into limbs of 32 bits, each in a cell of 64 bits, which leaves space for carries; a row changes at most
three limbs. Only the limbs between the lowest and the highest bit that occur in the column have cells:

    2^-1088 ..                 2^-32         1            2^32                         .. 2^1024
    |  no cells     |    limb 0     |    limb 1   |    limb 2: the sign   |     no cells      |

Three or four limbs suffice for prices. When a row has bits beyond them, the cells are laid out again
(`widen`). Sums of BIGINTs have limbs of their own. Counts, and numbers of NaNs and infinities, stand beside.

Cost: O(limbs) for each change of a sum.

>>> exact_sum([1e308, 1.0, -1e308, 0.1]), exact_sum([1e308, 1e308]), exact_sum([5e-324] * 3) == 1.5e-323
(1.1, inf, True)

Not in the papers, which leave rounding open.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.errors import SumOverflow
from tocsin.language.algebra import Aggregate, Column, Item, Query, TableRef
from tocsin.model.columns import Index, Mask, Rows, Vector
from tocsin.model.decimals import text_of_units
from tocsin.model.schema import Type
from tocsin.rank._kernels import aggregates as kernels
from tocsin.rank._kernels.aggregates import (
    BIGINT,
    COUNTED,
    DOUBLE,
    KIND_BITS,
    KINDS,
    ONE,
    OVERFLOW_SIZE,
    OVERFLOW_SLOT,
    REFRESH,
    AggregateTotals,
    AnswerBuffer,
    CellLayout,
    ColumnValues,
)

__all__ = [
    *("AggregateCells", "average", "exact_sum", "exact_units", "new_overflow", "overflow_in", "rounded"),
    *("averaged_exactly", "to_units", "with_specials"),
]

_UNIT = 1 << 1074
_FUNCTIONS = {"COUNT": kernels.COUNT_OF, "SUM": kernels.SUM, "AVG": kernels.AVG}
_NO_LIMBS = (ONE, ONE - 1)  # the window of a column without bits: only the limb of the sign


def exact_units(values: NDArray[np.float64]) -> NDArray[Any]:
    """Each double as an integer count of 2^-1074; 0 for those that are not finite."""
    out = np.empty(len(values), object)
    for i, value in enumerate(values.tolist()):
        numerator, denominator = value.as_integer_ratio() if math.isfinite(value) else (0, 1)
        out[i] = numerator * (_UNIT // denominator)
    return out


def rounded(units: int) -> float:
    """The double nearest to a sum, ties to even; infinite if it exceeds all doubles.

    >>> rounded(exact_units(np.array([0.1]))[0]), rounded(1 << 3000)
    (0.1, inf)
    """
    try:
        return units / _UNIT  # Python divides integers with one correct rounding
    except OverflowError:
        return math.inf if units > 0 else -math.inf


def with_specials(units: int, nans: int, highs: int, lows: int) -> float:
    """The sum when some addends are NaN or infinite."""
    if nans or (highs and lows):
        return math.nan
    if highs or lows:
        return math.inf if highs else -math.inf
    return rounded(units)


def to_units(total: int, type: Type) -> int:
    """A sum of BIGINTs, or of units of a DECIMAL, which must have 64 bits."""
    if not -(2**63) <= total < 2**63:
        name = "BIGINT" if type is Type.BIGINT else "DECIMAL"
        raise SumOverflow(
            f"{name} overflow: the sum is {text_of_units(total, type.scale)}",
            hint="sum a DOUBLE column, or narrow the range of the query",
        )
    return total


def average_units(total: int, count: int, factor: int) -> int:
    """The average in units of which `factor` are one of the sum's; halves away from zero.

    >>> average_units(5, 2, 1), average_units(-5, 2, 1), average_units(1, 3, 10000)
    (3, -3, 3333)
    """
    found = (2 * abs(total) * factor + count) // (2 * count)
    return found if total >= 0 else -found


def _factor(aggregate: Aggregate) -> int:
    """How many units of an exact AVG are one unit of the column; 0 for other aggregates."""
    column = aggregate.column
    if aggregate.function != "AVG" or column is None or column.type is None or not column.type.is_decimal:
        return 0
    return int(10 ** (aggregate.type.scale - column.type.scale))


def averaged_exactly(aggregate: Aggregate, total: int, count: int) -> int | float:
    """AVG of whole numbers: the nearest double, or of a DECIMAL in units of the aggregate's type."""
    factor = _factor(aggregate)
    return average_units(total, count, factor) if factor else average(total, count)


@contextmanager
def overflow_in(slot: int) -> Iterator[None]:
    """Names the slot whose sum overflows."""
    try:
        yield
    except SumOverflow as error:
        error.slot = slot
        raise


def average(total: int | float, count: int) -> float:
    """AVG: the sum (exact for integers, rounded for doubles) divided by the count."""
    return total / count


# -- cells -------------------------------------------------------------------------------------------


def new_overflow() -> Index:
    """The report of kernels on sums that exceed BIGINT: none so far."""
    return np.full(OVERFLOW_SIZE, -1, np.int64)


class AggregateCells:
    """The cells that the aggregates of a query need; `layout` is for kernels and changes with `widen`."""

    layout: CellLayout

    def __init__(self, query: Query) -> None:
        aggregates = query.aggregates
        assert aggregates and len(aggregates) == len(query.items)
        self._columns = tuple(dict.fromkeys(a.column for a in aggregates))  # None: COUNT(*)
        summed = {a.column for a in aggregates if a.function != "COUNT"}
        self._type = [
            COUNTED
            if c is None or c not in summed or c.type is None
            else BIGINT
            if c.type.is_exact
            else DOUBLE
            for c in self._columns
        ]
        items = [(_FUNCTIONS[a.function], self._columns.index(a.column), _factor(a)) for a in aggregates]
        self._items = np.array(items, np.int64)
        self.types = [aggregate.type for aggregate in aggregates]
        self.reset()

    def reset(self) -> None:
        """Lay out cells for columns without any bits."""
        self._lay_out([(ONE, ONE + 1) if type == BIGINT else _NO_LIMBS for type in self._type])

    def _lay_out(self, windows: list[tuple[int, int]]) -> None:
        """One column after the other; a window is its lowest and highest limb."""
        self._windows, self.width, rows = windows, 0, []
        for type, (low, high) in zip(self._type, windows, strict=True):
            first = self.width + 1 + 3 * (type == DOUBLE)
            limbs = 0 if type == COUNTED else high - low + 2
            rows.append((type, self.width, first, limbs, low))
            self.width = first + limbs
        self.layout = CellLayout(np.array(rows, np.int64), self._items)

    def read(self, rows: Rows, at: Index) -> ColumnValues:
        """The values that rows add; rows at -1 add nothing."""
        bits = np.zeros((len(self._columns), len(at)), np.int64)
        valid = np.empty((len(self._columns), len(at)), np.bool_)
        valid[:] = at >= 0
        for i, (column, type) in enumerate(zip(self._columns, self._type, strict=True)):
            if column is not None and len(rows):
                vector = rows.vectors(column.name)[0]
                valid[i] &= vector.valid[at]
                if type != COUNTED:
                    bits[i] = vector.values.view(np.int64)[at]
        return ColumnValues(bits, valid)

    def widen(self, values: ColumnValues, totals: AggregateTotals) -> AggregateTotals:
        """Lay out cells for the bits of some rows too; return the totals in the new layout."""
        windows = list(self._windows)
        for i, type in enumerate(self._type):
            if type == DOUBLE:
                low, high = kernels.limb_range(values.bits[i], values.valid[i])
                if high >= 0:
                    old_low, old_high = windows[i]
                    none = windows[i] == _NO_LIMBS
                    windows[i] = (low, high) if none else (min(low, old_low), max(high, old_high))
        if windows == self._windows:
            return totals
        before = self.layout.columns
        self._lay_out(windows)
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
            type = item.expression.type
            whole = type.is_exact
            columns.append((item.name, Vector(type, bits if whole else bits.view(np.float64), there)))
        return Rows(columns, valid.shape[1])

    def _check(self) -> None:
        """The cells of columns follow each other, and each window has its limbs."""
        end = 0
        for (type, count, first, limbs, base), (low, high) in zip(
            self.layout.columns.tolist(), self._windows, strict=True
        ):
            assert count == end and first == count + (4 if type == DOUBLE else 1)
            assert limbs == (0 if type == COUNTED else high - low + 2) and base == low
            end = first + limbs
        assert end == self.width

    def buffer(self, size: int) -> AnswerBuffer:
        """A buffer for so many deltas."""
        values = np.empty((len(self._items), size), np.int64)
        seq, slot = np.empty((2, size), np.int64)
        return AnswerBuffer(seq, slot, values, np.empty(values.shape, np.bool_), new_overflow())

    def refresh(self, totals: AggregateTotals, places: Index) -> bool:
        """Compute the answers at some places from their cells; does a sum of BIGINTs exceed BIGINT?"""
        packed = (np.arange(len(places)) << KIND_BITS) | REFRESH
        none, out = np.zeros((1, KINDS, self.width), np.int64), self.buffer(2)
        at = places.astype(np.int32)
        kernels.emit(self.layout, totals, at, packed, none, np.zeros(1, np.int64), out)
        return bool(out.overflow[OVERFLOW_SLOT] >= 0)

    def empty(self, count: int) -> AggregateTotals:
        """The totals of so many subscriptions without rows."""
        answers = np.zeros((count, len(self._items)), np.int64)
        return AggregateTotals(np.zeros((count, self.width), np.int64), answers, np.full(count, -1, np.int64))


def exact_sum(values: ArrayLike) -> float:
    """The sum of doubles, rounded once; NaN and infinities as in IEEE 754."""
    plain = np.atleast_1d(np.asarray(values, np.float64))
    rows = Rows.of(x=Vector(Type.DOUBLE, plain, np.ones(len(plain), np.bool_)))
    total = Item(Aggregate("SUM", Column("x", Type.DOUBLE)), "sum")
    cells, order = AggregateCells(Query((total,), (TableRef("t", "t"),))), np.arange(len(plain))
    read = cells.read(rows, order)
    totals = cells.widen(read, cells.empty(1))
    kernels.add_prefix_sums(cells.layout, read, order, np.array([[len(plain)], [0], [1]]), totals.cells)
    cells.refresh(totals, np.zeros(1, np.int64))
    return float(totals.answers.view(np.float64)[0, 0])
