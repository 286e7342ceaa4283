"""`tocsin bench limits`: what it prints, its claims, and the data that it asks for."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tocsin.cli import app
from tocsin.errors import UsageError
from tocsin.lab.bench.claim import Claim
from tocsin.lab.bench.limits.chapter3 import REAL_POLICIES, cache_hits, keys_of, read_temperatures
from tocsin.lab.bench.limits.figures import (
    FigureRow,
    LimitsFigure,
    LimitsResult,
    LimitsSetting,
    figures,
)
from tocsin.lab.bench.limits.show import as_markdown, draw
from tocsin.limits.flow import lfd_hits


def run(*arguments: object):
    return CliRunner().invoke(app, ["bench", "limits", *(str(a) for a in arguments)])


def test_a_figure_as_json():
    result = run("--figure", "3.7", "--json")
    assert result.exit_code == 0, result.output
    output = json.loads(result.stdout)
    assert list(output) == ["figure", "rows", "claims"] and output["figure"] == "3.7"
    assert list(output["rows"][0]) == ["workload", "policy", "x", "value", "stated"]
    assert all(claim["met"] for claim in output["claims"])


def test_a_figure_as_text():
    result = run("--figure", "3.7")
    assert result.exit_code == 0, result.output
    assert "drift 4" in result.stdout and "holds" in result.stdout


def test_figures_that_do_not_exist():
    result = run("--figure", "3.6")
    assert result.exit_code != 0 and "figure 3.6 is not measured" in result.output


def test_every_figure_has_a_name_of_its_own_and_axes():
    chapter3 = "3.7 3.9 3.10 3.11 3.12 3.13 3.14 3.15 3.16 3.17 3.20 drift"
    assert set(chapter3.split()) <= set(figures())
    for name, figure in figures().items():
        assert name == figure.name and figure.title and figure.x and figure.y and figure.runs >= 1


def drawn(setting, say):
    rows = [FigureRow("w", p, x, float(n)) for p in "ab" for n, x in enumerate(("one", "two"))]
    return LimitsResult(rows, [Claim("a", 1.0, at_least=2.0)], "how")


def test_pages_and_pictures(tmp_path):
    figure = LimitsFigure("9.9", "title", "x", "y", 1, drawn, "words")
    result = figure.run(LimitsSetting())
    page = as_markdown(figure, result)
    assert "| one | 0 | 0 |" in page and "DOES NOT HOLD" in page and "Stated: words" in page
    pytest.importorskip("matplotlib")
    draw(tmp_path / "a.png", figure, result)
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_data_that_is_missing():
    figure = LimitsFigure("9.9", "title", "x", "y", 1, drawn, needs_data=True)
    with pytest.raises(UsageError, match="needs the daily maximum temperatures"):
        figure.run(LimitsSetting())


def test_errors_of_control_points():
    result = figures()["3.17"].run(LimitsSetting())
    errors = {(row.policy, row.x): row.value for row in result.rows}
    assert errors["α = 10", 5] > 0.1 > 0.005 > errors["α = 10", 17]
    assert all(claim.met for claim in result.claims)


def test_hits_of_a_small_series(tmp_path):
    values = [round(20 + 5 * ((n * 7919) % 97) / 97, 1) for n in range(150)]
    (tmp_path / "some.csv").write_text("Temperature\n" + "\n".join(map(str, values)))
    found = read_temperatures(tmp_path / "some.csv")
    assert found.tolist() == values
    hits = {name: cache_hits(found, 10, make(found)) for name, make in REAL_POLICIES.items()}
    assert max(hits.values()) == hits["LFD"] == lfd_hits(keys_of(found).tolist(), 10)
    (tmp_path / "few.csv").write_text("Temperature\n1.5\n")
    with pytest.raises(UsageError, match="has 1 values"):
        read_temperatures(tmp_path / "few.csv")
