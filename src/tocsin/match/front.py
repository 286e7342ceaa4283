"""The front: conjunctions that came a moment ago, in lists that need no order.

A segment is fast to ask and slow to build: ends sorted, ranks, a path for each conjunction. What comes and
goes all the time is not worth that. The front hangs each conjunction on one test of a rare dimension; a
value of an event is compared with all that hang on its dimension. So taking in a batch is a counting sort,
and asking costs (chance that the dimension is there) x (a comparison) for each conjunction:

    price    3 <= . <= 5  and brand = 'x'           an event's price is compared with two intervals,
             . >= 9                                  whatever their order
    color    . = 'red'    and size > 4

Each batch of filters makes a front of its own; fronts over the same dimensions share what is worked out about
a batch of events. When they are felt, or many, they become a segment in the background (`auto.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.building import count_dims
from tocsin.match._kernels.front import hang, lay_lists, match_front
from tocsin.match._kernels.matching import SLOT
from tocsin.match._kernels.ranking import by_event
from tocsin.match.arranging import several_of
from tocsin.match.dimensions import Asked, Dimensions, Grouped, Spread, grouped, told_always
from tocsin.match.placing import Sample
from tocsin.model.columns import Index, distinct
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.flat import NEGATED
from tocsin.predicate.portion import Portion

__all__ = ["Front", "FrontFrame", "lay_front"]

LOOSE = 64  # conjunctions that hang on nothing, at most


@dataclass(frozen=True)
class FrontFrame(Dimensions):
    """Dimensions that several fronts share: events are spread over them once for all."""

    key: Index
    texts: Any
    backwards: Any
    patterns: tuple[tuple[str, str], ...]

    def coded(self, asked: Asked, some: Grouped) -> tuple[Spread, Any]:
        """Some events by dimension and by event: where each begins; dimension, code, above, bits."""
        spread = self.spread(asked, some)
        dims, at = np.empty_like(spread.event), np.empty_like(spread.code)
        count = some.last - some.first
        start, bits = by_event(spread.runs, spread.event, np.arange(len(at)), count, dims, at)
        return spread, (start, dims, spread.code[at], spread.above[at], bits)

    def takes(self, portion: Portion) -> bool:
        """Whether the portion's dimensions are all here; texts have codes of their own."""
        if len(portion.texts) or len(portion.backwards) or len(self.texts) or len(self.backwards):
            return False
        at = np.minimum(np.searchsorted(self.key, portion.key), len(self.key) - 1)
        return len(self.key) > 0 and bool(np.all(self.key[at] == portion.key))


@dataclass(frozen=True)
class Front:
    """Conjunctions by the dimension they hang on; `cost`: nanoseconds that an event is expected to take."""

    frame: FrontFrame
    checks: Any  # tags; where tests begin; dimension, low, high and flags of the tests
    lists: Index  # where the conjunctions of each dimension begin; the last list hangs on nothing
    every: NDArray[np.int32]  # slots that always match
    cost: float
    costly: tuple[tuple[int, float], ...] = ()

    @property
    def size(self) -> int:
        """How many conjunctions there are."""
        return len(self.checks[0])

    @property
    def conjunction_slots(self) -> NDArray[np.int32]:
        """The slot of each conjunction."""
        return (self.checks[0] & SLOT).astype(np.int32)

    @cached_property
    def slots(self) -> NDArray[np.int32]:
        """All slots, each once."""
        return distinct(np.concatenate([self.conjunction_slots, self.every]))

    @property
    def nbytes(self) -> int:
        """The size of all arrays."""
        return sum(array.nbytes for array in (self.frame.key, self.lists, self.every, *self.checks))

    def match(
        self, asked: Asked, some: Grouped, owner: NDArray[np.int32], number: int
    ) -> tuple[list[Index], list[Index], Index]:
        """As `Segment.match`."""
        if id(self.frame) not in some.memo:
            some.memo[id(self.frame)] = self.frame.coded(asked, some)
        spread, coded = some.memo[id(self.frame)]
        room = np.empty(4 * (some.last - some.first) + 1024, np.int64)
        found, n, twice, seen = match_front(
            self.checks,
            self._ends,
            self.lists,
            spread.runs,
            spread[1:],
            coded,
            some.first,
            owner,
            number,
            room,
        )
        out = [found[:n], *told_always(self.every, some, owner, number)]
        return out, [twice], np.array([seen, 0, 0, 0])

    @cached_property
    def _ends(self) -> tuple[Index, Index]:
        """The ends of the test that each conjunction hangs on; a negated one has none."""
        _, start, _, low, high, flags = self.checks
        first = start[:-1]
        negated = (flags[first] & NEGATED) != 0
        return np.where(negated, LEAST, low[first]), np.where(negated, GREATEST, high[first])

    def portion(self, chosen: Index) -> Portion:
        """Some of the conjunctions, by number."""
        _, start, dim, low, high, flags = self.checks
        slot = self.conjunction_slots
        frame = self.frame
        whole = Portion(slot, start, dim, low, high, flags, frame.key, frame.texts, frame.backwards)
        return whole if len(chosen) == len(slot) else whole.take(chosen)

    def _check(self) -> None:
        tags, start, dim, _, _, _ = self.checks
        width = len(self.frame.key)
        assert np.all(np.diff(self.frame.key) > 0) and len(self.lists) == width + 2
        assert np.all(np.diff(self.lists) >= 0) and self.lists[-1] == len(tags) == len(start) - 1
        hung = np.repeat(np.arange(width), np.diff(self.lists[:-1]))
        assert np.array_equal(dim[start[: len(hung)]], hung)


def lay_front(portion: Portion, frame: FrontFrame, sample: Sample | None) -> Front | None:
    """A front of these conjunctions; None if too many of them would hang on nothing."""
    if len(portion.key) != len(frame.key) or not np.array_equal(portion.key, frame.key):
        number = np.searchsorted(frame.key, portion.key).astype(np.int32)
        portion = portion._replace(key=frame.key, dim=number[portion.dim])
    sizes = np.diff(portion.start)
    every = distinct(portion.slot[sizes == 0])
    if len(every):
        portion = portion.take(np.flatnonzero((sizes > 0) & ~np.isin(portion.slot, every)))
    width, n = len(portion.key), portion.size
    presence = _presence(portion, frame, sample)
    tests = portion.dim, portion.low, portion.high, portion.flags
    access = hang(portion.start, *tests, presence)
    loose = access < 0
    if loose.sum() > LOOSE:
        return None
    total = len(portion.dim)
    out = (
        np.empty(n, np.uint32),
        np.empty(n + 1, np.int64),
        np.empty(total, np.int32),
        np.empty(total, np.int64),
        np.empty(total, np.int64),
        np.empty(total, np.uint8),
    )
    lists = lay_lists(portion.start, tests, portion.slot, several_of(portion.slot), access, width, out)
    hung = portion.dim[(portion.start[:-1] + access)[~loose]]
    cost = 20.0 * float(presence[hung].sum()) + 100.0 * float(loose.sum())
    return Front(frame, out, lists, every, cost)


def _presence(portion: Portion, frame: FrontFrame, sample: Sample | None) -> NDArray[np.float64]:
    """How often each dimension is there: by a sample of events; without one, as often as it is asked for."""
    width = len(portion.key)
    if sample is None:
        asked = count_dims(portion.dim, width)
        return np.minimum(1.0, 20.0 * asked / max(1.0, asked.sum()))
    attributes = int(sample.numbers.max(initial=-1)) + 1
    some = grouped(sample.events, sample.numbers, attributes, 0, sample.events.count)
    runs = frame.spread(frame.ask(sample.events, sample.numbers, patterns=False), some).runs
    seen = np.zeros(width)
    seen[runs[0]] = np.diff(runs[1])
    chance = (seen + 0.01) / max(1, sample.events.count)
    chance[portion.key >= (1 << 40)] = 0.1  # whether a pattern matches is not asked of the sample
    return np.asarray(chance)
