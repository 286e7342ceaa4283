"""Chaos: what is lost, doubled or wrong is counted, and a pipeline that is killed loses nothing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tocsin.cli import app
from tocsin.lab.chaos.run import ChaosResult, ChaosRun, batches_of, compare
from tocsin.lab.chaos.workload import ChaosWorkload, ExpectedDeltas, PinnedBatch, contents_of
from tocsin.spark.versions.batch import Pin

WORKLOAD = ChaosWorkload(seed=5, files=4, size=30, subscriptions=24, turnover=3)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """What a run leaves behind, made by the engine that nobody disturbs."""
    batches = [
        PinnedBatch(n, Pin(min(n + 1, len(WORKLOAD.sets())), n * WORKLOAD.size, 0), (n + 1) * WORKLOAD.size)
        for n in range(WORKLOAD.files)
    ]
    monkeypatch.setattr("tocsin.lab.chaos.run.batches_of", lambda folder, state=None: batches)
    for (batch, seq, number, row, sign), count in ExpectedDeltas.of(WORKLOAD, batches).deltas.items():
        folder = tmp_path / "deltas" / f"batch={batch}"
        folder.mkdir(parents=True, exist_ok=True)
        delta = {"seq": seq, "subscription": number, "row": row, "sign": sign}
        with open(folder / "part-0.json", "a") as file:
            file.write(f"{json.dumps(delta)}\n" * count)
    return tmp_path


def result(folder: Path) -> ChaosResult:
    made = ChaosResult()
    compare(folder, WORKLOAD, made)
    return made


def test_a_run_that_nobody_disturbed_is_right(run):
    made = result(run)
    assert made.ok and made.deltas > 100 and made.batches == WORKLOAD.files
    assert {"filter", "join", "topk"} <= _shapes()


def test_what_is_lost_doubled_or_wrong_is_counted_and_named(run):
    file = run / "deltas" / "batch=2" / "part-0.json"
    lines = file.read_text().splitlines()
    wrong = json.loads(lines[2]) | {"seq": 0}
    file.write_text("\n".join([*lines[1:], lines[1], json.dumps(wrong)]) + "\n")
    made = result(run)
    assert (made.lost, made.doubled) == (1, 1)
    assert made.wrong >= 1
    lost = json.loads(lines[0])
    assert made.differences[0].startswith(
        f"lost: batch 2, seq {lost['seq']}, subscription {lost['subscription']}: "
    )


def test_rejected_changes_and_an_early_end_are_wrong(run, monkeypatch):
    (run / "state" / "dead_letters" / "batch=1").mkdir(parents=True)
    (run / "state" / "dead_letters" / "batch=1" / "part-0.json").write_text("{}\n")
    assert result(run).wrong == 1
    monkeypatch.setattr("tocsin.lab.chaos.run.batches_of", lambda folder, state=None: [])
    assert result(run).wrong > 2


def test_a_client_says_what_it_cannot_take():
    emitted = Counter({(0, 1, 7, '{"a":1}', -1): 1, (0, 1, 8, '{"a":1}', 1): 1})
    held = contents_of(emitted, [7, 8])
    assert "subscription 7 does not hold the row" in held[7]
    assert held[8] == Counter({'{"a":1}': 1})


def test_pins_say_where_batches_end(tmp_path):
    from tocsin.spark.pipeline import query_of

    pins = tmp_path / "state" / "pins" / query_of("checkpoint")
    pins.mkdir(parents=True)
    (pins / "0.json").write_text('{"version": 1, "seq": -1, "micros": 0}')
    (pins / "1.json").write_text('{"version": 2, "seq": 9, "micros": 0}')
    (pins / "0.applied").write_text("9")
    assert [(b.number, b.pin.version, b.last) for b in batches_of(tmp_path)] == [(0, 1, 9), (1, 2, 9)]


def test_the_command_refuses_what_it_cannot_do(tmp_path):
    for options, fact in (
        (["--place", "moon"], "there is no place 'moon'"),
        (["--kills", "50"], "leave no time"),
    ):
        done = CliRunner().invoke(app, ["chaos", "--json", "--dir", str(tmp_path), *options])
        assert done.exit_code == 2
        assert fact in json.loads(done.stdout)["error"]["fact"]


@pytest.mark.spark
@pytest.mark.slow
def test_a_driver_and_a_python_worker_are_killed_and_nothing_is_lost(tmp_path):
    """Two kills in one run on this machine; `tocsin chaos` does more of it, on a cluster too."""
    made = ChaosRun(tmp_path / "run", WORKLOAD, [(1, "python"), (2, "driver")]).run(print)
    assert made.ok, made.differences
    assert made.kills == {"driver": 1, "python": 1}


def _shapes() -> set[str]:
    from tocsin.engine import Engine
    from tocsin.lab.chaos.workload import DDL

    engine = Engine()
    engine.execute(DDL)
    return {str(engine.subscribe(sql).shape) for sql in WORKLOAD.sets()[0].values()}
