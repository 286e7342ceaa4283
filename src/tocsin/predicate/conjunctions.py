"""Conjunctions of one index under its own numbers: segments are built from these and merged as these.

One integer is the key of a dimension, so that conjunctions are merged by sorting and searching:

    key = pattern + 1 | attribute | space      (23, 32 and 8 bits)

Each set of conjunctions ranks its own texts; merging ranks them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model.buffers import to_arrow
from tocsin.model.columns import Index, distinct, sliced
from tocsin.model.texts import TextNumbers
from tocsin.predicate.events import Events
from tocsin.predicate.flat import CodeSpace, FlatFilters, recode_texts, sort_texts
from tocsin.predicate.patterns import Patterns

__all__ = [
    "Conjunctions",
    "Names",
    "PatternDimensions",
    "dimension_key",
    "has_patterns",
    "merge_conjunctions",
]


_NO_DIMENSIONS: Index = np.empty(0, np.int64)
_GROUPS = 62  # of texts, by attribute
_MOST_KNOWN = 64  # attributes whose dimensions of patterns are remembered
MOST_UNUSED = 64  # patterns that nobody uses, beside as many as are used
_FREE = ("", "")  # in place of a pattern that was dropped


def dimension_key(attribute: Any, space: Any, pattern: Any) -> Any:
    """The key of a dimension; `pattern` is -1 where it has none."""
    return ((np.asarray(pattern, np.int64) + 1) << 40) | (np.asarray(attribute, np.int64) << 8) | space


class Names:
    """Attributes and patterns of an index by number, in order of arrival.

    Numbers of attributes are permanent. A pattern that no conjunction uses any more can be dropped; another
    one then gets its number.

    >>> names = Names(patterns=[("rlike", "^a"), ("rlike", "^b")])
    >>> names.drop_unused([dimension_key([0], 0, [1])], most=1)
    >>> names.number(("like", "%c")), names.patterns
    (0, [('like', '%c'), ('rlike', '^b')])
    """

    def __init__(self, attributes: Sequence[str] = (), patterns: Sequence[tuple[str, str]] = ()) -> None:
        self.attributes = TextNumbers(attributes)
        self.patterns: list[tuple[str, str]] = [*patterns]  # by number; _FREE: none
        self._numbers = {pattern: i for i, pattern in enumerate(patterns) if pattern != _FREE}
        self._free = [i for i, pattern in enumerate(patterns) if pattern == _FREE]
        self._most = MOST_UNUSED  # patterns, before it is looked up which are used
        self.timed: set[int] = set()  # attributes that are compared with times

    def number(self, pattern: tuple[str, str]) -> int:
        """The number of a pattern; a new one gets a free number."""
        known = self._numbers.get(pattern)
        if known is None:
            known = self._numbers[pattern] = self._free.pop() if self._free else len(self.patterns)
            self.patterns[known : known + 1] = [pattern]
        return known

    def drop_unused(self, keys: Iterable[Index], most: int | None = None) -> None:
        """Free the numbers of patterns that none of these dimensions uses, once there are many patterns."""
        if len(self._numbers) <= (self._most if most is None else most):
            return
        used = {number for key in keys for number in ((key[key >= (1 << 40)] >> 40) - 1).tolist()}
        for pattern, number in list(self._numbers.items()):
            if number not in used:
                del self._numbers[pattern]
                self.patterns[number] = _FREE
                self._free.append(number)
        self._most = max(MOST_UNUSED, 2 * len(self._numbers))

    def find_timed(self, key: Index) -> None:
        """Note attributes with a dimension of timestamps among these."""
        timed = key[(key & 0xFF) == CodeSpace.TIMESTAMP]
        self.timed.update(((timed >> 8) & 0xFFFFFFFF).tolist())

    def conjunctions(self, slots: Index, filters: FlatFilters) -> Conjunctions:
        """The conjunctions of a batch of filters, filter i under slots[i]."""
        attribute = self.attributes.add(filters.names)
        pattern = np.array(
            [*map(self.number, filters.patterns), -1], np.int64
        )  # the last one is for dimensions without pattern
        own = attribute[filters.attribute] if len(attribute) else np.empty(0, np.int64)
        key = dimension_key(own, filters.space.astype(np.int64), pattern[filters.pattern])
        self.find_timed(key)
        dim = filters.dim
        if len(distinct(key)) < len(key):  # `overlay` may leave duplicate dimensions
            key, number = np.unique(key, return_inverse=True)
            dim = number.astype(np.int32)[dim]
        return Conjunctions(
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


class PatternDimensions:
    """Matches the patterns among some dimensions: each distinct text of a batch is read once."""

    def __init__(self, key: Index, patterns: Sequence[tuple[str, str]]) -> None:
        """`key` ascends; `patterns` has all patterns of the index, by number."""
        own = key[key >= (1 << 40)]
        self._key, self._numbers = key, distinct((own >> 40) - 1)
        self._attributes = distinct((own >> 8) & 0xFFFFFFFF)
        self._attribute_set = frozenset(self._attributes.tolist())
        self._bits = 1 << (np.arange(len(self._attributes)) % _GROUPS)  # by attribute: its group of texts
        self._group_of = dict(zip(self._attributes.tolist(), self._bits.tolist(), strict=True))
        groups = np.zeros(len(self._numbers), np.int64)
        whose = np.searchsorted(self._attributes, (own >> 8) & 0xFFFFFFFF)
        np.bitwise_or.at(groups, np.searchsorted(self._numbers, (own >> 40) - 1), self._bits[whose])
        self._matcher = _compiled(tuple(patterns[n] for n in self._numbers.tolist()), tuple(groups.tolist()))
        self._one = self._matcher.one_text()
        self._dims: dict[int, tuple[Index, bool]] = {}  # by attribute

    def matched(self, events: Events, numbers: Index) -> tuple[Index, Index]:
        """(entry, dimension) of all patterns that match; `numbers` are the index's, by name of the events."""
        none = np.empty(0, np.int64)
        entry = np.flatnonzero(events.space == CodeSpace.TEXT)
        entry = entry[np.isin(numbers[events.name[entry]], self._attributes)]
        if not len(entry):
            return none, none
        groups = self._bits[np.searchsorted(self._attributes, numbers[events.name[entry]])]
        entry, pattern = events.matched(self._matcher, entry, groups)
        wanted = dimension_key(numbers[events.name[entry]], int(CodeSpace.PATTERN), self._numbers[pattern])
        dim = np.searchsorted(self._key, wanted)
        real = (dim < len(self._key)) & (self._key[np.minimum(dim, len(self._key) - 1)] == wanted)
        return entry[real], dim[real]

    def matched_one(self, attribute: int, text: str) -> Index:
        """The dimensions whose pattern matches one text of an attribute."""
        if attribute not in self._attribute_set:
            return _NO_DIMENSIONS
        if self._one is not None:
            pattern = self._one.find(text, self._group_of[attribute])
        else:
            pattern = self._matcher.match(to_arrow([text], pa.large_string()))[1]
        if not len(pattern):
            return _NO_DIMENSIONS
        if attribute not in self._dims:
            self._dims[attribute] = self._dims_of(attribute)
        dim, some_missing = self._dims[attribute]
        found = dim[pattern]
        return found[found >= 0] if some_missing else found

    def _dims_of(self, attribute: int) -> tuple[Index, bool]:
        """The dimension of each pattern for an attribute, or -1; whether there is a -1."""
        wanted = dimension_key(attribute, int(CodeSpace.PATTERN), self._numbers)
        at = np.minimum(np.searchsorted(self._key, wanted), len(self._key) - 1)
        dim = np.where(self._key[at] == wanted, at, -1)
        if len(self._dims) >= _MOST_KNOWN:
            self._dims.clear()
        return dim, bool(np.any(dim < 0))


@lru_cache(maxsize=4)
def _compiled(patterns: tuple[tuple[str, str], ...], groups: tuple[int, ...]) -> Patterns:
    """Compiling patterns is slow, and a rebuilt segment has the same ones."""
    return Patterns(patterns, groups=groups)


def has_patterns(key: Index) -> bool:
    """Whether one of the dimensions is a pattern; `key` ascends."""
    return len(key) > 0 and bool(key[-1] >= (1 << 40))


class Conjunctions(NamedTuple):
    """Conjunctions, each with a slot; arrays as in `FlatFilters`, dimensions identified by `key`."""

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
        """Number of conjunctions."""
        return len(self.slot)

    def by_key(self) -> Conjunctions:
        """The same with dimensions sorted by key."""
        if np.all(self.key[1:] > self.key[:-1]):
            return self
        order = np.argsort(self.key, kind="stable")
        number = np.empty(len(order), np.int32)
        number[order] = np.arange(len(order))
        return self._replace(key=self.key[order], dim=number[self.dim])

    def compacted(self) -> Conjunctions:
        """Drops unused dimensions and texts, each if they are more than half."""
        out, used = self, np.zeros(len(self.key), np.bool_)
        used[self.dim] = True
        if 2 * used.sum() < len(used):
            number = (np.cumsum(used) - 1).astype(np.int32)
            out = out._replace(key=self.key[used], dim=number[self.dim])
        for space, field in ((CodeSpace.TEXT, "texts"), (CodeSpace.REVERSED, "backwards")):
            out = out._without_texts(space, field)
        return out

    def _without_texts(self, space: CodeSpace, field: str) -> Conjunctions:
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
        low[mine], high[mine] = recode_texts(low[mine], rank), recode_texts(high[mine], rank)
        return self._replace(low=low, high=high, **{field: texts.filter(pa.array(used))})

    def take(self, chosen: Index) -> Conjunctions:
        """The chosen conjunctions, by number."""
        start, test = sliced(self.start[:-1][chosen], np.diff(self.start)[chosen])
        return self._replace(
            slot=self.slot[chosen],
            start=start,
            dim=self.dim[test],
            low=self.low[test],
            high=self.high[test],
            flags=self.flags[test],
        )


def merge_conjunctions(parts: Sequence[Conjunctions]) -> Conjunctions:
    """Concatenates; ranks texts together and drops dimensions and texts that are no longer used."""
    if len(parts) == 1:
        return parts[0].compacted()
    key = distinct(np.concatenate([p.key for p in parts]))
    dims = [np.searchsorted(key, p.key).astype(np.int32) for p in parts]
    lows, highs = [p.low for p in parts], [p.high for p in parts]
    merged = []
    for space, field in ((CodeSpace.TEXT, "texts"), (CodeSpace.REVERSED, "backwards")):
        given = [getattr(p, field) for p in parts]
        texts, rank = sort_texts(pa.concat_arrays([t.cast(pa.large_binary()) for t in given]))
        merged.append(texts)
        begin = 0
        for i, part in enumerate(parts):
            if len(given[i]):
                own = rank[begin : begin + len(given[i])]
                mine = (part.key & 255)[part.dim] == space
                lows[i], highs[i] = lows[i].copy(), highs[i].copy()
                lows[i][mine], highs[i][mine] = (
                    recode_texts(lows[i][mine], own),
                    recode_texts(highs[i][mine], own),
                )
            begin += len(given[i])
    sizes = np.concatenate([np.diff(p.start) for p in parts])
    whole = Conjunctions(
        np.concatenate([p.slot for p in parts]),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.concatenate([d[p.dim] if len(d) else p.dim for d, p in zip(dims, parts, strict=True)]),
        np.concatenate(lows),
        np.concatenate(highs),
        np.concatenate([p.flags for p in parts]),
        key,
        merged[0],
        merged[1],
    )
    return whole.compacted()
