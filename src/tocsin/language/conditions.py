"""Conditions: from sqlglot's tree to our predicates, every name and type checked.

One side of a comparison is a column, the other a constant; AND, OR and NOT nest freely. What is computed from
columns is a column too (`expressions.py`), and a comparison of two columns one that is TRUE or FALSE.
Anything else is rejected at its position, with a hint what to write instead. `joins.py` removes comparisons
between tables first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import re2
from sqlglot import exp

from tocsin.language.algebra import (
    And,
    Between,
    Column,
    Compare,
    Ilike,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    Rlike,
    Truth,
    Value,
    is_true,
)
from tocsin.language.dialect import SourceText
from tocsin.language.expressions import ExpressionReader, is_computed, reject_chained
from tocsin.language.hints import condition_hint
from tocsin.language.literals import Constant, ConstantReader, name_of
from tocsin.language.nested import is_nested_node
from tocsin.language.ranges import kind_of
from tocsin.model.schema import Type

__all__ = ["ConditionReader", "check_like", "check_rlike", "operands", "unwrap"]

OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def unwrap(node: exp.Expr) -> exp.Expr:
    """The node without parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def operands(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """The operands of a chain of AND (or OR), left to right, without recursion."""
    found, stack = [], [node]
    while stack:
        top = unwrap(stack.pop())
        if isinstance(top, kind):
            stack += [top.args["expression"], top.this]
        else:
            found.append(top)
    return found


class ColumnNames(Protocol):
    """What conditions need of a `Scope`: the columns that nodes name."""

    @property
    def source(self) -> SourceText: ...

    def column(self, node: Any) -> Column: ...

    def nested(self, node: exp.Expr, literals: ConstantReader) -> Column | None:
        """The attribute of a node about something inside another one; None if none can be there."""


class ConditionReader:
    """Reads the conditions of one query."""

    def __init__(self, scope: ColumnNames, literals: ConstantReader) -> None:
        self.scope, self.literals, self.source = scope, literals, scope.source
        self.joint = False  # conditions may compute with columns of several tables

    def _reading(self, literals: ConstantReader) -> ConditionReader:
        """The same, with other constants."""
        made = copy(self)
        made.literals = literals
        return made

    def predicate(self, node: exp.Expr) -> Predicate:
        node = unwrap(node)
        if isinstance(node, exp.And | exp.Or):
            args = tuple(self.predicate(arg) for arg in operands(node, type(node)))
            return And(args) if isinstance(node, exp.And) else Or(args)
        if isinstance(node, exp.Not):
            return Not(self.predicate(node.this))
        if type(node) in OPERATORS:
            return self._compare(node)
        self._reject_variants(node)
        reader = _READERS.get(type(node))
        found = self._constant(node) if reader is None else reader(self, node)
        inner = node.this if isinstance(node, exp.Escape) else node
        return Not(found) if inner.args.get("negate") else found  # sqlglot: NOT LIKE is one node

    def _reject_variants(self, node: exp.Expr) -> None:
        """Reject variants that sqlglot parses and this dialect does not support."""
        known = type(node) in _READERS and not isinstance(node, exp.Column)
        if known and any(value for name, value in node.args.items() if name not in _PARTS):
            raise self.source.error("this form of condition is not supported", node, _KINDS)

    # -- comparisons -------------------------------------------------------------------------------

    def _compare(self, node: exp.Expr) -> Predicate:
        reject_chained(node, self.source)
        left, right, op = unwrap(node.this), unwrap(node.args["expression"]), OPERATORS[type(node)]
        a, b = self._side(left), self._side(right)
        if isinstance(a, Column) and isinstance(b, Column):
            if a.relation != b.relation and not self.joint:
                raise self.source.error(
                    "a condition between two tables must be combined with the others by AND", node,
                    "move it out of OR and NOT",
                )  # fmt: skip
            return self._computed(node)
        if isinstance(a, Constant):
            if isinstance(b, Constant):
                return self._fold(a, op, b)
            a, b, op = b, a, FLIPPED[op]
        assert isinstance(b, Constant)
        return Compare(a, op, self._value(b, a))

    def _side(self, node: exp.Expr) -> Column | Constant:
        """The column or the constant on one side of a condition."""
        constant = self.literals.read(node)
        if constant is not None:
            return constant
        computed = self._expression(node)
        return self._column(node) if computed is None else computed

    def _expression(self, node: exp.Expr) -> Column | Constant | None:
        """What a computed node stands for; None if it is a column."""
        inner = unwrap(node)
        if not is_computed(inner):
            return None
        return ExpressionReader(self.scope, self.literals, joint=self.joint).column(inner)

    def _computed(self, node: exp.Expr) -> Predicate:
        """A condition that is computed as a whole: the column that is TRUE where it holds."""
        found = ExpressionReader(self.scope, self.literals, joint=self.joint).column(node)
        if isinstance(found, Column):
            if found.type not in (Type.BOOLEAN, None):
                hint = "compare it with a constant"
                raise self.source.error(f"a condition is expected here, not a {found.type}", node, hint)
            return Compare(found, "=", True)
        if found.slot is not None:
            hint = "leave the condition out, or write the values"
            raise self.source.error("a condition of parameters alone is not supported", node, hint)
        if found.value is None or isinstance(found.value, bool):
            return Truth(found.value)
        raise self.source.error("a condition is expected here, not a value", node, _ONE_COLUMN)

    def _same(self, node: exp.Expr) -> Predicate:
        """`<=>`: as `=`, but that NULL is equal to NULL, and never unknown."""
        plain = self._reading(replace(self.literals, trace=False))  # `is_true` looks at values
        sides = [plain._side(unwrap(node.args[part])) for part in ("this", "expression")]
        columns = [side for side in sides if isinstance(side, Column)]
        constants = [side for side in sides if isinstance(side, Constant)]
        if len(columns) != 1:
            return self._computed(node)
        found: Predicate = IsNull(columns[0])
        if constants[0].value is not None:
            found = is_true(Compare(columns[0], "=", plain._value(constants[0], columns[0])))
        return Not(found) if isinstance(node, exp.NullSafeNEQ) else found

    def _fold(self, a: Constant, op: str, b: Constant) -> Truth:
        """Compare two constants at parse time."""
        x, y = a.value, b.value
        if x is None or y is None:
            return Truth(None)
        if kind_of(x) != kind_of(y) or (kind_of(x) == "time" and type(x) is not type(y)):
            hint = "one side should be a column; names are quoted with backticks, not with quotes"
            whole = self.source.at(a.node.parent_select and _comparison(a.node))
            raise self.source.error(f"a {name_of(x)} cannot be compared with a {name_of(y)}", whole, hint)
        equal = x == y or (x != x and y != y)
        less = not equal and (y != y or (x == x and x < y))  # type: ignore[operator]  # NaN is above all
        answers = {"=": equal, "!=": not equal, "<": less, "<=": less or equal}
        return Truth(answers[op] if op in answers else not answers[{">": "<=", ">=": "<"}[op]])

    def _column(self, node: exp.Expr) -> Column:
        """The column on one side of a condition; raises for anything else."""
        inner = unwrap(node)
        if is_nested_node(inner) and (nested := self.scope.nested(inner, self.literals)) is not None:
            return nested
        if isinstance(inner, exp.Identifier):  # the element of an exists
            return self.scope.column(inner)
        if isinstance(inner, exp.Column) and not isinstance(inner.this, exp.Star):
            return self.scope.column(inner)
        computed = self._expression(inner)
        if isinstance(computed, Column):
            return computed
        if computed is not None:
            raise self.source.error("a column is expected here, not a constant", inner, _ONE_COLUMN)
        for kinds, fact, hint in _REJECTED:
            if isinstance(inner, kinds):
                raise self.source.error(fact, inner, hint if isinstance(hint, str) else hint(inner))
        raise self.source.error("a condition compares a column with a constant", inner, _ONE_COLUMN)

    def _operand(self, node: exp.Expr, column: Column) -> Value:
        """The constant beside a column."""
        constant = self._side(unwrap(node))
        assert isinstance(constant, Constant)
        return self._value(constant, column)

    def _are_constants(self, nodes: Iterable[exp.Expr]) -> bool:
        return all(isinstance(self._side(unwrap(node)), Constant) for node in nodes)

    def _value(self, constant: Constant, column: Column) -> Value:
        kept: Value = self.literals.keep(self.literals.fits(constant, column))
        return kept

    def _between(self, node: exp.Expr) -> Predicate:
        if node.args.get("symmetric"):
            raise self.source.error(
                "BETWEEN SYMMETRIC is not supported", node, "write the smaller bound first"
            )
        if isinstance(self._side(unwrap(node.this)), Constant) or not self._are_constants(
            [node.args["low"], node.args["high"]]
        ):
            return self._computed(node)
        column = self._column(node.this)
        return Between(
            column, self._operand(node.args["low"], column), self._operand(node.args["high"], column)
        )

    def _in(self, node: exp.Expr) -> Predicate:
        if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
            raise self.source.error("IN takes a list of constants", node, "subqueries are not supported")
        if not node.expressions:
            raise self.source.error("IN needs at least one value", node, "write IN (value, ...)")
        if isinstance(self._side(unwrap(node.this)), Constant) or not self._are_constants(node.expressions):
            return self._computed(node)
        column = self._column(node.this)
        return In(column, tuple(self._operand(value, column) for value in node.expressions))

    # -- patterns ----------------------------------------------------------------------------------

    def _like(self, node: exp.Expr) -> Predicate:
        return self._pattern(node, check_like, Like)

    def _ilike(self, node: exp.Expr) -> Predicate:
        return self._pattern(node, check_like, Ilike)

    def _escape(self, node: exp.Expr) -> Predicate:
        """`LIKE pattern ESCAPE c`: the same pattern with backslashes."""
        mark = self.literals.read(node.args["expression"])
        if (
            not isinstance(node.this, exp.Like | exp.ILike)
            or mark is None
            or not isinstance(mark.value, str)
            or len(mark.value) != 1
        ):
            raise self.source.error("ESCAPE takes one character", node, "or use a backslash, and no ESCAPE")
        character = mark.value
        make = Like if isinstance(node.this, exp.Like) else Ilike
        return self._pattern(node.this, lambda pattern: check_like(_with_backslash(pattern, character)), make)

    def _rlike(self, node: exp.Expr) -> Predicate:
        if node.args.get("flag"):
            raise self.source.error("RLIKE takes no flags", node, "write (?i) at the start of the pattern")
        return self._pattern(node, check_rlike, Rlike)

    def _pattern(
        self, node: exp.Expr, check: Callable[[str], str], make: type[Like] | type[Ilike] | type[Rlike]
    ) -> Predicate:
        word, right = make.__name__.upper(), node.args["expression"]
        if isinstance(self._side(unwrap(node.this)), Constant):
            return self._computed(node)
        column = self._column(node.this)
        if column.type not in (Type.STRING, None):
            raise self.source.error(
                f"{word} is for text, and {column} is a {column.type}", node, "compare with = < >"
            )
        if isinstance(right, exp.Any | exp.All | exp.Tuple):
            raise self.source.error(f"{word} takes one pattern in quotes", right, "join several by OR")
        constant = self._side(unwrap(right))
        if isinstance(constant, Column):
            return self._computed(node)
        if constant.value is None:
            return Compare(column, "=", None)  # unknown, like every comparison with NULL
        if not isinstance(constant.value, str):
            raise self.source.error(
                f"{word} takes a pattern in quotes", right, f"write {word} '{constant.value}'"
            )
        try:
            return make(column, self.literals.keep(constant.then(_checked(check))))
        except ValueError as error:
            hint = "RLIKE takes RE2 patterns" if make is Rlike else "double the last backslash"
            raise self.source.error(f"the pattern is not valid: {error}", right, hint) from None

    # -- the rest ----------------------------------------------------------------------------------

    def _is(self, node: exp.Expr) -> Predicate:
        if _is_missing(node.args["expression"]):
            return IsNull(self._typeof(node))
        if isinstance(node.args["expression"], exp.Boolean):
            constants = replace(self.literals, trace=False)  # `is_true` looks at values
            inner = self._reading(constants).predicate(node.this)
            return is_true(inner if node.args["expression"].this else Not(inner))
        if not isinstance(node.args["expression"], exp.Null):
            raise self.source.error("IS takes NULL, TRUE or FALSE here", node, "write = to compare")
        known = self._side(unwrap(node.this))
        return IsNull(known) if isinstance(known, Column) else Truth(known.value is None)

    def _typeof(self, node: exp.Expr) -> Column:
        """The attribute that is there whatever an attribute of an open stream holds."""
        typed = self.scope.nested(exp.Typeof(this=unwrap(node.this)), self.literals)
        if typed is None:
            fact = "IS MISSING is for attributes of open streams"
            raise self.source.error(fact, node, "a column is never missing: write IS NULL")
        return typed

    def _truth(self, node: exp.Expr) -> Predicate:
        found = self._as_pattern(node)
        if found is not None:
            return found
        if is_computed(node):
            return self._computed(node)
        column = self._column(node)
        if column.type not in (Type.BOOLEAN, None):
            raise self.source.error(
                f"{column} is a {column.type}; only a BOOLEAN is a condition by itself",
                node,
                "compare it with a constant",
            )
        return Compare(column, "=", True)

    def _as_pattern(self, node: exp.Expr) -> Predicate | None:
        """`startswith`, `endswith` and `contains` of a column and a constant, as LIKE."""
        if not isinstance(node, exp.Anonymous) or len(node.expressions) != 2 or is_nested_node(node):
            return None
        form = _PATTERNS.get(str(node.this).lower())
        if form is None:
            return None
        column, wanted = (self._side(unwrap(arg)) for arg in node.expressions)
        if not isinstance(column, Column) or not isinstance(wanted, Constant):
            return None
        if column.type not in (Type.STRING, None) or not isinstance(wanted.value, str):
            return None
        return Like(column, self.literals.keep(wanted.then(form)))

    def _exists(self, node: exp.Expr) -> Predicate:
        return Compare(self._column(node), "=", True)

    def _constant(self, node: exp.Expr) -> Predicate:
        constant = self.literals.read(node)
        if constant is None:
            if isinstance(node, exp.Predicate) and not isinstance(node, _NAMED) and not is_computed(node):
                raise self.source.error("this condition is not supported", node, _KINDS)
            if is_computed(node):
                return self._computed(node)
            self._column(node)  # raises with a specific message
        elif constant.value is None or isinstance(constant.value, bool):
            return Truth(constant.value)
        raise self.source.error("a condition is expected here, not a value", node, _ONE_COLUMN)


_READERS: dict[type[exp.Expr], Callable[[ConditionReader, exp.Expr], Predicate]] = {
    exp.Between: ConditionReader._between,
    exp.In: ConditionReader._in,
    exp.Like: ConditionReader._like,
    exp.ILike: ConditionReader._ilike,
    exp.Escape: ConditionReader._escape,
    exp.RegexpLike: ConditionReader._rlike,
    exp.Is: ConditionReader._is,
    exp.Column: ConditionReader._truth,
    exp.Identifier: ConditionReader._truth,
    exp.Dot: ConditionReader._truth,
    exp.Bracket: ConditionReader._truth,
    exp.Exists: ConditionReader._exists,
    exp.Anonymous: ConditionReader._truth,
    exp.ArrayContains: ConditionReader._exists,
    exp.NullSafeEQ: ConditionReader._same,
    exp.NullSafeNEQ: ConditionReader._same,
}
_KINDS = "conditions are = != < <= > >=, BETWEEN, IN, LIKE, ILIKE, RLIKE, IS NULL, and their NOT"
_NAMED = (exp.NullSafeEQ, exp.NullSafeNEQ, exp.Exists)
_PARTS = {
    "this",
    "expression",
    "expressions",
    "low",
    "high",
    "negate",
    "symmetric",
    "query",
    "unnest",
    "field",
}
_ONE_COLUMN = "write: column operator constant"
_REJECTED: tuple[tuple[tuple[type[exp.Expr], ...], str, str | Callable[[exp.Expr], str]], ...] = (
    (
        (exp.Exists, exp.Subquery, exp.Select, exp.SetOperation),
        "subqueries are not supported",
        "join the tables instead",
    ),
    ((exp.Window,), "window functions are not supported", "compare columns with constants"),
    (
        (exp.AggFunc,),
        "an aggregate is not supported in a condition",
        "compare it in HAVING, after GROUP BY",
    ),
    ((exp.Tuple,), "rows of values cannot be compared", "compare the columns one by one"),
    (
        (exp.Dot, exp.Bracket),
        "parts of a column are not supported",
        "put a name with a dot in it in backticks",
    ),
    ((exp.Predicate, exp.Connector, exp.Not), "a condition cannot be compared", condition_hint),
)


@dataclass(frozen=True, slots=True)
class _LikeText:
    """A step: the pattern for texts that begin or end with a text, or contain it."""

    before: str
    after: str

    def __call__(self, value: Value) -> Value:
        if not isinstance(value, str):
            raise ValueError("it is not text")
        return self.before + re.sub(r"([%_\\])", r"\\\1", value) + self.after


_PATTERNS = {
    "startswith": _LikeText("", "%"),
    "endswith": _LikeText("%", ""),
    "contains": _LikeText("%", "%"),
}


def _is_missing(node: exp.Expr) -> bool:
    """Whether a node is the word MISSING."""
    return isinstance(node, exp.Column) and not node.args.get("table") and node.name.upper() == "MISSING"


def _comparison(node: exp.Expr) -> exp.Expr:
    while type(node) not in OPERATORS and node.parent is not None:
        node = node.parent
    return node


def _checked(check: Callable[[str], str]) -> Callable[[Value], Value]:
    def step(value: Value) -> Value:
        if not isinstance(value, str):
            raise ValueError("it is not text")
        return check(value)

    return step


def check_like(pattern: str) -> str:
    """Return the pattern; ValueError if it ends in a single backslash.

    >>> check_like("50\\\\%")
    '50\\\\%'
    """
    backslashes = len(pattern) - len(pattern.rstrip("\\"))
    if backslashes % 2:
        raise ValueError("it ends in a backslash")
    return pattern


def _with_backslash(pattern: str, mark: str) -> str:
    out, i = [], 0
    while i < len(pattern):
        char = pattern[i]
        if char == mark:
            if i + 1 == len(pattern):
                raise ValueError("it ends in the escape character")
            i += 1
            out.append("\\" + pattern[i] if pattern[i] in "%_\\" else pattern[i])
        else:
            out.append("\\\\" if char == "\\" else char)
        i += 1
    return "".join(out)


@lru_cache(maxsize=4096)
def check_rlike(pattern: str) -> str:
    """Return the pattern; ValueError with RE2's message if it is not valid.

    >>> check_rlike("(ab")
    Traceback (most recent call last):
    ...
    ValueError: missing ): (ab
    """
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        raise ValueError(reason.decode() if isinstance(reason, bytes) else str(reason)) from None
    return pattern
