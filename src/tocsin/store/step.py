"""A step: one atomic batch of changes, as the rooms see it.

Positions number the changes of the step in order of seq, across all its tables. Where events leave a
window, several of them have one seq (`windows.py`), and `settled` consolidates what they emit. Each
table of the database carries the versions of its rows in the step (`tables.py`). Whatever several
subscriptions need in one step (facts about a table's rows, a table ordered by a join key) is
computed once and kept in `memo`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from tocsin.language.rewrite import NormalForm
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Mask
from tocsin.model.delta import Deltas
from tocsin.predicate.evaluate import Facts
from tocsin.store.tables import Changed, TableStore

__all__ = ["Step"]

T = TypeVar("T")


@dataclass
class Step:
    """Changes staged over the database; without changes, the database as it is."""

    tables: Mapping[str, TableStore]
    seq: Index = field(default_factory=lambda: np.empty(0, np.int64))  # by position
    changed: Mapping[str, Changed] = field(default_factory=dict)
    events: Mapping[str, ChangeBatch] = field(default_factory=dict)  # by stream, with their seqs
    memo: dict[Any, Any] = field(default_factory=dict)
    shared: bool = False  # may several positions have one seq?
    now: int = 0  # the engine's clock, in microseconds since 1970

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """The result of `make`, computed once per step."""
        if key not in self.memo:
            self.memo[key] = make()
        found: T = self.memo[key]
        return found

    def settled(self, deltas: Deltas) -> Deltas:
        """Deltas that are consolidated for each position, consolidated for each seq."""
        return deltas.consolidate() if self.shared else deltas

    def facts(self, table: str) -> Facts:
        """Facts about all slots of a table."""
        return self.once(("facts", table), lambda: Facts(self.tables[table].rows))

    def selected(self, table: str, filter: NormalForm) -> Mask:
        """Slots of a table that pass a filter."""
        return self.once(("selected", table, filter), lambda: self.facts(table).matches(filter))
