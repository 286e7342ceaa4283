"""Joined rows, matches of subscriptions with them, and the deltas they become.

Rows of each projection are emitted once; the -old +new of an update cancel where they are equal, so that a
subscription that neither gains nor loses a row receives nothing. That takes a comparison of whole rows,
needed only where one change both deletes and inserts joined rows: plain inserts and deletes skip it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.join.signature import places_of
from tocsin.language.algebra import Column, Query
from tocsin.model.columns import Index, Mask, Rows
from tocsin.model.delta import Deltas, netted
from tocsin.store.step import Step

__all__ = ["Matches", "Projection", "Tuples", "deltas_of"]


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


def deltas_of(
    found: Matches,
    tables: Sequence[str],
    projection: NDArray[np.int32],
    projections: Sequence[Projection],
    step: Step,
) -> Deltas:
    """Deltas of matches, one source of rows per projection; `projection` is by slot."""
    parts = []
    which = projection[found.slot] if len(projections) > 1 else np.zeros(1, np.int32)
    mixed = _with_both_signs(found.tuples, len(step.seq))
    for number in np.flatnonzero(np.bincount(which)).tolist():
        mine = found if len(projections) == 1 else found.take(which == number)
        used = np.zeros(len(found.tuples.sign), np.bool_)
        used[mine.tuple] = True
        if used.all():
            tuples, row = found.tuples, mine.tuple
        else:
            tuples, row = found.tuples.take(used), (np.cumsum(used) - 1)[mine.tuple]
        columns = [
            (name, step.tables[tables[place]].rows.vectors(column)[0].take(tuples.rows[place]))
            for place, column, name in projections[number].items
        ]
        rows = Rows(columns, len(tuples.sign))
        deltas = Deltas.of(step.seq[tuples.position][row], mine.slot, tuples.sign[row], rows, row)
        if (both := mixed[tuples.position][row]).any():
            some = np.flatnonzero(both)
            code = rows.codes()[deltas.row[some]]
            left = netted([deltas.seq[some], deltas.subscription[some], code], deltas.sign[some])
            deltas = deltas.take(np.concatenate([np.flatnonzero(~both), some[left]]))
        parts.append(deltas)
    return Deltas.concat(parts)


def _with_both_signs(tuples: Tuples, changes: int) -> Mask:
    """By position: does the change both delete and insert joined rows?"""
    deleting, inserting = np.zeros(changes, np.bool_), np.zeros(changes, np.bool_)
    deleting[tuples.position[tuples.sign < 0]] = True
    inserting[tuples.position[tuples.sign > 0]] = True
    return deleting & inserting
