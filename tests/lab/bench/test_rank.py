"""`tocsin bench rank`: what it prints, and that it refuses wrong contents."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tocsin.cli import app
from tocsin.lab.bench.rank import KINDS, space_of
from tocsin.lab.bench.rank_methods import count_reached, stabbed
from tocsin.lab.bench.rank_workloads import (
    DISTRIBUTIONS,
    SPAN,
    RankSetting,
    WalkSetting,
    draw_ranks,
    draw_walk,
)
from tocsin.rank.extremes import Extremes
from tocsin.reformulate.topk import PaintTopk

SMALL = ("--objects", 60, "--subscriptions", 300, "--events", 80, "--k", 3)
HEAD = ["kind", "objects", "subscriptions", "k", "eps", "distribution", "events", "results"]
KEYS = [
    *("method", "messages_per_event", "received_per_event", "min_y_calls", "first_k_calls", "snap_calls"),
    *("bytes_out_per_event", "us_per_event", "redundancy", "checked"),
]


def run(*arguments: object):
    return CliRunner().invoke(app, ["bench", "rank", *(str(a) for a in arguments)])


@pytest.mark.parametrize(("kind", "eps", "distribution"), [("topk", 0.0, "anti"), ("min", 0.0, "uniform")])
def test_prints_what_was_measured(kind, eps, distribution):
    result = run("--kind", kind, *SMALL, "--eps", eps, "--distribution", distribution, "--json")
    assert result.exit_code == 0, result.output
    output = json.loads(result.stdout)
    assert list(output) == HEAD
    assert [output[name] for name in HEAD[:-1]] == [kind, 60, 300, 3, eps, distribution, 80]
    by = {one["method"]: one for one in output["results"]}
    assert list(by) == list(KINDS[kind])
    for name, one in by.items():
        assert list(one) == KEYS + ["deltas_per_s"] * (name == "enumerate")
        assert one["checked"] is True and one["us_per_event"] > 0
        if name not in ("relax", "cn", "paint-batch"):
            assert one["redundancy"] == 0


def test_approximate_painting_reaches_more():
    result = run(*SMALL, "--eps", 1, "--method", "paint-dense,paint-sparse", "--json")
    dense, sparse = json.loads(result.stdout)["results"]
    assert dense["redundancy"] == sparse["redundancy"] > 0
    assert sparse["messages_per_event"] <= dense["messages_per_event"]


def test_prints_a_table_for_people():
    result = run(*SMALL, "--method", "enumerate")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split()[0] == "method" and lines[1].split()[0] == "enumerate"
    assert lines[-1].endswith("deltas per second")


def test_a_wrong_method_has_no_time(monkeypatch):
    right = PaintTopk.publish
    monkeypatch.setattr(PaintTopk, "publish", lambda self, *event: right(self, *event).take(np.arange(9)))
    result = run(*SMALL, "--method", "paint-sparse")
    assert result.exit_code == 1
    assert "the method paint-sparse" in result.stderr and "redundancy" not in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--method", "nosuch"), "there is no method 'nosuch' for topk"),
        (("--kind", "min", "--method", "relax"), "there is no method 'relax' for min"),
        (("--kind", "nosuch"), "there is no kind 'nosuch'"),
        (("--distribution", "nosuch"), "there is no distribution 'nosuch'"),
    ],
)
def test_refuses_what_there_is_not(options, message):
    result = run("--subscriptions", 10, *options)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_events_raise_and_lower_within_the_domain(distribution):
    work = draw_ranks(RankSetting(30, 500, 400, distribution, seed=2))
    assert 0 <= work.x.min() <= work.x.max() <= SPAN and np.all(work.low <= work.high)
    assert work.new_y.min() >= 0 and work.new_y.max() < (SPAN + 1) * 30
    y, rises = work.y.copy(), 0
    for i, new in zip(work.number.tolist(), work.new_y.tolist(), strict=True):
        rises += new > y[i]
        y[i] = new
    assert 0.4 < rises / 400 < 0.6
    held = [int(((work.low <= x) & (x <= work.high)).sum()) for x in work.x.tolist()]
    assert stabbed(work.low, work.high, work.x).tolist() == held
    boxes = np.stack([np.zeros(30, np.int64), work.x, work.x, np.full(30, SPAN)], axis=1)
    assert count_reached(space_of(work), boxes).tolist() == held


def test_a_walk_has_no_ignorable_updates():
    work = draw_walk(WalkSetting(objects=3000, subscriptions=50, events=400, spikes=0.05))
    extremes = Extremes(work.x, work.y)
    extremes.update(*work.part(0, 400))
    assert extremes.counters["ignorable"] == 0 and extremes.counters["messages"] > 500
    assert 5 < (work.new_y == 0).sum() < 50
