"""Melting: what a segment still has moves into a front, some at each settling.

Where all comes and goes, segments only lose and the front only gains. Two are asked then where one would do,
and the segment is as wide as it was when it was full. When having two has cost as much as moving the lesser
one will, it is moved, in portions that nobody has to wait for. After each portion all is as it should be: the
slots that were moved belong to the front.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tocsin.match.segments.immutable import Segment
from tocsin.match.segments.merge_policy import Held, Policy, with_every
from tocsin.match.segments.mutable import Front
from tocsin.model.columns import Index
from tocsin.predicate.conjunctions import Conjunctions, has_patterns

__all__ = ["Melt", "melts"]

_TRIED = 4096  # conjunctions that tell what all of them would cost in the front


class Melt:
    """A segment on its way into a front: its conjunctions by slot, and how far it has come."""

    def __init__(self, segment: Held, front: Held, owner: NDArray[np.int32]) -> None:
        self.segment, self.front = segment, front
        whole = segment.segment
        assert isinstance(whole, Segment)
        chosen, self._every = whole.owned(owner, segment.number)
        slots = whole.conjunction_slots[chosen]
        order = np.argsort(slots, kind="stable")
        self._chosen, self._slots = chosen[order], slots[order]
        self._at = self._next = 0

    @property
    def is_done(self) -> bool:
        return self._at == len(self._chosen) and not len(self._every)

    def is_among(self, every: list[Held]) -> bool:
        """Are both still in use?"""
        return self.segment in every and self.front in every

    def sample(self) -> Conjunctions:
        """Some of the conjunctions, from all over."""
        step = max(1, len(self._chosen) // _TRIED)
        return self._portion(self._chosen[::step])

    def some(self, owner: NDArray[np.int32], most: int) -> Conjunctions:
        """The next ones that are still there, about so many; a slot comes with all it has."""
        last = min(self._at + most, len(self._slots))
        if last < len(self._slots):
            last = int(np.searchsorted(self._slots, self._slots[last], "left"))
            if last <= self._at:  # one slot has more than that
                last = int(np.searchsorted(self._slots, self._slots[self._at], "right"))
        here = slice(self._at, last)
        alive = owner[self._slots[here]] == self.segment.number
        every = self._every[owner[self._every] == self.segment.number]
        self._next = last
        return with_every(self._portion(self._chosen[here][alive]), every)

    def moved(self) -> None:
        """What `some` has told is in the front now."""
        self._at, self._every = self._next, self._every[:0]

    def _portion(self, chosen: Index) -> Conjunctions:
        return self.segment.segment.portion(chosen)


def melts(every: list[Held], policy: Policy) -> tuple[Held, Held] | None:
    """A segment that should melt, and the front that takes it."""
    fronts = [held for held in every if isinstance(held.segment, Front)]
    if len(fronts) != 1:
        return None
    front, costs = fronts[0], policy.costs
    for held in sorted(every, key=lambda held: held.alive):
        if held is front or held.is_firm or not _has_numbers_only(held, front):
            continue
        if held.alive > 2 * front.alive:
            break
        if costs.coded * front.events >= policy.felt * costs.move * held.alive:
            return held, front
    return None


def _has_numbers_only(held: Held, front: Held) -> bool:
    """Texts have codes of their own, and patterns are asked of every event: they stay in segments."""
    parts = held.segment, front.segment.frame  # type: ignore[union-attr]
    texts = any(len(part.texts) or len(part.backwards) for part in parts)  # type: ignore[union-attr]
    return not texts and not has_patterns(held.segment.key)  # type: ignore[union-attr]
