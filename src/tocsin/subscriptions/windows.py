"""Windows that subscriptions use: begun with the first user, dropped with the last.

A plan over windows is handed to its room as one over the tables of their events (`store/windows.py`).
Subscriptions with equal windows share one table. Each slot has the number of a *set* of windows, those of its
query, so that many subscriptions are counted at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Query
from tocsin.language.shape import Plan
from tocsin.language.shape import plan as plan_of
from tocsin.language.windows import WindowSpec, over_windows, windows_of
from tocsin.model.columns import Index, longer
from tocsin.store.database import Database
from tocsin.store.plans import FlatPlans, LazyPlans
from tocsin.store.step import Step

__all__ = ["WindowUse"]

_Windows = tuple[WindowSpec, ...]


class WindowUse:
    """The windows of each slot, and how many slots use each."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sets: list[_Windows] = [()]  # by number; 0: none
        self._numbers: dict[_Windows, int] = {(): 0}
        self._number: NDArray[np.int32] = np.zeros(0, np.int32)  # by slot
        self._users: Counter[WindowSpec] = Counter()

    # -- plans -------------------------------------------------------------------------------------

    def plan(self, plan: Plan) -> Plan:
        """The plan over the tables of its windows' events."""
        if plan.query.options.window is None:
            return plan
        query = self._query(plan.query)
        return plan_of(query) if query.options.absent is not None else replace(plan, query=query)

    def _query(self, query: Query) -> Query:
        return over_windows(query, windows_of(query, self._database.catalog))

    def _set(self, query: Query) -> _Windows:
        if query.options.window is None:
            return ()
        found = windows_of(query, self._database.catalog)
        return tuple(dict.fromkeys(window for window in found if window is not None))

    # -- users -------------------------------------------------------------------------------------

    def enter(self, slots: Index, plans: Sequence[Plan], clock: Callable[[], datetime]) -> Sequence[Plan]:
        """Count plans in under their slots, and begin the windows that are new; the plans for rooms."""
        sets = [self._set(plan.query) for plan in plans]
        if not any(sets):
            return plans
        for number, windows in enumerate(sets):
            self._count(slots[number : number + 1], windows, clock)
        return [self.plan(plan) for plan in plans]

    def enter_bulk(self, slots: Index, plans: FlatPlans, clock: Callable[[], datetime]) -> FlatPlans:
        """The same for the plans of a template."""
        windows = self._set(plans.query)
        if not windows:
            return plans
        self._count(slots, windows, clock)
        make = plans.lazy.make
        lazy = LazyPlans(lambda row: self.plan(make(row)), plans.lazy.rows)
        return replace(plans, query=self._query(plans.query), lazy=lazy)

    def leave(self, slots: Index) -> bool:
        """Count slots out; drop windows without users. Whether any was dropped."""
        slots = slots[slots < len(self._number)]
        numbers = self._number[slots]
        if not numbers.any():
            return False
        self._number[slots] = 0
        for number, count in zip(*np.unique(numbers, return_counts=True), strict=True):
            for window in self._sets[number]:
                self._users[window] -= int(count)
        unused = [window for window, users in self._users.items() if not users]
        for window in unused:
            del self._users[window]
            self._database.end_window(window)
        return bool(unused)

    def lose(self, slot: int, step: Step) -> bool:
        """Whether events leave a window of this slot in a step."""
        windows = self._sets[self._number[slot]] if slot < len(self._number) else ()
        changes = (step.changed.get(window.table) for window in windows)
        return any(changed is not None and bool(np.any(changed.old >= 0)) for changed in changes)

    def _count(self, slots: Index, windows: _Windows, clock: Callable[[], datetime]) -> None:
        if not windows or not len(slots):
            return
        for window in windows:
            if window not in self._users:
                self._database.begin_window(window, clock())
            self._users[window] += len(slots)
        number = self._numbers.setdefault(windows, len(self._sets))
        if number == len(self._sets):
            self._sets.append(windows)
        top = int(slots.max()) + 1
        if top > len(self._number):
            self._number = longer(self._number, max(64, top, 2 * len(self._number)))
        self._number[slots] = number

    def _check(self) -> None:
        """Users are those of the slots, and every window in use is a table."""
        found: Counter[WindowSpec] = Counter()
        for number, count in zip(*np.unique(self._number, return_counts=True), strict=True):
            for window in self._sets[number]:
                found[window] += int(count)
        assert found == self._users
        assert {window.table for window in self._users} == set(self._database.windows.stores)
