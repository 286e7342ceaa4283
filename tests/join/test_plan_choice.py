"""CheapestPlan: its estimates, its choices, and how its constants are fitted and stored."""

from __future__ import annotations

import json
import platform

import numpy as np
import pytest

from tocsin.join import plan_choice
from tocsin.join._kernels.equality import PLANS
from tocsin.join._kernels.equality import choose as choose_kernel
from tocsin.join.costs import (
    PlanCosts,
    PlanSizes,
    RowEstimate,
    basis,
    costs_file,
    fit_costs,
    fitted,
    machine_costs,
    terms,
)
from tocsin.join.plan_choice import CheapestPlan
from tocsin.lab.bench.join import JoinSetting, draw_equality, load

WORK = draw_equality(JoinSetting(queries=4000, rows=4000, groups=8, joining=20, affected=0.03, events=100))


@pytest.fixture
def dynamic() -> CheapestPlan:
    strategy = CheapestPlan(load(WORK), PlanCosts())
    strategy.add(np.arange(len(WORK.ranges.low)), WORK.ranges)
    return strategy


def choose(plan, key: int, value: int):
    return choose_kernel(plan.by_key, plan.by_own, plan.chosen, plan.learned, key, value)


def column_at(table, column: int, values):
    """A column of a cost table, for values."""
    origin, scale, last = table[0, :3]
    return table[1:, column][np.clip(((np.asarray(values) - origin) * scale).astype(int), 0, int(last))]


def joining_rows(dynamic, keys):
    cells = dynamic._joining(0)
    at = ((np.asarray(keys) - cells.origin) * cells.scale).astype(int)
    return cells.height[np.clip(at, 0, len(cells.height) - 1)]


def test_estimates_are_near(dynamic) -> None:
    assert joining_rows(dynamic, WORK.event_keys).mean() == pytest.approx(20, rel=0.1)
    holds = (WORK.ranges.own_low[:, None] <= WORK.event_values) & (
        WORK.event_values <= WORK.ranges.own_high[:, None]
    )
    estimated = column_at(dynamic.plan(0).by_own, 0, WORK.event_values)
    assert estimated.mean() == pytest.approx(holds.sum(axis=0).mean(), rel=0.05)
    assert 0 < dynamic._selected(0).chance < 0.1


def test_the_kernel_takes_the_plan_of_the_least_form(dynamic) -> None:
    plan, chance, forms = dynamic.plan(0), dynamic._selected(0).chance, dynamic._forms(0)
    for key, value in zip(WORK.event_keys.tolist(), WORK.event_values.tolist(), strict=True):
        selected, scattered = column_at(plan.by_own, 0, value), column_at(plan.by_own, 1, value)
        costs = forms @ basis(RowEstimate(float(joining_rows(dynamic, key)), selected, scattered, chance))
        plan.chosen[:] = 16, 0, 0, 0  # measured, but not a row for which another plan is tried
        best, predicted, _ = choose(plan, key, value)
        assert best == int(np.argmin(costs))
        assert predicted == pytest.approx(costs.min())


def test_cost_tables_are_kept_until_something_changes(dynamic) -> None:
    first = dynamic.plan(0).by_key
    assert dynamic.plan(0).by_key is first
    dynamic.remove(np.arange(1000))
    assert dynamic.plan(0).by_key is not first


def test_measured_costs_correct_predictions(dynamic, monkeypatch) -> None:
    monkeypatch.setenv("TOCSIN_JIT", "always")  # interpreted kernels measure nothing
    plan_choice.kernels.read_cycles()
    key, value = int(WORK.event_keys[0]), int(WORK.event_values[0])
    plan = dynamic.plan(0)
    plan.chosen[:] = 1, 0, 0, 0
    first, _, kind = choose(plan, key, value)
    plan.learned[first, kind] = 1000.0
    plan.chosen[:] = 1, 0, 0, 0
    second = choose(plan, key, value)[0]
    assert second != first
    plan.learned[first, kind] = 1.9 * plan.learned[second, kind] * _cost(plan, second) / _cost(plan, first)
    tried = set()
    for row in range(64 * len(PLANS)):  # each in turn, if it does not cost twice as much
        plan.chosen[:] = row, 0, 0, 0
        tried.add(choose(plan, key, value)[0])
    assert {first, second} <= tried
    before = dynamic.learned.copy()
    dynamic.each(0, WORK.event_keys, WORK.event_values)
    if platform.machine().lower() in ("x86_64", "amd64"):
        assert not np.array_equal(before, dynamic.learned)
    assert (dynamic.learned > 0).all()


def _cost(plan, number: int) -> float:
    key, value = int(WORK.event_keys[0]), int(WORK.event_values[0])
    kept = plan.learned.copy()
    plan.learned[:] = 1e9
    plan.learned[number] = 1e-9
    plan.chosen[:] = 16, 0, 0, 0  # measured: the prediction is returned
    _, predicted, _ = choose(plan, key, value)
    plan.learned[:] = kept
    return predicted


def test_every_plan_can_be_the_cheapest_and_is_counted() -> None:
    storage = load(WORK)
    for cheap in PLANS:
        constants = {
            name: tuple(1e-6 if name == cheap else 10.0 for _ in given)
            for name, given in PlanCosts().constants.items()
        }
        strategy = CheapestPlan(storage, PlanCosts(constants))
        strategy.add(np.arange(len(WORK.ranges.low)), WORK.ranges)
        strategy.each(0, WORK.event_keys, WORK.event_values)
        chosen = strategy.stats()["chosen"]
        assert chosen[cheap] == sum(chosen.values()) == len(WORK.event_keys)
        assert strategy.choices(0, WORK.event_keys, WORK.event_values).tolist() == [PLANS.index(cheap)] * 100


def test_fitting_recovers_known_constants() -> None:
    rng = np.random.default_rng(0)
    truth = {name: 0.01 * (1 + np.arange(len(given))) for name, given in PlanCosts().constants.items()}
    truth["hotspot"][-3:] = truth["selectfirst"][1:]

    def measure():
        out = {}
        for name, constants in truth.items():
            factors = []
            for _ in range(60):
                hot = rng.integers(10, 1000, rng.integers(1, 80)).tolist()
                sizes = PlanSizes(*rng.integers(100, 10**6, 2).tolist(), hot, int(rng.integers(1, 10**5)))
                selected = 10 ** rng.uniform(0, 4)
                row = RowEstimate(
                    10 ** rng.uniform(0, 3), selected, selected * rng.random(), 10 ** rng.uniform(-4, -1)
                )
                factors.append(basis(row) @ terms(name, sizes))
            out[name] = np.array(factors), np.array(factors) @ constants
        return out

    costs = fit_costs(measure)
    for name, constants in truth.items():
        assert np.allclose(costs.constants[name], constants, rtol=1e-3, atol=1e-6)


def test_no_constant_is_below_zero() -> None:
    factors = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    assert fitted(factors, np.array([3.0, 2.0, 1.0])).min() >= 0


def test_constants_are_measured_once_and_stored(tmp_path, monkeypatch) -> None:
    measured = []

    def measure():
        measured.append(1)
        return {name: (np.eye(len(c)), np.ones(len(c))) for name, c in PlanCosts().constants.items()}

    first = machine_costs(measure, tmp_path)
    assert machine_costs(measure, tmp_path) == first and len(measured) == 1
    path = costs_file(tmp_path)
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "node": "another machine"}))
    machine_costs(measure, tmp_path)
    path.write_text("no JSON")
    machine_costs(measure, tmp_path)
    assert len(measured) == 3
    monkeypatch.setenv("TOCSIN_CACHE", str(tmp_path / "there"))
    assert costs_file() == tmp_path / "there" / "join-costs.json"
    (tmp_path / "file").write_text("")
    assert machine_costs(measure, tmp_path / "file") == first, "an unusable folder does no harm"


def test_few_queries_are_not_worth_measuring(monkeypatch) -> None:
    def never(*_):
        raise AssertionError("measured")

    monkeypatch.setattr(plan_choice, "machine_costs", never)
    strategy = CheapestPlan(load(WORK))
    strategy.add(np.arange(10), WORK.ranges.take(np.arange(10)))
    strategy.plan(0)
    monkeypatch.setattr(plan_choice, "_WORTH", 5)
    strategy.add(np.array([10]), WORK.ranges.take(np.array([10])))  # a plan is kept until something changes
    with pytest.raises(AssertionError, match="measured"):
        strategy.plan(0)
