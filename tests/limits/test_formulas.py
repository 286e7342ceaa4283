"""H of every model against direct sums over the future, within 1e-9; where a table is used, its error."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tocsin.limits.models import Ar1, Ar1Law, KeptRows, Line, Stationary, Steps, Surface, Trend, Walk, WalkLaw
from tocsin.limits.models.base import Arrivals, alpha_of_life
from tocsin.limits.models.markov import ar1_scores
from tocsin.limits.models.tables import delay_table, known_future, normal_steps, offset_table, visits
from tocsin.limits.scores import Heeb

ALPHAS = (0.7, 3.0, 20.0)


def joined(p, q):
    """The sum over d >= 1 of p[d-1] q^d."""
    return sum(x * q ** (d + 1) for d, x in enumerate(p))


def cached(p, q):
    """The same for the first match only."""
    total, none = 0.0, 1.0
    for d, x in enumerate(p):
        total += none * x * q ** (d + 1)
        none *= 1.0 - x
    return total


def steps(values, left=np.inf):
    size = len(values)
    return Steps(np.arange(size), np.asarray(values, np.float64), np.zeros(size), np.full(size, float(left)))


@pytest.mark.parametrize("alpha", [*ALPHAS, 1e-4])  # the last: q is 0
@pytest.mark.parametrize("left", [1, 7, math.inf])
def test_stationary(alpha, left):
    model, q = Stationary(), math.exp(-1 / alpha)
    model.observe(Arrivals(np.array([0, 0, 0, 1, 2]), None, np.arange(5.0)))
    rows = Steps(np.arange(4), None, np.zeros(4), np.full(4, float(left)))
    many = int(min(left, 3000))
    for caching, direct in ((False, joined), (True, cached)):
        expected = [direct([p] * many, q) for p in model.probabilities(np.arange(4))]
        assert np.allclose(model.score(rows, q, caching), expected, rtol=0, atol=1e-9)


def test_stationary_inverse_lifetime():
    """L(d) = 1/d in caching: -p ln p / (1 - p), and by quadrature what a finite life leaves of it."""
    score = Heeb(caching=True, horizon="inv", model=lambda side: Stationary())
    for step, key in enumerate((0, 0, 1)):
        score.seen(0, Arrivals(np.array([key]), None, np.array([float(step)])))
    p = score.models[0].probabilities(np.arange(2))
    rows = KeptRows(np.arange(2), None, np.zeros(2), np.full(2, np.inf))
    assert np.allclose(score(0, rows, 3.0, 2), -p * np.log(p) / (1 - p), atol=1e-12)
    left = KeptRows(np.arange(2), None, np.zeros(2), np.full(2, 20.0))
    expected = [sum(x * (1 - x) ** (d - 1) / d for d in range(1, 31)) for x in p]  # 1.5 arrivals per step
    assert np.allclose(score(0, left, 3.0, 2), expected, atol=1e-6)


NOISES = [
    np.full(7, 1 / 7),
    np.array([0.1, 0.0, 0.6, 0.3]),
    np.exp(-0.5 * (np.arange(-10, 11) / 3.0) ** 2) / np.exp(-0.5 * (np.arange(-10, 11) / 3.0) ** 2).sum(),
]


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("slope", [1.0, 2.0, -1.0, -3.0])
@pytest.mark.parametrize("left", [1, 5, math.inf])
def test_trend_with_whole_slopes(alpha, slope, left):
    q = math.exp(-1 / alpha)
    for noise in NOISES:
        low = -(len(noise) // 2)
        model = Trend(line=Line(0.0, slope, 0, noise, float(low), 1.0))
        values = np.arange(-40, 41)
        for caching, direct in ((False, joined), (True, cached)):
            expected = []
            for v in values:
                at = [int(v - slope * d - low) for d in range(1, int(min(left, 400)) + 1)]
                expected.append(direct([noise[e] if 0 <= e < len(noise) else 0.0 for e in at], q))
            found = model.score(steps(values, left), q, caching)
            assert np.allclose(found, expected, rtol=0, atol=1e-9), (caching, slope)


def test_trend_with_uniform_noise_in_closed_form():
    w, q = 10, math.exp(-1 / 4.0)
    model = Trend(line=Line(0.0, 1.0, 0, np.full(2 * w + 1, 1 / (2 * w + 1)), -float(w), 1.0))
    for u in range(-15, 30):
        first, last = max(1, u - w), u + w
        expected = (q**first - q ** (last + 1)) / ((1 - q) * (2 * w + 1)) if last >= first else 0.0
        assert abs(model.score(steps([u]), q, False)[0] - expected) < 1e-9


def test_trend_with_real_slopes_and_offsets():
    """Between grid points the noise is interpolated; against the direct sum of the interpolated noise."""
    noise, q = NOISES[2], math.exp(-1 / 5.0)
    for slope in (0.3, 1.7, -0.45, 0.01):
        model = Trend(line=Line(0.25, slope, 0, noise, -10.0, 1.0))
        values = np.array([-3.4, 0.0, 2.125, 7.9])
        for caching, direct in ((False, joined), (True, cached)):
            expected = [
                direct(
                    [
                        float(np.interp(v - 0.25 - slope * d, np.arange(-11, 12), [0.0, *noise, 0.0]))
                        for d in range(1, 400)
                    ],
                    q,
                )
                for v in values
            ]
            assert np.allclose(model.score(steps(values), q, caching), expected, atol=2e-3), slope


def test_the_incremental_formulas_of_the_thesis():
    """Corollaries 3 and 4: e^(1/α) H - p and (e^(1/α) H - p)/(1 - p), for one step (later they diverge)."""
    p, q = NOISES[2], math.exp(-1 / 4.0)
    wide = np.concatenate([np.zeros(3), p, np.zeros(40)])
    for caching in (False, True):
        h = offset_table(wide, 1, q, caching)
        stays = 1.0 - wide if caching else np.ones(len(wide))
        assert np.allclose((h[1:] / q - wide[:-1]) / stays[:-1], h[:-1], atol=1e-12)


@pytest.mark.parametrize("drift", [0.0, 2.0, 0.37])
@pytest.mark.parametrize("alpha", [3.0, 10.0])
def test_walk_equals_the_sum_over_convolutions(drift, alpha):
    size, q = 1 << 12, math.exp(-1 / alpha)
    step = normal_steps(drift, 1.0, size)
    turn, current, direct = np.fft.fft(step), step.copy(), np.zeros(size)
    for d in range(1, int(40 * alpha)):
        direct += q**d * current
        current = np.fft.ifft(np.fft.fft(current) * turn).real
    assert np.abs(visits(step, q) - direct).max() < 1e-9
    model = Walk(law=WalkLaw(drift, 1.0, 1.0), last=100.0)
    values = 100.0 + np.arange(-20, 60)
    g = direct[np.arange(-20, 60) % size]
    assert np.abs(model.score(steps(values), q, False) - g).max() < 1e-9
    assert np.abs(model.score(steps(values), q, True) - g / (1.0 + direct[0])).max() < 1e-9
    current, few = step.copy(), np.zeros(size)
    for d in range(1, 5):
        few += q**d * current
        current = np.fft.ifft(np.fft.fft(current) * turn).real
    assert np.abs(model.score(steps(values, 4), q, False) - few[np.arange(-20, 60) % size]).max() < 1e-9


def test_far_from_a_walk_nearer_values_are_worth_more():
    model = Walk(law=WalkLaw(0.0, 1.0, 1.0), last=0.0)
    found = model.score(steps(np.arange(0.0, 1500.0, 10.0)), math.exp(-0.1), False)
    assert np.all(np.diff(found) < 0.0) and found[-1] > 0.0


LAW = Ar1Law(19.96, 0.72, 4.22, 0.1)


def ar1_direct(v, x, q, many):
    total = 0.0
    for k in range(1, many + 1):
        mean = LAW.mean + LAW.phi**k * (x - LAW.mean)
        sd = LAW.sd * math.sqrt((1 - LAW.phi ** (2 * k)) / (1 - LAW.phi**2))
        ends = ((v + e - mean) / sd / math.sqrt(2) for e in (0.05, -0.05))
        total += q**k * 0.5 * (math.erf(next(ends)) - math.erf(next(ends)))
    return total


@pytest.mark.parametrize("alpha", [3.0, 10.0, 100.0])
def test_ar1_equals_the_sum_over_steps(alpha):
    q = math.exp(-1 / alpha)
    for v, x in ((12.0, 18.0), (20.0, 25.0), (33.0, 38.0), (25.0, 25.0)):
        g = ar1_direct(v, x, q, int(40 * alpha))
        again = ar1_direct(v, v, q, int(40 * alpha))
        one = (np.array([v]), np.array([x]), np.array([np.inf]))
        assert abs(ar1_scores(LAW, *one, (q, False))[0] - g) < 1e-9
        assert abs(ar1_scores(LAW, *one, (q, True))[0] - g / (1 + again)) < 1e-9
        few = ar1_scores(LAW, np.array([v]), np.array([x]), np.array([6.0]), (q, False))[0]
        assert abs(few - ar1_direct(v, x, q, 6)) < 1e-9


def test_many_rows_of_ar1_are_scored_from_a_table():
    model, q = Ar1(law=LAW, last=25.0), math.exp(-1 / 10.0)
    values = np.linspace(0.0, 50.0, 5000)
    rows = steps(values)._replace(left=np.where(np.arange(5000) % 2, np.inf, 9.0))
    found = model.score(rows, q, True)
    exact = ar1_scores(LAW, values, np.full(5000, 25.0), rows.left, (q, True))
    assert np.abs(found - exact).max() < 2e-3 * exact.max()


def test_first_passage_of_any_chain():
    """Caching: G(v|x) / (1 + G(v|v)), for a random chain against the sum over paths that have not met v."""
    rng = np.random.default_rng(1)
    p = rng.random((6, 6)) ** 2
    p /= p.sum(axis=1, keepdims=True)
    q = math.exp(-1 / 7.0)
    g = np.linalg.inv(np.eye(6) - q * p) - np.eye(6)
    for v in range(6):
        without, first, total = p.copy(), p[:, v].copy(), np.zeros(6)
        without[:, v] = 0.0
        for k in range(1, 400):
            total += q**k * first
            first = without @ first
        assert np.abs(total - g[:, v] / (1 + g[v, v])).max() < 1e-9


def test_known_futures():
    q = math.exp(-1 / 3.0)
    p = [0.0, 1.0, 0.0, 0.0, 1.0]
    assert abs(known_future([2, 5], q, False) - joined(p, q)) < 1e-12
    assert abs(known_future([2, 5], q, True) - cached(p, q)) < 1e-12


def test_delays_by_age():
    q, hazard = math.exp(-1 / 6.0), np.array([0.0, 0.1, 0.5, 0.3, 0.0, 0.9])
    found = delay_table(hazard, 1.0, q)
    for age in range(6):
        assert abs(found[age] - cached(hazard[age:], q)) < 1e-12
    wide = delay_table(hazard, 3.0, q)
    assert abs(wide[1] - cached(np.repeat(hazard[1:], 3), q)) < 1e-12


@pytest.mark.parametrize("alpha", [10.0, 100.0, 300.0])
def test_surfaces(alpha):
    q = math.exp(-1 / alpha)

    def exact(v, x):
        return ar1_scores(LAW, v, x, np.full(len(v), np.inf), (q, False))

    errors = {points: Surface(exact, 4.0, 44.0, points).error for points in (5, 17)}
    assert errors[17] < 0.005 < 0.1 < errors[5]


def test_alpha_from_the_mean_lifetime():
    for life in (1.5, 4.0, 100.0):
        alpha = alpha_of_life(life)
        assert abs(sum(math.exp(-d / alpha) for d in range(6000)) - life) < 1e-6
