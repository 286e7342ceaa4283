"""Dimensions of an index's filters, and a batch of events spread out over them.

A batch is grouped by attribute once (`grouped`); every segment, and the front, then spreads it over its own
dimensions: texts by their codes among its own texts, patterns by whether they match.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.ranking import group_entries, spread_entries
from tocsin.model.columns import Index
from tocsin.predicate.conjunctions import PatternDimensions, has_patterns
from tocsin.predicate.events import Events, text_codes
from tocsin.predicate.flat import CodeSpace

__all__ = ["Asked", "Dimensions", "Grouped", "Spread", "grouped", "told_always"]

_NONE = np.empty(0, np.int32)


class Grouped(NamedTuple):
    """Entries of some events of a batch, by attribute; all segments read the same."""

    first: int  # event
    last: int  # the one after them
    entries: Any  # attributes and where each begins; event, space and code of the entries
    memo: dict[int, Any]  # what several of them have worked out alike


class Asked(NamedTuple):
    """What a segment knows of a whole batch: codes of its texts, and patterns that match."""

    texts: tuple[Index, Index]  # forwards and backwards
    matched: tuple[NDArray[np.int32], NDArray[np.int32]]  # dimension and event, by dimension


class Spread(NamedTuple):
    """Events by dimension: event and code of the entries of each run."""

    runs: tuple[NDArray[np.int32], Index]  # the dimension of each, and where it begins
    event: NDArray[np.int32]
    code: Index
    above: NDArray[np.uint8]  # 1 if the value lies just above its code


def grouped(events: Events, numbers: Index, attributes: int, first: int, last: int) -> Grouped:
    """Events first..last-1 by attribute; `numbers` are the index's numbers of their names."""
    entries = (events.start, events.name, events.space, events.code)
    return Grouped(first, last, group_entries(entries, first, last, numbers, attributes), {})


def told_always(
    every: NDArray[np.int32], some: Grouped, owner: NDArray[np.int32], number: int
) -> list[Index]:
    """Packed matches of slots that match whatever comes, if they belong to `number` (or nobody is dead)."""
    if not len(every):
        return []
    alive = every if not len(owner) else every[owner[every] == number]
    rows = np.arange(some.first, some.last, dtype=np.int64)
    return [((alive.astype(np.int64) << 32)[:, None] | rows[None, :]).ravel()]


class Dimensions:
    """What has dimensions: by key, ascending (`predicate/conjunctions.py`)."""

    key: Index
    texts: Any
    backwards: Any
    patterns: tuple[tuple[str, str], ...]  # all that the index knew; dimensions name them by number

    def ask(self, events: Events, numbers: Index, *, patterns: bool = True) -> Asked:
        """What is to be known of a whole batch; without `patterns`, no pattern is asked.

        `numbers` are the index's numbers of the events' names.
        """
        texts = text_codes(self.texts, events.texts)
        backwards = np.empty(0, np.int64)
        if self._has_backwards:
            backwards = text_codes(self.backwards, events.backwards)
        matched = self._matched(events, numbers) if patterns else (_NONE, _NONE)
        return Asked((texts, backwards), matched)

    def spread(self, asked: Asked, some: Grouped) -> Spread:
        """Some events in these dimensions."""
        dim, event = asked.matched
        if len(dim):
            mine = (event >= some.first) & (event < some.last)
            dim, event = dim[mine], event[mine] - np.int32(some.first)
        most = 3 * len(some.entries[2]) + len(dim)
        out = np.empty(most, np.int32), np.empty(most, np.int64), np.empty(most, np.uint8)
        run, start, n = spread_entries(some.entries, self._dims, asked.texts, (dim, event), out)
        return Spread((run, start), out[0][:n], out[1][:n], out[2][:n])

    @cached_property
    def _dims(self) -> tuple[Index, NDArray[np.uint8]]:
        """Where the dimensions of each attribute begin, and the space of each; patterns stand behind."""
        plain = self.key[self.key < (1 << 40)]
        counts = np.bincount(plain >> 8)
        return np.concatenate([[0], np.cumsum(counts)]), (self.key & 255).astype(np.uint8)

    @cached_property
    def _has_backwards(self) -> bool:
        """Dimensions may stay when the last filter that used them, and its texts, are gone."""
        return bool(np.any(self._dims[1] == CodeSpace.REVERSED))

    @cached_property
    def _own_patterns(self) -> PatternDimensions:
        return PatternDimensions(self.key, self.patterns)

    def _matched(self, events: Events, numbers: Index) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The dimensions of patterns that match, and the events that have them, by dimension."""
        if not has_patterns(self.key):
            return _NONE, _NONE
        entry, dim = self._own_patterns.matched(events, numbers)
        event = np.searchsorted(events.start, entry, "right") - 1
        order = np.argsort(dim, kind="stable")
        return dim[order].astype(np.int32), event[order].astype(np.int32)
