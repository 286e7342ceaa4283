"""When something holds within a step, of counts that go up and down at positions of the step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index
from tocsin.model.delta import order_of
from tocsin.store.tables import FOREVER

__all__ = ["Crossings", "crossings", "lifetimes"]


class Crossings(NamedTuple):
    """An owner's count reaches its threshold (+1) or falls below it (-1), at a position."""

    owner: Index
    at: Index
    sign: NDArray[np.int8]


def crossings(start: Index, threshold: int, owner: Index, at: Index, change: Index) -> Crossings:
    """When counts, which `start` as given by owner, reach a threshold or fall below it.

    What happens at one position happens at once.

    >>> found = crossings(np.array([0, 1]), 1, np.array([0, 0, 1, 1]), np.array([2, 5, 3, 3]),
    ...                   np.array([1, -1, -1, 1]))
    >>> [part.tolist() for part in found]
    [[0, 0], [2, 5], [1, -1]]
    """
    order = order_of([owner, at])
    owner, at, change = owner[order], at[order], change[order]
    fresh = np.ones(len(owner), np.bool_)
    fresh[1:] = (owner[1:] != owner[:-1]) | (at[1:] != at[:-1])
    first = np.flatnonzero(fresh)
    if not len(first):
        return Crossings(owner, at, np.empty(0, np.int8))
    owner, at, total = owner[first], at[first], np.add.reduceat(change, first)
    running = np.cumsum(total)
    begins = np.ones(len(owner), np.bool_)
    begins[1:] = owner[1:] != owner[:-1]
    before_owner = (running - total)[begins][np.cumsum(begins) - 1]
    after = running - before_owner + start[owner]
    holds, held = after >= threshold, after - total >= threshold
    crossed = np.flatnonzero(holds != held)
    return Crossings(owner[crossed], at[crossed], np.where(holds[crossed], 1, -1).astype(np.int8))


def lifetimes(owner: Index, born: Index, died: Index, size: int) -> tuple[Index, Index, Index, Index]:
    """Rows of owners as counts: how many lived before the step; (owner, at, change) in it."""
    start = np.bincount(owner[born < 0], minlength=size).astype(np.int64)
    begins, ends = np.flatnonzero(born >= 0), np.flatnonzero(died <= FOREVER)
    change = np.concatenate([np.ones(len(begins), np.int64), np.full(len(ends), -1)])
    at = np.concatenate([born[begins], died[ends]])
    return start, np.concatenate([owner[begins], owner[ends]]), at, change
