"""An ordered index of a table: rows by (join key, selection attribute), as they come and go.

Joins ask for the rows of a key, for the values nearest to a point on both sides, for the rows of a range.
A sorted array answers all of that but takes O(n) per change; so it is cut into blocks of at most 128
entries under a directory of their first entries. A block that is full is split; one that is empty leaves
the directory:

    directory   (1,4)       (3,0)       (3,9)
                  |           |           |
    blocks      1,4 1,9     3,0 3,5     3,9 7,2 7,7

Cost: O(log n) to find a place, plus a block to shift for a change, plus n/64 entries of the directory for
one change in 64. Entries are triples (key, value, row), so that equal keys and values are found by row.
Compiled loops call the functions of `_kernels/orders.py` on `arrays`; `reserve` makes room for a known
number of inserts before.

>>> order = Ordered.build([3, 1, 3, 3], [5, 4, 0, 9], rows=[0, 1, 2, 3])
>>> order.rows_of(3).tolist(), order.neighbours(3, 6)
([2, 0, 3], (5, 9))
>>> order.insert(3, 6, 4)
>>> order.neighbours(3, 6), order.neighbours(2, 6)
((5, 6), (None, None))
>>> order.delete(3, 6, 4), len(order)
(True, 4)

T07, section 4.3 has a B-tree here; a directory of one level is as fast for some millions of rows.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.join._kernels.orders import (
    BLOCKS,
    CAPACITY,
    COUNT,
    FREE,
    LENGTH,
    MIN,
    Order,
    beside,
    delete_row,
    find_run,
    gather_rows,
    insert_row,
    seek,
)
from tocsin.model.columns import Index

__all__ = ["Ordered"]

FILL = CAPACITY * 3 // 4  # of a block, when many rows are taken at once


class Ordered:
    """Rows by (key, value); `arrays` is what kernels see, and is another tuple after `reserve`."""

    def __init__(self) -> None:
        self.arrays = _empty(4)

    @classmethod
    def build(cls, keys: ArrayLike, values: ArrayLike, rows: ArrayLike | None = None) -> Ordered:
        """Many rows at once, numbered from 0 unless told. O(n log n)."""
        key, value = np.asarray(keys, np.int64), np.asarray(values, np.int64)
        row = np.arange(len(key)) if rows is None else np.asarray(rows, np.int64)
        if not key.shape == value.shape == row.shape or key.ndim != 1:
            raise ValueError(
                f"keys, values and rows differ in shape: {key.shape}, {value.shape}, {row.shape}"
            )
        out = cls()
        by = np.lexsort((row, value, key))
        count = -(-len(by) // FILL)
        out.arrays = arrays = _empty(count + count // 4 + 4)
        place = np.arange(len(by)) // FILL * CAPACITY + np.arange(len(by)) % FILL
        for target, source in zip(arrays[:3], (key, value, row), strict=True):
            target[place] = source[by]
        first = np.arange(count) * CAPACITY
        arrays.first_key[:count], arrays.first_value[:count] = arrays.key[first], arrays.value[first]
        arrays.first_row[:count], arrays.block[:count] = arrays.row[first], np.arange(count)
        arrays.size[:count] = np.minimum(FILL, len(by) - np.arange(count) * FILL)
        arrays.meta[:] = count, count, 0, len(by)
        return out

    def reserve(self, inserts: int) -> Order:
        """Room for so many `insert_row` in compiled code; the arrays to call it with."""
        old = self.arrays
        used, splits = int(old.meta[BLOCKS]), min(inserts, int(old.meta[LENGTH])) + inserts // (CAPACITY // 2)
        if used + splits + 1 - old.meta[FREE] > len(old.size):
            self.arrays = _empty(max(used + splits + 2, used + used // 2))
            for target, source in zip(self.arrays, old, strict=True):
                target[: len(source)] = source
        return self.arrays

    def insert(self, key: int, value: int, row: int) -> None:
        insert_row(self.reserve(1), key, value, row)

    def delete(self, key: int, value: int, row: int) -> bool:
        """Whether it was there."""
        return bool(delete_row(self.arrays, key, value, row))

    def ends(self) -> tuple[int, int]:
        """The least and the greatest key; zeros if there are no rows."""
        length = int(self.arrays.meta[LENGTH])
        if not length:
            return 0, 0
        last = int(self.arrays.block[length - 1])
        greatest = self.arrays.key[last * CAPACITY + int(self.arrays.size[last]) - 1]
        return int(self.arrays.first_key[0]), int(greatest)

    def rows_of(self, key: int, low: int = -(2**63), high: int = 2**63 - 1) -> Index:
        """Rows of a key with a value in low..high, by value."""
        return self._gather(seek(self.arrays, key, low), key, high)

    def rows_between(self, low: int, high: int) -> Index:
        """Rows with a key in low..high, by key and value."""
        return self._gather(seek(self.arrays, low, MIN), high, 2**63 - 1)

    def neighbours(self, key: int, value: int) -> tuple[int | None, int | None]:
        """Of the key's values the greatest below `value` and the least from it on."""
        run = find_run(self.arrays, key)
        if not run.length:
            return None, None
        has1, q1, has2, q2 = beside(self.arrays, run, value)
        return (int(q1) if has1 else None), (int(q2) if has2 else None)

    def _gather(self, place: tuple[int, int], key_to: int, value_to: int) -> Index:
        out: NDArray[np.int64] = np.empty(64, np.int64)
        while (n := gather_rows(self.arrays, place, key_to, value_to, out, 0)) > len(out):
            out = np.empty(n, np.int64)
        return out[:n]

    def __len__(self) -> int:
        return int(self.arrays.meta[COUNT])

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def entries(self) -> list[tuple[int, int, int]]:
        """All triples in order, for tests."""
        a = self.arrays
        places = [b * CAPACITY + i for b in a.block[: a.meta[LENGTH]].tolist() for i in range(a.size[b])]
        return list(
            zip(a.key[places].tolist(), a.value[places].tolist(), a.row[places].tolist(), strict=True)
        )

    def _check(self) -> None:
        """Triples ascend; the directory has the first of each block; blocks are used once."""
        a = self.arrays
        length, used, free, count = a.meta.tolist()
        triples = self.entries()
        assert len(triples) == count
        assert all(one < other for one, other in pairwise(triples)), "triples ascend"
        blocks = a.block[:length].tolist()
        assert all(0 < a.size[b] <= CAPACITY for b in blocks)
        first = [(int(a.key[b * CAPACITY]), int(a.value[b * CAPACITY])) for b in blocks]
        told = zip(a.first_key[:length].tolist(), a.first_value[:length].tolist(), strict=True)
        assert first == list(told), "the directory is right"
        assert sorted(blocks + a.free[:free].tolist()) == list(range(used)), "blocks are used or free"


def _empty(blocks: int) -> Order:
    entries = [np.empty(blocks * CAPACITY, np.int64) for _ in range(3)]
    directory = [np.empty(blocks, np.int64) for _ in range(4)]
    size, free = np.zeros(blocks, np.int64), np.empty(blocks, np.int64)
    return Order._make([*entries, *directory, size, free, np.zeros(4, np.int64)])
