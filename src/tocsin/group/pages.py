"""OFFSET: the rows after the first ones are the first rows, taken away from more of the first rows.

    ORDER BY x LIMIT 10 OFFSET 20     ORDER BY x LIMIT 30   its rows count
                                      ORDER BY x LIMIT 20   its rows are taken away

Both are subscriptions of a rank room, which shares its structures between all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index
from tocsin.model.delta import Deltas
from tocsin.rank.room import RankRoom
from tocsin.store.plans import FlatPlans, LazyPlans
from tocsin.store.step import Step

__all__ = ["PageSubscriptions"]

_PARTS = 2  # of a subscription: the rows up to the end of its page, and those before the page


class PageSubscriptions:
    """Subscriptions with an OFFSET over one table, by slot; a part's slot in the rank room is twice that."""

    def __init__(self) -> None:
        self._rank = RankRoom()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        for part in range(_PARTS):
            self._rank.add(_PARTS * slots + part, _prefixes(plans, part))
        self._count += len(slots)

    def remove(self, slots: Index) -> None:
        self._rank.remove(np.concatenate([_PARTS * slots + part for part in range(_PARTS)]))
        self._count -= len(slots)

    def deltas(self, step: Step) -> Deltas:
        """How the pages change."""
        found = self._rank.deltas(step) if self._count else Deltas.none()
        if not len(found):
            return found
        part = found.subscription % _PARTS
        sign = np.where(part == 0, found.sign, -found.sign).astype(np.int8)
        whole = replace(found, subscription=found.subscription // _PARTS, sign=sign)
        return whole.cancelled_between(part)

    def stats(self) -> dict[str, Any]:
        return self._rank.stats()

    def _check(self) -> None:
        self._rank._check()


def _prefixes(plans: Sequence[Plan] | FlatPlans, part: int) -> Sequence[Plan] | FlatPlans:
    if not isinstance(plans, FlatPlans):
        return [_prefix(plan, part) for plan in plans]
    make = plans.lazy.make
    lazy = LazyPlans(lambda row: _prefix(make(row), part), plans.lazy.rows)
    first = plans.query.limit if part == 0 else 0
    assert first is not None
    query = replace(plans.query, limit=plans.query.offset + first, offset=0)
    return replace(plans, query=query, shape=Shape.TOPK, lazy=lazy)


def _prefix(plan: Plan, part: int) -> Plan:
    """The first rows, with those of the page or without."""
    query = plan.query
    assert query.limit is not None
    limit = query.offset + (query.limit if part == 0 else 0)
    return replace(plan, query=replace(query, limit=limit, offset=0), shape=Shape.TOPK)
