"""`bench/filters_show.py`: every claim at a tiny size, and what it says of wrong answers and missed bars."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tocsin.match.index import Auto

SCRIPT = Path(__file__).parents[3] / "bench" / "filters_show.py"
TINY = {
    "match": "--sparse 400 --dense 200 --interval 200 --sparse-events 60 --dense-events 60"
    " --interval-events 60 --slow-events 20 --batch 25",
    "large": "--n 500 --events 60 --batch 25 --builds 1",
    "apply": "--n 500 --events 60 --batch 25",
    "load": "--predicates 300 --template 2000 --texts 200",
    "live": "--n 500 --events 60 --batch 20 --compared 60 --seconds 0.3 --rate 2000 --update 20 --pool 200",
    "drift": "--n 400 --attributes 60 --population 160 --events 60 --batch 20 --steady 3 --batches 4",
    "patterns": "--regexes 30 --words 60 --events 40 --length 80 --long 500 --checked 5",
}
CLAIMS = {
    "match": ["match sparse", "match dense", "match interval"],
    "large": ["large build", "large memory", "large matching", "large threads"],
    "apply": ["apply"],
    "load": ["load predicates", "load template", "load texts"],
    "live": ["live inserts", "live matching"],
    "drift": [
        "drift",
        "drift schema auto",
        "drift schema dynamic",
        "drift skew auto",
    ],
    "patterns": ["patterns regexes", "patterns words", "patterns backtracking"],
}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("filters_show", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(SCRIPT.parent))  # what the scripts share is beside them
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(SCRIPT.parent))


def arguments(name, *more):
    return [name, *TINY[name].split(), "--repeat", "2", *more]


@pytest.mark.parametrize("name", TINY)
def test_shows_its_claims(script, capsys, name):
    assert script.main(arguments(name, "--no-bar")) == 0
    out, err = capsys.readouterr()
    claims = [json.loads(line) for line in out.splitlines()]
    assert [one["claim"] for one in claims] == CLAIMS[name]
    for one in claims:
        assert one["value"] > 0 and one["repeat"] in (1, 2) and ("at_least" in one) != ("at_most" in one)
        assert one["claim"] in err


def test_every_command_is_tried(script):
    assert [show.__name__.removeprefix("show_") for show in script.COMMANDS] == list(TINY)


@pytest.mark.parametrize("name", TINY)
def test_wrong_answers_have_no_time(script, capsys, monkeypatch, name):
    right = Auto.match
    monkeypatch.setattr(Auto, "match", lambda self, rows: np.append(right(self, rows), 0))
    assert script.main(arguments(name, "--no-bar")) == 1
    out, err = capsys.readouterr()
    assert not out and "wrong answers" in err


def test_a_missed_bar_is_a_failure(script, capsys):
    assert script.main(arguments("large")) == 1  # 500 subscriptions share what an index has anyway
    assert "DOES NOT HOLD" in capsys.readouterr().err
