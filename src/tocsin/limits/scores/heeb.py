"""HEEB: the expected benefit of keeping a row, weighed by how long a row usually stays.

    H = sum over d >= 1 of (B(d) - B(d-1)) L(d)        L^exp(d) = e^(-d/α)     (the default)
                                                       L^fixed(d) = 1 for d <= D
                                                       L^inf(d) = 1, L^inv(d) = 1/d: caching only

B(d) comes from a model of the partner's key (`tocsin.limits.models`). Little's law gives the mean lifetime
of a row without observing any: rows kept / rows arriving per step. Half the α of that lifetime is the
default, which was at least 0.98 of the best on all of the thesis's workloads; rows of both sides are
weighed per unit of time, so that they compare when the streams differ in speed.

`AdaptiveHeeb` learns α by ghost caches of keys alone, one for each of three α:

    arrivals ─► those of sampled keys ─► three ghosts: hits, then drop the lowest ─► the best of a window

The ghosts keep keys and times, no rows, for at most 256 rows each: keys are sampled, one of 1, 2, 4, ..., and
a ghost has place for as small a share of the rows that the buffer keeps. Hits are pairs of sampled keys. The
three α are that of Little's law, a quarter of it, and four times it.
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
from tocsin.model.columns import Index, Mask

__all__ = ["HORIZONS", "AdaptiveHeeb", "Heeb", "little_alpha"]

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

    def renumber(self, before: Index) -> None:
        for model in self.models:
            model.renumber(before)

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


_FACTORS = (0.25, 1.0, 4.0)
_MOST = 256  # rows of a ghost
_LEAST_WINDOW, _WINDOW = 512, 4  # sampled arrivals that decide; or four times the rows of a ghost
_CLEARLY = 1.02  # how much better another α must be
_STEP = np.uint64(0x9E3779B97F4A7C15)


class _Ghost:
    """Keys of rows that a buffer with one α would keep."""

    def __init__(self, factor: float) -> None:
        self.factor, self.hits = factor, 0
        self.side, self.key = np.empty(0, np.int64), np.empty(0, np.int64)
        self.at, self.value = np.empty(0), np.empty(0)

    def keep(self, mask: Mask) -> None:
        self.side, self.key = self.side[mask], self.key[mask]
        self.at, self.value = self.at[mask], self.value[mask]

    def join(self, side: int, arrivals: Arrivals, spans: list[float]) -> None:
        """Count the pairs with arrivals of a side, and keep those. `spans`: how long rows have partners."""
        first = float(arrivals.at[0])
        alive = np.where(self.side == 0, self.at + spans[0], self.at + spans[1]) >= first
        if not alive.all():
            self.keep(alive)
        others = np.sort(self.key[self.side != side])
        ends = np.searchsorted(others, arrivals.keys, "right") - np.searchsorted(others, arrivals.keys)
        self.hits += int(ends.sum())
        size = len(arrivals.keys)
        values = np.full(size, np.nan) if arrivals.values is None else arrivals.values
        self.side = np.concatenate([self.side, np.full(size, side, np.int64)])
        self.key, self.at = np.concatenate([self.key, arrivals.keys]), np.concatenate([self.at, arrivals.at])
        self.value = np.concatenate([self.value, values])

    @property
    def nbytes(self) -> int:
        return self.side.nbytes + self.key.nbytes + self.at.nbytes + self.value.nbytes


class AdaptiveHeeb(Heeb):
    """HEEB with the α whose ghost had most pairs in the last window. For joins; caches keep Little's α.

    >>> score = AdaptiveHeeb()
    >>> score.seen(1, Arrivals(np.array([7, 7, 8]), None, np.arange(3.0)))
    >>> rows = KeptRows(np.array([7, 8]), None, np.zeros(2), np.full(2, np.inf))
    >>> score(0, rows, now=3.0, kept=10).round(2), round(score.alpha_in_use, 2)
    (array([0.32, 0.19]), 2.24)
    """

    def __init__(
        self, caching: bool = False, seed: int = 0, *, model: Callable[[int], Model] | None = None
    ) -> None:
        super().__init__(caching, seed, model=model)
        self._factor = 1.0
        self._ghosts = [_Ghost(factor) for factor in _FACTORS]
        self._spans = [math.inf, math.inf]  # by side
        self._every = 1  # one of so many keys is sampled
        self._kept = self._sampled = 0  # rows that the buffer keeps; sampled arrivals of this window
        self._numeric = False

    @property
    def alpha_in_use(self) -> float | None:
        return self._alpha(self._kept) if self._kept else None

    def _alpha(self, kept: int) -> float:
        return self._factor * little_alpha(kept, self.caching)

    def seen(self, side: int, arrivals: Arrivals) -> None:
        super().seen(side, arrivals)
        if not self._kept or self.caching or not len(arrivals.keys):  # nothing had to be dropped yet
            return
        mine = self._is_sampled(arrivals.keys)
        if not mine.any():
            return
        values = None if arrivals.values is None else arrivals.values[mine]
        self._numeric = values is not None
        some = Arrivals(arrivals.keys[mine], values, arrivals.at[mine])
        for ghost in self._ghosts:
            ghost.join(side, some, self._spans)
            self._drop(ghost, float(arrivals.at[-1]))
        self._sampled += len(some.keys)
        if self._sampled >= max(_LEAST_WINDOW, _WINDOW * self._place):
            self._decide()

    def __call__(self, side: int, rows: KeptRows, now: float, kept: int) -> Doubles:
        if len(rows.keys):
            self._spans[side] = float(rows.left[0] + max(0.0, now - rows.at[0]))
        self._kept = kept
        while kept // self._every > _MOST:
            self._every *= 2
            for ghost in self._ghosts:
                ghost.keep(self._is_sampled(ghost.key))
        while self._every > 1 and 4 * kept // self._every < _MOST:
            self._every //= 2
        return super().__call__(side, rows, now, kept)

    @property
    def _place(self) -> int:
        """How many rows a ghost keeps."""
        return max(1, self._kept // self._every)

    def _is_sampled(self, keys: Index) -> Mask:
        if self._every == 1:
            return np.ones(len(keys), np.bool_)
        mixed = (keys.astype(np.uint64) * _STEP) >> np.uint64(40)
        return (mixed & np.uint64(self._every - 1)) == 0

    def _drop(self, ghost: _Ghost, now: float) -> None:
        """Drop the rows of the lowest scores: a tenth more than needed."""
        size, place = len(ghost.key), self._place
        if size <= place:
            return
        scores = np.empty(size)
        for side in range(2):
            mine = np.flatnonzero(ghost.side == side)
            if len(mine):
                at, values = ghost.at[mine], ghost.value[mine] if self._numeric else None
                rows = KeptRows(ghost.key[mine], values, at, at + self._spans[side] - now)
                scores[mine] = self._benefits(ghost, side, rows, now)
        lowest = np.argsort(scores, kind="stable")[: size - place + place // 10]
        keep = np.ones(size, np.bool_)
        keep[lowest] = False
        ghost.keep(keep)

    def _benefits(self, ghost: _Ghost, side: int, rows: KeptRows, now: float) -> Doubles:
        """Scores of a ghost's rows with its α."""
        chosen, self._factor = self._factor, ghost.factor
        partner = self.partner(side)
        with np.errstate(all="ignore"):
            steps = self._steps(partner, rows, now)
            found = self.models[partner].score(steps, self._q(partner, self._kept), self.caching)
        self._factor = chosen
        return drop_expired(found, rows.left)

    def _decide(self) -> None:
        """The best α of the window wins, if it is clearly better."""
        hits = {ghost.factor: ghost.hits for ghost in self._ghosts}
        best = max(hits, key=hits.__getitem__)
        if hits[best] > _CLEARLY * hits[self._factor] + 1.0:
            self._factor = best
        self._sampled = 0
        for ghost in self._ghosts:
            ghost.hits = 0

    def discard(self, keys: Index) -> None:
        super().discard(keys)
        for ghost in self._ghosts:
            if len(ghost.key):
                ghost.keep(~np.isin(ghost.key, keys))

    def renumber(self, before: Index) -> None:
        """Simulations begin anew: other codes are sampled now."""
        super().renumber(before)
        for ghost in self._ghosts:
            ghost.keep(np.zeros(len(ghost.key), np.bool_))

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(ghost.nbytes for ghost in self._ghosts)

    def _check(self) -> None:
        super()._check()
        assert self._factor in _FACTORS and self._every.bit_count() == 1
        for ghost in self._ghosts:
            assert len(ghost.key) == len(ghost.side) == len(ghost.at) == len(ghost.value)
            assert np.all(self._is_sampled(ghost.key)) and len(ghost.key) <= max(1, 4 * _MOST)
