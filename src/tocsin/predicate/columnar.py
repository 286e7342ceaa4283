"""Columns of predicates as flat filters, without a Python loop over subscriptions.

`language/predicates.py` defines the columns, row by row. This module does the same by column for all rows
that are plainly valid; other rows (a wrong type, a missing operand, a number that needs Python's integers)
are *slow*: they are compiled one by one, which also reports their errors.

>>> from tocsin.model.schema import Stream
>>> predicates = [[{"attribute": "price", "op": "<=", "number": 580.0}], [{"attribute": "x", "op": "is"}]]
>>> table = pa.table({"id": [1, 2], "predicates": predicates})
>>> filters, bad = flat_predicates(Stream("hits", ()), table)
>>> filters.owner.tolist(), filters.names[:1], bad
([0], ('price',), {1: "there is no op 'is'"})
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tocsin.language.conditions import check_rlike
from tocsin.language.literals import read_text
from tocsin.language.predicates import OPERATORS, flat_column, predicate_lists, row_conditions
from tocsin.language.rewrite import normalise
from tocsin.model.buffers import Texts, to_arrow, to_numpy
from tocsin.model.columns import Index, Mask
from tocsin.model.schema import Field, Stream, Table, Type
from tocsin.predicate.codes import (
    COMPARISONS,
    CodePositions,
    betweens,
    comparisons,
    interval,
    locate_numbers,
)
from tocsin.predicate.compile import Assembly, flatten
from tocsin.predicate.flat import NEGATED, OR_NEXT, SPACES, CodeSpace, FlatFilters, overlay

__all__ = ["flat_predicates"]

_OP = {name: number for number, name in enumerate(OPERATORS)}
_OPEN = 99  # the type of an attribute of an open stream, besides numbers in _TYPES
_NONE = 98  # no such attribute
_TYPES = list(Type)  # and every DECIMAL that has occurred


def _code_of(type: Type) -> int:
    """The number of a type."""
    if type not in _TYPES:
        _TYPES.append(type)
    return _TYPES.index(type)


def flat_predicates(relation: Table | Stream, table: Any) -> tuple[FlatFilters, dict[int, str]]:
    """One filter per row of a table with the column `predicates`; and the reasons for bad rows.

    A bad row's filter never matches.
    """
    columns = _PredicateColumns(relation, predicate_lists(table))
    columns.compile_all()
    filters = columns.filters()
    slow = columns.slow_rows()
    bad: dict[int, str] = {}
    if len(slow):
        found: dict[int, str] = {}
        conditions = row_conditions(relation, table.take(to_arrow(slow)), found)
        bad = {int(slow[i]): reason for i, reason in found.items()}
        rest = flatten(normalise(condition) for condition in conditions.values())
        filters = overlay(filters, rest, slow[np.array(list(conditions), np.int64)])
    return filters, bad


class _PredicateColumns:
    """The predicates of all rows, flat; compiled chunk by chunk, each of one type and operator."""

    def __init__(self, relation: Table | Stream, lists: Any) -> None:
        self.count = len(lists)
        self.row = to_numpy(pc.list_parent_indices(lists)).astype(np.int64)
        self.flat = pc.list_flatten(lists)
        self.attribute, attributes = self._coded("attribute")
        op, ops = self._coded("op")
        known = np.array([_OP.get(name or "", -1) for name in ops.to_pylist()] or [-1], np.int64)
        self.op = known[op] if len(op) else op
        if relation.open and not attributes.null_count:
            own: Sequence[str] = Texts(attributes)
            self.type = np.full(len(self.row), _OPEN)
        else:
            names = attributes.to_pylist()
            fields = [None if relation.open or name is None else relation.find(name) for name in names]
            own = [f.name if f else name or "" for f, name in zip(fields, names, strict=True)]
            self.type = self._types(relation, names, fields)
        self.number, self.has_number = self._numbers("number")
        self.high, self.has_high = self._numbers("high")
        self.assembly = Assembly(own)
        self.done = np.zeros(len(self.row), np.bool_)
        self.slow = np.zeros(self.count, np.bool_)
        if lists.null_count:
            self.slow[to_numpy(pc.is_null(lists))] = True

    def compile_all(self) -> None:
        """Compiles every chunk of plainly valid predicates."""
        comparing = (self.op >= 0) & (self.op < len(COMPARISONS))
        ranged = (self.op == _OP["between"]) | (self.op == _OP["not_between"])
        for code in np.flatnonzero(np.bincount(self.type)).tolist():
            of_type: Any = self.type == code if (self.type != code).any() else np.True_
            if code == _NONE:
                continue
            numeric = Type.DOUBLE if code == _OPEN else _TYPES[code] if _TYPES[code].numeric else None
            if numeric is not None:
                if code == _OPEN:  # from 2^53 on not every whole number is a double: one by one
                    of_type = of_type & ~(_large(self.number) | _large(self.high))
                self._compare_numbers(numeric, comparing & of_type & self.has_number)
                self._between_numbers(numeric, ranged & of_type & self.has_number & self.has_high)
            self._presence(code, self.type == code)
        rest = ~self.done & ~self.slow[self.row]
        if rest.any():
            self._compile_texts(rest, comparing, ranged)

    def slow_rows(self) -> Index:
        """Rows with a predicate that was not compiled by column."""
        self.slow[self.row[~self.done]] = True
        return np.flatnonzero(self.slow)

    def filters(self) -> FlatFilters:
        self.assembly.never(self.slow_rows())
        return self.assembly.filters(self.row, self.count)

    # -- columns ---------------------------------------------------------------------------------

    def _coded(self, name: str) -> tuple[Index, Any]:
        """The number of each text of a column, and the distinct texts."""
        if not pa.types.is_null(self.flat.type) and self.flat.type.get_field_index(name) >= 0:
            column = pc.struct_field(self.flat, name)
            if pa.types.is_dictionary(column.type) and pa.types.is_string(column.type.value_type):
                coded = (
                    column
                    if not column.null_count
                    else column.dictionary_decode().dictionary_encode("encode")
                )
                index = to_numpy(coded.indices)
                return index, coded.dictionary
        coded = flat_column(self.flat, name).dictionary_encode("encode")
        return to_numpy(coded.indices), coded.dictionary

    def _numbers(self, name: str) -> tuple[NDArray[np.float64], Mask]:
        column = flat_column(self.flat, name)
        if column.null_count == len(column):
            return np.zeros(len(column)), np.zeros(len(column), np.bool_)
        given = pc.struct_field(self.flat, name)
        fine = np.asarray(to_numpy(column.is_valid()), np.bool_)
        values = to_numpy(column.fill_null(0.0)) + 0.0
        if pa.types.is_integer(given.type):
            fine = fine & (np.abs(values) <= 2.0**53)  # not every larger one is a double: one by one
        return values, fine

    def _texts(self, name: str) -> tuple[Any, Mask]:
        column = flat_column(self.flat, name)
        return column, np.asarray(to_numpy(column.is_valid()), np.bool_)

    def _types(self, relation: Table | Stream, names: list[str | None], fields: list[Field | None]) -> Index:
        found = [
            _NONE if name is None else _OPEN if relation.open
            else _NONE if field is None else _code_of(field.type)
            for name, field in zip(names, fields, strict=True)
        ]  # fmt: skip
        return np.array(found or [_NONE], np.int64)[self.attribute]

    # -- chunks ----------------------------------------------------------------------------------

    def _compare_numbers(self, type: Type, chosen: Mask) -> None:
        place = np.flatnonzero(chosen)
        positions = locate_numbers(type, self.number[place])
        if not positions.fine.all():
            place = place[positions.fine]
            positions = positions.take(positions.fine)
        if len(place):
            low, high, flags = comparisons(self.op[place], positions)
            self.assembly.tests(SPACES[type], place, self.attribute[place], low, high, flags)
            self.done[place] = True

    def _between_numbers(self, type: Type, chosen: Mask) -> None:
        place = np.flatnonzero(chosen)
        low, high = locate_numbers(type, self.number[place]), locate_numbers(type, self.high[place])
        fine = low.fine & high.fine
        if not fine.all():
            place = place[fine]
            low, high = low.take(fine), high.take(fine)
        if len(place):
            flags = np.where(self.op[place] == _OP["not_between"], NEGATED, 0).astype(np.uint8)
            self.assembly.tests(SPACES[type], place, self.attribute[place], *betweens(low, high), flags)
            self.done[place] = True

    def _presence(self, code: int, of_type: Any) -> None:
        absent = self.op == _OP["is_null"]
        place = np.flatnonzero((absent | (self.op == _OP["is_not_null"])) & of_type)
        if len(place):
            space = CodeSpace.ANY if code == _OPEN else SPACES[_TYPES[code]]
            self.assembly.presence(space, place, self.attribute[place], absent[place])
            self.done[place] = True

    def _compile_texts(self, rest: Mask, comparing: Mask, ranged: Mask) -> None:
        text, has_text = self._texts("text")
        high, has_high = self._texts("high_text")
        rest &= ~self.has_number & (self.type != _NONE)
        textual = rest & ((self.type == _OPEN) | (self.type == _TYPES.index(Type.STRING)))
        self._compare_texts(textual & comparing & has_text, text)
        self._between_texts(textual & ranged & has_text & has_high & ~self.has_high, text, high)
        self._compare_others(rest & ~textual & comparing & has_text, text)
        for op in ("prefix", "suffix", "contains", "rlike"):
            place = np.flatnonzero(textual & has_text & (self.op == _OP[op]))
            if len(place):
                self._patterns(op, place, text.take(to_arrow(place)))
        for op in ("in", "not_in"):
            place = np.flatnonzero(textual & (self.op == _OP[op]))
            if len(place):
                self._members(op == "not_in", place)

    def _compare_texts(self, chosen: Mask, text: Any) -> None:
        place = np.flatnonzero(chosen)
        if len(place):
            number = 4 * self.assembly.texts.add(text.take(to_arrow(place)))
            all_true = np.ones(len(place), np.bool_)
            low, high, flags = comparisons(self.op[place], CodePositions(number, all_true, all_true))
            self.assembly.tests(CodeSpace.TEXT, place, self.attribute[place], low, high, flags)
            self.done[place] = True

    def _between_texts(self, chosen: Mask, text: Any, high: Any) -> None:
        place = np.flatnonzero(chosen)
        if len(place):
            pool = self.assembly.texts
            first, last = (4 * pool.add(column.take(to_arrow(place))) for column in (text, high))
            flags = np.where(self.op[place] == _OP["not_between"], NEGATED, 0).astype(np.uint8)
            self.assembly.tests(CodeSpace.TEXT, place, self.attribute[place], first, last, flags)
            self.done[place] = True

    def _compare_others(self, chosen: Mask, text: Any) -> None:
        """Texts read as numbers, dates, timestamps and booleans: each distinct one once."""
        places = np.flatnonzero(chosen)
        for code in np.unique(self.type[places]).tolist():
            type = _TYPES[code]
            mine = places[self.type[places] == code]
            coded = text.take(to_arrow(mine)).dictionary_encode()
            of = to_numpy(coded.indices)
            ends = np.zeros((len(coded.dictionary), len(COMPARISONS), 2), np.int64)
            fine = np.zeros(len(coded.dictionary), np.bool_)
            for i, word in enumerate(coded.dictionary.to_pylist()):
                try:
                    value = read_text(word, type)
                except ValueError:
                    continue  # its rows are slow, and get their error there
                fine[i] = True
                for o, op in enumerate(COMPARISONS):
                    ends[i, o] = interval(type, "=" if op == "!=" else op, value)
            mine, of = mine[fine[of]], of[fine[of]]
            if len(mine):
                low, high = ends[of, self.op[mine], 0], ends[of, self.op[mine], 1]
                flags = np.where(self.op[mine] == COMPARISONS.index("!="), NEGATED, 0).astype(np.uint8)
                self.assembly.tests(SPACES[type], mine, self.attribute[mine], low, high, flags)
                self.done[mine] = True

    def _patterns(self, op: str, place: Index, text: Any) -> None:
        empty = to_numpy(pc.equal(text, ""))
        if op == "rlike":
            valid = np.array([_is_regex(word) for word in text.dictionary_encode().dictionary.to_pylist()])
            fine = valid[to_numpy(text.dictionary_encode().indices)]
        else:
            fine = ~np.asarray(empty, np.bool_)
        place, text = place[fine], text.filter(to_arrow(fine))
        if not len(place):
            return
        attribute = self.attribute[place]
        if op in ("prefix", "suffix"):
            self.assembly.prefixes(place, attribute, text, op == "suffix")
        elif op == "contains":
            plain = text
            for special in ("\\", "%", "_"):
                plain = pc.replace_substring(plain, special, "\\" + special)
            self.assembly.patterns("like", place, attribute, pc.binary_join_element_wise("%", plain, "%", ""))
        else:
            self.assembly.patterns("rlike", place, attribute, text)
        self.done[place] = True

    def _members(self, negated: bool, place: Index) -> None:
        """IN and NOT IN of texts; lists with a null are slow."""
        lists = flat_column(self.flat, "values").take(to_arrow(place))
        sizes = to_numpy(pc.list_value_length(lists).fill_null(0))
        values = pc.list_flatten(lists)
        whose = np.repeat(np.arange(len(place)), sizes)
        fine = sizes > 0
        fine[whose[to_numpy(values.is_null())]] = False
        kept = fine[whose]
        values, whose, place = values.filter(to_arrow(kept)), whose[kept], place[fine]
        if not len(place):
            return
        number = 4 * self.assembly.texts.add(values)
        renumbered = (np.cumsum(fine) - 1)[whose]
        flags = np.full(len(number), NEGATED if negated else OR_NEXT, np.uint8)
        if not negated:
            flags[np.cumsum(sizes[fine]) - 1] = 0
        test_place = place[renumbered]
        self.assembly.tests(CodeSpace.TEXT, test_place, self.attribute[test_place], number, number, flags)
        self.done[place] = True


def _large(numbers: NDArray[np.float64]) -> Mask:
    return (np.abs(numbers) >= 2.0**53) & np.isfinite(numbers)


def _is_regex(pattern: str) -> bool:
    try:
        check_rlike(pattern)
    except ValueError:
        return False
    return True
