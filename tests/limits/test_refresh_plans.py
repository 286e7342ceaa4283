"""Plans of refreshing against exhaustion (T07, section 2.3: lemma 1, theorems 1 and 2; section 2.4: A*)."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Sequence

import pytest

from tests.limits.refresh_oracle import (
    KINDS,
    best_greedy,
    best_of_all,
    random_arrivals,
    random_cost,
    valid_sets,
)
from tocsin.errors import UsageError
from tocsin.limits.costs import Capped, Costs, Counts, Linear, Tabled
from tocsin.limits.plans import PlanSearch, best_plan, cheapest_valid_set, minimal_valid_sets, spread

SLACK = 1e-6
FIGURE = Costs((Linear(0.35, 0.5), Linear(0.01, 5.0)))  # Supplier and PartSupp, in the shape of figure 2.4


@pytest.mark.parametrize("kind", KINDS)
def test_lazy_plans_are_as_good_as_any_and_greedy_minimal_ones_cost_at_most_twice_as_much(kind: str) -> None:
    for seed in range(250):
        draw = random.Random(f"{kind} {seed}")
        tables = draw.choice((1, 2, 2))
        costs = Costs(tuple(random_cost(kind, draw) for _ in range(tables)))
        limit = draw.uniform(4, 10)
        arrivals = random_arrivals(draw, tables, draw.randint(3, 6) if tables == 2 else 8)
        best, lazy = (best_of_all(costs, arrivals, limit, lazy) for lazy in (False, True))
        plan = best_plan(costs, arrivals, limit)
        assert abs(lazy - best) < SLACK, seed
        assert best - SLACK <= plan.cost <= 2 * best + SLACK, seed
        if kind == "linear":
            assert plan.cost <= best + SLACK, seed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("burst", [1, 2, 3])
def test_the_search_finds_the_best_greedy_plan_and_its_bound_is_consistent(kind: str, burst: int) -> None:
    for seed in range(60):
        draw = random.Random(f"{kind} {burst} {seed}")
        tables = draw.choice((2, 2, 3))
        costs = Costs(
            tuple(random_cost(kind, draw) for _ in range(tables)),
            joint=draw.choice((0.0, draw.uniform(0, 2))),
            reserve=draw.choice((1.0, draw.uniform(1, 2))),
        )
        limit = draw.uniform(4, 12)
        arrivals = random_arrivals(draw, tables, draw.randint(6, 12), burst)
        plan = best_plan(costs, arrivals, limit)
        assert abs(plan.cost - best_greedy(costs, arrivals, limit)) < SLACK, seed
        assert_consistent(PlanSearch(costs, arrivals, limit))
        assert_follows(costs, arrivals, limit, plan.actions, plan.cost)


def assert_consistent(search: PlanSearch) -> None:
    """No edge costs less than what it takes off the bound."""
    start = search.advance(0, tuple(until[0] for until in search._until))
    seen, open_states = {start}, [start]
    while open_states:
        state = open_states.pop()
        for cost, _, following in search.edges(state):
            ahead = 0.0 if following is None else search.remaining(following)
            assert search.remaining(state) <= cost + ahead + SLACK
            if following is not None and following not in seen:
                seen.add(following)
                open_states.append(following)


def assert_follows(
    costs: Costs,
    arrivals: Sequence[Counts],
    limit: float,
    actions: Sequence[tuple[int, tuple[int, ...]]],
    cost: float,
) -> None:
    """The plan's actions keep the limit and cost what it says."""
    waiting, paid, by_time = (0,) * len(costs), 0.0, dict(actions)
    for time, counts in enumerate(arrivals):
        waiting = tuple(a + b for a, b in zip(waiting, counts, strict=True))
        tables = by_time.get(time, ())
        paid += costs.action(tables, waiting)
        waiting = tuple(0 if i in tables else k for i, k in enumerate(waiting))
        assert costs.refresh(waiting) <= limit + SLACK
    assert not any(waiting)
    assert abs(paid - cost) < SLACK


def test_minimal_valid_sets_by_definition() -> None:
    for seed in range(300):
        draw = random.Random(seed)
        tables = draw.randint(1, 5)
        each = tuple(random_cost(draw.choice(KINDS), draw) for _ in range(tables))
        costs = Costs(each, joint=draw.choice((0.0, 1.0)), reserve=draw.choice((1.0, 1.5)))
        waiting, limit = tuple(draw.randint(0, 6) for _ in range(tables)), draw.uniform(0, 20)
        found = minimal_valid_sets(costs, waiting, limit)
        assert sorted(found) == sorted(valid_sets(costs, waiting, limit))
        cheapest = cheapest_valid_set(costs, waiting, limit)
        assert costs.action(cheapest, waiting) == min(costs.action(tables, waiting) for tables in found)


def test_of_many_tables_the_cheapest_are_emptied_together() -> None:
    costs = Costs(tuple(Linear(1.0, 0.5 * i) for i in range(12)))
    for limit in (0.0, 5.0, 30.0, 200.0):
        for tables in minimal_valid_sets(costs, (3,) * 12, limit):
            rest = tuple(0 if i in tables else 3 for i in range(12))
            assert costs.refresh(rest) <= limit


def test_nothing_waits_and_nothing_is_emptied() -> None:
    assert minimal_valid_sets(FIGURE, (0, 0), 1.0) == [()]
    assert best_plan(FIGURE, [(0, 0)] * 5, 12.0).cost == 0.0


def test_example_1_is_tight() -> None:
    """Twice the best, almost: f(x) = ε x / 2 up to 2 / ε, then 1 + ε / 2; one change more at each time."""
    for inverse, ratio in ((2, 1.66), (4, 1.79)):
        epsilon, pairs = 1 / inverse, 2
        f = Tabled(
            range(1, 60), [epsilon * x / 2 if x <= 2 * inverse else 1 + epsilon / 2 for x in range(1, 60)]
        )
        arrivals = [(2 * inverse + 1,)] * (2 * pairs)
        best, plan = best_of_all(Costs((f,)), arrivals, 1.0), best_plan(Costs((f,)), arrivals, 1.0)
        assert plan.cost == pytest.approx((2 + epsilon) * pairs)
        assert plan.cost / best > ratio


@pytest.mark.parametrize("joint_actions", [False, True])
def test_what_several_tables_cost_together(joint_actions: bool) -> None:
    """Where the limit alone sees `joint`, lazy plans are the best, greedy minimal ones within twice that.

    Were an action on several tables to pay it too, costs would not be subadditive: emptying one table after
    the other, before the limit breaks, may then cost a small part of any lazy plan. So actions do not.
    """
    worst = 1.0
    for seed in range(300):
        draw = random.Random(f"{joint_actions} {seed}")
        kind = draw.choice(KINDS)
        each = (random_cost(kind, draw), random_cost(kind, draw))
        limit = draw.uniform(4, 10)
        costs = Costs(each, joint=draw.uniform(0.2, 4))
        arrivals = random_arrivals(draw, 2, draw.randint(3, 5))
        best, lazy = (best_of_all(costs, arrivals, limit, lazy, joint_actions) for lazy in (False, True))
        greedy = best_greedy(costs, arrivals, limit, joint_actions)
        if not joint_actions:
            assert abs(lazy - best) < SLACK, seed
            assert abs(best_plan(costs, arrivals, limit).cost - greedy) < SLACK, seed
        worst = max(worst, greedy / best if best else 1.0)
    assert worst > 20.0 if joint_actions else worst <= 2.0


def test_computing_anew_is_an_edge() -> None:
    costs = Costs((Linear(1.0, 1.0), Linear(1.0, 1.0)), recompute=7.0)
    plan = best_plan(costs, [(5, 5)] * 3, 6.0)
    assert plan.cost == 20.0  # a table, then the answer twice; without it 6 + 12 + 18
    assert [tables for _, tables in plan.actions] == [(0,), (0, 1), (0, 1)]
    assert best_plan(costs, [(5, 5)] * 3, 7.0).cost == 7.0  # it always fits: one refresh at the end
    for seed in range(100):
        draw = random.Random(seed)
        both = (Linear(draw.uniform(0.2, 2), draw.uniform(0, 4)), Linear(draw.uniform(0.2, 2), 1.0))
        costs = Costs(both, recompute=draw.uniform(4, 20))
        search = PlanSearch(costs, random_arrivals(draw, 2, 8), draw.uniform(4, 10))
        assert_consistent(search)


def test_a_search_that_is_cut_short_returns_a_beginning() -> None:
    arrivals = random_arrivals(random.Random(3), 2, 400)
    whole, part = (best_plan(FIGURE, arrivals, 12.0, most) for most in (None, 5))
    assert whole.complete and not part.complete
    assert part.expanded == 5 and 0 < len(part.actions) < len(whole.actions)
    assert part.cost <= whole.cost


def test_plans_for_no_arrivals_are_rejected() -> None:
    with pytest.raises(UsageError, match="a plan needs arrivals"):
        best_plan(FIGURE, [], 12.0)


def test_far_fewer_states_than_without_a_bound() -> None:
    arrivals = [(1, 1)] * 501
    plan = best_plan(FIGURE, arrivals, 20.0)
    cost, states = dijkstra(PlanSearch(FIGURE, arrivals, 20.0))
    assert plan.cost == pytest.approx(cost)
    assert states >= 100 * plan.expanded


def dijkstra(search: PlanSearch) -> tuple[float, int]:
    """The cost of the best plan and the states expanded, without a bound."""
    order = itertools.count()
    heap = [(0.0, next(order), search.advance(0, tuple(until[0] for until in search._until)))]
    closed = set()
    while heap:
        cost, _, state = heapq.heappop(heap)
        if state is None:
            return cost, len(closed)
        if state in closed:
            continue
        closed.add(state)
        for more, _, following in search.edges(state):
            if following not in closed:
                heapq.heappush(heap, (cost + more, next(order), following))
    raise AssertionError


@pytest.mark.parametrize("waiting", [(0, 0), (3, 0), (5, 9)])
def test_rates_are_spread_evenly(waiting: tuple[int, int]) -> None:
    arrivals = spread((0.3, 2.5), 20, waiting)
    assert arrivals[0] == waiting
    assert [sum(counts[i] for counts in arrivals[1:]) for i in (0, 1)] == [6, 50]


def test_a_cap_makes_batches_of_any_size() -> None:
    costs = Costs((Capped(Linear(1.0, 1.0), 3.0), Linear(1.0, 0.0)))
    assert best_plan(costs, [(9, 1)] * 4, 8.0).cost == pytest.approx(3.0 + 4.0)
