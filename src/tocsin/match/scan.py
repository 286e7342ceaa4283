"""The plain way to match: ask every filter about the whole batch.

No structure, no surprises: O(subscriptions x rows), column by column, each distinct predicate
evaluated once per batch. Every other index is measured against this one's answers.

>>> from tocsin.language.algebra import Column, Compare
>>> from tocsin.match.base import unpack
>>> from tocsin.language.rewrite import normalise
>>> from tocsin.model.columns import Vector
>>> from tocsin.model.schema import Type
>>> index = Scan()
>>> index.add([7], [normalise(Compare(Column("price", Type.BIGINT), "<", 5))])
>>> unpack(index.match(Rows.of(price=Vector.of(Type.BIGINT, [3, 9, 4]))))
(array([7, 7]), array([0, 2]))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tocsin.language.rewrite import NormalForm
from tocsin.match.base import MatchIndex, pack
from tocsin.model.columns import Index, Rows
from tocsin.predicate.evaluate import Facts

__all__ = ["Scan"]


class Scan(MatchIndex):
    """Filters in a dict; matching asks each."""

    def __init__(self) -> None:
        self._filters: dict[int, NormalForm] = {}

    def add(self, slots: Sequence[int], filters: Sequence[NormalForm]) -> None:
        for slot, form in zip(slots, filters, strict=True):
            assert slot not in self._filters, f"slot {slot} is in use"
            self._filters[slot] = form

    def remove(self, slots: Sequence[int]) -> None:
        for slot in slots:
            del self._filters[slot]

    def match(self, rows: Rows) -> Index:
        facts = Facts(rows)
        parts = [pack(slot, np.flatnonzero(facts.matches(form))) for slot, form in self._filters.items()]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def supports(self, filter: NormalForm) -> bool:
        return True

    def stats(self) -> dict[str, Any]:
        return {"index": "scan", "subscriptions": len(self._filters)}

    def _check(self) -> None:
        assert all(0 <= slot < 2**31 for slot in self._filters)
