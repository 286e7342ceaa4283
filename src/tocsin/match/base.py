"""The protocol of matching indexes: five methods and a check.

An index holds filters under dense 32-bit slots and answers, for a batch of rows, every pair
(slot, row) that matches, each once, packed into one int64:

    packed = slot << 32 | row

Every subclass in this folder is found by the contract tests by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from tocsin.language.rewrite import NormalForm
from tocsin.model.columns import Index, Rows

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

    @abstractmethod
    def add(self, slots: Sequence[int], filters: Sequence[NormalForm]) -> None:
        """Take filters in; a slot must be free."""

    @abstractmethod
    def remove(self, slots: Sequence[int]) -> None:
        """Let filters go; a slot must be in use."""

    @abstractmethod
    def match(self, rows: Rows) -> Index:
        """Every matching (slot, row), packed, in any order, each once."""

    @abstractmethod
    def supports(self, filter: NormalForm) -> bool:
        """Whether `add` would take it."""

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Counts worth looking at; `subscriptions` at least."""

    @abstractmethod
    def _check(self) -> None:
        """Assert the invariants."""
