"""Texts by number.

>>> texts = Texts(pa.array(["price", "color"]))
>>> numbers = TextNumbers()
>>> numbers.add(texts).tolist(), numbers.find(["color", "size"]).tolist(), list(numbers)
([0, 1], [1, -1], ['price', 'color'])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model._kernels import find_texts, put_texts
from tocsin.model.buffers import Texts, laid_out, unwritable

__all__ = ["TextNumbers"]


class TextNumbers:
    """Texts numbered in order of arrival: an open hash table over their concatenated bytes."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self._table = np.full(64, -1, np.int32)
        self._start = np.zeros(64, np.int64)
        self._bytes = np.empty(1024, np.uint8)
        self._count = 0
        self.add(texts)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        start, data = self._start[: self._count + 1].tolist(), self._bytes.tobytes()
        return (data[a:z].decode() for a, z in pairwise(start))

    def since(self, first: int) -> Iterator[str]:
        """The texts from number `first` on.

        >>> list(TextNumbers(["price", "color"]).since(1))
        ['color']
        """
        start = self._start[first : self._count + 1].tolist()
        data = self._bytes[start[0] : start[-1]].tobytes()
        return (data[a - start[0] : z - start[0]].decode() for a, z in pairwise(start))

    def texts(self) -> Texts:
        """All texts so far, by number."""
        size = int(self._start[self._count])
        buffers = pa.py_buffer(self._start[: self._count + 1]), pa.py_buffer(self._bytes[:size])
        return Texts(pa.LargeStringArray.from_buffers(self._count, *buffers), are_distinct=True)

    def find(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """The number of each text, -1 if it has none."""
        start, data = laid_out(texts)
        return find_texts(self._table, self._start, self._bytes, unwritable(start), unwritable(data))

    def add(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """The number of each text; a new text gets the next."""
        return self.number(*laid_out(texts))

    def number(self, start: NDArray[np.int64], data: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The same for concatenated byte strings: where each starts, and all bytes."""
        start, data = unwritable(start), unwritable(data)
        found = find_texts(self._table, self._start, self._bytes, start, data)
        fresh = np.flatnonzero(found < 0)
        if len(fresh):
            self._grow(len(fresh), int((start[fresh + 1] - start[fresh]).sum()))
            self._count = put_texts(
                self._table, self._start, self._bytes, self._count, start, data, fresh, found
            )
        return found

    def _grow(self, texts: int, size: int) -> None:
        """Extend the buffers for more texts and bytes."""
        most = self._count + texts
        if most + 1 > len(self._start):
            self._start = np.resize(self._start, 2 * most + 1)
        used = int(self._start[self._count])
        if used + size > len(self._bytes):
            self._bytes = np.resize(self._bytes, 2 * (used + size))
        if 2 * most > len(self._table):
            self._table = np.full(1 << (4 * most).bit_length(), -1, np.int32)
            every = np.arange(self._count)
            start, data = unwritable(self._start), unwritable(self._bytes)
            put_texts(self._table, self._start, self._bytes, -1, start, data, every, every.copy())

    def _check(self) -> None:
        assert self.find(list(self)).tolist() == list(range(self._count))
        assert (self._table >= 0).sum() == self._count <= len(self._table) // 2
