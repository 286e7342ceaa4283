"""Joins of three tables and more: changed rows pass through the join tree once for all subscriptions.

    changed rows of `sales` ─► x items ─► x shops ─► joined rows ─► who selects them?    sales, items, shops
                                      │         └─► x regions ─► ..                    .. and regions
                                      └─► x brands ─► ..                               sales, items, brands

Each hop joins one more table, keeps the rows that were alive at the change, and drops rows that no
subscription can select: each group knows the union of its ranges at each place. Paths of different signatures
share their common beginning, so that it is joined once. At the end a joined row is looked up at the place
where the fewest ranges hold its value, and the subscriptions found are checked at all other places.

Cost: O(joined rows x (log n + ranges at their best place)), however many subscriptions there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tocsin.join import groups
from tocsin.join._kernels.matches import (
    COUNT,
    PairBuffer,
    Probes,
    ValueRanges,
    cheapest_place,
    extend_rows,
    tuple_matches,
)
from tocsin.join.groups import Attributes, CandidateBatches, JoinGroup
from tocsin.join.matches import Matches, Tuples
from tocsin.join.signature import Edge, KeySpec, Signature
from tocsin.join.tables import JoinTable, JoinTables, OrderSpec
from tocsin.model.columns import Index, Mask
from tocsin.stab.intervals import IntervalIndex
from tocsin.store.tables import Signed

__all__ = ["Hop", "JoinPath", "RangeUnion", "TupleGroup", "join_path", "joined_tuples"]

_NONE = np.empty(0, np.int64)


class RangeUnion:
    """The values that some range holds, as disjoint ranges in order; removed ranges stay until it is rebuilt.

    >>> union = RangeUnion()
    >>> union.add(np.array([1, 3, 8]), np.array([4, 5, 9]))
    >>> union.low.tolist(), union.high.tolist(), union.holds(np.array([5, 6, 8])).tolist()
    ([1, 8], [5, 9], [True, False, True])
    """

    def __init__(self) -> None:
        self.low, self.high = _NONE, _NONE

    def add(self, low: Index, high: Index) -> None:
        """Add ranges."""
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


class TupleGroup(JoinGroup):
    """Subscriptions over three tables and more."""

    def __init__(self, signature: Signature, attributes: Attributes) -> None:
        super().__init__(signature, attributes)
        self.unions = [RangeUnion() for _ in attributes]
        self.places = [p for p, name in enumerate(attributes) if name is not None] or [0]
        self.indexes = [IntervalIndex() for _ in self.places]
        self._ends: tuple[Index, Index] = (np.empty((0, 0), np.int64), np.empty((0, 0), np.int64))
        self._removed = self._changed = 0  # since the unions, and the ends, were built
        self.looked_up = np.zeros(len(self.places), np.int64)

    def add(self, slots: Index, low: Index, high: Index) -> Index:
        numbers = self.members.add(slots, low, high)
        for place, index in zip(self.places, self.indexes, strict=True):
            index.add(numbers, low[place], high[place])
        for place, union in enumerate(self.unions):
            union.add(low[place], high[place])
        self._changed += len(slots)
        return numbers

    def remove(self, numbers: Index) -> None:
        self.members.remove(numbers)
        for index in self.indexes:
            index.remove(numbers)
        self._removed += len(numbers)
        self._changed += len(numbers)
        if self._removed > len(self.members):
            self._removed, left = 0, self.members.numbers()
            self.unions = [RangeUnion() for _ in self.attributes]
            for place, union in enumerate(self.unions):
                union.add(self.members.low[place][left], self.members.high[place][left])

    def orders(self) -> list[OrderSpec]:
        tables = self.signature.tables
        return [
            OrderSpec(tables[p], k, None)
            for edge in self.signature.edges
            for p, k in zip(edge.places, edge.keys, strict=True)
        ]

    def could_select(self, place: int, rows: Index, table: JoinTable) -> Mask:
        """Rows that some subscription may select."""
        codes = table.codes(self.attributes[place])
        return codes.valid[rows] & self.unions[place].holds(codes.code[rows])

    def candidates(self, tuples: Tuples, tables: Sequence[JoinTable]) -> Iterator[Matches]:
        """Subscriptions whose ranges hold joined rows, in batches."""
        codes = [table.codes(name) for table, name in zip(tables, self.attributes, strict=True)]
        both = list(zip(codes, tuples.rows, strict=True))
        values = np.stack([c.code[rows] for c, rows in both])
        valid = np.logical_and.reduce([c.valid[rows] for c, rows in both])
        best = np.zeros(len(tuples.sign), np.int64)
        lows, highs = self._sorted_ends()
        cheapest_place(lows, highs, np.ascontiguousarray(values[self.places]), best)
        for k in range(len(self.places)):
            for query, at in self._candidates_by(k, np.flatnonzero(valid & (best == k)), values):
                yield Matches(self.members.slot[query], at, tuples)

    def _candidates_by(self, k: int, chosen: Index, values: Index) -> Iterator[tuple[Index, Index]]:
        """(query, tuple), looked up at the k-th place with an attribute."""
        self.looked_up[k] += len(chosen)
        scratch = np.empty(len(self.members) + 1, np.int64)
        ranges = ValueRanges(self.members.low, self.members.high)
        batches = _candidate_batches(len(scratch), len(chosen))
        while batches.unfinished:
            arrays = self.indexes[k].arrays
            tuple_matches(arrays, self.places[k], ranges, values, chosen, scratch, batches.buffer)
            if (found := batches.filled()) is not None:
                count = int(found.progress[COUNT])
                yield found.first[:count], found.second[:count]

    def _sorted_ends(self) -> tuple[Index, Index]:
        """By place with an attribute, all low ends and all high ends, approximately as of now."""
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


# -- paths through trees ---------------------------------------------------------------------------


class Hop(NamedTuple):
    """One more table to join; tables are numbered in the order of joining, from 0."""

    here: int  # the table it is joined with
    key: KeySpec
    table: str
    other: KeySpec  # its own key
    after: bool  # read the table as of after the change, or as of before it?


class JoinPath(NamedTuple):
    """The path from changed rows of one place through a signature's tree."""

    groups: Sequence[TupleGroup]
    places: tuple[int, ...]  # in the order of joining; rows of the first have changed
    hops: tuple[Hop, ...]


def join_path(signature: Signature, origin: int, own: Sequence[TupleGroup] = ()) -> JoinPath:
    """Ordered by names, not as in FROM, so that paths of different signatures share their beginning."""
    places, hops, left = [origin], list[Hop](), list(signature.edges)
    while left:
        edges = [edge for edge in left if len(set(edge.places) & set(places)) == 1]
        found = [_hop(signature, edge, places) for edge in edges]
        place, hop = min(found, key=lambda one: (one[1].here, one[1].table, one[1].other.columns, one[0]))
        left.remove(edges[found.index((place, hop))])
        places.append(place)
        hops.append(hop)
    return JoinPath(own, tuple(places), tuple(hops))


def _hop(signature: Signature, edge: Edge, places: list[int]) -> tuple[int, Hop]:
    new = next(place for place in edge.places if place not in places)
    here = edge.other(new)
    keys = edge.key(here), edge.key(new)
    return new, Hop(places.index(here), keys[0], signature.tables[new], keys[1], new < places[0])


class _Joined(NamedTuple):
    """Rows of the tables joined so far, and the changed row of each."""

    tables: tuple[JoinTable, ...]
    rows: tuple[Index, ...]
    change: Index

    def take(self, index: Index | Mask) -> _Joined:
        return self._replace(rows=tuple(rows[index] for rows in self.rows), change=self.change[index])


def joined_tuples(
    paths: Sequence[JoinPath], table: str, tables: JoinTables
) -> Iterator[tuple[JoinPath, Tuples]]:
    """Changed rows of a table with all rows that join, by path, without rows that no subscription can select.

    What several paths begin with is joined once, with the rows that any of them may select.
    """
    signed = tables[table].signed
    begun = _Joined((tables[table],), (signed.slot,), np.arange(len(signed.slot)))
    yield from _follow(paths, begun.take(_selectable(paths, 0, begun)), signed, tables)


def _follow(
    paths: Sequence[JoinPath], begun: _Joined, signed: Signed, tables: JoinTables
) -> Iterator[tuple[JoinPath, Tuples]]:
    done = len(begun.rows)
    branches: dict[Hop | None, list[JoinPath]] = {}
    for path in paths:
        branches.setdefault(path.hops[done - 1] if done <= len(path.hops) else None, []).append(path)
    for hop, some in branches.items():
        mine = begun
        if len(branches) > 1:  # drop rows that only other branches may select
            mine = begun.take(np.logical_and.reduce([_selectable(some, i, begun) for i in range(done)]))
        if not len(mine.change):
            continue
        if hop is None:
            for path in some:
                by_place = dict(zip(path.places, mine.rows, strict=True))
                rows = tuple(by_place[place] for place in range(done))
                yield path, Tuples(rows, signed.position[mine.change], signed.sign[mine.change])
            continue
        for which, fresh in _rows_of(hop, mine, signed, tables[hop.table]):
            more = mine.take(which)
            more = _Joined((*more.tables, tables[hop.table]), (*more.rows, fresh), more.change)
            yield from _follow(some, more.take(_selectable(some, done, more)), signed, tables)


def _selectable(paths: Sequence[JoinPath], at: int, joined: _Joined) -> Mask:
    """Joined rows whose row of the table at a place on the paths some subscription may select."""
    out = np.zeros(len(joined.change), np.bool_)
    for path in paths:
        for group in path.groups:
            out |= group.could_select(path.places[at], joined.rows[at], joined.tables[at])
    return out


def _rows_of(hop: Hop, joined: _Joined, signed: Signed, other: JoinTable) -> Iterator[tuple[Index, Index]]:
    """(number of the joined row, row that joins it), of rows alive at the change; in batches."""
    rows = joined.rows[hop.here]
    keys, order = joined.tables[hop.here].codes(hop.key), other.order(hop.other, None).arrays
    probes = Probes(keys.code[rows], keys.valid[rows], signed.position[joined.change], hop.after)
    lifetimes, batches = other.lifetimes(), _candidate_batches(0, len(rows))
    while batches.unfinished:
        extend_rows(order, lifetimes, probes, batches.buffer)
        if (found := batches.filled()) is not None:
            count = int(found.progress[COUNT])
            yield found.first[:count], found.second[:count]


def _candidate_batches(least: int, total: int) -> CandidateBatches[PairBuffer]:
    size = least + 1024 + min(2 * total, groups.MAX_CANDIDATES)
    buffer = PairBuffer(np.empty(size, np.int64), np.empty(size, np.int64), np.zeros(2, np.int64))
    return CandidateBatches(buffer, total)
