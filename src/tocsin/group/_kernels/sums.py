"""Counts and exact sums by group, changed touch by touch (`rank/_kernels/aggregates.py`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.rank._kernels.aggregates import (
    BIGINT,
    COLUMN,
    COUNT,
    COUNT_OF,
    FIRST,
    FUNCTION,
    SUM,
    TYPE,
    add_row,
    compute_answers,
    exceeds,
)

__all__ = ["SumChanges", "TouchedSums", "change_sums"]


class SumChanges(NamedTuple):
    """By touch its group, and where its rows begin; by row its sign."""

    group: NDArray[np.int64]
    first: NDArray[np.int64]
    sign: NDArray[np.int64]


class TouchedSums(NamedTuple):
    """Output, by item and touch: values (doubles as bits), whether there is one, and sums beyond BIGINT."""

    before: NDArray[np.int64]
    had: NDArray[np.bool_]
    after: NDArray[np.int64]
    has: NDArray[np.bool_]
    over: NDArray[np.bool_]


@kernel
def change_sums(layout, totals, values, changes, out):
    """Apply changes touch by touch; note the answers before and after each."""
    columns, items = layout
    cells, answers = totals.cells, totals.answers
    fresh = np.empty(len(items), np.int64)
    doubles = fresh.view(np.float64)
    for t in range(len(changes.group)):
        p = changes.group[t]
        for i in range(len(items)):
            out.before[i, t] = answers[p, i]
            counted = cells[p, columns[items[i, COLUMN], COUNT]] > 0
            out.had[i, t] = items[i, FUNCTION] == COUNT_OF or counted
        for r in range(changes.first[t], changes.first[t + 1]):
            add_row(layout, values, r, cells, p, changes.sign[r])
        compute_answers(columns, items, cells, p, fresh, doubles)
        for i in range(len(items)):
            c = items[i, COLUMN]
            counted = cells[p, columns[c, COUNT]] > 0
            out.has[i, t] = items[i, FUNCTION] == COUNT_OF or counted
            whole = counted and items[i, FUNCTION] == SUM and columns[c, TYPE] == BIGINT
            out.over[i, t] = whole and exceeds(cells, p, columns[c, FIRST])
            out.after[i, t] = answers[p, i] = fresh[i]
