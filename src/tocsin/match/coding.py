"""One numbering of dimensions and texts for an index, and everything coded by it.

Filters come in batches, each with its own numbers; an index that keeps growing needs one
numbering for all. Numbers, dates and booleans have codes of their own. A text's code is its rank among
all texts that filters mention: when a batch brings new ones, ranks move, and what was coded
before must be coded again (`extend` says so).

>>> from tocsin.language.algebra import Column, Compare
>>> from tocsin.language.rewrite import normalise
>>> from tocsin.model.schema import Type
>>> from tocsin.model.columns import SparseRows
>>> from tocsin.predicate.compile import flatten
>>> from tocsin.predicate.events import events_of
>>> coding = Coding()
>>> coding.extend(flatten([normalise(Compare(Column("price"), "<", 5))]))
False
>>> events = coding.events(events_of(SparseRows.from_dicts([{"price": 3, "size": 1}, {"size": 2}])))
>>> events.start.tolist(), events.dim.tolist()
([0, 1, 1], [0])
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tocsin.model.columns import Index, sliced
from tocsin.predicate._kernels import code_entries
from tocsin.predicate.events import Events, text_codes
from tocsin.predicate.flat import CodeSpace, FlatFilters, recode_texts, sort_texts
from tocsin.predicate.patterns import Patterns

__all__ = ["CodedEvents", "Coding", "Conjunctions"]


_Table = tuple[NDArray[np.int32], dict[int, dict[int, int]]]  # dimensions by name and space, by pattern


class Conjunctions(NamedTuple):
    """Conjunctions under slots, in the numbering of one index. Flags as in `predicate/flat.py`."""

    slot: NDArray[np.int32]
    start: Index
    dim: NDArray[np.int32]  # by test
    low: Index
    high: Index
    flags: NDArray[np.uint8]

    def take(self, chosen: Index) -> Conjunctions:
        """Some of them, by number."""
        start, test = sliced(self.start[:-1][chosen], np.diff(self.start)[chosen])
        return Conjunctions(
            self.slot[chosen], start, self.dim[test], self.low[test], self.high[test], self.flags[test]
        )


class CodedEvents(NamedTuple):
    """Entries of events in the numbering of one index; those of no filter's dimension are left out.

    Within an event dimensions ascend, each at most once. Where `between` is set, the value lies just
    above its code and below the next.
    """

    start: Index
    dim: NDArray[np.int32]
    code: Index
    between: NDArray[np.bool_]
    dims: int  # how many dimensions there are

    def take(self, events: Index) -> CodedEvents:
        """Some of the events."""
        start, at = sliced(self.start[:-1][events], np.diff(self.start)[events])
        return CodedEvents(start, self.dim[at], self.code[at], self.between[at], self.dims)


class Coding:
    """Names, dimensions, texts and patterns of an index, numbered once and for all."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.dims: dict[tuple[int, int, int], int] = {}  # (name, space, pattern)
        self.patterns: dict[tuple[str, str], int] = {}
        self._texts = {
            space: pa.array([], pa.large_binary()) for space in (CodeSpace.TEXT, CodeSpace.REVERSED)
        }
        self._matcher: Patterns | None = None
        self._table: _Table | None = None

    def extend(self, filters: FlatFilters) -> bool:
        """Number what is new in a batch; says whether the codes of texts have moved."""
        for name in filters.names:
            self.names.setdefault(name, len(self.names))
        known = len(self.patterns)
        for pattern in filters.patterns:
            self.patterns.setdefault(pattern, len(self.patterns))
        if len(self.patterns) > known:
            self._matcher = None
        for dim in self._dims_of(filters):
            self.dims.setdefault(dim, len(self.dims))
        self._table = None
        moved = False
        for space, texts in ((CodeSpace.TEXT, filters.texts), (CodeSpace.REVERSED, filters.backwards)):
            before = self._texts[space]
            if len(texts) and not pc.all(pc.is_in(texts, value_set=before)).as_py():
                self._texts[space], _ = sort_texts(pa.concat_arrays([before, texts]))
                moved = moved or len(before) > 0
        return moved

    def conjunctions(self, slots: Index, filters: FlatFilters) -> Conjunctions:
        """A batch that `extend` has seen, in the index's numbers."""
        number = np.array([self.dims[dim] for dim in self._dims_of(filters)], np.int32)
        low, high = filters.low, filters.high
        space = filters.space[filters.dim] if len(filters.dim) else np.empty(0, np.uint8)
        for which, texts in ((CodeSpace.TEXT, filters.texts), (CodeSpace.REVERSED, filters.backwards)):
            if len(texts):
                mine = space == which
                rank = text_codes(self._texts[which], texts) >> 2
                low, high = low.copy(), high.copy()
                low[mine], high[mine] = recode_texts(low[mine], rank), recode_texts(high[mine], rank)
        dim = number[filters.dim] if len(filters.dim) else np.empty(0, np.int32)
        slot = np.asarray(slots, np.int32)[filters.owner]
        return Conjunctions(slot, filters.start, dim, low, high, filters.flags)

    def events(self, events: Events) -> CodedEvents:
        """Events in the index's numbers."""
        number = np.array([self.names.get(name, -1) for name in events.names], np.int64)
        table, patterned = self._table or self._tabulate()
        texts = text_codes(self._texts[CodeSpace.TEXT], events.texts)
        backwards = np.empty(0, np.int64)
        if np.any(table[:, CodeSpace.REVERSED] >= 0):
            backwards = text_codes(self._texts[CodeSpace.REVERSED], events.backwards)
        counts, extra = self._matched(events, number, patterned)
        start, dim, code, between = code_entries(
            (events.start, number[events.name] if len(number) else number, events.space, events.code),
            table,
            texts,
            backwards,
            counts,
            extra,
        )
        return CodedEvents(start, dim, code, between, len(self.dims))

    def _tabulate(self) -> _Table:
        table = np.full((len(self.names) + 1, 10), -1, np.int32)  # by name and space; last: unknown
        patterned: dict[int, dict[int, int]] = {}
        for (name, space, pattern), dim in self.dims.items():
            if space == CodeSpace.PATTERN:
                patterned.setdefault(name, {})[pattern] = dim
            else:
                table[name, space] = dim
        table[:, CodeSpace.BETWEEN] = table[:, CodeSpace.DOUBLE]
        self._table = table, patterned
        return self._table

    def _matched(
        self, events: Events, number: Index, patterned: dict[int, dict[int, int]]
    ) -> tuple[Index, NDArray[np.int32]]:
        """For each entry the number of its patterns that match, and their dimensions one after the other."""
        counts = np.zeros(len(events.name), np.int64)
        if not patterned:
            return counts, np.empty(0, np.int32)
        if self._matcher is None:
            self._matcher = Patterns(tuple(self.patterns))
        entry = np.flatnonzero(events.space == CodeSpace.TEXT)
        entry = entry[np.isin(number[events.name[entry]], np.array(list(patterned), np.int64))]
        entry, pattern = events.matched(self._matcher, entry)
        which = zip(entry.tolist(), number[events.name[entry]].tolist(), pattern.tolist(), strict=True)
        found = [(at, patterned[name][p]) for at, name, p in which if p in patterned[name]]
        pairs = np.array(found, np.int64).reshape(-1, 2)
        np.add.at(counts, pairs[:, 0], 1)
        return counts, pairs[:, 1].astype(np.int32)

    def _dims_of(self, filters: FlatFilters) -> list[tuple[int, int, int]]:
        names = [self.names[name] for name in filters.names]
        patterns = [self.patterns[pattern] for pattern in filters.patterns]
        return [
            (names[a], s, patterns[p] if p >= 0 else -1)
            for a, s, p in zip(
                filters.attribute.tolist(), filters.space.tolist(), filters.pattern.tolist(), strict=True
            )
        ]

    def stats(self) -> dict[str, Any]:
        return {"dimensions": len(self.dims), "texts": len(self._texts[CodeSpace.TEXT])}
