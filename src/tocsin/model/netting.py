"""What comes and goes at once is not told: rows of one change and one subscription that cancel.

That takes a comparison of whole rows, by codes that are equal where rows are, and a sort: of one number
where the columns fit into one.

>>> left = netted([np.array([1, 1, 1]), np.array([5, 5, 6])], np.array([-1, 1, 1], np.int8))
>>> left.tolist()  # 1, 5 went and came
[2]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index
from tocsin.model.delta import Deltas

__all__ = ["in_order", "netted", "order_of"]


def netted(columns: Sequence[Index], sign: NDArray[np.int8]) -> Index:
    """Which of the signed rows are left when equal ones of opposite sign cancel, ascending in `columns`."""
    order = order_of(columns)
    fresh = np.logical_or.reduce([column[order][1:] != column[order][:-1] for column in columns])
    begin = np.flatnonzero(np.concatenate([[True], fresh])) if len(order) else np.empty(0, np.int64)
    size = np.diff(np.append(begin, len(order)))
    total = np.add.reduceat(sign[order].astype(np.int64), begin) if len(order) else begin
    # of each run, as many rows of the sign that is left as there are more of it
    run = np.repeat(np.arange(len(begin)), size)
    mine = np.sign(total)[run] == sign[order]
    nth = np.cumsum(mine) - np.concatenate([[0], np.cumsum(mine)])[begin][run]
    return order[mine & (nth <= np.abs(total)[run])]


def order_of(columns: Sequence[NDArray[Any]]) -> Index:
    """What puts rows in the order of their columns, the first one first; equal rows stay as they are."""
    key = _one_key(columns)
    return np.lexsort(columns[::-1]) if key is None else np.argsort(key, kind="stable")


def _one_key(columns: Sequence[NDArray[Any]]) -> Index | None:
    """Columns as one number per row, in their order; None if that takes more than an int64."""
    key, width = np.zeros(len(columns[0]), np.int64), 1
    if not len(key):
        return key
    for column in columns:
        least = int(column.min())
        span = int(column.max()) - least + 1
        width *= span
        if width >= 2**63:
            return None
        key = key * span + (column - least)
    return key


def in_order(told: Deltas) -> Deltas:
    """By seq, subscription and sign: one sort of one number where that is possible."""
    if len(told) < 2:
        return told
    return told.take(order_of([told.seq, told.subscription, told.sign]))
