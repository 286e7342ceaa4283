"""Conditions: every operator, nested; and the many ways to write the same one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any

from tests.strategies.pick import Pick
from tests.strategies.values import OPEN, Values
from tocsin.language.algebra import (
    And,
    Between,
    Column,
    Compare,
    Ilike,
    In,
    IsNull,
    IsTrue,
    Like,
    Not,
    Or,
    Predicate,
    Rlike,
    Truth,
    is_true,
    literal,
)
from tocsin.model.schema import Type, quote

__all__ = ["condition", "write", "write_name"]

_OPS = ("=", "<=", ">=", "<", ">", "!=")
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TIMES: dict[Type | None, type] = {Type.DATE: date, Type.TIMESTAMP: datetime}
_LIKE = ("a%", "%b", "%b%", "a", "a_%", "_", "%", "", r"a\%b", r"%\_%", "%a%b%", "%ä%", r"x\\y")
_ILIKE = (*_LIKE, "A%", "%B%", "Ä", "%S", "A%B", "_B%")
_RLIKE = ("(?i)A", "(?i)^b$", "a", "^a", "b$", "a|ä", "[a-c]+b", "^$", "^.$", "(?i)B", "a.*b", r"\d", r"\bab")


def condition(pick: Pick, values: Values, columns: Sequence[Column]) -> Predicate:
    """Any condition on the columns; often a conjunction of a few ranges, as subscribers write them."""
    if pick.chance(15):
        return Truth(True)
    if pick.chance(40):
        return _tree(pick, values, columns, 2)
    parts = [_atom(pick, values, pick.one(columns)) for _ in range(pick.between(1, 3))]
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _tree(pick: Pick, values: Values, columns: Sequence[Column], depth: int) -> Predicate:
    shape = pick.between(0, 9) if depth else 0
    if shape < 3:
        return (
            Truth(pick.one((True, False, None))) if pick.chance(3) else _atom(pick, values, pick.one(columns))
        )
    if shape < 5:
        return Not(_tree(pick, values, columns, depth - 1))
    args = tuple(_tree(pick, values, columns, depth - 1) for _ in range(pick.between(2, 3)))
    return And(args) if shape < 7 else Or(args)


def _atom(pick: Pick, values: Values, column: Column) -> Predicate:
    """One comparison. The type of an open stream's attribute is guessed, as its users have to."""
    type = column.type or pick.one(OPEN)

    def constant() -> Any:
        typed = column.type is not None or pick.chance(30)
        return values.literal(pick, type) if typed else values.mixed(pick)

    shape = pick.between(0, 11)
    if type is Type.STRING and shape % 2:
        atom: Predicate = Like(column, pick.one(_LIKE))
        atom = Rlike(column, pick.one(_RLIKE)) if pick.chance(30) else atom
        atom = Ilike(column, pick.one(_ILIKE)) if pick.chance(25) else atom
    elif shape < 6:
        atom = Compare(column, pick.one(_OPS), constant())
    elif shape < 8:
        atom = Between(column, constant(), constant())
    elif shape < 11:
        atom = In(column, tuple(constant() for _ in range(pick.between(1, 3))))
    else:
        atom = IsNull(column)
    found = Not(atom) if pick.chance(15) else atom
    if not pick.chance(7):
        return found
    return Not(is_true(found)) if pick.chance(60) else is_true(found)


# -- as text ---------------------------------------------------------------------------------------


def write(pick: Pick, predicate: Predicate, name: Callable[[Column], str]) -> str:
    """A condition as SQL, in one of the ways it can be written; `name` writes a column."""
    match predicate:
        case Not(Between(column, low, high)) if pick.chance(50):
            return f"{name(column)} NOT BETWEEN {literal(low)} AND {literal(high)}"
        case Not(In(column, values)) if pick.chance(50):
            return f"{name(column)} NOT IN ({', '.join(map(literal, values))})"
        case Not(Like(column, pattern)) if pick.chance(50):
            return f"{name(column)} NOT LIKE {literal(pattern)}"
        case Not(Ilike(column, pattern)) if pick.chance(50):
            return f"{name(column)} NOT ILIKE {literal(pattern)}"
        case Not(Rlike(column, pattern)) if pick.chance(50):
            return f"{name(column)} NOT RLIKE {literal(pattern)}"
        case Not(IsNull(column)) if pick.chance(50):
            return f"{name(column)} IS NOT NULL"
        case Not(arg):
            return f"NOT ({write(pick, arg, name)})" if pick.chance(50) else f"not {_inner(pick, arg, name)}"
        case And(args):
            return f" {pick.one(('AND', 'and'))} ".join(_inner(pick, arg, name) for arg in args)
        case Or(args):
            return " OR ".join(_inner(pick, arg, name) for arg in args)
        case Compare(column, "=", True) if column.type in (Type.BOOLEAN, None) and pick.chance(30):
            return name(column)
        case Compare(column, op, value):
            if pick.chance(15):
                return f"{literal(value)} {_spelled(pick, _MIRRORED[op])} {name(column)}"
            return f"{name(column)} {_spelled(pick, op)} {_constant(pick, column, value)}"
        case Between(column, low, high):
            return f"{name(column)} BETWEEN {literal(low)} AND {literal(high)}"
        case In(column, values):
            return f"{name(column)} IN ({', '.join(map(literal, values))})"
        case Like(column, pattern):
            return f"{name(column)} LIKE {literal(pattern)}"
        case Ilike(column, pattern):
            return f"{name(column)} {pick.one(('ILIKE', 'ilike'))} {literal(pattern)}"
        case Rlike(column, pattern):
            return f"{name(column)} {pick.one(('RLIKE', 'rlike'))} {literal(pattern)}"
        case IsNull(column):
            return f"{name(column)} IS NULL"
        case IsTrue(arg):
            return f"({write(pick, arg, name)}) {pick.one(('IS TRUE', 'is true'))}"
        case Truth(value):
            return literal(value)
    raise TypeError(predicate)


def _inner(pick: Pick, predicate: Predicate, name: Callable[[Column], str]) -> str:
    text = write(pick, predicate, name)
    return f"({text})" if isinstance(predicate, And | Or) or pick.chance(15) else text


def _constant(pick: Pick, column: Column, value: Any) -> str:
    """A time beside a column of its type may be written as text."""
    text = literal(value)
    if type(value) is _TIMES.get(column.type) and pick.chance(30):
        return text[text.index("'") :]
    return text


def _spelled(pick: Pick, op: str) -> str:
    return pick.one(("!=", "<>")) if op == "!=" else op


def write_name(pick: Pick, name: str, *, exact: bool = False) -> str:
    """A name as SQL: quoted where it must be and sometimes where not; in other case if that is the same."""
    text = quote(name)
    if text != name or not pick.chance(20):
        return text
    return f"`{name}`" if exact or pick.chance(50) else name.swapcase()
