"""`-` for stdin and stdout, positional files, and `tocsin stats`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

import tocsin
from tocsin.cli import app

ALERTS = "SELECT * FROM hits WHERE page = '/buy' AND ms > 900;\nSELECT * FROM hits WHERE ms > 5000\n"
HITS = [{"page": "/buy", "ms": 950}, {"page": "/x", "ms": 6000}, {"page": "/y", "ms": 1}]
LINES = "".join(f"{json.dumps(hit)}\n" for hit in HITS)
PAIRS = [{"event": 0, "subscription": 1}, {"event": 1, "subscription": 2}]


def run(*arguments: object, input: str | bytes | None = None) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments], input=input)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    alerts, hits = tmp_path / "alerts.sql", tmp_path / "hits.jsonl"
    alerts.write_text(ALERTS)
    hits.write_text(LINES)
    return alerts, hits


def in_parquet(tmp_path: Path) -> bytes:
    parquet.write_table(pa.Table.from_pylist(HITS), tmp_path / "x.parquet")
    return (tmp_path / "x.parquet").read_bytes()


@pytest.mark.parametrize("form", ["lines", "no end of line", "array", "csv", "parquet", "blank lines"])
def test_events_are_read_from_stdin_in_any_format(files, tmp_path, form):
    given: dict[str, str | bytes] = {
        "lines": LINES,
        "no end of line": LINES.rstrip(),
        "blank lines": "\n\n" + LINES.replace("\n", "\n\n"),
        "array": json.dumps(HITS),
        "csv": "page,ms\n" + "".join(f"{hit['page']},{hit['ms']}\n" for hit in HITS),
        "parquet": in_parquet(tmp_path),
    }
    result = run("match", files[0], "-", "-o", "-", input=given[form])
    assert result.exit_code == 0, result.output
    assert [json.loads(line) for line in result.stdout.splitlines()] == PAIRS
    assert "3 events of hits, 2 subscriptions" in result.stderr
    assert "written to stdout" in result.stderr


@pytest.mark.parametrize(
    "text",
    [
        ALERTS,
        '{"sql": "SELECT * FROM hits WHERE page = \'/buy\' AND ms > 900"}\n'
        '{"sql": "SELECT * FROM hits WHERE ms > 5000"}',
        "id,sql\n1,SELECT * FROM hits WHERE page = '/buy' AND ms > 900\n"
        "2,SELECT * FROM hits WHERE ms > 5000\n",
    ],
    ids=["sql", "jsonl", "csv"],
)
def test_subscriptions_are_read_from_stdin(files, text):
    result = run("match", "-", files[1], "-o", "-", "-f", "csv", "-q", input=text)
    assert result.stdout == "event,subscription\n0,1\n1,2\n"
    assert result.stderr == ""


def test_files_are_given_by_place_or_by_option(files):
    alerts, hits = files
    shown = {
        run(*arguments).stdout.splitlines()[1]
        for arguments in (
            ["match", alerts, hits],
            ["match", "-s", alerts, "-e", hits],
            ["match", "--subscriptions", alerts, hits],
            ["match", alerts, "--events", hits],
        )
    }
    assert shown == {"matches: 2"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["match"], "no subscriptions are given"),
        (["match", "ALERTS"], "no events are given"),
        (["match", "ALERTS", "HITS", "HITS"], "one argument too many"),
        (["match", "ALERTS", "nowhere.jsonl"], "nowhere.jsonl does not exist"),
        (["match", "-", "-"], "only one input can be - (stdin)"),
        (["match", "-", "HITS"], "stdin is empty"),
        (["match", "ALERTS", "HITS", "-o", "-", "--json"], "both write to stdout"),
        (["match", "ALERTS", "HITS", "-o", "-", "-f", "xml"], "the format 'xml' is unknown"),
        (["match", "ALERTS", "HITS", "-o", "-", "-f", "parquet"], "Parquet cannot be written to stdout"),
        (["backtest", "SELECT * FROM hits"], "no events are given"),
        (["backtest"], "no subscription is given"),
        (["backtest", "SELECT * FROM hits", "HITS", "--time", "att"], "column 'att' is in no event"),
        (["backtest", "SELECT * FROM hits", "HITS", "--time", "ms"], "column 'ms' has no time in any event"),
        (["explain", "ALERTS"], "is not JSON"),
        (["bench", "match", "--workload", "nope", "--n", "100000000"], "there is no workload 'nope'"),
    ],
)
def test_wrong_use_is_an_error_with_code_2(files, arguments, message):
    known = {"ALERTS": files[0], "HITS": files[1]}
    result = run(*(known.get(argument, argument) for argument in arguments))
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert "hint" in result.output


def test_an_error_about_stdin_names_stdin(files):
    result = run("match", "-", files[1], input="SELECT * FORM hits")
    assert result.exit_code == 1
    assert "error: stdin, line 1: syntax error at 'FORM'" in result.stderr.replace("\n", " ")


def test_matches_appear_while_events_come(files):
    """Events are matched as they come, before stdin ends."""
    command = [sys.executable, "-m", "tocsin", "match", str(files[0]), "-", "-o", "-", "-q"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        for number in range(3):
            process.stdin.write(b'{"page": "/z", "ms": 7000}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == {"event": number, "subscription": 2}
        process.stdin.close()
        assert process.wait(60) == 0


def test_validate_backtest_and_explain_read_stdin(files):
    assert run("validate", "-", input=f"CREATE STREAM hits; {ALERTS}").exit_code == 0
    assert run("validate", "-", input="SELECT * FROM nothing").exit_code == 1
    tested = run("backtest", "SELECT * FROM hits WHERE ms > 900", "-", "--json", input=LINES)
    assert json.loads(tested.stdout)["subscriptions"][0]["matches"] == 2
    row = '{"page": "/buy", "ms": 950}'
    for result in (run("explain", files[0], row), run("explain", files[0], "-", input=row)):
        assert "subscription 1 (filter): the row is in the answer" in result.stdout


def test_stats_of_a_file(files):
    result = run("stats", *files)
    assert result.exit_code == 0
    assert "by shape: filter 2" in result.stdout
    assert "by stream or table: hits 2" in result.stdout
    assert "events applied: 3" in result.stdout
    assert "index of hits: " in result.stdout
    found = json.loads(run("stats", *files, "--json").stdout)
    assert found["details"]["match"]["hits"]["subscriptions"] == 2
    typo = run("stats", "-", files[1], input="SELECT * FROM hits WHERE mss > 5")
    assert "warning: no event has 'mss'" in typo.stdout


def test_stats_of_a_saved_engine(tmp_path):
    engine = tocsin.Engine()
    engine.execute("CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol))")
    engine.subscribe("SELECT COUNT(*) FROM stocks WHERE per > 5")
    engine.subscribe("SELECT * FROM stocks WHERE per > 5")
    engine.insert("stocks", {"symbol": "A", "per": 7.5})
    engine.save(tmp_path / "saved")
    shown = run("stats", tmp_path / "saved").stdout
    assert "(saved engine): 2 subscriptions" in shown
    assert "by stream or table: stocks 2" in shown and "rows: stocks 1" in shown
    assert run("stats", tmp_path / "saved", tmp_path / "saved").exit_code == 2


def test_stats_of_a_pipeline(tmp_path):
    from tocsin.spark.versions.store import Versions

    texts = [(1, "SELECT * FROM hits WHERE ms > 5"), (2, "SELECT a FROM t ORDER BY n LIMIT 3")]
    ddl = "CREATE STREAM hits; CREATE TABLE t (a BIGINT, n BIGINT, PRIMARY KEY (a))"
    Versions(tmp_path / "subscriptions").publish(ddl, texts)
    found = json.loads(run("stats", tmp_path, "--json").stdout)
    assert (found["version"], found["by_shape"]) == (1, {"filter": 1, "topk": 1})
    assert found["by_relation"] == {"hits": 1, "t": 1}
    (tmp_path / "empty").mkdir()
    assert run("stats", tmp_path / "empty").exit_code == 2


def test_every_command_teaches_by_an_example():
    for command in ("validate", "explain", "match", "backtest", "stats", "run", "demo", "chaos"):
        assert f"tocsin {command} " in run(command, "--help").stdout
    for command in ("list", "add", "remove", "compact"):
        shown = run("subscriptions", command, "--help").stdout
        assert f"tocsin subscriptions {command} out/state" in shown


def test_a_short_command_imports_little(files):
    text = (
        "import sys; from tocsin.cli import app\n"
        f"try: app(['match', {str(files[0])!r}, {str(files[1])!r}])\n"
        "finally: print(*sys.modules)"
    )
    command = [sys.executable, "-c", text]
    loaded = subprocess.run(command, capture_output=True, text=True).stdout.split()
    assert "tocsin.commands.match" in loaded
    for unwanted in ("pandas", "pyspark", "pyarrow.parquet", "pyarrow.dataset", "rich", "tocsin.lab"):
        assert unwanted not in loaded
