"""Costs of propagating: monotone, subadditive, learned from observations that change."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import UsageError
from tocsin.limits.costs import (
    MOST,
    Capped,
    Cost,
    CostFit,
    Costs,
    Linear,
    RefreshCosts,
    Tabled,
    subadditive_closure,
)

tables = st.lists(st.floats(0, 100), min_size=1, max_size=12)


def closed(values: list[float]) -> list[float]:
    """The least over all ways to split each count into batches."""
    found = [0.0]
    for k in range(1, len(values)):
        whole = max(values[: k + 1])
        found.append(min([whole] + [found[j] + found[k - j] for j in range(1, k)]))
    return found


@given(tables)
def test_the_closure_is_the_cheapest_split(values: list[float]) -> None:
    assert subadditive_closure([0.0, *values]) == pytest.approx(closed([0.0, *values]))


@given(tables, st.integers(1, 4))
def test_tables_are_monotone_and_subadditive_also_beyond_their_end(values: list[float], step: int) -> None:
    cost = Tabled([1 + step * i for i in range(len(values))], values)
    cost(3 * len(values) * step)
    cost._check()


@pytest.mark.parametrize(
    "cost",
    [
        Linear(0.5, 2.0),
        Linear(0.0, 3.0),
        Linear(1.0, 0.0),
        Tabled([1, 2, 4, 8], [2.0, 2.0, 5.0, 6.0]),
        Tabled([1], [0.0]),
        Capped(Linear(1.0, 1.0), 6.0),
    ],
    ids=["linear", "flat", "through-zero", "table", "nothing", "capped"],
)
def test_the_most_changes_within_a_limit(cost: Cost) -> None:
    assert cost(0) == 0.0
    for limit in (0.0, 0.5, 2.0, 3.7, 6.0, 20.0):
        most = cost.most(limit)
        if most < MOST:
            assert cost(most) <= limit + 1e-6 < cost(most + 1) + 1e-5
        else:
            assert cost(10**6) <= limit + 1e-6


@pytest.mark.parametrize(
    ("counts", "costs"), [([], []), ([0, 1], [1, 1]), ([2, 1], [1, 1]), ([1, 2], [1]), ([1], [-1.0])]
)
def test_tables_that_are_none_are_rejected(counts: list[int], costs: list[float]) -> None:
    with pytest.raises(UsageError):
        Tabled(counts, costs)


def test_a_refresh_is_the_sum_and_what_several_tables_cost_together() -> None:
    costs = Costs((Linear(1.0, 1.0), Linear(2.0, 0.0)), joint=3.0, reserve=2.0, recompute=30.0)
    assert costs.refresh((0, 0)) == 0.0
    assert costs.refresh((4, 0)) == 10.0
    assert costs.refresh((4, 1)) == 20.0
    assert costs.refresh((40, 1)) == 30.0
    assert costs.action((0, 1), (4, 1)) == 7.0
    assert costs.is_feasible(14.0) and not costs.is_feasible(13.9)


# -- fits -------------------------------------------------------------------------------------------


def noisy(draw: random.Random, slope: float, setup: float, count: int) -> float:
    return (slope * count + setup) * math.exp(draw.gauss(0, 0.15))


def test_nine_tenths_of_what_is_observed_lie_below() -> None:
    draw, fit = random.Random(1), CostFit()
    for _ in range(400):
        k = draw.choice((1, 5, 20, 100, 400))
        fit.observe(k, noisy(draw, 0.05, 3.0, k))
    fit._check()
    assert fit.middle.slope == pytest.approx(0.05, rel=0.1)
    assert fit.middle.setup == pytest.approx(3.0, rel=0.1)
    later = [noisy(draw, 0.05, 3.0, k) <= fit.cost(k) for k in (1, 10, 50, 300) * 100]
    assert 0.84 <= np.mean(later) <= 0.95


def test_a_policy_that_acts_at_one_size_does_not_lose_the_slope() -> None:
    draw, fit = random.Random(2), CostFit()
    for k in (1, 10, 100, 1000) * 5:
        fit.observe(k, noisy(draw, 0.05, 3.0, k))
    for _ in range(2000):
        k = draw.randint(180, 200)
        fit.observe(k, noisy(draw, 0.05, 3.0, k))
    assert fit.middle(1000) == pytest.approx(53.0, rel=0.25)
    assert fit.middle(1) == pytest.approx(3.0, rel=0.4)


def test_one_size_alone_is_half_set_up() -> None:
    fit = CostFit()
    fit.observe(10, 4.0)
    assert fit.cost == pytest.approx(Linear(0.2, 2.0))
    assert CostFit().cost == Linear(0.0, 0.0)


def test_no_negative_parts() -> None:
    falling, convex = CostFit(), CostFit()
    for k in (1, 2, 4, 8):
        falling.observe(k, 9.0 - k)
        convex.observe(k, float(k * k))
    for fit in (falling, convex):
        fit._check()
    assert falling.cost.slope == 0.0 and convex.cost.setup == 0.0


@pytest.mark.parametrize("bad", [(0, 1.0), (1, 0.0), (1, math.nan), (1, math.inf), (-1, 2.0)])
def test_what_is_no_observation_is_ignored(bad: tuple[int, float]) -> None:
    fit = CostFit()
    fit.observe(*bad)
    assert not len(fit)


def test_a_slowdown_is_predicted_after_a_few_observations_and_so_is_its_end() -> None:
    draw, fit = random.Random(3), CostFit()
    for _ in range(300):
        k = draw.randint(1, 300)
        fit.observe(k, noisy(draw, 0.05, 3.0, k))
    for _ in range(8):
        k = draw.randint(1, 300)
        fit.observe(k, 3 * noisy(draw, 0.05, 3.0, k))
    fit._check()
    for k in (1, 30, 300):
        assert 2.4 <= fit.middle(k) / (0.05 * k + 3.0) <= 4.0
    for _ in range(8):  # ... also where it is not seen again
        k = draw.randint(1, 10)
        fit.observe(k, noisy(draw, 0.05, 3.0, k))
    fit._check()
    for k in (1, 30, 300):
        assert 0.7 <= fit.middle(k) / (0.05 * k + 3.0) <= 1.6


def test_a_single_outlier_changes_little() -> None:
    draw, fit = random.Random(4), CostFit()
    for _ in range(200):
        k = draw.randint(1, 300)
        fit.observe(k, noisy(draw, 0.05, 3.0, k))
    before = fit.cost(100)
    fit.observe(100, 500.0)
    assert fit.cost(100) == pytest.approx(before, rel=0.1)


def test_the_reserve_is_bounded() -> None:
    draw, costs = random.Random(5), RefreshCosts(2)
    for _ in range(100):
        k = draw.randint(1, 100)
        costs.observe(0, k, 1.0 + 0.1 * k)
        costs.observe(1, k, 2.0)
        costs.observe_refresh((k, 0), 10 * (1.0 + 0.1 * k))
    costs._check()
    assert costs.costs().reserve == 2.0
    assert costs.costs().joint == 0.0


def test_predictions_of_refreshes_hold_for_most() -> None:
    """Two tables that cost half as much again together."""
    draw, costs = random.Random(6), RefreshCosts(2)
    ratios = []
    for turn in range(400):
        j, k = draw.randint(1, 50), draw.randint(1, 200)
        first, second = noisy(draw, 0.3, 1.0, j), noisy(draw, 0.02, 5.0, k)
        costs.observe(0, j, first)
        costs.observe(1, k, second)
        j, k = draw.randint(1, 50), draw.randint(1, 200)
        took = noisy(draw, 0.3, 1.0, j) + noisy(draw, 0.02, 5.0, k) + 4.0
        if turn >= 50:
            ratios.append(took / costs.costs().refresh((j, k)))
        costs.observe_refresh((j, k), took)
    assert np.mean(np.array(ratios) <= 1.0) >= 0.8
    assert np.quantile(ratios, 0.05) >= 0.6
