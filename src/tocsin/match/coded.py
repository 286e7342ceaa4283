"""Indexes with one numbering of dimensions and texts: coding of filters and events, and a base class.

Filters arrive in batches, each with its own numbers; a growing index needs one numbering for all
(`Coding`). Numbers, dates and booleans have permanent codes. The code of a text is its rank among all texts
that filters mention: when a batch adds texts, ranks move, and earlier conjunctions must be coded again.

A subclass of `CodedIndex` sees only conjunctions of at least one test (`_insert`, `_delete`, `_clear`) and
events in the same codes (`_match`). The base class handles

    unconditional filters, and filters that never hold
    slots with several conjunctions, reported once per event
    new ranks of texts: it clears the index and inserts everything again
    numbers that are no double, in an open stream: rare, so their events are matched by the plain scan

>>> from tocsin.language.algebra import Column, Compare
>>> from tocsin.language.rewrite import normalise
>>> from tocsin.model.schema import Type
>>> from tocsin.model.columns import SparseRows
>>> from tocsin.predicate.compile import flatten
>>> coding = Coding()
>>> coding.extend(flatten([normalise(Compare(Column("price"), "<", 5))]))
False
>>> events = coding.events(events_of(SparseRows.from_dicts([{"price": 3, "size": 1}, {"size": 2}])))
>>> events.start.tolist(), events.dim.tolist()
([0, 1, 1], [0])
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tocsin.match._kernels.scan import scan
from tocsin.match.base import MatchIndex, pack
from tocsin.model.buffers import to_arrow
from tocsin.model.columns import Index, Mask, Rows, sliced
from tocsin.predicate._kernels import code_entries
from tocsin.predicate.events import Events, events_of, text_codes, with_times
from tocsin.predicate.flat import (
    ABSENT,
    NEGATED,
    OR_NEXT,
    CodeSpace,
    FlatFilters,
    recode_texts,
    sort_texts,
)
from tocsin.predicate.patterns import Patterns

__all__ = ["CodedConjunctions", "CodedEvents", "CodedIndex", "Coding", "concatenate", "plain_filters"]

_BOTH_ORDERS = (CodeSpace.TEXT, CodeSpace.REVERSED)

_Table = tuple[NDArray[np.int32], dict[int, dict[int, int]]]  # dimensions by name and space, by pattern


class CodedConjunctions(NamedTuple):
    """Conjunctions, each with a slot, in the numbering of one index. Flags as in `predicate/flat.py`."""

    slot: NDArray[np.int32]
    start: Index
    dim: NDArray[np.int32]  # by test
    low: Index
    high: Index
    flags: NDArray[np.uint8]

    def take(self, chosen: Index) -> CodedConjunctions:
        """The chosen conjunctions, by number."""
        start, test = sliced(self.start[:-1][chosen], np.diff(self.start)[chosen])
        return CodedConjunctions(
            self.slot[chosen], start, self.dim[test], self.low[test], self.high[test], self.flags[test]
        )


class CodedEvents(NamedTuple):
    """Entries of events in the numbering of one index; entries of unknown dimensions are left out.

    Within an event dimensions ascend, each at most once. Where `between` is set, the value lies just
    above its code and below the next.
    """

    start: Index
    dim: NDArray[np.int32]
    code: Index
    between: NDArray[np.bool_]
    dims: int  # number of dimensions of the index

    def take(self, events: Index) -> CodedEvents:
        """The chosen events."""
        start, at = sliced(self.start[:-1][events], np.diff(self.start)[events])
        return CodedEvents(start, self.dim[at], self.code[at], self.between[at], self.dims)


def concatenate(parts: list[CodedConjunctions]) -> CodedConjunctions:
    """All conjunctions, in order."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        nothing = np.empty(0, np.int64)
        return CodedConjunctions(
            nothing.astype(np.int32),
            np.zeros(1, np.int64),
            nothing.astype(np.int32),
            nothing,
            nothing,
            nothing.astype(np.uint8),
        )
    sizes = np.concatenate([np.diff(part.start) for part in parts])
    return CodedConjunctions(
        np.concatenate([part.slot for part in parts]),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.concatenate([part.dim for part in parts]),
        np.concatenate([part.low for part in parts]),
        np.concatenate([part.high for part in parts]),
        np.concatenate([part.flags for part in parts]),
    )


class Coding:
    """The numbers of names, dimensions, texts and patterns of an index."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.dims: dict[tuple[int, int, int], int] = {}  # (name, space, pattern)
        self.patterns: dict[tuple[str, str], int] = {}
        self.timed: set[str] = set()  # names that are compared with times
        self._texts = {space: to_arrow([], pa.large_binary()) for space in _BOTH_ORDERS}
        self._matcher: Patterns | None = None
        self._table: _Table | None = None

    def extend(self, filters: FlatFilters) -> bool:
        """Numbers whatever is new in a batch; returns whether codes of known texts have changed."""
        for name in filters.names:
            self.names.setdefault(name, len(self.names))
        known = len(self.patterns)
        for pattern in filters.patterns:
            self.patterns.setdefault(pattern, len(self.patterns))
        if len(self.patterns) > known:
            self._matcher = None
        for dim in self._dims_of(filters):
            self.dims.setdefault(dim, len(self.dims))
        timed = filters.attribute[filters.space == CodeSpace.TIMESTAMP]
        self.timed.update(filters.names[number] for number in timed.tolist())
        self._table = None
        changed = False
        for space, texts in ((CodeSpace.TEXT, filters.texts), (CodeSpace.REVERSED, filters.backwards)):
            before = self._texts[space]
            if len(texts) and not pc.all(pc.is_in(texts, value_set=before)).as_py():
                self._texts[space], _ = sort_texts(pa.concat_arrays([before, texts]))
                changed = changed or len(before) > 0
        return changed

    def conjunctions(self, slots: Index, filters: FlatFilters) -> CodedConjunctions:
        """A batch, after `extend`, in the index's numbers."""
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
        return CodedConjunctions(slot, filters.start, dim, low, high, filters.flags)

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
        table = np.full((len(self.names) + 1, len(CodeSpace)), -1, np.int32)  # by name, space; last: unknown
        patterned: dict[int, dict[int, int]] = {}
        for (name, space, pattern), dim in self.dims.items():
            if space == CodeSpace.PATTERN:
                patterned.setdefault(name, {})[pattern] = dim
            else:
                table[name, space] = dim
        table[:, CodeSpace.BETWEEN] = table[:, CodeSpace.DOUBLE]
        table[:, CodeSpace.TEXT_TIME] = table[:, CodeSpace.TIMESTAMP]
        self._table = table, patterned
        return self._table

    def _matched(
        self, events: Events, number: Index, patterned: dict[int, dict[int, int]]
    ) -> tuple[Index, NDArray[np.int32]]:
        """By entry: how many of its patterns match; and the dimensions of all these, concatenated."""
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


class CodedIndex(MatchIndex):
    """An index over coded conjunctions; a subclass decides how to find them."""

    def __init__(self) -> None:
        self._coding = Coding()
        self._batches: list[tuple[Index, FlatFilters]] = []
        self._used: set[int] = set()
        self._unconditional: set[int] = set()
        self._several = False  # whether a slot has more than one conjunction
        self._plain: CodedConjunctions | None = None  # everything, for the scan; made when needed

    # -- for subclasses --------------------------------------------------------------------------

    @abstractmethod
    def _insert(self, added: CodedConjunctions) -> None:
        """Add conjunctions, each of at least one test."""

    @abstractmethod
    def _delete(self, slots: Index) -> None:
        """Remove the conjunctions of these slots; a slot may have none."""

    @abstractmethod
    def _clear(self) -> None:
        """Remove all conjunctions."""

    @abstractmethod
    def _match(self, events: CodedEvents) -> Index:
        """Matching (slot, event), packed; a pair may occur once per conjunction of its slot."""

    # -- the protocol ----------------------------------------------------------------------------

    def add(self, slots: Index, filters: FlatFilters) -> None:
        slots = np.asarray(slots, np.int64)
        wanted = slots.tolist()
        assert not self._used.intersection(wanted), "a slot is in use"
        changed = self._coding.extend(filters)
        self._batches.append((slots, filters))
        self._used.update(wanted)
        self._plain = None
        if changed:
            self._clear()
            for batch in self._batches:
                self._enter(*batch)
        else:
            self._enter(slots, filters)

    def remove(self, slots: Index) -> None:
        slots = np.asarray(slots, np.int64)
        removed = set(slots.tolist())
        assert removed <= self._used, "a slot is not in use"
        self._used -= removed
        self._unconditional -= removed
        self._plain = None
        self._delete(slots)
        kept = []
        for own, filters in self._batches:
            stay = ~np.isin(own, slots)
            if stay.all():
                kept.append((own, filters))
            elif stay.any():
                kept.append((own[stay], filters.take(stay)))
        self._batches = kept

    def match(self, rows: Rows) -> Index:
        events = events_of(rows)
        if rows.sparse and self._coding.timed:
            events = with_times(
                events, np.array([name in self._coding.timed for name in events.names], np.bool_)
            )
        coded = self._coding.events(events)
        between = np.zeros(len(rows), np.bool_)
        between[np.searchsorted(coded.start, np.flatnonzero(coded.between), "right") - 1] = True
        if between.any():
            found = self._match_apart(coded, np.flatnonzero(~between), np.flatnonzero(between))
        else:
            found = self._match(coded)
        if self._several:
            found = np.unique(found)
        everywhere = [pack(slot, np.arange(len(rows))) for slot in self._unconditional]
        return np.concatenate([found, *everywhere]) if everywhere else found

    def supports(self, filters: FlatFilters) -> Mask:
        return np.ones(filters.count, np.bool_)

    def stats(self) -> dict[str, Any]:
        return {
            "index": type(self).__name__.lower(),
            "subscriptions": len(self._used),
            "bytes": self._bytes(),
            **self._coding.stats(),
        }

    def _bytes(self) -> int:
        """The size of the arrays that matching reads."""
        return sum(value.nbytes for value in _arrays(vars(self)))

    def _check(self) -> None:
        assert sum(len(slots) for slots, _ in self._batches) == len(self._used)
        assert self._unconditional <= self._used

    # -- inside ----------------------------------------------------------------------------------

    def _enter(self, slots: Index, filters: FlatFilters) -> None:
        conjunctions = self._coding.conjunctions(slots, filters)
        sizes = np.diff(conjunctions.start)
        self._unconditional.update(conjunctions.slot[sizes == 0].tolist())
        self._several = self._several or bool(np.any(np.diff(filters.owner) == 0))
        conditional = ~np.isin(conjunctions.slot, conjunctions.slot[sizes == 0])
        if not conditional.all():
            conjunctions = conjunctions.take(np.flatnonzero(conditional))
        if len(conjunctions.slot):
            self._insert(conjunctions)

    def _match_apart(self, coded: CodedEvents, usual: Index, between: Index) -> Index:
        """Matches the usual events by the index, those with a value between two codes by the scan."""
        if self._plain is None:
            parts = [self._coding.conjunctions(*batch) for batch in self._batches]
            self._plain = concatenate(parts)
        found = []
        for events, packed in (
            (usual, self._match(coded.take(usual))),
            (between, scan(self._plain, coded.take(between))),
        ):
            found.append(pack(packed >> 32, events[packed & 0xFFFFFFFF]))
        matches = np.concatenate(found)
        return matches[~np.isin(matches >> 32, np.array(sorted(self._unconditional), np.int64))]


def plain_filters(filters: FlatFilters, allowed: int = 0) -> Mask:
    """Which filters have no test with a flag other than the allowed ones."""
    bad = (filters.flags & ~np.uint8(allowed) & np.uint8(NEGATED | ABSENT | OR_NEXT)) != 0
    out = np.ones(filters.count, np.bool_)
    out[np.repeat(filters.owner, filters.sizes)[bad]] = False
    return out


def _arrays(value: Any) -> list[Any]:
    """All arrays in nested tuples, lists and dicts."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        return [
            a for name, part in value.items() if name not in ("_batches", "_plain") for a in _arrays(part)
        ]
    if isinstance(value, tuple | list):
        return [array for part in value for array in _arrays(part)]
    return []
