"""Candidates for single rows: ranges to find them by, and verification pair by pair.

Joins and rankings look candidates up by one range of one attribute per filter (`selections`). Where that
range does not express the whole filter, `PairVerifier` answers for each pair: does this filter hold for
that row? This is the one place where conjunctions are checked on rows with sorted entries; matching indexes
have one place for each of their memory layouts (`match/_kernels/verify.py`, `match/_kernels/scan.py`).

Verification costs O(tests of the filter x log of the row's attributes) per pair.

>>> from tocsin.language.algebra import Column, Compare
>>> from tocsin.language.rewrite import normalise
>>> from tocsin.model.columns import Vector
>>> from tocsin.model.schema import Type
>>> from tocsin.predicate.compile import flatten
>>> filters = flatten([normalise(Compare(Column("price", Type.BIGINT), "<", 5))])
>>> verifier = PairVerifier()
>>> verifier.add(np.array([7]), filters)
>>> rows = Rows.of(price=Vector.of(Type.BIGINT, [3, 9]))
>>> verifier.verify(rows, np.array([7, 7]), np.array([0, 1])).tolist()
[True, False]
>>> found = selections(filters)
>>> found.names, found.attribute.tolist(), found.high.tolist(), found.exact.tolist()
(['price'], [0], [4], [True])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model.columns import Index, Mask, Rows, longer
from tocsin.predicate._kernels import (
    TEXT_WORTH,
    CodedEntries,
    DimensionScores,
    FilterTests,
    RangeChoice,
    choose_ranges,
    code_entries,
    verify_pairs,
)
from tocsin.predicate.codes import GREATEST, LEAST, text_hashes
from tocsin.predicate.conjunctions import (
    Conjunctions,
    Names,
    PatternDimensions,
    has_patterns,
    merge_conjunctions,
)
from tocsin.predicate.events import Events, events_of, text_codes, with_times
from tocsin.predicate.flat import CodeSpace, FlatFilters

__all__ = ["PairVerifier", "Selections", "selections"]


class PairVerifier:
    """Filters by slot; a slot without a filter holds for every row.

    Filters lie in runs of conjunctions sorted by slot. Adding merges small runs, so that there are at most
    about log2(n).
    """

    def __init__(self) -> None:
        self._names = Names()
        self._runs: list[_VerifierRun] = []
        self._owner: NDArray[np.int32] = np.zeros(0, np.int32)  # by slot: number of its run; 0: none
        self._next = 1

    def add(self, slots: Index, filters: FlatFilters) -> None:
        """Adds or replaces the filters of these slots."""
        slots = np.asarray(slots, np.int64)
        if not len(slots):
            return
        most = int(slots.max()) + 1
        if most > len(self._owner):
            self._owner = longer(self._owner, max(64, most, 2 * len(self._owner)))
        self._names.drop_unused(run.conjunctions.key for run in self._runs)
        self._append(self._names.conjunctions(slots, filters), slots)
        while len(self._runs) > 1 and len(self._runs[-2].slots) < 2 * len(self._runs[-1].slots):
            self._merge()

    def remove(self, slots: Index) -> None:
        """Removes the filters of these slots, if they have one."""
        slots = slots[slots < len(self._owner)]
        self._owner[slots] = 0

    def __contains__(self, slot: int) -> bool:
        return slot < len(self._owner) and bool(self._owner[slot])

    def verify(self, rows: Rows, slot: Index, row: Index) -> Mask:
        """Pair by pair, whether the filter of the slot holds for the row."""
        out = np.ones(len(slot), np.bool_)
        owner = np.zeros(len(slot), np.int32)
        known = slot < len(self._owner)
        owner[known] = self._owner[slot[known]]
        if not owner.any():
            return out
        needed = np.zeros(len(rows), np.bool_)
        needed[row[owner > 0]] = True
        position = np.cumsum(needed) - 1
        events = events_of(rows.take(np.flatnonzero(needed)))
        if rows.sparse and self._names.timed:
            number = self._names.attributes.find(events.names)
            events = with_times(events, np.isin(number, np.array(sorted(self._names.timed), np.int64)))
        for run in self._runs:
            mine = np.flatnonzero(owner == run.number)
            if len(mine):
                out[mine] = run.verify(slot[mine], position[row[mine]], events)
        return out

    def _append(self, added: Conjunctions, slots: Index) -> None:
        order = np.argsort(added.slot, kind="stable")
        run = _VerifierRun(added.by_key().take(order), np.sort(slots), self._next, self._names)
        self._runs.append(run)
        self._owner[slots] = self._next
        self._next += 1

    def _merge(self) -> None:
        """Merges the last two runs, without removed filters."""
        two = self._runs[-2:]
        del self._runs[-2:]
        kept = [
            run.conjunctions.take(np.flatnonzero(self._owner[run.conjunctions.slot] == run.number))
            for run in two
        ]
        slots = [run.slots[self._owner[run.slots] == run.number] for run in two]
        if len(slots[0]) + len(slots[1]):
            self._append(merge_conjunctions(kept), np.concatenate(slots))

    def _check(self) -> None:
        assert len(self._runs) <= 2 + len(self._owner).bit_length()
        for run in self._runs:
            assert np.all(np.diff(run.conjunctions.slot) >= 0) and np.all(np.diff(run.slots) > 0)
        assert set(np.unique(self._owner).tolist()) <= {0, *(run.number for run in self._runs)}


@dataclass(eq=False)
class _VerifierRun:
    """Filters that were added or merged together; conjunctions sorted by slot."""

    conjunctions: Conjunctions
    slots: Index  # ascending; also slots without conjunctions, which never hold
    number: int
    names: Names

    def verify(self, slot: Index, row: Index, events: Events) -> Mask:
        c = self.conjunctions
        tests = FilterTests(c.start, c.dim, c.low, c.high, c.flags)
        out = np.empty(len(slot), np.bool_)
        verify_pairs(np.searchsorted(self.slots, slot), self._first, tests, self._coded(events), row, out)
        return out

    @cached_property
    def _first(self) -> Index:
        """By slot, and one more: its first conjunction."""
        ends = np.searchsorted(self.conjunctions.slot, self.slots)
        return np.concatenate([ends, [len(self.conjunctions.slot)]])

    def _coded(self, events: Events) -> CodedEntries:
        """Rows in the dimensions of this run."""
        numbers, key = self.names.attributes.find(events.names), self.conjunctions.key
        local = np.full(len(self.names.attributes), -1)
        local[numbers[numbers >= 0]] = np.flatnonzero(numbers >= 0)
        table = np.full((max(1, len(numbers)), len(CodeSpace)), -1, np.int32)
        plain = np.flatnonzero(key < (1 << 40))
        at = local[key[plain] >> 8]
        table[at[at >= 0], (key[plain] & 255)[at >= 0]] = plain[at >= 0]
        texts = text_codes(self.conjunctions.texts, events.texts)
        backwards = np.empty(0, np.int64)
        if len(self.conjunctions.backwards):
            backwards = text_codes(self.conjunctions.backwards, events.backwards)
        table[:, CodeSpace.BETWEEN] = table[:, CodeSpace.DOUBLE]
        table[:, CodeSpace.TEXT_TIME] = table[:, CodeSpace.TIMESTAMP]
        counts, extra = self._matched(events, numbers)
        entries = (events.start, events.name, events.space, events.code)
        coded: CodedEntries = code_entries(entries, table, texts, backwards, counts, extra)
        return coded

    @cached_property
    def _own_patterns(self) -> PatternDimensions:
        return PatternDimensions(self.conjunctions.key, list(self.names.patterns))

    def _matched(self, events: Events, numbers: Index) -> tuple[Index, NDArray[np.int32]]:
        """By entry: how many of its patterns match; and the dimensions of all these, concatenated."""
        counts = np.zeros(len(events.name), np.int64)
        if not has_patterns(self.conjunctions.key):
            return counts, np.empty(0, np.int32)
        entry, dim = self._own_patterns.matched(events, numbers)
        counts += np.bincount(entry, minlength=len(counts))
        return counts, dim.astype(np.int32)


# -- one range for each filter ----------------------------------------------------------------------------

ENOUGH_TESTS = 32  # of an attribute, to estimate the share that a value passes
SAMPLED_VALUES = 64  # for that estimate
_WORTH = np.zeros(10, np.int64)  # by code space; 0: no range of it is used
_WORTH[[CodeSpace.BIGINT, CodeSpace.DOUBLE, CodeSpace.DATE, CodeSpace.TIMESTAMP]] = 2
_WORTH[CodeSpace.BOOLEAN] = 1
_WORTH[CodeSpace.TEXT] = TEXT_WORTH


class Selections(NamedTuple):
    """By filter: an attribute and the range of its codes that the filter selects."""

    names: Sequence[str]
    attribute: Index  # among the names; -1: none, any row is a candidate
    low: Index
    high: Index
    exact: Mask  # the range expresses the whole filter: its rows need no verification
    never: Mask  # the filter holds for no row


def selections(filters: FlatFilters, *, by_share: bool = False) -> Selections:
    """One range of one attribute for each filter.

    A filter *constrains* an attribute if each of its conjunctions has a plain test of it; the range is the
    hull over the conjunctions. Of the constrained attributes one is chosen: a single value is better than a
    range, two ends better than one, and a boolean is the last resort. With `by_share`, where many filters
    test an attribute, the share of these tests that a value passes decides instead: a test that all filters
    share does not distinguish them, even if it is a single value. Texts become hashes.

        per BETWEEN 45 AND 70                          per 45..70, exact
        per > 45 AND sector = 'tech'                   sector = hash of tech, to be verified
        the same, of a thousand with their own `per`   per 45.., to be verified
        per BETWEEN 1 AND 2 OR per BETWEEN 8 AND 9     per 1..9, to be verified
        name LIKE '%x%'                                no range, to be verified
    """
    count = filters.count
    chosen, low, high = (np.empty(count, np.int64) for _ in range(3))
    exact, never = np.empty(count, np.bool_), np.empty(count, np.bool_)
    names = [filters.names[a] for a in filters.attribute.tolist()]
    rank = np.argsort(np.argsort(np.array(names, np.str_), kind="stable"), kind="stable").astype(np.int64)
    tests = FilterTests(filters.start, filters.dim, filters.low, filters.high, filters.flags)
    worth = _WORTH[filters.space]
    share = _shares(filters, worth) if by_share else np.full(len(worth), -1.0)
    scores, out = DimensionScores(worth, rank, share), RangeChoice(chosen, low, high, exact, never)
    choose_ranges(filters.owner, tests, scores, out)
    spaces = np.append(filters.space, 0)[chosen]  # the last one is for -1
    texts = np.flatnonzero(spaces == CodeSpace.TEXT)
    if len(texts):
        used, which = np.unique(low[texts] // 4, return_inverse=True)
        data = filters.texts.take(pa.array(used)).to_pylist()
        start = np.concatenate([[0], np.cumsum([len(text) for text in data])])
        low[texts] = high[texts] = text_hashes(start, np.frombuffer(b"".join(data), np.uint8))[which]
    known = {name: i for i, name in enumerate(dict.fromkeys(names))}
    number = np.array([*(known[name] for name in names), -1], np.int64)  # the last one is for -1
    return Selections(list(known), number[chosen], low, high, exact, never)


def _shares(filters: FlatFilters, worth: Index) -> NDArray[np.float64]:
    """By dimension: the share of its tests that a typical value passes; -1: unknown.

    Typical values are those inside the tests' own intervals. O(n log n) in the number of tests.
    """
    out = np.full(len(worth), -1.0)
    order = np.argsort(filters.dim, kind="stable")
    ends = np.searchsorted(filters.dim[order], np.arange(len(worth) + 1))
    for d in np.flatnonzero((worth > 0) & (np.diff(ends) >= ENOUGH_TESTS)).tolist():
        mine = order[ends[d] : ends[d + 1]]
        low, high = filters.low[mine], filters.high[mine]
        sample = np.linspace(0, len(mine) - 1, SAMPLED_VALUES).astype(np.int64)
        middle = (low[sample] >> 1) + (high[sample] >> 1) + (low[sample] & high[sample] & 1)
        value = np.where(
            low[sample] == LEAST, high[sample], np.where(high[sample] == GREATEST, low[sample], middle)
        )
        begun = np.searchsorted(np.sort(low), value, side="right")
        out[d] = (begun - np.searchsorted(np.sort(high), value, side="left")).mean() / len(mine)
    return out
