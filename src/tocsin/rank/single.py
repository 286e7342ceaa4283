"""One move of a row, through compiled calls whose arguments are ready: which answers gain or lose which rows.

    move ─► label_one ─► paint ─► find_runs ─► pack_answers ─► sorted changes, each one number
            key, label,   tiles    their        (slot, +1 or -1, row)
            object                 subscriptions

The same kernels as for batches (`topk.py`), without the arrays that batches need between them. Numba looks at
the type of every array of every argument at each call, which takes longer than most of these calls. So
arguments are put together once, and again when one of their arrays is another than before.

Cost: the kernels, and some thirty calls from Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import is_
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import Kernel
from tocsin.model.columns import Index, Vector, longer
from tocsin.rank._kernels.near import find_runs
from tocsin.rank._kernels.paint import BOX, SIZE, TILES, WIDTH, Canvas, ObjectMoves, PaintGroups, paint
from tocsin.rank._kernels.points import rewind
from tocsin.rank._kernels.topk import (
    PACKED,
    USED,
    LabelledMoves,
    ObjectTable,
    ObjectVersions,
    PackedAnswers,
    label_one,
    pack_answers,
)
from tocsin.rank.family import OneMove
from tocsin.rank.labels import RowKeys
from tocsin.rank.points import Points
from tocsin.rank.space import SubscriptionSpace
from tocsin.store.tables import TableStore

__all__ = ["RowAnswers", "SinglePainter", "cancelled", "value_codes"]

_ROW, _GAINS = (1 << 31) - 1, 1 << 31
_SIGN = np.array([-1, 1], np.int8)


class RowAnswers(NamedTuple):
    """Which slots gain (+1) or lose (-1) which rows."""

    slot: Index
    sign: NDArray[np.int8]
    row: Index  # its number

    @classmethod
    def of(cls, packed: Index) -> RowAnswers:
        return cls(packed >> 32, _SIGN[(packed & _GAINS) >> 31], packed & _ROW)


class _Call:
    """A kernel, and what its calls run as long as `basis` is the same: tuples that its arguments are from."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._basis: tuple[Any, ...] = ()
        self._run: Callable[..., Any] | None = None

    def __call__(self, basis: tuple[Any, ...], *args: Any) -> Any:
        run = self._run
        if run is not None and all(map(is_, basis, self._basis)):
            return run(*args)
        result = self._kernel(*args)
        self._basis, self._run = basis, self._kernel.entry_point(args)
        return result


class _Space(NamedTuple):
    """The calls for the subscriptions of one k."""

    paint: _Call
    find: _Call
    groups: PaintGroups
    lists: NDArray[np.int64]

    @classmethod
    def of(cls, k: int) -> _Space:
        groups = PaintGroups(np.array([k], np.int64), np.ones(1, np.int64))
        return cls(_Call(paint), _Call(find_runs), groups, np.empty((2, k + 1), np.int64))


class SinglePainter:
    """Applies moves of a family one by one. It has no state but space for arguments and results."""

    def __init__(self, width: int) -> None:
        one = [np.zeros(1, np.int64) for _ in range(6)]
        self._labelled = LabelledMoves(*one[:3])
        self._moves = ObjectMoves(one[3], one[4], one[5], np.zeros((1, 2), np.int64))
        self._versions = ObjectVersions(self._moves.object, self._moves.y)
        self._key = np.zeros(width, np.int64)
        self._struct, self._memory = Struct(f"={width}q"), self._key.data.cast("B")
        self._label, self._pack = _Call(label_one), _Call(pack_answers)
        self._spaces: dict[int, _Space] = {}  # by k
        self._state = np.zeros(SIZE, np.int64)
        self._box, self._muted = np.empty((2, BOX), np.int64), np.empty(0, np.bool_)
        self._make_tiles(64)
        self._slots = np.empty(1024, np.int32)
        self._found = PackedAnswers(np.empty(64, np.int64), np.empty(1024, np.int64), np.zeros(2, np.int64))

    def _make_tiles(self, count: int) -> None:
        self._tiles = np.empty((count, WIDTH), np.int64)
        self._rectangles, self._region = np.empty((count, 4), np.int64), np.zeros(count, np.int64)
        self._start = np.zeros(count + 1, np.int64)

    # -- labels --------------------------------------------------------------------------------------

    def label(self, keys: RowKeys, store: TableStore, objects: ObjectTable, move: OneMove) -> int:
        """Label a moving row and number its object; the number, or -1 if there is no gap for the label."""
        labelled = self._labelled
        if move.new >= 0:
            key = keys.key_of(store, move.new)
            if key is None:
                return -1
            self._struct.pack_into(self._memory, 0, *key)
        labelled.old[0], labelled.new[0], labelled.label[0] = move.old, move.new, 0
        index = keys.labels.index()
        args = index, self._key, labelled, objects, self._versions
        if not self._label((index, objects), *args):
            return -1
        keys.labels.follow()
        self._moves.x[0] = move.new_x if move.new >= 0 else move.old_x
        return int(self._moves.object.item(0))

    # -- answers -------------------------------------------------------------------------------------

    def changes(
        self, points: Points, spaces: Mapping[int, SubscriptionSpace], row_of: Index, new: int
    ) -> tuple[Index, Index]:
        """Paint the move that was labelled last, and apply it: packed changes, and the rows they are about.

        `row_of` has the row of each object before the move; `new` is the moved object's after it.
        """
        counts = self._found.counts
        counts[USED] = counts[PACKED] = 0
        for at, k in enumerate(sorted(spaces)):
            if at:
                rewind(points.arrays, self._moves.object, self._moves.before)
            calls = self._spaces.get(k)
            if calls is None:
                calls = self._spaces[k] = _Space.of(k)
            tiles = self._paint(calls, points, spaces[k])
            if tiles:
                self._look_up(calls, spaces[k], tiles)
                self._add(tiles, row_of, new)
        used, packed = counts.tolist()
        return self._found.packed[:packed], self._found.rows[:used]

    def _paint(self, calls: _Space, points: Points, space: SubscriptionSpace) -> int:
        """How many tiles the move has."""
        while True:
            self._state[TILES] = 0
            canvas = Canvas(self._tiles, self._state, calls.lists, self._box, self._muted)
            basis = points.arrays, space.arrays
            args = *basis, canvas, calls.groups, self._moves, True, 0
            if calls.paint(basis, *args):
                return int(self._state.item(TILES))
            self._make_tiles(2 * len(self._tiles))

    def _look_up(self, calls: _Space, space: SubscriptionSpace, tiles: int) -> None:
        """Find the slots of each tile."""
        wanted = self._rectangles[:tiles]
        wanted[:] = self._tiles[:tiles, 6:]
        while True:
            args = space.arrays, wanted, self._region[:tiles], 0, self._slots, self._start[: tiles + 1]
            short = calls.find((space.arrays,), *args)
            if short < 0:
                return
            self._slots = np.empty(2 * int(self._start[short + 1]), np.int32)

    def _add(self, tiles: int, row_of: Index, new: int) -> None:
        found = self._found
        used, packed = found.counts.tolist()
        used, packed = used + tiles, packed + self._start.item(tiles)
        if used > len(found.rows):
            found = found._replace(rows=longer(found.rows, 2 * used))
        if packed > len(found.packed):
            found = found._replace(packed=longer(found.packed, 2 * packed))
        self._found = found
        args = self._tiles, self._start[: tiles + 1], self._slots, row_of, new, found
        self._pack((found, row_of), *args)


def cancelled(packed: Index, code: Index) -> Index:
    """Changes without pairs of a gain and a loss of one slot and of rows with the same code.

    >>> changes = np.array([5 << 32 | 0, 5 << 32 | _GAINS | 1, 6 << 32 | _GAINS | 1])
    >>> cancelled(changes, np.array([7, 7])).tolist() == [6 << 32 | _GAINS | 1]
    True
    """
    key = (packed >> 32) << 32 | code[packed & _ROW]
    gains = (packed & _GAINS) != 0
    order = np.lexsort((gains, key))
    packed, key, gains = packed[order], key[order], gains[order]
    while True:
        pair = (key[1:] == key[:-1]) & (gains[1:] != gains[:-1])
        if not pair.any():
            packed.sort()
            return packed
        keep = np.ones(len(packed), np.bool_)
        keep[1:] &= ~pair
        keep[:-1] &= ~pair
        packed, key, gains = packed[keep], key[keep], gains[keep]


def value_codes(columns: Sequence[Vector]) -> Index:
    """Small numbers from 0 on, equal where rows of these columns are; for a few rows.

    >>> from tocsin.model.schema import Type
    >>> value_codes([Vector.of(Type.DOUBLE, [1.0, None, float("nan"), 1.0, float("nan")])]).tolist()
    [0, 1, 2, 0, 2]
    """
    cells = [
        [(ok, value) if value == value else None for ok, value in zip(*pair, strict=True)]
        for pair in ((column.valid.tolist(), column.values.tolist()) for column in columns)
    ]
    numbers: dict[Any, int] = {}
    code = [numbers.setdefault(row, len(numbers)) for row in zip(*cells, strict=True)]
    return np.array(code, np.int64)
