"""Stretches: subscriptions over one table, placed by the range of one column that each of them selects.

An answer over one table depends on the rows inside the subscription's range alone. So the values of a column
are cut into stretches, one for each shard. A shard has the subscriptions whose ranges begin in its stretch,
and the rows of its stretch and of a margin behind it, instead of the whole table:

    stretches   0          |1          |2          |3
    shard 0     ..............                            rows
    shard 1                 ..............
    ranges       [--]     [--]   [-]       [--------]     the last is in no shard's rows: it is *wide*
    placed in     0        0      1        by subscription, with whole copies of the table

Which column that is, and each subscription's range of it, is read once, when a version is written, from the
same flat filters as in the engine's rooms (`range_notes.py`). A single text is a range of one hash. The cuts
are quantiles of the first subscriptions (`ENOUGH` or more) over a column, and never change, so that no
subscription moves from one shard to another. If later ones lie elsewhere, shards are less even, and no answer
changes.

>>> cuts = cuts_of(np.arange(1000), np.arange(1000) + 5)
>>> place_ranges(cuts, 4, np.array([0, 245, 248, 400]), np.array([5, 250, 253, 700])).tolist()
[0, 0, 0, -1]
>>> hull(cuts, 4, 0) == (LEAST, 314), hull(cuts, 4, 3)[1] == GREATEST
(True, True)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model.columns import Index, Vector
from tocsin.model.schema import Stream, Table, Type
from tocsin.predicate.codes import GREATEST, LEAST, vector_codes

__all__ = [
    "ENOUGH", "RangeColumn", "RowRanges", "Stretch", "codes_of", "columns_in", "cuts_of", "hull",
    "place_ranges",
]  # fmt: skip

ENOUGH = 1024  # subscriptions over a column, from which its cuts are taken
PARTS = 256  # quantiles that are kept: shards are runs of them
MARGIN = 4  # of a stretch, a quarter more


class RangeColumn(NamedTuple):
    """A column of a table; its type decides how values become codes."""

    table: str
    column: str
    type: Type

    @classmethod
    def from_json(cls, plain: Any) -> RangeColumn:
        """From the list that JSON makes of it."""
        table, column, kind = plain
        return cls(table, column, Type(kind))


class Stretch(NamedTuple):
    """The rows of one shard: those with codes of a column from `low` to below `high`."""

    column: RangeColumn
    low: int
    high: int

    def holds(self, codes: Index, valid: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which rows are inside; GREATEST is no end."""
        below = (codes < self.high) | (self.high == GREATEST)
        return np.asarray(valid & (codes >= self.low) & below)


@dataclass(frozen=True, eq=False)
class RowRanges:
    """By row of a block: which column it is placed by (-1: none), and its range of codes."""

    columns: tuple[RangeColumn, ...]
    column: NDArray[np.int16]
    low: Index
    high: Index

    @classmethod
    def none(cls, count: int) -> RowRanges:
        """Of rows without any."""
        ends = np.zeros(count, np.int64)
        return cls((), np.full(count, -1, np.int16), ends, ends)

    def take(self, rows: Index) -> RowRanges:
        return RowRanges(self.columns, self.column[rows], self.low[rows], self.high[rows])

    def only(self, keep: NDArray[np.bool_]) -> RowRanges:
        """The same, with ranges only where `keep` is true."""
        return RowRanges(self.columns, np.where(keep, self.column, -1).astype(np.int16), self.low, self.high)

    @classmethod
    def concat(cls, parts: Sequence[RowRanges]) -> RowRanges:
        parts = [cls.none(0), *parts]
        known: dict[RangeColumn, int] = {}
        codes = [
            np.array([*(known.setdefault(one, len(known)) for one in part.columns), -1])[part.column]
            for part in parts
        ]
        ends = (np.concatenate([getattr(part, name) for part in parts]) for name in ("low", "high"))
        return cls(tuple(known), np.concatenate(codes).astype(np.int16), *ends)


# -- cuts ----------------------------------------------------------------------------------------------


def cuts_of(low: Index, high: Index) -> list[int]:
    """Quantiles of the middles of some ranges."""
    middle = np.sort((low >> 1) + (high >> 1))
    at = np.arange(1, PARTS) * len(middle) // PARTS
    return [int(one) for one in middle[at]]


def _ends(cuts: Sequence[int], count: int) -> tuple[Index, Index]:
    """Where each of `count` stretches begins, and where its margin ends."""
    whole = np.array([LEAST, *cuts, GREATEST], np.int64)
    begin = np.arange(count + 1) * PARTS // count
    margin = max(1, PARTS // (MARGIN * count))
    return whole[begin[:-1]], whole[np.minimum(begin[1:] + np.where(begin[1:] < PARTS, margin, 0), PARTS)]


def hull(cuts: Sequence[int], count: int, number: int) -> tuple[int, int]:
    """The codes of a shard's rows: from, and to below."""
    begin, end = _ends(cuts, count)
    return int(begin[number]), int(end[number])


def place_ranges(cuts: Sequence[int], count: int, low: Index, high: Index) -> Index:
    """The shard of each range; -1 if it is wide. At most `PARTS` shards are used."""
    begin, end = _ends(cuts, min(count, PARTS))
    shard = np.searchsorted(begin, low, "right") - 1
    inside = (high < end[shard]) | (end[shard] == GREATEST)
    return np.where(inside, shard, -1)


def codes_of(relation: Table | Stream, column: str, rows: pa.Table) -> tuple[Index, NDArray[np.bool_]]:
    """The codes of a column by row, and which rows have a value."""
    kind = next(field.type for field in relation.fields if field.name == column)
    vector = Vector.from_arrow(kind, rows[column].combine_chunks())
    return vector_codes(vector), vector.valid


def columns_in(parts: Sequence[RowRanges]) -> Iterator[tuple[RangeColumn, Index, Index]]:
    """Each column of some rows, with the ends of their ranges."""
    whole = RowRanges.concat(parts)
    for code, column in enumerate(whole.columns):
        mine = whole.column == code
        yield column, whole.low[mine], whole.high[mine]
