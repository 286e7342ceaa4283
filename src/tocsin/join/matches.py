"""Joined rows, and matches of subscriptions with them: what groups and families pass to the room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.join.signature import places_of
from tocsin.language.algebra import Column, Query
from tocsin.model.columns import Index, Mask

__all__ = ["Matches", "Projection", "Tuples"]


class Tuples(NamedTuple):
    """Joined rows: the row of each table by place, and the change that inserts or deletes them."""

    rows: tuple[Index, ...]
    position: Index
    sign: NDArray[np.int8]

    def take(self, index: Index | Mask) -> Tuples:
        return Tuples(tuple(rows[index] for rows in self.rows), self.position[index], self.sign[index])

    @classmethod
    def concat(cls, parts: Sequence[Tuples]) -> Tuples:
        """One after the other."""
        rows = (np.concatenate(place) for place in zip(*(part.rows for part in parts), strict=True))
        position, sign = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
        return cls(tuple(rows), position, sign)


class Matches(NamedTuple):
    """Pairs of a subscription and a joined row, by number in `tuples`."""

    slot: Index
    tuple: Index
    tuples: Tuples

    def take(self, index: Index | Mask) -> Matches:
        return self._replace(slot=self.slot[index], tuple=self.tuple[index])

    def compact(self) -> Matches:
        """Without the joined rows that nobody matches, if those are most."""
        if 4 * len(self.slot) > len(self.tuples.sign):
            return self
        used, at = np.unique(self.tuple, return_inverse=True)
        return Matches(self.slot, at, self.tuples.take(used))

    @classmethod
    def concat(cls, parts: Sequence[Matches]) -> Matches:
        """One after the other."""
        if len(parts) == 1:
            return parts[0]
        first = np.cumsum([0, *(len(part.tuples.sign) for part in parts[:-1])])
        return cls(
            np.concatenate([part.slot for part in parts]),
            np.concatenate([part.tuple + base for part, base in zip(parts, first, strict=True)]),
            Tuples.concat([part.tuples for part in parts]),
        )


class Projection(NamedTuple):
    """Columns of an answer: place, column, name."""

    items: tuple[tuple[int, str, str], ...]

    @classmethod
    def of(cls, query: Query) -> Projection:
        places = places_of(query)
        return cls(
            tuple(
                (places[item.expression.relation], item.expression.name, item.name)
                for item in query.items
                if isinstance(item.expression, Column)
            )
        )
