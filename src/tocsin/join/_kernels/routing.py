"""Which plan is cheapest for a row? Estimates by looking up cells, costs by four linear forms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tocsin.join._kernels.equality import (
    affected_hotspot,
    affected_join_e,
    affected_join_s,
    affected_select,
)

__all__ = [
    *("HOTSPOT", "JOIN_E", "JOIN_S", "PLANS", "SELECT"),
    *("Cells", "RouterPlan", "affected_dynamic", "choose", "count_key", "each_choice", "each_dynamic"),
]

JOIN_E, JOIN_S, SELECT, HOTSPOT = 0, 1, 2, 3
PLANS = ("joinfirst-e", "joinfirst-s", "selectfirst", "hotspot")


class Cells(NamedTuple):
    """An equal-width histogram: cell (value - origin) * scale, or the nearest."""

    origin: float
    scale: float
    height: NDArray[np.float64]


class RouterPlan(NamedTuple):
    join_e: Any
    join_s: Any
    select: Any
    hotspot: Any
    joining: Cells  # rows of the other table with a key
    keys: NDArray[np.float64]  # by cell of `joining`: keys in it
    selected: Cells  # queries whose own range holds a value
    scattered: Cells  # ... of the scattered ones
    chance: float  # that a joining row lies in a query's other range
    form: NDArray[np.float64]  # by plan: its cost as a linear form, see `costs.basis`
    chosen: NDArray[np.int64]  # by plan: how often


@njit(cache=True, nogil=True, inline="always")
def _cell(cells, value):
    at = (value - cells.origin) * cells.scale
    return np.int64(min(max(at, 0.0), len(cells.height) - 1.0))


@njit(cache=True, nogil=True)
def count_key(plan, key, by):
    """A row of the other table comes (1) or goes (-1)."""
    cell = _cell(plan.joining, key)
    plan.joining.height[cell] = max(0.0, plan.joining.height[cell] + by)


@njit(cache=True, nogil=True, inline="always")
def choose(plan, key, own):
    """The plan of the least predicted cost, for a row with this key and value."""
    cell = _cell(plan.joining, key)
    joining = plan.joining.height[cell] / max(plan.keys[cell], 1.0)
    selected = plan.selected.height[_cell(plan.selected, own)]
    cold = plan.scattered.height[_cell(plan.scattered, own)]
    steps, reach = np.log1p(joining), 1.0 - np.exp(-plan.chance * joining)
    best, least = 0, np.inf
    for p in range(len(PLANS)):
        form = plan.form[p]
        cost = form[0] + form[1] * joining + form[2] * steps
        cost += (form[3] + form[4] * steps) * selected + (form[5] + form[6] * steps) * cold
        cost += form[7] * plan.chance * joining * selected + form[8] * reach
        cost += form[9] * min(1.0, 4 * reach) + form[10] * max(0.0, selected - cold) * reach
        cost += form[11] * joining * np.sqrt(selected)
        if cost < least:
            best, least = p, cost
    return best


@njit(cache=True, nogil=True, inline="always")
def affected_dynamic(plan, order, key, own, out):
    best = choose(plan, key, own)
    plan.chosen[best] += 1
    if best == JOIN_E:
        return affected_join_e(plan.join_e, order, key, own, out)
    if best == JOIN_S:
        return affected_join_s(plan.join_s, order, key, own, out)
    if best == SELECT:
        return affected_select(plan.select, order, key, own, out)
    return affected_hotspot(plan.hotspot, order, key, own, out)


@njit(cache=True, nogil=True)
def each_dynamic(plan, order, keys, owns, out, counts):
    """As `affected_dynamic`, but plans are taken out of the tuple once: that counts references, half a µs."""
    join_e, join_s, select, hotspot = plan.join_e, plan.join_s, plan.select, plan.hotspot
    for i in range(len(keys)):
        best = choose(plan, keys[i], owns[i])
        plan.chosen[best] += 1
        if best == SELECT:
            counts[i] = affected_select(select, order, keys[i], owns[i], out)
        elif best == HOTSPOT:
            counts[i] = affected_hotspot(hotspot, order, keys[i], owns[i], out)
        elif best == JOIN_E:
            counts[i] = affected_join_e(join_e, order, keys[i], owns[i], out)
        else:
            counts[i] = affected_join_s(join_s, order, keys[i], owns[i], out)


@njit(cache=True, nogil=True)
def each_choice(plan, keys, owns, choices):
    """Decide only: what deciding costs, and which plans are chosen."""
    for i in range(len(keys)):
        choices[i] = choose(plan, keys[i], owns[i])
