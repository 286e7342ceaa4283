"""Contract of policies: each chooses valid sets from arrivals, times and costs alone."""

from __future__ import annotations

import math
import random

import pytest

from tests.limits.refresh_oracle import KINDS, random_arrivals, random_cost
from tocsin.errors import UsageError
from tocsin.limits.costs import Costs, Counts, Linear
from tocsin.limits.plans import best_plan
from tocsin.limits.policies import (
    REFRESH_POLICIES,
    Adapt,
    EmptyAll,
    Online,
    Oracle,
    Policy,
    Simulate,
    refresh_policy,
    rehearse,
)

FIGURE = Costs((Linear(0.35, 0.5), Linear(0.01, 5.0)))


@pytest.fixture(params=sorted(REFRESH_POLICIES))
def policy(request: pytest.FixtureRequest) -> Policy:
    return refresh_policy(request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_holds_after_each_action(policy: Policy, kind: str) -> None:
    for seed in range(12):
        draw = random.Random(f"{kind} {seed}")
        tables = draw.choice((1, 2, 3))
        costs = Costs(tuple(random_cost(kind, draw) for _ in range(tables)))
        limit = costs.refresh((1,) * tables) * draw.uniform(1, 3)
        arrivals = random_arrivals(draw, tables, 40, 3)
        found = rehearse(type(policy)(), costs, arrivals, limit, draw.choice((None, 11)))
        assert not found.broken, seed


def test_choices_repeat(policy: Policy) -> None:
    draw = random.Random(7)
    arrivals = random_arrivals(draw, 2, 300)
    first, second = (choices(type(policy)(), arrivals, 12.0, 1.0) for _ in range(2))
    assert first == second


def test_choices_do_not_depend_on_the_unit_of_time(policy: Policy) -> None:
    arrivals = random_arrivals(random.Random(8), 2, 300)
    steps, seconds = (choices(type(policy)(), arrivals, 12.0, unit) for unit in (1.0, 1 / 64))
    assert steps == seconds


def choices(policy: Policy, arrivals: list[Counts], limit: float, unit: float) -> list[tuple[int, ...]]:
    waiting, found, spent = (0, 0), [], 0.0
    policy.begin(waiting, FIGURE, limit)
    for step, counts in enumerate(arrivals):
        waiting = (waiting[0] + counts[0], waiting[1] + counts[1])
        policy.arrived(counts, step * unit)
        if step % 70 == 69:
            waiting, spent = (0, 0), 0.0
            policy.begin(waiting, FIGURE, limit)
        elif policy.breaks(waiting):
            found.append(policy.choose(waiting, spent, step * unit))
            spent += FIGURE.action(found[-1], waiting)
            waiting = tuple(0 if i in found[-1] else k for i, k in enumerate(waiting))
    return found


def test_a_limit_that_cannot_be_kept_is_not_chased_with_tiny_batches(policy: Policy) -> None:
    if policy.name == "at once":
        return  # it has no limit
    found = rehearse(policy, FIGURE, [(1, 1)] * 1000, limit=3.0)
    assert (
        found.broken == 0
        or found.cost < 1.3 * rehearse(refresh_policy("naive"), FIGURE, [(1, 1)] * 1000, 11.0).cost
    )
    assert found.actions < 100


def test_a_plan_that_is_repeated_costs_at_most_one_set_up_of_each_table_more_per_period() -> None:
    """Theorem 6: costs are linear, each period has the same arrivals, the plan is followed by the clock."""
    for seed in range(120):
        draw = random.Random(seed)
        tables, period = draw.choice((1, 2, 3)), draw.randint(3, 8)
        each = tuple(Linear(draw.uniform(0.2, 2), draw.uniform(0, 4)) for _ in range(tables))
        costs, limit = Costs(each), draw.uniform(4, 10)
        one = random_arrivals(draw, tables, period - 1)
        nothing = (0,) * tables
        actions = dict(best_plan(costs, [nothing, *one], limit).actions)
        for last in range(1, 2 * period + 3):
            arrivals = [nothing, *(one[(step - 1) % period] for step in range(1, last + 1))]
            waiting, cost = nothing, 0.0
            for step, counts in enumerate(arrivals):
                waiting = tuple(a + b for a, b in zip(waiting, counts, strict=True))
                place = (step - 1) % period + 1 if step else 0
                chosen = range(tables) if step == last or place == period else actions.get(place, ())
                cost += costs.action(chosen, waiting)
                waiting = tuple(0 if i in chosen else k for i, k in enumerate(waiting))
                assert costs.refresh(waiting) <= limit + 1e-6
            allowed = math.ceil(last / period) * sum(f.setup for f in each)
            assert cost <= best_plan(costs, arrivals, limit).cost + allowed + 1e-6, seed


@pytest.mark.parametrize("steps", [300, 700])
def test_bars_of_figure_2_6(steps: int) -> None:
    arrivals: list[Counts] = [(0, 0), *[(1, 1)] * steps]
    assumed: list[Counts] = [(0, 0), *[(1, 1)] * 500]
    best = best_plan(FIGURE, arrivals, 12.0).cost
    bars = ((Adapt(500.0), 1.02), (Simulate(500.0, assumed), 1.05), (Online(), 1.2), (Oracle(arrivals), 1.0))
    for policy, bar in bars:
        assert rehearse(policy, FIGURE, arrivals, 12.0).cost <= bar * best + 1e-6, policy.name
    assert rehearse(EmptyAll(), FIGURE, arrivals, 12.0).cost >= 1.25 * best


def test_adapt_measures_the_time_between_refreshes() -> None:
    draw = random.Random(9)
    arrivals = [(draw.randint(0, 2), draw.randint(0, 2)) for _ in range(3000)]
    measured, given = (
        rehearse(policy, FIGURE, arrivals, 12.0, refresh_every=300).cost for policy in (Adapt(), Adapt(300.0))
    )
    assert measured <= 1.02 * given


def test_naive_empties_all_and_at_once_what_changed() -> None:
    naive, at_once = refresh_policy("naive"), refresh_policy("at once")
    for policy in (naive, at_once):
        policy.begin((0, 0), FIGURE, 12.0)
        policy.arrived((30, 2), 0.0)
    assert naive.breaks((30, 2)) and naive.choose((30, 2), 0.0, 0.0) == (0, 1)
    assert not naive.breaks((1, 2))
    assert at_once.breaks((1, 0)) and at_once.choose((1, 0), 0.0, 0.0) == (0,)
    assert not at_once.breaks((0, 0))


def test_new_costs_count_at_once(policy: Policy) -> None:
    policy.begin((0, 0), FIGURE, 12.0)
    policy.arrived((1, 1), 0.0)
    dear = Costs((Linear(1.5, 5.0), Linear(0.1, 5.0)))
    policy.adjust(dear)
    assert policy.breaks((2, 2))


def test_a_policy_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match="no policy 'lazy'"):
        refresh_policy("lazy")


def test_online_without_arrivals_takes_the_cheapest() -> None:
    policy = refresh_policy("online")
    policy.begin((0, 0), FIGURE, 12.0)
    policy.arrived((20, 20), 0.0)
    assert policy.choose((20, 20), 0.0, 0.0) == (1,) or math.isclose(FIGURE.refresh((20, 0)), 7.5)
