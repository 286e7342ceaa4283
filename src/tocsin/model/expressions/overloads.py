"""What functions exist: for each name the types that it takes, and what computes it for values of these.

    +    (BIGINT, BIGINT) -> BIGINT    add
         (DOUBLE, DOUBLE) -> DOUBLE    add_double
         (DATE, BIGINT) -> DATE        add_days

>>> [(*overload.takes, overload.gives) for overload in OVERLOADS["length"]]
[(<Type.STRING: 'STRING'>, <Type.BIGINT: 'BIGINT'>)]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tocsin.model.derived import kilometres
from tocsin.model.expressions import casts, numbers, texts, times
from tocsin.model.expressions.tree import Interval
from tocsin.model.schema import Type

__all__ = ["CASTS", "EXACT_CASTS", "INTERVAL", "OVERLOADS", "Kind", "Overload", "Run"]

INTERVAL = "INTERVAL"  # the kind of a constant interval
Kind = Type | str
Run = Callable[..., Any]

_KINDS: dict[str, Kind] = {
    "B": Type.BIGINT, "D": Type.DOUBLE, "S": Type.STRING, "T": Type.BOOLEAN, "d": Type.DATE,
    "t": Type.TIMESTAMP, "I": INTERVAL,
}  # fmt: skip


class Overload(NamedTuple):
    """A function of values of these types, none of them NULL; with a NULL the result is NULL."""

    takes: tuple[Kind, ...]
    gives: Type
    run: Run
    more: bool = False  # any number of values of the last type


OVERLOADS: dict[str, list[Overload]] = {}


def _add(names: str, signature: str, run: Run) -> None:
    takes, _, gives = signature.partition(">")
    more = takes.endswith("*")
    kinds = tuple(_KINDS[letter] for letter in takes.rstrip("*"))
    gives_type = _KINDS[gives]
    assert isinstance(gives_type, Type)
    for name in names.split():
        OVERLOADS.setdefault(name, []).append(Overload(kinds, gives_type, run, more))


def _same(value: Any) -> Any:
    return value


# -- numbers -------------------------------------------------------------------------------------------


def ten(x: float) -> float | None:
    found = numbers.logarithm(x)
    return None if found is None else math.log10(x) if x == x else x


def two(x: float) -> float | None:
    found = numbers.logarithm(x)
    return None if found is None else math.log2(x) if x == x else x


def round_all(x: float) -> float | None:
    return numbers.round_double(x, 0)


_add("+", "BB>B", numbers.add)
_add("+", "DD>D", numbers.add_double)
_add("-", "BB>B", numbers.subtract)
_add("-", "DD>D", numbers.subtract_double)
_add("*", "BB>B", numbers.multiply)
_add("*", "DD>D", numbers.multiply_double)
_add("/", "DD>D", numbers.divide)
_add("div", "BB>B", numbers.integer_divide)
_add("% mod", "BB>B", numbers.remainder)
_add("% mod", "DD>D", numbers.remainder_double)
_add("pmod", "BB>B", numbers.pmod)
_add("pmod", "DD>D", numbers.pmod_double)
_add("neg negative", "B>B", numbers.negate)
_add("neg negative", "D>D", lambda x: -x + 0.0)
_add("positive", "B>B", _same)
_add("positive", "D>D", _same)
_add("abs", "B>B", numbers.absolute)
_add("abs", "D>D", numbers.absolute_double)
_add("round", "B>B", _same)
_add("round", "D>D", round_all)
_add("round", "BB>B", numbers.round_whole)
_add("round", "DB>D", numbers.round_double)
_add("bround", "BB>B", numbers.round_even_whole)
_add("bround", "DB>D", numbers.round_even_double)
_add("floor ceil ceiling", "B>B", _same)
_add("floor", "D>B", numbers.floor_double)
_add("ceil ceiling", "D>B", numbers.ceil_double)
_add("sign signum", "D>D", numbers.sign)
_add("sqrt", "D>D", numbers.square_root)
_add("power pow", "DD>D", numbers.power)
_add("exp", "D>D", numbers.exponential)
_add("ln log", "D>D", numbers.logarithm)
_add("log10", "D>D", ten)
_add("log2", "D>D", two)
_add("distance_km", "DDDD>D", lambda *point: round(kilometres(*point), 9))


# -- texts ---------------------------------------------------------------------------------------------


def joined(*parts: str) -> str:
    return "".join(parts)


def joined_by(between: str, *parts: str) -> str:
    return between.join(parts)


def backwards(text: str) -> str:
    return text[::-1]


def ascii_code(text: str) -> int:
    return ord(text[0]) if text else 0


_add("lower lcase", "S>S", str.lower)
_add("upper ucase", "S>S", str.upper)
_add("trim btrim", "S>S", texts.trim)
_add("btrim", "SS>S", texts.trim)
_add("ltrim", "S>S", texts.trim_left)
_add("ltrim", "SS>S", lambda characters, text: texts.trim_left(text, characters))
_add("rtrim", "S>S", texts.trim_right)
_add("rtrim", "SS>S", lambda characters, text: texts.trim_right(text, characters))
_add("length len char_length character_length", "S>B", len)
_add("substr substring", "SB>S", texts.substring_from)
_add("substr substring", "SBB>S", texts.substring)
_add("left", "SB>S", texts.left)
_add("right", "SB>S", texts.right)
_add("concat", "S*>S", joined)
_add("concat_ws", "SS*>S", joined_by)
_add("replace", "SS>S", texts.replaced)
_add("replace", "SSS>S", texts.replaced)
_add("startswith", "SS>T", str.startswith)
_add("endswith", "SS>T", str.endswith)
_add("contains", "SS>T", str.__contains__)
_add("instr", "SS>B", texts.find_text)
_add("locate position", "SS>B", lambda searched, text: texts.find_text(text, searched))
_add("locate position", "SSB>B", texts.locate)
_add("lpad", "SB>S", texts.pad_left)
_add("lpad", "SBS>S", texts.pad_left)
_add("rpad", "SB>S", texts.pad_right)
_add("rpad", "SBS>S", texts.pad_right)
_add("repeat", "SB>S", texts.repeated)
_add("reverse", "S>S", backwards)
_add("initcap", "S>S", texts.initial_capitals)
_add("translate", "SSS>S", texts.translated)
_add("ascii", "S>B", ascii_code)
_add("split_part", "SSB>S", texts.split_part)
_add("regexp_extract", "SS>S", lambda text, pattern: texts.regexp_extract(text, pattern, 1))
_add("regexp_extract", "SSB>S", texts.regexp_extract)
_add("regexp_replace", "SSS>S", texts.regexp_replace)
_add("rlike regexp_like regexp", "SS>T", texts.matches)
_add("like", "SS>T", texts.like)
_add("ilike", "SS>T", texts.like_folded)
_add("cidr_contains", "SS>T", texts.cidr_contains)


# -- times ---------------------------------------------------------------------------------------------


def _add_days(days: int, more: int) -> int | None:
    return times.in_range(days + more)


def _take_days(days: int, fewer: int) -> int | None:
    return times.in_range(days - fewer)


def day_plus(days: int, span: Interval) -> int | None:
    return times.add_interval_to_day(days, span.months, span.days)


def time_plus(at: int, span: Interval) -> int | None:
    return times.add_interval(at, span.months, span.days * times.DAY + span.microseconds)


def scaled(factor: int, value: int) -> int | None:
    """A timestamp from whole units."""
    at = value * factor
    return at if times.in_range(at // times.DAY) is not None else None


def units_of(factor: int, at: int) -> int:
    return at // factor


def moved(unit: str, number: int, at: int) -> int | None:
    """TIMESTAMPADD."""
    name = times.unit_name(unit)
    if name in times.UNITS:
        return times.add_interval(at, 0, number * times.UNITS[name])
    months = {"month": 1, "quarter": 3, "year": 12}.get(name)
    return None if months is None else times.add_interval(at, number * months, 0)


_add("+ date_add dateadd", "dB>d", _add_days)
_add("+", "Bd>d", _add_days)
_add("- date_sub", "dB>d", _take_days)
_add("+", "dI>d", day_plus)
_add("+", "tI>t", time_plus)
_add("add_months", "dB>d", times.add_months)
_add("datediff date_diff", "dd>B", times.days_between)
_add("timestampdiff", "Stt>B", times.elapsed)
_add("timestampadd", "SBt>t", moved)
_add("last_day", "d>d", times.last_day)
_add("make_date", "BBB>d", times.made_date)
for _part in ("year", "quarter", "month", "dayofyear", "dayofweek", "weekday", "weekofyear", "yearofweek"):
    _add(_part, "d>B", partial(times.part_of_day, _part))
_add("day dayofmonth", "d>B", partial(times.part_of_day, "day"))
for _part in ("hour", "minute", "second"):
    _add(_part, "t>B", partial(times.clock_part, _part))
_add("date_trunc", "St>t", lambda unit, at: times.truncated(at, unit))
_add("trunc", "dS>d", times.truncated_day)
for _name, _unit in (("seconds", "second"), ("millis", "millisecond"), ("micros", "microsecond")):
    _add(f"unix_{_name}", "t>B", partial(units_of, times.UNITS[_unit]))
    _add(f"timestamp_{_name}", "B>t", partial(scaled, times.UNITS[_unit]))
_add("unix_date", "d>B", _same)
_add("date_from_unix_date", "B>d", times.in_range)
_add("to_date date", "S>d", casts.day_in)
_add("to_date date", "t>d", times.day_of)
_add("to_date date", "d>d", _same)
_add("to_timestamp timestamp", "S>t", casts.time_in)
_add("to_timestamp timestamp", "d>t", times.midnight)
_add("to_timestamp timestamp", "t>t", _same)


# -- casts ---------------------------------------------------------------------------------------------

CASTS: dict[tuple[Type, Type], Run] = {
    (Type.STRING, Type.BIGINT): casts.whole_in,
    (Type.STRING, Type.DOUBLE): casts.double_in,
    (Type.STRING, Type.BOOLEAN): casts.truth_in,
    (Type.STRING, Type.DATE): casts.day_in,
    (Type.STRING, Type.TIMESTAMP): casts.time_in,
    (Type.BIGINT, Type.DOUBLE): float,
    (Type.DOUBLE, Type.BIGINT): numbers.to_whole,
    (Type.BIGINT, Type.BOOLEAN): casts.truth_of,
    (Type.DOUBLE, Type.BOOLEAN): casts.truth_of,
    (Type.BOOLEAN, Type.BIGINT): int,
    (Type.BOOLEAN, Type.DOUBLE): float,
    (Type.BIGINT, Type.STRING): str,
    (Type.DOUBLE, Type.STRING): casts.print_double,
    (Type.BOOLEAN, Type.STRING): casts.print_truth,
    (Type.DATE, Type.STRING): casts.print_date,
    (Type.TIMESTAMP, Type.STRING): casts.print_timestamp,
    (Type.DATE, Type.TIMESTAMP): times.midnight,
    (Type.TIMESTAMP, Type.DATE): times.day_of,
    (Type.TIMESTAMP, Type.BIGINT): partial(units_of, 1_000_000),
    (Type.TIMESTAMP, Type.DOUBLE): lambda at: at / 1_000_000,
    (Type.BIGINT, Type.TIMESTAMP): partial(scaled, 1_000_000),
}
EXACT_CASTS: dict[tuple[Type, Type], Run] = {
    **CASTS,
    (Type.STRING, Type.BIGINT): casts.whole_exactly,
    (Type.DOUBLE, Type.BIGINT): casts.whole_exactly_of,
}
