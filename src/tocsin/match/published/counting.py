"""Matching by counting: how many of its predicates does the event satisfy?

    price <= 580   -> 0 1 2        an event that satisfies the first and the last counts
    color = 'red'  -> 0            0: 1    1: 2    2: 1
    size >= 9      -> 1            and 1 has two predicates: it matches

Candidates are all conjunctions with some satisfied predicate; verification is the count. Every distinct
predicate has the list of its conjunctions. Counters go back as cheaply as they came: by walking the same
lists again, or all at once where most have moved.

Cost of an event: the satisfied predicates and the lengths of their lists. Adding a conjunction costs O(its
predicates); removing one, the lengths of its predicates' lists.

>>> from tocsin.match.coding import CodedEvents, Conjunctions
>>> index = Counting()
>>> tests = ([0, 0, 1], [5, 1, 2], [5, 9, 2], [0, 0, 0])  # dimension, low, high, flags
>>> index._insert(Conjunctions(*map(np.array, ([7, 8], [0, 1, 3], *tests))))
>>> event = CodedEvents(*map(np.array, ([0, 2], [0, 1], [5, 3], [False, False])), 2)
>>> (index._match(event) >> 32).tolist()  # x = 5 holds; x BETWEEN 1 AND 9 AND y = 2 is one short
[7]

F01, section 5 (related work), with phase 1 of section 2. An interval counts as two predicates, since the
paper has no intervals; conjunctions that name a predicate twice count it once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tocsin.match.coding import CodedEvents
from tocsin.match.published._kernels.blocks import filter_blocks
from tocsin.match.published._kernels.counting import associate, count_matches
from tocsin.match.published._kernels.lines import predicates_of
from tocsin.match.published.phases import TwoPhase, new_blocks, roomier_blocks, tight_blocks
from tocsin.match.published.predicates import Numbers
from tocsin.model.columns import Index

__all__ = ["Counting"]


class Counting(TwoPhase):
    """Counts satisfied predicates per conjunction."""

    def _clear(self) -> None:
        super()._clear()
        self._lists = new_blocks()  # by predicate: its lines
        self._seen = self._counted = 0

    def _enter_lines(self, lines: Numbers, predicates: Numbers) -> None:
        self._lists = roomier_blocks(self._lists, len(self._predicates.arrays.group))
        done = np.zeros(2, np.int64)
        while done[0] < len(lines):
            associate(self._lists, self._lines.arrays, lines, done)
            if done[0] < len(lines):
                self._lists = roomier_blocks(self._lists, 0, 1 + 2 * int(self._lists.of["count"].max()))
        self._lists = tight_blocks(self._lists, self._predicates.used)

    def _leave_lines(self, lines: Numbers) -> None:
        gone = np.zeros(self._lines.used, np.bool_)
        gone[lines] = True
        _, predicates = predicates_of(self._lines.arrays, self._predicates.arrays, lines, False)
        filter_blocks(self._lists, np.unique(predicates), gone)

    def _match(self, events: CodedEvents) -> Index:
        index = self._predicates.index()
        packed, counts = count_matches(
            self._predicates.arrays, index, self._lists, self._lines.arrays, events, self._lines.used
        )
        self._seen += len(events.start) - 1
        self._counted += counts
        return packed

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "counts_per_event": self._counted / max(1, self._seen)}

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
        assert np.all(lists.of["count"] <= lists.of["room"])
