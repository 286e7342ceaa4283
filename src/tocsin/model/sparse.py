"""Events of an open stream: any attribute may occur, so only what is present is kept.

Entries stand in parts, one per type; an entry is an event, an attribute and a value. Attributes
are numbered, so that nothing below works with their names:

    events                          names            BIGINT part           STRING part
    {"price": 3, "color": "red"}    price, color     event 0, name 0: 3    event 0, name 1: red
    {"price": 9}                                     event 1, name 0: 9

The dense vector of an attribute is made when a predicate first asks for it; a matching index reads
the parts as they are.

>>> events = SparseRows.from_dicts([{"price": 3, "color": "red"}, {"price": 9}])
>>> [v.to_list() for v in events.vectors("price")]
[[3, 9]]
>>> events.to_dicts()
[{'price': 3, 'color': 'red'}, {'price': 9}]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.schema import Type
from tocsin.model.values import kind_of, read

__all__ = ["Part", "SparseRows"]


class Part(NamedTuple):
    """Entries of one type, all valid: event, place among the event's attributes, attribute, value."""

    event: Index
    rank: Index
    name: NDArray[np.int32]
    vector: Vector


class SparseRows(Rows):
    """Rows of an open stream, by entries. A `Rows` whose columns are made on demand."""

    def __init__(self, parts: Sequence[Part], names: Sequence[str], length: int) -> None:
        super().__init__((), length, sparse=True)
        self.parts = tuple(parts)
        self._names = names

    @classmethod
    def from_dicts(cls, events: Sequence[Mapping[str, Any]]) -> SparseRows:
        """From checked events; a None is a missing attribute."""
        numbers: dict[str, int] = {}
        found: dict[Type, list[tuple[int, int, int, Any]]] = {}
        for i, event in enumerate(events):
            for rank, (name, value) in enumerate(event.items()):
                if value is not None:
                    kind = kind_of(value)
                    number = numbers.setdefault(name, len(numbers))
                    found.setdefault(kind, []).append((i, rank, number, read(kind, value)))
        parts = []
        for kind, cells in found.items():
            at, ranks, names, values = zip(*cells, strict=True)
            parts.append(
                Part(
                    np.array(at, np.int64),
                    np.array(ranks, np.int64),
                    np.array(names, np.int32),
                    Vector.of(kind, values),
                )
            )
        return cls(parts, tuple(numbers), len(events))

    @property
    def names(self) -> Sequence[str]:
        return self._names

    @cached_property
    def _places(self) -> tuple[dict[str, int], list[tuple[Index, Index]]]:
        """The number of every name; by part, its entries by attribute and where each attribute's begin."""
        numbers = {name: i for i, name in enumerate(self._names)}
        sorted_parts = []
        for part in self.parts:
            order = np.argsort(part.name, kind="stable")
            sorted_parts.append((order, np.searchsorted(part.name[order], np.arange(len(numbers) + 1))))
        return numbers, sorted_parts

    def vectors(self, name: str) -> Sequence[Vector]:
        if name not in self._by_name:
            numbers, places = self._places
            found = []
            if (number := numbers.get(name)) is not None:
                for part, (order, starts) in zip(self.parts, places, strict=True):
                    here = order[starts[number] : starts[number + 1]]
                    if len(here):
                        dense = Vector.blank(part.vector.type, len(self))
                        dense.values[part.event[here]] = part.vector.values[here]
                        dense.valid[part.event[here]] = True
                        found.append(dense)
            self._by_name[name] = found
        return self._by_name[name]

    def take(self, index: Index) -> Rows:
        columns = [(name, vector.take(index)) for name in self.names for vector in self.vectors(name)]
        return Rows(columns, len(index), sparse=True)

    def to_dicts(self, index: Index | None = None) -> list[dict[str, Any]]:
        cells: list[tuple[int, int, str, Any]] = []
        for part in self.parts:
            names = [self._names[i] for i in part.name.tolist()]
            cells.extend(
                zip(part.event.tolist(), part.rank.tolist(), names, part.vector.to_list(), strict=True)
            )
        out: list[dict[str, Any]] = [{} for _ in range(len(self))]
        for event, _, name, value in sorted(cells, key=itemgetter(0, 1)):
            out[event][name] = value
        return out if index is None else [dict(out[i]) for i in index.tolist()]
