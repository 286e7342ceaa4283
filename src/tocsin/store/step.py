"""A step: one atomic batch of changes, as the rooms see it.

Positions number the changes of the step in order of seq, across all its tables. Each table of
the database carries the versions that the step passes through (`tables.py`). What several
subscriptions of one step need alike (facts about a table's rows, a table ordered by a join
key) is worked out once and kept in `memo`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from tocsin.language.rewrite import NormalForm
from tocsin.model.columns import Index, Mask, Rows
from tocsin.predicate.evaluate import Facts
from tocsin.store.tables import Changed, TableStore

__all__ = ["Events", "Step"]

T = TypeVar("T")


@dataclass(frozen=True)
class Events:
    """Events of a stream and their positions."""

    position: Index
    rows: Rows


@dataclass
class Step:
    """The changes of one batch over the database; without changes, just the database as it is."""

    tables: Mapping[str, TableStore]
    seq: Index = field(default_factory=lambda: np.empty(0, np.int64))  # by position
    changed: Mapping[str, Changed] = field(default_factory=dict)
    events: Mapping[str, Events] = field(default_factory=dict)
    memo: dict[Any, Any] = field(default_factory=dict)

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` gives, worked out once per step."""
        if key not in self.memo:
            self.memo[key] = make()
        found: T = self.memo[key]
        return found

    def facts(self, table: str) -> Facts:
        """Facts about all slots of a table."""
        return self.once(("facts", table), lambda: Facts(self.tables[table].rows))

    def selected(self, table: str, filter: NormalForm) -> Mask:
        """Slots of a table that pass a filter."""
        return self.once(("selected", table, filter), lambda: self.facts(table).matches(filter))
