"""Filters by slot, asked about single rows: does this filter hold for that row?

An index finds what matches among all; here somebody else has found candidates, and wants them *verified*.
Filters lie flat in portions, by slot; rows are coded once, each with its dimensions in order. Many small
portions are put together as they come, so that there are never more than about log2(n).

Cost: O(tests of the filter x log of the row's attributes) per pair.

>>> from tocsin.language.algebra import Column, Compare
>>> from tocsin.language.rewrite import normalise
>>> from tocsin.model.columns import Vector
>>> from tocsin.model.schema import Type
>>> from tocsin.predicate.compile import flatten
>>> cheap = normalise(Compare(Column("price", Type.BIGINT), "<", 5))
>>> pairs = PairFilters()
>>> pairs.add(np.array([7]), flatten([cheap]))
>>> pairs.hold(Rows.of(price=Vector.of(Type.BIGINT, [3, 9])), np.array([7, 7]), np.array([0, 1])).tolist()
[True, False]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index, Mask, Rows, longer
from tocsin.predicate._kernels.entries import code_entries, pairs_hold
from tocsin.predicate.conjunctions import KeyPatterns, Names, Portion, has_patterns, joined
from tocsin.predicate.events import Events, events_of
from tocsin.predicate.flat import FlatFilters, Space, text_codes

__all__ = ["PairFilters"]


class PairFilters:
    """Filters by slot; a slot that was never added holds for every row."""

    def __init__(self) -> None:
        self._names = Names()
        self._parts: list[_Part] = []
        self._owner: NDArray[np.int32] = np.zeros(0, np.int32)  # by slot: number of its part; 0 is none
        self._next = 1

    def add(self, slots: Index, filters: FlatFilters) -> None:
        """Take filters in; a slot that is there already gets the new one."""
        slots = np.asarray(slots, np.int64)
        if not len(slots):
            return
        most = int(slots.max()) + 1
        if most > len(self._owner):
            self._owner = longer(self._owner, max(64, most, 2 * len(self._owner)))
        self._hold(self._names.portion(slots, filters), slots)
        while len(self._parts) > 1 and len(self._parts[-2].slots) < 2 * len(self._parts[-1].slots):
            self._merge()

    def remove(self, slots: Index) -> None:
        """Let filters go; slots without one are passed over."""
        slots = slots[slots < len(self._owner)]
        self._owner[slots] = 0

    def __contains__(self, slot: int) -> bool:
        return slot < len(self._owner) and bool(self._owner[slot])

    def hold(self, rows: Rows, slot: Index, row: Index) -> Mask:
        """Pair by pair, whether the filter of the slot holds for the row."""
        out = np.ones(len(slot), np.bool_)
        owner = np.zeros(len(slot), np.int32)
        known = slot < len(self._owner)
        owner[known] = self._owner[slot[known]]
        if not owner.any():
            return out
        asked = np.zeros(len(rows), np.bool_)
        asked[row[owner > 0]] = True
        place = np.cumsum(asked) - 1
        events = events_of(rows.take(np.flatnonzero(asked)))
        for part in self._parts:
            mine = np.flatnonzero(owner == part.number)
            if len(mine):
                out[mine] = part.hold(slot[mine], place[row[mine]], events)
        return out

    def _hold(self, portion: Portion, slots: Index) -> None:
        order = np.argsort(portion.slot, kind="stable")
        self._parts.append(_Part(portion.by_key().take(order), np.sort(slots), self._next, self._names))
        self._owner[slots] = self._next
        self._next += 1

    def _merge(self) -> None:
        """The last two parts as one, without what was removed."""
        two = self._parts[-2:]
        del self._parts[-2:]
        living = [
            part.portion.take(np.flatnonzero(self._owner[part.portion.slot] == part.number)) for part in two
        ]
        slots = [part.slots[self._owner[part.slots] == part.number] for part in two]
        if len(slots[0]) + len(slots[1]):
            self._hold(joined(living), np.concatenate(slots))

    def _check(self) -> None:
        assert len(self._parts) <= 2 + len(self._owner).bit_length()
        for part in self._parts:
            assert np.all(np.diff(part.portion.slot) >= 0) and np.all(np.diff(part.slots) > 0)
        assert set(np.unique(self._owner).tolist()) <= {0, *(part.number for part in self._parts)}


@dataclass(eq=False)
class _Part:
    """Filters that came together or were put together; conjunctions by slot."""

    portion: Portion
    slots: Index  # all that are here, those that can never hold too; ascending
    number: int
    names: Names

    def hold(self, slot: Index, row: Index, events: Events) -> Mask:
        p = self.portion
        tests = p.start, p.dim, p.low, p.high, p.flags
        out = np.empty(len(slot), np.bool_)
        pairs_hold(np.searchsorted(self.slots, slot), self._first, tests, self._coded(events), row, out)
        return out

    @cached_property
    def _first(self) -> Index:
        """Where the conjunctions of each slot begin."""
        ends = np.searchsorted(self.portion.slot, self.slots)
        return np.concatenate([ends, [len(self.portion.slot)]])

    def _coded(self, events: Events) -> Any:
        """Rows in the part's dimensions: where each begins; dimension, ascending, code, or just above it."""
        numbers, key = self.names.attributes.find(events.names), self.portion.key
        local = np.full(len(self.names.attributes), -1)
        local[numbers[numbers >= 0]] = np.flatnonzero(numbers >= 0)
        table = np.full((max(1, len(numbers)), 10), -1, np.int32)
        plain = np.flatnonzero(key < (1 << 40))
        at = local[key[plain] >> 8]
        table[at[at >= 0], (key[plain] & 255)[at >= 0]] = plain[at >= 0]
        texts = text_codes(self.portion.texts, events.texts)
        backwards = np.empty(0, np.int64)
        if len(self.portion.backwards):
            backwards = text_codes(self.portion.backwards, events.backwards)
        table[:, Space.BETWEEN] = table[:, Space.DOUBLE]
        counts, extra = self._matched(events, numbers)
        entries = (events.start, events.name, events.space, events.code)
        return code_entries(entries, table, texts, backwards, counts, extra)

    @cached_property
    def _own_patterns(self) -> KeyPatterns:
        return KeyPatterns(self.portion.key, list(self.names.patterns))

    def _matched(self, events: Events, numbers: Index) -> tuple[Index, NDArray[np.int32]]:
        """For each entry how many of its patterns match, and their dimensions one after the other."""
        counts = np.zeros(len(events.name), np.int64)
        if not has_patterns(self.portion.key):
            return counts, np.empty(0, np.int32)
        entry, dim = self._own_patterns.matched(events, numbers)
        counts += np.bincount(entry, minlength=len(counts))
        return counts, dim.astype(np.int32)
