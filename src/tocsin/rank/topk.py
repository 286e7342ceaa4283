"""Top-k and extremes over ranges, for many subscriptions at once: paint each move, then look up tiles.

    row moves ─► numbers and labels ─► tiles (`paint.py`) ─► subscriptions in them (`space.py`) ─► deltas

Objects are numbered so that a row keeps its number when it changes; its label is its position in the order
(`labels.py`). A tile is a rectangle of the subscription space. Tiles say where subscriptions had the old
version of a row, where they have the new one, and where other rows enter or leave answers because of it.
Subscriptions of one order share the objects and are kept by k. An extreme is the first row in the order of
its column: k = 1, and only the value is emitted.

A top-k subscription is answered by `TopkFamily._apply`. When it expires, `remove` drops it from the
subscription space of its k; objects and labels stay, since they depend on the rows alone.

Cost per change: the tiles that contain subscriptions, and the deltas. Tiles grow with the square of k, hardly
with the number of subscriptions.

K12, sections III and IV, and its enumeration in section VI; T07, section 5.3 for extremes, which are
painted here like any k.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Aggregate, Column, OrderKey, Query
from tocsin.model.columns import Index, Mask, Rows, Vector, longer, renumbered
from tocsin.model.delta import NO_DELTAS, Deltas, netted, order_of
from tocsin.model.schema import Type
from tocsin.rank._kernels.topk import NEXT, LabelledMoves, ObjectTable, ObjectVersions, follow
from tocsin.rank.extremes import Extremes
from tocsin.rank.family import OneMove, RangeFamily, RowMoves, RowSource
from tocsin.rank.labels import RowKeys
from tocsin.rank.paint import Painter, TileKind, Tiles, grouped
from tocsin.rank.points import ABSENT, Points
from tocsin.rank.single import RowAnswers, SinglePainter, cancelled, value_codes
from tocsin.rank.space import SubscriptionSpace
from tocsin.store.step import Step
from tocsin.store.tables import FEW_ROWS, TableStore

__all__ = ["AnswerChanges", "ExtremeFamily", "RankedFamily", "TopkFamily", "extreme_answers"]

_SIGN = np.zeros(len(TileKind), np.int8)  # by kind of tile; KEEP does not occur: every move changes y
_SIGN[[TileKind.OLD, TileKind.LOSE]], _SIGN[[TileKind.NEW, TileKind.GAIN]] = -1, 1


class AnswerChanges(NamedTuple):
    """Which subscription gains (+1) or loses (-1) which row at which move."""

    move: Index
    slot: Index
    sign: NDArray[np.int8]
    row: Index

    def take(self, which: Index | Mask) -> AnswerChanges:
        return AnswerChanges(self.move[which], self.slot[which], self.sign[which], self.row[which])

    @classmethod
    def concat(cls, parts: Sequence[AnswerChanges]) -> AnswerChanges:
        move, slot, row = (
            np.concatenate([getattr(p, name) for p in parts]) for name in ("move", "slot", "row")
        )
        return cls(move, slot, np.concatenate([part.sign for part in parts]), row)


class RankedFamily(RangeFamily):
    """Objects in order, and a space of subscriptions for each k."""

    _few_moves: ClassVar[int] = FEW_ROWS  # so many are applied one by one

    def __init__(
        self, source: RowSource, query: Query, order: tuple[OrderKey, ...], key: tuple[str, ...]
    ) -> None:
        super().__init__(source, query)
        self._keys = RowKeys(order, key)
        self._spaces: dict[int, SubscriptionSpace] = {}  # by k
        self._k: NDArray[np.int32] = np.zeros(0, np.int32)  # by slot
        self._count = 0
        self._painter = Painter(Points(), [1])
        none = np.empty(0, np.int64)
        self._objects = ObjectTable(none, none, none, np.zeros(2, np.int64))
        self._row: Index = none  # by object: its row
        self._single = SinglePainter(2 * len(order) + len(key))

    def __len__(self) -> int:
        return self._count

    def add(self, slots: Index, low: Index, high: Index, query: Query) -> None:
        k = query.limit or 1
        if k not in self._spaces:
            self._spaces[k] = SubscriptionSpace()
        self._spaces[k].add(slots, low, high)
        top = int(slots.max(initial=-1)) + 1
        if top > len(self._k):
            self._k = longer(self._k, max(top, 2 * len(self._k)))
        self._k[slots] = k
        self._count += len(slots)

    def remove(self, slots: Index) -> None:
        """Drop subscriptions, expired or cancelled, from the spaces of their k."""
        mine = self._k[slots]
        for k in np.unique(mine).tolist():
            self._spaces[k].remove(slots[mine == k])
            if not len(self._spaces[k]):
                del self._spaces[k]
        self._k[slots] = 0
        self._count -= len(slots)

    def _ranges(self, slots: Index) -> tuple[Index, Index]:
        low, high = np.empty((2, len(slots)), np.int64)
        for k in np.unique(self._k[slots]).tolist():
            some = np.flatnonzero(self._k[slots] == k)
            low[some], high[some] = self._spaces[k].ranges(slots[some])
        return low, high

    # -- objects -----------------------------------------------------------------------------------

    def _ranked_rows(self, step: Step, rows: Index) -> Mask | None:
        """Which rows have a position in the order; None: all."""
        return None

    def _rebuild(self, step: Step) -> None:
        self._load(step, np.empty(0, np.int64))

    def _load(self, step: Step, coming: Index) -> None:
        """Number and label all objects as they were before the step; label the coming rows too."""
        rows, x = self.source.rows_before(step)
        if (ranked := self._ranked_rows(step, rows)) is not None:
            rows, x = rows[ranked], x[ranked]
        table = step.tables[self.source.table].rows
        self._keys.load(table.take(np.concatenate([rows, coming])))
        label = self._keys.find(table.take(rows))
        assert label is not None
        number = np.full(len(table), -1, np.int64)
        number[rows] = np.arange(len(rows))
        self._row = rows.copy()
        self._objects = ObjectTable(number, label.copy(), np.empty(0, np.int64), np.array([0, len(rows)]))
        points = Points()
        points.load(np.arange(len(rows)), x, label)
        self._painter = Painter(points, [1])

    def _ranked_moves(self, step: Step, moves: RowMoves) -> RowMoves:
        """Moves of rows that have a position in the order."""
        there = [np.flatnonzero(rows >= 0) for rows in (moves.old, moves.new)]
        ranked = [
            self._ranked_rows(step, rows[at]) for rows, at in zip((moves.old, moves.new), there, strict=True)
        ]
        if ranked[0] is None or ranked[1] is None:
            return moves
        old, new = moves.old.copy(), moves.new.copy()
        old[there[0][~ranked[0]]] = -1
        new[there[1][~ranked[1]]] = -1
        keep = (old >= 0) | (new >= 0)
        return RowMoves(moves.position[keep], old[keep], new[keep], moves.old_x[keep], moves.new_x[keep])

    def _count_rows(self) -> int:
        return len(self._painter.points)

    def _is_stale(self) -> bool:
        """Whether most keys are of rows long gone."""
        return len(self._keys) > 4096 + 4 * self._count_rows()

    def _labels(self, step: Step, rows: Index) -> Index:
        """Labels of rows that come; if there are no gaps left, all objects are labelled again."""
        table = step.tables[self.source.table].rows
        label = None if self._is_stale() else self._keys.find(table.take(rows))
        if label is None:
            self._load(step, rows)
            label = self._keys.find(table.take(rows))
        assert label is not None
        return label

    def _reserve(self, rows: int, moves: int) -> None:
        """Make the columns of objects long enough for all rows of the table, and for so many moves."""
        number, label, free, counts = self._objects
        if rows <= len(number) and counts.item(NEXT) + moves <= min(len(label), len(free)):
            return
        if rows > len(number):
            number = longer(number, max(rows, 2 * len(number)), -1)
        objects = int(counts[NEXT]) + moves
        if objects > len(label):
            size = max(objects, 2 * len(label))
            label, self._row = longer(label, size), longer(self._row, size)
        if objects > len(free):
            free = longer(free, len(label))
        self._objects = ObjectTable(number, label, free, counts)

    # -- changes of answers ------------------------------------------------------------------------

    def _apply_step(self, step: Step) -> Deltas:
        few = self.source.few_moves(step) if self._few_moves > 0 else None
        return self._apply(step, self.source.moves(step)) if few is None else self._apply_few(step, few)

    def _apply(self, step: Step, moves: RowMoves) -> Deltas:
        if len(moves) > self._few_moves:
            return self._apply_together(step, moves)
        return self._apply_few(step, [OneMove(*move) for move in np.stack(moves, axis=1).tolist()])

    def _apply_few(self, step: Step, moves: Sequence[OneMove]) -> Deltas:
        """Apply moves one by one; if one of them gets no label, undo those before and apply all together."""
        parts = []
        store, seq = step.tables[self.source.table], step.seq
        for at, move in enumerate(moves):
            found = self._apply_one(store, move, seq.item(move.position))
            if found is None:
                if at:
                    self._load(step, np.empty(0, np.int64))  # as it was before the step
                return self._apply_together(step, RowMoves(*np.array(moves, np.int64).T.copy()))
            parts.append(found)
        return parts[0] if len(parts) == 1 else Deltas.concat(parts)

    @abstractmethod
    def _apply_together(self, step: Step, moves: RowMoves) -> Deltas:
        """Apply moves as columns."""

    @abstractmethod
    def _apply_one(self, store: TableStore, move: OneMove, seq: int) -> Deltas | None:
        """Apply one move; None, and nothing is applied, if its row gets no label."""

    def _changes_of_one(self, store: TableStore, move: OneMove) -> tuple[Index, Index] | None:
        """As `_answer_changes`, for one move: packed changes, and the rows they are about."""
        if self._is_stale():
            return None
        self._reserve(store.used, 1)
        number = self._single.label(self._keys, store, self._objects, move)
        if number < 0:
            return None
        points = self._painter.points
        points.reserve(number + 1, 3)
        found = self._single.changes(points, self._spaces, self._row, move.new)
        if move.new >= 0:
            self._row[number] = move.new
        return found

    def _answer_changes(self, step: Step, moves: RowMoves) -> tuple[RowMoves, AnswerChanges]:
        """Apply the moves of ranked rows; find which subscriptions gain and lose which rows."""
        moves = self._ranked_moves(step, moves)
        count = len(moves)
        if not count:
            none = np.empty(0, np.int64)
            return moves, AnswerChanges(none, none, np.empty(0, np.int8), none)
        comes = moves.new >= 0
        label = np.full(count, ABSENT, np.int64)
        label[comes] = self._labels(step, moves.new[comes])
        self._reserve(len(step.tables[self.source.table].rows), count)
        versions = ObjectVersions(np.empty(count, np.int64), np.empty(count, np.int64))
        follow(LabelledMoves(moves.old, moves.new, label), self._objects, versions)
        ks = sorted(self._spaces)
        self._painter.groups = grouped(ks, 0.0)
        self._painter.spaces = [self._spaces[k] for k in ks]
        x = np.where(comes, moves.new_x, moves.old_x)
        tiles = self._painter.enumerate(versions.number, x, versions.label)
        found = []
        for group, k in enumerate(ks):
            if len(ks) == 1:
                tile, slot = self._spaces[k].find(tiles.rectangles, tiles.update)
            else:
                mine = np.flatnonzero(tiles.group == group)
                which, slot = self._spaces[k].find(tiles.rectangles[mine], tiles.update[mine])
                tile = mine[which]
            found.append((tile, slot.astype(np.int64)))
        used = np.concatenate([tile for tile, _ in found])
        rows = self._rows_of(tiles, used, moves, versions.number)
        parts = [
            AnswerChanges(tiles.update[tile], slot, _SIGN[tiles.kind[tile]], rows[tile])
            for tile, slot in found
        ]
        self._row[versions.number[comes]] = moves.new[comes]
        return moves, AnswerChanges.concat(parts)

    def _rows_of(self, tiles: Tiles, wanted: Index, moves: RowMoves, number: Index) -> Index:
        """By tile the row it is about; -1 for tiles that are not wanted, which most are not."""
        some = np.zeros(len(tiles), np.bool_)
        some[wanted] = True
        used = np.flatnonzero(some)
        out = np.full(len(tiles), -1, np.int64)
        kind, update, subject = tiles.kind[used], tiles.update[used], tiles.object[used]
        row = np.where(kind == TileKind.OLD, moves.old[update], moves.new[update])
        other = np.flatnonzero(kind >= TileKind.GAIN)
        if len(other):
            row[other] = self._rows_at(update[other], subject[other], moves, number)
        out[used] = row
        return out

    def _rows_at(self, update: Index, subject: Index, moves: RowMoves, number: Index) -> Index:
        """The rows of objects as they are at some moves: from their last move by then, or from before."""
        comes = np.flatnonzero(moves.new >= 0)
        stride = len(moves) + 1
        version = number[comes] * stride + comes
        order = np.argsort(version)
        at = np.searchsorted(version[order], subject * stride + update, side="right") - 1
        found = comes[order[np.maximum(at, 0)]] if len(comes) else np.zeros(len(subject), np.int64)
        moved = (at >= 0) & (number[found] == subject)
        return np.where(moved, moves.new[found], self._row[subject])

    def _netted(self, moves: RowMoves, changes: AnswerChanges) -> AnswerChanges:
        """A row that moves along x is painted as a delete and an insert: cancel what both bring."""
        both = (moves.old >= 0) & (moves.new >= 0) & (moves.old_x != moves.new_x)
        mixed = both[changes.move]
        if not mixed.any():
            return changes
        some = changes.take(mixed)
        left = netted([some.move, some.slot, some.row], some.sign)
        return AnswerChanges.concat([changes.take(~mixed), some.take(left)])

    def stats(self) -> dict[str, Any]:
        by_k = {k: len(space) for k, space in sorted(self._spaces.items())}
        size = sum(space.bytes for space in self._spaces.values())
        return {**super().stats(), "by_k": by_k, "objects": len(self._painter.points), "bytes": size}

    def _check(self) -> None:
        """Spaces, slots and keys agree."""
        assert self._count == sum(map(len, self._spaces.values()))
        for k, space in self._spaces.items():
            space._check()
            assert len(space) == (self._k == k).sum()
        self._keys._check()
        self._painter.points._check()


class TopkFamily(RankedFamily):
    """The first k rows of each range."""

    name: ClassVar[str] = "topk"

    def __init__(self, source: RowSource, query: Query, key: tuple[str, ...]) -> None:
        super().__init__(source, query, query.order, key)
        self._names = {
            item.name: item.expression.name for item in query.items if isinstance(item.expression, Column)
        }
        self._has_key = set(key) <= set(self._names.values())  # then rows with other keys differ

    def contents(self, step: Step, slots: Index) -> tuple[Index, Rows] | None:
        rows, x = self.source.rows_before(step)
        table = step.tables[self.source.table].rows
        keys = RowKeys(self._keys.order, self._keys.key)
        keys.load(table.take(rows))
        label = keys.find(table.take(rows))
        assert label is not None
        order = np.argsort(label)
        rows, x = rows[order], x[order]
        found = [
            np.flatnonzero((x >= low) & (x <= high))[:k]
            for low, high, k in zip(*self._ranges(slots), self._k[slots].tolist(), strict=True)
        ]
        owner = np.repeat(np.arange(len(slots)), [len(one) for one in found])
        return owner, table.take(rows[np.concatenate(found)]).project(self._names)

    def _apply_one(self, store: TableStore, move: OneMove, seq: int) -> Deltas | None:
        found = self._changes_of_one(store, move)
        if found is None or not len(found[0]):
            return None if found is None else NO_DELTAS
        packed, rows = found
        code = self._row_codes(store, move, rows)
        if code is None:
            packed.sort()
        else:
            packed = cancelled(packed, code)
        count = len(packed)
        if not count:
            return NO_DELTAS
        answers = RowAnswers.of(packed)
        columns = [(name, store.column(own).take(rows)) for name, own in self._names.items()]
        shown, zeros, at = Rows(columns, len(rows)), np.zeros(count, np.int32), np.empty(count, np.int64)
        at.fill(seq)
        return Deltas(at, answers.slot, answers.sign, zeros, answers.row, (shown,)).in_order()

    def _row_codes(self, store: TableStore, move: OneMove, rows: Index) -> Index | None:
        """Numbers of rows that are equal where the selected columns are; None if nothing can cancel."""
        both = move.old >= 0 and move.new >= 0
        moved = both and move.old_x != move.new_x  # painted as a delete and an insert
        if not self._has_key:
            code = value_codes([store.column(name).take(rows) for name in self._names.values()])
            return code if moved or code.max(initial=0) + 1 < len(code) else None
        same = both
        for name in self._names.values():
            same = same and store.same_cell(name, move.old, move.new)
        if not moved and not same:
            return None
        return np.where(rows == move.new, move.old, rows) if same else rows

    def _apply_together(self, step: Step, moves: RowMoves) -> Deltas:
        moves, changes = self._answer_changes(step, moves)
        table = step.tables[self.source.table].rows
        if (same := _unchanged(table, moves)).any():
            changes = changes.take(~same[changes.move])
        changes = self._netted(moves, changes)
        if not len(changes.slot):
            return Deltas.none()
        used, row = renumbered(changes.row, len(table))
        rows = table.take(used).project(self._names)
        seq = step.seq[moves.position[changes.move]]
        deltas = Deltas.of(seq, changes.slot, changes.sign, rows, row)
        if not set(self._names.values()) >= {f.name for f in step.tables[self.source.table].schema.fields}:
            deltas = _without_equal(deltas, rows)  # perhaps no selected column changed
        return deltas.ordered()


def _unchanged(rows: Rows, moves: RowMoves) -> Mask:
    """By move: whether it replaces a row with an equal one."""
    both = np.flatnonzero((moves.old >= 0) & (moves.new >= 0))
    out = np.zeros(len(moves), np.bool_)
    same = np.ones(len(both), np.bool_)
    for name in rows.names:
        old, new = (rows.vectors(name)[0].take(side[both]) for side in (moves.old, moves.new))
        equal = old.values == new.values
        if old.type is Type.DOUBLE:
            equal |= np.isnan(old.values) & np.isnan(new.values)
        same &= (old.valid == new.valid) & (equal | ~old.valid)
    out[both] = same
    return out


def _without_equal(deltas: Deltas, rows: Rows) -> Deltas:
    """Deltas without pairs of a row that is deleted and an equal one that is inserted."""
    left = netted([deltas.seq, deltas.subscription, rows.codes()[deltas.row]], deltas.sign)
    return deltas.take(left)


def _with_null(vector: Vector) -> Vector:
    """The vector with a NULL after it."""
    return Vector.concat([vector, Vector.blank(vector.type, 1)])


def extreme_answers(source: RowSource, query: Query, step: Step, low: Index, high: Index) -> Rows:
    """MIN or MAX of ranges before a step."""
    item = query.items[0]
    assert isinstance(item.expression, Aggregate) and item.expression.column is not None
    rows, x = source.rows_before(step)
    vector = step.tables[source.table].rows.vectors(item.expression.column.name)[0].take(rows)
    there = np.flatnonzero(vector.valid)
    vector = vector.take(there)
    codes = vector.order_codes()
    order = np.argsort(codes, kind="stable")
    largest = item.expression.function == "MAX"
    least, empty = Extremes(x[there], codes, largest=largest).contents(low, high)
    out = Vector.blank(vector.type, len(low))
    found = np.flatnonzero(~empty)
    out.values[found] = vector.values[order[np.searchsorted(codes[order], least[found])]]
    out.valid[found] = True
    return Rows([(item.name, out)], len(low))


class ExtremeFamily(RankedFamily):
    """The least or the greatest value of each range; NULL if it has none."""

    name: ClassVar[str] = "extremes"

    def __init__(self, source: RowSource, query: Query, key: tuple[str, ...]) -> None:
        item = query.items[0]
        assert isinstance(item.expression, Aggregate) and item.expression.column is not None
        self._column, self._as = item.expression.column, item.name
        self._largest = item.expression.function == "MAX"
        super().__init__(source, query, (OrderKey(self._column, descending=self._largest),), key)

    def _ranked_rows(self, step: Step, rows: Index) -> Mask | None:
        return step.tables[self.source.table].rows.vectors(self._column.name)[0].valid[rows]

    def contents(self, step: Step, slots: Index) -> tuple[Index, Rows] | None:
        return np.arange(len(slots)), self.answers(step, *self._ranges(slots))[0]

    def answers(self, step: Step, low: Index, high: Index) -> tuple[Rows, bool]:
        """Answers of ranges before the step; no sum among them exceeds BIGINT."""
        return extreme_answers(self.source, self.query, step, low, high), False

    def _apply_one(self, store: TableStore, move: OneMove, seq: int) -> Deltas | None:
        valid = store.column(self._column.name).valid
        if move.old >= 0 and not valid.item(move.old):
            move = move._replace(old=-1)
        if move.new >= 0 and not valid.item(move.new):
            move = move._replace(new=-1)
        if move.old < 0 and move.new < 0:
            return NO_DELTAS
        found = self._changes_of_one(store, move)
        if found is None or not len(found[0]):
            return None if found is None else NO_DELTAS
        vector = store.column(self._column.name).take(found[1])
        packed = cancelled(found[0], value_codes([vector]))
        if not len(packed):
            return NO_DELTAS
        slot, sign, row = RowAnswers.of(packed)
        first = np.ones(len(slot), np.bool_)
        first[1:] = slot[1:] != slot[:-1]
        values = np.full((int(first.sum()), 2), len(vector))  # by slot, before and after; NULL is the last
        values[np.cumsum(first) - 1, (sign > 0).astype(np.int64)] = row
        shown = Rows([(self._as, _with_null(vector))], len(vector) + 1)
        signs = np.tile(np.array([-1, 1], np.int8), len(values))
        at = np.full(2 * len(values), seq)
        return Deltas.of(at, np.repeat(slot[first], 2), signs, shown, values.ravel())

    def _apply_together(self, step: Step, moves: RowMoves) -> Deltas:
        moves, changes = self._answer_changes(step, moves)
        changes = self._netted(moves, changes)
        if not len(changes.slot):
            return Deltas.none()
        table = step.tables[self.source.table].rows
        used, value = renumbered(changes.row, len(table))
        values = _with_null(table.vectors(self._column.name)[0].take(used))
        order = order_of([changes.move, changes.slot, changes.sign])
        move, slot, sign, value = changes.move[order], changes.slot[order], changes.sign[order], value[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = (move[1:] != move[:-1]) | (slot[1:] != slot[:-1])
        begin = np.flatnonzero(first)
        last = np.append(begin[1:], len(order)) - 1
        none = len(values) - 1  # NULL, the value of an empty range
        before = np.where(sign[begin] < 0, value[begin], none)
        after = np.where(sign[last] > 0, value[last], none)
        code = values.codes()
        differs = np.flatnonzero(code[before] != code[after])
        begin, before, after = begin[differs], before[differs], after[differs]
        rows = Rows([(self._as, values)], len(values))
        signs = np.repeat(np.array([-1, 1], np.int8), len(begin))
        seq = step.seq[moves.position[move[begin]]]
        at = np.concatenate([before, after])
        return Deltas.of(np.tile(seq, 2), np.tile(slot[begin], 2), signs, rows, at).ordered()
