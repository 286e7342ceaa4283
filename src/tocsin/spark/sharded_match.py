"""Filters too many for one host: each in one shard; an event visits those that own one of its attributes.

Whatever matches a conjunction has a value for each attribute that it compares. One of these, the rarest among
the filters, is its *pivot*. A filter is in the shard of its first conjunction's pivot, and that shard *owns*
the pivots of all its conjunctions:

    shard 0   price < 5 AND color = 'red'   (color)         color: shard 0
    shard 1   size > 3                      (size)          size: shard 1
              brand = 'x' OR size = 9       (brand, size)   brand: shard 1

So an event that matches a filter has an attribute that the filter's shard owns, and no two shards tell
of the same match. A filter that asks for nothing that must be there (`size IS NULL`) is in shard 0, and
then every event visits shard 0.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Rows, SparseRows
from tocsin.predicate.flat import ABSENT, OR_NEXT, FlatFilters

__all__ = ["MOST", "Routes", "Share", "visits"]

MOST = 63  # shards


class Share(NamedTuple):
    """Shard `number` of so many."""

    of: int
    number: int


@dataclass
class Routes:
    """Which shards own an attribute, as bits; and whether every event visits shard 0."""

    count: int
    owners: dict[str, int] = field(default_factory=dict)
    always: bool = False

    def place(self, filters: FlatFilters) -> Index:
        """The shard of each filter; what they own is noted."""
        pivot = _pivots(filters)
        shards = np.array([zlib.crc32(name.encode()) % self.count for name in filters.names], np.int64)
        out = np.zeros(filters.count, np.int64)
        owner, first = np.unique(filters.owner, return_index=True)
        loose = np.zeros(filters.count, np.bool_)
        loose[filters.owner[pivot < 0]] = True
        bound = owner[~loose[owner]]
        out[bound] = shards[pivot[first[~loose[owner]]]]
        self.always |= bool(loose.any())
        there = np.flatnonzero(~loose[filters.owner])
        pairs = np.unique(np.stack([pivot[there], out[filters.owner[there]]]), axis=1)
        for name, shard in zip(*(side.tolist() for side in pairs), strict=True):
            text = filters.names[name]
            self.owners[text] = self.owners.get(text, 0) | (1 << shard)
        return out

    def to_dict(self) -> dict[str, Any]:
        return {"count": self.count, "owners": self.owners, "always": self.always}


def _pivots(filters: FlatFilters) -> NDArray[np.int64]:
    """For each conjunction the rarest attribute that must be there; -1 if none must."""
    tests = len(filters.dim)
    out = np.full(len(filters.owner), -1, np.int64)
    if not tests:
        return out
    name = filters.attribute[filters.dim]
    joined = np.concatenate([[False], (filters.flags[:-1] & OR_NEXT) != 0])
    begin = np.flatnonzero(~joined)  # of clauses: alternatives count as one if they are about one attribute
    one = np.minimum.reduceat(name, begin) == np.maximum.reduceat(name, begin)
    absent = np.logical_or.reduceat((filters.flags & ABSENT) != 0, begin)
    usable = begin[one & ~absent]
    conjunction = np.searchsorted(filters.start, usable, "right") - 1
    asked = name[usable].astype(np.int64)
    popularity = np.bincount(asked, minlength=len(filters.names))
    order = np.lexsort((asked, popularity[asked], conjunction))
    found, first = np.unique(conjunction[order], return_index=True)
    out[found] = asked[order][first]
    return out


def visits(
    events: ChangeBatch, count: int, routes: Routes, every: bool
) -> Iterator[tuple[int, Index, NDArray[np.bool_]]]:
    """The shards that some of `count` events visit, each with the events; and for which it is the first.

    With `every`, none stays away from all: also those do not that were not valid, so that they are not read.
    """
    bits = np.full(count, 1 if routes.always else 0, np.uint64)
    bits[events.origin] |= _owners(events.rows, routes.owners)
    if every:
        bits[bits == 0] = 1
    first = bits & (~bits + np.uint64(1))  # its lowest bit
    for shard in range(routes.count):
        bit = np.uint64(1 << shard)
        at = np.flatnonzero(bits & bit)
        if len(at):
            yield shard, at, first[at] == bit


def _owners(rows: Rows, owners: Mapping[str, int]) -> NDArray[np.uint64]:
    """The shards that own an attribute of each event, as bits."""
    bits = np.zeros(len(rows), np.uint64)
    if isinstance(rows, SparseRows):
        known = np.array([owners.get(name, 0) for name in rows.names], np.uint64)
        for part in rows.parts:
            np.bitwise_or.at(bits, part.event, known[part.name])
        return bits
    for name in rows.names:
        if owned := owners.get(name, 0):
            for vector in rows.vectors(name):
                bits[vector.valid] |= np.uint64(owned)
    return bits
