"""Dropped rows that would still join: what a bounded join misses, counted.

Each key has a count of dropped rows by side (`KeyArrays.gone`); a row that arrives has missed as many pairs
as its key's count on the other side. A dropped row is counted until it would have expired, and the log says
when that is:

    side, code    expires     draw
    0, 17         10:05:00    0b0110...
    1, 3          10:09:30    0b0101...

The log has a place for so many rows. When it is full, each of them is kept with probability 1/2 and counts
twice; so the count is exact until then, and unbiased afterwards. The draw of a row is a hash of its seq: a
replay decides alike. Sampling rows, unlike sampling keys, is precise where it matters: a key that misses many
pairs has many dropped rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tocsin.limits._kernels.joining import add_gone
from tocsin.limits.join_keys import KeyCodes
from tocsin.limits.pages import paged, release, resized
from tocsin.model.columns import Index, Mask

__all__ = ["BYTES_OF_DROPPED", "NEVER", "DroppedRows", "draws_of"]

NEVER = 2**62
BYTES_OF_DROPPED = 1 + 4 + 8 + 4
_MOST_HALVINGS = 31


def draws_of(seq: Index, side: int) -> NDArray[np.uint32]:
    """Random bits of rows: the same for the same row."""
    x = (seq.astype(np.uint64) * np.uint64(2) + np.uint64(side)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    return ((x ^ (x >> np.uint64(29))) >> np.uint64(32)).astype(np.uint32)


class DroppedRows:
    """The log, for at most `most` rows."""

    def __init__(self, most: int) -> None:
        self.most, self.count, self.halvings = most, 0, 0
        self.first_end = NEVER  # no row expires before
        space = min(most + 1, 1 << 20)
        self.side, self.code = paged(np.uint8, space), paged(np.int32, space)
        self.expires, self.draw = paged(np.int64, space), paged(np.uint32, space)

    @property
    def weight(self) -> int:
        """How many rows one in the log stands for."""
        return 1 << self.halvings

    @property
    def nbytes(self) -> int:
        return self.count * BYTES_OF_DROPPED

    def add(self, keys: KeyCodes, side: int, code: NDArray[np.int32], expires: Index, seq: Index) -> None:
        """Rows of a side are dropped."""
        draw = draws_of(seq, side)
        for begin in range(0, len(code), max(1, self.most)):
            part = slice(begin, begin + max(1, self.most))
            self._add(keys, side, code[part], expires[part], draw[part])

    def _add(
        self, keys: KeyCodes, side: int, code: NDArray[np.int32], expires: Index, draw: NDArray[np.uint32]
    ) -> None:
        chosen = self._sampled(draw)
        while self.count + int(chosen.sum()) > self.most and self.halvings < _MOST_HALVINGS:
            self.halvings += 1
            self._keep(keys, self._sampled(self.draw[: self.count]))
            chosen = self._sampled(draw)
        sides = np.full(int(chosen.sum()), side, np.uint8)
        self.load(keys, sides, code[chosen], expires[chosen], draw[chosen])

    def load(
        self,
        keys: KeyCodes,
        side: NDArray[np.uint8],
        code: NDArray[np.int32],
        expires: Index,
        draw: NDArray[np.uint32],
    ) -> None:
        """Append rows that are sampled already."""
        last = self.count + len(code)
        if last > len(self.code):
            space = max(last, 2 * len(self.code))
            self.side, self.code = resized(self.side, space), resized(self.code, space)
            self.expires, self.draw = resized(self.expires, space), resized(self.draw, space)
        new = slice(self.count, last)
        self.side[new], self.code[new], self.expires[new], self.draw[new] = side, code, expires, draw
        self.count = last
        add_gone(keys.arrays.gone, self.side[new], self.code[new], 1)
        self.first_end = min(self.first_end, int(expires.min(initial=NEVER)))

    def expire(self, keys: KeyCodes, clock: int) -> None:
        """Rows that have expired by now would not join any more."""
        if self.first_end < clock:
            self._keep(keys, self.expires[: self.count] >= clock)

    def _sampled(self, draw: NDArray[np.uint32]) -> Mask:
        return (draw & np.uint32(self.weight - 1)) == 0

    def _keep(self, keys: KeyCodes, mask: Mask) -> None:
        over = np.flatnonzero(~mask)
        add_gone(keys.arrays.gone, self.side[over], self.code[over], -1)
        kept = int(mask.sum())
        for column in (self.side, self.code, self.expires, self.draw):
            column[:kept] = column[: self.count][mask]
            release(column, kept)
        self.count = kept
        self.first_end = int(self.expires[:kept].min(initial=NEVER))

    def _check(self, keys: KeyCodes) -> None:
        counted = np.zeros_like(keys.arrays.gone)
        np.add.at(counted, (self.side[: self.count], self.code[: self.count]), 1)
        alive = keys.alive()
        assert np.array_equal(counted[:, alive], keys.arrays.gone[:, alive])
        assert self.count <= self.most or self.halvings == _MOST_HALVINGS
        assert np.all(self.expires[: self.count] >= self.first_end)
