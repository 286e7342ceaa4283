"""DISTINCT over ranges: which answers gain a value with its first row, or lose it with its last one?

A row that is inserted or deleted changes the answers of the ranges that contain it and no other row of its
value. So the nearest rows of equal value, on both sides, bound one rectangle of the subscription space:

    value 7    ---7--------------7-----------7---      l after the left one and r before the right one,
                  xl             x          xr         and x between them

Rows are kept in the order of (value, x), values as numbers assigned when they are first seen. Cost: O(log n)
for a row, and its deltas; nothing for ranges with another row of the value.

>>> import pyarrow as pa
>>> from tocsin.language.ddl import parse_definitions
>>> from tocsin.language.shape import plan
>>> from tocsin.language.sql import parse_query
>>> from tocsin.store.database import Database
>>> database = Database()
>>> database.define(parse_definitions("CREATE TABLE t (k BIGINT, x BIGINT, s STRING, PRIMARY KEY (k))"), {})
>>> query = parse_query("SELECT DISTINCT s FROM t", database.catalog)
>>> from tocsin.rank.family import FilteredRows
>>> family = DistinctFamily(FilteredRows("t", "x", plan(query).filters[0]), query)
>>> family.add(np.array([7, 8]), np.array([0, 5]), np.array([9, 20]), query)
>>> step = database.stage({"t": pa.table({"k": [1, 2], "x": [3, 6], "s": ["A", "A"]})})
>>> [(d.seq, d.subscription, d.sign, d.row) for d in family.deltas(step)]
[(1, 7, 1, {'s': 'A'}), (2, 8, 1, {'s': 'A'})]

T07, section 5.4. The tree is that of `DistinctRanges`; here the server looks subscriptions up instead of
sending messages to rectangles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tocsin.language.algebra import Column, Query
from tocsin.model.buffers import laid_out
from tocsin.model.columns import Index, Rows, column_codes, renumbered
from tocsin.model.delta import Deltas
from tocsin.model.schema import Type
from tocsin.model.texts import TextNumbers
from tocsin.rank._kernels.extremes import Objects
from tocsin.rank.extremes import DistinctRanges
from tocsin.rank.family import RangeFamily, RowMoves, RowSource
from tocsin.rank.members import Members, RangeMembers, unpack
from tocsin.store.step import Step

__all__ = ["DistinctFamily"]

_LEAVES, _ENTERS = 0, 1  # kinds of changes: a value leaves or enters answers
_MAX_UNUSED, _MIN_NUMBERS = 4, 1 << 16  # numbers assigned, as a multiple of the rows; and at least


class DistinctFamily(RangeFamily):
    """Queries of DISTINCT columns; there is no state by member."""

    name = "distinct"

    def __init__(self, source: RowSource, query: Query, members: Members | None = None) -> None:
        super().__init__(source, query)
        self._members = RangeMembers() if members is None else members
        self._names = {i.name: i.expression.name for i in query.items if isinstance(i.expression, Column)}
        assert query.distinct and len(self._names) == len(query.items)
        self._numbers = _RowNumbers()
        self._ranges = DistinctRanges()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, slots: Index, low: Index, high: Index, query: Query) -> None:
        self._members.add(slots, low, high)

    def remove(self, slots: Index) -> None:
        self._members.remove(slots)

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "rows": self._count_rows(), "values": len(self._numbers)}

    def contents(self, step: Step, slots: Index) -> tuple[Index, Rows] | None:
        rows, x = self.source.rows_before(step)
        answers = step.tables[self.source.table].rows.project(self._names).take(rows)
        code = answers.codes()
        found = []
        for low, high in zip(*self._members.ranges(slots), strict=True):
            inside = self._inside(x, low, high)
            found.append(inside[np.unique(code[inside], return_index=True)[1]])
        owner = np.repeat(np.arange(len(slots)), [len(one) for one in found])
        return owner, answers.take(np.concatenate(found))

    def _inside(self, x: Index, low: Index, high: Index) -> Index:
        """The rows in a range."""
        return np.flatnonzero((x >= low) & (x <= high))

    def _rebuild(self, step: Step) -> None:
        self._numbers = _RowNumbers()
        self._load(step)

    def _load(self, step: Step) -> None:
        """Load the rows as they were before the step."""
        rows, x = self.source.rows_before(step)
        self._ranges = DistinctRanges(x, self._number(step, rows))

    def _count_rows(self) -> int:
        return len(self._ranges)

    def _rebuild_if_stale(self, step: Step) -> None:
        if len(self._numbers) > _MAX_UNUSED * self._count_rows() + _MIN_NUMBERS:
            self._rebuild(step)  # most numbers are of rows long gone

    def _number(self, step: Step, rows: Index) -> Index:
        """The number of each row's value; 0 for rows at -1."""
        out, there = np.zeros(len(rows), np.int64), rows >= 0
        found = step.tables[self.source.table].rows
        out[there] = self._numbers.number(found.project(self._names).take(rows[there]))
        return out

    def _apply(self, step: Step, moves: RowMoves) -> Deltas:
        self._rebuild_if_stale(step)
        assert isinstance(self._members, RangeMembers)
        had, has = moves.old >= 0, moves.new >= 0
        old, new = self._number(step, moves.old), self._number(step, moves.new)
        # each change is an object of its own, which moves from the old row to the new one
        self._ranges.objects = Objects(had, moves.old_x.copy(), old)
        messages = self._ranges.update(np.arange(len(moves)), moves.new_x, new, has)
        kind = np.where(messages.empty, _LEAVES, _ENTERS)
        rows = np.stack([moves.old, moves.new], axis=1).ravel()
        ends = np.flatnonzero(np.diff(messages.update, append=len(moves))) + 1  # of the messages of a change
        begin, parts = 0, []
        for end in ends[_batch_ends(self._members.batch_size, len(ends))].tolist():
            some = slice(begin, end)
            found = self._members.affected(messages.bounds[some], messages.update[some], kind[some])
            parts.append(self._emit(step, moves, rows, found))
            begin = end
        return Deltas.concat(parts)

    def _emit(self, step: Step, moves: RowMoves, rows: Index, found: Index) -> Deltas:
        """Packed pairs as deltas; the old row of change i has number 2 i in `rows`, its new one 2 i + 1."""
        if not len(found):
            return Deltas.none()
        change, rank, kind = unpack(found)
        row, begin = 2 * (change - change[0]) + kind, 2 * change[0]
        used, row = renumbered(row, int(row[-1]) + 2)
        answers = step.tables[self.source.table].rows.project(self._names).take(rows[begin + used])
        slots = self._members.slot[self._members.by_rank()[rank]]
        return Deltas.of(step.seq[moves.position[change]], slots, 2 * kind - 1, answers, row)

    def _check(self) -> None:
        """Members, tree and numbers are sound."""
        self._members._check()
        self._ranges.tree._check()
        self._numbers._check()


def _batch_ends(count: int, total: int) -> list[int]:
    """The last of each batch of so many, and the last of all."""
    return [min(i + count, total) - 1 for i in range(0, total, count)]


class _RowNumbers:
    """Numbers of rows: equal rows have equal numbers, NULL equals NULL and NaN equals NaN.

    A row is packed as bytes: by column whether there is a value, and its code.
    """

    def __init__(self) -> None:
        self._texts = TextNumbers()  # of all columns
        self._rows = TextNumbers()

    def __len__(self) -> int:
        return self._rows._count

    def number(self, rows: Rows) -> Index:
        """The number of each row."""
        packed = np.zeros((len(rows), len(rows.columns)), np.dtype([("there", np.uint8), ("code", np.int64)]))
        for i, (_, vector) in enumerate(rows.columns):
            there = vector.valid
            packed["there"][:, i] = there
            if vector.type is Type.STRING:
                packed["code"][there, i] = self._texts.number(*laid_out(vector.values[there]))
            else:
                packed["code"][:, i] = np.where(there, column_codes(vector), 0)
        data = packed.reshape(-1).view(np.uint8)
        start = np.arange(len(rows) + 1) * (packed.dtype.itemsize * packed.shape[1])
        return self._rows.number(start, data)

    def _check(self) -> None:
        self._texts._check()
