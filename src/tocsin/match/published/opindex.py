"""OpIndex: lists by pivot attribute, then by operator, and a counter for each conjunction.

An event with twenty of twenty thousand attributes can only match conjunctions all of whose
attributes it has. So each conjunction is filed under one of them, its *pivot*: the one that is rarest
in the stream. For every pivot that an event has, predicates are found in lists, one for each
operator, and count down the conjunctions they belong to; at zero a conjunction matches.

    event  B=6 C=3 E=9      pivots A, B, E: nobody's
                            pivot C:   =     C=6
                                       <=    B<=4  E<=12      8 <= 12: counts down S3
                                       >=    E>=3             9 >= 3:  counts down S3; two are left

The lists of a pivot are cut into segments by attribute, each with a signature of 64 bits that tells
for most attributes (with `=`: for most values) that there is nothing to be found.

Zhang, Chan, Tan, "An Efficient Publish/Subscribe Index for E-Commerce Databases" (O14), sections 4
to 6. What differs:

    operators       an interval is two predicates as in the paper, but one (its own list, by lower end)
                    among alternatives, where two would not be CNF; present, absent and "outside"
                    (`!=`, NOT BETWEEN) have lists of their own
    prefix, suffix, pattern   are intervals and presence of dimensions already when they come here:
                    sorted texts and the multi-pattern matcher of `Coding` stand for the trie of 6.2
    only IS NULL    a conjunction that needs no attribute has no pivot, and every event looks at it
    bitmaps         63 clauses in a word; up to 3969 by a word of words
    counters        are copied from their start when a pivot is looked at, not reset for every event
    updates         new conjunctions make a small index of their own, merged by size; deleted ones
                    keep their place, with a counter that never comes down to zero
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tocsin.match.coded import CodedIndex, concatenated
from tocsin.match.coding import CodedEvents, Conjunctions
from tocsin.match.published._kernels.opindex import (
    OPERATORS,
    WITHIN,
    WORD,
    Lists,
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

__all__ = ["Directory", "LayeredIndex", "OpIndex", "OpIndexBS"]

Built = TypeVar("Built")
_DELETED = np.uint64(1 << 63)


@dataclass
class _Layer(Generic[Built]):
    given: Conjunctions
    alive: Mask
    built: Built | None = None


class LayeredIndex(CodedIndex, Generic[Built]):
    """An index of immutable layers, each less than half as large as the one before.

    A layer is built when it is first asked; n conjunctions added one by one are built into O(log n)
    layers each. A layer more than half of which was deleted is built again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._layers: list[_Layer[Built]] = []

    @abstractmethod
    def _build(self, given: Conjunctions) -> Built:
        """The index of some conjunctions."""

    @abstractmethod
    def _forget(self, built: Built, slots: Index) -> None:
        """Let the conjunctions of these slots match no more."""

    @abstractmethod
    def _ask(self, built: Built, events: CodedEvents) -> Index:
        """Matching (slot, event), packed."""

    def _insert(self, added: Conjunctions) -> None:
        while self._layers and 2 * len(added.slot) > len(self._layers[-1].given.slot):
            added = concatenated([_living(self._layers.pop()), added])
        self._layers.append(_Layer(added, np.ones(len(added.slot), np.bool_)))

    def _delete(self, slots: Index) -> None:
        kept = []
        for layer in self._layers:
            layer.alive &= ~np.isin(layer.given.slot, slots)
            if 2 * layer.alive.sum() < len(layer.alive):
                given = _living(layer)
                layer = _Layer(given, np.ones(len(given.slot), np.bool_))
            elif layer.built is not None:
                self._forget(layer.built, slots)
            if len(layer.given.slot):
                kept.append(layer)
        self._layers = kept

    def _clear(self) -> None:
        self._layers = []

    def _built(self) -> list[Built]:
        for layer in self._layers:
            if layer.built is None:
                layer.built = self._build(_living(layer))
        return [layer.built for layer in self._layers if layer.built is not None]

    def _match(self, events: CodedEvents) -> Index:
        found = [self._ask(built, events) for built in self._built()]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "layers": len(self._layers)}

    def _check(self) -> None:
        super()._check()
        for layer in self._layers:
            assert len(layer.alive) == len(layer.given.slot) > 0
            assert set(layer.given.slot[layer.alive].tolist()) <= self._used - self._always
        sizes = [len(layer.given.slot) for layer in self._layers]
        assert 2 * sum(layer.alive.sum() for layer in self._layers) >= sum(sizes), "more than half is dead"


def _living(layer: _Layer[Built]) -> Conjunctions:
    return layer.given if layer.alive.all() else layer.given.take(np.flatnonzero(layer.alive))


@dataclass(frozen=True)
class Directory:
    """How a list is cut, and when pivots are chosen again."""

    segments: int = 32  # b in the paper; 1: neither segments nor signatures
    settled: int = 16  # entries seen per dimension before the stream's frequencies count
    gain: float = 0.5  # lists are built again if their pivots become this much rarer


class OpIndex(LayeredIndex[tuple[Lists, ...]]):
    """Pivot lists with segments and signatures.

    With m attributes in an event, p = 3 m lists to look at: O(m p) signatures, a binary search for
    those that do not say no, and a step for each predicate that matches. Space is linear in predicates.

    >>> index = OpIndex()
    >>> one, high = np.ones(4, np.int64), np.array([4, 12, 9, 7])
    >>> index._insert(Conjunctions(np.array([3, 5], np.int32), np.array([0, 2, 4]),
    ...     np.array([1, 4, 2, 4], np.int32), one, high, np.zeros(4, np.uint8)))
    >>> events = CodedEvents(np.array([0, 2]), np.array([1, 4], np.int32), np.array([4, 9]),
    ...     np.zeros(2, np.bool_), 5)
    >>> (index._match(events) >> 32).tolist()
    [3]
    """

    directory: ClassVar[Directory] = Directory()
    refuses = "condition of more than 3,969 clauses with alternatives over several attributes"

    def __init__(self, directory: Directory | None = None) -> None:
        super().__init__()
        self._directory = directory or self.directory
        self._asked = np.zeros(0)  # by dimension: tests
        self._seen = np.zeros(0)  # by dimension: entries of events, old ones worth less
        self._total = self._look = 0.0  # entries seen; as many as must be before pivots are looked at again

    def supports(self, filters: FlatFilters) -> Mask:
        """All but a CNF of more than 3969 clauses."""
        count, mixed = count_clauses(Conjunctions(filters.owner, *_tests(filters)))
        out = np.ones(filters.count, np.bool_)
        out[filters.owner[mixed & (count > WORD * WORD)]] = False
        return out

    # -- level 1: pivots -------------------------------------------------------------------------

    def rarity(self, dims: int) -> NDArray[np.float64]:
        """How often each dimension is in an event; until enough are seen, in a subscription."""
        counts = self._seen if self._look else self._asked
        return np.concatenate([counts, np.zeros(max(0, dims - len(counts)))])

    def _insert(self, added: Conjunctions) -> None:
        self._asked = _plus(self._asked, added.dim, int(added.dim.max()) + 1)
        super()._insert(added)

    def _clear(self) -> None:
        super()._clear()
        self._asked = np.zeros(0)

    def _match(self, events: CodedEvents) -> Index:
        self._seen = _plus(self._seen, events.dim, events.dims)
        self._total += len(events.dim)
        if self._total >= max(self._look, self._directory.settled * max(1, events.dims)):
            self._reconsider()
        return super()._match(events)

    def _reconsider(self) -> None:
        """Build layers again whose pivots were badly chosen for the stream as it is now."""
        self._look = 2 * self._total
        rarity = self.rarity(len(self._asked))
        for layer in self._layers:
            if layer.built is not None:
                _, _, best = pivot_clauses(layer.given, rarity)
                now = sum(_visits(lists, rarity) for lists in layer.built)
                if best.sum() < self._directory.gain * now:
                    layer.built = None
        self._seen, self._total = self._seen / 2, self._total / 2

    # -- level 2: lists by operator --------------------------------------------------------------

    def _build(self, given: Conjunctions) -> tuple[Lists, ...]:
        count, mixed = count_clauses(given)
        rarity, segments = self.rarity(int(given.dim.max()) + 1), self._directory.segments
        if not mixed.any():
            return (_lists(given, count, rarity, segments),)
        both = (np.flatnonzero(~mixed), np.flatnonzero(mixed))
        return tuple(_lists(given.take(own), count[own], rarity, segments) for own in both if len(own))

    def _forget(self, built: tuple[Lists, ...], slots: Index) -> None:
        for lists in built:
            gone = np.isin(lists.slot, slots)
            lists.start[gone] = _DELETED if _bitmaps(lists) else np.iinfo(lists.start.dtype).max

    def _ask(self, built: tuple[Lists, ...], events: CodedEvents) -> Index:
        found = []
        for lists in built:
            if _bitmaps(lists):
                told = np.zeros(len(lists.slot), np.int32)
                found.append(clear_bits(lists, events, self._directory.segments, told))
            else:
                found.append(count_down(lists, events, self._directory.segments))
        return np.concatenate(found) if len(found) != 1 else found[0]

    # -- looking at it ---------------------------------------------------------------------------

    def pivots(self) -> dict[int, list[int]]:
        """Slots by pivot dimension; those without one under -1."""
        out: dict[int, list[int]] = {}
        for lists in (lists for built in self._built() for lists in built):
            none = len(lists.first) - 2
            for pivot in np.flatnonzero(np.diff(lists.first)).tolist():
                own = slice(lists.first[pivot], lists.first[pivot + 1])
                heads = lists.slot[own] if not _bitmaps(lists) else lists.slot[own][lists.up[own] < 0]
                out.setdefault(-1 if pivot == none else pivot, []).extend(heads.tolist())
        return out

    def stats(self) -> dict[str, Any]:
        every = [lists for built in self._built() for lists in built]
        return {
            **super().stats(),
            "pivots": len(self.pivots()),
            "lists": sum(len(lists.op) for lists in every),
            "entries": sum(len(lists.dim) for lists in every),
        }

    def _bytes(self) -> int:
        return sum(array.nbytes for built in self._built() for lists in built for array in lists)

    def _check(self) -> None:
        super()._check()
        for lists in (lists for built in self._built() for lists in built):
            _check_lists(lists, self._directory.segments)


class OpIndexBS(OpIndex):
    """The same without segments and signatures: a binary search in every list for every attribute.

    An event's attributes ascend, so a search goes on where the one before has ended; a short list is
    merged with them instead. O14, section 7.

    >>> OpIndexBS().directory.segments
    1
    """

    directory: ClassVar[Directory] = Directory(segments=1)


def _lists(given: Conjunctions, clauses: Index, rarity: NDArray[np.float64], segments: int) -> Lists:
    """Lists over conjunctions that all have counters, or all have bitmaps. O(n log n) in entries."""
    none, bitmaps = len(rarity), bool(np.any(given.flags & OR_NEXT))
    first, last, _ = pivot_clauses(given, rarity)
    conjunction, pivot = places_of(first, last, given.dim, none)
    order = order_by(pivot, none + 1, np.arange(len(pivot)))
    conjunction, pivot = conjunction[order], pivot[order]

    words = np.ones(len(pivot), np.int64)  # counters of a place: with many clauses a head and its words
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
    lists = Lists(
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
    """What bitmaps start with: a bit per clause, or in the head of a large one a bit per word."""
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
    """Small counters, if they do: those of a pivot then lie in one or two cache lines."""
    return np.uint8 if most < 255 else np.int32


def _visits(lists: Lists, rarity: NDArray[np.float64]) -> float:
    """How often events look at a counter."""
    counters = np.diff(lists.first)[:-1]
    return float(counters @ rarity[: len(counters)])


def _bitmaps(lists: Lists) -> bool:
    return bool(lists.start.dtype == np.uint64)


def _starts(sizes: NDArray[Any]) -> Index:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _plus(counts: NDArray[np.float64], dims: NDArray[np.int32], count: int) -> NDArray[np.float64]:
    """Counts by dimension, with more of them."""
    if count > len(counts):
        counts = np.concatenate([counts, np.zeros(count - len(counts))])
    if len(dims) > len(counts):
        return counts + np.bincount(dims, minlength=len(counts))
    np.add.at(counts, dims, 1.0)
    return counts


def _tests(filters: FlatFilters) -> tuple[Any, ...]:
    return filters.start, filters.dim, filters.low, filters.high, filters.flags


def _check_lists(lists: Lists, segments: int) -> None:
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
