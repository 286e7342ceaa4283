"""Matches as deltas: rows of each projection once, -old +new of an update cancelled.

A subscription that neither gains nor loses a row by an update is told nothing. That takes a comparison of
whole rows, which is needed only where a change both takes and gives: inserts and deletes go by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.join.members import Matches, Tuples
from tocsin.join.signature import places_of
from tocsin.language.algebra import Column, Query
from tocsin.model.columns import Index, Mask, Rows
from tocsin.model.delta import Deltas, netted
from tocsin.store.step import Step

__all__ = ["Projection", "deltas_of"]


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
        rows = _projected(projections[number], tuples.rows, tables, step)
        told = Deltas.of(step.seq[tuples.position][row], mine.slot, tuples.sign[row], rows, row)
        if (both := mixed[tuples.position][row]).any():
            some = np.flatnonzero(both)
            code = rows.codes()[told.row[some]]
            left = netted([told.seq[some], told.subscription[some], code], told.sign[some])
            told = told.take(np.concatenate([np.flatnonzero(~both), some[left]]))
        parts.append(told)
    return Deltas.concat(parts)


def _with_both_signs(tuples: Tuples, changes: int) -> Mask:
    """By position: does the change both take and give?"""
    taking, giving = np.zeros(changes, np.bool_), np.zeros(changes, np.bool_)
    taking[tuples.position[tuples.sign < 0]] = True
    giving[tuples.position[tuples.sign > 0]] = True
    return taking & giving


def _projected(projection: Projection, rows: Sequence[Index], tables: Sequence[str], step: Step) -> Rows:
    columns = [
        (name, step.tables[tables[place]].rows.vectors(column)[0].take(rows[place]))
        for place, column, name in projection.items
    ]
    return Rows(columns, len(rows[0]))
