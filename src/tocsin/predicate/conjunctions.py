"""Filters of one index in its own names: what segments are built from and merged as.

Dimensions are keyed by one integer, so that portions are put together by sorting and searching:

    key = pattern + 1 | attribute | space      (23, 32 and 8 bits)

Texts stay ranked within the portion; putting portions together ranks them anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model.columns import Index, distinct, sliced
from tocsin.model.texts import TextNumbers
from tocsin.predicate.events import Events
from tocsin.predicate.flat import FlatFilters, Space, as_texts, ranks
from tocsin.predicate.patterns import Patterns

__all__ = ["KeyPatterns", "Names", "Portion", "dim_key", "has_patterns", "joined"]


def dim_key(attribute: Any, space: Any, pattern: Any) -> Any:
    """The key of a dimension; `pattern` is -1 where it has none."""
    return ((np.asarray(pattern, np.int64) + 1) << 40) | (np.asarray(attribute, np.int64) << 8) | space


class Names:
    """Attributes and patterns of an index, numbered as they come and never forgotten."""

    def __init__(self, attributes: Sequence[str] = (), patterns: Sequence[tuple[str, str]] = ()) -> None:
        self.attributes = TextNumbers(attributes)
        self.patterns: dict[tuple[str, str], int] = {pattern: i for i, pattern in enumerate(patterns)}

    def portion(self, slots: Index, filters: FlatFilters) -> Portion:
        """A batch of filters under these slots."""
        known = self.patterns
        attribute = self.attributes.add(filters.names)
        pattern = np.array(
            [*(known.setdefault(p, len(known)) for p in filters.patterns), -1], np.int64
        )  # the last one is for dimensions without a pattern
        own = attribute[filters.attribute] if len(attribute) else np.empty(0, np.int64)
        key = dim_key(own, filters.space.astype(np.int64), pattern[filters.pattern])
        dim = filters.dim
        if len(distinct(key)) < len(key):  # filters that were laid over others may have dimensions twice
            key, number = np.unique(key, return_inverse=True)
            dim = number.astype(np.int32)[dim]
        return Portion(
            np.asarray(slots, np.int32)[filters.owner],
            filters.start,
            dim,
            filters.low,
            filters.high,
            filters.flags,
            key,
            filters.texts,
            filters.backwards,
        )


class KeyPatterns:
    """The patterns that dimensions are about: asked once for each distinct text of a batch."""

    def __init__(self, key: Index, patterns: Sequence[tuple[str, str]]) -> None:
        """`key` ascends; `patterns` are those of the index, by number."""
        own = key[key >= (1 << 40)]
        self._key, self._numbers = key, distinct((own >> 40) - 1)
        self._attributes = distinct((own >> 8) & 0xFFFFFFFF)
        self._matcher = _compiled(tuple(patterns[n] for n in self._numbers.tolist()))

    def matched(self, events: Events, numbers: Index) -> tuple[Index, Index]:
        """Entries of events, and the dimensions that match there; `numbers` are those of their names."""
        none = np.empty(0, np.int64)
        entry = np.flatnonzero(events.space == Space.TEXT)
        entry = entry[np.isin(numbers[events.name[entry]], self._attributes)]
        if not len(entry):
            return none, none
        entry, pattern = events.matched(self._matcher, entry)
        wanted = dim_key(numbers[events.name[entry]], int(Space.PATTERN), self._numbers[pattern])
        dim = np.searchsorted(self._key, wanted)
        real = (dim < len(self._key)) & (self._key[np.minimum(dim, len(self._key) - 1)] == wanted)
        return entry[real], dim[real]


@lru_cache(maxsize=4)
def _compiled(patterns: tuple[tuple[str, str], ...]) -> Patterns:
    """Patterns take long to compile; a segment that is built anew has the same ones."""
    return Patterns(patterns)


def has_patterns(key: Index) -> bool:
    """Whether one of the dimensions is a pattern; `key` ascends."""
    return len(key) > 0 and bool(key[-1] >= (1 << 40))


class Portion(NamedTuple):
    """Conjunctions under slots; `key` says what each dimension is."""

    slot: NDArray[np.int32]
    start: Index
    dim: NDArray[np.int32]
    low: Index
    high: Index
    flags: NDArray[np.uint8]
    key: Index
    texts: Any
    backwards: Any

    @property
    def size(self) -> int:
        """How many conjunctions there are."""
        return len(self.slot)

    def by_key(self) -> Portion:
        """The same with dimensions in order of their keys."""
        if np.all(self.key[1:] > self.key[:-1]):
            return self
        order = np.argsort(self.key, kind="stable")
        number = np.empty(len(order), np.int32)
        number[order] = np.arange(len(order))
        return self._replace(key=self.key[order], dim=number[self.dim])

    def tidied(self) -> Portion:
        """Without dimensions and texts that no test uses, if half of them or more are such."""
        out, used = self, np.zeros(len(self.key), np.bool_)
        used[self.dim] = True
        if 2 * used.sum() < len(used):
            number = (np.cumsum(used) - 1).astype(np.int32)
            out = out._replace(key=self.key[used], dim=number[self.dim])
        for space, field in ((Space.TEXT, "texts"), (Space.REVERSED, "backwards")):
            out = out._without_texts(space, field)
        return out

    def _without_texts(self, space: Space, field: str) -> Portion:
        texts = getattr(self, field)
        if len(texts) < 2:
            return self
        mine = (self.key & 255)[self.dim] == space
        used = np.zeros(len(texts), np.bool_)
        for codes in (self.low[mine], self.high[mine]):
            own = codes[(codes >= -1) & (codes < 4 * len(texts) + 2)]
            used[np.minimum((own + 1) >> 2, len(texts) - 1)] = True
        if 2 * used.sum() >= len(used):
            return self
        low, high, rank = self.low.copy(), self.high.copy(), np.cumsum(used) - 1
        low[mine], high[mine] = ranks(low[mine], rank), ranks(high[mine], rank)
        return self._replace(low=low, high=high, **{field: texts.filter(pa.array(used))})

    def take(self, chosen: Index) -> Portion:
        """Some of the conjunctions, by number."""
        start, test = sliced(self.start[:-1][chosen], np.diff(self.start)[chosen])
        return self._replace(
            slot=self.slot[chosen],
            start=start,
            dim=self.dim[test],
            low=self.low[test],
            high=self.high[test],
            flags=self.flags[test],
        )


def joined(portions: Sequence[Portion]) -> Portion:
    """Portions as one, texts ranked together; if much of it is used no more, it is left out."""
    if len(portions) == 1:
        return portions[0].tidied()
    key = distinct(np.concatenate([p.key for p in portions]))
    dims = [np.searchsorted(key, p.key).astype(np.int32) for p in portions]
    lows, highs = [p.low for p in portions], [p.high for p in portions]
    merged = []
    for space, field in ((Space.TEXT, "texts"), (Space.REVERSED, "backwards")):
        given = [getattr(p, field) for p in portions]
        texts, rank = as_texts(pa.concat_arrays([t.cast(pa.large_binary()) for t in given]))
        merged.append(texts)
        begin = 0
        for i, portion in enumerate(portions):
            if len(given[i]):
                own = rank[begin : begin + len(given[i])]
                mine = (portion.key & 255)[portion.dim] == space
                lows[i], highs[i] = lows[i].copy(), highs[i].copy()
                lows[i][mine], highs[i][mine] = ranks(lows[i][mine], own), ranks(highs[i][mine], own)
            begin += len(given[i])
    sizes = np.concatenate([np.diff(p.start) for p in portions])
    whole = Portion(
        np.concatenate([p.slot for p in portions]),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.concatenate([d[p.dim] if len(d) else p.dim for d, p in zip(dims, portions, strict=True)]),
        np.concatenate(lows),
        np.concatenate(highs),
        np.concatenate([p.flags for p in portions]),
        key,
        merged[0],
        merged[1],
    )
    return whole.tidied()
