"""Many filters as flat arrays: the form that every matching index is built from.

A filter is a disjunction of *conjunctions*; a conjunction is a list of *tests*; a test checks
whether an event's code in one *dimension* lies in a closed interval:

    filter 0:  price <= 580 AND color IN ('red', 'blue')     filter 1:  storage IS NULL

    owner   0                                       1
    start   0                                       3            4
    dim     price      color        color           storage
    low     LEAST      'blue'       'red'           LEAST
    high    580        'blue'       'red'           GREATEST
    flags              OR_NEXT                      ABSENT

Most tests are plain intervals. Flags express the others: NEGATED means "there is a value and it lies
outside" (`!=`, and NOT BETWEEN compiled by column: `columnar.py`, `templated.py`), ABSENT means "there is
no value", and OR_NEXT joins a test with the next one into a clause of alternatives, so that IN, NOT
BETWEEN compiled one by one (`compile.py`), and whole filters in CNF, fit into one conjunction.

A dimension is an attribute in a *code space*, which says how values become codes:

    BIGINT DATE TIMESTAMP BOOLEAN   the value itself
    DOUBLE        the bits, in order; in an open stream every number has such a code
    TEXT          4 x rank among `texts`; +1 just above, -1 just below (so a prefix is an interval)
    REVERSED      the same for texts read backwards (a suffix is an interval), among `backwards`
    PATTERN       present where the pattern (LIKE, ILIKE, RLIKE) matches
    ANY           present where there is a value of any type

In an open stream a BIGINT that no double equals lies between two codes of DOUBLE, and has a second
code in BIGINT; only literals from 2^53 on are also compared there. A text that holds a time is compared as
TIMESTAMP too, if a filter compares its attribute with times.
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

from tocsin.model.buffers import to_arrow, to_numpy
from tocsin.model.columns import Index, Mask, sliced
from tocsin.model.schema import Type

__all__ = [
    "ABSENT",
    "NEGATED",
    "OR_NEXT",
    "SPACES",
    "CodeSpace",
    "FlatFilters",
    "overlay",
    "recode_texts",
    "sort_texts",
]

NEGATED, ABSENT, OR_NEXT = 1, 2, 4


class CodeSpace(IntEnum):
    """How the values of a dimension become codes. Entries of events use those up to TEXT, and the last."""

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
    TEXT_TIME = 10  # in events only: the TIMESTAMP that a text holds, beside its TEXT


class _Spaces(dict[Type, CodeSpace]):
    """The units of a DECIMAL are whole numbers."""

    def __missing__(self, type: Type) -> CodeSpace:
        return CodeSpace.BIGINT


SPACES: dict[Type, CodeSpace] = _Spaces(
    {
        Type.BIGINT: CodeSpace.BIGINT,
        Type.DOUBLE: CodeSpace.DOUBLE,
        Type.DATE: CodeSpace.DATE,
        Type.TIMESTAMP: CodeSpace.TIMESTAMP,
        Type.BOOLEAN: CodeSpace.BOOLEAN,
        Type.STRING: CodeSpace.TEXT,
    }
)


@dataclass(frozen=True)
class FlatFilters:
    """Filters 0..count-1 as flat arrays.

    A filter without a conjunction never matches; a conjunction without a test matches every event. A
    conjunction may have several tests of one dimension. `texts` and `backwards` are Arrow binary
    arrays, sorted, without duplicates.
    """

    count: int
    owner: NDArray[np.int32]  # by conjunction: its filter, ascending
    start: Index  # by conjunction, and one more: its first test
    dim: NDArray[np.int32]  # by test
    low: Index
    high: Index
    flags: NDArray[np.uint8]
    attribute: NDArray[np.int32]  # by dimension: number of its name
    space: NDArray[np.uint8]
    pattern: NDArray[np.int32]  # the pattern of a PATTERN dimension, else -1
    names: Sequence[str]
    texts: Any
    backwards: Any
    patterns: tuple[tuple[str, str], ...]  # ("like", "ilike" or "rlike", pattern)

    @property
    def sizes(self) -> Index:
        """Tests per conjunction."""
        return np.diff(self.start)

    def flat(self) -> FlatFilters:
        """Itself; `DeferredFilters.flat` converts."""
        return self

    def take(self, filters: Mask) -> FlatFilters:
        """The chosen filters, renumbered; dimensions, names and texts do not change."""
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
        assert not np.any(self.flags[last] & OR_NEXT), "a clause reaches beyond its conjunction"
        assert np.all((self.space == CodeSpace.PATTERN) == (self.pattern >= 0))


def overlay(first: FlatFilters, second: FlatFilters, places: Index) -> FlatFilters:
    """The first, plus filter i of the second as filter places[i], of which the first has no conjunction."""
    names = {name: i for i, name in enumerate(first.names)}
    name = np.array([names.setdefault(n, len(names)) for n in second.names], np.int32)
    patterns = {pattern: i for i, pattern in enumerate(first.patterns)}
    pattern = np.array([patterns.setdefault(p, len(patterns)) for p in second.patterns] + [-1], np.int32)
    merged: list[list[Any]] = []
    ends = [[first.low, first.high], [second.low, second.high]]
    for space, both in (
        (CodeSpace.TEXT, (first.texts, second.texts)),
        (CodeSpace.REVERSED, (first.backwards, second.backwards)),
    ):
        texts, rank = sort_texts(pa.concat_arrays([part.cast(pa.large_binary()) for part in both]))
        merged.append(texts)
        for part, own in zip((first, second), (rank[: len(both[0])], rank[len(both[0]) :]), strict=True):
            mine = part.space[part.dim] == space
            codes = ends[0] if part is first else ends[1]
            for i in range(2):
                codes[i] = codes[i].copy()
                codes[i][mine] = recode_texts(codes[i][mine], own)
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


def sort_texts(values: Sequence[bytes] | Any) -> tuple[Any, Index]:
    """The distinct byte strings in order, and the rank of each given one.

    >>> texts, rank = sort_texts([b"red", b"blue", b"red"])
    >>> texts.to_pylist(), rank.tolist()
    ([b'blue', b'red'], [1, 0, 1])
    """
    array = values if isinstance(values, pa.Array) else to_arrow(values, pa.large_binary())
    array = array.cast(pa.large_binary())
    coded = array.dictionary_encode()
    order = to_numpy(pc.array_sort_indices(coded.dictionary))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    index = to_numpy(coded.indices)
    return coded.dictionary.take(to_arrow(order)), rank[index] if len(index) else rank


def recode_texts(codes: Index, rank: Index) -> Index:
    """Codes of texts under new ranks; codes of no text (LEAST, GREATEST) stay.

    >>> recode_texts(np.array([0, 5, -1, 2**63 - 1]), np.array([10, 20])).tolist()
    [40, 81, 39, 9223372036854775807]
    """
    own = (codes >= -1) & (codes < 4 * len(rank) + 2)
    old = (codes[own] + 1) >> 2
    out = codes.copy()
    out[own] = 4 * rank[old] + (codes[own] - 4 * old)
    return out
