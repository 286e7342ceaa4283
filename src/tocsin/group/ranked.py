"""First rows of groups, after others, and of joins.

OFFSET over a table       pages.py   two subscriptions of a rank room
PARTITION BY of a table   firsts.py  shared by table, partition and order
over joins                scan.py    one by one
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocsin.group.firsts import FirstsFamily, FirstsKey
from tocsin.group.pages import PageSubscriptions
from tocsin.group.scan import GroupScan, content_of
from tocsin.join.scan import JoinScan
from tocsin.language.algebra import Query
from tocsin.language.shape import Plan
from tocsin.model.columns import Index, Mask, Rows, longer
from tocsin.model.delta import Deltas
from tocsin.room import Room
from tocsin.store.plans import FlatPlans, PlanTable
from tocsin.store.step import Step

__all__ = ["RankedSubscriptions"]

_NOWHERE, _PAGES, _FIRSTS, _SCANNED = range(4)


class RankedSubscriptions:
    """Subscriptions of the shape `ranked`, by slot."""

    def __init__(self, join: Callable[[], Room] = JoinScan) -> None:
        self._plans = PlanTable(keep=True)
        self._pages = PageSubscriptions()
        self._families: dict[FirstsKey, FirstsFamily] = {}
        self._waiting: dict[int, Plan] = {}  # in no family yet
        self._scan = GroupScan(join)
        self._where: Index = np.zeros(64, np.int64)  # by slot

    def __len__(self) -> int:
        return len(self._plans)

    def has(self, slots: Index) -> Mask:
        known = slots < len(self._where)
        known[known] = self._where[slots[known]] != _NOWHERE
        return known

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        self._plans.add(slots, plans)
        top = int(slots.max(initial=-1)) + 1
        if top > len(self._where):
            self._where = longer(self._where, max(top, 2 * len(self._where)))
        if isinstance(plans, FlatPlans):
            self._add_to(_place_of(plans.query), slots, plans)
            return
        places = np.array([_place_of(plan.query) for plan in plans])
        for place in np.unique(places).tolist():
            mine = np.flatnonzero(places == place)
            self._add_to(place, slots[mine], [plans[n] for n in mine.tolist()])

    def _add_to(self, place: int, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        if place == _PAGES:
            self._pages.add(slots, plans)
        elif place == _SCANNED:
            self._scan.add(slots, plans)
        else:
            self._waiting.update((slot, self._plans[slot]) for slot in slots.tolist())
        self._where[slots] = place

    def remove(self, slots: Index) -> None:
        places = self._where[slots]
        if (pages := slots[places == _PAGES]).size:
            self._pages.remove(pages)
        if (scanned := slots[places == _SCANNED]).size:
            self._scan.remove(scanned)
        gone: dict[FirstsKey, list[int]] = {}
        for slot in slots[places == _FIRSTS].tolist():
            if self._waiting.pop(slot, None) is None:
                gone.setdefault(FirstsKey.of(self._plans[slot]), []).append(slot)
        for key, members in gone.items():
            self._families[key].remove(members)
            if not len(self._families[key]):
                del self._families[key]
        self._where[slots] = _NOWHERE
        self._plans.remove(slots)

    def _place_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        by: dict[FirstsKey, list[tuple[int, Plan]]] = {}
        for slot, plan in waiting.items():
            by.setdefault(FirstsKey.of(plan), []).append((slot, plan))
        for key, members in by.items():
            self._families.setdefault(key, FirstsFamily(key)).add(members)

    # -- answers -----------------------------------------------------------------------------------

    def deltas(self, step: Step) -> Deltas:
        self._place_waiting()
        families = [
            family.deltas(step) for key, family in self._families.items() if key.table in step.changed
        ]
        return Deltas.concat([self._pages.deltas(step), self._scan.deltas(step), *families])

    def content(self, slot: int, step: Step) -> Rows:
        return content_of(slot, self._plans[slot], step)

    # -- inspection --------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        self._place_waiting()
        return {
            "subscriptions": len(self),
            "pages": len(self._pages),
            "firsts": [family.stats() for family in self._families.values()],
            "one_by_one": len(self._scan),
        }

    def _check(self) -> None:
        self._plans._check()
        self._place_waiting()
        self._pages._check()
        self._scan._check()
        for key, family in self._families.items():
            assert family.key == key and len(family)
            family._check()
        counts = np.bincount(self._where, minlength=4)
        assert counts[_PAGES] == len(self._pages) and counts[_SCANNED] == len(self._scan)
        assert counts[_FIRSTS] == sum(map(len, self._families.values()))
        assert counts[1:].sum() == len(self)


def _place_of(query: Query) -> int:
    if len(query.tables) > 1:
        return _SCANNED
    return _FIRSTS if query.partition else _PAGES
