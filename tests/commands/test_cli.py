"""The command line (`tocsin run`: test_cli_run.py): what it prints, what it returns, how it refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

import tocsin
from tocsin.cli import app
from tocsin.commands.config import EXAMPLE, load_config

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


def test_the_laboratory_is_not_imported_until_it_is_needed():
    text = """
import sys, tocsin.cli
assert not [name for name in sys.modules if name.startswith("tocsin.lab")]
"""
    assert subprocess.run([sys.executable, "-c", text]).returncode == 0


# -- validate ----------------------------------------------------------------------------------------


def test_an_error_is_reported_with_its_place_in_the_file(tmp_path):
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
    assert "line 3, column 15: SELECT * FROM stock" in report["outcomes"][2]["error"]["message"]
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


def test_a_mark_of_utf_8_before_the_text_is_no_text(tmp_path):
    (tmp_path / "a.sql").write_text(f"{STOCKS}; SELECT per FROM stocks", encoding="utf-8-sig")
    (tmp_path / "row.json").write_text('{"per": 1}', encoding="utf-8-sig")
    toml = EXAMPLE.replace("[sink]", "[sink]  # caf\u00e9")
    (tmp_path / "p.toml").write_text(toml, encoding="utf-8-sig")
    assert run("validate", tmp_path / "a.sql").exit_code == 0
    shown = run("explain", "--file", tmp_path / "a.sql", "--row", f"@{tmp_path / 'row.json'}")
    assert "the row is in the answer" in shown.stdout
    assert load_config(tmp_path / "p.toml").name == "stocks"


def test_a_file_that_is_not_utf_8_is_reported(tmp_path):
    for name in ("a.sql", "p.toml", "row.json"):
        (tmp_path / name).write_bytes(b"-- caf\xe9\n")
    (tmp_path / "q.toml").write_text(EXAMPLE.replace('# sql_file = "alerts.sql"', 'sql_file = "a.sql"'))
    for arguments in (
        ["validate", tmp_path / "a.sql"],
        ["explain", "--ddl", STOCKS, "--row", f"@{tmp_path / 'row.json'}"],
        ["run", tmp_path / "p.toml"],
        ["run", tmp_path / "q.toml"],
    ):
        result = run(*arguments, "--json")
        assert result.exit_code == 2
        assert "byte 6 is not UTF-8" in json.loads(result.stdout)["error"]["fact"]


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
    ("changed", "code", "message"),
    [
        ({"--row": "{n: 7}"}, 2, "the row is not JSON"),
        ({"--row": "[7]"}, 2, "not a JSON object"),
        ({"--subscription": "9"}, 2, "there is no subscription 9"),
        ({"--subscription": "SELECT * FROM hit"}, 1, "did you mean 'hits'?"),
        ({"--ddl": "CREATE STRAM hits"}, 1, "line 1"),
    ],
)
def test_explain_refuses(changed, code, message):
    options = {"--ddl": "CREATE STREAM hits", "--subscription": "SELECT * FROM hits", "--row": "{}"} | changed
    result = run("explain", *(part for pair in options.items() for part in pair))
    assert result.exit_code == code
    assert message in result.stderr
    as_json = run("explain", "--json", *(part for pair in options.items() for part in pair))
    assert as_json.exit_code == code
    assert not json.loads(as_json.stdout)["ok"]


# -- bench -------------------------------------------------------------------------------------------


def test_bench_checks_before_it_prints_a_time():
    result = run(
        "bench", "engine", "--subscriptions", 20, "--changes", 60, "--batch", 30, "--repeat", 2, "--json"
    )
    assert result.exit_code == 0, result.output
    results = json.loads(result.stdout)
    assert len(results) == 9
    assert all(r["right"] == r["checked"] == 5 and r["changes_per_second"] > 0 for r in results)


def test_bench_gives_no_time_for_a_wrong_answer(monkeypatch):
    monkeypatch.setattr("tocsin.lab.bench.engine.evaluate", lambda *_: [{"wrong": 1}])
    options = ("--subscriptions", 5, "--changes", 20, "--repeat", 1)
    result = run("bench", "engine", "--shape", "topk", *options)
    assert result.exit_code == 1
    assert "wrong" in result.stdout


def test_bench_refuses_an_unknown_shape():
    result = run("bench", "engine", "--shape", "topp")
    assert result.exit_code == 2
    assert "there is no shape 'topp'" in result.stderr


def test_bench_takes_json_before_the_experiment_too():
    result = run("bench", "--json", "engine", "--shape", "topp")
    assert result.exit_code == 2
    assert not json.loads(result.stdout)["ok"]
