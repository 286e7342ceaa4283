r"""Conditions over the cap of normal forms: their parts become columns, each computed once per row.

    (a1 AND b1 OR a2 AND b2 OR ...) AND (...) AND (...)
    held('a1 = 1 AND b1 = 2 OR ...') = TRUE AND held(...) = TRUE AND held(...) = TRUE

`held('condition')` is true where the condition holds. Conditions that have a part in common share it. Of an
open stream it is an attribute, which an index of such conditions finds (`match/held.py`); over declared
columns it is a computed column like any expression, and names the columns that it reads
(`predicate/held.py`).

>>> parts = [Or(tuple(And((Compare(Column(f"{a}{n}"), "=", 1), Compare(Column(f"b{n}"), "=", 2)))
...     for n in range(20))) for a in "xyz"]
>>> str(within_cap(And(tuple(parts)))).count("held(")
3
"""

from __future__ import annotations

from tocsin.errors import NormalFormError
from tocsin.language.algebra import And, Column, Compare, Or, Predicate, atoms, literal
from tocsin.language.rewrite import CAP, NormalForm, normalise, push_not
from tocsin.model.derived import unquoted
from tocsin.model.expressions.derived import read_by
from tocsin.model.expressions.tree import CallNode, ConstantNode, Ref, is_expression, name_of, types_in
from tocsin.model.paths import MARK, is_inside
from tocsin.model.schema import Stream, Type

__all__ = ["fitted", "held_condition", "is_held", "within_cap"]

_MOST = 1 << 14
_known: dict[str, Predicate] = {}  # by name of the attribute


def fitted(predicate: Predicate, cap: int = CAP) -> NormalForm:
    """The normal form of a condition, with parts as shared columns if it is over the cap."""
    try:
        return normalise(predicate, cap)
    except NormalFormError:
        smaller = within_cap(predicate, cap)
    return normalise(smaller, cap)


def within_cap(predicate: Predicate, cap: int = CAP) -> Predicate:
    """The same condition with parts as shared columns, as far as its normal form is too large."""
    return predicate if _fits(predicate, cap) else _split(push_not(predicate), cap)


def _fits(predicate: Predicate, cap: int) -> bool:
    try:
        normalise(predicate, cap)
    except NormalFormError:
        return False
    return True


def _split(predicate: Predicate, cap: int) -> Predicate:
    if not isinstance(predicate, And | Or) or _fits(predicate, cap):
        return predicate
    parts = tuple(_split(part, cap) for part in predicate.args)
    fewer = type(predicate)(parts)
    if _fits(fewer, cap):
        return fewer
    args = predicate.args  # as they were: a part that is too large itself is split where it is matched
    return type(predicate)(tuple(_held(part) if isinstance(part, And | Or) else part for part in args))


def _held(predicate: Predicate) -> Predicate:
    """The column that is true where a condition holds; the condition itself if it can have none."""
    text, columns = literal(str(predicate)), dict.fromkeys(atom.column for atom in atoms(predicate))
    if not any(column.type for column in columns):
        name = f"{MARK}held({text})"
        if len(_known) >= _MOST:
            _known.clear()
        _known[name] = predicate
        return Compare(Column(name), "=", True)
    types = _base_types(columns)
    if types is None:
        return predicate
    tree = CallNode("held", (ConstantNode(str(predicate)), *map(Ref, types)))
    return Compare(Column(name_of(tree, tuple(types.values())), Type.BOOLEAN), "=", True)


def _base_types(columns: dict[Column, None]) -> dict[str, Type] | None:
    """The stored columns that a condition reads, with their types; None if one is not known by these."""
    found: dict[str, Type] = {}
    for column in columns:
        if not is_inside(column.name):
            if column.type is None:
                return None
            found[column.name] = column.type
            continue
        types = _expression_types(column.name)
        if types is None:
            return None
        found |= types
    return found


def _expression_types(name: str) -> dict[str, Type] | None:
    """The columns that an expression reads, with their types; None for what is no expression of columns."""
    if not is_expression(name):
        return None
    refs, types = read_by(name), types_in(name)
    if len(refs) != len(types) or any(map(is_inside, refs)):
        return None
    return dict(zip(refs, types, strict=True))


def is_held(name: str) -> bool:
    """Whether an attribute of an open stream says where a condition holds."""
    return name.startswith(f"{MARK}held(")


def held_condition(name: str) -> Predicate:
    """The condition that such an attribute stands for."""
    if name not in _known:
        from tocsin.language.sql import parse_query  # it reads texts, which this module does not

        text = unquoted(name[len(MARK) + 5 : -1])
        where = parse_query(f"SELECT * FROM s WHERE {text}", {"s": Stream("s")}).where
        assert where is not None, text
        _known[name] = where
    return _known[name]
