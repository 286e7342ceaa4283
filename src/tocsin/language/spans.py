"""Time spans and amounts of memory as users write them: `'1 hour 30 minutes'`, `'64 MB'`.

>>> read_span("90 minutes"), read_bytes("64 MB")
(datetime.timedelta(seconds=5400), 67108864)

Units of memory are powers of 1024, as in the settings of most databases.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from tocsin.language.hints import nearest
from tocsin.language.options import BYTES

__all__ = ["BadAmount", "read_bytes", "read_span"]

_UNITS = {
    "microsecond": timedelta(microseconds=1),
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_WORDS = {**_UNITS, **{f"{unit}s": span for unit, span in _UNITS.items()}, "ms": _UNITS["millisecond"]}
_SHORT = {
    "us": "microsecond",
    "s": "second",
    "sec": "second",
    "secs": "second",
    "m": "minute",
    "min": "minute",
}
_SHORT |= {"mins": "minute", "h": "hour", "hr": "hour", "hrs": "hour", "d": "day", "w": "week"}
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([^\W\d_]+)(?=\s|\Z)")
_DURATIONS = "write positive numbers with units, as in '10 minutes' or '1 hour 30 minutes'"

_MEMORY = {**{unit.lower(): n for unit, n in BYTES.items()}, "byte": 1, "b": 1}
_MEMORY |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_AMOUNTS = "write a number with a unit, as in '64 MB' or '1 GB'"


class BadAmount(ValueError):
    """A text that is no time span or amount of memory, with a hint."""

    def __init__(self, fact: str, hint: str) -> None:
        super().__init__(fact)
        self.fact, self.hint = fact, hint


def read_span(text: str) -> timedelta:
    """A positive duration: numbers with units, added up and truncated to microseconds."""
    end, total = 0, Fraction(0)
    while part := _PART.match(text, end):
        number, word = part.groups()
        if (unit := _WORDS.get(word.lower())) is None:
            raise BadAmount(f"{word!r} is not a unit of time", _unit_hint(number, word.lower()))
        try:
            total += Fraction(number) * (unit // timedelta(microseconds=1))
        except ValueError:  # Python reads no number of more than 4,300 digits
            raise BadAmount("the duration has too many digits", _DURATIONS) from None
        end = part.end()
    if not text.strip() or text[end:].strip():
        raise BadAmount("this is not a duration", _DURATIONS)
    try:
        duration = timedelta(microseconds=int(total))
    except OverflowError:
        most = f"at most {timedelta.max.days} days are supported"
        raise BadAmount("the duration is too long", most) from None
    if not duration:
        raise BadAmount("the duration is below a microsecond", _DURATIONS)
    return duration


def _unit_hint(number: str, word: str) -> str:
    """What to write instead of a unit that is none: whole words, so that 's' is not taken for 'ms'."""
    if word in _SHORT:
        return f"write '{number} {_SHORT[word]}{'' if number == '1' else 's'}'"
    return nearest(word, _WORDS) or f"units are {', '.join(f'{unit}s' for unit in _UNITS)}"


def read_bytes(text: str) -> int:
    """An amount of memory: one number with its unit, truncated to bytes."""
    part = _PART.fullmatch(text.strip())
    if part is None:
        raise BadAmount("this is not an amount of memory", _AMOUNTS)
    number, word = part.groups()
    if (unit := _MEMORY.get(word.lower())) is None:
        raise BadAmount(f"{word!r} is not a unit of memory", f"units are {', '.join(reversed(BYTES))}")
    if len(number) > 18:
        raise BadAmount("the amount of memory has too many digits", _AMOUNTS)
    amount = int(Fraction(number) * unit)
    if not amount:
        raise BadAmount("the amount of memory is below a byte", _AMOUNTS)
    return amount
