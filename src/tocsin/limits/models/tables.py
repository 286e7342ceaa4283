"""H by offset, distance or age: the tables that models look scores up in. Pure functions of a law and q.

    offset_table    trend      H(u) = q (p(u-a) + H(u-a)), one pass upwards: stable, errors shrink by q
    visits          walk       G(d) = sum over k of q^k Pr(k steps lead d further), by FFT
    delay_table     delays     H(a) = q (h + (1-h) H(a+1)), from the last age down
    known_future    anything   the sum of q^d over the steps at which a match comes
    Surface         AR(1)      any function of two numbers, by bicubic splines through a few control points

Caching counts the first match only: with G(0) the visits to where one is, H = G(d) / (1 + G(0)).

An AR(1) stream's H depends on the kept value and the last one. The thesis keeps it as a surface of 5 x 5
control points, which is off by up to a quarter of its maximum; 17 x 17 points are off by 0.2 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tocsin.limits.models.base import Doubles

__all__ = ["POINTS", "Surface", "delay_table", "known_future", "normal_steps", "offset_table", "visits"]

_SURE = 1e-11  # of the largest value: what is smaller may be rounding


def offset_table(p: Doubles, shift: int, q: float, caching: bool) -> Doubles:
    """H at each offset of a grid on which the trend moves `shift` cells per step; p: the noise there.

    The offset is that of the kept value from the trend now. The grid must begin where H is 0: for a rising
    trend below the noise, for a falling one above it (turn both round).

    >>> offset_table(np.array([0.0, 0.5, 0.5, 0.0, 0.0]), 1, 0.5, caching=False)
    array([0.    , 0.    , 0.25  , 0.375 , 0.1875])
    """
    size, h = len(p), np.zeros(len(p))
    for begin in range(shift, size, shift):
        width = min(shift, size - begin)
        before = slice(begin - shift, begin - shift + width)
        stays = 1.0 - p[before] if caching else 1.0
        h[begin : begin + width] = q * (p[before] + stays * h[before])
    return h


def visits(step: Doubles, q: float, left: float = math.inf) -> Doubles:
    """G by distance, for a walk whose step has this circular pmf: element d % n is distance d.

    `left`: only so many steps are counted; q = 1 needs a finite one.

    >>> step = np.zeros(64); step[1] = 1.0  # always one up
    >>> visits(step, 0.5)[:4].round(4)
    array([0.   , 0.5  , 0.25 , 0.125])
    """
    turn = q * np.fft.rfft(step)
    rest = 1.0 - turn
    tiny = np.abs(rest) < 1e-12
    rest[tiny] = 1.0
    found = turn / rest
    if math.isfinite(left):
        found = found * (1.0 - turn**left)
        found[tiny] = left
    return _with_tails(np.fft.irfft(found, len(step)))


def _with_tails(g: Doubles) -> Doubles:
    """The same without rounding errors far away, where visits fall by a constant factor per cell."""
    least, half = _SURE * float(g.max()), len(g) // 2
    for side in (g[:half], g[: half - 1 : -1]):  # from 0 upwards, from -1 downwards
        sure = np.flatnonzero(side >= least)
        last = int(sure[-1]) if len(sure) else -1
        ratio = side[last] / side[last - 1] if last > 0 and side[last - 1] > side[last] else 0.0
        side[last + 1 :] = side[last] * ratio ** np.arange(1.0, len(side) - last) if ratio else 0.0
    return g


def normal_steps(mean: float, sd: float, size: int) -> Doubles:
    """The circular pmf of a normal step, in cells of width 1."""
    edges = np.arange(-(size // 2), size // 2 + 1) - 0.5
    below = np.array([0.5 * math.erfc((mean - edge) / (sd * math.sqrt(2.0))) for edge in edges.tolist()])
    pmf = np.diff(below)
    return np.roll(pmf / pmf.sum(), -(size // 2))


def delay_table(hazard: Doubles, width: float, q: float) -> Doubles:
    """H at the begin of each cell of ages, so many steps wide, with a constant hazard per step in each.

    >>> delay_table(np.array([0.0, 1.0]), 1.0, 0.5)
    array([0.25, 0.5 ])
    """
    h = np.zeros(len(hazard) + 1)
    stay = q * (1.0 - hazard)
    through = stay**width
    inside = np.where(stay < 1.0, q * hazard * (1.0 - through) / np.where(stay < 1.0, 1.0 - stay, 1.0), 0.0)
    for cell in range(len(hazard) - 1, -1, -1):
        h[cell] = inside[cell] + through[cell] * h[cell + 1]
    return h[:-1]


def known_future(steps: Sequence[int], q: float, caching: bool) -> float:
    """H of a tuple whose matches come at these steps from now.

    >>> known_future([2, 1], 0.5, caching=False), known_future([2, 1], 0.5, caching=True)
    (0.75, 0.5)
    """
    if not steps:
        return 0.0
    return float(q ** min(steps)) if caching else float(sum(q**step for step in steps))


POINTS = 17


class Surface:
    """`function` of two equally long arrays, on the square from `low` to `high`, from `points`² values.

    >>> surface = Surface(lambda v, x: np.exp(-0.1 * (v - x) ** 2), -5.0, 5.0)
    >>> surface.error < 0.005
    True
    >>> surface(np.array([1.3]), np.array([1.3])).round(2)
    array([1.])
    """

    def __init__(
        self, function: Callable[[Doubles, Doubles], Doubles], low: float, high: float, points: int = POINTS
    ) -> None:
        self.low, self.high = low, high
        self._nodes = np.linspace(low, high, points)
        self._curvature = _curvature(points)
        self._control = self._on_grid(function, self._nodes)
        between = np.linspace(low, high, 4 * points - 3)
        exact = self._on_grid(function, between)
        weights = self._weights(between)
        estimate = weights @ self._control @ weights.T
        self.error = float(np.abs(estimate - exact).max() / np.abs(exact).max())
        """The largest error on a grid four times as fine, as a share of the maximum."""

    def __call__(self, first: Doubles, second: Doubles) -> Doubles:
        """Values at points; outside the square those at its edge."""
        found = np.einsum("ij,jk,ik->i", self._weights(first), self._control, self._weights(second))
        return np.maximum(found, 0.0)

    @staticmethod
    def _on_grid(function: Callable[[Doubles, Doubles], Doubles], at: Doubles) -> Doubles:
        first, second = np.meshgrid(at, at, indexing="ij")
        return function(first.ravel(), second.ravel()).reshape(len(at), len(at))

    def _weights(self, at: Doubles) -> Doubles:
        """What each control point contributes to the spline at each place."""
        count = len(self._nodes)
        place = np.clip((at - self.low) / (self.high - self.low) * (count - 1), 0.0, count - 1.0)
        cell = np.minimum(place.astype(np.int64), count - 2)
        b = place - cell
        a = 1.0 - b
        rows = np.arange(len(at))
        out = (a**3 - a)[:, None] / 6.0 * self._curvature[cell] + (b**3 - b)[:, None] / 6.0 * self._curvature[
            cell + 1
        ]
        out[rows, cell] += a
        out[rows, cell + 1] += b
        return out

    @property
    def nbytes(self) -> int:
        return self._control.nbytes + self._nodes.nbytes + self._curvature.nbytes


def _curvature(count: int) -> Doubles:
    """The matrix that gives second derivatives from values, not-a-knot at both ends, nodes one apart."""
    system, right = np.zeros((count, count)), np.zeros((count, count))
    for i in range(1, count - 1):
        system[i, i - 1 : i + 2] = 1.0, 4.0, 1.0
        right[i, i - 1 : i + 2] = 6.0, -12.0, 6.0
    system[0, :3] = system[-1, -3:] = 1.0, -2.0, 1.0
    return np.asarray(np.linalg.solve(system, right), np.float64)
