"""A mutable segment: adding or removing a conjunction takes a few writes.

An immutable segment is fast to match and slow to build: ends sorted, ranks, a path for each conjunction. What
comes and goes all the time is not worth that. A mutable segment places each conjunction under one test of a
rare dimension, or under a pair of rare dimensions; a value of an event is compared with all entries of its
dimension:

    price        ─► 3 <= . <= 5 │ . >= 9               an event's price is compared with two intervals,
    color        ─► . = 'red'                           whatever their order
    color, size  ─► 'blue' and > 4 ─► 'red' and < 2    verified for events that have both

Matching costs (chance that the dimension, or both, are there) x (a comparison) for each conjunction, and a
little for each pair of an event's dimensions, if there are pairs at all: every dimension has 512 bits for its
partners, and most pairs of an event's dimensions end there.

Removal frees the space of a conjunction at once, so a mutable segment may live as long as matching it costs
little. While an immutable segment is built from it in the background it must not change: then removal clears
the slot's owner, as with immutable segments (`lifecycle.py`).

Dimensions are numbered as they come. Events have them in the order of their keys, so a frame says the number
of each place and the place of each number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.dimension_pairs import WORDS
from tocsin.match._kernels.mutable_match import EventCodes, MutableCounter, match_mutable
from tocsin.match._kernels.mutable_update import (
    BLOCK_CLASSES,
    FREE,
    LISTED,
    TEST_CLASSES,
    Link,
    PlacedTests,
    Used,
    add_conjunctions,
    choose_access,
    fill_pairs,
    new_entries,
    remove_slots,
    used_rows,
)
from tocsin.match._kernels.ordering import CodeRuns, by_event
from tocsin.match._kernels.single import SingleEvent, SingleFound, match_one_mutable
from tocsin.match._kernels.verify import MAY_REPEAT, SLOT, Owners
from tocsin.match.build.assemble import several_of
from tocsin.match.build.cost import CostModel, EventSample
from tocsin.match.segments.base import (
    BatchCodes,
    Dimensions,
    EventGroup,
    SegmentMatches,
    group_events,
    unconditional_matches,
)
from tocsin.model.columns import Index, distinct, longer, sliced
from tocsin.predicate.conjunctions import Conjunctions

__all__ = ["MutableArrays", "MutableFrame", "MutableSegment", "Placement"]

MOST_UNINDEXED = 64  # conjunctions without an access path, at most
MOST_STALE = 4096  # unused dimensions, at most, beside seven times as many as are used


@dataclass(frozen=True)
class MutableFrame(Dimensions):
    """Dimensions of mutable segments; segments of one frame share the encoding of a batch."""

    key: Index
    texts: Any
    backwards: Any
    patterns: tuple[tuple[str, str], ...]
    number: NDArray[np.int32]  # of the dimension at each place of `key`
    place: NDArray[np.int32]  # by number

    @classmethod
    def of(cls, conjunctions: Conjunctions, patterns: tuple[tuple[str, str], ...]) -> MutableFrame:
        """A frame of their dimensions."""
        same = np.arange(len(conjunctions.key), dtype=np.int32)
        return cls(conjunctions.key, conjunctions.texts, conjunctions.backwards, patterns, same, same)

    def widened(self, conjunctions: Conjunctions) -> MutableFrame:
        """With the dimensions of these conjunctions too; itself, if it has them all."""
        at = np.minimum(np.searchsorted(self.key, conjunctions.key), max(0, len(self.key) - 1))
        new = conjunctions.key[self.key[at] != conjunctions.key] if len(self.key) else conjunctions.key
        if not len(new):
            return self
        key, number = np.concatenate([self.key, new]), np.arange(len(self.number), len(self.key) + len(new))
        order = np.argsort(key)
        numbers = np.concatenate([self.number, number.astype(np.int32)])[order]
        place = np.empty(len(order), np.int32)
        place[numbers] = np.arange(len(order))
        return MutableFrame(key[order], self.texts, self.backwards, self.patterns, numbers, place)

    def coded(self, codes: BatchCodes, some: EventGroup) -> tuple[CodeRuns, EventCodes]:
        """Some events by dimension and by event; computed once for all segments of the frame."""
        if id(self) not in some.memo:
            runs = self.runs(codes, some)
            place, at = np.empty_like(runs.event), np.empty_like(runs.code)
            start, present = by_event(runs, np.arange(len(at)), some.events, place, at)
            events = EventCodes(start, place, runs.code[at], runs.above[at], present, some.first)
            some.memo[id(self)] = runs, events
        found: tuple[CodeRuns, EventCodes] = some.memo[id(self)]
        return found

    def accepts(self, conjunctions: Conjunctions, used: int) -> bool:
        """Whether the batch's dimensions can be added, where `used` conjunctions are there.

        Texts have codes of their own in every batch, so batches with texts do not mix.
        """
        if len(conjunctions.texts) or len(conjunctions.backwards) or len(self.texts) or len(self.backwards):
            return False
        return len(self.key) + len(conjunctions.key) <= 8 * (used + len(conjunctions.key)) + MOST_STALE

    def presence(self, conjunctions: Conjunctions, samples: Sequence[EventSample]) -> NDArray[np.float64]:
        """How often each dimension is there, by number: from sampled events, and how many filters test it."""
        width, count = len(self.key), sum(sample.events.count for sample in samples)
        seen = np.zeros(width)
        for events, numbers in samples:
            some = group_events(events, numbers, int(numbers.max(initial=-1)) + 1, 0, events.count)
            runs = self.runs(self.encode(events, numbers, patterns=False), some)
            seen[self.number[runs.dim]] += np.diff(runs.start)
        tested = np.bincount(conjunctions.dim, minlength=width) + 1.0
        size = (seen.sum() + 80.0) / (count + 4.0)  # dimensions of an event: as if four had had 20
        often = np.minimum(1.0, size * tested / tested.sum())
        weight = 2.0 / max(1e-9, often.mean()) if width else 0.0  # as if seen twice already
        chance = (seen + weight * often) / (count + weight) if count else often
        chance[self.number[self.key >= (1 << 40)]] = 0.1  # patterns are not matched against the sample
        return np.asarray(chance)


class Placement(NamedTuple):
    """Conjunctions in a frame's dimensions, by number, and their access tests; nothing is added yet."""

    frame: MutableFrame
    presence: NDArray[np.float64]  # of its dimensions, by number
    conjunctions: Conjunctions
    unconditional: NDArray[np.int32]  # slots that match every event
    access: NDArray[np.int32]  # the access test of each, or -1
    other: NDArray[np.int32]  # that of the other dimension of a pair, or -1
    gain: float  # nanoseconds per event that pairs would save, or save
    cost: float  # nanoseconds per event


class MutableArrays(NamedTuple):
    """What the kernels read and write; `_kernels/mutable_update.py` says how."""

    first: Index  # by conjunction: where its tests begin
    link: NDArray[np.int32]
    tag: NDArray[np.uint32]  # slot, MAY_REPEAT, MORE
    tests: Index  # flags and dimension, least, greatest
    begin: Index  # by list: that of conjunctions without access path, then those of dimensions
    length: NDArray[np.int32]
    space: NDArray[np.int32]  # entries that its block can hold
    entries: Index  # of lists: least, greatest, conjunction and tag
    keys: Index  # a table of pairs
    chains: NDArray[np.int32]  # the first conjunction of each, or -1
    partners: NDArray[np.uint64]  # by dimension
    row_of: NDArray[np.int32]  # a conjunction of each slot, or -1
    spare: NDArray[np.int32]  # removed conjunctions, by how many tests they had
    blocks: Index  # free blocks of entries, by size
    used: Index  # how much of the above (`Used`)

    @classmethod
    def empty(cls) -> MutableArrays:
        def of(shape: Any, kind: Any, fill: int = 0) -> Any:
            return np.full(shape, fill, kind)

        rows = of(0, np.int64), of((0, 4), np.int32), of(0, np.uint32), of((0, 3), np.int64)
        lists = of(1, np.int64), of(1, np.int32), of(1, np.int32), of((0, 3), np.int64)
        pairs = of(1, np.int64, -1), of(1, np.int32, -1), of((0, WORDS), np.uint64)
        free = of(TEST_CLASSES, np.int32, -1), of(BLOCK_CLASSES, np.int64, -1)
        return cls(*rows, *lists, *pairs, of(0, np.int32), *free, of(len(Used), np.int64))


class MutableSegment:
    """Conjunctions by rare dimensions; `expected_cost`: nanoseconds that an event is expected to take."""

    costly: tuple[tuple[int, float], ...] = ()
    fixed_cost = 0.0

    def __init__(self, frame: MutableFrame, costs: CostModel | None = None) -> None:
        self.frame = frame
        self.unconditional: NDArray[np.int32] = np.empty(0, np.int32)  # slots that match every event
        self.expected_cost = 0.0
        self.may_repeat = False
        self._costs = costs or CostModel()
        self._presence = np.zeros(0)
        self._gain = 0.0  # that pairs would have brought so far
        self._uses_pairs = False
        self._arrays = MutableArrays.empty()

    # -- contents --------------------------------------------------------------------------------

    @property
    def dimensions(self) -> Dimensions:
        return self.frame

    @property
    def arrays(self) -> MutableArrays:
        """What the kernels read: other ones after each addition."""
        return self._arrays

    @property
    def size(self) -> int:
        """How many conjunctions there are."""
        return int(self._arrays.used[Used.ALIVE])

    @property
    def paths(self) -> dict[str, int]:
        return {"mutable": self.size}

    @property
    def spare(self) -> int:
        """How many removed conjunctions, or entries of lists, still have space here."""
        used = self._arrays.used
        return max(int(used[Used.ROWS]), int(used[Used.ENTRIES]) // 4) - self.size

    @property
    def pairs(self) -> int:
        """How many pairs of dimensions there are."""
        return int(self._arrays.used[Used.PAIRS_ALIVE])

    @property
    def conjunction_slots(self) -> NDArray[np.int32]:
        """The slot of each conjunction, in the order of `rows`."""
        return (self._arrays.tag[self.rows] & SLOT).astype(np.int32)

    @property
    def rows(self) -> Index:
        """Where the conjunctions are."""
        return np.asarray(used_rows(self._arrays.link, self._arrays.used[Used.ROWS]))

    @property
    def slots(self) -> NDArray[np.int32]:
        """All slots, each once."""
        return distinct(np.concatenate([self.conjunction_slots, self.unconditional]))

    @property
    def nbytes(self) -> int:
        """The size of all arrays."""
        frame = self.frame.key, self.frame.number, self.frame.place, self.unconditional
        return sum(array.nbytes for array in (*frame, *self._arrays))

    def owned(self, owners: Owners) -> tuple[Index, NDArray[np.int32]]:
        """Where the conjunctions are whose slots the segment owns, and such unconditional slots."""
        chosen = self.rows[owners.of[self.conjunction_slots] == owners.number]
        return chosen, self.unconditional[owners.of[self.unconditional] == owners.number]

    def extract(self, chosen: Index) -> Conjunctions:
        """The conjunctions at these places."""
        arrays, frame = self._arrays, self.frame
        start, at = sliced(arrays.first[chosen], arrays.link[chosen, Link.TESTS].astype(np.int64))
        tests = arrays.tests[at]
        dim, flags = frame.place[tests[:, 0] & 0xFFFFFFFF], (tests[:, 0] >> 32).astype(np.uint8)
        slot = (arrays.tag[chosen] & SLOT).astype(np.int32)
        ends = np.ascontiguousarray(tests[:, 1]), np.ascontiguousarray(tests[:, 2])
        return Conjunctions(slot, start, dim, *ends, flags, frame.key, frame.texts, frame.backwards)

    # -- adding and removing -----------------------------------------------------------------------

    def accepts(self, conjunctions: Conjunctions) -> bool:
        """Whether these conjunctions can be added."""
        return self.frame.accepts(conjunctions, self.size)

    def place(
        self, conjunctions: Conjunctions, samples: Callable[[], Sequence[EventSample]]
    ) -> Placement | None:
        """Choose access tests; None if too many conjunctions would have none.

        Sampled events are needed only if the batch has dimensions that are new here.
        """
        frame = self.frame.widened(conjunctions)
        number = frame.number[np.searchsorted(frame.key, conjunctions.key)]
        conjunctions = conjunctions._replace(dim=number[conjunctions.dim])
        sizes = np.diff(conjunctions.start)
        unconditional = distinct(conjunctions.slot[sizes == 0])
        if len(unconditional):
            conjunctions = conjunctions.take(
                np.flatnonzero((sizes > 0) & ~np.isin(conjunctions.slot, unconditional))
            )
        presence = self._presence
        if len(presence) < len(frame.key):
            presence = frame.presence(conjunctions, samples())
        tests = conjunctions.dim, conjunctions.low, conjunctions.high, conjunctions.flags
        access, other, often = choose_access(conjunctions.start, tests, presence)
        unindexed = int((access < 0).sum())
        if self._arrays.length[0] + unindexed > MOST_UNINDEXED:
            return None
        costs = self._costs
        compared = np.where(np.diff(conjunctions.start) > 1, costs.follow, costs.compare)
        alone, both = compared * often[:, 0], costs.hit * often[:, 1]
        pays = (other >= 0) & (both < alone)
        gain = float((alone - both)[pays].sum())
        cost = float(np.where(pays, both, alone).sum()) + 100.0 * unindexed
        places = access, np.where(pays, other, np.int32(-1))
        return Placement(frame, presence, conjunctions, unconditional, *places, gain, cost)

    def add(self, placement: Placement) -> None:
        """Add conjunctions; if memory runs out, nothing has changed."""
        conjunctions, n = placement.conjunctions, placement.conjunctions.size
        probe_cost = self._costs.probe_cost(float(placement.presence.sum()))
        gain, several = self._gain + placement.gain, several_of(conjunctions.slot)
        uses_pairs = self._uses_pairs or gain > probe_cost
        other = placement.other if uses_pairs else np.full(n, -1, np.int32)
        tests = conjunctions.start, conjunctions.dim, conjunctions.low, conjunctions.high, conjunctions.flags
        placed = PlacedTests(*tests, placement.access, other)
        self._arrays, fresh = self._enlarged(len(placement.frame.key), conjunctions, placed)
        self.frame, self._presence, self._gain = placement.frame, placement.presence, gain
        self.may_repeat = self.may_repeat or bool(several.any())
        add_conjunctions(placed, conjunctions.slot, several, fresh, self._arrays)
        self.expected_cost += probe_cost if uses_pairs and not self._uses_pairs else 0.0
        self.expected_cost += placement.cost if uses_pairs else placement.cost + placement.gain
        self._uses_pairs = uses_pairs
        if len(placement.unconditional):
            self.unconditional = np.concatenate([self.unconditional, placement.unconditional])

    def remove(self, slots: Index) -> None:
        """Remove all conjunctions of these slots."""
        before = self.size
        remove_slots(slots, self._arrays)
        self.expected_cost *= self.size / max(1, before)
        if len(self.unconditional):
            self.unconditional = self.unconditional[~np.isin(self.unconditional, slots)]

    def _enlarged(
        self, width: int, conjunctions: Conjunctions, placed: PlacedTests
    ) -> tuple[MutableArrays, NDArray[np.int32]]:
        """The arrays with space for the conjunctions; and how many each list is to take."""
        arrays = self._arrays
        rows, tests, most = (
            len(conjunctions.slot),
            len(conjunctions.dim),
            int(conjunctions.slot.max(initial=-1)) + 1,
        )
        lists: Any = arrays.begin, arrays.length, arrays.space
        begin, length, space = (_with_space(array, width + 1) for array in lists)
        fresh = np.zeros(width + 1, np.int32)
        entries = new_entries(placed, length, space, fresh)
        arrays = arrays._replace(
            first=_with_space(arrays.first, arrays.used[Used.ROWS] + rows),
            link=_with_space(arrays.link, arrays.used[Used.ROWS] + rows),
            tag=_with_space(arrays.tag, arrays.used[Used.ROWS] + rows),
            tests=_with_space(arrays.tests, arrays.used[Used.TESTS] + tests),
            begin=begin,
            length=length,
            space=space,
            entries=_with_space(arrays.entries, arrays.used[Used.ENTRIES] + entries),
            partners=_with_space(arrays.partners, width),
            row_of=_with_space(arrays.row_of, most, -1),
        )
        pairs = int((placed.other >= 0).sum())
        return (_with_pair_space(arrays, pairs) if pairs else arrays), fresh

    # -- matching --------------------------------------------------------------------------------

    def buffer_size(self, events: int) -> int:
        """Matches to expect of so many events, and some more."""
        return 4 * events + 1024

    def match(self, codes: BatchCodes, some: EventGroup, owners: Owners, buffer: Index) -> SegmentMatches:
        """Find candidates by lists and by pairs, and verify them."""
        runs, events = self.frame.coded(codes, some)
        frame = self.frame.number, self.frame.place
        found, counters = match_mutable(self._arrays, frame, runs, events, owners, self.may_repeat, buffer)
        unique = [
            found.unique[: found.unique_count],
            *unconditional_matches(self.unconditional, some, owners),
        ]
        return SegmentMatches(unique, found.repeated[: found.repeated_count], counters)

    def single_call(
        self, event: SingleEvent, found: SingleFound, counters: Index
    ) -> tuple[Any, tuple[Any, ...]]:
        frame, codes = self.frame, np.zeros((len(self.frame.key), 2), np.int64)
        table = frame.single_table()
        return match_one_mutable, (self._arrays, frame.number, codes, table, event, found, counters)

    def candidates(self, counters: NDArray[np.float64]) -> dict[str, float]:
        """Conjunctions that were compared, whatever the path."""
        paths = (MutableCounter.COMPARED, MutableCounter.PAIRED, MutableCounter.UNINDEXED)
        return {"mutable": float(sum(counters[path] for path in paths))}

    def lookup_cost(self, counters: Index) -> float:
        """Nanoseconds that matching took beyond matching an empty segment."""
        costs = self._costs
        return float(
            costs.compare * counters[MutableCounter.COMPARED]
            + costs.hit * counters[MutableCounter.PAIRED]
            + costs.follow * counters[MutableCounter.FOLLOWED]
            + costs.hit * counters[MutableCounter.UNINDEXED]
        )

    # -- checking --------------------------------------------------------------------------------

    def _check(self) -> None:
        arrays, width = self._arrays, len(self.frame.key)
        assert np.all(np.diff(self.frame.key) > 0)
        assert np.array_equal(self.frame.number[self.frame.place], np.arange(width))
        assert not self.size or (len(arrays.begin) > width and len(arrays.partners) >= width)
        rows, count = self.rows, int(arrays.used[Used.ROWS])
        assert len(rows) == self.size and np.all(arrays.link[rows, Link.TESTS] > 0)
        found = [self._check_list(at) for at in range(len(arrays.length))]
        chains = [self._check_chain(at) for at in np.flatnonzero(arrays.chains >= 0).tolist()]
        assert (
            len(chains)
            == arrays.used[Used.PAIRS_ALIVE]
            <= arrays.used[Used.PAIRS]
            == (arrays.keys >= 0).sum()
        )
        placed = [row for some in (*found, *chains) for row in some]
        assert sorted(placed) == rows.tolist(), "each conjunction is placed once"
        spare = [row for head in arrays.spare.tolist() for row in self._chain(head)]
        small = arrays.link[:count, Link.TESTS] < TEST_CLASSES
        free = np.flatnonzero((arrays.link[:count, Link.BACK] == FREE) & small)
        assert sorted(spare) == free.tolist(), "the space of removed conjunctions can be used again"
        by_slot = [row for head in arrays.row_of.tolist() for row in self._chain(head, Link.TWIN)]
        assert sorted(by_slot) == rows.tolist(), "each conjunction is found by its slot"
        assert self.may_repeat or not np.any(arrays.tag[rows] & MAY_REPEAT)

    def _check_list(self, at: int) -> list[int]:
        arrays = self._arrays
        begin, length = int(arrays.begin[at]), int(arrays.length[at])
        assert length <= arrays.space[at] and begin + arrays.space[at] <= arrays.used[Used.ENTRIES]
        rows = (arrays.entries[begin : begin + length, 2] >> 32).astype(np.int64)
        assert np.array_equal(arrays.link[rows, Link.BACK], np.arange(length))
        assert at == 0 or np.all(arrays.tests[arrays.first[rows], 0] & 0xFFFFFFFF == at - 1)
        assert np.all((arrays.link[rows, Link.NEXT] == LISTED) == (at > 0))
        return [int(row) for row in rows]

    def _check_chain(self, at: int) -> list[int]:
        arrays = self._arrays
        pair = {int(arrays.keys[at]) >> 32, int(arrays.keys[at]) & 0xFFFFFFFF}
        chain = self._chain(int(arrays.chains[at]))
        assert [int(arrays.link[row, Link.BACK]) for row in chain] == [-1, *chain[:-1]]
        for row in chain:
            first = arrays.first[row]
            assert {int(test) & 0xFFFFFFFF for test in arrays.tests[first : first + 2, 0]} == pair
        return chain

    def _chain(self, row: int, by: int = Link.NEXT) -> list[int]:
        out = []
        while row >= 0:
            out.append(row)
            row = int(self._arrays.link[row, by])
        return out


def _with_space(array: Any, most: int, fill: int = 0) -> Any:
    """The array, if it has space for so many, or one with space for half as many again."""
    return array if most <= len(array) else longer(array, int(most) + int(most) // 2, fill)


def _with_pair_space(arrays: MutableArrays, more: int) -> MutableArrays:
    """The arrays with a table of twice the size that pairs need; unused pairs are left out when it grows."""
    known, alive = int(arrays.used[Used.PAIRS]), int(arrays.used[Used.PAIRS_ALIVE])
    if len(arrays.keys) > 1 and 2 * (known + more) <= len(arrays.keys) and 2 * known <= 3 * alive + 8192:
        return arrays
    size = 1 << max(4, (3 * (alive + more)).bit_length())
    keys, chains = np.full(size, -1, np.int64), np.full(size, -1, np.int32)
    partners, used = np.zeros_like(arrays.partners), arrays.used.copy()
    used[Used.PAIRS] = fill_pairs(arrays.keys, arrays.chains, keys, chains, partners)
    return arrays._replace(keys=keys, chains=chains, partners=partners, used=used)
