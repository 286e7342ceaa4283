"""The rows a subscription selects, through all versions of a step.

`History` is the part of a table that one subscription sees: the slots that pass its filter and
live at some time of the step, and the *moments* at which that set changes. Moment 0 is the
state before the step, moment i the state after the change at `moments[i]`.

    slot      born  died        alive at moment:  0 (-1)   1 (p=3)   2 (p=8)
    4         -1    3                              yes      -         -
    9          3    forever                        -        yes       yes
    2         -1    8                              yes      yes       -
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import OrderKey
from tocsin.language.shape import Plan
from tocsin.model.columns import Index, Mask, Rows
from tocsin.store.step import Step
from tocsin.store.tables import FOREVER

__all__ = ["History", "ranking"]

_CELLS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class History:
    """Selected slots, when they live, and the moments at which something changes."""

    rows: Rows
    slot: Index
    born: Index
    died: Index
    moments: Index

    @classmethod
    def of(cls, plan: Plan, step: Step) -> History:
        name = plan.query.tables[0].name
        store = step.tables[name]
        slot = np.flatnonzero(step.selected(name, plan.filters[0]) & store.present())
        born, died = store.born[slot], store.died[slot]
        ends = np.concatenate([born[born >= 0], died[died < FOREVER]])
        return cls(store.rows, slot, born, died, np.concatenate([[-1], np.unique(ends)]).astype(np.int64))

    def take(self, index: Index | Mask) -> History:
        """The same moments, fewer rows or in another order."""
        return History(self.rows, self.slot[index], self.born[index], self.died[index], self.moments)

    @property
    def quiet(self) -> bool:
        """Whether the step changes nothing that this subscription selects."""
        return len(self.moments) == 1

    def alive(self) -> Iterator[tuple[int, Mask]]:
        """The matrix of moments x rows, in chunks of bounded size: (first moment, part)."""
        chunk = max(1, _CELLS_AT_ONCE // max(1, len(self.slot)))
        for start in range(0, len(self.moments), chunk):
            at = self.moments[start : start + chunk, None]
            yield start, (self.born <= at) & (at < self.died)


def ranking(history: History, order: tuple[OrderKey, ...], key: tuple[str, ...]) -> Index:
    """Positions in `history` in order: by the order keys, ties by primary key."""
    columns: list[NDArray[Any]] = [
        history.rows.vectors(name)[0].take(history.slot).order_codes() for name in reversed(key)
    ]
    for part in reversed(order):
        vector = history.rows.vectors(part.column.name)[0].take(history.slot)
        codes = np.where(vector.valid, vector.order_codes(), 0)
        columns.append(~codes if part.descending else codes)  # ~c = -c - 1 turns the order round
        columns.append(vector.valid if part.nulls_first else ~vector.valid)
    return np.lexsort(columns) if columns else np.arange(len(history.slot))
