"""Which members of a family a change of a group concerns: binary searches among their sorted thresholds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel

__all__ = ["GroupChanges", "Thresholds", "probe"]

_LEAST, _GREATEST = np.int64(-(2**63)), np.int64(2**63 - 1)


class Thresholds(NamedTuple):
    """Members in order of (segment, low end of the first interval).

    `low` and `high` are by interval and member; `by_high` are the members in order of (segment, high end).
    `reach` is by segment the most that a first interval's high end is above its low one.
    """

    start: NDArray[np.int64]  # by segment
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    by_high: NDArray[np.int64]
    reach: NDArray[np.int64]


class GroupChanges(NamedTuple):
    """By touch: its segment (-1: none), whether the group can be in an answer before and after, whether what
    is shown changes; by interval and touch the values before and after."""

    segment: NDArray[np.int64]
    had: NDArray[np.bool_]
    has: NDArray[np.bool_]
    differs: NDArray[np.bool_]
    before: NDArray[np.int64]
    after: NDArray[np.int64]


@kernel(allocates=False)
def _first_low(low, begin, end, value):
    """The first member from `begin` on whose low end is at least the value."""
    while begin < end:
        middle = (begin + end) >> 1
        if low[0, middle] < value:
            begin = middle + 1
        else:
            end = middle
    return begin


@kernel(allocates=False)
def _first_high(high, by_high, begin, end, value):
    """The same by high ends."""
    while begin < end:
        middle = (begin + end) >> 1
        if high[0, by_high[middle]] < value:
            begin = middle + 1
        else:
            end = middle
    return begin


@kernel(allocates=False)
def _inside(index, member, values, t):
    for j in range(index.low.shape[0]):
        if values[j, t] < index.low[j, member] or values[j, t] > index.high[j, member]:
            return False
    return True


@kernel(allocates=False)
def _visit(index, changes, t, member, out, n):
    """Note a member if its answer changes; 1 if it does."""
    had = changes.had[t] and _inside(index, member, changes.before, t)
    has = changes.has[t] and _inside(index, member, changes.after, t)
    if not (had or has) or (had and has and not changes.differs[t]):
        return 0
    if n < out.shape[1]:
        out[0, n], out[1, n], out[2, n] = t, member, np.int64(had) + 2 * np.int64(has)
    return 1


@kernel(allocates=False)
def _one_moves(changes, t):
    """Whether the group stays, shows the same, and at most the first of the values differs."""
    if not (changes.had[t] and changes.has[t]) or changes.differs[t]:
        return False
    for j in range(1, changes.before.shape[0]):
        if changes.before[j, t] != changes.after[j, t]:
            return False
    return True


@kernel(allocates=False)
def probe(index, changes, out):
    """Members whose answers change, as (touch, member, 1 if it was in + 2 if it is); returns how many.

    Those that do not fit into `out` are only counted.
    """
    n = 0
    intervals = index.low.shape[0]
    for t in range(len(changes.segment)):
        s = changes.segment[t]
        if s < 0 or not (changes.had[t] or changes.has[t]):
            continue
        begin, end = index.start[s], index.start[s + 1]
        if intervals == 0:
            if not (changes.had[t] and changes.has[t] and not changes.differs[t]):
                for member in range(begin, end):
                    n += _visit(index, changes, t, member, out, n)
            continue
        a, b = changes.before[0, t], changes.after[0, t]
        if not changes.had[t]:
            a = b
        if not changes.has[t]:
            b = a
        low, high = min(a, b), max(a, b)
        if _one_moves(changes, t):
            if low == high:
                continue
            if low < _GREATEST:  # low ends in low + 1 .. high
                for member in range(
                    _first_low(index.low, begin, end, low + 1),
                    end if high == _GREATEST else _first_low(index.low, begin, end, high + 1),
                ):
                    n += _visit(index, changes, t, member, out, n)
            for at in range(  # high ends in low .. high - 1
                _first_high(index.high, index.by_high, begin, end, low),
                _first_high(index.high, index.by_high, begin, end, high),
            ):
                n += _visit(index, changes, t, index.by_high[at], out, n)
            continue
        reach = index.reach[s]
        least = low - reach if reach < _GREATEST and low > _LEAST + reach else _LEAST
        for member in range(
            _first_low(index.low, begin, end, least),
            end if high == _GREATEST else _first_low(index.low, begin, end, high + 1),
        ):
            n += _visit(index, changes, t, member, out, n)
    return n
