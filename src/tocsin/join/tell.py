"""Matches as deltas: rows of each projection once, -old +new of an update cancelled.

A subscription that neither gains nor loses a row by an update is told nothing. That takes a comparison of
whole rows, which is needed only where a change both takes and gives: inserts and deletes go by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.join.members import Matches, Tuples
from tocsin.join.signature import places_of
from tocsin.language.algebra import Column, Query
from tocsin.model.columns import Index, Mask, Rows
from tocsin.model.delta import Deltas
from tocsin.store.step import Step

__all__ = ["Projection", "deltas_of", "in_order"]


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
            told = _netted(told, both, rows)
        parts.append(told)
    return Deltas.concat(parts)


def _with_both_signs(tuples: Tuples, changes: int) -> Mask:
    """By position: does the change both take and give?"""
    taking, giving = np.zeros(changes, np.bool_), np.zeros(changes, np.bool_)
    taking[tuples.position[tuples.sign < 0]] = True
    giving[tuples.position[tuples.sign > 0]] = True
    return taking & giving


def _netted(told: Deltas, mixed: Mask, rows: Rows) -> Deltas:
    """Equal rows of one (seq, subscription) cancel, where `mixed`."""
    code = rows.codes()[told.row[mixed]]
    key = _one_key([told.seq[mixed], told.subscription[mixed], code])
    if key is None:
        return _beside(told.take(~mixed), told.take(mixed).consolidate())
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    chosen = np.flatnonzero(mixed)[order]
    total = np.add.reduceat(told.sign[chosen].astype(np.int64), first)
    left = told.take(np.repeat(chosen[first], np.abs(total)))
    left = replace(left, sign=np.repeat(np.sign(total), np.abs(total)).astype(np.int8))
    return left if mixed.all() else _beside(told.take(~mixed), left)


def _one_key(columns: Sequence[NDArray[Any]]) -> Index | None:
    """Columns as one number per row, in their order; None if that takes more than an int64."""
    key, width = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        least = int(column.min())
        span = int(column.max()) - least + 1
        width *= span
        if width >= 2**63:
            return None
        key = key * span + (column - least)
    return key


def _beside(one: Deltas, other: Deltas) -> Deltas:
    """Both, over the sources that they share."""
    return Deltas(
        np.concatenate([one.seq, other.seq]),
        np.concatenate([one.subscription, other.subscription]),
        np.concatenate([one.sign, other.sign]),
        np.concatenate([one.source, other.source]),
        np.concatenate([one.row, other.row]),
        one.sources,
    )


def in_order(told: Deltas) -> Deltas:
    """By seq, subscription and sign: one sort of one number where that is possible."""
    if len(told) < 2:
        return told
    key = _one_key([told.seq, told.subscription, told.sign])
    return told.ordered() if key is None else told.take(np.argsort(key, kind="stable"))


def _projected(projection: Projection, rows: Sequence[Index], tables: Sequence[str], step: Step) -> Rows:
    columns = [
        (name, step.tables[tables[place]].rows.vectors(column)[0].take(rows[place]))
        for place, column, name in projection.items
    ]
    return Rows(columns, len(rows[0]))
