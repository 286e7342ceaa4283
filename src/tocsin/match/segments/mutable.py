"""The front: conjunctions that come and go, where taking one in or off is a few writes.

A segment is fast to ask and slow to build: ends sorted, ranks, a path for each conjunction. What comes and
goes all the time is not worth that. The front hangs each conjunction on one test of a rare dimension, or on a
pair of rare dimensions; a value of an event is compared with all that hang on its dimension:

    price        ─► 3 <= . <= 5 │ . >= 9               an event's price is compared with two intervals,
    color        ─► . = 'red'                           whatever their order
    color, size  ─► 'blue' and > 4 ─► 'red' and < 2    asked of events that have both

Asking costs (chance that the dimension, or both, are there) x (a comparison) for each conjunction, and a
little for each pair of an event's dimensions, if there are pairs at all. In front of the pairs every
dimension has 512 bits for its partners: most pairs of an event's dimensions end there.

What is removed is taken off at once and its room used again, so a front may live as long as asking it costs
little. While a segment is made from it in the background it has to stay as it is: then what is removed is
told by who owns its slot, as with segments (`auto.py`).

Dimensions are numbered as they come. Events are spread over them in the order of their keys, so a frame says
the number of each place and the place of each number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.build import count_dims
from tocsin.match._kernels.mutable_match import match_front
from tocsin.match._kernels.mutable_update import (
    ALIVE,
    BACK,
    CLASSES,
    ENTRIES,
    FREE,
    LISTED,
    NEXT,
    PAIRS,
    PAIRS_ALIVE,
    ROWS,
    SIZES,
    TESTS,
    TESTS_OF,
    TWIN,
    fill_pairs,
    growth,
    hang,
    rows_alive,
    take_in,
    take_off,
)
from tocsin.match._kernels.pair_filter import WORDS
from tocsin.match._kernels.ranking import by_event
from tocsin.match._kernels.verify import SEVERAL, SLOT
from tocsin.match.build.assemble import several_of
from tocsin.match.build.cost import Costs, Sample
from tocsin.match.dimensions import Asked, Dimensions, Grouped, Spread, grouped, told_always
from tocsin.model.columns import Index, distinct, longer, sliced
from tocsin.predicate.conjunctions import Conjunctions

__all__ = ["Front", "FrontFrame", "Hung", "Parts"]

LOOSE = 64  # conjunctions that hang on nothing, at most
STALE = 4096  # dimensions that nobody uses any more, at most, and seven times as many as are used


@dataclass(frozen=True)
class FrontFrame(Dimensions):
    """Dimensions of fronts: what was worked out for one batch of events serves all of one frame."""

    key: Index
    texts: Any
    backwards: Any
    patterns: tuple[tuple[str, str], ...]
    number: NDArray[np.int32]  # of the dimension at each place of `key`
    place: NDArray[np.int32]  # by number

    @classmethod
    def of(cls, portion: Conjunctions, patterns: tuple[tuple[str, str], ...]) -> FrontFrame:
        """A frame of the portion's dimensions."""
        same = np.arange(len(portion.key), dtype=np.int32)
        return cls(portion.key, portion.texts, portion.backwards, patterns, same, same)

    def widened(self, portion: Conjunctions) -> FrontFrame:
        """With the portion's dimensions; itself, if it has them all."""
        at = np.minimum(np.searchsorted(self.key, portion.key), max(0, len(self.key) - 1))
        new = portion.key[self.key[at] != portion.key] if len(self.key) else portion.key
        if not len(new):
            return self
        key, number = np.concatenate([self.key, new]), np.arange(len(self.number), len(self.key) + len(new))
        order = np.argsort(key)
        numbers = np.concatenate([self.number, number.astype(np.int32)])[order]
        place = np.empty(len(order), np.int32)
        place[numbers] = np.arange(len(order))
        return FrontFrame(key[order], self.texts, self.backwards, self.patterns, numbers, place)

    def coded(self, asked: Asked, some: Grouped) -> tuple[Spread, Any]:
        """Some events by dimension and by event: where each begins; place, code, above, bits."""
        spread = self.spread(asked, some)
        dims, at = np.empty_like(spread.event), np.empty_like(spread.code)
        count = some.last - some.first
        start, bits = by_event(spread.runs, spread.event, np.arange(len(at)), count, dims, at)
        return spread, (start, dims, spread.code[at], spread.above[at], bits)

    def takes(self, portion: Conjunctions, used: int) -> bool:
        """Whether the portion's dimensions can be added, where so many are in use.

        Texts have codes of their own in every portion.
        """
        if len(portion.texts) or len(portion.backwards) or len(self.texts) or len(self.backwards):
            return False
        return len(self.key) + len(portion.key) <= 8 * (used + len(portion.key)) + STALE

    def presence(self, portion: Conjunctions, samples: Sequence[Sample]) -> NDArray[np.float64]:
        """How often each dimension is there, by number: by samples of events, and as filters ask for it."""
        width, count = len(self.key), sum(sample.events.count for sample in samples)
        seen = np.zeros(width)
        for events, numbers in samples:
            some = grouped(events, numbers, int(numbers.max(initial=-1)) + 1, 0, events.count)
            runs = self.spread(self.ask(events, numbers, patterns=False), some).runs
            seen[self.number[runs[0]]] += np.diff(runs[1])
        asked = count_dims(portion.dim, width) + 1.0
        size = (seen.sum() + 80.0) / (count + 4.0)  # dimensions of an event: as if four had had 20
        often = np.minimum(1.0, size * asked / asked.sum())
        weight = 2.0 / max(1e-9, often.mean()) if width else 0.0  # as if seen twice already
        chance = (seen + weight * often) / (count + weight) if count else often
        chance[self.number[self.key >= (1 << 40)]] = 0.1  # a pattern is not asked of the sample
        return np.asarray(chance)


class Hung(NamedTuple):
    """Conjunctions in a front's dimensions, by number, and where they are to hang."""

    frame: FrontFrame
    presence: NDArray[np.float64]  # of its dimensions, by number
    portion: Conjunctions
    every: NDArray[np.int32]  # slots that always match
    access: NDArray[np.int32]  # the test that each hangs on, or -1
    other: NDArray[np.int32]  # that of the other dimension of a pair, or -1
    gain: float  # nanoseconds per event that pairs would save, or save
    cost: float  # nanoseconds per event


class Parts(NamedTuple):
    """What the kernels read and write; `_kernels/hanging.py` says how."""

    first: Index  # by conjunction: where its tests begin
    link: NDArray[np.int32]
    tag: NDArray[np.uint32]  # slot, SEVERAL, MORE
    tests: Index  # flags and dimension, least, greatest
    begin: Index  # by list: that of what hangs on nothing, then those of dimensions
    length: NDArray[np.int32]
    room: NDArray[np.int32]
    entries: Index  # of lists: least, greatest, conjunction and tag
    keys: Index  # a table of pairs
    chains: NDArray[np.int32]  # the first conjunction of each, or -1
    partners: NDArray[np.uint64]  # by dimension
    row_of: NDArray[np.int32]  # a conjunction of each slot, or -1
    spare: NDArray[np.int32]  # conjunctions that were taken off, by how many tests they had
    blocks: Index  # free blocks of entries, by size
    used: Index  # how much of the above

    @classmethod
    def nothing(cls) -> Parts:
        def of(shape: Any, kind: Any, fill: int = 0) -> Any:
            return np.full(shape, fill, kind)

        rows = of(0, np.int64), of((0, 4), np.int32), of(0, np.uint32), of((0, 3), np.int64)
        lists = of(1, np.int64), of(1, np.int32), of(1, np.int32), of((0, 3), np.int64)
        pairs = of(1, np.int64, -1), of(1, np.int32, -1), of((0, WORDS), np.uint64)
        free = of(SIZES, np.int32, -1), of(CLASSES, np.int64, -1)
        return cls(*rows, *lists, *pairs, of(0, np.int32), *free, of(6, np.int64))


class Front:
    """Conjunctions by the dimensions they hang on; `cost`: nanoseconds that an event is expected to take."""

    costly: tuple[tuple[int, float], ...] = ()

    def __init__(self, frame: FrontFrame, costs: Costs | None = None) -> None:
        self.frame = frame
        self.every: NDArray[np.int32] = np.empty(0, np.int32)  # slots that always match
        self.cost = 0.0
        self._costs = costs or Costs()
        self._presence = np.zeros(0)
        self._gain = 0.0  # that pairs would have brought so far
        self._paired = self._several = False
        self._parts = Parts.nothing()

    # -- what is here ----------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many conjunctions there are."""
        return int(self._parts.used[ALIVE])

    @property
    def spare(self) -> int:
        """How many more there is room for, where others were: of conjunctions, or of entries in lists."""
        used = self._parts.used
        return max(int(used[ROWS]), int(used[ENTRIES]) // 4) - self.size

    @property
    def pairs(self) -> int:
        """How many pairs of dimensions conjunctions hang on."""
        return int(self._parts.used[PAIRS_ALIVE])

    @property
    def has_several(self) -> bool:
        """Whether a slot may have more than one conjunction."""
        return self._several

    @property
    def conjunction_slots(self) -> NDArray[np.int32]:
        """The slot of each conjunction, as `rows` has them."""
        return (self._parts.tag[self.rows] & SLOT).astype(np.int32)

    @property
    def rows(self) -> Index:
        """Where the conjunctions are."""
        return np.asarray(rows_alive(self._parts.link, self._parts.used[ROWS]))

    @property
    def slots(self) -> NDArray[np.int32]:
        """All slots, each once."""
        return distinct(np.concatenate([self.conjunction_slots, self.every]))

    @property
    def nbytes(self) -> int:
        """The size of all arrays."""
        frame = self.frame.key, self.frame.number, self.frame.place, self.every
        return sum(array.nbytes for array in (*frame, *self._parts))

    def owned(self, owner: NDArray[np.int32], number: int) -> tuple[Index, NDArray[np.int32]]:
        """Where the conjunctions are whose slots belong to `number`, and such slots that always match."""
        chosen = self.rows[owner[self.conjunction_slots] == number]
        return chosen, self.every[owner[self.every] == number]

    def portion(self, chosen: Index) -> Conjunctions:
        """The conjunctions at these places."""
        parts, frame = self._parts, self.frame
        start, at = sliced(parts.first[chosen], parts.link[chosen, TESTS_OF].astype(np.int64))
        tests = parts.tests[at]
        dim, flags = frame.place[tests[:, 0] & 0xFFFFFFFF], (tests[:, 0] >> 32).astype(np.uint8)
        slot = (parts.tag[chosen] & SLOT).astype(np.int32)
        ends = np.ascontiguousarray(tests[:, 1]), np.ascontiguousarray(tests[:, 2])
        return Conjunctions(slot, start, dim, *ends, flags, frame.key, frame.texts, frame.backwards)

    # -- coming and going ------------------------------------------------------------------------

    def takes(self, portion: Conjunctions) -> bool:
        """Whether the portion can be taken in."""
        return self.frame.takes(portion, self.size)

    def hung(self, portion: Conjunctions, samples: Callable[[], Sequence[Sample]]) -> Hung | None:
        """Where conjunctions would hang; None if too many of them would hang on nothing.

        Recent events are asked for if the portion has dimensions that the front does not know.
        """
        frame = self.frame.widened(portion)
        number = frame.number[np.searchsorted(frame.key, portion.key)]
        portion = portion._replace(dim=number[portion.dim])
        sizes = np.diff(portion.start)
        every = distinct(portion.slot[sizes == 0])
        if len(every):
            portion = portion.take(np.flatnonzero((sizes > 0) & ~np.isin(portion.slot, every)))
        presence = self._presence
        if len(presence) < len(frame.key):
            presence = frame.presence(portion, samples())
        tests = portion.dim, portion.low, portion.high, portion.flags
        access, other, often = hang(portion.start, tests, presence)
        loose = int((access < 0).sum())
        if self._parts.length[0] + loose > LOOSE:
            return None
        costs = self._costs
        compared = np.where(np.diff(portion.start) > 1, costs.follow, costs.compare)
        alone, both = compared * often[:, 0], costs.hit * often[:, 1]
        pays = (other >= 0) & (both < alone)
        gain = float((alone - both)[pays].sum())
        cost = float(np.where(pays, both, alone).sum()) + 100.0 * loose
        places = access, np.where(pays, other, np.int32(-1))
        return Hung(frame, presence, portion, every, *places, gain, cost)

    def take(self, hung: Hung) -> None:
        """Take conjunctions in."""
        portion, n = hung.portion, hung.portion.size
        probing = self._costs.probing(float(hung.presence.sum()))
        gain, several = self._gain + hung.gain, several_of(portion.slot)
        paired = self._paired or gain > probing
        places = hung.access, hung.other if paired else np.full(n, -1, np.int32)
        self._parts, fresh = self._roomier(len(hung.frame.key), portion, places)  # or nothing has changed
        self.frame, self._presence, self._gain = hung.frame, hung.presence, gain
        self._several = self._several or bool(several.any())
        tests = portion.dim, portion.low, portion.high, portion.flags
        take_in(portion.start, tests, portion.slot, several, places, fresh, self._parts)
        self.cost += probing if paired and not self._paired else 0.0
        self.cost += hung.cost if paired else hung.cost + hung.gain
        self._paired = paired
        if len(hung.every):
            self.every = np.concatenate([self.every, hung.every])

    def remove(self, slots: Index) -> None:
        """Take off all that these slots have here."""
        before = self.size
        take_off(slots, self._parts)
        self.cost *= self.size / max(1, before)
        if len(self.every):
            self.every = self.every[~np.isin(self.every, slots)]

    def _roomier(self, width: int, portion: Conjunctions, places: Any) -> tuple[Parts, NDArray[np.int32]]:
        """The same with room for so many more; and how many each list is to take."""
        parts = self._parts
        rows, tests, most = len(portion.slot), len(portion.dim), int(portion.slot.max(initial=-1)) + 1
        lists: Any = parts.begin, parts.length, parts.room
        begin, length, room = (_roomy(array, width + 1) for array in lists)
        fresh = np.zeros(width + 1, np.int32)
        entries = growth(portion.start, portion.dim, places, length, room, fresh)
        parts = parts._replace(
            first=_roomy(parts.first, parts.used[ROWS] + rows),
            link=_roomy(parts.link, parts.used[ROWS] + rows),
            tag=_roomy(parts.tag, parts.used[ROWS] + rows),
            tests=_roomy(parts.tests, parts.used[TESTS] + tests),
            begin=begin,
            length=length,
            room=room,
            entries=_roomy(parts.entries, parts.used[ENTRIES] + entries),
            partners=_roomy(parts.partners, width),
            row_of=_roomy(parts.row_of, most, -1),
        )
        pairs = int((places[1] >= 0).sum())
        return (_roomier_pairs(parts, pairs) if pairs else parts), fresh

    # -- matching --------------------------------------------------------------------------------

    def room(self, events: int) -> int:
        """As of `Segment`."""
        return 4 * events + 1024

    def match(
        self, asked: Asked, some: Grouped, owner: NDArray[np.int32], number: int, room: Index
    ) -> tuple[list[Index], list[Index], Index]:
        """As `Segment.match`; what was seen: compared in lists, pairs, checked after comparing, loose."""
        if id(self.frame) not in some.memo:
            some.memo[id(self.frame)] = self.frame.coded(asked, some)
        spread, coded = some.memo[id(self.frame)]
        found, n, twice, seen = match_front(
            self._parts,
            (self.frame.number, self.frame.place),
            self._several,
            spread.runs,
            spread[1:],
            coded,
            some.first,
            (owner, np.int32(number)),
            room,
        )
        return [found[:n], *told_always(self.every, some, owner, number)], [twice], seen

    def burden(self, seen: Index) -> float:
        """Nanoseconds that asking took beyond what it takes for an empty front."""
        costs = self._costs
        return float(seen @ np.array([costs.compare, costs.hit, costs.follow, costs.hit, 0.0, 0.0]))

    # -- checking --------------------------------------------------------------------------------

    def _check(self) -> None:
        parts, width = self._parts, len(self.frame.key)
        assert np.all(np.diff(self.frame.key) > 0)
        assert np.array_equal(self.frame.number[self.frame.place], np.arange(width))
        assert not self.size or (len(parts.begin) > width and len(parts.partners) >= width)
        rows, count = self.rows, int(parts.used[ROWS])
        assert len(rows) == self.size and np.all(parts.link[rows, TESTS_OF] > 0)
        found = [self._check_list(at) for at in range(len(parts.length))]
        chains = [self._check_chain(at) for at in np.flatnonzero(parts.chains >= 0).tolist()]
        assert len(chains) == parts.used[PAIRS_ALIVE] <= parts.used[PAIRS] == (parts.keys >= 0).sum()
        hanging = [row for part in (*found, *chains) for row in part]
        assert sorted(hanging) == rows.tolist(), "each conjunction hangs in one place"
        spare = [row for head in parts.spare.tolist() for row in self._chain(head)]
        small = parts.link[:count, TESTS_OF] < SIZES
        free = np.flatnonzero((parts.link[:count, BACK] == FREE) & small)
        assert sorted(spare) == free.tolist(), "what was taken off can be used again"
        told = [row for head in parts.row_of.tolist() for row in self._chain(head, TWIN)]
        assert sorted(told) == rows.tolist(), "each conjunction is found by its slot"
        assert self._several or not np.any(parts.tag[rows] & SEVERAL)

    def _check_list(self, at: int) -> list[int]:
        parts = self._parts
        begin, length = int(parts.begin[at]), int(parts.length[at])
        assert length <= parts.room[at] and begin + parts.room[at] <= parts.used[ENTRIES]
        rows = (parts.entries[begin : begin + length, 2] >> 32).astype(np.int64)
        assert np.array_equal(parts.link[rows, BACK], np.arange(length))
        assert at == 0 or np.all(parts.tests[parts.first[rows], 0] & 0xFFFFFFFF == at - 1)
        assert np.all((parts.link[rows, NEXT] == LISTED) == (at > 0))
        return [int(row) for row in rows]

    def _check_chain(self, at: int) -> list[int]:
        parts = self._parts
        pair = {int(parts.keys[at]) >> 32, int(parts.keys[at]) & 0xFFFFFFFF}
        chain = self._chain(int(parts.chains[at]))
        assert [int(parts.link[row, BACK]) for row in chain] == [-1, *chain[:-1]]
        for row in chain:
            first = parts.first[row]
            assert {int(test) & 0xFFFFFFFF for test in parts.tests[first : first + 2, 0]} == pair
        return chain

    def _chain(self, row: int, by: int = NEXT) -> list[int]:
        out = []
        while row >= 0:
            out.append(row)
            row = int(self._parts.link[row, by])
        return out


def _roomy(array: Any, most: int, fill: int = 0) -> Any:
    """The array, if it has room for so many, or one with room for half as many again."""
    return array if most <= len(array) else longer(array, int(most) + int(most) // 2, fill)


def _roomier_pairs(parts: Parts, more: int) -> Parts:
    """Twice the room that pairs need; those that nobody asks for any more are left out on occasion."""
    known, alive = int(parts.used[PAIRS]), int(parts.used[PAIRS_ALIVE])
    if len(parts.keys) > 1 and 2 * (known + more) <= len(parts.keys) and 2 * known <= 3 * alive + 8192:
        return parts
    size = 1 << max(4, (3 * (alive + more)).bit_length())
    keys, chains = np.full(size, -1, np.int64), np.full(size, -1, np.int32)
    partners, used = np.zeros_like(parts.partners), parts.used.copy()
    used[PAIRS] = fill_pairs(parts.keys, parts.chains, keys, chains, partners)
    return parts._replace(keys=keys, chains=chains, partners=partners, used=used)
