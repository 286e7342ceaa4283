"""Times: parts and arithmetic of single values; a date is days since 1970, a timestamp microseconds in UTC.

>>> day = date_of(2024, 2, 29)
>>> add_months(day, 12), date_of(2025, 2, 28), part_of_day("dayofweek", day), truncated_day(day, "month")
(20147, 20147, 5, 19754)
>>> truncated(day * DAY + 5_000_001, "second") - day * DAY, elapsed("HOUR", 0, 2 * 3_600_000_000 - 1)
(5000000, 1)

A result before the year 1 or after the year 9999 is NULL.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import date

from tocsin.model.expressions.numbers import number_order, wrapped

__all__ = [
    "DAY",
    "FIRST_DAY",
    "LAST_DAY",
    "UNITS",
    "add_days",
    "add_interval",
    "add_interval_to_day",
    "add_months",
    "clock_part",
    "date_of",
    "day_of",
    "days_between",
    "elapsed",
    "in_range",
    "last_day",
    "made_date",
    "midnight",
    "months_between_days",
    "part_of_day",
    "truncated",
    "truncated_day",
    "unit_name",
]

DAY = 86_400_000_000
_EPOCH = date(1970, 1, 1).toordinal()
FIRST_DAY, LAST_DAY = 1 - _EPOCH, date(9999, 12, 31).toordinal() - _EPOCH
UNITS = {
    "microsecond": 1, "millisecond": 1000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": DAY, "week": 7 * DAY,
}  # fmt: skip
_MONTHS = {"month": 1, "mon": 1, "mm": 1, "quarter": 3, "year": 12, "yyyy": 12, "yy": 12}


def date_of(year: int, month: int, day: int) -> int:
    return date(year, month, day).toordinal() - _EPOCH


def _date(days: int) -> date:
    return date.fromordinal(days + _EPOCH)


def in_range(days: int) -> int | None:
    return days if FIRST_DAY <= days <= LAST_DAY else None


def day_of(at: int) -> int:
    """The date of a timestamp."""
    return at // DAY


def midnight(days: int) -> int:
    """The timestamp of a date."""
    return days * DAY


def made_date(year: int, month: int, day: int) -> int | None:
    try:
        return date_of(year, month, day)
    except (ValueError, OverflowError):
        return None


# -- arithmetic ----------------------------------------------------------------------------------------


def add_days(days: int, more: int) -> int | None:
    return in_range(days + more)


def add_months(days: int, months: int) -> int | None:
    """The same day of another month, or its last one."""
    own = _date(days)
    year, month = divmod(own.year * 12 + own.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        return None
    return date_of(year, month + 1, min(own.day, monthrange(year, month + 1)[1]))


def add_interval_to_day(days: int, months: int, more: int) -> int | None:
    found = add_months(days, months)
    return None if found is None else add_days(found, more)


def add_interval(at: int, months: int, microseconds: int) -> int | None:
    days, clock = divmod(at, DAY)
    found = add_months(days, months) if months else days
    if found is None:
        return None
    moved = found * DAY + clock + microseconds
    return moved if in_range(moved // DAY) is not None else None


def days_between(end: int, start: int) -> int:
    return end - start


def months_between_days(unit: int, start: int, end: int) -> int:
    """Whole months (times a unit of them) from one timestamp to another."""
    sign = number_order(end, start)
    if sign < 0:
        start, end = end, start
    (first, clock), (last, other) = divmod(start, DAY), divmod(end, DAY)
    one, two = _date(first), _date(last)
    months = (two.year - one.year) * 12 + two.month - one.month
    if (two.day, other) < (one.day, clock):
        months -= 1
    return sign * (months // unit)


def elapsed(unit: str, start: int, end: int) -> int | None:
    """Whole units from one timestamp to another."""
    name = unit_name(unit)
    if name in _MONTHS:
        return months_between_days(_MONTHS[name], start, end)
    if name not in UNITS:
        return None
    span = wrapped(end - start)
    whole = abs(span) // UNITS[name]
    return whole if span >= 0 else -whole


def unit_name(unit: str) -> str:
    """A unit in its usual spelling: in small letters, singular."""
    name = unit.strip().lower()
    known = name in UNITS or name in _MONTHS
    return name if known or name[:-1] not in (*UNITS, *_MONTHS) or not name.endswith("s") else name[:-1]


# -- parts ---------------------------------------------------------------------------------------------


def part_of_day(part: str, days: int) -> int:
    """A part of a date."""
    own = _date(days)
    if part in ("year", "month", "day"):
        return int(getattr(own, part))
    if part == "quarter":
        return (own.month + 2) // 3
    if part == "dayofyear":
        return own.timetuple().tm_yday
    if part == "weekofyear":
        return own.isocalendar().week
    if part == "yearofweek":
        return own.isocalendar().year
    return own.weekday() if part == "weekday" else own.isoweekday() % 7 + 1


def clock_part(part: str, at: int) -> int:
    """A part of the time of day."""
    clock = at % DAY
    if part == "hour":
        return clock // UNITS["hour"]
    return clock // UNITS["minute"] % 60 if part == "minute" else clock // UNITS["second"] % 60


def last_day(days: int) -> int:
    own = _date(days)
    return days + monthrange(own.year, own.month)[1] - own.day


def truncated_day(days: int, unit: str) -> int | None:
    """The first day of the week, month, quarter or year; of another unit NULL."""
    name = unit.lower()
    if name == "week":
        found = days - _date(days).weekday()
        return in_range(found)
    if name not in _MONTHS:
        return None
    own, months = _date(days), _MONTHS[name]
    return date_of(own.year, (own.month - 1) // months * months + 1, 1)


def truncated(at: int, unit: str) -> int | None:
    """The begin of the unit of time that a timestamp is in; of something that is no unit NULL."""
    name = unit.lower()
    name = "day" if name == "dd" else name
    if name in UNITS and name != "week":
        return at // UNITS[name] * UNITS[name]
    found = truncated_day(at // DAY, name)
    return None if found is None else found * DAY
