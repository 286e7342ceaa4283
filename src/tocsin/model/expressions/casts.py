"""CAST and TRY_CAST of single values.

CAST makes of a value what Spark makes with ANSI off, TRY_CAST only what stands there exactly; what is no
value of the type is NULL.

>>> whole_in("12.7"), whole_exactly("12.7"), whole_in("x"), double_in("1e3"), truth_in("yes")
(12, None, None, 1000.0, True)
>>> print_double(1e7), print_double(0.1), print_double(1.5e-5), day_in("2024-5")
('1.0E7', '0.1', '1.5E-5', 19844)
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta

from tocsin.model.expressions.numbers import LEAST, MOST, to_whole
from tocsin.model.expressions.times import DAY, FIRST_DAY, LAST_DAY, date_of

__all__ = [
    "SIZES",
    "day_in",
    "double_in",
    "narrowed",
    "narrowed_exactly",
    "print_date",
    "print_double",
    "print_timestamp",
    "print_truth",
    "time_in",
    "truth_in",
    "truth_of",
    "whole_exactly",
    "whole_exactly_of",
    "whole_in",
]

SIZES = {"TINYINT": 8, "SMALLINT": 16, "INT": 32}
_SPACE = "".join(map(chr, range(33)))  # what a cast trims: spaces and control characters
_WHOLE = re.compile(r"([+-]?)(\d*)(\.\d*)?", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?", re.ASCII)
_NAMED = {
    "nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf,
    "infinity": math.inf, "+infinity": math.inf, "-infinity": -math.inf,
}  # fmt: skip


# -- from text -----------------------------------------------------------------------------------------


def whole_in(text: str) -> int | None:
    """The whole part of a decimal number without exponent."""
    found = _WHOLE.fullmatch(text.strip(_SPACE))
    if found is None or not (found[2] or (found[3] or "")[1:]) or len(found[2]) > 400:
        return None
    value = int(found[1] + (found[2] or "0"))
    return value if LEAST <= value <= MOST else None


def whole_exactly(text: str) -> int | None:
    return None if "." in text else whole_in(text)


def double_in(text: str) -> float | None:
    word = text.strip(_SPACE)
    if _DOUBLE.fullmatch(word):
        return float(word.rstrip("dDfF")) + 0.0
    return _NAMED.get(word.lower())


def truth_in(text: str) -> bool | None:
    word = text.strip(_SPACE).lower()
    if word in ("t", "true", "y", "yes", "1"):
        return True
    return False if word in ("f", "false", "n", "no", "0") else None


_DAY = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_CLOCK = re.compile(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?", re.ASCII)
_ZONE = re.compile(r" ?(?:Z|UTC|GMT|([+-])(\d{1,2})(?::?(\d{2}))?)", re.ASCII)


def day_in(text: str) -> int | None:
    """`2024`, `2024-5` or `2024-5-31`, perhaps with a time of day behind it."""
    found = _DAY.fullmatch(text.strip(_SPACE))
    if found is None:
        return None
    try:
        return date_of(int(found[1]), int(found[2] or 1), int(found[3] or 1))
    except ValueError:
        return None


def time_in(text: str) -> int | None:
    """A date, perhaps with a time of day, and that perhaps with a zone; without one it is UTC."""
    word = text.strip(_SPACE)
    cut = re.search("[T ]", word)
    if cut is None:
        days = day_in(word)
        return None if days is None else days * DAY
    days, clock = day_in(word[: cut.start()]), _CLOCK.match(word, cut.end())
    if days is None or word.count("-", 0, cut.start()) != 2:
        return None
    if clock is None:
        return days * DAY if not word[cut.end() :].strip() else None
    hour, minute, second = int(clock[1]), int(clock[2]), int(clock[3] or 0)
    offset = _offset(word[clock.end() :])
    if hour > 23 or minute > 59 or second > 59 or offset is None:
        return None
    micro = int((clock[4] or "")[:6].ljust(6, "0"))
    at = days * DAY + ((hour * 60 + minute) * 60 + second) * 1_000_000 + micro - offset
    return at if FIRST_DAY <= at // DAY <= LAST_DAY else None


def _offset(zone: str) -> int | None:
    """Microseconds that a zone is ahead of UTC; None if it is none."""
    if not zone:
        return 0
    found = _ZONE.fullmatch(zone)
    if found is None:
        return None
    if found[1] is None:
        return 0
    hours, minutes = int(found[2]), int(found[3] or 0)
    if minutes > 59 or hours * 60 + minutes > 18 * 60:
        return None
    ahead = (hours * 60 + minutes) * 60_000_000
    return ahead if found[1] == "+" else -ahead


# -- to text -------------------------------------------------------------------------------------------


def print_double(x: float) -> str:
    """The shortest digits that read as the double, in Java's form."""
    if not math.isfinite(x):
        return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"
    if x == 0:
        return "0.0"
    mantissa, _, power = f"{x!r}e".partition("e")
    exponent = int(power.rstrip("e") or 0)
    sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    whole, _, fraction = digits.partition(".")
    if 1e-3 <= abs(x) < 1e7:
        return sign + _plain(whole, fraction, exponent)
    all_digits = (whole + fraction).lstrip("0")
    leading = len(whole) - 1 if whole.strip("0") else -(len(fraction) - len(fraction.lstrip("0"))) - 1
    rest = all_digits[1:].rstrip("0") or "0"
    return f"{sign}{all_digits[0]}.{rest}E{leading + exponent}"


def _plain(whole: str, fraction: str, exponent: int) -> str:
    """Digits without exponent, and at least one behind the point."""
    digits, point = whole + fraction, len(whole) + exponent
    if point <= 0:
        digits, point = "0" * (1 - point) + digits, 1
    digits = digits.ljust(point, "0")
    return f"{digits[:point].lstrip('0') or '0'}.{digits[point:].rstrip('0') or '0'}"


def print_truth(value: bool) -> str:
    return "true" if value else "false"


def print_date(days: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()


def print_timestamp(at: int) -> str:
    """To the second, and behind it the fraction there is."""
    own = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
    text = own.strftime("%H:%M:%S")
    fraction = f".{own.microsecond:06d}".rstrip("0") if own.microsecond else ""
    return f"{own.date().isoformat()} {text}{fraction}"


# -- between numbers -----------------------------------------------------------------------------------


def narrowed(value: int, bits: int) -> int:
    """What so many bits hold of a whole number."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def narrowed_exactly(value: int, bits: int) -> int | None:
    return value if narrowed(value, bits) == value else None


def whole_exactly_of(x: float) -> int | None:
    return to_whole(x) if math.isfinite(x) and LEAST <= x <= 2**63 else None


def truth_of(value: float) -> bool:
    return value != 0
