"""HEEB: the expected benefit of keeping a row, weighed by how long a row usually stays.

    H = sum over d >= 1 of (B(d) - B(d-1)) L(d)        L^exp(d) = e^(-d/α)     (the default)
                                                       L^fixed(d) = 1 for d <= D
                                                       L^inf(d) = 1, L^inv(d) = 1/d: caching only

B(d) comes from a model of the partner's key (`tocsin.limits.models`). Little's law gives the mean lifetime
of a row without observing any: rows kept / rows arriving per step. Half the α of that lifetime is the
default, which was at least 0.98 of the best on all of the thesis's workloads; rows of both sides are
weighed per unit of time, so that they compare when the streams differ in speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from tocsin.errors import UsageError
from tocsin.limits.models.base import Arrivals, Doubles, KeptRows, Model, Steps, alpha_of_life
from tocsin.limits.models.chooser import Chooser
from tocsin.limits.models.stationary import Stationary
from tocsin.limits.scores.base import ArrivalRates, ScoreBase, drop_expired
from tocsin.model.columns import Index

__all__ = ["HORIZONS", "Heeb", "little_alpha"]

HORIZONS = ("exp", "fixed", "inf", "inv")
_SHORTEST_LIFE = 1.25  # steps; α has no meaning at 1
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)


def little_alpha(kept: int, caching: bool = False) -> float:
    """The default α, in rounds of one arrival per side: half the α of Little's lifetime; `kept` for caching.

    >>> round(little_alpha(10), 2), little_alpha(10, caching=True)
    (2.24, 10.0)
    """
    if caching:
        return float(max(1, kept))
    return 0.5 * alpha_of_life(max(_SHORTEST_LIFE, kept / 2.0))


class Heeb(ScoreBase):
    """`model`: makes the model of a side; by default a `Chooser`. `alpha`: in rounds of one arrival per side;
    by default from Little's law.

    >>> score = Heeb()
    >>> score.seen(1, Arrivals(np.array([7, 7, 8]), None, np.arange(3.0)))
    >>> rows = KeptRows(np.array([7, 8, 9]), None, np.zeros(3), np.array([np.inf, np.inf, 0.0]))
    >>> score(0, rows, now=3.0, kept=10).round(2)
    array([0.32, 0.19, -inf])
    """

    name: ClassVar[str] = "heeb"
    is_benefit: ClassVar[bool] = True

    def __init__(
        self,
        caching: bool = False,
        seed: int = 0,
        *,
        model: Callable[[int], Model] | None = None,
        horizon: str = "exp",
        alpha: float | None = None,
    ) -> None:
        super().__init__(caching, seed)
        if horizon not in HORIZONS:
            raise UsageError(f"there is no horizon {horizon!r}", hint=f"one of {', '.join(HORIZONS)}")
        if horizon in ("inf", "inv") and not caching:
            raise UsageError(f"the horizon {horizon!r} is for caching", hint="use exp or fixed for joins")
        self.horizon, self.alpha = horizon, alpha
        make = model if model is not None else lambda side: Chooser(caching=caching)
        self.models: list[Model] = [make(0)] if caching else [make(0), make(1)]
        self._rates = ArrivalRates()

    @property
    def alpha_in_use(self) -> float | None:
        """The α that was given; None: that of Little's law."""
        return self.alpha

    @property
    def per_key(self) -> bool:
        return not any(getattr(model, "by_age", False) for model in self.models)

    @property
    def by_value(self) -> bool:
        return any(getattr(model, "by_value", True) for model in self.models)

    def seen(self, side: int, arrivals: Arrivals) -> None:
        if not len(arrivals.keys):
            return
        super().seen(side, arrivals)
        self._rates.add(side, len(arrivals.keys), float(arrivals.at[-1]))
        self.models[side].observe(arrivals)
        if not self.caching:
            self.models[1 - side].observe_rows(arrivals)

    def __call__(self, side: int, rows: KeptRows, now: float, kept: int) -> Doubles:
        partner = self.partner(side)
        model, steps = self.models[partner], self._steps(partner, rows, now)
        if self.horizon == "exp":
            found = model.score(steps, self._q(partner, kept), self.caching)
        elif self.horizon == "inv":
            found = _inverse(model, steps)
        else:
            cut = math.inf if self.horizon == "inf" else self._alpha(kept) * 2.0 * self._share(partner)
            limited = steps._replace(left=np.minimum(steps.left, max(1.0, cut)))
            found = model.score(limited, 1.0, self.caching)
        return drop_expired(found, rows.left)

    def _alpha(self, kept: int) -> float:
        return self.alpha if self.alpha is not None else little_alpha(kept, self.caching)

    def _share(self, partner: int) -> float:
        return 0.5 if self.caching else max(1e-9, self._rates.share(partner))

    def _q(self, partner: int, kept: int) -> float:
        """The weight of a step of the partner: e^(-1/α) if both sides are equally fast. Rounded, for the
        tables."""
        steps = self._alpha(kept) * 2.0 * self._share(partner)
        return math.exp(-1.0 / float(f"{steps:.3g}")) if self.alpha is None else math.exp(-1.0 / steps)

    def _steps(self, partner: int, rows: KeptRows, now: float) -> Steps:
        rate = self._rates.of(partner)
        if math.isinf(rate):
            left = np.where(rows.left > 0.0, np.inf, 0.0)
            return Steps(rows.keys, rows.values, np.zeros(len(rows.keys)), left)
        left = rows.left * rate if rate > 0.0 else np.where(rows.left > 0.0, rows.left, 0.0)
        return Steps(rows.keys, rows.values, np.maximum(0.0, (now - rows.at) * rate), left)

    def discard(self, keys: Index) -> None:
        for model in self.models:
            model.discard(keys)

    def bound(self, most_bytes: int) -> None:
        for model in self.models:
            if isinstance(model, Chooser):
                model.most_bytes = most_bytes

    @property
    def nbytes(self) -> int:
        return 1024 + sum(model.nbytes for model in self.models)

    def _check(self) -> None:
        for model in self.models:
            model._check()


def _inverse(model: Model, steps: Steps) -> Doubles:
    """L(d) = 1/d as an integral over q: 1/d = ∫ q^(d-1) dq from 0 to 1. In closed form where there is one."""
    if isinstance(model, Chooser):
        model = model.chosen
    if isinstance(model, Stationary) and np.all(np.isinf(steps.left)):
        return model.inverse(steps)
    out = np.zeros(len(steps.keys))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):  # q = 1 - y^4: dense where H(q) is steep, near 1
        y = 0.5 * (node + 1.0)
        q = 1.0 - y**4
        out += 0.5 * weight * 4.0 * y**3 / q * model.score(steps, q, True)
    return out
