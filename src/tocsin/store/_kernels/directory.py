"""A hash table from keys of groups, rows of int64 codes, to their numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel

__all__ = ["GroupTable", "find_groups", "place_groups"]


class GroupTable(NamedTuple):
    """Open addressing: `place` has a group or -1; by group its codes."""

    place: NDArray[np.int32]
    codes: NDArray[np.int64]


@kernel(allocates=False)
def find_groups(table, hashes, codes, fresh, out):
    """The group of each row of codes; unknown ones are given the numbers of `fresh`, or -1 without any left.

    Returns how many numbers were given.
    """
    mask, given = len(table.place) - 1, 0
    for i in range(len(hashes)):
        h = hashes[i] & mask
        group = table.place[h]
        while group >= 0:
            same = True
            for c in range(codes.shape[1]):
                same &= table.codes[group, c] == codes[i, c]
            if same:
                break
            h = (h + 1) & mask
            group = table.place[h]
        if group < 0 and given < len(fresh):
            group = fresh[given]
            given += 1
            table.place[h] = group
            for c in range(codes.shape[1]):
                table.codes[group, c] = codes[i, c]
        out[i] = group
    return given


@kernel(allocates=False)
def place_groups(table, groups, hashes):
    """Enter groups whose codes are known, with their hashes, into an empty table."""
    mask = len(table.place) - 1
    for i in range(len(groups)):
        h = hashes[i] & mask
        while table.place[h] >= 0:
            h = (h + 1) & mask
        table.place[h] = groups[i]
