"""Every ordered value as an integer, every comparison as a closed interval of integers.

Numbers, dates, timestamps and booleans of a column map to int64 codes of the same order. A literal
need not be a value of the column (`n < 2.5` over BIGINT, `x = 2^53 + 1` over DOUBLE): a comparison
only needs to know whether the literal lies on a code or between two.

    n < 2.5     ->   codes min..2          n = 2.5    ->   no code at all
    n >= 2.5    ->   codes 3..max

Comparisons are exact: no value is rounded to the type of the other side. `interval` works on single
values; `locate_numbers`, `comparisons` and `betweens` do the same for whole columns of operands.

>>> interval(Type.BIGINT, "<", 2.5) == (LEAST, 2)
True
>>> interval(Type.BIGINT, "=", 2.5)
(1, 0)
>>> low, high, flags = comparisons(np.array([2, 2]), locate_numbers(Type.BIGINT, np.array([2.5, 3.0])))
>>> high.tolist()  # n < 2.5, n < 3.0
[2, 2]
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Value
from tocsin.model.buffers import laid_out
from tocsin.model.columns import Index, Mask, Vector, column_codes, double_codes
from tocsin.model.decimals import floor_units
from tocsin.model.schema import Type
from tocsin.predicate._kernels import hash_texts
from tocsin.predicate.flat import NEGATED

__all__ = [
    "COMPARISONS",
    "GREATEST",
    "LEAST",
    "CodePositions",
    "betweens",
    "comparisons",
    "fits",
    "interval",
    "locate_numbers",
    "text_hashes",
    "vector_codes",
]

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")

LEAST, GREATEST = -(2**63), 2**63 - 1
EMPTY = (1, 0)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000_000  # microseconds


def fits(type: Type, value: Value) -> bool:
    """Whether a literal can be compared with the column: both numbers, texts, booleans or times.

    >>> fits(Type.BIGINT, 2.5), fits(Type.BIGINT, True), fits(Type.DATE, "x")
    (True, False, False)
    """
    if isinstance(value, bool):
        return type is Type.BOOLEAN
    if isinstance(value, int | float | Decimal):
        return type.numeric
    if isinstance(value, str):
        return type is Type.STRING
    return isinstance(value, date) and type.kind == "time"


def interval(type: Type, op: str, value: Value) -> tuple[int, int]:
    """The codes for which `column op value` holds, closed; op one of = < <= > >=."""
    below, exact = _locate(type, value)
    if op == "=":
        low, high = (below, below) if exact else EMPTY
    elif op == "<":
        low, high = LEAST, below - 1 if exact else below
    elif op == "<=":
        low, high = LEAST, below
    elif op == ">":
        low, high = below + 1, GREATEST
    else:
        low, high = below if exact else below + 1, GREATEST
    low, high = max(low, LEAST), min(high, GREATEST)
    return (low, high) if low <= high else EMPTY


def _locate(type: Type, value: Value) -> tuple[int, bool]:
    """The greatest code not above the literal, and whether it is the literal's own."""
    if isinstance(value, bool):
        return int(value), True
    if isinstance(value, int | float | Decimal):
        return _locate_double(value) if type is Type.DOUBLE else _locate_units(value, type.scale)
    if isinstance(value, datetime):
        microseconds = (value - _EPOCH) // timedelta(microseconds=1)
        if type is Type.TIMESTAMP:
            return microseconds, True
        return microseconds // _DAY, microseconds % _DAY == 0
    assert isinstance(value, date)
    days = value.toordinal() - _EPOCH.toordinal()
    return (days, True) if type is Type.DATE else (days * _DAY, True)


def _locate_units(value: int | float | Decimal, scale: int) -> tuple[int, bool]:
    if isinstance(value, int):
        return value * 10**scale, True  # may lie outside int64: `interval` clips it
    if isinstance(value, float) and (math.isnan(value) or value == math.inf):
        return GREATEST, False
    if value == -math.inf:
        return LEAST - 1, False
    return floor_units(value, scale)


def _locate_double(value: int | float | Decimal) -> tuple[int, bool]:
    try:
        near = float(value)
    except OverflowError:  # an integer beyond all finite doubles
        near = math.inf if value > 0 else -math.inf
    code = int(double_codes(np.array([near]))[0])
    if near == value or (math.isnan(near) and math.isnan(value)):
        return code, True
    return (code, False) if near < value else (code - 1, False)


# -- whole columns of operands ---------------------------------------------------------------------------

Ends = tuple[Index, Index, NDArray[np.uint8]]  # low, high, flags


class CodePositions(NamedTuple):
    """Where operands lie among the codes of an attribute."""

    below: Index  # the greatest code not above the operand
    exact: Mask  # whether that code is the operand's own
    fine: Mask  # False: the position is wrong, and only Python's numbers can find it

    def take(self, chosen: Mask) -> CodePositions:
        return CodePositions(self.below[chosen], self.exact[chosen], self.fine[chosen])


def locate_numbers(type: Type, numbers: NDArray[Any]) -> CodePositions:
    """Numbers (int64 or float64) among the codes of a BIGINT, DECIMAL or DOUBLE attribute."""
    if numbers.dtype == np.int64:
        if type.is_exact:
            most = (2**63 - 1) // 10**type.scale
            fine = (numbers >= -most) & (numbers <= most)
            units = np.where(fine, numbers, 0) * 10**type.scale if type.scale else numbers
            return CodePositions(units, np.ones(len(numbers), np.bool_), fine)
        fine = np.abs(numbers) <= 2**53
        return CodePositions(double_codes(numbers.astype(np.float64)), np.ones(len(numbers), np.bool_), fine)
    if type is Type.DOUBLE:
        all_true = np.ones(len(numbers), np.bool_)
        return CodePositions(double_codes(numbers), all_true, all_true)
    if type.scale:
        return _locate_shortest(numbers, type.scale)
    fine = np.abs(numbers) < 2.0**63  # neither NaN nor infinite
    floor = np.floor(np.where(fine, numbers, 0.0))
    return CodePositions(floor.astype(np.int64), floor == numbers, fine)


def _locate_shortest(numbers: NDArray[np.float64], scale: int) -> CodePositions:
    """Doubles, each the shortest decimal number that reads as it, where that has few digits."""
    inside = np.abs(numbers) < 10.0 ** (15 - scale)
    units = np.rint(np.where(inside, numbers, 0.0) * 10.0**scale)
    fine = inside & (units / 10.0**scale == numbers)  # up to 15 digits there is no other
    return CodePositions(units.astype(np.int64), fine, fine)


def comparisons(op: NDArray[Any], positions: CodePositions) -> Ends:
    """The interval of `attribute op operand`; op is a number in COMPARISONS. An empty one is (1, 0).

    >>> op = np.arange(6)  # = != < <= > >=
    >>> low, high, _ = comparisons(op, CodePositions(np.full(6, 7), np.full(6, True), np.full(6, True)))
    >>> np.clip(low, -99, 99).tolist(), np.clip(high, -99, 99).tolist()
    ([7, 7, -99, -99, 8, 7], [7, 7, 6, 7, 99, 99])
    """
    below, exact = positions.below, positions.exact
    equal, less, at_most, at_least = op <= 1, op == 2, op == 3, op == 5
    ends_here, before = equal & exact, less & exact  # before: one code earlier
    above = (op >= 4) & ~(at_least & exact)  # one code later
    low, high = np.ones(len(op), np.int64), np.zeros(len(op), np.int64)
    up = at_most | less & ~(before & (below == LEAST))
    down = (op >= 4) & ~(above & (below == GREATEST))
    np.copyto(low, LEAST, where=up)
    np.copyto(low, below, where=ends_here | down)
    np.add(low, 1, out=low, where=down & above)
    np.copyto(high, below, where=ends_here | up)
    np.subtract(high, 1, out=high, where=up & before)
    np.copyto(high, GREATEST, where=down)
    return low, high, np.where(op == 1, np.uint8(NEGATED), np.uint8(0))


def betweens(low: CodePositions, high: CodePositions) -> tuple[Index, Index]:
    """The interval of `attribute BETWEEN low AND high`; (1, 0) if it is empty."""
    at_least, at_most = COMPARISONS.index(">="), COMPARISONS.index("<=")
    first = comparisons(np.full(len(low.below), at_least), low)
    last = comparisons(np.full(len(low.below), at_most), high)
    a, z = np.maximum(first[0], last[0]), np.minimum(first[1], last[1])
    empty = a > z
    return np.where(empty, 1, a), np.where(empty, 0, z)


def vector_codes(vector: Vector) -> Index:
    """64 bits for each value, the same in every process: of a text its hash, of any other its code.

    Hashes serve equality alone.
    """
    return text_hashes(*laid_out(vector.values)) if vector.type is Type.STRING else column_codes(vector)


def text_hashes(start: Index, data: NDArray[np.uint8]) -> Index:
    """A hash of each byte string data[start[i]:start[i + 1]]."""
    out = np.empty(len(start) - 1, np.int64)
    hash_texts(start, data, out)
    return out
