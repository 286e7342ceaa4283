"""Drawing millions of subscriptions as Arrow columns, without a Python loop over them.

Subscriptions are conjunctions of predicates on distinct attributes, laid out flat:

    offsets     0           2                 5      subscription 0 has predicates 0 and 1
    attribute   7    3      3    12    9             numbers of attributes, or names by dictionary
    op          =    <=     ...

Wide intermediate arrays (a row of numbers per subscription) are drawn in chunks of `CHUNK` rows, so that ten
million subscriptions need little more memory than their Arrow columns.

>>> rng = np.random.default_rng(0)
>>> drawn = Popularity.zipf(1000, 1.0).distinct(rng, 2, 3)
>>> drawn.shape, [len(set(row)) for row in drawn.tolist()]
((2, 3), [3, 3])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from tocsin.errors import UsageError

__all__ = [
    "CHUNK",
    "FilterWorkload",
    "Popularity",
    "attribute_names",
    "dictionary_array",
    "distinct_rows",
    "event_maps",
    "offsets_of",
    "require",
    "subscription_table",
]

CHUNK = 1 << 18  # rows drawn at a time

Numbers = NDArray[np.int32]


@dataclass(frozen=True)
class FilterWorkload:
    """Subscriptions to an open stream, and its events.

    `subscriptions` has `id` (0, 1, ...) and `predicates` (see `language/predicates.py`), `events` the maps
    `attributes` (numbers) or `texts`, or both.
    """

    name: str
    subscriptions: Any  # pyarrow tables
    events: Any

    @property
    def n(self) -> int:
        return int(self.subscriptions.num_rows)


class Popularity:
    """A distribution over the numbers 0..count-1, uniform without weights."""

    def __init__(self, count: int, weights: NDArray[np.float64] | None = None) -> None:
        self.count = count
        self._weights = weights
        if weights is not None:
            self._upto = np.cumsum(weights)
            self._upto /= self._upto[-1]

    @classmethod
    def zipf(cls, count: int, exponent: float) -> Popularity:
        """Zipf's law: the probability of the r-th number (from 1) is proportional to r ** -exponent."""
        return cls(count, np.arange(1.0, count + 1) ** -exponent if exponent else None)

    def draw(self, rng: np.random.Generator, shape: int | tuple[int, int]) -> Numbers:
        """Independent draws."""
        if self._weights is None:
            return rng.integers(0, self.count, shape, np.int32)
        found = np.searchsorted(self._upto, rng.random(shape), "right").astype(np.int32)
        return np.minimum(found, np.int32(self.count - 1))

    def distinct(self, rng: np.random.Generator, rows: int, size: int) -> Numbers:
        """Rows of `size` different numbers each: repeated numbers are drawn again.

        If a row has more than half of all numbers, it is the beginning of a random permutation instead.
        """
        if 2 * size > self.count:
            order = rng.standard_exponential((rows, self.count), np.float32)
            if self._weights is not None:
                order /= self._weights.astype(np.float32)
            return np.argsort(order, axis=1)[:, :size].astype(np.int32)
        drawn = self.draw(rng, (rows, size))
        pending = np.arange(rows)
        while len(pending := pending[_has_repeats(drawn[pending])]):
            part = drawn[pending]
            again = _repeats(part)
            part[again] = self.draw(rng, int(again.sum()))
            drawn[pending] = part
        return drawn


def _has_repeats(rows: Numbers) -> NDArray[np.bool_]:
    ordered = np.sort(rows, axis=1)
    return np.asarray((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))


def _repeats(rows: Numbers) -> NDArray[np.bool_]:
    """Mark the numbers that occur further left in the same row."""
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    same = np.zeros(rows.shape, np.bool_)
    same[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    out = np.empty_like(same)
    np.put_along_axis(out, order, same, axis=1)
    return out


def offsets_of(sizes: ArrayLike) -> NDArray[np.int32]:
    """Offsets of rows with these sizes: where each row begins, and the end of the last.

    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


def distinct_rows(
    rng: np.random.Generator, sizes: NDArray[np.integer[Any]], popularity: Popularity, fixed: int = 0
) -> Numbers:
    """Different numbers within each row, rows concatenated; the first `fixed` of a row are 0, 1, ..."""
    starts = offsets_of(sizes).astype(np.int64)
    out = np.empty(int(starts[-1]), np.int32)
    most = int(sizes.max(initial=0))
    for first in range(0, len(sizes), CHUNK):
        part = sizes[first : first + CHUNK]
        drawn = np.empty((len(part), most), np.int32)
        drawn[:, :fixed] = np.arange(min(fixed, most))
        drawn[:, fixed:] = popularity.distinct(rng, len(part), most - min(fixed, most)) + fixed
        out[starts[first] : starts[first + len(part)]] = drawn[np.arange(most) < part[:, None]]
    return out


# -- Arrow -------------------------------------------------------------------------------------------


def attribute_names(count: int) -> list[str]:
    return [f"a{i}" for i in range(count)]


def dictionary_array(numbers: ArrayLike, names: Sequence[str] | Any) -> Any:
    """A dictionary array: numbers as indices of names."""
    return pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array(names))


def subscription_table(offsets: NDArray[np.int32], **fields: Any) -> Any:
    """A table of `id` and `predicates`; each field is a column over all predicates."""
    parts = [value if isinstance(value, pa.Array) else pa.array(value) for value in fields.values()]
    structs = pa.StructArray.from_arrays(parts, list(fields))
    lists = pa.ListArray.from_arrays(pa.array(offsets), structs)
    return pa.table({"id": np.arange(len(offsets) - 1), "predicates": lists})


def event_maps(offsets: NDArray[np.int32], names: Any, values: Any) -> Any:
    """One map per event from names to values."""
    return pa.MapArray.from_arrays(pa.array(offsets), names, pa.array(values))


def require(good: bool, fact: str, hint: str | None = None) -> None:
    """Raise a usage error unless an option of a workload is good."""
    if not good:
        raise UsageError(fact, hint=hint)
