"""The README is true: its code runs, and prints what its comments say."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tocsin

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def blocks(language: str, word: str = "") -> list[str]:
    return [text for name, text in BLOCKS if name == language and word in text]


def promised(block: str) -> list[str]:
    """The comments that stand for output: those on lines of their own."""
    return [line[2:] for line in block.splitlines() if line.startswith("# ")]


def run_python(block: str) -> list[str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
    return out.getvalue().splitlines()


def run_shell(block: str, folder: Path) -> list[str]:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", block], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_event_matches_the_subscriptions():
    (event,), (queries,) = blocks("json"), blocks("sql")
    engine = tocsin.Engine()
    engine.execute("CREATE STREAM listings")
    made = [engine.subscribe(sql) for sql in queries.strip().rstrip(";").split(";")]
    deltas = engine.publish("listings", json.loads(event))
    assert len(made) == 3
    assert sorted(deltas.subscription.tolist()) == [s.id for s in made]


def test_the_library_says_what_the_readme_says():
    (block,) = blocks("python", "tocsin.Engine()")
    assert run_python(block) == promised(block)


def test_the_commands_say_what_the_readme_says(tmp_path):
    (block,) = blocks("sh", "tocsin validate")
    assert run_shell(block, tmp_path) == promised(block)


def test_the_shapes_of_the_table_are_right():
    engine = tocsin.Engine()
    engine.execute("CREATE STREAM listings")
    engine.execute(
        "CREATE TABLE stocks (symbol STRING, per DOUBLE, risk DOUBLE, sector STRING, PRIMARY KEY (symbol))"
    )
    engine.execute("CREATE TABLE reviews (id BIGINT, symbol STRING, rating DOUBLE, PRIMARY KEY (id))")
    for name in ("units", "targets"):
        engine.execute(f"CREATE TABLE {name} (id BIGINT, pos DOUBLE, PRIMARY KEY (id))")
    rows = re.findall(r"^\| ([\w -]+) \| `(SELECT [^`]+)` \|$", README, re.MULTILINE)
    names = {"band join": "band", "top-k": "topk"}
    assert len(rows) == 7
    for name, sql in rows:
        assert engine.subscribe(sql).shape == names.get(name, name)


@pytest.mark.spark
@pytest.mark.slow
def test_pipelines_run_by_the_command_and_in_python(tmp_path):
    """One process for both, which saves a JVM; what precedes the last command is left to the shell."""
    (block,) = blocks("sh", "tocsin run pipeline.toml")
    *before, command = block.strip().splitlines()
    assert command == "tocsin run pipeline.toml"
    run_shell("\n".join(before), tmp_path)
    (block,) = blocks("python", "tocsin.spark")
    by_command = "from tocsin.cli import app\napp(['run', 'pipeline.toml'], standalone_mode=False)\n"
    (tmp_path / "both.py").write_text(f"{by_command}\nprint('--- in Python')\n{block}")
    said = run_shell("python both.py", tmp_path)
    assert said[0].startswith("1 changes in 1 batches")
    assert (tmp_path / "out" / "deltas" / "batch=0").is_dir()
    assert said[said.index("--- in Python") + 1 :] == promised(block)


@pytest.mark.parametrize("block", [b for b in blocks("python") if "tocsin.spark" not in b])
def test_every_python_block_is_true(block: str) -> None:
    assert run_python(block) == promised(block)


def test_files_are_matched_as_the_readme_says(tmp_path: Path) -> None:
    (block,) = blocks("sh", "tocsin match")
    assert [line for line in run_shell(block, tmp_path) if line] == promised(block)
