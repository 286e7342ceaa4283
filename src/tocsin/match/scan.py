"""The plain way to match: check every filter on every row.

O(conjunctions x rows). Tests compare every other index with this one.

>>> from tocsin.language.algebra import Column, Compare
>>> from tocsin.language.rewrite import normalise
>>> from tocsin.match.base import unpack
>>> from tocsin.model.columns import Rows, Vector
>>> from tocsin.model.schema import Type
>>> from tocsin.predicate.compile import flatten
>>> index = Scan()
>>> index.add(np.array([7]), flatten([normalise(Compare(Column("price", Type.BIGINT), "<", 5))]))
>>> unpack(index.match(Rows.of(price=Vector.of(Type.BIGINT, [3, 9, 4]))))
(array([7, 7]), array([0, 2]))
"""

from __future__ import annotations

import numpy as np

from tocsin.match._kernels.scan import scan
from tocsin.match.coded import CodedConjunctions, CodedEvents, CodedIndex, concatenate
from tocsin.model.columns import Index

__all__ = ["Scan"]


class Scan(CodedIndex):
    """A list of conjunctions; matching checks each."""

    def __init__(self) -> None:
        super().__init__()
        self._all = concatenate([])

    def _insert(self, added: CodedConjunctions) -> None:
        self._all = concatenate([self._all, added])

    def _delete(self, slots: Index) -> None:
        self._all = self._all.take(np.flatnonzero(~np.isin(self._all.slot, slots)))

    def _clear(self) -> None:
        self._all = concatenate([])

    def _match(self, events: CodedEvents) -> Index:
        return scan(self._all, events)

    def _check(self) -> None:
        super()._check()
        assert set(self._all.slot.tolist()) <= self._used - self._unconditional
