"""Subscriptions of a group under dense numbers, with their ranges; joined rows; who has them.

A group's structures are as long as the group, not as the room: slots get numbers of their own. A number has
one range per table and one per band:

>>> members = Members(2)
>>> members.enter([70, 90], np.array([[0, 5], [1, 1]]), np.array([[9, 9], [2, 2]])).tolist()
[0, 1]
>>> members.leave([70]).tolist(), members.slot[1].tolist(), members.low[:, 1].tolist()
([0], 90, [5, 1])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index, Mask, longer
from tocsin.store.tables import Signed

__all__ = ["Matches", "Members", "Tuples", "Verify"]

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


class Members:
    """Numbers for slots; `low` and `high` by range and number."""

    def __init__(self, ranges: int) -> None:
        self.slot: Index = np.empty(16, np.int64)
        self.low: Index = np.empty((ranges, 16), np.int64)
        self.high: Index = np.empty((ranges, 16), np.int64)
        self._number: dict[int, int] = {}
        self._free: list[int] = []
        self._used = 0

    def __len__(self) -> int:
        return len(self._number)

    def enter(self, slots: Sequence[int], low: Index, high: Index) -> Index:
        """Numbers for free slots."""
        reused = [self._free.pop() for _ in range(min(len(slots), len(self._free)))]
        numbers = np.array([*reused, *range(self._used, self._used + len(slots) - len(reused))], np.int64)
        self._used += len(slots) - len(reused)
        if self._used > len(self.slot):
            length = max(self._used, 2 * len(self.slot))
            self.slot = longer(self.slot, length)
            self.low, self.high = (
                np.stack([longer(row, length) for row in ends]) for ends in (self.low, self.high)
            )
        self.slot[numbers], self.low[:, numbers], self.high[:, numbers] = slots, low, high
        self._number.update(zip(slots, numbers.tolist(), strict=True))
        return numbers

    def leave(self, slots: Sequence[int]) -> Index:
        """The numbers that are free from now on."""
        numbers = [self._number.pop(slot) for slot in slots]
        self._free.extend(numbers)
        return np.array(numbers, np.int64)

    def numbers(self) -> Index:
        """Those in use."""
        return np.array(list(self._number.values()), np.int64)

    def _check(self) -> None:
        assert all(self.slot[number] == slot for slot, number in self._number.items())
        assert len(self._number) + len(self._free) == self._used
