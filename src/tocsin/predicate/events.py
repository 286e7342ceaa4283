"""Rows as events: each a short list of (attribute, kind, code), in flat arrays.

The counterpart of `flat.py`. Texts are numbered per batch; an index ranks each distinct one once
among its own texts.

    events                          start   name         space         code
    {"price": 3, "color": "red"}    0       price        DOUBLE        code of 3.0
                                            color        TEXT          0   (texts[0] = red)
    {"price": 9}                    2       price        DOUBLE        code of 9.0
                                    3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model.buffers import to_arrow, to_numpy
from tocsin.model.columns import (
    Index,
    Mask,
    Rows,
    SparseRows,
    TextVector,
    Vector,
    column_codes,
    double_codes,
    gathered,
    sliced,
)
from tocsin.model.schema import Type
from tocsin.model.times import read_times
from tocsin.predicate._kernels import count_entries, number_texts, rank_texts, scatter_entries
from tocsin.predicate.flat import SPACES, CodeSpace
from tocsin.predicate.patterns import Patterns

__all__ = ["Events", "events_of", "text_bytes", "text_codes", "with_times"]

_DAY = 86_400_000_000
_Column = tuple[Index, NDArray[np.int32], CodeSpace, Index]  # event, name, space, code


@dataclass(frozen=True)
class Events:
    """Events 0..count-1; the entries of event e are start[e] to start[e + 1]."""

    count: int
    start: Index
    name: NDArray[np.int32]
    space: NDArray[np.uint8]
    code: Index
    names: Sequence[str]
    texts: Any  # Arrow binary array: the distinct texts, by number

    @cached_property
    def backwards(self) -> Any:
        """The distinct texts read backwards, byte by byte."""
        return to_arrow([text[::-1] for text in self.texts.to_pylist()], pa.large_binary())

    def matched(self, matcher: Patterns, entry: Index, groups: Index | None = None) -> tuple[Index, Index]:
        """(entry, pattern) of all matches among these entries; each distinct text is read once.

        `groups`: of texts, as bits, to which each entry belongs.
        """
        used, which = np.unique(self.code[entry], return_inverse=True)
        of_text = None
        if groups is not None:
            of_text = np.zeros(len(used), np.int64)
            np.bitwise_or.at(of_text, which, groups)
        text, pattern = matcher.match(self.texts.take(to_arrow(used)).cast(pa.large_string()), of_text)
        first = np.searchsorted(text, np.arange(len(used) + 1))
        count = np.diff(first)[which]
        _, at = sliced(first[:-1][which], count)
        return np.repeat(entry, count), pattern[at]

    def take(self, chosen: Index) -> Events:
        """The chosen events; texts do not change."""
        start, at = sliced(self.start[:-1][chosen], np.diff(self.start)[chosen])
        entries = self.name[at], self.space[at], self.code[at]
        return Events(len(chosen), start, *entries, self.names, self.texts)

    def _check(self) -> None:
        assert len(self.start) == self.count + 1 and self.start[-1] == len(self.name)
        assert np.all(self.name < len(self.names))
        assert np.all(self.code[self.space == CodeSpace.TEXT] < len(self.texts))


def events_of(rows: Rows) -> Events:
    """All values of the rows as entries.

    >>> events = events_of(SparseRows.from_dicts([{"price": 3, "color": "red"}, {"price": 9}]))
    >>> events.start.tolist(), events.name.tolist(), events.texts.to_pylist()
    ([0, 2, 3], [0, 1, 0], [b'red'])
    """
    names = rows.names
    texts: list[Any] = []
    known = 0
    columns: list[_Column] = []
    for event, name, vector in _vectors(rows):
        if vector.type is Type.STRING:
            number, own = _distinct_texts(vector)
            columns.append((event, name, CodeSpace.TEXT, number + known if known else number))
            texts.append(own)
            known += len(own)
        elif rows.sparse:
            columns.extend(_open(event, name, vector))
        else:
            columns.append((event, name, SPACES[vector.type], column_codes(vector)))
    start = np.zeros(len(rows) + 1, np.int64)
    total = sum(len(column[0]) for column in columns)
    out = (np.empty(total, np.int32), np.empty(total, np.uint8), np.empty(total, np.int64))
    for column in columns:
        count_entries(column[0], start)
    np.cumsum(start, out=start)
    cursor = start[:-1].copy()
    for event, name, space, code in columns:
        scatter_entries(event, name, np.uint8(space), code, cursor, out)
    return Events(len(rows), start, *out, names, _number_texts(texts, out[1], out[2]))


def _distinct_texts(vector: Vector) -> tuple[Index, Any]:
    """The number of each text among the distinct ones, and these."""
    if not isinstance(vector, TextVector):
        coded = to_arrow(vector.values, pa.large_string()).dictionary_encode()
        return to_numpy(coded.indices).astype(np.int64), coded.dictionary
    number, first = np.empty(len(vector), np.int64), np.empty(len(vector), np.int64)
    table = np.zeros(1 << (2 * len(vector) + 1).bit_length(), np.int32)
    first = first[: number_texts(vector.data, vector.begin, vector.end, table, number, first)]
    return number, gathered(vector.data, vector.begin[first], vector.end[first])


def with_times(events: Events, wanted: Mask) -> Events:
    """The events of an open stream; texts of wanted names that hold a time have an entry for it too.

    >>> events = events_of(SparseRows.from_dicts([{"at": "1970-01-01T00:00:01Z"}, {"at": "soon", "n": 3}]))
    >>> timed = with_times(events, np.array([True, False]))
    >>> timed.start.tolist(), timed.code[timed.space == CodeSpace.TEXT_TIME].tolist()
    ([0, 2, 4], [1000000])
    """
    entry = np.flatnonzero((events.space == CodeSpace.TEXT) & wanted[events.name])
    used, which = np.unique(events.code[entry], return_inverse=True)
    values, are_times = read_times(Type.TIMESTAMP, events.texts.take(to_arrow(used)).cast(pa.large_string()))
    entry, which = entry[are_times[which]], which[are_times[which]]
    if not len(entry):
        return events
    of_event = np.repeat(np.arange(events.count), np.diff(events.start))
    event = np.concatenate([of_event, of_event[entry]])
    order = np.argsort(event, kind="stable")
    space = np.full(len(entry), CodeSpace.TEXT_TIME, np.uint8)
    start = np.concatenate([[0], np.cumsum(np.bincount(event, minlength=events.count))])
    return replace(
        events,
        start=start.astype(np.int64),
        name=np.concatenate([events.name, events.name[entry]])[order],
        space=np.concatenate([events.space, space])[order],
        code=np.concatenate([events.code, values[which]])[order],
    )


def _vectors(rows: Rows) -> list[tuple[Index, NDArray[np.int32], Vector]]:
    """Valid values only: event, name, vector."""
    if isinstance(rows, SparseRows):
        return [(part.event, part.name, part.vector) for part in rows.parts]
    found = []
    for number, name in enumerate(rows.names):
        for vector in rows.vectors(name):
            event = np.flatnonzero(vector.valid)
            valid = vector if len(event) == len(vector) else vector.take(event)
            found.append((event, np.full(len(event), number, np.int32), valid))
    return found


def _open(event: Index, name: NDArray[np.int32], vector: Vector) -> list[_Column]:
    """Values of an open stream: numbers have DOUBLE codes, times have TIMESTAMP codes."""
    if vector.type is Type.DATE:
        return [(event, name, CodeSpace.TIMESTAMP, vector.values * _DAY)]
    if vector.type is not Type.BIGINT:
        return [(event, name, SPACES[vector.type], column_codes(vector))]
    near = vector.values.astype(np.float64)
    large = np.abs(near) >= 2.0**53
    if not large.any():
        return [(event, name, CodeSpace.DOUBLE, double_codes(near))]
    whole = [int(value) for value in near[large].tolist()]
    above = np.zeros(len(near), np.int8)  # is the double above (1), below (-1) or equal (0)?
    above[large] = [(w > v) - (w < v) for w, v in zip(whole, vector.values[large].tolist(), strict=True)]
    odd = above != 0
    codes = double_codes(near) - (above > 0)  # the greatest double not above the number
    return [
        (event[~odd], name[~odd], CodeSpace.DOUBLE, codes[~odd]),
        (event[odd], name[odd], CodeSpace.BETWEEN, codes[odd]),
        (event[odd], name[odd], CodeSpace.BIGINT, vector.values[odd]),
    ]


def _number_texts(texts: list[Any], space: NDArray[np.uint8], code: Index) -> Any:
    """The distinct texts of all columns; a text that two columns share gets one number in `code`."""
    if not texts:
        return to_arrow([], pa.large_binary())
    if len(texts) == 1:
        return texts[0].cast(pa.large_binary())
    coded = pa.concat_arrays(texts).dictionary_encode()
    mine = space == CodeSpace.TEXT
    code[mine] = to_numpy(coded.indices)[code[mine]]
    return coded.dictionary.cast(pa.large_binary())


def text_codes(texts: Any, wanted: Any) -> Index:
    """The code of each wanted text among sorted texts (both Arrow binary arrays).

    >>> from tocsin.predicate.flat import sort_texts
    >>> texts = sort_texts([b"blue", b"red"])[0]
    >>> text_codes(texts, pa.array([b"red", b"green", b"zinc"], pa.large_binary())).tolist()
    [4, 2, 6]
    """
    return rank_texts(*text_bytes(texts), *text_bytes(wanted))


def text_bytes(texts: Any) -> tuple[NDArray[np.uint8], Index]:
    """The bytes of an Arrow large_binary array, and where each value starts."""
    _, offsets, data = texts.buffers()
    if offsets is None or not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    at = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return (np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)), at
