"""T07, chapter 3: joins of streams in bounded memory, and caching.

The published numbers are few and the values of the plots are lost: `stated` is what the text says. Figures
3.1-3.6 and 3.8 are drawings of distributions and ECBs, 3.18 and 3.19 are never mentioned in the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tocsin.lab.bench.limits.figures import (
    FigureClaim,
    FigureRow,
    LimitsFigure,
    LimitsResult,
    LimitsSetting,
)
from tocsin.limits.models.tables import normal_steps, visits

__all__ = ["FIGURES"]

Say = Callable[[str], None]
_SIZE = 1 << 12


# -- 3.7 ---------------------------------------------------------------------------------------------


def _walk_scores(setting: LimitsSetting, say: Say) -> LimitsResult:
    """h1 of a walk with σ = 1, caching, α = 10."""
    rows, found = [], {}
    distances = np.arange(-20, 61)
    for drift in (0, 2, 4):
        g = visits(normal_steps(drift, 1.0, _SIZE), math.exp(-1.0 / 10.0))
        found[drift] = (g / (1.0 + g[0]))[distances % _SIZE]
        for distance, value in zip(distances.tolist(), found[drift].tolist(), strict=True):
            rows.append(FigureRow("WALK, σ = 1", f"drift {drift}", distance, value))
    here = found[0][:41]
    right = float(found[4][distances > 0].sum() / found[4].sum())
    claims = [
        FigureClaim("no drift: h1(d) - h1(-d), largest", float(abs(here - here[::-1]).max()), at_most=1e-9),
        FigureClaim("drift 4: share of the mass on the right", right, at_least=0.95),
        FigureClaim("drift 4: h1(4) / h1(6)", float(found[4][24] / found[4][26]), at_least=1.0),
    ]
    return LimitsResult(rows, claims, "α = 10; exact up to the FFT's rounding.")


FIGURES = (
    LimitsFigure(
        *("3.7", "HEEB's score by distance from the walk", "v - x", "h1", 1, _walk_scores),
        "no drift: symmetric around 0; a larger drift favours the right, with bumps at its multiples",
    ),
)
