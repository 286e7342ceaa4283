"""What a subscription selects from a table, as one range of one attribute.

A filter is any condition in flat form (`predicate/flat.py`). An attribute is *constrained* by it if every
conjunction has a plain test of it; the range is the hull of what the conjunctions allow. Of constrained
attributes one is taken, to find candidates by: a single value is better than a range, a range with two ends
better than one with one, and a boolean is the last resort. With `by_share`, where many filters have a test of
an attribute, it counts instead what share of them a value is let through by: what all of them say alike is no
good to tell them apart, even if it is a single value. Where the range does not say all that the filter says,
rows that it finds must be verified.

    per BETWEEN 45 AND 70                          per 45..70, which says all
    per > 45 AND sector = 'tech'                   sector = hash of tech, to be verified
    the same, of a thousand with their own `per`   per 45.., to be verified
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

MANY, SOME = 32, 64  # tests of an attribute that tell something of it; values that are tried
_MIN, _MAX = -(2**63), 2**63 - 1
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


def selections(filters: FlatFilters, *, by_share: bool = False) -> Selections:
    """One range for each filter."""
    count = filters.count
    chosen, low, high = (np.empty(count, np.int64) for _ in range(3))
    exact, never = np.empty(count, np.bool_), np.empty(count, np.bool_)
    names = [filters.names[a] for a in filters.attribute.tolist()]
    rank = np.argsort(np.argsort(np.array(names, np.str_), kind="stable"), kind="stable")
    tests = (filters.start, filters.dim, filters.low, filters.high, filters.flags)
    worth = _WORTH[filters.space]
    share = _shares(filters, worth) if by_share else np.full(len(worth), -1.0)
    choose_ranges(
        filters.owner, tests, worth, rank.astype(np.int64), share, (chosen, low, high, exact, never)
    )
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


def _shares(filters: FlatFilters, worth: Index) -> NDArray[np.float64]:
    """By dimension: of its tests, the share that let a value through, such as they ask for; -1: unknown.

    O(n log n) in the number of tests.
    """
    out = np.full(len(worth), -1.0)
    order = np.argsort(filters.dim, kind="stable")
    ends = np.searchsorted(filters.dim[order], np.arange(len(worth) + 1))
    for d in np.flatnonzero((worth > 0) & (np.diff(ends) >= MANY)).tolist():
        mine = order[ends[d] : ends[d + 1]]
        low, high = filters.low[mine], filters.high[mine]
        some = np.linspace(0, len(mine) - 1, SOME).astype(np.int64)
        middle = (low[some] >> 1) + (high[some] >> 1) + (low[some] & high[some] & 1)
        value = np.where(low[some] == _MIN, high[some], np.where(high[some] == _MAX, low[some], middle))
        begun = np.searchsorted(np.sort(low), value, side="right")
        out[d] = (begun - np.searchsorted(np.sort(high), value, side="left")).mean() / len(mine)
    return out


def text_hashes(start: Index, data: NDArray[np.uint8]) -> Index:
    """A hash of each byte string."""
    out = np.empty(len(start) - 1, np.int64)
    hash_texts(start, data, out)
    return out
