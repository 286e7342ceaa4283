"""Subscriptions of a group under dense numbers, with their ranges; joined rows; who has them.

A group's structures are as long as the group, not as the room: slots get numbers of their own. A number has
one range per table and one per band:

>>> members = Members(2)
>>> members.enter(np.array([70, 90]), np.array([[0, 5], [1, 1]]), np.array([[9, 9], [2, 2]])).tolist()
[0, 1]
>>> members.leave(np.array([0]))
>>> members.numbers().tolist(), members.slot[1].tolist(), members.low[:, 1].tolist()
([1], 90, [5, 1])

Where a slot is, and under which number, is known in one place for the whole room (`Homes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index, Mask, longer
from tocsin.store.tables import Signed

__all__ = ["Homes", "Matches", "Members", "Tuples", "Verify"]

Verify = Callable[[int, Index, Index], Mask | None]  # place, slots, rows; None: all of them hold


class Tuples(NamedTuple):
    """Joined rows: by place the row of that table, and the change they come or go with."""

    rows: tuple[Index, ...]
    position: Index
    sign: NDArray[np.int8]

    def take(self, index: Index | Mask) -> Tuples:
        return Tuples(tuple(rows[index] for rows in self.rows), self.position[index], self.sign[index])

    @classmethod
    def concat(cls, parts: Sequence[Tuples]) -> Tuples:
        """One after the other."""
        rows = (np.concatenate(place) for place in zip(*(part.rows for part in parts), strict=True))
        position, sign = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
        return cls(tuple(rows), position, sign)

    @classmethod
    def changed(cls, signed: Signed, rows: tuple[Index, ...], change: Index) -> Tuples:
        """With the changes that are given for each."""
        return cls(rows, signed.position[change], signed.sign[change])


class Matches(NamedTuple):
    """Pairs of a subscription and a joined row, by number in `tuples`."""

    slot: Index
    tuple: Index
    tuples: Tuples

    def take(self, index: Index | Mask) -> Matches:
        return self._replace(slot=self.slot[index], tuple=self.tuple[index])

    def compact(self) -> Matches:
        """Without the joined rows that are nobody's, if those are most."""
        if 4 * len(self.slot) > len(self.tuples.sign):
            return self
        used, at = np.unique(self.tuple, return_inverse=True)
        rows, position, sign = self.tuples
        kept = Tuples(tuple(place[used] for place in rows), position[used], sign[used])
        return Matches(self.slot, at, kept)

    @classmethod
    def concat(cls, parts: Sequence[Matches]) -> Matches:
        """One after the other."""
        if len(parts) == 1:
            return parts[0]
        first = np.cumsum([0, *(len(part.tuples.sign) for part in parts[:-1])])
        return cls(
            np.concatenate([part.slot for part in parts]),
            np.concatenate([part.tuple + base for part, base in zip(parts, first, strict=True)]),
            Tuples.concat([part.tuples for part in parts]),
        )


class Homes:
    """By slot: its family, its group in the family (-1: it can never match), its number in the group, and
    which columns its answer shows."""

    def __init__(self) -> None:
        self.family: NDArray[np.int32] = np.zeros(16, np.int32)
        self.group: NDArray[np.int32] = np.zeros(16, np.int32)
        self.number: NDArray[np.int32] = np.zeros(16, np.int32)
        self.projection: NDArray[np.int32] = np.zeros(16, np.int32)

    def reach(self, slots: Index) -> None:
        """Places for slots."""
        top = int(slots.max(initial=-1)) + 1
        if top > len(self.family):
            size = max(top, 2 * len(self.family))
            self.family, self.group = longer(self.family, size), longer(self.group, size)
            self.number, self.projection = longer(self.number, size), longer(self.projection, size)


class Members:
    """Numbers for slots; `low` and `high` by range and number."""

    def __init__(self, ranges: int) -> None:
        self.slot: Index = np.full(16, -1, np.int64)  # -1: the number is free
        self.low: Index = np.empty((ranges, 16), np.int64)
        self.high: Index = np.empty((ranges, 16), np.int64)
        self._free: list[int] = []
        self._used = 0

    def __len__(self) -> int:
        return self._used - len(self._free)

    def enter(self, slots: Index, low: Index, high: Index) -> Index:
        """Numbers for slots that have none."""
        left = len(self._free) - min(len(slots), len(self._free))
        reused = np.array(self._free[left:], np.int64)
        del self._free[left:]
        fresh = np.arange(self._used, self._used + len(slots) - len(reused))
        self._used += len(fresh)
        if self._used > len(self.slot):
            length = max(self._used, 2 * len(self.slot))
            self.slot = longer(self.slot, length, -1)
            self.low, self.high = (
                np.stack([longer(row, length) for row in ends]) for ends in (self.low, self.high)
            )
        numbers = np.concatenate([reused, fresh])
        self.slot[numbers], self.low[:, numbers], self.high[:, numbers] = slots, low, high
        return numbers

    def leave(self, numbers: Index) -> None:
        """Let numbers be free."""
        self.slot[numbers] = -1
        self._free.extend(numbers.tolist())

    def numbers(self) -> Index:
        """Those in use."""
        return np.flatnonzero(self.slot >= 0)

    def _check(self) -> None:
        assert np.array_equal(np.sort(self._free), np.flatnonzero(self.slot[: self._used] < 0))
        assert np.all(self.slot[self._used :] < 0) and len(self.numbers()) == len(self)
