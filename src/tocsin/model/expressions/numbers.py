"""Numbers: arithmetic and functions of single values, as Spark with ANSI off has them.

BIGINT wraps around as 64 bits do; division by zero is NULL; NaN is equal to itself and above all numbers.
Arguments are never NULL here.

>>> add(2**63 - 1, 1), divide(7, 0), remainder(-7, 3), integer_divide(-7, 2)
(-9223372036854775808, None, -1, -3)
>>> round_double(2.5, 0), round_whole(-25, -1), floor_double(-0.5), wrapped(2**63)
(3.0, -30, -1, -9223372036854775808)
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

__all__ = [
    "LEAST",
    "MOST",
    "absolute",
    "absolute_double",
    "add",
    "add_double",
    "ceil_double",
    "divide",
    "exponential",
    "floor_double",
    "integer_divide",
    "logarithm",
    "multiply",
    "multiply_double",
    "negate",
    "number_order",
    "pmod",
    "pmod_double",
    "power",
    "remainder",
    "remainder_double",
    "round_double",
    "round_even_double",
    "round_even_whole",
    "round_whole",
    "sign",
    "square_root",
    "subtract",
    "subtract_double",
    "to_whole",
    "wrapped",
]

LEAST, MOST = -(2**63), 2**63 - 1
_RANGE = 2**64


def wrapped(number: int) -> int:
    """The whole number that 64 bits hold of it."""
    return number if LEAST <= number <= MOST else (number - LEAST) % _RANGE + LEAST


def add(a: int, b: int) -> int:
    return wrapped(a + b)


def subtract(a: int, b: int) -> int:
    return wrapped(a - b)


def multiply(a: int, b: int) -> int:
    return wrapped(a * b)


def negate(a: int) -> int:
    return wrapped(-a)


def absolute(a: int) -> int:
    return wrapped(abs(a))


def add_double(a: float, b: float) -> float:
    return a + b + 0.0


def subtract_double(a: float, b: float) -> float:
    return a - b + 0.0


def multiply_double(a: float, b: float) -> float:
    return a * b + 0.0


def absolute_double(a: float) -> float:
    return abs(a)


def divide(a: float, b: float) -> float | None:
    return a / b + 0.0 if b else None


def integer_divide(a: int, b: int) -> int | None:
    """The quotient without its fraction."""
    if not b:
        return None
    whole = abs(a) // abs(b)
    return wrapped(whole if (a < 0) == (b < 0) else -whole)


def remainder(a: int, b: int) -> int | None:
    """Of the sign of the dividend."""
    if not b:
        return None
    left = abs(a) % abs(b)
    return -left if a < 0 else left


def remainder_double(a: float, b: float) -> float | None:
    if not b:
        return None
    if math.isinf(a) or math.isnan(a) or math.isnan(b):
        return math.nan
    return math.fmod(a, b) + 0.0


def pmod(a: int, b: int) -> int | None:
    """The remainder made positive; of a negative divisor it may be negative."""
    left = remainder(a, b)
    return left if left is None or left >= 0 else remainder(wrapped(left + b), b)


def pmod_double(a: float, b: float) -> float | None:
    left = remainder_double(a, b)
    return left if left is None or not left < 0 else remainder_double(left + b, b)


def _rounded(number: Decimal, digits: int, way: str) -> Decimal | None:
    with localcontext() as context:
        context.prec = 400
        try:
            return number.quantize(Decimal(1).scaleb(-digits), way)
        except InvalidOperation:  # so many digits after the point change nothing
            return None


def round_double(x: float, digits: int, way: str = ROUND_HALF_UP) -> float | None:
    """Rounded as the shortest decimal number that reads as the double."""
    if not math.isfinite(x):
        return x
    found = _rounded(Decimal(repr(x)), min(max(digits, -320), 360), way)
    return x if found is None else float(found) + 0.0


def round_even_double(x: float, digits: int) -> float | None:
    return round_double(x, digits, ROUND_HALF_EVEN)


def round_whole(x: int, digits: int, way: str = ROUND_HALF_UP) -> int:
    if digits >= 0:
        return x
    found = _rounded(Decimal(x), max(digits, -30), way)
    assert found is not None
    return wrapped(int(found))


def round_even_whole(x: int, digits: int) -> int:
    return round_whole(x, digits, ROUND_HALF_EVEN)


def to_whole(x: float) -> int:
    """The whole part; beyond 64 bits the nearest that these hold; of NaN 0."""
    if math.isnan(x):
        return 0
    return MOST if x >= 2**63 else LEAST if x <= LEAST else int(x)


def floor_double(x: float) -> int:
    return to_whole(x) if not math.isfinite(x) else max(LEAST, min(MOST, math.floor(x)))


def ceil_double(x: float) -> int:
    return to_whole(x) if not math.isfinite(x) else max(LEAST, min(MOST, math.ceil(x)))


def sign(x: float) -> float:
    return x if math.isnan(x) else float((x > 0) - (x < 0))


def square_root(x: float) -> float:
    return math.nan if math.isnan(x) or x < 0 else math.sqrt(x)


def power(x: float, y: float) -> float:
    """As C has it, but that 1 to the power of NaN is NaN."""
    if math.isnan(y) or (math.isinf(y) and abs(x) == 1):
        return math.nan
    try:
        return math.pow(x, y) + 0.0
    except OverflowError:
        odd = y % 2 == 1
        return -math.inf if x < 0 and odd else math.inf
    except ValueError:  # of a negative number to a fraction, or of zero to a negative one
        return math.inf if x == 0 else math.nan


def exponential(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def logarithm(x: float) -> float | None:
    return None if x <= 0 else math.nan if math.isnan(x) else math.log(x)


def number_order(a: Any, b: Any) -> int:
    """-1, 0 or 1; NaN is equal to itself and above all numbers."""
    if a != a or b != b:
        return int(a != a) - int(b != b)
    return int(a > b) - int(a < b)
