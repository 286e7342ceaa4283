"""Range minima with two range attributes: x1 in a..b and x2 in c..d.

A subscription is a box; as in one dimension, an update can change only boxes that hold the updated tuple and
no other one as low as it was or is. Those boxes are no longer one rectangle but a union of them: the further
a box reaches to the left or right, the less far up and down, since it must not touch what is lower:

         |   p                     boxes around u that hold neither p nor q: those that end left of u before
         |       u                 p, any height; those that reach p, below it; each with those that
         |           q             end before q or reach beyond it, above it: a staircase on each side

Every pair of a left and a right step is one box of the 4-d subscription space, and no two of these overlap.
If the tuple rises, exposed tuples are taken from the lowest up: it tells the boxes that hold it and nothing
lower, then it ends boxes itself. So each affected subscription gets exactly one message.

Cost: O(n) for the candidates of an update, by one pass over the objects; then the product of the steps on
both sides, for each exposed tuple.

>>> boxes = BoxExtremes(x1=[2, 8, 5], x2=[8, 2, 5], y=[1, 1, 4])  # p, q, u
>>> told = boxes.update([2], [5], [5], [3])
>>> told.value.tolist(), told.bounds[0].tolist() == [3, 5, 5, 7, LEAST, 5, 5, MOST], len(told)
([3, 3, 3, 3], True, 4)

T07, section 5.4 names two range attributes and leaves the method open; the staircases are ours.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from tocsin.model.columns import longer
from tocsin.rank._kernels.augmented import LEAST, MOST
from tocsin.rank._kernels.extremes_boxes import BoxUpdates, Points, Scratch, tell_boxes
from tocsin.rank.augmented import as_codes
from tocsin.rank.extremes import Codes, Messages, Teller, checked, room_for

__all__ = ["LEAST", "MOST", "BoxExtremes"]


class BoxExtremes(Teller):
    """The least (`largest`: the greatest) y by box, of objects numbered from 0 in the order given."""

    def __init__(
        self, x1: ArrayLike = (), x2: ArrayLike = (), y: ArrayLike = (), *, largest: bool = False
    ) -> None:
        super().__init__(8)
        a, b, ys = as_codes(x1, x2, y)
        self._turn = np.int64(-1 if largest else 0)
        self.objects = Points(np.ones(len(a), np.bool_), a.copy(), b.copy(), ys ^ self._turn)
        self._scratch = _scratch(len(a))

    def __len__(self) -> int:
        return int(self.objects.has.sum())

    def update(
        self, numbers: ArrayLike, x1: ArrayLike, x2: ArrayLike, y: ArrayLike, has: ArrayLike | None = None
    ) -> Messages:
        """Objects move, one after the other; where `has` is False, one is deleted. O(n) each, and more."""
        which, there, (a, b, ys) = checked(numbers, has, x1, x2, y)
        room = room_for(which, len(self.objects.has))
        if room > len(self.objects.has):
            self.objects = Points._make(longer(part, room) for part in self.objects)
            self._scratch = _scratch(room)
        updates = BoxUpdates(which, there, a, b, np.where(there, ys ^ self._turn, 0))

        def tell(start: int, out: Codes) -> tuple[int, int]:
            return tell_boxes(self.objects, updates, start, self._scratch, out, self._counters)

        told = self._run(len(which), tell)
        return replace(told, value=np.where(told.empty, 0, told.value ^ self._turn))

    def content(self, low1: int, high1: int, low2: int, high2: int) -> int | None:
        """The extreme of one box. O(n)."""
        has, x1, x2, y = self.objects
        inside = y[has & (low1 <= x1) & (x1 <= high1) & (low2 <= x2) & (x2 <= high2)]
        return int(inside.min() ^ self._turn) if len(inside) else None

    def _check(self) -> None:
        """There is room for a step and a candidate of each object."""
        objects = len(self.objects.has)
        assert all(len(part) == objects for part in self.objects)
        assert self._scratch.at.shape[1] >= objects + 3 and len(self._scratch.found) > objects


def _scratch(objects: int) -> Scratch:
    at, low, high = (np.zeros((2, objects + 3), np.int64) for _ in range(3))
    return Scratch(
        at, low, high, np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(objects + 1, np.int64)
    )
