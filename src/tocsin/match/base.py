"""The protocol of matching indexes: five methods and a check.

An index holds filters under dense 32-bit slots and answers, for a batch of rows, every pair
(slot, row) that matches, each once, packed into one int64:

    packed = slot << 32 | row

Filters come as flat arrays (`predicate/flat.py`), so that a million are added without a loop. The contract
tests discover every subclass in this folder and in `published/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tocsin.model.columns import Index, Mask, Rows
from tocsin.model.schema import Type
from tocsin.predicate.flat import FlatFilters
from tocsin.predicate.plain import PlainFilter

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
    takes_plain: ClassVar[bool] = False  # whether there is an `add_plain`
    unsupported: ClassVar[str] = ""  # for messages: the conditions that `supports` rejects

    @property
    def expressions(self) -> Sequence[str]:
        """The attributes of filters that expressions compute: rows must have them already."""
        return ()

    @abstractmethod
    def add(self, slots: Index, filters: FlatFilters) -> None:
        """Add filters, the n-th under the n-th slot; a slot must be free."""

    def add_plain(self, slot: int, filter: PlainFilter) -> None:
        """Add one plain filter under a free slot; only called if `takes_plain`."""
        raise AssertionError(f"{type(self).__name__} takes no plain filters")

    @abstractmethod
    def remove(self, slots: Index) -> None:
        """Remove filters; a slot must be in use."""

    @abstractmethod
    def match(self, rows: Rows) -> Index:
        """Every matching (slot, row), packed, in any order, each once."""

    def match_one(self, event: dict[str, Any], types: Mapping[str, Type] | None = None) -> Index | None:
        """Slots that match one event, ascending, valid until the next match; None if it must be a batch.

        `types`: of declared columns, the same object for all events of a stream; None if it is open.
        """
        return None

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
