"""Rows of a table or of a join, and how a step changes them.

A query over groups reads the rows of its inner query (`needs.py`): those of one table that pass its filter,
or joined rows. `SignedRows` are the changes of a step in order, -1 and +1; what was there before the step is
a bag, `RowBag`, which follows them.

>>> from tocsin.model.schema import Type
>>> from tocsin.model.columns import Vector
>>> now = Rows.of(c0=Vector.of(Type.BIGINT, [7, 7, 8]))
>>> changes = SignedRows(np.array([3, 4]), np.array([1, -1]), Rows.of(c0=Vector.of(Type.BIGINT, [7, 9])))
>>> bag = RowBag(now, changes)  # the first 7 came at 3, and a 9 went at 4
>>> [rows.vectors("c0")[0].to_list() for _, rows in bag.moments()]
[[7, 8, 9], [7, 7, 8, 9], [7, 7, 8]]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Column
from tocsin.language.shape import Plan
from tocsin.model.columns import Index, Rows
from tocsin.model.delta import Deltas
from tocsin.predicate.evaluate import Facts
from tocsin.store.step import Step

__all__ = ["RowBag", "SignedRows", "rows_of", "rows_of_table", "table_changes"]


@dataclass(frozen=True)
class SignedRows:
    """Rows that leave (-1) and come (+1), in order of seq."""

    seq: Index
    sign: NDArray[Any]
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)


class RowBag:
    """The rows after a step, and its changes: which rows there were at each moment."""

    def __init__(self, now: Rows, changes: SignedRows) -> None:
        self._rows = Rows.concat([now, changes.rows]) if len(changes) else now
        self._changes = changes
        code = self._rows.codes()
        self._first = np.unique(code, return_index=True)[1]
        code = np.searchsorted(code[self._first], code)
        self._counts = np.bincount(code[: len(now)], minlength=len(self._first)).astype(np.int64)
        self._code = code[len(now) :]
        np.subtract.at(self._counts, self._code, np.asarray(changes.sign, np.int64))

    def moments(self) -> Iterator[tuple[int | None, Rows]]:
        """The rows before the step, with None, and after each seq that changes them."""
        yield None, self._now()
        seqs = self._changes.seq
        cuts = np.flatnonzero(np.diff(seqs)) + 1
        for some in np.split(np.arange(len(seqs)), cuts) if len(seqs) else ():
            np.add.at(self._counts, self._code[some], np.asarray(self._changes.sign[some], np.int64))
            yield int(seqs[some[0]]), self._now()

    def _now(self) -> Rows:
        assert np.all(self._counts >= 0)
        return self._rows.take(np.repeat(self._first, self._counts))


def rows_of_table(plan: Plan, name: Mapping[Column, str], step: Step) -> Rows:
    """The selected rows of a plan over one table, as it is after the step."""
    table = plan.query.tables[0].name
    store = step.tables[table]
    alive = store.alive()
    chosen = alive[step.selected(table, plan.filters[0])[alive]]
    return store.rows.project({own: column.name for column, own in name.items()}).take(chosen)


def table_changes(plan: Plan, name: Mapping[Column, str], step: Step) -> SignedRows:
    """How a step changes the selected rows of a plan over one table."""
    table = plan.query.tables[0].name
    signed = step.changed[table].signed()
    rows = step.tables[table].rows.take(signed.slot)
    chosen = np.flatnonzero(Facts(rows).matches(plan.filters[0]))
    projected = rows.project({own: column.name for column, own in name.items()}).take(chosen)
    return SignedRows(step.seq[signed.position[chosen]], signed.sign[chosen], projected)


def rows_of(deltas: Deltas) -> SignedRows:
    """The rows of one inner query's deltas, in order of seq."""
    deltas = deltas.take(np.argsort(deltas.seq, kind="stable"))
    sources = np.unique(deltas.source).tolist()
    if len(sources) == 1:
        return SignedRows(deltas.seq, deltas.sign, deltas.sources[sources[0]].take(deltas.row))
    first = np.zeros(len(deltas.sources), np.int64)
    used = [deltas.sources[n] for n in sources]
    first[sources] = np.cumsum([0, *map(len, used[:-1])])
    whole = Rows.concat(used).take(deltas.row + first[deltas.source])
    return SignedRows(deltas.seq, deltas.sign, whole)
