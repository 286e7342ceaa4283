"""Constants: the value of a literal in the text, or of a parameter.

A constant is read twice: first for its value, then by `fits`, which knows the column it is compared with,
so that `'2013-01-31'` beside a DATE column becomes a date.

>>> read_text("2013-01-31 05:00:00+01:00", Type.TIMESTAMP)
datetime.datetime(2013, 1, 31, 4, 0, tzinfo=datetime.timezone.utc)

A template stores a `Slot` instead of a value: the source of a raw value (an offset in the text, or a
parameter) and the conversion steps from it to the value. Texts that differ only in literals, and rows of
parameters, then share one parse.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from sqlglot import exp

from tocsin.language.algebra import Column, Value
from tocsin.language.dialect import SourceText
from tocsin.language.ranges import kind_of
from tocsin.model.decimals import MOST_DIGITS, decimal_of
from tocsin.model.expressions.casts import SIZES
from tocsin.model.schema import Type, decimal_type, read, read_time

__all__ = [
    "CAST_TYPES",
    "DIGITS_HINT",
    "MAX_DIGITS",
    "Constant",
    "ConstantReader",
    "Slot",
    "as_decimal",
    "cast_type",
    "name_of",
    "negative",
    "read_decimal_type",
    "read_text",
]

MAX_DIGITS = 4300
"""The most digits of a whole number: Python's own limit."""

Conversion = Callable[[Any], Value]


@dataclass(frozen=True, slots=True)
class Slot:
    """A gap in a template, filled with `read(raw value of key)`, which applies the steps in order."""

    key: int | str
    steps: tuple[Conversion, ...] = ()

    def read(self, raw: Any) -> Value:
        value: Value = raw
        for step in self.steps:
            value = step(value)
        return value


@dataclass(frozen=True, slots=True)
class Constant:
    """A value, its node, and its slot if it has one."""

    value: Value
    node: exp.Expr
    slot: Slot | None = None

    def then(self, step: Conversion) -> Constant:
        """The constant after one more conversion step, which may raise ValueError."""
        slot = None if self.slot is None else Slot(self.slot.key, (*self.slot.steps, step))
        return replace(self, value=step(self.value), slot=slot)


# -- values ----------------------------------------------------------------------------------------


def read_text(text: str, type_: Type) -> Value:
    """Convert text to a value of a type, as CAST does; ValueError if it is not one.

    >>> read_text("-Infinity", Type.DOUBLE), read_text("true", Type.BOOLEAN)
    (-inf, True)
    """
    word = text.strip()
    if type_ is Type.STRING:
        return text
    if type_ in (Type.DATE, Type.TIMESTAMP):
        return read_time(type_, text)
    if type_.is_decimal:
        found: Value = read(type_, text)
        return found
    if type_ is Type.BOOLEAN and word.lower() in ("true", "false"):
        return word.lower() == "true"
    if type_ is Type.BIGINT and re.fullmatch(r"[+-]?\d+", word, re.ASCII):
        return _whole(word)
    if type_ is Type.DOUBLE and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", word, re.ASCII):
        return _finite(float(word))
    if type_ is Type.DOUBLE and re.fullmatch(r"nan|[+-]?inf(inity)?", word, re.IGNORECASE):
        return (
            math.nan if word.lower() == "nan" else float(word)
        )  # one NaN object: it equals itself in tuples
    raise ValueError(f"{text!r} is not a {type_}")


def _whole(word: str) -> int:
    if len(word.lstrip("+-")) > MAX_DIGITS:
        raise ValueError(f"a whole number has at most {MAX_DIGITS:,} digits")
    return int(word)


def _double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond the range of DOUBLE
        raise ValueError("the number is out of range") from None


def _finite(value: float) -> float:
    if math.isinf(value):
        raise ValueError("the number is out of range")
    return value + 0.0  # -0.0 becomes 0.0


def negative(value: Value) -> Value:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError(f"a minus sign needs a number, not a {name_of(value)}")
    return -value + 0.0 if isinstance(value, float) else -value


def as_decimal(value: Value) -> Value:
    """A number beside a DECIMAL: a double is the shortest decimal number that reads as it.

    >>> as_decimal(19.9), as_decimal(5)
    (Decimal('19.9'), 5)
    """
    return Decimal(repr(value)) if isinstance(value, float) and math.isfinite(value) else value


def _plain_number(value: Value) -> Value:
    """A DECIMAL beside another number: a whole number, or the nearest double."""
    if not isinstance(value, Decimal):
        return value
    whole = int(value)
    return whole if whole == value else float(value)


def _written(node: exp.Expr) -> Decimal | None:
    """The number of a literal with a point or an exponent, as it is written."""
    if isinstance(node, exp.Paren | exp.Neg):
        inner = _written(node.this)
        return inner if inner is None or isinstance(node, exp.Paren) else inner.copy_negate()
    if not isinstance(node, exp.Literal) or node.is_string or node.this.isdigit():
        return None
    return decimal_of(node.this)


def _cast(type_: Type) -> Conversion:
    def step(value: Value) -> Value:
        if value is None:
            return None
        if isinstance(value, str):
            return read_text(value, type_)
        if type_.is_decimal and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            found: Value = read(type_, value)
            return found
        if isinstance(value, Decimal) and type_.numeric:
            return float(value) if type_ is Type.DOUBLE else int(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            if type_ is Type.DOUBLE:
                return _double(value)
            if type_ is Type.BIGINT and (isinstance(value, int) or math.isfinite(value)):
                return int(value)
        if name_of(value) == type_:
            return value
        raise ValueError(f"a {name_of(value)} cannot be cast to {type_} here")

    return step


def name_of(value: Value) -> str:
    """The type of a value, by name."""
    if value is None or isinstance(value, Decimal):
        return "NULL" if value is None else "DECIMAL"
    names: dict[type, Type] = {
        bool: Type.BOOLEAN, int: Type.BIGINT, float: Type.DOUBLE, str: Type.STRING, datetime: Type.TIMESTAMP,
        date: Type.DATE,
    }  # fmt: skip
    return str(names[type(value)])


# -- from the tree ---------------------------------------------------------------------------------

CAST_TYPES = {
    exp.DType.BIGINT: Type.BIGINT,
    exp.DType.DOUBLE: Type.DOUBLE,
    exp.DType.TEXT: Type.STRING,
    exp.DType.BOOLEAN: Type.BOOLEAN,
    exp.DType.DATE: Type.DATE,
    exp.DType.TIMESTAMP: Type.TIMESTAMP,
    exp.DType.TIMESTAMPTZ: Type.TIMESTAMP,
}


DIGITS_HINT = "DECIMAL(p,s) has at most 18 digits in all, s of them behind the point"


def cast_type(node: exp.Cast) -> Type | None:
    """The type that a CAST makes; None if there is no such type."""
    target = node.args.get("to")
    if not isinstance(target, exp.DataType):
        return None
    if target.this is exp.DType.DECIMAL:
        sizes = [part.name for part in target.expressions] or ["10"]
        return read_decimal_type(*sizes) if len(sizes) <= 2 and all(map(str.isdigit, sizes)) else None
    return CAST_TYPES.get(target.this)


def read_decimal_type(precision: str, scale: str = "0") -> Type | None:
    """DECIMAL of so many digits; None if there is none for columns.

    >>> read_decimal_type("9", "2"), read_decimal_type("38", "2") is None
    (<Type.DECIMAL(9,2): 'DECIMAL(9,2)'>, True)
    """
    digits, behind = int(precision[:9]), int(scale[:9])
    return decimal_type(digits, behind) if 1 <= digits <= MOST_DIGITS and behind <= digits else None


@dataclass(frozen=True, slots=True)
class ConstantReader:
    """Reads the constants of one text.

    With `trace`, conditions store slots instead of values: for the parameters if there are any, else for
    the literals.
    """

    source: SourceText
    params: Mapping[str, Value] | None = None
    trace: bool = False

    def read(self, node: exp.Expr) -> Constant | None:
        """The constant of a node; None if the node is not a constant."""
        try:
            return self._read(node)
        except ValueError as error:
            raise self.source.error(str(error), node, _hint(str(error))) from None

    def _read(self, node: exp.Expr) -> Constant | None:
        if isinstance(node, exp.Literal | exp.RawString):
            return self._literal(node)
        if isinstance(node, exp.Null):
            return Constant(None, node)
        if isinstance(node, exp.Boolean):
            return Constant(bool(node.this), node)
        if isinstance(node, exp.Placeholder):
            return self._parameter(node)
        if isinstance(node, exp.Paren | exp.Neg):
            inner = self._read(node.this)
            if inner is not None:
                inner = replace(inner, node=node)
                return inner.then(negative) if isinstance(node, exp.Neg) else inner
        if isinstance(node, exp.Cast) and not node.args.get("safe") and not _is_narrow(node):
            inner = self._read(node.this)
            if inner is not None:
                return replace(inner, node=node).then(_cast(self._cast_type(node)))
        return None

    def _literal(self, node: exp.Literal | exp.RawString) -> Constant:
        text = node.this
        value: Value = text
        if isinstance(node, exp.Literal) and not node.is_string:
            value = _whole(text) if text.isascii() and text.isdigit() else read_text(text, Type.DOUBLE)
        offset = node.meta.get("start") if self.trace and self.params is None else None
        return Constant(value, node, None if offset is None else Slot(offset))

    def _parameter(self, node: exp.Placeholder) -> Constant:
        name = node.this if isinstance(node.this, str) else ""
        if self.params is None or not name:
            raise self.source.error(
                "parameters are supported only in templates",
                node,
                "write the value, or use subscribe_many",
            )
        if name not in self.params:
            known = ", ".join(self.params) or "none"
            raise self.source.error(f"there is no parameter {name!r}", node, f"the columns are: {known}")
        slot = Slot(name) if self.trace else None
        return Constant(self.params[name], node, slot)

    def _cast_type(self, node: exp.Cast) -> Type:
        type_ = cast_type(node)
        if type_ is None:
            hint = "types are BIGINT, DOUBLE, DECIMAL(p,s), STRING, BOOLEAN, DATE, TIMESTAMP"
            word = str(node.args.get("to"))
            raise self.source.error(
                f"CAST to {word} is not supported", node, DIGITS_HINT if word.startswith("DEC") else hint
            )
        return type_

    def fits(self, constant: Constant, column: Column) -> Constant:
        """The constant converted for comparison with the column; raises if their kinds differ."""
        type_, value = column.type, constant.value
        if value is None:
            return constant
        if type_ is None:
            return constant.then(_plain_number) if isinstance(value, Decimal) else constant
        if type_.is_decimal and kind_of(value) == "number":
            if constant.slot is None and (exact := _written(constant.node)) is not None:
                return replace(constant, value=exact)
            return constant.then(as_decimal)
        if isinstance(value, Decimal):
            constant = constant.then(_plain_number)
            value = constant.value
        if type_.kind == "time" and isinstance(value, str):
            kind = type_

            def as_time(raw: Value) -> Value:
                return read_time(kind, raw) if isinstance(raw, str) else raw

            try:
                return constant.then(as_time)
            except ValueError:
                raise self.source.error(
                    f"{column} is a {type_}, and {value!r} cannot be read as one",
                    constant.node,
                    _hint(f"is not a {type_}"),
                ) from None
        if kind_of(value) != type_.kind:
            raise self.source.error(
                f"{column} is a {type_} and cannot be compared with a {name_of(value)}",
                constant.node,
                _MISMATCH.get((type_.kind, kind_of(value) or "")),
            )
        return constant

    def keep(self, constant: Constant) -> Any:
        """What a condition stores: the value, or its slot when tracing."""
        return constant.value if constant.slot is None else constant.slot


def _is_narrow(node: exp.Cast) -> bool:
    """Whether a cast is into a whole number of fewer than 64 bits."""
    target = node.args.get("to")
    return isinstance(target, exp.DataType) and target.this.value in SIZES


def _hint(fact: str) -> str | None:
    return next((hint for ending, hint in _READABLE.items() if fact.endswith(ending)), None)


_READABLE = {
    "is not a DATE": "write it like '2013-01-31'",
    "is not a TIMESTAMP": "write it like '2013-01-31 05:00:00', perhaps with a zone such as +01:00",
    "is not a DOUBLE": "write a number, NaN, Infinity or -Infinity",
    "is not a BIGINT": "write a whole number",
    "is not a BOOLEAN": "write true or false",
    "DECIMAL": "write a number",
    "digits": "a BIGINT has at most 19; write a DOUBLE: 1e300",
    "out of range": "a DOUBLE goes up to about 1.8e308",
}
_MISMATCH = {
    ("number", "text"): "numbers are written without quotes; names are quoted with backticks",
    ("text", "number"): "put the text in quotes",
    ("time", "number"): "write DATE '2013-01-31' or TIMESTAMP '2013-01-31 05:00:00'",
    ("boolean", "text"): "write TRUE or FALSE",
    ("boolean", "number"): "write TRUE or FALSE",
}
