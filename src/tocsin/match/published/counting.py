"""Counting, and the two phases that all algorithms of F01 share.

    phase 1   which predicates does the event satisfy?       every distinct one is evaluated once
    phase 2   which conjunctions have all theirs satisfied?  `Counting` here, clusters in `clustering.py`

Tests become predicates `attribute operator operand`, as in the paper:

    low = high            EQUAL      found by hash
    LEAST .. high         AT_MOST    found in the sorted list of its dimension
    low .. GREATEST       AT_LEAST   likewise
    low .. high           AT_LEAST and AT_MOST: two predicates
    LEAST .. GREATEST     PRESENT    true for any value of its dimension
    NEGATED               OUTSIDE    checked one by one if the event has the dimension
    ABSENT                ABSENTS    checked one by one

Counting counts, for each conjunction, the predicates that the event satisfies:

    price <= 580   -> 0 1 2        an event that satisfies the first and the last counts
    color = 'red'  -> 0            0: 1    1: 2    2: 1
    size >= 9      -> 1            and 1 has two predicates: it matches

Cost of an event: the satisfied predicates and the lengths of their lists of conjunctions. Adding a
conjunction costs O(its predicates), removing one the lengths of its predicates' lists; the sorted lists of
phase 1 are merged, in O(predicates), at the next event.

>>> from tocsin.match.coded import CodedConjunctions, CodedEvents
>>> index = Counting()
>>> tests = ([0, 0, 1], [5, 1, 2], [5, 9, 2], [0, 0, 0])  # dimension, low, high, flags
>>> index._insert(CodedConjunctions(*map(np.array, ([7, 8], [0, 1, 3], *tests))))
>>> event = CodedEvents(*map(np.array, ([0, 2], [0, 1], [5, 3], [False, False])), 2)
>>> (index._match(event) >> 32).tolist()  # x = 5 holds; x BETWEEN 1 AND 9 AND y = 2 is one short
[7]

F01 (Fabret et al., SIGMOD 2001), sections 2.1, 2.4 and 5. What differs:

    sorted arrays   where the paper has trees
    intervals       count as two predicates, since the paper has none
    duplicates      a predicate that a conjunction has several times counts once
    alternatives    (IN, CNF) are no predicates of the paper and are rejected
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.match.coded import CodedConjunctions, CodedEvents, CodedIndex, plain_filters
from tocsin.match.published._kernels.counting import (
    ABSENTS,
    AT_LEAST,
    AT_MOST,
    BLOCK,
    DONE,
    EQUAL,
    FREE,
    MADE,
    OUTSIDE,
    POOL_END,
    POOL_GAPS,
    POOL_USED,
    PRESENT,
    USED,
    Blocks,
    LineArrays,
    PredicateArrays,
    SortedArrays,
    add_lines,
    associate,
    count_matches,
    drop_lines,
    filter_blocks,
    find,
    lines_of,
    look_up,
    number,
    predicates_of,
    refill,
    renumber,
    repack,
    sorted_order,
    splice,
)
from tocsin.model.columns import Index, Mask
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.flat import ABSENT, NEGATED, FlatFilters

__all__ = [
    "ConjunctionLines",
    "Counting",
    "Numbers",
    "PredicateStore",
    "PredicateTests",
    "TwoPhase",
    "as_predicates",
    "grow_array",
    "grow_blocks",
    "new_blocks",
    "tighten_blocks",
]

Numbers = NDArray[np.int32]
_LONGEST = 2**15  # tests of a conjunction


class PredicateTests(NamedTuple):
    """Conjunctions of predicates, without those that no event can satisfy."""

    slot: Numbers
    start: Index
    group: Index
    low: Index
    high: Index

    @property
    def predicates(self) -> tuple[Index, Index, Index]:
        """Group, low and high of each test."""
        return self.group, self.low, self.high


def as_predicates(added: CodedConjunctions) -> PredicateTests:
    """Tests as predicates.

    >>> between = CodedConjunctions(*map(np.array, ([7], [0, 1], [0], [3], [5], [0])))
    >>> tests = as_predicates(between)
    >>> tests.slot.tolist(), tests.start.tolist(), tests.low.tolist(), tests.high.tolist()
    ([7], [0, 2], [3, -9223372036854775808], [9223372036854775807, 5])
    """
    low, high = added.low, added.high
    absent = (added.flags & ABSENT) != 0
    negated = ((added.flags & NEGATED) != 0) & ~absent
    empty, below, above = low > high, low == LEAST, high == GREATEST
    plain = ~absent & ~negated
    never = (plain & empty) | (negated & below & above)
    present = (plain & below & above) | (negated & empty)
    two = plain & ~below & ~above & (low < high)
    kind = np.select(
        [absent, present, negated, low == high, below],
        [ABSENTS, PRESENT, OUTSIDE, EQUAL, AT_MOST],
        AT_LEAST,
    )
    owner = np.repeat(np.arange(len(added.slot)), np.diff(added.start))
    fine = np.ones(len(added.slot), np.bool_)
    fine[owner[never]] = False

    times = np.where(fine[owner], 1 + two, 0)
    at = np.repeat(np.arange(len(low)), times)
    again = np.zeros(len(at), np.bool_)
    again[1:] = at[1:] == at[:-1]  # the second half of an interval
    kind = np.where(again, AT_MOST, kind[at])
    free = (kind == ABSENTS) | (kind == PRESENT)
    sizes = np.bincount(owner[at], minlength=len(fine))[fine]
    return PredicateTests(
        np.asarray(added.slot[fine], np.int32),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        8 * added.dim[at].astype(np.int64) + kind,
        np.where(free | (kind == AT_MOST), LEAST, low[at]),
        np.where(free | (kind == AT_LEAST), GREATEST, high[at]),
    )


def grow_array(array: Any, size: int, fill: int = 0) -> Any:
    """The array with at least this capacity; if it must grow, at least twice the old one."""
    if size <= len(array):
        return array
    larger = np.full((max(size, 2 * len(array)), *array.shape[1:]), fill, array.dtype)
    larger[: len(array)] = array
    return larger


class PredicateStore:
    """Distinct predicates, numbered; a number is permanent while a conjunction uses its predicate.

    Unused predicates stay until there are many; then their numbers become free.
    """

    def __init__(self) -> None:
        wide, narrow = np.empty(0, np.int64), np.empty(0, np.int32)
        self.arrays = PredicateArrays(wide, wide, wide, narrow, np.full(16, -1, np.int32))
        self.used = 0  # numbers assigned so far, including free ones
        self._free = narrow
        self._sorted = SortedArrays(np.zeros(1, np.int64), wide, narrow, narrow)
        self._new: list[Numbers] = []  # not in the sorted lists yet
        self._unused = False  # whether some may be unused

    def __len__(self) -> int:
        return int(np.count_nonzero(self.arrays.uses[: self.used]))

    def number(self, tests: PredicateTests) -> tuple[Numbers, Numbers]:
        """The number of each test's predicate, and the new numbers."""
        made = np.empty(len(tests.group), np.int32)
        counts = np.array([0, self.used, len(self._free), 0])
        while True:
            number(self.arrays, tests.predicates, counts, self._free, made)
            if counts[DONE] == len(made):
                break
            self._grow(int(counts[USED]))
        self.used = int(counts[USED])
        self._free = self._free[: counts[FREE]]
        added = np.sort(made[: counts[MADE]])
        renumber(self.arrays, added, sorted_order(self.arrays.group[added], self._operand(added)))
        self._new.append(added)
        return look_up(self.arrays, tests.predicates), added

    def _operand(self, predicates: Numbers) -> Index:
        at_most = (self.arrays.group[predicates] & 7) == AT_MOST
        return np.where(at_most, self.arrays.high[predicates], self.arrays.low[predicates])

    def released(self) -> None:
        """Notes that some predicates may be unused now."""
        self._unused = True

    def index(self) -> SortedArrays:
        """The sorted lists, with new predicates merged in."""
        if not self._new:
            return self._sorted
        unused = self._unused and self.used - len(self._free) - len(self) > self.used // 4
        added = np.concatenate(self._new)
        kind = self.arrays.group[added] & 7
        listed = added[(kind != EQUAL) & (kind != ABSENTS)]
        kind = self.arrays.group[listed] & 7
        which = 3 * (self.arrays.group[listed] >> 3) + np.minimum(kind, 3) - 1
        operand = self._operand(listed)
        order = sorted_order(which, operand)
        lists = max(len(self._sorted.start) - 1, 3 * (int(self.arrays.group[added].max(initial=0)) // 8 + 1))
        first = np.concatenate([[0], np.cumsum(np.bincount(which, minlength=lists))]).astype(np.int64)
        start, operands, numbers = splice(
            self.arrays, self._sorted, first, operand[order], listed[order], unused
        )
        absent = [self._sorted.absent, added[(self.arrays.group[added] & 7) == ABSENTS]]
        self._sorted = SortedArrays(start, operands, numbers, np.concatenate(absent))
        self._new = []
        if unused:
            self._free_unused()
        return self._sorted

    def _free_unused(self) -> None:
        """Frees the numbers of unused predicates."""
        absent = self._sorted.absent
        self._sorted = self._sorted._replace(absent=absent[self.arrays.uses[absent] > 0])
        self._free = np.flatnonzero(self.arrays.uses[: self.used] == 0).astype(np.int32)
        self.arrays.group[self._free] = -1
        refill(self.arrays, self.used)
        self._unused = False

    def _grow(self, used: int) -> None:
        arrays = self.arrays
        if used == len(arrays.group):
            size = max(64, used + 1)
            arrays = arrays._replace(
                group=grow_array(arrays.group, size),
                low=grow_array(arrays.low, size),
                high=grow_array(arrays.high, size),
                uses=grow_array(arrays.uses, size),
            )
        if 2 * (used + 1) > len(arrays.hashed):
            arrays = arrays._replace(hashed=np.full(2 * len(arrays.hashed), -1, np.int32))
            refill(arrays, used)
        self.arrays = arrays

    def _check(self) -> None:
        arrays, used, lists = self.arrays, self.used, self.index()
        assert np.all(arrays.uses[:used] >= 0)
        for q in np.flatnonzero(arrays.uses[:used]).tolist():
            assert find(arrays, arrays.group[q], arrays.low[q], arrays.high[q]) == q
        listed = np.concatenate([lists.predicate, lists.absent])
        assert len(np.unique(listed)) == len(listed), "a predicate is listed twice"
        inequalities = (arrays.uses[:used] > 0) & ((arrays.group[:used] & 7) != EQUAL)
        assert set(np.flatnonzero(inequalities).tolist()) <= set(listed.tolist())
        for g, (a, b) in enumerate(zip(lists.start[:-1], lists.start[1:], strict=True)):
            assert np.all(lists.operand[a:b][:-1] <= lists.operand[a:b][1:])
            assert np.all(arrays.group[lists.predicate[a:b]] >> 3 == g // 3)


class ConjunctionLines:
    """Conjunctions as *lines*, each a slot and a list of predicates.

    The next conjunction of the same size reuses a removed line, so constant churn needs no rebuild.
    """

    def __init__(self) -> None:
        narrow = np.empty(0, np.int32)
        self.arrays = LineArrays(
            narrow, narrow, np.empty(0, np.int64), np.empty(0, np.uint16), narrow, narrow, narrow
        )
        self.used = 0
        self._end = 0

    def add(self, predicates: PredicateStore, tests: PredicateTests, numbers: Numbers) -> Numbers:
        """Stores conjunctions of numbered predicates, without duplicates; the new lines."""
        longest = int(np.diff(tests.start).max(initial=0))
        self.arrays = self.arrays._replace(
            head=grow_array(self.arrays.head, int(tests.slot.max(initial=-1)) + 1, -1),
            spare=grow_array(self.arrays.spare, longest + 1, -1),
        )
        out = np.empty(len(tests.slot), np.int32)
        counts = np.array([0, self.used, self._end])
        while True:
            add_lines(self.arrays, predicates.arrays, (tests.slot, tests.start), numbers, counts, out)
            if counts[DONE] == len(out):
                break
            self._grow(int(counts[USED]), int(counts[POOL_END]) + longest)
        self.used, self._end = int(counts[USED]), int(counts[POOL_END])
        return out

    def of(self, slots: Index) -> Numbers:
        """The lines of slots."""
        return lines_of(self.arrays, slots)

    def drop(self, predicates: PredicateStore, lines: Numbers) -> None:
        """Removes lines, of each slot all."""
        drop_lines(self.arrays, predicates.arrays, lines)
        predicates.released()

    def alive(self) -> Numbers:
        """All lines in use."""
        return np.flatnonzero(self.arrays.slot[: self.used] >= 0).astype(np.int32)

    def predicates(self, line: int) -> list[int]:
        at = int(self.arrays.at[line])
        return self.arrays.pool[at : at + int(self.arrays.size[line])].tolist()

    def _grow(self, used: int, end: int) -> None:
        arrays = self.arrays
        if used == len(arrays.slot):
            capacity = max(64, used + 1)
            arrays = arrays._replace(
                slot=grow_array(arrays.slot, capacity),
                next=grow_array(arrays.next, capacity),
                at=grow_array(arrays.at, capacity),
                size=grow_array(arrays.size, capacity),
            )
        self.arrays = arrays._replace(pool=grow_array(arrays.pool, end))


class TwoPhase(CodedIndex):
    """Phase 1 and the lines; a subclass finds lines whose predicates are all satisfied."""

    unsupported = "IN, no alternatives that stay clauses, and no conjunction of 32,768 tests or more"

    def __init__(self) -> None:
        super().__init__()
        self._clear()

    @abstractmethod
    def _enter_lines(self, lines: Numbers, predicates: Numbers) -> None:
        """Index new lines; `predicates` are the new predicates among theirs."""

    @abstractmethod
    def _leave_lines(self, lines: Numbers) -> None:
        """Remove lines from the index; their predicates are still stored."""

    def _clear(self) -> None:
        self._predicates = PredicateStore()
        self._lines = ConjunctionLines()

    def _insert(self, added: CodedConjunctions) -> None:
        tests = as_predicates(added)
        numbers, new_predicates = self._predicates.number(tests)
        self._enter_lines(self._lines.add(self._predicates, tests, numbers), new_predicates)

    def _delete(self, slots: Index) -> None:
        lines = self._lines.of(slots)
        self._leave_lines(lines)
        self._lines.drop(self._predicates, lines)

    def supports(self, filters: FlatFilters) -> Mask:
        out = plain_filters(filters, NEGATED | ABSENT)
        out[filters.owner[filters.sizes >= _LONGEST]] = False
        return out

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "predicates": len(self._predicates)}

    def _bytes(self) -> int:
        parts = (self._predicates.arrays, self._predicates.index(), self._lines.arrays)
        return super()._bytes() + sum(array.nbytes for part in parts for array in part)

    def _check(self) -> None:
        super()._check()
        self._predicates._check()
        arrays, alive = self._lines.arrays, self._lines.alive()
        uses = np.zeros_like(self._predicates.arrays.uses)
        for line in alive.tolist():
            own = self._lines.predicates(line)
            assert own and len(set(own)) == len(own), "a line repeats a predicate"
            uses[own] += 1
        assert np.array_equal(uses, self._predicates.arrays.uses)
        slots = arrays.slot[alive]
        assert set(slots.tolist()) <= self._used - self._unconditional
        assert sorted(self._lines.of(np.unique(slots).astype(np.int64)).tolist()) == alive.tolist()


class Counting(TwoPhase):
    """Counts satisfied predicates per conjunction.

    Candidates are the conjunctions with some satisfied predicate; the count verifies them. Counters are reset
    by walking the same lists again, or all at once where most have changed.
    """

    def _clear(self) -> None:
        super()._clear()
        self._lists = new_blocks()  # by predicate: its lines
        self._events = self._counted = 0

    def _enter_lines(self, lines: Numbers, predicates: Numbers) -> None:
        self._lists = grow_blocks(self._lists, len(self._predicates.arrays.group))
        done = np.zeros(2, np.int64)
        while done[0] < len(lines):
            associate(self._lists, self._lines.arrays, lines, done)
            if done[0] < len(lines):
                self._lists = grow_blocks(self._lists, 0, 1 + 2 * int(self._lists.of["count"].max()))
        self._lists = tighten_blocks(self._lists, self._predicates.used)

    def _leave_lines(self, lines: Numbers) -> None:
        removed = np.zeros(self._lines.used, np.bool_)
        removed[lines] = True
        _, predicates = predicates_of(self._lines.arrays, self._predicates.arrays, lines, False)
        filter_blocks(self._lists, np.unique(predicates), removed)

    def _match(self, events: CodedEvents) -> Index:
        index = self._predicates.index()
        packed, counts = count_matches(
            self._predicates.arrays, index, self._lists, self._lines.arrays, events, self._lines.used
        )
        self._events += len(events.start) - 1
        self._counted += counts
        return packed

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "counts_per_event": self._counted / max(1, self._events)}

    def _check(self) -> None:
        super()._check()
        lists = self._lists
        found: dict[int, list[int]] = {line: [] for line in self._lines.alive().tolist()}
        for q in range(self._predicates.used):
            at = int(lists.of["at"][q])
            for line in lists.pool[at : at + int(lists.of["count"][q])].tolist():
                found[line].append(q)
        for line, predicates in found.items():
            assert predicates == sorted(self._lines.predicates(line)), "a line is in the lists of its own"
        assert np.all(lists.of["count"] <= lists.of["capacity"])


def new_blocks() -> Blocks:
    return Blocks(np.empty(0, np.int32), np.zeros(0, BLOCK), np.zeros(2, np.int64))


def grow_blocks(blocks: Blocks, count: int, pool: int = 0) -> Blocks:
    """With capacity for `count` blocks, new ones of width 1, and `pool` more numbers."""
    known, of = len(blocks.of), grow_array(blocks.of, count)
    of["width"][known:] = 1
    return Blocks(grow_array(blocks.pool, int(blocks.end[POOL_USED]) + pool), of, blocks.end)


def tighten_blocks(blocks: Blocks, used: int) -> Blocks:
    """Without gaps, if there are many."""
    used_pool, gaps = int(blocks.end[POOL_USED]), int(blocks.end[POOL_GAPS])
    if 3 * gaps <= used_pool or used_pool < 1024:
        return blocks
    return blocks._replace(pool=repack(blocks, used))
