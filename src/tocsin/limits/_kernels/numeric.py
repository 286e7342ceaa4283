"""Normal values in cells, H by offset from a trend, visits of an AR(1) stream, delays by age."""

from __future__ import annotations

import math

import numpy as np

from tocsin.compiled import kernel

__all__ = ["ar1_visits", "follow_delays", "normal_cells", "offset_pass", "track_rows"]

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
