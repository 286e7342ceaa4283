"""`tocsin run`: what a config may say, how subscriptions get their ids, what it prints when it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

from tocsin.cli import app
from tocsin.commands.config import EXAMPLE, read_config
from tocsin.commands.config_values import ConfigError
from tocsin.commands.connectors import SinkConfig, SourceConfig
from tocsin.commands.run import RunSummary, read_monitoring
from tocsin.commands.run import _changes as changes_of
from tocsin.errors import TocsinError, UsageError

STOCKS = "CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol))"


def run(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


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
    assert [sink.path for sink in read.sinks] == [Path("/x/out/deltas")]
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
        ({"sink": '[sink]\nformat = "console"\npath = "x"\n'}, "has no key 'path'", "no other keys"),
        ({"top": f'state = "s"\ntrigger = "soon"\nddl = "{STOCKS}"\n'}, "trigger is 'soon'", "5 seconds"),
        ({"top": f'state = 5\nddl = "{STOCKS}"\n'}, "state must be a string, not 5", "state ="),
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
        (
            {"top": f'state = "s"\ncheckpoint = 5\nddl = "{STOCKS}"\n'},
            "checkpoint must be a string",
            "checkpoint =",
        ),
        ({"top": f'state = "s"\nname = 5\nddl = "{STOCKS}"\n'}, "name must be a string, not 5", "name ="),
        ({"top": f'state = "s"\ndead_letters = 5\nddl = "{STOCKS}"\n'}, "no section [dead_letters]", None),
        ({"end": '[subscription]\nid = 1\nsql = "x"\n'}, "not a list of sections", "[[subscription]]"),
        ({"end": '[[subscription]]\nid = 1\nsql = "x"\nsubscriber = 5\n'}, "subscriber in", "subscriber ="),
        ({"end": f'[[subscription]]\nid = {2**63}\nsql = "x"\n'}, f"is {2**63}", "2^63 - 1"),
        (
            {"end": '[[subscription]]\nid = 1\nsql = "x"\n' * 2},
            "id 1 in [subscription 2] is already used",
            "its own id",
        ),
        ({"sink": '[sink]\nformat = "kafka"\ntopic = "t"\n'}, "servers in [sink] is missing", "--example"),
        (
            {"sink": '[sink]\nformat = "webhook"\nurl = "x"\nrate = "5"\n'},
            "rate in [sink] must be a number",
            None,
        ),
        (
            {"sink": '[sink]\nformat = "webhook"\nurl = "x"\ntries = 0\n'},
            "tries in [sink] must be a whole",
            None,
        ),
        ({"sink": '[[sink]]\nformat = "console"\n[[sink]]\nform = 5\n'}, "in [sink 2]", "'format'"),
        ({"end": '[dead_letters]\nformat = "webhook"\nurl = "http://x"\n'}, "[dead_letters]", None),
        (
            {"source": '[source]\nformat = "kafka"\nservers = "h:1"\ntopic = "t"\nseq = "key"\n'},
            "seq in [source] is 'key'",
            "offset",
        ),
        (
            {"source": '[source]\nformat = "kafka"\nservers = "h:1"\ntopic = "t"\noptions = 5\n'},
            "options in [source] must be a table",
            "options =",
        ),
        ({"end": '[spark]\nmaster = ["local"]\n'}, "master of spark must be a string", "quotes"),
    ],
)
def test_a_wrong_config_is_rejected(parts, fact, hint, tmp_path):
    with pytest.raises(ConfigError) as caught:
        read_config(config(**parts), tmp_path)
    assert fact in caught.value.fact
    assert hint is None or hint in str(caught.value.hint)
    (tmp_path / "p.toml").write_text(config(**parts))
    assert run("run", tmp_path / "p.toml").exit_code == 2


def test_all_sinks_and_sources_can_be_named(tmp_path):
    sinks = """[[sink]]\nformat = "console"\n
[[sink]]\nformat = "kafka"\nservers = "a:1,b:2"\ntopic = "out"\noptions = { "kafka.acks" = "all" }\n
[[sink]]\nformat = "webhook"\nurl = "https://host/{subscriber}"\nrate = 5\ntries = 3\nundelivered = "lost"
headers = { Authorization = "Bearer x" }\n"""
    source = """[source]\nformat = "kafka"\nservers = "a:1"\ntopic = "in"\nseq = "offset"
max_offsets_per_trigger = 500\noptions = { failOnDataLoss = false }\n"""
    spark = '[spark]\nmaster = "local[1]"\n"spark.jars.packages" = "a:b:1"\n'
    read = read_config(config(sink=sinks, source=source, end=spark), tmp_path)
    assert read.output == "deltas"
    terms = {
        "rate": 5.0,
        "tries": 3,
        "undelivered": tmp_path / "lost",
        "headers": {"Authorization": "Bearer x"},
    }
    assert read.sinks == (
        SinkConfig("console"),
        SinkConfig("kafka", servers="a:1,b:2", topic="out", options={"kafka.acks": "all"}),
        SinkConfig("webhook", url="https://host/{subscriber}", options=terms),
    )
    assert list(map(str, read.sinks)) == ["console", "kafka:out@a:1,b:2", "webhook:https://host/{subscriber}"]
    assert read.source == SourceConfig(
        "kafka",
        servers="a:1",
        topic="in",
        seq="offset",
        max_offsets_per_trigger=500,
        options={"failOnDataLoss": "false"},
    )
    assert read.spark == {"master": "local[1]", "spark.jars.packages": "a:b:1"}


def test_what_watches_a_run(tmp_path, capsys):
    assert read_monitoring(None, None, None).log is None
    assert read_monitoring("json", None, "9090").metrics == ("0.0.0.0", 9090)
    assert read_monitoring(None, None, "127.0.0.1:0").metrics == ("127.0.0.1", 0)
    with pytest.raises(UsageError, match="no log 'text'"):
        read_monitoring("text", None, None)
    with pytest.raises(UsageError, match="is not a port"):
        read_monitoring(None, None, "99999")
    with pytest.raises(UsageError, match="cannot be written"):
        read_monitoring("json", tmp_path, None)
    (tmp_path / "p.toml").write_text(config())
    assert run("run", "--metrics", "x", tmp_path / "p.toml").exit_code == 2


def test_subscriptions_of_a_file_are_numbered_around_those_given(tmp_path):
    (tmp_path / "a.sql").write_text(f"{STOCKS}; SELECT per FROM stocks; SELECT symbol FROM stocks")
    top = 'state = "s"\nsql_file = "a.sql"\n'
    read = read_config(
        config(top=top, end='[[subscription]]\nid = 1\nsql = "SELECT * FROM stocks"\n'), tmp_path
    )
    assert sorted(id for id, _, _ in read.subscriptions) == [1, 2, 3]
    assert read.ddl == STOCKS


def numbered(folder: Path, *texts: str) -> dict[str, int]:
    (folder / "a.sql").write_text(";\n".join([STOCKS, *texts]))
    read = read_config(config(top='state = "s"\nsql_file = "a.sql"\n'), folder)
    return {text: id for id, text, _ in read.subscriptions}


def test_a_file_of_subscriptions_can_be_edited(tmp_path):
    from tocsin.spark.versions.blocks import as_table
    from tocsin.spark.versions.store import Versions

    a, b, c, d = (f"SELECT {what} FROM stocks" for what in ("*", "per", "symbol", "MAX(per)"))
    versions = Versions(tmp_path / "s" / "subscriptions")

    def publish(*texts: str) -> dict[str, int]:
        ids = numbered(tmp_path, *texts)
        versions.publish(STOCKS, as_table([(id, text) for text, id in ids.items()]))
        return ids

    assert publish(a, b) == {a: 1, b: 2}
    assert publish(c, b) == {c: 3, b: 2}, "removing one leaves the others alone"
    assert publish(b) == {b: 2}
    assert publish(f"-- id: 9\n{c}", d, b) == {c: 9, d: 4, b: 2}, "3 was used before"
    assert publish(c, d) == {c: 9, d: 4}, "a comment may go"


def test_the_same_text_twice_has_two_ids(tmp_path):
    from tocsin.spark.versions.blocks import as_table
    from tocsin.spark.versions.store import Versions

    (tmp_path / "a.sql").write_text(f"{STOCKS}; SELECT * FROM stocks; SELECT * FROM stocks")
    top = config(top='state = "s"\nsql_file = "a.sql"\n')
    first = read_config(top, tmp_path).subscriptions
    Versions(tmp_path / "s" / "subscriptions").publish(STOCKS, as_table(first))
    assert [id for id, _, _ in read_config(top, tmp_path).subscriptions] == [1, 2]


@pytest.mark.parametrize("comments", ["-- id: seven", "-- id: 1\n-- id: 2", f"-- id: {2**63}"])
def test_an_id_in_a_comment_is_a_number(tmp_path, comments):
    with pytest.raises(ConfigError, match="is not an id"):
        numbered(tmp_path, f"{comments}\nSELECT * FROM stocks")


def test_an_id_in_a_comment_is_given_once(tmp_path):
    with pytest.raises(ConfigError, match="id 4 is given twice"):
        numbered(tmp_path, "-- id: 4\nSELECT * FROM stocks", "-- id: 4\nSELECT per FROM stocks")


@pytest.mark.parametrize(
    ("parts", "fact"),
    [
        (
            {"end": '[[subscription]]\nid = 7\nsql = "SELECT pre FROM stocks"\n'},
            "subscription 7: there is no column 'pre'",
        ),
        ({"top": 'state = "s"\nddl = "CREATE TABEL x"\n'}, ""),
        ({"top": f'state = "file/state"\nddl = "{STOCKS}"\n'}, "file/state: Not a directory"),
        ({"source": '[source]\nformat = "json"\npath = "file"\n'}, "is not a folder"),
    ],
)
def test_what_is_wrong_is_reported_before_spark_starts(tmp_path, monkeypatch, parts, fact):
    monkeypatch.setattr("tocsin.spark.session", lambda *_, **__: pytest.fail("Spark was started"))
    (tmp_path / "in").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "p.toml").write_text(config(**parts))
    result = run("run", "--json", tmp_path / "p.toml")
    assert result.exit_code == 1
    assert fact in json.loads(result.stdout)["error"]["fact"]


@pytest.mark.parametrize("kind", ["spark", "system", "bug"])
def test_what_spark_and_the_system_say_is_reported_without_a_traceback(tmp_path, monkeypatch, kind):
    from pyspark.errors import AnalysisException

    errors = {"spark": AnalysisException("no such thing"), "system": PermissionError(13, "Denied", "/x")}

    def fail(*_: object, **__: object) -> None:
        raise errors.get(kind, KeyError("x"))

    monkeypatch.setattr("tocsin.spark.session", fail)
    (tmp_path / "in").mkdir()
    (tmp_path / "p.toml").write_text(config())
    result = run("run", "--json", tmp_path / "p.toml")
    if kind == "bug":
        assert isinstance(result.exception, KeyError), "a fault of ours is not hidden"
    else:
        facts = {"spark": "the pipeline failed: no such thing", "system": "the pipeline failed: /x: Denied"}
        assert result.exit_code == 1
        assert json.loads(result.stdout)["error"]["fact"] == facts[kind]


def test_the_summary_says_where_rejected_changes_are():
    ran = RunSummary(
        None, 1, 1, 3, 0, 2, 1.0, 3.0, None, None, False, "state", "parquet:out", "state/dead_letters"
    )
    assert "2 changes were rejected: see state/dead_letters" in str(ran)
    assert ran.to_dict()["dead_letters_path"] == "state/dead_letters"


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
    lines = [change % (1, "insert", 9), change % (2, "insert", 9), '{"seq": 3, "table": "sto\n']
    (tmp_path / "in" / "1.json").write_text("".join(lines))
    watching = ("--log-file", tmp_path / "log", "--metrics", "127.0.0.1:0")
    first = json.loads(run("run", "--json", *watching, tmp_path / "p.toml").stdout)
    (line,) = (tmp_path / "log").read_text().splitlines()
    logged = json.loads(line)
    assert (logged["rows"], logged["deltas"], logged["dead_letters"], logged["version"]) == (3, 1, 2, 1)
    assert logged["state_rows"] > 0
    assert (first["changes"], first["deltas"], first["dead_letters"]) == (3, 1, 2)
    letters = Path(first["dead_letters_path"]).glob("batch=0/*.json")
    rows = [json.loads(line)["row"] for file in letters for line in file.read_text().splitlines()]
    assert lines[2].strip() in rows, "the text of a line that is no JSON is kept"
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


def test_an_expression_that_is_no_row_is_reported_with_its_place():
    class Numbers:
        """Stands for a session, a reader and a frame."""

        def __getattr__(self, _: str) -> Numbers:
            return self

        def __call__(self, *_: object) -> Numbers:
            return self

        def selectExpr(self, *parts: str) -> None:
            raise ValueError(f"[UNRESOLVED] {parts[0]}\n== SQL ==")

    source = SourceConfig("rate", table="o'neil", row="nosuch")
    with pytest.raises(TocsinError) as caught:
        changes_of(Numbers(), source)
    assert caught.value.fact == r"row in [source] is not a row: [UNRESOLVED] 'o\'neil' AS table"


def test_what_a_config_says_of_output() -> None:
    asked = EXAMPLE.replace('# output = "messages" ', 'output = "messages" ')
    assert read_config(asked, Path("/x")).output == "messages"
    with pytest.raises(ConfigError, match="output is 'rows'"):
        read_config(asked.replace('output = "messages"', 'output = "rows"'), Path("/x"))
