"""Ranges of texts: an axis on which texts have positions in their order.

Families search by numbers. A `TextAxis` gives an even number to each text that a row has or at which a range
ends, in the order of their UTF-8 bytes, which is that of code points. There are gaps between them for texts
to come, and the odd numbers beside a text mean just above and just below it:

    texts       'ab'       'b'       'c'            name > 'ab' AND name < 'c'    from -2^40 + 1 to 2^40 - 1
    positions   -2^40       0        2^40           name LIKE 'b%'                from 0 to 2^40 - 1

Positions stay until there is no gap left between two texts, or most texts are of rows and subscriptions long
gone (`find` and `ranges` return None); then `reload` assigns them again, to the texts in use.

Texts often come in sequence ('order-0017', 'order-0018'). So a text beside one that came just before takes a
position near that one, and leaves most of the gap to those that follow.

Cost: a hash lookup per text; for a new one also a binary search, and a move of the pointers behind it.

>>> axis = TextAxis()
>>> axis.register(np.array([7]), np.array([1]), np.array([GREATEST]), to_arrow([b"ab"]))  # > 'ab'
>>> axis.reload([b"b", b"c"], np.array([7]))
>>> (low,), (high,) = axis.ranges(np.array([7]))
>>> position = axis.find([b"ab", b"abc", b"b"])
>>> (low <= position).tolist(), bool(high == GREATEST)
([False, True, True], True)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.model.buffers import to_arrow
from tocsin.model.columns import Index, Vector, longer
from tocsin.predicate.codes import GREATEST, LEAST

__all__ = ["TextAxis", "encoded"]

_GAP = 1 << 40
_LIMIT = 1 << 60
_RECENT = 64  # insertions: sequences that may grow in turns
_FEW = 32  # new texts that are inserted one by one; more are merged


def encoded(vector: Vector, rows: Index) -> list[bytes]:
    """The texts of rows that have one, as UTF-8."""
    return [text.encode() for text in vector.values[rows].tolist()]


class TextAxis:
    """Positions of the texts of one attribute; by slot the ends of a subscription's range, as texts."""

    def __init__(self, gap: int = _GAP, limit: int = _LIMIT) -> None:
        self._gap, self._limit = gap, limit  # positions are from -limit to limit
        self._near = (1 << (gap.bit_length() // 2)) & ~1  # distance of texts in sequence
        self._texts: list[bytes] = []  # sorted
        self._position: dict[bytes, int] = {}
        self._arrival: dict[bytes, int] = {}  # of texts since the last `reload`: with which insertion
        self._insertions = 0
        self._max_texts = 0  # reload beyond: most texts are not in use
        self._ends: NDArray[Any] = np.full((16, 2), None, object)  # by slot; None: an open end
        self._beside: Index = np.zeros((16, 2), np.int64)  # 1: just above the text, -1: just below

    def __len__(self) -> int:
        """How many texts have a position."""
        return len(self._texts)

    # -- subscriptions -----------------------------------------------------------------------------

    def register(self, slots: Index, low: Index, high: Index, texts: Any) -> None:
        """Note the ends of ranges: codes of `texts`, an Arrow array in order, as flat filters have them."""
        top, length = int(slots.max(initial=-1)) + 1, len(self._ends)
        if top > length:
            more = max(top, 2 * length) - length
            self._ends = np.concatenate([self._ends, np.full((more, 2), None, object)])
            self._beside = longer(self._beside, length + more)
        for side, codes in enumerate((low, high)):
            bounded = (codes != LEAST) & (codes != GREATEST)
            number = (codes[bounded] + 1) >> 2
            self._ends[slots, side], self._beside[slots, side] = None, 0
            self._ends[slots[bounded], side] = texts.take(to_arrow(number)).to_pylist()
            self._beside[slots[bounded], side] = codes[bounded] - 4 * number

    def ranges(self, slots: Index) -> tuple[Index, Index] | None:
        """Positions of the ends of registered ranges; LEAST and GREATEST where they are open."""
        low, high = np.full(len(slots), LEAST), np.full(len(slots), GREATEST)
        for side, out in enumerate((low, high)):
            ends = self._ends[slots, side].tolist()
            bounded = np.array([end is not None for end in ends], np.bool_)
            found = self.find([end for end in ends if end is not None])
            if found is None:
                return None
            out[bounded] = found + self._beside[slots[bounded], side]
        return low, high

    # -- positions ---------------------------------------------------------------------------------

    def find(self, texts: Sequence[bytes]) -> Index | None:
        """The position of each text, new ones included; None if positions have to be assigned again."""
        known = self._position
        fresh = sorted({text for text in texts if text not in known})
        if len(known) + len(fresh) > self._max_texts or (fresh and not self._insert(fresh)):
            return None
        return np.array([known[text] for text in texts], np.int64)

    def reload(self, texts: Iterable[bytes], slots: Index) -> None:
        """Assign positions to these texts and to the ends of these subscriptions; drop all others."""
        kept = np.full_like(self._ends, None)
        kept[slots] = self._ends[slots]
        self._ends = kept
        self._texts = sorted({*texts, *(end for end in kept.ravel().tolist() if end is not None)})
        count = len(self._texts)
        step = min(self._gap, self._limit // max(1, count)) & ~1
        first = -(count // 2) * step
        self._position = {text: first + n * step for n, text in enumerate(self._texts)}
        self._arrival, self._insertions = {}, 0
        self._max_texts = 4 * count + 4096

    def _insert(self, fresh: list[bytes]) -> bool:
        """Assign positions to new texts, sorted; False if there is no gap for one: then nothing changes."""
        positions: list[int] = []
        for at, run in groupby(fresh, lambda text: bisect_left(self._texts, text)):
            found = self._between(at, sum(1 for _ in run))
            if found is None:
                return False
            positions += found
        self._position.update(zip(fresh, positions, strict=True))
        self._insertions += 1
        self._arrival.update(dict.fromkeys(fresh, self._insertions))
        if len(fresh) > _FEW:
            self._texts = sorted(self._texts + fresh)  # two sorted runs: a merge
        else:
            for text in fresh:
                self._texts.insert(bisect_left(self._texts, text), text)
        return True

    def _between(self, at: int, count: int) -> range | None:
        """Positions of so many new texts that belong before the place `at`; None if there is no gap."""
        below = self._texts[at - 1] if at > 0 else None
        above = self._texts[at] if at < len(self._texts) else None
        if below is None or above is None:
            step = self._gap
            first = 0
            if below is not None:
                first = self._position[below] + step
            elif above is not None:
                first = self._position[above] - count * step
            last = first + (count - 1) * step
            return range(first, last + 1, step) if -self._limit < first <= last < self._limit else None
        low, high = self._position[below], self._position[above]
        step = ((high - low) // (count + 1)) & ~1
        if step < 2:
            return None
        came, other = self._arrival.get(below, 0), self._arrival.get(above, 0)
        if came != other and max(came, other) > self._insertions - _RECENT:
            step = min(step, self._near)
        first = low + step if came >= other else high - count * step
        return range(first, first + count * step, step)

    def _check(self) -> None:
        """Texts ascend; positions ascend with them and are even."""
        assert all(a < b for a, b in pairwise(self._texts))
        positions = [self._position[text] for text in self._texts]
        assert len(self._position) == len(self._texts) and self._arrival.keys() <= self._position.keys()
        assert all(b - a >= 2 for a, b in pairwise(positions))
        assert all(p % 2 == 0 and abs(p) <= self._limit for p in positions)
