"""What the join and rank rooms have in common: planned queries by slot, deltas of a step, content.

`Room` is the protocol. `Plans` is its plain half: the plans by slot, so that a scan has only to say
what the deltas and the content of each are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Rows
from tocsin.model.delta import Deltas
from tocsin.store.plans import FlatPlans, PlanTable
from tocsin.store.step import Step

__all__ = ["Plans", "Room"]


class Room(ABC):
    """Queries of some shapes under dense slots."""

    shapes: ClassVar[tuple[Shape, ...]]

    @abstractmethod
    def add(self, slots: Sequence[int], plans: Sequence[Plan]) -> None:
        """Take queries in; a slot must be free."""

    def add_flat(self, slots: Index, plans: FlatPlans) -> None:
        """Take the queries of a template in, by column if the room can do that."""
        self.add(slots.tolist(), [plans.plan(n) for n in range(len(plans))])

    @abstractmethod
    def remove(self, slots: Sequence[int]) -> None:
        """Let queries go; a slot must be in use."""

    @abstractmethod
    def deltas(self, step: Step) -> Deltas:
        """How answers change in a step, consolidated; `subscription` holds slots."""

    @abstractmethod
    def content(self, slot: int, step: Step) -> Rows:
        """The whole answer over the database as it is."""

    def contents(self, slots: Index, step: Step) -> Deltas:
        """The answers of several as +1; `subscription` is the number of the slot among them, ascending."""
        parts = []
        for number, slot in enumerate(slots.tolist()):
            rows = self.content(slot, step)
            parts.append(Deltas.of(np.zeros(len(rows), np.int64), number, 1, rows, np.arange(len(rows))))
        return Deltas.concat(parts)

    @abstractmethod
    def supports(self, plan: Plan) -> bool:
        """Whether `add` would take it."""

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Counts worth looking at; `subscriptions` at least."""

    @abstractmethod
    def _check(self) -> None:
        """Assert the invariants."""


class Plans(Room):
    """Plans by slot, for rooms that work out each by itself; those of a template are made at first use."""

    def __init__(self) -> None:
        self._plans = PlanTable(keep=True)

    def add(self, slots: Sequence[int], plans: Sequence[Plan]) -> None:
        self._plans.add(np.array(slots, np.int64), plans)

    def add_flat(self, slots: Index, plans: FlatPlans) -> None:
        self._plans.add(slots, plans)

    def remove(self, slots: Sequence[int]) -> None:
        self._plans.remove(np.array(slots, np.int64))

    def supports(self, plan: Plan) -> bool:
        return plan.shape in self.shapes

    def stats(self) -> dict[str, Any]:
        return {"index": "scan", "subscriptions": len(self._plans)}

    def _check(self) -> None:
        self._plans._check()
        assert all(plan.shape in self.shapes for plan in self._plans.values())
