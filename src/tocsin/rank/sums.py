"""Exact sums: of integers without bound, of doubles as integers in units of 2^-1074.

Every finite double is a whole number of the smallest one, so a sum of doubles can be kept as a
Python integer: no rounding, no dependence on order, and a deleted row takes out exactly what
it brought in. Only the answer is rounded, once and correctly. Infinities and NaN are counted
beside it.

>>> units = exact_units(np.array([1e308, 1.0, -1e308, 0.1]))
>>> rounded(int(units.sum()))
1.1
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import SumOverflow

__all__ = ["average", "exact_units", "overflow_in", "rounded", "to_bigint", "with_specials"]

_UNIT = 1 << 1074


def exact_units(values: NDArray[np.float64]) -> NDArray[Any]:
    """Each double as an integer count of 2^-1074; 0 for those that are not finite."""
    out = np.empty(len(values), object)
    for i, value in enumerate(values.tolist()):
        numerator, denominator = value.as_integer_ratio() if math.isfinite(value) else (0, 1)
        out[i] = numerator * (_UNIT // denominator)
    return out


def rounded(units: int) -> float:
    """The double nearest to a sum, ties to even; infinite if it is beyond all doubles.

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


def to_bigint(total: int) -> int:
    """A sum of BIGINTs, which must be a BIGINT."""
    if not -(2**63) <= total < 2**63:
        raise SumOverflow(
            f"BIGINT overflow: the sum is {total}",
            hint="sum a DOUBLE column, or narrow the range of the query",
        )
    return total


@contextmanager
def overflow_in(slot: int) -> Iterator[None]:
    """Says in which slot a sum overflowed."""
    try:
        yield
    except SumOverflow as error:
        error.slot = slot
        raise


def average(total: int | float, count: int) -> float:
    """AVG: the sum (exact for integers, rounded for doubles) divided by the count."""
    return total / count
