"""Whole events behind the rows of an open stream, for what is inside their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tocsin.model.columns import Index, SparseRows, TypedEntries

__all__ = ["EventSource", "Inside"]

Inside = list[tuple[list[str], "TypedEntries"]]
Read = Callable[["Index"], list[Mapping[str, Any]]]
ReadInside = Callable[["Index", Any], "Inside | None"]


class EventSource:
    """Whole events, read when somebody needs what is inside them.

    >>> EventSource.of([{"a": [1]}, {"a": [2]}]).take(np.array([1])).dicts
    [{'a': [2]}]
    """

    def __init__(self, read: Read, index: Index, inside: ReadInside | None = None) -> None:
        self._read, self._index, self._inside = read, index, inside

    @classmethod
    def of(cls, events: Sequence[Mapping[str, Any]]) -> EventSource:
        return cls(lambda index: [events[i] for i in index.tolist()], np.arange(len(events)))

    @classmethod
    def joined(cls, several: Sequence[SparseRows]) -> EventSource | None:
        """Events of several batches, one after the other; None if none of them has a source."""
        if all(rows.source is None for rows in several):
            return None
        start = np.concatenate([[0], np.cumsum([len(rows) for rows in several])])

        def read(index: Index) -> list[Mapping[str, Any]]:
            which = np.searchsorted(start, index, side="right") - 1
            return [several[n].events[i - start[n]] for n, i in zip(which, index, strict=True)]

        return cls(read, np.arange(start[-1]))

    @cached_property
    def dicts(self) -> list[Mapping[str, Any]]:
        return self._read(self._index)

    def take(self, index: Index) -> EventSource:
        return EventSource(self._read, self._index[index], self._inside)

    def inside(self, tree: Any) -> Inside | None:
        """Values at paths of names, with the names of their attributes; None if only the dicts can say."""
        if self._inside is None or not np.all(self._index[1:] > self._index[:-1]):
            return None
        return self._inside(self._index, tree)
