"""The workloads of T07, chapter 3: streams that follow a trend (TOWER, ROOF, FLOOR) and random walks (WALK).

R lags one step behind S; noise is bounded: 10 for R, 15 for S. `play` joins two streams in k slots by a
policy whose model is given; `play_score` does it with a `Score` of the product, which learns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tocsin.lab.bench.limits._kernels import HEEB, LIFE, PROB, RAND, simulate_join
from tocsin.limits.flow import opt_offline
from tocsin.limits.models import Arrivals, KeptRows, Line, Trend, Walk, WalkLaw, alpha_of_life
from tocsin.limits.models.base import Doubles, Model, Steps
from tocsin.limits.scores import Heeb, Score

__all__ = [
    *("POLICIES", "STEPS", "WORKLOADS", "StreamWorkload", "Played", "given_heeb", "normal_noise"),
    *("matches_by_step", "optimum", "play", "play_score", "uniform_noise"),
]

STEPS = 5000
POLICIES = {"RAND": RAND, "PROB": PROB, "LIFE": LIFE, "HEEB": HEEB}
Streams = NDArray[np.int64]


def normal_noise(bound: int, sd: float) -> Doubles:
    """Normal noise of whole numbers within a bound."""
    edges = np.arange(-bound, bound + 2) - 0.5
    below = np.array([0.5 * math.erfc(-edge / (sd * math.sqrt(2.0))) for edge in edges.tolist()])
    pmf = np.diff(below)
    return pmf / pmf.sum()


def uniform_noise(bound: int) -> Doubles:
    return np.full(2 * bound + 1, 1.0 / (2 * bound + 1))


@dataclass(frozen=True)
class StreamWorkload:
    """Noise of R and S by whole numbers around 0; `life`: the mean lifetime that gives HEEB's α."""

    name: str
    r_noise: tuple[float, ...]
    s_noise: tuple[float, ...]
    life: float
    walk: bool = False
    lag: int = 1

    def noise(self, side: int) -> Doubles:
        return np.array((self.r_noise, self.s_noise)[side])

    def bound(self, side: int) -> int:
        return len((self.r_noise, self.s_noise)[side]) // 2

    def lag_of(self, side: int) -> int:
        return 0 if self.walk or side else self.lag

    def alpha(self, slots: int) -> float:
        """The thesis's: from the lifetime, or the slots for walks."""
        return float(max(1, slots)) if self.walk else alpha_of_life(self.life)

    def draw(self, steps: int, seed: int) -> Streams:
        """Values of R and S."""
        rng = np.random.default_rng(seed)
        noise = [
            rng.choice(2 * self.bound(side) + 1, steps, p=self.noise(side)) - self.bound(side)
            for side in (0, 1)
        ]
        if self.walk:
            return np.cumsum(noise, axis=1)
        return np.stack([np.arange(steps) - self.lag_of(side) + noise[side] for side in (0, 1)])

    def model(self, side: int, step: int = 0, last: float = 0.0) -> Model:
        """The true model of a stream."""
        bound = self.bound(side)
        if self.walk:
            size = 1 << 14
            pmf = np.zeros(size)
            pmf[np.arange(-bound, bound + 1) % size] = self.noise(side)
            return Walk(law=WalkLaw(0.0, 1.0, 1.0, pmf), last=last)
        line = Line(float(step - self.lag_of(side)), 1.0, step, self.noise(side), float(-bound), 1.0)
        return Trend(line=line)


def _named(
    name: str, r: Doubles, s: Doubles, life: float, walk: bool = False, lag: int = 1
) -> StreamWorkload:
    return StreamWorkload(name, tuple(r.tolist()), tuple(s.tolist()), life, walk, lag)


WORKLOADS = {
    work.name: work
    for work in (
        _named("TOWER", normal_noise(10, 1.0), normal_noise(15, 2.0), 3.0),
        _named("ROOF", normal_noise(10, 3.3), normal_noise(15, 5.0), 8.3),
        _named("FLOOR", uniform_noise(10), uniform_noise(15), 12.5),
        _named("WALK", normal_noise(8, 1.0), normal_noise(8, 1.0), 0.0, walk=True),
    )
}


@dataclass(frozen=True)
class Played:
    """Matches after the warm-up; the mean lifetime of dropped tuples; the share of slots that R has."""

    matches: int
    life: float
    share: float


@cache
def _tables(work: StreamWorkload, alpha: float) -> Doubles:
    """H of R and S tuples by offset from the step, or from the partner's last value."""
    half = 2000 if work.walk else 200
    offsets = np.arange(-half, half + 1, dtype=np.float64)
    size = len(offsets)
    rows = Steps(np.arange(size), offsets, np.zeros(size), np.full(size, np.inf))
    q = math.exp(-1.0 / alpha)
    return np.stack([work.model(1 - side).score(rows, q, False) for side in (0, 1)])


def play(
    work: StreamWorkload,
    slots: int,
    policy: str,
    seed: int,
    *,
    steps: int = STEPS,
    alpha: float | None = None,
    warm: int | None = None,
) -> Played:
    """Join the streams of a seed in so many slots, with the true models."""
    streams = work.draw(steps, seed)
    tables = _tables(work, alpha if alpha is not None else work.alpha(slots))
    base = int(streams.min())
    warm = 4 * slots if warm is None else warm
    span = int(streams.max()) - base + 1
    setting = (slots, POLICIES[policy], int(work.walk), warm, base, span)
    window = np.array([work.bound(1) + work.lag_of(1), work.bound(0) + work.lag_of(0)])
    noise = np.random.default_rng((seed, 1)).random((steps, 2 * (slots + 2)))
    out = np.zeros(4)
    simulate_join(streams, tables, setting, window, noise, out)
    return Played(int(out[0]), float(out[1] / max(1.0, out[2])), float(out[3]))


def optimum(work: StreamWorkload, slots: int, seed: int, steps: int = STEPS) -> int:
    """The matches of OPT-offline."""
    r, s = work.draw(steps, seed).tolist()
    return opt_offline(r, s, slots, count_from=4 * slots)


def given_heeb(work: StreamWorkload, alpha: float | None) -> Heeb:
    """The product's HEEB with the true models."""
    return Heeb(model=lambda side: work.model(side, -1), alpha=alpha)


def play_score(streams: Streams, score: Score, slots: int, warm: int | None = None) -> int:
    """Matches of kept tuples by any score from step `warm` on."""
    return int(matches_by_step(streams, score, slots)[4 * slots if warm is None else warm :].sum())


def matches_by_step(streams: Streams, score: Score, slots: int) -> NDArray[np.int64]:
    """Joins step by step; the tuples with the lowest scores leave at the end of each step."""
    base, found = int(streams.min()), np.zeros(streams.shape[1], np.int64)
    side = np.empty(0, np.int64)
    value, arrival = np.empty(0, np.int64), np.empty(0)
    for t in range(streams.shape[1]):
        now = streams[:, t]
        found[t] = np.count_nonzero(value == now[1 - side])
        at = np.full(1, float(t))
        for mine in (0, 1):
            score.seen(mine, Arrivals(now[mine : mine + 1] - base, now[mine : mine + 1].astype(float), at))
        side = np.concatenate([side, [0, 1]])
        value, arrival = np.concatenate([value, now]), np.concatenate([arrival, at, at])
        if len(side) <= slots:
            continue
        scores = np.empty(len(side))
        for mine in (0, 1):
            rows = np.flatnonzero(side == mine)
            kept = value[rows]
            some = KeptRows(kept - base, kept.astype(float), arrival[rows], np.full(len(rows), np.inf))
            scores[rows] = score(mine, some, float(t), slots)
        stay = np.sort(np.argsort(scores, kind="stable")[len(side) - slots :])
        side, value, arrival = side[stay], value[stay], arrival[stay]
    return found
