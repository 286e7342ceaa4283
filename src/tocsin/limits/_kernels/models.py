"""Loops of models: counts by key, normal values in cells, H by offset, visits of an AR(1) stream, delays."""

from __future__ import annotations

import math

import numpy as np

from tocsin.compiled import kernel

__all__ = [
    "ESCAPE",
    "FRESH",
    "add_counts",
    "ar1_visits",
    "follow_delays",
    "last_seen",
    "normal_cells",
    "offset_pass",
    "stationary_scores",
    "track_rows",
]

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


ROOT = math.sqrt(0.5)
NO_ROW = -1


@kernel(allocates=False)
def normal_cells(values, means, deviations, half, out):
    """Pr(a normal value within `half` of each value)."""
    for i in range(len(values)):
        low = (means[i] - values[i] - half) / deviations[i] * ROOT
        high = (means[i] - values[i] + half) / deviations[i] * ROOT
        if low > 0.0:
            out[i] = 0.5 * (math.erfc(low) - math.erfc(high))
        else:
            out[i] = 0.5 * (math.erfc(-high) - math.erfc(-low))


@kernel(allocates=False)
def offset_pass(p, shift, q, caching, out):
    """H(u) = q (p(u - shift) + H(u - shift)) upwards; caching (1): with probability p there is no second."""
    for i in range(len(p)):
        if i < shift:
            out[i] = 0.0
        else:
            out[i] = q * (p[i - shift] + (1.0 - caching * p[i - shift]) * out[i - shift])


@kernel(allocates=False)
def ar1_visits(values, starts, left, law, q, out):
    """G(v | x): the sum over k of q^k Pr(X_k in v's cell | X_0 = x); `law`: mean, phi, sd, cell width.

    After K terms the rest is that of the stationary distribution."""
    mean, phi, sd, half = law[0], law[1], law[2], 0.5 * law[3]
    last = max(60, int(12.0 / (1.0 - phi)))
    spread = sd / math.sqrt(1.0 - phi * phi)
    for i in range(len(values)):
        v, total, power, weight = values[i] - mean, 0.0, 1.0, 1.0
        most = last if left[i] > last else int(left[i])
        for _ in range(most):
            power *= phi
            weight *= q
            if weight < 1e-15:
                break
            at = power * (starts[i] - mean)
            scale = ROOT / (spread * math.sqrt(1.0 - power * power))
            low, high = (at - v - half) * scale, (at - v + half) * scale
            if low > 0.0:
                total += 0.5 * weight * (math.erfc(low) - math.erfc(high))
            else:
                total += 0.5 * weight * (math.erfc(-high) - math.erfc(-low))
        if left[i] > most:
            rest = left[i] - most
            if q == 1.0:
                after = rest
            else:
                after = weight * q / (1.0 - q)
                if rest < np.inf:
                    after *= 1.0 - q**rest
            low, high = (-v - half) * ROOT / spread, (-v + half) * ROOT / spread
            total += 0.5 * after * (math.erfc(low) - math.erfc(high))
        out[i] = total


@kernel(allocates=False)
def track_rows(born, keys, place, now):
    """Rows of the partner arrive: note when, for keys that are followed (place >= 0)."""
    entered = 0
    for i in range(len(keys)):
        at = place[i]
        if at >= 0:
            if born[at] == NO_ROW:
                entered += 1
            born[at] = now
    return entered


@kernel(allocates=False)
def follow_delays(born, place, now, found):
    """Arrivals of followed keys, the first at step `now` + 1: `found` receives the delay of each, or -1."""
    for i in range(len(place)):
        found[i] = -1
        at = place[i]
        if at >= 0 and born[at] != NO_ROW:
            found[i] = now + 1 + i - born[at]
            born[at] = NO_ROW
