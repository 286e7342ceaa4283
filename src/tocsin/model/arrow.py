"""Arrow batches as rows: each column converted to its declared type, or a reason per bad cell.

The rules are those of `schema.read`, a column at a time: integers of any width are BIGINT, and fit DOUBLE
too; whole doubles and decimals fit BIGINT; strings in ISO form are read as dates and timestamps; a
timestamp without zone is UTC. An open stream takes any columns, and the maps
`attributes: map<string, double>` and `texts: map<string, string>` with one entry per attribute present; other
nested columns (lists, structs) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from tocsin.errors import BadRow, ChangeError
from tocsin.model._kernels import has_repeats
from tocsin.model.buffers import Texts, to_arrow
from tocsin.model.columns import EventSource, Index, Rows, SparseRows, TypedEntries, Vector
from tocsin.model.schema import Relation, Type, kind_of, read
from tocsin.model.texts import TextNumbers
from tocsin.model.times import FIRST_DAY, LAST_DAY, read_times

__all__ = ["columns_of", "convert", "events_of", "flat", "is_text"]

_PER_DAY = {"d": 1, "s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_MAPS = {"attributes": Type.DOUBLE, "texts": Type.STRING}


def columns_of(relation: Relation, data: Any) -> tuple[Rows, list[BadRow]]:
    """The columns of a typed relation. An unknown column or an unfit type is an error of the batch."""
    columns: dict[str, Vector] = {}
    bad: list[BadRow] = []
    for name in data.column_names:
        field = relation.find(name)
        if field is None:
            raise ChangeError(
                f"{relation.name} has no column {name!r}", hint=f"it has {', '.join(relation.names)}"
            )
        if field.name in columns:
            raise ChangeError(f"column {field.name} is given twice")
        columns[field.name], worse = convert(field.name, field.type, flat(data[name]))
        bad.extend(worse)
    return Rows(tuple(columns.items()), data.num_rows), sorted(bad)


def events_of(data: Any) -> tuple[Rows, list[BadRow], dict[str, Index]]:
    """The events of an open stream, by ordinary columns and by maps; and which rows have nested columns.

    Several columns may have one name if each event has a value in at most one of them.
    """
    parts: list[TypedEntries] = []
    known: list[Texts] = []  # the names of each part
    bad: list[BadRow] = []
    nested: dict[str, Index] = {}
    for rank, name in enumerate(data.column_names):
        array = flat(data.column(rank))
        if pt.is_map(array.type) and name in _MAPS and is_text(_plain(array.type.key_type)):
            event, local, names, values = _entries(array)
            vector, worse = convert(name, _MAPS[name], values)
            bad.extend(BadRow(int(event[i]), reason) for i, reason in worse)
            found = [(event, local, vector)]
        elif pt.is_nested(array.type):
            nested[name] = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
            continue
        else:
            vectors, worse = _open_vectors(name, array)
            bad.extend(worse)
            names, own = Texts(pa.array([name])), np.zeros(len(array), np.int32)
            found = [(np.arange(len(array)), own, vector) for vector in vectors]
        for event, local, vector in found:
            if not vector.valid.all():
                here = np.flatnonzero(vector.valid)
                event, local, vector = event[here], local[here], vector.take(here)
            parts.append(TypedEntries(event, np.full(len(event), rank), local, vector))
            known.append(names)
    parts, every = _numbered(parts, known)
    bad.extend(_twice(parts, every))
    rows = SparseRows(_by_type(parts), every, data.num_rows)
    if nested:
        rows.source = _whole_events(rows, data.select(list(nested)))
    return rows, sorted(bad), nested


def _whole_events(rows: SparseRows, nested: Any) -> EventSource:
    """Events with their nested columns, converted when they are read."""

    def read(index: Index) -> list[Mapping[str, Any]]:
        inner = nested.take(to_arrow(index)).to_pylist(maps_as_pydicts="lossy")
        return [{**own, **more} for own, more in zip(rows.to_dicts(index), inner, strict=True)]

    return EventSource(read, np.arange(len(rows)))


def _open_vectors(name: str, array: Any) -> tuple[list[Vector], list[BadRow]]:
    """The values of a column by type, each in one vector: whole numbers beyond 64 bits are doubles."""
    kind = array.type
    if kind == pa.uint64():
        high = _beyond(array)
        whole, _ = convert(name, Type.BIGINT, array)
        if not high.any():
            return [whole], []
        doubles = Vector.from_arrow(Type.DOUBLE, array.cast(pa.float64(), safe=False))
        return [whole, Vector(Type.DOUBLE, doubles.values, doubles.valid & high)], []
    if pt.is_decimal(kind) and kind.scale <= 0:
        try:
            return [Vector.from_arrow(Type.BIGINT, array.cast(pa.int64()))], []
        except pa.ArrowInvalid:  # beyond 64 bits
            values = [None if v is None else read(kind_of(v), v) for v in array.to_pylist()]
        return [
            Vector.of(type, [v if isinstance(v, python) else None for v in values])
            for type, python in ((Type.BIGINT, int), (Type.DOUBLE, float))
        ], []
    vector, bad = convert(name, _type_of(name, kind), array)
    return [vector], bad


def _numbered(parts: list[TypedEntries], known: list[Texts]) -> tuple[list[TypedEntries], Texts]:
    """The entries of all columns with names numbered alike, and all names."""
    if len(parts) == 1 and known[0].are_distinct:
        return parts, known[0]
    numbers, out = TextNumbers(), []
    for part, names in zip(parts, known, strict=True):
        before, number = len(numbers), numbers.add(names)
        plain = not before and len(numbers) == len(names)  # these are the first names, and distinct
        out.append(part if plain else part._replace(name=number.astype(np.int32)[part.name]))
    return out, numbers.texts()


def _by_type(parts: list[TypedEntries]) -> list[TypedEntries]:
    """Entries concatenated by type."""
    out = []
    for kind in dict.fromkeys(part.vector.type for part in parts):
        same = [part for part in parts if part.vector.type is kind]
        if len(same) == 1:
            out.append(same[0])
            continue
        values = np.concatenate([part.vector.values for part in same])
        vector = Vector(kind, values, np.concatenate([part.vector.valid for part in same]))
        event, rank, names = (np.concatenate([part[i] for part in same]) for i in range(3))
        out.append(TypedEntries(event, rank, names, vector))
    return out


def _twice(parts: list[TypedEntries], names: Texts) -> list[BadRow]:
    """Events in which one attribute occurs more than once."""
    if not parts:
        return []
    if len(parts) == 1 and not has_repeats(parts[0].event, parts[0].name, len(names)):
        return []
    pair = np.concatenate([part.event * len(names) + part.name for part in parts])
    pair.sort()
    twice = np.unique(pair[1:][pair[1:] == pair[:-1]])
    return [
        BadRow(p // len(names), f"attribute {names[p % len(names)]} occurs twice") for p in twice.tolist()
    ]


def flat(column: Any) -> Any:
    """A column as one plain array: chunks concatenated, dictionaries resolved."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array.cast(array.type.value_type) if pt.is_dictionary(array.type) else array


def _entries(array: Any) -> tuple[Index, NDArray[np.int32], Texts, Any]:
    """A map array as entries: event, number of the name, the names, value."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    event = np.repeat(np.arange(len(array)), np.diff(offsets))
    keys = array.keys.slice(first, count)
    coded = keys if pt.is_dictionary(keys.type) else keys.dictionary_encode()
    local = coded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    values = array.items.slice(first, count)
    if array.null_count:
        real = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)[event]
        event, local, values = event[real], local[real], values.filter(pa.array(real))
    return event, local, Texts(coded.dictionary, are_distinct=coded is not keys), values


def _plain(kind: Any) -> Any:
    """The type of the values, if it is a dictionary."""
    return kind.value_type if pt.is_dictionary(kind) else kind


def _type_of(name: str, kind: Any) -> Type:
    if pt.is_boolean(kind):
        return Type.BOOLEAN
    if pt.is_integer(kind):
        return Type.BIGINT
    if pt.is_floating(kind) or pt.is_decimal(kind):
        return Type.DOUBLE
    if pt.is_timestamp(kind):
        return Type.TIMESTAMP
    if pt.is_date(kind):
        return Type.DATE
    if is_text(kind) or pt.is_null(kind):
        return Type.STRING
    raise ChangeError(
        f"column {name} has type {kind}, which an event cannot hold",
        hint="use numbers, text, booleans, dates, timestamps, or the maps `attributes` and `texts`",
    )


def is_text(kind: Any) -> bool:
    """Whether an Arrow type holds text."""
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def convert(name: str, type: Type, array: Any) -> tuple[Vector, list[BadRow]]:
    """An array as a vector of a type; bad cells by index. A type that does not fit is an error."""
    kind = array.type
    number = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)
    fit = {
        Type.BIGINT: number,
        Type.DOUBLE: number,
        Type.STRING: is_text(kind),
        Type.BOOLEAN: pt.is_boolean(kind),
        Type.DATE: pt.is_date(kind) or pt.is_timestamp(kind) or is_text(kind),
        Type.TIMESTAMP: pt.is_date(kind) or pt.is_timestamp(kind) or is_text(kind),
    }.get(type, False)
    if pt.is_null(kind):
        return Vector.blank(type, len(array)), []
    if type.is_decimal and (number or is_text(kind)):
        return _decimals(name, type, array)
    if not fit:
        hint = "a number has no unit: give timestamps or ISO text" if number and type.kind == "time" else None
        raise ChangeError(f"column {name} has type {kind}, which is not a {type}", hint=hint)
    if type.kind == "time":
        return (_read_times if is_text(kind) else _times)(name, type, array)
    if type is Type.BIGINT and (kind == pa.uint64() or not pt.is_integer(kind)):
        return _whole(name, array)
    if pt.is_decimal(kind):  # as text, which Arrow rounds correctly
        array = array.cast(pa.string())
    return Vector.from_arrow(type, array.cast(type.arrow, safe=False)), []


def _decimals(name: str, type: Type, array: Any) -> tuple[Vector, list[BadRow]]:
    """Numbers, or texts of them, as a DECIMAL, rounded half up."""
    kind = array.type
    fits = pt.is_decimal(kind) and kind.scale <= type.scale
    if fits or (pt.is_integer(kind) and type.precision - type.scale <= 18):
        try:
            wide = array if pt.is_decimal(kind) else array.cast(pa.decimal128(38, 0))
            return Vector.from_arrow(type, wide.cast(type.arrow)), []
        except pa.ArrowInvalid:  # a number has too many digits
            pass
    return _read_each(name, type, array)


def _beyond(array: Any) -> NDArray[np.bool_]:
    """Which unsigned integers are above 2^63 - 1."""
    high = pc.greater(array, pa.scalar(2**63 - 1, pa.uint64())).fill_null(False)
    return np.asarray(high.to_numpy(zero_copy_only=False), np.bool_)


def _whole(name: str, array: Any) -> tuple[Vector, list[BadRow]]:
    """Numbers of any type as BIGINT; a cell that is no whole number of 64 bits is bad."""
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if pt.is_decimal(array.type):
        try:
            return Vector.from_arrow(Type.BIGINT, array.cast(pa.int64())), []
        except pa.ArrowInvalid:  # a cell has a fraction, or is too large
            return _read_each(name, Type.BIGINT, array)
    if array.type == pa.uint64():
        wrong = _beyond(array)
        values = array.cast(pa.int64(), safe=False).fill_null(0).to_numpy(zero_copy_only=False)
    else:
        numbers = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            wrong = ~((np.floor(numbers) == numbers) & (numbers >= -(2.0**63)) & (numbers < 2.0**63))
        values = np.where(wrong, 0.0, numbers).astype(np.int64)
    reasons = [
        BadRow(int(i), f"column {name}: {array[int(i)].as_py()!r} is not a BIGINT")
        for i in np.flatnonzero(wrong)
    ]
    return Vector(Type.BIGINT, values, valid & ~wrong), reasons


def _times(name: str, type: Type, array: Any) -> tuple[Vector, list[BadRow]]:
    """Dates and timestamps of any unit, rounded down to microseconds, within Python's calendar."""
    unit = {pa.date32(): "d", pa.date64(): "ms"}.get(array.type) or array.type.unit
    storage = array.cast(pa.int32()).cast(pa.int64()) if unit == "d" else array.cast(pa.int64())
    count = storage.fill_null(0).to_numpy(zero_copy_only=False)
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    wrong = valid & ((count < FIRST_DAY * _PER_DAY[unit]) | (count >= (LAST_DAY + 1) * _PER_DAY[unit]))
    count = np.where(wrong, 0, count)
    own = _PER_DAY["d" if type is Type.DATE else "us"]
    values = count * (own // _PER_DAY[unit]) if own >= _PER_DAY[unit] else count // (_PER_DAY[unit] // own)
    reason = f"column {name}: not between the years 1 and 9999"
    bad = [BadRow(int(i), reason) for i in np.flatnonzero(wrong)]
    if type is Type.DATE and pt.is_timestamp(array.type):
        late = np.flatnonzero(valid & (count % _PER_DAY[unit] != 0))
        bad.extend(BadRow(int(i), f"column {name}: {array[int(i)]} is not a DATE") for i in late)
    return Vector(type, values, valid), sorted(bad)


def _read_times(name: str, type: Type, array: Any) -> tuple[Vector, list[BadRow]]:
    values, are_times = read_times(type, array)
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    bad = []
    for i in np.flatnonzero(valid & ~are_times).tolist():
        try:
            read(type, array[i].as_py())
        except ValueError as error:
            bad.append(BadRow(i, f"column {name}: {error}"))
    return Vector(type, values, are_times), bad


def _read_each(name: str, type: Type, array: Any) -> tuple[Vector, list[BadRow]]:
    values: list[Any] = []
    bad = []
    for i, value in enumerate(array.to_pylist()):
        try:
            values.append(read(type, value))
        except ValueError as error:
            values.append(None)
            bad.append(BadRow(i, f"column {name}: {error}"))
    return Vector.of(type, values), bad
