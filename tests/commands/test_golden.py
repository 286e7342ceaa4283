"""`tocsin validate` on the golden files: every statement comes to what is recorded of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tocsin.cli import app

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("name", ["good.sql", "bad.sql"])
def test_every_statement_is_as_recorded(name):
    result = CliRunner().invoke(app, ["validate", "--json", str(GOLDEN / name)])
    (report,) = json.loads(result.stdout)
    wrong = [outcome for outcome in report["outcomes"] if not outcome["ok"]]
    assert wrong == []
    assert result.exit_code == 0
    assert report["as_recorded"] == report["recorded"] > 50


def test_bad_statements_are_all_rejected_and_good_ones_all_taken():
    (good,) = json.loads(CliRunner().invoke(app, ["validate", "--json", str(GOLDEN / "good.sql")]).stdout)
    (bad,) = json.loads(CliRunner().invoke(app, ["validate", "--json", str(GOLDEN / "bad.sql")]).stdout)
    assert good["errors"] == 0
    assert bad["errors"] == bad["recorded"]
    assert bad["subscriptions"] == {}


def test_another_message_than_the_recorded_one_is_a_problem(tmp_path):
    text = (GOLDEN / "bad.sql").read_text(encoding="utf-8")
    changed = tmp_path / "bad.sql"
    changed.write_text(
        text.replace("-- error: table 't' has no primary key", "-- error: no key", 1), encoding="utf-8"
    )
    result = CliRunner().invoke(app, ["validate", "-q", str(changed)])
    assert result.exit_code == 1
    assert "recorded error: no key" in result.stdout
    assert "1 problem" in result.stdout
