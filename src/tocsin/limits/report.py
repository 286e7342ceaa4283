"""What a refresh group was promised, and what was kept: `Engine.limits`. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["Promise", "RefreshReport"]


@dataclass(frozen=True, slots=True)
class Promise:
    """How refreshes compare with their limit.

    >>> Promise.of([90.0, 120.0, 130.0, 80.0], 100.0)
    Promise(within=100.0, refreshes=4, kept=0.5, within_quarter=0.75, p95=128.5, feasible=True)
    """

    within: float
    refreshes: int
    kept: float | None  # the share of refreshes that took no longer than `within`
    within_quarter: float | None  # ... no longer than 1.25 times `within`
    p95: float | None  # the time that 95 % of them stay below
    feasible: bool = True  # whether one change of each table can be propagated within the limit

    @classmethod
    def of(cls, taken: Sequence[float], within: float, feasible: bool = True) -> Promise:
        """From the times of the latest refreshes."""
        if not taken:
            return cls(within, 0, None, None, None, feasible)
        times = np.asarray(taken, np.float64)
        kept, quarter = (float((times <= factor * within).mean()) for factor in (1.0, 1.25))
        return cls(within, len(times), kept, quarter, float(np.quantile(times, 0.95)), feasible)


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """The refresh group of one subscription, as measured."""

    group: str
    policy: str
    waiting: Mapping[str, int]  # changed keys by table that are not propagated yet
    predicted: float  # the time of a refresh now
    refreshes: tuple[float, ...]  # the latest, in order
    spent: float  # on propagating, since the group exists
    spent_naive: float  # what emptying all tables at each break would have cost, as predicted
    planning: float  # on deciding what to propagate
    promise: Promise | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
