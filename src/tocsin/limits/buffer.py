"""Rows of one side of a join of streams, in columns, in order of arrival.

    row        0        1        2        ...  count
    code       5        2        5             which key
    next      -1       -1        0             the row before with this key
    seq, time  when it arrived; its event time, if the join has one
    weight     how many subscriptions want it
    a.price    7.5      NULL     2.0           the columns that subscriptions show or test
    a.name     begin, size ─► bytes of all texts, in order

Dropping rows moves the rest to the front, in place.

A buffer under a hard budget must not be copied to grow: for a moment it would exist twice. So its arrays are
as long as the budget allows from the beginning (`paged`); only pages that were written count. When rows are
dropped and the rest moves to the front, the pages behind them are given back (`release`).

>>> numbers = paged(np.int64, 1 << 20)
>>> numbers[:3] = 1, 2, 3
>>> release(numbers, 3)
>>> numbers[:3].tolist()
[1, 2, 3]
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.limits._kernels.joining import link_rows
from tocsin.limits._kernels.scoring import move_items, move_texts
from tocsin.model._kernels import gather_texts
from tocsin.model.buffers import laid_out
from tocsin.model.columns import Index, Mask, TextVector, Vector
from tocsin.model.schema import Type

__all__ = ["JoinBuffer", "KeptColumn", "KeptTexts", "paged", "release", "resized"]

_SMALL = 1 << 18  # bytes; smaller arrays are ordinary ones
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
_DISCARD = getattr(mmap, "MADV_DONTNEED", None)


def paged(dtype: Any, count: int) -> NDArray[Any]:
    """An array of zeros."""
    size = np.dtype(dtype).itemsize * count
    if size < _SMALL or not _PRIVATE:
        return np.zeros(count, dtype)
    return np.frombuffer(mmap.mmap(-1, size, flags=_PRIVATE), dtype, count)


def release(array: NDArray[Any], used: int) -> None:
    """Give back the memory behind the first `used` items, or those of each row; they may be written again."""
    memory = _memory_of(array)
    if memory is None or _DISCARD is None:
        return
    page, length = mmap.PAGESIZE, array.shape[-1] * array.itemsize
    for start in range(0, array.nbytes, length):
        begin = -(-(start + used * array.itemsize) // page) * page
        end = start + length
        if end < array.nbytes:  # the page may have items of the next row
            end = end // page * page
        if begin < end:
            memory.madvise(_DISCARD, begin, end - begin)


def resized(array: NDArray[Any], count: int) -> NDArray[Any]:
    """The items in an array of another length."""
    made = paged(array.dtype, count)
    kept = min(count, len(array))
    made[:kept] = array[:kept]
    return made


def _memory_of(array: NDArray[Any]) -> mmap.mmap | None:
    base: Any = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None


_DTYPES: dict[Type, Any] = {Type.DOUBLE: np.float64, Type.BOOLEAN: np.bool_}
_FIRST = 1024


@dataclass
class KeptColumn:
    """Values of one column by row."""

    type: Type
    values: NDArray[Any]
    valid: NDArray[np.bool_]


class KeptTexts:
    """Texts of one column by row: row i has `data[begin[i] : begin[i] + size[i]]`."""

    type = Type.STRING

    def __init__(self, space: int, bytes: int) -> None:
        self.begin, self.size = paged(np.int64, space), paged(np.int32, space)
        self.valid, self.data = paged(np.bool_, space), paged(np.uint8, bytes)
        self.used = 0

    def put(self, first: int, vector: Vector, rows: Index) -> None:
        """The texts of some rows of a vector, as rows from `first` on."""
        start, data = laid_out(vector.values)
        count = len(rows)
        begin, end = start[:-1][rows], start[1:][rows]
        self.size[first : first + count] = end - begin
        self.valid[first : first + count] = vector.valid[rows]
        total = int((end - begin).sum())
        if self.used + total > len(self.data):
            self.data = resized(self.data, max(self.used + total, 2 * len(self.data)))
        out = np.empty(count + 1, np.int64)
        gather_texts(data, begin, end, out, self.data[self.used : self.used + total])
        self.begin[first : first + count] = out[:-1] + self.used
        self.used += total

    def take(self, rows: Index) -> Vector:
        """Texts of rows, copied."""
        begin = self.begin[rows]
        end, out = begin + self.size[rows], np.empty(len(rows) + 1, np.int64)
        data = np.empty(int((end - begin).sum()), np.uint8)
        gather_texts(self.data, begin, end, out, data)
        return TextVector(data, out[:-1], out[1:], self.valid[rows])

    def keep(self, keep: Mask, kept: int) -> None:
        for items in (self.begin, self.size, self.valid.view(np.uint8)):
            move_items(items, keep)
        self.used = int(move_texts(self.data, self.begin[:kept], self.size[:kept]))
        release(self.data, self.used)


class JoinBuffer:
    """Rows of one side; `bytes`: what they may take in all, for the first allocation.

    >>> buffer = JoinBuffer({"x": Type.BIGINT}, 0)
    >>> rows = {"x": Vector.of(Type.BIGINT, [7, 8, 9])}
    >>> buffer.append(np.array([0, 2]), np.array([0, 0], np.int32), np.array([1, 3]), None, None, rows)
    >>> buffer.keep(np.array([False, True])), buffer.take("x", np.array([0])).to_list()
    (None, [9])
    """

    def __init__(self, columns: dict[str, Type], bytes: int) -> None:
        self.count = 0
        self.columns: dict[str, KeptColumn | KeptTexts] = {}
        self._bytes = bytes
        self._space = max(_FIRST, bytes // 48)  # a row takes more
        self.code, self.next = paged(np.int32, self._space), paged(np.int32, self._space)
        self.seq, self.time = paged(np.int64, self._space), paged(np.int64, self._space)
        self.weight, self.score = paged(np.int32, self._space), paged(np.float64, self._space)
        for name, type in columns.items():
            self.add_column(name, type)

    def add_column(self, name: str, type: Type) -> None:
        """A column that rows have from now on; in those before it is NULL."""
        if type is Type.STRING:
            self.columns[name] = KeptTexts(self._space, max(_FIRST, self._bytes))
        else:
            values = paged(_DTYPES.get(type, np.int64), self._space)
            self.columns[name] = KeptColumn(type, values, paged(np.bool_, self._space))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, without those of its texts."""
        fixed = 4 + 4 + 8 + 8 + 4 + 8
        for column in self.columns.values():
            fixed += 13 if isinstance(column, KeptTexts) else column.values.itemsize + 1
        return fixed

    @property
    def nbytes(self) -> int:
        return self.count * self.row_bytes + sum(texts.used for texts in self.texts())

    def texts(self) -> Iterable[KeptTexts]:
        return (column for column in self.columns.values() if isinstance(column, KeptTexts))

    def text_bytes(self) -> NDArray[np.int32]:
        """Bytes of each row's texts; empty if there are none."""
        parts = [texts.size[: self.count] for texts in self.texts()]
        if len(parts) < 2:
            return parts[0] if parts else np.empty(0, np.int32)
        return np.sum(parts, axis=0, dtype=np.int32)

    def append(
        self,
        rows: Index,
        code: NDArray[np.int32],
        seq: Index,
        time: Index | None,
        weight: NDArray[np.int32] | None,
        vectors: dict[str, Vector],
    ) -> None:
        """Rows of a batch: some of its vectors' cells; `code`, `seq`, `time` and `weight` are theirs."""
        first, last = self.count, self.count + len(rows)
        if last > self._space:
            self._grow(last)
        self.code[first:last], self.seq[first:last] = code, seq
        self.time[first:last] = seq if time is None else time
        self.weight[first:last] = 1 if weight is None else weight
        for name, column in self.columns.items():
            if isinstance(column, KeptTexts):
                column.put(first, vectors[name], rows)
            else:
                column.values[first:last] = vectors[name].values[rows]
                column.valid[first:last] = vectors[name].valid[rows]
        self.count = last

    def link(self, heads: NDArray[np.int32], first: int = 0) -> None:
        """Put rows from `first` on into the chains of their keys."""
        link_rows(heads, self.next, self.code, first, self.count)

    def take(self, name: str, rows: Index) -> Vector:
        """The cells of a column in some rows, copied."""
        column = self.columns[name]
        if isinstance(column, KeptTexts):
            return column.take(rows)
        return Vector(column.type, column.values[rows], column.valid[rows])

    def cut(self, count: int) -> None:
        """Remove rows from `count` on. Chains are to be linked again."""
        for texts in self.texts():
            texts.used = int(texts.begin[count]) if count < self.count else texts.used
        self.count = count

    def keep(self, keep: Mask) -> None:
        """Remove all other rows. Chains are to be linked again."""
        for items in (self.code, self.seq, self.time, self.weight):
            move_items(items, keep)
        kept = int(np.count_nonzero(keep))
        for column in self.columns.values():
            if isinstance(column, KeptTexts):
                column.keep(keep, kept)
            else:
                size = column.values.itemsize
                move_items(column.values.view(np.int64 if size == 8 else np.uint8), keep)
                move_items(column.valid.view(np.uint8), keep)
        self.count = kept
        for array in self._arrays():
            release(array, kept)

    def _arrays(self) -> Iterable[NDArray[Any]]:
        yield from (self.code, self.next, self.seq, self.time, self.weight, self.score)
        for column in self.columns.values():
            if isinstance(column, KeptTexts):
                yield from (column.begin, column.size, column.valid)
            else:
                yield from (column.values, column.valid)

    def _grow(self, count: int) -> None:
        self._space = max(2 * self._space, count)
        for name in ("code", "next", "seq", "time", "weight", "score"):
            setattr(self, name, resized(getattr(self, name), self._space))
        for column in self.columns.values():
            column.valid = resized(column.valid, self._space)
            if isinstance(column, KeptTexts):
                column.begin = resized(column.begin, self._space)
                column.size = resized(column.size, self._space)
            else:
                column.values = resized(column.values, self._space)

    def _check(self) -> None:
        assert all(len(array) >= self.count for array in self._arrays())
        assert np.all(np.diff(self.seq[: self.count]) > 0), "rows are in order of arrival"
        for texts in self.texts():
            ends = texts.begin[: self.count] + texts.size[: self.count]
            assert np.array_equal(texts.begin[: self.count], np.concatenate([[0], ends])[: self.count])
            assert texts.used == (ends[-1] if self.count else 0)
