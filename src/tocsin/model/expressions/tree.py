"""Expressions as trees: frozen values that print back as SQL, and the attribute that stands for each.

    price * qty > 100      Compare(Column(name of `price * qty`), ">", 100)

The name of an expression is text, so that it can be sent anywhere: a mark, the expression in parentheses, a
mark, and the types of the columns that it reads, in order. Over an open stream there are none: the values of
each event decide.

>>> total = CallNode("*", (Ref("price"), Ref("qty")))
>>> name = name_of(total, (Type.DOUBLE, Type.BIGINT))
>>> name
'\\x1f(price * qty)\\x1fDOUBLE,BIGINT'
>>> is_expression(name), text_of(name), types_in(name)
(True, '(price * qty)', (<Type.DOUBLE: 'DOUBLE'>, <Type.BIGINT: 'BIGINT'>))
>>> later = CallNode("<", (Ref("b"), ConstantNode(date(2024, 5, 1))))
>>> print(CallNode("and", (CallNode("isnull", (Ref("a"),)), later)))
a IS NULL AND b < DATE '2024-05-01'
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from tocsin.model.decimals import digits_of
from tocsin.model.schema import Type, quote

__all__ = [
    "CallNode",
    "ConstantNode",
    "Expression",
    "Interval",
    "Ref",
    "is_expression",
    "name_of",
    "print_expression",
    "print_value",
    "refs_of",
    "text_of",
    "types_in",
]

_MARK = "\x1f"
_BETWEEN_TYPES = re.compile(r",(?=[A-Z])")  # not the one in DECIMAL(9,2)


class Interval(NamedTuple):
    """A constant span of time; only whole days leave a DATE a DATE."""

    months: int = 0
    days: int = 0
    microseconds: int = 0

    def __str__(self) -> str:
        parts = [(n, unit) for n, unit in zip(self, ("MONTH", "DAY", "MICROSECOND"), strict=True) if n]
        if len(parts) > 1:
            return f"INTERVAL '{' '.join(f'{n} {unit}' for n, unit in parts)}'"
        number, unit = parts[0] if parts else (0, "DAY")
        return f"INTERVAL '{number}' {unit}"


@dataclass(frozen=True, slots=True)
class Ref:
    """A column, or an attribute of an open stream, by its name; `relation` is its table's alias in a join."""

    name: str
    relation: str = ""

    def __str__(self) -> str:
        return print_expression(self)


@dataclass(frozen=True, slots=True, eq=False)
class ConstantNode:
    """A value; a NULL has no type."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstantNode) and repr(other.value) == repr(
            self.value
        )  # TRUE, 1 and 1.0 differ

    def __hash__(self) -> int:
        return hash(repr(self.value))

    def __str__(self) -> str:
        return print_expression(self)


@dataclass(frozen=True, slots=True)
class CallNode:
    """An operator or function of other expressions; `cast` and `try_cast` say into which type."""

    name: str
    args: tuple[Expression, ...]
    into: str = ""

    def __str__(self) -> str:
        return print_expression(self)


Expression = Ref | ConstantNode | CallNode
_Shown = Callable[[Ref], str]


# -- text --------------------------------------------------------------------------------------------

_INFIX = {
    **dict.fromkeys(("*", "/", "%", "div"), 6),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("=", "!=", "<", "<=", ">", ">=", "<=>", "in", "like", "ilike", "rlike"), 4),
    **dict.fromkeys(("isnull", "istrue", "isfalse"), 4),
    "not": 3,
    "and": 2,
    "or": 1,
}
_AFTER = {"isnull": "IS NULL", "istrue": "IS TRUE", "isfalse": "IS FALSE"}


def print_expression(tree: Expression, shown: _Shown | None = None) -> str:
    """As SQL text; `shown` prints columns.

    >>> print(CallNode("-", (Ref("a"), CallNode("-", (Ref("b"), ConstantNode(-1))))))
    a - (b - -1)
    >>> when = CallNode("=", (Ref("a"), ConstantNode("x")))
    >>> print(CallNode("case", (when, ConstantNode(1), ConstantNode(None))))
    CASE WHEN a = 'x' THEN 1 ELSE NULL END
    """
    return _printed(tree, shown or _show, 0)


def _show(ref: Ref) -> str:
    from tocsin.model.paths import shown_name

    name = shown_name(ref.name)
    return f"{quote(ref.relation)}.{name}" if ref.relation else name


def _printed(tree: Expression, shown: _Shown, above: int) -> str:
    if isinstance(tree, Ref):
        return shown(tree)
    if isinstance(tree, ConstantNode):
        text = print_value(tree.value)
        return (
            f"({text})" if isinstance(tree.value, Interval) else text
        )  # else + behind it would belong to it
    own = _INFIX.get(tree.name, 9)
    text = _call(tree, shown, own)
    return f"({text})" if own <= above else text


def _call(tree: CallNode, shown: _Shown, own: int) -> str:
    name, args = tree.name, tree.args
    if name == "case":
        return _case(args, shown)
    if tree.into:
        return f"{name.upper()}({_printed(args[0], shown, 0)} AS {tree.into})"
    if name == "neg":
        return f"-({_printed(args[0], shown, 0)})"
    if name == "not":
        return f"NOT ({_printed(args[0], shown, 0)})"
    if name in _AFTER:
        return f"{_printed(args[0], shown, own)} {_AFTER[name]}"
    if name == "in":
        values = ", ".join(_printed(arg, shown, 0) for arg in args[1:])
        return f"{_printed(args[0], shown, own)} IN ({values})"
    if name in _INFIX:
        left = own - 1 if name in ("+", "-", "*", "and", "or") else own  # these group from the left
        first = _printed(args[0], shown, left)
        return f" {name.upper()} ".join([first, *(_printed(arg, shown, own) for arg in args[1:])])
    parts = [_printed(arg, shown, 0) for arg in args]
    if name in ("timestampdiff", "timestampadd") and isinstance(args[0], ConstantNode):
        parts[0] = str(args[0].value)  # a unit is a word
    return f"{name}({', '.join(parts)})"


def _case(args: tuple[Expression, ...], shown: _Shown) -> str:
    parts = [_printed(arg, shown, 0) for arg in args]
    whens = [f"WHEN {parts[n]} THEN {parts[n + 1]}" for n in range(0, len(parts) - 1, 2)]
    return f"CASE {' '.join(whens)} ELSE {parts[-1]} END"


def print_value(value: Any) -> str:
    """A constant as SQL text that reads back as the same value.

    >>> print_value("it's"), print_value(5.0), print_value(None), print_value(date(2013, 1, 31))
    ("'it\\\\'s'", '5.0', 'NULL', "DATE '2013-01-31'")
    """
    if value is None:
        return "NULL"
    if isinstance(value, Interval):
        return str(value)
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"CAST('{name}' AS DOUBLE)"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, datetime):  # a datetime is a date too: test it first
        return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, Decimal):
        digits, scale = digits_of(value)
        return f"CAST('{value:f}' AS DECIMAL({digits},{scale}))"
    return str(value)


# -- names -------------------------------------------------------------------------------------------


def refs_of(tree: Expression) -> tuple[Ref, ...]:
    """The columns that an expression reads, each once, in order."""
    return tuple(dict.fromkeys(_refs(tree)))


def _refs(tree: Expression) -> Iterator[Ref]:
    if isinstance(tree, Ref):
        yield tree
    elif isinstance(tree, CallNode):
        for arg in tree.args:
            yield from _refs(arg)


def name_of(tree: Expression, types: tuple[Type, ...]) -> str:
    """The attribute that stands for an expression over columns of these types; none: of an open stream."""
    text = print_expression(tree, lambda ref: _show(Ref(ref.name)))
    return f"{_MARK}({text}){_MARK}{','.join(types)}"


def is_expression(name: str) -> bool:
    """Whether an attribute stands for an expression."""
    return name.startswith(f"{_MARK}(")


def text_of(name: str) -> str:
    """The text of an expression's attribute, in parentheses."""
    return name[1:].rpartition(_MARK)[0]


def types_in(name: str) -> tuple[Type, ...]:
    """The types of the columns that it reads."""
    given = name.rpartition(_MARK)[2]
    return tuple(map(Type, _BETWEEN_TYPES.split(given))) if given else ()
