"""Relaxed subscriptions: a change goes to all ranges that hold it, whether it matters to them or not.

A row that moves from `old` to `new` leaves the ranges that hold only `old`, and is sent to those that hold
`new`: two messages with disjoint rectangles, the first one only if there are such ranges.

>>> moves = Moves(*(np.array([x]) for x in (True, True, 3, 5)))
>>> relaxed = describe_moves(moves)
>>> relaxed.kind.tolist(), relaxed.rectangle[:, 1:3].tolist(), int(relaxed.rectangle[0, 3])
([1, 0], [[3, 3], [5, 5]], 4)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index, Mask
from tocsin.model.message import GREATEST, LEAST, MessageKind

__all__ = ["Moves", "Relaxed", "describe_moves"]


class Moves(NamedTuple):
    """By change, whether a row was and is there, and at which value."""

    had: Mask
    has: Mask
    old: Index
    new: Index


class Relaxed(NamedTuple):
    """By message: its change, its place among those of the change, what it says and to which rectangle."""

    change: Index
    step: Index
    kind: NDArray[np.int8]
    rectangle: Index


def describe_moves(moves: Moves) -> Relaxed:
    """GONE and ROW of each change, in order."""
    had, has, old, new = moves
    gone = had & ~(has & (old == new))
    number = np.concatenate([np.flatnonzero(gone), np.flatnonzero(has)])
    comes = np.repeat([False, True], [int(gone.sum()), int(has.sum())])
    order = np.lexsort((comes, number))
    number, comes = number[order], comes[order]
    step = (comes & gone[number]).astype(np.int64)
    value, after = np.where(comes, new[number], old[number]), new[number]
    rectangle = np.stack([np.full(len(number), LEAST), value, value, np.full(len(number), GREATEST)], 1)
    left = ~comes & has[number]  # ranges that hold the old value and not the new one
    rectangle[left & (after > value), 3] = after[left & (after > value)] - 1
    rectangle[left & (after < value), 0] = after[left & (after < value)] + 1
    kind = np.where(comes, MessageKind.ROW, MessageKind.GONE).astype(np.int8)
    return Relaxed(number, step, kind, rectangle)
