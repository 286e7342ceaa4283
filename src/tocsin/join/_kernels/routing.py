"""Which plan is cheapest for a row? Two cells are looked up, and four sums of four products compared.

The cost of each plan is linear in what the own value tells, with factors that depend on the key alone. Both
are worked out for every cell beforehand (`book_of`), so that nothing is left for a row but to multiply:

    by key    of each plan: cost, ... per selected query, ... per scattered one, ... per root of the selected
    by value  queries selected, scattered ones among them, root of the selected

Predicted costs are corrected by what rows of their kind have cost. A kind is a plan and the magnitudes of the
joining rows and of the selected queries; its correction follows measured / predicted, slowly:

    kind      plan x log2 joining (0, 1-2, 3-6, .. ) x log2 selected (by fours)
    measured  each fourth row, of cheap ones each 16th: processor cycles; there are none but on x86, and then
              no corrections

So that no plan is shunned for what was predicted of it, each 64th row takes another one in turn, if that
is not thought to cost more than twice the best.
"""

from __future__ import annotations

import platform
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from tocsin.join._kernels.equality import (
    affected_hotspot,
    affected_join_e,
    affected_join_s,
    affected_select,
)

__all__ = [
    *("HOTSPOT", "JOIN_E", "JOIN_S", "KINDS", "PLANS", "SELECT"),
    *("Book", "Cells", "RouterPlan", "affected_dynamic", "book_of", "choose", "cycles", "each_choice"),
    "each_dynamic",
]

JOIN_E, JOIN_S, SELECT, HOTSPOT = 0, 1, 2, 3
PLANS = ("joinfirst-e", "joinfirst-s", "selectfirst", "hotspot")
KINDS = 8  # magnitudes of joining rows, and of selected queries
_MEASURED, _RARELY, _CHEAP = 4, 16, 16.0  # one of so many rows is measured; of cheap ones, in microseconds
_OTHER, _WORSE = 64, 2.0  # each so many rows another plan is tried, if not so many times worse
_SLOWLY, _FAR = 1 / 8, 8.0  # how a correction follows; how far a single row may pull it
_KIND_OF_KEY, _KIND_OF_OWN = 16, 3  # columns behind the factors; the first row tells where cells are
Numbers = NDArray[np.float64]
_HAS_CYCLES = platform.machine().lower() in ("x86_64", "amd64")


class Cells(NamedTuple):
    """An equal-width histogram: cell (value - origin) * scale, or the nearest."""

    origin: float
    scale: float
    height: NDArray[np.float64]


class Book(NamedTuple):
    """Estimates by cell, and what costs need of them. The first rows have origin, scale and last cell."""

    by_key: NDArray[np.float64]
    by_own: NDArray[np.float64]


def book_of(joining: Cells, selected: Cells, scattered: Numbers, chance: float, forms: Numbers) -> Book:
    """For every cell what `costs.basis` says, times the forms, by key and by own value.

    `joining` are rows of the other table per key, `selected` and `scattered` are by the same cells of own
    values; with `chance` a joining row lies in a query's other range."""
    each, several = joining.height, selected.height
    steps, reach = np.log1p(each), -np.expm1(-chance * each)
    by_key = _headed(joining, _KIND_OF_KEY + 1)
    for p, f in enumerate(forms):
        alone = f[0] + f[1] * each + f[2] * steps + f[8] * reach + f[9] * np.minimum(1.0, 4 * reach)
        per_selected = f[3] + f[4] * steps + f[7] * chance * each + f[10] * reach
        per_scattered = f[5] + f[6] * steps - f[10] * reach
        by_key[1:, 4 * p : 4 * p + 4] = np.stack([alone, per_selected, per_scattered, f[11] * each], axis=1)
    by_key[1:, _KIND_OF_KEY] = KINDS * np.minimum(KINDS - 1, np.floor(steps / np.log(2)))
    by_own = _headed(selected, _KIND_OF_OWN + 1)
    magnitude = np.minimum(KINDS - 1, np.floor(np.log2(1 + several) / 2))
    by_own[1:] = np.stack([several, np.minimum(scattered, several), np.sqrt(several), magnitude], axis=1)
    return Book(by_key, by_own)


def _headed(cells: Cells, columns: int) -> Numbers:
    out = np.zeros((1 + len(cells.height), columns))
    out[0, :3] = cells.origin, cells.scale, len(cells.height) - 1
    return out


class RouterPlan(NamedTuple):
    join_e: Any
    join_s: Any
    select: Any
    hotspot: Any
    by_key: NDArray[np.float64]  # see `Book`
    by_own: NDArray[np.float64]
    chosen: NDArray[np.int64]  # by plan: how often
    learned: NDArray[np.float64]  # by plan and kind: measured / predicted
    speed: float  # cycles per microsecond


@njit(cache=True, nogil=True, inline="always")
def _cell(table, value):
    """The row of a table that tells of a value."""
    return 1 + np.int64(min(max((value - table[0, 0]) * table[0, 1], 0.0), table[0, 2]))


@intrinsic
def _counter(typing: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not _HAS_CYCLES:
            return ir.Constant(ir.IntType(64), 0)
        kind = ir.FunctionType(ir.IntType(64), [])
        read = cgutils.get_or_insert_function(builder.module, kind, "llvm.readcyclecounter")
        return builder.call(read, [])

    return types.int64(), code


@njit(cache=True, nogil=True)
def cycles():
    """What the processor's counter says."""
    return _counter()


@njit(cache=True, nogil=True, inline="always")
def choose(by_key, by_own, chosen, learned, key, own):
    """The plan to take for a row with this key and value; its predicted cost, 0 if not measured; its kind.

    What it reads is in arrays, not in a tuple: what is taken out of a tuple counts references, at every row.
    """
    k, v = _cell(by_key, key), _cell(by_own, own)
    selected, scattered, root = by_own[v, 0], by_own[v, 1], by_own[v, 2]
    kind = np.int64(by_key[k, _KIND_OF_KEY] + by_own[v, _KIND_OF_OWN])
    rows = chosen[0] + chosen[1] + chosen[2] + chosen[3]
    other = (rows // _OTHER) % len(PLANS) if rows % _OTHER == 0 else -1
    best, least, predicted = 0, np.inf, 0.0
    tried, cost_tried = np.inf, 0.0
    for p in range(len(PLANS)):
        cost = by_key[k, 4 * p] + by_key[k, 4 * p + 1] * selected
        cost += by_key[k, 4 * p + 2] * scattered + by_key[k, 4 * p + 3] * root
        corrected = cost * learned[p, kind]
        if p == other:
            tried, cost_tried = corrected, cost
        if corrected < least:
            best, least, predicted = p, corrected, cost
    if tried < _WORSE * least:
        best, predicted = other, cost_tried
    chosen[best] += 1
    if rows % _MEASURED != 0 or (least < _CHEAP and rows % _RARELY != 0):
        predicted = 0.0
    return best, predicted, kind


@njit(cache=True, nogil=True, inline="always")
def _learn(learned, speed, best, predicted, kind, begun):
    """Correct what is predicted for rows of a kind by what one has cost."""
    if predicted > 0.0:
        spent = _counter() - begun
        old = learned[best, kind]
        seen = spent / (speed * predicted)
        if spent > 0:
            learned[best, kind] = old + _SLOWLY * (min(max(seen, old / _FAR), old * _FAR) - old)


@njit(cache=True, nogil=True, inline="always")
def affected_dynamic(plan, order, key, own, out):
    best, predicted, kind = choose(plan.by_key, plan.by_own, plan.chosen, plan.learned, key, own)
    begun = _counter() if predicted > 0.0 else 0
    if best == JOIN_E:
        count = affected_join_e(plan.join_e, order, key, own, out)
    elif best == JOIN_S:
        count = affected_join_s(plan.join_s, order, key, own, out)
    elif best == SELECT:
        count = affected_select(plan.select, order, key, own, out)
    else:
        count = affected_hotspot(plan.hotspot, order, key, own, out)
    _learn(plan.learned, plan.speed, best, predicted, kind, begun)
    return count


@njit(cache=True, nogil=True)
def each_dynamic(plan, order, keys, owns, out, counts):
    """As `affected_dynamic`, but plans are taken out of the tuple once: that counts references, half a µs."""
    join_e, join_s, select, hotspot = plan.join_e, plan.join_s, plan.select, plan.hotspot
    by_key, by_own, chosen = plan.by_key, plan.by_own, plan.chosen
    learned, speed = plan.learned, plan.speed
    for i in range(len(keys)):
        best, predicted, kind = choose(by_key, by_own, chosen, learned, keys[i], owns[i])
        begun = _counter() if predicted > 0.0 else 0
        if best == SELECT:
            counts[i] = affected_select(select, order, keys[i], owns[i], out)
        elif best == HOTSPOT:
            counts[i] = affected_hotspot(hotspot, order, keys[i], owns[i], out)
        elif best == JOIN_E:
            counts[i] = affected_join_e(join_e, order, keys[i], owns[i], out)
        else:
            counts[i] = affected_join_s(join_s, order, keys[i], owns[i], out)
        _learn(learned, speed, best, predicted, kind, begun)


@njit(cache=True, nogil=True)
def each_choice(plan, keys, owns, choices):
    """Decide only: what deciding costs, and which plans are chosen."""
    by_key, by_own, chosen, learned = plan.by_key, plan.by_own, plan.chosen, plan.learned
    for i in range(len(keys)):
        choices[i] = choose(by_key, by_own, chosen, learned, keys[i], owns[i])[0]
        chosen[choices[i]] -= 1
