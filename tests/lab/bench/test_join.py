"""`tocsin bench join`: what it prints, and that it refuses wrong answers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.join.cases import Model, Query
from tocsin.cli import app
from tocsin.join.strategies.base import JoinKind
from tocsin.join.strategies.equality import Ssi
from tocsin.lab.bench.join import JoinSetting, draw_joins, find_strategies

SMALL = ("--queries", 400, "--rows", 300, "--groups", 5, "--events", 60, "--repeat", 2, "--seconds", 0.01)
KEYS = [
    *("strategy", "events_per_s", "us_per_event", "spread", "affected_per_event", "results_per_event"),
    *("build_s", "bytes_per_query", "checked", "write_us_per_event"),
]


def run(*arguments: object):
    return CliRunner().invoke(app, ["bench", "join", *(str(a) for a in arguments)])


@pytest.mark.parametrize(
    ("kind", "strategies"),
    [("equality", "naive,selectfirst,ssi,hotspot,dynamic"), ("band", "qouter,douter,mj,ssi,hotspot")],
)
def test_prints_what_was_measured(kind, strategies):
    result = run("--kind", kind, *SMALL, "--joining", 10, "--strategy", strategies, "--json")
    assert result.exit_code == 0, result.output
    output = json.loads(result.stdout)
    assert list(output) == ["kind", "queries", "rows", "groups", "results"]
    assert (output["kind"], output["queries"], output["rows"], output["groups"]) == (kind, 400, 300, 5)
    assert [one["strategy"] for one in output["results"]] == strategies.split(",")
    for one in output["results"]:
        assert list(one) == KEYS and one["checked"] is True
        assert one["events_per_s"] == pytest.approx(1e6 / one["us_per_event"])
        assert (
            one["write_us_per_event"] > 0
            and one["results_per_event"] > 0
            and one["affected_per_event"] > 0
            and one["bytes_per_query"] > 0
        )


@pytest.mark.parametrize("kind", list(JoinKind))
def test_a_workload_affects_what_it_should(kind):
    setting = JoinSetting(queries=500, rows=2000, groups=6, joining=20, affected=0.04, events=100, seed=3)
    work = draw_joins(kind, setting)
    assert work.groups == 6
    model = Model(kind)
    model.tables[1].update(enumerate(zip(work.keys.tolist(), work.values.tolist(), strict=True)))
    model.queries = {n: Query(*row) for n, row in enumerate(np.stack(work.ranges, axis=1).tolist())}
    events = list(zip(work.event_keys.tolist(), work.event_values.tolist(), strict=True))[:40]
    affected = np.mean([len(model.affected(0, *event)) for event in events]) / 500
    assert 0.4 * 0.04 < affected < 2 * 0.04


def test_prints_a_table_for_people():
    result = run(*SMALL, "--strategy", "ssi")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split()[0] == "strategy" and lines[1].split()[0] == "ssi"
    assert lines[2].startswith("writing the result rows")


def test_a_wrong_strategy_has_no_time(monkeypatch):
    right = Ssi.affected
    monkeypatch.setattr(Ssi, "affected", lambda self, *event: right(self, *event)[1:])
    result = run(*SMALL, "--strategy", "ssi")
    assert result.exit_code == 1
    assert "the strategy ssi gives wrong answers" in result.stderr and "µs/event" not in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--strategy", "nosuch"), "there is no strategy 'nosuch' for equality joins"),
        (("--kind", "band", "--strategy", "dynamic"), "there is no strategy 'dynamic' for band joins"),
        (("--kind", "nosuch"), "there is no kind of join 'nosuch'"),
        (("--affected", 0.2, "--selected", 0.1), "--affected must be below --selected"),
        (("--selected", 0), "--selected"),
        (("--affected", 0), "--affected"),
    ],
)
def test_refuses_what_there_is_not(options, message):
    result = run("--queries", 10, *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_every_strategy_is_found_by_its_name():
    assert find_strategies(JoinKind.EQUALITY)["ssi"] is Ssi
    names = "naive joinfirst-e joinfirst-s selectfirst ssi hotspot dynamic"
    assert set(find_strategies(JoinKind.EQUALITY)) == set(names.split())
    assert set(find_strategies(JoinKind.BAND)) == {"qouter", "douter", "mj", "ssi", "hotspot"}
