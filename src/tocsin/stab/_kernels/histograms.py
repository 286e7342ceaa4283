"""Step functions by few steps: the best cut of a row of steps into runs."""

from __future__ import annotations

import numpy as np

from tocsin.compiled import kernel

__all__ = ["best_cuts", "cuts_of", "spread"]


@kernel
def best_cuts(height, weight, most):
    """The least cost of runs 0..i in k+1 runs, and where the last of them begins, for all k < most and i.

    The cost of a run is the sum of weight * (height - their weighted mean)^2. O(most * n^2) at worst: a run
    is made longer to the left only while it alone costs less than the best found.
    """
    n = len(height)
    w, wy, wyy = np.zeros(n + 1), np.zeros(n + 1), np.zeros(n + 1)
    for i in range(n):
        w[i + 1] = w[i] + weight[i]
        wy[i + 1] = wy[i] + weight[i] * height[i]
        wyy[i + 1] = wyy[i] + weight[i] * height[i] * height[i]
    cost = np.full((most, n), np.inf)
    begin = np.zeros((most, n), np.int32)
    for i in range(n):
        cost[0, i] = max(0.0, wyy[i + 1] - wy[i + 1] * wy[i + 1] / w[i + 1])
    for k in range(1, most):
        cost[k, 0] = 0.0
        for i in range(1, n):
            best, at = cost[k - 1, i], begin[k - 1, i]  # no better with one more
            for j in range(i, 0, -1):
                mass, sum_y = w[i + 1] - w[j], wy[i + 1] - wy[j]
                own = wyy[i + 1] - wyy[j] - sum_y * sum_y / mass
                if own >= best:
                    break
                if cost[k - 1, j - 1] + own < best:
                    best, at = cost[k - 1, j - 1] + max(own, 0.0), j
            cost[k, i], begin[k, i] = best, at
    return cost, begin


@kernel
def cuts_of(begin, runs):
    """Where the runs begin, ascending, if there are at most so many."""
    out, count, i = np.empty(runs, np.int64), 0, begin.shape[1] - 1
    k = runs - 1
    while i >= 0:
        out[count] = begin[k, i]
        i = begin[k, i] - 1
        count, k = count + 1, max(k - 1, 0)
    return out[:count][::-1].copy()


@kernel
def spread(start, value, low, high, sign):
    """Insert (sign 1) or remove (-1) intervals: each bucket changes by the share of it that they cover."""
    n = len(value)
    for i in range(len(low)):
        k = max(np.searchsorted(start, low[i], side="right") - 1, 0)
        while k < n and start[k] <= high[i]:
            first, after = start[k], start[k + 1]
            covered = float(min(high[i], after - 1)) - float(max(low[i], first)) + 1.0
            value[k] += sign * covered / (float(after) - float(first))
            k += 1
