"""Flat filters put together from whole columns of tests.

Tests come in chunks, each of one space: whose they are (a *place*, ascending by filter and by order
within it), which attribute, which interval. At the end texts are ranked, chunks are brought into
order, and a conjunction with a test that no value passes falls out.

>>> from tocsin.model.schema import Type
>>> from tocsin.predicate.operands import comparisons, locate_numbers
>>> made = Assembly(["price", "size"])
>>> ends = comparisons(np.array([3, 3]), locate_numbers(Type.BIGINT, np.array([5, 7])))
>>> made.tests(Space.BIGINT, np.array([0, 1]), np.array([0, 1]), *ends)
>>> flat = made.filters(np.array([0, 1]), 2)
>>> flat.owner.tolist(), flat.high.tolist()
([0, 1], [5, 7])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model.columns import Index, sliced
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.flat import ABSENT, NEGATED, OR_NEXT, FlatFilters, Space, ranks
from tocsin.predicate.operands import Pool

__all__ = ["Assembly"]

_SPACES = 16


class _Chunk(NamedTuple):
    place: Index
    key: Index  # attribute and space; or, above all of these, a pattern dimension
    low: Index
    high: Index
    flags: NDArray[np.uint8]


class Assembly:
    """Chunks of tests over named attributes."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._chunks: list[_Chunk] = []
        self._ranked: list[tuple[int, Pool]] = []  # chunks whose codes are numbers of a pool
        self._mixed: list[tuple[int, Pool, NDArray[np.bool_]]] = []  # the same, for some of a chunk
        self._never: list[Index] = []
        self._missing: list[Index] = []  # places that no value passes
        self._dims: dict[tuple[int, int], int] = {}  # (attribute, pattern)
        self._patterns: dict[tuple[str, str], int] = {}
        self.texts, self.backwards = Pool(), Pool()

    def tests(
        self, space: Space, place: Index, attribute: Index, low: Index, high: Index, flags: NDArray[np.uint8]
    ) -> None:
        """Tests of one space. Texts have codes by their numbers in the pool: 4 x number, and around it."""
        if space in (Space.TEXT, Space.REVERSED):
            self._ranked.append((len(self._chunks), self.texts if space is Space.TEXT else self.backwards))
        key = attribute.astype(np.int64) * _SPACES + int(space)
        self._chunks.append(_Chunk(place, key, low, high, flags))

    def presence(self, space: Space, place: Index, attribute: Index, absent: NDArray[np.bool_]) -> None:
        """Tests whether there is a value at all."""
        low, high = np.full(len(place), LEAST), np.full(len(place), GREATEST)
        flags = np.where(absent, ABSENT, 0).astype(np.uint8)
        key = attribute.astype(np.int64) * _SPACES + int(space)
        self._chunks.append(_Chunk(place, key, low, high, flags))

    def prefixes(self, place: Index, attribute: Index, texts: Any, backwards: bool = False) -> None:
        """Texts that begin, or end, with one (an Arrow array, none of them empty)."""
        pool = self.backwards if backwards else self.texts
        first, after, bounded = pool.prefixes(texts, backwards)
        high = np.where(bounded, 4 * after - 1, GREATEST)
        space = Space.REVERSED if backwards else Space.TEXT
        self.tests(space, place, attribute, 4 * first, high, np.zeros(len(place), np.uint8))

    def patterns(self, kind: str, place: Index, attribute: Index, patterns: Any) -> None:
        """Texts that match a pattern (an Arrow array of them)."""
        coded = patterns.dictionary_encode()
        own = np.array(
            [self._patterns.setdefault((kind, p), len(self._patterns)) for p in coded.dictionary.to_pylist()],
            np.int64,
        )
        number = own[coded.indices.to_numpy(zero_copy_only=False)]
        pairs, which = np.unique(number * len(self._names) + attribute, return_inverse=True)
        dims = [
            self._dims.setdefault((p % len(self._names), p // len(self._names)), len(self._dims))
            for p in pairs.tolist()
        ]
        key = np.array(dims, np.int64)[which] + len(self._names) * _SPACES
        low, high = np.full(len(place), LEAST), np.full(len(place), GREATEST)
        self._chunks.append(_Chunk(place, key, low, high, np.zeros(len(place), np.uint8)))

    def adopt(self, flat: FlatFilters, which: Index, place: Index) -> None:
        """Tests of other filters, each of one conjunction at most: at place i those of filter which[i]."""
        conjunction = np.full(flat.count + 1, -1, np.int64)
        conjunction[flat.owner] = np.arange(len(flat.owner))
        own = conjunction[which]
        there = own >= 0
        self._missing.append(place[~there])
        own, place = own[there], place[there]
        sizes = flat.sizes[own]
        _, test = sliced(flat.start[:-1][own], sizes)
        place, dim = np.repeat(place, sizes), flat.dim[test]
        names = {name: i for i, name in enumerate(self._names)}
        attribute = np.array([names[name] for name in flat.names], np.int64)[flat.attribute]
        key = attribute * _SPACES + flat.space
        for d in np.flatnonzero(flat.pattern >= 0).tolist():
            pattern = flat.patterns[flat.pattern[d]]
            number = self._patterns.setdefault(pattern, len(self._patterns))
            own_dim = self._dims.setdefault((int(attribute[d]), number), len(self._dims))
            key[d] = len(self._names) * _SPACES + own_dim
        low, high, space = flat.low[test], flat.high[test], flat.space[dim]
        # All tests of a place stay in one chunk: alternatives must not be torn apart.
        chunk = _Chunk(place, key[dim], low, high, flat.flags[test])
        for which_space, pool, texts in (
            (Space.TEXT, self.texts, flat.texts),
            (Space.REVERSED, self.backwards, flat.backwards),
        ):
            if len(texts):
                mine = space == which_space
                number_of = pool.add(texts)
                low[mine], high[mine] = ranks(low[mine], number_of), ranks(high[mine], number_of)
                self._mixed.append((len(self._chunks), pool, mine))
        self._chunks.append(chunk)

    def never(self, filters: Index) -> None:
        """Filters that cannot hold."""
        self._never.append(filters)

    def filters(self, filter_of: Index, count: int, conjunction_of: Index | None = None) -> FlatFilters:
        """The flat filters; `filter_of` tells whose a place is.

        Each filter is one conjunction, unless `conjunction_of` tells the conjunction of every place
        (ascending) and `filter_of` the filter of every conjunction.
        """
        texts, backwards = self._rank()
        place, key, low, high, flags = self._joined()
        owner = np.arange(count) if conjunction_of is None else filter_of
        conjunction = (filter_of if conjunction_of is None else conjunction_of)[place]
        alone = (flags & (NEGATED | ABSENT | OR_NEXT)) == 0
        alone[1:] &= (flags[:-1] & OR_NEXT) == 0
        kept = np.ones(len(owner), np.bool_)
        kept[conjunction[alone & (low > high)]] = False
        of_place = filter_of if conjunction_of is None else conjunction_of
        for gone in (*self._never, *(of_place[places] for places in self._missing)):
            kept[gone] = False
        if not kept.all():
            stay = kept[conjunction]
            conjunction, key, low, high = (a[stay] for a in (conjunction, key, low, high))
            flags = flags[stay]
        sizes = np.bincount(conjunction, minlength=len(owner))[kept]
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        used = np.zeros(len(self._names) * _SPACES + len(self._dims), np.bool_)
        used[key] = True
        number = (np.cumsum(used) - 1).astype(np.int32)
        keys = np.flatnonzero(used)
        plain = keys < len(self._names) * _SPACES
        dims = np.array(list(self._dims), np.int64).reshape(-1, 2)[keys[~plain] - len(self._names) * _SPACES]
        return FlatFilters(
            count,
            owner[kept].astype(np.int32),
            start,
            number[key],
            low,
            high,
            flags,
            np.concatenate([keys[plain] // _SPACES, dims[:, 0]]).astype(np.int32),
            np.concatenate([keys[plain] % _SPACES, np.full(len(dims), Space.PATTERN)]).astype(np.uint8),
            np.concatenate([np.full(plain.sum(), -1), dims[:, 1]]).astype(np.int32),
            self._names,
            texts,
            backwards,
            tuple(self._patterns),
        )

    def _rank(self) -> tuple[Any, Any]:
        """The texts of both orders, and all codes of texts under their ranks."""
        ordered: dict[int, tuple[Any, Index]] = {}
        every: Any = slice(None)
        for number, pool, mine in (*((n, p, every) for n, p in self._ranked), *self._mixed):
            if id(pool) not in ordered:
                ordered[id(pool)] = pool.ranked()
            rank = ordered[id(pool)][1]
            chunk = self._chunks[number]
            low, high = chunk.low.copy(), chunk.high.copy()
            low[mine], high[mine] = ranks(low[mine], rank), ranks(high[mine], rank)
            self._chunks[number] = chunk._replace(low=low, high=high)
        nothing = pa.array([], pa.large_binary())
        texts, backwards = (ordered.get(id(p), (nothing,))[0] for p in (self.texts, self.backwards))
        return texts, backwards

    def _joined(self) -> _Chunk:
        """All chunks in order of place; within a place as they came."""
        chunks = self._chunks
        if not chunks:
            empty = np.empty(0, np.int64)
            return _Chunk(empty, empty, empty, empty, np.empty(0, np.uint8))
        if len(chunks) == 1:
            whole = chunks[0]
        else:
            whole = _Chunk(*(np.concatenate([chunk[i] for chunk in chunks]) for i in range(5)))
        if np.all(whole.place[1:] >= whole.place[:-1]):
            return whole
        order = np.argsort(whole.place, kind="stable")
        return _Chunk(*(column[order] for column in whole))  # type: ignore[arg-type]
