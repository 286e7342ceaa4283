"""OpIndex: lists by pivot attribute, then by operator, and a counter for each conjunction.

An event with twenty of twenty thousand attributes can only match conjunctions all of whose attributes it
has. So each conjunction is indexed under one of them, its *pivot*: the one that is rarest in the stream. For
each pivot that an event has, matching finds satisfied predicates in lists, one for each operator, and counts
down the counters of their conjunctions; at zero a conjunction matches.

    event  B=6 C=3 E=9      pivots B, E: no conjunction
                            pivot C:   =     C=6
                                       <=    B<=4  E<=12      8 <= 12: counts down S3
                                       >=    E>=3             9 >= 3:  counts down S3; two are left

The lists of a pivot are cut into segments by attribute, each with a signature of 64 bits that rules out
most attributes (with `=`: most values) that the segment does not contain.

Zhang, Chan, Tan, "An Efficient Publish/Subscribe Index for E-Commerce Databases" (O14), sections 4
to 6. What differs:

    operators       an interval is two predicates as in the paper, but one (with a list of its own, by lower
                    end) among alternatives, where two would not be CNF; present, absent and "outside"
                    (`!=`, NOT BETWEEN) have lists of their own
    prefix, suffix, pattern   arrive here as intervals and presence of dimensions: sorted texts and the
                    multi-pattern matcher of `Coding` replace the trie of 6.2
    only IS NULL    a conjunction that needs no attribute has no pivot, and every event checks it
    bitmaps         63 clauses in a word; up to 3969 with a word of words
    counters        are copied from their start values per pivot, not reset for every event
    updates         new conjunctions make a small index of their own, merged by size; removed ones
                    stay, with a counter that never reaches zero
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tocsin.match.coded import CodedConjunctions, CodedEvents, CodedIndex, concatenate
from tocsin.match.published._kernels.opindex import (
    OPERATORS,
    WITHIN,
    WORD,
    OpLists,
    clear_bits,
    count_clauses,
    count_down,
    entries_of,
    order_by,
    pivot_clauses,
    places_of,
    set_signatures,
    signature_bit,
)
from tocsin.model.columns import Index, Mask
from tocsin.predicate.flat import OR_NEXT, FlatFilters

__all__ = ["LayeredIndex", "OpIndex", "OpIndexBS", "OpIndexConfig"]

Built = TypeVar("Built")
_DELETED = np.uint64(1 << 63)


@dataclass
class _Layer(Generic[Built]):
    given: CodedConjunctions
    alive: Mask
    built: Built | None = None


class LayeredIndex(CodedIndex, Generic[Built]):
    """An index of immutable layers, each less than half as large as the one before.

    A layer is built at the first event; n conjunctions added one by one are each built into O(log n)
    layers. A layer that has lost more than half of its conjunctions is built again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._layers: list[_Layer[Built]] = []

    @abstractmethod
    def _build(self, given: CodedConjunctions) -> Built:
        """The index of some conjunctions."""

    @abstractmethod
    def _drop(self, built: Built, slots: Index) -> None:
        """Make the conjunctions of these slots never match."""

    @abstractmethod
    def _match_built(self, built: Built, events: CodedEvents) -> Index:
        """Matching (slot, event), packed."""

    def _insert(self, added: CodedConjunctions) -> None:
        while self._layers and 2 * len(added.slot) > len(self._layers[-1].given.slot):
            added = concatenate([_alive(self._layers.pop()), added])
        self._layers.append(_Layer(added, np.ones(len(added.slot), np.bool_)))

    def _delete(self, slots: Index) -> None:
        kept = []
        for layer in self._layers:
            layer.alive &= ~np.isin(layer.given.slot, slots)
            if 2 * layer.alive.sum() < len(layer.alive):
                given = _alive(layer)
                layer = _Layer(given, np.ones(len(given.slot), np.bool_))
            elif layer.built is not None:
                self._drop(layer.built, slots)
            if len(layer.given.slot):
                kept.append(layer)
        self._layers = kept

    def _clear(self) -> None:
        self._layers = []

    def _built(self) -> list[Built]:
        for layer in self._layers:
            if layer.built is None:
                layer.built = self._build(_alive(layer))
        return [layer.built for layer in self._layers if layer.built is not None]

    def _match(self, events: CodedEvents) -> Index:
        found = [self._match_built(built, events) for built in self._built()]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "layers": len(self._layers)}

    def _check(self) -> None:
        super()._check()
        for layer in self._layers:
            assert len(layer.alive) == len(layer.given.slot) > 0
            assert set(layer.given.slot[layer.alive].tolist()) <= self._used - self._unconditional
        sizes = [len(layer.given.slot) for layer in self._layers]
        assert 2 * sum(layer.alive.sum() for layer in self._layers) >= sum(sizes), "more than half is removed"


def _alive(layer: _Layer[Built]) -> CodedConjunctions:
    return layer.given if layer.alive.all() else layer.given.take(np.flatnonzero(layer.alive))


@dataclass(frozen=True)
class OpIndexConfig:
    """How lists are cut, and when pivots are chosen again."""

    segments: int = 32  # b in the paper; 1: neither segments nor signatures
    settled: int = 16  # entries per dimension before the stream's frequencies are used
    gain: float = 0.5  # lists are rebuilt if better pivots reduce the visits to this share


class OpIndex(LayeredIndex[tuple[OpLists, ...]]):
    """Pivot lists with segments and signatures.

    An event of m attributes reads p = 3 m lists: O(m p) signatures, a binary search where a signature does
    not rule the attribute out, and a step for each satisfied predicate. Space is linear in predicates.

    >>> index = OpIndex()
    >>> one, high = np.ones(4, np.int64), np.array([4, 12, 9, 7])
    >>> index._insert(CodedConjunctions(np.array([3, 5], np.int32), np.array([0, 2, 4]),
    ...     np.array([1, 4, 2, 4], np.int32), one, high, np.zeros(4, np.uint8)))
    >>> events = CodedEvents(np.array([0, 2]), np.array([1, 4], np.int32), np.array([4, 9]),
    ...     np.zeros(2, np.bool_), 5)
    >>> (index._match(events) >> 32).tolist()
    [3]
    """

    config: ClassVar[OpIndexConfig] = OpIndexConfig()
    unsupported = "condition of more than 3,969 clauses with alternatives over several attributes"

    def __init__(self, config: OpIndexConfig | None = None) -> None:
        super().__init__()
        self._config = config or self.config
        self._tests = np.zeros(0)  # by dimension: number of tests
        self._seen = np.zeros(0)  # by dimension: entries of events, old ones with less weight
        self._total = self._next_review = 0.0  # entries seen; and at which total pivots are reviewed

    def supports(self, filters: FlatFilters) -> Mask:
        """All but a CNF of more than 3969 clauses."""
        count, mixed = count_clauses(CodedConjunctions(filters.owner, *_tests(filters)))
        out = np.ones(filters.count, np.bool_)
        out[filters.owner[mixed & (count > WORD * WORD)]] = False
        return out

    # -- level 1: pivots -------------------------------------------------------------------------

    def frequency(self, dims: int) -> NDArray[np.float64]:
        """How often each dimension is in an event; before enough events, in a subscription."""
        counts = self._seen if self._next_review else self._tests
        return np.concatenate([counts, np.zeros(max(0, dims - len(counts)))])

    def _insert(self, added: CodedConjunctions) -> None:
        self._tests = _plus(self._tests, added.dim, int(added.dim.max()) + 1)
        super()._insert(added)

    def _clear(self) -> None:
        super()._clear()
        self._tests = np.zeros(0)

    def _match(self, events: CodedEvents) -> Index:
        self._seen = _plus(self._seen, events.dim, events.dims)
        self._total += len(events.dim)
        if self._total >= max(self._next_review, self._config.settled * max(1, events.dims)):
            self._review_pivots()
        return super()._match(events)

    def _review_pivots(self) -> None:
        """Marks layers for rebuilding whose pivots no longer suit the stream."""
        self._next_review = 2 * self._total
        frequency = self.frequency(len(self._tests))
        for layer in self._layers:
            if layer.built is not None:
                _, _, best = pivot_clauses(layer.given, frequency)
                now = sum(_visits(lists, frequency) for lists in layer.built)
                if best.sum() < self._config.gain * now:
                    layer.built = None
        self._seen, self._total = self._seen / 2, self._total / 2

    # -- level 2: lists by operator --------------------------------------------------------------

    def _build(self, given: CodedConjunctions) -> tuple[OpLists, ...]:
        count, mixed = count_clauses(given)
        frequency, segments = self.frequency(int(given.dim.max()) + 1), self._config.segments
        if not mixed.any():
            return (_lists(given, count, frequency, segments),)
        both = (np.flatnonzero(~mixed), np.flatnonzero(mixed))
        return tuple(_lists(given.take(own), count[own], frequency, segments) for own in both if len(own))

    def _drop(self, built: tuple[OpLists, ...], slots: Index) -> None:
        for lists in built:
            removed = np.isin(lists.slot, slots)
            lists.start[removed] = _DELETED if _bitmaps(lists) else np.iinfo(lists.start.dtype).max

    def _match_built(self, built: tuple[OpLists, ...], events: CodedEvents) -> Index:
        found = []
        for lists in built:
            if _bitmaps(lists):
                reported = np.zeros(len(lists.slot), np.int32)
                found.append(clear_bits(lists, events, self._config.segments, reported))
            else:
                found.append(count_down(lists, events, self._config.segments))
        return np.concatenate(found) if len(found) != 1 else found[0]

    # -- inspection -----------------------------------------------------------------------------

    def pivots(self) -> dict[int, list[int]]:
        """Slots by pivot dimension; -1: without pivot."""
        out: dict[int, list[int]] = {}
        for lists in (lists for built in self._built() for lists in built):
            none = len(lists.first) - 2
            for pivot in np.flatnonzero(np.diff(lists.first)).tolist():
                own = slice(lists.first[pivot], lists.first[pivot + 1])
                heads = lists.slot[own] if not _bitmaps(lists) else lists.slot[own][lists.up[own] < 0]
                out.setdefault(-1 if pivot == none else pivot, []).extend(heads.tolist())
        return out

    def stats(self) -> dict[str, Any]:
        all_lists = [lists for built in self._built() for lists in built]
        return {
            **super().stats(),
            "pivots": len(self.pivots()),
            "lists": sum(len(lists.op) for lists in all_lists),
            "entries": sum(len(lists.dim) for lists in all_lists),
        }

    def _bytes(self) -> int:
        return sum(array.nbytes for built in self._built() for lists in built for array in lists)

    def _check(self) -> None:
        super()._check()
        for lists in (lists for built in self._built() for lists in built):
            _check_lists(lists, self._config.segments)


class OpIndexBS(OpIndex):
    """OpIndex without segments and signatures: a binary search in every list for every attribute.

    An event's attributes ascend, so each search starts where the previous one ended; a short list is
    merged with them instead. O14, section 7.

    >>> OpIndexBS().config.segments
    1
    """

    config: ClassVar[OpIndexConfig] = OpIndexConfig(segments=1)


def _lists(
    given: CodedConjunctions, clauses: Index, frequency: NDArray[np.float64], segments: int
) -> OpLists:
    """The lists of conjunctions that all have counters, or all have bitmaps. O(n log n) in entries."""
    none, bitmaps = len(frequency), bool(np.any(given.flags & OR_NEXT))
    first, last, _ = pivot_clauses(given, frequency)
    conjunction, pivot = places_of(first, last, given.dim, none)
    order = order_by(pivot, none + 1, np.arange(len(pivot)))
    conjunction, pivot = conjunction[order], pivot[order]

    words = np.ones(len(pivot), np.int64)  # counters of a place; with many clauses, a head and its words
    large = (clauses[conjunction] > WORD) & bitmaps
    words[large] += -(-clauses[conjunction[large]] // WORD)
    begin = np.concatenate([[0], np.cumsum(words)])
    counters = _starts(np.bincount(pivot, words, none + 1))
    at = begin[:-1] - counters[pivot]

    key, dim, operand, other, counter, bit, size = entries_of(given, (conjunction, pivot), at, large, bitmaps)
    kinds = np.bincount(key, minlength=(none + 1) * OPERATORS) > 0
    number = np.cumsum(kinds) - 1
    spot = number[key] * segments + dim % segments
    order = np.argsort(operand, kind="stable")
    order = order_by(dim, none, order)
    order = order_by(spot, int(kinds.sum()) * segments, order)
    op = (np.flatnonzero(kinds) % OPERATORS).astype(np.uint8)
    lists = OpLists(
        pivot=_starts(kinds.reshape(-1, OPERATORS).sum(1)).astype(np.int32),
        op=op,
        segment=_starts(np.bincount(spot, minlength=len(op) * segments)).astype(np.int32),
        signature=np.zeros(len(op) * segments if segments > 1 else 0, np.uint64),
        dim=dim[order],
        operand=operand[order],
        high=other[order] if np.any(op >= WITHIN) else np.empty(0, np.int64),
        counter=counter[order],
        bit=bit[order] if bitmaps else np.empty(0, np.uint8),
        first=counters,
        start=_bitmap(size, words, begin) if bitmaps else size.astype(_counter(int(size.max()))),
        slot=given.slot[np.repeat(conjunction, words)],
        up=_heads(words, begin, at) if bitmaps else np.empty(0, np.int32),
        conjunction=np.repeat(conjunction, words) if bitmaps else np.empty(0, np.int32),
    )
    set_signatures(lists, segments)
    return lists


def _bitmap(clauses: NDArray[np.int32], words: Index, begin: Index) -> NDArray[np.uint64]:
    """Start values of bitmaps: a bit per clause, or in the head of a large one a bit per word."""
    bits = np.where(words > 1, words - 1, clauses).astype(np.uint64)
    out = np.empty(begin[-1], np.uint64)
    out[begin[:-1]] = (np.uint64(1) << bits) - np.uint64(1)
    rest = np.arange(begin[-1]) - np.repeat(begin[:-1], words)  # 0: the head
    left = np.minimum(np.repeat(clauses, words) - (rest - 1) * WORD, WORD).astype(np.uint64)
    out[rest > 0] = ((np.uint64(1) << left) - np.uint64(1))[rest > 0]
    return out


def _heads(words: Index, begin: Index, at: Index) -> NDArray[np.int32]:
    """For the words of a large bitmap their head, else -1."""
    out = np.repeat(at, words).astype(np.int32)
    out[begin[:-1]] = -1
    return out


def _counter(most: int) -> type[np.uint8] | type[np.int32]:
    """Small counters, if they suffice: those of a pivot then lie in one or two cache lines."""
    return np.uint8 if most < 255 else np.int32


def _visits(lists: OpLists, frequency: NDArray[np.float64]) -> float:
    """How often events read a counter."""
    counters = np.diff(lists.first)[:-1]
    return float(counters @ frequency[: len(counters)])


def _bitmaps(lists: OpLists) -> bool:
    return bool(lists.start.dtype == np.uint64)


def _starts(sizes: NDArray[Any]) -> Index:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _plus(counts: NDArray[np.float64], dims: NDArray[np.int32], count: int) -> NDArray[np.float64]:
    """Adds to counts by dimension."""
    if count > len(counts):
        counts = np.concatenate([counts, np.zeros(count - len(counts))])
    if len(dims) > len(counts):
        return counts + np.bincount(dims, minlength=len(counts))
    np.add.at(counts, dims, 1.0)
    return counts


def _tests(filters: FlatFilters) -> tuple[Any, ...]:
    return filters.start, filters.dim, filters.low, filters.high, filters.flags


def _check_lists(lists: OpLists, segments: int) -> None:
    assert lists.pivot[-1] == len(lists.op) and lists.segment[-1] == len(lists.dim)
    assert lists.first[-1] == len(lists.start) == len(lists.slot)
    spot = np.repeat(np.arange(len(lists.segment) - 1), np.diff(lists.segment))
    same = spot[1:] == spot[:-1]
    dim, operand = lists.dim, lists.operand
    ordered = (dim[1:] > dim[:-1]) | ((dim[1:] == dim[:-1]) & (operand[1:] >= operand[:-1]))
    assert np.all(ordered[same]), "a segment is out of order"
    assert np.all(dim % segments == spot % segments)
    own = np.repeat(np.arange(len(lists.pivot) - 1), np.diff(lists.pivot))[spot // segments]
    assert np.all(lists.counter < np.diff(lists.first)[own]), "an entry counts under another pivot"
    if segments > 1:
        for s, d, x in zip(spot.tolist(), dim.tolist(), operand.tolist(), strict=True):
            bit = signature_bit(d, x, lists.op[s // segments] == 0)
            assert lists.signature[s] >> bit & np.uint64(1), "a signature denies an entry"
    if not _bitmaps(lists):
        entries = np.bincount(lists.first[own] + lists.counter, minlength=len(lists.start))
        never = np.iinfo(lists.start.dtype).max
        assert np.all((lists.start == entries) | (lists.start == never)), "a counter starts wrong"
