"""Families with several ranges: each subscription is a box, each row a point.

    SELECT MIN(per) FROM stocks WHERE risk BETWEEN 20 AND 60 AND price > 5 AND sector = 'tech'
    box: sector number 3..3, price 6.., risk 20..60

Where the ranges of one attribute distinguish the subscriptions, and the others are the same for all, the
families with one range are used (`split.py` decides). Otherwise a change is looked up in a forest of boxes
(`forest.py`), pruned by what cannot change an answer; the order in which ranges are written does not matter:

    COUNT, SUM, AVG   BoxAggregateFamily   boxes that contain the old or the new row
    top-k, MIN, MAX   BoxTopkFamily,       ... and whose k-th row is not before it: each node of the forest
                      BoxExtremeFamily     knows the last k-th row of the boxes below
    DISTINCT          BoxDistinctFamily    ... and no other row of its value: the few nearest ones decide
                                           (`_kernels/box_values.py`)

A top-k member keeps its first k rows. When it loses one, the next one is looked up in a forest of the rows,
where DISTINCT finds other rows of a value.

Cost per change: about the members whose answers change, times the logarithm of the number of members; for
each of them that loses a row, a search among the rows. `candidates` in the statistics counts members tested.

K12 and T07 have one range. Thresholds in an index of subscriptions are those of publish/subscribe systems for
top-k; the forest is a kd-tree with bounds, like that of `space.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Query
from tocsin.model.columns import Index, Mask, Rows, Vector, longer
from tocsin.model.delta import Deltas
from tocsin.rank._kernels.aggregates import AggregateTotals, add_prefix_sums
from tocsin.rank._kernels.box_values import find_values
from tocsin.rank._kernels.boxes import (
    CANDIDATES,
    AnswerLists,
    BoxMoves,
    ListChanges,
    fill_lists,
    refresh_tops,
    stab_moves,
    sum_boxes,
    update_lists,
)
from tocsin.rank.aggregates import AggregateFamily
from tocsin.rank.distinct import DistinctFamily
from tocsin.rank.family import RangeFamily, RowMoves
from tocsin.rank.forest import PointForest
from tocsin.rank.labels import RowKeys
from tocsin.rank.members import BoxMembers
from tocsin.rank.partitioned import PointRows
from tocsin.rank.sums import AggregateCells
from tocsin.rank.topk import AnswerChanges, ExtremeFamily, RankedFamily, TopkFamily
from tocsin.store.step import Step

__all__ = ["BoxAggregateFamily", "BoxDistinctFamily", "BoxExtremeFamily", "BoxTopkFamily", "FirstRows"]

_CHUNK = 256  # changes until new rows are packed
_BUFFER = 1 << 16  # outputs, besides those that one change may have
_SCANNED = 8  # boxes up to which rows are scanned instead of packed


def _row_forest(rows: Index, points: Index, label: Index, boxes: int) -> PointForest:
    """Rows as points with one more number; a few boxes are not worth packing them."""
    forest = PointForest(points.shape[1] + 1)
    forest.add(rows, np.concatenate([points, label[:, None]], axis=1), pack=boxes > _SCANNED)
    return forest


def _box_moves(moves: RowMoves, old_label: Index, new_label: Index) -> BoxMoves:
    return BoxMoves(moves.old, moves.new, moves.old_x, moves.new_x, old_label, new_label)


class _Work:
    """Counts of what searches did."""

    def __init__(self) -> None:
        self.counts = np.zeros(2, np.int64)
        self.changes = 0

    def stats(self) -> dict[str, Any]:
        return {"changes": self.changes, "candidates": int(self.counts[CANDIDATES])}


# -- COUNT, SUM, AVG ---------------------------------------------------------------------------------


class BoxAggregateFamily(AggregateFamily):
    """Queries of COUNT, SUM and AVG over boxes."""

    name = "box aggregates"

    def __init__(self, source: PointRows, query: Query) -> None:
        self._boxes = BoxMembers(source.width)
        self._work = _Work()
        super().__init__(source, query, self._boxes)

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), **self._work.stats()}

    def _sum_up(
        self,
        step: Step,
        cells: AggregateCells,
        totals: AggregateTotals,
        places: Index,
        low: Index,
        high: Index,
    ) -> tuple[AggregateTotals, bool]:
        if not len(places):
            return totals, False
        rows, points = self.source.rows_before(step)
        forest = _row_forest(rows, points, np.zeros(len(rows), np.int64), len(places))
        values = cells.read(step.tables[self.source.table].rows, forest.ids())
        totals = cells.widen(values, totals)
        sums, at = np.zeros((len(rows) + 1, cells.width), np.int64), np.arange(len(rows) + 1)
        add_prefix_sums(cells.layout, values, at, np.stack([at, at, np.ones_like(at)]), sums)
        totals.cells[places] = 0
        sum_boxes(forest.arrays, sums, np.concatenate([low, high], axis=1), places, totals.cells)
        return totals, cells.refresh(totals, places)

    def _affected(self, moves: RowMoves, changes: NDArray[np.int64]) -> Index:
        """Of each change the members that lose its old row, gain its new one, or exchange them."""
        wanted = np.ones((changes.shape[1], len(moves)), np.bool_)
        if not self._overflow:  # else members whose sums exceed BIGINT have to be found
            wanted = np.ascontiguousarray(changes.any(axis=2).T)
        none = np.zeros(len(moves), np.int64)
        boxes, rank = self._boxes.forest.arrays, self._boxes.ranks()
        self._work.changes += len(moves)
        out = np.empty(int(boxes.used[0]) + _BUFFER, np.int64)
        at, parts = 0, []
        while at < len(moves):
            at = stab_moves(boxes, _box_moves(moves, none, none), rank, wanted, at, out, self._work.counts)
            parts.append(out[: self._work.counts[0]].copy())
        packed = np.concatenate(parts) if parts else np.empty(0, np.int64)
        packed.sort()
        return packed


# -- DISTINCT ----------------------------------------------------------------------------------------


class BoxDistinctFamily(DistinctFamily):
    """Queries of DISTINCT columns over boxes."""

    name = "box distinct"

    def __init__(self, source: PointRows, query: Query) -> None:
        self._boxes = BoxMembers(source.width)
        self._work = _Work()
        self._rows = PointForest(source.width + 1)
        super().__init__(source, query, self._boxes)

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), **self._work.stats()}

    def _inside(self, points: Index, low: Index, high: Index) -> Index:
        return np.flatnonzero(((points >= low) & (points <= high)).all(axis=1))

    def _load(self, step: Step) -> None:
        rows, points = self.source.rows_before(step)
        self._rows = _row_forest(rows, points, self._number(step, rows), len(self))

    def _count_rows(self) -> int:
        return len(self._rows)

    def _apply(self, step: Step, moves: RowMoves) -> Deltas:
        self._rebuild_if_stale(step)
        old, new = self._number(step, moves.old), self._number(step, moves.new)
        rows = np.stack([moves.old, moves.new], axis=1).ravel()
        rank, boxes = self._boxes.ranks(), self._boxes.forest.arrays
        out = np.empty(2 * int(boxes.used[0]) + _BUFFER, np.int64)
        self._work.changes += len(moves)
        at, parts = 0, []
        while at < len(moves):
            end = min(len(moves), at + _CHUNK)
            part = _box_moves(RowMoves(*(side[:end] for side in moves)), old, new)
            self._rows.reserve(end - at, len(step.tables[self.source.table].rows))
            begin, at = at, find_values(boxes, self._rows.arrays, part, rank, at, out, self._work.counts)
            found = np.sort(out[: self._work.counts[0]])
            parts.append(self._emit(step, moves, rows, found))
            self._rows.pack(removed=int((moves.old[begin:at] >= 0).sum()))
        return Deltas.concat(parts)

    def _check(self) -> None:
        self._boxes._check()
        self._rows._check()
        self._numbers._check()


# -- top-k, MIN, MAX ---------------------------------------------------------------------------------


class FirstRows:
    """The first k rows of boxes: of members, which change with rows, or of any boxes at once."""

    def __init__(self, boxes: BoxMembers, k: int) -> None:
        self.boxes = boxes
        self.rows = PointForest(boxes.low.shape[1] + 1)
        self.work = _Work()
        self.fresh: Mask = np.zeros(0, np.bool_)  # by member: its list is not computed yet
        self._bounded = False  # are the bounds of nodes valid?
        none = np.empty(0, np.int64)
        self.lists = AnswerLists(np.empty((0, k), np.int64), none, none, none)

    def add(self, places: Index) -> None:
        """New members."""
        length = len(self.boxes.slot)
        if length > len(self.fresh):
            self.fresh = longer(self.fresh, length)
            self.lists = self.lists._replace(
                row=longer(self.lists.row, length), size=longer(self.lists.size, length)
            )
        self.fresh[places] = True
        self._bounded = False

    def remove(self, places: Index) -> None:
        """Members that are gone."""
        self.fresh[places] = False
        self._bounded = False

    def load(self, rows: Index, points: Index, label: Index) -> None:
        """All rows again; lists stay."""
        self.set_labels(rows, label)
        self.rows = _row_forest(rows, points, label, len(self.boxes))
        self._bounded = False

    def recompute_lists(self) -> None:
        """Compute all lists again."""
        self.fresh[self.boxes.places] = True

    def set_labels(self, rows: Index, label: Index) -> None:
        top = int(rows.max(initial=-1)) + 1
        if top > len(self.lists.label):
            self.lists = self.lists._replace(
                label=longer(self.lists.label, max(top, 2 * len(self.lists.label)))
            )
        self.lists.label[rows] = label

    def fill(self) -> None:
        """Compute what is missing before changes are applied: lists, and the bounds of nodes."""
        places = np.flatnonzero(self.fresh)
        boxes = self.boxes.forest.arrays
        if len(places):
            fill_lists(boxes, self.rows.arrays, self.lists, places)
            self.fresh[:] = False
        if not self._bounded:
            self.lists = self.lists._replace(top=np.empty(len(boxes.node), np.int64))
            refresh_tops(boxes, self.lists)
            self._bounded = True

    def update(self, moves: RowMoves, old_label: Index, new_label: Index, rows: int) -> ListChanges:
        """Apply changes; `rows`: the length of the table."""
        boxes = self.boxes.forest.arrays
        size = 2 * int(boxes.used[0]) + _BUFFER
        move, member, row = np.empty((3, size), np.int64)
        out = ListChanges(move, member, np.empty(size, np.int8), row)
        self.work.changes += len(moves)
        at, parts = 0, [[column[:0] for column in out]]
        while at < len(moves):
            end = min(len(moves), at + _CHUNK)
            part = _box_moves(RowMoves(*(side[:end] for side in moves)), old_label, new_label)
            self.rows.reserve(end - at, rows)
            begin, at = at, update_lists(boxes, self.rows.arrays, part, self.lists, at, out, self.work.counts)
            parts.append([column[: self.work.counts[0]].copy() for column in out])
            self.rows.pack(removed=int((moves.old[begin:at] >= 0).sum()))
        return ListChanges(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _check(self) -> None:
        self.boxes._check()
        self.rows._check()
        for place in self.boxes.places[~self.fresh[self.boxes.places]].tolist():
            mine = self.lists.row[place, : self.lists.size[place]]
            assert np.all(np.diff(self.lists.label[mine]) > 0)
            points = self.rows.points(mine)[:, :-1]
            assert np.all((points >= self.boxes.low[place]) & (points <= self.boxes.high[place]))


class _BoxRanking(RankedFamily):
    """What top-k and extremes over boxes share; mixed into both."""

    _few_moves = -1  # all moves are applied together
    _boxes: BoxMembers
    _first: FirstRows
    _stale: bool  # take more rows part now?

    def _set_up(self, k: int) -> None:
        assert isinstance(self.source, PointRows)
        self._boxes = BoxMembers(self.source.width)
        self._first = FirstRows(self._boxes, k)
        self._stale = False

    def __len__(self) -> int:
        return len(self._boxes)

    def add(self, slots: Index, low: Index, high: Index, query: Query) -> None:
        self._first.add(self._boxes.add(slots, low, high))

    def remove(self, slots: Index) -> None:
        self._first.remove(self._boxes.remove(slots))

    def _ranges(self, slots: Index) -> tuple[Index, Index]:
        return self._boxes.ranges(slots)

    def invalidate(self) -> None:
        """Lists depend on the rows of their boxes only, and stay."""
        self._stale = True

    def _load(self, step: Step, coming: Index) -> None:
        """Label all rows as they were before the step, and the coming ones."""
        rows, points = self.source.rows_before(step)
        if (ranked := self._ranked_rows(step, rows)) is not None:
            rows, points = rows[ranked], points[ranked]
        table = step.tables[self.source.table].rows
        self._keys.load(table.take(np.concatenate([rows, coming])))
        label = self._keys.find(table.take(rows))
        assert label is not None
        self._first.load(rows, points, label)
        self._stale = False

    def _rebuild(self, step: Step) -> None:
        self._load(step, np.empty(0, np.int64))
        self._first.recompute_lists()

    def _count_rows(self) -> int:
        return len(self._first.rows)

    def _answer_changes(self, step: Step, moves: RowMoves) -> tuple[RowMoves, AnswerChanges]:
        """Apply the moves of ranked rows; find which subscriptions gain and lose which rows."""
        if self._stale:
            self._load(step, np.empty(0, np.int64))
        moves = self._ranked_moves(step, moves)
        if not len(moves):
            none = np.empty(0, np.int64)
            return moves, AnswerChanges(none, none, np.empty(0, np.int8), none)
        comes, goes = np.flatnonzero(moves.new >= 0), np.flatnonzero(moves.old >= 0)
        old, new = np.zeros((2, len(moves)), np.int64)
        new[comes] = self._labels(step, moves.new[comes])
        self._first.set_labels(moves.new[comes], new[comes])
        old[goes] = self._first.lists.label[moves.old[goes]]
        self._first.fill()
        table = len(step.tables[self.source.table].rows)
        found = self._first.update(moves, old, new, table)
        return moves, AnswerChanges(found.move, self._boxes.slot[found.member], found.sign, found.row)

    def _netted(self, moves: RowMoves, changes: AnswerChanges) -> AnswerChanges:
        """Nothing to cancel: a list is compared before and after each move."""
        return changes

    def _first_of(self, step: Step, low: Index, high: Index) -> tuple[Index, Index]:
        """The first rows of boxes before the step, by box and in order: number of the box, row."""
        rows, points = self.source.rows_before(step)
        if (ranked := self._ranked_rows(step, rows)) is not None:
            rows, points = rows[ranked], points[ranked]
        table = step.tables[self.source.table].rows
        keys = RowKeys(self._keys.order, self._keys.key)
        keys.load(table.take(rows))
        label = keys.find(table.take(rows))
        assert label is not None
        boxes, places = BoxMembers(low.shape[1]), np.arange(len(low))
        first = FirstRows(boxes, self._first.lists.row.shape[1])
        first.add(boxes.add(places, low, high))
        first.load(rows, points, label)
        first.fill()
        count = first.lists.size[: len(low)]
        there = np.arange(first.lists.row.shape[1]) < count[:, None]
        return np.repeat(places, count), first.lists.row[: len(low)][there]

    def stats(self) -> dict[str, Any]:
        return {
            **RangeFamily.stats(self),
            "k": self._first.lists.row.shape[1],
            "rows": len(self._first.rows),
            "bytes": self._boxes.bytes + self._first.rows.bytes,
            **self._first.work.stats(),
        }

    def _check(self) -> None:
        self._first._check()
        self._keys._check()


class BoxTopkFamily(_BoxRanking, TopkFamily):
    """The first k rows of each box; k is the same for all."""

    name = "box topk"

    def __init__(self, source: PointRows, query: Query, key: tuple[str, ...]) -> None:
        TopkFamily.__init__(self, source, query, key)
        self._set_up(query.limit or 1)

    def contents(self, step: Step, slots: Index) -> tuple[Index, Rows] | None:
        owner, rows = self._first_of(step, *self._ranges(slots))
        return owner, step.tables[self.source.table].rows.take(rows).project(self._names)


class BoxExtremeFamily(_BoxRanking, ExtremeFamily):
    """The least or the greatest value of each box; NULL if it has none."""

    name = "box extremes"

    def __init__(self, source: PointRows, query: Query, key: tuple[str, ...]) -> None:
        ExtremeFamily.__init__(self, source, query, key)
        self._set_up(1)

    def answers(self, step: Step, low: Index, high: Index) -> tuple[Rows, bool]:
        owner, rows = self._first_of(step, low, high)
        vector = step.tables[self.source.table].rows.vectors(self._column.name)[0].take(rows)
        out = Vector.blank(vector.type, len(low))
        out.values[owner], out.valid[owner] = vector.values, True
        return Rows([(self._as, out)], len(low)), False
