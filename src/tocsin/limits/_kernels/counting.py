"""Counters by key code, added to in the order of arrival."""

from __future__ import annotations

import math

import numpy as np

from tocsin.compiled import kernel

__all__ = ["ESCAPE", "FRESH", "add_counts", "last_seen", "stationary_scores"]

ESCAPE = 10.0  # keys that were never seen weigh together as much as this many halves
FRESH = 1.0 - 1.0 / 256.0  # how the share of new keys fades


@kernel(allocates=False)
def add_counts(counts, keys, state, weights, cells, logs):
    """Count keys; `logs` receives the log-likelihood of each under the counts before it.

    `state`: the sum of all weights, how many keys have one, how many of the last arrivals were of new keys,
    how many these are. `weights`: that of the next key, and its growth per key (above 1: old keys fade).
    `cells`: how many keys there may be. A new key is one of those not seen; at least as many as the others.
    """
    for i in range(len(keys)):
        key = keys[i]
        weight = weights[0]
        half = 0.5 * weight
        fresh = (state[2] + 0.5) / (state[3] + 1.0)
        state[2] *= FRESH
        state[3] = state[3] * FRESH + 1.0
        if counts[key] == 0.0:
            logs[i] = math.log(fresh / max(state[1] + 1.0, cells - state[1]))
            state[1] += 1.0
            state[2] += 1.0
        else:
            logs[i] = math.log((1.0 - fresh) * (counts[key] + half) / (state[0] + half * state[1]))
        counts[key] += weight
        state[0] += weight
        weights[0] = weight * weights[1]


@kernel(allocates=False)
def last_seen(last, keys, first):
    """Number keys by their order, from `first`; `last` keeps the last number of each."""
    for i in range(len(keys)):
        last[keys[i]] = first + i


@kernel(allocates=False)
def stationary_scores(counts, keys, left, setting, out):
    """H of rows whose partner draws its keys independently; `setting`: half, total, q, caching (0 or 1)."""
    half, total, q, caching = setting[0], setting[1], setting[2], setting[3]
    size = len(counts)
    logq = math.log(q) if q > 0.0 else -np.inf
    every = q / (1.0 - q) if q < 1.0 else np.inf
    for i in range(len(keys)):
        seen = counts[keys[i]] if keys[i] < size else 0.0
        p = (seen + half) / total
        n = left[i]
        if n <= 0.0:
            out[i] = 0.0
        elif caching == 0.0:
            if q == 1.0:
                out[i] = p * n
            elif n == np.inf:
                out[i] = p * every
            else:
                out[i] = -p * every * math.expm1(n * logq)
        else:
            stay = q * (1.0 - p)
            cut = 1.0 if n == np.inf else -math.expm1(n * math.log(stay)) if stay > 0.0 else 1.0
            out[i] = p * q / (1.0 - stay) * cut
