"""k-index: one list for every value of every attribute, conjunctions by how many attributes they name.

A conjunction of k attributes matches if it is in k of the lists that an event's values lead to.
An event of m attributes cannot match one that names more; so lists are parted by k, and only
k <= m is looked at.

    S1  A = 2 AND B = 3           k = 1   (A,2) S4        (A,..) ..
    S4  A = 2                     k = 2   (A,2) S1        (B,3) S1

The price is for ranges: `A <= 8` is in the list of every value up to 8.

Whang et al., "Indexing Boolean Expressions" (VLDB 2009), as O14 uses it (section 3). What differs:

    domain      codes have no small domain, so a dimension is cut at its operands: its cells are the
                operands and the gaps between them, and a range has a posting for each of its cells
    size        counts distinct attributes, not predicates: `A >= 3 AND A <= 5` is found by an event of one
    limit       if that makes more than `Expansion.postings` postings, cells are joined until it
                does not, and what the lists say is verified
    not         `!=`, NOT IN, NOT BETWEEN are the other cells; IN is their union; alternatives over several
                attributes and IS NULL are refused
    lists       conjunctions are numbered by size, so that each list holds its part for k = 1, then k = 2
                and so on; they are counted (as O14 7.3.3 describes it), not merged in sorted order
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tocsin.match.coding import CodedEvents, Conjunctions
from tocsin.match.published._kernels.kindex import (
    Postings,
    ask,
    edges_of,
    expansion,
    expressible,
    postings_of,
    sizes_of,
)
from tocsin.match.published.opindex import LayeredIndex
from tocsin.model.columns import Index, Mask
from tocsin.predicate.codes import GREATEST
from tocsin.predicate.flat import FlatFilters

__all__ = ["Expansion", "KIndex"]

_NEVER = np.int32(2**31 - 1)  # the size of a deleted conjunction


@dataclass(frozen=True)
class Expansion:
    """How far ranges are expanded."""

    postings: int = 1 << 26  # in one layer; beyond, cells become coarser


class _Built(NamedTuple):
    lists: Postings
    coarse: bool


class KIndex(LayeredIndex[_Built]):
    """Posting lists by cell of a dimension.

    O(postings of the event's cells) for an event; a range takes as many postings as it has cells.

    >>> index = KIndex()
    >>> index._insert(Conjunctions(np.array([3], np.int32), np.array([0, 2]), np.zeros(2, np.int32),
    ...     np.array([3, -5]), np.array([9, 5]), np.zeros(2, np.uint8)))
    >>> events = CodedEvents(np.arange(4), np.zeros(3, np.int32), np.array([2, 5, 6]),
    ...     np.zeros(3, np.bool_), 1)
    >>> (index._match(events) & 0xFFFFFFFF).tolist()
    [1]
    """

    refuses = "IS NULL, and no alternatives over several attributes"

    def __init__(self, limit: Expansion | None = None) -> None:
        super().__init__()
        self._limit = limit or Expansion()

    def supports(self, filters: FlatFilters) -> Mask:
        """Filters without IS NULL, and without alternatives over several attributes."""
        out = np.ones(filters.count, np.bool_)
        out[filters.owner[~expressible(filters.start, filters.dim, filters.flags)]] = False
        return out

    def _build(self, given: Conjunctions) -> _Built:
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
        while most > 1 and expansion(given, first, edge) > self._limit.postings:
            most = min(most, int(np.diff(first).max())) // 2
            first, edge = edges_of(cut_dim, cut, dims, max(1, most))
        start, posting = postings_of(given, order, first, edge)
        below = np.searchsorted(sizes, np.arange(int(sizes.max()) + 1), "right")
        coarse = len(edge) < dims + int(np.sum(cut != np.iinfo(np.int64).min))
        return _Built(Postings(first, edge, start, posting, sizes, below, given), coarse)

    def _forget(self, built: _Built, slots: Index) -> None:
        built.lists.size[np.isin(built.lists.given.slot, slots)] = _NEVER

    def _ask(self, built: _Built, events: CodedEvents) -> Index:
        return ask(built.lists, events, np.zeros(len(built.lists.size), np.int32), built.coarse)

    def stats(self) -> dict[str, Any]:
        every = self._built()
        return {
            **super().stats(),
            "cells": sum(len(built.lists.edge) for built in every),
            "postings": sum(len(built.lists.posting) for built in every),
            "coarse": any(built.coarse for built in every),
        }

    def _bytes(self) -> int:
        parts = [built.lists for built in self._built()]
        return sum(array.nbytes for lists in parts for array in (*lists[:-1], *lists.given))

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


def _cuts(given: Conjunctions) -> tuple[Index, Index]:
    """Where cells begin, sorted: at every test's low end and just above its high one."""
    bounded = given.high != GREATEST
    dim = np.concatenate([given.dim, given.dim[bounded]]).astype(np.int64)
    code = np.concatenate([given.low, given.high[bounded] + 1])
    order = np.lexsort((code, dim))
    dim, code = dim[order], code[order]
    new = np.ones(len(dim), np.bool_)
    new[1:] = (dim[1:] != dim[:-1]) | (code[1:] != code[:-1])
    return dim[new], code[new]
