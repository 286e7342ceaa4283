"""Indexes that are packed once and take late comers in a tail.

The fastest layouts to ask are those that were sorted all at once. So an index is a packed part and a small
unsorted tail; what is removed leaves a gap (its slot becomes -1) in the packed part. When the tail or the
gaps exceed a share, everything is packed anew:

    packed   3 7 - 1 0 4 - 9 2        tail   8 5        ask = ask packed, then check all of the tail

Cost: adding or removing k members O(k + tail), and O(n log n) once per n/32 of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

__all__ = ["Codes", "Packed", "ascends"]

Codes = NDArray[np.int64]


def ascends(values: Codes) -> bool:
    """In order? `np.diff` would overflow.

    >>> ascends(np.array([-(2**63), 0, 0, 2**63 - 1]))
    True
    """
    return bool(np.all(values[:-1] <= values[1:]))


class Packed(ABC):
    """Members under slots, each a column of numbers; `_tail` has their slots in row 0."""

    _TAIL, _SHARE = 256, 32  # a tail may have so many, or that part of all
    _GAPS = 4  # gaps may be that part of the packed

    def __init__(self, width: int) -> None:
        self._tail: Codes = np.empty((1 + width, 16), np.int64)
        self._late = self._gaps = self._packed = 0
        self._pack(self._tail[:, :0])

    def __len__(self) -> int:
        return self._packed - self._gaps + self._late

    def add(self, slots: Codes, *columns: Codes) -> None:
        """Take members in; a slot must be free."""
        fresh = np.stack([np.asarray(part, np.int64) for part in (slots, *columns)])
        late = self._late + fresh.shape[1]
        if late > max(self._TAIL, len(self) // self._SHARE):
            self._repack(np.concatenate([self._members(), self._tail[:, : self._late], fresh], axis=1))
            return
        if late > self._tail.shape[1]:
            wider = np.empty((len(fresh), 2 * late), np.int64)
            wider[:, : self._late] = self._tail[:, : self._late]
            self._tail = wider
        self._tail[:, self._late : late] = fresh
        self._late = late
        self._refresh()

    def remove(self, slots: Codes) -> None:
        """Let members go; a slot must be in use."""
        slots = np.asarray(slots, np.int64)
        late = np.isin(slots, self._tail[0, : self._late]) if self._late else np.zeros(len(slots), np.bool_)
        if late.any():
            kept = self._tail[:, : self._late][:, ~np.isin(self._tail[0, : self._late], slots)]
            self._late = kept.shape[1]
            self._tail[:, : self._late] = kept
        gone = slots[~late]
        self._forget(gone)
        self._gaps += len(gone)
        if self._gaps * self._GAPS > max(self._packed, self._TAIL):
            self._repack(np.concatenate([self._members(), self._tail[:, : self._late]], axis=1))
        else:
            self._refresh()

    def _repack(self, members: Codes) -> None:
        self._late = self._gaps = 0
        self._packed = members.shape[1]
        self._pack(members)

    @abstractmethod
    def _pack(self, members: Codes) -> None:
        """Lay all members out anew, and `_refresh`."""

    @abstractmethod
    def _members(self) -> Codes:
        """The packed members without gaps, as columns."""

    @abstractmethod
    def _forget(self, slots: Codes) -> None:
        """Make gaps of packed members."""

    @abstractmethod
    def _refresh(self) -> None:
        """The tail has changed: renew what kernels see."""
