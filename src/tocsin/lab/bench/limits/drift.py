"""Streams whose nature changes: TOWER, then WALK, then Zipf keys, 2000 steps each.

HEEB that chooses and fits its models as it goes is compared with HEEB that is given the right model of each
part, and with RAND. This is ours: the thesis has no such experiment.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tocsin.lab.bench.claim import Claim
from tocsin.lab.bench.limits.figures import FigureRow, LimitsResult, LimitsSetting
from tocsin.lab.bench.limits.workloads import WORKLOADS, Streams, matches_by_step
from tocsin.limits.models import Arrivals, Line, Steps, Trend, Walk
from tocsin.limits.models.base import Doubles, Model, ModelBase
from tocsin.limits.scores import Heeb, score_of

__all__ = ["draw_drift", "measure_drift"]

PART = 2000
PARTS = ("TOWER", "WALK", "Zipf")
KEYS, SKEW = 1000, 1.1


def draw_drift(seed: int) -> Streams:
    """Values of R and S; a walk begins where the trend ended."""
    rng = np.random.default_rng((seed, 2))
    first = WORKLOADS["TOWER"].draw(PART, seed)
    walk = WORKLOADS["WALK"].draw(PART, seed) + PART
    return np.concatenate([first, walk, rng.choice(KEYS, (2, PART), p=_zipf())], axis=1)


def _zipf() -> Doubles:
    p = 1.0 / np.arange(1, KEYS + 1) ** SKEW
    return p / p.sum()


class _KnownKeys(ModelBase):
    """Keys drawn with known probabilities, by value."""

    def __init__(self) -> None:
        self._p = _zipf()

    def score(self, rows: Steps, q: float, caching: bool) -> Doubles:
        assert rows.values is not None
        place = rows.values.astype(np.int64)
        known = (place >= 0) & (place < KEYS)
        return np.where(known, self._p[np.where(known, place, 0)], 0.0) * q / (1.0 - q)


class _RightModel(ModelBase):
    """The true model of each part, one after the other."""

    def __init__(self, side: int) -> None:
        tower, walk = WORKLOADS["TOWER"], WORKLOADS["WALK"].model(side)
        noise, low = tower.noise(side), -float(tower.bound(side))
        trend = Trend(line=Line(-1.0 - tower.lag_of(side), 1.0, -1, noise, low, 1.0))
        assert isinstance(walk, Walk)
        self._models: list[Trend | Walk | _KnownKeys] = [trend, walk, _KnownKeys()]
        self._count = 0

    def observe(self, arrivals: Arrivals) -> None:
        self._count += len(arrivals.keys)
        for model in self._models[:2]:
            model.observe(arrivals)  # type: ignore[union-attr]

    def likelihood(self) -> float:
        return 0.0

    def score(self, rows: Steps, q: float, caching: bool) -> Doubles:
        return self._models[min(2, (self._count - 1) // PART)].score(rows, q, caching)

    @property
    def nbytes(self) -> int:
        return 0

    def _check(self) -> None:
        assert self._count >= 0


def measure_drift(setting: LimitsSetting, say: Callable[[str], None]) -> LimitsResult:
    runs, slots = setting.runs or 5, 10
    found = {policy: np.zeros(3) for policy in ("HEEB, right model", "HEEB", "RAND")}

    def right(side: int) -> Model:
        return _RightModel(side)

    for seed in range(setting.seed, setting.seed + runs):
        say(f"drift: seed {seed}")
        streams = draw_drift(seed)
        scores = {
            "HEEB, right model": Heeb(model=right),
            "HEEB": Heeb(),
            "RAND": score_of("rand", seed=seed),
        }
        for policy, score in scores.items():
            matches = matches_by_step(streams, score, slots)
            matches[: 4 * slots] = 0
            found[policy] += matches.reshape(3, PART).sum(axis=1) / runs
    rows = [
        FigureRow("drift", policy, PARTS[n], float(v[n])) for policy, v in found.items() for n in range(3)
    ]
    whole = {policy: float(values.sum()) for policy, values in found.items()}
    claims = [
        Claim("HEEB / HEEB with the right model", whole["HEEB"] / whole["HEEB, right model"], at_least=0.95)
    ]
    for n, part in enumerate(PARTS):
        claims.append(Claim(f"{part}: HEEB / RAND", found["HEEB"][n] / found["RAND"][n], at_least=0.98))
    return LimitsResult(rows, claims, f"k = {slots}, {runs} runs, default α.")
