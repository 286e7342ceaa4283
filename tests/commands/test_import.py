"""`tocsin import`: rules of each kind from files, as JSON and as SQL, and how it refuses."""

from __future__ import annotations

import importlib.util
import json

import pytest
from typer.testing import CliRunner

from tocsin import Engine
from tocsin.cli import app

FILES = {
    "eventbridge": ("p.json", '[{"source": ["aws.ec2"]}, {"state": [{"like": "x"}]}]'),
    "cesql": ("f.txt", "# filters\ntype LIKE 'order.%'\n\nsubject OR\n"),
}
WHOAMI = """title: Whoami
logsource: {category: process_creation}
detection:
    selection: {Image|endswith: '\\whoami.exe'}
    condition: selection
---
title: Look ahead
logsource: {category: process_creation}
detection:
    selection: {CommandLine|re: '(?=x)'}
    condition: selection
"""
if importlib.util.find_spec("sigma"):
    FILES["sigma"] = ("rules.yml", WHOAMI)
FILES["percolator"] = ("q.jsonl", '{"query": {"term": {"state": "new"}}}\n{"query": {"fuzzy": {"a": "x"}}}\n')
PLACES = {"eventbridge": ("state[0]", "like"), "cesql": ("column 11", ""), "percolator": ("fuzzy", "fuzzy")}
PLACES["sigma"] = ("detection.selection.CommandLine|re", "(?=x)")
EVENTS = {
    "eventbridge": {"source": "aws.ec2"},
    "cesql": {"type": "order.made"},
    "percolator": {"state": "new"},
    "sigma": {"Image": "C:\\\\Windows\\\\WHOAMI.exe"},
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


def test_a_pipeline_maps_the_fields(tmp_path):
    pytest.importorskip("sigma")
    (tmp_path / "rules.yml").write_text(WHOAMI.partition("---")[0])
    (tmp_path / "p.txt").write_text(
        "name: p\ntransformations:\n- {id: a, type: field_name_mapping, mapping: {Image: process.path}}\n"
    )
    result = run("sigma", tmp_path / "rules.yml", "--pipeline", tmp_path / "p.txt", "--export", "sql")
    assert "process.path ILIKE '%" in result.stdout


def test_a_mapping_types_the_fields(tmp_path):
    (tmp_path / "q.json").write_text('{"query": {"match": {"title": "Fox"}}}')
    (tmp_path / "m.txt").write_text('{"mappings": {"properties": {"title": {"type": "keyword"}}}}')
    result = run("percolator", tmp_path / "q.json", "--mapping", tmp_path / "m.txt", "--export", "sql")
    assert "exists(title[*], e1 -> e1 = 'Fox')" in result.stdout


def test_unknown_kinds_and_files_are_refused(tmp_path):
    assert "there is no kind of rules called 'snort'" in run("snort", tmp_path).output
    assert "does not exist" in run("cesql", tmp_path / "none.txt").output


SIGMA = """
title: Failed login
name: failed
logsource: {category: authentication}
detection: {selection: {ok: false}, condition: selection}
"""
CORRELATION = """
title: %s
correlation:
    {type: %s, rules: %s, group-by: [user], timespan: 10m, condition: %s}
"""
CORRELATIONS = {
    "event_count": ("[failed]", "{gte: 2}"),
    "value_count": ("[failed]", "{gte: 2, field: ip}"),
    "temporal": ("[failed, login]", "{gte: 2}"),
    "temporal_ordered": ("[failed, login]", "{gte: 2}"),
}


def sigma_files(folder):
    """Detection rules in one file, correlations of each type in another; the last one is not supported."""
    login = SIGMA.replace("failed", "login").replace("false", "true").replace("Failed", "A")
    (folder / "base.yml").write_text(f"{SIGMA}---{login}")
    texts = [CORRELATION % (kind, kind, *rest) for kind, rest in CORRELATIONS.items()]
    texts.append(CORRELATION % ("few", "event_count", "[failed]", "{lt: 2}"))
    (folder / "many.yml").write_text("---".join(texts))
    (folder / "schema.txt").write_text("CREATE STREAM logins (user STRING, ip STRING, ok BOOLEAN);")
    return [folder / "base.yml", folder / "many.yml", "--schema", folder / "schema.txt", "-r", "logins"]


def test_correlations_become_queries_over_a_declared_stream(tmp_path):
    pytest.importorskip("sigma")
    arguments = sigma_files(tmp_path)
    result = run("sigma", *arguments, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["rules"], found["taken"]) == (7, 6)
    (refused,) = [rule for rule in found["outcomes"] if not rule["taken"]]
    assert (refused["rule"], refused["place"], refused["construct"]) == ("few", "correlation.condition", "lt")

    result = run("sigma", *arguments, "--export", "sql")
    engine, names = Engine(), {}
    for statement in result.stdout.split(";\n"):
        if "CREATE" in statement:
            engine.execute(statement.strip().rstrip(";"))
        elif "SELECT" in statement:
            head, _, text = statement.strip().rstrip(";").partition("\n")
            names[engine.subscribe(text).id] = head.removeprefix("-- ")
    assert set(names.values()) == {"Failed login", "A login", *CORRELATIONS}
    fired = []
    for ok, ip in ((False, "a"), (False, "b"), (True, "b")):
        deltas = engine.publish("logins", {"user": "eve", "ip": ip, "ok": ok})
        fired.append({names[d.subscription] for d in deltas if d.sign > 0})
    assert fired == [
        {"Failed login"},
        {"Failed login", "event_count", "value_count"},
        {"A login", "temporal", "temporal_ordered"},
    ]


def test_a_correlation_without_columns_says_what_it_needs(tmp_path):
    pytest.importorskip("sigma")
    sigma_files(tmp_path)
    result = run("sigma", tmp_path / "many.yml", "--json")
    reasons = {rule["reason"] for rule in json.loads(result.stdout)["outcomes"]}
    assert reasons == {"it is about several events: over a stream with declared columns it is a query"}
    assert "no stream 'events'" in run("sigma", tmp_path, "--schema", tmp_path / "schema.txt").output
    assert "--schema is for sigma" in run("cesql", tmp_path, "--schema", tmp_path / "schema.txt").output
