"""Subscriptions that change while a pipeline runs: a log of files, and the command; without Spark."""

import json
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

from tocsin.cli import app
from tocsin.commands.subscriptions import compact
from tocsin.errors import SubscriptionError
from tocsin.spark.versions.changelog import ChangeLog, apply_rows
from tocsin.spark.versions.store import Versions

DDL = "CREATE STREAM hits (page STRING, ms BIGINT); CREATE TABLE t (a BIGINT, n BIGINT, PRIMARY KEY (a))"


def drop(folder, name, rows):
    folder.mkdir(exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / name).write_text("\n".join(lines))


def texts(versions):
    return {entry.id: entry.sql for entry in versions.newest().rows()}


@pytest.fixture
def versions(tmp_path):
    made = Versions(tmp_path / "state" / "subscriptions")
    made.publish(DDL, [(1, "SELECT * FROM hits"), (2, "SELECT * FROM t")])
    return made


SOME_BAD = [
    {"op": "add", "id": 3, "subscriber": "ann", "sql": "SELECT * FROM hits WHERE ms > 900"},
    {"op": "add", "id": 4, "template": "SELECT * FROM t WHERE n > :least", "values": {"least": 5}},
    {"op": "add", "id": 5, "template": "SELECT * FROM t WHERE n > :least", "values": {"least": 6}},
    {
        "op": "replace",
        "id": 1,
        "relation": "hits",
        "predicates": [{"attribute": "ms", "op": "<", "number": 9}],
    },
    {"op": "remove", "id": 2},
    {"op": "add", "id": 6, "sql": "SELECT * FROM nothing"},
    {"op": "add", "id": 7, "sql": "SELECT * FROM t WHERE"},
    {"op": "remove", "id": 99},
    {"op": "add", "id": 3, "sql": "SELECT * FROM t"},
    {"op": "put", "id": 8, "sql": "SELECT * FROM t"},
    {"op": "add", "id": "x", "sql": "SELECT * FROM t"},
    {"op": "add", "id": 9},
    "{",
    "[1]",
]  # rows of a file


def test_files_are_applied_once_in_order_and_bad_rows_are_refused(versions, tmp_path):
    log = ChangeLog(tmp_path / "log")
    assert log.apply(versions) is None
    drop(log.path, "001.jsonl", SOME_BAD)
    drop(log.path, "_passed_over.jsonl", ["{"])
    assert log.apply(versions) == 2
    assert log.apply(versions) is None
    assert texts(versions) == {
        1: "SELECT page, ms FROM hits WHERE ms < 9",
        3: "SELECT * FROM hits WHERE ms > 900",
        4: "SELECT a, n FROM t WHERE n > 5",
        5: "SELECT a, n FROM t WHERE n > 6",
    }
    refused = (versions.path / "refused" / "001.jsonl.jsonl").read_text().splitlines()
    reasons = [json.loads(line)["reason"] for line in refused]
    assert len(reasons) == 9
    for part in (
        "not JSON",
        "a row is an object",
        "unknown op 'put'",
        "'x' is no id",
        "one of sql, template and predicates, not 0",
        "there is no subscription 99",
        "there is a subscription 3 already",
        "'nothing'",
    ):
        assert any(part in reason for reason in reasons), (part, reasons)
    drop(log.path, "002.jsonl", [{"op": "remove", "id": 3}, {"op": "add", "id": 3, "sql": "SELECT * FROM t"}])
    (log.path / "003.parquet").write_bytes(b"nothing")
    rows = {
        "op": ["add", "add"],
        "id": [10, 11],
        "template": ["SELECT * FROM t WHERE a = :k"] * 2,
        "k": [1, 2],
    }
    parquet.write_table(pa.table(rows), log.path / "004.parquet")
    log.apply(versions)
    assert texts(versions)[3] == "SELECT * FROM t"
    assert texts(versions)[11] == "SELECT a, n FROM t WHERE a = 2"
    assert "cannot be read" in (versions.path / "refused" / "003.parquet.jsonl").read_text()
    assert versions.newest().consumed["log:" + str(log.path.absolute())] == [
        "001.jsonl",
        "002.jsonl",
        "003.parquet",
        "004.parquet",
    ]


def test_rows_of_a_table_are_applied_by_the_number_of_their_batch(versions):
    rows = [{"op": "add", "id": 7, "sql": "SELECT a FROM t"}]
    assert apply_rows(versions, rows, {"table": 0}) == []
    assert versions.newest().consumed == {"table": 0}


def test_a_config_that_is_read_again_leaves_alone_what_others_added(versions):
    ours = [(1, "SELECT * FROM hits"), (2, "SELECT * FROM t")]
    versions.declare(DDL, ours)
    versions.change(add=[(7, "SELECT a FROM t")])
    number = versions.latest()
    assert versions.declare(DDL, ours) == number
    versions.declare(DDL, [ours[0], (3, "SELECT n FROM t")])
    assert sorted(texts(versions)) == [1, 3, 7]
    with pytest.raises(SubscriptionError, match="subscription 7 has another sql"):
        versions.declare(DDL, [ours[0], (7, "SELECT n FROM t")])


def run(*args):
    result = CliRunner().invoke(app, ["subscriptions", *map(str, args)])
    return result.exit_code, result.output


def test_the_command_lists_adds_removes_and_compacts(versions, tmp_path):
    state = tmp_path / "state"
    file = tmp_path / "more.sql"
    file.write_text("-- id: 7\nSELECT * FROM hits WHERE ms > 1; SELECT a FROM t ORDER BY n LIMIT 3")
    assert run("add", state, file) == (0, "version 2: 2 subscriptions added\n")
    code, output = run("list", state)
    assert code == 0
    assert "3  topk  SELECT a FROM t ORDER BY n LIMIT 3" in output
    assert "version 2: 4 subscriptions" in output
    assert run("add", state, file) == (0, "version 2: nothing changed, 2 were there already\n")
    file.write_text(file.read_text() + "; SELECT n FROM t")
    assert run("add", state, file) == (0, "version 3: 1 subscriptions added, 2 were there already\n")
    other = tmp_path / "other.sql"
    other.write_text("-- id: 7\nSELECT * FROM hits WHERE ms > 9")
    code, output = run("add", state, other)
    assert code == 1
    assert "there is a subscription 7 already" in output.replace("\n", " ")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": 70, "sql": "SELECT * FROM t"}\n{"id": 71}')
    code, output = run("add", state, bad)
    assert code == 1
    assert "nothing was changed" in output
    changed = tmp_path / "changed.csv"
    changed.write_text("id,sql\n7,SELECT * FROM hits WHERE ms > 2\n")
    assert run("add", state, changed, "--replace") == (0, "version 4: 1 subscriptions replaced\n")
    assert run("remove", state, 1, 2)[0] == 0
    assert run("remove", state, 1)[0] == 1
    code, output = run("compact", state, "--json")
    assert code == 0
    assert json.loads(output)["version"] == 6
    assert versions.numbers() == [5, 6]
    assert sorted(texts(versions)) == [3, 7, 8]
    assert run("list", tmp_path)[0] == 2


def test_what_was_replaced_or_removed_live_stays_so_when_the_same_is_declared_again(tmp_path):
    versions = Versions(tmp_path)
    ours = [(1, "SELECT * FROM t"), (2, "SELECT a FROM t"), (3, "SELECT n FROM t")]
    versions.declare(DDL, ours)
    versions.change(replace=[(1, "SELECT a FROM t WHERE n > 5")], remove=[2], add=[(9, "SELECT a FROM t")])
    number = versions.declare(DDL, ours)
    assert versions.declare(DDL, ours) == number, "nothing is new"
    found = {entry.id: entry.sql for entry in versions.newest().rows()}
    assert found.keys() == {1, 3, 9} and "n > 5" in found[1]
    versions.declare(DDL, [*ours[:2], (4, "SELECT COUNT(*) AS c FROM t")])  # 3 goes, 4 comes
    assert sorted(versions.newest().subscriptions.ids.tolist()) == [1, 4, 9]


def test_adding_and_compacting_at_once_loses_nothing(tmp_path):
    versions = Versions(tmp_path / "subscriptions")
    versions.publish(DDL, [(0, "SELECT * FROM t")])
    with ThreadPoolExecutor(2) as threads:
        compacting = threads.submit(lambda: [compact(tmp_path) for _ in range(20)])
        for number in range(1, 40):
            versions.change(add=[(number, f"SELECT a FROM t WHERE n > {number}")])
        compacting.result()
    assert sorted(Versions(tmp_path / "subscriptions").newest().subscriptions.ids.tolist()) == list(range(40))


def test_a_refresh_is_a_row_of_the_log(versions, tmp_path):
    deferred = "SELECT COUNT(*) AS n FROM t WITH (refresh = 'on demand')"
    versions.change(add=[(5, deferred), (6, deferred)])
    log = ChangeLog(tmp_path / "log")
    rows = [{"op": "refresh", "id": id} for id in (5, 1, 99)]
    drop(
        log.path,
        "001.jsonl",
        [*rows, {"op": "replace", "id": 6, "sql": deferred}, {"op": "refresh", "id": 6}],
    )
    assert log.apply(versions) == 3
    assert versions.newest().asked == {5: 3}, "6 begins anew"
    refused = (versions.path / "refused" / "001.jsonl.jsonl").read_text()
    assert "subscription 1 is always up to date" in refused and "there is no subscription 99" in refused
    assert versions.change(remove=[1]) == 4 and versions.newest().asked == {5: 3}
    assert versions.change(refresh=[5, 6]) == 5 and versions.newest().asked == {5: 5, 6: 5}
    versions.compact()
    assert versions.newest().asked == {5: 5, 6: 5}
    versions.change(replace=[(5, f"{deferred[:-1]}, within = '1 second')")])
    assert set(versions.newest().asked) == {6}
    with pytest.raises(SubscriptionError, match="subscription 2 is always up to date"):
        versions.change(refresh=[2])


def test_the_command_asks_a_pipeline_to_refresh(versions, tmp_path):
    versions.change(add=[(5, "SELECT COUNT(*) AS n FROM t WITH (refresh = 'on demand')")])

    def refresh(*args):
        result = CliRunner().invoke(app, ["refresh", str(tmp_path / "state"), *args])
        return result.exit_code, result.output.replace("\n", " ")

    assert refresh("5") == (0, "version 3: subscription 5 is refreshed with the next batch ")
    assert refresh("5", "--json")[0] == 0 and versions.newest().asked == {5: 4}
    code, output = refresh("1")
    assert code == 1 and "subscription 1 is always up to date" in output
