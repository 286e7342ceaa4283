"""What all indexes with one numbering share: coding, slots, and the cases that need no index.

A subclass sees only conjunctions of at least one test (`_insert`, `_delete`, `_clear`) and events in
the same codes (`_match`). Here are

    filters that hold always, or never
    several conjunctions of one slot, told once
    texts that get new ranks: everything is taken out and put in again
    events with a number that is no double, in an open stream: rare, and matched by the plain scan
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from tocsin.match._kernels.scan import scan
from tocsin.match.base import MatchIndex, pack
from tocsin.match.coding import CodedEvents, Coding, Conjunctions
from tocsin.model.columns import Index, Mask, Rows
from tocsin.predicate.events import events_of
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT, FlatFilters

__all__ = ["CodedIndex", "concatenated", "plain_filters"]


class CodedIndex(MatchIndex):
    """An index over conjunctions in codes of its own; a subclass says how they are found."""

    def __init__(self) -> None:
        self._coding = Coding()
        self._batches: list[tuple[Index, FlatFilters]] = []
        self._used: set[int] = set()
        self._always: set[int] = set()
        self._several = False  # has a slot more than one conjunction?
        self._plain: Conjunctions | None = None  # everything, for the scan; made when asked for

    # -- for subclasses --------------------------------------------------------------------------

    @abstractmethod
    def _insert(self, added: Conjunctions) -> None:
        """Take conjunctions in, each of at least one test."""

    @abstractmethod
    def _delete(self, slots: Index) -> None:
        """Let the conjunctions of these slots go; a slot may have none."""

    @abstractmethod
    def _clear(self) -> None:
        """Let all go."""

    @abstractmethod
    def _match(self, events: CodedEvents) -> Index:
        """Matching (slot, event), packed; a pair may occur once per conjunction of its slot."""

    # -- the protocol ----------------------------------------------------------------------------

    def add(self, slots: Index, filters: FlatFilters) -> None:
        slots = np.asarray(slots, np.int64)
        wanted = slots.tolist()
        assert not self._used.intersection(wanted), "a slot is in use"
        moved = self._coding.extend(filters)
        self._batches.append((slots, filters))
        self._used.update(wanted)
        self._plain = None
        if moved:
            self._clear()
            for batch in self._batches:
                self._enter(*batch)
        else:
            self._enter(slots, filters)

    def remove(self, slots: Index) -> None:
        slots = np.asarray(slots, np.int64)
        gone = set(slots.tolist())
        assert gone <= self._used, "a slot is not in use"
        self._used -= gone
        self._always -= gone
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
        coded = self._coding.events(events_of(rows))
        odd = np.zeros(len(rows), np.bool_)
        odd[np.searchsorted(coded.start, np.flatnonzero(coded.between), "right") - 1] = True
        if odd.any():
            found = self._apart(coded, np.flatnonzero(~odd), np.flatnonzero(odd))
        else:
            found = self._match(coded)
        if self._several:
            found = np.unique(found)
        every = [pack(slot, np.arange(len(rows))) for slot in self._always]
        return np.concatenate([found, *every]) if every else found

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
        assert self._always <= self._used

    # -- inside ----------------------------------------------------------------------------------

    def _enter(self, slots: Index, filters: FlatFilters) -> None:
        conjunctions = self._coding.conjunctions(slots, filters)
        sizes = np.diff(conjunctions.start)
        self._always.update(conjunctions.slot[sizes == 0].tolist())
        self._several = self._several or bool(np.any(np.diff(filters.owner) == 0))
        chosen = ~np.isin(conjunctions.slot, conjunctions.slot[sizes == 0])
        if not chosen.all():
            conjunctions = conjunctions.take(np.flatnonzero(chosen))
        if len(conjunctions.slot):
            self._insert(conjunctions)

    def _apart(self, coded: CodedEvents, usual: Index, odd: Index) -> Index:
        """The usual events by the index, the odd ones by the scan."""
        if self._plain is None:
            parts = [self._coding.conjunctions(*batch) for batch in self._batches]
            self._plain = concatenated(parts)
        found = []
        for where, packed in (
            (usual, self._match(coded.take(usual))),
            (odd, scan(self._plain, coded.take(odd))),
        ):
            found.append(pack(packed >> 32, where[packed & 0xFFFFFFFF]))
        several = np.concatenate(found)
        return several[~np.isin(several >> 32, np.array(sorted(self._always), np.int64))]


def concatenated(parts: list[Conjunctions]) -> Conjunctions:
    """Conjunctions one after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        nothing = np.empty(0, np.int64)
        return Conjunctions(
            nothing.astype(np.int32),
            np.zeros(1, np.int64),
            nothing.astype(np.int32),
            nothing,
            nothing,
            nothing.astype(np.uint8),
        )
    sizes = np.concatenate([np.diff(part.start) for part in parts])
    return Conjunctions(
        np.concatenate([part.slot for part in parts]),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.concatenate([part.dim for part in parts]),
        np.concatenate([part.low for part in parts]),
        np.concatenate([part.high for part in parts]),
        np.concatenate([part.flags for part in parts]),
    )


def plain_filters(filters: FlatFilters, allowed: int = 0) -> Mask:
    """Filters all of whose tests have no flags but the allowed ones."""
    bad = (filters.flags & ~np.uint8(allowed) & np.uint8(NEGATED | ABSENT | OR_NEXT)) != 0
    out = np.ones(filters.count, np.bool_)
    out[np.repeat(filters.owner, filters.sizes)[bad]] = False
    return out


def _arrays(value: Any) -> list[Any]:
    """All arrays in a nest of tuples and dicts."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        return [
            a for name, part in value.items() if name not in ("_batches", "_plain") for a in _arrays(part)
        ]
    if isinstance(value, tuple | list):
        return [array for part in value for array in _arrays(part)]
    return []
