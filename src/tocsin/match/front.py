"""The front: conjunctions that came a moment ago, in chains that need no order.

A segment is fast to ask and slow to build: ends sorted, ranks, a path for each conjunction. What comes and
goes all the time is not worth that. The front hangs each conjunction on one test of a rare dimension, or on a
pair of rare dimensions; a value of an event is compared with all that hang on its dimension. So taking in
a conjunction is to write it behind the others and to put it at the head of a chain:

    price        ─► 3 <= . <= 5  ─► . >= 9             an event's price is compared with two intervals,
    color        ─► . = 'red'                           whatever their order
    color, size  ─► 'blue' and > 4 ─► 'red' and < 2    asked of events that have both

Asking costs (chance that the dimension, or both, are there) x (a comparison) for each conjunction, and a
little for each pair of an event's dimensions, if there are pairs at all.

A slot may be used again while what it had before is still here: every conjunction has the number of the
batch that it came with, and is alive while its slot's owner is that number.

Fronts over the same dimensions share what is worked out about a batch of events. When a front is felt, it
becomes a segment in the background (`auto.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.building import count_dims
from tocsin.match._kernels.front import append, fill_pairs, hang, match_front
from tocsin.match._kernels.matching import SEVERAL, SLOT
from tocsin.match._kernels.ranking import by_event
from tocsin.match.arranging import several_of
from tocsin.match.dimensions import Asked, Dimensions, Grouped, Spread, grouped, told_always
from tocsin.match.placing import Costs, Sample
from tocsin.model.columns import Index, distinct, longer
from tocsin.predicate.portion import Portion

__all__ = ["Front", "FrontFrame", "Hung"]

LOOSE = 64  # conjunctions that hang on nothing, at most
_COMPARED = 20.0  # nanoseconds for a conjunction that hangs on one dimension, if it is there


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

    def presence(self, portion: Portion, samples: Sequence[Sample]) -> NDArray[np.float64]:
        """How often each dimension is there: by samples of events, and as often as filters ask for it."""
        width, count = len(self.key), sum(sample.events.count for sample in samples)
        seen = np.zeros(width)
        for events, numbers in samples:
            some = grouped(events, numbers, int(numbers.max(initial=-1)) + 1, 0, events.count)
            runs = self.spread(self.ask(events, numbers, patterns=False), some).runs
            seen[runs[0]] += np.diff(runs[1])
        asked = count_dims(portion.dim, width) + 1.0
        size = (seen.sum() + 80.0) / (count + 4.0)  # dimensions of an event: as if four had had 20
        often = np.minimum(1.0, size * asked / asked.sum())
        weight = 2.0 / max(1e-9, often.mean()) if width else 0.0  # as if seen twice already
        chance = (seen + weight * often) / (count + weight) if count else often
        chance[self.key >= (1 << 40)] = 0.1  # whether a pattern matches is not asked of the sample
        return np.asarray(chance)


class Hung(NamedTuple):
    """Conjunctions in a front's dimensions, and where they are to hang."""

    portion: Portion
    every: NDArray[np.int32]  # slots that always match
    access: NDArray[np.int32]  # the test that each hangs on, or -1
    other: NDArray[np.int32]  # that of the other dimension of a pair, or -1
    gain: float  # nanoseconds per event that pairs would save, or save
    cost: float  # nanoseconds per event
    loose: int  # how many hang on nothing


class Front:
    """Conjunctions by the dimensions they hang on; `cost`: nanoseconds that an event is expected to take."""

    costly: tuple[tuple[int, float], ...] = ()

    def __init__(self, frame: FrontFrame, samples: Sequence[Sample], costs: Costs | None = None) -> None:
        self.frame = frame
        self.every: NDArray[np.int32] = np.empty(0, np.int32)  # slots that always match
        self.cost = 0.0
        self._every_number: NDArray[np.int32] = np.empty(0, np.int32)
        self._samples, self._costs = samples, costs or Costs()
        self._presence: NDArray[np.float64] | None = None
        self._count = self._tests = self._loose = self._pairs = 0
        self._gain = 0.0  # that pairs would have brought so far
        self._paired = self._several = False
        self._start = np.zeros(1, np.int64)
        self._dim = np.empty(0, np.int32)
        self._low, self._high = np.empty(0, np.int64), np.empty(0, np.int64)
        self._flags = np.empty(0, np.uint8)
        self._link = np.empty((0, 4), np.int64)  # see `_kernels/front.py`
        width = len(frame.key)
        self._head, self._length = np.full(width + 1, -1, np.int32), np.zeros(width + 1, np.int32)
        self._keys, self._chains = np.full(1, -1, np.int64), np.full(1, -1, np.int32)
        self._bloom = np.zeros(1, np.uint64)

    # -- what is here ----------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many conjunctions there are."""
        return self._count

    @property
    def tags(self) -> NDArray[np.uint32]:
        """The slot of each conjunction, and SEVERAL if the slot has others."""
        return (self._link[: self._count, 3] & 0x7FFFFFFF).astype(np.uint32)

    @property
    def conjunction_slots(self) -> NDArray[np.int32]:
        """The slot of each conjunction."""
        return (self.tags & SLOT).astype(np.int32)

    @property
    def conjunction_numbers(self) -> NDArray[np.int32]:
        """The number of the batch that each conjunction came with."""
        return (self._link[: self._count, 3] >> 32).astype(np.int32)

    @property
    def slots(self) -> NDArray[np.int32]:
        """All slots, each once."""
        return distinct(np.concatenate([self.conjunction_slots, self.every]))

    @property
    def nbytes(self) -> int:
        """The size of all arrays."""
        tests = (self._start, self._dim, self._low, self._high, self._flags, self._link)
        chains = (self._head, self._length, self._keys, self._chains, self._bloom)
        return sum(array.nbytes for array in (self.frame.key, self.every, *tests, *chains))

    def owned(self, owner: NDArray[np.int32], number: int) -> tuple[Index, NDArray[np.int32]]:
        """The conjunctions that are alive, by number, and the slots alive that always match."""
        chosen = np.flatnonzero(owner[self.conjunction_slots] == self.conjunction_numbers)
        return chosen, self.every[owner[self.every] == self._every_number]

    def who(self, number: int) -> tuple[NDArray[np.int32], Any]:
        """All slots, and the owner that each has while it lives; a slot may be here again and again."""
        slot = np.concatenate([self.conjunction_slots, self.every]).astype(np.int64)
        both = distinct((slot << 32) | np.concatenate([self.conjunction_numbers, self._every_number]))
        return (both >> 32).astype(np.int32), both & 0xFFFFFFFF

    def portion(self, chosen: Index) -> Portion:
        """Some of the conjunctions, by number."""
        n, t, frame = self._count, self._tests, self.frame
        tests = self._dim[:t], self._low[:t], self._high[:t], self._flags[:t]
        given = self.conjunction_slots, self._start[: n + 1], *tests
        whole = Portion(*given, frame.key, frame.texts, frame.backwards)
        return whole if len(chosen) == n else whole.take(chosen)

    # -- taking in -------------------------------------------------------------------------------

    def hung(self, portion: Portion) -> Hung | None:
        """Where conjunctions would hang; None if too many of them would hang on nothing."""
        if len(portion.key) != len(self.frame.key) or not np.array_equal(portion.key, self.frame.key):
            place = np.searchsorted(self.frame.key, portion.key).astype(np.int32)
            portion = portion._replace(key=self.frame.key, dim=place[portion.dim])
        sizes = np.diff(portion.start)
        every = distinct(portion.slot[sizes == 0])
        if len(every):
            portion = portion.take(np.flatnonzero((sizes > 0) & ~np.isin(portion.slot, every)))
        if self._presence is None:
            self._presence = self.frame.presence(portion, self._samples)
        access, other, often = hang(
            portion.start, (portion.dim, portion.low, portion.high, portion.flags), self._presence
        )
        loose = int((access < 0).sum())
        if self._loose + loose > LOOSE:
            return None
        alone, both = _COMPARED * often[:, 0], self._costs.hit * often[:, 1]
        pays = (other >= 0) & (both < alone)
        gain = float((alone - both)[pays].sum())
        cost = float(np.where(pays, both, alone).sum()) + 100.0 * loose
        return Hung(portion, every, access, np.where(pays, other, np.int32(-1)), gain, cost, loose)

    def take(self, hung: Hung, number: int) -> None:
        """Take conjunctions in that came as this number."""
        portion, n, t = hung.portion, hung.portion.size, len(hung.portion.dim)
        probing = self._costs.probing(float(self._presence.sum())) if self._presence is not None else 0.0
        self._gain += hung.gain
        if not self._paired and self._gain > probing:
            self._paired, self.cost = True, self.cost + probing
        other = hung.other if self._paired else np.full(n, -1, np.int32)
        self._make_room(n, t, int((other >= 0).sum()))
        several = several_of(portion.slot)
        self._several = self._several or bool(several.any())
        arrays = self._arrays
        self._pairs += append(
            portion.start,
            (portion.dim, portion.low, portion.high, portion.flags),
            portion.slot,
            several,
            (hung.access, other),
            number,
            self._count,
            arrays,
            (self._head, self._length),
            (self._keys, self._chains, self._bloom),
        )
        self._count, self._tests, self._loose = self._count + n, self._tests + t, self._loose + hung.loose
        self.cost += hung.cost if self._paired else hung.cost + hung.gain
        if len(hung.every):
            self.every = np.concatenate([self.every, hung.every])
            numbers = np.full(len(hung.every), number, np.int32)
            self._every_number = np.concatenate([self._every_number, numbers])

    def _make_room(self, conjunctions: int, tests: int, pairs: int) -> None:
        """For so many more; pairs have twice the room that they need."""
        most = self._count + conjunctions
        if most > len(self._link):
            most += self._count
            self._start, self._link = longer(self._start, most + 1), longer(self._link, most)
        most = self._tests + tests
        if most > len(self._dim):
            most += self._tests
            for name in ("_dim", "_low", "_high", "_flags"):
                setattr(self, name, longer(getattr(self, name), most))
        most = self._pairs + pairs
        if pairs and 2 * most > len(self._keys):
            size = 1 << (2 * most + self._pairs).bit_length()
            keys, chains = np.full(size, -1, np.int64), np.full(size, -1, np.int32)
            bloom = np.zeros(max(16, size >> 4), np.uint64)  # 8 bits and more for each
            fill_pairs(self._keys, self._chains, len(self.frame.key), keys, chains, bloom)
            self._keys, self._chains, self._bloom = keys, chains, bloom

    @property
    def _arrays(self) -> Any:
        return self._start, self._dim, self._low, self._high, self._flags, self._link

    # -- matching --------------------------------------------------------------------------------

    def match(
        self, asked: Asked, some: Grouped, owner: NDArray[np.int32], number: int
    ) -> tuple[list[Index], list[Index], Index]:
        """As `Segment.match`; conjunctions have numbers of their own."""
        if id(self.frame) not in some.memo:
            some.memo[id(self.frame)] = self.frame.coded(asked, some)
        spread, coded = some.memo[id(self.frame)]
        found, n, twice, seen, pairs = match_front(
            self._arrays,
            (self._head, self._length),
            (self._keys, self._chains, self._bloom),
            self._several,
            spread.runs,
            spread[1:],
            coded,
            some.first,
            owner,
            np.empty(4 * (some.last - some.first) + 1024, np.int64),
        )
        every = self.every if not len(owner) else self.every[owner[self.every] == self._every_number]
        out = [found[:n], *told_always(every, some, owner[:0], number)]
        return out, [twice], np.array([seen, pairs, 0, 0])

    def _check(self) -> None:
        n, start = self._count, self._start[: self._count + 1]
        width = len(self.frame.key)
        assert np.all(np.diff(self.frame.key) > 0) and len(self._head) == width + 1
        assert (
            np.all(np.diff(start) > 0)
            and start[-1] == self._tests
            and len(self.every) == len(self._every_number)
        )
        found = []
        for d in range(width + 1):
            chain = self._chain(int(self._head[d]))
            assert len(chain) == self._length[d]
            assert d == width or all(self._dim[start[c]] == d for c in chain)
            found += chain
        assert (self._keys >= 0).sum() == self._pairs <= max(1, len(self._keys) // 2)
        for place in np.flatnonzero(self._keys >= 0).tolist():
            dims = set(divmod(int(self._keys[place]), width))
            chain = self._chain(int(self._chains[place]))
            assert chain and all(dims <= set(self._dim[start[c] : start[c + 1]].tolist()) for c in chain)
            found += chain
        assert sorted(found) == list(range(n)), "each conjunction hangs in one chain"
        assert self._several or not np.any(self.tags & SEVERAL)

    def _chain(self, c: int) -> list[int]:
        out = []
        while c >= 0:
            out.append(c)
            c = int(self._link[c, 2])
        return out
