"""Expressions: from sqlglot's tree to trees over columns (`model/expressions`), every type checked.

    price * qty > 100          the derived column `price * qty`, compared with a constant
    lower(name) = old_name     the derived column `lower(name) = old_name`, which is true
    price > 10 * 2             a constant: 20

An expression is about the columns of one table; its constants are folded. It becomes a `Column` whose name
stands for it, so every operator and every room takes it.

>>> print(read_expression("(price*qty) + 2*3"))
price * qty + 6
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, NoReturn, Protocol

from sqlglot import exp

from tocsin.language.algebra import JOINT, Column, Value, joint_name
from tocsin.language.dialect import SourceText, read
from tocsin.language.hints import nearest
from tocsin.language.intervals import interval_of
from tocsin.language.literals import DIGITS_HINT, Constant, ConstantReader, Slot, cast_type
from tocsin.language.nested import is_nested_node
from tocsin.model.columns import stored
from tocsin.model.decimals import value_of_units
from tocsin.model.expressions.casts import SIZES
from tocsin.model.expressions.derived import remember
from tocsin.model.expressions.names import COMPUTED_NAMES
from tocsin.model.expressions.overloads import INTERVAL
from tocsin.model.expressions.tree import CallNode, ConstantNode, Expression, Interval, Ref, name_of, refs_of
from tocsin.model.expressions.typed import (
    ANY,
    COMPARISONS,
    Typed,
    compute,
    constant,
    resolve,
    typed_call,
)
from tocsin.model.paths import is_exists
from tocsin.model.schema import Type

__all__ = ["ExpressionReader", "is_computed", "read_expression", "reject_chained"]

_Read = tuple[Expression, Typed]


class ExpressionNames(Protocol):
    """What expressions need of a `Scope`: the columns that nodes name."""

    @property
    def source(self) -> SourceText: ...

    def column(self, node: Any) -> Column: ...

    def nested(self, node: exp.Expr, literals: ConstantReader) -> Column | None: ...


_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "div", exp.Mod: "%",
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "<=>", exp.And: "and", exp.Or: "or", exp.DPipe: "concat",
    exp.Like: "like", exp.ILike: "ilike", exp.RegexpLike: "rlike",
}  # fmt: skip
_CALLS: dict[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.Substring: ("substring", ("this", "start", "length")),
    exp.StrPosition: ("locate", ("substr", "this", "position")),
}
_PARTS = {
    "year": "year", "years": "year", "y": "year", "quarter": "quarter", "qtr": "quarter", "month": "month",
    "mon": "month", "months": "month", "week": "weekofyear", "weeks": "weekofyear", "w": "weekofyear",
    "day": "day", "days": "day", "d": "day", "dayofweek": "dayofweek", "dow": "dayofweek",
    "dayofweek_iso": "dow_iso", "doy": "dayofyear", "hour": "hour", "hours": "hour", "h": "hour",
    "minute": "minute", "minutes": "minute", "m": "minute", "min": "minute", "mins": "minute",
    "second": "second", "seconds": "second", "s": "second", "sec": "second", "yearofweek": "yearofweek",
}  # fmt: skip
_WITH_UNIT = ("timestampdiff", "timestampadd")
_NAMES = COMPUTED_NAMES
_NOW = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.CurrentDatetime)
_NOW_HINT = "write the time itself, as in TIMESTAMP '2025-12-31 23:59:59'"
_EXPRESSIONS = (
    *_BINARY, *_CALLS, exp.Paren, exp.Neg, exp.Not, exp.Cast, exp.Concat, exp.Case, exp.If, exp.Anonymous,
    exp.Between,     exp.In, exp.Is, exp.Extract, exp.Trim, exp.Interval, exp.NullSafeNEQ, exp.Escape, *_NOW,
)  # fmt: skip


def is_computed(node: exp.Expr) -> bool:
    """Whether a node is computed: an operator or a function, and no column, constant, or path."""
    if is_nested_node(node):
        return False
    return isinstance(node, _EXPRESSIONS) or (
        isinstance(node, exp.Func) and not isinstance(node, exp.AggFunc)
    )


def reject_chained(node: exp.Expr, source: SourceText) -> None:
    """Raise for a comparison of a comparison that has no parentheses: `1 < x < 5`, `a > 5 || b < 3`."""
    inner = node.this
    if _BINARY.get(type(node)) in COMPARISONS and _BINARY.get(type(inner)) in COMPARISONS:
        piped = inner.find(exp.DPipe) is not None
        hint = "between conditions, write OR" if piped else "join conditions by AND"
        raise source.error("a condition cannot be compared", inner, hint)


@dataclass(frozen=True, slots=True)
class _Folded:
    """A step of a slot: the constant that an expression of one parameter is."""

    tree: Expression

    def __call__(self, value: Value) -> Value:
        return _plain(*_computed(_with_value(self.tree, value)))


class ExpressionReader:
    """Reads the expressions of one query."""

    def __init__(self, scope: ExpressionNames, literals: ConstantReader, *, joint: bool = False) -> None:
        self.scope, self.source, self.literals = scope, scope.source, literals
        self.joint = joint  # an expression may be about columns of several tables

    def column(self, node: exp.Expr) -> Column | Constant:
        """The column that stands for an expression; or a constant, if it has no column."""
        tree, typed = self.read(node)
        columns = [ref for ref in refs_of(tree) if isinstance(ref, _ColumnRef)]
        if not columns:
            return self._constant(tree, node)
        if typed.kind == INTERVAL:
            hint = "add it to a time; of two times write timestampdiff(SECOND, start, end)"
            self._reject("an interval is no value of a row", node, hint)
        tree = _replaced(tree, lambda ref: ConstantNode(ref.value) if isinstance(ref, _Parameter) else ref)
        relations = {ref.relation for ref in columns}
        if len(relations) > 1 and self.joint:
            return self._over_tables(tree, typed, columns)
        if len(relations) > 1:
            hint = "compute a part of each table by itself, and compare the parts"
            self._reject("an expression is about the columns of one table", node, hint)
        own = _unqualified(tree)
        refs = refs_of(own)
        known = {ref.name: ref.column.type for ref in columns}
        kinds = tuple(kind for ref in refs if (kind := known[ref.name]) is not None)
        name = name_of(own, kinds)
        remember(name, own)
        return Column(name, typed.kind if isinstance(typed.kind, Type) and kinds else None, relations.pop())

    def _over_tables(self, tree: Expression, typed: Typed, columns: Sequence[_ColumnRef]) -> Column:
        """The column of joined rows that stands for an expression over several tables."""
        own = _replaced(tree, _joint_ref)
        known = {joint_name(ref.column): ref.column.type for ref in columns}
        kinds = tuple(kind for ref in refs_of(own) if (kind := known[ref.name]) is not None)
        name = name_of(own, kinds)
        remember(name, own)
        return Column(name, typed.kind if isinstance(typed.kind, Type) else None, JOINT)

    def derived(self, node: exp.Expr, hint: str) -> Column:
        """The column that stands for an expression; a constant is rejected."""
        found = self.column(node)
        if isinstance(found, Constant):
            self._reject("a column is expected here, not a constant", node, hint)
        return found

    def read(self, node: exp.Expr) -> _Read:
        """The tree of an expression, with its type."""
        if isinstance(node, exp.Paren):
            return self.read(node.this)
        number = isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal)
        plain = isinstance(node, exp.Literal | exp.RawString | exp.Null | exp.Boolean)
        if plain or number or type(node) is exp.Cast:
            found = replace(self.literals, trace=False).read(node)
            kind = cast_type(node) if type(node) is exp.Cast else None
            if found is not None and kind is not None and (found.value is None or kind.is_decimal):
                return _typed_constant(kind, found.value)
            if found is not None:
                return self._leaf(found.value, node)
        if isinstance(node, exp.Placeholder):
            return self._parameter(node)
        if isinstance(node, exp.Interval):
            value = interval_of(node, self.source)
            return ConstantNode(value), constant(value)
        if is_nested_node(node) and (nested := self.scope.nested(node, self.literals)) is not None:
            return self._ref(nested, node)
        if isinstance(node, exp.Column | exp.Identifier) and not isinstance(node.this, exp.Star):
            return self._ref(self.scope.column(node), node)
        return self._operation(node)

    # -- leaves ------------------------------------------------------------------------------------

    def _leaf(self, value: Any, node: exp.Expr) -> _Read:
        try:
            return ConstantNode(value), constant(value)
        except ValueError as error:
            raise self.source.error(str(error), node, "write a DOUBLE: 1e300") from None

    def _parameter(self, node: exp.Placeholder) -> _Read:
        found = replace(self.literals, trace=False).read(node)
        assert found is not None
        if self.literals.trace:
            return _Parameter(str(node.this), "", found.value), constant(found.value)
        return self._leaf(found.value, node)

    def _ref(self, column: Column, node: exp.Expr) -> _Read:
        if is_exists(column.name):
            self._reject(
                "exists cannot stand inside an expression", node, "write it as a condition beside AND"
            )
        kind = ANY if column.type is None else column.type
        return _ColumnRef(column.name, column.relation, column), Typed(kind, place=0)

    # -- calls -------------------------------------------------------------------------------------

    def _call(self, name: str, args: Sequence[_Read], node: exp.Expr, into: str = "") -> _Read:
        call = CallNode(name, tuple(tree for tree, _ in args), into)
        if name in ("+", "-") and all(typed.kind == INTERVAL for _, typed in args):
            return self._interval_sum(name, args)
        try:
            typed = typed_call(call, [typed for _, typed in args])
        except ValueError as error:
            if isinstance(self.scope, _AnyNames):  # it was taken once, of columns with types
                return call, Typed(ANY, _not_yet, tuple(typed for _, typed in args), name=name)
            raise self.source.error(str(error), node, self._type_hint(name)) from None
        if all(typed.is_constant for _, typed in args) and not any(
            isinstance(ref, _Parameter) for ref in refs_of(call)
        ):
            value = _plain(typed.kind, compute(typed, ()))
            if isinstance(typed.kind, Type) and (value is None or typed.kind.is_decimal):
                return _typed_constant(typed.kind, value)
            return ConstantNode(value), constant(value) if value is not None else Typed(typed.kind)
        return call, typed

    def _interval_sum(self, name: str, args: Sequence[_Read]) -> _Read:
        one, other = (typed.value for _, typed in args)
        sign = 1 if name == "+" else -1
        value = Interval(*(a + sign * b for a, b in zip(one, other, strict=True)))
        return ConstantNode(value), constant(value)

    def _type_hint(self, name: str) -> str:
        return _HINTS.get(name) or "convert a part with CAST(... AS type)"

    def _operation(self, node: exp.Expr) -> _Read:  # noqa: RET503  (`_reject` raises)
        if type(node) in _BINARY:
            return self._binary(node)
        for kinds, method in _METHODS:
            if isinstance(node, kinds):
                found: _Read = getattr(self, method)(node)
                return found
        if type(node) in _CALLS:
            name, parts = _CALLS[type(node)]
            given = [node.args[part] for part in parts if node.args.get(part) is not None]
            return self._call(name, [self.read(arg) for arg in given], node)
        if isinstance(node, _NOW):
            self._reject("the current time is not a constant of a subscription", node, _NOW_HINT)
        if isinstance(node, exp.AggFunc):
            hint = "compute with it where the answer is read"
            self._reject("an aggregate cannot stand inside an expression", node, hint)
        if isinstance(node, exp.Func):
            name = node.sql_name().lower()
            self._reject(
                f"there is no function {name}", node, nearest(name, sorted(_NAMES)) or _FUNCTION_HINT
            )
        self._reject("this cannot stand in an expression", node, "write columns, constants and functions")

    def _binary(self, node: exp.Expr) -> _Read:
        name = _BINARY[type(node)]
        reject_chained(node, self.source)
        if name in ("and", "or", "+", "*", "concat", "-"):
            chain = self._chain(node)
            found = self.read(chain[0])
            if name in ("and", "or", "concat"):
                return self._call(name, [found, *(self.read(arg) for arg in chain[1:])], node)
            for arg in chain[1:]:
                found = self._call(name, [found, self.read(arg)], node)
            return found
        found = self._call(name, [self.read(node.this), self.read(node.args["expression"])], node)
        return self._negated(found, node)

    def _chain(self, node: exp.Expr) -> list[exp.Expr]:
        """The operands of operators of one kind in a row, from the left, without recursion."""
        right: list[exp.Expr] = []
        kind = type(node)
        while type(node) is kind:
            right.append(node.args["expression"])
            node = node.this
        return [node, *reversed(right)]

    def _negated(self, found: _Read, node: exp.Expr) -> _Read:
        return self._call("not", [found], node) if node.args.get("negate") else found

    def _not(self, node: exp.Not) -> _Read:
        return self._call("not", [self.read(node.this)], node)

    def _neg(self, node: exp.Neg) -> _Read:
        return self._call("neg", [self.read(node.this)], node)

    def _distinct_from(self, node: exp.NullSafeNEQ) -> _Read:
        both = [self.read(node.this), self.read(node.args["expression"])]
        return self._call("not", [self._call("<=>", both, node)], node)

    def _between(self, node: exp.Between) -> _Read:
        own, low, high = (self.read(node.args[part]) for part in ("this", "low", "high"))
        ends = [self._call(">=", [own, low], node), self._call("<=", [own, high], node)]
        return self._negated(self._call("and", ends, node), node)

    def _in(self, node: exp.In) -> _Read:
        if not node.expressions:
            self._reject("IN takes a list of values here", node, "write IN (value, ...)")
        args = [self.read(arg) for arg in (node.this, *node.expressions)]
        return self._negated(self._call("in", args, node), node)

    def _is(self, node: exp.Is) -> _Read:
        what = node.args["expression"]
        name = {exp.Null: "isnull"}.get(type(what))
        if isinstance(what, exp.Boolean):
            name = "istrue" if what.this else "isfalse"
        if name is None:
            self._reject("IS takes NULL, TRUE or FALSE here", node, "write = to compare")
        return self._call(name, [self.read(node.this)], node)

    def _cast(self, node: exp.Cast) -> _Read:
        target, known = node.args.get("to"), cast_type(node)
        word = target.this.value if isinstance(target, exp.DataType) else ""
        into = word if word in SIZES else "" if known is None else str(known)
        if not into:
            hint = "types are BIGINT, INT, DOUBLE, DECIMAL(p,s), STRING, BOOLEAN, DATE, TIMESTAMP"
            hint = DIGITS_HINT if word == "DECIMAL" else hint
            self._reject(f"CAST to {target} is not supported", node, hint)
        name = "try_cast" if node.args.get("safe") else "cast"
        return self._call(name, [self.read(node.this)], node, into)

    def _case(self, node: exp.Case) -> _Read:
        parts: list[_Read] = []
        for branch in node.args["ifs"]:
            when = self.read(branch.this)
            if node.this is not None:
                when = self._call("=", [self.read(node.this), when], branch)
            parts += [when, self.read(branch.args["true"])]
        other = node.args.get("default")
        parts.append((ConstantNode(None), constant(None)) if other is None else self.read(other))
        return self._call("case", parts, node)

    def _if(self, node: exp.If) -> _Read:
        other = node.args.get("false")
        last = (ConstantNode(None), constant(None)) if other is None else self.read(other)
        return self._call("case", [self.read(node.this), self.read(node.args["true"]), last], node)

    def _extract(self, node: exp.Extract) -> _Read:
        return self._part(str(node.this.name), self.read(node.args["expression"]), node)

    def _part(self, part: str, time: _Read, node: exp.Expr) -> _Read:
        name = _PARTS.get(part.lower())
        if name is None:
            self._reject(f"{part} is no part of a time", node, nearest(part.lower(), sorted(_PARTS)))
        if name == "dow_iso":
            return self._call("+", [self._call("weekday", [time], node), self._leaf(1, node)], node)
        return self._call(name, [time], node)

    def _trim(self, node: exp.Trim) -> _Read:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), "btrim")
        given = [self.read(node.this)]
        if node.args.get("expression") is not None:  # the characters; LTRIM and RTRIM take them first
            given.insert(int(name == "btrim"), self.read(node.args["expression"]))
        return self._call("trim" if name == "btrim" and len(given) == 1 else name, given, node)

    def _adjacent(self, node: exp.Concat) -> _Read:
        """Texts in quotes, one beside the other."""
        return self._call("concat", [self.read(arg) for arg in node.expressions], node)

    def _escape(self, node: exp.Escape) -> NoReturn:
        self._reject("ESCAPE is not supported in an expression", node, "escape with a backslash")

    # -- functions ---------------------------------------------------------------------------------

    def _function(self, node: exp.Anonymous) -> _Read:
        name = str(node.this).lower()
        if name not in _NAMES:
            if name in ("now", "current_timestamp", "current_date", "getdate", "curdate"):
                self._reject("the current time is not a constant of a subscription", node, _NOW_HINT)
            hint = nearest(name, sorted(_NAMES)) or _FUNCTION_HINT
            self._reject(f"there is no function {name}", node, hint)
        nodes = list(node.expressions)
        if name in _WITH_UNIT or (
            name in ("datediff", "dateadd", "date_diff", "date_add") and len(nodes) == 3
        ):
            name = "timestampdiff" if "diff" in name else "timestampadd"
            return self._call(name, [self._unit(nodes[0]), *map(self.read, nodes[1:])], node)
        args = [self.read(arg) for arg in nodes]
        special = _DESUGARED.get(name)
        if special is None:
            return self._call(name, args, node)
        counts, make = special
        if len(args) not in counts:
            known = " or ".join(map(str, counts))
            self._reject(f"{name} takes {known} arguments, not {len(args)}", node, "see docs/sql.md")
        return make(self, args, node)

    def _unit(self, node: exp.Expr) -> _Read:
        word = node.name if isinstance(node, exp.Column | exp.Var | exp.Identifier | exp.Literal) else ""
        if not word:
            self._reject("a unit of time is expected here", node, "write SECOND, MINUTE, HOUR, DAY, MONTH")
        return self._leaf(word.upper(), node)

    # -- constants ---------------------------------------------------------------------------------

    def _constant(self, tree: Expression, node: exp.Expr) -> Constant:
        parameters = [ref for ref in refs_of(tree) if isinstance(ref, _Parameter)]
        if not parameters:
            value = tree.value if isinstance(tree, ConstantNode) else _plain(*_computed(tree))
            if isinstance(value, Interval):
                hint = "compare with DATE '...' or TIMESTAMP '...', or add it to a time"
                self._reject("an interval is no value of a row", node, hint)
            return Constant(value, node)
        if len({ref.name for ref in parameters}) > 1:
            hint = "compute the value, and give it as one parameter"
            self._reject("a value is computed from one parameter at most", node, hint)
        folded = _Folded(_generalised(tree))
        return Constant(folded(parameters[0].value), node, Slot(parameters[0].name, (folded,)))

    def _reject(self, fact: str, node: exp.Expr, hint: str | None) -> NoReturn:
        raise self.source.error(fact, node, hint)


@dataclass(frozen=True, slots=True)
class _ColumnRef(Ref):
    """A column with its type."""

    column: Column = field(default_factory=lambda: Column(""))


@dataclass(frozen=True, slots=True)
class _Parameter(Ref):
    """A parameter of a template, with its value in the row that is parsed."""

    value: Any = None


def _joint_ref(ref: Ref) -> Expression:
    assert isinstance(ref, _ColumnRef)
    return Ref(joint_name(ref.column))


def _unqualified(tree: Expression) -> Expression:
    """The tree over columns without their table."""
    return _replaced(tree, lambda ref: Ref(ref.name))


def _generalised(tree: Expression) -> Expression:
    return _replaced(tree, lambda ref: Ref(""))


def _with_value(tree: Expression, value: Any) -> Expression:
    return _replaced(tree, lambda ref: ConstantNode(value))


def _replaced(tree: Expression, of: Callable[[Ref], Expression]) -> Expression:
    if isinstance(tree, Ref):
        return of(tree)
    if isinstance(tree, CallNode):
        return CallNode(tree.name, tuple(_replaced(arg, of) for arg in tree.args), tree.into)
    return tree


def _computed(tree: Expression) -> tuple[Any, Any]:
    typed = resolve(_replaced(tree, _value_of), {})
    return typed.kind, compute(typed, ())


def _value_of(ref: Ref) -> Expression:
    assert isinstance(ref, _Parameter)
    return ConstantNode(ref.value)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _typed_constant(kind: Type, value: Any) -> _Read:
    """NULL, or a DECIMAL, of a type that the type of the expression may depend on."""
    text = None if value is None else f"{value:f}"
    own = None if value is None else stored(kind, value)
    return CallNode("cast", (ConstantNode(text),), str(kind)), Typed(kind, value=own)


def _plain(kind: Any, value: Any) -> Any:
    """A stored value as SQL text has it."""
    if value is None:
        return None
    if kind is Type.DATE:
        return date(1970, 1, 1) + timedelta(days=value)
    if isinstance(kind, Type) and kind.is_decimal:
        return value_of_units(value, kind.scale)
    return _EPOCH + timedelta(microseconds=value) if kind is Type.TIMESTAMP else value


def _nullif(reader: ExpressionReader, args: list[_Read], node: exp.Expr) -> _Read:
    none = ConstantNode(None), constant(None)
    return reader._call("case", [reader._call("=", args, node), none, args[0]], node)


def _nvl2(reader: ExpressionReader, args: list[_Read], node: exp.Expr) -> _Read:
    return reader._call("case", [reader._call("isnull", args[:1], node), args[2], args[1]], node)


def _date_part(reader: ExpressionReader, args: list[_Read], node: exp.Expr) -> _Read:
    part = args[0][0]
    if not isinstance(part, ConstantNode) or not isinstance(part.value, str):
        reader._reject("date_part takes the name of a part first", node, "write date_part('HOUR', time)")
    return reader._part(part.value, args[1], node)


def _is_not_null(reader: ExpressionReader, args: list[_Read], node: exp.Expr) -> _Read:
    return reader._call("not", [reader._call("isnull", args, node)], node)


_Make = Callable[[ExpressionReader, list[_Read], exp.Expr], _Read]
_DESUGARED: dict[str, tuple[tuple[int, ...], _Make]] = {
    "nullif": ((2,), _nullif),
    "nvl": ((2,), lambda reader, args, node: reader._call("coalesce", args, node)),
    "ifnull": ((2,), lambda reader, args, node: reader._call("coalesce", args, node)),
    "nvl2": ((3,), _nvl2),
    "isnull": ((1,), lambda reader, args, node: reader._call("isnull", args, node)),
    "isnotnull": ((1,), _is_not_null),
    "date_part": ((2,), _date_part),
    "datepart": ((2,), _date_part),
}
_METHODS: tuple[tuple[Any, str], ...] = (
    (exp.Not, "_not"), (exp.Neg, "_neg"), (exp.NullSafeNEQ, "_distinct_from"), (exp.Between, "_between"),
    (exp.In, "_in"), (exp.Is, "_is"), (exp.Cast, "_cast"), (exp.Case, "_case"), (exp.If, "_if"),
    (exp.Extract, "_extract"), (exp.Concat, "_adjacent"), (exp.Trim, "_trim"), (exp.Escape, "_escape"),
    (exp.Anonymous, "_function"),
)  # fmt: skip
_FUNCTION_HINT = "docs/sql.md lists the functions"
_HINTS = {
    "+": "add numbers, or days or an INTERVAL to a time; || puts texts together",
    "-": "subtract numbers, or days or an INTERVAL from a time; of two times write datediff or timestampdiff",
    "in": "values of one list have one type",
}


def _not_yet(*values: Any) -> None:
    """Stands for a function of values whose types are not known."""


def read_expression(text: str) -> Expression:
    """The expression that prints as this text."""
    trees, source = read(f"SELECT * FROM s WHERE {text}", "an expression")
    reader = ExpressionReader(_AnyNames(source), ConstantReader(source))
    return _unqualified(reader.read(trees[0].args["where"].this)[0])


@dataclass(frozen=True, slots=True)
class _AnyNames:
    """ExpressionNames of which nothing is known: every one is an attribute."""

    source: SourceText

    def column(self, node: Any) -> Column:
        return Column(node.name)

    def nested(self, node: exp.Expr, literals: ConstantReader) -> Column | None:
        from tocsin.language.nested import NestedReader

        return NestedReader(self.source, literals).column(node)
