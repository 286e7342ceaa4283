"""One array for what several threads find: each writes its share, and the gaps are closed.

>>> shares = Shares([4, 4])
>>> shares.of(0)[:2], shares.of(1)[:3] = (1, 2), (5, 6, 7)
>>> shares.together([shares.of(0)[:2], shares.of(1)[:3]])
[array([1, 2, 6, 7, 5])]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from tocsin.model.columns import Index

__all__ = ["Shares"]


class Shares:
    """Room for so many numbers of each thread. A part of the others' is copied, not all of it."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._start = [0, *accumulate(sizes)]
        self._all: Index = np.empty(self._start[-1], np.int64)

    def of(self, share: int) -> Index:
        return self._all[self._start[share] : self._start[share + 1]]

    def together(self, found: Sequence[Index]) -> list[Index]:
        """What was found, as one if each was written to the beginning of its share; in any order."""
        counts = [len(part) for part in found]
        for share, part in enumerate(found):
            if len(part) and part.ctypes.data != self.of(share).ctypes.data:
                return list(found)  # there was not room enough
        total, first, last = sum(counts), 0, len(counts) - 1
        while first < last:
            gap = self._start[first] + counts[first]
            moved = min(self._start[first + 1] - gap, counts[last])
            end = self._start[last] + counts[last]
            self._all[gap : gap + moved] = self._all[end - moved : end]
            counts[first] += moved
            counts[last] -= moved
            if counts[last] == 0:
                last -= 1
            else:
                first += 1
        return [self._all[:total]]
