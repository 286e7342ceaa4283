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
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model.columns import Index
from tocsin.model.schema import Stream
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
    batch: pa.RecordBatch, stream: Stream, routes: Routes, attributes: list[str], every: bool
) -> Iterator[tuple[int, Index]]:
    """The shards that some events visit, each with the events; with `every`, none stays away from all."""
    bits = np.full(batch.num_rows, 1 if routes.always else 0, np.uint64)
    for column in attributes:
        array = batch[column]
        if pa.types.is_map(array.type):
            bits |= _map_bits(array, routes.owners)
            continue
        known = stream.find(column) if not stream.open else None
        owned = routes.owners.get(known.name if known is not None else column, 0)
        if owned:
            there = array.is_valid().to_numpy(zero_copy_only=False)
            bits[there] |= np.uint64(owned)
    if every:
        bits[bits == 0] = 1
    for shard in range(routes.count):
        events = np.flatnonzero((bits >> np.uint64(shard)) & np.uint64(1))
        if len(events):
            yield shard, events


def _map_bits(array: Any, owners: Mapping[str, int]) -> NDArray[np.uint64]:
    """The shards that own a key of each map; a NULL has none."""
    starts = np.asarray(array.offsets, np.int64)
    coded = array.keys.dictionary_encode() if not pa.types.is_dictionary(array.keys.type) else array.keys
    known = np.array([owners.get(key, 0) for key in coded.dictionary.to_pylist()] + [0], np.uint64)
    bits = np.append(known[coded.indices.to_numpy(zero_copy_only=False)], np.uint64(0))
    first = starts[:-1]
    out = np.bitwise_or.reduceat(bits, first) if len(first) else np.zeros(0, np.uint64)
    out[np.diff(starts) == 0] = 0
    missing = ~array.is_valid().to_numpy(zero_copy_only=False)
    out[missing] = 0
    return out
