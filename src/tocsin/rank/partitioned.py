"""Row sources for filters beside a range: rows partitioned by the values of columns, and rows as points.

    SELECT MAX(delay) FROM flights WHERE hour BETWEEN 6 AND 9 AND carrier = 'UA' AND tail LIKE 'N%'
    range of hour: 6..9          partition: carrier = 'UA'          condition: tail LIKE 'N%'

A family lays its rows along a line. `PartitionedRows` cuts that line into partitions of equal length, one for
each combination of values that a subscription names; within a partition rows are ordered by the attribute of
the range:

    | UA:  5  6  7  7  9 .. | DL:  6  6  8 .. | AA: ..        subscription: 6..9 in the partition UA

A code has 64 bits, too many for a part of the line, so within a partition rows lie at labels of codes
(`labels.py`). When there is no gap left between two labels, `LabelsExhausted` is raised, the room assigns new
ones (`relabel`) and rebuilds the families of the source. Values that no subscription names have no partition,
and their rows are ignored.

`PointRows` are for families with several ranges (`boxes.py`): a row is a point, the number of its partition
(if there are columns) and the codes of all attributes.

Cost: for each changed row the lookup of its values and a binary search, besides the cost of the families.

K12 and T07 have no further conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tocsin.language.rewrite import NormalForm
from tocsin.model.columns import Index, Mask, Rows, column_codes, longer
from tocsin.model.schema import Type
from tocsin.model.texts import TextNumbers
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.evaluate import Facts
from tocsin.rank.family import NotIndexable, RowSource
from tocsin.rank.labels import Labels
from tocsin.store.ids import IdMap
from tocsin.store.step import Step

__all__ = ["LabelsExhausted", "PartitionedRows", "PointRows"]

_BITS = 38  # of a label within a partition
_HALF = 1 << (_BITS - 1)  # labels are from -_HALF on
_MAX_PARTITIONS = 1 << (62 - _BITS)
_GAP = 1 << 20
_PARTITION, _LOW, _HIGH, _LIMIT = range(4)  # rows of `_registered`


class LabelsExhausted(Exception):
    """A partitioned source has no label for a code: relabel it, then rebuild its families."""

    def __init__(self, source: PartitionedRows) -> None:
        super().__init__(source.table)
        self.source = source


class PartitionedRows(RowSource):
    """Rows of a table by the values of some columns and, within equal values, by the code of an attribute."""

    def __init__(
        self, table: str, attribute: str | None, columns: Sequence[str], condition: NormalForm
    ) -> None:
        self.table, self.attribute, self.condition = table, attribute, condition
        self.columns = tuple(columns)
        self._values = _ValueCombinations(len(columns))
        self._labels = Labels(1, gap=_GAP, limit=_HALF)
        self._registered: Index = np.zeros((4, 16), np.int64)  # by slot: partition, ends as codes, limit
        self._max_labels = 0  # relabel beyond: most labels are of rows long gone

    def __len__(self) -> int:
        """How many partitions there are."""
        return len(self._values)

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "by": self.columns, "values": len(self)}

    # -- subscriptions -----------------------------------------------------------------------------

    def register(
        self, slots: Index, low: Index, high: Index, limit: int | None, values: Sequence[Sequence[Any]]
    ) -> bool:
        before = len(self)
        partition = self._values.add(values)
        if len(self) > _MAX_PARTITIONS:
            raise NotIndexable(f"{self.table}: too many values")
        top = int(slots.max(initial=-1)) + 1
        if top > self._registered.shape[1]:
            self._registered = np.ascontiguousarray(longer(self._registered.T, 2 * top).T)
        self._registered[_PARTITION, slots], self._registered[_LIMIT, slots] = partition, limit or 0
        self._registered[_LOW, slots], self._registered[_HIGH, slots] = low, high
        return len(self) > before

    def ranges(
        self, slots: Index, low: Index | None = None, high: Index | None = None
    ) -> tuple[Index, Index]:
        """Where the ranges of registered subscriptions begin and end on the line."""
        partition, lows, highs, _ = self._registered[:, slots]
        if self.attribute is None:
            return partition, partition
        begin = partition << _BITS
        first, last = begin.copy(), begin + 2 * _HALF - 1
        for ends, out, is_open in ((lows, first, lows == LEAST), (highs, last, highs == GREATEST)):
            out[~is_open] = begin[~is_open] + self._label(ends[~is_open])
        return first, last

    def limits(self, slots: Index) -> Index:
        """The limits of registered subscriptions; 0 for none."""
        return self._registered[_LIMIT, slots]

    # -- rows --------------------------------------------------------------------------------------

    def locate(self, step: Step, rows: Index) -> tuple[Index, Mask]:
        table = step.tables[self.table].rows
        x = self._values.find(table, self.columns, rows)
        inside = x >= 0
        if not self.condition.always:
            found = np.flatnonzero(inside)
            inside[found] = Facts(table.take(rows[found])).matches(self.condition)
        if self.attribute is None:
            return x, inside
        vector = table.vectors(self.attribute)[0]
        inside &= vector.valid[rows]
        found = np.flatnonzero(inside)
        codes = column_codes(vector.take(rows[found]))
        if np.any((codes == LEAST) | (codes == GREATEST)):
            raise NotIndexable(f"{self.table}.{self.attribute}")
        x[found] = (x[found] << _BITS) + self._label(codes)
        return x, inside

    def _label(self, codes: Index) -> Index:
        """Positions within a partition, from 0 on."""
        found = self._labels.find(codes[:, None]) if len(codes) else codes
        if found is None or len(self._labels) > self._max_labels:
            raise LabelsExhausted(self)
        return found + _HALF

    def relabel(self, step: Step, slots: Index) -> None:
        """Assign labels to the codes of all rows of the step, and to the ends of these subscriptions."""
        step.memo.pop(("moves", self), None)
        if self.attribute is None:
            return
        store = step.tables[self.table]
        vector = store.rows.vectors(self.attribute)[0]
        codes = column_codes(vector.take(np.flatnonzero(store.present() & vector.valid)))
        keys = np.unique(np.concatenate([codes, *self._registered[_LOW : _HIGH + 1, slots]]))
        self._labels.load(keys[:, None])
        self._max_labels = 4 * len(keys) + 4096


class PointRows(RowSource):
    """Rows of a table as points: their partition by the values of columns, and the codes of attributes."""

    def __init__(
        self, table: str, attributes: Sequence[str], columns: Sequence[str], condition: NormalForm
    ) -> None:
        self.table, self.attributes, self.condition = table, tuple(attributes), condition
        self.attribute = ", ".join(attributes)
        self.columns = tuple(columns)
        self._values = _ValueCombinations(len(columns))
        self._partition: Index = np.zeros(16, np.int64)  # by slot

    @property
    def width(self) -> int:
        """How many numbers a point has."""
        return len(self.attributes) + bool(self.columns)

    def stats(self) -> dict[str, Any]:
        more = {"by": self.columns, "values": len(self._values)} if self.columns else {}
        return {**super().stats(), **more}

    def register(
        self, slots: Index, low: Index, high: Index, limit: int | None, values: Sequence[Sequence[Any]]
    ) -> bool:
        if not self.columns:
            return False
        before = len(self._values)
        top = int(slots.max(initial=-1)) + 1
        if top > len(self._partition):
            self._partition = longer(self._partition, 2 * top)
        self._partition[slots] = self._values.add(values)
        return len(self._values) > before

    def ranges(self, slots: Index, low: Index, high: Index) -> tuple[Index, Index]:
        """The ends of boxes: given are those of the attributes, by subscription."""
        if not self.columns:
            return low, high
        partition = self._partition[slots][:, None]
        return np.concatenate([partition, low], axis=1), np.concatenate([partition, high], axis=1)

    def locate(self, step: Step, rows: Index) -> tuple[Index, Mask]:
        table = step.tables[self.table].rows
        points = np.zeros((len(rows), self.width), np.int64)
        inside = np.ones(len(rows), np.bool_)
        if self.columns:
            points[:, 0] = self._values.find(table, self.columns, rows)
            inside = points[:, 0] >= 0
        for at, name in enumerate(self.attributes, start=bool(self.columns)):
            vector = table.vectors(name)[0].take(rows)
            inside &= vector.valid
            points[:, at] = column_codes(vector)
        if not self.condition.always:
            found = np.flatnonzero(inside)
            inside[found] = Facts(table.take(rows[found])).matches(self.condition)
        return points, inside


class _ValueCombinations:
    """Combinations of column values, numbered in the order in which subscriptions name them."""

    def __init__(self, columns: int) -> None:
        self._texts = [TextNumbers() for _ in range(columns)]
        self._integers = [IdMap() for _ in range(columns)]
        self._pairs = [IdMap() for _ in range(columns)]  # (number so far, number in the column) -> number

    def __len__(self) -> int:
        return len(self._pairs[-1])

    def add(self, values: Sequence[Sequence[Any]]) -> Index:
        """The number of each combination, given by column; new combinations get one."""
        number = np.zeros(len(values[0]), np.int64)
        for at, column in enumerate(values):
            if len(column) and isinstance(column[0], str):
                mine = self._texts[at].add(column)
            else:
                mine = _numbered(self._integers[at], np.array(column, np.int64))
            number = _numbered(self._pairs[at], number << 32 | mine)
        return number

    def find(self, table: Rows, columns: Sequence[str], rows: Index) -> Index:
        """The number of each row's combination; -1 if no subscription names it."""
        number = np.zeros(len(rows), np.int64)
        for at, name in enumerate(columns):
            vector = table.vectors(name)[0]
            there = np.flatnonzero((number >= 0) & vector.valid[rows])
            values: Any = vector.values[rows[there]]
            if vector.type is Type.STRING:
                mine = self._texts[at].find(values)
            else:
                mine = self._integers[at].find(values).astype(np.int64)
            there, mine = there[mine >= 0], mine[mine >= 0]
            found = self._pairs[at].find(number[there] << 32 | mine)
            number[:] = np.where(number < 0, number, -1)
            number[there] = found
        return number


def _numbered(ids: IdMap, keys: Index) -> Index:
    fresh = np.unique(keys[ids.find(keys) < 0])
    ids.put(fresh, np.arange(len(ids), len(ids) + len(fresh)))
    return ids.find(keys).astype(np.int64)
