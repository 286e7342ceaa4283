"""A stream that follows a line: value = level + slope · step + noise.

Fitted by least squares over a window; the noise is the histogram of the residuals. A kept value is worth what
its offset from the line now says (`tables.py`: offset_table), so a score is one look-up. The table's grid
divides the slope, so that offsets move by whole cells whatever the slope is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tocsin.limits._kernels.models import offset_pass
from tocsin.limits.models.base import HISTORY, Doubles, Steps
from tocsin.limits.models.numeric import NumericModel, Series
from tocsin.model.columns import Index

__all__ = ["Line", "Trend"]

_FINE = 8  # cells of the table per cell of the noise, at least
_WIDEST = 128  # cells of the noise per deviation, at most
_MOST_CELLS = 200_000
_STEEPEST = 4096  # cells of a table per step; a steeper line passes a value within a few steps: no table


class Line(NamedTuple):
    """`level`: the line at step `at`. `noise`: probabilities of offsets `low`, `low + width`, ..."""

    level: float
    slope: float
    at: int
    noise: Doubles
    low: float
    width: float

    def now(self, step: int) -> float:
        return self.level + self.slope * (step - self.at)


class _OffsetTable(NamedTuple):
    """H by offset, cell by cell from `low`; `survival`: log of the probability of no match yet (caching)."""

    h: Doubles
    survival: Doubles | None
    low: float
    cell: float
    shift: int  # cells per step; 0: the line is flat


class Trend(NumericModel):
    """A linear trend. `line`: the law, if it is known; then nothing is fitted.

    >>> line = Line(0.0, 1.0, 0, np.full(3, 1 / 3), -1.0, 1.0)
    >>> model = Trend(line=line)
    >>> rows = Steps(np.arange(3), np.array([0.0, 2.0, -3.0]), np.zeros(3), np.full(3, np.inf))
    >>> model.score(rows, 0.5, caching=False).round(4)
    array([0.1667, 0.2917, 0.    ])
    """

    def __init__(
        self, window: int = HISTORY, series: Series | None = None, *, line: Line | None = None
    ) -> None:
        super().__init__(window, series)
        self.line, self._fixed = line, line is not None
        self._table: tuple[object, _OffsetTable] | None = None

    def predict(self, values: Doubles, positions: Index) -> tuple[Doubles, Doubles]:
        x, t = values - values[0], np.arange(len(values), dtype=np.float64)
        sums, n = self._moving(lambda: np.stack([t, x, t * t, t * x, x * x]), positions, self.window)
        mt, mx, mtt, mtx, mxx = sums / n
        spread = np.maximum(mtt - mt * mt, 1e-12)
        slope = (mtx - mt * mx) / spread
        variance = np.maximum(mxx - mx * mx - slope * slope * spread, 0.0)
        mean = mx + slope * (positions - mt) + values[0]
        return mean, np.sqrt(np.maximum(variance, self.series.width**2 / 12.0) * n / np.maximum(n - 2.0, 1.0))

    def fit(self, values: Doubles, count: int) -> None:
        t = np.arange(len(values), dtype=np.float64) - (len(values) - 1)
        mt, mx = t.mean(), values.mean()
        slope = float(((t - mt) * (values - mx)).sum() / ((t - mt) ** 2).sum())
        level = float(mx - slope * mt)
        residual = values - level - slope * t
        grid = self.series.width
        width = grid * max(1.0, 2.0 ** math.ceil(math.log2(max(1e-9, residual.std() / grid / _WIDEST))))
        cells = np.rint(residual / width).astype(np.int64)
        low, high = int(cells.min()) - 1, int(cells.max()) + 1
        counts = np.bincount(cells - low, minlength=high - low + 1).astype(np.float64)
        counts[1:-1] += 0.2  # what lies between may come too
        self.line = Line(level, slope, count - 1, counts / counts.sum() * (grid / width), low * width, width)
        self._table = None

    def score(self, rows: Steps, q: float, caching: bool) -> Doubles:
        self.refit()
        if self.line is None or rows.values is None:
            return np.zeros(len(rows.keys))
        sign = -1.0 if self.line.slope < 0.0 else 1.0
        offset = sign * (rows.values - self.line.now(self._step))
        left = np.maximum(rows.left, 0.0)
        if _cells_per_step(self.line) > _STEEPEST:
            return _steep(self.line, offset, left, q, caching)
        table = self._table_of(q, caching)
        if table.shift == 0:
            p = _between(table.h, (offset - table.low) / table.cell)
            return _flat(p, left, q, caching)
        found = self._beyond(table, offset, q)
        limited = np.isfinite(left)
        if limited.any():
            found[limited] -= self._after(table, offset[limited], left[limited], q)
        return np.maximum(found, 0.0)

    def release(self) -> None:
        self._table = None

    @property
    def _step(self) -> int:
        """The number of the last value; before there is one, that of the given line."""
        count = self.series.history.count
        return count - 1 if count else (self.line.at if self.line is not None else 0)

    def _table_of(self, q: float, caching: bool) -> _OffsetTable:
        assert self.line is not None
        if self._table is None or self._table[0] != (q, caching):
            self._table = (q, caching), _offset_table_of(self.line, q, caching)
        return self._table[1]

    def _beyond(self, table: _OffsetTable, offset: Doubles, q: float) -> Doubles:
        """H at offsets; values that the line has not nearly reached wait so many steps longer."""
        place, over = self._place(table, offset)
        return _between(table.h, place) * q**over

    def _place(self, table: _OffsetTable, offset: Doubles) -> tuple[Doubles, Doubles]:
        """The cells of offsets, of those above the table so many steps later."""
        place = (offset - table.low) / table.cell
        over = np.maximum(0.0, np.ceil((place - (len(table.h) - 1)) / table.shift))
        return place - over * table.shift, over

    def _after(self, table: _OffsetTable, offset: Doubles, left: Doubles, q: float) -> Doubles:
        """What comes after `left` steps."""
        step = table.shift * table.cell
        later = offset - left * step
        rest = q**left * self._beyond(table, later, q)
        if table.survival is not None:
            place, later_place = self._place(table, offset)[0], self._place(table, later)[0]
            rest *= np.exp(_between(table.survival, place) - _between(table.survival, later_place))
        return rest

    @property
    def nbytes(self) -> int:
        return super().nbytes + (0 if self._table is None else 2 * self._table[1].h.nbytes)


def _cells_per_step(line: Line) -> int:
    return max(1, math.ceil(_FINE * abs(line.slope) / line.width - 1e-9))


def _rising(line: Line) -> tuple[Doubles, float, float]:
    """Noise, its lowest offset and the slope, both turned round if the line falls."""
    if line.slope < 0.0:
        return line.noise[::-1], -(line.low + line.width * (len(line.noise) - 1)), -line.slope
    return line.noise, line.low, line.slope


def _steep(line: Line, offset: Doubles, left: Doubles, q: float, caching: bool) -> Doubles:
    """H by the few steps in which the noise reaches a value."""
    noise, low, slope = _rising(line)
    padded = np.concatenate([[0.0], noise, [0.0]])
    span = line.width * (len(noise) + 1)
    first = np.maximum(1.0, np.ceil((offset - low - line.width * len(noise)) / slope))
    found, never = np.zeros(len(offset)), np.ones(len(offset))
    for later in range(math.ceil(span / slope) + 1):
        step = first + later
        place = (offset - step * slope - low) / line.width + 1.0
        p = np.interp(place, np.arange(len(padded)), padded, left=0.0, right=0.0)
        p[step > left] = 0.0
        found += q**step * p * never
        if caching:
            never *= 1.0 - p
    return found


def _offset_table_of(line: Line, q: float, caching: bool) -> _OffsetTable:
    noise, low, slope = _rising(line)
    span = line.width * (len(noise) + 1)
    shift = _cells_per_step(line)
    if slope * _MOST_CELLS < span:
        return _OffsetTable(np.concatenate([[0.0], noise, [0.0]]), None, low - line.width, line.width, 0)
    cell = slope / shift
    begin = low - line.width - slope
    size = math.ceil((span + 3.0 * slope) / cell) + shift + 1
    place = (begin + cell * np.arange(size) - low) / line.width
    p = np.interp(place, np.arange(-1, len(noise) + 1), np.concatenate([[0.0], noise, [0.0]]))
    h = np.empty(size)
    offset_pass(p, shift, q, float(caching), h)
    survival = None
    if caching:
        survival = np.empty(size)
        offset_pass(np.log1p(-np.minimum(p, 1.0 - 1e-12)), shift, 1.0, 0.0, survival)
    return _OffsetTable(h, survival, begin, cell, shift)


def _between(table: Doubles, place: Doubles) -> Doubles:
    """Linear interpolation; 0 below the table, its last element above."""
    return np.interp(place, np.arange(len(table)), table, left=0.0)


def _flat(p: Doubles, left: Doubles, q: float, caching: bool) -> Doubles:
    stay = q * (1.0 - p) if caching else np.full(len(p), q)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(stay < 1.0, p * q * (1.0 - stay**left) / (1.0 - stay), p * left)
    return np.where(left > 0.0, found, 0.0)
