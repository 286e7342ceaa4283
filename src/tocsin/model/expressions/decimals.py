"""Expressions of DECIMALs: the types of results are Spark's, with at most 18 digits, and values are exact.

    DECIMAL(9,2) + DECIMAL(5,1)    DECIMAL(10,2)
    DECIMAL(9,2) * BIGINT          DECIMAL(18,2)
    DECIMAL(9,2) * DECIMAL(5,3)    DECIMAL(15,5)
    DECIMAL(9,2) / DECIMAL(5,1)    DOUBLE

A BIGINT counts as DECIMAL(20,0), a constant as the narrowest DECIMAL that has it. Where more than 18 digits
would be needed, digits behind the sixth one of a fraction are given up first, rounded half up; a result that
has more digits than its type is NULL.

>>> price, rate = decimal_type(9, 2), decimal_type(5, 3)
>>> print(arithmetic("*", price, rate).gives, arithmetic("+", price, rate).gives)
DECIMAL(15,5) DECIMAL(11,3)
>>> arithmetic("*", price, rate)(1990, 1190), arithmetic("%", price, rate)(-1990, 3000)
(2368100, -1900)
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np

from tocsin.model.decimals import MOST_DIGITS, decimal_of, digits_of, doubles_of, units_of, value_of_units
from tocsin.model.expressions.numbers import integer_divide
from tocsin.model.schema import Type, decimal_type

__all__ = [
    "ARITHMETIC",
    "DecimalRun",
    "arithmetic",
    "as_units",
    "cast_run",
    "comparison",
    "of_one",
    "of_value",
    "rescaled",
    "widest",
]

ARITHMETIC = ("+", "-", "*", "%", "mod", "pmod", "div")
_SAFE = 9.0e18  # doubles below are surely of 64 bits


class DecimalRun:
    """A function of units. `columns` is the same for columns: values, and where there are some."""

    def __init__(
        self, gives: Type, run: Callable[..., Any], columns: Callable[..., Any] | None = None
    ) -> None:
        self.gives, self._run, self.columns = gives, run, columns

    def __call__(self, *units: Any) -> Any:
        return self._run(*units)


def of_value(value: Any) -> Type | None:
    """The narrowest DECIMAL that has a constant; None if none has."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        precision, scale = digits_of(decimal_of(value))
    except ValueError:  # NaN and infinity
        return None
    return decimal_type(precision, scale) if precision <= MOST_DIGITS else None


def _bounded(precision: int, scale: int) -> Type:
    """The type of a result, of at most 18 digits: up to six behind the point are kept."""
    if precision <= MOST_DIGITS:
        return decimal_type(precision, scale)
    least = min(scale, 6)
    return decimal_type(MOST_DIGITS, max(MOST_DIGITS - (precision - scale), least))


def widest(one: Type, other: Type) -> Type:
    """The type of a value that is of one of two types."""
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale) + scale
    return decimal_type(min(digits, MOST_DIGITS), min(scale, MOST_DIGITS))


def _shortened(units: int, digits: int) -> int:
    """Units without the last digits, rounded half up, away from zero."""
    if digits <= 0:
        return units * 10**-digits
    unit = 10**digits
    found = (2 * abs(units) + unit) // (2 * unit)
    return found if units >= 0 else -found


def _within(type: Type, units: int) -> int | None:
    return units if abs(units) < 10**type.precision else None


# -- arithmetic ----------------------------------------------------------------------------------------


@cache
def arithmetic(name: str, one: Type, other: Type) -> DecimalRun:
    """An operator of two numbers with fixed digits."""
    (p, s), (q, r) = (one.precision, one.scale), (other.precision, other.scale)
    if name == "*":
        gives, scale = _bounded(p + q + 1, s + r), s + r
        return _run(gives, lambda a, b: a * b, 0, 0, scale)
    scale = max(s, r)
    if name in ("+", "-"):
        gives = _bounded(max(p - s, q - r) + scale + 1, scale)
        if name == "+":
            return _run(gives, lambda a, b: a + b, scale - s, scale - r, scale)
        return _run(gives, lambda a, b: a - b, scale - s, scale - r, scale)
    up, over = 10 ** (scale - s), 10 ** (scale - r)
    if name == "div":
        return DecimalRun(Type.BIGINT, lambda a, b: integer_divide(a * up, b * over))
    gives = _bounded(min(p - s, q - r) + scale, scale)
    positive = name == "pmod"

    def remainder(a: int, b: int) -> int | None:
        x, y = a * up, b * over
        if not y:
            return None
        left = abs(x) % abs(y)
        left = -left if x < 0 else left
        if positive and left < 0:
            left = _signed_remainder(left + y, y)
        return _within(gives, _shortened(left, scale - gives.scale))

    return DecimalRun(gives, remainder)


def _signed_remainder(x: int, y: int) -> int:
    left = abs(x) % abs(y)
    return -left if x < 0 else left


def _run(gives: Type, of: Callable[[Any, Any], Any], up: int, over: int, scale: int) -> DecimalRun:
    """An operator after both sides are scaled up; its result has `scale` digits behind the point."""
    one, other, cut = 10**up, 10**over, scale - gives.scale
    most = 10**gives.precision

    def single(a: int, b: int) -> int | None:
        found = of(a * one, b * other)
        found = _shortened(found, cut) if cut else found
        return found if -most < found < most else None

    def columns(a: Any, b: Any) -> Any:
        x, y = np.asarray(a, np.int64), np.asarray(b, np.int64)
        wide = [abs(part.astype(np.float64)).max(initial=0.0) for part in (x * 1.0 * one, y * 1.0 * other)]
        about = max(abs(of(wide[0], -wide[1])), of(wide[0], wide[1]), *wide)
        if cut or not about < _SAFE:
            return None  # one by one
        found = of(x * np.int64(one), y * np.int64(other))
        return found, (found > -most) & (found < most)

    return DecimalRun(gives, single, columns)


@cache
def of_one(name: str, type: Type, digits: int = 0) -> DecimalRun | None:
    """A function of one number; `digits` are those that `round` keeps. None if there is no such function."""
    p, s = type.precision, type.scale
    if name in ("neg", "negative"):
        return DecimalRun(type, lambda a: -a, lambda a: -np.asarray(a, np.int64))
    if name == "positive":
        return DecimalRun(type, lambda a: a, lambda a: np.asarray(a, np.int64))
    if name == "abs":
        return DecimalRun(type, abs, lambda a: np.abs(np.asarray(a, np.int64)))
    if name in ("floor", "ceil", "ceiling"):
        gives, unit = decimal_type(min(p - s + 1, MOST_DIGITS), 0), 10**s
        if name == "floor":
            return DecimalRun(gives, lambda a: a // unit, lambda a: np.asarray(a, np.int64) // unit)
        return DecimalRun(gives, lambda a: -(-a // unit), lambda a: -(-np.asarray(a, np.int64) // unit))
    if name in ("round", "bround"):
        return _round(type, digits, to_even=name == "bround")
    return None


def _round(type: Type, digits: int, *, to_even: bool) -> DecimalRun:
    p, s = type.precision, type.scale
    if digits < 0:
        gives = decimal_type(min(max(p - s + 1, -digits + 1), MOST_DIGITS), 0)
    else:
        kept = min(s, digits)
        gives = decimal_type(min(p - s + 1 + kept, MOST_DIGITS), kept)
    cut = s - min(digits, s)

    def single(a: int) -> int | None:
        if cut > 40:
            return 0
        unit = 10**cut
        whole, rest = divmod(abs(a), unit)
        whole += 2 * rest > unit or (2 * rest == unit and (not to_even or whole % 2 == 1))
        found = whole * 10**-digits if digits < 0 else whole
        return _within(gives, found if a >= 0 else -found)

    return DecimalRun(gives, single)


# -- comparisons ---------------------------------------------------------------------------------------


@cache
def comparison(op: str, one: Type, other: Type) -> DecimalRun:
    """A comparison of numbers with fixed digits, by their exact values; op is one of = != < <= > >=."""
    scale = max(one.scale, other.scale)
    up, over = 10 ** (scale - one.scale), 10 ** (scale - other.scale)
    holds: Callable[[Any, Any], Any] = {
        "=": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }[op]

    def columns(a: Any, b: Any) -> Any:
        x, y = np.asarray(a, np.int64), np.asarray(b, np.int64)
        if not max(abs(x * 1.0 * up).max(initial=0.0), abs(y * 1.0 * over).max(initial=0.0)) < _SAFE:
            return None
        return holds(x * np.int64(up), y * np.int64(over))

    return DecimalRun(Type.BOOLEAN, lambda a, b: holds(a * up, b * over), columns)


# -- conversions ---------------------------------------------------------------------------------------


@cache
def as_units(type: Type) -> DecimalRun:
    """A double as a DECIMAL; NULL if it has none."""

    def of(value: Any) -> int | None:
        try:
            return _within(type, units_of(value, type.scale))
        except ValueError:
            return None

    return DecimalRun(type, of)


@cache
def rescaled(one: Type, other: Type) -> DecimalRun:
    """A number with fixed digits as a DECIMAL, rounded half up; NULL if it has too many digits for it."""
    cut, most = one.scale - other.scale, 10**other.precision

    def single(units: int) -> int | None:
        found = _shortened(units, cut)
        return found if -most < found < most else None

    def columns(units: Any) -> Any:
        x = np.asarray(units, np.int64)
        if cut > 0 or not abs(x * 10.0**-cut).max(initial=0.0) < _SAFE:
            return None
        found = x * np.int64(10**-cut)
        return found, (found > -most) & (found < most)

    return DecimalRun(other, single, columns)


def _whole(scale: int, units: int) -> int:
    """Without the fraction."""
    found = abs(units) // 10**scale
    return found if units >= 0 else -found


@cache
def cast_run(source: Type, target: Type) -> DecimalRun | None:
    """A conversion from or to a DECIMAL; None if there is none."""
    if target.is_decimal:
        if source.is_exact:
            return rescaled(source, target)
        if source is Type.BOOLEAN:
            one = _within(target, 10**target.scale)
            return DecimalRun(target, lambda truth: one if truth else 0)
        if source is Type.TIMESTAMP:
            return rescaled(decimal_type(MOST_DIGITS, 6), target)
        return as_units(target) if source in (Type.DOUBLE, Type.STRING) else None
    scale = source.scale
    if target is Type.DOUBLE:
        return DecimalRun(
            target, lambda units: units / 10**scale + 0.0, lambda units: doubles_of(units, scale)
        )
    if target is Type.BIGINT:
        return DecimalRun(target, lambda units: _whole(scale, units))
    if target is Type.STRING:
        return DecimalRun(target, lambda units: str(value_of_units(units, scale)))
    if target is Type.BOOLEAN:
        return DecimalRun(target, lambda units: units != 0)
    if target is Type.TIMESTAMP:
        return DecimalRun(target, lambda units: _whole(scale, units * 1_000_000))
    return None
