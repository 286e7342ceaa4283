"""Row sources for filters beside a range: rows partitioned by the values of columns, and rows as points.

    SELECT MAX(delay) FROM flights WHERE hour BETWEEN 6 AND 9 AND carrier = 'UA' AND tail LIKE '%N'
    range of hour: 6..9          partition: carrier = 'UA'          condition: tail LIKE '%N'

A family lays its rows along a line. `PartitionedRows` cuts that line into partitions of equal length, one for
each combination of values that a subscription names; within a partition rows are ordered by the attribute of
the range:

    | UA:  5  6  7  7  9 .. | DL:  6  6  8 .. | AA: ..        subscription: 6..9 in the partition UA

A code has 64 bits, too many for a part of the line, so within a partition rows lie at labels of codes
(`labels.py`), or of texts if the range is one of texts (`text_axis.py`; without columns the line is a single
partition). When there is no gap left between two labels, `LabelsExhausted` is raised, the room assigns new
ones (`relabel`) and rebuilds the families of the source. Values that no subscription names have no partition,
and their rows are ignored.

`PointRows` are for families with several ranges (`boxes.py`): a row is a point, the number of its partition
(if there are columns) and the codes of all attributes; of texts their labels.

Cost: for each changed row the lookup of its values and a binary search, besides the cost of the families.

K12 and T07 have no further conditions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tocsin.language.rewrite import NormalForm
from tocsin.model.columns import Index, Mask, Rows, column_codes, longer
from tocsin.model.schema import Type
from tocsin.model.texts import TextNumbers
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.evaluate import Facts
from tocsin.rank.family import NotIndexable, RangeEnds, RowSource
from tocsin.rank.labels import Labels
from tocsin.rank.text_axis import TextAxis, encoded
from tocsin.store.ids import IdMap
from tocsin.store.step import Step

__all__ = ["LabelsExhausted", "PartitionedRows", "PointRows"]

_BITS = 38  # of a label within a partition
_MAX_PARTITIONS = 1 << (62 - _BITS)
_GAP = 1 << 20
_ALL_BITS, _WIDE_GAP = 61, 1 << 40  # if there is a single partition
_PARTITION, _LOW, _HIGH, _LIMIT = range(4)  # rows of `_registered`


class LabelsExhausted(Exception):
    """A source has no label for a code or a text: relabel it, then rebuild its families."""

    def __init__(self, source: PartitionedRows | PointRows) -> None:
        super().__init__(source.table)
        self.source = source


class PartitionedRows(RowSource):
    """Rows of a table by the values of some columns and, within equal values, by the code of an attribute.

    `is_text`: the attribute is one of texts, and rows lie in their order.
    """

    def __init__(
        self,
        table: str,
        attribute: str | None,
        columns: Sequence[str],
        condition: NormalForm,
        *,
        is_text: bool = False,
    ) -> None:
        self.table, self.attribute, self.condition = table, attribute, condition
        self.columns = tuple(columns)
        self._values = _ValueCombinations(len(columns))
        self._bits, gap = (_BITS, _GAP) if columns else (_ALL_BITS, _WIDE_GAP)
        self._half = 1 << (self._bits - 1)  # labels are from -_half on
        self._labels = Labels(1, gap=gap, limit=self._half)
        self._axis = TextAxis(gap, self._half) if is_text else None  # instead of labels of codes
        self._registered: Index = np.zeros((4, 16), np.int64)  # by slot: partition, ends as codes, limit
        self._max_labels = 0  # relabel beyond: most labels are of rows long gone

    def __len__(self) -> int:
        """How many partitions there are."""
        return len(self._values)

    def stats(self) -> dict[str, Any]:
        more = {"by": self.columns, "values": len(self)} if self.columns else {}
        return {**super().stats(), **more}

    # -- subscriptions -----------------------------------------------------------------------------

    def register(self, slots: Index, ends: RangeEnds, limit: int | None) -> bool:
        before = len(self)
        partition = self._values.add(ends.values) if self.columns else 0
        if len(self) > _MAX_PARTITIONS:
            raise NotIndexable(f"{self.table}: too many values")
        top = int(slots.max(initial=-1)) + 1
        if top > self._registered.shape[1]:
            self._registered = np.ascontiguousarray(longer(self._registered.T, 2 * top).T)
        self._registered[_PARTITION, slots], self._registered[_LIMIT, slots] = partition, limit or 0
        if self._axis is not None and self.attribute is not None:
            self._axis.register(slots, ends.low, ends.high, ends.texts[self.attribute])
        else:
            self._registered[_LOW, slots], self._registered[_HIGH, slots] = ends.low, ends.high
        return len(self) > before

    def ranges(
        self, slots: Index, low: Index | None = None, high: Index | None = None
    ) -> tuple[Index, Index]:
        """Where the ranges of registered subscriptions begin and end on the line."""
        partition, lows, highs, _ = self._registered[:, slots]
        if self.attribute is None:
            return partition, partition
        if self._axis is not None:
            found = self._axis.ranges(slots)
            if found is None:
                raise LabelsExhausted(self)
            lows, highs = found
        begin = partition << self._bits
        first, last = begin.copy(), begin + 2 * self._half - 1
        for ends, out, is_open in ((lows, first, lows == LEAST), (highs, last, highs == GREATEST)):
            label = self._label(ends[~is_open]) if self._axis is None else ends[~is_open]
            out[~is_open] = begin[~is_open] + label + self._half
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
        if self._axis is not None:
            label = self._axis.find(encoded(vector, rows[found]))
            if label is None:
                raise LabelsExhausted(self)
        else:
            codes = column_codes(vector.take(rows[found]))
            if np.any((codes == LEAST) | (codes == GREATEST)):
                raise NotIndexable(f"{self.table}.{self.attribute}")
            label = self._label(codes)
        x[found] = (x[found] << self._bits) + label + self._half
        return x, inside

    def _label(self, codes: Index) -> Index:
        """The labels of codes."""
        found = self._labels.find(codes[:, None]) if len(codes) else codes
        if found is None or len(self._labels) > self._max_labels:
            raise LabelsExhausted(self)
        return found

    def relabel(self, step: Step, slots: Index) -> None:
        """Assign labels to the codes of all rows of the step, and to the ends of these subscriptions."""
        step.memo.pop(("moves", self), None)
        if self.attribute is None:
            return
        store = step.tables[self.table]
        vector = store.rows.vectors(self.attribute)[0]
        rows = np.flatnonzero(store.present() & vector.valid)
        if self._axis is not None:
            self._axis.reload(encoded(vector, rows), slots)
            return
        codes = column_codes(vector.take(rows))
        keys = np.unique(np.concatenate([codes, *self._registered[_LOW : _HIGH + 1, slots]]))
        self._labels.load(keys[:, None])
        self._max_labels = 4 * len(keys) + 4096

    def _check(self) -> None:
        """Labels are in order."""
        self._labels._check()
        if self._axis is not None:
            self._axis._check()


class PointRows(RowSource):
    """Rows of a table as points: their partition by the values of columns, and the codes of attributes.

    `texts`: attributes of texts, which have labels instead.
    """

    def __init__(
        self,
        table: str,
        attributes: Sequence[str],
        columns: Sequence[str],
        condition: NormalForm,
        *,
        texts: Collection[str] = (),
    ) -> None:
        self.table, self.attributes, self.condition = table, tuple(attributes), condition
        self.attribute = ", ".join(attributes)
        self.columns = tuple(columns)
        self._values = _ValueCombinations(len(columns))
        self._axes = {at: TextAxis(_WIDE_GAP) for at, name in enumerate(attributes) if name in texts}
        self._registered: Index = np.zeros((16, 2), np.int64)  # by slot: partition, limit
        ends = len(attributes) if self._axes else 0  # kept where `relabel` may need them
        self._ends: Index = np.zeros((16, 2, ends), np.int64)  # by slot: low and high codes

    @property
    def width(self) -> int:
        """How many numbers a point has."""
        return len(self.attributes) + bool(self.columns)

    def stats(self) -> dict[str, Any]:
        more = {"by": self.columns, "values": len(self._values)} if self.columns else {}
        return {**super().stats(), **more}

    # -- subscriptions -----------------------------------------------------------------------------

    def register(self, slots: Index, ends: RangeEnds, limit: int | None) -> bool:
        if not self.columns and not self._axes:
            return False
        before = len(self._values)
        top = int(slots.max(initial=-1)) + 1
        if top > len(self._registered):
            self._registered, self._ends = longer(self._registered, 2 * top), longer(self._ends, 2 * top)
        self._registered[slots, 0] = self._values.add(ends.values) if self.columns else 0
        self._registered[slots, 1] = limit or 0
        if self._axes:
            self._ends[slots, 0], self._ends[slots, 1] = ends.low, ends.high
        for at, axis in self._axes.items():
            axis.register(slots, ends.low[:, at], ends.high[:, at], ends.texts[self.attributes[at]])
        return len(self._values) > before

    def ranges(
        self, slots: Index, low: Index | None = None, high: Index | None = None
    ) -> tuple[Index, Index]:
        """The ends of boxes: given are those of the attributes, by subscription, if they are not kept."""
        if self._axes:
            low, high = self._ends[slots, 0], self._ends[slots, 1]
        assert low is not None and high is not None
        for at, axis in self._axes.items():
            found = axis.ranges(slots)
            if found is None:
                raise LabelsExhausted(self)
            low[:, at], high[:, at] = found
        if not self.columns:
            return low, high
        partition = self._registered[slots, :1]
        return np.concatenate([partition, low], axis=1), np.concatenate([partition, high], axis=1)

    def limits(self, slots: Index) -> Index:
        """The limits of registered subscriptions; 0 for none."""
        return self._registered[slots, 1]

    # -- rows --------------------------------------------------------------------------------------

    def locate(self, step: Step, rows: Index) -> tuple[Index, Mask]:
        table = step.tables[self.table].rows
        points = np.zeros((len(rows), self.width), np.int64)
        inside = np.ones(len(rows), np.bool_)
        begin = int(bool(self.columns))
        if self.columns:
            points[:, 0] = self._values.find(table, self.columns, rows)
            inside = points[:, 0] >= 0
        for at, name in enumerate(self.attributes):
            vector = table.vectors(name)[0].take(rows)
            inside &= vector.valid
            if at not in self._axes:
                points[:, begin + at] = column_codes(vector)
        if not self.condition.always:
            found = np.flatnonzero(inside)
            inside[found] = Facts(table.take(rows[found])).matches(self.condition)
        found = np.flatnonzero(inside)
        for at, axis in self._axes.items():
            label = axis.find(encoded(table.vectors(self.attributes[at])[0], rows[found]))
            if label is None:
                raise LabelsExhausted(self)
            points[found, begin + at] = label
        return points, inside

    def relabel(self, step: Step, slots: Index) -> None:
        """Assign labels to the texts of all rows of the step, and to the ends of these subscriptions."""
        step.memo.pop(("moves", self), None)
        store = step.tables[self.table]
        for at, axis in self._axes.items():
            vector = store.rows.vectors(self.attributes[at])[0]
            axis.reload(encoded(vector, np.flatnonzero(store.present() & vector.valid)), slots)

    def _check(self) -> None:
        """Labels are in order."""
        for axis in self._axes.values():
            axis._check()


class _ValueCombinations:
    """Combinations of column values, numbered in the order in which subscriptions name them."""

    def __init__(self, columns: int) -> None:
        self._texts = [TextNumbers() for _ in range(columns)]
        self._integers = [IdMap() for _ in range(columns)]
        self._pairs = [IdMap() for _ in range(columns)]  # (number so far, number in the column) -> number

    def __len__(self) -> int:
        return len(self._pairs[-1]) if self._pairs else 1

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
