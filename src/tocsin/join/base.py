"""The protocol of join rooms.

A join index holds planned joins (equality, band, multi-way) under dense slots. Given a step it
tells every joined row that comes or goes, for every subscription, with its sequence number;
given the database it tells a subscription's whole content. Every subclass in this folder is
found by the contract tests by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Rows
from tocsin.model.delta import Deltas
from tocsin.store.step import Step

__all__ = ["JoinIndex"]


class JoinIndex(ABC):
    """Joins by slot."""

    shapes: ClassVar[tuple[Shape, ...]] = (Shape.JOIN, Shape.BAND, Shape.MULTIWAY)

    @abstractmethod
    def add(self, slots: Sequence[int], plans: Sequence[Plan]) -> None:
        """Take joins in; a slot must be free."""

    @abstractmethod
    def remove(self, slots: Sequence[int]) -> None:
        """Let joins go; a slot must be in use."""

    @abstractmethod
    def deltas(self, step: Step) -> Deltas:
        """How answers change in a step, consolidated; `subscription` holds slots."""

    @abstractmethod
    def content(self, slot: int, step: Step) -> Rows:
        """The whole answer over the database as it is."""

    @abstractmethod
    def supports(self, plan: Plan) -> bool:
        """Whether `add` would take it."""

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Counts worth looking at; `subscriptions` at least."""

    @abstractmethod
    def _check(self) -> None:
        """Assert the invariants."""
