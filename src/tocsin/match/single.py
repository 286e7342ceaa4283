"""Matching coded events one by one: for each segment one compiled call, whose arguments are ready.

Numba looks at the type of every array of every argument at each call, which takes longer than matching an
event. So the arguments of a segment are put together once, and the compiled function is called directly;
they are put together again when the segment's arrays are others than before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.primitives import MISSING
from tocsin.match._kernels.single import (
    SingleEvent,
    SingleFound,
    SingleState,
    SingleTable,
    match_one,
    match_one_mutable,
)
from tocsin.match.segments.base import Dimensions
from tocsin.match.segments.immutable import ImmutableSegment
from tocsin.match.segments.lifecycle import Segments
from tocsin.match.segments.merge_policy import AnyState
from tocsin.match.segments.mutable import MutableSegment
from tocsin.model.columns import Index, distinct
from tocsin.predicate._kernels import rank_texts
from tocsin.predicate.conjunctions import has_patterns
from tocsin.predicate.events import text_bytes
from tocsin.predicate.flat import CodeSpace
from tocsin.predicate.single import CodedEvent

__all__ = ["SingleMatcher"]

_MOST_TEXTS = 1 << 16  # whose codes are remembered, by segment
_TEXT = int(CodeSpace.TEXT)
_NOTHING = np.empty(0, np.int64)
_NOTHING.flags.writeable = False
_STRUCTS = [Struct(f"<{n}q") for n in range(256)]


@dataclass(eq=False)
class _Ready:
    """The arguments of one segment."""

    arrays: Any  # these three are what they were made from
    owner: Any
    number: int
    kernel: Any
    args: tuple[Any, ...]
    frame: Dimensions
    texts: Any  # of `SingleEvent`, as bytes
    capacity: int
    codes: dict[str, tuple[int, int]] = field(default_factory=dict)  # of texts, forwards and backwards
    call: Callable[..., Any] | None = None  # compiled for these arguments
    patterns: NDArray[np.int32] | None = None  # of `SingleEvent`; None if the segment has no patterns

    def run(self) -> None:
        if self.call is not None:
            self.call(*self.args)
            return
        self.kernel(*self.args)
        self.call = self.kernel.entry_point(self.args)

    def put_texts(self, texts: list[str]) -> None:
        """Write the codes of an event's texts."""
        codes, pairs = self.codes, []
        for text in texts:
            pair = codes.get(text)
            if pair is None:
                pair = self._learn(text)
            pairs.append(pair)
        struct = _struct(len(pairs))
        struct.pack_into(self.texts, 0, *[pair[0] for pair in pairs])
        struct.pack_into(self.texts, 8 * self.capacity, *[pair[1] for pair in pairs])

    def put_patterns(self, event: CodedEvent) -> int:
        """Write the dimensions whose pattern matches a text of the event; returns how many there are.

        Writes the codes of texts too, unless only patterns look at them.
        """
        entries, texts, count = event.entries, list(event.texts), 0
        assert self.patterns is not None
        begin = self.frame._spaces[0]
        for i in range(0, len(entries), 3):
            if entries[i + 1] == _TEXT:
                attribute, n = entries[i], entries[i + 2]
                found = self.frame._own_patterns.matched_one(attribute, texts[n])
                self.patterns[count : count + len(found)] = found
                count += len(found)
                if attribute + 1 >= len(begin) or begin[attribute] == begin[attribute + 1]:
                    texts[n] = ""
        self.put_texts(texts)
        return count

    def _learn(self, text: str) -> tuple[int, int]:
        if len(self.codes) >= _MOST_TEXTS:
            self.codes.clear()
        raw, frame = text.encode(), self.frame
        backwards = _code_of(frame.backwards, raw[::-1]) if frame._has_backwards else 0
        pair = self.codes[text] = _code_of(frame.texts, raw), backwards
        return pair


class SingleMatcher:
    """Matches coded events one by one against the segments of an index."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._state = np.zeros(len(SingleState), np.int64)
        self._found = SingleFound(np.empty(1024, np.int64), np.empty(1024, np.int64))
        self._entries = np.zeros((64, 3), np.int64)
        self._memory = self._entries.data.cast("B")
        self._ready: dict[AnyState, _Ready] = {}

    def match(self, event: CodedEvent) -> Index:
        """Slots of matching filters, ascending, each once."""
        entries, texts = event
        if len(entries) > self._entries.size:
            self._enlarge(len(entries))
        _struct(len(entries)).pack_into(self._memory, 0, *entries)
        segments, state = self._segments, self._state
        state[SingleState.ENTRIES] = len(entries) // 3
        state[SingleState.UNIQUE] = state[SingleState.REPEATED] = 0
        unconditional = []
        for one in segments.all:
            ready = self._ready.get(one)
            segment, number = one.segment, one.number
            if (
                ready is None
                or ready.arrays is not segment.arrays
                or ready.owner is not segments.owner
                or ready.number != number
            ):
                ready = self._prepare(one)
            state[SingleState.PATTERNS] = 0
            if texts and ready.patterns is None:
                ready.put_texts(texts)
            elif texts:
                state[SingleState.PATTERNS] = ready.put_patterns(event)
            state[SingleState.NUMBER] = number
            ready.run()
            one.events += 1
            if len(segment.unconditional):
                own = segment.unconditional
                unconditional.append(own[segments.owner[own] == number].astype(np.int64))
        return self._slots(event, unconditional)

    def _slots(self, event: CodedEvent, unconditional: list[Index]) -> Index:
        """What was found; if there was too little space for it, after another attempt."""
        unique, repeated = self._state[SingleState.UNIQUE : SingleState.REPEATED + 1].tolist()
        found = self._found
        if unique > len(found.unique) or repeated > len(found.repeated):
            most = 2 * max(unique, repeated)
            self._found, self._ready = SingleFound(np.empty(most, np.int64), np.empty(most, np.int64)), {}
            return self.match(event)
        if not unique and not repeated and not unconditional:
            return _NOTHING
        parts = [found.unique[:unique], *unconditional]
        if repeated:
            parts.append(distinct(found.repeated[:repeated]))
        slots = found.unique[:unique].copy() if len(parts) == 1 else np.concatenate(parts)
        slots.sort()
        return slots

    def _enlarge(self, entries: int) -> None:
        self._entries = np.zeros((entries, 3), np.int64)
        self._memory, self._ready = self._entries.data.cast("B"), {}

    def _prepare(self, one: AnyState) -> _Ready:
        """The arguments for a segment."""
        segment, owner = one.segment, self._segments.owner
        frame, before = segment.dimensions, self._ready.get(one)
        if len(self._ready) > len(self._segments.all):
            states = self._segments.all
            self._ready = {state: ready for state, ready in self._ready.items() if state in states}
        capacity = len(self._entries)
        texts = np.zeros((2, capacity), np.int64)
        patterns = np.empty(np.count_nonzero(frame.key >= (1 << 40)), np.int32)  # at most
        event = SingleEvent(self._entries, texts, patterns, self._state, owner)
        args: tuple[Any, ...]
        if isinstance(segment, ImmutableSegment):
            bits = segment.bits.first, segment.bits.first + len(segment.bits.start) - 1
            cuts = segment.cuts, segment.cut_start, np.array(bits, np.int64)
            columns = segment.arrays.values.columns + 1
            table = _table(frame, columns)
            args = segment.arrays, *cuts, table, event, self._found, one.counters
            kernel: Any = match_one
        else:
            assert isinstance(segment, MutableSegment)
            codes = np.zeros((len(frame.key), 2), np.int64)
            number = segment.frame.number
            args = segment.arrays, number, codes, _table(frame, 0), event, self._found, one.counters
            kernel = match_one_mutable
        basis = segment.arrays, owner, one.number
        ready = _Ready(*basis, kernel, args, frame, texts.data.cast("B"), capacity)
        ready.patterns = patterns if has_patterns(frame.key) else None
        if before is not None and before.frame.texts is frame.texts:
            ready.codes, ready.call = before.codes, before.call
        self._ready[one] = ready
        return ready


def _table(frame: Dimensions, columns: int) -> SingleTable:
    width = len(frame.key)
    ranks, own = np.full(width, MISSING, np.int32), np.full(columns, MISSING, np.int32)
    return SingleTable(*frame._spaces, ranks, own, np.zeros(width, np.int32))


def _struct(count: int) -> Struct:
    return _STRUCTS[count] if count < len(_STRUCTS) else Struct(f"<{count}q")


def _code_of(texts: Any, text: bytes) -> int:
    """The code of a text among sorted ones."""
    data = np.frombuffer(text, np.uint8) if text else np.empty(0, np.uint8)
    return int(rank_texts(*text_bytes(texts), data, np.array([0, len(text)], np.int64))[0])
