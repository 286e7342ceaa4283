"""Random worlds of two joined tables and ranges over them, and the brute-force meaning of a select-join."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import numpy as np

from tocsin.model.message import GREATEST, LEAST
from tocsin.reformulate._kernels.joins import RowChanges
from tocsin.reformulate.base import row_changes
from tocsin.stab.groups import Ranges

__all__ = ["Row", "World", "as_change", "join", "ranges_of", "semijoin"]

Range = tuple[int, int]
Subscription = tuple[Range, Range]


class Row(NamedTuple):
    id: int
    value: int | None
    key: int | None
    payload: int

    @property
    def is_there(self) -> bool:
        return self.value is not None and self.key is not None


Table = dict[int, Row]


class World:
    """Subscriptions and two tables that change at random: values, keys, payloads; NULLs, ties, open ends."""

    def __init__(self, seed: int, subscriptions: int = 25) -> None:
        self.random = random.Random(seed)
        self.values, self.keys = self.random.choice([(4, 1), (8, 2), (30, 3)])
        count = self.random.randint(1, subscriptions)
        self.subscriptions = [(self._range(), self._range()) for _ in range(count)]
        self.tables: tuple[Table, Table] = ({}, {})
        self._next = 0

    def _range(self) -> Range:
        low, high = sorted(self.random.randint(0, self.values) for _ in range(2))
        shapes = [(LEAST, high), (low, GREATEST), (LEAST, GREATEST), (low, low), (low, high)]
        return self.random.choices(shapes, weights=[10, 10, 3, 7, 70])[0]

    def _value(self) -> int | None:
        return None if self.random.random() < 0.05 else self.random.randint(0, self.values)

    def _key(self) -> int | None:
        return None if self.random.random() < 0.04 else self.random.randrange(self.keys)

    def change(self) -> tuple[int, Row | None, Row | None]:
        """A side, and a row before and after; the tables then have it."""
        side, kind = self.random.randrange(2), self.random.random()
        table = self.tables[side]
        if not table or kind < 0.4:
            old, new = None, Row(self._next, self._value(), self._key(), 0)
            self._next += 1
        else:
            old = self.random.choice(list(table.values()))
            new = old._replace(payload=self.random.randint(0, 9))
            if self.random.random() < 0.6:
                new = new._replace(value=self._value())
            if self.random.random() < 0.25:
                new = new._replace(key=self._key())
            if kind < 0.6:
                new = None
        if old is not None:
            del table[old.id]
        if new is not None:
            table[new.id] = new
        return side, old, new


def as_change(side: int, old: Row | None, new: Row | None) -> RowChanges:
    """A change as schemes take it; no row if it changes nothing."""
    there = [row if row is not None and row.is_there else None for row in (old, new)]
    if there[0] == there[1]:
        return row_changes([], [], [], [])
    before, after = ((0, 0, 0) if row is None else (1, row.key, row.value) for row in there)
    known = old or new
    assert known is not None
    return row_changes([side], [known.id], [before], [after])


def ranges_of(subscriptions: list[Subscription]) -> Ranges:
    columns = np.array([(*c, *a) for a, c in subscriptions], np.int64).reshape(-1, 4).T
    return Ranges(*(np.ascontiguousarray(column) for column in columns))


def _inside(row: Row, range: Range) -> bool:
    return row.value is not None and range[0] <= row.value <= range[1]


def join(subscription: Subscription, tables: tuple[Table, Table]) -> Counter[tuple[Row, Row]]:
    """The content of a subscription."""
    return Counter(
        (r, s)
        for r in tables[0].values()
        for s in tables[1].values()
        if r.key is not None
        and r.key == s.key
        and _inside(r, subscription[0])
        and _inside(s, subscription[1])
    )


def semijoin(subscription: Subscription, side: int, tables: tuple[Table, Table]) -> Table:
    """The rows of a side that are in the content."""
    return {pair[side].id: pair[side] for pair in join(subscription, tables)}
