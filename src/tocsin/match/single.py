"""Matching coded events one by one: for each segment one compiled call, whose arguments are ready.

Numba looks at the type of every array of every argument at each call, which takes longer than matching an
event. So the arguments of a segment are put together once, and the compiled function is called directly;
they are put together again when the segment's arrays are others than before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.single import FEW, SingleEvent, SingleFound, SingleState
from tocsin.match.segments.base import Dimensions
from tocsin.match.segments.lifecycle import Segments
from tocsin.match.segments.merge_policy import AnyState
from tocsin.model.columns import Index, distinct
from tocsin.predicate._kernels import rank_texts
from tocsin.predicate.conjunctions import has_patterns
from tocsin.predicate.events import text_bytes
from tocsin.predicate.single import INTEGERS, EventBuffer

__all__ = ["SingleMatcher"]

_MOST_TEXTS = 1 << 16  # whose codes are remembered, by segment
_NO_ARRAYS: Sequence[Index] = ()
_FOUND, _GIVEN = Struct("<2q"), Struct("<3q")  # parts of `SingleState`: results, arguments


class _TextCodes(dict[str, int]):
    """The codes of texts among the sorted texts of a segment, found when they are first looked up."""

    def __init__(self, texts: Any, *, backwards: bool = False) -> None:
        self.texts, self._backwards = texts, backwards

    def __missing__(self, text: str) -> int:
        if len(self) >= _MOST_TEXTS:
            self.clear()
        raw = text.encode()
        code = self[text] = _code_of(self.texts, raw[::-1] if self._backwards else raw)
        return code


@dataclass(eq=False, slots=True)
class _Ready:
    """The arguments of one segment."""

    arrays: Any  # these four are what they were made from
    owner: Any
    number: int
    entries: Any
    kernel: Any
    args: tuple[Any, ...]
    frame: Dimensions
    texts: Any  # of `SingleEvent`, as bytes
    capacity: int
    forwards: _TextCodes
    backwards: _TextCodes | None  # None: no condition looks at texts from behind
    patterns: NDArray[np.int32] | None  # of `SingleEvent`; None if the segment has no patterns
    call: Callable[..., Any] | None = None  # compiled for these arguments
    coded: dict[int, bool] = field(default_factory=dict)  # `_has_codes` by attribute

    def run(self) -> None:
        """The first call, which may compile."""
        self.kernel(*self.args)
        self.call = self.kernel.entry_point(self.args)

    def put_texts(self, texts: Collection[str]) -> None:
        """Write the codes of an event's texts."""
        struct = INTEGERS[len(texts)]
        struct.pack_into(self.texts, 0, *map(self.forwards.__getitem__, texts))
        if self.backwards is not None:
            struct.pack_into(self.texts, 8 * self.capacity, *map(self.backwards.__getitem__, texts))

    def put_patterns(self, event: EventBuffer) -> int:
        """Write the dimensions whose pattern matches a text of the event; returns how many there are.

        Writes the codes of texts too, unless only patterns look at them.
        """
        texts, count = [*event.texts], 0
        assert self.patterns is not None
        for attribute, n in event.text_entries():
            found = self.frame._own_patterns.matched_one(attribute, texts[n])
            if len(found):
                self.patterns[count : count + len(found)] = found
                count += len(found)
            if attribute not in self.coded:
                self.coded[attribute] = self._has_codes(attribute)
            if not self.coded[attribute]:
                texts[n] = ""
        self.put_texts(texts)
        return count

    def _has_codes(self, attribute: int) -> bool:
        """Whether a condition of the segment looks at the codes of an attribute."""
        begin = self.frame._spaces[0]
        return bool(attribute + 1 < len(begin) and begin[attribute] < begin[attribute + 1])


class SingleMatcher:
    """Matches coded events one by one against the segments of an index: what is in `event`."""

    def __init__(self, segments: Segments) -> None:
        self.event = EventBuffer()
        self._segments = segments
        self._state = np.zeros(len(SingleState), np.int64)
        self._counts = self._state.data.cast("B")
        self._found = SingleFound(np.empty(1024, np.int64), np.empty(1024, np.int64))
        self._ready: dict[AnyState, _Ready] = {}

    def match(self) -> Index:
        """Slots of matching filters, ascending, each once; the array is valid until the next call."""
        event, segments, counts, everywhere = self.event, self._segments, self._counts, _NO_ARRAYS
        texts = event.texts
        _FOUND.pack_into(counts, 0, 0, 0)
        for one in segments.all if segments.mutable else segments.immutable:
            ready = self._ready.get(one)
            if (
                ready is None
                or ready.arrays is not one.segment.arrays
                or ready.owner is not segments.owner
                or ready.number != one.number
                or ready.entries is not event.entries
            ):
                ready = self._prepare(one)
            patterns = 0
            if texts:
                if ready.patterns is None:
                    ready.put_texts(texts)
                else:
                    patterns = ready.put_patterns(event)
            _GIVEN.pack_into(counts, 16, event.count, patterns, ready.number)
            if ready.call is not None:
                ready.call(*ready.args)
            else:
                ready.run()
            one.events += 1
            own = one.segment.unconditional
            if len(own):
                everywhere = [*everywhere, own[segments.owner[own] == one.number].astype(np.int64)]
        unique, repeated = _FOUND.unpack_from(counts, 0)
        if repeated or everywhere or unique > FEW:
            return self._sorted(unique, repeated, everywhere)
        return self._found.unique[:unique]

    def _sorted(self, unique: int, repeated: int, everywhere: Sequence[Index]) -> Index:
        """What was found; if there was too little space for it, after another attempt."""
        found = self._found
        if unique > len(found.unique) or repeated > len(found.repeated):
            most = 2 * max(unique, repeated)
            self._found, self._ready = SingleFound(np.empty(most, np.int64), np.empty(most, np.int64)), {}
            return self.match()
        slots = np.concatenate([found.unique[:unique], distinct(found.repeated[:repeated]), *everywhere])
        slots.sort()
        return slots

    def _prepare(self, one: AnyState) -> _Ready:
        """The arguments for a segment."""
        segment, owner = one.segment, self._segments.owner
        frame, before = segment.dimensions, self._ready.get(one)
        if len(self._ready) > len(self._segments.all):
            states = self._segments.all
            self._ready = {state: ready for state, ready in self._ready.items() if state in states}
        texts = np.zeros((2, self.event.capacity), np.int64)
        patterns = np.empty(np.count_nonzero(frame.key >= (1 << 40)), np.int32)  # at most
        event = SingleEvent(self.event.entries, texts, patterns, self._state, owner)
        kernel, args = segment.single_call(event, self._found, one.counters)
        forwards = _TextCodes(frame.texts)
        backwards = _TextCodes(frame.backwards, backwards=True) if frame._has_backwards else None
        call = None
        if before is not None and before.forwards.texts is frame.texts:
            forwards, call = before.forwards, before.call
            if backwards is not None and before.backwards is not None:
                backwards = before.backwards if before.backwards.texts is frame.backwards else backwards
        ready = self._ready[one] = _Ready(
            segment.arrays,
            owner,
            one.number,
            self.event.entries,
            kernel,
            args,
            frame,
            texts.data.cast("B"),
            self.event.capacity,
            forwards,
            backwards,
            patterns if has_patterns(frame.key) else None,
            call,
        )
        return ready


def _code_of(texts: Any, text: bytes) -> int:
    """The code of a text among sorted ones."""
    data = np.frombuffer(text, np.uint8) if text else np.empty(0, np.uint8)
    return int(rank_texts(*text_bytes(texts), data, np.array([0, len(text)], np.int64))[0])
