"""When to refresh by itself: evaluates `when = 'moved(cheapest) > 5 % OR changes > 1000'`.

`changes` and `age` are known at every change. `rows` and `moved` are known only where the changes have been
propagated: until then a condition that depends on them is neither true nor false.

>>> from tocsin.language.refresh_conditions import read_condition
>>> condition = read_condition("changes > 1000 OR moved(cheapest) > 5 %")
>>> print(holds(condition, Waiting(changes=1001, age=0)), holds(condition, Waiting(changes=3, age=0)))
True None
>>> print(holds(condition, Waiting(3, 0, rows=2, before={"cheapest": 100}, after={"cheapest": 94})))
True

A refresh is due when `holds` is true; None requires propagating first, which whoever owns the changes does at
its own pace (`check`), never at each change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from tocsin.language.options import Options
from tocsin.language.refresh_conditions import (
    AllHold,
    RefreshCondition,
    Threshold,
    read_condition,
    thresholds,
)

__all__ = ["Waiting", "condition_of", "holds", "moved", "needs_propagation"]


class Waiting(NamedTuple):
    """What is known of a subscription between two refreshes.

    `changes`: waiting, one per row; `age`: microseconds since the last refresh. Where everything has been
    propagated, `rows`: how many net rows would be emitted; `before` and `after`: a one-row answer as it was
    emitted last, and as it is.
    """

    changes: int
    age: int
    rows: int | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


def condition_of(options: Options) -> RefreshCondition | None:
    """The condition of a query's options; `every 10 seconds` is `age > 10 seconds`; None: on demand alone.

    >>> print(condition_of(Options(refresh="every", every=10_000_000)))
    age > 10 seconds
    """
    if options.refresh == "every" and options.every is not None:
        return Threshold("age", options.every)
    return read_condition(options.when) if options.refresh == "when" and options.when is not None else None


def needs_propagation(condition: RefreshCondition) -> bool:
    """Whether it can depend on more than waiting changes and the clock."""
    return any(test.measure in ("rows", "moved") for test in thresholds(condition))


def holds(condition: RefreshCondition, waiting: Waiting) -> bool | None:
    """Whether a refresh is due; None if that depends on what has not been propagated."""
    if isinstance(condition, Threshold):
        return _passes(condition, waiting)
    decisive = not isinstance(condition, AllHold)  # what one part decides for all
    found = [holds(part, waiting) for part in condition.parts]
    if decisive in found:
        return decisive
    return None if None in found else not decisive


def moved(before: Any, after: Any) -> float:
    """How far a number has moved, in percent of what it was; infinity from or to 0 or NULL.

    >>> moved(200, 210), moved(-4.0, -3.0), moved(None, 1), moved(None, None), moved(0, 0.5)
    (5.0, 25.0, inf, 0.0, inf)
    """
    if before == after or (before != before and after != after):  # NaN is NaN
        return 0.0
    if not before or not after or not math.isfinite(before) or not math.isfinite(after):
        return math.inf
    return float(100 * abs(after - before) / abs(before))


def _passes(test: Threshold, waiting: Waiting) -> bool | None:
    measured: float | None
    if test.column is None:
        measured = getattr(waiting, test.measure)
    elif waiting.before is None or waiting.after is None:
        measured = None
    else:
        measured = moved(_of(waiting.before, test.column), _of(waiting.after, test.column))
    if measured is None:
        return None
    return measured >= test.bound if test.inclusive else measured > test.bound


def _of(row: Mapping[str, Any], column: str) -> Any:
    """The value of a column, as the query's text may write it."""
    if column in row:
        return row[column]
    return next(value for name, value in row.items() if name.lower() == column.lower())
