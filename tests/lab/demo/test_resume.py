"""A demo that died half-way and is resumed ends as one that nobody disturbed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from shutil import rmtree

import pytest
from typer.testing import CliRunner

from tests.lab.demo.embedded import embedded
from tocsin.cli import app
from tocsin.lab.demo.received import Received
from tocsin.lab.demo.replay import FlightReplay, locked_folder
from tocsin.lab.demo.script import Script

SCRIPT = Script(days=1, subscriptions=9, seed=4, batches=2)
OPTIONS = ["--days", "1", "--subscriptions", "9", "--seed", "4", "--batches", "2"]


def demo(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [
        str(Path(sys.executable).with_name("tocsin")),
        "demo",
        "--json",
        "--dir",
        str(folder),
        *options,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif("TOCSIN_TEST_CLUSTER" not in os.environ, reason="run by make test-cluster")
def test_resumed_it_ends_with_the_same_contents(tmp_path):
    """In this process, which saves two JVMs; `tests/lab/chaos/test_chaos.py` really kills a driver."""
    folder = tmp_path / "demo"
    first = CliRunner().invoke(app, ["demo", "--json", "--dir", str(folder), *OPTIONS])
    assert first.exit_code == 0, first.output
    for path in [*folder.glob("state/checkpoint/commits/*1*"), *folder.glob("deltas/batch=1")]:
        rmtree(path) if path.is_dir() else path.unlink()  # as if it had died in its last batch

    second = CliRunner().invoke(app, ["demo", "--json", "--dir", str(folder), "--resume"])
    assert second.exit_code == 0, second.output
    summary = json.loads(second.stdout)
    assert summary["resumed_after"] == 1
    assert summary["right"] == summary["checked"] > 0
    # What an undisturbed run comes to is what an embedded engine comes to, and that takes no minute.
    ran = embedded(SCRIPT)
    assert summary["checksum"] == Received.of(ran.tables).contents().checksum(ran.queries)


def test_there_must_be_something_to_resume(tmp_path):
    run = demo(tmp_path / "none", "--resume")
    out, _ = run.communicate(timeout=120)
    assert run.returncode == 2
    assert "there is no demo to resume" in json.loads(out)["error"]["fact"]
    assert not (tmp_path / "none").exists()


def test_a_folder_of_someone_else_is_not_emptied(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    run = demo(tmp_path, "--days", "1", "--subscriptions", "9")
    out, _ = run.communicate(timeout=120)
    assert run.returncode == 2
    assert "holds no demo" in json.loads(out)["error"]["fact"]
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_run_is_resumed_as_it_was_begun(tmp_path):
    (tmp_path / "demo.json").write_text(json.dumps(asdict(SCRIPT)))
    run = demo(tmp_path, "--resume", "--days", "2", "--seed", "4", "--subscriptions", "2000")
    out, _ = run.communicate(timeout=120)
    assert run.returncode == 2
    assert json.loads(out)["error"]["fact"] == (
        "the demo to resume has --days 1, --subscriptions 9, not --days 2, --subscriptions 2000"
    )


def test_a_second_demo_leaves_a_running_one_alone(tmp_path):
    with locked_folder(tmp_path, resume=False) as folder:
        FlightReplay.begin(folder, SCRIPT, SCRIPT.changes())
        before = sorted(folder.rglob("*"))
        for options in (OPTIONS, ["--resume"]):
            out, _ = demo(tmp_path, *options).communicate(timeout=120)
            assert "a demo is running" in json.loads(out)["error"]["fact"]
        assert sorted(folder.rglob("*")) == before
