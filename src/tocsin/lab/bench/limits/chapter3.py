"""T07, chapter 3: joins of streams in bounded memory, and caching.

The published numbers are few and the values of the plots are lost: `stated` is what the text says. Figures
3.1-3.6 and 3.8 are drawings of distributions and ECBs, 3.18 and 3.19 are never mentioned in the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tocsin.errors import UsageError
from tocsin.lab.bench.claim import Claim
from tocsin.lab.bench.limits.drift import measure_drift
from tocsin.lab.bench.limits.figures import (
    FigureRow,
    LimitsFigure,
    LimitsResult,
    LimitsSetting,
)
from tocsin.lab.bench.limits.workloads import (
    WORKLOADS,
    StreamWorkload,
    given_heeb,
    normal_noise,
    optimum,
    play,
    play_score,
)
from tocsin.limits.cache import Cache, CachePolicy, Lfd, Scored, cache_policy
from tocsin.limits.flow import flow_expect
from tocsin.limits.models import Ar1, Arrivals
from tocsin.limits.models.base import Doubles
from tocsin.limits.models.markov import Ar1Law, ar1_scores
from tocsin.limits.models.tables import Surface, normal_steps, visits
from tocsin.limits.scores import Heeb, little_alpha
from tocsin.model.columns import Index

__all__ = ["FIGURES"]

Say = Callable[[str], None]
_SIZE = 1 << 12
ONLINE = ("RAND", "PROB", "LIFE")
SIZES = (1, 2, 5, 10, 15, 20, 30, 40, 50)
OPT_RUNS = 3
REAL_SIZES = (10, 25, 50, 75, 100, 150, 200, 250, 300)
THESIS_LAW = Ar1Law(5.59 / (1.0 - 0.72), 0.72, 4.22, 0.1)


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
        Claim("no drift: h1(d) - h1(-d), largest", float(abs(here - here[::-1]).max()), at_most=1e-9),
        Claim("drift 4: share of the mass on the right", right, at_least=0.95),
        Claim("drift 4: h1(4) / h1(6)", float(found[4][24] / found[4][26]), at_least=1.0),
    ]
    return LimitsResult(rows, claims, "α = 10; exact up to the FFT's rounding.")


# -- 3.9 - 3.13 --------------------------------------------------------------------------------------


def _policies(work: StreamWorkload) -> tuple[str, ...]:
    return ("HEEB", "RAND", "PROB") if work.walk else ("HEEB", *ONLINE)


def _mean(numbers: Iterable[float]) -> float:
    return float(np.mean(list(numbers)))


def _by_policy(setting: LimitsSetting, say: Say) -> LimitsResult:
    """Results of all policies at k = 10."""
    runs, slots, rows, claims = setting.runs or 50, 10, [], []
    seeds = range(setting.seed, setting.seed + runs)
    few = seeds[: min(runs, OPT_RUNS)]
    bars = {"TOWER": 0.99, "ROOF": 0.76}
    for name, work in WORKLOADS.items():
        say(f"{name}: {runs} runs")
        found = {
            policy: _mean(play(work, slots, policy, seed).matches for seed in seeds)
            for policy in _policies(work)
        }
        ours = little_alpha(slots)
        found["HEEB, default α"] = _mean(
            play(work, slots, "HEEB", seed, alpha=ours).matches for seed in seeds
        )
        say(f"{name}: OPT-offline, {len(few)} runs")
        found["OPT"] = _mean(optimum(work, slots, seed) for seed in few)
        on_same = _mean(play(work, slots, "HEEB", seed).matches for seed in few)
        for policy, value in found.items():
            rows.append(FigureRow(name, policy, slots, value))
        rival = max(found[policy] for policy in _policies(work)[1:])
        claims.append(
            Claim(f"{name}: HEEB / the best of RAND, PROB, LIFE", found["HEEB"] / rival, at_least=1.0)
        )
        if name in bars:
            claims.append(
                Claim(f"{name}: HEEB / OPT, same runs", on_same / found["OPT"], at_least=bars[name])
            )
        if name == "FLOOR":
            claims.append(Claim("FLOOR: HEEB / RAND", found["HEEB"] / found["RAND"], at_least=1.05))
        if work.walk:
            claims.append(Claim("WALK: HEEB / PROB", found["HEEB"] / found["PROB"], at_least=2.0))
    learned_rows, learned_claims = _learned(seeds[: max(1, runs // 10)], slots, say)
    rows += learned_rows + _flow_bars(seeds[: min(2, runs)], slots, say)
    note = (
        f"5000 steps, matches after step {4 * slots}, {runs} runs; OPT over {len(few)}; learned models over"
        f" {max(1, runs // 10)}; FlowExpect looks 5 steps ahead, 1000 steps, {min(2, runs)} runs."
    )
    return LimitsResult(rows, claims + learned_claims, note)


def _learned(seeds: Sequence[int], slots: int, say: Say) -> tuple[list[FigureRow], list[Claim]]:
    """HEEB of the product, with the true models and with models that it chooses and fits by itself."""
    rows, claims = [], []
    for name, work in WORKLOADS.items():
        say(f"{name}: learned models, {len(seeds)} runs")
        alpha, given, learned = work.alpha(slots), [], []
        for seed in seeds:
            streams = work.draw(5000, seed)
            given.append(play_score(streams, given_heeb(work, alpha), slots))
            learned.append(play_score(streams, Heeb(alpha=alpha), slots))
        rows.append(FigureRow(f"{name}, learned", "HEEB, models given", slots, _mean(given)))
        rows.append(FigureRow(f"{name}, learned", "HEEB, models learned", slots, _mean(learned)))
        share, bar = sum(learned) / sum(given), 0.97 if work.walk else 0.99
        claims.append(Claim(f"{name}: models learned / given", share, at_least=bar))
    return rows, claims


def _flow_bars(seeds: Sequence[int], slots: int, say: Say) -> list[FigureRow]:
    rows = []
    for name, work in WORKLOADS.items():
        if not work.walk:
            say(f"{name}: FlowExpect, {len(seeds)} runs")
            found = {"FlowExpect": _mean(play_flow(work, slots, 5, seed, 1000) for seed in seeds)}
            for policy in ("HEEB", "RAND"):
                found[policy] = _mean(play(work, slots, policy, seed, steps=1000).matches for seed in seeds)
            rows += [FigureRow(f"{name}, 1000 steps", policy, slots, v) for policy, v in found.items()]
    return rows


def _by_size(name: str) -> Callable[[LimitsSetting, Say], LimitsResult]:
    def measure(setting: LimitsSetting, say: Say) -> LimitsResult:
        runs, work, rows, claims = setting.runs or 20, WORKLOADS[name], [], []
        seeds = range(setting.seed, setting.seed + runs)
        for slots in SIZES:
            say(f"{name}: k = {slots}")
            found = {p: _mean(play(work, slots, p, seed).matches for seed in seeds) for p in _policies(work)}
            few = seeds[: min(runs, OPT_RUNS)]
            found["OPT"] = _mean(optimum(work, slots, seed) for seed in few)
            rows += [FigureRow(name, policy, slots, value) for policy, value in found.items()]
            rival = max(found[policy] for policy in _policies(work)[1:])
            claims.append(
                Claim(f"k = {slots}: HEEB / best online rival", found["HEEB"] / rival, at_least=0.99)
            )
        note = f"5000 steps, matches after step 4k, {runs} runs, OPT over the first {min(runs, OPT_RUNS)}."
        return LimitsResult(rows, claims, note)

    return measure


# -- 3.14: REAL --------------------------------------------------------------------------------------


def _real(setting: LimitsSetting, say: Say) -> LimitsResult:
    assert setting.data is not None
    values, rows, claims = read_temperatures(setting.data), [], []
    for slots in REAL_SIZES:
        say(f"REAL: k = {slots}")
        found = {name: cache_hits(values, slots, make(values)) for name, make in REAL_POLICIES.items()}
        rows += [FigureRow("REAL", policy, slots, float(hits)) for policy, hits in found.items()]
        rival = max(found[name] for name in ("LRU", "LFU", "ARC", "S3-FIFO"))
        claims.append(Claim(f"k = {slots}: HEEB / best rival", found["HEEB"] / rival, at_least=0.98))
        bar = {10: 1.05, 150: 1.12}.get(slots)
        if bar is not None:
            claims.append(Claim(f"k = {slots}: HEEB / LRU", found["HEEB"] / found["LRU"], at_least=bar))
    law = fitted(values)
    level, note = law.mean * (1.0 - law.phi), f"{len(values)} references, α = k."
    note += f" The fixed fit (whole series): φ1 {law.phi:.3f}, φ0 {level:.3f}, σ {law.sd:.3f};"
    note += " stated .72, 5.59, 4.22."
    return LimitsResult(rows, claims, note)


# -- 3.15 --------------------------------------------------------------------------------------------


def _share_of_r(setting: LimitsSetting, say: Say) -> LimitsResult:
    """The share of slots that tuples of R have, where R lags or S varies more."""
    runs, rows = setting.runs or 10, []
    noise = {sd: tuple(normal_noise(30 if sd == 8.0 else 15, sd).tolist()) for sd in (2.0, 4.0, 8.0)}
    cases = {
        "same": (0, 2.0),
        "R lags 2": (2, 2.0),
        "R lags 4": (4, 2.0),
        "S: sd × 2": (0, 4.0),
        "S: sd × 4": (0, 8.0),
    }
    found: dict[tuple[str, int], float] = {}
    for case, (lag, sd) in cases.items():
        say(case)
        work = replace(WORKLOADS["TOWER"], name=case, r_noise=noise[2.0], s_noise=noise[sd], lag=lag)
        for slots in (5, 10, 20):
            seeds = range(setting.seed, setting.seed + runs)
            found[case, slots] = _mean(play(work, slots, "HEEB", seed).share for seed in seeds)
            rows.append(FigureRow("TOWER, both sd 2", case, slots, found[case, slots]))
    expected = {"same": 0.5, "R lags 2": 0.31, "R lags 4": 0.13, "S: sd × 2": 0.63, "S: sd × 4": 0.74}
    claims = [
        Claim(f"k = 10, {case}: difference to {value}", abs(found[case, 10] - value), at_most=0.03)
        for case, value in expected.items()
    ]
    return LimitsResult(rows, claims, f"HEEB, {runs} runs.")


# -- 3.16, 3.17 --------------------------------------------------------------------------------------


def _h2(alpha: float) -> Callable[[Doubles, Doubles], Doubles]:
    q = math.exp(-1.0 / alpha)
    return lambda v, x: ar1_scores(THESIS_LAW, v, x, np.full(len(v), np.inf), (q, False))


def _surface(setting: LimitsSetting, say: Say) -> LimitsResult:
    rows = []
    for alpha in (10.0, 100.0):
        v = np.linspace(4.0, 44.0, 41)
        for x in (10.0, 20.0, 30.0):
            found = _h2(alpha)(v, np.full(len(v), x))
            rows += [
                FigureRow(f"REAL, α = {alpha:g}", f"x = {x:g}", a, b)
                for a, b in zip(v.tolist(), found.tolist(), strict=True)
            ]
    peak = max((row for row in rows if row.policy == "x = 10"), key=lambda row: row.value)
    claims = [Claim("x = 10, α = 10: where h2 is largest", float(peak.x), at_least=10.0, at_most=20.0)]
    return LimitsResult(rows, claims, "h2 is largest between the last value and the mean.")


def _points(setting: LimitsSetting, say: Say) -> LimitsResult:
    rows, claims = [], []
    for alpha in (10.0, 100.0, 300.0):
        for points in (5, 9, 17, 33):
            surface = Surface(_h2(alpha), 4.0, 44.0, points)
            stated = "satisfactory" if points == 5 else None
            rows.append(
                FigureRow("REAL: largest error / maximum", f"α = {alpha:g}", points, surface.error, stated)
            )
            if points == 17:
                claims.append(Claim(f"α = {alpha:g}: error of 17 x 17 points", surface.error, at_most=0.005))
    return LimitsResult(rows, claims, "Bicubic splines; the error on a grid four times as fine.")


# -- 3.20 --------------------------------------------------------------------------------------------


def _look_ahead(setting: LimitsSetting, say: Say) -> LimitsResult:
    runs, slots, work, rows = setting.runs or 3, 20, WORKLOADS["FLOOR"], []
    seeds = range(setting.seed, setting.seed + runs)
    found = {}
    others = {
        p: _mean(play(work, slots, p, seed, steps=500).matches for seed in seeds) for p in ("HEEB", "RAND")
    }
    for ahead in (1, 2, 3, 5, 8, 12):
        say(f"look-ahead {ahead}")
        found[ahead] = _mean(play_flow(work, slots, ahead, seed, 500) for seed in seeds)
        rows.append(FigureRow("FLOOR", "FlowExpect", ahead, found[ahead]))
        rows += [FigureRow("FLOOR", policy, ahead, value) for policy, value in others.items()]
    claims = [
        Claim("look-ahead 5 / 1", found[5] / found[1], at_least=1.02),
        Claim("look-ahead 12 / 5: still rising", found[12] / found[5], at_least=1.0),
    ]
    return LimitsResult(rows, claims, f"k = 20, 500 steps, {runs} runs.")


_MANY = "OPT first; HEEB above RAND, PROB, LIFE always and above FlowExpect mostly; sd below 5 % except WALK"
_GROWING = "all reach OPT with memory (not on WALK), HEEB much faster on TOWER, ROOF"

FIGURES = (
    LimitsFigure(
        *("3.7", "HEEB's score by distance from the walk", "v - x", "h1", 1, _walk_scores),
        "no drift: symmetric around 0; a larger drift favours the right, with bumps at its multiples",
    ),
    LimitsFigure("3.9", "Results by policy", "k", "matches", 50, _by_policy, _MANY),
    LimitsFigure("3.10", "Results by memory, TOWER", "k", "matches", 20, _by_size("TOWER"), _GROWING),
    LimitsFigure("3.11", "Results by memory, ROOF", "k", "matches", 20, _by_size("ROOF"), _GROWING),
    LimitsFigure("3.12", "Results by memory, FLOOR", "k", "matches", 20, _by_size("FLOOR"), _GROWING),
    LimitsFigure("3.13", "Results by memory, WALK", "k", "matches", 20, _by_size("WALK"), _GROWING),
    LimitsFigure(
        *("3.14", "Hits of a cache, REAL", "k", "hits", 1, _real),
        "HEEB leads at all sizes, up to 20 % above LRU and LFU",
        needs_data=True,
    ),
    LimitsFigure(
        *("3.15", "Share of the memory that R has", "k", "share", 10, _share_of_r),
        "less memory for streams that lag or vary more",
    ),
    LimitsFigure("3.16", "HEEB's score for AR(1)", "v", "h2", 1, _surface),
    LimitsFigure(
        *("3.17", "The same from control points: errors", "points per side", "error", 1, _points),
        "25 control points (5 x 5) are satisfactory",
    ),
    LimitsFigure(
        *("3.20", "FlowExpect by look-ahead", "look-ahead", "matches", 3, _look_ahead),
        "a clear gain up to about 5, then flat",
    ),
    LimitsFigure(
        *("drift", "TOWER, then WALK, then Zipf keys, 2000 steps each", "part", "matches", 5, measure_drift),
    ),
)


# -- FlowExpect on the trend workloads -----------------------------------------------------------------


def play_flow(work: StreamWorkload, slots: int, ahead: int, seed: int, steps: int) -> int:
    """Matches of kept tuples from step 4 · slots on."""
    r, s = work.draw(steps, seed).tolist()
    later = _of_later_tuples(work, ahead)
    kept: list[tuple[int, int]] = []
    found = 0
    for t in range(steps):
        if t >= 4 * slots:
            found += sum(value == (r, s)[1 - side][t] for side, value in kept)
        kept += [(0, r[t]), (1, s[t])]
        if len(kept) <= slots:
            continue

        def gain(x: int | tuple[int, int], d: int, t: int = t, rows: list[tuple[int, int]] = kept) -> float:
            if isinstance(x, tuple):
                return later[x[0], d - x[1]]
            side, value = rows[x]
            return _probability(work, 1 - side, value - (t + d - work.lag_of(1 - side)))

        choice = flow_expect(len(kept), slots, ahead, gain)
        kept = [kept[x] for x in choice.kept]
    return found


def _probability(work: StreamWorkload, side: int, noise: int) -> float:
    pmf, bound = (work.r_noise, work.s_noise)[side], work.bound(side)
    return pmf[noise + bound] if -bound <= noise <= bound else 0.0


def _of_later_tuples(work: StreamWorkload, ahead: int) -> dict[tuple[int, int], float]:
    """By stream and steps since it arrived: the probability that a tuple to come matches."""
    found = {}
    for side in (0, 1):
        own, bound = (work.r_noise, work.s_noise)[side], work.bound(side)
        for gap in range(1, ahead + 1):
            shift = work.lag_of(1 - side) - work.lag_of(side) - gap
            found[side, gap] = sum(
                p * _probability(work, 1 - side, e - bound + shift) for e, p in enumerate(own)
            )
    return found


# -- REAL: the daily maximum temperatures of Melbourne, 1981-1990, as references to a cache of values ---


_DEGREE = 10  # values are tenths of a degree


def read_temperatures(path: Path) -> Doubles:
    """A header, then one number per line; of several columns, the last."""
    try:
        lines = path.read_text("utf-8").split()[1:]
        values = np.array([float(line.split(",")[-1].strip('"')) for line in lines])
    except ValueError as error:
        raise UsageError(f"{path} has a line that is no number: {error}", hint="one per line") from None
    if len(values) < 100:
        raise UsageError(f"{path} has {len(values)} values", hint="3650 daily temperatures, below a header")
    return values


def keys_of(values: Doubles) -> Index:
    found = np.rint(values * _DEGREE).astype(np.int64)
    return found - found.min()


def fitted(values: Doubles) -> Ar1Law:
    """AR(1) on the whole series, as in the thesis: it knows what is to come.

    >>> fitted(np.array([1.0, 2.0, 1.0, 2.0, 1.5, 1.0])).width
    0.1
    """
    z, y = values[:-1], values[1:]
    phi = float(np.cov(z, y, bias=True)[0, 1] / z.var())
    level = float(y.mean() - phi * z.mean())
    return Ar1Law(level / (1.0 - phi), phi, float((y - level - phi * z).std()), 1.0 / _DEGREE)


def _fixed(values: Doubles) -> CachePolicy:
    law = fitted(values)
    return Scored(Heeb(caching=True, model=lambda side: Ar1(law=law)))


REAL_POLICIES: dict[str, Callable[[Doubles], CachePolicy]] = {
    "LFD": lambda values: Lfd(keys_of(values).tolist()),
    "HEEB": lambda values: cache_policy("heeb"),
    "HEEB, fixed fit": _fixed,
    "LRU": lambda values: cache_policy("lru"),
    "LFU": lambda values: cache_policy("lfu"),
    "RAND": lambda values: cache_policy("rand"),
    "ARC": lambda values: cache_policy("arc"),
    "S3-FIFO": lambda values: cache_policy("s3-fifo"),
}


def cache_hits(values: Doubles, slots: int, policy: CachePolicy) -> int:
    """Hits of a cache of so many values, reference by reference."""
    cache, keys = Cache(slots, policy), keys_of(values)
    for step in range(len(keys)):
        one = slice(step, step + 1)
        cache.refer(Arrivals(keys[one], values[one], np.full(1, float(step))))
    return cache.hits
