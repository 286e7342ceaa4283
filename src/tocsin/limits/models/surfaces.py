"""A function of two numbers from a few control points: bicubic splines, with their error measured.

An AR(1) stream's H depends on the kept value and the last one. The thesis keeps it as a surface of 5 x 5
control points, which is off by up to a quarter of its maximum; 17 x 17 points are off by 0.2 %.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tocsin.limits.models.base import Doubles

__all__ = ["POINTS", "Surface"]

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
