"""Many filters as flat arrays: what matching indexes are built from.

A filter is a disjunction of *conjunctions*; a conjunction is a list of *tests*; a test asks
whether an event's code in one *dimension* lies in a closed interval:

    filter 0:  price <= 580 AND color IN ('red', 'blue')     filter 1:  storage IS NULL

    owner   0                                       1
    start   0                                       3            4
    dim     price      color        color           storage
    low     LEAST      'blue'       'red'           LEAST
    high    580        'blue'       'red'           GREATEST
    flags              OR_NEXT                      ABSENT

Most filters are plain lists of intervals. The flags say the rest: NEGATED is "there is a value and
it is outside", ABSENT is "there is no value", and OR_NEXT joins a test with the one after it
into a clause of alternatives, which is how IN, and whole filters in CNF, stay in one conjunction.

A dimension is an attribute in a *space*, the kind of codes its values have:

    BIGINT DATE TIMESTAMP BOOLEAN   the value itself
    DOUBLE        the bits, in order; in an open stream every number has such a code
    TEXT          4 x rank among `texts`; +1 just above, -1 just below (so a prefix is an interval)
    REVERSED      the same for texts read backwards (a suffix is an interval), among `backwards`
    PATTERN       present where the pattern (LIKE or RLIKE) matches
    ANY           present where there is a value of any kind

In an open stream a BIGINT that is no double lies between two codes of DOUBLE, and has a code in
BIGINT besides; only a literal from 2^53 on needs to look there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tocsin.model.columns import Index, Mask, sliced
from tocsin.model.schema import Type
from tocsin.predicate._kernels.flat import rank_texts

__all__ = [
    "ABSENT",
    "NEGATED",
    "OR_NEXT",
    "SPACES",
    "FlatFilters",
    "Space",
    "as_texts",
    "overlaid",
    "ranks",
    "text_codes",
]

NEGATED, ABSENT, OR_NEXT = 1, 2, 4


class Space(IntEnum):
    """The kind of codes of a dimension; those up to TEXT are also the kinds of values in events."""

    BIGINT = 0
    DOUBLE = 1
    DATE = 2
    TIMESTAMP = 3
    BOOLEAN = 4
    TEXT = 5
    REVERSED = 6
    PATTERN = 7
    ANY = 8
    BETWEEN = 9  # in events only: a number just above its DOUBLE code


SPACES: dict[Type, Space] = {
    Type.BIGINT: Space.BIGINT,
    Type.DOUBLE: Space.DOUBLE,
    Type.DATE: Space.DATE,
    Type.TIMESTAMP: Space.TIMESTAMP,
    Type.BOOLEAN: Space.BOOLEAN,
    Type.STRING: Space.TEXT,
}


@dataclass(frozen=True)
class FlatFilters:
    """Filters 0..count-1 as flat arrays; a filter without a conjunction never matches.

    A conjunction of no tests holds for every event. Tests of a dimension may occur more than once in
    a conjunction. `texts` and `backwards` are Arrow binary arrays, sorted, without doubles.
    """

    count: int
    owner: NDArray[np.int32]  # by conjunction: its filter, ascending
    start: Index  # by conjunction, and one more: its first test
    dim: NDArray[np.int32]  # by test
    low: Index
    high: Index
    flags: NDArray[np.uint8]
    attribute: NDArray[np.int32]  # by dimension: its name
    space: NDArray[np.uint8]
    pattern: NDArray[np.int32]  # the pattern of a PATTERN dimension, else -1
    names: Sequence[str]
    texts: Any
    backwards: Any
    patterns: tuple[tuple[str, str], ...]  # ("like" or "rlike", pattern)

    @property
    def sizes(self) -> Index:
        """Tests per conjunction."""
        return np.diff(self.start)

    def flat(self) -> FlatFilters:
        """Itself: filters for later (`later.py`) are made flat by this."""
        return self

    def take(self, filters: Mask) -> FlatFilters:
        """Some of the filters, renumbered; dimensions, names and texts stay as they are."""
        kept = filters[self.owner]
        tests = np.repeat(kept, self.sizes)
        number = (np.cumsum(filters) - 1).astype(np.int32)
        start = np.concatenate([[0], np.cumsum(self.sizes[kept])]).astype(np.int64)
        return FlatFilters(
            int(filters.sum()),
            number[self.owner[kept]],
            start,
            self.dim[tests],
            self.low[tests],
            self.high[tests],
            self.flags[tests],
            self.attribute,
            self.space,
            self.pattern,
            self.names,
            self.texts,
            self.backwards,
            self.patterns,
        )

    def _check(self) -> None:
        assert len(self.start) == len(self.owner) + 1 and self.start[0] == 0
        assert self.start[-1] == len(self.dim) == len(self.low) == len(self.high) == len(self.flags)
        assert np.all(np.diff(self.owner) >= 0) and np.all(self.owner < self.count)
        last = self.start[1:][self.sizes > 0] - 1
        assert not np.any(self.flags[last] & OR_NEXT), "a clause ends with its conjunction"
        assert np.all((self.space == Space.PATTERN) == (self.pattern >= 0))


def overlaid(first: FlatFilters, second: FlatFilters, places: Index) -> FlatFilters:
    """The first, with the filters of the second at these places, where it has none of its own."""
    names = {name: i for i, name in enumerate(first.names)}
    name = np.array([names.setdefault(n, len(names)) for n in second.names], np.int32)
    patterns = {pattern: i for i, pattern in enumerate(first.patterns)}
    pattern = np.array([patterns.setdefault(p, len(patterns)) for p in second.patterns] + [-1], np.int32)
    merged: list[list[Any]] = []
    ends = [[first.low, first.high], [second.low, second.high]]
    for space, both in (
        (Space.TEXT, (first.texts, second.texts)),
        (Space.REVERSED, (first.backwards, second.backwards)),
    ):
        texts, rank = as_texts(pa.concat_arrays([part.cast(pa.large_binary()) for part in both]))
        merged.append(texts)
        for part, own in zip((first, second), (rank[: len(both[0])], rank[len(both[0]) :]), strict=True):
            mine = part.space[part.dim] == space
            codes = ends[0] if part is first else ends[1]
            for i in range(2):
                codes[i] = codes[i].copy()
                codes[i][mine] = ranks(codes[i][mine], own)
    owner = np.concatenate([first.owner, places[second.owner]])
    order = np.argsort(owner, kind="stable")
    sizes = np.concatenate([first.sizes, second.sizes])
    begin = np.concatenate([first.start[:-1], second.start[:-1] + first.start[-1]])[order]
    start, test = sliced(begin, sizes[order])
    return FlatFilters(
        first.count,
        owner[order].astype(np.int32),
        start,
        np.concatenate([first.dim, second.dim + len(first.space)])[test].astype(np.int32),
        np.concatenate([ends[0][0], ends[1][0]])[test],
        np.concatenate([ends[0][1], ends[1][1]])[test],
        np.concatenate([first.flags, second.flags])[test],
        np.concatenate([first.attribute, name[second.attribute] if len(name) else second.attribute]),
        np.concatenate([first.space, second.space]),
        np.concatenate([first.pattern, pattern[second.pattern]]),
        tuple(names),
        merged[0],
        merged[1],
        tuple(patterns),
    )


def as_texts(values: Sequence[bytes] | Any) -> tuple[Any, Index]:
    """Byte strings sorted and without doubles, and the rank of each given one.

    >>> texts, rank = as_texts([b"red", b"blue", b"red"])
    >>> texts.to_pylist(), rank.tolist()
    ([b'blue', b'red'], [1, 0, 1])
    """
    array = values if isinstance(values, pa.Array) else pa.array(values, pa.large_binary())
    array = array.cast(pa.large_binary())
    coded = array.dictionary_encode()
    order = pc.array_sort_indices(coded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    index = coded.indices.to_numpy(zero_copy_only=False)
    return coded.dictionary.take(pa.array(order)), rank[index] if len(index) else rank


def ranks(codes: Index, rank: Index) -> Index:
    """Codes of texts under new ranks; what is no text's code (LEAST, GREATEST) stays.

    >>> ranks(np.array([0, 5, -1, 2**63 - 1]), np.array([10, 20])).tolist()
    [40, 81, 39, 9223372036854775807]
    """
    own = (codes >= -1) & (codes < 4 * len(rank) + 2)
    old = (codes[own] + 1) >> 2
    out = codes.copy()
    out[own] = 4 * rank[old] + (codes[own] - 4 * old)
    return out


def text_codes(texts: Any, asked: Any) -> Index:
    """The code of each asked text among sorted texts (both Arrow binary arrays).

    >>> texts = as_texts([b"blue", b"red"])[0]
    >>> text_codes(texts, pa.array([b"red", b"green", b"zinc"], pa.large_binary())).tolist()
    [4, 2, 6]
    """
    return rank_texts(*_bytes(texts), *_bytes(asked))


def _bytes(texts: Any) -> tuple[NDArray[np.uint8], Index]:
    """The bytes of an Arrow large_binary array, and where each value starts."""
    _, offsets, data = texts.buffers()
    if offsets is None or not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    at = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return (np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)), at
