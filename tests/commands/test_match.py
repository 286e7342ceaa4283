"""`tocsin match`: files of every format, bad rows, and how it refuses."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

from tocsin import Engine
from tocsin.cli import app
from tocsin.commands.events import read_events
from tocsin.commands.match import match_files
from tocsin.commands.subscription_files import load_subscriptions
from tocsin.errors import BadRow, SubscriptionError
from tocsin.model.schema import Field, Stream, Type

HITS = "CREATE STREAM hits (page STRING, ms BIGINT)"
SLOW, ADMIN = "SELECT * FROM hits WHERE ms > 5", "SELECT page FROM hits WHERE page LIKE '/admin%'"
ROWS = [
    {"page": "/", "ms": 3},
    {"page": "/admin", "ms": 9},
    {"page": "/a,b", "ms": 7},
    {"page": None, "ms": None},
]
PAIRS = [(1, 1), (1, 2), (2, 1)]  # events that match, and whose


def run(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def run_json(*arguments: object, code: int = 0):
    result = run(*arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def write_rows(path, rows):
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        csv.write_csv(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def sql(tmp_path):
    file = tmp_path / "alerts.sql"
    file.write_text(f"{HITS};\n{SLOW};\n{ADMIN};\n")
    return file


@pytest.fixture
def hits(tmp_path):
    return write_rows(tmp_path / "hits.jsonl", ROWS)


def test_the_help_teaches_by_example():
    assert "tocsin match alerts.sql hits.jsonl" in run("--help").stdout
    assert "tocsin match alerts.sql hits.parquet" in run("match", "--help").stdout


# -- formats -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".json", ".csv", ".parquet"])
def test_events_of_every_format(tmp_path, sql, suffix):
    events = write_rows(tmp_path / f"hits{suffix}", ROWS)
    output = tmp_path / "out.jsonl"
    summary = run_json("match", "--subscriptions", sql, "--events", events, "--output", output)
    assert summary["ok"]
    assert (summary["events"], summary["subscriptions"], summary["matches"]) == (4, 2, 3)
    assert summary["without_match"] == 2
    assert summary["bad_rows"] == 0
    assert [(top["subscription"], top["matches"]) for top in summary["top"]] == [(1, 2), (2, 1)]
    pairs = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(pair["event"], pair["subscription"]) for pair in pairs] == PAIRS


def test_events_in_one_array(tmp_path, sql):
    (tmp_path / "hits.json").write_text(json.dumps(ROWS, indent=2))
    assert run_json("match", "--subscriptions", sql, "--events", tmp_path / "hits.json")["matches"] == 3


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize("schema", [True, False])
def test_subscriptions_of_every_format(tmp_path, hits, suffix, schema):
    rows = [
        {"id": 7, "sql": SLOW, "subscriber": "ann"},
        {"id": 9, "sql": "SELECT * FROM hits\nWHERE page = '/a,b'", "subscriber": "12"},
    ]
    file = write_rows(tmp_path / f"alerts{suffix}", rows)
    (tmp_path / "schema.sql").write_text(HITS)
    options = ["--schema", tmp_path / "schema.sql"] if schema else []
    summary = run_json("match", "--subscriptions", file, "--events", hits, *options)
    found = [(top["subscription"], top["subscriber"], top["matches"]) for top in summary["top"]]
    assert found == [(7, "ann", 2), (9, "12", 1)]
    assert summary["relation"] == "hits"


def test_rows_without_an_id_have_the_lowest_that_is_free(tmp_path, hits):
    write_rows(tmp_path / "a.jsonl", [{"sql": SLOW}, {"sql": SLOW, "id": 1}, {"sql": SLOW, "id": None}])
    summary = run_json("match", "--subscriptions", tmp_path / "a.jsonl", "--events", hits)
    assert sorted(top["subscription"] for top in summary["top"]) == [1, 2, 3]


def test_ids_of_a_sql_file_are_those_of_its_comments(tmp_path, hits):
    (tmp_path / "a.sql").write_text(f"{HITS};\n-- id: 7\n{SLOW}; {ADMIN}")
    summary = run_json("match", "--subscriptions", tmp_path / "a.sql", "--events", hits)
    assert [top["subscription"] for top in summary["top"]] == [7, 1]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("relation", [None, "hits"])
def test_subscriptions_by_predicates(tmp_path, hits, suffix, relation):
    rows = [
        {"id": 3, "predicates": [{"attribute": "ms", "op": ">", "number": 5, "text": None}]},
        {"id": 4, "predicates": [{"attribute": "page", "op": "prefix", "number": None, "text": "/admin"}]},
    ]
    file = write_rows(tmp_path / f"p{suffix}", rows)
    options = ["--relation", relation] if relation else []
    summary = run_json("match", "--subscriptions", file, "--events", hits, *options)
    assert summary["relation"] == (relation or "events")
    assert [(top["subscription"], top["matches"]) for top in summary["top"]] == [(3, 2), (4, 1)]


def test_a_bad_predicate_is_reported_with_its_row(tmp_path, hits):
    rows = [{"id": 1, "predicates": [{"attribute": "ms", "op": "~", "number": 5}]}]
    result = run("match", "--subscriptions", write_rows(tmp_path / "p.jsonl", rows), "--events", hits)
    assert result.exit_code == 1
    assert "p.jsonl, row 0: there is no op '~'" in result.stderr


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_output_of_every_format(tmp_path, sql, hits, suffix):
    output = tmp_path / f"out{suffix}"
    result = run("match", "--subscriptions", sql, "--events", hits, "--output", output)
    assert result.exit_code == 0
    assert f"matches: 3, written to {output}" in result.stdout
    if suffix == ".parquet":
        rows = parquet.read_table(output).to_pylist()
    elif suffix == ".csv":
        rows = csv.read_csv(output).to_pylist()
    else:
        rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert rows == [{"event": event, "subscription": id} for event, id in PAIRS]
    assert not list(tmp_path.glob(".*")), "nothing is left behind"


def test_an_output_of_no_matches_is_there_and_empty(tmp_path, sql):
    events = write_rows(tmp_path / "hits.jsonl", [{"ms": 1}])
    output = tmp_path / "out.parquet"
    assert run("match", "--subscriptions", sql, "--events", events, "--output", output).exit_code == 0
    assert parquet.read_table(output).num_rows == 0


def test_first_matches_are_shown_and_explained(sql, hits):
    shown = run("match", "--subscriptions", sql, "--events", hits, "--limit", 1).stdout
    assert shown.splitlines()[0] == 'event 1 matches subscription 1: {"page":"/admin","ms":9}'
    assert "event 2 matches" not in shown
    shown = run("match", "--subscriptions", sql, "--events", hits, "--explain").stdout
    assert shown.count("matches subscription") == 3
    assert "  yes  page LIKE '/admin%'" in shown


# -- long files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_events_are_numbered_through_all_batches(tmp_path, suffix):
    rows = [{"page": f"/{n}", "ms": n} for n in range(25_000)]
    file = write_rows(tmp_path / f"hits{suffix}", rows)
    hits = Stream("hits", (Field("page", Type.STRING), Field("ms", Type.BIGINT)))
    batches = list(read_events(file, hits))
    assert max(len(batch.changes) for batch in batches) <= 10_000
    assert [n for batch in batches for n in batch.changes.origin.tolist()] == list(range(25_000))
    assert [n for b in batches for n in b.changes.rows.vectors("ms")[0].to_list()] == list(range(25_000))
    shares = [batch.share for batch in batches]
    assert shares == sorted(shares)
    assert 0.8 < shares[-1] <= 1.0
    assert shares[0] < 0.5


def test_a_csv_of_blocks_keeps_its_numbers_around_misshapen_rows(tmp_path):
    lines = ["page,ms"]
    for n in range(60_000):  # more than a block
        lines.append(f"/a/long/enough/page/{n},{n}" + (",extra" if n % 20_000 == 11 else ""))
    (tmp_path / "hits.csv").write_text("\n".join([*lines, "short", ""]))
    hits = Stream("hits", (Field("page", Type.STRING), Field("ms", Type.BIGINT)))
    batches = list(read_events(tmp_path / "hits.csv", hits))
    for batch in batches:
        if len(batch.changes):
            assert batch.changes.rows.vectors("ms")[0].to_list() == batch.changes.origin.tolist()
    assert [bad.row for batch in batches for bad in batch.bad] == [11, 20_011, 40_011, 60_000]
    assert sum(batch.read for batch in batches) == 60_001


# -- bad rows ----------------------------------------------------------------------------------------


def test_bad_lines_are_counted_by_reason_and_the_rest_goes_on(tmp_path, sql):
    good = json.dumps({"page": "/admin", "ms": 9})
    lines = [
        good,
        "{oops",
        '{"ms": "x"}',
        '{"ms": "y"}',
        "",
        "[1]",
        '{"pag": "/"}',
        '{"ms": 9, "ms": 7}',
        b"\xff".decode("latin1"),
        good,
    ]
    (tmp_path / "hits.jsonl").write_text("\n".join(lines))
    summary = run_json("match", "--subscriptions", sql, "--events", tmp_path / "hits.jsonl", code=1)
    assert not summary["ok"]
    assert (summary["events"], summary["bad_rows"], summary["matches"], summary["without_match"]) == (
        9,
        7,
        4,
        0,
    )
    reasons = {reason["reason"]: (reason["rows"], reason["first"]) for reason in summary["reasons"]}
    assert reasons["column ms: 'x' is not a BIGINT"] == (2, 2)
    assert reasons["malformed row: not a JSON object but list"] == (1, 4)
    assert reasons["hits has no column 'pag'"] == (1, 5)
    assert reasons["malformed row: 'ms' occurs twice"] == (1, 6)
    assert summary["warnings"] == ["hits has no column 'pag': did you mean 'page'?"]


def test_a_line_that_is_not_utf_8_is_a_bad_row(tmp_path, sql):
    (tmp_path / "hits.jsonl").write_bytes(b'{"page": "caf\xe9"}\n{"ms": 9}\n')
    summary = run_json("match", "--subscriptions", sql, "--events", tmp_path / "hits.jsonl", code=1)
    assert (summary["bad_rows"], summary["matches"]) == (1, 1)


def test_rows_of_an_array_are_bad_as_those_of_lines_are(tmp_path, sql):
    (tmp_path / "hits.json").write_text('[{"ms": 9}, {"ms": 1, "ms": 9}, 5, {"page": [{"ms": 1, "ms": 2}]}]')
    summary = run_json("match", "--subscriptions", sql, "--events", tmp_path / "hits.json", code=1)
    assert (summary["bad_rows"], summary["matches"]) == (3, 1)
    reasons = {kind["reason"] for kind in summary["reasons"]}
    nested = "column page: [{'ms': ...}] is not a STRING"  # inside of it nothing is examined
    assert {"malformed row: 'ms' occurs twice", "malformed row: not a JSON object but int", nested} == reasons


def test_an_integer_of_5000_digits_is_one_bad_row_of_an_array(tmp_path, sql):
    (tmp_path / "hits.json").write_text('[{"ms": 9}, {"ms": ' + "1" * 5000 + '}, {"ms": 9}]')
    summary = run_json("match", "--subscriptions", sql, "--events", tmp_path / "hits.json", code=1)
    assert (summary["bad_rows"], summary["matches"]) == (1, 2)
    (reason,) = summary["reasons"]
    assert reason["reason"] == "column ms: 11111111111111111111... (5000 characters) is not a BIGINT"


def test_a_csv_with_other_marks_between_cells_is_reported(tmp_path, sql):
    (tmp_path / "hits.csv").write_text("page;ms\n/;9\n")
    result = run("match", "--subscriptions", sql, "--events", tmp_path / "hits.csv")
    assert result.exit_code == 2
    assert "hint: separate the cells by commas" in result.stderr


def test_an_id_that_is_no_number_is_reported_with_its_row(tmp_path, hits):
    file = tmp_path / "a.csv"
    file.write_text("id,sql\n1,SELECT * FROM hits\nx,SELECT * FROM hits\n")
    result = run("match", "--subscriptions", file, "--events", hits)
    assert result.exit_code == 1
    assert "a.csv, row 1: 'x' is not an id" in result.stderr


def test_a_cell_that_is_not_utf_8_makes_a_bad_row(tmp_path, sql):
    (tmp_path / "hits.csv").write_bytes(b"page,ms\n/,9\ncaf\xe9,9\n,9\n\xff,x\n")
    summary = run_json("match", "--subscriptions", sql, "--events", tmp_path / "hits.csv", code=1)
    assert (summary["bad_rows"], summary["matches"]) == (2, 2)
    reasons = {(kind["reason"], kind["first"]) for kind in summary["reasons"]}
    assert ("malformed row: column page is not UTF-8, byte 3", 1) in reasons


def test_bad_cells_of_a_csv_are_bad_rows(tmp_path, sql):
    (tmp_path / "hits.csv").write_text("page,ms\n/,9\n/,x\n/,1,2\n/,NA\n/, 8 \n/,7.0\n/,7.5\n")
    result = run("match", "--subscriptions", sql, "--events", tmp_path / "hits.csv", "--limit", 9)
    assert result.exit_code == 1
    assert [line.split()[1] for line in result.stdout.splitlines()[:3]] == ["0", "4", "5"]
    assert "bad rows: 3" in result.stdout
    assert "2  column ms: 'x' is not a BIGINT  (first: event 1)" in result.stdout
    assert "1  malformed row: 3 cells instead of 2  (first: event 2)" in result.stdout


def test_bad_cells_of_a_parquet_file_are_bad_rows(tmp_path, sql):
    table = pa.table({"ms": pa.array([9, 2**63, 8], pa.uint64())})
    parquet.write_table(table, tmp_path / "hits.parquet")
    summary = run_json("match", "--subscriptions", sql, "--events", tmp_path / "hits.parquet", code=1)
    assert (summary["bad_rows"], summary["matches"], summary["reasons"][0]["first"]) == (1, 2, 1)


def test_rows_that_a_table_refuses_are_bad_rows(tmp_path):
    (tmp_path / "a.sql").write_text(
        "CREATE TABLE stocks (symbol STRING PRIMARY KEY, per DOUBLE); SELECT * FROM stocks WHERE per > 5;"
        "SELECT COUNT(*) FROM stocks"
    )
    rows = [{"symbol": "A", "per": 9}, {"symbol": "A", "per": 7}, {"symbol": "A", "per": 8, "_op": "update"}]
    events = write_rows(tmp_path / "stocks.jsonl", rows)
    summary = run_json("match", "--subscriptions", tmp_path / "a.sql", "--events", events, code=1)
    assert summary["reasons"] == [{"reason": "stocks has a row with key 'A' already", "first": 1, "rows": 1}]
    assert {top["subscription"]: top["matches"] for top in summary["top"]} == {1: 2, 2: 1}


# -- an open stream ----------------------------------------------------------------------------------


def test_cells_of_an_open_stream_have_the_type_of_their_column_or_their_own(tmp_path):
    lines = [f"{n},/{n},true,2013-01-01,\n" for n in range(30_000)]
    lines += ["2.5,/,false,2013-01-02,7\n", "x,/,no,2013-01-03,8\n"]
    (tmp_path / "hits.csv").write_text("ms,page,fine,day,late\n" + "".join(lines))
    selects = [
        "SELECT * FROM hits WHERE ms = 2.5",
        "SELECT * FROM hits WHERE ms = 'x'",
        "SELECT * FROM hits WHERE ms >= 29999",
        "SELECT * FROM hits WHERE fine = false",
        "SELECT * FROM hits WHERE day > DATE '2013-01-01' AND fine = 'no'",
        "SELECT * FROM hits WHERE late > 5",
    ]
    file = write_rows(tmp_path / "a.jsonl", [{"sql": text} for text in selects])
    summary = run_json("match", "--subscriptions", file, "--events", tmp_path / "hits.csv")
    assert {top["subscription"]: top["matches"] for top in summary["top"]} == {
        1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 2,
    }  # fmt: skip


def test_one_odd_cell_does_not_make_a_column_text(tmp_path):
    (tmp_path / "hits.csv").write_text("ms\nx\n" + "".join(f"{n}\n" for n in range(20)))
    selects = ["SELECT * FROM hits WHERE ms > 15", "SELECT * FROM hits WHERE ms = 'x'"]
    file = write_rows(tmp_path / "a.jsonl", [{"sql": text} for text in selects])
    summary = run_json("match", "--subscriptions", file, "--events", tmp_path / "hits.csv")
    assert {top["subscription"]: top["matches"] for top in summary["top"]} == {1: 4, 2: 1}


def test_an_attribute_that_no_event_has_is_noted(tmp_path, hits):
    file = write_rows(tmp_path / "a.csv", [{"sql": "SELECT * FROM hits WHERE mss > 5"}])
    result = run("match", "--subscriptions", file, "--events", hits)
    assert result.exit_code == 0
    assert "note: no event has 'mss', which 1 subscription uses: did you mean 'ms'?" in result.stdout


# -- empty, missing, wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hits.jsonl", "hits.csv", "hits.parquet", "header.csv"])
def test_no_events_are_no_problem(tmp_path, sql, name):
    file = tmp_path / name
    file.write_text("page,ms\n" if name == "header.csv" else "")
    if name == "hits.parquet":
        parquet.write_table(pa.table({"page": pa.array([], pa.string())}), file)
    summary = run_json("match", "--subscriptions", sql, "--events", file, "--output", tmp_path / "out.csv")
    assert (summary["events"], summary["matches"], summary["top"]) == (0, 0, [])
    assert (tmp_path / "out.csv").read_text() == "event,subscription\n"


@pytest.mark.parametrize(
    ("name", "text"), [("a.sql", HITS), ("a.sql", ""), ("a.jsonl", ""), ("a.csv", ""), ("a.csv", "id,sql\n")]
)
def test_no_subscriptions_are_wrong_use(tmp_path, hits, name, text):
    (tmp_path / name).write_text(text)
    result = run("match", "--subscriptions", tmp_path / name, "--events", hits)
    assert result.exit_code == 2
    assert "there are no subscriptions in" in result.stderr


def test_a_subscription_that_is_no_text_is_reported_with_its_row(tmp_path, hits):
    (tmp_path / "a.jsonl").write_text('{"sql": "SELECT * FROM hits"}\n{"sql": 5}\n')
    result = run("match", "--subscriptions", tmp_path / "a.jsonl", "--events", hits)
    assert result.exit_code == 1
    assert "a.jsonl, row 1: sql is 5" in result.stderr and "hint: write SELECT" in result.stderr


def test_missing_files_and_wrong_suffixes_are_wrong_use(tmp_path, sql, hits):
    (tmp_path / "a.txt").write_text("x")
    good = {"--subscriptions": sql, "--events": hits}
    for changed, fact in [
        ({"--subscriptions": tmp_path / "none.sql"}, "does not exist"),
        ({"--events": tmp_path / "none.jsonl"}, "does not exist"),
        ({"--subscriptions": tmp_path / "a.txt"}, "files end in .sql, .json"),
        ({"--events": tmp_path / "a.txt"}, "files end in .json"),
        ({"--events": sql}, "files end in .json"),
        ({"--output": tmp_path / "out.xlsx"}, "has an unknown format"),
        ({"--output": tmp_path / "none" / "out.csv"}, "cannot be written"),
        ({"--output": hits}, "is an input: it cannot be the output"),
        ({"--relation": "hit"}, "did you mean 'hits'?"),
        ({"--schema": tmp_path / "none.sql"}, "does not exist"),
    ]:
        result = run("match", *(part for pair in (good | changed).items() for part in pair))
        assert result.exit_code == 2, result.output
        assert fact in " ".join(result.stderr.replace("│", " ").split()), result.stderr


@pytest.mark.parametrize("content", ["not parquet", ""])
def test_a_file_that_is_not_what_it_says_is_reported(tmp_path, sql, content):
    (tmp_path / "hits.parquet").write_text(content)
    result = run(
        "match", "--subscriptions", sql, "--events", tmp_path / "hits.parquet", "--output", tmp_path / "o.csv"
    )
    assert result.exit_code == 2
    assert "hits.parquet cannot be read" in result.stderr
    assert not list(tmp_path.glob("*o.csv*")), "no output after an error"


def test_it_must_be_clear_what_the_events_are_of(tmp_path, sql, hits):
    sql.write_text(f"{HITS}; CREATE STREAM visits; {SLOW}")
    other = hits.rename(tmp_path / "log.jsonl")
    result = run("match", "--subscriptions", sql, "--events", other)
    assert result.exit_code == 2
    assert "hint: use --relation: there is hits, visits" in result.stderr
    assert run_json("match", "--subscriptions", sql, "--events", other, "--relation", "HITS")["matches"] == 2


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_that_is_not_declared_is_rejected_before_anything_is_run(tmp_path, sql, suffix):
    events = write_rows(tmp_path / f"hits{suffix}", [{"pagee": "/", "ms": 9}])
    result = run("match", "--subscriptions", sql, "--events", events)
    assert result.exit_code == 1
    assert "hits has no column 'pagee'" in result.stderr
    assert "hint: did you mean 'page'?" in result.stderr


def test_a_column_of_another_type_is_reported(tmp_path, sql):
    events = write_rows(tmp_path / "hits.parquet", [{"ms": "nine"}])
    result = run("match", "--subscriptions", sql, "--events", events)
    assert result.exit_code == 1
    assert "hits.parquet: column ms has type string, which is not a BIGINT" in result.stderr


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_one_bad_sql_names_its_row_and_nothing_is_run(tmp_path, hits, suffix):
    (tmp_path / "schema.sql").write_text(HITS)
    texts = [SLOW, "SELECT * FROM hits WHERE mss > 5", ADMIN, "SELEC 1"]
    file = write_rows(tmp_path / f"a{suffix}", [{"sql": text} for text in texts])
    output = tmp_path / "out.csv"
    result = run(
        "match",
        "--subscriptions",
        file,
        "--events",
        hits,
        "--schema",
        tmp_path / "schema.sql",
        "--output",
        output,
    )
    assert result.exit_code == 1
    assert f"error: {file}, row 1: there is no column 'mss' in hits" in result.stderr
    assert "line 1, column 26: SELECT * FROM hits WHERE mss > 5" in result.stderr
    assert "hint: did you mean 'ms'?" in result.stderr
    assert "also row 3:" in result.stderr
    assert result.stdout == ""
    assert not output.exists()


def test_one_bad_statement_has_its_line_in_the_file(tmp_path, hits):
    (tmp_path / "a.sql").write_text(f"{HITS};\n{SLOW};\nSELECT *\n  FROM hits WHERE mss > 5")
    result = run("match", "--subscriptions", tmp_path / "a.sql", "--events", hits)
    assert result.exit_code == 1
    assert "a.sql, line 3: there is no column 'mss' in hits" in result.stderr
    assert "line 4, column 19:   FROM hits WHERE mss > 5" in result.stderr
    (tmp_path / "a.sql").write_text(f"\nCREATE STREAM hits (n BLOB);\n{SLOW}")
    result = run("match", "--subscriptions", tmp_path / "a.sql", "--events", hits)
    assert result.exit_code == 1
    assert "line 2: 'BLOB' is not a type here" in result.stderr


@pytest.mark.parametrize(
    ("rows", "fact"),
    [
        ([{"id": 1, "sql": SLOW}, {"id": 1, "sql": ADMIN}], "row 1: id 1 is already used by row 0"),
        ([{"id": "x", "sql": SLOW}], "row 0: 'x' is not an id"),
        ([{"id": 1, "sql": None}], "row 0: sql is None"),
        ([{"id": 1, "sqll": SLOW}], "hint: did you mean 'sql'?"),
        ([{"id": 1}], "has no column 'sql' or 'predicates' but id"),
    ],
)
def test_rows_that_are_no_subscriptions(tmp_path, hits, rows, fact):
    result = run("match", "--subscriptions", write_rows(tmp_path / "a.jsonl", rows), "--events", hits)
    assert result.exit_code in (1, 2)
    assert fact in result.stderr


def test_lines_that_are_no_json_are_named(tmp_path, hits):
    (tmp_path / "a.jsonl").write_text(f"{json.dumps({'sql': SLOW})}\n{{sql}}\n")
    result = run("match", "--subscriptions", tmp_path / "a.jsonl", "--events", hits)
    assert result.exit_code == 2
    assert "a.jsonl cannot be read: line 2: Expecting" in result.stderr


def test_texts_are_taken_together_where_the_engine_can(tmp_path, hits, monkeypatch):
    def subscribe_texts(self, texts, ids=None, subscribers=None):
        if "bad" in texts:
            raise SubscriptionError("1 row is bad", rows=(BadRow(texts.index("bad"), "not a SELECT"),))
        for text, id in zip(texts, ids, strict=True):
            self.subscribe(text, id=id)

    monkeypatch.setattr(Engine, "subscribe_texts", subscribe_texts, raising=False)
    good = write_rows(tmp_path / "a.jsonl", [{"sql": SLOW}, {"sql": ADMIN}])
    assert match_files(good, hits).matches == 3
    bad = write_rows(tmp_path / "b.jsonl", [{"sql": SLOW}, {"sql": "bad"}])
    result = run("match", "--subscriptions", bad, "--events", hits)
    assert result.exit_code == 1
    assert f"{bad}, row 1: " in result.stderr


def test_subscriptions_can_be_loaded_into_an_engine_of_ones_own(sql):
    engine = Engine()
    load_subscriptions(engine, sql)
    assert [s.sql for s in engine.subscriptions()] == [SLOW, ADMIN]
