"""Which plan is cheapest for a row? Estimates by looking up cells, costs by four linear forms.

Predicted costs are corrected by what rows of their kind have cost. A kind is a plan and the magnitudes of the
joining rows and of the selected queries; its correction follows measured / predicted, slowly:

    kind      plan x log2 joining (0, 1-2, 3-6, .. ) x log2 selected (by fours)
    measured  each fourth row: processor cycles; there are none but on x86, and then no corrections

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
    *("Cells", "RouterPlan", "affected_dynamic", "book_of", "choose", "cycles", "each_choice"),
    "each_dynamic",
]

JOIN_E, JOIN_S, SELECT, HOTSPOT = 0, 1, 2, 3
PLANS = ("joinfirst-e", "joinfirst-s", "selectfirst", "hotspot")
KINDS = 8  # magnitudes of joining rows, and of selected queries
_MEASURED = 4  # one of so many rows is measured
_OTHER, _WORSE = 64, 2.0  # each so many rows another plan is tried, if not so many times worse
_SLOWLY, _FAR = 1 / 8, 8.0  # how a correction follows; how far a single row may pull it
_HEAD = 3  # of a row of the book: origin, scale, last cell; heights follow
_HAS_CYCLES = platform.machine().lower() in ("x86_64", "amd64")


class Cells(NamedTuple):
    """An equal-width histogram: cell (value - origin) * scale, or the nearest."""

    origin: float
    scale: float
    height: NDArray[np.float64]


def book_of(
    joining: Cells, keys: NDArray[np.float64], selected: Cells, scattered: Cells, chance: float
) -> NDArray[np.float64]:
    """Estimates as one array, and what costs need of them, worked out for every cell.

    By cell of keys: rows of the other table that join, log (1 + these), chance that one of them lies in a
    query's other range (`chance` is that of a single one). By cell of own values: queries selected, their
    square root and magnitude. By cell of own values: scattered ones among them."""
    each = joining.height / np.maximum(keys, 1.0)
    several = selected.height
    magnitude = np.minimum(KINDS - 1, np.floor(np.log2(1 + several) / 2))
    rows = (
        (joining, (each, np.log1p(each), -np.expm1(-chance * each))),
        (selected, (several, np.sqrt(several), magnitude)),
        (scattered, (scattered.height,)),
    )
    book = np.zeros((8, _HEAD + max(len(cells.height) for cells, _ in rows)))
    at = 0
    for cells, parts in rows:
        for part in parts:
            book[at, :_HEAD] = cells.origin, cells.scale, len(part) - 1
            book[at, _HEAD : _HEAD + len(part)] = part
            at += 1
    book[at, 0] = chance
    return book


class RouterPlan(NamedTuple):
    join_e: Any
    join_s: Any
    select: Any
    hotspot: Any
    book: NDArray[np.float64]  # what is estimated, see `book_of`
    form: NDArray[np.float64]  # by plan: its cost as a linear form, see `costs.basis`
    chosen: NDArray[np.int64]  # by plan: how often
    learned: NDArray[np.float64]  # by plan and kind: measured / predicted
    speed: float  # cycles per microsecond


@njit(cache=True, nogil=True, inline="always")
def _cell(book, row, value):
    """Where a row of the book tells of a value."""
    at = (value - book[row, 0]) * book[row, 1]
    return _HEAD + np.int64(min(max(at, 0.0), book[row, 2]))


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
def choose(book, form, chosen, learned, key, own):
    """The plan to take for a row with this key and value; its predicted cost, 0 if not measured; its kind.

    What it reads is in arrays, not in a tuple: what is taken out of a tuple counts references, at every row.
    """
    at_key, at_own, chance = _cell(book, 0, key), _cell(book, 3, own), book[7, 0]
    joining, steps, reach = book[0, at_key], book[1, at_key], book[2, at_key]
    selected, root, cold = book[3, at_own], book[4, at_own], book[6, _cell(book, 6, own)]
    kind = KINDS * min(KINDS - 1, np.int64(steps * 1.4426950408889634)) + np.int64(book[5, at_own])
    rows = chosen[0] + chosen[1] + chosen[2] + chosen[3]
    other = (rows // _OTHER) % len(PLANS) if rows % _OTHER == 0 else -1
    best, least, predicted = 0, np.inf, 0.0
    tried, cost_tried = np.inf, 0.0
    hits, overlap = chance * joining * selected, joining * root
    most, hot = min(1.0, 4 * reach), max(0.0, selected - cold) * reach
    for p in range(len(PLANS)):
        cost = form[p, 0] + form[p, 1] * joining + form[p, 2] * steps
        cost += (form[p, 3] + form[p, 4] * steps) * selected + (form[p, 5] + form[p, 6] * steps) * cold
        cost += form[p, 7] * hits + form[p, 8] * reach + form[p, 9] * most + form[p, 10] * hot
        cost += form[p, 11] * overlap
        corrected = cost * learned[p, kind]
        if p == other:
            tried, cost_tried = corrected, cost
        if corrected < least:
            best, least, predicted = p, corrected, cost
    if tried < _WORSE * least:
        best, predicted = other, cost_tried
    chosen[best] += 1
    return best, predicted if rows % _MEASURED == 0 else 0.0, kind


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
    best, predicted, kind = choose(plan.book, plan.form, plan.chosen, plan.learned, key, own)
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
    book, form, chosen, learned, speed = plan.book, plan.form, plan.chosen, plan.learned, plan.speed
    for i in range(len(keys)):
        best, predicted, kind = choose(book, form, chosen, learned, keys[i], owns[i])
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
    book, form, chosen, learned = plan.book, plan.form, plan.chosen, plan.learned
    for i in range(len(keys)):
        choices[i] = choose(book, form, chosen, learned, keys[i], owns[i])[0]
        chosen[choices[i]] -= 1
