"""`tocsin import`: rules of each kind from files, as JSON and as SQL, and how it refuses."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tocsin import Engine
from tocsin.cli import app

FILES = {
    "eventbridge": ("p.json", '[{"source": ["aws.ec2"]}, {"state": [{"like": "x"}]}]'),
    "cesql": ("f.txt", "# filters\ntype LIKE 'order.%'\n\nsubject OR\n"),
}
FILES["percolator"] = ("q.jsonl", '{"query": {"term": {"state": "new"}}}\n{"query": {"fuzzy": {"a": "x"}}}\n')
PLACES = {"eventbridge": ("state[0]", "like"), "cesql": ("column 11", ""), "percolator": ("fuzzy", "fuzzy")}
EVENTS = {
    "eventbridge": {"source": "aws.ec2"},
    "cesql": {"type": "order.made"},
    "percolator": {"state": "new"},
}


def run(*arguments):
    return CliRunner().invoke(app, ["import", *map(str, arguments)])


@pytest.mark.parametrize("kind", FILES)
def test_each_rule_is_taken_or_has_a_place(tmp_path, kind):
    name, text = FILES[kind]
    (tmp_path / name).write_text(text)
    result = run(kind, tmp_path, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["kind"], found["rules"], found["taken"], found["refused"]) == (kind, 2, 1, 1)
    good, bad = found["outcomes"]
    assert good["taken"] and good["sql"].startswith("SELECT * FROM events WHERE ")
    assert (bad["place"], bad["construct"]) == PLACES[kind]
    assert bad["reason"]


@pytest.mark.parametrize("kind", FILES)
def test_exported_SQL_matches_the_same_events(tmp_path, kind):
    name, text = FILES[kind]
    (tmp_path / name).write_text(text)
    result = run(kind, tmp_path / name, "--export", "sql", "--stream", "bus")
    engine = Engine()
    for statement in result.stdout.split(";\n"):
        if "CREATE" in statement:
            engine.execute(statement.strip().rstrip(";"))
        elif "SELECT" in statement:
            engine.subscribe(statement[statement.index("SELECT") :].strip().rstrip(";"))
    assert len(engine.publish("bus", EVENTS[kind])) == 1


def test_a_mapping_types_the_fields(tmp_path):
    (tmp_path / "q.json").write_text('{"query": {"match": {"title": "Fox"}}}')
    (tmp_path / "m.txt").write_text('{"mappings": {"properties": {"title": {"type": "keyword"}}}}')
    result = run("percolator", tmp_path / "q.json", "--mapping", tmp_path / "m.txt", "--export", "sql")
    assert "exists(title[*], e1 -> e1 = 'Fox')" in result.stdout


def test_unknown_kinds_and_files_are_refused(tmp_path):
    assert "there is no kind of rules called 'snort'" in run("snort", tmp_path).output
    assert "does not exist" in run("cesql", tmp_path / "none.txt").output
