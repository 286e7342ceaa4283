"""The protocol of matching indexes: five methods and a check.

An index holds filters under dense 32-bit slots and answers, for a batch of rows, every pair
(slot, row) that matches, each once, packed into one int64:

    packed = slot << 32 | row

Filters come as flat arrays (`predicate/flat.py`), so that a million are added without a loop. The contract
tests discover every subclass in this folder and in `published/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from tocsin.match._kernels.ordering import rows_and_slots, short_keys
from tocsin.model.columns import Index, Mask, Rows
from tocsin.predicate.flat import FlatFilters

__all__ = ["MatchIndex", "in_order", "pack", "unpack"]

_ROW_BITS = 7  # of the rows that are sorted together: row and slot then fit into 32 bits


def pack(slot: Index | int, row: Index) -> Index:
    """Pairs as single integers.

    >>> [a.tolist() for a in unpack(pack(3, np.array([0, 2])))]
    [[3, 3], [0, 2]]
    """
    return (np.asarray(slot, np.int64) << 32) | row


def unpack(packed: Index) -> tuple[Index, Index]:
    return packed >> 32, packed & 0xFFFFFFFF


def in_order(packed: Index, rows: int) -> tuple[Index, Index]:
    """Rows and slots of packed pairs, by row, then slot; there are `rows` rows.

    >>> [a.tolist() for a in in_order(pack(np.array([7, 3, 5]), np.array([1, 1, 0])), 2)]
    [[0, 1, 1], [5, 3, 7]]
    """
    slot_bits = int(packed.max(initial=0) >> 32).bit_length()
    row_bits = min(32 - slot_bits, _ROW_BITS)
    start = np.zeros((rows >> row_bits) + 3, np.int64)
    keys = short_keys(packed, slot_bits, row_bits, start)
    for first, last in pairwise(start[:-1].tolist()):
        keys[first:last].sort()
    row, slot = rows_and_slots(keys, slot_bits, row_bits, start)
    return row, slot


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
