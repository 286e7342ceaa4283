"""What models and scores see: arrivals of a stream, rows that are kept; the protocol of models.

A model describes one stream's join key: how likely each value is to arrive, one step at a time. A *step*
is one arrival of that stream. Its `score` of a kept row of the partner is HEEB's

    H = sum over d >= 1 of (B(d) - B(d-1)) q^d

where B(d) is the expected number of matches within d steps (joining), or the probability of at least one
(caching). `left` cuts the sum: a row that expires after n steps has no match later.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tocsin.model.columns import Index

__all__ = ["Arrivals", "Doubles", "KeptRows", "Model", "ModelBase", "Steps", "alpha_of_life", "grid_of"]

Doubles = NDArray[np.float64]


class Arrivals(NamedTuple):
    """Rows that arrive on one side, in order.

    `keys`: dense codes of the join key, the same on both sides. `values`: the key as numbers, for keys of one
    numeric or time column. `at`: times of arrival in any unit, never decreasing.
    """

    keys: Index
    values: Doubles | None
    at: Doubles


class KeptRows(NamedTuple):
    """Rows of one side that are kept; `left` is the time until they expire (infinity: never)."""

    keys: Index
    values: Doubles | None
    at: Doubles
    left: Doubles


class Steps(NamedTuple):
    """Kept rows as their partner's model sees them: ages and remaining life in its own steps."""

    keys: Index
    values: Doubles | None
    age: Doubles
    left: Doubles


class Model(Protocol):
    """A model of one stream's join key."""

    def observe(self, arrivals: Arrivals) -> None: ...

    def observe_rows(self, arrivals: Arrivals) -> None:
        """Rows of the partner, which this model may have to score, arrive."""
        ...

    def likelihood(self) -> float:
        """The mean log-likelihood of recent values, each predicted from those before it; -inf: too few."""
        ...

    def score(self, rows: Steps, q: float, caching: bool) -> Doubles:
        """H of the partner's rows from now on, not negative. `q` in (0, 1]; q = 1 needs a finite `left`."""
        ...

    def discard(self, keys: Index) -> None:
        """These codes will be given to other keys."""
        ...

    @property
    def nbytes(self) -> int: ...

    def _check(self) -> None: ...


class ModelBase:
    """What models need not define: they learn nothing from the partner's rows, nor from codes of keys."""

    by_age: ClassVar[bool] = False
    """Whether rows of equal key, value and remaining life may differ in their scores."""

    by_value: ClassVar[bool] = True
    """Whether scores may depend on the values of keys."""

    def observe_rows(self, arrivals: Arrivals) -> None:
        pass

    def discard(self, keys: Index) -> None:
        pass

    def release(self) -> None:
        """Drop what was computed for scores; another model scores from now on."""


def alpha_of_life(life: float) -> float:
    """The α of L(d) = e^(-d/α) whose sum over d >= 0 is a mean lifetime above 1.

    >>> round(alpha_of_life(2.0), 4)
    1.4427
    """
    return float(-1.0 / np.log1p(-1.0 / life))


def grid_of(values: Doubles) -> float:
    """The distance of the grid that values lie on: the width of the cells whose probabilities models state.

    >>> grid_of(np.array([20.5, 21.1, 19.0])), grid_of(np.array([4.0, 10.0, 6.0]))
    (0.1, 1.0)
    """
    found = values[np.isfinite(values)]
    for digits in range(7):
        scaled = found * 10.0**digits
        if np.all(np.abs(scaled - np.rint(scaled)) < 1e-6 * np.maximum(1.0, np.abs(scaled) * 1e-3)):
            return float(10.0**-digits)
    steps = np.diff(np.unique(found))
    return float(steps.min()) if len(steps) else 1.0
