"""Bands: `low <= left - right <= high`, and the many ways to write one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.strategies.pick import Pick
from tocsin.language.algebra import Band, Column, literal
from tocsin.model.schema import Type

__all__ = ["may_differ", "written_band"]

_DAY = 86400 * 10**6
_UNITS = {"MICROSECOND": 1, "SECOND": 10**6, "MINUTE": 60 * 10**6, "HOUR": 3600 * 10**6, "DAY": _DAY}
_NUMBERS = (0, 1, 2, -1, -2, 0.5, 0.19999999999999998, -3.5, 2**53, 1e308)
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def may_differ(column: Column) -> bool:
    """Whether a band may be about the column."""
    kind = column.type
    return kind is not None and kind.kind in ("number", "time") and not kind.is_decimal


class _End(NamedTuple):
    value: int | float
    text: str
    opposite: str  # the text of -value


def written_band(pick: Pick, name: Callable[[Column], str], left: Column, right: Column) -> tuple[Band, str]:
    """A band of the two columns and its text; each end closed, open or absent."""
    if pick.chance(40):
        low, high = sorted((_end(pick, left, right), _end(pick, left, right)))
        return Band(left, right, low.value, high.value), _between(pick, name, left, right, low, high)
    band, texts = Band(left, right), []
    for side in pick.one((("low", "high"), ("low",), ("high",))):
        end, is_open = _end(pick, left, right), pick.chance(40)
        if side == "low":
            band = Band(left, right, end.value, band.high, is_open, band.high_open)
        else:
            band = Band(left, right, band.low, end.value, band.low_open, is_open)
        op = (">" if side == "low" else "<") + ("" if is_open else "=")
        texts.append(_bound(pick, name, left, right, op, end))
    return band, " AND ".join(texts)


def _between(
    pick: Pick, name: Callable[[Column], str], left: Column, right: Column, low: _End, high: _End
) -> str:
    if pick.chance(30):
        base = name(right)
        return f"{name(left)} BETWEEN {base} + {low.text} AND {base} + {high.text}"
    return f"{name(left)} - {name(right)} BETWEEN {low.text} AND {high.text}"


def _bound(pick: Pick, name: Callable[[Column], str], left: Column, right: Column, op: str, end: _End) -> str:
    """`left - right op end`, with the parts on either side."""
    a, b = name(left), name(right)
    if end.value == 0 and pick.chance(50):
        return f"{a} {op} {b}"
    ways = (
        f"{a} - {b} {op} {end.text}",
        f"{a} {op} {b} + {end.text}",
        f"{a} - {end.text} {op} {b}",
        f"{end.text} {_MIRRORED[op]} {a} - {b}",
        f"{b} - {a} {_MIRRORED[op]} {end.opposite}",
    )
    return pick.one(ways)


def _end(pick: Pick, left: Column, right: Column) -> _End:
    if left.type not in (Type.DATE, Type.TIMESTAMP):
        value = pick.one(_NUMBERS)
        return _End(value, literal(value), literal(-value))
    number = pick.one((0, 1, 12, -1, -12, 30))
    if left.type is Type.DATE and right.type is Type.DATE and pick.chance(40):
        return _End(number * _DAY, str(number), str(-number))  # dates differ by days
    unit = pick.one(tuple(_UNITS))
    return _End(number * _UNITS[unit], f"INTERVAL '{number}' {unit}", f"INTERVAL '{-number}' {unit}")
