"""Join keys of two streams: 64 bits for each key, and dense codes for those that have rows.

A key of one column that is no text is its value's code, so equal keys are equal values. Texts and keys of
several columns are hashed; pairs of those are verified (`stream_family.py`).

>>> keys = KeyCodes()
>>> keys.put(np.array([50, 70, 50])).tolist(), keys.find(np.array([70, 80])).tolist()
([0, 1, 0], [1, -1])
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tocsin.join.signature import KeySpec
from tocsin.join.tables import codes_as
from tocsin.limits._kernels.joining import (
    FREE,
    FREED,
    LIVE,
    USED,
    KeyArrays,
    collect_dead,
    find_keys,
    place_keys,
    put_keys,
    remove_keys,
    unlink_all,
)
from tocsin.limits.models.base import Doubles
from tocsin.limits.pages import paged, resized
from tocsin.model.columns import Index, Mask, Vector
from tocsin.model.schema import Type
from tocsin.model.texts import laid_out
from tocsin.predicate.codes import text_hashes

__all__ = ["KeyCodes", "is_exact", "key_hashes", "key_numbers"]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_LEAST = 64


def is_exact(spec: KeySpec) -> bool:
    """Whether equal 64 bits are equal keys."""
    return len(spec.types) == 1 and spec.types[0] is not Type.STRING


def key_hashes(spec: KeySpec, vectors: tuple[Vector, ...]) -> tuple[Index, Mask]:
    """64 bits of each row's key, and which rows have a key."""
    codes, valid = [], np.ones(len(vectors[0]), np.bool_)
    for vector, type in zip(vectors, spec.types, strict=True):
        if type is Type.STRING:
            codes.append(text_hashes(*laid_out(vector.values)))
            valid &= vector.valid
        else:
            code, exact = codes_as(vector, type, {})
            codes.append(code)
            valid &= vector.valid & exact
    if len(codes) == 1:
        return codes[0], valid
    mixed = np.zeros(len(valid), np.uint64)
    for code in codes:
        mixed = (mixed ^ code.astype(np.uint64)) * _STEP
        mixed ^= mixed >> np.uint64(29)
    return mixed.view(np.int64), valid


def key_numbers(spec: KeySpec, keys: Index) -> Doubles | None:
    """Keys as numbers, for models that compute with values; None for texts, truths, several columns."""
    if not is_exact(spec) or spec.types[0] is Type.BOOLEAN:
        return None
    if spec.types[0] is not Type.DOUBLE:
        return keys.astype(np.float64)
    bits = np.where(keys < 0, np.int64(-(2**63)) | -keys, keys)  # `order_doubles` backwards
    return bits.view(np.float64)


class KeyCodes:
    """Codes of keys, with the heads of their chains and counts of dropped rows; kernels read `arrays`."""

    def __init__(self, space: int = _LEAST) -> None:
        self.arrays = KeyArrays(
            np.full(2 * _LEAST, -1, np.int32),
            paged(np.int64, space),
            paged(np.int32, 2 * space).reshape(2, space),
            paged(np.int32, 2 * space).reshape(2, space),
            paged(np.int32, space),
            np.zeros(3, np.int64),
        )

    def __len__(self) -> int:
        return int(self.arrays.state[LIVE])

    @property
    def used(self) -> int:
        """Codes are below this."""
        return int(self.arrays.state[USED])

    def put(self, keys: Index) -> NDArray[np.int32]:
        """The code of each key; new ones are entered."""
        self._reserve(len(keys))
        out = np.empty(len(keys), np.int32)
        put_keys(np.ascontiguousarray(keys), self.arrays, out)
        return out

    def find(self, keys: Index) -> NDArray[np.int32]:
        """The code of each key; -1 if it has none."""
        out = np.empty(len(keys), np.int32)
        find_keys(np.ascontiguousarray(keys), self.arrays, out)
        return out

    def unlink(self) -> None:
        """Empty all chains."""
        unlink_all(self.arrays)

    def remove_dead(self, most: int = 0) -> NDArray[np.int32]:
        """Remove keys without rows, kept or counted; their codes. So many of the oldest may stay, or half."""
        out = np.empty(self.used, np.int32)
        dead = out[: collect_dead(self.arrays, out)].copy()
        if len(dead) <= most:
            return dead[:0]
        dead = dead[most // 2 :]
        remove_keys(dead, self.arrays)
        return dead

    def alive(self) -> Index:
        """The codes of keys."""
        return np.flatnonzero(self.arrays.heads[0, : self.used] != FREED)

    def _reserve(self, count: int) -> None:
        a = self.arrays
        fresh = count - int(a.state[FREE])
        if self.used + fresh > len(a.key):
            space = max(2 * len(a.key), self.used + fresh)
            heads, gone = paged(np.int32, 2 * space), paged(np.int32, 2 * space)
            heads, gone = heads.reshape(2, space), gone.reshape(2, space)
            heads[:, : self.used], gone[:, : self.used] = a.heads[:, : self.used], a.gone[:, : self.used]
            key, free = resized(a.key, space), resized(a.free, space)
            self.arrays = a = KeyArrays(a.table, key, heads, gone, free, a.state)
        if 2 * (len(self) + count) > len(a.table):
            self.replace_table(1 << (3 * (len(self) + count)).bit_length())

    def replace_table(self, size: int | None = None) -> None:
        """Enter all keys into a new table."""
        length = size or 1 << max(7, (3 * len(self)).bit_length())
        self.arrays = self.arrays._replace(table=np.empty(0, np.int32))  # the old one goes first
        self.arrays = self.arrays._replace(table=np.full(length, -1, np.int32))
        place_keys(self.arrays)

    @property
    def nbytes(self) -> int:
        """Bytes of the table, and of what is kept by code."""
        return self.arrays.table.nbytes + self.used * BYTES_OF_CODE

    def _check(self) -> None:
        a = self.arrays
        alive = self.alive()
        assert len(alive) == len(self) and self.find(a.key[alive]).tolist() == alive.tolist()
        assert (a.table >= 0).sum() == len(self) <= len(a.table) // 2
        free = a.free[: a.state[FREE]]
        assert sorted([*free.tolist(), *alive.tolist()]) == list(range(self.used))
        assert np.all(a.heads[0, free] == FREED) and np.all(a.gone[:, alive] >= 0)


BYTES_OF_CODE = 8 + 8 + 8 + 4 + 8  # key, heads, counts, free codes; scores of keys while rows are dropped
