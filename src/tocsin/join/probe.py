"""Which rows of a table join given rows of another: by equal keys, and by bands.

Candidates: with equalities, a table sorted by its join key, once per step and key, probed by
binary search. With bands alone, every pair. Verification: the bands.

Keys compare exactly and across types: 1 joins 1.0, a date joins its midnight; NULL joins
nothing. NaN joins NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tocsin.language.algebra import Band
from tocsin.model.columns import Index, Mask, Vector, double_codes
from tocsin.model.schema import Type
from tocsin.predicate.codes import LEAST, column_codes, interval

__all__ = ["KeyOrder", "all_pairs", "band_holds"]

_DAY = 86_400_000_000
_PAIRS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class KeyOrder:
    """Rows of a table in order of a (composite) join key.

    Column after column, the rank of the columns so far and the rank of the next one are a pair,
    and `pairs` knows the distinct pairs: their rank goes on. The last rank is the row's key.
    `sorted_keys[i]` is the key of row `order[i]`; rows with a NULL in the key are left out.
    """

    columns: tuple[KeyColumn, ...]
    pairs: tuple[Index, ...]
    order: Index
    sorted_keys: Index

    @classmethod
    def of(cls, vectors: Sequence[Vector], present: Mask) -> KeyOrder:
        columns = tuple(KeyColumn.of(vector, present) for vector in vectors)
        key, pairs = np.where(present, 0, -1), []
        for column, vector in zip(columns, vectors, strict=True):
            pair = _pair(key, column, vector)
            pairs.append(np.unique(pair[pair >= 0]))
            key = _rank(pairs[-1], pair)
        rows = np.flatnonzero(key >= 0)
        order = rows[np.argsort(key[rows], kind="stable")]
        return cls(columns, tuple(pairs), order, key[order])

    def probe(self, vectors: Sequence[Vector]) -> tuple[Index, Index]:
        """All (probing row, row of the table) with equal keys."""
        key = np.zeros(len(vectors[0]), np.int64)
        for column, pairs, vector in zip(self.columns, self.pairs, vectors, strict=True):
            key = _rank(pairs, _pair(key, column, vector))
        low = np.searchsorted(self.sorted_keys, key, side="left")
        high = np.searchsorted(self.sorted_keys, key, side="right")
        count = np.where(key >= 0, high - low, 0)
        probing = np.repeat(np.arange(len(key)), count)
        within = np.arange(len(probing)) - np.repeat(np.cumsum(count) - count, count)
        return probing, self.order[np.repeat(low, count) + within]


@dataclass(frozen=True)
class KeyColumn:
    """The distinct values of one key column, to rank values of either side of a join in."""

    type: Type
    values: Any  # sorted codes, or distinct texts

    @classmethod
    def of(cls, vector: Vector, present: Mask) -> KeyColumn:
        here = vector.take(np.flatnonzero(present & vector.valid))
        if vector.type is Type.STRING:
            return cls(vector.type, pc.unique(pa.array(here.values, pa.string())))
        return cls(vector.type, np.unique(column_codes(here)))

    def __len__(self) -> int:
        return len(self.values)

    def rank(self, vector: Vector) -> Index:
        """The rank of each value, -1 where it is not among them or NULL."""
        if self.type is Type.STRING:
            found = pc.index_in(pa.array(vector.values, pa.string()), value_set=self.values)
            rank = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
            return np.where(vector.valid, rank, -1)
        codes, exact = _as_type(vector, self.type)
        return np.where(exact & vector.valid, _rank(self.values, codes), -1)


def _pair(key: Index, column: KeyColumn, vector: Vector) -> Index:
    rank = column.rank(vector)
    return np.where((rank >= 0) & (key >= 0), key * max(1, len(column)) + rank, -1)


def _rank(values: Index, wanted: Index) -> Index:
    """The place of each wanted value among sorted distinct ones, -1 where it is not there."""
    rank = np.searchsorted(values, wanted)
    inside = rank < len(values)
    inside[inside] = values[rank[inside]] == wanted[inside]
    return np.where(inside, rank, -1)


def _as_type(vector: Vector, type: Type) -> tuple[Index, Mask]:
    """Codes of the values as values of another type of the kind, and where that is exact."""
    every = np.ones(len(vector), np.bool_)
    if vector.type is type:
        return column_codes(vector), every
    if type is Type.DOUBLE:
        near = vector.values.astype(np.float64)
        back, inside = _integers(near)
        return double_codes(near), inside & (back == vector.values)
    if type is Type.BIGINT:
        return _integers(vector.values)
    if type is Type.TIMESTAMP:
        return vector.values * _DAY, every
    return vector.values // _DAY, vector.values % _DAY == 0


def _integers(values: NDArray[np.float64]) -> tuple[Index, Mask]:
    """Doubles as integers, and where they are integers; 2^63 and beyond are not int64."""
    inside = (values >= -(2.0**63)) & (values < 2.0**63)
    whole = np.where(inside, values, 0.0).astype(np.int64)
    return whole, inside & (whole.astype(np.float64) == values)


def all_pairs(left: int, right: Index) -> Any:
    """Every pair of a left row number and a right slot, in chunks of bounded size."""
    chunk = max(1, _PAIRS_AT_ONCE // max(1, len(right)))
    for start in range(0, left, chunk):
        count = min(chunk, left - start)
        yield np.repeat(np.arange(start, start + count), len(right)), np.tile(right, count)


def band_holds(band: Band, a: Vector, b: Vector) -> Mask:
    """Row by row, whether `low <= left - right <= high`; NULL on either side fails."""
    holds = a.valid & b.valid
    ends = [(">" if band.low_open else ">=", band.low), ("<" if band.high_open else "<=", band.high)]
    for op, end in ends:
        if end is not None:
            holds &= _compare(a, b, op, end)
    return holds


def _compare(a: Vector, b: Vector, op: str, end: int | float) -> Mask:
    """`a - b op end`: exact for integers and times (microseconds); IEEE where a double takes part.

    Equal values differ by 0, infinities too; NaN is above every number, so NaN - x is above
    and x - NaN below every end.
    """
    if a.type is Type.DOUBLE or b.type is Type.DOUBLE:
        x, y = a.values.astype(np.float64), b.values.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, x - y)
        codes = np.where(np.isnan(y) & ~np.isnan(x), LEAST, double_codes(difference))
        low, high = interval(Type.DOUBLE, op, end)
        return (codes >= low) & (codes <= high)
    i = a.values * _DAY if a.type is Type.DATE else a.values
    j = b.values * _DAY if b.type is Type.DATE else b.values
    codes = i - j
    if (((i ^ j) & (i ^ codes)) < 0).any():  # left int64: go on with integers without bound
        return np.asarray(_UNBOUNDED[op](i.astype(object) - j.astype(object), end), np.bool_)
    low, high = interval(Type.BIGINT, op, end)
    return (codes >= low) & (codes <= high)


_UNBOUNDED = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}
