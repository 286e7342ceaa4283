"""Joins of three tables and more: changed rows go through the join tree once for all subscriptions.

    changed rows of `sales` ─► x items ─► x shops ─► joined rows ─► who selects them?      sales, items, shops
                                      │         └─► x regions ─► ..                      .. and regions
                                      └─► x brands ─► ..                                 sales, items, brands

Each step joins on one table, keeps the rows that were alive at the change, and drops those that no
subscription could select: each group knows the union of its ranges at each place. Signatures go the same way
as long as they can, so that what their trees have in common from the changed table on is joined once. At the
end a joined row is looked up at the place where the fewest ranges hold its value, and those found are checked
at all others.

Cost: O(joined rows x (log n + ranges at their best place)), however many subscriptions there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tocsin.join import portions
from tocsin.join._kernels.tuples import cheapest_place, extend_rows, tuple_matches
from tocsin.join.groups import Attributes
from tocsin.join.keys import KeySpec
from tocsin.join.members import Matches, Members, Tuples
from tocsin.join.shared import OrderSpec, SharedTable
from tocsin.join.signature import Edge, Signature
from tocsin.model.columns import Index, Mask, longer
from tocsin.stab.intervals import IntervalIndex
from tocsin.store.tables import Signed

__all__ = ["Hop", "TupleGroup", "Union", "Walk", "joined_tuples", "walk"]

_NONE = np.empty(0, np.int64)


class Union:
    """The values that some range holds, as disjoint ranges in order; what goes may stay for a while.

    >>> union = Union()
    >>> union.add(np.array([1, 3, 8]), np.array([4, 5, 9]))
    >>> union.low.tolist(), union.high.tolist(), union.holds(np.array([5, 6, 8])).tolist()
    ([1, 8], [5, 9], [True, False, True])
    """

    def __init__(self) -> None:
        self.low, self.high = _NONE, _NONE

    def add(self, low: Index, high: Index) -> None:
        """Ranges more."""
        if not len(low):
            return
        low, high = np.concatenate([self.low, low]), np.concatenate([self.high, high])
        by = np.argsort(low, kind="stable")
        low, reach = low[by], np.maximum.accumulate(high[by])
        fresh = np.ones(len(low), np.bool_)
        fresh[1:] = low[1:] > reach[:-1]
        first = np.flatnonzero(fresh)
        self.low, self.high = low[first], reach[np.append(first[1:], len(low)) - 1]

    def holds(self, values: Index) -> Mask:
        """Which of the values are in it?"""
        if not len(self.low):
            return np.zeros(len(values), np.bool_)
        at = np.searchsorted(self.low, values, side="right") - 1
        return (at >= 0) & (values <= self.high[at])


class TupleGroup:
    """Subscriptions of a signature that select by the same attribute at each place."""

    def __init__(self, signature: Signature, attributes: Attributes) -> None:
        self.signature, self.attributes = signature, attributes
        self.members = Members(len(signature.tables))
        self.unions = [Union() for _ in attributes]
        self.places = [p for p, name in enumerate(attributes) if name is not None] or [0]
        self.indexes = [IntervalIndex() for _ in self.places]
        self._ends: tuple[Index, Index] = (np.empty((0, 0), np.int64), np.empty((0, 0), np.int64))
        self._gone = self._changed = 0  # since the unions, and the ends, were right
        self.looked_up = np.zeros(len(self.places), np.int64)

    def add(self, slots: Index, low: Index, high: Index) -> Index:
        """Take subscriptions in, no range of them empty; returns their numbers."""
        numbers = self.members.enter(slots, low, high)
        for place, index in zip(self.places, self.indexes, strict=True):
            index.add(numbers, low[place], high[place])
        for place, union in enumerate(self.unions):
            union.add(low[place], high[place])
        self._changed += len(slots)
        return numbers

    def remove(self, numbers: Index) -> None:
        self.members.leave(numbers)
        for index in self.indexes:
            index.remove(numbers)
        self._gone += len(numbers)
        self._changed += len(numbers)
        if self._gone > len(self.members):
            self._gone, left = 0, self.members.numbers()
            self.unions = [Union() for _ in self.attributes]
            for place, union in enumerate(self.unions):
                union.add(self.members.low[place][left], self.members.high[place][left])

    def orders(self) -> list[OrderSpec]:
        """What is needed of the tables."""
        tables = self.signature.tables
        return [
            OrderSpec(tables[p], k, None)
            for edge in self.signature.edges
            for p, k in zip(edge.places, edge.keys, strict=True)
        ]

    def could_select(self, place: int, rows: Index, table: SharedTable) -> Mask:
        """Rows that may be selected by somebody."""
        coded = table.codes(self.attributes[place])
        return coded.valid[rows] & self.unions[place].holds(coded.code[rows])

    def match(self, tuples: Tuples, tables: Sequence[SharedTable]) -> Iterator[Matches]:
        """Who selects which joined rows, by ranges alone; in portions."""
        coded = [table.codes(name) for table, name in zip(tables, self.attributes, strict=True)]
        both = list(zip(coded, tuples.rows, strict=True))
        values = np.stack([c.code[rows] for c, rows in both])
        valid = np.logical_and.reduce([c.valid[rows] for c, rows in both])
        best = np.zeros(len(tuples.sign), np.int64)
        cheapest_place(*self._sorted_ends(), np.ascontiguousarray(values[self.places]), best)
        for k in range(len(self.places)):
            for query, at in self._match_by(k, np.flatnonzero(valid & (best == k)), values):
                yield Matches(self.members.slot[query], at, tuples)

    def _match_by(self, k: int, chosen: Index, values: Index) -> Iterator[tuple[Index, Index]]:
        self.looked_up[k] += len(chosen)
        if not len(chosen):
            return
        scratch = np.empty(len(self.members) + 1, np.int64)
        size = len(scratch) + 1024 + min(2 * len(chosen), portions.MOST)
        query, at = (np.empty(size, np.int64) for _ in range(2))
        arrays, place = self.indexes[k].arrays, self.places[k]
        low, high = self.members.low, self.members.high
        done = count = 0
        while True:
            done, count = tuple_matches(
                arrays, place, low, high, values, chosen, done, count, scratch, query, at
            )
            if done == len(chosen):
                yield query[:count], at[:count]
                return
            if count < portions.MOST:
                query, at = longer(query, 2 * len(query)), longer(at, 2 * len(query))
            else:
                yield query[:count], at[:count].copy()
                count = 0

    def _sorted_ends(self) -> tuple[Index, Index]:
        """By place with an attribute, all low ends and all high ends, about as they are now."""
        if self._changed * 16 > self._ends[0].shape[1]:
            numbers = self.members.numbers()
            low, high = (ends[self.places][:, numbers] for ends in (self.members.low, self.members.high))
            self._ends = np.sort(low, axis=1), np.sort(high, axis=1)
            self._changed = 0
        return self._ends

    def stats(self) -> dict[str, Any]:
        by = [f"{p}.{self.attributes[p]}" if self.attributes[p] else "any" for p in self.places]
        return {
            "strategy": "tuples",
            "queries": len(self.members),
            "looked_up_by": dict(zip(by, self.looked_up.tolist(), strict=True)),
        }

    def _check(self) -> None:
        self.members._check()
        numbers = self.members.numbers()
        for index in self.indexes:
            index._check()
            assert len(index) == len(self.members)
        for place, union in enumerate(self.unions):
            assert np.all(union.low <= union.high) and np.all(union.high[:-1] < union.low[1:])
            assert union.holds(self.members.low[place][numbers]).all()
            assert union.holds(self.members.high[place][numbers]).all()


# -- through the tree ------------------------------------------------------------------------------


class Hop(NamedTuple):
    """A table that is joined on; tables are told apart by when they were joined on, from 0."""

    here: int  # the one it is joined on to
    key: KeySpec
    table: str
    other: KeySpec  # its own key
    after: bool  # the change: is the table seen as it is then?


class Walk(NamedTuple):
    """The way from changed rows of one place through a signature's tree."""

    groups: Sequence[TupleGroup]
    places: tuple[int, ...]  # as they are joined on; at the first, rows have changed
    hops: tuple[Hop, ...]


def walk(signature: Signature, origin: int, groups: Sequence[TupleGroup] = ()) -> Walk:
    """By names, not by the order in FROM, so that the ways of signatures are alike as far as they can be."""
    places, hops, left = [origin], list[Hop](), list(signature.edges)
    while left:
        edges = [edge for edge in left if len(set(edge.places) & set(places)) == 1]
        found = [_hop(signature, edge, places) for edge in edges]
        place, hop = min(found, key=lambda one: (one[1].here, one[1].table, one[1].other.columns, one[0]))
        left.remove(edges[found.index((place, hop))])
        places.append(place)
        hops.append(hop)
    return Walk(groups, tuple(places), tuple(hops))


def _hop(signature: Signature, edge: Edge, places: list[int]) -> tuple[int, Hop]:
    come = next(place for place in edge.places if place not in places)
    here = edge.other(come)
    keys = edge.key(here), edge.key(come)
    return come, Hop(places.index(here), keys[0], signature.tables[come], keys[1], come < places[0])


class _Joined(NamedTuple):
    """Rows of the tables that are joined so far, and the changed row that each is for."""

    tables: tuple[SharedTable, ...]
    rows: tuple[Index, ...]
    change: Index

    def take(self, index: Index | Mask) -> _Joined:
        return self._replace(rows=tuple(rows[index] for rows in self.rows), change=self.change[index])


def joined_tuples(
    walks: Sequence[Walk], table: str, signed: Signed, shared: Callable[[str], SharedTable]
) -> Iterator[tuple[Walk, Tuples]]:
    """Changed rows of a table with all rows that join, by walk; those that nobody can select are left out.

    Walks share all that they begin with: that is joined once, with what any of them wants.
    """
    begun = _Joined((shared(table),), (signed.slot,), np.arange(len(signed.slot)))
    yield from _joined_on(walks, begun.take(_wanted(walks, 0, begun)), signed, shared)


def _joined_on(
    walks: Sequence[Walk], begun: _Joined, signed: Signed, shared: Callable[[str], SharedTable]
) -> Iterator[tuple[Walk, Tuples]]:
    done = len(begun.rows)
    ways: dict[Hop | None, list[Walk]] = {}
    for one in walks:
        ways.setdefault(one.hops[done - 1] if done <= len(one.hops) else None, []).append(one)
    for hop, some in ways.items():
        mine = begun
        if len(ways) > 1:  # the others' rows are not wanted from here on
            mine = begun.take(np.logical_and.reduce([_wanted(some, i, begun) for i in range(done)]))
        if not len(mine.change):
            continue
        if hop is None:
            for one in some:
                by_place = dict(zip(one.places, mine.rows, strict=True))
                rows = tuple(by_place[place] for place in range(done))
                yield one, Tuples.changed(signed, rows, mine.change)
            continue
        for which, fresh in _rows_of(hop, mine, signed, shared(hop.table)):
            more = mine.take(which)
            more = _Joined((*more.tables, shared(hop.table)), (*more.rows, fresh), more.change)
            yield from _joined_on(some, more.take(_wanted(some, done, more)), signed, shared)


def _wanted(walks: Sequence[Walk], at: int, joined: _Joined) -> Mask:
    """Whose row of a table somebody may select."""
    out = np.zeros(len(joined.change), np.bool_)
    for one in walks:
        for group in one.groups:
            out |= group.could_select(one.places[at], joined.rows[at], joined.tables[at])
    return out


def _rows_of(hop: Hop, joined: _Joined, signed: Signed, come: SharedTable) -> Iterator[tuple[Index, Index]]:
    """(number of the joined row, row that joins it), of those alive at the change; in portions."""
    rows = joined.rows[hop.here]
    keys, order = joined.tables[hop.here].codes(hop.key), come.order(hop.other, None).arrays
    asked = keys.code[rows], keys.valid[rows], signed.position[joined.change], hop.after, come.lives()
    which, row = (np.empty(1024 + min(2 * len(rows), portions.MOST), np.int64) for _ in range(2))
    done = count = 0
    while True:
        done, count = extend_rows(order, *asked, done, count, which, row)
        if done == len(rows):
            yield which[:count], row[:count]
            return
        if count < portions.MOST:
            which, row = longer(which, 2 * len(which)), longer(row, 2 * len(which))
        else:
            yield which[:count], row[:count].copy()
            count = 0
