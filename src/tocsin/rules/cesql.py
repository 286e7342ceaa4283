r"""CESQL, the expression language of CloudEvents, as conditions; `docs/rules-cesql.md` says what differs.

An event passes where the expression is true and no error occurred. So each part has a condition for *true
without error* and one for *false without error*, and AND, OR, XOR and NOT combine these two. What can be said
of attributes alone becomes conditions on them; any other part is a shared attribute `cesql('...')`, computed
once per event (`cesql_values.py`) and indexed by its value:

    type LIKE 'order.%'       type LIKE 'order.%'
    INT(hop) + 1 < 5          cesql('(INT(hop) + 1)') < 5
    hop < ttl                 cesql('(hop < ttl)') = TRUE

>>> (found,) = Cesql().read(["source LIKE 'https://%' AND NOT (sequence = 5 OR EXISTS subject)"])
>>> print(found.where)
source LIKE 'https://%' AND cesql('INT(sequence)') != 5 AND subject IS NULL
>>> print(*Cesql().read(["source LIKE 5"]))
rule 1: column 13: 5: LIKE takes a pattern in quotes
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tocsin.language.algebra import (
    And,
    Column,
    Compare,
    In,
    IsNull,
    Not,
    Predicate,
    Truth,
    is_true,
    literal,
)
from tocsin.language.algebra import Like as LikeAtom
from tocsin.model.paths import MARK
from tocsin.rules.atoms import all_of, any_of
from tocsin.rules.base import RefusedError, RuleLanguage
from tocsin.rules.cesql_syntax import (
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
from tocsin.rules.cesql_values import ALWAYS_THERE, FUNCTIONS, function_of

__all__ = ["Cesql"]

_ORDERS = ("=", "!=", "<", "<=", ">", ">=")
_INVERSE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", "<=": ">", ">": "<="}
_NUMBER_OR_TRUTH = re.compile(r"[-+0-9.eE]*|inf|-inf|nan|true|false")
_BEYOND = re.compile(r"[^-+0-9.eEinfatrulsNI%_\\]")  # no number and no boolean has such a character
_NAMES = {str: "String", int: "Integer", bool: "Boolean"}


class Cesql(RuleLanguage):
    """Expressions as texts, or as objects {"sql": expression}, a filter of the Subscriptions API."""

    kind = "cesql"

    def in_file(self, text: str) -> Iterator[Any]:
        """One expression per line, without lines that are empty or begin with #; or JSON."""
        if text.lstrip()[:1] in ("[", "{"):
            try:
                yield json.loads(text)
                return
            except json.JSONDecodeError:
                pass  # its lines are refused
        for line in text.splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                yield line.strip()

    def rules(self, source: Any) -> Iterator[tuple[str, Any]]:
        for one in source if isinstance(source, list) else [source]:
            name = str(one.get("name") or one.get("id") or "") if isinstance(one, Mapping) else ""
            yield name, one

    def condition(self, rule: Any) -> Predicate:
        given = rule
        if isinstance(rule, Mapping):
            given = rule.get("sql", rule.get("filter", rule.get("expression")))
        if not isinstance(given, str):
            raise RefusedError("", rule, "a rule is an expression as text, or an object with `sql`")
        try:
            node = parsed(given)
        except SyntaxFault as error:
            raise RefusedError(f"column {error.column}", error.found, error.reason) from None
        _check(node)
        kind = _type(node)
        if kind not in (bool, None):
            raise RefusedError("", given, f"a filter is a Boolean, and this is of the type {_NAMES[kind]}")
        if isinstance(node, Attribute):
            return Compare(Column(node.name), "=", True)
        return _holds(node, True)


def _check(node: Expression) -> None:
    """Refuse functions that there are not."""
    for child in _children(node):
        _check(child)
    if isinstance(node, FunctionCall) and function_of(node) is None:
        known = node.name in FUNCTIONS
        reason = "it does not take so many arguments" if known else "there is no such function"
        raise RefusedError(f"column {node.column}", node.name, reason)


def _children(node: Expression) -> tuple[Expression, ...]:
    if isinstance(node, FunctionCall):
        return node.args
    if isinstance(node, Unary | LikeTest):
        return (node.arg,)
    if isinstance(node, Binary):
        return node.left, node.right
    return (node.arg, *node.among) if isinstance(node, Within) else ()


def _type(node: Expression) -> type | None:
    """The type of an expression; None for an attribute, which each event decides."""
    if isinstance(node, Literal):
        return type(node.value)
    if isinstance(node, Attribute):
        return None
    if isinstance(node, FunctionCall):
        found = function_of(node)
        return None if found is None else found.made
    if isinstance(node, Unary):
        return bool if node.op == "NOT" else int
    if isinstance(node, Binary):
        return int if node.op in ("*", "/", "%", "+", "-") else bool
    return bool


def _shared(node: Expression) -> Column:
    """The attribute that has the value of an expression, where there is no error."""
    return Column(f"{MARK}cesql({literal(str(node))})")


def _holds(node: Expression, value: bool) -> Predicate:
    """The expression, as an operand of logic, has this value without error."""
    if isinstance(node, Literal) and isinstance(node.value, bool):
        return Truth(node.value is value)
    if isinstance(node, Unary) and node.op == "NOT":
        if _type(node.arg) is bool:
            return _holds(node.arg, not value)
        return Compare(_shared(node), "=", value)
    if isinstance(node, Present):
        absent = Truth(False) if node.name in ALWAYS_THERE else IsNull(Column(node.name))
        return _not(absent) if value else absent
    for kind, make in _FORMS:
        if isinstance(node, kind) and (made := make(node, value)) is not None:
            return made
    if _type(node) is bool:
        return Compare(_shared(node), "=", value)
    return Compare(_shared(Unary("NOT", node)), "=", not value)  # cast to Boolean


def _not(predicate: Predicate) -> Predicate:
    if isinstance(predicate, Truth):
        return Truth(not predicate.value)
    return predicate.arg if isinstance(predicate, Not) else Not(predicate)


# -- logic ----------------------------------------------------------------------------------------------


def _logic(node: Binary, value: bool) -> Predicate | None:
    if node.op == "XOR":
        sides = [(a, a is not value) for a in (True, False)]
        return _either([_both(_holds(node.left, a), _holds(node.right, b)) for a, b in sides])
    if node.op not in ("AND", "OR"):
        return None
    if node.op == "AND":
        if value:
            return _both(_holds(node.left, True), _holds(node.right, True))
        return _either([_holds(node.left, False), _both(_holds(node.left, True), _holds(node.right, False))])
    if not value:
        return _both(_holds(node.left, False), _holds(node.right, False))
    return _either([_holds(node.left, True), _both(_no_error(node.left), _holds(node.right, True))])


def _no_error(node: Expression) -> Predicate:
    """The expression, as an operand of logic, has a value without error."""
    if isinstance(node, Unary) and node.op == "NOT" and _type(node.arg) is bool:
        return _no_error(node.arg)
    if isinstance(node, Present) or (isinstance(node, Literal) and isinstance(node.value, bool)):
        return Truth(True)
    left = node.left if isinstance(node, Binary) else node.arg if isinstance(node, LikeTest) else None
    if isinstance(left, Attribute) and not _is_shared(node):
        return Not(IsNull(Column(left.name)))
    return _either([_holds(node, True), _holds(node, False)])


def _is_shared(node: Expression) -> bool:
    found = _holds(node, True)
    return not isinstance(found, Compare | LikeAtom) or found.column.name.startswith(MARK)


def _both(one: Predicate, other: Predicate) -> Predicate:
    if isinstance(one, Truth):
        return other if one.value else one
    if isinstance(other, Truth):
        return one if other.value else other
    return all_of([one, other])


def _either(parts: list[Predicate]) -> Predicate:
    if any(isinstance(part, Truth) and part.value for part in parts):
        return Truth(True)
    return any_of([part for part in parts if not isinstance(part, Truth)])


# -- conditions on one attribute --------------------------------------------------------------------------


def _comparison(node: Binary, value: bool) -> Predicate | None:
    if node.op not in _ORDERS or not isinstance(node.right, Literal):
        return None
    constant = node.right.value
    if isinstance(constant, bool):
        return None
    if isinstance(constant, str):
        if node.op not in ("=", "!="):
            return None
        return _is_text(node.left, constant, (node.op == "=") is value)
    op = node.op if value else _INVERSE[node.op]
    whole = node.left if _type(node.left) is int else FunctionCall("INT", (node.left,))
    return None if _type(node.left) is bool else Compare(_shared(whole), op, constant)


def _is_text(node: Expression, text: str, equal: bool) -> Predicate | None:
    """The expression, as String, is this text, or is another one."""
    if not isinstance(node, Attribute):
        whole = node if _type(node) is str else FunctionCall("STRING", (node,))
        return Compare(_shared(whole), "=" if equal else "!=", text)
    if _NUMBER_OR_TRUTH.fullmatch(text):
        return Compare(_shared(FunctionCall("STRING", (node,))), "=" if equal else "!=", text)
    where = Column(node.name)
    return Compare(where, "=", text) if equal else _other(where, Compare(where, "=", text))


def _other(where: Column, found: Predicate) -> Predicate:
    """There is a value, and it does not meet a condition."""
    return And((Not(is_true(found)), Not(IsNull(where))))


def _like(node: LikeTest, value: bool) -> Predicate | None:
    held = value is not node.negated
    words = re.findall(r"\\[%_]|.", node.pattern, re.DOTALL)
    pattern = "".join("\\\\" if word == "\\" else word for word in words)
    if not isinstance(node.arg, Attribute) or not _BEYOND.search(node.pattern):
        whole = node.arg if _type(node.arg) is str else FunctionCall("STRING", (node.arg,))
        where = _shared(whole)
    else:
        where = Column(node.arg.name)
    found = LikeAtom(where, pattern)
    return found if held else _other(where, found)


def _within(node: Within, value: bool) -> Predicate | None:
    if value is node.negated or not isinstance(node.arg, Attribute):
        return None
    texts = [one.value for one in node.among if isinstance(one, Literal) and isinstance(one.value, str)]
    if len(texts) < len(node.among) or any(_NUMBER_OR_TRUTH.fullmatch(text.lower()) for text in texts):
        return None
    where = Column(node.arg.name)
    return In(where, tuple(texts)) if len(texts) > 1 else Compare(where, "=", texts[0])


_FORMS: tuple[tuple[type, Callable[[Any, bool], Predicate | None]], ...] = (
    (Binary, _logic),
    (Binary, _comparison),
    (LikeTest, _like),
    (Within, _within),
)
