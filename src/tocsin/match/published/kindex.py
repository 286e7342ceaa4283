"""k-index: a list for each value of each attribute, divided by the number of attributes of conjunctions.

A conjunction of k attributes matches if it is in k of the lists of an event's values. An event of m
attributes cannot match one with more; so lists are divided by k, and only parts with k <= m are read.

    S1  A = 2 AND B = 3           k = 1   (A,2) S4        (A,..) ..
    S4  A = 2                     k = 2   (A,2) S1        (B,3) S1

Ranges are expensive: `A <= 8` is in the list of every value up to 8.

Whang et al., "Indexing Boolean Expressions" (VLDB 2009), as O14 uses it (section 3). What differs:

    domain      codes have no small domain, so a dimension is cut at its operands: its cells are the
                operands and the gaps between them, and a range has a posting for each of its cells
    size        counts distinct attributes, not predicates: `A >= 3 AND A <= 5` has size 1
    limit       with more than `KIndexConfig.postings` postings, cells are merged until there are fewer, and
                candidates from the lists are verified
    not         `!=`, NOT IN, NOT BETWEEN are the other cells; IN is a union of cells; alternatives over
                several attributes and IS NULL are rejected
    lists       conjunctions are numbered by size, so that each list holds its part for k = 1, then k = 2
                and so on; matching counts them (as O14 7.3.3 describes it) instead of merging sorted lists
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tocsin.match.coded import CodedConjunctions, CodedEvents
from tocsin.match.published._kernels.kindex import (
    Postings,
    edges_of,
    expansion,
    expressible,
    match_postings,
    postings_of,
    sizes_of,
)
from tocsin.match.published.opindex import LayeredIndex
from tocsin.model.columns import Index, Mask
from tocsin.predicate.codes import GREATEST
from tocsin.predicate.flat import FlatFilters

__all__ = ["KIndex", "KIndexConfig"]

_NEVER = np.int32(2**31 - 1)  # the size of a removed conjunction


@dataclass(frozen=True)
class KIndexConfig:
    """How far ranges are expanded."""

    postings: int = 1 << 26  # most in one layer; beyond, cells become coarser


class _BuiltPostings(NamedTuple):
    lists: Postings
    coarse: bool


class KIndex(LayeredIndex[_BuiltPostings]):
    """Posting lists by cell of a dimension.

    O(postings of the event's cells) for an event; a range takes as many postings as it has cells.

    >>> index = KIndex()
    >>> index._insert(CodedConjunctions(np.array([3], np.int32), np.array([0, 2]), np.zeros(2, np.int32),
    ...     np.array([3, -5]), np.array([9, 5]), np.zeros(2, np.uint8)))
    >>> events = CodedEvents(np.arange(4), np.zeros(3, np.int32), np.array([2, 5, 6]),
    ...     np.zeros(3, np.bool_), 1)
    >>> (index._match(events) & 0xFFFFFFFF).tolist()
    [1]
    """

    unsupported = "IS NULL, and no alternatives over several attributes"

    def __init__(self, config: KIndexConfig | None = None) -> None:
        super().__init__()
        self._config = config or KIndexConfig()

    def supports(self, filters: FlatFilters) -> Mask:
        """Filters without IS NULL, and without alternatives over several attributes."""
        out = np.ones(filters.count, np.bool_)
        out[filters.owner[~expressible(filters.start, filters.dim, filters.flags)]] = False
        return out

    def _build(self, given: CodedConjunctions) -> _BuiltPostings:
        owner = np.repeat(np.arange(len(given.slot)), np.diff(given.start))
        sizes = sizes_of(given, np.lexsort((given.dim, owner)))
        by_size = np.argsort(sizes, kind="stable")
        given, sizes = given.take(by_size), sizes[by_size]
        owner = np.repeat(np.arange(len(given.slot)), np.diff(given.start))
        order = np.lexsort((given.dim, owner))

        dims = int(given.dim.max()) + 1
        cut_dim, cut = _cuts(given)
        most = len(cut) + 1
        first, edge = edges_of(cut_dim, cut, dims, most)
        while most > 1 and expansion(given, first, edge) > self._config.postings:
            most = min(most, int(np.diff(first).max())) // 2
            first, edge = edges_of(cut_dim, cut, dims, max(1, most))
        start, posting = postings_of(given, order, first, edge)
        below = np.searchsorted(sizes, np.arange(int(sizes.max()) + 1), "right")
        coarse = len(edge) < dims + int(np.sum(cut != np.iinfo(np.int64).min))
        return _BuiltPostings(Postings(first, edge, start, posting, sizes, below, given), coarse)

    def _drop(self, built: _BuiltPostings, slots: Index) -> None:
        built.lists.size[np.isin(built.lists.given.slot, slots)] = _NEVER

    def _match_built(self, built: _BuiltPostings, events: CodedEvents) -> Index:
        return match_postings(built.lists, events, np.zeros(len(built.lists.size), np.int32), built.coarse)

    def stats(self) -> dict[str, Any]:
        layers = self._built()
        return {
            **super().stats(),
            "cells": sum(len(built.lists.edge) for built in layers),
            "postings": sum(len(built.lists.posting) for built in layers),
            "coarse": any(built.coarse for built in layers),
        }

    def _bytes(self) -> int:
        lists = [built.lists._replace(given=()) for built in self._built()]
        given = [built.lists.given for built in self._built()]
        return sum(array.nbytes for arrays in (*lists, *given) for array in arrays if len(array))

    def _check(self) -> None:
        super()._check()
        for built in self._built():
            lists, given = built.lists, built.lists.given
            assert lists.start[0] == 0 and lists.start[-1] == len(lists.posting)
            assert lists.first[-1] == len(lists.edge)
            cell = np.repeat(np.arange(len(lists.edge)), np.diff(lists.start))
            same = cell[1:] == cell[:-1]
            assert np.all(lists.posting[1:][same] > lists.posting[:-1][same]), "a list is out of order"
            of = np.repeat(np.arange(len(lists.first) - 1), np.diff(lists.first))
            within = of[1:] == of[:-1]
            assert np.all(lists.edge[1:][within] > lists.edge[:-1][within]), "cells are out of order"
            owner = np.repeat(np.arange(len(given.slot)), np.diff(given.start))
            named = np.unique(owner * len(lists.first) + given.dim) // len(lists.first)
            sizes = np.bincount(named, minlength=len(given.slot))
            assert np.all((lists.size == sizes) | (lists.size == _NEVER)), "a size is wrong"
            below = np.searchsorted(sizes, np.arange(len(lists.below)), "right")
            assert np.all(np.diff(sizes) >= 0) and np.all(lists.below == below)


def _cuts(given: CodedConjunctions) -> tuple[Index, Index]:
    """Where cells begin, sorted: at the low end of each test and just above its high end."""
    bounded = given.high != GREATEST
    dim = np.concatenate([given.dim, given.dim[bounded]]).astype(np.int64)
    code = np.concatenate([given.low, given.high[bounded] + 1])
    order = np.lexsort((code, dim))
    dim, code = dim[order], code[order]
    new = np.ones(len(dim), np.bool_)
    new[1:] = (dim[1:] != dim[:-1]) | (code[1:] != code[:-1])
    return dim[new], code[new]
