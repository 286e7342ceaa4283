"""The protocol of matching indexes: five methods and a check.

An index holds filters under dense 32-bit slots and answers, for a batch of rows, every pair
(slot, row) that matches, each once, packed into one int64:

    packed = slot << 32 | row

Filters come as flat arrays (`predicate/flat.py`), so that a million are added without a loop. The contract
tests discover every subclass in this folder and in `published/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from tocsin.model.columns import Index, Mask, Rows
from tocsin.predicate.flat import FlatFilters

__all__ = ["MatchIndex", "pack", "unpack"]


def pack(slot: Index | int, row: Index) -> Index:
    """Pairs as single integers.

    >>> [a.tolist() for a in unpack(pack(3, np.array([0, 2])))]
    [[3, 3], [0, 2]]
    """
    return (np.asarray(slot, np.int64) << 32) | row


def unpack(packed: Index) -> tuple[Index, Index]:
    return packed >> 32, packed & 0xFFFFFFFF


class MatchIndex(ABC):
    """Filters by slot."""

    takes_deferred: ClassVar[bool] = False  # whether `add` and `supports` accept `DeferredFilters` too
    unsupported: ClassVar[str] = ""  # for messages: the conditions that `supports` rejects

    @abstractmethod
    def add(self, slots: Index, filters: FlatFilters) -> None:
        """Add filters, the n-th under the n-th slot; a slot must be free."""

    @abstractmethod
    def remove(self, slots: Index) -> None:
        """Remove filters; a slot must be in use."""

    @abstractmethod
    def match(self, rows: Rows) -> Index:
        """Every matching (slot, row), packed, in any order, each once."""

    @abstractmethod
    def supports(self, filters: FlatFilters) -> Mask:
        """Which of the filters `add` would accept."""

    def wait(self) -> None:  # noqa: B027
        """Wait until nothing is being built in the background: for measurements and for saving."""

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Counts worth looking at; `index`, `subscriptions` and `bytes` at least."""

    @abstractmethod
    def _check(self) -> None:
        """Assert the invariants."""
