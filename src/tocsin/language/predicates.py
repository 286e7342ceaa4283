"""Columns of predicates: each row a conjunction, without any SQL text.

    predicates: list<struct<attribute: string, op: string,
                            number: double, text: string,          the operand: number, or else text
                            high: double, high_text: string,       the upper end of between
                            values: list<string>>>                 the values of in

Text is converted to the column's type (booleans: true and false); an absent field counts as null. The
lists are flattened, checked column by column, and grouped again by row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tocsin.errors import SubscriptionError
from tocsin.language.algebra import (
    And,
    Between,
    Column,
    Compare,
    In,
    IsNull,
    Item,
    Like,
    Not,
    Predicate,
    Query,
    Rlike,
    TableRef,
    Truth,
    Value,
)
from tocsin.language.conditions import check_rlike
from tocsin.language.literals import read_text
from tocsin.language.scope import nearest
from tocsin.model.buffers import to_arrow
from tocsin.model.schema import Stream, Table, Type

__all__ = ["OPERATORS", "flat_column", "predicate_lists", "relation_query", "row_conditions"]

_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
_PATTERNS = {"prefix": "{}%", "suffix": "%{}", "contains": "%{}%"}
OPERATORS = (
    *_COMPARISONS, "between", "not_between", "in", "not_in", *_PATTERNS, "rlike", "is_null", "is_not_null",
)  # fmt: skip
_FIELDS: dict[str, Any] = {
    "attribute": pa.string(), "op": pa.string(), "number": pa.float64(), "text": pa.string(),
    "high": pa.float64(), "high_text": pa.string(), "values": pa.list_(pa.string()),
}  # fmt: skip
_SHAPE = "predicates is a list of structs with attribute, op, number, text, high, high_text, values"


def relation_query(relation: Table | Stream, where: Predicate) -> Query:
    """`SELECT * FROM relation WHERE where`."""
    items = tuple(Item(Column(f.name, f.type), f.name) for f in relation.fields)
    return Query(items, (TableRef(relation.name, relation.name),), where=where)


def row_conditions(relation: Table | Stream, table: Any, bad: dict[int, str]) -> dict[int, Predicate]:
    """The condition of each good row, by index; adds the reasons of the others to `bad`."""
    lists = predicate_lists(table)
    rows = pc.list_parent_indices(lists).to_pylist()
    flat = pc.list_flatten(lists)
    columns = {name: flat_column(flat, name) for name in _FIELDS}
    _check_rows(lists, rows, flat, columns, bad, relation.open)
    reader = _PredicateReader(relation)
    found: dict[int, list[Predicate]] = {i: [] for i in range(len(lists)) if i not in bad}
    parts = zip(*(columns[name].to_pylist() for name in _FIELDS), strict=True)
    for row, part in zip(rows, parts, strict=True):
        if row in found and row not in bad:
            try:
                found[row].append(reader.read(_PredicateFields(*part)))
            except ValueError as error:
                bad[row] = str(error)
    return {row: _all(parts) for row, parts in found.items() if row not in bad}


def _all(parts: list[Predicate]) -> Predicate:
    return Truth(True) if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))


def predicate_lists(table: Any) -> Any:
    """The column `predicates`; raises if its type is wrong."""
    if "predicates" not in table.column_names:
        raise SubscriptionError("there is no column 'predicates'", _SHAPE)
    column = table.column("predicates")
    column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    type_ = column.type
    if not (pa.types.is_list(type_) or pa.types.is_large_list(type_)) or not (
        pa.types.is_struct(type_.value_type) or pa.types.is_null(type_.value_type)
    ):
        raise SubscriptionError(f"column 'predicates' is {type_}", _SHAPE)
    fields = [field.name for field in type_.value_type] if pa.types.is_struct(type_.value_type) else []
    twice = next((name for name, count in Counter(fields).items() if count > 1), None)
    if twice is not None:
        raise SubscriptionError(f"field {twice!r} of 'predicates' occurs twice", _SHAPE)
    return column


def flat_column(flat: Any, name: str) -> Any:
    """One field of the structs, cast to its type; nulls if it is absent."""
    target = _FIELDS[name]
    if pa.types.is_null(flat.type) or flat.type.get_field_index(name) < 0:
        return pa.nulls(len(flat), target)
    column = pc.struct_field(flat, name)
    given = column.type
    fits = pa.types.is_null(given) or (
        (pa.types.is_floating(given) or pa.types.is_integer(given))
        if target == pa.float64()
        else pa.types.is_string(given) or pa.types.is_large_string(given) or pa.types.is_dictionary(given)
        if target == pa.string()
        else pa.types.is_list(given) or pa.types.is_large_list(given)
    )
    try:
        if fits:
            return pc.cast(
                column, target, safe=not pa.types.is_integer(given)
            )  # _inexact reports what this rounds
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    raise SubscriptionError(f"field {name!r} of 'predicates' is {given}", f"it should be {target}")


def _check_rows(
    lists: Any, rows: list[int], flat: Any, columns: dict[str, Any], bad: dict[int, str], is_open: bool
) -> None:
    """Checks that need no values: nulls, unknown operators, numbers that are not exact doubles."""
    for i in _where(pc.is_null(lists)):
        bad.setdefault(i, "the list of predicates is null")
    for i in _where(pc.is_null(flat)):
        bad.setdefault(rows[i], "a predicate is null")
    for i in _where(pc.is_null(columns["attribute"])):
        bad.setdefault(rows[i], "a predicate has no attribute")
    for name in ("number", "high"):
        hint = "write it as SQL" if is_open else "give it as text"  # text is text in an open stream
        for i, number in _inexact(flat, name):
            bad.setdefault(rows[i], f"{name} {number} is not exactly a double: {hint}")
    known = pc.is_in(columns["op"], value_set=to_arrow(OPERATORS))
    for i in _where(pc.invert(known)):
        op = columns["op"][i].as_py()
        bad.setdefault(rows[i], "a predicate has no op" if op is None else f"there is no op {op!r}")


def _inexact(flat: Any, name: str) -> list[tuple[int, int]]:
    """Whole numbers beyond 2^53 that are not exact doubles, with their indexes."""
    if pa.types.is_null(flat.type) or flat.type.get_field_index(name) < 0:
        return []
    column = pc.struct_field(flat, name)
    if column.type not in (pa.int64(), pa.uint64()):
        return []
    large = pc.greater(column, pa.scalar(2**53, column.type))
    if column.type == pa.int64():
        large = pc.or_(large, pc.less(column, pa.scalar(-(2**53), column.type)))
    found = [(i, column[i].as_py()) for i in _where(large)]
    return [(i, number) for i, number in found if int(float(number)) != number]


def _where(mask: Any) -> list[int]:
    indexes: list[int] = pc.indices_nonzero(mask).to_pylist()
    return indexes


@dataclass(frozen=True, slots=True)
class _PredicateFields:
    """One predicate of a row."""

    attribute: str
    op: str
    number: float | None
    text: str | None
    high: float | None
    high_text: str | None
    values: list[str | None] | None


class _PredicateReader:
    """Converts the fields of one predicate to a condition; ValueError gives the reason if it cannot."""

    def __init__(self, relation: Table | Stream) -> None:
        self.relation = relation
        self.columns: dict[str, Column] = {}

    def read(self, part: _PredicateFields) -> Predicate:
        column = self._attribute(part.attribute)
        if part.op in ("is_null", "is_not_null"):
            return IsNull(column) if part.op == "is_null" else Not(IsNull(column))
        if part.op in _COMPARISONS:
            return Compare(column, part.op, self._operand(part.op, column, part.number, part.text))
        if part.op.endswith("between"):
            if (part.number is None) != (part.high is None):
                raise ValueError(f"{part.op} needs number and high, or text and high_text")
            low = self._operand(part.op, column, part.number, part.text)
            high = self._operand(part.op, column, part.high, part.high_text)
            return _negated_if(part.op, Between(column, low, high))
        if part.op in ("in", "not_in"):
            if not part.values:
                raise ValueError(f"{part.op} needs values")
            values = (None if v is None else self._literal(column, v) for v in part.values)
            return _negated_if(part.op, In(column, tuple(values)))
        return self._pattern(part, column)

    def _attribute(self, name: str) -> Column:
        if name not in self.columns:
            if self.relation.open:
                self.columns[name] = Column(name)
            elif (found := self.relation.find(name)) is not None:
                self.columns[name] = Column(found.name, found.type)
            else:
                near = nearest(name, self.relation.names)
                raise ValueError(
                    f"there is no column {name!r} in {self.relation.name}{f': {near}' if near else ''}"
                )
        return self.columns[name]

    def _operand(self, op: str, column: Column, number: float | None, text: str | None) -> Value:
        if number is not None:
            if column.type is not None and not column.type.numeric:
                raise ValueError(f"{column.name} is a {column.type} and cannot be compared with a number")
            whole = column.type is Type.BIGINT and number.is_integer()
            return int(number) if whole else number + 0.0
        if text is None:
            raise ValueError(f"{op} needs a number or a text")
        return self._literal(column, text)

    def _literal(self, column: Column, text: str) -> Value:
        if column.type is None:
            return text
        try:
            return read_text(text, column.type)
        except ValueError:
            raise ValueError(f"{column.name} is a {column.type}, and {text!r} is none") from None

    def _pattern(self, part: _PredicateFields, column: Column) -> Predicate:
        if part.text is None:
            raise ValueError(f"{part.op} needs a text")
        if column.type not in (Type.STRING, None):
            raise ValueError(f"{part.op} is for text, and {column.name} is a {column.type}")
        if part.op == "rlike":
            try:
                return Rlike(column, check_rlike(part.text))
            except ValueError as error:
                raise ValueError(f"the pattern is not valid: {error}") from None
        return Like(column, _PATTERNS[part.op].format(_escaped(part.text)))


def _negated_if(op: str, atom: Between | In) -> Predicate:
    return Not(atom) if op.startswith("not_") else atom


def _escaped(text: str) -> str:
    """Escape a text so that as a LIKE pattern it matches only itself."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
