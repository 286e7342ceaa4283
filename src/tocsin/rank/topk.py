"""Top-k and extremes of ranges, for many subscriptions at once: a row that moves is painted, then looked up.

    moves ─► numbers and labels ─► tiles (`paint.py`) ─► who is in them (`space.py`) ─► who gets which row

Objects are numbered so that a row keeps its number when it changes; a label is its place in the order. Tiles
say where in the space of ranges the old version was held, where the new one is, and where other rows
come in or fall out for it. Subscriptions of one order share the objects and are kept by k. An extreme is
the first row of the order by value: k = 1, and only its value is told.

Cost per change: the tiles that somebody is in, and what is told; they grow with the square of k,
hardly with the number of subscriptions.

K12, sections III and IV, and its enumeration in section VI; T07, section 5.3 for extremes, which are
painted here like any k.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Aggregate, Column, OrderKey, Query
from tocsin.model.columns import Index, Mask, Rows, Vector, longer, renumbered
from tocsin.model.delta import Deltas, netted, order_of
from tocsin.model.schema import Type
from tocsin.rank._kernels.topk import follow
from tocsin.rank.extremes import Extremes as RangeExtremes
from tocsin.rank.family import Family, Moves, Place
from tocsin.rank.labels import RowKeys
from tocsin.rank.paint import Kind, Painter, grouped
from tocsin.rank.points import ABSENT, Points
from tocsin.rank.space import Space
from tocsin.store.step import Step

__all__ = ["Extremes", "Held", "TopK"]

_SIGN = np.zeros(len(Kind), np.int8)  # by kind of tile; there are none of HELD, since every move is seen
_SIGN[[Kind.OLD, Kind.LOSE]], _SIGN[[Kind.NEW, Kind.GAIN]] = -1, 1


class Held(NamedTuple):
    """Who gets (+1) or gives up (-1) which row at which move; what a row does to x may bring both."""

    move: Index
    slot: Index
    sign: NDArray[np.int8]
    row: Index

    def take(self, which: Index | Mask) -> Held:
        return Held(self.move[which], self.slot[which], self.sign[which], self.row[which])

    @classmethod
    def concat(cls, parts: Sequence[Held]) -> Held:
        move, slot, row = (
            np.concatenate([getattr(p, name) for p in parts]) for name in ("move", "slot", "row")
        )
        return cls(move, slot, np.concatenate([part.sign for part in parts]), row)


class _Ranked(Family):
    """Objects in order, and subscriptions by k."""

    def __init__(self, spot: Place, query: Query, order: tuple[OrderKey, ...], key: tuple[str, ...]) -> None:
        super().__init__(spot, query)
        self._keys = RowKeys(order, key)
        self._spaces: dict[int, Space] = {}  # by k
        self._k: NDArray[np.int32] = np.zeros(0, np.int32)  # by slot
        self._count = 0
        self._painter = Painter(Points(), [1])
        self._number: Index = np.empty(0, np.int64)  # by row: its object
        self._row: Index = np.empty(0, np.int64)  # by object: its row
        self._label: Index = np.empty(0, np.int64)  # by object: as it is painted
        self._free: Index = np.empty(0, np.int64)
        self._state = np.zeros(2, np.int64)  # free numbers, next fresh one

    def __len__(self) -> int:
        return self._count

    def add(self, slots: Index, low: Index, high: Index, query: Query) -> None:
        k = query.limit or 1
        if k not in self._spaces:
            self._spaces[k] = Space()
        self._spaces[k].add(slots, low, high)
        top = int(slots.max(initial=-1)) + 1
        if top > len(self._k):
            self._k = longer(self._k, max(top, 2 * len(self._k)))
        self._k[slots] = k
        self._count += len(slots)

    def _ranges(self, slots: Index) -> tuple[Index, Index]:
        low, high = np.empty((2, len(slots)), np.int64)
        for k in np.unique(self._k[slots]).tolist():
            some = np.flatnonzero(self._k[slots] == k)
            low[some], high[some] = self._spaces[k].ranges(slots[some])
        return low, high

    def remove(self, slots: Index) -> None:
        mine = self._k[slots]
        for k in np.unique(mine).tolist():
            self._spaces[k].remove(slots[mine == k])
            if not len(self._spaces[k]):
                del self._spaces[k]
        self._k[slots] = 0
        self._count -= len(slots)

    # -- objects -----------------------------------------------------------------------------------

    def _counted(self, step: Step, rows: Index) -> Mask | None:
        """Rows that count at all; None: all do."""
        return None

    def _begin(self, step: Step) -> None:
        self._load(step, np.empty(0, np.int64))

    def _load(self, step: Step, coming: Index) -> None:
        """All objects anew, as they were before the step, with labels for rows that are coming too."""
        rows, x = self.spot.before(step)
        if (counted := self._counted(step, rows)) is not None:
            rows, x = rows[counted], x[counted]
        table = step.tables[self.spot.table].rows
        self._keys.load(table.take(np.concatenate([rows, coming])))
        label = self._keys.find(table.take(rows))
        assert label is not None
        self._number = np.full(len(table), -1, np.int64)
        self._number[rows] = np.arange(len(rows))
        self._row, self._label = rows.copy(), label.copy()
        self._free, self._state = np.empty(0, np.int64), np.array([0, len(rows)])
        points = Points()
        points.load(np.arange(len(rows)), x, label)
        self._painter = Painter(points, [1])

    def _held(self, step: Step, moves: Moves) -> tuple[Moves, Held]:
        """Follow the moves that count, and find who gets and gives up what."""
        moves = self._counting(step, moves)
        count = len(moves)
        if not count:
            nothing = np.empty(0, np.int64)
            return moves, Held(nothing, nothing, np.empty(0, np.int8), nothing)
        comes = moves.new >= 0
        label = self._labels(step, moves.new[comes])
        base = np.full(count, ABSENT, np.int64)
        base[comes] = label
        self._make_room(len(step.tables[self.spot.table].rows), count)
        number, labels = np.empty(count, np.int64), np.empty(count, np.int64)
        follow(
            moves.old, moves.new, base, self._number, self._label, self._free, self._state,
            number, labels, ABSENT,
        )  # fmt: skip
        ks = sorted(self._spaces)
        self._painter.groups = grouped(ks, 0.0)
        self._painter.spaces = [self._spaces[k] for k in ks]
        tiles = self._painter.enumerate(number, np.where(comes, moves.new_x, moves.old_x), labels)
        found = []
        for group, k in enumerate(ks):
            if len(ks) == 1:
                tile, slot = self._spaces[k].find(tiles.rectangles, tiles.update)
            else:
                mine = np.flatnonzero(tiles.group == group)
                which, slot = self._spaces[k].find(tiles.rectangles[mine], tiles.update[mine])
                tile = mine[which]
            found.append((tile, slot.astype(np.int64)))
        rows = self._rows_of(tiles, np.concatenate([tile for tile, _ in found]), moves, number)
        parts = [Held(tiles.update[tile], slot, _SIGN[tiles.kind[tile]], rows[tile]) for tile, slot in found]
        self._row[number[comes]] = moves.new[comes]
        return moves, Held.concat(parts)

    def _counting(self, step: Step, moves: Moves) -> Moves:
        """Moves of rows that count."""
        there = [np.flatnonzero(rows >= 0) for rows in (moves.old, moves.new)]
        counted = [
            self._counted(step, rows[at]) for rows, at in zip((moves.old, moves.new), there, strict=True)
        ]
        if counted[0] is None or counted[1] is None:
            return moves
        old, new = moves.old.copy(), moves.new.copy()
        old[there[0][~counted[0]]] = -1
        new[there[1][~counted[1]]] = -1
        keep = (old >= 0) | (new >= 0)
        return Moves(moves.position[keep], old[keep], new[keep], moves.old_x[keep], moves.new_x[keep])

    def _labels(self, step: Step, rows: Index) -> Index:
        table = step.tables[self.spot.table].rows
        crowded = len(self._keys) > 4096 + 4 * len(self._painter.points)  # most keys are of rows long gone
        label = None if crowded else self._keys.find(table.take(rows))
        if label is None:
            self._load(step, rows)
            label = self._keys.find(table.take(rows))
        assert label is not None
        return label

    def _make_room(self, rows: int, moves: int) -> None:
        if rows > len(self._number):
            self._number = longer(self._number, max(rows, 2 * len(self._number)), -1)
        objects = int(self._state[1]) + moves
        if objects > len(self._label):
            size = max(objects, 2 * len(self._label))
            self._label, self._row = longer(self._label, size), longer(self._row, size)
        if objects > len(self._free):
            self._free = longer(self._free, len(self._label))

    def _rows_of(self, tiles: Any, wanted: Index, moves: Moves, number: Index) -> Index:
        """The row that each tile wanted is about: of the move, or of another object as it is then."""
        some = np.zeros(len(tiles), np.bool_)  # most tiles are nobody's
        some[wanted] = True
        used = np.flatnonzero(some)
        out = np.full(len(tiles), -1, np.int64)
        out[used] = self._rows_of_these(
            tiles.kind[used], tiles.update[used], tiles.object[used], moves, number
        )
        return out

    def _rows_of_these(self, kind: Any, update: Index, thing: Index, moves: Moves, number: Index) -> Index:
        out = np.where(kind == Kind.OLD, moves.old[update], moves.new[update])
        other = np.flatnonzero(kind >= Kind.GAIN)
        if len(other):
            comes = np.flatnonzero(moves.new >= 0)
            stride = len(moves) + 1
            version = number[comes] * stride + comes
            order = np.argsort(version)
            asked = thing[other] * stride + update[other]
            at = np.searchsorted(version[order], asked, side="right") - 1
            found = comes[order[np.maximum(at, 0)]] if len(comes) else np.zeros(len(other), np.int64)
            moved = (at >= 0) & (number[found] == thing[other])
            out[other] = np.where(moved, moves.new[found], self._row[thing[other]])
        return out

    def _netted(self, moves: Moves, held: Held) -> Held:
        """Where a row moved along x it went and came: what both brings cancels."""
        both = (moves.old >= 0) & (moves.new >= 0) & (moves.old_x != moves.new_x)
        mixed = both[held.move]
        if not mixed.any():
            return held
        some = held.take(mixed)
        left = netted([some.move, some.slot, some.row], some.sign)
        return Held.concat([held.take(~mixed), some.take(left)])

    def stats(self) -> dict[str, Any]:
        by_k = {k: len(space) for k, space in sorted(self._spaces.items())}
        size = sum(space.bytes for space in self._spaces.values())
        return {**super().stats(), "by_k": by_k, "objects": len(self._painter.points), "bytes": size}

    def _check(self) -> None:
        assert self._count == sum(map(len, self._spaces.values()))
        for k, space in self._spaces.items():
            space._check()
            assert len(space) == (self._k == k).sum()
        self._keys._check()
        self._painter.points._check()


class TopK(_Ranked):
    """The first k rows of ranges."""

    name: ClassVar[str] = "topk"

    def __init__(self, spot: Place, query: Query, key: tuple[str, ...]) -> None:
        super().__init__(spot, query, query.order, key)
        self._names = {
            item.name: item.expression.name for item in query.items if isinstance(item.expression, Column)
        }

    def contents(self, step: Step, slots: Index) -> tuple[Index, Rows] | None:
        rows, x = self.spot.before(step)
        table = step.tables[self.spot.table].rows
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

    def _told(self, step: Step, moves: Moves) -> Deltas:
        moves, held = self._held(step, moves)
        if (same := _unchanged(step.tables[self.spot.table].rows, moves)).any():
            held = held.take(~same[held.move])
        held = self._netted(moves, held)
        if not len(held.slot):
            return Deltas.none()
        table = step.tables[self.spot.table].rows
        used, row = renumbered(held.row, len(table))
        rows = table.take(used).project(self._names)
        told = Deltas.of(step.seq[moves.position[held.move]], held.slot, held.sign, rows, row)
        if not set(self._names.values()) >= {f.name for f in step.tables[self.spot.table].schema.fields}:
            told = _without_equal(told, rows)  # what has changed may be none of the columns told
        return told.ordered()


def _unchanged(rows: Rows, moves: Moves) -> Mask:
    """Moves from a row to an equal one."""
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


def _without_equal(told: Deltas, rows: Rows) -> Deltas:
    """Deltas without a row that goes and an equal one that comes."""
    left = netted([told.seq, told.subscription, rows.codes()[told.row]], told.sign)
    return told.take(left)


class Extremes(_Ranked):
    """The least or the greatest value of ranges; NULL where there is none."""

    name: ClassVar[str] = "extremes"

    def __init__(self, spot: Place, query: Query, key: tuple[str, ...]) -> None:
        item = query.items[0]
        assert isinstance(item.expression, Aggregate) and item.expression.column is not None
        self._column, self._as = item.expression.column, item.name
        self._largest = item.expression.function == "MAX"
        super().__init__(spot, query, (OrderKey(self._column, descending=self._largest),), key)

    def _counted(self, step: Step, rows: Index) -> Mask | None:
        return step.tables[self.spot.table].rows.vectors(self._column.name)[0].valid[rows]

    def contents(self, step: Step, slots: Index) -> tuple[Index, Rows] | None:
        return np.arange(len(slots)), self.answers(step, *self._ranges(slots))[0]

    def answers(self, step: Step, low: Index, high: Index) -> tuple[Rows, bool]:
        rows, x = self.spot.before(step)
        vector = step.tables[self.spot.table].rows.vectors(self._column.name)[0].take(rows)
        there = np.flatnonzero(vector.valid)
        vector = vector.take(there)
        codes = vector.order_codes()
        order = np.argsort(codes, kind="stable")
        least, empty = RangeExtremes(x[there], codes, largest=self._largest).contents(low, high)
        out = Vector.blank(vector.type, len(low))
        found = np.flatnonzero(~empty)
        out.values[found] = vector.values[order[np.searchsorted(codes[order], least[found])]]
        out.valid[found] = True
        return Rows([(self._as, out)], len(low)), False

    def _told(self, step: Step, moves: Moves) -> Deltas:
        moves, held = self._held(step, moves)
        held = self._netted(moves, held)
        if not len(held.slot):
            return Deltas.none()
        table = step.tables[self.spot.table].rows
        used, value = renumbered(held.row, len(table))
        vector = table.vectors(self._column.name)[0].take(used)
        nothing = Vector.blank(vector.type, 1)
        values = Vector(
            vector.type,
            np.concatenate([vector.values, nothing.values]),
            np.append(vector.valid, False),
        )
        order = order_of([held.move, held.slot, held.sign])
        move, slot, sign, value = held.move[order], held.slot[order], held.sign[order], value[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = (move[1:] != move[:-1]) | (slot[1:] != slot[:-1])
        begin = np.flatnonzero(first)
        last = np.append(begin[1:], len(order)) - 1
        none = len(values) - 1
        before = np.where(sign[begin] < 0, value[begin], none)
        after = np.where(sign[last] > 0, value[last], none)
        code = values.codes()
        differs = np.flatnonzero(code[before] != code[after])
        begin, before, after = begin[differs], before[differs], after[differs]
        rows = Rows([(self._as, values)], len(values))
        signs = np.repeat(np.array([-1, 1], np.int8), len(begin))
        seq = step.seq[moves.position[move[begin]]]
        told = Deltas.of(
            np.tile(seq, 2), np.tile(slot[begin], 2), signs, rows, np.concatenate([before, after])
        )
        return told.ordered()
