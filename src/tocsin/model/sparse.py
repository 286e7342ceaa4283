"""Events of an open stream: any attribute may occur, so only what is present is kept.

Entries are grouped by type and sorted by attribute, so that one attribute's values are one
slice; the dense vector of an attribute is made when a predicate first asks for it.

    events                          entries (BIGINT)      entries (STRING)
    {"price": 3, "color": "red"}    price: event 0 -> 3   color: event 0 -> red
    {"price": 9}                    price: event 1 -> 9

>>> events = SparseRows.from_dicts([{"price": 3, "color": "red"}, {"price": 9}])
>>> [v.to_list() for v in events.vectors("price")]
[[3, 9]]
>>> events.to_dicts()
[{'price': 3, 'color': 'red'}, {'price': 9}]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.schema import Type
from tocsin.model.values import kind_of, read

__all__ = ["Part", "SparseRows"]


class Part(NamedTuple):
    """Entries of one type: event, place among the event's attributes, attribute, value."""

    event: Index
    rank: Index
    names: NDArray[Any]
    vector: Vector


@dataclass(frozen=True)
class Entries:
    """Values of one type: of attribute `names[a]` are those from `starts[a]` to `starts[a + 1]`.

    `rank` orders the attributes of an event as they were given.
    """

    event: Index
    rank: Index
    vector: Vector
    names: dict[str, int]
    starts: Index


class SparseRows(Rows):
    """Rows of an open stream, by entries. A `Rows` whose columns are made on demand."""

    def __init__(self, entries: Sequence[Entries], length: int) -> None:
        super().__init__((), length, sparse=True)
        self.entries = tuple(entries)

    @classmethod
    def from_entries(cls, parts: Sequence[Part], length: int) -> SparseRows:
        """From parts of one type each."""
        entries = []
        for part in parts:
            names, code = np.unique(part.names, return_inverse=True)
            order = np.lexsort((part.event, code))
            starts = np.searchsorted(code[order], np.arange(len(names) + 1))
            by_name = {name: i for i, name in enumerate(names.tolist())}
            entries.append(
                Entries(part.event[order], part.rank[order], part.vector.take(order), by_name, starts)
            )
        return cls(entries, length)

    @classmethod
    def from_dicts(cls, events: Sequence[Mapping[str, Any]]) -> SparseRows:
        """From checked events; a None is a missing attribute."""
        found: dict[Type, list[tuple[int, int, str, Any]]] = {}
        for i, event in enumerate(events):
            for rank, (name, value) in enumerate(event.items()):
                if value is not None:
                    kind = kind_of(value)
                    found.setdefault(kind, []).append((i, rank, name, read(kind, value)))
        parts = []
        for kind, cells in found.items():
            at, ranks, names, values = zip(*cells, strict=True)
            parts.append(
                Part(np.array(at), np.array(ranks), np.array(names, object), Vector.of(kind, values))
            )
        return cls.from_entries(parts, len(events))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.entries for name in part.names))

    def vectors(self, name: str) -> Sequence[Vector]:
        if name not in self._by_name:
            found = []
            for part in self.entries:
                if (a := part.names.get(name)) is not None:
                    here = slice(part.starts[a], part.starts[a + 1])
                    dense = Vector.blank(part.vector.type, len(self))
                    dense.values[part.event[here]] = part.vector.values[here]
                    dense.valid[part.event[here]] = part.vector.valid[here]
                    found.append(dense)
            self._by_name[name] = found
        return self._by_name[name]

    def take(self, index: Index) -> Rows:
        columns = [(name, vector.take(index)) for name in self.names for vector in self.vectors(name)]
        return Rows(columns, len(index), sparse=True)

    def to_dicts(self, index: Index | None = None) -> list[dict[str, Any]]:
        cells: list[tuple[int, int, str, Any]] = []
        for part in self.entries:
            attribute = np.repeat(np.array(list(part.names), object), np.diff(part.starts))
            columns = (part.event.tolist(), part.rank.tolist(), attribute.tolist(), part.vector.to_list())
            cells.extend(zip(*columns, strict=True))
        out: list[dict[str, Any]] = [{} for _ in range(len(self))]
        for event, _, name, value in sorted(cells, key=itemgetter(0, 1)):
            if value is not None:
                out[event][name] = value
        return out if index is None else [dict(out[i]) for i in index.tolist()]
