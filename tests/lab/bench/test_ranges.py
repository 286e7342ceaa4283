"""`tocsin bench ranges`: what it prints, and that it rejects wrong contents."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tocsin.cli import app
from tocsin.lab.bench import ranges

SMALL = ("--subscriptions", 80, "--rows", 60, "--changes", 20, "--batch", 10, "--repeat", 1)


def run(*arguments: object):
    return CliRunner().invoke(app, ["bench", "ranges", *(str(a) for a in arguments)])


@pytest.mark.parametrize("more", [(), ("--texts",)])
def test_prints_what_was_measured(more):
    result = run(*SMALL, "--shape", "distinct", "--json", *more)
    assert result.exit_code == 0, result.output
    output = json.loads(result.stdout)
    assert (output["subscriptions"], output["texts"]) == (80, bool(more))
    assert len(output["results"]) == 14
    for one in output["results"]:
        assert one["checked"] == 5 and one["us_per_change"] > 0
        assert ("box" in one["family"]) == (one["varies"] == ranges.BOTH)
        assert one["ratio"] == 1 or one["varies"] != ranges.ONE


def test_prints_a_table():
    result = run(*SMALL, "--shape", "count")
    assert result.exit_code == 0 and "box aggregates" in result.stdout


def test_rejects_wrong_contents_and_unknown_shapes(monkeypatch):
    assert "min, count, topk, distinct" in run("--shape", "max").output
    monkeypatch.setattr(ranges, "evaluate", lambda *_: [{"n": -1}])
    result = run(*SMALL, "--shape", "count")
    assert result.exit_code == 1 and "wrong contents" in result.output
