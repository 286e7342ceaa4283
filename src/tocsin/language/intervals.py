"""INTERVAL constants: `INTERVAL '5' MINUTE`, `INTERVAL 2 HOURS`, `INTERVAL '1 day 12 hours'`.

>>> from tocsin.language.dialect import read
>>> trees, source = read("SELECT * FROM s WHERE INTERVAL '1 day -2 hours'")
>>> interval_of(trees[0].args["where"].this, source)
Interval(months=0, days=1, microseconds=-7200000000)
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import NoReturn

from sqlglot import exp

from tocsin.language.dialect import SourceText
from tocsin.model.expressions.times import UNITS, unit_name
from tocsin.model.expressions.tree import Interval

__all__ = ["interval_of"]

_HINT = "write INTERVAL '5' MINUTE; units are MICROSECOND to WEEK, MONTH and YEAR"
_PAIRS = re.compile(r"\s*([+-]?\s*[0-9]+(?:\.[0-9]+)?)\s+([A-Za-z]+)", re.ASCII)
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_DAYS = {"day": 1, "week": 7}
_MOST = 10**18


def interval_of(node: exp.Interval, source: SourceText) -> Interval:
    """The interval of a node."""
    text = _text(node.this)
    unit = node.args.get("unit")
    if text is None:
        _reject(source, node, "an interval is a constant")
    if unit is not None:
        if not isinstance(unit, exp.Var):
            _reject(source, node, f"an INTERVAL {unit.sql()} is not supported")
        pairs = [(text, str(unit.this))]
    else:
        pairs = _PAIRS.findall(text)
        if not pairs or _PAIRS.sub("", text).strip():
            _reject(source, node, f"{text!r} is not an interval")
    total = [0, 0, 0]
    for number, word in pairs:
        _add(total, number, word, node, source)
    return Interval(*total)


def _text(node: exp.Expr | None) -> str | None:
    if isinstance(node, exp.Neg):
        inner = _text(node.this)
        return None if inner is None else inner[1:] if inner.startswith("-") else f"-{inner}"
    if isinstance(node, exp.Paren):
        return _text(node.this)
    return str(node.this) if isinstance(node, exp.Literal) else None


def _add(total: list[int], number: str, word: str, node: exp.Interval, source: SourceText) -> None:
    name = unit_name(word)
    try:
        value = Decimal(number.replace(" ", ""))
    except InvalidOperation:
        _reject(source, node, f"{number!r} is not a number")
    place, factor = 2, UNITS.get(name, 0)
    if name in _MONTHS:
        place, factor = 0, _MONTHS[name]
    elif name in _DAYS:
        place, factor = 1, _DAYS[name]
    elif not factor:
        _reject(source, node, f"{word} is not a unit of an interval")
    amount = value * factor
    if amount != amount.to_integral_value() or abs(amount) > _MOST:
        _reject(source, node, f"{number} {word} is not a whole number of that, or too long")
    total[place] += int(amount)


def _reject(source: SourceText, node: exp.Expr, fact: str) -> NoReturn:
    raise source.error(fact, node, _HINT)
