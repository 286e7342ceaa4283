"""Models of join keys: what all have in common (found by themselves), what each learns, which is chosen."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.engine import Engine
from tocsin.lab.bench.limits.workloads import WORKLOADS
from tocsin.lab.discover import implementations
from tocsin.limits.models import (
    Ar1,
    Arrivals,
    Chooser,
    Delay,
    Line,
    ModelBase,
    Stationary,
    Steps,
    Trend,
    Walk,
)
from tocsin.limits.models.base import HISTORY
from tocsin.limits.models.numeric import NumericModel

MODELS = [
    kind
    for kind in implementations(ModelBase, "tocsin.limits.models")
    if kind not in (ModelBase, NumericModel) and not kind.__name__.startswith("_")
]


def arrivals(values, begin=0):
    values = np.asarray(values, np.float64)
    keys = (values - values.min()).astype(np.int64) % 5000
    return Arrivals(keys, values, begin + np.arange(len(values), dtype=np.float64))


def test_all_models_are_found():
    assert {kind.__name__ for kind in MODELS} == {"Ar1", "Chooser", "Delay", "Stationary", "Trend", "Walk"}


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("caching", [False, True])
@given(data=st.data())
def test_every_model_scores_finitely_and_alike(kind, caching, data):
    numbers = st.lists(st.integers(-40, 40), min_size=1, max_size=50)
    batches = data.draw(st.lists(st.tuples(st.booleans(), numbers), min_size=1, max_size=5))
    one, two = kind(), kind()
    for mine, batch in batches:
        keys = np.array(batch) + 40
        some = Arrivals(keys, keys - 40.0, np.zeros(len(keys)))
        for model in (one, two):
            if mine or caching:
                model.observe(some)
            else:
                model.observe_rows(some)
    kept = np.arange(0, 81, 7)
    ages = np.linspace(0.0, 90.0, len(kept))
    ends = data.draw(st.sampled_from([0.0, 1.0, 30.0, np.inf]))
    q = data.draw(st.sampled_from([0.2, 0.9, 0.99] + ([1.0] if math.isfinite(ends) else [])))
    rows = Steps(kept, kept - 40.0, ages, np.full(len(kept), ends))
    found = one.score(rows, q, caching)
    assert np.array_equal(found, two.score(rows, q, caching)) and len(found) == len(kept)
    assert np.all(np.isfinite(found)) and np.all(found >= 0.0)
    if ends == 0.0:
        assert np.all(found == 0.0)
    if caching:
        assert np.all(found <= 1.0 + 1e-9)
    one.discard(kept)
    one._check()
    assert one.nbytes > 0 and isinstance(one.likelihood(), float)


@pytest.mark.parametrize("kind", [Trend, Walk, Ar1], ids=lambda kind: kind.__name__)
def test_how_values_are_batched_does_not_matter(kind):
    values = np.cumsum(np.random.default_rng(2).integers(-3, 5, 1500)).astype(float)
    whole, parts = kind(365), kind(365)
    whole.observe(arrivals(values))
    for begin in range(0, 1500, 7):
        parts.observe(arrivals(values[begin : begin + 7]))
    rows = Steps(np.arange(9), values[-1] + np.arange(-4.0, 5.0), np.zeros(9), np.full(9, np.inf))
    assert np.allclose(whole.score(rows, 0.9, False), parts.score(rows, 0.9, False), rtol=1e-9)
    assert math.isclose(whole.likelihood(), parts.likelihood(), rel_tol=1e-9)


def test_laws_are_found_again():
    rng = np.random.default_rng(3)
    trend = Trend()
    trend.observe(arrivals(np.rint(0.37 * np.arange(3000) + rng.normal(0, 5, 3000))))
    trend.refit()
    assert abs(trend.line.slope - 0.37) < 0.001
    walk = Walk()
    walk.observe(arrivals(np.cumsum(np.rint(rng.normal(0.5, 2, 4000)))))
    walk.refit()
    assert abs(walk.law.mean - 0.5) < 0.15 and abs(walk.law.sd - 2.02) < 0.1
    values = [20.0]
    for noise in rng.normal(0, 4.22, 4000):
        values.append(5.59 + 0.72 * values[-1] + noise)
    ar1 = Ar1()
    ar1.observe(arrivals(np.round(values, 1)))
    ar1.refit()
    assert abs(ar1.law.phi - 0.72) < 0.05 and abs(ar1.law.mean - 19.96) < 1 and abs(ar1.law.sd - 4.22) < 0.2
    assert ar1.series.width == 0.1


def test_an_ar1_that_hardly_returns_counts_as_a_walk():
    values = np.cumsum(np.random.default_rng(4).integers(-2, 3, 3000)).astype(float)
    ar1, walk = Ar1(), Walk()
    for model in (ar1, walk):
        model.observe(arrivals(values))
    rows = Steps(np.arange(11), values[-1] + np.arange(-5.0, 6.0), np.zeros(11), np.full(11, np.inf))
    assert np.allclose(ar1.score(rows, 0.9, False), walk.score(rows, 0.9, False), rtol=0.3)


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_the_right_model_is_chosen(name):
    right = "walk" if name == "WALK" else "trend"
    found = []
    for seed in range(8):
        chooser = Chooser()
        chooser.observe(arrivals(WORKLOADS[name].draw(1000, seed)[1]))
        close = chooser.models[f"{right} over {HISTORY}"].likelihood() > chooser.likelihood() - 0.05
        found.append(chooser.name.startswith(right) or close)
    assert sum(found) >= 7


def test_keys_of_a_few_values_are_counted():
    keys = np.minimum(np.random.default_rng(5).zipf(1.5, 2000), 1000)
    chooser = Chooser()
    chooser.observe(Arrivals(keys, keys.astype(float), np.zeros(2000)))
    assert chooser.name.startswith("stationary")


def orders(count, mean_delay, seed=0, answered=0.3):
    """(side, key) of orders and payments: a share of orders is paid after a lognormal delay."""
    rng = np.random.default_rng(seed)
    events = [(float(n), 0, n) for n in range(count)]
    paid = np.flatnonzero(rng.random(count) < answered)
    events += [(n + mean_delay * math.exp(0.4 * rng.standard_normal()), 1, int(n)) for n in paid]
    return [(side, key) for _, side, key in sorted(events)][:count]


def test_delays_are_learned_and_chosen():
    chooser = Chooser()
    for side, key in orders(6000, 400):
        some = Arrivals(np.array([key]), None, np.zeros(1))
        if side == 1:
            chooser.observe(some)
        else:
            chooser.observe_rows(some)
    assert chooser.name == "delay" and chooser.by_age
    ages = np.array([5.0, 100.0, 600.0])  # in payments; there are 0.23 per event, so delays are around 90
    rows = Steps(np.zeros(3, np.int64), None, ages, np.full(3, np.inf))
    young, right, old = chooser.score(rows, math.exp(-1 / 50), False)
    assert right > 2 * young and right > 5 * old


def test_rows_whose_codes_are_given_away_are_censored():
    """Kaplan-Meier: rows that are dropped at age 10 do not count as never answered."""
    free, cut = Delay(), Delay()
    for n in range(4000):
        some = Arrivals(np.array([n % 4000]), None, np.zeros(1))
        for model in (free, cut):
            model.observe_rows(some)
        if n >= 30 and n % 2:  # every second row is answered after 30 steps
            answer = Arrivals(np.array([n - 30]), None, np.zeros(1))
            free.observe(answer)
            cut.observe(answer if n % 4 == 1 else Arrivals(np.array([4090]), None, np.zeros(1)))
        if n >= 10 and n % 4 == 1:
            cut.discard(np.array([n - 8]))
    rows = Steps(np.zeros(1, np.int64), None, np.array([10.0]), np.full(1, np.inf))
    assert cut.score(rows, 0.95, False)[0] > 0.4 * free.score(rows, 0.95, False)[0] > 0.0


def test_a_change_of_nature_is_noticed():
    chooser = Chooser()
    trend = WORKLOADS["TOWER"].draw(1000, 1)[1]
    walk = WORKLOADS["WALK"].draw(1000, 1)[1] + 1000
    chooser.observe(arrivals(trend))
    assert chooser.name.startswith("trend")
    for begin in range(0, 400, 10):
        chooser.observe(arrivals(walk[begin : begin + 10]))
    assert chooser.name.startswith(("walk", "ar1"))


def test_stationary_counts_exactly():
    model = Stationary()
    model.observe(Arrivals(np.array([1, 1, 2]), None, np.zeros(3)))
    found = model.probabilities(np.array([1, 2, 3]))
    assert np.allclose(found / found.sum(), np.array([2.5, 1.5, 0.5]) / 4.5)
    model.observe(Arrivals(np.array([1, 2] * 5000), None, np.zeros(10_000)))  # no new keys any more
    assert np.allclose(model.probabilities(np.array([1, 2])), 0.5, rtol=0.01)


def test_keys_that_never_come_again_are_worth_nothing():
    model = Stationary()
    model.observe(Arrivals(np.arange(2000), None, np.zeros(2000)))
    assert np.all(model.probabilities(np.arange(2000)) < 1e-5)


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("slope", [300.0, -300.0, 5000.0, 1e13])
def test_a_steep_line_needs_no_table(slope: float, caching: bool) -> None:
    rng = np.random.default_rng(0)
    noise, q = rng.random(900), 0.9
    noise /= noise.sum()
    model = Trend(line=Line(0.0, slope, 0, noise, -400.0, 1.0))
    steps = rng.integers(0, 6, 200)
    values = slope * steps + rng.integers(-450, 550, 200)
    left = rng.choice([1.0, 3.0, np.inf], 200)
    found = model.score(Steps(np.arange(200), values, np.zeros(200), left), q, caching)
    for value, most, score in zip(values, left, found, strict=True):
        wanted, never = 0.0, 1.0
        for step in range(1, int(min(most, 12)) + 1):
            offset = round(value - slope * step + 400.0)
            p = noise[offset] if 0 <= offset < 900 else 0.0
            wanted, never = wanted + q**step * p * never, never * (1.0 - p) if caching else 1.0
        assert abs(score - wanted) < 1e-9
    assert model.nbytes < 1 << 24


def test_keys_with_large_strides_keep_the_budget() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM a (k BIGINT); CREATE STREAM b (k BIGINT)")
    pairs = engine.subscribe("SELECT a.k FROM a JOIN b ON a.k = b.k WITH (memory = '1 MB')")
    for n in range(8):  # the third batch is larger than the budget
        keys = np.arange(n * 30_000, n * 30_000 + (30_000 if n == 2 else 4000)) * 10**12
        engine.apply_all({"a": pa.table({"k": keys}), "b": pa.table({"k": keys + 1})})
        assert engine.limits(pairs).bytes <= 1 << 20
    engine._check()
    assert engine.limits(pairs).rows > 100
