"""Random expressions that Spark and this engine both take, as SQL text, and rows to compute them over.

Literals say their type (`2L`, `1.5D`), because Spark has more types of numbers. What is known to differ is
left out here and listed in docs/semantics.md: text beyond ASCII in other cases, results beyond the year 9999.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tocsin.model.schema import Field, Type, decimal_type, read

FIELDS = (
    Field("a", Type.BIGINT), Field("b", Type.BIGINT), Field("x", Type.DOUBLE), Field("y", Type.DOUBLE),
    Field("s", Type.STRING), Field("u", Type.STRING), Field("p", Type.BOOLEAN), Field("d", Type.DATE),
    Field("t", Type.TIMESTAMP), Field("w", Type.TIMESTAMP), Field("m", decimal_type(7, 2)),
    Field("n", decimal_type(5, 3)),
)  # fmt: skip
_WHOLE = [0, 1, -1, 2, 3, 7, -7, 10, 100, 12345, -99999, 2**31, -(2**31), 2**53, 2**62, 2**63 - 1, -(2**63)]
_DOUBLES = [
    0.0, 1.0, -1.0, 0.5, -0.5, 2.5, 1.005, -2.675, 3.14159, 100.25, 1e-5, 1e7, 12345678.9, 1e15, 1e20, -1e300,
    float("nan"), float("inf"), float("-inf"), 0.1, 0.3, 1 / 3,
]  # fmt: skip
_TEXTS = [
    "", " ", "a", "ab", "abc", "Spark SQL", "  padded  ", "a,b,c", "x-1-y", "12", "-7", " 3.5 ", "1e3",
    "true", "no", "2024-02-29", "2024-02-29 12:30:45.5", "2024-13-01", "NaN", "aaa", "AbAb", "50%", "a_b",
    "10.0.0.1",     "UPPER", "item 12 of 30", "9223372036854775808",
]  # fmt: skip
_DAYS = [
    date(1970, 1, 1), date(2024, 2, 29), date(2023, 12, 31), date(2024, 1, 1), date(1999, 7, 15),
    date(2000, 10, 8), date(1960, 3, 31), date(2038, 1, 19),
]  # fmt: skip
_TIMES = [
    datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 12, 30, 45, 500000, tzinfo=UTC),
    datetime(2023, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), datetime(1969, 12, 31, 23, 0, 1, tzinfo=UTC),
    datetime(2024, 3, 31, 6, 0, tzinfo=UTC), datetime(2000, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
]  # fmt: skip
AMOUNT = decimal_type(5, 2)  # stands for every DECIMAL
_AMOUNTS = ["0.00", "1.00", "-1.00", "0.01", "-0.05", "1.25", "12.35", "-12.35", "99.99", "10.50", "7.77"]
_VALUES: dict[Type, list[Any]] = {
    Type.BIGINT: _WHOLE, Type.DOUBLE: _DOUBLES, Type.STRING: _TEXTS, Type.BOOLEAN: [True, False],
    Type.DATE: _DAYS, Type.TIMESTAMP: _TIMES, AMOUNT: [Decimal(text) for text in _AMOUNTS],
}  # fmt: skip
_UNITS = ["MICROSECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"]
_TRUNCS = ["YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND"]

# By type of the result: forms; letters in braces are arguments of that type, others are written as they are.
_FORMS: dict[Type, list[str]] = {
    Type.BIGINT: [
        "({B} + {B})", "({B} - {B})", "({B} * {B})", "({B} DIV {B})", "({B} % {B})", "(-{B})", "abs({B})",
        "mod({B}, {B})", "pmod({B}, {B})", "length({S})", "instr({S}, {S})", "locate({S}, {S})", "year({d})",
        "quarter({d})", "month({d})", "day({d})", "dayofweek({d})", "weekday({d})", "dayofyear({d})",
        "weekofyear({d})", "hour({t})", "minute({t})", "second({t})", "datediff({d}, {d})", "unix_date({d})",
        "timestampdiff({unit}, {t}, {t})", "CAST({S} AS BIGINT)", "TRY_CAST({S} AS BIGINT)",
        "CAST({D} AS BIGINT)", "TRY_CAST({D} AS BIGINT)", "CAST({T} AS BIGINT)", "CAST({t} AS BIGINT)",
        "CAST({B} AS INT)", "TRY_CAST({B} AS INT)", "CAST({B} AS SMALLINT)", "floor({D})", "ceil({D})",
        "coalesce({B}, {B})", "nullif({B}, {B})", "if({T}, {B}, {B})", "greatest({B}, {B})",
        "least({B}, {B}, {B})", "CASE WHEN {T} THEN {B} WHEN {T} THEN {B} ELSE {B} END",
        "CASE {B} WHEN {B} THEN {B} END", "round({B}, -1)", "round({B}, 2)", "nvl({B}, {B})", "ascii({S})",
        "unix_micros({t})", "unix_seconds({t})", "extract(HOUR FROM {t})", "extract(YEAR FROM {d})",
        "nvl2({S}, {B}, {B})", "bround({B}, -1)", "CAST({m} AS BIGINT)", "({m} DIV {m})", "floor({double})",
        "CAST({m} AS INT)",
    ],
    Type.DOUBLE: [
        "({D} + {D})", "({D} - {D})", "({D} * {D})", "({D} / {D})", "({D} % {D})", "(-{D})", "abs({D})",
        "({B} / {B})", "({B} + {D})", "({D} * {B})", "({S} + {B})", "({S} * {D})", "round({D}, 2)",
        "round({D})", "round({D}, -1)", "bround({D}, 1)", "sqrt({D})", "sign({D})", "CAST({S} AS DOUBLE)",
        "CAST({B} AS DOUBLE)", "CAST({T} AS DOUBLE)", "coalesce({D}, {B})", "nullif({D}, {D})",
        "if({T}, {D}, {B})", "greatest({D}, {D})", "least({D}, {B})", "pmod({D}, {D})",
        "CASE WHEN {T} THEN {D} ELSE {B} END", "CAST({t} AS DOUBLE)", "TRY_CAST({S} AS DOUBLE)",
        "({m} + {column})", "({column} * {m})", "CAST({m} AS DOUBLE)", "sqrt({m})", "coalesce({m}, {column})",
    ],
    Type.STRING: [
        "lower({S})", "upper({S})", "trim({S})", "ltrim({S})", "rtrim({S})", "concat({S}, {S})",
        "({S} || {S})", "substr({S}, {small})", "substring({S}, {small}, {small})", "left({S}, {small})",
        "right({S}, {small})", "replace({S}, {S}, {S})", "replace({S}, {S})", "split_part({S}, {S}, {place})",
        "regexp_extract({S}, '([a-z]+)-?([0-9]*)', {group})", "regexp_replace({S}, '[0-9]+', '#')",
        "lpad({S}, {small}, 'xy')", "rpad({S}, {small}, '-')", "repeat({S}, 2)", "reverse({S})",
        "initcap({S})", "CAST({B} AS STRING)", "CAST({double} AS STRING)", "CAST({T} AS STRING)",
        "CAST({d} AS STRING)", "CAST({t} AS STRING)", "coalesce({S}, {S})", "nullif({S}, {S})",
        "if({T}, {S}, {S})", "CASE WHEN {T} THEN {S} ELSE {B} END", "greatest({S}, {S})",
        "translate({S}, 'abc', 'xy')", "TRIM(BOTH 'a' FROM {S})", "TRIM(LEADING ' ' FROM {S})",
        "CAST({m} AS STRING)", "concat({S}, {m})",
        "concat({S}, {B})", "concat({T}, {d})", "concat_ws('-', {SL}, {SL})", "btrim({S}, 'ax')",
    ],
    Type.BOOLEAN: [
        "({B} = {B})", "({B} < {D})", "({D} >= {D})", "({D} = {D})", "({S} = {S})", "({S} < {S})",
        "({S} = {B})", "({S} > {D})", "({d} < {d})", "({d} <= {t})", "({t} = {t})", "({text} = {d})",
        "({text} < {t})", "({T} = {T})", "({B} <=> {B})", "({D} <=> {D})", "({S} <=> {S})", "({T} AND {T})",
        "({T} OR {T})", "(NOT {T})", "({S} IS NULL)", "({B} IS NOT NULL)", "({T} IS TRUE)", "({T} IS FALSE)",
        "({T} IS NOT TRUE)", "({B} IN ({B}, {B}))", "({S} NOT IN ({S}, {S}))", "({D} BETWEEN {D} AND {D})",
        "({S} LIKE 'a%')", "({S} LIKE '%b_')", "({S} RLIKE '[0-9]+')", "({S} ILIKE 'AB%')",
        "startswith({S}, {S})", "endswith({S}, {S})", "contains({S}, {S})", "CAST({S} AS BOOLEAN)",
        "CAST({B} AS BOOLEAN)", "CAST({D} AS BOOLEAN)", "isnan({D})", "coalesce({T}, {T})",
        "if({T}, {T}, {T})", "({B} != {B})", "({S} != {S})", "({d} = {d})", "({S} IN ({S}, {B}))",
        "({m} = {m})", "({m} < {m})", "({m} >= {B})", "({m} <=> {m})", "({m} < {column})",
        "({m} IN ({m}, {m}))",
        "({m} BETWEEN {m} AND {m})", "CAST({m} AS BOOLEAN)", "({m} IS NULL)", "({m} = 12.35BD)",
        "({d} IS DISTINCT FROM {d})", "isnull({D})", "({d} BETWEEN {d} AND {d})",
    ],
    AMOUNT: [
        "({m} + {m})", "({m} - {m})", "({leaf} * {leaf})", "({leaf} * 1.19BD)", "({m} % {m})", "(-{m})",
        "abs({m})",
        "round({m}, 1)", "round({m})", "round({m}, -1)", "bround({m}, 1)", "floor({m})", "ceil({m})",
        "CAST({S} AS DECIMAL(9,2))", "CAST({double} AS DECIMAL(9,3))", "CAST({m} AS DECIMAL(4,1))",
        "CAST({tiny} AS DECIMAL(9,2))", "CAST({T} AS DECIMAL(3,1))", "TRY_CAST({S} AS DECIMAL(9,2))",
        "coalesce({m}, {m})", "nullif({m}, {m})", "if({T}, {m}, {m})", "greatest({m}, {m})",
        "least({m}, {m})",
        "CASE WHEN {T} THEN {m} ELSE {m} END", "pmod({m}, {m})", "({leaf} + {small})",
    ],
    Type.DATE: [
        "date_add({d}, {small})", "date_sub({d}, {small})", "({d} + {small})", "({d} - {small})",
        "({d} + INTERVAL '2' DAY)", "({d} - INTERVAL '1' MONTH)", "({d} + INTERVAL '1' YEAR)",
        "add_months({d}, {small})", "last_day({d})", "trunc({d}, 'MONTH')", "trunc({d}, 'YEAR')",
        "trunc({d}, 'WEEK')", "trunc({d}, 'QUARTER')", "CAST({t} AS DATE)", "CAST({text} AS DATE)",
        "to_date({t})", "coalesce({d}, {d})", "if({T}, {d}, {d})", "greatest({d}, {d})", "nullif({d}, {d})",
    ],
    Type.TIMESTAMP: [
        "({t} + INTERVAL '5' MINUTE)", "({t} - INTERVAL '3' HOUR)", "({t} + INTERVAL '1' MONTH)",
        "({t} + INTERVAL '1 day 2 hours')", "({d} + INTERVAL '5' HOUR)", "date_trunc('{trunc}', {t})",
        "timestampadd({unit}, {small}, {t})", "CAST({d} AS TIMESTAMP)", "CAST({text} AS TIMESTAMP)",
        "coalesce({t}, {t})", "if({T}, {t}, {d})", "greatest({t}, {t})", "nullif({t}, {t})",
        "timestamp_micros({tiny})", "timestamp_seconds({tiny})",
    ],
}  # fmt: skip
_LETTERS = {
    "B": Type.BIGINT, "D": Type.DOUBLE, "S": Type.STRING, "T": Type.BOOLEAN, "d": Type.DATE,
    "t": Type.TIMESTAMP, "m": AMOUNT,
}  # fmt: skip
_COLUMNS = {type: [field.name for field in FIELDS if field.type is type] for type in Type if type in _VALUES}
_COLUMNS[AMOUNT] = ["m", "n"]


def expressions(seed: int, count: int, depth: int = 3) -> list[tuple[Type, str]]:
    """Random expressions with the types of their values."""
    draw = random.Random(seed)
    kinds = list(_FORMS)
    return [(kind, _text(draw, kind, depth)) for kind in (draw.choice(kinds) for _ in range(count))]


def _text(draw: random.Random, kind: Type, depth: int) -> str:
    if depth == 0 or (depth < 3 and draw.random() < 0.25):
        return _leaf(draw, kind)
    form = draw.choice(_FORMS[kind])
    parts, at = [], 0
    while (begin := form.find("{", at)) >= 0:
        end = form.index("}", begin)
        parts += [form[at:begin], _argument(draw, form[begin + 1 : end], depth)]
        at = end + 1
    return "".join([*parts, form[at:]])


def _argument(draw: random.Random, name: str, depth: int) -> str:
    if name in _LETTERS:
        return _text(draw, _LETTERS[name], depth - 1)
    if name == "column":  # a constant DOUBLE beside a DECIMAL is a DECIMAL here
        return draw.choice(_COLUMNS[Type.DOUBLE])
    if name == "leaf":
        return _leaf(draw, AMOUNT)
    if name in ("text", "double"):  # no result: years beyond 9999, and digits that Java before 19 adds
        return _leaf(draw, Type.STRING if name == "text" else Type.DOUBLE)
    if name == "SL":
        return literal(Type.STRING, draw.choice(_TEXTS))
    if name == "unit":
        return draw.choice(_UNITS)
    if name == "trunc":
        return draw.choice(_TRUNCS)
    if name == "group":
        return str(draw.randint(0, 2))
    if name == "place":
        return str(draw.choice([-2, -1, 1, 2, 3]))
    return str(draw.randint(-3, 9))


def _leaf(draw: random.Random, kind: Type) -> str:
    if draw.random() < 0.7:
        return draw.choice(_COLUMNS[kind])
    return literal(kind, draw.choice(_VALUES[kind]))


def literal(kind: Type, value: Any) -> str:
    """A constant as Spark and this engine read it."""
    if kind is Type.BIGINT:
        return f"CAST('{value}' AS BIGINT)" if value < 0 else f"{value}L"
    if kind is Type.DOUBLE:
        return f"CAST('{value!r}' AS DOUBLE)"
    if kind is Type.STRING:
        return f"'{value}'"
    if kind is Type.BOOLEAN:
        return "TRUE" if value else "FALSE"
    if kind is AMOUNT:
        return f"CAST('{value}' AS DECIMAL(5,2))"
    text = value.isoformat() if kind is Type.DATE else value.replace(tzinfo=None).isoformat(sep=" ")
    return f"{kind} '{text}'"


def _cell(draw: random.Random, kind: Type) -> Any:
    return read(kind, draw.choice(_VALUES[AMOUNT if kind.is_decimal else kind]))


def rows(seed: int, count: int) -> list[dict[str, Any]]:
    """Random rows; about every seventh cell is NULL."""
    draw = random.Random(seed)
    return [
        {f.name: None if draw.random() < 0.14 else _cell(draw, f.type) for f in FIELDS} for _ in range(count)
    ]
