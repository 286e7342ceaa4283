"""How many subscriptions want a row of one side of a join: those whose conditions on that side it passes.

A condition that says nothing about the side is not entered into the index, only counted.

>>> from tocsin.language.rewrite import normalise
>>> from tocsin.match.index import Auto
>>> from tocsin.language.algebra import Column, Compare, Truth
>>> from tocsin.model.columns import Rows, Vector
>>> from tocsin.model.schema import Type
>>> from tocsin.predicate.compile import flatten
>>> filters = SideFilters(Auto)
>>> forms = [normalise(Truth(True)), normalise(Compare(Column("x", Type.BIGINT), ">", 5))]
>>> filters.add(np.array([0, 1]), flatten(forms))
>>> filters.weights(Rows.of(x=Vector.of(Type.BIGINT, [3, 7])), exact=True).tolist()
[1, 2]
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tocsin.match.base import MatchIndex
from tocsin.model.columns import Index, Mask, Rows, longer
from tocsin.predicate.flat import FlatFilters

__all__ = ["SideFilters"]


class SideFilters:
    """Conditions of subscriptions on one side, by slot."""

    def __init__(self, make_index: Callable[[], MatchIndex]) -> None:
        self._make_index = make_index
        self._index: MatchIndex | None = None
        self._tested: Mask = np.zeros(0, np.bool_)  # by slot: is it in the index?
        self.unconditional = 0
        self.conditional = 0

    def add(self, slots: Index, filters: FlatFilters) -> None:
        free = np.zeros(filters.count, np.bool_)
        free[filters.owner[filters.sizes == 0]] = True
        top = int(slots.max(initial=-1)) + 1
        if top > len(self._tested):
            self._tested = longer(self._tested, max(64, 2 * top))
        if not free.all():
            if self._index is None:
                self._index = self._make_index()
            self._index.add(slots[~free], filters.take(~free))
        self._tested[slots] = ~free
        self.unconditional += int(free.sum())
        self.conditional += int((~free).sum())

    def remove(self, slots: Index) -> None:
        tested = self._tested[slots]
        if tested.any():
            assert self._index is not None
            self._index.remove(slots[tested])
        self.unconditional -= int((~tested).sum())
        self.conditional -= int(tested.sum())
        self._tested[slots] = False

    def weights(self, rows: Rows, exact: bool) -> NDArray[np.int32]:
        """How many want each row; unless `exact`, it matters only whether any does."""
        out = np.full(len(rows), self.unconditional, np.int32)
        if not self.conditional or (self.unconditional and not exact):
            return out
        assert self._index is not None
        row = self._index.match(rows) & 0xFFFFFFFF
        return out + np.bincount(row, minlength=len(rows)).astype(np.int32)

    def _check(self) -> None:
        assert self.conditional == int(self._tested.sum())
        if self._index is not None:
            self._index._check()
            assert self._index.stats()["subscriptions"] == self.conditional
