"""Phase 1 of F01: every distinct predicate is stored once and evaluated once per event.

Tests become predicates `attribute operator operand`, the paper's own kind:

    low = high            EQUAL      found by hash
    LEAST .. high         AT_MOST    found in the sorted list of its dimension
    low .. GREATEST       AT_LEAST   likewise
    low .. high           AT_LEAST and AT_MOST: two predicates
    LEAST .. GREATEST     PRESENT    true for any value of its dimension
    NEGATED               OUTSIDE    asked one by one where the dimension is there
    ABSENT                ABSENTS    asked one by one

Adding a predicate costs O(1); the sorted lists are merged, in O(predicates), when events come. A
predicate that no conjunction uses any more stays until there are many, and its number is used again then.

>>> from tocsin.match.coding import Conjunctions
>>> between = Conjunctions(*map(np.array, ([7], [0, 1], [0], [3], [5], [0])))
>>> tests = as_predicates(between)
>>> tests.slot.tolist(), tests.start.tolist(), tests.low.tolist(), tests.high.tolist()
([7], [0, 2], [3, -9223372036854775808], [9223372036854775807, 5])

F01, sections 2.1 and 2.4. The paper has trees where this has sorted arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.match.coding import Conjunctions
from tocsin.match.published._kernels.predicates import (
    ABSENTS,
    AT_LEAST,
    AT_MOST,
    EQUAL,
    OUTSIDE,
    PRESENT,
    PredicateArrays,
    SortedArrays,
    find,
    in_order,
    look_up,
    number,
    refill,
    renumber,
    splice,
)
from tocsin.model.columns import Index
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.flat import ABSENT, NEGATED

__all__ = ["Numbers", "PredicateTests", "Predicates", "as_predicates", "roomier"]

Numbers = NDArray[np.int32]


class PredicateTests(NamedTuple):
    """Conjunctions of predicates; those that no event can satisfy are left out."""

    slot: Numbers
    start: Index
    group: Index
    low: Index
    high: Index


def as_predicates(added: Conjunctions) -> PredicateTests:
    """Tests as predicates; see above."""
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


def roomier(array: Any, room: int, fill: int = 0) -> Any:
    """The array with room for at least so many, twice as many as before if it must grow."""
    if room <= len(array):
        return array
    wider = np.full((max(room, 2 * len(array)), *array.shape[1:]), fill, array.dtype)
    wider[: len(array)] = array
    return wider


class Predicates:
    """Distinct predicates under numbers that stay as long as they are used."""

    def __init__(self) -> None:
        wide, narrow = np.empty(0, np.int64), np.empty(0, np.int32)
        self.arrays = PredicateArrays(wide, wide, wide, narrow, np.full(16, -1, np.int32))
        self.used = 0  # numbers ever given, the free ones among them
        self._free = narrow
        self._sorted = SortedArrays(np.zeros(1, np.int64), wide, narrow, narrow)
        self._fresh: list[Numbers] = []  # not in the sorted lists yet
        self._unused = False  # may some be without use?

    def __len__(self) -> int:
        return int(np.count_nonzero(self.arrays.uses[: self.used]))

    def number(self, tests: PredicateTests) -> tuple[Numbers, Numbers]:
        """The number of every test's predicate, and which numbers are new."""
        made = np.empty(len(tests.group), np.int32)
        counts = np.array([0, self.used, len(self._free), 0])
        while True:
            number(self.arrays, tests[2:], counts, self._free, made)
            if counts[0] == len(made):
                break
            self._grow(int(counts[1]))
        self.used = int(counts[1])
        self._free = self._free[: counts[2]]
        fresh = np.sort(made[: counts[3]])
        renumber(self.arrays, fresh, in_order(self.arrays.group[fresh], self._operand(fresh)))
        self._fresh.append(fresh)
        return look_up(self.arrays, tests[2:]), fresh

    def _operand(self, predicates: Numbers) -> Index:
        at_most = (self.arrays.group[predicates] & 7) == AT_MOST
        return np.where(at_most, self.arrays.high[predicates], self.arrays.low[predicates])

    def released(self) -> None:
        """Some may be without use now."""
        self._unused = True

    def index(self) -> SortedArrays:
        """The sorted lists, with everything in them."""
        if not self._fresh:
            return self._sorted
        unused = self._unused and self.used - len(self._free) - len(self) > self.used // 4
        fresh = np.concatenate(self._fresh)
        kind = self.arrays.group[fresh] & 7
        listed = fresh[(kind != EQUAL) & (kind != ABSENTS)]
        kind = self.arrays.group[listed] & 7
        which = 3 * (self.arrays.group[listed] >> 3) + np.minimum(kind, 3) - 1
        operand = self._operand(listed)
        order = in_order(which, operand)
        lists = max(len(self._sorted.start) - 1, 3 * (int(self.arrays.group[fresh].max(initial=0)) // 8 + 1))
        first = np.concatenate([[0], np.cumsum(np.bincount(which, minlength=lists))]).astype(np.int64)
        start, operands, numbers = splice(
            self.arrays, self._sorted, first, operand[order], listed[order], unused
        )
        absent = [self._sorted.absent, fresh[(self.arrays.group[fresh] & 7) == ABSENTS]]
        self._sorted = SortedArrays(start, operands, numbers, np.concatenate(absent))
        self._fresh = []
        if unused:
            self._forget()
        return self._sorted

    def _forget(self) -> None:
        """Free the numbers of predicates without use."""
        absent = self._sorted.absent
        self._sorted = self._sorted._replace(absent=absent[self.arrays.uses[absent] > 0])
        self._free = np.flatnonzero(self.arrays.uses[: self.used] == 0).astype(np.int32)
        self.arrays.group[self._free] = -1
        refill(self.arrays, self.used)
        self._unused = False

    def _grow(self, used: int) -> None:
        arrays = self.arrays
        if used == len(arrays.group):
            group, low, high, uses = (roomier(column, max(64, used + 1)) for column in arrays[:4])
            arrays = PredicateArrays(group, low, high, uses, arrays.hashed)
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
        assert len(np.unique(listed)) == len(listed), "a predicate is listed once"
        inequalities = (arrays.uses[:used] > 0) & ((arrays.group[:used] & 7) != EQUAL)
        assert set(np.flatnonzero(inequalities).tolist()) <= set(listed.tolist())
        for g, (a, b) in enumerate(zip(lists.start[:-1], lists.start[1:], strict=True)):
            assert np.all(lists.operand[a:b][:-1] <= lists.operand[a:b][1:])
            assert np.all(arrays.group[lists.predicate[a:b]] >> 3 == g // 3)
