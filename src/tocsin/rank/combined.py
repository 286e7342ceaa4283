"""Several extremes, or extremes with aggregates, in one query: a family for each, and their answers joined.

    SELECT MAX(gust), MIN(temp), COUNT(*) FROM weather WHERE hour BETWEEN 6 AND 9

    MAX(gust)   ExtremeFamily     change 3: 41 -> 44                          change 7: 44 -> 41
    MIN(temp)   ExtremeFamily                          change 5: 2 -> -1
    COUNT(*)    AggregateFamily   change 3: 8 -> 9                            change 7: 9 -> 8
    emitted                       3: 41, 2, 8 -> 44, 2, 9      5: 44, 2, 9 -> 44, -1, 9      7: ..

The family of one item is a *component*. An item whose component emits nothing keeps its value, so the current
answer of each subscription is kept, by item, and fills in the items that did not change.

Cost: that of the components, and a merge of their deltas.

T07, chapter 5, has one extreme in a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tocsin.language.algebra import Aggregate, Item, Query
from tocsin.model.columns import Index, Mask, Rows, Vector, longer
from tocsin.model.delta import Deltas
from tocsin.rank._kernels.aggregates import fill_in
from tocsin.rank.aggregates import AggregateFamily
from tocsin.rank.boxes import BoxAggregateFamily, BoxExtremeFamily
from tocsin.rank.family import RangeFamily, RowMoves, RowSource
from tocsin.rank.members import Members
from tocsin.rank.partitioned import PointRows
from tocsin.rank.recent import RecentExtremeFamily
from tocsin.rank.topk import ExtremeFamily
from tocsin.store.step import Step

__all__ = ["CombinedFamily"]

_RANK_BITS = 32
_RANK = (1 << _RANK_BITS) - 1


class _Component(NamedTuple):
    """A family for some items of the query."""

    family: ExtremeFamily | RecentExtremeFamily | AggregateFamily
    items: tuple[tuple[int, int], ...]  # number of the item, number of the family's column


class CombinedFamily(RangeFamily):
    """Queries of MIN or MAX and further aggregates; components, and current answers by member."""

    name = "combined"
    settles = True  # components do

    def __init__(self, source: RowSource, query: Query, key: tuple[str, ...], recent: bool = False) -> None:
        super().__init__(source, query)
        self._members = Members((source.width,) if isinstance(source, PointRows) else ())
        self._components = _components(source, query, key, recent)
        self._fresh: Mask = np.zeros(
            len(self._members.slot), np.bool_
        )  # by place: the answer is not computed yet
        self._answers: list[Vector] | None = None  # by item, then by place; None: of no member

    def __len__(self) -> int:
        return len(self._members)

    def add(self, slots: Index, low: Index, high: Index, query: Query) -> None:
        for component in self._components:
            component.family.add(slots, low, high, component.family.query)
        places = self._members.add(slots, low, high)
        if len(self._members.slot) > len(self._fresh):
            self._fresh = longer(self._fresh, len(self._members.slot))
        self._fresh[places] = True

    def remove(self, slots: Index) -> None:
        for component in self._components:
            component.family.remove(slots)
        self._fresh[self._members.remove(slots)] = False

    def ranges(self, slots: Index) -> tuple[Index, Index]:
        """The ranges of members."""
        return self._members.ranges(slots)

    def invalidate(self) -> None:
        """Answers depend on the range of a member only, and stay; components may keep rows."""
        for component in self._components:
            component.family.invalidate()

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "components": [component.family.stats() for component in self._components]}

    # -- answers -----------------------------------------------------------------------------------

    def contents(self, step: Step, slots: Index) -> tuple[Index, Rows] | None:
        rows, overflow = self.answers(step, *self._members.ranges(slots))
        return None if overflow else (np.arange(len(slots)), rows)

    def answers(self, step: Step, low: Index, high: Index) -> tuple[Rows, bool]:
        """Answers of ranges before the step; whether a sum among them exceeds BIGINT."""
        columns: dict[int, Vector] = {}
        overflow = False
        for component in self._components:
            rows, exceeds = component.family.answers(step, low, high)
            overflow |= exceeds
            columns |= {item: rows.columns[column][1] for item, column in component.items}
        named = [(item.name, columns[number]) for number, item in enumerate(self.query.items)]
        return Rows(named, len(low)), overflow

    def _rebuild(self, step: Step) -> None:
        self._fresh[:] = self._members.slot >= 0
        self._answers = None

    def _load(self, step: Step) -> None:
        """Compute the answers of new members over the table as it was before the step."""
        places = np.flatnonzero(self._fresh)
        if not len(places):
            return
        found, _ = self.answers(step, self._members.low[places], self._members.high[places])
        vectors = [vector for _, vector in found.columns]
        if self._answers is None:
            self._answers = [Vector.blank(vector.type, 0) for vector in vectors]
        self._answers = [_padded(kept, len(self._fresh)) for kept in self._answers]
        for kept, fresh in zip(self._answers, vectors, strict=True):
            kept.values[places], kept.valid[places] = fresh.values, fresh.valid
        self._fresh[:] = False

    # -- steps -------------------------------------------------------------------------------------

    def _apply(self, step: Step, moves: RowMoves) -> Deltas:
        if not len(self):  # components that miss a step rebuild
            return Deltas.none()
        self._load(step)
        emitted = [
            _ComponentChanges.of(component.family.deltas(step), step, self._members)
            for component in self._components
        ]
        when = np.concatenate([changes.when for changes in emitted])
        when.sort(kind="stable")  # those of each component are in order already
        fresh = np.ones(len(when), np.bool_)
        fresh[1:] = when[1:] != when[:-1]
        when = when[fresh]
        if not len(when):
            return Deltas.none()
        place = self._members.by_rank()[when & _RANK].astype(np.int64)
        columns: list[Any] = [None] * len(self.query.items)
        for component, changes in zip(self._components, emitted, strict=True):
            current = len(changes.when) + np.arange(len(self._fresh))  # current answers follow emitted ones
            found = np.empty((2, len(when)), np.int64)
            fill_in(when, changes.when, place, current, found[0], found[1])
            both = found.T.ravel()
            for item, column in component.items:
                columns[item] = self._column(item, changes, column, current, both)
        named = [(item.name, vector) for item, vector in zip(self.query.items, columns, strict=True)]
        seq, slot = step.seq[when >> _RANK_BITS], self._members.slot[place]
        signs = np.tile(np.array([-1, 1], np.int8), len(when))
        rows = Rows(named, 2 * len(when))
        return Deltas.of(np.repeat(seq, 2), np.repeat(slot, 2), signs, rows, np.arange(len(rows)))

    def _column(
        self, item: int, changes: _ComponentChanges, column: int, current: Index, both: Index
    ) -> Vector:
        """An item before and after each change; its last value becomes the current one."""
        assert self._answers is not None
        kept = self._answers[item]
        values, valid = kept.values, kept.valid
        if len(changes.when):
            vector = changes.columns[column]
            values, valid = np.concatenate([vector.values, values]), np.concatenate([vector.valid, valid])
        self._answers[item] = Vector(kept.type, values[current], valid[current])
        return Vector(kept.type, values[both], valid[both])

    def _check(self) -> None:
        """Components have the same members, and each item has one component."""
        self._members._check()
        for component in self._components:
            component.family._check()
            assert len(component.family) == len(self)
        numbers = [item for component in self._components for item, _ in component.items]
        assert sorted(numbers) == list(range(len(self.query.items)))


class _ComponentChanges(NamedTuple):
    """What a component emits: when (position in the step, rank of the member; ascending), and rows after."""

    when: Index
    columns: Sequence[Vector]

    @classmethod
    def of(cls, deltas: Deltas, step: Step, members: Members) -> _ComponentChanges:
        deltas = deltas.take(deltas.sign > 0)
        if not len(deltas):
            return cls(np.empty(0, np.int64), ())
        when = np.searchsorted(step.seq, deltas.seq) << _RANK_BITS | members.rank(deltas.subscription)
        start = np.cumsum([0, *(len(rows) for rows in deltas.sources)])
        row = deltas.row + start[deltas.source]
        columns = []
        for parts in zip(*(rows.columns for rows in deltas.sources), strict=True):
            vectors = [vector for _, vector in parts]
            values = np.concatenate([vector.values for vector in vectors])[row]
            valid = np.concatenate([vector.valid for vector in vectors])[row]
            columns.append(Vector(vectors[0].type, values, valid))
        return cls(when, columns)


def _padded(kept: Vector, length: int) -> Vector:
    """The same vector, at least so long."""
    if len(kept) >= length:
        return kept
    blank = Vector.blank(kept.type, length - len(kept))
    return Vector(
        kept.type, np.concatenate([kept.values, blank.values]), np.concatenate([kept.valid, blank.valid])
    )


def _components(source: RowSource, query: Query, key: tuple[str, ...], recent: bool) -> list[_Component]:
    """One for each extreme, and one for all counts and sums; `recent`: the rows are those of a window."""
    extremes: dict[Aggregate, list[int]] = {}
    summed: list[int] = []
    for number, item in enumerate(query.items):
        assert isinstance(item.expression, Aggregate)
        if item.expression.function in ("MIN", "MAX"):
            extremes.setdefault(item.expression, []).append(number)
        else:
            summed.append(number)

    def only(numbers: Sequence[int]) -> Query:
        items: tuple[Item, ...] = tuple(query.items[number] for number in numbers)
        return replace(query, items=items)

    def extreme(part: Query) -> ExtremeFamily | RecentExtremeFamily:
        if isinstance(source, PointRows):
            return BoxExtremeFamily(source, part, key)
        if recent and RecentExtremeFamily.takes(part):
            return RecentExtremeFamily(source, part)
        return ExtremeFamily(source, part, key)

    def aggregates(part: Query) -> AggregateFamily:
        if isinstance(source, PointRows):
            return BoxAggregateFamily(source, part)
        return AggregateFamily(source, part)

    components = [
        _Component(extreme(only(numbers[:1])), tuple((number, 0) for number in numbers))
        for numbers in extremes.values()
    ]
    if summed:
        columns = tuple((number, column) for column, number in enumerate(summed))
        components.append(_Component(aggregates(only(summed)), columns))
    return components
