"""DECIMAL(p,s): exact numbers with s digits behind the point, kept as a whole number of units of 10^-s.

    19.90 as DECIMAL(9,2)   ->   1990

A value has at most p digits; more digits behind the point are rounded as Spark rounds them, half up. So that
every value is one 64-bit integer, columns have at most 18 digits.

A double counts as the shortest decimal number that reads as it, as in Spark: .1 is one tenth.

>>> units_of(Decimal("19.905"), 2), units_of(19.9, 2), units_of(7, 2), value_of_units(1990, 2)
(1991, 1990, 700, Decimal('19.90'))
>>> floor_units(Decimal("0.123"), 2), floor_units(0.5, 2)
((12, False), (50, True))
"""

from __future__ import annotations

import math
import re
from decimal import Context, Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model.buffers import to_arrow

__all__ = [
    "MOST_DIGITS",
    "DecimalOverflow",
    "arrow_of_units",
    "decimal_of",
    "digits_of",
    "doubles_of",
    "floor_units",
    "text_of_units",
    "units_of",
    "units_of_arrow",
    "units_of_doubles",
    "value_of_units",
]

MOST_DIGITS = 18  # of a column: its units fit 64 bits
_WIDE = Context(prec=60)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)


class DecimalOverflow(ValueError):
    """A number has more digits than its type."""


def decimal_of(value: Any) -> Decimal:
    """A number, or a text of one, as an exact decimal number; ValueError if it is none."""
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value.adjusted()) > 400:
            if value == 0 and value.is_finite():
                return Decimal(0)
            raise ValueError
        return value
    if isinstance(value, bool | np.bool_):
        raise ValueError
    if isinstance(value, Integral):
        return Decimal(int(value)) if abs(int(value)) < 10**400 else Decimal("1e400")
    if isinstance(value, str):
        text = value.strip()
        if _NUMBER.fullmatch(text) is None:
            raise ValueError
        return decimal_of(Decimal(text))
    if isinstance(value, Real):
        number = float(value)
        if not math.isfinite(number):
            raise ValueError
        return Decimal(repr(number))
    raise ValueError


def digits_of(value: Decimal) -> tuple[int, int]:
    """The precision and the scale of the narrowest DECIMAL that has a number.

    >>> digits_of(Decimal("1.50")), digits_of(Decimal("0.001")), digits_of(Decimal("1e2"))
    ((3, 2), (3, 3), (3, 0))
    """
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    return max(1, scale, len(digits) + max(0, exponent)), scale


def units_of(value: Any, scale: int) -> int:
    """A number in units of 10^-scale, rounded half up, away from zero; it may be of any size."""
    number = decimal_of(value)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    whole = int("".join(map(str, digits)) or "0")
    shift = exponent + scale
    if shift >= 0:
        found = whole * 10**shift
    else:
        unit = 10**-shift
        found = (2 * whole + unit) // (2 * unit)
    return -found if sign else found


def floor_units(value: int | float | Decimal, scale: int) -> tuple[int, bool]:
    """The greatest whole number of units not above a finite number, and whether they are equal."""
    numerator, denominator = value.as_integer_ratio()
    units, rest = divmod(numerator * 10**scale, denominator)
    return units, rest == 0


def value_of_units(units: int, scale: int) -> Decimal:
    """The number that so many units are, with all digits behind the point."""
    return Decimal(units).scaleb(-scale, _WIDE)


def text_of_units(units: int, scale: int) -> str:
    """The number as text, never with an exponent.

    >>> text_of_units(-5, 2), text_of_units(1990, 2), text_of_units(7, 0)
    ('-0.05', '19.90', '7')
    """
    if not scale:
        return str(units)
    digits = str(abs(units)).rjust(scale + 1, "0")
    return f"{'-' * (units < 0)}{digits[:-scale]}.{digits[-scale:]}"


def doubles_of(units: NDArray[np.int64], scale: int) -> NDArray[np.float64]:
    """The double nearest to each number.

    >>> doubles_of(np.array([1990, 2**53 + 1]), 2).tolist() == [19.9, float(Decimal(2**53 + 1) / 100)]
    True
    """
    whole = np.asarray(units, np.int64)
    near = whole.astype(np.float64)
    out = near / 10.0**scale  # rounded once where both are exact
    large = (np.abs(near) >= 2.0**53) if scale <= 22 else whole != 0
    if np.any(large):
        flat, plain = np.atleast_1d(out).ravel(), np.atleast_1d(whole).ravel()
        for at in np.flatnonzero(np.atleast_1d(large).ravel()).tolist():
            flat[at] = int(plain[at]) / 10**scale  # Python divides integers with one rounding
        out = flat.reshape(np.shape(out))
    return out + 0.0


def units_of_doubles(values: NDArray[np.float64], scale: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Doubles in units of 10^-scale, and which of them are exactly so many units, of 64 bits.

    >>> [part.tolist() for part in units_of_doubles(np.array([0.5, 0.1, 3.0, np.nan]), 1)]
    [[5, 0, 30, 0], [True, False, True, False]]
    """
    small = np.abs(values) < 2.0**63  # neither NaN nor infinite
    steps = np.where(small, values, 0.0) * 2.0**scale  # an exact one is a multiple of 2^-scale
    factor = 5**scale
    most = (2**63 - 1) // factor
    exact = small & (np.floor(steps) == steps) & (np.abs(steps) < float(most))
    return np.where(exact, steps, 0.0).astype(np.int64) * factor, exact


# -- arrays of Arrow -----------------------------------------------------------------------------------


def units_of_arrow(array: Any, valid: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The units of an array of decimal128, of which all fit 64 bits."""
    _, data = array.buffers()
    words = np.frombuffer(data, np.int64) if data is not None else np.empty(0, np.int64)
    return np.where(valid, words[2 * array.offset : 2 * (array.offset + len(array)) : 2], 0)


def arrow_of_units(type: Any, values: NDArray[np.int64], valid: NDArray[np.bool_]) -> Any:
    """Units as decimal128: two words each, the high one of which is the sign."""
    words = np.empty((len(values), 2), np.int64)
    words[:, 0], words[:, 1] = values, values >> 63
    mask = None if valid.all() else to_arrow(valid, pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(type, len(values), [mask, pa.py_buffer(words)])
