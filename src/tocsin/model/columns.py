"""Columns of rows as flat arrays: a value array, and a mask that says where there is a value.

    type    values (NumPy)              a NULL's value
    BIGINT  int64                       0
    DECIMAL int64, units of 10^-scale   0
    DOUBLE  float64, -0.0 stored as 0.0 0.0
    STRING  object (str)                ""
    BOOLEAN bool                        False
    DATE    int64, days since 1970      0
    TIMESTAMP int64, microseconds, UTC  0

`Rows` is an ordered set of named vectors of one length. In rows of an open stream one
attribute may carry numbers in some events and text in others, so a name can have several
vectors, of which at most one has a value in any row.

>>> rows = Rows.of(symbol=Vector.of(Type.STRING, ["A", None]), per=Vector.of(Type.DOUBLE, [1, 2.5]))
>>> rows.to_dicts()
[{'symbol': 'A', 'per': 1.0}, {'symbol': None, 'per': 2.5}]
>>> rows.take(np.array([0, 1, 0])).codes().tolist()
[1, 0, 1]

In an open stream any attribute may occur, so `SparseRows` keep only the values present, by type. Attributes
are numbered, so that nothing below works with their names:

    events                          names            BIGINT entries        STRING entries
    {"price": 3, "color": "red"}    price, color     event 0, name 0: 3    event 0, name 1: red
    {"price": 9}                                     event 1, name 0: 9

A matching index reads the entries; the dense vector of an attribute is made when a predicate first needs it.

>>> events = SparseRows.from_dicts([{"price": 3, "color": "red"}, {"price": 9}])
>>> [v.to_list() for v in events.vectors("price")]
[[3, 9]]
>>> events.to_dicts()
[{'price': 3, 'color': 'red'}, {'price': 9}]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from importlib import import_module
from operator import itemgetter
from struct import Struct
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model._kernels import gather_texts, order_doubles
from tocsin.model.buffers import numbers_to_arrow, texts_to_arrow, to_numpy
from tocsin.model.cells import Cells, add_event, add_plain
from tocsin.model.decimals import arrow_of_units, units_of, units_of_arrow, value_of_units
from tocsin.model.event_source import EventSource
from tocsin.model.expressions.tree import is_expression
from tocsin.model.paths import MISSING, is_exists, is_inside, value_of
from tocsin.model.schema import Type

__all__ = [
    "EventSource",
    "Index",
    "Mask",
    "Rows",
    "SparseRows",
    "TextVector",
    "TypedEntries",
    "Vector",
    "cell_code",
    "combine_codes",
    "distinct",
    "from_codes",
    "gathered",
    "longer",
    "renumbered",
    "sliced",
    "stored",
]

Index = NDArray[np.int64]
Mask = NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)

_DTYPES: dict[Type, Any] = {
    Type.BIGINT: np.int64,
    Type.DOUBLE: np.float64,
    Type.STRING: object,
    Type.BOOLEAN: np.bool_,
    Type.DATE: np.int64,
    Type.TIMESTAMP: np.int64,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_ZERO = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_DOUBLE, _BITS = Struct("<d"), Struct("<q")
_NAN_CODE = 0x7FF8 << 48  # as `order_doubles` has it


@dataclass(frozen=True)
class Vector:
    """One column: `values[i]` counts where `valid[i]`."""

    type: Type
    values: NDArray[Any]
    valid: Mask

    def __len__(self) -> int:
        return len(self.valid)

    @classmethod
    def of(cls, type: Type, values: Iterable[Any]) -> Vector:
        """From Python values that have the right type already; None is NULL."""
        listed = list(values)
        valid = np.array([v is not None for v in listed], np.bool_)
        if type is Type.DATE or type is Type.TIMESTAMP or type.is_decimal:
            listed = [v if v is None else stored(type, v) for v in listed]
        out = np.full(len(listed), "" if type is Type.STRING else 0, _DTYPES.get(type, np.int64))
        out[valid] = [v for v in listed if v is not None]
        return cls(type, out + 0.0 if type is Type.DOUBLE else out, valid)

    @classmethod
    def blank(cls, type: Type, length: int) -> Vector:
        """All NULL."""
        values = np.zeros(length, dtype_of(type))
        if type is Type.STRING:
            values[:] = ""
        return cls(type, values, np.zeros(length, np.bool_))

    @classmethod
    def from_arrow(cls, type: Type, array: Any) -> Vector:
        """From an Arrow array of the type's own Arrow type (see `change.py` for the conversions)."""
        valid = np.asarray(to_numpy(array.is_valid()), np.bool_)
        if type is Type.STRING:
            values = to_numpy(array.fill_null("")).astype(object)
        elif type is Type.BOOLEAN:
            values = to_numpy(array.fill_null(False))
        elif type is Type.DOUBLE:
            values = to_numpy(array.fill_null(0.0)) + 0.0
        elif type.is_decimal:
            values = units_of_arrow(array, valid)
        else:
            storage = array.cast(pa.int32()).cast(pa.int64()) if type is Type.DATE else array.cast(pa.int64())
            values = to_numpy(storage.fill_null(0))
        return cls(type, values, valid)

    @classmethod
    def concat(cls, parts: Sequence[Vector]) -> Vector:
        """Vectors of one type, one after the other."""
        values, valid = [part.values for part in parts], [part.valid for part in parts]
        return Vector(parts[0].type, np.concatenate(values), np.concatenate(valid))

    @cached_property
    def arrow(self) -> Any:
        """As an Arrow array of the type's Arrow type."""
        if self.type is Type.STRING:
            return texts_to_arrow(self.values, pa.string(), self.valid)
        if self.type is Type.DATE:
            return numbers_to_arrow(self.values.astype(np.int32), self.valid).cast(pa.date32())
        if self.type.is_decimal:
            return arrow_of_units(self.type.arrow, self.values, self.valid)
        array = numbers_to_arrow(self.values, self.valid)
        return array if array.type == self.type.arrow else array.cast(self.type.arrow)

    def take(self, index: Index) -> Vector:
        return Vector(self.type, self.values[index], self.valid[index])

    def to_list(self) -> list[Any]:
        """As Python values: None, int, float, Decimal, str, bool, date, datetime in UTC."""
        plain: list[Any]
        if self.type is Type.DATE:
            plain = [date.fromordinal(v + _DAY_ZERO) for v in self.values.tolist()]
        elif self.type is Type.TIMESTAMP:
            plain = [_EPOCH + timedelta(microseconds=v) for v in self.values.tolist()]
        elif self.type.is_decimal:
            scale = self.type.scale
            plain = [value_of_units(v, scale) for v in self.values.tolist()]
        else:
            plain = self.values.tolist()
        if self.valid.all():
            return plain
        return [v if ok else None for v, ok in zip(plain, self.valid.tolist(), strict=True)]

    def order_codes(self) -> Index:
        """Integers in the order of the values (NaN above all numbers); a NULL's is arbitrary."""
        if self.type is Type.DOUBLE:
            return double_codes(self.values)
        if self.type is Type.STRING:
            return np.unique(self.values.astype(object), return_inverse=True)[1].astype(np.int64)
        return self.values.astype(np.int64)

    def codes(self) -> Index:
        """Small integers, equal exactly where the values are; NULL equals NULL, NaN equals NaN."""
        if self.type is Type.STRING:
            encoded = texts_to_arrow(self.values, pa.string()).dictionary_encode().indices
            code = to_numpy(encoded).astype(np.int64)
        else:
            code = np.unique(self.order_codes(), return_inverse=True)[1].astype(np.int64)
        return np.where(self.valid, code + 1, 0)


class TextVector(Vector):
    """Texts as bytes: text i is `data[begin[i]:end[i]]`. Python strings are made when one is first read.

    >>> texts = TextVector(np.frombuffer(b"red green", np.uint8), np.array([0, 4]), np.array([3, 9]))
    >>> texts.take(np.array([1, 0])).to_list()
    ['green', 'red']
    """

    def __init__(self, data: NDArray[np.uint8], begin: Index, end: Index, valid: Mask | None = None) -> None:
        known = np.ones(len(begin), np.bool_) if valid is None else valid  # a NULL is an empty text
        self.__dict__.update(type=Type.STRING, valid=known, data=data, begin=begin, end=end)

    data: NDArray[np.uint8]
    begin: Index
    end: Index

    @cached_property
    def values(self) -> NDArray[Any]:
        return to_numpy(gathered(self.data, self.begin, self.end))

    def take(self, index: Index) -> Vector:
        return TextVector(self.data, self.begin[index], self.end[index], self.valid[index])


def gathered(data: NDArray[np.uint8], begin: Index, end: Index) -> Any:
    """The texts `data[begin[i]:end[i]]` as an Arrow array of large strings."""
    start = np.empty(len(begin) + 1, np.int64)
    out = np.empty(int((end - begin).sum()), np.uint8)
    gather_texts(data, begin, end, start, out)
    return pa.LargeStringArray.from_buffers(len(begin), pa.py_buffer(start), pa.py_buffer(out))


def dtype_of(type: Type) -> Any:
    """The NumPy type of the values of a vector."""
    return _DTYPES.get(type, np.int64)


def double_codes(values: NDArray[np.float64]) -> Index:
    """Doubles as integers of the same order: flip the magnitude bits of negative ones.

    >>> double_codes(np.array([-np.inf, -1.5, 0.0, 2.0, np.inf, np.nan])).argsort().tolist()
    [0, 1, 2, 3, 4, 5]
    """
    plain = np.ascontiguousarray(values, np.float64)
    out = np.empty(plain.shape, np.int64)
    order_doubles(plain.view(np.int64).ravel(), out.ravel())
    return out


def column_codes(vector: Vector) -> Index:
    """The codes of a column of any type but STRING: integers in the order of its values."""
    return double_codes(vector.values) if vector.type is Type.DOUBLE else vector.values.astype(np.int64)


def from_codes(type: Type, codes: Index, valid: Mask) -> Vector:
    """The values that have these codes: `column_codes`, the other way round.

    >>> vector = Vector.of(Type.DOUBLE, [-1.5, 2.0])
    >>> from_codes(Type.DOUBLE, column_codes(vector), vector.valid).to_list()
    [-1.5, 2.0]
    """
    plain = np.where(valid, codes, 0)
    if type is Type.DOUBLE:
        bits = np.where(plain < 0, -plain | np.int64(-(2**63)), plain)
        return Vector(type, bits.view(np.float64), valid)
    return Vector(type, plain.astype(np.bool_) if type is Type.BOOLEAN else plain, valid)


def stored(type: Type, value: Any) -> Any:
    """A value that `read` has returned, and not None, as vectors hold it.

    >>> stored(Type.DATE, date(1970, 1, 31)), stored(Type.STRING, "A")
    (30, 'A')
    """
    if type is Type.DATE:
        return value.toordinal() - _DAY_ZERO
    if type is Type.TIMESTAMP:
        return (value - _EPOCH) // _MICROSECOND
    return units_of(value, type.scale) if isinstance(value, Decimal) and type.is_decimal else value


def cell_code(vector: Vector, at: int) -> int:
    """`column_codes` of one cell.

    >>> vector = Vector.of(Type.DOUBLE, [-1.5, float("nan")])
    >>> [cell_code(vector, at) for at in range(2)] == column_codes(vector).tolist()
    True
    """
    value = vector.values.item(at)
    if vector.type is not Type.DOUBLE:
        return int(value)
    if value != value:
        return _NAN_CODE
    (bits,) = _BITS.unpack(_DOUBLE.pack(value))
    return bits if bits >= 0 else -(bits & (2**63 - 1))


def combine_codes(columns: Sequence[Index], length: int) -> Index:
    """One code per row from one code per column: equal exactly where all columns are."""
    total = np.zeros(length, np.int64)
    for column in columns:
        width = int(column.max(initial=0)) + 1
        total = np.unique(total * width + column, return_inverse=True)[1].astype(np.int64)
    return total


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values, sorted. `np.unique` hashes integers, which takes ten times as long for a million.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    if np.all(values[1:] > values[:-1]):
        return values.copy()
    ordered = np.sort(values)
    fresh = np.ones(len(ordered), np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return ordered[fresh]


def renumbered(values: Index, length: int) -> tuple[Index, Index]:
    """The distinct values, all below `length`, and the index of each value among them. O(length), no sort.

    >>> [a.tolist() for a in renumbered(np.array([7, 2, 7]), 9)]
    [[2, 7], [1, 0, 1]]
    """
    used = np.zeros(length, np.bool_)
    used[values] = True
    return np.flatnonzero(used), (np.cumsum(used) - 1)[values]


def longer(array: NDArray[Scalar], length: int, fill: Any = 0) -> NDArray[Scalar]:
    """The array extended to a length.

    >>> longer(np.array([1, 2]), 4).tolist()
    [1, 2, 0, 0]
    """
    shape = length, *array.shape[1:]
    out = np.full(shape, fill, array.dtype) if fill else np.zeros(shape, array.dtype)
    out[: len(array)] = array
    return out


def sliced(begin: Index, sizes: Index) -> tuple[Index, Index]:
    """Slices of an array by begin and size, concatenated: where each starts, and the indexes of all.

    >>> [a.tolist() for a in sliced(np.array([5, 0]), np.array([2, 3]))]
    [[0, 2, 5], [5, 6, 0, 1, 2]]
    """
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return start, np.repeat(begin - start[:-1], sizes) + np.arange(start[-1])


class Rows:
    """Named vectors of one length, in order; `sparse` rows leave NULLs out of their dicts."""

    def __init__(self, columns: Sequence[tuple[str, Vector]], length: int, *, sparse: bool = False) -> None:
        self.columns = tuple(columns)
        self.sparse = sparse
        self._length = length
        self._by_name: dict[str, list[Vector]] = {}
        for name, vector in self.columns:
            self._by_name.setdefault(name, []).append(vector)

    @classmethod
    def of(cls, **columns: Vector) -> Rows:
        return cls(tuple(columns.items()), len(next(iter(columns.values()))))

    @classmethod
    def concat(cls, parts: Sequence[Rows]) -> Rows:
        """Rows of the same columns, one after the other."""
        if len(parts) == 1:
            return parts[0]
        columns = [
            (same[0][0], Vector.concat([vector for _, vector in same]))
            for same in zip(*(part.columns for part in parts), strict=True)
        ]
        return cls(columns, sum(map(len, parts)))

    def __len__(self) -> int:
        return self._length

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._by_name)

    def vectors(self, name: str) -> Sequence[Vector]:
        """The vectors of a name: one in typed rows, none or several in an open stream's."""
        found = self._by_name.get(name)
        if found is None and is_expression(name):
            found = self._by_name[name] = self._computed(name)
        return found or ()

    def _computed(self, name: str) -> list[Vector]:
        """The vectors of an expression, computed once; NULL where its columns are not among these."""
        expression = import_module("tocsin.model.expressions.derived").expression_of(name)
        found: list[Vector] = expression.of_rows(self)
        return found

    def project(self, names: Mapping[str, str]) -> Rows:
        """Some columns under new names: `{new: old}`."""
        columns: list[tuple[str, Vector]] = []
        for new, old in names.items():
            vectors = self.vectors(old) or (Vector.blank(Type.STRING, len(self)),)
            columns.extend((new, vector) for vector in vectors)
        return Rows(columns, len(self))

    def take(self, index: Index) -> Rows:
        return Rows([(n, v.take(index)) for n, v in self.columns], len(index), sparse=self.sparse)

    def codes(self) -> Index:
        """One integer per row, equal exactly where whole rows are."""
        return combine_codes([vector.codes() for _, vector in self.columns], len(self))

    def to_dicts(self, index: Index | None = None) -> list[dict[str, Any]]:
        rows = self if index is None else self.take(index)
        out: list[dict[str, Any]] = [{} for _ in range(len(rows))]
        for name, vector in rows.columns:
            for row, value in zip(out, vector.to_list(), strict=True):
                if value is not None or (not self.sparse and name not in row):
                    row[name] = value
        return out


# -- open streams ----------------------------------------------------------------------------------


class TypedEntries(NamedTuple):
    """Values of one type, all valid: event, rank among the event's attributes, attribute, value."""

    event: Index
    rank: Index
    name: NDArray[np.int32]
    vector: Vector


def _entries(kind: Type, cells: Cells) -> TypedEntries:
    index = np.array(cells.event, np.int64), np.array(cells.rank, np.int64), np.array(cells.name, np.int32)
    return TypedEntries(*index, Vector.of(kind, cells.value))


class SparseRows(Rows):
    """Rows of an open stream, by entries. A `Rows` whose columns are made on demand."""

    def __init__(
        self,
        parts: Sequence[TypedEntries],
        names: Sequence[str],
        length: int,
        source: EventSource | None = None,
    ) -> None:
        super().__init__((), length, sparse=True)
        self.parts = tuple(parts)
        self._names = names
        self.source = source  # the whole events; None if they have no values inside others, and no nulls

    @property
    def events(self) -> list[Mapping[str, Any]]:
        """The events with the values inside others."""
        return list(self.to_dicts()) if self.source is None else self.source.dicts

    @classmethod
    def from_dicts(cls, events: Sequence[Mapping[str, Any]]) -> SparseRows:
        """From events without a bad value; None is a missing attribute."""
        bad: dict[int, str] = {}
        rows = cls.read(events, bad)
        if bad:
            raise ValueError(next(iter(bad.values())))
        return rows

    @classmethod
    def read(
        cls,
        events: Sequence[Mapping[str, Any]],
        bad: dict[int, str],
        nested: dict[str, list[int]] | None = None,
    ) -> SparseRows:
        """The good events in order; events in `bad` are skipped, other bad ones are added to it.

        Nested values are left out; `nested` receives their attributes and the numbers of their events.
        """
        numbers: dict[str, int] = {}
        found: dict[Type, Cells] = {kind: Cells([], [], [], []) for kind in Type}
        count = 0
        for i, event in enumerate(events):
            if i in bad:
                continue
            inner = add_plain(event, count, numbers, found)
            if inner is None:
                try:
                    inner = add_event(event, count, numbers, found)
                except ValueError as error:
                    bad[i] = str(error)
                    continue
            if nested is not None:
                for name in inner:
                    nested.setdefault(name, []).append(i)
            count += 1
        entries = [_entries(kind, cells) for kind, cells in found.items() if cells.event]
        whole = [event for i, event in enumerate(events) if i not in bad] if bad else events
        return cls(entries, tuple(numbers), count, EventSource.of(whole))

    @property
    def names(self) -> Sequence[str]:
        return self._names

    @cached_property
    def _places(self) -> tuple[dict[str, int], list[tuple[Index, Index]]]:
        """The number of every name; by part, its entries by attribute and where each attribute's begin."""
        numbers = {name: i for i, name in enumerate(self._names)}
        sorted_parts = []
        for part in self.parts:
            order = np.argsort(part.name, kind="stable")
            sorted_parts.append((order, np.searchsorted(part.name[order], np.arange(len(numbers) + 1))))
        return numbers, sorted_parts

    def vectors(self, name: str) -> Sequence[Vector]:
        if name not in self._by_name:
            numbers, places = self._places
            found = []
            if (number := numbers.get(name)) is not None:
                for part, (order, starts) in zip(self.parts, places, strict=True):
                    here = order[starts[number] : starts[number + 1]]
                    if len(here):
                        dense = Vector.blank(part.vector.type, len(self))
                        dense.values[part.event[here]] = part.vector.take(here).values
                        dense.valid[part.event[here]] = True
                        found.append(dense)
            elif is_expression(name):
                found = self._computed(name)
            elif is_inside(name) and not is_exists(name):
                found = self._inside(name)
            self._by_name[name] = found
        return self._by_name[name]

    def _inside(self, name: str) -> list[Vector]:
        """The vectors of a path, from the whole events."""
        found = ((n, value_of(name, event)) for n, event in enumerate(self.events))
        read = SparseRows.read([{name: v} if v is not MISSING else {} for _, v in found], {})
        return list(read.vectors(name)) if name in read.names else []

    def take(self, index: Index) -> Rows:
        if np.all(index[1:] > index[:-1]):
            return self._some(index)
        names = [*self.names, *(name for name in self._by_name if is_inside(name))]
        columns = [(name, vector.take(index)) for name in names for vector in self.vectors(name)]
        return Rows(columns, len(index), sparse=True)

    def _some(self, index: Index) -> SparseRows:
        """The events of an ascending index."""
        place = np.full(len(self), -1, np.int64)
        place[index] = np.arange(len(index))
        parts = []
        for event, rank, name, vector in self.parts:
            here = np.flatnonzero(place[event] >= 0)
            if len(here):
                parts.append(TypedEntries(place[event[here]], rank[here], name[here], vector.take(here)))
        source = None if self.source is None else self.source.take(index)
        return SparseRows(parts, self._names, len(index), source)

    def to_dicts(self, index: Index | None = None) -> list[dict[str, Any]]:
        if index is not None:
            wanted, which = renumbered(index, len(self))
            dicts = (self if len(wanted) == len(self) else self._some(wanted)).to_dicts()
            return [dict(dicts[i]) for i in which.tolist()]
        cells: list[tuple[int, int, str, Any]] = []
        for part in self.parts:
            names = [self._names[i] for i in part.name.tolist()]
            cells.extend(
                zip(part.event.tolist(), part.rank.tolist(), names, part.vector.to_list(), strict=True)
            )
        out: list[dict[str, Any]] = [{} for _ in range(len(self))]
        for event, _, name, value in sorted(cells, key=itemgetter(0, 1)):
            out[event][name] = value
        return out
