"""Which segments are to be built anew as one: the tiers of an index.

Fronts are merged when they are felt, together with the segments that are not much larger; segments, when
there are too many of one size, too many of their slots are gone, or they hang badly.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tocsin.match.front import Front
from tocsin.match.placing import Costs
from tocsin.match.segment import Segment
from tocsin.match.sifting import is_hollow, sifted
from tocsin.model.columns import Index
from tocsin.predicate.portion import Portion

__all__ = [
    "Held",
    "Merge",
    "Policy",
    "background",
    "due",
    "is_thin",
    "living",
    "most_of_fronts",
    "sift",
    "whose",
]

BATCHES = 256  # that a front takes in at most


@dataclass(frozen=True)
class Policy:
    """When segments are merged and built anew."""

    fan: int = 3  # segments of one size before they are merged
    small: int = 4096  # conjunctions: up to this many count as one size
    front: float = 0.5  # of all conjunctions, the front's at most
    felt: float = 0.7  # of what segments take for an event, what fronts may take
    fronts: int = 16  # that many are made one
    ratio: float = 1.0  # a segment so many times as large is merged with the fronts
    background: int = 32_768  # conjunctions: a merge of more is done in the background
    dead: float = 0.2  # share of removed slots before a segment is sifted
    worse: float = 1.3  # built anew if it costs so many times what it could
    least: float = 50.0  # nanoseconds per event that are not worth building anew, nor is 2 % of all
    look: int = 4096  # events between two looks at what a segment costs
    sample: int = 2048  # recent events kept
    folder: Path | None = None  # large segments are written here and mapped, not kept in memory
    costs: Costs = field(default_factory=Costs)


@dataclass(eq=False)
class Held:
    """A segment in use: its number, how many of its slots are gone, what it has cost.

    A front has a number for each batch that it took in.
    """

    segment: Segment | Front
    numbers: list[int]  # ascending
    name: str | None = None  # of its files
    dead: int = 0
    events: int = 0  # since the last look, as is `seen`
    seen: Index = field(default_factory=lambda: np.zeros(4, np.int64))
    asked: int = 0  # events, in all
    seconds: float = 0.0  # that they took here
    patience: int = 1  # grows with every look that found nothing better

    @property
    def number(self) -> int:
        """The owner of the slots of a segment; of a front, of those that came last."""
        return self.numbers[-1]

    @property
    def expected(self) -> float:
        """What an event is expected to cost here, in nanoseconds."""
        return self.segment.cost if isinstance(self.segment, Front) else sum(self.segment.expected.values())

    @property
    def measured(self) -> float:
        """What an event has cost here on average, in nanoseconds; as expected, until some were asked."""
        return 1e9 * self.seconds / self.asked if self.asked else self.expected

    @property
    def is_front(self) -> bool:
        return isinstance(self.segment, Front)

    def takes(self, portion: Portion) -> bool:
        """Whether this is a front that can take the portion in."""
        if not isinstance(self.segment, Front) or len(self.numbers) >= BATCHES:
            return False
        return self.segment.frame.takes(portion)

    def __len__(self) -> int:
        return self.segment.size + len(self.segment.every)

    @property
    def alive(self) -> int:
        """About how many conjunctions are not removed."""
        return len(self) - self.dead


@dataclass
class Merge:
    """A segment being built from others."""

    future: Future[Segment]
    old: list[Held]


def due(every: list[Held], policy: Policy, hangs_badly: Callable[[Held], bool]) -> list[Held]:
    """What is to be built anew as one; nothing, if all is well."""
    fronts = [held for held in every if held.is_front]
    built = [held for held in every if not held.is_front]
    if fronts and _are_felt(fronts, built, policy):
        return _with_smaller(fronts, built, policy)
    by_size: dict[int, list[Held]] = {}
    for held in built:
        tier = max(0, (max(1, held.alive) // policy.small).bit_length() // 2)
        by_size.setdefault(tier, []).append(held)
    for tier in sorted(by_size):
        if len(by_size[tier]) >= policy.fan:
            return by_size[tier]
    for held in built:
        if is_thin(held, policy):
            return [held]
    return next(([held] for held in built if hangs_badly(held)), [])


def is_thin(held: Held, policy: Policy) -> bool:
    """Has a segment lost so much that the rest is better kept alone?"""
    return held.dead > 0 and not held.is_front and held.dead > policy.dead * len(held.segment.slots)


def _are_felt(fronts: list[Held], built: list[Held], policy: Policy) -> bool:
    """Are they many, or do they cost more than a share of what segments do?"""
    many = sum(front.alive for front in fronts) > policy.front * sum(len(held) for held in built)
    return many or sum(front.measured for front in fronts) > most_of_fronts(built, policy)


def most_of_fronts(built: list[Held], policy: Policy) -> float:
    """What fronts may cost, in nanoseconds per event."""
    return max(20 * policy.least, policy.felt * sum(held.measured for held in built))


def _with_smaller(fronts: list[Held], built: list[Held], policy: Policy) -> list[Held]:
    """Fronts and the segments that are not much larger than all that is merged with them so far."""
    old, total = list(fronts), sum(front.alive for front in fronts)
    for held in sorted(built, key=len):
        if held.alive > policy.ratio * total:
            break
        old.append(held)
        total += held.alive
    return old


def living(held: Held, owner: NDArray[np.int32]) -> Portion:
    """A segment's conjunctions whose slots it still owns; those that always match have no test."""
    chosen, every = held.segment.owned(owner, held.number)
    portion = held.segment.portion(chosen)
    if not len(every):
        return portion
    start = np.concatenate([portion.start, np.full(len(every), portion.start[-1])])
    return portion._replace(slot=np.concatenate([portion.slot, every]), start=start)


def whose(every: list[Held]) -> tuple[Index, Index]:
    """All numbers, ascending, and the place of who has each."""
    number = np.array([number for held in every for number in held.numbers], np.int64)
    place = np.repeat(np.arange(len(every)), [len(held.numbers) for held in every])
    order = np.argsort(number)
    return number[order], place[order]


def sift(held: Held, owner: NDArray[np.int32]) -> Segment | None:
    """A segment without what it owns no more; None if it is better built anew."""
    segment = held.segment
    assert isinstance(segment, Segment)
    kept, every = segment.owned(owner, held.number)
    return None if is_hollow(segment, kept) else sifted(segment, kept, every)


_BACKGROUND: list[ThreadPoolExecutor] = []


def background() -> ThreadPoolExecutor:
    """One thread for all indexes of a process."""
    if not _BACKGROUND:
        _BACKGROUND.append(ThreadPoolExecutor(1, "tocsin-merge"))
    return _BACKGROUND[0]
