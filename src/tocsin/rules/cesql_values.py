r"""What expressions of CESQL are worth for an event: a value, and an error if one occurred.

    types       String, Integer (32 bits), Boolean; other numbers are Strings, objects and lists are missing
    = and !=    the left side is cast to the type of the right one; IN casts to the type of its left side
    an error    the first one counts; the value is then the zero of the operator's type: '', 0 or false

An expression of several parts that rules share is the attribute `cesql('...')`: its value, or missing where
there is an error.

>>> evaluate(parsed("INT(hop) + 1"), {"hop": "5"})
Outcome(value=6, error='')
>>> evaluate(parsed("hop / 0"), {"hop": "5"})
Outcome(value=0, error='math')
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from tocsin.model.derived import MISSING, Computed, unquoted
from tocsin.rules.cesql_syntax import (
    HIGHEST,
    LOWEST,
    Attribute,
    Binary,
    Expression,
    FunctionCall,
    LikeTest,
    Literal,
    Present,
    SyntaxFault,
    Unary,
    Within,
    parsed,
)

__all__ = ["ALWAYS_THERE", "FUNCTIONS", "Outcome", "as_integer", "evaluate", "function_of", "of_expression"]

Value = str | int | bool
ALWAYS_THERE = frozenset(("id", "source", "specversion", "type"))  # attributes that every event must have
_NOT_ATTRIBUTES = frozenset(("data", "data_base64"))
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")
_ZERO: dict[type, Value] = {str: "", int: 0, bool: False}


class Outcome(NamedTuple):
    """A value and the first error: cast, math, missingAttribute, functionEvaluation; or none."""

    value: Value
    error: str = ""


def _failed(made: type, error: str) -> Outcome:
    return Outcome(_ZERO[made], error)


# -- casts ------------------------------------------------------------------------------------------------


def text_of(value: Value | float) -> str:
    """A value as String."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def as_integer(value: Value) -> Outcome:
    """A value as Integer."""
    if isinstance(value, str):
        if _INTEGER.fullmatch(value) is None or not LOWEST <= int(value) <= HIGHEST:
            return Outcome(0, "cast")
        return Outcome(int(value))
    return Outcome(int(value))


def _as_boolean(value: Value) -> Outcome:
    """A value as operand of NOT, AND, OR, XOR, =: an Integer is none, unlike for BOOL."""
    if isinstance(value, bool):
        return Outcome(value)
    low = value.lower() if isinstance(value, str) else ""
    return Outcome(low == "true") if low in ("true", "false") else Outcome(False, "cast")


def _cast(value: Value, to: type) -> Outcome:
    if type(value) is to:
        return Outcome(value)
    if to is str:
        return Outcome(text_of(value))
    return as_integer(value) if to is int else _as_boolean(value)


def _attribute(event: Mapping[str, Any], name: str) -> Value | None:
    """The value of an attribute; None if it is missing."""
    value = None if name in _NOT_ATTRIBUTES else event.get(name)
    if isinstance(value, str | bool) or value is None:
        return value
    if isinstance(value, int | float):
        if not math.isfinite(value) or value != int(value):
            return repr(float(value))
        whole = int(value)
        return whole if LOWEST <= whole <= HIGHEST else str(whole)
    return None if isinstance(value, Mapping | list | tuple) else str(value)


# -- functions --------------------------------------------------------------------------------------------


def _part(text: str, start: int, length: int | None = None) -> Outcome:
    if start == 0:
        return Outcome("")
    if abs(start) > len(text) or (length is not None and length < 0):
        return Outcome("", "functionEvaluation")
    first = start - 1 if start > 0 else len(text) + start
    return Outcome(text[first:] if length is None else text[first : first + length])


def _end(text: str, count: int, *, right: bool) -> Outcome:
    if count < 0:
        return Outcome(text, "functionEvaluation")
    kept = min(count, len(text))
    return Outcome(text[len(text) - kept :] if right else text[:kept])


class _Function(NamedTuple):
    """Types of the arguments and of the value; `more` is that of further ones."""

    args: tuple[type, ...]
    made: type
    compute: Callable[..., Outcome]
    more: type | None = None


_ANY = object
FUNCTIONS: dict[str, tuple[_Function, ...]] = {
    "INT": (_Function((_ANY,), int, as_integer),),
    "BOOL": (_Function((_ANY,), bool, lambda x: Outcome(x != 0) if type(x) is int else _as_boolean(x)),),
    "STRING": (_Function((_ANY,), str, lambda x: Outcome(text_of(x))),),
    "ABS": (_Function((int,), int, lambda x: Outcome(HIGHEST, "math") if x == LOWEST else Outcome(abs(x))),),
    "LENGTH": (_Function((str,), int, lambda x: Outcome(len(x))),),
    "CONCAT": (_Function((), str, lambda *xs: Outcome("".join(xs)), str),),
    "CONCAT_WS": (_Function((str,), str, lambda by, *xs: Outcome(by.join(xs)), str),),
    "LOWER": (_Function((str,), str, lambda x: Outcome(x.lower())),),
    "UPPER": (_Function((str,), str, lambda x: Outcome(x.upper())),),
    "TRIM": (_Function((str,), str, lambda x: Outcome(x.strip())),),
    "LEFT": (_Function((str, int), str, lambda x, n: _end(x, n, right=False)),),
    "RIGHT": (_Function((str, int), str, lambda x, n: _end(x, n, right=True)),),
    "SUBSTRING": (_Function((str, int), str, _part), _Function((str, int, int), str, _part)),
}


def function_of(call: FunctionCall) -> _Function | None:
    """The function that a call is for, by name and number of arguments."""
    for one in FUNCTIONS.get(call.name, ()):
        if len(call.args) == len(one.args) or (one.more is not None and len(call.args) > len(one.args)):
            return one
    return None


def _call(node: FunctionCall, event: Mapping[str, Any]) -> Outcome:
    found = function_of(node)
    if found is None:
        return Outcome(False, "missingFunction")
    values = []
    for n, arg in enumerate(node.args):
        got = evaluate(arg, event)
        wanted = found.args[n] if n < len(found.args) else found.more
        if not got.error and wanted is not _ANY and wanted is not None:
            got = _cast(got.value, wanted)
        if got.error:
            return _failed(found.made, got.error)
        values.append(got.value)
    return found.compute(*values)


# -- operators --------------------------------------------------------------------------------------------


def _whole(value: int) -> Outcome:
    return Outcome(value) if LOWEST <= value <= HIGHEST else Outcome(0, "math")


def _divided(a: int, b: int) -> Outcome:
    if b == 0:
        return Outcome(0, "math")
    return _whole(abs(a) // abs(b) * (1 if (a < 0) is (b < 0) else -1))


def _rest(a: int, b: int) -> Outcome:
    return Outcome(0, "math") if b == 0 else Outcome(int(math.fmod(a, b)))


_ARITHMETIC: dict[str, Callable[[int, int], Outcome]] = {
    "*": lambda a, b: _whole(a * b),
    "/": _divided,
    "%": _rest,
    "+": lambda a, b: _whole(a + b),
    "-": lambda a, b: _whole(a - b),
}
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _binary(node: Binary, event: Mapping[str, Any]) -> Outcome:
    made = int if node.op in _ARITHMETIC else bool
    left = evaluate(node.left, event)
    logic = node.op in ("AND", "OR", "XOR")
    if logic and not left.error:
        left = _cast(left.value, bool)
    if left.error:
        return _failed(made, left.error)
    if logic and left.value is (node.op == "OR") and node.op != "XOR":
        return left  # the other side is not looked at
    right = evaluate(node.right, event)
    if right.error:
        return _failed(made, right.error)
    kind = bool if logic else type(right.value) if node.op in ("=", "!=") else int
    a, b = _cast(left.value, kind), _cast(right.value, kind)
    if a.error or b.error:
        return _failed(made, a.error or b.error)
    x, y = a.value, b.value
    if logic:
        return Outcome(x is not y if node.op == "XOR" else y)
    if node.op in ("=", "!="):
        return Outcome((x == y) is (node.op == "="))
    if node.op in _ORDER:
        return Outcome(_ORDER[node.op](x, y))
    return _ARITHMETIC[node.op](x, y)  # type: ignore[arg-type]  # both are cast to Integer


def _unary(node: Unary, event: Mapping[str, Any]) -> Outcome:
    kind = bool if node.op == "NOT" else int
    got = evaluate(node.arg, event)
    if got.error:
        return _failed(kind, got.error)
    got = _cast(got.value, kind)
    if node.op == "NOT":
        return Outcome(not got.value, got.error)  # of what cannot be cast too
    return got if got.error else _whole(-got.value)  # type: ignore[operator]  # an Integer


@lru_cache(maxsize=1 << 10)
def _pattern(pattern: str) -> re.Pattern[str]:
    words = re.findall(r"\\[%_]|.", pattern, re.DOTALL)
    made = (".*" if w == "%" else "." if w == "_" else re.escape(w[-1]) for w in words)
    return re.compile("".join(made), re.DOTALL)


def _like(node: LikeTest, event: Mapping[str, Any]) -> Outcome:
    got = evaluate(node.arg, event)
    if got.error:
        return _failed(bool, got.error)
    found = _pattern(node.pattern).fullmatch(text_of(got.value)) is not None
    return Outcome(found is not node.negated)


def _within(node: Within, event: Mapping[str, Any]) -> Outcome:
    left = evaluate(node.arg, event)
    if left.error:
        return _failed(bool, left.error)
    for one in node.among:
        got = evaluate(one, event)
        if not got.error:
            got = _cast(got.value, type(left.value))
        if got.error:
            return _failed(bool, got.error)
        if got.value == left.value:
            return Outcome(not node.negated)
    return Outcome(node.negated)


def _literal(node: Literal, event: Mapping[str, Any]) -> Outcome:
    return Outcome(node.value)


def _value(node: Attribute, event: Mapping[str, Any]) -> Outcome:
    found = _attribute(event, node.name)
    return Outcome(False, "missingAttribute") if found is None else Outcome(found)


def _present(node: Present, event: Mapping[str, Any]) -> Outcome:
    return Outcome(node.name in ALWAYS_THERE or _attribute(event, node.name) is not None)


_EVALUATE: dict[type, Callable[[Any, Mapping[str, Any]], Outcome]] = {
    Literal: _literal, Attribute: _value, Present: _present, FunctionCall: _call,
    Unary: _unary, Binary: _binary, LikeTest: _like, Within: _within,
}  # fmt: skip


def evaluate(node: Expression, event: Mapping[str, Any]) -> Outcome:
    """The value of an expression for an event, and its error."""
    return _EVALUATE[type(node)](node, event)


def of_expression(arguments: str) -> Computed:
    """`cesql('expression')` as an attribute (`model/derived.py`).

    >>> from tocsin.model.derived import derived
    >>> derived("\x1fcesql('INT(hop) + 1')")({"hop": "5"})
    6
    """
    node = _checked(unquoted(arguments))

    def compute(event: Mapping[str, Any]) -> Any:
        found = evaluate(node, event)
        return MISSING if found.error else found.value

    return compute


def _checked(text: str) -> Expression:
    try:
        return parsed(text)
    except SyntaxFault as error:
        raise ValueError(str(error)) from None
