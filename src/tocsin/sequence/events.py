"""Events of a stream that begin or continue a sequence: the columns that answers show.

>>> from tocsin.model.schema import Type
>>> kept = KeptEvents({"n": Type.BIGINT})
>>> kept.append(Rows.of(n=Vector.of(Type.BIGINT, [5, 6, 7])), np.array([3, 4, 9])).tolist()
[0, 1, 2]
>>> kept.keep(np.array([2])).tolist(), kept.take("n", np.array([0])).to_list(), kept.seq[:1].tolist()
([-1, -1, 0], [7], [9])
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tocsin.model.columns import Index, Rows, Vector, longer
from tocsin.model.schema import Type

__all__ = ["KeptEvents"]


class KeptEvents:
    """Some columns of events, with their seqs, by place."""

    def __init__(self, types: Mapping[str, Type]) -> None:
        self._columns = {name: Vector.blank(type, 0) for name, type in types.items()}
        self.seq: Index = np.empty(0, np.int64)
        self.used = 0

    def need(self, types: Mapping[str, Type]) -> None:
        """Keep these columns too; of events kept already they are NULL."""
        for name, type in types.items():
            if name not in self._columns:
                self._columns[name] = Vector.blank(type, len(self.seq))

    def append(self, rows: Rows, seq: Index) -> Index:
        """Keep events; their places."""
        first, last = self.used, self.used + len(rows)
        if last > len(self.seq):
            self._grow(max(64, last, 3 * len(self.seq) // 2))
        self.seq[first:last] = seq
        for name, column in self._columns.items():
            if given := rows.vectors(name):
                column.values[first:last], column.valid[first:last] = given[0].values, given[0].valid
            else:
                column.valid[first:last] = False
        self.used = last
        return np.arange(first, last)

    def cut(self, used: int) -> None:
        """Drop all from a place on."""
        self.used = used

    def keep(self, places: Index) -> Index:
        """Drop all others; the new place of each, by the old one."""
        moved = np.full(self.used, -1, np.int64)
        moved[places] = np.arange(len(places))
        self.seq = self.seq[places]
        self._columns = {name: column.take(places) for name, column in self._columns.items()}
        self.used = len(places)
        return moved

    def take(self, name: str, places: Index) -> Vector:
        """A column of some events."""
        return self._columns[name].take(places)

    @property
    def types(self) -> dict[str, Type]:
        """The columns and their types."""
        return {name: column.type for name, column in self._columns.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays; texts are not in them."""
        return self.seq.nbytes + sum(v.values.nbytes + v.valid.nbytes for v in self._columns.values())

    def _grow(self, capacity: int) -> None:
        more = capacity - len(self.seq)
        self.seq = longer(self.seq, capacity)
        for name, column in self._columns.items():
            tail = Vector.blank(column.type, more)
            values = np.concatenate([column.values, tail.values])
            self._columns[name] = Vector(column.type, values, np.concatenate([column.valid, tail.valid]))
