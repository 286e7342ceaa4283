"""What a subscription selects from a table, as one range of one attribute.

A filter is any condition in flat form (`predicate/flat.py`). An attribute is *constrained* by it if every
conjunction has a plain test of it; the range is the hull of what the conjunctions allow. Of constrained
attributes one is taken, to find candidates by: a single value is better than a range, a range with two ends
better than one with one, and a boolean is the last resort. Where the range does not say all that the filter
says, rows that it finds must be verified.

    per BETWEEN 45 AND 70                          per 45..70, which says all
    per > 45 AND sector = 'tech'                   sector = hash of tech, to be verified
    per BETWEEN 1 AND 2 OR per BETWEEN 8 AND 9     per 1..9, to be verified
    name LIKE '%x%'                                nothing, to be verified

>>> from tocsin.language.algebra import Between, Column
>>> from tocsin.language.rewrite import normalise
>>> from tocsin.model.schema import Type
>>> from tocsin.predicate.compile import flatten
>>> per = normalise(Between(Column("per", Type.BIGINT), 45, 70))
>>> found = selections(flatten([per]))
>>> found.names, found.attribute.tolist(), found.low.tolist(), found.high.tolist(), found.exact.tolist()
(['per'], [0], [45], [70], [True])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.model.columns import Index, Mask
from tocsin.predicate._kernels.hashing import hash_texts
from tocsin.predicate._kernels.selections import choose_ranges
from tocsin.predicate.flat import FlatFilters, Space

__all__ = ["Selections", "selections", "text_hashes"]

_WORTH = np.zeros(10, np.int64)  # by space: 0 is never taken
_WORTH[[Space.BIGINT, Space.DOUBLE, Space.DATE, Space.TIMESTAMP]] = 2
_WORTH[Space.BOOLEAN] = 1
_WORTH[Space.TEXT] = 3  # only single texts


class Selections(NamedTuple):
    """By filter: the attribute, its range, and whether that says all."""

    names: Sequence[str]
    attribute: Index  # among the names; -1: any row may do
    low: Index
    high: Index
    exact: Mask
    never: Mask


def selections(filters: FlatFilters) -> Selections:
    """One range for each filter."""
    count = filters.count
    chosen, low, high = (np.empty(count, np.int64) for _ in range(3))
    exact, never = np.empty(count, np.bool_), np.empty(count, np.bool_)
    names = [filters.names[a] for a in filters.attribute.tolist()]
    rank = np.argsort(np.argsort(np.array(names, np.str_), kind="stable"), kind="stable")
    tests = (filters.start, filters.dim, filters.low, filters.high, filters.flags)
    worth = _WORTH[filters.space]
    choose_ranges(filters.owner, tests, worth, rank.astype(np.int64), (chosen, low, high, exact, never))
    spaces = np.append(filters.space, 0)[chosen]  # the last one is for -1
    texts = np.flatnonzero(spaces == Space.TEXT)
    if len(texts):
        used, which = np.unique(low[texts] // 4, return_inverse=True)
        data = filters.texts.take(pa.array(used)).to_pylist()
        start = np.concatenate([[0], np.cumsum([len(text) for text in data])])
        low[texts] = high[texts] = text_hashes(start, np.frombuffer(b"".join(data), np.uint8))[which]
    known = {name: i for i, name in enumerate(dict.fromkeys(names))}
    number = np.array([*(known[name] for name in names), -1], np.int64)  # the last one is for -1
    return Selections(list(known), number[chosen], low, high, exact, never)


def text_hashes(start: Index, data: NDArray[np.uint8]) -> Index:
    """A hash of each byte string."""
    out = np.empty(len(start) - 1, np.int64)
    hash_texts(start, data, out)
    return out
