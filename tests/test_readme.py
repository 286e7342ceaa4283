"""The README and the guide are true: their code runs, and prints what their comments say."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tocsin
from tocsin.errors import SqlError

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README + GUIDE, re.MULTILINE | re.DOTALL)


def blocks(language: str, word: str = "") -> list[str]:
    return [text for name, text in BLOCKS if name == language and word in text]


def promised(block: str) -> list[str]:
    """The expected output: comments on lines of their own."""
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


@pytest.fixture
def engine() -> tocsin.Engine:
    """The streams and tables of the README's tables of SQL."""
    made = tocsin.Engine()
    made.execute("CREATE STREAM listings")
    made.execute(
        "CREATE TABLE stocks (symbol STRING, per DOUBLE, risk DOUBLE, sector STRING, PRIMARY KEY (symbol))"
    )
    made.execute("CREATE TABLE reviews (id BIGINT, symbol STRING, rating DOUBLE, PRIMARY KEY (id))")
    for name in ("units", "targets"):
        made.execute(f"CREATE TABLE {name} (id BIGINT, pos DOUBLE, PRIMARY KEY (id))")
    for name in ("hits", "views", "clicks"):
        made.execute(f"CREATE STREAM {name} (page STRING)")
    made.execute("CREATE TABLE pages (page STRING, PRIMARY KEY (page))")
    return made


def table_rows(heading: str) -> list[tuple[str, str]]:
    """The rows of a table of the README whose second column is a query."""
    table = README.split(f"| {heading} | for example |")[1].split("\n\n")[0]
    return re.findall(r"^\| ([^|]+) \| `(SELECT [^`]+)` \|$", table, re.MULTILINE)


def test_the_event_matches_the_subscriptions() -> None:
    (event,), (queries,) = blocks("json"), blocks("sql")
    engine = tocsin.Engine()
    engine.execute("CREATE STREAM listings")
    made = [engine.subscribe(sql) for sql in queries.strip().rstrip(";").split(";")]
    matched = engine.publish("listings", json.loads(event))
    assert len(made) == 3
    assert sorted(matched.subscription.tolist()) == [s.id for s in made]


def test_the_shapes_of_the_table_are_right(engine: tocsin.Engine) -> None:
    rows = table_rows("shape")
    names = {
        "band join": "band",
        "top-k": "topk",
        "stream, with declared columns, joined with tables": "enrich",
        "two streams, in bounded memory": "streamjoin",
        "groups": "group",
        "aggregates, DISTINCT, groups and top-k over joins": "group",
        "first rows of each group": "ranked",
        "page of a top-k": "ranked",
        "outer join: LEFT, RIGHT, FULL": "outer",
        "absence, by the clock": "semijoin",
        "absence of keys once seen": "filter",
        "sequence of events of one key, up to five steps": "sequence",
        "row with or without partner: EXISTS, NOT EXISTS, IN, NOT IN": "semijoin",
    }
    assert len(rows) == 19
    for name, sql in rows:
        assert engine.subscribe(sql).shape == names.get(name, name)


def test_what_the_table_calls_unsupported_is_rejected_with_a_hint(engine: tocsin.Engine) -> None:
    rows = table_rows("not supported")
    assert len(rows) == 7
    for _, sql in rows:
        with pytest.raises(SqlError) as caught:
            engine.subscribe(sql)
        assert caught.value.position is not None and caught.value.hint


PYTHON_BLOCKS = [block for block in blocks("python") if "tocsin.spark" not in block]
SHELL_BLOCKS = [block for word in ("tocsin validate", "tocsin match") for block in blocks("sh", word)]


def test_the_examples_are_found() -> None:
    assert len(PYTHON_BLOCKS) == 11
    assert len(SHELL_BLOCKS) == 3


@pytest.mark.parametrize("block", PYTHON_BLOCKS)
def test_every_python_block_is_true(block: str) -> None:
    assert run_python(block) == promised(block)


@pytest.mark.parametrize("block", SHELL_BLOCKS)
def test_the_commands_print_what_the_comments_say(block: str, tmp_path: Path) -> None:
    assert [line for line in run_shell(block, tmp_path) if line] == promised(block)


@pytest.mark.spark
@pytest.mark.slow
def test_pipelines_run_by_the_command_and_in_python(tmp_path: Path) -> None:
    """One process for both, to start one JVM; the shell runs all but the last command."""
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


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINKS = re.compile(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)")


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=lambda p: p.name
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINKS.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


PATHS = re.compile(r"`((?:src|tests|docs|bench|tools)/[\w./-]+|\w+/[\w/]+\.py)`")


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=lambda p: p.name
)
def test_files_that_pages_name_exist(page: Path) -> None:
    """A path is given from the root, or from src/tocsin; papers.md also names files that are planned."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for name in PATHS.findall("\n".join(line for line in lines if "| planned |" not in line)):
        assert (ROOT / name).exists() or (ROOT / "src" / "tocsin" / name).exists(), f"{page.name}: {name}"


HOPS = re.compile(r"`(\w+(?:\.\w+)*)` \(`([\w/]+)\.py`\)")


def test_functions_that_the_tour_names_exist() -> None:
    """A hop is written as `Class.function` (`file.py`)."""
    hops = HOPS.findall((ROOT / "docs" / "tour.md").read_text(encoding="utf-8"))
    assert len(hops) > 60
    for name, path in hops:
        found = import_module("tocsin." + path.replace("/", ".").removesuffix(".__init__"))
        for part in name.split("."):
            assert hasattr(found, part), f"there is no {name} in {path}.py"
            found = getattr(found, part)
