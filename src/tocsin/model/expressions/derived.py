"""Expressions as attributes of rows and events: from the name of one to its values.

Over declared columns the types are part of the name. In an open stream each event's values decide: an
expression means there what it means over columns of their types, and nothing where these do not fit.

>>> from tocsin.model.expressions.tree import CallNode, Ref, name_of
>>> total = CallNode("*", (Ref("price"), Ref("qty")))
>>> expression = remember(name_of(total, ()), total)
>>> [expression.of_event(event) for event in ({"price": 2, "qty": 3}, {"price": 2.5, "qty": True}, {})]
[6, None, None]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any

import numpy as np

from tocsin.model.columns import Index, Rows, Vector, stored
from tocsin.model.decimals import doubles_of, value_of_units
from tocsin.model.expressions.closures import RowFunction, closure
from tocsin.model.expressions.tree import (
    CallNode,
    Expression,
    Ref,
    is_expression,
    name_of,
    refs_of,
    text_of,
    types_in,
)
from tocsin.model.expressions.typed import Typed, compute, resolve
from tocsin.model.expressions.vectors import column_of
from tocsin.model.paths import MISSING, is_inside, value_of
from tocsin.model.schema import Type, is_missing, is_nested, kind_of, read

__all__ = ["DerivedColumn", "NotPlainError", "expression_of", "read_by", "remember"]

_MOST = 1 << 16
_known: dict[str, DerivedColumn] = {}
_Kinds = tuple[Type | None, ...]
_DAY_ZERO = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NotPlainError(Exception):
    """A value of a single row is not exactly of a plain type: a batch converts or rejects it."""


class DerivedColumn:
    """An expression over the rows of one relation, or over open events if `types` is empty."""

    def __init__(self, tree: Expression, types: Sequence[Type]) -> None:
        self.tree = tree
        self.refs = tuple(ref.name for ref in refs_of(tree))
        self.types = tuple(types)
        self._resolved: dict[_Kinds, Typed | None] = {}
        self._function: tuple[RowFunction, bool] | None = None  # of declared columns
        self._plain: dict[tuple[type, ...], tuple[RowFunction | None, bool]] = {}  # by the classes of values
        self._readers: list[Callable[[Mapping[str, Any]], Any]] = [_reader(name) for name in self.refs]

    @property
    def is_open(self) -> bool:
        return not self.types

    def resolved(self, kinds: _Kinds) -> Typed | None:
        """The typed expression for values of these types; None if they do not fit."""
        if kinds not in self._resolved:
            try:
                self._resolved[kinds] = resolve(self.tree, dict(zip(self.refs, kinds, strict=True)))
            except ValueError:
                self._resolved[kinds] = None
        return self._resolved[kinds]

    def renamed(self, names: Sequence[str]) -> str:
        """The name of the same expression over columns of other names, in the order of `refs`."""
        own = dict(zip(self.refs, names, strict=True))
        tree = _renamed(self.tree, own)
        name = name_of(tree, self.types)
        remember(name, tree)
        return name

    # -- single rows -------------------------------------------------------------------------------

    def _own(self) -> tuple[RowFunction, bool]:
        """The function of declared columns, and whether its values are times."""
        if self._function is None:
            found = self.resolved(self.types)
            assert found is not None
            self._function = closure(found), _is_stored(found.kind)
        return self._function

    def of_row(self, row: Mapping[str, Any]) -> Any:
        """The value of a declared row of plain Python values."""
        cells = []
        for name, type in zip(self.refs, self.types, strict=True):
            value = row.get(name)
            cells.append(None if value is None else stored(type, read(type, value)))
        found = self.resolved(self.types)
        assert found is not None
        return _plain(found.kind, compute(found, cells))

    @property
    def kind(self) -> Type | None:
        """The type of its values over declared columns."""
        found = None if self.is_open else self.resolved(self.types)
        return found.kind if found is not None and isinstance(found.kind, Type) else None

    def of_plain(self, row: Mapping[str, Any]) -> Any:
        """As `of_row`, for plain values of the columns' types; NotPlainError for others."""
        cells = []
        for name, type in zip(self.refs, self.types, strict=True):
            value = row.get(name)
            if value is not None:
                kind = _PLAIN.get(value.__class__)
                if kind is not type:
                    if kind is not Type.BIGINT or type is not Type.DOUBLE:
                        raise NotPlainError
                    value = float(value)
            cells.append(value)
        function, is_time = self._own()
        return _plain(self.kind, function(cells)) if is_time else function(cells)

    def of_event(self, event: Mapping[str, Any]) -> Any:
        """The value of an event of an open stream; None if there is none."""
        values = [reader(event) for reader in self._readers]
        classes = tuple(map(type, values))
        known = self._plain.get(classes)
        if known is None:
            known = self._plain[classes] = self._of_classes(classes)
        function, has_int = known
        if function is None or (has_int and any(map(_is_beyond, values))):
            return self._of_any(values)
        return function(values)

    def _of_classes(self, classes: tuple[type, ...]) -> tuple[RowFunction | None, bool]:
        """The function of values of these classes, if all are plain, and whether there are ints."""
        if not all(one in _PLAIN or one is _NONE for one in classes):
            return None, False
        found = self.resolved(tuple(map(_PLAIN.get, classes)))
        if found is None:
            return (lambda values: None), False
        return (None if _is_stored(found.kind) else closure(found)), int in classes

    def _of_any(self, values: list[Any]) -> Any:
        """The value for values of any class."""
        kinds: list[Type | None] = []
        for n, value in enumerate(values):
            kind = _PLAIN.get(type(value))
            if kind is None:
                kind, values[n] = _read(value)
            elif kind is Type.BIGINT and not -(2**63) <= value < 2**63:
                kind, values[n] = Type.DOUBLE, float(value)
            kinds.append(kind)
        found = self.resolved(tuple(kinds))
        value = None if found is None else _plain(found.kind, compute(found, values))
        return float(value) if isinstance(value, Decimal) else value

    # -- batches -----------------------------------------------------------------------------------

    def of_rows(self, rows: Rows) -> list[Vector]:
        """The vectors of a batch: one of a declared relation, one for each type of an open stream."""
        if self.is_open:
            return self._of_events(rows)
        found = self.resolved(self.types)
        assert found is not None
        vectors = [rows.vectors(name)[0] for name in self.refs]
        return [column_of(found, vectors, len(rows))]

    def _of_events(self, rows: Rows) -> list[Vector]:
        """By combination of types that occurs among the events."""
        given = [list(rows.vectors(name)) for name in self.refs]
        code = np.zeros(len(rows), np.int64)
        for vectors in given:
            code *= len(vectors) + 1
            for n, vector in enumerate(vectors, 1):
                code[vector.valid] += n
        parts: dict[Type, list[tuple[Index, Vector]]] = {}
        for combination in np.unique(code).tolist():
            here = np.flatnonzero(code == combination)
            chosen = _digits(combination, [len(vectors) + 1 for vectors in given])
            kinds = tuple(v[n - 1].type if n else None for n, v in zip(chosen, given, strict=True))
            found = self.resolved(kinds)
            if found is None or not isinstance(found.kind, Type):
                continue
            own = [
                v[n - 1].take(here) if n else Vector.blank(Type.STRING, len(here))
                for n, v in zip(chosen, given, strict=True)
            ]
            made = column_of(found, own, len(here))
            if made.type.is_decimal:  # an open stream has none
                made = Vector(Type.DOUBLE, doubles_of(made.values, made.type.scale), made.valid)
            parts.setdefault(made.type, []).append((here, made))
        return [_scattered(kind, own, len(rows)) for kind, own in parts.items()]


def _scattered(kind: Type, parts: Sequence[tuple[Index, Vector]], length: int) -> Vector:
    out = Vector.blank(kind, length)
    for here, vector in parts:
        out.values[here], out.valid[here] = vector.values, vector.valid
    return out


def _digits(number: int, bases: Sequence[int]) -> list[int]:
    digits = []
    for base in reversed(bases):
        number, digit = divmod(number, base)
        digits.append(digit)
    return digits[::-1]


_TIMES = (Type.DATE, Type.TIMESTAMP)
_NONE = type(None)


def _is_stored(kind: Any) -> bool:
    """Whether values are stored as other ones than Python has."""
    return kind in _TIMES or (isinstance(kind, Type) and kind.is_decimal)


def _is_beyond(value: Any) -> bool:
    return type(value) is int and not -(2**63) <= value < 2**63


_PLAIN: dict[type, Type] = {
    bool: Type.BOOLEAN, int: Type.BIGINT, float: Type.DOUBLE, str: Type.STRING,
}  # fmt: skip


def _read(value: Any) -> tuple[Type | None, Any]:
    """The type of a value of an open stream that is no plain number, text or truth, and its stored form."""
    if value is MISSING or is_nested(value) or is_missing(value):
        return None, None
    try:
        kind = kind_of(value)
        own = read(kind, value)
    except ValueError:
        return None, None
    return (None, None) if own is None else (kind, stored(kind, own))


def _reader(name: str) -> Callable[[Mapping[str, Any]], Any]:
    if is_inside(name):
        return lambda event: value_of(name, event)
    return lambda event: event.get(name)


def _plain(kind: Any, value: Any) -> Any:
    """A stored value as Python has it."""
    if value is None:
        return None
    if kind is Type.DATE:
        return date.fromordinal(value + _DAY_ZERO)
    if isinstance(kind, Type) and kind.is_decimal:
        return value_of_units(value, kind.scale)
    return _EPOCH + timedelta(microseconds=value) if kind is Type.TIMESTAMP else value


def _renamed(tree: Expression, names: Mapping[str, str]) -> Expression:
    if isinstance(tree, Ref):
        return Ref(names[tree.name])
    if isinstance(tree, CallNode):
        return CallNode(tree.name, tuple(_renamed(arg, names) for arg in tree.args), tree.into)
    return tree


def remember(name: str, tree: Expression) -> DerivedColumn:
    """Note what a name stands for, so that nobody has to read it again."""
    if len(_known) >= _MOST:
        _known.clear()
    found = _known.get(name)
    if found is None:
        found = _known[name] = DerivedColumn(tree, types_in(name))
    return found


def read_by(name: str) -> tuple[str, ...]:
    """The columns that a column reads: itself, or those of its expression."""
    return expression_of(name).refs if is_expression(name) else (name,)


def expression_of(name: str) -> DerivedColumn:
    """What the name of an attribute stands for."""
    found = _known.get(name)
    if found is not None:
        return found
    if name.startswith("\x1f(held("):  # a condition, which is no expression: `language/held.py`
        made: DerivedColumn = import_module("tocsin.rules.shared").held_column(name)
        return _known.setdefault(name, made)
    reader = import_module("tocsin.language.expressions")  # which reads texts; the model does not
    return remember(name, reader.read_expression(text_of(name)))
