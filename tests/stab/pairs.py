"""Random intervals, and the meaning of a stabbing partition by brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tocsin.stab.dynamic import GroupMoves, MaintainedPartition

Pair = tuple[int, int]
LEAST, GREATEST = ENDS = (-(2**63), 2**63 - 1)


def interval(open_ends: bool = False) -> st.SearchStrategy[Pair]:
    drawn = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1]))
    if not open_ends:
        return drawn
    below, above = drawn.map(lambda p: (LEAST, p[1])), drawn.map(lambda p: (p[0], GREATEST))
    return st.one_of(drawn, below, above, st.just(ENDS))


def intervals(open_ends: bool = False, min_size: int = 0) -> st.SearchStrategy[list[Pair]]:
    return st.lists(interval(open_ends), min_size=min_size, max_size=40)


def columns(pairs: list[Pair]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    return ends[:, 0].copy(), ends[:, 1].copy()


def fewest(pairs: list[Pair]) -> int:
    """tau: take the smallest right end as a point, drop what it stabs, repeat."""
    rest, points = list(pairs), 0
    while rest:
        point = min(high for _, high in rest)
        rest = [pair for pair in rest if not pair[0] <= point <= pair[1]]
        points += 1
    return points


# -- changes -----------------------------------------------------------------------------------------

Batch = tuple[list[int], dict[int, Pair]]  # ids to remove, if present; ids to insert


def batches(open_ends: bool = False) -> st.SearchStrategy[list[Batch]]:
    ids = st.integers(0, 30)
    inserted = st.dictionaries(ids, interval(open_ends), max_size=25)
    return st.lists(st.tuples(st.lists(ids, max_size=20, unique=True), inserted), max_size=8)


class Consumer:
    """Follows a partition by its moves, and knows all intervals."""

    def __init__(self, partition: MaintainedPartition) -> None:
        self.partition = partition
        self.living: dict[int, Pair] = {}
        self.known: dict[int, tuple[int, bool]] = {}  # by id: group, whether hot

    def apply(self, batch: Batch) -> None:
        removed, inserted = batch
        removed = [i for i in removed if i in self.living]
        for i in removed:
            del self.living[i]
        self.follow(self.partition.remove(removed))
        inserted = {i: pair for i, pair in inserted.items() if i not in self.living}
        self.living |= inserted
        low, high = columns(list(inserted.values()))
        self.follow(self.partition.insert(list(inserted), low, high))

    def follow(self, moves: GroupMoves) -> None:
        for i, before, after, was_hot, is_hot in zip(*(column.tolist() for column in moves), strict=True):
            assert self.known.pop(i, (-1, False)) == (before, was_hot)
            assert (before, was_hot) != (after, is_hot), "a needless move"
            if after >= 0:
                self.known[i] = after, is_hot

    def check(self) -> None:
        assert self.known.keys() == self.living.keys()
        for i, (group, _) in self.known.items():
            assert self.partition.group_of(i) == group and i in self.partition.members(group)
