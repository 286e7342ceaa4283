"""Join keys of two streams: 64 bits for each key, and dense codes for those that have rows; what was missed.

A key of one column that is no text is its value's code, so equal keys are equal values. Texts and keys of
several columns are hashed; pairs of those are verified (`stream_family.py`).

>>> keys = KeyCodes()
>>> keys.put(np.array([50, 70, 50])).tolist(), keys.find(np.array([70, 80])).tolist()
([0, 1, 0], [1, -1])

Each key has a count of dropped rows by side (`KeyArrays.gone`); a row that arrives has missed as many pairs
as its key's count on the other side. A dropped row is counted until it would have expired, and the log says
when that is, by its time and its side's reach:

    side, code    time        draw         next
    0, 17         10:00:00    0b0110...    -1
    1, 3          10:04:30    0b0101...    -1

Where times decide which rows of a key pair (event time), a key has a chain of its dropped rows instead of a
count, and only those near enough in time are missed.

The log has a place for so many rows. When it is full, each of them is kept with probability 1/2 and counts
twice; so the count is exact until then, and unbiased afterwards. The draw of a row is a hash of its seq: a
replay decides alike. Sampling rows, unlike sampling keys, is precise where it matters: a key that misses many
pairs has many dropped rows.
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
    ProbeRows,
    add_gone,
    clear_gone,
    collect_dead,
    find_keys,
    gone_near,
    gone_of,
    link_gone,
    place_keys,
    put_keys,
    remove_keys,
    unlink_all,
)
from tocsin.limits.buffer import paged, release, resized
from tocsin.limits.models.base import Doubles
from tocsin.model.columns import Index, Mask, Vector
from tocsin.model.schema import Type
from tocsin.predicate.codes import vector_codes

__all__ = [
    "BYTES_OF_DROPPED",
    "NEVER",
    "DroppedRows",
    "KeyCodes",
    "draws_of",
    "is_exact",
    "key_hashes",
    "key_numbers",
]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_LEAST, _SMALL = 64, 1024
_SPARSE = 2


def is_exact(spec: KeySpec) -> bool:
    """Whether equal 64 bits are equal keys."""
    return len(spec.types) == 1 and spec.types[0] is not Type.STRING


def key_hashes(spec: KeySpec, vectors: tuple[Vector, ...]) -> tuple[Index, Mask]:
    """64 bits of each row's key, and which rows have a key."""
    codes, valid = [], np.ones(len(vectors[0]), np.bool_)
    for vector, type in zip(vectors, spec.types, strict=True):
        if type is Type.STRING:
            codes.append(vector_codes(vector))
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

    @property
    def is_sparse(self) -> bool:
        """Whether most codes below `used` belong to no key."""
        return self.used > _SPARSE * len(self) + _SMALL

    def renumber(self) -> Index:
        """Give the keys codes 0, 1, ..., in their order, and give back space; the codes they had."""
        a, before = self.arrays, self.alive()
        count = len(before)
        a.key[:count] = a.key[before]
        a.heads[:, :count], a.gone[:, :count] = a.heads[:, before], a.gone[:, before]
        a.state[USED], a.state[FREE] = count, 0
        for array in (a.key, a.heads, a.gone, a.free):
            release(array, count)
        self.replace_table()
        return before

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


NEVER = 2**62
BYTES_OF_DROPPED = 1 + 4 + 8 + 4
_BYTES_OF_NEXT = 4
_MOST_HALVINGS = 31


def draws_of(seq: Index, side: int) -> NDArray[np.uint32]:
    """Random bits of rows: the same for the same row."""
    x = (seq.astype(np.uint64) * np.uint64(2) + np.uint64(side)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    return ((x ^ (x >> np.uint64(29))) >> np.uint64(32)).astype(np.uint32)


class DroppedRows:
    """The log, for at most `most` rows; `reach`: by side, how long after its time a row would expire.

    `chained`: rows of a key are chained, since not all of them would join a row that arrives.
    """

    def __init__(self, most: int, reach: tuple[int, int], chained: bool) -> None:
        self.most, self.count, self.halvings = most, 0, 0
        self.first_end = NEVER  # no row expires before
        self._reach, self._is_chained = np.array(reach, np.int64), chained
        space = min(most + 1, 1 << 20)
        self.side, self.code = paged(np.uint8, space), paged(np.int32, space)
        self.time, self.draw = paged(np.int64, space), paged(np.uint32, space)
        self.next = paged(np.int32, space if chained else 0)

    @property
    def weight(self) -> int:
        """How many rows one in the log stands for."""
        return 1 << self.halvings

    @property
    def nbytes(self) -> int:
        return self.count * (BYTES_OF_DROPPED + (_BYTES_OF_NEXT if self._is_chained else 0))

    def renumber(self, codes: NDArray[np.int32]) -> None:
        """The key with code c has code `codes[c]` now; its counts or chains have moved already."""
        self.code[: self.count] = codes[self.code[: self.count]]

    def expires(self) -> Index:
        """When each row would have expired."""
        found: Index = self.time[: self.count] + self._reach[self.side[: self.count]]
        return found

    def missed(self, probes: ProbeRows) -> int:
        """How many of the rows the arriving ones would join; `probes.heads`: of their other side."""
        if self._is_chained:
            found = gone_near(probes, self.time, self.next)
        else:
            found = gone_of(probes.code, probes.heads)
        return int(found) * self.weight

    def add(self, keys: KeyCodes, side: int, code: NDArray[np.int32], time: Index, seq: Index) -> None:
        """Rows of a side are dropped."""
        draw = draws_of(seq, side)
        for begin in range(0, len(code), max(1, self.most)):
            part = slice(begin, begin + max(1, self.most))
            self._add(keys, side, code[part], time[part], draw[part])

    def _add(
        self, keys: KeyCodes, side: int, code: NDArray[np.int32], time: Index, draw: NDArray[np.uint32]
    ) -> None:
        chosen = self._sampled(draw)
        while self.count + int(chosen.sum()) > self.most and self.halvings < _MOST_HALVINGS:
            self.halvings += 1
            self._keep(keys, self._sampled(self.draw[: self.count]))
            chosen = self._sampled(draw)
        sides = np.full(int(chosen.sum()), side, np.uint8)
        self.load(keys, sides, code[chosen], time[chosen], draw[chosen])

    def load(
        self,
        keys: KeyCodes,
        side: NDArray[np.uint8],
        code: NDArray[np.int32],
        time: Index,
        draw: NDArray[np.uint32],
    ) -> None:
        """Append rows that are sampled already."""
        last = self.count + len(code)
        if last > len(self.code):
            space = max(last, 2 * len(self.code))
            self.side, self.code = resized(self.side, space), resized(self.code, space)
            self.time, self.draw = resized(self.time, space), resized(self.draw, space)
            if self._is_chained:
                self.next = resized(self.next, space)
        first, new = self.count, slice(self.count, last)
        self.side[new], self.code[new], self.time[new], self.draw[new] = side, code, time, draw
        self.count = last
        self._enter(keys, first)
        self.first_end = min(self.first_end, int((time + self._reach[side]).min(initial=NEVER)))

    def _enter(self, keys: KeyCodes, first: int) -> None:
        """Count or chain rows from a first one on."""
        if self._is_chained:
            link_gone(keys.arrays.gone, self.next, self.side[: self.count], self.code[: self.count], first)
        else:
            new = slice(first, self.count)
            add_gone(keys.arrays.gone, self.side[new], self.code[new], 1)

    def expire(self, keys: KeyCodes, clock: int) -> None:
        """Rows that have expired by now would not join any more."""
        if self.first_end < clock:
            self._keep(keys, self.expires() >= clock)

    def _sampled(self, draw: NDArray[np.uint32]) -> Mask:
        return (draw & np.uint32(self.weight - 1)) == 0

    def _keep(self, keys: KeyCodes, mask: Mask) -> None:
        if self._is_chained:
            clear_gone(keys.arrays.gone, self.side[: self.count], self.code[: self.count])
        else:
            over = np.flatnonzero(~mask)
            add_gone(keys.arrays.gone, self.side[over], self.code[over], -1)
        kept = int(mask.sum())
        for column in (self.side, self.code, self.time, self.draw):
            column[:kept] = column[: self.count][mask]
            release(column, kept)
        self.count = kept
        if self._is_chained:
            release(self.next, kept)
            self._enter(keys, 0)
        self.first_end = int(self.expires().min(initial=NEVER))

    def _check(self, keys: KeyCodes) -> None:
        gone, alive = keys.arrays.gone.astype(np.int64), keys.alive()
        if self._is_chained:
            chains = [(side, code, int(gone[side, code]) - 1) for side in range(2) for code in alive.tolist()]
            gone[:] = 0
            for side, code, row in chains:
                while row >= 0:
                    assert (self.side[row], self.code[row]) == (side, code) and self.next[row] < row
                    gone[side, code] += 1
                    row = int(self.next[row])
        counted = np.zeros_like(gone)
        np.add.at(counted, (self.side[: self.count], self.code[: self.count]), 1)
        assert np.array_equal(counted[:, alive], gone[:, alive])
        assert self.count <= self.most or self.halvings == _MOST_HALVINGS
        assert np.all(self.expires() >= self.first_end)
