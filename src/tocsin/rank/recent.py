"""MIN and MAX over a window: each subscription keeps the rows that may become its extreme.

Of the rows of a window it is known which leaves first. A row that is worse than one which stays longer never
matters again; so a subscription keeps a *staircase* of rows, and its answer is the first one:

    value  |  9
           |      7                      a new row 6: drops 5 and 3, which are worse and leave earlier
           |         5                   9 leaves: the answer is 7
           |             3
           +------------------ time

Rows of random values make a staircase of about ln n of n rows, whatever the size of the window, so the family
keeps nothing by row. Staircases are long where values become worse all the time (MAX of a falling price, MIN
of a time): if they take more than a few entries for each row, `Overgrown` is raised, and the room answers by
`ExtremeFamily`, whose memory does not depend on the values.

Cost: for each event that comes or leaves, the look-up of its subscriptions, and O(1) on average for each of
them. The staircase of a new subscription takes a pass over its rows.

T07, section 5.3.1 has tables, where any row may be deleted next; staircases of sliding windows are folklore.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tocsin.language.algebra import Aggregate, Query
from tocsin.model.columns import Index, Mask, Rows, column_codes, from_codes, longer
from tocsin.model.delta import Deltas
from tocsin.model.schema import Type
from tocsin.rank._kernels import recent as kernels
from tocsin.rank._kernels.aggregates import GAINS, LOSES
from tocsin.rank._kernels.recent import AnswerCodes, RecentRows, Stairs
from tocsin.rank.family import RangeFamily, RowMoves, RowSource
from tocsin.rank.members import GREATEST, LEAST, RangeMembers, by_seq, parts_of
from tocsin.rank.topk import extreme_answers
from tocsin.store.step import Step
from tocsin.store.windows import WindowStore

__all__ = ["Overgrown", "RecentExtremeFamily"]

_CLASSES = 40  # of regions
_PER_ROW, _PER_MEMBER = 2, 64  # entries of all staircases together, at most


class Overgrown(Exception):
    """Staircases take too much memory: another family has to answer."""


class RecentExtremeFamily(RangeFamily):
    """The least or the greatest value of each range of a window; NULL if it has none."""

    name = "recent extremes"
    settles = True

    def __init__(self, source: RowSource, query: Query) -> None:
        super().__init__(source, query)
        item = query.items[0]
        assert isinstance(item.expression, Aggregate) and item.expression.column is not None
        self._column, self._as = item.expression.column, item.name
        self._largest = item.expression.function == "MAX"
        self._flip = np.int64(-1 if self._largest else 0)  # code ^ -1 is ~code
        self._members = RangeMembers()
        self._fresh: Mask = np.zeros(len(self._members.slot), np.bool_)  # by place: no staircase yet
        self._stairs = _no_stairs(len(self._fresh))
        self._max_entries = 0

    @staticmethod
    def takes(query: Query) -> bool:
        """Whether values of the column have codes that last."""
        item = query.items[0].expression
        return isinstance(item, Aggregate) and item.column is not None and item.column.type is not Type.STRING

    def __len__(self) -> int:
        return len(self._members)

    def add(self, slots: Index, low: Index, high: Index, query: Query) -> None:
        places = self._members.add(slots, low, high)
        length = len(self._members.slot)
        if length > len(self._fresh):
            self._fresh = longer(self._fresh, length)
            more = _no_stairs(length).places
            more[: len(self._stairs.places)] = self._stairs.places
            self._stairs = self._stairs._replace(places=more)
        self._fresh[places] = True

    def remove(self, slots: Index) -> None:
        places = self._members.remove(slots)
        self._fresh[places] = False
        kernels.release_stairs(self._stairs, places)

    def ranges(self, slots: Index) -> tuple[Index, Index]:
        """The ranges of members."""
        return self._members.ranges(slots)

    def invalidate(self) -> None:
        """Nothing to do: a staircase depends on the rows of one range only."""

    def stats(self) -> dict[str, Any]:
        entries = int(self._stairs.meta[kernels.ENTRIES])
        size = self._members.bytes + sum(part.nbytes for part in self._stairs)
        return {**super().stats(), "entries": entries, "bytes": size}

    # -- staircases --------------------------------------------------------------------------------

    def _rebuild(self, step: Step) -> None:
        self._stairs = _no_stairs(len(self._fresh))
        self._fresh[:] = self._members.slot >= 0

    def _rows(self, step: Step, slots: Index) -> tuple[RecentRows, Mask]:
        """Rows by slot (-1: none), and which of them have a value."""
        store = step.tables[self.source.table]
        assert isinstance(store, WindowStore)
        vector = store.column(self._column.name).take(slots)
        there = vector.valid & (slots >= 0)
        return RecentRows(slots, store.times[slots], column_codes(vector) ^ self._flip), there

    def _load(self, step: Step) -> None:
        """Build the staircases of new members from the rows as they were before the step."""
        places = np.flatnonzero(self._fresh)
        if not len(places):
            return
        slots, x = self.source.rows_before(step)
        order = np.argsort(x, kind="stable")
        rows, there = self._rows(step, slots[order])
        x = x[order][there]
        rows = RecentRows(*(np.ascontiguousarray(part[there]) for part in rows))
        first = np.searchsorted(x, self._members.low[places])
        last = np.searchsorted(x, self._members.high[places], side="right")
        done = 0
        while True:
            done = kernels.build_stairs(self._stairs, places, first, last, rows, done)
            if done == len(places):
                break
            self._grow()
            self._check_size(len(x))
        self._fresh[:] = False

    def _grow(self) -> None:
        self._stairs = self._stairs._replace(pool=longer(self._stairs.pool, 2 * len(self._stairs.pool)))

    def _check_size(self, rows: int) -> None:
        most = _PER_ROW * rows + _PER_MEMBER * len(self) + 4096
        if self._stairs.meta[kernels.ENTRIES] > most:
            raise Overgrown

    # -- steps -------------------------------------------------------------------------------------

    def contents(self, step: Step, slots: Index) -> tuple[Index, Rows] | None:
        return np.arange(len(slots)), self.answers(step, *self._members.ranges(slots))[0]

    def answers(self, step: Step, low: Index, high: Index) -> tuple[Rows, bool]:
        """Answers of ranges before the step; no sum among them exceeds BIGINT."""
        return extreme_answers(self.source, self.query, step, low, high), False

    def _apply(self, step: Step, moves: RowMoves) -> Deltas:
        self._check_size(len(step.tables[self.source.table]))
        self._load(step)
        comes = moves.new >= 0
        assert not np.any(comes & (moves.old >= 0)), "an event does not change"
        rows, there = self._rows(step, np.where(comes, moves.new, moves.old))
        kept = np.flatnonzero(there)
        x = np.where(comes, moves.new_x, moves.old_x)[kept]
        kind = np.where(comes[kept], GAINS, LOSES)
        rows = RecentRows(*(np.ascontiguousarray(part[kept]) for part in rows))
        seq = step.seq[moves.position[kept]]
        parts, cut, grown = [], False, False
        for part, within in parts_of(seq, self._members.batch_size):
            ends = np.stack(
                [np.full(len(x[part]), LEAST), x[part], x[part], np.full(len(x[part]), GREATEST)], 1
            )
            found = self._members.affected(ends, np.arange(len(ends)), kind[part])
            found = found[by_seq(found, seq[part])]
            emitted = self._emit(found, RecentRows(*(column[part] for column in rows)), seq[part])
            cut, grown = cut or within, grown or len(emitted) > 1
            parts += emitted
        deltas = Deltas.concat(parts)
        return deltas.consolidate() if cut or grown else deltas

    def _emit(self, found: Index, rows: RecentRows, seq: Index) -> list[Deltas]:
        """Apply changes of members; their deltas, in as many parts as the pool had to grow."""
        parts, at = [], 0
        while at < len(found):
            size = 2 * (len(found) - at)
            seqs, slots, codes = np.empty((3, size), np.int64)
            out = AnswerCodes(seqs, slots, codes, np.empty(size, np.bool_))
            by_rank = self._members.by_rank()
            at, n = kernels.emit_recent(self._stairs, by_rank, self._members.slot, found, rows, seq, at, out)
            if n:
                codes = np.where(out.valid[:n], out.code[:n] ^ self._flip, 0)
                kind = self._column.type
                assert kind is not None
                answers = Rows([(self._as, from_codes(kind, codes, out.valid[:n]))], n)
                signs = np.tile(np.array([-1, 1], np.int8), n // 2)
                parts.append(Deltas.of(out.seq[:n], out.slot[:n], signs, answers, np.arange(n)))
            if at < len(found):
                self._grow()
        return parts

    def _check(self) -> None:
        """Times and codes of each staircase ascend; regions do not overlap."""
        self._members._check()
        places, pool, meta = self._stairs
        used, regions = self._members.places, []
        for begin, head, size, region in places[used].tolist():
            if region == kernels.NO_REGION:
                assert not size
                continue
            regions.append((begin, begin + (4 << region)))
            assert head + size <= 4 << region
            stair = pool[begin + head : begin + head + size]
            for column in (kernels.TIME, kernels.CODE):
                assert np.all(stair[:-1, column] < stair[1:, column])
        for region in range(_CLASSES):
            begin = int(meta[kernels.FIRST + region])
            while begin >= 0:
                regions.append((begin, begin + (4 << region)))
                begin = int(pool[begin, kernels.TIME])
        regions.sort()
        assert sum(end - begin for begin, end in regions) == meta[kernels.USED] <= len(pool)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(regions))
        assert meta[kernels.ENTRIES] == places[used, kernels.SIZE].sum()


def _no_stairs(places: int) -> Stairs:
    columns = np.zeros((places, 4), np.int64)
    columns[:, kernels.REGION] = kernels.NO_REGION
    meta = np.full(kernels.FIRST + _CLASSES, -1, np.int64)
    meta[: kernels.FIRST] = 0
    return Stairs(columns, np.zeros((1024, 3), np.int64), meta)
