"""What segments have in common: the protocol, their state in an index, events in their dimensions.

A batch of events is grouped by attribute once (`group_events`). Every segment then reads it in its own
dimensions: texts by their codes among its own texts, patterns by whether they match.

    Events ─► EventGroup (by attribute) ─► CodeRuns (by dimension) ─► ranks or codes by event ─► matches
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.ordering import AttributeEntries, CodeRuns, group_entries, run_entries
from tocsin.match._kernels.primitives import MISSING
from tocsin.match._kernels.single import SingleEvent, SingleFound, SingleTable
from tocsin.match._kernels.verify import Counter, Owners
from tocsin.model.columns import Index
from tocsin.predicate.conjunctions import Conjunctions, PatternDimensions, has_patterns
from tocsin.predicate.events import Events, text_codes
from tocsin.predicate.flat import CodeSpace

__all__ = [
    "BatchCodes", "Dimensions", "EventGroup", "Review", "Segment", "SegmentMatches", "SegmentState",
    "SomeSegment", "group_events", "new_counters", "unconditional_matches", "with_unconditional",
]  # fmt: skip

_NONE = np.empty(0, np.int32)


class EventGroup(NamedTuple):
    """Entries of some events of a batch, by attribute; all segments read the same."""

    first: int  # event
    last: int  # the one after them
    entries: AttributeEntries
    memo: dict[int, Any]  # results that segments of one frame share

    @property
    def events(self) -> int:
        """How many there are."""
        return self.last - self.first


class BatchCodes(NamedTuple):
    """What a segment knows of a whole batch: codes of its texts, and patterns that match."""

    texts: tuple[Index, Index]  # forwards and backwards
    patterns: tuple[NDArray[np.int32], NDArray[np.int32]]  # that match: dimension and event, by dimension


class SegmentMatches(NamedTuple):
    """Verified matches of a segment, packed, and counters of its candidates."""

    unique: list[Index]  # the first one is in the buffer that the segment was given, if that was large enough
    repeated: Index  # those that may be found more than once
    counters: Index


def group_events(events: Events, numbers: Index, attributes: int, first: int, last: int) -> EventGroup:
    """Events first..last-1 by attribute; `numbers` are the index's numbers of their names."""
    entries = (events.start, events.name, events.space, events.code)
    return EventGroup(first, last, group_entries(entries, first, last, numbers, attributes), {})


def unconditional_matches(slots: NDArray[np.int32], some: EventGroup, owners: Owners) -> list[Index]:
    """Packed matches of slots that match every event."""
    if not len(slots):
        return []
    owned = slots if not len(owners.of) else slots[owners.of[slots] == owners.number]
    rows = np.arange(some.first, some.last, dtype=np.int64)
    return [((owned.astype(np.int64) << 32)[:, None] | rows[None, :]).ravel()]


def new_counters() -> Index:
    return np.zeros(len(Counter), np.int64)


class Dimensions:
    """The dimensions of a segment, by key, ascending (`predicate/conjunctions.py`)."""

    key: Index
    texts: Any
    backwards: Any
    patterns: tuple[tuple[str, str], ...]  # all that the index knew; dimensions name them by number

    def encode(self, events: Events, numbers: Index, *, patterns: bool = True) -> BatchCodes:
        """Look up the texts of a batch, and match patterns against it unless `patterns` is false.

        `numbers` are the index's numbers of the events' names.
        """
        texts = text_codes(self.texts, events.texts)
        backwards = np.empty(0, np.int64)
        if self._has_backwards:
            backwards = text_codes(self.backwards, events.backwards)
        matched = (_NONE, _NONE)
        if patterns and has_patterns(self.key):
            matched = self._matching_patterns(events, numbers)
        return BatchCodes((texts, backwards), matched)

    def runs(self, codes: BatchCodes, some: EventGroup) -> CodeRuns:
        """Some events in these dimensions."""
        dim, event = codes.patterns
        if len(dim):
            mine = (event >= some.first) & (event < some.last)
            dim, event = dim[mine], event[mine] - np.int32(some.first)
        most = 3 * len(some.entries.event) + len(dim)
        out = np.empty(most, np.int32), np.empty(most, np.int64), np.empty(most, np.uint8)
        run, start, n = run_entries(some.entries, self._spaces, codes.texts, (dim, event), out)
        return CodeRuns(run, start, out[0][:n], out[1][:n], out[2][:n])

    def single_table(self, columns: int = 0) -> SingleTable:
        """An empty table for single events; `columns`: of value pairs."""
        width = len(self.key)
        ranks, own = np.full(width, MISSING, np.int32), np.full(columns, MISSING, np.int32)
        return SingleTable(*self._spaces, ranks, own, np.zeros(width, np.int32))

    @cached_property
    def _spaces(self) -> tuple[Index, NDArray[np.uint8]]:
        """Where the dimensions of each attribute begin, and the space of each; patterns stand behind."""
        plain = self.key[self.key < (1 << 40)]
        counts = np.bincount(plain >> 8)
        return np.concatenate([[0], np.cumsum(counts)]), (self.key & 255).astype(np.uint8)

    @cached_property
    def _has_backwards(self) -> bool:
        """A dimension may stay when the last filter that used it, and its texts, are gone."""
        return bool(np.any(self._spaces[1] == CodeSpace.REVERSED))

    @cached_property
    def _own_patterns(self) -> PatternDimensions:
        return PatternDimensions(self.key, self.patterns)

    def _matching_patterns(
        self, events: Events, numbers: Index
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The dimensions of patterns that match, and the events that have them, by dimension."""
        entry, dim = self._own_patterns.matched(events, numbers)
        event = np.searchsorted(events.start, entry, "right") - 1
        order = np.argsort(dim, kind="stable")
        return dim[order].astype(np.int32), event[order].astype(np.int32)


class Segment(Protocol):
    """Conjunctions of one index that are matched together."""

    @property
    def arrays(self) -> Any:
        """What the kernels read; other ones whenever the segment is not the same any more."""

    @property
    def dimensions(self) -> Dimensions: ...
    @property
    def size(self) -> int:
        """How many conjunctions there are."""

    @property
    def unconditional(self) -> NDArray[np.int32]:
        """Slots that match every event; they have no conjunction."""

    @property
    def slots(self) -> NDArray[np.int32]:
        """All slots, each once."""

    @property
    def conjunction_slots(self) -> NDArray[np.int32]:
        """The slot of each conjunction."""

    @property
    def may_repeat(self) -> bool:
        """Whether a slot may have more than one conjunction."""

    @property
    def nbytes(self) -> int: ...
    @property
    def paths(self) -> Mapping[str, int]:
        """Conjunctions by access path."""

    @property
    def costly(self) -> Sequence[tuple[int, float]]:
        """Slots that are expected to cost most, and nanoseconds per event."""

    @property
    def expected_cost(self) -> float:
        """Nanoseconds per event."""

    @property
    def fixed_cost(self) -> float:
        """Nanoseconds per event that it costs however few conjunctions there are."""

    def buffer_size(self, events: int) -> int:
        """Matches to expect of so many events, and some more; a match that finds more enlarges its buffer."""

    def match(self, codes: BatchCodes, some: EventGroup, owners: Owners, buffer: Index) -> SegmentMatches:
        """Find candidates for some events and verify them; leave out slots that the segment does not own."""

    def single_call(
        self, event: SingleEvent, found: SingleFound, counters: Index
    ) -> tuple[Any, tuple[Any, ...]]:
        """The kernel that matches single events with these arrays, and its arguments."""

    def candidates(self, counters: NDArray[np.float64]) -> Mapping[str, float]:
        """Counters of `match` by name."""

    def owned(self, owners: Owners) -> tuple[Index, NDArray[np.int32]]:
        """The conjunctions whose slots the segment owns, and such unconditional slots."""

    def extract(self, chosen: Index) -> Conjunctions:
        """Some of the conjunctions, in codes that do not depend on the segment."""

    def _check(self) -> None: ...


SomeSegment = TypeVar("SomeSegment", bound=Segment, covariant=True)


@dataclass
class Review:
    """What was known of a segment when its cost was last reviewed (`merge_policy.py`)."""

    cost: float  # nanoseconds per event
    events: int = 0  # of `SegmentState` then, as is `counters`
    counters: Index = field(default_factory=new_counters)
    patience: int = 1  # grows with every review that found nothing better
    lost: float = 0.0  # nanoseconds spent so far because it was not rebuilt


@dataclass(eq=False)
class SegmentState(Generic[SomeSegment]):
    """A segment in use: which slots it owns, how many of its slots were removed, what it has cost."""

    segment: SomeSegment
    number: int  # the owner of its slots
    name: str | None = None  # of its files
    removed: int = 0
    events: int = 0  # matched so far; so are `counters`
    counters: Index = field(default_factory=new_counters)
    review: Review | None = None
    keeps_apart: bool = False  # migrating it would cost too much
    is_undersampled: bool = False  # it was built from too few sampled events, and not reviewed since

    def __len__(self) -> int:
        return self.segment.size + len(self.segment.unconditional)

    @property
    def alive(self) -> int:
        """About how many conjunctions were not removed."""
        return len(self) - self.removed

    def owners(self, owner: NDArray[np.int32]) -> Owners:
        """Who owns slots; empty as long as nothing was removed, and all slots are the segment's own."""
        return Owners(owner if self.removed else _NONE, np.int32(self.number))

    def living(self, owner: NDArray[np.int32]) -> Conjunctions:
        """The conjunctions whose slots the segment still owns."""
        chosen, unconditional = self.segment.owned(Owners(owner, np.int32(self.number)))
        return with_unconditional(self.segment.extract(chosen), unconditional)


def with_unconditional(conjunctions: Conjunctions, slots: NDArray[np.int32]) -> Conjunctions:
    """The conjunctions, with slots that match every event: conjunctions without a test."""
    if not len(slots):
        return conjunctions
    start = np.concatenate([conjunctions.start, np.full(len(slots), conjunctions.start[-1])])
    return conjunctions._replace(slot=np.concatenate([conjunctions.slot, slots]), start=start)
