"""Workloads of figures: output rates, overlap, drawn stocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tocsin.errors import UsageError
from tocsin.lab.simulate.networks import SimulateSetting
from tocsin.lab.simulate.run import Simulation
from tocsin.lab.simulate.stocks import draw_stocks, read_ratios
from tocsin.lab.simulate.workload import KEYS, draw_workload


def test_rows_of_s_decide_how_many_an_event_joins() -> None:
    for rate in (5, 100):
        work = draw_workload("w1", 10, 4000, 1, s_rows=rate * KEYS)
        joined = np.bincount(work.s_key, minlength=KEYS)[work.event_key].mean()
        assert joined == pytest.approx(rate, rel=0.2)


def test_overlap_moves_centres_together_and_changes_no_row() -> None:
    apart, near = (draw_workload("w1", 2000, 100, 1, overlap=x) for x in (0, 6000))
    low, high = (work.points[:, 1].mean(axis=1) for work in (near, apart))
    assert np.abs(low - 50_000).std() < np.abs(high - 50_000).std()
    assert np.array_equal(apart.event_value, near.event_value)


def test_stocks_start_at_given_ratios(tmp_path: Path) -> None:
    path = tmp_path / "companies.csv"
    path.write_text("Name,Price/Earnings\na,20\nb,\nc,-3\n", encoding="utf-8")
    assert read_ratios(path).tolist() == [20.0]
    work = draw_stocks("w1", 10, 50, 1, 200, read_ratios(path))
    assert np.all((work.r_value > 10_000) & (work.r_value < 40_000))
    path.write_text("Name\na\n", encoding="utf-8")
    with pytest.raises(UsageError):
        read_ratios(path)


def test_a_simulation_runs_a_given_workload() -> None:
    setting = SimulateSetting("w1", 300, 30, brokers=10, nodes=100, rows=200)
    simulation = Simulation(setting, work=draw_stocks("w1", 300, 30, 1, 200))
    assert simulation.run("ref-sj-clu+").checked
