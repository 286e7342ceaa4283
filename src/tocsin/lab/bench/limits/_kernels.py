"""Joins of two streams in k slots, one tuple of each per step, in one loop over all steps."""

from __future__ import annotations

import numpy as np

from tocsin.compiled import kernel

__all__ = ["simulate_join"]

R_SIDE, S_SIDE = 0, 1
RAND, PROB, LIFE, HEEB = 0, 1, 2, 3
TIE = 1e-12


@kernel(allocates=True)
def simulate_join(streams, tables, setting, window, noise, out):
    """Count matches of kept tuples from step `warm` on; `out`: matches, steps lived, dropped, share of R.

    `tables`: HEEB's H of R and S tuples, by offset from the step (trend) or from the partner's last value.
    `setting`: slots, policy, walk (0 or 1), warm, base and span of values. `window`: until a tuple of value v
    is of use on side 0 and 1: v + window - step. `noise`: random numbers, by step and place, two in turn.
    """
    slots, policy, walk, warm, base, span = setting
    steps = streams.shape[1]
    side, value, arrival = (
        np.empty(slots + 2, np.int64),
        np.empty(slots + 2, np.int64),
        np.empty(slots + 2, np.int64),
    )
    score, counts = np.empty(slots + 2), np.zeros((2, span))
    half, n = tables.shape[1] // 2, 0
    for t in range(steps):
        r, s = streams[0, t], streams[1, t]
        found = 0
        for i in range(n):
            if value[i] == (s if side[i] == R_SIDE else r):
                found += 1
        if t >= warm:
            out[0] += found
        counts[0, r - base] += 1.0
        counts[1, s - base] += 1.0
        for mine in range(2):
            side[n], value[n], arrival[n] = mine, streams[mine, t], t
            n += 1
        while n > slots:
            least = 0
            for i in range(n):
                v, mine = value[i], side[i]
                left = 1.0 if walk else float(v + window[mine] - t)
                if policy == HEEB:
                    place = half + v - ((s if mine == R_SIDE else r) if walk else t)
                    score[i] = tables[mine, place] if 0 <= place < tables.shape[1] else 0.0
                elif left <= 0.0:
                    score[i] = -1.0
                elif policy == RAND:
                    score[i] = noise[t, 2 * i + n % 2]
                else:
                    often = (counts[1 - mine, v - base] + 1.0) / (t + 1.0)
                    score[i] = (often * left if policy == LIFE else often) + TIE * noise[t, 2 * i + n % 2]
                if score[i] < score[least]:
                    least = i
            if t > arrival[least]:
                out[1] += t - arrival[least]
                out[2] += 1.0
            n -= 1
            side[least], value[least], arrival[least] = side[n], value[n], arrival[n]
        if t >= warm:
            mine = 0
            for i in range(n):
                mine += side[i] == R_SIDE
            out[3] += mine / n / (steps - warm)
