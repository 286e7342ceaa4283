"""Conditions evaluated by the letter of SQL: True, False or None, one row at a time.

Written for the tests, sharing nothing with the package but the algebra's classes.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any

import re2

from tocsin.language.algebra import (
    And,
    Between,
    Compare,
    In,
    IsNull,
    IsTrue,
    Like,
    Not,
    Or,
    Predicate,
    Rlike,
    Truth,
)

Row = dict[str, Any]


def holds(predicate: Predicate, row: Row) -> bool | None:
    """The value of a condition on a row; a column is looked up by its name alone."""
    if isinstance(predicate, Truth):
        return predicate.value
    if isinstance(predicate, Not):
        inner = holds(predicate.arg, row)
        return None if inner is None else not inner
    if isinstance(predicate, IsTrue):
        return holds(predicate.arg, row) is True
    if isinstance(predicate, And | Or):
        values = [holds(arg, row) for arg in predicate.args]
        decisive = isinstance(predicate, Or)
        return decisive if decisive in values else None if None in values else not decisive
    value = row.get(predicate.column.name)
    if isinstance(predicate, IsNull):
        return value is None
    if isinstance(predicate, Compare):
        return compare(value, predicate.op, predicate.value)
    if isinstance(predicate, Between):
        ends = (compare(value, ">=", predicate.low), compare(value, "<=", predicate.high))
        return False if False in ends else None if None in ends else True
    if isinstance(predicate, In):
        hits = [compare(value, "=", v) for v in predicate.values]
        return True if True in hits else None if None in hits else False
    if not isinstance(value, str):
        return None
    if isinstance(predicate, Rlike):
        return re2.search(predicate.pattern, value) is not None
    assert isinstance(predicate, Like)
    return re.fullmatch(like_to_regex(predicate.pattern), value, re.DOTALL) is not None


def like_to_regex(pattern: str) -> str:
    out, i = "", 0
    while i < len(pattern):
        if pattern[i] == "\\":
            i += 1
            out += re.escape(pattern[i])
        else:
            out += {"%": ".*", "_": "."}.get(pattern[i], re.escape(pattern[i]))
        i += 1
    return out


def compare(left: Any, op: str, right: Any) -> bool | None:
    if left is None or right is None or _kind(left) != _kind(right):
        return None
    a, b = _place(left), _place(right)
    return {"=": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "time" if isinstance(value, date) else "text"


def _place(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return (1, 0)
    if isinstance(value, int | float):
        return (0, value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value
