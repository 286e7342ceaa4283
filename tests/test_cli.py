"""The command line: what it prints, what it returns, how it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

import tocsin
from tocsin.cli import app
from tocsin.commands.config import EXAMPLE, ConfigError, read_config

STOCKS = "CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol))"


def run(*arguments: object, input: str | None = None):
    return CliRunner().invoke(app, [str(a) for a in arguments], input=input)


# -- in general --------------------------------------------------------------------------------------


def test_version_and_help():
    assert run("--version").stdout.startswith("tocsin ")
    shown = run("--help").stdout
    for command in ("validate", "explain", "run", "demo", "bench"):
        assert command in shown
        assert f"tocsin {command}" in run(command, "--help").stdout, "a help text teaches by example"


def test_no_command_is_wrong_use():
    assert run().exit_code == 2
    assert run("vallidate").exit_code == 2
    assert run("validate", "nowhere.sql").exit_code == 2
    assert run("explain").exit_code == 2
    assert run("bench", "engine", "--changes", "-1").exit_code == 2


def test_spark_is_not_imported_until_it_is_needed():
    text = "import sys, tocsin.cli, tocsin.commands.run; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text]).returncode == 0


# -- validate ----------------------------------------------------------------------------------------


def test_an_error_is_told_with_its_place_in_the_file(tmp_path):
    file = tmp_path / "a.sql"
    file.write_text(
        f"-- mine\n{STOCKS};\n\nSELECT *\n  FROM stocks\n  WHERE pre > 5;\nSELECT per FROM stocks;\n"
    )
    result = run("validate", file)
    assert result.exit_code == 1
    assert f"{file}:6:9: error: there is no column 'pre' in stocks" in result.stdout
    assert "line 6, column 9:   WHERE pre > 5;" in result.stdout
    assert "did you mean 'per'?" in result.stdout
    assert f"{file}:7: filter: SELECT per FROM stocks" in result.stdout
    assert "1 problem" in result.stdout


def test_two_statements_of_one_line_have_their_own_columns(tmp_path):
    file = tmp_path / "a.sql"
    text = f"{STOCKS}; SELECT x FROM stocks; SELECT y FROM stocks"
    file.write_text(text)
    (report,) = json.loads(run("validate", "--json", file).stdout)
    assert [(o["error"]["line"], o["error"]["column"]) for o in report["outcomes"][1:]] == [
        (1, text.index("x FROM") + 1),
        (1, text.index("y FROM") + 1),
    ]


def test_validate_as_json(tmp_path):
    file = tmp_path / "a.sql"
    file.write_text(f"{STOCKS};\nSELECT MAX(per) FROM stocks WHERE per > 5 AND per < 3;\nSELECT * FROM stock")
    result = run("validate", "--json", file)
    (report,) = json.loads(result.stdout)
    assert result.exit_code == 1
    assert not report["ok"]
    assert report["subscriptions"] == {"extreme": 1}
    assert report["warnings"] == 1
    assert report["outcomes"][2]["error"]["line"] == 3
    assert report["outcomes"][2]["error"]["hint"] == "did you mean 'stocks'?"


def test_a_recorded_error_that_does_not_come_is_a_problem(tmp_path):
    file = tmp_path / "a.sql"
    file.write_text(
        f"{STOCKS};\n-- error: no\nSELECT per FROM stocks;\n-- shape: topk\nSELECT per FROM stocks"
    )
    result = run("validate", file)
    assert result.exit_code == 1
    assert "0 of 2 recorded outcomes matched; 2 problems" in result.stdout


def test_an_empty_file_is_no_problem(tmp_path):
    (tmp_path / "a.sql").write_text("-- nothing yet\n")
    assert run("validate", tmp_path / "a.sql").exit_code == 0


# -- explain -----------------------------------------------------------------------------------------


def test_explain_in_one_line():
    result = run(
        "explain",
        "--ddl",
        STOCKS,
        "--subscription",
        "SELECT * FROM stocks WHERE per > 5",
        "--row",
        '{"per": 3}',
    )
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "subscription 1 (filter): the row is not in the answer",
        "  no   per > 5",
    ]


def test_explain_reads_data_by_the_name_of_the_file(tmp_path):
    sql = tmp_path / "a.sql"
    sql.write_text(
        f"{STOCKS};\nSELECT symbol FROM stocks ORDER BY per LIMIT 1;\nSELECT * FROM stocks WHERE per > 9"
    )
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "stocks.json").write_text('{"symbol": "A", "per": 1}\n{"symbol": "B", "per": 3}\n')
    parts = (
        "explain",
        "--file",
        sql,
        "--data",
        tmp_path / "rows",
        "--row",
        '{"symbol": "C", "per": 2}',
        "--json",
    )
    (top,) = json.loads(run(*parts, "--subscription", "1").stdout)
    assert not top["held"]
    assert any("rank 2 of 3" in note for note in top["notes"])
    both = json.loads(run(*parts).stdout)
    assert [explanation["subscription"] for explanation in both] == [1, 2]


@pytest.mark.parametrize("form", ["parquet", "csv", "changes", "saved"])
def test_explain_reads_data_in_every_form(tmp_path, form):
    table, where = pa.table({"symbol": ["A"], "per": [1]}), tmp_path / f"stocks.{form}"
    ddl = ["--ddl", STOCKS]
    if form == "parquet":
        parquet.write_table(table, where)
    elif form == "csv":
        where.write_text("symbol,per\nA,1\n")
    elif form == "changes":
        where = tmp_path / "log.json"
        where.write_text('{"table": "stocks", "row": {"symbol": "A", "per": 7}}\n')
        where.write_text(
            where.read_text() + '{"table": "stocks", "op": "update", "row": {"symbol": "A", "per": 1}}'
        )
    else:
        engine = tocsin.Engine()
        engine.execute(STOCKS)
        engine.insert("stocks", {"symbol": "A", "per": 1})
        engine.save(where)
        ddl = []
    minimum = "SELECT MIN(per) FROM stocks"
    result = run(
        "explain", *ddl, "--subscription", minimum, "--data", where, "--row", '{"symbol": "B", "per": 2}'
    )
    assert "MIN(per) = 1.0, the row has 2.0" in result.stdout


def test_explain_takes_the_row_from_stdin_or_a_file(tmp_path):
    (tmp_path / "row.json").write_text('{"n": 7}')
    base = (
        "explain",
        "--ddl",
        "CREATE STREAM hits",
        "--subscription",
        "SELECT * FROM hits WHERE n > 5",
        "--row",
    )
    for result in (run(*base, "-", input='{"n": 7}'), run(*base, f"@{tmp_path / 'row.json'}")):
        assert "the row is in the answer" in result.stdout


@pytest.mark.parametrize(
    ("changed", "code", "told"),
    [
        ({"--row": "{n: 7}"}, 2, "the row is not JSON"),
        ({"--row": "[7]"}, 2, "not a JSON object"),
        ({"--subscription": "9"}, 2, "there is no subscription 9"),
        ({"--subscription": "SELECT * FROM hit"}, 1, "did you mean 'hits'?"),
        ({"--ddl": "CREATE STRAM hits"}, 1, "line 1"),
    ],
)
def test_explain_refuses(changed, code, told):
    options = {"--ddl": "CREATE STREAM hits", "--subscription": "SELECT * FROM hits", "--row": "{}"} | changed
    result = run("explain", *(part for pair in options.items() for part in pair))
    assert result.exit_code == code
    assert told in result.stderr
    told_json = run("explain", "--json", *(part for pair in options.items() for part in pair))
    assert told_json.exit_code == code
    assert not json.loads(told_json.stdout)["ok"]


# -- run ---------------------------------------------------------------------------------------------


def config(**parts: str) -> str:
    said = {
        "top": f'state = "state"\nddl = "{STOCKS}"\n',
        "source": '[source]\nformat = "json"\npath = "in"\n',
        "sink": '[sink]\nformat = "parquet"\npath = "out"\n',
    } | parts
    return "".join(said.values())


def test_the_example_is_a_config():
    read = read_config(run("run", "--example").stdout, Path("/x"))
    assert read.name == "stocks"
    assert read.sink.path == Path("/x/out/deltas")
    assert [id for id, _, _ in read.subscriptions] == [1, 2]
    assert read_config(EXAMPLE, Path("/x")) == read
    lines = [line.removeprefix("# ") for line in EXAMPLE.splitlines()]
    start = lines.index('format = "rate"')
    rate = "[source]\n" + "\n".join(lines[start : start + 4]) + "\n"
    assert (
        read_config(config(source=rate, top=f'state = "s"\nbatches = 2\nddl = "{STOCKS}"\n'), Path()).batches
        == 2
    )


@pytest.mark.parametrize(
    ("parts", "fact", "hint"),
    [
        ({"top": 'stat = "x"\n'}, "unknown key 'stat'", "'state'"),
        ({"source": '[source]\nformat = "jsn"\n'}, "no format 'jsn' for [source]", "'json'"),
        ({"source": '[source]\nformat = "json"\npth = "in"\n'}, "unknown key 'pth' in [source]", "'path'"),
        ({"source": '[source]\nformat = "json"\n'}, "path in [source] is missing", "--example"),
        ({"source": ""}, "no section [source]", "--example"),
        ({"sink": '[sink]\nformat = "console"\npath = "x"\n'}, "takes no 'path'", "nothing else"),
        ({"top": f'state = "s"\ntrigger = "soon"\nddl = "{STOCKS}"\n'}, "trigger is 'soon'", "5 seconds"),
        ({"top": f'state = 5\nddl = "{STOCKS}"\n'}, "state is a text, not 5", "state ="),
        ({"top": 'state = "s"\n'}, "no definitions", "ddl"),
        ({"top": 'state = "s"\nsql_file = "gone.sql"\n'}, "gone.sql cannot be read", None),
        (
            {"end": '[[subscription]]\nid = 1\nsqll = "x"\n'},
            "unknown key 'sqll' in [subscription 1]",
            "'sql'",
        ),
        ({"end": '[[subscription]]\nsql = "x"\n'}, "id in [subscription 1] is missing", None),
        ({"source": '[source]\nformat = "rate"\ntable = "t"\nrow = "x"\n'}, "never ends", "batches"),
        ({"top": "state = \n"}, "not TOML", "--example"),
    ],
)
def test_a_wrong_config_is_refused(parts, fact, hint, tmp_path):
    with pytest.raises(ConfigError) as caught:
        read_config(config(**parts), tmp_path)
    assert fact in caught.value.fact
    assert hint is None or hint in str(caught.value.hint)
    (tmp_path / "p.toml").write_text(config(**parts))
    assert run("run", tmp_path / "p.toml").exit_code == 2


def test_subscriptions_of_a_file_are_numbered_around_those_given(tmp_path):
    (tmp_path / "a.sql").write_text(f"{STOCKS}; SELECT per FROM stocks; SELECT symbol FROM stocks")
    top = 'state = "s"\nsql_file = "a.sql"\n'
    read = read_config(
        config(top=top, end='[[subscription]]\nid = 1\nsql = "SELECT * FROM stocks"\n'), tmp_path
    )
    assert sorted(id for id, _, _ in read.subscriptions) == [1, 2, 3]
    assert read.ddl == STOCKS


def test_run_without_a_config_is_wrong_use(tmp_path):
    assert run("run").exit_code == 2
    assert run("run", tmp_path / "none.toml").exit_code == 2


@pytest.mark.spark
@pytest.mark.slow
def test_a_pipeline_runs_and_goes_on_where_it_stopped(tmp_path):
    subscription = (
        '[[subscription]]\nid = 7\nsubscriber = "ann"\nsql = "SELECT symbol FROM stocks WHERE per > 5"\n'
    )
    (tmp_path / "p.toml").write_text(config(end=subscription))
    (tmp_path / "in").mkdir()
    change = '{"seq": %d, "table": "stocks", "op": "%s", "row": {"symbol": "A", "per": %d}}\n'
    (tmp_path / "in" / "1.json").write_text(change % (1, "insert", 9) + change % (2, "insert", 9))
    first = json.loads(run("run", "--json", tmp_path / "p.toml").stdout)
    assert (first["changes"], first["deltas"], first["dead_letters"]) == (2, 1, 1)
    (tmp_path / "in" / "2.json").write_text(change % (3, "update", 2))
    second = run("run", tmp_path / "p.toml")
    assert second.exit_code == 0
    assert "1 changes in 1 batches" in second.stdout
    rows = parquet.read_table(tmp_path / "out").sort_by("seq").to_pylist()
    assert [(r["seq"], r["subscriber"], r["sign"], r["row"]) for r in rows] == [
        (1, "ann", 1, '{"symbol":"A"}'),
        (3, "ann", -1, '{"symbol":"A"}'),
    ]
    rate = """[source]\nformat = "rate"\ntable = "stocks"\nrows_per_batch = 5
row = "named_struct('symbol', string(value), 'per', double(value))"\n"""
    top = f'state = "other"\nbatches = 2\nddl = "{STOCKS}"\n'
    (tmp_path / "r.toml").write_text(
        config(top=top, source=rate, sink='[sink]\nformat = "console"\n', end=subscription)
    )
    shown = run("run", tmp_path / "r.toml")
    assert shown.exit_code == 0, shown.output
    assert '7 7 (ann) + {"symbol":"6"}' in shown.stdout.splitlines()


# -- bench -------------------------------------------------------------------------------------------


def test_bench_checks_before_it_tells_a_time():
    result = run(
        "bench", "engine", "--subscriptions", 20, "--changes", 60, "--batch", 30, "--repeat", 2, "--json"
    )
    assert result.exit_code == 0, result.output
    results = json.loads(result.stdout)
    assert len(results) == 9
    assert all(r["right"] == r["checked"] == 5 and r["changes_per_second"] > 0 for r in results)


def test_bench_gives_no_time_for_a_wrong_answer(monkeypatch):
    monkeypatch.setattr("tocsin.bench.engine.evaluate", lambda *_: [{"wrong": 1}])
    options = ("--subscriptions", 5, "--changes", 20, "--repeat", 1)
    result = run("bench", "engine", "--shape", "topk", *options)
    assert result.exit_code == 1
    assert "wrong" in result.stdout


def test_bench_refuses_an_unknown_shape():
    result = run("bench", "engine", "--shape", "topp")
    assert result.exit_code == 1
    assert "there is no shape 'topp'" in result.stderr
