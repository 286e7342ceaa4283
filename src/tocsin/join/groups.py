"""Joins of two tables: subscriptions of one signature that select by the same two attributes.

    changed rows ─► (subscription, change)      candidates: `Dynamic` for equalities, hot groups for bands
                 ─► filters of the changed side verified, where ranges do not say all
                 ─► (subscription, joined rows) rows of the other table in the range that were alive
                 ─► further bands               verified

Every range is exact for those who have it: what is left to verify is what it does not say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tocsin.join import portions
from tocsin.join._kernels.differences import BandPlan, band_matches, band_pairs, differences
from tocsin.join._kernels.matches import Found, Moments, affected_pairs, equality_matches
from tocsin.join._kernels.orders import Order
from tocsin.join.keys import KeySpec
from tocsin.join.members import Matches, Members, Tuples, Verify
from tocsin.join.orders import Ordered
from tocsin.join.plan_choice import Dynamic
from tocsin.join.shared import OrderSpec, SharedTable
from tocsin.join.signature import BandEdge, Signature
from tocsin.join.strategies.base import better_anew
from tocsin.join.strategies.storage import JoinStorage, Ranges
from tocsin.model.columns import Index, Mask, longer
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.stab.groups import HotSets
from tocsin.stab.intervals import IntervalIndex
from tocsin.store.tables import Signed

__all__ = ["BandGroup", "EqualityGroup", "PairGroup", "Unbounded"]

Attributes = tuple[str | None, ...]
Unbounded = Callable[[int, int, Index, Index], Mask]  # slot, band, left rows, right rows: in whole numbers


def _nothing(size: int) -> Found:
    """Room for matches."""
    return Found._make([*(np.empty(size, np.int64) for _ in range(4)), np.zeros(2, np.int64)])


class PairGroup(ABC):
    """Subscriptions over two tables; ranges by place, then by band of the signature."""

    keys: tuple[KeySpec, KeySpec]  # by place

    def __init__(self, signature: Signature, attributes: Attributes) -> None:
        self.signature, self.attributes = signature, attributes
        self.members = Members(2 + len(signature.bands))

    def add(self, slots: Index, low: Index, high: Index) -> Index:
        """Take subscriptions in, no range of them empty; returns their numbers."""
        numbers = self.members.enter(slots, low, high)
        self._enter(numbers, low, high)
        return numbers

    def remove(self, numbers: Index) -> None:
        self.members.leave(numbers)
        self._leave(numbers)

    def orders(self) -> list[OrderSpec]:
        """What is needed of the tables."""
        return [OrderSpec(self.signature.tables[p], self.keys[p], self.attributes[p]) for p in (0, 1)]

    def find(
        self,
        origin: int,
        signed: Signed,
        tables: Sequence[SharedTable],
        verify: Verify,
        unbounded: Unbounded,
    ) -> Iterator[Matches]:
        """Who gets or loses which joined rows, as rows of the table at a place come and go; in portions."""
        mine, other = tables[origin], tables[1 - origin]
        keys, values = mine.codes(self.keys[origin]), mine.codes(self.attributes[origin])
        chosen = np.flatnonzero(keys.valid[signed.slot] & values.valid[signed.slot])
        rows = signed.slot[chosen]
        order = other.order(self.keys[1 - origin], self.attributes[1 - origin])
        asked = keys.code[rows], values.code[rows]
        moments = Moments(signed.position[chosen], origin == 1)
        for query, change in self._pairs(origin, order, *asked):
            keep = verify(origin, self.members.slot[query], rows[change])
            pairs = (query, change) if keep is None else (query[keep], change[keep])
            for found in self._rows(origin, order.arrays, asked[0], pairs, moments, other):
                matches, count = found.size.tolist()
                joined = rows[found.change[:count]], found.row[:count]
                by_place = joined if origin == 0 else joined[::-1]
                tuples = Tuples.changed(signed, by_place, chosen[found.change[:count]])
                whose, at = found.query[:matches], found.tuple[:matches]
                holds = self._bands_hold(tuples, whose, at, tables, unbounded)
                if holds is not None:
                    whose, at = whose[holds], at[holds]
                yield Matches(self.members.slot[whose], at, tuples)

    def _pairs(self, origin: int, order: Ordered, keys: Index, owns: Index) -> Iterator[tuple[Index, Index]]:
        """(query, change) by change; a portion is good until the next."""
        plan, kernel = self._plan(origin, order)
        room = len(self.members.slot) + 1
        query, change = (
            np.empty(room + min(1024 + 4 * len(keys), portions.MOST), np.int64) for _ in range(2)
        )
        done = count = 0
        while True:
            done, count = kernel(plan, order.arrays, keys, owns, done, count, room, query, change)
            if done == len(keys):
                yield query[:count], change[:count]
                return
            if count < portions.MOST:
                query, change = longer(query, 2 * len(query)), longer(change, 2 * len(query))
            else:
                yield query[:count], change[:count]
                count = 0

    def _rows(
        self,
        origin: int,
        order: Order,
        keys: Index,
        pairs: tuple[Index, Index],
        moments: Moments,
        other: SharedTable,
    ) -> Iterator[Found]:
        """Every pair with the rows of the other table, in portions."""
        kernel, first = self._matching(origin)
        lives, (stamps, base) = other.lives(), other.stamps(len(keys))
        size = 1024 + min(2 * len(pairs[0]), portions.MOST)
        found = _nothing(size)
        done = 0
        while True:
            done = kernel(
                *first[:-2], order, keys, *first[-2:], *pairs, done, moments, lives, stamps, base, found
            )
            if done == len(pairs[0]):
                yield found
                return
            if found.size[0] < portions.MOST:
                size *= 2
                found = Found._make([*(longer(part, size) for part in found[:4]), found.size])
            else:
                yield found
                found, (stamps, base) = _nothing(size), other.stamps(len(keys))

    def _bands_hold(
        self, tuples: Tuples, query: Index, at: Index, tables: Sequence[SharedTable], unbounded: Unbounded
    ) -> Mask | None:
        """Bands that were not searched by; and where whole numbers leave int64, all of them, in Python."""
        holds: Mask | None = None
        for number, band in enumerate(self.signature.bands):
            off, valid = _differences(band, tuples, tables)
            edge = (off == LEAST) | (off == GREATEST) if not band.double else np.zeros(len(off), np.bool_)
            if number == 0 and not self.signature.edges and not edge.any():
                continue
            low, high = self.members.low[2 + number][query], self.members.high[2 + number][query]
            mine = valid[at] & (low <= off[at]) & (off[at] <= high)
            left, right = (tuples.rows[place][at] for place in band.places)
            asked = np.flatnonzero(edge[at] & valid[at])
            for q in np.unique(query[asked]).tolist():
                own = asked[query[asked] == q]
                mine[own] = unbounded(int(self.members.slot[q]), number, left[own], right[own])
            holds = mine if holds is None else holds & mine
        return holds

    @abstractmethod
    def _plan(self, origin: int, order: Ordered) -> tuple[Any, Any]:
        """What finds pairs: arguments and kernel."""

    @abstractmethod
    def _matching(self, origin: int) -> tuple[Any, tuple[Any, ...]]:
        """What finds rows: kernel, and its arguments before `order` and behind `keys` (the last two)."""

    @abstractmethod
    def _enter(self, numbers: Index, low: Index, high: Index) -> None: ...

    @abstractmethod
    def _leave(self, numbers: Index) -> None: ...

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Counts worth looking at."""

    def _check(self) -> None:
        self.members._check()


class EqualityGroup(PairGroup):
    """Equal keys; the plan is chosen for each changed row."""

    def __init__(self, signature: Signature, attributes: Attributes) -> None:
        super().__init__(signature, attributes)
        self.keys = signature.edges[0].keys
        self.storage = JoinStorage()
        self.strategy = Dynamic(self.storage)

    def _enter(self, numbers: Index, low: Index, high: Index) -> None:
        self.strategy.add(numbers, Ranges(low[1], high[1], low[0], high[0]))

    def _leave(self, numbers: Index) -> None:
        self.strategy.remove(numbers)

    def _plan(self, origin: int, order: Ordered) -> tuple[Any, Any]:
        tables = list(self.storage.tables)
        tables[1 - origin] = order
        self.storage.tables = (tables[0], tables[1])
        with np.errstate(invalid="ignore"):  # estimates may leave int64
            return self.strategy.plan(origin), affected_pairs

    def _matching(self, origin: int) -> tuple[Any, tuple[Any, ...]]:
        return equality_matches, (self.members.low[1 - origin], self.members.high[1 - origin])

    def stats(self) -> dict[str, Any]:
        return self.strategy.stats()

    def _check(self) -> None:
        super()._check()
        self.strategy._check()
        assert len(self.strategy) == len(self.members)


class BandGroup(PairGroup):
    """Bands without an equality: hot groups of differences, and the scattered by what they select."""

    def __init__(self, signature: Signature, attributes: Attributes) -> None:
        super().__init__(signature, attributes)
        self.band = signature.bands[0]
        self.keys = self.band.keys if self.band.places == (0, 1) else self.band.keys[::-1]
        self.sets = (HotSets(), HotSets())  # by place of the change
        self.scattered = (IntervalIndex(), IntervalIndex())

    def _enter(self, numbers: Index, low: Index, high: Index) -> None:
        if better_anew(len(numbers), len(self.members)):
            numbers, low, high = self._anew()
        for place in (0, 1):
            mine = Ranges(low[2], high[2], low[place], high[place])
            self._scatter(place, *self.sets[place].add(numbers, mine))

    def _anew(self) -> tuple[Index, Index, Index]:
        """Structures without subscriptions, and all that are to be in them."""
        self.sets, self.scattered = (HotSets(), HotSets()), (IntervalIndex(), IntervalIndex())
        numbers = self.members.numbers()
        return numbers, self.members.low[:, numbers], self.members.high[:, numbers]

    def _leave(self, numbers: Index) -> None:
        if better_anew(len(numbers), len(self.members)):
            self._enter(*self._anew())
            return
        for place in (0, 1):
            self._scatter(place, *self.sets[place].remove(numbers))

    def _scatter(self, place: int, gone: Index, fresh: Index) -> None:
        if len(gone):
            self.scattered[place].remove(gone)
        if len(fresh):
            ranges = self.sets[place].ranges_of(fresh)
            self.scattered[place].add(fresh, ranges.own_low, ranges.own_high)

    def _arguments(self, origin: int) -> BandPlan:
        low, high = self.members.low[2], self.members.high[2]
        found = np.empty(len(self.members.slot) + 1, np.int64)
        structures = self.sets[origin].index.arrays, self.scattered[origin].arrays
        return BandPlan(*structures, low, high, found, self.band.double, origin == self.band.places[1])

    def _plan(self, origin: int, order: Ordered) -> tuple[Any, Any]:
        return self._arguments(origin), band_pairs

    def _matching(self, origin: int) -> tuple[Any, tuple[Any, ...]]:
        values = self.members.low[1 - origin], self.members.high[1 - origin]
        return band_matches, (self._arguments(origin), *values)

    def stats(self) -> dict[str, Any]:
        hot = [len(sets.index.active) for sets in self.sets]
        return {"strategy": "hotspot", "queries": len(self.members), "hot_groups": hot}

    def _check(self) -> None:
        super()._check()
        for sets, scattered in zip(self.sets, self.scattered, strict=True):
            sets._check()
            scattered._check()
            assert len(sets.index) + len(scattered) == len(self.members)


def _differences(band: BandEdge, tuples: Tuples, tables: Sequence[SharedTable]) -> tuple[Index, Mask]:
    """Left - right of joined rows, as codes, and where there are both."""
    sides = [tables[place].codes(key) for place, key in zip(band.places, band.keys, strict=True)]
    left, right = (tuples.rows[place] for place in band.places)
    out = np.empty(len(left), np.int64)
    differences(band.double, sides[0].code[left], sides[1].code[right], out)
    return out, sides[0].valid[left] & sides[1].valid[right]
