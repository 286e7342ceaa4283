"""How shards scale out: every shape with several numbers of shards, compared with the engine."""

import json

import pytest
from typer.testing import CliRunner

from tocsin.cli import app
from tocsin.errors import TocsinError, UsageError
from tocsin.lab.bench import spark_scale
from tocsin.lab.bench.spark_scale import SHAPES, ScaleSetting, gains, measure_scale, plot_scale

SMALL = {"subscriptions": 1500, "changes": 400, "batch": 200}


def test_every_shape_has_a_rate_for_each_number_of_shards(tmp_path):
    rates = measure_scale(ScaleSetting(shards=(1, 3), **SMALL))
    assert rates.keys() == SHAPES.keys()
    assert all(found.keys() == {"1", "3"} and min(found.values()) > 0 for found in rates.values())
    assert gains({"topk": {"1": 10.0, "4": 30.0, "16": 120.0}}) == {"topk": 12.0}
    plot_scale(rates, tmp_path / "scale.png")
    assert (tmp_path / "scale.png").stat().st_size > 1000


def test_the_command_prints_rates_by_shape():
    arguments = ["bench", "spark", "--scale", "--json", "--shape", "topk", "--shape", "filter"]
    arguments += [f"--{name}={value}" for name, value in SMALL.items()]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert list(found) == ["shapes"] and list(found["shapes"]) == ["topk", "filter"]
    assert list(found["shapes"]["topk"]) == ["1", "4", "16"]


def test_wrong_answers_and_unknown_shapes_are_reported(monkeypatch):
    with pytest.raises(UsageError, match="there is no shape 'cube'"):
        measure_scale(ScaleSetting(("cube",)))
    monkeypatch.setattr(spark_scale, "_expected", lambda *_: (7, {}))
    with pytest.raises(TocsinError, match="the engine 7"):
        measure_scale(ScaleSetting(("topk",), (1,), **SMALL))
