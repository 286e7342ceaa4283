"""Several extremes, or extremes with aggregates, in one query: each by the family for it, then joined.

    SELECT MAX(gust), MIN(temp), COUNT(*) FROM weather WHERE hour BETWEEN 6 AND 9

    MAX(gust)    Extremes     change 3: 41 -> 44                          change 7: 44 -> 41
    MIN(temp)    Extremes                          change 5: 2 -> -1
    COUNT(*)     Running      change 3: 8 -> 9                            change 7: 9 -> 8
    told                      3: 41, 2, 8 -> 44, 2, 9      5: 44, 2, 9 -> 44, -1, 9      7: ..

What a part does not tell of stays as it was, so the answer that each subscription stands at is kept, by item.
A step fills in what came last.

Cost: that of the parts, and a merge of what they tell.

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
from tocsin.rank._kernels.combined import fill
from tocsin.rank.aggregates import Running
from tocsin.rank.family import Family, Moves, Place
from tocsin.rank.members import Members
from tocsin.rank.topk import Extremes
from tocsin.store.step import Step

__all__ = ["Together"]

_RANK_BITS = 32
_RANK = (1 << _RANK_BITS) - 1


class _Part(NamedTuple):
    """A family, and which of its columns is which item of the query."""

    family: Extremes | Running
    items: tuple[tuple[int, int], ...]  # number of the item, number of the column


class Together(Family):
    """Queries with MIN or MAX and something else; parts that answer, and answers by member."""

    name = "together"

    def __init__(self, spot: Place, query: Query, key: tuple[str, ...]) -> None:
        super().__init__(spot, query)
        self._members = Members()
        self._parts = _parts(spot, query, key)
        self._fresh: Mask = np.zeros(len(self._members.slot), np.bool_)  # by place: no answer is known yet
        self._answers: list[Vector] | None = None  # by item, then by place; None: of nobody

    def __len__(self) -> int:
        return len(self._members)

    def add(self, slots: Index, low: Index, high: Index, query: Query) -> None:
        for part in self._parts:
            part.family.add(slots, low, high, part.family.query)
        places = self._members.add(slots, low, high)
        if len(self._members.slot) > len(self._fresh):
            self._fresh = longer(self._fresh, len(self._members.slot))
        self._fresh[places] = True

    def remove(self, slots: Index) -> None:
        for part in self._parts:
            part.family.remove(slots)
        self._fresh[self._members.remove(slots)] = False

    def begin_anew(self) -> None:
        """Answers are by member, and stay; parts may keep rows."""
        for part in self._parts:
            part.family.begin_anew()

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "parts": [part.family.stats() for part in self._parts]}

    # -- answers -----------------------------------------------------------------------------------

    def contents(self, step: Step, slots: Index) -> tuple[Index, Rows] | None:
        rows, over = self.answers(step, *self._members.ranges(slots))
        return None if over else (np.arange(len(slots)), rows)

    def answers(self, step: Step, low: Index, high: Index) -> tuple[Rows, bool]:
        columns: dict[int, Vector] = {}
        beyond = False
        for part in self._parts:
            rows, over = part.family.answers(step, low, high)
            beyond |= over
            columns |= {item: rows.columns[column][1] for item, column in part.items}
        named = [(item.name, columns[number]) for number, item in enumerate(self.query.items)]
        return Rows(named, len(low)), beyond

    def _begin(self, step: Step) -> None:
        self._fresh[:] = self._members.slot >= 0
        self._answers = None

    def _load(self, step: Step) -> None:
        """Answers of those who came, over the table as it was before the step."""
        places = np.flatnonzero(self._fresh)
        if not len(places):
            return
        found, _ = self.answers(step, self._members.low[places], self._members.high[places])
        vectors = [vector for _, vector in found.columns]
        if self._answers is None:
            self._answers = [Vector.blank(vector.type, 0) for vector in vectors]
        self._answers = [_reaching(kept, len(self._fresh)) for kept in self._answers]
        for kept, fresh in zip(self._answers, vectors, strict=True):
            kept.values[places], kept.valid[places] = fresh.values, fresh.valid
        self._fresh[:] = False

    # -- steps -------------------------------------------------------------------------------------

    def _told(self, step: Step, moves: Moves) -> Deltas:
        if not len(self):  # parts that see no step begin anew
            return Deltas.none()
        self._load(step)
        told = [_After.of(part.family.deltas(step), step, self._members) for part in self._parts]
        when = np.concatenate([after.when for after in told])
        when.sort(kind="stable")  # each part is in order already
        fresh = np.ones(len(when), np.bool_)
        fresh[1:] = when[1:] != when[:-1]
        when = when[fresh]
        if not len(when):
            return Deltas.none()
        place = self._members.by_rank()[when & _RANK].astype(np.int64)
        columns: list[Any] = [None] * len(self.query.items)
        for part, after in zip(self._parts, told, strict=True):
            current = len(after.when) + np.arange(len(self._fresh))  # what is kept is behind what is told
            found = np.empty((2, len(when)), np.int64)
            fill(when, after.when, place, current, found[0], found[1])
            both = found.T.ravel()
            for item, column in part.items:
                columns[item] = self._column(item, after, column, current, both)
        named = [(item.name, vector) for item, vector in zip(self.query.items, columns, strict=True)]
        seq, slot = step.seq[when >> _RANK_BITS], self._members.slot[place]
        signs = np.tile(np.array([-1, 1], np.int8), len(when))
        rows = Rows(named, 2 * len(when))
        return Deltas.of(np.repeat(seq, 2), np.repeat(slot, 2), signs, rows, np.arange(len(rows)))

    def _column(self, item: int, after: _After, column: int, current: Index, both: Index) -> Vector:
        """An item before and after each change; what comes last is kept."""
        assert self._answers is not None
        kept = self._answers[item]
        values, valid = kept.values, kept.valid
        if len(after.when):
            vector = after.columns[column]
            values, valid = np.concatenate([vector.values, values]), np.concatenate([vector.valid, valid])
        self._answers[item] = Vector(kept.type, values[current], valid[current])
        return Vector(kept.type, values[both], valid[both])

    def _check(self) -> None:
        self._members._check()
        for part in self._parts:
            part.family._check()
            assert len(part.family) == len(self)
        numbers = [item for part in self._parts for item, _ in part.items]
        assert sorted(numbers) == list(range(len(self.query.items)))


class _After(NamedTuple):
    """What a part tells: when (position in the step, rank of the member; ascending), and the rows after."""

    when: Index
    columns: Sequence[Vector]

    @classmethod
    def of(cls, told: Deltas, step: Step, members: Members) -> _After:
        told = told.take(told.sign > 0)
        if not len(told):
            return cls(np.empty(0, np.int64), ())
        when = np.searchsorted(step.seq, told.seq) << _RANK_BITS | members.rank(told.subscription)
        start = np.cumsum([0, *(len(rows) for rows in told.sources)])
        row = told.row + start[told.source]
        columns = []
        for parts in zip(*(rows.columns for rows in told.sources), strict=True):
            vectors = [vector for _, vector in parts]
            values = np.concatenate([vector.values for vector in vectors])[row]
            valid = np.concatenate([vector.valid for vector in vectors])[row]
            columns.append(Vector(vectors[0].type, values, valid))
        return cls(when, columns)


def _reaching(kept: Vector, length: int) -> Vector:
    """The same, at least so long."""
    if len(kept) >= length:
        return kept
    blank = Vector.blank(kept.type, length - len(kept))
    return Vector(
        kept.type, np.concatenate([kept.values, blank.values]), np.concatenate([kept.valid, blank.valid])
    )


def _parts(spot: Place, query: Query, key: tuple[str, ...]) -> list[_Part]:
    """One for each extreme, and one for all that is added up."""
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

    parts = [
        _Part(Extremes(spot, only(numbers[:1]), key), tuple((number, 0) for number in numbers))
        for numbers in extremes.values()
    ]
    if summed:
        columns = tuple((number, column) for column, number in enumerate(summed))
        parts.append(_Part(Running(spot, only(summed)), columns))
    return parts
