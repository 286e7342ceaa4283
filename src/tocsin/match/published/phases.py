"""What the two-phase algorithms of F01 share: distinct predicates, and conjunctions as lists of them.

    phase 1   which predicates does the event satisfy?      (`predicates.py`: bits)
    phase 2   which conjunctions have all theirs satisfied?  (a subclass)

A conjunction is stored on a *line*: its slot and the numbers of its predicates. A line that is let go is
used again by the next conjunction of its size, so that under constant change nothing has to be rebuilt.

Tests may be =, <, <=, >, >=, BETWEEN, their negations, IS NULL and IS NOT NULL. Clauses of alternatives
(IN, CNF) are no predicates of the paper and are refused.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from tocsin.match.coded import CodedIndex, plain_filters
from tocsin.match.coding import Conjunctions
from tocsin.match.published._kernels.blocks import BLOCK, Blocks, repack
from tocsin.match.published._kernels.lines import LineArrays, add_lines, drop_lines, lines_of
from tocsin.match.published.predicates import Numbers, Predicates, PredicateTests, as_predicates, roomier
from tocsin.model.columns import Index, Mask
from tocsin.predicate.flat import ABSENT, NEGATED, FlatFilters

__all__ = ["Lines", "TwoPhase", "new_blocks", "roomier_blocks", "tight_blocks"]

_LONGEST = 2**15  # tests of a conjunction


class Lines:
    """Conjunctions as lists of predicates."""

    def __init__(self) -> None:
        narrow = np.empty(0, np.int32)
        self.arrays = LineArrays(
            narrow, narrow, np.empty(0, np.int64), np.empty(0, np.uint16), narrow, narrow, narrow
        )
        self.used = 0
        self._end = 0

    def add(self, predicates: Predicates, tests: PredicateTests, numbers: Numbers) -> Numbers:
        """Conjunctions of numbered predicates; a predicate that a conjunction names twice counts once."""
        longest = int(np.diff(tests.start).max(initial=0))
        self.arrays = self.arrays._replace(
            head=roomier(self.arrays.head, int(tests.slot.max(initial=-1)) + 1, -1),
            spare=roomier(self.arrays.spare, longest + 1, -1),
        )
        out = np.empty(len(tests.slot), np.int32)
        counts = np.array([0, self.used, self._end])
        while True:
            add_lines(self.arrays, predicates.arrays, tests[:2], numbers, counts, out)
            if counts[0] == len(out):
                break
            self._grow(int(counts[1]), int(counts[2]) + longest)
        self.used, self._end = int(counts[1]), int(counts[2])
        return out

    def of(self, slots: Index) -> Numbers:
        return lines_of(self.arrays, slots)

    def drop(self, predicates: Predicates, lines: Numbers) -> None:
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
            slot, following, at, size = (roomier(column, max(64, used + 1)) for column in arrays[:4])
            arrays = arrays._replace(slot=slot, next=following, at=at, size=size)
        self.arrays = arrays._replace(pool=roomier(arrays.pool, end))


class TwoPhase(CodedIndex):
    """Phase 1 and the lines; a subclass finds lines by their predicates."""

    refuses = "IN, no alternatives that stay clauses, and no conjunction of 32,768 tests or more"

    def __init__(self) -> None:
        super().__init__()
        self._clear()

    @abstractmethod
    def _enter_lines(self, lines: Numbers, predicates: Numbers) -> None:
        """Make new lines found; `predicates` are those of them that nobody had before."""

    @abstractmethod
    def _leave_lines(self, lines: Numbers) -> None:
        """Let lines be found no more; they are still as they were."""

    def _clear(self) -> None:
        self._predicates = Predicates()
        self._lines = Lines()

    def _insert(self, added: Conjunctions) -> None:
        tests = as_predicates(added)
        numbers, fresh = self._predicates.number(tests)
        self._enter_lines(self._lines.add(self._predicates, tests, numbers), fresh)

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
            assert own and len(set(own)) == len(own), "predicates of a conjunction are distinct"
            uses[own] += 1
        assert np.array_equal(uses, self._predicates.arrays.uses)
        slots = arrays.slot[alive]
        assert set(slots.tolist()) <= self._used - self._always
        assert sorted(self._lines.of(np.unique(slots).astype(np.int64)).tolist()) == alive.tolist()


def new_blocks() -> Blocks:
    return Blocks(np.empty(0, np.int32), np.zeros(0, BLOCK), np.zeros(2, np.int64))


def roomier_blocks(blocks: Blocks, count: int, pool: int = 0) -> Blocks:
    """With room for so many blocks, new ones of width 1, and so much more in the pool."""
    known, of = len(blocks.of), roomier(blocks.of, count)
    of["width"][known:] = 1
    return Blocks(roomier(blocks.pool, int(blocks.end[0]) + pool), of, blocks.end)


def tight_blocks(blocks: Blocks, used: int) -> Blocks:
    """Without gaps, if there are many."""
    if 3 * int(blocks.end[1]) <= int(blocks.end[0]) or int(blocks.end[0]) < 1024:
        return blocks
    return blocks._replace(pool=repack(blocks, used))
