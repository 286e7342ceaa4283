"""Which segments are to be built anew as one: the tiers of an index.

A front is merged when asking it has cost as much as building a segment of it will: whatever comes then, no
more than twice the least was spent. It goes together with the segments that are not much larger; or with all,
when being one more to ask has cost as much as building all anew. Segments are merged when there are too many
of one size, being several has cost as much as making them one will, too many of their slots are gone, or they
hang badly.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.verify import SEEN
from tocsin.match.build.cost import Costs
from tocsin.match.segments.compact import is_hollow, sifted
from tocsin.match.segments.immutable import Segment
from tocsin.match.segments.mutable import Front
from tocsin.model.columns import Index
from tocsin.predicate.conjunctions import Conjunctions

__all__ = [
    "Held",
    "Merge",
    "Policy",
    "background",
    "due",
    "is_thin",
    "living",
    "sift",
    "with_every",
]


@dataclass(frozen=True)
class Policy:
    """When segments are merged and built anew."""

    fan: int = 3  # segments of one size before they are merged
    small: int = 4096  # conjunctions: up to this many count as one size
    gust: float = 0.5  # of all conjunctions, what may come to the front at once
    front: float = 4.0  # times as many as segments have, the front's at most
    felt: float = 1.0  # times what it costs to build a segment of a front, what asking the front may cost
    soon: int = 1000  # events: what would be felt after so few is built at once
    fronts: int = 16  # that many are made one
    ratio: float = 1.0  # a segment so many times as large is merged with the fronts
    background: int = 32_768  # conjunctions: a merge of more is done in the background
    moved: int = 32_768  # conjunctions that melt at a time
    dead: float = 0.2  # share of removed slots before a segment is sifted
    worse: float = 1.3  # built anew if it costs so many times what it could,
    felt_worse: float = 1.05  # or so many times, as soon as that has cost as much as building will
    least: float = 50.0  # nanoseconds per event that are not worth building anew, nor is 2 % of all
    look: int = 4096  # events between two looks at what a segment costs,
    sudden: float = 2.0  # unless it costs so many times what it did
    sample: int = 2048  # recent events kept,
    known: int = 256  # and so many that a segment is not built blindly
    folder: Path | None = None  # large segments are written here and mapped, not kept in memory
    costs: Costs = field(default_factory=Costs)


@dataclass
class Look:
    """What was known of a segment when it was last asked whether it hangs well."""

    cost: float  # nanoseconds per event
    events: int = 0  # of `Held` then, as is `seen`
    seen: Index = field(default_factory=lambda: np.zeros(SEEN, np.int64))
    patience: int = 1  # grows with every look that found nothing better
    lost: float = 0.0  # nanoseconds that were spent because it was not built anew


@dataclass(eq=False)
class Held:
    """A segment in use: its number, how many of its slots are gone, what it has cost."""

    segment: Segment | Front
    number: int  # the owner of its slots
    name: str | None = None  # of its files
    dead: int = 0
    events: int = 0  # since it is there, as is `seen`
    seen: Index = field(default_factory=lambda: np.zeros(SEEN, np.int64))
    look: Look | None = None
    is_firm: bool = False  # it was seen that it should not melt
    is_blind: bool = False  # it was built when few events were known, and not looked at since

    @property
    def expected(self) -> float:
        """What an event is expected to cost here, in nanoseconds."""
        return self.segment.cost if isinstance(self.segment, Front) else sum(self.segment.expected.values())

    def overhead(self, costs: Costs) -> float:
        """What an event costs here however few conjunctions there are, in nanoseconds."""
        fixed = 0.0 if isinstance(self.segment, Front) else self.segment.fixed.get("pairs", 0.0)
        return costs.coded + fixed + costs.find * float(self.seen[5]) / max(1, self.events)

    @property
    def is_front(self) -> bool:
        return isinstance(self.segment, Front)

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
    if fronts:
        some = _with_smaller(fronts, built, policy)
        if _are_many(fronts, built, policy) or _are_felt(fronts, some, policy):
            return some
        if built and _are_felt(fronts, every, policy):
            return every
    by_size: dict[int, list[Held]] = {}
    for held in built:
        tier = max(0, (max(1, held.alive) // policy.small).bit_length() // 2)
        by_size.setdefault(tier, []).append(held)
    for tier in sorted(by_size):
        if len(by_size[tier]) >= policy.fan:
            return by_size[tier]
    if several := _have_cost(built, policy):
        return several
    for held in built:
        if is_thin(held, policy):
            return [held]
    return next(([held] for held in built if hangs_badly(held)), [])


def _have_cost(built: list[Held], policy: Policy) -> list[Held]:
    """The smallest segments, and perhaps all, that have cost as much by being several as one of them will."""
    by_size, found, total = sorted(built, key=lambda held: held.alive), 0, 0
    for count, largest in enumerate(by_size):
        total += largest.alive
        smaller = by_size[:count]
        spent = sum(held.overhead(policy.costs) * min(held.events, largest.events) for held in smaller)
        if smaller and spent >= policy.felt * policy.costs.building(total):
            found = count + 1
    return by_size[:found]


def is_thin(held: Held, policy: Policy) -> bool:
    """Has a segment lost so much that the rest is better kept alone?"""
    return held.dead > 0 and not held.is_front and held.dead > policy.dead * len(held.segment.slots)


def _are_many(fronts: list[Held], built: list[Held], policy: Policy) -> bool:
    """Do they have more than their share, or more empty places than others?"""
    alive = sum(front.alive for front in fronts)
    spare = sum(front.segment.spare for front in fronts if isinstance(front.segment, Front))
    most = policy.front * sum(held.alive for held in built)
    return bool(built and alive > most) or spare > 3 * alive + policy.small


def _are_felt(fronts: list[Held], old: list[Held], policy: Policy) -> bool:
    """Has asking fronts cost as much as merging these will; if all are merged, one less is asked at all."""
    costs, spent = policy.costs, 0.0
    for front in fronts:
        assert isinstance(front.segment, Front)
        spent += front.segment.burden(front.seen)
        spent += costs.coded * front.events if len(old) > len(fronts) else 0.0
    return spent >= policy.felt * costs.building(sum(held.alive for held in old))


def _with_smaller(fronts: list[Held], built: list[Held], policy: Policy) -> list[Held]:
    """Fronts and the segments that are not much larger than all that is merged with them so far."""
    old, total = list(fronts), sum(front.alive for front in fronts)
    for held in sorted(built, key=len):
        if held.alive > policy.ratio * total:
            break
        old.append(held)
        total += held.alive
    return old


def living(held: Held, owner: NDArray[np.int32]) -> Conjunctions:
    """A segment's conjunctions whose slots it still owns."""
    chosen, every = held.segment.owned(owner, held.number)
    return with_every(held.segment.portion(chosen), every)


def with_every(portion: Conjunctions, every: NDArray[np.int32]) -> Conjunctions:
    """With slots that always match: they have no test."""
    if not len(every):
        return portion
    start = np.concatenate([portion.start, np.full(len(every), portion.start[-1])])
    return portion._replace(slot=np.concatenate([portion.slot, every]), start=start)


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
