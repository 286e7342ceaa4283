"""Families: subscriptions to the same groups that differ in thresholds and in the values of keys.

    touches ─► conditions of all ─► segment by values of keys ─► thresholds between before and after ─► Deltas

The members of a family are sorted by (segment, low end). A touch that moves a count from 5 to 6 concerns
those whose interval begins at 6 or ends at 5: two binary searches, whatever the number of members. If the
answer shows what has changed, all members that the group passes receive it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import SumOverflow
from tocsin.group._kernels.thresholds import GroupChanges, Thresholds, probe
from tocsin.group.split import FamilyKey, aggregates_of
from tocsin.group.totals import GroupTotals, Touched
from tocsin.language.algebra import Aggregate, Column, Measure, atoms
from tocsin.model.columns import Index, Rows, Vector
from tocsin.model.delta import Deltas
from tocsin.model.schema import Type
from tocsin.predicate.codes import GREATEST
from tocsin.predicate.evaluate import Facts
from tocsin.store.directory import GroupDirectory

__all__ = ["GroupFamily", "TouchedRows"]


class TouchedRows:
    """Columns of touched groups, before and after: row t is group t before, row T + t after its touch."""

    def __init__(self, totals: GroupTotals, touched: Touched) -> None:
        self._totals, self.touched = totals, touched
        self._keys: list[Vector] | None = None
        self._known: dict[Column | Aggregate, Vector] = {}

    def vector(self, expression: Column | Aggregate) -> Vector:
        """A key or a measure."""
        if isinstance(expression, Measure):
            expression = expression.aggregate
        if expression not in self._known:
            self._known[expression] = self._make(expression)
        return self._known[expression]

    def _make(self, expression: Column | Aggregate) -> Vector:
        if isinstance(expression, Aggregate):
            change = self.touched.of(expression)
            codes = np.concatenate([change.before, change.after])
            return self._totals.vector(expression, codes, np.concatenate([change.had, change.has]))
        if self._keys is None:
            self._keys = self._totals.directory.keys(self.touched.group)
        own = self._keys[self._totals.keys.index(expression)]
        return Vector.concat([own, own])

    def facts(self, columns: Sequence[Column]) -> Facts:
        """For conditions on keys and measures."""
        names = {column: f"h{n}" for n, column in enumerate(columns)}
        rows = Rows([(name, self.vector(column)) for column, name in names.items()], 2 * len(self.touched))
        return Facts(rows, lambda column: names[column])


class GroupFamily:
    """Members by slot, with an index over them that is built when it is next needed."""

    def __init__(self, key: FamilyKey) -> None:
        self.key = key
        self._segments = GroupDirectory([column.type or Type.STRING for column in key.equal])
        self._needed = frozenset(aggregates_of(key))
        self._shown = tuple(i.expression for i in key.items if isinstance(i.expression, Aggregate))
        self._conditions = tuple(dict.fromkeys(atom.column for atom in atoms(key.rest.predicate)))
        shown = {item.expression for item in key.items}
        self._is_a_bag = not set(key.source.keys) <= shown  # rows of several groups may be equal
        count = len(key.measures)
        self._slot, self._segment = np.empty((2, 0), np.int64)
        self._low, self._high = np.empty((2, count, 0), np.int64)
        self._index: Thresholds | None = None

    def __len__(self) -> int:
        return len(self._slot)

    # -- members -----------------------------------------------------------------------------------

    def add(self, slots: Index, keys: Sequence[Vector], low: NDArray[Any], high: NDArray[Any]) -> None:
        """Add members with the values of their keys, and by measure the ends of their intervals."""
        if self.key.bounds == "below":  # from above: the codes turned round have lower ends
            low, high = low.copy(), high.copy()
            low[0], high[0] = ~high[0], ~low[0]
        segment = self._segments.number(keys, len(slots))
        self._slot = np.concatenate([self._slot, slots])
        self._segment = np.concatenate([self._segment, segment])
        self._low = np.concatenate([self._low, low], axis=1)
        self._high = np.concatenate([self._high, high], axis=1)
        self._index = None

    def remove(self, slots: Index) -> None:
        stays = ~np.isin(self._slot, slots)
        self._slot, self._segment = self._slot[stays], self._segment[stays]
        self._low, self._high = self._low[:, stays], self._high[:, stays]
        self._index = None
        if self._segments.size > 2 * len(self) + 64:
            self._segments.keep(np.unique(self._segment))

    def index(self) -> Thresholds:
        """The members in order, with their thresholds."""
        if self._index is None:
            first = self._low[0] if len(self._low) else self._slot
            order = np.lexsort((first, self._segment))
            self._slot, self._segment = self._slot[order], self._segment[order]
            self._low, self._high = (np.ascontiguousarray(ends[:, order]) for ends in (self._low, self._high))
            start = np.searchsorted(self._segment, np.arange(self._segments.size + 1))
            by_high, reach = np.empty(0, np.int64), np.zeros(self._segments.size, np.int64)
            if len(self._low):
                by_high = np.lexsort((self._high[0], self._segment))
                np.maximum.at(reach, self._segment, _reach(self._low[0], self._high[0]))
            self._index = Thresholds(start, self._low, self._high, by_high, reach)
        return self._index

    # -- answers -----------------------------------------------------------------------------------

    def deltas(self, rows: TouchedRows) -> Deltas:
        """How the members' answers change."""
        if not len(self):
            return Deltas.none()
        touched = rows.touched
        changes = self._changes(rows)
        self._check_sums(touched, changes.segment)
        found = _probed(self.index(), changes)
        if not found.shape[1]:
            return Deltas.none()
        touch, member, how = found
        count = len(touched)
        answers = self._answers(rows)
        both = [(how & 1 > 0, -1, 0), (how & 2 > 0, 1, count)]
        parts = [
            Deltas.of(touched.seq[touch[some]], self._slot[member[some]], sign, answers, touch[some] + base)
            for some, sign, base in both
        ]
        deltas = Deltas.concat([part for part in parts if len(part)])
        return deltas.consolidate() if self._is_a_bag else deltas.ordered()

    def contents(self, slots: Index, rows: TouchedRows) -> tuple[Index, Rows]:
        """The answers of members over groups as if each had just come: positions in `slots`, and rows."""
        changes = self._changes(rows)
        self._check_sums(rows.touched, changes.segment)
        index = self.index()
        wanted = np.full(len(self._slot), -1, np.int64)
        place = {slot: n for n, slot in enumerate(slots.tolist())}
        wanted[:] = [place.get(slot, -1) for slot in self._slot.tolist()]
        touch, member, _ = _probed(index, changes)
        own = wanted[member] >= 0
        touch, owner = touch[own], wanted[member[own]]
        order = np.argsort(owner, kind="stable")
        return owner[order], self._answers(rows).take(touch[order] + len(rows.touched))

    def content(self, slot: int, rows: TouchedRows) -> Rows:
        """The answer of one member over groups as if each had just come."""
        (at,) = np.flatnonzero(self._slot == slot)
        changes = self._changes(rows)
        passes = changes.has & (changes.segment == self._segment[at])
        self._check_sums(rows.touched, np.where(changes.segment == self._segment[at], changes.segment, -1))
        for n in range(len(self._low)):
            passes &= (changes.after[n] >= self._low[n, at]) & (changes.after[n] <= self._high[n, at])
        return self._answers(rows).take(np.flatnonzero(passes) + len(rows.touched))

    def _changes(self, rows: TouchedRows) -> GroupChanges:
        """What the index needs to know of touches."""
        touched, count = rows.touched, len(rows.touched)
        had, has = touched.had.copy(), touched.has.copy()
        if self._conditions:
            passes = rows.facts(self._conditions).matches(self.key.rest)
            had &= passes[:count]
            has &= passes[count:]
        elif self.key.rest.never:
            had[:] = has[:] = False
        measures = [touched.of(aggregate) for aggregate in self.key.measures]
        before, after = np.empty((2, len(measures), count), np.int64)
        for n, change in enumerate(measures):
            had &= change.had
            has &= change.has
            turned = n == 0 and self.key.bounds == "below"
            before[n] = ~change.before if turned else change.before
            after[n] = ~change.after if turned else change.after
        differs = np.zeros(count, np.bool_)
        for aggregate in self._shown:
            differs |= touched.of(aggregate).differs
        return GroupChanges(self._segments_of(rows), had, has, differs, before, after)

    def _segments_of(self, rows: TouchedRows) -> Index:
        """By touch the segment of the members that want its keys."""
        count = len(rows.touched)
        if not self.key.equal:
            return np.zeros(count, np.int64)
        half = np.arange(count)
        return self._segments.find([rows.vector(column).take(half) for column in self.key.equal])

    def _answers(self, rows: TouchedRows) -> Rows:
        columns = [(item.name, rows.vector(item.expression)) for item in self.key.items]
        return Rows(columns, 2 * len(rows.touched))

    def _check_sums(self, touched: Touched, segment: Index) -> None:
        """Raise a SumOverflow if a sum that a member needs exceeds BIGINT."""
        for aggregate in self._needed:
            over = touched.of(aggregate).over
            if over is None or not over.any():
                continue
            index, concerned = self.index(), segment[over]
            concerned = concerned[concerned >= 0]
            concerned = concerned[index.start[concerned + 1] > index.start[concerned]]
            if len(concerned):
                error = SumOverflow(
                    f"overflow: {aggregate} of a group exceeds 64 bits",
                    hint="sum a DOUBLE column, or group by more columns",
                )
                error.slot = int(self._slot[np.isin(self._segment, concerned)].min())
                raise error

    def _check(self) -> None:
        """Members are sorted by segment and threshold, and distinct."""
        index = self.index()
        assert len(np.unique(self._slot)) == len(self._slot) == index.start[-1]
        if len(self._low):
            ascending = (self._segment[1:] > self._segment[:-1]) | (self._low[0, 1:] >= self._low[0, :-1])
            assert ascending.all()
            assert self.key.bounds != "below" or np.all(self._high[0] == GREATEST)
        self._segments._check()


def _probed(index: Thresholds, changes: GroupChanges) -> NDArray[np.int64]:
    """What `probe` finds, in a buffer of the right size."""
    out = np.empty((3, 256), np.int64)
    count = probe(index, changes, out)
    if count > out.shape[1]:
        out = np.empty((3, count), np.int64)
        probe(index, changes, out)
    return out[:, :count]


def _reach(low: Index, high: Index) -> Index:
    """How far the ends of intervals are apart; GREATEST if more than half of all codes are between."""
    apart = high.astype(np.float64) - low.astype(np.float64)
    with np.errstate(over="ignore"):
        return np.where(apart > 2.0**61, GREATEST, np.maximum(high - low, 0))
