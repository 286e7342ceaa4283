"""Whether a condition is true of a row, false, or unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import re2

from tocsin.errors import TocsinError
from tocsin.language.algebra import (
    And,
    Between,
    Column,
    Compare,
    Exists,
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
    exists_of,
)
from tocsin.model.expressions.derived import expression_of
from tocsin.model.expressions.tree import is_expression
from tocsin.model.folding import fold
from tocsin.model.paths import ALL_VALUES, MISSING, is_exists, is_inside, leaves, read_path, value_of
from tocsin.reference.values import Row, compares, like

__all__ = ["Read", "any_of", "holds", "truth", "value_in"]

Read = Callable[[Column], Any]


def holds(predicate: Predicate, row: Row) -> bool | None:
    """Whether a row satisfies a condition: True, False, or None where that is unknown.

    A column that is missing is NULL. In a query over several tables, `row` maps aliases to rows.

    >>> price = Column("price")
    >>> holds(Compare(price, "<", 5), {"price": 4.5}), holds(IsNull(price), {})
    (True, True)
    >>> holds(Not(Compare(price, "<", 5)), {"price": "cheap"}) is None  # text against a number
    True
    """
    return truth(predicate, lambda c: value_in(c.name, row.get(c.relation, {}) if c.relation else row))


def value_in(name: str, row: Row) -> Any:
    """The value of a column, or of an attribute that stands for something inside an event.

    An object or a list is no value; what `exists` says of the elements of a list is one:

    >>> event = {"tags": ["a", None], "item": {"brand": "acme", "sizes": [3]}}
    >>> value_in("\x1fitem.brand", event), value_in("\x1fitem.sizes", event), value_in("tags", event)
    ('acme', None, None)
    >>> old = Exists("tags", Compare(Column("e1"), "=", "old"), "e1")
    >>> value_in(old.column.name, event), value_in(old.column.name, {"tags": 5}) is None
    (False, True)
    """
    if not is_inside(name):
        found = row.get(name)
    elif is_expression(name):
        return _computed(name, row)
    elif is_exists(name):
        return _has_element(exists_of(name), row)
    else:
        found = value_of(name, row)
    return None if found is MISSING or isinstance(found, Mapping | list | tuple) else found


def _computed(name: str, row: Row) -> Any:
    """The value of an expression: of columns of the types in its name, or of an event's own values.

    >>> from tocsin.model.expressions.tree import CallNode, Ref, name_of
    >>> from tocsin.model.schema import Type
    >>> total = CallNode("*", (Ref("price"), Ref("qty")))
    >>> _computed(name_of(total, (Type.BIGINT, Type.BIGINT)), {"price": 2**62, "qty": 2})
    -9223372036854775808
    >>> [_computed(name_of(total, ()), event) for event in ({"price": "3", "qty": 2}, {"price": True})]
    [6.0, None]
    """
    expression = expression_of(name)
    return expression.of_event(row) if expression.is_open else expression.of_row(row)


def _has_element(exists: Exists, row: Row) -> bool | None:
    """Whether one element meets the condition: for which it is true; unknown where there is no list."""
    if exists.items == ALL_VALUES:
        elements: Iterable[Any] | None = leaves(row)
    else:
        elements = read_path(exists.items).elements(row)
    if elements is None:
        return None
    return any(holds(exists.where, {exists.variable: element}) is True for element in elements)


def truth(predicate: Predicate, read: Read) -> bool | None:
    match predicate:
        case Truth(value):
            return value
        case Not(arg):
            inner = truth(arg, read)
            return None if inner is None else not inner
        case And(args):
            return all_of([truth(arg, read) for arg in args])
        case Or(args):
            return any_of([truth(arg, read) for arg in args])
        case IsNull(column):
            return read(column) is None
        case IsTrue(arg):
            return truth(arg, read) is True
        case Compare(column, op, value):
            return compares(read(column), op, value)
        case Between(column, low, high):
            return all_of([compares(read(column), ">=", low), compares(read(column), "<=", high)])
        case In(column, values):
            return any_of([compares(read(column), "=", value) for value in values])
        case Like(column, pattern):
            text = read(column)
            return like(text, pattern) if isinstance(text, str) else None
        case Ilike(column, pattern):
            text = read(column)
            return like(fold(text), fold(pattern)) if isinstance(text, str) else None
        case Rlike(column, pattern):
            text = read(column)
            return bool(re2.search(pattern, text)) if isinstance(text, str) else None
    raise TocsinError(f"not a condition: {predicate!r}")


def all_of(truths: Iterable[bool | None]) -> bool | None:
    """AND of three-valued truths: one false decides; then one unknown leaves it unknown."""
    known = list(truths)
    return False if False in known else None if None in known else True


def any_of(truths: Iterable[bool | None]) -> bool | None:
    known = list(truths)
    return True if True in known else None if None in known else False
