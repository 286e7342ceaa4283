"""Right answers for a few events, found without any index and without the code that builds indexes.

There are two ways:

    brute_answers       all subscriptions, by a compiled loop over the Arrow columns of predicates
    reference_answers   a sample of them as queries, by `tocsin.reference.holds`

>>> import pyarrow as pa
>>> predicates = [[{"attribute": "price", "op": "<=", "number": 5.0}], [{"attribute": "x", "op": "is_null"}]]
>>> events = pa.table({"attributes": pa.array([[("price", 3.0)]], pa.map_(pa.string(), pa.float64()))})
>>> brute_answers(pa.table({"id": [0, 1], "predicates": predicates}), events).tolist()
[0, 4294967296]
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tocsin.errors import TocsinError
from tocsin.lab.bench._kernels import brute_force
from tocsin.language.bulk import expand_predicates
from tocsin.match.base import unpack
from tocsin.model.columns import Index, Rows
from tocsin.model.schema import Stream
from tocsin.reference import holds

__all__ = ["OPERATORS", "brute_answers", "check_answers", "reference_answers"]

OPERATORS = (
    *("=", "!=", "<", "<=", ">", ">="),
    *("between", "not_between", "in", "not_in", "prefix", "suffix", "contains", "is_null", "is_not_null"),
)


class _DrawnPredicates(NamedTuple):
    """All predicates, flat; an operand is a number or the rank of a text."""

    start: Index  # by subscription
    attribute: NDArray[np.int32]
    op: NDArray[np.int8]
    is_text: NDArray[np.bool_]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    first: Index  # its values, for IN
    last: Index
    member: NDArray[np.float64]


class _DrawnEvents(NamedTuple):
    start: Index
    attribute: NDArray[np.int32]
    is_text: NDArray[np.bool_]
    value: NDArray[np.float64]
    attributes: int  # of all events and predicates together


def brute_answers(subscriptions: Any, events: Any) -> Index:
    """All matching (subscription, event) by row number, packed and ascending."""
    lists = subscriptions["predicates"].combine_chunks()
    flat = pc.list_flatten(lists)
    maps = {name: events[name].combine_chunks() for name in events.column_names}
    ranks = _TextRanks([*(_field(flat, name) for name in ("text", "high_text", "values")), maps.get("texts")])
    numbers: dict[str, int] = {}
    attribute = _numbered(_field(flat, "attribute"), numbers)
    predicates = _predicates(lists, flat, attribute, ranks)
    drawn = _events(maps, events.num_rows, ranks, numbers)
    found: Index = np.sort(brute_force(predicates, drawn, ranks.bytes()))
    return found


def _predicates(lists: Any, flat: Any, attribute: NDArray[np.int32], ranks: _TextRanks) -> _DrawnPredicates:
    offsets = lists.offsets.to_numpy().astype(np.int64)
    ops = _field(flat, "op").cast(pa.string())
    known = pc.index_in(ops, value_set=pa.array(OPERATORS))
    if known.null_count:
        strange = pc.filter(ops, pc.is_null(known))[0]
        raise TocsinError(f"the operator {strange} has no brute-force check")
    number, text = _field(flat, "number"), ranks.of(_field(flat, "text"))
    is_text = pc.is_null(number).to_numpy(zero_copy_only=False)
    high = _field(flat, "high")
    members = _field(flat, "values")
    listed = np.zeros(len(flat), np.int64)
    if len(values := _members(members)):
        listed = pc.fill_null(pc.list_value_length(members), 0).to_numpy(zero_copy_only=False)
    last = np.cumsum(listed, dtype=np.int64)
    return _DrawnPredicates(
        offsets - offsets[0],
        attribute,
        known.to_numpy(zero_copy_only=False).astype(np.int8),
        is_text,
        np.where(is_text, text, _doubles(number)),
        np.where(is_text, ranks.of(_field(flat, "high_text")), _doubles(high)),
        last - listed,
        last,
        ranks.of(values),
    )


def _events(maps: dict[str, Any], count: int, ranks: _TextRanks, numbers: dict[str, int]) -> _DrawnEvents:
    parts = []
    for name, array in maps.items():
        offsets = array.offsets.to_numpy().astype(np.int64)
        used = slice(int(offsets[0]), int(offsets[-1]))
        items = array.items[used]
        value = ranks.of(items) if name == "texts" else _doubles(items)
        event = np.repeat(np.arange(count), np.diff(offsets))
        parts.append(
            (event, _numbered(array.keys[used], numbers), np.full(len(event), name == "texts"), value)
        )
    event, attribute, is_text, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(event, kind="stable")
    start = np.searchsorted(event[order], np.arange(count + 1))
    return _DrawnEvents(start, attribute[order], is_text[order], value[order], len(numbers))


class _TextRanks:
    """All texts sorted by their bytes; a text's rank is its number in that order."""

    def __init__(self, columns: list[Any]) -> None:
        texts = [self._texts(column) for column in columns]
        distinct = pc.unique(pa.concat_arrays(texts).drop_null())
        self._sorted = distinct.take(pc.array_sort_indices(distinct))

    @staticmethod
    def _texts(column: Any) -> Any:
        """The texts of a column, some duplicates removed."""
        if column is None or pa.types.is_null(column.type):
            return pa.array([], pa.large_binary())
        if pa.types.is_map(column.type):
            column = column.items
        elif pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            column = pc.list_flatten(column)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary
        return column.cast(pa.large_string()).cast(pa.large_binary())

    def of(self, column: Any) -> NDArray[np.float64]:
        """The rank of each text; -1 for NULL."""
        if pa.types.is_null(column.type):
            return np.full(len(column), -1.0)
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        place = pc.index_in(self._texts(encoded.dictionary), value_set=self._sorted)
        ranks = np.append(place.to_numpy(zero_copy_only=False).astype(np.float64), -1.0)
        return np.asarray(ranks[pc.fill_null(encoded.indices, len(ranks) - 1).to_numpy(zero_copy_only=False)])

    def bytes(self) -> tuple[NDArray[np.uint8], Index]:
        """The bytes of all texts, concatenated, and where each text begins."""
        lengths = pc.binary_length(self._sorted).to_numpy(zero_copy_only=False)
        start = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return np.frombuffer(b"".join(self._sorted.to_pylist()), np.uint8), start


def _field(flat: Any, name: str) -> Any:
    if flat.type.get_field_index(name) < 0:
        return pa.nulls(len(flat))
    return pc.struct_field(flat, name)


def _members(lists: Any) -> Any:
    return pa.nulls(0) if pa.types.is_null(lists.type) else pc.list_flatten(lists)


def _doubles(column: Any) -> NDArray[np.float64]:
    if pa.types.is_null(column.type):
        return np.zeros(len(column))
    return np.asarray(pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False))


def _numbered(names: Any, numbers: dict[str, int]) -> NDArray[np.int32]:
    """The number of each name; a new name gets the next number."""
    encoded = names if pa.types.is_dictionary(names.type) else names.dictionary_encode()
    known = [numbers.setdefault(name, len(numbers)) for name in encoded.dictionary.to_pylist()]
    return np.array([*known, -1], np.int32)[encoded.indices.to_numpy(zero_copy_only=False)]


# -- the reference -----------------------------------------------------------------------------------


def reference_answers(stream: Stream, subscriptions: Any, rows: Rows, sample: Index) -> Index:
    """The matches of a sample (row numbers): (subscription, event), packed and ascending."""
    bulk = expand_predicates(stream, subscriptions.take(pa.array(sample)))
    events = rows.to_dicts()
    return np.array(
        [
            number << 32 | event
            for number, (_, _, _, query) in zip(sample.tolist(), bulk.rows(), strict=True)
            for event, row in enumerate(events)
            if holds(query.where, row)
        ],
        np.int64,
    )


def check_answers(who: str, found: Index, expected: Index) -> None:
    """Raise unless exactly the expected pairs were found, each once."""
    found = np.sort(found)
    if np.array_equal(found, expected):
        return
    extra, missing = np.setdiff1d(found, expected), np.setdiff1d(expected, found)
    odd = extra if len(extra) else missing if len(missing) else found[1:][found[1:] == found[:-1]]
    verb = "is wrong" if len(extra) else "is missing" if len(missing) else "is repeated"
    slot, event = (part.tolist()[0] for part in unpack(odd))
    repeated = len(found) - len(np.unique(found))
    raise TocsinError(
        f"{who} gives wrong answers: {len(extra)} matches too many, {len(missing)} missing, {repeated}"
        f" repeated; for example, subscription {slot} with event {event} {verb}",
        hint="wrong answers get no time",
    )
